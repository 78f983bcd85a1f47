"""On a GPU: every method x stencil x boundary x dtype x odd sizes x halos against the reference and
cpu.plain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import exact
from tests.support.cases import (
    CUSTOM,
    HALOS_AND_KINDS,
    assert_rounded_at_random,
    boundary_of,
    check_the_first_nan_is_named,
    dtype_of,
    make_problem,
    mixed_boundaries,
    run,
    run_with_halo,
    stencil_of,
)
from tests.support.conduction_cases import CASES, RADIATION, Case
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod as CpuPlain
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.method import STEPS_PER_BLOCK, Method, Parameters
from tetris_sim.model.problem import PRECISIONS, Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES

pytestmark = pytest.mark.gpu

NAMES = (*STENCIL_NAMES, *CUSTOM)
FUSED = tuple(method for method in METHODS if method.name != "gpu.plain")
# Odd lengths; wide enough for points that no face concerns, narrow enough for tiles that end in the
# middle.
SHAPES: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((4099,), (37,), (4,)),
    2: ((203, 331), (37, 1025), (11, 23), (4, 4)),
    3: ((45, 51, 137), (7, 9, 13), (4, 4, 4)),
}


def expected(problem: Problem, state: Field, steps: int) -> tuple[Field, float]:
    """(the reference's answer, how far another may be from it)."""
    found = reference.advance(state, problem, steps)
    largest = max(
        reference.largest_magnitude(state, problem), reference.largest_magnitude(found, problem)
    )
    return found, reference.tolerance(problem, steps, largest)


def agree(method: Method, problem: Problem, state: Field, parameters: Parameters, gpu: Any) -> None:
    depth = max(1, parameters.get(STEPS_PER_BLOCK, 1))
    blocks = (1, depth, 2 * depth + 1)
    wanted, allowed = expected(problem, state, sum(blocks))
    found = run(method, problem, parameters, gpu, blocks)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed)
    if problem.dtype == np.float16:
        assert_rounded_at_random(found, wanted, reference.largest_magnitude(state, problem))


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_plain_gives_the_bits_of_the_cpu(
    name: str, dtype: str, gpu: Any, teams: dict[int, ThreadTeam]
) -> None:
    stencil = stencil_of(name)
    for index, (_, boundary) in enumerate(mixed_boundaries(stencil.ndim)):
        shape = SHAPES[stencil.ndim][-2 - index % 2]
        problem, state = make_problem(stencil, boundary, dtype=dtype, shape=shape, n_fields=2)
        found = run(GpuPlainMethod(), problem, {}, gpu)
        np.testing.assert_array_equal(found, run(CpuPlain(), problem, {}, teams[2]))
        wanted, allowed = expected(problem, state, 12)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", FUSED, ids=lambda method: method.name)
def test_every_proposal_agrees_with_the_reference(
    method: Method, name: str, dtype: str, gpu: Any
) -> None:
    stencil = stencil_of(name)
    boundaries = [boundary for _, boundary in mixed_boundaries(stencil.ndim)]
    problem, _ = make_problem(stencil, boundaries[0], dtype=dtype)
    if method.refusal(problem) is not None:
        pytest.skip(f"{method.name} refuses it: {method.refusal(problem)}")
    for index, parameters in enumerate(method.parameters(problem)):
        for number, shape in enumerate(SHAPES[stencil.ndim]):
            boundary = boundaries[(index + 3 * number) % len(boundaries)]
            problem, state = make_problem(
                stencil, boundary, dtype=dtype, shape=shape, n_fields=1 + number % 2
            )
            agree(method, problem, state, parameters, gpu)


@pytest.mark.parametrize("method", FUSED, ids=lambda method: method.name)
@pytest.mark.parametrize("name", ["star-1d5p", "heat-2d", "box-2d9p", "heat-3d"])
@pytest.mark.parametrize("mirrored", [False, True])
def test_every_kind_of_face_is_right_at_every_step(
    method: Method, name: str, mirrored: bool, gpu: Any
) -> None:
    stencil = stencil_of(name)
    for _, boundary in mixed_boundaries(stencil.ndim):
        problem, state = make_problem(
            stencil,
            boundary,
            dtype=dtype_of(method, stencil),
            shape=SHAPES[stencil.ndim][0],
            mirrored=mirrored,
        )
        if method.refusal(problem) is None:
            agree(method, problem, state, method.parameters(problem)[0], gpu)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize(("name", "halo", "kind"), HALOS_AND_KINDS)
def test_a_slab_with_halos(
    method: Method,
    name: str,
    halo: tuple[tuple[int, int], ...],
    kind: str,
    gpu: Any,
    teams: dict[int, ThreadTeam],
) -> None:
    stencil = stencil_of(name)
    shape, dtype = (
        {1: (403,), 2: (145, 183), 3: (39, 47, 143)}[stencil.ndim],
        dtype_of(method, stencil),
    )
    boundary = boundary_of(kind, stencil.ndim)
    problem, _ = make_problem(
        stencil, boundary, dtype=dtype, shape=shape, n_fields=2, mirrored=True
    )
    if method.refusal(problem) is not None:
        pytest.skip(f"{method.name} refuses it")
    parameters = method.parameters(problem)[0]
    if STEPS_PER_BLOCK in parameters:
        parameters = {**parameters, STEPS_PER_BLOCK: 2}
    wanted = run_with_halo(CpuPlain(), problem, halo, {}, teams[2])
    found = run_with_halo(method, problem, halo, parameters, gpu)
    allowed = reference.tolerance(problem, 10, 3.0)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(
            one, other, rtol=0, atol=0 if method.name == "gpu.plain" else allowed
        )


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_padding_that_is_poisoned_changes_nothing(
    method: Method, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stencil = stencil_of("box-2d9p")
    dtype = dtype_of(method, stencil)
    problem, state = make_problem(stencil, boundary_of("walls", 2), dtype=dtype, shape=(203, 331))
    zeros = gpu.cupy.zeros  # which flags and counters stay

    def poisoned(n: int, dtype: Any) -> Any:
        return gpu.cupy.full(n, np.nan, dtype) if np.dtype(dtype).kind == "f" else zeros(n, dtype)

    monkeypatch.setattr(gpu.cupy, "zeros", poisoned)
    agree(method, problem, state, method.parameters(problem)[0], gpu)


def test_many_steps_of_a_small_grid_are_replayed(gpu: Any, teams: dict[int, ThreadTeam]) -> None:
    problem, _ = make_problem(
        stencil_of("heat-2d"), Boundary(boundary_of("walls", 2).faces), shape=(33, 47)
    )
    found = run(GpuPlainMethod(), problem, {}, gpu, (3, 200, 65))
    np.testing.assert_array_equal(found, run(CpuPlain(), problem, {}, teams[1], (268,)))


@pytest.mark.parametrize("method", FUSED, ids=lambda method: method.name)
def test_replayed_launches_give_the_bits_of_single_ones(method: Method, gpu: Any) -> None:
    stencil = stencil_of("heat-2d")
    problem, _ = make_problem(
        stencil, boundary_of("walls", 2), dtype=dtype_of(method, stencil), shape=(203, 331)
    )
    parameters = method.parameters(problem)[0]
    depth = parameters.get(STEPS_PER_BLOCK, 1)
    replayed = run(method, problem, parameters, gpu, (70 * depth + 3,))
    single = run(method, problem, parameters, gpu, (*(7 * depth,) * 10, 3))
    np.testing.assert_array_equal(replayed, single)


def test_the_first_box_with_a_nan_is_named(gpu: Any) -> None:
    check_the_first_nan_is_named(GpuPlainMethod(), gpu)


@pytest.mark.parametrize("case", CASES + RADIATION, ids=lambda case: case.name)
def test_sweeps_of_bodies_have_the_bits_of_the_chain(case: Case, gpu: Any) -> None:
    problem = case.problem()
    stepper = GpuPlainMethod().prepare(problem, Slab.whole(problem.grid), {}, gpu)
    stepper.load(problem.initial, 3)
    for steps in (4, 71):  # by themselves and in records of launches
        stepper.advance(steps)
    found = stepper.interior()
    stepper.close()
    state = problem.initial(Slab.whole(problem.grid))
    wanted = exact.advance(state, problem, 75, 3)
    source = None if problem.conduction is None else problem.conduction.source
    if source is None or exact.is_exact(source.program):
        np.testing.assert_array_equal(found, wanted)
    else:
        eps = float(np.finfo(problem.dtype).eps)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=75 * 8 * eps)
