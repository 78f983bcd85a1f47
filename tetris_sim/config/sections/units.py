"""Units: conversion of a number with a unit to SI, and the spellings of units that are understood.

The unit arrives as text that has passed a strict pattern; pint decides whether it exists. pint is
imported on first use, because reading its thousand definitions takes half of the start-up time of a
program, and most configurations use lengths, times and temperatures in the few units that are
listed here. Conversions use decimal arithmetic, so that "15.3 mm" is exactly the number that 0.0153
is.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import tokenize
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

# Name of a dimension in messages about a quantity of the wrong one.
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
# Every exception that pint 0.24 to 0.25 was seen to raise for text it cannot parse, and related
# ones.
_REFUSALS = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    SyntaxError,
)

# Units common in configurations: pint takes longer to start than a whole validation. By target
# unit: the factor of each unit. A test compares every entry with pint.
COMMON: dict[str, dict[str, str]] = {
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
    "W/(m^2 K)": dict.fromkeys(
        ("W/(m^2 K)", "W/m^2/K", "W/(m² K)", "W/m²/K", "W/(m2 K)", "W/m2K", "W/m²K", "W/(m²·K)"),
        "1",
    ),
    "W/(m K)": {"W/(m K)": "1", "W/m/K": "1", "W/mK": "1"},
    "J/(kg K)": {"J/(kg K)": "1", "J/kg/K": "1", "J/kgK": "1", "kJ/(kg K)": "1000", "J/gK": "1000"},
    "kg/m^3": {"kg/m^3": "1", "kg/m³": "1", "g/cm^3": "1000"},
    "m^2/s": {"m^2/s": "1", "m²/s": "1", "mm^2/s": "1e-6"},
}
ZEROS = {("K", "degC"): "-273.15"}  # of scales that begin elsewhere, a step being the same


class UnitError(ValueError):
    """A unit that does not exist or does not fit; the message is a clause about what was found."""


@functools.cache
def _registry() -> Any:
    import pint

    # No cache folder: reading a configuration must not write files into the user's home.
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
    """`number` `unit` expressed in the unit `target`; infinite if too large for a float.

    Args:
        number: a decimal number.
        unit: a product of unit names.
        target: the unit wanted, which must exist.
        difference: for temperatures: whether to ignore the zero of the scale, so that 100 K
            equals 100 degC.

    Raises:
        UnitError: the unit does not exist, or has another dimension than `target`.
    """
    # Fast path without pint: same factors, same decimal arithmetic, hence the same bits.
    if (zero := ZEROS.get((unit, target))) is not None:
        return float(Decimal(number) + Decimal(zero))
    if (factor := COMMON.get(target, {}).get(unit)) is not None:
        return float(Decimal(number) * Decimal(factor))

    text = f"{number} {unit}"
    units = _fitting(unit, text, target)
    refusals = _refusals()
    try:
        quantity = _registry().Quantity(Decimal(number), units)
        if difference:
            # A difference is the distance from the scale's own zero, whatever offset that zero has.
            begin = _registry().Quantity(Decimal(0), units)
            return float((quantity.to("kelvin") - begin.to("kelvin")).magnitude)
        return float(quantity.to(target).magnitude)
    except refusals as error:
        msg = f"{text!r} cannot be converted to {target}"
        raise UnitError(msg) from error


def to_si(number: str, unit: str) -> float:
    """`number` `unit` in products of kg, m, s, A, mol, cd and K; temperatures in degC.

    >>> to_si("2", "mm^2/min"), to_si("300", "K")
    (3.3333333333333334e-08, 26.85)

    Raises:
        UnitError: the unit does not exist.
    """
    text = f"{number} {unit}"
    known = [it for it in (_parsed(reading) for reading in _readings(unit)) if it is not None]
    if not known:
        raise _unknown(unit, text)
    if known[0].dimensionality == _dimension("degC"):
        return convert(number, unit, "degC")

    # Every reading is converted: they may agree.
    try:
        found = [
            float(_registry().Quantity(Decimal(number), it).to_base_units().magnitude)
            for it in known
        ]
    except _refusals() as error:
        msg = f"{text!r} cannot be converted to SI units"
        raise UnitError(msg) from error
    # No dimension is wanted that would decide between W/(m K) and W per millikelvin.
    if len({*found}) > 1:
        msg = f"{unit!r} in {text!r} has two meanings; put what is divided by into parentheses"
        raise UnitError(msg)
    return found[0]


def _fitting(unit: str, text: str, target: str) -> Any:
    """The first reading of a unit that has the dimension of `target`.

    Raises:
        UnitError: there is none.
    """
    known = [it for it in (_parsed(reading) for reading in _readings(unit)) if it is not None]
    for units in known:
        if units.dimensionality == _dimension(target):
            return units

    hint = _other_case(unit, text, target)
    if not known:
        raise _unknown(unit, text, hint)
    # Engineers write W/mK for W/(m K), so a later reading may have a name where the first has none.
    names = [_dimension_nouns().get(units.dimensionality) for units in known]
    noun = next(filter(None, names), "a quantity of another dimension")
    msg = f"{text!r} is {noun}{hint}"
    raise UnitError(msg)


def _unknown(unit: str, text: str, hint: str = "") -> UnitError:
    return UnitError(f"{unit!r} in {text!r} is not a unit{hint}")


def _parsed(unit: str) -> Any:
    """A unit of pint; None if no unit has that name."""
    try:
        units = _registry().parse_units(unit)
        _ = units.dimensionality  # which some names turn out not to have
    except _refusals():
        return None
    return units


def _next_of(words: Iterator[str], _: re.Match[str]) -> str:
    return next(words)


def _other_case(unit: str, text: str, target: str) -> str:
    """A hint to a spelling in other letters: MM for mm, w/mk for W/(m K), C for K."""
    degrees = _COULOMB.sub("degC" if target == "degC" else "K", unit)
    if any(_fits(reading, target) for reading in _readings(degrees)):
        meant = f"{text.removesuffix(unit)}{degrees}"
        return f" (did you mean {meant!r}? C is the coulomb)"
    runs = re.findall(r"[A-Za-z]+", unit)
    if len(runs) > 4:  # each has four spellings
        return ""
    spellings = ((it, it.lower(), it.capitalize(), it[:-1].lower() + it[-1].upper()) for it in runs)
    for words in itertools.product(*spellings):
        following = iter(words)
        spelled = re.sub(r"[A-Za-z]+", functools.partial(_next_of, following), unit)
        if any(_fits(reading, target) for reading in _readings(spelled)):
            meant = f"{text.removesuffix(unit)}{spelled}"
            return f" (did you mean {meant!r}? capitals and small letters differ)"
    return ""


def _fits(reading: str, target: str) -> bool:
    units = _parsed(reading)
    return units is not None and bool(units.dimensionality == _dimension(target))


# Units as engineers write them: exponents without a sign of their own, all that follows a stroke
# below it, and units without a gap. Where that has several readings, the dimension that is wanted
# decides: in `W/m2 K` kelvins divide, in `W/mK` millikelvins make no conductivity.

# Possessive (`++`), so that a text that does not match fails at once instead of after trying every
# way to split names.
_UNIT_NAME = r"[A-Za-z°µμΩΔ%_]++"
# Exponents of one digit, and no powers of powers.
_EXPONENT = r"(?:(?:\*\*|\^) ?[+-]?[0-9](?![0-9*^])|[²³])"
_PLAIN_UNIT = re.compile(
    rf"{_UNIT_NAME}{_EXPONENT}?(?:{_UNIT_NAME}{_EXPONENT}?|\){_EXPONENT}?|\*(?!\*)|[/·( ])*"
)
_BARE = r"(?:(?:(?:\*\*|\^) ?)?[+-]?[0-9](?!\*\*|[0-9^])|⁻?[¹²³⁴⁵⁶])"
_GAP = r"(?:\*(?!\*)|[·⋅ ]|(?<=[0-9²³)])\.(?=[A-Za-z°])|\.(?=K|°C))"
UNIT = rf"{_UNIT_NAME}{_BARE}?(?:{_UNIT_NAME}{_BARE}?|\){_BARE}?|{_GAP}|[/(])*"
_TOKEN = re.compile(rf"({_UNIT_NAME}|\))({_BARE})?|({_GAP}+|[/(])")
_SMALL = str.maketrans("⁻¹²³⁴⁵⁶", "-123456")
_COULOMB = re.compile(r"C(?![A-Za-z])")  # at the end of a word, as in W/mC
_GLUED = re.compile(r"(m|[cm]m|k?g|mol|k?J|k?W|h|s|ft|in|lb)(K|°C|degC|°F|degF)")
# Characters of word processors, and degrees apart from their scale.
_SPELLED = str.maketrans("º˚−\xa0\u2009\u202f", "°°-   ")
_APART = re.compile(r"(?:°|\bdeg|\bdegrees?) +([CFK])\b")


def _readings(unit: str) -> Iterator[str]:
    """The meanings that a unit may have, as products for pint; as pint reads it itself first."""
    if _PLAIN_UNIT.fullmatch(unit):
        yield unit
    for below_all in (False, True):
        for apart in (False, True):
            factors = _factors(unit, below_all=below_all, apart=apart)
            if factors:
                yield "*".join(f"{name}**{power}" for name, power in factors)


def _factors(unit: str, *, below_all: bool, apart: bool) -> list[tuple[str, int]] | None:
    """The factors of a unit with their exponents; None if its parentheses do not match.

    Args:
        unit: that has passed the strict pattern.
        below_all: whether all that follows a stroke divides, instead of the next factor.
        apart: whether "mK" below a stroke is metre times kelvin, instead of millikelvin.
    """
    groups: list[list[tuple[str, int]]] = [[]]
    signs: list[int] = []  # of the parentheses that are open
    sign, after_stroke = 1, False

    # Token by token: a unit or the end of parentheses with its exponent, or a mark between units.
    for what, power, mark in _TOKEN.findall(unit):
        raised = int(re.sub(r"[*^ ]", "", power.translate(_SMALL)) or 1)
        if what == ")":
            if not signs:
                return None
            sign, inner = signs.pop(), groups.pop()
            groups[-1] += [(it, sign * raised * p) for it, p in inner]
        elif what:
            below = math.prod([sign, *signs]) < 0
            glued = _GLUED.fullmatch(what) if apart and below else None
            # The exponent belongs to the last of units without a gap.
            *before, last = glued.groups() if glued else (what,)
            groups[-1] += [*((it, sign) for it in before), (last, sign * raised)]
        elif mark == "(":
            groups.append([])
            signs.append(sign)
            sign = 1
        elif mark == "/":
            sign = -1
        # A gap or a sign of multiplication; blanks around a stroke are neither.
        elif not below_all and not after_stroke:
            sign = 1
        after_stroke = mark == "/" or (after_stroke and not what and mark != "(")
    return None if signs else groups[0]


def as_text(value: object) -> object:
    """A quantity of pint as text with its unit, an array of them as a list; others as they are."""
    magnitude, units = (getattr(value, name, None) for name in ("magnitude", "units"))
    if magnitude is None or units is None or isinstance(value, type):
        return value
    if getattr(magnitude, "ndim", 0):
        return [as_text(part) for part in value]  # type: ignore[attr-defined]
    try:
        number = repr(float(magnitude))
    except (TypeError, ValueError):
        return value
    name = re.sub(r"\s*([*/])\s*", r"\1", str(units)).replace(" ", "")
    return f"{number} {name or 'dimensionless'}"


def _refusals() -> tuple[type[BaseException], ...]:
    import pint

    return (*_REFUSALS, pint.PintError, tokenize.TokenError, RecursionError)


def tidied(text: str) -> str:
    """A text with the signs of a keyboard: minus and degrees as others write them.

    >>> tidied("−40 ° C"), tidied("25 deg C"), tidied("20 ℃")
    ('-40 degC', '25 degC', '20 °C')
    """
    plain = text.translate(_SPELLED).replace("℃", "°C").replace("℉", "°F")
    return _APART.sub(r"deg\1", plain)
