"""Routes: the slab that owns the planes of each halo. Arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tetris_sim.model.boundary import Side
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab


@dataclass(frozen=True)
class Route:
    """The way of some planes.

    Attributes:
        axis: the one along which they go.
        sender: number of the slab whose edge is taken.
        taken: the side it is taken from.
        receiver: number of the slab whose halo it becomes.
        given: the side where that is.
    """

    axis: int
    sender: int
    taken: Side
    receiver: int
    given: Side


def find_routes(problem: Problem, slabs: Sequence[Slab]) -> list[list[Route]]:
    """Per axis, every halo and the slab that owns its planes; in the same order on every rank."""
    return [_routes_along(axis, n, slabs) for axis, n in enumerate(problem.grid.shape)]


def _routes_along(axis: int, n_planes: int, slabs: Sequence[Slab]) -> list[Route]:
    lows = {_corner(slab.start, slab, axis): number for number, slab in enumerate(slabs)}
    highs = {_corner(slab.stop, slab, axis): number for number, slab in enumerate(slabs)}

    routes: list[Route] = []
    for receiver, slab in enumerate(slabs):
        low, high = slab.halo[axis]
        if low:
            wanted = _corner(slab.start, slab, axis, or_else={0: n_planes})
            sender = _look_up(highs, wanted, slab, axis, "low")
            routes.append(Route(axis, sender, "high", receiver, "low"))
        if high:
            wanted = _corner(slab.stop, slab, axis, or_else={n_planes: 0})
            sender = _look_up(lows, wanted, slab, axis, "high")
            routes.append(Route(axis, sender, "low", receiver, "high"))
    return routes


def _corner(
    ends: tuple[int, ...], slab: Slab, axis: int, or_else: dict[int, int] | None = None
) -> tuple[tuple[int, ...], ...]:
    """Intersect a side of a slab with the side it touches: the cut plane, and the ranges
    along it.
    """
    plane = ends[axis] if or_else is None else or_else.get(ends[axis], ends[axis])
    start, stop = (bounds[:axis] + bounds[axis + 1 :] for bounds in (slab.start, slab.stop))
    return (plane,), start, stop


def _look_up(
    sides: dict[tuple[tuple[int, ...], ...], int],
    wanted: tuple[tuple[int, ...], ...],
    slab: Slab,
    axis: int,
    side: Side,
) -> int:
    if wanted not in sides:
        msg = f"no slab lies beyond the {side} side of {slab} along axis {axis}"
        raise ValueError(msg)
    return sides[wanted]
