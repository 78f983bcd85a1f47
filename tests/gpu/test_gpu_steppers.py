"""Without a GPU: whole blocks of steps of every GPU method, faces and halos included, with emulated
kernels.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.support.cases import (
    HALOS,
    boundary_of,
    check_the_first_nan_is_named,
    dtype_of,
    make_problem,
    mixed_boundaries,
    run,
    run_with_halo,
    stencil_of,
)
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod as CpuPlain
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.boundary import ghosts
from tetris_sim.gpu_kernels.fused.method import FusedMethod
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.steppers import stepper
from tetris_sim.model import reference
from tetris_sim.model.deep_ghosts import contradictions, lasting_sides
from tetris_sim.model.method import STEPS_PER_BLOCK, Method, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

FUSED = tuple(method for method in METHODS if isinstance(method, FusedMethod))
SHAPES: dict[int, tuple[int, ...]] = {1: (1501,), 2: (75, 133), 3: (23, 26, 61)}
WIDER = 64  # float16 needs more points along x: rows begin at lines of 128 bytes
NAMES = ("heat-1d", "star-1d5p", "heat-2d", "box-2d9p", "heat-3d", "box-3d27p")


def shallowest(method: Method, problem: Problem) -> Parameters:
    """The proposal with the fewest steps at once, but more than one if there is one."""
    proposals = sorted(method.parameters(problem), key=lambda each: each[STEPS_PER_BLOCK])
    return next((each for each in proposals if each[STEPS_PER_BLOCK] > 1), proposals[-1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", FUSED, ids=lambda method: method.name)
def test_blocks_frames_and_remaining_steps_agree_with_the_reference(
    method: Method, name: str
) -> None:
    stencil = stencil_of(name)
    dtype, shape = dtype_of(method, stencil), SHAPES[stencil.ndim]
    shape = (*shape[:-1], shape[-1] + WIDER * (dtype == "float16"))
    boundaries = [boundary for _, boundary in mixed_boundaries(stencil.ndim)]
    for number, mirrored in ((2, True), (4, False), (5 + len(name), False), (5 + len(name), True)):
        problem, state = make_problem(
            stencil,
            boundaries[number],
            dtype=dtype,
            shape=shape,
            n_fields=1 + number % 2,
            mirrored=mirrored,
        )
        parameters, gpu = shallowest(method, problem), HostGpu()
        depth = parameters[STEPS_PER_BLOCK]
        blocks = (1, depth, 2 * depth + min(1, depth - 1))
        expected = reference.advance(state, problem, sum(blocks))
        largest = max(
            reference.largest_magnitude(state, problem),
            reference.largest_magnitude(expected, problem),
        )
        found = run(method, problem, parameters, gpu, blocks)  # type: ignore[arg-type]
        allowed = reference.tolerance(problem, sum(blocks), largest)
        np.testing.assert_allclose(found, expected, rtol=0, atol=allowed)
        lasting = list(itertools.chain(*lasting_sides(problem, Slab.whole(problem.grid))))
        corners = bool(contradictions(problem, Slab.whole(problem.grid)))
        assert gpu.launches.count("frame") >= 3 * (not all(lasting) or corners)
        assert gpu.launches.count("ghosts") >= 3 * any(lasting)
        if number in (2, 4):  # periodic ones; a flux
            assert all(lasting) == (number == 4 or mirrored)
        assert mirrored or number == 4 or not any(lasting) or "Periodic" in repr(boundaries[number])
        assert "sweep" in gpu.launches or depth == 1


@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize(("name", "halo"), [HALOS[k] for k in (0, 2, 3, 5)])
def test_a_slab_with_halos_has_the_bits_of_the_cpu(
    name: str, halo: tuple[tuple[int, int], ...], dtype: str, teams: dict[int, ThreadTeam]
) -> None:
    stencil = stencil_of(name)
    shape = {1: (103,), 2: (45, 53), 3: (29, 31, 23)}[stencil.ndim]
    problem, _ = make_problem(
        stencil, boundary_of("mixed", stencil.ndim), dtype=dtype, shape=shape, n_fields=2
    )
    gpu: Any = HostGpu()
    found = run_with_halo(GpuPlainMethod(), problem, halo, {}, gpu)
    for one, other in zip(
        found, run_with_halo(CpuPlain(), problem, halo, {}, teams[2]), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", FUSED, ids=lambda method: method.name)
def test_fused_steps_use_up_a_halo(method: Method, teams: dict[int, ThreadTeam]) -> None:
    stencil = stencil_of("heat-2d")
    problem, _ = make_problem(
        stencil, boundary_of("walls", 2), dtype=dtype_of(method, stencil), shape=(145, 133)
    )
    gpu: Any = HostGpu()
    parameters = shallowest(method, problem)
    halo = ((16, 16), (0, 0))
    if parameters[STEPS_PER_BLOCK] > 6:
        parameters = {**parameters, STEPS_PER_BLOCK: 4}
    found = run_with_halo(method, problem, halo, parameters, gpu)
    wanted = run_with_halo(CpuPlain(), problem, halo, {}, teams[2])
    assert "frame" in gpu.launches
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=reference.tolerance(problem, 10, 3.0))


def test_many_steps_of_a_small_grid_are_recorded_once_and_replayed(
    teams: dict[int, ThreadTeam],
) -> None:
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("walls", 2), shape=(13, 17))
    gpu: Any = HostGpu()
    found = run(GpuPlainMethod(), problem, {}, gpu, (3, 100, 33))
    np.testing.assert_array_equal(found, run(CpuPlain(), problem, {}, teams[1], (136,)))
    assert gpu.replays == 4
    assert gpu.launches.count("sweep") == 136


@pytest.mark.parametrize("method", FUSED, ids=lambda method: method.name)
@pytest.mark.parametrize(("name", "halo"), [HALOS[k] for k in (0, 2, 5)])
@pytest.mark.parametrize("kind", ["walls", "mixed"])
def test_fused_methods_on_a_slab_with_halos(
    method: Method,
    name: str,
    halo: tuple[tuple[int, int], ...],
    kind: str,
    teams: dict[int, ThreadTeam],
) -> None:
    stencil = stencil_of(name)
    shape = {1: (403,), 2: (75, 113), 3: (31, 33, 41)}[stencil.ndim]
    dtype = dtype_of(method, stencil)
    shape = (*shape[:-1], shape[-1] + WIDER * (dtype == "float16"))
    problem, _ = make_problem(
        stencil, boundary_of(kind, stencil.ndim), dtype=dtype, shape=shape, mirrored=True
    )
    parameters, gpu = {**method.parameters(problem)[0], STEPS_PER_BLOCK: 2}, HostGpu()
    found = run_with_halo(method, problem, halo, parameters, gpu)  # type: ignore[arg-type]
    allowed = reference.tolerance(problem, 10, 3.0)
    for one, other in zip(
        found, run_with_halo(CpuPlain(), problem, halo, {}, teams[2]), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=allowed)
    assert set(gpu.launches) - {"sweep", "ghosts", "frame"}


def test_a_nan_is_found_and_named() -> None:
    check_the_first_nan_is_named(GpuPlainMethod(), HostGpu())


@pytest.mark.parametrize("method", [*FUSED, METHODS[-1]], ids=lambda method: method.name)
def test_all_that_launches_need_is_worked_out_before_the_first(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Working it out for each of many passes would take the host longer than a pass takes the
    GPU.
    """
    monkeypatch.setattr(stepper, "_GRAPH_POINTS", 0)  # no records of launches
    stencil = stencil_of("heat-2d")
    problem, _ = make_problem(
        stencil, boundary_of("rings", 2), dtype=dtype_of(method, stencil), shape=(75, 197)
    )
    gpu: Any = HostGpu()
    parameters = shallowest(method, problem) if method in FUSED else {}
    found = method.prepare(problem, Slab.whole(problem.grid), parameters, gpu)
    found.load(problem.initial)
    sent = []
    monkeypatch.setattr(ghosts, "to_device", lambda device, values: sent.append(values))
    found.advance(3 * parameters.get(STEPS_PER_BLOCK, 1) + 1)
    found.close()
    assert sent == []
