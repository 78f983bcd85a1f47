"""Choices: what may be tried when equations are streamed, how a slab is then cut, and what that
takes of memory.
"""

from __future__ import annotations

import numpy as np

from tetris_sim.axes import OUTER
from tetris_sim.cpu_kernels.common.caches import Caches
from tetris_sim.cpu_kernels.equations.given import coefficient_layout
from tetris_sim.cpu_kernels.equations.plain import layout_of
from tetris_sim.cpu_kernels.equations.rings import Work, follow, plan_work
from tetris_sim.cpu_kernels.equations.stages import settled
from tetris_sim.method import STEPS_PER_BLOCK, Parameters
from tetris_sim.problem import Problem
from tetris_sim.slab import Slab


def equation_candidates(problem: Problem, caches: Caches) -> tuple[Parameters, ...]:
    """What is worth trying on a machine with these caches, the best guess first."""
    assert problem.equations is not None
    equations, ndim = settled(problem.equations), problem.grid.ndim
    depth = max(1, *equations.radii)
    size = np.dtype(problem.dtype).itemsize
    choices: list[Parameters] = []
    if ndim == 1:
        for steps, part in ((32, 8), (64, 4)):
            names = sum(follow(equations, ndim, 1).depths.values())
            tile = max(256, caches.l2 // (part * names * size) // 64 * 64)
            choices.append({STEPS_PER_BLOCK: max(1, steps // depth), "tile_x": tile})
        return tuple(choices)
    for steps, tile in ((8, 512), (4, 1024), (16, 256)) if ndim == 2 else ((4, 128), (2, 256)):
        choice = {STEPS_PER_BLOCK: max(1, steps // depth), "tile_x": tile}
        choices.append(choice | ({"tile_y": 24} if ndim == 3 else {"visit": 2}))
    return tuple(choices)


def work_of(problem: Problem, slab: Slab, parameters: Parameters, threads: int) -> Work:
    """How a slab is cut."""
    from tetris_sim.cpu_kernels.compiled.vectors import native_lanes

    assert problem.equations is not None
    equations = settled(problem.equations)
    steps = parameters[STEPS_PER_BLOCK]
    for axis, (n, radius) in enumerate(zip(slab.shape, equations.radii, strict=True)):
        if problem.boundary.periodic(axis) and radius:
            steps = min(steps, max(1, n // radius))  # what is read beyond a ring is read once
    computed = [n + sum(halo) for n, halo in zip(slab.shape, slab.halo, strict=True)]
    return plan_work(
        equations,
        tuple(computed),
        threads=threads,
        lanes=native_lanes(np.dtype(problem.dtype)),
        steps=steps,
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
        deep = work.steps * work.reach[padded] if ring else 0
        low, high = slab.halo[axis]
        margins.append((low or deep, high or deep))
    return margins
