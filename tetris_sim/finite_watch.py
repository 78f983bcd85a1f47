"""FiniteWatch: looks for NaN and infinity, before anything is written and every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from tetris_sim.errors import NumericsError
from tetris_sim.fleet import Fleet
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Problem
from tetris_sim.snapshot import Saving
from tetris_sim.support.progress import format_time

_CHECK_SECONDS = 5.0  # a NaN is found at the latest after this much wall time


class FiniteWatch:
    """Knows until when the state of a run was finite.

    Args:
        step: where the run begins.
        saving: where a state that is not finite is kept; rank 0's, if there is any.
        settle: what all ranks do before that, so that the last good state is on the disk.
    """

    def __init__(
        self, step: int, saving: Saving | None, settle: Callable[[Fleet], None] = lambda _: None
    ) -> None:
        self._saving, self._settle = saving, settle
        self._good_step, self._looked = step, False
        self._last_look = time.perf_counter()

    def due(self) -> bool:
        """Whether the last look is too long ago."""
        return time.perf_counter() - self._last_look > _CHECK_SECONDS

    def forget(self) -> None:
        """Look again even at this step: the state is another one."""
        self._looked = False

    def check(self, fleet: Fleet) -> None:
        """Look at every point, once per step.

        Raises:
            NumericsError: a point is not finite; the state is kept where no restart finds it.
            ElsewhereError: so it is, and rank 0 says it.
        """
        if self._good_step == fleet.step and self._looked:
            return
        with fleet.clock.phase("check"):
            bad = _first([worker.stepper.find_nonfinite() for worker in fleet.workers])
            bad = _first(fleet.ranks.collect(bad))

        if bad is not None:  # no rank comes back from this
            self._settle(fleet)  # what is being written is the last good one
            fleet.exchange.lead(fleet.workers, partial(self._refuse, fleet, bad))
        self._good_step, self._looked = fleet.step, True
        self._last_look = time.perf_counter()

    def _refuse(self, fleet: Fleet, bad: Box) -> None:
        saving, time_s = self._saving, fleet.problem.time(fleet.step)
        dump = "There is no checkpoint." if saving is None else saving.dump(fleet.snapshot())
        msg = (
            f"the field is not finite any more: NaN or infinity at {_describe(bad, fleet.problem)},"
            f" found at step {fleet.step} (t = {format_time(time_s)}), all finite at step "
            f"{self._good_step}. {dump}"
        )
        if fleet.problem.equations is not None:
            msg += (
                " If the equations should not grow without end, take a smaller time.dt, or another "
                "time.scheme."
            )
        raise NumericsError(msg)


def _first(boxes: list[Box | None]) -> Box | None:
    return min((box for box in boxes if box is not None), default=None)


def _describe(box: Box, problem: Problem) -> str:
    names = problem.grid.axis_names
    ranges = [f"{name} = {low}..{high - 1}" for name, (low, high) in zip(names, box, strict=True)]
    return "points " + ", ".join(reversed(ranges))
