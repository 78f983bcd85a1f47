"""A team of threads does what it is told once, tells what fails, and outlives interrupts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from tetris_sim.cpu_kernels.common.stepper import ThreadTeam


def interrupted_at(moment: int, action: Callable[[], None]) -> bool:
    """Whether an action was interrupted, before the given one of its operations in `threads.py`."""
    left = moment
    codes: set[CodeType] = {ThreadTeam.start.__code__, ThreadTeam.wait.__code__}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code not in codes:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def within_seconds(action: Callable[[], None]) -> bool:
    """Whether an action ends soon, in a thread that may be left behind."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


def test_a_team_goes_on_after_an_interrupt_at_any_moment() -> None:
    team = ThreadTeam(3)
    calls: list[int] = []
    moment = 0
    for moment in range(1, 1000):
        if not interrupted_at(moment, lambda: team.run(calls.append)):
            break
        assert within_seconds(team.wait)
        assert len(calls) in (0, 3)  # all of them were told, or none
        calls.clear()
        assert within_seconds(lambda: team.run(calls.append))
        assert sorted(calls) == [0, 1, 2]
        calls.clear()
    assert moment > 40  # so many operations there are
    assert sorted(calls) == [0, 1, 2]
    team.close()


def test_nothing_is_kept_of_rounds_that_are_done() -> None:
    team = ThreadTeam(2)
    for _ in range(50):
        team.run(lambda thread: None)
    assert team._ends.qsize() <= 2 * team.size
    team.close()
