"""Source of what differs from problem to problem in loops that conduct heat through a medium: the
update of a row and the ghosts of a row, made of the programs of its source and faces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tetris_sim.axes import OUTER
from tetris_sim.conduction import MIRROR
from tetris_sim.cpu_kernels.common.medium import face_programs, id_type, parameters_of
from tetris_sim.cpu_kernels.compiled.enthalpy import curves_source, flow_lines, seen_lines
from tetris_sim.cpu_kernels.compiled.generate import splice, stored_source
from tetris_sim.cpu_kernels.compiled.programs import name_of_result, program_lines
from tetris_sim.problem import Problem
from tetris_sim.program import Program

_HEAD = "@njit(nogil=True, cache=True)"


def conduction_source(problem: Problem) -> str:
    """`REAL`, `ID`, `update_row`, `ghost_row` and `as_stored` of `medium_sweep.py`."""
    lines = [f"REAL = types.{problem.arithmetic.name}", f"ID = types.{id_type(problem)}", "", ""]
    lines += [stored_source(np.dtype(problem.dtype)), *curves_source(problem)]
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
    if by_point or problem.conduction.enthalpy is not None:
        face = "load(conductance, {axis} * apart + {low})" if by_point else pair
        yield "    for k in range(n):"
        yield from _indented(2, _point(problem, face, "q" if by_point else "m"))
        return

    yield "    last = 0"
    yield "    while last < n:"
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
    if source is not None:
        inputs = _inputs(problem, source.program, "m", "load(numbers, {})")
        yield from program_lines(source.program, inputs)
        heat = name_of_result(source.program)
        yield f"gained = {heat} * load(volume, q)" if volume else f"gained = {heat}"

    enthalpy = problem.conduction.enthalpy
    if enthalpy is not None:
        yield "at = piece_of(heat[KNOTS], m, here)"
    first = source is None
    for axis, padded in enumerate(OUTER[problem.grid.ndim]):
        pitch = ("pitch0", "pitch1", "1")[padded]
        for sign in "-+":
            there = f"q {sign} {pitch}"
            if enthalpy is not None:
                yield from flow_lines(axis, there, first=first)
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
    yield "    if kind == 0:"
    yield "        for k in range(n):"
    yield "            v[ghost + k] = v[mirror + k]"
    yield "    code = sides[side, CODES]"
    yield "    for d in range(3):"
    yield "        code += place[d] * sides[side, CODE_PITCH + d]"
    for kind, program in enumerate(face_programs(problem), 1):
        yield f"    if kind == {kind}:"
        yield from _indented(2, _places(problem, program, "rule"))
        yield from _indented(2, _starts(problem, program))
        yield "        for k in range(n):"
        yield "            m = np.intp(codes[code + k * sides[side, CODE_PITCH + 2]])"
        inputs = _inputs(problem, program, "m", "numbers[{}]")
        inputs[MIRROR] = "v[mirror + k]"
        if problem.conduction is not None and problem.conduction.enthalpy is not None:
            yield from _indented(3, seen_lines(inputs))
        yield from _indented(3, program_lines(program, inputs))
        yield f"            v[ghost + k] = as_stored({name_of_result(program)})"


def _indented(depth: int, lines: Iterator[str]) -> Iterator[str]:
    return (4 * depth * " " + line for line in lines)


def _places(problem: Problem, program: Program, rule: str) -> Iterator[str]:
    """Where the parameters of a rule lie at this step, as `at_number` and `by_number`."""
    for number, _ in enumerate(parameters_of(program, problem)):
        place = f"places[{rule}, {number}"
        yield f"at_{number} = {place}, 0] + row * {place}, 1]"
        yield f"by_{number} = {place}, 2]"


def _coordinates(problem: Problem, program: Program) -> list[tuple[int, str]]:
    """(padded axis, name) of the coordinates that a program reads."""
    names = zip(OUTER[problem.grid.ndim], problem.grid.axis_names, strict=True)
    return [(padded, name) for padded, name in names if name in program.inputs]


def _starts(problem: Problem, program: Program) -> Iterator[str]:
    """Where the coordinates of a row lie, as `x_at`."""
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


def make_conduct(problem: Problem) -> Callable[..., None]:
    """The compiled `advance` of `medium_sweep.py`."""
    return splice("plain/medium_sweep.py", conduction_source(problem)).advance  # type: ignore[no-any-return]
