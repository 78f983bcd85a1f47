"""cpu.plain where states are heat contents: the bits of the contract, however it is computed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support import exact
from tests.support.cases import run
from tests.support.conduction_cases import random_ids
from tests.support.enthalpy_cases import cases
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import Curve, padded
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Ranges, Slab

PLAIN = METHODS[-1]
PROBLEMS = cases()
STEPS = 12


def whole(problem: Problem) -> Field:
    return problem.initial(Slab.whole(problem.grid))


def some(state: Field) -> InitialField:
    return lambda slab: _cut(state[0], slab.spans)[np.newaxis]


def _cut(values: npt.NDArray[Any], box: Ranges) -> npt.NDArray[Any]:
    return values[tuple(slice(*span) for span in box)]


# Compiled for nothing else here, and like others but for one thing that yet another one has.
RARE = {"uneven rod", "uneven block", "radiating block"}


@pytest.mark.parametrize(
    "name", [pytest.param(it, marks=[pytest.mark.full] * (it in RARE)) for it in PROBLEMS]
)
def test_bits_are_those_of_the_chain_on_any_number_of_threads(
    name: str, teams: dict[int, ThreadTeam]
) -> None:
    problem = PROBLEMS[name]
    expected = exact.advance(whole(problem), problem, STEPS)
    for team in teams.values():
        np.testing.assert_array_equal(run(PLAIN, problem, {}, team, (1, 7, 4)), expected)
    oracle = reference.advance(whole(problem), problem, STEPS)
    np.testing.assert_allclose(expected, oracle, rtol=0, atol=1e-12)
    assert np.abs(expected - whole(problem)).max() > 0.1


@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "plate"), (np.float16, "rod")])
def test_smaller_numbers(dtype: type, name: str, teams: dict[int, ThreadTeam]) -> None:
    problem = cases(dtype)[name]
    expected = exact.advance(whole(problem), problem, STEPS)
    assert expected.dtype == dtype
    np.testing.assert_array_equal(run(PLAIN, problem, {}, teams[2], (1, 7, 4)), expected)


HALOS: list[tuple[str, tuple[tuple[int, int], ...]]] = [
    ("rod", ((0, 5),)),
    ("plate", ((6, 5), (0, 0))),
    ("plate", ((0, 5), (5, 0))),
    ("plate, ring", ((5, 5), (0, 6))),
    ("block", ((0, 3), (3, 3), (3, 0))),
    ("cut plate", ((6, 5), (5, 0))),
    ("uneven plate", ((6, 5), (0, 0))),
    ("uneven ring", ((5, 5), (0, 6))),
]


@pytest.mark.parametrize(("name", "halo"), HALOS)
def test_a_slab_has_the_bits_of_the_whole_from_any_step_on(
    name: str, halo: tuple[tuple[int, int], ...], teams: dict[int, ThreadTeam]
) -> None:
    problem, first = PROBLEMS[name], 3
    shape, steps = problem.grid.shape, min(it for pair in halo for it in pair if it)
    periodic = [problem.boundary.periodic(axis) for axis in range(len(shape))]
    # A ring that is cut begins at 1, so that its halo goes around.
    start = [
        (1 if ring else n // 2) * (low > 0)
        for n, ring, (low, _) in zip(shape, periodic, halo, strict=True)
    ]
    stop = [
        n if not high else n - 1 if ring else n // 2 + 1
        for n, ring, (_, high) in zip(shape, periodic, halo, strict=True)
    ]
    slab = Slab(tuple(start), tuple(stop), halo)
    before, after = (run(PLAIN, problem, {}, teams[1], (n,)) for n in (first, first + steps))
    stepper = PLAIN.prepare(problem, slab, {}, teams[3])
    stepper.load(some(before), first)
    for axis, widths in enumerate(halo):
        for side, width in zip(SIDES, widths, strict=True):
            if width:
                box = slab.globally(slab.halo_ranges(axis, SIDES.index(side)))
                values = padded(lambda it: _cut(before[0], it), box, shape, periodic)
                stepper.set_halo(axis, side, values[np.newaxis])
    stepper.advance(steps)
    found = stepper.interior()
    stepper.close()
    np.testing.assert_array_equal(found, some(after)(slab))


def test_ids_of_ghosts_may_need_more_bytes(teams: dict[int, ThreadTeam]) -> None:
    """130 ids fit one byte, with those of ghosts they do not."""
    problem = PROBLEMS["plate, ring"]
    conduction = problem.conduction
    assert conduction is not None
    assert conduction.enthalpy is not None
    medium, it = conduction.medium, conduction.enthalpy
    of = np.arange(130) % 3
    ids = random_ids(problem.grid.shape, 130)
    assert ids.max() > 127

    def curve(old: Curve) -> Curve:
        return replace(old, begins=old.begins[of], slopes=old.slopes[of])

    wide = replace(
        conduction,
        medium=replace(
            medium,
            ids=lambda box: _cut(ids, box),
            conductance=medium.conductance[:, of][:, :, of],
            capacity=medium.capacity[of],
            names=tuple(map(str, of)),
        ),
        enthalpy=replace(
            it,
            knots=it.knots[of],
            temperature=curve(it.temperature),
            potential=curve(it.potential),
            conductivity=curve(it.conductivity),
            kinds=it.kinds[of],
            half=it.half[:, of],
            contact=it.contact[:, of][:, :, of],
        ),
    )
    narrow = replace(medium, ids=lambda box: (wide.medium.ids(box) % 3).astype(np.uint8))
    found, expected = (
        run(PLAIN, replace(problem, conduction=each), {}, teams[2], (5,))
        for each in (wide, replace(conduction, medium=narrow))
    )
    np.testing.assert_array_equal(found, expected)


def test_a_closed_body_that_melts_keeps_its_heat(teams: dict[int, ThreadTeam]) -> None:
    problem = PROBLEMS["plate, ring"]
    before, after = whole(problem)[0], run(PLAIN, problem, {}, teams[2], (500,))[0]
    assert np.abs(after - before).max() > 0.5
    scale = np.abs(before).sum()
    assert abs(math.fsum(after.ravel()) - math.fsum(before.ravel())) < 1e-14 * scale * 500


def test_methods_that_advance_temperatures_say_so() -> None:
    problem = PROBLEMS["plate"]
    refusals = {method.name: method.refusal(problem) for method in METHODS}
    assert refusals.pop("cpu.plain") is None
    assert refusals.pop("cpu.tessellate") is None
    assert refusals
    assert all(refusals.values())
