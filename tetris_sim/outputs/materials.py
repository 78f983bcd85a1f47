"""Materials of a body: where they are, their temperatures and heat, the heat flows between them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model import reference
from tetris_sim.model.conduction import Conduction, Ids, Numbers
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Problem, passage
from tetris_sim.model.reference import Seen
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.regions import Neighbours, OutputRegion, blocks, exact_sum, whole
from tetris_sim.outputs.sampling import MOST_POINTS, CrossSection, Plane, Values, sample

Pair = tuple[int, int]


@dataclass(frozen=True)
class RegionMaterial:
    """Points of one material name; those whose state is held (a fluid, a void) count separately.

    Attributes:
        name: name of the material.
        held: whether the state of its points does not change.
    """

    name: str
    held: bool


@dataclass(frozen=True, eq=False)
class BodyMaterials:
    """Materials, capacities and flows of a problem with heat conduction.

    Attributes:
        problem: the problem.
    """

    problem: Problem

    @property
    def conduction(self) -> Conduction:
        """The conduction of the problem."""
        assert self.problem.conduction is not None
        return self.problem.conduction

    @functools.cached_property
    def materials(self) -> tuple[RegionMaterial, ...]:
        """All materials that have an id, in the order of their first ids."""
        return tuple(dict.fromkeys(self._material_of_id))

    @functools.cached_property
    def numbers(self) -> npt.NDArray[np.int64]:
        """The number of the material of each id, (n_ids,)."""
        return np.array([self.materials.index(it) for it in self._material_of_id])

    @property
    def _material_of_id(self) -> list[RegionMaterial]:
        medium = self.conduction.medium
        # Infinite heat capacity marks a state that is held.
        held = np.isinf(medium.capacity)
        return [RegionMaterial(*of_id) for of_id in zip(medium.names, held.tolist(), strict=True)]

    def ids(self, box: Box) -> Ids:
        """The ids of the points of a box inside the grid."""
        return self.conduction.medium.ids(box)

    def volume(self, box: Box) -> Numbers:
        """Volumes of the cells of a box [m^3]: an array, or one number for all."""
        if self.conduction.coefficients is not None:
            return self.conduction.coefficients.volume(box)
        return np.array(self.problem.grid.cell_volume)

    def capacity(self, box: Box, ids: Ids | np.unsignedinteger[Any]) -> Numbers:
        """Heat capacities of the cells of a box [J/K]; 0 where the state is held."""
        if self.conduction.coefficients is not None:
            capacity = self.conduction.coefficients.capacity(box)
        else:
            capacity = self.conduction.medium.capacity[ids] * self.problem.grid.cell_volume
        return np.where(np.isinf(capacity), 0.0, capacity)

    def flow(self, axis: int, box: Box, here: tuple[Seen, Ids], there: tuple[Seen, Ids]) -> Numbers:
        """Heat flow into the cells `here` from `there`, through the upper faces of a box [W].

        Args:
            axis: axis normal to the faces.
            box: the cells whose upper faces they are.
            here: (state, ids) of the cells on one side.
            there: (state, ids) of the cells or ghosts on the other.
        """
        between = passage(self.problem, axis, box, here[1], there[1], "high")
        flow = reference.flow_by(self.problem, between, here, there).astype(np.float64)
        # With coefficients per cell the flow is in watts already, otherwise per volume.
        by_cell = self.conduction.coefficients is not None
        return flow if by_cell else flow * self.problem.grid.cell_volume

    def lets_pass(self, axis: int, box: Box, ids: Ids, beside: Ids) -> npt.NDArray[np.bool_]:
        """Mask of the upper faces of the cells of a box through which heat can flow."""
        conduction = self.conduction
        enthalpy = conduction.enthalpy
        if (given := conduction.coefficients) is not None:
            conducts = given.conductance(axis, box) > 0
            if conduction.radiates:
                conducts = conducts | (given.radiance(axis, box) > 0)
            return np.asarray(conducts)
        # Enthalpy method: resistances in series, half a cell on either side and the contact.
        if enthalpy is not None:
            half = enthalpy.half[axis]
            total = half[ids] + half[beside] + enthalpy.contact[axis][ids, beside]
            return np.asarray(np.isfinite(total) | (enthalpy.radiance[axis][ids, beside] > 0))
        return np.asarray(conduction.medium.conductance[axis][ids, beside] > 0)

    def seams(self) -> Iterator[tuple[int, Box, Box]]:
        """Periodic seams in blocks: (axis, box in the last plane, box in the first plane)."""
        grid = self.problem.grid
        for axis in range(grid.ndim):
            if self.problem.boundary.periodic(axis):
                last, first = (plane_blocks(grid.shape, axis, at) for at in (-1, 0))
                yield from ((axis, *pair) for pair in zip(last, first, strict=True))


def plane_blocks(shape: tuple[int, ...], axis: int, index: int) -> Iterator[Box]:
    """Boxes that cover one plane normal to an axis; index -1 means the last plane."""
    at = index % shape[axis]
    for box in blocks((*shape[:axis], 1, *shape[axis + 1 :]), 8):
        yield (*box[:axis], (at, at + 1), *box[axis + 1 :])


@dataclass
class Warmth:
    """Running statistics of the points of a material, block by block.

    Attributes:
        low: the lowest value.
        high: the highest value.
        heat: stored heat of each block, measured from 0 [J].
        integral: integral of the value over the volume of each block.
        volume: volume of each block [m^3].
    """

    low: float = math.inf
    high: float = -math.inf
    heat: list[float] = field(default_factory=list)
    integral: list[float] = field(default_factory=list)
    volume: list[float] = field(default_factory=list)

    def add(self, values: Numbers, state: Numbers, capacity: Numbers, volume: Numbers) -> None:
        """Add some points; capacity and volume are given per point, or as one number for all."""
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
    """Statistics of a body in one state.

    Attributes:
        warmth: the statistics of each material.
        passed: heat flow from material to material, (n_materials, n_materials) [W].
        touching: mask of the pairs of materials in contact through which heat can flow.
    """

    warmth: list[Warmth]
    passed: Numbers
    touching: npt.NDArray[np.bool_]

    def flow(self, pair: Pair) -> float:
        """Net heat flow from the first of two materials to the second [W]."""
        return float(self.passed[pair] - self.passed[pair[::-1]])

    @property
    def pairs(self) -> list[Pair]:
        """Pairs of different materials in contact."""
        # A contact counts whichever of the two lies below; each pair once, smaller number first.
        both = self.touching | self.touching.T
        return [(int(a), int(b)) for a, b in np.argwhere(np.triu(both, 1))]


def survey(body: BodyMaterials, snapshot: Snapshot | None) -> MaterialSummary:
    """Scan a state block by block; without a state, only the materials and their contacts.

    Blocks, and hence all bits of the sums, depend on the grid alone.
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

        # The faces between cells of this block and to its upper neighbours; each face belongs to
        # the block of its lower cell, so it is counted once.
        for axis in range(problem.grid.ndim):
            along = (*core[:axis], slice(None), *core[axis + 1 :])
            first, second = (
                (*core[:axis], part, *core[axis + 1 :]) for part in (slice(0, -1), slice(1, None))
            )
            if ids[along].shape[axis] > 1:
                low = (*box[:axis], (wide[axis][0], wide[axis][1] - 1), *box[axis + 1 :])
                sides = [(state[it], ids[it]) for it in (first, second)]
                _add_faces(body, found, axis, low, *sides)

    # Faces across periodic seams belong to no block.
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

    # Without coefficients capacity and volume are numbers per id, otherwise arrays per cell.
    by_id = body.conduction.coefficients is None
    counts = np.bincount(ids.ravel())
    for number in np.flatnonzero(counts):
        # A block of a single id needs no mask.
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
    """Add the faces between cells with different ids.

    Args:
        body: the body.
        found: the summary to add to.
        axis: axis normal to the faces.
        box: the cells below the faces.
        low: (state, ids) of these cells.
        high: (state, ids) of their upper neighbours.
    """
    (state, ids), (above, beside) = low, high
    # Within one id there is one material, so no flow between materials.
    between = ids != beside
    if not between.any():
        return

    if body.conduction.coefficients is None:  # then ids alone determine the flow
        state, ids, above, beside = (it[between] for it in (state, ids, above, beside))
    here = reference.potentials(body.conduction, state, ids), ids
    there = reference.potentials(body.conduction, above, beside), beside
    passed = -body.flow(axis, box, here, there)

    first, second = body.numbers[ids], body.numbers[beside]
    open_faces = (first != second) & body.lets_pass(axis, box, ids, beside)
    numbers = first[open_faces], second[open_faces]
    found.touching[numbers] = True
    # Unbuffered: the same pair of materials occurs many times.
    np.add.at(found.passed, numbers, passed[open_faces])


def held_pairs(body: BodyMaterials, pairs: list[Pair]) -> Iterator[tuple[Pair, int]]:
    """Pairs of a held and a free material, with the sign of the flow into the free one."""
    for pair in pairs:
        first, second = (body.materials[k].held for k in pair)
        if first != second:
            yield pair, 1 if first else -1


def described(materials: tuple[RegionMaterial, ...]) -> list[str]:
    """Names of materials, all different: a held one is marked where another has its name."""
    names = [it.name for it in materials]
    return [
        f"{it.name} (held)" if it.held and names.count(it.name) > 1 else it.name for it in materials
    ]


# Maps of the cells: what lies where, for files beside the fields, and for pictures.


@dataclass(frozen=True, eq=False)
class CellMap:
    """A number for every cell, which stands for a name and does not change.

    Attributes:
        name: "material" or "region".
        meanings: the name of each number.
        outside: the numbers of cells that are no part of the body: fluids and voids.
        read: the numbers of the cells of a box of the part of the field.
    """

    name: str
    meanings: tuple[str, ...]
    outside: tuple[int, ...]
    read: Callable[[Box], npt.NDArray[np.integer[Any]]]

    @property
    def dtype(self) -> np.dtype[np.integer[Any]]:
        """The smallest type that readers of all formats know."""
        return np.dtype(np.uint8 if len(self.meanings) <= 256 else np.int32)

    @property
    def attributes(self) -> dict[str, Any]:
        """The names of the numbers by the CF conventions (1.12, section 3.5, "Flags")."""
        numbers = np.arange(len(self.meanings), dtype=self.dtype)
        return {
            "long_name": f"{self.name} of the cell",
            "flag_values": numbers,
            # Names are divided by blanks, so they have none of their own.
            "flag_meanings": " ".join("_".join(it.split()) for it in self.meanings),
            "outside": np.array(self.outside, dtype=self.dtype),
        }


def cell_maps(problem: Problem, part: OutputRegion | None = None) -> tuple[CellMap, ...]:
    """The maps of materials and regions of a part of the field; those of a single one are left out.

    On a slice between two cells they say what the values are of: the body rather than a fluid, and
    a fluid rather than a void.
    """
    if problem.conduction is None:
        return ()
    body, axes = BodyMaterials(problem), (part or whole(problem)).axes
    medium, held = body.conduction.medium, [it.held for it in body.materials]

    found = [
        CellMap(
            "material",
            tuple(described(body.materials)),
            tuple(number for number, it in enumerate(held) if it),
            lambda box: body.numbers[_of_part(body, axes, box, body.ids)],
        )
    ]
    if (regions := medium.regions) is not None:
        read = regions.read
        found.append(
            CellMap("region", regions.names, (), lambda box: _of_part(body, axes, box, read))
        )
    return tuple(it for it in found if len(it.meanings) > 1)


def sample_materials(
    maps: Sequence[CellMap], grid: Grid, cuts: Sequence[CrossSection], *, most: int = MOST_POINTS
) -> tuple[Plane, ...]:
    """Materials on the planes of a picture; those outside of the body are -1. None for one."""
    found = [it for it in maps if it.name == "material"]
    if not found:
        return ()
    (it,) = found

    def read(box: Box) -> Values:
        numbers = it.read(box).astype(np.float64)
        # Fluids and voids stay apart from each other: their borders are drawn.
        return np.where(np.isin(numbers, it.outside), -1 - numbers, numbers)

    return sample(read, grid, cuts, most=most)


def show_body(planes: Sequence[Plane], materials: Sequence[Plane]) -> tuple[Plane, ...]:
    """The planes of a picture with the borders of materials; blank in fluids and voids, so that
    colours are those of the body.

    Args:
        planes: of the field.
        materials: as `sample_materials` gives them, on the same planes; none for one material.
    """
    if not materials:
        return tuple(planes)
    shown = []
    for plane, numbers in zip(planes, materials, strict=True):
        # NaN is outside of a round picture.
        outside = ~(numbers.values >= 0)
        # A cut through nothing but fluid shows the fluid.
        values = plane.values if outside.all() else np.where(outside, np.nan, plane.values)

        shown.append(
            replace(
                plane,
                values=values,
                materials=np.nan_to_num(numbers.values, nan=-1).astype(np.int64),
            )
        )
    return tuple(shown)


def _of_part(
    body: BodyMaterials, axes: tuple[Any, ...], box: Box, read: Callable[[Box], Ids]
) -> npt.NDArray[Any]:
    """Apply `read` to the cells of a box within a part of the field."""
    spans = iter(box)
    # The cells along each axis: a run of them, or the one or two that a position lies in.
    choices: list[list[tuple[int, int]]] = []
    for axis in axes:
        if isinstance(axis, Neighbours):
            near = [cell for cell, *_ in axis.cells] or list(axis.indices[:1])
            choices.append([(cell, cell + 1) for cell in near])
        else:
            low, high = next(spans)
            choices.append([(axis[0] + low, axis[0] + high)])
    cut = tuple(k for k, axis in enumerate(axes) if isinstance(axis, Neighbours))

    # What comes before what on a slice between two cells.
    medium = body.conduction.medium
    rank = np.where(np.isinf(medium.capacity), 1, 2)
    if medium.void is not None:
        rank[medium.void] = 0

    found, best = np.zeros(0, int), np.zeros(0, int)
    for number, chosen in enumerate(itertools.product(*choices)):
        here, own = read(chosen).squeeze(cut), rank[body.ids(chosen).squeeze(cut)]
        found = here if number == 0 else np.where(own > best, here, found)
        best = own if number == 0 else np.maximum(own, best)
    return found
