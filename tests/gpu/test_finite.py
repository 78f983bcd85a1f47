"""The first value that is not finite is found, wherever it is."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tests.support.cases import boundary_of, make_problem, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.common.layout import STORED
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.steppers import planes
from tetris_sim.model.problem import PRECISIONS, Field
from tetris_sim.model.slab import Slab

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
SHAPES = {"heat-1d": (601,), "heat-2d": (31, 300), "heat-3d": (70, 9, 11)}


@emulated
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", SHAPES)
def test_the_first_point_is_found_in_any_field(
    name: str, dtype: str, bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = SHAPES[name]
    problem, _ = make_problem(
        stencil_of(name), boundary_of("rings", len(shape)), shape=shape, dtype=dtype, n_fields=2
    )
    state = problem.initial(Slab.whole(problem.grid)).copy()
    later, last = tuple(n // 2 for n in shape), tuple(n - 1 for n in shape)
    for places, wanted in (([], None), ([(1, *last)], last), ([(1, *last), (0, *later)], later)):
        there = state.copy()
        # The largest number is finite.
        there[(0, *(0 for _ in shape))] = np.finfo(dtype).max
        for place in places:
            there[place] = bad
        gpu: Any = HostGpu()
        stepper: Any = GpuPlainMethod().prepare(problem, Slab.whole(problem.grid), {}, gpu)
        stepper.load(functools.partial(part_of, there))
        assert planes.first_nonfinite(stepper._state) == wanted
        box = stepper.find_nonfinite()
        if wanted is None:
            assert box is None
        else:
            assert box is not None
            assert all(low <= at < high for at, (low, high) in zip(wanted, box, strict=True))
        stepper.close()


def part_of(state: Field, slab: Slab) -> Field:
    inside = (slice(a, b) for a, b in zip(slab.start, slab.stop, strict=True))
    return state[(slice(None), *inside)]


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_the_kernel_compiles_without_spilling(dtype: str) -> None:
    assert compile_source("finite.cu", {"TS_REAL": STORED[dtype]}, "sm_90").spilled == 0
