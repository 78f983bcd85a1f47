"""Trial problems: the same stencil, boundary kinds and dtype on fewer points with random data, to
be timed or compared with the reference.

Random data, because zeros and constants hide mistakes, and numbers too small to be normal slow some
processors down.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import scale

_RANDOM_NUMBERS = 1_000_003  # a prime: no row length makes neighbouring rows alike
_CACHES = 2  # the state of a problem to be timed is this many times the last-level caches
# bytes; filled in a tenth of a second by one core, by hundred
_SMALLEST_TRIAL, _LARGEST_TRIAL = 64 << 20, 1 << 30
_MEMORY_SHARE = 8  # of the memory that can be had, it takes at most one part of this many
_PLANES = 64  # of it: tiles of 16 steps of radius 1 need 32
_PLANES_PER_THREAD = 4
_MOST_PLANES = 1024
# points; a multiple of every vector length, so that as many points are left over as of the grid
_VECTORS = 64


def make_trial_problem(
    problem: Problem, n_bytes: int, *, every_axis: bool = False, planes: int = 1
) -> Problem:
    """The problem on at most `n_bytes` of state with random data, never fewer points along an axis
    than it needs.

    The weights are scaled down, or the time step is, if a step could make the largest value grow,
    so that any number of steps stays finite; compiled code takes weights as arguments, so it is the
    same code.

    Args:
        problem: the real one.
        n_bytes: size of the state.
        every_axis: shorten all axes alike; otherwise the first axes first, so that rows keep their
            length.
        planes: what the axes before the last keep at least, so that the problem can be divided into
            as many tiles and threads as the grid; it counts more than the length of the rows, and
            less than `n_bytes`.
    """
    most = max(1, n_bytes // (problem.n_fields * problem.dtype.itemsize))
    shape = (
        _shortened_alike(problem, most)
        if every_axis
        else _shortened_in_order(problem, most, planes)
    )
    gain = sum(abs(weight) for weight in problem.stencil.weights)
    stencil = scale(problem.stencil, 1 / gain) if gain > 1 else problem.stencil
    return dataclasses.replace(
        problem.on_shape(shape),
        stencil=stencil,
        dt=min(problem.dt, problem.dt_limit) if problem.conduction is not None else problem.dt,
        initial=random_field(problem, shape),
    )


def trial_bytes(memory: int, cache: int) -> int:
    """Bytes of state of a trial problem that behaves like a grid far larger than the caches."""
    return min(
        max(_CACHES * cache, _SMALLEST_TRIAL), _LARGEST_TRIAL, max(1 << 20, memory // _MEMORY_SHARE)
    )


def make_timed_problem(problem: Problem, n_bytes: int, *, threads: int, steps: int = 1) -> Problem:
    """A trial problem to measure speed on.

    Args:
        problem: the real one.
        n_bytes: largest size of its state.
        threads: number of CPU threads that will share it.
        steps: most steps per block of any method to be tried; tiles in space and time are about
            twice as wide as the stencil reaches in so many steps, and there should be some of them.
    """
    planes = max(_PLANES, _PLANES_PER_THREAD * threads, 4 * steps * problem.stencil.radius)
    return make_trial_problem(problem, n_bytes, planes=min(planes, _MOST_PLANES))


def kept(trial_problem: Problem) -> Problem:
    """The same, but its data are made once: for devices to which they are copied again for every
    candidate.
    """
    initial = functools.lru_cache(maxsize=None)(trial_problem.initial)
    return dataclasses.replace(trial_problem, initial=initial)


def random_field(problem: Problem, shape: tuple[int, ...]) -> InitialField:
    """Uniform numbers from 0 to 1: one for each global position, so that every part of the grid
    fits to the others.
    """
    numbers = np.random.default_rng(0).uniform(0.0, 1.0, _RANDOM_NUMBERS).astype(problem.dtype)

    @functools.lru_cache(maxsize=2)
    def windows(length: int) -> Field:
        # Row k is numbers[k : k + length], cyclic; rows are copied in one go, which is ten times as
        # fast as point by point, and a trial problem has millions of points.
        return np.lib.stride_tricks.sliding_window_view(
            np.resize(numbers, _RANDOM_NUMBERS + length - 1), length
        )

    def initial(slab: Slab) -> Field:
        rows = np.zeros((1,) * len(shape), dtype=np.int64)
        if len(shape) > 1:
            ranges = [np.arange(a, b) for a, b in zip(slab.start[:-1], slab.stop[:-1], strict=True)]
            rows = np.ravel_multi_index(np.ix_(*ranges), shape[:-1])
        first = (rows.reshape(slab.shape[:-1]) * shape[-1] + slab.start[-1]) % _RANDOM_NUMBERS
        view = windows(slab.shape[-1])
        return np.stack(
            [view[(first + field) % _RANDOM_NUMBERS] for field in range(problem.n_fields)]
        )

    return initial


def _shortened_in_order(problem: Problem, most: int, planes: int) -> tuple[int, ...]:
    shape = list(problem.grid.shape)
    for axis, radius in enumerate(problem.stencil.radii):
        if math.prod(shape) <= most:
            break
        others = math.prod(shape) // shape[axis]
        last = axis == len(shape) - 1
        least = max(2 * radius + 1, 1 if last else min(planes, most))
        shape[axis] = min(shape[axis], max(most // others, least))
    return tuple(shape)


def _shortened_alike(problem: Problem, most: int) -> tuple[int, ...]:
    shape = list(problem.grid.shape)
    left = most
    # The shortest axis first: what it does not use is for the others.
    for count, axis in enumerate(sorted(range(len(shape)), key=lambda axis: shape[axis])):
        length = int(left ** (1 / (len(shape) - count)) + 1e-9)
        if length < shape[axis]:
            if length > 2 * _VECTORS and axis == len(shape) - 1:
                length -= (length - shape[axis]) % _VECTORS
            shape[axis] = max(length, 2 * problem.stencil.radii[axis] + 1)
        left = max(1, left // shape[axis])
    return tuple(min(n, whole) for n, whole in zip(shape, problem.grid.shape, strict=True))
