"""Which materials does a body have, how warm is each, and how much heat flows between them?"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model import reference
from tetris_sim.model.conduction import Conduction, Ids, Numbers
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import Seen
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.regions import blocks, exact_sum

Pair = tuple[int, int]


@dataclass(frozen=True)
class RegionMaterial:
    """Points of one name; those whose state is held (a fluid, a void) are apart from others.

    Attributes:
        name: of the material.
        held: whether the state of its points does not change.
    """

    name: str
    held: bool


@dataclass(frozen=True, eq=False)
class BodyMaterials:
    """A problem with conduction as heat sees it.

    Attributes:
        problem: the problem.
    """

    problem: Problem

    @property
    def conduction(self) -> Conduction:
        """How heat flows in it."""
        assert self.problem.conduction is not None
        return self.problem.conduction

    @functools.cached_property
    def materials(self) -> tuple[RegionMaterial, ...]:
        """All that have an id, in the order of their first ones."""
        return tuple(dict.fromkeys(self._material_of_id))

    @functools.cached_property
    def numbers(self) -> npt.NDArray[np.int64]:
        """The number of the material of each id, (n_ids,)."""
        return np.array([self.materials.index(it) for it in self._material_of_id])

    @property
    def _material_of_id(self) -> list[RegionMaterial]:
        medium = self.conduction.medium
        held = np.isinf(medium.capacity)
        return [RegionMaterial(*of_id) for of_id in zip(medium.names, held.tolist(), strict=True)]

    def ids(self, box: Box) -> Ids:
        """Of the points of a box inside the grid."""
        return self.conduction.medium.ids(box)

    def volume(self, box: Box) -> Numbers:
        """Of the cells of a box [m^3]: an array, or one number for all."""
        if self.conduction.coefficients is not None:
            return self.conduction.coefficients.volume(box)
        return np.array(self.problem.grid.cell_volume)

    def capacity(self, box: Box, ids: Ids | np.unsignedinteger[Any]) -> Numbers:
        """Of the cells of a box [J/K], 0 where the state is held: these store nothing."""
        if self.conduction.coefficients is not None:
            capacity = self.conduction.coefficients.capacity(box)
        else:
            capacity = self.conduction.medium.capacity[ids] * self.problem.grid.cell_volume
        return np.where(np.isinf(capacity), 0.0, capacity)

    def flow(self, axis: int, box: Box, here: tuple[Seen, Ids], there: tuple[Seen, Ids]) -> Numbers:
        """Into cells from their neighbours, through the upper faces of the cells of a box [W]."""
        flow = reference.flow(self.problem, axis, box, here, there).astype(np.float64)
        by_cell = self.conduction.coefficients is not None
        return flow if by_cell else flow * self.problem.grid.cell_volume

    def lets_pass(self, axis: int, box: Box, ids: Ids, beside: Ids) -> npt.NDArray[np.bool_]:
        """Where heat can flow through the upper faces of the cells of a box."""
        conduction = self.conduction
        if conduction.coefficients is not None:
            return np.asarray(conduction.coefficients.conductance(axis, box) > 0)
        if (enthalpy := conduction.enthalpy) is not None:
            half = enthalpy.half[axis]
            total = half[ids] + half[beside] + enthalpy.contact[axis][ids, beside]
            return np.asarray(np.isfinite(total))
        return np.asarray(conduction.medium.conductance[axis][ids, beside] > 0)

    def seams(self) -> Iterator[tuple[int, Box, Box]]:
        """Where the grid is joined to itself, in blocks: (axis, last plane, first plane)."""
        grid = self.problem.grid
        for axis in range(grid.ndim):
            if self.problem.boundary.periodic(axis):
                last, first = (plane_blocks(grid.shape, axis, at) for at in (-1, 0))
                yield from ((axis, *pair) for pair in zip(last, first, strict=True))


def plane_blocks(shape: tuple[int, ...], axis: int, index: int) -> Iterator[Box]:
    """Boxes that cover one plane normal to an axis; -1 is the last one."""
    at = index % shape[axis]
    for box in blocks((*shape[:axis], 1, *shape[axis + 1 :]), 8):
        yield (*box[:axis], (at, at + 1), *box[axis + 1 :])


@dataclass
class Warmth:
    """What is known of the points of a material after some blocks.

    Attributes:
        low: the lowest value.
        high: the highest.
        heat: stored, measured from 0 [J].
        integral: of the value over the volume.
        volume: of the points [m^3].
    """

    low: float = math.inf
    high: float = -math.inf
    heat: list[float] = field(default_factory=list)
    integral: list[float] = field(default_factory=list)
    volume: list[float] = field(default_factory=list)

    def add(self, values: Numbers, state: Numbers, capacity: Numbers, volume: Numbers) -> None:
        """Take in some points; capacity and volume of each, or one number for all."""
        self.low = float(np.minimum(self.low, values.min()))  # unlike min(), passes NaN on
        self.high = float(np.maximum(self.high, values.max()))
        self.heat.append(_weighted(capacity, state))
        self.integral.append(_weighted(volume, values))
        self.volume.append(exact_sum(volume) if volume.ndim else float(volume) * values.size)


def _weighted(weights: Numbers, numbers: Numbers) -> float:
    if weights.ndim == 0:
        return float(weights) * exact_sum(numbers)
    return exact_sum(weights * numbers)


@dataclass
class MaterialSummary:
    """A state of a body, seen once.

    Attributes:
        warmth: of each material.
        passed: heat flow from material to material, (n_materials, n_materials) [W].
        touching: which of them touch, and something can flow.
    """

    warmth: list[Warmth]
    passed: Numbers
    touching: npt.NDArray[np.bool_]

    def flow(self, pair: Pair) -> float:
        """Heat flow from the first of two materials to the second [W]."""
        return float(self.passed[pair] - self.passed[pair[::-1]])

    @property
    def pairs(self) -> list[Pair]:
        """Different materials that touch."""
        both = self.touching | self.touching.T
        return [(int(a), int(b)) for a, b in np.argwhere(np.triu(both, 1))]


def survey(body: BodyMaterials, snapshot: Snapshot | None) -> MaterialSummary:
    """Look at a state block by block; blocks, and so all bits of the sums, depend on the grid
    alone. Without a state, at what there is and what touches.
    """
    problem, n = body.problem, len(body.materials)
    found = MaterialSummary(
        [Warmth() for _ in range(n)], np.zeros((n, n)), np.zeros((n, n), np.bool_)
    )
    shape = problem.grid.shape
    for box in blocks(shape, 8):
        # One plane more on each upper side, for the faces between this block and the next ones.
        wide = tuple((low, min(high + 1, m)) for (low, high), m in zip(box, shape, strict=True))
        core = tuple(slice(0, high - low) for low, high in box)
        ids, state = body.ids(wide), _read(snapshot, wide)
        seen = None if snapshot is None else snapshot.box(box)[0].astype(np.float64)
        _add_points(body, found, box, ids[core], state=state[core], seen=seen)

        for axis in range(problem.grid.ndim):
            along = (*core[:axis], slice(None), *core[axis + 1 :])
            first, second = (
                (*core[:axis], part, *core[axis + 1 :]) for part in (slice(0, -1), slice(1, None))
            )
            if ids[along].shape[axis] > 1:
                low = (*box[:axis], (wide[axis][0], wide[axis][1] - 1), *box[axis + 1 :])
                sides = [(state[it], ids[it]) for it in (first, second)]
                _add_faces(body, found, axis, low, *sides)

    for axis, last, first_plane in body.seams():
        sides = [(_read(snapshot, box), body.ids(box)) for box in (last, first_plane)]
        _add_faces(body, found, axis, last, *sides)
    return found


def _read(snapshot: Snapshot | None, box: Box) -> Numbers:
    if snapshot is None:
        return np.zeros([high - low for low, high in box])
    return np.asarray(snapshot.hidden(box)[0], np.float64)


def _add_points(
    body: BodyMaterials,
    found: MaterialSummary,
    box: Box,
    ids: Ids,
    *,
    state: Numbers,
    seen: Numbers | None,
) -> None:
    values = state if seen is None else seen
    # Of a medium these are numbers of its ids, else arrays.
    by_id = body.conduction.coefficients is None
    counts = np.bincount(ids.ravel())
    for number in np.flatnonzero(counts):
        here = ids == number if counts[number] < ids.size else np.s_[...]
        cells = (ids.dtype.type(number),) if by_id else (ids,)
        capacity, volume = body.capacity(box, *cells), body.volume(box)
        if not by_id:
            capacity, volume = capacity[here], volume[here]
        warmth = found.warmth[body.numbers[number]]
        warmth.add(values[here], state[here], capacity, volume)


def _add_faces(
    body: BodyMaterials,
    found: MaterialSummary,
    axis: int,
    box: Box,
    low: tuple[Numbers, Ids],
    high: tuple[Numbers, Ids],
) -> None:
    """The upper faces of a box of cells: (state, ids) of them and of their upper neighbours."""
    (state, ids), (above, beside) = low, high
    between = ids != beside
    if not between.any():
        return

    if body.conduction.coefficients is None:  # a medium needs to know nothing but the ids
        state, ids, above, beside = (it[between] for it in (state, ids, above, beside))
    here = reference.potentials(body.conduction, state, ids), ids
    there = reference.potentials(body.conduction, above, beside), beside
    passed = -body.flow(axis, box, here, there)

    first, second = body.numbers[ids], body.numbers[beside]
    open_faces = (first != second) & body.lets_pass(axis, box, ids, beside)
    numbers = first[open_faces], second[open_faces]
    found.touching[numbers] = True
    np.add.at(found.passed, numbers, passed[open_faces])


def held_pairs(body: BodyMaterials, pairs: list[Pair]) -> Iterator[tuple[Pair, int]]:
    """Pairs between what is held and what is not, with the sign of the flow into the latter."""
    for pair in pairs:
        first, second = (body.materials[k].held for k in pair)
        if first != second:
            yield pair, 1 if first else -1


def described(materials: tuple[RegionMaterial, ...]) -> list[str]:
    """Names of materials, each different from the others."""
    names = [it.name for it in materials]
    return [
        f"{it.name} (held)" if it.held and names.count(it.name) > 1 else it.name for it in materials
    ]
