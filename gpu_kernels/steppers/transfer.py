"""Transfer of a state between host and GPU, part by part, on all cores.

A pool of threads makes the numbers or puts them where they belong, while other parts travel through
pinned memory: NumPy releases the interpreter lock while it computes and copies. Random initial
fields are made on the GPU, and non-finite values are found there.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import STORED, box_argument, by_value, to_device
from tetris_sim.gpu_kernels.steppers.passes import DeviceState
from tetris_sim.model.grid import on_three
from tetris_sim.model.problem import Field, InitialField, RandomField, RandomNumbers
from tetris_sim.model.slab import Ranges

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
        self._threads = min(len(os.sched_getaffinity(0)), _MOST_THREADS, max(1, len(self._parts)))
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
