"""Verification cases: their form, their outcome, and the small problems it is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tetris_sim.config import make_config
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


_DIFFUSIVITY = 1e-5  # m^2/s
_CONDUCTIVITY = 0.5  # W/(m K)

Values = npt.NDArray[np.float64]


def solution_cases() -> Iterator[VerificationCase]:
    """Cooling by convection, a spreading Gaussian, and steady states."""
    double = ("float64",)
    for ndim in (1, 2, 3):
        yield VerificationCase(
            "convective cooling, series solution", ndim, partial(_check_cooling, ndim), double
        )

    # The number of steps makes errors in time as small as those in space.
    for name, ndim, order, steps in (
        ("heat-1d", 1, 2, 45),
        ("star-1d5p", 1, 4, 81),
        ("heat-2d", 2, 2, 45),
        ("star-2d9p", 2, 4, 81),
        ("heat-3d", 3, 2, 63),
    ):
        yield VerificationCase(
            f"spreading Gaussian {name}", ndim, partial(_check_gaussian, name, order, steps), double
        )

    for name, ndim in (("box-2d9p", 2), ("box-3d27p", 3)):
        yield VerificationCase(
            f"spreading Gaussian {name}, CFL 1/6",
            ndim,
            partial(_check_isotropic, name, ndim),
            double,
        )
    for ndim in (1, 2, 3):
        yield VerificationCase(
            "steady state between two temperatures", ndim, partial(_check_steady, ndim)
        )


def _build(**sections: Any) -> Problem:
    # Not the variables of the user's environment: they are for the user's runs.
    return make_config(sections, environ={}).build()


def cooling_series(biot: float, fourier: float, depth: Values, terms: int = 30) -> Values:
    """Temperature of a slab that was 1 everywhere and is cooled at its face by an ambient of 0.

    H. S. Carslaw and J. C. Jaeger, Conduction of Heat in Solids, 2nd ed. (Oxford, 1959), section
    3.11: the sum over the roots of zeta tan(zeta) = Bi of 4 sin(zeta) / (2 zeta + sin(2 zeta))
    exp(-zeta^2 Fo) cos(zeta x / L).

    Args:
        biot: heat transfer coefficient * thickness / conductivity.
        fourier: diffusivity * time / thickness^2.
        depth: distance from the insulated face in units of the thickness, (n,).
        terms: how many roots; each later one decays faster.
    """
    from scipy.optimize import brentq

    # One root per branch of the tangent; `brentq` cannot leave its bracket.
    total = np.zeros_like(depth)
    for n in range(terms):
        # zeta tan(zeta) rises from 0 to infinity on each of these intervals.
        zeta = brentq(
            lambda z: z * math.sin(z) - biot * math.cos(z),
            n * math.pi,
            (n + 0.5) * math.pi,
            xtol=1e-14,
        )
        factor = 4 * math.sin(zeta) / (2 * zeta + math.sin(2 * zeta))
        total += factor * math.exp(-(zeta**2) * fourier) * np.cos(zeta * depth)
    return total


def _check_cooling(ndim: int, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """A body insulated at its low faces, cooled at its high ones: a product of slabs per axis."""
    lengths = (0.1, 0.08, 0.05)[:ndim]  # along x, y, z [m]
    transfer = (5.0, 12.5, 4.0)[:ndim]  # [W/(m^2 K)]
    duration = 0.3 * 0.1**2 / _DIFFUSIVITY
    # The second grid is twice as fine, so the ratio of errors gives the order.
    sizes = (20, 40) if ndim < 3 else (10, 20)
    boundaries: dict[str, Any] = {"*": {"type": "neumann"}}
    for axis, h in zip("xyz", transfer, strict=False):
        boundaries[f"{axis}+"] = {"type": "robin", "h": h, "ambient": 20.0}

    errors = []
    for n in sizes:
        shape = [n, n * 6 // 5, n // 2][:ndim]
        problem = _build(
            grid={"shape": shape, "size": list(lengths)},
            model={"type": "heat", "diffusivity": _DIFFUSIVITY, "conductivity": _CONDUCTIVITY},
            initial={"type": "constant", "value": 120.0},
            boundaries=boundaries,
            time={"cfl": 0.1, "t_end": duration},
        )

        exact: Any = np.ones(())
        for length, points, h in zip(lengths, shape, transfer, strict=True):
            depth = (np.arange(points) + 0.5) / points
            series = cooling_series(
                h * length / _CONDUCTIVITY, _DIFFUSIVITY * duration / length**2, depth
            )
            exact = np.multiply.outer(series, exact)  # x becomes the last axis
        errors.append(float(np.abs(advance(problem)[0] - (20 + 100 * exact)).max()))

    return refine(errors, sizes, 2)


def _check_gaussian(
    name: str, order: int, steps: int, advance: Advance, dtype: np.dtype[Any]
) -> Outcome:
    """On unequal spacings, with a step that shrinks like the spacing to the power of the order."""
    ndim = int(name[name.index("-") + 1])
    lengths, sizes = (1.0, 0.9, 0.8)[:ndim], (96, 128) if ndim == 1 else (48, 64)
    errors = []
    for n in sizes:
        shape = [n, n * 5 // 4, n][:ndim]
        count = round(steps * (n / sizes[0]) ** order)  # whole by the choice of `steps`
        errors.append(_gaussian_error(name, shape, lengths, 150.0, count, advance))
    return refine(errors, sizes, order)


def _check_isotropic(name: str, ndim: int, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """At CFL 1/6 the leading errors of a box Laplacian in space and time cancel: fourth order.

    Both are multiples of the Laplacian applied twice, h^2 / 12 and diffusivity dt / 2.
    """
    sizes, steps = (48, 64), 18
    duration = steps / (6 * sizes[0] ** 2 * _DIFFUSIVITY)
    errors = []
    for n in sizes:
        count = round(steps * (n / sizes[0]) ** 2)
        errors.append(_gaussian_error(name, [n] * ndim, (1.0,) * ndim, duration, count, advance))
    return refine(errors, sizes, 4)


def _gaussian_error(
    name: str,
    shape: list[int],
    lengths: tuple[float, ...],
    duration: float,
    steps: int,
    advance: Advance,
) -> float:
    """A Gaussian stays one: sigma^2 grows by 2 diffusivity t. The faces are too far to matter."""
    ndim, sigma = len(shape), 0.06
    center = [
        fraction * length for fraction, length in zip((0.5, 0.52, 0.47), lengths, strict=False)
    ]
    problem = _build(
        grid={"shape": shape, "size": list(lengths)},
        model={"type": "heat", "diffusivity": _DIFFUSIVITY, "stencil": name},
        initial={"type": "gaussian", "amplitude": 100.0, "sigma": sigma, "center": center},
        boundaries={"*": {"type": "neumann"}},
        time={"dt": duration / steps, "t_end": duration},
    )

    variance = sigma**2 + 2 * _DIFFUSIVITY * duration
    exact: Any = np.full((), 100 * (sigma**2 / variance) ** (ndim / 2))
    for length, points, middle in zip(lengths, shape, center, strict=True):
        x = (np.arange(points) + 0.5) * (length / points)
        # x becomes the last axis.
        exact = np.multiply.outer(np.exp(-((x - middle) ** 2) / (2 * variance)), exact)
    return float(np.abs(advance(problem)[0] - exact).max())


def _check_steady(ndim: int, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    """Between two faces of given temperature, others insulated, it becomes a straight line."""
    axis = "xyz"[ndim - 1]
    shape, lengths = [14, 12, 10][:ndim], [0.14, 0.18, 0.2][:ndim]
    points = shape[ndim - 1]
    cold, hot = -10.0, 30.0
    problem = _build(
        grid={"shape": shape, "size": lengths},
        model={"type": "heat", "diffusivity": _DIFFUSIVITY},
        initial={"type": "random", "low": cold, "high": hot, "seed": ndim},
        boundaries={
            "*": {"type": "neumann"},
            f"{axis}-": {"type": "dirichlet", "value": cold},
            f"{axis}+": {"type": "dirichlet", "value": hot},
        },
        time={"steps": 8000},
        compute={"precision": str(dtype)},
    )

    line = cold + (hot - cold) * (np.arange(points) + 0.5) / points
    exact = line.reshape(-1, *[1] * (ndim - 1))  # the last of x, y, z is axis 0
    error = float(np.abs(advance(problem)[0] - exact).max())

    # The slowest mode that is left, and the roundings of one step summed over all earlier ones as
    # they decay.
    theta = np.zeros(ndim)
    theta[0] = math.pi / points
    slowest = float(problem.stencil.symbol(theta).real)
    largest = 2 * hot - cold  # of the ghosts beyond the hot face
    roundings = largest * rounding_per_step(problem) / (1 - slowest)
    return Outcome(error, (hot - cold) * slowest**problem.steps + roundings)
