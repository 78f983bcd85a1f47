"""Without a GPU: stencils that mirror, whose warps hand on sums of rows, and bulk copies beside
levels.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.launching import Memory, advanced, agrees, allowed, launch
from tetris_sim.bench.timing import WeightKind, random_problem
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.gpu_kernels.stream.kernel_2d import stream_2d_kernel
from tetris_sim.model.stencil import Stencil

TILE = ("steps_per_block", "rows", "columns", "warps", "blocks", "edges", "interleaved")
FLOAT64 = np.dtype(np.float64)


def stencil_with(name: str, weights: WeightKind) -> Stencil:
    return random_problem(name, (64, 64), "float64", weights).stencil


def kernel_of(stencil: Stencil, *tile: int) -> FusedKernel:
    return stream_2d_kernel(stencil, FLOAT64, dict(zip(TILE, tile, strict=True)))


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("interleaved", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("name", "weights", "tile"),
    [
        ("box-2d49p", "symmetric", (2, 7, 5, 3, 1, 1)),
        ("box-2d25p", "symmetric", (3, 5, 5, 4, 1, 2)),
        ("box-2d9p", "random", (4, 3, 4, 2, 1, 2)),
        ("heat-2d", "equal", (1, 3, 4, 2, 1, 1)),
    ],
)
def test_rows_are_stored_and_fetched_at_any_time(
    name: str, weights: WeightKind, tile: tuple[int, ...], interleaved: int
) -> None:
    stencil = stencil_with(name, weights)
    agrees(kernel_of(stencil, *tile, interleaved), stencil, FLOAT64, 900)


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("interleaved", [0, 3])
def test_bits_do_not_depend_on_where_a_grid_is_cut(interleaved: int) -> None:
    stencil = stencil_with("box-2d25p", "symmetric")
    kernel = kernel_of(stencil, 3, 5, 5, 2, 1, 1, interleaved)
    whole = made_by(kernel, None, rows=53, first_row=7)
    for cut in (1, 3, 7):
        part = made_by(kernel, whole[0][cut:], rows=53 - cut, first_row=7 + cut)
        np.testing.assert_array_equal(part[1], whole[1][cut:])
    moved = made_by(kernel, whole[0], rows=53, first_row=8)
    assert np.any(moved[1] != whole[1])  # the rows at which sums are divided do matter
    wanted = advanced(whole[0][np.newaxis], stencil, kernel.depth)[0]
    atol = allowed(stencil, FLOAT64, kernel.depth, float(np.abs(whole[0]).max()))
    np.testing.assert_allclose(moved[1], wanted, rtol=0, atol=atol)


def made_by(
    kernel: FusedKernel, state: npt.NDArray[np.float64] | None, *, rows: int, first_row: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(what is read, what is written) of so many rows, of random numbers if no state is given."""
    memory = Memory((0, 2 * kernel.depth, 2 * kernel.depth), (1, rows, 67), FLOAT64, 0)
    if state is not None:
        memory.points(memory.src, memory.needed)[0] = state
    launch(kernel, memory, 900, descending=False, first_row=first_row)
    read, written = (
        memory.points(array, box)[0].copy()
        for array, box in ((memory.src, memory.needed), (memory.dst, memory.box))
    )
    return read, written


@pytest.mark.parametrize(("name", "operations"), [("box-2d49p", 23.2), ("box-2d25p", 13.1)])
def test_a_symmetric_point_takes_few_operations(name: str, operations: float) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    from tests.gpu.test_gpu_compiles import disassembled

    tile = {"box-2d49p": (4, 6, 7, 8, 1, 1, 0), "box-2d25p": (8, 10, 6, 8, 1, 1, 0)}[name]
    kernel = kernel_of(stencil_with(name, "symmetric"), *tile)
    code = disassembled(compile_source(kernel.source, kernel.defines, "sm_90"))
    counted = len(re.findall(r"\b(?:DFMA|DADD|DMUL)\b", code))
    points = tile[1] * tile[2]
    # one level, and a multiplication of what is stored
    assert (counted - points) / points <= operations
