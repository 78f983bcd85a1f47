"""Programs compute what their formulas mean, and say so in the same operations everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.exact import is_exact
from tetris_sim.model.formula import (
    COMPARISONS,
    FUNCTIONS,
    OPERATIONS,
    compile_expression,
    evaluate,
)
from tetris_sim.model.program import (
    CONSTANT,
    INPUT,
    LOGICAL,
    NUMERIC,
    Instruction,
    Program,
    print_lines,
)

X = np.linspace(-3.1, 4.3, 75)
Y = np.linspace(-2.0, 2.5, 75)[::-1].copy()
EXTRA: Mapping[str, Callable[..., Any]] = {
    "fma": lambda a, b, c: a * b + c,
    "fmod": np.fmod,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "where": np.where,
}


def program(text: str) -> Program:
    return Program(compile_expression(text, ["x", "y"]).tree)


def run(it: Program, **inputs: Any) -> Any:
    """The instructions one by one, in NumPy."""
    registers: list[Any] = []
    with np.errstate(all="ignore"):
        for step in it.instructions:
            arguments = [registers[k] for k in step.arguments]
            if step.operation == INPUT:
                registers.append(np.asarray(inputs[step.name]))
            elif step.operation == CONSTANT:
                registers.append(np.float64(step.value))
            else:
                known = {**OPERATIONS, **COMPARISONS, **EXTRA}
                registers.append(known[step.operation](*arguments))
    return registers[-1]


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"{name}(x)"
            for name in FUNCTIONS
            if name not in ("where", "clip", "min", "max", "hypot", "atan2")
        ),
        *("atan2(x, y)", "hypot(x, y, 2)", "min(x, y, 0.3)", "max(x, y)", "clip(x, -1, y)"),
        *("x**(1/0)", "(x + 4)**(-1/0)", "y**(0/0)", "x**1e300", "x**-64"),
        *(
            "x % 0.7",
            "x % -0.7",
            "y // 0.3",
            "x // y",
            "x**3",
            "x**-2",
            "x**0.5",
            "x**y",
            "x**0",
            "y**7",
        ),
        *("x*y + 1", "1 - x*y", "x*y - y", "x/4 + y/3", "-x", "+x", "3", "x", "x - x*x"),
        *("x < y", "0 < x <= y < 2", "x < 0 and y < 0", "not x or y > 1", "(x > 0) + (y > 0)"),
        *(
            "x if y > 0 else -x",
            "where(x, y, 3)",
            "x*(y > 0)",
            "2**0.5*x",
            "sin(x)*sin(x) + sin(x)",
        ),
    ],
)
def test_instructions_compute_what_the_formula_means(text: str) -> None:
    it = program(text)
    with np.errstate(all="ignore"):
        wanted = np.broadcast_to(evaluate(it.tree, {"x": X, "y": Y}), X.shape)
    found = np.broadcast_to(run(it, x=X, y=Y), X.shape)
    np.testing.assert_allclose(found, wanted, rtol=4e-15, atol=4e-15)


@given(st.floats(allow_nan=True), st.floats(allow_nan=True))
def test_selection_passes_nan_on(x: float, y: float) -> None:
    for text in ("min(x, y)", "max(x, y)", "clip(x, y, 1)"):
        it = program(text)
        wanted = evaluate(it.tree, {"x": np.array(x), "y": np.array(y)})
        np.testing.assert_array_equal(run(it, x=np.float64(x), y=np.float64(y)), wanted)


def test_what_occurs_twice_is_computed_once() -> None:
    names = [it.operation for it in program("exp(x)*y + exp(x)").instructions]
    assert names.count("exp") == 1
    assert "fma" in names
    assert "multiply" not in [names[-1]]


def test_every_operation_is_known_to_printers() -> None:
    for text in ("x % y + x // y", "hypot(x, y)", "sign(x) + heaviside(y)", "erf(x)**y"):
        for it in program(text).instructions:
            assert it.operation in NUMERIC | LOGICAL | {INPUT, CONSTANT}


def test_exact_programs_are_those_without_library_functions() -> None:
    assert is_exact(program("sqrt(x)*y + x/3 if x > 0 else min(x, y) % 2"))
    assert not is_exact(program("exp(x)"))
    assert is_exact(program("exp(2)*x"))  # a constant by then


def test_zero_keeps_its_sign() -> None:
    it = program("where(x > 0, 0.0, -0.0)")
    assert math.copysign(1, float(run(it, x=np.float64(-1)))) == -1
    assert math.copysign(1, float(run(it, x=np.float64(1)))) == 1


def test_lines_name_their_arguments() -> None:
    def phrase(it: Instruction, arguments: tuple[str, ...]) -> str:
        return it.name or f"{it.operation}({', '.join(arguments)})"

    lines = [f"{name} = {text}" for name, text, _ in print_lines(program("x*y + x"), phrase)]
    assert lines[-1] == f"r{len(lines) - 1} = fma(r0, r1, r0)"
