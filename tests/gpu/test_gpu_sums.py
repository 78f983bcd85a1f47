"""Without a GPU: gpu.stream for bodies whose source does not change, on emulated kernels. They leave
it out and add what it makes of zero in as many steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_coefficients import IN_3D as GRADED_3D
from tests.gpu.test_gpu_coefficients import ONE_EDGE, SIX_COLUMNS, TWO_EDGES, UNROLLED, body
from tests.gpu.test_gpu_palette_method import (
    BRANCH,
    IN_3D,
    REGISTERS,
    advanced,
    agree,
    changed,
    cut,
    layered,
)
from tests.gpu.test_gpu_streamed import HostCopies, streamed
from tests.support.conduction_cases import Case, closed, heating, held, mixed_faces, rings
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.common.layout import pitch_slab
from tetris_sim.gpu_kernels.stream.method import METHOD
from tetris_sim.model import reference
from tetris_sim.model.conduction import Parameter, Rule
from tetris_sim.model.deep_ghosts import lasting_sides
from tetris_sim.model.formula import compile_expression
from tetris_sim.model.lowering import sourceless
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Slab
from tetris_sim.model.step_control import Signal

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
REGISTERS_OF_SM = 65536

NAMES_2D = ("steps_per_block", "rows", "columns", "warps", "blocks", "edges", "interleaved")
PLATE = dict(zip(NAMES_2D, (3, 4, 4, 2, 1, 1, 0), strict=True))
AMONG = {**PLATE, "interleaved": 1}
WIDE = {**PLATE, "columns": 8, "edges": 2}
BLOCK = {"steps_per_block": 2, "rows": 3, "warps": 2, "blocks": 1, "ahead": 2, "columns": 2}
HOLDING = {**BLOCK, "steps_per_block": 3, "rows": 3, "warps": 3, "held": 2}
WIDE_BLOCK = {**BLOCK, "columns": 4, "steps_per_block": 1, "ahead": 3}
ROD = {"steps_per_block": 8, "columns": 8, "warps": 2, "blocks": 1, "refresh": 4}


def spots(n_ids: int) -> Rule:
    """Power by material and place."""
    text = "q*(1 + x)*exp(-(x - 4)**2/9)"
    tree = compile_expression(text, ["q", "x"]).tree
    return Rule(Program(tree), (Parameter("q", np.linspace(3, -1, n_ids)),))


def hot(axis: int, side: int, n_ids: int) -> Any:
    """Different temperatures, whose ghosts last, though they contradict each other."""
    return held(40.0 * axis + 30 * side - 20)


CASES = (
    (Case("rod", (700,), 1, mixed_faces, spots(1)), ROD, "stream_1d"),
    (Case("plate", (31, 97), 1, mixed_faces, spots(1)), PLATE, "stream_2d"),
    (Case("plate, hot", (31, 97), 1, hot, spots(1)), AMONG, "stream_2d"),
    (Case("plate, number", (31, 97), 1, closed, heating(1, changes=False)), PLATE, "stream_2d"),
    (Case("plate, float32", (37, 157), 1, rings, spots(1), np.float32), WIDE, "stream_2d"),
    (Case("block", (11, 14, 77), 1, mixed_faces, spots(1)), BLOCK, "stream_3d"),
    (Case("block, held", (15, 17, 70), 1, mixed_faces, spots(1)), HOLDING, "stream_3d"),
    (Case("block, hot", (9, 13, 40), 1, hot, spots(1)), BLOCK, "stream_3d"),
    (Case("block, float32", (7, 9, 160), 1, rings, spots(1), np.float32), WIDE_BLOCK, "stream_3d"),
    (Case("palette", (31, 47), 5, mixed_faces, spots(5)), BRANCH, "palette_2d"),
    (Case("palette, hot", (31, 47), 3, hot, spots(3)), REGISTERS, "palette_2d_registers"),
    (Case("palette, block", (9, 14, 37), 6, mixed_faces, spots(6)), IN_3D, "palette_3d"),
    (Case("palette, many", (9, 14, 37), 40, hot, spots(40)), IN_3D, "palette_3d"),
)


@emulated
@pytest.mark.parametrize(
    ("case", "parameters", "kernel"), CASES, ids=lambda it: getattr(it, "name", "")
)
def test_blocks_of_steps_agree_with_the_reference(
    case: Case, parameters: Parameters, kernel: str
) -> None:
    gpu, steps = agree(case.problem(), parameters), parameters["steps_per_block"]
    left = steps > 1  # a single step, by itself
    assert gpu.launches.count(kernel) == 4 - left
    # What it adds was made once.
    assert gpu.launches.count("conduct") == steps + left


@emulated
@pytest.mark.parametrize(
    ("shape", "alike", "parameters", "dtype", "kernel"),
    [
        ((41, 53), False, ONE_EDGE, np.float64, "coefficients_2d"),
        ((41, 53), False, TWO_EDGES, np.float32, "coefficients_2d"),
        ((41, 53), True, SIX_COLUMNS, np.float64, "graded_2d"),
        ((11, 14, 43), False, GRADED_3D, np.float64, "coefficients_3d"),
        ((11, 14, 43), True, UNROLLED, np.float64, "coefficients_3d"),
    ],
)
def test_coefficients_take_sources_that_do_not_change(
    shape: tuple[int, ...], alike: bool, parameters: Parameters, dtype: Any, kernel: str
) -> None:
    problem = body(shape, mixed_faces, dtype, alike=alike)
    problem = changed(problem, source=spots(problem.body.medium.n_ids))
    assert agree(problem, parameters).launches.count(kernel) == 3


@emulated
@pytest.mark.parametrize(
    ("case", "axis", "at", "parameters"),
    [
        (Case("plate", (61, 47), 1, hot, spots(1)), 0, 29, PLATE),
        (Case("block", (25, 14, 37), 1, closed, spots(1)), 0, 12, BLOCK),
        (Case("block", (11, 31, 37), 1, hot, spots(1)), 1, 14, BLOCK),
        (Case("palette", (61, 47), 3, closed, spots(3)), 0, 34, REGISTERS),
        (Case("palette", (25, 14, 37), 3, hot, spots(3)), 0, 12, IN_3D),
    ],
)
def test_bits_do_not_depend_on_where_the_grid_is_cut(
    case: Case, axis: int, at: int, parameters: Parameters
) -> None:
    problem = case.problem()
    problem = layered(problem) if case.n_ids > 1 else problem
    steps = 2 * parameters["steps_per_block"]
    whole, _ = advanced(problem, parameters, (steps,))
    np.testing.assert_array_equal(cut(problem, parameters, at, axis, steps), whole)


@emulated
def test_a_sum_follows_the_pieces_of_a_stream() -> None:
    problem = Case("plate", (31, 43), 1, mixed_faces, spots(1)).problem()
    gpu: Any = HostGpu()
    found = streamed(METHOD, problem, PLATE, gpu, HostCopies(gpu), (6, 13, 8))
    wanted = reference.advance(problem.initial(Slab.whole(problem.grid)), problem, 9)
    assert "stream_2d" in gpu.launches
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14 * np.abs(wanted).max())


def test_a_sum_is_part_of_the_memory() -> None:
    heated = Case("block", (9, 13, 40), 1, hot, spots(1)).problem()
    cold, slab = changed(heated, source=None), Slab.whole(heated.grid)
    layout = pitch_slab(heated, slab, BLOCK["steps_per_block"])
    added = METHOD.memory(heated, slab, BLOCK) - METHOD.memory(cold, slab, BLOCK)
    assert added == layout.n_bytes
    assert lasting_sides(heated, slab) == lasting_sides(cold, slab)


class Known:
    """A GPU of which enough is known."""

    architecture, multiprocessors = "sm_90", 132


def test_a_plan_says_what_keeps_a_body_off_the_fastest_path() -> None:
    gpu: Any = Known()
    heated = Case("block", (9, 13, 40), 1, hot, spots(1)).problem()
    assert "added as a sum: 0.71 of the rate" in str(METHOD.explain(heated, BLOCK, 1e9, gpu))
    plate = Case("plate", (31, 47), 5, closed, spots(5)).problem()
    assert "several materials" in str(METHOD.explain(plate, BRANCH, 1e9, gpu))
    assert METHOD.explain(changed(heated, source=None), BLOCK, 1e9, gpu) is None


def switched(share: Callable[[Any], Any]) -> Rule:
    """A formula of the place times a function of time."""
    tree = compile_expression("p*exp(-(x - 4)**2)", ["p", "x"]).tree
    return Rule(Program(tree), (Parameter("p", lambda t: 1.0 * np.asarray(share(t))[:, None]),))


@emulated
def test_a_source_that_is_switched_has_a_sum_of_each_of_its_powers() -> None:
    signal, depth = Signal("power", 1.0), PLATE["steps_per_block"]
    problem = Case("plate", (31, 97), 1, hot, switched(signal.at)).problem()
    assert METHOD.refusal(problem) is None
    gpu: Any = HostGpu()
    stepper = METHOD.prepare(problem, Slab.whole(problem.grid), PLATE, gpu)
    stepper.load(problem.initial)
    wanted, made = problem.initial(Slab.whole(problem.grid)), 0
    for power in (1.0, -2.0, -2.0):
        signal.decide(problem.time(made), power)
        stepper.advance(2 * depth)
        wanted = reference.advance(wanted, problem, 2 * depth, made)
        made += 2 * depth
        np.testing.assert_allclose(stepper.interior(), wanted, rtol=0, atol=1e-13)
    assert gpu.launches.count("stream_2d") == 6
    assert gpu.launches.count("conduct") == 2 * depth


@emulated
def test_steps_in_which_a_source_is_switched_are_made_one_by_one() -> None:
    problem = Case("plate", (31, 97), 1, closed, spots(1)).problem()
    depth, dt = PLATE["steps_per_block"], problem.dt
    problem = changed(problem, source=switched(lambda t: t < 4.5 * dt))
    found, gpu = advanced(problem, PLATE, (32 * depth,))
    wanted = reference.advance(problem.initial(Slab.whole(problem.grid)), problem, 32 * depth)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)
    # Steps 3 and 4, and the last one; sums before and after.
    assert gpu.launches.count("stream_2d") == 31
    assert gpu.launches.count("conduct") == 3 + 2 * depth


@pytest.mark.parametrize(
    ("problem", "left_out"),
    [
        (Case("formula", (20, 20), 3, closed, spots(3)).problem(), True),
        (Case("number", (20, 20), 1, closed, heating(1, changes=False)).problem(), True),
        (Case("numbers", (20, 20), 3, closed, heating(3, changes=False)).problem(), False),
        (Case("switched", (20, 20), 1, closed, switched(lambda t: t > 1)).problem(), True),
        (Case("waving", (20, 20), 1, closed, heating(1, changes=True)).problem(), False),
        (Case("half", (20, 20), 1, closed, spots(1), np.float16).problem(), False),
    ],
    ids=["formula", "number", "numbers", "switched", "waving", "half"],
)
def test_what_is_left_out_is_constant_and_not_looked_up(problem: Problem, left_out: bool) -> None:
    assert (sourceless(problem) is not problem) == left_out


@pytest.mark.parametrize(
    ("dtype", "most"),
    [("float64", 100), ("float32", 1), pytest.param("float32", 100, marks=pytest.mark.full)],
)
@pytest.mark.parametrize(
    "case",
    [
        Case("rod", (9000,), 1, closed, spots(1)),
        Case("plate", (900, 900), 1, closed, spots(1)),
        Case("block", (90, 90, 90), 1, closed, spots(1)),
        Case("palette", (900, 900), 8, closed, spots(8)),
        Case("palette, block", (90, 90, 90), 8, closed, spots(8)),
    ],
    ids=lambda it: it.name,
)
def test_kernels_that_add_a_sum_compile_and_spill_nothing(
    case: Case, dtype: str, most: int
) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    problem = dataclasses.replace(case, dtype=np.dtype(dtype)).problem()
    for parameters in METHOD.parameters(problem)[:most]:
        kernel = METHOD.kernel(problem, parameters)
        assert kernel.defines["TS_SUM"] == 1
        compiled = compile_source(kernel.source, kernel.defines, "sm_90")
        print(parameters, compiled.registers, compiled.spilled)  # noqa: T201
        assert compiled.registers[kernel.entry] * kernel.threads <= REGISTERS_OF_SM
        assert kernel.shared_bytes <= 227 << 10
        assert compiled.spilled <= 80
