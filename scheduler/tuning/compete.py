"""Which candidate is the fastest? All are timed briefly on a piece of the problem, the best of them
again, in turn.

The speed of a shared machine drifts by more than the candidates differ, so what decides are timings
that lie close together: one of each finalist per round. Not more time is spent than was given, and
not more than the whole run takes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tetris_sim.problem import Problem
from tetris_sim.scheduler.machine.place import Place
from tetris_sim.scheduler.tuning.candidates import Candidate, describe_failure
from tetris_sim.scheduler.tuning.measure import Speed, Trial, middle
from tetris_sim.slab import Slab

log = logging.getLogger("tetris_sim")

NO_TIME = "not tried: the budget"  # begins the note of what was left out for lack of time
SMALLEST_PIECE = 1 << 20  # bytes of state; what finds no memory for this one is out
_FIRST_SECONDS, _ROUND_SECONDS = 0.03, 0.08  # one timing: long beside 0.1 ms of starting threads
_ROUNDS, _ROUNDS_ALONE = 5, 2
_FINALISTS = 4
_FOR_FINALISTS = 0.4  # of the budget
_DRIFT = 2.0  # memory bandwidth of a shared machine comes in states a factor of 1.7 apart
_OTHERS_TAKE = 4  # times as long to compile as the first that is tried, which is the quickest
MUCH_LONGER = 10  # times what is waited for: a run of that length does not mind
_SILENCE = 3.0  # seconds after which people are told what they wait for
_WORTH_CHANGING = (
    1.02  # a candidate must be this much better than one that its method thinks better
)


@dataclass(eq=False)
class Entry:
    """A candidate in the competition, and what was seen of it.

    Attributes:
        candidate: what is tried.
        opening: seconds it took to compile, to load the piece and to make the first block.
        reopening: seconds it would take once more, with the code compiled.
        first: its timing right after that; None if it was not tried.
        speeds: its timings as a finalist.
        tried: whether it was, with or without success.
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
    lost: bool = False
    note: str = ""
    check: str = ""
    trial: Trial | None = field(default=None, repr=False)

    @property
    def speed(self) -> Speed | None:
        """Median of its timings; None if it was not tried."""
        return middle(self.speeds) if self.speeds else self.first

    @property
    def rate(self) -> float:
        """Points per second, 0 if it was not tried."""
        return self.speed.points_per_second if self.speed is not None else 0.0


@dataclass(frozen=True)
class Limits:
    """What a competition may take.

    Attributes:
        deadline: `time.perf_counter()` after which nothing more is started.
        budget: the seconds that end there, for messages.
        run_updates: point updates of the whole run, which is not worth longer trials than itself;
            None to leave out nothing but for lack of time.
        memory: bytes that all trials together may take.
        patient: whether a run that is much longer than that waits until every method has had a
            turn.
        beside: points per second that other devices make of the same run.
    """

    deadline: float
    budget: float
    run_updates: float | None
    memory: int
    patient: bool = False
    beside: float = 0.0

    def run_seconds(self, rate: float) -> float | None:
        """What the whole run takes at this rate, for all that is known; None if that must not
        count.
        """
        return None if self.run_updates is None else self.run_updates / (rate + self.beside)


def compete(
    piece: Problem, candidates: Sequence[Candidate], *, place: Place, limits: Limits
) -> list[Entry]:
    """Time the candidates on `piece`, one of them in any case, the others as far as the limits
    allow.

    What compiles quickly is tried first: it tells how long the run is, and whether it is worth
    compiling the others.

    Returns:
        An entry for each, in the order of `candidates`.

    Raises:
        MemoryError: there is not enough for this piece, and a smaller one may do.
    """
    with _saying_what_takes_long(place):
        return _compete(piece, [Entry(candidate) for candidate in candidates], place, limits)


def _compete(piece: Problem, entries: list[Entry], place: Place, limits: Limits) -> list[Entry]:
    device = place.open()
    try:
        for entry in sorted(
            entries, key=lambda each: (each.candidate.guess, not each.candidate.quick)
        ):
            entry.note = _why_not_now(entry, entries, limits)
            if not entry.note:
                _make_room(entry, entries, piece, limits.memory)
                _open(entry, piece, device)
        finalists = _choose_finalists(entries)
        for _ in range(_ROUNDS if len(finalists) > 1 else _ROUNDS_ALONE):
            round_seconds = sum(
                e.trial.duration(_ROUND_SECONDS) for e in finalists if e.trial is not None
            )
            if (
                any(e.speeds for e in finalists)
                and time.perf_counter() + round_seconds > limits.deadline
            ):
                break
            for entry in finalists:
                _time_again(entry)
    finally:
        for entry in entries:
            _close(entry)
        device.close()
    return entries


@contextlib.contextmanager
def _saying_what_takes_long(place: Place) -> Iterator[None]:
    """A line after some seconds: compiling can take as many as there are kernels that were never
    needed before.
    """
    said = (
        "Finding the fastest method for the %s: kernels are compiled, which is not needed again, "
        "and timed ..."
    )
    timer = threading.Timer(_SILENCE, log.info, (said, place.device.upper()))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def ranked(entries: Sequence[Entry]) -> list[Entry]:
    """The entries that were timed and that nothing speaks against, the one to use first."""
    left = [entry for entry in entries if entry.first is not None and not entry.note]
    order: list[Entry] = []
    while left:
        # A single timing says little: what lost by it is used only if none of the finalists can be.
        equal = [entry for entry in left if not entry.lost] or left
        best = equal[0]
        for entry in equal:
            best = entry if entry.rate > best.rate * _WORTH_CHANGING else best
        order.append(best)
        left.remove(best)
    return order


def _why_not_now(entry: Entry, entries: Sequence[Entry], limits: Limits) -> str:
    opened = [other for other in entries if other.first is not None]
    if not opened:
        return ""  # one candidate at least, however long it takes
    # Part of the time is for the finalists; only a method that was not tried at all may use that
    # too.
    spared = limits.budget * _FOR_FINALISTS if entry.candidate.guess > 0 else 0.0
    late = time.perf_counter() + _expected_opening(entry, opened) > limits.deadline - spared
    if late and not _worth_waiting_for(entry, entries, limits):
        return f"{NO_TIME} of {limits.budget:g} s is used up"
    best = max(other.rate for other in opened)
    run_seconds = limits.run_seconds(best)
    if run_seconds is None:
        return ""
    rates = [other.rate for other in opened if other.candidate.method is entry.candidate.method]
    if rates and max(rates) * _DRIFT < best:
        return "not tried: the method is less than half as fast as another"
    if (_expected_opening(entry, opened) or _OTHERS_TAKE * opened[0].opening) > run_seconds:
        return f"not tried: the whole run takes about {run_seconds:.2g} s"
    return ""


def _worth_waiting_for(entry: Entry, entries: Sequence[Entry], limits: Limits) -> bool:
    """Whether its method has had no turn yet, and the run is so long that compiling one more hardly
    counts.
    """
    tried = [other for other in entries if other.tried]
    run_seconds = limits.run_seconds(max(other.rate for other in tried))
    if run_seconds is None or not limits.patient:
        return False
    if any(other.candidate.method is entry.candidate.method for other in tried):
        return False
    return run_seconds > MUCH_LONGER * max(limits.budget, *(other.opening for other in tried))


def _expected_opening(entry: Entry, opened: Sequence[Entry]) -> float:
    """Seconds that a trial will take to open, as far as those of the same method tell; 0 if there
    are none.
    """
    same = [other for other in opened if other.candidate.method is entry.candidate.method]
    compiled = [other.reopening for other in same if other.candidate.code == entry.candidate.code]
    return compiled[-1] if compiled else max((other.opening for other in same), default=0.0)


def _make_room(entry: Entry, entries: Sequence[Entry], piece: Problem, memory: int) -> None:
    """Close the slowest trials until this one fits beside the others."""

    def needed(each: Entry) -> int:
        return each.candidate.method.memory(
            piece, Slab.whole(piece.grid), each.candidate.parameters
        )

    opened = sorted(
        (other for other in entries if other.trial is not None), key=lambda other: other.rate
    )
    while opened and sum(map(needed, opened)) + needed(entry) > memory:
        _close(opened.pop(0))


def _open(entry: Entry, piece: Problem, device: Any) -> None:
    begin = time.perf_counter()
    entry.tried = True
    try:
        entry.trial = Trial(piece, entry.candidate.method, entry.candidate.parameters, device)
        entry.opening = time.perf_counter() - begin
        entry.first = entry.trial.time(_FIRST_SECONDS)
        entry.reopening = entry.trial.reopening()
    except MemoryError as error:
        if piece.state_bytes > SMALLEST_PIECE:
            raise
        _drop(entry, error)
    except Exception as error:  # noqa: BLE001  a candidate that fails must not stop a run that another can do
        _drop(entry, error)


def _time_again(entry: Entry) -> None:
    try:
        if entry.trial is not None:
            entry.speeds.append(entry.trial.time(_ROUND_SECONDS))
    except Exception as error:  # noqa: BLE001  as above
        _drop(entry, error)


def _drop(entry: Entry, error: Exception) -> None:
    log.debug("%s failed", entry.candidate.label, exc_info=True)
    entry.note = describe_failure(error)
    entry.first, entry.speeds = None, []
    _close(entry)


def _choose_finalists(entries: Sequence[Entry]) -> list[Entry]:
    """The fastest few that are still open; those that lost against them are closed."""
    order = sorted(
        (entry for entry in entries if entry.first is not None), key=lambda e: e.rate, reverse=True
    )
    for place, entry in enumerate(order):
        entry.lost = place >= _FINALISTS or entry.rate * _DRIFT < order[0].rate
        if entry.lost:
            _close(entry)
    return [entry for entry in entries if entry.trial is not None]


def _close(entry: Entry) -> None:
    trial, entry.trial = entry.trial, None
    if trial is not None:
        trial.close()
