"""Every stencil of the catalogue through every CPU method that does not refuse it, against the
reference.

Compiled code belongs to a shape, weights are its arguments: so stencils of one shape are computed
together.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.support.cases import make_problem, mixed_boundaries, run
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.gpu_kernels import METHODS as GPU_METHODS
from tetris_sim.model import reference
from tetris_sim.model.method import Method
from tetris_sim.model.problem import PRECISIONS, Field, Problem
from tetris_sim.model.stencil import Offset
from tetris_sim.model.stencils.catalogue import catalogue
from tetris_sim.model.stencils.entry import NamedStencil

SHAPES = {1: (53,), 2: (29, 37), 3: (17, 13, 22)}
BLOCKS = (1, 3)
# Compiled in every run: shapes unlike those of the benchmark stencils. The others take a quarter of
# an hour.
ALWAYS = {
    "cpu.plain": ("upwind-3d",),
    "cpu.tessellate": ("central-1d-rk4", "biharmonic-2d13p", "corner-transport-3d", "star-3d25p"),
    "cpu.stream": ("biharmonic-2d13p", "corner-transport-3d"),
}


def by_shape() -> dict[tuple[Offset, ...], list[NamedStencil]]:
    shapes: dict[tuple[Offset, ...], list[NamedStencil]] = {}
    for entry in catalogue().values():
        shapes.setdefault(entry.stencil.offsets, []).append(entry)
    return shapes


def problem_of(
    entry: NamedStencil, number: int = 0, dtype: Any = np.float64
) -> tuple[Problem, Field]:
    """A small problem with faces that change from number to number."""
    stencil = entry.repeatable
    boundaries = [boundary for _, boundary in mixed_boundaries(stencil.ndim)]
    boundary = boundaries[number % len(boundaries)]
    problem, state = make_problem(
        stencil, boundary, dtype=dtype, shape=SHAPES[stencil.ndim], seed=number
    )
    return dataclasses.replace(problem, stencil=stencil), state


def cases() -> list[Any]:
    found = []
    for method in METHODS:
        for entries in by_shape().values():
            names = [entry.name for entry in entries]
            always = any(name in ALWAYS[method.name] for name in names)
            found.append(
                pytest.param(
                    method,
                    entries,
                    id=f"{method.name}-{names[0]}",
                    marks=[] if always else [pytest.mark.full],
                )
            )
    return found


@pytest.mark.parametrize(("method", "entries"), cases())
def test_stencils_of_one_shape_agree_with_the_reference(
    method: Method, entries: list[NamedStencil], teams: dict[int, ThreadTeam]
) -> None:
    for number, entry in enumerate(entries):
        problem, state = problem_of(entry, number + len(entry.name))
        why_not = method.refusal(problem)
        if why_not is not None:
            pytest.skip(f"{method.name} refuses it: {why_not}")
        expected = reference.advance(state, problem, sum(BLOCKS))
        largest = max(reference.largest_magnitude(field, problem) for field in (state, expected))
        gain = max(1.0, sum(map(abs, problem.stencil.weights))) ** sum(
            BLOCKS
        )  # faces may undo what waves promise
        found = run(method, problem, method.parameters(problem)[0], teams[2], BLOCKS)
        allowed = gain * reference.tolerance(problem, sum(BLOCKS), largest)
        np.testing.assert_allclose(found, expected, rtol=0, atol=allowed, err_msg=entry.name)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_every_method_of_a_gpu_takes_a_stencil_or_says_why_not(dtype: str) -> None:
    taken = dict.fromkeys((method.name for method in GPU_METHODS), 0)
    shapes = by_shape()
    for entry, *_ in shapes.values():
        problem, _ = problem_of(entry, dtype=dtype)
        for method in GPU_METHODS:
            why_not = method.refusal(problem)
            assert why_not is None or len(why_not) > 20
            taken[method.name] += why_not is None
    assert taken["gpu.plain"] == len(shapes)
    assert taken["gpu.sparse" if dtype == "float16" else "gpu.stream"] > len(shapes) / 2
