"""Compiled copies between boxes of points as users know them and lifted rows (`lifted.py`).

Idea    Lane by lane: the side of the box is read in order, the lifted row is written with a stride
        and stays in a cache until all its lanes are there. The copies are called from all threads,
        each with planes of its own.
Layout  values: (fields, planes, rows, points). flat: lifted rows; `first` is the element of vector
        0 of the first row.
Test    tests/kernels/test_lifted.py
"""

from __future__ import annotations

from tetris_sim.cpu_kernels.compiled.intrinsics import njit


@njit(nogil=True, cache=True)
def lift(values, flat, pitches, first, x, stride, lanes, vectors):
    """Store a box whose rows begin at point x; a point that belongs to two lanes is stored in
    both.
    """
    n = values.shape[3]
    for field in range(values.shape[0]):
        for i in range(values.shape[1]):
            for j in range(values.shape[2]):
                row = first + field * pitches[0] + i * pitches[1] + j * pitches[2]
                for lane in range(lanes):
                    begin = lane * stride
                    for p in range(max(0, x - begin), min(vectors, x + n - begin)):
                        flat[row + p * lanes + lane] = values[field, i, j, begin + p - x]


@njit(nogil=True, cache=True)
def unlift(flat, pitches, first, x, stride, lanes, values):
    """Read a box whose rows begin at point x."""
    n = values.shape[3]
    for field in range(values.shape[0]):
        for i in range(values.shape[1]):
            for j in range(values.shape[2]):
                row = first + field * pitches[0] + i * pitches[1] + j * pitches[2]
                for lane in range(lanes):
                    begin = lane * stride
                    end = x + n if lane == lanes - 1 else min(begin + stride, x + n)
                    for point in range(max(begin, x), end):
                        values[field, i, j, point - x] = flat[row + (point - begin) * lanes + lane]
