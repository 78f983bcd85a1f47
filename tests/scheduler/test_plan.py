"""The planner's decisions, on machines that exist only as numbers."""

from __future__ import annotations

import dataclasses

import pytest
from cases import make_problem

from tetris_sim.boundary import Boundary, Neumann, Periodic
from tetris_sim.catalogue import named_stencil
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.problem import Problem
from tetris_sim.scheduler import plan as planning
from tetris_sim.scheduler.machine import Machine, count_ranks, find_machine
from tetris_sim.scheduler.measure import Speed, check_method, measure_speed, piece_of
from tetris_sim.scheduler.plan import make_plan
from tetris_sim.schema import ComputeSection

MACHINE = Machine("host", "cpu", 4, "cores in the affinity mask", 8 << 30, "free memory of the machine")


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "measure_speed", lambda *_, **__: Speed(1e9, 1e-4))


def problem_of(shape: tuple[int, ...], name: str = "heat-2d") -> Problem:
    stencil = named_stencil(name).stencil
    return make_problem(stencil, Boundary.everywhere(Neumann(), stencil.ndim), shape=shape)[0]


def large(shape: tuple[int, ...]) -> Problem:
    problem = problem_of((8, 8))
    return dataclasses.replace(problem, grid=dataclasses.replace(problem.grid, shape=shape))


@pytest.mark.usefixtures("speed")
def test_a_grid_that_does_not_fit_into_memory_is_refused_with_both_numbers() -> None:
    said = r"40000 x 20000 points in float64 needs 11\.9 GiB.*but 8 GiB can be had"
    with pytest.raises(UnsupportedError, match=said):
        make_plan(large((20000, 40000)), MACHINE)


@pytest.mark.usefixtures("speed")
def test_checkpoints_are_copied_only_if_there_is_room() -> None:
    problem = large((10000, 30000))  # 2.2 GiB a state, 4.5 GiB for two
    assert make_plan(problem, MACHINE).copy_for_checkpoints
    tight = dataclasses.replace(MACHINE, memory=6 << 30)
    assert not make_plan(problem, tight).copy_for_checkpoints


@pytest.mark.usefixtures("speed")
def test_one_worker_gets_blocks_that_keep_the_run_responsive() -> None:
    plan = make_plan(large((1000, 1000)), MACHINE)
    assert plan.time_block == 200  # 1e6 points at 1e9 points/s, 0.2 s
    assert plan.redundant == 0
    assert plan.seconds_per_step == pytest.approx(1e-3, rel=0.01)


@pytest.mark.usefixtures("speed")
def test_the_time_block_balances_latency_against_redundant_planes() -> None:
    compute = ComputeSection(devices=("cpu", "cpu"))
    # A plane of 1000 points takes 1 us, an exchange 100 us: sqrt(100) = 10 steps.
    assert make_plan(large((1000, 1000)), MACHINE, compute).time_block == 10
    # With planes 100 times as large, exchanging every step is best.
    assert make_plan(large((1000, 100_000)), MACHINE, compute).time_block == 1


@pytest.mark.usefixtures("speed")
def test_a_block_never_needs_more_halo_than_the_neighbour_owns() -> None:
    compute = ComputeSection(devices=("cpu",) * 3, time_block=50)
    plan = make_plan(problem_of((30, 20)), MACHINE, compute)
    assert plan.time_block == 10
    assert all(share.slab.shape[0] >= 10 for share in plan.shares)


@pytest.mark.usefixtures("speed")
def test_more_workers_than_planes_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 workers cannot share 5 planes along y: each needs at least 2"):
        make_plan(problem_of((5, 20), "star-2d9p"), MACHINE, ComputeSection(devices=("cpu",) * 3))


@pytest.mark.usefixtures("speed")
def test_threads_are_divided_between_the_workers_and_each_has_one() -> None:
    plan = make_plan(problem_of((30, 20)), MACHINE, ComputeSection(devices=("cpu",) * 3))
    assert sum(share.threads for share in plan.shares) == 4
    plan = make_plan(problem_of((30, 20)), MACHINE, ComputeSection(devices=("cpu",) * 3, threads=1))
    assert [share.threads for share in plan.shares] == [1, 1, 1]


def test_a_small_grid_gets_as_many_threads_as_are_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measure(*_: object, threads: int, **__: object) -> Speed:
        asked.append(threads)
        return Speed({4: 1e9, 2: 3e9, 1: 2e9}[threads], 1e-6)

    monkeypatch.setattr(planning, "measure_speed", measure)
    plan = make_plan(problem_of((30, 20)), MACHINE)
    assert asked == [4, 2, 1]
    assert plan.shares[0].threads == 2
    assert plan.shares[0].points_per_second == 3e9
    asked.clear()
    assert make_plan(large((1000, 1000)), MACHINE).shares[0].threads == 4
    assert make_plan(problem_of((30, 20)), MACHINE, ComputeSection(threads=4)).shares[0].threads == 4
    assert asked == [4, 4]


@pytest.mark.usefixtures("speed")
def test_an_unknown_method_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ConfigError, match=r"'cpu\.fast', which is not one of the methods: auto, .*cpu\.plain"):
        make_plan(problem_of((5, 20)), MACHINE, ComputeSection(method="cpu.fast"))


def test_a_method_that_computes_something_else_is_found_out() -> None:
    problem = problem_of((30, 20))
    method = METHODS[-1]
    assert check_method(problem, method, {}, threads=2) is None

    class Wrong:
        name, device = "cpu.wrong", "cpu"
        refusal, parameters, memory = method.refusal, method.parameters, method.memory

        @staticmethod
        def prepare(trial: Problem, *rest: object) -> object:
            weights = tuple(w * (1 + 1e-9) for w in trial.stencil.weights)
            return method.prepare(
                dataclasses.replace(trial, stencil=dataclasses.replace(trial.stencil, weights=weights)),
                *rest,  # type: ignore[arg-type]
            )

    sentence = check_method(problem, Wrong(), {}, threads=2)  # type: ignore[arg-type]
    assert sentence is not None
    assert "differs from the reference" in sentence


def test_speed_is_measured_on_the_real_stencil() -> None:
    speed = measure_speed(problem_of((200, 300)), METHODS[-1], {}, threads=1, seconds=0.02)
    assert 1e6 < speed.points_per_second < 1e12
    assert 0 <= speed.latency < 0.1


def test_a_piece_keeps_the_row_length_and_fits_the_budget() -> None:
    problem = large((20000, 40000))
    piece = piece_of(problem, 64 << 20)
    assert piece.grid.shape[1] == 40000
    assert piece.state_bytes <= 64 << 20
    small = piece_of(problem, 1 << 20, every_axis=True)
    assert small.state_bytes <= 1 << 20
    assert min(small.grid.shape) > 100


def test_a_piece_is_random_not_zero() -> None:
    from tetris_sim.slab import Slab

    piece = piece_of(problem_of((20, 30)), 1 << 20)
    assert piece.initial(Slab.whole(piece.grid)).std() > 0.1


def test_the_machine_is_found() -> None:
    machine = find_machine({})
    assert machine.threads >= 1
    assert machine.memory > 1 << 20
    assert find_machine({"SLURM_CPUS_PER_TASK": "1"}).threads == 1


@pytest.mark.usefixtures("speed")
def test_far_more_threads_than_cores_are_refused() -> None:
    assert make_plan(problem_of((30, 20)), MACHINE, ComputeSection(threads=32)).shares[0].threads == 32
    with pytest.raises(ConfigError, match=r"threads is 1000, but there are 4 cores .* at most 8 per core"):
        make_plan(problem_of((30, 20)), MACHINE, ComputeSection(threads=1000))


def test_the_ranks_of_a_launcher_are_counted() -> None:
    assert count_ranks({}) == 1
    assert count_ranks({"OMPI_COMM_WORLD_SIZE": "3"}) == 3
    assert count_ranks({"PMI_SIZE": "2", "PMI_RANK": "0"}) == 2


def test_a_periodic_axis_can_be_shared() -> None:
    problem, _ = make_problem(named_stencil("heat-2d").stencil, Boundary.everywhere(Periodic(), 2), shape=(40, 9))
    plan = make_plan(problem, MACHINE, ComputeSection(devices=("cpu", "cpu"), time_block=4))
    assert [share.slab.halo[0] for share in plan.shares] == [(4, 4), (4, 4)]
