"""Seats: what of a computer belongs to which of the ranks that run on it? Cores, memory and GPUs
are dealt out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import UnsupportedError
from tetris_sim.scheduler.comm.agreement import everywhere
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.machine.devices import may_use_gpus
from tetris_sim.scheduler.machine.gpus import Gpu
from tetris_sim.scheduler.machine.machine import PER_TASK, Machine


@dataclass(frozen=True)
class Seat:
    """What a rank says to the others about where it runs.

    Attributes:
        rank: which one it is.
        cores: numbers of the cores that it may use.
        gpus: addresses of the GPUs that it sees, which tell them apart whatever numbers they have.
    """

    rank: int
    cores: tuple[int, ...]
    gpus: tuple[str, ...]


def own_part(machine: Machine, compute: ComputeSection, ranks: Communicator) -> Machine:
    """The part of a machine that belongs to this rank.

    Ranks that are bound to cores of their own keep them; others divide those that they have in
    common. GPUs that several ranks see are dealt out to them.

    Args:
        machine: as this rank sees it.
        compute: what was asked for.
        ranks: all of them call this.

    Raises:
        UnsupportedError: two ranks would use one GPU.
    """
    here = set(ranks.neighbours())
    addresses = everywhere(ranks, lambda: gpu_addresses(machine.gpus))
    seats = ranks.collect(Seat(ranks.rank, machine.cores, addresses))
    seats = [seat for seat in seats if seat.rank in here]
    return everywhere(ranks, lambda: take_seat(machine, compute, seats, ranks.rank))


def take_seat(
    machine: Machine, compute: ComputeSection, seats: Sequence[Seat], rank: int
) -> Machine:
    """The part of a machine that one of the ranks on it gets.

    Args:
        machine: as that rank sees it.
        compute: what was asked for.
        seats: all ranks on this computer.
        rank: which one of them.
    """
    own = next(seat for seat in seats if seat.rank == rank)
    threads, reason = _divide_threads(machine, own, seats)
    return dataclasses.replace(
        machine,
        threads=threads,
        threads_reason=reason,
        memory=machine.memory // len(seats),
        memory_reason=f"{machine.memory_reason}, divided between {len(seats)} ranks",
        gpus=_divide_gpus(machine, compute, own, seats),
    )


def gpu_addresses(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Where each GPU sits in this computer; two processes may give one GPU different numbers."""
    if not gpus:
        return ()
    from tetris_sim.gpu_kernels.common.device import import_cupy

    runtime = import_cupy().cuda.runtime
    return tuple(str(runtime.deviceGetPCIBusId(gpu.number)) for gpu in gpus)


def _divide_threads(machine: Machine, own: Seat, seats: Sequence[Seat]) -> tuple[int, str]:
    rivals = [seat.rank for seat in seats if seat is own or set(seat.cores) & set(own.cores)]
    limits = [_share(len(own.cores) or machine.threads, rivals, own.rank)]
    if machine.threads_reason == PER_TASK:
        limits.append(machine.threads)
    elif machine.threads < len(own.cores):  # a quota, which counts for the whole container
        limits.append(_share(machine.threads, [seat.rank for seat in seats], own.rank))
    threads = max(1, min(limits))
    if threads == machine.threads:
        return threads, machine.threads_reason
    return threads, f"{machine.threads_reason}, {machine.threads} for {len(seats)} ranks"


def _share(n: int, ranks: Sequence[int], rank: int) -> int:
    place = ranks.index(rank)
    return n * (place + 1) // len(ranks) - n * place // len(ranks)


def _divide_gpus(
    machine: Machine, compute: ComputeSection, own: Seat, seats: Sequence[Seat]
) -> tuple[Gpu, ...]:
    rivals = [seat.rank for seat in seats if seat is own or set(seat.gpus) & set(own.gpus)]
    gpus, place, n = machine.gpus, rivals.index(own.rank), len(rivals)
    if not gpus or n == 1 or not may_use_gpus(compute):
        return gpus

    if n <= len(gpus):
        return gpus[len(gpus) * place // n : len(gpus) * (place + 1) // n]
    if not compute.share_gpus:
        msg = (
            f"{n} ranks on {machine.host} have {len(gpus)} GPU{'s' * (len(gpus) > 1)} "
            f"({', '.join(own.gpus)}) between them, and two on one GPU wait for each other. Start "
            "at most one rank per GPU, set compute.devices: cpu, or allow it with "
            "compute.share_gpus: true."
        )
        raise UnsupportedError(msg)

    mine = gpus[place % len(gpus)]
    sharers = sum(other % len(gpus) == place % len(gpus) for other in range(n))
    return (dataclasses.replace(mine, memory=mine.memory // sharers),)
