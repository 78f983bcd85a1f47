"""Checkpoints: the whole state of a run in a file that proves itself, always a good one kept."""

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
from tetris_sim.outputs.checkpoint.state import RunState, problem_digest

__all__ = [
    "Checkpoint",
    "RunState",
    "find_checkpoint",
    "forget_later",
    "good_checkpoints",
    "open_checkpoint",
    "problem_digest",
    "refuse_changed_problem",
    "write_checkpoint",
    "write_crash_dump",
]
