"""Sweeps by equations: what `cpu.plain` tells its compiled loop, and what it takes of memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.caches import Caches, read_caches
from tetris_sim.cpu_kernels.common.layout import (
    PaddedField,
    allocate_aligned,
    least_margins,
    pad,
)
from tetris_sim.cpu_kernels.common.stepper import CpuStepper, ThreadTeam
from tetris_sim.cpu_kernels.compiled.generate import splice
from tetris_sim.cpu_kernels.compiled.vectors import native_lanes
from tetris_sim.cpu_kernels.equations.rings import RingWork, follow, plan_work
from tetris_sim.cpu_kernels.equations.stages import (
    BEFORE,
    DEPTH,
    EVEN,
    FIELD,
    LAG,
    LIST,
    LONGEST,
    MADE,
    NEXT,
    PITCH,
    REACHED,
    REJECTED,
    SHORTEST,
    START,
    STATE,
    STEP,
    TIME,
    TURN,
    WANTED,
    RowStream,
    settled,
)
from tetris_sim.cpu_kernels.equations.tables import (
    coefficient_layout,
    field_of,
    make_tables,
    scalar_program,
    width_of,
)
from tetris_sim.model.equations import at_step, digit_sums
from tetris_sim.model.grid import OUTER
from tetris_sim.model.method import NOTHING, STEPS_PER_BLOCK, Parameters
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.model.step_control import Controller, Counted

Array = npt.NDArray[Any]
_CLAIM = 8  # counters per cache line


def layout_of(problem: Problem, slab: Slab) -> PaddedField:
    """Memory layout of the state, with room for the ghosts of every name."""
    equations, ndim = settled(problem.system), problem.grid.ndim
    widths = [width_of(equations, name, ndim) for name in equations.ghosts]
    margins = []
    for axis, (low, high) in enumerate(least_margins(problem, slab)):
        most = max((it[OUTER[ndim][axis]] for it in widths), default=0)
        margins.append((max(low, most), max(high, most)))
    return pad(problem, slab, margins)


def work_bytes(problem: Problem, slab: Slab) -> int:
    """Bytes that sweeps take beside the two copies of the state."""
    layout, given = layout_of(problem, slab), coefficient_layout(problem, slab, slab.halo)
    work = settled(problem.system).n_work * layout.field_pitch * layout.dtype.itemsize
    return work + (0 if given is None else given.n_bytes)


class Sweeps:
    """Adapter between a stepper and the compiled loop of `sweep.py`: compiles the stages and fills
    the record of each thread.

    Attributes:
        longest: steps that one block may have.
    """

    def __init__(self, problem: Problem, slab: Slab, layout: PaddedField, threads: int) -> None:
        """Compile the stages and take memory for what lives within a step.

        Args:
            problem: by equations.
            slab: which part of it.
            layout: of the state.
            threads: how many there are.
        """
        from tetris_sim.cpu_kernels.compiled.generate import copied_module

        self._loop = copied_module("equations/sweep.py").advance
        self._tables = make_tables(problem, slab, layout, slab.halo)
        self._layout, self.longest = layout, self._tables.given.longest
        work = self._tables.equations.n_work * layout.field_pitch
        self._work = allocate_aligned(work * layout.dtype.itemsize, layout.dtype, 0)
        self._places = (problem, slab, layout, threads)
        self._known: dict[tuple[tuple[int, int], tuple[int, int] | None], tuple[Array, ...]] = {}
        self._part: tuple[int, int] | None = None  # stages of a substep; None for all of a step

    @property
    def arrays(self) -> None:
        """None that a block hands over: all of them are known."""

    def tables(self, step: int, steps: int) -> tuple[Array]:
        """The parameters of a block."""
        self._part = None
        return (self._tables.given.numbers(step, steps),)

    def substep(
        self, time: float, length: float, part: int, found: Mapping[str, float]
    ) -> tuple[Array]:
        """The parameters of a part of a substep, which the next call makes."""
        begin, end = self._tables.equations.parts[part]
        whole = end - begin == len(self._tables.equations.stages)
        self._part = None if whole else (begin, end)
        return (self._tables.given.numbers_at(time, length, found),)

    def give(self, name: str, of_box: Callable[[Ranges], Array]) -> None:
        """Set a coefficient, a function of boxes of the grid."""
        self._tables.given.give(name, of_box)

    def work_of(self, name: str) -> Array:
        """The array of a name that lives within a step, as it lies in memory."""
        pitch, number = self._layout.field_pitch, self._tables.equations.work[name]
        return self._work[number * pitch : (number + 1) * pitch]

    def __call__(
        self, thread: int, threads: int, current: Array, following: Array, *rest: Any
    ) -> None:
        """Advance as one of some threads; the arguments are those of `CpuStepper`."""
        _, _, numbers, steps, barrier = rest
        arrays, part = (current.ctypes.data, following.ctypes.data), self._part
        # Compiled records refer to addresses, so each order of the two arrays has its own. Threads
        # that come together keep the first: what one of them reads must not be freed by another.
        if (known := self._known.get((arrays, part))) is None:
            known = self._known.setdefault((arrays, part), self._tell(arrays, part))
        own, *_ = known
        # A stride of 0 lets all steps read the one row of constant parameters.
        table = (numbers.ctypes.data, numbers.strides[0] if len(numbers) > 1 else 0)
        self._loop(thread, threads, own, *table, steps, barrier)

    def records(self, current: Array, following: Array) -> tuple[Array, Array]:
        """The records of the threads for substeps that begin in one of two arrays, then in the
        other.
        """
        arrays = current.ctypes.data, following.ctypes.data
        return self._records(arrays, None), self._records(arrays[::-1], None)

    def places(self, current: Array, following: Array) -> npt.NDArray[np.int64]:
        """Addresses of the new fields, then of their errors, after a substep of either order."""
        problem, pitch = self._places[0], self._layout.field_pitch * self._layout.dtype.itemsize
        fields = pitch * np.arange(problem.n_fields)
        errors = [self.work_of(it).ctypes.data for it in error_names(problem)]
        return np.array(
            [[*(it.ctypes.data + fields), *errors] for it in (following, current)], np.int64
        )

    def _records(self, arrays: tuple[int, int], part: tuple[int, int] | None) -> Array:
        # Compiled records refer to addresses, so each order of the two arrays has its own. Threads
        # that come together keep the first: what one of them reads must not be freed by another.
        if (known := self._known.get((arrays, part))) is None:
            known = self._known.setdefault((arrays, part), self._tell(arrays, part))
        own, *_ = known
        return own

    def _tell(self, arrays: tuple[int, int], part: tuple[int, int] | None) -> tuple[Array, ...]:
        """Fill the records of the threads for two arrays, those of the state before an even step
        and after it, and some of the stages; returned with the tables that they refer to.
        """
        tables = self._tables
        lists = tables.lists(2, lambda stream, odd: self._address(stream, arrays, odd))
        names = tables.names.copy()
        for row, name in zip(names, tables.rows, strict=True):
            # The state at the beginning is what an odd step before it would have stored.
            new = RowStream(STATE, tables.equations.results.get(name, name))
            row[EVEN : EVEN + 2] = [self._address(new, arrays, odd) for odd in (0, 1)]

        own = tables.numbers(*self._places)
        own["lists"], own["period"], own["turns"] = lists.ctypes.data, 2, 2
        own["list_bytes"], own["names"] = lists.strides[1], names.ctypes.data
        if part is None:
            return own, lists, names
        begin, end = part
        stages = tables.stages[[0, *range(1 + begin, 1 + end)]]
        # The ghosts of the state are there since the first part.
        stages[0, MADE + 1] = stages[0, MADE] if begin else stages[0, MADE + 1]
        own["n_stages"], own["stages"] = end - begin, stages.ctypes.data
        own["lists"] += begin * lists.strides[0]
        return own, lists, names, stages

    def _address(self, stream: RowStream, arrays: tuple[int, int], odd: int) -> int:
        """Address of a stream of the state at even or at odd steps."""
        equations, layout = self._tables.equations, self._layout
        now, then = arrays[odd], arrays[1 - odd]
        if stream.name in equations.fields:
            base, number = now, equations.fields.index(stream.name)
        elif stream.name in equations.work:
            base, number = int(self._work.ctypes.data), equations.work[stream.name]
        else:
            new = [equations.results[field] for field in equations.fields]
            base, number = then, new.index(stream.name)
        element = number * layout.field_pitch
        element += int(np.dot((stream.plane, stream.row), layout.pitch[:2]))
        return base + element * layout.dtype.itemsize


def error_names(problem: Problem) -> list[str]:
    """The names of the errors of substeps, in the order of their fields."""
    assert problem.system.substeps is not None
    names = problem.system.substeps.errors
    return [names[it] for it in problem.system.fields if it in names]


# Choices: what may be tried when equations are streamed, how a slab is then cut, and what that
# takes of memory.


def equation_candidates(problem: Problem, caches: Caches) -> tuple[Parameters, ...]:
    """Parameter sets for the autotuner on a machine with these caches, the best guess first."""
    equations, ndim = settled(problem.system), problem.grid.ndim
    radii, size = equations.radii, np.dtype(problem.dtype).itemsize
    reach, choices = max(1, *radii), []

    # Steps of a reach of one, planes a visit, rows of a strip, how much of the L2 cache rings fill:
    # they are read in order, and the L3 cache holds the rest. A row of 1000 columns is worth more
    # than a nearer cache: what a kernel does before its first vector counts less.
    wanted = {
        1: ((32, 1, 1, 0.2), (64, 1, 1, 0.4)),
        2: ((16, 4, 1, 3.3), (16, 2, 1, 1.2), (8, 4, 1, 0.9)),
        3: ((6, 1, 32, 8.0), (4, 1, 32, 4.0), (4, 1, 16, 2.0)),
    }[ndim]
    for most, visit, rows, filled in wanted:
        steps = max(1, most // reach)
        planes = (steps + 1) * sum(follow(equations, ndim, visit).depths.values())
        # A strip keeps rows around its box, as far as all steps of a block reach.
        beside = rows + 2 * steps * (radii[1] if ndim == 3 else 0)
        room = min(caches.l2 * filled, max(caches.l2, caches.l3 / 2))
        columns = int(room / (planes * beside * size)) - 2 * steps * radii[-1]
        choice = {STEPS_PER_BLOCK: steps, "tile_x": max(64, columns // 16 * 16), "visit": visit}
        choices.append(choice | ({"tile_y": rows} if ndim == 3 else {}))
    return tuple(choices)


def work_of(problem: Problem, slab: Slab, parameters: Parameters, threads: int) -> RingWork:
    """Cut a slab into strips and rings; see `plan_work`."""
    from tetris_sim.cpu_kernels.compiled.vectors import native_lanes

    equations = settled(problem.system)
    computed = [n + sum(halo) for n, halo in zip(slab.shape, slab.halo, strict=True)]
    return plan_work(
        equations,
        tuple(computed),
        threads=threads,
        lanes=native_lanes(np.dtype(problem.dtype)),
        steps=parameters[STEPS_PER_BLOCK],
        visit=parameters.get("visit", 1),
        tile=(parameters.get("tile_y", 1), parameters["tile_x"]),
    )


def stream_bytes(problem: Problem, slab: Slab, parameters: Parameters, threads: int) -> int:
    """Bytes of memory that streaming takes."""
    work, layout = work_of(problem, slab, parameters, threads), layout_of(problem, slab)
    given = coefficient_layout(problem, slab, margins_of(problem, slab, work))
    rings = threads * work.scratch * layout.dtype.itemsize
    return 2 * layout.n_bytes + rings + (0 if given is None else given.n_bytes)


def margins_of(problem: Problem, slab: Slab, work: RingWork) -> list[tuple[int, int]]:
    """Points around a slab for which stages are computed, per axis of the problem."""
    margins = []
    for axis, padded in enumerate(OUTER[problem.grid.ndim]):
        ring = problem.boundary.periodic(axis)
        deep = max(work.steps * work.reach[padded], work.around[padded]) if ring else 0
        low, high = slab.halo[axis]
        margins.append((low or deep, high or deep))
    return margins


# Substeps on the CPU: sweeps of any length, which can be taken back, and how large their errors
# are.

_READ_POINTS = 1 << 16  # points that are looked at together: they stay in the L2 cache
_ALONE = 1 << 12  # points of which one thread makes substeps
_AT_ONCE = 1 << 26  # stages at points in a call of compiled code, about a tenth of a second


@dataclass(frozen=True, eq=False)
class SubstepLoop:
    """What the compiled loop of `substeps.py` needs beside the state.

    Attributes:
        loop: to be called by each of `threads`.
        threads: how many.
        tables: program, registers, results and parameters.
        scratch: for the magnitudes of fields and errors.
    """

    loop: Callable[..., None]
    threads: int
    tables: tuple[Array, ...]
    scratch: tuple[Array, Array]


def make_division(problem: Problem, slab: Slab, threads: int) -> SubstepLoop | None:
    """Compile the loop of substeps; None if others have to look at their errors, or if parameters
    are not made of what it knows.
    """
    from tetris_sim.cpu_kernels.compiled.generate import copied_module

    substeps, numbers = problem.system.substeps, len(problem.system.parameters)
    assert substeps is not None
    if not problem.is_adaptive or not problem.system.is_local or any(map(any, slab.halo)):
        return None
    if len(substeps.formulas) != numbers or (program := scalar_program(substeps.formulas)) is None:
        return None
    # A small grid is sooner done by one thread than by several that wait for each other.
    threads = threads if slab.n_points > _ALONE else 1
    dtype = problem.arithmetic
    part = f"from {copied_module('equations/sweep.py').__name__} import advance\n\n"
    part += f"REAL, BITS = types.{dtype.name}, types.int{8 * dtype.itemsize}\n"
    registers = np.tile(program.registers, (threads, 1))
    rows = np.zeros((threads, numbers + 2 * _CLAIM), dtype)
    found = np.zeros((threads, 2 * problem.n_fields + _CLAIM))
    seen = np.zeros((threads, 3, problem.n_fields))
    tables = (program.instructions, registers, program.results, rows)
    return SubstepLoop(splice("equations/substeps.py", part).divide, threads, tables, (found, seen))


class CpuSubstepStepper(CpuStepper):
    """A stepper of sweeps that also makes substeps; see the Protocol `Substepper`."""

    def __init__(
        self, problem: Problem, slab: Slab, team: ThreadTeam, sweeps: Sweeps, layout: PaddedField
    ) -> None:
        super().__init__(problem, slab, team, sweeps, layout, step_tables=sweeps)
        self._errors = [sweeps.work_of(name) for name in error_names(problem)]
        self._sweeps, self._one = sweeps, PaddedField(**{**vars(layout), "n_fields": 1})
        self._division = make_division(problem, slab, team.size)

    def substep(
        self, time: float, length: float, part: int = 0, found: Mapping[str, float] = NOTHING
    ) -> None:
        """Make a part of one; returns at once."""
        self.slab.refuse_short_halo(1, self._radii)
        self._team.wait()
        if part == 0:
            for name, of_box in self._problem.system.noises.items():
                self._sweeps.give(name, at_step(of_box, self._step, self._problem.start))
        tables = self._sweeps.substep(time, length, part, found)
        operands = self._with_tables(tables, self._geometry.axes)
        if part + 1 == len(self._problem.system.parts):
            self._start_block(1, operands)
        else:
            self._start(1, operands)

    @property
    def divides(self) -> bool:
        """Whether `divide` can be called."""
        return self._division is not None

    def divide(self, controllers: Sequence[Controller], tolerance: float) -> None:
        """Make substeps of steps that follow each other, in compiled code."""
        self._team.wait()
        division, first = self._division, controllers[0].counted
        assert division is not None
        steps = np.array([it.numbers for it in controllers], np.float64)
        tally = np.array([first.made, first.rejected, first.shortest, first.longest, 0, 0])
        most = max(1, _AT_ONCE // (self.slab.n_points * len(self._problem.system.stages)))
        asked = np.array([tolerance, controllers[0].order, most], np.float64)

        state = self._current, self._next
        work = (*self._sweeps.records(*state), steps, tally, asked, *division.tables)
        rest = (self._sweeps.places(*state), *division.scratch, self._barrier)

        def run(thread: int) -> None:
            if thread < division.threads:
                division.loop(thread, division.threads, *work, *rest)

        self._team.run(run)

        if tally[TURN]:
            self._current, self._next = self._next, self._current
        counted = Counted(*map(int, tally[: REJECTED + 1]), *tally[SHORTEST : LONGEST + 1].tolist())
        reached = int(tally[REACHED])
        self._step += reached
        for it in controllers[:reached]:
            it.go_on(it.end, it.wanted, 1.0, counted)
        for it, row in zip(controllers[reached:], steps[reached:].tolist(), strict=True):
            it.go_on(row[TIME], row[WANTED], row[BEFORE], counted)

    def undo(self) -> None:
        """Let the state be what it was before the last substep."""
        self._team.wait()
        self._current, self._next = self._next, self._current
        self._step -= 1

    def peaks(self) -> npt.NDArray[np.float64]:
        """Largest magnitudes of each field and of its error, (2, n_fields)."""
        self._team.wait()
        if self.slab.n_points <= _READ_POINTS:
            return self._look(0, 1)  # sooner done than handed over
        lock, found = threading.Lock(), np.zeros((2, len(self._errors)))

        def look(thread: int) -> None:
            seen = self._look(thread, self._team.size)
            # Maxima do not depend on the order, so the result is reproducible.
            with lock:
                np.maximum(found, seen, out=found)

        self._team.run(look)
        return found

    def extremes(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Largest and minus the smallest value of some arrays, (2, n_names)."""
        found = np.full((2, len(names)), -np.inf)
        for k, values in self._pieces(names):
            found[:, k] = np.maximum(found[:, k], (values.max(), -values.min()))
        return found

    def digits(self, name: str, exponent: int) -> tuple[int, ...]:
        """The sum of an array by digits."""
        sums = [digit_sums(values, exponent) for _, values in self._pieces([name])]
        return tuple(map(sum, zip(*sums, strict=True)))

    def whole(self, name: str) -> Field:
        """The owned points of an array."""
        self._team.wait()
        return np.array(self._one.read(self._sweeps.work_of(name), self.slab.local())[0])

    def give(self, name: str, values: Field) -> None:
        """Set a coefficient, given on the whole grid."""
        self._team.wait()
        self._sweeps.give(name, lambda box: values[tuple(slice(*span) for span in box)])

    def _pieces(self, names: Sequence[str]) -> Iterator[tuple[int, Array]]:
        """The numbers of names and their values at some owned points, then at others."""
        self._team.wait()
        arrays = [self._sweeps.work_of(name) for name in names]
        for ranges in self._layout.batches(0, 1, _READ_POINTS):
            for k, flat in enumerate(arrays):
                yield k, self._one.read(flat, ranges)[0]

    def _look(self, part: int, parts: int) -> npt.NDArray[np.float64]:
        found = np.zeros((2, len(self._errors)))
        for ranges in self._layout.batches(part, parts, _READ_POINTS):
            values = [*self._layout.read(self._current, ranges)]
            errors = [self._one.read(flat, ranges)[0] for flat in self._errors]
            # Before the first substep errors are whatever memory held, signaling NaNs too.
            with np.errstate(invalid="ignore"):
                for row, fields in zip(found, (values, errors), strict=True):
                    # The larger magnitude of maximum and minimum needs no temporary array.
                    row[:] = np.maximum(row, [max(it.max(), -it.min()) for it in fields])
        return found


# Streams by equations: the stepper of `cpu.stream`.


def make_stepper(
    problem: Problem, slab: Slab, parameters: Parameters, team: ThreadTeam
) -> CpuStepper:
    """Compile the stages and take memory."""
    work, layout = work_of(problem, slab, parameters, team.size), layout_of(problem, slab)
    streams = Streams(problem, slab, layout, work, team)
    return CpuStepper(
        *(problem, slab, team, streams, layout),
        passes=lambda steps: -(-steps // work.steps),
        step_tables=streams,
    )


class Streams:
    """Adapter between a stepper and the compiled loop of `strips.py`: compiles the stages and
    places the rings of each thread.

    Attributes:
        longest: steps that one block may have.
    """

    def __init__(
        self, problem: Problem, slab: Slab, layout: PaddedField, work: RingWork, team: ThreadTeam
    ) -> None:
        """Compile the stages; every thread touches its own rings first."""
        dtype = np.dtype(problem.dtype)
        constants = f"REAL, LANES = types.{dtype.name}, {native_lanes(dtype)}\n"
        self._loop = splice("equations/strips.py", constants).advance
        self._work = work
        self._tables = make_tables(problem, slab, layout, margins_of(problem, slab, work))
        self.longest = self._tables.given.longest
        self._name_rings()

        n_bytes = team.size * work.scratch * dtype.itemsize
        self._rings = allocate_aligned(n_bytes, dtype, 0).reshape(team.size, work.scratch)
        team.run(lambda thread: self._rings[thread].fill(0))
        self._claims = np.zeros(2 * _CLAIM, np.int64)
        self._own = self._tables.numbers(problem, slab, layout, team.size)
        self._lists = self._place_rings()
        self._choose(layout)

    @property
    def arrays(self) -> None:
        """None that a block hands over: all of them are known."""

    def tables(self, step: int, steps: int) -> tuple[Array]:
        """The parameters of a block; nobody has begun any of its strips."""
        self._claims[:] = 0
        return (self._tables.given.numbers(step, steps),)

    def _name_rings(self) -> None:
        """Enter the rings into the tables of stages and names."""
        tables, work = self._tables, self._work
        tables.stages[1:, LAG] = work.follow.lags
        # Names of the state at the beginning come first, then those of each stage.
        for row, name in zip(tables.names, tables.rows, strict=True):
            field = field_of(tables.equations, name)
            row[START], row[DEPTH] = work.starts[field], work.follow.depths[field]
            fields = tables.equations.fields
            row[NEXT], row[FIELD] = field != name, fields.index(field) if field in fields else -1

    def _place_rings(self) -> list[npt.NDArray[np.int64]]:
        """Lists of streams of each thread."""
        work, own, found = self._work, self._own, []
        own["row"], own["set"], own["plane"] = work.row, work.set, work.plane
        turns = work.follow.period + work.visit - 1  # planes of a visit follow each other
        own["counts"][:, PITCH], own["counts"][:, STEP] = work.row, 0
        for thread, rings in enumerate(self._rings):

            def address(stream: RowStream, turn: int, base: int = rings.ctypes.data) -> int:
                field = field_of(self._tables.equations, stream.name)
                plane = (turn + stream.plane) % work.follow.depths[field]
                element = work.starts[field] + plane * work.plane + stream.row * work.row
                element += work.set * (field != stream.name)
                return base + element * self._rings.itemsize

            lists = self._tables.lists(turns, address)
            own["rings"][thread], own["lists"][thread] = rings.ctypes.data, lists.ctypes.data
            found.append(lists)
        own["period"], own["turns"] = work.follow.period, turns
        own["list_bytes"], own["counts"][:, LIST] = found[0].strides[1], found[0].shape[2]
        return found

    def _choose(self, layout: PaddedField) -> None:
        work, own = self._work, self._own
        own["strips"], own["around"] = work.strips, work.around
        own["block"], own["visit"] = work.steps, work.visit
        # Results that do not fit the caches bypass them, which saves reading the lines first.
        own["past_caches"] = 2 * layout.n_bytes > read_caches().l3 * len(own)
        own["lag"], own["last_lag"] = work.follow.lag, max(work.follow.lags)

    def __call__(
        self, thread: int, threads: int, current: Array, following: Array, *rest: Any
    ) -> None:
        """Advance as one of some threads; the arguments are those of `CpuStepper`."""
        _, _, numbers, steps, barrier = rest
        table = (numbers.ctypes.data, numbers.strides[0] if len(numbers) > 1 else 0)
        self._loop(
            *(thread, threads, current, following, self._own, *table),
            *(steps, self._claims, barrier),
        )
