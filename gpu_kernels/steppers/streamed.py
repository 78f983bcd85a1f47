"""GpuChunkPipeline: out-of-core computation. Chunks of a slab in host memory are copied to a GPU,
advanced there and copied back, all three concurrently.

Copies in each direction have a stream of their own beside that of the kernels. Four arrays
alternate: one is filled, two swap roles while a chunk is advanced, one is emptied. Planes lie in
host memory as they do on the GPU, including the ghosts of the other axes, so that a chunk is one
copy.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.boundary.extents import Extent
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import PitchedField, pitch_slab
from tetris_sim.gpu_kernels.steppers.passes import DeviceState, GpuMethod, Pass
from tetris_sim.model.grid import LAST
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.support import usable_cores

ARRAYS = 4
_BODIES = 2  # chunk shapes with material data on the GPU; a method's memory accounts for as many
_TRIAL_BYTES = 256 << 20  # per timed copy: 5 ms at 55 GB/s
_TRIALS = 3
_CLEARED = 1 << 23  # elements that a thread clears at a time

Flat = npt.NDArray[np.floating[Any]]  # host memory, laid out as a `PitchedField`


class Copies(Protocol):
    """Copies of arrays to a device and back; tests without a GPU substitute another one."""

    bringing: Any
    taking: Any

    def host_array(self, elements: int, dtype: np.dtype[Any]) -> Flat:
        """Host memory, filled with zeros, from and to which copies are fast."""

    def bring(self, target: Any, source: Flat) -> None:
        """Copy to the device, on the stream `bringing`."""

    def take(self, target: Flat, source: Any) -> None:
        """Copy to the host, on the stream `taking`."""


class GpuCopies:
    """Copies between pinned memory and a GPU."""

    def __init__(self, device: GpuDevice) -> None:
        self._device = device
        with device.use() as cupy:
            self.bringing = cupy.cuda.Stream(non_blocking=True)
            self.taking = cupy.cuda.Stream(non_blocking=True)

    def host_array(self, elements: int, dtype: np.dtype[Any]) -> Flat:
        """Pinned memory filled with zeros; not from CuPy's pool, which rounds up to powers
        of two.
        """
        with self._device.use() as cupy:
            memory = cupy.cuda.PinnedMemoryPointer(
                cupy.cuda.PinnedMemory(elements * dtype.itemsize), 0
            )
        array: Flat = np.frombuffer(memory, dtype, elements)
        # Zeroed in parallel: a slab may have hundreds of gigabytes.
        parts = [array[low : low + _CLEARED] for low in range(0, elements, _CLEARED)]
        with ThreadPoolExecutor(len(usable_cores())) as pool:
            for _ in pool.map(lambda part: part.fill(0), parts):
                pass
        return array

    def bring(self, target: Any, source: Flat) -> None:
        """Enqueue a copy to the GPU; returns at once."""
        runtime = self._device.cupy.cuda.runtime
        kind = runtime.memcpyHostToDevice
        runtime.memcpyAsync(
            target.data.ptr, source.ctypes.data, source.nbytes, kind, self.bringing.ptr
        )

    def take(self, target: Flat, source: Any) -> None:
        """Enqueue a copy to the host; returns at once."""
        runtime = self._device.cupy.cuda.runtime
        kind = runtime.memcpyDeviceToHost
        runtime.memcpyAsync(
            target.ctypes.data, source.data.ptr, target.nbytes, kind, self.taking.ptr
        )


class PitchedHost:
    """A slab in host memory in the layout of the GPU; see the Protocol `HostSlab` of
    scheduler/workers/worker.py.
    """

    def __init__(self, problem: Problem, layout: PitchedField, copies: Copies) -> None:
        self._layout, self._copies = layout, copies
        self._flat = copies.host_array(layout.n_bytes // layout.dtype.itemsize, layout.dtype)
        # Planes along the first axis of the problem, margins of the later axes included.
        first = 3 - problem.grid.ndim
        self._below, self._pitch = layout.margin[first][0], plane_pitch(layout, problem.grid.ndim)
        self._planes = self._flat.reshape(layout.n_fields, layout.extent[first], self._pitch)

    def view(self, ranges: Ranges) -> Field:
        """A box of points, counted from the first owned one."""
        points: Field = self._layout.view(self._flat, ranges)
        return points

    def planes(self, first: int, count: int) -> Field:
        """Planes counted from the first owned one, (n_fields, count, elements of a plane)."""
        begin = self._below + first
        return self._planes[:, begin : begin + count]

    def spare(self, count: int) -> Field:
        """Host memory for `count` planes."""
        shape = self._layout.n_fields, count, self._pitch
        flat = self._copies.host_array(math.prod(shape), self._layout.dtype)
        return flat.reshape(shape)


@dataclass
class Cargo:
    """A chunk on the GPU.

    Attributes:
        slab: planes of the chunk, and its halo.
        array: GPU memory that holds it.
        ready: the event of its arrival, later that of its advance.
    """

    slab: Slab
    array: Any
    ready: Any


@dataclass(frozen=True)
class _Ways:
    """The passes that advance chunks of one shape, and the list of the two arrays that they use."""

    arrays: list[Any]
    state: DeviceState
    passes: list[Pass]


class GpuChunkPipeline:
    """The streaming pipeline on a GPU; see the Protocol `ChunkPipeline` of
    scheduler/workers/worker.py for the meaning of the calls.

    Args:
        problem: the problem to advance.
        method: the method that advances chunks.
        parameters: parameters of the method.
        device: the GPU.
        largest: the largest chunk with its halo.
        copies: copies to the device and back, by default `GpuCopies`.
    """

    def __init__(
        self,
        problem: Problem,
        method: GpuMethod,
        parameters: Parameters,
        device: GpuDevice,
        *,
        largest: Slab,
        copies: Copies | None = None,
    ) -> None:
        self._problem, self._device = problem, device
        self._method, self._parameters = method, parameters
        self._depth = method.depth(problem, parameters)
        self._copies = GpuCopies(device) if copies is None else copies
        self._ways: dict[Any, _Ways] = {}
        # Sized for the largest chunk; smaller ones use the front of an array.
        layout = self._layout(largest)
        elements = layout.n_bytes // layout.dtype.itemsize
        with device.use() as cupy:
            arrays = [cupy.zeros(elements, layout.dtype) for _ in range(ARRAYS)]
        # (array, event from which on it is free)
        self._free: deque[tuple[Any, Any]] = deque((array, None) for array in arrays)

    def _layout(self, slab: Slab) -> PitchedField:
        """The layout of a chunk, the same as that of a slab."""
        return pitch_slab(self._problem, slab, self._depth)

    def hold(self, slab: Slab) -> PitchedHost:
        """A slab in pinned memory."""
        return PitchedHost(self._problem, self._layout(slab), self._copies)

    def bring(
        self, slab: Slab, sources: Sequence[tuple[int, Field]], after: Sequence[Any]
    ) -> tuple[Cargo, Any]:
        """Enqueue the upload of a chunk, one copy per source and field: (the chunk, the event of
        its arrival).
        """
        layout, (array, free) = self._layout(slab), self._free.popleft()
        with self._device.use():
            # The array may still be read by an earlier download.
            _wait_for(self._copies.bringing, (*after, free))
            for first, planes in sources:
                for there, here in zip(self._elements(layout, first, planes), planes, strict=True):
                    self._copies.bring(array[there], here.reshape(-1))
            arrived = self._copies.bringing.record()
        return Cargo(slab, array, arrived), arrived

    def advance(self, cargo: Cargo, steps: int, first: int) -> None:
        """Enqueue `steps` steps of a chunk, between the array that holds it and a free one, as
        `GpuStepper` does.
        """
        other, free = self._free.popleft()
        with self._device.use():
            _wait_for(self._device.stream, (cargo.ready, free))
            ways = self._ways_of(cargo.slab)
            elements = ways.state.layout.n_bytes // ways.state.layout.dtype.itemsize
            pair = cargo.array, other
            # The state of this shape works on whichever arrays are at hand.
            ways.arrays[:] = [array[:elements] for array in pair]
            ways.state.turn, ways.state.step = 0, first

            later = steps
            while later > 0:
                way = ways.state.next_way(ways.passes, later)
                later -= way.depth
                ways.state.advance(way, Extent(later))

            cargo.array, cargo.ready = pair[ways.state.turn], self._device.stream.record()
            # The array that the last pass read is free as soon as the chunk is ready.
            self._free.append((pair[1 - ways.state.turn], cargo.ready))

    def take(self, cargo: Cargo, target: Field, after: Sequence[Any]) -> Any:
        """Enqueue the download of a chunk, one copy per field; returns its event."""
        with self._device.use():
            _wait_for(self._copies.taking, (*after, cargo.ready))
            elements = self._elements(self._layout(cargo.slab), 0, target)
            for there, here in zip(elements, target, strict=True):
                self._copies.take(here.reshape(-1), cargo.array[there])
            taken = self._copies.taking.record()
        # Its next user waits for this download.
        self._free.append((cargo.array, taken))
        return taken

    def finish(self, event: Any) -> None:
        """Return when an event has occurred."""
        if event is not None:
            event.synchronize()

    def wait(self) -> None:
        """Synchronize all streams."""
        for stream in (self._copies.bringing, self._device.stream, self._copies.taking):
            stream.synchronize()

    def close(self) -> None:
        """Free the arrays; after a failure of the GPU there may be nothing to wait for."""
        for ways in self._ways.values():
            ways.state.close()
            ways.arrays.clear()
        self._ways.clear()
        self._free.clear()
        self._device.release()

    def _elements(self, layout: PitchedField, first: int, planes: Field) -> list[slice]:
        """The slices of an array on the GPU that hold planes of each field, from plane
        `first` on.
        """
        ndim = self._problem.grid.ndim
        below = layout.margin[3 - ndim][0] + first
        begin, length = below * plane_pitch(layout, ndim), planes[0].size
        # Fields are apart by the pitch; the planes of one field are contiguous.
        starts = [begin + field * layout.field_pitch for field in range(layout.n_fields)]
        return [slice(start, start + length) for start in starts]

    def _ways_of(self, slab: Slab) -> _Ways:
        """The passes for chunks of a slab's shape and neighbours. Kernels do not depend on where a
        chunk lies; its material data is uploaded for each.
        """
        key = slab.shape, slab.halo
        if key not in self._ways:
            beside = self._problem.conduction is not None or self._problem.equations is not None
            # Bounds the memory of material data and coefficients.
            if beside and len(self._ways) == _BODIES:
                del self._ways[next(iter(self._ways))]

            arrays: list[Any] = [None, None]
            layout = self._layout(slab)
            state = DeviceState(self._problem, slab, layout, self._device, arrays, self._depth)
            passes = self._method.passes(self._problem, slab, self._parameters)
            for way in passes:
                way.prepare(state)
            self._ways[key] = _Ways(arrays, state, passes)
        self._ways[key].state.place(slab)
        return self._ways[key]


def plane_pitch(layout: PitchedField, ndim: int) -> int:
    """Elements from plane to plane along the first axis of a problem with `ndim` axes."""
    return (*layout.pitches, 1)[LAST[ndim][0]]


def measure_copies(device: GpuDevice) -> tuple[float, float]:
    """Seconds per byte to the GPU and back, while both directions are in use."""
    copies, dtype = GpuCopies(device), np.dtype(np.float64)
    elements = _TRIAL_BYTES // dtype.itemsize
    host = [copies.host_array(elements, dtype) for _ in "ab"]
    with device.use() as cupy:
        there = [cupy.zeros(elements, dtype) for _ in "ab"]
        device.stream.synchronize()

        seconds = []
        for _ in range(_TRIALS):
            # Both copies are in flight together, as in the pipeline.
            events = [(stream.record(), stream) for stream in (copies.bringing, copies.taking)]
            copies.bring(there[0], host[0])
            copies.take(host[1], there[1])
            ends = [(begin, stream.record()) for begin, stream in events]
            for _, end in ends:
                end.synchronize()
            seconds.append([cupy.cuda.get_elapsed_time(begin, end) / 1e3 for begin, end in ends])

    bring, take = (min(trials) / _TRIAL_BYTES for trials in zip(*seconds, strict=True))
    return bring, take


def _wait_for(stream: Any, events: Sequence[Any]) -> None:
    for event in events:
        if event is not None:
            stream.wait_event(event)
