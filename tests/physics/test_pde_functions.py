"""Every function of the language, of everything that it may be applied to, wherever it is computed.

Functions that have the same arguments are terms of one problem: what is tested is that each runs,
and that methods agree with the reference.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tests.support.config_cases import read
from tests.support.emulator.emulation import COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim import run
from tetris_sim.config import make_config
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.model import reference
from tetris_sim.model.formula import ARITY, FUNCTIONS, compile_expression, evaluate
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.tuning.measure import check_method

STREAM, PLAIN = METHODS[0], METHODS[-1]
# What is between 0 and 1 at all points and steps: every function has a value there.
PLACES = {"field": "u", "place": "0.4 + 0.3*sin(x)", "time": "0.2 + t", "constant": "c"}
STEPS = 2


def call(name: str, argument: str) -> str:
    """A function of an argument, and of others that it may need besides."""
    if name in ("where", "clip"):
        other = {"where": f"{argument} > 0.4, {argument}, 0.3", "clip": f"{argument}, 0.3, 0.6"}
        return f"{name}({other[name]})"
    return f"{name}({argument}{', 0.5' if ARITY[name][0] == 2 else ''})"


@functools.cache
def problem(argument: str, scheme: str, dtype: str) -> Problem:
    """All functions of one argument, a few in each field."""
    names, fields = [*FUNCTIONS], []
    for k in range(0, len(names), 5):
        terms = " + ".join(call(name, argument) for name in names[k : k + 5])
        field = f"u{k}" if k else "u"
        fields.append(
            f'    {field}: {{equation: "0.01*({terms}) + 0.01*laplace({field})", initial: {{type: '
            f'expression, expression: "0.4 + 0.2*cos(x)"}}}}'
        )
    extra = ", tolerance: 1e-3" if scheme == "adaptive" else f", scheme: {scheme}"
    return read(f"""\
grid: {{shape: [40], size: [40]}}
model:
  type: pde
  allow_growth: true
  constants: {{c: 0.4}}
  fields:
{chr(10).join(fields)}
boundaries: {{"*": {{type: periodic}}}}
time: {{steps: {STEPS}, dt: 0.01{extra}}}
compute: {{precision: {dtype}}}
""").build()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scheme", ["euler", "rk4", "adaptive"])
@pytest.mark.parametrize("place", PLACES)
def test_functions_are_the_same_on_cpus_and_gpus(place: str, scheme: str, dtype: str) -> None:
    it = problem(PLACES[place], scheme, dtype)
    for method in (PLAIN, STREAM):
        if method.refusal(it) is None:
            parameters = method.parameters(it)[0]
            assert check_method(it, method, parameters, place=ComputeResource(1)) is None
    # Emulation takes seconds to compile; the stages of other schemes have the same operations.
    if COMPILER is None or scheme != "euler":
        return

    state = it.initial(Slab.whole(it.grid)).astype(it.dtype)
    gpu: Any = HostGpu()
    stepper = GpuPlainMethod().prepare(it, Slab.whole(it.grid), {}, gpu)
    stepper.load(it.initial)
    stepper.advance(STEPS)
    found = stepper.interior()
    stepper.close()
    expected = reference.advance(state, it, STEPS)
    assert (np.abs(found - expected) <= reference.allowed_error(state, expected, it, STEPS)).all()


def whole(name: str, place: str, **time: Any) -> Any:
    """A run with one function of a field, of its face, or of its beginning."""
    of = {"initial": "0.5 + 0.1*sin(x)", "face": "0.5 + 0.1*sin(t)"}
    begin = f"0.5 + 0.01*{call(name, of['initial'])} + 0.01*x/24" if place == "initial" else "0.5"
    face: Any = {"type": "dirichlet", "value": call(name, of["face"])}
    return {
        "grid": {"shape": [24], "size": [24.0]},
        "model": {
            "type": "pde",
            "allow_growth": True,
            "fields": {
                "u": {
                    "equation": f"0.1*laplace(u) + 0.01*{call(name, 'u')}*({call(name, '0.3')})",
                    "initial": {"type": "expression", "expression": begin},
                }
            },
        },
        "boundaries": {"*": face if place == "face" else {"type": "neumann"}},
        "time": {"steps": 3, "dt": 0.01} | time,
    }


@pytest.mark.parametrize("name", ["erf", "atan2", "where", "log10", "heaviside"])
@pytest.mark.parametrize("place", ["initial", "face"])
def test_whole_runs_take_functions_of_beginnings_and_faces(name: str, place: str) -> None:
    found = run(whole(name, place), progress=False).field()
    assert np.isfinite(found).all()
    assert np.ptp(found) > 0


@pytest.mark.parametrize("place", ["initial", "face"])
def test_every_function_of_beginnings_and_faces_is_built(place: str) -> None:
    for name in FUNCTIONS:
        it = make_config(whole(name, place), environ={}).build()
        state = it.initial(Slab.whole(it.grid))
        assert np.isfinite(reference.advance(state, it, 3)).all(), name


@pytest.mark.parametrize("time", ["dt: 0.01", "dt: auto", "dt: 0.01, tolerance: 1e-3"])
@pytest.mark.parametrize("text", ["acos(0.2 + t)", "sqrt(0.5 - t)", "log(0.4 - t)", "1/(0.5 - t)"])
def test_a_formula_of_time_need_have_no_value_after_the_run(text: str, time: str) -> None:
    it = read(
        f"""\
grid: {{shape: [40], size: [40]}}
model:
  type: pde
  fields: {{u: {{equation: "0.01*{text} + laplace(u)", initial: {{type: constant, value: 1}}}}}}
boundaries: {{"*": {{type: periodic}}}}
time: {{t_end: 0.02, scheme: rk4, {time}}}
""".replace("scheme: rk4, dt: 0.01, tolerance", "dt: 0.01, tolerance")
    )
    assert it.build().steps >= 1


def test_erf_of_a_field_is_erf() -> None:
    from scipy.special import erf

    given = whole("erf", "")
    given["model"]["fields"]["u"]["equation"] = "erf(u)"
    given["model"]["fields"]["u"]["initial"]["expression"] = "sin(x)"
    given["time"] = {"steps": 1, "dt": 0.5, "scheme": "euler"}
    start = np.sin(np.arange(24) + 0.5)
    np.testing.assert_allclose(run(given, progress=False).field(), start + 0.5 * erf(start))


def test_erf_has_a_value_in_every_precision() -> None:
    formula = compile_expression("erf(x)", ["x"]).tree
    points = np.linspace(-6, 6, 1001)
    for kind in (np.float32, np.float64, np.longdouble):
        found = evaluate(formula, {"x": points.astype(kind)})
        near = evaluate(formula, {"x": points.astype(kind).astype(np.float64)})
        np.testing.assert_allclose(
            np.float64(found), near, rtol=4e-7 if kind == np.float32 else 1e-15
        )


def test_all_functions_have_a_call() -> None:
    for name in FUNCTIONS:
        compile_expression(call(name, "0.5"), [])
