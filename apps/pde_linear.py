"""Equations that are one linear step of one field with numbers that never change, as a stencil.

Whatever knows stencils then takes them: the kernels of constants, jumps over many steps, faces that
cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tetris_sim.model.equations import Equations, Offset, as_tap
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import CONSTANT, INPUT, Instruction
from tetris_sim.model.stencil import Stencil

# What a register holds: the weights of taps, and under None what is added to them.
_Sum = Mapping[Offset | None, float]


def as_one_stencil(problem: Problem) -> Problem:
    """The same problem by a stencil instead of equations, if that is what they are.

    Weights are rounded once for each operation of the formula, so the last bits are others.
    """
    assert problem.equations is not None
    weights = _weights(problem.equations)
    if weights is None:
        return problem
    stencil = Stencil(tuple(weights), tuple(weights.values()))
    return replace(problem, stencil=stencil, equations=None)


def _weights(equations: Equations) -> dict[Offset, float] | None:
    """By offset; None if the step is anything else than a sum of taps with weights."""
    changing = any(parameter.changes for parameter in equations.parameters)
    several = len(equations.fields) > 1 or len(equations.stages) > 1
    if several or changing or equations.coefficients or equations.substeps is not None:
        return None

    given = {it.name: float(it.rows(lambda step: step, 0, 1)[0, 0]) for it in equations.parameters}
    programs = equations.stages[0].programs
    registers: list[_Sum] = []
    for it in programs.instructions:
        found = _sum_of(it, [registers[k] for k in it.arguments], given)
        if found is None:
            return None
        registers.append(found)

    total = registers[programs.results[0]]
    if not all(map(math.isfinite, total.values())) or total.get(None, 0.0) != 0.0:
        return None
    # An upwind difference has a weight of 0 on the side that the wind blows to.
    return {it: weight for it, weight in total.items() if it is not None and weight != 0} or None


def _sum_of(it: Instruction, of: list[_Sum], given: Mapping[str, float]) -> _Sum | None:
    """What an instruction gives; None if that is no sum of taps."""
    if it.operation == INPUT:
        if (tapped := as_tap(it.name)) is not None:
            return {tapped[1]: 1.0}
        return {None: given[it.name]} if it.name in given else None  # a coordinate
    if it.operation == CONSTANT:
        return {None: it.value}

    match it.operation, of:
        case "add", [a, b]:
            return _plus(a, b)
        case "subtract", [a, b]:
            return _plus(a, _times(b, -1.0))
        case "negative", [a]:
            return _times(a, -1.0)
        case "multiply", [a, b]:
            return _product(a, b)
        case "divide", [a, b] if _is_number(b) and b[None] != 0:
            return {place: weight / b[None] for place, weight in a.items()}
        case "fma", [a, b, c]:
            product = _product(a, b)
            return None if product is None else _plus(product, c)
    return None


def _is_number(it: _Sum) -> bool:
    return it.keys() == {None}


def _product(a: _Sum, b: _Sum) -> _Sum | None:
    if _is_number(a):
        return _times(b, a[None])
    return _times(a, b[None]) if _is_number(b) else None


def _times(a: _Sum, number: float) -> _Sum:
    return {place: weight * number for place, weight in a.items()}


def _plus(a: _Sum, b: _Sum) -> _Sum:
    return {place: a.get(place, 0.0) + b.get(place, 0.0) for place in {**a, **b}}
