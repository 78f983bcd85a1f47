"""Time steps of the heat equation: forward Euler on many Laplacians, and super-time-stepping.

Times are in units of spacing^2 / diffusivity.
"""

from __future__ import annotations

from fractions import Fraction

from tetris_sim.model.stencils.entry import (
    COLLATZ,
    FORNBERG,
    PATRA_KARTTUNEN,
    NamedStencil,
    Weights,
    add,
    along,
    central,
    compact,
    compact_27,
    derivatives,
    diagonal,
    identity,
    laplacian,
    magnitude,
    named,
    outer,
    polynomial,
    scaled,
    star,
)

DOMAIN = "heat and diffusion"

_STS = (
    "P. J. van der Houwen, B. P. Sommeijer, Z. Angew. Math. Mech. 60 (1980) 479: Chebyshev stages"
)
_EULER = "forward Euler with the {} Laplacian at half of the largest stable step"


def entries() -> tuple[NamedStencil, ...]:
    """Return the stencils of this domain."""
    return (*_stars(), *_boxes(), *_tensors(), *_long_steps())


def _half_euler(
    name: str, operator: Weights, degree: int, texts: tuple[str, str], fastest: Fraction
) -> NamedStencil:
    """Return forward Euler at half of its stability limit: the wave that decays at the rate
    `fastest` vanishes in one step.
    """
    ndim, mu = len(next(iter(operator))), 1 / fastest
    weights = add(identity(ndim), scaled(mu, operator))
    return named(name, weights, laplacian(ndim, degree, factor=mu, value=1), texts)


def _stars() -> tuple[NamedStencil, ...]:
    listed = (
        ("heat-1d", 1, 2, "3-point"),
        ("star-1d5p", 1, 4, "fourth-order"),
        ("star-1d7p", 1, 6, "sixth-order"),
        ("star-1d9p", 1, 8, "eighth-order"),
        ("heat-2d", 2, 2, "5-point"),
        ("star-2d9p", 2, 4, "fourth-order"),
        ("star-2d13p", 2, 6, "sixth-order"),
        ("star-2d17p", 2, 8, "eighth-order"),
        ("heat-3d", 3, 2, "7-point"),
        ("star-3d13p", 3, 4, "fourth-order"),
        ("star-3d19p", 3, 6, "sixth-order"),
        ("star-3d25p", 3, 8, "eighth-order"),
    )

    stencils = []
    for name, ndim, order, which in listed:
        operator = star(ndim, order)
        # Signs alternate from the centre outwards, so the checkerboard wave decays by the sum of
        # the magnitudes.
        fastest = magnitude(operator)
        stencils.append(
            _half_euler(name, operator, order + 1, (_EULER.format(which), FORNBERG), fastest)
        )

    return tuple(stencils)


def _boxes() -> tuple[NamedStencil, ...]:
    # The largest |symbol| of each is given: for the first two it is below the sum of magnitudes.
    return (
        _half_euler(
            "heat-2d9p",
            compact(2),
            3,
            (_EULER.format("9-point Mehrstellen"), COLLATZ),
            Fraction(16, 3),
        ),
        _half_euler(
            "heat-3d27p",
            compact_27(),
            3,
            (_EULER.format("27-point"), PATRA_KARTTUNEN),
            Fraction(92, 15),
        ),
        _half_euler(
            "heat-2d-diagonal",
            diagonal(),
            3,
            (_EULER.format("diagonal 5-point"), COLLATZ),
            Fraction(4),
        ),
    )


def _tensors() -> tuple[NamedStencil, ...]:
    """Anisotropic diffusion: conductivity that depends on direction."""
    d1, d2 = central(1, 2), central(2, 2)
    third, sixth = Fraction(1, 3), Fraction(1, 6)

    # Diagonal tensor (1, 1/4), and the full tensor whose mixed derivative is 2 * 1/2 u_xy.
    weak = add(along(d2, 1, 2), scaled(Fraction(1, 4), along(d2, 0, 2)))
    turned = add(along(d2, 0, 2), along(d2, 1, 2), outer(d1, d1))

    return (
        named(
            "heat-2d-anisotropic",
            add(identity(2), scaled(third, weak)),
            derivatives({(0, 0): 1, (0, 2): third, (2, 0): third / 4}, 3),
            (
                "forward Euler, conductivity along x four times that along y, dt = 1/3",
                "J. Crank, The Mathematics of Diffusion (1975), section 1.4",
            ),
            symmetry="axes",
        ),
        named(
            "heat-2d-tensor",
            add(identity(2), scaled(sixth, turned)),
            derivatives({(0, 0): 1, (2, 0): sixth, (0, 2): sixth, (1, 1): sixth}, 3),
            (
                "forward Euler with the full tensor ((1, 1/2), (1/2, 1)), dt = 1/6",
                "J. Weickert, Anisotropic Diffusion in Image Processing (1998)",
            ),
            symmetry="even",
        ),
    )


def _long_steps() -> tuple[NamedStencil, ...]:
    """Super-time-stepping: Chebyshev polynomials T_s(1 + dt L / s^2) apply s stages at once, with
    s^2 times the step of one.
    """
    second, third = Fraction(9, 10), Fraction(18, 5)
    # T_2(1 + x/4) = 1 + x + x^2/8 and T_3(1 + x/9) = 1 + x + 4 x^2/27 + 4 x^3/729.

    return (
        named(
            "heat-1d-chebyshev3",
            polynomial(scaled(third, star(1)), (1, 1, Fraction(4, 27), Fraction(4, 729))),
            laplacian(1, 3, factor=third, value=1),
            (
                "three Chebyshev stages at once, dt = 18/5: 7.2 times the limit of one Euler step",
                _STS,
            ),
        ),
        named(
            "heat-2d-chebyshev2",
            polynomial(scaled(second, star(2)), (1, 1, Fraction(1, 8))),
            laplacian(2, 3, factor=second, value=1),
            (
                "two Chebyshev stages at once, dt = 9/10: 3.6 times the limit of one Euler step",
                _STS,
            ),
        ),
        named(
            "heat-3d-two-steps",
            polynomial(scaled(Fraction(1, 8), star(3)), (1, 2, 1)),
            laplacian(3, 3, factor=Fraction(1, 4), value=1),
            (
                "two Euler steps of dt = 1/8 as one 25-point stencil",
                "Y. Chen et al., ConvStencil, PPoPP 2024, section 3.3: kernel fusion",
            ),
        ),
    )
