"""One plan for all ranks: speeds decide, and what cannot be is refused everywhere."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.rank_cases import LINK, MACHINE, problem_of
from tests.support.thread_ranks import ThreadCommunicator, run_ranks
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.errors import ConfigError, ElsewhereError, UnsupportedError
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod as GpuPlain
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler import planner
from tetris_sim.scheduler.comm.communicator import Communicator, measure_link
from tetris_sim.scheduler.facts.shares import Draft, Link, Plan, Reason, Share, Streaming, names_of
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.plan import ranks as planning
from tetris_sim.scheduler.plan.offer import WorkerCandidate
from tetris_sim.scheduler.plan.ranks import even_part, offers_of
from tetris_sim.scheduler.planner import measure_exchange, plan_together
from tetris_sim.scheduler.tuning.candidates import RESERVE


@dataclasses.dataclass(frozen=True)
class Rank:
    """What one rank has: its number, its part of a computer, and how it would advance an even part
    of the grid alone.
    """

    rank: int
    machine: Machine
    plan: Plan
    reasons: tuple[Reason, ...] = (
        Reason("device", "2 threads: mine."),
        Reason("block", "Time block of 7."),
    )

    @property
    def offers(self) -> list[WorkerCandidate]:
        return offers_of(Draft(self.plan, self.reasons), self.machine, self.rank)


def offer(
    rank: int, problem: Problem, rates: list[float], *, host: str = "alpha", cpu: str = "cpu"
) -> Rank:
    """A rank that measured these speeds."""
    whole = Slab.whole(even_part(problem, 2).grid)
    shares = tuple(
        Share(f"cpu:{k}", whole, CpuPlainMethod(), {}, 2, rate, 0) for k, rate in enumerate(rates)
    )
    plan = Plan(shares, 7, 1.0, 0.0, copy_for_checkpoints=True, reasons=())
    return Rank(rank, dataclasses.replace(MACHINE, host=host, cpu=cpu), plan)


def combine(problem: Problem, ranks: Sequence[Rank], link: Link, compute: ComputeSection) -> Plan:
    offers = [offer for rank in ranks for offer in rank.offers]
    return planning.combine(problem, offers, link, compute, ranks[0].reasons)


def test_shares_follow_the_measured_speeds_of_different_computers() -> None:
    problem = problem_of((1000, 50))
    offers = [offer(0, problem, [3e9], cpu="new"), offer(1, problem, [1e9], host="beta", cpu="old")]
    plan = combine(problem, offers, LINK, ComputeSection())
    assert [share.slab.shape[0] for share in plan.shares] == [750, 250]
    assert [share.rank for share in plan.shares] == [0, 1]
    assert names_of(plan) == ["0/cpu:0", "1/cpu:0"]
    assert plan.reasons[0].startswith(
        "2 ranks on 2 computers: rank 0 on alpha: cpu:0 (2 threads); rank 1 on beta"
    )
    assert "2 threads: mine." in plan.reasons
    assert not any(reason.startswith("Time block of 7") for reason in plan.reasons)
    assert plan.copy_for_checkpoints


@pytest.mark.parametrize("room", [0.4, 0.6])
def test_parts_are_copied_where_every_rank_has_memory_for_that(room: float) -> None:
    problem = problem_of((1000, 50))
    many = [it for rank in range(2) for it in offer(rank, problem, [1e9]).offers]
    plan = planning.combine(problem, many, LINK, ComputeSection())
    needed = max(share.memory for share in plan.shares)
    tight = dataclasses.replace(
        many[1], host_memory=needed + int(room * problem.state_bytes), usable=needed
    )
    plan = planning.combine(problem, [many[0], tight], LINK, ComputeSection())
    assert plan.copy_for_checkpoints == (room > 0.5)


def test_equal_computers_are_equally_fast_unless_one_is_clearly_slower() -> None:
    problem = problem_of((1000, 50))
    noise = combine(
        problem, [offer(k, problem, [1e9 + k * 1e8]) for k in range(3)], LINK, ComputeSection()
    )
    assert {share.slab.shape[0] for share in noise.shares} <= {333, 334}
    slow = [offer(0, problem, [2e9]), offer(1, problem, [1e9], host="beta")]
    assert [
        share.slab.shape[0] for share in combine(problem, slow, LINK, ComputeSection()).shares
    ] == [667, 333]
    here = [
        offer(0, problem, [2e9]),
        offer(1, problem, [1e9]),
    ]  # in each other's way while they measured
    assert [
        share.slab.shape[0] for share in combine(problem, here, LINK, ComputeSection()).shares
    ] == [500, 500]


def test_several_workers_of_a_rank_share_what_the_rank_gets_as_they_would_alone() -> None:
    problem = problem_of((1200, 50))
    first = offer(0, problem, [2e9, 1e9])
    slabs = (Slab((0, 0), (400, 50), ((0, 1), (0, 0))), Slab((400, 0), (600, 50), ((1, 0), (0, 0))))
    shares = tuple(
        dataclasses.replace(s, slab=slab) for s, slab in zip(first.plan.shares, slabs, strict=True)
    )
    first = dataclasses.replace(first, plan=dataclasses.replace(first.plan, shares=shares))
    plan = combine(
        problem, [first, offer(1, problem, [3e9], cpu="another")], LINK, ComputeSection()
    )
    assert [share.slab.shape[0] for share in plan.shares] == [400, 200, 600]
    assert names_of(plan) == ["0/cpu:0", "0/cpu:1", "1/cpu:0"]


def cut_of(plan: Plan) -> tuple[str, tuple[int, ...]]:
    """(what the plan says about its process grid, pieces of each axis)."""
    (said,) = (reason for reason in plan.reasons if reason.startswith("Process grid"))
    return said, tuple(
        len(set(starts))
        for starts in zip(*(share.slab.start for share in plan.shares), strict=True)
    )


def test_grids_of_which_slabs_would_be_slow_are_cut_along_others_and_the_plan_says_so() -> None:
    problem = problem_of((16, 400, 400))
    offers = [offer(k, problem, [1e9]) for k in range(8)]
    plan = combine(problem, offers, Link(1e-3, 1e-9), ComputeSection())
    said, parts = cut_of(plan)
    assert parts == (1, 4, 2)
    assert re.fullmatch(
        r"Process grid 4 x 2 along y and x, even: slabs are predicted to take [1-9][.\d]* times as long\.",
        said,
    )
    for share in plan.shares:
        for (low, high), n in zip(share.slab.halo, share.slab.shape, strict=True):
            assert max(low, high) <= n
    assert max(share.slab.halo[1] for share in plan.shares) == (plan.time_block, plan.time_block)
    assert {share.slab.halo[2] for share in plan.shares} == {
        (plan.time_block, 0),
        (0, plan.time_block),
    }


def test_slabs_that_nothing_beats_are_kept_and_the_plan_says_what_else_there_was() -> None:
    problem = problem_of((1200, 50))
    said, parts = cut_of(
        combine(problem, [offer(k, problem, [1e9]) for k in range(4)], LINK, ComputeSection())
    )
    assert parts == (4, 1)
    assert re.fullmatch(
        r"Process grid 4 along y: 25% to 25% of the grid each, by speed; "
        r"2 x 2 along y and x is predicted to take 1\.\d+ times as long\.",
        said,
    )


def test_shares_that_are_asked_for_keep_slabs_and_a_block_that_is_asked_for_keeps_its_room() -> (
    None
):
    problem = problem_of((64, 256, 256))
    offers = [offer(k, problem, [1e9]) for k in range(16)]
    free, asked, long = (
        combine(problem, offers, LINK, compute)
        for compute in (
            ComputeSection(),
            ComputeSection(shares=(1.0,)),
            ComputeSection(time_block=24),
        )
    )
    assert cut_of(free)[1] != (16, 1, 1) == cut_of(asked)[1]
    assert cut_of(asked)[0] == "Process grid 16 along z: 6.25% to 6.25% of the grid each, by speed."
    assert long.time_block == 24  # 4 x 4 along z and y have 16 planes along z
    assert cut_of(long)[1] == (1, 4, 4)


def test_speeds_that_differ_count_wherever_the_grid_is_cut() -> None:
    """Equal pieces take as long as the slowest worker, slabs follow the speeds."""
    problem = problem_of((64, 256, 256))
    for slowest, slabs in ((0.7e9, False), (1e6, True)):
        offers = [
            offer(k, problem, [slowest if k == 5 else 1e9], cpu=f"cpu {k}") for k in range(16)
        ]
        assert (
            cut_of(combine(problem, offers, Link(1e-5, 1e-9), ComputeSection()))[1] == (16, 1, 1)
        ) == slabs


def test_slabs_are_kept_if_only_they_fit_into_memory() -> None:
    problem, slow = (
        problem_of((128, 128, 128)),
        Link(1e-2, 1e-9),
    )  # so slow that halos are as wide as pieces
    offers = [offer(k, problem, [1e9]) for k in range(16)]
    needed, less = (
        max(share.memory for share in combine(problem, offers, slow, compute).shares)
        for compute in (ComputeSection(), ComputeSection(shares=(1.0,)))
    )
    assert less < needed
    for memory, kept in ((needed, False), (needed - 1, True), (less, True), (less - 1, False)):
        machines = [dataclasses.replace(each.machine, memory=memory + RESERVE) for each in offers]
        tight = [
            dataclasses.replace(each, machine=own)
            for each, own in zip(offers, machines, strict=True)
        ]
        said, parts = cut_of(combine(problem, tight, slow, ComputeSection()))
        assert (parts == (16, 1, 1)) == kept
        assert (
            "; 4 x 2 x 2 along z, y and x would be faster, but does not fit into memory" in said
        ) == kept


def test_a_part_that_one_process_would_stream_through_its_gpu_is_refused() -> None:
    problem = problem_of((64, 30))
    first = offer(0, problem, [1e9])
    streamed = dataclasses.replace(
        first.plan.shares[0], worker="gpu:0", streamed=Streaming(4, 9, 3, 1e9, 0.0, 0.1, 1.0, 2)
    )
    first = dataclasses.replace(first, plan=dataclasses.replace(first.plan, shares=(streamed,)))
    with pytest.raises(
        UnsupportedError, match=r"rank 0 does not fit into the memory of gpu:0 on alpha"
    ):
        combine(problem, [first, offer(1, problem, [1e9])], LINK, ComputeSection())


def test_slow_links_ask_for_longer_blocks() -> None:
    problem = problem_of((4000, 500))
    offers = [offer(k, problem, [1e9]) for k in range(4)]
    blocks = [
        combine(problem, offers, Link(latency, 1e-10), ComputeSection()).time_block
        for latency in (1e-7, 1e-4)
    ]
    assert blocks[0] < blocks[1]
    asked = combine(problem, offers, LINK, ComputeSection(time_block=13))
    assert asked.time_block == 13
    assert "Time block of 13 steps, as asked." in asked.reasons
    cut = combine(problem, offers, LINK, ComputeSection(time_block=5000))
    assert cut.time_block == 1000


def test_more_ranks_than_the_grid_has_planes_are_refused() -> None:
    with pytest.raises(ConfigError, match="40 workers cannot share a grid of 6 x 5 points"):
        even_part(problem_of((5, 6)), 40)


def fixed_plan(problem: Problem, machine: Machine, compute: ComputeSection, **_: Any) -> Draft:
    share = Share("cpu:0", Slab.whole(problem.grid), CpuPlainMethod(), {}, machine.threads, 1e9, 0)
    return Draft(Plan((share,), 1, 1.0, 0.0, copy_for_checkpoints=True, reasons=()), ())


def test_all_ranks_get_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "draft", fixed_plan)
    problem = problem_of((64, 30))
    plans = run_ranks(
        4,
        lambda ranks: plan_together(problem, MACHINE, ComputeSection(), ranks),
        computers=(0, 0, 1, 1),
    )
    assert all(plan == plans[0] for plan in plans)
    assert [share.rank for share in plans[0].shares] == [0, 1, 2, 3]
    assert [share.threads for share in plans[0].shares] == [
        2,
        2,
        2,
        2,
    ]  # two computers of four cores
    alone = plan_together(problem, MACHINE, ComputeSection(), run_ranks(1, lambda ranks: ranks)[0])
    assert alone.shares[0].threads == 4


def test_a_rank_that_cannot_plan_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan_or_not(problem: Problem, machine: Machine, compute: ComputeSection, **_: Any) -> Draft:
        if machine.host == "beta":
            msg = "no memory on beta"
            raise UnsupportedError(msg)
        return fixed_plan(problem, machine, compute)

    monkeypatch.setattr(planner, "draft", plan_or_not)

    def work(ranks: Communicator) -> str:
        machine = dataclasses.replace(MACHINE, host="beta" if ranks.rank == 2 else "alpha")
        with pytest.raises((UnsupportedError, ElsewhereError)) as caught:
            plan_together(problem_of((64, 30)), machine, ComputeSection(), ranks)
        return str(caught.value)

    said = run_ranks(3, work)
    assert said[2] == "no memory on beta"
    assert said[0] == said[1] != said[2]


def test_slabs_that_do_not_fit_into_their_computer_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner, "draft", fixed_plan)
    machine = dataclasses.replace(MACHINE, memory=2 << 30)

    def work(ranks: Communicator) -> str:
        with pytest.raises((UnsupportedError, ElsewhereError)) as caught:
            plan_together(problem_of((20_000, 20_000)), machine, ComputeSection(), ranks)
        return str(caught.value)

    said = run_ranks(2, work)
    assert "the part of rank 0 on alpha needs" in said[0]


def test_links_are_measured() -> None:
    links = run_ranks(3, measure_link)
    assert links[0] == links[1] == links[2]
    assert 0 < links[0].latency < 1
    assert links[0].seconds_per_byte >= 0
    assert np.isfinite(links[0].seconds_per_byte)


def test_exchanges_are_timed_with_the_devices_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow way from rank to rank is found, by its start and by its bytes."""
    problem = problem_of((4000, 2000))
    send = ThreadCommunicator.send

    def late(self: ThreadCommunicator, values: Any, to: int, tag: int) -> Any:
        time.sleep(0.01 + values.nbytes * 1e-8)
        return send(self, values, to, tag)

    def work(ranks: Communicator) -> Link:
        plan = fixed_plan(problem, MACHINE, ComputeSection())
        return measure_exchange(problem, [plan.plan.shares[0]] * ranks.size, ranks)

    fast = run_ranks(3, work)
    assert fast[0] == fast[1] == fast[2]
    monkeypatch.setattr(ThreadCommunicator, "send", late)
    slow = run_ranks(3, work)[0]
    assert slow.latency > max(0.005, fast[0].latency)
    assert slow.seconds_per_byte > max(0.5e-8, fast[0].seconds_per_byte)


def test_halos_travel_beside_the_computation_where_that_is_predicted_to_pay() -> None:
    problem = problem_of((4000, 500))
    offers = [offer(k, problem, [1e9]) for k in range(2)]
    quick = combine(problem, offers, LINK, ComputeSection(time_block=16))
    assert not quick.overlapped
    slow = combine(problem, offers, Link(3e-3, 1e-9), ComputeSection(time_block=16))
    assert slow.overlapped
    (said,) = (reason for reason in slow.reasons if "Halos travel" in reason)
    assert re.fullmatch(r"Halos travel while .* computed, which saves \d+% of a step\.", said)

    # Rims cost something: what is saved is less than what messages take.
    saved = quick.seconds_per_step + 3e-3 / 16 - slow.seconds_per_step
    assert 0.05 * slow.seconds_per_step < saved < 3e-3 / 16


def test_gpus_let_halos_travel_in_blocks_that_suit_that() -> None:
    problem = problem_of((4000, 500))
    on_gpus = [offer(k, problem, [1e9]) for k in range(2)]
    on_gpus = [dataclasses.replace(it, plan=_on_gpus(it.plan)) for it in on_gpus]
    link = Link(2e-4, 1e-12)
    measured = [it for rank in on_gpus for it in rank.offers]
    waiting = combine(problem, on_gpus, link, ComputeSection())
    beside = planning.combine(problem, measured, link, ComputeSection(), gpu_messages="nccl")
    assert not waiting.overlapped
    assert beside.overlapped
    # Planes that are computed twice are all that a block costs now.
    assert beside.time_block < waiting.time_block
    assert beside.seconds_per_step < waiting.seconds_per_step
    assert {share.slab.halo[0][0] for share in beside.shares} == {0, beside.time_block}


def _on_gpus(plan: Plan) -> Plan:
    (share,) = plan.shares
    return dataclasses.replace(
        plan, shares=(dataclasses.replace(share, worker="gpu:0", method=GpuPlain()),)
    )


def test_halos_are_waited_for_where_a_block_cannot_begin_without_them() -> None:
    problem = problem_of((70, 500))
    offers = [offer(k, problem, [1e9]) for k in range(2)]
    compute = ComputeSection(time_block=16)
    plan = combine(problem, offers, Link(3e-3, 1e-9), compute)
    assert not plan.overlapped
    assert not any("Halos travel" in reason for reason in plan.reasons)
