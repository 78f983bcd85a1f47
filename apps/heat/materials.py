"""Which thermal properties do common materials have? A table at 300 K, each row with its source.

The numbers are those of one widely used textbook, so that conductivity, density and specific heat
of a material belong together. A real piece differs by alloy, temperature and moisture: give your
own numbers where it matters.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field as Key
from pydantic import model_validator

from tetris_sim.config.sections.quantities import (
    ContactResistance,
    HeatTransferCoefficient,
    Quantity,
    Section,
    Temperature,
)
from tetris_sim.config.sections.varying import VaryingSetpoint
from tetris_sim.model.conduction import Conduction, Curve, Enthalpy, Medium, Numbers
from tetris_sim.model.problem import Field, InitialField, StateVariable, Total, View
from tetris_sim.model.radiation import STEFAN_BOLTZMANN
from tetris_sim.model.slab import Ranges, Slab

if TYPE_CHECKING:
    from tetris_sim.apps.heat.shapes import Filling

_BOOK = (
    "F. P. Incropera and D. P. DeWitt, Fundamentals of Heat and Mass Transfer, 5th ed. (Wiley, "
    "2002)"
)
_METALS = f"{_BOOK}, Table A.1, 300 K: "
_SOLIDS = f"{_BOOK}, Table A.3, 300 K: "


@dataclass(frozen=True)
class Material:
    """Thermal properties of one material.

    Attributes:
        conductivity: [W/(m K)].
        density: [kg/m^3].
        specific_heat: at constant pressure [J/(kg K)].
        source: book, table and row that the three numbers come from.
    """

    conductivity: float
    density: float
    specific_heat: float
    source: str

    @property
    def diffusivity(self) -> float:
        """How fast temperature spreads: conductivity / (density * specific_heat) [m^2/s]."""
        return self.conductivity / (self.density * self.specific_heat)


def _metal(conductivity: float, density: float, specific_heat: float, row: str) -> Material:
    return Material(conductivity, density, specific_heat, _METALS + row)


def _solid(conductivity: float, density: float, specific_heat: float, row: str) -> Material:
    return Material(conductivity, density, specific_heat, _SOLIDS + row)


MATERIALS: dict[str, Material] = {
    "aluminium": _metal(237.0, 2702.0, 903.0, "Aluminum, pure"),
    "brass": _metal(110.0, 8530.0, 380.0, "Copper alloys, cartridge brass (70% Cu, 30% Zn)"),
    "copper": _metal(401.0, 8933.0, 385.0, "Copper, pure"),
    "gold": _metal(317.0, 19300.0, 129.0, "Gold"),
    "iron": _metal(80.2, 7870.0, 447.0, "Iron, pure"),
    "lead": _metal(35.3, 11340.0, 129.0, "Lead"),
    "nickel": _metal(90.7, 8900.0, 444.0, "Nickel, pure"),
    "silicon": _metal(148.0, 2330.0, 712.0, "Silicon"),
    "silver": _metal(429.0, 10500.0, 235.0, "Silver"),
    "stainless-steel": _metal(14.9, 7900.0, 477.0, "Stainless steels, AISI 304"),
    "stainless-steel-316": _metal(13.4, 8238.0, 468.0, "Stainless steels, AISI 316"),
    "steel": _metal(60.5, 7854.0, 434.0, "Carbon steels, plain carbon (Mn <= 1%, Si <= 0.1%)"),
    "titanium": _metal(21.9, 4500.0, 522.0, "Titanium"),
    "tungsten": _metal(174.0, 19300.0, 132.0, "Tungsten"),
    "zinc": _metal(116.0, 7140.0, 389.0, "Zinc"),
    "brick": _solid(0.72, 1920.0, 835.0, "Structural building materials, brick, common"),
    "concrete": _solid(1.4, 2300.0, 880.0, "Other materials, concrete (stone mix)"),
    "glass": _solid(1.4, 2500.0, 750.0, "Other materials, glass, plate (soda lime)"),
    "glass-pyrex": _solid(1.4, 2225.0, 835.0, "Other materials, glass, Pyrex"),
    "granite": _solid(2.79, 2630.0, 775.0, "Other materials, rock, granite, Barre"),
    "wood": _solid(
        0.16, 720.0, 1255.0, "Structural building materials, woods, hardwoods (oak, maple)"
    ),
    "wood-soft": _solid(
        0.12, 510.0, 1380.0, "Structural building materials, woods, softwoods (fir, pine)"
    ),
    # Fluids at rest: conduction alone, as in a thin gap. In a larger space convection carries most
    # of the heat.
    "air": Material(0.0263, 1.1614, 1007.0, f"{_BOOK}, Table A.4, 300 K, 1 atm: Air"),
    "water": Material(
        0.613, 1 / 1.003e-3, 4179.0, f"{_BOOK}, Table A.6, 300 K: saturated water, liquid"
    ),
}


# What k(T), c(T) and a latent heat mean as functions of heat content (`enthalpy.py`), and what
# becomes of a body: its state is heat content, and people see temperature and liquid fraction.
#
# A fluid is a material of its own of k = rho c = 1, half a cell of which resists by 1 / h; its heat
# content is its temperature, and it does not change.

Table = tuple[tuple[float, float], ...]

_ACCURACY = 1e-5  # of a temperature, relative to the range of its table
_MOST_PIECES = 256
_UNIT = ((0.0, 1.0),)
_COLD = 0.0  # degC, where H and phi are 0


@dataclass(frozen=True)
class Melting:
    """A change of phase.

    Attributes:
        latent_heat: [J/kg].
        solidus: where melting begins [degC].
        liquidus: where it ends [degC], not below the solidus.
    """

    latent_heat: float
    solidus: float
    liquidus: float


@dataclass(frozen=True)
class MaterialCurves:
    """A material whose properties depend on temperature.

    Attributes:
        conductivity: (T [degC], k [W/(m K)]), ascending; linear between, constant beyond.
        heat_capacity: (T [degC], rho c [J/(m^3 K)]), alike.
        density: [kg/m^3], for the latent heat.
        melting: change of phase, if there is one.
    """

    conductivity: Table
    heat_capacity: Table
    density: float
    melting: Melting | None = None


@dataclass(frozen=True)
class _Pieces:
    """A material at temperatures that ascend; where two are the same, it melts there."""

    temperature: Numbers
    heat: Numbers
    potential: Numbers
    conductivity: Numbers


def make_enthalpy(
    materials: Sequence[MaterialCurves],
    kinds: Sequence[int],
    spacing: Sequence[float],
    *,
    factors: Numbers | None = None,
    resistance: Numbers | float = 0.0,
    radiance: Numbers | float = 0.0,
) -> Enthalpy:
    """Curves of every id.

    Args:
        materials: by kind.
        kinds: the material of each id.
        spacing: between points per axis [m].
        factors: by which k is larger along an axis, (ndim, n_ids); 1 if not given.
        resistance: between ids of different materials, (n_ids, n_ids) or by axis (ndim, n_ids,
            n_ids), symmetric [m^2 K/W].
        radiance: of the same, effective emissivity times the Stefan-Boltzmann constant.
    """
    pieces = [_pieces(material) for material in materials]
    most = max(len(it.temperature) for it in pieces)
    of_kind = [_curves(it, most) for it in pieces]
    knots, temperature, potential, conductivity = (
        np.array([of_kind[kind][part] for kind in kinds]) for part in range(4)
    )

    steps = np.asarray(spacing, np.float64)
    ones = np.ones((len(steps), len(kinds)))
    pairs = (len(steps), len(kinds), len(kinds))
    return Enthalpy(
        knots=knots[:, 0],
        temperature=Curve(temperature[:, 0], temperature[:, 1]),
        potential=Curve(potential[:, 0], potential[:, 1]),
        conductivity=Curve(conductivity[:, 0], conductivity[:, 1]),
        kinds=np.asarray(kinds, np.int64),
        half=steps[:, None] ** 2 / (2 * (ones if factors is None else factors)),
        contact=steps[:, None, None] * np.broadcast_to(resistance, pairs),
        radiance=np.broadcast_to(radiance, pairs) / steps[:, None, None],
    )


def liquid_fraction(materials: Sequence[MaterialCurves], kinds: Sequence[int]) -> Curve:
    """How much of it is molten, for the knots of `make_enthalpy`."""
    pieces = [_pieces(material) for material in materials]
    most = max(len(it.temperature) for it in pieces)
    begins, slopes = np.zeros((2, len(materials), most))
    for k, (material, it) in enumerate(zip(materials, pieces, strict=True)):
        if (melting := material.melting) is not None:
            latent = _latent(melting, material.density, it.temperature)
            molten = latent / (melting.latent_heat * material.density)
            begins[k, : len(molten)] = molten
            slopes[k, : len(molten) - 1] = np.diff(molten) / np.diff(it.heat)
    return Curve(begins[list(kinds)], slopes[list(kinds)])


def fastest(material: MaterialCurves) -> tuple[float, float, float]:
    """Largest conductivity [W/(m K)], smallest heat capacity [J/(m^3 K)] and largest diffusivity
    [m^2/s] of a material at any temperature.
    """
    it = make_enthalpy([material], [0], (1.0,))
    return (
        float(it.conductivity.begins.max()),
        1 / float(it.temperature.slopes.max()),
        float(it.potential.slopes.max()),
    )


def _curves(it: _Pieces, most: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Knots, T, phi and k as (begins, slopes) of `most` pieces; pieces that a material lacks begin
    at infinity.
    """
    widths = np.diff(it.heat)
    found = []
    for values in (it.temperature, it.potential, it.conductivity):
        # Beyond the table, k and rho c stay what they are at its ends.
        slopes = np.append(np.diff(values) / widths, 0.0)
        found.append(np.array([values, slopes]))
    found[0][1, -1] = _last_slope(it.temperature, widths)
    found[1][1, -1] = found[0][1, -1] * it.conductivity[-1]

    # The first piece goes on below the first knot.
    missing = most - len(it.heat)
    knots = np.pad(it.heat, (0, missing), constant_values=math.inf)
    padded = [np.pad(values, ((0, 0), (0, missing))) for values in found]
    return np.array([knots]), padded[0], padded[1], padded[2]


def _last_slope(temperature: Numbers, widths: Numbers) -> float:
    return float((temperature[-1] - temperature[-2]) / widths[-1])


def _pieces(material: MaterialCurves) -> _Pieces:
    """The material at temperatures so close that straight lines between them are accurate."""
    temperatures = _temperatures(material)
    k = _interpolate(temperatures, material.conductivity)
    c = _interpolate(temperatures, material.heat_capacity)
    step = np.diff(temperatures)

    heat = np.append(0.0, np.cumsum(step * (c[1:] + c[:-1]) / 2))
    potential = np.append(0.0, np.cumsum(step * (k[1:] + k[:-1]) / 2))
    if material.melting is not None:
        heat = heat + _latent(material.melting, material.density, temperatures)
    # Both are 0 at one temperature, the same for all materials; what melts there is solid.
    cold = int(np.searchsorted(temperatures, _COLD))
    return _Pieces(temperatures, heat - heat[cold], potential - potential[cold], k)


def _interpolate(at: Numbers | list[float], table: Table) -> Numbers:
    temperatures, values = np.array(table).T
    return np.asarray(np.interp(at, temperatures, values))


def _latent(melting: Melting, density: float, temperatures: Numbers) -> Numbers:
    whole = melting.latent_heat * density
    if melting.liquidus > melting.solidus:
        share = (temperatures - melting.solidus) / (melting.liquidus - melting.solidus)
        return np.asarray(whole * np.clip(share, 0.0, 1.0))
    # The temperature is there twice: before and after.
    after = np.searchsorted(temperatures, melting.solidus, side="right") - 1
    return np.asarray(whole * (np.arange(len(temperatures)) >= after))


def _temperatures(material: MaterialCurves) -> Numbers:
    """Where pieces begin: the points of the tables, where melting begins and ends, and as many
    between them as straight lines need; a unit below and above, where everything stays as it is.
    """
    points = {t for t, _ in (*material.conductivity, *material.heat_capacity)}
    if material.melting is not None:
        points |= {material.melting.solidus, material.melting.liquidus}
    known = sorted({*points, _COLD})
    span = max(known[-1] - known[0], 1.0)
    marks = [known[0] - 1.0]
    for low, high in itertools.pairwise(known):
        n = _parts(material, low, high, span, len(known))
        marks += list(np.linspace(low, high, n + 1)[:-1])
    marks += [known[-1], known[-1] + 1.0]
    melting = material.melting
    if melting is not None and melting.solidus == melting.liquidus:
        marks.append(melting.solidus)
    return np.sort(np.array(marks))


def _parts(material: MaterialCurves, low: float, high: float, span: float, intervals: int) -> int:
    """Pieces of an interval in which T and phi are as accurate as wished."""
    worst = 0.0
    for table in (material.heat_capacity, material.conductivity):
        ends = _interpolate([low, high], table)
        # A parabola is off its chord by (change of slope) * width / 8.
        worst = max(worst, abs(ends[1] - ends[0]) / min(ends) * (high - low) / 8)
    n = math.ceil(math.sqrt(worst / (_ACCURACY * span)))
    return max(1, min(n, _MOST_PIECES // max(1, intervals)))


def make_melting(
    latent_heat: float | None, solidus: float | None, liquidus: float | None
) -> Melting | None:
    """The change of phase that a section describes, if it describes one; it takes one temperature
    if only one is given.

    Raises:
        ValueError: what is given does not go together.
    """
    ends = [it for it in (solidus, liquidus) if it is not None]
    if latent_heat is None and ends:
        msg = "solidus and liquidus, where a material melts, need its latent_heat"
        raise ValueError(msg)
    if latent_heat is None:
        return None
    if not ends:
        msg = "latent_heat needs solidus, liquidus, or both, where the material melts"
        raise ValueError(msg)
    if ends[-1] < ends[0]:
        msg = f"liquidus, {ends[-1]:g} degC, is below solidus, {ends[0]:g} degC"
        raise ValueError(msg)
    return Melting(latent_heat, ends[0], ends[-1])


def properties_of(filling: Filling) -> MaterialCurves:
    """Return the properties that the curves of a filling follow from."""
    it = filling.substance
    if it is None:
        return MaterialCurves(_UNIT, _UNIT, 1.0)
    if it.properties is not None:
        return it.properties
    return MaterialCurves(((0.0, it.conductivity[0]),), ((0.0, it.capacity),), 1.0)


def capacities(fillings: Sequence[Filling]) -> Numbers:
    """Heat capacity, (n,) [J/(m^3 K)]; infinite where the state is held."""
    return np.array(
        [math.inf if it.substance is None else it.substance.capacity for it in fillings]
    )


def enthalpy_of(
    fillings: Sequence[Filling],
    of_id: Sequence[tuple[int, int]],
    joints: tuple[Numbers, Numbers],
    spacing: Sequence[float],
    shares: Numbers,
) -> Enthalpy:
    """The curves of every id.

    Args:
        fillings: what points are filled with.
        of_id: the numbers of the filling of each id, and of the one whose curves it has.
        joints: resistance [m^2 K/W] and radiance [W/(m^2 K^4)] of contacts, by axis and filling
            (ndim, n, n).
        spacing: array order [m].
        shares: by filling and axis, the area of the surface per area of a face, (n, ndim).
    """
    factors = np.ones((len(spacing), len(fillings)))
    closed = np.zeros(len(fillings), np.bool_)
    for number, it in enumerate(fillings):
        if it.substance is not None:
            factors[:, number] = it.substance.factors[: len(spacing)][::-1]
        elif it.fluid is not None and it.fluid.emissivity > 0:
            factors[:, number] = np.inf  # its film is a contact, beside which it radiates
        elif it.fluid is not None and it.fluid.h > 0:
            factors[:, number] = it.fluid.h * shares[number] * np.asarray(spacing) / 2
        else:
            closed[number] = True

    outside = np.array([it.substance is None for it in fillings])
    apart = np.logical_or.outer(closed, closed) | np.logical_and.outer(outside, outside)
    own, kinds = (list(it) for it in zip(*of_id, strict=True))
    resistance, radiance = joints
    return make_enthalpy(
        [properties_of(it) for it in fillings],
        kinds,
        spacing,
        factors=factors[:, own],
        resistance=np.where(apart, np.inf, resistance)[:, own][:, :, own],
        radiance=radiance[:, own][:, :, own],
    )


def in_potentials(
    medium: Medium,
    enthalpy: Enthalpy,
    fullness: Numbers | float = 1.0,
    openings: Numbers | None = None,
) -> Medium:
    """The medium with the numbers that a step of heat contents needs.

    Args:
        medium: of temperatures.
        enthalpy: the curves.
        fullness: by id, the volume of what is in cells per volume of the cells.
        openings: of faces between cells of two ids, by axis (ndim, n_ids, n_ids): their area per
            area of the faces of cells, if any is not whole.
    """
    alike = np.equal.outer(enthalpy.kinds, enthalpy.kinds)
    held = np.isinf(medium.capacity)
    with np.errstate(divide="ignore"):  # the half of a fluid that radiates is 0
        own = 1 / (2 * enthalpy.half[:, :, None])
    conductance = np.where(alike & ~held, own if openings is None else own * openings, 0.0)
    return replace(medium, conductance=conductance, capacity=np.where(held, np.inf, fullness))


def from_temperatures(
    initial: InitialField, conduction: Conduction, dtype: np.dtype[Any]
) -> InitialField:
    """The heat contents of initial temperatures."""
    ids_of, it = conduction.medium.ids, conduction.enthalpy
    assert it is not None

    def heat(slab: Slab) -> Field:
        temperatures = initial(slab)[0].astype(np.float64)
        return it.from_temperature(temperatures, ids_of(slab.spans)).astype(dtype)[np.newaxis]

    return heat


def make_view(
    conduction: Conduction, fillings: Sequence[Filling], heat: Total
) -> tuple[StateVariable, View]:
    """The state as a variable, and what people see of it.

    Args:
        conduction: the step.
        fillings: of the kinds of its enthalpy.
        heat: what the integral of heat content means.
    """
    state = StateVariable("heat_content", "J/m^3", "heat content", heat)
    own = Total(heat.name, heat.unit, math.nan)
    temperature = StateVariable("temperature", "degC", "temperature", own)
    medium, it = conduction.medium, conduction.enthalpy
    assert it is not None
    materials = [properties_of(filling) for filling in fillings]
    curves: list[tuple[StateVariable, Callable[[Numbers, Any], Numbers]]] = [
        (temperature, lambda state, ids: it.of(it.temperature, state, ids))
    ]
    kinds = it.kinds.tolist()
    if any(materials[kind].melting is not None for kind in kinds):
        liquid = liquid_fraction(materials, kinds)
        integral = Total("liquid volume", heat.unit.replace("J", "m^3", 1), 1.0)
        curves.append(
            (
                StateVariable("liquid_fraction", "1", "liquid fraction", integral),
                lambda state, ids: np.clip(it.of(liquid, state, ids), 0.0, 1.0),
            )
        )
    held = np.isinf(medium.capacity)
    curves.append((state, lambda state, ids: np.where(held[ids], 0.0, state)))

    def look(box: Ranges, field: Field) -> Field:
        ids, values = medium.ids(box), field[0].astype(np.float64)
        return np.stack([curve(values, ids) for _, curve in curves]).astype(field.dtype)

    return state, View(
        tuple(variable for variable, _ in curves),
        look if medium.void is None else lambda box, field: _blank(medium, box, look(box, field)),
        lambda initial, dtype: from_temperatures(initial, conduction, dtype),
    )


def view_around_voids(variable: StateVariable, medium: Medium) -> View | None:
    """Make the view of temperatures that is NaN in voids; None if there is no void."""
    if medium.void is None:
        return None
    return View((variable,), functools.partial(_blank, medium))


def _blank(medium: Medium, box: Ranges, field: Field) -> Field:
    """The fields (n, ...) of a box with NaN where there is nothing."""
    assert medium.void is not None
    return np.where(medium.void[medium.ids(box)], field.dtype.type(np.nan), field)


# What heat meets at the surfaces of materials: fluids and contacts.

Emissivity = Annotated[float, Key(gt=0, le=1)]


Capacity = Annotated[float, Quantity("a heat capacity", "J/K", ("140 J/K",), "positive")]


class FluidSection(Section):
    """Cells of a fluid at one temperature; neighbouring cells exchange heat with it."""

    ambient: VaryingSetpoint | None = None
    """Its temperature [degC]: a number, a table over time or a formula of t."""
    capacity: Capacity | None = None
    """Instead of `ambient`: a fluid as warm as what it exchanges makes it, a tank or a room [J/K],
    in 2D per metre of depth, in 1D per square metre of cross-section; with `initial`.
    """
    initial: Temperature | None = None
    """With `capacity`: its temperature when the run begins [degC]."""
    h: HeatTransferCoefficient = 0.0
    """[W/(m^2 K)]; 0 for a vacuum around what radiates."""
    emissivity: Annotated[float, Key(ge=0, le=1)] = 0.0
    """Of the surfaces that look into it, with black surroundings at `ambient`."""

    @model_validator(mode="after")
    def _exchanges(self) -> FluidSection:
        if not {"h", "emissivity"} & self.model_fields_set:
            msg = "a fluid needs h, emissivity, or both"
            raise ValueError(msg)
        if (self.ambient is None) == (self.capacity is None):
            msg = "give either the ambient of the fluid, or its capacity and initial"
            raise ValueError(msg)
        if (self.capacity is None) != (self.initial is None):
            msg = "capacity and initial belong together"
            raise ValueError(msg)
        if self.emissivity > 0 and self.changes:
            msg = "a fluid whose temperature changes does not radiate; leave emissivity out"
            raise ValueError(msg)
        return self

    @property
    def changes(self) -> bool:
        """Whether its temperature does."""
        return not isinstance(self.ambient, float)

    @property
    def held_at(self) -> float:
        """The temperature that its cells show [degC]."""
        found = self.initial if self.ambient is None else self.ambient
        assert isinstance(found, float)
        return found


ElectricResistance = Annotated[
    float,
    Quantity("an electric contact resistance", "ohm m^2", ("1e-9 ohm m^2",), "nonnegative"),
]


class ContactSection(Section):
    """The joint of two materials, wherever they touch: what it resists to heat and currents, or a
    gap, thin beside a cell, across which their surfaces radiate to each other.
    """

    between: tuple[str, str]
    """Two keys of `materials`."""
    resistance: ContactResistance | None = None
    """[m^2 K/W]; of a gap that radiates, nothing is conducted if it is not given."""
    emissivity: tuple[Emissivity, Emissivity] | None = None
    """Of both materials, in their order; between them 1/(1/e1 + 1/e2 - 1) counts."""
    electric_resistance: ElectricResistance | None = None
    """[ohm m^2]; half of the heat of a current through it goes to either side."""

    @model_validator(mode="after")
    def _resists_or_radiates(self) -> ContactSection:
        if {self.resistance, self.emissivity, self.electric_resistance} == {None}:
            msg = (
                "give the resistance of the contact, the emissivity of both sides, or both; or its "
                "electric_resistance"
            )
            raise ValueError(msg)
        if self.resistance == 0 and self.emissivity is not None:
            msg = "surfaces with no resistance between them have one temperature; leave emissivity"
            raise ValueError(msg)
        return self

    @property
    def conducts(self) -> float:
        """Its resistance, infinite where only radiation crosses it [m^2 K/W]."""
        if self.resistance is not None:
            return self.resistance
        return 0.0 if self.emissivity is None else math.inf

    @property
    def radiance(self) -> float:
        """Effective emissivity of both sides times the Stefan-Boltzmann constant [W/(m^2 K^4)]:
        that of two surfaces of one area that see nothing but each other.
        """
        if self.emissivity is None:
            return 0.0
        first, second = self.emissivity
        return STEFAN_BOLTZMANN / (1 / first + 1 / second - 1)
