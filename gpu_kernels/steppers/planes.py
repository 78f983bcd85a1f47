"""GpuPlanes: planes that leave a slab on a GPU, and stay in its memory until somebody takes them
from there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import PlaneForm
from tetris_sim.method import LastingPlanes


class GpuPlanes:
    """A copy of some planes, see `EdgePlanes` of method.py.

    A neighbour on a GPU takes it over the link between the two (`take_planes`), everybody else asks
    for it as an array of the host.

    Attributes:
        device: GPU in whose memory it lies.
        memory: the copy, contiguous: as it was in the slab if it has a form, else (n_fields, ...).
        form: where the points are in the copy; None if there is nothing else.
        ready: the moment from which on it may be read; what the stream does next if not given.
    """

    def __init__(
        self, device: GpuDevice, memory: Any, form: PlaneForm | None = None, ready: Any = None
    ) -> None:
        self.device, self.memory, self.form = device, memory, form
        if ready is None:
            with device.use():  # an event belongs to the GPU on which it is made
                ready = device.stream.record()
        self.ready = ready
        self._leaving: tuple[npt.NDArray[Any], Any] | None = None

    def leave(self) -> None:
        """Start to copy it to the host, beside whatever else its GPU does; once is enough."""
        if self._leaving is None:
            self._leaving = self.device.receive_beside(self.memory, self.ready)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_fields, ...)."""
        return tuple(self.unpacked(self.memory).shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its points."""
        return math.prod(self.shape) * int(self.memory.dtype.itemsize)

    def unpacked(self, memory: Any) -> Any:
        """The points, (n_fields, ...), of a copy of `memory` on any device."""
        return memory if self.form is None else self.form.unpacked(memory)

    def there(self) -> Any:
        """The points as a contiguous array of the GPU, for those who know nothing of streams; waits
        until it is so.
        """
        with self.device.use() as cupy:
            points = cupy.ascontiguousarray(self.unpacked(self.memory))
        self.device.stream.synchronize()
        return points

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """In host memory; waits for the copy."""
        if self._leaving is None:
            staged = self.device.fetch(self.memory)
        else:
            staged, there = self._leaving
            there.synchronize()
        points: npt.NDArray[Any] = self.unpacked(staged)
        return points if dtype is None else points.astype(dtype, copy=False)


class PostedPlanes:
    """Planes in the outbox of another process, see `EdgePlanes` of method.py; `take_planes` knows
    them.

    Attributes:
        handle: what opens the outbox.
        shape: (n_fields, ...).
        dtype: type of the elements.
    """

    def __init__(self, handle: bytes, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self.handle, self.shape, self.dtype = handle, shape, np.dtype(dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all planes."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def on(self, device: GpuDevice) -> Any:
        """Where they lie, as an array that this GPU can read.

        Raises:
            CUDARuntimeError: it cannot.
        """
        return device.open_shared(self.handle, self.nbytes).view(self.dtype).reshape(self.shape)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Only a GPU can read them."""
        msg = "planes in the memory of another process's GPU cannot be read by the CPU"
        raise TypeError(msg)


def take_planes(device: GpuDevice, planes: Any) -> tuple[Any, Any]:
    """Planes from anywhere as an array of a GPU, (n_fields, ...), usable on its stream.

    Returns:
        (the array, what must not be forgotten before the stream has come so far).
    """
    if isinstance(planes, PostedPlanes):
        return planes.on(device), planes
    if isinstance(planes, GpuPlanes):
        device.stream.wait_event(planes.ready)
        if planes.device.number == device.number:
            return planes.unpacked(planes.memory), planes
        return planes.unpacked(device.copy_from(planes.device, planes.memory)), planes
    if isinstance(planes, LastingPlanes):
        return device.bring_lasting(planes.memory)
    return device.bring_beside(np.ascontiguousarray(planes))
