"""From a system of equations to a `Problem`: the scheme, the time step, and every name's ghosts."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tetris_sim.apps.domain import (
    MAX_STEPS,
    count_steps,
    integration,
    is_unstable,
    pieces_of,
    tolerable,
)
from tetris_sim.apps.pde.fluxes import weno5_in
from tetris_sim.apps.pde.parts import (
    Parts,
    courses_of,
    make_equations,
    middle_of,
    problem_of,
    substeps_of,
    with_constraints,
    with_wholes,
)
from tetris_sim.apps.pde.runge_kutta import (
    MOST_STAGES,
    PAIRS,
    Array,
    Rate,
    make_pair,
    make_rkl2,
)
from tetris_sim.apps.pde.schemes import (
    Scheme,
    SchemeStages,
    make_rates,
    make_stages,
    nothing_yet,
)
from tetris_sim.apps.pde.stability import StepLimits, find_limits
from tetris_sim.apps.time_functions import TIME, names_in
from tetris_sim.config.sections.schema import SPLIT, TimeSection
from tetris_sim.errors import ConfigError, UnstableStepError
from tetris_sim.model import reference
from tetris_sim.model.boundary import Neumann, NoFlux, Periodic
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.equations import Equations, Offset, Rates, as_tap
from tetris_sim.model.formula import Node
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import CONSTANT, INPUT, Instruction
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.solvers.balance import why_not as why_no_balance
from tetris_sim.solvers.spectral.exponential import ArrayRates

# Equations that are one linear step of one field with numbers that never change, as a stencil.
#
# Whatever knows stencils then takes them: the kernels of constants, jumps over many steps, faces
# that cost nothing.

# What a register holds: the weights of taps, and under None what is added to them.
_Sum = Mapping[Offset | None, float]


def as_one_stencil(problem: Problem) -> Problem:
    """The same problem by a stencil instead of equations, if that is what they are.

    Weights are rounded once for each operation of the formula, so the last bits are others.
    """
    weights = _weights(problem.system)
    if weights is None:
        return problem
    stencil = Stencil(tuple(weights), tuple(weights.values()))
    return replace(problem, stencil=stencil, equations=None)


def _weights(equations: Equations) -> dict[Offset, float] | None:
    """By offset; None if the step is anything else than a sum of taps with weights."""
    changing = any(parameter.changes for parameter in equations.parameters)
    several = len(equations.fields) > 1 or len(equations.stages) > 1
    if several or changing or equations.coefficients or equations.substeps is not None:
        return None

    given = {it.name: float(it.rows(lambda step: step, 0, 1)[0, 0]) for it in equations.parameters}
    programs = equations.stages[0].programs
    registers: list[_Sum] = []
    for it in programs.instructions:
        found = _sum_of(it, [registers[k] for k in it.arguments], given)
        if found is None:
            return None
        registers.append(found)

    total = registers[programs.results[0]]
    if not all(map(math.isfinite, total.values())) or total.get(None, 0.0) != 0.0:
        return None
    # An upwind difference has a weight of 0 on the side that the wind blows to.
    return {it: weight for it, weight in total.items() if it is not None and weight != 0} or None


def _sum_of(it: Instruction, of: list[_Sum], given: Mapping[str, float]) -> _Sum | None:
    """Return the result of an instruction as a sum of taps; None if it is none."""
    if it.operation == INPUT:
        if (tapped := as_tap(it.name)) is not None:
            return {tapped[1]: 1.0}
        return {None: given[it.name]} if it.name in given else None  # a coordinate
    if it.operation == CONSTANT:
        return {None: it.value}

    match it.operation, of:
        case "add", [a, b]:
            return _plus(a, b)
        case "subtract", [a, b]:
            return _plus(a, _times(b, -1.0))
        case "negative", [a]:
            return _times(a, -1.0)
        case "multiply", [a, b]:
            return _product(a, b)
        case "divide", [a, b] if _is_number(b) and b[None] != 0:
            return {place: weight / b[None] for place, weight in a.items()}
        case "fma", [a, b, c]:
            product = _product(a, b)
            return None if product is None else _plus(product, c)
    return None


def _is_number(it: _Sum) -> bool:
    return it.keys() == {None}


def _product(a: _Sum, b: _Sum) -> _Sum | None:
    if _is_number(a):
        return _times(b, a[None])
    return _times(a, b[None]) if _is_number(b) else None


def _times(a: _Sum, number: float) -> _Sum:
    return {place: weight * number for place, weight in a.items()}


def _plus(a: _Sum, b: _Sum) -> _Sum:
    return {place: a.get(place, 0.0) + b.get(place, 0.0) for place in {**a, **b}}


_AUTOMATIC_STAGES = 8  # of rkl2
_FOLLOWED_WHOLE = 1 << 12  # points: of smaller grids all are followed to what they become
_TRIED = 1 / 16  # of the first substep, in which methods are tried on random data


def assemble_equations(
    parts: Parts,
    time: TimeSection,
    *,
    dt: float | None = None,
    grows: bool = False,
    adaptive: bool = False,
    times: Sequence[float] = (),
) -> Problem:
    """The problem, with everything checked that a kernel relies on.

    Args:
        parts: what it is made of.
        time: how long, and in which steps.
        dt: of a run that is continued; it is kept.
        grows: whether a given step may be larger than the largest stable one.
        adaptive: whether steps that no stability limits are as long as their errors allow.
        times: at whose multiples steps end with `time.align` [s].

    Raises:
        ConfigError: numbers that cannot be computed, or a grid that is too small.
        UnstableStepError: the step is larger than the largest stable one.
    """
    if parts.system.noises and (
        parts.scheme != "euler" or time.scheme in SPLIT or time.solves or time.tolerance is not None
    ):
        msg = (
            "time.scheme: equations with noise are advanced by euler (Euler and Maruyama) or "
            "milstein, in steps of one length; take one of these, and no tolerance"
        )
        raise ConfigError(msg)
    if parts.system.elliptic and (time.scheme in SPLIT or time.solves):
        msg = (
            f"time.scheme: {time.scheme} integrates what changes with time, and 0 = ... gives a "
            "field at every moment; take an explicit scheme"
        )
        raise ConfigError(msg)
    parts = with_constraints(parts)
    if parts.system.wholes:
        if time.scheme in SPLIT or time.solves:
            msg = (
                f"time.scheme: {time.scheme} integrates what each point reads of its neighbours, "
                "and integral, mean, max and min are numbers of the whole grid; take an explicit "
                "scheme"
            )
            raise ConfigError(msg)
        parts = with_wholes(parts)
    if time.scheme in SPLIT:
        return _assemble_rates(parts, time, dt, adaptive=adaptive or time.tolerance is not None)
    if time.solves:
        found = _assemble_solved(parts, time, dt)
        # Heat balances have a solver of their own; any other right-hand sides are Newton's.
        heat = found.why_not_one_stencil is None and why_no_balance(found) is None
        return found if heat else _assemble_rates(parts, time, dt, adaptive=adaptive)
    if parts.scheme == "euler" and any(map(weno5_in, parts.system.right_sides.values())):
        msg = "time.scheme: with euler waves of weno5 grow; take ssprk3 or rk4"
        raise ConfigError(msg)
    if time.tolerance is not None:
        return _assemble_adaptive(parts, time, dt)
    # The step of a run that goes on was shortened when it began.
    pieces = 1 if dt is not None else pieces_of(time, times)
    if parts.scheme == "rkl2":
        made, limits = _stretch(parts, time, dt)
        _check_scalars(parts, made, time)
        taken, steps = _choose(time, limits, dt, grows=grows, scheme=parts.scheme, pieces=pieces)
        return _in_steps(parts, made, (taken, steps), limits.given)

    made = make_stages(parts.system, parts.scheme)
    _check_scalars(parts, made, time)
    # The step of a run that goes on was found when it began.
    limits = (
        StepLimits(math.inf, math.inf) if dt is not None and grows else _limits(parts, time, dt)
    )
    taken, steps = _choose(time, limits, dt, grows=grows, scheme=parts.scheme, pieces=pieces)
    return as_one_stencil(_in_steps(parts, made, (taken, steps), limits.given))


def _in_steps(parts: Parts, made: SchemeStages, time: tuple[float, int], limit: float) -> Problem:
    """The problem of stages in steps of one length."""
    equations = make_equations(parts, made, time[0])
    if not equations.is_local:
        substeps = substeps_of(parts, made, {}, (1, 1.0, time[0]), local=False)
        equations = replace(equations, substeps=substeps)
    return problem_of(parts, equations, time, limit)


def _assemble_solved(parts: Parts, time: TimeSection, dt: float | None) -> Problem:
    """The same, for steps of any length, each the solution of a system, or one to what lasts."""
    made = make_stages(parts.system, "euler")
    _check_scalars(parts, made, time)
    if time.scheme == "steady":
        limit, (taken, steps), start = math.inf, (1.0, 1), (1, 0.0)  # the one step takes no time
    else:
        limit, (taken, steps), start = _limits(parts, time, 1.0).given, _counted(time, dt), (0, 0.0)
    equations = make_equations(parts, made, taken)
    problem = problem_of(parts, equations, (taken, steps), limit)
    return as_one_stencil(replace(problem, start=start))


def _assemble_rates(
    parts: Parts, time: TimeSection, dt: float | None, *, adaptive: bool
) -> Problem:
    """The same, for right-hand sides that are integrated without explicit steps of them all."""
    made = make_rates(parts.system, nothing_yet(parts.system))
    _check_scalars(parts, made, time)
    steady = time.scheme == "steady"
    taken, steps = (1.0, 1) if steady else _counted(time, dt)
    values = parts.values(taken)

    def numbers(moment: float) -> Numbers:
        return made.hoist.numbers(values, moment)

    rates = integration(time, parts.dtype, numbers, adaptive=adaptive)
    courses = courses_of(parts, made)
    equations = replace(make_equations(parts, made, taken), rates=rates, courses=courses)
    problem = problem_of(parts, equations, (taken, steps), math.inf)
    return replace(problem, start=(1, 0.0) if steady else (0, 0.0))


def _stretch(parts: Parts, time: TimeSection, dt: float | None) -> tuple[SchemeStages, StepLimits]:
    """(a step by the fewest stages of rkl2 with which it is stable, its limits)."""
    # Of a run that goes on the step is known, but it was rounded, and from what is rounded another
    # number of stages might follow: the configuration decides as it did when the run began.
    wanted = time.dt if isinstance(time.dt, float) else None
    counts = range(3, MOST_STAGES) if wanted is not None else (_AUTOMATIC_STAGES,)
    for stages in (*counts, MOST_STAGES):
        limits = _limits(parts, time, dt, stages)
        if wanted is None or not is_unstable(wanted, limits.given):
            break
    return make_rkl2(parts.system, nothing_yet(parts.system), stages), limits


def _assemble_adaptive(parts: Parts, time: TimeSection, dt: float | None) -> Problem:
    """The same, for steps that are made of substeps; one is as long as `dt`, or `time.dt`."""
    assert time.tolerance is not None
    tolerance = tolerable(time.tolerance, parts.dtype)
    pair = PAIRS[parts.scheme]
    made, errors = make_pair(parts.system, nothing_yet(parts.system), pair)
    _check_scalars(parts, made, time)

    taken, steps = _counted(time, dt)
    limits = find_limits(
        *(parts.system, "euler", parts.grid, parts.values(0.0), parts.initial),
        time.t_end or taken * steps,
    )
    first = min(taken, limits.automatic) if limits.automatic > 0 else taken

    equations = make_equations(parts, made, _TRIED * first, (TIME, "dt"))
    chosen = pair.order, tolerance, first
    substeps = substeps_of(parts, made, errors, chosen, local=equations.is_local)
    base = make_rates(parts.system, nothing_yet(parts.system))
    equations = replace(equations, substeps=substeps, courses=courses_of(parts, base))
    return problem_of(parts, equations, (taken, steps), limits.automatic)


def _limits(
    parts: Parts, time: TimeSection, dt: float | None, stages: int = MOST_STAGES
) -> StepLimits:
    # Of a step that is given, by the user or by the run that goes on, only `given` is asked for.
    horizon = time.t_end if time.t_end is not None else 0.0
    small = math.prod(parts.grid.shape) <= _FOLLOWED_WHOLE and not parts.system.wholes
    return find_limits(
        *(parts.system, parts.scheme, parts.grid, parts.values(0.0), parts.initial, horizon),
        stages,
        follows=dt is None and time.dt in (None, "auto"),
        whole=functools.partial(_whole, parts) if small and _gives(parts) else None,
    )


def _gives(parts: Parts) -> bool:
    """Whether faces give values that fields do not have."""
    every = {face for it in parts.boundaries.values() for pair in it.faces for face in pair}
    resting = all(isinstance(it, Periodic) or it in (Neumann(), NoFlux()) for it in every)
    return not resting or bool(parts.system.drives or parts.system.closures)


def _whole(parts: Parts) -> tuple[Rate, Array]:
    """The right-hand sides of all points with their faces, by NumPy, and the state at time 0."""
    system = parts.system.quietened()
    made = make_rates(system, nothing_yet(system))
    values = parts.values(1.0)
    rates = Rates("etdrk4", 1.0, False, lambda moment: made.hoist.numbers(values, moment))
    equations = replace(make_equations(parts, made, 1.0), rates=rates)
    problem = problem_of(parts, equations, (1.0, 0), math.inf)
    return ArrayRates(problem), np.asarray(parts.initial(Slab.whole(parts.grid)), np.float64)


def _choose(
    time: TimeSection,
    limits: StepLimits,
    dt: float | None,
    *,
    grows: bool,
    scheme: Scheme,
    pieces: int,
) -> tuple[float, int]:
    """The time step [s] and the number of steps."""
    automatic = dt is None and (time.dt is None or time.dt == "auto")
    if (automatic or not grows) and limits.given == 0:
        other = "rk4, or leapfrog with second_order" if scheme != "rk4" else "more diffusion"
        msg = (
            f"time.scheme: no step of {scheme} is stable for these equations, which oscillate "
            f"without being damped; take {other}"
        )
        raise UnstableStepError(msg)
    if automatic and not 0 < limits.automatic < math.inf:
        msg = (
            "time.dt: auto needs equations whose speed sets a limit, and it comes out as "
            f"{limits.automatic:g} s; give time.dt"
        )
        raise ConfigError(msg)

    given = dt if dt is not None else time.dt
    wanted = time.safety * limits.automatic if automatic else float(given or 0.0)
    if not automatic and not grows and is_unstable(wanted, limits.given):
        msg = (
            f"time.dt = {wanted:.6g} s is unstable with {scheme}: the largest stable step at the "
            f"initial state is {limits.given:.6g} s; take at most that, another time.scheme, or "
            "time.dt: auto (or set model.allow_growth: true)"
        )
        raise UnstableStepError(msg)
    return _counted(time, dt, wanted, pieces)


def _counted(
    time: TimeSection, dt: float | None, wanted: float | None = None, pieces: int = 1
) -> tuple[float, int]:
    """(the time step [s], the number of steps), of a step that is given if none is wanted."""
    given = dt if dt is not None else time.dt
    taken = wanted if wanted is not None else given
    assert isinstance(taken, float)
    if time.t_end is None:
        steps = time.steps or 0
        if steps > MAX_STEPS:
            msg = f"time.steps = {steps} cannot be counted in a double; at most 2^53 are allowed"
            raise ConfigError(msg)
        return taken, steps
    steps = pieces * count_steps(time.t_end / pieces, taken)
    return (taken if dt is not None else time.t_end / steps), steps


_SAMPLE = 1 << 14  # points on which a step is halved


def error_of_a_step(parts: Parts, dt: float) -> float:
    """How far a step is off, relative to the largest value of its field: at the initial state, by
    halving it. Of a large grid a part in its middle is looked at, without faces.

    Args:
        parts: what the problem is made of.
        dt: the step [s].
    """
    width = max(16, int(_SAMPLE ** (1 / parts.grid.ndim)))
    if parts.grid.n_points > _SAMPLE:
        parts = middle_of(parts, width)
    whole = Slab.whole(parts.grid)
    states = []
    for count in (1, 2):
        time = TimeSection(dt=dt / count, steps=count)
        # The step is known, so its limits are not looked for.
        problem = assemble_equations(parts, time, dt=dt / count, grows=True)
        start = problem.initial(whole)
        states.append(reference.advance(start, problem, count).reshape(len(start), -1))

    # Of a method of order p the halves leave 2^-p of the error, at most half of it.
    sizes = np.abs(start).reshape(len(start), -1).max(axis=1)
    with np.errstate(all="ignore"):  # a state may stop being finite
        errors = np.abs(states[0] - states[1]).max(axis=1) / np.where(sizes > 0, sizes, np.inf)
    order = {"euler": 1, "rk4": 4, "ssprk3": 3}.get(parts.scheme, 2)
    return float(errors.max()) / (1 - 2.0**-order)


def _check_scalars(parts: Parts, made: SchemeStages, time: TimeSection) -> None:
    """Raise where numbers of the user make none at the begin of a run, as 1/k with k = 0 does."""
    # Where the step is not known yet, a short one: a formula of time need have no value after the
    # run.
    dt = time.dt if isinstance(time.dt, float) else 1e-6 * min(time.t_end or 1.0, 1.0)
    values = parts.values(dt, made)
    for parameter in made.hoist.parameters(values):
        rows = parameter.rows(lambda step: step * dt, 0, 1)
        if not np.isfinite(rows).all():
            tree = next(it for it, name in made.hoist.scalars.items() if name == parameter.name)
            names = sorted(name for name in names_in(tree) - {"dt", TIME} if name[0] != "@")
            of = f" of {', '.join(names)}" if names else ""
            msg = (
                f"model: a number{of} in the equations comes out as {rows[0, 0]}; is something "
                "divided by 0?"
            )
            raise ConfigError(msg)

    whole = tuple((0, min(n, 2)) for n in parts.grid.shape)
    for name, of_box in made.hoist.arrays(values, parts.grid).items():
        if not np.isfinite(of_box(whole)).all():
            tree = next(it for it, other in made.hoist.coefficients.items() if other == name)
            msg = f"model: what the equations have of {_listed(tree)} is not finite at some points"
            raise ConfigError(msg)


def _listed(tree: Node) -> str:
    return ", ".join(sorted(names_in(tree)))
