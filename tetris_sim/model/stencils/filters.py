"""Image filters: smoothing, sharpening, edge detection; and operators: Laplacians, derivatives.

Rows of a mask run along y and columns along x, as in an image array.
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
    add,
    biharmonic,
    binomial,
    central,
    compact,
    compact_27,
    compose,
    derivatives,
    diagonal,
    fornberg,
    identity,
    laplacian,
    mask,
    named,
    outer,
    row,
    scaled,
    star,
)

DOMAIN = "image filters"

_GONZALEZ = "R. C. Gonzalez, R. E. Woods, Digital Image Processing (4th ed., 2018)"
_JAEHNE = "B. Jähne, Digital Image Processing (6th ed., 2005), chapter 11"
_SAVITZKY = "A. Savitzky, M. J. E. Golay, Anal. Chem. 36 (1964) 1627"
_BINOMIAL = "binomial smoothing, row {} of Pascal's triangle along each axis"


def entries() -> tuple[NamedStencil, ...]:
    """Return the stencils of this domain."""
    return (
        *_gaussians(),
        *_means(),
        *_lines(),
        *_edges(),
        *_compass(),
        *_second_derivatives(),
        *_sharpening(),
    )


def _gaussians() -> tuple[NamedStencil, ...]:
    listed = (
        ("binomial-1d5p", 1, 4),
        ("box-2d9p", 2, 2),
        ("box-2d25p", 2, 4),
        ("box-2d49p", 2, 6),
        ("box-3d27p", 3, 2),
        ("box-3d125p", 3, 4),
    )

    stencils = []
    for name, ndim, n in listed:
        # Tensor products of binomials: variance n / 4 per axis, so the Laplacian enters with n / 8.
        weights = outer(*[binomial(n)] * ndim)
        expansion = laplacian(ndim, 3, factor=Fraction(n, 8), value=1)
        stencils.append(named(name, weights, expansion, (_BINOMIAL.format(n), _JAEHNE)))

    # The usual integer mask of a sampled Gaussian; its variance is 268/273 per axis.
    rounded = mask(
        [
            [1, 4, 7, 4, 1],
            [4, 16, 26, 16, 4],
            [7, 26, 41, 26, 7],
            [4, 16, 26, 16, 4],
            [1, 4, 7, 4, 1],
        ],
        273,
    )
    expansion = laplacian(2, 3, factor=Fraction(134, 273), value=1)

    source = (
        "R. Fisher, S. Perkins, A. Walker, E. Wolfart, Hypermedia Image Processing Reference "
        "(2003), Gaussian"
    )
    return (
        *stencils,
        named(
            "gaussian-2d25p",
            rounded,
            expansion,
            ("Gaussian of sigma 1 in whole numbers over 273", source),
        ),
    )


def _means() -> tuple[NamedStencil, ...]:
    stencils = []
    for ndim, radius in ((2, 1), (2, 2), (2, 3), (3, 1)):
        # The mean over 2 r + 1 points has the variance r (r + 1) / 3 per axis.
        points = 2 * radius + 1
        weights = outer(*[row(*[Fraction(1, points)] * points)] * ndim)
        expansion = laplacian(ndim, 3, factor=Fraction(radius * (radius + 1), 6), value=1)
        texts = (f"mean of {points**ndim} points", f"{_GONZALEZ}, section 3.5")
        stencils.append(named(f"mean-{ndim}d{points**ndim}p", weights, expansion, texts))

    # Points within a distance of 3; blurring by motion averages along the diagonal of 5 x 5.
    inside = [[int(x * x + y * y <= 9) for x in range(-3, 4)] for y in range(-3, 4)]
    disk = laplacian(2, 3, factor=Fraction(34, 29), value=1)
    blur = [[int(x == y) for x in range(5)] for y in range(5)]
    motion = derivatives({(0, 0): 1, (0, 2): 1, (2, 0): 1, (1, 1): 2}, 3)

    return (
        *stencils,
        named(
            "disk-2d29p",
            mask(inside, 29),
            disk,
            ("mean of a disk of radius 3: lens blur", _GONZALEZ),
        ),
        named(
            "motion-blur-2d5p",
            mask(blur, 5),
            motion,
            ("mean along the diagonal", _GONZALEZ),
            symmetry="even",
        ),
    )


def _lines() -> tuple[NamedStencil, ...]:
    """Least-squares fits and interpolation on one axis."""
    half = Fraction(1, 2)
    keys = "R. G. Keys, IEEE Trans. Acoust. Speech Signal Process. 29 (1981) 1153"
    fit5, fit7 = row(*(Fraction(w, 35) for w in (-3, 12, 17, 12, -3))), (-2, 3, 6, 7, 6, 3, -2)
    slope = row(*(Fraction(w, 10) for w in (-2, -1, 0, 1, 2)))
    value = derivatives({(0,): 1}, 3)

    return (
        named(
            "savitzky-golay-1d5p",
            fit5,
            value,
            ("quadratic through 5 points by least squares", _SAVITZKY),
        ),
        named(
            "savitzky-golay-1d7p",
            row(*(Fraction(w, 21) for w in fit7)),
            value,
            ("quadratic through 7 points by least squares", _SAVITZKY),
        ),
        named(
            "savitzky-golay-gradient-1d",
            slope,
            derivatives({(1,): 1}, 2),
            ("slope of the quadratic through 5 points by least squares", _SAVITZKY),
            symmetry="odd",
        ),
        named(
            "midpoint-1d4p",
            fornberg(0, (-1, 0, 1, 2), at=half),
            derivatives({(0,): 1}, 3, (half,)),
            ("cubic interpolation half a point to the right", keys),
            symmetry="none",
        ),
    )


def _edges() -> tuple[NamedStencil, ...]:
    """Edge detectors: first derivatives along x, smoothed along the other axes."""
    slope = derivatives({(0, 1): 1}, 2)
    # A smoothed central difference over 5 points: (u_2 - u_-2 + 2 (u_1 - u_-1)) / 8.
    wide = row(*(Fraction(w, 8) for w in (-1, -2, 0, 2, 1)))
    smoothing = {
        "sobel-2d": (
            binomial(2),
            "Sobel",
            "I. Sobel, G. Feldman (1968); R. O. Duda, P. E. Hart (1973), p. 271",
        ),
        "prewitt-2d": (
            row(*[Fraction(1, 3)] * 3),
            "Prewitt",
            "J. M. S. Prewitt, Object Enhancement (1970)",
        ),
        "scharr-2d": (
            row(Fraction(3, 16), Fraction(10, 16), Fraction(3, 16)),
            "Scharr",
            "H. Scharr, dissertation, Heidelberg (2000)",
        ),
    }

    # Separable: smoothing across times a central difference along x.
    stencils = [
        named(
            name,
            outer(across, central(1, 2)),
            slope,
            (f"{who}: derivative along x", source),
            symmetry="odd",
        )
        for name, (across, who, source) in smoothing.items()
    ]

    return (
        *stencils,
        named(
            "sobel-2d20p",
            outer(binomial(4), wide),
            slope,
            (
                "Sobel of 5 x 5 points: derivative along x",
                "binomials and a smoothed difference, the Sobel of 5 points of OpenCV",
            ),
            symmetry="odd",
        ),
        named(
            "sobel-3d",
            outer(binomial(2), binomial(2), central(1, 2)),
            derivatives({(0, 0, 1): 1}, 2),
            (
                "Sobel in three dimensions: derivative along x",
                "product of binomials and a central difference, as the two-dimensional one",
            ),
            symmetry="odd",
        ),
    )


def _compass() -> tuple[NamedStencil, ...]:
    # The Roberts cross measures at the centre of four pixels, half a point from the origin.
    half = (Fraction(1, 2), Fraction(1, 2))
    fifteen = Fraction(1, 15)

    return (
        named(
            "roberts-2d",
            {(0, 0): Fraction(1), (1, 1): Fraction(-1)},
            derivatives({(1, 0): -1, (0, 1): -1}, 2, half),
            (
                "Roberts cross: difference along a diagonal",
                "L. G. Roberts, Machine Perception of Three-Dimensional Solids (1963)",
            ),
            symmetry="none",
            factor=None,
        ),
        named(
            "kirsch-2d",
            scaled(fifteen, mask([[5, 5, 5], [-3, 0, -3], [-3, -3, -3]])),
            derivatives({(1, 0): Fraction(-8, 5)}, 1),
            ("Kirsch compass mask, north", "R. A. Kirsch, Comput. Biomed. Res. 4 (1971) 315"),
            symmetry="none",
            factor=None,
        ),
        named(
            "emboss-2d",
            mask([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]),
            derivatives({(0, 0): 1, (1, 0): 6, (0, 1): 6}, 2),
            (
                "emboss: the image lit from one corner",
                "a mask of image editors; no author is known",
            ),
            symmetry="none",
            factor=None,
        ),
    )


def _second_derivatives() -> tuple[NamedStencil, ...]:
    marr = "D. Marr, E. Hildreth, Proc. R. Soc. Lond. B 207 (1980) 187"

    # Integer approximation of the (negative) Laplacian of a Gaussian; its weights sum to zero.
    diamond = [
        [0, 0, -1, 0, 0],
        [0, -1, -2, -1, 0],
        [-1, -2, 16, -2, -1],
        [0, -1, -2, -1, 0],
        [0, 0, -1, 0, 0],
    ]
    # Both Gaussians conserve the mean, so their difference is a band-pass filter.
    dog = add(outer(binomial(2), binomial(2)), scaled(-1, outer(binomial(4), binomial(4))))

    return (
        named(
            "laplacian-of-gaussian-2d13p",
            mask(diamond),
            laplacian(2, 3, factor=-8),
            ("Laplacian of Gaussian in whole numbers, centre 16", f"{_GONZALEZ}, section 10.2"),
            factor=None,
        ),
        named(
            "laplacian-of-gaussian-2d17p",
            compose(star(2), outer(binomial(2), binomial(2))),
            laplacian(2, 3),
            ("5-point Laplacian of the binomial smoothing of 3 x 3 points", marr),
            factor=None,
        ),
        named(
            "laplacian-of-gaussian-2d45p",
            compose(star(2), outer(binomial(4), binomial(4))),
            laplacian(2, 3),
            ("5-point Laplacian of the binomial smoothing of 5 x 5 points", marr),
        ),
        named(
            "difference-of-gaussians-2d21p",
            dog,
            laplacian(2, 3, factor=Fraction(-1, 4)),
            ("binomial smoothing of 3 x 3 less that of 5 x 5 points", marr),
        ),
        named(
            "laplacian-mask-2d9p",
            mask([[1, 1, 1], [1, -8, 1], [1, 1, 1]]),
            laplacian(2, 3, factor=3),
            ("Laplacian mask with diagonals", f"{_GONZALEZ}, section 3.6"),
            factor=None,
        ),
    )


def _sharpening() -> tuple[NamedStencil, ...]:
    # Sharpening subtracts a Laplacian, which amplifies short waves: hence `factor=None`.
    section = f"{_GONZALEZ}, section 3.6"
    nine = mask([[-1, -1, -1], [-1, 9, -1], [-1, -1, -1]])

    return (
        named(
            "sharpen-2d5p",
            add(identity(2), scaled(-1, star(2))),
            laplacian(2, 3, factor=-1, value=1),
            ("the image less its 5-point Laplacian", section),
            factor=None,
        ),
        named(
            "sharpen-2d9p",
            nine,
            laplacian(2, 3, factor=-3, value=1),
            ("the image less its 9-point Laplacian mask", section),
            factor=None,
        ),
        named(
            "unsharp-2d25p",
            add(scaled(2, identity(2)), scaled(-1, outer(binomial(4), binomial(4)))),
            laplacian(2, 3, factor=Fraction(-1, 2), value=1),
            ("unsharp masking: twice the image less its binomial smoothing", section),
            factor=None,
        ),
    )


# Laplacians of order 2 to 8, the biharmonic operator, and other derivatives.
#
# Operators are meant to be applied once: `factor=None` scales each by the sum of its magnitudes
# where it is repeated. An approximation of order p to a derivative of order m is exact to degree
# m + p - 1.

OPERATORS = "Laplacian and biharmonic operators"

# The table of `FORNBERG` ends with the fourth derivative.
_FORNBERG_ALGORITHM = "B. Fornberg, Math. Comp. 51 (1988) 699, the recursion of section 3"
_ABRAMOWITZ = "M. Abramowitz, I. A. Stegun, Handbook of Mathematical Functions (1964), 25.3"


def operators() -> tuple[NamedStencil, ...]:
    """Return the stencils of `OPERATORS`."""
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
        # In 3D the nearest neighbours along edges, or those along corners too.
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
