"""How long ranks wait for halos, with messages after the computation and beside it.

    mpiexec -n 2 python -m benchmarks.overlap heat-2d cpu.stream 16 2048 2048

at the top of the repository: stencil, method, steps between exchanges, points along
each axis. Blocks of both kinds take turns, so that whatever else the machine does hinders both.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Sequence

import numpy as np

from tetris_sim.model.boundary import Boundary, Neumann
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem, StateVariable, Total
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.comm.communicator import Communicator, open_communicator
from tetris_sim.scheduler.facts.shares import Domain, Plan, Share
from tetris_sim.scheduler.plan.cost import divide_block
from tetris_sim.scheduler.plan.partition import cut
from tetris_sim.scheduler.tuning.candidates import find_method
from tetris_sim.simulation.loop import Simulation, open_simulation

_SECONDS = 12.0  # of all blocks
_FEWEST = 20  # blocks of each kind


def make_problem(name: str, shape: Sequence[int]) -> Problem:
    """A random field between walls that let nothing through."""
    stencil = named_stencil(name).stencil
    ndim = stencil.ndim

    def initial(slab: Slab) -> Field:
        return np.random.default_rng(slab.start[0]).uniform(size=(1, *slab.shape))

    return Problem(
        grid=Grid(tuple(shape), (1.0,) * ndim, (0.0,) * ndim),
        stencil=stencil,
        boundary=Boundary.everywhere(Neumann(flux=0.0), ndim),
        initial=initial,
        dt=1.0,
        steps=1 << 30,
        dtype=np.dtype("float64"),
        variables=(StateVariable("u", "1", "field", Total("integral", "1", 1.0)),),
    )


def make_plan(problem: Problem, method: str, block: int, ranks: Communicator) -> Plan:
    """Slabs along the first axis, one with a thread for each rank."""
    chosen = find_method(method, by="method")
    parts = (ranks.size, *(1 for _ in problem.grid.shape[1:]))
    slabs = cut(Domain.of(problem), parts, [1.0] * ranks.size, block)
    parameters = divide_block(chosen.parameters(problem)[0], block)
    shares = tuple(
        Share("cpu:0", slab, chosen, parameters, 1, 1.0, 0, rank=rank)
        for rank, slab in enumerate(slabs)
    )
    return Plan(shares, block, 1e-3, 0.0, copy_for_checkpoints=False, reasons=())


def measure_block(simulation: Simulation, *, overlapped: bool) -> tuple[float, float]:
    """(seconds of a block, seconds of it that count as exchange) on the slowest rank."""
    simulation.plan = dataclasses.replace(simulation.plan, overlapped=overlapped)
    clock, ranks = simulation.clock.seconds, simulation.ranks
    ranks.largest((0.0,))
    waited, begin = clock["exchange"], time.perf_counter()
    simulation.advance(simulation.plan.time_block)
    ranks.largest((0.0,))  # as after every block of a run
    return ranks.largest((time.perf_counter() - begin, clock["exchange"] - waited))  # type: ignore[return-value]


def main(arguments: Sequence[str]) -> None:
    """Print medians of both kinds, in milliseconds."""
    name, method, block, *shape = arguments
    problem = make_problem(name, [int(n) for n in shape])
    with open_communicator() as ranks:
        plan = make_plan(problem, method, int(block), ranks)
        found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        with open_simulation(problem, plan, ranks=ranks) as simulation:
            for overlapped in found:
                measure_block(simulation, overlapped=overlapped)
            begin = time.perf_counter()
            more = True
            while more:
                for overlapped, rows in found.items():
                    rows.append(measure_block(simulation, overlapped=overlapped))
                left = time.perf_counter() - begin < _SECONDS or len(found[True]) < _FEWEST
                more = bool(ranks.tell(left))
        if ranks.rank == 0:
            for overlapped, rows in found.items():
                whole, waited = (
                    1e3 * statistics.median(column) for column in zip(*rows, strict=True)
                )
                print(
                    f"{' '.join(arguments)} on {ranks.size}, "
                    f"{'beside' if overlapped else 'after'}: block {whole:.2f} ms, exchange "
                    f"{waited:.2f} ms, {waited / whole:.1%}, {len(rows)} blocks"
                )


if __name__ == "__main__":
    main(sys.argv[1:])
