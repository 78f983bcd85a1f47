"""What tests of the tuner share."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.cases import make_problem
from tetris_sim.model.boundary import Boundary, Neumann
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.tuning.candidates import TuningRequest
from tetris_sim.scheduler.tuning.choice import Choice
from tetris_sim.scheduler.tuning.tune import Terms

MACHINE = Machine(
    "host", "cpu", 2, "cores in the affinity mask", 8 << 30, "free memory of the machine"
)
TERMS = Terms(TuningRequest(), threads=1, fixed_threads=True, budget=2.0)
FAST, SLOW = {"delay_us": 0}, {"delay_us": 3000}  # a step of the grid below takes 10 us

Use = Callable[..., None]


def problem_of(shape: tuple[int, ...] = (90, 70), steps: int = 10**6) -> Problem:
    stencil = named_stencil("heat-2d").stencil
    return make_problem(stencil, Boundary.everywhere(Neumann(), 2), shape=shape, steps=steps)[0]


def label(choice: Choice) -> tuple[str, dict[str, int]]:
    return choice.method.name, dict(choice.parameters)


def notes(choice: Choice) -> dict[tuple[str, int], str]:
    return {(row.method, row.parameters.get("delay_us", -1)): row.note for row in choice.rows}
