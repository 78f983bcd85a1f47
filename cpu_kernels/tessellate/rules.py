"""Rules of a body as the tiles of `cpu.tessellate` read them: codes of ghosts, numbers by step.

Ghosts that take a + b * mirror have a table of (a, b), sources by material a table of powers; of
other rules there are the numbers that their formulas read (`formulas.py`). Of the codes of a face
only those that occur are numbered, so that tables by step stay small.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.geometry import COPY
from tetris_sim.cpu_kernels.common.medium import parameters_of
from tetris_sim.cpu_kernels.compiled.conduction import constants_of
from tetris_sim.cpu_kernels.tessellate.formulas import row_width, shape_of
from tetris_sim.cpu_kernels.tessellate.lifted import LiftedField
from tetris_sim.cpu_kernels.tessellate.records import kind_of, rings_of
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import Parameter, Rule, RuledFace, padded
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Slab

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class RuleGhosts:
    """The ghosts of a slab.

    Attributes:
        codes: of each, by its element; 0 where it is a copy, below 0 where a formula makes it.
        faces: rules of the others, with those of their codes that occur, in the order of `codes`.
        rules: of those, for the codes that occur.
        about: of code -1 - k in row k: number of the rule, from 1, code within it, id of the mirror
            point.
    """

    codes: npt.NDArray[np.int32]
    faces: tuple[tuple[Rule, npt.NDArray[np.int64]], ...]
    rules: tuple[Rule, ...]
    about: npt.NDArray[np.int64]


def made_by_formula(problem: Problem, face: RuledFace) -> bool:
    """Whether the ghosts of a face are more than a + b * mirror: potentials always are."""
    return kind_of(problem).curved or not face.is_affine


def shapes_of_faces(problem: Problem) -> tuple[Program, ...]:
    """One program of each shape, of those that make ghosts."""
    faces = [it for pair in problem.boundary.faces for it in pair if isinstance(it, RuledFace)]
    programs = [it.rule.program for it in faces if made_by_formula(problem, it)]
    return tuple({shape_of(program): program for program in programs}.values())


def code_ghosts(problem: Problem, slab: Slab, layout: LiftedField) -> RuleGhosts:
    """The ghosts of all faces.

    Args:
        problem: a problem with conduction.
        slab: which part of it.
        layout: of its state.
    """
    assert problem.conduction is not None
    n_ids = problem.conduction.medium.n_ids
    codes, faces = np.zeros(layout.field_pitch, np.int32), []
    rules: list[Rule] = []
    about = [np.zeros((0, 3), np.int64)]
    n_codes, n_made = 1, 0  # 0 is a copy

    # Affine ghosts get positive codes, those computed by a formula negative ones.
    for axis, side in itertools.product(range(problem.grid.ndim), (0, 1)):
        if slab.halo[axis][side] or problem.boundary.periodic(axis):
            continue
        face = problem.ruled_face(axis, SIDES[side])

        # Only the codes that occur are numbered, which keeps the tables by step small.
        found, numbers = np.unique(
            _face_codes(problem, slab, face, axis, side), return_inverse=True
        )
        if made_by_formula(problem, face):
            numbers = -1 - n_made - numbers
            rules.append(_picked(face.rule, found))
            each = (np.full(len(found), len(rules)), np.arange(len(found)), found % n_ids)
            about.append(np.stack(each, axis=1))
            n_made += len(found)
        else:
            numbers = n_codes + numbers
            faces.append((face.rule, found))
            n_codes += len(found)
        _write_codes(codes, layout, slab, axis, side, numbers)
    return RuleGhosts(codes, tuple(faces), tuple(rules), np.concatenate(about))


def _picked(rule: Rule, codes: npt.NDArray[np.int64]) -> Rule:
    """A rule for some of its codes, which are numbered anew."""

    def pick(values: Values) -> Values:
        return values[..., codes] if values.shape[-1] > 1 else values

    def later(values: Callable[[Values], Values], times: Values) -> Values:
        return pick(values(times))

    # Time functions stay lazy: their values are selected when they are evaluated.
    parameters = tuple(
        Parameter(it.name, functools.partial(later, it.values), it.knots)
        if callable(it.values)
        else Parameter(it.name, pick(it.values))
        for it in rule.parameters
    )
    return Rule(rule.program, parameters)


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
    # Ghost rows and planes go through the layout; ghosts of axis 2 lie in a single lane.
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


def ghost_numbers(problem: Problem, ghosts: RuleGhosts, first: int, steps: int) -> Values:
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
    if conduction.source is None or kind_of(problem).placed:
        return np.empty((0, 1), problem.arithmetic)
    (parameter,) = conduction.source.parameters
    rows = parameter.rows(problem.time, first, steps)
    shape = (len(rows), max(rows.shape[1], conduction.medium.n_ids))
    return np.ascontiguousarray(np.broadcast_to(rows, shape), problem.arithmetic)


def tables_of(
    problem: Problem,
    rules: Sequence[Rule | None],
    programs: Sequence[Program],
    first: int,
    steps: int,
) -> tuple[Values, npt.NDArray[np.int64]]:
    """(tables, places) of `formulas.py`.

    Args:
        problem: says what time it is.
        rules: that of the source first, None if it is none of the place.
        programs: those of `shapes_of_faces`.
        first: the first step.
        steps: how many.
    """
    dtype = problem.arithmetic
    keys = [shape_of(program) for program in programs]
    places = np.zeros((len(rules), row_width(problem)), np.int64)
    tables, size = [np.zeros(1, dtype)], 1

    # Each rule occupies its constants, then the numbers of its parameters; offsets count from the
    # start of `tables`.
    for place, rule in zip(places, rules, strict=True):
        if rule is None:
            continue
        constants = np.array(constants_of(rule.program)).astype(dtype)
        key = shape_of(rule.program)
        place[:2] = keys.index(key) if key in keys else 0, size
        size += constants.size

        # Places of the rule's own table move by the elements in front of it.
        table = rule.tabulate(problem.time, first, steps, dtype)
        order = [it.name for it in rule.parameters]
        for k, name in enumerate(parameters_of(rule.program, problem)):
            place[2 + 3 * k : 5 + 3 * k] = table.places[order.index(name)] + (size, 0, 0)
        size += table.numbers.size
        tables += [constants, table.numbers]
    return np.concatenate(tables), places


def changing_numbers(rules: Sequence[Rule], problem: Problem) -> int:
    """Numbers of some rules that change with every step."""
    return sum(
        it.rows(problem.time, 0, 1).size for rule in rules for it in rule.parameters if it.changes
    )
