"""A linear system in slabs, one for each rank: the answers and iterations of one rank alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.kernels.test_solve_sweeps import operator
from tests.support.body_samples import wheel
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tests.support.thread_ranks import run_ranks
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.errors import NumericsError
from tetris_sim.gpu_kernels.solve.arithmetic import GpuArithmetic
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.solvers import distributed, krylov
from tetris_sim.solvers.balance import balance
from tetris_sim.solvers.distributed import PartArithmetic
from tetris_sim.solvers.krylov import LeftOffError, Solved, conjugate_gradients, nobody
from tetris_sim.solvers.multigrid import Rings
from tetris_sim.solvers.solver import Aim, Together

Fields = tuple[npt.NDArray[Any], ...]


def alone(system: Fields, f: npt.NDArray[Any], widths: Any = ()) -> tuple[Any, Solved]:
    team = ThreadTeam(1)
    device, u = CpuArithmetic(team), np.zeros_like(f)
    cycle, scale = device.cycle(system, widths), float(np.linalg.norm(f))
    solved = conjugate_gradients(
        system, f, u, device, cycle, tolerance=1e-9, scale=scale, limit=200
    )
    team.close()
    return u, solved


def together(
    system: Fields, f: npt.NDArray[Any], starts: list[int], widths: Any = (), aim: Aim | None = None
) -> tuple[Any, Solved]:
    scale = float(np.linalg.norm(f))

    def work(ranks: Communicator) -> Any:
        team = ThreadTeam(1)
        part = PartArithmetic(CpuArithmetic(team), ranks, [*starts, len(f)])
        crew = Together(part)
        try:
            if ranks.rank > 0:
                return crew.serve(nobody)
            laid = crew.lay(system)
            cycle = crew.cycle(laid, widths)
            wanted = aim or Aim(1e-9, scale, 200)
            try:
                return crew.solve(laid, f, np.zeros_like(f), cycle, wanted, nobody)
            finally:
                crew.end(well=aim is None)
        finally:
            team.close()

    found: tuple[Any, Solved]
    found, *others = run_ranks(len(starts), work)
    assert others == [aim is None] * len(others)
    return found


@pytest.fixture(autouse=True)
def many_levels_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "TOGETHER", 64)
    monkeypatch.setattr(krylov, "_MANY", 128)


SLABS = [
    ((24, 20, 22), [0, 12]),
    ((25, 13, 14), [0, 9, 15]),
    ((40, 1, 60), [0, 11, 20, 33]),
    ((33, 31, 1), [0, 7, 12, 20, 27]),
]


@pytest.mark.parametrize(("shape", "starts"), SLABS)
@pytest.mark.parametrize("ring", [False, True])
def test_slabs_give_the_answer_of_the_whole_in_as_many_iterations(
    shape: tuple[int, ...], starts: list[int], ring: bool
) -> None:
    system = operator(shape, "float64", ring=ring)
    system[-1][...] *= 1e-3
    f = np.random.default_rng(7).random(shape)
    wanted, one = alone(system, f)
    found, several = together(system, f, starts)
    assert several.iterations == pytest.approx(one.iterations, abs=1)
    np.testing.assert_allclose(found, wanted, atol=1e-6 * abs(wanted).max())


def test_a_cycle_in_slabs_is_that_of_the_whole() -> None:
    shape, starts = (26, 18, 20), [0, 7, 16]
    system = operator(shape, "float64", ring=True)
    f = np.random.default_rng(8).random(shape).astype(np.float32)
    team = ThreadTeam(1)
    cycle = CpuArithmetic(team).cycle(system)
    cycle.f[...] = f
    wanted = np.array(cycle.run())
    team.close()

    def work(ranks: Communicator) -> Any:
        team = ThreadTeam(1)
        part = PartArithmetic(CpuArithmetic(team), ranks, [*starts, shape[0]])
        planes = part.around(part.starts)
        shared = part.cycle(tuple(np.ascontiguousarray(it[planes]) for it in system))
        shared.f[...] = f[planes]
        found = part.gathered(shared.run())
        team.close()
        return found

    for found in run_ranks(3, work):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("ring", [False, True])
def test_a_slab_on_a_gpu_has_its_ghosts(ring: bool) -> None:
    # A ring of one, since emulated kernels do not run side by side.
    shape = (25, 13, 14)
    system = operator(shape, "float64", ring=ring)
    system[-1][...] *= 1e-3
    f = np.random.default_rng(7).random(shape)
    wanted, one = alone(system, f)

    def work(ranks: Communicator) -> tuple[Any, Solved]:
        gpu: Any = HostGpu()
        crew = Together(PartArithmetic(GpuArithmetic(gpu), ranks, [0, len(f)]))
        with crew.use():
            laid = crew.lay(system)
            cycle, aim = crew.cycle(laid, ()), Aim(1e-9, float(np.linalg.norm(f)), 200)
            return crew.solve(laid, f, np.zeros_like(f), cycle, aim, nobody)

    ((found, solved),) = run_ranks(1, work)
    assert solved.iterations == pytest.approx(one.iterations, abs=2)
    np.testing.assert_allclose(found, wanted, atol=1e-6 * abs(wanted).max())


def test_slabs_of_graded_axes() -> None:
    shape = (30, 16, 18)
    widths = tuple(1.3 ** np.minimum(np.arange(n), n - 1 - np.arange(n)) for n in shape)
    h = np.meshgrid(*widths, indexing="ij")
    system = []
    for axis in range(3):
        area = np.prod([it for a, it in enumerate(h) if a != axis], axis=0)
        k = 2 * area / (h[axis] + np.roll(h[axis], -1, axis))
        k[(slice(None),) * axis + (-1,)] = 0
        system.append(np.ascontiguousarray(k))
    d = np.zeros(shape)
    d[0] = 2 * (h[1] * h[2] / h[0])[0]
    f = np.random.default_rng(5).random(shape)
    wanted, one = alone((*system, d), f, widths)
    found, several = together((*system, d), f, [0, 6, 13, 24], widths)
    assert several.iterations == pytest.approx(one.iterations, abs=2)
    np.testing.assert_allclose(found, wanted, atol=1e-6 * abs(wanted).max())


@pytest.mark.parametrize(("shape", "starts"), [((40, 64), [0, 25, 45]), ((24, 32, 18), [0, 10])])
def test_slabs_of_rings(shape: tuple[int, ...], starts: list[int]) -> None:
    problem = wheel(*shape)
    system = balance(problem, 0.0, np.zeros(problem.grid.shape))
    made = tuple(np.asarray(it, np.float64) for it in system.operator())
    assert system.wide == Rings(len(shape) - 2)
    f = np.random.default_rng(9).random(made[-1].shape)
    wanted, one = alone(made, f, system.wide)
    found, several = together(made, f, starts, system.wide)
    assert several.iterations == pytest.approx(one.iterations, abs=1)
    assert one.iterations <= 40
    np.testing.assert_allclose(found, wanted, atol=1e-6 * abs(wanted).max())


def test_what_does_not_converge_or_is_left_off_ends_on_all_ranks() -> None:
    shape = (24, 20, 22)
    system, f = operator(shape, "float64", ring=False), np.ones(shape)
    with pytest.raises(NumericsError, match="after 2 iterations"):
        together(system, f, [0, 12], aim=Aim(1e-9, 1.0, 2))

    def work(ranks: Communicator) -> bool:
        team = ThreadTeam(1)
        crew = Together(PartArithmetic(CpuArithmetic(team), ranks, [0, 12, 24]))
        try:
            if ranks.rank > 0:
                return crew.serve(lambda: True)  # this rank is asked to end
            laid = crew.lay(system)
            cycle = crew.cycle(laid, ())
            with pytest.raises(LeftOffError):
                crew.solve(laid, f, np.zeros_like(f), cycle, Aim(1e-9, 1.0, 50), nobody)
            crew.end(well=False)
            return False
        finally:
            team.close()

    assert run_ranks(2, work) == [False, False]
