"""A run that never ran: problems, states made of numbers that say where they are, and snapshots
that count reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tetris_sim.config.sections.quantities import Every
from tetris_sim.model.boundary import Boundary, Face, Neumann
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem, StateVariable, Total
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.outputs.field_file import Provenance
from tetris_sim.outputs.fields import FieldsOutput
from tetris_sim.outputs.output import StepSchedule

T = TypeVar("T")

SHAPES: dict[int, tuple[int, ...]] = {1: (7,), 2: (5, 8), 3: (3, 5, 4)}
SIZES: dict[int, tuple[float, ...]] = {1: (0.7,), 2: (0.25, 0.8), 3: (0.06, 0.05, 0.08)}
PROVENANCE = Provenance(
    config="title: Test\nmodel: {type: heat}\n", title="Test", run_id="abc", versions={"x": "1"}
)
TEMPERATURE = StateVariable("temperature", "degC", "temperature", Total("heat", "J", 2.5))
SALT = StateVariable("salt", "kg/m^3", "salt content", Total("mass", "kg", 1.0))


def make_problem(
    shape: tuple[int, ...] = SHAPES[2],
    size: tuple[float, ...] | None = None,
    *,
    variables: Sequence[StateVariable] = (TEMPERATURE,),
    dtype: str = "float64",
    dt: float = 0.5,
    steps: int = 40,
    face: Face | None = None,
    dt_limit: float = 1.0,
) -> Problem:
    """A problem whose initial state is `state(problem, 0)`."""
    ndim = len(shape)
    grid = Grid.box(shape, SIZES[ndim] if size is None else size)
    problem = Problem(
        grid=grid,
        stencil=named_stencil(f"heat-{ndim}d").stencil,
        boundary=Boundary.everywhere(face or Neumann(), ndim),
        initial=lambda slab: state(problem, 0)[(slice(None), *slab_slices(slab))],
        dt=dt,
        steps=steps,
        dtype=np.dtype(dtype),
        variables=tuple(variables),
        dt_limit=dt_limit,
    )
    return problem


def state(problem: Problem, step: int) -> Field:
    """Different numbers at every point, in every variable and at every step, (n_fields, n0,
    ...).
    """
    numbers = np.arange(math.prod(problem.state_shape), dtype=np.float64).reshape(
        problem.state_shape
    )
    return (np.sin(numbers) * 10 + numbers / 7 + step / 3).astype(problem.dtype)


def slab_slices(slab: Slab) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in zip(slab.start, slab.stop, strict=True))


@dataclass
class FakeSnapshot:
    """A snapshot of a given state; it remembers the largest box that was asked for."""

    problem: Problem
    step: int
    values: Field
    largest: int = 0
    boxes: list[Box] = field(default_factory=list)
    moved: Mapping[str, float] = field(default_factory=dict)

    @property
    def time(self) -> float:
        return self.problem.time(self.step)

    def field(self) -> Field:
        msg = "an output must not ask for the whole state at once"
        raise AssertionError(msg)

    def box(self, box: Box) -> Field:
        part = self.values[(slice(None), *(slice(low, high) for low, high in box))]
        assert part.size == self.problem.n_fields * math.prod(high - low for low, high in box), box
        self.boxes.append(box)
        self.largest = max(self.largest, part.nbytes)
        return part

    def hidden(self, box: Box) -> Field:
        return self.box(box)


def snapshot(problem: Problem, step: int) -> FakeSnapshot:
    return FakeSnapshot(problem, step, state(problem, step))


def every(steps: int, problem: Problem) -> StepSchedule:
    return StepSchedule(Every(steps, "steps"), problem.dt, problem.steps)


def fields_output(problem: Problem, directory: Path, **options: Any) -> FieldsOutput:
    return FieldsOutput(problem, directory, every(20, problem), provenance=PROVENANCE, **options)


def write_fields(
    problem: Problem, directory: Path, steps: Sequence[int] = (0, 20, 40), **options: Any
) -> None:
    """What a run leaves that writes its fields at these steps."""
    output = fields_output(problem, directory, **options)
    output.start(0)
    for step in steps:
        output.write(snapshot(problem, step))
    output.close()


def names(directory: Path) -> list[str]:
    """Every file below a directory, by its relative path."""
    return sorted(
        str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()
    )
