"""Halos that name their place, parts of the state for rank 0, on any number of ranks and any
cut.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pytest

from tests.support.cases import make_problem
from tests.support.thread_ranks import run_ranks
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.errors import ElsewhereError, ExitCode, NumericsError
from tetris_sim.model.boundary import Boundary, Neumann, Periodic
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.shares import Domain, Parts, Share
from tetris_sim.scheduler.plan.partition import cut
from tetris_sim.scheduler.workers.exchange import Exchange
from tetris_sim.scheduler.workers.rank_exchange import make_exchange
from tetris_sim.scheduler.workers.worker import Worker

T = TypeVar("T")

# Points, cuts per axis, the rank of each part.
CASES: dict[str, tuple[tuple[int, ...], Parts, tuple[int, ...]]] = {
    "1d on one rank": ((37,), (3,), (0, 0, 0)),
    "1d on two ranks": ((37,), (2,), (0, 1)),
    "1d on four ranks": ((37,), (4,), (0, 1, 2, 3)),
    "1d, several workers each": ((47,), (5,), (0, 0, 1, 2, 2)),
    "2d slabs on three ranks": ((13, 9), (3, 1), (0, 1, 2)),
    "2d, 2 x 2 ranks": ((13, 9), (2, 2), (0, 1, 2, 3)),
    "2d, 2 x 2 parts on two ranks": ((13, 9), (2, 2), (0, 0, 1, 1)),
    "2d along the second axis": ((5, 19), (1, 4), (0, 1, 2, 3)),
    "3d slabs on two ranks": ((9, 7, 6), (2, 1, 1), (0, 1)),
    "3d, 2 x 2 ranks": ((9, 7, 6), (2, 2, 1), (0, 1, 2, 3)),
    "3d along the last axis": ((3, 4, 19), (1, 1, 4), (0, 1, 2, 3)),
    "3d, 2 x 2 x 2 parts on four ranks": ((9, 7, 8), (2, 2, 2), (0, 0, 1, 1, 2, 2, 3, 3)),
}


@dataclass
class Case:
    """What a rank of a test has."""

    problem: Problem
    state: Field
    ranks: Communicator
    exchange: Exchange
    workers: list[Worker]


def box_stencil(ndim: int) -> Stencil:
    offsets = tuple(itertools.product((-1, 0, 1), repeat=ndim))
    return Stencil(offsets, (1 / len(offsets),) * len(offsets))


def make_case(name: str, *, periodic: bool, halo: int) -> tuple[Problem, Field, tuple[Share, ...]]:
    shape, parts, owners = CASES[name]
    boundary = Boundary.everywhere(Periodic() if periodic else Neumann(flux=1.0), len(shape))
    problem, state = make_problem(box_stencil(len(shape)), boundary, shape=shape, n_fields=2)
    slabs = cut(Domain.of(problem), parts, [1.0] * len(owners), halo)
    shares = tuple(
        Share(f"cpu:{k}", slab, CpuPlainMethod(), {}, 1 + k % 2, 1.0, 0, rank=rank)
        for k, (slab, rank) in enumerate(zip(slabs, owners, strict=True))
    )
    return problem, state, shares


def open_workers(
    problem: Problem,
    shares: tuple[Share, ...],
    rank: int,
    state: Field,
    stack: contextlib.ExitStack,
) -> list[Worker]:
    workers = []
    for share in shares:
        if share.rank == rank:
            worker = Worker(problem, share)
            stack.callback(worker.close)
            worker.stepper.load(lambda slab: part_of(state, slab))
            workers.append(worker)
    return workers


def part_of(state: Field, slab: Slab) -> Field:
    return state[(slice(None), *(slice(a, b) for a, b in zip(slab.start, slab.stop, strict=True)))]


def on_ranks(
    name: str, work: Callable[[Case], T], *, periodic: bool = False, halo: int = 2
) -> list[T]:
    """Call `work` on every rank."""
    problem, state, shares = make_case(name, periodic=periodic, halo=halo)

    def run(ranks: Communicator) -> T:
        with contextlib.ExitStack() as stack:
            workers = open_workers(problem, shares, ranks.rank, state, stack)
            return work(Case(problem, state, ranks, make_exchange(problem, shares, ranks), workers))

    return run_ranks(max(CASES[name][2]) + 1, run)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_swap_fills_every_halo_with_its_owners_values_corners_included(
    name: str, periodic: bool
) -> None:
    def work(case: Case) -> int:
        position = np.arange(case.state.size, dtype=np.float64).reshape(case.state.shape)
        for worker in case.workers:
            worker.stepper.load(lambda slab: part_of(position, slab))
        case.exchange.swap(case.workers)
        for worker in case.workers:
            slab, stepper = worker.stepper.slab, worker.stepper
            around = zip(slab.start, slab.stop, slab.halo, case.problem.grid.shape, strict=True)
            index = np.ix_(
                *([i % n for i in range(a - low, b + high)] for a, b, (low, high), n in around)
            )
            ranges = tuple(
                (-low, n + high) for n, (low, high) in zip(slab.shape, slab.halo, strict=True)
            )
            held = stepper._layout.read(stepper._current, ranges)  # type: ignore[attr-defined]
            for field in range(2):
                np.testing.assert_array_equal(held[field], position[field][index])
        return len(case.workers)

    assert sum(on_ranks(name, work, periodic=periodic)) == len(CASES[name][2])


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_any_cut_on_any_ranks_gives_the_bits_of_one_worker(name: str, periodic: bool) -> None:
    def work(case: Case) -> Field:
        for steps in (3, 2, 3):
            case.exchange.swap(case.workers)
            for worker in case.workers:
                worker.stepper.advance(steps)
        found: list[Field] = []
        whole = tuple((0, n) for n in case.problem.grid.shape)
        case.exchange.lead(
            case.workers, lambda: found.append(case.exchange.gather(case.workers, whole))
        )
        return found[0] if found else np.empty(0)

    shared = on_ranks(name, work, periodic=periodic, halo=3)[0]
    problem, state, _ = make_case(name, periodic=periodic, halo=3)
    with contextlib.ExitStack() as stack:
        share = Share("cpu:0", Slab.whole(problem.grid), CpuPlainMethod(), {}, 1, 1.0, 0)
        (alone,) = open_workers(problem, (share,), 0, state, stack)
        for steps in (3, 2, 3):
            alone.stepper.advance(steps)
        np.testing.assert_array_equal(shared, alone.stepper.interior())


@pytest.mark.parametrize("name", CASES)
def test_rank_0_gets_any_box_while_the_others_answer(name: str, rng: np.random.Generator) -> None:
    shape = CASES[name][0]
    pairs = [
        [sorted(rng.choice(n + 1, 2, replace=False).tolist()) for n in shape] for _ in range(12)
    ]
    boxes: list[Box] = [tuple((low, high) for low, high in pair) for pair in pairs]

    def work(case: Case) -> int:
        def ask() -> None:
            for box in boxes:
                found = case.exchange.gather(case.workers, box)
                np.testing.assert_array_equal(
                    found, case.state[(slice(None), *(slice(a, b) for a, b in box))]
                )
                done.append(box)

        done: list[Box] = []
        case.exchange.lead(case.workers, ask)
        case.exchange.lead(case.workers, ask)
        return len(done)

    found = on_ranks(name, work)
    assert found == [2 * len(boxes)] + [0] * (len(found) - 1)


def test_an_error_of_rank_0_ends_the_ranks_that_answer() -> None:
    def work(case: Case) -> str:
        def fail() -> None:
            msg = "not finite"
            raise NumericsError(msg)

        with pytest.raises((NumericsError, ElsewhereError)) as caught:
            case.exchange.lead(case.workers, fail)
        assert caught.value.exit_code == ExitCode.NOT_FINITE
        assert case.ranks.ending
        return type(caught.value).__name__

    assert on_ranks("3d slabs on two ranks", work) == ["NumericsError", "ElsewhereError"]


def test_messages_and_bytes_are_counted() -> None:
    def work(case: Case) -> object:
        case.exchange.swap(case.workers)
        case.exchange.swap(case.workers)
        traffic = case.exchange.traffic
        return traffic.messages, traffic.bytes

    plane = 2 * 9 * 2 * 8  # two planes of 9 points, two fields
    assert on_ranks("2d slabs on three ranks", work) == [
        (2, 2 * plane),
        (4, 4 * plane),
        (2, 2 * plane),
    ]
