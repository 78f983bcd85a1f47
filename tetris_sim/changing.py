"""Deep ghosts beyond a face whose value changes with time, as numbers that are worked out before a
block of steps.

With u_0 = a(t) + b u_1 at every step, V_j = u_j - b u_(j+1) is a(t) at the face, j = 0, all along
it. V is advanced by the stencil as u is. If that is mirrored along the axis, reads one point on
either side of a plane with the weights w together there, and its weights sum to 1, the even part
S_g = (V_g + V_(-g)) / 2 is the same all along the face and, with D = E - 1 the difference from one
step to the next,

    S_0 = a,  S_1 = (1 + D/(2w)) a,  S_(g+1) = 2 (1 + D/(2w)) S_g - S_(g-1)

so S_g = T_g(1 + D/(2w)) a, with T_g the polynomials of Chebyshev, whose coefficients about 1 are
all positive. Ghost number g after the first takes u_(-g) = b u_(1-g) - u_g + b u_(g+1) + 2 S_g:
what it gets besides mirrored points is A_g = b A_(g-1) + 2 S_g, A_0 = a.

S_g holds differences of a(t) up to the g-th, divided by as many w: as numbers they are large where
a(t) jumps, and what they round arrives inside divided by so many w again. So a(t) is replaced by a
polynomial of few terms that is as near to it as its own rounding errors. Of the numbers that it
leads to is known what they may add to the rounding errors of the steps (`Course.right`); where that
is too much, or no such polynomial is near, the face is advanced step by step.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

LEAST_WEIGHT = 2.0**-8  # of the next plane: its powers are what ghosts are divided by
# Of a polynomial at most: one for each step of the blocks of a plane, so that these also have what
# is only noise in a(t), as there is in a wave after many periods.
_TERMS = 16
# Units of rounding. A ghost counts with its weight, at most half, so a step differs by no more than
# half of what `reference.tolerance` allows it on a line, and less in more dimensions.
_NEAR = 16.0


@dataclass(frozen=True, eq=False)
class Course:
    """What blocks of steps need to know of a face.

    Attributes:
        parts: of each term of the polynomial in what ghosts take, (ghosts, terms).
        fit: terms from the values of the steps of a block, (terms, steps).
        values: of the terms at these steps, (steps, terms).
        added: what a term of 1 can add to the values of points, in units of rounding, (terms,).
    """

    parts: Numbers
    fit: Numbers
    values: Numbers
    added: Numbers

    def terms(self, a: Numbers) -> Numbers:
        """Those of some blocks, (blocks, terms), from what a face is given at each of their steps,
        (blocks, steps).
        """
        eps, largest = np.finfo(np.float64).eps, np.abs(a).max(axis=1, keepdims=True)
        found = (a - a[:, :1]) @ self.fit.T
        found[:, 0] += a[:, 0]
        # What values that are rounded can lead to would be divided by powers of w all the same.
        found[np.abs(found) <= eps * largest * np.abs(self.fit).sum(axis=1)] = 0.0
        return np.asarray(found)

    def right(self, a: Numbers, terms: Numbers) -> npt.NDArray[np.bool_]:
        """Whether blocks with these terms are as near as others."""
        eps, largest = np.finfo(np.float64).eps, np.abs(a).max(axis=1)
        near = np.abs(terms @ self.values.T - a).max(axis=1) <= _NEAR * eps * largest
        return np.asarray(near & (np.abs(terms) @ self.added <= largest))


@functools.lru_cache(maxsize=64)
def make_course(w: float, b: float, steps: int) -> Course:
    """For blocks of so many steps.

    Args:
        w: sum of the weights in the next plane, at least `LEAST_WEIGHT`.
        b: of the face.
        steps: of a block, and ghosts beyond the face.
    """
    n = min(steps, _TERMS)
    values, differences = _polynomials(steps, n)
    even = [
        [sum(c * d for c, d in zip(row, of_term, strict=False)) for of_term in differences]
        for row in (_chebyshev(g, n, Fraction(w)) for g in range(steps))
    ]
    sums = np.array([[float(it) for it in row] for row in even])
    parts = np.empty((steps, n))
    parts[0] = sums[0]
    for g in range(1, steps):
        parts[g] = b * parts[g - 1] + 2 * sums[g]

    reached = _reached(w, steps)
    # What is constant is no larger than a, and rounded as a step rounds a ghost.
    added = np.abs(parts) * np.append(0.0, np.ones(n - 1)) * reached[:, None]
    fit = values.T / (values**2).sum(axis=0)[:, None]
    return Course(parts, fit, values, added.sum(axis=0))


def _polynomials(steps: int, n: int) -> tuple[Numbers, list[list[Fraction]]]:
    """Those that are orthogonal on the steps, 1 at the last one: (their values at all steps,
    (steps, n); their differences of all orders at the first step).
    """
    at = [Fraction(2 * k + 1 - steps) for k in range(max(steps, n))]
    rows = [[Fraction(1)] * len(at)]
    for k in range(1, n):  # discrete Chebyshev polynomials by their recurrence
        before = rows[k - 2] if k > 1 else [Fraction(0)] * len(at)
        rows.append(
            [
                ((2 * k - 1) * x * now - (k - 1) * (steps**2 - (k - 1) ** 2) * last) / k
                for x, now, last in zip(at, rows[k - 1], before, strict=True)
            ]
        )
    rows = [[it / row[steps - 1] for it in row] for row in rows]
    values = np.array([[float(it) for it in row[:steps]] for row in rows]).T
    return values, [_differences(row[:n]) for row in rows]


def _differences(row: list[Fraction]) -> list[Fraction]:
    """Of a sequence: its first value, the first difference, ..."""
    found = []
    while row:
        found.append(row[0])
        row = [b - a for a, b in itertools.pairwise(row)]
    return found


def _chebyshev(g: int, n: int, w: Fraction) -> list[Fraction]:
    """The first n coefficients of T_g(1 + D/(2w)) by powers of D.

    >>> [str(it) for it in _chebyshev(2, 4, Fraction(1, 2))]
    ['1', '4', '2', '0']
    """
    if g == 0:
        return [Fraction(k == 0) for k in range(n)]
    return [Fraction(g * math.comb(g + k, 2 * k), g + k) / w**k for k in range(n)]


def _reached(w: float, steps: int) -> Numbers:
    """How much of what ghost number g holds, 0 being the one next to the face, can arrive inside
    within a block.
    """
    part = np.zeros(steps + 2)
    part[0] = 1.0
    for _ in range(steps):
        part[1:-1] = (1 - 2 * w) * part[1:-1] + w * (part[:-2] + part[2:])
    return part[1:-1]
