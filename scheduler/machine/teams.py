"""Teams: how many CPU threads does each worker get that computes with some?"""

from __future__ import annotations

from collections.abc import Sequence

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError
from tetris_sim.scheduler.machine.devices import Device
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.support.wording import count_threads

# they wait for each other at every step: with many more, hardly anything moves
_THREADS_PER_CORE = 8


def deal_threads(
    machine: Machine, compute: ComputeSection, devices: Sequence[Device]
) -> tuple[dict[Device, int], str]:
    """(CPU threads of each worker that computes with some, where their number comes from); a core
    is left to each GPU that is driven beside them.

    Args:
        machine: what there is.
        compute: what was asked for.
        devices: of all workers.

    Raises:
        ConfigError: they are too many for the cores, too few for the workers, or none is left.
    """
    teams = [device for device in devices if device.kind != "gpu"]
    n = len(teams)
    if not teams:
        return {}, ""
    threads, reason = _decide(machine, compute, n, driving=len(devices) - n)
    dealt = {
        device: max(1, threads * (k + 1) // n - threads * k // n) for k, device in enumerate(teams)
    }
    return dealt, reason


def _decide(
    machine: Machine, compute: ComputeSection, workers: int, *, driving: int
) -> tuple[int, str]:
    """(CPU threads of all workers together, where that number comes from).

    `driving` cores are left to GPUs, if the configuration leaves the number open.
    """
    there = f"there are {machine.threads} {machine.threads_reason}"
    if compute.threads == "auto":
        if compute.reserve_cores >= machine.threads:
            msg = (
                f"compute.reserve_cores is {compute.reserve_cores}, but {there}; leave at least "
                "one to compute with"
            )
            raise ConfigError(msg)
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
