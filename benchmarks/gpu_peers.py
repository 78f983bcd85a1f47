"""What a user would compute a stencil on a GPU with: a first kernel of their own, compiled slices,
a convolution.

None of them does anything about faces; each makes one step per launch and feeds its result back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.bench.candidates import TimedCandidate
from tetris_sim.bench.timing import TimedWork, random_numbers
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import (
    Box3,
    box_argument,
    by_value,
    pitch_slab,
    term_defines,
    term_weights,
)
from tetris_sim.gpu_kernels.common.layout import memory_argument as memory_of
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

NAIVE = str(Path(__file__).with_name("naive.cu"))
_BLOCK = (64, 4, 1)
_LOG = logging.getLogger(__name__)


def open_peers(problem: Problem, device: GpuDevice) -> list[TimedCandidate]:
    """Those that can be had here."""
    found = [_naive(problem, device)]
    for name, make in {"torch.compile": _compiled_slices, "cuDNN": _convolution}.items():
        try:
            found.append(make(problem, device))
        except Exception as error:  # noqa: BLE001  a library that is not there, or fails, is not what is measured
            _LOG.info(
                "no %s: %s",
                name,
                str(error).splitlines()[0] if str(error) else type(error).__name__,
            )
    return found


def _naive(problem: Problem, device: GpuDevice) -> TimedCandidate:
    layout = pitch_slab(problem, Slab.whole(problem.grid))
    with device.use():
        function = device.function(NAIVE, "naive", term_defines(problem))
    arrays = _random_arrays(problem, device, layout.n_bytes)
    box: Box3 = ((0, layout.count[0]), (0, layout.count[1]), (0, layout.count[2]))
    memory, weights = memory_of(*layout.pitches, layout.within), by_value(term_weights(problem))
    z, y, x = layout.count
    grid = (-(-x // _BLOCK[0]), -(-y // _BLOCK[1]), z)

    def step(now: Any, then: Any) -> None:
        arguments = (
            now[layout.origin :],
            then[layout.origin :],
            memory,
            box_argument(box),
            weights,
        )
        function(grid, _BLOCK, arguments)

    return _candidate("naive kernel", problem, device, arrays, step)


def _random_arrays(problem: Problem, device: GpuDevice, n_bytes: int) -> list[Any]:
    with device.use() as cupy:
        numbers = cupy.random.default_rng(0)
        count = n_bytes // problem.dtype.itemsize
        return [random_numbers(numbers, count, problem.dtype) for _ in range(2)]


def _candidate(
    name: str,
    problem: Problem,
    device: GpuDevice,
    arrays: list[Any],
    step: Callable[[Any, Any], None],
) -> TimedCandidate:
    def run(steps: int) -> None:
        with device.use():
            for k in range(steps):
                step(arrays[k % 2], arrays[1 - k % 2])
        device.stream.synchronize()

    return TimedCandidate(name, {}, TimedWork(run, problem.grid.n_points), arrays.clear)


def _torch_field(problem: Problem) -> Any:
    """A random state with ghosts around it, (1, 1, n0 + 2 r0, ...)."""
    import torch

    shape = [n + 2 * r for n, r in zip(problem.grid.shape, problem.stencil.radii, strict=True)]
    dtype = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16}[
        problem.dtype.name
    ]
    return torch.rand(1, 1, *shape, dtype=dtype, device="cuda")


def _inner(problem: Problem) -> tuple[slice, ...]:
    spans = zip(problem.grid.shape, problem.stencil.radii, strict=True)
    return (slice(None), slice(None), *(slice(radius, radius + n) for n, radius in spans))


def _torch_candidate(name: str, problem: Problem, advance: Callable[[Any], Any]) -> TimedCandidate:
    import torch

    fields = [_torch_field(problem) for _ in range(2)]
    inner = _inner(problem)

    def run(steps: int) -> None:
        for k in range(steps):
            fields[1 - k % 2][inner] = advance(fields[k % 2])
        torch.cuda.synchronize()

    run(1)

    def close() -> None:
        fields.clear()
        torch.cuda.empty_cache()

    return TimedCandidate(name, {}, TimedWork(run, problem.grid.n_points), close)


def _compiled_slices(problem: Problem, device: GpuDevice) -> TimedCandidate:
    import torch

    # it compiles a function for few different shapes, and then runs it as it is
    torch._dynamo.reset()
    radii, shape = problem.stencil.radii, problem.grid.shape
    windows = [
        (
            slice(None),
            slice(None),
            *(slice(r + o, r + o + n) for r, o, n in zip(radii, offset, shape, strict=True)),
        )
        for offset in problem.stencil.offsets
    ]

    def advance(field: Any) -> Any:
        return sum(
            weight * field[window]
            for weight, window in zip(problem.stencil.weights, windows, strict=True)
        )

    return _torch_candidate("torch.compile slices", problem, torch.compile(advance))


def _convolution(problem: Problem, device: GpuDevice) -> TimedCandidate:
    import torch

    ndim, radii = problem.grid.ndim, problem.stencil.radii
    kernel = np.zeros([2 * radius + 1 for radius in radii], dtype=problem.dtype)
    for offset, weight in zip(problem.stencil.offsets, problem.stencil.weights, strict=True):
        kernel[
            tuple(radius + component for radius, component in zip(radii, offset, strict=True))
        ] = weight
    convolve = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}[ndim]
    weights = torch.as_tensor(kernel, device="cuda")[None, None]
    return _torch_candidate("cuDNN convolution", problem, lambda field: convolve(field, weights))
