"""A body whose material, sources or faces differ from place to place or from time to time.

Everything that needs a look at files and points is done once, by `examine`, which collects what is
wrong; the problem is built out of what it found.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.domain import make_each, make_grid
from tetris_sim.apps.heat.boundaries import FaceMaker, easing, largest_stable_step, openness
from tetris_sim.apps.heat.cut_cells import BodyWalls
from tetris_sim.apps.heat.electric import Currents, JouleHeat, find_circuit
from tetris_sim.apps.heat.enclosures import find_enclosures
from tetris_sim.apps.heat.geometry import RasterizedBody
from tetris_sim.apps.heat.lumps import (
    has_changing,
    lumps_in,
    make_network,
    read_lumps,
    still_fluids,
    warm_fluids,
)
from tetris_sim.apps.heat.motion import carried_flows, parts_of
from tetris_sim.apps.heat.rules import Heating, make_source_rule, read_source
from tetris_sim.apps.heat.sections import RegionSection, Substance
from tetris_sim.apps.heat.sources import BeamSource, VolumeSource
from tetris_sim.apps.heat.streams import read_streams
from tetris_sim.apps.heat.survey import (
    GridScan,
    Openness,
    survey,
)
from tetris_sim.apps.initial import positions
from tetris_sim.apps.initial_file import stamps, texts_in
from tetris_sim.apps.time_functions import check_course, check_in_space
from tetris_sim.config.sections.conditions import first_output
from tetris_sim.config.sections.schema import Request
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.conduction import MIRROR, TEMPERATURE, Conduction, Ids, Medium, Numbers
from tetris_sim.model.exchange import NOTHING_AROUND, Around
from tetris_sim.model.grid import Grid
from tetris_sim.model.slab import WAYS_TO_GO, Absent, Ranges, with_span
from tetris_sim.model.step_control import Signal
from tetris_sim.support.wording import listed

if TYPE_CHECKING:
    from tetris_sim.apps.heat.model import HeatModel

# Conduction between cells that differ in width: every face has its own conductance.
#
# Through the face between cells a and b, of area A, flows A (u_b - u_a) / (d_a / (2 k_a) + R_ab +
# d_b / (2 k_b)); beyond a face of the domain lies a cell like the one inside. Around an axis or a
# centre, areas and volumes are those of bodies of revolution (`grid.py`).


Places = npt.NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, eq=False)
class GradedCoefficients:
    """See `conduction.Coefficients`.

    Attributes:
        grid: whose cells differ in width, volume or the areas of faces.
        medium: ids and capacities.
        conductivity: along each axis by id, (ndim, n_ids); 0 lets nothing pass [W/(m K)].
            Where the state is the enthalpy, by how much it is larger than along x.
        film: by axis and id, resistance of what has no width of its own (a fluid: 1 / h), NaN for
            others (ndim, n_ids) [m^2 K/W].
        resistance: of contacts, by axis (ndim, n_ids, n_ids) [m^2 K/W]; infinite where nothing
            is conducted.
        radiances: of the same, effective emissivity times the Stefan-Boltzmann constant
            [W/(m^2 K^4)].
        periodic: per axis.
        openings: area of faces per area of those of cells, by axis (ndim, n_ids, n_ids), if cells
            are cut.
        reaches: see `GridScan`.
    """

    grid: Grid
    medium: Medium
    conductivity: Numbers
    film: Numbers
    resistance: Numbers
    radiances: Numbers
    periodic: Sequence[bool]
    openings: Numbers | None = None
    reaches: Numbers | None = None

    @property
    def separates(self) -> bool:
        """All is geometry if there is one id: areas, volumes and widths are products."""
        return self.medium.n_ids == 1

    def conductance(self, axis: int, box: Ranges) -> Numbers:
        """Of the upper face along an axis of the points of a box [W/K]."""
        below, above, contact = self._in_series(axis, box)
        with np.errstate(divide="ignore"):
            per_area = 1 / (below + above + contact)
        return np.asarray(per_area * self._areas(axis, box))

    def _areas(self, axis: int, box: Ranges) -> Numbers:
        """Of the same faces, as far as they are open [m^2]."""
        opened = 1.0 if self.openings is None else self.openings[axis][self.sides(axis, box)]
        return np.asarray(self.grid.areas(axis, box) * opened)

    def series(self, axis: int, box: Ranges) -> Numbers:
        """Resistances of the same faces: below, above, contact (..., 3) [K/W], where the state is
        the enthalpy as of a conductivity of 1.
        """
        parts, areas = self._in_series(axis, box), self._areas(axis, box)
        # Through a face that is only a line, the axis, nothing flows.
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.stack([np.where(areas > 0, it / areas, np.inf) for it in parts], axis=-1)

    def radiance(self, axis: int, box: Ranges) -> Numbers:
        """Of the same faces: what radiates between them, times the area [W/K^4]."""
        below, above = self.sides(axis, box)
        return np.asarray(self.radiances[axis][below, above] * self.grid.areas(axis, box))

    def sides(self, axis: int, box: Ranges) -> tuple[Ids, Ids]:
        """Ids of the cells below and above the same faces."""
        low, high, (first, last) = self._beside(axis, box)
        along = np.moveaxis(self.medium.ids(with_span(box, axis, (first, last))), axis, 0)
        below, above = (np.moveaxis(along[it - first], 0, axis) for it in (low, high))
        return below, above

    def _beside(self, axis: int, box: Ranges) -> tuple[Places, Places, tuple[int, int]]:
        """Places along an axis of the cells below and above its faces, and what spans them."""
        n = self.grid.shape[axis]
        index = np.arange(*box[axis])
        low, high = index, index + 1
        if self.periodic[axis]:
            low, high = low % n, high % n
        else:
            low, high = np.maximum(low, 0), np.minimum(high, n - 1)
        return low, high, (int(min(low.min(), high.min())), int(max(low.max(), high.max())) + 1)

    def _in_series(self, axis: int, box: Ranges) -> tuple[Numbers, Numbers, Numbers]:
        """Resistances below and above the faces, and of the contact [m^2 K/W], to broadcast."""
        low, high, (first, last) = self._beside(axis, box)
        a, b, wider = low - first, high - first, with_span(box, axis, (first, last))
        widths = np.moveaxis(self.grid.distances(axis, wider), axis, 0)
        along = np.moveaxis(self._ids(wider), axis, 0)
        along = np.broadcast_to(along, np.broadcast_shapes(along.shape, widths.shape))
        halves = self._halves(axis, along, widths)
        parts = [halves[a], halves[b], self.resistance[axis][along[a], along[b]]]
        if self.reaches is not None:
            parts[0] = parts[0] * self.reaches[axis][along[a], along[b]]
            parts[1] = parts[1] * self.reaches[axis][along[b], along[a]]
        below, above, contact = (np.moveaxis(it, 0, axis) for it in parts)
        return below, above, contact

    def _halves(self, axis: int, ids: Ids, widths: Numbers) -> Numbers:
        """Resistance from the centres of cells to their faces [m^2 K/W]."""
        with np.errstate(divide="ignore"):
            halves = widths / (2 * self.conductivity[axis][ids])
        film = self.film[axis][ids]
        return np.asarray(np.where(np.isnan(film), halves, film))

    def capacity(self, box: Ranges) -> Numbers:
        """Rho c, or of enthalpies 1, times how full cells are and their volume, of the points of a
        box [J/K]; infinite where the state is held.
        """
        return np.asarray(self.medium.capacity[self._ids(box)] * self.grid.volumes(box))

    def _ids(self, box: Ranges) -> Ids:
        """Of the points of a box, to broadcast: a single id is not written out."""
        return self.medium.ids(box) if self.medium.n_ids > 1 else np.zeros([1] * len(box), np.uint8)

    def volume(self, box: Ranges) -> Numbers:
        """Of the cells of the points of a box [m^3]."""
        return self.grid.volumes(box)


def graded_coefficients(
    found: GridScan, beyond: Openness, boxes: Sequence[Ranges]
) -> GradedCoefficients | None:
    """Those of a body, by id; None if what faces let pass follows from the ids of both cells alone.

    Args:
        found: the body.
        beyond: what lies beyond the faces.
        boxes: that make up the grid.
    """
    grid, fillings = found.painting.grid, found.fillings
    cuts = [found.by_id(it) for it in (found.openings, found.reaches)]
    if grid.is_even and (found.enthalpy is None or all(it is None for it in cuts)):
        return None
    shares = found.painting.cuts.shares()[found.of_id].T
    conductivity = np.zeros((grid.ndim, len(fillings)))
    film = np.full((grid.ndim, len(fillings)), np.nan)
    for number, filling in enumerate(fillings):
        if filling.substance is not None:
            conductivity[:, number] = filling.substance.conductivity[: grid.ndim][::-1]
        elif filling.fluid is not None and filling.fluid.emissivity > 0:
            film[:, number] = 0.0  # it is a contact, beside which the fluid radiates
        elif filling.fluid is not None:
            with np.errstate(divide="ignore"):
                film[:, number] = 1 / (filling.fluid.h * shares[:, number])

    resistance, radiances = (
        it[:, found.of_id][:, :, found.of_id] for it in (found.resistance, found.radiance)
    )
    outside = np.array([it.substance is None for it in fillings])
    resistance[:, np.logical_and.outer(outside, outside)] = math.inf
    tables = conductivity, film, resistance, radiances
    made = GradedCoefficients(grid, found.medium(), *tables, beyond.periodic, *cuts)
    return None if grid.is_even and _is_by_id(made, found, boxes) else made


def by_potential(given: GradedCoefficients, found: GridScan) -> GradedCoefficients:
    """Those of a body whose state is the enthalpy, where heat flows by the potential."""
    conductivity = np.zeros_like(given.conductivity)
    for number, it in enumerate(found.fillings):
        if it.substance is not None:
            conductivity[:, number] = it.substance.factors[: given.grid.ndim][::-1]
    return replace(given, medium=found.in_potentials(given.medium), conductivity=conductivity)


def _is_by_id(given: GradedCoefficients, found: GridScan, boxes: Sequence[Ranges]) -> bool:
    """Whether tables by id have all that heat contents need: those of half cells are by one id, so
    that walls must not cut faces between different materials, or lie beside them.
    """
    assert found.enthalpy
    kinds, n = found.enthalpy.kinds, given.grid.ndim
    cuts = [np.ones((n, 1, 1)) if it is None else it for it in (given.openings, given.reaches)]
    whole = np.equal.outer(kinds, kinds) | ((cuts[0] == 1) & (cuts[1] == 1))
    return all(whole[axis][given.sides(axis, box)].all() for axis in range(n) for box in boxes)


_MOST_POINTS = 1 << 33  # a look at more takes longer than most runs
_RUNS = itertools.count(1)
Decided = Mapping[str, Signal]
_Examined = tuple[dict[str, str], float, str, tuple[int, ...]]
_USUAL = 20.0  # degC: of a run that does not begin with one temperature
_TIMES = 101  # from the start to the end, at which courses are looked at


@dataclass(frozen=True, eq=False)
class Body:
    """A body as its files and points show it.

    Attributes:
        grid: where points lie.
        found: by the look at every point.
        heatings: the sources in the body, by number.
        boundary: rules at all faces that are not periodic.
        coefficients: of faces between cells that differ in width.
        dt_limit: largest stable time step [s].
        limiting: name of the material that sets it.
        signals: that controllers decide, by the name of the controller.
        flows: heat capacity that crosses faces with what moves, as of `Moving`; None if nothing
            moves and nothing but its own cells exchanges heat with it.
        around: what else exchanges heat with it.
        currents: through it, which heat it; if they follow temperatures, those at the beginning.
        arrives: the temperature with which each region comes, NaN for that of `initial` [degC];
            None if none says it.
        missing: what is nowhere in a body whose regions come and go, by key; a mistake if it is
            never there.
    """

    grid: Grid
    found: GridScan
    heatings: dict[int, Heating]
    boundary: Boundary
    coefficients: GradedCoefficients | None
    dt_limit: float
    limiting: str
    signals: Mapping[str, Signal] = field(default_factory=dict)
    flows: tuple[Numbers, ...] | None = None
    around: Around = NOTHING_AROUND
    currents: Currents | None = None
    arrives: Numbers | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def only_substance(self) -> Substance | None:
        """Return the only substance of the body; None if another, a void or a source is there."""
        fillings = self.found.fillings
        several = self.heatings or len(fillings) > 1 or self.found.enthalpy is not None
        return None if several else fillings[0].substance

    def conduction(self) -> Conduction:
        """The step, with the tables of the medium."""
        medium, source, enthalpy = self.found.medium(), None, self.found.enthalpy
        if enthalpy is not None:
            medium = self.found.in_potentials(medium)
        if self.heatings:
            extents = {n: self.found.extent(n) for n in self.heatings}
            here = MIRROR if enthalpy is None else TEMPERATURE
            held = self.found.fullness[self.found.of_id]
            source = make_source_rule(self.heatings, self.found.sources, extents, here, held)
        return Conduction(medium, source, self.coefficients, enthalpy)

    @property
    def kind(self) -> object:
        """Equal for parts of a run in which the same fillings are in contact, and faces alike."""
        faces = [getattr(it, "lasting", None) for pair in self.boundary.faces for it in pair]
        there = [
            (it.name, its) for it, its in zip(self.found.fillings, self.found.sources, strict=True)
        ]
        return there, self.found.touching, faces

    @property
    def given(self) -> Callable[[Ranges], Numbers] | None:
        """From a box to the temperatures in it that are those of fluids or of what arrives, NaN
        where there is neither [degC]; None if both are nowhere.
        """
        ambients = np.array(
            [math.nan if it.fluid is None else it.fluid.held_at for it in self.found.fillings]
        )
        medium, arrives = self.found.medium(), self.arrives
        if arrives is None:
            return None if np.isnan(ambients).all() else lambda box: ambients[medium.ids(box)]

        assert medium.regions is not None
        shown = medium.regions.read
        # A fluid has no temperature with which it arrives.
        return lambda box: np.where(
            np.isnan(ambients)[ids := medium.ids(box)], arrives[shown(box)], ambients[ids]
        )


@dataclass(frozen=True)
class _Question:
    """A body to examine; equal ones have the same answer."""

    text: str
    files: tuple[tuple[str, int, int], ...]
    run: int
    time: float
    model: HeatModel = field(compare=False)
    request: Request = field(compare=False)
    signals: Decided | None = field(compare=False)
    gone: Absent | None = None


def examine(
    model: HeatModel,
    request: Request,
    *,
    anew: bool = False,
    time: float = 0.0,
    signals: Decided | None = None,
    gone: Absent | None = None,
) -> tuple[Body | None, dict[str, str]]:
    """The body, and what is wrong with it by key; a body that was examined lately is remembered,
    unless it is wanted `anew`: what a controller decides belongs to one run.

    Args:
        model: the body.
        request: the other sections.
        anew: see above.
        time: from which on regions that come and go are there or not [s].
        signals: that controllers decide, if another part of the same run has them.
        gone: cells of regions that have gone by themselves.
    """
    decides = request.control or lumps_in(model) or (model.electric and model.electric.follows)
    run = next(_RUNS) if anew and decides else 0
    return _examine(replace(_asked(model, request, run, time, signals), gone=gone))


def _asked(
    model: HeatModel, request: Request, run: int, time: float, signals: Decided | None
) -> _Question:
    # Before a run begins, currents are those at the initial temperature.
    begins = {"initial"} if model.electric else set()
    values = [
        model.model_dump(mode="json"),
        request.model_dump(mode="json", include={"grid", "boundaries", "time", "control", *begins}),
    ]
    files = stamps(texts_in(values))
    return _Question(json.dumps(values), files, run, time, model, request, signals)


def examine_all(model: HeatModel, request: Request) -> _Examined:
    """Return what is wrong with a body in any part of its run, the largest step that is stable in
    all of them [s], the name of the material that sets it, and by part the first one of its kind.
    """
    return _examine_all(_asked(model, request, 0, 0.0, None))


@functools.lru_cache(maxsize=2)
def _examine_all(question: _Question) -> _Examined:
    mistakes, missing, kinds = dict[str, str](), list[Mapping[str, str]](), list[object]()
    # The first part last: it is what is asked for next.
    least = (math.inf, "")
    ways = WAYS_TO_GO if any(it.goes for it in question.model.regions) else (None,)
    parts = [replace(question, time=it, gone=way) for it in question.model.moments for way in ways]
    for body, found in map(_examine, reversed(parts)):
        mistakes |= found
        kinds.insert(0, None if body is None else body.kind)
        missing.append({} if body is None else body.missing)
        if body is not None:
            least = min(least, (body.dt_limit, body.limiting))
    never = {key: it for key, it in missing[0].items() if all(key in them for them in missing)}
    return mistakes or never, *least, tuple(map(kinds.index, kinds))


@functools.lru_cache(maxsize=2)
def _examine(question: _Question) -> tuple[Body | None, dict[str, str]]:
    mistakes: dict[str, str] = {}
    try:
        body = _look(question, mistakes)
    except ConfigError as error:
        for line in str(error).splitlines():
            key, _, message = line.partition(": ")
            mistakes.setdefault(key, message)
        return None, mistakes
    return (None if mistakes else body), mistakes


def _look(question: _Question, mistakes: dict[str, str]) -> Body:
    model, request = question.model, question.request
    grid = make_grid(request.grid)
    if grid.n_points > _MOST_POINTS:
        told = f"{grid.n_points:.3g} are more than the {_MOST_POINTS:.3g} that this is made for"
        msg = f"grid.shape: every point of a body of several materials is looked at, and {told}"
        raise ConfigError(msg)
    times = _times(request)
    regions = still_fluids(model, times)
    regions = regions or (RegionSection(material=next(iter(model.substances()))),)
    volumes = [(n, it) for n, it in enumerate(model.sources) if isinstance(it, VolumeSource)]
    of_regions = (grid, regions, volumes, tuple(model.substances().values()), model.contacts)
    painting = RasterizedBody(*of_regions, question.time, question.gone)
    found = survey(painting, model.contacts, grid, openness(request, grid))
    mistakes |= painting.mistakes

    there = {number for number, it in enumerate(regions) if it.is_there(question.time)}
    for number in there - painting.covered[0]:
        mistakes[f"model.regions.{number}"] = (
            "the region covers the centre of no cell; move it, make it larger, or the grid finer"
        )
    # Of parts that come and go, others may be there at other times.
    missing = dict[str, str]() if painting.passes else mistakes
    for number in {number for number, _ in volumes} - painting.covered[1]:
        missing[f"model.sources.{number}"] = (
            "the source covers no cell of the body, so it heats nothing; move it, or make it larger"
        )
    names = [it.name for it in painting.fillings]
    for number, contact in enumerate(model.contacts):
        if absent := [name for name in contact.between if name not in names]:
            missing[f"model.contacts.{number}.between"] = (
                f"no cell is of {listed(absent)}, so nothing of it touches anything; the body has "
                f"{listed(sorted({*names}), 'and')}"
            )
            continue
        a, b = sorted(names.index(name) for name in contact.between)
        if (a, b) not in found.touching:
            missing[f"model.contacts.{number}.between"] = (
                f"{contact.between[0]} and {contact.between[1]} touch nowhere, so nothing resists"
            )

    if mistakes:
        raise ConfigError("\n".join(f"{key}: {said}" for key, said in mistakes.items()))

    volumes = [(n, it) for n, it in volumes if n in painting.covered[1]]
    signals = dict(question.signals or {})
    for name, it in request.control.items():
        signals.setdefault(name, Signal(name, first_output(it)))
    switched: dict[str, list[Signal]] = {}
    for name, section in request.control.items():
        for target in section.targets:
            switched.setdefault(target, []).append(signals[name])
    beams = {n: it for n, it in enumerate(model.sources) if isinstance(it, BeamSource)}
    faces = FaceMaker(request.boundaries, found, beams, times, switched=switched)

    read = [
        functools.partial(_read_source, n, it, found, times, switched.get(it.name or "", ()))
        for n, it in volumes
    ]
    made: list[list[Any]] = make_each([lambda: make_each(read), lambda: [faces.boundary()]])
    heatings = dict(zip(dict(volumes), made[0], strict=True))
    beyond = openness(request, grid)
    limit, limiting, boxes = found.dt_limit, found.limiting, tuple(painting.blocks())
    graded = graded_coefficients(found, beyond, boxes)
    if graded is not None:
        # However hot they are: surfaces that radiate resist nothing.
        most = replace(graded, resistance=np.where(graded.radiances > 0, 0.0, graded.resistance))
        limit, number = largest_stable_step(most, easing(found), boxes, beyond.insulated)
        limiting = found.fillings[number].name
        graded = by_potential(graded, found) if found.enthalpy else graded
    flows = _flows(model, found, per_volume=graded is None)
    body = Body(grid, found, heatings, made[1][0], graded, limit, limiting, signals, flows)
    arrives = np.array([it.arrives_at for it in regions], np.float64)  # None becomes NaN
    never = missing if painting.passes else {}
    body = replace(body, arrives=None if np.isnan(arrives).all() else arrives, missing=never)
    joules = 1.0 if graded is not None else grid.cell_volume
    enclosures = find_enclosures(model, found, body.conduction(), beyond.periodic, joules)
    around, currents = Around(enclosures=enclosures), None
    if (circuit := find_circuit(model, found, beyond.periodic)) is not None:
        currents = circuit.begin(getattr(request.initial, "value", _USUAL))
        if circuit.follows:
            rates = body.conduction().rates(1.0, tuple((0, n) for n in grid.shape))
            heat = JouleHeat(circuit, rates, joules, decides=not request.time.solves)
            around = replace(around, currents=heat)
            signals |= {it.name: it for it in heat.signals}
    body = replace(body, around=around, currents=currents)
    changing = has_changing(model)
    if flows is None and (changing or enclosures or currents):
        flows = tuple(
            np.zeros([n + (k == axis) for k, n in enumerate(grid.shape)])
            for axis in range(grid.ndim)
        )
        body = replace(body, flows=flows)
    if not changing:
        return body

    walls, sections = BodyWalls(found, beyond.periodic), lumps_in(model)
    numbered = {it.name: (n, it.fluid) for n, it in enumerate(model.regions) if it.name}
    lumps = read_lumps(sections, numbered, walls, joules)
    network = make_network(sections, lumps, joules, times) if lumps else None
    fluids = warm_fluids(model, walls, joules, times)
    rates = body.conduction().rates(1.0, tuple((0, n) for n in grid.shape))
    streams, network = read_streams(model, walls, network, rates, joules, times)
    decided = [signal for pair in (network.signals if network else ()) for signal in pair]
    return replace(
        body,
        around=replace(body.around, network=network, fluids=fluids, streams=streams),
        signals={**signals, **{it.name: it for it in decided}},
    )


def _flows(model: HeatModel, found: GridScan, *, per_volume: bool) -> tuple[Numbers, ...] | None:
    """The heat capacity that what moves carries through faces; None if nothing moves."""
    velocities = model.velocities
    if has_changing(model) and found.enthalpy is not None:
        msg = (
            f"model.{'lumps' if model.lumps else 'regions'}: a body with lumps, or fluids whose "
            "temperature changes, has constant properties, and here something melts, radiates or "
            "depends on temperature; give numbers"
        )
        raise ConfigError(msg)
    if not velocities:
        return None
    grid, medium = found.painting.grid, found.medium()
    whole = tuple((0, n) for n in grid.shape)
    ids = medium.ids(whole)
    # Cells that a surface cuts are lighter, but what moves through them is not.
    capacity = np.array(
        [0.0 if it.substance is None else it.substance.capacity for it in found.fillings]
    )

    assert medium.regions is not None
    shown = medium.regions.read(whole)
    parts = parts_of(velocities, shown, (capacity > 0)[ids])
    if parts and found.enthalpy is not None:
        msg = (
            f"{parts[0].key}: what moves has constant properties, and here something melts, "
            "radiates or depends on temperature; give numbers"
        )
        raise ConfigError(msg)
    return carried_flows(grid, parts, capacity[ids], per_volume=per_volume) if parts else None


def _times(request: Request) -> Numbers:
    """Times from the start to the end of the run, as far as the configuration knows it [s]."""
    time = request.time
    end = time.t_end or (time.dt * (time.steps or 0) if isinstance(time.dt, float) else 0.0)
    return np.linspace(0.0, end, _TIMES)


def _read_source(
    number: int,
    source: VolumeSource,
    found: GridScan,
    times: Numbers,
    signals: Sequence[Signal],
) -> Heating:
    """The numbers of a source, all of them finite."""
    key, grid = f"model.sources.{number}", found.painting.grid
    heating = read_source(source, key, signals)
    check_course(heating.factor, times, f"{key}.over_time")
    strength = heating.strength.mild
    if not strength.in_space:
        check_course(strength, times, f"{key}.{'power' if heating.is_total else 'density'}")
        return heating
    heats = np.array([number in sources for _, sources in found.painting.states])
    for box in found.painting.blocks():
        at = dict(zip(grid.axis_names, positions(grid, box), strict=True))
        marked = heats[found.painting(box)]
        check_in_space(strength, (at, box, grid), times, f"{key}.density", marked)
    return heating
