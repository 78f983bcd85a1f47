"""Writing: at which steps outputs and checkpoints want the state of a run, and how they get it."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tetris_sim.outputs.field_file import Unfinished
from tetris_sim.outputs.fields import FieldsOutput
from tetris_sim.outputs.output import Output, Snapshot, StateSnapshot
from tetris_sim.outputs.tables import StatisticsOutput
from tetris_sim.scheduler.comm.communicator import Communicator, on_root
from tetris_sim.simulation.background import AsyncWriter, CollectiveWriter
from tetris_sim.simulation.workers import Saving, WorkerGroup

log = logging.getLogger("tetris_sim")


class Writing:
    """The outputs and the checkpoints of a run. Rank 0 has them; the others hand it the state.

    What takes a fleet is called by all ranks alike. What reads all of the state does so from a
    copy, while the run goes on, if there is memory for one.

    Args:
        outputs: what is written down.
        saving: checkpoints, if there are to be any.
        ranks: who takes part.
        beside: who writes from a copy; without it the run waits.

    Attributes:
        writes: whether there are outputs.
        saves: whether there are checkpoints.
        has_saved: whether one was made.
    """

    def __init__(
        self,
        outputs: Sequence[Output],
        saving: Saving | None,
        ranks: Communicator,
        beside: AsyncWriter | None = None,
    ) -> None:
        self._outputs, self._saving, self._ranks = outputs, saving, ranks
        # Only rank 0 knows these, and all must take the same branches.
        self.writes, self.saves, divided = ranks.tell(
            (bool(outputs), saving is not None, saving is not None and saving.divided)
        )
        together = ranks.collect(beside is not None)
        self._apart = None
        if divided and ranks.size > 1:
            self._apart = CollectiveWriter(ranks, beside if all(together) else None, saving)
        # Whether every rank sees the files that rank 0 makes: what one finds out when it writes.
        self._reaches = self._apart is not None
        # Of several ranks, none has memory for all of the state.
        self._beside = beside if ranks.size == 1 else None
        self.has_saved = self._owed = False
        self._saved: int | None = None  # step of the checkpoint that was begun last

    def next_step(self, step: int, *, last: int) -> int:
        """The next step at which somebody wants the state, the last one at the latest."""
        if self._ranks.rank != 0:
            return 0  # less than what rank 0 says
        # The loop stops at the earliest of these, so no output is ever passed over.
        wanted = [output.next_step(step) for output in self._outputs]
        if self._saving is not None:
            wanted.append(self._saving.next_step(step))
        return min([last, *(due for due in wanted if due is not None)])

    def due_by_clock(self) -> bool:
        """Whether the wall clock asks for a checkpoint now."""
        return self._saving is not None and self._saving.due_by_clock()

    def due_to_save(self, step: int) -> bool:
        """Whether a checkpoint is wanted at this step."""
        due = self._saving is not None and self._saving.next_step(step - 1) == step
        return self.saves and self._ranks.tell(due)

    def start(self, fleet: WorkerGroup) -> None:
        """Let every output forget what comes after this step."""
        fleet.lead("output", partial(self._start, fleet))

    def write(self, fleet: WorkerGroup) -> None:
        """Hand the state to every output that wants it at this step."""
        step = fleet.step
        self._write(
            fleet, [it for it in self._outputs if step == 0 or it.next_step(step - 1) == step]
        )

    def end_phase(self, fleet: WorkerGroup) -> None:
        """Show the last state before cells come or go to what adds up what was moved."""
        self.wait(fleet)
        fleet.lead("output", lambda: self._tabulate(fleet, StatisticsOutput.end_phase))

    def begin_phase(self, fleet: WorkerGroup) -> None:
        """Write the first state after that into the same tables."""
        fleet.lead("output", lambda: self._tabulate(fleet, StatisticsOutput.write))

    def _tabulate(
        self, fleet: WorkerGroup, take: Callable[[StatisticsOutput, Snapshot], None]
    ) -> None:
        for output in self._outputs:
            if isinstance(output, StatisticsOutput):
                take(output, fleet.snapshot().seen())

    def write_last(self, fleet: WorkerGroup) -> None:
        """The same to every output that would want the last step, since none comes any more."""
        step, last = fleet.step, fleet.problem.steps
        self._write(
            fleet,
            [
                it
                for it in self._outputs
                if it.next_step(step - 1) != step and it.next_step(last - 1) == last
            ],
        )

    def save(self, fleet: WorkerGroup) -> None:
        """Make a checkpoint."""
        self.has_saved = True
        self._remember(fleet)
        if self._beside is not None and fleet.step == fleet.problem.steps:
            self._owed = True  # `finish` makes it, beside what is still under way
            return
        if self._apart is None:
            fleet.lead("checkpoint", partial(self._save, fleet))
            return
        # Fields may be under way: they are brought up to date when their turn has come.
        divided = [it for it in self._outputs if isinstance(it, FieldsOutput)]
        fleet.lead("checkpoint", lambda: self._flush_all(but=divided))
        with fleet.clock.phase("checkpoint"):
            self._apart.save(fleet, lambda: self._flush(divided))

    def replaced(self) -> None:
        """The state of this step is another one from now on, and the last checkpoint not of it."""
        self._saved = None
        if self._saving is not None:
            self._saving.forget()

    def under_way(self) -> bool:
        """Whether this rank is still writing its part of a file."""
        return self._apart is not None and self._apart.under_way

    def settle(self, fleet: WorkerGroup) -> None:
        """Make files of what all ranks have written, if there is any."""
        if self._apart is not None:
            with fleet.clock.phase("checkpoint"):
                self._apart.settle()

    def finish(self, fleet: WorkerGroup) -> None:
        """Save the last state, and wait until everything is on the disk."""
        self._remember(fleet)
        if self._apart is None:
            fleet.lead("checkpoint", partial(self._finish, fleet))
            return
        self.wait(fleet)
        fleet.lead("checkpoint", self._flush_all)
        with fleet.clock.phase("checkpoint"):
            self._apart.finish(fleet, early=_early(fleet))

    def wait(self, fleet: WorkerGroup) -> None:
        """Wait until all that was handed out or is owed is on the disk."""
        if self._owed:
            fleet.lead("checkpoint", partial(self._finish, fleet))
        if self._apart is not None:
            with fleet.clock.phase("output"):
                self._apart.wait()
        if self.writes or self.saves:
            fleet.lead("output", self._wait)

    def _start(self, fleet: WorkerGroup) -> None:
        self._wait()
        snapshot = fleet.snapshot().seen()
        for output in self._outputs:
            if output.start(fleet.step) and fleet.step > 0:
                output.write(snapshot)

    def _write(self, fleet: WorkerGroup, wanting: Sequence[Output]) -> None:
        """Let outputs of rank 0 write: what ranks divide from where it is, the others gathered."""
        apart = self._apart
        if apart is None:
            fleet.lead("output", lambda: self._hand_out(fleet.snapshot(), wanting))
            return

        with fleet.clock.phase("output"):
            divided = self._begin_fields(fleet, apart, wanting)
        owners = [output for output, _ in divided]
        gathered = [it for it in wanting if it not in owners]
        if self._ranks.tell(bool(gathered)):
            fleet.lead("output", lambda: self._hand_out(fleet.snapshot(), gathered))
        for output, begun in divided:
            with fleet.clock.phase("output"):
                apart.write(fleet, begun, None if output is None else output.finish)

    def _begin_fields(
        self, fleet: WorkerGroup, apart: CollectiveWriter, wanting: Sequence[Output]
    ) -> list[tuple[FieldsOutput | None, Unfinished]]:
        """Files that all ranks can write to together, and on rank 0 whose they are."""
        fields = [it for it in wanting if isinstance(it, FieldsOutput)]
        if not self._ranks.tell(bool(fields)):
            return []
        # Outputs that are under way in another thread are not to be asked from here.
        apart.make_way(fleet)
        dividing = [it for it in fields if self._reaches and it.divides(fleet.step)]
        time = fleet.problem.time(fleet.step)
        files = on_root(self._ranks, lambda: [it.begin(fleet.step, time) for it in dividing])

        seen = self._ranks.collect(all(begun.is_here() for begun in files))
        if not all(seen):
            self._reaches = False
            blind = seen.index(False)
            log.info("Rank %d does not see files of rank 0, which asks for fields.", blind)
            for output, begun in zip(dividing, files, strict=False):
                output.give_up(begun)
            return []
        return list(zip(dividing or (None,) * len(files), files, strict=True))

    def _hand_out(self, snapshot: StateSnapshot, wanting: Sequence[Output]) -> None:
        """Let outputs write, those that read little at once, and the others from a copy."""
        # Probes and statistics read little, so copying the state would cost more than waiting for
        # them.
        apart = [it for it in wanting if it.reads_all and self._beside is not None]
        seen = snapshot.seen()
        for output in wanting:
            if output not in apart:
                output.write(seen)
        if apart and self._beside is not None:
            seen = self._beside.copy(snapshot).seen()
            self._beside.submit(partial(_write_each, apart, seen))

    def _save(self, fleet: WorkerGroup) -> None:
        assert self._saving is not None
        self._saving.restart_clock()
        snapshot = fleet.snapshot()
        # A checkpoint must not know more than the outputs that it will be resumed beside.
        if self._beside is None:
            self._flush(self._outputs)
            self._saving.save(snapshot)
            return
        self._flush([it for it in self._outputs if not it.reads_all])
        copy = self._beside.copy(snapshot)
        self._beside.submit(partial(self._flush, [it for it in self._outputs if it.reads_all]))
        self._beside.submit(partial(self._saving.save, copy))
        self._saved = fleet.step

    def _finish(self, fleet: WorkerGroup) -> None:
        assert self._saving is not None
        if fleet.step == self._saved:
            self._bring_up_to_date()
        # The last state stays where it is: it is written while outputs are made of a copy.
        owed, self._owed = self._owed, False
        self._saving.finish(
            fleet.snapshot(), early=_early(fleet), owed=owed, ready=self._bring_up_to_date
        )
        self._bring_up_to_date()

    def _remember(self, fleet: WorkerGroup) -> None:
        """The checkpoint of this step says what `time.until` found at it, and what was moved."""
        if self._saving is None:
            return
        if fleet.change is not None and fleet.change[0] == fleet.step:
            self._saving.remember(*fleet.change)
        if fleet.moved or fleet.decided():
            self._saving.count(fleet.step, fleet.moved, fleet.decided())

    def _bring_up_to_date(self) -> None:
        """A checkpoint must not know more than the outputs that it will be resumed beside."""
        self._wait()
        self._flush(self._outputs)

    def _flush_all(self, but: Sequence[Output] = ()) -> None:
        """A checkpoint must not know more than the outputs that it will be resumed beside."""
        if self._saving is not None:
            self._saving.restart_clock()
        self._flush([it for it in self._outputs if it not in but])

    def _flush(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            output.flush()

    def _wait(self) -> None:
        if self._beside is not None:
            self._beside.wait()


def _early(fleet: WorkerGroup) -> bool:
    return fleet.step < fleet.problem.steps


def _write_each(outputs: Sequence[Output], snapshot: Snapshot) -> None:
    """Let outputs write side by side: one waits for the disk, another draws."""
    with ThreadPoolExecutor(len(outputs), thread_name_prefix="output") as pool:
        # Each with what the caller has set in its context, such as numpy.errstate.
        begun = [
            pool.submit(contextvars.copy_context().run, output.write, snapshot)
            for output in outputs
        ]
    for each in begun:
        each.result()
