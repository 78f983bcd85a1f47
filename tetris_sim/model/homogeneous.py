"""Bodies that are alike at every point: their step is one stencil, and a face may be one course of
numbers.

A body of one material that nothing heats makes the step of a stencil; only what holds at its faces
needs rules. Kernels that know one stencil and no faces take it, the frame along the faces follows
the rules (`gpu_kernels/boundary/frame.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tetris_sim.model.boundary import Boundary, Face
from tetris_sim.model.conduction import Parameter, RuledFace, star_mean
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencil import Stencil


def one_stencil(problem: Problem) -> Stencil | None:
    """What the step of every point is, faces aside; None if points differ.

    In float16 none that is kept as a body: its rounding errors are bounded by the chain of
    conduction (half_precision.py).
    """
    if problem.equations is not None:
        return None
    it = problem.conduction
    if it is None:
        return problem.stencil
    if it.source is not None or it.coefficients is not None or it.enthalpy is not None:
        return None
    medium = it.medium
    if medium.n_ids > 1 or not np.isfinite(medium.capacity).all() or problem.dtype == np.float16:
        return None

    offsets = star_mean(problem.grid.ndim).offsets
    beside = [float(rate) for rate in it.rates(problem.dt)[0] * medium.conductance[:, 0, 0]]
    along = {offset: beside[k] for offset in offsets for k, step in enumerate(offset) if step}
    centre = 1 - 2 * sum(beside)
    return Stencil(offsets, tuple(along.get(offset, centre) for offset in offsets))


@dataclass(frozen=True, eq=False)
class FaceTimeFunction:
    """A face whose ghosts are a + b * mirror, with one a for all of it at a time.

    Attributes:
        a: a number, or numbers by time.
        b: from -1 to 1.
    """

    a: Parameter
    b: float


def face_course(face: Face) -> FaceTimeFunction | None:
    """The course of a rule of a body of one material; None if there is none."""
    if not isinstance(face, RuledFace) or face.stepwise or face.patches is not None:
        return None
    if not face.is_affine:
        return None
    given = {parameter.name: parameter for parameter in face.rule.parameters}
    a, b = given["a"], given["b"]
    if callable(b.values) or b.values.size != 1 or not abs(float(b.values[0])) <= 1:
        return None
    return FaceTimeFunction(a, float(b.values[0]))


def stepwise(problem: Problem) -> Problem:
    """The same with faces whose ghosts follow from the step before at every step, but for those
    that last without a course.
    """

    def marked(face: Face) -> Face:
        if isinstance(face, RuledFace) and face_course(face) is not None:
            return replace(face, stepwise=True)
        return face

    faces = problem.boundary.faces
    return replace(problem, boundary=Boundary(tuple((marked(a), marked(b)) for a, b in faces)))
