"""How the cases are computed: by the plan and the run loop of every simulation."""

from __future__ import annotations

from dataclasses import dataclass

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Field, Problem
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.simulation.loop import open_simulation


class RefusalError(Exception):
    """The method says that it cannot do a problem; not a mistake of either."""


@dataclass(frozen=True)
class Solver:
    """Advances a problem from its first to its last step with one method.

    Attributes:
        method: which.
        machine: on what.
    """

    method: Method
    machine: Machine

    @property
    def stepwise(self) -> bool:
        """Whether a point's result does not depend on where the point lies."""
        return self.method.exact

    def __call__(self, problem: Problem, *, workers: int = 1) -> Field:
        """The state after the last step, (n_fields, n0, ...).

        Args:
            problem: what to advance, from its step 0.
            workers: between how many workers the grid is split.

        Raises:
            RefusalError: the method does not do this problem.
            UnsupportedError: it does, but disagrees with the reference.
        """
        why_not = self.method.refusal(problem)
        if why_not is not None:
            raise RefusalError(why_not)

        devices = "gpu" if self.method.device == "gpu" else ("cpu",) * workers
        # Timing candidates on problems this small would take longer than computing them.
        compute = ComputeSection(method=self.method.name, devices=devices, tuning_budget=0)
        plan = make_plan(problem, self.machine, compute)
        with open_simulation(problem, plan) as simulation:
            simulation.run()
            return simulation.field()
