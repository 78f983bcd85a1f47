"""Solving: the plan of a run that solves for its states, on one device."""

from __future__ import annotations

import math

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


def plan_solving(
    problem: Problem, machine: Machine, compute: ComputeSection, tolerance: float
) -> Plan:
    """Solve on the threads of the CPU.

    Raises:
        UnsupportedError: it cannot be solved, or does not fit into memory.
    """
    asked = choose_devices(machine, compute)[0] if compute.devices != "auto" else ()
    if compute.method != "auto" or any(device.kind != "cpu" for device in asked):
        what = compute.method if compute.method != "auto" else f"device {asked[0].name}"
        msg = (
            f"time.scheme is steady, which one team of CPU threads solves, and {what} was asked "
            "for; leave compute.devices and compute.method out"
        )
        raise UnsupportedError(msg)
    device = Device("cpu", 0)
    teams, why_threads = deal_threads(machine, compute, (device,))
    place = Place(teams.get(device, 1), device.computes_on, device.number)

    method, whole = place.steady.to(tolerance), Slab.whole(problem.grid)
    if (refusal := method.refusal(problem)) is not None:
        msg = f"time.scheme is steady, but {refusal}"
        raise UnsupportedError(msg)
    needed = method.memory(problem, whole, {})
    usable = usable_bytes(machine, compute, device, None)
    if needed > usable:
        msg = (
            f"time.scheme is steady, which takes {gib(needed)} for the whole grid on one device, "
            f"but {gib(usable)} can be had; take a coarser grid"
        )
        raise UnsupportedError(msg)

    digits = -math.log10(tolerance)
    points = problem.grid.n_points
    seconds = points * (_BEFORE + _ITERATION * _ITERATIONS * digits / place.threads)
    share = Share(
        worker=device.name,
        slab=whole,
        method=method,
        parameters={},
        threads=place.threads,
        points_per_second=points / seconds,
        memory=needed,
        number=device.number,
    )
    return Plan(
        shares=(share,),
        time_block=1,
        seconds_per_step=seconds,
        redundant=0.0,
        copy_for_checkpoints=False,
        reasons=(
            why_threads,
            f"{method.name}: conjugate gradients with multigrid until the heat balance is off by "
            f"{tolerance:g} of what it was, about {seconds:.2g} s.",
        ),
        scheme="steady",
    )
