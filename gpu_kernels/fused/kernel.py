"""FusedKernel: a compiled kernel that makes several steps at once on points that no face affects.

Points nearer to a face than `depth` steps reach are advanced step by step (`boundary/ghosts.py`),
so a fused kernel knows nothing of faces. It writes a box of points, and reads that box and `depth *
radius` points around it along each axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.layout import LINE, Box3, box_argument, by_value, to_device
from tetris_sim.model.grid import on_three

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.common.device import GpuDevice
    from tetris_sim.gpu_kernels.steppers.passes import DeviceState


@dataclass(frozen=True)
class StreamedAxis:
    """The division of an axis into chunks, one per block of threads, which streams through it.

    A chunk costs its points and some before them that only the first levels need, so long chunks
    repeat little; but the blocks should also keep the whole GPU busy until the end. The length of a
    chunk is an argument of the kernel.

    Attributes:
        axis: the streamed axis: 0 for z, 1 for y, 2 for x.
        repeated: points that a block passes before its chunk counts.
        unit: points that a block passes at a time.
        longest: upper bound of a chunk, where blocks take unequal time; 0 for none.
    """

    axis: int
    repeated: int
    unit: int
    longest: int = 0

    def chunk(self, n: int, others: int, slots: int) -> int:
        """The length of a chunk with which all blocks end soonest; the last chunk may be shorter.

        >>> StreamedAxis(axis=1, repeated=32, unit=80).chunk(10240, others=64, slots=132)
        5088

        Args:
            n: points along the axis.
            others: number of blocks per chunk, along the other axes.
            slots: blocks that the GPU holds at a time; further ones begin when these have ended.
        """
        shortest, longest = (math.ceil((points + self.repeated) / self.unit) for points in (1, n))
        # Only lengths that fill whole units, since a block passes whole units anyway.
        chunks = [units * self.unit - self.repeated for units in range(shortest, longest + 1)]
        if self.longest:
            chunks = [chunk for chunk in chunks if chunk <= self.longest] or chunks[:1]
        return min(chunks, key=lambda chunk: (self._time(n, others, slots, chunk), -chunk))

    def _time(self, n: int, others: int, slots: int, chunk: int) -> int:
        """The time until the last block ends, in points that a block passes. The shorter blocks of
        the last chunk start last.
        """
        count = math.ceil(n / chunk)
        long, short = (self._passed(points) for points in (chunk, n - (count - 1) * chunk))

        # All blocks but those of the last chunk take equally long and run in rounds of `slots`.
        rounds, left = divmod(others * (count - 1), slots)
        if left == 0:
            return rounds * long + math.ceil(others / slots) * short
        # Short blocks that run in the slots that the last round of long ones leaves free.
        beside = (slots - left) * (long // short)
        return (rounds + 1) * long + math.ceil(max(0, others - beside) / slots) * short

    def _passed(self, points: int) -> int:
        return math.ceil((points + self.repeated) / self.unit) * self.unit


@dataclass(frozen=True)
class FusedKernel:
    """A fused kernel: how to compile and launch it.

    The entry point takes `(const real* src, real* dst, Memory memory, Box box, Weights weights)`
    (`common.cuh`), with a `const Weights*` if they are passed `by_pointer`; if it streams, the
    length of a chunk follows. It reads the state `src` and writes the state `depth` steps later
    to `dst`, in all of `box` and nowhere else. The box begins at a multiple of `line` bytes
    along x.

    Attributes:
        source: name of the file.
        entry: name of the `extern "C"` function.
        defines: macros of the source.
        depth: steps of a launch.
        tile: points that one block of threads writes along each of the three axes; any number along
            the streamed one.
        threads: threads of a block.
        shared_bytes: dynamic shared memory of a block.
        weights: numbers that the kernel receives as `struct Weights`.
        stream: how blocks share the axis along which they stream; None if each writes one tile.
        by_pointer: whether the weights lie in GPU memory. As kernel arguments they are fastest if
            all lanes of a warp read the same one; where each reads its own, reads are serialized
            (`gpu.sparse` on 512 x 512 points, one H200: 33 us a launch with matrices by value, 22
            us by pointer).
        line: boxes begin at multiples of so many bytes along x: the fewer, the thinner the boundary
            strip beside them.
        begins: tiles begin at multiples of so many points along x, in the box or before it; 1 if
            they begin with the box.
        spare: additional blocks along y, for kernels whose tiles begin where those of the whole
            grid do.
        anchored: whether the kernel receives, after the length of a chunk, the number of row 0 in
            the whole grid: its patches begin at certain rows of that.
        beside: returns further arguments for a state and box, for kernels of bodies and equations.
            Called once for each box, and again when the slab has moved.
    """

    source: str
    entry: str
    defines: Mapping[str, str | int]
    depth: int
    tile: tuple[int, int, int]
    threads: int
    shared_bytes: int
    weights: npt.NDArray[Any] = field(repr=False)
    stream: StreamedAxis | None = None
    by_pointer: bool = False
    line: int = LINE
    begins: int = 1
    spare: int = 0
    anchored: bool = False
    beside: Callable[[DeviceState, Box3], tuple[Any, ...]] | None = None

    def cut(self, box: Box3, slots: int) -> tuple[tuple[int, int, int], int]:
        """The grid of blocks along x, y, z for a box on a GPU that holds `slots` of them at a time,
        and the length of a chunk (0 without streaming).
        """
        sizes, chunk = list(self.tile), 0
        lengths = [high - low for low, high in box]
        # A tile may begin before the box.
        lengths[2] += box[2][0] % self.begins
        # The streamed axis is cut last: its chunks fill the slots that the other axes leave.
        if self.stream is not None:
            axis = self.stream.axis
            others = math.prod(
                math.ceil(n / size)
                for k, (n, size) in enumerate(zip(lengths, sizes, strict=True))
                if k != axis
            )
            sizes[axis] = chunk = self.stream.chunk(lengths[axis], others, slots)

        z, y, x = (math.ceil(n / size) for n, size in zip(lengths, sizes, strict=True))
        return (x, y + self.spare, z), chunk


class CompiledKernel:
    """A fused kernel compiled for a GPU.

    Attributes:
        slots: blocks of threads that the GPU holds at a time.
    """

    def __init__(self, kernel: FusedKernel, device: GpuDevice) -> None:
        """Compile the kernel and upload its weights.

        Raises:
            UnsupportedError: it does not compile, or needs more shared memory than the GPU has.
        """
        self._kernel = kernel
        self._function = device.function(
            kernel.source, kernel.entry, kernel.defines, kernel.shared_bytes
        )
        self.slots = device.slots(self._function, kernel.threads, kernel.shared_bytes)
        self._weights = (
            to_device(device, kernel.weights) if kernel.by_pointer else by_value(kernel.weights)
        )

    def cut(self, box: Box3, state: DeviceState | None = None) -> Launch:
        """The launch for a box; with the state that the kernel reads further data from."""
        grid, chunk = self._kernel.cut(box, self.slots)
        # Optional arguments in the order of the entry point: chunk, anchor, data of bodies or
        # equations.
        streamed = () if self._kernel.stream is None else (np.int32(chunk),)
        anchor: tuple[Any, ...] = ()
        if self._kernel.anchored:
            # Anchoring makes results independent of how the grid is divided into slabs.
            first = 0 if state is None else on_three(state.slab.start, 0)[1]
            anchor = (np.int32(first),)
        beside: tuple[Any, ...] = ()
        if self._kernel.beside is not None and state is not None:
            beside = self._kernel.beside(state, box)
        return Launch(grid, (box_argument(box), self._weights, *streamed, *anchor, *beside))

    def launch(
        self, now: Any, then: Any, memory: Any, launch: Launch, row: tuple[Any, ...] = ()
    ) -> None:
        """Advance the points of the box that was cut.

        Args:
            now: a field, from its first owned point on.
            then: the array that receives the new state, like `now`.
            memory: `struct Memory`, where points lie.
            launch: result of `cut`.
            row: row of the first step in the numbers of rules, for a body or equations.
        """
        block = (self._kernel.threads, 1, 1)
        self._function(
            launch.grid,
            block,
            (now, then, memory, *launch.arguments, *row),
            shared_mem=self._kernel.shared_bytes,
        )


@dataclass(frozen=True)
class Launch:
    """The grid and arguments with which a `CompiledKernel` writes a box, worked out once.

    Attributes:
        grid: blocks of threads along x, y, z.
        arguments: arguments after the state and the memory.
    """

    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]


def braces(numbers: npt.ArrayLike) -> str:
    """An array as a C initializer.

    >>> braces([[1, 2], [3, 4]])
    '{{1,2},{3,4}}'
    """
    return str(np.asarray(numbers).tolist()).replace("[", "{").replace("]", "}").replace(" ", "")


def round_up(number: int, unit: int) -> int:
    """The smallest multiple of `unit` that is not below `number`."""
    return -(-number // unit) * unit
