"""Fitting: tiles for a slab of few of them, so that all threads have as much to do.

Tiles that suit a whole grid are few in a thin slab: 138 rows of 10,240 points are ten of them, and
15 threads need as long for ten as for fifteen. So tiles are made narrower, and blocks of steps
shorter where those need that, until the longest turn of a thread is predicted to be the shortest.
Times are counted in updates of a unit of a row, a vector of lifted rows.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.caches import read_caches
from tetris_sim.cpu_kernels.common.columns import COUNT, REACH, SHRINK
from tetris_sim.cpu_kernels.tessellate.tiles import (
    N_KINDS,
    N_STAGES,
    Axis,
    lay,
    least_width,
    n_along,
    n_tiles,
    stage_of,
)

Tile = tuple[int, int, int]  # width along each padded axis; 0 for one that is not cut

_PLENTY = 12  # tiles of a thread in the first stage: then it hardly matters who has one more
_PARTS = (1, 2, 3, 4, 6, 8)  # of a slab along an axis, or of what a thread has of it
# heat-2d on 15 threads beside an H200 (Intel Xeon, float64, 2026-11-24): a vector of 8 takes 4 ns
# in the caches of a core, the ends of a row and the meeting of all threads as long as so many.
_ROW, _STAGE = 4.0, 1000.0
# A unit that comes from the cache that all share, once for each block of steps.
_FETCHED = 4.0
# tiles that fill more than half of the cache of a core, and more than all of it
_LARGE, _TOO_LARGE = 1.25, 1.4
# by how much the slowest thread is slower, for it begins later or somebody else needs its core
_UNEVEN = 0.2


@dataclass(frozen=True)
class Stay:
    """What is to be tiled.

    Attributes:
        rows: `axes` of the slab's geometry.
        threads: that share the tiles.
        block: steps between two exchanges.
        unit_bytes: of a unit along the last axis, in both arrays.
    """

    rows: npt.NDArray[np.int64]
    threads: int
    block: int
    unit_bytes: int


def fit(stay: Stay, tile: Tile, steps: int) -> tuple[Tile, int]:
    """(tile, steps per block) for a slab, neither larger than these; these themselves if there are
    tiles enough for all threads.
    """
    steps = min(max(1, steps), stay.block)
    if n_tiles(_cuts(stay, tile, steps), 0) >= _PLENTY * stay.threads:
        return tile, steps

    shorter = dict.fromkeys(max(1, steps // part) for part in (1, 2, 4))
    tries = [(tile, steps)] + [
        (found, few)
        for few in shorter
        for found in itertools.product(
            _widths(stay, 0, tile[0], few),
            _widths(stay, 1, tile[1], few),
            _widths(stay, 2, tile[2], few),
        )
        if n_tiles(_cuts(stay, found, few), 0) <= _PLENTY * stay.threads
    ]

    return min(tries, key=lambda it: turn(stay, *it))


def turn(stay: Stay, tile: Tile, steps: int) -> float:
    """Predicted time of a step, counted in units."""
    cuts, longest = _cuts(stay, tile, steps), 0.0
    for stage in range(N_STAGES):
        kinds = [kind for kind in range(N_KINDS) if stage_of(kind) == stage]
        # (time, how slow) of each thread
        loads = [(0.0, 1.0 + _UNEVEN * (k + 1) / stay.threads) for k in range(stay.threads)]
        for kind in kinds:
            cost = _cost(cuts, kind, steps)
            for _ in range(n_tiles(cuts, kind)):
                seconds, slow = loads[0]
                heapq.heapreplace(loads, (seconds + cost * slow, slow))
        if max(loads)[0] > 0:
            longest += max(loads)[0] + _STAGE

    widths = [(axis.high - axis.low) / axis.n_upright for axis in cuts]
    n_bytes = widths[0] * widths[1] * widths[2] * stay.unit_bytes
    cache = read_caches().l2
    size = 1.0 if n_bytes <= cache / 2 else _LARGE if n_bytes <= cache else _TOO_LARGE
    units = np.prod([float(axis.high - axis.low) for axis in cuts])
    return size * (longest + _FETCHED * float(units) / stay.threads) / steps


def _cuts(stay: Stay, tile: Tile, steps: int) -> tuple[Axis, Axis, Axis]:
    """As in the middle of a block."""
    later = (stay.block - steps) // 2
    first, second, third = (lay(stay.rows[axis], tile[axis], steps, later) for axis in range(3))
    return first, second, third


def _widths(stay: Stay, axis: int, width: int, steps: int) -> list[int]:
    """Widths along an axis that are worth a prediction."""
    row: Any = stay.rows[axis]
    length = int(row[COUNT] + (stay.block - 1) * (row[SHRINK] + row[SHRINK + 1]) // 2)
    counts = {n for part in _PARTS for n in (part, part * stay.threads)}
    narrow = max(1, least_width(steps, int(row[REACH])))
    if axis == 2 and width == 0:  # somebody found that whole rows pay
        return [0]
    cut = {length // n for n in counts if n > 1 and length // n >= narrow}
    return [width, *sorted(n for n in cut if width == 0 or n < width)]


def _cost(cuts: Sequence[Axis], kind: int, steps: int) -> float:
    """All steps of a tile, as long as the average tile of its kind."""
    extent = []
    for axis, cut in enumerate(cuts):
        grown = (steps - 1) * cut.radius
        if kind >> axis & 1:
            extent.append(float(grown))
        elif n_along(cut, 1):
            extent.append((cut.high - cut.low - n_along(cut, 1) * grown) / cut.n_upright)
        else:
            lost = (steps - 1) * (cut.shrink_low + cut.shrink_high) / 2
            extent.append(cut.high - cut.low - lost)
    planes, rows, units = (max(0.0, width) for width in extent)
    return steps * planes * rows * (units + _ROW) if units > 0 else 0.0
