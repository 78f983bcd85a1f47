"""Fields that an elliptic equation gives at every moment: exact solutions, orders, NumPy's steps for
any division and device, and what is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.config_cases import mistakes, read
from tests.support.pde_cases import whole_and_continued
from tetris_sim import solve_pde
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.errors import ConfigError, NumericsError
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod as GpuPlain
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.simulation.loop import open_simulation

Numbers = npt.NDArray[Any]

# Vorticity and stream function in a box whose lid moves by itself: Dirichlet and periodic faces.
TEXT = """\
grid: {shape: [24, 18], size: [1.2, 0.9]}
model:
  type: pde
  allow_growth: true
  fields:
    w: {equation: "laplace(w)/20 - dy(psi)*dx(w) + dx(psi)*dy(w)", initial: {type: random}}
    psi: {equation: "0 = laplace(psi) + w - mean(w)/2 + t", boundaries: {"y": {type: dirichlet, value: 0.1}}}
boundaries: {"x": {type: periodic}, "y": {type: neumann}}
time: {steps: 6, dt: 0.005, scheme: rk2}
"""


def solved(problem: Problem, workers: int = 1) -> Field:
    compute = ComputeSection(method="cpu.plain", devices=("cpu",) * workers, threads=workers)
    plan = make_plan(problem, find_machine(), compute)
    with open_simulation(problem, plan) as simulation:
        simulation.run()
        return simulation.field()


def matrices() -> tuple[Numbers, Numbers]:
    """(d_xx + d_yy of psi, what its faces add), dense, of 18 rows of 24 points with h = 0.05."""
    n, m, h2 = 24, 18, 0.05**2
    x = (np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0) - 2 * np.eye(n)) / h2
    y = (np.eye(m, k=1) + np.eye(m, k=-1) - 2 * np.eye(m)) / h2
    y[0, 0] -= 1 / h2  # a ghost is 2 * 0.1 - psi
    y[-1, -1] -= 1 / h2
    given = np.zeros((m, n))
    given[[0, -1]] = 0.2 / h2
    return np.kron(y, np.eye(n)) + np.kron(np.eye(m), x), given


def stepped(w: Numbers, steps: int, dt: float) -> tuple[Numbers, Numbers]:
    matrix, given = matrices()

    def stream(w: Numbers, t: float) -> Numbers:
        found = np.linalg.solve(matrix, -(w - w.mean() / 2 + t + given).ravel())
        return np.asarray(found.reshape(w.shape))

    def rate(w: Numbers, t: float) -> Numbers:
        psi = stream(w, t)

        def slopes(u: Numbers, low: Numbers, high: Numbers) -> tuple[Numbers, Numbers, Numbers]:
            wide = np.concatenate([low[None], u, high[None]])
            across = (np.roll(u, -1, 1), np.roll(u, 1, 1))
            second = (across[0] + across[1] + wide[2:] + wide[:-2] - 4 * u) / 0.05**2
            return (across[0] - across[1]) / 0.1, (wide[2:] - wide[:-2]) / 0.1, second

        px, py, _ = slopes(psi, 0.2 - psi[0], 0.2 - psi[-1])
        wx, wy, second = slopes(w, w[0], w[-1])
        return np.asarray(second / 20 - py * wx + px * wy)

    for k in range(steps):
        middle = w + dt / 2 * rate(w, k * dt)
        w = w + dt * rate(middle, (k + 0.5) * dt)
    return w, stream(w, steps * dt)


def test_steps_are_those_of_numpy_for_any_division() -> None:
    problem = read(TEXT).build()
    start = problem.initial(Slab.whole(problem.grid))
    assert not problem.system.is_local
    expected = stepped(start[0], 6, 0.005)
    found = solved(problem)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    for workers in (2, 3):
        np.testing.assert_array_equal(solved(problem, workers=workers), found)


def test_a_gpu_has_the_bits_of_a_cpu() -> None:
    from tests.support.emulator.emulation import COMPILER, NO_COMPILER

    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    from tests.support.emulator.host_gpu import HostGpu

    problem, team, found = read(TEXT.replace("mean(w)/2", "w/2")).build(), ThreadTeam(1), []
    equations = problem.system
    assert len(equations.parts) == 3
    for method, device in ((METHODS[-1], team), (GpuPlain(), HostGpu())):
        stepper: Any = method.prepare(problem, Slab.whole(problem.grid), {}, device)
        stepper.load(problem.initial)
        for number in range(3):
            stepper.substep(0.0, 0.005, number)
            for it in equations.elliptic[number : number + 1]:
                kept = {name: stepper.whole(array) for name, array in it.kept.items()}
                residuals = [stepper.whole(r) for r in it.residuals.values()]
                values = it.solve(residuals, kept, 1e-16, (0.0, 0.005))
                for name, correction in zip(it.residuals, values, strict=True):
                    stepper.give(name, correction)
        found.append(stepper.interior())
        stepper.close()
    team.close()
    np.testing.assert_array_equal(*found)
    assert np.abs(found[0] - problem.initial(Slab.whole(problem.grid))).max() > 1e-3


def test_a_run_that_is_continued_has_the_same_bits(tmp_path: Path) -> None:
    whole, continued = whole_and_continued(TEXT, tmp_path, ("w", "psi"), every=4)
    np.testing.assert_array_equal(continued, whole)


def test_a_vortex_array_decays_as_it_should() -> None:
    """Taylor and Green's vortices, exactly: w = 2 cos(x) cos(y) exp(-2 nu t)."""
    n, nu = 32, 0.1
    x = (np.arange(n) + 0.5) * 2 * np.pi / n
    w = 2 * np.cos(x) * np.cos(x)[:, None]
    k = (2 - 2 * np.cos(2 * np.pi / n)) / (2 * np.pi / n) ** 2
    equations = {
        "w": "nu*laplace(w) - dy(psi)*dx(w) + dx(psi)*dy(w)",
        "psi": "0 = laplace(psi) + w",
    }
    ways: list[tuple[dict[str, Any], float]] = [({"dt": 0.01}, 1e-10), ({"tolerance": 1e-7}, 1e-6)]
    for options, allowed in ways:
        found = solve_pde(
            equations,
            {"w": w, "psi": 0 * w},
            t_end=1.0,
            scheme="rk4",
            constants={"nu": nu},
            spacing=2 * np.pi / n,
            faces={"x": {"type": "periodic"}, "y": {"type": "periodic"}},
            **options,
        )
        last, exact = found.fields.isel(time=-1), np.exp(-2 * nu * k)
        assert np.abs(last.w.values - exact * w).max() < allowed
        assert np.abs(last.psi.values - exact * w / (2 * k)).max() < allowed


def first(text: str, *more: str) -> dict[str, Numbers]:
    """The fields at the start of a run, which needs no step."""
    problem = read(text, *more).build()
    whole = problem.initial(Slab.whole(problem.grid))
    return {it.name: values for it, values in zip(problem.variables, whole, strict=True)}


# Manufactured: p = cos(pi x) exp(y), by transforms where coefficients are constant; with k(x), or
# k of a field, by the sparse matrix; Robin's condition has no transform either.
MADE = """\
grid: {{shape: [{n}, {n}], size: [1, 1]}}
model:
  type: pde
  constants: {{k: "1 + x*y", c: "cos(pi*x)*exp(y)"}}
  fields:
    s: {{equation: "0*laplace(s)", initial: {{type: expression, expression: "1 + x*y"}}}}
    p:
      equation: "0 = {formula}"
      boundaries: {{"x": {{type: neumann}}, y-: {low}, y+: {{type: dirichlet, value: "e*cos(pi*x)"}}}}
boundaries: {{"x": {{type: neumann}}, "y": {{type: dirichlet, value: "1+x*y"}}}}
time: {{steps: 1, dt: 1.0e-9}}
"""
LAPLACE = "laplace(p) - (1 - pi**2)*c"
VARIED = "div_grad({k}, p) - k*(1 - pi**2)*c + y*pi*sin(pi*x)*exp(y) - x*c"
ROBIN = '{type: robin, h: 2, ambient: "0.5*cos(pi*x)"}'  # -dp/dy = 2 (p/2 - p) = -p
VALUE = '{type: dirichlet, value: "cos(pi*x)"}'


@pytest.mark.parametrize(
    ("formula", "low"),
    [
        (LAPLACE, VALUE),
        (LAPLACE, ROBIN),
        (VARIED.format(k="k"), VALUE),
        (VARIED.format(k="s"), VALUE),
    ],
)
def test_solutions_are_of_second_order(formula: str, low: str) -> None:
    errors, low = [], low.replace("pi", repr(np.pi))
    for n in (16, 32):
        found = first(MADE.format(n=n, formula=formula, low=low))
        x = (np.arange(n) + 0.5) / n
        errors.append(np.abs(found["p"] - np.cos(np.pi * x) * np.exp(x[:, None])).max())
    assert errors[0] < 0.02
    assert 3.3 < errors[0] / errors[1] < 4.7


def test_solutions_are_of_fourth_order_if_asked() -> None:
    errors = []
    for n in (16, 32):
        found = first(MADE.format(n=n, formula=LAPLACE, low=VALUE), "model.accuracy=4")["p"]
        x = (np.arange(n) + 0.5) / n
        errors.append(np.abs(found - np.cos(np.pi * x) * np.exp(x[:, None])).max())
    assert errors[0] / errors[1] > 12


CLOUD = """\
grid: {shape: [32, 32], size: [1, 1]}
model:
  type: pde
  fields:
    u: {equation: "laplace(u) - 5*div_grad(u, c)", initial: {type: random, low: 0.9, high: 1.1}}
    c: {equation: "0 = laplace(c) - c + u", initial: {type: constant, value: 9}}
boundaries: {"*": {type: neumann}}
time: {t_end: 0.01, dt: auto}
"""


def test_cells_that_follow_what_they_give_off_are_kept() -> None:
    """Keller and Segel with a fast attractant: c does not depend on its guess; cells are kept."""
    begun = first(CLOUD)
    assert begun["c"].mean() == pytest.approx(begun["u"].mean(), rel=1e-12)
    problem = read(CLOUD).build()
    u, c = solved(problem)
    assert u.mean() == pytest.approx(begun["u"].mean(), rel=1e-13)
    wide = np.pad(c, 1, mode="edge")
    laplace = wide[1:-1, 2:] + wide[1:-1, :-2] + wide[2:, 1:-1] + wide[:-2, 1:-1] - 4 * c
    assert np.abs(laplace * 32**2 - c + u).max() < 1e-10


def test_means_are_kept_where_faces_give_no_value() -> None:
    text = CLOUD.replace("laplace(c) - c + u", "laplace(c) + u - mean(u)")
    assert first(text)["c"].mean() == pytest.approx(9, rel=1e-12)
    with pytest.raises(ConfigError, match=r"no solution.*mean of the formula has to be 0"):
        first(CLOUD.replace("laplace(c) - c + u", "laplace(c) + u"))


def test_steps_are_as_short_as_what_is_eliminated_needs() -> None:
    """With 0 = q + laplace(u), laplace(q) is minus a biharmonic: its limit is h^4/32."""
    text = """\
grid: {shape: [32, 32], spacing: [1, 1]}
model:
  type: pde
  fields:
    u: {equation: "laplace(q)", initial: {type: random}}
    q: {equation: "0 = q + laplace(u)"}
boundaries: {"*": {type: periodic}}
time: {steps: 1, dt: auto, safety: 1}
"""
    assert read(text).build().dt_limit == pytest.approx(1 / 32, rel=1e-3)


def test_what_is_refused_says_why() -> None:
    for formula, told in (
        ("laplace(c) - c*c + u", "not linear in the field"),
        ("laplace(u)", "does not contain c"),
        ("laplace(c) - t*c + u", "may not change with time"),
        ("laplace(c) + mean(c) + u", "may not have a number of the whole grid"),
        ("laplace(c) - c + noise(1, 2)", "noise in 0 = "),
    ):
        with pytest.raises(ConfigError, match=told):
            first(CLOUD.replace("laplace(c) - c + u", formula))
    with pytest.raises(ConfigError, match="gives a field at every moment; take an explicit"):
        read(CLOUD, "time.scheme=implicit", "time.dt=0.01").build()
    # The column is that of the text with its 0 =.
    (wrong,) = mistakes(CLOUD.replace("laplace(c) - c + u", "laplace(c) - q"))
    assert "c.yaml:6:37: model.fields.c.equation: unknown name 'q'" in wrong
    assert "(character 18 of the expression)" in wrong
    alone = CLOUD.replace('"laplace(u) - 5*div_grad(u, c)"', '"0 = laplace(u) + x"')
    assert any("nothing changes with time" in it for it in mistakes(alone))


def test_a_mean_that_grows_ends_the_run() -> None:
    text = CLOUD.replace("laplace(c) - c + u", "laplace(c) + u - 1")
    text = text.replace("type: random, low: 0.9, high: 1.1", "type: constant, value: 1")
    with pytest.raises(NumericsError, match="has no solution"):
        solved(read(text.replace('"laplace(u) -', '"1 + laplace(u) -')).build())
