"""Followed: what an unstable state of equations grows to, on a part of the grid, in NumPy.

How long a step may be depends on the values of the fields. Where waves grow, these leave what they
are at the beginning, so some points are advanced in short steps; the states on the way then say
how long steps may be, and a step can be tried on the same points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.pde.fluxes import HELD
from tetris_sim.apps.pde.schemes import Scheme
from tetris_sim.model.conduction import Parameter
from tetris_sim.model.equations import as_tap
from tetris_sim.model.formula import Node, evaluate
from tetris_sim.model.grid import Grid
from tetris_sim.model.slab import Ranges

Array = npt.NDArray[Any]
_FOLLOWED_POINTS = 1 << 11  # of the initial state, where waves grow
_MOST_FOLLOWED = 1500  # steps
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

    def stepping(self, box: Ranges) -> Callable[[Array, float, float, bool], Array]:
        """A function that makes one step in a box, continued periodically: of a state, its time,
        the length of the step, and whether by euler.
        """
        arrays = {name: np.asarray(array(box)) for name, array in self.arrays.items()}
        places = {}
        for axis, name in enumerate(self.grid.axis_names):
            along = self.grid.coordinates(axis, *box[axis])
            places[name] = along.reshape([-1 if k == axis else 1 for k in range(len(box))])
        taps = [(text, *as_tap(text)) for text in self.taps]  # type: ignore[misc]

        def seen(given: dict[str, Any], known: Mapping[str, Array]) -> None:
            for text, name, offset in taps:
                if text not in given and (values := known.get(name.removesuffix(HELD))) is not None:
                    given[text] = np.roll(values, [-k for k in offset], range(len(box)))

        def rate(state: Array, time: float) -> Array:
            given: dict[str, Any] = dict(places)
            for it in self.parameters:
                row = it.values(np.array([time])) if callable(it.values) else it.values
                given[it.name] = np.asarray(row).reshape(-1)[0]
            seen(given, {**arrays, **dict(zip(self.fields, state, strict=True))})
            with np.errstate(all="ignore"):
                for level in self.levels:
                    made = {name: evaluate(tree, given) for name, tree in level.items()}
                    seen(
                        given,
                        {name: np.broadcast_to(it, state[0].shape) for name, it in made.items()},
                    )
                rates = [evaluate(tree, given) for tree in self.formulas.values()]
            return np.stack([np.broadcast_to(it, state[0].shape) for it in rates])

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
