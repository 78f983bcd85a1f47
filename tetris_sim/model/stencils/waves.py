"""Acoustic and elastic waves, and geophysics: the spatial part of a leapfrog step, and first
derivatives.

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
    diagonal,
    fornberg,
    identity,
    laplacian,
    line,
    magnitude,
    mask,
    named,
    outer,
    polynomial,
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


# Geophysics: seismic waves, anisotropic and frequency-domain operators, weather models.
GEOPHYSICS = "geophysics"

_ETGEN = "J. T. Etgen, M. J. O'Brien, Geophysics 72 (2007) SM223: large-scale 3D acoustic modelling"
_THOMSEN = "L. Thomsen, Geophysics 51 (1986) 1954; T. Alkhalifah, Geophysics 65 (2000) 1239"
_JO = "C.-H. Jo, C. Shin, J. H. Suh, Geophysics 61 (1996) 529"
_COSMO = "G. Doms, U. Schättler, COSMO model documentation part I (2002)"
_SHAPIRO = "R. Shapiro, Rev. Geophys. Space Phys. 8 (1970) 359"
_ARAKAWA = "A. Arakawa, V. R. Lamb, Methods Comput. Phys. 17 (1977) 173"


def geophysics() -> tuple[NamedStencil, ...]:
    """Return the stencils of this domain."""
    return (*_seismic(), *_anisotropic(), _helmholtz(), *_weather(), *_shapiro(), _to_corner())


def _seismic() -> tuple[NamedStencil, ...]:
    stencils = []
    for ndim, order in ((2, 8), (2, 12), (3, 6), (3, 8), (3, 12), (3, 16)):
        operator = star(ndim, order)
        # The checkerboard wave attains the sum of magnitudes, since signs alternate along each
        # axis.
        fastest = magnitude(operator)
        points = ndim * order + 1
        name = f"seismic-{ndim}d{points}p"
        stencils.append(
            leapfrog(
                name, operator, order + 1, (f"{points}-point, order {order},", _ETGEN), fastest
            )
        )

    return tuple(stencils)


def _anisotropic() -> tuple[NamedStencil, ...]:
    """Operators of a pseudo-acoustic medium with Thomsen's epsilon = 1/5, faster along its
    layers.
    """
    # Velocities squared scale with 1 + 2 epsilon along the layers.
    fast = 1 + 2 * Fraction(1, 5)
    cosine, sine = Fraction(4, 5), Fraction(3, 5)

    # Horizontal layers, in the plane of x and y.
    level = add(
        along(central(2, 8), 0, 3),
        *(scaled(fast, along(central(2, 8), axis, 3)) for axis in (1, 2)),
    )

    # The same medium in the plane of x and z, tilted: the tensor diag(fast, 1) in rotated axes.
    along_x, along_z = fast * cosine**2 + sine**2, fast * sine**2 + cosine**2
    mixed = 2 * (fast - 1) * sine * cosine
    tilted = add(
        scaled(along_x, along(central(2, 4), 1, 2)),
        scaled(along_z, along(central(2, 4), 0, 2)),
        scaled(mixed, outer(central(1, 4), central(1, 4))),
    )

    return (
        named(
            "vertical-isotropy-3d25p",
            level,
            derivatives({(2, 0, 0): 1, (0, 2, 0): fast, (0, 0, 2): fast}, 9),
            ("7/5 (u_xx + u_yy) + u_zz of order 8: layers that lie flat", _THOMSEN),
            symmetry="axes",
            factor=None,
        ),
        named(
            "tilted-isotropy-2d25p",
            tilted,
            derivatives({(0, 2): along_x, (2, 0): along_z, (1, 1): mixed}, 5),
            ("the same of order 4 for layers tilted by 36.87 degrees (sine 3/5)", _THOMSEN),
            symmetry="even",
            factor=None,
        ),
    )


def _helmholtz() -> NamedStencil:
    # Published optimal mixing and mass weights; `corner` makes the mass weights sum to 1. k h =
    # 1/2.
    part, middle, side = Fraction("0.5461"), Fraction("0.6248"), Fraction("0.09381")
    corner, wave = (1 - middle - 4 * side) / 4, Fraction(1, 4)
    mass = mask([[corner, side, corner], [side, middle, side], [corner, side, corner]])

    # The mass matrix spreads k^2 u, which adds to the second derivatives.
    second = 1 + wave * (side + 2 * corner)
    return named(
        "helmholtz-2d9p",
        add(scaled(part, star(2)), scaled(1 - part, diagonal()), scaled(wave, mass)),
        derivatives({(0, 0): wave, (0, 2): second, (2, 0): second}, 3),
        ("Laplacian u + k^2 u, two rotated Laplacians mixed for least dispersion, k h = 1/2", _JO),
        factor=None,
    )


def _weather() -> tuple[NamedStencil, ...]:
    stencils = []
    for ndim, strength in ((2, Fraction(1, 64)), (3, Fraction(1, 144))):
        # The shortest wave, L = -8 in 2D and -12 in 3D, is removed in one step.
        weights = polynomial(star(ndim), (1, 0, -strength))
        texts = (f"fourth-order diffusion of a weather model, u - {strength} L^2 u", _COSMO)
        stencils.append(
            named(
                f"fourth-order-diffusion-{ndim}d",
                weights,
                biharmonic(ndim, 5, value=1, factor=-strength),
                texts,
            )
        )

    return tuple(stencils)


def _shapiro() -> tuple[NamedStencil, ...]:
    """Shapiro filters u - (-1)^n D^n u / 4^n, D the second difference: they remove the shortest
    wave and keep long ones.
    """
    # D takes the shortest wave to -4 times itself, so D^n / 4^n takes it to (-1)^n times itself.
    square = polynomial(central(2, 2), (1, 0, Fraction(-1, 16)))
    fourth = compose(*[central(2, 2)] * 4)
    sixteenth = Fraction(-1, 16)

    return (
        named(
            "shapiro-1d5p",
            square,
            derivatives({(0,): 1, (4,): sixteenth}, 5),
            ("Shapiro filter of order 4", _SHAPIRO),
        ),
        named(
            "shapiro-1d9p",
            add(identity(1), scaled(Fraction(-1, 256), fourth)),
            derivatives({(0,): 1, (8,): Fraction(-1, 256)}, 9),
            ("Shapiro filter of order 8", _SHAPIRO),
        ),
        named(
            "shapiro-2d25p",
            outer(square, square),
            derivatives({(0, 0): 1, (4, 0): sixteenth, (0, 4): sixteenth}, 5),
            ("Shapiro filter of order 4 along each axis", _SHAPIRO),
        ),
    )


def _to_corner() -> NamedStencil:
    half = Fraction(1, 2)

    # The four points around the corner at (+1/2, +1/2).
    weights = mask([[0, 0, 0], [0, 1, 1], [0, 1, 1]], 4)
    about = "mean of four points, at the corner between them: Coriolis force on the C grid"
    expansion = derivatives({(0, 0): 1}, 1, (half, half))
    return named("coriolis-mean-2d", weights, expansion, (about, _ARAKAWA), symmetry="none")
