"""Measure how fast a method advances the real problem on this machine, on a piece small enough to take no time.

The piece has the real stencil, boundary kinds, dtype and row length, random data, and as many planes as fit a budget;
its result is compared with the reference before the speed is believed.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from dataclasses import dataclass

import numpy as np

from tetris_sim import reference
from tetris_sim.cpu_kernels.threads import ThreadTeam
from tetris_sim.grid import Grid
from tetris_sim.method import Method, Parameters, Stepper
from tetris_sim.problem import Field, Problem
from tetris_sim.slab import Slab

_TRIAL_BYTES = 128 << 20  # larger than the last-level cache of most machines, filled in a tenth of a second
_CHECK_POINTS = 40_000  # the reference needs a millisecond per step for this
_CHECK_STEPS = 3
_REPEATS = 3
_RANDOM_NUMBERS = 1_000_003  # a prime: no row length makes neighbouring rows alike


@dataclass(frozen=True)
class Speed:
    """What a method was measured to do.

    Attributes:
        points_per_second: point updates per second in steady state.
        latency: extra time of starting and ending one block of steps [s].
    """

    points_per_second: float
    latency: float


def measure_speed(
    problem: Problem, method: Method, parameters: Parameters, *, threads: int, seconds: float = 0.2
) -> Speed:
    """Median speed of a method on a piece of the problem.

    Args:
        problem: what is to be advanced.
        method: how.
        parameters: one choice of `method.parameters(problem)`.
        threads: CPU threads.
        seconds: about how long to measure, after compilation.
    """
    trial = piece_of(problem, _TRIAL_BYTES)
    team = ThreadTeam(threads)
    try:
        stepper = method.prepare(trial, Slab.whole(trial.grid), parameters, team)
        try:
            stepper.load(trial.initial)
            return _time_blocks(stepper, trial.grid.n_points * trial.n_fields, seconds)
        finally:
            stepper.close()
    finally:
        team.close()


def _time_blocks(stepper: Stepper, n_points: int, seconds: float) -> Speed:
    def block(steps: int) -> float:
        begin = time.perf_counter()
        stepper.advance(steps)
        stepper.wait()
        return time.perf_counter() - begin

    block(2)  # first use of code and pages
    one = block(1)
    steps = max(1, math.ceil(seconds / _REPEATS / max(one, 1e-7)))
    per_step = statistics.median(block(steps) for _ in range(_REPEATS)) / steps
    latency = statistics.median(block(1) for _ in range(_REPEATS)) - per_step
    return Speed(points_per_second=n_points / per_step, latency=max(latency, 0.0))


def check_method(problem: Problem, method: Method, parameters: Parameters, *, threads: int) -> str | None:
    """Compare a method with the reference on a small piece: a sentence if it is wrong, None if it is right."""
    trial = piece_of(problem, _CHECK_POINTS * problem.n_fields * problem.dtype.itemsize, every_axis=True)
    state = trial.initial(Slab.whole(trial.grid))
    expected = reference.advance(state, trial, _CHECK_STEPS)
    team = ThreadTeam(threads)
    try:
        stepper = method.prepare(trial, Slab.whole(trial.grid), parameters, team)
        try:
            stepper.load(trial.initial)
            stepper.advance(_CHECK_STEPS)
            found = stepper.interior()
        finally:
            stepper.close()
    finally:
        team.close()
    largest = max(reference.largest_magnitude(state, trial), reference.largest_magnitude(expected, trial))
    allowed = reference.tolerance(trial, _CHECK_STEPS, largest)
    error = float(np.abs(found - expected).max())
    if error <= allowed:
        return None
    return f"{method.name} differs from the reference by {error:.2g}, more than rounding allows ({allowed:.2g})"


def piece_of(problem: Problem, n_bytes: int, *, every_axis: bool = False) -> Problem:
    """The problem on fewer points with random data: at most `n_bytes` of state, never fewer points than the radius.

    Args:
        problem: the real one.
        n_bytes: size of the state.
        every_axis: shorten all axes alike; otherwise axis 0 first, so that rows keep their length.
    """
    shape = list(problem.grid.shape)
    most = max(1, n_bytes // (problem.n_fields * problem.dtype.itemsize))
    for axis, radius in enumerate(problem.stencil.radii):
        others = math.prod(shape[axis + 1 :])
        limit = round(most ** (1 / len(shape))) if every_axis else most // others
        shape[axis] = min(shape[axis], max(limit, 2 * radius + 1, 1))
        if not every_axis and shape[axis] > 2 * radius + 1:
            break

    numbers = np.random.default_rng(0).uniform(0.0, 1.0, _RANDOM_NUMBERS).astype(problem.dtype)

    def initial(slab: Slab) -> Field:
        # A number for each global position, so that every part of the slab fits to the others.
        ranges = [np.arange(start, stop) for start, stop in zip(slab.start, slab.stop, strict=True)]
        position = np.ravel_multi_index(np.ix_(*ranges), tuple(shape), mode="wrap")
        return np.stack([numbers.take(position + field, mode="wrap") for field in range(problem.n_fields)])

    grid = Grid(shape=tuple(shape), spacing=problem.grid.spacing, origin=problem.grid.origin)
    return dataclasses.replace(problem, grid=grid, initial=initial)
