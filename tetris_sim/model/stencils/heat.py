"""Time steps of the heat equation and of phase fields: forward Euler on many Laplacians, and
super-time-stepping.

Times are in units of spacing^2 / diffusivity.
"""

from __future__ import annotations

from fractions import Fraction

from tetris_sim.model.stencils.entry import (
    COLLATZ,
    FORNBERG,
    PATRA_KARTTUNEN,
    NamedStencil,
    Number,
    Weights,
    add,
    along,
    biharmonic,
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


# Phase field: the linear part of a time step about a pure phase, explicit in time.
#
# L is the Laplacian. Except for Kuramoto-Sivashinsky, dt is short enough that no wave grows.
PHASE_FIELD = "phase field"

_ALLEN = "S. M. Allen, J. W. Cahn, Acta Metall. 27 (1979) 1085"
_CAHN = "J. W. Cahn, J. E. Hilliard, J. Chem. Phys. 28 (1958) 258"
_SWIFT = "J. Swift, P. C. Hohenberg, Phys. Rev. A 15 (1977) 319"
_ELDER = "K. R. Elder, M. Katakowski, M. Haataja, M. Grant, Phys. Rev. Lett. 88 (2002) 245701"
_OHTA = "T. Ohta, K. Kawasaki, Macromolecules 19 (1986) 2621"
_MULLINS = "W. W. Mullins, J. Appl. Phys. 28 (1957) 333: surface diffusion"
_KURAMOTO = (
    "Y. Kuramoto, T. Tsuzuki, Prog. Theor. Phys. 55 (1976) 356; G. I. Sivashinsky, Acta "
    "Astronaut. 4 (1977) 1177"
)


def phase_field() -> tuple[NamedStencil, ...]:
    """Return the stencils of this domain."""
    return (
        *_allen_cahn(),
        # Cahn-Hilliard: L (2 u - L u / 2), in one to three dimensions.
        _step(
            "cahn-hilliard-1d",
            star(1),
            Fraction(1, 16),
            (0, 2, Fraction(-1, 2)),
            ("2 L - L^2/2", _CAHN),
        ),
        _step(
            "cahn-hilliard-2d",
            star(2),
            Fraction(1, 32),
            (0, 2, Fraction(-1, 2)),
            ("2 L - L^2/2", _CAHN),
        ),
        _step(
            "cahn-hilliard-3d",
            star(3),
            Fraction(1, 64),
            (0, 2, Fraction(-1, 2)),
            ("2 L - L^2/2", _CAHN),
        ),
        # Swift-Hohenberg, epsilon = -1/10: the pattern's wave number is 1.
        _step(
            "swift-hohenberg-2d", star(2), Fraction(1, 32), _swift(), ("-1/10 - (1 + L)^2", _SWIFT)
        ),
        _step(
            "swift-hohenberg-3d", star(3), Fraction(1, 64), _swift(), ("-1/10 - (1 + L)^2", _SWIFT)
        ),
        # L (1/10 + (1 + L)^2) = 11/10 L + 2 L^2 + L^3.
        _step(
            "phase-field-crystal-2d",
            star(2),
            Fraction(1, 256),
            (0, Fraction(11, 10), 2, 1),
            ("L (1/10 + (1 + L)^2)", _ELDER),
        ),
        # Cahn-Hilliard with the long-range term -1/5 u of block copolymers.
        _step(
            "block-copolymer-2d",
            star(2),
            Fraction(1, 32),
            (Fraction(-1, 5), 2, Fraction(-1, 2)),
            ("2 L - L^2/2 - 1/5", _OHTA),
        ),
        _surface_diffusion(),
        _kuramoto(),
    )


# -1/10 - (1 + L)^2 = -11/10 - 2 L - L^2.
def _swift() -> tuple[Number, ...]:
    return (Fraction(-11, 10), -2, -1)


def _step(
    name: str,
    operator: Weights,
    dt: Fraction,
    polynomial_of: tuple[Number, ...],
    texts: tuple[str, str],
) -> NamedStencil:
    """Return 1 + dt (c0 + c1 L + c2 L^2 ...); powers from L^2 on vanish on polynomials of degree
    3.
    """
    ndim = len(next(iter(operator)))
    coefficients = [dt * c for c in polynomial_of]
    coefficients[0] += 1
    expansion = laplacian(ndim, 3, factor=coefficients[1], value=coefficients[0])
    about = f"explicit step with {texts[0]}, dt = {dt}"
    return named(name, polynomial(operator, coefficients), expansion, (about, texts[1]))


def _allen_cahn() -> tuple[NamedStencil, ...]:
    # The well's curvature is 2, hence the reaction term -2 u.
    stencils = []
    for name, operator, which in (
        ("allen-cahn-2d", star(2), "5-point"),
        ("allen-cahn-2d9p", compact(2), "isotropic 9-point"),
        ("allen-cahn-3d", star(3), "7-point"),
        ("allen-cahn-3d19p", compact(3), "isotropic 19-point"),
    ):
        stencils.append(_step(name, operator, Fraction(1, 10), (-2, 1), (f"{which} L - 2", _ALLEN)))
    return tuple(stencils)


def _surface_diffusion() -> NamedStencil:
    # The leading error of `compact` is isotropic.
    dt = Fraction(1, 32)
    weights = polynomial(compact(2), (1, 0, -dt))
    about = f"explicit step with -L^2, L the isotropic 9-point Laplacian, dt = {dt}"
    return named(
        "surface-diffusion-2d25p", weights, biharmonic(2, 5, value=1, factor=-dt), (about, _MULLINS)
    )


def _kuramoto() -> NamedStencil:
    dt = Fraction(1, 32)

    # The sign of -L feeds long waves and -L^2 damps short ones.
    weights = polynomial(star(1), (1, -dt, -dt))
    about = f"explicit step with -L - L^2, dt = {dt}; long waves grow, as they shall"
    expansion = laplacian(1, 3, factor=-dt, value=1)
    return named("kuramoto-sivashinsky-1d", weights, expansion, (about, _KURAMOTO), factor=None)
