"""How a slab is cut into pieces that go through a device, and how many steps each makes there."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import WorkEstimate
from tetris_sim.scheduler.plan.partition import (
    Lane,
    choose_streaming,
    cut_into_pieces,
    fewest_pieces,
    needed_later,
    streaming_with,
)

# heat-2d 65536 x 32768 on one H200 as if it had two thirds of 34.4 GB: 900 GStencil/s, 55 GB/s each
# way.
LARGE = WorkEstimate(n_planes=65536, plane_points=32768, plane_bytes=262144, radius=1)
H200 = Lane(900e9, depth=8, bring=1 / 55e9, take=1 / 55e9, room=int(22.9e9 / 4 / 262144))


def test_a_pass_is_long_enough_to_hide_the_copies_and_has_pieces_enough_to_go_on() -> None:
    streaming = choose_streaming(LARGE, H200, most_steps=800, block_steps=838)
    assert streaming is not None
    # A point is brought and taken in 8 / 55e9 s each way, and computed in 1 / 900e9 s a step: 131
    # steps.
    assert 131 <= streaming.steps < 300
    assert streaming.steps % 8 == 0
    assert streaming.points_per_second > 0.9 * 900e9
    assert streaming.hidden <= 1
    assert streaming.redundant < 0.05
    assert streaming.pieces >= 4
    assert 2 <= streaming.in_flight <= 3
    # In short blocks the first piece to arrive and the last to leave count more.
    short = choose_streaming(LARGE, H200, most_steps=800, block_steps=160)
    assert short is not None
    assert short.pieces > streaming.pieces
    assert short.start < streaming.start
    assert short.points_per_second < streaming.points_per_second


def test_few_steps_are_bound_by_the_copies_and_many_by_redundant_work() -> None:
    few = streaming_with(LARGE, H200, 16, 20)
    many = streaming_with(LARGE, H200, 2000, 10)
    assert few is not None
    assert few.points_per_second == pytest.approx(16 * 55e9 / 8, rel=0.02)
    assert many is not None
    assert many.redundant > 0.15


def test_few_pieces_wait_for_each_other() -> None:
    rates = [streaming_with(LARGE, H200, 136, pieces) for pieces in (2, 3, 8)]
    two, three, eight = (each.points_per_second / 900e9 for each in rates if each is not None)
    assert two == pytest.approx(0.5, abs=0.03)
    assert three == pytest.approx(0.75, abs=0.04)
    assert eight > 0.95


def test_planes_that_wrap_around_end_every_pass() -> None:
    ring = dataclasses.replace(LARGE, periodic=True)
    straight = streaming_with(LARGE, H200, 136, 8)
    around = streaming_with(ring, H200, 136, 8)
    assert straight is not None
    assert around is not None
    assert around.points_per_second == pytest.approx(straight.points_per_second * 8 / 10, rel=0.03)


def test_with_hardly_any_memory_there_is_no_way() -> None:
    for room, possible in ((20, False), (24, True)):
        small = dataclasses.replace(H200, room=room)
        assert (fewest_pieces(LARGE, small, 8) is not None) == possible
        found = choose_streaming(
            dataclasses.replace(LARGE, n_planes=512), small, most_steps=100, block_steps=100
        )
        assert (found is not None) == possible


@given(
    n=st.integers(1, 300),
    planes=st.integers(1, 60),
    reach=st.integers(0, 40),
    later=st.integers(0, 30),
    sides=st.tuples(st.booleans(), st.booleans()),
    wraps=st.booleans(),
)
def test_pieces_cover_what_the_pass_must_write_and_reach_what_they_read(
    n: int, planes: int, reach: int, later: int, sides: tuple[bool, bool], wraps: bool
) -> None:
    wraps = wraps and not any(sides)
    halo = tuple((reach + later) if side else 0 for side in sides)
    slab = Slab((7,), (7 + n,), ((halo[0], halo[1]),))
    pieces = cut_into_pieces(slab, planes, reach, later, wraps=wraps)
    begin, end = 7 - (later if sides[0] else 0), 7 + n + (later if sides[1] else 0)
    assert pieces[0].slab.start == (begin,)
    assert pieces[-1].slab.stop == (end,)
    for one, other in itertools.pairwise(pieces):
        assert one.slab.stop == other.slab.start
    for number, piece in enumerate(pieces):
        low, high = piece.slab.halo[0]
        assert low == (0 if number == 0 and not (sides[0] or wraps) else reach)
        assert high == (0 if number == len(pieces) - 1 and not (sides[1] or wraps) else reach)
        assert piece.low == (piece.slab.start[0] - 7 - low, low)
        assert piece.high == (piece.slab.stop[0] - 7, high)
        if len(pieces) > 1:
            assert piece.slab.shape[0] >= reach
        # Nothing beyond the halo of the slab is read.
        if not wraps:
            assert piece.low[0] >= -halo[0]
            assert sum(piece.high) <= n + halo[1]
    for number, last in enumerate(needed_later(pieces, 7)):
        assert last in (number, number + 1)
