"""Which candidate is the fastest? All are timed briefly on a trial problem, the best in turn again.

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
from dataclasses import dataclass
from typing import Any

from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.tuning.candidates import describe_failure
from tetris_sim.scheduler.tuning.choice import Candidate, TunerEntry
from tetris_sim.scheduler.tuning.measure import Trial

log = logging.getLogger("tetris_sim")

SMALLEST_TRIAL = 1 << 20  # bytes of state; what finds no memory for this much is out
MUCH_LONGER = 10  # times what is waited for: a run of that length does not mind
_FIRST_SECONDS, _ROUND_SECONDS = 0.03, 0.08  # one timing: long beside 0.1 ms of starting threads
_ROUNDS, _ROUNDS_ALONE = 5, 2
_FINALISTS = 4
_FOR_FINALISTS = 0.4  # of the budget
_DRIFT = 2.0  # memory bandwidth of a shared machine comes in states a factor of 1.7 apart
_OTHERS_TAKE = 4  # times as long to compile as the first that is tried, which is the quickest
_SILENCE = 3.0  # seconds after which people are told what they wait for
# A candidate must be this much better than one that its method thinks better.
_WORTH_CHANGING = 1.02


@dataclass(frozen=True)
class TuningLimits:
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
        """What the whole run takes at this rate [s]; None if that must not count."""
        return None if self.run_updates is None else self.run_updates / (rate + self.beside)


def compete(
    problem: Problem,
    candidates: Sequence[Candidate],
    *,
    place: ComputeResource,
    limits: TuningLimits,
) -> list[TunerEntry]:
    """Time the candidates, one of them in any case, the others as far as the limits allow.

    What compiles quickly is tried first: it tells how long the run is, and whether it is worth
    compiling the others.

    Args:
        problem: the trial problem.
        candidates: what may be tried.
        place: device that they are tried on.
        limits: what that may take.

    Returns:
        An entry for each, in the order of `candidates`.

    Raises:
        MemoryError: there is not enough for this problem, and a smaller one may do.
    """
    entries = [TunerEntry(candidate) for candidate in candidates]
    with (
        _saying_what_takes_long(place),
        place.opened() as device,
        contextlib.closing(_Competition(problem, entries, device, limits)) as competition,
    ):
        competition.try_all()
        competition.time_finalists()
    return entries


def ranked(entries: Sequence[TunerEntry]) -> list[TunerEntry]:
    """The entries that were timed and that nothing speaks against, the one to use first."""
    left = [entry for entry in entries if entry.first is not None and not entry.note]
    order: list[TunerEntry] = []
    while left:
        # A single timing says little: what lost by it is used only if none of the finalists can be.
        equal = [entry for entry in left if not entry.lost] or left
        best = equal[0]
        for entry in equal:
            best = entry if entry.rate > best.rate * _WORTH_CHANGING else best

        order.append(best)
        left.remove(best)
    return order


class _Competition:
    """The trials that are open, and what their entries tell of those that are not."""

    def __init__(
        self, problem: Problem, entries: Sequence[TunerEntry], device: Any, limits: TuningLimits
    ) -> None:
        self._problem, self._entries, self._device, self._limits = problem, entries, device, limits
        self._trials: dict[TunerEntry, Trial] = {}

    def try_all(self) -> None:
        """Time each candidate once, unless something speaks against it."""
        for entry in sorted(
            self._entries, key=lambda entry: (entry.candidate.guess, not entry.candidate.quick)
        ):
            entry.late = self._too_late(entry)
            entry.note = self._why_not(entry)
            if not entry.note:
                self._make_room(entry)
                self._open(entry)

    def time_finalists(self) -> None:
        """Rounds in which each finalist is timed, as many as there is time for; one in any case."""
        finalists = self._choose_finalists()
        for _ in range(_ROUNDS if len(finalists) > 1 else _ROUNDS_ALONE):
            trials = [self._trials[entry] for entry in finalists if entry in self._trials]
            seconds = sum(trial.duration(_ROUND_SECONDS) for trial in trials)
            timed = any(entry.speeds for entry in finalists)
            if timed and time.perf_counter() + seconds > self._limits.deadline:
                break

            for entry in finalists:
                self._time_again(entry)

    def close(self) -> None:
        """Give the memory of all trials back."""
        for entry in list(self._trials):
            self._close(entry)

    def _timed(self) -> list[TunerEntry]:
        return [entry for entry in self._entries if entry.first is not None]

    def _why_not(self, entry: TunerEntry) -> str:
        """Why it is not tried now; empty if it is."""
        if entry.late:
            return f"not tried: the budget of {self._limits.budget:g} s is used up"
        timed = self._timed()
        if not timed:
            return ""  # one candidate at least, however long it takes

        fastest = max(other.rate for other in timed)
        run_seconds = self._limits.run_seconds(fastest)
        if run_seconds is None:
            return ""
        rates = [other.rate for other in timed if other.candidate.method is entry.candidate.method]
        if rates and max(rates) * _DRIFT < fastest:
            return "not tried: the method is less than half as fast as another"
        if (_expected_opening(entry, timed) or _OTHERS_TAKE * timed[0].opening) > run_seconds:
            return f"not tried: the whole run takes about {run_seconds:.2g} s"
        return ""

    def _too_late(self, entry: TunerEntry) -> bool:
        timed = self._timed()
        if not timed:
            return False
        # Part of the time is for the finalists; only a method that was not tried at all may use
        # that too.
        spared = self._limits.budget * _FOR_FINALISTS if entry.candidate.guess > 0 else 0.0
        ready = time.perf_counter() + _expected_opening(entry, timed)
        return ready > self._limits.deadline - spared and not self._worth_waiting_for(entry)

    def _worth_waiting_for(self, entry: TunerEntry) -> bool:
        """Whether its method had no turn yet, and compiling hardly counts beside so long a run."""
        tried = [other for other in self._entries if other.tried]
        run_seconds = self._limits.run_seconds(max(other.rate for other in tried))
        if run_seconds is None or not self._limits.patient:
            return False
        if any(other.candidate.method is entry.candidate.method for other in tried):
            return False
        longest = max(self._limits.budget, *(other.opening for other in tried))
        return run_seconds > MUCH_LONGER * longest

    def _make_room(self, entry: TunerEntry) -> None:
        """Close the slowest trials until this one fits beside the others."""

        def needed(candidate: Candidate) -> int:
            whole = Slab.whole(self._problem.grid)
            return candidate.method.memory(self._problem, whole, candidate.parameters)

        opened = sorted(self._trials, key=lambda other: other.rate)
        own = needed(entry.candidate)
        while opened and sum(needed(e.candidate) for e in opened) + own > self._limits.memory:
            self._close(opened.pop(0))

    def _open(self, entry: TunerEntry) -> None:
        begin = time.perf_counter()
        entry.tried = True
        candidate = entry.candidate

        try:
            trial = Trial(self._problem, candidate.method, candidate.parameters, self._device)
            self._trials[entry] = trial
            entry.opening = time.perf_counter() - begin
            entry.first = trial.time(_FIRST_SECONDS)
            entry.reopening = trial.reopening()
        except MemoryError as error:
            if self._problem.state_bytes > SMALLEST_TRIAL:
                raise
            self._drop(entry, error)
        except Exception as error:  # noqa: BLE001  a candidate that fails must not stop a run that another can do
            self._drop(entry, error)

    def _time_again(self, entry: TunerEntry) -> None:
        try:
            if entry in self._trials:
                entry.speeds.append(self._trials[entry].time(_ROUND_SECONDS))
        except Exception as error:  # noqa: BLE001  as above
            self._drop(entry, error)

    def _drop(self, entry: TunerEntry, error: Exception) -> None:
        log.debug("%s failed", entry.candidate.label, exc_info=True)
        entry.note = describe_failure(error)
        entry.first, entry.speeds = None, []
        self._close(entry)

    def _choose_finalists(self) -> list[TunerEntry]:
        """The fastest few that are still open; those that lost against them are closed."""
        order = sorted(self._timed(), key=lambda entry: entry.rate, reverse=True)
        for rank, entry in enumerate(order):
            entry.lost = rank >= _FINALISTS or entry.rate * _DRIFT < order[0].rate
            if entry.lost:
                self._close(entry)
        return [entry for entry in self._entries if entry in self._trials]

    def _close(self, entry: TunerEntry) -> None:
        trial = self._trials.pop(entry, None)
        if trial is not None:
            trial.close()


def _expected_opening(entry: TunerEntry, timed: Sequence[TunerEntry]) -> float:
    """Time to open a trial [s], as far as those of the same method tell; 0 if there are none."""
    same = [other for other in timed if other.candidate.method is entry.candidate.method]
    compiled = [other.reopening for other in same if other.candidate.code == entry.candidate.code]
    return compiled[-1] if compiled else max((other.opening for other in same), default=0.0)


@contextlib.contextmanager
def _saying_what_takes_long(place: ComputeResource) -> Iterator[None]:
    """A line after some seconds: compiling takes long if many kernels were never needed before."""
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
