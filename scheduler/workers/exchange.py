"""Exchange: the only place where halos move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from tetris_sim.model.method import Box, EdgePlanes, Fetch, Snapshots
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.workers.routes import Route, find_routes
from tetris_sim.scheduler.workers.worker import Worker

Read = Callable[[Box], Field]  # a box of global indices -> its points, (n_fields, ...)


@dataclass
class Traffic:
    """What went from rank to rank.

    Attributes:
        messages: sent by this rank.
        bytes: size of these messages together.
    """

    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class UnderWay:
    """Halos that are on their way.

    Attributes:
        axis: along which.
        end: waits for them and puts them in; then every halo holds the values its owner had when
            the exchange was begun. Called once.
    """

    axis: int
    end: Callable[[], None]


class Exchange(Protocol):
    """Moves data between workers.

    `begin`, its end and `swap` are called by all ranks at the same step. `gather` is asked for by
    rank 0 alone, inside of `lead`, while the other ranks answer.

    Attributes:
        traffic: messages so far.
        waits: whether who exchanges also waits. Else only GPUs do, when they have done what they
            were told before.
    """

    traffic: Traffic
    waits: bool

    def begin(self, workers: Sequence[Worker]) -> UnderWay | None:
        """Take each worker's edge planes and send them on their way.

        Axis by axis, including the halos just received, so corners need no message: of all axes but
        the last one that is cut halos are there when it returns. Meanwhile steppers may advance
        what needs none of the last one (`InnerFirst`).

        Returns:
            What is on its way along the last axis that is cut; None if none is.
        """

    def swap(self, workers: Sequence[Worker]) -> None:
        """Begin and end.

        Afterwards every halo holds the values its owner had, so each worker may advance
        `time_block` steps alone.
        """

    def lead(self, workers: Sequence[Worker], work: Callable[[], None]) -> None:
        """Rank 0 does some work, in which it may ask for the state; the others answer until it is
        done.

        If the work fails, rank 0 raises its error and the others `ElsewhereError`.
        """

    def gather(self, workers: Sequence[Worker], box: Box) -> Field:
        """The points of the state inside `box`, (n_fields, ...)."""


class LocalExchange:
    """The exchange between the workers of one process."""

    waits = True

    def __init__(self, problem: Problem, slabs: Sequence[Slab]) -> None:
        self._problem = problem
        self._routes = [routes for routes in find_routes(problem, slabs) if routes]
        self.traffic = Traffic()

    def begin(self, workers: Sequence[Worker]) -> UnderWay | None:
        """Take all edges of an axis, then set all halos of it; then the next axis."""
        under_way = None
        for routes in self._routes:
            if under_way is not None:
                under_way.end()
            taken = [(it, workers[it.sender].stepper.edge(it.axis, it.taken)) for it in routes]
            under_way = UnderWay(routes[0].axis, partial(_set_halos, workers, taken))
        return under_way

    def swap(self, workers: Sequence[Worker]) -> None:
        """Begin and end."""
        if (under_way := self.begin(workers)) is not None:
            under_way.end()

    def lead(self, workers: Sequence[Worker], work: Callable[[], None]) -> None:
        """Nobody else is there."""
        work()

    def gather(self, workers: Sequence[Worker], box: Box) -> Field:
        """Ask the workers that own some of the box for their part of it."""
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
    """Let the devices of all workers of a process keep the state as it is now: what fetches it,
    (n_fields, n0, ...), while they go on; None if one of them cannot.
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
    """What a worker owns."""
    slab = worker.stepper.slab
    return tuple(zip(slab.start, slab.stop, strict=True))


def overlap(slab: Slab, box: Box) -> Box | None:
    """The part of a box that lies in a slab; None if there is none."""
    inside = tuple(
        (max(low, start), min(high, stop))
        for (low, high), start, stop in zip(box, slab.start, slab.stop, strict=True)
    )
    return inside if all(low < high for low, high in inside) else None


def join(problem: Problem, box: Box, parts: Sequence[tuple[Box, Field]]) -> Field:
    """One array of all parts of a box."""
    if len(parts) == 1 and parts[0][0] == box:
        return parts[0][1]
    whole = np.empty((problem.n_fields, *(high - low for low, high in box)), dtype=problem.dtype)
    for inside, values in parts:
        part = tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(inside, box, strict=True))
        whole[(slice(None), *part)] = values
    return whole
