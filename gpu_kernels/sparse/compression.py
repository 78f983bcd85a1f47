"""2:4 compression (SparStencil, equation 2): of each four elements of a row two are kept, and where
they stood.

For TF32 the hardware keeps one of each two instead. Rows that have fewer non-zeros in a group keep
zeros. Positions ascend in a group: PTX calls that ordered metadata, and Hopper is only fast with
it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Compressed:
    """A matrix of which one half is kept.

    Attributes:
        values: what is kept, (rows, columns / 2).
        positions: where the kept stand in their groups, (rows, columns / 2).
        group: elements of a group, of which half are kept: 4 or 2.
    """

    values: Array
    positions: npt.NDArray[np.int64]
    group: int


def is_structured(matrix: npt.NDArray[np.generic], group: int = 4) -> bool:
    """Whether each group of a row has at most half of its elements non-zero, and groups fill the
    rows.
    """
    rows, columns = matrix.shape
    if columns % group:
        return False
    return bool((np.count_nonzero(matrix.reshape(rows, -1, group), axis=-1) <= group // 2).all())


def compress(matrix: Array, group: int = 4) -> Compressed:
    """Keep half of a matrix.

    Raises:
        ValueError: more than that is non-zero in some group.
    """
    if not is_structured(matrix, group):
        msg = (
            f"a group of {group} elements has more than {group // 2} non-zeros, or a row is no "
            "multiple of it"
        )
        raise ValueError(msg)

    # The first of these choices that has all non-zeros: those that are kept without need hold
    # zeros.
    groups = matrix.reshape(len(matrix), -1, group)
    choices = np.array(list(itertools.combinations(range(group), group // 2)))
    outside = np.ones((len(choices), group), bool)
    np.put_along_axis(outside, choices, False, axis=1)

    fits = ~((groups != 0)[:, :, None, :] & outside).any(axis=-1)
    positions = choices[fits.argmax(axis=-1)]
    values = np.take_along_axis(groups, positions, axis=-1)
    return Compressed(values.reshape(len(matrix), -1), positions.reshape(len(matrix), -1), group)
