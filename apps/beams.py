"""Beams: heat that falls on a face in a spot that moves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tetris_sim.apps.body import BeamSource
from tetris_sim.apps.courses import Course, formula, read_course
from tetris_sim.config.sections.quantities import LENGTH, NUMBER, POWER
from tetris_sim.config.sections.varying import Varying
from tetris_sim.model.conduction import Numbers, Parameter
from tetris_sim.model.formula import Constant, Node, Variable
from tetris_sim.model.grid import AXIS_NAMES, Grid

_OF_TIME = ("t",)


def make_beam(beam: BeamSource, number: int, grid: Grid, key: str) -> tuple[Node, list[Parameter]]:
    """The flux of a beam into its face [W/m^2] as a part of a program, with its parameters.

    In 3D it is 2 a P / (pi w^2) exp(-2 r^2 / w^2), w being half of d4sigma; in 2D, where the power
    is per metre of depth, a line: sqrt(2 / pi) a P / w exp(-2 x^2 / w^2).

    Args:
        beam: what was asked for.
        number: of the source, for names.
        grid: where points lie.
        key: of the source, for messages.

    Raises:
        ConfigError: a table cannot be read.
    """
    axes = [axis for axis in AXIS_NAMES[: grid.ndim] if axis != beam.face[0]]
    w = beam.d4sigma / 2
    peak = beam.absorptivity * (math.sqrt(2 / math.pi) / w) ** len(axes)
    power = read_course(beam.power, Varying(POWER, _OF_TIME), f"{key}.power")
    factor = read_course(beam.over_time, Varying(NUMBER, _OF_TIME), f"{key}.over_time")

    def strength(times: Numbers) -> Numbers:
        return np.asarray((peak * power.at(times) * factor.at(times))[:, None])

    name = f"peak_{number}"
    parameters = [_parameter(name, strength, [power, factor])]
    square: Node = Constant(0.0)
    for axis in axes:
        middle = _middle(beam, axis, grid, key)
        parameters.append(
            _parameter(f"{axis}_{number}", lambda times, it=middle: it.at(times)[:, None], [middle])
        )
        square = formula(
            "square + (here - middle)**2",
            square=square,
            here=Variable(axis),
            middle=Variable(f"{axis}_{number}"),
        )

    flux = formula(
        "peak*exp(rate*square)",
        peak=Variable(name),
        rate=Constant(-2 / (w * w)),
        square=square,
    )
    return (flux if axes else Variable(name)), parameters


def _middle(beam: BeamSource, axis: str, grid: Grid, key: str) -> Course:
    given = getattr(beam.path, axis)
    if given is None:
        given = grid.size[grid.axis_names.index(axis)] / 2
    return read_course(given, Varying(LENGTH, _OF_TIME), f"{key}.path.{axis}")


def _parameter(name: str, at: object, courses: Sequence[Course]) -> Parameter:
    """A parameter out of a function of times; numbers if none of the courses changes."""
    steady = all(course.value is not None for course in courses)
    return Parameter(name, at(np.zeros(1))[0] if steady else at)  # type: ignore[operator,arg-type]
