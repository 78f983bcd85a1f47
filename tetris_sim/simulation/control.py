"""Control: sensors that are looked at while a run goes on, the events that end it, and controllers.

A look takes the few cells of the sensors. How many steps may pass until the next one follows from
the numbers of the looks so far: half the way to the nearest limit, at the speed and acceleration of
the sensor, at most twice as many as before, and a single one after something was switched. So
looks come at every step where a limit is near, and are rare elsewhere; they do not depend on time
blocks, devices, outputs or interruptions, and neither do decisions. A sensor that jumps over a
limit between two distant looks is found late, and the report says by how many steps at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tetris_sim.apps.time_functions import TimeFunction, read_course
from tetris_sim.config.sections.conditions import (
    ControllerSection,
    EventSection,
    SensorSection,
    sensors_in,
)
from tetris_sim.config.sections.quantities import TEMPERATURE, Every
from tetris_sim.config.sections.schema import OverSection, Request
from tetris_sim.config.sections.varying import Varying
from tetris_sim.errors import ExitCode
from tetris_sim.model.problem import Problem
from tetris_sim.model.step_control import Signal
from tetris_sim.outputs.make import name_probes, probe_position, select
from tetris_sim.outputs.output import Snapshot, StepSchedule
from tetris_sim.outputs.regions import neighbours_of, read_along
from tetris_sim.outputs.tables import Selection, blocks_within
from tetris_sim.simulation.monitors import LumpedParts
from tetris_sim.simulation.workers import WorkerGroup
from tetris_sim.support.stopping import StopReason
from tetris_sim.support.wording import format_time

_MOST_STEPS = 64  # between two looks, if nobody says how many
_MOST_TOLD = 12  # crossings of one limit that the report lists
_SHARE = 0.5  # of the way to a limit that may pass until the next look
Read = Callable[[Snapshot], float]


def make_sensor(request: Request, problem: Problem, sensor: SensorSection) -> Read:
    """A sensor as a function of snapshots; it reads the cells that it needs, and no others.

    Args:
        request: the configuration.
        problem: as people see it.
        sensor: its section.

    Raises:
        ConfigError: it lies outside of the box, or holds no point.
    """
    names = [variable.name for variable in problem.variables]
    field = 0 if sensor.field is None else names.index(sensor.field)
    if sensor.mean is None:
        name = str(sensor.probe)
        place = probe_position(problem.grid, name, name_probes(request.output.probes)[name])
        axes = [neighbours_of(problem, axis, place[axis]) for axis in range(problem.grid.ndim)]
        return lambda snapshot: float(read_along(snapshot, axes)[field])

    # A part that statistics name, or else a region.
    statistics = request.output.statistics
    over = {} if statistics is None else statistics.over
    part = over.get(sensor.mean, OverSection(region=sensor.mean))
    return mean_over(select(request, problem, sensor.mean, part), field)


def mean_over(selection: Selection, field: int) -> Read:
    """The mean of a field over some cells, by volume; where these lie is found out once."""
    problem, parts = selection.problem, []
    # Blocks of the grid, so that sums are the same for any partition.
    for box in blocks_within(problem, selection.box):
        at = selection.inside(box)
        # The smallest box around the cells: what a look fetches from the devices.
        if at.any():
            spans = [
                np.flatnonzero(at.any(axis=tuple(b for b in range(at.ndim) if b != a)))
                for a in range(at.ndim)
            ]
            inner = tuple(slice(it[0], it[-1] + 1) for it in spans)
            tight = tuple(
                (low + it.start, low + it.stop) for (low, _), it in zip(box, inner, strict=True)
            )
            parts.append((tight, at[inner], problem.grid.volumes(tight)[at[inner]]))
    whole = math.fsum(float(volumes.sum()) for _, _, volumes in parts)

    def read(snapshot: Snapshot) -> float:
        sums = [
            float((snapshot.box(box)[field][at].astype(np.float64) * volumes).sum())
            for box, at, volumes in parts
        ]
        return math.fsum(sums) / whole

    return read


class Watcher(Protocol):
    """A controller or an event: it decides by the numbers of one sensor.

    Attributes:
        sensor: number of its sensor.
        text: what it is, in words that tell it from others.
    """

    sensor: int
    text: str

    def distance(self, value: float, time: float) -> float:
        """How far the sensor is from the limit that counts; infinite if it looks by the clock."""

    def next_step(self, step: int) -> int:
        """The next step at which it looks at the latest."""

    def look(self, value: float, time: float, step: int) -> str:
        """Decide; returns what has happened, empty if nothing has."""

    def state(self) -> dict[str, Any]:
        """Its memory, as plain data."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take what it remembered in an earlier part of the run."""


class Crossing:
    """Whether a sensor is beyond a limit.

    Attributes:
        holds: at the last look.
    """

    def __init__(self, section: EventSection, sensor: int, schedule: StepSchedule) -> None:
        self._section, self.sensor, self._schedule = section, sensor, schedule
        self.holds, self.text = False, section.text

    def distance(self, value: float, time: float) -> float:
        """See `Watcher`."""
        return abs(value - self._section.limit)

    def next_step(self, step: int) -> int:
        """See `Watcher`."""
        return self._schedule.next_step(step) or self._schedule.last

    def look(self, value: float, time: float, step: int) -> str:
        """See `Watcher`."""
        # A value that is equal to the limit is on neither side of it.
        before, section = self.holds, self._section
        self.holds = section.sign * (value - section.limit) > 0
        if self.holds == before:
            return ""
        return section.text if self.holds else f"{section.place} back at {section.limit:g}"

    def state(self) -> dict[str, Any]:
        """See `Watcher`."""
        return {"holds": self.holds}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Watcher`."""
        self.holds = bool(state["holds"])


class Thermostat:
    """A switch with hysteresis: on beyond one end of a band, off beyond the other."""

    def __init__(
        self, name: str, section: ControllerSection, sensor: int, schedule: StepSchedule
    ) -> None:
        self.text, self._section, self._schedule = name, section, schedule
        self.sensor, self.on = sensor, section.begins == "on"
        self._setpoint = _setpoint(name, section)

    def _band(self, time: float) -> tuple[float, float]:
        # Around a setpoint that may change with time; a fixed band does not.
        if self._section.band is not None:
            return self._section.band
        half = (self._section.hysteresis or 0.0) / 2
        middle = _value(self._setpoint, time)
        return middle - half, middle + half

    def _ends(self, time: float) -> tuple[float, float]:
        """Where it switches on, and where off, of values that heating raises."""
        # Cooling is heating upside down.
        low, high = self._band(time)
        return (low, high) if self._section.action == "heat" else (-high, -low)

    def distance(self, value: float, time: float) -> float:
        """See `Watcher`."""
        on, off = self._ends(time)
        value = value if self._section.action == "heat" else -value
        # Only one end counts: the other one would change nothing.
        return max(off - value if self.on else value - on, 0.0)

    def next_step(self, step: int) -> int:
        """See `Watcher`."""
        return self._schedule.next_step(step) or self._schedule.last

    def look(self, value: float, time: float, step: int) -> str:
        """See `Watcher`."""
        on, off = self._ends(time)
        value = value if self._section.action == "heat" else -value
        before = self.on
        self.on = value < on or (before and value <= off)
        if self.on == before:
            return ""
        return f"{self.text} {'on' if self.on else 'off'}"

    @property
    def output(self) -> float:
        """Its signal."""
        return float(self.on)

    def state(self) -> dict[str, Any]:
        """See `Watcher`."""
        return {"on": self.on}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Watcher`."""
        self.on = bool(state["on"])


class PidController:
    """A PID controller that looks by the clock and holds its output until the next look.

    The integral is that of the trapezoidal rule, and stands still while the output is at a limit
    and the error would drive it further (conditional integration: K. J. Astrom, T. Hagglund,
    Advanced PID Control, 2006, section 3.5).
    """

    def __init__(
        self, name: str, section: ControllerSection, sensor: int, schedule: StepSchedule
    ) -> None:
        assert section.pid is not None
        self._section, self._pid, self._schedule = section, section.pid, schedule
        self.text = name
        self.sensor, self._setpoint = sensor, _setpoint(name, section)
        self._integral = 0.0
        self._before: tuple[float, float, float] | None = None  # time, error, value
        self.output = min(max(section.pid.bias, section.limits[0]), section.limits[1])

    def distance(self, value: float, time: float) -> float:
        """See `Watcher`."""
        return math.inf

    def next_step(self, step: int) -> int:
        """See `Watcher`."""
        return self._schedule.next_step(step) or self._schedule.last

    def look(self, value: float, time: float, step: int) -> str:
        """See `Watcher`."""
        pid, (low, high) = self._pid, self._section.limits
        sign = 1.0 if self._section.action == "heat" else -1.0
        error = sign * (_value(self._setpoint, time) - value)
        integral, rate = self._integral, 0.0
        # After a state was replaced it looks at one time twice.
        if self._before is not None and time > self._before[0]:
            begun, old_error, old_value = self._before
            span = time - begun
            if pid.integral_time is not None:
                integral += span * (error + old_error) / 2 / pid.integral_time
            rate = sign * (old_value - value) / span
        self._before = time, error, value

        # The derivative of the sensor alone: a setpoint that jumps gives no kick.
        damping = 0.0 if pid.derivative_time is None else pid.derivative_time * rate
        wanted = pid.bias + pid.gain * (error + integral + damping)
        # At a limit the integral may only go back.
        drives_on = pid.gain * (integral - self._integral)
        if not ((wanted > high and drives_on > 0) or (wanted < low and drives_on < 0)):
            self._integral = integral
        wanted = pid.bias + pid.gain * (error + self._integral + damping)
        self.output = min(max(wanted, low), high)
        return ""

    def state(self) -> dict[str, Any]:
        """See `Watcher`."""
        return {"integral": self._integral, "before": self._before, "output": self.output}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Watcher`."""
        self._integral, self.output = float(state["integral"]), float(state["output"])
        before = state["before"]
        self._before = None if before is None else (before[0], before[1], before[2])


def _setpoint(name: str, section: ControllerSection) -> TimeFunction:
    given = 0.0 if section.setpoint is None else section.setpoint
    return read_course(given, Varying(TEMPERATURE, ("t",)), f"control.{name}.setpoint")


def _value(course: TimeFunction, time: float) -> float:
    return float(course.at(np.array([time]))[0])


@dataclass
class Track:
    """How a sensor moves, from look to look.

    Attributes:
        value: at the last look.
        rate: per step, between the last two looks; None before the second one.
        gain: of the rate, per step.
        gap: steps between the last two looks, and the most until the next one is twice as many.
    """

    value: float
    rate: float | None = None
    gain: float = 0.0

    def move(self, value: float, steps: int) -> None:
        """Take the number of another look."""
        rate = (value - self.value) / steps
        self.gain = 0.0 if self.rate is None else (rate - self.rate) / steps
        self.value, self.rate = value, rate

    def steps_to(self, distance: float) -> float:
        """How many steps it takes at least to go so far."""
        if self.rate is None:
            return 0.0
        speed, faster = abs(self.rate), abs(self.gain)
        if faster == 0.0:
            return distance / speed if speed else math.inf
        # The positive root of speed n + faster n^2 / 2 = distance, without cancellation.
        return 2 * distance / (speed + math.sqrt(speed * speed + 2 * faster * distance))


class Control:
    """All sensors of a run, and what is decided by them; every rank has one, and all agree.

    Args:
        problem: what is advanced; its signals are decided here.
        sensors: how each is read, from a snapshot as people see it.
        watchers: what decides by them: events, thermostats, PID controllers.
        signals: by the number of a watcher, the signal that follows it.
        ends: `any` or `all`: how many events must hold to end the run.

    Attributes:
        reason: why the run has to end; None to go on.
    """

    def __init__(
        self,
        problem: Problem,
        sensors: Sequence[Read] = (),
        watchers: Sequence[Watcher] = (),
        signals: Mapping[int, Signal] | None = None,
        ends: Callable[[Sequence[bool]], bool] = any,
    ) -> None:
        self._lumps = LumpedParts(problem)
        self._problem, self._sensors, self._watchers = problem, sensors, watchers
        self._signals, self._ends = signals or {}, ends
        self._events = [it for it in watchers if isinstance(it, Crossing)]
        self.reason: StopReason | None = None
        self._tracks: list[Track] = []
        self._looked, self._next, self._gap = -1, 0, 1
        self._told: list[dict[str, Any]] = []
        self._late = 0

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look at."""
        phases = self._problem.phases
        lets_go = phases is not None and phases.gone is not None
        return not self._watchers and self._lumps.is_idle and not lets_go

    def next_step(self, step: int) -> int | None:
        """Smallest step greater than `step` at which it looks; None for never."""
        if not self._lumps.is_idle:
            return step + 1
        return max(self._next, step + 1) if self._watchers else None

    def look(self, fleet: WorkerGroup) -> None:
        """Read the sensors and decide, if it is time; all ranks call this alike."""
        step = fleet.step
        self._lumps.look(fleet)
        if not self._watchers or step < self._next or step == self._looked:
            return
        found: list[float] = []
        fleet.lead("check", lambda: found.extend(self._read(fleet.snapshot().seen())))
        values = fleet.ranks.tell(found)
        self._decide(values, step, fleet.problem.time(step))

    def _read(self, snapshot: Snapshot) -> list[float]:
        return [read(snapshot) for read in self._sensors]

    def _decide(self, values: Sequence[float], step: int, time: float) -> None:
        """Let every watcher decide, and find out when to look again."""
        # All ranks have the same numbers here, so that they come to the same decisions.
        begins, passed = not self._tracks, step - self._looked
        for number, value in enumerate(values):
            if begins:
                self._tracks.append(Track(value))
            else:
                self._tracks[number].move(value, passed)

        switched = False
        for number, watcher in enumerate(self._watchers):
            value = values[watcher.sensor]
            if said := watcher.look(value, time, step):
                late = 0 if begins else passed - 1
                self._late = max(self._late, late)
                self._told.append({"step": step, "time": time, "said": said, "value": value})
                switched = True
            # From this step on, which has not been made yet.
            if number in self._signals:
                output = watcher.output  # type: ignore[attr-defined]
                self._signals[number].decide(time, output)

        # Events of one look count together: `all` is about one state.
        if self._events and self._ends([event.holds for event in self._events]):
            held = [event.text for event in self._events if event.holds]
            self.reason = StopReason(ExitCode.OK, f"{', '.join(held)} (time.until)")
        self._plan(values, step, time, anew=begins or switched)

    def _plan(self, values: Sequence[float], step: int, time: float, *, anew: bool) -> None:
        """Find the step of the next look."""
        if anew:
            # What is known of speeds was under another power.
            self._tracks = [Track(value) for value in values]
        # Twice as many at most: a sensor that has just begun to move may soon be fast.
        gap = 1 if anew else 2 * max(1, step - self._looked)
        due = self._problem.steps
        for watcher in self._watchers:
            away = watcher.distance(values[watcher.sensor], time)
            due = min(due, watcher.next_step(step))
            if math.isfinite(away):
                steps = _SHARE * self._tracks[watcher.sensor].steps_to(away)
                due = min(due, step + max(1, min(gap, math.floor(min(steps, gap)))))
        self._looked, self._next = step, max(due, step + 1)

    @property
    def names(self) -> frozenset[str]:
        """Controllers that decide by themselves."""
        own = {signal.name for signal in self._signals.values()}
        return frozenset(own | self._lumps.names)

    def hasten(self, step: int) -> None:
        """Something was switched by hand: what is known of speeds was under another power."""
        self._next = min(self._next, step + 1)
        self._tracks = [Track(it.value) for it in self._tracks]

    def forget(self) -> None:
        """The state is another one: look at once, with nothing known of speeds."""
        self._tracks, self._looked, self._next, self.reason = [], -1, 0, None
        self._lumps.forget()

    def state(self) -> dict[str, Any]:
        """Everything it remembers, as plain data for a checkpoint."""
        if self.is_idle and not self._problem.signals:
            return {}

        phases = self._problem.phases
        return {
            "looked": self._looked,
            "next": self._next,
            "late": self._late,
            "told": self._told,
            "tracks": [[it.value, it.rate, it.gain] for it in self._tracks],
            "lumps": self._lumps.state(),
            "gone": [] if phases is None or phases.gone is None else phases.gone.state(),
            "watchers": {it.text: it.state() for it in self._watchers},
            "signals": {name: it.decisions.tolist() for name, it in self._problem.signals.items()},
            "reason": None if self.reason is None else self.reason.sentence,
        }

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go on as what a checkpoint remembers; also of fewer or other events."""
        # Of a checkpoint of an earlier version, or of a run without control, there is nothing.
        if not state:
            return

        known = state["watchers"]
        for signal in self._problem.signals.values():
            signal.restore(np.array(state["signals"].get(signal.name, [])))
        self._lumps.restore(state.get("lumps"))
        for watcher in self._watchers:
            if watcher.text in known:
                watcher.restore(known[watcher.text])
        if [*known] != [it.text for it in self._watchers]:
            return  # `until` is another one: everything is looked at once more
        self._looked, self._next, self._late = state["looked"], state["next"], state["late"]
        self._told = list(state["told"])
        self._tracks = [Track(*it) for it in state["tracks"]]
        if self._events and self._ends([event.holds for event in self._events]):
            self.reason = StopReason(ExitCode.OK, str(state["reason"]))

    def follow(self, before: Control, time: float) -> None:
        """Begin with what another simulation has decided until a time [s], at which this one goes
        on from its state: outputs, temperatures of lumps, and what controllers of the same name and
        kind remember.
        """
        for name, signal in self._problem.signals.items():
            if (known := before._problem.signals.get(name)) is not None:
                # What is decided for later belongs to the step that the other one makes next.
                signal.restore(known.decisions[known.decisions[:, 0] <= time])
        self._lumps.follow(time)
        others = {it.text: it for it in before._watchers}
        for watcher in self._watchers:
            if type(other := others.get(watcher.text)) is type(watcher):
                watcher.restore(other.state())

    def lines(self) -> tuple[str, ...]:
        """Sentences for the report: at what times limits were crossed."""
        # One line for each kind of event, however often it happened.
        by: dict[str, list[str]] = {}
        for it in self._told:
            by.setdefault(it["said"], []).append(format_time(it["time"]))
        found = []
        for said, times in by.items():
            more = len(times) - _MOST_TOLD
            listed = ", ".join(times[:_MOST_TOLD]) + (f" and {more} more" if more > 0 else "")
            found.append(f"{said}: at {listed}.")
        if self._late:
            found.append(
                f"Sensors passed a limit between two looks, which found it up to {self._late} "
                "steps late; `every: 1 step` looks at each step."
            )
        return tuple(found)

    @property
    def crossings(self) -> tuple[dict[str, Any], ...]:
        """Crossings of limits so far: step, time [s], what is said of it, the sensor's value."""
        return tuple(self._told)


def make_control(request: Request, problem: Problem) -> Control:
    """The control of a run: its events and its controllers.

    Raises:
        ConfigError: a sensor lies nowhere.
    """
    found = [sensor for _, sensor in sensors_in(request)]
    until = request.time.until
    steps = problem.steps
    watchers: list[Watcher] = []

    # Multiples of an interval by the step alone, as for outputs.
    def schedule(every: Every | None, otherwise: int) -> StepSchedule:
        often = every or Every(otherwise, "steps")
        return StepSchedule(often, problem.dt, steps, problem.start)

    for event in () if until is None else (*until.any, *until.all):
        often = schedule(until.every if until is not None else None, _MOST_STEPS)
        watchers.append(Crossing(event, len(watchers), often))

    # In the order of `sensors_in`: a watcher has the number of its sensor.
    signals = {}
    for name, section in request.control.items():
        if section.sensor is None:
            continue  # decided by Python
        kind = Thermostat if section.pid is None else PidController
        often = schedule(section.every, _MOST_STEPS if section.pid is None else 1)
        signals[len(watchers)] = problem.signals[name]
        watchers.append(kind(name, section, len(watchers), often))

    sensors = [make_sensor(request, problem.seen, sensor) for sensor in found]
    ends = all if until is not None and until.all else any
    return Control(problem, sensors, watchers, signals, ends)
