"""What of ConvStencil's equations no prediction needs: products and times of 2D kernels up to 7 points
wide, beside those of im2row, and what memory stencil2row saves.

The rest, with the words for it, is in gpu_kernels/tensor_cores/dual_tessellation.py.
"""

from __future__ import annotations

import math

from tetris_sim.gpu_kernels.tensor_cores.dual_tessellation import (
    GROUPS_PER_TILE,
    MMA_SHAPE,
    REAL_BYTES,
    TensorMachine,
    compute_time,
    memory_time,
    stencil2row_factor,
    total_time,
)


def products_per_tessellation(n: int) -> int:
    """Products of MMA_SHAPE that make one tile of 8 (n + 1) results: n^2 places of A, as many of B
    (section 3.3).

    >>> products_per_tessellation(7)
    26
    """
    return 2 * math.ceil(n**2 / MMA_SHAPE[2])


def convstencil_products(rows: int, columns: int, n: int) -> int:
    """Equation 13: products for a grid, with a whole number of tiles in a row.

    >>> convstencil_products(1, 64, 7)
    26
    """
    tiles = math.ceil(columns / (GROUPS_PER_TILE * (n + 1)))
    return rows * tiles * products_per_tessellation(n)


def gemm_products(rows: int, columns: int, n: int) -> int:
    """Products of convolution by im2row: the kernel is one column, seven of eight results are
    thrown away.
    """
    return math.ceil(rows * columns / GROUPS_PER_TILE) * math.ceil(n**2 / MMA_SHAPE[2])


def convstencil_compute_time(machine: TensorMachine, rows: int, columns: int, n: int) -> float:
    """Equation 14 [s]."""
    return compute_time(machine, convstencil_products(rows, columns, n))


def gemm_compute_time(machine: TensorMachine, rows: int, columns: int, n: int) -> float:
    """Equation 15 [s]."""
    return compute_time(machine, gemm_products(rows, columns, n))


def convstencil_memory_time(machine: TensorMachine, rows: int, columns: int, n: int) -> float:
    """Equation 4 for stencil2row in shared memory: the grid is read and written once, A and B
    written once [s].

    Every product reads a fragment of 8 x 4 points; weights stay in registers.
    """
    grid = rows * columns * REAL_BYTES
    fragment = MMA_SHAPE[0] * MMA_SHAPE[2] * REAL_BYTES
    return memory_time(
        machine,
        read=grid,
        written=grid,
        shared_written=stencil2row_factor(n) * grid,
        shared_read=convstencil_products(rows, columns, n) * fragment,
    )


def convstencil_time(machine: TensorMachine, rows: int, columns: int, n: int) -> float:
    """Equation 2 for a 2D stencil [s]."""
    return total_time(
        convstencil_compute_time(machine, rows, columns, n),
        convstencil_memory_time(machine, rows, columns, n),
    )


def im2row_factor(points: int) -> float:
    """Size of the im2row matrix over that of the grid, of a stencil of so many points (table 3;
    equations 9, 10).
    """
    return float(points)


def memory_saving(points: int, n: int) -> float:
    """Part of im2row's memory that stencil2row does not need (table 3; for a box it is 1 minus
    equation 11).
    """
    return 1 - stencil2row_factor(n) / im2row_factor(points)


def column_utilisation(n: int) -> float:
    """Part of the 8 columns of a weight matrix with weights (section 1): 1/8 for convolution (n =
    1), 7/8 for n = 7.

    >>> column_utilisation(7)
    0.875
    """
    return n / MMA_SHAPE[1]
