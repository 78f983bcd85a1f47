"""A block in two parts has the bits of one in one part, for every method, axis, face and number of
threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.cases import FACES, make_problem
from tests.support.rim_cases import middle, set_halos
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import CpuStepper, ThreadTeam
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.method import STEPS_PER_BLOCK, InnerFirst, Method
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencils.catalogue import named_stencil

STEPS = 3
# of a stencil: points, the axis whose halos come late, whether it has them (low, high)
SLABS = [
    ("heat-2d", (60, 37), 0, (True, True)),
    ("box-2d25p", (90, 21), 0, (False, True)),
    ("heat-2d", (50, 30), 0, (True, False)),
    ("heat-3d", (40, 9, 13), 0, (True, True)),
    ("box-3d27p", (9, 44, 11), 1, (True, True)),
    ("heat-3d", (11, 40, 10), 1, (False, True)),
]


@contextlib.contextmanager
def opened(problem: Problem, slab: Slab, method: Method, threads: int) -> Iterator[CpuStepper]:
    team = ThreadTeam(threads)
    parameters = dict(method.parameters(problem)[0])
    if threads == 2 and STEPS_PER_BLOCK in parameters:
        parameters[STEPS_PER_BLOCK] = 2  # then one more
    stepper = method.prepare(problem, slab, parameters, team)
    assert isinstance(stepper, CpuStepper)
    try:
        yield stepper
    finally:
        stepper.close()
        team.close()


def advanced(
    problem: Problem, state: Field, slab: Slab, axis: int, method: Method, threads: int
) -> tuple[list[Field], int]:
    """(the slab after blocks in one part and in two, how many of these had an inner part)."""
    found, begun = [], 0
    for in_parts in (False, True):
        with opened(problem, slab, method, threads) as stepper:
            assert isinstance(stepper, InnerFirst)
            stepper.load(problem.initial)
            for _ in range(2):  # the second block begins in the other array
                if in_parts:
                    set_halos(
                        stepper, np.full_like(state, np.nan), axis
                    )  # nobody may read them yet
                    stepper.advance_inner(STEPS, axis)
                    begun += stepper._begun is not None
                set_halos(stepper, state, axis)
                stepper.advance(STEPS)
            found.append(stepper.interior())
    return found, begun


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize(("name", "shape", "axis", "sides"), SLABS)
def test_the_inside_first_and_then_its_rims_has_the_same_bits(
    method: Method, name: str, shape: tuple[int, ...], axis: int, sides: tuple[bool, bool]
) -> None:
    stencil = named_stencil(name).stencil
    kinds = list(FACES)
    for number, threads in enumerate((1, 2, 3)):
        faces = [(FACES[kinds[number]], FACES[kinds[number + 1]])] * stencil.ndim
        if number < 2:  # the first or the last axis is a ring, unless it is the one that is cut
            faces[0 if axis and number == 0 else -1] = (FACES["periodic"], FACES["periodic"])
        problem, state = make_problem(stencil, Boundary(tuple(faces)), shape=shape, n_fields=2)
        slab = middle(problem, axis, sides, STEPS)
        (whole, parts), begun = advanced(problem, state, slab, axis, method, threads)
        assert begun == 2
        assert np.isfinite(whole).all()
        np.testing.assert_array_equal(parts, whole)


def test_what_is_too_short_for_two_parts_is_made_in_one() -> None:
    problem, state = make_problem(
        named_stencil("heat-2d").stencil, Boundary.everywhere(FACES["neumann"], 2), shape=(11, 9)
    )
    slab = middle(problem, 0, (True, True), STEPS)
    (whole, parts), begun = advanced(problem, state, slab, 0, METHODS[-1], 1)
    assert begun == 0
    np.testing.assert_array_equal(parts, whole)
