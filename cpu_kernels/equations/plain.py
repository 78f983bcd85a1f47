"""Sweeps by equations: the stepper of `cpu.plain`, and what it takes of memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.axes import OUTER, on_three
from tetris_sim.cpu_kernels.common.layout import PaddedField, least_margins, pad
from tetris_sim.cpu_kernels.equations.faces import beyond_sides, reflections, width_of
from tetris_sim.cpu_kernels.equations.given import Given, coefficient_layout
from tetris_sim.cpu_kernels.equations.sides import N_COUNTS, PITCH, STATE
from tetris_sim.cpu_kernels.equations.stages import Stream, settled, stage_kernel
from tetris_sim.problem import Problem
from tetris_sim.slab import Slab

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
    """What the compiled loop of `sweep.py` is told; between steppers and it.

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
        from tetris_sim.cpu_kernels.compiled.generate import splice
        from tetris_sim.cpu_kernels.compiled.vectors import native_lanes
        from tetris_sim.cpu_kernels.equations.stages import compile_stages

        assert problem.equations is not None
        self._equations = equations = settled(problem.equations)
        self._layout, self._dtype = layout, np.dtype(problem.dtype)
        self._loop: Callable[..., None] = splice(
            "equations/sweep.py", f"REAL = types.{self._dtype.name}\n"
        ).advance
        self._kernels = [stage_kernel(it, equations, problem) for it in equations.stages]
        lanes = native_lanes(self._dtype)
        self._addresses = np.array(compile_stages(self._kernels, self._dtype, lanes))
        self._given = Given(problem, slab, layout.first, slab.halo)
        self.longest = self._given.longest

        self._beyond = beyond_sides(problem, slab)
        margins = [(0, 0, 0), *(on_three(it, 0, OUTER) for it in equations.margins)]
        self._margins = np.array(margins, np.int64)
        self._pitches = np.array([*layout.pitch[:2], *self._given.pitch], np.int64)
        work = max(1, equations.n_work) * layout.field_pitch
        self._work = np.zeros(work, layout.dtype)
        self._counts = np.zeros((threads, N_COUNTS), np.int64)
        self._counts[:, PITCH : PITCH + 5] = (layout.pitch[1], self._given.pitch[1], 0, 1, 0)

        # Ghosts of the fields at the beginning, then those of what each stage gives.
        ndim = problem.grid.ndim
        groups = [tuple(equations.results.values()), *(it.made for it in self._kernels)]
        wide = [[it for it in group if any(width_of(equations, it, ndim))] for group in groups]
        self._filled = [name for group in wide for name in group]
        self._fill_starts = np.cumsum([0, *map(len, wide)], dtype=np.int64)
        self._widths = [width_of(equations, name, ndim) for name in self._filled]
        faces = [reflections(problem, equations, name) for name in self._filled]
        self._faces = np.stack(faces or [np.zeros((3, 2, 1, 2), layout.dtype)])
        self._tables = functools.lru_cache(maxsize=4)(self._make_tables)

    @property
    def arrays(self) -> Sweeps:
        """Itself, for `advance`."""
        return self

    def tables(self, step: int, steps: int) -> tuple[Array]:
        """The parameters of a block."""
        return (self._given.numbers(step, steps),)

    def _make_tables(self, current: int, following: int) -> tuple[Array, Array, Array]:
        """Addresses of lists of streams, (2, stages); of what has ghosts, with widths; and the
        lists.
        """
        turns = ((current, following), (following, current))
        most = max(len(it.streams) for it in self._kernels)
        lists = np.zeros((2, len(self._kernels), most), np.int64)
        for parity, arrays in enumerate(turns):
            for number, kernel in enumerate(self._kernels):
                found = [self._address(stream, *arrays) for stream in kernel.streams]
                lists[parity, number, : len(found)] = found

        fills = np.zeros((max(1, len(self._filled)), 5), np.int64)
        for row, name, widths in zip(fills, self._filled, self._widths, strict=False):
            row[:2] = [self._address(Stream(STATE, name), *arrays) for arrays in turns]
            row[2:] = widths
        begin = np.arange(2 * len(self._kernels)).reshape(2, -1) * lists.strides[1]
        return begin + lists.ctypes.data, fills, lists

    def _address(self, stream: Stream, now: int, then: int) -> int:
        if stream.kind != STATE:
            return self._given.address(stream)
        equations, layout = self._equations, self._layout
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

    def __call__(
        self, thread: int, threads: int, current: Array, following: Array, *rest: Any
    ) -> None:
        """Advance as one of some threads; the arguments are those of `CpuStepper`."""
        axes, _, numbers, steps, barrier = rest
        places, fills, _ = self._tables(current.ctypes.data, following.ctypes.data)
        work = (self._addresses, places, self._margins, self._pitches)
        ghosts = (self._fill_starts, fills, self._faces)
        table = (numbers.ctypes.data, numbers.strides[0] if len(numbers) > 1 else 0)
        self._loop(
            *(thread, threads, axes, self._beyond, *work, *ghosts),
            *(self._counts, *table, steps, barrier),
        )
