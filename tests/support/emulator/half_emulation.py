"""Emulated kernels that multiply FP16, compared with plain NumPy; NaNs around what they may depend
on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.cases import mixed_boundaries, run, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tests.support.emulator.launching import (
    Memory,
    Triple,
    few_points,
    launch,
    scaled,
    several_tiles,
    three,
)
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.model import reference
from tetris_sim.model.method import STEPS_PER_BLOCK, Method, Parameters
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.stencil import Stencil

HALF = np.dtype(np.float16)
EPS = 2.0**-11  # half a place of FP16
UNTOUCHED = -7.25  # what no kernel computes: results are below 2
Array = npt.NDArray[Any]
emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)


class HalfMemory(Memory):
    """With a number that FP16 has where nothing is written."""

    def _array(self, value: float) -> Array:
        return super()._array(value if np.isnan(value) else UNTOUCHED)


def weighted(name: str) -> Stencil:
    """Random weights of which the magnitudes add up to 1."""
    stencil, rng = stencil_of(name), np.random.default_rng(1)
    weights = rng.uniform(0.2, 1.0, stencil.n_points) * rng.choice(
        [-1.0, 1.0], stencil.n_points, p=[0.2, 0.8]
    )
    return Stencil(stencil.offsets, tuple(weights / np.abs(weights).sum()))


def small(parameters: Mapping[str, int]) -> dict[str, int]:
    """Fewer warps, which changes nothing but how much must be emulated."""
    return {**parameters, "warps": min(parameters["warps"], 2)}


def applied(state: Array, fused: Stencil) -> Array:
    """A stencil in double precision."""
    u, radii = state.astype(np.float64), three(fused.radii, 0)
    shape = [n - 2 * r for n, r in zip(u.shape, radii, strict=True)]
    result = np.zeros(shape)
    for offset, weight in fused.terms.items():
        shifts = [o + r for o, r in zip(three(offset, 0), radii, strict=True)]
        result += weight * u[tuple(slice(s, s + n) for s, n in zip(shifts, shape, strict=True))]
    return result


def compare(
    kernel: FusedKernel,
    stencil: Stencil,
    fused: Stencil,
    allowed: float,
    *,
    dtype: np.dtype[Any] = HALF,
    operand: Callable[[Array], Array] = lambda state: state,
) -> None:
    """Launch a kernel on several tiles and on few points; nothing else may be read that matters, or
    written.

    Args:
        kernel: to be launched.
        stencil: of one step.
        fused: with the weights that the kernel multiplies.
        allowed: error over the largest value.
        dtype: of the state.
        operand: what the kernel makes of the state before it multiplies.
    """
    radii = three(stencil.radii, 0)
    counts = several_tiles(kernel, radii)
    cases: tuple[tuple[Triple, int, bool], ...] = (
        (counts, 0, False),
        (counts, 2, True),
        (few_points(kernel, radii), 0, True),
    )
    for points, margin, descending in cases:
        memory = HalfMemory(scaled(radii, kernel.depth), points, dtype, margin)
        before = memory.src.copy()
        launch(kernel, memory, 900, descending)
        found = memory.points(memory.dst, memory.box)
        atol = allowed * float(np.abs(memory.state).max())
        wanted = applied(operand(memory.state), fused)
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=atol)
        found[...] = UNTOUCHED
        assert np.all(memory.dst == dtype.type(UNTOUCHED))
        np.testing.assert_array_equal(memory.src, before)


def faces(ndim: int) -> list[Any]:
    """Every kind of face, as a parameter of a test."""
    return [
        pytest.param(ndim, boundary, id=f"{ndim}d-{kind}")
        for kind, boundary in mixed_boundaries(ndim)
    ]


def launches_of(
    method: Method, problem: Problem, state: Field, parameters: Parameters
) -> list[str]:
    """Make two blocks and a step more, compare with the reference; the names of what was
    launched.
    """
    gpu: Any = HostGpu()
    depth = parameters[STEPS_PER_BLOCK]
    blocks = (depth, depth + 1)
    expected = reference.advance(state, problem, sum(blocks))
    largest = max(reference.largest_magnitude(field, problem) for field in (state, expected))
    found = run(method, problem, parameters, gpu, blocks)
    assert found.dtype == np.float16
    allowed = reference.tolerance(problem, sum(blocks), largest)
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=0, atol=allowed)
    return gpu.launches  # type: ignore[no-any-return]
