"""CPU threads beside a GPU, on a real machine: what both make together of what each makes alone.

    python -m benchmarks.beside [-o FILE] [CASE ...]

at the top of the repository. Cases: `plain`, where the GPU is asked to compute with
`gpu.plain`; `held`, where it has only so many multiprocessors that it is about as fast as the CPU,
as GPUs with little FP64 are; `best`, with its best method and the CPU's share forced: by speed, and
where the GPU then waits, from the fewest planes that a block allows to the most with which it does
not. Each grid goes on as a run does, planes moving to whom turns out to be faster, unless they are
forced.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.bench.gpu import weight_kinds
from tetris_sim.bench.timing import provenance, random_problem
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.simulation.loop import Simulation, open_simulation
from tetris_sim.support.files import atomic_text

_STEPS = 1 << 30
_KEPT_RATE = 0.99  # of the GPU alone, with planes forced onto the CPU
_MORE_PLANES = (1.0, 1.33, 1.8, 2.4, 3.2, 4.3, 5.8)  # times the fewest
_SOURCE = str(Path(__file__).with_name("hold.cu"))
_KEPT = (2, 4, 6, 8, 12, 16, 24, 32, 48)  # multiprocessors of a GPU that is held back
_BLOCKS = {"heat-2d": (32, 64), "box-2d49p": (8, 16), "box-3d27p": (4, 8)}
# whole launches of the GPU's best method
_FORCED = {"heat-2d": (32, 48, 64), "box-2d49p": (8, 12), "box-3d27p": (3, 6)}
_SHAPES = {2: (10240, 10240), 3: (768, 768, 768)}


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to advance a grid.

    Attributes:
        case: which.
        stencil: its name.
        shape: of the grid.
        devices: that took part.
        how: by whom planes and steps were chosen.
        rate: points per second, the median of the rounds.
        lowest, highest: of the rounds.
        shares: planes of each worker at the end.
        methods: of each worker.
        block: steps between two exchanges.
        ahead: whether the GPU was told of a block while it computed the one before.
        predicted: rate by the plan.
        busy: share of the time in which each worker computed.
    """

    case: str
    stencil: str
    shape: tuple[int, ...]
    devices: str
    how: str
    rate: float
    lowest: float
    highest: float
    shares: dict[str, int]
    methods: dict[str, str]
    block: int
    ahead: bool
    predicted: float
    busy: dict[str, float]


@contextlib.contextmanager
def held(kept: int | None) -> Iterator[None]:
    """A GPU of which only so many multiprocessors are free; all of them for None.

    Nothing inside may give memory of the GPU back, which waits for all that it does.
    """
    if kept is None:
        yield
        return
    device = GpuDevice(0)
    with device.use():
        function = device.function(_SOURCE, "hold", {}, device.shared_bytes)
    ended = device.staged((1,), np.int32)
    ended[0] = 0
    with device.use():
        function(
            (device.multiprocessors - kept, 1, 1),
            (32, 1, 1),
            (np.uintp(ended.ctypes.data),),  # pinned memory has one address everywhere
            shared_mem=device.shared_bytes,
        )
    time.sleep(0.01)
    try:
        yield
    finally:
        ended[0] = 1
        device.stream.synchronize()


@dataclasses.dataclass(frozen=True)
class Times:
    """How long is timed.

    Attributes:
        seconds: of a round.
        rounds: of each row.
        settling: in which planes may move before anything is timed [s].
    """

    seconds: float
    rounds: int
    settling: float


@dataclasses.dataclass(frozen=True)
class Study:
    """One grid in one case.

    Attributes:
        case: which.
        stencil: its name.
        problem: on its grid.
        threads: of the CPU.
        times: how long is timed.
    """

    case: str
    stencil: str
    problem: Problem
    threads: int
    times: Times

    def planned(self, **changes: Any) -> Plan:
        """What the planner makes of these settings."""
        method = "gpu.plain" if self.case == "plain" else "auto"
        section = ComputeSection.model_validate({"method": method, **changes})
        return make_plan(self.problem, find_machine(), section)

    def forced(self, shares: tuple[float, float], block: int) -> Plan:
        """Both devices, with relative planes of the GPU and the CPU."""
        both = {"devices": "cpu+gpu", "threads": self.threads + 1}
        return self.planned(**both, shares=shares, time_block=block)


def measure(
    study: Study, plan: Plan, how: str, kept: int | None = None, *, settle: bool = False
) -> Row:
    """Advance as a run does, in rounds."""
    problem, times = study.problem, study.times
    with open_simulation(problem, plan) as simulation:
        for _ in range(3):
            simulation.advance(plan.time_block)
        with held(kept):
            begin = time.perf_counter()
            while settle and time.perf_counter() - begin < times.settling:
                go_on(simulation, 0.1)
            busy = dict(simulation.busy_s)
            begin = time.perf_counter()
            rates = [go_on(simulation, times.seconds) for _ in range(times.rounds)]
            elapsed = time.perf_counter() - begin
        plan = simulation.plan
        return Row(
            *(study.case, study.stencil, problem.grid.shape),
            *("+".join(it.worker for it in plan.shares), how),
            *(statistics.median(rates), min(rates), max(rates)),
            shares={it.worker: it.slab.shape[0] for it in plan.shares},
            methods={it.worker: f"{it.method.name} {dict(it.parameters)}" for it in plan.shares},
            block=plan.time_block,
            ahead=plan.ahead,
            predicted=problem.grid.n_points / plan.seconds_per_step,
            busy={
                name: (seconds - busy.get(name, 0.0)) / elapsed
                for name, seconds in simulation.busy_s.items()
            },
        )


def go_on(simulation: Simulation, seconds: float) -> float:
    """Points per second for about so long, planes moving if that pays (moving counts)."""
    begin, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        simulation.advance(simulation.plan.time_block)
        steps += simulation.plan.time_block
        simulation.rebalance()
    for worker in simulation.workers:
        worker.stepper.wait()
    elapsed = time.perf_counter() - begin
    return simulation.problem.grid.n_points * steps / elapsed


def problem_of(stencil: str) -> Problem:
    """On its grid, with random numbers."""
    shape = _SHAPES[int(stencil.split("-")[1][0])]
    kind = weight_kinds(stencil)[0]
    return random_problem(stencil, shape, "float64", kind, "periodic", steps=_STEPS)


def rows_of(study: Study) -> Iterator[Row]:
    """The parts alone, then together."""
    kept: int | None = None
    cpu_plan = make_plan(
        study.problem, find_machine(), ComputeSection(devices="cpu", threads=study.threads)
    )
    cpu = measure(study, cpu_plan, "alone")
    yield cpu
    if study.case == "held":
        plan = study.planned(devices="gpu", time_block=64)  # short, for one that is not held back
        kept, gpu = as_fast(study, plan, cpu.rate)
    else:
        gpu = measure(study, study.planned(devices="gpu"), "alone")
    yield gpu

    if study.case != "held":
        both = study.planned(devices="cpu+gpu", threads=study.threads + 1)
        yield measure(study, both, "as planned", settle=True)
    if study.case == "best":
        for block in _FORCED[study.stencil]:
            yield from forced(study, gpu, cpu, block)
        return
    for block in _BLOCKS[study.stencil]:
        plan = dataclasses.replace(study.forced((gpu.rate, cpu.rate), block), shares_asked=False)
        for ahead in (plan.ahead, False):
            way = dataclasses.replace(plan, ahead=ahead)
            yield measure(study, way, "block and shares by speed", kept, settle=True)


def forced(study: Study, gpu: Row, cpu: Row, block: int) -> Iterator[Row]:
    """Planes on the CPU by speed; if the GPU then waits, more and more until it does."""
    row = measure(study, study.forced((gpu.rate, cpu.rate), block), "planes by speed")
    yield row
    if row.rate >= _KEPT_RATE * gpu.rate:
        return
    n, fewest = study.problem.grid.shape[0], block * study.problem.stencil.radii[0]
    for times in _MORE_PLANES:
        planes = round(times * fewest)
        row = measure(study, study.forced((n - planes, planes), block), "planes given")
        yield row
        if row.rate < _KEPT_RATE * gpu.rate:
            return


def as_fast(study: Study, plan: Plan, rate: float) -> tuple[int, Row]:
    """How many multiprocessors a GPU keeps to be as fast as the CPU, and what it makes with them."""
    for kept in _KEPT:
        row = measure(study, plan, "alone", kept)
        if row.rate > 0.9 * rate:
            break
    return kept, row


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each, and keep all."""
    parser = argparse.ArgumentParser(prog="beside.py", description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--threads", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.6, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settling", type=float, default=3.0, help="seconds before the first one")
    parser.add_argument("cases", nargs="*", default=["plain:heat-2d", "held:heat-2d"])
    args = parser.parse_args(arguments)

    rows: list[Row] = []
    times = Times(args.seconds, args.rounds, args.settling)
    for name in args.cases:
        case, stencil = name.split(":")
        alone: list[Row] = []
        for row in rows_of(Study(case, stencil, problem_of(stencil), args.threads, times)):
            rows.append(row)
            alone.append(row)
            of_sum = row.rate / sum(it.rate for it in alone[:2]) if len(alone) > 2 else None
            of_gpu = row.rate / alone[min(1, len(alone) - 1)].rate
            print(
                f"{case:6} {stencil:10} {row.devices:12} {row.rate / 1e9:8.1f} GStencil/s "
                f"({row.lowest / 1e9:.1f} to {row.highest / 1e9:.1f}) predicted "
                f"{row.predicted / 1e9:.1f}, {row.how}, block {row.block}, {row.shares}, "
                f"{'ahead' if row.ahead else 'waited for'}, of the sum "
                f"{'' if of_sum is None else f'{of_sum:.3f}'}, of the GPU {of_gpu:.3f}, busy "
                f"{ {name: round(part, 2) for name, part in row.busy.items()} }",
                flush=True,
            )
            if args.output is not None:
                found = {**provenance(), "rows": [dataclasses.asdict(it) for it in rows]}
                atomic_text(args.output, json.dumps(found, indent=1, default=str))


if __name__ == "__main__":
    main()
