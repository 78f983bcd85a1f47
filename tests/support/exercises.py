"""What a communicator must be able to do; run by threads, and as a program by the ranks of a
launcher.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tetris_sim.scheduler.comm.communicator import Communicator, open_communicator


def exercise(ranks: Communicator) -> dict[str, Any]:
    """Every call once or more; plain data, which the test compares with what it must be."""
    told = ranks.tell({"from": ranks.rank, "text": "ä" * 1000})
    collected = ranks.collect(("x" * ranks.rank, ranks.rank**2))
    largest = ranks.largest((ranks.rank, -ranks.rank, 0.5))
    received = (
        [float(value) for tag in (0, 3) for value in _around(ranks, tag)] if ranks.size > 1 else []
    )
    return {
        "rank": ranks.rank,
        "told": told,
        "collected": collected,
        "largest": largest,
        "neighbours": ranks.neighbours(),
        "says whether it reads GPUs": ranks.takes_gpu_memory() in (True, False),
        "received": received,
    }


def _around(ranks: Communicator, tag: int) -> list[float]:
    """Two messages to the next rank with one tag, a long one first: what came from the one before,
    in order.
    """
    after, before = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size
    arriving = [np.empty(n) for n in (300_000, 2)]
    pending = [ranks.receive(array, before, tag) for array in arriving]
    leaving = [
        np.full(300_000, 10.0 * ranks.rank + tag),
        np.array([ranks.rank, tag], dtype=np.float64),
    ]
    pending += [ranks.send(array, after, tag) for array in leaving]
    for message in pending:
        message.wait()
    assert (arriving[0] == arriving[0][0]).all()
    return [float(arriving[0][0]), *arriving[1].tolist()]


def expected(rank: int, size: int) -> dict[str, Any]:
    """What `exercise` must give."""
    before = (rank - 1) % size
    return {
        "rank": rank,
        "told": {"from": 0, "text": "ä" * 1000},
        "collected": [("x" * k, k**2) for k in range(size)],
        "largest": (size - 1, 0, 0.5),
        "neighbours": tuple(range(size)),
        "says whether it reads GPUs": True,
        "received": [10.0 * before, before, 0.0, 10.0 * before + 3, before, 3.0]
        if size > 1
        else [],
    }


if __name__ == "__main__":
    with open_communicator() as communicator:
        found = exercise(communicator)
        if found == expected(communicator.rank, int(sys.argv[1])):
            sys.stdout.write(f"rank {communicator.rank} of {communicator.size} agrees\n")
        if "fail" in sys.argv and communicator.rank == 1:
            msg = "rank 1 is broken"
            raise ValueError(msg)
        if "fail" in sys.argv:
            communicator.collect(1)  # would wait for ever
