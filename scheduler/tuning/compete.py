"""Competition between candidates: each is timed briefly on a trial problem, and the best are timed
again in turns.

The speed of a shared machine drifts by more than the candidates differ, so the decision rests on
timings that lie close together: one of each finalist per round. Tuning takes no longer than its
budget, and no longer than the run itself.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.tuning.candidates import describe_failure
from tetris_sim.scheduler.tuning.choice import Candidate, TunerEntry
from tetris_sim.scheduler.tuning.measure import Trial

log = logging.getLogger("tetris_sim")

SMALLEST_TRIAL = 1 << 20  # bytes of state; a candidate without memory for that is dropped
MUCH_LONGER = 10  # times the wait: a run of that length is hardly delayed
# Durations and numbers of the timings, and the thresholds between candidates.
_FIRST_SECONDS, _ROUND_SECONDS = 0.03, 0.08  # of a timing; threads start in 0.1 ms
_ROUNDS, _ROUNDS_ALONE = 5, 2
_FINALISTS = 4
_FOR_FINALISTS = 0.4  # of the budget
_DRIFT = 2.0  # memory bandwidth of a shared machine varies by a factor of 1.7
_OTHERS_TAKE = 4  # times the compile time of the first candidate, which is the quickest
_SILENCE = 3.0  # seconds before the user gets a message about the wait
# A candidate must be this much better than one that its method thinks better.
_WORTH_CHANGING = 1.02


@dataclass(frozen=True)
class TuningLimits:
    """Limits on the time and memory of a competition.

    Attributes:
        deadline: value of `time.perf_counter()` after which no trial is started.
        budget: length of the time that ends at the deadline, for messages [s].
        run_updates: point updates of the whole run, which trials must not outlast; None if only
            lack of time may exclude a candidate.
        memory: bytes that all open trials together may take.
        patient: whether a run much longer than the budget waits until every method has had a turn.
        beside: combined rate of the other devices in the same run [points/s].
        seen: filled with the entries of the latest competition, for a caller whom a signal stops.
    """

    deadline: float
    budget: float
    run_updates: float | None
    memory: int
    patient: bool = False
    beside: float = 0.0
    seen: list[TunerEntry] = field(default_factory=list, compare=False)

    def run_seconds(self, rate: float) -> float | None:
        """Time of the whole run at this rate [s]; None if it does not limit the trials."""
        return None if self.run_updates is None else self.run_updates / (rate + self.beside)


def compete(
    problem: Problem,
    candidates: Sequence[Candidate],
    *,
    place: ComputeResource,
    limits: TuningLimits,
) -> list[TunerEntry]:
    """Time the candidates: at least one, and the others as far as the limits allow.

    Among equal guesses, those that compile quickly come first: their rates show how long the run
    takes, and whether it is worth compiling the others.

    Args:
        problem: the trial problem.
        candidates: candidates to time.
        place: device to time them on.
        limits: limits on time and memory.

    Returns:
        An entry for each, in the order of `candidates`.

    Raises:
        MemoryError: there is not enough for this problem, and a smaller one may do.
    """
    entries = [TunerEntry(candidate) for candidate in candidates]
    limits.seen[:] = entries
    with (
        _saying_what_takes_long(place),
        place.opened() as device,
        contextlib.closing(_Competition(problem, entries, device, limits)) as competition,
    ):
        competition.try_all()
        competition.time_finalists()
    return entries


def ranked(entries: Sequence[TunerEntry]) -> list[TunerEntry]:
    """The timed entries that may be used, in the order in which to use them."""
    left = [entry for entry in entries if entry.first is not None and not entry.note]
    order: list[TunerEntry] = []
    while left:
        # One short timing proves little: an entry that lost by it is used only if no finalist is
        # usable.
        equal = [entry for entry in left if not entry.lost] or left
        best = equal[0]
        # In the order of preference: a later entry must be faster by `_WORTH_CHANGING`, so that
        # noise does not overrule the method's own guess.
        for entry in equal:
            best = entry if entry.rate > best.rate * _WORTH_CHANGING else best

        order.append(best)
        left.remove(best)
    return order


class _Competition:
    """The open trials, and what their timings imply for the candidates not yet tried."""

    def __init__(
        self, problem: Problem, entries: Sequence[TunerEntry], device: Any, limits: TuningLimits
    ) -> None:
        self._problem, self._entries, self._device, self._limits = problem, entries, device, limits
        self._trials: dict[TunerEntry, Trial] = {}

    def try_all(self) -> None:
        """Time each candidate once, unless the limits or earlier timings exclude it."""
        # Best guesses of all methods first, quick compilers first among them.
        for entry in sorted(
            self._entries, key=lambda entry: (entry.candidate.guess, not entry.candidate.quick)
        ):
            entry.late = self._too_late(entry)
            entry.note = self._why_not(entry)
            if not entry.note:
                self._make_room(entry)
                self._open(entry)

    def time_finalists(self) -> None:
        """Time each finalist once per round, for as many rounds as there is time; at least one
        round.
        """
        finalists = self._choose_finalists()
        for _ in range(_ROUNDS if len(finalists) > 1 else _ROUNDS_ALONE):
            trials = [self._trials[entry] for entry in finalists if entry in self._trials]
            # A round is started only if it can end before the deadline. Interleaving the finalists
            # exposes all of them to the same drift of the machine.
            seconds = sum(trial.duration(_ROUND_SECONDS) for trial in trials)
            timed = any(entry.speeds for entry in finalists)
            if timed and time.perf_counter() + seconds > self._limits.deadline:
                break

            for entry in finalists:
                self._time_again(entry)

    def close(self) -> None:
        """Free the memory of all trials."""
        for entry in list(self._trials):
            self._close(entry)

    def _timed(self) -> list[TunerEntry]:
        return [entry for entry in self._entries if entry.first is not None]

    def _why_not(self, entry: TunerEntry) -> str:
        """Why the candidate is not tried now; empty if it is."""
        if entry.late:
            return f"not tried: the budget of {self._limits.budget:g} s is used up"
        timed = self._timed()
        if not timed:
            return ""  # one candidate at least, however long it takes

        fastest = max(other.rate for other in timed)
        run_seconds = self._limits.run_seconds(fastest)
        if run_seconds is None:
            return ""

        # A method whose best guess is far behind is not saved by other tile sizes.
        rates = [other.rate for other in timed if other.candidate.method is entry.candidate.method]
        if rates and max(rates) * _DRIFT < fastest:
            return "not tried: the method is less than half as fast as another"
        # A method that was never opened is assumed to compile `_OTHERS_TAKE` times as long as the
        # first candidate.
        expected = _expected_opening(entry, timed) or _OTHERS_TAKE * timed[0].opening
        entry.outlasts = expected > run_seconds
        if entry.outlasts:
            return f"not tried: the whole run takes about {run_seconds:.2g} s"
        return ""

    def _too_late(self, entry: TunerEntry) -> bool:
        timed = self._timed()
        if not timed:
            return False
        # Two fifths of the budget are reserved for the finalists. Only the best guess of a method,
        # which may be all that is tried of it, may use them.
        spared = self._limits.budget * _FOR_FINALISTS if entry.candidate.guess > 0 else 0.0
        ready = time.perf_counter() + _expected_opening(entry, timed)
        return ready > self._limits.deadline - spared and not self._worth_waiting_for(entry)

    def _worth_waiting_for(self, entry: TunerEntry) -> bool:
        """Whether the method had no turn yet and the run is long enough to make compiling
        negligible.
        """
        tried = [other for other in self._entries if other.tried]
        run_seconds = self._limits.run_seconds(max(other.rate for other in tried))
        if run_seconds is None or not self._limits.patient:
            return False
        if any(other.candidate.method is entry.candidate.method for other in tried):
            return False
        # Longest wait so far: the budget, or an opening that exceeded it.
        longest = max(self._limits.budget, *(other.opening for other in tried))
        return run_seconds > MUCH_LONGER * longest

    def _make_room(self, entry: TunerEntry) -> None:
        """Close the slowest trials until this one fits into memory together with the rest."""

        def needed(candidate: Candidate) -> int:
            whole = Slab.whole(self._problem.grid)
            return candidate.method.memory(self._problem, whole, candidate.parameters)

        # Entries are closed from the slow end, so the likely finalists stay open.
        opened = sorted(self._trials, key=lambda other: other.rate)
        own = needed(entry.candidate)
        while opened and sum(needed(e.candidate) for e in opened) + own > self._limits.memory:
            self._close(opened.pop(0))

    def _open(self, entry: TunerEntry) -> None:
        begin = time.perf_counter()
        entry.tried = True
        candidate = entry.candidate

        # The trial is registered before it is timed, so that an error in the timing still closes
        # it.
        try:
            trial = Trial(self._problem, candidate.method, candidate.parameters, self._device)
            self._trials[entry] = trial
            entry.opening = time.perf_counter() - begin
            entry.first = trial.time(_FIRST_SECONDS)
            entry.reopening = trial.reopening()
        except MemoryError as error:
            if self._problem.state_bytes > SMALLEST_TRIAL:
                # The caller repeats the competition on a smaller trial problem.
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
        # Without timings the entry is neither ranked nor a finalist.
        entry.first, entry.speeds = None, []
        self._close(entry)

    def _choose_finalists(self) -> list[TunerEntry]:
        """The fastest few open trials; the others are closed."""
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
    """Expected time to open a trial [s], from trials of the same method; 0 if there are none."""
    same = [other for other in timed if other.candidate.method is entry.candidate.method]
    # Equal compile-time constants mean that the kernel is compiled already, and only loading
    # counts.
    compiled = [other.reopening for other in same if other.candidate.code == entry.candidate.code]
    return compiled[-1] if compiled else max((other.opening for other in same), default=0.0)


@contextlib.contextmanager
def _saying_what_takes_long(place: ComputeResource) -> Iterator[None]:
    """Log one line if the competition takes more than `_SILENCE` seconds: many kernels may have to
    be compiled for the first time.
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
