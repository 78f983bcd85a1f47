"""StreamedStepper: a slab that lies in host memory and goes through a device in pieces, many steps
at a time.

The slab is there once. What keeps a piece from being written back before its neighbour was read,
and from being read in the next pass before it was written back, are events that the copies wait
for; the caller waits for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from tetris_sim.boundary import SIDES, Side
from tetris_sim.gpu_kernels.common.layout import PitchedField
from tetris_sim.gpu_kernels.steppers.streamed import Flat, Planes, plane_element, plane_pitch
from tetris_sim.method import Box, EdgePlanes
from tetris_sim.problem import Field, InitialField, Problem
from tetris_sim.scheduler.facts.streaming import Streaming
from tetris_sim.scheduler.plan.streaming import Piece, cut_into_pieces, needed_later
from tetris_sim.slab import Ranges, Slab

_PART_POINTS = 1 << 20  # that a thread loads, copies or looks at together
_BAD_BOX = 8  # edge of the box in which a non-finite value is reported, in points

Event = Any  # something that has happened or will; what it is, the conveyor knows


class Conveyor(Protocol):
    """A device to which pieces are brought, on which they are advanced, and from which they are
    taken.

    What has `after` in its arguments waits for these events, but the call returns at once.
    """

    def layout(self, slab: Slab) -> PitchedField:
        """How the planes of a slab lie in an array, the same for the whole slab and for pieces of
        it.
        """

    def host_array(self, elements: int) -> Flat:
        """Memory of the host that can be copied from and to quickly."""

    def bring(
        self, slab: Slab, sources: Sequence[Planes], after: Sequence[Event]
    ) -> tuple[Any, Event]:
        """Copy the planes of a piece and of its halo to the device: (cargo, when it has
        arrived).
        """

    def advance(self, cargo: Any, steps: int) -> None:
        """Advance a cargo when it has arrived."""

    def take(self, cargo: Any, target: Planes, after: Sequence[Event]) -> Event:
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
        self, problem: Problem, slab: Slab, conveyor: Conveyor, streaming: Streaming
    ) -> None:
        self.slab = slab
        self._problem, self._conveyor, self._streaming = problem, conveyor, streaming
        self._radius = problem.stencil.radii[0]
        self._layout = conveyor.layout(slab)
        self._host = conveyor.host_array(self._layout.n_bytes // self._layout.dtype.itemsize)
        self._wraps = problem.boundary.periodic(0) and not any(slab.halo[0])
        self._plane = plane_pitch(self._layout, problem.grid.ndim)
        self._ends = self._make_ends()
        self._written: list[
            tuple[int, int, Event]
        ] = []  # (first plane, end, when) of the pass before

    def load(self, initial: InitialField) -> None:
        """Take the owned points, all threads a part at a time."""
        self.wait()
        no_halo = ((0, 0),) * len(self.slab.start)

        def fill(ranges: Ranges) -> None:
            box = self.slab.globally(ranges)
            values = initial(
                Slab(tuple(low for low, _ in box), tuple(high for _, high in box), no_halo)
            )
            self._layout.view(self._host, ranges)[...] = values

        self._in_parts(fill)

    def advance(self, steps: int) -> None:
        """Send everything through the device as often as needed; returns before it is done."""
        for axis, halo in enumerate(self.slab.halo):
            if any(0 < width < steps * self._problem.stencil.radii[axis] for width in halo):
                msg = f"a halo of {halo} planes does not last for {steps} steps"
                raise ValueError(msg)
        later = steps
        while later:
            once = min(later, self._streaming.steps)
            later -= once
            self._pass(once, later)

    def edge(self, axis: int, side: Side) -> Field:
        """The owned planes that the neighbour on `side` needs, a contiguous copy."""
        self.wait()
        return np.array(
            self._layout.view(self._host, self.slab.edge_ranges(axis, SIDES.index(side))), order="C"
        )

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Take the planes beyond `side`."""
        self.wait()
        self._layout.view(self._host, self.slab.halo_ranges(axis, SIDES.index(side)))[...] = (
            np.asarray(planes)
        )

    def interior(self, box: Box | None = None) -> Field:
        """A copy of the owned points, or of those inside `box` (global indices)."""
        self.wait()
        whole = tuple(zip(self.slab.start, self.slab.stop, strict=True))
        wanted = tuple(
            (max(low, start) - start, min(high, stop) - start)
            for (low, high), (start, stop) in zip(box or whole, whole, strict=True)
        )
        copy = np.empty(
            (self._layout.n_fields, *(high - low for low, high in wanted)), dtype=self._layout.dtype
        )

        def fill(ranges: Ranges) -> None:
            place = (
                slice(low - start, high - start)
                for (low, high), (start, _) in zip(ranges, wanted, strict=True)
            )
            copy[(slice(None), *place)] = self._layout.view(self._host, ranges)

        self._in_parts(fill, wanted)
        return copy

    def find_nonfinite(self) -> Box | None:
        """The box of a few points around the first value that is not finite."""
        self.wait()
        found: list[tuple[int, ...]] = []

        def search(ranges: Ranges) -> None:
            finite = np.isfinite(self._layout.view(self._host, ranges)).all(axis=0)
            if not finite.all():
                where = np.unravel_index(int(np.argmin(finite)), finite.shape)
                found.append(tuple(low + int(i) for (low, _), i in zip(ranges, where, strict=True)))

        self._in_parts(search)
        return self.slab.around(min(found), _BAD_BOX) if found else None

    def wait(self) -> None:
        """Return when the device is done and everything lies in host memory."""
        self._conveyor.wait()
        self._written = []

    def close(self) -> None:
        """Give memory back."""
        self._conveyor.close()
        self._host = np.empty(0, dtype=self._layout.dtype)

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
            self._conveyor.advance(cargo, steps)
            first, count = piece.slab.start[0] - self.slab.start[0], piece.slab.shape[0]
            readers = [event for _, event in brought[k + 1 : read_by[k] + 1]]
            event = self._conveyor.take(cargo, self._planes(first, count), readers)
            self._written.append((first, first + count, event))

    def _bring(self, piece: Piece, before: Sequence[tuple[int, int, Event]]) -> tuple[Any, Event]:
        n, count = self.slab.shape[0], piece.slab.shape[0]
        start = piece.slab.start[0] - self.slab.start[0]
        sources = [self._planes(start, count)]
        read = [(start, start + count)]
        for (plane, planes), place in ((piece.low, -piece.low[1]), (piece.high, count)):
            if not planes:
                continue
            if self._wraps and plane >= n:
                sources.append(Planes(self._ends[0], 0, planes * self._plane, planes, place))
                continue
            plane = plane % n if self._wraps else plane
            sources.append(self._planes(plane, planes, place))
            read.append((plane, plane + planes))
        after = [
            event
            for low, high, event in before
            if any(low < end and begin < high for begin, end in read)
        ]
        return self._conveyor.bring(piece.slab, sources, after)

    def _planes(self, first: int, count: int, place: int = 0) -> Planes:
        """Planes of the slab; `place` is where they belong in a piece."""
        element = plane_element(self._layout, self._problem.grid.ndim, first)
        return Planes(self._host, element, self._layout.field_pitch, count, place)

    def _make_ends(self) -> list[Flat]:
        """Where the first planes of a pass are kept for its last piece, if that reaches them; two
        that take turns.
        """
        if not self._wraps:
            return []
        reach = self._streaming.steps * self._radius
        return [
            self._conveyor.host_array(self._layout.n_fields * reach * self._plane) for _ in "ab"
        ]

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
        length, begin = reach * self._plane, plane_element(self._layout, self._problem.grid.ndim, 0)
        for field in range(self._layout.n_fields):
            source = begin + field * self._layout.field_pitch
            self._ends[0][field * length : (field + 1) * length] = self._host[
                source : source + length
            ]

    def _in_parts(self, work: Any, wanted: Ranges | None = None) -> None:
        """Call `work` with parts of a box of owned points, on all cores: NumPy lets others run
        while it copies.
        """
        wanted = wanted or tuple((0, n) for n in self.slab.shape)
        (first, last), *rest = wanted
        per_plane = self._layout.n_fields * int(
            np.prod([high - low for low, high in rest], dtype=np.int64)
        )
        planes = max(1, _PART_POINTS // max(1, per_plane))
        parts = [((low, min(low + planes, last)), *rest) for low in range(first, last, planes)]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for _ in pool.map(work, parts):
                pass
