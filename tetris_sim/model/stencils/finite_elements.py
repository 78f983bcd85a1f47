"""Finite elements on regular meshes, splines, the explicit sides of compact schemes, and smoothers
of multigrid methods.
"""

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
    b_spline,
    central,
    compact,
    compact_27,
    compose,
    derivatives,
    identity,
    laplacian,
    mask,
    named,
    outer,
    polynomial,
    row,
    scaled,
    star,
)

DOMAIN = "finite elements and compact schemes"

_STRANG = "G. Strang, G. J. Fix, An Analysis of the Finite Element Method (1973), chapter 1"
_SCHOENBERG = (
    "I. J. Schoenberg, Quart. Appl. Math. 4 (1946) 45; C. de Boor, A Practical Guide to Splines "
    "(1978)"
)
_HUGHES = "J. A. Cottrell, T. J. R. Hughes, Y. Bazilevs, Isogeometric Analysis (2009)"
_LELE = "S. K. Lele, J. Comput. Phys. 103 (1992) 16"
_COLLATZ = (
    "L. Collatz, The Numerical Treatment of Differential Equations (1960), appendix, tables III "
    "and VI"
)


def entries() -> tuple[NamedStencil, ...]:
    """Return the stencils of this domain."""
    return (*_linear(), *_stiffness(), *_splines(), *_compact())


def _linear() -> tuple[NamedStencil, ...]:
    # The mass matrix of linear elements on one axis is the cubic B-spline, (1, 4, 1)/6.
    mass, sixth = b_spline(3), Fraction(1, 6)
    # Squares cut along one diagonal: six triangles meet in a point, hence seven points.
    triangles = mask([[1, 1, 0], [1, 6, 1], [0, 1, 1]], 12)
    # The consistent masses of bilinear and trilinear elements are the stencils D2Q9 and D3Q27 of
    # the lattice Boltzmann method (`lattice_boltzmann.py`), so they are not listed twice.

    return (
        named(
            "triangle-mass-2d7p",
            triangles,
            derivatives({(0, 0): 1, (2, 0): sixth, (0, 2): sixth, (1, 1): sixth}, 3),
            ("mass matrix of linear triangles", _STRANG),
            symmetry="even",
        ),
        named(
            "bilinear-gradient-2d6p",
            outer(mass, central(1, 2)),
            derivatives({(0, 1): 1}, 2),
            ("derivative along x with bilinear elements", _STRANG),
            symmetry="odd",
        ),
        named(
            "trilinear-gradient-3d18p",
            outer(mass, mass, central(1, 2)),
            derivatives({(0, 0, 1): 1}, 2),
            ("derivative along x with trilinear elements", _STRANG),
            symmetry="odd",
        ),
    )


def stiffness(ndim: int, degree: int) -> Weights:
    """Return the stiffness matrix of tensor-product splines.

    A sum over the axes of the stiffness along one times the masses along the others. On one axis
    the mass of splines of degree p is the spline of degree 2 p + 1 at the integers, and the
    stiffness is minus the second difference of the spline of degree 2 p - 1.
    """
    mass = b_spline(2 * degree + 1)
    bending = scaled(-1, compose(central(2, 2), b_spline(2 * degree - 1)))
    return add(
        *(outer(*(bending if k == axis else mass for k in range(ndim))) for axis in range(ndim))
    )


def _stiffness() -> tuple[NamedStencil, ...]:
    listed = (
        ("bilinear-stiffness-2d9p", 2, 1, "bilinear elements"),
        ("trilinear-stiffness-3d21p", 3, 1, "trilinear elements"),
        ("quadratic-spline-stiffness-1d5p", 1, 2, "quadratic splines"),
        ("quadratic-spline-stiffness-2d25p", 2, 2, "quadratic splines"),
        ("cubic-spline-stiffness-1d7p", 1, 3, "cubic splines"),
    )

    stencils = []
    for name, ndim, degree, what in listed:
        texts = (f"stiffness matrix of {what}", _STRANG if degree == 1 else _HUGHES)
        stencils.append(
            named(name, stiffness(ndim, degree), laplacian(ndim, 3, factor=-1), texts, factor=None)
        )

    # One Jacobi sweep, 1 - A / diagonal.
    for ndim in (2, 3):
        matrix = stiffness(ndim, 1)
        factor = 1 / matrix[(0,) * ndim]
        weights = add(identity(ndim), scaled(-factor, matrix))
        texts = (f"Jacobi for {'bi' if ndim == 2 else 'tri'}linear elements", _STRANG)
        name = f"element-jacobi-{ndim}d{len(weights)}p"
        stencils.append(named(name, weights, laplacian(ndim, 3, factor=factor, value=1), texts))

    return tuple(stencils)


# A B-spline of degree n has the variance (n + 1)/12; the Laplacian enters with half of it.
def _splines() -> tuple[NamedStencil, ...]:
    quintic, septic = b_spline(5), b_spline(7)

    stencils = []
    for name, weights, ndim, variance, what in (
        ("quadratic-spline-mass-1d5p", quintic, 1, Fraction(1, 2), "quadratic"),
        ("cubic-spline-mass-1d7p", septic, 1, Fraction(2, 3), "cubic"),
        ("quadratic-spline-mass-2d25p", outer(quintic, quintic), 2, Fraction(1, 2), "quadratic"),
        ("cubic-spline-mass-2d49p", outer(septic, septic), 2, Fraction(2, 3), "cubic"),
        (
            "quadratic-spline-mass-3d125p",
            outer(quintic, quintic, quintic),
            3,
            Fraction(1, 2),
            "quadratic",
        ),
    ):
        expansion = laplacian(ndim, 3, factor=variance / 2, value=1)
        stencils.append(
            named(name, weights, expansion, (f"mass matrix of {what} splines", _SCHOENBERG))
        )

    return tuple(stencils)


def _compact() -> tuple[NamedStencil, ...]:
    """Explicit sides B of compact schemes A f' = B f, with the expansion of A applied to the
    derivative.
    """
    twelfth = Fraction(1, 12)
    first = row(Fraction(-1, 36), Fraction(-7, 9), 0, Fraction(7, 9), Fraction(1, 36))

    # Weights of the second derivative of order 6 with alpha = 2/11 on the implicit side.
    near, far = Fraction(12, 11), Fraction(3, 44)
    second = row(far, near, -2 * (near + far), near, far)

    return (
        named(
            "numerov-1d",
            add(identity(1), scaled(twelfth, star(1))),
            laplacian(1, 3, factor=twelfth, value=1),
            (
                "right-hand side of Numerov's scheme, (1, 10, 1)/12",
                "B. V. Noumerov, Mon. Not. R. Astron. Soc. 84 (1924) 592",
            ),
        ),
        named(
            "mehrstellen-right-2d",
            add(identity(2), scaled(twelfth, star(2))),
            laplacian(2, 3, factor=twelfth, value=1),
            ("right-hand side of the fourth-order Mehrstellen scheme, 8 and 1 over 12", _COLLATZ),
        ),
        named(
            "compact-gradient-1d",
            first,
            # f' + (f'(+1) + f'(-1))/3, expanded
            derivatives({(1,): Fraction(5, 3), (3,): Fraction(1, 3), (5,): Fraction(1, 36)}, 6),
            (
                "explicit side of the tridiagonal first derivative of order 6",
                f"{_LELE}, equation 2.1.7",
            ),
            symmetry="odd",
            factor=None,
        ),
        named(
            "compact-second-1d",
            second,
            # f'' + 2/11 (f''(+1) + f''(-1)), expanded
            derivatives({(2,): Fraction(15, 11), (4,): Fraction(2, 11), (6,): Fraction(1, 66)}, 7),
            (
                "explicit side of the tridiagonal second derivative of order 6",
                f"{_LELE}, equation 2.2.7",
            ),
            factor=None,
        ),
    )


# Smoothers for Poisson's equation: the effect of one sweep on the error.
SMOOTHERS = "Poisson smoothers"

_TROTTENBERG = "U. Trottenberg, C. Oosterlee, A. Schüller, Multigrid (2001)"
_ADAMS = "M. Adams, M. Brezina, J. Hu, R. Tuminaro, J. Comput. Phys. 188 (2003) 593"


def smoothers() -> tuple[NamedStencil, ...]:
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
