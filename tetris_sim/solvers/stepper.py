"""Methods and steppers for the whole grid that solve linear systems: steady states and implicit
steps.

`cpu_kernels/solve/arithmetic.py` and `gpu_kernels/solve/arithmetic.py` supply the arithmetic of
their device.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tetris_sim.errors import TetrisError
from tetris_sim.model.method import Box, DeviceKind, Parameters, WholeGrid, WithoutParameters
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab, slices
from tetris_sim.solvers.assembly import is_plain
from tetris_sim.solvers.balance import why_not
from tetris_sim.solvers.distributed import PartArithmetic, Ranks
from tetris_sim.solvers.implicit import AdaptiveSteps, ImplicitSteps
from tetris_sim.solvers.krylov import Arithmetic, Heard, LeftOffError, nobody
from tetris_sim.solvers.solver import OneDevice, Solver, Together
from tetris_sim.solvers.steady import solve_steady, why_not_steady


@dataclass(frozen=True)
class SolvingMethod(WithoutParameters):
    """A method that finds steady states or makes implicit steps.

    Attributes:
        name: of the method.
        device: its kind of device.
        arithmetic: of an opened device.
        scheme: kind of solution.
        bytes_per_point: of device memory, at most.
        host_bytes: per point, of host memory beside it.
        plain: both numbers for a steady state without held cells or enthalpies.
        tolerance: of the remaining imbalance, or of the error of a step.
        adaptive: whether implicit steps are as long as their error allows.
        exact: False: results are accurate to the tolerance only.
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
        """Return the method with another tolerance."""
        return dataclasses.replace(self, tolerance=tolerance, adaptive=adaptive)

    def refusal(self, problem: Problem) -> str | None:
        """Say why the balance of a problem cannot be solved; None if it can."""
        return why_not_steady(problem) if self.scheme == "steady" else why_not(problem)

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Return the bytes that the solver needs on its device."""
        return self._bytes(problem)[0] * slab.n_points + problem.state_bytes

    def host_memory(self, problem: Problem, slab: Slab) -> int:
        """Return the bytes that the solver needs on the host, beside the device."""
        return self._bytes(problem)[1] * slab.n_points + problem.state_bytes

    def _bytes(self, problem: Problem) -> tuple[int, int]:
        if self.plain is not None and self.scheme == "steady" and is_plain(problem):
            return self.plain
        return self.bytes_per_point, self.host_bytes

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Make the stepper; device memory is allocated only when a system is solved."""
        implicit = AdaptiveStepper if self.adaptive else ImplicitStepper
        made = SolvingStepper if self.scheme == "steady" else implicit
        return made(problem, slab, self.arithmetic(device), self)


class SolvingStepper(WholeGrid):
    """A state that is solved for; see the protocol `Stepper` for the meaning of the calls.

    Attributes:
        slab: the planes of this rank, if several solve together; otherwise the whole grid.
        notes: remarks on the solution, sentences.
        heard: interruption request: `advance` then raises LeftOffError, and the state is unchanged.
        moved: of implicit steps, on the rank that leads, what the last `advance` moved; see
            `ImplicitSteps.moved`.
    """

    def __init__(
        self, problem: Problem, slab: Slab, arithmetic: Arithmetic, method: SolvingMethod
    ) -> None:
        self.slab, self.notes = slab, tuple[str, ...]()
        self.heard: Heard = nobody
        self.moved: dict[str, float] = {}
        self._problem, self._arithmetic, self._method = problem, arithmetic, method
        self._state: Field = np.zeros((1, *slab.shape), problem.dtype)
        self._whole: Field | None = None  # rank 0's of all ranks, as long as it is that
        self._solver: Solver = OneDevice(arithmetic)
        self._together: Together | None = None
        self._step = 0

    def join(self, ranks: Ranks, starts: Sequence[int]) -> None:
        """Solve together with other ranks from now on.

        Args:
            ranks: the communicator.
            starts: the first plane of the slab of each.
        """
        # One rank alone keeps its own device's solver.
        if self._together is None and len(starts) > 1:
            planes = [*starts, self._problem.grid.shape[0]]
            self._together = Together(PartArithmetic(self._arithmetic, ranks, planes))
            self._leads = ranks.rank == 0
            self._solver = self._together

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take all points of the slab."""
        self._state = np.array(initial(self.slab), self._problem.dtype)
        self._whole, self._step = None, step

    def advance(self, steps: int) -> None:
        """Solve for the state `steps` later."""
        if steps == 0:
            return
        with self._solver.use():
            if self._together is None:
                self._state[0] = self._solved(self._state[0], steps)
            else:
                self._advance_together(self._together, steps)
        self._step += steps

    def _solved(self, state: Field, steps: int) -> Field:
        """Return the state `steps` after that of the whole grid, (n0, ...)."""
        found = solve_steady(
            self._problem,
            state,
            self._solver,
            tolerance=self._method.tolerance,
            heard=self.heard,
        )
        again = f" in {found.solutions} linearisations" if found.solutions > 1 else ""
        self.notes = (
            f"Steady state: {found.iterations} iterations{again}, the heat balance is off by "
            f"{found.residual:.2g} of what it was.",
            *found.notes,
        )
        return found.state

    def _advance_together(self, together: Together, steps: int) -> None:
        """Rank 0 gathers the state, solves with the other ranks, and scatters the result."""
        own = self._state[0]
        # `_whole` is None after `load`: the slabs must be gathered first. On other ranks it only
        # records that this was done, since rank 0 keeps the whole grid.
        if not self._leads:
            if self._whole is None:
                together.hand_in(own)
                self._whole = own
            if together.serve(self.heard):
                together.be_given(own)
            return

        if self._whole is None:
            self._whole = np.empty(self._problem.grid.shape, own.dtype)
            together.take(own, self._whole)
        # All ranks serve until rank 0 ends, also after an error.
        try:
            self._whole = np.asarray(self._solved(self._whole, steps), own.dtype)
        except (LeftOffError, TetrisError):  # after which the others wait for the next word
            together.end(well=False)
            raise
        together.end(well=True)
        own[...] = together.give(self._whole)

    def interior(self, box: Box | None = None) -> Field:
        """Return a copy of all points, or of those inside `box`."""
        return self._state[slices(self.slab.local(box), self.slab.local())].copy()

    def find_nonfinite(self) -> Box | None:
        """Return the small box around the first value that is not finite; None if there is none."""
        finite = np.isfinite(self._state[0])
        if finite.all():
            return None
        where = np.unravel_index(int(finite.argmin()), finite.shape)
        return self.slab.around(tuple(int(i) for i in where))

    def wait(self) -> None:
        """Return at once: nothing is under way between two calls."""

    def close(self) -> None:
        """Release memory of the device."""
        self._solver.release()


class ImplicitStepper(SolvingStepper):
    """A state that takes implicit steps of fixed length."""

    _done = 0

    @functools.cached_property
    def _steps(self) -> ImplicitSteps:
        return ImplicitSteps(
            self._problem, self._solver, self._method.tolerance, heard=lambda: self.heard()
        )

    def _solved(self, state: Field, steps: int) -> Field:
        """Make some steps."""
        # Rounded to the state's dtype after every step, so that a run can be continued from any of
        # them.
        u = state.astype(np.float64)
        self._steps.moved.clear()
        for step in range(self._step, self._step + steps):
            u = self._steps.advance(u, step).astype(state.dtype, copy=False)
            u = u.astype(np.float64, copy=False)
        self._done += steps
        self.moved = dict(self._steps.moved)
        mean = self._steps.iterations / self._done
        self.notes = (f"Implicit steps: {mean:.3g} iterations each in the mean.",)
        return u


class AdaptiveStepper(SolvingStepper):
    """A state that takes adaptive implicit steps up to each output step."""

    @functools.cached_property
    def _steps(self) -> AdaptiveSteps:
        return AdaptiveSteps(self._problem, self._solver, self._method.tolerance)

    def _solved(self, state: Field, steps: int) -> Field:
        """Advance to the time of the last step at once."""
        u = state.astype(np.float64, copy=False)
        times = (self._problem.time(it) for it in (self._step, self._step + steps))
        # `heard` may have been replaced since the steps were created.
        self._steps.heard = self.heard
        self._steps.moved.clear()
        found = self._steps.advance(u, *times)
        self.moved = dict(self._steps.moved)
        it, iterations = self._steps.counted, self._steps.iterations
        self.notes = (
            f"Implicit steps: {it.made} of {it.shortest:.3g} to {it.longest:.3g} s, "
            f"{it.rejected} made again, {iterations / it.made:.3g} iterations each in the mean.",
        )
        return found
