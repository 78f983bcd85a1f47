"""Sweeps by equations: what `cpu.plain` tells its compiled loop, and what it takes of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.layout import (
    PaddedField,
    allocate_aligned,
    least_margins,
    pad,
)
from tetris_sim.cpu_kernels.equations.faces import width_of
from tetris_sim.cpu_kernels.equations.given import coefficient_layout
from tetris_sim.cpu_kernels.equations.numbers import EVEN
from tetris_sim.cpu_kernels.equations.sides import STATE
from tetris_sim.cpu_kernels.equations.stages import Stream, settled
from tetris_sim.cpu_kernels.equations.tables import make_tables
from tetris_sim.model.grid import OUTER
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

Array = npt.NDArray[Any]


def layout_of(problem: Problem, slab: Slab) -> PaddedField:
    """How the state lies: with room for the ghosts of every name."""
    assert problem.equations is not None
    equations, ndim = settled(problem.equations), problem.grid.ndim
    widths = [width_of(equations, name, ndim) for name in equations.ghosts]
    margins = []
    for axis, (low, high) in enumerate(least_margins(problem, slab)):
        most = max((it[OUTER[ndim][axis]] for it in widths), default=0)
        margins.append((max(low, most), max(high, most)))
    return pad(problem, slab, margins)


def work_bytes(problem: Problem, slab: Slab) -> int:
    """Bytes that sweeps take beside the two copies of the state."""
    assert problem.equations is not None
    layout, given = layout_of(problem, slab), coefficient_layout(problem, slab, slab.halo)
    work = settled(problem.equations).n_work * layout.field_pitch * layout.dtype.itemsize
    return work + (0 if given is None else given.n_bytes)


class Sweeps:
    """What the compiled loop of `sweep.py` is told; between a stepper and it.

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
        self._known: dict[tuple[int, int], tuple[Array, ...]] = {}

    @property
    def arrays(self) -> None:
        """None that a block hands over: all of them are known."""

    def tables(self, step: int, steps: int) -> tuple[Array]:
        """The parameters of a block."""
        return (self._tables.given.numbers(step, steps),)

    def substep(self, time: float, length: float) -> tuple[Array]:
        """The parameters of a substep."""
        return (self._tables.given.numbers_at(time, length),)

    def work_of(self, name: str) -> Array:
        """The array of a name that lives within a step, as it lies in memory."""
        pitch, number = self._layout.field_pitch, self._tables.equations.work[name]
        return self._work[number * pitch : (number + 1) * pitch]

    def __call__(
        self, thread: int, threads: int, current: Array, following: Array, *rest: Any
    ) -> None:
        """Advance as one of some threads; the arguments are those of `CpuStepper`."""
        _, _, numbers, steps, barrier = rest
        arrays = (current.ctypes.data, following.ctypes.data)
        if arrays not in self._known:
            self._known[arrays] = self._tell(arrays)
        own, *_ = self._known[arrays]
        table = (numbers.ctypes.data, numbers.strides[0] if len(numbers) > 1 else 0)
        self._loop(thread, threads, own, *table, steps, barrier)

    def _tell(self, arrays: tuple[int, int]) -> tuple[Array, ...]:
        """What threads begin with if these are the arrays of the state before an even step and
        after it; and the tables that it refers to.
        """
        tables = self._tables
        lists = tables.lists(2, lambda stream, odd: self._address(stream, arrays, odd))
        names = tables.names.copy()
        for row, name in zip(names, tables.rows, strict=True):
            # The state at the beginning is what an odd step before it would have stored.
            new = Stream(STATE, tables.equations.results.get(name, name))
            row[EVEN : EVEN + 2] = [self._address(new, arrays, odd) for odd in (0, 1)]

        own = tables.numbers(*self._places)
        own["lists"], own["period"], own["turns"] = lists.ctypes.data, 2, 2
        own["list_bytes"], own["names"] = lists.strides[1], names.ctypes.data
        return own, lists, names

    def _address(self, stream: Stream, arrays: tuple[int, int], odd: int) -> int:
        """Of a stream of the state at even or at odd steps."""
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
