"""Live: the session of a run that is seen and steered while it computes.

One thread owns the simulation. Others put commands into a queue, which are obeyed between two time
blocks, and get pictures.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import queue
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.api.steering import CHANGEABLE, Beginning, Change, Schedule, SteeredRun, changed
from tetris_sim.config import Config
from tetris_sim.errors import ConfigError, TetrisError
from tetris_sim.model.problem import Problem
from tetris_sim.outputs import results
from tetris_sim.outputs.figure_layout import FIELD_COLOURS, pixels
from tetris_sim.outputs.make import name_probes, probe_position
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.raster import colour_scale
from tetris_sim.outputs.regions import neighbours_of, read_along
from tetris_sim.outputs.sampling import CrossSection, default_cuts, sample
from tetris_sim.support.stopping import Stopping, StopReason

_FRAME = 1 / 36  # seconds between two pictures; 30 a second are wanted, and blocks may take longer
_UNSEEN = 0.25  # seconds between two looks at the queue while no viewer is connected
_CURVE = 2000  # points of a curve; every other one is dropped where there are more
_MOST_SHOWN = 4096  # points of a picture per axis, whatever a page asks for


# The session: who sees the run, and what they ask for.


@dataclass(frozen=True)
class Sight:
    """A viewer's choice of a field and of a cut through it.

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
        self.wake, self.view = wake, Sight()
        self.notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.frame: bytes | None = None

    def tell(self, **note: Any) -> None:
        """Send a note."""
        self.notes.put(json.dumps(note))
        self.wake()

    def take_notes(self) -> Iterator[str]:
        """Return the notes since the last call."""
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
    rows: list[list[float | None]] = field(default_factory=list)
    every: int = 1
    _count: int = 0

    def add(self, row: list[float | None]) -> bool:
        """Take a row; returns whether it is kept."""
        self._count += 1
        if self._count % self.every:
            return False
        self.rows.append(row)
        # A run of any length fits: later rows lie further apart, and so do earlier ones then.
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

    Attributes:
        finished: set when the run has come to its end, or has ended before.
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
        self._drawing = 0.0  # seconds that the last picture took
        self._idle = 0.0  # until when nothing is computed, by the clock of perf_counter
        self._failure = ""
        self.finished = threading.Event()

    @property
    def directory(self) -> Path:
        """The folder of the results."""
        return results.directory_of(self._config)

    def ask(self, viewer: Viewer | None, command: Mapping[str, Any]) -> None:
        """Put a command into the queue; from any thread.

        Args:
            viewer: who asks, and receives the message if it is wrong.
            command: `do` and what belongs to it, see `_obey`.
        """
        self._asked.put((viewer, command))

    def run(self) -> StopReason | None:
        """Compute until the session is asked to end; returns why the run has not come to its end.

        Raises:
            TetrisError: as of a run, before it has begun; later errors go to the viewers.
        """
        try:
            return self._run()
        finally:
            self.finished.set()

    def _run(self) -> StopReason | None:
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
        self.finished.clear()
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

            # Who was there before a restart sees the new run.
            for viewer in self._viewers:
                self._greet(run, viewer)

            while not self._leaves and not self._restarts:
                self._obey_all(run)
                if self._leaves or self._restarts:
                    break
                # A run at its end waits for a restart, or for the last look at its picture.
                if run.ended and self._once:
                    break
                if (reason := self._stopping.reason()) is not None:
                    run.reason = run.reason or reason
                    break
                if not self._rests(run):
                    self._go_on(run)
                    if run.ended:
                        self.finished.set()
                    self._show(run, now=self._rests(run))

            # A restart begins with the values as they are now.
            self._config = run.config
            self._schedule.note(run.simulation.step, end=True)
            return run.reason

    def _rests(self, run: SteeredRun) -> bool:
        """Whether there is nothing to compute."""
        return run.ended or (self._paused and not self._wanted)

    def _wait_for_restart(self) -> None:
        # There is no simulation meanwhile: only values can be changed, for the next one.
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
        # A picture takes its time too; of what is left, steps get most.
        seconds = max(_FRAME / 3, _FRAME - self._drawing) if self._viewers else _UNSEEN
        steps = self._blocks or max(1, int(min(self._block, self._limit * seconds)))
        if self._paused:
            steps = self._blocks or min(self._wanted, steps)
            self._wanted = max(0, self._wanted - steps)
        steps = min(steps, left)

        run.advance_to(simulation.step + steps)

        took = max(time.perf_counter() - begun, 1e-6)
        self._idle = begun + steps / self._limit
        # The rate of one block is that of a busy machine, or of a first call: smoothed.
        speed = steps / took
        self._rate = speed if not self._rate else 0.8 * self._rate + 0.2 * speed
        # At most twice as many as before: the first block may have been too fast to be measured.
        self._block = int(min(max(1, speed * seconds), 2 * max(self._block, 1), 1 << 30))

    def _obey_all(self, run: SteeredRun) -> None:
        """Do what was asked for; wait where there is nothing to compute."""
        while not (self._leaves or self._restarts):
            rests = self._rests(run) and not (run.ended and self._once)
            pause = 0.1 if rests else min(0.1, max(0.0, self._idle - time.perf_counter()))
            try:
                viewer, command = (
                    self._asked.get(timeout=pause) if pause else self._asked.get(False)
                )
            except queue.Empty:
                # A slow run waits here for its time, and hears commands meanwhile.
                if pause and not rests and self._stopping.reason() is None:
                    continue
                return

            # Of many changes of one value, as of a slider, the last one counts.
            changes: list[tuple[Viewer | None, Change]] = []
            with contextlib.suppress(queue.Empty):
                while command.get("do") == "set":
                    key, value = command.get("key"), command.get("value")
                    changes.append((viewer, (key if isinstance(key, list) else [], value)))
                    viewer, command = self._asked.get_nowait()
            if changes:
                self._change(run, changes)
            if command.get("do") != "set":
                self._obey(run, viewer, command)

    def _change(self, run: SteeredRun, asked: Sequence[tuple[Viewer | None, Change]]) -> None:
        latest = {json.dumps(key): (viewer, (key, value)) for viewer, (key, value) in asked}
        changes = [change for _, change in latest.values()]

        # All or none: a slider that is refused does not leave half of a change behind.
        try:
            if not all(key for key, _ in changes):
                msg = "a change has a key, a list of its parts, and a value"
                raise ConfigError(msg)
            step = run.simulation.step
            run.change(changes)
            self._schedule.note(step, set=changes)
            self._probes = _probes(run)
        except TetrisError as error:
            for viewer in {viewer for viewer, _ in latest.values() if viewer is not None}:
                viewer.tell(note="refused", text=str(error))

        # All pages show the values that count, also where a slider was moved in vain.
        self._tell_all(note="knobs", knobs=knobs(run.config))
        self._show(run, now=True)

    def _obey(self, run: SteeredRun, viewer: Viewer | None, command: Mapping[str, Any]) -> None:
        """Do one thing.

        Commands: join, leave, view (field, axis, at, most), pause, go, step (steps), limit (steps
        per second or null), restart, save, paint (stroke), end.
        """
        do = command.get("do")

        # What a page sends is anything: it is refused as soon as it does not fit.
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
                # Written before the next step: what is not written cannot be replayed.
                run.paint(command["stroke"])
                self._schedule.note(run.simulation.step, paint=command["stroke"])
            elif do == "restart":
                self._restarts = True
            elif do == "end":
                self._leaves = True
            else:
                msg = f"there is no command {do!r}"
                raise ConfigError(msg)
        except (TetrisError, KeyError, TypeError, ValueError) as error:
            if viewer is not None:
                viewer.tell(note="refused", text=str(error))
            return

        # Several pages may steer: each shows what another one has done.
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

        # Colours are those of all pictures, so that a page and a report look alike.
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
        if not self._viewers or (clock - self._shown < _FRAME * 0.6 and not now):
            return
        self._shown = clock

        # Read once, by the thread that owns it, for all viewers.
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

        # Viewers with the same view share one picture.
        made: dict[Sight, bytes] = {}
        for viewer in self._viewers:
            if row is not None:
                viewer.tell(note="row", row=row)
            if viewer.frame is not None and not now:
                continue  # it is slower than the run: the next one is newer
            if viewer.view not in made:
                made[viewer.view] = make_frame(snapshot, viewer.view, head)
            viewer.frame = made[viewer.view]
            viewer.wake()
        self._drawing = time.perf_counter() - clock

    def _row(self, snapshot: Snapshot, clock: float) -> list[float | None] | None:
        """Numbers of this moment, as often as takes a tenth of the time at most."""
        if clock < self._next_row:
            return None
        values = [
            float(read_along(snapshot, axes)[variable])
            for axes in self._probes
            for variable in range(len(snapshot.problem.variables))
        ]

        # Means are by volume, as in statistics; voids are no numbers.
        whole = tuple((0, n) for n in snapshot.problem.grid.shape)
        volumes = snapshot.problem.grid.volumes(whole)
        for field_values in snapshot.box(whole):
            there = np.isfinite(field_values)
            kept = field_values[there].astype(np.float64)
            share = np.broadcast_to(volumes, there.shape)[there]
            mean = float((kept * share).sum() / share.sum()) if kept.size else math.nan
            values += [
                mean,
                *(([float(kept.min()), float(kept.max())]) if kept.size else [mean] * 2),
            ]

        # Of a large grid these take longer than a picture, so they come less often.
        took = time.perf_counter() - clock
        self._next_row = clock + max(0.1, 10 * took)
        # JSON has no NaN.
        row = [it if math.isfinite(it) else None for it in (snapshot.time, *values)]
        return row if self._curves.add(row) else None


def _view(problem: Problem, command: Mapping[str, Any]) -> Sight:
    grid, n = problem.grid, len(problem.seen.variables)
    view = Sight(
        int(command.get("field", 0)),
        int(command.get("axis", 0)),
        min(1.0, max(0.0, float(command.get("at", 0.5)))),
        min(_MOST_SHOWN, max(2, int(command.get("most", 512)))),
    )
    # Whatever is out of range has no meaning; positions and sizes were clipped.
    if not (0 <= view.variable < n and 0 <= view.axis < grid.ndim):
        msg = f"there are {n} fields and {grid.ndim} axes"
        raise ConfigError(msg)
    return view


def make_frame(snapshot: Snapshot, view: Sight, head: Mapping[str, Any]) -> bytes:
    """A picture as bytes: the length of a JSON text, that text, float32 values row by row.

    Args:
        snapshot: the state as people see it.
        view: which part of it.
        head: what the text says besides.
    """
    grid = snapshot.problem.grid
    # A share of the axis, so that a page needs to know nothing of cells.
    cut = default_cuts(grid)[0]
    if grid.ndim == 3:
        n = grid.shape[view.axis]
        cut = CrossSection(view.axis, min(n - 1, int(view.at * n)))
    plane = sample(lambda box: snapshot.box(box)[view.variable], grid, (cut,), most=view.most)[0]

    # Graded axes are resampled to cells of one width, as in all pictures.
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
_PLACES = {
    "box",
    "initial",
    "at",
    "offset",
    "centre",
    "between",
    "initial_velocity",
}  # no arguments of kernels


def knobs(config: Config) -> list[dict[str, Any]]:
    """Keys of a configuration that may change while it runs, with their values.

    Returns:
        For each its `key` as a list of parts, and its `value`, a number or a formula.
    """
    data = config.resolved()
    found: list[dict[str, Any]] = []
    # In the order of the file: what is written together stays together.
    for section in CHANGEABLE:
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
