"""Links: how long does a message between ranks take? Measured, since it decides how often they
should meet.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.division import Link

_SHORT, _LONG = 8, 1 << 20  # bytes
_TIMES = 9
_TAG = 20


def measure_link(ranks: Communicator) -> Link:
    """Let all ranks send to the next one at the same time, as in an exchange; the slowest counts.

    Args:
        ranks: at least two; all of them call this.
    """
    short, long = _time_messages(ranks, _SHORT), _time_messages(ranks, _LONG)
    short, long = ranks.largest((short, long))
    return Link(short, max(long - short, 0.0) / (_LONG - _SHORT))


def _time_messages(ranks: Communicator, n_bytes: int) -> float:
    out, back = np.zeros(n_bytes, dtype=np.uint8), np.empty(n_bytes, dtype=np.uint8)

    seconds = []
    for _ in range(_TIMES):
        begin = time.perf_counter()
        arriving = ranks.receive(back, (ranks.rank - 1) % ranks.size, _TAG)
        leaving = ranks.send(out, (ranks.rank + 1) % ranks.size, _TAG)
        arriving.wait()
        leaving.wait()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
