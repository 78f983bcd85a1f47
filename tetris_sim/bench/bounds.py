"""What the measured limits allow a sweep, and which share of it a rate is: arithmetic only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tetris_sim.bench.result import Case, Limits, Row, When
from tetris_sim.model.problem import arithmetic_of


@dataclass(frozen=True)
class Bounds:
    """Point updates per second that cannot be exceeded.

    Attributes:
        fma: if every term of the unfused stencil is one multiply-add.
        memory: if every step reads and writes every point in memory once.
    """

    fma: float
    memory: float

    @property
    def tighter(self) -> Literal["fma", "memory"]:
        """Which of the two binds a sweep that goes through memory at each step."""
        return "fma" if self.fma <= self.memory else "memory"

    @property
    def one_sweep(self) -> float:
        """The smaller of the two."""
        return min(self.fma, self.memory)


def find_bounds(n_terms: int, itemsize: int, *, fma_rate: float, copy_rate: float) -> Bounds:
    """The bounds of a stencil.

    >>> find_bounds(5, 8, fma_rate=100e9, copy_rate=32e9)
    Bounds(fma=20000000000.0, memory=2000000000.0)

    Args:
        n_terms: points of the stencil.
        itemsize: bytes of a point.
        fma_rate: multiply-adds per second.
        copy_rate: bytes per second, read plus written.
    """
    return Bounds(fma=fma_rate / n_terms, memory=copy_rate / (2 * itemsize))


def bounds_of(case: Case, limits: Mapping[When, Limits]) -> Bounds:
    """The bounds of a case; without measured multiply-adds these bind nothing.

    Args:
        case: float16 is computed in float32, and so are its multiply-adds.
        limits: before and after; the better ones count, which are the harder limit.
    """
    dtype = np.dtype(case.dtype)
    return find_bounds(
        case.n_terms,
        dtype.itemsize,
        fma_rate=fma_rate(limits, arithmetic_of(dtype).name),
        copy_rate=copy_rate(limits),
    )


def fma_rate(limits: Mapping[When, Limits], dtype: str) -> float:
    """Multiply-adds per second of all threads, the better of before and after."""
    rates = [measured.fma[dtype].median for measured in limits.values() if dtype in measured.fma]
    return max(rates, default=float("inf"))


def copy_rate(limits: Mapping[When, Limits]) -> float:
    """Bytes per second, read plus written, of the faster kind of copy in memory, the better of
    before and after.
    """
    kinds = [(measured.copy, measured.copy_past_caches) for measured in limits.values()]
    return max(copy.median for pair in kinds for copy in pair if copy is not None)


def share_of_fma(row: Row, case: Case, bounds: Bounds) -> float:
    """A rate as a share of the multiply-add rate: of the same moment if that was measured, else of
    the bound.
    """
    of_yardstick = row.steady.of_yardstick
    return row.rate / bounds.fma if of_yardstick is None else of_yardstick * case.n_terms


def share_of_sweep(row: Row, bounds: Bounds) -> float | None:
    """A rate as a share of the tighter bound; None for methods that go through memory once for
    several steps.
    """
    return row.rate / bounds.one_sweep if row.steps == 1 else None
