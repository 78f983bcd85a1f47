"""Streams: liquids and gases that flow through cells of a body along paths, in rings too, and past
lumps.

Their flows may change with time. The h of their walls is a number, or follows from the flow by a
correlation: with the wetted perimeter P, the Reynolds number of a channel of any shape is
Re = 4 m / (P mu).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Discriminator, Field, Tag, model_validator

from tetris_sim.apps.boundaries import LAMINAR_BELOW, nusselt_in_tube, tube_properties
from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.heat.lumps import Resistance, lumps_in, read_parameter
from tetris_sim.config.sections.quantities import (
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
from tetris_sim.config.sections.varying import TimeTable, Varying, VaryingSetpoint
from tetris_sim.errors import ConfigError
from tetris_sim.model.conduction import Numbers, Parameter
from tetris_sim.model.exchange import LumpNetwork
from tetris_sim.model.streams import PassageWalls, PassedLumps, Stream, StreamNetwork
from tetris_sim.support.wording import listed, suggestion

if TYPE_CHECKING:
    from tetris_sim.apps.heat.cut_cells import BodyWalls
    from tetris_sim.apps.heat.model import HeatModel
    from tetris_sim.config.sections.schema import Request

_MASS_FLOW = Quantity("a mass flow", "kg/s", ("0.1 kg/s", "5 g/s"), "nonnegative")
MassFlow = Annotated[float | str | TimeTable, Varying(_MASS_FLOW, ("t",))]
_SPECIFIC = {"water": 4181.0, "air": 1007.0}  # at 25 degC and 1 atm [J/(kg K)]
_ROUNDED = 1e-9  # relative, of sums of flows
_FINER = 20  # times at which flows are looked at, for each at which other courses are
_KNOWN_FROM = {"tube": 3000.0, "dittus-boelter": 1e4}  # Reynolds numbers
_KNOWN_TO = {"tube": 5e6, "dittus-boelter": math.inf}


class InletSection(Section):
    """Inlet of a stream: the end of another stream, or of several that mix."""

    stream: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """A name, or several names; its own one makes a ring."""

    @property
    def names(self) -> tuple[str, ...]:
        """Those of all."""
        return (self.stream,) if isinstance(self.stream, str) else self.stream


class ChannelFilm(Section):
    """Convection of what flows in a tube or a channel, by a correlation for its mean."""

    correlation: Literal["tube", "dittus-boelter"]
    """From Re = 2300 on: tube is that of Gnielinski."""
    diameter: PositiveLength
    """Of the tube; of a channel 4 times its cross-section over its perimeter [m]."""
    laminar: Annotated[float, Field(gt=0)] = 3.66
    """Nusselt number below Re = 2300: of tubes 3.66 with walls of one temperature, and 4.36 with
    the same flux everywhere; of other channels as tables have it.
    """
    at: Temperature | None = None
    """Of its properties [degC]; the temperature of the inlet at the beginning if not given."""


class PassedLump(Section):
    """A lump that a stream passes after its path: a tank, a pump, the other side of a cooler."""

    lump: str
    """Its name, or that of a fluid with a capacity."""
    resistance: Resistance | None = None
    """Between both [K/W]; if not given they mix, and the stream leaves as warm as the lump."""


def _inlet(value: object) -> str:
    other = isinstance(value, InletSection) or (isinstance(value, dict) and "stream" in value)
    return "other" if other else "given"


class StreamSection(Section):
    """A liquid or gas that flows through cells along a path: in a cold plate, a pipe, a channel."""

    path: Annotated[tuple[tuple[Position, ...], ...], Field(min_length=2)]
    """Points that it flows along, one after the other: [[x, y, z], ...] [m]."""
    flow: MassFlow
    """Mass that flows [kg/s], in 2D per metre of depth, in 1D per square metre of cross-section: a
    number, a table over time or a formula of t; 0 where it stands still.
    """
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
    h: ChannelFilm | HeatTransferCoefficient
    """Between the walls and what flows [W/(m^2 K)]; or `{correlation: tube, diameter: 8 mm}`."""
    perimeter: PositiveLength | None = None
    """Of a channel or pipe inside the cells of its path: how much of its cross-section is wall [m],
    in 2D per metre of depth: 2 for a slit with a wall on either side. Of a round tube in space,
    with a correlation, that of its diameter if not given.
    """
    region: str | None = None
    """Instead: a void of this name, whose walls the stream wets; each belongs to the nearest point
    of the path.
    """
    through: tuple[PassedLump, ...] = ()
    """Lumps that it passes after its path, one after the other."""

    @model_validator(mode="after")
    def _complete(self) -> StreamSection:
        if self.fluid is None and self.specific_heat is None:
            msg = "give what flows (fluid: water, or air), or its specific_heat"
            raise ValueError(msg)
        if self.fluid is None and isinstance(self.h, ChannelFilm):
            msg = "a correlation needs what flows (fluid: water, or air); or give h as a number"
            raise ValueError(msg)
        given = [it for it in (self.perimeter, self.region) if it is not None]
        if len(given) > 1 or not (given or isinstance(self.h, ChannelFilm)):
            msg = "give either the perimeter of its channel, or a region, whose walls it wets"
            raise ValueError(msg)
        if self.flow == 0:
            msg = "nothing flows; give a flow above 0, or one over time"
            raise ValueError(msg)
        return self

    @property
    def heat(self) -> float:
        """Its specific heat [J/(kg K)]."""
        return self.specific_heat or _SPECIFIC[self.fluid or "water"]


StreamSections = dict[ProbeName, StreamSection]


def stream_mistakes(model: HeatModel, request: Request) -> Iterator[tuple[KeyPath, str]]:
    """Yield paths that lie elsewhere, names that are nothing, and flows from nowhere."""
    curved, lumps = request.grid.system.is_curved, lumps_in(model)
    voids = {it.name: bool(it.void) for it in model.regions if it.name is not None}
    streams = model.streams
    for name, it in streams.items():
        path: KeyPath = ("model", "streams", name)
        if name in {*lumps, *request.control}:
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
        for number, passed in enumerate(it.through):
            if passed.lump not in lumps:
                there = listed([*lumps], "and") or "none"
                told = f"{passed.lump!r} is no lump{suggestion(passed.lump, lumps)}"
                yield (*path, "through", number, "lump"), f"{told}; known are {there}"
        yield from _film_mistakes(it, path, request.ndim)

    yield from _flow_mistakes(streams)


def _film_mistakes(it: StreamSection, path: KeyPath, ndim: int) -> Iterator[tuple[KeyPath, str]]:
    """Yield what a correlation needs to know."""
    if not isinstance(it.h, ChannelFilm):
        return
    if it.region is None and it.perimeter is None and ndim < 3:
        told = "only in space the perimeter follows from the diameter; give it"
        yield (*path, "perimeter"), told
    if it.h.at is None and isinstance(it.inlet, InletSection):
        told = "the inlet is another stream, so say at what temperature properties are taken"
        yield (*path, "h", "at"), told


def _flow_mistakes(streams: StreamSections) -> Iterator[tuple[KeyPath, str]]:
    """Yield inlets that are no streams, other liquids, and numbers of flows that do not add up."""
    flows = {name: it.flow for name, it in streams.items()}
    for name, it in streams.items():
        path: KeyPath = ("model", "streams", name)
        if not isinstance(it.inlet, InletSection):
            continue
        unknown = [other for other in it.inlet.names if other not in streams]
        if unknown:
            there = listed([other for other in streams if other != name], "and") or "none"
            told = f"{unknown[0]!r} is no other stream{suggestion(unknown[0], streams)}"
            yield (*path, "inlet"), f"{told}; known are {there}"
            return
        for other in it.inlet.names:
            if not math.isclose(streams[other].heat, it.heat, rel_tol=_ROUNDED):
                told = f"{other} has another specific heat, {streams[other].heat:g} J/(kg K)"
                yield (*path, "inlet"), f"{told} beside {it.heat:g}; what flows on is the same"

    # Flows over time are looked at where they are read.
    if all(isinstance(it, float) for it in flows.values()):
        for name, told in _unbalanced(streams, {name: float(it) for name, it in flows.items()}):  # type: ignore[arg-type]
            yield ("model", "streams", name, "flow"), told


def _unbalanced(streams: StreamSections, flows: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield streams that have more than what feeds them, and that feed more than they have."""
    feeds = dict.fromkeys(streams, 0.0)
    for name, it in streams.items():
        if not isinstance(it.inlet, InletSection):
            continue
        comes = sum(flows[other] for other in it.inlet.names)
        if flows[name] > comes * (1 + _ROUNDED):
            told = f"{listed(it.inlet.names, 'and')} bring {comes:g} kg/s"
            yield name, f"{flows[name]:g} kg/s flow, and {told}; let it be as much at most"
        elif len(it.inlet.names) == 1:
            feeds[it.inlet.names[0]] += flows[name]
    for name, flow in feeds.items():
        if flow > flows[name] * (1 + _ROUNDED):
            told = f"its branches take {flow:g} kg/s of {flows[name]:g} kg/s; that is too much"
            yield name, told


def downstream(streams: Mapping[str, StreamSection]) -> list[str]:
    """Return the names of streams, each after those that feed it, as far as they make no ring."""
    found, left = list[str](), dict(streams)
    while left:
        ready = [
            name
            for name, it in left.items()
            if not isinstance(it.inlet, InletSection) or not {*it.inlet.names} & left.keys()
        ]
        # A ring has no beginning: its first stream is as good as any.
        found += ready or [next(iter(left))]
        left = {name: it for name, it in left.items() if name not in found}
    return found


def read_streams(
    model: HeatModel,
    walls: BodyWalls,
    network: LumpNetwork | None,
    rates: Numbers,
    joules: float,
    times: Numbers,
) -> tuple[StreamNetwork | None, LumpNetwork | None]:
    """Return the streams through a body, None if there are none, and the network with them.

    Args:
        model: with its regions.
        walls: of the body.
        network: of its lumps.
        rates: see `StreamNetwork`.
        joules: see `read_lumps`.
        times: at which numbers are checked [s].

    Raises:
        ConfigError: a stream flows outside, past nothing, or backwards.
    """
    if not model.streams:
        return None, network
    names, remarks = [*lumps_in(model)], list[str]()
    flows = _flows(model.streams, times)
    each, given, links = list[Stream](), list[Parameter](), list[Any]()
    feeds, inlets, passed = list[tuple[int, int]](), list[tuple[int, int]](), list[Any]()
    begin = 0
    for name in downstream(model.streams):
        section, key = model.streams[name], f"model.streams.{name}"
        found = _StreamFilm(section, key, *flows[name])
        cells, middles, lengths = walls.along(section.path, f"{key}.path")
        if section.region is None:
            own = np.flatnonzero(walls.solid.reshape(-1)[cells])
            perimeter = section.perimeter or math.pi * found.diameter
            link = own, cells[own], lengths[own] * perimeter, np.zeros(len(own))
            conductances = [h * perimeter * lengths[own] for h in found.begin_and_most(perimeter)]
        else:
            seen = walls.seen([it.name for it in model.regions].index(section.region))
            nearest, at = walls.wetted(seen, middles)
            link = nearest, at.cell, at.area, at.half
            # Of a channel that is resolved, walls tell the perimeter better than a diameter.
            perimeter = float(at.area.sum() / lengths.sum())
            conductances = [*map(at.conductance, found.begin_and_most(perimeter))]
        if not conductances[0].any():
            msg = f"{key}: it flows past no cell of the body; let its path or its region touch some"
            raise ConfigError(msg)
        links.append((link[0] + begin, link[1], *conductances, *link[2:]))
        remarks += found.remarks(name, perimeter)

        # Lumps come after the cells of the path, each as a passage of its own.
        end = begin + len(cells)
        for number, it in enumerate(section.through):
            passes = math.inf if it.resistance is None else 1 / it.resistance
            passed.append((end + number, names.index(it.lump), passes))
        end += len(section.through)
        feeds += [(k, k - 1) for k in range(begin + 1, end)]
        if not isinstance(section.inlet, InletSection):
            kind = Varying(TEMPERATURE, ("t",))
            inlets.append((begin, len(given)))
            given.append(read_parameter(section.inlet, kind, f"{key}.inlet", times))
        film = found.h(perimeter) if found.changes else None
        each.append(Stream(name, (begin, end), flows[name][0], section.heat, film))
        begin = end

    # Only now are all ends known: in a ring the first stream begins where the last one ends.
    for one in each:
        inlet = model.streams[one.name].inlet
        if isinstance(inlet, InletSection):
            ends = [it.passages[1] - 1 for it in each if it.name in inlet.names]
            feeds += [(one.passages[0], end) for end in ends]
    opened = np.zeros((begin, len(given)))
    opened[tuple(np.array(inlets, np.int64).reshape(-1, 2).T)] = 1.0
    through = np.array(passed, np.float64).reshape(-1, 3).T
    made = StreamNetwork(
        tuple(each),
        PassageWalls(*(np.concatenate(it) for it in zip(*links, strict=True))),
        PassedLumps(through[0].astype(np.int64), through[1].astype(np.int64), through[2]),
        np.array(feeds, np.int64).reshape(-1, 2),
        opened,
        tuple(given),
        network.signals if network and passed else (),
        rates,
        joules,
        tuple(remarks),
    )
    return made, replace(network, streams=made) if network and passed else network


def _flows(streams: StreamSections, times: Numbers) -> dict[str, tuple[Parameter, Numbers]]:
    """Of each stream its flow, and what it is at many times, those where it bends among them.

    Raises:
        ConfigError: one is below 0, or they do not add up.
    """
    kind, found = Varying(_MASS_FLOW, ("t",)), dict[str, Parameter]()
    # What bends or jumps does so at knots; formulas are looked at closely enough for messages.
    fine = np.linspace(times[0], times[-1], _FINER * len(times))
    known = [fine]
    for name, it in streams.items():
        key = f"model.streams.{name}.flow"
        found[name] = read_parameter(it.flow, kind, key, times)
        if callable(found[name].values) and found[name].knots is not None:
            knots = np.asarray(found[name].knots)
            known.append(knots[(knots >= times[0]) & (knots <= times[-1])])
    at = np.unique(np.concatenate(known))
    values = {
        name: np.array(it.values(at)).reshape(-1)
        if callable(it.values)
        else np.full(len(at), float(it.values[0]))
        for name, it in found.items()
    }

    for name, flow in values.items():
        if flow.min() < 0:
            first = int(np.argmax(flow < 0))
            msg = (
                f"model.streams.{name}.flow: at {at[first]:.6g} s it is {flow[first]:.3g} kg/s; a "
                "stream flows along its path, so let it be 0 or more"
            )
            raise ConfigError(msg)
    if any(it.changes for it in found.values()):
        for place, time in enumerate(at):
            now = {name: float(flow[place]) for name, flow in values.items()}
            for name, told in _unbalanced(streams, now):
                msg = f"model.streams.{name}.flow: at {time:.6g} s {told}"
                raise ConfigError(msg)
    return {name: (it, values[name]) for name, it in found.items()}


class _StreamFilm:
    """The h of a stream.

    Args:
        section: of the stream.
        key: for messages.
        flow: over time.
        flows: what it is at many times.
    """

    def __init__(self, section: StreamSection, key: str, flow: Parameter, flows: Numbers) -> None:
        self._given, self._section, self._flow = section.h, section, flow
        self._flows, self.diameter, self._warmth = flows, 0.0, 0.0
        self._numbers = {"pr": 1.0, "k": 1.0, "mu": 1.0}
        if isinstance(section.h, ChannelFilm):
            self.diameter = section.h.diameter
            self._warmth = self._at(section.h, key)
            numbers = tube_properties(section.fluid or "water", self._warmth)
            # Pr = mu c / k: no table of the viscosity is needed beside that of Prandtl numbers.
            self._numbers = {**numbers, "mu": numbers["pr"] * numbers["k"] / section.heat}

    def _at(self, film: ChannelFilm, key: str) -> float:
        if film.at is not None:
            return film.at
        assert not isinstance(self._section.inlet, InletSection)
        kind, start = Varying(TEMPERATURE, ("t",)), np.zeros(1)
        inlet = read_parameter(self._section.inlet, kind, f"{key}.inlet", start)
        return float(inlet.during(0.0, 0.0)[0])

    @property
    def changes(self) -> bool:
        """Whether it does."""
        return isinstance(self._given, ChannelFilm) and self._flow.changes

    def _reynolds(self, flow: float, perimeter: float) -> float:
        return 4 * flow / (perimeter * self._numbers["mu"])

    def h(self, perimeter: float) -> Callable[[float], float]:
        """Return it as a function of the flow [W/(m^2 K)].

        Args:
            perimeter: that the flow wets [m].
        """
        given = self._given
        if not isinstance(given, ChannelFilm):
            return lambda flow: given
        pr, per = self._numbers["pr"], self._numbers["k"] / given.diameter

        def of(flow: float) -> float:
            re = self._reynolds(flow, perimeter)
            return per * nusselt_in_tube(given.correlation, re, pr, given.laminar)

        return of

    def begin_and_most(self, perimeter: float) -> tuple[float, float]:
        """Return h at the beginning of a run, whenever that ends, and the largest one in it."""
        of = self.h(perimeter)
        ends = map(of, (float(self._flows.min()), float(self._flows.max())))
        return of(float(self._flow.during(0.0, 0.0)[0])), max(ends)

    def remarks(self, name: str, perimeter: float) -> Iterator[str]:
        """Say what a correlation gives, and where it is not known."""
        if not isinstance(self._given, ChannelFilm):
            return
        which, flows = self._given.correlation, self._flows[self._flows > 0]
        ends = [float(it(flows)) for it in (np.min, np.max)]
        re, h = [self._reynolds(it, perimeter) for it in ends], [*map(self.h(perimeter), ends)]

        fluid = f"{self._section.fluid} at {self._warmth:g} degC"
        yield f"{name}: {which} has h of {_span(h)} W/(m^2 K) at Re of {_span(re)}, for {fluid}"
        low, high = _KNOWN_FROM[which], _KNOWN_TO[which]
        if re[0] < low and re[1] >= LAMINAR_BELOW:
            yield (
                f"{name}: between Re = {LAMINAR_BELOW:g} and {low:g} {which} is not known: what "
                "flows there is neither laminar nor turbulent"
            )
        if re[1] > high:
            yield f"{name}: {which} is known up to Re = {high:g}"


def _span(ends: Sequence[float]) -> str:
    low, high = (f"{it:.3g}" for it in ends)
    return low if low == high else f"{low} to {high}"
