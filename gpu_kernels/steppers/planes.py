"""GpuPlanes: planes that leave a slab on a GPU, and stay in its memory until somebody takes them
from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import PlaneForm
from tetris_sim.model.method import LastingPlanes


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
        self.ready = device.stream.record() if ready is None else ready
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


# Mailboxes: planes that go from one process to another on the same computer without leaving the
# memory of their GPUs.
#
# The sender copies its planes into memory that it has opened to other processes (CUDA's inter-
# process handles), and says so in a message of one byte; the receiver copies them from there
# (`PostedPlanes`), over the link between the two GPUs, and says that it has.

HANDLE_BYTES = 64  # of a cudaIpcMemHandle_t


class Outbox:
    """Memory of a GPU in which another process finds planes, always as many."""

    def __init__(self, planes: GpuPlanes) -> None:
        """Take as much memory as these planes need.

        Raises:
            CUDARuntimeError: the memory cannot be opened to others here.
        """
        self._memory, self.handle = planes.device.share(planes.nbytes)

    def put(self, planes: GpuPlanes) -> None:
        """Returns when they are there; those from before must have been taken. The GPU goes on with
        what it was told after they were taken from their slab.
        """
        here = self._memory.view(planes.memory.dtype).reshape(planes.shape)
        there = planes.device.copy_beside(here, planes.unpacked(planes.memory), planes.ready)
        there.synchronize()


# NCCL: planes that go from GPU to GPU between processes, on one computer or several, and no host
# waits for them.
#
# Sends and receives of an axis are one group, which the GPU begins when the planes have left their
# slabs. What takes them in waits on the GPU as well, so that Python only says what is to be done.

_BYTE = 0  # ncclInt8


def import_nccl() -> Any:
    """CuPy's way to the library.

    Raises:
        UnsupportedError: it is not there.
    """
    msg = "CuPy finds no NCCL (pip install nvidia-nccl-cu13 or -cu12)"
    try:
        from cupy.cuda import nccl
    except ImportError as error:
        raise UnsupportedError(msg) from error
    if not getattr(nccl, "available", True):  # so say those of its builds that have none
        raise UnsupportedError(msg)
    return nccl


class NcclGroup:
    """The GPUs of all processes, one each, as one of them sees them.

    Args:
        device: the GPU of this process.
        size: number of processes; all of them open the group at the same time.
        identity: of the group, made by one of them (`nccl.get_unique_id()`).
        rank: number of this process.

    Raises:
        NcclError: the GPUs cannot reach each other.
    """

    def __init__(self, device: GpuDevice, size: int, identity: Any, rank: int) -> None:
        self._nccl = import_nccl()
        with device.use():
            self._group = self._nccl.NcclCommunicator(size, identity, rank)

    def swap(
        self,
        device: GpuDevice,
        leaving: Sequence[tuple[GpuPlanes, Any, int]],
        arriving: Sequence[tuple[Any, int]],
    ) -> list[GpuPlanes]:
        """Start to send planes and to receive others, beside what the stream was told and will be.

        Between two processes they arrive in the order in which they were sent.

        Args:
            device: the GPU of this process.
            leaving: planes of it, a contiguous array of it that they are sent from, the receiver.
            arriving: contiguous arrays of it that are filled, and the sender of each.

        Returns:
            What arrives, in that order; also a neighbour of another stream may take it.
        """

        def talk(stream: int) -> None:
            for planes, copy, _ in leaving:
                copy[...] = planes.unpacked(planes.memory)
            self._nccl.groupStart()
            try:
                for _, copy, to in leaving:
                    self._group.send(device.address(copy), copy.nbytes, _BYTE, to, stream)
                for array, source in arriving:
                    self._group.recv(device.address(array), array.nbytes, _BYTE, source, stream)
            finally:
                self._nccl.groupEnd()

        there = device.talk(talk, [planes.ready for planes, _, _ in leaving])
        return [GpuPlanes(device, array, ready=there) for array, _ in arriving]
