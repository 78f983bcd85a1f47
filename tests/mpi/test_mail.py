"""Planes from GPU to GPU inside of one computer, with emulated GPUs on ranks that are threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.cases import boundary_of, make_problem, run, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tests.support.thread_ranks import run_ranks
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod as CpuPlain
from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.model.problem import Field
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.shares import GpuMessages, Share
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.plan.partition import cut_along_axis_0
from tetris_sim.scheduler.workers.rank_exchange import RankExchange

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

BLOCK = 3
PIECES = ((0, 14), (14, 27), (27, 40))


def no_gpu(place: ComputeResource) -> Any:
    message = "there is none"
    raise UnsupportedError(message)


def closed_to_others(gpu: HostGpu, n_bytes: int) -> Any:
    message = "not permitted"
    raise RuntimeError(message)


def not_through_the_host(gpu: HostGpu, array: Any) -> Any:
    message = "planes were to stay in GPU memory"
    raise AssertionError(message)


@pytest.mark.parametrize("beside", [False, True], ids=["after", "beside"])
@pytest.mark.parametrize(
    ("computers", "trouble", "expected", "gpu_messages"),
    [
        ((0, 0, 0), None, [2, 2, 2], "host"),
        ((0, 0, 1), None, [1, 1, 0], "host"),
        ((0, 0, 0), ("ComputeResource.open", no_gpu), [0, 0, 0], "host"),
        ((0, 0, 0), ("HostGpu.share", closed_to_others), [0, 0, 0], "host"),
        ((0, 1, 2), ("HostGpu.fetch", not_through_the_host), [0, 0, 0], "mpi"),
    ],
)
def test_planes_go_from_gpu_to_gpu_where_both_can(
    computers: tuple[int, ...],
    trouble: tuple[str, Any] | None,
    expected: list[int],
    gpu_messages: GpuMessages,
    beside: bool,
    monkeypatch: pytest.MonkeyPatch,
    teams: dict[int, ThreadTeam],
) -> None:
    monkeypatch.setattr(HostGpu, "close", lambda gpu: None, raising=False)
    monkeypatch.setattr(ComputeResource, "open", lambda place: HostGpu())
    if trouble is not None:
        owner, name = trouble[0].split(".")
        monkeypatch.setattr(
            {"ComputeResource": ComputeResource, "HostGpu": HostGpu}[owner], name, trouble[1]
        )
    problem, _ = make_problem(
        stencil_of("box-2d9p"), boundary_of("rings", 2), shape=(40, 21), n_fields=2
    )
    slabs = cut_along_axis_0(problem.grid, problem.boundary, PIECES, halo=BLOCK)
    shares = [
        Share("gpu:0", slab, GpuPlainMethod(), {}, 1, 1.0, 0, rank=rank)
        for rank, slab in enumerate(slabs)
    ]

    def each(ranks: Communicator) -> tuple[int, Field]:
        gpu: Any = HostGpu()
        worker: Any = SimpleNamespace(
            device=gpu, stepper=GpuPlainMethod().prepare(problem, slabs[ranks.rank], {}, gpu)
        )
        worker.stepper.load(problem.initial)
        exchange = RankExchange(problem, shares, ranks, gpu_messages=gpu_messages)
        for _ in range(3):
            under_way = exchange.begin([worker])
            assert under_way is not None
            if beside:
                worker.stepper.advance_inner(BLOCK, under_way.axis)
                assert worker.stepper._begun is not None
            under_way.end()
            worker.stepper.advance(BLOCK)
        assert exchange.traffic.messages == 6
        assert exchange.traffic.bytes == 6 * 2 * BLOCK * 21 * 8
        assert exchange._mail is not None
        return len(exchange._mail._outboxes), worker.stepper.interior()

    found = run_ranks(3, each, computers=computers)
    assert [count for count, _ in found] == expected
    whole = np.concatenate([part for _, part in found], axis=1)
    np.testing.assert_array_equal(whole, run(CpuPlain(), problem, {}, teams[2], (3 * BLOCK,)))
