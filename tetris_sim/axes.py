"""Three axes: kernels and files know three, whatever a problem has. Along those that it lacks there
is one point.

The last axis of a problem is always the last of the three, so that rows stay rows. A problem of two
axes can have its first axis in either of the two other places:

`LAST`   one plane of many rows. So GPU kernels have it, in which threads lie side by side along the
         last two axes, and CUDA allows 65,535 blocks of threads, hence planes, along the first. So
         have files, in which (y, x) comes last.
`OUTER`  many planes of one row. So CPU kernels have it: threads divide, and streams walk along, the
         first axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
Places = Mapping[int, tuple[int, ...]]  # of so many axes: for each its number among the three

LAST: Places = {1: (2,), 2: (1, 2), 3: (0, 1, 2)}
OUTER: Places = {1: (2,), 2: (0, 2), 3: (0, 1, 2)}


def on_three(values: Sequence[T], missing: T, places: Places = LAST) -> tuple[T, T, T]:
    """What is given per axis of a problem as three values.

    >>> on_three((5, 7), 1), on_three((5, 7), 1, OUTER)
    ((1, 5, 7), (5, 1, 7))

    Args:
        values: one per axis of the problem.
        missing: the value of an axis that the problem lacks.
        places: where its axes are.
    """
    three = [missing] * 3
    for axis, value in zip(places[len(values)], values, strict=True):
        three[axis] = value
    return three[0], three[1], three[2]
