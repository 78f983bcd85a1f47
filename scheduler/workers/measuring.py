"""Measuring: what messages, copies and exchanges cost, timed on the devices that will make them."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Sequence

import numpy as np

from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.comm.communicator import Communicator, everywhere
from tetris_sim.scheduler.facts.domain import Link, WorkEstimate, shortened
from tetris_sim.scheduler.facts.shares import GpuMessages, Share
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.plan.partition import cut_along_axis_0, halo_points
from tetris_sim.scheduler.tuning.measure import make_trial_problem
from tetris_sim.scheduler.workers.rank_exchange import make_exchange
from tetris_sim.scheduler.workers.worker import open_worker

_MESSAGE_BYTES = 4 << 20  # of the longer one of two messages that are timed
_MESSAGE_REACHES = 64  # most steps of which such a message is the halo
_REPEATS = 5
# of a message between ranks: a tenth of a millisecond on the fastest link
LONG_BYTES = 32 << 20
_TIMES = 7


def measure_messages(problem: Problem, share: Share, through_host: bool = True) -> Link:
    """Time what an exchange asks of a worker: giving edges away and taking halos, short ones and
    long ones.

    Args:
        problem: the real one; a piece of it is opened.
        share: what the worker would do alone.
        through_host: whether messages pass the memory of the host; between GPUs they need not.
    """
    radius, plane = problem.stencil.radii[0], WorkEstimate.of(problem).plane_bytes
    wide = min(_MESSAGE_BYTES // (plane * radius), problem.grid.shape[0] // (4 * radius))
    reaches = max(2, min(wide, _MESSAGE_REACHES))

    (short, few), (long, many) = (
        _time_messages(problem, share, n * radius, through_host) for n in (1, reaches)
    )
    if many <= few:
        return Link(short, 0.0)
    per_byte = max(0.0, (long - short) / (many - few))
    return Link(max(0.0, short - few * per_byte), per_byte)


def measure_copies(share: Share) -> tuple[float, float]:
    """Seconds per byte to the memory of a share's device and back, both ways at a time."""
    from tetris_sim.gpu_kernels.steppers import streamed

    with ComputeResource(share.threads, share.method.device, share.number).opened() as device:
        return streamed.measure_copies(device)


def measure_exchange(
    problem: Problem,
    shares: Sequence[Share],
    ranks: Communicator,
    *,
    gpu_messages: GpuMessages = "host",
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
    reaches = max(
        2, min(LONG_BYTES // (WorkEstimate.of(problem).plane_bytes * radius), _MESSAGE_REACHES)
    )
    (short, messages, few), (long, _, many) = (
        _time_exchange(problem, shares, ranks, n * radius, gpu_messages) for n in (1, reaches)
    )
    per_byte = max(0.0, (long - short) / (many - few))
    return Link(max(0.0, short - few * per_byte) / messages, per_byte)


def _time_messages(
    problem: Problem, share: Share, width: int, through_host: bool
) -> tuple[float, int]:
    """(seconds of giving or taking a message, its bytes)."""
    planes = 4 * width + 2
    points = WorkEstimate.of(problem).plane_bytes * planes
    piece = make_trial_problem(shortened(problem, planes), max(points, 1))
    halo = ((width, width), *((0, 0),) * (piece.grid.ndim - 1))
    slab = Slab(
        (width, *(0,) * (piece.grid.ndim - 1)),
        (piece.grid.shape[0] - width, *piece.grid.shape[1:]),
        halo,
    )
    share = dataclasses.replace(share, slab=slab, memory=0, queued=False, through_host=through_host)

    with contextlib.closing(open_worker(piece, share)) as worker:
        worker.stepper.load(piece.initial)
        seconds = []
        for _ in range(_REPEATS + 1):
            begin = time.perf_counter()
            edge = worker.stepper.edge(0, "low")
            edge = np.asarray(edge) if through_host else edge
            worker.stepper.set_halo(0, "low", edge)
            worker.stepper.wait()
            seconds.append((time.perf_counter() - begin) / 2)
    return statistics.median(seconds[1:]), edge.nbytes


def _time_exchange(
    problem: Problem,
    shares: Sequence[Share],
    ranks: Communicator,
    width: int,
    gpu_messages: GpuMessages,
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
