"""Integrals, means, largest and smallest values in equations: against NumPy, by conservation, and
with the same bits for any division, scheme and device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import solve_ivp

from tests.support.config_cases import mistakes, read
from tests.support.pde_cases import whole_and_continued
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.errors import ConfigError
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod as GpuPlain
from tetris_sim.model.equations import digit_sums, total
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.checkpoint import problem_digest
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.simulation.loop import open_simulation

Numbers = npt.NDArray[Any]

# A mass that is kept, a scalar beside it that reads its mean, and a maximum.
TEXT = """\
grid: {shape: [26, 13], size: [1.3, 0.7]}
model:
  type: pde
  constants: {K: 2}
  definitions: {f: "u - u**3"}
  fields:
    u: {equation: "laplace(u)/500 + f - mean(f)", initial: {type: random, low: -1, high: 1}}
    s: {equation: "K*(mean(u*u) - s)", initial: {type: constant, value: 0.1}}
    v: {equation: "v*(1 - v/max(v)) + integral(u*min(v)) - t", initial: {type: random, seed: 2}}
boundaries: {"*": {type: neumann}}
time: {steps: 12, dt: 0.02, scheme: euler}
"""


def solved(problem: Problem, method: str = "cpu.plain", workers: int = 1) -> Field:
    compute = ComputeSection(method=method, devices=("cpu",) * workers, threads=workers)
    plan = make_plan(problem, find_machine(), compute)
    with open_simulation(problem, plan) as simulation:
        simulation.run()
        return simulation.field()


def right_side(state: Numbers, t: float) -> Numbers:
    u, s, v = state
    wide, h2 = np.pad(u, 1, mode="symmetric"), 0.05**2
    ys, xs = 0.7 / 13, 0.05
    laplace = (wide[1:-1, 2:] + wide[1:-1, :-2] - 2 * u) / h2
    laplace += (wide[2:, 1:-1] + wide[:-2, 1:-1] - 2 * u) / ys**2
    f = u - u**3
    return np.stack(
        [
            laplace / 500 + f - f.mean(),
            2 * ((u * u).mean() - s),
            v * (1 - v / v.max()) + (u * v.min()).sum() * xs * ys - t,
        ]
    )


def stepped(scheme: str, state: Numbers, steps: int, dt: float) -> Numbers:
    for n in range(steps):
        t = n * dt
        a = right_side(state, t)
        if scheme == "euler":
            state = state + dt * a
            continue
        b = right_side(state + dt / 2 * a, t + dt / 2)
        if scheme == "rk2":
            state = state + dt * b
            continue
        c = right_side(state + dt / 2 * b, t + dt / 2)
        d = right_side(state + dt * c, t + dt)
        state = state + dt / 6 * (a + 2 * b + 2 * c + d)
    return state


@pytest.mark.parametrize("scheme", ["euler", "rk2", "rk4"])
def test_schemes_agree_with_numpy_for_any_division(scheme: str) -> None:
    problem = read(TEXT, f"time.scheme={scheme}").build()
    assert not problem.system.is_local
    assert not problem.is_adaptive
    start = problem.initial(Slab.whole(problem.grid))
    expected = stepped(scheme, start, 12, 0.02)
    found = solved(problem)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-14)
    # The mass is kept, and the scalar is the same everywhere, to the last bit.
    assert found[0].mean() == pytest.approx(start[0].mean(), abs=1e-15)
    assert (found[1] == found[1, 0, 0]).all()
    for workers in (2, 3):
        np.testing.assert_array_equal(solved(problem, workers=workers), found)


@pytest.mark.parametrize(("scheme", "more"), [("ssprk3", ""), ("rkl2", ""), ("rk2", "1e-9")])
def test_other_schemes_come_to_the_same(scheme: str, more: str) -> None:
    step = ["time.dt=0.1", "time.steps=1", f"time.tolerance={more}"]
    step = step if more else ["time.dt=0.002", "time.steps=50"]
    problem = read(TEXT, f"time.scheme={scheme}", *step).build()
    start = problem.initial(Slab.whole(problem.grid))
    exact = solve_ivp(
        lambda t, y: right_side(y.reshape(start.shape), t).ravel(),
        *((0, 0.1), start.ravel()),
        rtol=1e-10,
        atol=1e-12,
    )
    found = solved(problem)
    np.testing.assert_allclose(found, exact.y[:, -1].reshape(start.shape), rtol=0, atol=5e-6)
    np.testing.assert_array_equal(solved(problem, workers=3), found)


SECOND = """\
grid: {shape: [16], spacing: [1]}
model:
  type: pde
  fields:
    w: {second_order: "laplace(w) - integral(w*w)*w/16", initial: {type: random}}
boundaries: {"*": {type: periodic}}
time: {steps: 30, dt: 0.05, scheme: leapfrog}
"""


def test_leapfrog_reads_them_too() -> None:
    problem = read(SECOND).build()
    w = problem.initial(Slab.whole(problem.grid))[0]
    speed = np.zeros_like(w)
    for n in range(30):
        force = np.roll(w, 1) + np.roll(w, -1) - 2 * w - (w * w).sum() * w / 16
        speed = speed + (0.05 if n else 0.025) * force
        w = w + 0.05 * speed
    np.testing.assert_allclose(solved(problem), [w, speed], rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", [(11,), (5, 7), (3, 4, 5)])
def test_sums_have_the_same_bits_in_any_order(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape))
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9, shape)
    exponent = math.frexp(float(np.abs(values).max()))[1]
    whole = total(digit_sums(values, exponent), exponent)
    # Nearer to the exact sum than the last place of the largest value.
    assert abs(whole - math.fsum(values.ravel())) <= values.size * math.ldexp(1, exponent - 72)
    for _ in range(5):
        parts = np.split(rng.permutation(values.ravel()), [values.size // 3, values.size // 2])
        sums = [digit_sums(it, exponent) for it in parts]
        digits = [sum(it) for it in zip(*sums, strict=True)]
        assert total(digits, exponent) == whole


ROUND = """\
grid: {shape: [8, 6], size: [2, 3], coordinates: cylindrical, axes: [r, z], origin: {r: 1}}
model:
  type: pde
  fields:
    u: {equation: "integral(1 + 0*u)", initial: {type: constant, value: 0}}
    v: {equation: "mean(r)", initial: {type: constant, value: 0}}
boundaries: {"*": {type: neumann}}
time: {steps: 1, dt: 1}
"""


def test_cells_count_by_their_volumes() -> None:
    u, v = solved(read(ROUND).build())
    np.testing.assert_allclose(u, math.pi * (3**2 - 1) * 3, rtol=1e-14)
    ends = 1 + np.arange(9) / 4
    middle = (ends[1:] + ends[:-1]) / 2
    np.testing.assert_allclose(v, (middle * middle).sum() / middle.sum(), rtol=1e-14)


def test_a_gpu_has_the_bits_of_a_cpu() -> None:
    from tests.support.emulator.emulation import COMPILER, NO_COMPILER

    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    from tests.support.emulator.host_gpu import HostGpu

    problem, team = read(TEXT, "time.scheme=rk2").build(), ThreadTeam(1)
    equations, found = problem.system, []
    assert len(equations.parts) > 2
    names = [
        [it for it in stage.formulas if it in equations.reductions] for stage in equations.stages
    ]
    for method, device in ((METHODS[-1], team), (GpuPlain(), HostGpu())):
        stepper: Any = method.prepare(problem, Slab.whole(problem.grid), {}, device)
        stepper.load(problem.initial)
        seen: list[Any] = []
        for step in range(2):
            known: dict[str, float] = {}
            for number, (_, end) in enumerate(equations.parts):
                stepper.substep(0.02 * step, 0.02, number, dict(known))
                for name in names[end - 1]:
                    seen.append((stepper.extremes([name]).tolist(), stepper.digits(name, 3)))
                    known[name] = total(stepper.digits(name, 3), 3) / 100
        found.append((stepper.interior(), seen))
        stepper.close()
    team.close()
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_what_is_refused_says_why() -> None:
    for scheme in ("implicit", "imex", "etdrk4"):
        with pytest.raises(ConfigError, match="are numbers of the whole grid; take an explicit"):
            read(TEXT, f"time.scheme={scheme}").build()
    assert "mean takes 1 argument, not 2" in mistakes(TEXT.replace("mean(f)", "mean(f, u)"))[0]
    # A stream makes many steps before all points meet.
    refusal: Callable[[Problem], str | None] = METHODS[0].refusal
    assert "numbers of the whole grid" in str(refusal(read(TEXT).build()))
    # Another number of the grid is another problem.
    others = [TEXT.replace("mean(u*u)", it) for it in ("mean(u*u)", "max(u*u)", "integral(u*u)")]
    assert len({problem_digest(read(text).build()) for text in others}) == 3


def test_a_run_that_is_continued_has_the_same_bits(tmp_path: Path) -> None:
    whole, continued = whole_and_continued(TEXT, tmp_path, ("u", "s", "v"), every=5)
    np.testing.assert_array_equal(continued, whole)
