"""Heat contents on GPUs without one: curves with fewer pieces, and gpu.stream on emulated kernels
against the reference.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_palette_method import BRANCH, IN_3D, advanced, agree, changed, cut
from tests.support.conduction_cases import Case, closed, heating, insulated
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.enthalpy_cases import cooled, cooled_body, every_face, melting
from tetris_sim.apps.heat.materials import MaterialCurves, Melting, make_enthalpy
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.stream.conducting import conduction_kernel, conduction_refusal
from tetris_sim.gpu_kernels.stream.method import METHOD
from tetris_sim.gpu_kernels.stream.palette import (
    PaletteKind,
    constant_conductivity,
    curve_numbers,
    merged,
    table_bins,
    table_pieces,
)
from tetris_sim.gpu_kernels.stream.palette_tiles import palette_2d_kernel, palette_2d_parameters
from tetris_sim.model.boundary import Boundary, Periodic
from tetris_sim.model.problem import Problem

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
REGISTERS = 65536  # of a multiprocessor
FEW_BYTES = 260  # spilled around the calls for faces between materials, and by fast proposals

MATERIALS = (
    MaterialCurves(((0.0, 1.0), (2.0, 3.0)), ((0.0, 1.0), (2.0, 1.5)), 1.0),
    MaterialCurves(((0.0, 0.7),), ((0.0, 1.2),), 1.0, Melting(0.8, 0.2, 0.2)),
    MaterialCurves(((0.0, 2.0),), ((0.0, 0.9),), 1.0, Melting(0.5, -0.1, 0.3)),
)
# Conductivities that do not vary: one line, two, three; melting at a temperature and over a range.
STEADY = (
    MaterialCurves(((0.0, 0.8),), ((0.0, 1.1),), 1.0),
    MaterialCurves(((0.0, 0.7),), ((0.0, 1.2),), 1.0, Melting(0.8, 0.2, 0.2)),
    MaterialCurves(((0.0, 2.0),), ((0.0, 0.9),), 1.0, Melting(0.5, -0.1, 0.3)),
)
# One whose curves fit into tables of many ids.
HARDLY_VARYING = MaterialCurves(((0.0, 1.0), (2.0, 1.02)), ((0.0, 1.0),), 1.0)


def ringed(problem: Problem) -> Problem:
    """The same as a ring along y, so that a long piece of it needs no frame."""
    faces = ((Periodic(), Periodic()), (insulated(), cooled(1, 1, 5) or Periodic()))
    return dataclasses.replace(problem, boundary=Boundary(faces))


def in_layers(problem: Problem) -> Problem:
    """The same of one material from row 20 on: what warps read there has one id."""
    assert problem.conduction is not None
    ids_of = problem.conduction.medium.ids

    def ids(box: Any) -> Any:
        found = ids_of(box).copy()
        found[np.arange(*box[0]) >= 20] = 1
        return found

    return changed(problem, medium=dataclasses.replace(problem.conduction.medium, ids=ids))


@pytest.mark.parametrize("materials", [MATERIALS, STEADY])
def test_merged_curves_have_the_same_values(materials: tuple[MaterialCurves, ...]) -> None:
    enthalpy = make_enthalpy(materials, [0, 1, 2, 1], (0.5, 0.7))
    few = merged(enthalpy)
    heat = np.random.default_rng(1).uniform(-4, 6, 4000)
    ids = np.random.default_rng(2).integers(0, 4, 4000)
    for name in ("temperature", "potential", "conductivity"):
        found = few.of(getattr(few, name), heat, ids)
        wanted = enthalpy.of(getattr(enthalpy, name), heat, ids)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    assert few.n_pieces < enthalpy.n_pieces


def test_three_pieces_are_enough_for_what_melts() -> None:
    enthalpy = make_enthalpy(STEADY, [0, 1, 2], (1.0,))
    assert np.isfinite(merged(enthalpy).knots).sum(axis=1).tolist() == [1, 3, 3]
    assert table_pieces(enthalpy) == 3
    k = constant_conductivity(enthalpy)
    assert k is not None
    np.testing.assert_array_equal(k, [0.8, 0.7, 2.0])
    assert constant_conductivity(make_enthalpy(MATERIALS, [0, 1], (1.0,))) is None


def stairs(n: int) -> MaterialCurves:
    """Conductivity by a table of `n` rows that are not evenly spaced."""
    t = np.cumsum(1 + np.arange(n) % 3 / 4) / 8
    k = tuple((float(at), 1 + at % 7 / 10) for at in t)
    return MaterialCurves(k, ((0.0, 1.0), (3.0, 1.4)), 1.0)


@pytest.mark.parametrize(
    ("materials", "n_ids"),
    [
        (MATERIALS, 4),
        ((stairs(12),), 2),
        ((stairs(60),), 2),
        ((stairs(120),), 2),
        ((stairs(9), *STEADY), 4),
    ],
)
def test_bins_find_the_lines_of_curves(materials: tuple[MaterialCurves, ...], n_ids: int) -> None:
    enthalpy = make_enthalpy(materials, range(len(materials)), (1.0, 1.0))
    n = table_bins(enthalpy, n_ids)
    assert n > 0
    sizes = np.cumsum([2 * n_ids, 4 * n_ids * n, 2 * n_ids * n])
    places, bins, pieces = np.split(curve_numbers(enthalpy, n_ids)[-sizes[-1] :], sizes[:-1])
    places, bins, pieces = (
        places.reshape(n_ids, 2),
        bins.reshape(-1, n, 4),
        pieces.reshape(-1, n, 2),
    )

    # Knots themselves, what is near them, and what is far outside of the tables.
    knots = enthalpy.knots[np.isfinite(enthalpy.knots)]
    around = knots + np.array([[-1e-9], [0.0], [1e-9]])
    heat = np.concatenate([np.linspace(-50, 80, 5001), around.ravel()])
    for own in range(len(materials)):
        at = np.clip(np.rint(heat * places[own, 0] - places[own, 1]), 0, n - 1).astype(int)
        slope, intercept, bend, knot = bins[own, at].T
        found = slope * heat + intercept + bend * np.maximum(heat - knot, 0)
        wanted = enthalpy.of(enthalpy.potential, heat, np.full(len(heat), own))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())

        # The pieces themselves: two that meet at a knot are the same there.
        its = merged(enthalpy)
        piece = pieces[own, at, 0].astype(int) + (heat >= pieces[own, at, 1])
        above = heat - its.knots[own, piece]
        found = its.conductivity.begins[own, piece] + its.conductivity.slopes[own, piece] * above
        wanted = enthalpy.of(enthalpy.conductivity, heat, np.full(len(heat), own))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())


def test_knots_that_no_bins_tell_apart_are_searched_for() -> None:
    close = MaterialCurves(((0.0, 1.0), (1.0, 2.0), (1.0001, 1.5), (9.0, 3.0)), ((0.0, 1.0),), 1.0)
    enthalpy = make_enthalpy((close,), [0], (1.0, 1.0))
    assert table_bins(enthalpy, 2) == 0
    many = make_enthalpy((stairs(12),), [0], (1.0,))
    assert table_bins(many, 4) > 0
    assert table_bins(many, 64) == 0  # more than shared memory holds


@emulated
@pytest.mark.parametrize(
    ("materials", "dtype"),
    [
        (STEADY, np.float64),
        (MATERIALS, np.float64),
        ((stairs(12), *STEADY), np.float64),
        pytest.param(STEADY, np.float32, marks=pytest.mark.full),
    ],
)
def test_heat_contents_agree_with_the_reference(
    materials: tuple[MaterialCurves, ...], dtype: Any
) -> None:
    gpu = agree(in_layers(cooled_body((41, 43), dtype, materials)), BRANCH)
    assert gpu.launches.count("palette_2d") == 3


@emulated
@pytest.mark.parametrize("materials", [STEADY, (HARDLY_VARYING, *STEADY)])
def test_heat_contents_of_many_ids_agree_with_the_reference(
    materials: tuple[MaterialCurves, ...],
) -> None:
    case = Case("", (31, 47), 20, every_face, heating(20, changes=True))
    gpu = agree(melting(case, materials), BRANCH)
    assert gpu.launches.count("palette_2d") == 3


@emulated
@pytest.mark.parametrize(
    ("materials", "n_ids", "dtype"),
    [
        (STEADY[2:], 1, np.float64),
        (MATERIALS[:1], 1, np.float64),
        ((stairs(12),), 1, np.float64),
        (STEADY, 3, np.float64),
        (STEADY, 5, np.float64),
        (MATERIALS, 5, np.float64),
        (STEADY, 20, np.float64),
        (STEADY, 3, np.float32),
        pytest.param(MATERIALS, 5, np.float32, marks=pytest.mark.full),
    ],
    ids=lambda it: str(len(it)) if isinstance(it, tuple) else getattr(it, "__name__", str(it)),
)
def test_heat_contents_in_3d_agree_with_the_reference(
    materials: tuple[MaterialCurves, ...], n_ids: int, dtype: Any
) -> None:
    heat = heating(n_ids, changes=True) if n_ids != 3 else None
    case = Case("", (14, 25, 150 if dtype == np.float32 else 70), n_ids, every_face, heat, dtype)
    problem = melting(case, materials)
    for body in (problem, in_layers(problem)) if n_ids > 1 else (problem,):
        gpu = agree(body, IN_3D)
        assert gpu.launches.count("palette_3d") == 3


@emulated
@pytest.mark.parametrize("materials", [STEADY, MATERIALS], ids=["constant k", "k(T)"])
@pytest.mark.parametrize("shape", [(41, 43), (14, 25, 70)], ids=str)
def test_heat_contents_of_cells_that_are_cut(
    shape: tuple[int, ...], materials: tuple[MaterialCurves, ...]
) -> None:
    """They hold less or more than whole ones, and none of them is held."""
    case = Case("", shape, 5, every_face, heating(5, changes=True))
    problem = melting(case, materials, cut=True)
    medium = problem.body.medium
    capacity = np.where(np.isinf(medium.capacity), 0.8, medium.capacity)
    body = changed(problem, medium=dataclasses.replace(medium, capacity=capacity))
    agree(in_layers(body), BRANCH if len(shape) == 2 else IN_3D)


@emulated
@pytest.mark.parametrize(("axis", "at"), [(0, 12), (1, 14)])
def test_bits_of_heat_contents_do_not_depend_on_where_the_grid_is_cut(axis: int, at: int) -> None:
    shape = (25, 14, 37) if axis == 0 else (11, 31, 37)
    problem = in_layers(melting(Case("cut", shape, 3, closed), STEADY))
    whole, _ = advanced(problem, IN_3D, (4,))
    np.testing.assert_array_equal(cut(problem, IN_3D, at, axis, 4), whole)


@pytest.mark.full
@emulated
def test_even_heat_stays_even_without_sources() -> None:
    problem = ringed(in_layers(cooled_body((40, 37), materials=STEADY)))
    faces = (problem.boundary.faces[0], (insulated(), insulated()))
    problem = dataclasses.replace(
        changed(problem, source=None),
        boundary=Boundary(faces),
        initial=lambda slab: np.full((1, *slab.shape), 0.125),
    )
    assert problem.conduction is not None
    ids = problem.conduction.medium.ids(((30, 40), (0, 37)))
    assert ids.min() == ids.max()
    found, _ = advanced(problem, BRANCH, (6,))
    np.testing.assert_array_equal(found[0, 30:34], 0.125)


def test_curves_of_too_many_pieces_are_refused() -> None:
    problem = cooled_body((20, 20))
    assert problem.conduction is not None
    k = tuple((t / 10.0, 1 + t % 7 / 10.0) for t in range(300))
    materials = (MaterialCurves(k, ((0.0, 1.0),), 1.0),)
    enthalpy = make_enthalpy(materials, [0] * 5, (0.5, 0.7))
    refusal = conduction_refusal(changed(problem, enthalpy=enthalpy))
    assert "at most 256 pieces, and here are" in str(refusal)


def test_new_numbers_compile_nothing_anew() -> None:
    problem = cooled_body((41, 43), materials=STEADY)
    hotter = tuple(
        dataclasses.replace(it, heat_capacity=((0.0, 3.0),), conductivity=((0.0, 0.3),))
        for it in STEADY
    )
    other = dataclasses.replace(cooled_body((41, 43), materials=hotter), dt=0.01)
    kernels = [conduction_kernel(it, METHOD.parameters(problem)[0]) for it in (problem, other)]
    assert kernels[0].defines == kernels[1].defines
    assert not np.array_equal(kernels[0].weights, kernels[1].weights)


STEADY_KIND = PaletteKind(8, isotropic=True, sources=False, pieces=3)
VARYING_KIND = PaletteKind(8, isotropic=False, sources=True, pieces=64, varies=True)
BINNED_KIND = dataclasses.replace(VARYING_KIND, bins=64)


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [
        (STEADY_KIND, "sm_90"),
        pytest.param(STEADY_KIND, "sm_80", marks=pytest.mark.full),
        pytest.param(VARYING_KIND, "sm_90", marks=pytest.mark.full),
        pytest.param(BINNED_KIND, "sm_90", marks=pytest.mark.full),
    ],
)
def test_kernels_of_heat_contents_compile_and_hardly_spill(
    kind: PaletteKind, architecture: str
) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    kernel = palette_2d_kernel(kind, np.zeros(1), palette_2d_parameters(kind, "float64")[0])
    compiled = compile_source(kernel.source, kernel.defines, architecture)
    assert compiled.registers[kernel.entry] * kernel.threads * 2 <= REGISTERS
    assert compiled.spilled <= (FEW_BYTES if kind.varies else 0)
