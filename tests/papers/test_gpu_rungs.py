"""Kernels that only the benchmark uses: they compute what they are compared with, and compile
without a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.gpu_alone import Arena, explicit_alone, fused_alone
from tests.gpu.test_gpu_compiles import ARCHITECTURES, disassembled
from tests.papers.convstencil.explicit_stencil2row import SOURCE, THREADS, explicit_stencil2row
from tests.papers.tetris.banded import banded_kernel
from tests.support.cases import stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER, at, emulate
from tests.support.emulator.launching import (
    UNTOUCHED,
    Memory,
    advanced,
    agrees,
    allowed,
    scaled,
    three,
)
from tetris_sim.bench.timing import random_problem
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.common.layout import box_argument, by_value
from tetris_sim.model import reference
from tetris_sim.model.stencil import Stencil

ON_A_GPU = [("star-1d5p", (40_123,)), ("box-2d25p", (333, 517)), ("box-3d27p", (47, 61, 133))]
CASES = [
    ("star-1d5p", 1),
    ("heat-1d", 3),
    ("box-2d25p", 1),
    ("box-2d9p", 3),
    ("lopsided", 1),
    ("box-3d27p", 1),
]
WAYS = [{"shared": False}, {"shared": True}, {"shared": True, "swizzled": True}]
FLOAT64 = np.dtype(np.float64)


def weighted(name: str) -> Stencil:
    offsets = stencil_of(name).offsets
    weights = np.random.default_rng(3).uniform(-0.4, 1.0, len(offsets))
    return Stencil(offsets, tuple(weights / np.abs(weights).sum()))


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(("name", "steps"), CASES)
def test_banded_products_agree_with_numpy(name: str, steps: int, way: dict[str, bool]) -> None:
    stencil = weighted(name)
    agrees(banded_kernel(stencil, steps, **way), stencil, FLOAT64, 900)


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("name", "steps"), CASES)
def test_explicit_matrices_agree_with_numpy(name: str, steps: int, descending: bool) -> None:
    stencil = weighted(name)
    explicit = explicit_stencil2row(stencil, steps)
    counts = three({1: (331,), 2: (13, 45), 3: (3, 5, 21)}[stencil.ndim], 1)
    memory = Memory(scaled(three(stencil.radii, 0), steps), counts, FLOAT64, 0)
    n = explicit.elements(memory.box)
    matrices = np.full(2 * n, np.nan)
    found = launched(explicit, memory, matrices, descending)
    assert np.all(np.isfinite(matrices))
    wanted = advanced(memory.state, stencil, steps)
    atol = allowed(stencil, FLOAT64, steps, float(np.abs(memory.state).max()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)
    found[...] = UNTOUCHED
    assert np.all(memory.dst == UNTOUCHED)


def launched(
    explicit: Any, memory: Memory, matrices: npt.NDArray[Any], descending: bool
) -> npt.NDArray[Any]:
    emulated, box = emulate(SOURCE, explicit.defines), box_argument(memory.box)
    src, dst = memory.first(memory.src), memory.first(memory.dst)
    for entry, threads, arguments in (
        ("transform", explicit.elements(memory.box), (at(src), at(matrices), memory.argument, box)),
        (
            "multiply",
            explicit.results(memory.box),
            (at(matrices), at(dst), memory.argument, box, by_value(explicit.weights)),
        ),
    ):
        grid = (-(-threads // THREADS), 1, 1)
        emulated.launch(entry, grid, (THREADS, 1, 1), arguments, descending=descending)
    return memory.points(memory.dst, memory.box)


def test_more_elements_than_can_be_counted_are_refused() -> None:
    explicit = explicit_stencil2row(stencil_of("heat-3d"), 1)
    with pytest.raises(ValueError, match="more than these kernels count"):
        explicit.elements(((0, 2000), (0, 2000), (0, 2000)))


@pytest.mark.parametrize(
    ("name", "steps", "architecture"),
    [
        pytest.param(*case, it, marks=[pytest.mark.full] * (it == "sm_80" and case[1] == 1))
        for case in CASES
        for it in ARCHITECTURES
    ],
)
def test_they_compile_and_spill_nothing(name: str, steps: int, architecture: str) -> None:
    stencil = weighted(name)
    for way in WAYS:
        kernel = banded_kernel(stencil, steps, **way)
        compiled = compile_source(kernel.source, kernel.defines, architecture)
        assert compiled.spilled == 0
        assert compiled.registers["banded"] * kernel.threads <= 65536
        assert "DMMA" in disassembled(compiled)
    explicit = explicit_stencil2row(stencil, steps)
    assert compile_source(SOURCE, explicit.defines, architecture).spilled == 0


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "shape"), ON_A_GPU)
def test_on_a_gpu_they_make_the_steps_that_they_are_credited_with(
    name: str, shape: tuple[int, ...], gpu: Any
) -> None:
    problem = random_problem(name, shape, "float64")
    stencil, steps = problem.stencil, 2
    kernels = [banded_kernel(stencil, steps, **way) for way in WAYS]
    arena: Any = Arena(problem, gpu)
    layout, (now, then) = arena._layout, arena._arrays
    whole = tuple((0, n) for n in shape)
    gpu.stream.synchronize()
    state = gpu.cupy.asnumpy(layout.view(now, whole))
    wanted = reference.advance(state, problem, steps)
    inside = (slice(None), *(slice(low, high) for low, high in arena.box(steps)[-len(shape) :]))
    for alone in (
        *(fused_alone(kernel, {}) for kernel in kernels),
        explicit_alone(explicit_stencil2row(stencil, steps)),
    ):
        then[...] = np.nan
        arena.work(alone).run(1)
        found = gpu.cupy.asnumpy(layout.view(then, whole))[inside]
        np.testing.assert_allclose(
            found, wanted[inside], rtol=0, atol=reference.tolerance(problem, steps, 1.0)
        )
    arena.close()
