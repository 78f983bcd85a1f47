"""Audit: the columns of the statistics about heat: where it is, where it flows, and the balance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tetris_sim.model.problem import Problem
from tetris_sim.outputs.heat_flows import (
    Sources,
    flow_through,
    heat_column,
    openings,
    power_unit,
)
from tetris_sim.outputs.materials import (
    BodyMaterials,
    MaterialSummary,
    described,
    held_pairs,
    survey,
)
from tetris_sim.outputs.output import Snapshot

# Heat balance since the first record: stored heat, heat that came in, and the residual.
#
# Stored heat and the heat of sources are exact: steps add the mean power over the step, a known
# number per material. (The power of sources that move is known only at the records.)
# Flows through surfaces are known at the records and assumed to change linearly from step to step
# in between; their sum is exact with a record at every step, or if the flow is linear, and of
# second order in the interval of records otherwise. Of implicit steps they are those of the
# records, and assumed to lie on a straight line between them, which is of second order in the step
# even with a record at every step. The residual is the rest: rounding, and this error.

STORED, GIVEN, PASSED, RESIDUAL = (
    "heat stored",
    "heat by sources",
    "heat through surfaces",
    "heat residual",
)


@dataclass(frozen=True)
class BalanceEntry:
    """Heat balance at one record.

    Attributes:
        step: step of the record.
        heat: heat of the body [J].
        inflow: heat flow through all its surfaces [W].
        power: power of its sources [W].
        given: heat from sources since the first record [J].
        passed: heat through surfaces since then [J].
    """

    step: int
    heat: float
    inflow: float
    power: float = 0.0
    given: float = 0.0
    passed: float = 0.0


def summed(before: BalanceEntry, after: BalanceEntry, dt: float, *, of: str) -> float:
    """A power from one record to the next [J], added up as steps do: each takes that of its
    beginning, which lies on the straight line between the records.

    >>> begin = BalanceEntry(0, 0.0, 5.0)
    >>> summed(begin, BalanceEntry(1, 0.0, 9.0), 1.0, of="inflow")  # one step: its beginning
    5.0
    >>> summed(begin, BalanceEntry(2, 0.0, 9.0), 1.0, of="inflow")  # 5, then 7
    12.0
    """
    # A sum of an arithmetic series: the last record's own power belongs to the next step.
    steps = after.step - before.step
    first, last = getattr(before, of), getattr(after, of)
    return float(dt * ((steps + 1) / 2 * first + (steps - 1) / 2 * last))


class HeatBalance:
    """Running heat balance over the records of a run.

    Args:
        dt: time step [s].
        sources: the sources of the body; None if it has none.
        implicit: whether steps are implicit.
    """

    def __init__(self, dt: float, sources: Sources | None, *, implicit: bool = False) -> None:
        self._dt, self._sources, self._implicit = dt, sources, implicit
        self._first: float | None = None
        self._latest: BalanceEntry | None = None

    @property
    def columns(self) -> list[str]:
        """Names of the columns that `add` returns."""
        return [STORED, *([GIVEN] if self._sources else []), PASSED, RESIDUAL]

    def go_on(self, first: float | None, latest: BalanceEntry | None) -> None:
        """Continue from the heat of the first record [J] and the latest entry, or begin."""
        self._first, self._latest = first, latest

    def add(self, step: int, heat: float, inflow: float) -> Mapping[str, float]:
        """Add a record; returns the balance by column [J].

        Args:
            step: step of the record.
            heat: heat of the body [J].
            inflow: heat flow through its surfaces [W].
        """
        power = self._sources.power(step) if self._sources else 0.0
        entry = BalanceEntry(step, heat, inflow, power)
        before = self._latest
        # Without an earlier record, or after a step back, the balance begins anew here.
        if before is None or self._first is None or step < before.step:
            self._first = heat
        elif step == before.step:  # the same record, of a run that was continued at it
            entry = replace(entry, given=before.given, passed=before.passed)
        else:
            given = before.given + self._given(before, entry)
            passed = before.passed + self._summed(before, entry, "inflow")
            entry = replace(entry, given=given, passed=passed)

        self._latest = entry
        stored = heat - self._first
        values = {STORED: stored, GIVEN: entry.given, PASSED: entry.passed}
        values[RESIDUAL] = stored - entry.given - entry.passed
        return {name: values[name] for name in self.columns}

    def _given(self, before: BalanceEntry, after: BalanceEntry) -> float:
        if self._sources is None:
            return 0.0
        if self._sources.adds_up:
            return self._sources.heat(before.step, after.step)
        return self._summed(before, after, "power")

    def _summed(self, before: BalanceEntry, after: BalanceEntry, of: str) -> float:
        if not self._implicit:
            return summed(before, after, self._dt, of=of)
        # Implicit: trapezoidal rule over the interval.
        steps = after.step - before.step
        return self._dt * steps * (float(getattr(before, of)) + float(getattr(after, of))) / 2


SOURCES = "sources"
FLOW = "heat flow"
AUDITED = (FLOW, SOURCES, STORED, GIVEN, PASSED, RESIDUAL)  # beginnings of the audit's columns


class Audit:
    """Columns about the heat of a body at each record.

    A body with materials has, for each material whose state is not held, minimum, maximum, mean and
    heat; then the heat flow through each open face (into the body) and between any two materials in
    contact (from the first to the second), the power of the sources, and the balance since the
    first record. A uniform body has only faces and balance, if any face is open.

    Args:
        problem: a problem whose state is a temperature (`has_heat`).
        implicit: whether steps are implicit.
    """

    def __init__(self, problem: Problem, *, implicit: bool = False) -> None:
        self._problem = problem
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
        self._balance = HeatBalance(problem.dt, self._sources, implicit=implicit)

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
        latest = BalanceEntry(
            step=int(last["step"]),
            heat=last[heat],
            inflow=self._inflow(flows),
            power=last.get(f"{SOURCES} [{power}]", 0.0),
            given=last.get(f"{GIVEN} [{energy}]", 0.0),
            passed=last[f"{PASSED} [{energy}]"],
        )
        self._balance.go_on(first[heat], latest)

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
        flows = dict(zip(self._names_of_flows(), [*through, *between], strict=True))
        power = [] if self._sources is None else [self._sources.power(snapshot.step)]
        balance = self._balance.add(snapshot.step, heat, self._inflow(flows))
        return [*flows.values(), *power, *balance.values()]

    @property
    def _is_open(self) -> bool:
        return self._body is not None or bool(self._openings)

    def _names(self, numbers: Sequence[int]) -> list[str]:
        names = [] if self._body is None else described(self._body.materials)
        return [names[k] for k in numbers]

    def _names_of_flows(self) -> list[str]:
        faces = [f"{FLOW} {opening.name}" for opening in self._openings]
        return faces + [f"{FLOW} {' to '.join(self._names(pair))}" for pair in self._pairs]

    def _inflow(self, flows: Mapping[str, float]) -> float:
        """Heat flow into everything that is not held, through faces and from held materials [W]."""
        through = [flows[f"{FLOW} {opening.name}"] for opening in self._openings]
        if self._body is not None:
            for pair, sign in held_pairs(self._body, self._pairs):
                through.append(sign * flows[f"{FLOW} {' to '.join(self._names(pair))}"])
        return math.fsum(through)
