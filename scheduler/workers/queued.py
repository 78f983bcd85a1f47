"""Steppers with their own threads, so that several devices of a process compute concurrently.

Calls without a result are queued and return at once. When a block is done, the thread copies the
edges that neighbours will need while slower workers still compute; all workers take in halos
concurrently. The stepper also measures its computing time, from which load balancing derives a new
division.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import UnsupportedError
from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.method import (
    NOTHING,
    Box,
    CopiesInBlocks,
    EdgePlanes,
    Event,
    Fetch,
    LastingPlanes,
    Snapshots,
    Stepper,
    Substepper,
    Timed,
)
from tetris_sim.model.problem import Field, InitialField

_RECENT = 8  # blocks of which the times are kept; a median of fewer would follow every hiccup

T = TypeVar("T")
Job = Callable[[], None]


class WorkerError(UnsupportedError):
    """A device failed in the middle of a run.

    Attributes:
        worker: name of the worker that failed.
    """

    def __init__(self, worker: str, why: str) -> None:
        super().__init__(f"{worker} failed: {why}")
        self.worker = worker


@runtime_checkable
class Leaving(Protocol):
    """Planes on a device whose copy to the host can overlap its computation."""

    def leave(self) -> None:
        """Start the copy."""


@dataclass(frozen=True)
class Told:
    """A block that was enqueued early on a GPU.

    Attributes:
        steps: steps of the block.
        moments: events at the begin and end of its inner region, and at the begin and end of the
            rest.
    """

    steps: int
    moments: tuple[Event, Event, Event, Event]

    def seconds(self) -> float:
        """Wait for the end of the block and return its computing time [s]."""
        begin, inside, rims, end = self.moments
        end.wait()
        return inside.since(begin) + end.since(rims)


class QueuedStepper:
    """A stepper that runs in its own thread, fed by a queue; see the protocol `Stepper` for the
    calls.

    Arrays passed to a call (`set_halo`) must not be changed until `wait` returns.

    Attributes:
        slab: slab that the stepper owns.
        busy_s: computing time [s].
        recent: (steps, computing time [s]) of the last blocks.
        copies_in_blocks: whether these times contain the copies of halos and edges.
    """

    def __init__(self, name: str, stepper: Stepper, *, through_host: bool = False) -> None:
        """Start the thread.

        Args:
            name: name of the worker.
            stepper: stepper to run.
            through_host: whether neighbours expect edges in host memory; otherwise edges stay where
                they are.
        """
        self.slab = stepper.slab
        self.copies_in_blocks = isinstance(stepper, CopiesInBlocks) and stepper.copies_in_blocks
        self._through_host = through_host
        self.busy_s = 0.0
        self.recent: collections.deque[tuple[int, float]] = collections.deque(maxlen=_RECENT)

        self._name, self._stepper = name, stepper

        # While jobs are outstanding, only the thread touches `_edges`, `_begun`, `_told` and the
        # stepper; `settle` hands them back to the caller, so none of them needs a lock.
        self._edges: dict[tuple[int, Side], EdgePlanes] = {}
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._begun: tuple[Event, Event] | None = None  # around an inner region enqueued early
        self._told: collections.deque[Told] = collections.deque()  # blocks enqueued early

        # One release per finished job. Only the caller's thread counts `_outstanding`.
        self._finished = threading.Semaphore(0)
        self._outstanding = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name=f"worker-{name}", daemon=True)
        self._thread.start()

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Set the owned points to the initial state."""
        self.wait()
        self._edges.clear()
        self._now(lambda: self._stepper.load(initial, step))

    def advance_inner(self, steps: int, axis: int) -> None:
        """Enqueue the inner region of a block, if the stepper supports early enqueueing; returns at
        once.

        Other steppers wait for halos in their own thread, which delays no other worker; computing
        in two parts would take them longer.
        """
        stepper = self._stepper
        if not isinstance(stepper, Timed):
            return

        def job() -> None:
            begun = stepper.mark()
            stepper.advance_inner(steps, axis)
            self._begun = begun, stepper.mark()

        self._put(job)

    def advance(self, steps: int) -> None:
        """Queue a block; returns at once."""

        def job() -> None:
            self._edges.clear()
            if isinstance(self._stepper, Timed):
                self._tell(self._stepper, steps)
                return
            begin = perf_counter()
            self._stepper.advance(steps)
            self._stepper.wait()
            seconds = perf_counter() - begin
            self.busy_s += seconds
            self.recent.append((steps, seconds))
            # The clock has stopped: copies of edges count as computing time only if the stepper
            # makes them within its blocks (`copies_in_blocks`).
            self._copy_edges()

        self._put(job)

    def _tell(self, stepper: Timed, steps: int) -> None:
        """Enqueue a block, or the rest of one whose inner region was enqueued, and wait for the
        block before.
        """
        begin, begun = stepper.mark(), self._begun
        self._begun = None
        # A block in one part has an empty inner region.
        inside = (begin, begin) if begun is None else begun
        stepper.advance(steps)
        self._copy_edges()
        self._told.append(Told(steps, (*inside, begin, stepper.mark())))
        # At most two blocks are enqueued: enough to keep the GPU busy, and bounded.
        while len(self._told) > 1:
            self._count(self._told.popleft())

    def _count(self, block: Told) -> None:
        """Wait for a block and record its computing time."""
        seconds = block.seconds()
        self.busy_s += seconds
        self.recent.append((block.steps, seconds))

    def substep(
        self, time: float, length: float, part: int = 0, found: Mapping[str, float] = NOTHING
    ) -> None:
        """Queue a substep; returns at once."""

        def job() -> None:
            self._edges.clear()
            begin = perf_counter()
            self._substepper.substep(time, length, part, found)
            self._stepper.wait()
            self.busy_s += perf_counter() - begin

        self._put(job)

    def undo(self) -> None:
        """Restore the state before the last substep."""
        self.wait()
        self._now(self._substepper.undo)

    def peaks(self) -> npt.NDArray[np.float64]:
        """Largest magnitudes of the fields and of their errors; see `Substepper`."""
        self.wait()
        return self._now(self._substepper.peaks)

    def extremes(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Largest and minus the smallest value of some arrays; see `Substepper`."""
        self.wait()
        return self._now(lambda: self._substepper.extremes(names))

    def digits(self, name: str, exponent: int) -> tuple[int, ...]:
        """The sum of an array by digits; see `Substepper`."""
        self.wait()
        return self._now(lambda: self._substepper.digits(name, exponent))

    def whole(self, name: str) -> Field:
        """The owned points of an array; see `Substepper`."""
        self.wait()
        return self._now(lambda: self._substepper.whole(name))

    def give(self, name: str, values: Field) -> None:
        """Set a coefficient; see `Substepper`."""
        self.wait()
        self._now(lambda: self._substepper.give(name, values))

    @property
    def _substepper(self) -> Substepper:
        assert isinstance(self._stepper, Substepper)
        return self._stepper

    def edge(self, axis: int, side: Side) -> EdgePlanes:
        """The owned planes that the neighbour on `side` needs."""
        self.settle()
        if (axis, side) in self._edges:
            return self._edges.pop((axis, side))
        return self._now(lambda: self._edge(axis, side))

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Queue the planes beyond `side`; returns at once."""

        def job() -> None:
            self._edges.clear()  # edges along later axes contain some of these planes
            self._stepper.set_halo(axis, side, planes)

        self._put(job)

    def interior(self, box: Box | None = None) -> Field:
        """A copy of the owned points, or of those inside `box`."""
        self.wait()
        return self._now(lambda: self._stepper.interior(box))

    def kept(self) -> Fetch | None:
        """Take a snapshot of the owned points on the device, if it can; a failure is raised when it
        is fetched.
        """
        stepper = self._stepper
        if not isinstance(stepper, Snapshots):
            return None
        self.wait()
        fetch = self._now(stepper.kept)
        return None if fetch is None else lambda: self._now(fetch)

    def find_nonfinite(self) -> Box | None:
        """Box of a few points around the first non-finite value; None if there is none."""
        self.wait()
        return self._now(self._stepper.find_nonfinite)

    def wait(self) -> None:
        """Wait until all queued work is done, on the device as well.

        Raises:
            WorkerError: the device failed.
        """
        self.settle()
        with told_as_failure(self._name):
            while self._told:
                self._count(self._told.popleft())
            self._stepper.wait()

    def settle(self) -> None:
        """Wait until the thread is idle; a GPU may still compute the last block enqueued.

        Raises:
            WorkerError: the device failed.
        """
        while self._outstanding:
            self._finished.acquire()
            self._outstanding -= 1
        if self._failure is not None:
            failure, self._failure = self._failure, None
            with told_as_failure(self._name):
                raise failure

    def close(self) -> None:
        """End the thread and release the memory. A failure that was not raised before is
        dropped.
        """
        self._queue.put(None)
        self._thread.join()
        self._stepper.close()

    def _copy_edges(self) -> None:
        """Copy the edges along the first axis that is cut; edges along later axes contain halos not
        yet received.
        """
        cut = [axis for axis, widths in enumerate(self.slab.halo) if any(widths)]
        for number, side in enumerate(SIDES if cut else ()):
            if self.slab.halo[cut[0]][number]:
                self._edges[cut[0], side] = self._edge(cut[0], side)

    def _edge(self, axis: int, side: Side) -> EdgePlanes:
        # Fetched by this thread and not by the neighbour: the device may be far into its next block
        # when the neighbour needs the edge.
        planes = self._stepper.edge(axis, side)
        if not self._through_host:
            return planes
        if isinstance(planes, Leaving):
            planes.leave()
            return planes
        # Persistent memory is passed on as it is: the receiver may have registered it and copy from
        # there.
        return planes if isinstance(planes, LastingPlanes) else np.asarray(planes)

    def _put(self, job: Job) -> None:
        self._outstanding += 1
        self._queue.put(job)

    def _now(self, ask: Callable[[], T]) -> T:
        """Call the stepper from the caller's thread, while the worker's thread is idle."""
        with told_as_failure(self._name):
            return ask()

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                # After a failure the remaining jobs are skipped, but still counted, so that
                # `settle` returns.
                if self._failure is None:
                    job()
            except BaseException as failure:  # noqa: BLE001  handed to the caller by wait()
                self._failure = failure
            self._finished.release()


@contextlib.contextmanager
def told_as_failure(worker: str) -> Iterator[None]:
    """Turn exceptions of CuPy into a `WorkerError`; others are bugs and pass unchanged."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("cupy"):
            raise
        raise WorkerError(worker, " ".join(str(error).split()) or type(error).__name__) from error
