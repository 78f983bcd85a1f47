"""The balance of heat since the first record: what is stored, what came in, and what is left over.

Stored heat and the heat of sources are exact: explicit steps add the power at their beginning, a
known number per material and step. (The power of sources that move is only known at the records.)
What flows through surfaces is known at the records, and in between it is taken to change linearly
from step to step; so the sum is exact if there is a record at every step, or if the flow changes
linearly, and of second order in the interval of records else. Implicit steps are made of powers at
their begin, middle and end; from record to record these are taken to lie on a straight line, which
is of second order in the step even if each is recorded. The residual is the rest: roundings, and
this error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tetris_sim.outputs.heat_flows import Sources

STORED, GIVEN, PASSED, RESIDUAL = (
    "heat stored",
    "heat by sources",
    "heat through surfaces",
    "heat residual",
)


@dataclass(frozen=True)
class Entry:
    """One record.

    Attributes:
        step: when it is.
        heat: of the body [J].
        inflow: through all its surfaces [W].
        power: of its sources [W].
        given: heat by sources since the first record [J].
        passed: heat through surfaces since then [J].
    """

    step: int
    heat: float
    inflow: float
    power: float = 0.0
    given: float = 0.0
    passed: float = 0.0


def summed(before: Entry, after: Entry, dt: float, *, of: str) -> float:
    """A power from one record to the next [J], added up as steps do: each takes that of its
    beginning, which lies on the straight line between the records.

    >>> summed(Entry(0, 0.0, 5.0), Entry(1, 0.0, 9.0), 1.0, of="inflow")  # one step: its beginning
    5.0
    >>> summed(Entry(0, 0.0, 5.0), Entry(2, 0.0, 9.0), 1.0, of="inflow")  # 5, then 7
    12.0
    """
    steps = after.step - before.step
    first, last = getattr(before, of), getattr(after, of)
    return float(dt * ((steps + 1) / 2 * first + (steps - 1) / 2 * last))


class Balance:
    """Follows the records of a run.

    Args:
        dt: time step [s].
        sources: what heats the body, if anything does.
        implicit: whether steps are.
    """

    def __init__(self, dt: float, sources: Sources | None, *, implicit: bool = False) -> None:
        self._dt, self._sources, self._implicit = dt, sources, implicit
        self._first: float | None = None
        self._latest: Entry | None = None

    @property
    def columns(self) -> list[str]:
        """What `add` gives."""
        return [STORED, *([GIVEN] if self._sources else []), PASSED, RESIDUAL]

    def go_on(self, first: float | None, latest: Entry | None) -> None:
        """Continue from earlier records: heat of the first one [J], and the latest; or begin."""
        self._first, self._latest = first, latest

    def add(self, step: int, heat: float, inflow: float) -> Mapping[str, float]:
        """What the balance is at a record, by column [J]."""
        power = self._sources.power(step) if self._sources else 0.0
        entry = Entry(step, heat, inflow, power)
        before = self._latest
        if before is None or self._first is None or step <= before.step:
            self._first = heat
        else:
            given = before.given + self._given(before, entry)
            passed = before.passed + self._summed(before, entry, "inflow")
            entry = replace(entry, given=given, passed=passed)

        self._latest = entry
        stored = heat - self._first
        values = {STORED: stored, GIVEN: entry.given, PASSED: entry.passed}
        values[RESIDUAL] = stored - entry.given - entry.passed
        return {name: values[name] for name in self.columns}

    def _given(self, before: Entry, after: Entry) -> float:
        if self._sources is None:
            return 0.0
        if self._sources.adds_up and not self._implicit:
            return self._sources.heat(before.step, after.step)
        return self._summed(before, after, "power")

    def _summed(self, before: Entry, after: Entry, of: str) -> float:
        if not self._implicit:
            return summed(before, after, self._dt, of=of)
        steps = after.step - before.step
        return self._dt * steps * (float(getattr(before, of)) + float(getattr(after, of))) / 2
