"""Spectral propagation: n steps at once, of constant coefficients or of layers.

In the eigenvectors of all axes every coefficient c evolves by itself, c' = g c + f, so after n
steps it is g^n c + (1 - g^n) / (1 - g) f. The known quantity is g - 1, a sum of terms of one sign,
and g^n is computed from it by log1p: a wave that hardly decays in a step is right after millions of
them. Coefficients of which nothing is left after n steps are not computed.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator as operators
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.solvers.spectral.axis import (
    Arrays,
    Forcing,
    Layered,
    ModalExpansion,
    Operator,
    Separable,
    SpectralAxis,
    chunks,
)

Modes = npt.NDArray[np.int64]
_PART_POINTS = 1 << 19  # whose growth is computed together
_DECOMPOSED = 25  # operations of all eigenvectors of a symmetric matrix, by its size cubed
_NOTHING = -60.0  # log of what is nothing beside roundings, whatever the grid


def lasting_modes(operator: Separable, place: int, steps: int) -> Modes:
    """Return the eigenvectors along an axis of which something is left after some steps."""
    # Bounds of g - 1 over all modes of the other axes.
    others = [it for axis, it in enumerate(operator.sums) if axis != place]
    low, high = (
        operator.excess + operator.sums[place] + math.fsum(float(end(it)) for it in others)
        for end in (np.min, np.max)
    )
    # cos - 1 + 1 loses digits, which does not matter for a bound. A product is extremal at corners.
    for weight, orders in operator.products:
        cosines = [1 + axis.less_one(k) for axis, k in zip(operator.axes, orders, strict=True)]
        own = cosines.pop(place)
        corners = itertools.product(*((it.min(), it.max()) for it in cosines))
        ends = np.stack([weight * (own * math.prod(corner) - 1) for corner in corners])
        low, high = low + ends.min(axis=0), high + ends.max(axis=0)

    with np.errstate(divide="ignore"):
        steps_of = np.log(np.maximum(np.abs(1 + low), np.abs(1 + high)))
    largest = high if operator.continuous else steps_of
    modes = np.flatnonzero(steps * largest > _NOTHING)
    return modes if modes.size else np.array([0])


def after(
    xp: Any, rate: Any, steps: int, *, sums: bool, continuous: bool = False
) -> tuple[Any, Any]:
    """Return (g^n, 1 + g + ... + g^(n - 1)) of arrays of g - 1; of a continuous operator z = g - 1
    exp(n z) and (exp(n z) - 1)/z instead, the solution of u' = z u + f after a time n.

    Args:
        xp: their library.
        rate: g - 1.
        steps: n, at least 1.
        sums: whether the second is needed.
        continuous: whether the operator is that of an equation, not of a step.
    """
    with np.errstate(divide="ignore"):  # of g = 0
        # |g| = -g = 1 + (-2 - rate) where g is negative.
        positive = rate > -1
        growth = steps * xp.log1p(xp.where(positive, rate, -2 - rate))
    # Nothing of an exponential is negative, however fast a wave decays.
    if continuous:
        positive, growth = rate <= xp.inf, steps * rate
    power = xp.exp(growth)
    if steps % 2:
        power = xp.where(positive, power, -power)
    if not sums:
        return power, None
    # The geometric sum (g^n - 1) / (g - 1), with expm1 against cancellation; n where g is 1.
    with np.errstate(divide="ignore", invalid="ignore"):
        total = xp.where(positive, xp.expm1(growth), power - 1) / rate
    return power, xp.where(rate == 0, float(steps), total)


@dataclass(frozen=True, eq=False)
class ExpandedForcing:
    """Coefficients of the forcing f.

    Attributes:
        values: as in `Forcing`, coefficients along the axes on which every point counts.
        factors: per axis the coefficients of the patterns of the other values, (n, few); None where
            none are needed.
    """

    values: Any
    factors: tuple[Any, ...]

    def part(self, planes: slice) -> Any:
        """Return the coefficients of some planes."""
        first, *others = self.factors
        found = self.values[planes] if first is None else _along(first[planes], self.values, 0)
        for place, factor in enumerate(others, 1):
            if factor is not None:
                found = _along(factor, found, place)
        return found


def expand_forcing(
    forcing: Forcing | None,
    whole: Sequence[ModalExpansion],
    arrays: Arrays,
    skip: int | None = None,
) -> ExpandedForcing | None:
    """Expand f along all axes except `skip`; None if there is no f."""
    if forcing is None:
        return None
    xp = arrays.xp
    values, factors = xp.array(forcing.values), []
    for place, (expansion, places) in enumerate(zip(whole, forcing.places, strict=True)):
        # A thin axis stays thin: only the indicator patterns of its few values are expanded.
        if places is not None:
            patterns = places[:, None] == np.arange(forcing.values.shape[place])
            factors.append(expansion.columns(xp.asarray(patterns, np.float64)))
            continue
        factors.append(None)
        if place != skip:
            values = expansion.expand(values)
    return ExpandedForcing(values, tuple(factors))


def _along(matrix: Any, u: Any, place: int) -> Any:
    """Multiply a matrix with the columns along an axis."""
    moved = u.swapaxes(place, -1) @ matrix.T
    return moved.swapaxes(place, -1)


class SeparablePropagation:
    """Propagation of a state of constant coefficients.

    Args:
        operator: a step.
        arrays: array library.
    """

    def __init__(self, operator: Separable, arrays: Arrays) -> None:
        self._operator, self._arrays = operator, arrays
        axes = operator.axes
        self._whole = [ModalExpansion(axis, place, arrays) for place, axis in enumerate(axes)]
        self._forcing = expand_forcing(operator.forcing, self._whole, arrays)

    def advance(self, u: Any, steps: int) -> Any:
        """Return the state (n0, ...) after some steps, at least one; `u` is overwritten."""
        some = self._picked(steps)
        chosen = [few or whole for few, whole in zip(some, self._whole, strict=True)]
        # Expansions that shrink the array come first; the sums run in reverse order.
        order = sorted(chosen, key=lambda it: it.modes is None)
        for expansion in order:
            u = expansion.expand(u)
        # With a forcing, decayed modes still receive f: it is propagated from 0 in all modes, and
        # the lasting modes of the state are added to it.
        if self._forcing is None or not any(some):
            self._grow(u, chosen, steps, self._forcing)
        else:
            self._grow(u, chosen, steps, None)
            few, u = u, self._arrays.xp.zeros([axis.n for axis in self._operator.axes])
            self._grow(u, self._whole, steps, self._forcing)
            kept = [np.arange(it.axis.n) if it.modes is None else it.modes for it in chosen]
            u[self._arrays.xp.ix_(*map(self._arrays.xp.asarray, kept))] += few
            order = list(self._whole)

        # Back to the grid.
        for expansion in reversed(order):
            u = expansion.sum(u)
        return u

    @functools.lru_cache(maxsize=2)  # noqa: B019  as long as the state lives, and few
    def _picked(self, steps: int) -> tuple[ModalExpansion | None, ...]:
        """Choose per axis the coefficients of which something is left after some steps; None for
        all.
        """
        found = []
        for place, axis in enumerate(self._operator.axes):
            modes = lasting_modes(self._operator, place, steps)
            pick = axis.worth_picking(self._arrays.types, len(modes))
            found.append(ModalExpansion(axis, place, self._arrays, modes) if pick else None)
        return tuple(found)

    def _grow(
        self, c: Any, chosen: Sequence[ModalExpansion], steps: int, forcing: ExpandedForcing | None
    ) -> None:
        """Replace c by g^n c + (1 - g^n) / (1 - g) f, in place."""
        xp = self._arrays.xp
        rate = self._rate(chosen)

        def work(part: slice) -> None:
            power, total = after(
                xp,
                rate(part),
                steps,
                sums=forcing is not None,
                continuous=self._operator.continuous,
            )
            c[part] *= power
            if forcing is not None:
                c[part] += total * forcing.part(part)

        self._arrays.each(list(chunks(c.shape[0], c.size // c.shape[0], _PART_POINTS)), work)

    def _rate(self, chosen: Sequence[ModalExpansion]) -> Callable[[slice], Any]:
        """Return a function that computes g - 1 of some planes of coefficients."""
        # Factors per axis, shaped for broadcasting; only those along axis 0 are cut to the planes.
        operator, xp, ndim = self._operator, self._arrays.xp, len(chosen)

        def along(place: int, values: Any) -> Any:
            modes = chosen[place].modes
            shape = [-1 if a == place else 1 for a in range(ndim)]
            return xp.asarray(values if modes is None else values[modes]).reshape(shape)

        sums = [along(place, values) for place, values in enumerate(operator.sums)]
        products = []
        for weight, orders in operator.products:
            cosines = [
                along(place, operator.axes[place].less_one(k))
                for place, k in enumerate(orders)
                if k
            ]
            products.append((weight, cosines))

        def rate(part: slice) -> Any:
            def here(values: Any) -> Any:
                return values[part] if values.shape[0] > 1 else values

            total = operator.excess + functools.reduce(operators.add, map(here, sums))
            for weight, less in products:
                # cos a cos b - 1 = (cos a - 1) cos b + (cos b - 1), and so on.
                product = functools.reduce(lambda a, b: a * (b + 1) + b, map(here, less))
                total = total + weight * product
            return total

        return rate


@dataclass(frozen=True)
class PropagationWork:
    """Operation counts of a propagation, for its cost model.

    Attributes:
        transformed: numbers that go through a transform, once per axis and direction.
        multiplied: operations of products of large matrices.
        grown: coefficients.
        decomposed: operations on many small matrices.
        once: operations before the first propagation, to find eigenvectors.
    """

    transformed: float = 0.0
    multiplied: float = 0.0
    grown: float = 0.0
    decomposed: float = 0.0
    once: float = 0.0


def jump_work(operator: Operator, steps: int, types: frozenset[int]) -> PropagationWork:
    """Count the operations of a propagation over some steps with transforms of some types."""
    axes = dict(enumerate(operator.axes))
    n_points = math.prod(axis.n for axis in operator.axes)
    once = float(sum(axis.n**2 for axis in operator.axes if axis.transform(types) is None))
    if not isinstance(operator, Separable):
        layers = axes.pop(operator.place).n
        transformed, multiplied, _ = _both_ways(axes, {}, n_points, types)
        decomposed = _DECOMPOSED * n_points * layers**2
        return PropagationWork(2 * transformed, 2 * multiplied, n_points, float(decomposed), once)

    # With few modes and a forcing, only the way there is cheap: see `SeparablePropagation.advance`.
    kept = {place: len(lasting_modes(operator, place, steps)) for place in axes}
    few = {place: m for place, m in kept.items() if axes[place].worth_picking(types, m)}
    transformed, multiplied, left = _both_ways(axes, few, n_points, types)
    if operator.forcing is None or not few:
        return PropagationWork(2 * transformed, 2 * multiplied, left, once=once)
    back, product, _ = _both_ways(axes, {}, n_points, types)
    return PropagationWork(transformed + back, multiplied + product, n_points, once=once)


def _both_ways(
    axes: dict[int, SpectralAxis], few: dict[int, int], n_points: int, types: frozenset[int]
) -> tuple[float, float, float]:
    """Count (numbers transformed, operations of products, coefficients that are left) of one
    direction.

    Args:
        axes: by place.
        few: how many coefficients are computed, where not all.
        n_points: of the grid.
        types: of transforms.
    """
    transformed, multiplied, points = 0.0, 0.0, float(n_points)
    for place, modes in few.items():
        multiplied += 2.0 * points * modes
        points *= modes / axes[place].n
    for place, axis in axes.items():
        if place in few:
            continue
        if axis.transform(types) is None:
            multiplied += 2.0 * points * axis.n
        else:
            transformed += points
    return transformed, multiplied, float(np.ceil(points))


# Layers: n steps at once of a body whose layers lie across one axis.
#
# Along the other axes the eigenvectors are those of constant coefficients. For each product of
# them, with eigenvalues l, the step across the layers is a symmetric problem of as many points:
# with v = sqrt(rho c) T,
#
#     v' = v + S^-1/2 (D + sum of dt K l) S^-1/2 v + S^1/2 f,        S = rho c,
#
# D being the differences across the layers. Its eigenvalues are computed from its eigenvectors as
# sums of squares of differences, so those near 0 keep their digits.

_BATCH_NUMBERS = 1 << 18  # of the matrices that are decomposed together


class LayeredPropagation:
    """Propagation of a state of layers.

    Args:
        operator: a step.
        arrays: array library.
    """

    def __init__(self, operator: Layered, arrays: Arrays) -> None:
        self._operator, self._arrays, self._place = operator, arrays, operator.place
        self._whole = [
            ModalExpansion(axis, place, arrays) for place, axis in enumerate(operator.axes)
        ]
        self._lateral = [it for it in self._whole if it.place != self._place]
        self._forcing = expand_forcing(operator.forcing, self._whole, arrays, skip=self._place)
        self._root = arrays.xp.asarray(np.sqrt(operator.capacity))

    def advance(self, u: Any, steps: int) -> Any:
        """Return the state (n0, ...) after some steps, at least one; `u` is overwritten."""
        xp, place, n = self._arrays.xp, self._place, self._operator.axes[self._place].n
        for expansion in self._lateral:
            u = expansion.expand(u)
        # Columns across the layers, one per product of lateral modes, contiguous for batched
        # products.
        columns = xp.ascontiguousarray(xp.moveaxis(u, place, -1)).reshape(-1, n)
        forcing = None
        if self._forcing is not None:
            forcing = xp.moveaxis(self._forcing.part(slice(None)), place, -1).reshape(-1, n)

        def work(part: slice) -> None:
            given = None if forcing is None else forcing[part]
            columns[part] = self._across(self._loads[part], columns[part], steps, given)

        # Each part decomposes its own matrices, n^2 numbers per column.
        self._arrays.each(list(chunks(len(columns), n * n, _BATCH_NUMBERS)), work)
        lateral = [it.axis.n for it in self._lateral]
        u = xp.ascontiguousarray(xp.moveaxis(columns.reshape(*lateral, n), -1, place))
        for expansion in self._lateral:
            u = expansion.sum(u)
        return u

    @functools.cached_property
    def _loads(self) -> Any:
        """Heat flow of every layer to its lateral neighbours, (lateral modes, n): -dt K l."""
        # In the order of the flattened lateral modes, as `advance` reshapes them.
        operator, loads = self._operator, np.zeros((1, len(self._operator.capacity)))
        for it in self._lateral:
            own = -2 * it.axis.less_one()[:, None] * operator.along[it.place]
            loads = (loads[:, None] + own).reshape(-1, loads.shape[1])
        return self._arrays.xp.asarray(loads)

    def _across(self, loads: Any, u: Any, steps: int, forcing: Any) -> Any:
        """Propagate columns across the layers over some steps, (batch, n)."""
        xp, root = self._arrays.xp, self._root
        rates, vectors = self._modes(loads)
        power, total = after(xp, rates, steps, sums=forcing is not None)
        grown = power * self._expand(vectors, u * root)
        if forcing is not None:
            grown = grown + total * self._expand(vectors, forcing * root)
        return (vectors @ grown[..., None])[..., 0] / root

    def _expand(self, vectors: Any, u: Any) -> Any:
        return (vectors.swapaxes(1, 2) @ u[..., None])[..., 0]

    def _modes(self, loads: Any) -> tuple[Any, Any]:
        """Return (g - 1, eigenvectors as columns) of a batch, (batch, n) and (batch, n, n)."""
        xp, operator, root = self._arrays.xp, self._operator, self._root

        # The differences D across the layers, common to all lateral modes.
        n, between = len(operator.capacity), operator.between
        lost = np.zeros(n)  # through both faces
        across = np.diag(between[1:-1], 1) + np.diag(between[1:-1], -1)
        if operator.ends is None:
            across[0, -1] += between[0]
            across[-1, 0] += between[0]
        # A ghost b u leaves the loss (1 - b) K u.
        else:
            lost[0] += between[0] * (1 - operator.ends[0])
            lost[-1] += between[-1] * (1 - operator.ends[1])
        out = xp.asarray(lost) + loads
        matrix = xp.asarray(across) - (xp.asarray(across.sum(axis=1)) + out)[:, :, None] * xp.eye(n)
        vectors = xp.linalg.eigh(matrix / (root[:, None] * root))[1]

        whole = vectors / root[:, None]
        rates = -(out[:, :, None] * whole**2).sum(axis=1)
        steps = xp.diff(whole, axis=1)
        rates -= (xp.asarray(between[1:-1])[:, None] * steps**2).sum(axis=1)
        if operator.ends is None:
            rates -= between[0] * (whole[:, 0] - whole[:, -1]) ** 2
        return rates, vectors
