"""Standards: bodies whose temperatures and heat flows a standard prints, posed as a user would.

Each is a configuration; what it finds is compared with the numbers of the standard and the
deviations that this allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tetris_sim.config import make_config
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs.audit import Audit
from tetris_sim.outputs.regions import neighbours_of, read_along
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.plan.solving import plan_solving
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.simulation.loop import open_simulation
from tetris_sim.simulation.workers import StateSnapshot


@dataclass(frozen=True)
class Row:
    """A number of a standard.

    Attributes:
        quantity: what it is of, with its unit.
        published: it.
        tolerance: by how much another may differ.
        found: what was computed.
    """

    quantity: str
    published: float
    tolerance: float
    found: float

    @property
    def passed(self) -> bool:
        """Whether the two agree; NaN never does."""
        return abs(self.found - self.published) <= self.tolerance


@dataclass(frozen=True)
class Standard:
    """A case of a standard.

    Attributes:
        name: of the case.
        source: where its numbers are from.
        sections: its configuration.
        look: what it finds.
    """

    name: str
    source: str
    sections: Mapping[str, Any]
    look: Callable[[Answer], Iterator[Row]]

    def rows(self, machine: Machine) -> list[Row]:
        """Solve it and compare."""
        sections = {"initial": {"type": "constant", "value": 10}, **self.sections}
        config = make_config(sections)
        problem, compute = config.build(), ComputeSection(devices="cpu")
        if config.time.scheme == "steady":
            plan = plan_solving(problem, machine, compute, "steady", config.time.of_balances)
        else:
            plan = make_plan(problem, machine, compute.model_copy(update={"tuning_budget": 0.0}))
        with open_simulation(problem, plan) as simulation:
            simulation.run()
            return list(self.look(Answer(simulation.snapshot())))


class Answer:
    """What is asked of the state at the end."""

    def __init__(self, snapshot: StateSnapshot) -> None:
        self._snapshot = snapshot
        self.problem: Problem = snapshot.problem

    def temperature(self, *place: float) -> float:
        """At x, y, z [degC]."""
        position = place[::-1]
        axes = [neighbours_of(self.problem, k, it) for k, it in enumerate(position)]
        return float(read_along(self._snapshot, axes)[0])

    def flows(self) -> dict[str, float]:
        """Heat flows through faces and between materials by name, without "heat flow" [W]."""
        audit = Audit(self.problem)
        values = (
            audit.look_at_faces(self._snapshot, 0.0)
            if self.problem.conduction is None
            else audit.look_at_body(self._snapshot)[1]
        )
        named = zip(audit.columns, values, strict=True)
        begin = "heat flow "
        return {
            name.removeprefix(begin).partition(" [")[0]: value
            for name, value in named
            if name.startswith(begin)
        }

    def within(self, place: Sequence[float], into: Sequence[float]) -> float:
        """At x, y, z where materials meet, as a straight line in one of them has it [degC].

        Args:
            place: where.
            into: from there to the second cell of the material: 3/2 of their width.
        """
        first, second = (
            self.temperature(*(p + share * step for p, step in zip(place, into, strict=True)))
            for share in (1 / 3, 1.0)
        )
        return 1.5 * first - 0.5 * second

    def field(self) -> Field:
        """Temperatures, (n0, ...) [degC]."""
        found: Field = self._snapshot.field()[0]
        return found

    def from_fluids(self) -> dict[float, float]:
        """Heat that the body takes from what is held, by the temperature of that [W]."""
        conduction, grid = self.problem.conduction, self.problem.grid
        assert conduction is not None and conduction.coefficients is not None  # noqa: PT018
        whole = tuple((0, n) for n in grid.shape)
        held = np.isinf(conduction.coefficients.capacity(whole))
        u, found = self._snapshot.field()[0], dict[float, float]()
        for axis in range(grid.ndim):
            between = np.array(conduction.coefficients.conductance(axis, whole))
            between[(slice(None),) * axis + (-1,)] = 0.0  # that of a face of the box
            for shift in (1, -1):
                k = np.roll(between, -shift, axis) if shift < 0 else between
                into = np.where(held & ~np.roll(held, -shift, axis), k, 0.0)
                into *= u - np.roll(u, -shift, axis)
                for ambient in np.unique(u[held]):
                    share = float(into[held & (u == ambient)].sum())
                    found[float(ambient)] = found.get(float(ambient), 0.0) + share
        return found


def solid(conductivity: float) -> dict[str, float]:
    """A material of which only the conductivity counts."""
    return {"conductivity": conductivity, "density": 1000.0, "specific_heat": 1000.0}


def cells(*segments: tuple[float, int]) -> dict[str, Any]:
    """A graded axis: (where a segment ends [m], its cells)."""
    return {"segments": [{"to": to, "n": n} for to, n in segments]}


def grid(**axes: dict[str, Any]) -> dict[str, Any]:
    """A grid of graded axes x, y, z."""
    ends = [axis["segments"] for axis in axes.values()]
    return {
        "shape": [sum(it["n"] for it in axis) for axis in ends],
        "size": [axis[-1]["to"] for axis in ends],
        "graded": axes,
    }


def compare(
    answer: Answer, points: Mapping[str, Sequence[float]], published: Sequence[float], within: float
) -> Iterator[Row]:
    """Temperatures at points by name."""
    for (name, place), number in zip(points.items(), published, strict=True):
        yield Row(f"{name} [degC]", number, within, answer.temperature(*place))
