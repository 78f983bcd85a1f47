"""How long is a step, and how many are there? What the `time` section means."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from tetris_sim.config.sections.schema import Request, TimeSection
from tetris_sim.errors import ConfigError, UnstableStepError

_MOST_INTERVALS = 100_000
MAX_STEPS = 2**53  # above it, step * dt can no longer tell neighbouring steps apart

# Quotients of two doubles that should be whole miss it by a few roundings; 1e-12 is thousands of
# them and still far less than a step for any number of steps that can be waited for.
_ROUNDING = 1e-12


def count_steps(t_end: float, dt: float) -> int:
    """Smallest number of steps of `dt` [s] that reaches `t_end` [s], at least 1.

    >>> count_steps(1.0, 0.1), count_steps(1.0, 0.3)
    (10, 4)

    Raises:
        ConfigError: more steps than can be counted.
    """
    wanted = t_end / dt if dt > 0 else math.inf
    if not wanted <= MAX_STEPS:
        msg = (
            f"time.t_end = {t_end:g} s needs {wanted:.3g} steps of {dt:.3g} s, and at most 2^53 = "
            f"{MAX_STEPS:.3g} can be counted; choose a shorter t_end or a coarser grid"
        )
        raise ConfigError(msg)
    return max(1, math.ceil(wanted * (1 - _ROUNDING)))


def steps_left(t_end: float, begun: float, dt: float) -> tuple[float, int]:
    """The time step [s] and the number of steps from `begun` [s] to `t_end` [s].

    dt is kept, to the bit, if whole steps of it end at `t_end`: always, but where the end of a run
    was moved. Else it is shrunk for the rest, as at the beginning of a run. The number is negative
    if `t_end` has passed.

    >>> steps_left(1.0, 0.5, 0.1), steps_left(1.0, 0.5, 0.3), steps_left(0.4, 0.5, 0.3)
    ((0.1, 5), (0.25, 2), (0.3, -1))

    Raises:
        ConfigError: more steps than can be counted.
    """
    left = t_end - begun
    if not abs(left) / dt <= MAX_STEPS:
        return dt, count_steps(left, dt)
    whole = round(left / dt)
    if abs(left - whole * dt) <= _ROUNDING * t_end:
        return dt, whole
    if left < 0:
        return dt, math.floor(left / dt)
    steps = count_steps(left, dt)
    return left / steps, steps


def is_unstable(step: float, limit: float) -> bool:
    """Whether a step is larger than the largest stable one, by more than roundings.

    >>> is_unstable(0.1 + 0.2, 0.3), is_unstable(0.25, 0.24)
    (False, True)
    """
    return step > limit * (1 + _ROUNDING)


def greatest_interval(t_end: float, times: Iterable[float]) -> float:
    """The greatest interval of which all times are multiples, or if that is far too short, the
    shortest of the times [s].

    >>> greatest_interval(3600.0, [60.0, 90.0]), greatest_interval(1.0, []), (
    ...     greatest_interval(10.0, [0.1])
    ... )
    (30.0, 1.0, 0.1)

    Args:
        t_end: the end of the run [s].
        times: others [s]; those after it do not count.
    """
    known = [it for it in (t_end, *times) if 0 < it <= t_end]
    parts = [Fraction(str(it)) for it in known]
    whole = math.lcm(*(it.denominator for it in parts))
    common = Fraction(math.gcd(*(int(it * whole) for it in parts)), whole)
    return float(common) if t_end <= _MOST_INTERVALS * common else min(known)


def times_of(request: Request) -> list[float]:
    """The intervals and moments at which a run writes or saves something [s]."""
    output = request.output
    fields = [it for it in (output.fields, *output.parts) if it is not None]
    everys = [it.every for it in fields if it.every is not None]
    everys += [it.every for it in output.probes]
    if output.statistics is not None:
        everys.append(output.statistics.every)
    if request.checkpoint.every is not None:
        everys.append(request.checkpoint.every)
    moments = [moment for it in fields for moment in it.at]
    return [it.value for it in everys if it.unit == "s"] + moments


def choose_time_step(
    time: TimeSection,
    *,
    dt_limit: float,
    cfl_unit: float,
    dt: float | None = None,
    wanted_at: Iterable[float] = (),
) -> tuple[float, int]:
    """The time step [s] and the number of steps.

    Args:
        time: what was asked for.
        dt_limit: largest stable time step [s].
        cfl_unit: the time step of CFL number 1, smallest spacing squared / diffusivity [s].
        dt: the time step of a run that is continued; it is kept, whatever `time` says.
        wanted_at: times of which an adaptive step is to be a part, see `times_of` [s].

    Returns:
        They mean nothing for a steady state, which is one step away.

    Raises:
        UnstableStepError: the step is larger than the limit.
        ConfigError: the numbers are beyond what a computer can represent or count.
    """
    if not (0 < cfl_unit < math.inf and 0 < dt_limit < math.inf):
        msg = (
            f"spacing^2 / diffusivity comes out as {cfl_unit:g} s and the largest stable time step "
            f"as {dt_limit:g} s; choose grid.spacing and model.diffusivity so that both are "
            "positive and finite"
        )
        raise ConfigError(msg)

    if time.scheme == "steady":
        return 1.0, 1
    wanted, name = _wanted(time, dt_limit, cfl_unit)
    if time.is_adaptive:
        assert time.t_end is not None
        wanted = greatest_interval(time.t_end, wanted_at)
    if dt is not None:
        wanted, name = dt, "the time step of the run"
    if not (0 < wanted < math.inf):
        msg = (
            f"{name} comes out as {wanted:g} s, which is no time step; change the numbers of the "
            "time section"
        )
        raise ConfigError(msg)
    if time.scheme != "implicit" and is_unstable(wanted, dt_limit):
        msg = (
            f"{name} = {wanted:.6g} s is unstable on this grid: the largest stable step is "
            f"{dt_limit:.6g} s (cfl {dt_limit / cfl_unit:.6g}); take at most that, or time.dt: auto"
        )
        raise UnstableStepError(msg)

    if time.t_end is None:
        return wanted, _checked_count(time.steps or 0)
    steps = count_steps(time.t_end, wanted)
    # A continued run keeps its step to the bit; `steps_left` says what the rest of it needs.
    return (wanted if dt is not None else time.t_end / steps), steps


def _wanted(time: TimeSection, dt_limit: float, cfl_unit: float) -> tuple[float, str]:
    """The step asked for [s], before it is shrunk to end at t_end, and what to call it."""
    if time.cfl is not None:
        return time.cfl * cfl_unit, f"time.cfl = {time.cfl:g}, dt"
    if time.dt is None or time.dt == "auto":
        return time.safety * dt_limit, "time.dt: auto"
    return time.dt, "time.dt"


def _checked_count(steps: int) -> int:
    if steps > MAX_STEPS:
        msg = (
            f"time.steps = {steps} is more than can be counted in a double; at most 2^53 = "
            f"{MAX_STEPS} are allowed"
        )
        raise ConfigError(msg)
    return steps


def between_looks(request: Request) -> TimeSection:
    """The section `time` with a step in it: where nothing is said, the longest one of which all
    times at which somebody wants the state are multiples; the whole time if they have none.
    """
    time = request.time
    adaptive = time.is_adaptive or (time.tolerance is not None and time.scheme != "steady")
    if not adaptive or isinstance(time.dt, float):
        return time
    assert time.t_end is not None
    dt = greatest_interval(time.t_end, times_of(request))
    return time.model_copy(update={"dt": dt})
