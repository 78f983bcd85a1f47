"""Planes that NCCL carries between ranks with a GPU each: emulated GPUs on ranks that are threads."""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.ahead_cases import BLOCK, CHOSEN, STEPS, plan_on_ranks, plate
from tests.support.cases import boundary_of, make_problem, run, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tests.support.thread_nccl import ThreadNccl
from tests.support.thread_ranks import run_ranks
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod as CpuPlain
from tetris_sim.errors import ElsewhereError, UnsupportedError
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.steppers import planes
from tetris_sim.model import reference
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Field
from tetris_sim.scheduler import planner
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.shares import Capacity, Domain, GpuMessages, Link, Share
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.plan.offer import WorkerCandidate
from tetris_sim.scheduler.plan.partition import cut, cut_along_axis_0
from tetris_sim.scheduler.workers.exchange import possible_ways
from tetris_sim.scheduler.workers.rank_exchange import RankExchange
from tetris_sim.simulation.loop import open_simulation

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ThreadNccl:
    """NCCL between threads, and GPUs that are emulated."""
    made = ThreadNccl()
    monkeypatch.setattr(planes, "import_nccl", lambda: made)
    monkeypatch.setattr(HostGpu, "close", HostGpu.release, raising=False)
    monkeypatch.setattr(ComputeResource, "open", lambda place: HostGpu())
    return made


def gpus(count: int) -> list[Share]:
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("rings", 2), shape=(40, 21))
    ends = [40 * n // count for n in range(count + 1)]
    pieces = list(itertools.pairwise(ends))
    slabs = cut_along_axis_0(problem.grid, problem.boundary, pieces, halo=1)
    return [
        Share("gpu:0", slab, GpuPlainMethod(), {}, 1, 1.0, 0, rank=rank)
        for rank, slab in enumerate(slabs)
    ]


def offer_of(share: Share) -> WorkerCandidate:
    memory = 1 << 40
    capacity = Capacity(share.worker, 1e9, one_way=True)
    return WorkerCandidate(share, capacity, memory, "gpu", "alpha", memory, "enough", "a GPU")


@pytest.mark.parametrize("method", CHOSEN, ids=lambda method: method.name)
@pytest.mark.parametrize("beside", [False, True], ids=["before", "beside"])
def test_nothing_changes_and_nothing_goes_another_way(
    method: Method,
    beside: bool,
    library: ThreadNccl,
    teams: dict[int, ThreadTeam],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = plate("rings")
    plan = plan_on_ranks(problem, method)
    plan = dataclasses.replace(plan, overlapped=beside, gpu_messages="nccl")

    def not_otherwise(*arguments: Any) -> Any:
        msg = "planes were to go by NCCL"
        raise AssertionError(msg)

    monkeypatch.setattr(RankExchange, "_send", not_otherwise)
    monkeypatch.setattr(RankExchange, "_agree_on_mail", not_otherwise)

    def work(ranks: Communicator) -> Field:
        assert possible_ways("nccl", plan.shares, ranks) == ("nccl",)
        with open_simulation(problem, plan, ranks=ranks) as simulation:
            simulation.run()
            return simulation.field()

    found = run_ranks(3, work, computers=(0, 1, 2))[0]
    wanted = run(CpuPlain(), problem, {}, teams[2], (STEPS,))
    allowed = 0.0 if method.name == "gpu.plain" else reference.tolerance(problem, STEPS, 3.0)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed)
    assert library.groups == 3 * -(-STEPS // BLOCK)
    assert library.opened == [3, 3, 3]


def test_cuts_along_two_axes_send_corners_on(
    library: ThreadNccl, teams: dict[int, ThreadTeam]
) -> None:
    problem, _ = make_problem(
        stencil_of("box-2d9p"), boundary_of("rings", 2), shape=(40, 31), n_fields=2
    )
    slabs = cut(Domain.of(problem), (2, 2), [1.0] * 4, BLOCK)
    shares = [
        Share("gpu:0", slab, GpuPlainMethod(), {}, 1, 1.0, 0, rank=rank)
        for rank, slab in enumerate(slabs)
    ]
    whole: Field = np.full((2, 40, 31), np.nan)

    def work(ranks: Communicator) -> None:
        possible_ways("nccl", shares, ranks)
        worker: Any = type("", (), {})()
        worker.device = HostGpu()
        worker.stepper = GpuPlainMethod().prepare(problem, slabs[ranks.rank], {}, worker.device)
        worker.stepper.load(problem.initial)
        exchange = RankExchange(problem, shares, ranks, gpu_messages="nccl")
        for _ in range(3):
            exchange.swap([worker])
            worker.stepper.advance(BLOCK)
        slab = slabs[ranks.rank]
        inside = tuple(slice(a, b) for a, b in zip(slab.start, slab.stop, strict=True))
        whole[(slice(None), *inside)] = worker.stepper.interior()
        assert exchange.traffic.messages == 3 * 4  # two along each axis

    run_ranks(4, work)
    np.testing.assert_array_equal(whole, run(CpuPlain(), problem, {}, teams[2], (3 * BLOCK,)))


@pytest.mark.parametrize(
    ("asked", "takes", "expected"),
    [
        ("auto", False, ("host", "nccl")),
        ("auto", True, ("host", "mpi", "nccl")),
        ("host", True, ("host",)),
        ("mpi", False, ("mpi",)),
    ],
)
def test_what_is_tried(
    asked: Any,
    takes: bool,
    expected: tuple[GpuMessages, ...],
    library: ThreadNccl,
) -> None:
    def work(ranks: Communicator) -> tuple[GpuMessages, ...]:
        ranks.takes_gpu_memory = lambda: takes  # type: ignore[method-assign]
        return possible_ways(asked, gpus(2), ranks)

    assert run_ranks(2, work) == [expected] * 2


def test_ranks_without_gpus_try_nothing() -> None:
    shares = [dataclasses.replace(share, method=CpuPlain()) for share in gpus(2)]

    def work(ranks: Communicator) -> tuple[GpuMessages, ...]:
        return possible_ways("auto", shares, ranks)

    assert run_ranks(2, work) == [("host",)] * 2


def fail(*arguments: Any) -> Any:
    msg = "it does not work here"
    raise UnsupportedError(msg)


def on_rank(number: int, work: Any) -> Any:
    """The work, which fails on one rank."""

    def failing(*arguments: Any) -> Any:
        if threading.current_thread().name == f"rank-{number}":
            return fail()
        return work(*arguments)

    return failing


@pytest.mark.parametrize("trouble", ["missing", "device", "identity", "refused", "mixed"])
def test_without_nccl_others_are_left(
    trouble: str, library: ThreadNccl, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = gpus(2)
    if trouble == "missing":
        monkeypatch.setattr(planes, "import_nccl", on_rank(1, lambda: library))
    if trouble == "device":
        monkeypatch.setattr(ComputeResource, "open", on_rank(1, lambda place: HostGpu()))
    if trouble == "identity":
        monkeypatch.setattr(library, "get_unique_id", on_rank(0, library.get_unique_id))
    if trouble == "refused":
        monkeypatch.setattr(library, "NcclCommunicator", fail)
    if trouble == "mixed":
        shares.append(dataclasses.replace(shares[0], method=CpuPlain()))

    def auto(ranks: Communicator) -> tuple[GpuMessages, ...]:
        return possible_ways("auto", shares, ranks)

    assert run_ranks(2, auto) == [("host",)] * 2

    said: list[str] = []

    def asked(ranks: Communicator) -> None:
        try:
            possible_ways("nccl", shares, ranks)
        except (UnsupportedError, ElsewhereError) as error:
            said.append(str(error))
            raise

    with pytest.raises(UnsupportedError, match=r"compute.gpu_messages is nccl, but .*; leave"):
        run_ranks(2, asked)
    assert len(said) == 2


def test_the_fastest_way_is_taken_and_the_plan_says_so(
    library: ThreadNccl, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = gpus(2)
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("rings", 2), shape=(40, 21))
    by_rank: Any = [[SimpleNamespace(share=share)] for share in shares]
    links = {"host": Link(1e-3, 0.0), "nccl": Link(1e-5, 1e-11)}
    timed: list[str] = []

    def measured(*arguments: Any, gpu_messages: GpuMessages) -> Link:
        timed.append(gpu_messages)
        return links[gpu_messages]

    monkeypatch.setattr(planner, "measure_exchange", measured)
    monkeypatch.setattr(planner, "measure_link", lambda ranks: Link(5.0, 0.0))
    monkeypatch.setattr(planner, "_saved_at_most", lambda *arguments: 3.1)

    def work(compute: ComputeSection) -> Any:
        return run_ranks(
            2, lambda ranks: planner._choose_messages(problem, by_rank, compute, ranks)
        )[0]

    way, link, (reason,) = work(ComputeSection())
    assert (way, link, sorted(timed)) == ("nccl", links["nccl"], ["host", "host", "nccl", "nccl"])
    assert reason.sentence == (
        "Halos go between GPUs by NCCL: 33.6 MB took 1 ms with host, 0.346 ms with nccl."
    )
    links["nccl"] = Link(1e-5, 1e-10)
    assert work(ComputeSection())[0] == "host"

    # What was asked for is timed alone, and without time nothing is.
    timed.clear()
    assert work(ComputeSection(gpu_messages="nccl"))[0] == "nccl"
    assert timed == ["nccl", "nccl"]
    assert work(ComputeSection(tuning_budget=0)) == ("nccl", Link(5.0, 0.0), ())
    assert work(ComputeSection(gpu_messages="host")) == ("host", links["host"], ())


def test_a_run_that_would_save_less_than_it_takes_does_not_open_nccl(
    library: ThreadNccl, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, n = Link(1e-3, 1e-9), 4000
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("rings", 2), shape=(n, 500))
    by_rank = [[offer_of(share)] for share in gpus(2)]
    monkeypatch.setattr(planner, "measure_exchange", lambda *_, gpu_messages: link)
    monkeypatch.setattr(planner, "measure_link", lambda ranks: link)

    def work(steps: int, compute: ComputeSection) -> Any:
        long = dataclasses.replace(problem, steps=steps)
        return run_ranks(2, lambda ranks: planner._choose_messages(long, by_rank, compute, ranks))[
            0
        ]

    for budget in ("auto", 0.0):
        way, found, (reason,) = work(1000, ComputeSection(tuning_budget=budget))
        assert (way, found, library.opened) == ("host", link, [])
        assert re.fullmatch(
            r"NCCL is not opened, which takes about 3 s: halos that cost nothing would save "
            r"0\.\d+ s of the run\.",
            reason.sentence,
        )
    # Of enough steps the same saving is worth it, also where nothing is timed.
    assert work(1_000_000, ComputeSection(tuning_budget=0.0))[0] == "nccl"
    assert library.opened == [2, 2]

    def twice(ranks: Communicator) -> GpuMessages:
        for compute in (ComputeSection(gpu_messages="nccl"), ComputeSection(tuning_budget=0.0)):
            way = planner._choose_messages(problem, by_rank, compute, ranks)[0]
        return way

    # What is open costs nothing more.
    assert run_ranks(2, twice) == ["nccl", "nccl"]


@pytest.mark.parametrize("there", [None, SimpleNamespace(available=False)], ids=["none", "stub"])
def test_a_library_that_is_not_there_is_said(there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cupy.cuda", SimpleNamespace(nccl=there) if there else None)
    with pytest.raises(UnsupportedError, match="CuPy finds no NCCL"):
        planes.import_nccl()
