"""Jumping: the plan of a run that jumps from one wanted step to the next, on one device."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import tolerance
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.devices import Device, choose_devices
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.machine.place import Place
from tetris_sim.scheduler.machine.teams import deal_threads
from tetris_sim.scheduler.plan.find import usable_bytes
from tetris_sim.scheduler.plan.words import describe_gpu
from tetris_sim.scheduler.tuning.measure import check_method, check_steps
from tetris_sim.solvers.spectral.axis import NotSpectralError, Separable
from tetris_sim.solvers.spectral.operator import read_operator
from tetris_sim.solvers.spectral.propagation import Work, jump_work
from tetris_sim.support.wording import gib


@dataclass(frozen=True)
class Rates:
    """What a device does in a second, for predictions: within a factor of two.

    Attributes:
        transformed: numbers through a transform.
        multiplied: operations of large products.
        grown: coefficients.
        decomposed: operations on small matrices.
        once: elements of eigenvectors.
    """

    transformed: float
    multiplied: float
    grown: float
    decomposed: float
    once: float

    def seconds(self, work: Work) -> float:
        """How long a jump takes; what is done once apart."""
        names = ("transformed", "multiplied", "grown", "decomposed")
        return math.fsum(getattr(work, name) / getattr(self, name) for name in names)


_PER_THREAD = Rates(5e7, 1e10, 2e7, 1e9, 2e7)
_OF_GPU = Rates(3e9, 3e13, 5e9, 2e11, 5e9)


@dataclass(frozen=True)
class Jumps:
    """Where a run wants its state.

    Attributes:
        count: how many steps are wanted after the first, 1 or more.
        longest: most steps from one to the next, 1 or more.
    """

    count: int
    longest: int


def plan_jumps(problem: Problem, machine: Machine, compute: ComputeSection, jumps: Jumps) -> Plan:
    """Jump on the first device that was asked for, if it holds the grid.

    Raises:
        UnsupportedError: there is no jump, or no device holds the grid, or the answer is wrong.
    """
    device = choose_devices(machine, compute)[0][0]
    if compute.method != "auto" or device.kind == "simulated":
        what = device.name if compute.method == "auto" else compute.method
        msg = f"a jump is not possible: {what} makes one step after the other"
        raise UnsupportedError(msg)
    gpu = next((gpu for gpu in machine.gpus if device == Device("gpu", gpu.number)), None)
    teams, why_threads = deal_threads(machine, compute, (device,))
    place = Place(teams.get(device, 1), device.computes_on, device.number)

    usable = usable_bytes(machine, compute, device, gpu)
    method, whole = place.spectral, Slab.whole(problem.grid)
    _refuse_too_large(method.least_memory(problem), usable, device)  # before long axes are read
    try:
        operator = read_operator(problem)
    except NotSpectralError as error:
        msg = f"a jump is not possible: {error}"
        raise UnsupportedError(msg) from error

    needed = method.memory(problem, whole, {})
    _refuse_too_large(needed, usable, device)
    wrong = check_method(problem, method, {}, place=place)
    if wrong is not None:
        raise UnsupportedError(wrong)

    rates, threads = (_PER_THREAD, place.threads) if gpu is None else (_OF_GPU, 1)
    work = jump_work(operator, jumps.longest, method.types)
    seconds = rates.seconds(work) / threads + work.once / rates.once / jumps.count
    share = Share(
        worker=device.name,
        slab=whole,
        method=method,
        parameters={},
        threads=place.threads,
        points_per_second=problem.grid.n_points * jumps.longest / seconds,
        memory=needed,
        product="" if gpu is None else gpu.name,
        number=device.number,
    )
    kind = "constant coefficients" if isinstance(operator, Separable) else "layers"
    return Plan(
        shares=(share,),
        time_block=jumps.longest,
        seconds_per_step=seconds / jumps.longest,
        redundant=0.0,
        copy_for_checkpoints=False,
        reasons=(
            why_threads if gpu is None else describe_gpu(gpu, usable),
            f"{method.name}: {kind}, so {jumps.count} jumps of up to {jumps.longest} steps of the "
            f"same discrete scheme, about {seconds:.2g} s each; compared with {check_steps({})} "
            "steps of the reference on a small grid.",
            describe_rounding(problem, jumps.longest),
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
    """What is to be expected of the bits."""
    bound = tolerance(problem, steps, 1.0)
    return (
        f"A jump rounds a few times, {steps} steps round at every one: the two results may differ "
        f"by up to {bound:.2g} of the largest value."
    )
