"""Runge-Kutta: schemes of many stages, pairs of them that estimate their errors, and steps that
follow an unstable state on a part of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.pde.fluxes import HELD
from tetris_sim.apps.pde.schemes import (
    Scheme,
    SchemeStages,
    System,
    constrained,
    evaluated,
    extended,
)
from tetris_sim.apps.pde.simplify import DT, ONE, Hoist, Term, combine, scaled, times
from tetris_sim.config.sections.schema import TimeSection
from tetris_sim.model.conduction import Parameter
from tetris_sim.model.equations import as_tap, tap
from tetris_sim.model.formula import Constant, Node, evaluate_each
from tetris_sim.model.grid import Grid
from tetris_sim.model.slab import Ranges

# RKL2: a step of many stages, each of which costs one evaluation, far longer than they together.
#
# The second-order Runge-Kutta-Legendre method of C. D. Meyer, D. S. Balsara, T. D. Aslam, J.
# Comput. Phys. 257 (2014) 594: with s stages it is stable on the negative axis up to (s^2 + s -
# 2)/2, where euler is up to 2. With f the right-hand side, h the step and w = 4/(s^2 + s - 2),
#
#     y_1 = u + b_1 w h f(u, t)
#     y_j = m_j y_(j-1) + n_j y_(j-2) + (1 - m_j - n_j) u + m_j w h (f(y_(j-1)) - a_(j-1) f(u, t))
#     b_j = (j^2 + j - 2)/(2 j (j + 1)), b_0 = b_1 = b_2 = 1/3, a_j = 1 - b_j
#     m_j = (2j - 1)/j b_j/b_(j-1),  n_j = -(j - 1)/j b_j/b_(j-2)
#
# and y_s the new state. y_j is the state at t + h (j^2 + j - 2)/(s^2 + s - 2), y_1 at t + b_1 w h.

MOST_STAGES = 16  # with more, data with edges overshoot


def _b(j: int) -> float:
    return (j * j + j - 2) / (2 * j * (j + 1)) if j > 1 else 1 / 3


def _weights(j: int) -> tuple[float, float]:
    """M_j and n_j."""
    return (2 * j - 1) / j * _b(j) / _b(j - 1), -(j - 1) / j * _b(j) / _b(j - 2)


def stretched(stages: int) -> float:
    """How many steps of euler on the negative axis a step is as long as.

    >>> stretched(3), stretched(16)
    (2.5, 67.5)
    """
    return (stages * stages + stages - 2) / 4


def rkl2_factor(z: npt.NDArray[Any], stages: int) -> npt.NDArray[Any]:
    """By what it multiplies a wave in a step."""
    w = 1 / stretched(stages)
    before, now = np.ones_like(z), 1 + _b(1) * w * z
    for j in range(2, stages + 1):
        m, n = _weights(j)
        new = m * now + n * before + (1 - m - n) + m * w * z * (now - (1 - _b(j - 1)))
        before, now = now, new
    return now


def factor(z: npt.NDArray[Any], scheme: Scheme, stages: int) -> npt.NDArray[Any]:
    """By what a scheme multiplies a wave in a step."""
    if scheme == "rkl2":
        return rkl2_factor(z, stages)
    if scheme == "euler":
        return np.asarray(1 + z)
    if scheme == "rk2":
        return np.asarray(1 + z + z * z / 2)
    if scheme == "ssprk3":
        return np.asarray(1 + z * (1 + z / 2 * (1 + z / 3)))
    return np.asarray(1 + z * (1 + z / 2 * (1 + z / 3 * (1 + z / 4))))


def make_rkl2(system: System, made: SchemeStages, stages: int) -> SchemeStages:
    """The stages of a step.

    Args:
        system: the right-hand sides.
        made: no stages yet.
        stages: 3 or more.

    Raises:
        ConfigError: the equations become too large.
    """
    nowhere, w = (0,) * system.space.ndim, 1 / stretched(stages)
    endings = ["", *(f".y{j}" for j in range(1, stages)), "'"]
    for j in range(1, stages + 1):
        late = 0.0 if j == 1 else _b(1) * w if j == 2 else stretched(j - 1) * w
        made, found = evaluated(system, made, endings[j - 1], late)
        formulas: dict[str, Node] = {}
        for name, sums in found.sums.items():
            here = tap(name, nowhere)
            new = name + endings[j]
            if j == 1:
                slope = combine(sums, made.hoist)
                formulas[f"{name}.k0"] = slope
                step = Term(_of_step(_b(1) * w), slope)
                formulas[new] = combine([Term(ONE, here), step], made.hoist)
                continue

            m, n = _weights(j)
            before = tap(name + endings[j - 2], nowhere)
            terms = [Term(Constant(m), tap(name + endings[j - 1], nowhere))]
            terms += [Term(Constant(n), before)] if j > 2 else []
            terms.append(Term(Constant(1 - m - n if j > 2 else 1 - m), here))
            terms.append(Term(_of_step(-m * w * (1 - _b(j - 1))), tap(f"{name}.k0", nowhere)))
            terms += scaled(sums, _of_step(m * w))
            formulas[new] = combine(terms, made.hoist)
        made = extended(made, found, formulas, {name + endings[j]: name for name in found.sums})
        then = _b(1) * w if j == 1 else stretched(j) * w
        made = constrained(system, made, endings[j], then)
    return made


def _of_step(weight: float) -> Node:
    return times(Constant(weight), DT)


# Pairs of Runge-Kutta methods: the step of one, and by how much another one differs from it.
#
# With k_i = f(u + h sum_j a_ij k_j, t + c_i h), the new state is u + h sum_i b_i k_i, and the error
# of the step about h sum_i d_i k_i, d being b less the weights of a method of one order less. The
# state goes on with the better of the two.
#
#     euler     Heun-Euler 2(1)
#     rk2       Bogacki-Shampine 3(2), P. Bogacki, L. F. Shampine, Appl. Math. Lett. 2 (1989) 321,
#               MATLAB's ode23 and SciPy's RK23
#     rk4       Dormand-Prince 5(4), J. R. Dormand, P. J. Prince, J. Comput. Appl. Math. 6 (1980)
#               19, ode45 and RK45


@dataclass(frozen=True)
class Pair:
    """Numbers of a pair.

    Attributes:
        name: for people.
        order: power of the step with which the error of one step shrinks.
        nodes: c.
        rows: a, of each stage but the first; the last is b where the last stage is the new state.
        weights: b.
        lower: weights of the method of one order less.
    """

    name: str
    order: int
    nodes: tuple[Fraction, ...]
    rows: tuple[tuple[Fraction, ...], ...]
    weights: tuple[Fraction, ...]
    lower: tuple[Fraction, ...]

    @property
    def first_same_as_last(self) -> bool:
        """Whether the last stage is at the new state."""
        return self.rows[-1] == self.weights[:-1] and self.weights[-1] == 0


def _numbers(text: str) -> tuple[Fraction, ...]:
    return tuple(map(Fraction, text.split()))


PAIRS: dict[str, Pair] = {
    "euler": Pair(
        *("Heun-Euler 2(1)", 2, _numbers("0 1"), (_numbers("1"),)),
        *(_numbers("1/2 1/2"), _numbers("1 0")),
    ),
    "rk2": Pair(
        "Bogacki-Shampine 3(2)",
        3,
        _numbers("0 1/2 3/4 1"),
        (_numbers("1/2"), _numbers("0 3/4"), _numbers("2/9 1/3 4/9")),
        _numbers("2/9 1/3 4/9 0"),
        _numbers("7/24 1/4 1/3 1/8"),
    ),
    "rk4": Pair(
        "Dormand-Prince 5(4)",
        5,
        _numbers("0 1/5 3/10 4/5 8/9 1 1"),
        (
            _numbers("1/5"),
            _numbers("3/40 9/40"),
            _numbers("44/45 -56/15 32/9"),
            _numbers("19372/6561 -25360/2187 64448/6561 -212/729"),
            _numbers("9017/3168 -355/33 46732/5247 49/176 -5103/18656"),
            _numbers("35/384 0 500/1113 125/192 -2187/6784 11/84"),
        ),
        _numbers("35/384 0 500/1113 125/192 -2187/6784 11/84 0"),
        _numbers("5179/57600 0 7571/16695 393/640 -92097/339200 187/2100 1/40"),
    ),
}


def make_pair(
    system: System, made: SchemeStages, pair: Pair
) -> tuple[SchemeStages, dict[str, str]]:
    """(the stages of a step by a pair, the name of the error of each field).

    Args:
        system: the right-hand sides.
        made: no stages yet.
        pair: how.

    Raises:
        ConfigError: the equations become too large.
    """
    last, errors = len(pair.nodes) - 1, {name: f"{name}.error" for name in system.right_sides}
    differences = [b - lower for b, lower in zip(pair.weights, pair.lower, strict=True)]
    endings = ["", *(f".y{k}" for k in range(1, last + 1))]
    if pair.first_same_as_last:
        endings[last] = "'"

    for number, ending in enumerate(endings):
        late = float(pair.nodes[number])
        made, found = evaluated(system, made, ending, late)
        formulas: dict[str, Node] = {}
        copies: dict[str, str] = {}
        for name, sums in found.sums.items():
            # What is computed here and what stages before have kept, by stage.
            here = tap(name, (0,) * system.space.ndim)
            slopes: list[Node] = [
                tap(f"{name}.k{k}", (0,) * system.space.ndim) for k in range(number)
            ]
            slopes.append(combine(sums, made.hoist))
            later = [*pair.rows[number:], pair.weights, differences]
            if number < last and any(len(row) > number and row[number] for row in later[1:]):
                formulas[f"{name}.k{number}"] = slopes[-1]

            if number < last:
                new = name + endings[number + 1]
                formulas[new] = _moved(here, pair.rows[number], slopes, made.hoist)
                copies[new] = name
                continue
            if not pair.first_same_as_last:
                formulas[f"{name}'"] = _moved(here, pair.weights, slopes, made.hoist)
            formulas[errors[name]] = _moved(None, differences, slopes, made.hoist)
        if number == last:
            # What is solved for has the errors of what it follows from, which are looked at.
            formulas |= {errors[name]: Constant(0.0) for name in system.elliptic}
        made = extended(made, found, formulas, copies)
        if number < last or not pair.first_same_as_last:
            ending = endings[number + 1] if number < last else "'"
            then = float(pair.nodes[number + 1]) if number < last else 1.0
            made = constrained(system, made, ending, then)
    return made, errors


def _moved(
    here: Node | None, weights: Sequence[Fraction], slopes: Sequence[Node], hoist: Hoist
) -> Node:
    """Return the value that slopes lead to in a step; without one, the sum alone."""
    terms = [
        Term(Constant(float(weight)), slope)
        for weight, slope in zip(weights, slopes, strict=True)
        if weight
    ]
    start = [] if here is None else [Term(ONE, here)]
    return combine([*start, Term(DT, combine(terms, hoist))], hoist)


def tolerance_mistakes(time: TimeSection, scheme: Scheme) -> Iterator[tuple[KeyPath, str]]:
    """Say which choices do not fit to steps that follow their errors."""
    if time.tolerance is None:
        return
    if scheme not in PAIRS:
        yield (
            ("time", "tolerance"),
            f"{scheme} has no estimate of its error; take scheme euler, rk2 or rk4",
        )
    if time.t_end is None and not isinstance(time.dt, float):
        yield ("time", "steps"), "of no length: give t_end, or dt beside tolerance"


# Followed: what an unstable state of equations grows to, on a part of the grid, in NumPy.
#
# How long a step may be depends on the values of the fields. Where waves grow, these leave what
# they are at the beginning, so some points are advanced in short steps; the states on the way then
# say how long steps may be, and a step can be tried on the same points.

Array = npt.NDArray[Any]
Rate = Callable[[Array, float], Array]  # right-hand sides of a state and a time [s]
SETTLED = 0.95  # of a limit: one of later states that has become no shorter
_FOLLOWED_POINTS = 1 << 11  # of the initial state, where waves grow
_MOST_FOLLOWED = 1500  # steps
_MOST_CARRIED = 1 << 9  # steps of what only sources and faces change
_LOOSE = 1e-2  # errors of a step of these, of the size of a field
_END = 1e-4  # of a step that becomes shorter: less is a field without bound, as the run will say
_POWERS = 24
_LEFT = 0.1  # of the range of a field, or of its size: what is farther has left it
_TRIES, _SHORTER, _OVERSHOT = 8, 0.95, 2.5  # of a step that is tried
_NOISE = 2e-3  # of the largest range of a field, added to what is followed
_ROUGH = 0.02  # of the size of a field, of a zigzag from point to point
_LOOKS = 48  # on the way


@dataclass(frozen=True, eq=False)
class SampledRates:
    """Right-hand sides, discretised, that NumPy evaluates in a box.

    Attributes:
        grid: of the whole domain.
        fields: by name.
        levels: formulas that operators read, in the order in which they are made.
        formulas: of the right-hand sides.
        arrays: coefficients, in any box.
        parameters: numbers of time.
        taps: the names of neighbours that formulas read.
    """

    grid: Grid
    fields: tuple[str, ...]
    levels: Sequence[Mapping[str, Node]]
    formulas: Mapping[str, Node]
    arrays: Mapping[str, Callable[[Ranges], Array]]
    parameters: Sequence[Parameter]
    taps: tuple[str, ...]

    def within(self, box: Ranges) -> Rate:
        """The right-hand sides in a box, continued periodically."""
        shape = tuple(high - low for low, high in box)
        taps = [(text, *as_tap(text)) for text in self.taps]  # type: ignore[misc]
        radii = [max([0, *(abs(it[axis]) for *_, it in taps)]) for axis in range(len(box))]

        # Neighbours are read thousands of times. A field is a row of numbers that goes on around
        # the box, of which those of all neighbours are parts without gaps; what is computed between
        # the rows of the box is not used.
        numbers = np.arange(math.prod(shape)).reshape(shape)
        around = np.pad(numbers, [(r, r) for r in radii], mode="wrap")
        strides = [math.prod(around.shape[axis + 1 :]) for axis in range(len(box))]
        inside = np.ravel_multi_index(np.indices(shape), around.shape)
        first, length = int(np.dot(radii, strides)), int(inside.max()) + 1
        order, again = around.ravel(), inside.ravel()[around.ravel()]
        parts = [
            (text, name.removesuffix(HELD), slice(begin, begin + length))
            for text, name, offset in taps
            for begin in [first + int(np.dot(offset, strides))]
        ]

        def seen(given: dict[str, Any], known: Mapping[str, Array]) -> None:
            for text, name, part in parts:
                if text not in given and name in known:
                    given[text] = known[name][part]

        places: dict[str, Any] = {}
        for axis, name in enumerate(self.grid.axis_names):
            along = self.grid.coordinates(axis, *box[axis])
            along = along.reshape([-1 if k == axis else 1 for k in range(len(box))])
            places[name] = np.broadcast_to(along, shape).take(order)[first : first + length]
        arrays = {it: np.broadcast_to(of(box), shape).take(order) for it, of in self.arrays.items()}
        seen(places, arrays)

        def rate(state: Array, time: float) -> Array:
            given = dict(places)
            for it in self.parameters:
                row = it.values(np.array([time])) if callable(it.values) else it.values
                given[it.name] = np.asarray(row).reshape(-1)[0]
            seen(given, {it: u.take(order) for it, u in zip(self.fields, state, strict=True)})
            with np.errstate(all="ignore"):
                for level in self.levels:
                    made = [
                        np.broadcast_to(it, length) for it in evaluate_each(level.values(), given)
                    ]
                    seen(given, {it: u.take(again) for it, u in zip(level, made, strict=True)})
                rates = evaluate_each(self.formulas.values(), given)
            return np.stack([np.broadcast_to(it, length).take(inside) for it in rates])

        return rate

    def stepping(self, box: Ranges) -> Callable[[Array, float, float, bool], Array]:
        """A function that makes one step in a box: of a state, its time, the length of the step,
        and whether by euler.
        """
        rate = self.within(box)

        def step(state: Array, time: float, dt: float, simple: bool) -> Array:
            a = rate(state, time)
            if simple:
                return np.asarray(state + dt * a)
            b = rate(state + dt / 2 * a, time + dt / 2)
            c = rate(state + dt / 2 * b, time + dt / 2)
            return np.asarray(
                state + dt / 6 * (a + 2 * b + 2 * c + rate(state + dt * c, time + dt))
            )

        return step


def falls_to(
    rate: Rate,
    state: Array,
    horizon: float,
    first: float,
    limit_at: Callable[[Array, float], float],
) -> float:
    """The shortest of the stable steps of the states that one goes through [s].

    They are followed by Bogacki and Shampine's pair, whose errors keep its steps stable. Where the
    step still becomes shorter after as many steps as are looked at, it is taken to go on so.

    Args:
        rate: the right-hand sides.
        state: (n_fields, n0, ...).
        horizon: until when; unknown if it is 0 [s].
        first: the stable step at the beginning [s].
        limit_at: the stable step at a state and a time.
    """
    until, time = horizon if horizon > 0 else math.inf, 0.0
    first = min(first, limit_at(state, time))
    dt = first / 2
    axes = tuple(range(1, state.ndim))
    low, high = state.min(axis=axes), state.max(axis=axes)
    shortest, slope = first, rate(state, 0.0)
    looks = [(0.0, first)]
    for number in range(1, _MOST_CARRIED + 1):
        dt = min(dt, until - time)
        with np.errstate(all="ignore"):
            b = rate(state + dt / 2 * slope, time + dt / 2)
            c = rate(state + 3 / 4 * dt * b, time + 3 / 4 * dt)
            new = state + dt / 9 * (2 * slope + 3 * b + 4 * c)
            d = rate(new, time + dt)
            errors = np.abs(dt * (5 / 72 * slope - b / 12 - c / 9 + d / 8)).max(axis=axes)
            sizes = np.maximum(np.abs(state).max(axis=axes), np.abs(new).max(axis=axes))
            worst = float((errors / (_LOOSE * sizes + np.finfo(float).tiny)).max())
        # NaN is not less than anything.
        if worst <= 1:
            state, time, slope = new, time + dt, d
        dt *= min(4.0, max(0.2, 0.9 * max(worst, 1e-9) ** (-1 / 3))) if worst < math.inf else 0.2

        # After 8, 16, 32, ... steps, where a field has left the values that were looked at.
        ends = time >= until or number == _MOST_CARRIED
        if ends or (number >= 8 and number & (number - 1) == 0):
            margin = _LEFT * np.maximum(high - low, np.maximum(abs(low), abs(high)))
            least, most = state.min(axis=axes), state.max(axis=axes)
            if (least < low - margin).any() or (most > high + margin).any():
                low, high = np.minimum(low, least), np.maximum(high, most)
                shortest = min(shortest, limit_at(state, time))
            looks.append((time, shortest))
            if time >= until or shortest <= 0:
                return shortest

    # Farther it goes on as a power of time, which sources that do not change make it.
    then, before = looks[-2]
    if math.isinf(until) or not 0 < then < time:
        return shortest if shortest >= SETTLED * before else shortest / 2
    power = math.log(shortest / before) / math.log(time / then)
    farther = (until / time) ** power
    return shortest * farther if farther > _END else first


def loudness(rate: Rate, state: Array, time: float) -> float:
    """About the largest magnitude of an eigenvalue of the Jacobian of right-hand sides [1/s], by
    powers of it, which differences give; a little less than that.
    """
    axes = tuple(range(1, state.ndim))
    sizes = np.abs(state).max(axis=axes, keepdims=True)
    nudge = 1e-6 * np.where(sizes > 0, sizes, max(sizes.max(), 1e-3))
    begin, found = rate(state, time), []
    way = nudge * np.random.default_rng(3).choice((-1.0, 1.0), state.shape)
    for _ in range(_POWERS):
        with np.errstate(all="ignore"):
            change = rate(state + way, time) - begin
            found.append(float(np.linalg.norm(change / nudge) / np.linalg.norm(way / nudge)))
        if not 0 < found[-1] < math.inf:
            return 0.0
        way = change * (np.linalg.norm(way / nudge) / np.linalg.norm(change / nudge))
    return float(np.exp(np.mean(np.log(found[-_POWERS // 3 :]))))


class Followed:
    """A state that is advanced.

    Args:
        rates: how it changes.
        state: (n_fields, n0, ...).
        box: where it lies.
        dt: the step, with which nothing should become unstable; shorter ones are tried if
            something does [s].
        scheme: euler is followed by euler, all others by rk4.
        horizon: until when at most; unknown if it is 0 [s].

    Attributes:
        box: likewise.
        spans: states of the first two thirds of the time, and those of all of it; the latter alone
            if the horizon was reached, and none if a state became very large.
    """

    def __init__(
        self,
        rates: SampledRates,
        state: Array,
        box: Ranges,
        dt: float,
        scheme: Scheme,
        horizon: float,
    ) -> None:
        self._scheme, self._start, self.box = scheme, state, box
        self._step = rates.stepping(box)
        self._until, self.spans = 0.0, list[list[Array]]()
        for finer in (1, 4, 16):
            if self._advance(dt / finer, horizon):
                break

    def _advance(self, dt: float, horizon: float) -> bool:
        """Advance in steps of one length; returns whether the state did not become very large."""
        state, until = self._start, horizon if horizon > 0 else math.inf
        steps = min(_MOST_FOLLOWED, math.ceil(min(until / dt, _MOST_FOLLOWED)))
        looks, kept = {round(steps * k / _LOOKS) for k in range(1, _LOOKS + 1)}, [state]
        bound = 1e6 * max(float(np.abs(state).max()), 1.0)
        axes = tuple(range(1, state.ndim))
        sizes = np.abs(state).max(axis=axes)

        for number in range(1, steps + 1):
            state = self._step(state, (number - 1) * dt, dt, self._scheme == "euler")
            size = np.abs(state).max(axis=axes)
            # NaN is not less than anything.
            if not (size < bound).all():
                return False
            sizes = np.maximum(sizes, size)
            if number in looks:
                kept.append(state)

        # Sizes of fields by which steps are judged; one that is nearly 0 may become less so.
        self._seen = np.maximum(sizes, 1e-3 * sizes.max())
        self._zigzag = np.max([_zigzag(it) for it in kept], axis=0)
        self._until = steps * dt
        early = [] if self._until >= until else [kept[: 1 + 2 * len(kept) // 3]]
        self.spans = [*early, kept]
        return True

    def tried(self, dt: float) -> float:
        """A step with which the state stays about where it was, this one or a shorter one; of
        schemes that are not followed by themselves the step as it is [s].
        """
        if self._scheme not in ("euler", "rk4") or not self.spans:
            return dt
        # A state is no larger than what was seen, but for what a step overshoots, and no zigzag.
        bound, rough = _OVERSHOT * self._seen, 1.5 * self._zigzag + _ROUGH * self._seen
        axes = tuple(range(1, self._start.ndim))

        for _ in range(_TRIES):
            now, good = self._start, True
            for number in range(math.ceil(self._until / dt)):
                now = self._step(now, number * dt, dt, self._scheme == "euler")
                good = bool((np.abs(now).max(axis=axes) <= bound).all())
                if not good:
                    break
            if good and (_zigzag(now) <= rough).all():
                return dt
            dt *= _SHORTER
        return dt


def middle(grid: Grid, states: Sequence[Array], boxes: Sequence[Ranges]) -> tuple[Array, Ranges]:
    """A part of some states, all of one that is small, with a little noise, and where it lies.

    Args:
        grid: of the whole domain.
        states: (n_fields, n0, ...).
        boxes: where each of them lies.
    """
    state, box = states[len(states) // 2], boxes[len(boxes) // 2]
    width = max(4, int(_FOLLOWED_POINTS ** (1 / grid.ndim)))
    # All waves take part, and those of two points are in no smooth state.
    noise = np.random.default_rng(2).uniform(-1, 1, state.shape)
    state = state + _NOISE * noise * np.ptp(state.reshape(len(state), -1), axis=1).max()
    if np.prod(state.shape[1:]) <= _FOLLOWED_POINTS:
        return state, box
    cuts = [max(0, (high - low - width) // 2) for low, high in box]
    inside = tuple(slice(cut, cut + width) for cut in cuts)
    ends = zip(cuts, box, strict=True)
    found = tuple((low + cut, min(low + cut + width, high)) for cut, (low, high) in ends)
    return state[(slice(None), *inside)], found


def _zigzag(state: Array) -> Array:
    """How much of each field alternates from point to point, (n_fields,)."""
    found = np.zeros(len(state))
    for axis in range(1, state.ndim):
        along = np.moveaxis(state, axis, 1)
        second = np.abs(along[:, :-2] - 2 * along[:, 1:-1] + along[:, 2:]) / 4
        found = np.maximum(found, second.reshape(len(state), -1).max(axis=1, initial=0.0))
    return found
