"""Tables that sweeps and streams of equations read in common."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.layout import COPY, PaddedField, allocate_aligned, pad
from tetris_sim.cpu_kernels.equations.stages import (
    COEFFICIENT,
    COORDINATE,
    EXACT,
    KERNEL,
    MADE,
    MARGIN,
    MIRRORED,
    N_NAME,
    N_STAGE,
    NOTHING,
    NUMBERS,
    PITCH,
    STATE,
    STEP,
    WIDTH,
    WRAP,
    RowStream,
    StageKernel,
    compile_stages,
    settled,
    stage_kernel,
)
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import padded
from tetris_sim.model.equations import Equations
from tetris_sim.model.formula import Comparison, Constant, Node, Operation, Variable
from tetris_sim.model.grid import OUTER, Grid, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Ranges, Slab, batches

# StepInputs: what a step by equations reads beside the state, as arrays of one slab.
#
# Coefficients lie as the state does, with margins as wide as stages reach; coordinates are a line
# per axis; parameters are tables, made for the steps of a block.

Array = npt.NDArray[Any]
Margins = Sequence[tuple[int, int]]  # points around a slab (low, high), per axis of the problem
_LAID_POINTS = 1 << 20  # points asked for at a time
_SLACK = 64  # elements at both ends, which vectors beyond the points may read
_MOST_NUMBERS = 1 << 20  # in the tables of one block


def coefficient_layout(problem: Problem, slab: Slab, margins: Margins) -> PaddedField | None:
    """Memory layout of the coefficients; None if there are none.

    Args:
        problem: by equations.
        slab: which part of it.
        margins: how far around it stages are computed.
    """
    equations = problem.system
    if not (names := tuple(equations.coefficients or {})):
        return None
    radii = [stage.radii(name) for stage in equations.stages for name in names]
    reach = np.max([it for it in radii if it] or [(0,) * problem.grid.ndim], axis=0)
    wide = [(low + int(r), high + int(r)) for (low, high), r in zip(margins, reach, strict=True)]
    layout = pad(problem, slab, wide)
    return PaddedField(**{**vars(layout), "n_fields": len(names)})


class StepInputs:
    """Coefficients and coordinates of one slab, and the parameters of its blocks.

    Attributes:
        pitch: elements from plane to plane and from row to row of coefficients.
        longest: steps that one block may have, so that its tables stay small.
    """

    def __init__(
        self, problem: Problem, slab: Slab, first: tuple[int, int, int], margins: Margins
    ) -> None:
        """Lay everything out.

        Args:
            problem: by equations.
            slab: which part of it.
            first: padded index of the first owned point, as the stages count.
            margins: how far around the slab stages are computed.
        """
        equations = problem.system
        self._problem, self._equations, self._slab = problem, equations, slab
        self._size = problem.arithmetic.itemsize
        self._layout = coefficient_layout(problem, slab, margins)
        self._coefficients, self.pitch, self._apart = np.zeros(0, problem.arithmetic), (0, 0), 0
        if (layout := self._layout) is not None:
            self._coefficients, self.pitch = self._lay(slab, layout), layout.pitch[:2]
            # Padded indices of the state address the coefficients after this shift.
            moved = np.subtract(layout.first, first)
            self._apart = int(np.dot(moved, layout.pitch))  # from the state's indices to these

        self._lines: dict[int, tuple[Array, int]] = {}
        rings = [problem.boundary.periodic(axis) for axis in range(problem.grid.ndim)]
        around = on_three(slab.globally(_around(slab, margins)), (0, 0), OUTER)
        for axis, padded_axis in enumerate(OUTER[problem.grid.ndim]):
            of_span = functools.partial(_positions, problem.grid, axis)
            span, n = (around[padded_axis],), (problem.grid.shape[axis],)
            inside = padded(of_span, span, n, (rings[axis],)).astype(problem.arithmetic)
            line = np.pad(inside, _SLACK)
            self._lines[padded_axis] = line, first[padded_axis] - margins[axis][0] - _SLACK

        self._changes = any(it.changes for it in equations.parameters)
        # A halo lasts for one block, and those are short.
        endless = any(map(any, slab.halo)) or not self._changes
        most = _MOST_NUMBERS // max(1, len(equations.parameters))
        self.longest = sys.maxsize if endless else most

    def address(self, stream: RowStream) -> int:
        """Address of the element of padded index (0, 0, 0) of a coefficient or coordinate stream,
        which may lie outside the array.
        """
        if stream.kind == COEFFICIENT:
            names = list(self._equations.coefficients or {})
            assert self._layout is not None
            element = names.index(stream.name) * self._layout.field_pitch + self._apart
            element += int(np.dot((stream.plane, stream.row), self.pitch))
            return int(self._coefficients.ctypes.data) + (_SLACK + element) * self._size
        line, begin = self._lines[stream.kind - COORDINATE]
        return int(line.ctypes.data) - begin * self._size

    def numbers(self, step: int, steps: int) -> Array:
        """The parameters of some steps, (steps, n) or (1, n) if none changes; n is 1 at least."""
        parameters, time = self._equations.parameters, self._problem.time
        rows = [it.rows(time, step, steps)[:, :1] for it in parameters] or [np.zeros((1, 1))]
        length = max(map(len, rows))
        columns = [np.broadcast_to(it, (length, 1)) for it in rows]
        return np.ascontiguousarray(np.concatenate(columns, axis=1), self._problem.arithmetic)

    def numbers_at(self, time: float, length: float, found: Mapping[str, float]) -> Array:
        """The parameters of a substep of some length that begins at some time [s], (1, n)."""
        assert self._equations.substeps is not None
        numbers = self._equations.substeps.numbers(time, length, found).reshape(1, -1)
        return np.ascontiguousarray(numbers, self._problem.arithmetic)

    def give(self, name: str, of_box: Callable[[Ranges], Array]) -> None:
        """Set a coefficient, a function of boxes of the grid."""
        layout = self._layout
        assert layout is not None
        one = PaddedField(**{**vars(layout), "n_fields": 1})
        flat = self._coefficients[_SLACK:-_SLACK]
        margins = [layout.margin[axis] for axis in layout.axis_of]
        number = [*(self._equations.coefficients or {})].index(name)
        own = flat[number * layout.field_pitch : (number + 1) * layout.field_pitch]
        for part in batches(_around(self._slab, margins), _LAID_POINTS):
            box = self._slab.globally(part)
            one.write(own, part, self._problem.around(of_box, box)[np.newaxis])

    def _lay(self, slab: Slab, layout: PaddedField) -> Array:
        n_bytes = layout.n_bytes + 2 * _SLACK * self._size
        whole = allocate_aligned(n_bytes, layout.dtype, 0)
        whole[:] = 0  # rows have ends that no point lies in
        flat = whole[_SLACK:-_SLACK]
        margins = [layout.margin[axis] for axis in layout.axis_of]
        for part in batches(_around(slab, margins), _LAID_POINTS):
            box = slab.globally(part)
            names = self._equations.coefficients or {}
            found = [self._problem.padded_coefficient(name, box) for name in names]
            layout.write(flat, part, np.stack(found))
        return whole


def ghost_widths(equations: Equations, name: str, ndim: int) -> tuple[int, int, int]:
    """Ghosts of a name per padded axis."""
    return on_three(equations.ghosts.get(name, (0,) * ndim), 0, OUTER)


def _around(slab: Slab, margins: Margins) -> Ranges:
    pairs = zip(slab.shape, margins, strict=True)
    return tuple((-low, n + high) for n, (low, high) in pairs)


def _positions(grid: Grid, axis: int, span: Ranges) -> Array:
    return grid.coordinates(axis, *span[0])


# Faces: what lies beyond the sides of a slab, and the ghosts of names as numbers.


def beyond_sides(problem: Problem, slab: Slab) -> npt.NDArray[np.int64]:
    """Kind of each side of a slab, (3, 2) by padded axis and side: `NOTHING`, `MIRRORED` or
    `WRAP`.
    """
    beyond = np.full((3, 2), NOTHING, np.int64)
    for axis, outer in enumerate(OUTER[problem.grid.ndim]):
        for side, halo in enumerate(slab.halo[axis]):
            if not halo:
                beyond[outer, side] = WRAP if problem.boundary.periodic(axis) else MIRRORED
    return beyond


def field_of(equations: Equations, name: str) -> str:
    """The field whose new value a name is, or else the name itself."""
    return next((field for field, new in equations.results.items() if new == name), name)


def width_of(equations: Equations, name: str, ndim: int) -> tuple[int, int, int]:
    """Ghosts of a name per padded axis; a new value has those of its field too."""
    both = [ghost_widths(equations, it, ndim) for it in (name, field_of(equations, name))]
    return max(both[0][0], both[1][0]), max(both[0][1], both[1][1]), max(both[0][2], both[1][2])


def reflections(problem: Problem, equations: Equations, name: str) -> Array:
    """(a, b) of the ghosts of a name, (3, 2, most ghosts, 2) by padded axis, side and number."""
    widths = width_of(equations, name, problem.grid.ndim)
    every = [width_of(equations, it, problem.grid.ndim) for it in equations.ghosts]
    faces = np.zeros(
        (3, 2, max(1, *(max(it) for it in every or [(0, 0, 0)])), 2), problem.arithmetic
    )
    field = field_of(equations, name)
    # New values take the boundary of their field, since they replace it at the next step.
    boundary = equations.boundaries.get(field if field in equations.ghosts else name)

    for axis, outer in enumerate(OUTER[problem.grid.ndim]):
        if boundary is None or not widths[outer]:
            continue
        for side, where in enumerate(SIDES):
            pairs: Any = [COPY] * widths[outer]
            if not boundary.periodic(axis):
                pairs = boundary.reflections(
                    axis, where, spacing=problem.grid.spacing[axis], width=widths[outer]
                )
            faces[outer, side, : widths[outer]] = pairs
    return faces


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
    given: StepInputs
    stages: Array
    names: Array
    rows: Sequence[str]
    faces: Array

    def lists(self, period: int, state: Callable[[RowStream, int], int]) -> npt.NDArray[np.int64]:
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
        """Fill the initial record of every thread, except for lists of streams and fields that only
        streams read.

        Args:
            problem: by equations.
            slab: which part of it.
            layout: of the state.
            threads: how many there are.
        """
        # One record per thread, so that no thread writes what another one reads.
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


@functools.cache  # threads ask for it, each time they meet new arrays
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

    equations, ndim = settled(problem.system), problem.grid.ndim
    kernels = [stage_kernel(it, equations, problem) for it in equations.stages]
    groups = [equations.fields, *(kernel.made for kernel in kernels)]
    # Group 0 is the state at the beginning, group k what stage k makes.
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
    given = StepInputs(problem, slab, layout.first, margins)
    return Tables(equations, kernels, given, stages, names, rows, faces)


# Scalars: what the parameters of a substep are made of, as tables that a compiled loop works off.

_LINE_NUMBERS = 8  # in a cache line; what two threads write lies on lines of their own


@dataclass(frozen=True)
class ScalarProgram:
    """Formulas of t and dt as instructions; see `substeps.py`.

    Attributes:
        instructions: code and registers, (n, 4).
        registers: as they are before the first substep, of one thread.
        results: the register of each formula.
    """

    instructions: npt.NDArray[np.int64]
    registers: npt.NDArray[np.float64]
    results: npt.NDArray[np.int64]


def scalar_program(trees: Sequence[Node]) -> ScalarProgram | None:
    """Instructions for formulas of t and dt; None if an operation may have other bits in NumPy."""
    given: dict[Any, int] = {"t": 0, "dt": 1}
    made: list[tuple[int, ...]] = []  # registers that are made count from -1 down
    known: dict[int, int] = {}

    def emit(name: str, *arguments: int) -> int:
        made.append((EXACT.index(name), *arguments, *[0] * (3 - len(arguments))))
        return -len(made)

    def register(node: Node) -> int:
        if id(node) not in known:
            known[id(node)] = enter(node)
        return known[id(node)]

    def enter(node: Node) -> int:
        match node:
            case Constant(value):
                return given.setdefault(value.hex(), len(given))
            case Variable(name):
                return given[name]
            case Operation(name, arguments):
                return emit(name, *map(register, arguments))
            case Comparison((sign,), (low, high)):
                return emit(sign, register(low), register(high))
        raise ValueError

    try:
        results = [register(tree) for tree in trees]
    except ValueError:
        return None
    # A line further, so that registers of two threads never share one.
    width = (len(given) + len(made) + 2 * _LINE_NUMBERS) // _LINE_NUMBERS * _LINE_NUMBERS
    first, registers = width - len(made), np.zeros(width)
    registers[2 : len(given)] = [float.fromhex(it) for it in [*given][2:]]
    code = np.array(made, np.int64).reshape(-1, 4)
    code[:, 1:][code[:, 1:] < 0] = first - 1 - code[:, 1:][code[:, 1:] < 0]
    placed = [first - 1 - it if it < 0 else it for it in results]
    return ScalarProgram(code, registers, np.array(placed, np.int64))
