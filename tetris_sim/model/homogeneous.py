"""Homogeneous bodies: their step is a single stencil, and a face may have one time function.

A body of one material without sources makes the step of a stencil; only its boundary conditions
need rules. Kernels for one stencil without faces advance its interior, and the boundary strip along
the faces follows the rules (`gpu_kernels/boundary/frame.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tetris_sim.model.boundary import Boundary, Face
from tetris_sim.model.conduction import Parameter, RuledFace, star_mean
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencil import Stencil


def one_stencil(problem: Problem) -> Stencil | None:
    """Return the single stencil that advances every point, faces aside; None if points differ.

    None in float16 for any problem with conduction: its rounding errors are bounded by the chain of
    operations of conduction.
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

    # Collect the chain of conduction into weights: dt K / (rho c) per neighbour, and the rest at
    # the centre, so that the weights sum to 1.
    offsets = star_mean(problem.grid.ndim).offsets
    beside = [float(rate) for rate in it.rates(problem.dt)[0] * medium.conductance[:, 0, 0]]
    along = {offset: beside[k] for offset in offsets for k, step in enumerate(offset) if step}
    centre = 1 - 2 * sum(beside)
    return Stencil(offsets, tuple(along.get(offset, centre) for offset in offsets))


@dataclass(frozen=True, eq=False)
class FaceTimeFunction:
    """An affine face, ghost = a + b * mirror, with one time function a for the whole face.

    Attributes:
        a: a number, or numbers by time.
        b: from -1 to 1.
    """

    a: Parameter
    b: float


def face_course(face: Face) -> FaceTimeFunction | None:
    """Extract the time function of a ruled face of a homogeneous body; None if it has none."""
    if not isinstance(face, RuledFace) or face.stepwise or face.patches is not None:
        return None
    if not face.is_affine:
        return None
    given = {parameter.name: parameter for parameter in face.rule.parameters}

    # `AFFINE` names its inputs a and b. |b| <= 1 keeps the recurrence of deep ghosts from growing.
    a, b = given["a"], given["b"]
    if callable(b.values) or b.values.size != 1 or not abs(float(b.values[0])) <= 1:
        return None
    return FaceTimeFunction(a, float(b.values[0]))


def stepwise(problem: Problem) -> Problem:
    """Mark all faces with a time function as `stepwise`: their ghosts follow from the step before
    at every step. Faces that last without one are unchanged.
    """

    def marked(face: Face) -> Face:
        if isinstance(face, RuledFace) and face_course(face) is not None:
            return replace(face, stepwise=True)
        return face

    faces = problem.boundary.faces
    return replace(problem, boundary=Boundary(tuple((marked(a), marked(b)) for a, b in faces)))
