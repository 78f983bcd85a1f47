"""Placement of ranks and workers: the cores, memory and GPUs that each rank on a computer gets, and
the CPU threads of each worker.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tetris_sim import cpu_kernels, gpu_kernels
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels.solve import arithmetic as cpu_solve
from tetris_sim.cpu_kernels.solve.arithmetic import SPECTRAL as CPU_SPECTRAL
from tetris_sim.cpu_kernels.solve.arithmetic import integrating as cpu_integrating
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.gpu_kernels.solve import arithmetic as gpu_solve
from tetris_sim.gpu_kernels.solve.arithmetic import METHOD as GPU_SPECTRAL
from tetris_sim.gpu_kernels.solve.arithmetic import integrating as gpu_integrating
from tetris_sim.model.method import DeviceKind, Method
from tetris_sim.scheduler.comm.communicator import Communicator, everywhere
from tetris_sim.scheduler.machine.machine import PER_TASK, Device, Gpu, Machine, may_use_gpus
from tetris_sim.solvers.spectral.stepper import IntegratingMethod, SpectralMethod
from tetris_sim.solvers.stepper import SolvingMethod
from tetris_sim.support.wording import count_threads

# Compute resources: CPU threads or a GPU on which a method is tried and run.


@dataclass(frozen=True)
class ComputeResource:
    """The device of one worker, as methods see it.

    Attributes:
        threads: CPU threads; 1 for a GPU, which one thread drives.
        device: kind of the device.
        number: number of the worker among those on CPUs, or the CUDA device number in this process.
    """

    threads: int = 1
    device: DeviceKind = "cpu"
    number: int = 0

    @property
    def name(self) -> str:
        """Name of the device, for example "cpu:0" or "gpu:1"."""
        return f"{self.device}:{self.number}"

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods to choose from there; the last one compiles quickly and refuses least."""
        return gpu_kernels.METHODS if self.device == "gpu" else cpu_kernels.METHODS

    @property
    def spectral(self) -> SpectralMethod:
        """The method for spectral propagation there, which is not among the tuner's candidates."""
        return GPU_SPECTRAL if self.device == "gpu" else CPU_SPECTRAL

    def integrating(self, scheme: str) -> IntegratingMethod:
        """The method that integrates right-hand sides there by a scheme."""
        return gpu_integrating(scheme) if self.device == "gpu" else cpu_integrating(scheme)

    def solving(self, scheme: Literal["steady", "implicit"]) -> SolvingMethod:
        """The method that solves linear systems there."""
        if self.device == "gpu":
            return gpu_solve.STEADY if scheme == "steady" else gpu_solve.IMPLICIT
        return cpu_solve.STEADY if scheme == "steady" else cpu_solve.IMPLICIT

    def open(self) -> Any:
        """Open the device for `Method.prepare`: a `ThreadTeam` or a `GpuDevice`, which the caller
        closes.

        Raises:
            UnsupportedError: the GPU cannot be used.
        """
        if self.device == "gpu":
            from tetris_sim.gpu_kernels.common.device import GpuDevice

            return GpuDevice(self.number)
        from tetris_sim.cpu_kernels.common.stepper import ThreadTeam

        return ThreadTeam(self.threads)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """Open the device for the length of a `with` block."""
        with contextlib.closing(self.open()) as device:
            yield device


def is_spectral(name: str) -> bool:
    """Whether the method with this name uses spectral propagation."""
    return name in {CPU_SPECTRAL.name, GPU_SPECTRAL.name}


def is_implicit(name: str) -> bool:
    """Whether the method with this name makes implicit steps."""
    return name in {cpu_solve.IMPLICIT.name, gpu_solve.IMPLICIT.name}


def every_method() -> tuple[Method, ...]:
    """All methods of all kinds of devices, whether this machine has them or not."""
    return (*cpu_kernels.METHODS, *gpu_kernels.METHODS)


@dataclass(frozen=True)
class RankPlacement:
    """Cores and GPUs that a rank sees, as it reports them to the other ranks.

    Attributes:
        rank: number of the rank.
        cores: numbers of the cores that it may use.
        gpus: PCI addresses of the GPUs that it sees, which identify a GPU whatever its number in
            the process.
    """

    rank: int
    cores: tuple[int, ...]
    gpus: tuple[str, ...]


def own_part(machine: Machine, compute: ComputeSection, ranks: Communicator) -> Machine:
    """The part of a machine that belongs to this rank.

    Ranks that are bound to separate cores keep them; ranks with common cores divide those. GPUs
    that several ranks see are distributed among them.

    Args:
        machine: the computer as this rank sees it.
        compute: settings of the run.
        ranks: all ranks of the run; each of them calls this.

    Raises:
        UnsupportedError: two ranks would use one GPU.
    """
    here = set(ranks.neighbours())
    addresses = everywhere(ranks, lambda: gpu_addresses(machine.gpus))
    seats = ranks.collect(RankPlacement(ranks.rank, machine.cores, addresses))
    # Only ranks on the same computer compete for its cores and GPUs.
    seats = [seat for seat in seats if seat.rank in here]
    return everywhere(ranks, lambda: take_seat(machine, compute, seats, ranks.rank))


def take_seat(
    machine: Machine, compute: ComputeSection, seats: Sequence[RankPlacement], rank: int
) -> Machine:
    """The part of a machine that one of the ranks on it gets.

    Args:
        machine: the computer as that rank sees it.
        compute: settings of the run.
        seats: placements of all ranks on this computer.
        rank: number of the rank.
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
    """PCI address of each GPU; the device number of one GPU may differ between processes."""
    if not gpus:
        return ()
    from tetris_sim.gpu_kernels.common.device import import_cupy

    runtime = import_cupy().cuda.runtime
    return tuple(str(runtime.deviceGetPCIBusId(gpu.number)) for gpu in gpus)


def _divide_threads(
    machine: Machine, own: RankPlacement, seats: Sequence[RankPlacement]
) -> tuple[int, str]:
    # Cores are divided among the ranks that can run on them, the task's limit applies as it is, and
    # a quota of the container is divided among all ranks in it.
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
    # Differences of rounded-down multiples: the parts add up to n and differ by one at most.
    place = ranks.index(rank)
    return n * (place + 1) // len(ranks) - n * place // len(ranks)


def _divide_gpus(
    machine: Machine, compute: ComputeSection, own: RankPlacement, seats: Sequence[RankPlacement]
) -> tuple[Gpu, ...]:
    rivals = [seat.rank for seat in seats if seat is own or set(seat.gpus) & set(own.gpus)]
    gpus, place, n = machine.gpus, rivals.index(own.rank), len(rivals)
    if not gpus or n == 1 or not may_use_gpus(compute):
        return gpus

    # Enough GPUs: each rank gets a contiguous range of them, by the same rule as threads.
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

    # Too few GPUs, and sharing is allowed: ranks take them in turn and divide their memory.
    mine = gpus[place % len(gpus)]
    sharers = sum(other % len(gpus) == place % len(gpus) for other in range(n))
    return (dataclasses.replace(mine, memory=mine.memory // sharers),)


# Teams: the number of CPU threads of each worker that computes with CPU threads.

# Threads meet at every step; with far more of them than cores, there is hardly any progress.
_THREADS_PER_CORE = 8


def deal_threads(
    machine: Machine, compute: ComputeSection, devices: Sequence[Device]
) -> tuple[dict[Device, int], str]:
    """(CPU threads of each worker that computes with CPU threads, the origin of their number); one
    core is left to each GPU that is driven in the same process.

    Args:
        machine: available hardware.
        compute: settings of the run.
        devices: devices of all workers.

    Raises:
        ConfigError: the threads are too many for the cores, too few for the workers, or none is
            left.
    """
    teams = [device for device in devices if device.kind != "gpu"]
    n = len(teams)
    if not teams:
        return {}, ""
    threads, reason = _decide(machine, compute, n, driving=len(devices) - n)
    # Even parts that add up to all threads, but at least one thread per worker.
    dealt = {
        device: max(1, threads * (k + 1) // n - threads * k // n) for k, device in enumerate(teams)
    }
    return dealt, reason


def _decide(
    machine: Machine, compute: ComputeSection, workers: int, *, driving: int
) -> tuple[int, str]:
    """(CPU threads of all workers together, the origin of that number).

    `driving` cores are left to GPUs if the configuration leaves the number open.
    """
    there = f"there are {machine.threads} {machine.threads_reason}"
    if compute.threads == "auto":
        if compute.reserve_cores >= machine.threads:
            msg = (
                f"compute.reserve_cores is {compute.reserve_cores}, but {there}; leave at least "
                "one to compute with"
            )
            raise ConfigError(msg)
        # At least one core remains to compute with, even if all of them drive GPUs.
        reserved = min(compute.reserve_cores + driving, machine.threads - 1)
        free = machine.threads - reserved
        threads = max(free, workers)
        reason = f"{count_threads(threads)}: {machine.threads_reason}"
        reason += f", {reserved} of {machine.threads} left free" if reserved else ""
        reason += (
            f", which are fewer than the {workers} workers, so each has one thread"
            if free < workers
            else ""
        )
    else:
        threads = compute.threads
        reason = f"{count_threads(threads)}, as asked; {there}"

    if threads < workers:
        msg = (
            f"compute.threads is {threads}, but compute.devices names {workers} workers, and each "
            "needs a thread"
        )
        raise ConfigError(msg)

    # If each worker has its minimum of one thread, the number of devices is to blame, not
    # `compute.threads`.
    if threads > _THREADS_PER_CORE * machine.threads:
        asked, remedy = f"compute.threads is {threads}", "Leave it out, or set it to auto"
        if workers == threads:
            asked, remedy = (
                f"compute.devices names {workers} workers with a thread each",
                "Name fewer",
            )
        msg = (
            f"{asked}, but {there}; at most {_THREADS_PER_CORE} per core are allowed, and one per "
            f"core is fastest. {remedy}."
        )
        raise ConfigError(msg)
    return threads, f"{reason}."
