"""Table, how numbers are written in its cells, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tetris_sim.bench.result import Timing

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

    def as_text(self) -> str:
        """Columns for the terminal."""
        lines = (self.header, *self.rows)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = [
            "  ".join(
                cell.ljust(width) if k < self.words else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in lines
        ]
        return "\n".join([f"{self.title}:", *aligned])

    def as_markdown(self) -> str:
        """For a page."""
        rule = ["---" if k < self.words else "---:" for k in range(len(self.header))]
        lines = [f"| {' | '.join(row)} |" for row in (self.header, rule, *self.rows)]
        return "\n".join([f"{self.title}:", "", *lines])


def billions(value: float) -> str:
    """A rate in 10^9, three digits.

    >>> billions(2.345e9), billions(1234e9)
    ('2.35', '1234')
    """
    return f"{value / 1e9:.3g}" if value < 99.5e9 else f"{value / 1e9:.0f}"


def percent(share: float | None) -> str:
    """A share; empty if there is none."""
    return "" if share is None else f"{share:.1%}"


def grid(shape: Sequence[int]) -> str:
    """Points along x, y, z.

    >>> grid((3, 4))
    '4 x 3'
    """
    return " x ".join(str(n) for n in reversed(shape))


def parameters(chosen: Mapping[str, int]) -> str:
    """Names and values."""
    return ", ".join(f"{name} {value}" for name, value in chosen.items())


def spread(timing: Timing) -> str:
    """The slowest and the fastest round.

    >>> spread(Timing(2e9, 1e9, 3e9))
    '1..3'
    """
    return f"{billions(timing.low)}..{billions(timing.high)}"
