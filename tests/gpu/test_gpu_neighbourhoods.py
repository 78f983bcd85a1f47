"""What is proposed compiles, whatever a step reads along each axis, and computes what it should."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.support.cases import boundary_of, make_problem
from tests.support.config_cases import read
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.fused.method import FusedMethod
from tetris_sim.gpu_kernels.stream.method import METHOD as STREAM
from tetris_sim.model import reference
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil, star_mean

pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")

FUSED = tuple(method for method in METHODS if isinstance(method, FusedMethod))
SHAPES = {1: (203,), 2: (31, 75), 3: (11, 14, 40)}
RADII = [
    *((n,) for n in range(5)),
    *((0, 0), (0, 1), (1, 0), (0, 4), (3, 0), (1, 2), (2, 1)),
    *((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 2, 3)),
]
ALL_RADII = [it for ndim in (1, 2, 3) for it in itertools.product(range(5), repeat=ndim)]
SKEWED = {
    "upwind 1d": ((0,), (-1,)),
    "one neighbour along x": ((0, 0), (0, 1)),
    "one neighbour along y": ((0, 0), (2, 0)),
    "diagonal": ((0, 0), (1, -1)),
    "not itself": ((0, 3),),
    "not itself 1d": ((-2,), (1,)),
    "upwind 3d": ((0, 0, 0), (0, 0, -1), (0, -2, 0)),
    "along z only": ((0, 0, 0), (-1, 0, 0)),
    "diagonal 3d": ((0, 0, 0), (1, 0, -1)),
}
FORMULAS = [
    *((ndim, "-u + u**3") for ndim in (1, 2, 3)),
    *((ndim, "dxx(u)*u") for ndim in (1, 2, 3)),
    *((ndim, "u*dx(dxx(u))") for ndim in (1, 2, 3)),
    *((ndim, "dyy(u)*u") for ndim in (2, 3)),
    *((ndim, "dx(dy(u))*u + u**2") for ndim in (2, 3)),
    (2, "dxx(dxx(u))*u"),
    (2, "u*dyy(u) + dxx(dxx(u))"),
    (3, "dzz(u)*u"),
    (3, "u*dz(dx(u))"),
]


def of_radii(radii: tuple[int, ...]) -> Problem:
    return make_problem(star_mean(len(radii), radii), boundary_of("walls", len(radii)))[0]


def of_formula(ndim: int, text: str, scheme: str = "euler", face: str = "neumann") -> Problem:
    size = [*reversed(SHAPES[ndim])]
    return read(f"""\
grid: {{shape: {size}, size: {size}}}
model:
  type: pde
  allow_growth: true
  fields:
    u: {{equation: "{text}", initial: {{type: expression, expression: "0.5 + 0.3*sin(x)"}}}}
boundaries: {{"*": {{type: {face}}}}}
time: {{steps: 10, dt: 0.001, scheme: {scheme}}}
""").build()


def check(problem: Problem, architectures: tuple[str, ...] = ("sm_90",), most: int = 1) -> None:
    """Compile what all methods propose for a problem, the best guesses of each."""
    for method in FUSED:
        if method.refusal(problem) is not None:
            continue
        for parameters in method.parameters(problem)[:most]:
            kernel = method.kernel(problem, parameters)
            for architecture in architectures:
                compiled = compile_source(kernel.source, kernel.defines, architecture)
                assert kernel.entry in compiled.registers


@pytest.mark.parametrize("radii", RADII, ids=str)
def test_stencils_of_any_radii_compile(radii: tuple[int, ...]) -> None:
    check(of_radii(radii))


@pytest.mark.parametrize("name", SKEWED)
def test_skewed_stencils_compile(name: str) -> None:
    offsets = SKEWED[name]
    stencil = Stencil(offsets, (1 / len(offsets),) * len(offsets))
    check(make_problem(stencil, boundary_of("walls", stencil.ndim))[0])


@pytest.mark.parametrize(("ndim", "text"), FORMULAS)
def test_equations_of_any_neighbourhood_compile(ndim: int, text: str) -> None:
    check(of_formula(ndim, text))


@pytest.mark.full
@pytest.mark.parametrize("radii", ALL_RADII, ids=str)
def test_everything_proposed_for_any_radii_compiles(radii: tuple[int, ...]) -> None:
    check(of_radii(radii), ("sm_80", "sm_90"), 100)


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["euler", "rk4"])
@pytest.mark.parametrize(("ndim", "text"), FORMULAS)
def test_everything_proposed_for_equations_compiles(ndim: int, text: str, scheme: str) -> None:
    check(of_formula(ndim, text, scheme), ("sm_80", "sm_90"), 100)


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("face", ["neumann", "periodic"])
@pytest.mark.parametrize("text", ["-u + u**3", "dxx(u)*u", "dxx(u)"])
def test_rows_that_read_no_others_are_advanced_rightly(text: str, face: str) -> None:
    agrees(of_formula(2, text, face=face))


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("ndim", [1, 3])
def test_points_that_read_no_others_are_advanced_rightly(ndim: int) -> None:
    agrees(of_formula(ndim, "-u + u**3"))


def agrees(problem: Problem) -> None:
    """Compare gpu.stream, emulated, with the reference."""
    gpu: Any = HostGpu()
    state = problem.initial(Slab.whole(problem.grid))
    parameters: Any = STREAM.parameters(problem)[-1]
    steps = 2 * STREAM.depth(problem, parameters) + 1
    stepper = STREAM.prepare(problem, Slab.whole(problem.grid), parameters, gpu)
    stepper.load(problem.initial)
    stepper.advance(steps)
    found = stepper.interior()
    stepper.close()

    expected = reference.advance(state, problem, steps)
    allowed = reference.allowed_error(state, expected, problem, steps)
    assert (np.abs(found - expected) <= allowed).all()
    assert not np.array_equal(found, state)


def test_the_error_of_a_compiler_is_told_not_its_warnings() -> None:
    with pytest.raises(UnsupportedError) as raised:
        compile_source("stream_2d.cu", {}, "sm_90")
    assert "error" in str(raised.value)
    assert "warning" not in str(raised.value)
    assert "\n" not in str(raised.value)
