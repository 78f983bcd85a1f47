"""Geometry of a body: the rasterization of regions and sources onto the points of the grid.

`RasterizedBody` lays the shapes of regions (`shapes.py`) over one another. A point's state is its
filling and the set of sources over it. States are numbered in the order in which the scan of the
grid finds them, block by block (`survey.py`); afterwards the numbers are fixed. Blocks are anchored
to global indices, so a point's state does not depend on the domain decomposition.

Cells beside a surface that is not parallel to the axes have fillings of their own, which know how
much of the stairs is surface, and how much of the cells is body.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.domain import make_each
from tetris_sim.apps.heat.materials import ContactSection
from tetris_sim.apps.heat.sections import (
    RegionSection,
    Substance,
    VolumeSource,
)
from tetris_sim.apps.heat.shapes import Filling, Layer, Place, open_labels
from tetris_sim.apps.heat.surfaces import (
    CrossedFaces,
    Crossings,
    Mask,
    Places,
    Surfaces,
    changes,
    direction_of,
    unique_rows,
)
from tetris_sim.apps.initial import (
    BLOCK_POINTS,
    block_box,
    blocks_of,
    first_place,
    shape_of,
    slices_in,
)
from tetris_sim.apps.initial_file import Box
from tetris_sim.model.grid import Grid
from tetris_sim.support.wording import listed

Numbers = npt.NDArray[np.float64]
States = npt.NDArray[np.int32]
_KEPT_BLOCKS, _MOST_KEPT = 8, 256  # of 2^18 states each
_LEAST_FULL = 0.5  # a cut cell holds no less, whatever a shape smaller than cells asks for
_NOTHING = -1


class RasterizedBody:
    """The state of every point, computed block by block and cached.

    Attributes:
        fillings: of the points, by number; those of cells beside inclined surfaces are added as
            they are found.
        bases: by filling, the number of the one that it is a variant of.
        states: (filling, numbers of the sources) by number.
        covered: numbers of the regions and of the sources found at some point so far.
        left: numbers of the regions that no later one covers at some point so far.
        mistakes: found so far, by key.
        gains: by filling that is no variant, the volume between its true surface and the faces of
            its cells [m^3].
        areas: of surfaces, by the pair of fillings that meet there, as the true surface and as the
            faces of cells [m^2]; only where some surface is not parallel to the axes.
    """

    def __init__(
        self,
        grid: Grid,
        regions: Sequence[RegionSection],
        sources: Sequence[tuple[int, VolumeSource]],
        substances: Sequence[Substance],
        contacts: Sequence[ContactSection] = (),
    ) -> None:
        """Open all files and compile all conditions.

        Args:
            grid: where points lie.
            regions: later ones over earlier ones.
            sources: with their number in the configuration.
            substances: known materials; regions may name them.
            contacts: resistances of joints.

        Raises:
            ConfigError: a file or a condition cannot be used.
        """
        self.grid, self.regions = grid, regions
        self.fillings: list[Filling] = [Filling(it.name, substance=it) for it in substances]
        self.layers: list[Layer] = []
        self.covered: tuple[set[int], set[int]] = (set(), set())
        self.left: set[int] = set()
        self.mistakes: dict[str, str] = {}

        # Opening the shapes appends to `layers` and `fillings`; the table below needs all of them.
        self._shapes: list[tuple[Place, Surfaces | None]] = make_each(
            functools.partial(self._open, n, region) for n, region in enumerate(regions)
        )
        self._filling_of_layer = np.array([it.filling for it in self.layers], np.int32)
        places = make_each(
            functools.partial(Place, source, grid, f"model.sources.{number}")
            for number, source in sources
        )
        self._sources = [
            (number, place, self._layers_of(source))
            for (number, source), place in zip(sources, places, strict=True)
        ]

        # The first states are the fillings without sources, so their numbers coincide.
        self.states: list[tuple[int, tuple[int, ...]]] = [
            (n, ()) for n in range(len(self.fillings))
        ]
        self._numbers = {state: n for n, state in enumerate(self.states)}

        n = len(self.fillings)
        self.bases = list(range(n))
        self._exchanges = self._exchanging(contacts)
        # Of two fillings that exchange heat, a fluid knows the direction of the surface, or the
        # first material of the two.
        fluid = np.array([it.fluid is not None for it in self.fillings], np.bool_)
        first = np.arange(n)[:, None] < np.arange(n)
        self._carriers = fluid[:, None] | (~np.logical_or.outer(fluid, fluid) & first)
        # Whether heat is stored, and as a temperature: heat contents keep the volumes of cells.
        radiates = any(it.emissivity for it in contacts)
        radiates |= any(it.fluid is not None and it.fluid.emissivity > 0 for it in self.fillings)
        self._stores = np.array(
            [it.substance is not None and it.substance.properties is None for it in self.fillings],
            np.bool_,
        ) & np.bool_(not radiates)
        self._variants: dict[tuple[Any, ...], int] = {}
        self._share_sums: list[Numbers] = []  # of each variant, (2, ndim): sums and counts
        self.gains, self._cut_volumes = np.zeros((2, n))
        self._source_gains = dict.fromkeys((number for number, _ in sources), 0.0)
        self._counted: set[tuple[int, ...]] = set()
        self.areas: dict[tuple[int, int], Numbers] = {}
        # Surfaces in one dimension, and those of boxes, are parallel to the axes.
        is_of_boxes = all(
            place.is_aligned and labels is None
            for place, labels in (*self._shapes, *((place, None) for place in places))
        )
        self._is_inclined = grid.ndim > 1 and not is_of_boxes
        # Where the segments of each axis begin: between two of them nothing changes.
        self.segments: list[npt.NDArray[np.int64]] | None = None
        if is_of_boxes:
            every = [place for place, _ in self._shapes] + places
            self.segments = [
                np.unique([0, n, *(np.clip(it, 0, n) for place in every for it in place.walls(k))])
                for k, n in enumerate(grid.shape)
            ]

        # Neighbouring boxes read the same blocks: those of a plane, and of one on either side.
        across = -(-prod(grid.shape[1:]) // BLOCK_POINTS)
        kept = min(_KEPT_BLOCKS + 2 * across, _MOST_KEPT)
        self._block = functools.lru_cache(maxsize=_KEPT_BLOCKS)(self._compute_block)
        self._layered = functools.lru_cache(maxsize=kept)(self._lay)
        self._of_segments = functools.lru_cache(maxsize=kept)(
            lambda spans: self.on(
                [it[slice(*span)] for it, span in zip(self.segments or (), spans, strict=True)]
            )
        )

    def __call__(self, box: Box) -> States:
        """Return the states of the points of a box."""
        found = np.empty(shape_of(box), np.int32)
        for index, inside in blocks_of(self.grid.shape, box):
            block = block_box(self.grid.shape, index)
            found[slices_in(inside, box)] = self._block(index)[slices_in(inside, block)]
        return found

    def on(self, axes: Sequence[npt.NDArray[np.int64]]) -> States:
        """Return the states of the points with some indices along each axis, of a body of boxes."""
        layers = np.full(tuple(map(len, axes)), _NOTHING, np.int32)
        layer_of = {it.region: n for n, it in enumerate(self.layers)}
        for number, (place, _) in enumerate(self._shapes):
            if (inside := place.on(axes)) is not None:
                layers[inside] = layer_of[number]
                self.covered[0].add(number)

        self.left |= {self.layers[it].region for it in np.unique(layers) if it != _NOTHING}
        bare = layers == _NOTHING
        if bare.any():
            first = [int(it[k]) for it, k in zip(axes, np.argwhere(bare)[0], strict=True)]
            self._complain_of_bare(np.ones((1,) * len(axes), np.bool_), [(k, k + 1) for k in first])

        states = self._filling_of_layer[layers]
        for number, place, of_layer in self._sources:
            inside = place.on(axes)
            heated = None if inside is None else of_layer[layers[inside]]
            if inside is not None and heated is not None and heated.any():
                self.covered[1].add(number)
                own = states[inside]
                own[heated] = self._with_source(own[heated], number)
                states[inside] = own
        return states

    def begins(self, box: Box) -> list[npt.NDArray[np.int64]]:
        """Return where the segments of each axis begin in a box of a body of boxes."""
        return [
            np.array([low, *it[(it > low) & (it < high)]])
            for it, (low, high) in zip(self.segments or (), box, strict=True)
        ]

    def in_segments(self, box: Box) -> States:
        """Return the states of the segments that a box touches, of a body of boxes."""
        return self._of_segments(
            tuple(
                (int(np.searchsorted(it, low, "right")) - 1, int(np.searchsorted(it, high)))
                for it, (low, high) in zip(self.segments or (), box, strict=True)
            )
        )

    def spread(
        self, index: tuple[int, ...], of_state: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        """Return the state of each point of an anchored block of a body of boxes, or a number that
        each state has.
        """
        box = block_box(self.grid.shape, index)
        states = self.in_segments(box)
        numbers: npt.NDArray[Any] = states if of_state is None else of_state[states]
        for axis, (begins, (_, high)) in reversed(
            list(enumerate(zip(self.begins(box), box, strict=True)))
        ):
            numbers = np.repeat(numbers, np.diff(begins, append=high), axis)
        return numbers

    def seen(self, region: int, box: Box) -> Mask:
        """Return where the region of a number is seen in a box."""
        # A region with labels has several layers.
        of_layer = np.array([it.region == region for it in self.layers], np.bool_)
        layers, _ = self.layers_in(box)
        return np.asarray(of_layer[layers], np.bool_)

    def blocks(self) -> Iterator[Box]:
        """Iterate over the anchored blocks of the whole grid."""
        whole = tuple((0, n) for n in self.grid.shape)
        return (inside for _, inside in blocks_of(self.grid.shape, whole))

    def shares(self) -> Numbers:
        """By filling and axis, the area of the surface that a face of its cells stands for, per
        area of the face, (n_fillings, ndim): the mean over such faces, once every block was seen.
        """
        found = np.ones((len(self.fillings), self.grid.ndim))
        for filling, (total, count) in zip(
            range(len(self.gains), len(found)), self._share_sums, strict=True
        ):
            found[filling] = np.divide(total, count, out=np.ones_like(total), where=count > 0)
        return found

    def fullness(self) -> Numbers:
        """By filling, the volume of its substance in its cells per volume of the cells, once every
        block was seen, (n_fillings,): what lies on the wrong side of the faces of cells is put
        into the cells that the surface cuts.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.nan_to_num(self.gains / self._cut_volumes, nan=0.0, posinf=0.0, neginf=0.0)
        of_base = np.clip(1 + ratio, _LEAST_FULL, 1 / _LEAST_FULL)
        cut = np.array([it.is_cut for it in self.fillings])
        return np.where(cut, of_base[self.bases], 1.0)

    def source_gain(self, source: int) -> float:
        """By how much the true volume of a source exceeds that of its cells [m^3]."""
        return self._source_gains[source]

    def carrier(self, a: int, b: int) -> int | None:
        """Which of two fillings knows the direction of the surface between them; None if neither a
        film nor a contact is there.
        """
        own, other = self.bases[a], self.bases[b]
        if not self._exchanges[own, other]:
            return None
        return a if self._carriers[own, other] else b

    def _exchanging(self, contacts: Sequence[ContactSection]) -> npt.NDArray[np.bool_]:
        """Pairs of fillings with a film or a contact between them, (n, n)."""
        fluid = np.array([it.fluid is not None for it in self.fillings], np.bool_)
        solid = np.array([it.substance is not None for it in self.fillings], np.bool_)
        found = np.logical_and.outer(fluid, solid)
        names = [it.name if it.substance is not None else None for it in self.fillings]
        for contact in contacts:
            first, second = (np.array([it == name for it in names]) for name in contact.between)
            found |= np.logical_and.outer(first, second)
        return np.asarray(found | found.T)

    def _open(self, number: int, region: RegionSection) -> tuple[Place, Surfaces | None]:
        """Open the shape of a region, and number its layers."""
        key = f"model.regions.{number}"
        place = Place(region, self.grid, key)
        labels = None if region.labels is None else open_labels(region, self.grid, key)
        names = {None: region.material} if region.materials is None else region.materials
        for label, name in names.items():
            self.layers.append(Layer(number, self._filling(region, name), label))
        return place, labels

    def _paint(self, number: int, box: Box, found: States) -> None:
        """Lay a region over the layers of a box."""
        place, labels = self._shapes[number]
        inside = place(box)
        if inside is None:
            return

        layers = {it.label: n for n, it in enumerate(self.layers) if it.region == number}
        marked = None if labels is None else labels(box)
        if marked is None:
            found[inside] = layers[None]
        # A single material: every label but 0 belongs to the region.
        elif None in layers:
            inside = inside & (marked != 0)
            found[inside] = layers[None]
        else:
            self._paint_labels(number, inside, marked, layers, (box, found))

        if inside.any():
            self.covered[0].add(number)

    def _paint_labels(
        self,
        number: int,
        inside: npt.NDArray[np.bool_],
        labels: npt.NDArray[np.generic],
        layers: Mapping[int | None, int],
        into: tuple[Box, States],
    ) -> None:
        box, found = into
        for value in np.unique(labels[inside]):
            here = inside & (labels == value)

            # Labels are whole numbers; a fractional value matches none.
            if (layer := layers.get(int(value) if value == int(value) else None)) is not None:
                found[here] = layer
                continue
            key = f"model.regions.{number}.materials"
            if key not in self.mistakes:
                _, where = first_place(here, self.grid, box)
                known = listed([str(label) for label in layers], "and")
                self.mistakes[key] = (
                    f"{value} is in the file, at {where}, and has no material; known are {known}"
                )

    def _filling(self, region: RegionSection, name: str | None) -> int:
        """Return the number of the filling of a region, adding fluids and voids as they appear."""
        if name is not None:
            return next(n for n, it in enumerate(self.fillings) if it.name == name)
        kind = "fluid" if region.fluid is not None else "void"
        filling = Filling(region.name or kind, fluid=region.fluid)
        if filling not in self.fillings:
            self.fillings.append(filling)
        return self.fillings.index(filling)

    def _layers_of(self, source: VolumeSource) -> npt.NDArray[np.bool_]:
        """Mask of the layers that a source can heat: those of the body, of its material and its
        region.
        """
        return np.array(
            [
                (filling := self.fillings[layer.filling]).substance is not None
                and source.material in (None, filling.name)
                and source.region in (None, self.regions[layer.region].name)
                for layer in self.layers
            ],
            np.bool_,
        )

    def _lay(self, index: tuple[int, ...]) -> tuple[States, tuple[Mask | None, ...]]:
        """The layer of each point of a block, and where each source heats it."""
        box = block_box(self.grid.shape, index)

        # Later regions overwrite earlier ones: the painter's algorithm.
        layers = np.full(shape_of(box), _NOTHING, np.int32)
        for number in range(len(self._shapes)):
            self._paint(number, box, layers)

        self.left |= {self.layers[it].region for it in np.unique(layers) if it != _NOTHING}
        bare = layers == _NOTHING
        if bare.any():
            self._complain_of_bare(bare, box)

        # Sources refer to the layer seen at a point, which knows its region and material.
        heated: list[Mask | None] = []
        for number, place, of_layer in self._sources:
            inside = place(box)
            if inside is not None:
                inside &= of_layer[layers]
            if inside is not None and inside.any():
                self.covered[1].add(number)
                heated.append(inside)
            else:
                heated.append(None)
        return layers, tuple(heated)

    def _complain_of_bare(self, bare: Mask, box: Sequence[tuple[int, int]]) -> None:
        if "model.regions" not in self.mistakes:
            _, where = first_place(bare, self.grid, tuple(box))
            self.mistakes["model.regions"] = (
                f"no region covers {where}; let the first region be the whole box, or say what "
                "is there, {void: true} for nothing"
            )

    def _compute_block(self, index: tuple[int, ...]) -> States:
        if self.segments is not None:
            return self.spread(index)

        layers, heated = self._layered(index)
        states = self._filling_of_layer[layers]
        if self._is_inclined:
            self._vary(index, states)
        for (number, *_), inside in zip(self._sources, heated, strict=True):
            if inside is not None:
                states[inside] = self._with_source(states[inside], number)
        return states

    def _vary(self, index: tuple[int, ...], states: States) -> None:
        """Give cells beside inclined surfaces the states of variants of their fillings; the first
        time that a block is seen, its surfaces are added up.
        """
        grid, box = self.grid, block_box(self.grid.shape, index)
        is_new = index not in self._counted
        self._counted.add(index)
        # Of cells beside faces, a cell more than once: number, axis (-1: is cut) and share.
        seen: list[tuple[Places, npt.NDArray[np.int64], Numbers]] = []

        for axis in range(grid.ndim):
            (low, high), n = box[axis], grid.shape[axis]
            wide = (*box[:axis], (max(low - 1, 0), min(high + 1, n)), *box[axis + 1 :])
            layers, heated = self.layers_in(wide)
            if is_new:
                self._add_sources(axis, wide, layers, heated, low)
            faces, pair = self._crossed(axis, wide, layers)
            if is_new:
                self._add_up(faces, pair, faces.below[:, axis] >= low)

            # What a face means to the cells on both sides of it.
            share = faces.crossings.share
            is_cut = (share < 1) & np.isfinite(faces.crossings.place)
            exchanges = self._exchanges[pair[0], pair[1]]
            for side in (0, 1):
                at = faces.below - np.array(box)[:, 0]
                at[:, axis] += side
                here = (at[:, axis] >= 0) & (at[:, axis] < states.shape[axis])
                number = np.ravel_multi_index(tuple(at.T), states.shape, mode="clip")
                cut = here & is_cut & self._stores[pair[side]]
                carries = here & exchanges & self._carriers[pair[side], pair[1 - side]]
                for marked, kind in ((cut, -1), (carries, axis)):
                    cells = number[marked]
                    seen.append((cells, np.full(len(cells), kind), share[marked]))
        self._number(states, seen, box if is_new else None)

    def layers_in(self, box: Box) -> tuple[States, list[Mask]]:
        """Layers and sources of a box, from the blocks that it touches."""
        layers = np.empty(shape_of(box), np.int32)
        heated = [np.zeros(layers.shape, np.bool_) for _ in self._sources]
        for index, inside in blocks_of(self.grid.shape, box):
            block = block_box(self.grid.shape, index)
            part, target = slices_in(inside, block), slices_in(inside, box)
            own, marks = self._layered(index)
            layers[target] = own[part]
            for whole, mark in zip(heated, marks, strict=True):
                if mark is not None:
                    whole[target] = mark[part]
        return layers, heated

    def _crossed(self, axis: int, box: Box, layers: States) -> tuple[CrossedFaces, list[States]]:
        """The faces within a box across which fillings change, and the fillings on both sides."""
        places, step = changes(layers, axis)
        ends = [layers[tuple((places + it * step).T)] for it in (0, 1)]
        pair = [self._filling_of_layer[it] for it in ends]
        differ = pair[0] != pair[1]
        below, upper = (places + np.array(box)[:, 0])[differ], np.maximum(*ends)[differ]
        faces = self._faces(axis, below, self._surface(axis, below, upper))
        return faces, [it[differ] for it in pair]

    def _faces(self, axis: int, below: Places, crossings: Crossings) -> CrossedFaces:
        grid = self.grid
        area = grid.areas_at(axis, below)
        beyond = np.nan_to_num(crossings.place - grid.ends(axis)[below[:, axis] + 1])
        beyond *= grid.scale_at(axis, below)
        # The squares of the shares of all axes add up to 1 on a surface, and where a surface is
        # hardly seen along an axis its place is inaccurate and its share small.
        return CrossedFaces(below, crossings, area, crossings.share**2 * beyond * area)

    def _surface(self, axis: int, below: Places, upper: States) -> Crossings:
        """The surface of the later of two regions that meet; `upper` are its layers."""
        share, place = np.ones(len(below)), np.full(len(below), np.nan)
        for layer in np.unique(upper):
            of = self.layers[layer]
            its_place, labels = self._shapes[of.region]
            here = upper == layer
            if its_place.is_aligned and labels is None:
                continue
            found = its_place.crossings(axis, below[here], None)
            if labels is not None:
                found = found.sharper(labels.crossings(axis, below[here], of.label))
            share[here], place[here] = found.share, found.place
        return Crossings(share, place)

    def _add_up(self, faces: CrossedFaces, pair: Sequence[States], own: Mask) -> None:
        """Add the areas of surfaces, and the volumes between them and the faces of cells."""
        for a, b in np.unique(np.stack(pair)[:, own], axis=1).T.tolist():
            here = own & (pair[0] == a) & (pair[1] == b)
            area, gain = faces.area[here], float(faces.gain[here].sum())
            total = np.array([(faces.crossings.share[here] * area).sum(), area.sum()])
            key = (min(a, b), max(a, b))
            self.areas[key] = self.areas.get(key, np.zeros(2)) + total
            self.gains[a] += gain
            self.gains[b] -= gain

    def _add_sources(
        self, axis: int, box: Box, layers: States, heated: Sequence[Mask], low: int
    ) -> None:
        """Add the volumes between the true surfaces of sources and the faces of their cells."""
        corner = np.array(box)[:, 0]
        for (number, place, _), inside in zip(self._sources, heated, strict=True):
            places, step = changes(inside, axis)
            places = places[places[:, axis] + corner[axis] >= low]
            below = places + corner
            ends = [layers[tuple((places + it * step).T)] for it in (0, 1)]

            found = place.crossings(axis, below, None)
            other = self._surface(axis, below, np.maximum(*ends))
            changed = ends[0] != ends[1]
            other = Crossings(np.where(changed, other.share, 1.0), other.place)
            gain = self._faces(axis, below, found.sharper(other)).gain
            sign = np.where(inside[tuple(places.T)], 1.0, -1.0)
            self._source_gains[number] += float((sign * gain).sum())

    def _number(
        self,
        states: States,
        seen: Sequence[tuple[Places, npt.NDArray[np.int64], Numbers]],
        counted: Box | None,
    ) -> None:
        """Number the variants of fillings that a block has; `states` is changed.

        Args:
            states: the number of each cell's filling, which is that of its state.
            seen: cells that a surface cuts (-1), and those beside faces of an axis that exchange
                heat, with the share of the face.
            counted: the box of the block, if its shares and volumes are to be added up.
        """
        number, axis, share = (np.concatenate(it) for it in zip(*seen, strict=True))
        cells, place = np.unique(number, return_inverse=True)
        sums, counts = np.zeros((2, self.grid.ndim + 1, len(cells)))  # the last: is cut
        least = np.ones(len(cells))
        np.add.at(sums, (axis, place), share)
        np.add.at(counts, (axis, place), 1.0)
        np.minimum.at(least, place[axis >= 0], share[axis >= 0])

        # Cells without an inclined surface keep their states.
        varies = (least < 1) | (counts[-1] > 0)
        cells, sums, counts = cells[varies], sums[:-1, varies], counts[:, varies]
        direction = np.where(least[varies] < 1, direction_of(sums, counts[:-1]), -1)
        keys = (states.reshape(-1)[cells], counts[-1] > 0, *direction)
        kinds, kind = unique_rows(keys)
        volumes = None if counted is None else self.grid.volumes(counted).reshape(-1)[cells]

        numbers = np.zeros(len(kinds), np.int32)
        for n, (own, own_cut, *towards) in enumerate(kinds.tolist()):
            filling = self._variant(own, None if towards[0] < 0 else tuple(towards), own_cut)
            numbers[n] = self._state(filling, ())
            if volumes is not None:
                here = kind == n
                self._cut_volumes[own] += volumes[here].sum() if own_cut else 0.0
                total = np.stack([it[: self.grid.ndim, here].sum(axis=1) for it in (sums, counts)])
                self._share_sums[filling - len(self.gains)] += total
        states.reshape(-1)[cells] = numbers[kind]

    def _variant(self, base: int, direction: tuple[int, ...] | None, is_cut: bool) -> int:
        key = (base, direction, is_cut)
        if key not in self._variants:
            self._variants[key] = len(self.fillings)
            self.fillings.append(replace(self.fillings[base], is_cut=bool(is_cut)))
            self.bases.append(base)
            self._share_sums.append(np.zeros((2, self.grid.ndim)))
        return self._variants[key]

    def _state(self, filling: int, sources: tuple[int, ...]) -> int:
        """Return the number of a state, a new one if it is new."""
        state = (filling, sources)
        if state not in self._numbers:
            self._numbers[state] = len(self.states)
            self.states.append(state)
        return self._numbers[state]

    def _with_source(self, states: States, source: int) -> States:
        """Return the states of points with one more source, numbering new states."""
        # A table from old to new state: far fewer states than points are translated one by one.
        new = np.zeros(len(self.states), np.int32)
        for state in np.unique(states):
            filling, sources = self.states[state]
            new[state] = self._state(filling, (*sources, source))
        return new[states]
