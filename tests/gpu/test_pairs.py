"""Without a GPU: pairs of floats make the operations that they should, agree with the reference
after many steps where float32 does not, and are float64 for everybody else.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.gpu_pairs import OPERATIONS, STORED, plate, smooth_after
from tests.gpu.test_gpu_compiles import ARCHITECTURES, disassembled
from tests.support.cases import FACES, boundary_of, make_problem, mixed_boundaries, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tests.support.exact import fma
from tetris_sim.bench.timing import WeightKind, random_weights
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.common.layout import (
    exactly,
    from_pairs,
    stored_weights,
    term_defines,
    to_pairs,
)
from tetris_sim.gpu_kernels.plain.method import PAIRED as METHODS
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.stream.method import METHOD as FLOATS
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.problem import PAIR, Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import chain_order

STREAM, PLAIN = METHODS
UNIT = 2.0**-48
emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
Floats = npt.NDArray[np.float32]
Two = tuple[Floats, Floats]


def advanced(method: Any, problem: Problem, *blocks: int, gpu: HostGpu | None = None) -> Field:
    """The state after some blocks of steps."""
    whole = Slab.whole(problem.grid)
    parameters = method.parameters(problem)[0]
    stepper = method.prepare(problem, whole, parameters, gpu or HostGpu())
    stepper.load(problem.initial)
    for steps in blocks:
        stepper.advance(steps)
    found: Field = stepper.interior()
    stepper.close()
    return found


def posed(name: str, boundary: Boundary, shape: tuple[int, ...]) -> tuple[Problem, Field]:
    problem, state = make_problem(stencil_of(name), boundary, shape=shape)
    return replace(problem, pairs=True), state


# What pair.cuh says, in NumPy.


def two_sum(a: Floats, b: Floats) -> Two:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def quick_two_sum(a: Floats, b: Floats) -> Two:
    total = a + b
    return total, b - (total - a)


def multiplied(a: Two, b: Two) -> Two:
    product = a[0] * b[0]
    left = fma(a[0], b[0], -product)
    return product, fma(a[1], b[0], fma(a[0], b[1], left))


def added(a: Two, b: Two, c: Two) -> Two:
    total = c[0] + a[0] * b[0]
    part = total - c[0]
    left = (c[0] - (total - part)) + fma(a[0], b[0], -part)
    return total, fma(a[1], b[0], fma(a[0], b[1], c[1])) + left


def whole(value: Two) -> Two:
    high, low = quick_two_sum(*value)
    step = np.float32(2.0**-26)
    return quick_two_sum(high, fma(high, -step, fma(high, step, low)))


def parts(values: Any) -> Two:
    pairs = to_pairs(np.asarray(values, np.float64))
    return pairs.real.copy(), pairs.imag.copy()


def rolled(value: Two, shift: tuple[int, ...]) -> Two:
    axes = tuple(range(len(shift)))
    return np.roll(value[0], shift, axes), np.roll(value[1], shift, axes)


def chained(problem: Problem, state: Field, steps: int) -> Field:
    """Steps on a torus as the kernel makes them."""
    stencil, u = problem.stencil, parts(state[0])
    order = chain_order(stencil.offsets)
    weights = stored_weights([stencil.weights[k] for k in order], PAIR)
    for _ in range(steps):
        total: Two | None = None
        for k, pair in zip(order, weights, strict=True):
            shift = tuple(-it for it in stencil.offsets[k])
            there = rolled(u, shift)
            weight = np.full_like(u[0], pair.real), np.full_like(u[0], pair.imag)
            total = multiplied(weight, there) if total is None else added(weight, there, total)
        assert total is not None
        u = whole(total)
    return np.asarray(u[0].astype(np.float64) + u[1])[None]


@emulated
@pytest.mark.parametrize(
    ("name", "shape"), [("heat-1d", (90,)), ("skew", (17, 39)), ("box-3d27p", (5, 7, 18))]
)
def test_sweeps_have_the_bits_of_the_chain(name: str, shape: tuple[int, ...]) -> None:
    problem, state = posed(name, Boundary.everywhere(FACES["periodic"], len(shape)), shape)
    np.testing.assert_array_equal(advanced(PLAIN, problem, 3), chained(problem, state, 3))


@emulated
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("heat-1d", (3000,)),
        ("heat-2d", (60, 300)),
        ("box-2d9p", (60, 300)),
        ("skew", (60, 300)),
        ("heat-3d", (30, 60, 140)),
    ],
)
def test_both_methods_agree_with_the_reference_beyond_any_face(
    name: str, shape: tuple[int, ...]
) -> None:
    for _, boundary in list(mixed_boundaries(len(shape)))[:9:2]:
        problem, state = posed(name, boundary, shape)
        for method in METHODS:
            gpu, steps = HostGpu(), method.depth(problem, method.parameters(problem)[0]) + 1
            found = advanced(method, problem, steps, gpu=gpu)
            wanted = reference.advance(state, problem, steps)
            largest = max(reference.largest_magnitude(it, problem) for it in (state, wanted))
            allowed = reference.tolerance(problem, steps, largest) * 2.0**5
            assert np.abs(found - wanted).max() <= allowed
            # of float32 it would be 2^29 times that of float64
            assert allowed < reference.tolerance(problem, 1, largest, np.dtype(np.float32)) / 1e3
            if method is STREAM:
                assert f"stream_{len(shape)}d" in gpu.launches


@emulated
@pytest.mark.parametrize("weights", ["equal", "symmetric"])
def test_sums_that_share_neighbours_agree_with_the_reference(weights: WeightKind) -> None:
    name = "heat-2d" if weights == "equal" else "box-2d9p"
    problem, state = posed(name, boundary_of("walls", 2), (50, 230))
    problem = replace(problem, stencil=random_weights(name, weights))
    steps = STREAM.depth(problem, STREAM.parameters(problem)[0])
    found = advanced(STREAM, problem, steps)
    wanted = reference.advance(state, problem, steps)
    assert np.abs(found - wanted).max() < 40 * UNIT * np.abs(wanted).max()


@emulated
def test_errors_stay_small_for_thousands_of_steps_where_those_of_float32_do_not() -> None:
    side, steps = 32, 2000
    problem, state = plate("smooth", side)
    wanted = smooth_after(steps, side)
    largest = float(np.abs(wanted).max())
    for method in METHODS:
        found = advanced(method, problem, steps)
        assert np.abs(found - wanted).max() < 3e-13 * largest
    single = replace(problem, dtype=np.dtype(np.float32), initial=lambda _: state.astype("f4"))
    for floats in (GpuPlainMethod(), FLOATS):
        rounded = advanced(floats, single, steps).astype(np.float64)
        assert np.abs(rounded - wanted).max() > 1e-7 * largest


@emulated
def test_a_run_that_was_stopped_goes_on_with_the_same_bits() -> None:
    problem, _ = posed("heat-2d", boundary_of("walls", 2), (40, 75))
    stopped = advanced(PLAIN, problem, 5)
    continued = replace(problem, initial=lambda slab: stopped)
    np.testing.assert_array_equal(advanced(PLAIN, continued, 4), advanced(PLAIN, problem, 9))
    steps = STREAM.depth(problem, STREAM.parameters(problem)[0])
    stopped = advanced(STREAM, problem, steps)
    both = advanced(STREAM, problem, steps, steps + 1)
    np.testing.assert_array_equal(
        advanced(STREAM, continued_from(problem, stopped), steps + 1), both
    )


def continued_from(problem: Problem, state: Field) -> Problem:
    return replace(problem, initial=lambda slab: state)


@emulated
def test_two_slabs_with_halos_of_float64_have_the_bits_of_one() -> None:
    problem, _ = posed("heat-2d", boundary_of("walls", 2), (40, 75))
    slabs = [
        Slab((0, 0), (22, 75), ((0, 2), (0, 0))),
        Slab((22, 0), (40, 75), ((2, 0), (0, 0))),
    ]
    steppers: list[Any] = [PLAIN.prepare(problem, slab, {}, HostGpu()) for slab in slabs]
    for stepper in steppers:
        stepper.load(problem.initial)
    for _ in range(3):
        upper, lower = steppers[0].edge(0, "high"), steppers[1].edge(0, "low")
        assert np.asarray(upper).dtype == np.float64
        steppers[0].set_halo(0, "high", np.asarray(lower))  # as from a CPU
        steppers[1].set_halo(0, "low", upper)
        for stepper in steppers:
            stepper.advance(2)
    found = np.concatenate([stepper.interior() for stepper in steppers], axis=1)
    np.testing.assert_array_equal(found, advanced(PLAIN, problem, 6))


@emulated
def test_what_is_not_finite_is_found_where_it_is() -> None:
    problem, state = posed("heat-2d", boundary_of("walls", 2), (12, 20))
    for wrong in (np.nan, np.inf, 1e200):
        values = state.copy()
        values[0, 7, 3] = wrong
        stepper = PLAIN.prepare(problem, Slab.whole(problem.grid), {}, HostGpu())
        stepper.load(lambda slab, values=values: values)
        box = stepper.find_nonfinite()
        assert box is not None
        assert all(low <= at < high for at, (low, high) in zip((7, 3), box, strict=True))


def test_pairs_hold_what_they_say(rng: np.random.Generator) -> None:
    values = rng.uniform(-1, 1, 10_000) * 10.0 ** rng.integers(-9, 9, 10_000)
    pairs = to_pairs(values)
    back = from_pairs(pairs)
    assert np.all(np.abs(back - values) <= 2.0**-49 * np.abs(values) * 1.01)
    assert not np.array_equal(back, values)
    np.testing.assert_array_equal(to_pairs(back), pairs)


def test_weights_of_pairs_have_the_sum_of_the_weights(rng: np.random.Generator) -> None:
    for n in (2, 5, 9, 27):
        weights = rng.uniform(0.01, 1, n)
        weights /= weights.sum()
        found = stored_weights(list(weights), PAIR)
        assert sum(map(exactly, found)) == 1
        for pair, weight in zip(found, weights, strict=True):
            assert abs(exactly(pair) - Fraction(weight)) <= n * Fraction(2) ** -48 * Fraction(
                weights.max()
            )


@pytest.mark.parametrize(
    ("name", "weights", "architecture"),
    [
        pytest.param(*case, it, marks=[pytest.mark.full] * (it == "sm_80" and number > 0))
        for number, case in enumerate(OPERATIONS)
        for it in ARCHITECTURES
    ],
)
def test_kernels_have_so_many_fp32_instructions_and_none_of_fp64(
    name: str, weights: WeightKind, architecture: str
) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    stencil = random_weights(name, weights)
    family = FLOATS.families[stencil.ndim]
    for parameters in family.parameters(stencil, PAIR)[:3]:
        kernel = family.kernel(stencil, PAIR, parameters)
        compiled = compile_source(kernel.source, kernel.defines, architecture)
        assert compiled.spilled == 0 or parameters["blocks"] == 3
        code = disassembled(compiled)
        assert not re.search(r"\b(DADD|DMUL|DFMA)\b", code)
        # A loop of stream_1d.cu makes two steps a turn, stream_3d.cu all levels, stream_2d.cu one.
        points = parameters.get("rows", 1) * parameters["columns"]
        levels = {1: 2, 2: 1, 3: parameters["steps_per_block"]}[stencil.ndim]
        found = len(re.findall(r"\b(?:FADD|FMUL|FFMA)\b", code)) - STORED * points
        # Four equal neighbours are added in pairs once more for the rows of the warp above.
        more = 4 if (name, weights) == ("heat-2d", "equal") else 0
        assert abs(found / (points * levels) - OPERATIONS[name, weights]) <= more


def test_sweeps_in_pairs_compile() -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    problem, _ = posed("box-3d27p", boundary_of("walls", 3), (9, 9, 9))
    defines = term_defines(replace(problem, dtype=PAIR))
    assert compile_source("plain.cu", defines, "sm_90").spilled == 0


def test_nobody_gets_pairs_who_did_not_ask() -> None:
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("walls", 2))
    for method in METHODS:
        assert "float32x2" in str(method.refusal(problem))
        assert method.refusal(replace(problem, pairs=True)) is None
