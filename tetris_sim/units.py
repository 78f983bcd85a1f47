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
# What most configurations need, as pint converts it: (unit, unit wanted) -> factor, then what is
# added, term by term.
_PREFIXES = {"m": "1e-3", "u": "1e-6", "µ": "1e-6", "μ": "1e-6", "n": "1e-9"}
_ICE = Decimal("273.15")  # K
_KNOWN: dict[tuple[str, str], tuple[Decimal, tuple[Decimal, ...]]] = {
    **{(sign + unit, unit): (Decimal(n), ()) for sign, n in _PREFIXES.items() for unit in "ms"},
    ("cm", "m"): (Decimal("0.01"), ()),
    ("km", "m"): (Decimal(1000), ()),
    ("min", "s"): (Decimal(60), ()),
    ("h", "s"): (Decimal(3600), ()),
    ("K", "degC"): (Decimal(1), (-_ICE,)),
    ("K", "delta_degC"): (Decimal(1), ()),
    ("degC", "delta_degC"): (Decimal(1), (_ICE, -_ICE)),
    ("kW/m^2", "W/m^2"): (Decimal(1000), ()),
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
    if (known := _KNOWN.get((unit, target))) is not None:
        factor, terms = known
        return float(sum(terms, Decimal(number) * factor))

    text = f"{number} {unit}"
    units, dimension = _parsed(unit, text)
    refusals = _refusals()
    if dimension != _dimension(target):
        msg = f"{text!r} is {_dimension_nouns().get(dimension, 'a quantity of another dimension')}"
        raise UnitError(msg)
    try:
        quantity = _registry().Quantity(Decimal(number), units)
        if difference:
            zero = _registry().Quantity(Decimal(0), units)
            return float((quantity.to("kelvin") - zero.to("kelvin")).magnitude)
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
