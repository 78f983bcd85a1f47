"""Equations on GPUs without one: gpu.plain on emulated kernels, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_streamed import HostCopies, streamed
from tests.support import gpu_equation_cases as cases
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.common.given import given_defines, joined_stages
from tetris_sim.gpu_kernels.common.layout import pitch_slab
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import padded
from tetris_sim.model.equations import Equations, Stage
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.reference import allowed_error
from tetris_sim.model.slab import Ranges, Slab

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

PROBLEMS: dict[str, Callable[[], Problem]] = {
    "gray-scott": lambda: cases.make(
        cases.gray_scott(2, cases.walls(2), cases.walls(2, 0.1)), (13, 37)
    ),
    "gray-scott, ring": lambda: cases.make(
        cases.gray_scott(2, cases.ring(2)), (11, 35), np.float32
    ),
    "cahn-hilliard": lambda: cases.make(cases.cahn_hilliard(2, cases.walls(2)), (12, 21)),
    "wave": lambda: cases.make(cases.wave(3, cases.walls(3)), (7, 8, 9)),
    "corners": lambda: cases.make(cases.corners(cases.walls(2)), (9, 14)),
    "kuramoto": lambda: cases.make(cases.kuramoto(cases.ring(1)), (41,)),
}


def advanced(problem: Problem, steps: list[int], first: int = 0) -> Field:
    stepper = GpuPlainMethod().prepare(problem, Slab.whole(problem.grid), {}, HostGpu())
    stepper.load(problem.initial, first)
    for n in steps:
        stepper.advance(n)
    found: Field = stepper.interior()
    stepper.close()
    return found


@pytest.mark.parametrize("name", PROBLEMS)
def test_steps_have_the_bits_of_the_instructions(name: str) -> None:
    problem = PROBLEMS[name]()
    state = problem.initial(Slab.whole(problem.grid))
    found = advanced(problem, [2, 5], 3)

    np.testing.assert_array_equal(found, cases.advance(state, problem, 7, 3))
    start = state.astype(problem.dtype)
    near = reference.advance(start, problem, 7, 3)
    error = np.abs(found - near)
    assert (error <= allowed_error(start, near, problem, 7, 3)).all()


def test_records_of_launches_are_given_the_numbers_of_their_steps() -> None:
    problem = cases.make(cases.cahn_hilliard(1, cases.walls(1)), (19,))
    gpu: Any = HostGpu()
    stepper = GpuPlainMethod().prepare(problem, Slab.whole(problem.grid), {}, gpu)
    stepper.load(problem.initial, 5)
    stepper.advance(2 * 32 + 7)
    assert gpu.replays == 2
    state = problem.initial(Slab.whole(problem.grid))
    np.testing.assert_array_equal(stepper.interior(), cases.advance(state, problem, 71, 5))


@pytest.mark.parametrize(
    ("name", "halo"),
    [
        ("gray-scott", ((0, 3), (4, 0))),
        ("cahn-hilliard", ((6, 4), (0, 0))),
        ("wave", ((0, 3), (3, 0), (3, 3))),
    ],
)
def test_a_slab_has_the_bits_of_the_whole(name: str, halo: tuple[tuple[int, int], ...]) -> None:
    problem, first = PROBLEMS[name](), 2
    shape, radii = problem.grid.shape, problem.stencil.radii
    steps = min(it // r for pair, r in zip(halo, radii, strict=True) for it in pair if it)
    rings = [problem.boundary.periodic(axis) for axis in range(len(shape))]
    spans = tuple((low if low else 0, n - high) for n, (low, high) in zip(shape, halo, strict=True))
    slab = replace(Slab.box(spans), halo=halo)
    state = problem.initial(Slab.whole(problem.grid))

    gpu: Any = HostGpu()
    stepper = GpuPlainMethod().prepare(problem, slab, {}, gpu)
    stepper.load(problem.initial, first)
    for axis, widths in enumerate(halo):
        for side, width in zip(SIDES, widths, strict=True):
            if width:
                box = slab.globally(slab.halo_ranges(axis, SIDES.index(side)))
                planes = [padded(part_of(u), box, shape, rings) for u in state]
                stepper.set_halo(axis, side, np.stack(planes))
    stepper.advance(steps)
    wanted = cases.advance(state, problem, steps, first)
    own = tuple(slice(*span) for span in slab.spans)
    np.testing.assert_array_equal(stepper.interior(), wanted[(slice(None), *own)])


def part_of(field: Field) -> Callable[[Ranges], Field]:
    return lambda box: field[tuple(slice(*span) for span in box)]


@pytest.mark.parametrize("name", ["gray-scott", "cahn-hilliard", "wave"])
def test_pieces_have_the_bits_of_the_whole(name: str) -> None:
    problem = PROBLEMS[name]()
    gpu: Any = HostGpu()
    found = streamed(GpuPlainMethod(), problem, {}, gpu, HostCopies(gpu), (1, 5, 2))
    state = problem.initial(Slab.whole(problem.grid))
    np.testing.assert_array_equal(found, cases.advance(state, problem, 3))


@pytest.mark.parametrize(("name", "arrays"), [("cahn-hilliard", 1), ("wave", 1), ("corners", 0)])
def test_memory_counts_work_arrays_and_coefficients(name: str, arrays: int) -> None:
    problem = PROBLEMS[name]()
    slab = Slab.whole(problem.grid)
    layout = pitch_slab(problem, slab)
    beside = GpuPlainMethod().memory(problem, slab, {}) - 2 * layout.n_bytes
    assert beside == arrays * layout.field_pitch * problem.dtype.itemsize


def test_stages_that_read_their_own_points_go_together() -> None:
    ring = cases.ring(2)
    assert joined_stages(cases.wave(2, ring)) == [range(2)]
    assert joined_stages(cases.cahn_hilliard(2, ring)) == [range(1), range(1, 2)]
    # The second stage would write where neighbours still read.
    a, b, c = (cases.laplace("u", 2), cases.laplace("a", 2), cases.centre("u", 2))
    chain = Equations(
        ("u",),
        (Stage({"a": a}), Stage({"b": b}), Stage({"c": c}), Stage({"u'": cases.centre("c", 2)})),
        {"u": "u'"},
        {"u": ring, "a": ring},
    )
    assert chain.work["c"] == chain.work["a"]
    assert joined_stages(chain) == [range(1), range(1, 2), range(2, 4)]


def test_stages_compile_and_spill_nothing() -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    for name, architecture in (("gray-scott", "sm_80"), ("wave", "sm_90")):
        problem = PROBLEMS[name]()
        assert problem.equations is not None
        for group in joined_stages(problem.equations):
            defines = {**given_defines(problem), "TS_FIRST": group.start, "TS_LAST": group[-1]}
            assert compile_source("stage.cu", defines, architecture).spilled == 0


def test_others_say_that_they_take_no_equations() -> None:
    problem = PROBLEMS["corners"]()
    for method in METHODS:
        if method.name not in ("gpu.plain", "gpu.stream"):
            assert "equations" in str(method.refusal(replace(problem, pairs=True)))
    half = replace(problem, dtype=np.dtype(np.float16))
    assert "float16" in str(GpuPlainMethod().refusal(half))
