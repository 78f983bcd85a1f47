"""Apart: a checkpoint of several ranks, each of which writes its own part from a copy of it while
the run goes on.

Nobody talks to others while files are written: threads of ranks write parts, and once all of them
lie on the disk, which ranks find out where they agree on other things anyhow, rank 0 writes the
file that shows them as one. Until then there is no such checkpoint, and the one before stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from tetris_sim.beside import Beside
from tetris_sim.checkpoint.parts import Part, write_part
from tetris_sim.errors import UnsupportedError
from tetris_sim.fleet import Fleet
from tetris_sim.method import Box
from tetris_sim.problem import Field, Problem
from tetris_sim.scheduler.comm.agreement import everywhere
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.run.exchange import box_of
from tetris_sim.snapshot import Saving


class Apart:
    """The parts of one checkpoint at a time; called by all ranks alike, but for `under_way`.

    Args:
        ranks: who takes part.
        beside: the thread of this rank.
        saving: the checkpoints; rank 0's.

    Attributes:
        pending: whether there are parts of which no checkpoint was made yet.
    """

    def __init__(self, ranks: Communicator, beside: Beside, saving: Saving | None) -> None:
        self._ranks, self._beside, self._saving = ranks, beside, saving
        self._written: dict[int, Part] = {}
        self._failure: str | None = None
        self._done = threading.Event()
        self.pending = False

    @property
    def under_way(self) -> bool:
        """Whether this rank has not yet written its own parts."""
        return self.pending and not self._done.is_set()

    def begin(self, fleet: Fleet) -> None:
        """Copy the own part of the state, and let it be written."""
        self.settle(fleet.problem)
        self.wait()  # so that there is one copy at a time, and a checkpoint before this one
        saving, problem, step = self._saving, fleet.problem, fleet.step
        path = self._ranks.tell(None if saving is None else saving.begin(problem, step))
        if path is None:
            return

        first = sum(share.rank < self._ranks.rank for share in fleet.plan.shares)
        own = [(box_of(worker), worker.stepper.interior) for worker in fleet.workers]
        copies = everywhere(self._ranks, lambda: [(box, read(box).copy()) for box, read in own])
        readers = [
            (number, box, self._beside.reader(state, box))
            for number, (box, state) in enumerate(copies, start=first)
        ]
        self.pending, self._written, self._failure = True, {}, None
        self._done.clear()
        self._beside.submit(lambda: self._write(path, problem, step, readers))

    def settle(self, problem: Problem) -> None:
        """Make a checkpoint of the parts, when all are written; rank 0's thread may still be at it.

        Raises:
            Exception: of the thread of a rank.
        """
        if not self.pending:
            return
        everywhere(self._ranks, self._beside.wait)
        everything = self._ranks.collect((self._failure, self._written))
        self.pending = False
        if self._saving is None:
            return
        failures = [failure for failure, _ in everything if failure is not None]
        written = {number: part for _, parts in everything for number, part in parts.items()}
        found = failures[0] if failures else [written[number] for number in sorted(written)]
        publish = self._saving.publish
        self._beside.submit(lambda: publish(problem, found))

    def wait(self) -> None:
        """Wait until the checkpoint is whole, if all parts were settled.

        Raises:
            Exception: of the thread of a rank.
        """
        everywhere(self._ranks, self._beside.wait)

    def _write(
        self,
        path: Path,
        problem: Problem,
        step: int,
        readers: list[tuple[int, Box, Callable[[Box], Field]]],
    ) -> None:
        try:
            for number, box, read in readers:
                part = write_part(number, box, read, path=path, problem=problem, step=step)
                self._written[number] = part
        except UnsupportedError as error:
            self._failure = str(error)
        finally:
            self._done.set()
