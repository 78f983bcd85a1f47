"""What the tuner says: the table of what it tried, and the sentences that say why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tetris_sim.model.method import KnownGpu, Method
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.tuning.choice import Entry, Row, giga
from tetris_sim.support.wording import count_threads


def make_rows(
    entries: Sequence[Entry], chosen: Entry, refused: Mapping[str, str]
) -> tuple[Row, ...]:
    """The table: a line for each candidate, and for all that was out of the question."""
    return (
        *(_row(entry, chosen) for entry in entries),
        *(Row(name, {}, None, "", why) for name, why in refused.items()),
    )


def _row(entry: Entry, chosen: Entry) -> Row:
    rates = [
        speed.points_per_second
        for speed in (*entry.speeds, entry.first)[: len(entry.speeds) or 1]
        if speed
    ]
    note = "chosen" if entry is chosen else entry.note
    spread = (entry.rate, min(rates), max(rates)) if rates else None
    return Row(
        entry.candidate.method.name, dict(entry.candidate.parameters), spread, entry.check, note
    )


def describe_competition(
    entries: Sequence[Entry], chosen: Entry, trial_problem: Problem, seconds: float
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


def _describe_method(entries: Sequence[Entry], *, is_chosen: bool) -> list[str]:
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
    entries: Sequence[Entry], trial_problem: Problem, gpu: KnownGpu | None
) -> list[str]:
    """What the methods that were timed say of their fastest candidates."""
    fastest: dict[Method, Entry] = {}
    for entry in entries:
        if entry.rate and not entry.note:
            method = entry.candidate.method
            fastest[method] = max(fastest.get(method, entry), entry, key=lambda e: e.rate)

    sentences = [
        method.explain(trial_problem, entry.candidate.parameters, entry.rate, gpu)
        for method, entry in fastest.items()
    ]
    return [sentence for sentence in sentences if sentence is not None]


def _those(entries: Sequence[Entry], note: str) -> str:
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
