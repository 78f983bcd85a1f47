"""The spectral method and its stepper for the whole grid on one device; the same code on CPU and
GPU.

`cpu_kernels/solve/arithmetic.py` and `gpu_kernels/solve/arithmetic.py` supply the arrays of their
device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tetris_sim.errors import NumericsError
from tetris_sim.model.equations import Substeps
from tetris_sim.model.linearisation import FaceError, split
from tetris_sim.model.method import Box, DeviceKind, Parameters, WholeGrid, WithoutParameters
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.rounding import Failures, observed
from tetris_sim.model.slab import Slab, batches, slices
from tetris_sim.solvers.krylov import nobody
from tetris_sim.solvers.newton import DividedSteps, newton_steps
from tetris_sim.solvers.spectral.axis import Arrays, NotSpectralError, Operator, Separable
from tetris_sim.solvers.spectral.exponential import SPLIT_SCHEMES, ArrayRates
from tetris_sim.solvers.spectral.operator import read_operator, why_not_spectral
from tetris_sim.solvers.spectral.propagation import LayeredPropagation, SeparablePropagation
from tetris_sim.solvers.steady import SteadyState

_BATCH_POINTS = 1 << 22  # loaded, read or searched at a time
_COPIES = 3  # of the state in float64: itself, coefficients, and what is made of them
_COPIES_OF_LAYERS = 5  # the coefficients in another order, and what is made of these


class DeviceArrays(Arrays, Protocol):
    """The array library of a device, and the control of that device."""

    def use(self) -> AbstractContextManager[Any]:
        """Make this device the current one."""

    def on_host(self, array: Any) -> Field:
        """Return a copy in host memory."""

    def rates(self, problem: Problem) -> Callable[[Any, float], Any]:
        """Compile right-hand sides, in float64: a function of a state and its time [s]."""

    def wait(self) -> None:
        """Return when everything is done."""

    def release(self) -> None:
        """Release unused memory."""


@dataclass(frozen=True)
class SpectralMethod(WithoutParameters):
    """A method that makes any number of steps at once.

    Attributes:
        name: of the method.
        device: its kind of device.
        arrays: library of an opened device.
        types: of transforms that it has.
        exact: False: results are those of stepping only to within rounding.
    """

    name: str
    device: DeviceKind
    arrays: Callable[[Any], DeviceArrays]
    types: frozenset[int]
    exact: bool = False

    def refusal(self, problem: Problem) -> str | None:
        """Say why a step is not made of operators along single axes; None if it is."""
        return why_not_spectral(problem)

    def least_memory(self, problem: Problem) -> int:
        """Return a lower bound of the memory for any problem of this size, without inspecting its
        axes.
        """
        # Which kind of operator it is would need a look at all axes; the cheaper kind bounds both.
        copies = min(_COPIES, _COPIES_OF_LAYERS)
        return 8 * copies * problem.grid.n_points + problem.state_bytes

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Return the bytes of the copies of the state, and of eigenvectors where there is no
        transform.
        """
        # A problem that is refused needs no memory.
        try:
            operator = read_operator(problem, with_forcing=False)
        except NotSpectralError:
            return 0
        # Equal axes share one matrix.
        wide = {axis.n for axis in operator.axes if axis.needs_matrix}
        copies = _COPIES if isinstance(operator, Separable) else _COPIES_OF_LAYERS
        return 8 * (copies * slab.n_points + sum(n * n for n in wide)) + problem.state_bytes

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Allocate memory for the whole grid."""
        return SpectralStepper(problem, slab, self.arrays(device))


class DeviceStepper(WholeGrid):
    """The state of the whole grid as an array of a device; see the protocol `Stepper`."""

    def __init__(self, problem: Problem, slab: Slab, arrays: DeviceArrays) -> None:
        """Allocate memory.

        Args:
            problem: the problem to advance.
            slab: the whole grid.
            arrays: library of the device.

        Raises:
            ValueError: the slab is only a part of the grid.
        """
        if slab.shape != problem.grid.shape:
            msg = f"a jump needs the whole grid of {problem.grid.shape}, not {slab.shape} of it"
            raise ValueError(msg)
        self.slab, self._problem, self._arrays = slab, problem, arrays
        with arrays.use():
            self._state = arrays.xp.empty(problem.state_shape, problem.dtype)
        self._step = 0

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take all points, some planes at a time."""
        self._step = step
        with self._arrays.use():
            for ranges in batches(self.slab.local(), _BATCH_POINTS):
                values = self._arrays.xp.asarray(initial(self.slab.part(ranges)))
                self._state[slices(ranges, self.slab.local())] = values

    def interior(self, box: Box | None = None) -> Field:
        """Return a copy of all points, or of those inside `box`."""
        with self._arrays.use():
            wanted = slices(self.slab.local(box), self.slab.local())
            return self._arrays.on_host(self._state[wanted])

    def find_nonfinite(self) -> Box | None:
        """Return the small box around the first value that is not finite; None if there is none."""
        xp = self._arrays.xp
        # In batches, which bound the memory of the mask.
        with self._arrays.use():
            for ranges in batches(self.slab.local(), _BATCH_POINTS):
                here = xp.isfinite(self._state[slices(ranges, self.slab.local())])
                finite = here.all(axis=0)
                if not bool(finite.all()):
                    # `argmin` of booleans is the first False.
                    where = np.unravel_index(int(finite.argmin()), finite.shape)
                    return self.slab.around(
                        tuple(low + int(i) for (low, _), i in zip(ranges, where, strict=True))
                    )
        return None

    def wait(self) -> None:
        """Return when the device is done."""
        self._arrays.wait()

    def close(self) -> None:
        """Release memory."""
        # References first, or the library could not return their memory.
        self._state = None
        self._arrays.release()


class SpectralStepper(DeviceStepper):
    """A state that is advanced by spectral propagation."""

    def __init__(self, problem: Problem, slab: Slab, arrays: DeviceArrays) -> None:
        """Allocate memory and extract the operator; as of `DeviceStepper`."""
        super().__init__(problem, slab, arrays)
        with arrays.use():
            self._jump = make_jump(read_operator(problem), arrays)

    def advance(self, steps: int) -> None:
        """Propagate over some steps."""
        if steps == 0:
            return
        with self._arrays.use():
            u = self._state[0]
            # Always in float64, whatever the dtype of the state: rounding it once per call is
            # enough.
            jumped = self._jump.advance(u.astype(np.float64, copy=False), steps)
            self._state = jumped.astype(self._problem.dtype, copy=False)[np.newaxis]

    def close(self) -> None:
        """Release memory."""
        del self._jump
        super().close()


def make_jump(operator: Operator, arrays: Arrays) -> SeparablePropagation | LayeredPropagation:
    """Return the propagation over steps of an operator."""
    if isinstance(operator, Separable):
        return SeparablePropagation(operator, arrays)
    return LayeredPropagation(operator, arrays)


# Right-hand sides that are integrated in time: by waves of their linear part, or by Newton's
# method.

_WAVES = 16  # arrays of coefficients that a split scheme keeps, each of the size of a state
_NEWTON_BYTES = 3000  # per unknown: entries of the Jacobian and of its factors


_HOW = {
    "etdrk4": "the linear part of the equations is propagated exactly by transforms, the rest by a "
    "Runge-Kutta method of fourth order",
    "imex": "the linear part of the equations is solved for by transforms, the rest is explicit, "
    "in a Runge-Kutta pair of third order",
    "implicit": "TR-BDF2, each step by Newton's method with derivatives of the formulas",
    "steady": "Newton's method with derivatives of the formulas, by steps of a time that grow",
}


@dataclass(frozen=True)
class IntegratingMethod(WithoutParameters):
    """A method for problems by right-hand sides (`Rates`).

    Attributes:
        scheme: of `Rates`.
        device: its kind of device.
        arrays: library of an opened device.
        exact: False: results are accurate to the tolerance only.
    """

    scheme: str
    device: DeviceKind
    arrays: Callable[[Any], DeviceArrays]
    exact: bool = False

    @property
    def name(self) -> str:
        """Of the method, "cpu.etdrk4" or "cpu.newton"."""
        return f"{self.device}.{self.scheme if self.scheme in SPLIT_SCHEMES else 'newton'}"

    @property
    def how(self) -> str:
        """How it gets on, for the plan."""
        return _HOW[self.scheme]

    def refusal(self, problem: Problem) -> str | None:
        """Say why right-hand sides cannot be integrated so; None if they can."""
        if problem.rates is None:
            return "it integrates right-hand sides, and this problem is a step"
        equations = problem.equations
        if self.scheme == "steady" and any(it.changes for it in equations.parameters):  # type: ignore[union-attr]
            return "formulas or faces change with time, so nothing stays as it is; give numbers"
        if self.scheme not in SPLIT_SCHEMES:
            if self.device == "gpu":
                return (
                    "equations of this kind are solved on CPU threads; let compute.devices name cpu"
                )
            return None
        try:
            split(problem)
        except FaceError as error:
            return str(error)
        return None

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Return the bytes of coefficients and states, or of the Jacobian and its factors."""
        n_unknowns = problem.n_fields * slab.n_points
        return n_unknowns * (8 * _WAVES if self.scheme in SPLIT_SCHEMES else _NEWTON_BYTES)

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Allocate memory and compile right-hand sides."""
        return IntegratingStepper(problem, slab, self.arrays(device))


class IntegratingStepper(DeviceStepper):
    """A state that is integrated in time.

    Attributes:
        notes: remarks on the steps, sentences.
        heard: interruption request: `advance` then raises LeftOffError, and the state is unchanged.
        moved: heat that lumps, streams and their like gave in the last `advance`, by name [J].
    """

    def __init__(self, problem: Problem, slab: Slab, arrays: DeviceArrays) -> None:
        super().__init__(problem, slab, arrays)
        assert problem.rates is not None
        self.notes, self.heard = tuple[str, ...](), nobody
        self.moved: dict[str, float] = {}
        # In float64, whatever the dtype of the state, which rounds it after each step.
        wide = replace(problem, dtype=np.dtype(np.float64))
        with arrays.use():
            self._steps: Any = make_steps(wide, arrays)
        self._steps.heard = lambda: self.heard()

    def advance(self, steps: int) -> None:
        """Make some steps."""
        with self._arrays.use():
            # Bound to `self` only when all steps are made: after an interruption the old state is
            # whole.
            state = self._state
            for step in range(self._step, self._step + steps):
                u = self._made(state.astype(np.float64, copy=False), step)
                state = u.astype(self._problem.dtype, copy=False)
            self._state = state
        self._step += steps
        self.notes = self._steps.notes
        # Only what is solved for by Newton's method counts.
        counted = getattr(self._steps, "moved", {})
        self.moved = dict(counted)
        counted.clear()

    def _made(self, u: Any, step: int) -> Any:
        try:
            return self._steps.advance(u, step)
        except NumericsError as error:
            time = self._problem.time(step)
            if (found := failing(ArrayRates(self._problem), self._arrays.on_host(u), time)) is None:
                raise
            where = self._problem.grid.point_in_words(found[1])
            msg = f"{error}. It begins at point {where} with {found[0]}"
            raise NumericsError(msg) from error

    def close(self) -> None:
        """Release memory."""
        del self._steps
        super().close()


class _Watched:
    """Arrays of the host, whose right-hand sides are looked at when they are evaluated.

    Attributes:
        failed: the operation that first made no number of numbers, in words, and its point.
    """

    def __init__(self, arrays: DeviceArrays) -> None:
        self._arrays = arrays
        self.failed: tuple[str, tuple[int, ...]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._arrays, name)

    def rates(self, problem: Problem) -> Callable[[Any, float], Any]:
        """Evaluate right-hand sides by whole arrays."""
        evaluate = ArrayRates(problem)

        def of(u: Any, time: float) -> Any:
            self.failed = self.failed or failing(evaluate, u, time)
            return evaluate(u, time)

        return of


def failing(rates: ArrayRates, u: Field, time: float) -> tuple[str, tuple[int, ...]] | None:
    """Return the operation of right-hand sides that first makes no number of a state at a time [s],
    in words, and its point; None if all are numbers.
    """
    failures = Failures()
    with np.errstate(all="ignore"):
        found = rates(observed(np.array(u, np.float64), failures), time).view(np.ndarray)
    bad = np.asarray(~np.isfinite(found).all(axis=0))
    return failures.first(bad) if bad.any() else None


def first_failure(
    problem: Problem, u: Field, steps: int, first: int, arrays: DeviceArrays
) -> tuple[int, tuple[int, ...], str] | None:
    """Find out where a state of equal steps in transforms stops being finite, as the function of
    this name in `reference.py` does.
    """
    watched: Any = _Watched(arrays)
    taken = make_steps(replace(problem, dtype=np.dtype(np.float64)), watched)
    for number in range(first, first + steps):
        with np.errstate(all="ignore"):
            u = taken.advance(np.asarray(u, np.float64), number)
        if watched.failed is not None:
            operation, point = watched.failed
            return number, point, operation
        if not np.isfinite(u).all():
            break
    return None


def make_steps(problem: Problem, arrays: DeviceArrays) -> Any:
    """Return what advances a state by steps of the scheme of a problem."""
    assert problem.rates is not None
    if problem.rates.scheme in SPLIT_SCHEMES:
        scheme = SPLIT_SCHEMES[problem.rates.scheme](problem, arrays)
        return DividedSteps(problem, scheme, arrays.xp)
    return (SteadyState if problem.rates.scheme == "steady" else newton_steps)(problem, arrays)


def as_substep(problem: Problem) -> Problem:
    """Return right-hand sides as the substep of a stepper, which then gives them instead of a new
    state; in float64.
    """
    assert problem.rates is not None
    numbers = problem.rates.numbers
    substeps = Substeps({}, 1, 1.0, 1.0, lambda begin, length, found: numbers(begin))
    equations = replace(problem.system, rates=None, substeps=substeps)
    return replace(problem, dtype=np.dtype(np.float64), equations=equations)
