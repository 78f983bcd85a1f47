"""Choice: the method and the parameters that the tuner decided for, and what it was chosen from."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tetris_sim.model.method import KnownGpu, Method, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.support.wording import count_threads


@dataclass(frozen=True)
class Speed:
    """What a method was measured to do.

    Attributes:
        points_per_second: point updates per second in steady state.
        latency: extra time of starting and ending one block of steps [s].
    """

    points_per_second: float
    latency: float


def middle(speeds: Sequence[Speed]) -> Speed:
    """The median of several timings."""
    return Speed(
        statistics.median(speed.points_per_second for speed in speeds),
        statistics.median(speed.latency for speed in speeds),
    )


@dataclass(frozen=True)
class Known:
    """What was the fastest where it was measured.

    Attributes:
        gpu: name of the product that it was made on.
        balance: bytes that its memory gives to each multiprocessor in a cycle.
        date: of the measurement.
        kind: what `known.kind_of` says of the stencil and its numbers.
        mirrored: whether its weights stay the same when an axis is turned around.
        points: of the grid.
        method: the fastest one.
        parameters: its fastest ones.
        rate: point updates per second.
    """

    gpu: str
    balance: float
    date: str
    kind: tuple[Any, ...]
    mirrored: bool
    points: int
    method: str
    parameters: Parameters
    rate: float


@dataclass(frozen=True)
class Candidate:
    """One way to advance a problem.

    Attributes:
        method: way to advance.
        parameters: tile sizes and so on.
        guess: 0 for what the method itself thinks best, 1 for the next, and so on.
        quick: whether it compiles quickly: the method that never refuses does, the others have more
            code.
        known: why it goes before all others: what was measured elsewhere.
    """

    method: Method
    parameters: Parameters
    guess: int = 0
    quick: bool = False
    known: Known | None = None

    @property
    def code(self) -> dict[str, int]:
        """The parameters that code is compiled for; one that differs in others needs no other."""
        fixed = self.method.fixed_at_compile
        return {name: value for name, value in self.parameters.items() if fixed(name)}

    @property
    def label(self) -> str:
        """Method and parameters for people: "cpu.stream (levels 4, steps_per_block 32)"."""
        return label_of(self.method.name, self.parameters)


def label_of(method: str, parameters: Parameters) -> str:
    """Method and parameters for people."""
    values = ", ".join(f"{name} {value}" for name, value in parameters.items())
    return f"{method} ({values})" if values else method


@dataclass(eq=False)
class TunerEntry:
    """A candidate in the competition, and what was seen of it.

    Attributes:
        candidate: what is tried.
        opening: time it took to compile, to load the trial problem and to make the first block [s].
        reopening: time it would take once more, with the code compiled [s].
        first: timing right after that; None if it was not tried.
        speeds: timings as a finalist.
        tried: whether it was, with or without success.
        late: whether it was left out for lack of time.
        lost: whether others were so much faster in their first timing that it was not timed again.
        note: why it was not tried or is not used; empty if nothing speaks against it.
        check: what the comparison with the reference found; empty if there was none.
    """

    candidate: Candidate
    opening: float = 0.0
    reopening: float = 0.0
    first: Speed | None = None
    speeds: list[Speed] = field(default_factory=list)
    tried: bool = False
    late: bool = False
    lost: bool = False
    note: str = ""
    check: str = ""

    @property
    def speed(self) -> Speed | None:
        """Median of its timings; None if it was not tried."""
        return middle(self.speeds) if self.speeds else self.first

    @property
    def rate(self) -> float:
        """Points per second, 0 if it was not tried."""
        return self.speed.points_per_second if self.speed is not None else 0.0


@dataclass(frozen=True)
class TunerRow:
    """One line of the table of what was tried.

    Attributes:
        method: name of the method.
        parameters: values that it was tried with.
        points_per_second: median, slowest and fastest timing; None if there is none.
        check: what the comparison with the reference found; empty if there was none.
        note: "chosen", or why it was not tried or is not used.
    """

    method: str
    parameters: Parameters
    points_per_second: tuple[float, float, float] | None
    check: str
    note: str


@dataclass(frozen=True)
class Choice:
    """A method, its parameters, and why.

    Attributes:
        method: way to advance.
        parameters: tile sizes and so on.
        threads: CPU threads of the team.
        speed: what was measured.
        reasons: a sentence for each thing that was decided.
        rows: what was tried; empty if the choice was remembered.
        seconds: time that choosing took [s].
        date: day and time of the measurement, ISO 8601; None if now, or never.
    """

    method: Method
    parameters: Parameters
    threads: int
    speed: Speed
    reasons: tuple[str, ...]
    rows: tuple[TunerRow, ...] = ()
    seconds: float = 0.0
    date: str | None = None


def as_plain(row: TunerRow) -> Mapping[str, Any]:
    """A row as plain data."""
    return dataclasses.asdict(row) | {"parameters": dict(row.parameters)}


def giga(rate: float) -> str:
    """A speed for people."""
    return f"{rate / 1e9:.3g} GStencil/s"


# What the tuner says: the table of what it tried, and the sentences that say why.


def make_rows(
    entries: Sequence[TunerEntry], chosen: TunerEntry, refused: Mapping[str, str]
) -> tuple[TunerRow, ...]:
    """The table: a line for each candidate, and for all that was out of the question."""
    return (
        *(_row(entry, chosen) for entry in entries),
        *(TunerRow(name, {}, None, "", why) for name, why in refused.items()),
    )


def _row(entry: TunerEntry, chosen: TunerEntry) -> TunerRow:
    rates = [
        speed.points_per_second
        for speed in (*entry.speeds, entry.first)[: len(entry.speeds) or 1]
        if speed
    ]
    note = "chosen" if entry is chosen else entry.note
    spread = (entry.rate, min(rates), max(rates)) if rates else None
    return TunerRow(
        entry.candidate.method.name, dict(entry.candidate.parameters), spread, entry.check, note
    )


def describe_competition(
    entries: Sequence[TunerEntry], chosen: TunerEntry, trial_problem: Problem, seconds: float
) -> list[str]:
    """Sentences: what was chosen, how it was found, what else there was."""
    tried = sum(entry.tried for entry in entries)
    count = "1 candidate" if len(entries) == 1 else f"{len(entries)} candidates"
    some = f"{tried} of " if tried < len(entries) and len(entries) > 1 else ""
    shape = " x ".join(str(n) for n in reversed(trial_problem.grid.shape))
    sentences = [
        f"{chosen.candidate.label}: {giga(chosen.rate)} measured, checked; tuned now in "
        f"{seconds:.1f} s: {some}{count}, on {shape} points."
    ]
    if any(entry.late for entry in entries):
        sentences.append("The verb `tune` gives the others their turn.")

    for name in dict.fromkeys(entry.candidate.method.name for entry in entries):
        same = [entry for entry in entries if entry.candidate.method.name == name]
        sentences += _describe_method(same, is_chosen=name == chosen.candidate.method.name)
    return sentences


def _describe_method(entries: Sequence[TunerEntry], *, is_chosen: bool) -> list[str]:
    """Its fastest candidate if another method was chosen, and what speaks against the others."""
    usable = [entry for entry in entries if entry.first is not None and not entry.note]
    sentences = []
    if usable and not is_chosen:
        fastest = max(usable, key=lambda entry: entry.rate)
        sentences.append(f"{fastest.candidate.label}: {giga(fastest.rate)}.")

    told = [entry for entry in entries if entry.note and (entry.tried or not usable)]
    notes = dict.fromkeys(entry.note for entry in told)
    return [*sentences, *(f"Not {_those(entries, note)}: {note}." for note in notes)]


def explanations(
    entries: Sequence[TunerEntry], trial_problem: Problem, gpu: KnownGpu | None
) -> list[str]:
    """What the methods that were timed say of their fastest candidates."""
    fastest: dict[Method, TunerEntry] = {}
    for entry in entries:
        if entry.rate and not entry.note:
            method = entry.candidate.method
            fastest[method] = max(fastest.get(method, entry), entry, key=lambda e: e.rate)

    sentences = [
        method.explain(trial_problem, entry.candidate.parameters, entry.rate, gpu)
        for method, entry in fastest.items()
    ]
    return [sentence for sentence in sentences if sentence is not None]


def _those(entries: Sequence[TunerEntry], note: str) -> str:
    """The candidates with one note, named together."""
    labels = [entry.candidate.label for entry in entries if entry.note == note]
    return (
        labels[0]
        if len(labels) == 1
        else f"{entries[0].candidate.method.name} ({len(labels)} candidates)"
    )


def refusals(refused: Mapping[str, str]) -> list[str]:
    """A sentence for each method or candidate that was out of the question."""
    return [f"Not {name}: {sentence}." for name, sentence in refused.items()]


def smaller_team(threads: int, most: int) -> list[str]:
    """A sentence if not all threads are used."""
    if threads == most:
        return []
    return [f"{count_threads(threads)} of {most}: the grid is so small that fewer are faster."]
