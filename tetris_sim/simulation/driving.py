"""Driving: how far a simulation goes on, who is asked meanwhile, and what state it goes on from."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.config.sections.quantities import IntervalText, Quantity
from tetris_sim.errors import ConfigError, NumericsError
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.problem import Field, InitialField, Problem, as_array, stays
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.output import StateSnapshot, StepSchedule
from tetris_sim.scheduler.facts.shares import Share
from tetris_sim.scheduler.workers.worker import Worker, open_worker
from tetris_sim.support.stopping import StopReason
from tetris_sim.support.wording import listed, suggestion

if TYPE_CHECKING:
    from tetris_sim.simulation.workers import WorkerGroup

_UNTIL = Quantity("a time", "s", ("2 s", "5 ms"), "nonnegative")
_EVERY = IntervalText(wall=False)


@dataclass(frozen=True)
class Goal:
    """How far, and whose calls on the way.

    Attributes:
        last: the step to end at.
        schedule: when to call; never if not given.
        call: what is called then.
    """

    last: int
    schedule: StepSchedule | None = None
    call: Callable[[Any], object] | None = None

    def next_step(self, step: int) -> int:
        """The next step at which to stop for a call, or for good."""
        due = None if self.schedule is None else self.schedule.next_step(step)
        return self.last if due is None else due

    def call_if_due(self, simulation: Any, turn: Turn) -> None:
        """Call, if it is time."""
        if self.call is None or self.schedule is None:
            return
        if self.schedule.is_due(simulation.step):
            turn.call(self.call, simulation)


class Turn:
    """Whose turn it is to use a simulation: one thread at a time, of the process that opened it.

    Attributes:
        sound: whether the state is that of one step, with nothing left half done.
        calling: whether a call of the user is under way, from inside a run.
    """

    def __init__(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()
        self.sound, self.calling = True, False

    @property
    def is_here(self) -> bool:
        """Whether this is the process that opened the simulation, and no forked child of it."""
        return os.getpid() == self._process

    @contextlib.contextmanager
    def taken(self, *, changes: bool = False, alone: str = "") -> Iterator[None]:
        """Use the simulation inside the block.

        Args:
            changes: whether the block changes the state; if it fails, the state is not sound.
            alone: the name of what does not fit into a call of the user, if it does not.

        Raises:
            ConfigError: another thread is using it, it belongs to another process, or this is
                inside of a call of the user.
        """
        self.refuse_child()
        # Reentrant, so that a call of the user may use the simulation it was made from; a second
        # thread is refused instead of queued, since it would find another state than it expects.
        if not self._lock.acquire(blocking=False):
            msg = (
                "another thread is using this simulation: one thread at a time may advance, read "
                "or change it; let one wait for the other, or open a simulation in each"
            )
            raise ConfigError(msg)
        try:
            if alone and self.calling:
                msg = (
                    f"{alone} inside of `call`: the run that makes the call is under way. End it "
                    f"with `raise StopIteration`, and use {alone} after it"
                )
                raise ConfigError(msg)

            before = self.sound
            self.sound = before and not changes
            yield
            self.sound = before
        finally:
            self._lock.release()

    def call(self, user: Callable[[Any], object], simulation: Any) -> None:
        """Make a call of the user from inside a run, between two blocks."""
        # Between two blocks the state is that of one step, so the user may read and set it.
        before = self.sound, self.calling
        self.sound = self.calling = True
        try:
            user(simulation)
        except StopIteration:
            self.refuse_child()
            raise
        finally:
            self.calling = before[1]
        self.sound = before[0]
        self.refuse_child()

    def refuse_child(self) -> None:
        """Raise if this process is a forked child of the one that opened the simulation.

        Raises:
            ConfigError: it is; threads and devices did not come along.
        """
        if not self.is_here:
            msg = (
                f"this simulation belongs to process {self._process}, and process {os.getpid()} is "
                "a forked child of it, without its threads and devices: open a simulation in the "
                "child, or take what it needs as arrays before the fork"
            )
            raise ConfigError(msg)


@dataclass(frozen=True)
class Agreed:
    """Actions of all ranks between two blocks.

    Attributes:
        due: the next step at which somebody wants the state.
        check: whether it is time to look for NaN.
        save: whether a checkpoint is wanted now.
        reason: the reason to stop; None to go on.
    """

    due: int
    check: bool
    save: bool
    reason: StopReason | None


def find_goal(
    problem: Problem,
    step: int,
    until: str | float | None,
    every: str | float | None,
    call: Callable[[Any], object] | None,
) -> Goal:
    """Return the goal that the arguments of `Simulation.run` ask for.

    Raises:
        ConfigError: they do not fit together, or to where the simulation is.
    """
    last = problem.steps if until is None else _step_at(problem, step, until)
    if every is None and call is None:
        return Goal(last)
    if every is None or call is None:
        given, missing = ("call", "every") if every is None else ("every", "call")
        msg = f"{given} is given without {missing}; a call is made every so often: give both"
        raise ConfigError(msg)
    if not callable(call):
        msg = f"call is {call!r}; a function of the simulation is wanted"
        raise ConfigError(msg)

    try:
        interval = _EVERY.read(every)
    except ValueError as error:
        msg = f"every: {error}"
        raise ConfigError(msg) from error
    return Goal(last, StepSchedule(interval, problem.dt, last, problem.start), call)


def _step_at(problem: Problem, step: int, until: str | float) -> int:
    """The first step whose time is not before one, to within rounding."""
    try:
        time = _UNTIL.read(until)
    except ValueError as error:
        msg = f"until: {error}"
        raise ConfigError(msg) from error

    # Rounding of `until / dt` must not add a step: a billionth of one counts as reached.
    first, begun = problem.start
    place = first + (time - begun) / problem.dt
    wanted = math.ceil(place - 1e-9 * max(1.0, abs(place) * 1e-3))
    if not step <= wanted <= problem.steps:
        msg = (
            f"until is {until!r}, step {wanted}; the simulation is at "
            f"{problem.time(step):.6g} s, step {step}, and ends at "
            f"{problem.time(problem.steps):.6g} s, step {problem.steps}: give a time between "
            "them, or open it with a later time.t_end"
        )
        raise ConfigError(msg)
    return wanted


def state_of(
    problem: Problem,
    values: npt.ArrayLike,
    name: str | None,
    now: Callable[[], Field],
    where: npt.ArrayLike | None = None,
) -> InitialField:
    """A state from arrays.

    Args:
        problem: what is simulated.
        values: see `Simulation.set_field`.
        name: likewise.
        now: the state as it is, (n_fields, n0, ...); asked if `values` are only a part of it.
        where: likewise.

    Raises:
        ConfigError: they do not fit.
        NumericsError: a value is not finite.
    """
    given = as_array("values", values)
    # Where the state is heat content, users set temperatures: the first variable that they see.
    names = [variable.name for variable in problem.variables]
    if problem.view is not None and problem.view.keep is not None:
        names = [problem.view.variables[0].name]
    if name is not None and name not in names:
        msg = f"there is no field {name!r} to set{suggestion(name, names)}; give {listed(names)}"
        raise ConfigError(msg)

    grid = problem.grid
    # Accepted are one field of the grid's shape, or all fields in one array.
    one = given.shape == grid.shape and (name is not None or len(names) == 1)
    if given.dtype.kind not in "fiub" or not (one or given.shape == (len(names), *grid.shape)):
        several = f" with a name, or {(len(names), *grid.shape)}" if len(names) > 1 else ""
        msg = (
            f"values are of shape {given.shape} of {given.dtype}; real numbers of the grid's shape "
            f"{grid.shape}{several} are wanted"
        )
        raise ConfigError(msg)

    with np.errstate(over="ignore"):
        state = np.array(given[np.newaxis] if one else given, dtype=problem.dtype)
    if (void := problem.voids(tuple((0, n) for n in grid.shape))) is not None:
        state[:, void] = 0  # `Simulation.field` gives NaN there
    if not np.isfinite(state).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(state))[0])
        msg = f"values{list(place[1:])} is {state[place]} in {problem.dtype}; all must be finite"
        raise NumericsError(msg)
    if one and len(names) > 1:
        whole = np.array(now())
        whole[names.index(str(name))] = state[0]
        state = whole

    # From what people see to what is advanced, for example temperature to heat content.
    initial = reading(state)
    if problem.view is not None and problem.view.keep is not None:
        initial = problem.view.keep(initial, problem.dtype)
    if where is None:
        return initial

    points = as_array("where", where)
    if points.shape != grid.shape or points.dtype != np.bool_:
        msg = (
            f"where is of shape {points.shape} of {points.dtype}; booleans of the grid's shape "
            f"{grid.shape} are wanted"
        )
        raise ConfigError(msg)
    # Of a body whose state is heat content, temperatures alone would not say how much has melted.
    return reading(np.where(points, initial(Slab.whole(grid)), now()))


def reading(state: Field) -> InitialField:
    """An array (n_fields, n0, ...) as a function of a slab."""

    def initial(slab: Slab) -> Field:
        return state[(slice(None), *map(slice, slab.start, slab.stop))]

    return initial


def following(fleet: WorkerGroup) -> Problem:
    """Return the problem of the step that begins, which is another one where cells come or go; what
    is too hot goes now.
    """
    problem, phases = fleet.problem, fleet.problem.phases
    if phases is None:
        return problem
    step = fleet.step
    # Every rank has the whole state, so that all of them find the same cells.
    if phases.next_look(problem, step - 1) == step:
        phases.look(problem, fleet.ranks.tell(fleet.field()), step)
    return problem.at(step)


def succeeding(before: Problem, after: Problem, state: Field) -> InitialField:
    """The first state of a phase of a run: what stays keeps the last one of the phase before,
    (n_fields, n0, ...), and what comes has that of its initial field.
    """
    kept = reading(state)

    def initial(slab: Slab) -> Field:
        return np.where(stays(before, after, slab.spans), kept(slab), after.initial(slab))

    return initial


def snapshot_of(
    problem: Problem, state: Field, step: int, moved: Mapping[str, float]
) -> StateSnapshot:
    """A whole state, (n_fields, n0, ...), as a snapshot, with what was moved until then."""
    return StateSnapshot(
        problem, step, lambda box: state[(slice(None), *(slice(*it) for it in box))], moved=moved
    )


def open_workers(
    problem: Problem, shares: Sequence[Share], stack: contextlib.ExitStack
) -> list[Worker]:
    """Those of some shares; closed with the stack, also if one cannot be opened."""
    workers = []
    for share in shares:
        workers.append(open_worker(problem, share))
        stack.callback(workers[-1].close)
    return workers


def onward(fleet: WorkerGroup, problem: Problem) -> Problem:
    """A problem with the state of a simulation as its step 0, at the time of that.

    Raises:
        ConfigError: the state is not one of this problem.
    """
    before, step = fleet.problem, fleet.step
    # Steps are counted anew, and the clock goes on: tables and formulas of t continue.
    problem = dataclasses.replace(problem, start=(0, before.time(step)))
    if (phases := problem.phases) is not None:
        if before.phases is not None and before.phases.gone is not None:
            phases.restore(before.phases.gone.state(), problem.dt)
        problem = problem.at(0)
        phases.refuse_between(problem)
    kinds = [
        (it.grid, np.dtype(it.dtype).name, [variable.name for variable in it.variables])
        for it in (before, problem)
    ]
    if kinds[0] != kinds[1]:
        msg = (
            "a simulation goes on from the state of another one on the same grid, with the same "
            "precision and the same fields; leave these as they are"
        )
        raise ConfigError(msg)

    # Where people see something else than the state, it must mean the same to both.
    state = np.array(fleet.field())
    seen = [
        state if it.view is None else it.view.look(tuple((0, n) for n in it.grid.shape), state)
        for it in (before, problem)
    ]
    if not np.array_equal(seen[0], seen[1], equal_nan=True):
        msg = (
            "the heat content of the state would be that of other temperatures: leave the "
            "materials as they are where one melts or has a table over temperature, or begin a "
            "new run with temperatures (initial)"
        )
        raise ConfigError(msg)
    return dataclasses.replace(problem, initial=reading(state))


def with_faces(fleet: WorkerGroup, boundary: Any) -> Problem:
    """Return the rest of the problem of a simulation without a configuration, with other faces.

    Raises:
        ConfigError: they do not fit to the problem.
    """
    if not isinstance(boundary, Boundary):
        msg = (
            f"boundaries is {boundary!r}; a Boundary is wanted for a simulation of a bare problem, "
            "and for sections as in a configuration open it with simulate(config)"
        )
        raise ConfigError(msg)
    problem = fleet.problem
    if problem.signals:
        # Both would decide with the same signals.
        msg = (
            "this simulation of a bare problem has controllers, lumps or currents, which belong to "
            "one simulation: open it with simulate(config) to go on with other faces"
        )
        raise ConfigError(msg)

    try:
        changed = dataclasses.replace(problem, boundary=boundary)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return onward(fleet, dataclasses.replace(changed, steps=problem.steps - fleet.step))
