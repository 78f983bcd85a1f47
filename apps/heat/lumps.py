"""Lumped parts: sinks, tanks and rooms of one temperature each, that exchange heat with faces,
regions and fluids of a body, with surroundings and with each other.

Between two steps of the field everything that a lump sees of it stays as it is, so that

    C dT/dt = P + sum of G_i (T_i - T) + sum of (T_j - T) / R_j

is linear with constant numbers, and is solved exactly by the matrix exponential for all lumps
together: no capacity is too small. The step of the field then takes the mean temperature of each
lump over it, so what a lump gives is what the field gets, to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.time_functions import TimeFunction, check_course, read_course
from tetris_sim.config.sections.conditions import FaceName, NeumannFace
from tetris_sim.config.sections.quantities import (
    POWER,
    TEMPERATURE,
    HeatTransferCoefficient,
    Quantity,
    Section,
    Temperature,
)
from tetris_sim.config.sections.schema import ProbeName
from tetris_sim.config.sections.varying import Varying, VaryingPower, VaryingSetpoint
from tetris_sim.errors import ConfigError
from tetris_sim.model.conduction import Conduction, Numbers, Parameter
from tetris_sim.model.equations import Lump, LumpNetwork
from tetris_sim.model.step_control import Signal
from tetris_sim.support.wording import listed, suggestion

if TYPE_CHECKING:
    from tetris_sim.apps.heat.model import HeatModel
    from tetris_sim.apps.heat.survey import GridScan
    from tetris_sim.config.sections.schema import Request

Capacity = Annotated[float, Quantity("a heat capacity", "J/K", ("140 J/K",), "positive")]
Resistance = Annotated[float, Quantity("a thermal resistance", "K/W", ("0.3 K/W",), "positive")]
_KINDS = ("face", "region", "lump", "ambient")


class ExchangeSection(Section):
    """What a lump exchanges heat with: a face, a region, another lump or surroundings."""

    face: FaceName | None = None
    """A face of the box: an insulated one, or one with a flux; with `h`."""
    h: HeatTransferCoefficient | None = None
    """Between the face and the lump [W/(m^2 K)]."""
    region: str | None = None
    """A region of a material, with `resistance`, which is spread evenly over its cells; or one of a
    fluid, which then is as warm as the lump, with the `h` of the fluid.
    """
    lump: str | None = None
    """Another lump, with `resistance`; said by one of the two."""
    ambient: VaryingSetpoint | None = None
    """Surroundings of this temperature [degC], with `resistance`."""
    resistance: Resistance | None = None
    """[K/W], in 2D times metres of depth, in 1D times square metres of cross-section."""

    @model_validator(mode="after")
    def _of_one_kind(self) -> ExchangeSection:
        kinds = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            msg = f"{listed(kinds, 'and') or 'nothing'} given; give one of {listed(_KINDS)}"
            raise ValueError(msg)
        if (self.h is not None) != (self.face is not None):
            msg = "a face and its h belong together"
            raise ValueError(msg)
        if self.resistance is None and kinds[0] in ("lump", "ambient"):
            msg = f"{kinds[0]} is given without resistance"
            raise ValueError(msg)
        if self.resistance is not None and self.face is not None:
            msg = "a face exchanges by h; leave resistance out"
            raise ValueError(msg)
        return self


class LumpSection(Section):
    """A part of one temperature: a sink, a tank, a room."""

    capacity: Capacity
    """[J/K], in 2D per metre of depth, in 1D per square metre of cross-section."""
    initial: Temperature
    """Its temperature when the run begins [degC]."""
    power: VaryingPower = 0.0
    """That heats it [W]; a number, a table over time or a formula of t."""
    exchanges: Annotated[tuple[ExchangeSection, ...], Field(min_length=1)]
    """With what it exchanges heat."""


Lumps = dict[ProbeName, LumpSection]


def lump_mistakes(model: HeatModel, request: Request) -> Iterator[tuple[KeyPath, str]]:
    """Yield names of exchanges that are nothing, and what lumps cannot go with, with key paths."""
    if not model.lumps:
        return
    regions = {it.name: it for it in model.regions if it.name is not None}
    faces = [axis + sign for axis in request.grid.names for sign in "-+"]
    known: dict[str, Sequence[str]] = {
        "face": faces,
        "region": [*regions],
        "lump": [*model.lumps],
    }
    if request.time.scheme not in ("auto", "explicit"):
        told = "lumps go with explicit steps; leave it out"
        yield ("time", "scheme"), told
    if request.compute.precision == "float16":
        told = "bodies with lumps are equations, in float64 or float32; not in float16"
        yield ("compute", "precision"), told

    for name, lump in model.lumps.items():
        if name in request.control:
            yield ("model", "lumps", name), "a controller has this name; choose another one"
        for number, it in enumerate(lump.exchanges):
            path: KeyPath = ("model", "lumps", name, "exchanges", number)
            for kind, names in known.items():
                given = getattr(it, kind)
                if given is not None and given not in names:
                    meant = suggestion(given, names)
                    there = listed(names, "and") if names else "none"
                    yield (*path, kind), f"{given!r} is no {kind}{meant}; known are {there}"
            if it.lump == name:
                yield (*path, "lump"), "it exchanges no heat with itself; name another lump"
            region = regions.get(it.region or "")
            if region is not None and region.void:
                yield (*path, "region"), "in a void there is nothing to exchange heat with"
            elif region is not None and (region.fluid is None) == (it.resistance is None):
                told = "has its own h" if region.fluid is not None else "needs a resistance"
                yield (*path, "region"), f"this region {told}"
            if it.face in faces and not _is_free(request, it.face):
                told = f"boundaries of {it.face} give more than a flux; let it be neumann"
                yield (*path, "face"), told


def _is_free(request: Request, face: str) -> bool:
    key = next((key for key in (face, face[:-1], "*") if key in request.boundaries), None)
    return key is None or isinstance(request.boundaries[key], NeumannFace)


def read_lumps(
    sections: Mapping[str, LumpSection],
    numbers: Mapping[str, int],
    found: GridScan,
    body: Conduction,
    joules: float,
) -> tuple[Lump, ...]:
    """Return the lumps of a body with what they exchange with its cells.

    Args:
        sections: by name.
        numbers: of regions by name.
        found: the body.
        body: its conduction.
        joules: what an exchange is in watts: coefficients of graded axes are of whole cells,
            conductances of even grids per volume.

    Raises:
        ConfigError: an exchange is with nothing.
    """
    grid = found.painting.grid
    whole = tuple((0, n) for n in grid.shape)
    ids = body.medium.ids(whole)
    solid = np.isfinite(body.medium.capacity)[ids]
    lumps = []

    for name, section in sections.items():
        gives, takes, offset = (np.zeros(grid.shape) for _ in range(3))
        for number, it in enumerate(section.exchanges):
            if it.face is not None:
                own = _of_face(found, ids, solid, it) / joules
                gives, takes = gives + own, takes + own
            elif it.region is not None:
                cells = found.painting.seen(numbers[it.region], whole)
                key = f"model.lumps.{name}.exchanges.{number}.region"
                fluid = found.painting.regions[numbers[it.region]].fluid
                if fluid is not None:
                    own = _beside(body, found, ids, cells, solid)
                    # The cells exchange with the fluid at its ambient already: a lump adds
                    # only the difference.
                    gives, offset = gives + own, offset + own * fluid.ambient
                    cells = own > 0
                else:
                    cells = cells & solid
                    shares = np.where(cells, grid.volumes(whole), 0.0)
                    own = shares / max(shares.sum(), 1e-300) / (it.resistance or 1.0) / joules
                    gives, takes = gives + own, takes + own
                if not cells.any():
                    msg = f"{key}: {it.region} has no cell that exchanges heat"
                    raise ConfigError(msg)
        mean, now = (Signal(f"{name} {what}", section.initial) for what in ("mean", "now"))
        lumps.append(Lump(name, gives, takes, offset, mean, now))
    return tuple(lumps)


def _of_face(found: GridScan, ids: Any, solid: Any, it: ExchangeSection) -> Numbers:
    """Conductances between the cells beside a face and a lump [W/K]."""
    grid = found.painting.grid
    assert it.face is not None
    axis = grid.axis_names.index(it.face[:-1])
    n = grid.shape[axis]
    low, high = ((0, 1), (-1, 0)) if it.face[-1] == "-" else ((n - 1, n), (n - 1, n))
    whole = [(0, length) for length in grid.shape]
    plane = tuple(slice(*(low if k == axis else span)) for k, span in enumerate(whole))
    faces = tuple(high if k == axis else span for k, span in enumerate(whole))

    direction = grid.ndim - 1 - axis  # of x, y, z
    k = np.array(
        [
            1.0 if f.substance is None else f.substance.conductivity[direction]
            for f in found.fillings
        ]
    )
    width = grid.distances(axis, tuple(low if k == axis else s for k, s in enumerate(whole)))
    # The film is in series with the half cell beside the face.
    with np.errstate(divide="ignore"):
        per_area = 1 / (1 / np.float64(it.h or 0.0) + width / (2 * k[ids[plane]]))
    result = np.zeros(grid.shape)
    result[plane] = np.where(solid[plane], per_area * grid.areas(axis, faces), 0.0)
    return result


def _beside(body: Conduction, found: GridScan, ids: Any, cells: Any, solid: Any) -> Numbers:
    """Conductances of solid cells to neighbours among some cells, in units of the body."""
    grid = found.painting.grid
    result = np.zeros(grid.shape)
    for axis, n in enumerate(grid.shape):
        low, high = (
            tuple(slice(*(span if k == axis else (0, m))) for k, m in enumerate(grid.shape))
            for span in ((0, n - 1), (1, n))
        )

        faces = tuple((0, m - (k == axis)) for k, m in enumerate(grid.shape))
        between = body.between(axis, faces, ids[low], ids[high])
        result[low] += np.where(solid[low] & cells[high], between, 0.0)
        result[high] += np.where(solid[high] & cells[low], between, 0.0)
    return result


def make_network(
    sections: Mapping[str, LumpSection], lumps: tuple[Lump, ...], joules: float, times: Numbers
) -> LumpNetwork:
    """Return the network of the lumps of a configuration.

    Args:
        sections: by name, in the order of `lumps`.
        lumps: with what they exchange with cells.
        joules: what an exchange of theirs is in watts.
        times: at which numbers are checked [s].

    Raises:
        ConfigError: a table cannot be read, or a number is not finite.
    """
    names, n = [*sections], len(sections)
    between, outside = np.zeros((n, n)), np.zeros(n)
    powers, ambients = list[Parameter](), list[list[tuple[float, Parameter]]]()
    for k, (name, section) in enumerate(sections.items()):
        key = f"model.lumps.{name}"
        powers.append(_read(section.power, Varying(POWER, ("t",)), f"{key}.power", times))
        ambients.append([])
        for number, it in enumerate(section.exchanges):
            g = 1 / (it.resistance or np.inf)
            if it.lump is not None:
                other = names.index(it.lump)
                # Said by one of the two, felt by both.
                between[k, other] += g
                between[other, k] += g
            elif it.ambient is not None:
                at = f"{key}.exchanges.{number}.ambient"
                course = _read(it.ambient, Varying(TEMPERATURE, ("t",)), at, times)
                ambients[-1].append((g, course))
                outside[k] += g

    outside += joules * np.array([it.gives.sum() for it in lumps])
    capacity = np.array([it.capacity for it in sections.values()])
    return LumpNetwork(lumps, capacity, between, outside, powers, ambients, joules)


def _read(given: Any, kind: Varying, key: str, times: Numbers) -> Parameter:
    course: TimeFunction = read_course(given, kind, key)
    check_course(course, times, key)
    if course.value is not None:
        return Parameter("course", np.array([course.value]))
    return Parameter("course", lambda at: course.at(at)[:, None], course.knots)
