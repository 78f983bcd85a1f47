"""Plan: on which devices a problem is advanced, and by which kind of plan."""

from __future__ import annotations

import dataclasses

from tetris_sim.errors import UnsupportedError
from tetris_sim.problem import Problem
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.gpus import Gpu
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.plan.cpu_plan import plan_on_cpu
from tetris_sim.scheduler.plan.members import name_members
from tetris_sim.scheduler.plan.mixed import plan_mixed
from tetris_sim.scheduler.tuning.candidates import Asked
from tetris_sim.schema import ComputeSection


def make_plan(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection | None = None,
    *,
    begun_with: Asked | None = None,
    use_cache: bool = True,
) -> Plan:
    """Decide how to advance `problem` on `machine`; measures for a few seconds unless that was done
    before.

    Args:
        problem: what to advance.
        machine: what there is.
        compute: what was asked for; everything automatic if not given.
        begun_with: method and parameters of the run that is continued, which are kept unless others
            are asked for.
        use_cache: whether method and parameters may be those that were measured in an earlier run,
            and are kept for later ones.

    Raises:
        UnsupportedError: if the state does not fit into the memory there is, or no method can be
            used.
        ConfigError: if a method, or more workers than the grid has planes for, is asked for that
            cannot be.
    """
    compute = compute or ComputeSection()
    why_device: tuple[str, ...] = ()
    if compute.devices in ("auto", "gpu"):
        _, why_device = choose_device(machine, compute)
    if names := name_members(machine, compute):
        try:
            return plan_mixed(
                problem, machine, compute, names, begun_with=begun_with, use_cache=use_cache
            )
        except UnsupportedError as error:
            if compute.devices != "auto":
                raise
            why_device = (f"The GPU is not used: {error}",)
    plan = plan_on_cpu(problem, machine, compute, begun_with=begun_with, use_cache=use_cache)
    return dataclasses.replace(plan, reasons=(*why_device, *plan.reasons))


def choose_device(machine: Machine, compute: ComputeSection) -> tuple[Gpu | None, tuple[str, ...]]:
    """(the GPU to compute on, or None for the CPU; a sentence where that is worth one).

    Raises:
        UnsupportedError: a GPU was asked for and there is none.
    """
    wants_one = compute.devices == "gpu" or (
        compute.devices == "auto" and compute.method.startswith("gpu.")
    )
    if wants_one and not machine.gpus:
        asked = (
            f"devices is {compute.devices}"
            if compute.devices == "gpu"
            else f"method is {compute.method}"
        )
        remedy = "Use compute.devices: cpu" if compute.devices == "gpu" else "Leave the method out"
        msg = f"compute.{asked}, but {machine.gpus_reason}. {remedy}, or use a machine with a GPU."
        raise UnsupportedError(msg)
    if compute.devices not in ("auto", "gpu") or not machine.gpus:
        return None, ()
    if compute.devices == "auto" and compute.method.startswith("cpu."):
        return None, (f"On the CPU, since compute.method is {compute.method}.",)
    return machine.gpus[0], ()
