"""Solving: the plan of a run that solves for its states, on the device that does it fastest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tetris_sim.errors import UnsupportedError
from tetris_sim.problem import Problem
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.devices import Device, choose_devices
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.machine.place import Place
from tetris_sim.scheduler.machine.teams import deal_threads
from tetris_sim.scheduler.plan.find import usable_bytes
from tetris_sim.scheduler.plan.words import describe_gpu
from tetris_sim.scheduler.tuning.candidates import RESERVE
from tetris_sim.schema import ComputeSection
from tetris_sim.slab import Slab
from tetris_sim.solvers.stepper import SolvingMethod
from tetris_sim.wording import gib

_ITERATIONS = 2.0  # that most bodies need by digit
_SOLUTIONS = 2  # of an implicit step


@dataclass(frozen=True)
class Rates:
    """What a device takes, for predictions: within a factor of three.

    Attributes:
        opened: until it is ready, once [s].
        before: until the first iteration, mostly on the host [s/point].
        iteration: of a thread, or of a GPU [s/point].
        passes: of an iteration, however few points there are [s].
    """

    opened: float
    before: float
    iteration: float
    passes: float

    def seconds(self, points: int, iterations: float, threads: int) -> float:
        """How long a solution takes."""
        each = self.passes + points * self.iteration / threads
        return self.opened + points * self.before + iterations * each


# Measured in November 2026 on two cores of an AMD EPYC, and on an H200.
_OF_CPU = Rates(0.0, 300e-9, 120e-9, 1e-3)
_OF_GPU = Rates(1.0, 250e-9, 0.11e-9, 1e-3)


@dataclass(frozen=True)
class _Offer:
    """A device that can solve."""

    device: Device
    place: Place
    method: SolvingMethod
    needed: int
    usable: int
    seconds: float
    described: str
    product: str


def plan_solving(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    scheme: Literal["steady", "implicit"],
    tolerance: float,
    ranks: int = 1,
) -> Plan:
    """Solve on the device that is predicted to be fastest of those that may be used and hold the
    grid.

    Raises:
        UnsupportedError: it cannot be solved, or does not fit into memory.
    """
    devices = _devices(machine, compute, scheme)
    offers = [
        _offer(problem, machine, compute, device, scheme=scheme, tolerance=tolerance)
        for device in devices
    ]
    if (refusal := offers[0].method.refusal(problem)) is not None:
        msg = f"time.scheme is {scheme}, but {refusal}"
        raise UnsupportedError(msg)
    fitting = [it for it in offers if it.needed <= it.usable]
    if not fitting:
        largest = max(offers, key=lambda it: it.usable)
        msg = (
            f"time.scheme is {scheme}, which takes {gib(largest.needed)} for the whole grid on one "
            f"device, but {gib(largest.usable)} can be had; take a coarser grid"
        )
        raise UnsupportedError(msg)

    best = min(fitting, key=lambda it: it.seconds)
    share = Share(
        worker=best.device.name,
        slab=Slab.whole(problem.grid),
        method=best.method,
        parameters={},
        threads=best.place.threads,
        points_per_second=problem.grid.n_points / best.seconds,
        memory=best.needed,
        product=best.product,
        number=best.device.number,
    )
    each = "" if scheme == "steady" else " a step, each second-order accurate at any length"
    return Plan(
        shares=(share,),
        time_block=1,
        seconds_per_step=best.seconds,
        redundant=0.0,
        copy_for_checkpoints=False,
        reasons=(
            best.described,
            f"{best.method.name}: conjugate gradients with multigrid until the balance is off by "
            f"{tolerance:g} of what it was, about {best.seconds:.2g} s{each}.",
            *_alone(best, offers, ranks),
        ),
        scheme=scheme,
    )


def _alone(best: _Offer, offers: Sequence[_Offer], ranks: int) -> list[str]:
    """Why others do nothing."""
    others = [
        f"{it.device.name} about {it.seconds:.2g} s"
        if it.needed <= it.usable
        else f"{it.device.name} would need {gib(it.needed)} of {gib(it.usable)}"
        for it in offers
        if it is not best
    ]
    said = []
    if others:
        said.append(f"One device solves, {best.device.name}: {', '.join(others)}.")
    if ranks > 1:
        said.append(f"One of {ranks} ranks solves for the whole grid; the others wait for it.")
    return said


def _offer(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    device: Device,
    *,
    scheme: Literal["steady", "implicit"],
    tolerance: float,
) -> _Offer:
    """What a device would need."""
    gpu = next((it for it in machine.gpus if device == Device("gpu", it.number)), None)
    teams, why_threads = deal_threads(machine, compute, (device,))
    place = Place(teams.get(device, 1), device.computes_on, device.number)
    method, whole = place.solving(scheme).to(tolerance), Slab.whole(problem.grid)
    needed, usable = method.memory(problem, whole, {}), usable_bytes(machine, compute, device, gpu)
    host, free = method.host_memory(problem, whole), machine.memory - RESERVE
    if host > free:
        needed, usable = host, free

    rates = _OF_CPU if gpu is None else _OF_GPU
    iterations = _ITERATIONS * -math.log10(tolerance)
    solutions = 1 if scheme == "steady" else _SOLUTIONS
    return _Offer(
        device,
        place,
        method,
        needed,
        usable,
        solutions * rates.seconds(problem.grid.n_points, iterations, place.threads),
        why_threads if gpu is None else describe_gpu(gpu, usable),
        "" if gpu is None else gpu.name,
    )


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
