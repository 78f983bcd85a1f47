"""Every stencil of the catalogue does what it says: order on polynomials, symmetry, stability; and
all differ.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Periodic
from tetris_sim.model.stencil import Offset, Stencil
from tetris_sim.model.stencils.advection import velocity_set
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, catalogue, named_stencil
from tetris_sim.model.stencils.entry import (
    NamedStencil,
    Powers,
    b_spline,
    central,
    fornberg,
    outer,
    star,
    symmetry_of,
    transport,
)

ENTRIES = tuple(catalogue().values())
every_stencil = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


def ndim_of(entry: NamedStencil) -> int:
    return len(next(iter(entry.exact)))


def powers(ndim: int, degree: int) -> Iterator[Powers]:
    return (p for p in itertools.product(range(degree + 1), repeat=ndim) if sum(p) == degree)


def moment(entry: NamedStencil, p: Powers) -> Fraction:
    """What the stencil makes of the polynomial prod (x_k - about_k)^p_k / p_k! at `about`,
    exactly.
    """
    about = entry.expansion.about or (Fraction(0),) * len(p)
    total = Fraction(0)
    for offset, weight in entry.exact.items():
        total += weight * math.prod(
            ((c - a) ** q / math.factorial(q) for c, a, q in zip(offset, about, p, strict=True)),
            start=Fraction(1),
        )
    return total


def amplification(stencil: Stencil) -> float:
    """Largest |symbol| on a fine grid of wave numbers: the transform of the weights laid out on a
    torus.
    """
    torus = np.zeros(({1: 4096, 2: 256, 3: 64}[stencil.ndim],) * stencil.ndim)
    for offset, weight in stencil.terms.items():
        torus[offset] += weight
    return float(np.abs(np.fft.fftn(torus)).max())


def test_there_are_at_least_79_stencils_of_at_least_9_domains() -> None:
    domains = [entry.domain for entry in ENTRIES]
    assert len(ENTRIES) >= 79
    assert len(set(domains)) >= 9
    assert min(domains.count(domain) for domain in set(domains)) >= 5
    assert all(sum(ndim_of(entry) == ndim for entry in ENTRIES) >= 30 for ndim in (1, 2, 3))


def test_all_names_and_all_stencils_differ() -> None:
    assert list(catalogue()) == [entry.name for entry in ENTRIES]
    assert len({tuple(entry.exact.items()) for entry in ENTRIES}) == len(ENTRIES)
    assert len({entry.stencil for entry in ENTRIES}) == len(ENTRIES)


def test_the_benchmark_stencils_of_the_papers_are_among_them() -> None:
    assert set(STENCIL_NAMES) <= set(catalogue())
    assert named_stencil("heat-2d") is catalogue()["heat-2d"]
    with pytest.raises(KeyError):
        named_stencil("heat-4d")


@every_stencil
def test_a_stencil_says_what_it_is_and_where_it_comes_from(entry: NamedStencil) -> None:
    assert f"{entry.stencil.ndim}d" in entry.name
    if entry.name[-1] == "p":
        assert entry.name.endswith((f"d{entry.stencil.n_points}p", f"-{entry.stencil.n_points}p"))
    assert len(entry.description) > 5
    assert len(entry.source) > 15
    assert str(entry.expansion)
    assert entry.stencil.terms == {offset: float(weight) for offset, weight in entry.exact.items()}
    assert all(entry.exact.values())


@every_stencil
def test_it_is_exact_for_polynomials_up_to_its_degree_and_no_further(entry: NamedStencil) -> None:
    ndim, expansion = ndim_of(entry), entry.expansion
    for degree in range(expansion.degree + 1):
        for p in powers(ndim, degree):
            assert moment(entry, p) == expansion.coefficients.get(p, 0), p
    beyond = powers(ndim, expansion.degree + 1)
    assert any(moment(entry, p) != expansion.coefficients.get(p, 0) for p in beyond)
    assert any(c for p, c in expansion.coefficients.items() if sum(p) <= expansion.degree)


@every_stencil
def test_it_has_the_symmetry_it_claims_and_no_stronger_one(entry: NamedStencil) -> None:
    assert symmetry_of(entry.exact) == entry.symmetry
    if entry.symmetry in ("full", "axes", "even"):
        assert entry.stencil.symmetric


@every_stencil
def test_repeated_application_of_what_is_called_repeatable_amplifies_no_wave(
    entry: NamedStencil,
) -> None:
    found = amplification(entry.stencil)
    if entry.stable:
        assert found <= 1 + 1e-12
        assert entry.repeatable == entry.stencil
    else:
        assert found > 1 + 1e-3
        assert found * float(entry.factor) <= 1 + 1e-12
    assert amplification(entry.repeatable) <= 1 + 1e-12


@every_stencil
def test_the_reference_multiplies_waves_by_its_symbol(
    entry: NamedStencil, rng: np.random.Generator
) -> None:
    stencil = entry.stencil
    shape = {1: (41,), 2: (19, 23), 3: (17, 18, 19)}[stencil.ndim]
    theta = [
        2 * math.pi * int(k) / n
        for k, n in zip(rng.integers(1, 8, stencil.ndim), shape, strict=True)
    ]
    phase = np.tensordot(np.array(theta), np.indices(shape).astype(np.float64), axes=1)
    found = reference.step(
        np.cos(phase)[np.newaxis],
        stencil,
        Boundary.everywhere(Periodic(), stencil.ndim),
        (1.0,) * 3,
    )
    expected = (complex(stencil.symbol(theta)) * np.exp(1j * phase)).real
    # Each phase is rounded relative to its size, on both sides; so is each product and each sum.
    size = sum(map(abs, stencil.weights)) * (stencil.n_points + 4 * float(phase.max()))
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=2.0**-52 * size)


def test_differences_of_fornberg_are_those_of_his_table() -> None:
    assert list(central(2, 8).values())[:5] == [
        Fraction(-1, 560),
        Fraction(8, 315),
        Fraction(-1, 5),
        Fraction(8, 5),
        Fraction(-205, 72),
    ]
    assert list(central(1, 4).values()) == [
        Fraction(1, 12),
        Fraction(-2, 3),
        Fraction(2, 3),
        Fraction(-1, 12),
    ]
    assert list(fornberg(1, (0, 1, 2)).values()) == [Fraction(-3, 2), 2, Fraction(-1, 2)]
    assert list(fornberg(0, (0, 3), at=1).values()) == [Fraction(2, 3), Fraction(1, 3)]


def test_some_stencils_have_the_weights_that_are_printed_everywhere() -> None:
    printed: dict[str, dict[Offset, Fraction | int]] = {
        "laplacian-2d9p": {
            (0, 0): Fraction(-10, 3),
            (0, 1): Fraction(2, 3),
            (1, 1): Fraction(1, 6),
        },
        "biharmonic-2d13p": {(0, 0): 20, (0, 1): -8, (1, 1): 2, (0, 2): 1},
        "d3q19-3d": {
            (0, 0, 0): Fraction(1, 3),
            (0, 0, 1): Fraction(1, 18),
            (0, 1, 1): Fraction(1, 36),
        },
        "staggered-1d-order4": {
            (-1,): Fraction(1, 24),
            (0,): Fraction(-9, 8),
            (1,): Fraction(9, 8),
        },
        "sobel-2d": {(0, 1): Fraction(1, 4), (1, 1): Fraction(1, 8), (1, -1): Fraction(-1, 8)},
        "trilinear-stiffness-3d21p": {
            (0, 0, 0): Fraction(8, 3),
            (0, 1, 1): Fraction(-1, 6),
            (1, 1, 1): Fraction(-1, 12),
        },
        "cubic-spline-mass-1d7p": {(0,): Fraction(151, 315), (3,): Fraction(1, 5040)},
    }
    for name, weights in printed.items():
        exact = named_stencil(name).exact
        assert {offset: exact[offset] for offset in weights} == weights, name
    assert (0, 0, 1) not in named_stencil("trilinear-stiffness-3d21p").exact


def test_shapes_that_other_fields_name_otherwise_are_the_same() -> None:
    assert outer(b_spline(3), b_spline(3)) == velocity_set("d2q9")[0]  # bilinear mass and D2Q9
    assert b_spline(3) == velocity_set("d1q3")[0]


def test_the_25_point_star_of_seismics_has_order_8() -> None:
    entry = named_stencil("seismic-3d25p")
    assert entry.stencil.radii == (4, 4, 4)
    assert entry.expansion.degree == 9
    assert set(entry.exact) == set(star(3, 8))


def test_an_expansion_is_written_as_a_formula() -> None:
    assert str(named_stencil("heat-2d").expansion) == "u + 1/8 (u_xx + u_yy), exact to degree 3"
    assert (
        str(named_stencil("laplacian-of-gaussian-2d13p").expansion)
        == "- 8 (u_xx + u_yy), exact to degree 3"
    )
    assert (
        str(transport((Fraction(1, 4), Fraction(1, 3)), 2))
        == "u(x - 1/3, y - 1/4), exact to degree 2"
    )
