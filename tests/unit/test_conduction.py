"""Conduction through a medium: the oracle against loops over points, and what must always hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.conduction_cases import (
    CASES,
    RADIATION,
    REACTING,
    Case,
    affine,
    closed,
    held,
    insulated,
    random_ids,
    rings,
)
from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES, Boundary, Neumann
from tetris_sim.model.conduction import (
    Ids,
    Medium,
    Numbers,
    Parameter,
    Rule,
    RuledFace,
    in_series,
    padded,
)
from tetris_sim.model.formula import evaluate
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem, StateVariable, Total
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import star_mean


def loop_step(u: Field, problem: Problem, number: int) -> Field:
    """One step, point by point and face by face, in Python."""
    conduction, grid = problem.conduction, problem.grid
    assert conduction is not None
    medium = conduction.medium
    ids = medium.ids(tuple((0, n) for n in grid.shape))
    new = u.copy()

    def follow(rule: Rule, point: tuple[int, ...], code: int, **seen: float) -> float:
        values = dict(seen)
        for parameter in rule.parameters:
            row = parameter.rows(problem.time, number, 1)[0]
            values[parameter.name] = row[code] if row.size > 1 else row[0]
        for name, i, origin, h in zip(
            grid.axis_names, point, grid.origin, grid.spacing, strict=True
        ):
            values[name] = origin + i * h
        return float(evaluate(rule.program.tree, {k: np.array(v) for k, v in values.items()}))

    for point in itertools.product(*map(range, grid.shape)):
        here, mine = float(u[0][point]), int(ids[point])
        source = conduction.source
        gained = 0.0 if source is None else follow(source, point, mine, mirror=here)
        for axis, side in itertools.product(range(grid.ndim), (0, 1)):
            other = list(point)
            other[axis] += 2 * side - 1
            if problem.boundary.periodic(axis):
                other[axis] %= grid.shape[axis]
            if 0 <= other[axis] < grid.shape[axis]:
                there, its = float(u[0][tuple(other)]), int(ids[tuple(other)])
            else:
                face, its = problem.ruled_face(axis, SIDES[side]), mine
                code = mine
                if face.patches is not None:
                    box = tuple((i, i + 1) for i in point)
                    code += int(face.patches(box).item()) * medium.n_ids
                there = follow(face.rule, point, code, mirror=here)
            gained += medium.conductance[axis, mine, its] * (there - here)
        new[0][point] = here + problem.dt / medium.capacity[mine] * gained
    return new


@pytest.mark.parametrize("case", [*CASES, *RADIATION, *REACTING], ids=lambda case: case.name)
def test_oracle_is_the_loop_over_points(case: Case) -> None:
    problem = case.problem()
    u = problem.initial(Slab.whole(problem.grid))
    for number in (0, 1, 70):  # the numbers of step 70 belong to another chunk
        wanted = loop_step(u.astype(np.float64), problem, number)
        found = reference.conduct(u, problem, number)
        tolerance = 1e-5 if problem.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("faces", [closed, rings])
def test_heat_is_kept_to_rounding(faces) -> None:  # type: ignore[no-untyped-def]
    problem = Case("closed", (12, 15), 6, faces).problem()
    assert problem.conduction is not None
    medium = problem.conduction.medium
    ids = medium.ids(tuple((0, n) for n in problem.grid.shape))
    u = problem.initial(Slab.whole(problem.grid))
    before = float((medium.capacity[ids] * u[0]).sum())
    after = reference.advance(u, problem, 2000)
    assert after.std() < 0.9 * u.std()
    assert abs(float((medium.capacity[ids] * after[0]).sum()) - before) < 2e-12 * ids.size


def test_one_material_is_the_constant_problem() -> None:
    problem = Case("one", (9, 11), 1, closed).problem()
    assert problem.conduction is not None
    medium = problem.conduction.medium
    rate = problem.dt / medium.capacity[0] * medium.conductance[:, 0, 0]
    weights = [1 - 2 * rate.sum(), rate[0], rate[0], rate[1], rate[1]]
    constant = replace(
        problem,
        conduction=None,
        stencil=replace(star_mean(2), weights=_sorted(weights)),
        boundary=Boundary.everywhere(Neumann(), 2),
    )
    u = problem.initial(Slab.whole(problem.grid))
    np.testing.assert_allclose(
        reference.advance(u, problem, 50), reference.advance(u, constant, 50), atol=1e-13
    )


def _sorted(weights: list[float]) -> tuple[float, ...]:
    # star_mean lists centre, low 0, high 0, low 1, high 1; stencils keep lexicographic order
    centre, low0, high0, low1, high1 = weights
    return (low0, low1, centre, high1, high0)


def test_steady_state_of_layers_is_exact() -> None:
    n, k = 24, np.array([2.0, 0.05, 30.0])
    h = 1 / n
    ids = np.repeat(np.arange(3, dtype=np.uint8), n // 3)
    half = h / (2 * k)
    resistance = np.zeros((3, 3))
    resistance[1, 2] = resistance[2, 1] = 0.4
    conductance = in_series(h, k, resistance)[None]
    total = (1 / 3 / k).sum() + 0.4
    flow = (100.0 - 20.0) / total
    centres = (np.arange(n) + 0.5) * h
    steady = 100.0 - flow * np.cumsum(np.concatenate([[half[0]], _between(half, resistance, ids)]))
    problem = _rod(ids, conductance, (held(100.0), held(20.0)), centres)
    assert np.isclose(steady[-1] - flow * half[2], 20.0)
    found = reference.advance(steady[None], problem, 500)
    np.testing.assert_allclose(found[0], steady, atol=1e-10)


def _between(half: Numbers, resistance: Numbers, ids: Ids) -> list[float]:
    pairs = itertools.pairwise(ids)
    return [half[a] + resistance[a, b] + half[b] for a, b in pairs]


def _rod(
    ids: Ids, conductance: Numbers, faces: tuple[RuledFace, RuledFace], centres: Any
) -> Problem:
    medium = Medium(
        ids=lambda box: ids[slice(*box[0])],
        conductance=conductance,
        capacity=np.ones(3),
        names=("a", "b", "c"),
    )
    case = Case("rod", (len(ids),), 1, closed).problem()
    assert case.conduction is not None
    return replace(
        case,
        grid=Grid((len(ids),), (float(centres[1] - centres[0]),), (float(centres[0]),)),
        boundary=Boundary((faces,)),
        dt=float(1 / (2 * conductance.max(axis=(0, 2))).max()) / 2,
        conduction=replace(case.conduction, medium=medium),
        variables=(StateVariable("t", "1", "t", Total("heat", "J", 1.0)),),
    )


def test_numbers_do_not_depend_on_who_asks() -> None:
    wave = Parameter("a", lambda t: np.sin(np.outer(t, [1.0, 2.0, 3.0]) + 0.1))
    whole = wave.rows(lambda n: 0.37 * n, 0, 300)
    for first, steps in ((0, 1), (63, 2), (64, 64), (100, 129), (299, 1)):
        part = wave.rows(lambda n: 0.37 * n, first, steps)
        np.testing.assert_array_equal(part, whole[first : first + steps])


@pytest.mark.parametrize(
    "function",
    [np.sin, np.tanh, np.exp, np.log1p, lambda t: t**2.7, lambda t: np.where(t % 2 < 1, 0.2, 0.8)],
)
def test_numbers_of_many_steps_are_asked_for_at_once_and_have_the_bits_of_single_ones(
    function: Callable[[Any], Any],
) -> None:
    asked = []

    def values(times: Any) -> Any:
        asked.append(len(times))
        return function(times)[:, None]

    wave = Parameter("a", values)
    whole = wave.rows(lambda n: 0.0037 * n, 100, 4096)
    assert asked == [4160]
    singly = [wave.rows(lambda n: 0.0037 * n, 100 + n, 1)[0] for n in range(0, 4096, 7)]
    np.testing.assert_array_equal(whole[::7], singly)
    assert max(asked[1:]) == 64


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    reach=st.tuples(*[st.integers(0, 4)] * 4),
    rings=st.tuples(st.booleans(), st.booleans()),
)
def test_padded_follows_mirrors_and_rings(shape, reach, rings) -> None:  # type: ignore[no-untyped-def]
    grid = np.arange(np.prod(shape)).reshape(shape)
    box = tuple(
        (-min(low, n), n + min(high, n))
        for n, low, high in zip(shape, reach[:2], reach[2:], strict=True)
    )
    found = padded(lambda b: grid[tuple(slice(*s) for s in b)], box, shape, rings)
    wanted = grid
    for axis, (low, high) in enumerate(box):
        width = [(0, 0)] * 2
        width[axis] = (-low, high - shape[axis])
        wanted = np.pad(wanted, width, mode="wrap" if rings[axis] else "symmetric")
    np.testing.assert_array_equal(found, wanted)


def test_faces_and_conduction_belong_together() -> None:
    problem = Case("one", (9, 11), 1, closed).problem()
    with pytest.raises(ValueError, match="rules at all faces"):
        replace(problem, conduction=None)
    with pytest.raises(ValueError, match="rules at all faces"):
        replace(problem, boundary=Boundary.everywhere(Neumann(), 2))


def test_media_that_lose_heat_are_refused() -> None:
    ids = random_ids((4, 4), 2)
    one_way = np.ones((2, 2, 2))
    one_way[0, 0, 1] = 2
    with pytest.raises(ValueError, match="symmetric"):
        Medium(lambda box: ids, one_way, np.ones(2), ("a", "b"))
    with pytest.raises(ValueError, match="positive"):
        Medium(lambda box: ids, np.ones((2, 2, 2)), np.array([1.0, 0.0]), ("a", "b"))


def test_affine_faces_are_known() -> None:
    assert insulated().is_affine
    assert affine(np.zeros(1), np.ones(1)).lasting is None
    assert not RADIATION[0].problem().ruled_face(0, "low").is_affine
