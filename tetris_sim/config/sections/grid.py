"""Configuration sections of the grid: its points, what its axes mean, and where they begin.

As in all sections (`schema.py`), numbers are SI; lists along axes are in the order x, y, z, or in
that of `axes` around an axis or a centre.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, model_validator

from tetris_sim.config.sections.conditions import AxisFace, FaceCondition, PeriodicFace
from tetris_sim.config.sections.quantities import (
    ANGLES,
    Position,
    PositivePosition,
    Section,
    split_unit,
)
from tetris_sim.errors import Finding, KeyPath
from tetris_sim.model.grid import AXES, CARTESIAN, Coordinates, Kind
from tetris_sim.support.wording import describe, listed

AxisName = Annotated[
    str, Field(pattern=r"^([xyzr]|theta)$", description="an axis: x, y, z, r or theta")
]
Count = Annotated[int, Field(gt=0, le=2**31 - 1)]

_ROUNDED = 1e-9  # relative: 360 deg in radians may be off by this


class SegmentSection(Section):
    """Cells of equal width up to a position."""

    to: PositivePosition
    """Its end [m]; it begins at the end of the segment before, the first one at the origin."""
    n: Count
    """Number of cells."""


class GradedSection(Section):
    """An axis whose cells differ in width."""

    edges: Annotated[tuple[Position, ...], Field(min_length=2)] | None = None
    """The faces of all cells [m], ascending from the origin of the grid, 0 if none is given."""
    segments: Annotated[tuple[SegmentSection, ...], Field(min_length=1)] | None = None
    """Instead of `edges`: runs of cells of equal width."""

    @model_validator(mode="after")
    def _ascends(self) -> GradedSection:
        if (self.edges is None) == (self.segments is None):
            msg = "give either edges or segments"
            raise ValueError(msg)
        given = self.edges or tuple(it.to for it in self.segments or ())
        # Strictly ascending, from the origin; equal faces would make a cell of no width.
        if any(b <= a for a, b in itertools.pairwise(given)):
            msg = f"{describe(given)} was found; they begin at 0 and ascend"
            raise ValueError(msg)
        return self

    def ends(self, origin: float = 0.0) -> tuple[float, ...]:
        """Return the faces of all cells [m], ascending from the origin, (n + 1,)."""
        if self.edges is not None:
            return self.edges
        found = [origin]
        for it in self.segments or ():
            low = found[-1]
            # The last face is `to` itself, free of rounding, so that neighbouring segments meet.
            found += [low + (it.to - low) * k / it.n for k in range(1, it.n)] + [it.to]
        return tuple(found)


class GridSection(Section):
    """Number of points and size of the box."""

    shape: Annotated[
        tuple[Annotated[int, Field(gt=0, le=10**12)], ...], Field(min_length=1, max_length=3)
    ]
    """Number of points along x, y, z, or along `axes`."""
    size: tuple[PositivePosition, ...] | None = None
    """Edge lengths along x, y, z, or along `axes` [m]. Give this or `spacing`; neither means a
    spacing of 1.
    """
    spacing: tuple[PositivePosition, ...] | None = None
    """Distance between points along x, y, z, or along `axes` [m]."""
    coordinates: Kind = "cartesian"
    """cylindrical: a body of revolution, or a part of one; spherical: around a centre."""
    axes: Annotated[tuple[AxisName, ...], Field(min_length=1, max_length=3)] | None = None
    """Of cylindrical coordinates [r], [r, z], [r, theta] or [r, theta, z]; of spherical ones [r] or
    [r, theta], with theta the angle from the axis. Angles take a unit, as in `360 deg`, or are in
    radians. A direction without an axis counts whole, z per metre.
    """
    origin: dict[AxisName, Position] = Field(default={})
    """Where axes begin, 0 if not given: `{r: 5 mm}` makes a tube or a shell, `{x: -1, y: -1}` a box
    around 0.
    """
    graded: dict[AxisName, GradedSection] = Field(default={})
    """Axes whose cells differ in width. Their entries in `shape` and `size` must equal the number
    of cells and the end of the last one.
    """

    @model_validator(mode="after")
    def _one_length_per_axis(self) -> GridSection:
        if self.size is not None and self.spacing is not None:
            msg = "size and spacing are both given; one follows from the other, so give one"
            raise ValueError(msg)
        for name, lengths in (("size", self.size), ("spacing", self.spacing)):
            if lengths is not None and len(lengths) != len(self.shape):
                msg = (
                    f"{name} has {len(lengths)} entries but shape has {len(self.shape)}; both list "
                    + ", ".join(self.axes or ("x", "y", "z"))
                )
                raise ValueError(msg)
        self._refuse_other_systems()
        self._refuse_other_axes()
        return self

    @property
    def system(self) -> Coordinates:
        """The meaning of the axes, with their names."""
        if self.coordinates == "cartesian":
            return CARTESIAN
        return Coordinates(self.coordinates, self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The axes in the order of `shape`."""
        return self.axes or AXES["cartesian"][len(self.shape) - 1]

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """Where each axis begins and ends [m]."""
        spacing = self.spacing or (1.0,) * len(self.shape)
        lengths = self.size or tuple(n * h for n, h in zip(self.shape, spacing, strict=True))
        lows = [self.origin.get(name, 0.0) for name in self.names]
        return tuple((low, low + length) for low, length in zip(lows, lengths, strict=True))

    def _refuse_other_systems(self) -> None:
        """Raise if axes, origin and coordinates do not fit together."""
        # Straight axes need no names; others are ambiguous without.
        known, kind = AXES[self.coordinates], self.coordinates
        if (self.axes is None) != (kind == "cartesian") or self.names not in known:
            given = "none" if self.axes is None else f"[{', '.join(self.axes)}]"
            wanted = listed([f"[{', '.join(it)}]" for it in known])
            if kind == "cartesian":
                wanted = "coordinates: cylindrical or spherical besides, or none"
            msg = f"axes: {given} was found with coordinates: {kind}; {wanted} is wanted"
            raise ValueError(msg)
        if len(self.names) != len(self.shape):
            msg = f"axes has {len(self.names)} entries but shape has {len(self.shape)}"
            raise ValueError(msg)
        if absent := [name for name in self.origin if name not in self.names]:
            msg = f"origin has {absent[0]}, which is none of the axes {listed(self.names, 'and')}"
            raise ValueError(msg)
        if kind == "cartesian":
            return
        if self.size is None and self.spacing is None:
            msg = f"give size or spacing, along {listed(self.names, 'and')}"
            raise ValueError(msg)
        self._refuse_other_places()

    def _refuse_other_places(self) -> None:
        """Raise if an axis reaches where nothing is."""
        for name, (low, high) in zip(self.names, self.bounds, strict=True):
            if name == "r" and low < 0:
                msg = f"origin.r is {low:g} m; radii begin at 0 or above"
                raise ValueError(msg)

            # Around an axis a full turn; from pole to pole half of one.
            most = {"cylindrical": 2 * math.pi, "spherical": math.pi}[self.coordinates]
            if name != "theta":
                continue
            if high - low > most * (1 + _ROUNDED) or (
                self.coordinates == "spherical" and not (low >= 0 and high <= most * (1 + _ROUNDED))
            ):
                wanted = "it is the angle from the axis, from 0 to 180 deg"
                if self.coordinates == "cylindrical":
                    wanted = "at most a turn, 360 deg, is wanted"
                msg = f"theta reaches from {low:g} to {high:g} rad; {wanted}"
                raise ValueError(msg)

    def _refuse_other_axes(self) -> None:
        """Raise if a graded axis does not exist or disagrees with `shape` or `size`."""
        for name, axis in self.graded.items():
            if name not in self.names:
                msg = f"graded has {name}, but shape has {len(self.shape)} entries"
                if self.axes is not None:
                    msg = f"graded has {name}, which is none of {listed(self.names, 'and')}"
                raise ValueError(msg)
            number, low = self.names.index(name), self.origin.get(name, 0.0)
            ends, unit = axis.ends(low), self.system.unit(name)
            if ends[0] != low or not ends[1] > low:
                msg = (
                    f"graded.{name} begins at {ends[0]:g} {unit}; they begin at {low:g} and ascend"
                )
                raise ValueError(msg)

            # n cells have n + 1 faces, along angles and lengths alike.
            if len(ends) != self.shape[number] + 1:
                msg = (
                    f"graded.{name} has {len(ends) - 1} cells, but shape says "
                    f"{self.shape[number]}; write the same number"
                )
                raise ValueError(msg)

            # Equal up to rounding, as the two may be written in different units.
            if self.size is None or not math.isclose(self.size[number], ends[-1] - low):
                msg = f"graded.{name} ends at {ends[-1]:g} {unit}; size must say the same"
                if low:
                    msg += f", {ends[-1] - low:g} {unit} from the origin on"
                raise ValueError(msg)


def closed_faces(
    grid: GridSection, boundaries: Mapping[str, FaceCondition]
) -> dict[str, FaceCondition]:
    """Return what holds by itself on faces about which `boundaries` says nothing by their names:
    the axis or centre, and both ends of a full circle.
    """
    found: dict[str, FaceCondition] = {}
    for name, (low, high) in zip(grid.names, grid.bounds, strict=True):
        ring = grid.system.is_ring(name, high - low)
        for face, at in ((f"{name}-", low), (f"{name}+", high)):
            if face in boundaries:
                continue
            if ring:
                found[face] = PeriodicFace(type="periodic")
            elif grid.system.is_pole(name, at):
                found[face] = AxisFace(type="neumann")
    return found


def check_axes(sections: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[Finding]:
    """Angles along axes of lengths, and lengths along angles.

    Args:
        sections: the sections that are valid by themselves, by key.
        values: the configuration as written, since numbers do not show their units.
    """
    if "grid" not in sections:
        return
    grid: GridSection = sections["grid"]
    for path, axis, value in _positions(values, grid.names):
        unit = split_unit(value)[1] if isinstance(value, str) else ""
        if unit and (axis == "theta") != (unit in ANGLES):
            wanted = "an angle, for example '90 deg'," if axis == "theta" else "a length"
            yield Finding(path, f"{value!r} was found; {wanted} is wanted along {axis}")


def _positions(
    values: Mapping[str, Any], names: Sequence[str]
) -> Iterator[tuple[KeyPath, str, object]]:
    """Everything that is written as a position, with its key path and axis."""

    def keys(*path: str) -> Iterable[Any]:
        # Other mistakes are reported by other checks.
        found = _at(values, path)
        if isinstance(found, list | tuple):
            return range(len(found))
        return found if isinstance(found, Mapping) else ()

    # Written as lists along the axes, and as sections by axis.
    lists: list[KeyPath] = [
        *(("grid", "size"), ("grid", "spacing"), ("initial", "center")),
        *(("output", "probes", number, "at") for number in keys("output", "probes")),
        *(("model", "fields", name, "initial", "center") for name in keys("model", "fields")),
    ]
    tables: list[KeyPath] = [("grid", "origin"), ("grid", "graded")]
    over = ("output", "statistics", "over")
    tables += [(*over, name, "box") for name in keys(*over)]
    for number in keys("output", "parts"):
        tables += [("output", "parts", number, key) for key in ("box", "slice")]
    for key in ("regions", "sources"):
        tables += [("model", key, number, "box") for number in keys("model", key)]

    for path in lists:
        found = _at(values, path)
        if isinstance(found, list | tuple):
            # A list of another length is a mistake of another check.
            along = zip(names, enumerate(found), strict=False)
            yield from (((*path, number), name, value) for name, (number, value) in along)
    for path in tables:
        found = _at(values, path)
        for name in found if isinstance(found, Mapping) else ():
            for below, value in _leaves((*path, name), found[name]):
                yield below, name, value


def _at(values: Any, path: KeyPath) -> Any:
    """The part of plain data at a key path; None if there is none."""
    for key in path:
        if isinstance(values, Mapping):
            values = values.get(key)
        elif isinstance(values, list | tuple) and isinstance(key, int) and key < len(values):
            values = values[key]
        else:
            return None
    return values


def _leaves(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, object]]:
    if not isinstance(value, Mapping | list | tuple):
        yield path, value
        return
    for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _leaves((*path, key), part)
