"""Geometry of a body: the rasterization of regions and sources onto the points of the grid.

`RasterizedBody` lays the shapes of regions (`shapes.py`) over one another. A point's state is its
filling and the set of sources over it. States are numbered in the order in which the scan of the
grid finds them, block by block (`survey.py`); afterwards the numbers are fixed. Blocks are anchored
to global indices, so a point's state does not depend on the domain decomposition.

Cells beside a surface that is not the faces of cells have fillings of their own (`cut_cells.py`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.domain import make_each
from tetris_sim.apps.heat.cut_cells import CutCells
from tetris_sim.apps.heat.labels import open_labels
from tetris_sim.apps.heat.materials import ContactSection
from tetris_sim.apps.heat.motion import HALF, BeadSection, moments_of
from tetris_sim.apps.heat.sections import RegionSection, Substance
from tetris_sim.apps.heat.shapes import Filling, Layer, Place, indices
from tetris_sim.apps.heat.sources import BoxSection, VolumeSource
from tetris_sim.apps.heat.subgrid import Shapes, Subgrid, on_parts
from tetris_sim.apps.heat.surfaces import Mask, Surfaces
from tetris_sim.apps.initial import (
    BLOCK_POINTS,
    block_box,
    blocks_of,
    first_place,
    positions,
    shape_of,
    slices_in,
)
from tetris_sim.apps.initial_file import Box
from tetris_sim.apps.time_functions import course_along, knots_of
from tetris_sim.errors import ConfigError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.grid import Grid
from tetris_sim.model.slab import Absent
from tetris_sim.support.wording import listed

States = npt.NDArray[np.int32]
_KEPT_BLOCKS, _MOST_KEPT = 8, 256  # of 2^18 states each
_NOTHING = -1
_NEVER = np.iinfo(np.int64).max  # the number of no piece of a bead
_KEPT_BEADS = 1024  # copies whose pieces are known
_PARTS_OF_PIECE = 4  # straight parts of a curved path
_SAME_PLACE = 1e-9  # of the length of a path: places that are nearer are the same


class RasterizedBody:
    """The state of every point, computed block by block and cached.

    Attributes:
        fillings: of the points, by number; variants of those of cells beside surfaces that are not
            the faces of cells are added as they are found.
        covered: numbers of the regions and of the sources found at some point so far.
        left: numbers of the regions that no later one covers at some point so far.
        mistakes: found so far, by key.
        passes: whether regions come and go.
        cuts: the cells that surfaces cut.
    """

    def __init__(
        self,
        grid: Grid,
        regions: Sequence[RegionSection],
        sources: Sequence[tuple[int, VolumeSource]],
        substances: Sequence[Substance],
        contacts: Sequence[ContactSection] = (),
        time: float = 0.0,
        gone: Absent | None = None,
    ) -> None:
        """Open all files and compile all conditions.

        Args:
            grid: where points lie.
            regions: later ones over earlier ones.
            sources: with their number in the configuration.
            substances: known materials; regions may name them.
            contacts: resistances of joints.
            time: at which regions that come and go are there or not [s].
            gone: which of their cells have gone by themselves.

        Raises:
            ConfigError: a file or a condition cannot be used.
        """
        self.grid, self.regions, self._time = grid, regions, time
        self.passes = len(moments_of(regions)) > 1 or any(it.goes for it in regions)
        self._gone = gone
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

        # Without walls off the faces of cells, segments of axes are all there is to know.
        self._given = regions, sources
        shapes = self._shapes_on(grid, self._shapes, [it for _, it, _ in self._sources])
        self._is_cut = not (shapes.are_boxes and shapes.are_whole)
        fine = None if shapes.are_whole else Subgrid(shapes, self._reopened)
        for number, it in enumerate(regions):
            if it.goes is not None and fine is not None:
                told = "cells go whole, and here surfaces cut some; let walls be faces of cells"
                self.mistakes[f"model.regions.{number}.goes"] = told
        self.cuts = CutCells(
            shapes, self.fillings, contacts, fine, look=self.layers_in, state_of=self._state
        )
        self._counted: set[tuple[int, ...]] = set()
        # Where the segments of each axis begin: between two of them nothing changes.
        self.segments: list[npt.NDArray[np.int64]] | None = None
        if not self._is_cut and gone is None:
            self.segments = [
                np.unique([0, n, *(np.clip(it, 0, n) for at in shapes.places for it in at.span(k))])
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
            for inside in place.on(axes):
                layers[inside] = layer_of[number]
                self.covered[0].add(number)

        self.left |= {self.layers[it].region for it in np.unique(layers) if it != _NOTHING}
        bare = layers == _NOTHING
        if bare.any():
            first = [int(it[k]) for it, k in zip(axes, np.argwhere(bare)[0], strict=True)]
            self._complain_of_bare(np.ones((1,) * len(axes), np.bool_), [(k, k + 1) for k in first])

        states = self._filling_of_layer[layers]
        for number, place, of_layer in self._sources:
            for inside in place.on(axes):
                heated = of_layer[layers[inside]]
                if not heated.any():
                    continue
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

    def _shapes_on(
        self,
        grid: Grid,
        regions: Sequence[tuple[Place, Surfaces | None]],
        sources: Sequence[Place],
    ) -> Shapes:
        """The shapes on a grid."""
        own = [
            (number, place, of_layer)
            for (number, _, of_layer), place in zip(self._sources, sources, strict=True)
        ]
        return Shapes(grid, self.layers, self._filling_of_layer, regions, own)

    def _reopened(self, grid: Grid) -> Shapes:
        """The shapes on another grid; labels are those of cells."""
        regions, sources = self._given
        places = [
            place_of(it, grid, self.grid, f"model.regions.{n}", self._time)
            for n, it in enumerate(regions)
        ]
        heated = [Place(it, grid, f"model.sources.{n}") for n, it in sources]
        labels = [it for _, it in self._shapes]
        return self._shapes_on(grid, list(zip(places, labels, strict=True)), heated)

    def _open(self, number: int, region: RegionSection) -> tuple[Place, Surfaces | None]:
        """Open the shape of a region, and number its layers."""
        key = f"model.regions.{number}"
        place = place_of(region, self.grid, self.grid, key, self._time)
        labels = None if region.labels is None else open_labels(region, self.grid, key)
        names = {None: region.material} if region.materials is None else region.by_label
        for label, name in names.items():
            self.layers.append(Layer(number, self._filling(region, name), label))
        return place, labels

    def _paint(self, number: int, box: Box, found: States) -> None:
        """Lay a region over the layers of a box."""
        place, labels = self._shapes[number]
        inside = place(box)
        if inside is None:
            return
        if inside.any():
            self.covered[0].add(number)
        if self._gone is not None and self.regions[number].goes is not None:
            inside &= ~self._gone(number, box)

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
        is_new = index not in self._counted
        self._counted.add(index)
        self.cuts.vary(block_box(self.grid.shape, index), states, is_new=is_new)
        for (number, *_), inside in zip(self._sources, heated, strict=True):
            if inside is not None:
                states[inside] = self._with_source(states[inside], number)
        return states

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


# What comes and goes: which cells pieces of beads are, and how steps and words follow.


def _pieces(
    region: RegionSection, grid: Grid, key: str, copy: int
) -> tuple[Box, npt.NDArray[np.int64]]:
    """Return the cells that a copy of a bead may fill, as a box, and the number of the piece with
    which each of them comes; `_NEVER` of others.
    """
    text = region.model_dump_json(include={"bead", "begins", "repeat"})
    return _find_pieces(_Asked(text, grid, key, copy, region))


@dataclass(frozen=True)
class _Asked:
    """A copy of a bead; equal ones have the same cells."""

    text: str
    grid: Grid
    key: str
    copy: int
    region: RegionSection = field(compare=False)


@functools.lru_cache(maxsize=_KEPT_BEADS)
def _find_pieces(of: _Asked) -> tuple[Box, npt.NDArray[np.int64]]:
    grid, bead, begins = of.grid, of.region.bead, of.region.pieces[0]
    assert bead is not None
    times = np.linspace(begins, bead.until, _PARTS_OF_PIECE * len(of.region.pieces) + 1)
    names = grid.axis_names
    courses = [course_along(bead.path, name, grid, f"{of.key}.bead.path") for name in names]
    bends = knots_of(courses)
    times = np.unique([*times, *bends[(bends > begins) & (bends < bead.until)]])
    points = np.stack([it.at(times) for it in courses], axis=1)
    if not np.isfinite(points).all():
        at = times[~np.isfinite(points).all(axis=1)][0]
        msg = f"{of.key}.bead.path: it has no finite value at {at:g} s"
        raise ConfigError(msg)
    if of.region.repeat is not None:
        points += of.copy * np.array(of.region.repeat.shift[::-1])

    # Up is the last axis of the grid, which is the first one of arrays.
    reach = np.full(grid.ndim, 0.0 if bead.width is None else bead.width / 2)
    low, high = points.min(axis=0) - reach, points.max(axis=0) + reach
    if bead.height is not None:
        low[0], high[0] = points[:, 0].min(), points[:, 0].max() + bead.height
    box = _touched(grid, low, high)
    found = np.full(shape_of(box), _NEVER)
    scale = max(float(np.ptp(points, axis=0).max()), *reach.tolist(), *grid.spacing)
    for first, last, begun, ended, way, turned in _ways(points, times, bead, scale):
        ends = np.minimum(first, last) - reach, np.maximum(first, last) + reach
        if bead.height is not None:
            ends[0][0], ends[1][0] = min(first[0], last[0]), max(first[0], last[0]) + bead.height
        part = _touched(grid, *ends)
        if 0 in shape_of(part):
            continue
        at = np.stack(np.broadcast_arrays(*positions(grid, part)), axis=-1)
        off, passed = at - first, np.asarray(begun)
        if turned is None:
            share = _level(off, bead) @ way / (way @ way)
            inside = abs(share - 0.5) <= 0.5 + _SAME_PLACE
            near = np.clip(share, 0.0, 1.0)
            off, passed = off - near[..., None] * (last - first), begun + near * (ended - begun)
        else:
            # On the outer side of a bend, behind one part of the path and before the next.
            inside = (_level(off, bead) @ turned >= 0) & (_level(off, bead) @ way <= 0)
        number = np.floor((passed - begins) / bead.every + HALF).astype(np.int64)
        number = np.clip(number, 0, len(of.region.pieces) - 1)
        # What has come already stays.
        here = found[slices_in(part, box)]
        np.minimum(here, np.where(inside & _in_section(off, bead, scale), number, _NEVER), out=here)
    return box, found


def _ways(
    points: Numbers, times: Numbers, bead: BeadSection, scale: float
) -> Iterator[tuple[Numbers, Numbers, float, float, Numbers, Numbers | None]]:
    """Yield straight parts of a path with its bends: both ends, their times, the level way, and at
    a bend the way before it.
    """
    before: Numbers | None = None
    for number, (first, last) in enumerate(itertools.pairwise(points)):
        way = _level(last - first, bead)
        if way @ way > (_SAME_PLACE * scale) ** 2:
            if before is not None:
                yield first, first, times[number], times[number], way, before
            yield first, last, times[number], times[number + 1], way, None
            before = way
        elif (last - first).any():
            before = None  # straight up


def _level(off: Numbers, bead: BeadSection) -> Numbers:
    """A way without its part along the height of a bead."""
    if bead.height is None:
        return off
    return np.concatenate([np.zeros_like(off[..., :1]), off[..., 1:]], axis=-1)


def _in_section(off: Numbers, bead: BeadSection, scale: float) -> Mask:
    """Whether what is so far from the path lies in a bead [m]."""
    small = _SAME_PLACE * scale
    aside = np.sqrt((_level(off, bead) ** 2).sum(axis=-1))
    inside = np.asarray(aside <= (small if bead.width is None else bead.width / 2 + small))
    if bead.height is None:
        return inside
    up = off[..., 0]
    share = 0.0 if bead.width is None else np.minimum(aside / (bead.width / 2), 1.0)
    tall = {"rectangle": 1.0, "ellipse": np.sqrt(1 - share**2), "parabola": 1 - share**2}
    found = inside & (up >= -small) & (up < bead.height * tall[bead.section] - small)
    return np.asarray(found, np.bool_)


def _touched(grid: Grid, low: Numbers, high: Numbers) -> Box:
    """The cells whose centres lie between two corners, and one more on each side, as a box."""
    box = []
    for axis, n in enumerate(grid.shape):
        at = grid.coordinates(axis)
        first, last = np.searchsorted(at, [low[axis], high[axis]])
        box.append((max(int(first) - 1, 0), min(int(last) + 1, n)))
    return tuple((a, max(a, b)) for a, b in box)


def place_of(region: RegionSection, grid: Grid, cells: Grid, key: str, time: float) -> Place:
    """Return where a region is from a time on.

    Args:
        region: its section.
        grid: where points lie.
        cells: the grid whose cells a bead fills; those of `grid` divide them.
        key: of the region, for messages.
        time: from which on it is there or not [s].

    Raises:
        ConfigError: a copy is nowhere; see `Place` too.
    """
    there, repeat, bead = region.there(time), region.repeat, region.bead
    shift = dict(zip(grid.axis_names[::-1], () if repeat is None else repeat.shift, strict=False))
    nowhere = "covers the centre of no cell; let there be fewer, or closer together"

    if bead is None:
        if region.box is None or not there:
            return Place(region, grid, key, None if there else ())
        boxes = [_shifted(region.box, copy, shift) for copy, _ in there] if repeat else [region.box]
        for (copy, _), it in zip(there, boxes, strict=False):
            if copy and any(low >= high for low, high in indices(it, cells)):
                msg = f"{key}.repeat: copy {copy + 1} {nowhere}"
                raise ConfigError(msg)
        return Place(region, grid, key, boxes)

    laid = list[tuple[Box, Mask]]()
    for copy, came in there:
        box, number = _pieces(region, cells, key, copy)
        if (number == _NEVER).all():
            msg = (
                f"{key}.repeat: copy {copy + 1} {nowhere}"
                if copy
                else f"{key}.bead: it covers the centre of no cell; let the tool move over some"
            )
            raise ConfigError(msg)
        which = number < came
        if grid is not cells:
            box, which = on_parts(grid, cells, box, which)
        laid.append((box, which))
    return Place(region, grid, key, laid=laid)


def _shifted(box: BoxSection, copy: int, shift: Mapping[str, float]) -> BoxSection:
    moved = {}
    for name, by in shift.items():
        if (span := getattr(box, name)) is not None:
            moved[name] = tuple(it + copy * by for it in span)
    return box.model_copy(update=moved)
