"""Without a GPU: gpu.stream where every face has a conductance of its own, on emulated kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_palette_method import advanced, agree, changed, cut
from tests.support.conduction_cases import closed, graded, mixed_faces, rings
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
SIX_COLUMNS = dataclasses.asdict(CoefficientTile(5, 4, 6, 2, 1, 1, 0))


def body(
    shape: tuple[int, ...], face: Any, dtype: Any = np.float64, *, alike: bool = False
) -> Problem:
    """Cells that are all different, or alike but for their widths; without sources."""
    problem = changed(graded(shape, face, alike=alike), source=None)
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
@pytest.mark.parametrize(
    ("shape", "face", "parameters", "dtype"),
    [
        ((41, 53), mixed_faces, SIX_COLUMNS, np.float64),
        ((37, 43), rings, ONE_EDGE, np.float64),
        ((64, 71), closed, SIX_COLUMNS, np.float64),
        ((41, 53), mixed_faces, TWO_EDGES, np.float32),
    ],
)
def test_weights_of_graded_axes_agree_with_the_reference(
    shape: tuple[int, ...], face: Any, parameters: dict[str, int], dtype: Any
) -> None:
    gpu = agree(body(shape, face, dtype, alike=True), parameters)
    assert gpu.launches.count("graded_2d") == 3


@emulated
@pytest.mark.parametrize(
    ("axis", "at", "parameters", "alike"),
    [(0, 22, ONE_EDGE, False), (0, 23, SIX_COLUMNS, True), (1, 18, SIX_COLUMNS, True)],
)
def test_bits_do_not_depend_on_where_the_grid_is_cut(
    axis: int, at: int, parameters: dict[str, int], alike: bool
) -> None:
    problem = body((47, 37), closed, alike=alike)
    steps = parameters["steps_per_block"]
    whole, _ = advanced(problem, parameters, (steps,))
    np.testing.assert_array_equal(cut(problem, parameters, at, axis, steps), whole)


def test_tiles_that_do_not_fit_are_told() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        coefficients_2d_kernel("float64", {**ONE_EDGE, "rows": 4})
    assert not CoefficientTile(10, 5, 3, 4, 2, 1, 0).fits(8, graded=False)
    for graded_axes in (False, True):
        proposed = coefficients_2d_parameters("float32", graded=graded_axes)
        assert {it["columns"] for it in proposed} == {8}


@pytest.mark.parametrize("graded_axes", [False, True])
@pytest.mark.parametrize(
    ("dtype", "architecture"),
    [
        ("float64", "sm_90"),
        pytest.param("float64", "sm_80", marks=pytest.mark.full),
        ("float32", "sm_90"),
    ],
)
def test_kernels_of_coefficients_compile_and_hardly_spill(
    dtype: str, architecture: str, graded_axes: bool
) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    weights = (np.zeros((1, 2)),) * 2 if graded_axes else None
    proposed = coefficients_2d_parameters(dtype, graded=graded_axes)
    for parameters in proposed if graded_axes else proposed[:1]:
        kernel = coefficients_2d_kernel(dtype, parameters, weights)
        compiled = compile_source(kernel.source, kernel.defines, architecture)
        taken = compiled.registers[kernel.entry] * kernel.threads * parameters["blocks"]
        assert taken <= REGISTERS
        assert compiled.spilled <= (0 if graded_axes else FEW_BYTES)
