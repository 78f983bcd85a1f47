"""Conduction on GPUs without one: programs and gpu.plain on emulated kernels, bit for bit."""

from __future__ import annotations

import ctypes
from pathlib import Path

import exact_conduction
import numpy as np
import pytest
from conduction_cases import CASES, RADIATION, Case
from emulator.emulation import COMPILER, NO_COMPILER, at, emulate
from emulator.host_gpu import HostGpu

from tetris_sim import reference
from tetris_sim.conduction import Parameter, Rule
from tetris_sim.expressions import compile_expression
from tetris_sim.gpu_kernels.common.programs import print_rules
from tetris_sim.gpu_kernels.plain.method import PlainMethod
from tetris_sim.problem import Field, Problem
from tetris_sim.program import Program
from tetris_sim.slab import Slab

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

FORMULAS = (
    *("x*a + b", "a - x*b", "x*b - a", "a/b + x/4", "-x", "x % 0.7", "a // 0.3", "x**3", "a**-2"),
    *("sqrt(abs(x))", "x**0.5", "min(x, a, 0.3)", "max(x, b)", "clip(x, -1, b)", "hypot(x, a, 2)"),
    *("x if a > 0 else -b", "0 < x <= a < 2", "not x or a > 1", "(x > 0) + (a > 0)"),
    *("sign(x) + heaviside(a)", "floor(x) - ceil(b)", "1/0 - x", "where(x > 0, 0.0, -0.0)", "3"),
)
ROUNDED = (
    *("sin(x) + cos(a)*tan(b)", "asin(x/9) + acos(a/9)", "atan(x) + atan2(a, b)", "erf(x)"),
    *("sinh(x) + cosh(a) + tanh(b)", "exp(x)", "log(abs(x)) + log10(abs(a))", "abs(x)**b"),
)
KERNEL = """
#include "rules.cuh"
extern "C" __global__ void __launch_bounds__(64)
    follow_all(wide* found, const wide* numbers, const Place* places, const wide* x, int n) {
    const int code = blockIdx.x * blockDim.x + threadIdx.x;
    if (code >= n) return;
    for (int program = 0; program < PROGRAMS; program++)
        found[program * n + code] = follow(program, {numbers, places, 1, code, 0, {0, 0, x + code}});
}
"""


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_printed_programs_have_the_bits_of_their_instructions(tmp_path: Path, dtype: str) -> None:
    n, kind = 97, np.dtype(dtype)
    rng = np.random.default_rng(5)
    x, a, b = rng.uniform(-3, 3, (3, n)).astype(kind)
    x[:5] = 0, -0.0, np.nan, np.inf, -np.inf
    parameters = (Parameter("a", a), Parameter("b", lambda t: np.outer(t, b)))
    programs = [Program(compile_expression(text, "xab").tree) for text in FORMULAS + ROUNDED]
    text, numbers = print_rules([Rule(it, parameters) for it in programs], 1)
    assert numbers == list(range(len(programs)))

    source = tmp_path / "follow_all.cu"
    source.write_text(KERNEL.replace("PROGRAMS", str(len(programs))))
    defines = {"TS_REAL": {"float64": "double", "float32": "float"}[dtype], "TS_RULES": text}
    table = Rule(programs[0], parameters).tabulate(lambda step: 1.0 * step, 0, 2, kind)
    places, found = table.places.astype(np.int32), np.zeros((len(programs), n), kind)
    # of (0, b) and (1, b) the second row is told
    arguments = (at(found), at(table.numbers), at(places), at(x), ctypes.c_int(n))
    emulate(source, defines).launch("follow_all", (2, 1, 1), (64, 1, 1), arguments)
    for row, text, it in zip(found, FORMULAS + ROUNDED, programs, strict=True):
        wanted = np.broadcast_to(exact_conduction.run(it, kind, x=x, a=a, b=b), (n,))
        if text in FORMULAS:
            np.testing.assert_array_equal(row, wanted, err_msg=text)
            signed = np.isfinite(wanted)
            np.testing.assert_array_equal(
                np.signbit(row[signed]), np.signbit(wanted[signed]), err_msg=text
            )
        else:
            eps = 8 * float(np.finfo(kind).eps)
            np.testing.assert_allclose(row, wanted, rtol=eps, atol=eps, err_msg=text)


def advanced(problem: Problem, steps: list[int], first: int = 0) -> Field:
    stepper = PlainMethod().prepare(problem, Slab.whole(problem.grid), {}, HostGpu())
    stepper.load(problem.initial, first)
    for n in steps:
        stepper.advance(n)
    found: Field = stepper.interior()
    stepper.close()
    return found


@pytest.mark.parametrize("case", CASES + RADIATION, ids=lambda case: case.name)
def test_sweeps_have_the_bits_of_the_chain(case: Case) -> None:
    problem = case.problem()
    state = problem.initial(Slab.whole(problem.grid))
    wanted = exact_conduction.advance(state, problem, 9, 3)
    found = advanced(problem, [4, 5], 3)
    np.testing.assert_array_equal(found, wanted)
    near = reference.advance(state, problem, 9, 3)
    eps = float(np.finfo(problem.arithmetic).eps)
    np.testing.assert_allclose(found, near, rtol=0, atol=100 * eps * np.abs(near).max())
