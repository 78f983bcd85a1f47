"""GPUs of ranks, emulated, are told of the inside of a block before their edges are sent."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.support.ahead_cases import BLOCK, CHOSEN, STEPS, plan_on_ranks, plate
from tests.support.cases import run
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tests.support.thread_ranks import run_ranks
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod as CpuPlain
from tetris_sim.gpu_kernels.steppers.stepper import GpuStepper
from tetris_sim.model import reference
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Field
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.workers.rank_exchange import RankExchange
from tetris_sim.simulation.loop import open_simulation

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)


@pytest.mark.parametrize("method", CHOSEN, ids=lambda method: method.name)
@pytest.mark.parametrize("computers", [(0, 0, 0), (0, 1, 2)], ids=["one-computer", "three"])
def test_edges_are_sent_beside_the_inside_and_nothing_changes(
    method: Method,
    computers: tuple[int, ...],
    teams: dict[int, ThreadTeam],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = plate("rings")
    plan = plan_on_ranks(problem, method)
    events: list[str] = []

    def noted(owner: type, name: str) -> None:
        call = getattr(owner, name)

        def noting(*arguments: Any) -> Any:
            if threading.current_thread().name == "rank-0":
                events.append(name)
            return call(*arguments)

        monkeypatch.setattr(owner, name, noting)

    noted(GpuStepper, "advance_inner")
    noted(GpuStepper, "advance")
    noted(RankExchange, "_send")
    monkeypatch.setattr(HostGpu, "close", HostGpu.release, raising=False)
    monkeypatch.setattr(ComputeResource, "open", lambda place: HostGpu())

    def work(ranks: Communicator) -> Field:
        with open_simulation(problem, plan, ranks=ranks) as simulation:
            simulation.run()
            return simulation.field()

    found = run_ranks(3, work, computers=computers)[0]
    wanted = run(CpuPlain(), problem, {}, teams[2], (STEPS,))
    allowed = 0.0 if method.name == "gpu.plain" else reference.tolerance(problem, STEPS, 3.0)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed)
    assert events == -(-STEPS // BLOCK) * ["advance_inner", "_send", "_send", "advance"]
