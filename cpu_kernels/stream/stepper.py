"""Put the stepper of `cpu.stream` together: a `CpuStepper` whose time loop is compiled for
streaming.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common import ready_stepper
from tetris_sim.cpu_kernels.common.caches import read_caches
from tetris_sim.cpu_kernels.common.columns import COUNT, FIRST, SHRINK
from tetris_sim.cpu_kernels.common.layout import PaddedField, allocate_aligned
from tetris_sim.cpu_kernels.common.ready import TimeLoop
from tetris_sim.cpu_kernels.common.rims import Axes
from tetris_sim.cpu_kernels.common.stepper import CpuStepper
from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.cpu_kernels.stream.generate import make_kernels, make_loop
from tetris_sim.cpu_kernels.stream.numbers import FACE, HALO, NUMBERS, WRAP
from tetris_sim.cpu_kernels.stream.work import Work
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

Numbers = npt.NDArray[np.int64]
_CLAIM = 8  # counters per cache line


def make_stepper(
    problem: Problem, slab: Slab, work: Work, layout: PaddedField, team: ThreadTeam
) -> CpuStepper:
    """Compile the loop and take memory; every thread touches its own scratch memory first."""
    dtype = np.dtype(problem.dtype)
    loop = make_loop(problem.grid.ndim, dtype, work.lanes)
    constants = _constants(problem)
    own = _numbers(problem, slab, work, layout, team.size)
    flat = allocate_aligned(team.size * work.scratch * dtype.itemsize, dtype, 0)
    scratch = flat.reshape(team.size, work.scratch)
    team.run(lambda thread: scratch[thread].fill(0))
    beyond = own["below"][0].copy(), own["above"][0].copy()
    claims = np.zeros(_CLAIM * int(np.prod(work.parts)), dtype=np.int64)

    def advance(*arguments: Any) -> None:
        # Of the arguments of `advance` in sweep.py, those about the slab are in `own`.
        thread, threads, u, v, n_fields, field_pitch, axes, *_, steps, barrier = arguments
        state = (thread, threads, u, v, n_fields, field_pitch)
        _set_box(own[thread : thread + 1], beyond, axes)
        loop(*state, constants, own, scratch, steps, claims, barrier)

    def arguments(numbers: tuple[Any, ...], barrier: Numbers) -> tuple[Any, Any]:
        n_fields, field_pitch, axes, *_ = numbers
        _set_box(own, beyond, axes)
        return (n_fields, field_pitch, constants, own, scratch), (claims, barrier)

    timed = TimeLoop(advance, loop, arguments)
    return ready_stepper.make_stepper(
        problem, slab, team, timed, layout, lambda steps: -(-steps // work.steps)
    )


def _set_box(n: npt.NDArray[np.void], beyond: tuple[Numbers, Numbers], axes: Axes) -> None:
    """Let a thread's record tell of the points that `axes` does.

    Args:
        n: the record.
        beyond: what lies beyond both sides of the slab.
        axes: as of `Geometry`. An end that moves from step to step has something computed beyond.
    """
    n["first"], n["count"] = axes[:, FIRST], axes[:, COUNT]
    n["shrink_low"], n["shrink_high"] = low, high = axes[:, SHRINK], axes[:, SHRINK + 1]
    n["below"], n["above"] = np.where(low, HALO, beyond[0]), np.where(high, HALO, beyond[1])


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
) -> npt.NDArray[np.void]:
    """What every thread begins with; see `numbers.py`."""
    shape, radii = work.shape, on_three(problem.stencil.radii, 0, OUTER)
    n = np.zeros((), dtype=NUMBERS)

    n["first"], n["count"], n["pitch"] = layout.first, layout.count, layout.pitch
    for axis, padded in enumerate(OUTER[problem.grid.ndim]):
        whole = WRAP if problem.boundary.periodic(axis) else FACE
        low, high = slab.halo[axis]
        n["below"][padded] = HALO if low else whole
        n["above"][padded] = HALO if high else whole

    n["parts"], n["block"] = work.parts, work.steps
    n["strip_rows"], n["strip_vectors"] = work.strip_rows, work.strip_vectors
    n["past_caches"] = 2 * layout.n_bytes > read_caches().l3 * threads

    n["radius"], n["jam"], n["unroll"], n["fused"] = radii, shape.jam, shape.unroll, shape.fused
    n["depth"], n["ghosts"] = 2 * radii[0] + shape.jam[0], max(1, *radii)
    kernels = make_kernels(problem.stencil.offsets, problem.dtype, work.lanes, shape)
    for name, address in kernels.items():
        n[name] = address

    n["weights"], n["faces"] = work.constants, work.constants + problem.stencil.n_points
    n["rings"], n["across"], n["along"], n["line"] = work.rings, work.across, work.along, work.line
    return np.full(threads, n)
