"""Table, and how numbers of a result are written in its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Sequence[str]


@dataclass(frozen=True)
class Table:
    """Cells with a heading.

    Attributes:
        title: what it shows, a sentence without a full stop.
        header: of the columns.
        rows: the cells.
        words: how many leading columns are text; the others are numbers, set to the right.
    """

    title: str
    header: Row
    rows: Sequence[Row]
    words: int


def billions(value: float) -> str:
    """A rate in 10^9, three digits.

    >>> billions(2.345e9), billions(1234e9)
    ('2.35', '1234')
    """
    return f"{value / 1e9:.3g}" if value < 99.5e9 else f"{value / 1e9:.0f}"


def percent(share: float | None) -> str:
    """A share; empty if there is none."""
    return "" if share is None else f"{share:.1%}"


def mebibytes(point: Mapping[str, Any]) -> str:
    """The size of a grid."""
    return f"{point['bytes'] / 2**20:.0f}"


def grid(shape: Sequence[int]) -> str:
    """Points along x, y, z.

    >>> grid((3, 4))
    '4 x 3'
    """
    return " x ".join(str(n) for n in reversed(shape))


def parameters(chosen: Mapping[str, int]) -> str:
    """Names and values."""
    return ", ".join(f"{name} {value}" for name, value in chosen.items())
