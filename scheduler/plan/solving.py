"""Solving: the plan of a run that solves for its states, on the device that does it fastest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.devices import Device, choose_devices
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.machine.place import Place
from tetris_sim.scheduler.machine.teams import deal_threads
from tetris_sim.scheduler.plan.find import usable_bytes
from tetris_sim.scheduler.plan.jumping import Jumps
from tetris_sim.scheduler.plan.solving_ranks import SolvingOffer, share_of
from tetris_sim.scheduler.plan.words import describe_gpu
from tetris_sim.scheduler.tuning.candidates import RESERVE
from tetris_sim.scheduler.tuning.solving_rate import SolvingRate, measure_solving
from tetris_sim.solvers.implicit import expected_steps
from tetris_sim.support.wording import gib

# For predictions, within a factor of three: iterations that most bodies need by digit, digits of a
# solution of an adaptive step, and how often what is made for its operator is made anew.
_ITERATIONS = 2.0
_DIGITS = 2.5
_ANEW = 0.3
_SOLUTIONS = 2  # of an implicit step; an error estimate is one more
_LINEARISED = 2.5  # of each, where conductances follow the state
_RADIATING = {"steady": 1.5, "implicit": 2.0, "adaptive": 1.0}  # where only faces are not linear
# On an H200 in November 2026; the host makes the balance.
_OF_GPU = SolvingRate(before=250e-9, iteration=0.11e-9, opened=1.0, passes=1e-3)

Scheme = Literal["steady", "implicit"]


def solving_offers(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    scheme: Scheme,
    tolerance: float,
    *,
    stretches: Jumps | None = None,
) -> list[SolvingOffer]:
    """The devices of this process that may solve.

    Args:
        problem: what is solved.
        machine: where.
        compute: what was asked for.
        scheme: for the steady state, or in steps.
        tolerance: of what is left of a balance; with stretches, of the error of a step.
        stretches: where the state is wanted, if steps may be as long as their error allows.

    Raises:
        UnsupportedError: it cannot be solved.
    """
    devices = _devices(machine, compute, scheme)
    refusal = Place(1, devices[0].computes_on, devices[0].number).solving(scheme).refusal(problem)
    if refusal is not None:
        msg = f"time.scheme is {scheme}, but {refusal}"
        raise UnsupportedError(msg)
    return [_offer(problem, machine, compute, it, scheme, tolerance, stretches) for it in devices]


def plan_solving(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    scheme: Scheme,
    tolerance: float,
    *,
    stretches: Jumps | None = None,
) -> Plan:
    """What one process would do: `on_fastest` of `solving_offers`."""
    offers = solving_offers(problem, machine, compute, scheme, tolerance, stretches=stretches)
    return on_fastest(problem, offers, scheme, stretches)


def on_fastest(
    problem: Problem,
    offers: Sequence[SolvingOffer],
    scheme: Scheme,
    stretches: Jumps | None = None,
) -> Plan:
    """Solve on the device that is predicted to be fastest of those that hold the grid.

    Args:
        problem: what is solved.
        offers: what `solving_offers` says.
        scheme: as there.
        stretches: as there.

    Raises:
        UnsupportedError: it does not fit into memory.
    """
    fitting = [it for it in offers if it.fits]
    if not fitting:
        largest = max(offers, key=lambda it: it.usable)
        msg = (
            f"time.scheme is {scheme}, which takes {gib(largest.needed)} for the whole grid on one "
            f"device, but {gib(largest.usable)} can be had; take a coarser grid"
        )
        raise UnsupportedError(msg)

    best = min(fitting, key=lambda it: it.seconds)
    seconds = best.seconds / (1 if scheme == "steady" else max(1, problem.steps))
    share = share_of(best, Slab.whole(problem.grid), problem.grid.n_points / seconds)
    return Plan(
        shares=(share,),
        time_block=1 if stretches is None else stretches.longest,
        seconds_per_step=seconds,
        redundant=0.0,
        copy_for_checkpoints=False,
        reasons=(
            best.described,
            f"{best.method.name}: conjugate gradients with multigrid {best.how}.",
            *_alone(best, offers),
        ),
        scheme=scheme,
    )


def _alone(best: SolvingOffer, offers: Sequence[SolvingOffer]) -> list[str]:
    """Why others do nothing."""
    others = [
        f"{it.device.name} about {it.seconds:.2g} s"
        if it.fits
        else f"{it.device.name} would need {gib(it.needed)} of {gib(it.usable)}"
        for it in offers
        if it is not best
    ]
    said = []
    if others:
        said.append(f"One device solves, {best.device.name}: {', '.join(others)}.")
    return said


def _offer(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    device: Device,
    scheme: Scheme,
    tolerance: float,
    stretches: Jumps | None,
) -> SolvingOffer:
    """What a device would need."""
    gpu = next((it for it in machine.gpus if device == Device("gpu", it.number)), None)
    teams, why_threads = deal_threads(machine, compute, (device,))
    place = Place(teams.get(device, 1), device.computes_on, device.number)
    method = place.solving(scheme).to(tolerance, adaptive=stretches is not None)
    whole = Slab.whole(problem.grid)
    needed, usable = method.memory(problem, whole, {}), usable_bytes(machine, compute, device, gpu)
    host, free = method.host_memory(problem, whole), machine.memory - RESERVE
    if host > free:
        needed, usable = host, free

    rate = _OF_GPU if gpu is not None else measure_solving(place, problem.grid.n_points)
    seconds, iterations, how = _predict(problem, rate, scheme, tolerance, stretches)
    return SolvingOffer(
        device,
        place,
        method,
        needed,
        usable,
        seconds,
        iterations,
        how,
        why_threads if gpu is None else describe_gpu(gpu, usable),
        "" if gpu is None else gpu.name,
    )


def _predict(
    problem: Problem, rate: SolvingRate, scheme: Scheme, tolerance: float, stretches: Jumps | None
) -> tuple[float, float, str]:
    """(seconds of the whole run, iterations, what is done until when)."""
    points = problem.grid.n_points
    often = _linearisations(problem, "adaptive" if stretches is not None else scheme)
    before, iteration = points * rate.before, rate.passes + points * rate.iteration
    if stretches is not None:
        t_end = problem.time(problem.steps) - problem.start[1]
        steps = expected_steps(t_end, problem.dt_limit, tolerance, stretches.count)
        solution = _ITERATIONS * _DIGITS * iteration + _ANEW * before
        each = (_SOLUTIONS + 1) * often * solution
        all_iterations = steps * (_SOLUTIONS + 1) * often * _ITERATIONS * _DIGITS
        how = (
            f"in about {steps} steps, as long as an error of {tolerance:g} of the range of "
            f"the state allows, {each:.2g} s each"
        )
        return rate.opened + steps * each, all_iterations, how

    iterations = often * _ITERATIONS * -math.log10(tolerance)
    solution = iterations * iteration
    until = f"until the balance is off by {tolerance:g} of what it was, about"
    if scheme == "steady":
        seconds = rate.opened + often * before + solution
        return seconds, iterations, f"{until} {seconds:.2g} s"
    made = before * (1 if often == 1 else problem.steps * _SOLUTIONS * often)
    seconds = rate.opened + made + problem.steps * _SOLUTIONS * solution
    each = seconds / max(1, problem.steps)
    how = f"{until} {each:.2g} s a step, each second-order accurate at any length"
    return seconds, problem.steps * _SOLUTIONS * iterations, how


def _linearisations(problem: Problem, how: str) -> float:
    """About how often each balance is solved."""
    if problem.conduction is None:
        return 1.0
    if problem.conduction.enthalpy is not None:
        return _LINEARISED
    faces = [
        problem.ruled_face(axis, side)
        for axis in range(problem.grid.ndim)
        if not problem.boundary.periodic(axis)
        for side in SIDES
    ]
    return 1.0 if all(face.is_affine for face in faces) else _RADIATING[how]


def _devices(machine: Machine, compute: ComputeSection, scheme: str) -> Sequence[Device]:
    """The devices that may solve."""
    devices = choose_devices(machine, compute)[0]
    simulated = [device.name for device in devices if device.kind == "simulated"]
    if compute.method != "auto" or simulated:
        what = compute.method if compute.method != "auto" else f"device {simulated[0]}"
        msg = (
            f"time.scheme is {scheme}, which CPU threads or a GPU solve by methods of their own, "
            f"and {what} was asked for; leave compute.devices and compute.method out"
        )
        raise UnsupportedError(msg)
    teams = [Device("cpu")] if any(device.kind == "cpu" for device in devices) else []
    return [*(device for device in devices if device.kind == "gpu"), *teams]
