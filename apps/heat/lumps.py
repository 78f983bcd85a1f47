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
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Discriminator, Field, Tag, model_validator

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.heat.materials import Capacity, FluidSection
from tetris_sim.apps.time_functions import TimeFunction, check_course, read_course
from tetris_sim.config.sections.conditions import FaceName, NeumannFace
from tetris_sim.config.sections.quantities import (
    POWER,
    TEMPERATURE,
    HeatTransferCoefficient,
    Position,
    PositiveLength,
    Quantity,
    Section,
    SpecificHeat,
    Temperature,
)
from tetris_sim.config.sections.schema import ProbeName
from tetris_sim.config.sections.varying import Varying, VaryingPower, VaryingSetpoint
from tetris_sim.errors import ConfigError
from tetris_sim.model.conduction import Numbers, Parameter
from tetris_sim.model.exchange import Lump, LumpNetwork, Stream, StreamNetwork
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
    exchanges: Annotated[tuple[ExchangeSection, ...], Field(min_length=1)]
    """With what it exchanges heat."""


Lumps = dict[ProbeName, LumpSection]
MassFlow = Annotated[float, Quantity("a mass flow", "kg/s", ("0.1 kg/s", "5 g/s"), "positive")]
_SPECIFIC = {"water": 4181.0, "air": 1007.0}  # at 25 degC and 1 atm [J/(kg K)]


class InletSection(Section):
    """Inlet of a stream: the end of another stream, or of several that mix."""

    stream: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """A name, or several names."""

    @property
    def names(self) -> tuple[str, ...]:
        """Those of all."""
        return (self.stream,) if isinstance(self.stream, str) else self.stream


def _inlet(value: object) -> str:
    other = isinstance(value, InletSection) or (isinstance(value, dict) and "stream" in value)
    return "other" if other else "given"


class StreamSection(Section):
    """A liquid or gas that flows through cells along a path: in a cold plate, a pipe, a channel."""

    path: Annotated[tuple[tuple[Position, ...], ...], Field(min_length=2)]
    """Points that it flows along, one after the other: [[x, y, z], ...] [m]."""
    flow: MassFlow
    """Mass that flows [kg/s], in 2D per metre of depth, in 1D per square metre of cross-section."""
    inlet: Annotated[
        Annotated[InletSection, Tag("other")] | Annotated[VaryingSetpoint, Tag("given")],
        Discriminator(_inlet),
    ]
    """The temperature that it begins with [degC], a table over time or a formula of t; or
    `{stream: NAME}`, or several names that mix.
    """
    fluid: Literal["water", "air"] | None = None
    """The medium that flows; or give its specific heat."""
    specific_heat: SpecificHeat | None = None
    """[J/(kg K)]; that of the fluid at 25 degC if not given."""
    h: HeatTransferCoefficient
    """Between the walls and what flows [W/(m^2 K)]."""
    perimeter: PositiveLength | None = None
    """Of a channel or pipe inside the cells of its path: how much of its cross-section is wall [m],
    in 2D per metre of depth: 2 for a slit with a wall on either side.
    """
    region: str | None = None
    """Instead: a void of this name, whose walls the stream wets; each belongs to the nearest point
    of the path.
    """

    @model_validator(mode="after")
    def _complete(self) -> StreamSection:
        if self.fluid is None and self.specific_heat is None:
            msg = "give what flows (fluid: water, or air), or its specific_heat"
            raise ValueError(msg)
        if (self.perimeter is None) == (self.region is None):
            msg = "give either the perimeter of its channel, or a region, whose walls it wets"
            raise ValueError(msg)
        return self

    @property
    def carries(self) -> float:
        """Mass flow times specific heat [W/K]."""
        return self.flow * (self.specific_heat or _SPECIFIC[self.fluid or "water"])


StreamSections = dict[ProbeName, StreamSection]


def lump_mistakes(model: HeatModel, request: Request) -> Iterator[tuple[KeyPath, str]]:
    """Yield names of exchanges that are nothing, and what lumps cannot go with, with key paths."""
    # Each finding names the key and says what to write; all are collected, none ends the check.
    yield from _fluid_mistakes(model)
    yield from _stream_mistakes(model, request)
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


def _stream_mistakes(model: HeatModel, request: Request) -> Iterator[tuple[KeyPath, str]]:
    """Yield paths that lie elsewhere, names that are nothing, and flows from nowhere."""
    curved, taken = request.grid.system.is_curved, {*lumps_in(model), *request.control}
    # Streams wet voids, not solids: the wall of a void is where heat passes.
    voids = {it.name: bool(it.void) for it in model.regions if it.name is not None}
    streams, feeds = model.streams, dict.fromkeys(model.streams, 0.0)
    for name, it in streams.items():
        path: KeyPath = ("model", "streams", name)
        if name in taken:
            yield path, "something else of this run has this name; choose another one"
        if curved and "theta" in request.grid.names:
            yield (*path, "path"), "streams need straight axes, or r and z without theta"
        for number, point in enumerate(it.path):
            if len(point) != request.ndim:
                told = f"a point of {request.ndim} coordinates is wanted"
                yield (*path, "path", number), told
        if it.region is not None and not voids.get(it.region, False):
            told = (
                "is no void"
                if it.region in voids
                else f"is no region{suggestion(it.region, voids)}"
            )
            yield (
                (*path, "region"),
                f"{it.region!r} {told}; what a stream wets is a void of this name",
            )
        if not isinstance(it.inlet, InletSection):
            continue
        unknown = [other for other in it.inlet.names if other not in streams or other == name]
        if unknown:
            there = listed([other for other in streams if other != name], "and") or "none"
            told = f"{unknown[0]!r} is no other stream{suggestion(unknown[0], streams)}"
            yield (*path, "inlet"), f"{told}; known are {there}"
            continue

        # Mass is conserved at junctions: a branch may take less than what arrives, never more.
        comes = sum(streams[other].flow for other in it.inlet.names)
        if it.flow > comes * (1 + _ROUNDED):
            told = (
                f"{it.flow:g} kg/s flow, and {listed(it.inlet.names, 'and')} bring {comes:g} kg/s"
            )
            yield (*path, "flow"), f"{told}; let it be as much at most"
        elif len(it.inlet.names) == 1:
            feeds[it.inlet.names[0]] += it.flow
    # The same seen from the stream that is divided: all its branches together.
    for name, flow in feeds.items():
        if flow > streams[name].flow * (1 + _ROUNDED):
            told = (
                f"its branches take {flow:g} kg/s of {streams[name].flow:g} kg/s; that is too much"
            )
            yield ("model", "streams", name, "flow"), told
    if streams and not downstream(streams):
        told = "streams feed each other in a ring, and none of them begins; give one a temperature"
        yield ("model", "streams"), told


def downstream(streams: Mapping[str, StreamSection]) -> list[str]:
    """Return the names of streams, each after those that feed it; nothing if they make a ring."""
    # Topological order (Kahn's algorithm); what is left over at the end forms a ring.
    found, left = list[str](), dict(streams)
    while left:
        ready = [
            name
            for name, it in left.items()
            if not isinstance(it.inlet, InletSection) or not {*it.inlet.names} & left.keys()
        ]
        if not ready:
            return []
        found += ready
        left = {name: it for name, it in left.items() if name not in ready}
    return found


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
    return _read(fluid.ambient, Varying(TEMPERATURE, ("t",)), key, times)


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
                course = _read(it.ambient, Varying(TEMPERATURE, ("t",)), at, times)
                ambients[-1].append((g, course))
                outside[k] += g

    # On the diagonal: what a lump loses to cells and surroundings per degree.
    outside += joules * np.array([it.gives.sum() for it in lumps])
    capacity = np.array([it.capacity for it in sections.values()])
    return LumpNetwork(lumps, capacity, between, outside, powers, ambients, joules)


def _read(given: Any, kind: Varying, key: str, times: Numbers) -> Parameter:
    course: TimeFunction = read_course(given, kind, key)
    check_course(course, times, key)
    if course.value is not None:
        return Parameter("course", np.array([course.value]))
    return Parameter("course", lambda at: course.at(at)[:, None], course.knots)


def read_streams(
    model: HeatModel, walls: BodyWalls, rates: Numbers, joules: float, times: Numbers
) -> StreamNetwork | None:
    """Return the streams through a body; None if there are none.

    Args:
        model: with its regions.
        walls: of the body.
        rates: see `StreamNetwork`.
        joules: see `read_lumps`.
        times: at which numbers are checked [s].

    Raises:
        ConfigError: a stream flows outside, or past nothing.
    """
    if not model.streams:
        return None
    from scipy.sparse import csr_matrix

    # Passages of all streams are numbered in one sequence, upstream before downstream, so that one
    # sweep along them finds all temperatures.
    each, given = list[Stream](), list[Parameter]()
    links, feeds, inlets = list[Any](), list[tuple[int, int, float]](), list[tuple[int, int]]()
    begin, regions = 0, [it.name for it in model.regions]
    for name in downstream(model.streams):
        section, key = model.streams[name], f"model.streams.{name}"
        cells, middles, lengths = walls.along(section.path, f"{key}.path")
        n = len(cells)
        if section.region is None:
            # A bore inside solid cells: h times wetted wall of each piece of the path.
            own = np.flatnonzero(walls.solid.reshape(-1)[cells])
            links.append((own, cells[own], section.h * (section.perimeter or 0.0) * lengths[own]))
        else:
            seen = walls.seen(regions.index(section.region))
            links.append(walls.wetted(seen, middles, section.h))
        if not links[-1][2].any():
            msg = f"{key}: it flows past no cell of the body; let its path or its region touch some"
            raise ConfigError(msg)
        links[-1] = (links[-1][0] + begin, *links[-1][1:])
        feeds += [(begin + k, begin + k - 1, 1.0) for k in range(1, n)]

        # What mixes does so by how much heat it carries per degree.
        if isinstance(section.inlet, InletSection):
            others = [it for it in each if it.name in section.inlet.names]
            total = sum(it.carries for it in others)
            feeds += [(begin, it.passages[1] - 1, it.carries / total) for it in others]
        else:
            kind = Varying(TEMPERATURE, ("t",))
            inlets.append((begin, len(given)))
            given.append(_read(section.inlet, kind, f"{key}.inlet", times))
        each.append(Stream(name, (begin, begin + n), section.carries))
        begin += n

    passage, cell, conductance = (np.concatenate(it) for it in zip(*links, strict=True))
    rows, columns = np.array([it[:2] for it in feeds], np.int64).reshape(-1, 2).T
    fed = csr_matrix(([it[2] for it in feeds], (rows, columns)), (begin, begin))
    opened = np.zeros((begin, len(given)))
    opened[tuple(np.array(inlets).T)] = 1.0
    parts = (tuple(each), passage, cell, conductance, fed, opened, tuple(given))
    return StreamNetwork(*parts, rates, joules)
