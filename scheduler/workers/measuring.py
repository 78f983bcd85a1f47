"""Timing of messages, copies and exchanges on the devices that will make them."""

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
# Size of a long message between ranks [bytes]: a tenth of a millisecond on the fastest link.
LONG_BYTES = 32 << 20
_TIMES = 7


def measure_messages(problem: Problem, share: Share, through_host: bool = True) -> Link:
    """Time the part of a worker in an exchange, short and long: taking an edge and setting a halo.

    Args:
        problem: problem of the run, of which a piece is opened.
        share: share that the worker would have alone.
        through_host: whether messages pass host memory, which those between GPUs need not.
    """
    radius, plane = problem.stencil.radii[0], WorkEstimate.of(problem).plane_bytes
    # Long messages are halos of many steps, limited in bytes and to a part of the grid.
    wide = min(_MESSAGE_BYTES // (plane * radius), problem.grid.shape[0] // (4 * radius))
    reaches = max(2, min(wide, _MESSAGE_REACHES))

    (short, few), (long, many) = (
        _time_messages(problem, share, n * radius, through_host) for n in (1, reaches)
    )
    if many <= few:
        return Link(short, 0.0)
    # A line through the two timings: slope and intercept.
    per_byte = max(0.0, (long - short) / (many - few))
    return Link(max(0.0, short - few * per_byte), per_byte)


def measure_copies(share: Share) -> tuple[float, float]:
    """Inverse bandwidth to the memory of a share's device and back, both directions at once
    [s/byte].
    """
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

    Planes between GPUs of one computer take another path than messages, and the work of GPU, Python
    and operating system around a message often takes longer than the message, so whole exchanges
    are timed.

    Args:
        problem: problem of the run, of which a few planes are cut along axis 0, one slab per rank.
        shares: one worker per rank, in rank order; their slabs are ignored.
        ranks: all ranks; each of them calls this.
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
    """(time to send or receive a message [s], its size [bytes])."""
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
        # The first round is a warm-up. An edge and a halo are two messages, hence the half.
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
    """(time of an exchange [s], number of messages that a rank receives in it, their size
    [bytes]).
    """
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

    # The first exchange negotiates the transport, so it does not count.
    return (
        statistics.median(seconds[1:]),
        messages,
        points * problem.n_fields * problem.dtype.itemsize,
    )
