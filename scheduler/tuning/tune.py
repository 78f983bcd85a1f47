"""Autotuning of one problem on one device: recall the choice of an earlier run, or measure now;
compare with the reference in any case (docs/decisions/0008).
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tetris_sim.errors import StopRequested
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.machine.machine import Gpu, Machine
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.tuning import tuned
from tetris_sim.scheduler.tuning.candidates import (
    RESERVE,
    TuningRequest,
    describe_failure,
    find_candidates,
    nothing_left,
)
from tetris_sim.scheduler.tuning.choice import (
    Candidate,
    Choice,
    Speed,
    TunerEntry,
    as_plain,
    describe_competition,
    explanations,
    giga,
    make_rows,
    refusals,
    smaller_team,
)
from tetris_sim.scheduler.tuning.compete import MUCH_LONGER, TuningLimits, compete, ranked
from tetris_sim.scheduler.tuning.measure import (
    check_method,
    kept,
    make_timed_problem,
    measure_speed,
    steps_per_block,
    trial_bytes,
)
from tetris_sim.scheduler.tuning.tuned import find_known, pairs_first

log = logging.getLogger("tetris_sim")

# Thresholds below which a smaller team of threads is tried.
_POINTS_PER_THREAD = 1 << 16  # above this, a barrier costs less than a tenth of a step
_FEWER_ARE_FASTER = 1.05  # a smaller team must be this much better to count
_FEWER_SECONDS = 0.05
# Fraction of the points in the check of a remembered choice, which was checked in full when it was
# made.
_RECALL_EFFORT = 0.1
_CLEARLY_LONGER = 2.0  # times a run
_NO_LONGER = 1.01  # of the time of a run: another of its length is no longer
# Behaviour for short runs, and where measuring is not allowed.
_SHORT_RUN = 0.5  # seconds; shorter runs gain nothing by a faster choice
_GUESSED_RATE = 2e9  # products per second and thread, where nothing may be measured
_GUESSED_LATENCY = 2e-5  # seconds
# Least cache size [bytes] assumed for a GPU; the trial problem has twice as many bytes. On a
# quarter of that, a 3D star ran at 230 GStencil/s instead of 560 on 1024^3 (one H200): in a thin
# slab, thread blocks load about as many planes ahead of their chunk as the chunk has.
GPU_CACHE = 512 << 20


@dataclass(frozen=True)
class Terms:
    """Constraints of one tuning: what was requested, on which device, within which time.

    Attributes:
        asked: method and parameters that the configuration requests.
        threads: CPU threads of one worker.
        budget: time that tuning may take, compilation included [s]; 0 to measure nothing.
        fixed_threads: whether the number of threads must not be reduced, even if fewer are faster.
        patient: whether a run much longer than the budget waits until every method has had a turn.
        beside: combined rate of the devices tuned before, which share the same run [points/s].
        use_cache: whether earlier choices are read and this one is stored.
        anew: whether to ignore earlier choices and measure as if the run were long.
        gpu: GPU to tune for; None for CPU threads.
    """

    asked: TuningRequest
    threads: int
    budget: float
    fixed_threads: bool = False
    patient: bool = False
    beside: float = 0.0
    use_cache: bool = True
    anew: bool = False
    gpu: Gpu | None = None

    @property
    def place(self) -> ComputeResource:
        """The device on which candidates are timed."""
        return self.place_with(self.threads)

    def place_with(self, threads: int) -> ComputeResource:
        """The device with another number of CPU threads."""
        return (
            ComputeResource(threads)
            if self.gpu is None
            else ComputeResource(1, "gpu", self.gpu.number)
        )

    def memory(self, machine: Machine) -> int:
        """Available memory of the device [bytes]."""
        return machine.memory if self.gpu is None else self.gpu.memory


def tune(problem: Problem, machine: Machine, terms: Terms) -> Choice:
    """Find the fastest method that accepts the problem, with its fastest parameters, and compare it
    with the reference.

    Args:
        problem: problem to advance.
        machine: hardware to advance it on.
        terms: request, device and time limit.

    Raises:
        ConfigError: a method or parameters were asked for that do not exist or do not work.
        UnsupportedError: no method can do it.
    """
    begin = time.perf_counter()
    memory, known = terms.memory(machine) - RESERVE, find_known(problem, terms.gpu)
    candidates, refused = find_candidates(problem, terms.asked, memory, terms.place, known)
    if not candidates:
        raise nothing_left(terms.asked, refused)
    # The order matters from here on: candidates are tried first to last, and without a budget the
    # first correct one is taken.
    candidates = pairs_first(candidates, problem, terms.gpu)
    if terms.budget == 0:
        return _first_guess(problem, candidates, refused, terms)

    # Measured choices are filed under everything that could change which candidate wins.
    key = tuned.tuning_key(
        problem,
        machine,
        threads=terms.threads,
        fixed_threads=terms.fixed_threads,
        candidates=_names(candidates, terms.asked),
        gpu=terms.gpu,
    )
    if terms.use_cache and not terms.anew:
        choice = _remembered(problem, key, candidates, begin, terms)
        if choice is not None:
            return choice
    return _measured(problem, machine, terms, candidates, refused, key if terms.use_cache else None)


def _names(candidates: Sequence[Candidate], asked: TuningRequest) -> list[str]:
    if asked.parameters:
        return sorted({candidate.label for candidate in candidates})
    return sorted({candidate.method.name for candidate in candidates})


def _first_guess(
    problem: Problem, candidates: Sequence[Candidate], refused: dict[str, str], terms: Terms
) -> Choice:
    """The first candidate with a correct result, without any timing."""
    # At least a quarter of `_POINTS_PER_THREAD` for each thread, since no timing will show whether
    # fewer threads are faster.
    threads = terms.threads
    if not terms.fixed_threads:
        points = problem.grid.n_points * problem.n_fields
        threads = max(1, min(threads, points // (_POINTS_PER_THREAD // 4)))

    for candidate in candidates:
        wrong = _check(problem, candidate, terms.place_with(threads))
        if wrong is not None:
            refused[candidate.label] = wrong
            continue

        rate, why = _guessed(problem, candidate, threads)
        chosen = (
            f"{candidate.label}: {why}, checked. Nothing was measured, since "
            "compute.tuning_budget is 0: the times are guesses."
        )
        speed, reasons = Speed(rate, _GUESSED_LATENCY), (*refusals(refused), chosen)
        return Choice(candidate.method, candidate.parameters, threads, speed, reasons=reasons)
    raise nothing_left(terms.asked, refused)


def _guessed(problem: Problem, candidate: Candidate, threads: int) -> tuple[float, str]:
    """(assumed rate of a candidate that was not timed here [points/s], why it was taken)."""
    if (known := candidate.known) is not None:
        return known.rate, f"the fastest method on {known.gpu} ({known.date})"
    rate = threads * _GUESSED_RATE / problem.stencil.n_points
    return rate, "the best guess of the first method that can do it"


def _remembered(
    problem: Problem, key: tuned.Key, candidates: Sequence[Candidate], begin: float, terms: Terms
) -> Choice | None:
    """The choice of an earlier run, if it is still among the candidates and passes the check."""
    record = tuned.recall(key)
    if record is None:
        return None
    speed = Speed(record.points_per_second, record.latency)
    # An equal key does not guarantee equal proposals: shapes are rounded in the key, while methods
    # propose by the exact shape.
    same = (c for c in candidates if (c.method.name, c.parameters) == record.chosen)
    candidate = next(same, None)
    too_long = record.good_for is not None and _longer(problem, speed, terms, record.good_for)
    if candidate is None or too_long:
        return None

    effort = _RECALL_EFFORT if record.checked else 1.0
    wrong = _check(problem, candidate, terms.place_with(record.threads), effort=effort)
    if wrong is not None:
        log.warning(
            "%s was tuned on %s, but now %s: tuning anew.", candidate.label, record.date[:10], wrong
        )
        return None

    rate = speed.points_per_second
    tuned_so = "tuned" if record.checked else "the fastest until a signal ended the tuning"
    reason = f"{candidate.label}: {giga(rate)}, {tuned_so} on {record.date[:10]}, cached; checked."
    explanation = candidate.method.explain(problem, candidate.parameters, rate, terms.gpu)
    return Choice(
        candidate.method,
        candidate.parameters,
        record.threads,
        speed,
        reasons=(
            reason,
            *(() if explanation is None else (explanation,)),
            *smaller_team(record.threads, int(key["threads"])),
        ),
        seconds=time.perf_counter() - begin,
        date=record.date,
    )


def _measured(
    problem: Problem,
    machine: Machine,
    terms: Terms,
    candidates: Sequence[Candidate],
    refused: dict[str, str],
    key: tuned.Key | None,
) -> Choice:
    """The fastest candidate with a correct result, timed now, and stored if there is a key."""
    begin = time.perf_counter()
    limits = TuningLimits(
        deadline=begin + terms.budget,
        budget=terms.budget,
        run_updates=None if terms.anew else _updates(problem),
        memory=terms.memory(machine) // 2,
        patient=terms.patient,
        beside=terms.beside,
    )
    try:
        entries, chosen, trial_problem = _find_right(problem, machine, terms, candidates, limits)
    except StopRequested:
        if key is not None:
            _keep_unfinished(problem, key, limits.seen, terms)
        raise
    if chosen is None or chosen.speed is None:
        raise nothing_left(
            terms.asked, refused | {entry.candidate.label: entry.note for entry in entries}
        )

    threads, speed = terms.threads, chosen.speed
    if not terms.fixed_threads and terms.gpu is None:
        threads, speed = _choose_team(trial_problem, chosen.candidate, threads, speed)

    seconds = time.perf_counter() - begin
    choice = Choice(
        chosen.candidate.method,
        chosen.candidate.parameters,
        threads,
        speed,
        reasons=(
            *refusals(refused),
            *describe_competition(entries, chosen, trial_problem, seconds),
            *explanations(entries, trial_problem, terms.gpu),
            *smaller_team(threads, terms.threads),
        ),
        rows=make_rows(entries, chosen, refused),
        seconds=seconds,
    )
    if key is None:
        return choice
    # Only the best guess of each method has to be tried: whether a method is competitive, not
    # whether its last tile size is.
    left = [entry for entry in entries if entry.candidate.guess == 0 and not entry.tried]
    return _kept(problem, key, choice, terms, left)


def _keep_unfinished(
    problem: Problem, key: tuned.Key, entries: Sequence[TunerEntry], terms: Terms
) -> None:
    """Store the fastest of what a signal left, for runs no longer than this one: if it is put back
    into the queue with the same limit, it must not begin with the same measurements again.
    """
    best = next(iter(ranked(entries)), None)
    if best is None or best.speed is None:
        return

    seconds = _updates(problem) / (best.speed.points_per_second + terms.beside)
    candidate = best.candidate
    record = tuned.Remembered(
        candidate.method.name,
        dict(candidate.parameters),
        terms.threads,
        best.speed.points_per_second,
        best.speed.latency,
        tuned.now(),
        good_for=_NO_LONGER * seconds,
        checked=False,
    )
    tuned.remember(key, record, [])


def _kept(
    problem: Problem, key: tuned.Key, choice: Choice, terms: Terms, left: Sequence[TunerEntry]
) -> Choice:
    """Store a choice for later runs, and return it with a sentence if it is not valid for runs of
    any length.

    Args:
        problem: problem to advance.
        key: key to store it under.
        choice: the measured choice.
        terms: constraints of the tuning.
        left: best guesses of methods that had no turn.
    """
    if not left:
        _remember(key, choice, good_for=None)
        return choice
    if not terms.anew and not _longer(problem, choice.speed, terms, _SHORT_RUN):
        _remember(key, choice, good_for=_SHORT_RUN)
        return choice

    # Methods that had no turn get one in a later run if it is long enough to gain by it. What this
    # run was too short for, one that is clearly longer may be long enough for.
    good_for = MUCH_LONGER * terms.budget
    if any(entry.outlasts for entry in left):
        seconds = _updates(problem) / (choice.speed.points_per_second + terms.beside)
        good_for = min(good_for, _CLEARLY_LONGER * seconds)
    _remember(key, choice, good_for=good_for)
    again = _longer(problem, choice.speed, terms, good_for)
    left_out = (
        f"Kept for later runs of up to {good_for:g} s, since not every method had its turn in time"
        f"{'; longer ones, such as this, measure again' if again else ''}."
    )
    return dataclasses.replace(choice, reasons=(*choice.reasons, left_out))


def _find_right(
    problem: Problem,
    machine: Machine,
    terms: Terms,
    candidates: Sequence[Candidate],
    limits: TuningLimits,
) -> tuple[list[TunerEntry], TunerEntry | None, Problem]:
    """(entries of all candidates, the fastest entry whose result is correct or None, the trial
    problem on which they were timed).
    """
    pending, done = list(candidates), list[TunerEntry]()
    while True:
        entries, trial_problem = _compete_where_it_fits(problem, machine, terms, pending, limits)
        # Correctness is checked in order of speed, so that normally one check suffices.
        for entry in ranked(entries):
            wrong = _check(problem, entry.candidate, terms.place)
            entry.check = "right" if wrong is None else "wrong"
            if wrong is None:
                return done + entries, entry, trial_problem
            entry.note = wrong
            log.warning("Not %s: %s.", entry.candidate.label, wrong)

        # No result was correct: give candidates a turn that the limits had excluded.
        done += [entry for entry in entries if entry.tried]
        pending = [entry.candidate for entry in entries if not entry.tried]
        if not pending:
            return done, None, trial_problem


def _compete_where_it_fits(
    problem: Problem,
    machine: Machine,
    terms: Terms,
    candidates: Sequence[Candidate],
    limits: TuningLimits,
) -> tuple[list[TunerEntry], Problem]:
    """(entries of all candidates, the trial problem), with a smaller trial problem where memory ran
    out.
    """
    cache = machine.cache if terms.gpu is None else max(terms.gpu.cache, GPU_CACHE)
    n_bytes = trial_bytes(terms.memory(machine), cache)
    steps = max(steps_per_block(candidate.parameters) for candidate in candidates)

    # Each failure for lack of memory divides the trial problem by four. A candidate that fails on
    # the smallest trial is dropped by `compete` instead.
    while True:
        timed = make_timed_problem(problem, n_bytes, threads=terms.threads, steps=steps)
        # The initial data of a GPU trial are copied to the device for each candidate; make them
        # once.
        if terms.gpu is not None:
            timed = kept(timed)
        try:
            return compete(timed, candidates, place=terms.place, limits=limits), timed
        except MemoryError:
            if n_bytes <= 1:
                raise
            n_bytes //= 4
            log.debug("memory ran out; trying on a state of %d bytes", n_bytes)


def _check(
    problem: Problem, candidate: Candidate, place: ComputeResource, *, effort: float = 1.0
) -> str | None:
    # None if the result is correct, otherwise a sentence that says why it is not.
    try:
        return check_method(
            problem, candidate.method, candidate.parameters, place=place, effort=effort
        )
    except Exception as error:  # a candidate that fails must not stop a run that another can do
        log.debug("%s failed", candidate.label, exc_info=True)
        return describe_failure(error)


def _choose_team(
    trial_problem: Problem, candidate: Candidate, most: int, speed: Speed
) -> tuple[int, Speed]:
    """(number of threads, their speed): fewer than `most` where the barrier of each step takes
    longer than its work.
    """
    best = most, speed
    if trial_problem.grid.n_points * trial_problem.n_fields >= most * _POINTS_PER_THREAD:
        return best

    # Halve the team while that is possible; a smaller one must be clearly faster to win.
    size = most // 2
    while size >= 1:
        fewer = measure_speed(
            trial_problem,
            candidate.method,
            candidate.parameters,
            place=ComputeResource(size),
            seconds=_FEWER_SECONDS,
        )
        if fewer.points_per_second > best[1].points_per_second * _FEWER_ARE_FASTER:
            best = size, fewer
        size //= 2
    return best


def _longer(problem: Problem, speed: Speed, terms: Terms, seconds: float) -> bool:
    """Whether the whole run takes longer than `seconds`."""
    return _updates(problem) > seconds * (speed.points_per_second + terms.beside)


def _updates(problem: Problem) -> float:
    """Point updates of the whole run."""
    return float(problem.grid.n_points * problem.n_fields * problem.steps)


def _remember(key: tuned.Key, choice: Choice, *, good_for: float | None) -> None:
    record = tuned.Remembered(
        choice.method.name,
        dict(choice.parameters),
        choice.threads,
        choice.speed.points_per_second,
        choice.speed.latency,
        tuned.now(),
        good_for,
    )
    tuned.remember(key, record, [as_plain(row) for row in choice.rows])
