"""Random initial fields that a GPU makes have the bits that the host gives them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.support.cases import boundary_of, make_problem, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.apps.initial import make_initial
from tetris_sim.bench.gpu import random_made_there
from tetris_sim.config.sections.conditions import RandomInitial
from tetris_sim.errors import NumericsError
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.common.layout import STORED
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.steppers import planes
from tetris_sim.model.problem import PRECISIONS, Field, Problem
from tetris_sim.model.slab import Slab

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

SHAPES = {
    # several blocks, of which the last ones are shorter
    "1d": (("heat-1d", (600_001,)), ((3,), (600_001,))),
    "2d": (("heat-2d", (300, 2001)), ((120, 5), (277, 1999))),
    "3d": (("heat-3d", (5, 400, 301)), ((1, 7, 2), (4, 400, 301))),
}


def problem_of(
    name: str, shape: tuple[int, ...], dtype: str, low: float = -3.0, high: float = 5.0
) -> Problem:
    ndim = len(shape)
    problem, _ = make_problem(
        stencil_of(name), boundary_of("rings", ndim), shape=shape, dtype=dtype
    )
    section = RandomInitial(type="random", low=low, high=high, seed=2**70 + 1)
    initial = make_initial(section, problem.grid, problem.dtype)
    return dataclasses.replace(problem, initial=initial)


def not_from_the_host(slab: Slab) -> Field:
    msg = "the host was not to make it"
    raise AssertionError(msg)


def loaded(problem: Problem, slab: Slab) -> tuple[Field, list[str]]:
    gpu: Any = HostGpu()
    stepper = GpuPlainMethod().prepare(problem, slab, {}, gpu)
    stepper.load(problem.initial)
    field = stepper.interior()
    stepper.close()
    return field, gpu.launches


@emulated
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("kind", SHAPES)
def test_the_bits_are_those_of_the_host(
    kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planes, "_MANY_POINTS", 1)
    (name, shape), (start, stop) = SHAPES[kind]
    problem = problem_of(name, shape, dtype)
    for slab in (
        Slab.whole(problem.grid),
        Slab(start, stop, ((0, 0),) * len(shape)),
        Slab(start, stop, ((2, 1), *((0, 0),) * (len(shape) - 1))),
    ):
        wanted = problem.initial(slab)
        there: Any = problem.initial
        silent = dataclasses.replace(
            problem, initial=dataclasses.replace(there, values=not_from_the_host)
        )
        found, launches = loaded(silent, slab)
        assert launches == ["fill"]
        np.testing.assert_array_equal(found, wanted)
        assert len(np.unique(found)) > 1000


@emulated
def test_the_host_makes_what_is_small_or_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    small = problem_of("heat-2d", (30, 21), "float64")
    field, launches = loaded(small, Slab.whole(small.grid))
    assert launches == []
    np.testing.assert_array_equal(field, small.initial(Slab.whole(small.grid)))

    monkeypatch.setattr(planes, "_MANY_POINTS", 1)
    large = problem_of("heat-2d", (30, 21), "float16", high=1e6)
    with pytest.raises(NumericsError, match="must be finite in float16"):
        loaded(large, Slab.whole(large.grid))


@emulated
def test_benchmarks_begin_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "_MANY_POINTS", 1)
    problem = random_made_there(problem_of("heat-2d", (300, 201), "float32"))
    field, launches = loaded(problem, Slab.whole(problem.grid))
    assert launches == ["fill"]
    assert 0 <= field.min() < 0.01 < 0.99 < field.max() < 1


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_the_kernel_compiles_without_spilling(dtype: str) -> None:
    compiled = compile_source("philox.cu", {"TS_REAL": STORED[dtype]}, "sm_90")
    assert compiled.spilled == 0
    assert compiled.registers["fill"] <= 64
