"""Newton's method where conductivities depend on temperature: derivative, order, rounding, heat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.support.body_samples import build, heat_model, start
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.errors import NumericsError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.problem import Problem
from tetris_sim.solvers import implicit, tangent
from tetris_sim.solvers.assembly import Contents, instant
from tetris_sim.solvers.balance import LinearSystems, norm
from tetris_sim.solvers.implicit import ImplicitSteps
from tetris_sim.solvers.solver import OneDevice, Solver
from tetris_sim.solvers.steady import rounding_of
from tetris_sim.solvers.surface_flows import joules_of


@pytest.fixture(scope="module")
def device() -> Iterator[Solver]:
    team = ThreadTeam(1)
    yield OneDevice(CpuArithmetic(team))
    team.close()


MATERIALS: dict[str, Any] = {
    "steel": {"conductivity": {"table": [[0, 54.7], [800, 27.3], [1200, 27.3]]}},
    "wool": {"conductivity": {"table": [[0, 0.03], [500, 0.12], [1000, 0.35]]}},
}
FIRE = {"type": "radiation", "emissivity": 0.8, "h": 10.0, "ambient": 1000}
AIR = {"fluid": {"ambient": 40, "h": 200}, "box": {"x": [0.06, 0.1], "y": [0.03, 0.06]}}


def body(*regions: dict[str, Any], **more: Any) -> Problem:
    """Steel with wool in a corner, in a fire."""
    materials = {
        name: {**it, "density": 1000.0, "specific_heat": {"table": [[0, 500], [1000, 900]]}}
        for name, it in MATERIALS.items()
    }
    wool = {"material": "wool", "box": {"x": [0, 0.06], "y": [0, 0.07]}}
    time = {"scheme": "implicit", "dt": 40.0, "steps": 4}
    keys = {it: more.pop(it) for it in ("contacts",) if it in more}
    given = {
        "grid": {"shape": [10, 8], "size": [0.1, 0.08]},
        "boundaries": {"x+": FIRE, "y+": FIRE, "*": {"type": "neumann"}},
        "initial": {"type": "expression", "expression": "20 + 3000*x + 2000*y"},
        "time": time,
    }
    model = heat_model({"material": "steel"}, wool, *regions, materials=materials, **keys)
    return build(model=model, **{**given, **more})


def gap(**more: Any) -> list[dict[str, Any]]:
    return [{"between": ["steel", "wool"], **more}]


GRADED = {"y": {"segments": [{"to": 0.075, "n": 7}, {"to": 0.08, "n": 1}]}}
BODIES = {
    "two materials": lambda: body(),
    "a contact": lambda: body(contacts=gap(resistance=1e-2)),
    "a gap that radiates": lambda: body(contacts=gap(emissivity=[0.8, 0.6], resistance=0.3)),
    "air inside": lambda: body(AIR),
    "a ring": lambda: body(boundaries={"x": {"type": "periodic"}, "y+": FIRE, "y-": FIRE}),
    "a graded axis": lambda: body(grid={"shape": [10, 8], "size": [0.1, 0.08], "graded": GRADED}),
}


def wrong_by(problem: Problem, seed: int = 0) -> float:
    """How far the derivative of a balance is from differences, of the largest one."""
    rng = np.random.default_rng(seed)
    systems, state = LinearSystems(problem), start(problem)[0].astype(np.float64)
    held = systems.at(instant(0.0), state).held
    # Between knots of all curves, which differences must not cross.
    state = np.where(held, state, state * rng.uniform(0.999, 1.001, state.shape))
    rise = np.where(held, 0.0, rng.uniform(-1, 1, state.shape) * 1e-5 * abs(state).max())

    def flows(u: Numbers) -> Numbers:
        made = systems.at(instant(0.0), u)
        return np.where(held, 0.0, made.flows(made.driving(u)))

    made = systems.at(instant(0.0), state)
    expected = (flows(state + rise) - flows(state - rise)) / 2
    found = -tangent.tangent_of(made, 0.0).apply(rise)
    return float(abs(found - expected).max() / abs(expected).max())


@pytest.mark.parametrize("name", BODIES)
def test_derivatives_are_those_of_the_flows(name: str) -> None:
    problem = BODIES[name]()
    # Where a difference crosses a knot, both slopes count: of few seeds, one does not.
    assert min(wrong_by(problem, seed) for seed in range(4)) < 1e-6


def test_a_derivative_that_lags_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, slopes = BODIES["two materials"](), Contents.slopes

    def lags(self: Contents, axis: int, state: Numbers) -> tuple[Numbers, Numbers]:
        ids, beside = self.ids, np.roll(self.ids, -1, axis)
        warms = self.enthalpy.slope(self.drive, state, ids)
        k = self.conductance(axis, state)
        alike = self.enthalpy.kinds[ids] == self.enthalpy.kinds[beside]
        pair = (k * warms, k * np.roll(warms, -1, axis))
        right = slopes(self, axis, state)
        return tuple(np.where(alike, a, b) for a, b in zip(right, pair, strict=True))  # type: ignore[return-value]

    monkeypatch.setattr(Contents, "slopes", lags)
    assert min(wrong_by(problem, seed) for seed in range(4)) > 1e-4


@pytest.mark.parametrize("name", BODIES)
def test_matrices_say_what_products_say(name: str) -> None:
    problem = BODIES[name]()
    state = start(problem)[0].astype(np.float64)
    made = LinearSystems(problem).at(instant(0.0), state)
    it = tangent.tangent_of(made, 3.0)
    rise = np.where(made.held, 0.0, np.random.default_rng(1).normal(size=state.shape))
    product = np.asarray(it.matrix() @ rise.reshape(-1)).reshape(state.shape)
    np.testing.assert_allclose(product, it.apply(rise), rtol=1e-12, atol=1e-12 * abs(product).max())


def histories(
    problem: Problem, device: Solver, monkeypatch: pytest.MonkeyPatch, tolerance: float
) -> tuple[list[list[float]], Numbers, ImplicitSteps]:
    """What is left of the balances of every stage, from linearisation to linearisation."""
    found: list[list[float]] = []
    solve, rises = ImplicitSteps._solve, ImplicitSteps._rises

    def begin(self: ImplicitSteps, *given: Any) -> Numbers:
        found.append([])
        return solve(self, *given)

    def note(self: ImplicitSteps, made: Any, u: Any, storage: Any, left: Any, least: Any) -> Any:
        found[-1].append(norm(left))
        return rises(self, made, u, storage, left, least)

    monkeypatch.setattr(ImplicitSteps, "_solve", begin)
    monkeypatch.setattr(ImplicitSteps, "_rises", note)
    steps, u = ImplicitSteps(problem, device, tolerance), start(problem)[0].astype(np.float64)
    for number in range(problem.steps):
        u = steps.advance(u, number)
    return found, u, steps


@pytest.mark.parametrize("name", BODIES)
def test_newton_needs_few_linearisations(
    name: str, device: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implicit, "_FORCING", 1e-6)
    found, _, _ = histories(BODIES[name](), device, monkeypatch, 1e-13)
    assert max(map(len, found)) <= 6
    # Near the answer an error is squared; the bends of curves let some be less good.
    gains = [after / before for it in found for before, after in pairwise(it[1:])]
    assert np.median(gains) < 1e-3


def test_a_newton_without_derivatives_of_k_needs_more(
    device: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = BODIES["two materials"]()
    newton, _, _ = histories(problem, device, monkeypatch, 1e-13)
    monkeypatch.setattr(
        ImplicitSteps,
        "_rises",
        lambda self, made, u, storage, left, least: iter(
            [(self._rise(made, u, storage, (np.zeros_like(u), left), least), 0.0)]
        ),
    )
    picard, _, _ = histories(problem, device, monkeypatch, 1e-13)
    assert sum(map(len, picard)) > 1.5 * sum(map(len, newton))


@pytest.mark.parametrize("name", BODIES)
def test_heat_is_kept(name: str, device: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = BODIES[name]()
    before = start(problem)[0].astype(np.float64)
    _, after, steps = histories(problem, device, monkeypatch, 1e-12)
    made = LinearSystems(problem).at(instant(0.0), before)
    capacity = np.where(made.held, 0.0, made.capacity)
    stored = float((capacity * (after - before)).sum()) * joules_of(problem)
    assert abs(stored) > 1
    assert sum(steps.moved.values()) == pytest.approx(stored, rel=1e-9)


def test_many_cells_are_solved_as_few_are(device: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = BODIES["a gap that radiates"]()
    _, few, _ = histories(problem, device, monkeypatch, 1e-12)
    monkeypatch.setattr(tangent, "SMALL", 0)
    _, many, _ = histories(problem, device, monkeypatch, 1e-12)
    np.testing.assert_allclose(many, few, rtol=1e-9)


@pytest.mark.parametrize("warm", [0.0, 20.0, 990.0, 1000.0])
def test_what_rounding_leaves_is_accepted_and_nothing_more(
    warm: float, device: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Near equilibrium with the fire nothing but rounding is left of all flows.
    initial = {"type": "constant", "value": warm}
    for seed, name in enumerate(BODIES):
        if name == "air inside":
            continue
        problem = replace(BODIES[name](), steps=2)
        problem = body(initial=initial) if seed == 0 else problem
        found, u, _ = histories(problem, device, monkeypatch, 0.0)
        assert max(map(len, found)) <= 7

        # A state that is off by 1e-11 is told from one that is right.
        systems = LinearSystems(problem)
        rng = np.random.default_rng(seed)
        off = u * (1 + 1e-11 * rng.uniform(-1, 1, u.shape))
        made = systems.at(instant(0.0), off)
        storage = np.full(u.shape, 1.0 / problem.dt)
        flows = made.flows(made.driving(off))
        right = systems.at(instant(0.0), u)
        left = storage * (off - u) + right.flows(right.driving(u)) - flows
        assert norm(left) > 10 * rounding_of(made, made.driving(off), storage * off)


def test_steps_whose_balance_does_not_hold_are_halved(
    device: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = BODIES["two materials"]()
    _, whole, _ = histories(problem, device, monkeypatch, 1e-10)
    # Longer steps than 15 s end with an error.
    make = ImplicitSteps.make

    def fails(self: ImplicitSteps, u: Any, span: Any, *more: Any) -> Any:
        if span.dt > 15:
            raise NumericsError("too long")
        return make(self, u, span, *more)

    monkeypatch.setattr(ImplicitSteps, "make", fails)
    found, halves, steps = histories(problem, device, monkeypatch, 1e-10)
    assert len(found) == 2 * 4 * problem.steps
    np.testing.assert_allclose(halves, whole, rtol=2e-2)
    made = LinearSystems(problem).at(instant(0.0), halves)
    stored = (made.capacity * (halves - start(problem)[0])).sum() * joules_of(problem)
    assert sum(steps.moved.values()) == pytest.approx(float(stored), rel=1e-8)
