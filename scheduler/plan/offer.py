"""Offer: what each device brings, its method tuned on as much of the problem as it can hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tetris_sim import cpu_kernels
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.grid import Grid
from tetris_sim.method import STEPWISE
from tetris_sim.problem import Problem
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.division import Capacity
from tetris_sim.scheduler.facts.domain import Work
from tetris_sim.scheduler.facts.link import Link
from tetris_sim.scheduler.facts.shares import Share
from tetris_sim.scheduler.facts.streaming import Streaming
from tetris_sim.scheduler.machine.devices import Device, Kind
from tetris_sim.scheduler.machine.gpus import Gpu
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.machine.place import Place
from tetris_sim.scheduler.plan.streaming import Lane
from tetris_sim.scheduler.plan.words import Reason, about, describe_gpu, describe_simulated
from tetris_sim.scheduler.tuning.candidates import RESERVE, Asked, label_of
from tetris_sim.scheduler.tuning.choice import Choice
from tetris_sim.scheduler.tuning.measure import steps_per_block
from tetris_sim.scheduler.tuning.tune import Terms, tune
from tetris_sim.schema import ComputeSection
from tetris_sim.slab import Slab
from tetris_sim.wording import count_threads, gib

# they wait for each other at every step: with many more, hardly anything moves
_THREADS_PER_CORE = 8
_TUNED_ON = 0.8  # of the planes that fit: tiles of a method may need more than the linear estimate
# seconds per block to wake the thread of a worker and to hear from it: 47 us measured for two
# (two cores of an AMD EPYC, Python 3.11, November 2026)
_HANDING_OVER = 5e-5


@dataclass(frozen=True)
class Measures:
    """What measures on real devices, handed in by who may open them.

    Attributes:
        messages: what giving or taking a message costs the worker of a share, through the memory of
            the host or not.
        copies: seconds per byte to the memory of a share's device, and back.
        exchange: what an exchange between ranks costs, with these shares, one of each rank, and
            with planes handed to MPI in GPU memory or not.
    """

    messages: Callable[[Problem, Share, bool], Link]
    copies: Callable[[Share], tuple[float, float]]
    exchange: Callable[[Problem, Sequence[Share], Communicator, bool], Link]


@dataclass(frozen=True)
class Offer:
    """A worker that may get a share, and what is known of it.

    Attributes:
        share: what it would do alone; of which rank it is.
        capacity: how fast it is, what its messages cost, and how many planes it holds.
        usable: bytes of its memory that the state may take.
        kind: of its device.
        host: name of its computer.
        host_memory: bytes of the memory of that computer that all its slabs there may take.
        memory_reason: what limits that.
        product: name of its GPU or CPU.
        lane: how pieces go through it, if its slab lies in host memory.
        reasons: why it does what it does.
        notes: what must be said about a run that does not go on as it was begun.
    """

    share: Share
    capacity: Capacity
    usable: int
    kind: Kind
    host: str
    host_memory: int
    memory_reason: str
    product: str
    lane: Lane | None = None
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the worker."""
        return self.share.worker

    @property
    def remote(self) -> bool:
        """Whether it has a memory of its own."""
        return self.kind != "cpu"

    @property
    def steps(self) -> int:
        """That its method makes at a time."""
        return steps_per_block(self.share.parameters)

    def bytes_for(self, problem: Problem, slab: Slab) -> int:
        """Memory that its method takes for a slab."""
        return self.share.method.memory(problem, slab, self.share.parameters)

    def streamed(self, lane: Lane, streaming: Streaming, room: int) -> Offer:
        """The same with a slab in host memory, which has room for so many planes."""
        capacity = dataclasses.replace(
            self.capacity,
            points_per_second=streaming.points_per_second,
            start=streaming.start,
            depth=streaming.steps,
            fixed=True,
            room=room,
        )
        share = dataclasses.replace(self.share, streamed=streaming)
        return dataclasses.replace(self, share=share, capacity=capacity, lane=lane)


@dataclass(frozen=True)
class Tuned:
    """What the tuner chose for a device.

    Attributes:
        device: which one.
        gpu: if it is one.
        usable: bytes of its memory that the state may take.
        threads: that compute on it.
        most_threads: that were tried.
        points_per_second: of so many threads, or as the made-up device allows.
        choice: method and parameters.
        described: what it is, for people.
        notes: what must be said about a run that does not go on as it was begun.
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
    begun_with: Asked | None,
    use_cache: bool,
) -> Iterator[Offer]:
    """What one device after the other can do; the caller may stop when it knows enough.

    Args:
        problem: what is to be divided.
        machine: what there is.
        compute: what was asked for.
        devices: in the order in which their slabs lie.
        begun_with: method and parameters of the run that is continued.
        use_cache: whether earlier choices count.
    """
    terms = make_terms(compute, use_cache=use_cache)
    queued = not only_teams(devices)
    for tuned in tune_devices(problem, machine, compute, devices, terms, begun_with):
        share, latency = _share_alone(problem, compute, tuned, queued), tuned.choice.speed.latency
        capacity = Capacity(
            name=share.worker,
            points_per_second=share.points_per_second,
            start=latency + _HANDING_OVER if queued else latency,
            room=planes_in(problem, share, tuned.usable),
            depth=steps_per_block(share.parameters),
            fixed=tuned.gpu is not None,
        )
        yield Offer(
            share=share,
            capacity=capacity,
            usable=tuned.usable,
            kind=tuned.device.kind,
            host=machine.host,
            host_memory=machine.memory - RESERVE,
            memory_reason=machine.memory_reason,
            product=share.product or machine.cpu,
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
    begun_with: Asked | None = None,
) -> Iterator[Tuned]:
    """Tune one device after the other, each kind once: teams of the same kind are as fast as they
    have threads.

    Args:
        problem: what is to be divided.
        machine: what there is.
        compute: what was asked for.
        devices: in the order in which their slabs lie.
        terms: what the tuner may do, whatever the device.
        begun_with: method and parameters of the run that is continued.

    Raises:
        UnsupportedError: a device has no memory or no method for its part.
        ConfigError: what was asked for does not fit together.
    """
    teams, why_threads = _teams(machine, compute, devices)
    if only_teams(devices):
        _refuse_what_does_not_fit(problem, machine)

    known: dict[str, tuple[Choice, tuple[str, ...]]] = {}
    beside = 0.0
    for device in devices:
        gpu = next((gpu for gpu in machine.gpus if device == Device("gpu", gpu.number)), None)
        usable = _usable(machine, compute, device, gpu)
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
            part, kept = problem, begun_with
            if not only_teams(devices):
                part = _part_that_fits(problem, device, usable, gpu)
                kept = kept if kept and kept.method.startswith(f"{device.computes_on}.") else None
            known[product] = _choose(part, machine, own_terms, kept)

        choice, notes = known[product]
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
    """Whether all devices are CPU threads, which share one memory."""
    return all(device.kind == "cpu" for device in devices)


def make_terms(compute: ComputeSection, *, use_cache: bool) -> Terms:
    """What the configuration says to the tuner, whatever the device.

    Args:
        compute: the configuration.
        use_cache: as for `make_plan`.
    """
    alone = isinstance(compute.devices, str) or len(compute.devices) == 1
    return Terms(
        Asked(compute.method, dict(compute.parameters)),
        threads=1,
        fixed_threads=compute.threads != "auto" or not alone,
        budget=compute.tuning_seconds,
        patient=compute.tuning_budget == "auto",
        use_cache=use_cache,
    )


def decide_threads(
    machine: Machine, compute: ComputeSection, workers: int, *, driving: int = 0
) -> tuple[int, str]:
    """(CPU threads of all workers together, where that number comes from).

    Args:
        machine: what there is.
        compute: what was asked for.
        workers: that compute with threads.
        driving: cores that are left to GPUs, if the configuration leaves the number open.

    Raises:
        ConfigError: they are too many for the cores, too few for the workers, or none is left.
    """
    there = f"there are {machine.threads} {machine.threads_reason}"
    if compute.threads == "auto":
        if compute.reserve_cores >= machine.threads:
            msg = (
                f"compute.reserve_cores is {compute.reserve_cores}, but {there}; leave at least "
                "one to compute with"
            )
            raise ConfigError(msg)
        reserved = min(compute.reserve_cores + driving, machine.threads - 1)
        free = machine.threads - reserved
        threads = max(free, workers)
        reason = f"{count_threads(threads)}: {machine.threads_reason}"
        reason += f", {reserved} of {machine.threads} left free" if reserved else ""
        reason += (
            f", which are fewer than the {workers} workers, so each has one thread"
            if free < workers
            else ""
        )
    else:
        threads = compute.threads
        reason = f"{count_threads(threads)}, as asked; {there}"

    if threads < workers:
        msg = (
            f"compute.threads is {threads}, but compute.devices names {workers} workers, and each "
            "needs a thread"
        )
        raise ConfigError(msg)
    if threads > _THREADS_PER_CORE * machine.threads:
        asked, remedy = f"compute.threads is {threads}", "Leave it out, or set it to auto"
        if workers == threads:
            asked, remedy = (
                f"compute.devices names {workers} workers with a thread each",
                "Name fewer",
            )
        msg = (
            f"{asked}, but {there}; at most {_THREADS_PER_CORE} per core are allowed, and one per "
            f"core is fastest. {remedy}."
        )
        raise ConfigError(msg)
    return threads, f"{reason}."


def planes_in(problem: Problem, share: Share, n_bytes: int) -> int:
    """Planes along axis 0 that so many bytes hold with the method of a share."""

    def needed(planes: int) -> int:
        longer = shortened(problem, planes)
        return share.method.memory(longer, Slab.whole(longer.grid), share.parameters)

    few = max(1, problem.grid.shape[0] // 2)
    one, two = needed(few), needed(2 * few)
    # Rows are padded: on a short axis, more planes may take no more memory.
    per_plane = max((two - one) / few, Work.of(problem).plane_bytes)
    return max(0, int((n_bytes - max(0.0, one - few * per_plane)) / per_plane))


def shortened(problem: Problem, planes: int) -> Problem:
    """The problem on another number of planes."""
    shape = (max(planes, problem.stencil.radii[0], 1), *problem.grid.shape[1:])
    return dataclasses.replace(
        problem, grid=Grid(shape=shape, spacing=problem.grid.spacing, origin=problem.grid.origin)
    )


def _choose(
    problem: Problem, machine: Machine, terms: Terms, begun_with: Asked | None
) -> tuple[Choice, tuple[str, ...]]:
    """(what the tuner chooses, what must be said about a run that does not go on as it was begun).

    Args:
        problem: what is to be advanced.
        machine: on what.
        terms: for the tuner.
        begun_with: method and parameters of the run that is continued, kept unless others are asked
            for.
    """
    if begun_with is None:
        return tune(problem, machine, terms), ()

    before = label_of(begun_with.method, begun_with.parameters or {})
    trouble = ""
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
    exact = choice.method.name in STEPWISE and begun_with.method in STEPWISE
    return choice, (
        f"The run was begun with {before} and goes on with "
        f"{label_of(choice.method.name, choice.parameters)}: the result "
        f"{'has the same bits' if exact else 'may differ within rounding'}.{trouble}",
    )


def _share_alone(problem: Problem, compute: ComputeSection, tuned: Tuned, queued: bool) -> Share:
    """What a device would do alone."""
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


def _teams(
    machine: Machine, compute: ComputeSection, devices: Sequence[Device]
) -> tuple[dict[Device, int], str]:
    """(CPU threads of each worker that computes with some, where their number comes from); a core
    is left to each GPU that is driven beside them.
    """
    teams = [device for device in devices if device.kind != "gpu"]
    n = len(teams)
    if not teams:
        return {}, ""
    threads, reason = decide_threads(machine, compute, n, driving=len(devices) - n)
    dealt = {
        device: max(1, threads * (k + 1) // n - threads * k // n) for k, device in enumerate(teams)
    }
    return dealt, reason


def _asked_of(device: Device, devices: Sequence[Device], asked: Asked) -> Asked:
    """What is said about the method counts for the devices that it runs on; the others choose."""
    others = {other.computes_on for other in devices} - {device.computes_on}
    for_others = any(asked.method.startswith(f"{kind}.") for kind in others)
    return Asked() if for_others else asked


def _usable(machine: Machine, compute: ComputeSection, device: Device, gpu: Gpu | None) -> int:
    """Bytes that the state may take in the memory of a device."""
    if device.kind == "cpu":
        return machine.memory - RESERVE
    free = int(compute.simulated.memory) if gpu is None else gpu.memory - RESERVE
    return free if compute.gpu_memory == "auto" else min(free, int(compute.gpu_memory))


def _limited(gpu: Gpu | None, usable: int) -> Gpu | None:
    """The GPU as the tuner may use it."""
    if gpu is None:
        return None
    return dataclasses.replace(gpu, memory=min(gpu.memory, usable + RESERVE))


def _refuse_what_does_not_fit(problem: Problem, machine: Machine) -> None:
    """Raise if the state does not fit into memory with the method that needs least, before anything
    is measured.
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
    """The problem, or as many planes of it as the device has memory for."""
    method = Place(device=device.computes_on).methods[-1]
    parameters = method.parameters(problem)[0]
    needed = method.memory(problem, Slab.whole(problem.grid), parameters)
    if needed <= usable:
        return problem

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
    return shortened(problem, planes)
