"""Put the stepper of `cpu.stream` together: a `CpuStepper` whose time loop is compiled for
streaming.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.axes import OUTER, on_three
from tetris_sim.boundary import SIDES
from tetris_sim.cpu_kernels.common.caches import read_caches
from tetris_sim.cpu_kernels.common.layout import PaddedField, allocate_aligned
from tetris_sim.cpu_kernels.common.stepper import CpuStepper
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.cpu_kernels.stream import numbers
from tetris_sim.cpu_kernels.stream.generate import make_kernels, make_loop
from tetris_sim.cpu_kernels.stream.work import Work
from tetris_sim.problem import Problem
from tetris_sim.slab import Slab

_CLAIM = 8  # counters per cache line


def make_stepper(
    problem: Problem, slab: Slab, work: Work, layout: PaddedField, team: ThreadTeam
) -> CpuStepper:
    """Compile the loop and take memory; every thread touches its own scratch memory first."""
    dtype = np.dtype(problem.dtype)
    loop = make_loop(problem.grid.ndim, dtype, work.lanes)
    constants = _constants(problem)
    own = np.tile(_numbers(problem, slab, work, layout, team.size), (team.size, 1))
    flat = allocate_aligned(team.size * work.scratch * dtype.itemsize, dtype, 0)
    scratch = flat.reshape(team.size, work.scratch)
    team.run(lambda thread: scratch[thread].fill(0))
    claims = np.zeros(_CLAIM * int(np.prod(work.parts)), dtype=np.int64)

    def advance(
        thread: int, threads: int, u: Any, v: Any, n_fields: int, field_pitch: int, *rest: Any
    ) -> None:
        *_, steps, barrier = rest
        loop(
            thread,
            threads,
            u,
            v,
            n_fields,
            field_pitch,
            constants,
            own,
            scratch,
            steps,
            claims,
            barrier,
        )

    return CpuStepper(
        problem, slab, team, advance, layout, passes=lambda steps: -(-steps // work.steps)
    )


def _constants(problem: Problem) -> npt.NDArray[Any]:
    """The weights, then (a, b) for every axis, side and number of a ghost."""
    radii = problem.stencil.radii
    faces = np.zeros((3, 2, max(1, *radii), 2))
    for axis, padded in enumerate(OUTER[problem.grid.ndim]):
        if problem.boundary.periodic(axis) or radii[axis] == 0:
            continue
        for number, side in enumerate(SIDES):
            pairs = problem.boundary.reflections(
                axis, side, spacing=problem.grid.spacing[axis], width=radii[axis]
            )
            faces[padded, number, : len(pairs)] = pairs
    return np.concatenate([np.array(problem.stencil.weights), faces.ravel()]).astype(problem.dtype)


def _numbers(
    problem: Problem, slab: Slab, work: Work, layout: PaddedField, threads: int
) -> npt.NDArray[np.int64]:
    """What every thread begins with; see `numbers.py`."""
    dtype, radii = np.dtype(problem.dtype), on_three(problem.stencil.radii, 0, OUTER)
    n = np.zeros(numbers.N_NUMBERS, dtype=np.int64)

    def put(place: int, *values: int) -> None:
        n[place : place + len(values)] = values

    put(numbers.FIRST, *layout.first)
    put(numbers.COUNT, *layout.count)
    put(numbers.PITCH, *layout.pitch)
    for axis, padded in enumerate(OUTER[problem.grid.ndim]):
        whole = numbers.WRAP if problem.boundary.periodic(axis) else numbers.FACE
        low, high = slab.halo[axis]
        n[numbers.BELOW + padded] = numbers.HALO if low else whole
        n[numbers.ABOVE + padded] = numbers.HALO if high else whole
    put(numbers.PARTS, *work.parts)
    past_caches = 2 * layout.n_bytes > read_caches().l3 * threads
    put(numbers.BLOCK, work.steps, work.strip_rows, work.strip_vectors, past_caches)
    put(numbers.RADIUS, *radii)
    shape = work.shape
    put(
        numbers.JAM,
        *shape.jam,
        shape.unroll,
        shape.fused,
        2 * radii[0] + shape.jam[0],
        max(1, *radii),
    )
    put(numbers.WEIGHTS, work.constants, work.constants + problem.stencil.n_points)
    put(numbers.RINGS, work.rings, work.across, work.along, work.line)
    for place, address in make_kernels(problem.stencil.offsets, dtype, work.lanes, shape).items():
        n[place] = address
    return n
