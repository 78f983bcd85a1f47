"""Launch: a run from its configuration to its report, in its results directory, from the start or from a checkpoint."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tetris_sim import results
from tetris_sim.checkpoint import (
    Checkpoint,
    RunState,
    find_checkpoint,
    forget_later,
    open_checkpoint,
    problem_digest,
    refuse_changed_problem,
)
from tetris_sim.checkpoint.saving import Checkpoints
from tetris_sim.clock import PhaseClock
from tetris_sim.config import Config, load_config
from tetris_sim.errors import CheckpointError, ConfigError, ExitCode, UnsupportedError
from tetris_sim.files import atomic_text
from tetris_sim.outputs.make import make_outputs
from tetris_sim.outputs.schedule import StepSchedule
from tetris_sim.problem import Problem
from tetris_sim.progress import Progress, format_time
from tetris_sim.report import Report, make_report, package_versions
from tetris_sim.scheduler.candidates import Asked
from tetris_sim.scheduler.machine import count_ranks, find_machine
from tetris_sim.scheduler.plan import Plan, make_plan
from tetris_sim.schema import ComputeSection
from tetris_sim.simulation import open_simulation
from tetris_sim.stopping import Stopping, StopReason, find_deadline
from tetris_sim.wording import count_threads

log = logging.getLogger("tetris_sim")

_TUNING_SHARE = 0.1  # of the time until a wall-time limit
_LEAST_TUNING = 0.1  # seconds; 0 would mean not to measure

Resume = Literal["never", "auto"] | Path


@dataclass(frozen=True)
class Start:
    """Where a run begins.

    Attributes:
        checkpoint: what it continues from; None from the initial field.
        sentences: what to tell the user about it.
    """

    checkpoint: Checkpoint | None
    sentences: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """The first step that is not there yet."""
        return 0 if self.checkpoint is None else self.checkpoint.state.step


def launch(
    config: Config,
    *,
    resume: Resume = "never",
    overwrite: bool = False,
    bar: bool = False,
    clock: PhaseClock | None = None,
    use_cache: bool = True,
) -> Report:
    """Run a configuration to its last step, or until there is a reason to stop.

    Args:
        config: what to do.
        resume: "never" starts anew, "auto" continues from the newest good checkpoint if there is one, a path from
            that one.
        overwrite: whether results of an earlier run may be replaced; never together with `resume`.
        bar: whether to draw a progress bar.
        clock: adds up the time of each phase.
        use_cache: whether method and parameters may be those that were measured in an earlier run.

    Raises:
        TetrisError: of any kind, with its exit code.
    """
    if (ranks := count_ranks()) > 1:
        msg = (
            f"an MPI launcher started {ranks} ranks, but this version computes in one process, with all its threads. "
            f"Start it without the launcher."
        )
        raise UnsupportedError(msg)
    clock = clock or PhaseClock()
    stopping = Stopping(find_deadline(config.run.max_walltime, elapsed=clock.elapsed))
    directory = results_directory(config)
    with stopping.listening(), results.locked(directory):
        start = find_start(config, directory, resume, overwrite=overwrite)
        try:
            return _run(
                config, start, directory, stopping, overwrite=overwrite, bar=bar, clock=clock, use_cache=use_cache
            )
        finally:
            if start.checkpoint is not None:
                start.checkpoint.close()


def results_directory(config: Config) -> Path:
    """Where the results of a configuration go."""
    return Path(config.output.directory) if config.output.directory else results.default_directory(None)


def newest_checkpoint(directory: Path) -> Path:
    """The newest good checkpoint of a results directory.

    Raises:
        CheckpointError: there is none.
    """
    found, sentences = find_checkpoint(directory / results.CHECKPOINTS, tidy=False)
    for sentence in sentences:
        log.info("%s", sentence)
    if found is None:
        msg = f"{directory} holds no good checkpoint; give a results directory of a run, or a checkpoint file"
        raise CheckpointError(msg)
    found.close()
    return found.path


def find_start(config: Config, directory: Path, resume: Resume, *, overwrite: bool) -> Start:
    """Decide where to begin, and refuse what would lose the results of this or another run."""
    if overwrite and resume != "never":
        msg = "--overwrite replaces results and --resume continues them: give one of the two"
        raise ConfigError(msg)
    if isinstance(resume, Path):
        if not _within(resume, directory):
            results.refuse_to_overwrite(directory)
        checkpoint = open_checkpoint(resume)
        return Start(checkpoint, (f"Continuing from {resume} at step {checkpoint.state.step}.",))
    if resume == "auto":
        found, sentences = find_checkpoint(directory / results.CHECKPOINTS)
        if found is None and sentences:
            msg = (
                f"{' '.join(sentences)} No checkpoint in {directory} can be used. Mend them, or use --overwrite to "
                f"start anew."
            )
            raise CheckpointError(msg)
        if found is None:
            _refuse_another_run(config, directory)
            return Start(None, (*sentences, "No checkpoint to continue from: starting at step 0."))
        return Start(found, (*sentences, f"Continuing from {found.path} at step {found.state.step}."))
    if not overwrite:
        results.refuse_to_overwrite(directory)
    return Start(None)


def _refuse_another_run(config: Config, directory: Path) -> None:
    """Raise if the results in `directory`, which has no checkpoint, are those of another problem."""
    path = directory / results.CONFIG
    if not path.exists():
        return
    try:
        differences = config.difference(load_config(path, environ={}))
    except ConfigError:
        return  # torn by the crash that also left no checkpoint
    if differences:
        msg = (
            f"{directory} holds the results of another problem and no checkpoint: {'; '.join(differences)}. Use "
            f"--overwrite to replace them, or another output.directory."
        )
        raise ConfigError(msg)


def build_problem(config: Config, checkpoint: Checkpoint | None = None) -> Problem:
    """The problem of a configuration; continued from a checkpoint if one is given.

    Raises:
        CheckpointError: if the configuration is that of another problem, or ends before the checkpoint.
    """
    if checkpoint is None:
        return config.build()
    problem = config.build(dt=checkpoint.state.dt)
    refuse_changed_problem(checkpoint, config, problem)
    if checkpoint.state.step > problem.steps:
        msg = (
            f"{checkpoint.path} is at step {checkpoint.state.step}, but the run is to end at step {problem.steps}. "
            f"Set a later time.t_end or more time.steps, or continue from an earlier checkpoint."
        )
        raise CheckpointError(msg)
    return dataclasses.replace(problem, initial=checkpoint.initial)


def method_of(state: RunState) -> Asked | None:
    """The method and parameters that a checkpoint was computed with; None if it does not say."""
    workers = state.methods.get("workers")
    if not isinstance(workers, dict) or not workers:
        return None
    first = next(iter(workers.values()))
    return Asked(first["method"], dict(first["parameters"]), by="the checkpoint's method")


def spare_time(compute: ComputeSection, seconds_left: float) -> ComputeSection:
    """The section with no more time for tuning than a small part of what a run with a time limit has."""
    budget = min(compute.tuning_budget, max(_TUNING_SHARE * seconds_left, _LEAST_TUNING))
    return compute.model_copy(update={"tuning_budget": budget})


def _run(
    config: Config,
    start: Start,
    directory: Path,
    stopping: Stopping,
    *,
    overwrite: bool,
    bar: bool,
    clock: PhaseClock,
    use_cache: bool,
) -> Report:
    for sentence in start.sentences:
        log.info("%s", sentence)
    with clock.phase("plan"):
        problem = build_problem(config, start.checkpoint)
        machine = find_machine()
        begun_with = None if start.checkpoint is None else method_of(start.checkpoint.state)
        compute = spare_time(config.compute, stopping.seconds_left())
        plan = make_plan(problem, machine, compute, begun_with=begun_with, use_cache=use_cache)
    results.refuse_full_disk(directory, predicted_bytes(config, problem) - results.written_bytes(directory))
    if overwrite:
        results.clear(directory)
    forget_later(directory / results.CHECKPOINTS, start.step)  # else a crash now would lead to a state after this one
    atomic_text(directory / results.CONFIG, config.resolved_text())
    log.info("%s", "\n".join((describe(config, problem, plan), *plan.notes)))
    stopping.margin = _saving_seconds(problem, plan)
    step, reason = _simulate(config, problem, plan, start, directory, stopping, bar=bar, clock=clock)
    report = make_report(
        problem,
        plan,
        machine,
        clock,
        first_step=start.step,
        step=step,
        ended="Done" if reason is None else f"Stopped early: {reason.sentence}",
        exit_code=ExitCode.OK if reason is None else reason.exit_code,
        outputs=str(directory),
    )
    atomic_text(directory / results.REPORT_JSON, json.dumps(report.as_json(), indent=1) + "\n")
    atomic_text(directory / results.REPORT_TEXT, report.as_text() + "\n")
    return report


def _simulate(
    config: Config,
    problem: Problem,
    plan: Plan,
    start: Start,
    directory: Path,
    stopping: Stopping,
    *,
    bar: bool,
    clock: PhaseClock,
) -> tuple[int, StopReason | None]:
    """The run itself, with everything that belongs to a results directory: (last step reached, why not the last)."""
    run_id = str(uuid.uuid4()) if start.checkpoint is None else start.checkpoint.state.run_id
    # The pictures compare with the state at step 0, which a resumed run does not begin with.
    first = None if start.checkpoint is None else config.build(dt=problem.dt).initial
    outputs = make_outputs(config, problem, directory, initial=first, run_id=run_id)
    progress = Progress(problem, start.step, bar=bar)
    saving = _make_checkpoints(config, problem, plan, start, directory, clock, run_id=run_id)
    try:
        with open_simulation(
            problem,
            plan,
            outputs=outputs,
            saving=saving,
            stopping=stopping,
            progress=progress,
            clock=clock,
            step=start.step,
        ) as simulation:
            reason = simulation.run()
            return simulation.step, reason
    finally:
        progress.close()
        saving.abandon()  # nothing is under way after a run that ended; one that failed must not write on


def _make_checkpoints(
    config: Config, problem: Problem, plan: Plan, start: Start, directory: Path, clock: PhaseClock, *, run_id: str
) -> Checkpoints:
    earlier = None if start.checkpoint is None else start.checkpoint.state
    text = config.resolved_text()
    history: tuple[str, ...] = ()
    if earlier is not None:
        history = earlier.config_history + (() if earlier.config == text else (earlier.config,))
    methods = {
        share.worker: {"method": share.method.name, "parameters": dict(share.parameters)} for share in plan.shares
    }

    def make_state(step: int) -> RunState:
        return RunState(
            step=step,
            dt=problem.dt,
            steps=problem.steps,
            run_id=run_id,
            config=text,
            config_history=history,
            problem_digest=problem_digest(problem),
            methods={"time_block": plan.time_block, "workers": methods},
            created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            versions=package_versions(),
            wall_time_s=clock.elapsed + (0.0 if earlier is None else earlier.wall_time_s),
            outputs={},
        )

    every = config.checkpoint.every
    by_clock = every is not None and every.unit == "wall"
    return Checkpoints(
        directory / results.CHECKPOINTS,
        make_state,
        schedule=None if every is None or by_clock else StepSchedule(every, problem.dt, problem.steps),
        wall_seconds=every.value if every is not None and by_clock else None,
        keep=config.checkpoint.keep,
        at_end=config.checkpoint.at_end,
        copy=plan.copy_for_checkpoints,
        saved_step=None if start.checkpoint is None or not _within(start.checkpoint.path, directory) else start.step,
    )


def _within(path: Path, directory: Path) -> bool:
    return path.resolve().parent == (directory / results.CHECKPOINTS).resolve()


def _saving_seconds(problem: Problem, plan: Plan) -> float:
    """Time to leave for the last checkpoint and one that is being written: at 100 MB/s, as slow as a busy disk."""
    return 2.0 + (2 if plan.copy_for_checkpoints else 1) * problem.state_bytes / 100e6


def predicted_bytes(config: Config, problem: Problem) -> int:
    """Most bytes that the run will have on the disk at one time: fields and checkpoints, the rest is small."""
    checkpoints = (config.checkpoint.keep + 1) * problem.state_bytes
    return checkpoints + count_fields(config, problem) * problem.state_bytes


def count_fields(config: Config, problem: Problem) -> int:
    """How many times the whole field will be written."""
    if config.output.fields is None:
        return 0
    every = config.output.fields.every
    period = every.value if every.unit == "steps" else max(every.value / problem.dt, 1.0)
    return 1 + int(-(-problem.steps // period))


def describe(config: Config, problem: Problem, plan: Plan) -> str:
    """What is about to happen, in two lines."""
    shape = " x ".join(str(n) for n in reversed(problem.grid.shape))
    methods = ", ".join(dict.fromkeys(share.method.name for share in plan.shares))
    gpus = ", ".join(share.product for share in plan.shares if share.product)
    device = f"on {gpus}" if gpus else f"with {count_threads(sum(share.threads for share in plan.shares))}"
    return (
        f"{config.title or config.model.type}: {shape} points, {problem.dtype}, {problem.steps} steps of "
        f"{format_time(problem.dt)}\n{methods} {device}"
    )


def wants_bar(*, quiet: bool, no_progress: bool) -> bool:
    """Whether to draw a progress bar: on a terminal, unless told not to."""
    return sys.stderr.isatty() and not quiet and not no_progress
