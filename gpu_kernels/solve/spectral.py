"""gpu.spectral: spectral propagation with CuPy's transforms and matrix products on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.model.problem import Field, Problem
from tetris_sim.solvers.spectral.exponential import ArrayRates
from tetris_sim.solvers.spectral.stepper import (
    IntegratingMethod,
    SpectralMethod,
)


class GpuArrays:
    """The array operations of spectral propagation on a GPU; implements the Protocol
    `DeviceArrays`.
    """

    # See `SpectralAxis`, which falls back to matrix products for other types.
    types = frozenset({2, 3})  # types of cosine and sine transforms that cupyx.scipy.fft has

    def __init__(self, device: GpuDevice) -> None:
        import cupyx.scipy.fft

        self.xp: Any = device.cupy
        self.fft: Any = cupyx.scipy.fft
        self.options: dict[str, Any] = {}
        self._device = device

    def each(self, parts: Sequence[slice], work: Callable[[slice], None]) -> None:
        """Call `work` for one part after the other, since each part fills the GPU."""
        for part in parts:
            work(part)

    def use(self) -> contextlib.AbstractContextManager[Any]:
        """Make the GPU current for CuPy."""
        return self._device.use()

    def on_host(self, array: Any) -> Field:
        """A copy of an array in host memory."""
        with self._device.use():
            return self._device.fetch(self.xp.ascontiguousarray(array))

    def rates(self, problem: Problem) -> Callable[[Any, float], Any]:
        """Right-hand sides by operations on whole arrays, which stay on the GPU."""
        return ArrayRates(problem, self.xp)

    def wait(self) -> None:
        """Return when the GPU is done."""
        self._device.stream.synchronize()

    def release(self) -> None:
        """Return its unused memory."""
        self._device.release()


METHOD = SpectralMethod("gpu.spectral", "gpu", GpuArrays, GpuArrays.types)


def integrating(scheme: str) -> IntegratingMethod:
    """The method that integrates right-hand sides by a scheme."""
    return IntegratingMethod(scheme, "gpu", GpuArrays)
