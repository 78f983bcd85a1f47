"""Choosing: by which scheme does a run get to the steps that somebody wants, and why?"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tetris_sim.config import Config
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.model.problem import Problem
from tetris_sim.outputs.checkpoint import Checkpoint, RunState, problem_digest
from tetris_sim.outputs.output import OutputTimes, StepSchedule
from tetris_sim.scheduler.comm.communicator import Communicator, everywhere, measure_link, on_root
from tetris_sim.scheduler.facts.shares import Plan, Scheme
from tetris_sim.scheduler.machine.machine import Machine, find_machine
from tetris_sim.scheduler.machine.placement import is_implicit, is_spectral
from tetris_sim.scheduler.plan.solving import (
    SolvingOffer,
    SpectralPlan,
    on_fastest,
    plan_jumps,
    share_solution,
    solving_offers,
)
from tetris_sim.scheduler.planner import plan_rates, plan_together
from tetris_sim.scheduler.tuning.candidates import TuningRequest
from tetris_sim.simulation.precision_notes import half_precision_notes, pair_notes
from tetris_sim.simulation.resuming import build_problem, method_of
from tetris_sim.support.wording import count_threads, format_duration, format_time

_LONG = 60.0  # seconds of steps after which other ways are looked for
_SURELY: dict[Scheme, float] = {"spectral": 1.0, "implicit": 3.0}  # faster by prediction
_OTHERS: dict[Scheme, str] = {"spectral": "jumps", "implicit": "implicit steps"}
_NARROW = 0.2  # of the step of cells as wide as long: a shorter one is reported
_EVER = 1e300  # s: a limit that is none
_MOST_COUNTED = 1 << 14  # steps that are wanted; of more, the rest is taken to lie as they do


@dataclass(frozen=True)
class Proposal:
    """Prediction for one time scheme.

    Attributes:
        scheme: which.
        plan: how; None if it cannot.
        seconds: predicted, of the whole run; infinite if it cannot.
        why_not: the reason, if it cannot.
    """

    scheme: Scheme
    plan: Plan | None
    seconds: float
    why_not: str = ""


@dataclass(frozen=True)
class Setting:
    """Inputs of the planner.

    Attributes:
        config: what was asked for.
        problem: what it describes.
        machine: the computer of this rank.
        compute: the section of the configuration as it counts.
        ranks: who takes part.
        first: the step at which the run begins.
        begun_with: method and parameters of the run that is continued.
        use_cache: whether choices of earlier runs count.
    """

    config: Config
    problem: Problem
    machine: Machine
    compute: ComputeSection
    ranks: Communicator
    first: int
    begun_with: TuningRequest | None
    use_cache: bool


def choose_scheme(setting: Setting, *, compare: bool) -> tuple[Plan, tuple[Proposal, ...]]:
    """(the plan of the scheme that is asked for or faster, what each that was looked at would do).

    Args:
        setting: what the plan is made for.
        compare: whether others are looked at too.

    Raises:
        UnsupportedError: the scheme that is asked for cannot do it here.
        TetrisError: as `plan_together`.
    """
    time = setting.config.time
    asked = time.scheme
    # Right-hand sides of stiff schemes: nothing else can advance them, so nothing is compared.
    if setting.problem.rates is not None:
        only = _propose_rates(setting)
        assert only.plan is not None
        return only.plan, (only,)
    if setting.problem.equations is not None or asked == "euler":
        asked = "explicit"  # how a step is made is in the equations, or in their stencil
    # A solver by name: no other scheme gives the same answer.
    if asked in ("steady", "implicit"):
        only = _propose_solving(setting, asked)
        if only.plan is None:
            raise UnsupportedError(only.why_not)
        return only.plan, (only,)
    jumping = None
    if setting.problem.phases is None and (asked != "explicit" or compare):
        jumping = _propose_jumps(setting)
    if asked == "spectral":
        assert jumping is not None
        if jumping.plan is None:
            msg = f"time.scheme is spectral, but {jumping.why_not}. Take explicit, or auto."
            raise UnsupportedError(msg)
        return jumping.plan, (jumping,)

    begun = setting.begun_with
    if asked == "auto" and jumping is not None and jumping.plan is not None:
        # A continued run keeps its scheme, since its bits must not change.
        kept = begun is not None and is_spectral(begun.method)
        short = jumping.seconds < setting.compute.tuning_seconds and not compare
        # Steps would have an error in time that a jump of the equation itself does not have.
        exact = setting.problem.continuous
        if kept or short or exact:
            why = (
                "as the run was begun"
                if kept
                else "which solve the equation exactly in time"
                if exact
                else "in less time than it takes to measure how fast steps are"
            )
            return _saying(jumping.plan, f"time.scheme: auto jumps, {why}."), (jumping,)
    if asked == "auto" and begun is not None and is_implicit(begun.method):
        solving = _propose_solving(setting, "implicit", adaptive=True)
        if solving.plan is not None:
            why = "time.scheme: auto makes implicit steps, as the run was begun."
            return _saying(solving.plan, why), (solving,)

    # Explicit steps last: their rate has to be measured, which takes time and so is done only if
    # nothing cheaper has decided.
    stepping = _propose_steps(setting)
    others = [] if jumping is None else [jumping]
    if setting.problem.equations is None and (compare or stepping.seconds > _LONG):
        others.append(_propose_solving(setting, "implicit", adaptive=True))
    return _faster(asked, stepping, others, time.of_steps)


def _faster(
    asked: str, stepping: Proposal, others: list[Proposal], tolerance: float
) -> tuple[Plan, tuple[Proposal, ...]]:
    """The plan of steps, or with auto of another scheme that is faster, saying why."""
    assert stepping.plan is not None
    # Other schemes must be faster by a factor (`_SURELY`): predictions err.
    able = [it for it in others if it.plan is not None]
    if not others or (asked == "explicit" and not able):
        return stepping.plan, (stepping, *others)

    # Implicit steps have errors of their own, and their number is not known in advance.
    worth = [it for it in able if it.seconds * _SURELY[it.scheme] < stepping.seconds]
    best = min(worth, key=lambda it: it.seconds, default=None)
    hint = ""
    if asked == "explicit" and best is not None:
        hint = f" time.scheme: auto takes the {_OTHERS[best.scheme]}."
    compared = _compared(stepping, others, able, tolerance) + hint
    taken = best if asked == "auto" and best is not None else stepping
    assert taken.plan is not None
    return _saying(taken.plan, compared), (stepping, *others)


def _compared(
    stepping: Proposal, others: list[Proposal], able: list[Proposal], tolerance: float
) -> str:
    if not able:
        return f"Steps one after the other (explicit): {others[0].why_not}."
    taking = {it.scheme: f"about {format_duration(it.seconds)}" for it in (stepping, *able)}
    said = f"Steps one after the other (explicit) take {taking['explicit']}"
    if "spectral" in taking:
        said += f", jumps over the same steps (spectral) {taking['spectral']}"
    if "implicit" in taking:
        said += (
            f", implicit steps whose error is at most {tolerance:g} of the range of the state "
            f"{taking['implicit']}"
        )
    unable = "".join(f" Not {it.scheme}: {it.why_not}." for it in others if it.plan is None)
    return f"{said}.{unable}"


def _saying(plan: Plan, sentence: str) -> Plan:
    return dataclasses.replace(plan, reasons=(sentence, *plan.reasons))


def _propose_steps(setting: Setting) -> Proposal:
    begun_with = setting.begun_with
    if begun_with is not None and (
        is_spectral(begun_with.method) or is_implicit(begun_with.method)
    ):
        begun_with = None
    plan = plan_together(
        setting.problem,
        setting.machine,
        setting.compute,
        setting.ranks,
        begun_with=begun_with,
        use_cache=setting.use_cache,
    )
    left = setting.problem.steps - setting.first
    return Proposal(plan.scheme, plan, plan.seconds_per_step * left)


def _propose_jumps(setting: Setting) -> Proposal:
    """Every rank offers a device; rank 0 decides whether it solves alone."""
    jumps = find_jumps(setting.config, setting.problem, setting.first)

    def propose() -> Proposal:
        try:
            plan = plan_jumps(setting.problem, setting.machine, setting.compute, jumps)
        except UnsupportedError as error:
            return Proposal("spectral", None, math.inf, str(error))
        return Proposal("spectral", plan, plan.seconds_per_step * jumps.longest * jumps.count)

    return on_root(setting.ranks, propose)


def _propose_rates(setting: Setting) -> Proposal:
    """Rank 0 integrates right-hand sides alone."""

    def propose() -> Proposal:
        plan = plan_rates(setting.problem, setting.machine, setting.compute)
        left = setting.problem.steps - setting.first
        return Proposal(plan.scheme, plan, plan.seconds_per_step * left)

    return on_root(setting.ranks, propose)


def _propose_solving(
    setting: Setting, scheme: Literal["steady", "implicit"], *, adaptive: bool = False
) -> Proposal:
    """Rank 0 has the grid; the others hear its plan."""
    time, stretches = setting.config.time, None
    if adaptive or time.is_adaptive:
        stretches = find_jumps(setting.config, setting.problem, setting.first)
    tolerance = time.of_balances if stretches is None else time.of_steps

    problem, ranks = setting.problem, setting.ranks

    def offer() -> list[SolvingOffer] | str:
        place = setting.machine, setting.compute
        try:
            return solving_offers(problem, *place, scheme, tolerance, stretches=stretches)
        except UnsupportedError as error:
            return str(error)

    # Every rank offers what its devices can do; rank 0 chooses among all of them.
    by_rank = ranks.collect(everywhere(ranks, offer))
    link = measure_link(ranks) if ranks.size > 1 else None

    def propose() -> Proposal:
        offers = []
        for own in by_rank:
            if isinstance(own, str):
                return Proposal(scheme, None, math.inf, own)
            offers.append(own)
        try:
            plan = on_fastest(problem, offers[0], scheme, stretches)
        except UnsupportedError as error:
            return Proposal(scheme, None, math.inf, str(error))
        fastest = [min(own, key=lambda it: (not it.fits, it.seconds)) for own in offers]
        plan = share_solution(problem, plan, fastest, link)
        return Proposal(scheme, plan, plan.seconds_per_step * (problem.steps - setting.first))

    return on_root(ranks, propose)


def find_jumps(config: Config, problem: Problem, first: int = 0) -> SpectralPlan:
    """At how many steps after `first` outputs or checkpoints want the state, and how far apart."""
    output, last = config.output, problem.steps
    fields = [it for it in (output.fields, *output.parts) if it is not None]
    everys = [it.every for it in fields if it.every is not None]
    everys += [it.every for it in output.probes]
    if output.statistics is not None:
        everys.append(output.statistics.every)
    if config.checkpoint.every is not None and config.checkpoint.every.unit != "wall":
        everys.append(config.checkpoint.every)
    schedules: list[StepSchedule | OutputTimes] = [
        StepSchedule(every, problem.dt, last, problem.start) for every in dict.fromkeys(everys)
    ]
    schedules += [OutputTimes(it.at, problem.dt, last, problem.start) for it in fields]

    # Walk from one wanted step to the next; long runs are counted in part and extrapolated.
    count, longest, step = 0, 1, first
    while step < last and count < _MOST_COUNTED:
        wanted = [due for it in schedules if (due := it.next_step(step)) is not None]
        due = min([last, *wanted])
        count, longest, step = count + 1, max(longest, due - step), due
    if step < last:
        count = math.ceil(count * (last - first) / (step - first))
    return SpectralPlan(max(1, count), longest)


# What a run would do: its problem, the machine, the plan. `plan` says it, `run` goes on.

Adapt = Callable[[Problem], Problem]  # before it is planned

_TUNING_SHARE = 0.1  # of the time until a wall-time limit
_LEAST_TUNING = 0.1  # seconds; 0 would mean not to measure
# seconds; waiting until every method had its turn takes less on the slowest machines seen
_PATIENT_TUNING = 60.0


@dataclass(frozen=True)
class PreparedRun:
    """Problem, machine and plan of a run that can begin.

    Attributes:
        problem: the mathematics, the same bits on every rank.
        machine: the computer of this rank.
        compute: the section of the configuration, with no more time for tuning than there is.
        plan: the decisions, the same on every rank, and what float16 costs among its notes.
        proposals: what each scheme that was looked at would do.
    """

    problem: Problem
    machine: Machine
    compute: ComputeSection
    plan: Plan
    proposals: tuple[Proposal, ...]


def prepare(
    config: Config,
    ranks: Communicator,
    *,
    checkpoint: Checkpoint | None = None,
    seconds_left: float = math.inf,
    use_cache: bool = True,
    compare: bool = False,
    adapt: Adapt | None = None,
    begun: RunState | None = None,
    built: Problem | None = None,
) -> PreparedRun:
    """Build the problem, look at the machine, plan.

    Args:
        config: what to do.
        ranks: all of them call this.
        checkpoint: what the run continues from, if it does; its method is kept.
        seconds_left: time until the run must have stopped [s].
        use_cache: whether method and parameters may be those that were measured in an earlier run.
        compare: whether schemes are looked at that are not asked for.
        adapt: changes the problem before it is planned; for one process.
        begun: the state that it continues from without a checkpoint; its method is kept too.
        built: the problem, where the caller has built it; for one process.

    Raises:
        TetrisError: it cannot be done here, or does not fit.
    """
    problem = built or _build_the_same(config, checkpoint, ranks)
    # The order matters: the problem decides which methods exist, the machine which are possible,
    # time which may be measured.
    if adapt is not None:
        problem = adapt(problem)
    machine = everywhere(ranks, find_machine)
    # The least time of all ranks counts, since all of them stop together.
    compute = spare_time(config.compute, min(ranks.collect(seconds_left)))
    begun = begun if checkpoint is None else checkpoint.state
    begun_with, first = method_of(begun), 0 if begun is None else begun.step
    setting = Setting(config, problem, machine, compute, ranks, first, begun_with, use_cache)
    plan, proposals = choose_scheme(setting, compare=compare)
    notes = on_root(ranks, lambda: half_precision_notes(config, problem, plan))
    notes = (*notes, *pair_notes(problem, plan), *narrow_notes(problem, plan))
    if begun is None:
        notes = (*notes, *on_root(ranks, lambda: model_notes(config, problem)))
    plan = dataclasses.replace(plan, notes=(*plan.notes, *notes))
    return PreparedRun(problem, machine, compute, plan, proposals)


def model_notes(config: Config, problem: Problem) -> tuple[str, ...]:
    """Return the notes of the model on a valid configuration, and on its steps."""
    model = config.model
    notes = tuple(model.notes(config)) if hasattr(model, "notes") else ()
    if hasattr(model, "notes_of_steps"):
        notes = (*notes, *model.notes_of_steps(config, problem.dt))
    return notes


def narrow_notes(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Say what narrow cells around an axis or a centre cost explicit steps, if they cost much."""
    grid = problem.grid
    if plan.scheme != "explicit" or "theta" not in grid.axis_names or not problem.dt_limit < _EVER:
        return ()
    arc, width = (grid.narrowest[grid.axis_names.index(name)] for name in ("theta", "r"))
    # The step of one cell is bounded by the sum of what leaves it along both axes.
    share = 1 / (1 + (width / arc) ** 2)
    if share > _NARROW:
        return ()
    inner = float(grid.coordinates(grid.axis_names.index("r"), 0, 1)[0])
    return (
        f"cells at r = {inner:.3g} m are {arc:.3g} m wide along theta and {width:.3g} m along r, "
        f"which makes the largest stable step {format_time(problem.dt_limit)}, about {share:.2g} "
        "of that of cells as wide as long; implicit steps (time.scheme: implicit) may be longer, "
        "and so are stable ones with fewer cells along theta or a larger grid.origin.r",
    )


def spare_time(compute: ComputeSection, seconds_left: float) -> ComputeSection:
    """The section, tuning for no more than a small part of the time that a run has left."""
    spare = max(_TUNING_SHARE * seconds_left, _LEAST_TUNING)
    if spare > (_PATIENT_TUNING if compute.tuning_budget == "auto" else compute.tuning_budget):
        return compute
    return compute.model_copy(update={"tuning_budget": min(compute.tuning_seconds, spare)})


def describe(config: Config, problem: Problem, plan: Plan) -> str:
    """Describe the coming run in two lines, followed by its notes."""
    shape = " x ".join(str(n) for n in reversed(problem.grid.shape))
    methods = ", ".join(dict.fromkeys(share.method.name for share in plan.shares))
    gpus = ", ".join(share.product for share in plan.shares if share.product)
    threads = count_threads(sum(share.threads for share in plan.shares))
    device = f"on {gpus}" if gpus else f"with {threads}"
    n_ranks = len({share.rank for share in plan.shares})
    together = f" of {n_ranks} ranks" if n_ranks > 1 else ""

    steps = f"{problem.steps} steps of {format_time(problem.dt)}"
    if plan.scheme == "steady":
        steps = "steady state"
    what = f"{config.title or config.model.type}: {shape} points, {problem.dtype}, {steps}"
    return "\n".join((what, f"{methods} {device}{together}", *plan.notes))


def _build_the_same(config: Config, checkpoint: Checkpoint | None, ranks: Communicator) -> Problem:
    """The problem; refused if its bits are not the same on every rank."""
    if ranks.size == 1:
        return build_problem(config, checkpoint)
    _compare_requests(config, checkpoint, ranks)
    # Rank 0 finds dt and the others take it: logarithms and roots may round differently on other
    # processors, and a step that differs by a bit gives another run.
    dt = on_root(ranks, lambda: build_problem(config, checkpoint).dt)
    problem = everywhere(ranks, lambda: build_problem(config, checkpoint, dt=dt))
    digests = ranks.collect((problem_digest(problem), problem.steps))
    on_root(ranks, lambda: _refuse_different(digests))
    return problem


def _compare_requests(config: Config, checkpoint: Checkpoint | None, ranks: Communicator) -> None:
    """Refuse ranks that were not asked for the same, or do not read the same files.

    Raises:
        ConfigError: so it is; `ElsewhereError` where another rank says it.
    """
    files: dict[str, Path] = {}
    asked = {key: _without_paths(value, key, files) for key, value in config.agreement().items()}
    if checkpoint is not None:
        state = checkpoint.state
        asked["the checkpoint"] = (state.run_id, state.step, state.created, state.problem_digest)

    # Of the same computer, files of one place and time are the same without being read.
    # Reading files to compare them is slow, so on one computer identity and time of change suffice.
    here = len(ranks.neighbours()) == ranks.size
    found = {key: _stamp(path) for key, path in files.items()}
    if not here or len({repr(it) for it in ranks.collect(found)}) > 1:
        found = everywhere(ranks, lambda: {key: _digest(path) for key, path in files.items()})
    everybody = ranks.collect(asked | found)
    on_root(ranks, lambda: _refuse_other_requests(everybody))


def _without_paths(value: Any, key: str, files: dict[str, Path]) -> Any:
    """A value without the places of its files, which are added to `files` by key: one file may have
    another place on another computer.
    """
    if isinstance(value, list | tuple):
        return [_without_paths(it, f"{key}[{k}]", files) for k, it in enumerate(value)]
    if isinstance(value, dict):
        return {name: _without_paths(it, f"{key}.{name}", files) for name, it in value.items()}
    if isinstance(value, str) and Path(value).is_absolute():
        files[key] = Path(value)
        return "a file"
    return value


def _refuse_other_requests(everybody: list[dict[str, Any]]) -> None:
    first = everybody[0]
    for rank, own in enumerate(everybody):
        keys = [key for key in {**first, **own} if own.get(key) != first.get(key)]
        if keys:
            said = "; ".join(
                f"{key} is {_in_brief(own.get(key))}, and {_in_brief(first.get(key))} there"
                for key in keys
            )
            msg = (
                f"rank {rank} was asked for something else than rank 0: {said}. All ranks must "
                "see the same configuration and the same files."
            )
            raise ConfigError(msg)


def _in_brief(value: Any) -> str:
    return "not given" if value is None else textwrap.shorten(str(value), 100)


def _stamp(path: Path) -> tuple[Any, ...] | str:
    """Identity of a file among others of the same computer."""
    try:
        seen = path.stat()
    except OSError as error:
        return str(error.strerror)
    return (str(path.resolve()), seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)


def _digest(path: Path) -> str:
    """SHA-256 of a file; of a results directory that of its HDF5 files."""
    if not path.exists():
        return "a missing file"
    if path.is_file():
        with path.open("rb") as file:
            return f"a file with digest {hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
    files = sorted(path.rglob("*.h5"))
    each = repr([(str(it.relative_to(path)), _digest(it)) for it in files])
    return f"a folder with digest {hashlib.sha256(each.encode()).hexdigest()[:16]}"


def _refuse_different(digests: list[tuple[str, int]]) -> None:
    different = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if different:
        msg = (
            f"rank {different[0]} builds another problem from the configuration than rank 0: "
            "do all of them have the same versions of Python packages?"
        )
        raise ConfigError(msg)
