"""Equations by gpu.stream without a GPU: the bits of gpu.plain, faces and halos included."""

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
from tetris_sim.gpu_kernels.boundary.ghosts import frame_defines
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.stream.equations_2d import levels_of, n_slots
from tetris_sim.gpu_kernels.stream.equations_3d import levels_3d
from tetris_sim.gpu_kernels.stream.method import METHOD
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.equations import Equations, Stage, tap
from tetris_sim.model.formula import Node
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Ranges, Slab

REGISTERS = 65536  # of a multiprocessor
LARGER = {1: (30_011,), 2: (203, 531), 3: (61, 83, 149)}
FEW_BYTES = 80  # spilled in a proposal that is the fastest nevertheless

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)


def tile(*numbers: int) -> Parameters:
    names = ("steps_per_block", "rows", "columns", "warps", "blocks", "edges")
    return dict(zip(names, numbers, strict=True))


def tile3(*numbers: int) -> Parameters:
    names = ("steps_per_block", "rows", "across", "warps", "ahead", "blocks", "held")
    return dict(zip(names, numbers, strict=True))


def span(*numbers: int) -> Parameters:
    return dict(zip(("steps_per_block", "columns", "blocks"), numbers, strict=True))


CASES: dict[str, tuple[Callable[[], Problem], Parameters]] = {
    "gray-scott": (
        lambda: cases.make(cases.gray_scott(2, cases.walls(2), cases.walls(2, 0.1)), (27, 60)),
        tile(2, 3, 2, 2, 1, 2),
    ),
    "cahn-hilliard": (
        lambda: cases.make(cases.cahn_hilliard(2, cases.walls(2)), (33, 75)),
        tile(2, 3, 2, 2, 1, 2),
    ),
    "wave": (
        lambda: cases.make(cases.wave(2, cases.ring(2)), (31, 65), np.float32),
        tile(3, 3, 4, 2, 1, 1),
    ),
    "corners": (
        lambda: cases.make(cases.corners(cases.walls(2)), (21, 60)),
        tile(2, 2, 4, 2, 1, 2),
    ),
    "made of no field": (lambda: cases.make(farther(), (23, 60)), tile(2, 2, 4, 2, 1, 2)),
    "winds": (lambda: cases.make(winds(cases.walls(2)), (37, 75)), tile(2, 3, 4, 2, 1, 2)),
    "winds round a ring": (
        lambda: cases.make(winds(cases.ring(2)), (29, 71), np.float32),
        tile(3, 4, 5, 2, 1, 1),
    ),
    "gray-scott 1d": (
        lambda: cases.make(cases.gray_scott(1, cases.walls(1), cases.walls(1, 0.1)), (443,)),
        span(5, 4, 2),
    ),
    "cahn-hilliard 1d": (
        lambda: cases.make(cases.cahn_hilliard(1, cases.walls(1)), (301,)),
        span(3, 4, 2),
    ),
    "wave 1d": (
        lambda: cases.make(cases.wave(1, cases.ring(1)), (513,), np.float32),
        span(4, 6, 2),
    ),
    "kuramoto 1d": (lambda: cases.make(cases.kuramoto(cases.walls(1)), (443,)), span(4, 4, 2)),
    "gray-scott 3d": (
        lambda: cases.make(cases.gray_scott(3, cases.walls(3), cases.walls(3, 0.1)), (11, 13, 45)),
        tile3(2, 3, 1, 4, 1, 1, 0),
    ),
    "cahn-hilliard 3d": (
        lambda: cases.make(cases.cahn_hilliard(3, cases.walls(3)), (7, 14, 37)),
        tile3(1, 3, 1, 4, 2, 1, 1),
    ),
    "wave 3d": (
        lambda: cases.make(cases.wave(3, cases.ring(3)), (9, 15, 37), np.float32),
        tile3(2, 2, 2, 8, 1, 1, 0),
    ),
    "wave 3d of order 4": (
        lambda: cases.make(cases.plain_wave(3, cases.ring(3), 4), (13, 19, 37)),
        tile3(2, 3, 2, 5, 2, 1, 2),
    ),
    "corners 3d": (
        lambda: cases.make(cases.corners_3d(cases.walls(3)), (8, 13, 40)),
        tile3(2, 4, 1, 4, 1, 1, 1),
    ),
    "above 3d": (lambda: cases.make(above(), (9, 15, 37)), tile3(2, 3, 1, 4, 1, 1, 0)),
}


def advanced(
    problem: Problem, parameters: Parameters, blocks: tuple[int, ...], first: int, gpu: Any
) -> Field:
    stepper = METHOD.prepare(problem, Slab.whole(problem.grid), parameters, gpu)
    stepper.load(problem.initial, first)
    for steps in blocks:
        stepper.advance(steps)
    found: Field = stepper.interior()
    stepper.close()
    return found


def farther() -> Equations:
    """A name that is made of no field is read beside its point."""
    slope = cases.formula("x + y")
    step = cases.formula("c + dt*l", c=cases.centre("u", 2), l=cases.laplace("s", 2))
    return Equations(
        ("u",),
        (Stage({"s": slope}), Stage({"u'": step})),
        {"u": "u'"},
        {"u": cases.ring(2), "s": cases.ring(2)},
        cases.numbers(dt=0.1),
    )


def winds(faces: Boundary) -> Equations:
    """Velocities that differ from place to place, read at their points by both stages, and a source
    that is read beside its point.
    """

    def step(of: str, part: float) -> Node:
        return cases.formula(
            f"c + {part}*dt*(l - a*(e - w) - b*(n - s) + q)",
            c=cases.centre("u", 2),
            l=cases.laplace(of, 2),
            a=cases.centre("a", 2),
            b=cases.centre("b", 2),
            e=tap(of, (0, 1)),
            w=tap(of, (0, -1)),
            n=tap(of, (1, 0)),
            s=tap(of, (-1, 0)),
            q=tap("q", (0, 1)),
        )

    def wave(y: float, x: float) -> Callable[[Ranges], Numbers]:
        return lambda box: np.sin(y * np.arange(*box[0])[:, None] + x * np.arange(*box[1]) + y)

    return Equations(
        ("u",),
        (Stage({"h": step("u", 0.5)}), Stage({"u'": step("h", 1.0)})),
        {"u": "u'"},
        {"u": faces, "h": faces},
        cases.numbers(dt=0.1),
        coefficients={"q": wave(0.1, 0.3), "a": wave(0.7, 0.2), "b": wave(0.4, 1.1)},
    )


def above() -> Equations:
    """Only of a plane above its own a point reads what lies beside it."""
    parts = {"c": cases.centre("u", 3), "e": tap("u", (2, 0, 1)), "s": tap("u", (1, 0, 0))}
    step = cases.formula("c + dt*(e + s)", **parts)
    return Equations(
        ("u",), (Stage({"u'": step}),), {"u": "u'"}, {"u": cases.ring(3)}, cases.numbers(dt=0.1)
    )


def many_fields(ndim: int) -> Equations:
    """So many that not even few points of each fit."""
    names = [f"u{k}" for k in range({1: 100, 2: 40, 3: 160}[ndim])]
    steps = {f"{name}'": cases.laplace(name, ndim) for name in names}
    results = {name: f"{name}'" for name in names}
    return Equations(tuple(names), (Stage(steps),), results, dict.fromkeys(names, cases.ring(ndim)))


def waves(slab: Slab) -> Field:
    axes = np.ix_(*(np.arange(*span) for span in slab.spans))
    state = sum((k + 1) * axis for k, axis in enumerate(axes)) % 17 / 34.0
    return np.stack([0.5 + state, 0.5 * state])


@emulated
@pytest.mark.parametrize("name", CASES)
def test_blocks_of_steps_have_the_bits_of_the_instructions(name: str) -> None:
    make, parameters = CASES[name]
    problem, gpu = make(), HostGpu()
    assert METHOD.refusal(problem) is None
    depth = parameters["steps_per_block"]
    found = advanced(problem, parameters, (2 * depth, depth + 1), 3, gpu)
    state = problem.initial(Slab.whole(problem.grid))
    assert gpu.launches.count(f"equations_{problem.grid.ndim}d") == 2 + (depth + 1) // depth
    np.testing.assert_array_equal(found, cases.advance(state, problem, 3 * depth + 1, 3))


@emulated
@pytest.mark.parametrize(
    ("name", "cut"),
    [("cahn-hilliard", 17), ("winds", 19), ("kuramoto 1d", 200), ("gray-scott 3d", 5)],
)
def test_two_slabs_with_halos_have_the_bits_of_the_whole(name: str, cut: int) -> None:
    make, parameters = CASES[name]
    problem, steps = make(), 2 * parameters["steps_per_block"]
    width = steps * problem.stencil.radii[0]
    rows, *others = problem.grid.shape
    parts = []
    for low, high in ((0, cut), (cut, rows)):
        halo = (width if low else 0, 0 if low else width)
        sides = tuple((0, 0) for _ in others)
        slab = Slab((low, *(0 for _ in others)), (high, *others), (halo, *sides))
        stepper = METHOD.prepare(problem, slab, parameters, HostGpu())
        stepper.load(problem.initial, 2)
        parts.append(stepper)
    for one, other, side in ((parts[0], parts[1], "high"), (parts[1], parts[0], "low")):
        one.set_halo(0, side, np.asarray(other.edge(0, "low" if side == "high" else "high")))
    for stepper in parts:
        stepper.advance(steps)

    found = np.concatenate([stepper.interior() for stepper in parts], 1)
    state = problem.initial(Slab.whole(problem.grid))
    np.testing.assert_array_equal(found, cases.advance(state, problem, steps, 2))


@emulated
def test_pieces_have_the_bits_of_the_whole() -> None:
    make, parameters = CASES["gray-scott"]
    problem, gpu = make(), HostGpu()
    found = streamed(METHOD, problem, parameters, gpu, HostCopies(gpu), (4, 13, 8))
    state = problem.initial(Slab.whole(problem.grid))
    assert "equations_2d" in gpu.launches
    np.testing.assert_array_equal(found, cases.advance(state, problem, 9))


def test_coefficients_are_held_that_are_read_at_their_points() -> None:
    make, parameters = CASES["winds"]
    defines = METHOD.kernel(make(), parameters).defines
    assert defines["TS_HELD"] == 2
    assert defines["TS_HELD_NUMBERS"] == "1,2"


def test_slots_are_kept_while_a_name_is_alive() -> None:
    first, second = levels_of(cases.cahn_hilliard(2, cases.ring(2)))
    assert first.before == {"u": 0, "v": 1}
    assert first.after == second.before == {"u": 0, "v": 1, "mu": 2}
    assert second.after == {"u'": 0, "v'": 1}
    assert (first.reach, second.reach, n_slots((first, second))) == (1, 1, 3)


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (cases.make(cases.kuramoto(cases.ring(1)), (90,), np.float16), "float16"),
        (cases.make(cases.brusselator(3, cases.ring(3)), (9, 9, 9), np.float16), "float16"),
        (cases.make(many_fields(1), (20,)), "do not fit into registers"),
        (cases.make(many_fields(3), (9, 9, 9)), "do not fit into shared memory"),
        (cases.make(cases.corners(cases.ring(2)), (9, 9), np.float16), "float16"),
        (cases.make(many_fields(2), (20, 20)), "do not fit into registers"),
    ],
)
def test_what_is_refused_is_refused_with_a_reason(problem: Problem, why: str) -> None:
    assert why in str(METHOD.refusal(problem))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("corners", tile(2, 1, 4, 2, 1, 2)),
        ("kuramoto 1d", span(16, 2, 2)),
        ("gray-scott 3d", tile3(4, 2, 1, 4, 1, 1, 0)),
    ],
)
def test_too_small_a_tile_is_refused(name: str, parameters: Parameters) -> None:
    with pytest.raises(ValueError, match=r"take more .*columns"):
        METHOD.kernel(CASES[name][0](), parameters)


def test_levels_of_planes_join_stages_that_read_at_their_points() -> None:
    (level,) = levels_3d(cases.plain_wave(3, cases.ring(3), 4))
    assert list(level.stages) == [0, 1]
    assert level.reach == 2
    assert level.slots == {"u": 4}
    first, second = levels_3d(cases.cahn_hilliard(3, cases.ring(3)))
    assert (first.slots, second.slots) == ({"u": 3}, {"mu": 3})
    assert second.following == {"u'": "u", "v'": "v"}


@pytest.mark.parametrize("name", ["gray-scott", "winds", "gray-scott 1d", "gray-scott 3d"])
def test_a_proposal_and_its_frame_compile(name: str) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    problem = CASES[name][0]()
    points = ("rows", "columns")
    small = min(
        METHOD.parameters(problem), key=lambda it: np.prod([it.get(key, 1) for key in points])
    )
    kernel = METHOD.kernel(problem, small)
    compiled = compile_source(kernel.source, kernel.defines, "sm_90")
    assert compiled.registers[kernel.entry] * kernel.threads <= REGISTERS
    assert compiled.spilled <= FEW_BYTES
    frame = compile_source("frame_equations.cu", frame_defines(problem, 2), "sm_80")
    assert frame.spilled <= 2 * FEW_BYTES


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_all_proposals_compile(name: str, dtype: str) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    problem = replace(CASES[name][0](), dtype=np.dtype(dtype))
    spilled = []
    for parameters in METHOD.parameters(problem):
        kernel = METHOD.kernel(problem, parameters)
        compiled = compile_source(kernel.source, kernel.defines, "sm_90")
        assert compiled.registers[kernel.entry] * kernel.threads <= REGISTERS
        spilled.append(compiled.spilled)
    assert min(spilled) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_every_proposal_has_the_bits_of_single_steps_on_a_gpu(name: str, gpu: Any) -> None:
    small = CASES[name][0]()
    assert small.equations is not None
    problem = replace(
        small,
        grid=small.grid.on_shape(LARGER[small.grid.ndim]),
        initial=lambda slab: waves(slab)[: small.n_fields],
        equations=small.equations.repeated(small.grid.shape),
    )
    for parameters in METHOD.parameters(problem):
        steps = 2 * parameters["steps_per_block"] + 1
        found = advanced(problem, parameters, (steps,), 3, gpu)
        stepper = GpuPlainMethod().prepare(problem, Slab.whole(problem.grid), {}, gpu)
        stepper.load(problem.initial, 3)
        stepper.advance(steps)
        np.testing.assert_array_equal(found, stepper.interior())
        stepper.close()
