"""Stages as kernels: what a stage reads and writes as streams of rows, and its operations as text.

A kernel computes some rows of points, all formulas of a stage at once. What it reads at an offset
along the first two padded axes is a stream, an address that moves from row to row; offsets along
rows are part of the program. The operations stand in a module of their own, which `emit.py` turns
into vector instructions when Numba compiles it; so a formula of hundreds of operations costs no
more than LLVM needs for them, and what is compiled is kept on disk like everything else.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tetris_sim.cpu_kernels.equations.sides import COEFFICIENT, COORDINATE, STATE
from tetris_sim.model.equations import Equations, Stage, as_tap, tap
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import CONSTANT, INPUT, Instruction
from tetris_sim.support.cache import generated_module

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Stream:
    """Rows of one name, moved along the first two padded axes.

    Attributes:
        kind: `STATE`, `COEFFICIENT`, or `COORDINATE` + padded axis.
        name: which.
        plane: by how many planes it is moved.
        row: by how many rows.
    """

    kind: int
    name: str
    plane: int = 0
    row: int = 0


@dataclass(frozen=True)
class StageKernel:
    """A stage, ready to be compiled.

    Attributes:
        streams: what is read; then, for each of `made`, where it is written.
        made: names that the stage gives.
        operations: one register each, in the order of `Programs.instructions`: ("load", stream,
            columns further), ("number", which parameter), ("constant", hexadecimal digits), or an
            operation of `program.py` with the registers that it takes.
        results: registers of `made`.
    """

    streams: tuple[Stream, ...]
    made: tuple[str, ...]
    operations: tuple[tuple[str | int, ...], ...]
    results: tuple[int, ...]

    def source(self, dtype: str, lanes: int) -> str:
        """A module whose `kernel` computes rows.

        Args:
            dtype: float64 or float32.
            lanes: elements of a vector.
        """
        lines = ["from numba import cfunc", "from numba.core import types", ""]
        lines += ["from tetris_sim.cpu_kernels.equations.emit import make_rows", ""]
        lines += [f"KINDS = {tuple(stream.kind for stream in self.streams)}", "OPERATIONS = ("]
        lines += [f"    {it},  # r{number}" for number, it in enumerate(self.operations)]
        lines += [")", f'rows = make_rows("{dtype}", {lanes}, KINDS, OPERATIONS, {self.results})']
        integers, reals = "types.CPointer(types.int64)", f"types.CPointer(types.{dtype})"
        lines += ["", "", f"@cfunc(types.void({integers}, {integers}, {reals}), cache=True)"]
        lines += ["def kernel(places, counts, numbers):", "    rows(places, counts, numbers)", ""]
        return "\n".join(lines)


def stage_kernel(stage: Stage, equations: Equations, problem: Problem) -> StageKernel:
    """The kernel of one stage.

    Args:
        stage: of the equations.
        equations: `settled` ones.
        problem: gives the axes.
    """
    axes = dict(zip(problem.grid.axis_names, OUTER[problem.grid.ndim], strict=True))
    numbers = {it.name: k for k, it in enumerate(equations.parameters)}
    streams: dict[Stream, int] = {}

    def load(stream: Stream, column: int = 0) -> tuple[str | int, ...]:
        return "load", streams.setdefault(stream, len(streams)), column

    def operation(it: Instruction) -> tuple[str | int, ...]:
        if it.operation == CONSTANT:
            return "constant", float(it.value).hex()
        if it.operation != INPUT:
            return it.operation, *it.arguments
        if (found := as_tap(it.name)) is not None:
            name, offset = found
            plane, row, column = on_three(offset, 0, OUTER)
            given = name in (equations.coefficients or {})
            return load(Stream(COEFFICIENT if given else STATE, name, plane, row), column)
        if it.name in axes:
            return load(Stream(COORDINATE + axes[it.name], it.name))
        return "number", numbers[it.name]

    operations = tuple(operation(it) for it in stage.programs.instructions)
    made = tuple(stage.formulas)
    written = tuple(Stream(STATE, name) for name in made)
    return StageKernel((*streams, *written), made, operations, stage.programs.results)


def settled(equations: Equations) -> Equations:
    """The same, so that no new value of a field has ghosts of its own: they would lie where those
    of the field must be at the next step.
    """
    own = {
        field: name
        for field, name in equations.results.items()
        if name in equations.ghosts
        and field in equations.ghosts
        and equations.boundaries[name] != equations.boundaries[field]
    }
    if not own:
        return equations
    ndim = next(iter(equations.boundaries.values())).ndim
    copies = {f"{name} of {field}": tap(name, (0,) * ndim) for field, name in own.items()}
    results = {**equations.results, **dict(zip(own, copies, strict=True))}
    return replace(equations, stages=(*equations.stages, Stage(copies)), results=results)


def compile_stages(
    kernels: Sequence[StageKernel], dtype: np.dtype[np.floating], lanes: int
) -> list[int]:
    """Addresses of the compiled kernels; good for this process."""
    sources = [kernel.source(dtype.name, lanes) for kernel in kernels]
    modules = [generated_module(it, part="kernels", salt=_callees()) for it in sources]
    return [module.kernel.address for module in modules]


@functools.cache
def _callees() -> str:
    # Numba's cache knows when a function's own file changed, but not the files of what it calls.
    return "".join((_HERE / name).read_text() for name in ("emit.py", "sides.py"))
