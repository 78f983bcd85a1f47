"""FusedKernel: a compiled kernel that makes several steps at once on points that no face affects.

Points nearer to a face than `depth` steps reach are advanced step by step (`boundary/ghosts.py`),
so a fused kernel knows nothing of faces. It writes a box of points, and reads that box and `depth *
radius` points around it along each axis. Formats of reduced precision, and weights rounded to them,
are at the end.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.layout import LINE, Box3, box_argument, by_value, to_device
from tetris_sim.model.grid import on_three
from tetris_sim.model.stencil import Stencil

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.common.device import GpuDevice
    from tetris_sim.gpu_kernels.steppers.passes import DeviceState


MOST_SHARED = 227 * 1024  # bytes, CUDA's limit per block on sm_90
OF_SM = 228 * 1024  # bytes of a multiprocessor, of which the system takes 1 KB per block


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
        sums: whether it adds an array to what it stores, what a static source makes of zero in as
            many steps (`TS_SUM` of common.cuh): its address is the last argument.
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
    sums: bool = False

    def summing(self, shared_bytes: int = 0) -> FusedKernel:
        """The same kernel, which adds a sum and takes so much more shared memory [bytes]."""
        defines = {**self.defines, "TS_SUM": 1}
        return replace(
            self, defines=defines, shared_bytes=self.shared_bytes + shared_bytes, sums=True
        )

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
        self, now: Any, then: Any, memory: Any, launch: Launch, more: tuple[Any, ...] = ()
    ) -> None:
        """Advance the points of the box that was cut.

        Args:
            now: a field, from its first owned point on.
            then: the array that receives the new state, like `now`.
            memory: `struct Memory`, where points lie.
            launch: result of `cut`.
            more: row of the first step in the numbers of rules, for a body or equations; then the
                sum, if the kernel adds one.
        """
        block = (self._kernel.threads, 1, 1)
        self._function(
            launch.grid,
            block,
            (now, then, memory, *launch.arguments, *more),
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


# Reduced-precision formats of tensor cores, and stencil weights that they represent.
#
# Significands have 11 bits in FP16 and TF32 and 8 in BF16; exponents have 5 bits in FP16 and 8 in
# the others. TF32 weights are rounded to FP16 numbers, which TF32 contains, so that `round_weights`
# keeps their sum. The last part has what methods in FP16 refuse and how many blocks a
# multiprocessor holds.

# FP16 weights with the sum of the original ones.  Rounded one by one, the weights of a fused
# stencil add up to 1 within 2e-4 (heat-3d, three steps), which would create or destroy that much
# heat with every launch. So the rounding error of a weight is passed on to the next smaller one,
# whose spacing is finer. Equal weights are rounded alike as long as the sum allows, opposite ones
# always, so a symmetric stencil stays symmetric. Off-centre weights that are smaller than the error
# of the centre change completely; `weight_error` measures that.


def round_weights(stencil: Stencil) -> Stencil:
    """The stencil with FP16 weights whose sum is as near to the original one as possible; zeros
    stay zeros.

    >>> mean = Stencil(((-1,), (0,), (1,)), (1 / 3, 1 / 3, 1 / 3))
    >>> left, centre, right = round_weights(mean).weights
    >>> left == right, left + centre + right
    (True, 1.0)
    """
    rounded = _round_alike(stencil)
    opposites = _opposites(stencil)

    while True:
        # One unit in the last place up or down, for opposite weights together: the move that brings
        # the sum nearest.
        lost = math.fsum(stencil.weights) - math.fsum(rounded)
        moved = [
            (abs(lost - len(pair) * step), pair, step)
            for pair in opposites
            for step in _steps(rounded[pair[0]])
        ]

        left, pair, step = min(moved, default=(math.inf, (), 0.0))
        if left >= abs(lost):
            return Stencil(stencil.offsets, tuple(rounded))

        for i in pair:
            rounded[i] += step


def weight_error(stencil: Stencil, rounded: Stencil) -> float:
    """The relative change of all weights by rounding, or of the off-centre ones if that is larger.

    >>> slow = Stencil(((-1,), (0,), (1,)), (1e-5, 1 - 2e-5, 1e-5))
    >>> weight_error(slow, round_weights(slow))
    1.0

    Args:
        stencil: the stencil with its original weights.
        rounded: the same points with rounded weights.
    """
    pairs = [
        (weight, new, any(offset))
        for offset, weight, new in zip(
            stencil.offsets, stencil.weights, rounded.weights, strict=True
        )
    ]
    errors = []
    # The centre may hide that its neighbours have lost their values.
    for some in (pairs, [pair for pair in pairs if pair[2]]):
        size = math.fsum(abs(weight) for weight, _, _ in some)
        change = math.fsum(abs(new - weight) for weight, new, _ in some)
        errors.append(change / size if size > 0 else 0.0)
    return max(errors)


def _round_alike(stencil: Stencil) -> list[float]:
    """Round from the largest to the smallest non-zero weight, each including the error of those
    before it.
    """

    def size(index: int) -> tuple[float, float]:
        # Equal up to the rounding errors of `Stencil.power`.
        weight = float(np.float32(stencil.weights[index]))
        return -abs(weight), weight

    rounded, lost = [0.0] * stencil.n_points, 0.0
    points = [i for i in range(stencil.n_points) if stencil.weights[i] != 0]
    for _, group in itertools.groupby(sorted(points, key=size), key=size):
        alike = list(group)
        for i in alike:
            rounded[i] = float(np.float16(stencil.weights[i] + lost / len(alike)))
        lost += math.fsum(stencil.weights[i] - rounded[i] for i in alike)
    return rounded


def _opposites(stencil: Stencil) -> list[tuple[int, ...]]:
    """Groups of points with the same weight on opposite sides, other points alone; points with zero
    weight are left out.
    """
    index = {offset: i for i, offset in enumerate(stencil.offsets) if stencil.weights[i] != 0}
    groups = set()
    for offset, i in index.items():
        j = index.get(tuple(-c for c in offset), i)
        alike = math.isclose(stencil.weights[i], stencil.weights[j], rel_tol=1e-6)
        groups.add(tuple(sorted({i, j})) if alike else (i,))
    return sorted(groups)


def _steps(weight: float) -> tuple[float, float]:
    """The distances to the FP16 numbers above and below."""
    here = np.float16(weight)
    up, down = (float(np.nextafter(here, np.float16(to))) for to in (np.inf, -np.inf))
    return up - weight, down - weight


Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """A number format that tensor cores multiply.

    Attributes:
        name: name of the format.
        bits: bits of the significand, including the leading one.
        words: registers per lane that a 16 x 8 matrix takes.
    """

    name: str
    bits: int
    words: int

    @property
    def eps(self) -> float:
        """The largest relative error of rounding to nearest."""
        return 2.0**-self.bits


FLOAT16 = Format("FP16", 11, 2)
BFLOAT16 = Format("BF16", 8, 2)
TFLOAT32 = Format("TF32", 11, 4)
FORMATS = (FLOAT16, BFLOAT16, TFLOAT32)  # by their number in tcstencil.cu


def rounded(values: npt.ArrayLike, format_: Format) -> Array:
    """Values rounded to the nearest number of a format, ties to even.

    >>> rounded([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8], BFLOAT16)
    array([1.      , 1.      , 1.015625])
    """
    if format_ is FLOAT16:
        return np.asarray(values).astype(np.float16).astype(np.float64)
    return without_bits(np.asarray(values, np.float32), 24 - format_.bits).astype(np.float64)


def without_bits(values: npt.NDArray[np.float32], dropped: int) -> npt.NDArray[np.float32]:
    """Values with the lowest `dropped` bits rounded away, ties to even."""
    # A carry into the exponent gives the right result, up to infinity.
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(dropped)) & np.uint32(1)
    half = np.uint32((1 << (dropped - 1)) - 1)
    kept = ((bits + half + odd) & np.uint32(0xFFFFFFFF ^ ((1 << dropped) - 1))).view(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), kept)


def operand_weights(stencil: Stencil, format_: Format) -> Stencil:
    """The stencil with weights that a format represents, and nearly the same sum.

    In BF16 the centre, if the stencil has one, absorbs the rounding errors of the others and is
    rounded last.
    """
    if format_ is not BFLOAT16:
        return round_weights(stencil)
    near = dict(zip(stencil.offsets, map(float, rounded(stencil.weights, format_)), strict=True))
    middle = (0,) * stencil.ndim
    if middle in near:
        others = math.fsum(weight for offset, weight in near.items() if offset != middle)
        near[middle] = float(rounded(math.fsum(stencil.weights) - others, format_))
    return Stencil(stencil.offsets, tuple(near[offset] for offset in stencil.offsets))


# Limits that all kernels in FP16 share: the range of the format and the registers of a
# multiprocessor.

LARGEST_WEIGHT = 60000.0  # after fusion; the largest number of FP16 is 65504
# Largest `weight_error` of a launch; where no weight is tiny beside another it is below 1e-3.
_MOST_WEIGHT_ERROR = 0.01
_REGISTERS, _REGISTERS_OF_SM, _THREADS_OF_SM = 255, 65536, 2048  # per thread, per multiprocessor


@dataclass(frozen=True)
class SharedTile:
    """The tile that a block holds in shared memory at a time.

    Attributes:
        lead: points in front of the first result, a multiple of 16 bytes.
        row_points: points of a row.
        rows: rows of the grid.
        tile: results of a stage along each axis.
        stream: how blocks of threads share the axis along which they stream.
    """

    lead: int
    row_points: int
    rows: int
    tile: tuple[int, int, int]
    stream: StreamedAxis


def half_refusal(
    stencil: Stencil,
    dtype: npt.DTypeLike,
    steps: Callable[[Stencil], tuple[int, ...]],
    matrices: str,
) -> str | None:
    """Why a kernel in FP16 refuses a stencil, as a sentence for the user; None if it does not.

    Args:
        stencil: stencil of one step.
        dtype: type of the state.
        steps: gives the numbers of steps that can be fused; none if the stencil is too large.
        matrices: name of what registers hold, for the sentence.
    """
    if np.dtype(dtype) != np.float16:
        return (
            f"its tensor cores multiply float16, and would round {np.dtype(dtype)} to as many bits"
        )

    # A growth that one step forbids is forbidden for any number of steps.
    if growth(stencil) > LARGEST_WEIGHT:
        return f"its weights add up to {growth(stencil):g}, more than float16 holds"
    if not steps(stencil) and not rounds_well(stencil, 1):
        error = _error_of_rounding(stencil, 1)
        return (
            f"rounded to float16, its weights would change by {error:.1%}: some are very small "
            "beside others"
        )

    if not steps(stencil):
        return (
            f"{matrices} of a step are kept in registers: {stencil.n_points} points of radius "
            f"{stencil.radius} in {stencil.ndim}D are too many"
        )
    return None


def growth(stencil: Stencil) -> float:
    """The sum of the weights' magnitudes: no weight of n fused steps exceeds its n-th power."""
    return sum(map(abs, stencil.weights))


def rounds_well(stencil: Stencil, steps: int) -> bool:
    """Whether the weights of `steps` fused steps keep their values when rounded to FP16."""
    return (
        growth(stencil) <= LARGEST_WEIGHT ** (1 / steps)  # the power itself might overflow
        and _error_of_rounding(stencil, steps) <= _MOST_WEIGHT_ERROR
    )


def refuse_bad_rounding(stencil: Stencil, steps: int) -> None:
    """Check that weights keep their values when rounded to FP16.

    Raises:
        ValueError: rounding would change them too much.
    """
    if not rounds_well(stencil, steps):
        msg = f"rounded to float16, the weights of a launch of {steps} would be others"
        raise ValueError(msg)


@functools.lru_cache(maxsize=1024)
def _error_of_rounding(stencil: Stencil, steps: int) -> float:
    fused = stencil.power(steps)
    return weight_error(fused, round_weights(fused))


def blocks_beside(threads: int, registers: int) -> int:
    """Blocks of `threads` threads with `registers` registers each that a multiprocessor holds at a
    time.

    >>> blocks_beside(128, 160), blocks_beside(256, 500), blocks_beside(64, 20)
    (3, 1, 32)
    """
    return max(
        1,
        min(_THREADS_OF_SM // threads, _REGISTERS_OF_SM // (threads * min(_REGISTERS, registers))),
    )
