"""Choose method and parameters for a problem: remembered from an earlier run, or measured now;
checked in any case.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

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

_POINTS_PER_THREAD = 1 << 16  # above this, meeting the others costs less than a tenth of a step
_FEWER_ARE_FASTER = 1.05  # a smaller team must be this much better to count
_FEWER_SECONDS = 0.05
# of a check: a choice that was checked before is checked again on a tenth of the points
_RECALL_EFFORT = 0.1
_SHORT_RUN = 0.5  # seconds; for shorter ones it does not matter whether another would be faster
_GUESSED_RATE = 2e9  # products per second and thread, where nothing may be measured
_GUESSED_LATENCY = 2e-5  # seconds
# Bytes; a trial problem has twice as many. On a quarter of that a 3D star was measured at 230
# GStencil/s, on 1024^3 at 560 (one H200): in a thin slab blocks of threads load about as many
# planes in front of their chunk as it has.
GPU_CACHE = 512 << 20


@dataclass(frozen=True)
class Terms:
    """How the tuner is to decide.

    Attributes:
        asked: what is said about method and parameters.
        threads: CPU threads of one worker.
        budget: seconds it may take, compilation included; with 0 nothing is measured.
        fixed_threads: whether fewer must not be used where they are faster.
        patient: whether a run that is much longer than that waits until every method has had a
            turn.
        beside: points per second that devices chosen before make of the same run.
        use_cache: whether earlier choices are read and this one is kept.
        anew: whether to measure even if an earlier choice is there, and as if the run were long.
        gpu: the GPU on which it is to be; None for CPU threads.
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
        """Where candidates are tried."""
        return self.place_with(self.threads)

    def place_with(self, threads: int) -> ComputeResource:
        """The same with another number of threads."""
        return (
            ComputeResource(threads)
            if self.gpu is None
            else ComputeResource(1, "gpu", self.gpu.number)
        )

    def memory(self, machine: Machine) -> int:
        """Bytes that can be had there."""
        return machine.memory if self.gpu is None else self.gpu.memory


def tune(problem: Problem, machine: Machine, terms: Terms) -> Choice:
    """The fastest method that does not refuse, with its fastest parameters, compared with the
    reference.

    Args:
        problem: what is to be advanced.
        machine: what there is to do it with.
        terms: what is allowed, and how long it may take.

    Raises:
        ConfigError: a method or parameters were asked for that do not exist or do not work.
        UnsupportedError: no method can do it.
    """
    begin = time.perf_counter()
    memory, known = terms.memory(machine) - RESERVE, find_known(problem, terms.gpu)
    candidates, refused = find_candidates(problem, terms.asked, memory, terms.place, known)
    if not candidates:
        raise nothing_left(terms.asked, refused)
    candidates = pairs_first(candidates, problem, terms.gpu)
    if terms.budget == 0:
        return _first_guess(problem, candidates, refused, terms)

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
    """The best guess of the first method whose answer is right, without any measurement."""
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
    """(points per second of what was not measured here, why it was taken)."""
    if (known := candidate.known) is not None:
        return known.rate, f"the fastest method on {known.gpu} ({known.date})"
    rate = threads * _GUESSED_RATE / problem.stencil.n_points
    return rate, "the best guess of the first method that can do it"


def _remembered(
    problem: Problem, key: tuned.Key, candidates: Sequence[Candidate], begin: float, terms: Terms
) -> Choice | None:
    """The choice of an earlier run, if it is among the candidates still and its answer is right."""
    record = tuned.recall(key)
    if record is None:
        return None
    speed = Speed(record.points_per_second, record.latency)
    same = (c for c in candidates if (c.method.name, c.parameters) == record.chosen)
    candidate = next(same, None)
    too_long = record.good_for is not None and _longer(problem, speed, terms, record.good_for)
    if candidate is None or too_long:
        return None

    wrong = _check(problem, candidate, terms.place_with(record.threads), effort=_RECALL_EFFORT)
    if wrong is not None:
        log.warning(
            "%s was tuned on %s, but now %s: tuning anew.", candidate.label, record.date[:10], wrong
        )
        return None

    rate = speed.points_per_second
    reason = f"{candidate.label}: {giga(rate)}, tuned on {record.date[:10]}, cached; checked."
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
    """The fastest candidate whose answer is right, timed now; kept if there is a key for it."""
    begin = time.perf_counter()
    limits = TuningLimits(
        deadline=begin + terms.budget,
        budget=terms.budget,
        run_updates=None if terms.anew else _updates(problem),
        memory=terms.memory(machine) // 2,
        patient=terms.patient,
        beside=terms.beside,
    )
    entries, chosen, trial_problem = _find_right(problem, machine, terms, candidates, limits)
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
    complete = all(entry.tried for entry in entries if entry.candidate.guess == 0)
    return _kept(problem, key, choice, terms, complete=complete)


def _kept(
    problem: Problem, key: tuned.Key, choice: Choice, terms: Terms, *, complete: bool
) -> Choice:
    """The choice, which later runs find; with a sentence if it is not for all of them.

    Args:
        problem: what is to be advanced.
        key: under which it is kept.
        choice: what was measured.
        terms: how the tuner is to decide.
        complete: whether each method had its turn.
    """
    if complete:
        _remember(key, choice, good_for=None)
        return choice
    if not terms.anew and not _longer(problem, choice.speed, terms, _SHORT_RUN):
        _remember(key, choice, good_for=_SHORT_RUN)
        return choice

    # What had no turn gets it in a later run, whose kernels are compiled already, if that is long
    # enough to gain by it.
    good_for = MUCH_LONGER * terms.budget
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
    """(what was tried and what was left out, the fastest whose answer is right, the trial problem
    that they were timed on).
    """
    pending, done = list(candidates), list[TunerEntry]()
    while True:
        entries, trial_problem = _compete_where_it_fits(problem, machine, terms, pending, limits)
        for entry in ranked(entries):
            wrong = _check(problem, entry.candidate, terms.place)
            entry.check = "right" if wrong is None else "wrong"
            if wrong is None:
                return done + entries, entry, trial_problem
            entry.note = wrong
            log.warning("Not %s: %s.", entry.candidate.label, wrong)

        # None is right: what the limits left out gets its turn.
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
    """(what was tried and what was left out, the trial problem: smaller where memory ran out)."""
    cache = machine.cache if terms.gpu is None else max(terms.gpu.cache, GPU_CACHE)
    n_bytes = trial_bytes(terms.memory(machine), cache)
    steps = max(steps_per_block(candidate.parameters) for candidate in candidates)

    while True:
        timed = make_timed_problem(problem, n_bytes, threads=terms.threads, steps=steps)
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
    """Fewer threads where meeting once per step takes longer than the work of a step: (threads,
    their speed).
    """
    best = most, speed
    if trial_problem.grid.n_points * trial_problem.n_fields >= most * _POINTS_PER_THREAD:
        return best

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
    """Whether the run takes longer than this."""
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
