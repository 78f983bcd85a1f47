"""What kernels of `gpu.stream` are told of heat contents (`palette_curves.cuh`): curves with as few
pieces as they need.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.conduction import Curve, Enthalpy

Array = npt.NDArray[Any]

FEW, MOST_PIECES = 3, 256
_SIZES = (FEW, 16, 64, MOST_PIECES)  # of tables: two comparisons, or a search by halves
BETWEEN_MATERIALS = -1.0  # where what flows does not follow from a conductance
_STRAIGHT = 1e-11  # of the steepest: slopes that differ by less are those of one line


def table_pieces(enthalpy: Enthalpy | None) -> int:
    """Pieces of the tables that kernels are compiled for; 0 where states are temperatures."""
    if enthalpy is None:
        return 0
    return next(size for size in _SIZES if size >= merged(enthalpy).n_pieces)


@functools.lru_cache(maxsize=16)
def merged(enthalpy: Enthalpy) -> Enthalpy:
    """The same without knots at which nothing bends, such as where a table of properties ends.

    The difference is that of rounding: of each line the widest piece tells the slope.
    """
    curves = (enthalpy.temperature, enthalpy.potential, enthalpy.conductivity)
    pieces = [_merged_pieces(enthalpy.knots[own], [_of(curve, own) for curve in curves])
              for own in range(len(enthalpy.knots))]  # fmt: skip
    most = max(map(len, pieces))
    knots, *numbers = (
        np.array([[*(row[part] for row in its), *[fill] * (most - len(its))] for its in pieces])
        for part, fill in enumerate((np.inf, *[0.0] * 6))
    )
    temperature, potential, conductivity = (Curve(*numbers[k : k + 2]) for k in (0, 2, 4))
    return replace(
        enthalpy,
        knots=knots,
        temperature=temperature,
        potential=potential,
        conductivity=conductivity,
    )


def _of(curve: Curve, own: int) -> Array:
    return np.array([curve.begins[own], curve.slopes[own]])


def _merged_pieces(knots: Array, curves: list[Array]) -> list[list[float]]:
    """Rows of (knot, begin and slope of each curve) of one id."""
    n = int(np.isfinite(knots).sum())
    lines = np.concatenate(curves)[:, :n].T  # (piece, begin and slope of each curve)
    scale = np.maximum(np.abs(lines).max(axis=0), np.finfo(np.float64).tiny)
    widths = np.diff(knots[:n], append=knots[n - 1])
    found: list[list[float]] = []
    first = widest = 0
    for piece in range(1, n + 1):
        if piece < n:
            there = lines[widest].copy()
            there[::2] += there[1::2] * (knots[piece] - knots[widest])
            if bool(np.all(np.abs(there - lines[piece]) <= _STRAIGHT * scale)):
                widest = max(widest, piece, key=lambda k: widths[k])
                continue
        row = lines[widest].copy()
        row[::2] += row[1::2] * (knots[first] - knots[widest])
        found.append([knots[first], *row])
        first = widest = piece
    return found


def constant_conductivity(enthalpy: Enthalpy) -> Array | None:
    """The k of each id, (n_ids,) [W/(m K)]; None if that of any varies with temperature.

    Then the potential is k T and a constant, and heat flows by temperatures between all materials.
    """
    it = merged(enthalpy)
    k, pieces = it.conductivity, np.isfinite(it.knots)
    constant = np.all((k.slopes == 0) & (k.begins == k.begins[:, :1]) | ~pieces)
    follows = it.potential.slopes - k.begins[:, :1] * it.temperature.slopes
    steepest = np.abs(it.potential.slopes).max(axis=1, keepdims=True)
    if not constant or (np.abs(follows) > _STRAIGHT * steepest).any():
        return None
    return np.asarray(k.begins[:, 0])


def flowing_conductance(enthalpy: Enthalpy, conductance: Array) -> Array:
    """By what differs between two points times this, heat flows: (ndim, n_ids, n_ids); negative
    between materials where that is not so.

    Args:
        enthalpy: what heat contents mean.
        conductance: by potential, of ids of one material (ndim, n_ids, n_ids) [1/m^2].
    """
    alike = np.equal.outer(enthalpy.kinds, enthalpy.kinds)
    k = constant_conductivity(enthalpy)
    if k is None:
        return np.where(alike, conductance, BETWEEN_MATERIALS)
    half = enthalpy.half / k
    resistance = half[:, :, np.newaxis] + half[:, np.newaxis] + enthalpy.contact
    return np.where(alike, conductance * k, 1 / resistance)


def curve_numbers(enthalpy: Enthalpy, n_ids: int) -> Array:
    """`struct Curves`, flat, for tables of so many ids."""
    it, pieces = merged(enthalpy), table_pieces(enthalpy)
    n, given = it.knots.shape
    knots = np.full((n_ids, pieces), np.inf)
    knots[:, 0] = 0.0
    knots[:n, :given] = it.knots
    last = np.isfinite(knots[:n]).sum(axis=1) - 1

    def lines(slopes: Array, values: Array) -> Array:
        whole = np.zeros((n_ids, pieces, 2))
        for own in range(n):
            whole[own, :given] = np.stack([slopes[own], values[own]], axis=-1)
            whole[own, last[own] + 1 :] = whole[own, last[own]]
        return whole

    varies = constant_conductivity(enthalpy) is None
    flowing = it.potential if varies else it.temperature
    finite = np.where(np.isfinite(it.knots), it.knots, 0.0)
    parts = (
        knots,
        lines(flowing.slopes, flowing.begins - flowing.slopes * finite),
        lines(it.temperature.slopes, it.temperature.begins),
        lines(it.conductivity.slopes, it.conductivity.begins),
        np.pad(it.half, ((0, 0), (0, n_ids - n))),
        np.pad(it.contact, ((0, 0), *[(0, n_ids - n)] * 2)),
    )
    return np.concatenate([part.ravel() for part in parts])
