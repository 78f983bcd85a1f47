"""After an exchange every halo point must hold the value of its own global position."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest

from tests.support.cases import make_problem
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.model.boundary import Boundary, Neumann, Periodic
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.scheduler.facts.shares import Share
from tetris_sim.scheduler.workers.exchange import LocalExchange
from tetris_sim.scheduler.workers.worker import Worker


def box_stencil(ndim: int) -> Stencil:
    offsets = tuple(itertools.product((-1, 0, 1), repeat=ndim))
    return Stencil(offsets, (1 / len(offsets),) * len(offsets))


def cut(
    ranges: list[list[tuple[int, int]]], shape: tuple[int, ...], boundary: Boundary, halo: int
) -> list[Slab]:
    """The slabs of a process grid: every combination of the pieces of each axis."""
    slabs = []
    for pieces in itertools.product(*ranges):
        halos = []
        for axis, (start, stop) in enumerate(pieces):
            many, joined = len(ranges[axis]) > 1, boundary.periodic(axis)
            low = halo if many and (start > 0 or joined) else 0
            high = halo if many and (stop < shape[axis] or joined) else 0
            halos.append((low, high))
        slabs.append(Slab(tuple(p[0] for p in pieces), tuple(p[1] for p in pieces), tuple(halos)))
    return slabs


CASES = {
    "1d": [[(0, 9), (9, 22), (22, 37)]],
    "2d": [[(0, 5), (5, 11)], [(0, 23)]],
    "3d-axis-0": [[(0, 3), (3, 7)], [(0, 9)], [(0, 13)]],
    "3d-axes-0-and-1": [[(0, 3), (3, 7)], [(0, 4), (4, 9)], [(0, 13)]],
}


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_swap_fills_every_halo_with_its_owners_values_corners_included(
    name: str, periodic: bool
) -> None:
    ranges = CASES[name]
    ndim, shape = len(ranges), tuple(pieces[-1][1] for pieces in ranges)
    boundary = Boundary.everywhere(Periodic() if periodic else Neumann(), ndim)
    problem, _ = make_problem(box_stencil(ndim), boundary, shape=shape)
    position = np.arange(problem.grid.n_points, dtype=np.float64).reshape(1, *shape)
    slabs = cut(ranges, shape, boundary, halo=2)
    with contextlib.ExitStack() as stack:
        workers = open_workers(problem, slabs, position, stack)
        LocalExchange(problem, slabs).swap(workers)
        for worker, slab in zip(workers, slabs, strict=True):
            index = np.ix_(
                *(
                    [i % n for i in range(start - low, stop + high)]
                    for start, stop, (low, high), n in zip(
                        slab.start, slab.stop, slab.halo, shape, strict=True
                    )
                )
            )
            stepper = worker.stepper
            ranges_ = tuple(
                (-halo[0], n + halo[1]) for n, halo in zip(slab.shape, slab.halo, strict=True)
            )
            held = stepper._layout.read(stepper._current, ranges_)  # type: ignore[attr-defined]
            np.testing.assert_array_equal(held[0], position[0][index])


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_any_process_grid_gives_the_bits_of_one_worker(name: str, periodic: bool) -> None:
    ranges = CASES[name]
    ndim, shape = len(ranges), tuple(pieces[-1][1] for pieces in ranges)
    boundary = Boundary.everywhere(Periodic() if periodic else Neumann(flux=1.0), ndim)
    problem, state = make_problem(box_stencil(ndim), boundary, shape=shape, n_fields=2)
    results = []
    for pieces in (ranges, [[(0, n)] for n in shape]):
        slabs = cut(pieces, shape, boundary, halo=3)
        with contextlib.ExitStack() as stack:
            workers = open_workers(problem, slabs, state, stack)
            exchange = LocalExchange(problem, slabs)
            for steps in (3, 2, 3):
                exchange.swap(workers)
                for worker in workers:
                    worker.stepper.advance(steps)
            results.append(exchange.gather(workers, tuple((0, n) for n in shape)))
    np.testing.assert_array_equal(results[0], results[1])


def open_workers(
    problem: Problem, slabs: list[Slab], state: Field, stack: contextlib.ExitStack
) -> list[Worker]:
    workers = []
    for number, slab in enumerate(slabs):
        worker = Worker(
            problem, Share(f"cpu:{number}", slab, CpuPlainMethod(), {}, 1 + number % 2, 1.0, 0)
        )
        stack.callback(worker.close)
        worker.stepper.load(
            lambda box: state[
                (slice(None), *(slice(a, b) for a, b in zip(box.start, box.stop, strict=True)))
            ]
        )
        workers.append(worker)
    return workers
