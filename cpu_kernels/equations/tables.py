"""Tables: what sweeps and streams of equations are told in the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.layout import PaddedField
from tetris_sim.cpu_kernels.equations.faces import beyond_sides, reflections, width_of
from tetris_sim.cpu_kernels.equations.given import Given, Margins
from tetris_sim.cpu_kernels.equations.numbers import (
    KERNEL,
    MADE,
    MARGIN,
    N_NAME,
    N_STAGE,
    NUMBERS,
    WIDTH,
)
from tetris_sim.cpu_kernels.equations.sides import PITCH, STATE, STEP
from tetris_sim.cpu_kernels.equations.stages import (
    StageKernel,
    Stream,
    compile_stages,
    settled,
    stage_kernel,
)
from tetris_sim.model.equations import Equations
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Tables:
    """The compiled stages of equations, and tables with the columns of `numbers.py`.

    Attributes:
        equations: `settled` ones.
        kernels: of the stages.
        given: what a step reads beside the state.
        stages: the table of stages.
        names: the table of names: those of the state at the beginning, then of each stage.
        rows: the name of each of its rows.
        faces: (a, b) of the ghosts of each.
    """

    equations: Equations
    kernels: Sequence[StageKernel]
    given: Given
    stages: Array
    names: Array
    rows: Sequence[str]
    faces: Array

    def lists(self, period: int, state: Callable[[Stream, int], int]) -> npt.NDArray[np.int64]:
        """Lists of the addresses of streams, (stages, period, most streams).

        Args:
            period: how many lists there are in turn.
            state: the address of a stream of the state in each of them.
        """
        most = max(len(kernel.streams) for kernel in self.kernels)
        found = np.zeros((len(self.kernels), period, most), np.int64)
        for number, kernel in enumerate(self.kernels):
            for k, stream in enumerate(kernel.streams):
                for turn in range(period):
                    of = state(stream, turn) if stream.kind == STATE else self.given.address(stream)
                    found[number, turn, k] = of
        return found

    def numbers(self, problem: Problem, slab: Slab, layout: PaddedField, threads: int) -> Array:
        """What every thread begins with, but for lists of streams and what only streams know.

        Args:
            problem: by equations.
            slab: which part of it.
            layout: of the state.
            threads: how many there are.
        """
        own = np.zeros(threads, NUMBERS)
        own["first"], own["count"], own["pitch"] = layout.first, layout.count, layout.pitch
        own["field_pitch"], own["row"] = layout.field_pitch, layout.pitch[1]
        own["radius"] = on_three(self.equations.radii, 0, OUTER)
        own["beyond"] = own["touch"] = beyond_sides(problem, slab).ravel()
        own["other"] = self.given.pitch

        own["n_stages"], own["ghosts"] = len(self.kernels), self.faces.shape[3]
        own["stages"], own["names"] = self.stages.ctypes.data, self.names.ctypes.data
        own["faces"], own["fill"] = self.faces.ctypes.data, _fill_of(problem.dtype)
        own["counts"][:, PITCH : PITCH + 5] = (layout.pitch[1], self.given.pitch[1], 0, 1, 0)
        own["counts"][:, STEP : STEP + 5] = (layout.pitch[0], self.given.pitch[0], 1, 0, 0)
        own["told"] = own.ctypes.data + np.arange(threads) * own.strides[0]
        return own


def _fill_of(dtype: np.dtype[Any]) -> int:
    """The address of the compiled function that fills ghosts; good for this process."""
    from tetris_sim.cpu_kernels.compiled.generate import splice

    return int(splice("equations/fill.py", f"REAL = types.{dtype.name}\n").fill.address)


def make_tables(problem: Problem, slab: Slab, layout: PaddedField, margins: Margins) -> Tables:
    """Compile the stages and lay out what they read.

    Args:
        problem: by equations.
        slab: which part of it.
        layout: of the state.
        margins: how far around the slab stages are computed.
    """
    from tetris_sim.cpu_kernels.compiled.vectors import native_lanes

    assert problem.equations is not None
    equations, ndim = settled(problem.equations), problem.grid.ndim
    kernels = [stage_kernel(it, equations, problem) for it in equations.stages]
    groups = [equations.fields, *(kernel.made for kernel in kernels)]
    starts = np.cumsum([0, *map(len, groups)])

    stages = np.zeros((len(groups), N_STAGE), np.int64)
    dtype = np.dtype(problem.dtype)
    stages[1:, KERNEL] = compile_stages(kernels, dtype, native_lanes(dtype))
    stages[1:, MARGIN : MARGIN + 3] = [on_three(it, 0, OUTER) for it in equations.margins]
    stages[:, MADE], stages[:, MADE + 1] = starts[:-1], starts[1:]

    rows = [name for group in groups for name in group]
    names = np.zeros((len(rows), N_NAME), np.int64)
    names[:, WIDTH : WIDTH + 3] = [width_of(equations, name, ndim) for name in rows]
    faces = np.stack([reflections(problem, equations, name) for name in rows])
    given = Given(problem, slab, layout.first, margins)
    return Tables(equations, kernels, given, stages, names, rows, faces)
