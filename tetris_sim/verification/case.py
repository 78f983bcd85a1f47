"""Verification cases: their form, their outcome, and the small problems it is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Field, InitialField, Problem, StateVariable, Total
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.simulation.loop import open_simulation

# Lengths and spacings that are unequal on every axis, so that no two axes can be taken for each
# other.
SHAPES = {1: (53,), 2: (29, 42), 3: (13, 18, 22)}
SPACINGS = {1: (0.5,), 2: (0.5, 0.4), 3: (0.5, 0.4, 0.3)}

_VARIABLE = StateVariable("u", "1", "u", Total("integral", "1", 1.0))


class Advance(Protocol):
    """One way to compute a problem (see `solver.py`)."""

    @property
    def stepwise(self) -> bool:
        """Whether a point's result depends on its neighbourhood alone, not on where it lies."""

    def __call__(self, problem: Problem, *, workers: int = 1) -> Field:
        """The state after the last step, (n_fields, n0, ...), computed by so many workers."""


@dataclass(frozen=True)
class Outcome:
    """The finding of a case.

    Attributes:
        error: largest deviation from the exact answer.
        bound: how large it may be.
        order: observed order of accuracy, if the case refines a grid; the bound then follows from
            the error on a coarser one.
    """

    error: float
    bound: float
    order: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the answer is right; NaN never is."""
        return self.error <= self.bound


@dataclass(frozen=True)
class VerificationCase:
    """One thing that must be true of every method.

    Attributes:
        name: what it is about, for the table.
        ndim: number of axes.
        check: advances problems of the given precision and compares; may be called with any
            method's `Advance`.
        precisions: in which it is tried.
    """

    name: str
    ndim: int
    check: Callable[[Advance, np.dtype[Any]], Outcome]
    precisions: tuple[str, ...] = ("float64", "float32")


def finite_or_null(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with None for numbers that JSON cannot hold."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def make_problem(
    stencil: Stencil, boundary: Boundary, initial: InitialField, *, dtype: np.dtype[Any], steps: int
) -> Problem:
    """A problem on the usual small grid of the stencil's dimension."""
    ndim = stencil.ndim
    grid = Grid(SHAPES[ndim], SPACINGS[ndim], tuple(h / 2 for h in SPACINGS[ndim]))
    return Problem(
        grid=grid,
        stencil=stencil,
        boundary=boundary,
        initial=initial,
        dt=1.0,
        steps=steps,
        dtype=dtype,
        variables=(_VARIABLE,),
    )


def from_array(state: Field) -> InitialField:
    """The initial state that is `state`, (n_fields, n0, ...)."""

    def initial(slab: Slab) -> Field:
        owned = tuple(slice(start, stop) for start, stop in zip(slab.start, slab.stop, strict=True))
        return state[(slice(None), *owned)]

    return initial


def rounded_weights(problem: Problem) -> Stencil:
    """The stencil with the weights that are computed with: rounded to the dtype of the problem."""
    weights = tuple(
        float(weight) for weight in np.array(problem.stencil.weights, dtype=problem.dtype)
    )
    return Stencil(problem.stencil.offsets, weights)


def rounding_per_step(problem: Problem) -> float:
    """By how much rounding can change a value in one step, if no value is larger than 1.

    A sum of n products rounds n times and a reflected ghost value twice, each time by at most eps /
    2 of the sum of the magnitudes. What a stable step makes of earlier errors is not larger than
    they were.
    """
    eps = float(np.finfo(problem.dtype).eps)
    return (
        (problem.stencil.n_points + 2)
        * eps
        / 2
        * sum(abs(weight) for weight in rounded_weights(problem).weights)
    )


# Does the error fall with the order of the scheme when a grid is refined?

_MARGIN = 0.15  # observed orders approach the true one from either side as the grid is refined


def refine(errors: Sequence[float], sizes: Sequence[int], order: int) -> Outcome:
    """The error on the finest grid: it must have fallen with the order of the scheme.

    Args:
        errors: on grids that are refined.
        sizes: number of points, or of steps, of these.
        order: of the scheme.
    """
    ratio = sizes[-1] / sizes[-2]
    observed = math.log(errors[-2] / errors[-1]) / math.log(ratio)
    return Outcome(errors[-1], errors[-2] / ratio ** (order - _MARGIN), observed)


# How the cases are computed: by the plan and the run loop of every simulation.


class RefusalError(Exception):
    """The method says that it cannot do a problem; not a mistake of either."""


@dataclass(frozen=True)
class CaseSolver:
    """Advances a problem from its first to its last step with one method.

    Attributes:
        method: which.
        machine: on what.
    """

    method: Method
    machine: Machine

    @property
    def stepwise(self) -> bool:
        """Whether a point's result does not depend on where the point lies."""
        return self.method.exact

    def __call__(self, problem: Problem, *, workers: int = 1) -> Field:
        """The state after the last step, (n_fields, n0, ...).

        Args:
            problem: what to advance, from its step 0.
            workers: between how many workers the grid is split.

        Raises:
            RefusalError: the method does not do this problem.
            UnsupportedError: it does, but disagrees with the reference.
        """
        why_not = self.method.refusal(problem)
        if why_not is not None:
            raise RefusalError(why_not)

        devices = "gpu" if self.method.device == "gpu" else ("cpu",) * workers
        # Timing candidates on problems this small would take longer than computing them.
        compute = ComputeSection(method=self.method.name, devices=devices, tuning_budget=0)
        plan = make_plan(problem, self.machine, compute)
        with open_simulation(problem, plan) as simulation:
            simulation.run()
            return simulation.field()
