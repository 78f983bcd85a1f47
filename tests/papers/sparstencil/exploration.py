"""Layout exploration (SparStencil, section 3.3): the time of a layout, and the best one.

Equations 6 to 10 are the time, equation 11 the search. The model is ConvStencil's
(`gpu_kernels/tensor_cores/dual_tessellation.py`), with the sizes of the crushed matrices.
Equation 10 prints k' (m / 2 + n'), where m would be the rows of the grid: half of the elements of
A', which has m' rows, are stored. Its m' is meant here. Times are in seconds, for one application
of a k x k stencil to all points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.papers.sparstencil.crush import Layout
from tetris_sim.gpu_kernels.tensor_cores.dual_tessellation import (
    TensorMachine,
    compute_time,
    memory_time,
    total_time,
)


@dataclass(frozen=True)
class Fragment:
    """A matrix instruction as the model sees it: M x K times K x N.

    Attributes:
        rows: M.
        depth: K, zeros that are left out included.
        columns: N.
        real_bytes: of an element.
    """

    rows: int
    depth: int
    columns: int
    real_bytes: int


SPARSE_F16 = Fragment(16, 32, 8, 2)
DENSE_F16 = Fragment(16, 16, 8, 2)
DENSE_F64 = Fragment(8, 4, 8, 8)

# SparStencil, section 4.1. A100 datasheet: 312 TFLOP/s dense and 624 sparse on 432 tensor cores at
# 1.41 GHz, so either product of FP16 takes 8 cycles. Bandwidths as for ConvStencil.
A100_F16 = TensorMachine(1.41e9, 432, 8.0, 1935e9, 108 * 128 * 1.41e9)


def n_products(layout: Layout, n_patches: float, fragment: Fragment) -> int:
    """Equation 9: how many matrix instructions.

    >>> n_products(Layout((7, 7), (4, 4)), 8 * 10, SPARSE_F16)
    40
    """
    return (
        math.ceil(layout.rows / fragment.rows)
        * math.ceil(layout.columns / fragment.depth)
        * math.ceil(n_patches / fragment.columns)
    )


def transformed_elements(layout: Layout, n_patches: float) -> float:
    """Equation 10, with m': elements of A', half of them stored, and of B' that go into shared
    memory, and out.
    """
    return layout.columns * (layout.rows / 2 + n_patches)


def layout_time(
    machine: TensorMachine, layout: Layout, shape: tuple[int, int], fragment: Fragment
) -> float:
    """Equations 6 to 8 [s].

    Args:
        machine: whose `cycles_per_product` are those of the fragment.
        layout: of a 2D stencil.
        shape: m and n, points of the grid that the stencil reads.
        fragment: the matrix instruction.
    """
    results = math.prod(n - width + 1 for n, width in zip(shape, layout.widths, strict=True))
    n_patches = results / layout.rows
    moved = transformed_elements(layout, n_patches) * fragment.real_bytes
    memory = memory_time(
        machine,
        read=math.prod(shape) * fragment.real_bytes,
        written=results * fragment.real_bytes,
        shared_written=moved,
        shared_read=moved,
    )
    return total_time(compute_time(machine, n_products(layout, n_patches, fragment)), memory)


def explore(
    machine: TensorMachine,
    widths: tuple[int, int],
    shape: tuple[int, int],
    fragment: Fragment,
    candidates: Iterable[tuple[int, int]],
) -> Mapping[tuple[int, int], float]:
    """The time of each layout by (r2, r1), best first: equation 11 is the first of them [s].

    Many layouts of a grid that is read from global memory take the same time, that of the memory.
    """
    times = {
        merged: layout_time(machine, Layout(widths, merged), shape, fragment)
        for merged in candidates
    }
    return dict(sorted(times.items(), key=lambda item: item[1]))
