"""Live: a run that is seen and steered while it computes, and the schedule that replays it.

One thread owns the simulation. Others put commands into a queue, which are obeyed between two time
blocks, and get pictures. Whatever changes the run is written into a file with its step before another step
is made: the same changes at the same steps lead to the same bits.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import logging
import math
import queue
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.config import Config, make_config
from tetris_sim.config.overrides import Override
from tetris_sim.errors import CheckpointError, ConfigError, TetrisError
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs import results
from tetris_sim.outputs.checkpoint import RunState
from tetris_sim.outputs.figure_layout import FIELD_COLOURS, pixels
from tetris_sim.outputs.make import name_probes, probe_position
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.raster import colour_scale
from tetris_sim.outputs.regions import neighbours_of, read_along
from tetris_sim.outputs.sampling import CrossSection, default_cuts, sample
from tetris_sim.scheduler.facts.shares import Plan, names_of
from tetris_sim.simulation.driving import onward, reading
from tetris_sim.simulation.launch import Underway, underway
from tetris_sim.simulation.loop import Simulation
from tetris_sim.simulation.resuming import Start
from tetris_sim.support.stopping import Stopping, StopReason
from tetris_sim.version import __version__

log = logging.getLogger("tetris_sim")

Change = tuple[Sequence[str | int], Any]  # a key of the configuration, and its value
_VERSION = 1  # of the schedule
_CHANGED = ("model", "boundaries", "control")  # sections of which values may change on the way
_FRAME = 1 / 30  # seconds between two pictures
_UNSEEN = 0.25  # seconds between two looks at the queue while nobody sees
_CURVE = 2000  # points of a curve; every other one is dropped where there are more
_MOST_SHOWN = 4096  # points of a picture per axis, whatever a page asks for


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
        fixed = [str(path[0]) for path, _ in changes if path[0] not in _CHANGED]
        if fixed:
            msg = f"{fixed[0]} is fixed while a run goes on; {', '.join(_CHANGED)} may change"
            raise ConfigError(msg)
        simulation, before = self.simulation, self.config
        config = changed(before, changes)
        now = simulation.problem
        problem = onward(simulation, config.build(dt=now.dt))
        # The clock and the steps are those of the run; only the mathematics is another one.
        kept = {"start": now.start, "steps": now.steps}
        problem = dataclasses.replace(problem, **kept)
        old = dataclasses.replace(now, initial=reading(np.array(simulation.field())))
        beginning = Beginning(
            problem,
            simulation.step,
            self.methods,
            {"moved": dict(simulation.moved), "control": dict(simulation.decided())},
            self._run_id,
        )

        simulation.unsaved = False  # what would be saved goes on
        self._stack.close()
        try:
            self.config = config
            self._open(beginning)
        except TetrisError:
            self.config = before
            self._open(dataclasses.replace(beginning, problem=old))
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
                adapt=None if problem is None else lambda _: problem,
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


# The session: who sees the run, and what they ask for.


@dataclass(frozen=True)
class View:
    """What one viewer sees.

    Attributes:
        variable: number of the field.
        axis: of a cut through a 3D grid, in array order.
        at: where it is cut, as a share of the axis from 0 to 1.
        most: points per axis that are shown.
    """

    variable: int = 0
    axis: int = 0
    at: float = 0.5
    most: int = 512


class Viewer:
    """One page, as the session knows it.

    Args:
        wake: told, from the thread of the session, that there is something to send.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake, self.view = wake, View()
        self.notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.frame: bytes | None = None

    def tell(self, **note: Any) -> None:
        """Send a note."""
        self.notes.put(json.dumps(note))
        self.wake()

    def take_notes(self) -> Iterator[str]:
        """What was told since the last call."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self.notes.get_nowait()

    def take(self) -> bytes | None:
        """The newest picture, once."""
        frame, self.frame = self.frame, None
        return frame


@dataclass
class Curves:
    """Numbers over time: probes, and the mean, least and largest value of each field."""

    names: list[str]
    rows: list[list[float]] = field(default_factory=list)
    every: int = 1
    _count: int = 0

    def add(self, row: list[float]) -> bool:
        """Take a row; returns whether it is kept."""
        self._count += 1
        if self._count % self.every:
            return False
        self.rows.append(row)
        if len(self.rows) > _CURVE:
            self.rows, self.every = self.rows[::2], self.every * 2
        return True


class Session:
    """Computes a run in the thread that calls `run`, and obeys what viewers ask for.

    Args:
        config: what to run.
        beginning: with which state, if not that of the configuration.
        overwrite: whether results of an earlier run may be replaced.
        paused: whether it waits before its first step.
        once: whether it ends with the run, and does not wait for a restart.
        stopping: who hears signals.
    """

    def __init__(
        self,
        config: Config,
        beginning: Beginning | None = None,
        *,
        overwrite: bool = False,
        paused: bool = False,
        once: bool = False,
        stopping: Stopping | None = None,
    ) -> None:
        self._config, self._beginning, self._overwrite = config, beginning, overwrite
        self._paused, self._once = paused, once
        self._stopping = stopping or Stopping(aborts=False)
        self._asked: queue.SimpleQueue[tuple[Viewer | None, Mapping[str, Any]]]
        self._asked = queue.SimpleQueue()
        self._viewers: tuple[Viewer, ...] = ()
        self._leaves = self._restarts = False
        self._limit, self._wanted = math.inf, 0  # steps per second; steps while paused
        self._rate, self._block = 0.0, 1
        self._idle = 0.0  # until when nothing is computed, by the clock of perf_counter
        self._failure = ""

    @property
    def directory(self) -> Path:
        """The folder of the results."""
        return results.directory_of(self._config)

    def ask(self, viewer: Viewer | None, command: Mapping[str, Any]) -> None:
        """Put a command into the queue; from any thread.

        Args:
            viewer: who asks, and is told what is wrong with it.
            command: `do` and what belongs to it, see `_obey`.
        """
        self._asked.put((viewer, command))

    def run(self) -> StopReason | None:
        """Compute until the session is told to end; returns why the run has not come to its end.

        Raises:
            TetrisError: as of a run, before it has begun; later, viewers are told.
        """
        while True:
            try:
                reason = self._once_through()
            except TetrisError as error:
                if not self._viewers or self._once:
                    raise
                # The page lives on, so that another value can be tried.
                self._failure = str(error)
                self._tell_all(note="failed", text=self._failure)
                self._wait_for_restart()
                reason = None
            if not self._restarts:
                return reason
            self._beginning, self._overwrite, self._restarts = None, True, False

    def _once_through(self) -> StopReason | None:
        self._failure = ""
        with SteeredRun(
            self._config, self._beginning, overwrite=self._overwrite, stopping=self._stopping
        ) as run:
            problem = run.simulation.problem
            # Jumps and adaptive steps depend on where they begin: all of one length.
            scheme = run.simulation.plan.scheme
            each = None if scheme == "explicit" else max(1, problem.steps // 1000)
            self._schedule, self._blocks = Schedule(run, each), each
            self._curves = Curves(_curve_names(run))
            self._probes = _probes(run)
            self._next_row = self._shown = 0.0
            for viewer in self._viewers:
                self._greet(run, viewer)

            while not self._leaves and not self._restarts:
                self._obey_all(run)
                if self._leaves or self._restarts:
                    break
                if run.ended and self._once:
                    break
                if (reason := self._stopping.reason()) is not None:
                    run.reason = run.reason or reason
                    break
                if not self._rests(run):
                    self._go_on(run)
                    self._show(run, now=self._rests(run))
            self._config = run.config
            self._schedule.note(run.simulation.step, end=True)
            return run.reason

    def _rests(self, run: SteeredRun) -> bool:
        """Whether there is nothing to compute."""
        return run.ended or (self._paused and not self._wanted)

    def _wait_for_restart(self) -> None:
        while not self._leaves and not self._restarts and self._stopping.reason() is None:
            with contextlib.suppress(queue.Empty):
                viewer, command = self._asked.get(timeout=0.1)
                if viewer is not None and command.get("do") == "join":
                    viewer.tell(note="failed", text=self._failure)
                    self._viewers = (*self._viewers, viewer)
                elif command.get("do") == "leave":
                    self._viewers = tuple(it for it in self._viewers if it is not viewer)
                elif command.get("do") == "set":
                    with contextlib.suppress(ConfigError, KeyError, TypeError):
                        self._config = changed(self._config, [(command["key"], command["value"])])
                elif command.get("do") in ("restart", "end"):
                    self._leaves = command["do"] == "end"
                    self._restarts = not self._leaves

    def _go_on(self, run: SteeredRun) -> None:
        """One block: as many steps as fit between two pictures."""
        simulation, begun = run.simulation, time.perf_counter()
        left = simulation.problem.steps - simulation.step
        seconds = _FRAME if self._viewers else _UNSEEN
        steps = self._blocks or max(1, int(min(self._block, self._limit * seconds)))
        if self._paused:
            steps = self._blocks or min(self._wanted, steps)
            self._wanted = max(0, self._wanted - steps)
        steps = min(steps, left)
        run.advance_to(simulation.step + steps)

        took = max(time.perf_counter() - begun, 1e-6)
        self._idle = begun + steps / self._limit
        speed = steps / took
        self._rate = speed if not self._rate else 0.8 * self._rate + 0.2 * speed
        self._block = int(min(max(1, speed * seconds * 0.8), 2 * max(self._block, 1), 1 << 30))

    def _obey_all(self, run: SteeredRun) -> None:
        """Do what was asked for; wait where there is nothing to compute."""
        while not (self._leaves or self._restarts):
            rests = self._rests(run) and not (run.ended and self._once)
            pause = 0.1 if rests else min(0.1, max(0.0, self._idle - time.perf_counter()))
            try:
                viewer, command = self._asked.get(timeout=pause) if pause else self._asked.get(False)
            except queue.Empty:
                # A slow run waits here for its time, and hears commands meanwhile.
                if pause and not rests and self._stopping.reason() is None:
                    continue
                return
            # Of many changes of one value, as of a slider, the last one counts.
            changes: list[tuple[Viewer | None, Change]] = []
            while command.get("do") == "set":
                changes.append((viewer, (command.get("key"), command.get("value"))))
                try:
                    viewer, command = self._asked.get_nowait()
                except queue.Empty:
                    command = {}
            if changes:
                self._change(run, changes)
            if command:
                self._obey(run, viewer, command)

    def _change(self, run: SteeredRun, asked: Sequence[tuple[Viewer | None, Change]]) -> None:
        latest = {json.dumps(key): (viewer, (key, value)) for viewer, (key, value) in asked}
        changes = [change for _, change in latest.values()]
        try:
            if not all(isinstance(key, list) and key for key, _ in changes):
                msg = "a change has a key, a list of its parts, and a value"
                raise ConfigError(msg)  # noqa: TRY301  told as all that is refused
            step = run.simulation.step
            run.change(changes)
            self._schedule.note(step, set=changes)
            self._probes = _probes(run)
        except TetrisError as error:
            for viewer in {viewer for viewer, _ in latest.values() if viewer is not None}:
                viewer.tell(note="refused", text=str(error))
        self._tell_all(note="knobs", knobs=knobs(run.config))
        self._show(run, now=True)

    def _obey(self, run: SteeredRun, viewer: Viewer | None, command: Mapping[str, Any]) -> None:
        """Do one thing.

        Commands: join, leave, view (field, axis, at, most), pause, go, step (steps), limit (steps
        per second or null), restart, save, paint (stroke), end.
        """
        do = command.get("do")
        try:
            if do == "join" and viewer is not None:
                self._viewers = (*self._viewers, viewer)
                self._greet(run, viewer)
            elif do == "leave":
                self._viewers = tuple(it for it in self._viewers if it is not viewer)
            elif do == "view" and viewer is not None:
                viewer.view = _view(run.simulation.problem, command)
            elif do in ("pause", "go"):
                self._paused = do == "pause"
            elif do == "step":
                self._paused, self._wanted = True, max(1, int(command.get("steps") or 1))
            elif do == "limit":
                given = command.get("rate")
                self._limit = math.inf if given is None else max(1e-3, float(given))
            elif do == "save":
                run.simulation.save()
                self._tell_all(note="saved", step=run.simulation.step)
            elif do == "paint":
                # Written first: what is not written cannot be replayed.
                run.paint(command["stroke"])
                self._schedule.note(run.simulation.step, paint=command["stroke"])
            elif do == "restart":
                self._restarts = True
            elif do == "end":
                self._leaves = True
            else:
                msg = f"there is no command {do!r}"
                raise ConfigError(msg)  # noqa: TRY301  told as all that is refused
        except (TetrisError, KeyError, TypeError, ValueError) as error:
            if viewer is not None:
                viewer.tell(note="refused", text=str(error))
            return
        if do in ("pause", "go", "step", "limit"):
            self._tell_all(**self._state())
        if do not in ("leave", "restart", "end"):
            self._show(run, now=True)

    def _state(self) -> dict[str, Any]:
        limit = None if math.isinf(self._limit) else self._limit
        return {"note": "state", "paused": self._paused, "limit": limit}

    def _tell_all(self, **note: Any) -> None:
        for viewer in self._viewers:
            viewer.tell(**note)

    def _greet(self, run: SteeredRun, viewer: Viewer) -> None:
        seen = run.simulation.problem.seen
        grid = seen.grid
        viewer.tell(
            note="hello",
            title=run.config.title or run.directory.name,
            fields=[{"name": it.name, "unit": it.unit} for it in seen.variables],
            axes=grid.axis_names,
            bounds=[grid.bounds(axis) for axis in range(grid.ndim)],
            shape=grid.shape,
            steps=seen.steps,
            dt=seen.dt,
            colours=base64.b64encode(colour_scale(FIELD_COLOURS).tobytes()).decode(),
            curves={"names": self._curves.names, "rows": self._curves.rows},
            knobs=knobs(run.config),
            directory=str(run.directory),
        )
        viewer.tell(**self._state())
        viewer.frame = None
        self._show(run, now=True)

    def _show(self, run: SteeredRun, *, now: bool = False) -> None:
        """Make the pictures that are waited for."""
        clock = time.perf_counter()
        if not self._viewers or (clock - self._shown < _FRAME * 0.9 and not now):
            return
        self._shown = clock
        simulation = run.simulation
        snapshot = simulation.snapshot().seen()
        row = self._row(snapshot, clock)
        left = (simulation.problem.steps - simulation.step) / min(
            self._rate or math.inf, self._limit
        )
        head = {
            "step": simulation.step,
            "time": simulation.time,
            "rate": self._rate,
            "left": left if self._rate else None,
            "ended": run.ended,
        }
        made: dict[View, bytes] = {}
        for viewer in self._viewers:
            if viewer.frame is not None and not now:
                continue  # it is slower than the run: the next one is newer
            if viewer.view not in made:
                made[viewer.view] = make_frame(snapshot, viewer.view, head)
            viewer.frame = made[viewer.view]
            if row is not None:
                viewer.tell(note="row", row=row)
            viewer.wake()

    def _row(self, snapshot: Snapshot, clock: float) -> list[float] | None:
        """Numbers of this moment, as often as takes a tenth of the time at most."""
        if clock < self._next_row:
            return None
        values = [
            float(read_along(snapshot, axes)[variable])
            for axes in self._probes
            for variable in range(len(snapshot.problem.variables))
        ]
        whole = tuple((0, n) for n in snapshot.problem.grid.shape)
        volumes = snapshot.problem.grid.volumes(whole)
        for field_values in snapshot.box(whole):
            there = np.isfinite(field_values)
            kept = field_values[there].astype(np.float64)
            share = np.broadcast_to(volumes, there.shape)[there]
            mean = float((kept * share).sum() / share.sum()) if kept.size else math.nan
            values += [mean, *(([float(kept.min()), float(kept.max())]) if kept.size else [mean] * 2)]
        took = time.perf_counter() - clock
        self._next_row = clock + max(0.1, 10 * took)
        row = [snapshot.time, *values]
        return row if self._curves.add(row) else None


def _view(problem: Problem, command: Mapping[str, Any]) -> View:
    grid, n = problem.grid, len(problem.seen.variables)
    view = View(
        int(command.get("field", 0)),
        int(command.get("axis", 0)),
        min(1.0, max(0.0, float(command.get("at", 0.5)))),
        min(_MOST_SHOWN, max(2, int(command.get("most", 512)))),
    )
    if not (0 <= view.variable < n and 0 <= view.axis < grid.ndim):
        msg = f"there are {n} fields and {grid.ndim} axes"
        raise ConfigError(msg)
    return view


def make_frame(snapshot: Snapshot, view: View, head: Mapping[str, Any]) -> bytes:
    """A picture as bytes: the length of a JSON text, that text, float32 values row by row.

    Args:
        snapshot: the state as people see it.
        view: which part of it.
        head: what the text says besides.
    """
    grid = snapshot.problem.grid
    cut = default_cuts(grid)[0]
    if grid.ndim == 3:
        n = grid.shape[view.axis]
        cut = CrossSection(view.axis, min(n - 1, int(view.at * n)))
    plane = sample(
        lambda box: snapshot.box(box)[view.variable], grid, (cut,), most=view.most
    )[0]
    values = np.ascontiguousarray(pixels(plane), dtype="<f4")
    finite = values[np.isfinite(values)]
    text = json.dumps(
        {
            **head,
            "field": view.variable,
            "axes": plane.axes,
            "bounds": plane.bounds,
            "ends": [(float(it[0]), float(it[-1])) for it in plane.edges],
            "place": plane.place,
            "shape": values.shape,
            "low": float(finite.min()) if finite.size else 0.0,
            "high": float(finite.max()) if finite.size else 1.0,
        }
    ).encode()
    text += b" " * (-len(text) % 4)  # floats begin at a multiple of their size
    return struct.pack("<I", len(text)) + text + values.tobytes()


def _probes(run: SteeredRun) -> list[list[Any]]:
    """Of each probe, the points around it along each axis."""
    problem = run.simulation.problem.seen
    found = []
    for name, probe in name_probes(run.config.output.probes).items():
        place = probe_position(problem.grid, name, probe)
        found.append(
            [neighbours_of(problem, axis, place[axis]) for axis in range(problem.grid.ndim)]
        )
    return found


def _curve_names(run: SteeredRun) -> list[str]:
    variables = [it.name for it in run.simulation.problem.seen.variables]
    names = [
        name if len(variables) == 1 else f"{name} {variable}"
        for name in name_probes(run.config.output.probes)
        for variable in variables
    ]
    return names + [f"{it} {what}" for it in variables for what in ("mean", "min", "max")]


# Values that a page offers to change: numbers and formulas that are arguments of kernels.

_OFFERED = {
    "h",
    "ambient",
    "value",
    "flux",
    "power",
    "emissivity",
    "absorptivity",
    "resistance",
    "temperature",
    "flow",
    "speed",
    "output",
    "setpoint",
}
_ALL_OF = {"constants", "path"}
_PLACES = {"box", "initial", "at", "offset", "centre", "between"}  # no arguments of kernels


def knobs(config: Config) -> list[dict[str, Any]]:
    """Keys of a configuration that may change while it runs, with their values.

    Returns:
        For each its `key` as a list of parts, and its `value`, a number or a formula.
    """
    data = config.resolved()
    found: list[dict[str, Any]] = []
    for section in _CHANGED:
        for key, value in _leaves(data.get(section) or {}, (section,)):
            if key[-1] in _OFFERED or not _ALL_OF.isdisjoint(key[:-1]):
                found.append({"key": list(key), "value": value})
    return found


def _leaves(
    data: Any, key: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], float | str]]:
    if isinstance(data, Mapping):
        for name, value in data.items():
            if name not in _PLACES:
                yield from _leaves(value, (*key, name))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _leaves(value, (*key, number))
    elif isinstance(data, int | float | str) and not isinstance(data, bool):
        yield key, data
