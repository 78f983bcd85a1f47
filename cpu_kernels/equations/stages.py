"""Stages as kernels: what a stage reads and writes as streams of rows, and its operations as text.

A kernel computes some rows of points, all formulas of a stage at once. What it reads at an offset
along the first two padded axes is a stream, an address that moves from row to row; offsets along
rows are part of the program. The operations stand in a module of their own, which `make_rows` turns
into vector instructions when Numba compiles it; so a formula of hundreds of operations costs no
more than LLVM needs for them, and what is compiled is kept on disk like everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from tetris_sim.cpu_kernels.compiled.generate import sources_digest
from tetris_sim.model.equations import Equations, Stage, as_tap, tap
from tetris_sim.model.formula import COMPARISONS
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import CONSTANT, INEXACT, INPUT, Instruction
from tetris_sim.support.files import generated_module

# Vector instructions of the kernel of a stage, register by register.
#
# Idea    Numba is asked for one intrinsic, and that is the whole kernel: loops over planes, rows
#         and vectors of columns, inside them the operations of the program in their order. Types
#         are known, so nothing is inferred, and LLVM gets vectors instead of a loop that it may or
#         may not vectorise. Columns that do not fill a vector are computed one by one.
# Layout  places: the address of each stream, in a list for each plane. counts: see `numbers.py`;
#         element (plane i, row j, column k) of a stream lies at its address + shift + i * step + j
#         * pitch + k. numbers: the parameters of the step.
# Limits  What is read is never what is written. Functions of the C library are called for one
#         number at a time: vectors of them would have other last bits.
# Test    tests/kernels/test_cpu_equations.py

Operations = Sequence[tuple[Any, ...]]
_INT64, _BIT = ir.IntType(64), ir.IntType(1)
_REALS = {"float64": (ir.DoubleType(), 8), "float32": (ir.FloatType(), 4)}
_LIBRARY = {**{name: name for name in (*INEXACT, "fmod")}, "power": "pow"}
_LLVM = {"fma": "fma", "sqrt": "sqrt", "abs": "fabs", "floor": "floor", "ceil": "ceil"}
_BUILDER = {
    "add": "fadd",
    "subtract": "fsub",
    "multiply": "fmul",
    "divide": "fdiv",
    "negative": "fneg",
    "and": "and_",
    "or": "or_",
    "not": "not_",
    "where": "select",
}


def make_rows(
    dtype: str, lanes: int, kinds: Sequence[int], operations: Operations, results: Sequence[int]
) -> Any:
    """The intrinsic (places, counts, numbers) that computes rows.

    Args:
        dtype: float64 or float32.
        lanes: elements of a vector.
        kinds: of the streams.
        operations: as `StageKernel` has them.
        results: registers that are stored to the last streams.
    """

    @intrinsic
    def rows(typing_context, places, counts, numbers):
        def generate(context, builder, signature, arguments):
            _VectorRows(builder, dtype, tuple(kinds), operations, tuple(results)).emit(
                lanes, *arguments
            )
            return context.get_dummy_value()

        return types.void(places, counts, numbers), generate

    return rows


@dataclass(frozen=True)
class _VectorRows:
    builder: Any
    dtype: str
    kinds: tuple[int, ...]
    operations: Operations
    results: tuple[int, ...]

    def emit(self, lanes: int, places: Any, counts: Any, numbers: Any) -> None:
        builder, (real, size) = self.builder, _REALS[self.dtype]

        def entry(array: Any, k: int) -> Any:
            return builder.load(builder.gep(array, [_INT64(k)]))

        shifts = [entry(counts, SHIFT + kind) for kind in self.kinds]
        pitches = [entry(counts, PITCH + kind) for kind in self.kinds]
        steps = [entry(counts, STEP + kind) for kind in self.kinds]
        used = sorted({it[1] for it in self.operations if it[0] == "number"})
        given = {k: entry(numbers, k) for k in used}

        # Columns beyond the last whole vector are computed with vectors of one lane.
        columns = entry(counts, COLUMNS)
        whole = builder.and_(columns, _INT64(-lanes))
        n_planes, n_rows, apart = (entry(counts, k) for k in (PLANES, ROWS, LIST))
        with cgutils.for_range(builder, n_planes, intp=_INT64) as plane:
            listed, begin = builder.gep(places, [builder.mul(plane.index, apart)]), []
            for number, (shift, step) in enumerate(zip(shifts, steps, strict=True)):
                element = builder.add(shift, builder.mul(plane.index, step))
                address = builder.add(entry(listed, number), builder.mul(element, _INT64(size)))
                begin.append(builder.inttoptr(address, real.as_pointer()))

            with cgutils.for_range(builder, n_rows, intp=_INT64) as row:
                pointers = [
                    builder.gep(pointer, [builder.mul(row.index, pitch)])
                    for pointer, pitch in zip(begin, pitches, strict=True)
                ]
                for width, start, stop in ((lanes, _INT64(0), whole), (1, whole, columns)):
                    step = _INT64(width)
                    with cgutils.for_range_slice(builder, start, stop, step, _INT64) as (at, _):
                        self.vector(width, pointers, given, at)

    def vector(self, lanes: int, pointers: list[Any], given: dict[int, Any], at: Any) -> None:
        """One vector of columns, from column `at` on."""
        vector = _Vector(self.builder, *_REALS[self.dtype], lanes)
        registers: list[Any] = []
        for name, *arguments in self.operations:
            if name == "load":
                stream, column = arguments
                # Coordinates along planes and rows are a single number for all columns.
                one = self.kinds[stream] in (COORDINATE, COORDINATE + 1)
                place = _INT64(0) if one else self.builder.add(at, _INT64(column))
                registers.append(vector.load(pointers[stream], place, one=one))
            elif name == "number":
                registers.append(vector.broadcast(given[arguments[0]]))
            elif name == "constant":
                registers.append(vector.constant(float.fromhex(arguments[0])))
            else:
                registers.append(vector.operate(name, [registers[k] for k in arguments]))

        # The last streams are outputs, in the order of the results.
        for pointer, result in zip(pointers[-len(self.results) :], self.results, strict=True):
            vector.store(pointer, at, registers[result])


@dataclass(frozen=True)
class _Vector:
    """Operations on vectors of some lanes; one lane is a scalar."""

    builder: Any
    real: Any
    size: int
    lanes: int
    shape: Any = field(init=False)

    def __post_init__(self) -> None:
        shape = self.real if self.lanes == 1 else ir.VectorType(self.real, self.lanes)
        object.__setattr__(self, "shape", shape)

    def load(self, pointer: Any, place: Any, *, one: bool) -> Any:
        pointer = self.builder.gep(pointer, [place])
        if one:
            return self.broadcast(self.builder.load(pointer))
        pointer = self.builder.bitcast(pointer, self.shape.as_pointer())
        return self.builder.load(pointer, align=self.size, typ=self.shape)

    def store(self, pointer: Any, place: Any, value: Any) -> None:
        pointer = self.builder.gep(pointer, [place])
        pointer = self.builder.bitcast(pointer, self.shape.as_pointer())
        self.builder.store(value, pointer, align=self.size)

    def broadcast(self, value: Any) -> Any:
        if self.lanes == 1:
            return value
        undefined, zero = ir.Constant(self.shape, ir.Undefined), ir.IntType(32)(0)
        one = self.builder.insert_element(undefined, value, zero)
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(one, one, mask)

    def constant(self, value: float) -> Any:
        # Rounding to float32 may overflow or underflow; that is the value the arithmetic has.
        with np.errstate(over="ignore", under="ignore"):
            value = float(np.dtype(f"f{self.size}").type(value))
        return ir.Constant(self.shape, value if self.lanes == 1 else [value] * self.lanes)

    def operate(self, name: str, arguments: list[Any]) -> Any:
        if name in COMPARISONS:
            compare: Callable[..., Any] = self.builder.fcmp_ordered
            if name == "!=":  # NaN differs from everything
                compare = self.builder.fcmp_unordered
            return compare(name, *arguments)
        if name in _BUILDER:
            return getattr(self.builder, _BUILDER[name])(*arguments)
        if name in _LLVM:
            suffix = f"f{8 * self.size}"
            suffix = suffix if self.lanes == 1 else f"v{self.lanes}{suffix}"
            return self._call(f"llvm.{_LLVM[name]}.{suffix}", self.shape, arguments)
        return self._each(name, arguments)

    def _call(self, name: str, kind: Any, arguments: list[Any]) -> Any:
        form = ir.FunctionType(kind, [kind] * len(arguments))
        function = cgutils.get_or_insert_function(self.builder.module, form, name)
        if not name.startswith("llvm."):
            # LLVM may not take it for what it knows by that name.
            function.attributes.add("nobuiltin")
        return self.builder.call(function, arguments)

    def _each(self, name: str, arguments: list[Any]) -> Any:
        symbol = _LIBRARY[name] + ("f" if self.size == 4 else "")
        if self.lanes == 1:
            return self._call(symbol, self.real, arguments)
        result = ir.Constant(self.shape, ir.Undefined)
        for lane in range(self.lanes):
            at = ir.IntType(32)(lane)
            numbers = [self.builder.extract_element(it, at) for it in arguments]
            value = self._call(symbol, self.real, numbers)
            result = self.builder.insert_element(result, value, at)
        return result


@dataclass(frozen=True)
class RowStream:
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

    streams: tuple[RowStream, ...]
    made: tuple[str, ...]
    operations: tuple[tuple[str | int, ...], ...]
    results: tuple[int, ...]

    def source(self, dtype: str, lanes: int) -> str:
        """A module whose `kernel` computes rows.

        Args:
            dtype: float64 or float32.
            lanes: elements of a vector.
        """
        lines = ["from numba.core import types", ""]
        lines += ["from tetris_sim.cpu_kernels.compiled.intrinsics import cfunc"]
        lines += ["from tetris_sim.cpu_kernels.equations.stages import make_rows", ""]
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
    streams: dict[RowStream, int] = {}

    def load(stream: RowStream, column: int = 0) -> tuple[str | int, ...]:
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
            return load(RowStream(COEFFICIENT if given else STATE, name, plane, row), column)
        if it.name in axes:
            return load(RowStream(COORDINATE + axes[it.name], it.name))
        return "number", numbers[it.name]

    # Streams are numbered in the order of their first use.
    operations = tuple(operation(it) for it in stage.programs.instructions)
    made = tuple(stage.formulas)
    written = tuple(RowStream(STATE, name) for name in made)
    return StageKernel((*streams, *written), made, operations, stage.programs.results)


def settled(equations: Equations) -> Equations:
    """Equations in which no new value of a field has ghosts of its own: they would lie where those
    of the field must be at the next step.
    """
    own = {
        field: name
        for field, name in equations.results.items()
        if name in equations.ghosts
        and field in equations.ghosts
        and equations.boundaries[name] != equations.boundaries[field]
    }
    # Fields whose boundary is that of their new value can share its ghosts.
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
    modules = [generated_module(it, part="kernels", salt=sources_digest()) for it in sources]
    return [module.kernel.address for module in modules]


# Numbers that host and compiled code share.

# What may lie beyond a side of a slab: nothing that has to be filled (a neighbour's points, or no
# such axis), ghosts that mirror, ghosts that are the points of the other end.
NOTHING, MIRRORED, WRAP = 0, 1, 2
# What a kernel is told, as elements of `counts`: rows and columns, and for each kind of stream the
# elements from its address to the first point, and from row to row; planes, elements from the list
# of addresses of one to that of the next, and for each kind of stream from plane to plane.
ROWS, COLUMNS, SHIFT, PITCH, PLANES, LIST, STEP = 0, 1, 2, 7, 12, 13, 14
N_COUNTS = 20
# Kinds of streams. Those of coordinates are numbered by padded axis: one number for a plane or for
# a row, or one for each column.
STATE, COEFFICIENT, COORDINATE = 0, 1, 2


_FIELDS = {
    # What kernels are told (`numbers.py`), and the address of it.
    "counts": N_COUNTS,
    "told": 1,
    # The slab: first owned index, owned points, elements between neighbours and from field to
    # field, what lies beyond (`numbers.py`); how far a step reaches.
    "first": 3,
    "count": 3,
    "pitch": 3,
    "field_pitch": 1,
    "beyond": 6,
    "radius": 3,
    # Elements from plane to plane and from row to row of coefficients.
    "other": 2,
    # Addresses of tables: of stages and names, with the columns below, and of the (a, b) of ghosts
    # by name, axis, side and number, and of the function that fills these; so many there are.
    "n_stages": 1,
    "stages": 1,
    "names": 1,
    "faces": 1,
    "fill": 1,
    "ghosts": 1,
    # Lists of streams, for each stage several in turn: address, after how many they begin again,
    # how many there are, bytes of one.
    "lists": 1,
    "period": 1,
    "turns": 1,
    "list_bytes": 1,
    # The stage at work: its box, what lies beyond sides that it has to fill, how many these are;
    # elements from row to row of what it writes.
    "begin": 3,
    "end": 3,
    "touch": 6,
    "touches": 1,
    "row": 1,
    # What only streams know. What was chosen: strips per axis, steps per block, planes a visit,
    # whether results go past the caches.
    "strips": 3,
    "block": 1,
    "visit": 1,
    "past_caches": 1,
    # The rings of a step: address of those of the first, elements of all, elements of a plane;
    # points kept around a strip.
    "rings": 1,
    "set": 1,
    "plane": 1,
    "around": 3,
    # How far the next step follows behind, and the last stage of all behind the first of its step.
    "lag": 1,
    "last_lag": 1,
    # The strip at work: its box after the last step, padded index of the first point of a plane in
    # a ring, steps.
    "low": 3,
    "high": 3,
    "row0": 1,
    "column0": 1,
    "levels": 1,
}

NUMBERS = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": [np.int64 if n == 1 else (np.int64, n) for n in _FIELDS.values()],
        "itemsize": 16 * 64,  # each thread has its own lines
    },
    align=True,
)
"""The record; its fields lie in the order above."""

# Columns of the table of stages, whose first row is the state at the beginning: address of the
# kernel, how far it follows behind the first, points around the own ones that it computes per axis,
# rows of the table of names that it makes.
KERNEL, LAG, MARGIN, MADE, N_STAGE = 0, 1, 2, 5, 7
# Columns of the table of names. Of sweeps: the addresses of one at even and at odd steps. Of
# streams: where its ring begins and how many planes it has. Of both: ghosts per axis. Of streams:
# whether it belongs to the next step, which field it is then (or -1).
EVEN, START, DEPTH, WIDTH, NEXT, FIELD, N_NAME = 0, 0, 1, 2, 5, 6, 7

# Operations on scalars that a compiled loop makes with the bits of NumPy, by their codes. An
# instruction is its code and the registers of three arguments.
EXACT = (
    *("add", "subtract", "multiply", "divide", "negative", "positive", "sqrt", "abs", "where"),
    *("<", "<=", ">", ">=", "==", "!="),
)
ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATIVE, POSITIVE, SQRT, ABS, WHERE = range(9)
LESS, AT_LEAST_AS_SMALL, MORE, AT_LEAST_AS_LARGE, EQUAL, OTHER = range(9, 15)
# Columns of the table of steps that are divided, and of what their substeps came to.
TIME, END, WANTED, BEFORE, LEAST, N_DIVIDED = 0, 1, 2, 3, 4, 5
ACCEPTED, REJECTED, SHORTEST, LONGEST, REACHED, TURN, N_TALLY = 0, 1, 2, 3, 4, 5, 6
# What is asked of substeps, and how many may be tried in one call.
TOLERANCE, ORDER, AT_MOST = 0, 1, 2
