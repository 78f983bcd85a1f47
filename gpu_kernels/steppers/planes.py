"""Halo exchange between GPUs: planes that stay in GPU memory until a neighbour takes them.

`GpuPlanes` serve neighbours in the same process, `PostedPlanes` and `Outbox` other processes on the
same computer, `NcclGroup` processes on any computer. Whole states travel between
host and GPU part by part, on all cores, through pinned memory. Random initial fields are made on
the GPU, and non-finite values are found there.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import (
    STORED,
    PlaneForm,
    box_argument,
    by_value,
    to_device,
)
from tetris_sim.gpu_kernels.steppers.passes import DeviceState
from tetris_sim.model.grid import on_three
from tetris_sim.model.method import LastingPlanes
from tetris_sim.model.problem import Field, InitialField, RandomField
from tetris_sim.model.slab import RandomNumbers, Ranges
from tetris_sim.support import usable_cores


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


# The search for non-finite values has a kernel of its own (`finite.cu`): with CuPy's functions the
# first search of a first run took 3.2 to 3.6 s, with the kernel 0.15 s including its compilation
# (1024^3 points, one H200, float64, 2026-11-23).

_FINITE_THREADS, _MOST_ROWS, _MOST_PLANES = 256, 1024, 64  # blocks of a launch, which go on


def first_nonfinite(state: DeviceState) -> tuple[int, ...] | None:
    """The index of the first owned point that is not finite in some field, counted in the slab;
    None if all are finite.

    Waits for all work enqueued before.
    """
    device, shape = state.device, state.slab.shape
    z, y, x = on_three(shape, 1)
    grid = (-(-x // _FINITE_THREADS), min(y, _MOST_ROWS), min(z, _MOST_PLANES))
    defines = {"TS_REAL": STORED[state.layout.dtype.name]}

    n_points = math.prod(shape)
    with device.use() as cupy:
        function = device.function("finite.cu", "first_nonfinite", defines)
        # The kernel lowers this number atomically; it stays as it is if all points are finite.
        first = cupy.asarray(np.array([n_points], np.uint64))
        box = box_argument(((0, z), (0, y), (0, x)))
        for now, _ in state.fields():
            function(grid, (_FINITE_THREADS, 1, 1), (now, state.memory, box, first))
        number = int(device.fetch(first)[0])
    if number == n_points:
        return None
    return tuple(int(at) for at in np.unravel_index(number, shape))


# Random initial fields, made on a GPU bitwise identical to those of the host (`philox.cu`).

# Smallest number of points for the GPU: compiling the kernel takes 0.23 s once, longer than the
# host needs for fewer points (one H200, 2026-11-23).
_MANY_POINTS = 1 << 24
_RANDOM_THREADS, _PER_THREAD = 256, 4
_MOST_BLOCKS = 65535


def random_numbers(initial: InitialField, state: DeviceState) -> RandomNumbers | None:
    """The random numbers of an initial field if the GPU can make them; None if the host has to.

    The GPU does not check its results, so all of them must be finite.
    """
    if not isinstance(initial, RandomField) or state.layout.n_fields > 1:
        return None
    many = math.prod(state.slab.shape) >= _MANY_POINTS
    largest = float(np.finfo(state.layout.dtype).max) / 2
    numbers = initial.numbers
    finite = max(abs(numbers.low), abs(numbers.high)) <= largest
    return numbers if many and finite else None


def fill(numbers: RandomNumbers, state: DeviceState) -> None:
    """Write random numbers to the owned points of a slab; returns when they are there."""
    device, slab = state.device, state.slab
    # A block of random numbers has one key; a slab needs all blocks that it intersects.
    touched = [
        range(start // width, -(-stop // width))
        for start, stop, width in zip(slab.start, slab.stop, numbers.block, strict=True)
    ]
    keys = np.array([numbers.key(place) for place in itertools.product(*touched)], np.uint64)

    # The argument struct of philox.cu: grid, slab, block width, and the range of blocks.
    first = on_three([blocks.start for blocks in touched], 0)
    count = on_three([len(blocks) for blocks in touched], 1)
    shape, width = on_three(numbers.shape, 1), on_three(numbers.block, 1)
    start, stop = on_three(slab.start, 0), on_three(slab.stop, 1)
    blocks = np.array([*shape, *start, *stop, *width, *first, *count], np.int32)
    limits = np.array([numbers.low, numbers.high])

    defines = {"TS_REAL": STORED[state.layout.dtype.name]}
    groups = -(-math.prod(width) // _PER_THREAD)
    grid = (-(-groups // _RANDOM_THREADS), min(math.prod(count), _MOST_BLOCKS), 1)
    with device.use():
        function = device.function("philox.cu", "fill", defines)
        there = to_device(device, keys)
        (now, _), *_ = state.fields()
        arguments = (now, there, state.memory, by_value(blocks), by_value(limits))
        function(grid, (_RANDOM_THREADS, 1, 1), arguments)
        device.stream.synchronize()


PART_POINTS = 1 << 21  # per transfer: large against the cost of a call, and few buffers suffice
_TRAVELLING = 2  # parts in flight while others are made
_MOST_THREADS = 16  # enough to saturate the link to a GPU

Buffer = npt.NDArray[Any]


class Transfer:
    """Pinned buffers and threads for moving one state part by part.

    Args:
        device: the GPU.
        n_fields: number of fields of the state.
        dtype: type of its elements.
        parts: boxes of the state, each with (n_fields, ...) numbers.
    """

    def __init__(
        self, device: GpuDevice, n_fields: int, dtype: np.dtype[Any], parts: Iterable[Ranges]
    ) -> None:
        self._device, self._n_fields, self._dtype = device, n_fields, dtype
        self._parts = list(parts)
        self._threads = min(len(usable_cores()), _MOST_THREADS, max(1, len(self._parts)))
        self._most = max((_count(self._shape(part)) for part in self._parts), default=0)

    def bring(self, make: Callable[[Ranges], Field], put: Callable[[Ranges, Any], None]) -> None:
        """Put every part into GPU memory; returns when all are there.

        Args:
            make: returns the numbers of a part, (n_fields, ...); called by several threads.
            put: receives a GPU array on the device's stream.
        """
        free = self._buffers()
        made: deque[tuple[Ranges, Buffer, Future[None]]] = deque()
        sent: deque[tuple[Any, Buffer]] = deque()

        def fill(part: Ranges, buffer: Buffer) -> None:
            self._within(buffer, part)[...] = make(part)

        def send() -> None:
            part, buffer, future = made.popleft()
            future.result()
            put(part, self._device.send(self._within(buffer, part)))
            sent.append((self._device.stream.record(), buffer))
            # A buffer is free again only when its copy has ended.
            if len(sent) > _TRAVELLING:
                event, done = sent.popleft()
                event.synchronize()
                free.append(done)

        with self._device.use(), ThreadPoolExecutor(self._threads) as pool:
            for part in self._parts:
                # Waits for the oldest part, so parts are sent in order.
                while not free:
                    send()
                buffer = free.pop()
                made.append((part, buffer, pool.submit(fill, part, buffer)))
            while made:
                send()
            self._device.stream.synchronize()

    def fetch(self, take: Callable[[Ranges], Any], keep: Callable[[Ranges, Field], None]) -> None:
        """Take every part from GPU memory.

        Args:
            take: returns a contiguous GPU array of a part, on the device's stream.
            keep: receives the numbers of a part in a buffer that is reused afterwards; called by
                several threads.
        """
        free = self._buffers()
        sent: deque[tuple[Buffer, Future[None]]] = deque()

        def unpack(part: Ranges, buffer: Buffer, event: Any) -> None:
            event.synchronize()
            keep(part, self._within(buffer, part))

        def release() -> None:
            buffer, future = sent.popleft()
            future.result()
            free.append(buffer)

        with self._device.use(), ThreadPoolExecutor(self._threads) as pool:
            for part in self._parts:
                if not free:
                    release()
                buffer = free.pop()
                self._device.receive(take(part), self._within(buffer, part))
                event = self._device.stream.record()
                sent.append((buffer, pool.submit(unpack, part, buffer, event)))
            while sent:
                release()

    def _buffers(self) -> list[Buffer]:
        return [
            self._device.staged((self._most,), self._dtype)
            for _ in range(self._threads + _TRAVELLING)
        ]

    def _shape(self, part: Ranges) -> tuple[int, ...]:
        return (self._n_fields, *(high - low for low, high in part))

    def _within(self, buffer: Buffer, part: Ranges) -> Field:
        shape = self._shape(part)
        return buffer[: _count(shape)].reshape(shape)


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
