"""Programs that Numba compiles have the bits of their instructions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.exact import is_exact, run_program
from tetris_sim.cpu_kernels.compiled.conduction import IMPORTS, name_of_result, program_lines
from tetris_sim.cpu_kernels.compiled.generate import compiled_module
from tetris_sim.model.formula import compile_expression, evaluate
from tetris_sim.model.program import Program

EXACT = (
    *("x*y + 1", "1 - x*y", "x*y - y", "x/3 + y/4", "x/y", "-x*y", "3.1", "x", "x - 0.1*x*x"),
    *("sqrt(x)*y", "abs(x) - y", "floor(x*3) + ceil(y)", "x % 0.7", "x % -0.7", "x // y"),
    *("min(x, y, 0.3)", "max(x, y)", "clip(x, -1, y)", "sign(x) + heaviside(y)", "hypot(x, y, 2)"),
    *("x**7", "x**-3", "x if y > 0 else -x", "0 < x <= y < 2", "not x or y > 1", "x != y"),
    *("x < 0 and y < 0", "where(x > 0, 0.0, -0.0)", "1/(x - x)", "-1/(y*0)", "(x == x)*y"),
    "x + 1e200**2 - y",
)
LIBRARY = (
    *("sin(x)", "cos(x)", "tan(x)", "asin(x)", "acos(x)", "atan(x)", "atan2(x, y)", "sinh(x)"),
    *("cosh(x)", "tanh(x)", "exp(x)", "log(x)", "log10(x)", "erf(x)", "abs(x)**y", "2**y"),
)


@functools.cache
def points(dtype: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    rng = np.random.default_rng(1)
    special = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, -740.0, -751.0]
    x, y = np.meshgrid(special, special)
    both = [np.concatenate([it.ravel(), rng.uniform(-3, 3, 30)]) for it in (x, y)]
    return both[0].astype(dtype), both[1].astype(dtype)


def compiled(texts: tuple[str, ...], dtype: str) -> Any:
    """A function that computes all of them at all points: out[text, point]."""
    lines = [IMPORTS, f"REAL = types.{dtype}", ""]
    lines += ["@njit(cache=True)", "def compute(x, y, out):", "    for k in range(x.size):"]
    for number, text in enumerate(texts):
        program, prefix = Program(compile_expression(text, ["x", "y"]).tree), f"t{number}_"
        inputs = {"x": "x[k]", "y": "y[k]"}
        lines += [f"        {it}" for it in program_lines(program, inputs, prefix)]
        lines += [f"        out[{number}, k] = {name_of_result(program, prefix)}"]
    return compiled_module("\n".join(lines)).compute


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_exact_programs_have_the_bits_of_their_instructions(dtype: str) -> None:
    compute = compiled(EXACT, dtype)
    x, y = points(dtype)
    everything = np.empty((len(EXACT), x.size), dtype)
    compute(x, y, everything)
    for text, found in zip(EXACT, everything, strict=True):
        program = Program(compile_expression(text, ["x", "y"]).tree)
        assert is_exact(program)
        wanted = np.broadcast_to(run_program(program, dtype, x=x, y=y), x.shape)
        signs = np.signbit(wanted)
        np.testing.assert_array_equal(found, wanted, err_msg=text)
        number = ~np.isnan(found)
        np.testing.assert_array_equal(np.signbit(found)[number], signs[number], err_msg=text)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_library_functions_agree_to_rounding_wherever_they_stand(dtype: str) -> None:
    compute = compiled(LIBRARY, dtype)
    x, y = points(dtype)
    everything, alone = np.empty((2, len(LIBRARY), x.size), dtype)
    one = np.empty((len(LIBRARY), 1), dtype)
    compute(x, y, everything)
    for text, found in zip(LIBRARY, everything, strict=True):
        tree = compile_expression(text, ["x", "y"]).tree
        assert not is_exact(Program(tree))
        with np.errstate(all="ignore"):
            wanted = evaluate(tree, {"x": x.astype(float), "y": y.astype(float)}).astype(dtype)
        tolerance = 8 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=1e-37, err_msg=text)
    # One point at a time: the ends of a vectorised loop would differ from its middle.
    for k in range(x.size):
        compute(x[k : k + 1], y[k : k + 1], one)
        alone[:, k : k + 1] = one
    np.testing.assert_array_equal(alone, everything)
