"""SIGTERM and the wall-time limit during one long solution: heard at once, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tetris_sim.config import load_config
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import IMPLICIT, STEADY
from tetris_sim.errors import ExitCode
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.plan.solving import SpectralPlan, plan_solving
from tetris_sim.simulation.loop import open_simulation
from tetris_sim.solvers import solver
from tetris_sim.solvers.krylov import LeftOffError
from tetris_sim.support.stopping import Stopping, StopReason

_BODY = """
grid: {shape: [8, 8, 8], size: [10 mm, 10 mm, 10 mm]}
model: {type: heat, material: steel}
boundaries:
  x-: {type: dirichlet, value: 100}
  "*": {type: radiation, emissivity: 0.8, ambient: 20}
initial: {type: constant, value: 20}
compute: {threads: 1, devices: cpu}
"""
_TIMES = {
    "adaptive": "time: {scheme: implicit, t_end: 1 s}",
    "steps": "time: {scheme: implicit, t_end: 1 s, dt: 0.5 s}",
    "steady": "time: {scheme: steady}",
}


def _config(directory: Path, which: str) -> object:
    path = directory / "body.yaml"
    path.write_text(_BODY + _TIMES[which] + "\n")
    return load_config(path)


def _after(n: int) -> Callable[[], bool]:
    """True from the n-th question on."""
    asked = iter(range(n))
    return lambda: next(asked, None) is None


@pytest.mark.parametrize("which", list(_TIMES))
@pytest.mark.parametrize("questions", [0, 5])
def test_a_solution_that_is_left_off_leaves_the_state_as_it_was(
    tmp_path: Path, which: str, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solver, "SMALL", 0)  # factorised, it would not be asked so often
    config = _config(tmp_path, which)
    problem = config.build()  # type: ignore[attr-defined]
    method = STEADY if which == "steady" else IMPLICIT.to(1e-2, adaptive=which == "adaptive")
    team = ThreadTeam(1)

    def begun() -> object:
        stepper = method.prepare(problem, Slab.whole(problem.grid), {}, team)
        stepper.load(problem.initial)
        return stepper

    def advanced(stepper: object) -> npt.NDArray[np.float64]:
        stepper.advance(problem.steps)  # type: ignore[attr-defined]
        return np.array(stepper.interior())  # type: ignore[attr-defined]

    stepper, right = begun(), advanced(begun())
    before = stepper.interior()  # type: ignore[attr-defined]
    stepper.heard = _after(questions)  # type: ignore[attr-defined]
    with pytest.raises(LeftOffError):
        advanced(stepper)
    assert (stepper.interior() == before).all()  # type: ignore[attr-defined]

    # what was kept for the next solution may be another preconditioner, within the tolerance
    stepper.heard = lambda: False  # type: ignore[attr-defined]
    assert np.abs(advanced(stepper) - right).max() < 0.1
    assert np.abs(right - before).max() > 10
    team.close()


def test_a_run_ends_within_one_long_step(tmp_path: Path) -> None:
    config = _config(tmp_path, "adaptive")
    problem = config.build()  # type: ignore[attr-defined]
    compute = config.compute  # type: ignore[attr-defined]
    plan = plan_solving(
        problem, find_machine(), compute, "implicit", 1e-4, stretches=SpectralPlan(1, problem.steps)
    )
    assert plan.time_block == problem.steps

    class Signalled(Stopping):
        """Asked to end from the third question on."""

        def __init__(self) -> None:
            super().__init__()
            self.asked = 0

        def reason(self, block_seconds: float = 0.0) -> StopReason | None:
            self.asked += 1
            found = StopReason(ExitCode.REQUEUE, "SIGTERM arrived")
            return found if self.asked > 3 else None

    stopping = Signalled()
    with open_simulation(problem, plan, stopping=stopping) as simulation:
        begun = simulation.field().copy()
        ended = simulation.run()
        assert ended is not None
        assert ended.exit_code == ExitCode.REQUEUE
        assert simulation.step == 0
        assert (simulation.field() == begun).all()
    assert 4 <= stopping.asked < 12
