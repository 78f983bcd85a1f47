"""Without a GPU: gpu.stream where every face has a conductance of its own, on emulated kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_palette_method import advanced, agree, changed, cut
from tests.support.conduction_cases import closed, graded, mixed_faces
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.stream.palette_tiles import (
    CoefficientTile,
    coefficients_2d_kernel,
    coefficients_2d_parameters,
)
from tetris_sim.model.problem import Problem

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
REGISTERS = 65536  # of a multiprocessor
FEW_BYTES = 80  # spilled in a proposal that is nearly the fastest nevertheless

ONE_EDGE = dataclasses.asdict(CoefficientTile(6, 3, 4, 2, 1, 1, 0))
TWO_EDGES = dataclasses.asdict(CoefficientTile(3, 3, 8, 2, 1, 2, 30))


def body(shape: tuple[int, ...], face: Any, dtype: Any = np.float64) -> Problem:
    """Cells that are all different, without sources."""
    problem = changed(graded(shape, face), source=None)
    initial = problem.initial
    return dataclasses.replace(
        problem, dtype=np.dtype(dtype), initial=lambda slab: initial(slab).astype(dtype)
    )


@emulated
@pytest.mark.parametrize(("parameters", "dtype"), [(ONE_EDGE, np.float64), (TWO_EDGES, np.float32)])
def test_arrays_of_coefficients_agree_with_the_reference(
    parameters: dict[str, int], dtype: Any
) -> None:
    gpu = agree(body((41, 53), mixed_faces, dtype), parameters)
    assert gpu.launches.count("coefficients_2d") == 3


@emulated
def test_bits_do_not_depend_on_where_the_grid_is_cut() -> None:
    problem, steps = body((47, 37), closed), 6
    whole, _ = advanced(problem, ONE_EDGE, (steps,))
    np.testing.assert_array_equal(cut(problem, ONE_EDGE, 22, 0, steps), whole)


def test_tiles_that_do_not_fit_are_told() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        coefficients_2d_kernel("float64", {**ONE_EDGE, "rows": 4})
    assert not CoefficientTile(10, 5, 3, 4, 2, 1, 0).fits(8)
    assert {it["columns"] for it in coefficients_2d_parameters("float32")} == {8}


@pytest.mark.parametrize(
    ("dtype", "architecture"),
    [
        ("float64", "sm_90"),
        pytest.param("float64", "sm_80", marks=pytest.mark.full),
        pytest.param("float32", "sm_90", marks=pytest.mark.full),
    ],
)
def test_kernels_of_coefficients_compile_and_hardly_spill(dtype: str, architecture: str) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    kernel = coefficients_2d_kernel(dtype, coefficients_2d_parameters(dtype)[0])
    compiled = compile_source(kernel.source, kernel.defines, architecture)
    assert compiled.registers[kernel.entry] * kernel.threads * 2 <= REGISTERS
    assert compiled.spilled <= FEW_BYTES
