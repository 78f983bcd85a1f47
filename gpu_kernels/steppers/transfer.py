"""Transfer: a state on its way between the host and a GPU, part by part, on all cores.

Numbers are made, or put where they belong, by a pool of threads, and travel through pinned memory
beside that: NumPy lets others run while it computes and copies.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.model.problem import Field
from tetris_sim.model.slab import Ranges

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
