"""gpu.spectral: jumps with CuPy's transforms and matrix products on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.problem import Field
from tetris_sim.spectral.stepper import SpectralMethod


class GpuArrays:
    """CuPy on a GPU; see the Protocol `DeviceArrays`."""

    types = frozenset({2, 3})  # that cupyx.scipy.fft has

    def __init__(self, device: GpuDevice) -> None:
        import cupyx.scipy.fft

        self.xp: Any = device.cupy
        self.fft: Any = cupyx.scipy.fft
        self.options: dict[str, Any] = {}
        self._device = device

    def each(self, parts: Sequence[slice], work: Callable[[slice], None]) -> None:
        """One after the other: each fills the GPU."""
        for part in parts:
            work(part)

    def use(self) -> contextlib.AbstractContextManager[Any]:
        """Make it the GPU that CuPy means."""
        return self._device.use()

    def on_host(self, array: Any) -> Field:
        """A copy in host memory."""
        with self._device.use():
            return self._device.fetch(self.xp.ascontiguousarray(array))

    def wait(self) -> None:
        """Return when the GPU is done."""
        self._device.stream.synchronize()

    def release(self) -> None:
        """Give its memory back."""
        self._device.release()


METHOD = SpectralMethod("gpu.spectral", "gpu", GpuArrays, GpuArrays.types)
