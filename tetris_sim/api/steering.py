"""Steering: a run whose configuration changes between two steps, and the schedule that replays it.

Whatever changes the run is written into a file with its step before another step is made: the same
changes at the same steps lead to the same bits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.config import Config, make_config
from tetris_sim.config.overrides import Override
from tetris_sim.errors import CheckpointError, ConfigError, TetrisError
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.outputs import results
from tetris_sim.outputs.checkpoint import RunState
from tetris_sim.scheduler.facts.shares import Plan, names_of
from tetris_sim.simulation.driving import onward, reading
from tetris_sim.simulation.launch import Underway, underway
from tetris_sim.simulation.loop import Simulation
from tetris_sim.simulation.resuming import Start
from tetris_sim.support.stopping import Stopping, StopReason
from tetris_sim.version import __version__

Change = tuple[Sequence[str | int], Any]  # a key of the configuration, and its value
CHANGEABLE = ("model", "boundaries", "control")  # sections of which values may change on the way
_VERSION = 1  # of the schedule


@dataclass(frozen=True)
class Beginning:
    """How a run begins, other than at step 0 of its configuration.

    Attributes:
        problem: with the state as its initial field; that of the configuration if not given.
        step: of the state.
        methods: of the workers, as checkpoints keep them: they are kept.
        outputs: what controllers have decided, and what was moved.
        run_id: the run that is continued.
    """

    problem: Problem | None = None
    step: int = 0
    methods: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def start(self, config: Config) -> Start:
        """The same, as runs begin."""
        found = self.problem or config.build()
        return Start(
            state=RunState(
                step=self.step,
                dt=found.dt,
                steps=found.steps,
                run_id=self.run_id,
                config=config.resolved_text(),
                problem_digest="",
                methods=self.methods,
                outputs=self.outputs,
                start=found.start,
            )
        )


def beginning_of(simulation: Simulation) -> Beginning:
    """The state that a simulation is in, to go on from."""
    problem = dataclasses.replace(simulation.problem, initial=reading(np.array(simulation.field())))
    outputs = {"moved": dict(simulation.moved), "control": dict(simulation.decided())}
    return Beginning(problem, simulation.step, _methods(simulation.plan), outputs)


class SteeredRun:
    """A run whose configuration may change between two steps; a context.

    Args:
        config: what it does at first.
        beginning: with which state, if not that of the configuration.
        overwrite: whether results of an earlier run may be replaced.
        stopping: who hears signals.

    Attributes:
        config: as it is now.
    """

    def __init__(
        self,
        config: Config,
        beginning: Beginning | None = None,
        *,
        overwrite: bool = False,
        stopping: Stopping | None = None,
    ) -> None:
        self.config, self._overwrite = config, overwrite
        self._beginning, self._stopping = beginning, stopping or Stopping(aborts=False)
        self._stack = contextlib.ExitStack()
        self._run: Underway

    def __enter__(self) -> SteeredRun:
        if self._beginning is not None and not self._overwrite:
            results.refuse_to_overwrite(results.directory_of(self.config))
        self._open(self._beginning, overwrite=self._overwrite)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._stack.__exit__(*failure)

    @property
    def simulation(self) -> Simulation:
        """That of the configuration as it is now; another one after each change."""
        return self._run.simulation

    @property
    def directory(self) -> Path:
        """The folder of the results."""
        return self._run.directory

    @property
    def ended(self) -> bool:
        """Whether it has made its last step, or was told to stop."""
        return self._run.reason is not None or self.simulation.step >= self.simulation.problem.steps

    @property
    def reason(self) -> StopReason | None:
        """Why it ends before its last step, if it does."""
        return self._run.reason

    @reason.setter
    def reason(self, reason: StopReason | None) -> None:
        self._run.reason = reason

    @property
    def methods(self) -> Mapping[str, Any]:
        """How its workers advance, as checkpoints keep it."""
        return _methods(self.simulation.plan)

    def advance_to(self, step: int) -> StopReason | None:
        """Go on to a step, writing what is due; returns why it has ended before, if it has."""
        simulation = self.simulation
        self._run.reason = simulation.run(until=simulation.problem.time(step))
        return self._run.reason

    def change(self, changes: Sequence[Change]) -> None:
        """Go on with other values from this step on.

        Raises:
            TetrisError: they do not fit; the run is as it was before.
        """
        # Grid, initial state and steps are what is steered, and not how.
        fixed = [str(path[0]) for path, _ in changes if path[0] not in CHANGEABLE]
        if fixed:
            msg = f"{fixed[0]} is fixed while a run goes on; {', '.join(CHANGEABLE)} may change"
            raise ConfigError(msg)
        simulation, before = self.simulation, self.config
        config = changed(before, changes)
        now = simulation.problem
        problem = onward(simulation, config.build(dt=now.dt))
        # The clock and the steps are those of the run; only the mathematics is another one.
        problem = dataclasses.replace(problem, start=now.start, steps=now.steps)
        # Taken before anything is closed: if the other one cannot begin, this one goes on.
        before_it = dataclasses.replace(beginning_of(simulation), run_id=self._run_id)

        simulation.unsaved = False  # what would be saved goes on
        self._stack.close()
        try:
            self.config = config
            self._open(dataclasses.replace(before_it, problem=problem))
        except TetrisError:
            self.config = before
            self._open(before_it)
            raise

    def paint(self, stroke: Mapping[str, Any]) -> None:
        """Set a field to a value in a ball.

        Args:
            stroke: `field`, a name; `at`, a place by axis [m]; `radius` [m]; `value`, in the units
                of outputs.

        Raises:
            ConfigError: it does not fit, or hits no cell.
        """
        simulation = self.simulation
        grid = simulation.problem.grid

        # A stroke comes from a page or from a file: neither is trusted to be one.
        try:
            name, value = str(stroke["field"]), float(stroke["value"])
            at = [float(stroke["at"][axis]) for axis in grid.axis_names]
            where = ball(grid, at, float(stroke["radius"]))
        except (KeyError, TypeError, ValueError) as error:
            msg = f"a stroke has field, at (a place for each axis), radius and value: {error!r}"
            raise ConfigError(msg) from error
        if not where.any():
            msg = "the brush touches no cell: take a larger one, or paint inside of the box"
            raise ConfigError(msg)
        simulation.set_field(np.full(grid.shape, value), name, where=where)

    def _open(self, beginning: Beginning | None, *, overwrite: bool = False) -> None:
        problem = None if beginning is None else beginning.problem
        self._stack = contextlib.ExitStack()
        self._run = self._stack.enter_context(
            underway(
                self.config,
                resume="never" if beginning is None else beginning.start(self.config),
                overwrite=overwrite,
                built=problem,
                stopping=self._stopping,
            )
        )
        self._run_id = str(uuid.uuid4()) if beginning is None else beginning.run_id


def _methods(plan: Plan) -> dict[str, Any]:
    workers = {
        name: {"method": share.method.name, "parameters": dict(share.parameters)}
        for name, share in zip(names_of(plan), plan.shares, strict=True)
    }
    return {"time_block": plan.time_block, "workers": workers}


def changed(config: Config, changes: Sequence[Change]) -> Config:
    """A configuration with other values.

    Raises:
        ConfigError: they are not valid; all that is wrong at once.
    """
    overrides = [
        Override(".".join(map(str, path)), tuple(map(str, path)), value) for path, value in changes
    ]
    return make_config(config.resolved(), overrides=overrides, environ={})


def ball(grid: Grid, at: Sequence[float], radius: float) -> npt.NDArray[np.bool_]:
    """The cells whose centres lie not further from a place than a radius, of the grid's shape.

    Args:
        grid: the cells; where r is an axis, it counts as a straight one.
        at: the place along each axis, in array order [m].
        radius: [m].

    Raises:
        ConfigError: an axis is an angle.
    """
    if "theta" in grid.axis_names:
        msg = "where an axis is an angle, nothing can be painted: change a value instead"
        raise ConfigError(msg)
    # A sum over the axes; where r is one, the ball is a ring in space.
    squares = np.zeros(grid.shape)
    for axis, place in enumerate(at):
        distance = grid.positions(axis, np.arange(grid.shape[axis])) - place
        squares += distance.reshape([-1 if a == axis else 1 for a in range(grid.ndim)]) ** 2
    return squares <= radius * radius


# The schedule: a line of JSON for the run, and one for each change.


class Schedule:
    """Writes what is done to a run, each line before it is done.

    Args:
        run: as it is at its begin.
        blocks: steps between two times at which it may be changed; None for any step.
    """

    def __init__(self, run: SteeredRun, blocks: int | None) -> None:
        problem, step = run.simulation.problem, run.simulation.step
        self._path = run.directory / results.SCHEDULE

        # The configuration is whole, with defaults, so that no other file is needed but its inputs.
        head = {
            "schedule": _VERSION,
            "tetris_sim": __version__,
            "config": run.config.resolved(),
            "methods": run.methods,
            "step": step,
            "dt": problem.dt,
            "start": problem.start,
            "blocks": blocks,
        }
        # A state that no configuration describes lies beside the schedule.
        if run._beginning is not None and run._beginning.problem is not None:
            np.save(run.directory / results.SCHEDULED_STATE, run.simulation.field())
        self._path.write_text(json.dumps(head) + "\n", encoding="utf-8")

    def note(self, step: int, **done: Any) -> None:
        """Add a line."""
        # Opened anew each time: nothing is left in a buffer that a kill would lose.
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **done}) + "\n")


def replay(
    path: Path,
    directory: Path | None = None,
    *,
    overwrite: bool = False,
    stopping: Stopping | None = None,
) -> Path:
    """Run what a schedule says, without a page; ends where the run that it is of has ended.

    Args:
        path: the schedule, or the results directory that it lies in.
        directory: where results go; beside those of the run with `_replay` if not given.
        overwrite: whether results of an earlier run may be replaced.
        stopping: who hears signals.

    Returns:
        The results directory.

    Raises:
        CheckpointError: it is no schedule.
        TetrisError: of any kind, as of a run.
    """
    path = path / results.SCHEDULE if path.is_dir() else path
    head, lines = read_schedule(path)
    config = make_config(head["config"], environ={})
    place = directory or Path(f"{results.directory_of(config)}_replay")
    config = changed(config, [(("output", "directory"), str(place))])
    # The methods of the run: another machine might choose others, which may round differently.
    beginning = Beginning(methods=head["methods"])
    # A run that has begun with the state of another one has it beside its schedule.
    state = path.parent / results.SCHEDULED_STATE
    if state.exists():
        problem = dataclasses.replace(
            config.build(dt=head["dt"]),
            initial=reading(np.load(state, allow_pickle=False)),
            start=(int(head["start"][0]), float(head["start"][1])),
        )
        beginning = dataclasses.replace(beginning, problem=problem, step=int(head["step"]))

    with SteeredRun(config, beginning, overwrite=overwrite, stopping=stopping) as run:
        for line in lines:
            _advance(run, line["step"], head["blocks"])
            if "end" in line:
                return place
            if "set" in line:
                run.change([(it[0], it[1]) for it in line["set"]])
            elif "paint" in line:
                run.paint(line["paint"])
        _advance(run, run.simulation.problem.steps, head["blocks"])
    return place


def _advance(run: SteeredRun, step: int, blocks: int | None) -> None:
    # In blocks of one length where results depend on these, as they were when it was seen.
    while run.simulation.step < step and not run.ended:
        run.advance_to(step if blocks is None else min(step, run.simulation.step + blocks))


def read_schedule(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first line of a schedule, and the others; a last one that a kill has torn is left out.

    Raises:
        CheckpointError: it is no schedule.
    """
    try:
        texts = path.read_text(encoding="utf-8").split("\n")
        # Whole lines end with a line break.
        head, *lines = [json.loads(text) for text in texts[:-1]]
        if head["schedule"] != _VERSION or not {"config", "methods", "blocks"} <= head.keys():
            msg = f"{path} is a schedule of another version of tetris_sim"
            raise CheckpointError(msg)
        if not all(isinstance(it["step"], int) for it in lines):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{path} is no schedule of a live run ({error or 'a step is missing'})"
        raise CheckpointError(msg) from error
    return head, lines
