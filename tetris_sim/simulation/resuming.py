"""Where does a run begin? At step 0, or at a checkpoint that belongs to the same problem."""

from __future__ import annotations

import dataclasses
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tetris_sim.apps.domain import steps_left
from tetris_sim.config import Config, load_config
from tetris_sim.errors import CheckpointError, ConfigError
from tetris_sim.model.problem import Problem
from tetris_sim.outputs import results
from tetris_sim.outputs.checkpoint import (
    Checkpoint,
    RunState,
    find_checkpoint,
    open_checkpoint,
    problem_digest,
    refuse_changed_problem,
    resumed,
)
from tetris_sim.scheduler.facts.shares import Plan, names_of
from tetris_sim.scheduler.tuning.candidates import TuningRequest
from tetris_sim.simulation.report import package_versions
from tetris_sim.support.wording import PhaseClock

log = logging.getLogger("tetris_sim")


Resume = Literal["never", "auto"] | Path


@dataclass(frozen=True)
class Start:
    """Where a run begins; plain data, which rank 0 tells the others.

    Attributes:
        path: the checkpoint that it continues from, every byte of it checked; None for the initial
            field.
        state: the rest of that checkpoint, besides the field.
        sentences: the news for the user about it.
        begins: what the run says once nothing refuses it.
    """

    path: Path | None = None
    state: RunState | None = None
    sentences: tuple[str, ...] = ()
    begins: str = ""

    @property
    def step(self) -> int:
        """The first step that is not there yet."""
        return 0 if self.state is None else self.state.step


def newest_checkpoint(directory: Path) -> Path:
    """The newest good checkpoint of a results directory, or of the folder of checkpoints in one.

    Raises:
        CheckpointError: there is none.
    """
    # Both are accepted: the results directory, and the folder of checkpoints inside of it.
    within = (
        directory.name == results.CHECKPOINTS and not (directory / results.CHECKPOINTS).is_dir()
    )
    folder = directory if within else directory / results.CHECKPOINTS
    newest, sentences = find_checkpoint(folder, tidy=False)
    for sentence in sentences:
        log.info("%s", sentence)

    if newest is None:
        msg = (
            f"{directory} holds no good checkpoint; give a results directory of a run, or a "
            "checkpoint file"
        )
        raise CheckpointError(msg)
    newest.close()
    return newest.path


def find_start(
    config: Config, directory: Path, resume: Resume | Start, *, overwrite: bool
) -> Start:
    """Decide where to begin, and refuse what would lose the results of this or another run; a
    caller that has the state in memory says where itself.
    """
    if isinstance(resume, Start):
        return resume
    if overwrite and resume != "never":
        msg = "--overwrite replaces results and --resume continues them: give one of the two"
        raise ConfigError(msg)

    if isinstance(resume, Path) and not resume.exists():
        msg = (
            f"--resume {resume}: there is no such checkpoint; auto (the newest good checkpoint of "
            "the results directory), never, or the path of a checkpoint is wanted"
        )
        raise CheckpointError(msg)
    if isinstance(resume, Path):
        # A checkpoint of another directory begins a new run here, which must not replace results.
        if not is_within(resume, directory):
            results.refuse_to_overwrite(directory)
        with open_checkpoint(resume) as checkpoint:
            state = checkpoint.state
        return Start(resume, state, (), f"Continuing from {resume} at step {state.step}.")
    if resume == "auto":
        return _find_newest_start(config, directory)

    if not overwrite:
        results.refuse_to_overwrite(directory)
    return Start()


def _find_newest_start(config: Config, directory: Path) -> Start:
    """At the newest good checkpoint; at step 0 where a run has not saved any yet."""
    newest, sentences = find_checkpoint(directory / results.CHECKPOINTS)
    if newest is not None:
        with newest:
            said = f"Continuing from {newest.path} at step {newest.state.step}."
            return Start(newest.path, newest.state, tuple(sentences), said)

    # Checkpoints exist but none is good: starting anew would replace them silently.
    if sentences:
        msg = (
            f"{' '.join(sentences)} No checkpoint in {directory} can be used. Mend them, or "
            "use --overwrite to start anew."
        )
        raise CheckpointError(msg)
    _refuse_another_run(config, directory)
    return Start(begins="No checkpoint to continue from: starting at step 0.")


def build_problem(
    config: Config, checkpoint: Checkpoint | None = None, *, dt: float | None = None
) -> Problem:
    """The problem of a configuration; continued from a checkpoint if one is given.

    Args:
        config: what to do.
        checkpoint: what it continues from.
        dt: the time step that rank 0 has found [s]; another processor might round it differently.

    Raises:
        CheckpointError: if the configuration is that of another problem, or ends before the
            checkpoint.
    """
    if checkpoint is None:
        return config.build(dt=dt)
    state = checkpoint.state
    problem = resumed(config.build(dt=state.dt), state)
    refuse_changed_problem(checkpoint, config, problem)

    problem = _ending_in_time(config, problem, state)
    if checkpoint.state.step > problem.steps:
        msg = (
            f"{checkpoint.path} is at step {checkpoint.state.step}, but the run is to end at step "
            f"{problem.steps}. Set a later time.t_end or more time.steps, or continue from an "
            "earlier checkpoint."
        )
        raise CheckpointError(msg)
    if problem.phases is not None:
        problem.phases.refuse_between(problem)
    return dataclasses.replace(problem, initial=checkpoint.initial)


def _ending_in_time(config: Config, problem: Problem, state: RunState) -> Problem:
    """The problem with the steps that lead from a checkpoint to `time.t_end`, and no further."""
    if config.time.t_end is None:  # the number of steps counts
        return problem
    dt, steps = steps_left(config.time.t_end, state.time, state.dt)
    # A shorter last stretch: time is counted from the checkpoint on, because t = start + n dt would
    # otherwise move.
    if dt != state.dt:
        state = dataclasses.replace(state, start=(state.step, state.time))
        problem = resumed(config.build(dt=dt), state)
    return dataclasses.replace(problem, steps=state.step + steps)


def method_of(state: RunState | None) -> TuningRequest | None:
    """The method and parameters that a checkpoint was computed with; None if it does not say."""
    workers = None if state is None else state.methods.get("workers")
    if not isinstance(workers, dict) or not workers:
        return None
    # All workers of a run use one method where bits matter; that of the first stands for all.
    first = next(iter(workers.values()))
    return TuningRequest(first["method"], dict(first["parameters"]), by="the checkpoint's method")


def is_within(path: Path, directory: Path) -> bool:
    """Whether a checkpoint lies among those of a results directory."""
    return path.resolve().parent == (directory / results.CHECKPOINTS).resolve()


def _refuse_another_run(config: Config, directory: Path) -> None:
    """Raise if `directory`, which has no checkpoint, has results of another problem."""
    path = directory / results.CONFIG
    if not path.exists():
        return
    try:
        differences = config.difference(load_config(path, environ={}))
    except ConfigError:
        return  # torn by the crash that also left no checkpoint
    if differences:
        msg = (
            f"{directory} holds the results of another problem and no checkpoint: "
            f"{'; '.join(differences)}. Use --overwrite to replace them, or another "
            "output.directory."
        )
        raise ConfigError(msg)


# RunStates: what a run remembers of itself in its checkpoints.


class RunStates:
    """Makes the run state at any step of one run.

    Args:
        text: its configuration, as `Config.resolved_text` says it.
        problem: what it advances.
        plan: how.
        clock: how long it has taken so far.
        earlier: the state that it continues from, if it does.
        run_id: what tells it from others.
    """

    def __init__(
        self,
        text: str,
        problem: Problem,
        plan: Plan,
        clock: PhaseClock,
        *,
        earlier: RunState | None,
        run_id: str,
    ) -> None:
        self._problem, self._clock, self._run_id = problem, clock, run_id
        self._text = text
        # Every configuration that the run had so far, so that a result can be traced to all of
        # them.
        self._history: tuple[str, ...] = ()
        self._wall_before = 0.0
        if earlier is not None:
            self._history = earlier.config_history + (
                () if earlier.config == self._text else (earlier.config,)
            )
            self._wall_before = earlier.wall_time_s
        workers: dict[str, Any] = {
            name: {"method": share.method.name, "parameters": dict(share.parameters)}
            for name, share in zip(names_of(plan), plan.shares, strict=True)
        }

        # What controllers decide later is no part of the problem.
        self._digest = problem_digest(problem) if problem.signals else ""
        self._methods = {"time_block": plan.time_block, "workers": workers}

    def at(self, step: int) -> RunState:
        """The state after so many steps."""
        self._problem = self._problem.at(step)

        return RunState(
            step=step,
            dt=self._problem.dt,
            steps=self._problem.steps,
            run_id=self._run_id,
            config=self._text,
            config_history=self._history,
            problem_digest=self._digest or problem_digest(self._problem),
            methods=self._methods,
            created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            versions=package_versions(),
            wall_time_s=self._clock.elapsed + self._wall_before,
            outputs={},
            start=self._problem.start,
        )
