"""Which thermal properties do common materials have? A table at 300 K, each row with its source.

The numbers are those of one widely used textbook, so that conductivity, density and specific heat
of a material belong together. A real piece differs by alloy, temperature and moisture: give your
own numbers where it matters.
"""

from __future__ import annotations

from dataclasses import dataclass

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
