"""Does the error fall with the order of the scheme when a grid is refined?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tetris_sim.verification.case import Outcome

_MARGIN = 0.15  # observed orders approach the true one from either side as the grid is refined


def refine(errors: Sequence[float], sizes: Sequence[int], order: int) -> Outcome:
    """The error on the finest grid: it must have fallen with the order of the scheme.

    Args:
        errors: on grids that are refined.
        sizes: number of points, or of steps, of these.
        order: of the scheme.
    """
    ratio = sizes[-1] / sizes[-2]
    observed = math.log(errors[-2] / errors[-1]) / math.log(ratio)
    return Outcome(errors[-1], errors[-2] / ratio ** (order - _MARGIN), observed)
