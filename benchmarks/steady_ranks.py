"""How much faster ranks solve a linear system together.

    python -m benchmarks.steady_ranks 192 1 2
    mpiexec -n 2 python -m benchmarks.steady_ranks 192 1

at the top of the repository: points along each axis of a cube of random blocks of contrast 1e3, to 1e-8;
threads, of each rank if there are several. One rank alone takes turns with these numbers of threads.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from benchmarks.gpu_steady import make_system
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.scheduler.comm.communicator import Communicator, open_communicator
from tetris_sim.solvers.distributed import PartArithmetic
from tetris_sim.solvers.krylov import nobody
from tetris_sim.solvers.solver import Aim, OneDevice, Solver, Together

_TIMES = 3
_LIMIT = 200
_TOLERANCE = 1e-8


def timed(n: int, solver: Solver) -> tuple[float, float, int]:
    """Seconds of the cycle and of the solution, and iterations."""
    operator, f = make_system(n, np)
    laid = solver.lay(operator)
    aim = Aim(_TOLERANCE, float(np.linalg.norm(f.reshape(-1))), _LIMIT)
    begin = time.perf_counter()
    cycle = solver.cycle(laid, ())
    made = time.perf_counter()
    found, solved = solver.solve(laid, f, np.zeros_like(f), cycle, aim, nobody)
    done = time.perf_counter()
    assert np.isfinite(found).all()
    return made - begin, done - made, solved.iterations


def alone(n: int, threads: list[int]) -> None:
    """One process, with different numbers of threads in turns."""
    teams = {size: ThreadTeam(size) for size in threads}
    for _ in range(_TIMES):
        for size, team in teams.items():
            tell(n, f"1 rank, {size} threads", timed(n, OneDevice(CpuArithmetic(team))))


def together(n: int, threads: int, ranks: Communicator) -> None:
    """All ranks."""
    starts = [n * rank // ranks.size for rank in range(ranks.size + 1)]
    crew = Together(PartArithmetic(CpuArithmetic(ThreadTeam(threads)), ranks, starts))
    if ranks.rank > 0:
        crew.serve(nobody)
        return
    for _ in range(_TIMES):
        tell(n, f"{ranks.size} ranks, {threads} threads each", timed(n, crew))
    crew.end(well=True)


def tell(n: int, who: str, found: tuple[float, float, int]) -> None:
    """A line."""
    made, solved, iterations = found
    print(f"{n}^3, {who}: cycle {made:.2f} s, {iterations} iterations {solved:.2f} s", flush=True)


if __name__ == "__main__":
    SIZE, *THREADS = map(int, sys.argv[1:])
    with open_communicator() as RANKS:
        if RANKS.size == 1:
            alone(SIZE, THREADS)
        else:
            together(SIZE, THREADS[0], RANKS)
