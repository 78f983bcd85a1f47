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
from tetris_sim.schema import ComputeSection
from tetris_sim.slab import Slab
from tetris_sim.wording import gib

# For predictions, within a factor of three: iterations that most bodies need by digit, time of a
# thread for an iteration and for what is made before the first one [s/point].
_ITERATIONS = 2.5
_ITERATION = 25e-9
_BEFORE = 300e-9
_SOLUTIONS = 2  # of an implicit step
_CPU = Device("cpu", 0)


def plan_solving(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    scheme: Literal["steady", "implicit"],
    tolerance: float,
) -> Plan:
    """Solve on the threads of the CPU.

    Raises:
        UnsupportedError: it cannot be solved, or does not fit into memory.
    """
    place, why_threads = _place(machine, compute, scheme)
    method, whole = place.solving(scheme).to(tolerance), Slab.whole(problem.grid)
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

    points, solved = problem.grid.n_points, _ITERATIONS * -math.log10(tolerance)
    solutions = 1 if scheme == "steady" else _SOLUTIONS
    seconds = points * solutions * (_BEFORE + _ITERATION * solved / place.threads)
    share = Share(
        worker=_CPU.name,
        slab=whole,
        method=method,
        parameters={},
        threads=place.threads,
        points_per_second=points / seconds,
        memory=needed,
        number=_CPU.number,
    )
    each = "" if scheme == "steady" else " a step, each second-order accurate at any length"
    return Plan(
        shares=(share,),
        time_block=1,
        seconds_per_step=seconds,
        redundant=0.0,
        copy_for_checkpoints=False,
        reasons=(
            why_threads,
            f"{method.name}: conjugate gradients with multigrid until the balance is off by "
            f"{tolerance:g} of what it was, about {seconds:.2g} s{each}.",
        ),
        scheme=scheme,
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
