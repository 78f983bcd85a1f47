"""Windows: the bands of TCStencil along x, with which one product makes 128 adjacent results.

The paper's tiles have a band along y for each column of weights, and their products are added with
a shift along x (tests/papers/tcstencil/tiles.py). Here the axes are exchanged: a band along x for
each row of weights, added with a shift along y. A kernel that streams along y makes that shift by
keeping 2 ry + 1 rows of results in flight: an arriving row is multiplied for all of them.

    window   8 results along x and the points around them that they depend on, in chunks of 16; the
             last one may be half
    tile     16 windows side by side: 16 x 16 numbers for each chunk, of 128 results and what is
             beside them
    band     16 x 8 of a chunk: column n holds a row of weights, shifted down by n

In 3D the rows of the planes above and below have bands, too: results are in flight along z and
depend on 2 ry + 1 rows of a plane. In 1D there is one row, and windows are as long as needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.kernel import FLOAT16, TFLOAT32, Format, rounded
from tetris_sim.model.stencil import Stencil

# Weights that remain after rounding, and their matrices in the registers of `mma`.

Array = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]


def without_zeros(stencil: Stencil) -> Stencil:
    """The stencil without points of zero weight: far from the centre, weights of many fused steps
    fall below the smallest FP16 number.

    >>> without_zeros(Stencil(((-1,), (0,), (1,)), (0.0, 1.0, 0.0))).offsets
    ((0,),)
    """
    terms = {offset: weight for offset, weight in stencil.terms.items() if weight != 0.0}
    return Stencil.from_terms(terms or {(0,) * stencil.ndim: 0.0})


def mirror_rows(stencil: Stencil) -> Stencil:
    """The stencil with the weights of its lower half along the first axis copied to its upper half.

    `round_weights` may round two weights differently that are equal but not opposite. This undoes
    it where a kernel needs them equal, at the cost of an equally less exact sum.

    Raises:
        ValueError: the weights differ by more than rounding errors.
    """
    terms = stencil.terms
    if any((-dy, *rest) not in terms for dy, *rest in terms):
        msg = "a row has points that the one at the same distance does not have"
        raise ValueError(msg)
    # Row -|dy| stands for both rows at that distance.
    made = {(dy, *rest): terms[-abs(dy), *rest] for dy, *rest in terms}
    if any(
        abs(made[offset] - terms[offset]) > 4 * FLOAT16.eps * max(map(abs, terms.values()))
        for offset in terms
    ):
        msg = "rows at the same distance have different weights"
        raise ValueError(msg)
    return Stencil.from_terms(made)


def matrix_registers(matrices: Array, format_: Format, run: int) -> Words:
    """The registers of operand B, (n, 32 lanes, words), for matrices (n, 16, 8).

    The order of B's rows is free as long as A's columns have the same order: lane 4 g + t holds of
    column g rows 2 t, 2 t + 1 and those 8 further on, or 4 t to 4 t + 3.

    Args:
        matrices: numbers that the format represents.
        format_: format of the product.
        run: neighbouring rows that a lane holds: 2 or 4.

    Raises:
        ValueError: the format cannot represent one of the numbers.
    """
    if not np.array_equal(rounded(matrices, format_), matrices):
        msg = f"weights that are no numbers of {format_.name}"
        raise ValueError(msg)
    # Axes: matrix, part, t, row of the run, column g.
    lanes = matrices.reshape(-1, 4 // run, 4, run, 8).transpose(0, 4, 2, 1, 3).reshape(-1, 32, 4)
    if format_ is TFLOAT32:
        return np.ascontiguousarray(lanes, np.float32).view(np.uint32)
    if format_ is FLOAT16:
        bits = lanes.astype(np.float16).view(np.uint16).astype(np.uint32)
    else:
        bits = np.ascontiguousarray(lanes, np.float32).view(np.uint32) >> np.uint32(16)
    # Two 16-bit numbers per register, the first one in the lower half.
    return np.ascontiguousarray(bits[..., ::2] | bits[..., 1::2] << np.uint32(16))


RESULTS = 8  # results of a window: columns of B in mma.m16n8k16
CHUNK = 16  # points of a window that a product multiplies: rows of B
WINDOWS = 16  # windows of a tile: rows of A
UNUSED, FIRST, FURTHER = 0, 1, 2  # role of a band in the sum of a result

# NVIDIA H200 data sheet: FP16 operations without sparsity, and bytes of memory, per second.
# `mma.sync` is assumed to reach 60 % of these operations, since Hopper's peak needs `wgmma`; this
# is not measured and only affects the order in which numbers of steps are tried.
_OPERATIONS, _BANDWIDTH = 0.6 * 989.5e12, 4.8e12


@dataclass(frozen=True)
class Bands:
    """The banded matrices of a stencil.

    Attributes:
        ndim: axes of the stencil.
        lead: points of a window before its results, and as many behind them: a multiple of 4.
        matrices: (flight, across, chunks, 16, 8): by the row that a result depends on, along the
            streamed axis (y in 2D, z in 3D) and, in 3D, along y. If the last chunk is half, its
            last 8 rows are zeros.
    """

    ndim: int
    lead: int
    matrices: Array

    @property
    def flight(self) -> int:
        """Results along the streamed axis that depend on the same row."""
        return int(self.matrices.shape[0])

    @property
    def across(self) -> int:
        """Rows of a plane on which a result depends."""
        return int(self.matrices.shape[1])

    @property
    def chunks(self) -> int:
        """Chunks of 16 points of a window."""
        return int(self.matrices.shape[2])

    @property
    def has_half(self) -> bool:
        """Whether the window needs only half of the last chunk."""
        return CHUNK * self.chunks > RESULTS + 2 * self.lead

    @cached_property
    def kinds(self) -> npt.NDArray[np.int64]:
        """The role of each band, (flight, across, chunks): `UNUSED` if all weights are zero,
        `FIRST` if a sum begins with it, or `FURTHER`.
        """
        met = self.matrices.any(axis=(3, 4)).reshape(self.flight, -1)
        first = met & (met.cumsum(axis=1) == 1)
        kinds = np.where(first, FIRST, np.where(met, FURTHER, UNUSED))
        return kinds.reshape(self.matrices.shape[:3])

    def numbered(self, *, mirrored: bool = False) -> tuple[npt.NDArray[np.int64], Array]:
        """The matrix of each product, and the distinct non-zero matrices, (n, 16, 8).

        Rows at the same distance from the middle of a symmetric stencil have the same weights.

        Args:
            mirrored: whether rows at the same distance share their matrices.

        Returns:
            (table, matrices). The table, (flight, across, chunks), has 0 for no product, n + 1 for
            matrix n, and -(n + 1) if a sum begins with it.
        """
        half = slice(0, self.flight // 2 + 1 if mirrored else self.flight)
        kinds = self.kinds[half]
        used = kinds != UNUSED
        # Matrices stay in registers, so equal ones are stored once.
        matrices, number = np.unique(self.matrices[half][used], axis=0, return_inverse=True)
        table = np.zeros(kinds.shape, np.int64)
        table[used] = np.where(kinds[used] == FIRST, -1, 1) * (number.reshape(-1) + 1)
        if mirrored:
            table = np.concatenate([table, table[-2::-1]])
        return table, matrices

    @property
    def products(self) -> float:
        """Products of 16 x 16 x 8 for 128 results; half a chunk counts as half a product."""
        halves = np.count_nonzero(self.kinds[..., -1]) if self.has_half else 0
        return float(np.count_nonzero(self.kinds) - halves / 2)

    @property
    def mirrored(self) -> bool:
        """Whether rows at the same distance along the streamed axis have the same weights."""
        return bool(np.array_equal(self.matrices, self.matrices[::-1]))


def window_bands(stencil: Stencil) -> Bands:
    """The banded matrices of a stencil.

    >>> bands = window_bands(Stencil(((-1,), (0,), (1,)), (1.0, 2.0, 3.0)))
    >>> bands.matrices[0, 0, 0, 3:7, :3]
    array([[1., 0., 0.],
           [2., 1., 0.],
           [3., 2., 1.],
           [0., 3., 2.]])
    """
    box = stencil.dense()
    # Always (streamed axis, across, x).
    rows = box.reshape({1: (1, 1, -1), 2: (box.shape[0], 1, -1), 3: box.shape}[stencil.ndim])
    radius = box.shape[-1] // 2
    lead = window_lead(radius)
    chunks = math.ceil((RESULTS + 2 * lead) / CHUNK)
    windows = np.zeros((*rows.shape[:2], CHUNK * chunks, RESULTS))
    for n in range(RESULTS):
        # Column n is the row of weights shifted down by n.
        first = lead - radius + n
        windows[:, :, first : first + box.shape[-1], n] = rows
    return Bands(stencil.ndim, lead, windows.reshape(*rows.shape[:2], chunks, CHUNK, RESULTS))


def window_lead(radius: int) -> int:
    """Points of a window before its results for a radius along x, such that the window has a
    multiple of 8 points.

    >>> [window_lead(radius) for radius in (0, 1, 4, 5, 8, 9)]
    [4, 4, 4, 8, 8, 12]
    """
    return 4 * max(1, math.ceil(radius / 4))


def windows_rate(n_products: float) -> float:
    """An upper bound for the results per second of `tcstencil.cu` in FP16 on an H200: the slower of
    memory and products.

    >>> round(windows_rate(9) / 1e9)
    1200

    Args:
        n_products: products of 16 x 16 x 8 per 128 results.
    """
    # Seconds per result, as bytes and as operations.
    memory = 2 * 2 / _BANDWIDTH  # a number is read and written
    products = 2 * WINDOWS * CHUNK * RESULTS * n_products / (WINDOWS * RESULTS) / _OPERATIONS
    return 1 / max(memory, products)
