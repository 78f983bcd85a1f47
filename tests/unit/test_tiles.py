"""Tiles compute every space-time point exactly once, never before its inputs, never after an input
was written over.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tetris_sim.cpu_kernels.common.layout import COUNT, FIRST, N_COLUMNS, REACH, RIM, SEAM, SHRINK
from tetris_sim.cpu_kernels.tessellate import tiles

HALO = 40  # planes kept beyond open ends: more than any case uses up


@dataclass(frozen=True)
class Line:
    """One axis of a test case: `n` points, what its two ends are, and the width asked for."""

    n: int
    radius: int
    kind: str  # "faces", "open", "half open", "ring"
    rim: int
    tile: int

    @property
    def shrink(self) -> tuple[int, int]:
        return {"open": (self.radius, self.radius), "half open": (self.radius, 0)}.get(
            self.kind, (0, 0)
        )

    def numbers(self) -> list[int]:
        row = [0] * N_COLUMNS
        row[FIRST], row[COUNT], row[REACH] = HALO, self.n, self.radius
        row[SHRINK], row[SHRINK + 1] = self.shrink
        row[SEAM], row[RIM] = int(self.kind == "ring"), self.rim
        return row

    def sources(self, low: int, high: int) -> npt.NDArray[np.intp]:
        """Where the values of [low, high) come from: points beyond a face or a ring's end are
        copies of others.
        """
        index = np.arange(low, high)
        first, last = HALO, HALO + self.n - 1
        if (
            self.kind == "ring"
        ):  # a lane of a lifted row: what lies before it is the end of the lane before
            period = self.n - self.rim
            return np.where(
                index < first, index + period, np.where(index > last, index - period, index)
            )
        if not self.shrink[0]:
            index = np.where(index < first, 2 * first - 1 - index, index)
        if not self.shrink[1]:
            index = np.where(index > last, 2 * last + 1 - index, index)
        return index


@st.composite
def lines(draw: st.DrawFn, longest: int) -> Line:
    radius = draw(st.integers(0, 3))
    kind = draw(st.sampled_from(["faces", "open", "half open", "ring"]))
    rim = draw(st.integers(0, 3)) if kind == "ring" else 0
    n = draw(st.integers(max(radius, 1) + rim, longest))
    return Line(n, radius, kind, rim, draw(st.integers(0, 12)))


class Levels:
    """Two buffers that hold the level of every point, and a count of who computed what."""

    def __init__(self, cut: tuple[Line, ...], steps: int) -> None:
        self.cut = cut
        shape = tuple(line.n + 2 * HALO for line in cut)
        self.buffers = [np.zeros(shape, dtype=np.int8), np.full(shape, -1, dtype=np.int8)]
        self.times = np.zeros((steps, *shape), dtype=np.int8)

    def compute(self, box: tuple[tuple[int, int], ...], step: int) -> None:
        if any(stop <= start for start, stop in box):
            return
        reads = [
            line.sources(start - line.radius, stop + line.radius)
            for line, (start, stop) in zip(self.cut, box, strict=True)
        ]
        assert (self.buffers[step % 2][np.ix_(*reads)] == step).all(), (
            "an input is missing, or was written over"
        )
        inside = tuple(slice(start, stop) for start, stop in box)
        self.buffers[1 - step % 2][inside] = step + 1
        self.times[step][inside] += 1


def boxes_of(
    axes: tuple[tiles.TileAxis, tiles.TileAxis, tiles.TileAxis], kind: int, number: int, step: int
) -> list[tuple[tuple[int, int], ...]]:
    spans: list[tuple[tuple[int, int], ...]] = [()]
    for bit, (axis, k) in enumerate(zip(axes, tiles.place(axes, kind, number), strict=True)):
        inverted = kind >> bit & 1
        pieces = [
            tiles.span(axis, inverted, k, piece, step)
            for piece in range(tiles.n_pieces(axis, inverted, k))
        ]
        spans = [(*box, piece) for box in spans for piece in pieces]
    return spans


def check_block(
    cut: tuple[Line, Line, Line], steps: int, later: int, random: np.random.Generator
) -> None:
    """Run a block with the tiles of a stage interleaved at random, and look at every read and
    write.
    """
    levels = Levels(cut, steps)
    first, second, third = (tiles.lay(line.numbers(), line.tile, steps, later) for line in cut)
    axes = (first, second, third)
    for stage in range(tiles.N_STAGES):
        todo = [
            (kind, number)
            for kind in range(tiles.N_KINDS)
            if tiles.stage_of(kind) == stage
            for number in range(tiles.n_tiles(axes, kind))
        ]
        next_step = [0] * len(todo)
        for turn in random.permutation(np.repeat(np.arange(len(todo)), steps)):
            kind, number = todo[turn]
            for box in boxes_of(axes, kind, number, next_step[turn]):
                levels.compute(box, next_step[turn])
            next_step[turn] += 1
    for step in range(steps):
        expected = np.zeros_like(levels.times[step])
        left = steps - 1 - step + later
        expected[
            tuple(
                slice(HALO - left * line.shrink[0], HALO + line.n + left * line.shrink[1])
                for line in cut
            )
        ] = 1
        np.testing.assert_array_equal(levels.times[step], expected)


MISSING = Line(
    n=1, radius=0, kind="faces", rim=0, tile=0
)  # the axes that a problem of one or two lacks
STEPS, LATER, SEED = st.integers(1, 5), st.integers(0, 5), st.integers(0, 2**32 - 1)


@given(line=lines(60), steps=STEPS, later=LATER, seed=SEED)
@settings(max_examples=150)
def test_every_point_of_one_axis_is_computed_once_and_in_time(
    line: Line, steps: int, later: int, seed: int
) -> None:
    check_block((MISSING, MISSING, line), steps, later, np.random.default_rng(seed))


@given(
    cut=st.tuples(lines(30), lines(30)), steps=st.integers(1, 4), later=st.integers(0, 3), seed=SEED
)
@settings(max_examples=100)
def test_every_point_of_two_axes_is_computed_once_and_in_time(
    cut: tuple[Line, Line], steps: int, later: int, seed: int
) -> None:
    check_block((cut[0], MISSING, cut[1]), steps, later, np.random.default_rng(seed))


@given(cut=st.tuples(lines(16), lines(16), lines(16)), steps=st.integers(1, 3), seed=SEED)
@settings(max_examples=40)
def test_every_point_of_three_axes_is_computed_once_and_in_time(
    cut: tuple[Line, Line, Line], steps: int, seed: int
) -> None:
    check_block(cut, steps, 0, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", ["faces", "open", "ring"])
@pytest.mark.parametrize("radius", [1, 2])
def test_a_range_of_two_least_widths_is_cut_and_one_point_less_is_not(
    kind: str, radius: int
) -> None:
    steps = 4
    width = tiles.least_width(steps, radius)
    # an open range is longer at the first step
    to_come = 2 * (steps - 1) * radius if kind == "open" else 0
    line = Line(n=2 * width - to_come, radius=radius, kind=kind, rim=0, tile=1)
    assert tiles.lay(line.numbers(), line.tile, steps, 0).n_upright == 2
    check_block((MISSING, MISSING, line), steps, 0, np.random.default_rng(0))
    shorter = Line(n=2 * width - to_come - 1, radius=radius, kind=kind, rim=0, tile=1)
    assert tiles.lay(shorter.numbers(), 1, steps, 0).n_upright == 1


def test_narrower_tiles_than_legal_break_the_property() -> None:
    steps, radius = 3, 1
    axis = tiles.TileAxis(
        low=HALO,
        high=HALO + 9,
        n_upright=3,
        radius=radius,
        shrink_low=0,
        shrink_high=0,
        seam=0,
        rim=0,
    )
    assert tiles.least_width(steps, radius) > 9 // 3
    levels = Levels((Line(n=9, radius=radius, kind="faces", rim=0, tile=3),), steps)
    boxes = [
        ((tiles.span(axis, inverted, k, 0, step),), step)
        for inverted in (0, 1)
        for k in range(tiles.n_along(axis, inverted))
        for step in range(steps)
    ]
    with pytest.raises(AssertionError, match="an input is missing"):
        list(itertools.starmap(levels.compute, boxes))


def test_tiles_away_from_the_ends_hold_no_point_that_a_ghost_mirrors() -> None:
    for steps, radius, seam in ((1, 3, 0), (1, 3, 1), (4, 1, 0), (4, 2, 1)):
        width = tiles.least_width(steps, radius)
        axis = tiles.TileAxis(0, 3 * width, 3, radius, 0, 0, seam, 0)
        for inverted in (0, 1):
            for k in range(tiles.n_along(axis, inverted)):
                spans = [tiles.span(axis, inverted, k, 0, step) for step in range(steps)]
                near = any(
                    start < stop and (start < radius or stop > axis.high - radius)
                    for start, stop in spans
                )
                assert tiles.at_end(axis, inverted, k) or not near


def test_a_kind_has_as_many_tiles_as_the_product_of_its_intervals() -> None:
    axes = (
        tiles.TileAxis(0, 40, 2, 1, 0, 0, 0, 0),
        tiles.TileAxis(0, 90, 3, 1, 0, 0, 1, 0),
        tiles.TileAxis(0, 9, 1, 1, 0, 0, 0, 0),
    )
    assert [tiles.n_tiles(axes, kind) for kind in range(4)] == [6, 3, 6, 3]
    assert {tiles.place(axes, 2, number) for number in range(6)} == {
        (i, j, 0) for i in range(2) for j in range(3)
    }
    assert math.prod(tiles.n_along(axis, 1) for axis in axes) == tiles.n_tiles(axes, 7) == 0
