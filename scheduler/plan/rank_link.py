"""What does an exchange between ranks cost? Timed as it will be: the same devices, the same ways,
on few planes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Sequence

from tetris_sim.problem import Problem
from tetris_sim.scheduler.comm.agreement import everywhere
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.link import Link
from tetris_sim.scheduler.facts.shares import Share
from tetris_sim.scheduler.plan.members import shortened, work_of
from tetris_sim.scheduler.plan.partition import cut_along_axis_0
from tetris_sim.scheduler.plan.process_grid import halo_points
from tetris_sim.scheduler.run.rank_exchange import make_exchange
from tetris_sim.scheduler.run.worker import open_worker
from tetris_sim.scheduler.tuning.trial import make_trial_problem

_LONG_BYTES = 32 << 20  # of a message: a tenth of a millisecond on the fastest link
_MOST_REACHES = 64  # steps that the planes of a message last
_TIMES = 7


def measure_exchange(
    problem: Problem, shares: Sequence[Share], ranks: Communicator, *, gpu_messages: bool = False
) -> Link:
    """Time exchanges with halos for one step and for many; the slowest rank counts.

    Between GPUs of one computer planes take another way than messages, and what a GPU, Python and
    the operating system do around a message is often longer than the message.

    Args:
        problem: the real one; a few planes of it are cut along axis 0, one slab for each rank.
        shares: one worker of each rank, in the order of ranks; what is said about its slab is
            ignored.
        ranks: all of them call this.
        gpu_messages: as for `make_exchange`.
    """
    radius = max(problem.stencil.radii[0], 1)
    reaches = max(2, min(_LONG_BYTES // (work_of(problem).plane_bytes * radius), _MOST_REACHES))
    (short, messages, few), (long, _, many) = (
        _time(problem, shares, ranks, n * radius, gpu_messages=gpu_messages) for n in (1, reaches)
    )
    per_byte = max(0.0, (long - short) / (many - few))
    return Link(max(0.0, short - few * per_byte) / messages, per_byte)


def _time(
    problem: Problem,
    shares: Sequence[Share],
    ranks: Communicator,
    width: int,
    *,
    gpu_messages: bool,
) -> tuple[float, int, int]:
    """(seconds of an exchange, messages that a rank gets in it, their bytes)."""
    n = ranks.size
    whole = shortened(problem, n * width)
    piece = make_trial_problem(whole, whole.state_bytes)
    slabs = cut_along_axis_0(
        piece.grid, piece.boundary, [(width * k, width * (k + 1)) for k in range(n)], halo=width
    )
    placed = [
        dataclasses.replace(share, slab=slab, rank=rank, memory=0)
        for rank, (share, slab) in enumerate(zip(shares, slabs, strict=True))
    ]
    messages, points = max(halo_points(slab) for slab in slabs)
    worker = everywhere(ranks, lambda: open_worker(piece, placed[ranks.rank]))
    with contextlib.closing(worker):
        worker.stepper.load(piece.initial)
        exchange = make_exchange(piece, placed, ranks, gpu_messages=gpu_messages)
        seconds = []
        for _ in range(_TIMES + 1):
            begin = time.perf_counter()
            exchange.swap([worker])
            worker.stepper.wait()
            seconds.append(ranks.largest([time.perf_counter() - begin])[0])
    # The first one agrees on the way.
    return (
        statistics.median(seconds[1:]),
        messages,
        points * problem.n_fields * problem.dtype.itemsize,
    )
