"""The method `gpu.stream`: its kernel families for stencils, bodies and equations."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from tetris_sim.gpu_kernels.common.given import constants_of, equations_of, given_defines
from tetris_sim.gpu_kernels.common.layout import REAL
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel, round_up
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod, Special
from tetris_sim.gpu_kernels.stream.conducting import CONDUCTING
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
)
from tetris_sim.gpu_kernels.stream.kernel_2d import (
    stream_2d_kernel,
    stream_2d_parameters,
    stream_2d_refusal,
    stream_planes_parameters,
)
from tetris_sim.gpu_kernels.stream.kernel_3d import (
    stream_3d_kernel,
    stream_3d_parameters,
    stream_3d_refusal,
)
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

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


METHOD = FusedMethod(
    "gpu.stream",
    {
        1: Family(stream_1d_kernel, stream_1d_parameters, stream_1d_refusal),
        2: Family(stream_2d_kernel, stream_2d_parameters, stream_2d_refusal),
        3: Family(stream_3d_kernel, stream_3d_parameters, stream_3d_refusal),
    },
    planes=Family(stream_2d_kernel, stream_planes_parameters, stream_2d_refusal),
    conducting=CONDUCTING,
    solving=SOLVING,
)
