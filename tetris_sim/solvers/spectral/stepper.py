"""The spectral method and its stepper for the whole grid on one device; the same code on CPU and
GPU.

`cpu_kernels/solve/spectral.py` and `gpu_kernels/solve/spectral.py` supply the arrays of their
device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tetris_sim.model.method import Box, DeviceKind, Parameters, WholeGrid, WithoutParameters
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab, batches, slices
from tetris_sim.solvers.spectral.axis import Arrays, NotSpectralError, Operator, Separable
from tetris_sim.solvers.spectral.operator import read_operator, why_not_spectral
from tetris_sim.solvers.spectral.propagation import LayeredPropagation, SeparablePropagation

_BATCH_POINTS = 1 << 22  # loaded, read or searched at a time
_COPIES = 3  # of the state in float64: itself, coefficients, and what is made of them
_COPIES_OF_LAYERS = 5  # the coefficients in another order, and what is made of these


class DeviceArrays(Arrays, Protocol):
    """The array library of a device, and the control of that device."""

    def use(self) -> AbstractContextManager[Any]:
        """Make this device the current one."""

    def on_host(self, array: Any) -> Field:
        """Return a copy in host memory."""

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


class SpectralStepper(WholeGrid):
    """A state that is advanced by spectral propagation; see the protocol `Stepper` for the
    calls.
    """

    def __init__(self, problem: Problem, slab: Slab, arrays: DeviceArrays) -> None:
        """Allocate memory and extract the operator.

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
            self._jump = make_jump(read_operator(problem), arrays)
            self._state = arrays.xp.empty(problem.state_shape, problem.dtype)

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take all points, some planes at a time."""
        with self._arrays.use():
            for ranges in batches(self.slab.local(), _BATCH_POINTS):
                values = self._arrays.xp.asarray(initial(self.slab.part(ranges)))
                self._state[slices(ranges, self.slab.local())] = values

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
                finite = xp.isfinite(self._state[slices(ranges, self.slab.local())])[0]
                if not bool(finite.all()):
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
        del self._jump
        self._state = None
        self._arrays.release()


def make_jump(operator: Operator, arrays: Arrays) -> SeparablePropagation | LayeredPropagation:
    """Return the propagation over steps of an operator."""
    if isinstance(operator, Separable):
        return SeparablePropagation(operator, arrays)
    return LayeredPropagation(operator, arrays)
