"""Waves of a grid of several fields: transforms that make constant coefficients diagonal, and
functions of the small matrices by which waves of coupled fields are multiplied.

Axes are periodic, or mirrored at faces with a value or a flux; fields may differ in their faces.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tetris_sim.model.equations import Offset
from tetris_sim.model.linearisation import Ends, Splitting, Taps
from tetris_sim.solvers.spectral.axis import Arrays, ModalExpansion, SpectralAxis

# By (row, column) among fields: numbers per wave, the nonzero entries of a matrix per wave.
Matrix = dict[tuple[int, int], Any]
_NO_SUM = 4 * float(np.finfo(float).eps)  # of all weights: a sum that is 0 but for rounding

# Transforms: from values at points to coefficients of waves.


class Modes:
    """The waves of all fields: complex ones along periodic axes, cosines or sines along others.

    Args:
        shape: of the grid.
        ends: of each field, b of its faces per axis; None where the axis is periodic.
        arrays: array library.
    """

    def __init__(
        self, shape: Sequence[int], ends: Sequence[tuple[Ends | None, ...]], arrays: Arrays
    ) -> None:
        self._shape, self._arrays = tuple(shape), arrays
        self._periodic = tuple(axis for axis, it in enumerate(ends[0]) if it is None)
        axes: dict[tuple[int, Ends], SpectralAxis] = {}
        self._mirrored: list[list[ModalExpansion]] = []
        for own in ends:
            self._mirrored.append([])
            for place, pair in enumerate(own):
                if pair is not None:
                    # A field that is not read beside its points is expanded in any waves.
                    known: Ends = (1.0, 1.0) if math.isnan(pair[0]) else pair
                    key = self._shape[place], known
                    axis = axes.setdefault(key, SpectralAxis(*key))
                    self._mirrored[-1].append(ModalExpansion(axis, place, arrays))

    def forward(self, u: Any) -> Any:
        """Return the coefficients of all fields, (n_fields, ...); `u` is overwritten."""
        for values, expansions in zip(u, self._mirrored, strict=True):
            for expansion in expansions:
                expansion.expand(values)
        if not self._periodic:
            return u
        along = tuple(axis + 1 for axis in self._periodic)
        return self._arrays.fft.rfftn(u, axes=along, **self._arrays.options)

    def backward(self, v: Any) -> Any:
        """Return the values, (n_fields, n0, ...), a new array."""
        if not self._periodic:
            u = v.copy()
        else:
            along = tuple(axis + 1 for axis in self._periodic)
            shape = [self._shape[axis] for axis in self._periodic]
            u = self._arrays.fft.irfftn(v, s=shape, axes=along, **self._arrays.options)
        for values, expansions in zip(u, self._mirrored, strict=True):
            for expansion in expansions:
                expansion.sum(values)
        return u

    def symbol(self, number: int, weights: Mapping[Offset, float]) -> Any:
        """Return the factor by which taps of a field multiply each wave of it.

        Args:
            number: of the field.
            weights: by offset; even along axes that are not periodic.
        """
        # exp(i p) - 1 = -2 sin^2(p/2) + i sin(p): a sum of weights that is 0 stays 0 for the
        # longest waves, so what is conserved stays conserved.
        xp = self._arrays.xp
        even = all(weights.get(tuple(-k for k in it)) == w for it, w in weights.items())
        whole, size = math.fsum(weights.values()), math.fsum(map(abs, weights.values()))
        total = 0.0 if abs(whole) <= _NO_SUM * size else whole
        for offset, weight in weights.items():
            phase = sum(
                (shift * angle for shift, angle in zip(offset, self._angles(number), strict=True)),
                start=xp.zeros((1,) * len(self._shape)),
            )
            part = -2 * weight * xp.sin(phase / 2) ** 2
            total = total + (part if even else part + 1j * weight * xp.sin(phase))
        return total

    def _angles(self, number: int) -> list[Any]:
        """Phases between neighbours of each wave, per axis, shaped to broadcast."""
        mirrored: dict[int, Any] = {it.place: it.axis.theta for it in self._mirrored[number]}
        found = []
        for axis, n in enumerate(self._shape):
            # The last periodic axis is that of real transforms, which keep half of the waves.
            if axis not in mirrored:
                last = axis == self._periodic[-1]
                mirrored[axis] = 2 * math.pi / n * np.arange(n // 2 + 1 if last else n)
            shape = [-1 if k == axis else 1 for k in range(len(self._shape))]
            found.append(self._arrays.xp.asarray(mirrored[axis]).reshape(shape))
        return found


def linear_matrix(splitting: Splitting, modes: Modes) -> Matrix:
    """Return L as numbers per wave."""
    fields = [*splitting.results]
    rows: dict[str, dict[int, Any]] = {name: {k: 1.0} for k, name in enumerate(fields)}
    for name, taps in splitting.weights.items():
        rows[name] = {}
        for read in dict.fromkeys(key[0] for key in taps):
            for column, factor in rows[read].items():
                here = modes.symbol(column, _weights_of(taps, read)) * factor
                rows[name][column] = rows[name].get(column, 0.0) + here

    found: Matrix = {}
    for row, name in enumerate(fields):
        for column, values in rows[splitting.results[name]].items():
            found[row, column] = values
    return found


def _weights_of(taps: Taps, name: str) -> dict[Offset, float]:
    return {offset: weight for (read, offset), weight in taps.items() if read == name}


# Functions of matrices per wave.


def product(matrix: Matrix, v: Any) -> list[Any]:
    """Return a matrix times coefficients, by field."""
    found: list[Any] = [0.0] * len(v)
    for (row, column), values in matrix.items():
        found[row] = found[row] + values * v[column]
    return found


def groups(matrix: Matrix, n_fields: int) -> list[list[int]]:
    """Return the fields that a matrix couples with one another, group by group.

    >>> groups({(0, 2): 1.0, (1, 1): 2.0}, 3)
    [[0, 2], [1]]
    """
    group = [*range(n_fields)]
    for row, column in matrix:
        old, new = sorted((group[row], group[column]))[::-1]
        group = [new if it == old else it for it in group]
    return [[k for k in range(n_fields) if group[k] == it] for it in sorted({*group})]


def apply_each(matrix: Matrix, n_fields: int, xp: Any, functions: Any) -> list[Matrix]:
    """Return functions of a matrix per wave.

    Args:
        matrix: numbers per wave.
        n_fields: its size.
        xp: array library.
        functions: has `of_numbers`, from numbers to the functions of each, and `of_blocks`, the
            same for small matrices in the last two axes.
    """
    found: list[Matrix] = []
    for group in groups(matrix, n_fields):
        if len(group) == 1:
            key = group[0], group[0]
            values = functions.of_numbers(xp.asarray(matrix.get(key, 0.0)))
        else:
            size, given = (
                len(group),
                [xp.asarray(matrix.get((i, j), 0.0)) for i in group for j in group],
            )
            shape = np.broadcast_shapes(*(it.shape for it in given))
            whole = xp.stack([xp.broadcast_to(it, shape) for it in given], axis=-1)
            values = functions.of_blocks(whole.reshape(*shape, size, size))

        # Back to entries, each an array of its own.
        found = found or [{} for _ in values]
        for made, result in zip(found, values, strict=True):
            for i, row in enumerate(group):
                for j, column in enumerate(group):
                    single = len(group) == 1
                    made[row, column] = (
                        result if single else xp.ascontiguousarray(result[..., i, j])
                    )
    return found


_POINTS = 32  # of a contour
_RADIUS = 2.0
_TERMS = 18  # of a Taylor series for arguments up to 1/2


@dataclass(frozen=True)
class Exponentials:
    """The coefficients of etdrk4 of a step h: exp(h L), exp(h L / 2), the weight of N in stages,
    and f1, f2, f3 of Kassam and Trefethen.

    Attributes:
        step: h.
        xp: array library.
    """

    step: float
    xp: Any

    def of_numbers(self, values: Any) -> tuple[Any, ...]:
        """Return them by means over a circle around each number that is near 0, where the formulas
        themselves would cancel.
        """
        xp, z = self.xp, values * self.step
        small = xp.abs(z) < 1.0
        sums: list[Any] = [0.0] * 4
        for number in range(_POINTS):
            # Around numbers below 1, points of a circle of radius 2 stay away from 0.
            around = _RADIUS * np.exp(2j * np.pi * (number + 0.5) / _POINTS)
            if not np.iscomplexobj(z) and number >= _POINTS // 2:
                break  # those below the real axis are conjugate
            here = xp.where(small, z + around, z + 0j)
            for k, it in enumerate(_formulas(here, xp)):
                sums[k] = sums[k] + it

        count = _POINTS if np.iscomplexobj(z) else _POINTS // 2
        means = [it / count if np.iscomplexobj(z) else it.real / count for it in sums]
        stage, *weights = (self.step * it for it in means)
        return xp.exp(z), xp.exp(z / 2), stage, *weights

    def of_blocks(self, values: Any) -> tuple[Any, ...]:
        """Return them by Taylor series of a part of each matrix, doubled again and again."""
        half, whole = (_phis(values * h, self.xp) for h in (self.step / 2, self.step))
        one, two, three = whole[1:]
        weights = (one - 3 * two + 4 * three, two - 2 * three, 4 * three - two)
        return whole[0], half[0], self.step / 2 * half[1], *(self.step * it for it in weights)


def _formulas(z: Any, xp: Any) -> tuple[Any, Any, Any, Any]:
    """Those of Kassam and Trefethen, over h: Q, f1, f2 and f3."""
    e, cube = xp.exp(z), z * z * z
    return (
        (xp.exp(z / 2) - 1) / z,
        (-4 - z + e * (4 - 3 * z + z * z)) / cube,
        (2 + z + e * (z - 2)) / cube,
        (-4 - 3 * z - z * z + e * (4 - z)) / cube,
    )


def _phis(z: Any, xp: Any) -> list[Any]:
    """Return exp, phi_1, phi_2 and phi_3 of matrices in the last two axes.

    phi_k(2 z) = (phi_0(z) phi_k(z) + sum over j = 1..k of phi_j(z) / (k - j)!) / 2^k.
    """
    largest = float(xp.abs(z).sum(axis=-1).max())
    halvings = max(0, math.ceil(math.log2(largest)) + 1) if largest > 0 else 0
    small, unit = z / 2**halvings, xp.eye(z.shape[-1])
    found: list[Any] = []
    for k in range(4):
        total = unit / math.factorial(k + _TERMS)
        for n in reversed(range(_TERMS)):
            total = unit / math.factorial(k + n) + small @ total
        found.append(total)

    for _ in range(halvings):
        e, one, two, three = found
        found = [
            e @ e,
            (e @ one + one) / 2,
            (e @ two + one + two) / 4,
            (e @ three + one / 2 + two + three) / 8,
        ]
    return found


@dataclass(frozen=True)
class Inverses:
    """1 / (1 - h L): the solution of an implicit stage.

    Attributes:
        step: h.
        xp: array library.
    """

    step: float
    xp: Any

    def of_numbers(self, values: Any) -> tuple[Any]:
        """Return them."""
        return (1 / (1 - self.step * values),)

    def of_blocks(self, values: Any) -> tuple[Any]:
        """Return them."""
        return (self.xp.linalg.inv(self.xp.eye(values.shape[-1]) - self.step * values),)
