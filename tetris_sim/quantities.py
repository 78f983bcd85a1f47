"""Quantities: numbers and intervals of a configuration, and how they are read from what is written.

Plain numbers are SI (temperatures in degC); text may carry a unit and is held against a strict
pattern before anything else looks at it. What is refused is refused with a `ValueError` that is a
whole sentence.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, Literal, NoReturn

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tetris_sim.support.wording import describe, listed
from tetris_sim.units import UnitError, convert, to_si

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
_EXPONENT = r"(?:(?:\*\*|\^) ?[+-]?[0-9](?![0-9*^])|[²³])"
_UNIT = rf"{_UNIT_NAME}{_EXPONENT}?(?:{_UNIT_NAME}{_EXPONENT}?|\){_EXPONENT}?|\*(?!\*)|[/·( ])*"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*({_UNIT})?\s*")
_STEPS = re.compile(rf"\s*({_NUMBER})\s*steps?\s*")
_WALL = re.compile(r"\s*(\S.*?)\s+wall\s*")

_ABSOLUTE_ZERO = -273.15  # degC


def looks_like_quantity(text: str) -> bool:
    """Whether a text is a number with or without a unit, as far as its form says."""
    return len(text) <= _LONGEST and _QUANTITY.fullmatch(text) is not None


@dataclass(frozen=True)
class Quantity:
    """What kind of number a key takes; within an `Annotated[float, ...]` it reads and checks it.

    >>> Quantity("a length", "m", ("15 mm",)).read("15.3 mm")
    0.0153

    Attributes:
        noun: what it is, with its article: "a length".
        unit: the SI unit that numbers without a unit have; "SI" if a quantity of any kind will do.
        examples: how a person would write one.
        bound: which numbers are allowed.
    """

    noun: str
    unit: str
    examples: tuple[str, ...]
    bound: Bound = "any"

    @property
    def wanted(self) -> str:
        """What is allowed, for error messages: "a length greater than 0"."""
        return f"{self.noun}{_BOUNDS[self.bound]}"

    def read(self, value: object) -> float:
        """The SI number that `value` (a number, or text with or without a unit) stands for.

        Raises:
            ValueError: with a sentence saying what was found and what is wanted.
        """
        if isinstance(value, str):
            number = self._read_text(value)
        elif isinstance(value, Real) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
        else:
            self._refuse(f"{describe(value)} was found")

        if not math.isfinite(number):
            self._refuse(f"{describe(value)} is not a finite number")
        if (self.bound == "positive" and not number > 0) or (
            self.bound == "nonnegative" and not number >= 0
        ):
            self._refuse(f"{describe(value)} was found")
        return number

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
        return core_schema.no_info_before_validator_function(self.read, handler(source))


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
    """An interval between two outputs or checkpoints.

    >>> str(Every(100, "steps")), str(Every(1e-3, "s")), str(Every(1800.0, "wall"))
    ('100 steps', '0.001 s', '1800.0 s wall')

    Attributes:
        value: how many steps, or how many seconds.
        unit: time steps, seconds of simulated time, or seconds on the clock on the wall.
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
        """Text that `Interval` or `AnyInterval` reads as the equal interval."""
        if self.unit == "steps":
            return f"{int(self.value)} step" + ("s" if self.value > 1 else "")
        return f"{float(self.value)!r} s" + (" wall" if self.unit == "wall" else "")


@dataclass(frozen=True)
class IntervalText:
    """Reads an `Every` from text, or from a number of seconds of simulated time.

    Attributes:
        wall: whether wall time ("30 min wall") is allowed.
    """

    wall: bool

    @property
    def wanted(self) -> str:
        """What is allowed, for error messages."""
        return self._seconds.wanted

    @property
    def _seconds(self) -> Quantity:
        examples = ("100 steps", "1 ms", "30 min wall") if self.wall else ("100 steps", "1 ms")
        return Quantity("an interval", "s", examples, "positive")

    def read(self, value: object) -> Every:
        """The interval that `value` stands for.

        Raises:
            ValueError: with a sentence saying what was found and what is wanted.
        """
        text = str(value) if isinstance(value, Every) else value
        if isinstance(text, str) and len(text) <= _LONGEST:
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
        # Up to 2**53 a float counts every step.
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
