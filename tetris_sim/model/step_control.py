"""Step-size control of adaptive time stepping: the length of the next substep from earlier errors.

This is arithmetic only. Each step of the run begins with the same first trial, so what follows
depends on the state alone, and a continued run finds the same substeps (docs/decisions/0024). After
a substep with error e, relative to the tolerance, the next one is longer by 0.9 e^(-0.7/p)
e_before^(0.4/p), p being the power with which the error falls: the proportional-integral controller
of K. Gustafsson, M. Lundh, G. Soderlind, BIT 28 (1988) 270, with the constants of E. Hairer, G.
Wanner, Solving Ordinary Differential Equations II, IV.2. After a rejected substep the factor is 0.9
e^(-1/p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

# Safety factor, and the smallest and largest change of length from one substep to the next.
_SAFETY, _SHRINK, _GROW = 0.9, 0.1, 10.0
_INTEGRAL, _PROPORTIONAL = 0.7, 0.4
_STEPS_OF_FACTOR = 1 << 20  # factors are rounded: powers differ in the last place between computers
_LEAST = 1e-12  # of a step: a substep that is shorter leads nowhere


@dataclass(frozen=True)
class Counted:
    """Counts of the substeps of a run so far.

    Attributes:
        made: accepted substeps.
        rejected: additional trials whose error was too large.
        shortest: accepted length [s].
        longest: accepted length [s].
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
        first: length of the first trial [s].
        order: power of a substep's length with which its error shrinks.
        counted: the substeps before.

    Attributes:
        time: reached by the accepted substeps [s].
        length: of the substep that is tried next [s].
        counted: all substeps so far.
    """

    def __init__(
        self, begin: float, end: float, first: float, order: int, counted: Counted
    ) -> None:
        self.time, self.counted = begin, counted
        self._end, self._order = end, order

        # Below a few units in the last place of time itself, adding the length would not advance
        # it.
        self._least = max(_LEAST * (end - begin), 8 * math.ulp(max(abs(begin), abs(end))))
        self._before, self._wanted = 1.0, first
        self._set_length()

    @property
    def ended(self) -> bool:
        """Whether the step is complete."""
        return self.time >= self._end

    @property
    def until(self) -> float:
        """End of the substep that is tried next [s]."""
        # Exactly the end of the step: time + length could miss it by a rounding.
        return self._end if self._is_last else self.time + self.length

    @property
    def stuck(self) -> bool:
        """Whether the next substep is too short to advance time."""
        return self._wanted < self._least

    def accept(self, error: float) -> bool:
        """Accept or reject the substep that was tried, and choose the length of the next.

        Args:
            error: of the substep, 1 is tolerated; infinite if there is none.

        Returns:
            Whether the substep counts; if not, it must be undone and retried with the new `length`.
        """
        # Rejected: the integral part alone, and no memory of the error before it.
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

        # Accepted. An error of exactly 0 would ask for an infinite step.
        least = max(error, 1e-10)
        factor = _SAFETY * least ** (-_INTEGRAL / self._order)
        factor *= self._before ** (_PROPORTIONAL / self._order)
        self._wanted = max(self.length * _rounded(min(max(factor, _SHRINK), _GROW)), self._least)
        self._before = least
        self._set_length()
        return True

    def _set_length(self) -> None:
        """Set the next length so that the end of the step is hit exactly, after two equal substeps
        if it is near.
        """
        left = self._end - self.time
        self._is_last = self._wanted >= left * (1 - 1e-9)
        self.length = left if self._is_last else min(self._wanted, left / 2)


def _rounded(factor: float) -> float:
    # Rounding to 2^-20 gives the same factors on all computers.
    return round(factor * _STEPS_OF_FACTOR) / _STEPS_OF_FACTOR


def largest_error(
    before: npt.NDArray[np.float64], after: npt.NDArray[np.float64], tolerance: float
) -> float:
    """Return the error of a substep relative to the tolerance (1 is tolerated); infinite if a value
    is not finite.

    >>> largest_error(np.array([2.0, 0.0]), np.array([[1.0, 0.0], [1e-6, 0.0]]), 1e-6)
    0.5

    Args:
        before: largest magnitude of each field before it.
        after: largest magnitudes of each field and of its error, (2, n_fields).
        tolerance: of errors, relative to magnitudes.
    """
    values, errors = after
    if not np.isfinite(after).all():
        return math.inf

    # A field that is zero before and after has no scale: any error of it is too large.
    relative = [
        float(error) / (tolerance * float(scale)) if scale > 0 else math.inf
        for error, scale in zip(errors, np.maximum(before, values), strict=True)
        if error > 0
    ]
    return max(relative, default=0.0)
