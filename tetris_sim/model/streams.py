"""Streams of liquids and gases along paths through a body, in rings too, and past lumps.

A stream takes no time to flow: each passage of a cell begins as warm as the one before ends. With
the conductances k to the walls of a passage, their mean temperature w weighted by k, and
n = sum of k / carries, a stream leaves it with

    t_out = w + (t_in - w) exp(-n),     and is     w + (t_in - w) (1 - exp(-n)) / n

warm in the mean: this t is what each wall exchanges k (t - T) with, so that walls get what the
stream loses. A passage may have a lump for its wall instead. In the temperatures of walls, inlets
and lumps all of it is linear, and no weight is below 0: what is connected evens out, whatever a
step is long. What stands still has n = infinity, and is as warm as its walls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import NumericsError
from tetris_sim.model.conduction import Numbers, Parameter
from tetris_sim.model.radiation import Slopes
from tetris_sim.model.step_control import Signal

Places = npt.NDArray[np.int64]
Span = tuple[float, float]  # begin and end [s]
_MOST_PASSAGES = 4000  # whose slopes are solved for
_KEPT = 16  # flows of which what follows from them is kept


def warmth(of: Signal | Parameter, span: Span) -> float:
    """Return a number over a span of time: what was decided for it, or its mean."""
    if isinstance(of, Signal):
        return float(of.at(np.array(span[0])))
    return float(of.during(*span)[0])


@dataclass(frozen=True, eq=False)
class Stream:
    """A liquid or gas that flows along a path.

    Attributes:
        name: of the configuration.
        passages: the numbers of its first passage and of the one after its last.
        flow: of mass [kg/s].
        heat: specific heat [J/(kg K)].
        film: from a mass flow to h at the walls, if that follows from it [W/(m^2 K)].
    """

    name: str
    passages: tuple[int, int]
    flow: Parameter
    heat: float
    film: Callable[[float], float] | None = None

    @property
    def slice(self) -> slice:
        """Its passages."""
        return slice(*self.passages)


@dataclass(frozen=True, eq=False)
class PassageWalls:
    """Walls of passages.

    Attributes:
        passage: of each, (n_walls,).
        cell: flat number of the cell behind it, (n_walls,).
        conductance: between the centre of the cell and the stream, (n_walls,) [W/K]; where h
            changes, that of the beginning.
        most: about the most that it ever is, (n_walls,) [W/K].
        area: (n_walls,) [m^2].
        half: from the centre of the cell to the wall, (n_walls,) [m^2 K/W].
    """

    passage: Places
    cell: Places
    conductance: Numbers
    most: Numbers
    area: Numbers
    half: Numbers


@dataclass(frozen=True, eq=False)
class PassedLumps:
    """Passages whose walls are lumps.

    Attributes:
        passage: of each, (n,).
        lump: its number, (n,).
        conductance: to it, (n,) [W/K]; infinite where the stream mixes with it.
    """

    passage: Places
    lump: Places
    conductance: Numbers


@dataclass(frozen=True, eq=False)
class _Flowing:
    """Numbers by flows: of passages, what they carry [W/K], the conductance to their walls [W/K],
    exp(-n) and (1 - exp(-n)) / n; of walls their conductance; and what solves for begins.
    """

    carries: Numbers
    total: Numbers
    left: Numbers
    mean: Numbers
    conductance: Numbers
    feeds: Any
    solve: Callable[[Numbers], Numbers]


@dataclass(frozen=True, eq=False)
class StreamNetwork:
    """Streams through a body, their inlets, and the lumps that they pass.

    Attributes:
        each: of them, upstream ones before those that they feed, as far as they make no ring.
        walls: of passages.
        lumps: passages of them.
        feeds: (n_feeds, 2): passages, and those whose ends are in their begins; several ones of a
            passage by how much heat they carry per degree.
        inlets: (n, n_inlets): how much of each inlet is in the begin of a passage.
        given: temperatures of inlets [degC].
        passed: of every lump of the network of lumps, its mean over a step and its temperature now;
            empty if no stream passes lumps.
        rates: of a cell: degrees per second that a heat of 1 changes it by, of the grid's shape.
        joules: what a heat of a cell is in watts.
        remarks: on films, sentences.
    """

    each: tuple[Stream, ...]
    walls: PassageWalls
    lumps: PassedLumps
    feeds: Places
    inlets: Numbers
    given: tuple[Signal | Parameter, ...]
    passed: tuple[tuple[Signal, Signal], ...]
    rates: Numbers
    joules: float
    remarks: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether flows change with time."""
        return any(it.flow.changes for it in self.each)

    def _flowing(self, span: Span) -> _Flowing:
        return _flowing(self, tuple(warmth(it.flow, span) for it in self.each))

    @property
    def notes(self) -> tuple[str, ...]:
        """Say how much each stream exchanges at the beginning."""
        it = self._flowing((0.0, 0.0))
        found = list[str]()
        for one in self.each:
            cells, carries = one.slice.stop - one.slice.start, it.carries[one.slice.start]
            own = np.isin(self.lumps.passage, np.arange(*one.passages)).sum()
            passes = f"{one.name} passes {cells - own:,} cells" + (
                f" and {own} lumps" if own > 1 else " and a lump" if own else ""
            )
            total = it.total[one.slice][np.isfinite(it.total[one.slice])].sum()
            units = f"{total / carries:.3g}" if carries > 0 else "no flow, and infinitely many"
            found.append(f"{passes} with {units} transfer units (NTU)")
        return (*found, *self.remarks)

    def _of_cells(self, state: Numbers, it: _Flowing) -> Numbers:
        """The mean temperatures of the walls of passages; of one without cells 0."""
        values = it.conductance * np.asarray(state, np.float64).reshape(-1)[self.walls.cell]
        found = np.bincount(self.walls.passage, values, len(it.total))
        return np.asarray(found / np.where(it.total > 0, it.total, 1.0))

    def _with_lumps(self, cells: Numbers, known: Numbers) -> Numbers:
        """The same with those of lumps, from mean temperatures by passage (n, ...) and what is
        known, inlets and then lumps (n_inlets + n_lumps, ...).
        """
        if not self.passed:
            return cells
        # No cell is behind a passage of a lump, so nothing is overwritten.
        walls = np.array(cells)
        walls[self.lumps.passage] = known[len(self.given) + self.lumps.lump]
        return walls

    def _begins(self, it: _Flowing, walls: Numbers, known: Numbers) -> Numbers:
        """With what temperatures passages begin [degC]."""
        warmed = ((1 - it.left) * walls.T).T
        return it.solve(it.feeds @ warmed + self.inlets @ known[: len(self.given)])

    def _means(self, it: _Flowing, walls: Numbers, known: Numbers) -> Numbers:
        """The mean temperatures of the stream over passages, likewise."""
        begins = self._begins(it, walls, known)
        return np.asarray((it.mean * begins.T + (1 - it.mean) * walls.T).T)

    @property
    def nothing(self) -> Numbers:
        """Inlets and lumps at 0 degrees."""
        return np.zeros(len(self.given) + len(self.passed))

    def known(self, span: Span, warm: Any = None) -> Numbers:
        """Return the temperatures of inlets over a span of time, and of lumps [degC].

        Args:
            span: of time [s].
            warm: temperatures of lumps, if these are not their means over the span.
        """
        lumps = [warmth(mean, span) for mean, _ in self.passed] if warm is None else warm
        return np.array([*(warmth(it, span) for it in self.given), *lumps])[: len(self.nothing)]

    def outlets(self, state: Numbers, time: float) -> dict[str, float]:
        """Return the temperature with which each stream ends [degC]."""
        span = time, time
        it, known = self._flowing(span), self.known(span, [warmth(t, span) for _, t in self.passed])
        walls = self._with_lumps(self._of_cells(state, it), known)
        ends = walls + (self._begins(it, walls, known) - walls) * it.left
        return {one.name: float(ends[one.passages[1] - 1]) for one in self.each}

    def heats(self, state: Numbers, span: Span, warm: Any = None) -> dict[str, float]:
        """Return what each stream gives to all cells of a state, in the units of `takes`."""
        it, known = self._flowing(span), self.known(span, warm)
        means = self._means(it, self._with_lumps(self._of_cells(state, it), known), known)
        flat = np.asarray(state, np.float64).reshape(-1)
        apart = means[self.walls.passage] - flat[self.walls.cell]
        found = np.bincount(self.walls.passage, it.conductance * apart / self.joules, len(means))
        return {one.name: float(found[one.slice].sum()) for one in self.each}

    def _by_cell(self, values: Numbers) -> Numbers:
        """Sums over the walls of cells, of the shape of the grid, in the units of `takes`."""
        found = np.bincount(self.walls.cell, values, self.rates.size)
        return np.asarray(found.reshape(self.rates.shape) / self.joules)

    @functools.cached_property
    def takes(self) -> Numbers:
        """Flow from cells to streams per degree of the cells, by cell, in units of `Moving.flows`;
        a part of it comes back by `heat`.
        """
        return self._by_cell(self.walls.conductance)

    @functools.cached_property
    def most(self) -> Numbers:
        """The largest of the same at any time."""
        return self._by_cell(self.walls.most)

    def gives(self, span: Span) -> tuple[Numbers, ...]:
        """Return the flow to cells per degree of each inlet and lump, by cell."""
        it, one = self._flowing(span), np.eye(len(self.nothing))
        walls = self._with_lumps(np.zeros((len(it.total), len(one))), one)
        means = self._means(it, walls, one)
        return tuple(self._by_cell(it.conductance * t[self.walls.passage]) for t in means.T)

    def heat(self, state: Numbers, span: Span, *, solved: bool = False) -> Numbers:
        """Return what each cell of a state gets back that streams took from cells, of its shape.

        Where flows change, what inlets and lumps give is part of it; but not that of lumps which
        are `solved` for together with the cells.
        """
        it, known = self._flowing(span), self.nothing
        if self.changes:
            known = self.known(span, np.zeros(len(self.passed)) if solved else None)
        means = self._means(it, self._with_lumps(self._of_cells(state, it), known), known)
        # What takes count too much, where h is smaller than at first, comes back by `_spared`.
        back = self._by_cell(it.conductance * means[self.walls.passage])
        if self.changes:
            back += self._spared(it) * np.nan_to_num(np.asarray(state, np.float64))
        return back

    def _spared(self, it: _Flowing) -> Numbers:
        """By how much less than `takes` cells give per degree at the flows of now."""
        return self._by_cell(self.walls.conductance - it.conductance)

    def slopes(self, state: Numbers, span: Span) -> Slopes:
        """Return the derivatives of the rates that `heat` makes by the temperatures of cells."""
        from scipy.sparse import csr_matrix

        del state  # all is linear
        it, walls = self._flowing(span), self.walls
        n = len(it.total)
        if n > _MOST_PASSAGES:
            msg = (
                f"streams pass {n:,} cells, and implicit and steady solutions take at most "
                f"{_MOST_PASSAGES:,}; let cells be larger, or take explicit steps"
            )
            raise NumericsError(msg)
        nothing = np.zeros((len(self.nothing), n))
        middle = self._means(it, self._with_lumps(np.eye(n), nothing), nothing)
        heated = it.conductance * self.rates.reshape(-1)[walls.cell] / self.joules
        weights = it.conductance / np.where(it.total > 0, it.total, 1.0)[walls.passage]
        shape = (n, self.rates.size)
        left = csr_matrix((heated, (walls.passage, walls.cell)), shape).T.tocsr()
        right = csr_matrix((weights, (walls.passage, walls.cell)), shape)
        own = np.bincount(
            walls.cell, heated * weights * np.diag(middle)[walls.passage], self.rates.size
        )
        spared = (self._spared(it) * self.rates).reshape(-1) if self.changes else None
        diagonal = np.asarray(own if spared is None else own + spared, np.float64)
        return Slopes(left, middle, right, diagonal, diagonal=spared)

    # What lumps get.

    def _to_lumps(self, it: _Flowing, cells: Numbers, known: Numbers) -> Numbers:
        """Return the heat that each lump gets from streams, (n_lumps, ...) [W]."""
        walls, at = self._with_lumps(cells, known), self.lumps.passage
        # What the stream loses on its passage is what the lump gets, mixed or not.
        apart = self._begins(it, walls, known)[at] - walls[at]
        heat = ((it.carries * (1 - it.left))[at] * apart.T).T
        found = np.zeros((len(self.passed), *heat.shape[1:]))
        np.add.at(found, self.lumps.lump, heat)
        return found

    def between(self, span: Span) -> Numbers:
        """Return what lumps get per degree of each other and of themselves, (n, n) [W/K]."""
        it, n = self._flowing(span), len(self.passed)
        known = np.concatenate([np.zeros((len(self.given), n)), np.eye(n)])
        return self._to_lumps(it, np.zeros((len(it.total), n)), known)

    def seen(self, state: Numbers, span: Span) -> Numbers:
        """Return what lumps at 0 degrees get by way of streams from the cells of a state [W]."""
        it = self._flowing(span)
        return self._to_lumps(it, self._of_cells(state, it), self.nothing)

    def drive(self, span: Span) -> Numbers:
        """Return what lumps at 0 degrees get from inlets, past cells at 0 degrees [W]."""
        it = self._flowing(span)
        known = self.known(span, np.zeros(len(self.passed)))
        return self._to_lumps(it, np.zeros(len(it.total)), known)

    def sees(self, span: Span) -> Any:
        """Return what lumps get per degree of each cell, sparse (n_lumps, n_cells) [W/K]."""
        from scipy.sparse import csr_matrix

        it, walls = self._flowing(span), self.walls
        n = len(it.total)
        nothing = np.zeros((len(self.nothing), n))
        # First by passage, of which there are fewer than cells.
        of_passages = self._to_lumps(it, np.eye(n), nothing)
        weights = it.conductance / np.where(it.total > 0, it.total, 1.0)[walls.passage]
        shape = (n, self.rates.size)
        return csr_matrix(of_passages) @ csr_matrix((weights, (walls.passage, walls.cell)), shape)


@functools.lru_cache(maxsize=_KEPT)
def _flowing(network: StreamNetwork, flows: tuple[float, ...]) -> _Flowing:
    from scipy.sparse import csr_matrix, diags, identity
    from scipy.sparse.linalg import splu

    walls, n = network.walls, len(network.inlets)
    # Films first: conductances follow from them, and transfer units from these.
    carries, conductance = np.empty(n), np.array(walls.conductance)
    for it, flow in zip(network.each, flows, strict=True):
        carries[it.slice] = flow * it.heat
        if it.film is not None:
            h = it.film(flow)
            own = (walls.passage >= it.passages[0]) & (walls.passage < it.passages[1])
            # Of what does not flow, nothing is known; by h = 0 it exchanges nothing.
            resisted = 1 / h if h > 0 else np.inf
            conductance[own] = walls.area[own] / (resisted + walls.half[own])

    total = np.asarray(np.bincount(walls.passage, conductance, n), np.float64)
    total[network.lumps.passage] = network.lumps.conductance
    with np.errstate(divide="ignore", invalid="ignore"):
        # What exchanges nothing keeps its temperature.
        units = np.where(total > 0, total / carries, 0.0)
        mean = np.where(units > 0, -np.expm1(-units) / np.where(units > 0, units, 1.0), 1.0)
    left = np.exp(-units)

    # What mixes does so by how much heat it carries per degree; what does not flow, evenly.
    rows, columns = network.feeds.T
    counts = np.bincount(rows, minlength=n)[rows]
    brought = np.bincount(rows, carries[columns], n)[rows]
    shares = np.where(
        brought > 0, carries[columns] / np.where(brought > 0, brought, 1.0), 1 / counts
    )
    feeds = csr_matrix((shares, (rows, columns)), (n, n))
    matrix = (identity(n) - feeds @ diags(left)).tocsc()
    # Without a ring, passages are numbered downstream, and the matrix is triangular.
    ring = (columns >= rows).any()
    # With one, some passage of it exchanges heat, so that what goes around fades.
    factors = splu(matrix) if ring else splu(matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0)

    def solve(given: Numbers) -> Numbers:
        return np.asarray(factors.solve(np.asarray(given, np.float64)))

    return _Flowing(carries, total, left, mean, conductance, feeds, solve)
