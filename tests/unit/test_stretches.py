"""Where steps end that read what changes with time at some moments only."""

from __future__ import annotations

import numpy as np

from tetris_sim.model.step_control import stretches


def test_what_stays_the_same_does_not_divide_a_step() -> None:
    """Sums of 0.01 have rounding errors; a flow that stays the same was taken for one that varies,
    and each step divided into a thousand.
    """
    course = (lambda t: np.where(t < 30.0, 0.01, 0.0), np.array([30.0]))
    assert len(stretches([course], 20.0, 30.0)) == 1
    assert len(stretches([course], 20.0, 40.0)) == 2
