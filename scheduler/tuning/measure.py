"""How fast is a method with certain parameters on this machine, and is its answer right?

Both are found on trial problems (`trial.py`): one for the speed that does not fit into the caches
if the grid does not, and a small one for the answer, which is compared with the plain NumPy
reference.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from tetris_sim.model import reference
from tetris_sim.model.method import STEPS_PER_BLOCK, Method, Parameters, roundings
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.reference import allowed_error
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import scale
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.tuning.choice import Speed, middle
from tetris_sim.solvers.krylov import conjugate_gradients

# Trial problems: the same stencil, boundary kinds and dtype on fewer points with random data, to be
# timed or compared with the reference.
#
# Random data, because zeros and constants hide mistakes, and numbers too small to be normal slow
# some processors down.

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


_CHECK_TERMS = 60_000_000  # products that the reference makes in a fifth of a second
_CHECK_POINTS = (4096, 250_000)
_CHECK_STEPS = 3
_MOST_STEPS = 1024  # of a trial: whoever asks for longer blocks gets no other code by it
_REPEATS = 3


def steps_per_block(parameters: Parameters) -> int:
    """Steps that a method makes on a tile before the next; 1 if it has no such parameter."""
    return max(1, parameters.get(STEPS_PER_BLOCK, 1))


class Trial:
    """A method on a trial problem, ready to be timed again and again; to be closed."""

    def __init__(
        self, problem: Problem, method: Method, parameters: Parameters, device: Any
    ) -> None:
        self._points = problem.grid.n_points * problem.n_fields
        self._block = min(steps_per_block(parameters), _MOST_STEPS)
        self._seconds: float | None = None  # per step, as far as it is known
        self._stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, device)
        try:
            begin = time.perf_counter()
            self._stepper.load(problem.initial)
            self._loading = time.perf_counter() - begin
            self._advance(self._block)  # first use of code and pages
        except BaseException:
            self._stepper.close()
            raise

    def time(self, seconds: float) -> Speed:
        """One timing of whole blocks of the method's own, about so long but at least one."""
        one = self._advance(self._block) if self._seconds is None else self._block * self._seconds
        blocks = math.ceil(seconds / max(one, 1e-7))

        # Where one block is long enough to be timed, starting and ending it does not count.
        latency = 0.0
        if blocks > 1 or self._seconds is not None:
            one = self._advance(blocks * self._block) / blocks
        if blocks > 1:
            latency = max(0.0, self._advance(self._block) - one)

        self._seconds = one / self._block
        return Speed(self._points / self._seconds, latency)

    def duration(self, seconds: float) -> float:
        """About how long `time(seconds)` takes."""
        return max(seconds, self._block * (self._seconds or 0.0))

    def reopening(self) -> float:
        """About how long opening would take once more, with the code compiled and in memory."""
        return self._loading + self.duration(0.0)

    def close(self) -> None:
        """Give the memory back."""
        self._stepper.close()

    def _advance(self, steps: int) -> float:
        begin = time.perf_counter()
        self._stepper.advance(steps)
        self._stepper.wait()
        return max(time.perf_counter() - begin, 1e-9)


def measure_speed(
    problem: Problem,
    method: Method,
    parameters: Parameters,
    *,
    place: ComputeResource,
    seconds: float = 0.2,
) -> Speed:
    """Median speed of a method on a trial problem.

    Args:
        problem: taken as it is.
        method: way to advance it.
        parameters: one choice of `method.parameters(problem)`.
        place: device that it is measured on.
        seconds: about how long to measure, after compilation.
    """
    with (
        place.opened() as device,
        contextlib.closing(Trial(problem, method, parameters, device)) as trial,
    ):
        return middle([trial.time(seconds / _REPEATS) for _ in range(_REPEATS)])


def check_steps(parameters: Parameters) -> int:
    """Steps of a check: more than one block of the method's own, but no whole number of blocks.

    >>> [check_steps({"steps_per_block": n}) for n in (1, 2, 3, 4, 32)]
    [3, 3, 4, 6, 48]
    """
    block = min(steps_per_block(parameters), _MOST_STEPS)
    return max(_CHECK_STEPS, block + max(1, block // 2)) if block > 1 else _CHECK_STEPS


def check_method(
    problem: Problem,
    method: Method,
    parameters: Parameters,
    *,
    place: ComputeResource,
    effort: float = 1.0,
) -> str | None:
    """Compare a method with the reference on a small problem: a sentence if it is wrong, None if it
    is right.

    Args:
        problem: what is to be advanced.
        method: way to advance it.
        parameters: one choice of `method.parameters(problem)`.
        place: device that it runs on.
        effort: 1 for as many points as the reference can do in a fifth of a second; less for fewer.
    """
    steps = check_steps(parameters)
    terms = _CHECK_TERMS * effort / (steps * problem.stencil.n_points * problem.n_fields)
    points = min(max(int(terms), _CHECK_POINTS[0]), _CHECK_POINTS[1])
    n_bytes = points * problem.n_fields * problem.dtype.itemsize
    small = make_trial_problem(problem, n_bytes, every_axis=True)
    state = small.initial(Slab.whole(small.grid))
    expected = reference.advance(state, small, steps)

    with place.opened() as device:
        stepper = method.prepare(small, Slab.whole(small.grid), parameters, device)
        with contextlib.closing(stepper):
            stepper.load(small.initial)
            stepper.advance(steps)
            computed = stepper.interior()

    allowed = allowed_error(state, expected, small, steps) * roundings(method, small.dtype)
    errors = np.abs(computed - expected).reshape(small.n_fields, -1).max(axis=1)
    if (errors <= allowed).all():
        return None
    worst = int(np.argmax(errors / allowed))
    return (
        f"{method.name} differs from the reference by {errors[worst]:.2g}, more than rounding "
        f"allows ({allowed[worst]:.2g})"
    )


# How fast do CPU threads solve balances? Measured on a small body, for predictions.

_LARGEST = 64  # cells of a cube along an axis: more than caches keep of all levels
_DIGITS = 1e-3  # enough iterations to be timed


@dataclass(frozen=True)
class SolvingRate:
    """What a solution takes.

    Attributes:
        before: what is made for an operator before the first iteration [s/point].
        iteration: of conjugate gradients [s/point].
        opened: until the device is ready, once [s].
        passes: of an iteration, however few points there are [s].
    """

    before: float
    iteration: float
    opened: float = 0.0
    passes: float = 0.0


def measure_solving(place: ComputeResource, n_points: int) -> SolvingRate:
    """On a body of as many points as are quickly solved for."""
    n = min(_LARGEST, max(8, round(n_points ** (1 / 3))))
    return _measured(place, 1 << (n.bit_length() - 1))


@functools.lru_cache(maxsize=8)
def _measured(place: ComputeResource, n: int) -> SolvingRate:
    _solve(place, 8)  # compiles
    return _solve(place, n)


def _solve(place: ComputeResource, n: int) -> SolvingRate:
    rng = np.random.default_rng(0)
    operator = [rng.uniform(1.0, 2.0, (n, n, n)) for _ in range(4)]
    for axis, k in enumerate(operator[:3]):
        k[(slice(None),) * axis + (-1,)] = 0.0
    operator[3][1:] = 0.0
    f, u = rng.standard_normal((n, n, n)), np.zeros((n, n, n))
    method = place.solving("steady")
    with place.opened() as opened:
        device = method.arithmetic(opened)
        with device.use():
            begin = time.perf_counter()
            cycle = device.cycle(tuple(operator))
            middle = time.perf_counter()
            solved = conjugate_gradients(
                tuple(operator),
                f,
                u,
                device,
                cycle,
                tolerance=_DIGITS,
                scale=float(np.linalg.norm(f)),
                limit=100,
            )
            end = time.perf_counter()
    points = n**3
    return SolvingRate((middle - begin) / points, (end - middle) / points / solved.iterations)
