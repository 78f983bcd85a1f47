"""Alone: the plan for the CPU threads of one process, whose messages nobody has to measure."""

from __future__ import annotations

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.devices import Device
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.plan.find import find_offers
from tetris_sim.scheduler.plan.offer import GUESSES
from tetris_sim.scheduler.plan.plan import draft_plan


def plan_on_cpu(problem: Problem, machine: Machine, compute: ComputeSection) -> Plan:
    """All CPU threads advance everything.

    Args:
        problem: what to advance.
        machine: what there is.
        compute: what was asked for; its devices and shares do not count.

    Raises:
        UnsupportedError: the state does not fit into memory, or no method can be used.
    """
    on_cpu = compute.model_copy(update={"devices": "cpu", "shares": "auto"})
    offers, _ = find_offers(
        problem, machine, on_cpu, (Device("cpu"),), begun_with=None, use_cache=True
    )
    return draft_plan(problem, on_cpu, offers, GUESSES).finished()
