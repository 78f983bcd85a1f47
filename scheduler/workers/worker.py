"""Workers: one device each, with the stepper of its slab, and the rows that report what each worker
did; and out-of-core streaming, where a slab in host memory passes through a device in chunks, many
steps at a time.

A streamed slab exists once. A chunk must not be written back before its neighbour has read it, and
not be read in the next pass before it has been written back: copies wait for events that ensure
this order, so the caller does not wait (Tetris 5.1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.equations import Elliptic, Reduction, total
from tetris_sim.model.method import Box, EdgePlanes, SlabTuned, Stepper, Substepper
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Ranges, Slab, batches, slices
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.shares import Plan, Share, Streaming
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.plan.partition import Piece, cut_into_pieces, largest_piece, needed_later
from tetris_sim.scheduler.workers.queued import QueuedStepper, told_as_failure
from tetris_sim.scheduler.workers.simulated import (
    EmulatedChunkPipeline,
    EmulatedDevice,
    EmulatedStepper,
)
from tetris_sim.support import usable_cores

_PART_POINTS = 1 << 20  # that a thread loads, copies or checks at a time

# An event of the pipeline, whose type depends on the device.
Event = Any  # in the past or in the future


class HostSlab(Protocol):
    """A slab in host memory, in a layout from which planes are copied quickly."""

    def view(self, ranges: Ranges) -> Field:
        """The points of a box, of shape (n_fields, ...), counted from the first owned one."""

    def planes(self, first: int, count: int) -> Field:
        """Planes counted from the first owned one, of shape (n_fields, count, ...), in the layout
        of copies.
        """

    def spare(self, count: int) -> Field:
        """Memory for `count` planes, of shape (n_fields, count, ...)."""


class ChunkPipeline(Protocol):
    """A device through which chunks are streamed: copied to it, advanced and copied back.

    Calls are asynchronous: those with an argument `after` enqueue work that waits for these events.
    """

    def hold(self, slab: Slab) -> HostSlab:
        """Allocate host memory for a slab."""

    def bring(
        self, slab: Slab, sources: Sequence[tuple[int, Field]], after: Sequence[Event]
    ) -> tuple[Any, Event]:
        """Copy a chunk with its surroundings to the device.

        Args:
            slab: the chunk.
            sources: (position, planes): planes and their position, counted from the chunk's first
                owned plane.
            after: events to wait for.

        Returns:
            The chunk on the device, and the event of its arrival.
        """

    def advance(self, cargo: Any, steps: int, first: int) -> None:
        """Advance a chunk after its arrival; `first` is the number of the first step."""

    def take(self, cargo: Any, target: Field, after: Sequence[Event]) -> Event:
        """Copy the owned planes of a chunk back, which releases the chunk."""

    def finish(self, event: Event) -> None:
        """Wait for an event."""

    def wait(self) -> None:
        """Wait until all work is done."""

    def close(self) -> None:
        """Release the memory."""


class StreamedStepper:
    """A stepper of a slab in host memory; see the protocol `Stepper` for the calls."""

    def __init__(
        self, problem: Problem, slab: Slab, conveyor: ChunkPipeline, streaming: Streaming
    ) -> None:
        self.slab = slab
        self._problem, self._conveyor, self._streaming = problem, conveyor, streaming
        self._radius = problem.stencil.radii[0]
        self._host: HostSlab = conveyor.hold(slab)
        self._step = 0
        self._wraps = problem.boundary.periodic(0) and not any(slab.halo[0])
        # Copies of the first planes before a pass, for its last chunk if that wraps around; two of
        # them are used in turn.
        reach = streaming.steps * self._radius
        self._ends = [self._host.spare(reach) for _ in "ab"] if self._wraps else []
        # (first plane, end, event) of what the last pass wrote back.
        self._written: list[tuple[int, int, Event]] = []

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Set the owned points to the initial state, in parallel."""
        self.wait()
        self._step = step

        def fill(ranges: Ranges) -> None:
            self._host.view(ranges)[...] = initial(self.slab.part(ranges))

        self._in_parts(fill, self.slab.local())

    def advance(self, steps: int) -> None:
        """Stream the slab through the device as often as needed; returns before that is done."""
        self.slab.refuse_short_halo(steps, self._problem.stencil.radii)
        # `later` counts the steps after this pass: the halo still needs that many radii.
        later = steps
        while later:
            once = min(later, self._streaming.steps)
            later -= once
            self._pass(once, later)
            self._step += once

    def edge(self, axis: int, side: Side) -> Field:
        """The owned planes that the neighbour on `side` needs, as a contiguous copy."""
        self.wait()
        return np.array(self._host.view(self.slab.edge_ranges(axis, SIDES.index(side))), order="C")

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Store the planes beyond `side`."""
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
        """Box of a few points around the first non-finite value; None if there is none."""
        self.wait()
        bad: list[tuple[int, ...]] = []

        def search(ranges: Ranges) -> None:
            finite = np.isfinite(self._host.view(ranges)).all(axis=0)
            if not finite.all():
                # `argmin` of booleans is the first False, that is the first non-finite point of the
                # part.
                where = np.unravel_index(int(np.argmin(finite)), finite.shape)
                bad.append(tuple(low + int(i) for (low, _), i in zip(ranges, where, strict=True)))

        self._in_parts(search, self.slab.local())
        return self.slab.around(min(bad)) if bad else None

    def wait(self) -> None:
        """Wait until the device is done and the whole state lies in host memory."""
        self._conveyor.wait()
        self._written = []

    def close(self) -> None:
        """Release the memory."""
        self._conveyor.close()
        # Dropped now, since a worker allocates its next slab while this stepper still exists.
        self._host, self._ends = None, []  # type: ignore[assignment]

    def _pass(self, steps: int, later: int) -> None:
        """Stream all chunks once; each is copied to the device while the one before is advanced."""
        reach = steps * self._radius
        pieces = cut_into_pieces(
            self.slab, self._streaming.planes, reach, later * self._radius, wraps=self._wraps
        )
        read_by, before = needed_later(pieces, self.slab.start[0]), self._written
        self._written = []
        self._keep_the_first(reach, before)

        brought: list[tuple[Any, Event]] = []
        for k, piece in enumerate(pieces):
            # A chunk is written back onto planes that other chunks still have to read, so those
            # chunks are copied to the device first.
            while len(brought) <= min(max(k + 1, read_by[k]), len(pieces) - 1):
                brought.append(self._bring(pieces[len(brought)], before))

            cargo, _ = brought[k]
            self._conveyor.advance(cargo, steps, self._step)
            first, count = piece.slab.start[0] - self.slab.start[0], piece.slab.shape[0]
            # Writing back waits for the copies that read these planes, no longer.
            readers = [event for _, event in brought[k + 1 : read_by[k] + 1]]
            event = self._conveyor.take(cargo, self._host.planes(first, count), readers)
            self._written.append((first, first + count, event))

    def _bring(self, piece: Piece, before: Sequence[tuple[int, int, Event]]) -> tuple[Any, Event]:
        n, count = self.slab.shape[0], piece.slab.shape[0]
        start = piece.slab.start[0] - self.slab.start[0]
        sources = [(0, self._host.planes(start, count))]
        read = [(start, start + count)]

        # Surroundings of the chunk; those beyond the end of a periodic axis as they were before the
        # pass.
        for (plane, planes), target in ((piece.low, -piece.low[1]), (piece.high, count)):
            if not planes:
                continue
            if self._wraps and plane >= n:
                sources.append((target, self._ends[0][:, :planes]))
                continue
            plane = plane % n if self._wraps else plane
            sources.append((target, self._host.planes(plane, planes)))
            read.append((plane, plane + planes))

        # Wait for the write-backs of the pass before that overlap the planes read here.
        after = [
            event
            for low, high, event in before
            if any(low < end and begin < high for begin, end in read)
        ]
        return self._conveyor.bring(piece.slab, sources, after)

    def _keep_the_first(self, reach: int, before: Sequence[tuple[int, int, Event]]) -> None:
        """Copy the first planes as they are before this pass.

        This waits only until the pass before has written these planes, which happens early in a
        pass. The last chunk of that pass may not have read its copy yet, so the new copy goes to
        the other buffer, whose copy of two passes ago has been read.
        """
        if not self._wraps:
            return
        for first, _, event in before:
            if first < reach:
                self._conveyor.finish(event)
        self._ends.reverse()
        self._ends[0][:, :reach] = self._host.planes(0, reach)

    def _in_parts(self, work: Callable[[Ranges], None], ranges: Ranges) -> None:
        """Call `work` on parts of a box of owned points, in parallel: NumPy releases the GIL while
        it copies.
        """
        parts = batches(ranges, _PART_POINTS // self._problem.n_fields)
        with ThreadPoolExecutor(len(usable_cores())) as pool:
            for _ in pool.map(work, parts):
                pass


# Report rows: predicted and measured work of each worker, for `plan` and the report.


@dataclass(frozen=True)
class WorkerRow:
    """Predicted and measured figures of one worker in a plan with a profile.

    Attributes:
        worker: name of the worker.
        method: name of its method.
        share: part of the grid that it owns, 0 to 1.
        points_per_second: rate measured before the run, or when planes last moved.
        predicted_idle: predicted share of the time spent waiting for others, 0 to 1.
        busy_s: computing time [s].
        measured_idle: share of the time of all blocks and exchanges in which the worker did not
            compute, 0 to 1.
    """

    worker: str
    method: str
    share: float
    points_per_second: float
    predicted_idle: float
    busy_s: float
    measured_idle: float

    def __str__(self) -> str:
        """Return the row as a line of text.

        >>> str(WorkerRow("gpu:0", "gpu.stream", 0.9, 9e11, 0.02, 7.5, 0.04))
        'gpu:0: gpu.stream, 90.0% of the grid, 900 GStencil/s, idle 4.0% (2.0% predicted)'
        """
        return (
            f"{self.worker}: {self.method}, {self.share:.1%} of the grid, "
            f"{self.points_per_second / 1e9:.3g} GStencil/s, idle {self.measured_idle:.1%} "
            f"({self.predicted_idle:.1%} predicted)"
        )


def worker_rows(plan: Plan, busy_s: Mapping[str, float], seconds: float) -> tuple[WorkerRow, ...]:
    """The rows of a plan whose workers measure their computing time; empty for other plans.

    Args:
        plan: plan in force at the end of the run.
        busy_s: computing time by worker [s].
        seconds: time of all blocks and exchanges [s].
    """
    if plan.profile is None or seconds <= 0:
        return ()

    points = sum(share.slab.n_points for share in plan.shares)
    # Names identify workers in `busy_s`, since shares may have changed during the run.
    return tuple(
        WorkerRow(
            worker=share.worker,
            method=share.method.name,
            share=share.slab.n_points / points,
            points_per_second=share.points_per_second,
            predicted_idle=plan.profile.division.idle(number),
            busy_s=busy_s.get(share.worker, 0.0),
            measured_idle=max(0.0, 1.0 - busy_s.get(share.worker, 0.0) / seconds),
        )
        for number, share in enumerate(plan.shares)
    )


class Worker:
    """A device of this process, CPU threads or a GPU, and the stepper that advances one slab on it.

    Attributes:
        name: name of the worker.
        device: a `ThreadTeam`, a `GpuDevice` or a `EmulatedDevice`.
        stepper: stepper that advances the slab.
        keeps: whether its device may keep a snapshot of the slab.
        closed: whether the device has been released.
    """

    def __init__(self, problem: Problem, share: Share) -> None:
        self.name, self.closed, self._busy_s = share.worker, False, 0.0
        self.keeps = share.keeps
        self.device: Any = _open_device(share)
        # An open device must not outlive a failed preparation.
        try:
            self.stepper: Stepper = _prepare(problem, share, self.device)
        except BaseException:
            self.device.close()
            raise

    @property
    def busy_s(self) -> float:
        """Computing time over all slabs that the worker had, if its stepper measures that;
        otherwise 0 [s].
        """
        return self._busy_s + (
            self.stepper.busy_s if isinstance(self.stepper, QueuedStepper) else 0.0
        )

    def change(self, problem: Problem, share: Share) -> None:
        """Release the memory of the slab and allocate that of another; its points are not
        loaded.
        """
        # The old memory is released first: both slabs together may not fit.
        self._busy_s = self.busy_s
        self.stepper.close()
        self.stepper, self.keeps = _prepare(problem, share, self.device), share.keeps

    def close(self) -> None:
        """Release memory and device; does nothing if they have been released."""
        if self.closed:
            return
        self.closed = True
        try:
            self.stepper.close()
        finally:
            self.device.close()


def open_worker(problem: Problem, share: Share) -> Worker:
    """Open the device of a share, allocate its slab and compile for it."""
    return Worker(problem, share)


def _open_device(share: Share) -> Any:
    if share.simulated is not None:
        return EmulatedDevice(share.worker, share.simulated, share.threads)
    device = ComputeResource(share.threads, share.method.device, share.number).open()
    if share.method.device == "cpu":
        device.stays_ready = share.through_host  # together with a GPU, blocks are short
    return device


def _prepare(problem: Problem, share: Share, device: Any) -> Stepper:
    # Unless all workers are teams of CPU threads, each runs in a thread of its own
    # (`Share.queued`).
    with told_as_failure(share.worker):
        stepper = _make_stepper(problem, share, device)
    return (
        QueuedStepper(share.worker, stepper, through_host=share.through_host)
        if share.queued
        else stepper
    )


def _make_stepper(problem: Problem, share: Share, device: Any) -> Stepper:
    if share.streamed is not None:
        conveyor = _make_conveyor(problem, share, share.streamed, device)
        return StreamedStepper(problem, share.slab, conveyor, share.streamed)
    if isinstance(device, EmulatedDevice):
        stepper = share.method.prepare(problem, share.slab, share.parameters, device.team)
        return EmulatedStepper(problem, stepper, device)
    method, parameters = share.method, share.parameters
    # Parameters were tuned on the whole grid; a thin slab may need others.
    if isinstance(method, SlabTuned):
        parameters = method.fitted(problem, share.slab, parameters, share.threads)
    return method.prepare(problem, share.slab, parameters, device)


def _make_conveyor(
    problem: Problem, share: Share, streaming: Streaming, device: Any
) -> ChunkPipeline:
    if isinstance(device, EmulatedDevice):
        return EmulatedChunkPipeline(problem, share.method, share.parameters, device)

    # CuPy is imported only where a GPU is used.
    from tetris_sim.gpu_kernels.steppers.passes import GpuMethod
    from tetris_sim.gpu_kernels.steppers.streamed import GpuChunkPipeline

    assert isinstance(share.method, GpuMethod)
    largest = largest_piece(problem, share.slab, streaming)
    return GpuChunkPipeline(problem, share.method, share.parameters, device, largest=largest)


# Numbers of the whole grid: what workers and ranks find in their slabs, put together.


def reduced(
    workers: Sequence[Worker],
    ranks: Communicator,
    reductions: Mapping[str, Reduction],
    names: Sequence[str],
) -> dict[str, float]:
    """Return numbers of arrays over all points; the same bits for any division of the grid.

    Args:
        workers: those of this rank, whose steppers make `Substeps`.
        ranks: who takes part.
        reductions: what is made of which array.
        names: of the arrays that the last part of a substep gave.
    """
    steppers = [cast(Substepper, worker.stepper) for worker in workers]
    own = np.max([it.extremes(names) for it in steppers], axis=0)
    finite = np.where(np.isnan(own), np.inf, own).ravel().tolist()
    ends = np.array(ranks.largest(tuple(finite))).reshape(own.shape)
    kinds = {name: reductions[name] for name in names}
    found = {
        name: high if kinds[name].kind == "max" else -low
        for name, high, low in zip(names, *ends.tolist(), strict=True)
    }

    sizes = dict(zip(names, np.abs(ends).max(axis=0).tolist(), strict=True))
    sums = [name for name in names if kinds[name].kind == "sum"]
    known = [name for name in sums if math.isfinite(sizes[name])]
    found |= dict.fromkeys(sums, math.nan)  # where a value is no number, a sum is none either
    if known:
        exponents = [math.frexp(sizes[name])[1] for name in known]
        pairs = [*zip(known, exponents, strict=True)]
        mine = [[it.digits(*pair) for it in steppers] for pair in pairs]
        every = ranks.collect(mine)
        for number, (name, exponent) in enumerate(pairs):
            rows = [row for of_rank in every for row in of_rank[number]]
            digits = [sum(column) for column in zip(*rows, strict=True)]
            found[name] = kinds[name].factor * total(digits, exponent)
    return found


def solve_constraints(
    workers: Sequence[Worker],
    ranks: Communicator,
    elliptic: Elliptic,
    problem: Problem,
    span: tuple[float, float],
) -> None:
    """Solve for fields and give the corrections to the workers; every rank solves on the whole
    grid, so the bits are the same for any division of it.

    Args:
        workers: those of this rank, whose steppers make `Substeps`.
        ranks: who takes part.
        elliptic: what is solved for.
        problem: that is advanced.
        span: begin and end of the substep [s].

    Raises:
        NumericsError: there is no solution, as all ranks find.
    """
    # Everybody solves the same: a solution that travels would take as long as what it is made of.
    steppers = [cast(Substepper, worker.stepper) for worker in workers]
    mine = [(it.slab.spans, [it.whole(name) for name in elliptic.read]) for it in steppers]
    arrays = [np.empty(problem.grid.shape, problem.dtype) for _ in elliptic.read]
    for spans, parts in itertools.chain.from_iterable(ranks.collect(mine)):
        for array, part in zip(arrays, parts, strict=True):
            array[tuple(slice(*span) for span in spans)] = part

    n = len(elliptic.residuals)
    kept = dict(zip(elliptic.kept, arrays[n:], strict=True))
    found = elliptic.solve(arrays[:n], kept, float(np.finfo(problem.dtype).eps), span)
    for name, values in zip(elliptic.residuals, found, strict=True):
        for stepper in steppers:
            stepper.give(name, values)
