"""TCStencil as published: tiles make any stencil, and the model of the appendix gives its numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.test_trapezoid_numerics import apply_directly
from tests.papers.tcstencil import model
from tests.papers.tcstencil.tiles import (
    TILE,
    Way,
    apply_by_tiles,
    n_products,
    parameter_matrix,
    results_per_tile,
    way_of,
)
from tetris_sim.gpu_kernels.tensor_cores.tcstencil import suits
from tetris_sim.gpu_kernels.tensor_cores.tcstencil_windows import window_bands
from tetris_sim.model.stencil import Offset, Stencil
from tetris_sim.model.stencils.catalogue import named_stencil


@st.composite
def plane_stencils(draw: st.DrawFn, way: Way) -> Stencil:
    """Random weights on a star, on a box mirrored from left to right, or on any points: radius 1 to
    4.
    """
    ry, rx = (draw(st.integers(1, 4)) for _ in range(2))
    box = list(itertools.product(range(-ry, ry + 1), range(-rx, rx + 1)))
    chosen = [offset for offset in box if 0 in offset] if way == "star" else box
    offsets = draw(st.lists(st.sampled_from(chosen), min_size=1, max_size=len(chosen), unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    terms: dict[Offset, float] = {offset: float(rng.uniform(-1, 1)) for offset in offsets}
    if way == "mirrored":
        for sign in (1, -1):
            terms |= {
                (dy, -dx): weight for (dy, dx), weight in list(terms.items()) if sign * dx > 0
            }
    return Stencil.from_terms(terms)


@pytest.mark.parametrize("way", ["star", "mirrored", "any"])
@settings(deadline=None)
@given(data=st.data())
def test_tiles_make_any_stencil_of_their_kind(way: Way, data: st.DataObject) -> None:
    stencil = data.draw(plane_stencils(way))
    shape = [data.draw(st.integers(1, 21)) + 2 * radius for radius in stencil.radii]
    u = np.random.default_rng(4).uniform(-1, 1, shape)
    np.testing.assert_allclose(
        apply_by_tiles(u, stencil, way), apply_directly(stencil, u), rtol=0, atol=1e-13
    )
    if stencil.radii[1] > 0:
        assert (
            n_products(stencil)
            <= {"star": 2, "mirrored": stencil.radii[1] + 1, "any": 2 * stencil.radii[1] + 1}[way]
        )


def test_an_arbitrary_box_takes_a_product_for_every_column() -> None:
    weights = np.random.default_rng(5).uniform(0.1, 1.0, 25)
    stencil = Stencil(tuple(itertools.product(range(-2, 3), repeat=2)), tuple(weights))
    assert way_of(stencil) == "any"
    assert n_products(stencil) == 5
    assert results_per_tile(stencil.radii) == (12, 12)  # "update every 12*12 points"


def test_parameter_matrices_are_bands() -> None:
    matrix = parameter_matrix(np.arange(1.0, 6.0))
    assert matrix.shape == (TILE, TILE)
    for i, j in np.ndindex(matrix.shape):
        assert matrix[i, j] == (j - i + 3 if abs(j - i) <= 2 else 0)


@pytest.mark.parametrize(
    ("name", "way", "products"),
    [
        ("heat-2d", "star", 2),
        ("star-2d9p", "star", 2),
        ("box-2d9p", "mirrored", 2),
        ("box-2d25p", "mirrored", 3),  # para_box1 to para_box3 of Algorithm 1
        ("box-2d49p", "mirrored", 4),
    ],
)
def test_how_many_products_a_tile_takes(name: str, way: str, products: int) -> None:
    stencil = named_stencil(name).stencil
    assert way_of(stencil) == way
    assert suits(stencil) == (way == "star")
    assert n_products(stencil) == products


def test_the_paper_s_intensities() -> None:
    """Section 2, "0.50/2.53/5.33" and "0.50/7.03/6.00"."""
    nine = model.pointwise_intensity(9), model.tile_intensity(9), model.tcstencil_intensity(2)
    twenty_five = (
        model.pointwise_intensity(25),
        model.tile_intensity(25),
        model.tcstencil_intensity(3),
    )
    np.testing.assert_allclose(nine, (0.50, 2.53, 5.33), atol=0.005)
    np.testing.assert_allclose(twenty_five, (0.50, 7.03, 6.00), atol=0.005)


def test_the_paper_s_machines() -> None:
    """Table 1: 50.1, 200.64, 34.88 and, printed as 128.8, 138.9."""
    found = [
        peak.intensity
        for peak in (model.A100_FMA, model.A100_TENSOR, model.V100_FMA, model.V100_TENSOR)
    ]
    np.testing.assert_allclose(found, (50.16, 200.64, 34.89, 138.89), atol=0.005)
    assert abs(model.V100_TENSOR.intensity - 128.8) > 10


def test_everything_in_the_paper_is_bound_by_memory() -> None:
    for peak in (model.A100_TENSOR, model.V100_TENSOR):
        for intensity in (model.tcstencil_intensity(2), model.tcstencil_intensity(3)):
            assert peak.attainable(intensity) == intensity * peak.bandwidth
    assert model.A100_FMA.attainable(1000.0) == 78e12
    # "The highest TFLOPS", 7.52 and 8.00, stay below the roof on A100. On V100 5.89 and 7.84 do not
    # (model.py).
    for products, on_a100, on_v100 in ((2, 7.52e12, 5.89e12), (3, 8.00e12, 7.84e12)):
        intensity = model.tcstencil_intensity(products)
        assert model.V100_TENSOR.attainable(intensity) < on_v100 < model.V100_TENSOR.operations
        assert on_a100 < model.A100_TENSOR.attainable(intensity)


def test_rates_as_the_paper_counts_them() -> None:
    assert model.stencil_rate(1002, 2, 9, 0.5) == 1000**2 * 9 * 2
    assert model.tcstencil_rate(1202, 2, 2, 0.5) == pytest.approx(100**2 * 16**3 * 2 * 2)


def test_windows_are_bound_by_memory_up_to_a_radius_of_eight() -> None:
    """On an H200 by its data sheet, where a multiply-add counts twice."""
    box = named_stencil("box-2d9p").stencil
    for radius in range(1, 12):
        intensity = 2 * model.windows_intensity(window_bands(box.power(radius)).products)
        assert (intensity < model.H200_TENSOR.intensity) == (radius <= 8)
