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
from tetris_sim.outputs.meter import ARRIVED, FROM, GONE, SET, SINCE, Meter
from tetris_sim.outputs.output import Snapshot
from tetris_sim.solvers.surface_flows import SOURCES, held_name

# Heat balance since the first record: stored heat, heat that came in, and the residual.
#
# Stored heat is exact but for rounding, and what `set_field` brings is not part of it. What came in
# through each surface is added up by the steps themselves where somebody counts it
# (`Snapshot.moved`): implicit steps with the numbers that they are made of, so that the residual is
# what their solver left over; explicit ones where `Meter` asks each of them, so that it is
# rounding. Where steps are not counted, sources that do not move are exact all the same, and flows
# through surfaces are taken to change linearly from record to record: the residual is the error of
# that, and the report says so.

STORED, GIVEN, PASSED, RESIDUAL = (
    "heat stored",
    "heat by sources",
    "heat through surfaces",
    "heat residual",
)
THROUGH = "heat through"  # a face


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
        heated: whether there are sources at any time.
        implicit: whether steps are implicit.
        passes: whether cells come and go, with their heat.
    """

    def __init__(
        self,
        dt: float,
        surfaces: Mapping[str, Sequence[str]],
        *,
        heated: bool = False,
        implicit: bool = False,
        passes: bool = False,
    ) -> None:
        self._dt, self._implicit = dt, implicit
        self._sources: Sources | None = None
        self._names = {**surfaces, **({GIVEN: (SOURCES,)} if heated else {})}
        self._surfaces, self._heated = tuple(surfaces), heated
        self._passing = (ARRIVED, GONE) if passes else ()
        self._first: float | None = None
        self._latest: BalanceEntry | None = None
        # What steps had counted up to the first record, and since when.
        self._before: Mapping[str, float] | None = None
        self._begun: float | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns that `add` returns."""
        given = [GIVEN] if self._heated else []
        return [STORED, *given, PASSED, *self._passing, RESIDUAL, *self._surfaces]

    @property
    def moving(self) -> tuple[str, ...]:
        """Columns of what was moved from record to record."""
        return tuple(self._names)

    def turn_to(self, here: AuditedBody) -> None:
        """Go on with a body, which others precede and follow where cells come and go."""
        self._sources = here.sources
        self._names |= {column: names for column, (names, _) in here.surfaces.items()}

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
        powers = {column: powers.get(column, 0.0) for column in self._names}
        entry, before = BalanceEntry(step, heat, powers, dict.fromkeys(powers, 0.0)), self._latest
        # Without an earlier record, or after a step back, the balance begins anew here; so it does
        # where no record says what had been counted before the first record.
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
        arrived, gone = (self._since(counted, (it,)) for it in (ARRIVED, GONE))
        values = {**through, STORED: stored, GIVEN: given, PASSED: passed}
        values |= {ARRIVED: arrived, GONE: gone}
        values[RESIDUAL] = stored - given - passed - arrived + gone
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
            first, last = before.powers.get(column, 0.0), after.powers[column]
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
AUDITED = (FLOW, SOURCES, THROUGH, FROM, STORED, GIVEN, PASSED, ARRIVED, GONE, RESIDUAL)


class AuditedBody:
    """A body as its audit sees it: its materials, and the surfaces through which heat comes in.

    Args:
        problem: a problem whose state is a temperature (`has_heat`).
        implicit: whether steps are implicit.

    Attributes:
        problem: as above.
        body: its materials; None of a uniform body.
        openings: faces that are open.
        warm: numbers of the materials whose state is not held.
        pairs: numbers of materials in contact.
        sources: that heat it; None if there are none.
        surfaces: by column, the names under which steps count what comes in, and the flows that
            come in there with their signs.
    """

    def __init__(self, problem: Problem, *, implicit: bool = False) -> None:
        self.problem, self.openings = problem, tuple(openings(problem))
        self.body: BodyMaterials | None = None
        self.warm: list[int] = []
        self.pairs: list[tuple[int, int]] = []
        self.sources: Sources | None = None

        # Materials and contacts do not change, so the columns follow from one scan without a state.
        if problem.conduction is not None:
            self.body = BodyMaterials(problem)
            found = survey(self.body, None)
            self.pairs = found.pairs
            self.warm = [
                k
                for k, material in enumerate(self.body.materials)
                if found.warmth[k].volume and not material.held
            ]
            if problem.conduction.source is not None:
                self.sources = Sources(problem.conduction.source, self.body, implicit=implicit)
        self.surfaces = self._surfaces()

    @property
    def materials(self) -> list[str]:
        """Names of the materials whose state is not held."""
        return self._names(self.warm)

    @property
    def flows(self) -> list[str]:
        """Names of the flows: through open faces, between materials and from what else gives."""
        faces = [f"{FLOW} {opening.name}" for opening in self.openings]
        pairs = [f"{FLOW} {' to '.join(self._names(pair))}" for pair in self.pairs]
        return [*faces, *pairs, *(f"{FLOW} {name}" for name in givers_of(self.problem))]

    def _names(self, numbers: Sequence[int]) -> list[str]:
        names = [] if self.body is None else described(self.body.materials)
        return [names[k] for k in numbers]

    def _surfaces(self) -> dict[str, tuple[list[str], dict[str, int]]]:
        """The surfaces of everything that is not held."""
        found: dict[str, tuple[list[str], dict[str, int]]] = {
            f"{THROUGH} {it.name}": ([it.name], {f"{FLOW} {it.name}": 1}) for it in self.openings
        }
        for name in givers_of(self.problem):
            found[f"{FROM} {name}"] = ([name], {f"{FLOW} {name}": 1})
        if self.body is None:
            return found

        for pair, sign in held_pairs(self.body, self.pairs):
            number = pair[0] if sign > 0 else pair[1]
            ids = np.flatnonzero(self.body.numbers == number)
            column = f"{FROM} {self._names([number])[0]}"
            # Under its own name is what came from it before other cells came or went.
            names = [column, *(held_name(int(it)) for it in ids)]
            found.setdefault(column, (names, {}))[1][f"{FLOW} {' to '.join(self._names(pair))}"] = (
                sign
            )
        return found

    def powers(self, flows: Mapping[str, float], power: float) -> dict[str, float]:
        """Heat flow through each surface, and the power of sources [W]."""
        found = {
            column: math.fsum(sign * flows[name] for name, sign in signs.items())
            for column, (_, signs) in self.surfaces.items()
        }
        return found if self.sources is None else {**found, GIVEN: power}


class Audit:
    """Columns about the heat of a body at each record.

    A body with materials has, for each material whose state is not held, minimum, maximum, mean and
    heat; then the heat flow through each open face (into the body) and between any two materials in
    contact (from the first to the second), the power of the sources, and the balance since the
    first record. A uniform body has only faces and balance, if any face is open. Where cells come
    and go, the columns are those of all that is there at any time.

    Args:
        problem: a problem whose state is a temperature (`has_heat`).
        implicit: whether steps are implicit.
        meter: what counts heat from record to record; without it flows are lines between them.
    """

    def __init__(
        self, problem: Problem, *, implicit: bool = False, meter: Meter | None = None
    ) -> None:
        self._problem, self._implicit = problem, implicit
        self._meter = meter
        self._here = AuditedBody(problem, implicit=implicit)
        # Of other phases only the names are kept: each has maps as large as the grid.
        materials, flows, surfaces = dict[str, None](), dict[str, None](), dict[str, list[str]]()
        self._heated = False
        phases, kinds = problem.phases, [0]
        if phases is not None:
            kinds = [*(phases.kinds or range(len(phases.begins)))]
        for number in sorted({*kinds}, key=abs):
            it = self._here if number == problem.phase else self._of(number)
            materials |= dict.fromkeys(it.materials)
            flows |= dict.fromkeys(it.flows)
            surfaces |= {column: names for column, (names, _) in it.surfaces.items()}
            self._heated = self._heated or it.sources is not None

        self._materials, self._flows = [*materials], [*flows]
        self._balance = HeatBalance(
            *(problem.dt, surfaces),
            heated=self._heated,
            implicit=implicit,
            passes=phases is not None,
        )
        self._balance.turn_to(self._here)

    def _of(self, number: int) -> AuditedBody:
        """The body of another phase."""
        assert self._problem.phases is not None
        return AuditedBody(self._problem.phases.make(number).seen, implicit=self._implicit)

    @property
    def columns(self) -> list[str]:
        """Names with units of all columns besides minimum, maximum, mean and heat of the whole
        body.
        """
        variable, power = self._problem.variables[0], power_unit(self._problem)
        heat, energy = heat_column(self._problem)
        columns = []
        for name in self._materials:
            columns += [f"{name} {what} [{variable.unit}]" for what in ("min", "max", "mean")]
            columns.append(f"{name} {heat} [{energy}]")
        columns += [f"{name} [{power}]" for name in self._flows]
        columns += [f"{name} [{unit}]" for name, unit in beside(self._problem)]

        if self._heated:
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
        flows = {flow: last[f"{flow} [{power}]"] for flow in self._flows}
        prefix = f"{self._problem.variables[0].name} " if self._problem.n_fields > 1 else ""
        heat = f"{prefix}{name} [{energy}]"
        powers = self._here.powers(flows, last.get(f"{SOURCES} [{power}]", 0.0))
        moved = {column: last[f"{column} [{energy}]"] for column in self._balance.moving}
        latest = BalanceEntry(int(last["step"]), last[heat], powers, moved)
        self._balance.go_on((int(first["step"]), first[heat]), latest)

    def look_at_body(self, snapshot: Snapshot) -> tuple[list[float], list[float]]:
        """Statistics of a body with materials, and the audit.

        Returns:
            Minimum, maximum, mean and heat of everything that is not held; and the audit's columns.
        """
        if snapshot.problem.phase != self._here.problem.phase:
            self._here = AuditedBody(snapshot.problem, implicit=self._implicit)
            self._balance.turn_to(self._here)
        assert self._here.body is not None
        found = survey(self._here.body, snapshot)
        warmth = [found.warmth[k] for k in self._here.warm]
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

        by_name = dict[str, list[float]]()
        for name, one in zip(self._here.materials, warmth, strict=True):
            mean = math.fsum(one.integral) / math.fsum(one.volume)
            by_name[name] = [one.low, one.high, mean, math.fsum(one.heat)]
        absent = [math.nan, math.nan, math.nan, 0.0]
        values = [it for name in self._materials for it in by_name.get(name, absent)]
        return whole, [*values, *self._flows_and_balance(snapshot, heat, found)]

    def look_at_faces(self, snapshot: Snapshot, heat: float) -> list[float]:
        """The audit of a uniform body that holds `heat` [J]."""
        return self._flows_and_balance(snapshot, heat, None) if self._is_open else []

    def _flows_and_balance(
        self, snapshot: Snapshot, heat: float, found: MaterialSummary | None
    ) -> list[float]:
        here = self._here
        through = [flow_through(it, snapshot, now=self._implicit) for it in here.openings]
        between = [found.flow(pair) for pair in here.pairs] if found is not None else []
        problem, time, given, state = here.problem, snapshot.time, list[float](), None
        if givers_of(problem):  # which read the whole state
            state = snapshot.hidden(tuple((0, n) for n in problem.grid.shape))[0]
            span = time, time if self._implicit else problem.time(snapshot.step + 1)
            given = [*given_by(problem, state, span).values()]

        flows = dict(zip(here.flows, [*through, *between, *given], strict=True))
        around = said_beside(problem, state, time)
        power = 0.0 if here.sources is None else here.sources.power(snapshot)
        powers = here.powers(flows, power)
        counted = {} if self._meter is None else self._meter.counted(snapshot)
        balance = self._balance.add(snapshot.step, heat, powers, counted)
        return [
            *(flows.get(name, 0.0) for name in self._flows),
            *around,
            *([power] if self._heated else []),
            *balance.values(),
        ]

    @property
    def _is_open(self) -> bool:
        return self._here.body is not None or bool(self._here.openings)
