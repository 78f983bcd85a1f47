"""Acoustic and elastic waves: the spatial part of a leapfrog step, and first derivatives.

Leapfrog is u_next = S u - u_before with S = 2 + C^2 L. It is stable exactly if |symbol of S| <= 2
for all waves, so each S here has the factor 1/2.
"""

from __future__ import annotations

from fractions import Fraction

from tetris_sim.model.stencils.entry import (
    COLLATZ,
    PATRA_KARTTUNEN,
    NamedStencil,
    Weights,
    add,
    along,
    biharmonic,
    central,
    compact,
    compact_27,
    compose,
    derivatives,
    fornberg,
    identity,
    laplacian,
    line,
    magnitude,
    named,
    outer,
    row,
    scaled,
    star,
)

DOMAIN = "acoustic and elastic waves"

_ALFORD = "R. M. Alford, K. R. Kelly, D. M. Boore, Geophysics 39 (1974) 834"
_DABLAIN = "M. A. Dablain, Geophysics 51 (1986) 54"
_KELLY = "K. R. Kelly, R. W. Ward, S. Treitel, R. M. Alford, Geophysics 41 (1976) 2"
_LEVANDER = "J. Virieux, Geophysics 51 (1986) 889; A. R. Levander, Geophysics 53 (1988) 1425"
_SAENGER = "E. H. Saenger, N. Gold, S. A. Shapiro, Wave Motion 31 (2000) 77"


def entries() -> tuple[NamedStencil, ...]:
    """Return the stencils of this domain."""
    return (*_leapfrog(), _modified_equation(), *_staggered(), *_elastic(), _low_dispersion())


def leapfrog(
    name: str, operator: Weights, degree: int, texts: tuple[str, str], fastest: Fraction
) -> NamedStencil:
    """Return 2 + C^2 L with C^2 at three quarters of its limit of 4 / fastest.

    Args:
        name: of the entry.
        operator: L.
        degree: up to which L is exact.
        texts: description, which is completed here, and source.
        fastest: largest magnitude of the symbol of L.
    """
    ndim, courant = len(next(iter(operator))), 3 / fastest
    weights = add(scaled(2, identity(ndim)), scaled(courant, operator))
    expansion = laplacian(ndim, degree, factor=courant, value=2)
    about = f"2 + C^2 L of leapfrog with the {texts[0]} Laplacian, C^2 = {courant}"
    return named(name, weights, expansion, (about, texts[1]), factor=Fraction(1, 2))


def _leapfrog() -> tuple[NamedStencil, ...]:
    stencils = []
    for ndim in (1, 2, 3):
        for order, what in ((2, "usual"), (4, "fourth-order")):
            operator = star(ndim, order)
            name = f"acoustic-{ndim}d" + ("" if order == 2 else f"-order{order}")
            fastest = magnitude(operator)
            stencils.append(leapfrog(name, operator, order + 1, (what, _ALFORD), fastest))

    # The largest |symbol| of the compact Laplacians is below their sum of magnitudes.
    return (
        *stencils,
        leapfrog("acoustic-2d9p", compact(2), 3, ("9-point", COLLATZ), Fraction(16, 3)),
        leapfrog(
            "acoustic-3d27p", compact_27(), 3, ("27-point", PATRA_KARTTUNEN), Fraction(92, 15)
        ),
    )


def _modified_equation() -> NamedStencil:
    # The modified equation adds the leading time error C^4/12 L^2, which makes time fourth order
    # too.
    courant = Fraction(2, 5)
    square = compose(star(2), star(2))
    return named(
        "acoustic-2d-modified",
        add(scaled(2, identity(2)), scaled(courant, star(2, 4)), scaled(courant**2 / 12, square)),
        biharmonic(2, 5, value=2, second=courant, factor=courant**2 / 12),
        ("leapfrog of fourth order in time and space: 2 + C^2 L + C^4/12 L^2, C^2 = 2/5", _DABLAIN),
        factor=Fraction(1, 2),
    )


def _staggered() -> tuple[NamedStencil, ...]:
    # Velocities and stresses live half a point apart, so derivatives are taken at midpoints.
    half = Fraction(1, 2)
    stencils = []
    for order in (2, 4, 6, 8):
        nodes = range(1 - order // 2, order // 2 + 1)
        stencils.append(
            named(
                f"staggered-1d-order{order}",
                fornberg(1, nodes, at=half),
                derivatives({(1,): 1}, order, (half,)),
                (
                    (
                        f"first derivative of order {order} half a point to the right, on a "
                        "staggered grid"
                    ),
                    _LEVANDER,
                ),
                symmetry="none",
                factor=None,
            )
        )

    # On the rotated staggered grid all components live at cell corners: a difference along x,
    # averaged over the other axes.
    difference, mean = fornberg(1, (0, 1), at=half), fornberg(0, (0, 1), at=half)
    rotated = (
        named(
            f"rotated-staggered-{ndim}d",
            outer(*[mean] * (ndim - 1), difference),
            derivatives({(*(0,) * (ndim - 1), 1): 1}, 2, (half,) * ndim),
            ("first derivative along x in the middle of a cell, from its corners", _SAENGER),
            symmetry="none",
            factor=None,
        )
        for ndim in (2, 3)
    )

    return (*stencils, *rotated)


def _elastic() -> tuple[NamedStencil, ...]:
    """Operators of the displacement form with equal Lamé constants."""

    # lambda = mu = 1, so lambda + 2 mu = 3 along x (the last axis) and mu = 1 along the others.
    def stretch(ndim: int, order: int) -> NamedStencil:
        parts = [
            scaled(3 if axis == ndim - 1 else 1, along(central(2, order), axis, ndim))
            for axis in range(ndim)
        ]
        terms = {
            tuple(2 if k == axis else 0 for k in range(ndim)): 3 if axis == ndim - 1 else 1
            for axis in range(ndim)
        }

        what = (
            f"(lambda + 2 mu) u_xx + mu u_yy{' + mu u_zz' if ndim == 3 else ''}, lambda = mu = 1, "
            f"order {order}"
        )
        name = f"elastic-{ndim}d-order{order}"
        return named(
            name,
            add(*parts),
            derivatives(terms, order + 1),
            (what, _KELLY),
            symmetry="axes",
            factor=None,
        )

    # The mixed derivative couples the components of the displacement; lambda + mu = 2.
    def coupling(order: int) -> NamedStencil:
        weights = scaled(2, outer(central(1, order), central(1, order)))
        what = f"(lambda + mu) u_xy, lambda = mu = 1, order {order}"
        expansion = derivatives({(1, 1): 2}, order + 1)
        name = f"elastic-coupling-2d-order{order}"
        return named(name, weights, expansion, (what, _KELLY), symmetry="even", factor=None)

    return (stretch(2, 2), stretch(2, 4), stretch(3, 4), coupling(2), coupling(4))


def _low_dispersion() -> NamedStencil:
    # One weight minimizes the dispersion error; the other two follow from fourth order:
    # 2 (a1 + 2 a2 + 3 a3) = 1 and a1 + 8 a2 + 27 a3 = 0.
    first = Fraction("0.770882380518")
    second, third = (9 - 16 * first) / 20, (3 * first - 2) / 15

    return named(
        "dispersion-relation-1d",
        add(
            line((-3, -2, -1), (-third, -second, -first)),
            line((1, 2, 3), (first, second, third)),
            row(0),
        ),
        derivatives({(1,): 1}, 4),
        (
            "first derivative of order 4, the third weight chosen for the least dispersion",
            (
                "C. K. W. Tam, J. C. Webb, J. Comput. Phys. 107 (1993) 262; weights: C. K. W. Tam, "
                "H. Shen, AIAA 93-4325"
            ),
        ),
        symmetry="odd",
        factor=None,
    )
