"""ConductionData: arrays that describe conduction in one slab to a compiled time loop.

Data that lasts lies in memory as the state does: `ids`, and with coefficients the conductance of
the upper face of every point, time step by heat capacity and volume. Data that changes from step to
step are tables, made for the steps of a block: `numbers` holds those of all rules, the source's
first.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common import layout as geometry
from tetris_sim.cpu_kernels.common.layout import PaddedField, allocate_aligned
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import (
    CONDUCTIVITY,
    TEMPERATURE,
    Conduction,
    Enthalpy,
    Rule,
    RuledFace,
    padded,
)
from tetris_sim.model.conduction import MIRROR as MIRROR_INPUT
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Ranges, Slab, batches

Array = npt.NDArray[Any]
_LAID_POINTS = 1 << 20  # points asked for at a time
_MOST_NUMBERS = 1 << 20  # in the tables of one block


def rules_of(problem: Problem) -> tuple[Rule | None, ...]:
    """The source's rule, None if nothing heats, then those of the faces that are not periodic."""
    assert problem.conduction is not None
    faces = itertools.chain(*problem.boundary.faces)
    ruled = [face.rule for face in faces if isinstance(face, RuledFace)]
    return (problem.conduction.source, *ruled)


def face_programs(problem: Problem) -> tuple[Program, ...]:
    """The different programs of faces; a kernel numbers them from 1."""
    return tuple(dict.fromkeys(it.program for it in rules_of(problem)[1:] if it is not None))


def parameters_of(program: Program, problem: Problem) -> tuple[str, ...]:
    """Names of the inputs of a program that are numbers by code, in the order of `places`."""
    provided = {MIRROR_INPUT, TEMPERATURE, CONDUCTIVITY, *problem.grid.axis_names}
    return tuple(name for name in program.inputs if name not in provided)


def reads_coordinates(problem: Problem) -> bool:
    """Whether some rule depends on where a point is."""
    names = set(problem.grid.axis_names)
    return any(names & {*it.program.inputs} for it in rules_of(problem) if it is not None)


def id_type(problem: Problem) -> np.dtype[Any]:
    """The dtype of material ids: uint8 or uint16."""
    return problem.stored_ids(tuple((0, 1) for _ in problem.grid.shape)).dtype


def conduction_bytes(problem: Problem, layout: PaddedField) -> int:
    """Bytes that `ConductionData` takes for all points."""
    assert problem.conduction is not None
    points = layout.n_bytes // layout.dtype.itemsize
    conduction, reals = problem.conduction, 0
    if conduction.coefficients is not None:
        ways = problem.grid.ndim * problem.n_ways
        reals = ways + 1 + (conduction.source is not None)
    return points * (id_type(problem).itemsize + reals * layout.dtype.itemsize)


def enthalpy_arrays(enthalpy: Enthalpy | None, dtype: np.dtype[Any]) -> tuple[Array, ...]:
    """(knots, curves, half, contact, radiance, kinds), flat; they are empty if the state is a
    temperature, and the radiance is if nothing radiates.

    `curves` has a row of six numbers for every knot: where the piece begins and its slope, of the
    potential, of the temperature and of the conductivity.
    """
    # Compiled functions have fixed argument types, so a temperature state gets empty arrays.
    if enthalpy is None:
        return (*(np.zeros(0, dtype) for _ in range(5)), np.zeros(0, np.int64))
    parts = [
        part
        for curve in (enthalpy.potential, enthalpy.temperature, enthalpy.conductivity)
        for part in (curve.begins, curve.slopes)
    ]
    radiance = enthalpy.radiance if enthalpy.radiates else np.zeros(0)
    numbers = (enthalpy.knots, np.stack(parts, axis=-1), enthalpy.half, enthalpy.contact, radiance)
    with np.errstate(over="ignore"):  # what is infinite stays so
        return (*(it.ravel().astype(dtype) for it in numbers), enthalpy.kinds)


class ConductionData:
    """The arrays of one slab and the tables of its blocks.

    Attributes:
        arrays: (ids, conductance, rates, volume, [n_ids, apart], sides, codes, coordinates,
            starts, alike, `enthalpy_arrays`) as compiled loops want them; ids are
            `Problem.stored_ids`. `apart` is the number of elements from axis to axis in
            `conductance`: by axis and ids, or with coefficients by axis and point, of
            enthalpies the parts of `Problem.ways` one behind the other; `rates` is by id or by
            point. The coordinate of padded index k of padded axis d is
            coordinates[starts[d] + k]. `alike` is 1 for a run of `geometry.RUN` elements if they
            and their neighbours have one id.
        longest: steps that one block may have, so that its tables stay small.
    """

    def __init__(self, problem: Problem, slab: Slab, layout: PaddedField) -> None:
        conduction = problem.conduction
        assert conduction is not None
        self._problem, self._slab, self._layout = problem, slab, layout
        self._rules = rules_of(problem)

        # Ids cover the margins too: the flow through a face depends on the materials on both sides.
        ids = self._lay(problem.stored_ids, self._margins(), id_type(problem))
        sides, codes = self._sides()
        stored = conduction.with_ghosts

        # `apart` is the distance between axes in `conductance`, whose entries belong to pairs of
        # ids or, with coefficients, to points.
        n_ids = stored.medium.n_ids
        apart = n_ids**2 if conduction.coefficients is None else layout.field_pitch
        self.arrays: tuple[Any, ...] = (
            ids,
            *self._physics(stored),
            np.array([n_ids, apart]),
            sides,
            codes,
            *self._coordinates(),
            self._alike(ids),
            enthalpy_arrays(stored.enthalpy, layout.dtype),
        )

        # The tables of a block have a row per step for every parameter that changes with time.
        changing = [
            parameter.rows(problem.time, 0, 1).size
            for rule in self._rules
            if rule is not None
            for parameter in rule.parameters
            if parameter.changes
        ]
        self._changes = bool(changing)
        # A halo lasts for one block, and those are short.
        self.longest = (
            sys.maxsize if any(map(any, slab.halo)) else _MOST_NUMBERS // sum(changing, 1)
        )
        self._kept: tuple[Array, Array] | None = None

    def tables(self, step: int, steps: int) -> tuple[Array, Array]:
        """Assemble the tables of a block that begins at a step: (numbers, places).

        `places` is (n_rules, n_parameters, 3): where the numbers of a parameter begin, and the
        distance from step to step and from code to code.
        """
        if self._kept is not None:
            return self._kept

        # Number 0 is a dummy that keeps the table from being empty.
        problem, numbers, size = self._problem, [np.zeros(1, self._layout.dtype)], 1
        names = [parameters_of(it.program, problem) if it else () for it in self._rules]
        places = np.zeros((len(names), max(1, *map(len, names)), 3), np.int64)
        for rule, wanted, place in zip(self._rules, names, places, strict=True):
            if rule is None:
                continue
            table = rule.tabulate(problem.time, step, steps, self._layout.dtype)
            order = [[it.name for it in rule.parameters].index(name) for name in wanted]
            place[: len(order)] = table.places[order]
            # Offsets within the rule's own table become offsets within the joined one.
            place[: len(order), 0] += size
            numbers.append(table.numbers)
            size += table.numbers.size

        found = np.concatenate(numbers), places
        # Tables of rules without time functions hold for every block.
        if not self._changes:
            self._kept = found
        return found

    def _margins(self) -> Ranges:
        """All stored points of the slab with its margins, ghosts included, counted from its first
        owned point.
        """
        margins = [self._layout.margin[padded_axis] for padded_axis in self._layout.axis_of]
        return tuple(
            (-low, n + high) for n, (low, high) in zip(self._slab.shape, margins, strict=True)
        )

    def _origin(self, padded_axis: int) -> int:
        """Padded index of the first stored point."""
        return self._layout.first[padded_axis] - self._layout.margin[padded_axis][0]

    def _lay(
        self, of_box: Callable[[Ranges], Array], ranges: Ranges, dtype: np.dtype[Any]
    ) -> Array:
        """Lay out an array as the state lies, with values computed from global indices."""
        layout = self._layout
        n_bytes = layout.n_bytes // layout.dtype.itemsize * dtype.itemsize
        flat = allocate_aligned(n_bytes, dtype, 0)
        flat[:] = 0  # rows have ends that no point lies in
        for part in batches(ranges, _LAID_POINTS):
            layout.write(flat, part, of_box(self._slab.globally(part))[np.newaxis])
        return flat

    # A point and its neighbours agree along an axis if neither of its two pairs differs.
    def _alike(self, ids: Array) -> Array:
        layout = self._layout
        alike = np.ones(-(-ids.size // geometry.RUN) * geometry.RUN, np.uint8)
        alike[ids.size :] = 0
        # Both members of an unequal pair lose the mark.
        for padded_axis in layout.axis_of:
            pitch = layout.pitch[padded_axis]
            same = ids[pitch:] == ids[:-pitch]
            alike[: ids.size - pitch] &= same
            alike[pitch : ids.size] &= same
        return np.asarray(alike.reshape(-1, geometry.RUN).min(axis=1))

    def _wrapped(self, of_box: Callable[[Ranges], Array], shape: tuple[int, ...]) -> Any:
        rings = [self._problem.boundary.periodic(axis) for axis in range(len(shape))]
        return lambda box: padded(of_box, box, shape, rings)

    def _physics(self, conduction: Conduction) -> tuple[Array, Array, Array]:
        """Make (conductance, rates, volume), flat."""
        problem, dtype = self._problem, self._layout.dtype
        # With materials only, a number per id or pair of ids replaces arrays over all points.
        if (given := conduction.coefficients) is None:
            return (
                conduction.medium.conductance.ravel().astype(dtype),
                conduction.rates(problem.dt).astype(dtype),
                np.zeros(1, dtype),
            )

        # With coefficients every point has numbers of its own, stored as the state is.
        shape, ranges = problem.grid.shape, self._margins()
        parts = range(problem.n_ways)
        faces = [self._upper_faces(axis, part) for part in parts for axis in range(len(shape))]
        rates = self._wrapped(lambda box: conduction.rates(problem.dt, box), shape)
        volume = self._wrapped(given.volume, shape)
        return (
            np.concatenate(faces),
            self._lay(rates, ranges, dtype),
            np.zeros(1, dtype) if conduction.source is None else self._lay(volume, ranges, dtype),
        )

    def _upper_faces(self, axis: int, part: int) -> Array:
        """A part of the ways through the upper face of every point, beginning with the ghost below
        the first one.
        """
        grid = self._problem.grid
        cut_ring = self._problem.boundary.periodic(axis) and any(self._slab.halo[axis])
        shift = tuple(int(k == axis and not cut_ring) for k in range(grid.ndim))

        # Faces of an axis are one more than its points, and count from -1; those around a ring that
        # is cut have the numbers of points.
        def of_faces(box: Ranges) -> Array:
            down = tuple((low - s, high - s) for (low, high), s in zip(box, shift, strict=True))
            return np.asarray(self._problem.ways(axis, down)[..., part])

        count = tuple(n + s for n, s in zip(grid.shape, shift, strict=True))
        wrapped = self._wrapped(of_faces, count)
        return self._lay(
            lambda box: wrapped(
                tuple((low + s, high + s) for (low, high), s in zip(box, shift, strict=True))
            ),
            self._margins(),
            self._layout.dtype,
        )

    def _sides(self) -> tuple[Array, Array]:
        """Describe the sides that have ghosts: (sides, codes)."""
        problem, slab, layout = self._problem, self._slab, self._layout
        kinds = {it: 1 + k for k, it in enumerate(face_programs(problem))}
        sides, codes, size, rule = [], [np.zeros(1, np.int32)], 1, 0

        # `rule` counts the faces that are not periodic, in the order of `rules_of`; row 0 is the
        # source's.
        for axis, padded_axis in enumerate(layout.axis_of):
            first, n = layout.first[padded_axis], slab.shape[axis]
            ring = problem.boundary.periodic(axis)
            for number, side in enumerate(SIDES):
                rule += not ring
                if slab.halo[axis][number]:
                    continue
                row = np.zeros(geometry.N_SIDE_COLUMNS, np.int64)
                inside, beyond = (0, -1) if number == 0 else (n - 1, n)
                row[geometry.AXIS], row[geometry.GHOST] = padded_axis, first + beyond
                row[geometry.MIRROR] = first + (n - 1 - inside if ring else inside)
                sides.append(row)
                if ring:
                    continue

                # A face with a rule also needs the code of every mirror point, which selects the
                # numbers of its program.
                face = problem.ruled_face(axis, side)
                row[geometry.KIND], row[geometry.RULE] = kinds[face.rule.program], rule
                plate = self._codes(face, axis, inside)
                row[geometry.CODES] = size
                for other, (other_padded, length) in enumerate(
                    # The first code is moved so that padded indices address the codes directly.
                    zip(layout.axis_of, plate.strides, strict=True)
                ):
                    if other != axis:
                        pitch = length // plate.itemsize
                        row[geometry.CODE_PITCH + other_padded] = pitch
                        row[geometry.CODES] -= pitch * self._origin(other_padded)
                codes.append(plate.ravel())
                size += plate.size

        # An empty array keeps the shape where a slab has no sides with ghosts.
        empty = np.zeros((0, geometry.N_SIDE_COLUMNS), np.int64)
        return np.concatenate([empty, *(row[np.newaxis] for row in sides)]), np.concatenate(codes)

    def _codes(self, face: RuledFace, axis: int, inside: int) -> npt.NDArray[np.int32]:
        """Codes of the mirror points of a face."""
        assert self._problem.conduction is not None
        medium = self._problem.conduction.medium
        ranges = tuple(
            (inside, inside + 1) if k == axis else span for k, span in enumerate(self._margins())
        )
        found = self._wrapped(
            lambda box: face.codes(box, medium.ids(box), medium.n_ids), self._problem.grid.shape
        )(self._slab.globally(ranges))
        return np.ascontiguousarray(found, np.int32)

    def _coordinates(self) -> tuple[Array, Array]:
        """Coordinates along the axes and where each axis begins: (coordinates, starts)."""
        starts, found, size = np.zeros(3, np.int64), [np.zeros(1, self._layout.dtype)], 1
        # Most programs do not depend on the position, and then no coordinates are stored.
        if not reads_coordinates(self._problem):
            return found[0], starts
        grid, box = self._problem.grid, self._slab.globally(self._margins())
        for axis, padded_axis in enumerate(self._layout.axis_of):
            ring = (self._problem.boundary.periodic(axis),)
            of_span = functools.partial(_positions, grid, axis)
            along = padded(of_span, (box[axis],), (grid.shape[axis],), ring)
            starts[padded_axis] = size - self._origin(padded_axis)
            found.append(along.astype(self._layout.dtype))
            size += along.size
        return np.concatenate(found), starts


def _positions(grid: Grid, axis: int, span: Ranges) -> Array:
    return grid.coordinates(axis, *span[0])
