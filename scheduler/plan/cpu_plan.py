"""Plans for CPU threads alone, and what every plan needs of them: how many there are, and what the
tuner is told.
"""

from __future__ import annotations

import dataclasses

from tetris_sim import cpu_kernels
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.problem import Problem
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.machine.place import every_method
from tetris_sim.scheduler.plan.block import choose_time_block, fit_to_block
from tetris_sim.scheduler.plan.partition import cut_along_axis_0, split_by_speed
from tetris_sim.scheduler.tuning.candidates import RESERVE, Asked
from tetris_sim.scheduler.tuning.choice import Choice, Speed, label_of
from tetris_sim.scheduler.tuning.tune import Terms, tune
from tetris_sim.schema import ComputeSection
from tetris_sim.slab import Slab
from tetris_sim.wording import count_threads, gib

_THREADS_PER_CORE = (
    8  # they wait for each other at every step: with many more, hardly anything moves
)


def plan_on_cpu(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    *,
    begun_with: Asked | None,
    use_cache: bool,
) -> Plan:
    """One team of threads, or as many as the list of devices names, does everything; see
    `make_plan`.
    """
    names = ("cpu",) if isinstance(compute.devices, str) else compute.devices
    threads, reason = decide_threads(machine, compute)
    teams = [
        max(1, threads * (k + 1) // len(names) - threads * k // len(names))
        for k in range(len(names))
    ]
    refuse_what_does_not_fit(problem, machine)
    terms = make_terms(compute, teams[0], use_cache=use_cache)
    choice, note = choose(problem, machine, terms, begun_with)
    if len(names) == 1:
        teams = [choice.threads]
    speeds = [choice.speed.points_per_second * team / teams[0] for team in teams]
    weights = list(compute.shares) if compute.shares != "auto" else speeds
    time_block, why_block = choose_time_block(
        problem, choice.speed, choice.parameters, workers=len(names), compute=compute
    )
    parameters = fit_to_block(choice.parameters, time_block, workers=len(names))
    slabs = _cut(problem, weights, time_block)
    memory = [choice.method.memory(problem, slab, parameters) for slab in slabs]
    _refuse_shares(memory, machine)
    shares = tuple(
        Share(f"cpu:{k}", slab, choice.method, parameters, teams[k], speeds[k], memory[k])
        for k, slab in enumerate(slabs)
    )
    seconds, redundant = _predict(problem, shares, time_block, choice.speed)
    copy = machine.memory - sum(memory) - RESERVE > problem.state_bytes
    reasons = [reason, *choice.reasons, *note, why_block]
    reasons += [_describe_cut(slabs, asked=compute.shares != "auto")] if len(slabs) > 1 else []
    reasons.append(why_copy(copy=copy))
    return Plan(shares, time_block, seconds, redundant, copy, tuple(reasons), notes=note)


def why_copy(*, copy: bool) -> str:
    """Whether checkpoints stop the computation, as a sentence."""
    if copy:
        return "Checkpoints are written from a copy while the computation goes on."
    return (
        "Checkpoints stop the computation while they are written: there is no memory for a copy "
        "of the state."
    )


def make_terms(compute: ComputeSection, threads: int, *, use_cache: bool) -> Terms:
    """What the configuration says to the tuner.

    Args:
        compute: the configuration.
        threads: of one worker.
        use_cache: as for `make_plan`.
    """
    alone = isinstance(compute.devices, str) or len(compute.devices) == 1
    return Terms(
        Asked(compute.method, dict(compute.parameters)),
        threads,
        fixed_threads=compute.threads != "auto" or not alone,
        budget=compute.tuning_seconds,
        patient=compute.tuning_budget == "auto",
        use_cache=use_cache,
    )


def decide_threads(machine: Machine, compute: ComputeSection) -> tuple[int, str]:
    """(CPU threads of all workers together, where that number comes from).

    Raises:
        ConfigError: they are too many for the cores, too few for the workers, or none is left.
    """
    workers = 1 if isinstance(compute.devices, str) else len(compute.devices)
    there = f"there are {machine.threads} {machine.threads_reason}"
    if compute.threads == "auto":
        if compute.reserve_cores >= machine.threads:
            msg = (
                f"compute.reserve_cores is {compute.reserve_cores}, but {there}; leave at least "
                "one to compute with"
            )
            raise ConfigError(msg)
        free = machine.threads - compute.reserve_cores
        threads = max(free, workers)
        reason = f"{count_threads(threads)}: {machine.threads_reason}"
        reason += (
            f", {compute.reserve_cores} of {machine.threads} left free"
            if compute.reserve_cores
            else ""
        )
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


def refuse_what_does_not_fit(problem: Problem, machine: Machine) -> None:
    """Raise if the state does not fit into memory with the method that needs least.

    Raises:
        UnsupportedError: with both numbers.
    """
    method = cpu_kernels.METHODS[-1]
    needed = method.memory(problem, Slab.whole(problem.grid), method.parameters(problem)[0])
    if needed + RESERVE > machine.memory:
        shape = " x ".join(str(n) for n in reversed(problem.grid.shape))
        msg = (
            f"the grid of {shape} points in {problem.dtype} needs {gib(needed)} of memory and "
            f"{gib(RESERVE)} beside it, but {gib(machine.memory)} can be had "
            f"({machine.memory_reason}). Use a smaller grid, compute.precision: float32, or a "
            "machine with more memory."
        )
        raise UnsupportedError(msg)


def _refuse_shares(memory: list[int], machine: Machine) -> None:
    """Raise if all slabs with their halos do not fit, though the grid in one piece does."""
    if sum(memory) + RESERVE > machine.memory:
        msg = (
            f"the slabs of {len(memory)} workers with their halos need {gib(sum(memory))} of "
            f"memory and {gib(RESERVE)} beside it, but {gib(machine.memory)} can be had "
            f"({machine.memory_reason}). Name fewer devices, or make compute.time_block shorter."
        )
        raise UnsupportedError(msg)


def choose(
    problem: Problem, machine: Machine, terms: Terms, begun_with: Asked | None
) -> tuple[Choice, tuple[str, ...]]:
    """(what the tuner chooses, what must be said about a run that does not go on as it was begun).

    Args:
        problem: what is to be advanced.
        machine: on what.
        terms: for the tuner.
        begun_with: method and parameters of the run that is continued, kept unless others are asked
            for.
    """
    if begun_with is None:
        return tune(problem, machine, terms), ()
    before = label_of(begun_with.method, begun_with.parameters or {})
    trouble = ""
    if terms.asked.method == "auto":
        try:
            kept = tune(problem, machine, dataclasses.replace(terms, asked=begun_with))
        except (ConfigError, UnsupportedError) as error:
            trouble = f" It cannot be kept: {error}"
        else:
            reason = f"{before} is kept from the run that is continued."
            return dataclasses.replace(kept, reasons=(*kept.reasons, reason)), ()
    choice = tune(problem, machine, terms)
    if label_of(choice.method.name, choice.parameters) == before:
        return choice, ()
    exact = choice.method.exact and any(
        method.name == begun_with.method and method.exact for method in every_method()
    )
    return choice, (
        f"The run was begun with {before} and goes on with "
        f"{label_of(choice.method.name, choice.parameters)}: the result "
        f"{'has the same bits' if exact else 'may differ within rounding'}.{trouble}",
    )


def _cut(problem: Problem, weights: list[float], time_block: int) -> tuple[Slab, ...]:
    halo = time_block * problem.stencil.radii[0]
    n_planes = problem.grid.shape[0]
    pieces = (
        split_by_speed(n_planes, weights, min_planes=max(halo, 1))
        if len(weights) > 1
        else ((0, n_planes),)
    )
    return cut_along_axis_0(problem.grid, problem.boundary, pieces, halo=halo)


def _describe_cut(slabs: tuple[Slab, ...], *, asked: bool) -> str:
    total = sum(slab.n_points for slab in slabs)
    parts = ", ".join(f"cpu:{k} {slab.n_points / total:.1%}" for k, slab in enumerate(slabs))
    return f"Shares {'as asked' if asked else 'by speed'}: {parts}."


def _predict(
    problem: Problem, shares: tuple[Share, ...], time_block: int, speed: Speed
) -> tuple[float, float]:
    """(seconds per step, redundant share of the work): the slowest worker with its halo, plus the
    exchange.
    """
    seconds, extra = 0.0, 0.0
    for share in shares:
        plane = share.slab.n_points / share.slab.shape[0] * problem.n_fields
        halo_planes = sum(share.slab.halo[0]) * (time_block - 1) / (2 * time_block)
        work = share.slab.n_points * problem.n_fields + halo_planes * plane
        extra += halo_planes * plane
        seconds = max(seconds, work / share.points_per_second)
    return seconds + speed.latency / time_block, extra / (
        extra + problem.grid.n_points * problem.n_fields
    )
