"""TCStencil's tiles and windows in NumPy, against the stencil applied directly; formats; the
paper's numbers.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.test_trapezoid_numerics import apply_directly, stencils
from tests.papers.tcstencil.windows import apply_bands
from tetris_sim.gpu_kernels.fused.kernel import (
    BFLOAT16,
    FLOAT16,
    FORMATS,
    TFLOAT32,
    Format,
    operand_weights,
    rounded,
)
from tetris_sim.gpu_kernels.tensor_cores.tcstencil import FARTHEST, TILE, star_bands, star_registers
from tetris_sim.gpu_kernels.tensor_cores.tcstencil_windows import (
    FIRST,
    FURTHER,
    UNUSED,
    Array,
    Bands,
    matrix_registers,
    mirror_rows,
    window_bands,
)
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, named_stencil


@st.composite
def stars(draw: st.DrawFn) -> Stencil:
    """Random weights on some points of both axes, radius 1 to 4."""
    radii = [draw(st.integers(1, 4)) for _ in range(2)]
    box = itertools.product(*(range(-radius, radius + 1) for radius in radii))
    chosen = [offset for offset in box if 0 in offset]
    offsets = draw(st.lists(st.sampled_from(chosen), min_size=1, max_size=len(chosen), unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return Stencil.from_terms({offset: float(rng.uniform(-1, 1)) for offset in offsets})


@settings(deadline=None)
@given(stencil=stars(), seed=st.integers(0, 1000))
def test_two_bands_make_a_tile_of_16_x_16_results(stencil: Stencil, seed: int) -> None:
    """As tcstencil_star.cu takes them: P over 24 rows, Q over two windows."""
    ry, rx = stencil.radii
    u = np.random.default_rng(seed).uniform(-1, 1, (TILE + 2 * ry, TILE + 2 * FARTHEST))
    along_y, along_x = star_bands(stencil)
    rows = np.pad(u, ((0, 8 - 2 * ry), (0, 0)))  # behind what P takes there are zeros
    middle = u[ry : ry + TILE]
    made = along_y @ rows[:, FARTHEST:-FARTHEST] + np.hstack(
        [middle[:, :16] @ along_x, middle[:, 8:] @ along_x]
    )
    needed = u[:, FARTHEST - rx : FARTHEST + TILE + rx]
    np.testing.assert_allclose(made, apply_directly(stencil, needed), rtol=0, atol=1e-13)


def test_registers_hold_both_bands() -> None:
    along_y, along_x = star_bands(operand_weights(named_stencil("star-2d9p").stencil, FLOAT16))
    words = star_registers(along_y, along_x)
    halves = (
        np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1)
        .astype(np.uint16)
        .view(np.float16)
    )
    for lane in range(32):
        g, t = divmod(lane, 4)
        for k in range(6):  # eights of columns, rows g and g + 8 of each
            row, column = g + 8 * (k % 2), 8 * (k // 2) + 2 * t
            np.testing.assert_array_equal(halves[k, lane], along_y[row, column : column + 2])
        for k in range(2):
            np.testing.assert_array_equal(
                halves[6 + k, lane], along_x[8 * k + 2 * t : 8 * k + 2 * t + 2, g]
            )


def apply_windows(stencil: Stencil, u: Array) -> Array:
    """What the bands make of `u`, without what windows have around the points along x that are
    needed.
    """
    bands = window_bands(stencil)
    extra = bands.lead - stencil.radii[-1]
    padded = np.pad(u, [(0, 0)] * (u.ndim - 1) + [(extra, extra)])
    return apply_bands(bands, padded)


@settings(deadline=None)
@given(stencil=stencils(), points=st.integers(1, 19), seed=st.integers(0, 1000))
def test_windows_make_any_stencil(stencil: Stencil, points: int, seed: int) -> None:
    shape = tuple(points + 2 * radius + axis for axis, radius in enumerate(stencil.radii))
    u = np.random.default_rng(seed).uniform(-1, 1, shape)
    np.testing.assert_allclose(
        apply_windows(stencil, u), apply_directly(stencil, u), rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("name", STENCIL_NAMES)
@pytest.mark.parametrize("steps", [1, 3])
def test_windows_make_fused_steps(name: str, steps: int) -> None:
    stencil = named_stencil(name).stencil
    u = np.random.default_rng(2).uniform(
        0.5, 1.5, tuple(7 + 2 * steps * radius for radius in stencil.radii)
    )
    expected = u
    for _ in range(steps):
        expected = apply_directly(stencil, expected)
    np.testing.assert_allclose(
        apply_windows(stencil.power(steps), u), expected, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(
    ("name", "steps", "products"),
    [
        ("heat-2d", 1, 3),
        ("box-2d9p", 4, 9),  # radius 4 is all that 16 points hold
        ("box-2d9p", 5, 16.5),
        ("box-2d25p", 1, 5),
        ("heat-1d", 60, 8),
        ("heat-3d", 1, 5),  # rows above and below in the planes above and below are all zeros
        ("box-3d27p", 1, 9),
        ("heat-3d", 2, 13),
    ],
)
def test_how_many_products_128_results_take(name: str, steps: int, products: float) -> None:
    assert window_bands(named_stencil(name).stencil.power(steps)).products == products


@given(stencil=stencils())
def test_every_sum_begins_once_with_the_first_of_its_products(stencil: Stencil) -> None:
    bands = window_bands(stencil)
    for matrices, kinds in zip(bands.matrices, bands.kinds, strict=True):
        used = [
            kind
            for kind, matrix in zip(kinds.ravel(), matrices.reshape(-1, 16, 8), strict=True)
            if matrix.any()
        ]
        assert np.count_nonzero(kinds != UNUSED) == len(used)
        assert used == [FIRST, *[FURTHER] * (len(used) - 1)][: len(used)]


def test_rows_of_a_mirrored_stencil_have_the_same_bands() -> None:
    assert window_bands(named_stencil("box-2d25p").stencil).mirrored
    assert not window_bands(Stencil(((-1, 0), (1, 0)), (0.25, 0.75))).mirrored


@given(stencil=stencils())
def test_the_table_finds_the_matrix_of_every_product(stencil: Stencil) -> None:
    bands = window_bands(stencil)
    for mirrored in (False, True) if bands.mirrored else (False,):
        table, matrices = bands.numbered(mirrored=mirrored)
        assert (matrices != 0).any(axis=(1, 2)).all()
        assert len(np.unique(matrices, axis=0)) == len(matrices)
        for place in np.ndindex(table.shape):
            found = matrices[abs(table[place]) - 1] if table[place] else np.zeros((16, 8))
            np.testing.assert_array_equal(found, bands.matrices[place])
        np.testing.assert_array_equal(table < 0, bands.kinds == FIRST)


def matrices_of(
    words: np.ndarray[tuple[int, ...], np.dtype[np.uint32]], format_: Format, run: int
) -> Array:
    """The matrices (n, 16, 8) whose registers these are, element by element: lane 4 g + t has rows
    of column g.
    """
    found = np.zeros((len(words), 16, 8))
    for n, lane, k in np.ndindex(len(words), 32, 4):
        g, t = divmod(lane, 4)
        row = 4 * t + k if run == 4 else 8 * (k // 2) + 2 * t + k % 2
        if format_ is TFLOAT32:
            found[n, row, g] = words[n, lane, k : k + 1].view(np.float32)[0]
            continue
        bits = np.uint16(words[n, lane, k // 2] >> np.uint32(16 * (k % 2)) & np.uint32(0xFFFF))
        if format_ is FLOAT16:
            found[n, row, g] = bits.view(np.float16)
        else:
            found[n, row, g] = np.uint32(int(bits) << 16).view(np.float32)
    return found


@pytest.mark.parametrize("run", [2, 4])
@pytest.mark.parametrize("format_", FORMATS, ids=lambda f: f.name)
def test_registers_hold_the_matrices(format_: Format, run: int) -> None:
    matrices = rounded(np.random.default_rng(7).uniform(-1, 1, (3, 16, 8)), format_)
    words = matrix_registers(matrices, format_, run)
    assert words.shape == (3, 32, format_.words)
    np.testing.assert_array_equal(matrices_of(words, format_, run), matrices)
    with pytest.raises(ValueError, match=f"no numbers of {format_.name}"):
        matrix_registers(matrices + 2.0**-20, format_, run)


@given(values=st.lists(st.floats(-60000, 60000, width=32), min_size=1, max_size=20))
def test_rounding_goes_to_the_nearest_number_of_a_format(values: list[float]) -> None:
    exact = np.array(values)
    for format_ in FORMATS:
        found = rounded(exact, format_)
        np.testing.assert_array_equal(rounded(found, format_), found)
        assert np.all(
            np.abs(found - exact) <= format_.eps * np.abs(exact) + 2.0**-25
        )  # FP16 has subnormal numbers
    np.testing.assert_array_equal(
        rounded(rounded(exact, FLOAT16), TFLOAT32), rounded(exact, FLOAT16)
    )


@pytest.mark.parametrize("format_", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("name", ["heat-2d", "box-2d25p", "heat-3d"])
def test_weights_of_a_format_add_up_and_stay_mirrored(name: str, format_: Format) -> None:
    fused = named_stencil(name).stencil.power(2)
    found = operand_weights(fused, format_)
    weights = np.array(found.weights)
    np.testing.assert_array_equal(weights, rounded(weights, format_))
    largest = float(np.abs(weights).max())
    assert abs(weights.sum() - sum(fused.weights)) <= (
        BFLOAT16.eps * largest if format_ is BFLOAT16 else 2.0**-24
    )
    assert mirror_rows(found).symmetric


def test_mirrored_rows_must_be_nearly_mirrored() -> None:
    with pytest.raises(ValueError, match="different weights"):
        mirror_rows(Stencil(((-1, 0), (1, 0)), (0.25, 0.75)))
    with pytest.raises(ValueError, match="a row has points"):
        mirror_rows(Stencil(((-1, 0), (0, 0)), (0.25, 0.75)))


def test_bands_reach_as_far_as_windows_are_long() -> None:
    for radius in (1, 4, 5, 12, 13):
        bands: Bands = window_bands(Stencil(((-radius,), (radius,)), (0.5, 0.5)))
        assert radius <= bands.lead < radius + 4
        assert bands.has_half == (bands.lead % 8 == 0)
        assert not bands.matrices[..., -1, 8:, :].any() or not bands.has_half
        assert bands.matrices.shape[:2] == (1, 1)
