"""How long is a step that is made of substeps? Until somebody wants to see the state."""

from __future__ import annotations

from collections.abc import Iterator

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.pde_pairs import PAIRS
from tetris_sim.apps.pde_schemes import Scheme
from tetris_sim.apps.timestep import greatest_interval, times_of
from tetris_sim.schema import Request
from tetris_sim.time_section import TimeSection


def tolerance_mistakes(time: TimeSection, scheme: Scheme) -> Iterator[tuple[KeyPath, str]]:
    """What does not fit to steps that follow their errors."""
    if time.tolerance is None:
        return
    if scheme not in PAIRS:
        yield (
            ("time", "tolerance"),
            f"{scheme} has no estimate of its error; take scheme euler, rk2 or rk4",
        )
    if time.t_end is None and not isinstance(time.dt, float):
        yield ("time", "steps"), "of no length: give t_end, or dt beside tolerance"


def between_looks(request: Request) -> TimeSection:
    """The section `time` with a step in it: where nothing is said, the longest one of which all
    times at which somebody wants the state are multiples; the whole time if they have none.
    """
    time = request.time
    if time.tolerance is None or isinstance(time.dt, float):
        return time
    assert time.t_end is not None
    dt = greatest_interval(time.t_end, times_of(request))
    return time.model_copy(update={"dt": dt})
