"""Streams by equations: the stepper of `cpu.stream`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.caches import read_caches
from tetris_sim.cpu_kernels.common.layout import PaddedField, allocate_aligned
from tetris_sim.cpu_kernels.common.stepper import CpuStepper
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.cpu_kernels.compiled.generate import splice
from tetris_sim.cpu_kernels.compiled.vectors import native_lanes
from tetris_sim.cpu_kernels.equations.choices import margins_of, work_of
from tetris_sim.cpu_kernels.equations.faces import field_of
from tetris_sim.cpu_kernels.equations.numbers import DEPTH, FIELD, LAG, NEXT, START
from tetris_sim.cpu_kernels.equations.plain import layout_of
from tetris_sim.cpu_kernels.equations.rings import Work
from tetris_sim.cpu_kernels.equations.sides import LIST, PITCH, STEP
from tetris_sim.cpu_kernels.equations.stages import Stream
from tetris_sim.cpu_kernels.equations.tables import make_tables
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

Array = npt.NDArray[Any]
_CLAIM = 8  # counters per cache line


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
    """What the compiled loop of `strips.py` is told; between a stepper and it.

    Attributes:
        longest: steps that one block may have.
    """

    def __init__(
        self, problem: Problem, slab: Slab, layout: PaddedField, work: Work, team: ThreadTeam
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
        """What the tables of stages and names say of rings."""
        tables, work = self._tables, self._work
        tables.stages[1:, LAG] = work.follow.lags
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

            def address(stream: Stream, turn: int, base: int = rings.ctypes.data) -> int:
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
