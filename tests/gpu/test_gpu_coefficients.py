"""Without a GPU: gpu.stream where every face has a conductance of its own, on emulated kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_palette_method import advanced, agree, changed, cut, of_type
from tests.support.body_samples import PLAIN, build
from tests.support.conduction_cases import closed, graded, mixed_faces, rings
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.stream.conducting import (
    CoefficientTile3D,
    coefficients_3d_kernel,
    coefficients_3d_parameters,
)
from tetris_sim.gpu_kernels.stream.palette_tiles import (
    CoefficientTile,
    coefficients_2d_kernel,
    coefficients_2d_parameters,
)
from tetris_sim.model.lowering import axis_weights, padded_weights, product_weights
from tetris_sim.model.problem import Problem

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
REGISTERS = 65536  # of a multiprocessor
FEW_BYTES = 80  # spilled in a proposal that is nearly the fastest nevertheless

ONE_EDGE = dataclasses.asdict(CoefficientTile(6, 3, 4, 2, 1, 1, 0))
TWO_EDGES = dataclasses.asdict(CoefficientTile(3, 3, 8, 2, 1, 2, 30))
SIX_COLUMNS = dataclasses.asdict(CoefficientTile(5, 4, 6, 2, 1, 1, 0))
IN_3D = dataclasses.asdict(CoefficientTile3D(2, 3, 2, 1, 1, 1))
UNROLLED = dataclasses.asdict(CoefficientTile3D(3, 4, 2, 1, 2, 2))


def body(
    shape: tuple[int, ...], face: Any, dtype: Any = np.float64, *, alike: bool = False
) -> Problem:
    """Cells that are all different, or alike but for their widths; without sources."""
    return of_type(changed(graded(shape, face, alike=alike), source=None), dtype)


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


@emulated
@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize(
    ("shape", "face", "parameters", "dtype"),
    [
        ((9, 14, 37), mixed_faces, IN_3D, np.float64),
        ((11, 13, 80), rings, IN_3D, np.float64),
        ((15, 23, 41), closed, UNROLLED, np.float64),
        ((9, 14, 150), mixed_faces, IN_3D, np.float32),
    ],
)
def test_a_block_agrees_with_the_reference(
    shape: tuple[int, ...], face: Any, parameters: dict[str, int], dtype: Any, alike: bool
) -> None:
    gpu = agree(body(shape, face, dtype, alike=alike), parameters)
    assert gpu.launches.count("coefficients_3d") == 3


@emulated
def test_a_cylinder_has_tables_with_factors() -> None:
    grid = {
        "coordinates": "cylindrical",
        "axes": ["r", "theta", "z"],
        "shape": [37, 14, 9],
        "size": [3.0, 1.2, 2.0],
        "origin": {"r": 0.5},
        "graded": {"r": {"edges": (0.5 + np.linspace(0, 1, 38) ** 1.5 * 3.0).tolist()}},
    }
    problem = build(
        grid=grid,
        model={"type": "heat", **PLAIN},
        initial={"type": "expression", "expression": "sin(5*r + theta)*cos(3*z)"},
        boundaries={"*": {"type": "neumann"}, "r": {"type": "robin", "h": 2, "ambient": 1}},
    )
    weights = product_weights(problem)
    assert weights is not None
    assert axis_weights(problem) is None
    # Only ways along theta depend on another axis: r, the last one.
    for axis, numbers in enumerate(weights):
        assert ((numbers[:, 2:] != 1).any(axis=0) == [False, axis == 2]).all()
    squares = 1 / problem.grid.coordinates(2) ** 2
    np.testing.assert_allclose(weights[2][:, 3], squares / squares[0], rtol=1e-13)
    images = padded_weights(problem, weights[2], 2, (-2, 39))
    np.testing.assert_array_equal(images[[1, 0, -2, -1], 3], images[[2, 3, -3, -4], 3])
    gpu = agree(problem, IN_3D)
    assert gpu.launches.count("coefficients_3d") == 3


@emulated
@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis", "at"),
    [((25, 14, 37), 0, 12), ((11, 31, 37), 1, 14), ((9, 11, 61), 2, 29)],
)
def test_bits_of_a_block_do_not_depend_on_where_it_is_cut(
    shape: tuple[int, ...], axis: int, at: int, alike: bool
) -> None:
    # Along x the first of two launches leaves a few columns to the boundary strips.
    problem, steps = body(shape, closed, alike=alike), 2 if axis == 2 else 4
    whole, _ = advanced(problem, IN_3D, (steps,))
    np.testing.assert_array_equal(cut(problem, IN_3D, at, axis, steps), whole)


@emulated
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_graded_block_of_one_temperature_keeps_it(dtype: Any) -> None:
    problem, one = body((9, 14, 37), closed, dtype, alike=True), dtype(0.7)
    problem = dataclasses.replace(
        problem, initial=lambda slab: np.full((1, *slab.shape), one, dtype)
    )
    found, _ = advanced(problem, IN_3D, (4,))
    np.testing.assert_array_equal(found, one)


def test_tiles_that_do_not_fit_are_told() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        coefficients_2d_kernel("float64", {**ONE_EDGE, "rows": 4})
    with pytest.raises(ValueError, match="do not fit"):
        coefficients_3d_kernel("float64", {**IN_3D, "warps": 30})
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


@pytest.mark.parametrize(
    ("dtype", "separate"),
    [
        ("float64", False),
        ("float64", True),
        ("float32", False),
        pytest.param("float32", True, marks=pytest.mark.full),
    ],
)
def test_every_proposal_for_a_block_compiles_and_hardly_spills(dtype: str, separate: bool) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    proposed = coefficients_3d_parameters(dtype, separate=separate)
    assert len(proposed) == 5
    alone, product = np.ones((3, 4)), np.full((3, 4), 0.5)
    for weights in [(alone,) * 3, (product,) * 3] if separate else [None]:
        for parameters in proposed[: 2 if weights and weights[0] is product else 5]:
            kernel = coefficients_3d_kernel(dtype, parameters, weights)
            compiled = compile_source(kernel.source, kernel.defines, "sm_90")
            assert compiled.registers[kernel.entry] * kernel.threads <= REGISTERS
            assert compiled.spilled <= (FEW_BYTES if weights and weights[0] is product else 0)
