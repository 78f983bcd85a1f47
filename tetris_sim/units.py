"""Units: what SI number a number with a unit stands for.

The unit arrives as text that already passed the strict pattern of `quantities.py`; whether it makes
sense, pint decides. pint is imported on first use, because it reads a thousand definitions, half of
the time that a program needs to start, and most configurations have lengths, times and temperatures
in a few units that are known here. Conversions are done in decimal arithmetic, so that "15.3 mm" is
exactly the number that 0.0153 is.
"""

from __future__ import annotations

import functools
import tokenize
from decimal import Decimal
from typing import Any

# What a dimension is called when it turns up where another is wanted.
_NOUNS = {
    "m": "a length",
    "s": "a time",
    "degC": "a temperature",
    "m^2/s": "a diffusivity",
    "W/(m K)": "a thermal conductivity",
    "kg/m^3": "a density",
    "J/(kg K)": "a specific heat",
    "W/m^2": "a heat flux",
    "W/(m^2 K)": "a heat transfer coefficient",
    "m^2": "an area",
    "m^3": "a volume",
    "m/s": "a speed",
    "kg": "a mass",
    "1/s": "a frequency",
    "N": "a force",
    "Pa": "a pressure",
    "J": "an energy",
    "W": "a power",
    "W/m^3": "a power per volume",
    "A": "an electric current",
    "C": "an electric charge",
    "V": "a voltage",
    "mol": "an amount of substance",
    "dimensionless": "a number without dimension",
}
# Everything that pint 0.24 to 0.25 was seen to raise for a text it cannot make sense of, and their
# relatives.
_REFUSALS = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    SyntaxError,
)

# What configurations are written in: pint takes longer to start than to validate all of one. By the
# unit wanted: how many of it each is. A test compares every entry with pint.
_COMMON: dict[str, dict[str, str]] = {
    "m": {
        "nm": "1e-9",
        "um": "1e-6",
        "µm": "1e-6",
        "μm": "1e-6",
        "mm": "0.001",
        "cm": "0.01",
        "m": "1",
        "km": "1000",
    },
    "s": {
        "ns": "1e-9",
        "us": "1e-6",
        "µs": "1e-6",
        "μs": "1e-6",
        "ms": "0.001",
        "s": "1",
        "min": "60",
        "h": "3600",
    },
    "delta_degC": {"K": "1", "degC": "1", "°C": "1"},
    "W": {"mW": "0.001", "W": "1", "kW": "1000"},
    "W/m^2": {"W/m^2": "1", "W/m²": "1", "kW/m^2": "1000", "W/cm^2": "10000"},
    "W/(m^2 K)": {"W/(m^2 K)": "1", "W/m^2/K": "1", "W/(m² K)": "1", "W/m²/K": "1"},
    "W/(m K)": {"W/(m K)": "1", "W/m/K": "1"},
    "J/(kg K)": {"J/(kg K)": "1", "J/kg/K": "1"},
    "kg/m^3": {"kg/m^3": "1", "kg/m³": "1", "g/cm^3": "1000"},
    "m^2/s": {"m^2/s": "1", "m²/s": "1", "mm^2/s": "1e-6"},
}
_ZEROS = {("K", "degC"): "-273.15"}  # of scales that begin elsewhere, a step being the same


class UnitError(ValueError):
    """A unit that does not exist or does not fit; the message is half a sentence: what is there."""


@functools.cache
def _registry() -> Any:
    import pint

    return pint.UnitRegistry(non_int_type=Decimal, cache_folder=None)


@functools.cache
def _dimension_nouns() -> dict[Any, str]:
    return {
        _registry().get_dimensionality(_registry().parse_units(unit)): noun
        for unit, noun in _NOUNS.items()
    }


@functools.cache
def _dimension(unit: str) -> Any:
    return _registry().parse_units(unit).dimensionality


def convert(number: str, unit: str, target: str, *, difference: bool = False) -> float:
    """`number` `unit` in the unit `target`; may be infinite if it is very large.

    Args:
        number: a decimal number.
        unit: a product of unit names.
        target: the unit wanted, one that exists.
        difference: for temperatures: the zero of the scale must not count, 100 K and 100 degC are
            the same.

    Raises:
        UnitError: the unit does not exist, or has another dimension than `target`.
    """
    if (zero := _ZEROS.get((unit, target))) is not None:
        return float(Decimal(number) + Decimal(zero))
    if (factor := _COMMON.get(target, {}).get(unit)) is not None:
        return float(Decimal(number) * Decimal(factor))

    text = f"{number} {unit}"
    units, dimension = _parsed(unit, text)
    refusals = _refusals()
    if dimension != _dimension(target):
        msg = f"{text!r} is {_dimension_nouns().get(dimension, 'a quantity of another dimension')}"
        raise UnitError(msg)
    try:
        quantity = _registry().Quantity(Decimal(number), units)
        if difference:
            begin = _registry().Quantity(Decimal(0), units)
            return float((quantity.to("kelvin") - begin.to("kelvin")).magnitude)
        return float(quantity.to(target).magnitude)
    except refusals as error:
        msg = f"{text!r} cannot be converted to {target}"
        raise UnitError(msg) from error


def to_si(number: str, unit: str) -> float:
    """`number` `unit` in products of kg, m, s, A, mol, cd and K; a temperature in degC.

    >>> to_si("2", "mm^2/min"), to_si("300", "K")
    (3.3333333333333334e-08, 26.85)

    Raises:
        UnitError: the unit does not exist.
    """
    text = f"{number} {unit}"
    units, dimension = _parsed(unit, text)
    if dimension == _dimension("degC"):
        return convert(number, unit, "degC")
    try:
        return float(_registry().Quantity(Decimal(number), units).to_base_units().magnitude)
    except _refusals() as error:
        msg = f"{text!r} cannot be converted to SI units"
        raise UnitError(msg) from error


def _parsed(unit: str, text: str) -> tuple[Any, Any]:
    """A unit and its dimension; raises UnitError if there is none of that name."""
    try:
        units = _registry().parse_units(unit)
        return units, units.dimensionality
    except _refusals() as error:
        msg = f"{unit!r} in {text!r} is not a unit"
        raise UnitError(msg) from error


def _refusals() -> tuple[type[BaseException], ...]:
    import pint

    return (*_REFUSALS, pint.PintError, tokenize.TokenError, RecursionError)
