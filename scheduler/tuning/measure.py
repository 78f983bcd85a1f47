"""Measurements of methods on trial problems: their speed, and whether their results are correct.

Speed is measured on a trial problem that exceeds the caches if the grid does; correctness on a
small one, against the plain NumPy reference. The last part measures how fast linear systems are
solved.
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

from tetris_sim.errors import NumericsError
from tetris_sim.model import reference
from tetris_sim.model.method import STEPS_PER_BLOCK, Method, Parameters, roundings
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.reference import allowed_error, least_allowed
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import scale
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.tuning.choice import Speed, middle
from tetris_sim.solvers.krylov import conjugate_gradients

# Trial problems: the same stencil, kinds of boundaries and dtype on fewer points with random data,
# to be timed or compared with the reference.
#
# The data are random because zeros and constants hide mistakes, and because some processors are
# slow on denormal numbers.

_RANDOM_NUMBERS = 1_000_003  # a prime: no row length makes neighbouring rows equal
_CACHES = 2  # the state of a problem to be timed is this many times the last-level caches
# Bytes of state; one core fills the smaller in a tenth of a second, a hundred cores the larger.
_SMALLEST_TRIAL, _LARGEST_TRIAL = 64 << 20, 1 << 30
_MEMORY_SHARE = 8  # a trial takes at most one part in this many of the available memory
_PLANES = 64  # of a trial: tiles of 16 steps of radius 1 need 32
_PLANES_PER_THREAD = 4
_MOST_PLANES = 1024
_SAMPLED_POINTS = 4096  # of a box of the initial state, for the range of its values
# Points; a multiple of every vector length, so that the trial has the same remainder as the grid.
_VECTORS = 64


def make_trial_problem(
    problem: Problem, n_bytes: int, *, every_axis: bool = False, planes: int = 1
) -> Problem:
    """The problem on at most `n_bytes` of state with random data, but with no fewer points along an
    axis than its stencil needs.

    If a step could make the largest value grow, the weights or the time step are scaled down, so
    that any number of steps stays finite. Compiled code takes weights as arguments, so the code is
    the same.

    Args:
        problem: the problem of the run.
        n_bytes: largest size of the state.
        every_axis: whether to shorten all axes to similar lengths; otherwise the first axes are
            shortened first, so that rows keep their length.
        planes: least length of the axes before the last, so that the trial divides into as many
            tiles and threads as the grid; it takes precedence over the length of the rows, but not
            over `n_bytes`.
    """
    most = max(1, n_bytes // (problem.n_fields * problem.dtype.itemsize))
    shape = (
        _shortened_alike(problem, most)
        if every_axis
        else _shortened_in_order(problem, most, planes)
    )

    # Largest growth of the maximum norm in a step: the sum of the absolute weights.
    gain = sum(abs(weight) for weight in problem.stencil.weights)
    stencil = scale(problem.stencil, 1 / gain) if gain > 1 else problem.stencil
    return dataclasses.replace(
        problem.on_shape(shape),
        stencil=stencil,
        dt=min(problem.dt, problem.dt_limit) if problem.conduction is not None else problem.dt,
        initial=random_field(problem, shape),
    )


def trial_bytes(memory: int, cache: int) -> int:
    """Size of the state of a trial problem that behaves like a grid far larger than the caches
    [bytes].
    """
    return min(
        max(_CACHES * cache, _SMALLEST_TRIAL), _LARGEST_TRIAL, max(1 << 20, memory // _MEMORY_SHARE)
    )


def make_timed_problem(problem: Problem, n_bytes: int, *, threads: int, steps: int = 1) -> Problem:
    """A trial problem for timing.

    Args:
        problem: the problem of the run.
        n_bytes: largest size of its state.
        threads: number of CPU threads that share it.
        steps: most steps per block of any candidate; space-time tiles are about twice as wide as
            the stencil reaches in that many steps, and the trial should have several of them.
    """
    planes = max(_PLANES, _PLANES_PER_THREAD * threads, 4 * steps * problem.stencil.radius)
    return make_trial_problem(problem, n_bytes, planes=min(planes, _MOST_PLANES))


def kept(trial_problem: Problem) -> Problem:
    """The trial problem with initial data that are made once and reused, for devices to which they
    are copied for every candidate.
    """
    initial = functools.lru_cache(maxsize=None)(trial_problem.initial)
    return dataclasses.replace(trial_problem, initial=initial)


def random_field(problem: Problem, shape: tuple[int, ...]) -> InitialField:
    """Uniform random numbers within the range of each field of the initial state, which depend on
    the global position only, so that any slab of the grid gets the same values.

    The range is that of some boxes of the grid, which are read when numbers are first wanted.
    """
    # The cycle ends where no point of a small grid asks for more.
    cycle = min(_RANDOM_NUMBERS, math.prod(shape) + problem.n_fields)

    @functools.lru_cache(maxsize=2 * problem.n_fields)
    def windows(field: int, length: int) -> Field:
        # Row k is numbers[k : k + length], cyclic; rows are copied in one go, which is ten times as
        # fast as point by point, and a trial problem has millions of points.
        return np.lib.stride_tricks.sliding_window_view(
            np.resize(numbers()[field], cycle + length - 1), length
        )

    @functools.cache
    def numbers() -> list[Field]:
        units = np.random.default_rng(0).uniform(0.0, 1.0, cycle)
        return [
            (low * (1 - units) + high * units).astype(problem.dtype)
            for low, high in _ranges(problem)
        ]

    def initial(slab: Slab) -> Field:
        rows = np.zeros((1,) * len(shape), dtype=np.int64)
        if len(shape) > 1:
            ranges = [np.arange(a, b) for a, b in zip(slab.start[:-1], slab.stop[:-1], strict=True)]
            rows = np.ravel_multi_index(np.ix_(*ranges), shape[:-1])
        # Rows are numbered through the grid; each begins where its global position falls in the
        # cycle of random numbers.
        first = (rows.reshape(slab.shape[:-1]) * shape[-1] + slab.start[-1]) % cycle
        # Field f is shifted by f, so that fields differ at every point.
        return np.stack(
            [
                windows(field, slab.shape[-1])[(first + field) % cycle]
                for field in range(problem.n_fields)
            ]
        )

    return initial


def _ranges(problem: Problem) -> list[tuple[float, float]]:
    """(least, largest) initial value of each field, in boxes at the ends and in the middle of the
    grid; where all are the same, a range beside it.
    """
    width = math.ceil(_SAMPLED_POINTS ** (1 / problem.grid.ndim))
    parts = []
    for share in (0.0, 0.5, 1.0):
        begins = [int(share * max(n - width, 0)) for n in problem.grid.shape]
        spans = zip(begins, problem.grid.shape, strict=True)
        box = Slab.box(tuple((begin, min(begin + width, n)) for begin, n in spans))
        if (state := _begun(problem, box)) is not None:
            parts.append(state.reshape(problem.n_fields, -1).astype(np.float64))

    found = []
    parts = parts or [np.zeros((problem.n_fields, 0))]
    for values in np.concatenate(parts, axis=1):
        values = values[np.isfinite(values)]
        low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
        # Equal values hide mistakes: 0 to 1 beside 0, else as much as a tenth above and below.
        if low == high:
            low, high = (0.9 * low, 1.1 * low) if low else (0.0, 1.0)
        found.append((min(low, high), max(low, high)))
    return _with_knots(problem, found)


def _begun(problem: Problem, box: Slab) -> Field | None:
    """The initial state of a box; None if it has none, which is no fault of a method: the run says
    so when it loads it.
    """
    try:
        return problem.initial(box)
    except NumericsError:
        return None


def _with_knots(problem: Problem, found: list[tuple[float, float]]) -> list[tuple[float, float]]:
    # A body of curves is tried on all pieces of them.
    knots = problem.knots
    if not knots.size:
        return found
    return [(min(low, knots.min()), max(high, knots.max())) for low, high in found]


def _half_random(problem: Problem, shape: tuple[int, ...]) -> InitialField:
    """The initial state on one half of a trial, along its longest axis, and random numbers within
    its range on the other: formulas may have no value but near the state that they are meant for.
    """
    random, axis = random_field(problem, shape), int(np.argmax(shape))

    @functools.cache
    def whole() -> Field:
        box = tuple((0, n) for n in shape)
        state = random(Slab.box(box))
        half = (*box[:axis], (0, -(-shape[axis] // 2)), *box[axis + 1 :])
        if (begun := _begun(problem, Slab.box(half))) is not None:
            state[(slice(None), *(slice(*span) for span in half))] = begun
        return state

    return lambda slab: whole()[(slice(None), *(slice(*span) for span in slab.spans))]


def _shortened_in_order(problem: Problem, most: int, planes: int) -> tuple[int, ...]:
    shape = list(problem.grid.shape)
    for axis, radius in enumerate(problem.stencil.radii):
        if math.prod(shape) <= most:
            break
        # The axis gets what the others leave of `most`, but no fewer points than its minimum: a
        # full reach of the stencil, and `planes` along the axes that are divided.
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
        # Equal length that the remaining axes would have; 1e-9 keeps exact roots from rounding
        # down.
        length = int(left ** (1 / (len(shape) - count)) + 1e-9)
        if length < shape[axis]:
            # A shortened row keeps the remainder of the grid's row modulo `_VECTORS`.
            if length > 2 * _VECTORS and axis == len(shape) - 1:
                length -= (length - shape[axis]) % _VECTORS
            shape[axis] = max(length, 2 * problem.stencil.radii[axis] + 1)
        left = max(1, left // shape[axis])
    return tuple(min(n, whole) for n, whole in zip(shape, problem.grid.shape, strict=True))


_CHECK_TERMS = 60_000_000  # products that the reference makes in a fifth of a second
_CHECK_POINTS = (4096, 250_000)
_CHECK_STEPS = 3
_PERTURBED_RUNS = (4, 12)  # of the reference before a result is called wrong
_MOST_STEPS = 1024  # of a trial: longer blocks run the same code
_REPEATS = 3


def steps_per_block(parameters: Parameters) -> int:
    """Steps that a method makes on a tile before it moves to the next; 1 if it has no such
    parameter.
    """
    return max(1, parameters.get(STEPS_PER_BLOCK, 1))


class Trial:
    """A method on an open trial problem that can be timed repeatedly; the owner closes it."""

    def __init__(
        self, problem: Problem, method: Method, parameters: Parameters, device: Any
    ) -> None:
        self._points = problem.grid.n_points * problem.n_fields
        self._block = min(steps_per_block(parameters), _MOST_STEPS)
        self._seconds: float | None = None  # per step, as far as it is known
        self._stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, device)
        # The first block compiles code and touches all pages. Loading is timed alone, since it
        # recurs when the trial is opened again.
        try:
            begin = time.perf_counter()
            self._stepper.load(problem.initial)
            self._loading = time.perf_counter() - begin
            self._advance(self._block)  # first use of code and pages
        except BaseException:
            self._stepper.close()
            raise

    def time(self, seconds: float) -> Speed:
        """One timing over whole blocks of the method: about `seconds` long, at least one block."""
        # Number of blocks that fill the time, from the last timing or from one block made now.
        one = self._advance(self._block) if self._seconds is None else self._block * self._seconds
        blocks = math.ceil(seconds / max(one, 1e-7))

        # Where one block is long enough to be timed, starting and ending it does not count.
        latency = 0.0
        if blocks > 1 or self._seconds is not None:
            one = self._advance(blocks * self._block) / blocks
        # The extra time of a block by itself, over its share of a long sequence.
        if blocks > 1:
            latency = max(0.0, self._advance(self._block) - one)

        self._seconds = one / self._block
        return Speed(self._points / self._seconds, latency)

    def duration(self, seconds: float) -> float:
        """Approximate time that `time(seconds)` takes [s]."""
        return max(seconds, self._block * (self._seconds or 0.0))

    def reopening(self) -> float:
        """Approximate time to open the trial again, with the code compiled and in memory [s]."""
        return self._loading + self.duration(0.0)

    def close(self) -> None:
        """Free the memory of the trial."""
        self._stepper.close()

    def _advance(self, steps: int) -> float:
        begin = time.perf_counter()
        self._stepper.advance(steps)
        # GPU steps are asynchronous: the clock stops after they are done.
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
        problem: the trial problem, used as it is.
        method: method that advances it.
        parameters: one choice of `method.parameters(problem)`.
        place: device to measure on.
        seconds: approximate time to measure, after compilation.
    """
    with (
        place.opened() as device,
        contextlib.closing(Trial(problem, method, parameters, device)) as trial,
    ):
        return middle([trial.time(seconds / _REPEATS) for _ in range(_REPEATS)])


def check_steps(parameters: Parameters) -> int:
    """Number of steps of a check: more than one block of the method, but not a whole number of
    blocks.

    >>> [check_steps({"steps_per_block": n}) for n in (1, 2, 3, 4, 32)]
    [3, 3, 4, 6, 48]
    """
    # Mistakes of tiled methods show in the second block and in a block cut short, so the check
    # needs both (docs/decisions/0008).
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
    """Compare a method with the reference on a small problem: None if it is correct, otherwise a
    sentence that says by how much it is off.

    Args:
        problem: problem to advance.
        method: method that advances it.
        parameters: one choice of `method.parameters(problem)`.
        place: device to run on.
        effort: 1 for as many points as the reference advances in a fifth of a second; less for
            fewer.
    """
    steps = check_steps(parameters)
    # Points for which the reference makes about `_CHECK_TERMS` products, within bounds.
    terms = _CHECK_TERMS * effort / (steps * problem.stencil.n_points * problem.n_fields)
    points = min(max(int(terms), _CHECK_POINTS[0]), _CHECK_POINTS[1])
    n_bytes = points * problem.n_fields * problem.dtype.itemsize
    small = make_trial_problem(problem, n_bytes, every_axis=True)
    small = dataclasses.replace(small, initial=_half_random(problem, small.grid.shape))
    state = small.initial(Slab.whole(small.grid)).astype(small.dtype, copy=False)
    with np.errstate(all="ignore"):  # formulas may have no value somewhere
        expected = reference.advance(state, small, steps)

    with place.opened() as device:
        stepper = method.prepare(small, Slab.whole(small.grid), parameters, device)
        with contextlib.closing(stepper):
            stepper.load(small.initial)
            stepper.advance(steps)
            computed = stepper.interior()
    wrong = _disagreement(computed, expected, state, small, steps, roundings(method, small.dtype))
    return None if wrong is None else f"{method.name} {wrong}"


def _disagreement(
    computed: Field, expected: Field, state: Field, problem: Problem, steps: int, factor: float
) -> str | None:
    """Describe the error of a result in words; None if it is within its bound.

    Args:
        computed: the result.
        expected: that of the reference.
        state: from which both begin.
        problem: that was advanced.
        steps: how many.
        factor: rounding error of the method over that of the dtype; the bound of methods that
            compute in fewer digits is wider.
    """
    # No number in the same places is agreement.
    with np.errstate(all="ignore"):
        errors = np.abs(computed.astype(np.float64) - expected)
    finite, agreed = np.isfinite(computed), np.isfinite(expected)
    errors = np.where(finite & agreed, errors, np.where(finite | agreed, np.inf, 0.0))

    # From the cheapest bound to the one that sees most: each costs more runs of the reference.
    allowed = np.asarray(least_allowed(state, expected, problem, steps))
    for runs in (0, *_PERTURBED_RUNS):
        if runs:
            allowed = allowed_error(state, expected, problem, steps, runs=runs)
        if (errors <= factor * allowed).all():
            return None
    over = errors - factor * np.broadcast_to(allowed, errors.shape)
    worst = np.unravel_index(int(np.nanargmax(over)), errors.shape)
    if not (finite[worst] and agreed[worst]):
        return f"gives {computed[worst]:.6g} where the reference gives {expected[worst]:.6g}"
    bound = factor * np.broadcast_to(allowed, errors.shape)[worst]
    return (
        f"differs from the reference by {errors[worst]:.2g}, more than rounding allows "
        f"({bound:.2g})"
    )


# Solver rates: how fast a device solves linear systems, measured on a small body, for predictions.

_LARGEST = 64  # cells of a cube along an axis: more than caches hold of all multigrid levels
_DIGITS = 1e-3  # enough iterations to be timed


@dataclass(frozen=True)
class SolvingRate:
    """Measured time of a linear solve, split into its parts.

    Attributes:
        before: setup of the preconditioner for an operator [s/point].
        iteration: one iteration of conjugate gradients [s/point].
        opened: time until the device is ready, once per run [s].
        passes: fixed time of an iteration, independent of the number of points [s].
    """

    before: float
    iteration: float
    opened: float = 0.0
    passes: float = 0.0


def measure_solving(place: ComputeResource, n_points: int) -> SolvingRate:
    """Measure the solver on a cube of about `n_points` cells, of at most 64 along an axis."""
    # A power of two, so that grids of similar size share a cached measurement.
    n = min(_LARGEST, max(8, round(n_points ** (1 / 3))))
    return _measured(place, 1 << (n.bit_length() - 1))


@functools.lru_cache(maxsize=8)
def _measured(place: ComputeResource, n: int) -> SolvingRate:
    # The first solve compiles the kernels; its timing is dropped.
    _solve(place, 8)  # compiles
    return _solve(place, n)


def _solve(place: ComputeResource, n: int) -> SolvingRate:
    rng = np.random.default_rng(0)
    # A conduction operator: conductances towards the next cell along each axis, none beyond the
    # last cells, and a diagonal term that is positive in the first layer only, which makes the
    # system definite.
    operator = [rng.uniform(1.0, 2.0, (n, n, n)) for _ in range(4)]
    for axis, k in enumerate(operator[:3]):
        k[(slice(None),) * axis + (-1,)] = 0.0
    operator[3][1:] = 0.0
    f, u = rng.standard_normal((n, n, n)), np.zeros((n, n, n))

    method = place.solving("steady")

    # Time up to `middle` builds the multigrid cycle, the rest is conjugate gradients with that
    # cycle as preconditioner.
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
