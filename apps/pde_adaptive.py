"""How long is a step that is made of substeps? Until somebody wants to see the state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.pde_pairs import PAIRS
from tetris_sim.apps.pde_schemes import Scheme
from tetris_sim.quantities import Every
from tetris_sim.schema import Request
from tetris_sim.time_section import TimeSection

_MOST_LOOKS = 1_000_000  # in a run; times with more have no step in common that is worth the name


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
    step = common([time.t_end, *_times(request)])
    dt = step if time.t_end / step <= _MOST_LOOKS else time.t_end / _MOST_LOOKS
    return time.model_copy(update={"dt": dt})


def common(times: list[float]) -> float:
    """The greatest number of which all are multiples, as decimals.

    >>> common([0.1, 0.25, 2.0])
    0.05
    """
    exact = [Fraction(repr(it)) for it in times]
    denominator = math.lcm(*(it.denominator for it in exact))
    return float(Fraction(math.gcd(*(int(it * denominator) for it in exact)), denominator))


def _times(request: Request) -> Iterator[float]:
    output = request.output
    every: list[Every | None] = [it.every for it in output.probes]
    every.append(output.statistics.every if output.statistics is not None else None)
    every.append(request.checkpoint.every)
    for section in (output.fields, *output.parts):
        if section is not None:
            every.append(section.every)
            yield from (time for time in section.at if time > 0)
    yield from (it.value for it in every if it is not None and it.unit == "s")
