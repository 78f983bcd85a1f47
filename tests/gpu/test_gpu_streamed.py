"""A slab in host memory streamed through a GPU: with emulated kernels, and on a real one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.cases import boundary_of, dtype_of, make_problem, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu, HostStream
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod as CpuPlain
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.steppers.passes import GpuMethod
from tetris_sim.gpu_kernels.steppers.streamed import Flat, GpuChunkPipeline, measure_copies
from tetris_sim.model import reference
from tetris_sim.model.method import STEPS_PER_BLOCK, Parameters
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Streaming
from tetris_sim.scheduler.plan.partition import largest_piece
from tetris_sim.scheduler.workers.worker import StreamedStepper

STREAM = METHODS[0]
(SPARSE,) = (method for method in METHODS if method.name == "gpu.sparse")
SHAPES: dict[int, tuple[int, ...]] = {1: (1501,), 2: (75, 133), 3: (43, 26, 61)}


class HostCopies:
    """Copies from host memory to host memory, at once."""

    def __init__(self, gpu: HostGpu) -> None:
        self.bringing, self.taking = HostStream(gpu), HostStream(gpu)
        self.brought = 0

    def host_array(self, elements: int, dtype: np.dtype[Any]) -> Flat:
        array: Flat = np.full(elements, np.nan, dtype)
        return array

    def bring(self, target: Any, source: Flat) -> None:
        self.brought += source.size
        target[...] = source

    def take(self, target: Flat, source: Any) -> None:
        target[...] = source


def streamed(
    method: GpuMethod,
    problem: Problem,
    parameters: Parameters,
    device: Any,
    copies: Any,
    how: tuple[int, int, int],
) -> Field:
    steps, planes, blocks = how
    slab, streaming = Slab.whole(problem.grid), Streaming(steps, planes, 1, 1e9, 0.0, 0.0, 1.0, 3)
    largest = largest_piece(problem, slab, streaming)
    conveyor = GpuChunkPipeline(problem, method, parameters, device, largest=largest, copies=copies)
    stepper = StreamedStepper(problem, slab, conveyor, streaming)
    try:
        stepper.load(problem.initial)
        stepper.advance(blocks)
        stepper.advance(1)
        return stepper.interior()
    finally:
        stepper.close()


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("name", ["heat-1d", "heat-2d", "heat-3d"])
@pytest.mark.parametrize(
    ("boundary", "dtype"), [("rings", "float64"), ("walls", "float64"), ("walls", "float16")]
)
def test_sweeps_of_pieces_have_the_bits_of_the_cpu(
    name: str, boundary: str, dtype: str, teams: dict[int, ThreadTeam]
) -> None:
    stencil = stencil_of(name)
    shape = tuple(n // 2 for n in SHAPES[stencil.ndim]) if stencil.ndim > 1 else (301,)
    problem, _ = make_problem(
        stencil, boundary_of(boundary, stencil.ndim), dtype=dtype, shape=shape, n_fields=2
    )
    gpu = HostGpu()
    found = streamed(
        GpuPlainMethod(), problem, {}, gpu, HostCopies(gpu), (3, max(5, shape[0] // 4), 8)
    )
    stepper = CpuPlain().prepare(problem, Slab.whole(problem.grid), {}, teams[1])
    stepper.load(problem.initial)
    stepper.advance(9)
    np.testing.assert_array_equal(found, stepper.interior())


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("method", [STREAM, SPARSE], ids=lambda method: method.name)
@pytest.mark.parametrize("name", ["heat-1d", "heat-2d", "heat-3d"])
def test_fused_steps_of_pieces_agree_with_the_reference(name: str, method: GpuMethod) -> None:
    stencil = stencil_of(name)
    dtype, (*others, last) = dtype_of(method, stencil), SHAPES[stencil.ndim]
    shape = (*others, last + 64 * (dtype == "float16"))  # its rows begin at lines of so many points
    for boundary in ("walls", "rings"):
        problem, state = make_problem(
            stencil, boundary_of(boundary, stencil.ndim), dtype=dtype, shape=shape
        )
        proposals = sorted(method.parameters(problem), key=lambda each: each[STEPS_PER_BLOCK])
        parameters = next(each for each in proposals if each[STEPS_PER_BLOCK] > 1)
        depth, gpu = parameters[STEPS_PER_BLOCK], HostGpu()
        copies, steps = HostCopies(gpu), 2 * depth
        found = streamed(
            method, problem, parameters, gpu, copies, (steps, shape[0] // 3 + 1, 3 * depth)
        )
        expected = reference.advance(state, problem, 3 * depth + 1)
        largest = max(
            reference.largest_magnitude(state, problem),
            reference.largest_magnitude(expected, problem),
        )
        allowed = reference.tolerance(problem, 3 * depth + 1, largest)
        np.testing.assert_allclose(found, expected, rtol=0, atol=allowed)
        assert (
            len({launch for launch in gpu.launches if launch not in ("sweep", "frame", "ghosts")})
            == 1
        )
        assert copies.brought > 3 * problem.grid.n_points


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["heat-1d", "heat-2d", "heat-3d"])
def test_on_a_gpu_streamed_and_resident_sweeps_have_the_same_bits(name: str) -> None:
    from tetris_sim.gpu_kernels.common.device import GpuDevice

    stencil = stencil_of(name)
    shape = {1: (400_001,), 2: (1501, 701), 3: (181, 75, 133)}[stencil.ndim]
    for boundary in ("rings", "walls"):
        problem, _ = make_problem(stencil, boundary_of(boundary, stencil.ndim), shape=shape)
        device = GpuDevice(0)
        stepper = GpuPlainMethod().prepare(problem, Slab.whole(problem.grid), {}, device)
        stepper.load(problem.initial)
        stepper.advance(41)
        wanted = stepper.interior()
        stepper.close()
        found = streamed(GpuPlainMethod(), problem, {}, device, None, (8, shape[0] // 6, 40))
        np.testing.assert_array_equal(found, wanted)
        parameters = STREAM.parameters(problem)[0]
        fused = streamed(STREAM, problem, parameters, device, None, (16, shape[0] // 6, 40))
        np.testing.assert_allclose(
            fused, wanted, rtol=0, atol=reference.tolerance(problem, 41, 3.0)
        )
        device.close()


@pytest.mark.gpu
def test_copies_are_measured() -> None:
    from tetris_sim.gpu_kernels.common.device import GpuDevice

    device = GpuDevice(0)
    bring, take = measure_copies(device)
    assert 1e9 < 1 / bring < 1e12
    assert 1e9 < 1 / take < 1e12
    device.close()
