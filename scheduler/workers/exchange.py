"""Halo exchange between workers: its routes, its interface and the exchange within one process.

A route says which slab owns the planes of a halo (arithmetic only). Halos move only in
implementations of `Exchange`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from tetris_sim.model.boundary import Side
from tetris_sim.model.method import Box, EdgePlanes, Fetch, Snapshots
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.workers.worker import Worker

Read = Callable[[Box], Field]  # a box of global indices -> its points, (n_fields, ...)


@dataclass
class Traffic:
    """Messages between ranks, as sent by this rank.

    Attributes:
        messages: number of messages sent.
        bytes: total size of these messages.
    """

    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class UnderWay:
    """Halos in transit.

    Attributes:
        axis: axis along which they move.
        end: waits for the halos and stores them; afterwards every halo holds the values that its
            owner had when the exchange began. Called once.
    """

    axis: int
    end: Callable[[], None]


class Exchange(Protocol):
    """Interface for moving halos and parts of the state between workers.

    `begin`, its end and `swap` are collective and called by all ranks at the same step. `gather` is
    called by rank 0 alone, inside `lead`, while the other ranks answer.

    Attributes:
        traffic: messages so far.
        waits: whether the host waits in an exchange; otherwise only GPUs wait, on work enqueued
            before.
    """

    traffic: Traffic
    waits: bool

    def begin(self, workers: Sequence[Worker]) -> UnderWay | None:
        """Take each worker's edges and send them.

        Axes are exchanged one after the other, and edges include the halos just received, so
        corners need no messages of their own. On return the halos of all axes except the last one
        that is cut are in place. In the meantime steppers may advance points that need no halo of
        that axis (`InnerFirst`).

        Returns:
            The halos in transit along the last axis that is cut; None if there are none.
        """

    def swap(self, workers: Sequence[Worker]) -> None:
        """Exchange all halos: begin and end.

        Afterwards every halo holds the values that its owner had, so each worker may advance
        `time_block` steps alone.
        """

    def lead(self, workers: Sequence[Worker], work: Callable[[], None]) -> None:
        """Run `work` on rank 0, in which it may gather the state; the other ranks answer until it
        is done.

        If the work fails, rank 0 raises its error and the other ranks raise `ElsewhereError`.
        """

    def gather(self, workers: Sequence[Worker], box: Box) -> Field:
        """The values of the state inside `box`, of shape (n_fields, ...)."""


class LocalExchange:
    """The exchange between the workers of one process."""

    waits = True

    def __init__(self, problem: Problem, slabs: Sequence[Slab]) -> None:
        self._problem = problem
        self._routes = [routes for routes in find_routes(problem, slabs) if routes]
        self.traffic = Traffic()

    def begin(self, workers: Sequence[Worker]) -> UnderWay | None:
        """Axis by axis: take all edges, then set all halos. The halos of the last axis are left to
        `end`.
        """
        under_way = None
        for routes in self._routes:
            # Edges of this axis include the halos of the axes before, which must be stored first.
            if under_way is not None:
                under_way.end()
            taken = [(it, workers[it.sender].stepper.edge(it.axis, it.taken)) for it in routes]
            under_way = UnderWay(routes[0].axis, partial(_set_halos, workers, taken))
        return under_way

    def swap(self, workers: Sequence[Worker]) -> None:
        """Exchange all halos."""
        if (under_way := self.begin(workers)) is not None:
            under_way.end()

    def lead(self, workers: Sequence[Worker], work: Callable[[], None]) -> None:
        """Run `work`; there are no other ranks."""
        work()

    def gather(self, workers: Sequence[Worker], box: Box) -> Field:
        """Collect the parts of the box from the workers that own them."""
        parts = [
            (part, worker.stepper.interior(part))
            for worker in workers
            if (part := overlap(worker.stepper.slab, box))
        ]
        return join(self._problem, box, parts)


def _set_halos(workers: Sequence[Worker], taken: Sequence[tuple[Route, EdgePlanes]]) -> None:
    for route, planes in taken:
        workers[route.receiver].stepper.set_halo(route.axis, route.given, planes)


def keep(problem: Problem, workers: Sequence[Worker]) -> Fetch | None:
    """Take a snapshot of the state on the devices of all workers: returns a function that fetches
    it, of shape (n_fields, n0, ...), while the run continues; None if a device cannot.
    """
    fetches: list[tuple[Box, Fetch]] = []
    for worker in workers:
        stepper = worker.stepper
        fetch = stepper.kept() if worker.keeps and isinstance(stepper, Snapshots) else None
        if fetch is None:
            return None
        fetches.append((box_of(worker), fetch))

    whole = tuple((0, n) for n in problem.grid.shape)
    return lambda: join(problem, whole, [(box, fetch()) for box, fetch in fetches])


def box_of(worker: Worker) -> Box:
    """Range of the points that a worker owns, in global indices."""
    slab = worker.stepper.slab
    return tuple(zip(slab.start, slab.stop, strict=True))


def overlap(slab: Slab, box: Box) -> Box | None:
    """The part of a box inside a slab; None if they do not overlap."""
    inside = tuple(
        (max(low, start), min(high, stop))
        for (low, high), start, stop in zip(box, slab.start, slab.stop, strict=True)
    )
    return inside if all(low < high for low, high in inside) else None


def join(problem: Problem, box: Box, parts: Sequence[tuple[Box, Field]]) -> Field:
    """One array from the parts of a box."""
    # A single part that is the whole box needs no copy.
    if len(parts) == 1 and parts[0][0] == box:
        return parts[0][1]
    whole = np.empty((problem.n_fields, *(high - low for low, high in box)), dtype=problem.dtype)
    for inside, values in parts:
        part = tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(inside, box, strict=True))
        whole[(slice(None), *part)] = values
    return whole


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
