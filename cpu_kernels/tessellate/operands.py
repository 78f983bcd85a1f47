"""Operands of the compiled functions of `cpu.tessellate` for a body: `OPERANDS`, by thread and
step.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.layout import allocate_aligned
from tetris_sim.cpu_kernels.common.medium import enthalpy_arrays
from tetris_sim.cpu_kernels.common.stepper import Axes, CpuStepper
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.cpu_kernels.compiled.generate import compiled_module, splice
from tetris_sim.cpu_kernels.tessellate.formulas import filling_source, ghost_source
from tetris_sim.cpu_kernels.tessellate.kinds import CHANGING, OPERANDS, STEADY
from tetris_sim.cpu_kernels.tessellate.lifted import LiftedField
from tetris_sim.cpu_kernels.tessellate.records import (
    BodyRecords,
    kind_of,
    make_body,
    rings_of,
    surrounded,
)
from tetris_sim.cpu_kernels.tessellate.rules import (
    RuleGhosts,
    changing_numbers,
    code_ghosts,
    ghost_numbers,
    shapes_of_faces,
    source_numbers,
    tables_of,
)
from tetris_sim.model.conduction import padded
from tetris_sim.model.problem import Problem
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
    knots, curves, half, _, _ = enthalpy_arrays(it, dtype)
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
