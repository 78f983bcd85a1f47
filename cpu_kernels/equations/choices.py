"""Choices: what may be tried when equations are streamed, how a slab is then cut, and what that
takes of memory.
"""

from __future__ import annotations

import numpy as np

from tetris_sim.cpu_kernels.common.caches import Caches
from tetris_sim.cpu_kernels.equations.given import coefficient_layout
from tetris_sim.cpu_kernels.equations.plain import layout_of
from tetris_sim.cpu_kernels.equations.rings import Work, follow, plan_work
from tetris_sim.cpu_kernels.equations.stages import settled
from tetris_sim.model.grid import OUTER
from tetris_sim.model.method import STEPS_PER_BLOCK, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab


def equation_candidates(problem: Problem, caches: Caches) -> tuple[Parameters, ...]:
    """What is worth trying on a machine with these caches, the best guess first."""
    assert problem.equations is not None
    equations, ndim = settled(problem.equations), problem.grid.ndim
    radii, size = equations.radii, np.dtype(problem.dtype).itemsize
    reach, choices = max(1, *radii), []

    # Steps of a reach of one, planes a visit, rows of a strip, how much of the L2 cache rings fill:
    # they are read in order, and the L3 cache holds the rest. A row of 1000 columns is worth more
    # than a nearer cache: what a kernel does before its first vector counts less.
    wanted = {
        1: ((32, 1, 1, 0.2), (64, 1, 1, 0.4)),
        2: ((16, 4, 1, 3.3), (16, 2, 1, 1.2), (8, 4, 1, 0.9)),
        3: ((6, 1, 32, 8.0), (4, 1, 32, 4.0), (4, 1, 16, 2.0)),
    }[ndim]
    for most, visit, rows, filled in wanted:
        steps = max(1, most // reach)
        planes = (steps + 1) * sum(follow(equations, ndim, visit).depths.values())
        beside = rows + 2 * steps * (radii[1] if ndim == 3 else 0)
        room = min(caches.l2 * filled, max(caches.l2, caches.l3 / 2))
        columns = int(room / (planes * beside * size)) - 2 * steps * radii[-1]
        choice = {STEPS_PER_BLOCK: steps, "tile_x": max(64, columns // 16 * 16), "visit": visit}
        choices.append(choice | ({"tile_y": rows} if ndim == 3 else {}))
    return tuple(choices)


def work_of(problem: Problem, slab: Slab, parameters: Parameters, threads: int) -> Work:
    """How a slab is cut."""
    from tetris_sim.cpu_kernels.compiled.vectors import native_lanes

    assert problem.equations is not None
    equations = settled(problem.equations)
    computed = [n + sum(halo) for n, halo in zip(slab.shape, slab.halo, strict=True)]
    return plan_work(
        equations,
        tuple(computed),
        threads=threads,
        lanes=native_lanes(np.dtype(problem.dtype)),
        steps=parameters[STEPS_PER_BLOCK],
        visit=parameters.get("visit", 1),
        tile=(parameters.get("tile_y", 1), parameters["tile_x"]),
    )


def stream_bytes(problem: Problem, slab: Slab, parameters: Parameters, threads: int) -> int:
    """Bytes of memory that streaming takes."""
    work, layout = work_of(problem, slab, parameters, threads), layout_of(problem, slab)
    given = coefficient_layout(problem, slab, margins_of(problem, slab, work))
    rings = threads * work.scratch * layout.dtype.itemsize
    return 2 * layout.n_bytes + rings + (0 if given is None else given.n_bytes)


def margins_of(problem: Problem, slab: Slab, work: Work) -> list[tuple[int, int]]:
    """How far around a slab stages are computed, per axis of the problem."""
    margins = []
    for axis, padded in enumerate(OUTER[problem.grid.ndim]):
        ring = problem.boundary.periodic(axis)
        deep = max(work.steps * work.reach[padded], work.around[padded]) if ring else 0
        low, high = slab.halo[axis]
        margins.append((low or deep, high or deep))
    return margins
