"""Audit: the columns of the statistics about heat: where it is, where it flows, and the balance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tetris_sim.model.problem import Problem
from tetris_sim.outputs.heat_flows import (
    Sources,
    beside,
    flow_through,
    given_by,
    givers_of,
    heat_column,
    openings,
    power_unit,
    said_beside,
)
from tetris_sim.outputs.materials import (
    BodyMaterials,
    MaterialSummary,
    described,
    held_pairs,
    survey,
)
from tetris_sim.outputs.meter import SET, SINCE, Meter
from tetris_sim.outputs.output import Snapshot
from tetris_sim.solvers.surface_flows import SOURCES, held_name

# Heat balance since the first record: stored heat, heat that came in, and the residual.
#
# Stored heat is exact but for rounding, and what `set_field` brings is not part of it. What came in
# through each surface is added up by the steps themselves where somebody counts it
# (`Snapshot.moved`): implicit steps with the numbers that they are made of, so that the residual is
# what their solver left over; explicit ones where `Meter` asks each of them, so that it is
# rounding. Where nobody counts, sources are exact all the same (but for those that move), and flows
# through surfaces are taken to change linearly from record to record: the residual is the error of
# that, and the report says so.

STORED, GIVEN, PASSED, RESIDUAL = (
    "heat stored",
    "heat by sources",
    "heat through surfaces",
    "heat residual",
)
THROUGH, FROM = "heat through", "heat from"  # a face, a fluid


@dataclass(frozen=True)
class BalanceEntry:
    """Heat balance at one record.

    Attributes:
        step: step of the record.
        heat: heat of the body [J].
        powers: heat flow through each surface, and the power of sources [W].
        moved: the same since the first record [J].
    """

    step: int
    heat: float
    powers: Mapping[str, float]
    moved: Mapping[str, float] = field(default_factory=dict)


def summed(steps: int, first: float, last: float, dt: float) -> float:
    """A power from one record to the next [J], added up as steps do: each takes that of its
    beginning, which lies on the straight line between the records.

    >>> summed(1, 5.0, 9.0, 1.0)  # one step: its beginning
    5.0
    >>> summed(2, 5.0, 9.0, 1.0)  # 5, then 7
    12.0
    """
    # A sum of an arithmetic series: the last record's own power belongs to the next step.
    return dt * ((steps + 1) / 2 * first + (steps - 1) / 2 * last)


class HeatBalance:
    """Running heat balance over the records of a run.

    Args:
        dt: time step [s].
        surfaces: columns of the heat that came in through each of them, with the names under which
            steps count it.
        sources: the sources of the body; None if it has none.
        implicit: whether steps are implicit.
    """

    def __init__(
        self,
        dt: float,
        surfaces: Mapping[str, Sequence[str]],
        sources: Sources | None,
        *,
        implicit: bool = False,
    ) -> None:
        self._dt, self._sources, self._implicit = dt, sources, implicit
        self._names = {**surfaces, **({GIVEN: (SOURCES,)} if sources else {})}
        self._surfaces = tuple(surfaces)
        self._first: float | None = None
        self._latest: BalanceEntry | None = None
        # What steps had counted up to the first record, and since when.
        self._before: Mapping[str, float] | None = None
        self._begun: float | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns that `add` returns."""
        given = [GIVEN] if self._sources else []
        return [STORED, *given, PASSED, RESIDUAL, *self._surfaces]

    def go_on(self, first: tuple[int, float] | None, latest: BalanceEntry | None) -> None:
        """Continue from the step and heat of the first record [J] and the latest entry, or
        begin.
        """
        self._first, self._latest, self._before = None, None, None
        # What steps counted up to a record is known of step 0 only.
        if first is not None and latest is not None:
            self._first, self._latest = first[1], latest
            self._before, self._begun = ({}, 0.0) if first[0] == 0 else (None, None)

    def add(
        self, step: int, heat: float, powers: Mapping[str, float], counted: Mapping[str, float]
    ) -> Mapping[str, float]:
        """Add a record; returns the balance by column [J].

        Args:
            step: step of the record.
            heat: heat of the body [J].
            powers: heat flow through each surface, and the power of sources [W].
            counted: what steps have counted so far, by their names; see `Snapshot.moved`.
        """
        entry, before = BalanceEntry(step, heat, powers, dict.fromkeys(powers, 0.0)), self._latest
        # Without an earlier record, or after a step back, the balance begins anew here; so it does
        # where nobody remembers what had been counted before the first record.
        lost = bool(counted) and (self._before is None or counted.get(SINCE) != self._begun)
        if before is None or self._first is None or lost or step < before.step:
            self._first, self._before = heat, dict(counted)
            self._begun = counted.get(SINCE)
        elif step == before.step:  # the same record, of a run that was continued at it
            entry = replace(entry, moved=before.moved)
        else:
            entry = replace(entry, moved=self._moved(before, entry, counted))

        self._latest = entry
        brought = self._since(counted, (SET,)) if SET in counted else 0.0
        stored = heat - self._first - brought
        through = {name: entry.moved[name] for name in self._surfaces}
        given, passed = entry.moved.get(GIVEN, 0.0), math.fsum(through.values())
        values = {**through, STORED: stored, GIVEN: given, PASSED: passed}
        values[RESIDUAL] = stored - given - passed
        return {name: values[name] for name in self.columns}

    def _since(self, counted: Mapping[str, float], names: Sequence[str]) -> float:
        """The heat that steps have counted since the first record [J]."""
        before = self._before or {}
        return math.fsum(counted.get(it, 0.0) - before.get(it, 0.0) for it in names)

    def _moved(
        self, before: BalanceEntry, after: BalanceEntry, counted: Mapping[str, float]
    ) -> dict[str, float]:
        """The heat that has come in since the first record, by column [J]."""
        found, steps = dict[str, float](), after.step - before.step

        for column, names in self._names.items():
            first, last = before.powers[column], after.powers[column]
            if any(name in counted for name in names):
                found[column] = self._since(counted, names)
                continue
            # Powers by id and step are known without the state.
            if column == GIVEN and self._sources is not None and self._sources.adds_up:
                more = self._sources.heat(before.step, after.step)
            elif self._implicit:  # by the trapezoidal rule
                more = self._dt * steps * (first + last) / 2
            else:
                more = summed(steps, first, last, self._dt)
            found[column] = before.moved[column] + more
        return found


FLOW = "heat flow"
# Beginnings of the audit's columns.
AUDITED = (FLOW, SOURCES, THROUGH, FROM, STORED, GIVEN, PASSED, RESIDUAL)


class Audit:
    """Columns about the heat of a body at each record.

    A body with materials has, for each material whose state is not held, minimum, maximum, mean and
    heat; then the heat flow through each open face (into the body) and between any two materials in
    contact (from the first to the second), the power of the sources, and the balance since the
    first record. A uniform body has only faces and balance, if any face is open.

    Args:
        problem: a problem whose state is a temperature (`has_heat`).
        implicit: whether steps are implicit.
        meter: what counts heat from record to record; without it flows are lines between them.
    """

    def __init__(
        self, problem: Problem, *, implicit: bool = False, meter: Meter | None = None
    ) -> None:
        self._problem, self._meter = problem, meter
        self._openings = tuple(openings(problem))
        self._body: BodyMaterials | None = None
        self._warm: list[int] = []  # numbers of the materials that have columns
        self._pairs: list[tuple[int, int]] = []
        self._sources: Sources | None = None

        # Materials and contacts do not change, so the columns follow from one scan without a state.
        if problem.conduction is not None:
            self._body = BodyMaterials(problem)
            found = survey(self._body, None)
            self._pairs = found.pairs
            self._warm = [
                k
                for k, material in enumerate(self._body.materials)
                if found.warmth[k].volume and not material.held
            ]
            if problem.conduction.source is not None:
                rule = problem.conduction.source
                self._sources = Sources(rule, self._body, implicit=implicit)

        self._now = implicit
        self._signs = self._surfaces()
        names = {column: names for column, (names, _) in self._signs.items()}
        self._balance = HeatBalance(problem.dt, names, self._sources, implicit=implicit)

    @property
    def columns(self) -> list[str]:
        """Names with units of all columns besides minimum, maximum, mean and heat of the whole
        body.
        """
        variable, power = self._problem.variables[0], power_unit(self._problem)
        heat, energy = heat_column(self._problem)
        columns = []
        for name in self._names(self._warm):
            columns += [f"{name} {what} [{variable.unit}]" for what in ("min", "max", "mean")]
            columns.append(f"{name} {heat} [{energy}]")
        columns += [f"{name} [{power}]" for name in self._names_of_flows()]
        columns += [f"{name} [{unit}]" for name, unit in beside(self._problem)]

        if self._sources is not None:
            columns.append(f"{SOURCES} [{power}]")
        if self._is_open:
            columns += [f"{name} [{energy}]" for name in self._balance.columns]
        return columns

    def go_on(self, header: Sequence[str], rows: Sequence[Sequence[float]]) -> None:
        """Continue from the records of a table, if it has any."""
        if not rows or not self._is_open:
            self._balance.go_on(None, None)
            return

        name, energy = heat_column(self._problem)
        power = power_unit(self._problem)
        # Everything the balance needs is in the table itself: its first and its last row.
        first, last = (dict(zip(header, row, strict=True)) for row in (rows[0], rows[-1]))
        flows = {flow: last[f"{flow} [{power}]"] for flow in self._names_of_flows()}
        prefix = f"{self._problem.variables[0].name} " if self._problem.n_fields > 1 else ""
        heat = f"{prefix}{name} [{energy}]"
        powers = self._powers(flows, last.get(f"{SOURCES} [{power}]", 0.0))
        moved = {column: last[f"{column} [{energy}]"] for column in powers}
        latest = BalanceEntry(int(last["step"]), last[heat], powers, moved)
        self._balance.go_on((int(first["step"]), first[heat]), latest)

    def look_at_body(self, snapshot: Snapshot) -> tuple[list[float], list[float]]:
        """Statistics of a body with materials, and the audit.

        Returns:
            Minimum, maximum, mean and heat of everything that is not held; and the audit's columns.
        """
        assert self._body is not None
        found = survey(self._body, snapshot)
        warmth = [found.warmth[k] for k in self._warm]
        # Exact sums of the parts, so the result does not depend on the order of materials.
        volume = math.fsum(part for one in warmth for part in one.volume)
        integral = math.fsum(part for one in warmth for part in one.integral)
        heat = math.fsum(part for one in warmth for part in one.heat)
        whole = [
            min((one.low for one in warmth), default=math.nan),
            max((one.high for one in warmth), default=math.nan),
            integral / volume if volume else math.nan,
            heat,
        ]

        values: list[float] = []
        for one in warmth:
            mean = math.fsum(one.integral) / math.fsum(one.volume)
            values += [one.low, one.high, mean, math.fsum(one.heat)]
        return whole, [*values, *self._flows_and_balance(snapshot, heat, found)]

    def look_at_faces(self, snapshot: Snapshot, heat: float) -> list[float]:
        """The audit of a uniform body that holds `heat` [J]."""
        return self._flows_and_balance(snapshot, heat, None) if self._is_open else []

    def _flows_and_balance(
        self, snapshot: Snapshot, heat: float, found: MaterialSummary | None
    ) -> list[float]:
        through = [flow_through(it, snapshot, now=self._now) for it in self._openings]
        between = [found.flow(pair) for pair in self._pairs] if found is not None else []
        problem, time, given, state = self._problem, snapshot.time, list[float](), None
        if givers_of(problem):  # which read the whole state
            state = snapshot.hidden(tuple((0, n) for n in problem.grid.shape))[0]
            span = time, time if self._now else problem.time(snapshot.step + 1)
            given = [*given_by(problem, state, span).values()]

        flows = dict(zip(self._names_of_flows(), [*through, *between, *given], strict=True))
        around = said_beside(problem, state, time)
        power = 0.0 if self._sources is None else self._sources.power(snapshot)
        powers = self._powers(flows, power)
        counted = {} if self._meter is None else self._meter.counted(snapshot)
        balance = self._balance.add(snapshot.step, heat, powers, counted)
        return [
            *flows.values(),
            *around,
            *([power] if self._sources else []),
            *balance.values(),
        ]

    @property
    def _is_open(self) -> bool:
        return self._body is not None or bool(self._openings)

    def _names(self, numbers: Sequence[int]) -> list[str]:
        names = [] if self._body is None else described(self._body.materials)
        return [names[k] for k in numbers]

    def _names_of_flows(self) -> list[str]:
        faces = [f"{FLOW} {opening.name}" for opening in self._openings]
        pairs = [f"{FLOW} {' to '.join(self._names(pair))}" for pair in self._pairs]
        return [*faces, *pairs, *(f"{FLOW} {name}" for name in givers_of(self._problem))]

    def _surfaces(self) -> dict[str, tuple[list[str], dict[str, int]]]:
        """The surfaces of everything that is not held: by column, the names under which steps count
        what comes in, and the flows that come in there with their signs.
        """
        found: dict[str, tuple[list[str], dict[str, int]]] = {
            f"{THROUGH} {it.name}": ([it.name], {f"{FLOW} {it.name}": 1}) for it in self._openings
        }
        for name in givers_of(self._problem):
            found[f"{FROM} {name}"] = ([name], {f"{FLOW} {name}": 1})
        if self._body is None:
            return found
        for pair, sign in held_pairs(self._body, self._pairs):
            number = pair[0] if sign > 0 else pair[1]
            ids = np.flatnonzero(self._body.numbers == number)
            column = f"{FROM} {self._names([number])[0]}"
            names = [held_name(int(it)) for it in ids]
            found.setdefault(column, (names, {}))[1][f"{FLOW} {' to '.join(self._names(pair))}"] = (
                sign
            )
        return found

    def _powers(self, flows: Mapping[str, float], power: float) -> dict[str, float]:
        """Heat flow through each surface, and the power of sources [W]."""
        found = {
            column: math.fsum(sign * flows[name] for name, sign in signs.items())
            for column, (_, signs) in self._signs.items()
        }
        return found if self._sources is None else {**found, GIVEN: power}
