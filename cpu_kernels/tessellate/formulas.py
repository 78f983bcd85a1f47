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

from collections.abc import Sequence

import numpy as np

from tetris_sim.cpu_kernels.common.medium import parameters_of, rules_of
from tetris_sim.cpu_kernels.compiled.programs import name_of_result, program_lines
from tetris_sim.cpu_kernels.tessellate.kinds import imports, operands_of
from tetris_sim.cpu_kernels.tessellate.potentials import CURVES
from tetris_sim.model.conduction import CONDUCTIVITY, MIRROR, TEMPERATURE
from tetris_sim.model.grid import OUTER
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import Program

_ALONG = ("along_planes", "along_rows", "along_points")
_SEEN = {MIRROR: 0, TEMPERATURE: 2, CONDUCTIVITY: 4}  # column of the curves


def row_width(problem: Problem) -> int:
    """Numbers in a row of `places`."""
    programs = [it.program for it in rules_of(problem) if it is not None]
    return 2 + 3 * max([1, *(len(parameters_of(it, problem)) for it in programs)])


def shape_of(program: Program) -> tuple[object, ...]:
    """What two programs have in common that differ in constants only."""
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
    """Source of `power_of_row` for the program of a source."""
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
    lines += [f"            {line}" for line in of_point]
    lines += [f"            heats[to + point] = {name_of_result(program)}"]
    head = "def power_of_row(heats, to, plane, row, column, last_column, operands):"
    return ["@njit(nogil=True)", head, *operands_of(lines), *lines, "", ""]


def filling_source(problem: Problem, program: Program, lanes: int) -> str:
    """The module with `fill_power`, for sources that do not change."""
    head = [*imports(np.dtype(problem.dtype), lanes), *power_source(problem, program)]
    head += ["@cfunc(types.void(OPERANDS, *(types.intp,) * 6), cache=True)"]
    head += ["def fill_power(operands, plane, last_plane, row, last_row, column, last_column):"]
    lines = ["    for i in range(plane, last_plane):", "        for j in range(row, last_row):"]
    lines += ["            to = i * plane_size + j * row_size"]
    lines += [f"            {power_call('i', 'j', 'power, to')}"]
    return "\n".join([*head, *operands_of(lines), *lines, ""])


def power_call(plane: str, row: str, to: str) -> str:
    """The line that makes the power of a row, of the computed columns."""
    return f"power_of_row({to}, {plane}, {row}, column, last_column, operands)"


def _formula(problem: Problem, program: Program, prefix: str) -> tuple[list[str], list[str]]:
    """Lines that find the numbers of a rule, which begins at `rule`, for `step`; and the lines of
    its program for `code`.
    """
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
