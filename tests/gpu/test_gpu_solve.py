"""The solver's passes on a GPU: emulated here, and on a GPU where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.body_samples import build, heat_model
from tests.support.cases import make_problem
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tests.support.jump_cases import star, with_weights
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.gpu_kernels.solve.arithmetic import GpuArithmetic
from tetris_sim.model.boundary import Boundary, Dirichlet, Neumann, Periodic, Robin
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.solvers import krylov
from tetris_sim.solvers.krylov import conjugate_gradients
from tetris_sim.solvers.multigrid import (
    Places,
    Rings,
    Widths,
    coarsen,
    every_other,
    make_hierarchy,
)

SHAPES = [(1, 1, 9), (5, 1, 8), (6, 7, 9), (11, 10, 70)]
Array = npt.NDArray[Any]


@pytest.fixture(params=["emulated", pytest.param("real", marks=pytest.mark.gpu)])
def either(request: pytest.FixtureRequest) -> Any:
    """An emulated GPU, or a real one."""
    if request.param == "emulated" and COMPILER is None:
        pytest.skip(NO_COMPILER)
    return HostGpu() if request.param == "emulated" else request.getfixturevalue("gpu")


@pytest.fixture
def device(either: Any) -> Iterator[Any]:
    """The arithmetic of a GPU, in use."""
    arithmetic = GpuArithmetic(either)
    with arithmetic.use():
        yield arithmetic


@pytest.fixture(scope="module")
def cpu() -> Iterator[CpuArithmetic]:
    team = ThreadTeam(1)
    yield CpuArithmetic(team)
    team.close()


def operator(shape: tuple[int, ...], dtype: str, *, ring: bool) -> tuple[Array, ...]:
    """Conductances over three decades, a d that is 0 at most points, and one that touches none."""
    rng = np.random.default_rng(1)
    parts = [10 ** (3 * rng.random(shape) - 3) for _ in range(3)]
    d = np.where(rng.random(shape) < 0.2, rng.random(shape), 0.0)
    for axis, k in enumerate(parts):
        if not ring or shape[axis] == 1:
            k[(slice(None),) * axis + (-1,)] = 0
        place = [0, 0, 0]
        k[tuple(place)] = 0
        place[axis] = -1
        k[tuple(place)] = 0
    d[0, 0, 0] = 0
    return tuple(it.astype(dtype) for it in (*parts, d))


def on_device(device: Any, arrays: tuple[Array, ...]) -> tuple[Any, ...]:
    return tuple(device.xp.asarray(it) for it in arrays)


def on_host(device: Any, array: Any) -> Array:
    return np.asarray(device.xp.asnumpy(array))


def random_fields(shape: tuple[int, ...], *dtypes: str) -> list[Array]:
    rng = np.random.default_rng(2)
    return [rng.random(shape).astype(dtype) for dtype in dtypes]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ring", [False, True])
def test_passes_of_conjugate_gradients_are_those_of_a_cpu(
    shape: tuple[int, ...], ring: bool, device: Any, cpu: CpuArithmetic
) -> None:
    parts = operator(shape, "float64", ring=ring)
    f, u, p, q = random_fields(shape, *["float64"] * 4)
    (z,) = random_fields(shape, "float32")
    there = on_device(device, parts)

    found, expected = device.xp.zeros_like(on_device(device, (f,))[0]), np.empty_like(f)
    energy = device.apply(there, on_device(device, (u,))[0], found)
    assert energy == pytest.approx(cpu.apply(parts, u, expected), rel=1e-13)
    np.testing.assert_allclose(on_host(device, found), expected, atol=1e-14)
    device.residual(there, *on_device(device, (f, u)), found)
    cpu.residual(parts, f, u, expected)
    np.testing.assert_allclose(on_host(device, found), expected, atol=1e-14)

    mine = on_device(device, tuple(it.copy() for it in (z, p, q, u)))
    assert device.project(mine[0], mine[2], mine[0]) == pytest.approx(cpu.project(z, q, z))
    device.turn(mine[0], 0.3, 0.7, mine[1], mine[3])
    cpu.turn(z, 0.3, 0.7, p, u)
    small = z.copy()
    left = device.descend(0.4, mine[1], mine[2], mine[0])
    assert left == pytest.approx(cpu.descend(0.4, p, q, small), rel=1e-13)
    for here, changed in zip((small, p, q, u), mine, strict=True):
        np.testing.assert_allclose(on_host(device, changed), here, rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ring", [False, True])
def test_operators_are_coarsened_as_in_numpy(
    shape: tuple[int, ...], ring: bool, device: Any
) -> None:
    parts = operator(shape, "float32", ring=ring)
    ways = [(k, every_other(n)) for k, n in enumerate(shape) if n > 1]
    ways += [(k, few_gone(n)) for k, n in enumerate(shape) if n > 1]
    for axis, places in ways:
        there = device.coarsen(on_device(device, parts), axis, device.xp, places)
        here = coarsen(parts, axis, np, places)
        for pair in zip((*there[0], *there[1]), (*here[0], *here[1]), strict=True):
            np.testing.assert_allclose(on_host(device, pair[0]), pair[1], rtol=2e-6, atol=1e-9)


def few_gone(n: int) -> Places:
    """Planes of which only some of the last go, as along a graded axis."""
    return np.setdiff1d(np.arange(n), [n // 2, n - 1] if n // 2 < n - 2 else [n - 1])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("graded", [False, True])
def test_a_level_does_what_it_does_on_a_cpu(
    shape: tuple[int, ...], ring: bool, graded: bool, device: Any, cpu: CpuArithmetic
) -> None:
    # Numbers that halves of floats hold: 1, 2, 4 ..., and sums of six are rounded to 0.4 %.
    parts = tuple(
        np.where(it > 0, 2 ** np.round(np.log2(np.maximum(it, 1e-9))), 0).astype(np.float32)
        for it in operator(shape, "float32", ring=ring)
    )
    widths = tuple(1.4 ** np.arange(n) for n in shape) if graded else ()
    fine, coarser = make_hierarchy(parts, np, widths=widths)[:2]
    f, e = random_fields(shape, "float32")[0], random_fields(coarser.shape, "float32")[0]
    found = []
    for arithmetic in (cpu, device):
        xp = arithmetic.xp
        level, below = (arithmetic.level(on_levels(it, xp)) for it in (fine, coarser))
        level.f[:], below.u[:] = xp.asarray(f), xp.asarray(e)
        level.begin((0.5, 1.25))
        level.restrict(below)
        level.correct(below)
        level.smooth((0.5, 1.25))
        found.append([below.f.copy(), level.u.copy()])
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(on_host(device, there), here, rtol=0.01, atol=0.01 * here.max())


def on_levels(level: Any, xp: Any) -> Any:
    moves = tuple((axis, tuple(xp.asarray(it) for it in pair)) for axis, pair in level.moves)
    return type(level)(tuple(xp.asarray(it) for it in level.operator), moves, level.kept)


def test_a_cycle_is_symmetric(device: Any) -> None:
    shape = (7, 6, 9)
    cycle = device.cycle(on_device(device, operator(shape, "float64", ring=False)))
    f, g = random_fields(shape, "float32", "float32")
    answers = []
    for given in (f, g):
        cycle.f[:] = device.xp.asarray(given)
        answers.append(on_host(device, cycle.run()).astype(np.float64))
    one, other = (answers[0] * g).sum(), (answers[1] * f).sum()
    assert one == pytest.approx(other, rel=1e-5)


@pytest.mark.parametrize(
    ("shape", "widths"),
    [((8, 9, 10), ()), ((13, 1, 12), ()), ((13, 1, 12), Rings(0)), ((6, 14, 10), Rings(1))],
)
def test_a_solution_is_that_of_a_cpu_in_as_many_iterations(
    shape: tuple[int, ...],
    widths: Widths,
    device: Any,
    cpu: CpuArithmetic,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(krylov, "_MANY", 10)
    parts = operator(shape, "float64", ring=False)
    if isinstance(widths, Rings):
        parts[2][..., :4] *= 0.05  # rings that are coupled around
    (f,) = random_fields(shape, "float64")
    f[0, 0, 0] = 0
    answers, iterations = [], []
    for arithmetic in (cpu, device):
        there = on_device(arithmetic, parts)
        right, u = on_device(arithmetic, (f, np.zeros(shape)))
        cycle = arithmetic.cycle(there, widths)
        solved = conjugate_gradients(
            there,
            right,
            u,
            arithmetic,
            cycle,
            tolerance=1e-11,
            scale=float(np.linalg.norm(f)),
            limit=60,
        )
        iterations.append(solved.iterations)
        answers.append(u)
    assert abs(iterations[1] - iterations[0]) <= 1
    found, expected = on_host(device, answers[1]), answers[0]
    found[0, 0, 0] = expected[0, 0, 0]  # touches nothing, so it may be anything
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def solutions(scheme: Any, shape: tuple[int, ...], gpu: Any) -> list[Array]:
    """What a CPU and a GPU solve for."""
    faces = ((Dirichlet(2.0), Robin(3.0, 5.0)), (Periodic(), Periodic()), (Neumann(), Neumann(0.3)))
    plain, _ = make_problem(star(3, 0.9), Boundary(faces), shape=shape)
    problem = with_weights(plain, star(3, 0.9))
    team, found = ThreadTeam(1), []
    for place, opened in ((ComputeResource(1, "cpu"), team), (ComputeResource(1, "gpu"), gpu)):
        method = place.solving(scheme).to(1e-11)
        stepper = method.prepare(problem, Slab.whole(problem.grid), {}, opened)
        stepper.load(problem.initial)
        stepper.advance(2)
        assert "iterations" in stepper.notes[0]
        found.append(stepper.interior())
        stepper.close()
    team.close()
    return found


@pytest.mark.parametrize("scheme", ["steady", "implicit"])
def test_states_of_methods_are_those_of_a_cpu(scheme: Any, either: Any) -> None:
    expected, found = solutions(scheme, (5, 6, 7), either)
    np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())


def test_a_body_of_materials_is_the_same_on_both(either: Any) -> None:
    problem = build(
        grid={"shape": [9, 8, 6], "size": [0.1] * 3},
        model=heat_model(
            {"material": "glass"},
            {"material": "copper", "box": {"x": [0.03, 0.06]}},
            sources=[{"power": 30.0, "material": "copper"}, {"density": "1e4*x"}],
        ),
        boundaries={
            "x-": {"type": "radiation", "emissivity": 0.9, "ambient": 400},
            "y": {"type": "periodic"},
            "*": {"type": "robin", "h": 8, "ambient": "20 + 100*x"},
        },
    )
    team, found = ThreadTeam(2), []
    for place, opened in ((ComputeResource(2, "cpu"), team), (ComputeResource(1, "gpu"), either)):
        stepper = (
            place.solving("steady").to(1e-11).prepare(problem, Slab.whole(problem.grid), {}, opened)
        )
        stepper.load(problem.initial)
        stepper.advance(1)
        found.append(stepper.interior())
        stepper.close()
    team.close()
    assert np.ptp(found[0]) > 1
    np.testing.assert_allclose(found[1], found[0], rtol=1e-8)
