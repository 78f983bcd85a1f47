"""StreamedStepper: a slab in host memory goes through a device in pieces, many steps at a time.

The slab is there once. What keeps a piece from being written back before its neighbour was read,
and from being read in the next pass before it was written back, are events that the copies wait
for; the caller waits for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.method import Box, EdgePlanes
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Ranges, Slab, batches, slices
from tetris_sim.scheduler.facts.domain import Streaming
from tetris_sim.scheduler.plan.streaming import Piece, cut_into_pieces, needed_later

_PART_POINTS = 1 << 20  # that a thread loads, copies or looks at together

Event = Any  # something that has happened or will; what it is, the conveyor knows


class HostSlab(Protocol):
    """A slab in host memory, laid out so that planes are quickly brought and taken."""

    def view(self, ranges: Ranges) -> Field:
        """A box of points, (n_fields, ...), counted from the first owned one."""

    def planes(self, first: int, count: int) -> Field:
        """Planes counted from the first owned one, (n_fields, count, ...), as they are copied."""

    def spare(self, count: int) -> Field:
        """Memory for as many planes, (n_fields, count, ...)."""


class ChunkPipeline(Protocol):
    """A device to which pieces are brought, by which they are advanced, from which they are taken.

    What has `after` in its arguments waits for these events, but the call returns at once.
    """

    def hold(self, slab: Slab) -> HostSlab:
        """Memory of the host for a slab."""

    def bring(
        self, slab: Slab, sources: Sequence[tuple[int, Field]], after: Sequence[Event]
    ) -> tuple[Any, Event]:
        """Copy the planes of a piece and of its halo to the device.

        Args:
            slab: the piece.
            sources: planes, and where they belong, counted from the piece's first owned plane.
            after: what must have happened before.

        Returns:
            The cargo, and when it has arrived.
        """

    def advance(self, cargo: Any, steps: int, first: int) -> None:
        """Advance a cargo by steps, of which `first` is the number of the first one, when it has
        arrived.
        """

    def take(self, cargo: Any, target: Field, after: Sequence[Event]) -> Event:
        """Copy the owned planes of a cargo back; it is not there any more afterwards."""

    def finish(self, event: Event) -> None:
        """Return when it has happened."""

    def wait(self) -> None:
        """Return when everything has happened."""

    def close(self) -> None:
        """Give memory back."""


class StreamedStepper:
    """A slab in host memory; see the Protocol `Stepper` for what the calls mean."""

    def __init__(
        self, problem: Problem, slab: Slab, conveyor: ChunkPipeline, streaming: Streaming
    ) -> None:
        self.slab = slab
        self._problem, self._conveyor, self._streaming = problem, conveyor, streaming
        self._radius = problem.stencil.radii[0]
        self._host: HostSlab = conveyor.hold(slab)
        self._step = 0
        self._wraps = problem.boundary.periodic(0) and not any(slab.halo[0])
        # Where the first planes of a pass are kept for its last piece, if that reaches them: two
        # that take turns.
        reach = streaming.steps * self._radius
        self._ends = [self._host.spare(reach) for _ in "ab"] if self._wraps else []
        # (first plane, end, when) of the pass before
        self._written: list[tuple[int, int, Event]] = []

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take the owned points, all threads a part at a time."""
        self.wait()
        self._step = step

        def fill(ranges: Ranges) -> None:
            self._host.view(ranges)[...] = initial(self.slab.part(ranges))

        self._in_parts(fill, self.slab.local())

    def advance(self, steps: int) -> None:
        """Send everything through the device as often as needed; returns before it is done."""
        self.slab.refuse_short_halo(steps, self._problem.stencil.radii)
        later = steps
        while later:
            once = min(later, self._streaming.steps)
            later -= once
            self._pass(once, later)
            self._step += once

    def edge(self, axis: int, side: Side) -> Field:
        """The owned planes that the neighbour on `side` needs, a contiguous copy."""
        self.wait()
        return np.array(self._host.view(self.slab.edge_ranges(axis, SIDES.index(side))), order="C")

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Take the planes beyond `side`."""
        self.wait()
        self._host.view(self.slab.halo_ranges(axis, SIDES.index(side)))[...] = np.asarray(planes)

    def interior(self, box: Box | None = None) -> Field:
        """A copy of the owned points, or of those inside `box` (global indices)."""
        self.wait()
        wanted = self.slab.local(box)
        copy = np.empty(
            (self._problem.n_fields, *(high - low for low, high in wanted)),
            dtype=self._problem.dtype,
        )

        def fill(ranges: Ranges) -> None:
            copy[slices(ranges, wanted)] = self._host.view(ranges)

        self._in_parts(fill, wanted)
        return copy

    def find_nonfinite(self) -> Box | None:
        """The box of a few points around the first value that is not finite."""
        self.wait()
        bad: list[tuple[int, ...]] = []

        def search(ranges: Ranges) -> None:
            finite = np.isfinite(self._host.view(ranges)).all(axis=0)
            if not finite.all():
                where = np.unravel_index(int(np.argmin(finite)), finite.shape)
                bad.append(tuple(low + int(i) for (low, _), i in zip(ranges, where, strict=True)))

        self._in_parts(search, self.slab.local())
        return self.slab.around(min(bad)) if bad else None

    def wait(self) -> None:
        """Return when the device is done and everything lies in host memory."""
        self._conveyor.wait()
        self._written = []

    def close(self) -> None:
        """Give memory back."""
        self._conveyor.close()
        # A worker takes the memory of another slab while this stepper is still there.
        self._host, self._ends = None, []  # type: ignore[assignment]

    def _pass(self, steps: int, later: int) -> None:
        """All pieces once: each is brought while the one before is advanced."""
        reach = steps * self._radius
        pieces = cut_into_pieces(
            self.slab, self._streaming.planes, reach, later * self._radius, wraps=self._wraps
        )
        read_by, before = needed_later(pieces, self.slab.start[0]), self._written
        self._written = []
        self._keep_the_first(reach, before)

        brought: list[tuple[Any, Event]] = []
        for k, piece in enumerate(pieces):
            # The planes of a piece go back where others still have to be read from: those are
            # brought first.
            while len(brought) <= min(max(k + 1, read_by[k]), len(pieces) - 1):
                brought.append(self._bring(pieces[len(brought)], before))

            cargo, _ = brought[k]
            self._conveyor.advance(cargo, steps, self._step)
            first, count = piece.slab.start[0] - self.slab.start[0], piece.slab.shape[0]
            readers = [event for _, event in brought[k + 1 : read_by[k] + 1]]
            event = self._conveyor.take(cargo, self._host.planes(first, count), readers)
            self._written.append((first, first + count, event))

    def _bring(self, piece: Piece, before: Sequence[tuple[int, int, Event]]) -> tuple[Any, Event]:
        n, count = self.slab.shape[0], piece.slab.shape[0]
        start = piece.slab.start[0] - self.slab.start[0]
        sources = [(0, self._host.planes(start, count))]
        read = [(start, start + count)]

        # The planes beyond the piece; over the end of a periodic axis as they were before the pass.
        for (plane, planes), target in ((piece.low, -piece.low[1]), (piece.high, count)):
            if not planes:
                continue
            if self._wraps and plane >= n:
                sources.append((target, self._ends[0][:, :planes]))
                continue
            plane = plane % n if self._wraps else plane
            sources.append((target, self._host.planes(plane, planes)))
            read.append((plane, plane + planes))

        after = [
            event
            for low, high, event in before
            if any(low < end and begin < high for begin, end in read)
        ]
        return self._conveyor.bring(piece.slab, sources, after)

    def _keep_the_first(self, reach: int, before: Sequence[tuple[int, int, Event]]) -> None:
        """Copy the first planes as they are before this pass.

        Waits only for the pass before to have written them, which it did early. The last piece of
        that pass may not have read its copy yet, so that this one goes elsewhere; what was copied
        two passes ago has been read.
        """
        if not self._wraps:
            return
        for first, _, event in before:
            if first < reach:
                self._conveyor.finish(event)
        self._ends.reverse()
        self._ends[0][:, :reach] = self._host.planes(0, reach)

    def _in_parts(self, work: Callable[[Ranges], None], ranges: Ranges) -> None:
        """Call `work` with parts of a box of owned points, on all cores: NumPy lets others run
        while it copies.
        """
        parts = batches(ranges, _PART_POINTS // self._problem.n_fields)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for _ in pool.map(work, parts):
                pass
