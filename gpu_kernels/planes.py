"""GpuPlanes: planes that leave a slab on a GPU, and stay in its memory until somebody takes them from there."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.device import GpuDevice


class GpuPlanes:
    """A copy of some planes, see `EdgePlanes` of method.py.

    A neighbour on a GPU takes it over the link between the two (`take_planes`), everybody else asks for it as an array
    of the host.

    Attributes:
        device: in whose memory it lies.
        array: the copy, contiguous.
        ready: the moment from which on it may be read.
    """

    def __init__(self, device: GpuDevice, array: Any) -> None:
        self.device, self.array = device, array
        self.ready = device.stream.record()

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_fields, ...)."""
        return tuple(self.array.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of it."""
        return int(self.array.nbytes)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """In host memory; waits for the copy."""
        found = self.device.fetch(self.array)
        return found if dtype is None else found.astype(dtype, copy=False)


def take_planes(device: GpuDevice, planes: Any) -> tuple[Any, Any]:
    """Planes from anywhere as an array of a GPU, usable on its stream.

    Returns:
        (the array, what must not be forgotten before the stream has come so far).
    """
    if isinstance(planes, GpuPlanes):
        device.stream.wait_event(planes.ready)
        if planes.device.number == device.number:
            return planes.array, planes
        return device.copy_from(planes.device, planes.array), planes
    return device.bring(np.ascontiguousarray(planes))
