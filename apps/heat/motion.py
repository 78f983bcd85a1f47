"""Motion: the sections that say how a body moves and when its parts come and go, and what heat
capacity its motion carries through the faces of cells.

What a moving cell loses its neighbour gains, and as much material leaves a cell as enters it, to
rounding: then a body of one temperature keeps it. Where two components of a velocity lie in a plane
of the grid, flows through faces are differences of a stream function at the corners of cells, which
is made constant along every surface that no material passes, so that stairs of a round surface
deflect what moves along them. Elsewhere a flow is the velocity at the middle of a face.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, model_validator

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.initial import first_place
from tetris_sim.config.sections.quantities import (
    Length,
    Moment,
    Position,
    PositiveDuration,
    PositiveLength,
    Quantity,
    Section,
    Temperature,
    looks_like_quantity,
)
from tetris_sim.config.sections.varying import PathSection
from tetris_sim.errors import ConfigError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.formula import ExpressionError, compile_expression, evaluate
from tetris_sim.model.grid import AXIS_NAMES, Coordinates, Grid
from tetris_sim.support.wording import listed

if TYPE_CHECKING:
    from tetris_sim.apps.heat.model import HeatModel
    from tetris_sim.config.sections.conditions import SensorSection
    from tetris_sim.config.sections.schema import Request

_SPEED = Quantity("a speed", "m/s", ("10 mm/s", "-2 m/min"))
_TURNING = Quantity("an angular speed", "rad/s", ("10 rad/s", "600 rpm"))
# Of the largest flow: what a cell may gain or lose of its material. Formulas are taken at the
# middles of faces, whose flows add up but for the error of that.
_KEPT = 1e-6
# Diagonals of a cell over which a stream function may differ along one surface of stairs.
_STAIRS = 2.0
_MOST_COPIES = 10_000
_MOST_PIECES = 10_000  # of all copies of a bead
HALF = 0.5 + 1e-9  # so that the tool at half a piece, but for rounding, is at the next one
Mask = npt.NDArray[np.bool_]


class BeadSection(Section):
    """A bead that a tool lays down along its path, piece by piece. The tool begins at `from`; each
    cell comes at that of the times `from`, `from` + `every`, ... at which the tool is nearest it.
    """

    path: PathSection
    """Where the tool is, t being the time of the run: the middle of the foot of the bead if it has
    a height, else the middle of the bead.
    """
    until: Moment
    """When the tool has come to its end [s]."""
    every: PositiveDuration
    """How much of the path is laid down at once, as time [s]; a run has as many parts."""
    width: PositiveLength | None = None
    """Across the path [m]; where the grid has an axis across it."""
    height: PositiveLength | None = None
    """Up along the last axis of the grid, y in 2D and z in 3D [m]; if not given, the bead is a
    strip of its width in 2D, and round in 3D.
    """
    section: Literal["rectangle", "ellipse", "parabola"] = "rectangle"
    """The shape across the path, of a bead of width and height."""


class RepeatSection(Section):
    """The same region again, shifted in space and time: the layers of a wall."""

    count: Annotated[int, Field(ge=2, le=_MOST_COPIES)]
    """How many there are, the first one included."""
    shift: Annotated[tuple[Length, ...], Field(min_length=1, max_length=3)]
    """From each to the next: x, y (and z) [m]."""
    after: Moment = 0.0
    """From each to the next: by how much it comes and goes later [s]."""


class GoesSection(Section):
    """Cells that go as they get too hot: ablation, burning, evaporation."""

    above: Temperature
    """The temperature above which a cell goes, with its heat [degC]; it shows what lies below."""
    every: PositiveDuration | None = None
    """How often temperatures are looked at [s]; after each step if not given."""


class Presence(Section):
    """When a part of the body is there."""

    begins: Moment | None = Field(default=None, alias="from")
    """When it comes [s]; it is there when the run begins if not given."""
    ends: Moment | None = Field(default=None, alias="to")
    """When it goes, with its heat [s]; never if not given."""
    arrives_at: Temperature | None = None
    """The temperature with which its material comes, also when the run begins [degC]; that of
    `initial` if not given.
    """
    goes: GoesSection | None = None
    """Its cells go one by one, when they get too hot."""
    bead: BeadSection | None = None
    """Instead of a box: what a tool lays down along a path, from `from` on."""
    repeat: RepeatSection | None = None
    """The same box or bead again, shifted in space and time."""

    @model_validator(mode="after")
    def _lasts(self) -> Presence:
        if self.ends is not None and self.ends <= self.pieces[-1]:
            msg = f"it is to go at {self.ends:g} s, and it would not have come; give a later `to`"
            raise ValueError(msg)
        return self

    @property
    def schedule(self) -> tuple[tuple[float, ...], ...]:
        """When the pieces of each copy come, ascending [s]."""
        begins, bead = self.begins or 0.0, self.bead
        count = 0
        if bead is not None and bead.until > begins:
            count = min(math.floor((bead.until - begins) / bead.every + HALF), _MOST_PIECES)
        return _schedule(begins, 0.0 if bead is None else bead.every, count, self.copies)

    @property
    def pieces(self) -> tuple[float, ...]:
        """When the pieces of the first copy come, ascending [s]."""
        return self.schedule[0]

    @property
    def copies(self) -> tuple[float, ...]:
        """How much later than the first one each copy comes and goes [s]."""
        it = self.repeat
        return (0.0,) if it is None else tuple(k * it.after for k in range(it.count))

    @property
    def moments(self) -> set[float]:
        """When something of it comes or goes [s]."""
        ends = [] if self.ends is None else [moment(self.ends + later) for later in self.copies]
        return set(ends).union(*self.schedule)

    def there(self, time: float) -> list[tuple[int, int]]:
        """Return the copies that are there from a time on [s]: their numbers, with how many of
        their pieces have come.
        """
        found = []
        for number, (later, pieces) in enumerate(zip(self.copies, self.schedule, strict=True)):
            if self.ends is not None and moment(self.ends + later) <= time:
                continue
            if came := bisect.bisect_right(pieces, time):
                found.append((number, came))
        return found

    def is_there(self, time: float) -> bool:
        """Whether a whole copy is there from a time on [s]."""
        return any(came == len(self.pieces) for _, came in self.there(time))


@functools.lru_cache(maxsize=64)
def _schedule(
    begins: float, every: float, count: int, copies: tuple[float, ...]
) -> tuple[tuple[float, ...], ...]:
    own = [moment(begins + k * every) for k in range(count + 1)]
    return tuple(tuple(moment(it + later) for it in own) for later in copies)


def moment(time: float) -> float:
    """Round a sum of times, so that the same ones are equal."""
    return float(f"{time:.12g}")


def moments_of(regions: Sequence[Presence]) -> tuple[float, ...]:
    """Return the times from which on the same regions are there, ascending from 0 [s]."""
    return tuple(sorted(set[float]({0.0}).union(*(it.moments for it in regions))))


def _bead_mistakes(region: Presence, request: Request) -> Iterator[tuple[KeyPath, str]]:
    """Yield what does not fit in a bead and in what is repeated, with the end of its key path."""
    grid, bead, repeat = request.grid, region.bead, region.repeat
    given = [it for it in ("box", "where", "labels") if getattr(region, it) is not None]
    if repeat is not None:
        if grid.system.is_curved:
            yield (
                ("repeat",),
                "what is repeated is shifted along straight axes; this grid has others",
            )
        elif len(repeat.shift) != request.ndim:
            told = f"it has {len(repeat.shift)} numbers; one along each of "
            yield ("repeat", "shift"), f"{told}{listed(grid.names, 'and')} is wanted"
        elif bead is None and given != ["box"]:
            yield ("repeat",), "a box or a bead is repeated, alone; give one"
    if bead is None:
        return

    begins = region.begins or 0.0
    if grid.system.is_curved:
        yield ("bead",), "a tool moves along straight axes; this grid has others"
        return
    if given:
        yield (given[0],), "the bead says where the region is; leave this out"
    if bead.until <= begins:
        yield ("bead", "until"), f"the tool begins at {begins:g} s (from); give a later time"
    elif bead.every > bead.until - begins:
        yield (
            ("bead", "every"),
            f"the tool moves for {bead.until - begins:g} s; give less than that",
        )
    elif len(region.pieces) * len(region.copies) > _MOST_PIECES:
        told = f"it would come in more than {_MOST_PIECES} pieces; give a longer time"
        yield ("bead", "every"), told
    for name in PathSection.model_fields:
        if name not in grid.names and getattr(bead.path, name) is not None:
            yield ("bead", "path", name), f"the grid has no axis {name}; leave it out"
    across = request.ndim - 1 - (bead.height is not None)
    if across < 0:
        yield ("bead", "height"), "the grid has no axis besides that of the path; leave it out"
    elif across and bead.width is None:
        yield ("bead",), "it needs a width"
    elif not across and bead.width is not None:
        yield ("bead", "width"), "the grid has no axis across the path; leave it out"
    if bead.section != "rectangle" and (across < 1 or bead.height is None):
        yield ("bead", "section"), "only what has a width and a height has a section; leave it out"


def coming_mistakes(model: HeatModel, request: Request) -> Iterator[tuple[KeyPath, str]]:
    """Yield what cannot be together with regions that come and go."""
    for number, region in enumerate(model.regions):
        if region.arrives_at is not None and (region.fluid is not None or region.void):
            told = "only a material arrives with a temperature; leave it out"
            yield ("model", "regions", number, "arrives_at"), told
        if region.goes is not None and (region.fluid is not None or region.void):
            yield ("model", "regions", number, "goes"), "only a material gets too hot; leave it out"
        for place, told in _bead_mistakes(region, request):
            yield ("model", "regions", number, *place), told
    passing = [n for n, it in enumerate(model.regions) if it.goes or it.moments - {0.0}]
    if not passing:
        return

    path: KeyPath = ("model", "regions", passing[0])
    if request.time.scheme in ("steady", "spectral"):
        told = "regions come and go (from, to) between steps; take explicit, implicit or auto"
        yield ("time", "scheme"), told
    changing = any(it.fluid is not None and it.fluid.changes for it in model.regions)
    for what, there in {
        "velocity": bool(model.velocities),
        "lumps": bool(model.lumps),
        "streams": bool(model.streams),
        "electric": model.electric is not None,
        "a void that radiates": any(not isinstance(it.void, bool) for it in model.regions),
        "a fluid whose temperature changes": changing,
    }.items():
        if there:
            yield path, f"regions that come and go (from, to) do not go together with {what} yet"
    sensors: list[tuple[KeyPath, SensorSection | None]] = [
        (("control", name, "sensor"), it.sensor) for name, it in request.control.items()
    ]
    until = request.time.until
    if until is not None:
        sensors += [(("time", "until"), it) for it in (*until.any, *until.all)]
    for place, sensor in sensors:
        if sensor is not None and sensor.mean is not None:
            yield place, "where regions come and go (from, to), a sensor is a probe; give one"


def _component(value: object) -> object:
    """Read a component of a velocity: a speed, or a formula of place."""
    if not isinstance(value, str) or looks_like_quantity(value):
        return _SPEED.read(value)
    try:
        compile_expression(value, AXIS_NAMES)
    except ExpressionError as error:
        msg = f"{value!r} was found; {_SPEED.wanted}, or a formula of x, y and z ({error})"
        raise ValueError(msg) from None
    return value


def _turning(value: object) -> object:
    # Hertz are turns to people and radians to tables of units.
    if isinstance(value, str) and value.rstrip().lower().endswith("hz"):
        msg = f"{value!r} was found; {_TURNING.wanted} is wanted: say rpm, turn/s or rad/s"
        raise ValueError(msg)
    return _TURNING.read(value)


class RotationSection(Section):
    """A rotation about an axis that stands still."""

    omega: Annotated[float, BeforeValidator(_turning)]
    """Angular speed [rad/s]; above 0 it turns from x to y, from y to z, or from z to x."""
    centre: tuple[Position, ...]
    """A point of the axis: x, y (and z) [m]."""
    axis: Literal["x", "y", "z"] = "z"
    """Along which the axis lies."""


Component = Annotated[float | str, BeforeValidator(_component)]
Velocity = Annotated[tuple[Component, ...], Field(min_length=1, max_length=3)] | RotationSection


@dataclass(frozen=True)
class MovingPart:
    """Cells that move together.

    Attributes:
        velocity: of them.
        key: of the configuration.
        cells: where they are, of the shape of the grid.
    """

    velocity: tuple[float | str, ...] | RotationSection
    key: str
    cells: Mask


def motion_mistakes(model: HeatModel, request: Request) -> Iterator[tuple[KeyPath, str]]:
    """Yield velocities that do not fit the grid, or that nothing can have."""
    system, axes = request.grid.system, request.grid.names
    found = list[tuple[KeyPath, Velocity]]()
    if model.velocity is not None:
        found.append((("model", "velocity"), model.velocity))
    for number, region in enumerate(model.regions):
        path: KeyPath = ("model", "regions", number, "velocity")
        if region.velocity is not None:
            found.append((path, region.velocity))
            if region.fluid is not None or region.void:
                yield path, "only what has a material moves; leave it out"

    yield from coming_mistakes(model, request)
    for path, velocity in found:
        yield from ((path, told) for told in _misfits(velocity, axes, system))
    if found and request.compute.precision == "float16":
        told = "moving bodies are equations, in float64 or float32; not in float16"
        yield ("compute", "precision"), told
    if found and request.time.scheme == "spectral":
        told = "what moves has no eigenvectors along the axes; take explicit, implicit or steady"
        yield ("time", "scheme"), told


def _misfits(velocity: Velocity, axes: Sequence[str], system: Coordinates) -> list[str]:
    """Return what does not fit between a velocity and a grid, as sentences."""
    if isinstance(velocity, RotationSection):
        if system.kind == "cylindrical" and "theta" in axes:
            fits = velocity.axis == "z" and not any(velocity.centre)
            return [] if fits else ["around an axis it turns about that: centre: [0, 0]"]
        plane = [name for name in AXIS_NAMES if name != velocity.axis]
        if system.is_curved or not {*plane} <= {*axes}:
            return [f"it turns in the plane of {plane[0]} and {plane[1]}, which the grid has not"]
        if len(velocity.centre) != len(axes):
            return [f"centre has {len(velocity.centre)} numbers; {listed(axes, 'and')} are wanted"]
        return []
    if len(velocity) != len(axes):
        return [f"it has {len(velocity)} components; one along each of {listed(axes, 'and')}"]

    found = []
    for name, it in zip(axes, velocity, strict=True):
        # Around an axis only what moves along it keeps its form.
        if system.is_curved and name != "z" and it != 0:
            found.append(f"around an axis a body moves along z or turns (omega), not along {name}")
        if isinstance(it, str):
            try:
                compile_expression(it, axes)
            except ExpressionError as error:
                found.append(str(error))
    return found


def carried_flows(
    grid: Grid, parts: Sequence[MovingPart], capacity: Numbers, *, per_volume: bool
) -> tuple[Numbers, ...]:
    """Return the heat capacity that crosses the lower face of every cell upwards along each axis
    [W/K], and beyond the last cell the upper face of the domain: along its own axis an array has
    one plane more than the grid.

    Args:
        grid: where cells lie.
        parts: what moves.
        capacity: rho c of the cells, of the shape of the grid [J/(m^3 K)].
        per_volume: whether flows are those of a cell over its volume [W/(m^3 K)].

    Raises:
        ConfigError: a part moves out of its own place, or materials of different heat capacities
            follow one another.
    """
    total = [np.zeros(_faces(grid.shape, axis)) for axis in range(grid.ndim)]
    for part in parts:
        flows = _of_rotation(grid, part) or _of_plane(grid, part) or _of_middles(grid, part)
        _check(grid, part, flows)
        for axis, flow in enumerate(flows):
            total[axis] += flow * _capacity_of_faces(part, capacity, axis, flow)
    if per_volume:
        return tuple(it / grid.cell_volume for it in total)
    return tuple(total)


def _faces(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(n + (k == axis) for k, n in enumerate(shape))


def _beside(values: npt.NDArray[Any], axis: int) -> tuple[Any, Any]:
    """Values of the cells below and above each face; beyond the domain those inside."""
    ends = [np.take(values, [0], axis), values, np.take(values, [-1], axis)]
    wide = np.concatenate(ends, axis)
    n = values.shape[axis] + 1
    return np.take(wide, range(n), axis), np.take(wide, range(1, n + 1), axis)


def _capacity_of_faces(part: MovingPart, capacity: Numbers, axis: int, flow: Numbers) -> Numbers:
    below, above = _beside(np.where(part.cells, capacity, 0.0), axis)
    if ((below != above) & (flow != 0)).any():
        msg = (
            f"{part.key}: materials of different heat capacities follow one another, and where "
            "they meet would move with them; let them lie side by side"
        )
        raise ConfigError(msg)
    return np.asarray(below)


def _of_rotation(grid: Grid, part: MovingPart) -> list[Numbers] | None:
    """Flows of volume by the stream function of a rotation [m^3/s]."""
    given = part.velocity
    if not isinstance(given, RotationSection) or grid.system.is_curved:
        return None
    names = grid.axis_names
    a, b = (k for k in range(grid.ndim) if names[k] != given.axis)
    centre = dict(zip(AXIS_NAMES, given.centre, strict=False))
    # Positive where a, b and the axis are right-handed.
    order = AXIS_NAMES.index(names[b]) - AXIS_NAMES.index(names[a])
    omega = given.omega * (1.0 if order % 3 == 1 else -1.0)

    def stream(at_a: Numbers, at_b: Numbers) -> Numbers:
        radii = (at_a - centre[names[a]]) ** 2 + (at_b - centre[names[b]]) ** 2
        return np.asarray(-omega / 2 * radii)

    return _in_layers(grid, part, (a, b), stream)


def _of_plane(grid: Grid, part: MovingPart) -> list[Numbers] | None:
    """Flows of volume by the stream function of a constant velocity in a plane of the grid."""
    if grid.ndim == 1 or grid.system.is_curved or isinstance(part.velocity, RotationSection):
        return None
    along = [it for it in part.velocity[::-1] if not isinstance(it, str)]
    moved = [axis for axis, it in enumerate(along) if it != 0]
    if len(along) < grid.ndim or len(moved) == 3:
        return None
    others = [axis for axis in range(grid.ndim) if axis not in moved]
    a, b = sorted([*moved, *others][:2])
    return _in_layers(grid, part, (a, b), lambda at_a, at_b: along[a] * at_b - along[b] * at_a)


def _in_layers(
    grid: Grid,
    part: MovingPart,
    plane: tuple[int, int],
    stream: Callable[[Numbers, Numbers], Numbers],
) -> list[Numbers]:
    """Flows of volume in every layer of cells, by a stream function of the corners in its plane:
    what flows upwards along a through a face is its increase along b.
    """
    a, b = plane
    psi = stream(grid.ends(a)[:, None], grid.ends(b)[None, :])
    flows = [np.zeros(_faces(grid.shape, axis)) for axis in range(grid.ndim)]
    third = next((axis for axis in range(grid.ndim) if axis not in plane), None)
    known: dict[bytes, tuple[Numbers, Numbers]] = {}

    for layer in range(1 if third is None else grid.shape[third]):
        place: list[Any] = [layer if axis == third else slice(None) for axis in range(grid.ndim)]
        width = 1.0 if third is None else float(grid.widths(third, layer, layer + 1)[0])
        cells = part.cells[tuple(place)]
        key = np.packbits(cells).tobytes()
        if key not in known:
            known[key] = _deflected(grid, part, plane, psi, cells)
        for axis, flow in zip(plane, known[key], strict=True):
            flows[axis][tuple(place)] = flow * width
    return flows


def _deflected(
    grid: Grid, part: MovingPart, plane: tuple[int, int], psi: Numbers, cells: Mask
) -> tuple[Numbers, Numbers]:
    """Flows per length through the faces of a layer, none through the surface of its cells."""
    from scipy.sparse import coo_matrix, csgraph

    number = np.arange(psi.size).reshape(psi.shape)
    walls = [cells[1:] != cells[:-1], cells[:, 1:] != cells[:, :-1]]
    ends = [
        (number[1:-1, :-1][walls[0]], number[1:-1, 1:][walls[0]]),
        (number[:-1, 1:-1][walls[1]], number[1:, 1:-1][walls[1]]),
    ]
    one, other = (np.concatenate(it) for it in zip(*ends, strict=True))
    # Corners along one surface have one value: between them no material passes.
    graph = coo_matrix((np.ones(len(one)), (one, other)), (psi.size, psi.size))
    labels = csgraph.connected_components(graph, directed=False)[1]
    on_wall = np.zeros(psi.size, np.bool_)
    on_wall[one] = on_wall[other] = True

    flat = psi.reshape(-1).copy()
    counts = np.bincount(labels[on_wall], minlength=labels.max() + 1)
    sums = np.bincount(labels[on_wall], flat[on_wall], labels.max() + 1)
    smooth = sums[labels[on_wall]] / counts[labels[on_wall]]
    widths = [grid.widths(axis) for axis in plane]
    speeds = abs(np.diff(psi, axis=1))[1:] / widths[1], abs(np.diff(psi, axis=0).T)[1:] / widths[0]
    fastest = max(speeds[0][cells].max(), speeds[1].T[cells].max()) if cells.any() else 0.0
    if (
        abs(flat[on_wall] - smooth) > _STAIRS * fastest * math.hypot(*(it.max() for it in widths))
    ).any():
        raise ConfigError(_leaving(part))
    flat[on_wall] = smooth
    psi = flat.reshape(psi.shape)

    inside = np.pad(cells, 1)
    through_a = (inside[1:, 1:-1] | inside[:-1, 1:-1]) * np.diff(psi, axis=1)
    through_b = (inside[1:-1, 1:] | inside[1:-1, :-1]) * -np.diff(psi, axis=0)
    return through_a, through_b


def _of_middles(grid: Grid, part: MovingPart) -> list[Numbers]:
    """Flows of volume by the velocity in the middle of every face [m^3/s]."""
    flows, velocity = [], part.velocity
    if isinstance(velocity, RotationSection):  # about the axis of the coordinates
        turning = f"{velocity.omega}*r"
        velocity = tuple(turning if it == "theta" else 0.0 for it in grid.axis_names[::-1])
    for axis, given in enumerate(velocity[::-1]):
        shape = _faces(grid.shape, axis)
        at = {}
        for other, name in enumerate(grid.axis_names):
            n = grid.shape[other]
            places = grid.ends(other) if other == axis else grid.coordinates(other, 0, n)
            at[name] = places.reshape([-1 if k == other else 1 for k in range(grid.ndim)])
        tree = compile_expression(str(given), [*grid.axis_names]).tree
        speed = np.broadcast_to(np.asarray(evaluate(tree, at), np.float64), shape)

        box = tuple((-1 if k == axis else 0, n) for k, n in enumerate(grid.shape))
        below, above = _beside(part.cells, axis)
        flows.append(np.where(below & above, speed * grid.areas(axis, box), 0.0))
    return flows


def _check(grid: Grid, part: MovingPart, flows: Sequence[Numbers]) -> None:
    """Refuse what gathers somewhere, and rings that do not close."""
    gathered = np.zeros(grid.shape)
    for axis, flow in enumerate(flows):
        gathered -= np.diff(flow, axis=axis)
    largest = max(float(abs(flow).max()) for flow in flows)
    if not math.isfinite(largest):
        msg = f"{part.key}: the formula has no finite value at some faces of cells"
        raise ConfigError(msg)

    if not (abs(gathered) > _KEPT * largest).any():
        return
    most = abs(gathered) == abs(gathered).max()
    _, at = first_place(most, grid, tuple((0, n) for n in grid.shape))
    msg = f"{_leaving(part)}; around {at} material gathers or is lost"
    raise ConfigError(msg)


def _leaving(part: MovingPart) -> str:
    return (
        f"{part.key}: the body would move out of its own place; what moves reaches to the faces "
        "of the box along its way, or turns around the middle of something round"
    )


def parts_of(
    velocities: Mapping[int, tuple[Velocity, str]],
    shown: npt.NDArray[Any],
    solid: Mask,
) -> list[MovingPart]:
    """Return what moves together: regions of the same velocity are one part.

    Args:
        velocities: and their keys, by number of the region.
        shown: the number of the region of each cell.
        solid: where there is material.
    """
    together: dict[str, list[int]] = {}
    for number, (velocity, _) in velocities.items():
        together.setdefault(repr(velocity), []).append(number)
    found = []
    for own in together.values():
        velocity, key = velocities[own[0]]
        moves = isinstance(velocity, RotationSection) or any(it != 0 for it in velocity)
        cells = np.isin(shown, own) & solid
        if moves and cells.any():
            found.append(MovingPart(velocity, key, cells))
    return found
