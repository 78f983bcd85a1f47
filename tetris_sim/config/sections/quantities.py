"""Quantities: numbers and intervals of a configuration, read from text with or without units.

Plain numbers are SI (temperatures in degC). Text may carry a unit and must match a strict pattern
before any other code sees it. A value that is refused raises `ValueError` with a whole sentence as
its message.
"""

from __future__ import annotations

import functools
import math
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from tetris_sim.support.wording import describe, listed

# The base class of all sections, and what every section refuses whatever its keys are.


class Section(BaseModel):
    """Base of every section: no unknown keys, no changes, no NaN and infinity."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,
        defer_build=True,  # of what a configuration leaves out, nothing is built
    )

    @model_validator(mode="before")
    @classmethod
    def _true_is_not_one(cls, values: object) -> object:
        # Pydantic would take `true` for 1 where a number is wanted. As text it fails the
        # validation of numbers; only keys that are truth values themselves keep it.
        if not isinstance(values, Mapping):
            return values
        return {
            key: value if _takes_truth(cls, key) else _without_truth(value)
            for key, value in values.items()
        }


def _takes_truth(section: type[Section], key: object) -> bool:
    field = section.model_fields.get(str(key))
    return field is not None and field.annotation is bool


def _without_truth(value: object) -> object:
    """The value with true and false as text, so that pydantic does not read them as 1 and 0."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return [_without_truth(part) for part in value]
    if isinstance(value, Mapping):
        return {
            key: _without_truth(part) if isinstance(part, bool) else part
            for key, part in value.items()
        }
    return value


# Units: conversion of a number with a unit to SI.
#
# The unit arrives as text that has passed the strict pattern below; pint decides whether it exists.
# pint is imported on first use, because reading its thousand definitions takes half of the start-up
# time of a program, and most configurations use lengths, times and temperatures in the few units
# that are listed here. Conversions use decimal arithmetic, so that "15.3 mm" is exactly the number
# that 0.0153 is.

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
    if (zero := _ZEROS.get((unit, target))) is not None:
        return float(Decimal(number) + Decimal(zero))
    if (factor := _COMMON.get(target, {}).get(unit)) is not None:
        return float(Decimal(number) * Decimal(factor))

    text = f"{number} {unit}"
    units, dimension = _parsed(unit, text)
    refusals = _refusals()
    # Compare dimensions first: the message then names the dimension that was found.
    if dimension != _dimension(target):
        msg = f"{text!r} is {_dimension_nouns().get(dimension, 'a quantity of another dimension')}"
        raise UnitError(msg)
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
    units, dimension = _parsed(unit, text)
    if dimension == _dimension("degC"):
        return convert(number, unit, "degC")
    try:
        return float(_registry().Quantity(Decimal(number), units).to_base_units().magnitude)
    except _refusals() as error:
        msg = f"{text!r} cannot be converted to SI units"
        raise UnitError(msg) from error


def _parsed(unit: str, text: str) -> tuple[Any, Any]:
    """A unit and its dimension; raises `UnitError` if no unit has that name."""
    try:
        units = _registry().parse_units(unit)
        return units, units.dimensionality
    except _refusals() as error:
        msg = f"{unit!r} in {text!r} is not a unit"
        raise UnitError(msg) from error


def _refusals() -> tuple[type[BaseException], ...]:
    import pint

    return (*_REFUSALS, pint.PintError, tokenize.TokenError, RecursionError)


# Text patterns: whatever does not match them never reaches `float`, pint or a tokenizer.
Bound = Literal["any", "positive", "nonnegative"]
_BOUNDS: dict[Bound, str] = {
    "any": "",
    "positive": " greater than 0",
    "nonnegative": " of 0 or more",
}

_LONGEST = 80  # characters; far longer than any quantity, far too short to be slow
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
# Possessive (`++`), so that a text that does not match fails at once instead of after trying every
# way to split names.
_UNIT_NAME = r"[A-Za-z°µμΩΔ%_]++"
# Exponents of one digit, and no powers of powers.
_EXPONENT = r"(?:(?:\*\*|\^) ?[+-]?[0-9](?![0-9*^])|[²³])"
_UNIT = rf"{_UNIT_NAME}{_EXPONENT}?(?:{_UNIT_NAME}{_EXPONENT}?|\){_EXPONENT}?|\*(?!\*)|[/·( ])*"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*({_UNIT})?\s*")
_STEPS = re.compile(rf"\s*({_NUMBER})\s*steps?\s*")
_WALL = re.compile(r"\s*(\S.*?)\s+wall\s*")

_ABSOLUTE_ZERO = -273.15  # degC
_PLAIN = frozenset("0123456789+-.eE ")  # of decimal numbers


def looks_like_quantity(text: str) -> bool:
    """Whether a text has the form of a number with or without a unit."""
    return len(text) <= _LONGEST and _QUANTITY.fullmatch(text) is not None


@dataclass(frozen=True)
class Quantity:
    """The kind of number a key takes; inside `Annotated[float, ...]` it reads and checks values.

    >>> Quantity("a length", "m", ("15 mm",)).read("15.3 mm")
    0.0153

    Attributes:
        noun: what the quantity is, with its article: "a length".
        unit: the SI unit of numbers written without one; "SI" if any quantity is accepted.
        examples: typical spellings, for messages.
        bound: which numbers are allowed.
    """

    noun: str
    unit: str
    examples: tuple[str, ...]
    bound: Bound = "any"

    @property
    def wanted(self) -> str:
        """The allowed values for error messages: "a length greater than 0"."""
        return f"{self.noun}{_BOUNDS[self.bound]}"

    def read(self, value: object) -> float:
        """The SI number that `value` (a number, or text with or without a unit) stands for.

        Raises:
            ValueError: a sentence saying what was found and what is wanted.
        """
        if isinstance(value, str):
            number = self._read_text(value)
        elif isinstance(value, Real) and not isinstance(value, bool):
            try:
                # An int beyond the range of a double; reported below as not finite.
                number = float(value)
            except OverflowError:
                number = math.inf
        else:
            self._refuse(f"{describe(value)} was found")

        if not math.isfinite(number):
            self._refuse(f"{describe(value)} is not a finite number")
        # Negated comparisons, which NaN cannot pass.
        if (self.bound == "positive" and not number > 0) or (
            self.bound == "nonnegative" and not number >= 0
        ):
            self._refuse(f"{describe(value)} was found")
        return number

    def read_column(self, texts: Sequence[str], unit: str) -> list[float]:
        """The SI numbers of many texts, to each of which a unit is appended, or none if it is "".

        Raises:
            ValueError: of the first that `read` refuses, beginning with its number from 1.
        """
        numbers = self._read_plain(texts, unit)
        if numbers is not None:
            return numbers

        numbers = []
        for k, text in enumerate(texts, 1):
            try:
                numbers.append(self.read(f"{text.strip()} {unit}".strip()))
            except ValueError as error:
                msg = f"{k}: {error}"
                raise ValueError(msg) from None
        return numbers

    def _read_plain(self, texts: Sequence[str], unit: str) -> list[float] | None:
        """As `read_column` of mere decimal numbers in a frequent unit; None for all else."""
        if not _PLAIN.issuperset("".join(texts)) or max(map(len, texts), default=0) > _LONGEST // 2:
            return None
        factor, zero = _COMMON.get(self.unit, {}).get(unit), _ZEROS.get((unit, self.unit))
        try:
            # Decimal arithmetic gives the bits of `convert`.
            if unit in ("", self.unit) and self.unit != "SI":
                numbers = list(map(float, texts))
            elif zero is not None:
                numbers = [float(Decimal(text.strip()) + Decimal(zero)) for text in texts]
            elif factor is not None:
                numbers = [float(Decimal(text.strip()) * Decimal(factor)) for text in texts]
            else:
                return None
        except (ValueError, ArithmeticError):
            return None

        least = min(numbers, default=math.inf)
        low = -math.inf if self.bound is None else 0.0
        if unit and self.unit == "degC":
            low = max(low, _ABSOLUTE_ZERO)
        if not all(map(math.isfinite, numbers)) or least < low:
            return None
        return None if self.bound == "positive" and least == 0 else numbers

    def _read_text(self, text: str) -> float:
        match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
        if match is None:
            self._refuse(f"{describe(text)} was found")
        if match[2] is None:
            return float(match[1])

        number, unit = match[1], match[2].strip()
        try:
            if self.unit == "SI":
                converted = to_si(number, unit)
            # The most frequent case, the SI unit itself, needs no conversion and no pint.
            elif unit == self.unit:
                converted = float(number)
            else:
                converted = convert(number, unit, self.unit, difference=self.unit == "delta_degC")
        except UnitError as error:
            self._refuse(str(error))

        if self.unit == "degC" and converted < _ABSOLUTE_ZERO:
            self._refuse(f"{describe(text)} is below absolute zero")
        return converted

    def _refuse(self, trouble: str) -> NoReturn:
        msg = (
            f"{trouble}; {self.wanted} is wanted, for example "
            f"{listed([repr(text) for text in self.examples])}"
        )
        raise ValueError(msg) from None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        # "before" validator: the value becomes a float first, then pydantic checks the annotation.
        return core_schema.no_info_before_validator_function(self.read, handler(source))


# Quantities that other modules also use by themselves, then the types of keys.
LENGTH = Quantity("a length", "m", ("15 mm",))
TIME = Quantity("a time", "s", ("1 ms",))
TEMPERATURE = Quantity("a temperature", "degC", ("20 degC", "300 K"))
HEAT_FLUX = Quantity("a heat flux", "W/m^2", ("500 W/m^2",))
HEAT_TRANSFER_COEFFICIENT = Quantity(
    "a heat transfer coefficient", "W/(m^2 K)", ("25 W/(m^2 K)",), "nonnegative"
)
POWER = Quantity("a power", "W", ("20 W",))
POWER_DENSITY = Quantity("a power per volume", "W/m^3", ("2e9 W/m^3",))
CONDUCTIVITY = Quantity("a thermal conductivity", "W/(m K)", ("401 W/(m K)",), "positive")
SPECIFIC_HEAT = Quantity("a specific heat", "J/(kg K)", ("385 J/(kg K)",), "positive")
NUMBER = Quantity("a number", "dimensionless", ("0.5",))

AnyNumber = Annotated[float, Quantity("a number in any unit", "SI", ("0.5", "3 K/mm"))]
Length = Annotated[float, LENGTH]
PositiveLength = Annotated[float, Quantity("a length", "m", ("15 mm",), "positive")]
PositiveDuration = Annotated[float, Quantity("a time", "s", ("1 ms",), "positive")]
Moment = Annotated[float, Quantity("a time", "s", ("1 s", "5 ms"), "nonnegative")]
WallTime = Annotated[float, Quantity("a time", "s", ("2 h", "30 min"), "positive")]
TuningTime = Annotated[float, Quantity("a time", "s", ("5 s", "1 min"), "nonnegative")]
Memory = Annotated[float, Quantity("an amount of memory", "byte", ("4 GiB",), "positive")]
Bandwidth = Annotated[float, Quantity("a bandwidth", "byte/s", ("10 GB/s",), "positive")]
Time = Annotated[float, TIME]
Temperature = Annotated[float, TEMPERATURE]
TemperatureDifference = Annotated[
    float, Quantity("a temperature difference", "delta_degC", ("100 K",))
]
RateOfChange = Annotated[
    float, Quantity("a rate of change", "K/s", ("1e-6 K/s", "1e-6"), "positive")
]
Diffusivity = Annotated[float, Quantity("a diffusivity", "m^2/s", ("1.11e-4 m^2/s",), "positive")]
Conductivity = Annotated[float, CONDUCTIVITY]
Density = Annotated[float, Quantity("a density", "kg/m^3", ("8960 kg/m^3",), "positive")]
SpecificHeat = Annotated[float, SPECIFIC_HEAT]
LatentHeat = Annotated[float, Quantity("a latent heat", "J/kg", ("60 kJ/kg",), "positive")]
HeatFlux = Annotated[float, HEAT_FLUX]
HeatTransferCoefficient = Annotated[float, HEAT_TRANSFER_COEFFICIENT]
ContactResistance = Annotated[
    float, Quantity("a thermal contact resistance", "m^2 K/W", ("1e-5 m^2 K/W",), "nonnegative")
]

Unit = Literal["steps", "s", "wall"]


@dataclass(frozen=True)
class Every:
    """Interval between two outputs or checkpoints.

    >>> str(Every(100, "steps")), str(Every(1e-3, "s")), str(Every(1800.0, "wall"))
    ('100 steps', '0.001 s', '1800.0 s wall')

    Attributes:
        value: number of steps, or of seconds.
        unit: time steps, seconds of simulated time, or seconds of wall time.
    """

    value: float
    unit: Unit

    def __post_init__(self) -> None:
        if not (self.value > 0 and math.isfinite(self.value)):
            msg = (
                f"an interval is a finite time or number of steps greater than 0, got {self.value} "
                f"{self.unit}"
            )
            raise ValueError(msg)
        if self.unit == "steps" and self.value != int(self.value):
            msg = f"an interval in steps is a whole number, got {self.value} steps"
            raise ValueError(msg)

    def __str__(self) -> str:
        """Text that `Interval` or `AnyInterval` reads back as an equal interval."""
        if self.unit == "steps":
            return f"{int(self.value)} step" + ("s" if self.value > 1 else "")
        # repr() of a float round-trips, so a configuration written to a file keeps every bit.
        return f"{float(self.value)!r} s" + (" wall" if self.unit == "wall" else "")


@dataclass(frozen=True)
class IntervalText:
    """Reader of an `Every` from text, or from a number of seconds of simulated time.

    Attributes:
        wall: whether wall time ("30 min wall") is allowed.
    """

    wall: bool

    @property
    def wanted(self) -> str:
        """The allowed values, for error messages."""
        return self._seconds.wanted

    @property
    def _seconds(self) -> Quantity:
        examples = ("100 steps", "1 ms", "30 min wall") if self.wall else ("100 steps", "1 ms")
        return Quantity("an interval", "s", examples, "positive")

    def read(self, value: object) -> Every:
        """The interval that `value` stands for.

        Raises:
            ValueError: a sentence saying what was found and what is wanted.
        """
        text = str(value) if isinstance(value, Every) else value
        if isinstance(text, str) and len(text) <= _LONGEST:
            # "steps" and "wall" mark the other kinds; everything else must be a time quantity.
            if match := _STEPS.fullmatch(text):
                return self._read_steps(text, float(match[1]))
            if match := _WALL.fullmatch(text):
                if not self.wall:
                    msg = (
                        f"{describe(text)} is wall time, which is for checkpoints; an interval "
                        "such as '1 ms' is wanted"
                    )
                    raise ValueError(msg)
                return Every(self._seconds.read(match[1]), "wall")
        return Every(self._seconds.read(text), "s")

    def _read_steps(self, text: str, steps: float) -> Every:
        # Up to 2**53 a float represents every integer exactly.
        if not 1 <= steps <= 2**53 or steps != int(steps):
            msg = f"{describe(text)} was found; a whole number of steps, 1 or more, is wanted"
            raise ValueError(msg)
        return Every(steps, "steps")

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )


Interval = Annotated[Every, IntervalText(wall=False)]
AnyInterval = Annotated[Every, IntervalText(wall=True)]
