"""Slabs of a file of fields, written by their ranks at the same time.

One process makes the file without its values, under a temporary name, and says where they are to
lie; each writes the points of its slab there, past the HDF5 library, and when all have said that
theirs are on the disk the first one puts the file in place
(docs/decisions/0045-fields-where-they-are.md).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field
from tetris_sim.outputs.blocks import blocks
from tetris_sim.support.files import disk_errors, put_in_place, send_to_disk, write_at


@dataclass(frozen=True)
class Unfinished:
    """A file that still lacks its values.

    Attributes:
        step: of the record.
        time: of the record [s].
        path: what the file will be called.
        part: what it is called until then.
        shape: points per axis.
        dtype: of the values.
        offsets: where in the file the values of each variable begin [bytes].
    """

    step: int
    time: float
    path: Path
    part: Path
    shape: tuple[int, ...]
    dtype: np.dtype[np.floating]
    offsets: tuple[int, ...]

    def is_here(self) -> bool:
        """Whether this process sees the file and may write to it."""
        try:
            os.close(os.open(self.part, os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    def write(self, box: Box, read: Callable[[Box], Field]) -> None:
        """Write the values in a box.

        Args:
            box: global indices.
            read: a part of it -> its values, (n_variables, ...).

        Raises:
            UnsupportedError: the disk is full or does not let us write.
        """
        extent = tuple(high - low for low, high in box)
        bytes_of_point = self.dtype.itemsize * len(self.offsets)
        with disk_errors(self.part), self._opened() as descriptor:
            for inside in blocks(extent, bytes_of_point):
                piece = tuple(
                    (low + a, low + b) for (low, _), (a, b) in zip(box, inside, strict=True)
                )
                values = read(piece)
                for offset, field in zip(self.offsets, values, strict=True):
                    packed = np.ascontiguousarray(field, dtype=self.dtype)
                    self._write_runs(descriptor, packed, piece, offset)
            os.fsync(descriptor)

    def put_in_place(self) -> None:
        """Give the file its name; all values are there.

        Raises:
            UnsupportedError: the disk does not let us.
        """
        with disk_errors(self.part):
            put_in_place(self.part, self.path)

    def drop(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self.part.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        descriptor = os.open(self.part, os.O_WRONLY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _write_runs(self, descriptor: int, values: Field, box: Box, offset: int) -> None:
        firsts, length = runs(self.shape, box)
        places = offset + firsts * self.dtype.itemsize
        for place, run in zip(places.tolist(), values.reshape(-1, length), strict=True):
            write_at(descriptor, run, place)
        begin, end = int(places[0]), int(places[-1]) + length * self.dtype.itemsize
        send_to_disk(descriptor, begin, end - begin)


def runs(shape: tuple[int, ...], box: Box) -> tuple[npt.NDArray[np.int64], int]:
    """Where the points of a box lie in an array, as runs without a gap.

    >>> runs((4, 5), ((1, 3), (0, 5))), runs((4, 5), ((1, 3), (2, 4)))
    ((array([5]), 10), (array([ 7, 12]), 2))

    Args:
        shape: of the array.
        box: global indices.

    Returns:
        (index of the first point of each run, points of a run), in the order of the box.
    """
    axis = len(shape) - 1
    while axis > 0 and box[axis] == (0, shape[axis]):
        axis -= 1
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    firsts = np.array(box[axis][0] * strides[axis])
    for k in reversed(range(axis)):
        along = np.arange(*box[k]) * strides[k]
        firsts = along.reshape(-1, *(1,) * firsts.ndim) + firsts
    length = (box[axis][1] - box[axis][0]) * strides[axis]
    return firsts.ravel(), length
