"""Results of the tuner: timings, candidates, the choice, and the sentences that explain it."""

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
    """Measured speed of a method, as a rate and a latency.

    Attributes:
        points_per_second: point updates per second in steady state.
        latency: extra time to start and end one block of steps [s].
    """

    points_per_second: float
    latency: float


def middle(speeds: Sequence[Speed]) -> Speed:
    """The median of several timings, for rate and latency separately."""
    return Speed(
        statistics.median(speed.points_per_second for speed in speeds),
        statistics.median(speed.latency for speed in speeds),
    )


@dataclass(frozen=True)
class Known:
    """A method that was the fastest on a GPU that was measured before.

    Attributes:
        gpu: product name of the GPU.
        balance: memory bandwidth of that GPU per multiprocessor and clock cycle [bytes].
        date: date of the measurement.
        kind: result of `tuned.kind_of` for the problem: stencil and precision.
        mirrored: whether the weights stay the same when an axis is reversed.
        points: points of the grid.
        method: name of the fastest method.
        parameters: its fastest parameters.
        rate: measured point updates per second.
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
        method: method to try.
        parameters: its parameters: tile sizes and so on.
        guess: rank of these parameters in the method's own order of preference; 0 is its best
            guess.
        quick: whether it compiles quickly, as the method does that never refuses; the others have
            more code.
        known: the earlier measurement because of which it is tried first; None if there is none.
    """

    method: Method
    parameters: Parameters
    guess: int = 0
    quick: bool = False
    known: Known | None = None

    @property
    def code(self) -> dict[str, int]:
        """The parameters that are compile-time constants; candidates that differ only in other
        parameters share compiled code.
        """
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
    """A candidate in the competition and its measurements so far.

    Attributes:
        candidate: the method and parameters that are timed.
        opening: time to compile, to load the trial problem and to make the first block [s].
        reopening: time to open it once more, with compiled code [s].
        first: first timing; None if the candidate was not tried.
        speeds: timings as a finalist.
        tried: whether it was tried, successfully or not.
        late: whether it was skipped for lack of time.
        outlasts: whether it was skipped because the run would be over before it is compiled.
        lost: whether its first timing was so far behind others that it was not timed again.
        note: why it was not tried or is not used; empty if it may be used.
        check: outcome of the comparison with the reference; empty if it was not made.
    """

    candidate: Candidate
    opening: float = 0.0
    reopening: float = 0.0
    first: Speed | None = None
    speeds: list[Speed] = field(default_factory=list)
    tried: bool = False
    late: bool = False
    outlasts: bool = False
    lost: bool = False
    note: str = ""
    check: str = ""

    @property
    def speed(self) -> Speed | None:
        """Median of the timings as a finalist, or the first timing; None if it was not tried."""
        return middle(self.speeds) if self.speeds else self.first

    @property
    def rate(self) -> float:
        """Point updates per second; 0 if it was not tried."""
        return self.speed.points_per_second if self.speed is not None else 0.0


@dataclass(frozen=True)
class TunerRow:
    """One line of the table of tried candidates.

    Attributes:
        method: name of the method.
        parameters: parameters that it was tried with.
        points_per_second: (median, slowest, fastest) timing; None if there is none.
        check: outcome of the comparison with the reference; empty if it was not made.
        note: "chosen", or why it was not tried or is not used.
    """

    method: str
    parameters: Parameters
    points_per_second: tuple[float, float, float] | None
    check: str
    note: str


@dataclass(frozen=True)
class Choice:
    """The chosen method and parameters, and why they were chosen.

    Attributes:
        method: method that advances the problem.
        parameters: its parameters: tile sizes and so on.
        threads: CPU threads of the team.
        speed: measured speed.
        reasons: one sentence per decision.
        rows: the candidates that were tried; empty if the choice was remembered.
        seconds: time that tuning took [s].
        date: day and time of the measurement, ISO 8601; None if it was made now, or not at all.
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
    """A row as plain data, for JSON."""
    return dataclasses.asdict(row) | {"parameters": dict(row.parameters)}


def giga(rate: float) -> str:
    """A rate for the user, in GStencil/s."""
    return f"{rate / 1e9:.3g} GStencil/s"


# Report of the tuner: the table of tried candidates, and the sentences that explain the choice.


def make_rows(
    entries: Sequence[TunerEntry], chosen: TunerEntry, refused: Mapping[str, str]
) -> tuple[TunerRow, ...]:
    """The table: a row for each candidate and for each refused method."""
    return (
        *(_row(entry, chosen) for entry in entries),
        *(TunerRow(name, {}, None, "", why) for name, why in refused.items()),
    )


def _row(entry: TunerEntry, chosen: TunerEntry) -> TunerRow:
    # Finalists are judged by their repeated timings alone. The slice keeps `first`, which comes
    # last, only if there are no others.
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
    """Sentences about what was chosen, how it was found, and the alternatives."""
    # One sentence for what was chosen, then one for each other method, so that a user sees what the
    # choice was made from.
    tried = sum(entry.tried for entry in entries)
    count = "1 candidate" if len(entries) == 1 else f"{len(entries)} candidates"
    # "3 of 12 candidates" if some were skipped, "12 candidates" otherwise.
    some = f"{tried} of " if tried < len(entries) and len(entries) > 1 else ""
    shape = " x ".join(str(n) for n in reversed(trial_problem.grid.shape))
    sentences = [
        f"{chosen.candidate.label}: {giga(chosen.rate)} measured, checked; tuned now in "
        f"{seconds:.1f} s: {some}{count}, on {shape} points."
    ]
    if any(entry.late for entry in entries):
        sentences.append("The verb `tune` gives the others their turn.")

    # Sentences about each method, in the order of the candidates.
    for name in dict.fromkeys(entry.candidate.method.name for entry in entries):
        same = [entry for entry in entries if entry.candidate.method.name == name]
        sentences += _describe_method(same, is_chosen=name == chosen.candidate.method.name)
    return sentences


def _describe_method(entries: Sequence[TunerEntry], *, is_chosen: bool) -> list[str]:
    """Sentences about one method: its fastest candidate, if another method was chosen, and why its
    other candidates are not used.
    """
    usable = [entry for entry in entries if entry.first is not None and not entry.note]
    sentences = []
    if usable and not is_chosen:
        fastest = max(usable, key=lambda entry: entry.rate)
        sentences.append(f"{fastest.candidate.label}: {giga(fastest.rate)}.")

    # Skipped candidates are worth a sentence only if no candidate of the method is usable.
    told = [entry for entry in entries if entry.note and (entry.tried or not usable)]
    notes = dict.fromkeys(entry.note for entry in told)
    return [*sentences, *(f"Not {_those(entries, note)}: {note}." for note in notes)]


def explanations(
    entries: Sequence[TunerEntry], trial_problem: Problem, gpu: KnownGpu | None
) -> list[str]:
    """The methods' own explanations of their fastest candidates, where they have one."""
    # Fastest usable candidate of each method that was timed.
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
    """The candidates that share one note, named together."""
    labels = [entry.candidate.label for entry in entries if entry.note == note]
    return (
        labels[0]
        if len(labels) == 1
        else f"{entries[0].candidate.method.name} ({len(labels)} candidates)"
    )


def refusals(refused: Mapping[str, str]) -> list[str]:
    """A sentence for each refused method or candidate."""
    return [f"Not {name}: {sentence}." for name, sentence in refused.items()]


def smaller_team(threads: int, most: int) -> list[str]:
    """A sentence about the number of threads, if it is smaller than it could be."""
    if threads == most:
        return []
    return [f"{count_threads(threads)} of {most}: the grid is so small that fewer are faster."]
