"""Apart: a checkpoint of several ranks, each of which writes its own part: from a copy of it while
the run goes on, or at once where nothing goes on or there is no memory for a copy.

Nobody talks to others while files are written: threads of ranks write parts, and once all of them
lie on the disk, which ranks find out where they agree on other things anyhow, rank 0 writes the
file that shows them as one. Until then there is no such checkpoint, and the one before stays.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tetris_sim.beside import Beside
from tetris_sim.checkpoint.parts import Part, write_part
from tetris_sim.errors import UnsupportedError
from tetris_sim.fleet import Fleet
from tetris_sim.method import Box
from tetris_sim.problem import Problem
from tetris_sim.scheduler.comm.agreement import everywhere, on_root
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.run.exchange import Read, box_of
from tetris_sim.snapshot import Saving

log = logging.getLogger("tetris_sim")


@dataclass
class _Begun:
    """A checkpoint whose parts are being written.

    Attributes:
        path: where it is to lie.
        problem: whose state it holds.
        step: of the state.
        written: parts of this rank, by the number of the slab.
        failure: why one could not be written.
        done: set when this rank has nothing more to write.
    """

    path: Path
    problem: Problem
    step: int
    written: dict[int, Part] = field(default_factory=dict)
    failure: str | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def write(self, slabs: Sequence[tuple[int, Box, Read]]) -> None:
        """Write the parts of this rank."""
        try:
            for number, box, read in slabs:
                self.written[number] = write_part(
                    number, box, read, path=self.path, problem=self.problem, step=self.step
                )
        except UnsupportedError as error:
            self.failure = str(error)
        finally:
            self.done.set()


class Apart:
    """The parts of one checkpoint at a time; called by all ranks alike, but for `under_way`.

    Args:
        ranks: who takes part.
        beside: the thread of this rank; None on all ranks if one has no memory for a copy.
        saving: the checkpoints; rank 0's.
    """

    def __init__(self, ranks: Communicator, beside: Beside | None, saving: Saving | None) -> None:
        self._ranks, self._beside, self._saving = ranks, beside, saving
        self._begun: _Begun | None = None

    @property
    def under_way(self) -> bool:
        """Whether this rank has not yet written its own parts."""
        return self._begun is not None and not self._begun.done.is_set()

    def save(self, fleet: Fleet) -> None:
        """Make a checkpoint, from copies while the run goes on if there is memory for them.

        One that cannot be written costs nothing yet: the run goes on, with a warning.
        """
        self.wait()  # so that there is one copy at a time, and a checkpoint before this one
        begun, failure = self._begin(fleet)
        if begun is None:
            _warn(failure)
            return
        if self._beside is None:
            begun.write(_slabs(fleet, self._ranks))
            _warn(self._publish(begun, self._collect(begun)))
            return

        slabs = everywhere(self._ranks, lambda: self._copies(fleet))
        self._begun = begun
        self._beside.submit(lambda: begun.write(slabs))

    def finish(self, fleet: Fleet, *, early: bool) -> None:
        """Save the last state unless that is done or not wanted, and wait for the disk.

        Raises:
            UnsupportedError: it could not be written.
        """
        self.wait()
        saving, step = self._saving, fleet.step
        wanted = saving is not None and saving.wants_last(step, early=early)
        if not self._ranks.tell(wanted):
            if saving is not None:
                saving.tidy()
            return

        begun, failure = self._begin(fleet)
        if begun is not None:
            begun.write(_slabs(fleet, self._ranks))
            failure = self._publish(begun, self._collect(begun))
        on_root(self._ranks, lambda: _refuse(failure))

    def settle(self) -> None:
        """Make a checkpoint of the parts, when all are written; rank 0's thread may still be at it.

        Raises:
            Exception: of the thread of a rank.
        """
        begun, self._begun = self._begun, None
        if begun is None or self._beside is None:
            return
        everywhere(self._ranks, self._beside.wait)
        parts = self._collect(begun)
        if self._saving is not None:
            self._beside.submit(lambda: _warn(self._publish(begun, parts)))

    def wait(self) -> None:
        """Wait until the last checkpoint that was begun is whole.

        Raises:
            Exception: of the thread of a rank.
        """
        self.settle()
        if self._beside is not None:
            everywhere(self._ranks, self._beside.wait)

    def _begin(self, fleet: Fleet) -> tuple[_Begun | None, str | None]:
        """Where parts are to lie, or why there can be none."""
        path, failure = None, None
        if self._saving is not None:
            try:
                path = self._saving.begin(fleet.problem, fleet.step)
            except UnsupportedError as error:
                failure = str(error)
        path = self._ranks.tell(path)
        return (None if path is None else _Begun(path, fleet.problem, fleet.step)), failure

    def _copies(self, fleet: Fleet) -> list[tuple[int, Box, Read]]:
        assert self._beside is not None
        return [
            (number, box, self._beside.reader(read(box).copy(), box))
            for number, box, read in _slabs(fleet, self._ranks)
        ]

    def _collect(self, begun: _Begun) -> list[Part] | str:
        """The parts of all ranks, or why one of them could not be written."""
        everything = self._ranks.collect((begun.failure, begun.written))
        failures = [failure for failure, _ in everything if failure is not None]
        written = {number: part for _, parts in everything for number, part in parts.items()}
        return failures[0] if failures else [written[number] for number in sorted(written)]

    def _publish(self, begun: _Begun, parts: list[Part] | str) -> str | None:
        """Why rank 0 could not make a checkpoint of the parts, if it could not."""
        if self._saving is None:
            return None
        try:
            self._saving.publish(begun.problem, begun.step, parts)
        except UnsupportedError as error:
            return str(error)
        return None


def _slabs(fleet: Fleet, ranks: Communicator) -> list[tuple[int, Box, Read]]:
    """(number, box, how to read it) of each slab of this rank."""
    first = sum(share.rank < ranks.rank for share in fleet.plan.shares)
    return [
        (number, box_of(worker), worker.stepper.interior)
        for number, worker in enumerate(fleet.workers, start=first)
    ]


def _refuse(failure: str | None) -> None:
    if failure is not None:
        raise UnsupportedError(failure)


def _warn(failure: str | None) -> None:
    if failure is not None:
        log.warning("%s The run goes on without this checkpoint.", failure)
