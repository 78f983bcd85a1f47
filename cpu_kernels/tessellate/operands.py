"""Operands of the compiled functions of `cpu.tessellate` for a body: `OPERANDS`, by thread and
step; and rules of a body as the tiles read them: codes of ghosts, numbers by step.

Ghosts that take a + b * mirror have a table of (a, b), sources by material a table of powers; of
other rules there are the numbers that their formulas read (`formulas.py`). Of the codes of a face
only those that occur are numbered, so that tables by step stay small.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.layout import COPY, allocate_aligned
from tetris_sim.cpu_kernels.common.medium import enthalpy_arrays, parameters_of
from tetris_sim.cpu_kernels.common.stepper import Axes, CpuStepper, ThreadTeam
from tetris_sim.cpu_kernels.compiled.conduction import constants_of
from tetris_sim.cpu_kernels.compiled.generate import compiled_module, splice
from tetris_sim.cpu_kernels.tessellate.formulas import (
    CHANGING,
    OPERANDS,
    STEADY,
    filling_source,
    ghost_source,
    row_width,
    shape_of,
)
from tetris_sim.cpu_kernels.tessellate.lifted import LiftedField
from tetris_sim.cpu_kernels.tessellate.records import (
    BodyRecords,
    kind_of,
    make_body,
    rings_of,
    surrounded,
)
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import Parameter, Rule, RuledFace, padded
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Ranges, Slab

Values = npt.NDArray[Any]
_PLACES = {name: k for k, name in enumerate(OPERANDS)}


class Operands:
    """The operands of one slab.

    Attributes:
        ghost: address of the function that makes ghosts of formulas, 0 if there are none.
        strides: of the last block: elements of operands and of numbers of faces from step to step,
            of operands from thread to thread.
    """

    def __init__(
        self,
        problem: Problem,
        slab: Slab,
        layout: LiftedField,
        body: BodyRecords,
        ghosts: RuleGhosts,
        jam: int,
        team: ThreadTeam,
    ) -> None:
        conduction = problem.conduction
        assert conduction is not None
        self._problem, self._layout, self._ghosts, self._team = problem, layout, ghosts, team
        self._kind, source = kind_of(problem), conduction.source
        self._source = source if self._kind.placed else None
        self._rules = (self._source, *ghosts.rules)
        self._shapes = shapes_of_faces(problem)
        # Kernels take addresses, so every array must live as long as the operands do.
        self._arrays: dict[str, Values] = {
            "records": body.records,
            "numbers": body.numbers,
            "tags": body.tags,
            "patterns": body.patterns,
            "several": body.several,
            "codes": ghosts.codes,
            "about": ghosts.about,
            **_curves(problem),
            **_coordinates(problem, slab, layout),
        }

        # Strides are counted in elements: kernels do their own address arithmetic.
        plane, row, _ = layout.pitch
        tag_plane, tag_row = (stride // body.tags.itemsize for stride in body.tags.strides[:2])
        ring = self._kind.ring(jam) * plane
        self._numbers = {"plane_size": plane, "row_size": row, "ring": ring}
        self._numbers |= {"tag_plane": tag_plane, "tag_row": tag_row}
        if conduction.enthalpy is not None:
            n_ids, pieces = conduction.enthalpy.knots.shape
            self._numbers |= {"n_ids": n_ids, "pieces": pieces}

        # Each thread has rings of planes of its own, zeroed so that no NaN is read from them.
        rings = team.size * self._kind.rings * ring
        self._rings = allocate_aligned(rings * layout.dtype.itemsize, layout.dtype, 0)
        self._rings[:] = 0
        self.ghost, self.strides = self._ghost_address(), (0, 0, 0)

    @property
    def per_step(self) -> int:
        """Number of table entries that change with every step, 1 if none does."""
        conduction = self._problem.conduction
        assert conduction is not None
        rules = [*(rule for rule, _ in self._ghosts.faces), *self._ghosts.rules]
        rules += [] if conduction.source is None else [conduction.source]
        changing = changing_numbers(rules, self._problem)
        return changing + self._team.size * len(OPERANDS) if changing else 1

    def of_block(self, first: int, steps: int) -> tuple[Values, npt.NDArray[np.int64]]:
        """Numbers of the faces and operands, flat, of a block of steps."""
        problem = self._problem
        # Ghosts are filled for the step behind the last one, too.
        faces = ghost_numbers(problem, self._ghosts, first, steps + 1)
        source = source_numbers(problem, first, steps)
        rules = self._rules
        tables, places = tables_of(problem, rules, self._shapes, first, steps + 1)
        self._arrays |= {"source": source, "tables": tables, "places": places}

        # Constant operands need one row per thread, which all steps share.
        changes = len(source) > 1 or any(rule is not None and rule.changes for rule in rules)
        operands = self._lay(steps + 1 if changes else 1)
        if self._kind.placed == STEADY:
            self._fill(operands)
        self.strides = (
            operands.shape[2] if changes else 0,
            faces[0].size if len(faces) > 1 else 0,
            operands[0].size,
        )
        return faces, operands.reshape(-1)

    def _lay(self, steps: int) -> npt.NDArray[np.int64]:
        """Operands, (threads, steps, OPERANDS)."""
        operands = np.zeros((self._team.size, steps, len(OPERANDS)), np.int64)
        for name, number in self._numbers.items():
            operands[:, :, _PLACES[name]] = number
        for name, array in self._arrays.items():
            operands[:, :, _PLACES[name]] = array.ctypes.data
        operands[:, :, _PLACES["step"]] = np.arange(steps)
        source = self._arrays["source"]
        # Where only faces change, all steps share the one row of a constant source.
        if len(source) > 1:
            operands[:, :, _PLACES["source"]] += source.strides[0] * np.arange(steps)

        bytes_of_ring = self._numbers["ring"] * self._layout.dtype.itemsize
        rings = self._kind.rings
        # Each thread owns its rings, so no barrier protects them.
        for thread in range(self._team.size):
            begin = self._rings.ctypes.data + thread * rings * bytes_of_ring
            operands[thread, :, _PLACES["flowing"]] = begin
            if self._kind.placed == CHANGING:
                operands[thread, :, _PLACES["power"]] = begin + (rings - 1) * bytes_of_ring
        return operands

    def _ghost_address(self) -> int:
        if not self._shapes:
            return 0
        lanes, curved = self._layout.lanes, self._kind.curved
        source = ghost_source(self._problem, self._shapes, lanes, curved=curved)
        return int(compiled_module(source).ghost_of.address)

    def _fill(self, operands: npt.NDArray[np.int64]) -> None:
        """Compute once what heats each point, if it does not change."""
        if "power" in self._arrays:
            return
        layout, team = self._layout, self._team
        power = layout.allocate()
        self._arrays["power"] = power
        operands[:, :, _PLACES["power"]] = power.ctypes.data
        assert self._source is not None
        source = filling_source(self._problem, self._source.program, layout.lanes)
        fill = compiled_module(source).fill_power.ctypes
        address = operands.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
        rows, first, last = layout.extent[1], layout.first[2], layout.first[2] + layout.count[2]

        def part(thread: int) -> None:
            planes = team.split(layout.extent[0], thread)
            fill(address, planes.start, planes.stop, 0, rows, first, last)

        team.run(part)


def _curves(problem: Problem) -> dict[str, Values]:
    """Curves by name of the operand; nothing if the state is a temperature."""
    conduction = problem.conduction
    assert conduction is not None
    if (it := conduction.enthalpy) is None:
        return {}
    dtype = problem.arithmetic
    knots, curves, half, *_ = enthalpy_arrays(it, dtype)
    columns = np.stack([it.knots, it.potential.begins, it.potential.slopes], axis=-1)
    of_piece = np.ascontiguousarray(columns.reshape(len(it.knots), -1).T.astype(dtype))
    return {"knots": knots, "curves": curves, "columns": of_piece, "half": half}


def _coordinates(problem: Problem, slab: Slab, layout: LiftedField) -> dict[str, Values]:
    """Coordinates by padded index along planes and rows, and by element of a row."""
    grid, rings = problem.grid, rings_of(problem)
    names = [("along_planes", "along_rows", "along_points")[padded] for padded in layout.axis_of]
    found: dict[str, Values] = {}
    for axis, (name, span) in enumerate(zip(names, surrounded(slab, layout), strict=True)):

        def positions(box: Ranges, axis: int = axis) -> Values:
            return grid.coordinates(axis, *box[0])

        along = padded(positions, (span,), (grid.shape[axis],), (rings[axis],))
        found[name] = along.astype(layout.dtype)
    # Points are rearranged as lifted rows: lane by lane, a stride apart.
    points = found["along_points"]
    row = np.zeros((layout.extent[2] // layout.lanes, layout.lanes), layout.dtype)
    vectors = np.arange(layout.count[2] + 2)
    for lane in range(layout.lanes):
        row[layout.first[2] - 1 + vectors, lane] = points[lane * layout.stride + vectors]
    return found | {"along_points": row.reshape(-1)}


# The stepper of a body for `cpu.tessellate`, and the compiled loop of all its steppers.

_MOST_NUMBERS = 1 << 22  # in the tables of one block
_SIDE_BY_SIDE, _WITH_POTENTIALS = 8, 32


def make_loop(problem: Problem, lanes: int) -> Callable[..., None]:
    """The compiled `advance` of `tile_sweep.py`.

    Args:
        problem: gives the dtype, and whether there are rules.
        lanes: elements of a vector, 1 if rows are not lifted.
    """
    real, ruled = np.dtype(problem.dtype).name, problem.conduction is not None
    weight = "int64" if ruled else real
    constants = f"REAL, LANES, WEIGHT, RULED = types.{real}, {lanes}, types.{weight}, {ruled}\n"
    return splice("tessellate/tile_sweep.py", constants).advance  # type: ignore[no-any-return]


def side_by_side(problem: Problem) -> int:
    """Planes near a face that are computed together before their ghosts are filled: few, so that
    they are in the first-level cache still, but more where potentials of the planes around them are
    made anew.
    """
    if problem.conduction is not None and problem.conduction.enthalpy is not None:
        return _WITH_POTENTIALS
    return 1 if problem.grid.ndim == 3 else _SIDE_BY_SIDE


class ConductingStepper(CpuStepper):
    """A slab of a body: numbers of ghosts and sources are made for the steps of every block."""

    def __init__(
        self,
        problem: Problem,
        slab: Slab,
        team: ThreadTeam,
        plan: tuple[Any, ...],
        layout: LiftedField,
        together: tuple[int, int],
    ) -> None:
        """Take memory and look at the body.

        Args:
            problem: what to advance.
            slab: which part of it.
            team: the threads.
            plan: the first entries of `plan` in `tile_sweep.py`.
            layout: how points lie in memory.
            together: rows that are computed together, and planes near a face.
        """
        compiled = make_loop(problem, layout.lanes)
        jam, planes = together

        def advance(*arguments: Any) -> None:
            operands = self._operands_of_body
            rest = (self._ghosts.codes, operands.strides, operands.ghost, planes)
            compiled(*arguments, (*plan, *rest))

        super().__init__(problem, slab, team, advance, layout)
        self._ghosts = code_ghosts(problem, slab, layout)
        body = make_body(problem, slab, layout)
        self._operands_of_body = Operands(problem, slab, layout, body, self._ghosts, jam, team)

    @property
    def _longest(self) -> int:
        # What a halo is there for is advanced in one block.
        alone = all(halo == (0, 0) for halo in self.slab.halo)
        return max(1, _MOST_NUMBERS // self._operands_of_body.per_step) if alone else sys.maxsize

    def _operands(self, steps: int, axes: Axes) -> tuple[Any, ...]:
        layout, geometry = self._layout, self._geometry
        where = (layout.n_fields, layout.field_pitch, axes, geometry.links)
        return (*where, *self._operands_of_body.of_block(self._step, steps))


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
