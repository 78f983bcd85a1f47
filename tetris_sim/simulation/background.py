"""CollectiveWriter: what several ranks write together, each the points of its own slabs: from a
copy of them while the run goes on, or at once where nothing goes on or there is no memory for a
copy.

Ranks do not communicate while files are written: their threads write, and once all values lie on
the disk, which ranks find out where they agree on other things anyhow, rank 0 makes one file of
them. Until then there is no such file, and a checkpoint before it stays.
"""

from __future__ import annotations

import contextvars
import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypedDict

from tetris_sim.apps.time_functions import StopCondition
from tetris_sim.config.sections.schema import Until
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs.checkpoint.file import CheckpointPart, write_part
from tetris_sim.outputs.field_file import Unfinished
from tetris_sim.outputs.meter import Meter
from tetris_sim.outputs.output import Output, StateSnapshot
from tetris_sim.scheduler.comm.communicator import Alone, Communicator, everywhere, on_root
from tetris_sim.scheduler.workers.exchange import Read, box_of
from tetris_sim.scheduler.workers.rebalance import Recovery
from tetris_sim.simulation.control import Control
from tetris_sim.simulation.workers import Saving, WorkerGroup
from tetris_sim.support.stopping import Stopping
from tetris_sim.support.wording import PhaseClock, format_duration, format_time

# AsyncWriter: what is written down from a copy of the state while the computation goes on.


class _AbandonedError(Exception):
    """Ends work whose result is no longer needed."""


class AsyncWriter:
    """Does work in a thread of its own, in the order in which it is handed in.

    There is one copy of the state at a time: whoever asks for the next one waits until all work
    with this one is done. An error of the thread is raised, once, by the next call that waits;
    until then nothing more is done.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._abandoned = threading.Event()
        self._copy: StateSnapshot | None = None
        self._handed_in = self._dealt_with = 0

    @property
    def busy(self) -> bool:
        """Whether some work is neither done nor given up; asked by who hands it in."""
        return self._dealt_with < self._handed_in

    def copy(self, snapshot: StateSnapshot) -> StateSnapshot:
        """A copy that can be read from the thread; the last one, if that is of this step and in
        use. Devices that have memory for it keep it until the thread fetches it, so that nobody
        else waits for that.

        Raises:
            Exception: of the thread.
        """
        # Several files of one step share one copy.
        if self._copy is not None and self._copy.step == snapshot.step:
            return self._copy
        self.wait()
        whole = tuple((0, n) for n in snapshot.problem.grid.shape)
        # A copy in GPU memory is fetched by the thread, so the GPU computes meanwhile; otherwise
        # the state is copied to the host now.
        fetch = snapshot.keep()
        if fetch is None:
            read = self.reader(snapshot.field(), whole)
        else:
            readers: list[Callable[[Box], Field]] = []
            self.submit(lambda: readers.append(self.reader(fetch(), whole)))

            def read(box: Box) -> Field:
                return readers[0](box)

        self._copy = StateSnapshot(snapshot.problem, snapshot.step, read, moved=snapshot.moved)
        return self._copy

    def reader(self, state: Field, place: Box) -> Callable[[Box], Field]:
        """Reads boxes of a copy whose points are those of `place`, unless work is given up."""

        def read(box: Box) -> Field:
            if self._abandoned.is_set():
                raise _AbandonedError
            # Global indices to those of the copy.
            inside = (
                slice(low - start, high - start)
                for (low, high), (start, _) in zip(box, place, strict=True)
            )
            return state[(slice(None), *inside)]

        return read

    def submit(self, work: Callable[[], None]) -> None:
        """Do it after all that was handed in before; returns at once."""
        # Two counters, each written by one side only, need no lock.
        self._handed_in += 1
        self._work.put(work)
        if self._thread is None:
            # With what the caller has set in its context, such as numpy.errstate.
            run = contextvars.copy_context().run
            self._thread = threading.Thread(
                target=run, args=(self._run,), name="beside", daemon=True
            )
            self._thread.start()

    def settle(self) -> None:
        """Return when all work is done, or cannot be; an error is kept for `wait`."""
        # The thread ends with its work and is started again when there is more: an idle process
        # holds none, so it can be forked.
        thread, self._thread = self._thread, None
        if thread is not None:
            self._work.put(None)
            thread.join()
        self._copy = None

    def wait(self) -> None:
        """Return when all work is done.

        Raises:
            Exception: of the thread.
        """
        self.settle()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def abandon(self) -> None:
        """Give up what is being written; what was written before stays."""
        self._abandoned.set()
        self.settle()
        self._error = None

    def _run(self) -> None:
        # After an error later work is skipped but counted, and the error is raised where the run
        # waits.
        while (work := self._work.get()) is not None:
            try:
                if self._error is None and not self._abandoned.is_set():
                    work()
            except _AbandonedError:
                pass
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                self._error = error
            self._dealt_with += 1


# Attached: what a run takes along, besides its problem and its plan.

# Opens a simulation like one, from its state on, with other values by key, and perhaps its own
# directory.
Vary = Callable[[Any, Any, Any], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Attached:
    """Outputs, checkpoints and progress of a run, beside its problem and its plan.

    Attributes:
        outputs: all that is written down; rank 0's.
        saving: the checkpoints, if there are to be any; rank 0's.
        progress: the display of how far it is, if there is one; rank 0's.
        stopping: the reasons to stop early.
        clock: the sum of time of each phase.
        ranks: all who take part, each with the same plan; one alone if not given.
        recovery: the state to go on from if a device fails; without it the run ends then.
        until: when it ends before its last step.
        condition: that of `until`, if it has one.
        change: the largest change since the step before it begins, if it was measured [1/s].
        moved: what was moved before it begins; see `WorkerGroup.moved`.
        meter: knows the heat of a state and the powers of a step, where that is asked for; rank
            0's.
        beside: who writes from a copy of the state while the run goes on, if there is memory for
            one; of several ranks, of its own part.
        vary: what `Simulation.with_boundary` and `with_changes` call.
        control: what is looked at and decided while it goes on.
    """

    outputs: Sequence[Output] = ()
    saving: Saving | None = None
    progress: Progress | None = None
    stopping: Stopping = field(default_factory=Stopping)
    clock: PhaseClock = field(default_factory=PhaseClock)
    ranks: Communicator = field(default_factory=Alone)
    recovery: Recovery | None = None
    until: Until | None = None
    condition: StopCondition | None = None
    change: float | None = None
    moved: Mapping[str, float] = field(default_factory=dict)
    meter: Meter | None = None
    beside: AsyncWriter | None = None
    vary: Vary | None = None
    control: Control | None = None


class Attachments(TypedDict, total=False):
    """`Attached` as keywords, each of which may be left out or None."""

    outputs: Sequence[Output]
    saving: Saving | None
    progress: Progress | None
    stopping: Stopping | None
    clock: PhaseClock | None
    ranks: Communicator | None
    recovery: Recovery | None
    until: Until | None
    condition: StopCondition | None
    change: float | None
    moved: Mapping[str, float] | None
    meter: Meter | None
    beside: AsyncWriter | None
    vary: Vary | None
    control: Control | None


log = logging.getLogger("tetris_sim")

Slab = tuple[int, Box, Read]  # its number, its points, how to read them


class Job(Protocol):
    """A file that all ranks write together."""

    @property
    def step(self) -> int:
        """Of the state that goes into it."""

    def write(self, slabs: Sequence[Slab]) -> None:
        """Write the points of this rank's slabs; may raise, which ends all ranks."""

    def said(self) -> Any:
        """Return the message of this rank to `publish` about what it wrote."""

    def publish(self, said: list[Any]) -> None:
        """On rank 0, when all have written: make one file of it, from what every rank says."""


@dataclass
class CheckpointJob:
    """A checkpoint in parts. One that cannot be written costs nothing yet but a warning.

    Attributes:
        path: where it is to lie.
        problem: whose state it holds.
        step: of the state.
        saving: the checkpoints; rank 0's.
        before: called before it is made; a checkpoint must not know more than files beside it.
        written: parts of this rank, by the number of the slab.
        failure: why it could not be written.
    """

    path: Path
    problem: Problem
    step: int
    saving: Saving | None
    before: Callable[[], None]
    written: dict[int, CheckpointPart] = field(default_factory=dict)
    failure: str | None = None

    def write(self, slabs: Sequence[Slab]) -> None:
        """Write the parts of this rank."""
        try:
            for number, box, read in slabs:
                self.written[number] = write_part(
                    number, box, read, path=self.path, problem=self.problem, step=self.step
                )
        except UnsupportedError as error:
            self.failure = str(error)

    def said(self) -> tuple[str | None, dict[int, CheckpointPart]]:
        """Why this rank could not write, if so, and its parts."""
        return self.failure, self.written

    def publish(self, said: list[tuple[str | None, dict[int, CheckpointPart]]]) -> None:
        """Make a checkpoint of the parts."""
        self.make(said)
        _warn(self.failure)

    def make(self, said: list[tuple[str | None, dict[int, CheckpointPart]]]) -> None:
        """The same, without a warning."""
        assert self.saving is not None
        # A single part that is missing makes the checkpoint useless: no file is made of the others.
        failures = [failure for failure, _ in said if failure is not None]
        written = {number: part for _, parts in said for number, part in parts.items()}
        parts = failures[0] if failures else [written[number] for number in sorted(written)]
        # Files of the outputs first: a checkpoint must not know of records that are not on the
        # disk.
        self.before()
        try:
            self.saving.publish(self.problem, self.step, parts)
        except UnsupportedError as error:
            self.failure = str(error)


@dataclass(frozen=True)
class FieldsJob:
    """The values of a file of fields.

    Attributes:
        problem: whose state they are seen in.
        begun: the file.
        finish: on rank 0, what puts it in place.
    """

    problem: Problem
    begun: Unfinished
    finish: Callable[[Unfinished], None] | None

    @property
    def step(self) -> int:
        """Of the state that goes into it."""
        return self.begun.step

    def write(self, slabs: Sequence[Slab]) -> None:
        """Write the values of this rank."""
        for _, box, read in slabs:
            self.begun.write(box, self._seen(read))

    def said(self) -> None:
        """Nothing: who could not write has raised an error."""

    def publish(self, said: list[None]) -> None:
        """Put the file in place."""
        assert self.finish is not None
        self.finish(self.begun)

    def _seen(self, read: Read) -> Callable[[Box], Field]:
        view = self.problem.view
        return read if view is None else lambda box: view.look(box, read(box))


class CollectiveWriter:
    """The files of one step at a time; called by all ranks alike, but for `under_way`.

    Args:
        ranks: who takes part.
        beside: the thread of this rank; None on all ranks if one has no memory for a copy.
        saving: the checkpoints; rank 0's.
    """

    def __init__(
        self, ranks: Communicator, beside: AsyncWriter | None, saving: Saving | None
    ) -> None:
        self._ranks, self._beside, self._saving = ranks, beside, saving
        self._jobs: list[Job] = []
        self._copies: list[Slab] = []  # of the step of these jobs

    @property
    def under_way(self) -> bool:
        """Whether this rank has not yet written all of its own."""
        return bool(self._jobs) and self._beside is not None and self._beside.busy

    def save(self, fleet: WorkerGroup, before: Callable[[], None]) -> None:
        """Make a checkpoint, from copies while the run goes on if there is memory for them.

        One that cannot be written costs nothing yet: the run goes on, with a warning.

        Args:
            fleet: the state.
            before: called by rank 0, perhaps in another thread, before it is made.
        """
        self.make_way(fleet)
        job, failure = self._begin(fleet, before)
        if job is None:
            _warn(failure)
        else:
            self._do(fleet, job)

    def write(
        self, fleet: WorkerGroup, begun: Unfinished, finish: Callable[[Unfinished], None] | None
    ) -> None:
        """Write the values of a file of fields, from copies likewise; the way has been made.

        Args:
            fleet: the state.
            begun: the file, which all ranks can write to.
            finish: rank 0's, see `FieldsJob`.
        """
        self._do(fleet, FieldsJob(fleet.problem, begun, finish))

    def finish(self, fleet: WorkerGroup, *, early: bool) -> None:
        """Save the last state unless that is done or not wanted, and wait for the disk.

        Raises:
            UnsupportedError: it could not be written.
        """
        self.wait()
        saving, step = self._saving, fleet.step
        # Only rank 0 knows the settings, so it tells the others.
        wanted = saving is not None and saving.wants_last(step, early=early)
        if not self._ranks.tell(wanted):
            if saving is not None:
                saving.tidy()
            return

        job, failure = self._begin(fleet, _nothing)
        if job is not None:
            job.write(_slabs(fleet, self._ranks))
            said = self._ranks.collect(job.said())
            if saving is not None:
                job.make(said)
            failure = job.failure
        on_root(self._ranks, lambda: _refuse(failure))

    def make_way(self, fleet: WorkerGroup) -> None:
        """Wait until files of earlier steps are whole: there is one copy at a time, and each file
        before later ones.

        Raises:
            Exception: of the thread of a rank.
        """
        if not self._jobs or self._jobs[0].step != fleet.step:
            self.wait()

    def settle(self) -> None:
        """Make files of what all have written; rank 0's thread may still be at it.

        Raises:
            Exception: of the thread of a rank.
        """
        # The list is taken first: if a rank fails here, no file is published twice.
        jobs, self._jobs, self._copies = self._jobs, [], []
        if not jobs or self._beside is None:
            return
        everywhere(self._ranks, self._beside.wait)
        for job in jobs:
            said = self._ranks.collect(job.said())
            if self._ranks.rank == 0:
                self._beside.submit(partial(job.publish, said))

    def wait(self) -> None:
        """Wait until all that was begun is whole.

        Raises:
            Exception: of the thread of a rank.
        """
        self.settle()
        if self._beside is not None:
            everywhere(self._ranks, self._beside.wait)

    def _do(self, fleet: WorkerGroup, job: Job) -> None:
        # Without memory for a copy the run waits until all ranks have written.
        beside = self._beside
        if beside is None:
            everywhere(self._ranks, lambda: job.write(_slabs(fleet, self._ranks)))
            said = self._ranks.collect(job.said())
            on_root(self._ranks, lambda: job.publish(said))
            return

        if not self._jobs:
            self._copies = everywhere(self._ranks, lambda: self._copy(fleet, beside))
        self._jobs.append(job)
        copies = self._copies
        beside.submit(lambda: job.write(copies))

    def _begin(
        self, fleet: WorkerGroup, before: Callable[[], None]
    ) -> tuple[CheckpointJob | None, str | None]:
        """A checkpoint whose parts may be written, or why there can be none."""
        path, failure = None, None
        if self._saving is not None:
            try:
                path = self._saving.begin(fleet.problem, fleet.step)
            except UnsupportedError as error:
                failure = str(error)
        path = self._ranks.tell(path)
        if path is None:
            return None, failure
        return CheckpointJob(path, fleet.problem, fleet.step, self._saving, before), None

    def _copy(self, fleet: WorkerGroup, beside: AsyncWriter) -> list[Slab]:
        return [
            (number, box, beside.reader(read(box), box))
            for number, box, read in _slabs(fleet, self._ranks)
        ]


def _slabs(fleet: WorkerGroup, ranks: Communicator) -> list[Slab]:
    """Each slab of this rank."""
    # Slabs are numbered over all ranks, in the order of the plan.
    first = sum(share.rank < ranks.rank for share in fleet.plan.shares)
    return [
        (number, box_of(worker), worker.stepper.interior)
        for number, worker in enumerate(fleet.workers, start=first)
    ]


def _nothing() -> None:
    """All files are whole."""


def _refuse(failure: str | None) -> None:
    if failure is not None:
        raise UnsupportedError(failure)


def _warn(failure: str | None) -> None:
    if failure is not None:
        log.warning("%s The run goes on without this checkpoint.", failure)


# Progress: a bar on a terminal, plain log lines elsewhere, nothing if it is not wanted.

_LINE_SECONDS = 10.0  # between two log lines
_RECENT_SECONDS = 5.0  # the rate and the time left come from the last seconds, not from the warm-up


class Progress:
    """Shows percent, simulated time, rate and time left.

    Args:
        problem: what is advanced.
        start: the step the run begins at; a restart shows the bar from there.
        bar: whether to draw a bar; otherwise log lines are written every ten seconds.
    """

    def __init__(self, problem: Problem, start: int, *, bar: bool) -> None:
        self._problem = problem
        self._recent: deque[tuple[float, int]] = deque()
        self._last_line = time.perf_counter()
        self._bar: Any = None
        if bar:
            # In a notebook its widget, where that is installed.
            from tqdm.auto import tqdm

            self._bar = tqdm(
                total=problem.steps,
                initial=start,
                file=sys.stderr,
                unit=" steps",
                dynamic_ncols=True,
                bar_format="{percentage:3.0f} %|{bar}| {desc}",
                mininterval=0.2,
            )

    def update(self, step: int) -> None:
        """Show that `step` was reached."""
        now = time.perf_counter()
        # A window over the last seconds: the rate at the beginning holds compilation.
        self._recent.append((now, step))
        while len(self._recent) > 2 and now - self._recent[1][0] > _RECENT_SECONDS:
            self._recent.popleft()
        if self._bar is not None:
            self._bar.set_description_str(self.describe(), refresh=False)
            self._bar.update(step - self._bar.n)
        elif now - self._last_line > _LINE_SECONDS:
            self._last_line = now
            log.info("%3.0f %%, %s", 100 * step / self._problem.steps, self.describe())

    def describe(self) -> str:
        """Simulated time, rate and time left as one line."""
        (begin, first), (now, step) = self._recent[0], self._recent[-1]
        problem = self._problem
        text = f"step {step}/{problem.steps}, t = {format_time(problem.time(step))}"
        if now > begin and step > first:
            steps_per_second = (step - first) / (now - begin)
            rate = steps_per_second * problem.grid.n_points * problem.n_fields / 1e9
            left = (problem.steps - step) / steps_per_second
            text += f", {rate:.3g} GStencil/s, {format_duration(left)} left"
        return text

    def close(self) -> None:
        """Leave the terminal in order."""
        if self._bar is not None:
            self._bar.close()
