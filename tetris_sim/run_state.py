"""RunStates: what a run remembers of itself in its checkpoints."""

from __future__ import annotations

import time
from typing import Any

from tetris_sim.config import Config
from tetris_sim.model.problem import Problem
from tetris_sim.outputs.checkpoint import RunState, problem_digest
from tetris_sim.report import package_versions
from tetris_sim.scheduler.facts.shares import Plan, names_of
from tetris_sim.support.progress import PhaseClock


class RunStates:
    """Makes the run state at any step of one run.

    Args:
        config: what it does.
        problem: what it advances.
        plan: how.
        clock: how long it has taken so far.
        earlier: the state that it continues from, if it does.
        run_id: what tells it from others.
    """

    def __init__(
        self,
        config: Config,
        problem: Problem,
        plan: Plan,
        clock: PhaseClock,
        *,
        earlier: RunState | None,
        run_id: str,
    ) -> None:
        self._problem, self._clock, self._run_id = problem, clock, run_id
        self._text = config.resolved_text()
        self._history: tuple[str, ...] = ()
        self._wall_before = 0.0
        if earlier is not None:
            self._history = earlier.config_history + (
                () if earlier.config == self._text else (earlier.config,)
            )
            self._wall_before = earlier.wall_time_s
        workers: dict[str, Any] = {
            name: {"method": share.method.name, "parameters": dict(share.parameters)}
            for name, share in zip(names_of(plan), plan.shares, strict=True)
        }
        self._methods = {"time_block": plan.time_block, "workers": workers}

    def at(self, step: int) -> RunState:
        """The state after so many steps."""
        return RunState(
            step=step,
            dt=self._problem.dt,
            steps=self._problem.steps,
            run_id=self._run_id,
            config=self._text,
            config_history=self._history,
            problem_digest=problem_digest(self._problem),
            methods=self._methods,
            created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            versions=package_versions(),
            wall_time_s=self._clock.elapsed + self._wall_before,
            outputs={},
            start=self._problem.start,
        )
