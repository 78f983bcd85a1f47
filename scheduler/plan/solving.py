"""Solving: the plan of a run that solves for its states, on one device."""

from __future__ import annotations

import math
from typing import Literal

from tetris_sim.errors import UnsupportedError
from tetris_sim.problem import Problem
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.devices import Device, choose_devices
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.machine.place import Place
from tetris_sim.scheduler.machine.teams import deal_threads
from tetris_sim.scheduler.plan.find import usable_bytes
from tetris_sim.scheduler.plan.jumping import Jumps
from tetris_sim.scheduler.tuning.solving_rate import measure_solving
from tetris_sim.schema import ComputeSection
from tetris_sim.slab import Slab
from tetris_sim.solvers.adaptive import expected_steps
from tetris_sim.wording import gib

# For predictions, within a factor of three: iterations that most bodies need by digit, digits of a
# solution of an adaptive step, and how often what is made for its operator is made anew.
_ITERATIONS = 2.5
_DIGITS = 2.5
_ANEW = 0.3
_SOLUTIONS = 2  # of an implicit step; an error estimate is one more
_LINEARISED = 2.5  # of each, where the state is heat content
_CPU = Device("cpu", 0)


def plan_solving(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    scheme: Literal["steady", "implicit"],
    tolerance: float,
    *,
    stretches: Jumps | None = None,
) -> Plan:
    """Solve on the threads of the CPU.

    Args:
        problem: what is solved.
        machine: where.
        compute: what was asked for.
        scheme: for the steady state, or in steps.
        tolerance: of what is left of a balance; with stretches, of the error of a step.
        stretches: where the state is wanted, if steps may be as long as their error allows.

    Raises:
        UnsupportedError: it cannot be solved, or does not fit into memory.
    """
    place, why_threads = _place(machine, compute, scheme)
    method, whole = (
        place.solving(scheme).to(tolerance, adaptive=stretches is not None),
        Slab.whole(problem.grid),
    )
    if (refusal := method.refusal(problem)) is not None:
        msg = f"time.scheme is {scheme}, but {refusal}"
        raise UnsupportedError(msg)
    needed = method.memory(problem, whole, {})
    usable = usable_bytes(machine, compute, _CPU, None)
    if needed > usable:
        msg = (
            f"time.scheme is {scheme}, which takes {gib(needed)} for the whole grid on one device, "
            f"but {gib(usable)} can be had; take a coarser grid"
        )
        raise UnsupportedError(msg)

    block = 1 if stretches is None else stretches.longest
    whole_seconds, how = _predict(problem, place, scheme, tolerance, stretches)
    seconds = whole_seconds / (1 if scheme == "steady" else max(1, problem.steps))
    share = Share(
        worker=_CPU.name,
        slab=whole,
        method=method,
        parameters={},
        threads=place.threads,
        points_per_second=problem.grid.n_points / seconds,
        memory=needed,
        number=_CPU.number,
    )
    return Plan(
        shares=(share,),
        time_block=block,
        seconds_per_step=seconds,
        redundant=0.0,
        copy_for_checkpoints=False,
        reasons=(why_threads, f"{method.name}: conjugate gradients with multigrid {how}."),
        scheme=scheme,
    )


def _predict(
    problem: Problem, place: Place, scheme: str, tolerance: float, stretches: Jumps | None
) -> tuple[float, str]:
    """(seconds of the whole run, what is done until when)."""
    points, rate = problem.grid.n_points, measure_solving(place, problem.grid.n_points)
    is_linear = problem.conduction is None or problem.conduction.enthalpy is None
    often = 1.0 if is_linear else _LINEARISED
    if stretches is not None:
        t_end = problem.time(problem.steps) - problem.start[1]
        steps = expected_steps(t_end, problem.dt_limit, tolerance, stretches.count)
        solution = _ITERATIONS * _DIGITS * rate.iteration + _ANEW * rate.before
        each = points * (_SOLUTIONS + 1) * often * solution
        seconds = steps * each
        return seconds, (
            f"in about {steps} steps, as long as an error of {tolerance:g} of the range of "
            f"the state allows, {each:.2g} s each"
        )

    solution = often * _ITERATIONS * -math.log10(tolerance) * rate.iteration
    until = f"until the balance is off by {tolerance:g} of what it was, about"
    if scheme == "steady":
        seconds = points * (often * rate.before + solution)
        return seconds, f"{until} {seconds:.2g} s"
    made = rate.before * (1 if is_linear else problem.steps * often)
    seconds = points * (made + problem.steps * _SOLUTIONS * solution)
    return seconds, (
        f"{until} {seconds / max(1, problem.steps):.2g} s a step, each second-order accurate at "
        "any length"
    )


def _place(machine: Machine, compute: ComputeSection, scheme: str) -> tuple[Place, str]:
    """The team of threads that solves, and where their number comes from."""
    asked = choose_devices(machine, compute)[0] if compute.devices != "auto" else ()
    if compute.method != "auto" or any(device.kind != "cpu" for device in asked):
        what = compute.method if compute.method != "auto" else f"device {asked[0].name}"
        msg = (
            f"time.scheme is {scheme}, which one team of CPU threads solves, and {what} was asked "
            "for; leave compute.devices and compute.method out"
        )
        raise UnsupportedError(msg)
    teams, why_threads = deal_threads(machine, compute, (_CPU,))
    return Place(teams.get(_CPU, 1), _CPU.computes_on, _CPU.number), why_threads
