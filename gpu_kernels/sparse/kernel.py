"""The kernel of `gpu.sparse`: fused steps as one sparse product per patch, FP16 in memory, sums in
FP32.

Several steps are composed into one stencil (`Stencil.power`), which `sparse.cu` applies once.
`plan` says what it is handed, the modules beside it how that is made.

`sparse.cu` can do more than a run asks for: `plan_kernel` also takes plans of other formats and of
whole patches, which benchmarks and tests make (tests/papers/sparstencil/variants.py).

Parameters:
    steps_per_block: steps composed.
    merged_x: results of a patch along x: 2, 4, 8 or 16.
    warps, blocks: warps per block of threads, and blocks that a multiprocessor holds at least
        (limits registers).
    units: units that a warp multiplies side by side.
    steps: of the stream per stage of shared memory. 3D: one.
    stages: in shared memory; all but one are on their way. Two are a double buffer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.formats import FLOAT16, operand_weights
from tetris_sim.gpu_kernels.fused.half import (
    Stage,
    blocks_beside,
    half_refusal,
    refuse_bad_rounding,
    rounds_well,
)
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel, Stream, braces, round_up
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod
from tetris_sim.gpu_kernels.sparse.fragments import ROWS, Words
from tetris_sim.gpu_kernels.sparse.plan import Plan, fragments, lookup_table
from tetris_sim.gpu_kernels.sparse.units import unit_plan, unit_width
from tetris_sim.model.grid import LAST, on_three
from tetris_sim.model.stencil import Stencil

KINDS = ("f16", "bf16", "tf32", "f64")
"""Formats by their number in sparse.cu."""

MADE_OF = {"f16": "float16", "bf16": "float32", "tf32": "float32", "f64": "float64"}
"""The dtype of the state, by format."""

# FP16 as bits: they only move
_STORED = {"float16": "unsigned short", "float32": "float", "float64": "double"}
# radius after fusion: 2D and 3D keep the matrices of all units in registers
_FARTHEST = {1: 63, 2: 7, 3: 3}
_REGISTERS = 200  # that matrices and results in flight may take, of 255
_OTHERS = 32  # registers for all else; more blocks with less make the compiler spill


def sparse_refusal(stencil: Stencil, dtype: npt.DTypeLike) -> str | None:
    """Why this kernel cannot do it, as a sentence for the user; None if it can."""
    return half_refusal(stencil, dtype, _steps_to_try, "the sparse matrices")


def sparse_parameters(stencil: Stencil, dtype: npt.DTypeLike) -> tuple[Mapping[str, int], ...]:
    """Parameters worth trying, the best guess first: the deepest, then fewer steps; then other
    stages and warps.

    The guesses are what one H200 liked best (10240 x 10240 points and their like in 1D and 3D,
    November 2026).
    """
    if sparse_refusal(stencil, dtype) is not None:
        return ()

    best, *fewer = (_shape(stencil, n) for n in _steps_to_try(stencil))
    other_warps = {**best, "warps": 12 - best["warps"]}
    if stencil.ndim == 2:
        other_warps |= {"units": 1, "stages": 3}
    shapes = (
        best,
        *fewer,
        {**best, "stages": 4},
        {**best, "stages": 3},
        {**best, "stages": 2},
        other_warps,
    )

    proposals: list[Mapping[str, int]] = []
    for shape in shapes:
        parameters = {**shape, "blocks": _blocks(stencil, shape)}
        if parameters not in proposals:
            proposals.append(parameters)
    return tuple(proposals)


def sparse_kernel(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel that applies `steps_per_block` steps at once.

    Args:
        stencil: of one step.
        dtype: float16.
        parameters: one of `sparse_parameters`, or others as above.

    Raises:
        ValueError: it is another dtype, or FP16 does not have the weights.
    """
    refuse_other_dtype("f16", dtype)
    refuse_bad_rounding(stencil, parameters["steps_per_block"])
    fused = operand_weights(stencil.power(parameters["steps_per_block"]), FLOAT16)
    plan = unit_plan(fused, parameters["merged_x"])
    return plan_kernel(fused, plan, fragments(plan), parameters)


def refuse_other_dtype(kind: str, dtype: npt.DTypeLike) -> None:
    """Check that a format is made of this dtype.

    Raises:
        ValueError: it is not.
    """
    if np.dtype(dtype) != np.dtype(MADE_OF[kind]):
        msg = f"{kind} is not made of {np.dtype(dtype)}"
        raise ValueError(msg)


def _steps_to_try(stencil: Stencil) -> tuple[int, ...]:
    farthest, radius = _FARTHEST[stencil.ndim], max(1, stencil.radius)
    if stencil.ndim == 1:
        # Half as far is half as many products.
        reaches = [(farthest + 1) // fewer - 1 for fewer in (1, 2, 4, 8)]
        fitting = tuple(dict.fromkeys(reach // radius for reach in reaches if reach >= radius))
    else:
        steps = range(farthest // radius, 0, -1)
        fitting = tuple(n for n in steps if _registers(stencil, _shape(stencil, n)) <= _REGISTERS)
    return tuple(n for n in fitting if rounds_well(stencil, n))


def _shape(stencil: Stencil, steps: int) -> dict[str, int]:
    reach = [steps * radius for radius in stencil.radii]
    if stencil.ndim == 1:
        return {
            "steps_per_block": steps,
            "merged_x": 16,
            "warps": 4,
            "units": 2,
            "steps": 1,
            "stages": 3,
        }

    merged = 8 if reach[-1] <= 3 else 16
    chosen = {"steps_per_block": steps, "merged_x": merged}
    if stencil.ndim == 2:
        if max(reach) == _FARTHEST[2]:
            return chosen | {"warps": 8, "units": 2, "steps": 8, "stages": 2}
        return chosen | {
            "warps": 4,
            "units": 2 if merged == 8 else 1,
            "steps": 8 if merged == 16 else 4,
            "stages": 3,
        }

    return chosen | {"warps": 8, "units": 2 if reach[0] <= 2 else 1, "steps": 1, "stages": 4}


def _registers(stencil: Stencil, shape: Mapping[str, int]) -> int:
    """What matrices, metadata and results in flight take of a thread's registers."""
    flight, products = _sizes(stencil, shape)
    return (
        flight * products * 4 + (flight * products + 1) // 2 + shape["units"] * (flight + 1) * 4 + 4
    )


def _sizes(stencil: Stencil, shape: Mapping[str, int]) -> tuple[int, int]:
    """(flight, products) of the plan that these parameters have (units.py)."""
    r1 = shape["merged_x"]
    r2 = ROWS // r1
    reach = [shape["steps_per_block"] * radius for radius in stencil.radii]
    per_unit = r2 * unit_width(reach[-1], r1) // 32
    slots = -(-(2 * reach[-2] + r2) // r2) if stencil.ndim > 1 else 1
    return (slots, per_unit) if stencil.ndim < 3 else (2 * reach[0] + 1, slots * per_unit)


def _blocks(stencil: Stencil, shape: Mapping[str, int]) -> int:
    """Blocks of threads that fit beside each other; in 2D two are faster than more."""
    fitting = blocks_beside(32 * shape["warps"], _registers(stencil, shape) + _OTHERS)
    return min(2, fitting) if stencil.ndim == 2 and shape["merged_x"] == 16 else fitting


def _stage(plan: Plan, parameters: Mapping[str, int], ndim: int, vector: int) -> Stage:
    (r2, r1), warps, steps = plan.merged, parameters["warps"], parameters["steps"]
    results = parameters["units"] * 8 * r1 * {1: warps * steps, 2: warps, 3: 1}[ndim]
    lead = round_up(plan.lead, vector)

    height = {1: 1, 2: steps * r2, 3: warps * r2}[ndim]
    streams = {
        1: Stream(axis=2, repeated=0, unit=results),
        2: Stream(axis=1, repeated=(plan.flight - 1) * r2, unit=steps * r2),
        3: Stream(axis=0, repeated=plan.flight - 1, unit=1),
    }

    return Stage(
        lead=lead,
        row_points=lead + results + round_up(plan.width - r1 - plan.lead, vector),
        rows=height + plan.rows - r2,
        tile=(1, height, results),
        stream=streams[ndim],
    )


def plan_kernel(
    fused: Stencil,
    plan: Plan,
    registers: tuple[Words, Words],
    parameters: Mapping[str, int],
    *,
    sparse: bool = True,
) -> FusedKernel:
    """The kernel that makes the products of a plan.

    Args:
        fused: the stencil that is applied at once.
        plan: of its products.
        registers: A and the metadata of all products.
        parameters: as above.
        sparse: whether sparse tensor cores multiply, else dense ones.
    """
    item = np.dtype(MADE_OF[plan.kind]).itemsize
    stage = _stage(plan, parameters, fused.ndim, 16 // item)
    a, metadata = registers
    table = lookup_table(plan, stage.row_points, stage.lead - plan.lead)

    # Linear: each lane is a point behind the one before.
    firsts = table[:, 0]
    linear = np.array_equal(table, firsts[:, None] + np.arange(4)[:, None])

    numbers = np.concatenate([a.ravel(), metadata.ravel(), table.ravel().view(np.uint32)])
    reach = on_three(fused.radii, 0)
    return FusedKernel(
        source="sparse.cu",
        entry="sparse_stencil",
        defines={
            "TS_REAL": _STORED[MADE_OF[plan.kind]],
            "TS_FORMAT": KINDS.index(plan.kind),
            "TS_SPARSE": int(sparse),
            "TS_MERGED_X": plan.merged[1],
            "TS_FLIGHT": plan.flight,
            "TS_PRODUCTS": plan.products,
            "TS_VECTOR": plan.vector,
            "TS_LINEAR": int(linear),
            "TS_FIRSTS": braces(firsts) if linear else 0,
            "TS_AXIS": LAST[fused.ndim][0],
            "TS_WARPS": parameters["warps"],
            "TS_MIN_BLOCKS": parameters["blocks"],
            "TS_UNITS": parameters["units"],
            "TS_STEPS": parameters["steps"],
            "TS_STAGES": parameters["stages"],
            "TS_LEAD": stage.lead,
            "TS_ROW_POINTS": stage.row_points,
            "TS_ROWS": stage.rows,
            "TS_REACH": braces(reach),
        },
        depth=parameters["steps_per_block"],
        tile=stage.tile,
        threads=32 * parameters["warps"],
        shared_bytes=item * parameters["stages"] * stage.rows * stage.row_points + 4 * table.size,
        weights=numbers,
        stream=stage.stream,
        by_pointer=True,
    )


METHOD = FusedMethod(
    "gpu.sparse",
    dict.fromkeys((1, 2, 3), Family(sparse_kernel, sparse_parameters, sparse_refusal)),
)
