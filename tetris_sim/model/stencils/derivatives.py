"""Laplacians of order 2 to 8, the biharmonic operator, and other derivatives.

Operators are meant to be applied once: `factor=None` scales each by the sum of its magnitudes where
it is repeated. An approximation of order p to a derivative of order m is exact to degree m + p - 1.
"""

from __future__ import annotations

from fractions import Fraction

from tetris_sim.model.stencils.entry import (
    COLLATZ,
    FORNBERG,
    PATRA_KARTTUNEN,
    NamedStencil,
    TaylorExpansion,
    Weights,
    biharmonic,
    central,
    compact,
    compact_27,
    compose,
    derivatives,
    diagonal,
    laplacian,
    named,
    star,
)

DOMAIN = "Laplacian and biharmonic operators"

# The table of `FORNBERG` ends with the fourth derivative.
_FORNBERG_ALGORITHM = "B. Fornberg, Math. Comp. 51 (1988) 699, the recursion of section 3"
_ABRAMOWITZ = "M. Abramowitz, I. A. Stegun, Handbook of Mathematical Functions (1964), 25.3"


def entries() -> tuple[NamedStencil, ...]:
    """Return the stencils of this domain."""
    return (*_stars(), *_boxes(), *_biharmonic(), *_odd_and_high())


def _operator(
    name: str, weights: Weights, expansion: TaylorExpansion, texts: tuple[str, str]
) -> NamedStencil:
    return named(name, weights, expansion, texts, factor=None)


# The error of a central second derivative of even order p begins with degree p + 2.
def _stars() -> tuple[NamedStencil, ...]:
    return tuple(
        _operator(
            f"laplacian-{ndim}d-order{order}",
            star(ndim, order),
            laplacian(ndim, order + 1),
            (f"sum of central second derivatives of order {order}", FORNBERG),
        )
        for ndim in (1, 2, 3)
        for order in (2, 4, 6, 8)
    )


def _boxes() -> tuple[NamedStencil, ...]:

    return (
        _operator(
            "laplacian-2d9p",
            compact(2),
            laplacian(2, 3),
            ("9 points, isotropic leading error", COLLATZ),
        ),
        _operator(
            "laplacian-2d-diagonal",
            diagonal(),
            laplacian(2, 3),
            ("four diagonal neighbours", _ABRAMOWITZ),
        ),
        _operator(
            "laplacian-3d19p",
            compact(3),
            laplacian(3, 3),
            ("19 points, isotropic leading error", COLLATZ),
        ),
        _operator(
            "laplacian-3d27p",
            compact_27(),
            laplacian(3, 3),
            ("27 points, isotropic leading error", PATRA_KARTTUNEN),
        ),
    )


def _biharmonic() -> tuple[NamedStencil, ...]:
    # Composed Laplacians L L: exact to degree 5, and to degree 7 for the fourth-order L.
    return (
        _operator(
            "biharmonic-2d13p",
            compose(star(2), star(2)),
            biharmonic(2, 5),
            ("Laplacian twice", _ABRAMOWITZ),
        ),
        _operator(
            "biharmonic-2d25p",
            compose(compact(2), compact(2)),
            biharmonic(2, 5),
            ("9-point Laplacian twice", COLLATZ),
        ),
        _operator(
            "biharmonic-2d-order4",
            compose(star(2, 4), star(2, 4)),
            biharmonic(2, 7),
            ("fourth-order Laplacian twice", FORNBERG),
        ),
        _operator(
            "biharmonic-3d25p",
            compose(star(3), star(3)),
            biharmonic(3, 5),
            ("Laplacian twice", _ABRAMOWITZ),
        ),
        # L^3 expands to binomial coefficients: u_6x + 3 u_4x2y + 3 u_2x4y + u_6y.
        _operator(
            "triharmonic-2d25p",
            compose(star(2), star(2), star(2)),
            derivatives({(6, 0): 1, (4, 2): 3, (2, 4): 3, (0, 6): 1}, 7),
            ("Laplacian three times", _ABRAMOWITZ),
        ),
    )


def _odd_and_high() -> tuple[NamedStencil, ...]:
    stencils = []
    for order in (2, 4):
        what = (
            f"central third derivative of order {order}: dispersion in the Korteweg-de Vries "
            "equation"
        )
        expansion = derivatives({(3,): 1}, order + 2)
        name = f"third-derivative-1d-order{order}"
        stencils.append(
            named(name, central(3, order), expansion, (what, FORNBERG), symmetry="odd", factor=None)
        )

    for order in (2, 4):
        what = f"central fourth derivative of order {order}: bending of a beam"
        expansion = derivatives({(4,): 1}, order + 3)
        stencils.append(
            _operator(
                f"fourth-derivative-1d-order{order}",
                central(4, order),
                expansion,
                (what, FORNBERG),
            )
        )

    sixth = derivatives({(6,): Fraction(1)}, 7)
    stencils.append(
        _operator(
            "sixth-derivative-1d",
            central(6, 2),
            sixth,
            ("central sixth derivative of order 2", _FORNBERG_ALGORITHM),
        )
    )

    return tuple(stencils)
