"""Worker candidates: each device with its method, tuned on as much of the problem as it can
hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tetris_sim import cpu_kernels
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.facts.shares import Capacity, Plan, Reason, Share, about, shortened
from tetris_sim.scheduler.machine.machine import Device, Gpu, Machine
from tetris_sim.scheduler.machine.placement import ComputeResource, deal_threads, every_method
from tetris_sim.scheduler.plan.offer import (
    GUESSES,
    WorkerCandidate,
    describe_gpu,
    describe_simulated,
    planes_in,
)
from tetris_sim.scheduler.plan.plan import draft_plan
from tetris_sim.scheduler.tuning.candidates import RESERVE, TuningRequest, usable_bytes
from tetris_sim.scheduler.tuning.choice import Choice, giga, label_of
from tetris_sim.scheduler.tuning.measure import steps_per_block
from tetris_sim.scheduler.tuning.tune import Terms, tune
from tetris_sim.support.wording import count_threads, gib

_TUNED_ON = 0.8  # of the planes that fit, since tiles may need more than the linear estimate
# Time per block to wake the thread of a worker and to be notified by it [s]: 47 us measured for two
# (two cores of an AMD EPYC, Python 3.11, November 2026).
_HANDING_OVER = 5e-5
# Tuning budgets: the CPU is tried beside GPUs only in a run that takes longer than this many
# budgets, ...
_PATIENCE = 10.0
# ... and only if it could save more than this many of them. Beside an H200, a run of 173 s waited
# 17.7 s to learn that 16 cores contribute 1.5 % of the GPU's rate (9600 x 9600 points, float64,
# 2026-11-24).
_TRYING = 2.0
# A configuration that requests both gets both, unless the CPU could not reach this share of the
# rate of the GPUs.
_NEGLIGIBLE = 0.05
# Most products per second of a CPU thread: 2.7e10 in caches in 1D (AMD EPYC, Zen 4, float64,
# 2026-11-21), 1e10 in 2D (16 threads of an Intel Xeon, 2026-11-22).
_MOST_PRODUCTS = 2.7e10
_PIECE_ARRAYS = 4  # of a device through which chunks are streamed, instead of two


@dataclass(frozen=True)
class Tuned:
    """A device and the tuner's choice for it.

    Attributes:
        device: the device.
        gpu: its GPU; None for CPU threads.
        usable: bytes of its memory that the state may take.
        threads: CPU threads that compute on it.
        most_threads: CPU threads that were available to it.
        points_per_second: rate with this number of threads, or the limit of an emulated device.
        choice: method and parameters.
        described: description for the user.
        notes: sentences about a continued run that cannot keep its method.
    """

    device: Device
    gpu: Gpu | None
    usable: int
    threads: int
    most_threads: int
    points_per_second: float
    choice: Choice
    described: str
    notes: tuple[str, ...]


def find_offers(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    devices: Sequence[Device],
    *,
    begun_with: TuningRequest | None,
    use_cache: bool,
) -> tuple[list[WorkerCandidate], tuple[Reason, ...]]:
    """(candidates of the devices that are worth a share, why others were not tried). The CPU is not
    tuned beside GPUs if the run is short or the CPU could not save as much time as its tuning
    takes.

    Args:
        problem: problem to divide.
        machine: available hardware.
        compute: settings of the run.
        devices: devices in the order of their slabs.
        begun_with: method and parameters of the run that is continued.
        use_cache: whether tuning results of earlier runs are used.
    """
    terms = make_terms(compute, use_cache=use_cache)
    n_gpus = sum(device.kind == "gpu" for device in devices)

    offers: list[WorkerCandidate] = []
    for tuned in tune_devices(problem, machine, compute, devices, terms, begun_with):
        offers.append(_offer(problem, machine, compute, tuned, queued=not only_teams(devices)))
        # `tune_devices` tunes lazily, and GPUs come first: once they are known, the tuning of the
        # CPU can still be avoided by leaving the loop.
        if len(offers) != n_gpus or len(offers) == len(devices):
            continue
        why = _why_no_cpu(problem, machine, compute, offers)
        if why is not None:
            sentence = f"The CPU is not tried beside it: {why}."
            return offers, (Reason("device", sentence),)
    return offers, ()


def _why_no_cpu(
    problem: Problem, machine: Machine, compute: ComputeSection, gpus: Sequence[WorkerCandidate]
) -> str | None:
    """Why the CPU need not be tuned after the GPUs; None if it has to be."""
    named = compute.devices not in ("auto", "cpu+gpu") or compute.shares != "auto"
    if named or compute.method.startswith("cpu."):
        return None
    # The GPUs together do not hold the grid, so the CPU may be needed for its memory.
    if sum(offer.capacity.room for offer in gpus) < problem.grid.shape[0]:
        return None

    rate = sum(offer.capacity.points_per_second for offer in gpus)
    seconds = problem.steps * problem.grid.n_points * problem.n_fields / rate
    if compute.devices == "auto" and seconds < _PATIENCE * compute.tuning_seconds:
        return f"the run takes about {seconds:.2g} s"

    # An upper bound of the CPU's rate bounds the time that it could save.
    most = machine.threads * _MOST_PRODUCTS / problem.stencil.n_points
    saved = seconds * most / (rate + most)
    negligible = compute.devices == "auto" or most < _NEGLIGIBLE * rate
    if negligible and saved < _TRYING * compute.tuning_seconds:
        return (
            f"with {giga(most)} at most it could save {saved:.1f} of {seconds:.0f} s, and to find "
            "its method takes longer"
        )
    return None


def _offer(
    problem: Problem, machine: Machine, compute: ComputeSection, tuned: Tuned, *, queued: bool
) -> WorkerCandidate:
    """The candidate of a tuned device; a worker with its own thread also pays for being
    notified.
    """
    share, speed = _share_alone(problem, compute, tuned, queued), tuned.choice.speed
    # A device slowed down below the rate of its method is equally slow in blocks of any length.
    capped = share.points_per_second < speed.points_per_second
    capacity = Capacity(
        name=share.worker,
        points_per_second=share.points_per_second,
        start=speed.latency + _HANDING_OVER if queued else speed.latency,
        # Teams share one memory, into which all slabs must fit together, so a single team has no
        # limit.
        room=planes_in(problem, share, tuned.usable) if queued else Capacity.room,
        depth=1 if capped else steps_per_block(share.parameters),
        fixed=tuned.gpu is not None,
    )

    return WorkerCandidate(
        share=share,
        capacity=capacity,
        usable=tuned.usable,
        kind=tuned.device.kind,
        host=machine.host,
        host_memory=machine.memory - RESERVE,
        memory_reason=machine.memory_reason,
        product=share.product or machine.cpu,
        piece_room=planes_in(problem, share, 2 * tuned.usable // _PIECE_ARRAYS),
        reasons=(
            Reason("device", tuned.described),
            *about("method", (*tuned.choice.reasons, *tuned.notes)),
        ),
        notes=tuned.notes,
    )


def tune_devices(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    devices: Sequence[Device],
    terms: Terms,
    begun_with: TuningRequest | None = None,
) -> Iterator[Tuned]:
    """Tune the devices one after the other, each kind once: teams of one kind are as fast as they
    have threads.

    Args:
        problem: problem to divide.
        machine: available hardware.
        compute: settings of the run.
        devices: devices in the order of their slabs.
        terms: limits of the tuner, the same for all devices.
        begun_with: method and parameters of the run that is continued.

    Raises:
        UnsupportedError: a device has no memory or no method for its part.
        ConfigError: the settings contradict each other.
    """
    teams, why_threads = deal_threads(machine, compute, devices)
    if only_teams(devices):
        _refuse_what_does_not_fit(problem, machine)

    # Choices by product, and the combined rate of the devices tuned so far.
    known: dict[str, tuple[Choice, tuple[str, ...]]] = {}
    beside = 0.0
    for device in devices:
        gpu = next((gpu for gpu in machine.gpus if device == Device("gpu", gpu.number)), None)
        usable = usable_bytes(machine, compute, device, gpu)
        product = device.kind if gpu is None else gpu.name
        most_threads = teams.get(device, 1)

        if product not in known:
            own_terms = dataclasses.replace(
                terms,
                asked=_asked_of(device, devices, terms.asked),
                threads=most_threads,
                gpu=_limited(gpu, usable),
                beside=beside,
            )
            # Unless all devices are CPU threads, each is tuned on the part that it holds, and keeps
            # the method of a continued run only if that runs on its kind.
            part, kept = problem, begun_with
            if not only_teams(devices):
                part = _part_that_fits(problem, device, usable, gpu)
                kept = kept if kept and kept.method.startswith(f"{device.computes_on}.") else None
            known[product] = _choose(part, machine, own_terms, kept)

        choice, notes = known[product]
        # Several teams use all their threads; only a single team may be reduced to the number that
        # was fastest.
        threads = choice.threads if len(teams) == 1 else most_threads
        rate = choice.speed.points_per_second
        if gpu is None:
            rate *= threads / choice.threads
        if device.kind == "simulated":
            rate = min(rate, compute.simulated.speed)
        beside += rate

        described = why_threads
        if gpu is not None:
            described = describe_gpu(gpu, usable)
        elif device.kind == "simulated":
            described = describe_simulated(device.name, compute.simulated, usable)
        elif not only_teams(devices):
            own = f"{device.name}: {count_threads(threads)} of {machine.threads}"
            described = f"{own}; {machine.threads_reason}."
        yield Tuned(device, gpu, usable, threads, most_threads, rate, choice, described, notes)


def only_teams(devices: Sequence[Device]) -> bool:
    """Whether all devices are teams of CPU threads, which share one memory."""
    return all(device.kind == "cpu" for device in devices)


def make_terms(compute: ComputeSection, *, use_cache: bool) -> Terms:
    """Constraints from the configuration for the tuner, the same for all devices.

    Args:
        compute: settings of the run.
        use_cache: as for `make_plan`.
    """
    alone = isinstance(compute.devices, str) or len(compute.devices) == 1
    return Terms(
        TuningRequest(compute.method, dict(compute.parameters)),
        threads=1,
        fixed_threads=compute.threads != "auto" or not alone,
        budget=compute.tuning_seconds,
        patient=compute.tuning_budget == "auto",
        use_cache=use_cache,
    )


def _choose(
    problem: Problem, machine: Machine, terms: Terms, begun_with: TuningRequest | None
) -> tuple[Choice, tuple[str, ...]]:
    """(the tuner's choice, sentences about a continued run that cannot keep its method).

    Args:
        problem: problem to advance.
        machine: available hardware.
        terms: constraints of the tuner.
        begun_with: method and parameters of the run that is continued, kept unless the
            configuration requests others.
    """
    if begun_with is None:
        return tune(problem, machine, terms), ()

    before = label_of(begun_with.method, begun_with.parameters or {})
    trouble = ""
    # An explicit request takes precedence over the method of the continued run.
    if terms.asked.method == "auto":
        try:
            kept = tune(problem, machine, dataclasses.replace(terms, asked=begun_with))
        except (ConfigError, UnsupportedError) as error:
            trouble = f" It cannot be kept: {error}"
        else:
            reason = f"{before} is kept from the run that is continued."
            return dataclasses.replace(kept, reasons=(*kept.reasons, reason)), ()

    choice = tune(problem, machine, terms)
    if label_of(choice.method.name, choice.parameters) == before:
        return choice, ()
    # Exact methods have the same bits, whatever method is replaced by another of them.
    exact = {method.name for method in every_method() if method.exact}
    kept_bits = exact >= {choice.method.name, begun_with.method}
    return choice, (
        f"The run was begun with {before} and goes on with "
        f"{label_of(choice.method.name, choice.parameters)}: the result "
        f"{'has the same bits' if kept_bits else 'may differ within rounding'}.{trouble}",
    )


def _share_alone(problem: Problem, compute: ComputeSection, tuned: Tuned, queued: bool) -> Share:
    """The share of the whole grid that a device would have alone."""
    choice, device = tuned.choice, tuned.device
    return Share(
        worker=device.name,
        slab=Slab.whole(problem.grid),
        method=choice.method,
        parameters=choice.parameters,
        threads=1 if tuned.gpu is not None else tuned.threads,
        points_per_second=tuned.points_per_second,
        memory=0,
        product="" if tuned.gpu is None else tuned.gpu.name,
        queued=queued,
        simulated=compute.simulated if device.kind == "simulated" else None,
        number=device.number,
    )


def _asked_of(device: Device, devices: Sequence[Device], asked: TuningRequest) -> TuningRequest:
    """The request as it applies to a device: a method of the other kind of device leaves this one
    free.
    """
    others = {other.computes_on for other in devices} - {device.computes_on}
    for_others = any(asked.method.startswith(f"{kind}.") for kind in others)
    return TuningRequest() if for_others else asked


def _limited(gpu: Gpu | None, usable: int) -> Gpu | None:
    """The GPU with its memory limited to what the tuner may use."""
    if gpu is None:
        return None
    return dataclasses.replace(gpu, memory=min(gpu.memory, usable + RESERVE))


def _refuse_what_does_not_fit(problem: Problem, machine: Machine) -> None:
    """Raise, before anything is measured, if the state does not fit into memory even with the
    method that needs least.
    """
    method = cpu_kernels.METHODS[-1]
    needed = method.memory(problem, Slab.whole(problem.grid), method.parameters(problem)[0])
    if needed + RESERVE > machine.memory:
        shape = " x ".join(str(n) for n in reversed(problem.grid.shape))
        msg = (
            f"the grid of {shape} points in {problem.dtype} needs {gib(needed)} of memory and "
            f"{gib(RESERVE)} beside it, but {gib(machine.memory)} can be had "
            f"({machine.memory_reason}). Use a smaller grid, compute.precision: float32, or a "
            "machine with more memory."
        )
        raise UnsupportedError(msg)


def _part_that_fits(problem: Problem, device: Device, usable: int, gpu: Gpu | None) -> Problem:
    """The whole problem, or as many planes of it as fit into the memory of the device."""
    method = ComputeResource(device=device.computes_on).methods[-1]
    parameters = method.parameters(problem)[0]
    needed = method.memory(problem, Slab.whole(problem.grid), parameters)
    if needed <= usable:
        return problem

    # Fewer planes than a stencil reaches in both directions leave nothing to advance.
    planes = int(problem.grid.shape[0] * _TUNED_ON * max(usable, 0) / needed)
    if planes < 2 * problem.stencil.radii[0] + 1:
        where = f"memory, but {gib(usable)} can be had"
        if gpu is not None:
            where = (
                f"GPU memory and {gib(RESERVE)} beside it, but {gib(gpu.memory)} are free on "
                f"{gpu.name}"
            )
        msg = f"the grid needs {gib(needed)} of {where}"
        raise UnsupportedError(msg)
    # Streamed chunks hold values as the state does, so pairs of floats are off.
    return dataclasses.replace(shortened(problem, planes), pairs=False)


# Plans for the CPU threads of one process, which measure no messages.


def plan_on_cpu(problem: Problem, machine: Machine, compute: ComputeSection) -> Plan:
    """A plan in which all CPU threads advance the whole grid.

    Args:
        problem: problem to advance.
        machine: available hardware.
        compute: settings of the run; its devices and shares are ignored.

    Raises:
        UnsupportedError: the state does not fit into memory, or no method can be used.
    """
    on_cpu = compute.model_copy(update={"devices": "cpu", "shares": "auto"})
    offers, _ = find_offers(
        problem, machine, on_cpu, (Device("cpu"),), begun_with=None, use_cache=True
    )
    return draft_plan(problem, on_cpu, offers, GUESSES).finished()
