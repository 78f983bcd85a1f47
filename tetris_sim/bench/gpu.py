"""How fast the GPU methods are, beside what the memory of the GPU allows.

Every method advances the whole problem, faces included, through the same stepper as a run. Methods
are compared with periodic faces; what other faces cost is measured for the fastest one.
`bench_devices` advances whole grids on sets of devices, as a run does; under MPI each set is what
every rank has.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from pydantic import ValidationError

from tetris_sim.apps.initial import make_initial
from tetris_sim.bench.candidates import TimedCandidate, choose_parameters, open_method, time_steady
from tetris_sim.bench.result import (
    BenchCase,
    BenchResult,
    BenchRow,
    BenchTrial,
    MachineLimits,
    SetCase,
    SetRow,
    SetShare,
    Timing,
    When,
)
from tetris_sim.bench.timing import (
    FACES,
    TimedWork,
    WeightKind,
    announced,
    interleave,
    named_case,
    provenance,
    random_problem,
)
from tetris_sim.config.sections.conditions import RandomInitial
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.comm.communicator import Communicator, everywhere
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import plan_together
from tetris_sim.scheduler.workers.worker import worker_rows
from tetris_sim.simulation.loop import Simulation, open_simulation
from tetris_sim.support.wording import PhaseClock

SHAPES = {1: (10_240_000,), 2: (10_240, 10_240), 3: (1024, 1024, 1024)}
"""The usual grids by number of axes."""

# Parameters are chosen on a piece of at most so many points: loading takes longer than timing.
_CHOICE_POINTS = 1 << 28
_COPY_BYTES = 2 << 30  # of each of two arrays: many times the last-level cache
_LOG = logging.getLogger("tetris_sim")

MeasureLimits = Callable[..., MachineLimits]
OpenPeers = Callable[[Problem, GpuDevice], Sequence[TimedCandidate]]


def measure_copy(device: GpuDevice, *, rounds: int, seconds: float) -> MachineLimits:
    """Measure the bandwidth of the memory of the GPU.

    Args:
        device: the GPU.
        rounds: timings.
        seconds: length of one timing.
    """
    work = {"copy": copy_work(device)}
    return MachineLimits(copy=interleave(work, rounds=rounds, seconds=seconds)["copy"])


def copy_work(device: GpuDevice) -> TimedWork:
    """Copies in memory; units are bytes, read plus written."""
    with device.use() as cupy:
        # Random bits: some memories compress zeros.
        source = cupy.random.default_rng(0).random(_COPY_BYTES // 8)
        target = cupy.zeros_like(source)

    def run(repetitions: int) -> None:
        with device.use():
            for _ in range(repetitions):
                target.data.copy_from_device_async(source.data, source.nbytes, device.stream)
        device.stream.synchronize()

    return TimedWork(run, units=2 * source.nbytes)


@contextmanager
def measured_gpu(
    *, rounds: int, seconds: float, measure: MeasureLimits = measure_copy
) -> Iterator[tuple[BenchResult, GpuDevice]]:
    """A result without rates and the device to measure them with; its limits are measured before,
    and after what is done inside.

    Args:
        rounds: timings of each limit.
        seconds: length of one timing.
        measure: the limits.

    Raises:
        UnsupportedError: there is no GPU.
    """
    machine = find_machine()
    if not machine.gpus:
        msg = f"there is no GPU to measure: {machine.gpus_reason}"
        raise UnsupportedError(msg)

    gpu = machine.gpus[0]
    device = GpuDevice(gpu.number)
    try:
        _LOG.info("Measuring what the memory of %s does ...", gpu.name)
        limits: dict[When, MachineLimits] = {
            "before": measure(device, rounds=rounds, seconds=seconds)
        }
        # The grid needs the memory that measuring the limits has taken.
        device.release()
        about = provenance()
        yield (
            BenchResult(**about, rounds=rounds, seconds=seconds, gpu=gpu, gpu_limits=limits),
            device,
        )
        # A clock that dropped meanwhile shows as a difference from "before".
        limits["after"] = measure(device, rounds=rounds, seconds=seconds)
    finally:
        device.close()


def bench_gpu(
    names: Sequence[str],
    *,
    shape: tuple[int, ...] | None = None,
    dtypes: Sequence[str] = ("float64",),
    rounds: int = 7,
    seconds: float = 0.4,
    measure: MeasureLimits = measure_copy,
    peers: OpenPeers = lambda problem, device: (),
) -> BenchResult:
    """Every stencil in every dtype with every method, between two measurements of the limits.

    Args:
        names: stencils of the catalogue; heat kernels with equal neighbours, the others with random
            weights, and the boxes once more with symmetric ones.
        shape: interior points, array order; the usual grid of each dimension if not given.
        dtypes: of `PRECISIONS`.
        rounds: timings of each candidate, interleaved.
        seconds: length of one timing.
        measure: the limits.
        peers: what else is timed on each problem.

    Raises:
        UnsupportedError: there is no GPU.
    """
    kernels = []
    cases = [
        (name, dtype, weights)
        for name in names
        for weights, dtype in itertools.product(weight_kinds(name), dtypes)
    ]
    with measured_gpu(rounds=rounds, seconds=seconds, measure=measure) as (result, device):
        for name, dtype, weights in announced(cases, named_case):
            grid = shape or SHAPES[named_stencil(name).stencil.ndim]
            problem = random_made_there(random_problem(name, grid, dtype, weights, "periodic"))
            methods, refusals = _time_methods(problem, device, rounds=rounds, seconds=seconds)
            # Peers are timed once per stencil and dtype, on the first kind of weights.
            others: list[BenchRow] = []
            if weights == weight_kinds(name)[0]:  # peers do not know what weights have in common
                others = time_steady(peers(problem, device), rounds=rounds, seconds=seconds)

            case = BenchCase(
                name,
                dtype,
                grid,
                problem.stencil.n_points,
                rows=(*others, *methods),
                refusals=refusals,
                weights=weights,
            )
            best = case.fastest
            _LOG.info("%s, %s: %s, %.4g GStencil/s", name, dtype, best.name, best.rate / 1e9)
            faces = time_faces(problem, best, device, rounds=rounds, seconds=seconds)
            kernels.append(dataclasses.replace(case, faces=faces))
    return dataclasses.replace(result, gpu_kernels=tuple(kernels))


def random_made_there(problem: Problem) -> Problem:
    """The same with random numbers in [0, 1) that a GPU makes where they are needed: 1024^3 of them
    take seconds to get there.
    """
    section = RandomInitial(type="random", low=0.0, high=1.0, seed=0)
    initial = make_initial(section, problem.grid, problem.dtype)
    return dataclasses.replace(problem, initial=initial)


def weight_kinds(name: str) -> tuple[WeightKind, ...]:
    """Which weights a stencil is measured with: those of the heat equation, else random ones, boxes
    also symmetric.
    """
    if name.startswith("heat"):
        return ("equal",)
    return ("random", "symmetric") if name.startswith("box") else ("random",)


def _time_methods(
    problem: Problem, device: GpuDevice, *, rounds: int, seconds: float
) -> tuple[list[BenchRow], dict[str, str]]:
    """Steady-state rates of every tuned method for one problem, and why the others have none."""
    refusals = {method.name: method.refusal(problem) for method in METHODS}
    tried: dict[str, tuple[BenchTrial, ...]] = {}
    candidates = []
    for method in METHODS:
        if refusals[method.name] is None:
            try:
                parameters, tried[method.name] = _choose(problem, method, device, seconds)
                candidates.append(open_method(problem, method, parameters, device))
            except UnsupportedError as error:
                refusals[method.name] = str(error)

    rows = time_steady(candidates, rounds=rounds, seconds=seconds)
    return (
        [dataclasses.replace(row, tried=tried[row.name]) for row in rows],
        {name: reason for name, reason in refusals.items() if reason is not None},
    )


def time_faces(
    problem: Problem, best: BenchRow, device: GpuDevice, *, rounds: int, seconds: float
) -> Mapping[str, Timing]:
    """Rates of the fastest method with each kind of face, by its name; nothing if a peer is the
    fastest.
    """
    timings: dict[str, Timing] = {}
    method = next((method for method in METHODS if method.name == best.name), None)
    if method is None:
        return timings
    for kind, face in FACES.items():
        other = dataclasses.replace(problem, boundary=Boundary.everywhere(face, problem.grid.ndim))
        candidate = open_method(other, method, best.parameters, device)
        (row,) = time_steady([candidate], rounds=rounds, seconds=seconds)
        timings[kind] = row.steady
    return timings


def _choose(
    problem: Problem, method: Method, device: GpuDevice, seconds: float
) -> tuple[Parameters, tuple[BenchTrial, ...]]:
    """The fastest parameters, on a piece of the problem that is quickly loaded."""
    # Shortened along the slowest axis only, so that rows, planes and tiles stay as they are.
    shape = list(problem.grid.shape)
    if problem.grid.n_points > _CHOICE_POINTS:
        shape[0] = max(1, shape[0] * _CHOICE_POINTS // problem.grid.n_points)
    piece = problem.on_shape(shape)
    return choose_parameters(piece, method, method.parameters(problem), device, seconds=seconds / 4)


STENCILS = ("heat-2d",)
_STEPS = 1 << 30  # of the problem: a run so long that no tuning is too dear for it


def bench_devices(
    names: Sequence[str],
    *,
    shape: tuple[int, ...] | None = None,
    dtypes: Sequence[str] = ("float64",),
    rounds: int = 5,
    seconds: float = 1.0,
    sets: Sequence[str] = ("cpu", "gpu", "cpu+gpu"),
    threads: Sequence[int | None] = (None,),
    gpu_memory: str = "auto",
    tuning_budget: float | Literal["auto"] = "auto",
    ranks: Communicator,
) -> BenchResult:
    """Steady-state rates of whole runs, for each stencil, dtype, number of CPU threads and set of
    devices.

    Args:
        names: stencils of the catalogue; heat kernels with equal neighbours, others with random
            weights.
        shape: interior points, array order; 10,240,000, 10240^2 or 1024^3 if not given.
        dtypes: float64, float32 or both.
        rounds: timings of each set.
        seconds: length of one timing; at least one time block.
        sets: of devices, as `compute.devices` has them: auto, cpu, gpu, cpu+gpu, or names joined by
            +.
        threads: CPU threads of each rank; None for all.
        gpu_memory: most memory that the state may take on each GPU, as `compute.gpu_memory` has it.
        tuning_budget: time for choosing methods on each device [s], or auto.
        ranks: all of them call this.

    Returns:
        On every rank the same. Where the plan leaves a device out, a second row is `forced`: there
        every device gets planes by its speed alone, so that the plan's choice can be judged.

    Raises:
        UnsupportedError: a device is not there, or a grid does not fit.
        ConfigError: there is no such device, or amount of memory.
    """
    sections = {
        (chosen, count): _section(chosen, count, gpu_memory, tuning_budget)
        for chosen in sets
        for count in threads
    }
    cases = []
    for name, dtype, count in itertools.product(names, dtypes, threads):
        grid = shape or SHAPES[named_stencil(name).stencil.ndim]
        problem = random_problem(name, grid, dtype, weight_kinds(name)[0], "periodic", steps=_STEPS)
        measured: list[SetRow] = []
        for chosen in sets:
            section = sections[chosen, count]
            row = _bench_set(chosen, problem, section, ranks, rounds=rounds, seconds=seconds)
            measured.append(row)
            _LOG.info("%s on %s: %.4g GStencil/s", name, chosen, row.rate / 1e9)

            by_speed = shares_by_speed(row, measured)
            if by_speed and ranks.size == 1:
                section = section.model_copy(update={"shares": by_speed})
                row = _bench_set(chosen, problem, section, ranks, rounds=rounds, seconds=seconds)
                measured.append(dataclasses.replace(row, forced=True))
        compared = tuple(compare_to_parts(row, measured) for row in measured)
        cases.append(SetCase(name, dtype, grid, compared, threads=count, ranks=ranks.size))
    return BenchResult(
        **provenance(),
        rounds=rounds,
        seconds=seconds,
        gpu_memory=gpu_memory,
        devices=tuple(cases),
    )


def _section(
    chosen: str, threads: int | None, gpu_memory: str, tuning_budget: float | Literal["auto"]
) -> ComputeSection:
    wanted = {
        "devices": devices_of(chosen),
        "threads": "auto" if threads is None else threads,
        "gpu_memory": gpu_memory,
        "tuning_budget": tuning_budget,
    }
    try:
        return ComputeSection.model_validate(wanted)
    except ValidationError as error:
        why = error.errors()[-1]
        msg = f"compute.{why['loc'][0]}: {why['input']!r} was found; {why['msg']}"
        raise ConfigError(msg) from error


def devices_of(chosen: str) -> str | tuple[str, ...]:
    """Return the value of `compute.devices` for a set.

    >>> devices_of("cpu+gpu"), devices_of("gpu:0+gpu:1")
    ('cpu+gpu', ('gpu:0', 'gpu:1'))
    """
    return chosen if chosen in ("auto", "cpu", "gpu", "cpu+gpu") else tuple(chosen.split("+"))


def shares_by_speed(row: SetRow, others: Sequence[SetRow]) -> tuple[float, ...]:
    """The speeds that the parts of a set were measured to have alone, as `compute.shares`.

    Empty if the set uses all of its devices anyway, or if they were not all measured.
    """
    alone = {other.devices: other.rate for other in others}
    parts = ["gpu", "cpu"] if row.devices == "cpu+gpu" else row.devices.split("+")
    if len(row.shares) >= len(parts) or not all(part in alone for part in parts):
        return ()
    return tuple(alone[part] for part in parts)


def compare_to_parts(row: SetRow, others: Sequence[SetRow]) -> SetRow:
    """The same set with its rate over the sum of what its parts were measured to do alone; None if
    they were not.
    """
    alone = {other.devices: other.rate for other in others}
    parts = row.devices.split("+")
    known = (
        len(parts) > 1 and len(set(parts)) == len(parts) and all(part in alone for part in parts)
    )
    of_sum = row.rate / sum(alone[part] for part in parts) if known else None
    return dataclasses.replace(row, of_sum=of_sum)


def _bench_set(
    chosen: str,
    problem: Problem,
    compute: ComputeSection,
    ranks: Communicator,
    *,
    rounds: int,
    seconds: float,
) -> SetRow:
    machine = everywhere(ranks, find_machine)
    plan = plan_together(problem, machine, compute, ranks, begun_with=None, use_cache=True)
    with open_simulation(problem, plan, clock=(clock := PhaseClock()), ranks=ranks) as simulation:
        # The slower of two: the first block may still load kernels.
        one = max(_timed(simulation, plan, 1), _timed(simulation, plan, 1))
        blocks = max(1, int(ranks.largest([seconds / one])[0]))

        # Clock and workers have counted since the beginning.
        before, busy_before = dict(clock.seconds), dict(simulation.busy_s)
        elapsed = [ranks.largest([_timed(simulation, plan, blocks)])[0] for _ in range(rounds)]
        busy = {name: busy - busy_before.get(name, 0.0) for name, busy in simulation.busy_s.items()}
        exchange = clock.seconds["exchange"] - before["exchange"]
        traffic = dataclasses.asdict(simulation.exchange.traffic)

    rates = [problem.grid.n_points * blocks * plan.time_block / wall for wall in elapsed]
    return SetRow(
        devices=chosen,
        steady=Timing(statistics.median(rates), min(rates), max(rates)),
        shares=tuple(_described(share) for share in plan.shares),
        forced=False,
        predicted=problem.grid.n_points / plan.seconds_per_step,
        time_block=plan.time_block,
        exchange_share=exchange / sum(elapsed),
        traffic=traffic,
        rows=worker_rows(plan, busy, sum(elapsed)),
        reasons=tuple(plan.reasons),
    )


def _described(share: Share) -> SetShare:
    return SetShare(
        worker=share.worker,
        points=share.slab.n_points,
        rank=share.rank,
        device=share.described,
        method=share.method.name,
        parameters=dict(share.parameters),
        streamed=None if share.streamed is None else dataclasses.asdict(share.streamed),
    )


def _timed(simulation: Simulation, plan: Plan, blocks: int) -> float:
    begin = time.perf_counter()
    for _ in range(blocks):
        simulation.advance(plan.time_block)
    return time.perf_counter() - begin
