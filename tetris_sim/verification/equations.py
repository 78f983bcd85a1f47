"""Systems of equations as VisualPDE, py-pde and textbooks print them, compared with SciPy.

Each is posed as printed. Two things are measured. The state at the end is compared with SciPy's
`solve_ivp` on right-hand sides that are written again in NumPy, with none of the modules that
discretise formulas. The stable step, of which `dt: auto` takes `time.safety` (0.9), is compared
with the longest with which the same right-hand sides, advanced by the same scheme in NumPy, stay
stable, found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.config import make_config
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.simulation.loop import open_simulation
from tetris_sim.verification.standards import StandardRow

Array = npt.NDArray[np.float64]
Rates = Callable[..., tuple[Array, ...]]

_EXACT = 2e-6  # of the largest value: what both solvers' tolerances of 1e-9 leave
_NEAR = 0.1  # of the longest stable step, by which the one that is found may differ
_FAR = 0.4  # the same where a reason is given
_HALVINGS = 9
_STEPS = 600  # at the automatic step; what is unstable shows by then
_LOUD = 3.0  # times the largest value that SciPy finds: a state that large is no solution
_ROUGH = 0.02  # of the range, of waves of two points more than SciPy finds


class Differences:
    """Central differences of second order on a grid, by shifted copies.

    Args:
        spacing: of all axes.
        ghosts: how an array is continued beyond its edges by one point: of `np.pad`, or "odd" for a
            face held at 0.
    """

    def __init__(self, spacing: float, ghosts: str) -> None:
        self._h, self._ghosts = spacing, ghosts

    def _padded(self, u: Array) -> Array:
        if self._ghosts != "odd":
            return np.pad(u, 1, mode=self._ghosts)  # type: ignore[call-overload,no-any-return]
        # A face at 0 half a cell beyond the last point: the ghost is minus that point.
        wide = np.pad(u, 1, mode="edge")
        for axis in range(u.ndim):
            along = np.moveaxis(wide, axis, 0)
            along[0] *= -1
            along[-1] *= -1
        return wide

    def beside(self, u: Array, axis: int) -> tuple[Array, Array]:
        """The points before and after along an axis, counted from x."""
        wide, along = self._padded(u), u.ndim - 1 - axis
        # Arrays are z, y, x; axes are counted from x.
        inner = [slice(1, -1)] * u.ndim
        low, high = list(inner), list(inner)
        low[along], high[along] = slice(None, -2), slice(2, None)
        return wide[tuple(low)], wide[tuple(high)]

    def d(self, u: Array, axis: int = 0) -> Array:
        """First derivative."""
        low, high = self.beside(u, axis)
        return (high - low) / (2 * self._h)

    def dd(self, u: Array, axis: int = 0) -> Array:
        """Second derivative."""
        low, high = self.beside(u, axis)
        return (low - 2 * u + high) / self._h**2

    def laplace(self, u: Array) -> Array:
        """Sum of second derivatives."""
        total: Array = sum((self.dd(u, k) for k in range(1, u.ndim)), start=self.dd(u))
        return total

    def slope2(self, u: Array) -> Array:
        """Square of the gradient."""
        total: Array = sum((self.d(u, k) ** 2 for k in range(1, u.ndim)), start=self.d(u) ** 2)
        return total

    def div_grad(self, k: Array, u: Array) -> Array:
        """Divergence of k grad u, k on faces being the mean of both sides."""
        total = np.zeros_like(u)
        for axis in range(u.ndim):
            for beside, k_beside in zip(self.beside(u, axis), self.beside(k, axis), strict=True):
                total += (k + k_beside) / 2 * (beside - u) / self._h**2
        return total


@dataclass(frozen=True)
class PosedSystem:
    """A system of equations, and the same in NumPy.

    Attributes:
        name: what it is called.
        source: where it is printed.
        equations: right-hand sides by field, of `second` those of second derivatives.
        rates: the same: of differences, places (x, or x and y) and fields, of a field with
            `second` followed by its velocity.
        initial: formulas by field.
        constants: by name.
        shape: points along x, y.
        spacing: of the points.
        faces: type of all faces: periodic, neumann, or dirichlet with value 0.
        scheme: whose automatic step is measured.
        t_end: until when states are compared.
        second: fields whose equations are of second order.
        free: why the automatic step is not within a tenth of the longest one.
    """

    name: str
    source: str
    equations: Mapping[str, str]
    rates: Rates
    initial: Mapping[str, str]
    constants: Mapping[str, float] = field(default_factory=dict)
    shape: tuple[int, ...] = (24, 24)
    spacing: float = 1.0
    faces: str = "periodic"
    scheme: str = "euler"
    t_end: float = 2.0
    second: tuple[str, ...] = ()
    free: str = ""

    def rows(self) -> list[StandardRow]:
        """Solve it on a CPU, and compare."""
        return [*self._rows()]

    def _rows(self) -> Iterator[StandardRow]:
        problem = make_config(self.sections(tolerance=1e-9, t_end=self.t_end)).build()
        compute = ComputeSection(devices="cpu", method="cpu.plain")
        plan = make_plan(problem, find_machine(), compute)
        with open_simulation(problem, plan) as simulation:
            simulation.run()
            found = np.asarray(simulation.field())
        exact = self.trajectory(start_of(problem), self.t_end)[-1]
        error = np.abs(found - exact).max() / np.abs(exact).max()
        yield StandardRow("difference from solve_ivp", 0.0, _EXACT, float(error))

        ratio = self.share_of_longest()
        near = _FAR if self.free else _NEAR
        yield StandardRow("stable step by the longest one", 1.0, near, ratio)

    def sections(self, *, tolerance: float | None = None, t_end: float = 1.0) -> dict[str, Any]:
        """It as a configuration."""
        time: dict[str, Any] = {"scheme": self.scheme, "t_end": t_end, "safety": 1}
        if tolerance is not None:
            time |= {"scheme": "rk4", "tolerance": tolerance}

        fields: dict[str, Any] = {}
        for name, text in self.equations.items():
            start = {"type": "expression", "expression": self.initial[name]}
            fields[name] = {
                "second_order" if name in self.second else "equation": text,
                "initial": start,
            }
        face = {"type": self.faces} | ({"value": 0} if self.faces == "dirichlet" else {})
        return {
            "grid": {"shape": [*self.shape], "spacing": [self.spacing] * len(self.shape)},
            "model": {"type": "pde", "constants": {**self.constants}, "fields": fields},
            "boundaries": {"*": face},
            "time": time,
        }

    def right_side(self) -> Callable[[Array], Array]:
        """du/dt of a state (n_fields, n0, ...) in NumPy."""
        ghosts = {"periodic": "wrap", "neumann": "edge", "dirichlet": "odd"}[self.faces]
        differences = Differences(self.spacing, ghosts)
        along = [(np.arange(n) + 0.5) * self.spacing for n in self.shape]
        places = np.meshgrid(*along[::-1], indexing="ij")[::-1]

        def rate(state: Array) -> Array:
            with np.errstate(all="ignore"):
                return np.stack(self.rates(differences, places, *state))

        return rate

    def trajectory(self, start: Array, t_end: float, looks: int = 1) -> list[Array]:
        """States by SciPy at evenly spaced times, the last one at the end."""
        from scipy.integrate import solve_ivp

        rate, times = self.right_side(), np.linspace(0, t_end, looks + 1)[1:]
        found = solve_ivp(
            lambda _, flat: rate(flat.reshape(start.shape)).ravel(),
            (0, t_end),
            start.ravel(),
            method="DOP853",
            t_eval=times,
            rtol=1e-9,
            atol=1e-11,
        )
        return [flat.reshape(start.shape) for flat in found.y.T]

    def share_of_longest(self) -> float:
        """The automatic step by the longest stable one."""
        # The step depends on how long the run is: what has no time to grow limits nothing.
        until = _STEPS * make_config(self.sections(t_end=1e6)).build().dt
        problem = make_config(self.sections(t_end=until)).build()
        start, automatic = start_of(problem), problem.dt
        # All waves take part: those of two points are not in smooth states.
        start = start * (1 + 1e-2 * np.random.default_rng(0).uniform(-1, 1, start.shape))
        known = self.trajectory(start, until, looks=12)
        # Bisection in the logarithm of the step; the automatic one must be within a factor of four.
        low, high = automatic / 4, automatic * 4
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (
                (middle, high) if self._stays(start, middle, known, until) else (low, middle)
            )
        return automatic / math.sqrt(low * high)

    def _stays(self, start: Array, dt: float, known: list[Array], until: float) -> bool:
        """Whether steps of one length neither blow up nor make a zigzag."""
        # Two signs of instability: growth beyond the true solution, and zigzags from point to point
        # that it does not have.
        loudest = np.max([np.abs(it).max() for it in (start, *known)])
        roughest = np.max([_zigzag(it) for it in (start, *known)])
        span = max(np.ptp(it) for it in known)
        state, step = start, _STEP[self.scheme]
        rate = self.right_side()
        for _ in range(math.ceil(until / dt)):
            state = step(rate, state, dt, self)
            if not np.abs(state).max() <= _LOUD * loudest:
                return False
        return bool(_zigzag(state) <= 1.5 * roughest + _ROUGH * span)


def start_of(problem: Problem) -> Array:
    """The state at the start, (n_fields, n0, ...)."""
    return np.asarray(problem.initial(Slab.whole(problem.grid)), np.float64)


def _zigzag(state: Array) -> float:
    """How much of a state alternates from point to point, along any axis."""
    found = []
    for axis in range(1, state.ndim):
        along = np.moveaxis(state, axis, 0)
        found.append(np.abs(along[:-2] - 2 * along[1:-1] + along[2:]).max() / 4)
    return float(max(found))


def _euler(rate: Callable[[Array], Array], u: Array, dt: float, _: PosedSystem) -> Array:
    return u + dt * rate(u)


def _rk4(rate: Callable[[Array], Array], u: Array, dt: float, _: PosedSystem) -> Array:
    a = rate(u)
    b = rate(u + dt / 2 * a)
    c = rate(u + dt / 2 * b)
    return u + dt / 6 * (a + 2 * b + 2 * c + rate(u + dt * c))


def _leapfrog(rate: Callable[[Array], Array], u: Array, dt: float, _: PosedSystem) -> Array:
    # Fields and velocities take turns in the state.
    u = u.copy()
    u[1::2] += dt * rate(u)[1::2]
    u[0::2] += dt * u[1::2]
    return u


_STEP = {"euler": _euler, "rk4": _rk4, "leapfrog": _leapfrog}
