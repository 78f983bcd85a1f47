"""Kernels of `sparse.cu` that no run asks for: whole patches as in the paper, all zeros multiplied on
dense tensor cores, and other formats.

BF16 and TF32 of float32 in memory round what they multiply, and FP64 has only dense products
(section 4.7 of the paper), of which those of `gpu.dual_tessellation` are faster.

Parameters beside those of gpu_kernels/tensor_cores/sparse.py:
    sparse: 1 unless given; 0 multiplies the same matrices with all their zeros on dense tensor
    cores.
    flight: 1 unless given; 0 is the paper's way: a patch is one product (1D, 2D).
    format: 0 unless given (FP16), 1 (BF16), 2 (TF32), 3 (FP64): what is multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tests.papers.sparstencil.dense_plans import dense_patch_plan, dense_unit_plan
from tests.papers.sparstencil.patches import patch_plan
from tetris_sim.gpu_kernels.fused.kernel import (
    FORMATS,
    FusedKernel,
    operand_weights,
    refuse_bad_rounding,
)
from tetris_sim.gpu_kernels.tensor_cores.sparse import (
    KINDS,
    plan_kernel,
    refuse_other_dtype,
    unit_plan,
)
from tetris_sim.gpu_kernels.tensor_cores.sparse_plan import (
    DEPTHS,
    INSTRUCTIONS,
    LANES,
    ROWS,
    SparsePlan,
    Words,
    columns_of,
    fragments,
    in_parts,
    value_registers,
)
from tetris_sim.model.stencil import Stencil


def variant_kernel(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel that applies `steps_per_block` steps at once.

    Args:
        stencil: of one step.
        dtype: what the format is made of.
        parameters: as above.

    Raises:
        ValueError: the parameters contradict each other or the dtype, or FP16 does not have the
            weights.
    """
    number = parameters.get("format", 0)
    kind, r1 = KINDS[number], parameters["merged_x"]
    sparse, whole = bool(parameters.get("sparse", 1)), not parameters.get("flight", 1)
    refuse_other_dtype(kind, dtype)

    fused, merged = stencil.power(parameters["steps_per_block"]), (ROWS // r1, r1)
    if kind == "f64":
        if sparse or stencil.ndim != 2:
            msg = (
                f"FP64 has dense products only, and here in 2D: sparse is {int(sparse)}, in "
                f"{stencil.ndim}D"
            )
            raise ValueError(msg)
        plan = dense_patch_plan(fused, merged) if whole else dense_unit_plan(fused, merged)
    else:
        if kind == "f16":
            refuse_bad_rounding(stencil, parameters["steps_per_block"])
        fused = operand_weights(fused, FORMATS[number])
        plan = patch_plan(fused, merged, kind) if whole else unit_plan(fused, r1, kind)

    registers = fragments(plan) if sparse else dense_fragments(plan)
    return plan_kernel(fused, plan, registers, parameters, sparse=sparse)


def dense_fragments(plan: SparsePlan) -> tuple[Words, Words]:
    """As `plan.fragments`, of matrices with all their zeros; nobody reads the metadata."""
    flat = plan.matrices.reshape(-1, ROWS, DEPTHS[plan.kind])
    if plan.kind == "f64":
        reals = flat.reshape(-1, 2, 8, 2, 4).transpose(0, 2, 4, 3, 1)
        words = np.ascontiguousarray(reals).view(np.uint32).reshape(len(flat), LANES, -1)
    else:
        instruction = INSTRUCTIONS[plan.kind]
        words = np.stack(
            [
                np.concatenate(
                    [
                        value_registers(part, instruction)
                        for part in columns_of(matrix, instruction.depth // 2)
                    ],
                    axis=1,
                )
                for matrix in flat
            ]
        )
    return in_parts(words), np.zeros((1, LANES), np.uint32)
