"""The method `gpu.stream`: its kernel families for stencils, bodies and equations."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.given import constants_of, equations_of, given_defines
from tetris_sim.gpu_kernels.common.layout import LINE, REAL
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel, StreamedAxis, round_up
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod, Special
from tetris_sim.gpu_kernels.stream.conducting import CONDUCTING, cost_of_body
from tetris_sim.gpu_kernels.stream.equations_2d import (
    beside,
    equations_2d_kernel,
    equations_2d_parameters,
    equations_2d_refusal,
    levels_of,
    n_slots,
    print_levels,
)
from tetris_sim.gpu_kernels.stream.equations_3d import (
    equations_3d_kernel,
    equations_3d_parameters,
    equations_3d_refusal,
)
from tetris_sim.gpu_kernels.stream.kernel_1d import (
    stream_1d_kernel,
    stream_1d_parameters,
    stream_1d_refusal,
    stream_1d_sums,
    unit_tap_weights,
)
from tetris_sim.gpu_kernels.stream.kernel_2d import (
    stream_2d_kernel,
    stream_2d_parameters,
    stream_2d_refusal,
    stream_2d_sums,
    stream_2d_sums_parameters,
    stream_planes_parameters,
)
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import PAIR, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Offset, Stencil

_LANES = 32
_SECTOR_BYTES = 32  # the smallest unit of a memory transfer
_REGISTERS = 65536  # 4-byte registers per multiprocessor
_BESIDE = 40  # registers per thread for addresses and intermediate values
_MOST_SHARED = 99 * 1024  # bytes that a block can have on any GPU since sm_80
_MOST_OPERATIONS = 20_000  # operations in an unrolled kernel: more would compile for minutes
_WARPS = 4
_PROPOSED = 6


@dataclass(frozen=True)
class PointSpan:
    """The points that a warp holds, which the kernel's parameters describe.

    Attributes:
        steps_per_block: steps of a launch.
        columns: points per lane.
        blocks: smallest number of blocks per multiprocessor.
    """

    steps_per_block: int
    columns: int
    blocks: int


@dataclass(frozen=True)
class _Needs1:
    """The requirements of a kernel for some equations, independent of its span.

    Attributes:
        slots: names that are live at the same time.
        beside: columns that a stage reads on either side of a point.
        radius: points that a step makes invalid at each end.
        item: bytes of a number.
        operations: operations per point and step.
        longest: operations of the longest stage.
    """

    slots: int
    beside: int
    radius: int
    item: int
    operations: int
    longest: int

    def halo(self, it: PointSpan) -> int:
        """Points of a warp before those that it writes, whole sectors."""
        return round_up(it.steps_per_block * self.radius, _SECTOR_BYTES // self.item)

    def written(self, it: PointSpan) -> int:
        """Points that a warp writes, in whole sectors."""
        # Both ends of a warp become invalid; the halo on the left is rounded up for alignment.
        unit = _SECTOR_BYTES // self.item
        left = _LANES * it.columns - self.halo(it) - it.steps_per_block * self.radius
        return left // unit * unit

    def shared_bytes(self, it: PointSpan) -> int:
        """Shared memory for one stage per warp [bytes]."""
        return _WARPS * _LANES * _pitch(it.columns) * self.item

    def fits(self, it: PointSpan) -> bool:
        """Whether the kernel compiles with a span and has points to write."""
        return (
            it.columns >= self.beside
            and self.written(it) > 0
            and self.shared_bytes(it) <= _MOST_SHARED
        )

    def is_light(self, it: PointSpan) -> bool:
        """Whether the kernel should not spill and compiles fast enough. The compiler keeps about
        twice as many values of a formula in flight as it has operations (found by compiling).
        """
        # The points of all live names with their neighbours, and the values of the longest formula.
        registers = 1.3 * self.slots * (it.columns + 2 * self.beside) * self.item / 4 + _BESIDE
        registers += min(64, self.longest * self.item // 2)
        most = min(255, _REGISTERS // (_LANES * _WARPS * it.blocks) // 8 * 8)
        # Every point of a lane is unrolled.
        return registers <= most and it.columns * self.operations <= _MOST_OPERATIONS

    def cost(self, it: PointSpan) -> float:
        """An estimate of the cost of a point and step: operations and shuffles of a lane, and
        memory access once per launch, divided by the share of points that are written. Fewer warps
        hide less latency.
        """
        # Relative weights, in operations.
        share = self.written(it) / (_LANES * it.columns)
        one = self.operations + 8 * self.slots * self.beside / it.columns
        one += 16 * self.slots / it.steps_per_block
        return one * (1 + 0.4 / it.blocks) / share


def _pitch(columns: int) -> int:
    """Elements from lane to lane in shared memory, an odd number to avoid bank conflicts."""
    return columns | 1


def _needs(problem: Problem) -> _Needs1:
    equations = equations_of(problem)
    levels = levels_of(equations)
    return _Needs1(
        slots=n_slots(levels),
        beside=max(level.beside for level in levels),
        radius=problem.stencil.radii[0],
        item=np.dtype(problem.dtype).itemsize,
        operations=max(1, equations.n_operations),
        longest=max(
            sum(not it.is_given for it in stage.programs.instructions) for stage in equations.stages
        ),
    )


def equations_1d_refusal(problem: Problem) -> str | None:
    """Why the kernel refuses equations, as a sentence for the user; None if it does not."""
    if not equations_1d_parameters(problem):
        return f"the points of {_needs(problem).slots} fields do not fit into registers"
    return None


def equations_1d_parameters(problem: Problem) -> tuple[Parameters, ...]:
    """Spans worth trying, the best guess first; the keys are those of `PointSpan`."""
    needs = _needs(problem)
    found = [
        span
        for span in itertools.starmap(
            PointSpan,
            itertools.product(
                (64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1),
                (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40),
                (2, 3, 4, 5, 8),
            ),
        )
        if needs.fits(span) and needs.is_light(span)
    ]

    # Only the cheapest number of columns for each number of steps and blocks.
    best: dict[tuple[int, int], PointSpan] = {}
    for span in sorted(found, key=needs.cost):
        best.setdefault((span.steps_per_block, span.blocks), span)
    return tuple(asdict(span) for span in sorted(best.values(), key=needs.cost)[:_PROPOSED])


def equations_1d_kernel(problem: Problem, parameters: Mapping[str, int]) -> FusedKernel:
    """The kernel for a problem with the parameters of a `PointSpan`.

    Raises:
        ValueError: the span does not fit.
    """
    # A warp exchanges points by shuffles only, so its span alone decides what fits.
    span, needs = PointSpan(**parameters), _needs(problem)
    if not needs.fits(span):
        msg = f"these equations do not fit into {span}: take more columns, or fewer steps"
        raise ValueError(msg)

    return FusedKernel(
        source="equations_1d.cu",
        entry="equations_1d",
        defines={
            **given_defines(problem),
            "TS_DEPTH": span.steps_per_block,
            "TS_COLUMNS": span.columns,
            "TS_WARPS": _WARPS,
            "TS_BLOCKS": span.blocks,
            "TS_WRITTEN": needs.written(span),
            "TS_HALO": needs.halo(span),
            "TS_FIELDS": problem.n_fields,
            "TS_SLOTS": needs.slots,
            "TS_PITCH": _pitch(span.columns),
            "TS_LEVELS": print_levels(equations_of(problem)),
        },
        depth=span.steps_per_block,
        tile=(1, 1, _WARPS * needs.written(span)),
        threads=_LANES * _WARPS,
        shared_bytes=round_up(needs.shared_bytes(span), 16),
        weights=constants_of(problem),
        line=_SECTOR_BYTES,
        beside=beside,
    )


# Kernels for equations, by number of axes.

_KERNELS = {1: equations_1d_kernel, 2: equations_2d_kernel, 3: equations_3d_kernel}
_PARAMETERS = {1: equations_1d_parameters, 2: equations_2d_parameters, 3: equations_3d_parameters}
_REFUSALS = {1: equations_1d_refusal, 2: equations_2d_refusal, 3: equations_3d_refusal}


def _kernel(problem: Problem, parameters: Parameters) -> FusedKernel:
    return _KERNELS[problem.grid.ndim](problem, parameters)


def _parameters(problem: Problem) -> tuple[Parameters, ...]:
    return _PARAMETERS[problem.grid.ndim](problem)


def _refusal(problem: Problem) -> str | None:
    if np.dtype(problem.dtype).name not in REAL:
        return f"the type is {problem.dtype}, and only {' and '.join(REAL)} are compiled"

    if (why_not := problem.why_not_substeps) is not None:
        return why_not
    return _REFUSALS[problem.grid.ndim](problem)


def _nothing(problem: Problem, slab: Slab, parameters: Parameters) -> int:
    return 0


# Kernels for equations need no memory besides the step inputs.
SOLVING = Special(_kernel, _parameters, _refusal, _nothing)


# Stencils in 3D: blocks of threads stream along z, with all levels of a pass in flight
# (`stream_3d.cu`).
#
# They take any list of offsets up to radius 4, as far as registers hold the unfinished sums of a
# tile that is not all halo. Stencils that are symmetric along all axes are folded: points that
# share a weight are added first.

_LARGEST_RADIUS = 4
_WORD, _SECTOR = 16, 32  # bytes: the widest access, the smallest unit of a memory transfer
_LARGEST_BODY = 2048  # multiply-adds per plane: with more, compiling takes ten seconds
_SMALLEST_YIELD = 0.6  # smallest share of a tile's points that it writes

# Steps, rows, warps, blocks per multiprocessor, planes ahead, and levels that hold their newest sum
# in shared memory (none if not said). On an H200 at 1024^3 (2026-11-21) heat-3d made 595, 571, 576,
# 576 GStencil/s with the second, fourth, fifth, seventh; symmetric box-3d27p 485, 446 with the
# third, sixth; any box-3d27p 316, 309, 312 with the third, sixth, ninth. On an H100 at 768^3
# (2026-11-27) heat-3d made 545 with the first, 421 with the second.
_SHAPES = (
    (4, 5, 8, 1, 2, 2),
    (3, 6, 8, 1, 3),
    (3, 5, 8, 1, 3),
    (3, 4, 12, 1, 3),
    (3, 3, 16, 1, 3),
    (3, 3, 12, 1, 3),
    (4, 3, 12, 1, 3),
    (3, 4, 8, 1, 2),  # less than 96 KB of shared memory
    (2, 3, 8, 2, 2),
    (2, 8, 8, 1, 2),
    (2, 5, 8, 1, 2),
    (2, 3, 12, 1, 2),
    (1, 4, 12, 1, 3),
    (1, 3, 12, 1, 3),
    (1, 3, 8, 1, 2),
    (1, 2, 8, 1, 2),
)
# Pairs of floats, as in 2D: heat-3d at 512^3 made 216, 213, 213, 198 GStencil/s (H200, 2026-11-24)
# with these, 185 with the first one for doubles.
_PAIR_SHAPES = (
    (2, 3, 16, 1, 2),
    (2, 4, 12, 1, 2),
    (2, 4, 8, 2, 2),
    (3, 4, 12, 1, 3),
    *_SHAPES[-4:],
)
# With the planes of a sum beside those of the state.
_SUM_SHAPES = (
    (4, 5, 8, 1, 2, 2),
    (3, 6, 8, 1, 2, 1),
    (3, 5, 8, 1, 3),
    (3, 4, 12, 1, 2),
    (3, 4, 8, 1, 2),
    *_SHAPES[-6:],
)
_MOST_PROPOSALS = 7

# Parameters that are macros of the same name in the source.
_SHAPE_NAMES = ("columns", "rows", "warps", "ahead", "blocks")


class _Tap(NamedTuple):
    """A term of the sum, or several that share a weight."""

    offset: Offset
    weight: float
    n_points: int  # that share the weight


def stream_3d_refusal(stencil: Stencil, dtype: npt.DTypeLike) -> str | None:
    """Why the kernel refuses a stencil, as a sentence for the user; None if it does not."""
    if stencil.ndim != 3:
        return f"it streams through three axes, and the stencil has {stencil.ndim}"
    if np.dtype(dtype).name not in REAL:
        return f"it computes in float64, float32 or pairs, and {np.dtype(dtype)} was asked for"
    if stencil.radius > _LARGEST_RADIUS:
        return (
            f"it takes neighbours up to {_LARGEST_RADIUS} points away, and the stencil reads "
            f"{stencil.radius} away"
        )
    if not stream_3d_parameters(stencil, dtype):
        return (
            f"{stencil.n_points} points with a radius of {stencil.radius} do not fit its registers"
        )
    return None


def stream_3d_parameters(
    stencil: Stencil, dtype: npt.DTypeLike, *, sums: bool = False
) -> tuple[Parameters, ...]:
    """Candidate parameters for autotuning, the best guess first; with `sums` for the kernel that
    adds the sum of a source.

    A thread owns `rows` x `columns` points of a tile, whose `warps` lie below each other; `ahead`
    planes are prefetched.
    """
    real = np.dtype(dtype)
    names = ("steps_per_block", "rows", "warps", "blocks", "ahead", "held")
    columns = _WORD // real.itemsize
    shapes = _SUM_SHAPES if sums else _PAIR_SHAPES if real == PAIR else _SHAPES
    proposals = (
        dict(zip(names, (*shape, 0)[:6], strict=True)) | {"columns": columns} for shape in shapes
    )
    return tuple(
        itertools.islice((p for p in proposals if _fits(stencil, real, p)), _MOST_PROPOSALS)
    )


def stream_3d_sums(stencil: Stencil, dtype: npt.DTypeLike, parameters: Parameters) -> FusedKernel:
    """The kernel that adds the sum of a source, whose planes come beside those of the state."""
    row = 32 * parameters["columns"] * np.dtype(dtype).itemsize
    ring = (parameters["ahead"] + 1) * parameters["warps"] * parameters["rows"] * row
    return stream_3d_kernel(stencil, dtype, parameters).summing(ring)


def stream_3d_kernel(stencil: Stencil, dtype: npt.DTypeLike, parameters: Parameters) -> FusedKernel:
    """The kernel for a stencil with parameters of `stream_3d_parameters`."""
    real = np.dtype(dtype)
    steps, folded = parameters["steps_per_block"], _folds(stencil)
    taps = _folded_taps(stencil) if folded else _plain_taps(stencil)
    scaled, weights = unit_tap_weights(
        [t.weight for t in taps], steps, real, [t.n_points for t in taps]
    )

    defines: dict[str, str | int] = {
        "TS_REAL": REAL[real.name],
        "TS_TAPS": "{" + ",".join("{{{},{},{}}}".format(*tap.offset) for tap in taps) + "}",
        "TS_N_TAPS": len(taps),
        "TS_N_WEIGHTS": weights.size,
        "TS_STEPS": steps,
        "TS_SCALED": int(scaled),
        "TS_FOLDED": int(folded),
    }
    defines |= {
        f"TS_RADIUS_{axis}": radius for axis, radius in zip("ZYX", stencil.radii, strict=True)
    }
    defines |= {f"TS_{name.upper()}": parameters[name] for name in _SHAPE_NAMES}
    defines["TS_HELD"] = parameters.get("held", 0)

    return FusedKernel(
        source="stream_3d.cu",
        entry="stream_3d",
        defines=defines,
        depth=steps,
        tile=_written(stencil, real, parameters),
        threads=32 * parameters["warps"],
        shared_bytes=_shared_bytes(stencil, real, parameters),
        weights=weights,
        # Each level lags a plane behind the one before, hence steps - 1.
        stream=StreamedAxis(axis=0, repeated=2 * steps * stencil.radii[0] + steps - 1, unit=1),
        line=_SECTOR,
        # A launch of heat-3d on 1024^3 points with a box and tiles from (3, 3, 4) on took 6569 us,
        # from (3, 3, 8) 5631, from (3, 3, 0) 5509 (H200, float64, 2026-11-24).
        begins=LINE // real.itemsize,
    )


def _folds(stencil: Stencil) -> bool:
    """Whether the stencil is symmetric along all axes, and adding points of equal weight first
    saves work.
    """
    mirrored = all(stencil.is_mirrored(axis) for axis in range(3))
    return mirrored and not stencil.is_star  # a star's rows and planes have no sums to share


def _plain_taps(stencil: Stencil) -> list[_Tap]:
    return [_Tap(offset, weight, 1) for offset, weight in stencil.terms.items()]


def _folded_taps(stencil: Stencil) -> list[_Tap]:
    """One tap for each combination of distances along the three axes, the largest first."""
    # The octant of non-negative offsets represents all points.
    first = {offset: weight for offset, weight in stencil.terms.items() if min(offset) >= 0}
    return [
        _Tap(offset, weight, 2 ** sum(map(bool, offset)))
        for offset, weight in sorted(first.items(), reverse=True)
    ]


def _fits(stencil: Stencil, real: np.dtype[Any], parameters: Parameters) -> bool:
    """Whether the compiler should manage without spilling, and enough of the tile is written."""
    steps, rows, columns = (parameters[name] for name in ("steps_per_block", "rows", "columns"))
    radius_z, radius_y, _ = stencil.radii
    _, written_y, written_x = _written(stencil, real, parameters)
    share = written_y * written_x / (rows * parameters["warps"] * 32 * columns)
    if min(written_y, written_x) <= 0 or (
        steps > 1 and (radius_y > rows or share < _SMALLEST_YIELD)
    ):
        return False

    # Unfinished sums of every level, and for all levels but the first the plane that waits for the
    # next turn.
    held = parameters["held"]
    kept = rows * columns * (steps * max(1, 2 * radius_z) + steps - 1 - held) * real.itemsize // 4
    registers = min(255, _REGISTERS // (32 * parameters["warps"] * parameters["blocks"]) // 8 * 8)
    body = stencil.n_points * rows * columns * steps
    # Only of a star of radius 1 along z is the newest sum one product.
    if held and not (stencil.is_star and radius_z == 1):
        return False
    return kept <= registers * _share_kept(stencil) and body <= _LARGEST_BODY


def _share_kept(stencil: Stencil) -> float:
    """The share of a thread's registers that may be live from turn to turn without spilling, found
    by compiling.
    """
    if stencil.is_star:
        return 0.79 if stencil.radius == 1 else 0.72
    return 0.64 if stencil.radius <= 2 else 0.3


def _written(stencil: Stencil, real: np.dtype[Any], parameters: Parameters) -> tuple[int, int, int]:
    """Points that a block writes along z, y, x: one plane, and the part of its tile that is still
    valid after `steps` steps.
    """
    steps = parameters["steps_per_block"]
    _, radius_y, radius_x = stencil.radii
    word, sector = _WORD // real.itemsize, _SECTOR // real.itemsize
    # Rounded up to whole words on the left, so that accesses are aligned.
    halo = -(-steps * radius_x // word) * word
    x = (32 * parameters["columns"] - halo - steps * radius_x) // sector * sector
    return 1, parameters["warps"] * parameters["rows"] - 2 * steps * radius_y, x


def _shared_bytes(stencil: Stencil, real: np.dtype[Any], parameters: Parameters) -> int:
    """Shared memory for a ring of planes of the state, those that levels hold, and two buffers of
    the rows that warps exchange at each level in between [bytes].
    """
    steps, warps = parameters["steps_per_block"], parameters["warps"]
    row = 32 * parameters["columns"] * real.itemsize
    planes = parameters["ahead"] + 1 + parameters.get("held", 0)
    state = planes * warps * parameters["rows"]
    ends = max(1, 2 * (steps - 1)) * warps * max(1, 2 * stencil.radii[1])
    return (state + ends) * row


METHOD = FusedMethod(
    "gpu.stream",
    {
        1: Family(stream_1d_kernel, stream_1d_parameters, stream_1d_refusal),
        2: Family(stream_2d_kernel, stream_2d_parameters, stream_2d_refusal),
        3: Family(stream_3d_kernel, stream_3d_parameters, stream_3d_refusal),
    },
    explanation=lambda problem, *_: cost_of_body(problem),
    planes=Family(stream_2d_kernel, stream_planes_parameters, stream_2d_refusal),
    conducting=CONDUCTING,
    solving=SOLVING,
    summing={
        1: Family(stream_1d_sums, stream_1d_parameters, stream_1d_refusal),
        2: Family(stream_2d_sums, stream_2d_sums_parameters, stream_2d_refusal),
        3: Family(
            stream_3d_sums, functools.partial(stream_3d_parameters, sums=True), stream_3d_refusal
        ),
    },
)
