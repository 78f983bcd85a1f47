"""CPU threads beside a GPU, on a real machine: what both make together of what each makes alone.

    python -m benchmarks.beside [-o FILE] [CASE ...]

in `tests/`, with the tree as PYTHONPATH. Cases: `plain`, where the GPU is asked to compute with
`gpu.plain`; `held`, where it has only so many multiprocessors that it is about as fast as the CPU,
as GPUs with little FP64 are; `best`, with its best method and the CPU's share forced. Each grid
goes on as a run does: planes move to whom turns out to be faster.
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
from tetris_sim.bench.problems import random_problem
from tetris_sim.bench.timing import provenance
from tetris_sim.files import atomic_text
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.problem import Problem
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.schema import ComputeSection
from tetris_sim.simulation import Simulation, open_simulation

_STEPS = 1 << 30
_SECONDS, _ROUNDS = 0.6, 5
_SETTLING = 3.0  # seconds in which planes may move before anything is timed
_SOURCE = str(Path(__file__).with_name("hold.cu"))
_KEPT = (2, 4, 6, 8, 12, 16, 24, 32, 48)  # multiprocessors of a GPU that is held back
_BLOCKS = {"heat-2d": (32, 64), "box-2d49p": (8, 16), "box-3d27p": (4, 8)}
_SHAPES = {2: (10240, 10240), 3: (768, 768, 768)}


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to advance a grid.

    Attributes:
        case: which.
        stencil: its name.
        shape: of the grid.
        devices: that took part.
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


def measure(
    case: str, stencil: str, problem: Problem, plan: Plan, kept: int | None, *, settle: bool
) -> Row:
    """Advance as a run does, in rounds."""
    with open_simulation(problem, plan) as simulation:
        for _ in range(3):
            simulation.advance(plan.time_block)
        with held(kept):
            begin = time.perf_counter()
            while settle and time.perf_counter() - begin < _SETTLING:
                go_on(simulation, 0.1)
            busy = dict(simulation.busy_s)
            begin = time.perf_counter()
            rates = [go_on(simulation, _SECONDS) for _ in range(_ROUNDS)]
            elapsed = time.perf_counter() - begin
        plan = simulation.plan
        return Row(
            *(case, stencil, problem.grid.shape, "+".join(it.worker for it in plan.shares)),
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


def study(case: str, stencil: str, threads: int) -> Iterator[Row]:
    """The parts alone, then together."""
    shape = _SHAPES[int(stencil.split("-")[1][0])]
    kind = weight_kinds(stencil)[0]
    problem = random_problem(stencil, shape, "float64", kind, "periodic", steps=_STEPS)
    method = "gpu.plain" if case == "plain" else "auto"
    kept: int | None = None

    def planned(**changes: Any) -> Plan:
        section = ComputeSection.model_validate({"method": method, **changes})
        return make_plan(problem, find_machine(), section)

    of_cpu = ComputeSection(devices="cpu", threads=threads)
    cpu_plan = make_plan(problem, find_machine(), of_cpu)
    cpu = measure(case, stencil, problem, cpu_plan, None, settle=False)
    yield cpu
    if case == "held":
        plan = planned(devices="gpu", time_block=64)  # short, for one that is not held back
        kept, gpu = as_fast(problem, plan, cpu.rate, case, stencil)
    else:
        gpu = measure(case, stencil, problem, planned(devices="gpu"), None, settle=False)
    yield gpu

    both = {"devices": "cpu+gpu", "threads": threads + 1}
    if case != "held":
        yield measure(case, stencil, problem, planned(**both), kept, settle=True)
    for block in _BLOCKS[stencil]:
        section = {**both, "shares": (gpu.rate, cpu.rate), "time_block": block}
        plan = dataclasses.replace(planned(**section), shares_asked=False)
        for ahead in (plan.ahead, False):
            way = dataclasses.replace(plan, ahead=ahead)
            yield measure(case, stencil, problem, way, kept, settle=True)


def as_fast(problem: Problem, plan: Plan, rate: float, case: str, stencil: str) -> tuple[int, Row]:
    """How many multiprocessors a GPU keeps to be as fast as the CPU, and what it makes with them."""
    for kept in _KEPT:
        row = measure(case, stencil, problem, plan, kept, settle=False)
        if row.rate > 0.9 * rate:
            break
    return kept, row


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each, and keep all."""
    parser = argparse.ArgumentParser(prog="beside.py", description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--threads", type=int, default=15)
    parser.add_argument("cases", nargs="*", default=["plain:heat-2d", "held:heat-2d"])
    args = parser.parse_args(arguments)

    rows: list[Row] = []
    for name in args.cases:
        case, stencil = name.split(":")
        alone: list[Row] = []
        for row in study(case, stencil, args.threads):
            rows.append(row)
            alone.append(row)
            of_sum = row.rate / sum(it.rate for it in alone[:2]) if len(alone) > 2 else None
            of_gpu = row.rate / alone[min(1, len(alone) - 1)].rate
            print(
                f"{case:6} {stencil:10} {row.devices:12} {row.rate / 1e9:8.1f} GStencil/s "
                f"({row.lowest / 1e9:.1f} to {row.highest / 1e9:.1f}) predicted "
                f"{row.predicted / 1e9:.1f}, block {row.block}, {row.shares}, "
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
