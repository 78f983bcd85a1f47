"""Geophysics: seismic waves, anisotropic and frequency-domain operators, weather models."""

from __future__ import annotations

from fractions import Fraction

from tetris_sim.model.stencils.entry import (
    NamedStencil,
    add,
    along,
    biharmonic,
    central,
    compose,
    derivatives,
    diagonal,
    identity,
    magnitude,
    mask,
    named,
    outer,
    polynomial,
    scaled,
    star,
)
from tetris_sim.model.stencils.waves import leapfrog

DOMAIN = "geophysics"

_ETGEN = "J. T. Etgen, M. J. O'Brien, Geophysics 72 (2007) SM223: large-scale 3D acoustic modelling"
_THOMSEN = "L. Thomsen, Geophysics 51 (1986) 1954; T. Alkhalifah, Geophysics 65 (2000) 1239"
_JO = "C.-H. Jo, C. Shin, J. H. Suh, Geophysics 61 (1996) 529"
_COSMO = "G. Doms, U. Schättler, COSMO model documentation part I (2002)"
_SHAPIRO = "R. Shapiro, Rev. Geophys. Space Phys. 8 (1970) 359"
_ARAKAWA = "A. Arakawa, V. R. Lamb, Methods Comput. Phys. 17 (1977) 173"


def entries() -> tuple[NamedStencil, ...]:
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
