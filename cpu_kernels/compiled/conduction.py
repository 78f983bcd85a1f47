"""Source of what differs from problem to problem in loops that conduct heat through a medium: the
update of a row and the ghosts of a row, made of the programs of its source and faces.

A state that is heat content belongs to a piece of the curves of its id, the number of knots behind
the first one that it has reached. Few are compared, many are searched by halving: the same number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tetris_sim.cpu_kernels.common.medium import face_programs, id_type, parameters_of
from tetris_sim.cpu_kernels.compiled.generate import splice, stored_source
from tetris_sim.model.conduction import CONDUCTIVITY, MIRROR, TEMPERATURE
from tetris_sim.model.formula import COMPARISONS
from tetris_sim.model.grid import OUTER
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import CONSTANT, INEXACT, INPUT, Instruction, Program, print_lines
from tetris_sim.model.radiation import RADIATING, RADIATING_INPUTS

# Print a program as source that Numba compiles: one line per register.
#
# Idea    Everything is in the arithmetic type `REAL` of the module that the lines stand in,
#         constants too, and in the order of the instructions, so a program gives the same bits in
#         whatever loop it stands. Division follows IEEE (Numba's own raises), and functions of the
#         C library are called for one number at a time: vectors of them would have other last bits.
# Limits  A module that the lines are put into begins with `IMPORTS` and defines `REAL`.
# Test    tests/kernels/test_programs.py

IMPORTS = """import math

import numpy as np
from numba.core import types

from tetris_sim.cpu_kernels.compiled.intrinsics import njit, call_library, divide, fma, inner
"""
_NO_EXP = -750.0  # below it, exp is less than half of the smallest number
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "and": "&", "or": "|"} | {
    sign: sign for sign in COMPARISONS
}
_CALLS = {"fma": "fma", "divide": "divide", "sqrt": "math.sqrt", "abs": "abs"} | {
    name: f"np.{name}" for name in ("floor", "ceil")
}


def program_lines(
    program: Program, inputs: Mapping[str, str], prefix: str = "r", constant: str | None = None
) -> Iterator[str]:
    """The lines of a program; the last one assigns its result to `name_of_result`.

    Args:
        program: what is printed.
        inputs: for each of its inputs an expression of type `REAL`.
        prefix: of the names of registers.
        constant: expression for number {} of `constants_of`, so that programs of other constants
            have the same lines; constants are printed as they are if not given.
    """
    numbers = itertools.count()

    def phrase(it: Instruction, arguments: tuple[str, ...]) -> str:
        if it.operation == INPUT:
            return inputs[it.name]
        if it.operation == CONSTANT and constant is not None:
            return constant.format(next(numbers))
        return _phrase(it, arguments)

    for name, expression, _ in print_lines(program, phrase, prefix):
        yield f"{name} = {expression}"


def constants_of(program: Program) -> list[float]:
    """The constants of a program, in the order in which they are printed."""
    return [it.value for it in program.instructions if it.operation == CONSTANT]


def name_of_result(program: Program, prefix: str = "r") -> str:
    """The register that holds what a program gives."""
    return f"{prefix}{len(program.instructions) - 1}"


def _phrase(it: Instruction, arguments: tuple[str, ...]) -> str:
    match it.operation:
        case name if name == CONSTANT:
            return f"REAL({_literal(it.value)})"
        case name if name in _SIGNS:
            return f" {_SIGNS[name]} ".join(arguments)
        case name if name in _CALLS:
            return f"{_CALLS[name]}({', '.join(arguments)})"

        case "exp":
            # Far from a beam it gives 0, and the library would report that it is not exact.
            zero = f"REAL(0.0) if {arguments[0]} < REAL({_NO_EXP}) else "
            return f'{zero}call_library("exp", ({arguments[0]},))'
        case name if name in INEXACT or name == "fmod":
            return f'call_library("{_C_NAMES.get(name, name)}", ({", ".join(arguments)},))'
        case "negative":
            return f"-{arguments[0]}"
        case "not":
            return f"not {arguments[0]}"
        case "where":
            return f"{arguments[1]} if {arguments[0]} else {arguments[2]}"
        case name:
            msg = f"{name} is no operation of a program"
            raise ValueError(msg)


_C_NAMES = {"power": "pow"}


def _literal(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"{'-' if value < 0 else ''}math.{abs(value)}"


_HEAD = "@inner"
_FEW = 6  # pieces that are compared one by one
_COLUMNS = {MIRROR: "PHI", TEMPERATURE: "T", CONDUCTIVITY: "K"}

# Where the state is heat content. `heat` is `enthalpy_arrays` of `medium.py`; a piece of a curve is
# known by its index in the knots.
_CURVES = f"""KNOTS, CURVES, HALF, CONTACT, RADIANCE, KINDS = 0, 1, 2, 3, 4, 5
PHI, T, K = 0, 2, 4


{_HEAD}
def piece_of(knots, m, state):
{{search}}


{_HEAD}
def value_of(heat, at, state, column):
    curves, place = heat[CURVES], 6 * at + column
    return fma(curves[place + 1], state - heat[KNOTS][at], curves[place])


{_HEAD}
def through(heat, at, here, own, by, there, other, contact):
    resistance = divide(own, value_of(heat, at, here, K))
    resistance += divide(other, value_of(heat, by, there, K))
    resistance += contact
    return divide(value_of(heat, by, there, T) - value_of(heat, at, here, T), resistance)


{_HEAD}
def between_materials(heat, axis, n_ids, m, at, here, j, by, there):
    own, other = heat[HALF][axis * n_ids + m], heat[HALF][axis * n_ids + j]
    contact = heat[CONTACT][(axis * n_ids + m) * n_ids + j]
    return through(heat, at, here, own, by, there, other, contact)

"""


def conduction_source(problem: Problem) -> str:
    """`REAL`, `ID`, `update_row`, `ghost_row` and `as_stored` of `medium_sweep.py`."""
    lines = [f"REAL = types.{problem.arithmetic.name}", f"ID = types.{id_type(problem)}", "", ""]
    lines += [stored_source(np.dtype(problem.dtype)), *_curves_source(problem)]
    lines += [*_row(problem), "", "", *_ghosts(problem), "", ""]
    return "\n".join(lines)


def _row(problem: Problem) -> Iterator[str]:
    """Source of `update_row`: runs of points that have one id, with their neighbours, read its
    numbers once.
    """
    assert problem.conduction is not None
    source, by_point = problem.conduction.source, problem.conduction.coefficients is not None
    yield _HEAD
    yield "def update_row(u, v, p, n, place, axes, arrays, numbers, places, row):"
    yield "    ids, conductance, rates, volume, extents = arrays[:5]"
    yield "    coordinates, starts, alike, heat = arrays[7:]"
    yield "    pitch0, pitch1 = axes[0, PITCH], axes[1, PITCH]"
    yield "    n_ids, apart = extents[0], extents[1]"
    if source is not None:
        yield from _indented(1, _places(problem, source.program, "0"))
        yield from _indented(1, _starts(problem, source.program))
    pair = "load(conductance, {axis} * apart + m * n_ids + np.intp(load(ids, {there})))"
    # Coefficients by point and curves leave nothing to hoist out of the loop over points.
    if by_point or problem.conduction.enthalpy is not None:
        face = "load(conductance, {axis} * apart + {low})" if by_point else pair
        yield "    for k in range(n):"
        yield from _indented(2, _point(problem, face, "q" if by_point else "m"))
        return

    yield "    last = 0"
    yield "    while last < n:"
    # Runs of homogeneous blocks read their conductances once; other points read them by pairs of
    # ids.
    yield "        first, same = last, alike[(p + last) // RUN]"
    yield "        while last < n and alike[(p + last) // RUN] == same:"
    yield "            last = min(((p + last) // RUN + 1) * RUN - p, n)"
    yield "        if same != 0:"
    yield "            m = np.intp(load(ids, p + first))"
    for axis in range(problem.grid.ndim):
        yield f"            c{axis} = load(conductance, {axis} * apart + m * (n_ids + 1))"
    yield "            for k in range(first, last):"
    yield from _indented(4, _point(problem, "c{axis}", None))
    yield "        else:"
    yield "            for k in range(first, last):"
    yield from _indented(4, _point(problem, pair, "m"))


def _point(problem: Problem, between: str, rate: str | None) -> Iterator[str]:
    """The step at point k of a row; the chain of operations is that of `conduction.py`.

    Args:
        problem: is advanced.
        between: conductance to a neighbour at {there} along {axis}; {low} is the lower of the two.
        rate: where in `rates`; None if m is known for all points.
    """
    assert problem.conduction is not None
    source, volume = problem.conduction.source, problem.conduction.coefficients is not None
    yield "q = p + k"
    if rate is not None:
        yield "m = np.intp(load(ids, q))"
    yield "here = load(u, q)"
    # The piece of the enthalpy curve depends on the point only, so it is found once for all
    # neighbours.
    enthalpy = problem.conduction.enthalpy
    if enthalpy is not None:
        yield "at = piece_of(heat[KNOTS], m, here)"
    if source is not None:
        inputs = _inputs(problem, source.program, "m", "load(numbers, {})")
        inputs |= {MIRROR: "here", TEMPERATURE: "value_of(heat, at, here, T)"}
        yield from program_lines(source.program, inputs)
        heat = name_of_result(source.program)
        yield f"gained = {heat} * load(volume, q)" if volume else f"gained = {heat}"

    first = source is None
    for axis, padded in enumerate(OUTER[problem.grid.ndim]):
        pitch = ("pitch0", "pitch1", "1")[padded]
        for sign in "-+":
            there = f"q {sign} {pitch}"
            if enthalpy is not None:
                yield from _flow_lines(problem, axis, there, first=first)
            else:
                factor = between.format(axis=axis, there=there, low=there if sign == "-" else "q")
                rise = f"load(u, {there}) - here"
                flow = f"{factor} * ({rise})" if first else f"fma({factor}, {rise}, gained)"
                yield f"gained = {flow}"
            first = False
    yield f"store(v, q, as_stored(fma(load(rates, {rate or 'm'}), gained, here)))"


def _ghosts(problem: Problem) -> Iterator[str]:
    """Source of `ghost_row`, with a loop for every program."""
    yield _HEAD
    yield "def ghost_row(v, mirror, n, place, side, axes, arrays, numbers, places, row):"
    yield "    ids, sides, codes = arrays[0], arrays[5], arrays[6]"
    yield "    coordinates, starts, heat = arrays[7], arrays[8], arrays[10]"
    yield "    kind, rule, axis = sides[side, KIND], sides[side, RULE], sides[side, AXIS]"
    yield "    ghost = mirror + (sides[side, GHOST] - sides[side, MIRROR]) * axes[axis, PITCH]"

    # The ghost of a periodic face is a copy of its source.
    yield "    if kind == 0:"
    yield "        for k in range(n):"
    yield "            v[ghost + k] = v[mirror + k]"
    yield "    code = sides[side, CODES]"
    yield "    for d in range(3):"
    yield "        code += place[d] * sides[side, CODE_PITCH + d]"

    # One branch per program: its lines are compiled in, its numbers are read at run time.
    for kind, program in enumerate(face_programs(problem), 1):
        yield f"    if kind == {kind}:"
        yield from _indented(2, _places(problem, program, "rule"))
        yield from _indented(2, _starts(problem, program))
        yield "        for k in range(n):"
        yield "            m = np.intp(codes[code + k * sides[side, CODE_PITCH + 2]])"
        inputs = _inputs(problem, program, "m", "numbers[{}]")
        inputs[MIRROR] = "v[mirror + k]"
        if problem.conduction is not None and problem.conduction.enthalpy is not None:
            yield from _indented(3, _seen_lines(inputs))
        yield from _indented(3, program_lines(program, inputs))
        yield f"            v[ghost + k] = as_stored({name_of_result(program)})"


def _indented(depth: int, lines: Iterator[str]) -> Iterator[str]:
    return (4 * depth * " " + line for line in lines)


def _places(problem: Problem, program: Program, rule: str) -> Iterator[str]:
    """Locate the parameters of a rule at this step, as `at_number` and `by_number`."""
    for number, _ in enumerate(parameters_of(program, problem)):
        place = f"places[{rule}, {number}"
        yield f"at_{number} = {place}, 0] + row * {place}, 1]"
        yield f"by_{number} = {place}, 2]"


def _coordinates(problem: Problem, program: Program) -> list[tuple[int, str]]:
    """(padded axis, name) of the coordinates that a program reads."""
    names = zip(OUTER[problem.grid.ndim], problem.grid.axis_names, strict=True)
    return [(padded, name) for padded, name in names if name in program.inputs]


def _starts(problem: Problem, program: Program) -> Iterator[str]:
    """Locate the coordinates of a row, as `x_at`."""
    for padded, name in _coordinates(problem, program):
        yield f"{name}_at = starts[{padded}] + place[{padded}]"


def _inputs(problem: Problem, program: Program, code: str, read: str) -> dict[str, str]:
    """Expressions for the parameters and coordinates of point k.

    Args:
        problem: whose axes have names.
        program: reads them.
        code: expression for the code of the point.
        read: a number of the tables at the place that is put in.
    """
    inputs = {
        name: read.format(f"at_{number} + {code} * by_{number}")
        for number, name in enumerate(parameters_of(program, problem))
    }
    for padded, name in _coordinates(problem, program):
        inputs[name] = f"coordinates[{name}_at{' + k' if padded == 2 else ''}]"
    return inputs


def _curves_source(problem: Problem) -> Iterator[str]:
    """`piece_of`, `value_of` and `between_materials`; nothing if the state is a temperature."""
    assert problem.conduction is not None
    if (enthalpy := problem.conduction.enthalpy) is not None:
        yield _CURVES.format(search="\n".join(_search(enthalpy.n_pieces)))
    if problem.conduction.radiates:
        yield from _radiating_lines()


def _radiating_lines() -> Iterator[str]:
    """`radiating`: what flows between surfaces that radiate, with the arguments of `through`."""
    yield _HEAD
    yield "def radiating(heat, at, here, own, by, there, other, contact, radiance):"
    seen = {
        "own": "divide(own, value_of(heat, at, here, K))",
        "other": "divide(other, value_of(heat, by, there, K))",
        "here": "value_of(heat, at, here, T)",
        "there": "value_of(heat, by, there, T)",
    }
    yield from (f"    {name}_seen = {text}" for name, text in seen.items())
    inputs = {name: f"{name}_seen" if name in seen else name for name in RADIATING_INPUTS}
    yield from _indented(1, program_lines(RADIATING, inputs))
    yield f"    return {name_of_result(RADIATING)}"
    yield ""
    yield ""


def _search(n_pieces: int) -> Iterator[str]:
    yield f"    low = m * {n_pieces}"
    # A sum of comparisons has no branches, so LLVM can vectorise it.
    if n_pieces <= _FEW:
        reached = [f" + (knots[low + {k}] <= state)" for k in range(1, n_pieces)]
        yield f"    return low{''.join(reached)}"
        return
    yield f"    high = low + {n_pieces}"
    yield "    while high - low > 1:"
    yield "        middle = (low + high) // 2"
    yield "        if knots[middle] <= state:"
    yield "            low = middle"
    yield "        else:"
    yield "            high = middle"
    yield "    return low"


def _flow_lines(problem: Problem, axis: int, place: str, *, first: bool) -> Iterator[str]:
    """Lines that add to `gained` the flow from a neighbour into the point `here` of id `m` and
    piece `at`.

    Args:
        problem: is advanced.
        axis: array order.
        place: where the neighbour lies.
        first: whether nothing was gained yet.
    """
    yield f"j, there = np.intp(load(ids, {place})), load(u, {place})"
    yield "by = piece_of(heat[KNOTS], j, there)"
    # Within one material the potential drives the flow; across a contact the temperature does.
    yield "if heat[KINDS][m] == heat[KINDS][j]:"

    by_point, is_low = problem.body.coefficients is not None, "-" in place
    face, pair = f"{axis} * apart + {place if is_low else 'q'}", f"{axis} * apart + m * n_ids + j"
    yield f"    between = load(conductance, {face if by_point else pair})"
    yield "    rise = value_of(heat, by, there, PHI) - value_of(heat, at, here, PHI)"
    yield f"    gained = {'between * rise' if first else 'fma(between, rise, gained)'}"

    yield "else:"
    if by_point:
        ndim = problem.grid.ndim
        yield f"    below = load(conductance, {ndim} * apart + {face})"
        yield f"    above = load(conductance, {2 * ndim} * apart + {face})"
        own, other = ("above", "below") if is_low else ("below", "above")
        ways = f"{own}, by, there, {other}, -load(conductance, {face})"
        yield f"    flow = through(heat, at, here, {ways})"
        radiance = f"load(conductance, {3 * ndim} * apart + {face})"
    else:
        yield f"    flow = between_materials(heat, {axis}, n_ids, m, at, here, j, by, there)"
        halves = [f"heat[HALF][{axis} * n_ids + {it}]" for it in "mj"]
        contact, radiance = (f"heat[{it}][{pair}]" for it in ("CONTACT", "RADIANCE"))
        ways = f"{halves[0]}, by, there, {halves[1]}, {contact}"
    if problem.body.radiates:
        yield f"    radiance = {radiance}"
        yield "    if radiance > REAL(0.0):"
        yield f"        flow = radiating(heat, at, here, {ways}, radiance)"
    yield f"    gained = {'flow' if first else 'gained + flow'}"


def _seen_lines(inputs: dict[str, str]) -> Iterator[str]:
    """Lines for the inputs that the rule of a face reads at point `mirror + k`; their expressions
    are put into `inputs`.
    """
    yield "state = v[mirror + k]"
    yield "at = piece_of(heat[KNOTS], np.intp(ids[mirror + k]), state)"
    inputs |= {name: f"value_of(heat, at, state, {it})" for name, it in _COLUMNS.items()}


def make_conduct(problem: Problem) -> Callable[..., None]:
    """The compiled `advance` of `medium_sweep.py`."""
    return splice("plain/medium_sweep.py", conduction_source(problem)).advance  # type: ignore[no-any-return]
