"""One launch of a fused kernel on the host, compared with plain NumPy.

Around what a kernel may depend on lie NaNs, beyond what is allocated lie gaps that no copy may
touch, and what it must not write holds a number that must stay. Boxes have several tiles along each
axis, or a few points.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.emulator.emulation import at, emulate
from tetris_sim.gpu_kernels.common.layout import LINE, Box3, box_argument, by_value, memory_argument
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.model.stencil import Stencil

UNTOUCHED = -7.25e33  # what no kernel computes
MANY = 1 << 20  # blocks that a GPU holds at a time
FIRST_ROW = 7  # number of row 0 in the whole grid
Array = npt.NDArray[Any]
Triple = tuple[int, int, int]


def three(numbers: tuple[int, ...], missing: int) -> Triple:
    z, y, x = (*(missing,) * (3 - len(numbers)), *numbers)
    return z, y, x


def up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


class Memory:
    """Two arrays around a box of points: what the kernel may depend on is numbers, all else in
    `src` is NaN.

    Allocated is what it may depend on, whole lines along x, and `margin` more rows, planes and
    lines. Rows and planes have gaps between them, and there is as much again in front and behind.
    """

    def __init__(self, reach: Triple, counts: Triple, dtype: np.dtype[Any], margin: int) -> None:
        self.dtype = dtype
        line = LINE // dtype.itemsize
        self.box = box_of((reach[0], reach[1], up(reach[2], line)), counts)
        self.needed = grown(self.box, reach)
        (_, high_z), (_, high_y), (_, high_x) = self.needed
        aligned = ((0, high_z), (0, high_y), (0, up(high_x, line)))
        within = grown(aligned, (margin * (counts[0] > 1), margin * (counts[1] > 1), margin * line))
        nz, ny, nx = (high - low for low, high in within)
        self.row = nx + line
        self.plane = (ny + 1) * self.row
        self.argument = memory_argument(self.plane, self.row, within)
        (low_z, _), (low_y, _), (low_x, _) = within
        self._before = self.plane - low_z * self.plane - low_y * self.row - low_x
        self._size = (nz + 2) * self.plane
        self.src, self.dst = self._array(np.nan), self._array(UNTOUCHED)
        view = self.points(self.src, self.needed)
        view[...] = np.random.default_rng(2).uniform(-1.0, 2.0, view.shape)
        self.state = view.copy()

    def _array(self, value: float) -> Array:
        """Aligned as GPU memory is."""
        flat = np.full(self._size + LINE, value, self.dtype)
        return flat[-flat.ctypes.data % LINE // self.dtype.itemsize :][: self._size]

    def first(self, flat: Array) -> Array:
        """From the first owned point on."""
        return flat[self._before :]

    def points(self, flat: Array, box: Box3) -> Array:
        """Those of a box."""
        (z, _), (y, _), (x, _) = box
        strides = [n * self.dtype.itemsize for n in (self.plane, self.row, 1)]
        start = flat[self._before + z * self.plane + y * self.row + x :]
        return np.lib.stride_tricks.as_strided(start, [high - low for low, high in box], strides)


def box_of(lows: Triple, counts: Triple) -> Box3:
    z, y, x = ((low, low + count) for low, count in zip(lows, counts, strict=True))
    return z, y, x


def grown(box: Box3, by: Triple) -> Box3:
    z, y, x = ((low - n, high + n) for (low, high), n in zip(box, by, strict=True))
    return z, y, x


def scaled(numbers: Triple, factor: int) -> Triple:
    z, y, x = (factor * n for n in numbers)
    return z, y, x


def advanced(state: Array, stencil: Stencil, steps: int) -> Array:
    """The same steps in extended precision; every step has `radii` points less at either end."""
    u = state.astype(np.longdouble)
    radii = three(stencil.radii, 0)
    for _ in range(steps):
        shape = [n - 2 * r for n, r in zip(u.shape, radii, strict=True)]
        new = np.zeros(shape, u.dtype)
        for offset, weight in zip(stencil.offsets, stencil.weights, strict=True):
            shifts = [o + r for o, r in zip(three(offset, 0), radii, strict=True)]
            window = tuple(slice(shift, shift + n) for shift, n in zip(shifts, shape, strict=True))
            new += np.longdouble(weight) * u[window]
        u = new
    return u


def allowed(stencil: Stencil, dtype: np.dtype[Any], steps: int, largest: float) -> float:
    """As `reference.tolerance`: a product and a sum per point and step are rounded, weights and
    powers of them too.
    """
    return 2 * (2 * stencil.n_points + 2) * float(np.finfo(dtype).eps) * steps * largest


def launch(
    kernel: FusedKernel,
    memory: Memory,
    architecture: int,
    descending: bool,
    first_row: int = FIRST_ROW,
) -> None:
    src, dst = memory.first(memory.src), memory.first(memory.dst)
    grid, chunk = kernel.cut(memory.box, slots=1 if descending else MANY)
    streamed = () if kernel.stream is None else (ctypes.c_int(chunk),)
    anchor = (ctypes.c_int(first_row),) if kernel.anchored else ()
    weights = at(kernel.weights) if kernel.by_pointer else by_value(kernel.weights)
    emulate(kernel.source, kernel.defines, architecture).launch(
        kernel.entry,
        grid,
        (kernel.threads, 1, 1),
        (at(src), at(dst), memory.argument, box_argument(memory.box), weights, *streamed, *anchor),
        kernel.shared_bytes,
        copied=(src, dst, memory.argument),
        descending=descending,
    )


def several_tiles(kernel: FusedKernel, radii: Triple) -> Triple:
    """Points along each axis: a tile, and a piece of another; several chunks of what is
    streamed.
    """
    counts = [
        n + (n // 4 | 1) if n > 1 or radius else 1
        for n, radius in zip(kernel.tile, radii, strict=True)
    ]
    if kernel.stream is not None:
        axis = kernel.stream.axis
        counts[axis] = max(counts[axis], kernel.stream.chunk(1, 1, 1) + 5)
    return counts[0], counts[1], counts[2]


def few_points(kernel: FusedKernel, radii: Triple) -> Triple:
    """Points along each axis, fewer than anything that a kernel does at a time."""
    z, y, x = (min(n, few) for n, few in zip(several_tiles(kernel, radii), (1, 2, 3), strict=True))
    return z, y, x


def agrees(kernel: FusedKernel, stencil: Stencil, dtype: np.dtype[Any], architecture: int) -> None:
    """Check one kernel, with threads in both orders and with allocated points around what it needs
    or without.
    """
    radii = three(stencil.radii, 0)
    for counts, margin, descending in (
        (several_tiles(kernel, radii), 0, False),
        (several_tiles(kernel, radii), 2, True),
        (few_points(kernel, radii), 0, True),
    ):
        memory = Memory(scaled(radii, kernel.depth), counts, dtype, margin)
        before = memory.src.copy()
        launch(kernel, memory, architecture, descending)
        found = memory.points(memory.dst, memory.box)
        wanted = advanced(memory.state, stencil, kernel.depth)
        atol = allowed(stencil, dtype, kernel.depth, float(np.abs(memory.state).max()))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)
        found[...] = UNTOUCHED
        assert np.all(memory.dst == dtype.type(UNTOUCHED))
        np.testing.assert_array_equal(memory.src, before)
