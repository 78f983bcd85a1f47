"""The roofline of TCStencil's appendix: operations per byte of global memory, and what a GPU
reaches with them.

Sections and Table 1 are those of the appendix of X. Liu et al., ICS 2022. A multiply-add counts as
one operation in its intensities (16^3 for a product of 16 x 16 x 16), as two in the peak rates that
they are compared with, and the bytes are those read: the result that is written is left out. The
functions below count as the paper does; `windows_intensity` counts what `tcstencil.cu` reads and
writes.

Table 1 prints 128.8 FLOP/byte for V100's tensor cores; 125 TFLOPS over 900 GB/s are 138.9. The
rates that the paper gives for TCStencil on V100, 5.89 and 7.84 TFLOPS, are above its roof for these
intensities, 4.80 and 5.40: parameter matrices and what tiles share come from caches.
"""

from __future__ import annotations

from dataclasses import dataclass

HALF_BYTES = 2
TILE = 16
# points along each axis of a tile that are updated, for both the 9- and the 25-point stencil
# (radius 2)
INNER = 12
PRODUCT = TILE**3  # multiply-adds
WINDOWS_PRODUCT = TILE * TILE * 8  # of mma.m16n8k16
WINDOWS_RESULTS = TILE * 8


@dataclass(frozen=True)
class Peak:
    """What bounds a computation.

    Attributes:
        operations: per second, a multiply-add counted twice.
        bandwidth: of global memory [bytes/s].
    """

    operations: float
    bandwidth: float

    @property
    def intensity(self) -> float:
        """I_max, operations per byte from which on computing takes longer than memory."""
        return self.operations / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """Operations per second at an intensity: the roof.

        >>> A100_TENSOR.attainable(6.0) / 1e12
        9.33
        """
        return min(self.operations, intensity * self.bandwidth)


A100_FMA = Peak(78e12, 1555e9)
A100_TENSOR = Peak(312e12, 1555e9)
V100_FMA = Peak(31.4e12, 900e9)
V100_TENSOR = Peak(125e12, 900e9)
H200_TENSOR = Peak(989.5e12, 4.8e12)  # NVIDIA H200 data sheet, FP16 without sparsity


def pointwise_intensity(n_points: int) -> float:
    """Artemis: a point that is updated reads all points of the stencil, one operation each.

    >>> pointwise_intensity(9), pointwise_intensity(25)
    (0.5, 0.5)
    """
    return n_points / (n_points * HALF_BYTES)


def tile_intensity(n_points: int) -> float:
    """TC-w/o tc: a tile is read once, and updated without tensor cores.

    >>> round(tile_intensity(9), 2), round(tile_intensity(25), 2)
    (2.53, 7.03)
    """
    return INNER**2 * n_points / (TILE**2 * HALF_BYTES)


def tcstencil_intensity(n_products: int) -> float:
    """TCStencil: a tile and a parameter matrix for each product are read.

    >>> round(tcstencil_intensity(2), 2), tcstencil_intensity(3)
    (5.33, 6.0)
    """
    return n_products * PRODUCT / ((n_products + 1) * TILE**2 * HALF_BYTES)


def windows_intensity(n_products: float, point_bytes: int = HALF_BYTES) -> float:
    """`tcstencil.cu`: 128 results are read and written once; matrices stay in registers.
    Multiply-adds count once.

    >>> windows_intensity(3), windows_intensity(9)
    (12.0, 36.0)
    """
    return n_products * WINDOWS_PRODUCT / (2 * WINDOWS_RESULTS * point_bytes)


def stencil_rate(n: int, radius: int, n_points: int, seconds: float) -> float:
    """FLOPS of Artemis and TC-w/o tc on n x n points, as the appendix counts them: N - r points
    along an axis.
    """
    return (n - radius) ** 2 * n_points / seconds


def tcstencil_rate(n: int, radius: int, n_products: int, seconds: float) -> float:
    """FLOPS of TCStencil on n x n points: whole products for each 12 x 12 of them."""
    return (n - radius) ** 2 / INNER**2 * PRODUCT * n_products / seconds
