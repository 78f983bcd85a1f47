"""How fast one grid is on different sets of devices: what each does alone, what they do together,
on many ranks.

The grid is divided and advanced as in a run, exchange of halos included. Under MPI each set is what
every rank has.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import statistics
import time
from collections.abc import Sequence
from typing import Literal

from pydantic import ValidationError

from tetris_sim.bench.gpu import SHAPES, weight_kinds
from tetris_sim.bench.result import BenchResult, SetCase, SetRow, SetShare, Timing
from tetris_sim.bench.timing import provenance, random_problem
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.comm.communicator import Communicator, everywhere
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import plan_together
from tetris_sim.scheduler.workers.worker import worker_rows
from tetris_sim.simulation.loop import Simulation, open_simulation
from tetris_sim.support.clock import PhaseClock

STENCILS = ("heat-2d",)
_STEPS = 1 << 30  # of the problem: a run so long that no tuning is too dear for it
_LOG = logging.getLogger("tetris_sim")


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
