"""Smoothers for Poisson's equation: the effect of one sweep on the error."""

from __future__ import annotations

from fractions import Fraction

from tetris_sim.model.stencils.entry import (
    COLLATZ,
    PATRA_KARTTUNEN,
    NamedStencil,
    Number,
    Weights,
    add,
    along,
    central,
    compact,
    compact_27,
    derivatives,
    identity,
    laplacian,
    named,
    outer,
    polynomial,
    row,
    scaled,
    star,
)

DOMAIN = "Poisson smoothers"

_TROTTENBERG = "U. Trottenberg, C. Oosterlee, A. Schüller, Multigrid (2001)"
_ADAMS = "M. Adams, M. Brezina, J. Hu, R. Tuminaro, J. Comput. Phys. 188 (2003) 593"


def entries() -> tuple[NamedStencil, ...]:
    """Return the stencils of this domain."""
    return (*_jacobi(), *_mehrstellen(), _unequal(), _screened(), *_chebyshev(), *_restrictions())


def _sweep(
    name: str, operator: Weights, damping: Number, degree: int, texts: tuple[str, str]
) -> NamedStencil:
    """Return one damped Jacobi sweep, 1 + damping / |centre| * L."""
    ndim = len(next(iter(operator)))
    factor = damping / abs(operator[(0,) * ndim])
    expansion = laplacian(ndim, degree, factor=factor, value=1)
    return named(name, add(identity(ndim), scaled(factor, operator)), expansion, texts)


def _jacobi() -> tuple[NamedStencil, ...]:
    # Damping 2 d / (2 d + 1) minimizes the amplification of the waves that a coarser grid cannot
    # hold.
    best = {1: Fraction(2, 3), 2: Fraction(4, 5), 3: Fraction(6, 7)}
    stencils = []
    for ndim, damping in best.items():
        source = f"{_TROTTENBERG}, section 2.1"
        what = f"Jacobi, damping {damping}: the best smoothing factor"
        stencils.append(_sweep(f"jacobi-{ndim}d", star(ndim), 1, 3, ("Jacobi", source)))
        stencils.append(_sweep(f"damped-jacobi-{ndim}d", star(ndim), damping, 3, (what, source)))

    # The fourth-order Laplacian exceeds twice its diagonal, so plain Jacobi amplifies the shortest
    # wave.
    high = ("Jacobi, damping 4/5, fourth-order Laplacian; undamped it diverges", _TROTTENBERG)
    return (*stencils, _sweep("damped-jacobi-2d9p", star(2, 4), Fraction(4, 5), 5, high))


def _mehrstellen() -> tuple[NamedStencil, ...]:
    # Mehrstellen operators couple diagonal neighbours too.
    return (
        _sweep("mehrstellen-jacobi-2d", compact(2), 1, 3, ("Jacobi, 9-point Mehrstellen", COLLATZ)),
        _sweep(
            "mehrstellen-jacobi-3d18p", compact(3), 1, 3, ("Jacobi, 19-point Mehrstellen", COLLATZ)
        ),
        _sweep(
            "mehrstellen-jacobi-3d26p",
            compact_27(),
            1,
            3,
            ("Jacobi, isotropic 27-point Laplacian", PATRA_KARTTUNEN),
        ),
        _sweep(
            "damped-mehrstellen-2d",
            compact(2),
            Fraction(8, 9),
            3,
            ("Jacobi, damping 8/9, 9-point Mehrstellen", COLLATZ),
        ),
    )


def _unequal() -> NamedStencil:
    weak = Fraction(1, 10)

    # Weak coupling along y: sweeps smooth along x only, which motivates line smoothers.
    operator = add(along(central(2, 2), 1, 2), scaled(weak, along(central(2, 2), 0, 2)))
    factor = 1 / (2 + 2 * weak)
    return named(
        "jacobi-2d-anisotropic",
        add(identity(2), scaled(factor, operator)),
        derivatives({(0, 0): 1, (0, 2): factor, (2, 0): factor * weak}, 3),
        ("Jacobi for u_xx + u_yy/10", f"{_TROTTENBERG}, section 5.1"),
        symmetry="axes",
    )


def _screened() -> NamedStencil:
    # (L - 1) u has the diagonal -5, so the sweep divides the four neighbours by 5.
    fifth = Fraction(1, 5)
    weights = scaled(fifth, add(star(2), scaled(4, identity(2))))
    about = "Jacobi for Laplacian u - u"

    return named(
        "screened-jacobi-2d",
        weights,
        laplacian(2, 3, factor=fifth, value=4 * fifth),
        (about, f"{_TROTTENBERG}, chapter 2"),
    )


def _chebyshev() -> tuple[NamedStencil, ...]:
    """Chebyshev smoothers T_2((m - s) / d) / T_2(m / d) for eigenvalues s of -L in m - d ... m + d,
    the upper 3/4 of the spectrum.
    """
    stencils = []
    for ndim in (2, 3):
        # -L has eigenvalues up to 4 ndim; from ndim to 4 ndim, the middle is 5/2 ndim.
        middle, reach = Fraction(5 * ndim, 2), Fraction(3 * ndim, 2)
        # T_2(x) = 2 x^2 - 1, expanded in powers of L and normalized at eigenvalue 0.
        top = 2 * (middle / reach) ** 2 - 1
        coefficients = (1, 4 * middle / reach**2 / top, 2 / reach**2 / top)

        expansion = laplacian(ndim, 3, factor=coefficients[1], value=1)
        what = f"two Chebyshev sweeps at once, for eigenvalues from {ndim} to {4 * ndim}"
        stencils.append(
            named(
                f"chebyshev-{ndim}d",
                polynomial(star(ndim), coefficients),
                expansion,
                (what, _ADAMS),
            )
        )

    return tuple(stencils)


def _restrictions() -> tuple[NamedStencil, ...]:
    """Restrictions: the transpose of cubic interpolation between grids, evaluated at every
    point.
    """
    # Cubic interpolation to midpoints is (-1, 9, 9, -1)/16, and 1 at the kept point itself.
    cubic = row(*(Fraction(w, 32) for w in (-1, 0, 9, 16, 9, 0, -1)))
    source = f"{_TROTTENBERG}, section 2.3"

    stencils = []
    for ndim in (1, 2):
        value = derivatives({(0,) * ndim: 1}, 3)
        what = "restriction to a coarser grid: transpose of cubic interpolation"
        stencils.append(
            named(f"cubic-restriction-{ndim}d", outer(*[cubic] * ndim), value, (what, source))
        )

    return tuple(stencils)
