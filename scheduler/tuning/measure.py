"""How fast is a method with certain parameters on this machine, and is its answer right?

Both are found on trial problems (`trial.py`): one for the speed that does not fit into the caches
if the grid does not, and a small one for the answer, which is compared with the plain NumPy
reference.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

import numpy as np

from tetris_sim.model import reference
from tetris_sim.model.method import STEPS_PER_BLOCK, Method, Parameters, roundings
from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import allowed_error
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.machine.place import Place
from tetris_sim.scheduler.tuning.choice import Speed, middle
from tetris_sim.scheduler.tuning.trial import make_trial_problem

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
    problem: Problem, method: Method, parameters: Parameters, *, place: Place, seconds: float = 0.2
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
    problem: Problem, method: Method, parameters: Parameters, *, place: Place, effort: float = 1.0
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
