"""Painting: which material fills each point and which sources heat it, from regions laid over one
another.

A point's state is its filling and the set of sources over it. States are numbered as they turn up
while the whole grid is looked at once, block by block (`survey.py`); afterwards the numbers are
fixed. Blocks are anchored to global indices, so a point's state is the same whoever asks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.body import FluidSection, RegionSection, Substance, VolumeSource
from tetris_sim.apps.domain import make_each
from tetris_sim.apps.initial import block_shape, first_place, shape_of, slices_in
from tetris_sim.apps.initial_file import Box
from tetris_sim.apps.shapes import Labels, Shape, make_shape, open_labels
from tetris_sim.model.grid import Grid
from tetris_sim.support.wording import listed

States = npt.NDArray[np.int32]
_KEPT_BLOCKS = 8  # of 2^18 states each: a block and those that touch it
_NOTHING = -1


@dataclass(frozen=True)
class Filling:
    """What a point can be filled with: a substance, or a fluid, or nothing.

    Attributes:
        name: for people.
        substance: if it belongs to the body.
        fluid: if it is a fluid around the body.
    """

    name: str
    substance: Substance | None = None
    fluid: FluidSection | None = None


@dataclass(frozen=True)
class Layer:
    """One region with what fills it.

    Attributes:
        region: its number.
        filling: the number of what fills it.
        label: of the points it is at; None for all that the region covers.
    """

    region: int
    filling: int
    label: int | None = None


class Painting:
    """The state of every point.

    Attributes:
        fillings: what points are filled with.
        states: (filling, numbers of the sources) by number.
        covered: numbers of the regions and of the sources that have turned up somewhere.
        mistakes: what was found to be wrong so far, by key.
    """

    def __init__(
        self,
        grid: Grid,
        regions: Sequence[RegionSection],
        sources: Sequence[tuple[int, VolumeSource]],
        substances: Sequence[Substance],
    ) -> None:
        """Open all files and compile all conditions.

        Args:
            grid: where points lie.
            regions: later ones over earlier ones.
            sources: with their number in the configuration.
            substances: known materials; regions may name them.

        Raises:
            ConfigError: a file or a condition cannot be used.
        """
        self.grid, self.regions = grid, regions
        self.fillings: list[Filling] = [Filling(it.name, substance=it) for it in substances]
        self.layers: list[Layer] = []
        self.covered: tuple[set[int], set[int]] = (set(), set())
        self.mistakes: dict[str, str] = {}

        self._painters = make_each(
            functools.partial(self._painter, n, region) for n, region in enumerate(regions)
        )
        self._filling_of_layer = np.array([it.filling for it in self.layers], np.int32)
        shapes = make_each(
            functools.partial(make_shape, source, grid, f"model.sources.{number}")
            for number, source in sources
        )
        self._sources = [
            (number, shape, self._layers_of(source))
            for (number, source), shape in zip(sources, shapes, strict=True)
        ]

        self.states: list[tuple[int, tuple[int, ...]]] = [
            (n, ()) for n in range(len(self.fillings))
        ]
        self._numbers = {state: n for n, state in enumerate(self.states)}
        self._block = functools.lru_cache(maxsize=_KEPT_BLOCKS)(self._compute_block)

    def __call__(self, box: Box) -> States:
        """The states of the points of a box."""
        found = np.empty(shape_of(box), np.int32)
        for index, inside in blocks_of(self.grid.shape, box):
            block = block_box(self.grid.shape, index)
            found[slices_in(inside, box)] = self._block(index)[slices_in(inside, block)]
        return found

    def blocks(self) -> Iterator[Box]:
        """The anchored blocks of the whole grid."""
        whole = tuple((0, n) for n in self.grid.shape)
        return (inside for _, inside in blocks_of(self.grid.shape, whole))

    def _painter(self, number: int, region: RegionSection) -> Callable[[Box, States], None]:
        """What puts a region over the layers of a box."""
        key = f"model.regions.{number}"
        shape = make_shape(region, self.grid, key)
        labels = None if region.labels is None else open_labels(region, self.grid, key)
        names = {None: region.material} if region.materials is None else region.materials

        layers: dict[int | None, int] = {}
        for label, name in names.items():
            layers[label] = len(self.layers)
            self.layers.append(Layer(number, self._filling(region, name), label))
        return functools.partial(self._paint, number, shape, labels, layers)

    def _paint(
        self,
        number: int,
        shape: Shape,
        labels: Labels | None,
        layers: dict[int | None, int],
        box: Box,
        found: States,
    ) -> None:
        inside = shape(box)
        if inside is None:
            return
        if labels is None:
            found[inside] = layers[None]
        elif None in layers:
            inside = inside & (labels(box) != 0)
            found[inside] = layers[None]
        else:
            self._paint_labels(number, inside, labels(box), layers, (box, found))

        if inside.any():
            self.covered[0].add(number)

    def _paint_labels(
        self,
        number: int,
        inside: npt.NDArray[np.bool_],
        labels: npt.NDArray[np.generic],
        layers: dict[int | None, int],
        into: tuple[Box, States],
    ) -> None:
        box, found = into
        for value in np.unique(labels[inside]):
            here = inside & (labels == value)
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
        """The number of what fills a region."""
        if name is not None:
            return next(n for n, it in enumerate(self.fillings) if it.name == name)
        kind = "fluid" if region.fluid is not None else "void"
        filling = Filling(region.name or kind, fluid=region.fluid)
        if filling not in self.fillings:
            self.fillings.append(filling)
        return self.fillings.index(filling)

    def _layers_of(self, source: VolumeSource) -> npt.NDArray[np.bool_]:
        """Which layers a source can heat: those of the body, of its material and its region."""
        return np.array(
            [
                (filling := self.fillings[layer.filling]).substance is not None
                and source.material in (None, filling.name)
                and source.region in (None, self.regions[layer.region].name)
                for layer in self.layers
            ],
            np.bool_,
        )

    def _compute_block(self, index: tuple[int, ...]) -> States:
        box = block_box(self.grid.shape, index)
        layers = np.full(shape_of(box), _NOTHING, np.int32)
        for paint in self._painters:
            paint(box, layers)

        bare = layers == _NOTHING
        if bare.any() and "model.regions" not in self.mistakes:
            _, where = first_place(bare, self.grid, box)
            self.mistakes["model.regions"] = (
                f"no region covers {where}; let the first region be the whole box, or say what "
                "is there, {void: true} for nothing"
            )

        states = self._filling_of_layer[layers]
        for number, shape, heated in self._sources:
            inside = shape(box)
            if inside is None:
                continue
            inside &= heated[layers]
            if inside.any():
                self.covered[1].add(number)
                states[inside] = self._with_source(states[inside], number)
        return states

    def _with_source(self, states: States, source: int) -> States:
        """The states of points that have one source more."""
        new = np.zeros(len(self.states), np.int32)
        for state in np.unique(states):
            filling, sources = self.states[state]
            wanted = (filling, (*sources, source))
            if wanted not in self._numbers:
                self._numbers[wanted] = len(self.states)
                self.states.append(wanted)
            new[state] = self._numbers[wanted]
        return new[states]


def blocks_of(shape: tuple[int, ...], box: Box) -> list[tuple[tuple[int, ...], Box]]:
    """The anchored blocks that a box has points in: number along each axis, and the points."""
    ranges = [
        range(low // width, -(-high // width))
        for (low, high), width in zip(box, block_shape(shape), strict=True)
    ]
    found = []
    for index in itertools.product(*ranges):
        block = block_box(shape, index)
        inside = tuple(
            (max(b[0], own[0]), min(b[1], own[1])) for b, own in zip(block, box, strict=True)
        )
        found.append((index, inside))
    return found


def block_box(shape: tuple[int, ...], index: tuple[int, ...]) -> Box:
    """The points of an anchored block."""
    return tuple(
        (i * width, min((i + 1) * width, n))
        for i, width, n in zip(index, block_shape(shape), shape, strict=True)
    )
