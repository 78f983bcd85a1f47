"""Lowering: problems for which a simpler one stands, with the same bits.

A body of one material without sources makes the step of a stencil; only its boundary conditions
need rules. Kernels for one stencil without faces advance its interior, and the boundary strip along
the faces follows the rules (`gpu_kernels/boundary/ghosts.py`).

A body of one kind of material on graded axes makes steps whose weights depend on the place along
one axis only: `axis_weights` are those, a line of numbers per axis instead of an array per face. In
other coordinates they are products of such lines (`product_weights`).

A source of a body whose step is linear is a sum while it does not change: after T steps A^T u +
S_T, with S_T what T steps make of zero. So kernels may advance the body without it, and add S_T
once for T steps (docs/decisions/0053).

Several 2D grids stand as the planes of one 3D grid with no coupling along its first axis: methods
advance an ensemble of small grids together, every point by the same chain as alone
(docs/decisions/0042).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tetris_sim.model.boundary import Boundary, Face, Neumann
from tetris_sim.model.conduction import (
    AFFINE,
    CONDUCTIVITY,
    MIRROR,
    TEMPERATURE,
    Numbers,
    Parameter,
    Rule,
    RuledFace,
    padded,
)
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.program import INPUT
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil, star_mean

_LOOKED_AHEAD = 64  # steps, with which a source whose numbers change is judged


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


_PRODUCT = 1e-12  # relative: numbers along a line that differ by less are the same


def axis_weights(problem: Problem) -> tuple[Numbers, ...] | None:
    """Return dt K / (rho c V) of the lower and the upper face of the points along each axis, (n,
    2), where coefficients give weights that depend on the place along that axis only; else None.
    """
    found = product_weights(problem)
    if found is None or any((it[:, 2:] != 1).any() for it in found):
        return None
    return tuple(it[:, :2] for it in found)


def product_weights(problem: Problem) -> tuple[Numbers, ...] | None:
    """Return per axis dt K / (rho c V) of the lower and the upper face of the points of its first
    line, and the factors of the weights along the other axes, in their order, by the place along
    this one, (n, ndim + 1); 1 where that changes nothing. None where weights are not such products.

    Coefficients that separate can be seen along one line of every axis.
    """
    it, shape = problem.conduction, problem.grid.shape
    if not it or not it.coefficients or it.enthalpy:
        return None
    if not it.coefficients.separates or not np.isfinite(it.medium.capacity).all():
        return None
    coefficients = it.coefficients

    def faces(axis: int, along: int) -> Numbers:
        """Both faces across `axis` of the points of a line along an axis."""
        line = tuple((0, n if k == along else 1) for k, n in enumerate(shape))
        low, high = line[axis]
        around = (*line[:axis], (low - 1, high), *line[axis + 1 :])
        between = np.moveaxis(coefficients.conductance(axis, around), axis, 0)
        sides = np.stack([between[:-1], between[1:]], axis=-1)
        return (np.moveaxis(sides, 0, axis) * it.rates(problem.dt, line)[..., None]).reshape(-1, 2)

    def factor(axis: int, along: int) -> Numbers:
        # Nothing flows through one of the two faces if it is only a line, an axis.
        found = faces(axis, along).max(axis=1)
        same = np.abs(found - found[0]) <= _PRODUCT * found[0]
        return np.ones(len(found)) if same.all() else found / found[0]

    axes = range(len(shape))
    return tuple(
        np.column_stack([faces(axis, axis), *(factor(k, axis) for k in axes if k != axis)])
        for axis in axes
    )


def padded_weights(problem: Problem, weights: Numbers, axis: int, span: tuple[int, int]) -> Numbers:
    """Return weights of an axis for a span that may reach beyond the grid by its length, where
    points are images: beyond a face the lower and the upper one change places.
    """
    n, ring = problem.grid.shape[axis], problem.boundary.periodic(axis)
    found = padded(lambda part: weights[slice(*part[0])], (span,), (n,), (ring,))
    place = np.arange(*span)
    mirrored = ((place < 0) | (place >= n)) & (not ring)
    found[mirrored, :2] = found[mirrored, 1::-1]
    return found


def sourceless(problem: Problem) -> Problem:
    """Leave out a source that kernels for several steps add as a sum; the problem itself where
    there is none, or where kernels know it better by themselves.

    The step must be linear. Where each material is heated by a number of its own, kernels look this
    up with the material if materials differ, or the number changes. A formula of the place may
    change: a sum stands for steps in which it does not (`is_steady`).
    """
    it = problem.conduction
    if not it or not it.source or it.enthalpy:
        return problem
    # In float16 every step rounds, and a sum over steps would be rounded once.
    state = {MIRROR, TEMPERATURE, CONDUCTIVITY}
    if problem.dtype == np.float16 or state & set(it.source.program.inputs):
        return problem
    alike = it.medium.n_ids == 1 and bool(np.isfinite(it.medium.capacity).all())
    by_number = is_looked_up(it.source) and not it.coefficients
    if by_number and (it.source.changes or not alike):
        return problem
    # On a line kernels know sources of any body at every step.
    if problem.grid.ndim == 1 and (it.source.changes or it.coefficients or not alike):
        return problem
    return replace(problem, conduction=replace(it, source=None))


def is_steady(source: Rule, problem: Problem, first: int, steps: int) -> bool:
    """Whether the numbers of a source are the same in all of some steps."""
    rows = (it.rows(problem.time, first, steps) for it in source.parameters if it.changes)
    return all(bool((its == its[0]).all()) for its in rows)


def stands_still(problem: Problem) -> bool:
    """Whether the source of a body mostly stays as it is from step to step, as one that is switched
    does, or there is none. The first steps of a run are looked at, also when it is continued, so
    that a run and its continuation are advanced by the same kernel.
    """
    source = problem.conduction.source if problem.conduction else None
    if not source or not source.changes:
        return True

    same = np.ones(_LOOKED_AHEAD - 1, np.bool_)
    for it in source.parameters:
        rows = it.rows(problem.time, 0, _LOOKED_AHEAD)
        same &= len(rows) == 1 or (rows[1:] == rows[:-1]).all(axis=1)
    return bool(2 * same.sum() >= len(same))


def is_looked_up(source: Rule) -> bool:
    """Whether a source is one number per material and nothing else."""
    # A program of a single instruction that reads a parameter.
    operations = [it.operation for it in source.program.instructions]
    return operations == [INPUT] and source.program.inputs == tuple(
        parameter.name for parameter in source.parameters
    )


def with_nothing_at_faces(problem: Problem) -> Problem:
    """Keep of every face of a body what it mirrors: ghosts b * mirror, as a source's part of the
    state sees it. Faces that mirror nothing for several steps count as insulated.
    """

    def emptied(face: Face) -> Face:
        if not isinstance(face, RuledFace):
            return face
        course = face_course(face)
        b = face.lasting[1] if face.lasting else 1.0 if course is None else course.b
        numbers = (Parameter("a", np.zeros(1)), Parameter("b", np.full(1, b)))
        return RuledFace(Rule(AFFINE, numbers), lasting=(0.0, b))

    faces = problem.boundary.faces
    return replace(problem, boundary=Boundary(tuple((emptied(a), emptied(b)) for a, b in faces)))


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


def stacked(stencil: Stencil) -> Stencil:
    """Apply a stencil within every plane of one more, leading axis.

    >>> stacked(Stencil(((-1,), (1,)), (0.25, 0.75)))
    Stencil(offsets=((0, -1), (0, 1)), weights=(0.25, 0.75))
    """
    return Stencil(tuple((0, *offset) for offset in stencil.offsets), stencil.weights)


def in_planes(stencil: Stencil) -> Stencil:
    """Drop the leading axis of a stencil that stays within a plane.

    >>> in_planes(Stencil(((0, -1), (0, 1)), (0.25, 0.75)))
    Stencil(offsets=((-1,), (1,)), weights=(0.25, 0.75))

    Raises:
        ValueError: it reads other planes.
    """
    if stencil.radii[0] != 0:
        msg = f"the stencil reads {stencil.radii[0]} planes far"
        raise ValueError(msg)
    return Stencil(tuple(offset[1:] for offset in stencil.offsets), stencil.weights)


def why_not_planes(problems: Sequence[Problem]) -> str | None:
    """Say why problems cannot be the planes of one, as a sentence; None if they can.

    They may differ in their initial field only, and a step must be one stencil on a grid of two
    axes.
    """
    first = problems[0]
    if (why_not := first.why_not_one_stencil) is not None:
        return why_not
    if first.grid.ndim != 2:
        return f"the grids have {first.grid.ndim} axes, and planes have two"
    if first.grid.edges:
        return "cells along an axis differ in width"
    if first.view is not None:
        return "what is written down is not the state itself"

    # Everything that determines a step must agree; `initial` and `dt_limit` need not.
    for name in ("grid", "stencil", "boundary", "dt", "steps", "dtype", "variables", "start"):
        if any(getattr(problem, name) != getattr(first, name) for problem in problems[1:]):
            return f"they differ in more than their initial fields: {name}"
    return None


def together(problems: Sequence[Problem]) -> Problem:
    """Stack problems into one whose plane k is the whole grid of problem k.

    Raises:
        ValueError: for the reason that `why_not_planes` gives.
    """
    if (why_not := why_not_planes(problems)) is not None:
        raise ValueError(why_not)
    first = problems[0]
    grid = first.grid

    # A slab of the stack may hold some of the planes only; each is initialized by its own problem.
    def initial(slab: Slab) -> Field:
        part = Slab.box(slab.spans[1:])
        members = problems[slab.start[0] : slab.stop[0]]
        return np.stack([problem.initial(part) for problem in members], axis=1)

    # Spacing and origin of the stacking axis are arbitrary, since nothing is read along it.
    return replace(
        first,
        grid=Grid((len(problems), *grid.shape), (1.0, *grid.spacing), (0.0, *grid.origin)),
        stencil=stacked(first.stencil),
        # No stencil reads beyond the first and the last plane.
        boundary=Boundary(((Neumann(), Neumann()), *first.boundary.faces)),
        initial=initial,
    )
