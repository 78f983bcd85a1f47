"""Quantities: numbers and intervals of a configuration, read from text with or without units.

Plain numbers are SI (temperatures in degC). Text may carry a unit and must match a strict pattern
before any other code sees it. A value that is refused raises `ValueError` with a whole sentence as
its message.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from tetris_sim.config.sections.units import (
    COMMON,
    UNIT,
    ZEROS,
    UnitError,
    as_text,
    convert,
    tidied,
    to_si,
)
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


# Text patterns: whatever does not match them never reaches `float`, pint or a tokenizer.
Bound = Literal["any", "positive", "nonnegative"]
_BOUNDS: dict[Bound, str] = {
    "any": "",
    "positive": " greater than 0",
    "nonnegative": " of 0 or more",
}

_LONGEST = 80  # characters; far longer than any quantity, far too short to be slow
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_COMMA = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*[A-Za-z°µμ].*|\s*[+-]?[0-9]+,[0-9]+\s*")
# Atomic: the exponent of 1e4*x is no unit e4.
_QUANTITY = re.compile(rf"\s*((?>{_NUMBER}))\s*({UNIT})?\s*")
_STEPS = re.compile(rf"\s*({_NUMBER})\s*steps?\s*")
_WALL = re.compile(r"\s*(\S.*?)\s+wall\s*")

ABSOLUTE_ZERO = -273.15  # degC
_PLAIN = frozenset("0123456789+-.eE ")  # of decimal numbers


def looks_like_quantity(text: str) -> bool:
    """Whether a text has the form of a number with or without a unit."""
    if len(text) > _LONGEST or " if " in text:  # which a formula may have
        return False
    return _QUANTITY.fullmatch(tidied(text)) is not None


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
        value = as_text(value)
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

    def per(self, value: object, units: Sequence[str]) -> tuple[float, str] | None:
        """The number and the unit of a text that has this quantity per one of some units.

        >>> POWER.per("2 kW/m", ("m", "m^2")), POWER.per("2 kW", ("m", "m^2"))
        ((2000.0, 'm'), None)
        """
        match = _QUANTITY.fullmatch(tidied(value)) if isinstance(value, str) else None
        if match is None or len(match[0]) > _LONGEST or match[2] is None:
            return None
        # The first unit that it can be converted to is the one that it has.
        for unit in units:
            with contextlib.suppress(UnitError):
                return convert(match[1], match[2].strip(), f"{self.unit}/{unit}"), unit
        return None

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
        factor, zero = COMMON.get(self.unit, {}).get(unit), ZEROS.get((unit, self.unit))
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
            low = max(low, ABSOLUTE_ZERO)
        if not all(map(math.isfinite, numbers)) or least < low:
            return None
        return None if self.bound == "positive" and least == 0 else numbers

    def _read_text(self, text: str) -> float:
        match = _QUANTITY.fullmatch(tidied(text)) if len(text) <= _LONGEST else None
        if match is None:
            comma = len(text) <= _LONGEST and _COMMA.fullmatch(text)
            point = f" (write {text.strip().replace(',', '.', 1)!r}, with a point)" if comma else ""
            self._refuse(f"{describe(text)} was found{point}")
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

        if self.unit == "degC" and converted < ABSOLUTE_ZERO:
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


# Angles by unit [rad]. Only positions may be angles: along theta.
ANGLES = {
    **dict.fromkeys(("deg", "degree", "degrees", "°"), math.pi / 180),
    **dict.fromkeys(("rad", "radian", "radians"), 1.0),
    "mrad": 1e-3,
    "turn": 2 * math.pi,
}


class PositionQuantity(Quantity):
    """A length, or an angle with its unit; which of them belongs there, the axis decides."""

    def _read_text(self, text: str) -> float:
        number, unit = split_unit(text)
        return super()._read_text(text) if unit not in ANGLES else float(number) * ANGLES[unit]


def split_unit(text: str) -> tuple[str, str]:
    """A quantity as its number and its unit; both empty if it is none.

    >>> split_unit("90 deg"), split_unit("3"), split_unit("r + 1")
    (('90', 'deg'), ('3', ''), ('', ''))
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    return ("", "") if match is None else (match[1], (match[2] or "").strip())


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
Position = Annotated[float, PositionQuantity("a length", "m", ("15 mm",))]
PositivePosition = Annotated[float, PositionQuantity("a length", "m", ("15 mm",), "positive")]
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
Speed = Annotated[float, Quantity("a speed", "m/s", ("2 m/s",), "positive")]
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
