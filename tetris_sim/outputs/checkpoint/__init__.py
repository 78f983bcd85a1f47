"""Checkpoints: the whole state of a run in sealed files, of which a good one always exists.

Begin with `directory` (which checkpoints a run keeps, and when it writes them). `file` is the
format of one checkpoint, `state` the state of the run besides the field, `seal` the proof that no
byte has changed; docs/decisions/0006-checkpoint-files.md explains the choices.
"""

from __future__ import annotations

from tetris_sim.outputs.checkpoint.directory import (
    find_checkpoint,
    forget_later,
    good_checkpoints,
    refuse_changed_problem,
    write_checkpoint,
    write_crash_dump,
)
from tetris_sim.outputs.checkpoint.file import Checkpoint, open_checkpoint
from tetris_sim.outputs.checkpoint.state import RunState, problem_digest, resumed

__all__ = [
    "Checkpoint",
    "RunState",
    "find_checkpoint",
    "forget_later",
    "good_checkpoints",
    "open_checkpoint",
    "problem_digest",
    "refuse_changed_problem",
    "resumed",
    "write_checkpoint",
    "write_crash_dump",
]
