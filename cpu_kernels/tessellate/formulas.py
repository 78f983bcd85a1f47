"""Source of what follows from the formulas of a body in `cpu.tessellate`: ghosts beyond faces that
are more than a + b * mirror, and the power of sources that depends on the place.

Idea    Programs are printed into functions, one number at a time, since what they call from the C
        library would have other last bits in vectors. All numbers come from tables, constants of
        formulas too, so that a kernel is compiled for the shape of its programs only. `ghost_of` is
        called by address, by a loop that does not know programs; there are few ghosts.
Layout  tables: constants, and parameters by step and code. places: a row per rule, that of the
        source first: number of its program, where its constants begin, and for each parameter where
        it begins and the distance from step to step and from code to code. about: three numbers for
        each code of a ghost: its rule, its code within the rule, the id of its mirror point.
        along_planes, along_rows, along_points: coordinates by padded index or element of a row.
Test    tests/kernels/test_tessellate_conduction.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tetris_sim.cpu_kernels.common.medium import parameters_of, rules_of
from tetris_sim.cpu_kernels.compiled.conduction import name_of_result, program_lines
from tetris_sim.model.conduction import CONDUCTIVITY, MIRROR, TEMPERATURE
from tetris_sim.model.grid import OUTER
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import CONSTANT, INPUT, Instruction, Program, print_lines
from tetris_sim.model.radiation import RADIATING, RADIATING_INPUTS

# Source of what the row kernel of `cpu.tessellate` knows about heat contents.
#
# Idea    A potential is made of each heat content once per step, not once per neighbour: row by
#         row, before rows around it are computed. Where a run of vectors has one record and curves
#         have few pieces, all of the curves are in registers and each lane chooses its piece;
#         elsewhere points are looked up one by one, beginning at the piece of the point before in
#         their lane. Ghosts beyond ruled faces are potentials already. Beside other materials flow
#         goes by temperature over resistance: a vector any of whose points lies there makes both
#         flows, and each lane chooses. The conductance of such a face is the resistance of its
#         contact instead, with the other sign.
# Layout  `OPERANDS` of `kinds.py`. curves: six numbers for each knot, beginning and slope of
#         potential, temperature and conductivity. columns: knot, beginning and slope of the
#         potential of each piece, by id. half: by axis and id. Temperature and conductivity lie one
#         and two rings behind the potential, of vectors beside other materials only.
# Limits  The operations are those of `compiled/conduction.py`, in their order.
# Test    tests/kernels/test_tessellate_conduction.py

FEW = 6  # pieces that are compared one by one

# `low` is the place of the first piece of a curve. Tables have pieces that no state reaches.
CURVES = """@inner
def piece_of(knots, low, pieces, state, guess):
    at, last = guess, low + pieces - 1
    if at < last and knots[at + 1] <= state:
        at += 1
    elif at > low and not knots[at] <= state:
        at -= 1
    if (at == low or knots[at] <= state) and (at == last or not knots[at + 1] <= state):
        return at
    at, high = low, low + pieces
    while high - at > 1:
        middle = (at + high) >> 1
        if knots[middle] <= state:
            at = middle
        else:
            high = middle
    return at


@inner
def value_of(knots, curves, at, state, column):
    place = 6 * at + column
    return fma(curves[place + 1], state - knots[at], curves[place])


"""
_POINTS_HEAD = "def potentials_of_points(u, begin, to, first, last, beyond, operands):"
_POINTS = """    for lane in range(LANES):
        guess = 0
        for x in range(first, last):
            n, place = numbers[begin // LANES + x], x * LANES + lane
            low, state = patterns[n * LANES + lane] * pieces, u[begin + place]
            if beyond and codes[begin + place] != 0:
                # What curves that are the identity give: of -0.0, 0.0.
                flowing[to + place] = state + REAL(0.0)
                continue
            at = piece_of(knots, low, pieces, state, low + guess)
            guess = at - low
            flowing[to + place] = value_of(knots, curves, at, state, 0)
            if several[n] != 0:
                flowing[to + place + ring] = value_of(knots, curves, at, state, 2)
                flowing[to + place + 2 * ring] = value_of(knots, curves, at, state, 4)
"""
_ROW_HEAD = "def potentials_of_row(u, begin, to, tag, column, last_column, operands):"


def potentials_source(kind: Conducting, lanes: int) -> list[str]:
    """Source of `potentials_of_row` and `sum_of_several`."""
    functions = [(_POINTS_HEAD, _POINTS.splitlines())]
    functions += [(_ROW_HEAD, list(_points_of_row() if kind.pieces == MANY else _row(kind, lanes)))]
    lines = CURVES.splitlines()
    for head, body in functions:
        lines += ["@inner", head, *operands_of(body), *body, "", ""]
    return [*lines, *_several(kind, lanes)]


def _points_of_row() -> Iterator[str]:
    """Every point is looked up."""
    call = "potentials_of_points(u, begin, to, column - 1, last_column + 1, True, operands)"
    yield f"    {call}"


def _row(kind: Conducting, lanes: int) -> Iterator[str]:
    """The curves of a record stay in registers as long as vectors have it."""
    curve = [
        f"{name}{k} = gather(moved(columns, {3 * k + row} * n_ids), patterns, known * {lanes})"
        for k in range(kind.pieces)
        for row, name in enumerate(("knot", "value", "slope"))
    ]
    yield "    known = numbers[begin // LANES + column]"
    yield from (f"    {line}" for line in curve)
    yield "    for p in range(column - 1, last_column + 1):"
    yield "        n = numbers[begin // LANES + p]"
    # The vectors at the ends may have ghosts.
    yield "        end = p < column or p == last_column or tags[tag] == BEYOND"
    yield "        if end or several[n] != 0:"
    yield "            potentials_of_points(u, begin, to, p, p + 1, end, operands)"
    yield "            continue"
    yield "        if n != known:"
    yield "            known = n"
    yield from (f"            {line}" for line in curve)

    yield f"        state = load(u, begin + p * {lanes})"
    for name in ("knot", "value", "slope"):
        chosen = f"{name}0"
        for k in range(1, kind.pieces):
            chosen = f"where_reached(state, knot{k}, {name}{k}, {chosen})"
        yield f"        {name} = {chosen}"
    yield "        rise = subtract(state, knot)"
    yield f"        store(flowing, to + p * {lanes}, fma_vector(slope, rise, value))"


def _several(kind: Conducting, lanes: int) -> Iterator[str]:
    """The sum of a vector of points beside other materials."""
    if kind.radiates:
        yield "@inner"
        yield f"def radiated({', '.join(RADIATING_INPUTS)}):"
        yield from (f"    {line}" for line in _vector_lines(RADIATING))
        yield f"    return {name_of_result(RADIATING)}"
        yield ""
        yield ""

    yield "@inner"
    yield "def sum_of_several(total, here, n, near, flowing, ring, records, patterns, half, n_ids):"
    yield "    temperatures, conductivities = moved(flowing, ring), moved(flowing, 2 * ring)"
    yield "    u, t = load(flowing, here), load(temperatures, here)"
    yield "    k = load(conductivities, here)"

    size = kind.slots * lanes
    for axis in range(kind.ndim):
        if not kind.ways:
            yield f"    halves = moved(half, {axis} * n_ids)"
        for side in (0, 1):
            place, number = (f"near[{2 * (2 * axis + side) + k}]" for k in (0, 1))
            first = not kind.heated and axis == side == 0
            yield f"    there, its = {place}, {number}"
            yield f"    between = load(records, {'n' if side else 'its'} * {size} + {axis * lanes})"
            rise = "subtract(load(flowing, there), u)"
            alike = f"multiply(between, {rise})" if first else f"fma_vector(between, {rise}, total)"
            yield f"    alike = {alike}"
            yield "    if any_signed(between):"
            halves = [f"gather(halves, patterns, {number} * {lanes})" for number in ("n", "its")]
            if kind.ways:
                # Of the face, known to the lower of both points: the point itself lies below the
                # face towards its upper neighbour.
                first_half = f"{'n' if side else 'its'} * {size} + {(kind.halves + axis) * lanes}"
                parts = [f"load(records, {first_half} + {up * kind.ndim * lanes})" for up in (0, 1)]
                halves = parts if side else parts[::-1]
            yield f"        own = divide_vector({halves[0]}, k)"
            yield f"        other = divide_vector({halves[1]}, load(conductivities, there))"
            # The contact has the other sign: this adds it.
            yield "        resistance = subtract(add_vector(own, other), between)"
            yield "        rise = subtract(load(temperatures, there), t)"
            yield "        flow = divide_vector(rise, resistance)"
            if kind.radiates:
                place = f"{'n' if side else 'its'} * {size} + {(kind.radiances + axis) * lanes}"
                yield f"        cold = load(records, {place})"
                yield "        if any_signed(cold):"
                yield "            warm = load(temperatures, there)"
                ways = "own, other, negative(between), negative(cold)"
                yield f"            flow = where_signed(cold, radiated(t, warm, {ways}), flow)"
            different = "flow" if first else "add_vector(total, flow)"
            yield f"        alike = where_signed(between, {different}, alike)"
            yield "    total = alike"
    yield "    return total"
    yield ""
    yield ""


_VECTORS = {"add": "add_vector", "divide": "divide_vector", "fma": "fma_vector"}


def _vector_lines(program: Program) -> Iterator[str]:
    """The lines of a program of arithmetic alone, for vectors: the bits of each lane are those of
    `program_lines`.
    """

    def phrase(it: Instruction, arguments: tuple[str, ...]) -> str:
        if it.operation == INPUT:
            return it.name
        if it.operation == CONSTANT:
            return f"broadcast(REAL({it.value!r}))"
        return f"{_VECTORS.get(it.operation, it.operation)}({', '.join(arguments)})"

    for name, expression, _ in print_lines(program, phrase):
        yield f"{name} = {expression}"


def potentials_call(plane: str, row: str, ring: int) -> str:
    """The line that makes the potentials of a row, of the computed columns and one on each side."""
    to = f"({plane} & {ring - 1}) * pitch0 + {row} * pitch1"
    where = f"{plane} * pitch0 + {row} * pitch1, {to}, {plane} * tag_plane + {row} * tag_row"
    return f"potentials_of_row(u, {where}, column, last_column, operands)"


_ALONG = ("along_planes", "along_rows", "along_points")
_SEEN = {MIRROR: 0, TEMPERATURE: 2, CONDUCTIVITY: 4}  # column of the curves


def row_width(problem: Problem) -> int:
    """Numbers in a row of `places`."""
    programs = [it.program for it in rules_of(problem) if it is not None]
    return 2 + 3 * max([1, *(len(parameters_of(it, problem)) for it in programs)])


def shape_of(program: Program) -> tuple[object, ...]:
    """Structure of a program without its constants: programs of one shape share a compiled
    kernel.
    """
    return tuple((it.operation, it.arguments, it.name) for it in program.instructions)


def ghost_source(problem: Problem, programs: Sequence[Program], lanes: int, *, curved: bool) -> str:
    """The module with `ghost_of`.

    Args:
        problem: whose faces.
        programs: one of each shape, in the order of their numbers in `places`.
        lanes: elements of a vector.
        curved: whether states are heat contents.
    """
    lines = [
        f"    rule, code = about[entry] * {row_width(problem)}, about[entry + 1]",
        "    mirror = v[inside]",
    ]
    if curved:
        lines += ["    state, low = mirror, about[entry + 2] * pieces"]
        lines += ["    at = piece_of(knots, low, pieces, state, low)"]
        for name, column in _SEEN.items():
            lines += [f"    {name} = value_of(knots, curves, at, state, {column})"]

    lines += ["    plane = inside // plane_size", "    rest = inside - plane * plane_size"]
    lines += ["    row = rest // row_size", "    point = rest - row * row_size"]
    lines += _coordinates(problem, "    ", ("plane", "row", "point"))
    for number, program in enumerate(programs):
        lines += [f"    if places[rule] == {number}:"]
        prefix = f"r{number}_"
        found, of_point = _formula(problem, program, prefix)
        lines += [f"        {line}" for line in (*found, *of_point)]
        lines += [f"        return {name_of_result(program, prefix)}"]
    head = [*imports(np.dtype(problem.dtype), lanes), *([CURVES] if curved else [])]
    head += ["@cfunc(REAL(POINTER, OPERANDS, types.intp, types.intp), cache=True)"]
    head += ["def ghost_of(v, operands, number, inside):", "    entry = 3 * (-1 - number)"]
    return "\n".join([*head, *operands_of(lines), *lines, "    return mirror", ""])


def power_source(problem: Problem, program: Program) -> list[str]:
    """Source of `power_of_row` for the program of a source; it reads the states of the points only
    if the program does.
    """
    found, of_point = _formula(problem, program, "r")
    lines = ["    first = (plane * plane_size + row * row_size) // LANES", "    rule = 0"]
    lines += [f"    {line}" for line in found]
    lines += [
        "    for k in range(column, last_column):",
        "        ids = numbers[first + k] * LANES",
    ]

    lines += ["        for point in range(k * LANES, (k + 1) * LANES):"]
    lines += ["            code = patterns[ids + point - k * LANES]"]
    lines += _coordinates(problem, 12 * " ", ("plane", "row", "point"))
    if program.reads(MIRROR, TEMPERATURE):
        lines += ["            mirror = u[plane * plane_size + row * row_size + point]"]
    if program.reads(TEMPERATURE):
        lines += ["            low = code * pieces"]
        lines += ["            at = piece_of(knots, low, pieces, mirror, low)"]
        lines += ["            temperature = value_of(knots, curves, at, mirror, 2)"]
    lines += [f"            {line}" for line in of_point]
    lines += [f"            heats[to + point] = {name_of_result(program)}"]
    head = "def power_of_row(u, heats, to, plane, row, column, last_column, operands):"
    return ["@inner", head, *operands_of(lines), *lines, "", ""]


def filling_source(problem: Problem, program: Program, lanes: int) -> str:
    """The module with `fill_power`, for sources that do not change."""
    head = [*imports(np.dtype(problem.dtype), lanes), *power_source(problem, program)]
    head += ["@cfunc(types.void(OPERANDS, *(types.intp,) * 6), cache=True)"]
    head += ["def fill_power(operands, plane, last_plane, row, last_row, column, last_column):"]
    lines = ["    for i in range(plane, last_plane):", "        for j in range(row, last_row):"]
    lines += ["            to = i * plane_size + j * row_size"]
    lines += [f"            {power_call('i', 'j', 'power, power, to')}"]
    return "\n".join([*head, *operands_of(lines), *lines, ""])


def power_call(plane: str, row: str, to: str) -> str:
    """The line that makes the power of a row, of the computed columns; `to` names the states, which
    a steady source does not read, where the power goes, and its first element.
    """
    return f"power_of_row({to}, {plane}, {row}, column, last_column, operands)"


def _formula(problem: Problem, program: Program, prefix: str) -> tuple[list[str], list[str]]:
    """Lines that find the numbers of a rule, which begins at `rule`, for `step`; and the lines of
    its program for `code`.
    """
    # Numbers come from tables, so programs that differ in constants share compiled code.
    names = parameters_of(program, problem)
    inputs = {name: name for name in (*problem.grid.axis_names, *_SEEN)}
    inputs |= {name: f"tables[at_{k} + code * by_{k}]" for k, name in enumerate(names)}
    found = ["constants = places[rule + 1]"]
    for k in range(len(names)):
        place = f"places[rule + {3 * k + 2}"
        found.append(f"at_{k} = {place}] + step * {place} + 1]")
        found.append(f"by_{k} = {place} + 2]")
    return found, list(program_lines(program, inputs, prefix, "tables[constants + {}]"))


def _coordinates(problem: Problem, indent: str, places: Sequence[str]) -> list[str]:
    """Lines that say where a point is."""
    names = zip(problem.grid.axis_names, OUTER[problem.grid.ndim], strict=True)
    return [f"{indent}{name} = {_ALONG[axis]}[{places[axis]}]" for name, axis in names]


BLOCK_BITS = 3
BLOCK = 1 << BLOCK_BITS  # vectors that have a tag together
BEYOND = -2  # tag of vectors beyond ruled faces, if states are heat contents
# What the kernel gets for a step: addresses of arrays, and numbers. `tag_plane` and `tag_row`:
# elements from plane to plane and from row to row of the tags. `several`: whether vectors of a
# record lie beside other materials. `flowing`: potentials, and one and two times `ring` behind them
# temperatures and conductivities. `power`: what heats each point by a formula. `step`: of the
# block. What comes behind it: see `formulas.py`.
OPERANDS = (
    *("records", "numbers", "tags", "tag_plane", "tag_row", "patterns", "source"),
    *("several", "flowing", "ring", "power", "step", "codes", "plane_size", "row_size"),
    *("knots", "curves", "columns", "half", "n_ids", "pieces"),
    *("tables", "places", "about", "along_planes", "along_rows", "along_points"),
)
_NUMBERS = frozenset({"tag_plane", "tag_row", "ring", "step", "plane_size", "row_size"}) | {
    *("n_ids", "pieces")
}
_INTEGERS = {name: "INT32" for name in ("numbers", "tags", "patterns", "several", "codes")} | {
    name: "INT64" for name in ("places", "about")
}
STEADY, CHANGING = "steady", "changing"  # sources that are formulas of the place
MANY = -1  # pieces of a curve, more than are compared one by one


@dataclass(frozen=True)
class Conducting:
    """Kind of conduction for which a kernel is compiled.

    Attributes:
        ndim: number of axes.
        heated: whether there are sources.
        scaled: whether they are multiplied by the volume of the point.
        placed: whether sources are a formula of the place, and if they are, `STEADY` or `CHANGING`.
        pieces: of the curves of a heat content, `MANY` if they are searched; 0 if the state is a
            temperature.
        ways: whether every face has resistances of its own, of heat contents with coefficients.
        above: whether rows that are computed together lie one above the other instead of side by
            side, in 3D and without rings.
        radiates: whether surfaces inside the body radiate to each other.
    """

    ndim: int
    heated: bool
    scaled: bool
    placed: str = ""
    pieces: int = 0
    ways: bool = False
    above: bool = False
    radiates: bool = False

    @property
    def slots(self) -> int:
        """Vectors of a record: conductances by axis, the rate, the volume; of heat contents c of
        the half cells below and above upper faces by axis, if they have `ways`, the radiances of
        upper faces by axis, and at last whether several materials are beside it.
        """
        return self.radiances + self.ndim * self.radiates + self.curved

    @property
    def halves(self) -> int:
        """The first vector of `ways`: below the face along each axis, then above it."""
        return self.ndim + 1 + self.scaled

    @property
    def radiances(self) -> int:
        """The first vector of radiances, with the other sign, 0.0 where surfaces do not radiate."""
        return self.halves + 2 * self.ndim * self.ways

    @property
    def curved(self) -> bool:
        """Whether states are heat contents."""
        return self.pieces != 0

    @property
    def patterned(self) -> bool:
        """Whether points of different ids have different records even if their numbers agree."""
        return self.heated or self.curved

    @property
    def jammed(self) -> int | None:
        """The axis along which rows are computed together; the last one is that of the rows."""
        return None if self.ndim == 1 else 0 if self.above else self.ndim - 2

    @property
    def rings(self) -> int:
        """Number of rings that each thread needs: for potentials, temperatures and conductivities,
        and for power.
        """
        return 3 * self.curved + (self.placed == CHANGING)

    def ring(self, jam: int) -> int:
        """Planes of a ring, which holds what rows need that are computed together."""
        if self.ndim != 2:
            return 1 if self.ndim == 1 else 4
        return 4 if jam <= 2 else 8


def operands_of(lines: Sequence[str]) -> list[str]:
    """Lines that begin a function with those of `OPERANDS` that its other lines name."""
    words = set(re.findall(r"\w+", "\n".join(lines)))
    return [f"    {name} = {_operand(name)}" for name in OPERANDS if name in words]


def imports(dtype: np.dtype[Any], lanes: int) -> list[str]:
    """The first lines of a generated module, for all that its functions may name."""
    path = "from tetris_sim.cpu_kernels.compiled"
    lines = ["import math", "", "import numpy as np"]
    lines += ["from numba.core import types", ""]
    lines += [f"{path}.vectors import add_vector, any_signed, divide_vector, where_reached"]
    lines += [f"{path}.vectors import where_signed"]
    lines += [f"{path}.intrinsics import call_library, cfunc, divide, elements_at, fma"]
    lines += [f"{path}.intrinsics import inner, moved"]
    lines += [f"{path}.vectors import vector_operations", ""]
    lines += [f"REAL = types.{dtype.name}", f'V = vector_operations("{dtype.name}", {lanes})']
    lines += ["load, store, multiply, subtract = V.load, V.store, V.multiply, V.subtract"]
    lines += ["negative, fma_vector, gather = V.negative, V.fma, V.gather"]
    lines += ["broadcast = V.broadcast"]
    lines += ["INT32, INT64 = types.int32, types.int64", f"LANES, BITS = {lanes}, {BLOCK_BITS}"]
    lines += [f"BEYOND, POINTER, OPERANDS = {BEYOND}, types.CPointer(REAL), types.CPointer(INT64)"]
    return [*lines, "", ""]


def _operand(name: str) -> str:
    value = f"operands[{OPERANDS.index(name)}]"
    if name in _NUMBERS:
        return value
    return f"elements_at({value}, {_INTEGERS.get(name, 'REAL')})"
