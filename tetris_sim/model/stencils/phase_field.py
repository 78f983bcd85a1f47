"""Phase field: the linear part of a time step about a pure phase, explicit in time.

L is the Laplacian. Except for Kuramoto-Sivashinsky, dt is short enough that no wave grows.
"""

from __future__ import annotations

from fractions import Fraction

from tetris_sim.model.stencils.entry import (
    NamedStencil,
    Number,
    Weights,
    biharmonic,
    compact,
    laplacian,
    named,
    polynomial,
    star,
)

DOMAIN = "phase field"

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


def entries() -> tuple[NamedStencil, ...]:
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
