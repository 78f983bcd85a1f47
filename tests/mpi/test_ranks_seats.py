"""Cores, memory and GPUs of a computer are dealt out to its ranks."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.rank_cases import MACHINE, gpu
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import UnsupportedError
from tetris_sim.scheduler.machine.machine import PER_TASK, Machine
from tetris_sim.scheduler.machine.placement import RankPlacement, take_seat


def seats(
    *cores: tuple[int, ...], gpus: tuple[tuple[str, ...], ...] | None = None
) -> list[RankPlacement]:
    return [RankPlacement(rank, own, gpus[rank] if gpus else ()) for rank, own in enumerate(cores)]


def threads_of(all_seats: list[RankPlacement], machine: Machine = MACHINE) -> list[int]:
    cores = [dataclasses.replace(machine, cores=seat.cores) for seat in all_seats]
    return [
        take_seat(own, ComputeSection(), all_seats, seat.rank).threads
        for own, seat in zip(cores, all_seats, strict=True)
    ]


def test_ranks_that_are_bound_keep_their_cores() -> None:
    bound = seats((0, 1, 2), (3,))
    machines = [
        dataclasses.replace(MACHINE, threads=len(seat.cores), cores=seat.cores) for seat in bound
    ]
    found = [
        take_seat(m, ComputeSection(), bound, s.rank) for m, s in zip(machines, bound, strict=True)
    ]
    assert [machine.threads for machine in found] == [3, 1]
    assert found[0].threads_reason == "cores in the affinity mask"


def test_ranks_that_are_not_bound_divide_the_cores() -> None:
    assert threads_of(seats((0, 1, 2, 3), (0, 1, 2, 3))) == [2, 2]
    assert threads_of(seats(*[(0, 1, 2, 3)] * 3)) == [1, 1, 2]
    assert (
        threads_of(seats(*[(0, 1, 2, 3)] * 6)) == [1] * 6
    )  # more ranks than cores: each has a thread
    machine = take_seat(MACHINE, ComputeSection(), seats((0, 1, 2, 3), (0, 1, 2, 3)), 1)
    assert machine.threads_reason == "cores in the affinity mask, 4 for 2 ranks"
    assert machine.memory == 4 << 30


def test_pairs_of_ranks_bound_to_the_same_cores_divide_those() -> None:
    quarter = dataclasses.replace(MACHINE, threads=2)
    assert threads_of(seats((0, 1), (0, 1), (2, 3), (2, 3)), quarter) == [1, 1, 1, 1]


def test_a_quota_is_divided_and_what_slurm_gives_to_a_task_is_not() -> None:
    everywhere = seats(*[tuple(range(16))] * 2)
    quota = dataclasses.replace(MACHINE, threads=6, threads_reason="CPU quota of the container")
    assert threads_of(everywhere, quota) == [3, 3]
    task = dataclasses.replace(MACHINE, threads=6, threads_reason=PER_TASK)
    assert threads_of(everywhere, task) == [6, 6]


def gpus_of(
    n_ranks: int, addresses: tuple[str, ...], compute: ComputeSection, rank: int
) -> list[int]:
    machine = dataclasses.replace(MACHINE, gpus=tuple(gpu(k) for k in range(len(addresses))))
    every = seats(*[(0, 1, 2, 3)] * n_ranks, gpus=(addresses,) * n_ranks)
    return [each.number for each in take_seat(machine, compute, every, rank).gpus]


def test_gpus_are_dealt_out_to_the_ranks_of_a_computer() -> None:
    auto = ComputeSection()
    assert [gpus_of(2, ("a", "b", "c", "d"), auto, rank) for rank in range(2)] == [[0, 1], [2, 3]]
    assert [gpus_of(4, ("a", "b", "c", "d"), auto, rank) for rank in range(4)] == [
        [0],
        [1],
        [2],
        [3],
    ]
    assert gpus_of(1, ("a", "b"), auto, 0) == [0, 1]


def test_a_rank_that_alone_sees_its_gpu_keeps_it_whatever_number_it_has() -> None:
    machine = dataclasses.replace(MACHINE, gpus=(gpu(0),))
    every = seats((0,), (1,), gpus=(("0000:1B:00.0",), ("0000:5E:00.0",)))
    assert [take_seat(machine, ComputeSection(), every, rank).gpus for rank in (0, 1)] == [
        (gpu(0),),
        (gpu(0),),
    ]


def test_two_ranks_on_one_gpu_are_refused_unless_allowed() -> None:
    with pytest.raises(
        UnsupportedError, match=r"3 ranks on alpha have 2 GPUs \(a, b\).*compute\.share_gpus: true"
    ):
        gpus_of(3, ("a", "b"), ComputeSection(devices="gpu"), 0)
    for nobody in ("cpu", ("cpu", "cpu"), ("simulated:0",), ("simulated:0", "cpu")):
        assert gpus_of(3, ("a", "b"), ComputeSection(devices=nobody), 0) == [0, 1]
    for devices in ("cpu+gpu", ("gpu:0",), ("gpu:0", "cpu")):
        with pytest.raises(UnsupportedError, match="3 ranks on alpha have 2 GPUs"):
            gpus_of(3, ("a", "b"), ComputeSection(devices=devices), 0)
    shared = ComputeSection(devices="gpu", share_gpus=True)
    assert [gpus_of(3, ("a", "b"), shared, rank) for rank in range(3)] == [[0], [1], [0]]
    machine = dataclasses.replace(MACHINE, gpus=(gpu(0), gpu(1)))
    every = seats(*[(0, 1, 2, 3)] * 3, gpus=(("a", "b"),) * 3)
    memory = [take_seat(machine, shared, every, rank).gpus[0].memory for rank in range(3)]
    assert memory == [40 << 30, 80 << 30, 40 << 30]
