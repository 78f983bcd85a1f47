"""Attached: what a run takes along, besides its problem and its plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypedDict

from tetris_sim.beside import Beside
from tetris_sim.config.sections.schema import Until
from tetris_sim.outputs.output import Output
from tetris_sim.scheduler.comm.communicator import Alone, Communicator
from tetris_sim.scheduler.run.recovery import Recovery
from tetris_sim.snapshot import Saving
from tetris_sim.support.progress import PhaseClock, Progress
from tetris_sim.support.stopping import Stopping

# Opens a simulation like one, from its state on, with other faces, and perhaps its own directory.
Vary = Callable[[Any, Any, Any], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Attached:
    """What a run takes along, besides its problem and its plan.

    Attributes:
        outputs: all that is written down; rank 0's.
        saving: the checkpoints, if there are to be any; rank 0's.
        progress: the display of how far it is, if there is one; rank 0's.
        stopping: the reasons to stop early.
        clock: the sum of time of each phase.
        ranks: all who take part, each with the same plan; one alone if not given.
        recovery: the state to go on from if a device fails; without it the run ends then.
        until: how little change ends it, if that is to end it.
        beside: who writes from a copy of the state while the run goes on, if there is memory for
            one; of several ranks, of its own part.
        vary: what `Simulation.with_boundary` calls.
    """

    outputs: Sequence[Output] = ()
    saving: Saving | None = None
    progress: Progress | None = None
    stopping: Stopping = field(default_factory=Stopping)
    clock: PhaseClock = field(default_factory=PhaseClock)
    ranks: Communicator = field(default_factory=Alone)
    recovery: Recovery | None = None
    until: Until | None = None
    beside: Beside | None = None
    vary: Vary | None = None


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
    beside: Beside | None
    vary: Vary | None
