"""Tessellation of space and time as arithmetic: which points does a tile compute at which step?

Along one axis a range of points is cut. In a block of steps each piece is an upright triangle,
which gets shorter by the radius at either end with every step, so it needs nobody; around each cut
stands an inverted triangle, which grows as fast and needs only the two uprights beside it. In d
dimensions a tile is upright or inverted along each axis, and a product of such intervals at every
step. Tiles that are inverted along m axes make up stage m. They need stages before m only: all
tiles of a stage may run at once, in any order, and no point is computed twice (Tetris, section
4.1).

The ends of an axis are of three kinds. At a face nothing is missing and the upright triangle keeps
its end. An open end (the halo of a slab) moves inwards by the radius a step and nobody fills it in.
The ends of a ring are joined by one more inverted triangle, the seam, whose interval comes in two
pieces.

Levels lie in two buffers in turn. A tile may be as narrow as `least_width`: then an inverted
triangle ends where the next one begins, and whoever still needs a level finds it before it is
written over.

The compiled loop of `tile_sweep.py` calls these very functions; `tests/unit/test_tiles.py` proves
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tetris_sim.cpu_kernels.common.layout import COUNT, FIRST, REACH, RIM, SEAM, SHRINK

N_STAGES = 4  # of three axes: a tile is inverted along none, one, two or three of them
N_KINDS = 8  # upright or inverted along each of three axes; axis d is inverted if bit d is set


class TileAxis(NamedTuple):
    """Cut of one axis during one block of steps.

    Attributes:
        low: first point of the range that upright tiles share at the first step.
        high: one past the last.
        n_upright: number of upright tiles.
        radius: what a step reaches.
        shrink_low: points by which the range loses at its low end per step: the radius if it is
            open, else 0.
        shrink_high: the same at the high end.
        seam: 1 if the ends are joined and the axis is cut, so that there is a tile across the
            joint.
        rim: points beyond `low` and `high` that only the tile across the joint computes, from the
            first step on.
    """

    low: int
    high: int
    n_upright: int
    radius: int
    shrink_low: int
    shrink_high: int
    seam: int
    rim: int


def least_width(steps: int, radius: int) -> int:
    """The narrowest legal tile for a block of `steps`.

    >>> least_width(4, 2)
    12
    """
    return max(2 * (steps - 1) * radius, radius, 1)


def lay(numbers: Sequence[int], tile: int, steps: int, later: int) -> TileAxis:
    """Cut one axis for a block of `steps` that `later` further steps will follow before the halo is
    renewed.

    A range that is too narrow for two tiles stays whole: the ends of a ring then need no tile of
    their own, because its one tile is complete after each step.

    Args:
        numbers: one row of `axes`, see `layout.py`.
        tile: points a tile is wide at least; 0 if the axis is not to be cut.
        steps: of this block.
        later: after it.
    """
    # The first step of the block must be right for all later ones.
    to_come = steps + later - 1
    low = numbers[FIRST] - to_come * numbers[SHRINK]
    high = numbers[FIRST] + numbers[COUNT] + to_come * numbers[SHRINK + 1]
    rim = numbers[RIM]

    count = 1
    if tile > 0:
        # Tiles must not be narrower than a block of steps permits.
        count = (high - low - 2 * rim) // max(tile, least_width(steps, numbers[REACH]))
    if count < 2:
        return TileAxis(low, high, 1, numbers[REACH], numbers[SHRINK], numbers[SHRINK + 1], 0, 0)

    return TileAxis(
        low + rim,
        high - rim,
        count,
        numbers[REACH],
        numbers[SHRINK],
        numbers[SHRINK + 1],
        numbers[SEAM],
        rim,
    )


def cut(axis: TileAxis, k: int) -> int:
    """The point where upright tile k begins."""
    return axis.low + (axis.high - axis.low) * k // axis.n_upright


def n_along(axis: TileAxis, inverted: int) -> int:
    """Number of upright (or inverted) intervals along one axis; the seam is the last of the
    inverted ones.
    """
    return axis.n_upright - 1 + axis.seam if inverted else axis.n_upright


def span(axis: TileAxis, inverted: int, k: int, piece: int, step: int) -> tuple[int, int]:
    """First and one past the last point of interval k at a step of the block; piece 1 is empty but
    for the seam.
    """
    shift = step * axis.radius
    # The seam joins the two ends of the ring.
    if inverted and k == axis.n_upright - 1:
        if piece == 0:
            return axis.high - shift, axis.high + axis.rim
        return axis.low - axis.rim, axis.low + shift
    if piece == 1:
        return axis.low, axis.low
    if inverted:
        return cut(axis, k + 1) - shift, cut(axis, k + 1) + shift
    begin = shift if k > 0 or axis.seam else step * axis.shrink_low
    end = shift if k < axis.n_upright - 1 or axis.seam else step * axis.shrink_high
    return cut(axis, k) + begin, cut(axis, k + 1) - end


def n_pieces(axis: TileAxis, inverted: int, k: int) -> int:
    """Number of pieces of interval k: two for the seam, else one."""
    return 2 if inverted and k == axis.n_upright - 1 else 1


def at_end(axis: TileAxis, inverted: int, k: int) -> bool:
    """Whether interval k may hold points within the radius of an end of the axis, which ghosts
    mirror.
    """
    if inverted:
        return k == axis.n_upright - 1
    return k in (0, axis.n_upright - 1)


def stage_of(kind: int) -> int:
    """Stage of a kind of tiles: the number of axes along which they are inverted.

    >>> [stage_of(kind) for kind in range(N_KINDS)]
    [0, 1, 1, 2, 1, 2, 2, 3]
    """
    return (kind & 1) + (kind >> 1 & 1) + (kind >> 2 & 1)


def n_tiles(axes: tuple[TileAxis, TileAxis, TileAxis], kind: int) -> int:
    """Number of tiles of a kind."""
    return (
        n_along(axes[0], kind & 1)
        * n_along(axes[1], kind >> 1 & 1)
        * n_along(axes[2], kind >> 2 & 1)
    )


def place(
    axes: tuple[TileAxis, TileAxis, TileAxis], kind: int, number: int
) -> tuple[int, int, int]:
    """Interval along each axis of the tile with a number; neighbours along the last axis are
    consecutive.
    """
    n1, n2 = n_along(axes[1], kind >> 1 & 1), n_along(axes[2], kind >> 2 & 1)
    return number // (n1 * n2), number // n2 % n1, number % n2
