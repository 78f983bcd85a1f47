"""What rate a step by equations is expected to have on a device, and what bounds it: for `plan`, by
what memory and arithmetic of the device do, not by a trial.

A method that makes one step a sweep reads and writes in memory what its stages do; one that streams
passes the fields once for a block of steps. How much of a device's arithmetic such kernels reach is
known from measurements (docs/benchmarks/equations.md); on a CPU the limits themselves are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.gpu_kernels.common.given import joined_stages
from tetris_sim.model.equations import Equations
from tetris_sim.model.method import STEPS_PER_BLOCK, KnownGpu
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.shares import Share

Bound = Literal["memory", "arithmetic"]

# Operations in a cycle of one multiprocessor, (float64, float32).
_LANES = {"sm_80": (32, 64), "sm_90": (64, 128), "sm_100": (64, 128)}
_OTHER_LANES = (2, 128)
# Shares of what a GPU could do that kernels for equations reach: of its memory, and of its
# arithmetic when they stream along 1, 2 or 3 axes: in 3D neighbours come through shared memory
# (NVIDIA H200, 2026-11-23).
_OF_MEMORY = 0.72
_OF_ARITHMETIC = {1: 0.8, 2: 0.5, 3: 0.135}
# The same of the multiply-adds of CPU threads: operations wait for loads, in sweeps most (two
# threads of an AMD EPYC, AVX2, busy with other work, 2026-11-22).
_OF_THREADS = {1: 0.35, 2: 0.35, 3: 0.2}
_OF_THREADS_SWEEPING = 0.2

_ROUNDS, _SECONDS = 3, 0.02  # of a measurement of CPU limits


@dataclass(frozen=True)
class DeviceLimits:
    """What a device does at most in kernels for equations.

    Attributes:
        operations: per second.
        bytes: of memory read or written per second.
    """

    operations: float
    bytes: float


@dataclass(frozen=True)
class Expectation:
    """A rate that is predicted.

    Attributes:
        worker: whose.
        points_per_second: point updates, of all fields together.
        bound: what lasts longer.
        bytes: that a point and step moves through memory.
    """

    worker: str
    points_per_second: float
    bound: Bound
    bytes: float


def expect(problem: Problem, share: Share, limits: DeviceLimits) -> Expectation:
    """The rate of one worker.

    Args:
        problem: with equations.
        share: its method and parameters.
        limits: of its device.
    """
    assert problem.equations is not None
    n_bytes = problem.dtype.itemsize * _transfers(problem.equations, share)
    memory = n_bytes / limits.bytes
    arithmetic = problem.equations.n_operations / limits.operations
    return Expectation(
        worker=share.worker,
        points_per_second=1 / max(memory, arithmetic),
        bound="memory" if memory >= arithmetic else "arithmetic",
        bytes=n_bytes,
    )


def _transfers(equations: Equations, share: Share) -> float:
    """Numbers that a point and step moves through memory. On a GPU stages that go together read
    nothing that they gave themselves.
    """
    steps = share.parameters.get(STEPS_PER_BLOCK, 0)
    if steps:
        return (2 * len(equations.fields) + len(equations.coefficients or {})) / steps
    if share.method.device == "cpu":
        return equations.n_transfers
    total = 0
    for group in joined_stages(equations):
        stages = [equations.stages[k] for k in group]
        given = {name for stage in stages for name in stage.formulas}
        total += len(given) + len({name for stage in stages for name in stage.taps} - given)
    return total


def gpu_limits(problem: Problem, gpu: KnownGpu) -> DeviceLimits | None:
    """Of a GPU, from its clocks and units; None if the driver does not say."""
    if not (gpu.multiprocessors and gpu.clock and gpu.bandwidth):
        return None
    lanes = _LANES.get(gpu.architecture, _OTHER_LANES)[problem.arithmetic == np.float32]
    operations = gpu.multiprocessors * gpu.clock * lanes
    return DeviceLimits(operations * _OF_ARITHMETIC[problem.grid.ndim], gpu.bandwidth * _OF_MEMORY)


def thread_limits(problem: Problem, share: Share) -> DeviceLimits:
    """Of the CPU threads of a worker, measured."""
    from tetris_sim.bench.limits import measure_two_limits

    dtype = problem.arithmetic.name
    team = ThreadTeam(share.threads)
    try:
        operations, copied = measure_two_limits(
            team, dtype, problem.state_bytes, rounds=_ROUNDS, seconds=_SECONDS
        )
    finally:
        team.close()
    streamed = STEPS_PER_BLOCK in share.parameters
    reached = _OF_THREADS[problem.grid.ndim] if streamed else _OF_THREADS_SWEEPING
    return DeviceLimits(operations * reached, copied)


def expected_rates(
    problem: Problem, shares: Sequence[Share], gpus: Sequence[KnownGpu]
) -> tuple[Expectation, ...]:
    """Of all workers in their order, but those of whose device something is not known.

    Args:
        problem: with equations.
        shares: of a plan.
        gpus: of the machine, by their numbers.
    """
    found = []
    for share in shares:
        if share.simulated is not None or share.rank != 0:
            continue
        if share.method.device == "gpu":
            limits = gpu_limits(problem, gpus[share.number]) if share.number < len(gpus) else None
        else:
            limits = thread_limits(problem, share)
        if limits is not None:
            found.append(expect(problem, share, limits))
    return tuple(found)
