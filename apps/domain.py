"""Domain and assembly: grid, time step and initial state, the parts of a `Problem` that every model
shares.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from tetris_sim.apps.heat.materials import from_temperatures
from tetris_sim.apps.initial import make_initial
from tetris_sim.config.sections.grid import GridSection
from tetris_sim.config.sections.schema import Request, TimeSection
from tetris_sim.errors import ConfigError, UnstableStepError
from tetris_sim.model.boundary import SIDES, Boundary, Dirichlet, Fixed, Periodic
from tetris_sim.model.conduction import Conduction, Numbers, RuledFace
from tetris_sim.model.equations import Rates
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import (
    PAIRS,
    Field,
    InitialField,
    Problem,
    StateVariable,
    View,
    arithmetic_of,
    state_dtype,
)
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.step_control import Signal

# Length and number of time steps: the meaning of the `time` section.

# Above this many intervals a common divisor of all output times is treated as an accident of their
# digits (see `greatest_interval`).
_MOST_INTERVALS = 100_000
MAX_STEPS = 2**53  # above it, step * dt can no longer tell neighbouring steps apart

# Quotients of two doubles that should be whole miss it by a few roundings; 1e-12 is thousands of
# them and still far less than a step for any number of steps that can be waited for.
_STEP_ROUNDING = 1e-12


def count_steps(t_end: float, dt: float) -> int:
    """Count the steps of `dt` [s] that reach `t_end` [s]: the smallest such number, at least 1.

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

    # Rounded down a little first: 1.0 / 0.1 must not become 11 steps because of a last bit.
    return max(1, math.ceil(wanted * (1 - _STEP_ROUNDING)))


def steps_left(t_end: float, begun: float, dt: float) -> tuple[float, int]:
    """Compute the time step [s] and the number of steps from `begun` [s] to `t_end` [s].

    dt is kept, to the bit, if whole steps of it end at `t_end`: always, unless the end of the run
    was moved. Otherwise it is shrunk for the rest, as at the start of a run. The number is negative
    if `t_end` has passed.

    >>> steps_left(1.0, 0.5, 0.1), steps_left(1.0, 0.5, 0.3), steps_left(0.4, 0.5, 0.3)
    ((0.1, 5), (0.25, 2), (0.3, -1))

    Raises:
        ConfigError: more steps than can be counted.
    """
    left = t_end - begun
    if not abs(left) / dt <= MAX_STEPS:
        return dt, count_steps(left, dt)

    # Whole steps fit up to rounding: keep dt, so that the continued run is bitwise identical to an
    # uninterrupted one.
    whole = round(left / dt)
    if abs(left - whole * dt) <= _STEP_ROUNDING * t_end:
        return dt, whole
    if left < 0:
        return dt, math.floor(left / dt)
    steps = count_steps(left, dt)
    return left / steps, steps


def is_unstable(step: float, limit: float) -> bool:
    """Whether a step exceeds the largest stable one by more than rounding.

    >>> is_unstable(0.1 + 0.2, 0.3), is_unstable(0.25, 0.24)
    (False, True)
    """
    return step > limit * (1 + _STEP_ROUNDING)


def greatest_interval(t_end: float, times: Iterable[float]) -> float:
    """Find the greatest interval [s] of which all times are multiples; if it is far too short,
    return the shortest of the times.

    >>> greatest_interval(3600.0, [60.0, 90.0]), greatest_interval(1.0, []), (
    ...     greatest_interval(10.0, [0.1])
    ... )
    (30.0, 1.0, 0.1)

    Args:
        t_end: the end of the run [s].
        times: output and checkpoint times [s]; those after the end are ignored.
    """
    known = [it for it in (t_end, *times) if 0 < it <= t_end]

    # Decimal digits as written: the binary values of 0.1 and 0.3 have no useful common divisor.
    parts = [Fraction(str(it)) for it in known]
    whole = math.lcm(*(it.denominator for it in parts))
    common = Fraction(math.gcd(*(int(it * whole) for it in parts)), whole)
    return float(common) if t_end <= _MOST_INTERVALS * common else min(known)


def pieces_of(time: TimeSection, times: Iterable[float]) -> int:
    """Count the equal pieces of a run at whose ends steps have to end; 1 without `time.align`.

    Args:
        time: the `time` section.
        times: intervals and times of outputs [s]; see `times_of`.

    Raises:
        ConfigError: the times have no common interval.
    """
    if not time.align:
        return 1
    assert time.t_end is not None
    # Steps cannot end at two times that are no multiples of one interval.
    known = [it for it in times if 0 < it <= time.t_end]
    interval = greatest_interval(time.t_end, known)
    if any(abs(it / interval - round(it / interval)) > 1e-9 for it in (time.t_end, *known)):
        msg = (
            "time.align: intervals of outputs and t_end have no common interval that is not far "
            "too short; choose others, or leave it out"
        )
        raise ConfigError(msg)
    return round(time.t_end / interval)


_LOOKS = 100  # at the condition that ends a run of adaptive steps, if `until.every` is not given


def times_of(request: Request) -> list[float]:
    """Collect the intervals and output times at which a run writes or saves something [s]."""
    output = request.output
    fields = [it for it in (output.fields, *output.parts) if it is not None]
    everys = [it.every for it in fields if it.every is not None]
    everys += [it.every for it in output.probes]
    if output.statistics is not None:
        everys.append(output.statistics.every)
    if request.checkpoint.every is not None:
        everys.append(request.checkpoint.every)

    moments = [moment for it in fields for moment in it.at]
    until, t_end = request.time.until, request.time.t_end
    if until is not None and until.condition is not None:
        # Adaptive steps end where somebody looks, and a condition is somebody who looks.
        if until.every is not None:
            everys.append(until.every)
        elif t_end is not None:
            moments.append(t_end / _LOOKS)
    # Intervals counted in steps fit any step length: only those in seconds constrain it.
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
        time: the `time` section.
        dt_limit: largest stable time step [s]; infinite for a body in which no heat flows.
        cfl_unit: the time step of CFL number 1, smallest spacing squared / diffusivity [s].
        dt: the time step of a continued run; it overrides `time`.
        wanted_at: output times that an adaptive step must divide [s]; see `times_of`.

    Returns:
        Placeholders (1 s, 1 step) for a steady state, which takes one step of no duration.

    Raises:
        UnstableStepError: the step is larger than the limit.
        ConfigError: numbers that cannot be represented or counted.
    """
    if not (0 < cfl_unit < math.inf and dt_limit > 0):
        msg = (
            f"spacing^2 / diffusivity comes out as {cfl_unit:g} s and the largest stable time step "
            f"as {dt_limit:g} s; choose grid.spacing and model.diffusivity so that both are "
            "positive and finite"
        )
        raise ConfigError(msg)

    if time.scheme == "steady":
        return 1.0, 1
    wanted, name = _wanted(time, dt_limit, cfl_unit)

    # An adaptive scheme chooses its substeps itself; its step is the interval between outputs.
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

    # Implicit steps are unconditionally stable; explicit ones must respect the limit.
    if time.scheme != "implicit" and is_unstable(wanted, dt_limit):
        msg = (
            f"{name} = {wanted:.6g} s is unstable on this grid: the largest stable step is "
            f"{dt_limit:.6g} s (cfl {dt_limit / cfl_unit:.6g}); take at most that, or time.dt: auto"
        )
        raise UnstableStepError(msg)

    if time.t_end is None:
        return wanted, _checked_count(time.steps or 0)
    pieces = 1 if dt is not None else pieces_of(time, wanted_at)
    steps = pieces * count_steps(time.t_end / pieces, wanted)
    # A continued run keeps its step to the bit; `steps_left` says what the rest of it needs.
    return (wanted if dt is not None else time.t_end / steps), steps


def _wanted(time: TimeSection, dt_limit: float, cfl_unit: float) -> tuple[float, str]:
    """Return the step asked for [s], before it is shrunk to end at t_end, and its name for
    messages.
    """
    if time.cfl is not None:
        return time.cfl * cfl_unit, f"time.cfl = {time.cfl:g}, dt"
    if time.dt is None or time.dt == "auto":
        if math.isinf(dt_limit):
            msg = (
                "time.dt: auto: nothing limits the time step, as no heat flows from cell to cell "
                "or through faces; give time.dt"
            )
            raise ConfigError(msg)
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
    """Return the section `time` with a step in it, the interval between two outputs.

    For a run whose step follows from its outputs, and that gives none, this is the longest step of
    which all output times are multiples, or the whole time if there are no outputs.
    """
    time = request.time
    adaptive = time.is_adaptive or (time.tolerance is not None and time.scheme != "steady")
    if not adaptive or isinstance(time.dt, float):
        return time
    assert time.t_end is not None
    dt = greatest_interval(time.t_end, times_of(request))
    return time.model_copy(update={"dt": dt})


def tolerable(tolerance: float, dtype: np.dtype[Any]) -> float:
    """Return a tolerated error of a step, unless it is too small.

    Raises:
        ConfigError: differences of rounded slopes cannot tell it.
    """
    least = _LEAST_TOLERANCE * float(np.finfo(dtype).eps)
    if tolerance < least:
        msg = f"time.tolerance is {tolerance:g}; in {dtype} it is {least:.2g} or more"
        raise ConfigError(msg)
    return tolerance


def integration(
    time: TimeSection,
    dtype: np.dtype[Any],
    numbers: Callable[[float], Numbers],
    *,
    adaptive: bool,
) -> Rates:
    """Return how right-hand sides are integrated by a scheme that is not made of explicit steps.

    Args:
        time: with the scheme and the tolerance.
        dtype: of the state.
        numbers: from a time [s] to the parameters of the equations.
        adaptive: whether errors decide the lengths of substeps; that is not seen in a section that
            already has the interval between outputs as its step.

    Raises:
        ConfigError: the tolerance is below the rounding of the state.
    """
    tolerance = tolerable(time.of_steps, dtype) if adaptive else time.of_balances
    scheme: Any = time.scheme
    return Rates(scheme, tolerance, adaptive, numbers)


KeyPath = tuple[str | int, ...]

_LEAST_TOLERANCE = 16.0  # units of the last place
_ROUNDING = 1e-9  # of the largest weight: by how much weights that should be equal may differ


def refuse(problems: Iterable[tuple[KeyPath, str]]) -> None:
    """Raise if there are mistakes, each a pair (key path, sentence).

    Raises:
        ConfigError: lists all of them, one per line.
    """
    lines = [f"{'.'.join(map(str, path))}: {sentence}" for path, sentence in problems]
    if lines:
        raise ConfigError("\n".join(lines))


Thing = TypeVar("Thing")


def make_each(makers: Iterable[Callable[[], Thing]]) -> list[Thing]:
    """Call every function and return all results.

    Raises:
        ConfigError: some calls failed; joins the messages of all of them, one per line.
    """
    # All makers run even after a failure, so that a user sees every mistake at once.
    made, wrong = [], []
    for make in makers:
        try:
            made.append(make())
        except ConfigError as error:
            wrong.append(str(error))
    if wrong:
        raise ConfigError("\n".join(wrong))
    return made


def make_grid(section: GridSection) -> Grid:
    """Build the grid, in array order; the spacing is 1 m where neither size nor spacing is given.

    Raises:
        ConfigError: lengths that cannot be represented in float64.
    """
    # The configuration lists x, y, z; arrays are (z, y, x).
    shape = section.shape[::-1]
    try:
        if section.graded or section.system.is_curved:
            lows = [section.origin.get(name, 0.0) for name in section.names]
            edges = [
                section.graded[name].ends(low) if name in section.graded else None
                for name, low in zip(section.names, lows, strict=True)
            ]
            size = [high - low for low, high in section.bounds]
            if section.size is not None:
                size = [*section.size]
            grid = Grid.graded(shape, size[::-1], edges[::-1], lows[::-1], section.system)
        elif section.size is not None:
            grid = Grid.box(shape, section.size[::-1])
        else:
            spacing = (1.0,) * len(shape) if section.spacing is None else section.spacing[::-1]
            grid = Grid(shape=shape, spacing=spacing, origin=tuple(h / 2 for h in spacing))
        if section.origin and not (section.graded or section.system.is_curved):
            begins = [low for low, _ in section.bounds[::-1]]
            origin = tuple(low + at for low, at in zip(begins, grid.origin, strict=True))
            grid = replace(grid, origin=origin)
        lengths = (*grid.size, grid.cell_volume)
    except (ValueError, OverflowError) as error:
        msg = f"grid: {error}; choose lengths that a computer can represent"
        raise ConfigError(msg) from error

    # Products such as the cell volume may underflow or overflow although each length is fine.
    if not all(0 < length < math.inf for length in lengths):
        msg = (
            f"grid: a box of {grid.size[::-1]} m in cells of {grid.cell_volume} m^{grid.ndim} "
            "cannot be computed"
        )
        raise ConfigError(msg)
    return grid


def check_numbers(stencil: Stencil, boundary: Boundary, grid: Grid, dtype: np.dtype[Any]) -> None:
    """Check that weights and ghost coefficients fit the arithmetic of a state of `dtype`.

    Raises:
        ConfigError: one of them overflows.
    """
    dtype = arithmetic_of(dtype)
    largest = float(np.finfo(dtype).max)

    for axis, side in itertools.product(range(grid.ndim), SIDES):
        if boundary.periodic(axis) or isinstance(boundary.faces[axis][0], RuledFace):
            continue
        # A stencil wider than the grid is refused later, and may be absurdly wide.
        width, spacing = min(stencil.radii[axis], grid.shape[axis]), grid.spacing[axis]
        try:
            pairs = boundary.reflections(axis, side, spacing=spacing, width=width)
        except ValueError as error:
            msg = (
                f"boundaries, {side} face of {grid.axis_names[axis]}: {error}; choose smaller "
                "numbers"
            )
            raise ConfigError(msg) from error
        if any(abs(number) > largest for pair in pairs for number in pair):
            msg = (
                f"boundaries, {side} face of {grid.axis_names[axis]}: ghost coefficients {pairs} "
                f"overflow in {dtype}"
            )
            raise ConfigError(msg)

    if any(abs(weight) > largest for weight in stencil.weights):
        msg = (
            f"the weights of the stencil, up to {max(map(abs, stencil.weights)):.3g}, overflow in "
            f"{dtype}"
        )
        raise ConfigError(msg)


def keeps_fluxes(stencil: Stencil, axis: int) -> bool:
    """Whether mirrored ghosts impose the requested flux through the faces of an axis.

    With anisotropic conduction a gradient along a face drives heat across it: the weights of a
    mirrored neighbour and of the point it stands for then differ, and the heat that one point gains
    is lost by no other. No affine reflection makes up for that. Advection (asymmetric weights) and
    differentiation (weights that sum to 0) conserve no total in the first place.

    Args:
        stencil: one time step.
        axis: normal to the face.
    """
    largest = max(map(abs, stencil.weights))
    differentiates = abs(math.fsum(stencil.weights)) <= _ROUNDING * largest
    flows = not _stays(stencil, range(stencil.ndim))
    return differentiates or flows or _stays(stencil, (axis,))


def _stays(stencil: Stencil, turned: Collection[int]) -> bool:
    """Whether a stencil is unchanged, up to rounding, when some axes are reversed."""
    terms = stencil.terms
    slack = _ROUNDING * max(map(abs, stencil.weights))
    images = (
        tuple(-c if axis in turned else c for axis, c in enumerate(offset))
        for offset in stencil.offsets
    )
    return all(
        abs(terms.get(image, 0.0) - weight) <= slack
        for image, weight in zip(images, stencil.weights, strict=True)
    )


def flux_refusal(name: str) -> str:
    """Explain why a face with a prescribed flux conflicts with a stencil that fails `keeps_fluxes`.

    Args:
        name: of the axis.
    """
    return (
        f"the weights of the stencil change when {name} is turned around, so that mirrored ghosts "
        "would create heat at a face with a given flux; take periodic, fixed or dirichlet faces "
        f"along {name}, or a stencil that is its own mirror image"
    )


def check_fluxes(stencil: Stencil, boundary: Boundary, grid: Grid) -> None:
    """Check that no face creates heat.

    Raises:
        ConfigError: a face has a prescribed flux along an axis on which the stencil violates it.
    """
    for axis, faces in enumerate(boundary.faces):
        given = all(isinstance(face, Dirichlet | Fixed | Periodic) for face in faces)
        if not given and not keeps_fluxes(stencil, axis):
            msg = f"boundary, axis {axis}: {flux_refusal(grid.axis_names[axis])}"
            raise ConfigError(msg)


def assemble(
    request: Request,
    *,
    grid: Grid,
    stencil: Stencil,
    boundary: Boundary,
    variable: StateVariable,
    time: tuple[float, int],
    dt_limit: float,
    continued: bool,
    conduction: Conduction | None = None,
    given: Callable[[Ranges], Numbers] | None = None,
    view: View | None = None,
    signals: Mapping[str, Signal] | None = None,
) -> Problem:
    """Build the problem of one variable, checking everything that a kernel relies on.

    Args:
        request: the configuration.
        grid: the points.
        stencil: one time step.
        boundary: what holds on the faces.
        variable: what the field means.
        time: dt [s] and the number of steps.
        dt_limit: largest stable dt [s].
        continued: whether the state comes from a checkpoint; the file of initial values may then no
            longer exist.
        conduction: the time step of a heterogeneous body.
        given: initial values of the points of a box; NaN keeps the initial state.
        view: the fields shown to users, if they are not the state itself.
        signals: what controllers decide, by their names.

    Raises:
        ConfigError: the stencil does not fit into the grid, or numbers overflow in the requested
            precision.
    """
    dtype = state_dtype(request.compute.precision)
    check_numbers(stencil, boundary, grid, dtype)

    # Where the state is enthalpy, initial temperatures are converted in float64 and rounded once,
    # at the end.
    by_heat = bool(conduction and conduction.enthalpy)
    kind = np.dtype(np.float64) if by_heat else dtype
    section = request.initial
    if section is None:
        msg = "initial: missing; a section is wanted that says what the state is at time 0"
        raise ConfigError(msg)

    # A continued run reads its state from the checkpoint: its initial section is evaluated only if
    # something reads it after all.
    still = conduction.held if conduction else None
    make = functools.partial(make_initial, section, grid, kind, still=still)
    initial = (lambda slab: make()(slab)) if continued else make()
    if given is not None:
        initial = _holding(initial, given)
    if conduction is not None and by_heat:
        initial = from_temperatures(initial, conduction, dtype)

    try:
        return Problem(
            grid=grid,
            stencil=stencil,
            boundary=boundary,
            initial=initial,
            dt=time[0],
            steps=time[1],
            dtype=dtype,
            variables=(variable,),
            dt_limit=dt_limit,
            # The one step to a steady state takes no time.
            start=(1, 0.0) if request.time.scheme == "steady" else (0, 0.0),
            conduction=conduction,
            view=view,
            pairs=request.compute.precision == PAIRS,
            signals=signals or {},
        )
    except ValueError as error:
        msg = f"grid.shape: {error}"
        raise ConfigError(msg) from error


def _holding(initial: InitialField, given: Callable[[Ranges], Numbers]) -> InitialField:
    """The initial state with given values at some points."""

    def holding(slab: Slab) -> Field:
        state, values = initial(slab), given(slab.spans)
        there = ~np.isnan(values)
        state[0][there] = values[there]
        return state

    return holding
