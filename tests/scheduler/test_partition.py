"""Cutting the grid into slabs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetris_sim.model.boundary import Boundary, Neumann, Periodic
from tetris_sim.model.grid import Grid
from tetris_sim.scheduler.plan.partition import cut_along_axis_0, split_by_speed


@given(
    speeds=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8),
    min_planes=st.integers(1, 20),
    extra=st.integers(0, 1000),
)
def test_pieces_cover_the_range_in_order_and_none_is_too_short(
    speeds: list[float], min_planes: int, extra: int
) -> None:
    n_planes = len(speeds) * min_planes + extra
    pieces = split_by_speed(n_planes, speeds, min_planes=min_planes)
    assert pieces[0][0] == 0
    assert pieces[-1][1] == n_planes
    assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(pieces))
    assert all(stop - start >= min_planes for start, stop in pieces)


@given(speeds=st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6))
def test_pieces_are_in_proportion_to_speed_to_within_one_plane(speeds: list[float]) -> None:
    pieces = split_by_speed(1000, speeds, min_planes=1)
    for (start, stop), speed in zip(pieces, speeds, strict=True):
        assert abs((stop - start) - 1000 * speed / sum(speeds)) < 1


def test_too_few_planes_are_refused() -> None:
    with pytest.raises(ValueError, match="5 planes are too few for 2 workers with at least 3 each"):
        split_by_speed(5, [1.0, 1.0], min_planes=3)


def test_a_slab_has_a_halo_only_where_it_has_a_neighbour() -> None:
    grid = Grid.box((10, 4), (1.0, 1.0))
    walls = cut_along_axis_0(
        grid, Boundary.everywhere(Neumann(), 2), [(0, 3), (3, 7), (7, 10)], halo=2
    )
    assert [slab.halo[0] for slab in walls] == [(0, 2), (2, 2), (2, 0)]
    joined = cut_along_axis_0(grid, Boundary.everywhere(Periodic(), 2), [(0, 5), (5, 10)], halo=2)
    assert [slab.halo[0] for slab in joined] == [(2, 2), (2, 2)]
    alone = cut_along_axis_0(grid, Boundary.everywhere(Periodic(), 2), [(0, 10)], halo=2)
    assert alone[0].halo == ((0, 0), (0, 0))
