"""Sums that do not depend on who adds them up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

_RUN = 4096  # numbers that NumPy adds up pairwise before the exact summation takes over


def exact_sum(numbers: npt.NDArray[np.floating[Any]]) -> float:
    """The sum of an array, exact up to roundings within runs of a few thousand numbers.

    >>> exact_sum(np.full(3, 0.1))
    0.30000000000000004
    """
    flat = np.ravel(numbers)
    whole = len(flat) // _RUN * _RUN
    runs = flat[:whole].reshape(-1, _RUN).sum(axis=1, dtype=np.float64)
    return math.fsum((*runs.tolist(), float(flat[whole:].sum(dtype=np.float64))))
