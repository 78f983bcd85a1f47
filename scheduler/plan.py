"""Plan: which slab to which worker, which method, how many steps per block, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tetris_sim import cpu_kernels
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.method import Method, Parameters
from tetris_sim.problem import Problem
from tetris_sim.scheduler.machine import Machine
from tetris_sim.scheduler.measure import Speed, check_method, measure_speed
from tetris_sim.scheduler.partition import cut_along_axis_0, split_by_speed
from tetris_sim.schema import ComputeSection
from tetris_sim.slab import Slab

_BLOCK_SECONDS = 0.2  # a signal, the progress bar and the clock are looked at this often
_MAX_BLOCK = 1 << 20
_THREADS_PER_CORE = 8  # they wait for each other at every step: with many more, hardly anything moves
_POINTS_PER_THREAD = 1 << 16  # above this, meeting the others costs less than a tenth of a step
_WORTH_CHANGING = 1.05  # a measurement must be this much better to count
_RESERVE = 256 << 20  # bytes for the interpreter, libraries and output buffers beyond what is there already


@dataclass(frozen=True)
class Share:
    """What one worker does.

    Attributes:
        worker: its name, "cpu:0".
        slab: the part of the grid it owns.
        method: how it advances.
        parameters: what the method was tuned to.
        threads: CPU threads it uses.
        points_per_second: measured, not promised.
        memory: bytes it takes.
    """

    worker: str
    slab: Slab
    method: Method
    parameters: Parameters
    threads: int
    points_per_second: float
    memory: int


@dataclass(frozen=True)
class Plan:
    """Every decision about how a problem is advanced.

    Attributes:
        shares: one per worker.
        time_block: most steps between two exchanges of halos.
        seconds_per_step: predicted time of one step [s].
        redundant: share of point updates that two workers both make, 0 to 1.
        copy_for_checkpoints: whether there is memory for a second copy of the state, so that checkpoints are written
            while the computation goes on.
        reasons: one sentence per decision.
    """

    shares: tuple[Share, ...]
    time_block: int
    seconds_per_step: float
    redundant: float
    copy_for_checkpoints: bool
    reasons: tuple[str, ...]

    @property
    def memory(self) -> int:
        """Bytes that all workers of this process take."""
        return sum(share.memory for share in self.shares)


def make_plan(problem: Problem, machine: Machine, compute: ComputeSection | None = None) -> Plan:
    """Decide how to advance `problem` on `machine`; measures for a fraction of a second.

    Args:
        problem: what to advance.
        machine: what there is.
        compute: what was asked for; everything automatic if not given.

    Raises:
        UnsupportedError: if the state does not fit into the memory there is, or no method can be used.
        ConfigError: if a method, or more workers than the grid has planes for, is asked for that cannot be.
    """
    compute = compute or ComputeSection()
    reasons: list[str] = []
    threads = machine.threads if compute.threads == "auto" else compute.threads
    reasons.append(
        f"{count_threads(threads)}: {machine.threads_reason}."
        if compute.threads == "auto"
        else f"{count_threads(threads)}, as asked; there are {machine.threads} {machine.threads_reason}."
    )
    if threads > _THREADS_PER_CORE * machine.threads:
        msg = (
            f"compute.threads is {threads}, but there are {machine.threads} {machine.threads_reason}; at most "
            f"{_THREADS_PER_CORE} per core are allowed, and one per core is fastest. Leave it out, or set it to auto."
        )
        raise ConfigError(msg)
    names = ("cpu",) if isinstance(compute.devices, str) else compute.devices
    teams = _split_threads(threads, len(names))
    _refuse_what_does_not_fit(problem, machine)
    method, parameters, speed = _choose_method(problem, compute.method, teams[0], reasons)
    if compute.threads == "auto" and len(names) == 1:
        teams[0], speed = _choose_team(problem, method, parameters, (teams[0], speed), reasons)
    speeds = [speed.points_per_second * team / teams[0] for team in teams]
    weights = list(compute.shares) if compute.shares != "auto" else speeds
    time_block = _choose_time_block(problem, speed, len(names), compute, reasons)
    slabs = _cut(problem, weights, time_block)
    if len(slabs) > 1:
        reasons.append(_describe_cut(slabs, asked=compute.shares != "auto"))
    shares = tuple(
        Share(f"cpu:{k}", slab, method, parameters, teams[k], speeds[k], method.memory(problem, slab, parameters))
        for k, slab in enumerate(slabs)
    )
    seconds, redundant = _predict(problem, shares, time_block, speed)
    copy = machine.memory - sum(share.memory for share in shares) - _RESERVE > problem.state_bytes
    reasons.append(
        "Checkpoints are written from a copy while the computation goes on."
        if copy
        else "Checkpoints stop the computation while they are written: there is no memory for a copy of the state."
    )
    return Plan(shares, time_block, seconds, redundant, copy, tuple(reasons))


def _split_threads(threads: int, workers: int) -> list[int]:
    return [max(1, threads * (k + 1) // workers - threads * k // workers) for k in range(workers)]


def _refuse_what_does_not_fit(problem: Problem, machine: Machine) -> None:
    method = cpu_kernels.METHODS[-1]
    needed = method.memory(problem, Slab.whole(problem.grid), method.parameters(problem)[0])
    if needed + _RESERVE > machine.memory:
        shape = " x ".join(str(n) for n in reversed(problem.grid.shape))
        msg = (
            f"the grid of {shape} points in {problem.dtype} needs {gib(needed)} of memory and {gib(_RESERVE)} beside "
            f"it, but {gib(machine.memory)} can be had ({machine.memory_reason}). Use a smaller grid, "
            f"compute.precision: float32, or a machine with more memory."
        )
        raise UnsupportedError(msg)


def count_threads(threads: int) -> str:
    """A number of threads for people."""
    return "1 thread" if threads == 1 else f"{threads} threads"


def gib(n_bytes: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.3g} TiB"


def _choose_method(problem: Problem, wanted: str, threads: int, reasons: list[str]) -> tuple[Method, Parameters, Speed]:
    """The fastest method that does not refuse and agrees with the reference."""
    names = [method.name for method in cpu_kernels.METHODS]
    if wanted != "auto" and wanted not in names:
        msg = f"compute.method is {wanted!r}, which is not one of the methods: auto, {', '.join(names)}"
        raise ConfigError(msg)
    best: tuple[Method, Parameters, Speed] | None = None
    for method in cpu_kernels.METHODS:
        if wanted not in ("auto", method.name):
            continue
        parameters = method.parameters(problem)[0]
        why_not = method.refusal(problem) or check_method(problem, method, parameters, threads=threads)
        if why_not is not None:
            reasons.append(f"Not {method.name}: {why_not}.")
            continue
        speed = measure_speed(problem, method, parameters, threads=threads)
        reasons.append(f"{method.name}: {speed.points_per_second / 1e9:.3g} GStencil/s measured, checked.")
        if best is None or speed.points_per_second > best[2].points_per_second:
            best = method, parameters, speed
    if best is None:
        msg = f"no method can advance this problem on this machine. {' '.join(reasons)}"
        raise UnsupportedError(msg)
    return best


def _choose_team(
    problem: Problem, method: Method, parameters: Parameters, most: tuple[int, Speed], reasons: list[str]
) -> tuple[int, Speed]:
    """Fewer threads where meeting once per step takes longer than the work of a step: (threads, their speed)."""
    best = most
    size = most[0] // 2
    while size >= 1 and problem.grid.n_points * problem.n_fields < most[0] * _POINTS_PER_THREAD:
        speed = measure_speed(problem, method, parameters, threads=size, seconds=0.05)
        if speed.points_per_second > best[1].points_per_second * _WORTH_CHANGING:
            best = size, speed
        size //= 2
    if best is not most:
        reasons.append(
            f"{count_threads(best[0])} of {most[0]}: the grid is so small that fewer are faster "
            f"({best[1].points_per_second / 1e9:.3g} GStencil/s)."
        )
    return best


def _choose_time_block(
    problem: Problem, speed: Speed, workers: int, compute: ComputeSection, reasons: list[str]
) -> int:
    """Steps per block: short enough to stay responsive; with neighbours, where redundant work and latency balance."""
    step_seconds = problem.grid.n_points * problem.n_fields / (speed.points_per_second * workers)
    responsive = min(_MAX_BLOCK, max(1, int(_BLOCK_SECONDS / step_seconds)))
    radius = problem.stencil.radii[0]
    room = problem.grid.shape[0] // (workers * max(radius, 1))  # a halo must fit into the neighbour's slab
    if workers > 1 and room < 1:
        msg = (
            f"{workers} workers cannot share {problem.grid.shape[0]} planes along {problem.grid.axis_names[0]}: "
            f"each needs at least {radius}. Name fewer devices."
        )
        raise ConfigError(msg)
    if compute.time_block != "auto":
        block = min(compute.time_block, room) if workers > 1 else compute.time_block
        reasons.append(
            f"Time block of {block} steps, as asked" + (", cut to what fits." if block < compute.time_block else ".")
        )
        return block
    if workers == 1:
        reasons.append(
            f"Time block of {responsive} steps: one worker needs no exchange, {_BLOCK_SECONDS} s keep it responsive."
        )
        return responsive
    # A block of k steps costs latency / k per step and (k - 1) * radius redundant planes per cut on average.
    plane_seconds = step_seconds / problem.grid.shape[0] * workers
    latency = max(speed.latency, 1e-6)
    balanced = math.sqrt(latency / max(radius * plane_seconds, 1e-12))
    block = max(1, min(int(balanced), room, responsive))
    reasons.append(
        f"Time block of {block} steps: an exchange costs {latency * 1e6:.0f} us, "
        f"a redundant plane {plane_seconds * 1e6:.2g} us a step."
    )
    return block


def _cut(problem: Problem, weights: list[float], time_block: int) -> tuple[Slab, ...]:
    halo = time_block * problem.stencil.radii[0]
    n_planes = problem.grid.shape[0]
    pieces = split_by_speed(n_planes, weights, min_planes=max(halo, 1)) if len(weights) > 1 else ((0, n_planes),)
    return cut_along_axis_0(problem.grid, problem.boundary, pieces, halo=halo)


def _describe_cut(slabs: tuple[Slab, ...], *, asked: bool) -> str:
    total = sum(slab.n_points for slab in slabs)
    parts = ", ".join(f"cpu:{k} {slab.n_points / total:.1%}" for k, slab in enumerate(slabs))
    return f"Shares {'as asked' if asked else 'by speed'}: {parts}."


def _predict(problem: Problem, shares: tuple[Share, ...], time_block: int, speed: Speed) -> tuple[float, float]:
    """(seconds per step, redundant share of the work): the slowest worker with its halo, plus the exchange."""
    seconds, extra = 0.0, 0.0
    for share in shares:
        plane = share.slab.n_points / share.slab.shape[0] * problem.n_fields
        halo_planes = sum(share.slab.halo[0]) * (time_block - 1) / (2 * time_block)
        work = share.slab.n_points * problem.n_fields + halo_planes * plane
        extra += halo_planes * plane
        seconds = max(seconds, work / share.points_per_second)
    return seconds + speed.latency / time_block, extra / (extra + problem.grid.n_points * problem.n_fields)
