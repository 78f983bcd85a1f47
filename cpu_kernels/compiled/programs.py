"""Print a program as source that Numba compiles: one line per register.

Idea    Everything is in the arithmetic type `REAL` of the module that the lines stand in, constants
        too, and in the order of the instructions, so a program gives the same bits in whatever loop
        it stands. Division follows IEEE (Numba's own raises), and functions of the C library are
        called for one number at a time: vectors of them would have other last bits.
Limits  A module that the lines are put into begins with `IMPORTS` and defines `REAL`.
Test    tests/kernels/test_programs.py
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from tetris_sim.model.formula import COMPARISONS
from tetris_sim.model.program import CONSTANT, INEXACT, INPUT, Instruction, Program, print_lines

IMPORTS = """import math

import numpy as np
from numba import njit
from numba.core import types

from tetris_sim.cpu_kernels.compiled.intrinsics import call_library, divide, fma
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
