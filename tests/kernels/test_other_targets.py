"""The inner loops of the CPU methods on processors that are not here: with AVX2 only, with AVX-512,
and with NEON.

Every sum is fused multiply-adds of whole vectors, nothing is called, and registers are enough for
most. What a point takes at least is in decision 0055.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.support import cpu_equation_cases as cases
from tests.support.other_targets import TARGETS, assembly, counted, inner_loops, instructions, made
from tetris_sim.cpu_kernels.equations.stages import settled, stage_kernel
from tetris_sim.cpu_kernels.stream.kernels import KernelShape, best_shape, kernel_source
from tetris_sim.cpu_kernels.tessellate.conducting import conducting_source
from tetris_sim.cpu_kernels.tessellate.formulas import Conducting
from tetris_sim.cpu_kernels.tessellate.rows import lifted_source
from tetris_sim.model.stencils.catalogue import named_stencil

FLOAT64 = np.dtype(np.float64)
JAM = 2


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float64") for name in ("heat-2d", "heat-3d", "box-2d9p")),
        ("box-2d9p", "float32"),
        *(pytest.param(it, "float32", marks=pytest.mark.full) for it in ("heat-2d", "heat-3d")),
    ],
)
def test_sums_are_fused_multiply_adds_of_whole_vectors(
    name: str, dtype: str, target: str, tmp_path: Path
) -> None:
    it = TARGETS[target]
    offsets = named_stencil(name).stencil.offsets
    shape: KernelShape = best_shape(offsets, (2, 1), it.width)
    source = kernel_source(offsets, dtype, it.width // np.dtype(dtype).itemsize, shape)
    module = made(source, tmp_path, f"{name}_{dtype}_{target}".replace("-", "_"))

    lines = instructions(assembly(module.kernel, it))
    found = counted(lines, it)
    adds = [line for line in lines if re.match(it.fused, line)]
    vectors = shape.jam[0] * shape.jam[1] * shape.unroll
    assert len(adds) >= (len(offsets) - 1) * vectors  # a product comes before the sums
    assert all(re.search(it.vector, line) for line in adds)

    # Nothing that calls a function for each sum, nothing wider, and registers enough for the sums.
    calls = [line for line in lines if re.match(r"(callq|bl|blr)\b", line)]
    assert not any(re.search(r"fmaf?\b", line) for line in calls), calls
    assert it.width == 64 or not any("zmm" in line for line in lines)
    assert found["spill"] < len(adds)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "spills"), [("heat-3d", 0), ("box-3d27p", 0.75)])
def test_rows_one_above_the_other_take_only_the_sums_of_their_points(
    name: str, spills: float, target: str, tmp_path: Path
) -> None:
    it, stencil = TARGETS[target], named_stencil(name).stencil
    source = lifted_source(stencil, FLOAT64, it.width // 8, JAM, 0)
    module = made(source, tmp_path, f"rows_{name}_{target}".replace("-", "_"))
    loops = [counted(loop, it) for loop in inner_loops(assembly(module.update_box, it), it)]

    whole = [loop for loop in loops if loop["arithmetic"] % (JAM * stencil.n_points) == 0]
    assert whole, loops
    for loop in whole:
        assert loop["whole"] == loop["arithmetic"] == loop["sum"] + loop["mul"]
        assert loop["call"] == 0
    # Of a box weights are 27, which AVX2 has no registers for: they are operands in memory.
    assert min(loop["spill"] / loop["sum"] for loop in whole) <= spills


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["box-3d27p", "box-2d49p"])
def test_weights_in_memory_are_loaded_once_for_all_vectors_computed_together(
    name: str, target: str, tmp_path: Path
) -> None:
    it, stencil, unroll = TARGETS[target], named_stencil(name).stencil, 4
    axis = 0 if stencil.ndim == 3 else None
    source = lifted_source(stencil, FLOAT64, it.width // 8, JAM, axis, unroll)
    module = made(source, tmp_path, f"unrolled_{name}_{target}".replace("-", "_"))
    loops = inner_loops(assembly(module.update_box, it), it)

    sums = JAM * unroll * stencil.n_points
    (loop,) = [loop for loop in loops if counted(loop, it)["arithmetic"] == sums]
    found = counted(loop, it)
    assert found["whole"] == found["sum"] + found["mul"] == sums
    assert found["call"] == 0
    assert not any(re.match(r"(mfence|dmb|lock)", line) for line in loop)

    # A load for each sum would be an operand of it: here weights and points are shared.
    assert found["spill"] <= 0.15 * sums
    if target != "neon":  # which loads two vectors with an instruction
        accesses = sum("(" in line and not line.startswith("lea") for line in loop)
        assert accesses < sums


@pytest.mark.parametrize("target", TARGETS)
def test_a_body_takes_a_difference_for_each_face_that_rows_do_not_share(
    target: str, tmp_path: Path
) -> None:
    it = TARGETS[target]
    kind = Conducting(3, heated=False, scaled=False, above=True)
    source = conducting_source(kind, FLOAT64, it.width // 8, JAM)
    module = made(source, tmp_path, f"body_{target}")
    loops = [counted(loop, it) for loop in inner_loops(assembly(module.update_box, it), it)]

    # Six products and the rate a point; of differences one along the row, two along the rows of
    # the plane, and three for both rows between planes.
    rows = [loop for loop in loops if (loop["sum"] + loop["mul"]) % (JAM * 7) == 0]
    assert rows, loops
    for loop in rows:
        assert loop["whole"] == loop["arithmetic"]
        assert loop["call"] == 0
    shared = [loop for loop in rows if loop["sub"] * JAM * 7 == 9 * (loop["sum"] + loop["mul"])]
    # Where all have one record nothing is kept in memory.
    assert min(loop["spill"] for loop in shared) == 0


@pytest.mark.parametrize("target", TARGETS)
def test_equations_take_no_more_than_their_operations(target: str, tmp_path: Path) -> None:
    it, problem = TARGETS[target], cases.problem("gray-scott, rings")
    assert problem.equations is not None
    equations = settled(problem.equations)
    kernel = stage_kernel(equations.stages[0], equations, problem)
    module = made(kernel.source("float64", it.width // 8), tmp_path, f"equations_{target}")
    loops = [counted(loop, it) for loop in inner_loops(assembly(module.kernel, it), it)]

    vectors = [loop for loop in loops if loop["whole"]]
    assert vectors, loops
    wanted = sum(it[0] in ("add", "subtract", "multiply", "fma") for it in kernel.operations)
    assert any(loop["whole"] == loop["arithmetic"] == wanted for loop in vectors), (wanted, loops)
    assert all(loop["call"] == 0 for loop in loops)
