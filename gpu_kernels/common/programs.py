"""Programs as CUDA: the instructions of `tetris_sim.model.program`, one per line, printed as
definitions for `rules.cuh` and `equations.cuh`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tetris_sim.model import program as programs
from tetris_sim.model.conduction import CONDUCTIVITY, MIRROR, TEMPERATURE, Rule
from tetris_sim.model.grid import AXIS_NAMES, LAST
from tetris_sim.model.program import LOGICAL, Instruction, Program, Programs, print_lines

_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "and": "&&", "or": "||"}
_SIGNS |= {sign: sign for sign in ("<", "<=", ">", ">=", "==", "!=")}
# Operations whose CUDA function has a different name.
_FUNCTIONS = {"fma": "fma_real", "abs": "fabs", "power": "pow"}


def print_program(program: Program, inputs: Mapping[str, str]) -> str:
    """The statements of a program, ending with a `return`.

    >>> from tetris_sim.model.formula import Operation, Variable
    >>> double = Program(Operation("add", (Variable("x"), Variable("x"))))
    >>> print_program(double, {"x": "given"})
    'const wide r0 = given; const wide r1 = r0 + r0; return r1;'

    Args:
        program: the program to print.
        inputs: CUDA expression of each input, by name.
    """
    lines = print_statements(program, inputs)
    return " ".join([*lines, f"return r{len(lines) - 1};"])


def print_statements(program: Program | Programs, inputs: Mapping[str, str]) -> list[str]:
    """Definitions of the registers r0, r1, ..., one for each instruction.

    The compiler contracts nothing (`-fmad=false` in `device.py`), so each operation rounds as its
    instruction says.

    Args:
        program: the program to print.
        inputs: CUDA expression of each input, by name.
    """

    def phrase(it: Instruction, arguments: tuple[str, ...]) -> str:
        match it.operation:
            case programs.INPUT:
                return inputs[it.name]
            case programs.CONSTANT:
                return print_constant(it.value)
            case "negative":
                return f"-{arguments[0]}"
            case "not":
                return f"!{arguments[0]}"
            case "where":
                return "{} ? {} : {}".format(*arguments)
        if it.operation in _SIGNS:
            return f" {_SIGNS[it.operation]} ".join(arguments)
        return f"{_FUNCTIONS.get(it.operation, it.operation)}({', '.join(arguments)})"

    return [
        f"const {'bool' if it.operation in LOGICAL else 'wide'} {name} = {text};"
        for name, text, it in print_lines(program, phrase)
    ]


def print_constant(value: float) -> str:
    """A number as a CUDA expression with all of its bits (a hexadecimal float).

    >>> print_constant(0.1), print_constant(-math.inf)
    ('wide(0x1.999999999999ap-4)', '-infinity()')
    """
    # `infinity()` is a function of rules.cuh; NaN is made of it.
    if math.isnan(value):
        return "(infinity() - infinity())"
    if math.isinf(value):
        return "infinity()" if value > 0 else "-infinity()"
    return f"wide({value.hex()})"


def print_rules(
    rules: Sequence[Rule], ndim: int, axes: Sequence[str] = ()
) -> tuple[str, list[int]]:
    """The programs of rules as cases of a `switch`, and the case of each rule.

    Rules with the same text share a case, since the values of parameters are arguments.

    Args:
        rules: the rules of a problem.
        ndim: number of axes of the grid, which determines where coordinates come from.
        axes: their names, array order; those of x, y and z if not given.
    """
    places = {
        name: f"given.coordinate({three})"
        for name, three in zip(axes or AXIS_NAMES[:ndim][::-1], LAST[ndim], strict=True)
    }
    seen = {name: f"given.{name}" for name in (MIRROR, TEMPERATURE, CONDUCTIVITY)}

    # Keyed by the text: equal programs compile once.
    cases: dict[str, int] = {}
    numbers = []
    for rule in rules:
        parameters = {it.name: f"given.parameter({k})" for k, it in enumerate(rule.parameters)}
        text = print_program(rule.program, {**seen, **parameters, **places})
        numbers.append(cases.setdefault(text, len(cases)))
    return " ".join(f"case {number}: {{ {text} }}" for text, number in cases.items()), numbers
