"""Words and numbers on pictures: lengths, units, times."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from tetris_sim.support.progress import format_time

_UNITS = {"degC": "°C", "1": ""}
_DIFFERENCES = {"degC": "K", "1": ""}  # a difference of two temperatures


@dataclass(frozen=True)
class LengthUnit:
    """A unit in which the positions of a picture are short numbers.

    Attributes:
        name: for axis labels.
        metres: how long it is.
    """

    name: str
    metres: float

    def text(self, position: float) -> str:
        """A position [m] with this unit."""
        return f"{position / self.metres:.4g} {self.name}"


_LENGTHS = (
    LengthUnit("nm", 1e-9),
    LengthUnit("µm", 1e-6),
    LengthUnit("mm", 1e-3),
    LengthUnit("cm", 1e-2),
    LengthUnit("m", 1.0),
    LengthUnit("km", 1e3),
)
# In the unit; the others end at 1000, or where centimetres begin.
_LARGEST = {"cm": 100.0, "m": 1e4}


def length_unit(lengths: Iterable[float]) -> LengthUnit:
    """The unit for a picture whose longest edge is the longest of `lengths` [m].

    >>> [length_unit([size]).name for size in (0.015, 0.3, 2.0, 5e-5, 1e5)]
    ['mm', 'cm', 'm', 'µm', 'km']
    """
    longest = max(lengths)
    for unit, following in itertools.pairwise(_LENGTHS):
        limit = _LARGEST.get(unit.name, 100.0 if following.name == "cm" else 1000.0)
        if longest < limit * unit.metres * (1 - 1e-9):
            return unit
    return _LENGTHS[-1]


@dataclass(frozen=True)
class Caption:
    """What a picture says besides when it is.

    >>> caption = Caption("temperature", "degC", "Plate")
    >>> caption.quantity, caption.change
    ('temperature [°C]', 'change of temperature [K]')

    Attributes:
        long_name: what the values are.
        unit: of the values; "1" if they have none.
        heading: above everything.
    """

    long_name: str
    unit: str
    heading: str

    @property
    def quantity(self) -> str:
        """What a colour bar or an axis shows."""
        return _with_unit(self.long_name, _UNITS.get(self.unit, self.unit))

    @property
    def change(self) -> str:
        """The same for the difference of two states."""
        return _with_unit(f"change of {self.long_name}", _DIFFERENCES.get(self.unit, self.unit))


def _with_unit(name: str, unit: str) -> str:
    return f"{name} [{unit}]" if unit else name


def moment(step: int, time: float, *, timeless: bool) -> str:
    """When a state is.

    >>> moment(1200, 0.01922, timeless=False), moment(1200, 1200.0, timeless=True)
    ('t = 19.22 ms', 'step 1200')
    """
    return f"step {step}" if timeless else f"t = {format_time(time)}"
