"""Materials, regions, contacts and sources: the sections that describe a heterogeneous body."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tetris_sim.apps.boundaries import condition_of, find_face, patches
from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.heat.electric import electric_mistakes
from tetris_sim.apps.heat.enclosures import VoidSection, enclosure_mistakes
from tetris_sim.apps.heat.lumps import lump_mistakes
from tetris_sim.apps.heat.materials import (
    MATERIALS,
    ContactSection,
    Emissivity,
    FluidSection,
    MaterialCurves,
    Table,
    fastest,
    make_melting,
)
from tetris_sim.apps.heat.motion import Presence, Velocity, motion_mistakes
from tetris_sim.apps.heat.sources import BeamSource, Location, VolumeSource
from tetris_sim.apps.heat.streams import stream_mistakes
from tetris_sim.config.sections.conditions import DirichletFace, FixedFace, PeriodicFace
from tetris_sim.config.sections.quantities import (
    CONDUCTIVITY,
    SPECIFIC_HEAT,
    Conductivity,
    Density,
    LatentHeat,
    Length,
    PositiveLength,
    Section,
    SpecificHeat,
    Temperature,
)
from tetris_sim.config.sections.schema import Request
from tetris_sim.config.sections.varying import SURFACE, ByTemperature, TemperatureTable
from tetris_sim.model.formula import ExpressionError, compile_expression
from tetris_sim.model.grid import AXIS_NAMES, PLACES
from tetris_sim.support.wording import describe, listed, suggestion

if TYPE_CHECKING:
    from tetris_sim.apps.heat.model import HeatModel


def known_material(name: str) -> str:
    """Check that a name is in the table of materials, and return it."""
    if name not in MATERIALS:
        meant = suggestion(name, MATERIALS)
        msg = (
            f"{describe(name)} is not in the table of materials{meant}; known are "
            f"{', '.join(MATERIALS)}; or give a "
            "diffusivity"
        )
        raise ValueError(msg)
    return name


KnownMaterial = Annotated[
    str,
    AfterValidator(known_material),
    Field(description="a name that `tetris-sim materials` lists"),
]


@dataclass(frozen=True)
class Substance:
    """Thermal properties of a material of the body.

    Attributes:
        name: in the configuration.
        conductivity: along x, y, z [W/(m K)].
        capacity: density * specific heat [J/(m^3 K)].
        diffusivity: along x, y, z [m^2/s].
        properties: curves along x, if they depend on temperature or the material melts; the other
            attributes are then the largest conductivity, the smallest capacity and the largest
            diffusivity, which bound the stable time step.
        emissivity: of its surfaces in voids that radiate, if it is known.
    """

    name: str
    conductivity: tuple[float, ...]
    capacity: float
    diffusivity: tuple[float, ...]
    properties: MaterialCurves | None = None
    emissivity: float | None = None

    @property
    def factors(self) -> tuple[float, ...]:
        """Anisotropy: ratio of the conductivity along x, y, z to that along x."""
        return tuple(k / self.conductivity[0] for k in self.conductivity)


_NUMBERS = re.compile(r"-?\d+(:-?\d+)?")  # that have a material
SOLIDS = (".stl", ".step", ".stp")  # files of closed surfaces
_SAME_LENGTH = 1e-6  # of the grid: how far a block may reach beyond it by rounded digits
_JUMP = 1e-9  # of the range of a table over temperature, at least of 1 K: how wide a jump is


class AxesSection(Section):
    """Conductivity along x, y and z of an anisotropic material, as fibres or circuit boards; along
    all axes of the grid where these are others, as in windings.
    """

    x: Conductivity | None = None
    y: Conductivity | None = None
    z: Conductivity | None = None
    """Equal to y if not given."""
    r: Conductivity | None = None
    theta: Conductivity | None = None

    @model_validator(mode="after")
    def _all_of_a_kind(self) -> AxesSection:
        straight = self.x is not None and self.y is not None and not (self.r or self.theta)
        if not straight and (self.r is None or self.x or self.y or len(self.along) < 2):
            msg = "give x and y, or r and the other axes of the grid"
            raise ValueError(msg)
        return self

    @property
    def along(self) -> dict[str, float]:
        """The conductivities that were given, in the order of the axes."""
        # z is the last axis of both kinds, so one order serves them.
        order = ("x", "y", "r", "theta", "z")
        return {name: k for name in order if (k := getattr(self, name)) is not None}


class MaterialSection(Section):
    """A material of the body: a name of the table, or numbers, or both."""

    material: KnownMaterial | None = None
    """A name of the table of materials; numbers given besides it count more than the table's."""
    conductivity: Annotated[Conductivity | AxesSection, ByTemperature(CONDUCTIVITY)] | None = None
    """[W/(m K)]; one number, one for each of x, y, z, or a table over temperature:
    `{table: [[20 degC, 60], ...]}`.
    """
    density: Density | None = None
    """[kg/m^3]."""
    specific_heat: Annotated[SpecificHeat, ByTemperature(SPECIFIC_HEAT)] | None = None
    """[J/(kg K)]; a number, or a table over temperature: `{table: [[20 degC, 385], ...]}`."""
    latent_heat: LatentHeat | None = None
    """Heat absorbed by melting [J/kg]."""
    solidus: Temperature | None = None
    """Where melting begins [degC]; that of `liquidus` if not given."""
    liquidus: Temperature | None = None
    """Where melting ends [degC]; that of `solidus` if not given."""
    emissivity: Emissivity | None = None
    """Of its surfaces around voids that radiate."""

    @model_validator(mode="after")
    def _enough(self) -> MaterialSection:
        # Raises if numbers are missing; the name is irrelevant here.
        self.substance("")
        return self

    def substance(self, name: str) -> Substance:
        """Build the substance of this section under a name.

        Raises:
            ValueError: some are missing, or beyond what can be computed.
        """
        table = None if self.material is None else MATERIALS[self.material]
        numbers = {
            key: getattr(table, key, None) if getattr(self, key) is None else getattr(self, key)
            for key in ("conductivity", "density", "specific_heat")
        }
        missing = [key for key, number in numbers.items() if number is None]
        if missing:
            msg = f"{' and '.join(missing)} missing; give numbers, or a material of the table"
            raise ValueError(msg)

        k, density, c = cast("tuple[Any, float, Any]", tuple(numbers.values()))

        # One conductivity per axis; a table holds along all of them.
        given = tuple(k.along.values()) if isinstance(k, AxesSection) else (k,)
        along = (*given, *given[-1:] * (3 - len(given)))
        melting = make_melting(self.latent_heat, self.solidus, self.liquidus)

        # Constant properties need no curves: the state stays temperature.
        if melting is None and not any(isinstance(it, TemperatureTable) for it in (k, c)):
            diffusivity = tuple(number / density / c for number in along)
            found = Substance(name, along, density * c, diffusivity, emissivity=self.emissivity)
        else:
            properties = MaterialCurves(
                _rows(k if isinstance(k, TemperatureTable) else along[0]),
                tuple((t, density * it) for t, it in _rows(c)),
                density,
                melting,
            )
            found = _of_properties(name, properties, along)
        if not all(0 < number < math.inf for number in (*found.diffusivity, found.capacity)):
            msg = f"the numbers lead to {found}, beyond what can be computed; correct them"
            raise ValueError(msg)
        return found


def _rows(number: Any) -> Table:
    if not isinstance(number, TemperatureTable):
        return ((0.0, number),)
    rows = number.rows
    # A jump is a ramp, too short for a state to be seen on it.
    width = _JUMP * max(rows[-1][0] - rows[0][0], 1.0)
    return tuple(
        (t + width * (k > 0 and rows[k - 1][0] == t), value) for k, (t, value) in enumerate(rows)
    )


def _of_properties(name: str, properties: MaterialCurves, along: tuple[Any, ...]) -> Substance:
    """Build the substance of a material that depends on temperature; `along` gives numbers whose
    ratios are the anisotropy.
    """
    k, capacity, diffusivity = fastest(properties)
    factors = [1.0 if isinstance(it, TemperatureTable) else it / along[0] for it in along]
    return Substance(
        name,
        tuple(k * factor for factor in factors),
        capacity,
        tuple(diffusivity * factor for factor in factors),
        properties,
    )


Label = Annotated[str, BeforeValidator(lambda key: str(key).replace(" ", ""))]


class RegionSection(Location, Presence):
    """A part of the body and its filling; later regions lie over earlier ones, while they are
    there.
    """

    name: str | None = None
    """For `sources`; of a floorplan the beginning of the names of its blocks."""
    material: str | None = None
    """A key of `materials`, or a name of the table."""
    fluid: FluidSection | None = None
    """Instead of a material."""
    void: bool | VoidSection = False
    """Instead of a material: nothing, with insulated walls, or with walls that radiate to each
    other.
    """
    labels: str | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """A file of a whole number per point: .npy or HDF5 of the grid's shape (z, y, x); voxels (.vti,
    .nrrd) where their spacing and origin say; slices of a scan (a folder, a pattern, a .tif of
    several pages); a greyscale picture of x and y (0 to 255), of the grid or over the `box`; or a
    closed surface (.stl, .step) or drawing (.dxf), which is 1 inside and 0 outside. With
    `materials` each number has its material; without it the region is where the number is not 0. A
    list of surfaces becomes a region for each, by the name of its file.
    """
    materials: Annotated[dict[Label, str], Field(min_length=1)] | None = None
    """With `labels`: the material of each number, or of each range of them, `"0:99": air`; of a
    list of files, of each of their names without the ending.
    """
    velocity: Velocity | None = None
    """How its material moves through the cells, which stay: [x, y, z], speeds or formulas of place
    [m/s], or {omega, centre, axis} of a rotation; that of the model if not given.
    """
    dataset: str | None = None
    """For HDF5 and .vti: which dataset or array; needed if the file has more than one."""
    layer: str | None = None
    """For .dxf: which layer of the drawing; needed if more than one has outlines."""
    scale: PositiveLength | None = None
    """For surfaces, drawings and voxels: the unit of their coordinates [m]; `1 mm` for most. If
    not given, that which the file says, or 1 m.
    """
    offset: tuple[Length, Length, Length] = (0.0, 0.0, 0.0)
    """For surfaces, drawings and voxels: where their origin lies [m]."""

    @model_validator(mode="after")
    def _one_filling(self) -> RegionSection:
        given = [
            name for name in ("material", "fluid", "materials") if getattr(self, name) is not None
        ] + ["void"] * bool(self.void)
        if len(given) != 1:
            msg = (
                f"{' and '.join(given) or 'no filling'} given; give one of material, fluid, void: "
                "true, or labels with materials"
            )
            raise ValueError(msg)

        if self.materials is not None and self.labels is None:
            msg = "materials says what the numbers of a file mean; give labels, or material"
            raise ValueError(msg)
        if self.floorplan is not None and (self.material is None or self.labels is not None):
            msg = "the blocks of a floorplan are of a material; give material, and no labels"
            raise ValueError(msg)
        if isinstance(self.labels, tuple):
            self._check_files(self.labels)
        elif wrong := [it for it in self.materials or () if not _NUMBERS.fullmatch(it)]:
            msg = f"{describe(wrong[0])} in materials is neither a number nor a range such as 0:99"
            raise ValueError(msg)
        ranges = sorted(self.ranges)
        for (low, high), (begin, end) in itertools.pairwise(ranges):
            if begin <= high:
                msg = f"materials says {begin}:{end} and {low}:{high}, which overlap"
                raise ValueError(msg)
        if any(low > high for low, high in ranges):
            msg = "a range of materials is from:to, both included, the lower number first"
            raise ValueError(msg)
        return self

    def _check_files(self, files: tuple[str, ...]) -> None:
        others = [it for it in files if Path(it).suffix.lower() not in SOLIDS]
        names = [Path(it).stem for it in files]
        if others or len({*names}) < len(names):
            told = others[0] if others else "a name of a file is there twice"
            msg = f"{told}; a list is one of closed surfaces ({', '.join(SOLIDS)}) of several names"
            raise ValueError(msg)
        if self.materials is not None and {*self.materials} != {*names}:
            told = f"materials has the keys {listed([*self.materials], 'and')}"
            msg = f"{told}; the files are {listed(names, 'and')}"
            raise ValueError(msg)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The numbers that each material of `materials` is for, from and to."""
        if self.materials is None or isinstance(self.labels, tuple):
            return []
        ends = [[int(it) for it in key.split(":")] for key in self.materials]
        return [(it[0], it[-1]) for it in ends]

    @property
    def by_label(self) -> dict[int, str]:
        """The material of each label; that of a range is its lowest number."""
        names = (self.materials or {}).values()
        return {low: name for (low, _), name in zip(self.ranges, names, strict=True)}

    def of_files(self) -> Iterator[tuple[str, RegionSection]]:
        """Yield a region for each file of a list, with its name."""
        for file in self.labels if isinstance(self.labels, tuple) else ():
            stem = Path(file).stem
            name = f"{self.name}_{stem}" if self.name else stem
            own: dict[str, Any] = {"labels": file, "name": name}
            if self.materials is not None:
                own |= {"materials": None, "material": self.materials[stem]}
            yield name, self.model_copy(update=own)


# Conflicts between the sections of a body, as far as they show without a scan of points.

Mistakes = Iterator[tuple[KeyPath, str]]


def body_problems(model: HeatModel, request: Request) -> Mistakes:
    """Yield unknown names, missing axes and contradicting keys, each with its key path."""
    axes = request.grid.names
    known = {*model.materials, *MATERIALS}
    yield from _anisotropic(model, axes, curved=request.grid.system.is_curved)
    if model.materials and not model.regions and len(model.materials) > 1:
        found = f"{len(model.materials)} materials and no regions were found"
        yield ("model", "materials"), f"{found}; say in model.regions where each is"

    for number, region in enumerate(model.regions):
        yield from _region(region, ("model", "regions", number), known, axes)

    # Sources refer to regions by name, so names must be unique.
    names = Counter(it.name for it in model.regions if it.name is not None)
    for number, region in enumerate(model.regions):
        if region.name is not None and names[region.name] > 1:
            yield ("model", "regions", number, "name"), f"two regions are named {region.name!r}"

    yield from motion_mistakes(model, request)
    yield from lump_mistakes(model, request)
    yield from stream_mistakes(model, request)
    yield from enclosure_mistakes(model, request)
    yield from electric_mistakes(model, request)
    yield from _over(model, request)
    yield from _contacts(model.contacts, known)
    named = Counter(it.name for it in model.sources if isinstance(it, VolumeSource) and it.nearest)
    for number, told in model._left_over:
        yield ("model", "sources", number, "power"), told
    for number, source in enumerate(model.sources):
        path: KeyPath = ("model", "sources", number)
        if source.name is not None and named[source.name] > 1:
            told = f"two sources are named {source.name}"
            yield path, f"{told}; give the floorplan a name, with which those of its blocks begin"
        if isinstance(source, BeamSource):
            yield from _beam(source, path, request)
        else:
            yield from _volume(source, path, model, request)
            yield from _place(source, path, axes)
    yield from _formulas(model, request, axes)


def _anisotropic(model: HeatModel, axes: Sequence[str], *, curved: bool) -> Mistakes:
    """Yield conductivities along other axes than those of the grid."""
    for name, section in model.materials.items():
        given = getattr(section, "conductivity", None)
        if not isinstance(given, AxesSection):
            continue
        path, along = ("model", "materials", name, "conductivity"), given.along
        wanted = axes if curved else AXIS_NAMES
        if {*along} - {*wanted} or (curved and {*along} != {*wanted}):
            told = f"it is given along {listed([*along], 'and')}"
            yield path, f"{told}; {listed(axes, 'and')} is wanted"


def _over(model: HeatModel, request: Request) -> Mistakes:
    statistics = request.output.statistics
    regions = [it.name for it in model.regions if it.name is not None]
    fluids = [it.name or "fluid" for it in model.regions if it.fluid is not None]
    materials = [it.material for it in model.regions if it.material is not None]
    materials += [name for it in model.regions for name in (it.materials or {}).values()]
    # Without regions there is one material.
    if not model.regions:
        materials = [it for it in (model.material, *model.materials) if it is not None]

    sources = [it.name for it in model.sources if isinstance(it, VolumeSource) and it.name]
    known = {"region": regions, "material": materials, "fluid": fluids, "source": sources}
    for name, part in ({} if statistics is None else statistics.over).items():
        for kind, names in known.items():
            wanted = getattr(part, kind)
            if wanted is not None and wanted not in names:
                there = f"known are {listed(dict.fromkeys(names), 'and')}" if names else "none is"
                of = "model.sources" if kind == "source" else "model.regions"
                yield (
                    ("output", "statistics", "over", name, kind),
                    f"{wanted!r} is no {kind} of {of}{suggestion(wanted, names)}; {there}",
                )


def _known(name: str, known: Iterable[str], path: KeyPath) -> Mistakes:
    names = list(known)
    if name not in names:
        yield (
            path,
            f"{name!r} is no material{suggestion(name, names)}; it is wanted as a key of "
            "model.materials, or a name of the table",
        )


def _region(
    region: RegionSection, path: KeyPath, known: Iterable[str], axes: Sequence[str]
) -> Mistakes:
    if region.material is not None:
        yield from _known(region.material, known, (*path, "material"))
    for label, name in (region.materials or {}).items():
        yield from _known(name, known, (*path, "materials", str(label)))
    yield from _place(region, path, axes)


def _place(place: Location, path: KeyPath, axes: Sequence[str]) -> Mistakes:
    # Keys of axes beyond those of the grid would be ignored silently.
    for axis in set(PLACES) - set(axes):
        if place.box is not None and getattr(place.box, axis) is not None:
            yield (*path, "box", axis), f"the grid has the axes {listed(axes, 'and')} only"
    if place.where is not None:
        try:
            compile_expression(place.where, axes)
        except ExpressionError as error:
            yield (*path, "where"), str(error)


def _contacts(contacts: Sequence[ContactSection], known: Iterable[str]) -> Mistakes:
    for number, contact in enumerate(contacts):
        path: KeyPath = ("model", "contacts", number, "between")
        for place, name in enumerate(contact.between):
            yield from _known(name, known, (*path, place))
        if contact.between[0] == contact.between[1]:
            yield path, f"{contact.between[0]} touches itself everywhere; name two materials"


def _volume(source: VolumeSource, path: KeyPath, model: HeatModel, request: Request) -> Mistakes:
    ndim = request.ndim
    wanted = {1: "m^2", 2: "m", 3: ""}[ndim]
    if source._per not in ("", wanted):
        meant = f" per {wanted}" if wanted else ""
        yield (*path, "power"), f"it is in W per {source._per}; in {ndim}D it is W{meant}"
    if source.material is not None:
        yield from _known(source.material, {*model.materials, *MATERIALS}, (*path, "material"))

    if source.nearest and source.box is not None:
        yield from _beyond(source, path, request)
    names = [region.name for region in model.regions if region.name is not None]
    if source.region is not None and source.region not in names:
        meant = suggestion(source.region, names)
        yield (
            (*path, "region"),
            f"no region is named {source.region!r}{meant}; give one of model.regions that name",
        )


def _beyond(source: VolumeSource, path: KeyPath, request: Request) -> Mistakes:
    """Yield a box that is not within the grid: what is cut off would heat the rest of the box."""
    grid = request.grid
    for axis, (low, high) in zip(grid.names, grid.bounds, strict=True):
        span, room = getattr(source.box, axis), _SAME_LENGTH * (high - low)
        if span is not None and not low - room <= span[0] < span[1] <= high + room:
            reach = f"it reaches from {span[0]:g} m to {span[1]:g} m along {axis}"
            yield path, f"{reach}, and the grid from {low:g} m to {high:g} m; move it, with at"


def _beam(beam: BeamSource, path: KeyPath, request: Request) -> Mistakes:
    axes = request.grid.names
    if request.grid.system.is_curved:
        told = (
            "a beam falls on a plane face of a box; around an axis write it as the flux of a face"
        )
        yield (*path, "type"), f"{told}, flux: 2*P/(pi*w**2)*exp(-2*(r/w)**2) with numbers in it"
        return
    if len(beam.face) != 2 or beam.face[0] not in axes:
        faces = listed([axis + sign for axis in axes for sign in "-+"])
        yield (*path, "face"), f"{beam.face!r} is no face of this grid; {faces} is wanted"
        return

    for axis in AXIS_NAMES:
        if getattr(beam.path, axis) is not None and (axis not in axes or axis == beam.face[0]):
            yield (*path, "path", axis), f"the beam does not move along {axis} on {beam.face}"

    # A missing condition is reported elsewhere, for every face.
    if find_face(request.boundaries, beam.face) is None:
        return
    _, condition = condition_of(request.boundaries, beam.face)

    # A face that prescribes temperature, or a periodic one, has no heat balance to add a flux to.
    sections = [section for _, section in patches({beam.face: condition})]
    if all(isinstance(it, DirichletFace | FixedFace | PeriodicFace) for it in sections):
        yield (
            (*path, "face"),
            f"{beam.face} is {listed([it.type for it in sections], 'and')}, so a beam heats "
            "nothing there; neumann, robin or radiation is wanted",
        )


def _formulas(model: HeatModel, request: Request, axes: Sequence[str]) -> Mistakes:
    """Yield formulas that use a coordinate the grid does not have."""
    found: list[tuple[KeyPath, Any]] = []
    for path, section in patches(request.boundaries):
        found += [
            (("boundaries", *path, name), getattr(section, name, None))
            for name in ("value", "flux", "h", "emissivity", "ambient", "where")
        ]
        found += [
            (("boundaries", *path, "radiation", n, name), getattr(term, name))
            for n, term in enumerate(getattr(section, "radiation", ()))
            for name in ("emissivity", "ambient")
        ]
    found += [
        (("model", "sources", n, "density"), getattr(source, "density", None))
        for n, source in enumerate(model.sources)
    ]

    # Numbers and tables need no check; conditions of location (`where`) do not depend on time.
    for path, text in found:
        if isinstance(text, str):
            names = [*axes] if path[-1] == "where" else [*axes, "t"]
            names += [SURFACE] * (path[-1] in ("flux", "h", "emissivity", "density"))
            try:
                compile_expression(text, names)
            except ExpressionError as error:
                yield path, str(error)
