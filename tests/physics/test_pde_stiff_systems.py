"""Stiff systems in `solve_pde` and in runs: orders, faces and functions, and what plans say."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.pde_cases import config, field
from tetris_sim import Dirichlet, Neumann, Periodic, Robin, solve_pde
from tetris_sim.__main__ import main
from tetris_sim.commands.init import template_text
from tetris_sim.config import Config, make_config
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArrays
from tetris_sim.errors import NumericsError, UnsupportedError
from tetris_sim.model.boundary import Boundary
from tetris_sim.simulation.launch import launch
from tetris_sim.simulation.report import Report
from tetris_sim.solvers.spectral.exponential import ArrayRates

Values = npt.NDArray[np.float64]
ORDERS = {"etdrk4": 4, "imex": 3, "implicit": 2}
X32 = (np.arange(32) + 0.5) / 32 * 2 * math.pi
Y24 = (np.arange(24) + 0.5) / 24 * 2 * math.pi
WAVES = np.cos(X32) + 0.3 * np.sin(2 * X32)[None] * np.ones((24, 1)) + 0.2 * np.cos(Y24)[:, None]
RING, WALLS = Periodic(), Neumann()
# Equations, fields at the start, boundary, spacing, final time, largest explicit step.
SYSTEMS: dict[str, dict[str, Any]] = {
    "Kuramoto-Sivashinsky": {
        "equations": {"u": "-dxx(u) - dxx(dxx(u)) - 0.5*dx(u**2)"},
        "fields": {"u": np.cos(X32) * (1 + np.sin(X32))},
        "boundary": RING,
        "spacing": math.pi / 2,
        "end": 4.0,
    },
    "Allen-Cahn": {
        "equations": {"u": "laplace(u) + u - u**3"},
        "fields": {"u": WAVES},
        "boundary": WALLS,
        "spacing": 0.7,
        "end": 1.0,
    },
    "Gray-Scott": {
        "equations": {
            "u": "0.16*laplace(u) - u*v**2 + 0.04*(1 - u)",
            "v": "0.08*laplace(v) + u*v**2 - 0.1*v",
        },
        "fields": {"u": 1 - 0.3 * WAVES**2, "v": 0.3 * WAVES**2},
        "boundary": RING,
        "spacing": 1.0,
        "end": 4.0,
    },
    "Cahn-Hilliard beside walls": {
        "equations": {"c": "laplace(c**3 - c - laplace(c))"},
        "fields": {"c": 0.3 * WAVES},
        "boundary": WALLS,
        "spacing": 1.0,
        "end": 2.0,
    },
    "Swift-Hohenberg": {
        "equations": {"u": "0.3*u - (u + 2*laplace(u) + biharmonic(u)) - u**3"},
        "fields": {"u": 0.5 * WAVES},
        "boundary": RING,
        "spacing": 0.8,
        "end": 2.0,
    },
    "coupled waves": {
        "equations": {"u": "w", "w": "4*laplace(u) - 0.5*w - u**3"},
        "fields": {"u": WAVES, "w": 0 * WAVES},
        "boundary": RING,
        "spacing": 1.0,
        "end": 1.0,
    },
    "carried between given values": {
        "equations": {"u": "laplace(u) - 0.5*dx(u) + 0.2*v", "v": "2*laplace(v) + u - v + u*v/4"},
        "fields": {"u": np.cos(X32), "v": np.sin(X32)},
        "boundary": Boundary(((Dirichlet(1.0), Neumann(0.3)),)),
        "spacing": 1.0,
        "end": 1.0,
    },
}


def solved(name: str, scheme: str, dt: float, **more: Any) -> dict[str, Values]:
    it = SYSTEMS[name]
    steps = round(it["end"] / dt)
    found = solve_pde(
        it["fields"],
        it["equations"],
        steps,
        dt=dt,
        scheme=scheme,
        spacing=it["spacing"],
        boundary=it["boundary"],
        threads=1,
        **more,
    )
    return {key: np.asarray(values, np.float64) for key, values in found.items()}


def distance(a: dict[str, Values], b: dict[str, Values]) -> float:
    return max(float(np.abs(a[key] - b[key]).max()) for key in a)


@pytest.mark.parametrize("name", SYSTEMS)
def test_errors_shrink_with_the_order_of_the_scheme(name: str) -> None:
    exact = solved(name, "rk4", SYSTEMS[name]["end"] / 800, method="cpu.plain")
    for scheme, order in ORDERS.items():
        dt = SYSTEMS[name]["end"] / (40 if scheme == "implicit" else 16)
        coarse, fine = (distance(solved(name, scheme, h), exact) for h in (dt, dt / 2))
        assert fine < 3e-3, scheme
        assert math.log2(coarse / fine) > order - 0.6, (scheme, coarse, fine)


@pytest.mark.parametrize("scheme", ORDERS)
def test_substeps_follow_their_errors(scheme: str) -> None:
    exact = solved("Gray-Scott", "rk4", 0.05, method="cpu.plain")
    rough, good = (
        distance(solved("Gray-Scott", scheme, 4.0, tolerance=it), exact) for it in (1e-3, 1e-6)
    )
    assert good < 2e-5
    assert good < rough < 1e-2


@pytest.mark.parametrize("scheme", ORDERS)
@pytest.mark.parametrize("boundary", [RING, WALLS])
def test_a_mixture_keeps_its_mass(scheme: str, boundary: Any) -> None:
    c = np.random.default_rng(3).uniform(-0.1, 0.1, (18, 22))
    equation = {"c": "laplace(c**3 - c - laplace(c))"}
    found = solve_pde({"c": c}, equation, 60, dt=0.5, scheme=scheme, boundary=boundary, threads=1)
    assert abs(found["c"].sum() - c.sum()) < 1e-11
    assert np.abs(found["c"]).max() > 0.5


@pytest.mark.parametrize(
    ("equation", "boundary"),
    [
        ("div_grad(1 + u**2, u) - u**3", Robin(0.4, 1.0)),
        ("laplace(u) - u*sqrt(1 + u**2) + exp(-u)*dx(u)", Dirichlet(0.5)),
        ("laplace(u) + where(u > 0, tanh(u), sin(u)) - abs(u)*u", Robin(0.1, -1.0)),
        ("laplace(atan2(u, 2)) + max(u, 0)**1.5 - log(2 + u) + 0.1*x*cos(t)", WALLS),
    ],
)
def test_newtons_method_knows_every_face_and_function(equation: str, boundary: Any) -> None:
    given = {"boundary": boundary, "spacing": 0.8, "threads": 1}
    start = {"u": 0.5 * WAVES}
    exact = solve_pde(start, {"u": equation}, 200, dt=0.005, scheme="rk4", **given)
    found = [
        solve_pde(start, {"u": equation}, n, dt=1 / n, scheme="implicit", **given) for n in (10, 20)
    ]
    coarse, fine = (np.abs(it["u"] - exact["u"]).max() for it in found)
    assert fine < 5e-3
    assert coarse / fine > 3


def test_many_unknowns_are_solved_for_by_waves_and_by_factors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = solved("Gray-Scott", "implicit", 0.5)
    monkeypatch.setattr("tetris_sim.solvers.newton._DIRECT", 0)
    assert distance(solved("Gray-Scott", "implicit", 0.5), few) < 1e-7

    given: dict[str, Any] = {"dt": 0.5, "scheme": "implicit", "threads": 1}
    start, equation = {"u": WAVES}, {"u": "laplace(u) - u**3"}
    there = solve_pde(start, equation, 4, boundary=Robin(0.4, 1.0), **given)["u"]
    monkeypatch.undo()
    here = solve_pde(start, equation, 4, boundary=Robin(0.4, 1.0), **given)["u"]
    np.testing.assert_allclose(there, here, atol=1e-7)


@pytest.mark.parametrize("equation", ["u*laplace(u) + x*dx(u) + sin(t)*u", "dx(u*dx(u)) - v*u"])
def test_arrays_of_a_device_give_what_compiled_programs_give(equation: str) -> None:
    fields = {"u": field(equation, 0.0), "v": field("laplace(v) + u % 0.7", 0.0)}
    values = config(fields).resolved()
    walls = {"x-": {"type": "dirichlet", "value": 2.0}, "*": {"type": "neumann"}}
    values |= {"time": {"scheme": "etdrk4", "t_end": 1.0}, "boundaries": walls}
    problem = make_config(values).build()
    u = np.random.default_rng(0).uniform(0.1, 1.0, problem.state_shape)
    with contextlib.closing(ThreadTeam(1)) as team:
        compiled = CpuArrays(team).rates(problem)(u, 0.3)
    np.testing.assert_allclose(ArrayRates(problem)(u, 0.3), compiled, rtol=1e-12, atol=1e-12)


ONE = {"devices": ["cpu"], "tuning_budget": 0, "threads": 1}
PAIR = {
    "u": field("0.1*laplace(u) + 1 - 4*u + u**2*v", "1 + 0.1*sin(x)"),
    "v": field("laplace(v) + 3*u - u**2*v", 3.0),
}


def case(directory: Path, fields: Any, **sections: Any) -> Config:
    values = config(fields).resolved()
    values |= {"output": {"directory": str(directory), "fields": {"every": 0.5}}}
    values |= {"compute": ONE, "checkpoint": {}, **sections}
    return make_config(values)


def last(directory: Path, report: Report) -> dict[str, Values]:
    assert report.exit_code == 0
    with h5py.File(directory / "fields.h5") as file:
        return {name: np.asarray(file[name][-1]) for name in ("u", "v") if name in file}


def test_a_steady_state_of_two_fields_stands_still(tmp_path: Path) -> None:
    output = {"directory": str(tmp_path), "fields": {"every": "1 step"}}
    walls = {"x-": {"type": "dirichlet", "value": 1.2}, "*": {"type": "neumann"}}
    stable = {
        "u": field("0.1*laplace(u) + 1 - 3*u + u**2*v", "1 + 0.1*sin(x)"),
        "v": field("laplace(v) + 2*u - u**2*v - 0.5*(v - 2)", 2.0),
    }
    report = launch(
        case(tmp_path, stable, time={"scheme": "steady"}, boundaries=walls, output=output)
    )
    assert report.methods["cpu:0"] == "cpu.newton"
    found = last(tmp_path, report)

    # Steps from there go nowhere.
    faces = Boundary(((Neumann(), Neumann()), (Dirichlet(1.2), Neumann())))
    grid = case(tmp_path, stable, time={"scheme": "steady"}).build().grid
    still = solve_pde(
        found,
        {name: it["equation"] for name, it in stable.items()},
        2,
        dt=5.0,
        scheme="implicit",
        boundary=faces,
        spacing=grid.spacing,
        threads=1,
    )
    for name in found:
        np.testing.assert_allclose(still[name], found[name], atol=1e-6)


def test_what_never_stands_still_is_said(tmp_path: Path) -> None:
    time = {"scheme": "steady"}
    ring = {"*": {"type": "periodic"}}
    with pytest.raises(NumericsError, match="Does the state swing"):
        launch(case(tmp_path, {"u": field("laplace(u) + 1", 0.0)}, time=time, boundaries=ring))
    with pytest.raises(UnsupportedError, match="change with time, so nothing stays as it is"):
        launch(case(tmp_path / "t", {"u": field("laplace(u) - u**3 + sin(t)", 0.0)}, time=time))


def test_a_plan_says_how_and_that_substeps_are_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rolls.yaml"
    file.write_text(template_text("swift_hohenberg"))
    assert main(["plan", str(file)]) == 0
    said = capsys.readouterr().out
    assert "cpu.etdrk4: the linear part of the equations is propagated exactly" in said
    assert "whose number is not known" not in said
    assert main(["plan", str(file), "--set", "time={scheme: imex, t_end: 9}"]) == 0
    assert "times substeps a step, whose number is not known" in capsys.readouterr().out


def test_a_slow_problem_takes_few_steps(tmp_path: Path) -> None:
    """PFHub 1a (A. M. Jokisaari et al., Comput. Mater. Sci. 126 (2017) 139) on a coarser grid, for
    its first part.
    """
    c = "(0.5 + 0.01*(cos(0.105*x)*cos(0.11*y) + (cos(0.13*x)*cos(0.087*y))**2))"
    mixture = "5*laplace(10*(u - 0.3)*(0.7 - u)*(1 - 2*u) - 2*laplace(u))"
    values: dict[str, Any] = {
        "grid": {"shape": [50, 50], "spacing": [2.0, 2.0]},
        "boundaries": {"*": {"type": "periodic"}},
        "output": {"directory": str(tmp_path)},
    }
    time = {"scheme": "etdrk4", "t_end": 100.0, "tolerance": 1e-3}
    given = {"u": field(mixture, c)}
    with_ends = {"output": {"directory": str(tmp_path), "fields": {"every": 100.0}}}
    report = launch(case(tmp_path, given, time=time, **(values | with_ends)))
    u = last(tmp_path, report)["u"]

    slopes = sum(((np.roll(u, -1, axis) - u) ** 2).sum() for axis in (0, 1))
    energy = 4 * (5 * (u - 0.3) ** 2 * (0.7 - u) ** 2).sum() + slopes
    assert energy == pytest.approx(34.7328, rel=4e-3)  # that of rk4 in 10,000 steps
    made = next(note for note in report.notes if note.startswith("Adaptive steps"))
    assert int(made.split()[2]) < 300
