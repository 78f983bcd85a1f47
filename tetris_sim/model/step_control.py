"""Steps in time: means of functions of time over steps, where such functions bend or jump, and the
length of the next substep from earlier errors.

This is arithmetic only. Means follow from the Lobatto rule of 4 points and its Kronrod rule of 7
(W. Gander, W. Gautschi, BIT 40 (2000) 84), on panels that are halved until the two agree, between
the times at which the function is known to bend or jump. A table is therefore averaged exactly.

Adaptive time stepping: each step of the run begins with the same first trial, so what follows
depends on the state alone, and a continued run finds the same substeps (docs/decisions/0024). After
a substep with error e, relative to the tolerance, the next one is longer by 0.9 e^(-0.7/p)
e_before^(0.4/p), p being the power with which the error falls: the proportional-integral controller
of K. Gustafsson, M. Lundh, G. Soderlind, BIT 28 (1988) 270, with the constants of E. Hairer, G.
Wanner, Solving Ordinary Differential Equations II, IV.2. After a rejected substep the factor is 0.9
e^(-1/p).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import NumericsError

Values = npt.NDArray[np.float64]
OfTimes = Callable[[Values], Values]  # from times (n,) [s] to values (n, ...)
NO_TIMES: Values = np.empty(0)

# Points of the Kronrod rule in [-1, 1] and their weights, and those of the Lobatto rule, over 2.
# The ends belong to both, so a jump anywhere in a panel makes them differ; they are read a little
# inside of it, on the panel's side of a jump at its end. The middle counts twice, with weight 0 the
# second time: panels of 8 points keep their place in the registers of a processor, so that a mean
# has the same bits whichever others are made with it.
_INSIDE = 1 - 1e-10
_POINTS = np.array([1, math.sqrt(2 / 3), math.sqrt(1 / 5)])
_POINTS = np.concatenate([-_POINTS, [0.0], _POINTS[::-1], [0.0]]) * _INSIDE
_WEIGHTS = np.array([77, 432, 625, 672, 625, 432, 77, 0]) / 2940
_ROUGHER = np.array([1, 0, 5, 0, 5, 0, 1, 0]) / 12
_MOST_PANELS = 1 << 13  # that are halved at once
_AT_ONCE = 1 << 20  # numbers that are evaluated at once
_DOUBTFUL = 1e-6  # of the largest value: the error that a mean may have at most
_NOTHING = 1e-280  # values so small have too few digits for the same
_SCANNED = 256  # panels in which a function is searched for bends
_NARROW = 1 << 12  # units in the last place: a panel this narrow holds a jump


class Signal:
    """A number that is decided while a run goes on, and stays the same between two decisions.

    What is tabulated ahead of time holds the decisions so far; whoever keeps such tables compares
    `Signal.decided` with what it was when they were made.

    Attributes:
        decided: how often any signal of this process has changed.
        name: what it is called.
        first: the value before the first decision.
        count: how many decisions there were.
    """

    decided = 0

    def __init__(self, name: str, first: float) -> None:
        self.name, self.first, self.count = name, first, 0
        # Times of decisions and what held from then on, with room for more.
        self._times, self._values = np.empty(1), np.array([first, first])

    @property
    def value(self) -> float:
        """The value from the last decision on."""
        return float(self._values[self.count])

    @property
    def decisions(self) -> Values:
        """Times [s] and values of all decisions, (count, 2)."""
        return np.stack([self._times[: self.count], self._values[1 : self.count + 1]], axis=1)

    def decide(self, time: float, value: float) -> None:
        """Set the value from a time on, the end of a step [s]."""
        if value == self.value:
            return
        # Twice the room each time: a PID controller decides at every step.
        if self.count == len(self._times):
            self._times, self._values = (np.tile(it, 2) for it in (self._times, self._values))
        self._times[self.count], self._values[self.count + 1] = time, value
        self.count += 1
        Signal.decided += 1

    def restore(self, decisions: Values) -> None:
        """Take the decisions of an earlier part of the run, (n, 2), as its own."""
        given = np.asarray(decisions, np.float64).reshape(-1, 2)
        self.count = len(given)
        self._times = np.append(given[:, 0], np.nan)
        self._values = np.concatenate([[self.first], given[:, 1], [np.nan]])
        Signal.decided += 1

    def at(self, times: Values) -> Values:
        """Return the values at some times [s], of their shape."""
        place = np.searchsorted(self._times[: self.count], times, "right")
        return np.asarray(self._values[place])


def mean(
    values: OfTimes,
    begins: Values,
    ends: Values,
    knots: Values = NO_TIMES,
    *,
    parts: int = 1,
    bound: float = 1e-10,
) -> Values:
    """Return the means of a function of time over some spans, (n, ...).

    >>> mean(lambda t: t[:, None] ** 2, np.array([0.0]), np.array([3.0])).round(12)
    array([[3.]])
    >>> mean(lambda t: (t > 1) * 6.0, np.array([0.0, 5.0]), np.array([3.0, 5.0])).round(9)
    array([4., 6.])
    >>> pulse = lambda t: np.interp(t, [0.0, 1.0, 2.0], [0.0, 4.0, 0.0])
    >>> mean(pulse, np.array([1.5]), np.array([2.5]), np.array([0.0, 1.0, 2.0]))  # beyond its end
    array([0.5])

    Args:
        values: the function.
        begins: of the spans, (n,) [s].
        ends: of the spans; a span that ends where it begins is an instant.
        knots: times at which the function bends or jumps, ascending.
        parts: panels with which each piece of a span begins; nothing is missed that is wider than
            a quarter of one.
        bound: of the error, relative to the largest value met in the span. A function that changes
            too fast for it may reach 1e-6.

    Raises:
        NumericsError: the function changes too fast even for that.
    """
    owner, low, high = _pieces(begins, ends, knots, parts)
    span = np.where(ends > begins, ends - begins, 1.0)
    first = np.searchsorted(owner, np.arange(len(begins)))
    total = base = scale = np.zeros(0)
    doubt = np.zeros(len(begins))

    while len(owner):
        found, error, largest, middle = _panels(values, low, high)
        # Differences from a first value, so that a function that stays the same is met exactly.
        if not total.size:
            base, scale = middle[first], np.zeros(len(begins))
            total = np.zeros_like(base)
        np.maximum.at(scale, owner, largest)
        share = np.where(high > low, (high - low) / span[owner], 1.0)
        rough = error * share > bound * np.maximum(scale, _NOTHING)[owner]
        if rough.sum() > _MOST_PANELS:
            np.add.at(doubt, owner[rough], (error * share)[rough])
            rough[:] = False

        rest = found - base[owner]
        rest *= share.reshape(-1, *(1,) * (rest.ndim - 1))
        np.add.at(total, owner[~rough], rest[~rough])
        owner, (low, high) = np.repeat(owner[rough], 2), _halves(low[rough], high[rough])

    if (doubt > _DOUBTFUL * np.maximum(scale, _NOTHING)).any():
        at = int(np.argmax(doubt > _DOUBTFUL * np.maximum(scale, _NOTHING)))
        msg = (
            f"what is given over time changes too fast between {begins[at]:.6g} and "
            f"{ends[at]:.6g} s for its mean to be known; take shorter time steps, or a table"
        )
        raise NumericsError(msg)
    return np.asarray(base + total)


def across(values: OfTimes, times: Values, knots: Values) -> Values:
    """Return the values at the begins of steps, and where a knot lies in a step the mean over it,
    (n - 1, ...): what schemes with stages read, so that they have their order, and miss no pulse.

    Args:
        values: the function.
        times: of the steps, the end of the last one too, (n,) [s].
        knots: as of `mean`.
    """
    begins, ends = times[:-1], times[1:]
    found = np.asarray(values(begins), np.float64)
    found = np.broadcast_to(found, (len(begins), *found.shape[1:]))
    if len(knots):
        first, last = (np.searchsorted(knots, it, "left") for it in (begins, ends))
        if (cut := first < last).any():
            found = found.copy()
            found[cut] = mean(values, begins[cut], ends[cut], knots)
    return found


def bends(values: OfTimes, begin: float, end: float, knots: Values = NO_TIMES) -> Values:
    """Return the times inside a span at which a step should end: knots, jumps, and the ends of
    stretches in which the function varies faster than elsewhere.

    >>> bends(lambda t: np.where(t > 520, 1e4, 0.0), 0.0, 1000.0).round(6).tolist()
    [519.53125, 520.0, 523.4375]

    Args:
        values: the function; what is shorter than a thousandth of the span may be missed.
        begin: of the span [s].
        end: of the span.
        knots: as of `mean`.
    """
    known = np.unique(knots[(knots > begin) & (knots < end)])
    _, low, high = _pieces(np.array([begin]), np.array([end]), known, 1)
    # Between close knots nothing is searched for.
    parts = max(1, _SCANNED // len(low))
    _, low, high = _pieces(np.array([begin]), np.array([end]), known, parts)
    narrow = _NARROW * math.ulp(max(abs(begin), abs(end)))
    found, scale, ends = [known], 0.0, high

    while len(low) and len(low) <= _MOST_PANELS:
        _, error, largest, _ = _panels(values, low, high)
        scale = max(scale, float(largest.max()))
        rough = error > _DOUBTFUL * scale  # which at a jump stays so, however narrow the panel
        if ends is high:
            found.append(ends[:-1][rough[1:] != rough[:-1]])
        low, high = low[rough], high[rough]
        jumps = high - low <= narrow
        found.append(
            np.array([_jump(values, *it) for it in zip(low[jumps], high[jumps], strict=True)])
        )
        low, high = _halves(low[~jumps], high[~jumps])

    inside = np.unique(np.concatenate(found))
    return inside[(inside > begin) & (inside < end)]


def _jump(values: OfTimes, low: float, high: float) -> float:
    """Return the first time of a narrow panel after a jump."""
    before, after = values(np.array([low, high]))
    while low < (middle := (low + high) / 2) < high:
        (here,) = values(np.array([middle]))
        is_before = np.abs(here - before).max() <= np.abs(here - after).max()
        low, high = (middle, high) if is_before else (low, middle)
    return high


# A step that reads what changes with time at some moments, and not its mean, must see what happens
# between them: it is divided until the mean of a Simpson's rule is near enough to the mean.

_GRAINS = 1 << 10  # parts of a span in which a mean is found
_SEEN = 0.25  # of the mean distance from what a span begins with: how far Simpson's rule may be off
_LEVEL = 1e-9  # of the largest value: what counts as nothing
_APART = 4  # units in the last place between a jump and what is read on either side of it


def stretches(
    courses: Sequence[tuple[OfTimes, Values]], begin: float, end: float
) -> list[tuple[float, float]]:
    """Divide a span where functions of time bend or jump, and where they vary too fast for three
    values to tell their mean; what ends at a jump ends just before it, and the next begins after.

    >>> pulse = lambda t: np.where((t > 520) & (t < 521), 1.0, 0.0)
    >>> found = stretches([(pulse, np.array([520.0, 521.0]))], 0.0, 999.0)
    >>> [(round(low, 3), round(high, 3)) for low, high in found]
    [(0.0, 520.0), (520.0, 521.0), (521.0, 999.0)]

    Args:
        courses: functions with the times at which they are known to bend or jump, as of `mean`.
        begin: of the span [s].
        end: of the span [s].
    """
    if not courses:
        return [(begin, end)]
    apart = _APART * math.ulp(max(abs(begin), abs(end)))
    low, high = begin - apart, end + apart
    found = [bends(values, low, high, knots) for values, knots in courses]
    marks = np.unique(np.concatenate(found))
    cuts = [begin]
    for mark in marks[(marks > begin + apart) & (marks < end - apart)].tolist():
        if mark - cuts[-1] > 3 * apart:
            cuts.append(mark)
    cuts.append(end)

    def is_marked(time: float) -> bool:
        return bool((abs(marks - time) <= apart).any())

    pieces = list[tuple[float, float]]()
    for first, last in itertools.pairwise(cuts):
        trimmed = first + apart * is_marked(first), last - apart * is_marked(last)
        pieces += _told(courses, *trimmed)
    return pieces


def _told(
    courses: Sequence[tuple[OfTimes, Values]], begin: float, end: float
) -> list[tuple[float, float]]:
    """Halve a span until three values of each function tell its mean."""
    times = begin + (end - begin) * (np.arange(_GRAINS + 1) / _GRAINS)
    times[-1] = end
    sums = list[tuple[Values, Values, Values, float]]()
    for values, _ in courses:
        given = np.asarray(values(times), np.float64).reshape(len(times), -1)
        # What is no number is found where it is read.
        given = np.nan_to_num(given, posinf=0.0, neginf=0.0)
        # As differences, so that sums of what stays the same have no rounding errors.
        given = given - given[0]
        parts, away = (given[1:] + given[:-1]) / 2, abs(given)
        sums.append((given, _summed(parts), _summed((away[1:] + away[:-1]) / 2), away.max()))

    def halve(low: int, high: int) -> list[int]:
        middle = (low + high) // 2
        if high - low < 2 or all(is_told(it, low, middle, high) for it in sums):
            return [low]
        return [*halve(low, middle), *halve(middle, high)]

    def is_told(of: tuple[Values, Values, Values, float], low: int, middle: int, high: int) -> bool:
        given, whole, away, largest = of
        simpson = (given[low] + 4 * given[middle] + given[high]) / 6 * (high - low)
        off = abs(simpson - (whole[high] - whole[low]))
        near = _SEEN * (away[high] - away[low]) + _LEVEL * largest * (high - low)
        return bool((off <= near).all())

    edges = [*halve(0, _GRAINS), _GRAINS]
    return [(float(times[a]), float(times[b])) for a, b in itertools.pairwise(edges)]


def _summed(parts: Values) -> Values:
    return np.concatenate([np.zeros((1, parts.shape[1])), np.cumsum(parts, axis=0)])


def _pieces(
    begins: Values, ends: Values, knots: Values, parts: int
) -> tuple[npt.NDArray[np.int64], Values, Values]:
    """Cut spans at knots, and the pieces into equal parts: the span of each, its begin and end."""
    first = np.searchsorted(knots, begins, "right")
    counts = np.maximum(np.searchsorted(knots, ends, "left") - first, 0) + 1
    owner = np.repeat(np.arange(len(begins)), counts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    if len(owner) == len(begins):
        low, high = begins, ends
    else:
        place = first[owner] + number  # of the knot at which each piece ends, if it ends at one
        below, above = np.maximum(place - 1, 0), np.minimum(place, len(knots) - 1)
        low = np.where(number == 0, begins[owner], knots[below])
        high = np.where(number == counts[owner] - 1, ends[owner], knots[above])
    if parts == 1:
        return owner, low, high

    edges = low[:, None] + (high - low)[:, None] * (np.arange(parts + 1) / parts)
    edges[:, -1] = high
    return np.repeat(owner, parts), edges[:, :-1].reshape(-1), edges[:, 1:].reshape(-1)


def _panels(values: OfTimes, low: Values, high: Values) -> tuple[Values, Values, Values, Values]:
    """Return the mean in each panel, its largest error, the largest magnitude, and the middle."""
    found, size, at = [], 1, 0
    while at < len(low):
        end = at + max(1, _AT_ONCE // (len(_POINTS) * size))
        middle, half = (high[at:end] + low[at:end]) / 2, (high[at:end] - low[at:end]) / 2
        times = middle[:, None] + half[:, None] * _POINTS
        given = np.asarray(values(times.reshape(-1)), np.float64)
        given = given.reshape(*times.shape, *given.shape[1:])
        size, at = max(1, given[0, 0].size), min(end, len(low))

        # Where the function is no number, its mean is none either, and nothing is gained by halves.
        with np.errstate(invalid="ignore", over="ignore"):
            centre = given[:, 3]
            apart = given - centre[:, None]
            weights = (it.reshape(-1, *(1,) * (apart.ndim - 2)) for it in (_WEIGHTS, _ROUGHER))
            more, rougher = ((apart * it).sum(axis=1) for it in weights)
            error = abs(more - rougher)
        flat = (len(given), -1)
        largest = abs(given).reshape(flat).max(axis=1)
        found.append((centre + more, error.reshape(flat).max(axis=1), largest, centre))
    return tuple(np.concatenate(it) for it in zip(*found, strict=True))  # type: ignore[return-value]


def _halves(low: Values, high: Values) -> tuple[Values, Values]:
    """Halve some panels."""
    middle = (low + high) / 2
    return np.stack([low, middle], 1).reshape(-1), np.stack([middle, high], 1).reshape(-1)


# Safety factor, and the smallest and largest change of length from one substep to the next.
_SAFETY, _SHRINK, _GROW = 0.9, 0.1, 10.0
_INTEGRAL, _PROPORTIONAL = 0.7, 0.4
_STEPS_OF_FACTOR = 1 << 20  # factors are rounded: powers differ in the last place between computers
_LEAST = 1e-12  # of a step: a substep that is shorter leads nowhere
LEAST_ERROR = 1e-10  # that is told from 0


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
        end: of the step [s].
        length: of the substep that is tried next [s].
        wanted: the same before the end of the step cuts it [s].
        least: what is shorter leads nowhere [s].
        before: error of the last accepted substep; 1 after a rejected one.
        order: power of a substep's length with which its error shrinks.
        counted: all substeps so far.
    """

    def __init__(
        self, begin: float, end: float, first: float, order: int, counted: Counted
    ) -> None:
        self.end, self.order = end, order

        # Below a few units in the last place of time itself, adding the length would not advance
        # it.
        self.least = max(_LEAST * (end - begin), 8 * math.ulp(max(abs(begin), abs(end))))
        self.go_on(begin, first, 1.0, counted)

    def go_on(self, time: float, wanted: float, before: float, counted: Counted) -> None:
        """Take over where somebody else has made some substeps; see the attributes."""
        self.time, self.wanted, self.before, self.counted = time, wanted, before, counted
        self.length, self._is_last = cut_length(wanted, self.end - time)

    @property
    def numbers(self) -> tuple[float, float, float, float, float]:
        """Time, end, wanted length, error before and least length."""
        return self.time, self.end, self.wanted, self.before, self.least

    @property
    def ended(self) -> bool:
        """Whether the step is complete."""
        return self.time >= self.end

    @property
    def until(self) -> float:
        """End of the substep that is tried next [s]."""
        # Exactly the end of the step: time + length could miss it by a rounding.
        return self.end if self._is_last else self.time + self.length

    @property
    def stuck(self) -> bool:
        """Whether the next substep is too short to advance time."""
        return self.wanted < self.least

    def accept(self, error: float) -> bool:
        """Accept or reject the substep that was tried, and choose the length of the next.

        Args:
            error: of the substep, 1 is tolerated; infinite if there is none.

        Returns:
            Whether the substep counts; if not, it must be undone and retried with the new `length`.
        """
        counted, wanted = self.counted, self.length * next_factor(error, self.before, self.order)
        # Rejected: the integral part alone, and no memory of the error before it.
        if error > 1:
            self.go_on(self.time, wanted, 1.0, replace(counted, rejected=counted.rejected + 1))
            return False

        counted = replace(
            counted,
            made=counted.made + 1,
            shortest=min(counted.shortest, self.length),
            longest=max(counted.longest, self.length),
        )
        self.go_on(self.until, max(wanted, self.least), max(error, LEAST_ERROR), counted)
        return True


# Rules of one number or a few, as compiled loops call them too (cpu_kernels/equations).


def next_factor(error: float, before: float, order: float) -> float:
    """Return by what the length of a substep is multiplied for the next one.

    >>> next_factor(1e-9, 1.0, 5), next_factor(math.inf, 1.0, 5) * 2**20
    (10.0, 104858.0)

    Args:
        error: of the substep, 1 is tolerated; infinite if there is none.
        before: that of the accepted substep before it.
        order: power of a substep's length with which its error shrinks.
    """
    if error > 1:
        factor = _SAFETY * error ** (-1 / order) if math.isfinite(error) else _SHRINK
        factor = min(max(factor, _SHRINK), _SAFETY)
    else:
        # An error of exactly 0 would ask for an infinite step.
        factor = _SAFETY * max(error, LEAST_ERROR) ** (-_INTEGRAL / order)
        factor *= before ** (_PROPORTIONAL / order)
        factor = min(max(factor, _SHRINK), _GROW)
    # Rounding to 2^-20 gives the same factors on all computers.
    return round(factor * _STEPS_OF_FACTOR) / _STEPS_OF_FACTOR


def cut_length(wanted: float, left: float) -> tuple[float, bool]:
    """Return the length of the next substep and whether it is the last: the end of the step is hit
    exactly, after two equal substeps if it is near.

    >>> cut_length(2.0, 8.0), cut_length(2.0, 3.0), cut_length(2.0, 1.5)
    ((2.0, False), (1.5, False), (1.5, True))

    Args:
        wanted: length [s].
        left: of the step [s].
    """
    is_last = wanted >= left * (1 - 1e-9)
    return (left if is_last else min(wanted, left / 2)), is_last


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
    largest = 0.0
    for k in range(len(before)):
        value, error = after[0, k], after[1, k]
        if not (math.isfinite(value) and math.isfinite(error)):
            return math.inf
        # A field that is zero before and after has no scale: any error of it is too large.
        if error > 0:
            scale = tolerance * max(before[k], value)
            largest = max(largest, error / scale if scale > 0 else math.inf)
    return float(largest)
