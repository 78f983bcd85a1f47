"""Exchange: the only place where halos move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tetris_sim.boundary import SIDES, Side
from tetris_sim.method import Box
from tetris_sim.problem import Field, Problem
from tetris_sim.scheduler.worker import Worker
from tetris_sim.slab import Slab


class Exchange(Protocol):
    """Moves data between workers; every call is collective."""

    def swap(self, workers: Sequence[Worker]) -> None:
        """Copy each worker's edge planes into its neighbours' halos.

        Afterwards every halo holds the values its owner had when `swap` was called, so each worker may advance
        `time_block` steps alone. Axis by axis, including the halos just received, so corners need no message.
        """

    def gather(self, workers: Sequence[Worker], box: Box) -> Field:
        """The points of the state inside `box`, (n_fields, ...)."""


class LocalExchange:
    """The exchange between the workers of one process."""

    def __init__(self, problem: Problem, slabs: Sequence[Slab]) -> None:
        self._problem = problem
        ndim = problem.grid.ndim
        # Per axis: (worker whose edge is taken, the side it is taken from, worker whose halo it becomes).
        self._routes: list[list[tuple[int, Side, int]]] = []
        for axis in range(ndim):
            routes: list[tuple[int, Side, int]] = []
            for receiver, slab in enumerate(slabs):
                for number, side in enumerate(SIDES):
                    if slab.halo[axis][number]:
                        sender = _neighbour(slabs, receiver, axis, side, problem)
                        routes.append((sender, "high" if side == "low" else "low", receiver))
            self._routes.append(routes)

    def swap(self, workers: Sequence[Worker]) -> None:
        """Take all edges of an axis, then set all halos of it; then the next axis."""
        for worker in workers:
            worker.stepper.wait()
        for axis, routes in enumerate(self._routes):
            edges = [workers[sender].stepper.edge(axis, side) for sender, side, _ in routes]
            for (_, side, receiver), planes in zip(routes, edges, strict=True):
                workers[receiver].stepper.set_halo(axis, "high" if side == "low" else "low", planes)

    def gather(self, workers: Sequence[Worker], box: Box) -> Field:
        """Ask the workers that own some of the box for their part of it."""
        parts = []
        for worker in workers:
            slab = worker.stepper.slab
            inside = tuple(
                (max(low, start), min(high, stop))
                for (low, high), start, stop in zip(box, slab.start, slab.stop, strict=True)
            )
            if all(low < high for low, high in inside):
                parts.append((inside, worker.stepper.interior(inside)))
        if len(parts) == 1:
            return parts[0][1]
        whole = np.empty((self._problem.n_fields, *(high - low for low, high in box)), dtype=self._problem.dtype)
        for inside, values in parts:
            place = tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(inside, box, strict=True))
            whole[(slice(None), *place)] = values
        return whole


def _neighbour(slabs: Sequence[Slab], index: int, axis: int, side: Side, problem: Problem) -> int:
    """Which slab lies beyond one side of slab `index`."""
    slab, n = slabs[index], problem.grid.shape[axis]
    wanted = slab.start[axis] % n if side == "low" else slab.stop[axis] % n
    for number, other in enumerate(slabs):
        touches = (other.stop[axis] if side == "low" else other.start[axis]) % n == wanted
        aligned = all(
            other.start[k] == slab.start[k] and other.stop[k] == slab.stop[k]
            for k in range(len(slab.start))
            if k != axis
        )
        if touches and aligned:
            return number
    msg = f"no slab lies beyond the {side} side of {slab} along axis {axis}"
    raise ValueError(msg)
