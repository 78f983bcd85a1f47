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
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.heat.geometry import RasterizedBody, States
from tetris_sim.apps.heat.materials import ContactSection, capacities, enthalpy_of, in_potentials
from tetris_sim.apps.heat.shapes import Filling
from tetris_sim.apps.initial import block_box, blocks_of, shape_of, slices_in
from tetris_sim.apps.initial_file import Box
from tetris_sim.model.conduction import Enthalpy, Ids, Medium, Numbers, in_series, padded
from tetris_sim.model.grid import Grid
from tetris_sim.model.radiation import STEFAN_BOLTZMANN
from tetris_sim.model.slab import PointLabels

if TYPE_CHECKING:
    pass

MOST_IDS = 2048  # so that tables of pairs stay below 100 MB
_PERFECT = 1e30  # W/(m K), of what resists nothing
_LEAST_FULL = 0.5  # of a source smaller than its cells
_SAME = 1e-9  # relative; sizes that differ by less are the same
_KEPT_AROUND = 32  # blocks by their segments: those of some planes
_KEPT_BLOCKS = 4096  # of 2^18 ids each: all of a grid of 1024^3, a byte or two a point


@dataclass(frozen=True)
class Openness:
    """Faces of the domain, per axis in array order.

    Attributes:
        periodic: whether the faces of an axis are joined.
        insulated: whether the (low, high) face lets nothing pass that depends on the temperature.
    """

    periodic: tuple[bool, ...]
    insulated: tuple[tuple[bool, bool], ...]


@dataclass(frozen=True, eq=False)
class GridScan:
    """Facts about the body that a pass over every point found.

    Attributes:
        painting: of the body.
        conductance: by axis and pair of fillings (ndim, n, n) [W/(m^3 K)].
        resistance: of contacts, by axis and pair of fillings (ndim, n, n) [m^2 K/W].
        radiance: of the same, effective emissivity times the Stefan-Boltzmann constant, per area of
            the faces of cells [W/(m^2 K^4)].
        fullness: of the cells of each filling: volume of its substance per volume of the cells.
        volumes: of the cells by state [m^3].
        touching: pairs of fillings that lie side by side somewhere, smaller number first.
        dt_limit: largest stable time step [s].
        limiting: name of the material that sets it.
        openings: of faces between cells that walls cut, by axis and pair of fillings (ndim, n, n):
            their area per area of the faces of cells; None if all are whole.
        reaches: see `CutCells.reaches`.
        shortened: the largest stable step per the one of whole cells.
    """

    painting: RasterizedBody
    conductance: Numbers
    resistance: Numbers
    radiance: Numbers
    fullness: Numbers
    volumes: Numbers
    touching: frozenset[tuple[int, int]]
    dt_limit: float
    limiting: str
    openings: Numbers | None = None
    reaches: Numbers | None = None
    shortened: float = 1.0

    @functools.cached_property
    def occurring(self) -> tuple[int, ...]:
        """The states that occur, in the order of their ids."""
        return tuple(int(state) for state in np.flatnonzero(self.volumes))

    @functools.cached_property
    def fillings(self) -> tuple[Filling, ...]:
        """Return the filling of each id."""
        return tuple(
            self.painting.fillings[self.painting.states[state][0]] for state in self.occurring
        )

    @property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the sources over each id."""
        return tuple(self.painting.states[state][1] for state in self.occurring)

    def extent(self, source: int) -> tuple[float, float]:
        """Volume of what the cells that a source heats hold, and of the source within its true
        surface [m^3].
        """
        own = self.volumes * self.fullness[[it for it, _ in self.painting.states]]
        cells, filled = (
            sum(
                float(of[state])
                for state, sources in zip(self.occurring, self.sources, strict=True)
                if source in sources
            )
            for of in (self.volumes, own)
        )
        return filled, max(cells + self.painting.cuts.source_gain(source), _LEAST_FULL * cells)

    def extents(self) -> tuple[str, ...]:
        """Say volumes of materials and areas of surfaces, true and as cells and their faces have
        them, where they differ.
        """
        painting, dimensions = self.painting, self.painting.grid.dimensions
        volume_unit, area_unit = (_power_of_metre(it) for it in (dimensions, dimensions - 1))

        cells, used = np.zeros((2, len(painting.fillings)))
        for state, (filling, _) in enumerate(painting.states[: len(self.volumes)]):
            base = painting.cuts.bases[filling]
            cells[base] += self.volumes[state]
            used[base] += self.volumes[state] * self.fullness[filling]

        names = [it.name for it in painting.fillings]
        said = [
            f"{names[base]}: volume {cells[base] + gain:.5g} {volume_unit}, {used[base]:.5g} as "
            f"computed, {cells[base]:.5g} in its cells"
            for base, gain in enumerate(painting.cuts.gains())
            if abs(gain) > _SAME * cells[base] and painting.fillings[base].substance is not None
        ]
        said += [
            f"{names[a]} to {names[b]}: area {true:.5g} {area_unit}, {area:.5g} as computed, "
            f"{faces:.5g} as faces of cells"
            for (a, b), (true, area, faces) in sorted(painting.cuts.areas().items())
            if abs(true - faces) > _SAME * faces
        ]
        if self.shortened < 1 - _SAME:
            said.append(
                f"cells that surfaces cut hold less heat than whole ones, which makes the largest "
                f"stable time step {self.shortened:.2g} of what it would be otherwise"
            )
        return tuple(said)

    @functools.cached_property
    def enthalpy(self) -> Enthalpy | None:
        """The curves by id, if something in the body melts, depends on temperature or radiates."""
        # The state means the same in all parts of a run, whatever is there.
        layers, all_of = self.painting.layers, self.painting.fillings
        every = [all_of[it.filling] for it in layers] if self.painting.passes else self.fillings
        curved = any(it.substance is not None and it.substance.properties for it in every)
        if not curved and not (self.radiance > 0).any():
            return None
        painting, of_id = self.painting, self.of_id
        return enthalpy_of(
            painting.fillings,
            [(it, self._kind(it)) for it in of_id],
            (self.resistance, self.radiance),
            painting.grid.spacing,
            painting.cuts.shares(),
        )

    def _kind(self, filling: int) -> int:
        """A filling whose curves are the same: that of the substance, without its surfaces."""
        is_substance = self.painting.fillings[filling].substance is not None
        return self.painting.cuts.bases[filling] if is_substance else filling

    def in_potentials(self, medium: Medium) -> Medium:
        """The tables by id for heat contents."""
        assert self.enthalpy is not None
        openings = self.by_id(self.openings)
        return in_potentials(medium, self.enthalpy, self.fullness[self.of_id], openings)

    def by_id(self, table: Numbers | None) -> Numbers | None:
        """A table by pair of fillings as one by pair of ids, (ndim, n_ids, n_ids), if any."""
        return None if table is None else table[:, self.of_id][:, :, self.of_id]

    @property
    def of_id(self) -> list[int]:
        """The number of the filling of each id."""
        return [self.painting.states[state][0] for state in self.occurring]

    def medium(self) -> Medium:
        """The tables by id."""
        of_id = np.array(self.of_id)
        number: Ids = np.zeros(len(self.volumes), np.uint8 if len(of_id) <= 256 else np.uint16)
        number[list(self.occurring)] = np.arange(len(of_id))

        shape = self.painting.grid.shape

        def compute(index: tuple[int, ...]) -> Ids:
            if self.painting.segments is not None:
                return self.painting.spread(index, number)
            return np.asarray(number[self.painting(block_box(shape, index))])

        block = functools.lru_cache(maxsize=_KEPT_BLOCKS)(compute)

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
            capacity=capacities(self.fillings) * self.fullness[of_id],
            names=tuple(filling.name for filling in self.fillings),
            void=void if void.any() else None,
            regions=self._regions(),
        )

    def hidden(self) -> tuple[str, ...]:
        """Say which regions have no point left, as later ones cover all of them."""
        painting = self.painting
        return tuple(
            f"model.regions.{number}{f' ({it.name})' if it.name else ''}: later regions cover all "
            "of it, so nothing of it is left; put it behind them if it is to be seen"
            for number, it in enumerate(painting.regions)
            if number not in painting.left
        )

    def _regions(self) -> PointLabels:
        """Which region each point shows: the last one over it, by name or else by its place in the
        list, from 1.
        """
        painting = self.painting
        names = [it.name or f"region {n}" for n, it in enumerate(painting.regions, 1)]
        dtype = np.uint8 if len(names) <= 256 else np.uint16
        of_layer: Ids = np.array([it.region for it in painting.layers], dtype)
        return PointLabels(tuple(names), lambda box: of_layer[painting.layers_in(box)[0]])


def _power_of_metre(power: int) -> str:
    return "m" if power == 1 else f"m^{power}"


def conductances(
    fillings: Sequence[Filling],
    resistance: Numbers,
    spacing: Sequence[float],
    shares: Numbers | float = 1.0,
    openings: Numbers | None = None,
    reaches: Numbers | None = None,
) -> Numbers:
    """Conductance between neighbours, (ndim, n, n) [W/(m^3 K)].

    A fluid is as far away as 1 / h lets it be; what is not of the body exchanges nothing with its
    like. Where conductivity or heat capacity depends on temperature, these are what a time step has
    to be stable for.

    Args:
        fillings: those of the body.
        resistance: of joints, by axis (ndim, n, n) [m^2 K/W].
        spacing: array order [m].
        shares: by filling and axis, the area of the surface per area of a face, (n, ndim).
        openings: see `GridScan`.
        reaches: likewise.
    """
    n = len(fillings)
    shares = np.broadcast_to(shares, (n, len(spacing)))

    outside = np.array([it.substance is None for it in fillings])
    tables = np.empty((len(spacing), n, n))
    for axis, h in enumerate(spacing):
        direction = len(spacing) - 1 - axis  # of x, y, z
        k = np.zeros(n)
        for number, filling in enumerate(fillings):
            if filling.substance is not None:
                k[number] = filling.substance.conductivity[direction]
            elif filling.fluid is not None and filling.fluid.emissivity > 0:
                k[number] = _PERFECT  # its film is a contact
            elif filling.fluid is not None:
                # So that half a cell resists by 1 / h, on the area of the surface.
                k[number] = filling.fluid.h * h / 2 * shares[number, axis]
        further = np.zeros((n, n))
        if reaches is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                further = np.where(
                    reaches[axis] == 1, 0.0, (reaches[axis] - 1) * h / (2 * k[:, None])
                )
        tables[axis] = in_series(h, k, resistance[axis] + (further + further.T))
        tables[axis][np.ix_(outside, outside)] = 0.0
        for number, filling in enumerate(fillings):
            if filling.substance is not None and filling.substance.properties is not None:
                rate = filling.substance.diffusivity[direction] * filling.substance.capacity
                tables[axis, number, number] = rate / h**2
    return tables if openings is None else tables * openings


def joints(
    painting: RasterizedBody, contacts: Iterable[ContactSection], shares: Numbers
) -> tuple[Numbers, Numbers]:
    """Of the joints of fillings, by axis (ndim, n, n), per area of the faces of cells: resistance
    [m^2 K/W], and radiance [W/(m^2 K^4)]. Films of fluids that radiate are among them.

    Args:
        painting: of the body.
        contacts: joints of materials.
        shares: by filling and axis, the area of the surface per area of a face, (n, ndim).
    """
    fillings = painting.fillings
    found, radiance = np.zeros((2, shares.shape[1], len(fillings), len(fillings)))

    def join(i: int, j: int, resistance: float, emitted: float) -> None:
        share = shares[painting.cuts.carrier(i, j)]
        with np.errstate(divide="ignore", invalid="ignore"):
            found[:, i, j] = found[:, j, i] = np.where(share > 0, resistance / share, np.inf)
        radiance[:, i, j] = radiance[:, j, i] = emitted * share

    names = [it.name if it.substance is not None else None for it in fillings]
    for contact in contacts:
        sides = [[k for k, name in enumerate(names) if name == it] for it in contact.between]
        for i, j in itertools.product(*sides):
            join(i, j, contact.conducts, contact.radiance)
    solid = [k for k, name in enumerate(names) if name is not None]
    for i, it in enumerate(fillings):
        if it.fluid is not None and it.fluid.emissivity > 0:
            film = 1 / it.fluid.h if it.fluid.h > 0 else math.inf
            for j in solid:
                join(i, j, film, it.fluid.emissivity * STEFAN_BOLTZMANN)
    return found, radiance


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
    # Cells that a surface cuts may be lighter, and then count by themselves; what surfaces let pass
    # is at most what the faces of cells would.
    n, cuts = len(painting.fillings), painting.cuts
    contacts = tuple(contacts)
    resistance, radiance = joints(painting, contacts, np.ones((n, grid.ndim)))
    # However hot they are: surfaces that radiate resist nothing.
    resistance[radiance > 0] = 0.0
    conductance = np.tile(conductances(painting.fillings, resistance, grid.spacing), (2, 2))
    # Beyond an insulated face lies one filling more, that lets nothing pass.
    walled = np.pad(conductance, ((0, 0), (0, 1), (0, 1)))
    largest = np.zeros((1 + grid.ndim, 2 * n))  # sums around a point, of all axes and of each
    volumes: npt.NDArray[Any] = np.zeros(0)
    touching: set[tuple[int, int]] = set()

    around_block = _Surroundings(painting, openness.periodic)
    for box in painting.blocks():
        states, cells, is_new = around_block(box)
        inside = states[(slice(1, -1),) * grid.ndim]
        flat = inside.reshape(-1)
        own: npt.NDArray[Any] = np.bincount(flat, cells, len(painting.states))
        own = own * grid.cell_volume if grid.is_even else own
        own[: len(volumes)] += volumes
        volumes = own
        if not is_new:
            continue

        of_state = np.array(
            [cuts.bases[it] + n * painting.fillings[it].is_cut for it, _ in painting.states],
            np.int32,
        )
        around = of_state[states]
        _wall(around, box, grid.shape, openness)
        touching |= _look_around(around, walled, largest)

    fillings, shares, fullness = painting.fillings, cuts.shares(), cuts.fullness()
    openings, reaches = cuts.openings(), cuts.reaches()
    resistance, radiance = joints(painting, contacts, np.ones(shares.shape))
    resistance[radiance > 0] = 0.0
    bounds = conductances(fillings, resistance, grid.spacing, shares, openings, reaches)

    def near(base: int) -> list[int]:
        beside = {b % n for pair in touching if base in (pair[0] % n, pair[1] % n) for b in pair}
        return [k for k, it in enumerate(cuts.bases) if it in beside | {base}]

    # What cells are cut count by themselves, and all of them where a surface is larger than faces.
    rates = np.zeros((2, n))
    rates[0] = largest[0, :n] / capacities(fillings[:n])
    for number, it in enumerate(fillings):
        if it.is_cut:
            base = cuts.bases[number]
            through = largest[0, n + base]
            if cuts.is_flat(number) and not (openings is None and reaches is None):
                open_ = np.ones(grid.ndim) if openings is None else openings[:, number, number]
                passing = largest[1:, n + base] * open_
                # What a wall is near to exchanges at most as much with either side.
                is_near = None if reaches is None else reaches[:, number].min(axis=1) < 1
                if is_near is not None and is_near.any():
                    most = 2 * bounds[:, number][:, near(base)].max(axis=1)
                    passing = np.where(is_near, most, passing)
                through = passing.sum()
            rate = through / capacities([it])[0] / fullness[number]
            rates[1, base] = max(rates[1, base], rate)
    fastest = rates.max() * max(1.0, float(shares.max()))
    limiting = int(np.argmax(rates))
    dt_limit = 1 / float(fastest) if fastest > 0 else math.inf
    whole = (largest[0].reshape(2, n) / capacities(fillings[:n])).max()
    resistance, radiance = joints(painting, contacts, shares)
    return GridScan(
        painting,
        conductances(fillings, resistance, grid.spacing, shares, openings, reaches),
        resistance,
        radiance,
        fullness,
        volumes,
        frozenset((min(a % n, b % n), max(a % n, b % n)) for a, b in touching if a % n != b % n),
        dt_limit,
        fillings[limiting % n].name,
        openings,
        reaches,
        shortened=float(whole / fastest) if fastest > 0 else 1.0,
    )


class _Surroundings:
    """The states of a block and of one point more on each side.

    In a body of boxes nothing changes within a segment of an axis, so that its first, one inner and
    its last point stand for all of them and for what they have beside them.
    """

    def __init__(self, painting: RasterizedBody, periodic: tuple[bool, ...]) -> None:
        self._painting, self._grid, self._periodic = painting, painting.grid, periodic
        # Volumes of graded cells are added point by point.
        self._in_segments = painting.segments is not None and painting.grid.is_even
        self._numbered: set[tuple[int, ...]] = set()
        self._kept: dict[bytes, States] = {}  # states by segments, the newest last

    def __call__(self, box: Box) -> tuple[States, Numbers | None, bool]:
        """Return the states; how many points each of the inner ones stands for, if not one, or on a
        graded grid the volumes of their cells [m^3]; and whether the block is unlike those kept.
        """
        grid, wider = self._grid, tuple((low - 1, high + 1) for low, high in box)
        if not self._in_segments:
            cells = None if grid.is_even else grid.volumes(box).reshape(-1)
            return padded(self._painting, wider, grid.shape, self._periodic), cells, True

        axes, counts = [], np.ones(1)
        for begins, (_, high) in zip(self._painting.begins(box), box, strict=True):
            last = np.append(begins[1:], high) - 1
            axes.append(np.unique([begins, np.minimum(begins + 1, last), last]))
            counts = np.multiply.outer(counts, np.diff(axes[-1], append=high))
        # A point stands for those up to the next one.
        whole = [self._beyond(axis, *it) for axis, it in enumerate(zip(box, axes, strict=True))]
        # States are numbered block by block, in the order in which padding reads blocks.
        padded(self._number, wider, grid.shape, self._periodic)

        # Planes within a segment are alike, but for those at the ends of the grid.
        key = b"".join(map(self._segments_at, range(grid.ndim), whole))
        key += str(
            [(low == 0, high == n) for (low, high), n in zip(box, grid.shape, strict=True)]
        ).encode()
        is_new = key not in self._kept
        if is_new:
            if len(self._kept) == _KEPT_AROUND:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = self._painting.on(whole)
        return self._kept[key], counts.reshape(-1), is_new

    def _segments_at(self, axis: int, points: npt.NDArray[np.int64]) -> bytes:
        """Number the segments in which points along an axis lie."""
        assert self._painting.segments is not None
        return np.searchsorted(self._painting.segments[axis], points, "right").tobytes() + b";"

    def _beyond(
        self, axis: int, span: tuple[int, int], inner: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Add the points beside a block; beyond the grid those that `padded` takes."""
        n, ring = self._grid.shape[axis], self._periodic[axis]
        low, high = span[0] - 1, span[1]
        return np.array(
            [
                (n - 1 if ring else 0) if low < 0 else low,
                *inner,
                (0 if ring else n - 1) if high == n else high,
            ]
        )

    def _number(self, box: Box) -> npt.NDArray[np.bool_]:
        """Number the states of the blocks that a box touches."""
        for index, _ in blocks_of(self._grid.shape, box):
            if index not in self._numbered:
                self._numbered.add(index)
                self._painting.in_segments(block_box(self._grid.shape, index))
        return np.broadcast_to(np.False_, shape_of(box))


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
        largest: of all axes and of each, by filling, (1 + ndim, n).

    Returns:
        Pairs of fillings that touch.
    """
    ndim, first = around.ndim, int(around.flat[0])
    if first >= 0 and (around == first).all():
        _raise(largest, first, walled)
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
    alone = np.flatnonzero(np.bincount(centre[~mixed], minlength=largest.shape[1]))
    for filling in alone:
        _raise(largest, int(filling), walled)

    here = centre[mixed]
    if not len(here):
        return set()
    total, along, pairs = np.zeros(len(here)), np.zeros((ndim, len(here))), set()
    for number, there in enumerate(it[mixed] for it in beside):
        through = walled[number // 2][here, there]
        total += through
        along[number // 2] += through
        low, high = np.minimum(here, there), np.maximum(here, there)
        for pair in np.unique(low[low >= 0].astype(np.int64) * len(walled[0]) + high[low >= 0]):
            pairs.add(divmod(int(pair), len(walled[0])))
    for sums, own in zip(largest, (total, *along), strict=True):
        np.maximum.at(sums, here, own)
    return {(a, b) for a, b in pairs if a != b}


def _raise(largest: Numbers, filling: int, walled: Numbers) -> None:
    """Raise `largest` to the sums around a point among its like."""
    through = 2 * walled[:, filling, filling]
    own = np.array([through.sum(), *through])
    largest[:, filling] = np.maximum(largest[:, filling], own)
