"""What the tiles of `cpu.tessellate` read of a body's rules: codes of ghosts, and numbers by step.

Ghosts take a + b * mirror, sources are by material: `why_not_ruled` says what else there is. Of the
codes of a face only those that occur are numbered, so that tables by step stay small.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.axes import OUTER, on_three
from tetris_sim.boundary import SIDES
from tetris_sim.conduction import Rule, RuledFace, padded
from tetris_sim.cpu_kernels.common.ghosts import COPY
from tetris_sim.cpu_kernels.tessellate.lifted import LiftedField
from tetris_sim.cpu_kernels.tessellate.records import rings_of
from tetris_sim.problem import Problem
from tetris_sim.program import INPUT
from tetris_sim.slab import Slab

Values = npt.NDArray[Any]


def why_not_ruled(problem: Problem) -> str | None:
    """Why this method cannot follow the rules of a problem with conduction; None if it can."""
    if (why_not := problem.why_not_temperatures) is not None:
        return why_not
    conduction = problem.conduction
    assert conduction is not None
    faces = (face for pair in problem.boundary.faces for face in pair)
    if not all(face.is_affine for face in faces if isinstance(face, RuledFace)):
        return "it knows faces whose ghosts are a + b * mirror, and a face of this body has others"
    if conduction.source is not None and not _is_power(conduction.source):
        return "it knows sources by material, and one of this body depends on the place"
    return None


def _is_power(source: Rule) -> bool:
    """Whether a rule is one parameter and nothing else."""
    parts = source.program.instructions
    names = [parameter.name for parameter in source.parameters]
    return len(parts) == 1 and parts[0].operation == INPUT and names == [parts[0].name]


@dataclass(frozen=True)
class Ghosts:
    """The ghosts of a slab.

    Attributes:
        codes: of each, by its element; 0 where it is a copy.
        faces: rules of the faces, with those of their codes that occur, in the order of `codes`.
    """

    codes: npt.NDArray[np.int32]
    faces: tuple[tuple[Rule, npt.NDArray[np.int64]], ...]


def code_ghosts(problem: Problem, slab: Slab, layout: LiftedField) -> Ghosts:
    """The ghosts of all faces.

    Args:
        problem: a problem with conduction.
        slab: which part of it.
        layout: of its state.
    """
    codes, faces = np.zeros(layout.field_pitch, np.int32), []
    n_codes = 1  # 0 is a copy
    for axis, side in itertools.product(range(problem.grid.ndim), (0, 1)):
        if slab.halo[axis][side] or problem.boundary.periodic(axis):
            continue
        face = problem.ruled_face(axis, SIDES[side])
        found, numbers = np.unique(
            _face_codes(problem, slab, face, axis, side), return_inverse=True
        )
        _write_codes(codes, layout, slab, axis, side, n_codes + numbers)
        faces.append((face.rule, found))
        n_codes += len(found)
    return Ghosts(codes, tuple(faces))


def _face_codes(
    problem: Problem, slab: Slab, face: RuledFace, axis: int, side: int
) -> npt.NDArray[np.int64]:
    """Codes of the points inside a face, halos included, one point thick along the axis."""
    conduction = problem.conduction
    assert conduction is not None
    medium = conduction.medium
    box = [
        (low - before, high + behind)
        for (low, high), (before, behind) in zip(slab.spans, slab.halo, strict=True)
    ]
    low, high = slab.spans[axis]
    box[axis] = (high - 1, high) if side else (low, low + 1)
    return padded(
        lambda inside: face.codes(inside, medium.ids(inside), medium.n_ids),
        *(tuple(box), problem.grid.shape, rings_of(problem)),
    )


def _write_codes(
    codes: npt.NDArray[np.int32],
    layout: LiftedField,
    slab: Slab,
    axis: int,
    side: int,
    values: npt.NDArray[np.int64],
) -> None:
    """Store the codes of the ghosts beyond a face."""
    shape = [
        high - low + sum(halo) for (low, high), halo in zip(slab.spans, slab.halo, strict=True)
    ]
    shape[axis] = 1
    values = values.reshape(shape)
    if axis < len(shape) - 1:
        ranges = [(-low, n + high) for n, (low, high) in zip(slab.shape, slab.halo, strict=True)]
        n = slab.shape[axis]
        ranges[axis] = (n, n + 1) if side else (-1, 0)
        whole: Any = values[np.newaxis]
        replace(layout, dtype=np.dtype(np.int32)).write(codes, tuple(ranges), whole)
        return

    beside = layout.first[2] + layout.count[2] if side else layout.first[2] - 1
    element = beside * layout.lanes + (layout.lanes - 1 if side else 0)
    planes, rows = on_three(shape, 1, OUTER)[:2]
    halos = on_three(slab.halo, (0, 0), OUTER)
    first = [layout.first[k] - halos[k][0] for k in (0, 1)]
    box = codes.reshape(layout.extent)
    box[first[0] : first[0] + planes, first[1] : first[1] + rows, element] = values.reshape(
        planes, rows
    )


def ghost_numbers(problem: Problem, ghosts: Ghosts, first: int, steps: int) -> Values:
    """(a, b) by step and code, (n, n_codes, 2); n is 1 if nothing changes.

    Args:
        problem: says what time it is.
        ghosts: of a slab.
        first: the first step.
        steps: how many.
    """
    n = steps if any(rule.changes for rule, _ in ghosts.faces) else 1
    columns = [np.broadcast_to(COPY, (n, 1, 2))]
    for rule, codes in ghosts.faces:
        by_name = {it.name: it.rows(problem.time, first, n) for it in rule.parameters}
        pair = np.empty((n, len(codes), 2))
        for k, row in enumerate((by_name["a"], by_name["b"])):
            pair[:, :, k] = row[:, codes] if row.shape[1] > 1 else row
        columns.append(pair)
    return np.ascontiguousarray(np.concatenate(columns, axis=1), problem.arithmetic)


def source_numbers(problem: Problem, first: int, steps: int) -> Values:
    """Power by step and id, (n, n_ids); n is 1 if it does not change, or 0 if there is none."""
    conduction = problem.conduction
    assert conduction is not None
    if conduction.source is None:
        return np.empty((0, 1), problem.arithmetic)
    (parameter,) = conduction.source.parameters
    rows = parameter.rows(problem.time, first, steps)
    shape = (len(rows), conduction.medium.n_ids)
    return np.ascontiguousarray(np.broadcast_to(rows, shape), problem.arithmetic)
