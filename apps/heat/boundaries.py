"""Boundary conditions of a body by face: turns the `boundaries` section into rules for ghosts."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tetris_sim.apps.boundaries import (
    Correlation,
    coefficient,
    condition_of,
    outside,
    patches,
    refuse_half_ring,
)
from tetris_sim.apps.domain import KeyPath, make_each, times_of
from tetris_sim.apps.heat.motion import Presence, moment
from tetris_sim.apps.heat.rules import Surface, flowing, held, join
from tetris_sim.apps.heat.shapes import Condition
from tetris_sim.apps.heat.sources import BeamSource
from tetris_sim.apps.heat.survey import GridScan, Openness
from tetris_sim.apps.initial import first_place, positions, shape_of
from tetris_sim.apps.initial_file import Box
from tetris_sim.apps.time_functions import (
    TimeFunction,
    check_course,
    check_in_space,
    course_along,
    formula,
    knots_of,
    read_course,
)
from tetris_sim.config.sections.conditions import (
    ConstantInitial,
    DirichletFace,
    ExchangeFace,
    FaceCondition,
    FaceSection,
    FixedFace,
    InitialSection,
    NeumannFace,
    PeriodicFace,
    RadiationFace,
    RobinFace,
)
from tetris_sim.config.sections.quantities import (
    ABSOLUTE_ZERO,
    HEAT_FLUX,
    HEAT_TRANSFER_COEFFICIENT,
    NUMBER,
    POWER,
    TEMPERATURE,
)
from tetris_sim.config.sections.schema import Request, TimeSection
from tetris_sim.config.sections.varying import OF_SURFACE, Varying
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import Boundary, Face, Periodic
from tetris_sim.model.conduction import Ids, Numbers, Parameter, Rule
from tetris_sim.model.formula import Constant, Node, Variable
from tetris_sim.model.grid import Grid
from tetris_sim.model.slab import GoneCells, Ranges, with_span
from tetris_sim.model.step_control import Signal
from tetris_sim.support.wording import listed

if TYPE_CHECKING:
    from tetris_sim.apps.heat.conduction import GradedCoefficients

# Beams: a moving spot of heat flux on a face.

_OF_TIME = ("t",)


def make_beam(
    beam: BeamSource, number: int, grid: Grid, key: str, signals: Sequence[Signal] = ()
) -> tuple[Node, list[Parameter]]:
    """Build the flux of a beam into its face [W/m^2] as a part of a program, with its parameters.

    With absorptivity a, power P and w half of d4sigma, the flux is 2 a P / (pi w^2) exp(-2 r^2 /
    w^2) in 3D. In 2D, where the power is per metre of depth, the beam is a line: sqrt(2 / pi) a P /
    w exp(-2 x^2 / w^2).

    Args:
        beam: its section.
        number: of the source, to make names of parameters unique.
        grid: where points lie.
        key: of the source, for messages.
        signals: that switch it.

    Raises:
        ConfigError: a table cannot be read.
    """
    axes = [axis for axis in grid.axis_names[::-1] if axis != beam.face[:-1]]
    w = beam.d4sigma / 2

    # One normalized Gaussian factor per axis of the face: 1, 2 or none (in 1D).
    peak = beam.absorptivity * (math.sqrt(2 / math.pi) / w) ** len(axes)
    power = read_course(beam.power, Varying(POWER, _OF_TIME), f"{key}.power")
    factor = read_course(beam.over_time, Varying(NUMBER, _OF_TIME), f"{key}.over_time")
    factor = factor.times(signals)

    def strength(times: Numbers) -> Numbers:
        return np.asarray((peak * power.at(times) * factor.at(times))[:, None])

    name = f"peak_{number}"
    parameters = [_parameter(name, strength, [power, factor])]

    # Squared distance from the centre of the beam, which moves with time.
    # Unrolled by axis, so the formula is the same in 1D, 2D and 3D.
    square: Node = Constant(0.0)
    for axis in axes:
        middle = course_along(beam.path, axis, grid, f"{key}.path")
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


def beam_path(beam: BeamSource, number: int, grid: Grid, times: Numbers) -> dict[str, Numbers]:
    """Evaluate where the centre of a beam is at some times [s], by axis of its face [m].

    Args:
        beam: its section.
        number: of the source, for messages.
        grid: whose face it falls on.
        times: when.
    """
    axes = [axis for axis in grid.axis_names if axis != beam.face[:-1]]
    return {
        axis: np.broadcast_to(
            course_along(beam.path, axis, grid, f"model.sources.{number}.path").at(times),
            times.shape,
        )
        for axis in axes
    }


def _parameter(name: str, at: object, courses: Sequence[TimeFunction]) -> Parameter:
    """Wrap a function of times as a parameter, evaluated at once if all its time functions are
    constant.
    """
    steady = all(course.value is not None for course in courses)
    values = at(np.zeros(1))[0] if steady else at  # type: ignore[operator]
    return Parameter(name, values, knots_of(courses))  # type: ignore[arg-type]


_MOST_NOTED = 8  # times at which something comes or goes

# The quantities of a face that may vary in time and space, by key.
_KINDS = {
    "value": Varying(TEMPERATURE),
    "ambient": Varying(TEMPERATURE),
    "flux": Varying(HEAT_FLUX, OF_SURFACE),
    "h": Varying(HEAT_TRANSFER_COEFFICIENT, OF_SURFACE),
    "emissivity": Varying(NUMBER, OF_SURFACE),
}


def _courses(section: object, at: str) -> dict[str, TimeFunction]:
    """The numbers of a section that may vary, by key."""
    return {
        key: read_course(getattr(section, key), kind, f"{at}.{key}")
        for key, kind in _KINDS.items()
        if hasattr(section, key)
    }


def key_path(key: str) -> KeyPath:
    """A key as a path: "model.regions.0.where"."""
    return tuple(int(part) if part.isdecimal() else part for part in key.split("."))


def openness(request: Request, grid: Grid) -> Openness:
    """Classify the faces of the domain: periodic, insulated, or neither."""
    sides = [
        [condition_of(request.boundaries, axis + sign)[1] for sign in "-+"]
        for axis in grid.axis_names
    ]
    return Openness(
        periodic=tuple(isinstance(low, PeriodicFace) for low, _ in sides),
        insulated=tuple((_lets_nothing(low), _lets_nothing(high)) for low, high in sides),
    )


def _lets_nothing(condition: FaceCondition) -> bool:
    sections = condition if isinstance(condition, tuple) else (condition,)
    return all(isinstance(section, NeumannFace) for section in sections)


def aligned(
    request: Request, moments: Sequence[float], regions: Sequence[Presence] = ()
) -> tuple[TimeSection, list[float]]:
    """Return the section `time` with steps that end when something comes or goes, and the times
    that these steps have to divide [s].
    """
    time = request.time
    # Steps must end at all of these times, so `align` shortens dt until each is a whole number of
    # steps.
    looks = [it.goes.every for it in regions if it.goes is not None and it.goes.every is not None]
    if time.align or time.is_adaptive or time.t_end is None:
        return time, [*times_of(request), *moments, *looks]
    before = [it for it in (*moments, *looks) if it < time.t_end]
    if not before:
        return time, [*times_of(request), *moments, *looks]
    return time.model_copy(update={"align": True}), before


def going(regions: Sequence[Presence], shape: tuple[int, ...]) -> GoneCells | None:
    """Return what keeps cells that go by themselves, if any do."""
    limits = {n: it.goes for n, it in enumerate(regions) if it.goes is not None}
    above = {n: it.above for n, it in limits.items()}
    often = {n: it.every or 0.0 for n, it in limits.items()}
    return GoneCells(shape, above, often) if limits else None


def phase_notes(regions: Sequence[Presence]) -> tuple[str, ...]:
    """Say what comes and goes at which times."""
    found = []
    told: dict[float, list[str]] = {}
    for number, it in enumerate(regions):
        name = getattr(it, "name", None) or f"model.regions.{number}"
        # A bead of hundreds of pieces is one sentence, not hundreds.
        pieces, times = it.pieces, it.copies
        if it.bead is not None:
            copies = f", {len(times)} times until {pieces[-1] + times[-1]:g} s" * (len(times) > 1)
            found.append(
                f"{name} comes from {pieces[0]:g} to {pieces[-1]:g} s in {len(pieces)} pieces, one "
                f"every {it.bead.every:g} s{copies}"
            )
        if it.goes is not None:
            often = "after each step" if it.goes.every is None else f"every {it.goes.every:g} s"
            found.append(f"cells of {name} go above {it.goes.above:g} degC, looked at {often}")
        for later in times:
            if it.bead is None and it.begins:
                told.setdefault(moment(it.begins + later), []).append(f"{name} comes")
            if it.ends is not None:
                told.setdefault(moment(it.ends + later), []).append(f"{name} goes")

    said = [f"at {time:g} s {listed(told[time], 'and')}" for time in sorted(told)]
    more = len(said) - _MOST_NOTED
    found += [*said[:_MOST_NOTED], *([f"and at {more} later times others"] if more > 0 else ())]
    return tuple(found)


def correlation_notes(request: Request) -> Iterator[str]:
    """Say for which temperatures of its face each correlation is known, and whether the run begins
    outside of them.
    """
    for path, section in patches(request.boundaries):
        if not isinstance(section, ExchangeFace):
            continue
        at = ".".join(("boundaries", *map(str, path)))
        for key, given in section.correlations.items():
            course = _courses(section, at)["ambient"]
            if course.in_space:
                told = "ambient differs from place to place, so its range is not checked"
                yield f"{at}.{key}: {given.correlation}: {told}"
                continue
            ambient = float(course.at(np.zeros(1))[0])
            yield f"{at}.{key}: {_range_of(given, ambient, request.initial)}"


def _range_of(given: Correlation, ambient: float, initial: InitialSection | None) -> str:
    # Degree by degree: validity ranges are of Rayleigh and Reynolds numbers, which are no simple
    # functions of the temperature.
    faces = np.arange(-270.0, 3000.0)
    air = np.array([ambient])
    known = [not outside(given, {"surface": it, "ambient": air}) for it in faces[:, None]]
    what = f"{given.correlation} of {given.fluid} at {ambient:g} degC"
    if not any(known):
        (why, *_) = outside(given, {"surface": faces, "ambient": np.full(len(faces), ambient)})
        return f"{what} is known for no face: {why}"
    low, high = faces[known][[0, -1]]
    told = f"{what} is known for faces of {low:g} to {high:g} degC"
    if not isinstance(initial, ConstantInitial):
        return told
    start = {"surface": np.array([initial.value]), "ambient": air}
    why = "; ".join(outside(given, start))
    return f"{told}; at {initial.value:g} degC it is not: {why}" if why else told


class FaceMaker:
    """Builds the ghost rules of all faces.

    Attributes:
        grid: where points lie.
    """

    def __init__(
        self,
        boundaries: Mapping[str, FaceCondition],
        found: GridScan,
        beams: Mapping[int, BeamSource],
        times: Numbers,
        *,
        switched: Mapping[str, Sequence[Signal]] | None = None,
    ) -> None:
        """Store the inputs that faces depend on.

        Args:
            boundaries: the section, by key.
            found: the scanned body.
            beams: by number of the source.
            times: of the run, at which numbers are checked [s].
            switched: signals by what they switch: a source's name, or a face's "z+.h".
        """
        self._switched = switched or {}
        self.grid: Grid = found.painting.grid
        self._boundaries, self._found, self._beams = boundaries, found, beams
        self._times = times
        self._used: set[tuple[str, int]] = set()

    def boundary(self) -> Boundary:
        """Build the rules of all faces.

        Raises:
            ConfigError: some faces are impossible; the message lists all of them.
        """
        # Order low, high per axis, so that every two entries are one axis.
        made = make_each(
            functools.partial(self._face, axis, name + sign)
            for axis, name in enumerate(self.grid.axis_names)
            for sign in "-+"
        )
        self._unused()
        pairs = tuple(zip(made[::2], made[1::2], strict=True))
        for name, (low, high) in zip(self.grid.axis_names, pairs, strict=True):
            refuse_half_ring(name, isinstance(low, Periodic), isinstance(high, Periodic))
        return Boundary(pairs)

    def _face(self, axis: int, name: str) -> Face:
        key, condition = condition_of(self._boundaries, name)
        if isinstance(condition, PeriodicFace):
            return Periodic()
        sections = condition if isinstance(condition, tuple) else (condition,)
        plane = self._plane(axis, name[-1])
        patches = self._patches(sections, plane, key) if isinstance(condition, tuple) else None

        # One rule per entry of a list, joined below into one program with tables by patch.
        rules = []
        for number, section in enumerate(sections):
            at = f"boundaries.{key}" + (f".{number}" if patches is not None else "")
            # Points at which the numbers of this entry count; elsewhere they may be anything.
            marked = np.ones(shape_of(plane), bool) if patches is None else patches == number
            rules.append(self._rule(section, axis, name, (at, plane, marked)))
        face = join(rules, patches, axis, len(self._found.occurring))

        # Ghosts filled once for a block of steps would need mirrored cells where cells differ.
        if not self.grid.is_even:
            face = dataclasses.replace(face, lasting=None)
        return face

    def _plane(self, axis: int, sign: str) -> Box:
        """The box of points beside a face, one point thick."""
        n = self.grid.shape[axis]
        whole = [(0, length) for length in self.grid.shape]
        whole[axis] = (0, 1) if sign == "-" else (n - 1, n)
        return tuple(whole)

    def _patches(self, sections: tuple[FaceSection, ...], plane: Box, key: str) -> Ids:
        """Assign to each point the number of the entry that holds there: the first whose `where` is
        true.
        """
        patches = np.full(shape_of(plane), len(sections), np.uint16)

        # Backwards, so that earlier entries overwrite later ones.
        for number, section in reversed(list(enumerate(sections))):
            where = getattr(section, "where", None)
            at = f"boundaries.{key}.{number}"
            inside = (
                np.ones(patches.shape, bool)
                if where is None
                else Condition(where, self.grid, f"{at}.where")(plane)
            )
            patches[inside] = number

        if (patches == len(sections)).any():
            _, where = first_place(patches == len(sections), self.grid, plane)
            msg = (
                f"boundaries.{key}: no entry of the list is about {where}; let the last one have "
                "no where"
            )
            raise ConfigError(msg)
        self._used |= {(key, int(number)) for number in np.unique(patches)}
        return patches

    def _unused(self) -> None:
        """Raise for an entry whose condition holds at no point."""
        lines = [
            f"boundaries.{key}.{number}: this entry holds at no point; the first whose where is "
            "true holds"
            for key, condition in self._boundaries.items()
            if isinstance(condition, tuple) and key in {own for own, _ in self._used}
            for number, section in enumerate(condition)
            if section.where is not None and (key, number) not in self._used
        ]
        if lines:
            raise ConfigError("\n".join(lines))

    def _rule(
        self, section: FaceSection, axis: int, name: str, patch: tuple[str, Box, Any]
    ) -> Rule:
        # Courses are read first and checked together, so that all mistakes of a face are said at
        # once.
        at = patch[0]
        courses = _courses(section, at)
        terms = [
            _courses(term, f"{at}.radiation.{n}")
            for n, term in enumerate(getattr(section, "radiation", ()))
        ]
        named = {f"{at}.{key}": course for key, course in courses.items()}
        for n, its in enumerate(terms):
            named |= {f"{at}.radiation.{n}.{key}": course for key, course in its.items()}
        make_each(
            functools.partial(self._check, course, axis, name, (key, *patch[1:]))
            for key, course in named.items()
        )

        # Checked as given: a controller may make more or less of it.
        face = at.split(".")[1]
        courses = {
            key: course.times(self._switched.get(f"{face}.{key}", ()))
            for key, course in courses.items()
        }
        surface = self._surface(axis, name, getattr(section, "conductivity", None))
        # A temperature is prescribed on the face, or (fixed) on the ghost point itself.
        match section:
            case DirichletFace():
                return held(courses["value"], surface)
            case FixedFace():
                return held(courses["value"], surface, on_ghost=True)
        if isinstance(section, RadiationFace) and section.emissivity != 0:
            terms.insert(0, courses)
        correlations = section.correlations if isinstance(section, ExchangeFace) else {}
        assert isinstance(section, NeumannFace | RobinFace | RadiationFace)
        return flowing(
            surface,
            flux=[courses["flux"]] if "flux" in courses else [],
            h=courses.get("h"),
            ambient=courses.get("ambient"),
            radiation=[(its["emissivity"], its["ambient"]) for its in terms],
            correlations=[functools.partial(coefficient, given) for given in correlations.values()],
            beams=[
                make_beam(
                    *(beam, number, self.grid, f"model.sources.{number}"),
                    self._switched.get(beam.name or "", ()),
                )
                for number, beam in self._beams.items()
                if beam.face == name
            ],
        )

    def _check(
        self, course: TimeFunction, axis: int, name: str, patch: tuple[str, Box, Any]
    ) -> None:
        key, plane, marked = patch
        course = course.mild
        if not course.in_space:
            # h and emissivities below 0 would create energy.
            least = 0.0 if key.endswith((".h", ".emissivity")) else -np.inf
            least = ABSOLUTE_ZERO if key.endswith((".value", ".ambient")) else least
            check_course(course, self._times, key, least)
            return
        at = dict(zip(self.grid.axis_names, positions(self.grid, plane), strict=True))

        # Formulas are evaluated on the face, half a cell away from the points beside it.
        at[name[:-1]] = np.full([1] * self.grid.ndim, self._position(axis, name[-1]))
        check_in_space(course, (at, plane, self.grid), self._times, key, marked)

    def _position(self, axis: int, sign: str) -> float:
        return self.grid.bounds(axis)[sign == "+"]

    def _surface(self, axis: int, name: str, own: float | None) -> Surface:
        direction = self.grid.ndim - 1 - axis  # of x, y, z
        position: dict[str, Node] = {name[:-1]: Constant(self._position(axis, name[-1]))}
        widths, enthalpy = self.grid.widths(axis), self._found.enthalpy
        distance = float(widths[0 if name[-1] == "-" else -1])
        by_radius = name[:-1] == "theta"

        # Ghosts lie as far beyond the face as the mirror point lies inside: one cell width apart.
        if enthalpy is None:
            k = [
                1.0 if it.substance is None else own or it.substance.conductivity[direction]
                for it in self._found.fillings
            ]
            return Surface(distance, np.array(k), position, by_radius=by_radius)

        # With enthalpy the conductivity follows from the state; only its anisotropy is constant.
        factors = [
            1.0 if it.substance is None else it.substance.factors[direction]
            for it in self._found.fillings
        ]
        return Surface(distance, np.array(factors), position, enthalpy, by_radius)


# Steps that are stable, whatever faces let pass.


def easing(found: GridScan) -> Numbers:
    """By how much less a face between two ids conducts than a step with the largest conductivity
    and the smallest heat capacity has to be stable for, (n_ids, n_ids): within a material both
    belong to one temperature.
    """
    factors = np.ones((len(found.fillings),) * 2)
    kinds = found.enthalpy.kinds if found.enthalpy else np.arange(len(factors))
    for number, it in enumerate(found.fillings):
        if it.substance is not None and it.substance.properties is not None:
            ratio = (
                it.substance.diffusivity[0] * it.substance.capacity / it.substance.conductivity[0]
            )
            factors[number, kinds == kinds[number]] = ratio
    return factors


def largest_stable_step(
    coefficients: GradedCoefficients,
    eased: Numbers,
    boxes: Sequence[Ranges],
    insulated: Sequence[tuple[bool, bool]],
) -> tuple[float, int]:
    """The largest stable time step [s], and the id that sets it.

    Args:
        coefficients: of the body.
        eased: see `easing`.
        boxes: that make up the grid.
        insulated: which (low, high) faces let nothing pass that depends on the temperature.
    """
    grid, uneven = coefficients.grid, bool((eased != 1).any())
    fastest, limiting = 0.0, 0
    for box in boxes:
        total = np.zeros([high - low for low, high in box])
        for axis, (low, high) in enumerate(box):
            wider = with_span(box, axis, (low - 1, high))
            between = coefficients.conductance(axis, wider)
            between = between * eased[coefficients.sides(axis, wider)] if uneven else between
            faces = np.moveaxis(between, axis, 0)
            if low == 0 and insulated[axis][0]:
                faces[0] = 0.0
            if high == grid.shape[axis] and insulated[axis][1]:
                faces[-1] = 0.0
            total += np.moveaxis(faces[1:] + faces[:-1], 0, axis)

        rates = total / coefficients.capacity(box)
        if rates.max() > fastest:
            fastest = float(rates.max())
            place = np.unravel_index(int(rates.argmax()), rates.shape)
            limiting = int(coefficients.medium.ids(box)[place])
    return (1 / fastest if fastest > 0 else math.inf), limiting
