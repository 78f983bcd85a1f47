"""Members: the devices that may share a grid, each tuned on a piece of the problem, with its link
and its memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.grid import Grid
from tetris_sim.method import Parameters
from tetris_sim.problem import Problem
from tetris_sim.scheduler.facts.link import Link
from tetris_sim.scheduler.facts.shares import Share
from tetris_sim.scheduler.machine.gpus import Gpu
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.machine.place import Place
from tetris_sim.scheduler.plan.cpu_plan import choose, decide_threads, make_terms
from tetris_sim.scheduler.plan.division import Capacity, Work
from tetris_sim.scheduler.plan.pieces import Lane
from tetris_sim.scheduler.run.worker import open_worker
from tetris_sim.scheduler.tuning.candidates import RESERVE, Asked
from tetris_sim.scheduler.tuning.choice import Choice
from tetris_sim.scheduler.tuning.measure import steps_per_block
from tetris_sim.scheduler.tuning.trial import make_trial_problem
from tetris_sim.schema import ComputeSection, SimulatedSection
from tetris_sim.slab import Slab
from tetris_sim.wording import gib

_TUNED_ON = 0.8  # of the planes that fit: tiles of a method may need more than the linear estimate
_MESSAGE_BYTES = 4 << 20  # of the longer one of two messages that are timed
_MESSAGE_REACHES = 64  # most steps of which such a message is the halo
_REPEATS = 5
_GUESSED_LINK = Link(3e-5, 1 / 5e9)  # where nothing may be measured
_GUESSED_COPY = 1 / 25e9  # seconds per byte of PCIe 4 x16, where nothing may be measured
_GPU_ARRAYS = 4  # of a conveyor
# seconds per block to wake the thread of a worker and to hear from it: 47 us measured for two
_HANDING_OVER = 5e-5
# (two cores of an AMD EPYC, Python 3.11, November 2026)
_PIECE_SECONDS = 1e-3  # of Python for the copies and launches of a piece: an upper bound


@dataclass(frozen=True)
class Member:
    """A device that may get a share, and what is known of it.

    Attributes:
        name: of its worker, "gpu:0".
        choice: method, parameters, threads and speed.
        usable: bytes of its memory that the state may take.
        gpu: if it is one.
        simulated: what it is like, if it is a made-up one.
        notes: what must be said about a run that does not go on as it was begun.
    """

    name: str
    choice: Choice
    usable: int
    gpu: Gpu | None = None
    simulated: SimulatedSection | None = None
    notes: tuple[str, ...] = ()

    @property
    def remote(self) -> bool:
        """Whether it has a memory of its own."""
        return self.gpu is not None or self.simulated is not None

    @property
    def points_per_second(self) -> float:
        """As measured, or as the made-up device allows."""
        rate = self.choice.speed.points_per_second
        return rate if self.simulated is None else min(rate, self.simulated.speed)

    @property
    def depth(self) -> int:
        """Steps that a block should be a multiple of: CPU methods can make any number of them."""
        return steps_per_block(self.choice.parameters) if self.gpu is not None else 1

    def share(self, slab: Slab, parameters: Parameters, memory: int) -> Share:
        """Its share of the grid."""
        return Share(
            worker=self.name,
            slab=slab,
            method=self.choice.method,
            parameters=parameters,
            threads=1 if self.gpu is not None else self.choice.threads,
            points_per_second=self.points_per_second,
            memory=memory,
            product="" if self.gpu is None else self.gpu.name,
            queued=True,
            simulated=self.simulated,
        )

    def planes_in(self, problem: Problem, n_bytes: int) -> int:
        """Planes along axis 0 that so many bytes hold with its method."""
        few = max(1, problem.grid.shape[0] // 2)
        one, two = (self._bytes(problem, n) for n in (few, 2 * few))
        # Rows are padded: on a short axis, more planes may take no more memory.
        per_plane = max((two - one) / few, work_of(problem).plane_bytes)
        return max(0, int((n_bytes - max(0.0, one - few * per_plane)) / per_plane))

    def _bytes(self, problem: Problem, planes: int) -> int:
        longer = shortened(problem, planes)
        return self.choice.method.memory(longer, Slab.whole(longer.grid), self.choice.parameters)


def name_members(machine: Machine, compute: ComputeSection) -> tuple[str, ...]:
    """The workers that a configuration names where not all of them are CPU threads; empty if all
    are.

    Raises:
        UnsupportedError: a GPU is asked for that is not there.
        ConfigError: one device is named twice.
    """
    there = [f"gpu:{gpu.number}" for gpu in machine.gpus]
    if isinstance(compute.devices, str):
        wants = compute.devices in ("gpu", "cpu+gpu") or (
            compute.devices == "auto" and not compute.method.startswith("cpu.")
        )
        if not wants or (compute.devices == "auto" and not there):
            return ()
        if not there:
            msg = (
                f"compute.devices is {compute.devices}, but {machine.gpus_reason}. Use "
                "compute.devices: cpu."
            )
            raise UnsupportedError(msg)
        return tuple(there) if compute.devices == "gpu" else (*there, "cpu:0")
    kinds = [name.partition(":")[0] for name in compute.devices]
    if set(kinds) == {"cpu"}:
        return ()
    names = []
    for k, name in enumerate(compute.devices):
        first = f"{kinds[k]}:{kinds[:k].count('cpu') if kinds[k] == 'cpu' else 0}"
        names.append(name if ":" in name else first)
    for name in names:
        if name.startswith("gpu") and name not in there:
            msg = (
                f"compute.devices names {name}, but "
                f"{f'there are {there}' if there else machine.gpus_reason}"
            )
            raise UnsupportedError(msg)
        if names.count(name) > 1:
            msg = f"compute.devices names {name} twice; each device is one worker"
            raise ConfigError(msg)
    return tuple(names)


def find_members(
    problem: Problem,
    machine: Machine,
    compute: ComputeSection,
    names: Sequence[str],
    *,
    begun_with: Asked | None,
    use_cache: bool,
) -> Iterator[Member]:
    """Tune one device after the other, each kind once; the caller may stop when it knows enough.

    Args:
        problem: what is to be divided.
        machine: what there is.
        compute: what was asked for.
        names: of the workers.
        begun_with: method and parameters of the run that is continued.
        use_cache: whether earlier choices count.
    """
    teams = _teams(machine, compute, names)
    known: dict[tuple[str, int], tuple[Choice, tuple[str, ...]]] = {}
    beside = 0.0
    for name in names:
        kind, _, number = name.partition(":")
        gpu = (
            next(gpu for gpu in machine.gpus if gpu.number == int(number))
            if kind == "gpu"
            else None
        )
        simulated = compute.simulated if kind == "simulated" else None
        usable = _usable(machine, compute, gpu, simulated)
        threads = teams.get(name, 1)
        what = (gpu.name if gpu is not None else kind), threads
        if what not in known:
            terms = make_terms(compute, threads, use_cache=use_cache)
            asked = _asked_of(kind, names, terms.asked)
            terms = dataclasses.replace(
                terms, asked=asked, gpu=_limited(gpu, usable), beside=beside
            )
            part = _part_that_fits(problem, Place(threads, "gpu" if gpu else "cpu"), usable, gpu)
            before = (
                begun_with
                if begun_with is not None and begun_with.method.startswith(_prefix(kind))
                else None
            )
            known[what] = choose(part, machine, terms, before)
        choice, notes = known[what]
        member = Member(name, choice, usable, gpu, simulated, notes)
        beside += member.points_per_second
        yield member


def capacity_of(problem: Problem, member: Member, link: Link) -> Capacity:
    """What a member can do with its slab in its own memory."""
    return Capacity(
        name=member.name,
        points_per_second=member.points_per_second,
        start=member.choice.speed.latency + _HANDING_OVER,
        link=link,
        room=member.planes_in(problem, member.usable),
        depth=member.depth,
    )


def lane_of(problem: Problem, member: Member, copies: tuple[float, float]) -> Lane:
    """What a member does with pieces that come from host memory: its two arrays become four."""
    room = member.planes_in(problem, 2 * member.usable // _GPU_ARRAYS)
    return Lane(member.points_per_second, member.depth, *copies, room, _PIECE_SECONDS)


def work_of(problem: Problem) -> Work:
    """The planes of a problem."""
    n = problem.grid.shape[0]
    points = problem.grid.n_points // n * problem.n_fields
    return Work(
        n,
        points,
        points * problem.dtype.itemsize,
        problem.stencil.radii[0],
        problem.boundary.periodic(0),
    )


def measure_messages(
    problem: Problem, member: Member, *, budget: float, through_host: bool = True
) -> Link:
    """Time what an exchange asks of a member: giving edges away and taking halos, short ones and
    long ones.

    Args:
        problem: the real one; a piece of it is opened.
        member: the device.
        budget: of the tuning; with 0 nothing is measured.
        through_host: whether messages pass the memory of the host; between GPUs they need not.
    """
    radius = problem.stencil.radii[0]
    if budget == 0 or radius == 0:
        return _GUESSED_LINK
    plane = work_of(problem).plane_bytes
    reaches = max(
        2,
        min(
            _MESSAGE_BYTES // (plane * radius),
            _MESSAGE_REACHES,
            problem.grid.shape[0] // (4 * radius),
        ),
    )
    (short, few), (long, many) = (
        _time_messages(problem, member, n * radius, through_host=through_host) for n in (1, reaches)
    )
    if many <= few:
        return Link(short, 0.0)
    per_byte = max(0.0, (long - short) / (many - few))
    return Link(max(0.0, short - few * per_byte), per_byte)


def measure_lane(member: Member, *, budget: float) -> tuple[float, float]:
    """Seconds per byte to a member's memory and back, both ways at a time."""
    if member.simulated is not None:
        return 1 / member.simulated.bandwidth, 1 / member.simulated.bandwidth
    assert member.gpu is not None
    if budget == 0:
        return _GUESSED_COPY, _GUESSED_COPY
    from tetris_sim.gpu_kernels.steppers.streamed import measure_copies

    with Place(1, "gpu", member.gpu.number).opened() as device:
        return measure_copies(device)


def shortened(problem: Problem, planes: int) -> Problem:
    """The problem on another number of planes."""
    shape = (max(planes, problem.stencil.radii[0], 1), *problem.grid.shape[1:])
    return dataclasses.replace(
        problem, grid=Grid(shape=shape, spacing=problem.grid.spacing, origin=problem.grid.origin)
    )


def _time_messages(
    problem: Problem, member: Member, width: int, *, through_host: bool
) -> tuple[float, int]:
    """(seconds of giving or taking a message, its bytes)."""
    planes = 4 * width + 2
    points = work_of(problem).plane_bytes * planes
    piece = make_trial_problem(shortened(problem, planes), max(points, 1))
    halo = ((width, width), *((0, 0),) * (piece.grid.ndim - 1))
    slab = Slab(
        (width, *(0,) * (piece.grid.ndim - 1)),
        (piece.grid.shape[0] - width, *piece.grid.shape[1:]),
        halo,
    )
    share = dataclasses.replace(member.share(slab, member.choice.parameters, 0), queued=False)
    with contextlib.closing(open_worker(piece, share)) as worker:
        worker.stepper.load(piece.initial)
        seconds = []
        for _ in range(_REPEATS + 1):
            begin = time.perf_counter()
            edge = worker.stepper.edge(0, "low")
            edge = np.asarray(edge) if through_host else edge
            worker.stepper.set_halo(0, "low", edge)
            worker.stepper.wait()
            seconds.append((time.perf_counter() - begin) / 2)
    return statistics.median(seconds[1:]), edge.nbytes


def _teams(machine: Machine, compute: ComputeSection, names: Sequence[str]) -> dict[str, int]:
    """CPU threads of each worker that computes with some; a core is left to each GPU that is driven
    beside them.
    """
    computing = [name for name in names if not name.startswith("gpu")]
    if not computing:
        return {}
    gpus = len(names) - len(computing)
    changes: dict[str, object] = {"devices": ("cpu",) * len(computing)}
    if compute.threads == "auto" and compute.reserve_cores < machine.threads:
        changes["reserve_cores"] = min(compute.reserve_cores + gpus, machine.threads - 1)
    threads, _ = decide_threads(machine, compute.model_copy(update=changes))
    n = len(computing)
    return {
        name: max(1, threads * (k + 1) // n - threads * k // n) for k, name in enumerate(computing)
    }


def _prefix(kind: str) -> str:
    return "gpu." if kind == "gpu" else "cpu."


def _asked_of(kind: str, names: Sequence[str], asked: Asked) -> Asked:
    """What is said about the method counts for the devices that it runs on; the others choose."""
    prefixes = {_prefix(name.partition(":")[0]) for name in names}
    for_others = any(asked.method.startswith(prefix) for prefix in prefixes - {_prefix(kind)})
    return Asked() if for_others else asked


def _usable(
    machine: Machine, compute: ComputeSection, gpu: Gpu | None, simulated: SimulatedSection | None
) -> int:
    if simulated is not None:
        free = int(simulated.memory)
    elif gpu is None:
        return machine.memory - RESERVE
    else:
        free = gpu.memory - RESERVE
    return free if compute.gpu_memory == "auto" else min(free, int(compute.gpu_memory))


def _limited(gpu: Gpu | None, usable: int) -> Gpu | None:
    """The GPU as the tuner may use it."""
    return (
        None if gpu is None else dataclasses.replace(gpu, memory=min(gpu.memory, usable + RESERVE))
    )


def _part_that_fits(problem: Problem, place: Place, usable: int, gpu: Gpu | None) -> Problem:
    """The problem, or as many planes of it as the device has memory for."""
    method = place.methods[-1]
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
