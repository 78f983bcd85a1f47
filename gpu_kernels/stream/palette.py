"""What kernels of `gpu.stream` are told of a body of a few materials (`palette.cuh`).

Numbers of materials are arguments: a new dt, or other numbers, compile nothing anew. What is
compiled is how many ids there are at most, whether each material conducts the same along all axes,
whether there are sources, and where states are heat contents how many pieces curves have at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.stream.curves import (
    FEW,
    constant_conductivity,
    curve_numbers,
    flowing_conductance,
    table_pieces,
)
from tetris_sim.model.conduction import Enthalpy

Array = npt.NDArray[Any]

MOST_IDS = 16  # nibbles
_SIZES = (2, 4, 8, 16)  # of tables


@dataclass(frozen=True)
class PaletteKind:
    """What of a palette is compiled.

    Attributes:
        n_ids: that tables hold, one of a few numbers.
        isotropic: whether faces between points of one id conduct the same along all axes.
        sources: whether ids have sources.
        pieces: of curves of heat content that tables hold; 0 where states are temperatures.
        varies: whether any conductivity depends on temperature, where states are heat contents.
    """

    n_ids: int
    isotropic: bool
    sources: bool
    pieces: int = 0
    varies: bool = False

    def defines(self) -> dict[str, str | int]:
        """The macros that palette.cuh wants."""
        return {
            "TS_IDS": self.n_ids,
            "TS_ISOTROPIC": int(self.isotropic),
            "TS_SOURCES": int(self.sources),
            "TS_PIECES": self.pieces,
            "TS_VARIES": int(self.varies),
        }

    @property
    def pairs(self) -> int:
        """Entries of a table of pairs, as two nibbles index it."""
        return 17 * (self.n_ids - 1) + 1

    @property
    def potentials(self) -> int:
        """Numbers of `Flowing` in shared memory."""
        return self.n_ids * (16 if self.pieces == FEW else 3 * self.pieces)


def palette_kind(
    conductance: Array, *, sources: bool, enthalpy: Enthalpy | None = None
) -> PaletteKind:
    """What kernels are compiled for.

    >>> palette_kind(np.ones((2, 3, 3)), sources=False)
    PaletteKind(n_ids=4, isotropic=True, sources=False, pieces=0, varies=False)

    Args:
        conductance: K of the faces between points of two ids, (ndim, ids, ids).
        sources: whether ids have any.
        enthalpy: what heat contents mean, if these are states.
    """
    own = np.diagonal(conductance, axis1=1, axis2=2)
    n_ids = next(size for size in _SIZES if size >= conductance.shape[1])
    isotropic = bool(np.all(own == own[0]))
    varies = enthalpy is not None and constant_conductivity(enthalpy) is None
    return PaletteKind(n_ids, isotropic, sources, table_pieces(enthalpy), varies)


def palette_numbers(
    conductance: Array,
    rate: Array,
    kind: PaletteKind,
    dtype: npt.DTypeLike,
    enthalpy: Enthalpy | None = None,
) -> Array:
    """`struct Palette`, flat: conductances, rates, and the weights of points among their like; of
    heat contents then `struct Curves`.

    Weights are rounded so far that the neighbours' and the centre's add up to 1 exactly: what is
    even stays even, for any number of steps.

    Args:
        conductance: (ndim, ids, ids) [W/(m^3 K)]; where states are heat contents [1/m^2].
        rate: dt / (rho c) of each id, 0 where points are held [m^3 K/W]; of heat contents dt [s].
        kind: `palette_kind` of them.
        dtype: of the arithmetic.
        enthalpy: what heat contents mean, if these are states.
    """
    real = np.dtype(dtype)
    ndim, n = conductance.shape[:2]
    k, r = np.zeros((ndim, kind.n_ids, kind.n_ids)), np.zeros(kind.n_ids)
    k[:, :n, :n], r[:n] = conductance, rate
    own = r * np.diagonal(k, axis1=1, axis2=2)
    if enthalpy is not None:
        k[:, :n, :n] = flowing_conductance(enthalpy, conductance)
        own = r * np.diagonal(k, axis1=1, axis2=2)
        parts = [k, r, own, 0 * r, curve_numbers(enthalpy, kind.n_ids)]
        return np.concatenate([part.ravel() for part in parts]).astype(real)

    quantum = float(np.finfo(real).eps) / 4
    weight = np.round(own / quantum) * quantum
    centre = 1 - 2 * weight.sum(axis=0)
    return np.concatenate([part.ravel() for part in (k, r, weight, centre)]).astype(real)
