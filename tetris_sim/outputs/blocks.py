"""In which blocks is a grid walked through, so that no output needs the whole field in memory, and
how are numbers added up, so that sums do not depend on who does it?
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.method import Box

BLOCK_BYTES = 1 << 25  # 32 MiB: large enough for a disk, small beside any field that matters
_RUN = 4096  # numbers that NumPy adds up pairwise before the exact summation takes over


def blocks(
    shape: Sequence[int],
    itemsize: int,
    *,
    multiple: Sequence[int] | None = None,
    limit: int = BLOCK_BYTES,
) -> Iterator[Box]:
    """Boxes that cover a grid exactly once, in storage order: runs of planes, or parts of one.

    A function of the grid alone, so that what is added up block by block is the same for any
    partition.

    >>> list(blocks((5, 4), 8, limit=64))
    [((0, 2), (0, 4)), ((2, 4), (0, 4)), ((4, 5), (0, 4))]

    Args:
        shape: points per axis.
        itemsize: bytes per point, all fields together.
        multiple: per axis, what the length of a block must be a multiple of where the axis is cut
            (chunks of a file).
        limit: bytes of a block; exceeded only if a block of one `multiple` is larger.
    """
    block = list(shape)
    for axis, unit in enumerate(multiple or (1,) * len(shape)):
        plane = math.prod(block) // block[axis] * itemsize
        if plane * block[axis] <= limit:
            break
        block[axis] = min(block[axis], max(1, limit // plane // unit) * unit)
    ranges = [
        [(start, min(start + length, n)) for start in range(0, n, length)]
        for n, length in zip(shape, block, strict=True)
    ]
    yield from itertools.product(*ranges)


def slices(box: Box) -> tuple[slice, ...]:
    """The points of a box as an index of an array, one slice per axis."""
    return tuple(slice(low, high) for low, high in box)


def chunk_shape(shape: Sequence[int], itemsize: int, target: int = 1 << 20) -> tuple[int, ...]:
    """Chunk of a compressed dataset: whole rows, then whole planes, about `target` bytes.

    >>> chunk_shape((400, 9600), 8), chunk_shape((7, 5, 6), 8)
    ((13, 9600), (7, 5, 6))
    """
    chunk, room = [1] * len(shape), max(1, target // itemsize)
    for axis in range(len(shape) - 1, -1, -1):
        chunk[axis] = min(shape[axis], room)
        room //= chunk[axis]
        if room <= 1:
            break
    return tuple(chunk)


def exact_sum(numbers: npt.NDArray[np.floating[Any]]) -> float:
    """The sum of an array, exact up to roundings within runs of a few thousand numbers.

    >>> exact_sum(np.full(3, 0.1))
    0.30000000000000004
    """
    flat = np.ravel(numbers)
    whole = len(flat) // _RUN * _RUN
    runs = flat[:whole].reshape(-1, _RUN).sum(axis=1, dtype=np.float64)
    return math.fsum((*runs.tolist(), float(flat[whole:].sum(dtype=np.float64))))
