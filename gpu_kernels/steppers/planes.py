"""Halo exchange between GPUs: planes that stay in GPU memory until a neighbour takes them.

`GpuPlanes` serve neighbours in the same process, `PostedPlanes` and `Outbox` other processes on the
same computer, `NcclGroup` processes on any computer.
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
    """A copy of some planes in GPU memory; see `EdgePlanes` of model/method.py.

    A neighbour on a GPU takes it over the link between the two GPUs (`take_planes`); for every
    other reader it converts to a host array.

    Attributes:
        device: GPU in whose memory it lies.
        memory: the copy, contiguous: as it was in the slab if it has a form, else (n_fields, ...).
        form: where the points are in the copy; None if it holds nothing else.
        ready: the event after which the copy may be read; by default, the end of all work that the
            stream has so far.
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
        """Start to copy the planes to the host, asynchronously; later calls do nothing."""
        if self._leaving is None:
            self._leaving = self.device.receive_beside(self.memory, self.ready)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the points, (n_fields, ...)."""
        return tuple(self.unpacked(self.memory).shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the points."""
        return math.prod(self.shape) * int(self.memory.dtype.itemsize)

    def unpacked(self, memory: Any) -> Any:
        """The points, (n_fields, ...), of a copy of `memory` on any device."""
        return memory if self.form is None else self.form.unpacked(memory)

    def there(self) -> Any:
        """The points as a contiguous GPU array for callers without a stream; synchronizes."""
        with self.device.use() as cupy:
            points = cupy.ascontiguousarray(self.unpacked(self.memory))
        self.device.stream.synchronize()
        return points

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """The points in host memory; waits for the copy."""
        if self._leaving is None:
            staged = self.device.fetch(self.memory)
        else:
            # The copy was started by `leave`, so only the rest of it must be waited for.
            staged, there = self._leaving
            there.synchronize()
        points: npt.NDArray[Any] = self.unpacked(staged)
        return points if dtype is None else points.astype(dtype, copy=False)


class PostedPlanes:
    """Planes in the outbox of another process; see `EdgePlanes` of model/method.py. `take_planes`
    reads them.

    Attributes:
        handle: handle that opens the outbox.
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
        """The planes as an array that this GPU can read where they lie.

        Raises:
            CUDARuntimeError: the GPU cannot read that memory.
        """
        return device.open_shared(self.handle, self.nbytes).view(self.dtype).reshape(self.shape)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Refuse the conversion: only a GPU can read the planes."""
        msg = "planes in the memory of another process's GPU cannot be read by the CPU"
        raise TypeError(msg)


def take_planes(device: GpuDevice, planes: Any) -> tuple[Any, Any]:
    """Planes from any source as a GPU array, (n_fields, ...), usable on the GPU's stream.

    Returns:
        (the array, what must stay referenced until the stream has used the array).
    """
    if isinstance(planes, PostedPlanes):
        return planes.on(device), planes
    if isinstance(planes, GpuPlanes):
        # Waits on the GPU, not on the host.
        device.stream.wait_event(planes.ready)
        if planes.device.number == device.number:
            return planes.unpacked(planes.memory), planes
        return planes.unpacked(device.copy_from(planes.device, planes.memory)), planes
    if isinstance(planes, LastingPlanes):
        return device.bring_lasting(planes.memory)
    return device.bring_beside(np.ascontiguousarray(planes))


# Peer transfer between processes on the same computer, without leaving GPU memory.  The sender
# copies its planes into memory that it has opened to other processes (CUDA's inter-process handles)
# and says so in a message of one byte; the receiver copies them from there (`PostedPlanes`), over
# the link between the two GPUs, and confirms.

HANDLE_BYTES = 64  # of a cudaIpcMemHandle_t


class Outbox:
    """GPU memory in which another process finds planes, always of the same shape."""

    def __init__(self, planes: GpuPlanes) -> None:
        """Allocate memory for planes like these.

        Raises:
            CUDARuntimeError: this system cannot share the memory with other processes.
        """
        self._memory, self.handle = planes.device.share(planes.nbytes)

    def put(self, planes: GpuPlanes) -> None:
        """Copy planes into the outbox and return when they are there. The receiver must have taken
        the previous ones. Meanwhile the GPU goes on with work that was enqueued after the planes
        were taken from their slab.
        """
        here = self._memory.view(planes.memory.dtype).reshape(planes.shape)
        there = planes.device.copy_beside(here, planes.unpacked(planes.memory), planes.ready)
        there.synchronize()


# NCCL: planes that travel from GPU to GPU between processes, on one computer or several, without
# host synchronization.  Sends and receives of an axis form one group, which the GPU begins when the
# planes have left their slabs. What consumes the planes waits on the GPU as well, so Python only
# enqueues.

_BYTE = 0  # ncclInt8


def import_nccl() -> Any:
    """CuPy's binding of NCCL.

    Raises:
        UnsupportedError: NCCL is not installed.
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
    """The communicator of all processes, with one GPU each, as one of them sees it.

    Args:
        device: the GPU of this process.
        size: number of processes; all of them must create the group at the same time.
        identity: identifier of the group, made by one of them (`nccl.get_unique_id()`).
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
        """Start to send planes and to receive others, concurrently with other work of the stream.

        Between two processes they arrive in the order in which they were sent.

        Args:
            device: the GPU of this process.
            leaving: for each receiver, planes on this GPU, a contiguous array on it to send them
                from, and the receiver's rank.
            arriving: contiguous arrays on this GPU to fill, and the rank of each sender.

        Returns:
            The arriving planes, in that order; neighbours on other streams may take them too.
        """

        def talk(stream: int) -> None:
            for planes, copy, _ in leaving:
                copy[...] = planes.unpacked(planes.memory)
            # One group, since sends and receives that wait for each other would otherwise deadlock.
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
