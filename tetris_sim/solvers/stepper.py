"""SolvingMethod: the whole grid on one device, brought on by solving balances.

`cpu_kernels/solve/method.py` and `gpu_kernels/solve/method.py` hand in the arithmetic of their
device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tetris_sim.method import (
    Box,
    DeviceKind,
    Parameters,
    WholeGrid,
    WithoutParameters,
)
from tetris_sim.problem import Field, InitialField, Problem
from tetris_sim.slab import Slab, slices
from tetris_sim.solvers.adaptive import AdaptiveSteps
from tetris_sim.solvers.assembly import is_plain
from tetris_sim.solvers.balance import why_not
from tetris_sim.solvers.gradients import Arithmetic, Heard, nobody
from tetris_sim.solvers.implicit import ImplicitSteps
from tetris_sim.solvers.steady import solve_steady, why_not_steady


@dataclass(frozen=True)
class SolvingMethod(WithoutParameters):
    """Steady states, or implicit steps.

    Attributes:
        name: of the method.
        device: its kind of device.
        arithmetic: of an opened device.
        scheme: what is solved for.
        bytes_per_point: of the memory of its device, at most.
        host_bytes: by point, of the memory of the host beside it.
        plain: the same two of a steady state without held cells or heat contents.
        tolerance: of what is left of the heat balance, or of the error of a step.
        adaptive: whether implicit steps are as long as their error allows.
        exact: its results are known to the tolerance.
    """

    name: str
    device: DeviceKind
    arithmetic: Callable[[Any], Arithmetic]
    scheme: Literal["steady", "implicit"]
    bytes_per_point: int
    host_bytes: int = 0
    plain: tuple[int, int] | None = None
    tolerance: float = 1e-8
    adaptive: bool = False
    exact: bool = False

    def to(self, tolerance: float, *, adaptive: bool = False) -> SolvingMethod:
        """The same with another tolerance."""
        return dataclasses.replace(self, tolerance=tolerance, adaptive=adaptive)

    def refusal(self, problem: Problem) -> str | None:
        """Why the balance of a problem cannot be solved."""
        return why_not_steady(problem) if self.scheme == "steady" else why_not(problem)

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """For every point what a solver needs of it."""
        return self._bytes(problem)[0] * slab.n_points + problem.state_bytes

    def host_memory(self, problem: Problem, slab: Slab) -> int:
        """The same of the host, beside the device."""
        return self._bytes(problem)[1] * slab.n_points + problem.state_bytes

    def _bytes(self, problem: Problem) -> tuple[int, int]:
        if self.plain is not None and self.scheme == "steady" and is_plain(problem):
            return self.plain
        return self.bytes_per_point, self.host_bytes

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Nothing is taken before it is known what has to be solved."""
        implicit = AdaptiveStepper if self.adaptive else ImplicitStepper
        made = SolvingStepper if self.scheme == "steady" else implicit
        return made(problem, slab, self.arithmetic(device), self)


class SolvingStepper(WholeGrid):
    """A state that is solved for; see the Protocol `Stepper` for what the calls mean.

    Attributes:
        slab: the whole grid.
        notes: what must be known of how it was solved, sentences.
        heard: whether somebody wants to end: `advance` then raises LeftOffError, and the state is
            what it was before.
    """

    def __init__(
        self, problem: Problem, slab: Slab, arithmetic: Arithmetic, method: SolvingMethod
    ) -> None:
        self.slab, self.notes = slab, tuple[str, ...]()
        self.heard: Heard = nobody
        self._problem, self._arithmetic, self._method = problem, arithmetic, method
        self._state: Field = np.zeros(problem.state_shape, problem.dtype)

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take all points."""
        self._state = np.array(initial(self.slab), self._problem.dtype)

    def advance(self, steps: int) -> None:
        """Solve, if the answer is not there yet."""
        if steps == 0:
            return
        with self._arithmetic.use():
            found = solve_steady(
                self._problem,
                self._state[0],
                self._arithmetic,
                tolerance=self._method.tolerance,
                heard=self.heard,
            )
        self._state[0] = found.state
        again = f" in {found.solutions} linearisations" if found.solutions > 1 else ""
        self.notes = (
            f"Steady state: {found.iterations} iterations{again}, the heat balance is off by "
            f"{found.residual:.2g} of what it was.",
            *found.notes,
        )

    def interior(self, box: Box | None = None) -> Field:
        """A copy of all points, or of those inside `box`."""
        return self._state[slices(self.slab.local(box), self.slab.local())].copy()

    def find_nonfinite(self) -> Box | None:
        """The box of a few points around the first value that is not finite."""
        finite = np.isfinite(self._state[0])
        if finite.all():
            return None
        where = np.unravel_index(int(finite.argmin()), finite.shape)
        return self.slab.around(tuple(int(i) for i in where))

    def wait(self) -> None:
        """Nothing is under way between two calls."""

    def close(self) -> None:
        """Give memory of the device back."""
        self._arithmetic.release()


class ImplicitStepper(SolvingStepper):
    """A state that takes implicit steps."""

    def __init__(
        self, problem: Problem, slab: Slab, arithmetic: Arithmetic, method: SolvingMethod
    ) -> None:
        super().__init__(problem, slab, arithmetic, method)
        self._steps = ImplicitSteps(
            problem, arithmetic, method.tolerance, heard=lambda: self.heard()
        )
        self._done, self._step = 0, 0

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take all points."""
        super().load(initial, step)
        self._step = step

    def advance(self, steps: int) -> None:
        """Make some steps."""
        u = self._state[0].astype(np.float64)
        for step in range(self._step, self._step + steps):
            with self._arithmetic.use():
                u = self._steps.advance(u, step).astype(self._state.dtype, copy=False)
            u = u.astype(np.float64, copy=False)
        self._state[0] = u
        self._step += steps
        self._done += steps
        if self._done:
            mean = self._steps.iterations / self._done
            self.notes = (f"Implicit steps: {mean:.3g} iterations each in the mean.",)


class AdaptiveStepper(SolvingStepper):
    """A state that takes implicit steps of any length to the next step that is wanted."""

    def __init__(
        self, problem: Problem, slab: Slab, arithmetic: Arithmetic, method: SolvingMethod
    ) -> None:
        super().__init__(problem, slab, arithmetic, method)
        self._steps, self._step = AdaptiveSteps(problem, arithmetic, method.tolerance), 0

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take all points."""
        super().load(initial, step)
        self._step = step

    def advance(self, steps: int) -> None:
        """Go to another step at once."""
        if steps == 0:
            return
        end = self._step + steps
        u = self._state[0].astype(np.float64, copy=False)
        times = (self._problem.time(it) for it in (self._step, end))
        self._steps.heard = self.heard
        self._state[0] = self._steps.advance(u, *times)
        self._step = end
        it, iterations = self._steps.counted, self._steps.iterations
        self.notes = (
            f"Implicit steps: {it.made} of {it.shortest:.3g} to {it.longest:.3g} s, "
            f"{it.rejected} made again, {iterations / it.made:.3g} iterations each in the mean.",
        )
