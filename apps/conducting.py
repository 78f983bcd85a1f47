"""A body whose material, sources or faces differ from place to place or from time to time.

Everything that needs a look at files and points is done once, by `examine`, which collects what is
wrong; the problem is built out of what it found.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tetris_sim.apps.body import BeamSource, RegionSection, Substance, VolumeSource
from tetris_sim.apps.body_checks import stamps, texts_in
from tetris_sim.apps.body_faces import FaceMaker, openness
from tetris_sim.apps.courses import check_course, check_in_space
from tetris_sim.apps.curves import in_potentials
from tetris_sim.apps.domain import KeyPath, make_each, make_grid
from tetris_sim.apps.graded import (
    GradedCoefficients,
    graded_coefficients,
    largest_stable_step,
)
from tetris_sim.apps.initial import positions
from tetris_sim.apps.painting import Painting
from tetris_sim.apps.sources import Heating, make_source_rule, read_source
from tetris_sim.apps.survey import Survey, survey
from tetris_sim.config.sections.schema import Request
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.conduction import Conduction, Numbers
from tetris_sim.model.grid import Grid

if TYPE_CHECKING:
    from tetris_sim.apps.thermal import HeatModel

_MOST_POINTS = 1 << 33  # a look at more takes longer than most runs
_TIMES = 101  # from the start to the end, at which courses are looked at


@dataclass(frozen=True, eq=False)
class Body:
    """What a look at files and points found.

    Attributes:
        grid: where points lie.
        found: by the look at every point.
        heatings: the sources in the body, by number.
        boundary: rules at all faces that are not periodic.
        coefficients: of faces between cells that differ in width.
        dt_limit: largest stable time step [s].
        limiting: name of the material that sets it.
    """

    grid: Grid
    found: Survey
    heatings: dict[int, Heating]
    boundary: Boundary
    coefficients: GradedCoefficients | None
    dt_limit: float
    limiting: str

    @property
    def only_substance(self) -> Substance | None:
        """What all of the body is of, if nothing else is in the box and nothing heats it."""
        fillings = self.found.fillings
        several = self.heatings or len(fillings) > 1 or self.found.enthalpy is not None
        return None if several else fillings[0].substance

    def conduction(self) -> Conduction:
        """The step, with the tables of the medium."""
        medium, source, enthalpy = self.found.medium(), None, self.found.enthalpy
        if enthalpy is not None:
            medium = in_potentials(medium, enthalpy)
        if self.heatings:
            volumes = {n: self.found.volume(n) for n in self.heatings}
            source = make_source_rule(self.heatings, self.found.sources, volumes)
        return Conduction(medium, source, self.coefficients, enthalpy)

    @property
    def ambients(self) -> Numbers:
        """The temperature of the fluid of each id, NaN where there is none [degC]."""
        return np.array(
            [math.nan if it.fluid is None else it.fluid.ambient for it in self.found.fillings]
        )


@dataclass(frozen=True)
class _Question:
    """A body to examine; equal ones have the same answer."""

    text: str
    files: tuple[tuple[str, int, int], ...]
    model: HeatModel = field(compare=False)
    request: Request = field(compare=False)


def examine(model: HeatModel, request: Request) -> tuple[Body | None, dict[str, str]]:
    """The body, and what is wrong with it by key; a body that was examined lately is remembered."""
    values = [
        model.model_dump(mode="json"),
        request.model_dump(mode="json", include={"grid", "boundaries", "time"}),
    ]
    return _examine(_Question(json.dumps(values), stamps(texts_in(values)), model, request))


@functools.lru_cache(maxsize=2)
def _examine(question: _Question) -> tuple[Body | None, dict[str, str]]:
    mistakes: dict[str, str] = {}
    try:
        body = _look(question.model, question.request, mistakes)
    except ConfigError as error:
        for line in str(error).splitlines():
            key, _, message = line.partition(": ")
            mistakes.setdefault(key, message)
        return None, mistakes
    return (None if mistakes else body), mistakes


def key_path(key: str) -> KeyPath:
    """A key as a path: "model.regions.0.where"."""
    return tuple(int(part) if part.isdecimal() else part for part in key.split("."))


def _look(model: HeatModel, request: Request, mistakes: dict[str, str]) -> Body:
    grid = make_grid(request.grid)
    if grid.n_points > _MOST_POINTS:
        msg = (
            f"grid.shape: every point of a body of several materials is looked at, and "
            f"{grid.n_points:.3g} are more than the {_MOST_POINTS:.3g} that this is made for"
        )
        raise ConfigError(msg)
    regions = model.regions or (RegionSection(material=next(iter(model.substances()))),)
    volumes = [(n, it) for n, it in enumerate(model.sources) if isinstance(it, VolumeSource)]
    painting = Painting(grid, regions, volumes, tuple(model.substances().values()))
    found = survey(painting, model.contacts, grid, openness(request, grid))
    mistakes |= painting.mistakes

    for number in set(range(len(regions))) - painting.covered[0]:
        mistakes[f"model.regions.{number}"] = (
            "the region covers the centre of no cell; move it, make it larger, or the grid finer"
        )
    for number in {number for number, _ in volumes} - painting.covered[1]:
        mistakes[f"model.sources.{number}"] = (
            "the source covers no cell of the body, so it heats nothing; move it, or make it larger"
        )
    names = [it.name for it in painting.fillings]
    for number, contact in enumerate(model.contacts):
        a, b = sorted(names.index(name) for name in contact.between)
        if (a, b) not in found.touching:
            mistakes[f"model.contacts.{number}.between"] = (
                f"{contact.between[0]} and {contact.between[1]} touch nowhere, so nothing resists"
            )

    if mistakes:
        raise ConfigError("\n".join(f"{key}: {said}" for key, said in mistakes.items()))

    times = _times(request)
    beams = {n: it for n, it in enumerate(model.sources) if isinstance(it, BeamSource)}
    heated = bool(volumes) or found.enthalpy is not None
    faces = FaceMaker(request.boundaries, found, beams, times, heated=heated)

    read = [functools.partial(_read_source, n, it, found, times) for n, it in volumes]
    made: list[list[Any]] = make_each([lambda: make_each(read), lambda: [faces.boundary()]])
    heatings = dict(zip(dict(volumes), made[0], strict=True))
    beyond = openness(request, grid)
    graded = graded_coefficients(found, model.contacts, beyond) if grid.is_graded else None
    limit, limiting = found.dt_limit, found.limiting
    if graded is not None:
        limit, number = largest_stable_step(graded, tuple(painting.blocks()), beyond.insulated)
        limiting = found.fillings[number].name
    return Body(grid, found, heatings, made[1][0], graded, limit, limiting)


def _times(request: Request) -> Numbers:
    """Times from the start to the end of the run, as far as the configuration knows it [s]."""
    time = request.time
    end = time.t_end or (time.dt * (time.steps or 0) if isinstance(time.dt, float) else 0.0)
    return np.linspace(0.0, end, _TIMES)


def _read_source(number: int, source: VolumeSource, found: Survey, times: Numbers) -> Heating:
    """The numbers of a source, all of them finite."""
    key, grid = f"model.sources.{number}", found.painting.grid
    heating = read_source(source, key)
    check_course(heating.factor, times, f"{key}.over_time")
    if not heating.strength.in_space:
        check_course(heating.strength, times, f"{key}.{'power' if heating.is_total else 'density'}")
        return heating
    heats = np.array([number in sources for _, sources in found.painting.states])
    for box in found.painting.blocks():
        at = dict(zip(grid.axis_names, positions(grid, box), strict=True))
        marked = heats[found.painting(box)]
        check_in_space(heating.strength, (at, box, grid), times, f"{key}.density", marked)
    return heating
