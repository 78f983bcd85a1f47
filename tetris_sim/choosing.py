"""Choosing: by which scheme does a run get to the steps that somebody wants, and why?"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from tetris_sim.config import Config
from tetris_sim.errors import UnsupportedError
from tetris_sim.outputs.schedule import Moments, StepSchedule
from tetris_sim.problem import Problem
from tetris_sim.progress import format_duration
from tetris_sim.scheduler.comm.agreement import on_root
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.shares import Plan, Scheme
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.machine.place import is_spectral
from tetris_sim.scheduler.plan.jumping import Jumps, plan_jumps
from tetris_sim.scheduler.plan.solving import plan_solving
from tetris_sim.scheduler.planner import plan_together
from tetris_sim.scheduler.tuning.candidates import Asked
from tetris_sim.schema import ComputeSection

_MOST_COUNTED = 1 << 14  # steps that are wanted; of more, the rest is taken to lie as they do


@dataclass(frozen=True)
class Proposal:
    """What a scheme would do.

    Attributes:
        scheme: which.
        plan: how; None if it cannot.
        seconds: predicted, of the whole run; infinite if it cannot.
        why_not: the reason, if it cannot.
    """

    scheme: Scheme
    plan: Plan | None
    seconds: float
    why_not: str = ""


@dataclass(frozen=True)
class Setting:
    """What a plan is made for.

    Attributes:
        config: what was asked for.
        problem: what it describes.
        machine: the computer of this rank.
        compute: the section of the configuration as it counts.
        ranks: who takes part.
        first: the step at which the run begins.
        begun_with: method and parameters of the run that is continued.
        use_cache: whether choices of earlier runs count.
    """

    config: Config
    problem: Problem
    machine: Machine
    compute: ComputeSection
    ranks: Communicator
    first: int
    begun_with: Asked | None
    use_cache: bool


def choose_scheme(setting: Setting, *, compare: bool) -> tuple[Plan, tuple[Proposal, ...]]:
    """(the plan of the scheme that is asked for or faster, what each that was looked at would do).

    Args:
        setting: what the plan is made for.
        compare: whether others are looked at too.

    Raises:
        UnsupportedError: the scheme that is asked for cannot do it here.
        TetrisError: as `plan_together`.
    """
    asked = setting.config.time.scheme
    if setting.problem.equations is not None:
        asked = "explicit"  # how a step is made is in the equations
    if asked in ("steady", "implicit"):
        plan = _plan_solving(setting, asked, setting.config.time.unbalanced)
        left = setting.problem.steps - setting.first
        return plan, (Proposal(asked, plan, plan.seconds_per_step * left),)
    jumping = None
    if asked != "explicit" or compare:
        jumping = _propose_jumps(setting)
    if asked == "spectral":
        assert jumping is not None
        if jumping.plan is None:
            msg = f"time.scheme is spectral, but {jumping.why_not}. Take explicit, or auto."
            raise UnsupportedError(msg)
        return jumping.plan, (jumping,)

    if asked == "auto" and jumping is not None and jumping.plan is not None:
        kept = setting.begun_with is not None and is_spectral(setting.begun_with.method)
        short = jumping.seconds < setting.compute.tuning_seconds and not compare
        if kept or short:
            why = (
                "as the run was begun"
                if kept
                else "in less time than it takes to measure how fast steps are"
            )
            return _saying(jumping.plan, f"time.scheme: auto jumps, {why}."), (jumping,)

    stepping = _propose_steps(setting)
    assert stepping.plan is not None
    if jumping is None:
        return stepping.plan, (stepping,)
    proposals = (stepping, jumping)
    if asked == "explicit" and jumping.plan is None:
        return stepping.plan, proposals
    compared = _compared(asked, stepping, jumping)
    if asked == "auto" and jumping.plan is not None and jumping.seconds < stepping.seconds:
        return _saying(jumping.plan, compared), proposals
    return _saying(stepping.plan, compared), proposals


def _compared(asked: str, stepping: Proposal, jumping: Proposal) -> str:
    if jumping.plan is None:
        return f"Steps one after the other (explicit): {jumping.why_not}."
    steps, jumps = (f"about {format_duration(it.seconds)}" for it in (stepping, jumping))
    hint = ""
    if asked == "explicit" and jumping.seconds < stepping.seconds:
        hint = " time.scheme: auto takes the jumps."
    return (
        f"Steps one after the other (explicit) take {steps}, jumps over the same steps (spectral) "
        f"{jumps}.{hint}"
    )


def _saying(plan: Plan, sentence: str) -> Plan:
    return dataclasses.replace(plan, reasons=(sentence, *plan.reasons))


def _propose_steps(setting: Setting) -> Proposal:
    begun_with = setting.begun_with
    if begun_with is not None and is_spectral(begun_with.method):
        begun_with = None
    plan = plan_together(
        setting.problem,
        setting.machine,
        setting.compute,
        setting.ranks,
        begun_with=begun_with,
        use_cache=setting.use_cache,
    )
    left = setting.problem.steps - setting.first
    return Proposal(plan.scheme, plan, plan.seconds_per_step * left)


def _propose_jumps(setting: Setting) -> Proposal:
    """Rank 0 has the grid; the others hear its plan."""
    jumps = find_jumps(setting.config, setting.problem, setting.first)

    def propose() -> Proposal:
        try:
            plan = plan_jumps(setting.problem, setting.machine, setting.compute, jumps)
        except UnsupportedError as error:
            return Proposal("spectral", None, math.inf, str(error))
        return Proposal("spectral", plan, plan.seconds_per_step * jumps.longest * jumps.count)

    return on_root(setting.ranks, propose)


def _plan_solving(
    setting: Setting, scheme: Literal["steady", "implicit"], tolerance: float
) -> Plan:
    """Rank 0 has the grid; the others hear its plan."""
    return on_root(
        setting.ranks,
        lambda: plan_solving(
            setting.problem,
            setting.machine,
            setting.compute,
            scheme,
            tolerance,
            setting.ranks.size,
        ),
    )


def find_jumps(config: Config, problem: Problem, first: int = 0) -> Jumps:
    """At how many steps after `first` outputs or checkpoints want the state, and how far apart."""
    output, last = config.output, problem.steps
    fields = [it for it in (output.fields, *output.parts) if it is not None]
    everys = [it.every for it in fields if it.every is not None]
    everys += [it.every for it in output.probes]
    if output.statistics is not None:
        everys.append(output.statistics.every)
    if config.checkpoint.every is not None and config.checkpoint.every.unit != "wall":
        everys.append(config.checkpoint.every)
    schedules: list[StepSchedule | Moments] = [
        StepSchedule(every, problem.dt, last, problem.start) for every in dict.fromkeys(everys)
    ]
    schedules += [Moments(it.at, problem.dt, last, problem.start) for it in fields]

    count, longest, step = 0, 1, first
    while step < last and count < _MOST_COUNTED:
        wanted = [due for it in schedules if (due := it.next_step(step)) is not None]
        due = min([last, *wanted])
        count, longest, step = count + 1, max(longest, due - step), due
    if step < last:
        count = math.ceil(count * (last - first) / (step - first))
    return Jumps(max(1, count), longest)
