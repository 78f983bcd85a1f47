"""Halos that travel beside the computation: the bits of one worker, in the order that hides them,
chosen where messages are slow.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support import thread_ranks
from tests.support.cases import make_problem, mixed_boundaries
from tests.support.conduction_cases import CASES
from tests.support.enthalpy_cases import cases as melting_cases
from tests.support.thread_ranks import ThreadCommunicator, run_ranks
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import CpuStepper
from tetris_sim.model.boundary import Boundary, Periodic
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.shares import Domain, Parts, Plan, Share
from tetris_sim.scheduler.plan.partition import cut
from tetris_sim.simulation.loop import open_simulation

PLAIN = METHODS[-1]
BLOCK, STEPS = 3, 8  # blocks of 3, 3 and 2


def plan_of(
    problem: Problem, method: Method, parts: Parts, owners: tuple[int, ...], *, overlapped: bool
) -> Plan:
    parameters: Parameters = method.parameters(problem)[0]
    queued = len(set(owners)) < len(owners)
    slabs = cut(Domain.of(problem), parts, [1.0] * len(owners), BLOCK)
    shares = tuple(
        Share(f"cpu:{k}", slab, method, parameters, 1 + k % 2, 1.0, 0, rank=rank, queued=queued)
        for k, (slab, rank) in enumerate(zip(slabs, owners, strict=True))
    )
    plan = Plan(shares, BLOCK, 1e-6, 0.0, copy_for_checkpoints=False, reasons=())
    return dataclasses.replace(plan, overlapped=overlapped)


def solved(problem: Problem, plan: Plan) -> Field:
    def work(ranks: Communicator) -> Field:
        with open_simulation(problem, plan, ranks=ranks) as simulation:
            simulation.run()
            return simulation.field()

    return run_ranks(1 + max(share.rank for share in plan.shares), work)[0]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number of steps for each block that began inside."""
    found: list[int] = []
    advance_inner = CpuStepper.advance_inner

    def counted(stepper: CpuStepper, steps: int, axis: int) -> None:
        advance_inner(stepper, steps, axis)
        if stepper._begun is not None:
            found.append(steps)

    monkeypatch.setattr(CpuStepper, "advance_inner", counted)
    return found


# Points, cuts per axis, the rank of each part, parts that begin inside.
CUTS: list[tuple[str, tuple[int, ...], Parts, tuple[int, ...], int]] = [
    ("heat-2d", (61, 17), (2, 1), (0, 1), 2),
    ("heat-2d", (90, 17), (3, 1), (0, 1, 2), 3),
    ("heat-2d", (61, 17), (2, 1), (0, 0), 0),  # in one process: threads wait for themselves
    ("heat-2d", (83, 17), (3, 1), (0, 0, 1), 0),
    ("heat-3d", (9, 61, 7), (2, 2, 1), (0, 1, 2, 3), 4),
    ("heat-2d", (17, 61), (1, 2), (0, 1), 0),  # along rows
    ("heat-2d", (8, 9), (2, 1), (0, 1), 0),  # too short
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize(("name", "shape", "parts", "owners", "inside"), CUTS)
def test_any_cut_has_the_bits_of_one_worker(
    method: Method,
    name: str,
    shape: tuple[int, ...],
    parts: Parts,
    owners: tuple[int, ...],
    inside: int,
    begun: list[int],
) -> None:
    stencil = named_stencil(name).stencil
    boundaries = dict(mixed_boundaries(stencil.ndim))
    for kind in [list(boundaries)[number] for number in (3, 4, 8)]:
        begun.clear()
        problem, _ = make_problem(stencil, boundaries[kind], shape=shape, steps=STEPS)
        alone = solved(
            problem, plan_of(problem, PLAIN, (1,) * stencil.ndim, (0,), overlapped=False)
        )
        assert not begun
        shared = solved(problem, plan_of(problem, method, parts, owners, overlapped=True))
        assert sorted(begun) == sorted([BLOCK, BLOCK, STEPS % BLOCK] * inside)
        np.testing.assert_array_equal(shared, alone, err_msg=kind)


@pytest.mark.parametrize("method", METHODS[1:], ids=lambda method: method.name)
@pytest.mark.parametrize("name", ["plate", "block", "melting"])
def test_a_body_has_the_bits_of_one_worker(name: str, method: Method, begun: list[int]) -> None:
    if name == "melting":
        problem = next(it for it in melting_cases().values() if it.grid.ndim == 2)
        problem = dataclasses.replace(problem, steps=STEPS)
    else:
        case = next(case for case in CASES if case.name == name)
        shape = (61, *case.shape[1:])
        problem = dataclasses.replace(case, shape=shape).problem(steps=STEPS)
    one, two = ((n, *(1 for _ in problem.grid.shape[1:])) for n in (1, 2))
    alone = solved(problem, plan_of(problem, PLAIN, one, (0,), overlapped=False))
    shared = solved(problem, plan_of(problem, method, two, (0, 1), overlapped=True))
    np.testing.assert_array_equal(shared, alone)


def test_messages_are_sent_before_the_inside_begins_and_waited_for_after_that(
    begun: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    send, wait, start = ThreadCommunicator.send, thread_ranks._Arrival.wait, CpuStepper._start

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*arguments: Any) -> Any:
            if threading.current_thread().name == "rank-0":
                events.append(name)
            return call(*arguments)

        return noting

    monkeypatch.setattr(ThreadCommunicator, "send", noted("send", send))
    monkeypatch.setattr(thread_ranks._Arrival, "wait", noted("wait", wait))
    monkeypatch.setattr(CpuStepper, "_start", noted("start", start))
    boundary = Boundary.everywhere(Periodic(), 2)
    problem, _ = make_problem(named_stencil("heat-2d").stencil, boundary, shape=(61, 9), steps=3)
    orders = []
    for overlapped in (False, True):
        events.clear()
        solved(problem, plan_of(problem, PLAIN, (2, 1), (0, 1), overlapped=overlapped))
        first = min(events.index("wait"), events.index("start"))
        orders.append(" ".join(events[first - 2 : first + 5]))

    # Two messages each way; in one part, or the inside and a rim for each side.
    in_one_part, in_two = orders
    assert in_one_part.startswith("send send wait wait start")
    assert in_two == "send send start wait wait start start"
    assert begun == [3, 3]


def test_an_inside_that_fails_ends_all_ranks_with_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = CpuStepper._start

    def failing(stepper: CpuStepper, steps: int, operands: tuple[Any, ...]) -> None:
        def fail(thread: int) -> None:
            msg = f"the inside of thread {thread} failed"
            raise ArithmeticError(msg)

        if stepper._begun is not None and stepper.slab.start[0] > 0:
            stepper._team.start(fail)
        else:
            start(stepper, steps, operands)

    monkeypatch.setattr(CpuStepper, "_start", failing)
    boundary = Boundary.everywhere(Periodic(), 2)
    problem, _ = make_problem(named_stencil("heat-2d").stencil, boundary, shape=(61, 9), steps=3)
    with pytest.raises(ArithmeticError, match="the inside of thread"):
        solved(problem, plan_of(problem, PLAIN, (2, 1), (0, 1), overlapped=True))
