"""Lumped parts: sinks, tanks and rooms of one temperature each, that exchange heat with faces,
regions and fluids of a body, with surroundings and with each other.

Between two steps of the field everything that a lump sees of it stays as it is, so that

    C dT/dt = P + sum of G_i (T_i - T) + sum of (T_j - T) / R_j

is linear with constant numbers, and is solved exactly by the matrix exponential for all lumps
together: no capacity is too small. The step of the field then takes the mean temperature of each
lump over it, so what a lump gives is what the field gets, to rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.heat.materials import Capacity, FluidSection
from tetris_sim.apps.time_functions import TimeFunction, check_course, read_course
from tetris_sim.config.sections.conditions import FaceName, NeumannFace
from tetris_sim.config.sections.quantities import (
    ABSOLUTE_ZERO,
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
from tetris_sim.model.conduction import Numbers, Parameter
from tetris_sim.model.exchange import Lump, LumpNetwork
from tetris_sim.model.step_control import Signal
from tetris_sim.support.wording import listed, suggestion

if TYPE_CHECKING:
    from tetris_sim.apps.heat.cut_cells import BodyWalls
    from tetris_sim.apps.heat.model import HeatModel
    from tetris_sim.apps.heat.sections import RegionSection
    from tetris_sim.config.sections.schema import Request

Resistance = Annotated[float, Quantity("a thermal resistance", "K/W", ("0.3 K/W",), "positive")]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_ROUNDED = 1e-9  # relative, of sums of flows
_KINDS = ("face", "region", "lump", "ambient")


class ExchangeSection(Section):
    """Partner of a lump in an exchange: a face, a region, another lump or surroundings."""

    face: FaceName | None = None
    """A face of the box: an insulated one, or one with a flux; with `h`."""
    h: HeatTransferCoefficient | None = None
    """Between a surface and the lump [W/(m^2 K)]."""
    region: str | None = None
    """A region of a material, with `h` on its surfaces that look into voids, or with `resistance`,
    which is spread evenly over its cells; or one of a fluid, which then is as warm as the lump,
    with the `h` of the fluid.
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

        if self.h is None and self.face is not None:
            msg = "a face and its h belong together"
            raise ValueError(msg)
        if self.h is not None and kinds[0] in ("lump", "ambient"):
            msg = f"h is that of a surface, and {kinds[0]} has none; give its resistance"
            raise ValueError(msg)
        if self.resistance is None and kinds[0] in ("lump", "ambient"):
            msg = f"{kinds[0]} is given without resistance"
            raise ValueError(msg)
        if self.resistance is not None and self.face is not None:
            msg = "a face exchanges by h; leave resistance out"
            raise ValueError(msg)
        if self.resistance is not None and self.h is not None:
            msg = "a region exchanges by h on its surface, or by a resistance; give one of both"
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
    exchanges: tuple[ExchangeSection, ...] = ()
    """With what it exchanges heat; beside that, with streams that pass it."""


Lumps = dict[ProbeName, LumpSection]


def lump_mistakes(model: HeatModel, request: Request) -> Iterator[tuple[KeyPath, str]]:
    """Yield names of exchanges that are nothing, and what lumps cannot go with, with key paths."""
    # Each finding names the key and says what to write; all are collected, none ends the check.
    yield from _fluid_mistakes(model)
    if not lumps_in(model):
        return
    regions = {it.name: it for it in model.regions if it.name is not None}
    faces = [axis + sign for axis in request.grid.names for sign in "-+"]
    known: dict[str, Sequence[str]] = {
        "face": faces,
        "region": [*regions],
        "lump": [*model.lumps],
    }
    if request.time.scheme == "spectral":
        told = "what is around a body has no eigenvectors; take explicit, implicit or steady"
        yield ("time", "scheme"), told
    if request.compute.precision == "float16":
        told = "bodies with lumps are equations, in float64 or float32; not in float16"
        yield ("compute", "precision"), told

    for name, lump in model.lumps.items():
        if name in request.control:
            yield ("model", "lumps", name), "a controller has this name; choose another one"
        others = [it.exchanges for key, it in model.lumps.items() if key != name]
        met = {it.lump for it in itertools.chain(*others)}
        met |= {it.lump for stream in model.streams.values() for it in stream.through}
        if not lump.exchanges and name not in met:
            told = "it exchanges heat with nothing; give it exchanges, or let a stream pass it"
            yield ("model", "lumps", name, "exchanges"), told
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
            elif region is not None and region.fluid is not None:
                if it.resistance is not None or it.h is not None:
                    yield (*path, "region"), "this region has its own h; leave it out here"
                if region.fluid.capacity is not None:
                    told = "this fluid has a capacity of its own; give it an ambient"
                    yield (*path, "region"), told
            elif region is not None and it.resistance is None and it.h is None:
                yield (*path, "region"), "this region needs h, or a resistance"
            if it.face in faces and not _is_free(request, it.face):
                told = f"boundaries of {it.face} give more than a flux; let it be neumann"
                yield (*path, "face"), told


def _fluid_mistakes(model: HeatModel) -> Iterator[tuple[KeyPath, str]]:
    """Yield fluids whose temperatures cannot be told from others'."""
    names = {*model.lumps}
    for number, region in enumerate(model.regions):
        if region.fluid is None or not region.fluid.changes:
            continue
        path: KeyPath = ("model", "regions", number)
        if region.name is None:
            told = "its temperature changes; give the region a name, by which statistics call it"
            yield (*path, "fluid"), told
        elif region.name in names:
            yield (*path, "name"), "something else of one temperature has this name"
        names |= {region.name or ""}


def lumps_in(model: HeatModel) -> dict[str, LumpSection]:
    """Return lumps and fluids that have a capacity, by name."""
    found = dict(model.lumps)
    for region in model.regions:
        fluid = region.fluid
        if fluid is None or fluid.capacity is None or fluid.initial is None:
            continue
        # A fluid with a capacity is a lump whose only exchange is with its own region.
        exchange = ExchangeSection(region=region.name or "")
        own = LumpSection(capacity=fluid.capacity, initial=fluid.initial, exchanges=(exchange,))
        found[region.name or ""] = own
    return found


def has_changing(model: HeatModel) -> bool:
    """Whether anything around a body has a temperature that changes."""
    return bool(model.lumps or model.streams) or any(
        it.fluid and it.fluid.changes for it in model.regions
    )


def _is_free(request: Request, face: str) -> bool:
    key = next((key for key in (face, face[:-1], "*") if key in request.boundaries), None)
    return key is None or isinstance(request.boundaries[key], NeumannFace)


def read_lumps(
    sections: Mapping[str, LumpSection],
    regions: Mapping[str, tuple[int, FluidSection | None]],
    walls: BodyWalls,
    joules: float,
) -> tuple[Lump, ...]:
    """Return the lumps of a body with what they exchange with its cells.

    Args:
        sections: by name.
        regions: by name: their numbers, and what fluid they are.
        walls: of the body.
        joules: what an exchange is in watts: coefficients of graded axes are of whole cells,
            conductances of even grids per volume.

    Raises:
        ConfigError: an exchange is with nothing.
    """
    lumps = []
    for name, section in sections.items():
        # Conductance of each cell with this lump; exchanges add up where a cell has several.
        gives = np.zeros(walls.grid.shape)
        for number, it in enumerate(section.exchanges):
            if it.lump is not None or it.ambient is not None:
                continue
            own = _exchanged(it, regions, walls)
            if not own.any():
                key = f"model.lumps.{name}.exchanges.{number}"
                raise ConfigError(_nothing(it, key, regions))
            gives += own / joules
        # Decided step by step while the run goes on, and kept in checkpoints like controllers.
        mean, now = (Signal(f"{name} {what}", section.initial) for what in ("mean", "now"))
        lumps.append(Lump(name, gives, gives, mean, now))

    return tuple(lumps)


def _exchanged(
    it: ExchangeSection, regions: Mapping[str, tuple[int, FluidSection | None]], walls: BodyWalls
) -> Numbers:
    """Conductances between cells and a lump [W/K]."""
    if it.face is not None:
        at = walls.at_face(it.face)
        return walls.by_cell(at, at.conductance(it.h or 0.0))
    # In a region: through its fluid, spread over its volume, or over its free surface.
    number, fluid = regions[it.region or ""]
    cells = walls.seen(number)
    if fluid is not None:
        return _of_fluid(walls, number, fluid)
    if it.resistance is not None:
        return walls.shares(cells & walls.solid) / it.resistance
    at = walls.between(cells, walls.empty)
    return walls.by_cell(at, at.conductance(it.h or 0.0))


def _of_fluid(walls: BodyWalls, number: int, fluid: FluidSection) -> Numbers:
    """Conductances between cells and the fluid of a region [W/K]."""
    at = walls.between(walls.solid, walls.seen(number))
    return walls.by_cell(at, at.conductance(fluid.h))


def _nothing(
    it: ExchangeSection, key: str, regions: Mapping[str, tuple[int, FluidSection | None]]
) -> str:
    if it.face is not None:
        return f"{key}.face: no cell of the body lies at {it.face}"
    if it.h is None:
        return f"{key}.region: {it.region} has no cell that exchanges heat"
    return (
        f"{key}.region: no surface of {it.region} looks into a void, and only those are free; "
        "what is inside the body exchanges by a resistance, spread over its cells"
    )


def still_fluids(model: HeatModel, times: Numbers) -> tuple[RegionSection, ...]:
    """Return the regions of a body by itself: fluids whose temperature changes exchange nothing
    there, as all of it is what lumps give.

    Raises:
        ConfigError: a table cannot be read, or a number is not finite.
    """
    # The solid part of the problem is built without these fluids; the exchange is added by `Lump`.
    claimed = {it.region for lump in model.lumps.values() for it in lump.exchanges}
    found = []
    for number, region in enumerate(model.regions):
        fluid = region.fluid
        if fluid is not None and (fluid.changes or (region.name and region.name in claimed)):
            held = fluid.held_at if fluid.ambient is None else _ambient(number, fluid, times)
            at = held if isinstance(held, float) else float(held.during(times[0], times[0])[0])
            alone = {"h": 0.0, "ambient": at, "capacity": None, "initial": None}
            region = region.model_copy(update={"fluid": fluid.model_copy(update=alone)})
        found.append(region)
    return tuple(found)


def warm_fluids(
    model: HeatModel, walls: BodyWalls, joules: float, times: Numbers
) -> tuple[Lump, ...]:
    """Return the fluids whose temperature is given over time.

    Args:
        model: with its regions.
        walls: of the body.
        joules: see `read_lumps`.
        times: at which numbers are checked [s].
    """
    found = []
    for number, region in enumerate(model.regions):
        fluid = region.fluid
        if fluid is not None and fluid.changes and fluid.capacity is None:
            course = _ambient(number, fluid, times)
            gives = _of_fluid(walls, number, fluid) / joules
            found.append(Lump(region.name or "", gives, gives, course, course))
    return tuple(found)


def _ambient(number: int, fluid: FluidSection, times: Numbers) -> Parameter:
    key = f"model.regions.{number}.fluid.ambient"
    return read_parameter(fluid.ambient, Varying(TEMPERATURE, ("t",)), key, times)


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
        powers.append(read_parameter(section.power, Varying(POWER, ("t",)), f"{key}.power", times))
        ambients.append([])
        for number, it in enumerate(section.exchanges):
            # No resistance here means that the exchange is with cells, which `_exchanged` has
            # counted.
            g = 1 / (it.resistance or np.inf)
            if it.lump is not None:
                other = names.index(it.lump)
                # Said by one of the two, felt by both.
                between[k, other] += g
                between[other, k] += g
            elif it.ambient is not None:
                at = f"{key}.exchanges.{number}.ambient"
                course = read_parameter(it.ambient, Varying(TEMPERATURE, ("t",)), at, times)
                ambients[-1].append((g, course))
                outside[k] += g

    # On the diagonal: what a lump loses to cells and surroundings per degree.
    outside += joules * np.array([it.gives.sum() for it in lumps])
    capacity = np.array([it.capacity for it in sections.values()])
    return LumpNetwork(lumps, capacity, between, outside, powers, ambients, joules)


def read_parameter(given: Any, kind: Varying, key: str, times: Numbers) -> Parameter:
    """Return a number that may change with time.

    Args:
        given: as configured.
        kind: of number.
        key: for messages.
        times: at which it is checked [s].

    Raises:
        ConfigError: a table cannot be read, or a number is not finite.
    """
    course: TimeFunction = read_course(given, kind, key)
    check_course(course, times, key, ABSOLUTE_ZERO if kind.quantity is TEMPERATURE else -np.inf)
    if course.value is not None:
        return Parameter("course", np.array([course.value]))
    return Parameter("course", lambda at: course.at(at)[:, None], course.knots)
