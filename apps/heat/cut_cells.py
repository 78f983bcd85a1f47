"""Cells that surfaces cut, and cells beside surfaces through which heat is exchanged.

A cell is filled with one thing, that of its centre. Where the true surface is not the faces of
cells, cells beside it get variants of their filling, which know how much of the stairs is surface
and how much of the cells is body. Variants are few, so that tables of pairs stay small: they differ
by the direction of the surface, and by how far walls parallel to the axes lie off the faces. What a
variant stands for is the mean over its cells, scaled so that all sums are the true ones
(`subgrid.py`).

A cell holds no less than half of its volume and no more than twice that: smaller ones would ask for
ever smaller time steps. What is missing for it is put into the other cells that are cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.heat.materials import ContactSection
from tetris_sim.apps.heat.shapes import Filling
from tetris_sim.apps.heat.subgrid import Layers, SeenFaces, Shapes, Sizes, Subgrid, factors
from tetris_sim.apps.heat.surfaces import (
    CrossedFaces,
    Mask,
    Numbers,
    Places,
    changes,
    direction_of,
    unique_rows,
)
from tetris_sim.apps.initial_file import Box
from tetris_sim.errors import ConfigError

if TYPE_CHECKING:
    from tetris_sim.apps.heat.survey import GridScan

States = npt.NDArray[np.int32]
_LEAST_FULL = 0.5  # a cut cell holds no less, whatever a shape smaller than cells asks for
_LEVELS = 16  # of how far a wall may lie beside a face, per cell
_REACHES = 2.0**-20, 2.0  # halves of a cell between its centre and a wall; never none at all
_WHOLE, _FLOATING, _INCLINED = range(3)  # kinds of faces


class CutCells:
    """Variants of fillings, and the sums that they stand for.

    Attributes:
        fillings: those known so far; variants are appended as they are found.
        bases: by filling, the number of the one that it is a variant of.
        stairs: sizes by the faces of cells; the gains are those of what is inclined.
        true: sizes by thinner lines; the same where there are none.
        faces: areas of faces of cells, by pair of fillings: of walls on faces and of those off them
            by axis, and the sum of all, (2 ndim + 1,) [m^2].
    """

    def __init__(
        self,
        shapes: Shapes,
        fillings: list[Filling],
        contacts: Sequence[ContactSection],
        subgrid: Subgrid | None,
        look: Callable[[Box], tuple[Layers, list[Mask]]],
        state_of: Callable[[int, tuple[int, ...]], int],
    ) -> None:
        """Begin with no variants.

        Args:
            shapes: of regions and sources.
            fillings: that are no variants.
            contacts: resistances of joints.
            subgrid: where true sizes differ from those of cells.
            look: the layers of the cells of a box, and which of them each source heats.
            state_of: numbers the state of a filling and sources.
        """
        self.fillings, self._shapes, self._subgrid = fillings, shapes, subgrid
        self._look, self._state_of = look, state_of
        self._grid, self._n = shapes.grid, len(fillings)
        self.bases = list(range(self._n))

        n, ndim = self._n, shapes.grid.ndim
        self._exchanges = _exchanging(fillings, contacts)
        # Of two fillings that exchange heat, a fluid knows the direction of the surface, or the
        # first material of the two.
        fluid = np.array([it.fluid is not None for it in fillings], np.bool_)
        first = np.arange(n)[:, None] < np.arange(n)
        self._carriers = fluid[:, None] | (~np.logical_or.outer(fluid, fluid) & first)
        self._stores = np.array([it.substance is not None for it in fillings], np.bool_)

        # Both sums begin alike: what no line finds is what cells have.
        sources = dict.fromkeys((number for number, *_ in shapes.sources), 0.0)
        self.stairs, self.true = (Sizes(np.zeros(n), {**sources}, {}) for _ in range(2))
        self.faces: dict[tuple[int, int], Numbers] = {}
        self._variants: dict[tuple[int, ...], int] = {}
        self._flat: list[bool] = []  # whether only walls parallel to the axes cut a variant
        self._held: list[Numbers] = []  # by variant: volume of its cells, and times each width
        self._reach: dict[tuple[int, int, int], Numbers] = {}  # of walls: see `reaches`
        self._shares: dict[tuple[int, int, int, int], Numbers] = {}
        self._inclined = np.zeros((2, n))  # gains, and volumes of the cells that are cut
        self._ndim = ndim

    def vary(self, box: Box, states: States, *, is_new: bool) -> None:
        """Give cells beside surfaces the states of variants of their fillings.

        Args:
            box: of global indices.
            states: the number of each cell's filling, which is that of its state; changed.
            is_new: the box is seen for the first time: its surfaces are added up.
        """
        if is_new and self._subgrid is not None:
            self._subgrid.measure(box, self.true, self._look)
        seen = [it for axis in range(self._ndim) for it in self._beside(box, axis, states, is_new)]
        self._number(states, SeenFaces(*map(np.concatenate, zip(*seen, strict=True))), box, is_new)

    def _beside(self, box: Box, axis: int, states: States, is_new: bool) -> list[tuple[Any, ...]]:
        """How faces along an axis count for the cells on both sides of them: see `SeenFaces`."""
        (low, high), n = box[axis], self._grid.shape[axis]
        wide = (*box[:axis], (max(low - 1, 0), min(high + 1, n)), *box[axis + 1 :])
        corner = np.array(wide)[:, 0]
        layers, heated = self._look(wide)
        places, step = changes(layers, axis)
        ends = [layers[tuple((places + it * step).T)] for it in (0, 1)]
        faces, pair, _ = self._shapes.crossed(axis, places + corner, ends)
        if is_new:
            own = faces.below[:, axis] >= low
            self._add_up(axis, faces, pair, own)
            self._add_sources(axis, wide, layers, heated, low)

        share = faces.crossings.share
        # Walls on the faces of cells are whole, and cells beside nothing else keep their bits.
        is_inclined = share < 1
        kind = np.where(is_inclined, _INCLINED, np.where(faces.floats, _FLOATING, _WHOLE))
        is_cut = (is_inclined & np.isfinite(faces.crossings.place)) | (faces.gain != 0)
        exchanges = self._exchanges[pair[0], pair[1]]
        code = np.minimum(*pair) * self._n + np.maximum(*pair)

        found = []
        for side in (0, 1):
            at = faces.below - np.array(box)[:, 0]
            at[:, axis] += side
            here = (at[:, axis] >= 0) & (at[:, axis] < states.shape[axis])
            number = np.ravel_multi_index(tuple(at.T), states.shape, mode="clip")
            cut = here & is_cut & self._stores[pair[side]]
            carries = here & exchanges & self._carriers[pair[side], pair[1 - side]]
            # The upper cell loses what the lower one gains.
            gain = faces.gain if side == 0 else -faces.gain
            cells = faces.below + side * np.eye(self._ndim, dtype=np.int64)[axis]
            inside = np.minimum(cells, n - 1)
            widths = self._grid.widths(axis)[inside[:, axis]] * self._grid.scale_at(axis, inside)
            area = np.where(faces.area > 0, faces.area, np.inf)
            reach = np.clip(1 + 2 * gain / (area * widths), *_REACHES)
            # Of a cell that some wall cuts, all walls count.
            marked = cut | carries | (here & self._stores[pair[side]])
            chosen = (number, kind, share, gain, cut, carries, code, reach, pair[1 - side])
            along = np.full(np.count_nonzero(marked), axis)
            found.append((along, *(it[marked] for it in chosen)))
        return found

    def _add_up(self, axis: int, faces: CrossedFaces, pair: Sequence[Layers], own: Mask) -> None:
        """Add the areas of surfaces, and the volumes between them and the faces of cells."""
        part, ends = faces.chosen(own), [it[own] for it in pair]
        self.stairs.add(axis, part, ends, part.crossings.share * part.area)
        # By kind of face, because each kind has a factor of its own.
        flat = part.crossings.share == 1
        for a, b in np.unique(np.stack(ends), axis=1).T.tolist():
            here = (ends[0] == a) & (ends[1] == b)
            sums = self.faces.setdefault((min(a, b), max(a, b)), np.zeros(2 * self._ndim + 1))
            sums[axis] += part.area[here & flat & ~part.floats].sum()
            sums[self._ndim + axis] += part.area[here & part.floats].sum()
            sums[-1] += part.area[here].sum()

    def _add_sources(
        self, axis: int, box: Box, layers: Layers, heated: Sequence[Mask], low: int
    ) -> None:
        """Add the volumes between the true surfaces of sources and the faces of their cells."""
        corner = np.array(box)[:, 0]
        for (number, place, _), inside in zip(self._shapes.sources, heated, strict=True):
            places, step = changes(inside, axis)
            places = places[places[:, axis] + corner[axis] >= low]
            ends = [layers[tuple((places + it * step).T)] for it in (0, 1)]
            edge = self._shapes.crossed_of_source(place, axis, places + corner, ends)
            sign = np.where(inside[tuple(places.T)], 1.0, -1.0)
            self.stairs.sources[number] += float((sign * edge.gain).sum())

    def _number(self, states: States, seen: SeenFaces, box: Box, is_new: bool) -> None:
        """Number the variants of fillings that a block has; `states` is changed."""
        ndim, flat_states = self._ndim, states.reshape(-1)
        cells, place = np.unique(seen.number, return_inverse=True)
        at = np.stack(np.unravel_index(cells, states.shape), axis=1) + np.array(box)[:, 0]
        volumes = self._grid.volumes_at(at)

        # The direction of the surface, where some face of it is not what it seems.
        sums, counts = np.zeros((2, ndim, len(cells)))
        carries, kind = seen.carries, seen.kind
        np.add.at(sums, (seen.axis[carries], place[carries]), seen.share[carries])
        np.add.at(counts, (seen.axis[carries], place[carries]), 1.0)
        is_directed = np.zeros(len(cells), np.bool_)
        is_directed[place[carries & (kind != _WHOLE)]] = True

        # How far walls lie off the faces, per cell and axis, and what else cuts a cell.
        widths, gains = np.ones((ndim, len(cells))), np.zeros(len(cells))
        how = np.zeros(len(cells), np.int64)  # 1: by walls parallel to the axes, 2: otherwise
        inclined, walls = (seen.cut & it for it in (kind == _INCLINED, kind != _INCLINED))
        how[place[walls]] = 1
        how[place[inclined]] = 2
        beyond = seen.gain[walls] / volumes[place[walls]]
        np.add.at(widths, (seen.axis[walls], place[walls]), beyond)
        np.add.at(gains, place[seen.cut], seen.gain[seen.cut])
        # A wall lies at most half a cell from a face; with one on either side a cell could vanish.
        widths = np.where(how == 1, np.clip(widths, 0.5, 1.5), 1.0)

        varies = is_directed | (how > 0)
        direction = np.where(is_directed, direction_of(sums, counts), -1)
        levels = np.where(how == 1, np.rint(_LEVELS * widths).astype(np.int64), 0)
        sides = np.zeros((ndim, len(cells)), np.int64)
        np.add.at(sides, (seen.axis, place), 1)
        levels += np.where((levels > 0) & (sides > 1), 2 * _LEVELS, 0)  # walls on both sides
        # Levels keep variants few; the mean over the cells of one keeps their sum.
        keys = (flat_states[cells], *direction, how, *levels)
        kinds, which = unique_rows([it[varies] for it in keys])
        variants = np.array([self._variant(*row) for row in kinds.tolist()], np.int64)
        own = np.full(len(cells), -1)
        own[varies] = variants[which] if len(kinds) else -1
        # A block that was forgotten and is seen again gets the same variants.
        if is_new:
            self._add_cells(own, flat_states[cells], volumes, (how, widths, gains))
            faces = carries & (own[place] >= 0)
            self._add_shares(own[place[faces]], seen.chosen(faces))
            faces = (how[place] == 1) & (own[place] >= 0)
            self._add_reaches(own[place[faces]], seen.chosen(faces))
        numbers = [self._state_of(it, ()) for it in variants]
        flat_states[cells[varies]] = np.array(numbers, np.int32)[which] if numbers else 0

    def _add_cells(
        self,
        own: Places,
        bases: States,
        volumes: Numbers,
        cut: tuple[Places, Numbers, Numbers],
    ) -> None:
        how, widths, gains = cut
        # On stairs the parts that lie beyond faces even out, so that one mean does for all.
        for base in np.unique(bases[how == 2]):
            here = (how == 2) & (bases == base)
            self._inclined[:, base] += gains[here].sum(), volumes[here].sum()
        for variant in np.unique(own[how > 0]):
            here = (own == variant) & (how > 0)
            held = np.stack([np.ones(len(volumes)), *widths, widths.prod(axis=0)])[:, here]
            self._held[variant - self._n] += (held * volumes[here]).sum(axis=1)

    def _add_shares(self, variants: Places, seen: SeenFaces) -> None:
        """Add the shares of the faces of variants."""
        keys = np.stack([variants, seen.axis, seen.code, seen.kind])
        for key in np.unique(keys, axis=1).T:
            share = seen.share[(keys == key[:, None]).all(axis=0)]
            sums = self._shares.setdefault(tuple(key.tolist()), np.zeros(2))
            sums += share.sum(), len(share)

    def _add_reaches(self, variants: Places, seen: SeenFaces) -> None:
        """Add how far walls are from the centres of the cells of variants that walls cut."""
        keys = np.stack([variants, seen.axis, seen.beyond])
        for key in np.unique(keys, axis=1).T:
            reach = seen.reach[(keys == key[:, None]).all(axis=0)]
            sums = self._reach.setdefault(tuple(key.tolist()), np.zeros(2))
            sums += reach.sum(), len(reach)

    def _variant(self, base: int, *key: int) -> int:
        whole = (base, *key)
        if whole not in self._variants:
            how = key[self._ndim]
            self._variants[whole] = len(self.fillings)
            self.fillings.append(replace(self.fillings[base], is_cut=how > 0))
            self.bases.append(base)
            self._flat.append(how == 1)
            self._held.append(np.zeros(self._ndim + 2))
        return self._variants[whole]

    def is_flat(self, filling: int) -> bool:
        """Whether a filling is a variant that only walls parallel to the axes cut."""
        return filling >= self._n and self._flat[filling - self._n]

    def carrier(self, a: int, b: int) -> int | None:
        """Which of two fillings knows the direction of the surface between them; None if neither a
        film nor a contact is there.
        """
        own, other = self.bases[a], self.bases[b]
        if not self._exchanges[own, other]:
            return None
        return a if self._carriers[own, other] else b

    def shares(self) -> Numbers:
        """By filling and axis, the area of the surface that a face of its cells stands for, per
        area of the face, (n_fillings, ndim): the mean over such faces, once every block was seen.
        """
        found, counts = np.zeros((2, len(self.fillings), self._ndim))
        by_pair = {key: self._factors(key) for key in self.faces}
        for (variant, axis, code, kind), (total, count) in self._shares.items():
            flat, inclined = by_pair[divmod(code, self._n)]
            factor = (1.0, flat[axis], inclined)[kind]
            found[variant, axis] += total * factor
            counts[variant, axis] += count
        return np.divide(found, counts, out=np.ones_like(found), where=counts > 0)

    def _factors(self, pair: tuple[int, int]) -> tuple[Numbers, float]:
        """By how much the shares of faces of each kind are to be scaled; see `factors`."""
        if self._subgrid is None or pair not in self.true.areas:
            return np.ones(self._ndim), 1.0
        faces = self.faces[pair]
        whole, floating = faces[: self._ndim], faces[self._ndim : -1]
        return factors(self.true.areas[pair], whole, floating, float(self.stairs.areas[pair][-1]))

    def areas(self) -> dict[tuple[int, int], tuple[float, float, float]]:
        """Of surfaces, by pair of fillings: true, as computed and as faces of cells [m^2]."""
        found = {}
        for pair, faces in self.faces.items():
            flat, inclined = self._factors(pair)
            whole, floating = faces[: self._ndim], faces[self._ndim : -1]
            stairs = self.stairs.areas[pair]
            # As `shares` has it, summed over all variants.
            used = float(whole.sum() + (floating * flat).sum() + inclined * stairs[-1])
            true = self.true.areas.get(pair) if self._subgrid else stairs

            is_used = self._exchanges[pair]
            found[pair] = (
                float(used if true is None else true.sum()),
                used if is_used else float(faces[-1]),
                float(faces[-1]),
            )
        return found

    def gains(self) -> Numbers:
        """By filling that is no variant, its true volume without that of its cells [m^3]."""
        return (self.stairs if self._subgrid is None else self.true).gains

    def source_gain(self, source: int) -> float:
        """By how much the true volume of a source exceeds that of its cells [m^3]."""
        return (self.stairs if self._subgrid is None else self.true).sources[source]

    def fullness(self) -> Numbers:
        """By filling, the volume of its substance in its cells per volume of the cells, once every
        block was seen, (n_fillings,): what lies on the wrong side of the faces of cells is put
        into the cells that the surface cuts.
        """
        found, volumes = np.ones(len(self.fillings)), np.zeros(len(self.fillings))
        with np.errstate(invalid="ignore", divide="ignore"):
            pooled = np.nan_to_num(self._inclined[0] / self._inclined[1], posinf=0.0, neginf=0.0)
            for variant, (held, is_flat) in enumerate(
                zip(self._held, self._flat, strict=True), self._n
            ):
                if self.fillings[variant].is_cut and held[0] > 0:
                    volumes[variant] = held[0]
                    own = held[-1] / held[0] if is_flat else 1 + pooled[self.bases[variant]]
                    found[variant] = own

        # What a bound of one keeps from the sum goes into the others.
        bases, gains = np.array(self.bases), self.gains()
        for _ in range(4):
            found = np.where(volumes > 0, np.clip(found, _LEAST_FULL, 1 / _LEAST_FULL), 1.0)
            is_free = (volumes > 0) & (found > _LEAST_FULL) & (found < 1 / _LEAST_FULL)
            for base in np.unique(bases[is_free]):
                of = bases == base
                missing = gains[base] - (volumes[of] * (found[of] - 1)).sum()
                found[of & is_free] += missing / volumes[of & is_free].sum()
        return np.where(volumes > 0, np.clip(found, _LEAST_FULL, 1 / _LEAST_FULL), 1.0)

    def reaches(self) -> Numbers | None:
        """From the centres of cells of a filling to the walls of another one, in halves of their
        width, by axis and pair of fillings (ndim, n, n); None if it is 1 everywhere.
        """
        found = np.ones((self._ndim, len(self.fillings), len(self.fillings)))
        bases = np.array(self.bases)
        for (variant, axis, beyond), (total, count) in self._reach.items():
            found[axis, variant, bases == beyond] = total / count
        return None if (found == 1).all() else found

    def openings(self) -> Numbers | None:
        """The area across each axis of the cells of a filling between walls, per area of the faces
        of cells, by axis and pair of fillings (ndim, n, n), the smaller of both; None if it is 1.
        """
        open_ = np.ones((self._ndim, len(self.fillings)))
        for variant, held in enumerate(self._held, self._n):
            if self._flat[variant - self._n] and held[0] > 0:
                widths = held[1:-1] / held[0]
                for axis in range(self._ndim):
                    open_[axis, variant] = np.delete(widths, axis).prod()
        if (open_ == 1).all():
            return None

        # Films and contacts know their area already.
        exchanges = self._exchanges[np.ix_(self.bases, self.bases)]
        stores = self._stores[self.bases]
        apart = exchanges | ~np.logical_and.outer(stores, stores)
        return np.where(apart, 1.0, np.minimum(open_[:, :, None], open_[:, None, :]))


def _exchanging(
    fillings: Sequence[Filling], contacts: Sequence[ContactSection]
) -> npt.NDArray[np.bool_]:
    """Pairs of fillings with a film or a contact between them, (n, n)."""
    fluid = np.array([it.fluid is not None for it in fillings], np.bool_)
    solid = np.array([it.substance is not None for it in fillings], np.bool_)
    found = np.logical_and.outer(fluid, solid)
    names = [it.name if it.substance is not None else None for it in fillings]
    for contact in contacts:
        first, second = (np.array([it == name for it in names]) for name in contact.between)
        found |= np.logical_and.outer(first, second)
    return np.asarray(found | found.T)


# Walls of a body, for what exchanges heat with it from outside.


@dataclass(frozen=True, eq=False)
class Walls:
    """Faces of cells of a body that look at cells of another kind.

    Attributes:
        cell: flat number of the cell of the body, (n,).
        beyond: of the one that it looks at, (n,).
        axis: normal to the face, (n,).
        area: of the true surface that the face stands for (n,) [m^2].
        half: resistance from the centre of the cell to the face, (n,) [m^2 K/W].
    """

    cell: Places
    beyond: Places
    axis: Places
    area: Numbers
    half: Numbers

    def conductance(self, h: float) -> Numbers:
        """Return what passes through a film and the half cells behind it, (n,) [W/K]."""
        if h == 0:
            return np.zeros(len(self.area))
        return np.asarray(self.area / (1 / h + self.half))


class BodyWalls:
    """Looks for the walls of a body.

    Args:
        found: the body.
        periodic: per axis.
    """

    def __init__(self, found: GridScan, periodic: Sequence[bool]) -> None:
        self.found, self.grid, self._periodic = found, found.painting.grid, periodic
        self._whole = tuple((0, n) for n in self.grid.shape)
        self.ids = found.medium().ids(self._whole)
        # Cells that store heat, and those of nothing.
        self.solid = np.array([it.substance is not None for it in found.fillings])[self.ids]
        fluid = np.array([it.fluid is not None for it in found.fillings])[self.ids]
        self.empty = ~self.solid & ~fluid
        self._resists = [self._resistances(axis) for axis in range(self.grid.ndim)]

    def seen(self, region: int) -> Mask:
        """Return the cells in which a region of a number is seen."""
        return np.asarray(self.found.painting.seen(region, self._whole))

    def shares(self, cells: Mask) -> Numbers:
        """Return the share of each cell in the volume of some cells."""
        volumes = np.where(cells, self.grid.volumes(self._whole), 0.0)
        return np.asarray(volumes / max(volumes.sum(), 1e-300))

    def by_cell(self, walls: Walls, values: Numbers) -> Numbers:
        """Return sums over the walls of each cell, of the shape of the grid."""
        found = np.bincount(walls.cell, values, self.solid.size)
        return np.asarray(found.reshape(self.grid.shape))

    def _resistances(self, axis: int) -> Numbers:
        """Half a cell along an axis [m^2 K/W]."""
        place = self.grid.ndim - 1 - axis  # of x, y, z
        k = [
            1.0 if it.substance is None else it.substance.conductivity[place]
            for it in self.found.fillings
        ]
        width = self.grid.distances(axis, self._whole)
        return np.asarray(np.broadcast_to(width, self.grid.shape) / (2 * np.array(k)[self.ids]))

    def at_face(self, face: str) -> Walls:
        """Return the walls at a face of the box."""
        grid, axis = self.grid, self.grid.axis_names.index(face[:-1])
        at = 0 if face[-1] == "-" else grid.shape[axis] - 1
        places = np.argwhere(self.solid)
        places = places[places[:, axis] == at]
        lower = places.copy()
        lower[:, axis] -= face[-1] == "-"
        return self._walls(places, places, axis, grid.areas_at(axis, lower))

    def between(self, cells: Mask, others: Mask) -> Walls:
        """Return the walls of some cells of the body that look at others, which are none of it."""
        parts = list[Walls]()
        for axis, up in itertools.product(range(self.grid.ndim), (True, False)):
            n = self.grid.shape[axis]
            beside = np.roll(others, -1 if up else 1, axis)
            places = np.argwhere(cells & self.solid & beside)
            edge = n - 1 if up else 0
            if not self._periodic[axis]:
                places = places[places[:, axis] != edge]

            beyond, lower = places.copy(), places.copy()
            beyond[:, axis] = (beyond[:, axis] + (1 if up else -1)) % n
            lower[:, axis] -= not up
            walls = self._walls(places, beyond, axis, self.grid.areas_at(axis, lower))
            parts.append(replace(walls, area=walls.area * self._openness(walls)))
        return Walls(
            *(np.concatenate([getattr(it, own.name) for it in parts]) for own in fields(Walls))
        )

    def along(self, path: Sequence[Sequence[float]], key: str) -> tuple[Places, Numbers, Numbers]:
        """Return the cells that a path goes through, one after the other: flat numbers, middles of
        its pieces in array order (n, ndim) [m], and their lengths [m].

        Raises:
            ConfigError: it leaves the grid.
        """
        ends = [self.grid.ends(axis) for axis in range(self.grid.ndim)]
        points = np.array(path)[:, ::-1]  # array order
        for number, point in enumerate(points):
            if any(not e[0] <= x <= e[-1] for e, x in zip(ends, point, strict=True)):
                msg = f"{key}.{number}: this point lies outside of the grid"
                raise ConfigError(msg)

        cells, middles, lengths = list[int](), list[Numbers](), list[float]()
        for a, b in itertools.pairwise(points):
            way = b - a
            cuts = [(e - x) / d for e, x, d in zip(ends, a, way, strict=True) if d]
            places = np.unique(np.concatenate([[0.0, 1.0], *cuts]).clip(0, 1))
            for low, high in itertools.pairwise(places):
                middle = a + way * (low + high) / 2
                length = float(np.linalg.norm(way) * (high - low))
                inside = (np.searchsorted(e, x, "right") for e, x in zip(ends, middle, strict=True))
                index = np.minimum([*inside], self.grid.shape) - 1
                cell = int(np.ravel_multi_index(tuple(index), self.grid.shape))
                # A path that turns in a cell passes it once.
                if cells and cells[-1] == cell:
                    lengths[-1] += length
                    continue
                cells.append(cell)
                middles.append(middle)
                lengths.append(length)
        return np.array(cells), np.array(middles), np.array(lengths)

    def wetted(self, cells: Mask, middles: Numbers) -> tuple[Places, Walls]:
        """Return the walls of a void, and of each the nearest of some points."""
        from scipy.spatial import cKDTree

        at = self.between(self.solid, cells)
        index = np.unravel_index(at.beyond, self.grid.shape)
        places = [self.grid.positions(axis, it) for axis, it in enumerate(index)]
        nearest = cKDTree(middles).query(np.stack(places, axis=-1))[1]
        return np.asarray(nearest, np.int64), at

    def _walls(self, places: Places, beyond: Places, axis: int, area: Numbers) -> Walls:
        flat, there = (
            np.ravel_multi_index(tuple(it.T), self.grid.shape) for it in (places, beyond)
        )
        half = self._resists[axis].reshape(-1)[flat]
        if (reaches := self.found.reaches) is not None:
            ids = np.array(self.found.of_id)[self.ids.reshape(-1)]
            half = half * reaches[axis, ids[flat], ids[there]]
        return Walls(flat, there, np.full(len(flat), axis), area, half)

    def _openness(self, walls: Walls) -> Numbers:
        """The true area that faces stand for, per area of the face."""
        painting, of_id = self.found.painting, self.found.of_id
        ids = self.ids.reshape(-1)
        own, other = (np.array(of_id)[ids[it]] for it in (walls.cell, walls.beyond))

        # A fluid knows the direction of its surface; of a void only its whole area is known.
        shares = painting.cuts.shares()[other, walls.axis]
        whole = np.ones((len(painting.fillings),) * 2)
        bases = np.array(painting.cuts.bases)
        for (a, b), (true, _, faces) in painting.cuts.areas().items():
            if faces > 0:
                whole[a, b] = whole[b, a] = true / faces
        is_fluid = np.array([it.fluid is not None for it in painting.fillings])[other]
        found = np.where(is_fluid, shares, whole[bases[own], bases[other]])
        openings = self.found.openings
        # Where walls off the faces cut a cell, its other faces are as long as what is left of it.
        own_share = 1.0 if openings is None else openings[walls.axis, own, other]
        return np.asarray(found * own_share)
