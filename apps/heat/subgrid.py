"""True volumes and areas of what a body shows, by lines finer than its cells.

Cells beside surfaces are divided, by the walls of boxes and where something is not parallel to the
axes into parts alike. What a line from one part to the next crosses is known to rounding for a
plane, and each crossing stands for an area and a volume (`surfaces.py`). Boxes are exact so, smooth
surfaces converge to the second order, and at an edge a part at most is uncertain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.heat.labels import PolygonSurface
from tetris_sim.apps.heat.shapes import ON_FACE, Layer, Place
from tetris_sim.apps.heat.surfaces import (
    CrossedFaces,
    Crossings,
    Mask,
    Numbers,
    PlacedSurfaces,
    Places,
    TriangleSurface,
    Voxels,
    aligned,
)
from tetris_sim.apps.initial_file import Box
from tetris_sim.model.grid import Grid

Layers = npt.NDArray[np.int32]
_MOST_PARTS = 450_000  # of cells beside surfaces, looked at in less than half a second
_FINEST = {1: 1, 2: 16, 3: 4}  # parts of a cell along an axis, by number of axes
_NOTHING = -1


@dataclass(frozen=True, eq=False)
class Shapes:
    """The shapes of regions and sources on a grid.

    Attributes:
        grid: where points lie.
        layers: in the order in which they are painted.
        filling_of_layer: (n_layers,).
        regions: the place of each, and the surfaces within it if it has labels.
        sources: number, place, and which layers it heats.
    """

    grid: Grid
    layers: Sequence[Layer]
    filling_of_layer: Layers
    regions: Sequence[tuple[Place, PlacedSurfaces | None]]
    sources: Sequence[tuple[int, Place, Mask]]

    @property
    def places(self) -> list[Place]:
        """Of regions and sources."""
        return [it for it, _ in self.regions] + [it for _, it, _ in self.sources]

    @property
    def are_boxes(self) -> bool:
        """Whether all walls are parallel to the axes."""
        return all(it.is_aligned for it in self.places) and not any(it for _, it in self.regions)

    @property
    def are_whole(self) -> bool:
        """Whether true sizes are those of cells, or known by cells only."""
        labels = [it for _, it in self.regions]
        return all(it.is_whole for it in self.places) and all(
            it is None or isinstance(it, Voxels) for it in labels
        )

    def surface(self, axis: int, below: Places, upper: Layers) -> tuple[Crossings, Mask]:
        """The surface of the later of two regions that meet, and whether it is that of something
        with walls off the faces of cells; `upper` are its layers.
        """
        found, floats = aligned(len(below)), np.zeros(len(below), np.bool_)
        for layer in np.unique(upper):
            of = self.layers[layer]
            place, labels = self.regions[of.region]
            here = upper == layer
            if place.is_whole and labels is None:
                continue

            crossed = place.crossings(axis, below[here], None)
            if labels is not None:
                crossed = crossed.sharper(labels.crossings(axis, below[here], of.label))
            whole = np.zeros((3, len(below)))
            whole[:, here] = crossed.share, crossed.place, crossed.weight
            found = Crossings(*whole).where(here, found)
            floats |= here & place.is_aligned & (labels is None)
        return found, floats

    def faces(self, axis: int, below: Places, crossings: Crossings, floats: Mask) -> CrossedFaces:
        """Return all that is known of the upper faces of some cells along an axis."""
        grid = self.grid
        area = grid.areas_at(axis, below)
        beyond = crossings.place - grid.ends(axis)[below[:, axis] + 1]
        # Walls on the faces of cells are no walls beside them.
        widths = grid.widths(axis)[below[:, axis]]
        beyond = np.where(np.abs(beyond) > ON_FACE * widths, beyond, 0.0)
        beyond *= grid.scale_at(axis, below)
        floats = (floats | (beyond != 0)) & (crossings.share == 1)
        # The squares of the shares of all axes add up to 1 on a surface, and where a surface is
        # hardly seen along an axis its place is inaccurate and its share small.
        return CrossedFaces(below, crossings, area, crossings.share**2 * beyond * area, floats)

    def crossed(
        self, axis: int, below: Places, ends: Sequence[Layers]
    ) -> tuple[CrossedFaces, list[Layers], Mask]:
        """Those of some faces across which fillings change, the fillings on both sides, and which
        faces these are.
        """
        pair = [self.filling_of_layer[it] for it in ends]
        differ = pair[0] != pair[1]
        below, upper = below[differ], np.maximum(*ends)[differ]
        faces = self.faces(axis, below, *self.surface(axis, below, upper))
        return faces, [it[differ] for it in pair], differ

    def crossed_of_source(
        self, place: Place, axis: int, below: Places, ends: Sequence[Layers]
    ) -> CrossedFaces:
        """Faces at which a source ends, at its own wall or at that of what it heats."""
        found = place.crossings(axis, below, None)
        other, _ = self.surface(axis, below, np.maximum(*ends))
        changed = ends[0] != ends[1]
        other = other.where(changed, aligned(len(below)))
        none = np.zeros(len(below), np.bool_)
        return self.faces(axis, below, found.sharper(other), none)


@dataclass(eq=False)
class Sizes:
    """Sizes as lines find them.

    Attributes:
        gains: by filling, its volume without that of its cells [m^3].
        sources: the same by the number of a source [m^3].
        areas: by pair of fillings, of walls across each axis and of what is inclined (ndim + 1)
            [m^2].
    """

    gains: Numbers
    sources: dict[int, float]
    areas: dict[tuple[int, int], Numbers]

    def add(self, axis: int, faces: CrossedFaces, pair: Sequence[Layers], along: Numbers) -> None:
        """Add faces along an axis, that stand for areas `along` [m^2]."""
        if not len(along):
            return
        code, n = pair[0].astype(np.int64) * len(self.gains) + pair[1], len(self.gains)
        for a, b in (divmod(int(it), n) for it in np.unique(code)):
            here = code == a * n + b
            gain = float(faces.gain[here].sum())
            flat = here & (faces.crossings.share == 1)
            own = self.areas.setdefault((min(a, b), max(a, b)), np.zeros(faces.below.shape[1] + 1))
            own[axis] += along[flat].sum()
            own[-1] += along[here & ~flat].sum()
            self.gains[a] += gain
            self.gains[b] -= gain


class Subgrid:
    """The shapes of a body on a grid whose cells are parts of cells."""

    def __init__(self, shapes: Shapes, remake: Callable[[Grid], Shapes]) -> None:
        """Divide cells.

        Args:
            shapes: on the cells.
            remake: the same shapes on another grid.
        """
        # Boxes need no parts: their walls are ends of parts, and nothing else is cut.
        self._coarse, grid = shapes, shapes.grid
        parts = 1 if shapes.are_boxes else _parts(grid.shape)
        edges, self._starts = [], []
        for axis in range(grid.ndim):
            walls = [wall for place in shapes.places for wall in place.walls[axis]]
            ends, divided = grid.ends(axis), _divided(grid, axis, parts, walls)
            edges.append(tuple(divided.tolist()))
            self._starts.append(np.searchsorted(divided, ends))

        # Where a cell begins, a part does: ends of cells are ends of parts to the bit.
        counts = tuple(len(it) - 1 for it in edges)
        fine = Grid.graded(counts, grid.size, edges, system=grid.system)
        self._fine = remake(fine)
        self._cell_of = [
            np.repeat(np.arange(n), np.diff(it))
            for n, it in zip(grid.shape, self._starts, strict=True)
        ]
        self._labels: list[PlacedSurfaces | None] = [
            _parted(labels, self._cell_of, fine) for _, labels in shapes.regions
        ]
        regions = zip((it for it, _ in self._fine.regions), self._labels, strict=True)
        self._fine = replace(self._fine, regions=list(regions))

    def measure(self, box: Box, into: Sizes, look: Callable[[Box], tuple[Layers, Any]]) -> None:
        """Add the sizes within a box of cells.

        Args:
            box: of global indices; boxes that make up the grid give the sizes of the whole.
            into: sums.
            look: the layers of the cells of a box, and which of them each source heats.
        """
        # One cell more above for its neighbours, and one around that tells where surfaces are.
        shape = self._coarse.grid.shape
        wide = tuple(
            (max(low - 1, 0), min(high + 2, n)) for (low, high), n in zip(box, shape, strict=True)
        )
        # Far from all surfaces a part is what its cell is, and adds nothing.
        corner = np.array(wide)[:, 0]
        coarse, heats = look(wide)
        mixed = functools.reduce(np.logical_or, map(_mixed, (coarse, *heats)))
        for axis, ((_, high), (low, _)) in enumerate(zip(box, wide, strict=True)):
            np.moveaxis(mixed, axis, 0)[high + 1 - low :] = False
            np.moveaxis(mixed, axis, 0)[: box[axis][0] - low] = False
        cells = np.argwhere(mixed)
        if not len(cells):
            return

        # Cells above the box are neighbours only: their own box counts them.
        own = (cells + corner < np.array(box)[:, 1]).all(axis=1)
        parts = _PartsOfCells.of(cells, corner, mixed.shape, self._starts)
        layers = self._layers_at(parts.places, coarse[tuple(cells.T)][parts.cell])
        mine = own[parts.cell]
        grid, fine, fillings = self._coarse.grid, self._fine.grid, self._coarse.filling_of_layer
        volumes = fine.volumes_at(parts.places[mine])
        # Gains are relative to whole cells, so that what is not cut has none to the bit.
        of_cells = grid.volumes_at(cells[own] + corner)
        here = fillings[coarse[tuple(cells[own].T)]]
        into.gains += np.bincount(fillings[layers[mine]], volumes, len(into.gains))
        into.gains -= np.bincount(here, of_cells, len(into.gains))

        heated = []
        for (number, place, of_layer), marks in zip(self._fine.sources, heats, strict=True):
            inside = place.at(parts.places) & of_layer[layers]
            heated.append(inside)
            # A source heats what its parts show, not what its cells do.
            before = of_cells[marks[tuple(cells[own].T)]].sum()
            into.sources[number] += float(volumes[inside[mine]].sum() - before)

        for axis in range(grid.ndim):
            sides = parts.pairs(axis, own, (layers, *heated))
            self._cross(axis, parts.places, sides, layers, heated, into)

    def _cross(
        self,
        axis: int,
        places: Places,
        sides: tuple[Places, Places],
        layers: Layers,
        heated: Sequence[Mask],
        into: Sizes,
    ) -> None:
        """Add what surfaces cross on lines from some parts to others."""
        low, high = sides
        # Most pairs of parts are alike.
        changed = np.flatnonzero(layers[low] != layers[high])
        ends = [layers[it[changed]] for it in sides]
        faces, pair, _ = self._fine.crossed(axis, places[low[changed]], ends)
        # The volumes of thin lines are shared between axes as their areas are.
        weight, share = faces.crossings.weight, faces.crossings.share
        gain = faces.gain * weight / np.maximum(share, 1e-30)
        into.add(axis, replace(faces, gain=gain), pair, weight * faces.area)

        for (number, place, _), inside in zip(self._fine.sources, heated, strict=True):
            turns = np.flatnonzero(inside[low] != inside[high])
            ends = [layers[it[turns]] for it in sides]
            edge = self._fine.crossed_of_source(place, axis, places[low[turns]], ends)
            weight, share = edge.crossings.weight, edge.crossings.share
            sign = np.where(inside[low[turns]], 1.0, -1.0)
            gain = edge.gain * weight / np.maximum(share, 1e-30)
            into.sources[number] += float((sign * gain).sum())

    def _layers_at(self, places: Places, otherwise: Layers) -> Layers:
        """The layers of some parts; those that no region covers show what their cell does."""
        found = np.full(len(places), _NOTHING, np.int32)
        by_region: dict[int, dict[int | None, int]] = {}
        for n, it in enumerate(self._fine.layers):
            by_region.setdefault(it.region, {})[it.label] = n

        for number, (place, labels) in enumerate(self._fine.regions):
            inside, of = place.at(places), by_region[number]
            if labels is None:
                found[inside] = of[None]
                continue
            # As in painting, labels that have no material show what was there before.
            marked: npt.NDArray[Any] = np.asarray(labels.at(places[inside]))
            if None in of:
                layer = np.where(marked != 0, of[None], _NOTHING)
            else:
                layer = np.full(len(marked), _NOTHING)
                for label, own in of.items():
                    layer[marked == label] = own
            found[inside] = np.where(layer == _NOTHING, found[inside], layer)
        return np.where(found == _NOTHING, otherwise, found)


@dataclass(frozen=True, eq=False)
class _PartsOfCells:
    """The parts of some cells, cell by cell.

    Attributes:
        places: of each part on the fine grid, (n, ndim).
        cell: the number of its cell, (n,).
        local: its place in the cell, (n, ndim).
        counts: of parts by cell and axis.
        first: the number of the first part of each cell.
        above: by axis, the number of the next cell, -1 if it is none of these.
    """

    places: Places
    cell: Places
    local: Places
    counts: Places
    first: Places
    above: Sequence[Places]

    @classmethod
    def of(
        cls, cells: Places, corner: Places, shape: tuple[int, ...], starts: Sequence[Places]
    ) -> _PartsOfCells:
        """Number the parts of cells of a box of some shape at a corner."""
        at = cells + corner
        begins = np.stack([it[at[:, k]] for k, it in enumerate(starts)], axis=1)
        counts = np.stack([it[at[:, k] + 1] for k, it in enumerate(starts)], axis=1) - begins
        total = counts.prod(axis=1)
        first = np.cumsum(total) - total
        cell = np.repeat(np.arange(len(cells)), total)
        left, local = np.arange(len(cell)) - first[cell], np.empty((len(cell), len(shape)), int)
        for axis in reversed(range(len(shape))):
            left, local[:, axis] = np.divmod(left, counts[cell, axis])

        # One row more than there are cells, so that the last ones have none above them.
        slots = np.full(tuple(n + 1 for n in shape), -1)
        slots[tuple(cells.T)] = np.arange(len(cells))
        steps = np.eye(len(shape), dtype=np.int64)
        above = [slots[tuple((cells + step).T)] for step in steps]
        return cls(begins[cell] + local, cell, local, counts, first, above)

    def pairs(
        self, axis: int, chosen: Mask, values: Sequence[npt.NDArray[Any]]
    ) -> tuple[Places, Places]:
        """Numbers of parts that have another one above along an axis, and of that: those of chosen
        cells, and of these where some of the values of parts may differ.
        """
        many, after = np.zeros(len(self.first), np.bool_), self.above[axis]
        unlike = np.zeros(len(self.first), np.bool_)
        # Two cells of one and the same value meet at no surface.
        for it in values:
            least, most = (find.reduceat(it, self.first) for find in (np.minimum, np.maximum))
            many |= least != most
            unlike |= least != least[after]
        joined = chosen & (after >= 0) & (many | many[after] | unlike)

        inner = np.flatnonzero((chosen & many)[self.cell])
        inner = inner[self.local[inner, axis] < self.counts[self.cell[inner], axis] - 1]
        stride = self.counts[:, axis + 1 :].prod(axis=1)
        outer = np.flatnonzero(joined[self.cell])
        outer = outer[self.local[outer, axis] == self.counts[self.cell[outer], axis] - 1]

        # The first along the axis of the next cell, at the same place along the others.
        beyond, local = after[self.cell[outer]], self.local[outer].copy()
        local[:, axis] = 0
        offset = np.zeros(len(outer), np.int64)
        for k in range(local.shape[1]):
            offset = offset * self.counts[beyond, k] + local[:, k]
        low = np.concatenate([inner, outer])
        return low, np.concatenate([inner + stride[self.cell[inner]], self.first[beyond] + offset])


def _parts(shape: tuple[int, ...]) -> int:
    """Into how many parts cells are divided along an axis: fewer where there are more of them."""
    ndim = len(shape)
    beside = 6 * prod(shape) ** ((ndim - 1) / ndim)
    most = _MOST_PARTS + prod(shape) / 2  # no more work than the look at every cell
    return max(1, min(_FINEST[ndim], int((most / beside) ** (1 / ndim))))


def _divided(grid: Grid, axis: int, parts: int, walls: Sequence[float]) -> Numbers:
    """Ends of cells, of their parts, and walls off these [m], ascending."""
    ends, widths = grid.ends(axis), grid.widths(axis)
    # A wall on an end of a part is that end: parts of no width have no centre.
    inner = ends[:-1, None] + widths[:, None] * np.arange(parts) / parts
    found = np.append(inner.reshape(-1), ends[-1])
    for wall in sorted({it for it in walls if np.isfinite(it)}):
        near = int(np.argmin(np.abs(found - wall)))
        if abs(found[near] - wall) > ON_FACE * widths.min():
            found = np.sort(np.append(found, wall))
    return found


def _mixed(values: npt.NDArray[Any]) -> Mask:
    """Whether cells have others than themselves around them, corners included."""
    least, most = values, values
    for axis in range(values.ndim):
        for choose in (np.minimum, np.maximum):
            given = np.moveaxis(least if choose is np.minimum else most, axis, 0)
            found = given.copy()
            choose(found[1:], given[:-1], out=found[1:])
            choose(found[:-1], given[1:], out=found[:-1])
            found = np.moveaxis(found, 0, axis)
            least, most = (found, most) if choose is np.minimum else (least, found)
    return np.asarray(least != most)


def _parted(
    labels: PlacedSurfaces | None, cell_of: Sequence[Places], fine: Grid
) -> PlacedSurfaces | None:
    """Surfaces on the parts of cells."""
    if isinstance(labels, TriangleSurface | PolygonSurface):
        return labels.on(fine)
    return None if labels is None else _OfCells(labels, cell_of)


@dataclass(frozen=True, eq=False)
class _OfCells:
    """Labels of cells, which all of their parts have.

    Attributes:
        labels: of cells.
        cell_of: by axis, the cell of each part.
    """

    labels: PlacedSurfaces
    cell_of: Sequence[Places]

    def _cells(self, places: Places) -> Places:
        return np.stack([it[places[:, k]] for k, it in enumerate(self.cell_of)], axis=1)

    def at(self, places: Places) -> npt.NDArray[Any]:
        """See `PlacedSurfaces`."""
        return self.labels.at(self._cells(places))

    def crossings(self, axis: int, below: Places, label: int | None) -> Crossings:
        """See `PlacedSurfaces`: those of cells, once for all of their parts."""
        if not len(below):
            return aligned(0)
        cells, number = np.unique(self._cells(below), axis=0, return_inverse=True)
        found = self.labels.crossings(axis, cells, label)
        number = number.reshape(-1)
        return Crossings(found.share[number], found.place[number], found.weight[number])


def factors(
    true: Numbers, whole: Numbers, floating: Numbers, inclined: float
) -> tuple[Numbers, float]:
    """By how much the faces of a surface have to count more: those of walls off the faces of
    cells, by axis (ndim,), and those of what is inclined; the sum is the true area.

    Args:
        true: area of walls across each axis and of what is inclined, (ndim + 1,) [m^2].
        whole: area of the faces of cells on walls that lie on them, by axis (ndim,) [m^2].
        floating: the same of walls off them.
        inclined: share of faces times their area, of what is inclined.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        flat = np.where(floating > 0, (true[:-1] - whole) / floating, 1.0)
    flat = _bounded(flat)
    rest = float(true.sum() - whole.sum() - (floating * flat).sum())
    if inclined > 0:
        return flat, float(_bounded(np.array(rest / inclined)))
    if (total := float((floating * flat).sum())) > 0:
        flat = _bounded(flat * (1 + rest / total))
    return flat, 1.0


def _bounded(factor: Numbers) -> Numbers:
    """Keep what a shape smaller than cells asks for in bounds, and drop rounding."""
    return np.where(np.abs(factor - 1) < 1e-9, 1.0, np.clip(factor, 0.5, 2.0))


def on_parts(grid: Grid, cells: Grid, box: Box, which: Mask) -> tuple[Box, Mask]:
    """Return a mask of a box of cells on a grid that divides them, with its box there."""
    spans, parts = [], []
    for axis, (low, high) in enumerate(box):
        cell = np.searchsorted(cells.ends(axis), grid.coordinates(axis)) - 1
        inside = np.flatnonzero((cell >= low) & (cell < high))
        first = int(inside[0]) if len(inside) else 0
        spans.append((first, first + len(inside)))
        parts.append(cell[inside] - low)
    return tuple(spans), which[np.ix_(*parts)]


@dataclass(frozen=True, eq=False)
class SeenFaces:
    """Faces as the cells beside them see them, a cell more than once.

    Attributes:
        axis: of the face.
        number: of the cell in its block.
        kind: of the face.
        share: see `Crossings`.
        gain: how much of what fills the cell lies beyond the face [m^3].
        cut: whether the surface cuts the cell, or the one beside it.
        carries: whether the cell knows the area by which heat is exchanged there.
        code: of the pair of fillings.
        reach: from the centre of the cell to the wall, in halves of its width.
        beyond: the filling beyond the face.
    """

    axis: Places
    number: Places
    kind: Places
    share: Numbers
    gain: Numbers
    cut: Mask
    carries: Mask
    code: Places
    reach: Numbers
    beyond: Places

    def chosen(self, these: Mask) -> SeenFaces:
        """Some of them."""
        return SeenFaces(*(getattr(self, it.name)[these] for it in fields(self)))
