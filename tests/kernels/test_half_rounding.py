"""Weights that FP16 cannot have side by side: steps that would change them are neither proposed nor
made.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import make_problem
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.fused.kernel import (
    BFLOAT16,
    TFLOAT32,
    Format,
    round_weights,
    rounded,
    rounds_well,
    weight_error,
)
from tetris_sim.model.boundary import Boundary, Periodic
from tetris_sim.model.method import STEPS_PER_BLOCK, Method
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencil import Stencil

HALF = tuple(method for method in METHODS if method.name in ("gpu.tcstencil", "gpu.sparse"))


def heat(r: float, ndim: int = 2) -> Stencil:
    near = [
        tuple(side * (k == axis) for k in range(ndim)) for axis in range(ndim) for side in (-1, 1)
    ]
    return Stencil(((0,) * ndim, *near), (1 - 2 * ndim * r, *(r for _ in near)))


def problem_of(stencil: Stencil) -> Problem:
    problem, _ = make_problem(
        stencil, Boundary.everywhere(Periodic(), 2), dtype="float16", shape=(128, 256)
    )
    return dataclasses.replace(problem, stencil=stencil)


def second_moment(stencil: Stencil) -> float:
    return sum(
        w * sum(c * c for c in offset)
        for offset, w in zip(stencil.offsets, stencil.weights, strict=True)
    )


@pytest.mark.parametrize("method", HALF, ids=lambda method: method.name)
@pytest.mark.parametrize("r", [1e-5, 1e-4, 3e-4, 1e-3, 1e-2, 0.25])
def test_what_is_proposed_diffuses_as_fast_as_asked_for(method: Method, r: float) -> None:
    stencil = heat(r)
    problem = problem_of(stencil)
    for parameters in method.parameters(problem):
        fused = stencil.power(parameters[STEPS_PER_BLOCK])
        assert second_moment(round_weights(fused)) == pytest.approx(second_moment(fused), rel=0.02)
    assert bool(method.parameters(problem)) == (r >= 3e-4)


@pytest.mark.parametrize("method", HALF, ids=lambda method: method.name)
def test_slow_diffusion_is_refused_with_the_reason(method: Method) -> None:
    problem = problem_of(heat(1e-5))
    assert method.refusal(problem) == (
        "rounded to float16, its weights would change by 100.0%: some are very small beside others"
    )
    with pytest.raises(ValueError, match="the weights of a launch of 1 would be others"):
        method.kernel(problem_of(heat(3e-4)), {STEPS_PER_BLOCK: 1})  # type: ignore[attr-defined]


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=9), st.data())
def test_weights_that_are_zero_stay_zero(weights: list[float], data: st.DataObject) -> None:
    zeros = data.draw(st.lists(st.booleans(), min_size=len(weights), max_size=len(weights)))
    kept = [0.0 if zero else weight for weight, zero in zip(weights, zeros, strict=True)]
    stencil = Stencil(tuple((d,) for d in range(len(kept))), tuple(kept))
    found = round_weights(stencil)
    assert all(new == 0 for old, new in zip(kept, found.weights, strict=True) if old == 0)
    assert weight_error(stencil, stencil) == 0


def test_tiny_and_huge_weights_do_not_round_well() -> None:
    assert rounds_well(heat(0.2), 4)
    assert not rounds_well(Stencil(((-1,), (0,), (1,)), (1e-8, 2e-8, 1e-8)), 1)
    assert not rounds_well(Stencil(((-1,), (1,)), (300.0, -300.0)), 2)


@pytest.mark.parametrize("format_", [BFLOAT16, TFLOAT32])
def test_what_is_no_number_stays_none(format_: Format) -> None:
    odd = np.array([0x7FFFFFFF, 0x7F800001, 0xFFC00000], np.uint32).view(np.float32)
    assert np.isnan(rounded(odd, format_)).all()
    assert np.isinf(rounded([np.inf, -np.inf], format_)).all()
