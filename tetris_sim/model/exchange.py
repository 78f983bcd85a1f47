"""Exchange of heat with cells of a body beside the conduction between them: lumps of one
temperature, streams along paths, and heat that is given.

All of it is linear in temperatures. What cells take per degree of their own, and what known
temperatures give them, are coefficients of the equations of the body; what a stream brings from
cell to cell is looked at between steps, as the radiation of enclosures is (`radiation.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import NumericsError
from tetris_sim.model.conduction import Numbers, Parameter
from tetris_sim.model.radiation import Enclosures, Slopes
from tetris_sim.model.slab import Ranges
from tetris_sim.model.step_control import Signal

Places = npt.NDArray[np.int64]
Span = tuple[float, float]  # begin and end [s]


def warmth(of: Signal | Parameter, span: Span) -> float:
    """Return a temperature over a span of time [degC]: what was decided for it, or its mean."""
    if isinstance(of, Signal):
        return float(of.at(np.array(span[0])))
    return float(of.during(*span)[0])


@dataclass(frozen=True, eq=False)
class Lump:
    """Something of one temperature that exchanges heat with the cells of a body.

    What it gives to a cell in a step is gives times its mean temperature over the step, less takes
    times the temperature of the cell.

    Attributes:
        name: of the configuration.
        gives: by cell, in the units of `Moving.flows`.
        takes: likewise.
        mean: its temperature over each step [degC].
        now: its temperature at the begin of each step [degC]; the same one where it is given.
    """

    name: str
    gives: Numbers
    takes: Numbers
    mean: Signal | Parameter
    now: Signal | Parameter

    def given(self, state: Numbers, span: Span, warm: float | None = None) -> float:
        """Return what it gives to all cells of a state in a step, in the units of `gives`.

        Args:
            state: of the shape of the grid.
            span: of the step [s].
            warm: its temperature, if that is not the mean over the step [degC].
        """
        # Cells of voids have no state.
        taken = np.where(self.takes > 0, self.takes * state, 0.0)
        here = warmth(self.mean, span) if warm is None else warm
        return float((self.gives * here - taken).sum())


@dataclass(frozen=True, eq=False)
class LumpNetwork:
    """All lumps of a body as one linear system, and what drives it.

    Attributes:
        lumps: in the order of their numbers.
        capacity: of each [J/K].
        between: conductances, (n, n), symmetric [W/K].
        outside: to surroundings and field, (n,) [W/K].
        powers: of each.
        ambients: surroundings of each with their conductances [W/K].
        joules: what an exchange of `lumps` is in watts.
    """

    lumps: tuple[Lump, ...]
    capacity: Numbers
    between: Numbers
    outside: Numbers
    powers: Sequence[Parameter]
    ambients: Sequence[Sequence[tuple[float, Parameter]]]
    joules: float

    @property
    def signals(self) -> tuple[tuple[Signal, Signal], ...]:
        """Mean over a step and temperature now of each lump."""
        pairs = ((it.mean, it.now) for it in self.lumps)
        return tuple((a, b) for a, b in pairs if isinstance(a, Signal) and isinstance(b, Signal))

    @property
    def initial(self) -> Numbers:
        """Temperatures when a run begins [degC]."""
        return np.array([now.first for _, now in self.signals])

    @functools.cached_property
    def box(self) -> Ranges:
        """The smallest box of cells that lumps exchange heat with."""
        any_cell = functools.reduce(np.logical_or, [it.gives > 0 for it in self.lumps])
        spans = []
        for axis in range(any_cell.ndim):
            others = tuple(k for k in range(any_cell.ndim) if k != axis)
            at = np.flatnonzero(any_cell.any(axis=others))
            spans.append((int(at[0]), int(at[-1]) + 1) if len(at) else (0, 1))
        return tuple(spans)

    def seen(self, state: Numbers) -> Numbers:
        """Return what lumps see of the cells of `box`: conductances times temperatures [W]."""
        here = tuple(slice(*span) for span in self.box)
        gives = [it.gives[here] for it in self.lumps]
        found = [np.where(it > 0, it * state, 0.0).sum() for it in gives]
        return self.joules * np.array(found)

    def advance(
        self, temperatures: Numbers, seen: Numbers, begin: float, end: float
    ) -> tuple[Numbers, Numbers]:
        """Return (the temperatures after a step, their means over it).

        Args:
            temperatures: at its begin.
            seen: of the field, see `seen`.
            begin: time [s].
            end: time [s].
        """
        dt = end - begin
        exact, first, second = self._propagator(dt)
        rate = (seen + self.drive((begin, end))) / self.capacity
        new = exact @ temperatures + first @ rate
        mean = (first @ temperatures + second @ rate) / dt
        return new, mean

    def drive(self, span: Span) -> Numbers:
        """Return what powers and surroundings give to lumps at 0 degC over a span of time [W]."""
        found = np.zeros(len(self.lumps))
        for k, (power, around) in enumerate(zip(self.powers, self.ambients, strict=True)):
            found[k] = power.during(*span)[0] + sum(g * it.during(*span)[0] for g, it in around)
        return found

    @property
    def changes(self) -> bool:
        """Whether powers or surroundings change with time."""
        around = (it for pairs in self.ambients for _, it in pairs)
        return any(it.changes for it in (*self.powers, *around))

    @functools.cached_property
    def matrix(self) -> Numbers:
        """Power that lumps receive per degree of each other, and of themselves, (n, n) [W/K]."""
        return np.asarray(self.between - np.diag(self.between.sum(axis=1) + self.outside))

    def _propagator(self, dt: float) -> tuple[Numbers, Numbers, Numbers]:
        """Return the exponential of the network over a step, its integral, and the integral of
        that: the blocks of one exponential (C. F. Van Loan, IEEE Trans. Autom. Control 23 (1978)
        395).
        """
        from scipy.linalg import expm

        n = len(self.lumps)
        whole, one = np.zeros((3 * n, 3 * n)), np.eye(n)
        # In units of the step, so that all blocks have the same size.
        whole[:n, :n] = self.matrix / self.capacity[:, None] * dt
        whole[:n, n : 2 * n] = whole[n : 2 * n, 2 * n :] = one
        found = expm(whole)[:n]
        return found[:, :n], found[:, n : 2 * n] * dt, found[:, 2 * n :] * dt * dt


class LumpSolution:
    """Lumps whose temperatures are solved for together with those of cells.

    In a stage of length tau that begins with x, a lump of capacity C has

        C y = C x + tau (M y + drive + what it sees of cells)

    in the end, so that y follows from the cells, and is put into their equations: no unknown is
    added, and of a stage of length 0 y is x.

    Args:
        network: of the lumps.
        rates: of a cell: degrees per second that a heat of 1 changes it by, of the grid's shape.
    """

    def __init__(self, network: LumpNetwork, rates: Numbers) -> None:
        self.network, self.rates = network, rates
        cells = network.joules / np.where(rates > 0, rates, np.inf)
        self._capacity = float(cells.sum() + network.capacity.sum())
        self.stage(0.0, network.initial, 0.0)

    def stage(self, tau: float, begins: Numbers, time: float) -> None:
        """Say what stage is to be solved: its length [s], how warm lumps begin and at what time
        their powers and surroundings are taken.
        """
        self._tau, self._drive = tau, self.network.drive((time, time))
        self._given = self.network.capacity * begins + tau * self._drive
        self._matrix = np.diag(self.network.capacity) - tau * self.network.matrix

    def _seen(self, state: Numbers) -> Numbers:
        return self.network.seen(state[tuple(slice(*span) for span in self.network.box)])

    def temperatures(self, state: Numbers) -> Numbers:
        """Return those of lumps beside a state at the end of the stage [degC]."""
        seen = self._tau * self._seen(state)
        return np.asarray(np.linalg.solve(self._matrix, self._given + seen))

    def slope(self, state: Numbers, temperatures: Numbers) -> Numbers:
        """Return how fast lumps of some temperatures become warmer beside a state [K/s]."""
        heat = self.network.matrix @ temperatures + self._drive + self._seen(state)
        return np.asarray(heat / self.network.capacity)

    def unbalanced(self, state: Numbers, temperatures: Numbers) -> float:
        """Return how much heat lumps get, per capacity of everything: what a lump of next to none
        gains counts as the heat that it is [K/s].
        """
        heat = self.slope(state, temperatures) * self.network.capacity
        return float(np.linalg.norm(heat)) / self._capacity

    def damped(self, difference: Numbers) -> Numbers:
        """Return a difference of temperatures as the stage leaves it."""
        return np.asarray(np.linalg.solve(self._matrix, self.network.capacity * difference))

    def heat(self, state: Numbers) -> Numbers:
        """Return what lumps give to each cell of a state, of its shape, in the units of `Lump`."""
        warm = zip(self.network.lumps, self.temperatures(state), strict=True)
        return np.asarray(sum(it.gives * t for it, t in warm), np.float64)

    def slopes(self, state: Numbers) -> Slopes:
        """Return the derivatives of the rates that `heat` makes by the temperatures of cells."""
        from scipy.sparse import csr_matrix

        del state  # all is linear
        gives = np.stack([it.gives.reshape(-1) for it in self.network.lumps])
        inverse = np.asarray(np.linalg.inv(self._matrix), np.float64)
        middle = self._tau * self.network.joules * inverse
        heated = self.rates.reshape(-1) * gives
        own = np.einsum("ic,ij,jc->c", heated, middle, gives)
        return Slopes(csr_matrix(heated).T.tocsr(), middle, csr_matrix(gives), own)

    def at(self, time: float) -> Numbers:
        """Return the temperatures of lumps at a time that was reached [degC]."""
        return np.array([warmth(now, (time, time)) for _, now in self.network.signals])

    def keep(self, temperatures: Numbers, time: float) -> None:
        """Take the temperatures of lumps at the end of a step."""
        for signals, found in zip(self.network.signals, temperatures, strict=True):
            for signal in signals:
                signal.decide(time, float(found))


@dataclass(frozen=True, eq=False)
class Heated:
    """Heat that each cell is given, whatever its temperature: in the units of `Moving.flows`."""

    name: str
    heat: Numbers

    def given(self, state: Numbers, span: Span) -> float:
        """Return the heat of all cells."""
        del state, span
        return float(self.heat.sum())


class CurrentHeat(Protocol):
    """Heat of electric currents through a body, which follows the temperatures of its cells.

    Explicit steps `decide` what it is before each of them, and all that is asked of a step later is
    what was decided. Implicit and steady solutions ask for the heat of any state.

    Attributes:
        name: of the heat.
        rates: of a cell: degrees per second that a heat of 1 changes it by, of the grid's shape.
        columns: what is said of electrodes, with units.
        signals: what is decided; empty if nothing is.
    """

    name: str
    rates: Numbers
    columns: tuple[tuple[str, str], ...]
    signals: tuple[Signal, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Say when the potential is solved for."""

    def decide(self, state: Numbers, time: float) -> None:
        """Decide about the step that begins with a state."""

    def heat(self, state: Numbers) -> Numbers:
        """Return what each cell of a state gets, of its shape, in the units of `Moving.flows`."""

    def slopes(self, state: Numbers) -> Slopes:
        """Return the derivatives of the rates of all cells by their temperatures."""

    def given(self, state: Numbers, span: Span) -> float:
        """Return what all cells get in a step, in the same units."""

    def said(self, state: Numbers, time: float) -> list[float]:
        """Return the numbers of `columns` at a time."""

    def remembered(self) -> str:
        """Return what later decisions depend on, as a text for checkpoints."""

    def recall(self, text: str) -> None:
        """Go on as what `remembered` returned."""


_MOST_PASSAGES = 4000  # whose slopes are solved for


@dataclass(frozen=True, eq=False)
class Stream:
    """A liquid or gas that flows along a path.

    Attributes:
        name: of the configuration.
        passages: the numbers of its first passage and of the one after its last.
        carries: mass flow times specific heat [W/K].
    """

    name: str
    passages: tuple[int, int]
    carries: float


@dataclass(frozen=True, eq=False)
class StreamNetwork:
    """Streams through a body, which take no time to flow: each passage of a cell begins as warm as
    the one before ends.

    With the conductances k to the walls of a passage, their mean temperature w weighted by k, and
    n = sum of k / carries, a stream leaves it with

        t_out = w + (t_in - w) exp(-n),     and is     w + (t_in - w) (1 - exp(-n)) / n

    warm in the mean: this t is what each wall exchanges k (t - T) with, so that walls get what the
    stream loses. In the temperatures of walls and inlets all of it is linear, and no weight is
    below 0.

    Attributes:
        each: of them, upstream ones before those that they feed.
        passage: of each wall, (n_walls,).
        cell: flat number of the cell behind each wall, (n_walls,).
        conductance: between the centre of the cell and the stream, (n_walls,) [W/K].
        feeds: sparse, (n, n): how much of the end of each passage is in the begin of another one.
        inlets: (n, n_inlets): how much of each inlet is in the begin of a passage.
        given: temperatures of inlets [degC].
        rates: of a cell: degrees per second that a heat of 1 changes it by, of the grid's shape.
        joules: what a heat of a cell is in watts.
    """

    each: tuple[Stream, ...]
    passage: Places
    cell: Places
    conductance: Numbers
    feeds: Any
    inlets: Numbers
    given: tuple[Signal | Parameter, ...]
    rates: Numbers
    joules: float

    @functools.cached_property
    def _shapes(self) -> tuple[Numbers, Numbers, Numbers]:
        """By passage: (conductance, exp(-n), (1 - exp(-n)) / n)."""
        n = self.feeds.shape[0]
        total = np.bincount(self.passage, self.conductance, n)
        carries = np.empty(n)
        for it in self.each:
            carries[slice(*it.passages)] = it.carries
        units = total / carries
        # What exchanges nothing keeps its temperature.
        mean = np.where(units > 0, -np.expm1(-units) / np.where(units > 0, units, 1.0), 1.0)
        return np.asarray(total, np.float64), np.asarray(np.exp(-units)), np.asarray(mean)

    @functools.cached_property
    def _march(self) -> Any:
        """Solves for the temperatures with which passages begin."""
        from scipy.sparse import diags, identity
        from scipy.sparse.linalg import splu

        _, left, _ = self._shapes
        matrix = (identity(len(left)) - self.feeds @ diags(left)).tocsc()
        # Passages are numbered downstream, so that the matrix is triangular.
        return splu(matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say how much each stream exchanges."""
        total, *_ = self._shapes
        return tuple(
            f"{it.name} passes {it.passages[1] - it.passages[0]:,} cells with "
            f"{total[slice(*it.passages)].sum() / it.carries:.3g} transfer units (NTU)"
            for it in self.each
        )

    def _walls(self, state: Numbers) -> Numbers:
        """The mean temperatures of the walls of passages; of one without walls 0."""
        total, *_ = self._shapes
        values = self.conductance * np.asarray(state, np.float64).reshape(-1)[self.cell]
        found = np.bincount(self.passage, values, len(total))
        return np.asarray(found / np.where(total > 0, total, 1.0))

    def begins(self, walls: Numbers, inlets: Numbers) -> Numbers:
        """Return with what temperatures passages begin [degC].

        Args:
            walls: mean temperatures of theirs, (n, ...).
            inlets: temperatures, (n_inlets, ...).
        """
        _, left, _ = self._shapes
        warmed = ((1 - left) * walls.T).T
        return np.asarray(self._march.solve(self.feeds @ warmed + self.inlets @ inlets))

    def _means(self, walls: Numbers, inlets: Numbers) -> Numbers:
        """The mean temperatures of the stream over passages, likewise."""
        _, _, share = self._shapes
        return np.asarray((share * self.begins(walls, inlets).T + (1 - share) * walls.T).T)

    def at_inlets(self, span: Span) -> Numbers:
        """Return the temperatures of inlets over a span of time [degC]."""
        return np.array([warmth(it, span) for it in self.given])

    def outlets(self, state: Numbers, span: Span) -> dict[str, float]:
        """Return the temperature with which each stream ends [degC]."""
        _, left, _ = self._shapes
        walls = self._walls(state)
        ends = walls + (self.begins(walls, self.at_inlets(span)) - walls) * left
        return {it.name: float(ends[it.passages[1] - 1]) for it in self.each}

    def heats(self, state: Numbers, span: Span) -> dict[str, float]:
        """Return what each stream gives to all cells of a state, in the units of `takes`."""
        means = self._means(self._walls(state), self.at_inlets(span))
        flat = np.asarray(state, np.float64).reshape(-1)
        given = self.conductance * (means[self.passage] - flat[self.cell]) / self.joules
        found = np.bincount(self.passage, given, len(means))
        return {it.name: float(found[slice(*it.passages)].sum()) for it in self.each}

    def _by_cell(self, values: Numbers) -> Numbers:
        """Sums over the walls of cells, of the shape of the grid, in the units of `takes`."""
        found = np.bincount(self.cell, values, self.rates.size)
        return np.asarray(found.reshape(self.rates.shape) / self.joules)

    @functools.cached_property
    def takes(self) -> Numbers:
        """Flow from cells to streams per degree of the cells, by cell, in units of `Moving.flows`;
        a part of it comes back by `heat`.
        """
        return self._by_cell(self.conductance)

    @functools.cached_property
    def gives(self) -> tuple[Numbers, ...]:
        """Flow to cells per degree of each inlet, by cell."""
        n, inlets = self.inlets.shape
        means = self._means(np.zeros((n, inlets)), np.eye(inlets))
        return tuple(self._by_cell(self.conductance * it[self.passage]) for it in means.T)

    def heat(self, state: Numbers) -> Numbers:
        """Return what each cell of a state gets back that streams took from cells, of its shape."""
        walls = self._walls(state)
        means = self._means(walls, np.zeros(self.inlets.shape[1]))
        return self._by_cell(self.conductance * means[self.passage])

    def slopes(self, state: Numbers) -> Slopes:
        """Return the derivatives of the rates that `heat` makes by the temperatures of cells."""
        from scipy.sparse import csr_matrix

        del state  # all is linear
        total, *_ = self._shapes
        n = len(total)
        if n > _MOST_PASSAGES:
            msg = (
                f"streams pass {n:,} cells, and implicit and steady solutions take at most "
                f"{_MOST_PASSAGES:,}; let cells be larger, or take explicit steps"
            )
            raise NumericsError(msg)
        middle = self._means(np.eye(n), np.zeros((self.inlets.shape[1], n)))
        heated = self.conductance * self.rates.reshape(-1)[self.cell] / self.joules
        weights = self.conductance / total[self.passage]
        shape = (n, self.rates.size)
        left = csr_matrix((heated, (self.passage, self.cell)), shape).T.tocsr()
        right = csr_matrix((weights, (self.passage, self.cell)), shape)
        own = np.bincount(
            self.cell, heated * weights * np.diag(middle)[self.passage], self.rates.size
        )
        return Slopes(left, middle, right, np.asarray(own, np.float64))


@dataclass(frozen=True, eq=False)
class Around:
    """Everything that exchanges heat with the cells of a body beside conduction and motion.

    Attributes:
        network: lumps whose temperatures follow from what they exchange.
        fluids: of given temperatures that change with time.
        enclosures: voids whose surfaces radiate.
        heated: what cells are given.
        currents: whose heat follows temperatures.
        streams: through the body.
        solution: of the lumps, where it is found together with that of the body.
    """

    network: LumpNetwork | None = None
    fluids: tuple[Lump, ...] = ()
    enclosures: Enclosures | None = None
    heated: Heated | None = None
    currents: CurrentHeat | None = None
    streams: StreamNetwork | None = None
    solution: LumpSolution | None = None

    @property
    def known(self) -> tuple[Lump, ...]:
        """Everything of one temperature that is known when a step begins."""
        return self.fluids if self.solution else self.lumps

    @property
    def lumps(self) -> tuple[Lump, ...]:
        """Everything of one temperature."""
        return (*(self.network.lumps if self.network else ()), *self.fluids)

    @property
    def takes(self) -> tuple[Numbers, ...]:
        """Greatest flow from cells per degree of their own, in the units of `Moving.flows`."""
        inside = [self.enclosures.takes] if self.enclosures else []
        inside += [self.streams.takes] if self.streams else []
        return (*(it.takes for it in self.lumps), *inside)

    @property
    def looked_at(self) -> tuple[Enclosures | StreamNetwork | LumpSolution | CurrentHeat, ...]:
        """Parts whose heat of a cell follows from other cells: the whole state is looked at."""
        parts = self.enclosures, self.streams, self.solution, self.currents
        return tuple(it for it in parts if it)

    def heat(self, state: Numbers) -> Numbers:
        """Return what each cell of a state gets of that, of its shape."""
        return np.asarray(sum(it.heat(state) for it in self.looked_at), np.float64)

    @property
    def courses(self) -> tuple[Parameter, ...]:
        """All that is given over time: powers, surroundings, temperatures of inlets and fluids."""
        found: list[Signal | Parameter] = [it.mean for it in self.fluids]
        if self.network:
            found += [*self.network.powers]
            found += [it for pairs in self.network.ambients for _, it in pairs]
        found += self.streams.given if self.streams else ()
        return tuple(it for it in found if isinstance(it, Parameter) and it.changes)

    @property
    def givers(self) -> tuple[str, ...]:
        """Names of what gives heat to cells by itself."""
        streams = self.streams.each if self.streams else ()
        heated = tuple(it for it in (self.heated, self.currents) if it)
        return tuple(it.name for it in (*self.lumps, *streams, *heated))

    def given(
        self, state: Numbers, span: Span, warm: Sequence[float] | None = None
    ) -> dict[str, float]:
        """Return what each of the `givers` gives to all cells of a state over a span of time, in
        units of `Moving.flows`; `warm` are temperatures of the network's lumps that are not means
        over the span.
        """
        solved = self.network.lumps if self.network and warm is not None else ()
        found = {it.name: it.given(state, span) for it in self.lumps[len(solved) :]}
        found |= {
            it.name: it.given(state, span, t) for it, t in zip(solved, warm or (), strict=True)
        }
        found |= self.streams.heats(state, span) if self.streams else {}
        heated = (it for it in (self.heated, self.currents) if it)
        return found | {it.name: it.given(state, span) for it in heated}

    def added_to(
        self, rates: Callable[[Numbers, float], Numbers]
    ) -> Callable[[Numbers, float], Numbers]:
        """Return the rates of a state (1, n0, ...) at a time, with those of this heat."""
        if not self.looked_at:
            return rates
        of_heat = self.looked_at[0].rates
        return lambda u, time: rates(u, time) + (self.heat(u[0]) * of_heat)[np.newaxis]

    def slopes(self, state: Numbers) -> Slopes | None:
        """Return the derivatives of these rates by the temperatures of cells; None for none."""
        from scipy.linalg import block_diag
        from scipy.sparse import hstack, vstack

        found = [it.slopes(state) for it in self.looked_at]
        if len(found) < 2:
            return found[0] if found else None
        left, right = hstack([it.left for it in found]), vstack([it.right for it in found])
        own = np.asarray(sum(it.own for it in found), np.float64)
        middle = block_diag(*(it.middle for it in found))
        # No more than one part acts by itself.
        acts = next((it.acts for it in found if it.acts), None)
        return Slopes(left.tocsr(), middle, right.tocsr(), own, acts)


NOTHING_AROUND = Around()
