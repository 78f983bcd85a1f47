"""gpu.stream in 1D: a block of threads keeps its points in registers for many steps, of a stencil
(`stream_1d.cu`) or a body (`body_1d.cu`).

It takes any list of offsets. One tap of the sum needs no multiplication, whatever the weights: see
`unit_tap_weights`. Bodies are at the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.body import body_defines, id_dtype
from tetris_sim.gpu_kernels.common.layout import (
    REAL,
    Box3,
    exactly,
    pitch_slab,
    stored_numbers,
    stored_weights,
)
from tetris_sim.gpu_kernels.fused.kernel import MOST_SHARED, OF_SM, FusedKernel
from tetris_sim.gpu_kernels.stream.palette import FEW, PaletteKind, curve_numbers, palette_kind
from tetris_sim.model.conduction import CONDUCTIVITY, MIRROR, TEMPERATURE, Conduction
from tetris_sim.model.method import STEPS_PER_BLOCK, Parameters
from tetris_sim.model.problem import PAIR, Problem
from tetris_sim.model.program import CONSTANT, INPUT
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import DeviceState

_LARGEST_RADIUS = 8
# Bytes: the widest access of a thread, the smallest unit of a memory transfer, a cache line.
_WORD, _SECTOR, _LINE = 16, 32, 128

# Largest scale factor of values within a launch; the rest of the type's range is left for the data.
# A pair keeps one part in 2^48 of the data, and its low part must not underflow either.
_LARGEST_SCALE = {np.dtype(np.float64): 1e100, np.dtype(np.float32): 1e20, PAIR: 1e15}

_REGISTERS = 65536  # 4-byte registers per multiprocessor

# 8-byte points per lane, warps, blocks per multiprocessor, steps times radius. On an H200 with
# 10.24 million points (2026-11-21) the first three made 6501, 6379, 6299 GStencil/s for heat-1d.
_SHAPES = (
    (40, 8, 2, 144),
    (32, 4, 5, 128),
    (32, 8, 3, 96),
    (40, 8, 2, 96),
    (24, 8, 3, 64),
    (24, 8, 2, 64),
    (16, 8, 4, 32),
)


def stream_1d_refusal(stencil: Stencil, dtype: npt.DTypeLike) -> str | None:
    """Why the kernel refuses a stencil, as a sentence for the user; None if it does not."""
    if stencil.ndim != 1:
        return f"it streams through one axis, and the stencil has {stencil.ndim}"
    if np.dtype(dtype) not in _LARGEST_SCALE:
        return f"it computes in float64, float32 or pairs, and {np.dtype(dtype)} was asked for"
    if stencil.radius > _LARGEST_RADIUS:
        return (
            f"it keeps neighbours up to {_LARGEST_RADIUS} points away, and the stencil reads "
            f"{stencil.radius} away"
        )
    return None


def stream_1d_parameters(stencil: Stencil, dtype: npt.DTypeLike) -> tuple[Mapping[str, int], ...]:
    """Candidate parameters for autotuning, the best guess first.

    `columns` points per lane determine the registers, `warps` and `blocks` the occupancy; every
    `refresh` steps the warps of a block exchange their ends.
    """
    real = np.dtype(dtype)
    radius = max(1, stencil.radius)
    proposals = []
    for doubles, warps, blocks, reach in _SHAPES:
        columns = doubles * 8 // real.itemsize
        refresh = _largest_refresh(columns, radius, _WORD // real.itemsize)

        # The points of a lane, its neighbours on both sides, and twelve registers for everything
        # else (found by compiling).
        registers = (columns + 2 * radius) * real.itemsize // 4 + 12
        if not refresh or registers > min(255, _of_thread(warps, blocks)):
            continue

        # A whole number of exchanges, within the range of the scale factors.
        steps = max(1, min(reach // radius, _scalable_steps(stencil, real)) // refresh) * refresh
        shape = {"columns": columns, "warps": warps, "blocks": blocks, "refresh": refresh}
        proposals.append({"steps_per_block": steps, **shape})
    return tuple(proposals)


def stream_1d_kernel(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel for a stencil with parameters of `stream_1d_parameters`."""
    real = np.dtype(dtype)
    radius = max(1, stencil.radius)
    steps = parameters["steps_per_block"]
    columns, warps = parameters["columns"], parameters["warps"]

    taps = list(zip(stencil.offsets, stencil.weights, strict=True))
    # The first tap needs no multiplication; the largest weight scales values least. The others
    # ascend, since lanes are updated in place: in descending order the compiler needs 20 registers
    # more.
    taps.insert(0, taps.pop(max(range(len(taps)), key=lambda k: abs(taps[k][1]))))
    scaled, weights = unit_tap_weights([weight for _, weight in taps], steps, real)

    # A warp's results are valid up to `spoilt` points before its ends; a tile's up to that
    # distance, or that of all steps, before the ends of its block.
    word = _WORD // real.itemsize
    spoilt = parameters["refresh"] * radius
    tile = warps * (32 * columns - 2 * spoilt) + 2 * spoilt
    return FusedKernel(
        source="stream_1d.cu",
        entry="stream_1d",
        defines={
            "TS_REAL": REAL[real.name],
            "TS_TAPS": "{" + ",".join(str(dx) for (dx,), _ in taps) + "}",
            "TS_N_TAPS": len(taps),
            "TS_N_WEIGHTS": weights.size,
            "TS_RADIUS": radius,
            "TS_STEPS": steps,
            "TS_SCALED": int(scaled),
            "TS_COLUMNS": columns,
            "TS_WARPS": warps,
            "TS_REFRESH": parameters["refresh"],
            "TS_BLOCKS": parameters["blocks"],
        },
        depth=steps,
        tile=(1, 1, _written(real, tile, max(steps * radius, spoilt))),
        threads=32 * warps,
        shared_bytes=warps * (32 * _lane_pitch(columns, word) + 4 * spoilt) * real.itemsize,
        weights=weights,
        line=_SECTOR,
    )


def stream_1d_sums(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel that adds the sum of a source."""
    return stream_1d_kernel(stencil, dtype, parameters).summing()


def unit_tap_weights(
    weights: Sequence[float], steps: int, real: np.dtype[Any], counts: Sequence[int] | None = None
) -> tuple[bool, npt.NDArray[Any]]:
    """Weights for a sum whose first tap needs no multiplication, and the factor that rescales the
    last level.

    Level s is carried divided by w^s, w being the first weight: u_(s+1) / w^(s+1) is the sum of
    (w_k / w) u_s / w^s, so the first factor is 1. Rounding the quotients would change the sum of
    the weights, and with it the mean of the field, in the same direction at every step; the factor
    at the end compensates for it.

    >>> unit_tap_weights([0.5, 0.25, 0.25], 2, np.dtype(np.float64))
    (True, array([1.  , 0.5 , 0.5 , 0.25]))

    Args:
        weights: the weights in the order of the sum.
        steps: steps in one launch.
        real: type of the numbers.
        counts: points of the stencil that share each weight; one each by default.

    Returns:
        Whether the first factor is 1 (otherwise the type's range does not suffice, and the factors
        are the weights themselves), and the factors followed by the one for the last level.
    """
    first = weights[0]
    if first == 0 or abs(math.log(abs(first))) * steps > math.log(_LARGEST_SCALE[real]):
        return False, np.append(stored_weights(weights, real, counts), stored_numbers([1.0], real))

    quotients = stored_numbers([weight / first for weight in weights], real)
    counts = counts or [1] * len(weights)
    factor = scale_back(weights, quotients, first, steps=steps, counts=counts)
    return True, np.append(quotients, stored_numbers([factor], real))


def scale_back(
    weights: Sequence[float],
    quotients: npt.NDArray[Any],
    first: float,
    *,
    steps: int,
    counts: Sequence[int],
) -> float:
    """The factor that rescales the last of `steps` levels when weights were divided by the first
    one.
    """
    # In exact arithmetic, since the power amplifies any error `steps` times.
    total = sum(count * Fraction(weight) for count, weight in zip(counts, weights, strict=True))
    carried = sum(
        count * exactly(quotient) for count, quotient in zip(counts, quotients, strict=True)
    )

    # Where weights cancel there is no mean to preserve, and the quotient of two small sums would be
    # meaningless.
    has_mean = abs(float(total)) > abs(first) / 2 and carried != 0
    per_step = total / carried if has_mean else Fraction(first)
    return float(per_step**steps)


def _scalable_steps(stencil: Stencil, real: np.dtype[Any]) -> int:
    """The number of steps for which the first tap can be scaled away; unbounded where that would
    shorten launches too much.
    """
    largest, unbounded = max(map(abs, stencil.weights)), 1 << 30
    # A weight of 1 never changes the scale, and 0 is never divided by.
    if largest in (0, 1):
        return unbounded
    steps = int(math.log(_LARGEST_SCALE[real]) / abs(math.log(largest)))
    return steps if steps >= 32 else unbounded


def _of_thread(warps: int, blocks: int) -> int:
    """Registers of a thread, which are allocated in units of eight."""
    return _REGISTERS // (32 * warps * blocks) // 8 * 8


def _largest_refresh(columns: int, radius: int, word: int) -> int:
    """Steps until half of a lane's points are invalid from both ends, a power of two; 0 if that is
    not a whole number of words.
    """
    refresh: int = 1 << int(math.log2(columns // 2 // radius)) if columns >= 2 * radius else 0
    return refresh if refresh * radius % word == 0 else 0


def _written(real: np.dtype[Any], tile: int, reach: int) -> int:
    """Points of a tile that a block writes: the whole lines that remain when both ends are invalid.
    The first begins at a whole sector.
    """
    line, sector = _LINE // real.itemsize, _SECTOR // real.itemsize
    return (tile - -(-reach // sector) * sector - reach) // line * line


def _lane_pitch(columns: int, word: int) -> int:
    return columns + (word if columns // word % 2 == 0 else 0)


# Bodies: what a point takes of the differences on both sides, and what heats it, are arrays made
# once for a slab.

# 8-byte points per lane, warps, blocks per multiprocessor, steps.
_BODY_SHAPES = (
    (24, 4, 3, 64),
    (16, 8, 2, 64),
    (16, 8, 2, 128),
    (20, 4, 3, 64),
    (16, 4, 3, 64),
    (12, 8, 2, 64),
    (16, 8, 1, 64),
    (8, 8, 2, 64),
    (8, 4, 3, 64),
    (4, 8, 2, 16),
)
_MOST_PROPOSED = 5
_MOST_FLOWS = 31  # columns whose faces a word marks
_ARRAY_THREADS = 256
# Operations of programs that are an instruction or two.
_INLINE = {INPUT, CONSTANT, "add", "subtract", "multiply", "fma", "negative", "abs", "where"}


class Heats(IntEnum):
    """Demands of a source on every step; the numbers are those of `enum class Heats`."""

    NOTHING = 0
    THE_SAME = 1
    A_PROGRAM = 2


def heats_of(conduction: Conduction) -> Heats:
    """Classify the demands of the source of a body on every step."""
    source = conduction.source
    if source is None:
        return Heats.NOTHING
    by_state = {MIRROR, TEMPERATURE, CONDUCTIVITY} & set(source.program.inputs)
    return Heats.A_PROGRAM if source.changes or by_state else Heats.THE_SAME


def curves_kind(conduction: Conduction) -> PaletteKind | None:
    """The tables of curves that the kernel keeps in shared memory; None if it needs none."""
    if conduction.enthalpy is None:
        return None
    return palette_kind(conduction.medium.conductance, sources=False, enthalpy=conduction.enthalpy)


def body_1d_parameters(problem: Problem) -> tuple[Parameters, ...]:
    """Candidate parameters for autotuning, the best guess first; named as those of stencils."""
    kind, item = curves_kind(problem.body), problem.dtype.itemsize
    proposals: list[Parameters] = []

    for doubles, warps, blocks, steps in _BODY_SHAPES:
        columns = doubles * 8 // item
        refresh = _largest_refresh(columns, 1, _WORD // item)
        shape = {"columns": columns, "warps": warps, "blocks": blocks, "refresh": refresh}
        shared = _body_shared_bytes(shape, item, kind)
        if (
            refresh
            and _body_registers(problem, columns) <= min(255, _of_thread(warps, blocks))
            and (kind is None or columns <= _MOST_FLOWS)
            and shared <= MOST_SHARED
            and blocks * (shared + 1024) <= OF_SM
        ):
            proposals.append({STEPS_PER_BLOCK: steps, **shape})
    return tuple(proposals[:_MOST_PROPOSED])


def _body_registers(problem: Problem, columns: int) -> int:
    """Registers that a lane needs about, found by compiling."""
    kind, heats = curves_kind(problem.body), heats_of(problem.body)
    numbers = columns * problem.dtype.itemsize // 4  # registers of one per column
    registers = (4 if heats else 3) * numbers + 16
    curves = None if kind is None or kind.only else kind
    if heats == Heats.A_PROGRAM and _calls(problem.body):
        registers += 32
    if heats == Heats.A_PROGRAM or curves is not None:
        registers += 20 + columns * id_dtype(problem).itemsize // 4
    if curves is not None:
        # Curves of all columns are looked up at the same time.
        registers += (3 if curves.pieces == FEW else 5) * numbers // 2
    return registers


def _calls(conduction: Conduction) -> bool:
    """Whether the program of the source calls functions, such as exponentials."""
    assert conduction.source is not None
    return any(it.operation not in _INLINE for it in conduction.source.program.instructions)


def body_1d_kernel(problem: Problem, parameters: Parameters) -> FusedKernel:
    """The kernel for a body with parameters of `body_1d_parameters`."""
    conduction, real = problem.body, problem.dtype
    kind, steps, warps = curves_kind(conduction), parameters[STEPS_PER_BLOCK], parameters["warps"]
    numbers = np.zeros(1)
    if kind is not None:
        assert conduction.enthalpy is not None
        numbers = curve_numbers(conduction.enthalpy, kind.n_ids)

    defines = {
        **body_defines(problem),
        **({} if kind is None else {**kind.defines(), "TS_COPIES": 1}),
        "TS_HEATS": int(heats_of(conduction)),
        "TS_RADIUS": 1,
        "TS_STEPS": steps,
        **{f"TS_{name.upper()}": parameters[name] for name in ("columns", "warps", "refresh")},
        "TS_BLOCKS": parameters["blocks"],
    }
    spoilt = parameters["refresh"]
    tile = warps * (32 * parameters["columns"] - 2 * spoilt) + 2 * spoilt
    return FusedKernel(
        source="body_1d.cu",
        entry="body_1d",
        defines=defines,
        depth=steps,
        tile=(1, 1, _written(real, tile, max(steps, spoilt))),
        threads=32 * warps,
        shared_bytes=_body_shared_bytes(parameters, real.itemsize, kind),
        weights=numbers.astype(real),
        by_pointer=True,
        line=_SECTOR,
        beside=_BodyArrays(defines, 3 if heats_of(conduction) else 2),
    )


def body_1d_memory(problem: Problem, slab: Slab, parameters: Parameters) -> int:
    """Bytes of the arrays of a slab."""
    layout = pitch_slab(problem, slab, parameters[STEPS_PER_BLOCK])
    n_arrays = 3 if heats_of(problem.body) else 2
    return n_arrays * layout.field_pitch * problem.dtype.itemsize


def _body_shared_bytes(shape: Parameters, item: int, kind: PaletteKind | None) -> int:
    """A stage per warp, the ends that warps exchange, and curves."""
    pitch = _lane_pitch(shape["columns"], _WORD // item)
    curves = 0 if kind is None else kind.potentials
    return (shape["warps"] * (32 * pitch + 4 * shape["refresh"]) + curves) * item


class _BodyArrays:
    """Arguments of the kernel besides the state; keeps the arrays of one slab."""

    def __init__(self, defines: Mapping[str, str | int], count: int) -> None:
        self._defines, self._count = defines, count
        self._of: Slab | None = None
        self._made: list[Any] = []

    def __call__(self, state: DeviceState, box: Box3) -> tuple[Any, ...]:
        """The arguments for any box of a slab."""
        body, layout = state.body, state.layout
        assert body is not None
        with state.device.use() as cupy:
            if not self._made:
                made = [cupy.zeros(layout.field_pitch, layout.dtype) for _ in range(self._count)]
                # Where nothing heats the points, no third array is written or read.
                self._made = (made + made[:1])[:3]
            arrays = [flat[layout.origin :] for flat in self._made]

            if self._of != state.slab:
                ((low, high),) = body.around
                make = state.device.function("body_1d.cu", "body_1d_arrays", self._defines)
                blocks = -(-(high - low) // _ARRAY_THREADS)
                span = np.int32(low), np.int32(high)
                make((blocks, 1, 1), (_ARRAY_THREADS, 1, 1), (*arrays, *span, body.argument()))
                self._of = state.slab
        return (*arrays, body.argument())
