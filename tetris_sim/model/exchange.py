"""Exchange of heat with cells of a body beside the conduction between them: lumps of one
temperature, streams along paths, and heat that is given.

All of it is linear in temperatures. What cells take per degree of their own, and what known
temperatures give them, are coefficients of the equations of the body; what a stream brings from
cell to cell (`streams.py`) is looked at between steps, as the radiation of enclosures is
(`radiation.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tetris_sim.model.conduction import Numbers, Parameter
from tetris_sim.model.radiation import Enclosures, Slopes
from tetris_sim.model.slab import Ranges
from tetris_sim.model.step_control import Signal
from tetris_sim.model.streams import Span, StreamNetwork, warmth


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
        streams: that pass lumps.
    """

    lumps: tuple[Lump, ...]
    capacity: Numbers
    between: Numbers
    outside: Numbers
    powers: Sequence[Parameter]
    ambients: Sequence[Sequence[tuple[float, Parameter]]]
    joules: float
    streams: StreamNetwork | None = None

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
        # By way of streams lumps see cells anywhere.
        if self.streams:
            return tuple((0, n) for n in any_cell.shape)
        spans = []
        for axis in range(any_cell.ndim):
            others = tuple(k for k in range(any_cell.ndim) if k != axis)
            at = np.flatnonzero(any_cell.any(axis=others))
            spans.append((int(at[0]), int(at[-1]) + 1) if len(at) else (0, 1))
        return tuple(spans)

    def seen(self, state: Numbers, span: Span) -> Numbers:
        """Return what lumps see of the cells of `box` in a span of time: conductances times
        temperatures [W].
        """
        here = tuple(slice(*span) for span in self.box)
        gives = [it.gives[here] for it in self.lumps]
        found = [np.where(it > 0, it * state, 0.0).sum() for it in gives]
        direct = self.joules * np.array(found)
        return direct + self.streams.seen(state, span) if self.streams else direct

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
        exact, first, second = self._propagator(dt, self.matrix((begin, end)))
        rate = (seen + self.drive((begin, end))) / self.capacity
        new = exact @ temperatures + first @ rate
        mean = (first @ temperatures + second @ rate) / dt
        return new, mean

    def drive(self, span: Span) -> Numbers:
        """Return what powers and surroundings give to lumps at 0 degC over a span of time [W]."""
        found = np.zeros(len(self.lumps))
        for k, (power, around) in enumerate(zip(self.powers, self.ambients, strict=True)):
            found[k] = power.during(*span)[0] + sum(g * it.during(*span)[0] for g, it in around)
        return found + self.streams.drive(span) if self.streams else found

    @property
    def changes(self) -> bool:
        """Whether powers or surroundings change with time."""
        around = (it for pairs in self.ambients for _, it in pairs)
        return any(it.changes for it in (*self.powers, *around))

    def matrix(self, span: Span) -> Numbers:
        """Return the power that lumps receive per degree of each other, and of themselves, in a
        span of time, (n, n) [W/K].
        """
        direct = np.asarray(self.between - np.diag(self.between.sum(axis=1) + self.outside))
        return direct + self.streams.between(span) if self.streams else direct

    def gives(self, span: Span) -> list[Numbers]:
        """Return what cells get per degree of each lump, directly and by way of streams."""
        direct = [it.gives for it in self.lumps]
        if not self.streams:
            return direct
        carried = self.streams.gives(span)[len(self.streams.given) :]
        return [a + b for a, b in zip(direct, carried, strict=True)]

    def _propagator(self, dt: float, matrix: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return the exponential of the network over a step, its integral, and the integral of
        that: the blocks of one exponential (C. F. Van Loan, IEEE Trans. Autom. Control 23 (1978)
        395).
        """
        from scipy.linalg import expm

        n = len(self.lumps)
        whole, one = np.zeros((3 * n, 3 * n)), np.eye(n)
        # In units of the step, so that all blocks have the same size.
        whole[:n, :n] = matrix / self.capacity[:, None] * dt
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
        self._at, self._tau = (time, time), tau
        self._drive, self._between = self.network.drive(self._at), self.network.matrix(self._at)
        self._given = self.network.capacity * begins + tau * self._drive
        self._matrix = np.diag(self.network.capacity) - tau * self._between

    def _seen(self, state: Numbers) -> Numbers:
        return self.network.seen(state[tuple(slice(*it) for it in self.network.box)], self._at)

    def temperatures(self, state: Numbers) -> Numbers:
        """Return those of lumps beside a state at the end of the stage [degC]."""
        seen = self._tau * self._seen(state)
        return np.asarray(np.linalg.solve(self._matrix, self._given + seen))

    def slope(self, state: Numbers, temperatures: Numbers) -> Numbers:
        """Return how fast lumps of some temperatures become warmer beside a state [K/s]."""
        heat = self._between @ temperatures + self._drive + self._seen(state)
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
        warm = zip(self.network.gives(self._at), self.temperatures(state), strict=True)
        return np.asarray(sum(gives * t for gives, t in warm), np.float64)

    def slopes(self, state: Numbers) -> Slopes:
        """Return the derivatives of the rates that `heat` makes by the temperatures of cells."""
        from scipy.sparse import csr_matrix

        del state  # all is linear
        gives = np.stack([it.reshape(-1) for it in self.network.gives(self._at)])
        # Streams carry heat one way: what a lump gets from a cell is not what it gives to it.
        sees, streams = gives, self.network.streams
        if streams:
            direct = np.stack([it.gives.reshape(-1) for it in self.network.lumps])
            sees = direct + streams.sees(self._at).toarray() / self.network.joules
        inverse = np.asarray(np.linalg.inv(self._matrix), np.float64)
        middle = self._tau * self.network.joules * inverse
        heated = self.rates.reshape(-1) * gives
        own = np.einsum("ic,ij,jc->c", heated, middle, sees)
        return Slopes(csr_matrix(heated).T.tocsr(), middle, csr_matrix(sees), own)

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
        inside += [self.streams.most] if self.streams else []
        return (*(it.takes for it in self.lumps), *inside)

    @property
    def looked_at(self) -> tuple[Enclosures | StreamNetwork | LumpSolution | CurrentHeat, ...]:
        """Parts whose heat of a cell follows from other cells: the whole state is looked at."""
        parts = self.enclosures, self.streams, self.solution, self.currents
        return tuple(it for it in parts if it)

    def heat(self, state: Numbers, span: Span) -> Numbers:
        """Return what each cell of a state gets of that over a span of time, of its shape."""
        solved = self.solution is not None
        found = (
            it.heat(state, span, solved=solved) if isinstance(it, StreamNetwork) else it.heat(state)
            for it in self.looked_at
        )
        return np.asarray(sum(found), np.float64)

    @property
    def courses(self) -> tuple[Parameter, ...]:
        """All that is given over time: powers, surroundings, temperatures of inlets and fluids."""
        found: list[Signal | Parameter] = [it.mean for it in self.fluids]
        if self.network:
            found += [*self.network.powers]
            found += [it for pairs in self.network.ambients for _, it in pairs]
        found += self.streams.given if self.streams else ()
        found += [it.flow for it in self.streams.each] if self.streams else []
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
        found |= self.streams.heats(state, span, warm) if self.streams else {}
        heated = (it for it in (self.heated, self.currents) if it)
        return found | {it.name: it.given(state, span) for it in heated}

    def added_to(
        self, rates: Callable[[Numbers, float], Numbers]
    ) -> Callable[[Numbers, float], Numbers]:
        """Return the rates of a state (1, n0, ...) at a time, with those of this heat."""
        if not self.looked_at:
            return rates
        of_heat = self.looked_at[0].rates
        return lambda u, time: (
            rates(u, time) + (self.heat(u[0], (time, time)) * of_heat)[np.newaxis]
        )

    def slopes(self, state: Numbers, time: float) -> Slopes | None:
        """Return the derivatives of these rates by the temperatures of cells at a time [s]; None
        for none.
        """
        from scipy.linalg import block_diag
        from scipy.sparse import hstack, vstack

        span = time, time
        found = [
            it.slopes(state, span) if isinstance(it, StreamNetwork) else it.slopes(state)
            for it in self.looked_at
        ]
        if len(found) < 2:
            return found[0] if found else None
        left, right = hstack([it.left for it in found]), vstack([it.right for it in found])
        own = np.asarray(sum(it.own for it in found), np.float64)
        middle = block_diag(*(it.middle for it in found))
        # No more than one part acts by itself.
        acts = next((it.acts for it in found if it.acts), None)
        diagonal = next((it.diagonal for it in found if it.diagonal is not None), None)
        return Slopes(left.tocsr(), middle, right.tocsr(), own, acts, diagonal)


NOTHING_AROUND = Around()
