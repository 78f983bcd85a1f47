"""RKL2: its polynomial, its order, its limit, and that it is stable where it says so."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.test_substeps import solved
from tests.support.pde_cases import SINE, config, field
from tetris_sim import commands
from tetris_sim.apps.pde.runge_kutta import rkl2_factor, stretched
from tetris_sim.config import load_config
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import UnstableStepError
from tetris_sim.model import reference
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.checkpoint import problem_digest

FOLDER = Path(commands.__file__).parent / "templates"


def run(problem: Problem) -> Field:
    return reference.advance(problem.initial(Slab.whole(problem.grid)), problem, problem.steps)


@pytest.mark.parametrize("stages", [3, 8, 16])
def test_its_polynomial_is_legendre_s(stages: int) -> None:
    """R(z) = 1 - b + b P_s(1 + w z)."""
    z = np.linspace(-2 * stretched(stages), 0, 200)
    b = (stages * stages + stages - 2) / (2 * stages * (stages + 1))
    legendre = np.polynomial.legendre.Legendre.basis(stages)(1 + z / stretched(stages))
    factor = rkl2_factor(z, stages)
    np.testing.assert_allclose(factor, 1 - b + b * legendre, atol=1e-12)
    assert np.abs(factor).max() <= 1 + 1e-12


def test_it_is_of_second_order_also_where_time_is_in_the_equation() -> None:
    def final(steps: int, scheme: str) -> Field:
        fields = {
            "u": field("0.3*laplace(u) - u*v + sin(3*t)", "1 + sin(2*pi*x/Lx)"),
            "v": field("u - v*cos(t)", 0.7),
        }
        time = {"t_end": 1.0, "dt": 1 / steps, "scheme": scheme}
        return run(config(fields, shape=(24,), time=time, allow_growth=True).build())

    truth = final(256, "rk4")
    coarse, fine = (np.abs(final(n, "rkl2") - truth).max() for n in (8, 16))
    assert math.log2(coarse / fine) == pytest.approx(2, abs=0.3)


@pytest.mark.parametrize(("dt", "stages"), [(0.5, 3), (2.0, 6), (16.0, 16)])
def test_a_step_has_as_many_stages_as_it_needs(dt: float, stages: int) -> None:
    time = {"steps": 30, "dt": dt, "scheme": "rkl2"}
    problem = config({"u": field("laplace(u)", {"type": "random"})}, time=time).build()
    assert problem.equations is not None
    assert len(problem.equations.stages) == stages
    # With an odd number of stages the last wave turns over a little later.
    assert 1 - 1e-6 < problem.dt_limit / (0.25 * stretched(stages)) < 1 + 0.2 * (stages % 2) + 1e-6
    assert np.abs(run(problem)).max() <= 1.0


def test_partitions_and_blocks_have_the_same_bits() -> None:
    walls = {"x": {"type": "dirichlet", "value": "t"}, "y": {"type": "neumann"}}
    time = {"steps": 3, "dt": 0.5, "scheme": "rkl2"}
    problem = config(
        {"u": field("laplace(u) - u**3", SINE)}, shape=(16, 37), boundaries=walls, time=time
    ).build()
    alone, _ = solved(problem, ComputeSection(method="cpu.plain", threads=1))
    np.testing.assert_allclose(alone, run(problem), atol=1e-13)
    for method, workers in (("cpu.plain", 3), ("cpu.stream", 1)):
        compute = ComputeSection(method=method, devices=("cpu",) * workers, threads=workers)
        np.testing.assert_array_equal(solved(problem, compute)[0], alone)


@pytest.mark.parametrize(
    "more",
    [
        *({"dt": "auto", "safety": safety} for safety in (0.5, 0.7, 0.75, 0.8, 0.9)),
        *({"dt": dt} for dt in (0.3, 0.61, 1.3, 3.3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("equation", ["laplace(u) - u**3", "laplace(u) + u - u**3", "laplace(u)"])
def test_a_run_that_goes_on_takes_the_stages_it_began_with(
    equation: str, more: dict[str, Any]
) -> None:
    time = {"scheme": "rkl2", "t_end": 100, **more}
    found = config({"u": field(equation, SINE)}, shape=(32, 32), time=time)
    begun = found.build()
    assert problem_digest(found.build(dt=begun.dt)) == problem_digest(begun)


def test_what_grows_is_followed_for_a_step_that_is_sought_and_for_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = config({"u": field("laplace(u) + u - u**3", SINE)}, time={"t_end": 9, "scheme": "rk4"})
    begun = found.build()
    monkeypatch.setattr("tetris_sim.apps.pde.stability._Samples.follow", None)
    assert found.build().dt == begun.dt  # is known by now
    monkeypatch.setattr("tetris_sim.apps.pde.stability._FOUND", {})
    assert problem_digest(found.build(dt=begun.dt)) == problem_digest(begun)
    with pytest.raises(TypeError):
        found.build()


TEMPLATES = sorted(it.stem for it in FOLDER.glob("*.yaml") if "type: pde" in it.read_text())


@pytest.mark.parametrize("scheme", ["own", "rk4", "rkl2"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_that_goes_on_is_the_problem_it_was(name: str, scheme: str) -> None:
    overrides = [] if scheme == "own" else [f"time.scheme={scheme}", "time.dt=auto"]
    found = load_config(FOLDER / f"{name}.yaml", overrides=overrides)
    if scheme == "rkl2" and name in {"schroedinger", "shallow_water", "shot", "wave"}:
        with pytest.raises(UnstableStepError, match="no step of rkl2 is stable"):
            found.build()
        return
    begun = found.build()
    assert problem_digest(found.build(dt=begun.dt)) == problem_digest(begun)
