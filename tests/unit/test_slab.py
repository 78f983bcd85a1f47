"""Slabs: boxes of them in their own and in global indices, and halos that do not last; problems on
other shapes.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import make_problem
from tetris_sim.model.boundary import Boundary, Neumann
from tetris_sim.model.slab import Ranges, Slab, batches, slices
from tetris_sim.model.stencils.catalogue import named_stencil

SLAB = Slab((10, 3, 20), (17, 8, 31), ((2, 4), (0, 2), (0, 0)))

spans = st.tuples(st.integers(-9, 9), st.integers(1, 9)).map(lambda s: (s[0], s[0] + s[1]))
boxes = st.lists(spans, min_size=1, max_size=3).map(tuple)


@given(boxes)
def test_the_slab_of_a_box_owns_it_and_has_no_neighbour(box: Ranges) -> None:
    slab = Slab.box(box)
    assert slab.spans == box
    assert slab.halo == ((0, 0),) * len(box)
    assert slab.local(box) == slab.local() == tuple((0, n) for n in slab.shape)


def test_what_lies_in_a_box_of_the_grid_is_counted_from_the_first_owned_point() -> None:
    assert SLAB.local() == ((0, 7), (0, 5), (0, 11))
    assert SLAB.local(((0, 12), (4, 5), (25, 99))) == ((0, 2), (1, 2), (5, 11))
    inside = SLAB.local(((11, 13), (3, 8), (20, 22)))
    assert SLAB.globally(inside) == ((11, 13), (3, 8), (20, 22))


def test_a_part_of_a_slab_owns_what_lies_in_the_box() -> None:
    part = SLAB.part(((1, 3), (0, 5), (10, 11)))
    assert part == Slab((11, 3, 30), (13, 8, 31), ((0, 0),) * 3)


def test_a_halo_lasts_for_as_many_steps_as_the_radius_goes_into_it() -> None:
    SLAB.refuse_short_halo(2, (1, 1, 5))
    SLAB.refuse_short_halo(1, (2, 2, 5))
    with pytest.raises(ValueError, match=r"\(2, 4\) planes .* 3 steps of radius 1"):
        SLAB.refuse_short_halo(3, (1, 0, 0))
    with pytest.raises(ValueError, match=r"\(0, 2\) planes .* 2 steps of radius 2"):
        SLAB.refuse_short_halo(2, (1, 2, 0))


def test_a_value_that_is_not_finite_is_reported_in_a_box_of_the_slab() -> None:
    assert SLAB.around((0, 4, 9)) == ((10, 17), (3, 8), (28, 31))


@given(boxes, st.integers(1, 60))
def test_batches_make_up_the_box_with_no_more_points_than_a_plane_needs(
    box: Ranges, points: int
) -> None:
    times = np.zeros([high - low for low, high in box], dtype=int)
    for batch in batches(box, points):
        part = times[slices(batch, box)[1:]]
        part += 1
        assert part.size <= max(points, math.prod(times.shape[1:]))
    np.testing.assert_array_equal(times, 1)


def test_a_problem_on_another_shape_keeps_all_but_the_number_of_points() -> None:
    boundary = Boundary.everywhere(Neumann(), 2)
    problem, _ = make_problem(named_stencil("heat-2d").stencil, boundary, shape=(9, 11))
    longer = problem.on_shape([40, 11])
    assert longer.grid.shape == (40, 11)
    assert (longer.grid.spacing, longer.grid.origin) == (problem.grid.spacing, problem.grid.origin)
    assert dataclasses.replace(longer.on_shape((9, 11)), initial=problem.initial) == problem
    with pytest.raises(ValueError, match="at least one point"):
        problem.on_shape((1, 0))
