"""Conduction on GPUs without one: programs and gpu.plain on emulated kernels, bit for bit."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_streamed import HostCopies, streamed
from tests.support import exact
from tests.support.body_samples import revolved, wheel
from tests.support.conduction_cases import (
    CASES,
    RADIATION,
    REACTING,
    Case,
    beam,
    closed,
    graded,
    heating,
    held,
    mixed_faces,
    random_medium,
    rings,
    stable_dt,
)
from tests.support.emulator.emulation import COMPILER, NO_COMPILER, at, emulate
from tests.support.emulator.host_gpu import HostGpu
from tests.support.enthalpy_cases import cases, cooled_body, uneven
from tetris_sim.gpu_kernels.common.body import body_defines, print_rules
from tetris_sim.gpu_kernels.common.layout import Box3
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.gpu_kernels.fused.method import Fused
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.steppers.passes import ConductionSweep, DeviceState, Pass
from tetris_sim.gpu_kernels.steppers.stepper import GpuStepper
from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import Conduction, Parameter, Rule, padded
from tetris_sim.model.formula import compile_expression
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Ranges, Slab

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

FORMULAS = (
    *("x*a + b", "a - x*b", "x*b - a", "a/b + x/4", "-x", "x % 0.7", "a // 0.3", "x**3", "a**-2"),
    *("sqrt(abs(x))", "x**0.5", "min(x, a, 0.3)", "max(x, b)", "clip(x, -1, b)", "hypot(x, a, 2)"),
    *("x if a > 0 else -b", "0 < x <= a < 2", "not x or a > 1", "(x > 0) + (a > 0)"),
    *("sign(x) + heaviside(a)", "floor(x) - ceil(b)", "1/0 - x", "where(x > 0, 0.0, -0.0)", "3"),
)
ROUNDED = (
    *("sin(x) + cos(a)*tan(b)", "asin(x/9) + acos(a/9)", "atan(x) + atan2(a, b)", "erf(x)"),
    *("sinh(x) + cosh(a) + tanh(b)", "exp(x)", "log(abs(x)) + log10(abs(a))", "abs(x)**b"),
)
KERNEL = """
#include "rules.cuh"
extern "C" __global__ void __launch_bounds__(64)
    follow_all(wide* found, const wide* numbers, const Place* places, const wide* x, int n) {
    const int code = blockIdx.x * blockDim.x + threadIdx.x;
    if (code >= n) return;
    for (int program = 0; program < PROGRAMS; program++)
        found[program * n + code] = follow(program, {numbers, places, 1, code, 0, 0, 0, {0, 0, x + code}});
}
"""


# As many steps at once as it is told, each point by itself.
ONE_BY_ONE = """
#include "body.cuh"
template <int made>
__device__ wide after(const real* src, const Memory& memory, const Body& body, int step, int i,
    int j, int k) {
    const Point point = point_at(memory, i, j, k);
    if constexpr (made == 0) return widen(src[point.at]);
    else {
        const long long stride[3] = {memory.plane, memory.row, 1};
        const auto before = [&](int di, int dj, int dk) {
            return after<made - 1>(src, memory, body, step, i + di, j + dj, k + dk);
        };
        return widen(conducted<true>(body, point, stride, step + made - 1, before(0, 0, 0),
            [&](int d, int shift) {
                return before(shift * (d == 0), shift * (d == 1), shift * (d == 2));
            }));
    }
}
struct Weights { double w[1]; };
extern "C" __global__ void __launch_bounds__(32)
    one_by_one(const real* src, real* dst, const Memory memory, const Box box,
        const Weights, int seven, const Body body, int step) {
    if (seven != 7) return;
    const int i = box.low[0] + blockIdx.z;
    for (int m = threadIdx.x; m < 64; m += 32) {
        const int j = box.low[1] + 4 * blockIdx.y + m / 16, k = box.low[2] + 16 * blockIdx.x + m % 16;
        if (j < box.high[1] && k < box.high[2])
            dst[point_at(memory, i, j, k).at] =
                narrow(after<TS_DEPTH>(src, memory, body, step, i, j, k));
    }
}
"""


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_printed_programs_have_the_bits_of_their_instructions(tmp_path: Path, dtype: str) -> None:
    n, kind = 97, np.dtype(dtype)
    rng = np.random.default_rng(5)
    x, a, b = rng.uniform(-3, 3, (3, n)).astype(kind)
    x[:5] = 0, -0.0, np.nan, np.inf, -np.inf
    parameters = (Parameter("a", a), Parameter("b", lambda t: np.outer(t, b)))
    programs = [Program(compile_expression(text, "xab").tree) for text in FORMULAS + ROUNDED]
    text, numbers = print_rules([Rule(it, parameters) for it in programs], 1)
    assert numbers == list(range(len(programs)))

    source = tmp_path / "follow_all.cu"
    source.write_text(KERNEL.replace("PROGRAMS", str(len(programs))))
    defines = {"TS_REAL": {"float64": "double", "float32": "float"}[dtype], "TS_RULES": text}
    table = Rule(programs[0], parameters).tabulate(lambda step: 1.0 * step, 0, 2, kind)
    places, found = table.places.astype(np.int32), np.zeros((len(programs), n), kind)
    # of (0, b) and (1, b) the second row is told
    arguments = (at(found), at(table.numbers), at(places), at(x), ctypes.c_int(n))
    emulate(source, defines).launch("follow_all", (2, 1, 1), (64, 1, 1), arguments)
    for row, text, it in zip(found, FORMULAS + ROUNDED, programs, strict=True):
        wanted = np.broadcast_to(exact.run_program(it, kind, x=x, a=a, b=b), (n,))
        if text in FORMULAS:
            np.testing.assert_array_equal(row, wanted, err_msg=text)
            signed = np.isfinite(wanted)
            np.testing.assert_array_equal(
                np.signbit(row[signed]), np.signbit(wanted[signed]), err_msg=text
            )
        else:
            eps = 8 * float(np.finfo(kind).eps)
            np.testing.assert_allclose(row, wanted, rtol=eps, atol=eps, err_msg=text)


def advanced(problem: Problem, steps: list[int], first: int = 0) -> Field:
    stepper = GpuPlainMethod().prepare(problem, Slab.whole(problem.grid), {}, HostGpu())
    stepper.load(problem.initial, first)
    for n in steps:
        stepper.advance(n)
    found: Field = stepper.interior()
    stepper.close()
    return found


@pytest.mark.parametrize(
    "case", [*CASES[2:8], *RADIATION[::2], *REACTING], ids=lambda case: case.name
)
def test_sweeps_have_the_bits_of_the_chain(case: Case) -> None:
    problem = case.problem()
    state = problem.initial(Slab.whole(problem.grid))
    wanted = exact.advance(state, problem, 9, 3)
    found = advanced(problem, [4, 5], 3)
    np.testing.assert_array_equal(found, wanted)
    near = reference.advance(state, problem, 9, 3)
    eps = float(np.finfo(problem.arithmetic).eps)
    np.testing.assert_allclose(found, near, rtol=0, atol=100 * eps * np.abs(near).max())


def seven_and_body(state: DeviceState, box: Box3) -> tuple[Any, ...]:
    """Arguments of that kernel."""
    assert state.body is not None
    return np.int32(7), state.body.argument()


def one_by_one(folder: Path, problem: Problem, depth: int) -> FusedKernel:
    """A kernel that makes several steps of every point by itself, the body being all it needs."""
    source = folder / "one_by_one.cu"
    source.write_text(ONE_BY_ONE)
    return FusedKernel(
        source=str(source),
        entry="one_by_one",
        defines={**body_defines(problem), "TS_DEPTH": depth},
        depth=depth,
        tile=(1, 4, 16),
        threads=32,
        shared_bytes=0,
        weights=np.zeros(1),
        beside=seven_and_body,
    )


@dataclass(frozen=True)
class Stepwise(GpuPlainMethod):
    """A fused method with that kernel."""

    folder: Path = Path()
    of_block: int = 2

    def depth(self, problem: Problem, parameters: Parameters) -> int:
        return self.of_block

    def passes(self, problem: Problem, slab: Slab, parameters: Parameters) -> list[Pass]:
        fused = Fused(one_by_one(self.folder, problem, self.of_block))
        return [fused, ConductionSweep()] if fused.fits(problem, slab) else [ConductionSweep()]


FUSED_CASES = (
    Case("plate", (21, 43), 5, mixed_faces, heating(5, changes=True)),
    Case("plate, ring", (17, 43), 4, rings, beam()),
    Case("plate, held", (17, 43), 3, lambda axis, side, n: held(0.3)),
    Case("plate, float16", (17, 90), 3, mixed_faces, heating(3, changes=True), np.float16),
    Case("block", (9, 11, 37), 6, mixed_faces, heating(6, changes=True)),
)


@pytest.mark.parametrize("case", FUSED_CASES, ids=lambda case: case.name)
def test_frames_and_lasting_ghosts_beside_a_fused_kernel(tmp_path: Path, case: Case) -> None:
    problem, depth = case.problem(), 2
    gpu: Any = HostGpu()
    slab = Slab.whole(problem.grid)
    fused = Fused(one_by_one(tmp_path, problem, depth))
    assert fused.fits(problem, slab)
    stepper = GpuStepper(problem, slab, gpu, [fused, ConductionSweep()])
    stepper.load(problem.initial, 2)
    stepper.advance(7)
    state = problem.initial(slab)
    wanted = exact.advance(state, problem, 7, 2)
    assert gpu.launches.count("one_by_one") == 3
    eps = float(np.finfo(problem.dtype).eps)
    if case.source is None:  # images upside down, which are rounded otherwise than ghosts of ghosts
        np.testing.assert_allclose(stepper.interior(), wanted, rtol=0, atol=40 * eps)
    elif any(it.operation == "exp" for it in case.source.program.instructions):
        # NumPy's and C's may differ by a rounding
        np.testing.assert_allclose(stepper.interior(), wanted, rtol=0, atol=4 * eps)
    else:
        np.testing.assert_array_equal(stepper.interior(), wanted)


PROBLEMS = {case.name: case.problem() for case in (*CASES, *RADIATION)} | {
    "graded": graded((12, 15), mixed_faces),
    "graded, ring": graded((11, 9), rings),
    "cylinder": revolved("r z", (9, 14)),
    "ball": revolved("r theta", (13, 8)),
    "disc": wheel(7, 12),
    "rod around": wheel(5, 8, 6),
}
HALOS: list[tuple[str, tuple[tuple[int, int], ...]]] = [
    ("ring", ((6, 5),)),
    ("plate", ((0, 5), (5, 0))),
    ("plate, beam", ((5, 0), (5, 6))),
    ("block", ((0, 3), (3, 3), (3, 0))),
    ("graded, ring", ((5, 5), (0, 0))),
    ("disc", ((4, 4), (0, 0))),
]


@pytest.mark.parametrize(("name", "halo"), HALOS)
def test_a_slab_has_the_bits_of_the_whole(name: str, halo: tuple[tuple[int, int], ...]) -> None:
    problem, first = PROBLEMS[name], 3
    shape, steps = problem.grid.shape, min(it for pair in halo for it in pair if it)
    rings_at = [problem.boundary.periodic(axis) for axis in range(len(shape))]
    # A ring that is cut begins at 1, so that its halo goes around.
    spans = tuple(
        (
            0 if not low else 1 if ring else n // 2,
            n if not high else n - 1 if ring else n - high,
        )
        for n, ring, (low, high) in zip(shape, rings_at, halo, strict=True)
    )
    slab = replace(Slab.box(spans), halo=halo)
    state = problem.initial(Slab.whole(problem.grid))

    gpu: Any = HostGpu()
    stepper = GpuPlainMethod().prepare(problem, slab, {}, gpu)
    stepper.load(problem.initial, first)
    for axis, widths in enumerate(halo):
        for side, width in zip(SIDES, widths, strict=True):
            if width:
                box = slab.globally(slab.halo_ranges(axis, SIDES.index(side)))
                planes = padded(lambda it: state[0][cut(it)], box, shape, rings_at)
                stepper.set_halo(axis, side, planes[np.newaxis])
    stepper.advance(steps)
    wanted = exact.advance(state, problem, steps, first)
    np.testing.assert_array_equal(stepper.interior()[0], wanted[0][cut(slab.spans)])


def cut(box: Ranges) -> tuple[slice, ...]:
    return tuple(slice(*span) for span in box)


@pytest.mark.parametrize("name", ["rod", "graded", "disc", "rod around"])
def test_records_of_launches_are_given_the_numbers_of_their_steps(name: str) -> None:
    problem = PROBLEMS[name]
    gpu: Any = HostGpu()
    stepper = GpuPlainMethod().prepare(problem, Slab.whole(problem.grid), {}, gpu)
    stepper.load(problem.initial, 5)
    stepper.advance(3 * 32 + 7)
    assert gpu.replays == 3
    state = problem.initial(Slab.whole(problem.grid))
    wanted = exact.advance(state, problem, 3 * 32 + 7, 5)
    np.testing.assert_array_equal(stepper.interior(), wanted)


@pytest.mark.parametrize("name", ["plate, ring", "graded", "cylinder"])
def test_pieces_have_the_bits_of_the_whole(name: str) -> None:
    problem = PROBLEMS[name]
    gpu: Any = HostGpu()
    n = problem.grid.shape[0]
    found = streamed(GpuPlainMethod(), problem, {}, gpu, HostCopies(gpu), (3, max(5, n // 3), 8))
    state = problem.initial(Slab.whole(problem.grid))
    np.testing.assert_array_equal(found, exact.advance(state, problem, 9))


def test_fused_steps_of_pieces_agree_with_the_chain(tmp_path: Path) -> None:
    problem = Case("plate", (31, 43), 5, mixed_faces, heating(5, changes=True)).problem()
    gpu: Any = HostGpu()
    method = Stepwise(folder=tmp_path)
    found = streamed(method, problem, {}, gpu, HostCopies(gpu), (6, 13, 8))
    state = problem.initial(Slab.whole(problem.grid))
    wanted = exact.advance(state, problem, 9)
    assert "one_by_one" in gpu.launches
    np.testing.assert_array_equal(found, wanted)


def test_many_materials_have_wide_ids() -> None:
    problem = Case("plate", (9, 40), 1, closed).problem()
    ids = np.add.outer(7 * np.arange(9), 31 * np.arange(40)).astype(np.uint16) % 300
    medium = random_medium(ids, 300, problem.grid.spacing)
    problem = replace(problem, conduction=Conduction(medium), dt=stable_dt(medium))
    assert body_defines(problem)["TS_ID"] == "unsigned short"
    state = problem.initial(Slab.whole(problem.grid))
    wanted = exact.advance(state, problem, 3)
    np.testing.assert_array_equal(advanced(problem, [3]), wanted)


@pytest.mark.parametrize("on_cells", [lambda it: it, uneven], ids=["even", "uneven"])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((31,), np.float64), ((9, 14), np.float64), ((5, 6, 7), np.float32)]
)
def test_heat_contents_have_the_bits_of_the_chain(
    shape: tuple[int, ...], dtype: Any, on_cells: Callable[[Problem], Problem]
) -> None:
    problem = on_cells(cooled_body(shape, dtype))
    state = problem.initial(Slab.whole(problem.grid))
    wanted = exact.advance(state, problem, 40, 3)
    found = advanced(problem, [3, 37], 3)
    np.testing.assert_array_equal(found, wanted)
    near = reference.advance(state, problem, 40, 3)
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(found, near, rtol=0, atol=400 * eps * np.abs(near).max())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("radiating block", np.float32),
        ("uneven radiating plate", np.float64),
        ("cut plate", np.float64),
    ],
)
def test_surfaces_that_radiate_or_cut_cells_have_the_bits_of_the_chain(
    name: str, dtype: Any
) -> None:
    problem = cases(dtype)[name]
    state = problem.initial(Slab.whole(problem.grid))
    wanted = exact.advance(state, problem, 12)
    np.testing.assert_array_equal(advanced(problem, [5, 7]), wanted)


@pytest.mark.parametrize("on_cells", [lambda it: it, uneven], ids=["even", "uneven"])
def test_frames_advance_heat_contents_step_by_step(
    tmp_path: Path, on_cells: Callable[[Problem], Problem]
) -> None:
    problem, depth = on_cells(cooled_body((17, 43))), 2
    gpu: Any = HostGpu()
    stepper = GpuStepper(
        problem,
        Slab.whole(problem.grid),
        gpu,
        [Fused(one_by_one(tmp_path, problem, depth)), ConductionSweep()],
    )
    stepper.load(problem.initial, 2)
    stepper.advance(7)
    state = problem.initial(Slab.whole(problem.grid))
    wanted = exact.advance(state, problem, 7, 2)
    np.testing.assert_array_equal(stepper.interior(), wanted)
