"""Deep ghosts for temporal blocking: which faces a fused kernel may ignore, because their ghosts,
filled once, stay right for a whole block of steps.

Ghosts along a periodic axis always do. A field that is even or odd about a face stays so if the
stencil is unchanged when mirrored at that face; a prescribed value or flux adds a constant or a
straight line, which a stencil whose weights sum to 1 leaves alone. So ghosts as deep as a block of
steps reaches need to be filled only at its beginning.

Convection and a ring held at a value mirror only nearly: u_0 = a + b u_1. But u_j - b u_(j+1) - a,
a field with one value for each pair of neighbours, is 0 at the face at every step, so it is odd
about the ghost next to the face, and that lasts too where the stencil is unchanged when mirrored
(docs/decisions/0046). Ghost number g = 1, 2, ... after that one then takes

    u_(-g) = b u_(1-g) - u_g + b u_(g+1) + 2 a

This needs a stencil that reads one ghost: with two, their b differ, and no such field is odd about
both. If a changes with time, as it may at faces of a body of one material, the boundary expansion
of a block is computed before the block (`BoundaryExpansion`, docs/decisions/0053). At all other
faces (an asymmetric stencil, a rule that is not affine) the ghosts of every step follow from the
step before.

With equations only periodic axes last: an image would be computed with its neighbours in the
opposite order, and round differently.

Where two such faces meet, the points beyond the edge are images of images. They last if the order
of the faces does not matter: 100 degC on one face and 0 degC on the next contradict each other
there. Points that a block of steps reaches from both faces are then computed step by step; for all
others, the ghosts beyond both are too far away.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import Dirichlet, Face, Fixed, Neumann, Reflection, Robin
from tetris_sim.model.conduction import RuledFace
from tetris_sim.model.lowering import face_course, one_stencil, sourceless
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

# Boundary expansions: deep ghosts beyond a face whose value changes with time, as numbers that are
# computed before a block of steps.
#
# With u_0 = a(t) + b u_1 at every step, V_j = u_j - b u_(j+1) is a(t) at the face, j = 0, all along
# it. V is advanced by the stencil as u is. If the stencil is mirrored along the axis, reads one
# point on either side of a plane with weights that add up to w there, and its weights sum to 1, the
# even part S_g = (V_g + V_(-g)) / 2 is the same all along the face and, with D = E - 1 the
# difference from one step to the next,
#
#     S_0 = a,  S_1 = (1 + D/(2w)) a,  S_(g+1) = 2 (1 + D/(2w)) S_g - S_(g-1)
#
# so S_g = T_g(1 + D/(2w)) a, with T_g the Chebyshev polynomials, whose coefficients about 1 are all
# positive. Ghost number g after the first takes u_(-g) = b u_(1-g) - u_g + b u_(g+1) + 2 S_g: what
# it gets besides mirrored points is A_g = b A_(g-1) + 2 S_g, A_0 = a.
#
# S_g holds differences of a(t) up to the g-th, divided by as many w: they are large where a(t) is
# discontinuous, and their rounding errors arrive inside divided by as many w again. So a(t) is
# replaced by a polynomial of few terms that approximates it to within its own rounding errors.
# `BoundaryExpansion.right` bounds what the resulting numbers add to the rounding errors of the
# steps; where that is too much, or no such polynomial is near, the face is advanced step by step.

Numbers = npt.NDArray[np.float64]

# The powers of w are the divisors of deep ghosts: 2^-8 bounds how far they magnify rounding.
LEAST_WEIGHT = 2.0**-8  # of the next plane: its powers are what ghosts are divided by
# Most terms of a polynomial: one for each step of the blocks of a plane, so that even noise in
# a(t), as in a wave after many periods, is reproduced.
_TERMS = 16
# Units of rounding. A ghost enters with its weight, at most half, so a step differs by no more than
# half of what `reference.tolerance` allows on a line, and less in more dimensions.
_NEAR = 16.0


@dataclass(frozen=True, eq=False)
class BoundaryExpansion:
    """The expansion of a face's boundary values that blocks of steps need for deep ghosts.

    Attributes:
        parts: contribution of each polynomial term to each ghost, (ghosts, terms).
        fit: from values at the steps of a block to terms, (terms, steps).
        values: of the terms at these steps, (steps, terms).
        added: bound on what a term of 1 adds to the values of points, in units of rounding,
            (terms,).
    """

    parts: Numbers
    fit: Numbers
    values: Numbers
    added: Numbers

    def terms(self, a: Numbers) -> Numbers:
        """Fit the terms of some blocks, (blocks, terms), to the boundary values at each of their
        steps, (blocks, steps).
        """
        eps, largest = np.finfo(np.float64).eps, np.abs(a).max(axis=1, keepdims=True)

        # The first value is subtracted before the fit and added back after it, so that a constant
        # is reproduced without rounding.
        found = (a - a[:, :1]) @ self.fit.T
        found[:, 0] += a[:, 0]
        # Coefficients within rounding error of zero would still be magnified by powers of 1/w in
        # deep ghosts, so they are set to zero.
        found[np.abs(found) <= eps * largest * np.abs(self.fit).sum(axis=1)] = 0.0
        return np.asarray(found)

    def right(self, a: Numbers, terms: Numbers) -> npt.NDArray[np.bool_]:
        """Decide per block whether the expansion may be used: it must reproduce the boundary values
        to `_NEAR` units of rounding, and add no more than that to the points.
        """
        eps, largest = np.finfo(np.float64).eps, np.abs(a).max(axis=1)
        near = np.abs(terms @ self.values.T - a).max(axis=1) <= _NEAR * eps * largest
        return np.asarray(near & (np.abs(terms) @ self.added <= largest))


@functools.lru_cache(maxsize=64)
def make_course(w: float, b: float, steps: int) -> BoundaryExpansion:
    """Return the expansion for blocks of so many steps.

    Args:
        w: sum of the weights in the next plane, at least `LEAST_WEIGHT`.
        b: of the face.
        steps: of a block, and ghosts beyond the face.
    """
    # S_g of every term, in exact fractions: floats would cancel in the differences.
    n = min(steps, _TERMS)
    values, differences = _polynomials(steps, n)
    even = [
        [sum(c * d for c, d in zip(row, of_term, strict=False)) for of_term in differences]
        for row in (_chebyshev(g, n, Fraction(w)) for g in range(steps))
    ]
    sums = np.array([[float(it) for it in row] for row in even])
    # A_g = b A_(g-1) + 2 S_g with A_0 = a.
    parts = np.empty((steps, n))
    parts[0] = sums[0]
    for g in range(1, steps):
        parts[g] = b * parts[g - 1] + 2 * sums[g]

    reached = _reached(w, steps)
    # The constant term is no larger than a, and rounded as a step rounds a ghost; it adds nothing.
    added = np.abs(parts) * np.append(0.0, np.ones(n - 1)) * reached[:, None]

    # The terms are orthogonal on the steps, so the least-squares fit is a scaled transpose.
    fit = values.T / (values**2).sum(axis=0)[:, None]
    return BoundaryExpansion(parts, fit, values, added.sum(axis=0))


def _polynomials(steps: int, n: int) -> tuple[Numbers, list[list[Fraction]]]:
    """Tabulate the polynomials that are orthogonal on the steps of a block and 1 at its last step:
    (values at all steps, (steps, n); differences of all orders at the first step).
    """
    at = [Fraction(2 * k + 1 - steps) for k in range(max(steps, n))]
    rows = [[Fraction(1)] * len(at)]
    for k in range(1, n):  # discrete Chebyshev polynomials by their recurrence
        before = rows[k - 2] if k > 1 else [Fraction(0)] * len(at)
        rows.append(
            [
                ((2 * k - 1) * x * now - (k - 1) * (steps**2 - (k - 1) ** 2) * last) / k
                for x, now, last in zip(at, rows[k - 1], before, strict=True)
            ]
        )

    # Normalized at the last step of the block.
    rows = [[it / row[steps - 1] for it in row] for row in rows]
    values = np.array([[float(it) for it in row[:steps]] for row in rows]).T
    return values, [_differences(row[:n]) for row in rows]


def _differences(row: list[Fraction]) -> list[Fraction]:
    """Return the forward differences of a sequence at its first element, by ascending order from
    0.
    """
    found = []
    while row:
        found.append(row[0])
        row = [b - a for a, b in itertools.pairwise(row)]
    return found


def _chebyshev(g: int, n: int, w: Fraction) -> list[Fraction]:
    """The first n coefficients of T_g(1 + D/(2w)) by powers of D.

    >>> [str(it) for it in _chebyshev(2, 4, Fraction(1, 2))]
    ['1', '4', '2', '0']
    """
    if g == 0:
        return [Fraction(k == 0) for k in range(n)]
    return [Fraction(g * math.comb(g + k, 2 * k), g + k) / w**k for k in range(n)]


def _reached(w: float, steps: int) -> Numbers:
    """Bound the share of ghost number g, 0 being next to the face, that can arrive inside within a
    block.
    """
    # The ghosts' values are spread by the stencil itself, w from each side, one step at a time.
    part = np.zeros(steps + 2)
    part[0] = 1.0
    for _ in range(steps):
        part[1:-1] = (1 - 2 * w) * part[1:-1] + w * (part[:-2] + part[2:])
    return part[1:-1]


Sides = tuple[tuple[bool, bool], ...]  # per axis of the problem: (low, high)
Where = tuple[int, int]  # axis of the problem, side


def lasting_sides(problem: Problem, slab: Slab) -> Sides:
    """Find the faces of a slab whose ghosts last for any number of steps; a side with a neighbour
    is no face.

    Faces that contradict each other where they meet are included; see `contradictions`.
    """
    # A periodic axis lasts only if it is not cut: otherwise its ghosts are a halo.
    lasting = [
        [problem.boundary.periodic(axis) and halo == (0, 0)] * 2
        for axis, halo in enumerate(slab.halo)
    ]
    for axis, halo in enumerate(slab.halo):
        for side in (0, 1):
            lasting[axis][side] |= not halo[side] and _lasts(problem, axis, side)
    return tuple((low, high) for low, high in lasting)


def contradictions(problem: Problem, slab: Slab) -> tuple[tuple[Where, Where], ...]:
    """Pairs of faces that each last, while the points beyond their common edge do not."""
    mirrors = [
        (axis, side)
        for axis, both in enumerate(lasting_sides(problem, slab))
        for side, lasts in enumerate(both)
        if lasts and not problem.boundary.periodic(axis)
    ]
    faces = problem.boundary.faces
    return tuple(
        (one, other)
        for one, other in itertools.combinations(mirrors, 2)
        if one[0] != other[0] and not _commute(faces[one[0]][one[1]], faces[other[0]][other[1]])
    )


def free_sides(slab: Slab) -> Sides:
    """Tell which sides of a slab have no neighbour."""
    return tuple((not low, not high) for low, high in slab.halo)


def _commute(one: Face, other: Face) -> bool:
    """Whether images of images are the same in either order: a1 + b1 (a2 + b2 u) = a2 + b2 (a1 + b1
    u).
    """
    first, second = _image(one), _image(other)
    if first is None or second is None:
        # Reflections at an insulated face, a = 0 and b = 1, commute with any other.
        return (0.0, 1.0) in (first, second)
    (a1, b1), (a2, b2) = first, second
    return a1 * (1 - b2) == a2 * (1 - b1)


def _image(face: Face) -> Reflection | None:
    """Return the reflection (a, b) of a face, or the one it tends to; None for a face with a time
    function.
    """
    if isinstance(face, RuledFace):
        return face.lasting
    # A body with only such a face tends to the ambient value, which as a number is more exact than
    # the fixed point a / (1 - b).
    if isinstance(face, Robin):
        face = Dirichlet(face.ambient) if face.h > 0 else Neumann()
    elif isinstance(face, Fixed):
        face = Dirichlet(face.value)
    assert isinstance(face, Dirichlet | Neumann)
    return face.reflection(1.0)


def nearly_mirrors(problem: Problem, axis: int, side: int) -> bool:
    """Whether the ghosts beyond a face, side 0 or 1 of an axis, last although they are no images.

    In float16 they are left to the boundary strip: a sum of rounded points is no image, on which
    the error bound of float16 relies.
    """
    if has_course(problem, axis, side):
        return True
    return (
        isinstance(problem.boundary.faces[axis][side], Robin | Fixed)
        and problem.equations is None
        and problem.stencil.radii[axis] == 1
        and problem.dtype != np.float16
    )


def has_course(problem: Problem, axis: int, side: int) -> bool:
    """Whether ghosts beyond a face last with a boundary expansion that is computed for each block.

    Never on a line (1D): its boundary strip is two tiles among thousands, and needs no polynomial.
    """
    face = problem.boundary.faces[axis][side]
    if problem.grid.ndim == 1 or not isinstance(face, RuledFace) or face.lasting is not None:
        return False
    if face_course(face) is None:
        return False

    # A weak coupling would magnify rounding in the deep ghosts; see `LEAST_WEIGHT`.
    alike = one_stencil(sourceless(problem)) is not None
    return alike and next_weight(problem, axis) >= LEAST_WEIGHT


def is_image(problem: Problem, axis: int, side: int) -> bool:
    """Whether ghosts beyond a face are their mirror points up to sign, plus a number."""
    face = problem.boundary.faces[axis][side]
    if not isinstance(face, RuledFace):
        return isinstance(face, Dirichlet | Neumann)
    course = face_course(face)
    return face.lasting is not None or (course is not None and abs(course.b) == 1)


def next_weight(problem: Problem, axis: int) -> float:
    """Weight of the next point along an axis in the one-stencil step of a homogeneous body, sources
    aside.
    """
    stencil = one_stencil(sourceless(problem))
    assert stencil is not None
    return stencil.terms[tuple(int(k == axis) for k in range(stencil.ndim))]


def _lasts(problem: Problem, axis: int, side: int) -> bool:
    face = problem.boundary.faces[axis][side]
    if problem.equations is not None:
        return False
    if isinstance(face, RuledFace):
        # A source that heats a point heats its even image equally, but an odd image would have to
        # cool, unless the source is added as a sum; and a ghost that is a potential has no enthalpy
        # to advance.
        it = sourceless(problem).conduction
        upright = it is not None and (it.source is not None or it.enthalpy is not None)
        if face.lasting is None:
            return has_course(problem, axis, side)
        return not (upright and face.lasting != (0.0, 1.0))

    if not problem.stencil.is_mirrored(axis):
        return False
    if not isinstance(face, Dirichlet | Neumann) and not nearly_mirrors(problem, axis, side):
        return False
    assert isinstance(face, Dirichlet | Neumann | Robin | Fixed)

    # A constant or linear offset survives only a stencil whose weights sum to 1.
    return face.reflection(1.0)[0] == 0 or _keeps_constants(problem)


def _keeps_constants(problem: Problem) -> bool:
    """Whether the weights sum to 1 to within rounding, so that a constant field stays constant."""
    weights = problem.stencil.weights
    return abs(math.fsum(weights) - 1) <= len(weights) * float(np.finfo(np.float64).eps)
