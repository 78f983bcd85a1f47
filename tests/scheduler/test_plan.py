"""The planner's decisions, on machines that exist only as numbers."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.cases import make_problem
from tests.support.fake_methods import FakeMethod
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.model.boundary import Boundary, Neumann, Periodic
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.comm.peers import count_ranks
from tetris_sim.scheduler.machine.machine import Machine, find_machine, last_level_cache
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.plan import find as planning
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.scheduler.tuning.candidates import TuningRequest
from tetris_sim.scheduler.tuning.choice import Choice, Speed
from tetris_sim.scheduler.tuning.measure import check_method, make_trial_problem, measure_speed
from tetris_sim.scheduler.tuning.tune import Terms

MACHINE = Machine(
    "host", "cpu", 4, "cores in the affinity mask", 8 << 30, "free memory of the machine"
)
ONE_CORE = dataclasses.replace(MACHINE, threads=1)


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuner that knows without measuring."""
    tune_to(monkeypatch, {})


def tune_to(monkeypatch: pytest.MonkeyPatch, parameters: dict[str, int]) -> None:
    def known(problem: Problem, machine: Machine, terms: Terms) -> Choice:
        return Choice(METHODS[-1], parameters, terms.threads, Speed(1e9, 1e-4), ("known",))

    monkeypatch.setattr(planning, "tune", known)


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
    with pytest.raises(
        ConfigError, match="3 workers cannot share 5 planes along y: each needs at least 2"
    ):
        make_plan(problem_of((5, 20), "star-2d9p"), MACHINE, ComputeSection(devices=("cpu",) * 3))


@pytest.mark.usefixtures("speed")
def test_threads_are_divided_between_the_workers_and_each_has_one() -> None:
    plan = make_plan(problem_of((30, 20)), MACHINE, ComputeSection(devices=("cpu",) * 3))
    assert sum(share.threads for share in plan.shares) == 4
    plan = make_plan(problem_of((30, 20)), ONE_CORE, ComputeSection(devices=("cpu",) * 3))
    assert [share.threads for share in plan.shares] == [1, 1, 1]
    assert plan.reasons[0].endswith("which are fewer than the 3 workers, so each has one thread.")


@pytest.mark.usefixtures("speed")
def test_more_workers_than_threads_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"threads is 2, but compute\.devices names 3 workers"):
        make_plan(problem_of((30, 20)), MACHINE, ComputeSection(devices=("cpu",) * 3, threads=2))
    assert (
        len(make_plan(problem_of((30, 20)), ONE_CORE, ComputeSection(devices=("cpu",) * 8)).shares)
        == 8
    )
    with pytest.raises(
        ConfigError, match=r"devices names 9 workers with a thread each, but there are 1 cores"
    ):
        make_plan(problem_of((30, 20)), ONE_CORE, ComputeSection(devices=("cpu",) * 9))


@pytest.mark.usefixtures("speed")
def test_reserved_cores_are_left_free() -> None:
    plan = make_plan(problem_of((30, 20)), MACHINE, ComputeSection(reserve_cores=1))
    assert plan.shares[0].threads == 3
    assert plan.reasons[0] == "3 threads: cores in the affinity mask, 1 of 4 left free."
    with pytest.raises(
        ConfigError, match=r"reserve_cores is 4, but there are 4 .*; leave at least one"
    ):
        make_plan(problem_of((30, 20)), MACHINE, ComputeSection(reserve_cores=4))


@pytest.mark.usefixtures("speed")
def test_slabs_whose_halos_do_not_fit_are_refused_though_the_grid_would() -> None:
    problem = large((4000, 60_000))  # 3.6 GiB for two arrays
    tight = dataclasses.replace(MACHINE, memory=4 << 30)
    assert (
        len(make_plan(problem, tight, ComputeSection(devices=("cpu", "cpu"), time_block=1)).shares)
        == 2
    )
    compute = ComputeSection(devices=("cpu", "cpu"), time_block=1000)
    with pytest.raises(
        UnsupportedError,
        match=r"the slabs of 2 workers with their halos need 5\.\d* GiB.*but 4 GiB",
    ):
        make_plan(problem, tight, compute)


def test_one_worker_makes_whole_blocks_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = large((1000, 1000))  # 1 ms per step, so 200 steps are 0.2 s
    for inner, block in ((1, 200), (16, 192), (7, 196), (300, 300)):
        tune_to(monkeypatch, {"steps_per_block": inner})
        plan = make_plan(problem, MACHINE)
        assert plan.time_block == block
        assert plan.shares[0].parameters == {"steps_per_block": inner}
    tune_to(monkeypatch, {"steps_per_block": 16})
    plan = make_plan(problem, MACHINE, ComputeSection(time_block=24))
    assert plan.time_block == 24
    assert any(
        "the method makes 16 at a time, so each block ends with a shorter part" in r
        for r in plan.reasons
    )


def test_the_halo_of_several_workers_lasts_for_the_methods_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = ComputeSection(devices=("cpu", "cpu"))
    # Latency and redundant planes balance at 10 steps; 16 cost 30 redundant planes of 1000, less
    # than 5 %.
    for inner, block, kept in ((1, 10, 1), (4, 8, 4), (16, 16, 16), (64, 10, 10)):
        tune_to(monkeypatch, {"tile": 5, "steps_per_block": inner})
        plan = make_plan(large((1000, 1000)), MACHINE, two)
        assert plan.time_block == block
        for share in plan.shares:
            assert share.parameters == {"tile": 5, "steps_per_block": kept}
            assert max(max(halo) for halo in share.slab.halo) == block
    tune_to(monkeypatch, {"steps_per_block": 64})
    plan = make_plan(
        problem_of((40, 20)), MACHINE, ComputeSection(devices=("cpu", "cpu"), time_block=8)
    )
    assert plan.shares[0].parameters == {"steps_per_block": 8}
    assert any("the method makes 8 at a time instead of 64" in reason for reason in plan.reasons)


def test_a_run_goes_on_with_the_method_it_was_begun_with(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (
        FakeMethod("cpu.first", ({"tile": 1},)),
        FakeMethod("cpu.second", ({"tile": 2}, {"tile": 3})),
    )
    monkeypatch.setattr("tetris_sim.cpu_kernels.METHODS", (first, second, *METHODS))
    problem, quick = problem_of((30, 20)), ComputeSection(tuning_budget=0)
    assert make_plan(problem, MACHINE, quick).shares[0].method is first
    before = TuningRequest("cpu.second", {"tile": 3})
    plan = make_plan(problem, MACHINE, quick, begun_with=before)
    assert (plan.shares[0].method, plan.shares[0].parameters, plan.notes) == (
        second,
        {"tile": 3},
        (),
    )
    assert any("is kept from the run that is continued." in reason for reason in plan.reasons)


def test_a_run_that_goes_on_with_another_method_says_whether_bits_may_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fused = FakeMethod("cpu.fused", ({"tile": 1},))
    monkeypatch.setattr("tetris_sim.cpu_kernels.METHODS", (fused, *METHODS))
    problem = problem_of((30, 20))

    def notes(method: str, before: TuningRequest, **parameters: int) -> tuple[str, ...]:
        compute = ComputeSection(tuning_budget=0, method=method, parameters=parameters)
        return make_plan(problem, MACHINE, compute, begun_with=before).notes

    (note,) = notes("cpu.plain", TuningRequest("cpu.fused", {"tile": 1}))
    assert note == (
        "The run was begun with cpu.fused (tile 1) and goes on with cpu.plain: the result may "
        "differ within rounding."
    )
    assert notes("cpu.plain", TuningRequest("cpu.plain", {})) == ()
    (note,) = notes("cpu.plain", TuningRequest("cpu.stream", {"levels": 4}))
    assert note.endswith("the result has the same bits.")
    (note,) = notes("cpu.fused", TuningRequest("cpu.fused", {"tile": 1}), tile=2)
    assert "goes on with cpu.fused (tile 2): the result may differ" in note
    # One that is not there any more, or refuses now, is replaced.
    (note,) = notes("auto", TuningRequest("cpu.gone", {"tile": 1}, by="the checkpoint's method"))
    assert "goes on with cpu.fused (tile 1)" in note
    assert "It cannot be kept: the checkpoint's method is 'cpu.gone', which is not one of" in note


def test_an_unknown_method_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(
        ConfigError, match=r"'cpu\.fast', which is not one of the methods: auto, .*cpu\.plain"
    ):
        make_plan(problem_of((5, 20)), MACHINE, ComputeSection(method="cpu.fast"))


def test_a_method_that_computes_something_else_is_found_out() -> None:
    problem = problem_of((30, 20))
    method = METHODS[-1]
    assert check_method(problem, method, {}, place=ComputeResource(2)) is None

    class Wrong:
        name, device = "cpu.wrong", "cpu"
        refusal, parameters, memory = method.refusal, method.parameters, method.memory

        @staticmethod
        def prepare(trial: Problem, *rest: object) -> object:
            weights = tuple(w * (1 + 1e-9) for w in trial.stencil.weights)
            return method.prepare(
                dataclasses.replace(
                    trial, stencil=dataclasses.replace(trial.stencil, weights=weights)
                ),
                *rest,  # type: ignore[arg-type]
            )

    sentence = check_method(problem, Wrong(), {}, place=ComputeResource(2))  # type: ignore[arg-type]
    assert sentence is not None
    assert "differs from the reference" in sentence


def test_speed_is_measured_on_the_real_stencil() -> None:
    speed = measure_speed(
        problem_of((200, 300)), METHODS[-1], {}, place=ComputeResource(1), seconds=0.02
    )
    assert 1e6 < speed.points_per_second < 1e12
    assert 0 <= speed.latency < 0.1


def test_a_piece_keeps_the_row_length_and_fits_the_budget() -> None:
    problem = large((20000, 40000))
    piece = make_trial_problem(problem, 64 << 20)
    assert piece.grid.shape[1] == 40000
    assert 60 << 20 < piece.state_bytes <= 64 << 20
    small = make_trial_problem(problem, 1 << 20, every_axis=True)
    assert small.state_bytes <= 1 << 20
    assert min(small.grid.shape) > 100


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (
            (1024, 1024, 1024),
            (64, 128, 1024),
        ),  # 64 planes so that tiles find room, then shorter along axis 1
        ((384, 384, 384), (64, 341, 384)),
        ((20, 5000, 3000), (20, 139, 3000)),
        ((2000, 30, 700), (399, 30, 700)),
        ((5000, 1, 10**7), (64, 1, 131072)),
        ((12, 200, 100), (12, 200, 100)),
    ],
)
def test_a_piece_of_three_axes_fits_the_budget_and_keeps_what_it_can(
    shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    flat = problem_of((7, 9, 13), "heat-3d")
    problem = dataclasses.replace(flat, grid=dataclasses.replace(flat.grid, shape=shape))
    piece = make_trial_problem(problem, 64 << 20, planes=64)
    assert piece.grid.shape == expected
    assert piece.state_bytes <= 64 << 20


def test_a_small_piece_leaves_as_many_points_over_beside_whole_vectors_as_the_grid() -> None:
    for n in (5003, 4800, 4801):
        assert (
            make_trial_problem(large((3000, n)), 1 << 20, every_axis=True).grid.shape[1] % 64
            == n % 64
        )


def test_every_part_of_a_piece_fits_to_the_others() -> None:
    from tetris_sim.model.slab import Slab

    problem = make_trial_problem(problem_of((9, 11, 70), "heat-3d"), 1 << 20)
    whole = problem.initial(Slab.whole(problem.grid))
    part = Slab((2, 3, 7), (8, 5, 60), ((0, 0),) * 3)
    np.testing.assert_array_equal(problem.initial(part), whole[:, 2:8, 3:5, 7:60])
    assert len(np.unique(whole)) > 6900  # of 6930


def test_a_piece_is_random_not_zero() -> None:
    from tetris_sim.model.slab import Slab

    piece = make_trial_problem(problem_of((20, 30)), 1 << 20)
    assert piece.initial(Slab.whole(piece.grid)).std() > 0.1


def test_the_last_level_caches_are_added_up_each_once(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    for core in cores:
        for index, level, size, shared in (
            (0, 1, "32K", str(core)),
            (3, 3, "24576K", "0-1"),
            (2, 2, "1M", str(core)),
        ):
            folder = tmp_path / f"cpu{core}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (
                ("level", level),
                ("type", "Unified"),
                ("size", size),
                ("shared_cpu_list", shared),
            ):
                (folder / name).write_text(f"{text}\n")
    assert last_level_cache(tmp_path) == 24 << 20
    for core in cores:
        shutil.rmtree(tmp_path / f"cpu{core}" / "cache" / "index3")
    assert last_level_cache(tmp_path) == len(cores) << 20
    assert last_level_cache(tmp_path / "nothing") == 0


def test_the_machine_is_found() -> None:
    machine = find_machine({})
    assert machine.cache >= 1 << 18
    assert machine.threads >= 1
    assert machine.memory > 1 << 20
    assert find_machine({"SLURM_CPUS_PER_TASK": "1"}).threads == 1


@pytest.mark.usefixtures("speed")
def test_far_more_threads_than_cores_are_refused() -> None:
    assert (
        make_plan(problem_of((30, 20)), MACHINE, ComputeSection(threads=32)).shares[0].threads == 32
    )
    with pytest.raises(
        ConfigError, match=r"threads is 1000, but there are 4 cores .* at most 8 per core"
    ):
        make_plan(problem_of((30, 20)), MACHINE, ComputeSection(threads=1000))


def test_the_ranks_of_a_launcher_are_counted() -> None:
    assert count_ranks({}) == 1
    assert count_ranks({"OMPI_COMM_WORLD_SIZE": "3"}) == 3
    assert count_ranks({"PMI_SIZE": "2", "PMI_RANK": "0"}) == 2


def test_a_periodic_axis_can_be_shared() -> None:
    problem, _ = make_problem(
        named_stencil("heat-2d").stencil, Boundary.everywhere(Periodic(), 2), shape=(40, 9)
    )
    plan = make_plan(problem, MACHINE, ComputeSection(devices=("cpu", "cpu"), time_block=4))
    assert [share.slab.halo[0] for share in plan.shares] == [(4, 4), (4, 4)]
