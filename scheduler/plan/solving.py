"""Plans of runs without explicit steps: spectral propagation on one device, and linear solves on
the fastest device or on all ranks.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import tolerance
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Link, Plan, Share
from tetris_sim.scheduler.machine.machine import Device, Gpu, Machine, choose_devices
from tetris_sim.scheduler.machine.placement import ComputeResource, deal_threads
from tetris_sim.scheduler.plan.offer import describe_gpu
from tetris_sim.scheduler.plan.partition import cut_along_axis_0, split_by_speed
from tetris_sim.scheduler.tuning.candidates import RESERVE, usable_bytes
from tetris_sim.scheduler.tuning.measure import (
    SolvingRate,
    check_method,
    check_steps,
    measure_solving,
)
from tetris_sim.solvers.distributed import GHOSTS, LEAST, TOGETHER
from tetris_sim.solvers.implicit import expected_steps
from tetris_sim.solvers.spectral.axis import NotSpectralError, Separable
from tetris_sim.solvers.spectral.operator import read_operator
from tetris_sim.solvers.spectral.propagation import PropagationWork, jump_work
from tetris_sim.solvers.stepper import SolvingMethod
from tetris_sim.support.wording import gib

# Spectral propagation: the plan of a run that propagates the state from one output step to the next
# in one operation, on one device.


@dataclass(frozen=True)
class SpectralRates:
    """Rates of a device for the parts of a spectral propagation; predictions are right within a
    factor of two.

    Attributes:
        transformed: numbers through a transform [1/s].
        multiplied: operations of large matrix products [1/s].
        grown: coefficients propagated over the steps of a propagation [1/s].
        decomposed: operations on small matrices [1/s].
        once: elements of eigenvectors, computed once per run [1/s].
    """

    transformed: float
    multiplied: float
    grown: float
    decomposed: float
    once: float

    def seconds(self, work: PropagationWork) -> float:
        """Time of one propagation [s], without what is computed once."""
        names = ("transformed", "multiplied", "grown", "decomposed")
        return math.fsum(getattr(work, name) / getattr(self, name) for name in names)


# Rates of one CPU thread and of a GPU.
PER_THREAD = SpectralRates(5e7, 1e10, 2e7, 1e9, 2e7)
SPECTRAL_ON_GPU = SpectralRates(3e9, 3e13, 5e9, 2e11, 5e9)


@dataclass(frozen=True)
class SpectralPlan:
    """Output steps of a run, as far as predictions need them.

    Attributes:
        count: number of output steps after the first, at least 1.
        longest: most steps between two output steps, at least 1.
    """

    count: int
    longest: int


def plan_jumps(
    problem: Problem, machine: Machine, compute: ComputeSection, jumps: SpectralPlan
) -> Plan:
    """Plan a run by spectral propagation on the first requested device, if it holds the grid.

    Raises:
        UnsupportedError: the problem has no such propagation, no device holds the grid, or the
            result is wrong.
    """
    device = choose_devices(machine, compute)[0][0]
    if compute.method != "auto" or device.kind == "simulated":
        what = device.name if compute.method == "auto" else compute.method
        msg = f"a jump is not possible: {what} makes one step after the other"
        raise UnsupportedError(msg)
    gpu, place, why_threads = open_alone(machine, compute, device)
    usable = usable_bytes(machine, compute, device, gpu)
    method, whole = place.spectral, Slab.whole(problem.grid)
    _refuse_too_large(method.least_memory(problem), usable, device)  # before long axes are read
    # Checks go from cheap to expensive: memory, the operator, a comparison with the reference.
    try:
        operator = read_operator(problem)
    except NotSpectralError as error:
        msg = f"a jump is not possible: {error}"
        raise UnsupportedError(msg) from error

    needed = method.memory(problem, whole, {})
    _refuse_too_large(needed, usable, device)
    # What repeats the steps of the reference has the same eigenvectors as what is exact in time.
    repeating = dataclasses.replace(problem, continuous=False)
    wrong = check_method(repeating, method, {}, place=place)
    if wrong is not None:
        raise UnsupportedError(wrong)

    rates, threads = (PER_THREAD, place.threads) if gpu is None else (SPECTRAL_ON_GPU, 1)
    work = jump_work(operator, jumps.longest, method.types)
    # Work that is done once is spread over all propagations.
    seconds = rates.seconds(work) / threads + work.once / rates.once / jumps.count
    share = share_of_all(problem, device, place, method, jumps.longest / seconds, needed, gpu)
    kind = "constant coefficients" if isinstance(operator, Separable) else "layers"
    return Plan(
        shares=(share,),
        time_block=jumps.longest,
        seconds_per_step=seconds / jumps.longest,
        redundant=0.0,
        copy_for_checkpoints=False,
        reasons=(
            why_threads if gpu is None else describe_gpu(gpu, usable),
            f"{method.name}: {kind}, so {jumps.count} jumps of up to {jumps.longest} steps "
            + ("exact in time" if problem.continuous else "of the same discrete scheme")
            + f", about {seconds:.2g} s each; compared with {check_steps({})} "
            "steps of the reference on a small grid.",
            "A jump has no error in time, however long it is."
            if problem.continuous
            else describe_rounding(problem, jumps.longest),
        ),
        scheme="spectral",
    )


def _refuse_too_large(needed: int, usable: int, device: Device) -> None:
    if needed > usable:
        msg = (
            f"a jump is not possible: the whole grid on one device takes {gib(needed)}, but "
            f"{gib(usable)} can be had on {device.name}"
        )
        raise UnsupportedError(msg)


def describe_rounding(problem: Problem, steps: int) -> str:
    """Expected difference from the same number of explicit steps, by rounding."""
    bound = tolerance(problem, steps, 1.0)
    return (
        f"A jump rounds a few times, {steps} steps round at every one: the two results may differ "
        f"by up to {bound:.2g} of the largest value."
    )


def open_alone(
    machine: Machine, compute: ComputeSection, device: Device
) -> tuple[Gpu | None, ComputeResource, str]:
    """The GPU that a device is, its compute resource, and why it has so many threads."""
    gpu = next((gpu for gpu in machine.gpus if device == Device("gpu", gpu.number)), None)
    teams, why_threads = deal_threads(machine, compute, (device,))
    return (
        gpu,
        ComputeResource(teams.get(device, 1), device.computes_on, device.number),
        why_threads,
    )


def share_of_all(
    problem: Problem,
    device: Device,
    place: ComputeResource,
    method: Method,
    steps_per_second: float,
    needed: int,
    gpu: Gpu | None,
) -> Share:
    """The share of a device that has the whole grid."""
    return Share(
        worker=device.name,
        slab=Slab.whole(problem.grid),
        method=method,
        parameters={},
        threads=place.threads,
        points_per_second=problem.grid.n_points * steps_per_second,
        memory=needed,
        product="" if gpu is None else gpu.name,
        number=device.number,
    )


# Linear solves: the devices that may solve, and whether rank 0 solves alone or every rank solves on
# a slab of the linear systems.

# Constants of the prediction for several ranks.
_SURELY = 0.9  # of the time of rank 0 alone: predictions are no more accurate
_SOFTWARE = 3e-5  # of Python per message [s]
_SUMS = 4  # global sums per iteration
_SINGLE = 4  # bytes of a value that a multigrid cycle sends


@dataclass(frozen=True)
class SolvingOffer:
    """A device that can solve, with its predicted time.

    Attributes:
        device: the device.
        place: the compute resource of the device.
        method: method that solves there.
        needed: bytes for the whole grid.
        usable: bytes that may be used.
        seconds: predicted time for the whole grid and run [s].
        iterations: expected iterations of the run.
        how: description of the solution and its stopping criterion.
        described: description of the device, a sentence.
        product: product name of the GPU; empty for CPU threads.
    """

    device: Device
    place: ComputeResource
    method: SolvingMethod
    needed: int
    usable: int
    seconds: float
    iterations: float
    how: str
    described: str
    product: str

    @property
    def fits(self) -> bool:
        """Whether the device holds the whole grid."""
        return self.needed <= self.usable


def share_of(offer: SolvingOffer, slab: Slab, points_per_second: float) -> Share:
    """The share of a device that solves for a slab or for the whole grid."""
    return Share(
        worker=offer.device.name,
        slab=slab,
        method=offer.method,
        parameters={},
        threads=offer.place.threads,
        points_per_second=points_per_second,
        memory=offer.needed,
        product=offer.product,
        number=offer.device.number,
    )


def share_solution(
    problem: Problem, plan: Plan, offers: Sequence[SolvingOffer], link: Link | None
) -> Plan:
    """The plan of rank 0 alone, or that of all ranks together if it is predicted to be clearly
    faster.

    Args:
        problem: problem to solve.
        plan: plan of rank 0 alone.
        offers: device of each rank, in rank order.
        link: cost of a message; None with a single rank.
    """
    ranks = len(offers)
    if link is None:
        return plan
    waiting = f"One of {ranks} ranks solves for the whole grid; the others wait for it"
    if why_not := _why_not(problem, ranks):
        return _saying(plan, f"{waiting}: {why_not}.")

    grid, alone = problem.grid, offers[0].seconds
    # Slabs in proportion to predicted speeds; the slowest rank and the messages determine the time.
    speeds = [1 / it.seconds for it in offers]
    pieces = split_by_speed(grid.shape[0], speeds, min_planes=LEAST)
    shares_of_grid = [(stop - start) / grid.shape[0] for start, stop in pieces]
    talking = offers[0].iterations * _messages(grid.shape, ranks, link)
    working = max(part * it.seconds for part, it in zip(shares_of_grid, offers, strict=True))
    together = working + talking
    if together > _SURELY * alone:
        return _saying(
            plan, f"{waiting}: all together would take {together:.2g} s instead of {alone:.2g} s."
        )

    rate = sum(share.points_per_second for share in plan.shares) * alone / together
    slabs = cut_along_axis_0(grid, problem.boundary, pieces, halo=0)
    shares = tuple(
        dataclasses.replace(
            share_of(offer, slab, rate * part),
            # Rank 0 assembles the linear systems for the whole grid, so it needs all of the memory.
            memory=offer.needed if rank == 0 else math.ceil(offer.needed * part),
            rank=rank,
        )
        for rank, (offer, slab, part) in enumerate(zip(offers, slabs, shares_of_grid, strict=True))
    )
    said = (
        f"{ranks} ranks solve linear systems together, in slabs along {grid.axis_names[0]}, about "
        f"{together:.2g} s instead of {alone:.2g} s; rank 0 makes balances."
    )
    faster = dataclasses.replace(
        plan, shares=shares, seconds_per_step=plan.seconds_per_step * together / alone
    )
    return _saying(faster, said)


def _why_not(problem: Problem, ranks: int) -> str:
    """The reason why a grid is not shared between ranks; empty if it can be."""
    shape = problem.grid.shape
    if len(shape) == 1 or problem.grid.n_points <= TOGETHER:
        return f"up to {TOGETHER} points, and lines, are not shared"
    if shape[0] < ranks * LEAST:
        return f"each needs at least {LEAST} planes"
    return ""


def _messages(shape: Sequence[int], ranks: int, link: Link) -> float:
    """Time of an iteration spent on messages [s]: `PartArithmetic`, with every other plane kept
    along every axis on each coarser level.
    """
    latency = link.latency + _SOFTWARE
    n, across, visits, seconds = shape[0], math.prod(shape[1:]), 1, 0.0
    level = 0

    # Halo fills level by level, until the rest is small enough to be gathered on one rank. From the
    # third level on, the multigrid cycle visits each level twice per visit of the next finer one.
    while n * across > TOGETHER and n // ranks >= LEAST:
        times = 1 if level == 0 else 2
        fills = visits * (1 + 3 * times)
        n_bytes = 2 * GHOSTS * across * _SINGLE
        seconds += fills * (2 * latency + n_bytes * link.seconds_per_byte)
        visits *= times
        n, level = -(-n // 2), level + 1
        across = math.prod(-(-each // 2**level) for each in shape[1:])

    # Gathering of the coarsest shared level, and the global sums of an iteration.
    gathering = latency * ranks + n * across * _SINGLE * link.seconds_per_byte
    return seconds + visits * gathering + _SUMS * 2 * ranks * latency


def _saying(plan: Plan, reason: str) -> Plan:
    return dataclasses.replace(plan, reasons=(*plan.reasons, reason))


# Constants for predictions, right within a factor of three: iterations per decimal digit for most
# bodies, digits of a solution within an adaptive step, and the fraction of solutions for which the
# preconditioner is built again.
_ITERATIONS = 2.0
_DIGITS = 2.5
_ANEW = 0.3
_SOLUTIONS = 2  # of an implicit step; an error estimate is one more
_LINEARISED = 2.5  # of each, where conductances follow the state
_RADIATING = {"steady": 1.5, "implicit": 2.0, "adaptive": 1.0}  # where only faces are not linear
# Measured on an H200 in November 2026; the host assembles the linear system.
_OF_GPU = SolvingRate(before=250e-9, iteration=0.11e-9, opened=1.0, passes=1e-3)

Scheme = Literal["steady", "implicit"]


def solving_offers(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    scheme: Scheme,
    tolerance: float,
    *,
    stretches: SpectralPlan | None = None,
) -> list[SolvingOffer]:
    """The devices of this process that may solve, with their predicted times.

    Args:
        problem: problem to solve.
        machine: available hardware.
        compute: settings of the run.
        scheme: "steady" for the steady state, "implicit" for implicit steps.
        tolerance: relative residual at which a solution stops; with `stretches`, the error allowed
            per step.
        stretches: output intervals, if steps may be as long as their error allows.

    Raises:
        UnsupportedError: the problem cannot be solved in this way.
    """
    devices = solving_devices(machine, compute, scheme)
    refusal = (
        ComputeResource(1, devices[0].computes_on, devices[0].number)
        .solving(scheme)
        .refusal(problem)
    )
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
    stretches: SpectralPlan | None = None,
) -> Plan:
    """The plan of a single process: `on_fastest` of `solving_offers`."""
    offers = solving_offers(problem, machine, compute, scheme, tolerance, stretches=stretches)
    return on_fastest(problem, offers, scheme, stretches)


def on_fastest(
    problem: Problem,
    offers: Sequence[SolvingOffer],
    scheme: Scheme,
    stretches: SpectralPlan | None = None,
) -> Plan:
    """Plan to solve on the fastest of the devices that hold the grid, by prediction.

    Args:
        problem: problem to solve.
        offers: result of `solving_offers`.
        scheme: as for `solving_offers`.
        stretches: as for `solving_offers`.

    Raises:
        UnsupportedError: no device holds the grid.
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
    """A sentence about the devices that are not used, if there are any."""
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
    stretches: SpectralPlan | None,
) -> SolvingOffer:
    """The device with its memory and predicted time."""
    gpu, place, why_threads = open_alone(machine, compute, device)
    method = place.solving(scheme).to(tolerance, adaptive=stretches is not None)
    whole = Slab.whole(problem.grid)
    needed, usable = method.memory(problem, whole, {}), usable_bytes(machine, compute, device, gpu)
    # Report host memory instead if that is the one that is too small.
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
    problem: Problem,
    rate: SolvingRate,
    scheme: Scheme,
    tolerance: float,
    stretches: SpectralPlan | None,
) -> tuple[float, float, str]:
    """(time of the whole run [s], number of iterations, description with the stopping
    criterion).
    """
    points = problem.grid.n_points
    often = _linearisations(problem, "adaptive" if stretches is not None else scheme)
    before, iteration = points * rate.before, rate.passes + points * rate.iteration

    # Adaptive steps: each has the solutions of an implicit step, and one more for the error
    # estimate.
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

    # Fixed accuracy: iterations are proportional to the number of decimal digits.
    iterations = often * _ITERATIONS * -math.log10(tolerance)
    solution = iterations * iteration
    until = f"until the balance is off by {tolerance:g} of what it was, about"
    if scheme == "steady":
        seconds = rate.opened + often * before + solution
        return seconds, iterations, f"{until} {seconds:.2g} s"
    # A linear system with constant coefficients keeps its preconditioner for the whole run.
    made = before * (1 if often == 1 else problem.steps * _SOLUTIONS * often)
    seconds = rate.opened + made + problem.steps * _SOLUTIONS * solution
    each = seconds / max(1, problem.steps)
    how = f"{until} {each:.2g} s a step, each second-order accurate at any length"
    return seconds, problem.steps * _SOLUTIONS * iterations, how


def _linearisations(problem: Problem, how: str) -> float:
    """Expected number of linear solves per nonlinear system."""
    if problem.conduction is None:
        return 1.0
    if problem.conduction.enthalpy is not None:
        return _LINEARISED
    # Materials do not depend on the state from here on; faces may, for example by radiation.
    faces = [
        problem.ruled_face(axis, side)
        for axis in range(problem.grid.ndim)
        if not problem.boundary.periodic(axis)
        for side in SIDES
    ]
    return 1.0 if all(face.is_affine for face in faces) else _RADIATING[how]


def solving_devices(machine: Machine, compute: ComputeSection, scheme: str) -> Sequence[Device]:
    """The devices that may solve: the selected GPUs, and one team of all CPU threads."""
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
