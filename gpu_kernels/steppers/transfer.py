"""Transfer: a state on its way between the host and a GPU, part by part, on all cores.

Numbers are made, or put where they belong, by a pool of threads, and travel through pinned memory
beside that: NumPy lets others run while it computes and copies.
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

# Where is a value not finite? Looked for by a kernel of our own (`finite.cu`): with what CuPy has
# for that the first look of a first run took 3.2 to 3.6 s, and 0.15 s when it was compiled (1024^3
# points, one H200, float64, 2026-11-23).

_FINITE_THREADS, _MOST_ROWS, _MOST_PLANES = 256, 1024, 64  # blocks of a launch, which go on


def first_nonfinite(state: DeviceState) -> tuple[int, ...] | None:
    """The first owned point that is not finite in some field, counted in the slab; None if all are.

    Waits for what the GPU was told before.
    """
    device, shape = state.device, state.slab.shape
    z, y, x = on_three(shape, 1)
    grid = (-(-x // _FINITE_THREADS), min(y, _MOST_ROWS), min(z, _MOST_PLANES))
    defines = {"TS_REAL": STORED[state.layout.dtype.name]}

    n_points = math.prod(shape)
    with device.use() as cupy:
        function = device.function("finite.cu", "first_nonfinite", defines)
        first = cupy.asarray(np.array([n_points], np.uint64))
        box = box_argument(((0, z), (0, y), (0, x)))
        for now, _ in state.fields():
            function(grid, (_FINITE_THREADS, 1, 1), (now, state.memory, box, first))
        number = int(device.fetch(first)[0])
    if number == n_points:
        return None
    return tuple(int(at) for at in np.unravel_index(number, shape))


# Random initial fields, made on a GPU with the bits that they have on the host (`philox.cu`).

# Points from which on a GPU makes them: compiling the kernel took 0.23 s, once in a cache, which is
# long beside what fewer points take (one H200, 2026-11-23).
_MANY_POINTS = 1 << 24
_RANDOM_THREADS, _PER_THREAD = 256, 4
_MOST_BLOCKS = 65535


def random_numbers(initial: InitialField, state: DeviceState) -> RandomNumbers | None:
    """What a GPU can make of an initial field; None if the host has to.

    It does not look for numbers that are not finite, so there must be none.
    """
    if not isinstance(initial, RandomField) or state.layout.n_fields > 1:
        return None
    many = math.prod(state.slab.shape) >= _MANY_POINTS
    largest = float(np.finfo(state.layout.dtype).max) / 2
    numbers = initial.numbers
    finite = max(abs(numbers.low), abs(numbers.high)) <= largest
    return numbers if many and finite else None


def fill(numbers: RandomNumbers, state: DeviceState) -> None:
    """Write the owned points of a slab; returns when they are there."""
    device, slab = state.device, state.slab
    touched = [
        range(start // width, -(-stop // width))
        for start, stop, width in zip(slab.start, slab.stop, numbers.block, strict=True)
    ]
    keys = np.array([numbers.key(place) for place in itertools.product(*touched)], np.uint64)

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


PART_POINTS = 1 << 21  # that travel together: far more than a call costs, and few buffers of them
_TRAVELLING = 2  # parts on the way while others are made
_MOST_THREADS = 16  # more than a link to a GPU can take

Buffer = npt.NDArray[Any]


class Transfer:
    """Pinned memory and threads for the parts of one state.

    Args:
        device: the GPU.
        n_fields: of the state.
        dtype: of the state.
        parts: of which it is made, (n_fields, ...) numbers each.
    """

    def __init__(
        self, device: GpuDevice, n_fields: int, dtype: np.dtype[Any], parts: Iterable[Ranges]
    ) -> None:
        self._device, self._n_fields, self._dtype = device, n_fields, dtype
        self._parts = list(parts)
        self._threads = min(len(os.sched_getaffinity(0)), _MOST_THREADS, max(1, len(self._parts)))
        self._most = max((_count(self._shape(part)) for part in self._parts), default=0)

    def bring(self, make: Callable[[Ranges], Field], put: Callable[[Ranges, Any], None]) -> None:
        """Put every part into the memory of the GPU; returns when all are there.

        Args:
            make: the numbers of a part, (n_fields, ...); called by several threads.
            put: takes an array of the GPU, on the device's stream.
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
            if len(sent) > _TRAVELLING:
                event, done = sent.popleft()
                event.synchronize()
                free.append(done)

        with self._device.use(), ThreadPoolExecutor(self._threads) as pool:
            for part in self._parts:
                while not free:
                    send()
                buffer = free.pop()
                made.append((part, buffer, pool.submit(fill, part, buffer)))
            while made:
                send()
            self._device.stream.synchronize()

    def fetch(self, take: Callable[[Ranges], Any], keep: Callable[[Ranges, Field], None]) -> None:
        """Take every part from the memory of the GPU.

        Args:
            take: a contiguous array of the GPU of a part, on the device's stream.
            keep: takes the numbers of a part, which are others soon; called by several threads.
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
