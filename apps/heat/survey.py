"""GridScan: one look at every point of a body, before anything is computed.

It finds which states occur (`painting.py`), how many cells each source heats, which materials touch
along which axis, and the largest stable time step: a step of conduction is stable if dt times the
sum of the conductances around a point is at most its heat capacity, for every point (Gershgorin's
circles of a matrix that is similar to a symmetric one).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.heat.geometry import Filling, RasterizedBody, States, block_box, blocks_of
from tetris_sim.apps.heat.materials import enthalpy_of
from tetris_sim.apps.heat.sections import ContactSection
from tetris_sim.apps.initial import shape_of, slices_in
from tetris_sim.apps.initial_file import Box
from tetris_sim.model.conduction import Enthalpy, Ids, Medium, Numbers, in_series, padded
from tetris_sim.model.grid import Grid

MOST_IDS = 2048  # so that tables of pairs stay below 100 MB
_KEPT_BLOCKS = 4096  # of 2^18 ids each: all of a grid of 1024^3, a byte or two a point


@dataclass(frozen=True)
class Openness:
    """What lies beyond the faces of the domain, per axis in array order.

    Attributes:
        periodic: whether the faces of an axis are joined.
        insulated: whether the (low, high) face lets nothing pass that depends on the temperature.
    """

    periodic: tuple[bool, ...]
    insulated: tuple[tuple[bool, bool], ...]


@dataclass(frozen=True, eq=False)
class GridScan:
    """What a look at every point found.

    Attributes:
        painting: of the body.
        conductance: by axis and pair of fillings (ndim, n, n) [W/(m^3 K)].
        resistance: of contacts, by pair of fillings (n, n) [m^2 K/W].
        volumes: of the cells by state [m^3].
        touching: pairs of fillings that lie side by side somewhere, smaller number first.
        dt_limit: largest stable time step [s].
        limiting: name of the material that sets it.
    """

    painting: RasterizedBody
    conductance: Numbers
    resistance: Numbers
    volumes: Numbers
    touching: frozenset[tuple[int, int]]
    dt_limit: float
    limiting: str

    @functools.cached_property
    def occurring(self) -> tuple[int, ...]:
        """The states that occur, in the order of their ids."""
        return tuple(int(state) for state in np.flatnonzero(self.volumes))

    @functools.cached_property
    def fillings(self) -> tuple[Filling, ...]:
        """What points of each id are filled with."""
        return tuple(
            self.painting.fillings[self.painting.states[state][0]] for state in self.occurring
        )

    @property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the sources over each id."""
        return tuple(self.painting.states[state][1] for state in self.occurring)

    def volume(self, source: int) -> float:
        """Of the cells that a source heats [m^3]."""
        return sum(
            float(self.volumes[state])
            for state, sources in zip(self.occurring, self.sources, strict=True)
            if source in sources
        )

    @functools.cached_property
    def enthalpy(self) -> Enthalpy | None:
        """The curves by id, if something in the body melts or depends on temperature."""
        if not any(it.substance is not None and it.substance.properties for it in self.fillings):
            return None
        painting = self.painting
        return enthalpy_of(
            painting.fillings, self._filling_of_id, self.resistance, painting.grid.spacing
        )

    @property
    def _filling_of_id(self) -> list[int]:
        return [self.painting.states[state][0] for state in self.occurring]

    def medium(self) -> Medium:
        """The tables by id."""
        of_id = np.array(self._filling_of_id)
        number = np.zeros(len(self.volumes), np.uint8 if len(of_id) <= 256 else np.uint16)
        number[list(self.occurring)] = np.arange(len(of_id))

        shape = self.painting.grid.shape
        block = functools.lru_cache(maxsize=_KEPT_BLOCKS)(
            lambda index: number[self.painting(block_box(shape, index))]
        )

        def ids(box: Box) -> Ids:
            found = np.empty(shape_of(box), number.dtype)
            for index, inside in blocks_of(shape, box):
                whole = block_box(shape, index)
                found[slices_in(inside, box)] = block(index)[slices_in(inside, whole)]
            return found

        void = np.array([it.substance is None and it.fluid is None for it in self.fillings])
        return Medium(
            ids=ids,
            conductance=np.stack([table[np.ix_(of_id, of_id)] for table in self.conductance]),
            capacity=capacities(self.fillings),
            names=tuple(filling.name for filling in self.fillings),
            void=void if void.any() else None,
        )


def conductances(
    fillings: Sequence[Filling], contacts: Iterable[ContactSection], spacing: Sequence[float]
) -> Numbers:
    """Conductance between neighbours, (ndim, n, n) [W/(m^3 K)].

    A fluid is as far away as 1 / h lets it be; what is not of the body exchanges nothing with its
    like. Where conductivity or heat capacity depends on temperature, these are what a time step has
    to be stable for.

    Args:
        fillings: what there is.
        contacts: resistances of joints.
        spacing: array order [m].
    """
    n = len(fillings)
    resistance = resistances(fillings, contacts)
    outside = np.array([it.substance is None for it in fillings])
    tables = np.empty((len(spacing), n, n))
    for axis, h in enumerate(spacing):
        direction = len(spacing) - 1 - axis  # of x, y, z
        k = np.zeros(n)
        for number, filling in enumerate(fillings):
            if filling.substance is not None:
                k[number] = filling.substance.conductivity[direction]
            elif filling.fluid is not None:
                k[number] = filling.fluid.h * h / 2  # so that half a cell resists by 1 / h
        tables[axis] = in_series(h, k, resistance)
        tables[axis][np.ix_(outside, outside)] = 0.0
        for number, filling in enumerate(fillings):
            if filling.substance is not None and filling.substance.properties is not None:
                rate = filling.substance.diffusivity[direction] * filling.substance.capacity
                tables[axis, number, number] = rate / h**2
    return tables


def resistances(fillings: Sequence[Filling], contacts: Iterable[ContactSection]) -> Numbers:
    """Of the joints of fillings, (n, n) [m^2 K/W]."""
    found = np.zeros((len(fillings), len(fillings)))
    names = [it.name if it.substance is not None else None for it in fillings]
    for contact in contacts:
        for a, b in (contact.between, contact.between[::-1]):
            for i in (k for k, name in enumerate(names) if name == a):
                found[i, [k for k, name in enumerate(names) if name == b]] = contact.resistance
    return found


def capacities(fillings: Sequence[Filling]) -> Numbers:
    """Heat capacity, (n,) [J/(m^3 K)]; infinite where the state is held."""
    return np.array(
        [math.inf if it.substance is None else it.substance.capacity for it in fillings]
    )


def survey(
    painting: RasterizedBody, contacts: Iterable[ContactSection], grid: Grid, openness: Openness
) -> GridScan:
    """Look at every point.

    Args:
        painting: of the body; it fixes its numbers.
        contacts: resistances of joints, of materials that exist.
        grid: where points lie.
        openness: what lies beyond the faces.

    Raises:
        ConfigError: a condition is not finite somewhere, or a file cannot be read.
    """
    fillings = painting.fillings
    conductance = conductances(fillings, contacts, grid.spacing)
    # Beyond an insulated face lies one filling more, that lets nothing pass.
    walled = np.pad(conductance, ((0, 0), (0, 1), (0, 1)))
    largest = np.zeros(len(fillings))  # sum of conductances around a point, by filling
    volumes: npt.NDArray[Any] = np.zeros(0)
    touching: set[tuple[int, int]] = set()

    for box in painting.blocks():
        wider = tuple((low - 1, high + 1) for low, high in box)
        states = padded(painting, wider, grid.shape, openness.periodic)
        inside = states[(slice(1, -1),) * grid.ndim]
        flat, n = inside.reshape(-1), len(painting.states)
        cells = grid.volumes(box).reshape(-1) if grid.is_graded else None
        own: npt.NDArray[Any] = np.bincount(flat, cells, n)
        own = own if grid.is_graded else own * grid.cell_volume
        own[: len(volumes)] += volumes
        volumes = own

        of_state = np.array([filling for filling, _ in painting.states], np.int32)
        around = of_state[states]
        _wall(around, box, grid.shape, openness)
        touching |= _look_around(around, walled, largest)

    rates = largest / capacities(fillings)
    limiting = int(np.argmax(rates))
    dt_limit = 1 / float(rates[limiting]) if rates[limiting] > 0 else math.inf
    return GridScan(
        painting,
        conductance,
        resistances(fillings, contacts),
        volumes,
        frozenset(touching),
        dt_limit,
        fillings[limiting].name,
    )


def _wall(around: States, box: Box, shape: tuple[int, ...], openness: Openness) -> None:
    """Put the filling that lets nothing pass beyond insulated faces; `around` is changed."""
    for axis, (low, high) in enumerate(box):
        along = np.moveaxis(around, axis, 0)
        if openness.periodic[axis]:
            continue
        if low == 0 and openness.insulated[axis][0]:
            along[0] = -1
        if high == shape[axis] and openness.insulated[axis][1]:
            along[-1] = -1


def _look_around(around: States, walled: Numbers, largest: Numbers) -> set[tuple[int, int]]:
    """Raise `largest` to the sums of conductances around the points of a block.

    Args:
        around: the fillings of a block and one point more on each side; -1, the last entry of
            tables, lets nothing pass.
        walled: conductances, (ndim, n + 1, n + 1).
        largest: by filling, (n,).

    Returns:
        Pairs of fillings that touch.
    """
    ndim, first = around.ndim, int(around.flat[0])
    if first >= 0 and (around == first).all():
        largest[first] = max(largest[first], 2 * walled[:, first, first].sum())
        return set()

    centre = around[(slice(1, -1),) * ndim]
    beside = []
    for axis, shift in itertools.product(range(ndim), (-1, 1)):
        window = [slice(1, -1)] * ndim
        window[axis] = slice(1 + shift, around.shape[axis] - 1 + shift)
        beside.append(around[tuple(window)])

    mixed = np.zeros(centre.shape, np.bool_)
    for there in beside:
        mixed |= there != centre
    alone = np.flatnonzero(np.bincount(centre[~mixed], minlength=len(largest)))
    for filling in alone:
        largest[filling] = max(largest[filling], 2 * walled[:, filling, filling].sum())

    here = centre[mixed]
    if not len(here):
        return set()
    total, pairs = np.zeros(len(here)), set()
    for number, there in enumerate(it[mixed] for it in beside):
        total += walled[number // 2][here, there]
        low, high = np.minimum(here, there), np.maximum(here, there)
        for pair in np.unique(low[low >= 0].astype(np.int64) * len(walled[0]) + high[low >= 0]):
            pairs.add(divmod(int(pair), len(walled[0])))
    np.maximum.at(largest, here, total)
    return {(a, b) for a, b in pairs if a != b}
