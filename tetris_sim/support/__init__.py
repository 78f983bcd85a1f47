"""Helpers that know nothing of simulations: the cores of this process, files, HDF5, the cache
folder, signals, the progress clock and phrases for messages.
"""

from __future__ import annotations

import os
import time


def usable_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use; all of the machine where the
    system keeps no affinity masks, as macOS.
    """
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def keep_to(cores: tuple[int, ...]) -> None:
    """Let this process use these cores only, where the system knows how."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def let_others_run() -> None:
    """Give the core of this thread to another one that waits for it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)
