"""Adaptive: how long is the next substep, from the errors of those before? Arithmetic only.

A step of the run begins anew with the same first try, so what follows depends on the state alone,
and a run that is continued finds the same substeps. After a substep with error e, relative to what
is tolerated, the next one is longer by 0.9 e^(-0.7/p) e_before^(0.4/p), p being the power with
which the error falls: the proportional and integral controller of K. Gustafsson, M. Lundh,
G. Soderlind, BIT 28 (1988) 270, with the numbers of E. Hairer, G. Wanner, Solving Ordinary
Differential Equations II, IV.2. After one that was rejected it is 0.9 e^(-1/p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

_SAFETY, _SHRINK, _GROW = 0.9, 0.1, 10.0
_INTEGRAL, _PROPORTIONAL = 0.7, 0.4
_STEPS_OF_FACTOR = 1 << 20  # factors are rounded: powers differ in the last place between computers
_LEAST = 1e-12  # of a step: a substep that is shorter leads nowhere


@dataclass(frozen=True)
class Counted:
    """The substeps of a run so far.

    Attributes:
        made: how many.
        rejected: tried besides, with too large errors.
        shortest: of those made [s].
        longest: likewise.
    """

    made: int = 0
    rejected: int = 0
    shortest: float = math.inf
    longest: float = 0.0

    def __str__(self) -> str:
        return (
            f"Adaptive steps: {self.made} substeps made, {self.rejected} rejected; the shortest "
            f"{self.shortest:.4g} s, the longest {self.longest:.4g} s."
        )


class Controller:
    """The substeps of one step.

    Args:
        begin: of the step [s].
        end: of the step [s].
        first: the substep that is tried first [s].
        order: power of a substep's length with which its error shrinks.
        counted: the substeps before.

    Attributes:
        time: until when substeps are made [s].
        length: of the substep that is tried next [s].
        counted: all substeps so far.
    """

    def __init__(
        self, begin: float, end: float, first: float, order: int, counted: Counted
    ) -> None:
        self.time, self.counted = begin, counted
        self._end, self._order = end, order
        self._least = max(_LEAST * (end - begin), 8 * math.ulp(max(abs(begin), abs(end))))
        self._before, self._wanted = 1.0, first
        self._set_length()

    @property
    def ended(self) -> bool:
        """Whether the step is made."""
        return self.time >= self._end

    @property
    def until(self) -> float:
        """When the substep that is tried next ends [s]."""
        return self._end if self._is_last else self.time + self.length

    @property
    def stuck(self) -> bool:
        """Whether the next substep is too short for time to go on."""
        return self._wanted < self._least

    def accept(self, error: float) -> bool:
        """Whether the substep that was tried counts; the next one is shorter if not.

        Args:
            error: of the substep, 1 is tolerated; infinite if there is none.
        """
        if error > 1:
            factor = _SAFETY * error ** (-1 / self._order) if math.isfinite(error) else _SHRINK
            self._wanted = self.length * _rounded(min(max(factor, _SHRINK), _SAFETY))
            self.counted = replace(self.counted, rejected=self.counted.rejected + 1)
            self._before = 1.0
            self._set_length()
            return False

        self.counted = replace(
            self.counted,
            made=self.counted.made + 1,
            shortest=min(self.counted.shortest, self.length),
            longest=max(self.counted.longest, self.length),
        )
        self.time = self.until
        least = max(error, 1e-10)
        factor = _SAFETY * least ** (-_INTEGRAL / self._order)
        factor *= self._before ** (_PROPORTIONAL / self._order)
        self._wanted = max(self.length * _rounded(min(max(factor, _SHRINK), _GROW)), self._least)
        self._before = least
        self._set_length()
        return True

    def _set_length(self) -> None:
        """What is wanted, but the end is hit, with two equal substeps before it if it is near."""
        left = self._end - self.time
        self._is_last = self._wanted >= left * (1 - 1e-9)
        self.length = left if self._is_last else min(self._wanted, left / 2)


def _rounded(factor: float) -> float:
    return round(factor * _STEPS_OF_FACTOR) / _STEPS_OF_FACTOR


def largest_error(
    before: npt.NDArray[np.float64], after: npt.NDArray[np.float64], tolerance: float
) -> float:
    """The error of a substep, 1 is tolerated; infinite if something is no number.

    >>> largest_error(np.array([2.0, 0.0]), np.array([[1.0, 0.0], [1e-6, 0.0]]), 1e-6)
    0.5

    Args:
        before: largest magnitude of each field before it.
        after: of each field, and of its error, (2, n_fields).
        tolerance: of errors, relative to magnitudes.
    """
    values, errors = after
    if not np.isfinite(after).all():
        return math.inf
    relative = [
        float(error) / (tolerance * float(scale)) if scale > 0 else math.inf
        for error, scale in zip(errors, np.maximum(before, values), strict=True)
        if error > 0
    ]
    return max(relative, default=0.0)
