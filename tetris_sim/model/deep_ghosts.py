"""Which faces a fused kernel may forget: those whose ghosts, filled once, stay right for a whole
block of steps.

Along a periodic axis they always do. A field that is even or odd about a face stays so if the
stencil does not change when it is mirrored at that face; and a value or a flux that is given there
adds a constant or a straight line, which a stencil whose weights sum to 1 leaves alone. So ghosts
as deep as a block of steps reaches need to be filled only at its beginning.

Convection and a ring held at a value mirror only nearly: u_0 = a + b u_1. But u_j - b u_(j+1) - a,
a field with one value for each pair of neighbours, is 0 at the face at every step, so it is odd
about the ghost next to the face, and that lasts too where the stencil does not change when it is
mirrored. Ghost number g = 1, 2, ... after that one then takes

    u_(-g) = b u_(1-g) - u_g + b u_(g+1) + 2 a

This needs a stencil that reads one ghost: with two, their b differ, and no such field is odd about
both. If a changes with time, as it may at faces of a body of one material, what a block of steps
needs of it is worked out before the block (`changing.py`). At the other faces (a stencil that is
not symmetric, a rule that is no such line) the ghosts of every step follow from the step before.

By equations only periodic axes last: an image would be computed with its neighbours in the
opposite order, and round otherwise.

Where two such faces meet, the points beyond the edge are images of images. They last if it does not
matter which face is first: 100 degC on one face and 0 degC on the next contradict each other there.
Then points that a block of steps reaches from both faces are computed step by step; to all others
the ghosts beyond both are too far away.
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
from tetris_sim.model.homogeneous import face_course, one_stencil
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

# Deep ghosts beyond a face whose value changes with time, as numbers that are worked out before a
# block of steps.
#
# With u_0 = a(t) + b u_1 at every step, V_j = u_j - b u_(j+1) is a(t) at the face, j = 0, all along
# it. V is advanced by the stencil as u is. If that is mirrored along the axis, reads one point on
# either side of a plane with the weights w together there, and its weights sum to 1, the even part
# S_g = (V_g + V_(-g)) / 2 is the same all along the face and, with D = E - 1 the difference from
# one step to the next,
#
#     S_0 = a,  S_1 = (1 + D/(2w)) a,  S_(g+1) = 2 (1 + D/(2w)) S_g - S_(g-1)
#
# so S_g = T_g(1 + D/(2w)) a, with T_g the polynomials of Chebyshev, whose coefficients about 1 are
# all positive. Ghost number g after the first takes u_(-g) = b u_(1-g) - u_g + b u_(g+1) + 2 S_g:
# what it gets besides mirrored points is A_g = b A_(g-1) + 2 S_g, A_0 = a.
#
# S_g holds differences of a(t) up to the g-th, divided by as many w: as numbers they are large
# where a(t) jumps, and what they round arrives inside divided by so many w again. So a(t) is
# replaced by a polynomial of few terms that is as near to it as its own rounding errors. Of the
# numbers that it leads to is known what they may add to the rounding errors of the steps
# (`BoundaryExpansion.right`); where that is too much, or no such polynomial is near, the face is
# advanced step by step.

Numbers = npt.NDArray[np.float64]

LEAST_WEIGHT = 2.0**-8  # of the next plane: its powers are what ghosts are divided by
# Of a polynomial at most: one for each step of the blocks of a plane, so that these also have what
# is only noise in a(t), as there is in a wave after many periods.
_TERMS = 16
# Units of rounding. A ghost counts with its weight, at most half, so a step differs by no more than
# half of what `reference.tolerance` allows it on a line, and less in more dimensions.
_NEAR = 16.0


@dataclass(frozen=True, eq=False)
class BoundaryExpansion:
    """What blocks of steps need to know of a face.

    Attributes:
        parts: of each term of the polynomial in what ghosts take, (ghosts, terms).
        fit: terms from the values of the steps of a block, (terms, steps).
        values: of the terms at these steps, (steps, terms).
        added: what a term of 1 can add to the values of points, in units of rounding, (terms,).
    """

    parts: Numbers
    fit: Numbers
    values: Numbers
    added: Numbers

    def terms(self, a: Numbers) -> Numbers:
        """Those of some blocks, (blocks, terms), from what a face is given at each of their steps,
        (blocks, steps).
        """
        eps, largest = np.finfo(np.float64).eps, np.abs(a).max(axis=1, keepdims=True)
        found = (a - a[:, :1]) @ self.fit.T
        found[:, 0] += a[:, 0]
        # What values that are rounded can lead to would be divided by powers of w all the same.
        found[np.abs(found) <= eps * largest * np.abs(self.fit).sum(axis=1)] = 0.0
        return np.asarray(found)

    def right(self, a: Numbers, terms: Numbers) -> npt.NDArray[np.bool_]:
        """Whether blocks with these terms are as near as others."""
        eps, largest = np.finfo(np.float64).eps, np.abs(a).max(axis=1)
        near = np.abs(terms @ self.values.T - a).max(axis=1) <= _NEAR * eps * largest
        return np.asarray(near & (np.abs(terms) @ self.added <= largest))


@functools.lru_cache(maxsize=64)
def make_course(w: float, b: float, steps: int) -> BoundaryExpansion:
    """For blocks of so many steps.

    Args:
        w: sum of the weights in the next plane, at least `LEAST_WEIGHT`.
        b: of the face.
        steps: of a block, and ghosts beyond the face.
    """
    n = min(steps, _TERMS)
    values, differences = _polynomials(steps, n)
    even = [
        [sum(c * d for c, d in zip(row, of_term, strict=False)) for of_term in differences]
        for row in (_chebyshev(g, n, Fraction(w)) for g in range(steps))
    ]
    sums = np.array([[float(it) for it in row] for row in even])
    parts = np.empty((steps, n))
    parts[0] = sums[0]
    for g in range(1, steps):
        parts[g] = b * parts[g - 1] + 2 * sums[g]

    reached = _reached(w, steps)
    # What is constant is no larger than a, and rounded as a step rounds a ghost.
    added = np.abs(parts) * np.append(0.0, np.ones(n - 1)) * reached[:, None]
    fit = values.T / (values**2).sum(axis=0)[:, None]
    return BoundaryExpansion(parts, fit, values, added.sum(axis=0))


def _polynomials(steps: int, n: int) -> tuple[Numbers, list[list[Fraction]]]:
    """Those that are orthogonal on the steps, 1 at the last one: (their values at all steps,
    (steps, n); their differences of all orders at the first step).
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
    rows = [[it / row[steps - 1] for it in row] for row in rows]
    values = np.array([[float(it) for it in row[:steps]] for row in rows]).T
    return values, [_differences(row[:n]) for row in rows]


def _differences(row: list[Fraction]) -> list[Fraction]:
    """Of a sequence: its first value, the first difference, ..."""
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
    """How much of what ghost number g holds, 0 being the one next to the face, can arrive inside
    within a block.
    """
    part = np.zeros(steps + 2)
    part[0] = 1.0
    for _ in range(steps):
        part[1:-1] = (1 - 2 * w) * part[1:-1] + w * (part[:-2] + part[2:])
    return part[1:-1]


Sides = tuple[tuple[bool, bool], ...]  # per axis of the problem: (low, high)
Where = tuple[int, int]  # axis of the problem, side


def lasting_sides(problem: Problem, slab: Slab) -> Sides:
    """The faces of a slab whose ghosts last for any number of steps; a side with a neighbour is no
    face.

    Those that contradict each other where they meet are among them: `contradictions` says which.
    """
    lasting = [
        [problem.boundary.periodic(axis) and halo == (0, 0)] * 2
        for axis, halo in enumerate(slab.halo)
    ]
    for axis, halo in enumerate(slab.halo):
        for side in (0, 1):
            lasting[axis][side] |= not halo[side] and _lasts(problem, axis, side)
    return tuple((low, high) for low, high in lasting)


def contradictions(problem: Problem, slab: Slab) -> tuple[tuple[Where, Where], ...]:
    """Pairs of faces whose ghosts last, but not what lies beyond both."""
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
    """The sides of a slab that have no neighbour."""
    return tuple((not low, not high) for low, high in slab.halo)


def _commute(one: Face, other: Face) -> bool:
    """Whether images of images are the same in either order: a1 + b1 (a2 + b2 u) = a2 + b2 (a1 + b1
    u).
    """
    first, second = _image(one), _image(other)
    if first is None or second is None:
        # With those of an insulated face they are, whatever the other one takes.
        return (0.0, 1.0) in (first, second)
    (a1, b1), (a2, b2) = first, second
    return a1 * (1 - b2) == a2 * (1 - b1)


def _image(face: Face) -> Reflection | None:
    """What it is, or tends to; None for one that has a course, which may change."""
    if isinstance(face, RuledFace):
        return face.lasting
    # What a field tends to that such a face alone would change is, as a number, more exact than its
    # a and b.
    if isinstance(face, Robin):
        face = Dirichlet(face.ambient) if face.h > 0 else Neumann()
    elif isinstance(face, Fixed):
        face = Dirichlet(face.value)
    assert isinstance(face, Dirichlet | Neumann)
    return face.reflection(1.0)


def nearly_mirrors(problem: Problem, axis: int, side: int) -> bool:
    """Whether ghosts beyond a face, side 0 or 1 of an axis, last although they are no images.

    In float16 they are left to the frame: a sum of rounded points is no image, of which the bound
    in half_precision.py is made.
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
    """Whether ghosts beyond a face last that are told anew for each block of steps.

    Not on a line: its frame is two tiles beside thousands, and needs no polynomial.
    """
    face = problem.boundary.faces[axis][side]
    if problem.grid.ndim == 1 or not isinstance(face, RuledFace) or face.lasting is not None:
        return False
    if face_course(face) is None:
        return False
    return one_stencil(problem) is not None and next_weight(problem, axis) >= LEAST_WEIGHT


def is_image(problem: Problem, axis: int, side: int) -> bool:
    """Whether ghosts beyond a face are what they mirror, upright or upside down, and a number."""
    face = problem.boundary.faces[axis][side]
    if not isinstance(face, RuledFace):
        return isinstance(face, Dirichlet | Neumann)
    course = face_course(face)
    return face.lasting is not None or (course is not None and abs(course.b) == 1)


def next_weight(problem: Problem, axis: int) -> float:
    """Of the step of a body of one material the weight of the next point along an axis."""
    stencil = one_stencil(problem)
    assert stencil is not None
    return stencil.terms[tuple(int(k == axis) for k in range(stencil.ndim))]


def _lasts(problem: Problem, axis: int, side: int) -> bool:
    face = problem.boundary.faces[axis][side]
    if problem.equations is not None:
        return False
    if isinstance(face, RuledFace):
        # What heats a point heats its image as much, and an image upside down would cool; a ghost
        # that is a potential has no heat content.
        it = problem.conduction
        upright = it is not None and (it.source is not None or it.enthalpy is not None)
        if face.lasting is None:
            return has_course(problem, axis, side)
        return not (upright and face.lasting != (0.0, 1.0))

    if not problem.stencil.is_mirrored(axis):
        return False
    if not isinstance(face, Dirichlet | Neumann) and not nearly_mirrors(problem, axis, side):
        return False
    assert isinstance(face, Dirichlet | Neumann | Robin | Fixed)
    return face.reflection(1.0)[0] == 0 or _keeps_constants(problem)


def _keeps_constants(problem: Problem) -> bool:
    """Whether the weights sum to 1, as far as numbers of this precision can."""
    weights = problem.stencil.weights
    return abs(math.fsum(weights) - 1) <= len(weights) * float(np.finfo(np.float64).eps)
