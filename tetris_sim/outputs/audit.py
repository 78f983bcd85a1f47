"""Audit: the columns of the statistics that say where the heat of a body is and where it flows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tetris_sim.model.problem import Problem
from tetris_sim.outputs.balance import GIVEN, PASSED, RESIDUAL, STORED, Balance, Entry
from tetris_sim.outputs.heat_flows import (
    Sources,
    flow_through,
    heat_column,
    openings,
    power_unit,
)
from tetris_sim.outputs.materials import Body, Survey, described, held_pairs, survey
from tetris_sim.outputs.output import Snapshot

SOURCES = "sources"
FLOW = "heat flow"
AUDITED = (FLOW, SOURCES, STORED, GIVEN, PASSED, RESIDUAL)  # what columns of the audit begin with


class Audit:
    """What is said of the heat of a body at each record.

    A body with materials has, of each of them whose state is not held, minimum, maximum, mean and
    heat; then the heat flow through each open face (into the body) and between each two materials
    that touch (from the first to the second), the power of the sources, and the balance since the
    first record. A body that is the same everywhere has only faces and balance, if any is open.

    Args:
        problem: its state is a temperature (`has_heat`).
        implicit: whether steps are.
    """

    def __init__(self, problem: Problem, *, implicit: bool = False) -> None:
        self._problem = problem
        self._openings = tuple(openings(problem))
        self._body: Body | None = None
        self._warm: list[int] = []  # numbers of the materials of which something is said
        self._pairs: list[tuple[int, int]] = []
        self._sources: Sources | None = None
        if problem.conduction is not None:
            self._body = Body(problem)
            found = survey(self._body, None)
            self._pairs = found.pairs
            self._warm = [
                k
                for k, material in enumerate(self._body.materials)
                if found.warmth[k].volume and not material.held
            ]
            if problem.conduction.source is not None:
                self._sources = Sources(problem.conduction.source, self._body)
        self._balance = Balance(problem.dt, self._sources, implicit=implicit)

    @property
    def columns(self) -> list[str]:
        """Names with units: what is said besides minimum, maximum, mean and heat of the whole."""
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
        """Continue from the records of a table, if there are any."""
        if not rows or not self._is_open:
            self._balance.go_on(None, None)
            return

        name, energy = heat_column(self._problem)
        power = power_unit(self._problem)
        first, last = (dict(zip(header, row, strict=True)) for row in (rows[0], rows[-1]))
        flows = {flow: last[f"{flow} [{power}]"] for flow in self._names_of_flows()}
        prefix = f"{self._problem.variables[0].name} " if self._problem.n_fields > 1 else ""
        heat = f"{prefix}{name} [{energy}]"
        latest = Entry(
            step=int(last["step"]),
            heat=last[heat],
            inflow=self._inflow(flows),
            power=last.get(f"{SOURCES} [{power}]", 0.0),
            given=last.get(f"{GIVEN} [{energy}]", 0.0),
            passed=last[f"{PASSED} [{energy}]"],
        )
        self._balance.go_on(first[heat], latest)

    def look_at_body(self, snapshot: Snapshot) -> tuple[list[float], list[float]]:
        """Minimum, maximum, mean and heat of a body with materials but for what is held, and the
        audit.
        """
        assert self._body is not None
        found = survey(self._body, snapshot)
        warmth = [found.warmth[k] for k in self._warm]
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
        """The audit of a body that is the same everywhere and holds so much heat [J]."""
        return self._flows_and_balance(snapshot, heat, None) if self._is_open else []

    def _flows_and_balance(
        self, snapshot: Snapshot, heat: float, found: Survey | None
    ) -> list[float]:
        through = [flow_through(opening, snapshot) for opening in self._openings]
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
        """Into all that is not held, through faces and from what is held [W]."""
        through = [flows[f"{FLOW} {opening.name}"] for opening in self._openings]
        if self._body is not None:
            for pair, sign in held_pairs(self._body, self._pairs):
                through.append(sign * flows[f"{FLOW} {' to '.join(self._names(pair))}"])
        return math.fsum(through)
