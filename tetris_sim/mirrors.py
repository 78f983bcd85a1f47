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

import itertools
import math

import numpy as np

from tetris_sim.alike import face_course, one_stencil
from tetris_sim.boundary import Dirichlet, Face, Fixed, Neumann, Reflection, Robin
from tetris_sim.changing import LEAST_WEIGHT
from tetris_sim.conduction import RuledFace
from tetris_sim.problem import Problem
from tetris_sim.slab import Slab

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
