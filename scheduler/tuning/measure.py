"""How fast is a method with certain parameters on this machine, and is its answer right?

Both are found on a piece of the real problem (`piece.py`): a piece for the speed that does not fit
into the caches if the grid does not, and a small one for the answer, which is compared with the
plain NumPy reference.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from tetris_sim import reference
from tetris_sim.method import STEPS_PER_BLOCK, Method, Parameters
from tetris_sim.problem import Problem
from tetris_sim.scheduler.machine.place import Place
from tetris_sim.scheduler.tuning.piece import piece_of
from tetris_sim.slab import Slab

_CACHES = 2  # the state of a trial piece is this many times the last-level caches
_SMALLEST_TRIAL, _LARGEST_TRIAL = (
    64 << 20,
    1 << 30,
)  # bytes; filled in a tenth of a second by one core, by hundred
_MEMORY_SHARE = (
    8  # of the memory that can be had, a trial piece takes at most one part of this many
)
_PLANES = 64  # of a trial piece: tiles of 16 steps of radius 1 need 32
_PLANES_PER_THREAD = 4
_MOST_PLANES = 1024
_CHECK_TERMS = 60_000_000  # products that the reference makes in a fifth of a second
_CHECK_POINTS = (4096, 250_000)
_CHECK_STEPS = 3
_REPEATS = 3


@dataclass(frozen=True)
class Speed:
    """What a method was measured to do.

    Attributes:
        points_per_second: point updates per second in steady state.
        latency: extra time of starting and ending one block of steps [s].
    """

    points_per_second: float
    latency: float


def steps_per_block(parameters: Parameters) -> int:
    """Steps that a method with these parameters makes on a tile before the next; 1 if it has no
    such parameter.
    """
    return max(1, parameters.get(STEPS_PER_BLOCK, 1))


def trial_bytes(memory: int, cache: int) -> int:
    """Bytes of state of a piece that behaves like a grid far larger than the caches."""
    return min(
        max(_CACHES * cache, _SMALLEST_TRIAL), _LARGEST_TRIAL, max(1 << 20, memory // _MEMORY_SHARE)
    )


def trial_piece(problem: Problem, n_bytes: int, *, threads: int, steps: int = 1) -> Problem:
    """A piece to measure speed on.

    Args:
        problem: the real one.
        n_bytes: largest size of its state.
        threads: that will share it.
        steps: most steps per block of any method to be tried; tiles in space and time are about
            twice as wide as the stencil reaches in so many steps, and there should be some of them.
    """
    planes = max(_PLANES, _PLANES_PER_THREAD * threads, 4 * steps * problem.stencil.radius)
    return piece_of(problem, n_bytes, planes=min(planes, _MOST_PLANES))


class Trial:
    """A method on a trial piece, ready to be timed again and again; to be closed."""

    def __init__(self, piece: Problem, method: Method, parameters: Parameters, device: Any) -> None:
        self._points = piece.grid.n_points * piece.n_fields
        self._block = steps_per_block(parameters)
        self._seconds: float | None = None  # per step, as far as it is known
        self._stepper = method.prepare(piece, Slab.whole(piece.grid), parameters, device)
        try:
            begin = time.perf_counter()
            self._stepper.load(piece.initial)
            self._loading = time.perf_counter() - begin
            self._advance(self._block)  # first use of code and pages
        except BaseException:
            self._stepper.close()
            raise

    def time(self, seconds: float) -> Speed:
        """One timing of whole blocks of the method's own, about so long but at least one."""
        one = self._advance(self._block) if self._seconds is None else self._block * self._seconds
        blocks = math.ceil(seconds / max(one, 1e-7))
        # where one block is long enough to be timed, starting and ending it does not count beside
        # it
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
        """About how long it would take to open such a trial once more, with the code compiled and
        in memory.
        """
        return self._loading + self.duration(0.0)

    def close(self) -> None:
        """Give the memory back."""
        self._stepper.close()

    def _advance(self, steps: int) -> float:
        begin = time.perf_counter()
        self._stepper.advance(steps)
        self._stepper.wait()
        return max(time.perf_counter() - begin, 1e-9)


def middle(speeds: list[Speed]) -> Speed:
    """The median of several timings."""
    return Speed(
        statistics.median(speed.points_per_second for speed in speeds),
        statistics.median(speed.latency for speed in speeds),
    )


def measure_speed(
    piece: Problem, method: Method, parameters: Parameters, *, place: Place, seconds: float = 0.2
) -> Speed:
    """Median speed of a method on a trial piece.

    Args:
        piece: a problem, taken as it is.
        method: how to advance it.
        parameters: one choice of `method.parameters(problem)`.
        place: on what.
        seconds: about how long to measure, after compilation.
    """
    with (
        place.opened() as device,
        contextlib.closing(Trial(piece, method, parameters, device)) as trial,
    ):
        return middle([trial.time(seconds / _REPEATS) for _ in range(_REPEATS)])


def check_steps(parameters: Parameters) -> int:
    """Steps that a check makes: more than one block of the method's own, and not a whole number of
    blocks.

    >>> [check_steps({"steps_per_block": n}) for n in (1, 2, 3, 4, 32)]
    [3, 3, 4, 6, 48]
    """
    block = steps_per_block(parameters)
    return max(_CHECK_STEPS, block + max(1, block // 2)) if block > 1 else _CHECK_STEPS


def check_method(
    problem: Problem, method: Method, parameters: Parameters, *, place: Place, effort: float = 1.0
) -> str | None:
    """Compare a method with the reference on a small piece: a sentence if it is wrong, None if it
    is right.

    Args:
        problem: what is to be advanced.
        method: how.
        parameters: one choice of `method.parameters(problem)`.
        place: on what.
        effort: 1 for as many points as the reference can do in a fifth of a second; less for fewer.
    """
    steps = check_steps(parameters)
    terms = _CHECK_TERMS * effort / (steps * problem.stencil.n_points * problem.n_fields)
    points = min(max(int(terms), _CHECK_POINTS[0]), _CHECK_POINTS[1])
    piece = piece_of(problem, points * problem.n_fields * problem.dtype.itemsize, every_axis=True)
    state = piece.initial(Slab.whole(piece.grid))
    expected = reference.advance(state, piece, steps)
    with place.opened() as device:
        stepper = method.prepare(piece, Slab.whole(piece.grid), parameters, device)
        with contextlib.closing(stepper):
            stepper.load(piece.initial)
            stepper.advance(steps)
            found = stepper.interior()
    largest = max(
        reference.largest_magnitude(state, piece), reference.largest_magnitude(expected, piece)
    )
    allowed = reference.tolerance(piece, steps, largest)
    error = float(np.abs(found - expected).max())
    if error <= allowed:
        return None
    return (
        f"{method.name} differs from the reference by {error:.2g}, more than rounding allows "
        f"({allowed:.2g})"
    )
