"""QueuedStepper: a stepper with a thread of its own, so that several of them work at the same time.

What returns nothing is queued and returns at once. When a block is done, the thread copies the
edges that neighbours will ask for, while slower workers still compute; halos are taken in at the
same time by all. It also measures: how long the stepper computed, which is what a new division is
made from.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import UnsupportedError
from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.method import (
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

_RECENT = 8  # blocks of which the speed is known; a median of fewer would follow every hiccup

T = TypeVar("T")
Job = Callable[[], None]


class WorkerError(UnsupportedError):
    """A device failed in the middle of a run.

    Attributes:
        worker: name of the worker.
    """

    def __init__(self, worker: str, why: str) -> None:
        super().__init__(f"{worker} failed: {why}")
        self.worker = worker


@runtime_checkable
class Leaving(Protocol):
    """Planes that can go to the host while their device computes."""

    def leave(self) -> None:
        """Start to copy them."""


@dataclass(frozen=True)
class Told:
    """A block of which a stepper was told ahead.

    Attributes:
        steps: of it.
        moments: when its inside began and ended, and its rims.
    """

    steps: int
    moments: tuple[Event, Event, Event, Event]

    def seconds(self) -> float:
        """How long it was computed; waits for its end [s]."""
        begin, inside, rims, end = self.moments
        end.wait()
        return inside.since(begin) + end.since(rims)


class QueuedStepper:
    """A stepper behind a queue; see the Protocol `Stepper` for what the calls mean.

    What one call hands over (`set_halo`) must be left alone until `wait` returns.

    Attributes:
        slab: what the stepper owns.
        busy_s: time that it computed [s].
        recent: (steps, seconds) of the last blocks.
        copies_in_blocks: whether these contain the copies of halos and edges.
    """

    def __init__(self, name: str, stepper: Stepper, *, through_host: bool = False) -> None:
        """Start the thread.

        Args:
            name: what the worker is called.
            stepper: the one that is driven.
            through_host: whether neighbours want edges in host memory; else they stay where they
                are.
        """
        self.slab = stepper.slab
        self.copies_in_blocks = isinstance(stepper, CopiesInBlocks) and stepper.copies_in_blocks
        self._through_host = through_host
        self.busy_s = 0.0
        self.recent: collections.deque[tuple[int, float]] = collections.deque(maxlen=_RECENT)
        self._name, self._stepper = name, stepper
        self._edges: dict[tuple[int, Side], EdgePlanes] = {}
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._begun: tuple[Event, Event] | None = None  # around the inside of a block told ahead
        self._told: collections.deque[Told] = collections.deque()  # such blocks
        self._finished = threading.Semaphore(0)
        self._outstanding = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name=f"worker-{name}", daemon=True)
        self._thread.start()

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take the owned points."""
        self.wait()
        self._edges.clear()
        self._now(lambda: self._stepper.load(initial, step))

    def advance_inner(self, steps: int, axis: int) -> None:
        """Let the thread tell of the inside of a block, if the stepper can be told ahead; returns
        at once.

        Others wait for halos in their thread, which keeps nobody else waiting: two parts would take
        them longer.
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
        """Let the thread advance; returns at once."""

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
            self._copy_edges()

        self._put(job)

    def _tell(self, stepper: Timed, steps: int) -> None:
        """Tell the stepper of a block or the rest of one, and wait for the block before."""
        begin, begun = stepper.mark(), self._begun
        self._begun = None
        inside = (begin, begin) if begun is None else begun
        stepper.advance(steps)
        self._copy_edges()
        self._told.append(Told(steps, (*inside, begin, stepper.mark())))
        while len(self._told) > 1:
            self._count(self._told.popleft())

    def _count(self, block: Told) -> None:
        """Wait for a block and see how long it took."""
        seconds = block.seconds()
        self.busy_s += seconds
        self.recent.append((block.steps, seconds))

    def substep(self, time: float, length: float) -> None:
        """Let the thread make one; returns at once."""

        def job() -> None:
            self._edges.clear()
            begin = perf_counter()
            self._substepper.substep(time, length)
            self._stepper.wait()
            self.busy_s += perf_counter() - begin

        self._put(job)

    def undo(self) -> None:
        """Take the last substep back."""
        self.wait()
        self._now(self._substepper.undo)

    def peaks(self) -> npt.NDArray[np.float64]:
        """Largest magnitudes of fields and errors."""
        self.wait()
        return self._now(self._substepper.peaks)

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
        """Let the thread take the planes beyond `side`; returns at once."""

        def job() -> None:
            self._edges.clear()  # edges along later axes hold some of the planes that come in now
            self._stepper.set_halo(axis, side, planes)

        self._put(job)

    def interior(self, box: Box | None = None) -> Field:
        """A copy of the owned points, or of those inside `box`."""
        self.wait()
        return self._now(lambda: self._stepper.interior(box))

    def kept(self) -> Fetch | None:
        """Let the device keep the owned points, if it can; a failure is told when they are
        fetched.
        """
        stepper = self._stepper
        if not isinstance(stepper, Snapshots):
            return None
        self.wait()
        fetch = self._now(stepper.kept)
        return None if fetch is None else lambda: self._now(fetch)

    def find_nonfinite(self) -> Box | None:
        """The box of a few points around the first value that is not finite."""
        self.wait()
        return self._now(self._stepper.find_nonfinite)

    def wait(self) -> None:
        """Return when everything that was queued is done.

        Raises:
            WorkerError: the device failed.
        """
        self.settle()
        with told_as_failure(self._name):
            while self._told:
                self._count(self._told.popleft())
            self._stepper.wait()

    def settle(self) -> None:
        """Return when the thread has nothing to do; a device may still be in the last block that it
        was told of.

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
        """End the thread and give the memory back; a failure has been told by then."""
        self._queue.put(None)
        self._thread.join()
        self._stepper.close()

    def _copy_edges(self) -> None:
        """Along the first axis that is cut: edges along later ones hold halos still to come."""
        cut = [axis for axis, widths in enumerate(self.slab.halo) if any(widths)]
        for number, side in enumerate(SIDES if cut else ()):
            if self.slab.halo[cut[0]][number]:
                self._edges[cut[0], side] = self._edge(cut[0], side)

    def _edge(self, axis: int, side: Side) -> EdgePlanes:
        # Fetched here and not by the neighbour: the device may be far into its next block when that
        # one asks.
        planes = self._stepper.edge(axis, side)
        if not self._through_host:
            return planes
        if isinstance(planes, Leaving):
            planes.leave()
            return planes
        # Memory that lasts: who takes them may know it, and copy them from there.
        return planes if isinstance(planes, LastingPlanes) else np.asarray(planes)

    def _put(self, job: Job) -> None:
        self._outstanding += 1
        self._queue.put(job)

    def _now(self, ask: Callable[[], T]) -> T:
        """The answer, in the caller's own thread, while the other one has nothing to do."""
        with told_as_failure(self._name):
            return ask()

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                if self._failure is None:
                    job()
            except BaseException as failure:  # noqa: BLE001  handed to the caller by wait()
                self._failure = failure
            self._finished.release()


@contextlib.contextmanager
def told_as_failure(worker: str) -> Iterator[None]:
    """What a device raises inside becomes a `WorkerError`; all else is a mistake of ours."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("cupy"):
            raise
        raise WorkerError(worker, " ".join(str(error).split()) or type(error).__name__) from error
