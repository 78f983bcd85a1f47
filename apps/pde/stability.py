"""How long may a step be? Waves of all lengths on the grid, at the states of the beginning.

Around a state the right-hand sides change linearly. A wave of given lengths along the axes is then
multiplied by a small matrix, the symbol, whose eigenvalues z say how fast it grows or shrinks; a
scheme multiplies it by R(z dt) in a step: 1 + z for euler, 1 + z + z^2/2 for rk2, the first five
terms of exp(z) for rk4. Where nothing grows in truth, the step must lie in the stability region:
|R| <= 1. Where the fastest wave grows at a rate g, the bound is relative stability: |R| <= exp(g
dt), and a quarter of g more than its own rate for a wave that itself grows nearly that fast, since
R differs from exp by the truncation error of the scheme (J. D. Lambert, Numerical Methods for
Ordinary Differential Systems, 1991, 3.8). Derivatives are differences of the formulas themselves;
the states are those of many points of the initial state, and for an automatic step also all
mixtures of the smallest, middle and largest value of every field.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.initial import read_boxes, sampled_boxes
from tetris_sim.apps.pde.discretise import stiffening
from tetris_sim.apps.pde.fluxes import HELD, limited_in
from tetris_sim.apps.pde.runge_kutta import (
    MOST_STAGES,
    SETTLED,
    Followed,
    Rate,
    SampledRates,
    factor,
    falls_to,
    loudness,
    middle,
)
from tetris_sim.apps.pde.schemes import Scheme, System, discretised, velocity_of
from tetris_sim.apps.pde.simplify import combine
from tetris_sim.model.equations import as_tap
from tetris_sim.model.formula import Node, Variable, evaluate, walk
from tetris_sim.model.grid import Grid
from tetris_sim.model.linearisation import bends
from tetris_sim.model.problem import InitialField
from tetris_sim.model.program import structure_of
from tetris_sim.model.slab import Ranges

Array = npt.NDArray[Any]
_POINTS = 96  # of the initial state that are looked at closely
_MIXTURES = 81
_BETWEEN_SHOCKS = 33  # values of a field that has fluxes
# Numbers in all symbols together: of many fields fewer samples are looked at, not for minutes.
_SYMBOLS = 1 << 21
_ALONG = {1: 65, 2: 17, 3: 9}  # waves along an axis, by the number of axes
_ALONG_LINES = 17  # along axes and diagonals, where sums over axes have their extremes
_OCTAVES = 8  # of longer waves along them: a band of them may be all that grows
_NUDGE = 2.0**-20  # relative change for a derivative
_SHORTEST = 1e-200  # step [s] with which a state is followed
_ROUNDING = 1e-7  # of the largest eigenvalue: what eigenvalues may be off
_CANCELLED = 1e-13  # of the largest of all: what sums over the taps of a wave may be off
_TRUNCATION = 0.25  # of the fastest growth: by so much more a scheme may let a wave grow
_SHORT = 1e-2  # of 1/|z|: a scheme for which such a step is too long lets waves grow at any step
_FOLLOWED = 1e-4  # of 1/|z|: in such steps a wave grows by less than 1e-3 in a period by any scheme
_DIFFERENCES = 1e-7  # what derivatives by differences may be off: a step at the limit is stable
_HALVINGS = 60
_RISE = {"rk4": 2.0, "ssprk3": 2.0}  # exponent of what may grow in a step; of others 1
_LARGEST = 1e150  # of a symbol whose eigenvalues can be computed
_LONGEST_GROWTH = 8.0  # a wave that grows by more in a step, e^8, is no part of any answer


@dataclass(frozen=True)
class StepLimits:
    """Largest stable time steps [s].

    Attributes:
        given: at the initial state; what is longer is refused.
        automatic: at all mixtures of its values too.
        grows: whether some wave grows, so that it was followed.
    """

    given: float
    automatic: float
    grows: bool = False


def find_limits(
    system: System,
    scheme: Scheme,
    grid: Grid,
    values: Mapping[str, float],
    initial: InitialField,
    horizon: float,
    stages: int = MOST_STAGES,
    *,
    follows: bool = False,
    whole: Callable[[], tuple[Rate, Array]] | None = None,
) -> StepLimits:
    """The largest stable time steps.

    Args:
        system: the right-hand sides.
        scheme: how a step is made.
        grid: the points.
        values: of the numbers that scalars are made of.
        initial: the state at time 0.
        horizon: until when numbers that change with time are looked at [s].
        stages: of rkl2.
        follows: whether to find out, for the automatic step, what grows to which size.
        whole: makes the right-hand sides of a small grid to which faces give values, and the state
            at time 0; None to follow a part of it.
    """
    samples = _Samples(system, grid, values, initial, horizon)
    # Faces make the fastest waves faster, and no wave grow.
    stiffer = stiffening(system.closures, system.space.accuracy)
    # A configuration that is checked is built, and built again when it runs.
    key = samples.digest(scheme, horizon, stages, stiffer, follows)
    if key not in _FOUND:
        if len(_FOUND) >= _MOST_FOUND:
            _FOUND.clear()
        _FOUND[key] = _find(samples, scheme, horizon, stages, stiffer, follows=follows)
    found = _FOUND[key]
    # What no wave makes grow, sources and faces may still carry to where steps are shorter.
    known = not samples.drifts or (found.grows and whole is None)
    if not follows or known or not 0 < found.automatic < math.inf:
        return found

    rate, state, box = samples.followable(whole)
    limited = any(map(limited_in, system.right_sides.values()))

    def limit_at(state: Array, time: float) -> float:
        here = samples.at(state, box)
        spectrum = stiffer * here.eigenvalues(scheme, mixed=samples.carries)
        own = longest_step(spectrum, scheme, stages, lasts=True)
        # A point beside a face may answer faster to its ghost than any wave does.
        waves = np.abs(spectrum).max(initial=0.0)
        fastest = 0.0 if limited else loudness(rate, state, time)
        # Symbols of leapfrog are of second order.
        share = (math.sqrt(waves) if scheme == "leapfrog" else waves) / max(fastest, 1e-300)
        return own * min(1.0, share)

    return replace(found, automatic=falls_to(rate, state, horizon, found.automatic, limit_at))


_FOUND: dict[str, StepLimits] = {}
_MOST_FOUND = 256


def _find(
    samples: _Samples,
    scheme: Scheme,
    horizon: float,
    stages: int,
    stiffer: float,
    *,
    follows: bool,
) -> StepLimits:
    spectrum = stiffer * samples.eigenvalues(scheme, mixed=False)
    mixed = np.concatenate([spectrum, stiffer * samples.eigenvalues(scheme, mixed=True)])
    # A shock between two values is as fast as some wave between them, from the first step on.
    if samples.carries:
        spectrum = mixed

    automatic = longest_step(mixed, scheme, stages)
    # If nothing is finite, the run will say so.
    if not mixed.size:
        return StepLimits(math.inf, math.inf)
    if scheme == "leapfrog":
        return StepLimits(longest_step(spectrum, scheme), automatic)
    given = longest_step(spectrum, scheme, stages)
    fastest = float(mixed.real.max(initial=0.0))
    if fastest <= _ROUNDING * np.abs(mixed).max():
        return StepLimits(given, automatic)

    # What grows leaves the values of the beginning. It is followed until it becomes no larger, or
    # else half of the step is set aside; a step lets it grow by e at most. Numbers of time are
    # looked at until the end, which is farther than anything can be followed.
    careful = min(longest_step(mixed, scheme, stages, lasts=True), 1 / fastest) / 2
    # What is shorter still is no step that could be divided.
    if not follows or samples.changes or careful < _SHORTEST:
        return StepLimits(given, min(automatic / 2, 1 / fastest), grows=True)
    rise = _RISE.get(scheme, 1.0)
    limits, followed = [], samples.follow(careful, scheme, horizon)
    for states in followed.spans:
        seen = stiffer * samples.with_states(states, followed.box).eigenvalues(scheme, mixed=False)
        limits.append(min(longest_step(seen, scheme, stages, lasts=True), rise / seen.real.max()))
    if limits and limits[-1] >= SETTLED * limits[0]:
        return StepLimits(given, followed.tried(limits[-1]), grows=True)
    return StepLimits(given, min([automatic / 2, 1 / fastest, *limits]), grows=True)


def grow_shortest(
    system: System, grid: Grid, values: Mapping[str, float], initial: InitialField
) -> tuple[str, ...]:
    """Fields of which waves as short as two points grow fastest, as they do with negative
    diffusion: the answer is then that of the grid, not of the equations.
    """
    samples = _Samples(system, grid, values, initial, 0.0)
    growth, phases = samples.growth(), np.abs(samples.waves)
    rise = (growth - growth[(phases == 0).all(axis=1)][:1]).max(axis=1)
    shortest = (phases > np.pi - 1e-6).any(axis=1)
    slack = _ROUNDING * np.abs(growth).max(axis=(0, 1))
    ends, middle = rise[shortest].max(axis=0), rise[~shortest].max(axis=0)
    worst = (ends > slack) & (ends > middle)
    return tuple(name for name, bad in zip(system.right_sides, worst, strict=True) if bad)


def longest_step(
    spectrum: Array, scheme: Scheme, stages: int = MOST_STAGES, *, lasts: bool = False
) -> float:
    """The largest time step with which no wave grows faster than it should; infinite if none is.

    >>> float(round(longest_step(np.array([-4.0 + 0j]), "euler"), 6))
    0.5

    Args:
        spectrum: eigenvalues of the symbols [1/s], or of those of second order [1/s^2], the last
            axis along those of one symbol.
        scheme: how a step is made.
        stages: of rkl2.
        lasts: whether waves are of states that last: one that is fast for a step and decays may
            then not grow, however fast another one grows elsewhere.
    """
    largest = float(np.abs(spectrum).max(initial=0.0))
    if largest == 0.0:
        return math.inf
    if not math.isfinite(largest):
        return 0.0
    if scheme == "leapfrog":
        swinging = np.abs(spectrum[spectrum.real < -_ROUNDING * largest])
        if not swinging.size:
            return 1 / math.sqrt(largest)
        return 2 / math.sqrt(float(swinging.max())) * (1 + _DIFFERENCES)

    # Rounding makes a pair of growth and decay of two equal eigenvalues, but no decay alone that is
    # more than this of the eigenvalues of the same symbol.
    slack = _ROUNDING * largest
    damping = np.maximum(_ROUNDING * np.abs(spectrum).max(-1, keepdims=True), _CANCELLED * largest)
    fastest = float(spectrum.real.max())
    growth = fastest if fastest > slack else 0.0
    swings = (np.abs(spectrum.real) < slack) & (spectrum.real > -damping)
    z = np.where(swings, 1j * spectrum.imag, spectrum)
    z = z[np.abs(z) > slack]
    if not z.size:
        return math.inf

    def stays(z: Array, dt: Array | float) -> Array:
        with np.errstate(over="ignore"):
            least = np.where(np.abs(z * dt) < 1, growth, 0.0) if lasts else growth
            allowed = np.exp(np.maximum(least, z.real + _TRUNCATION * growth) * dt)
        return np.asarray(np.abs(factor(z * dt, scheme, stages)) <= allowed * (1 + 1e-14))

    # What swings undamped and grows in however short a step counts where it grows visibly.
    growing = (z.real >= 0) & ~stays(z, _SHORT / np.abs(z))
    fastest_swing, z = float(np.abs(z[growing]).max(initial=0.0)), z[~growing]
    if not z.size:
        return 0.0

    # No farther than schemes reach: beyond, what may grow outgrows what is unstable.
    reach = max(20, stages * stages) if scheme == "rkl2" else 20
    shortest = bound = math.inf
    # The fastest waves first: what these leave no other wave needs many halvings to exceed.
    ordered = z[np.argsort(-np.abs(z))]
    for z in np.split(ordered, [1 + len(ordered) // 64]):
        low, high = np.zeros(z.shape), reach / np.abs(z)
        if growth > 0:
            high = np.minimum(high, _LONGEST_GROWTH / growth)
        for _ in range(_HALVINGS if z.size else 0):
            good = stays(z, middle := (low + high) / 2)
            low, high = np.where(good, middle, low), np.where(good, high, middle)
            bound = min(bound, float(high.min(initial=math.inf)))
            near = low <= bound  # what is longer already cannot become the shortest
            z, low, high = z[near], low[near], high[near]
        shortest = min(shortest, float(low.min(initial=math.inf)))
    shortest *= 1 + _DIFFERENCES
    return shortest if shortest * fastest_swing <= _FOLLOWED else 0.0


class _Samples:
    """States at which the right-hand sides are looked at.

    Args:
        system: the right-hand sides.
        grid: the points.
        values: of the numbers that scalars are made of.
        initial: the state at time 0.
        horizon: until when [s].
    """

    def __init__(
        self,
        system: System,
        grid: Grid,
        values: Mapping[str, float],
        initial: InitialField,
        horizon: float,
    ) -> None:
        self._grid = grid
        self._second = [*system.second]
        self._hoist = system.hoist()
        # What faces are given is no part of how a difference grows.
        space = replace(system.space, frozen=True)
        frozen = replace(system.quietened(), drives={}, closures={}, space=space)
        # Constraints have rows of the symbols, from which their fields are eliminated.
        first = {**frozen.first, **frozen.elliptic}
        frozen = replace(frozen, first=first, elliptic={}, order=(*system.right_sides,))
        self._given = [(*system.right_sides,).index(name) for name in system.elliptic]
        found = discretised(frozen, self._hoist)

        self._levels = found.levels
        self._formulas = {name: combine(it, self._hoist) for name, it in found.sums.items()}
        self._fields = (*system.right_sides,)
        self._boxes, self._looked_at = sampled_boxes(grid), _POINTS
        self._states = read_boxes(initial, self._boxes, grid)
        self._arrays = self._hoist.arrays(values, grid)
        self._parameters = self._hoist.parameters(values)
        self._moments = [horizon * k / 8 for k in range(9)] if horizon > 0 else [0.0]

    def digest(self, *more: object) -> str:
        """SHA-256 of all that is read here, and of more, in hexadecimal."""
        levels = [*self._levels, self._formulas]
        said: list[Any] = [[*it] for it in levels]
        said += [[*self._arrays], self._fields, self._second, self._given]
        trees = tuple(tree for level in levels for tree in level.values())
        said += [structure_of(trees), [self._taps, self._boxes, self._grid.shape, more]]

        # Trees by how they are built; numbers and states by their bits.
        found = hashlib.sha256(repr(said).encode())
        for it in self._parameters:
            rows = [it.values(np.array([t])) for t in self._moments] if callable(it.values) else []
            found.update(repr((it.name, it.changes)).encode())
            found.update(np.asarray(rows or it.values, np.float64).tobytes())
        for box, state in zip(self._boxes, self._states, strict=True):
            places = [self._grid.coordinates(axis, *ends) for axis, ends in enumerate(box)]
            for values in (state, *places, *(array(box) for array in self._arrays.values())):
                found.update(np.asarray(values, np.float64).tobytes())
        return found.hexdigest()

    def eigenvalues(self, scheme: Scheme, *, mixed: bool) -> Array:
        """Those of the symbols of all waves at all samples, (n, eigenvalues of one)."""
        moments = self._moments if self.changes else self._moments[:1]
        each = len(self.waves) * len(self._fields) ** 2 * len(moments)
        base = _thinned(self._mixtures() if mixed else self._points(), _SYMBOLS // each)
        found = []
        for moment in moments:
            given = dict(base)
            for it in self._parameters:
                row = it.values(np.array([moment])) if callable(it.values) else it.values
                given[it.name] = np.asarray(row).reshape(-1)[0]
            symbols = self._moving(self._symbols(given))
            if scheme == "leapfrog":
                rows = [self._fields.index(velocity_of(name)) for name in self._second]
                columns = [self._fields.index(name) for name in self._second]
                symbols = symbols[..., rows, :][..., columns]

            finite = (np.abs(symbols) < _LARGEST).all(axis=(-1, -2))
            found.append(np.linalg.eigvals(symbols[finite]))
        return np.concatenate(found)

    def _moving(self, symbols: Array) -> Array:
        """The symbols of what moves by itself, A - B D^-1 C, with zeros for what constraints C u +
        D p = 0 give.
        """
        if not self._given:
            return symbols
        moved = [k for k in range(len(self._fields)) if k not in self._given]
        of = symbols[..., self._given, :]
        with np.errstate(all="ignore"):
            # A wave that D lacks is given by nothing.
            one = of[..., self._given]
            # Nor is there one that is longer than the grid, to which D^-1 would answer most.
            halves = np.pi / np.array(self._grid.shape)
            fits = np.any(np.abs(self.waves) >= (1 - _ROUNDING) * halves, axis=1, keepdims=True)
            one = np.where(fits[:, :, None, None], one, 0)
            if one.shape[-1] == 1:
                inverse = np.where(np.abs(one) > 0, 1 / one, 0)
            else:
                inverse = np.linalg.pinv(np.nan_to_num(one), rcond=_ROUNDING)

        # Rows and columns of what is given stay 0: eigenvalues that say nothing.
        found, rows = np.zeros_like(symbols), symbols[..., moved, :]
        row, column = np.ix_(moved, moved)
        found[..., row, column] = (
            rows[..., moved] - rows[..., self._given] @ inverse @ of[..., moved]
        )
        return found

    def follow(self, dt: float, scheme: Scheme, horizon: float) -> Followed:
        """Follow a part of the initial state to what it becomes; see `Followed`."""
        state, box = middle(self._grid, self._states, self._boxes)
        return Followed(self._rates(), state, box, dt, scheme, horizon)

    def _rates(self) -> SampledRates:
        of_grid = self._grid, self._fields, self._levels, self._formulas, self._arrays
        return SampledRates(*of_grid, self._parameters, tuple(self._taps))

    def at(self, state: Array, box: Ranges) -> _Samples:
        """The same at one other state."""
        other = copy.copy(self)
        other._states, other._boxes, other._looked_at = [state], [box], _POINTS // 4
        return other

    @property
    def drifts(self) -> bool:
        """Whether how fast waves are depends on the state, which nothing else gives."""
        trees = [*self._formulas.values(), *(it for level in self._levels for it in level.values())]
        moving = {it for it in self._taps if as_tap(it)[0] not in self._arrays}  # type: ignore[index]
        return not self._given and any(bends(it, moving) for it in trees)

    def followable(
        self, whole: Callable[[], tuple[Rate, Array]] | None
    ) -> tuple[Rate, Array, Ranges]:
        """Right-hand sides and a state of the whole grid or of a part of it, and where that is."""
        if whole is not None:
            return *whole(), tuple((0, n) for n in self._grid.shape)
        state, box = middle(self._grid, self._states, self._boxes)
        return self._rates().within(box), state, box

    def with_states(self, states: Sequence[Array], box: Ranges) -> _Samples:
        """The same with some states in a box besides."""
        more = copy.copy(self)
        more._states, more._boxes = [*self._states, *states], [*self._boxes, *[box] * len(states)]
        return more

    def growth(self) -> Array:
        """How fast each wave of each field makes itself grow, (waves, samples, fields) [1/s]."""
        numbers = {
            it.name: (it.values(np.zeros(1)) if callable(it.values) else it.values).reshape(-1)[0]
            for it in self._parameters
        }
        points = _thinned(self._points(), _SYMBOLS // (len(self.waves) * len(self._fields) ** 2))
        symbols = np.nan_to_num(self._moving(self._symbols({**points, **numbers})))
        return np.asarray(np.diagonal(symbols, axis1=-2, axis2=-1).real)

    def _points(self) -> dict[str, Array]:
        """Return values around sampled points of the initial state, by tap, (samples,)."""
        rng = np.random.default_rng(0)
        given: dict[str, list[Array]] = {}

        # Extreme values, and random points besides.
        share = max(1, self._looked_at // len(self._boxes))
        for box, state in zip(self._boxes, self._states, strict=True):
            shape, flat = state.shape[1:], state.reshape(len(state), -1)
            ends = [*flat.argmin(axis=1), *flat.argmax(axis=1)]
            picked = [np.array(np.unravel_index(k, shape)) for k in ends]
            picked += [rng.integers(0, shape) for _ in range(share)]
            # Cells at an axis, or of a graded one some others, are the smallest.
            if not self._grid.is_even:
                narrow = [self._grid.widths(k, *it).argmin() for k, it in enumerate(box)]
                ways = [(0, n - 1, k) for n, k in zip(shape, narrow, strict=True)]
                picked += map(np.array, itertools.product(*map(dict.fromkeys, ways)))
            self._take(given, box, state, np.array(picked).T)
        return {name: np.concatenate(parts) for name, parts in given.items()}

    def _take(self, given: dict[str, list[Array]], box: Ranges, state: Array, where: Array) -> None:
        arrays = {name: array(box) for name, array in self._arrays.items()}
        for text in self._taps:
            name, offset = as_tap(text)  # type: ignore[misc]
            name = name.removesuffix(HELD)
            if name not in self._fields and name not in arrays:
                continue
            values = state[self._fields.index(name)] if name in self._fields else arrays[name]
            place = tuple(
                np.clip(index + shift, 0, n - 1)
                for index, shift, n in zip(where, offset, values.shape, strict=True)
            )
            given.setdefault(text, []).append(np.asarray(values[place], np.float64))

        # Coordinates are given where the states were taken.
        for axis, name in enumerate(self._grid.axis_names):
            along = self._grid.coordinates(axis, *box[axis])
            given.setdefault(name, []).append(along[where[axis]])

    def _mixtures(self) -> dict[str, Array]:
        """Uniform states of small, middle and large values, at coefficients of some points."""
        points = self._points()
        n = len(next(iter(points.values())))
        low = np.min([it.reshape(len(it), -1).min(axis=1) for it in self._states], axis=0)
        high = np.max([it.reshape(len(it), -1).max(axis=1) for it in self._states], axis=0)
        # Between the two sides of a shock waves may be faster than on both.
        count = _BETWEEN_SHOCKS if self.carries and len(low) == 1 else 3
        ends = np.stack([low + (high - low) * k / (count - 1) for k in range(count)])
        if count == 3:
            ends[1:] = (low + high) / 2, high
        every = list(itertools.islice(itertools.product(range(count), repeat=len(low)), _MIXTURES))
        states = np.array([[ends[k, i] for i, k in enumerate(it)] for it in every])

        rng = np.random.default_rng(1)
        rows = np.repeat(np.arange(len(states)), 2)
        places = rng.integers(0, n, rows.size)
        given = {}
        for text, values in points.items():
            found = as_tap(text)
            if found is not None and found[0].removesuffix(HELD) in self._fields:
                given[text] = states[rows, self._fields.index(found[0].removesuffix(HELD))]
            else:
                given[text] = values[places]
        return given

    @property
    def changes(self) -> bool:
        """Whether numbers change with time."""
        return any(parameter.changes for parameter in self._parameters)

    @property
    def carries(self) -> bool:
        """Whether there are fluxes, and shocks between any two states."""
        return any(f"{HELD}[" in text for text in self._taps)

    @functools.cached_property
    def _taps(self) -> list[str]:
        trees = [tree for level in self._levels for tree in level.values()]
        names = {
            node.name: None
            for tree in (*trees, *self._formulas.values())
            for node in walk(tree)
            if isinstance(node, Variable) and as_tap(node.name) is not None
        }
        return [*names]

    def _symbols(self, given: Mapping[str, Any]) -> Array:
        """(waves, samples, fields, fields)."""
        n = len(self._fields)
        seen = dict(given)
        unit = np.eye(n, dtype=np.complex128)
        symbols: dict[str, Array] = {name: unit[k] for k, name in enumerate(self._fields)}
        for level in self._levels:
            for name, tree in level.items():
                symbols[name] = self._row(tree, seen, symbols)
                with np.errstate(all="ignore"):
                    value = np.asarray(evaluate(tree, seen), np.float64)
                for text in self._taps:
                    found = as_tap(text)
                    if found is not None and found[0].removesuffix(HELD) == name:
                        seen[text] = value

        rows = [self._row(tree, seen, symbols) for tree in self._formulas.values()]
        # A source alone has a row without waves.
        shape = np.broadcast_shapes((len(self.waves), 1, 1), *(row.shape for row in rows))
        return np.stack([np.broadcast_to(row, shape) for row in rows], axis=-2)

    def _row(self, tree: Node, seen: Mapping[str, Any], symbols: Mapping[str, Array]) -> Array:
        """How a formula changes with a wave of each field, (waves, samples, fields)."""
        total: Array = np.zeros((1, 1, len(self._fields)), np.complex128)
        for text in {it.name: None for it in walk(tree) if isinstance(it, Variable)}:
            found = as_tap(text)
            if found is None or found[0] not in symbols:
                continue
            slope = _slope(tree, seen, text)
            wave = np.exp(1j * (self.waves @ np.array(found[1])))
            symbol = symbols[found[0]]
            total = total + wave[:, None, None] * slope[None, :, None] * symbol
        return total

    @functools.cached_property
    def waves(self) -> Array:
        """Phases between neighbours along each axis, (waves, ndim), array order."""
        ndim = self._grid.ndim
        half = np.linspace(0, np.pi, _ALONG[ndim] // 2 + 1)
        whole = np.linspace(-np.pi, np.pi, _ALONG[ndim])
        phases = np.meshgrid(half, *[whole] * (ndim - 1), indexing="ij")
        lines = np.array(
            [it for it in itertools.product((-1, 0, 1), repeat=ndim) if it > (0,) * ndim]
        )
        lengths = np.linspace(0, np.pi, _ALONG_LINES)[1:]
        lengths = np.append(lengths[0] * np.exp2(-np.arange(1.0, _OCTAVES)), lengths)
        along = lengths[:, None, None] * lines
        return np.concatenate([np.stack(phases, -1).reshape(-1, ndim), along.reshape(-1, ndim)])


def _slope(tree: Node, seen: Mapping[str, Any], name: str) -> Array:
    """The derivative of a formula by one of its inputs, (samples,)."""
    at = np.atleast_1d(np.asarray(seen[name], np.float64))
    scale = np.maximum(np.abs(at), np.abs(at).max(initial=0.0) * 1e-3)
    scale = np.exp2(np.round(np.log2(np.where(scale > 0, scale, 1.0))))

    def by(nudge: Array) -> Array:
        with np.errstate(all="ignore"):
            above = np.asarray(evaluate(tree, {**seen, name: at + nudge}), np.float64)
            below = np.asarray(evaluate(tree, {**seen, name: at - nudge}), np.float64)
            return np.atleast_1d((above - below) / (2 * nudge))

    # Of linear formulas large differences are the better ones.
    far, near = by(scale), by(_NUDGE * scale)
    return np.where(np.abs(far - near) <= 1e-7 * np.abs(near), far, near)


def _thinned(samples: dict[str, Array], most: int) -> dict[str, Array]:
    """At most so many of the samples, one at least, evenly."""
    n = len(next(iter(samples.values())))
    kept = np.linspace(0, n - 1, min(n, max(most, 1))).astype(int)
    return {name: values[kept] for name, values in samples.items()}
