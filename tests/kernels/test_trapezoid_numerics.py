"""Tensor Trapezoid Folding in NumPy, against the stencil applied directly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.papers.tetris.folding import apply_folding, n_products
from tetris_sim.gpu_kernels.tensor_cores.trapezoid import Float64, fold
from tetris_sim.model.stencil import Offset, Stencil
from tetris_sim.model.stencils.catalogue import named_stencil

NAMED = (
    "heat-1d",
    "star-1d5p",
    "heat-2d",
    "box-2d9p",
    "star-2d13p",
    "box-2d25p",
    "box-2d49p",
    "heat-3d",
    "box-3d27p",
)


@st.composite
def stencils(draw: st.DrawFn) -> Stencil:
    """Any offsets in a box of radius 0 to 5 (1D), 3 (2D) or 2 (3D), any weights, sometimes mirrored
    along x.
    """
    ndim = draw(st.integers(1, 3))
    radii = [draw(st.integers(0, {1: 5, 2: 3, 3: 2}[ndim])) for _ in range(ndim)]
    box = list(itertools.product(*(range(-radius, radius + 1) for radius in radii)))
    offsets = draw(st.lists(st.sampled_from(box), min_size=1, max_size=len(box), unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    terms = {offset: float(rng.uniform(-1, 1)) for offset in offsets}
    if draw(st.booleans()):
        terms |= {
            (*offset[:-1], -offset[-1]): weight
            for offset, weight in terms.items()
            if offset[-1] > 0
        }
        terms |= {(*offset[:-1], -offset[-1]): weight for offset, weight in terms.items()}
    return Stencil.from_terms(terms)


def apply_directly(stencil: Stencil, u: Float64) -> Float64:
    """The same points by the definition."""
    extended = tuple(
        slice(radius, n - radius) for radius, n in zip(stencil.radii, u.shape, strict=True)
    )
    result = np.zeros(u[extended].shape)
    for offset, weight in stencil.terms.items():
        shifted = tuple(
            slice(s.start + c, s.stop + c) for s, c in zip(extended, offset, strict=True)
        )
        result += weight * u[shifted]
    return result


def apply_folded(stencil: Stencil, u: Float64) -> Float64:
    """The same points by products with banded matrices."""
    three = u.reshape((1, -1, 1)) if u.ndim == 1 else u.reshape((1,) * (3 - u.ndim) + u.shape)
    result = apply_folding(fold(stencil), three)
    return result.reshape(-1) if u.ndim == 1 else result.reshape(result.shape[3 - u.ndim :])


@given(stencil=stencils(), points=st.integers(1, 19), seed=st.integers(0, 1000))
def test_any_stencil(stencil: Stencil, points: int, seed: int) -> None:
    shape = tuple(points + 2 * radius + axis for axis, radius in enumerate(stencil.radii))
    u = np.random.default_rng(seed).uniform(-1, 1, shape)
    np.testing.assert_allclose(
        apply_folded(stencil, u), apply_directly(stencil, u), rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_fused_steps(name: str, steps: int) -> None:
    stencil = named_stencil(name).stencil
    shape = tuple(9 + 2 * steps * radius for radius in stencil.radii)
    u = expected = np.random.default_rng(2).uniform(0.5, 1.5, shape)
    for _ in range(steps):
        expected = apply_directly(stencil, expected)
    np.testing.assert_allclose(apply_folded(stencil.power(steps), u), expected, rtol=1e-13)


def test_mirrored_weights_are_multiplied_once() -> None:
    heat = named_stencil("heat-2d").stencil
    assert fold(heat).mirrored
    assert fold(heat).weights.shape == (1, 2, 3)
    lopsided = Stencil(((0, -1), (0, 1)), (0.25, 0.75))
    assert not fold(lopsided).mirrored
    assert fold(lopsided).weights.shape == (1, 3, 1)


def test_zeros_cost_nothing_where_a_chunk_misses_the_band() -> None:
    vertical: dict[Offset, float] = {(dy, 0): 5.0 + dy for dy in range(-4, 5)}
    horizontal: dict[Offset, float] = {(0, dx): 5.0 + dx for dx in (-2, -1, 1, 2)}
    # The column dx = 0 reaches four rows beyond a group of eight on both sides, the other four
    # columns none.
    assert n_products(fold(Stencil.from_terms(vertical | horizontal))) == 16 + 4 * 8
    box = Stencil.from_terms(
        {offset: 9.0 + sum(offset) for offset in itertools.product(range(-4, 5), range(-2, 3))}
    )
    assert n_products(fold(box)) == 5 * 16


def test_what_no_point_depends_on_may_be_anything() -> None:
    """Below the last group lie zeros, not what the array holds there: a product with a NaN is a
    NaN.
    """
    stencil = named_stencil("box-2d9p").stencil
    u = np.random.default_rng(3).uniform(0.5, 1.5, (5, 5))
    assert np.isfinite(apply_folded(stencil, u)).all()
