"""The Method `cpu.stream`: what may be chosen, what it costs, and how its stepper is put
together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common import ready
from tetris_sim.cpu_kernels.common.caches import (
    Caches,
    read_caches,
    why_not_blocked,
    why_not_equations,
)
from tetris_sim.cpu_kernels.common.layout import (
    COUNT,
    FIRST,
    SHRINK,
    PaddedField,
    allocate_aligned,
    least_margins,
    pad,
)
from tetris_sim.cpu_kernels.common.ready import TimeLoop
from tetris_sim.cpu_kernels.common.stepper import Axes, CpuStepper, ThreadTeam
from tetris_sim.cpu_kernels.equations.steppers import equation_candidates, stream_bytes
from tetris_sim.cpu_kernels.stream.kernels import best_shape, fused_shape, make_kernels, make_loop
from tetris_sim.cpu_kernels.stream.work import FACE, HALO, NUMBERS, WRAP, StripWork, plan_work
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.method import STEPS_PER_BLOCK, KnownGpu, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.support import usable_cores

# Put the stepper of `cpu.stream` together: a `CpuStepper` whose time loop is compiled for
# streaming.

Numbers = npt.NDArray[np.int64]
_CLAIM = 8  # counters per cache line


def make_stepper(
    problem: Problem, slab: Slab, work: StripWork, layout: PaddedField, team: ThreadTeam
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
    return ready.make_stepper(
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
    problem: Problem, slab: Slab, work: StripWork, layout: PaddedField, threads: int
) -> npt.NDArray[np.void]:
    """Fill the initial record of every thread; see `numbers.py`."""
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
    # Both arrays together exceed the last-level cache of all threads: write around it.
    n["past_caches"] = 2 * layout.n_bytes > read_caches().l3 * threads

    n["radius"], n["jam"], n["unroll"], n["fused"] = radii, shape.jam, shape.unroll, shape.fused
    n["depth"], n["ghosts"] = 2 * radii[0] + shape.jam[0], max(1, *radii)
    kernels = make_kernels(problem.stencil.offsets, problem.dtype, work.lanes, shape)
    for name, address in kernels.items():
        n[name] = address

    n["weights"], n["faces"] = work.constants, work.constants + problem.stencil.n_points
    n["rings"], n["across"], n["along"], n["line"] = work.rings, work.across, work.along, work.line
    return np.full(threads, n)


@dataclass(frozen=True)
class StreamMethod:
    """Stream strips through the caches, a block of steps in one pass over memory (`strips.py`,
    `line.py`).

    Its parameters: `steps_per_block`; `tile_x` and, in 3D, `tile_y`: width of a strip in points;
    `width`: bytes of a vector; `jam` and, in 3D, `jam_y`: planes and rows computed together; in 1D
    `fused`: levels per pass.
    """

    name: str = "cpu.stream"
    device: Literal["cpu"] = "cpu"
    exact: bool = True

    def refusal(self, problem: Problem) -> str | None:
        """Refuses float16, and stencils of so many points that compiling takes longer than most
        runs.
        """
        if problem.equations is not None:
            return why_not_equations(problem) or problem.why_not_substeps
        return why_not_blocked(problem, self.name)

    def parameters(self, problem: Problem) -> tuple[Parameters, ...]:
        """Rings of all levels that fill about half of the L2 cache, and neighbours of that."""
        choose = candidates if problem.equations is None else equation_candidates
        return choose(problem, read_caches())

    def fixed_at_compile(self, parameter: str) -> bool:
        """All but the steps of a block, the width of a strip and planes at a time."""
        return parameter not in (STEPS_PER_BLOCK, "tile_x", "tile_y", "visit")

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        """Nothing to say."""
        return None

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Two copies of the state, and the scratch memory of every thread that there may be."""
        chosen = self._complete(problem, parameters)
        cores = len(usable_cores())
        if problem.equations is not None:
            return stream_bytes(problem, slab, chosen, cores)
        work = _work(problem, slab, chosen, cores)
        return (
            2 * _layout(problem, slab, work).n_bytes
            + cores * work.scratch * np.dtype(problem.dtype).itemsize
        )

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Compile the kernels, take two copies of the slab and the scratch memory; `device` is a
        `ThreadTeam`.
        """
        if problem.equations is not None:
            from tetris_sim.cpu_kernels.equations import steppers

            chosen = self._complete(problem, parameters)
            return steppers.make_stepper(problem, slab, chosen, device)
        work = _work(problem, slab, self._complete(problem, parameters), device.size)
        return make_stepper(problem, slab, work, _layout(problem, slab, work), device)

    def _complete(self, problem: Problem, parameters: Parameters) -> Parameters:
        return {**self.parameters(problem)[0], **parameters}


def candidates(problem: Problem, caches: Caches) -> tuple[Parameters, ...]:
    """Parameter sets for the autotuner on a machine with these caches, the best guess first."""
    from tetris_sim.cpu_kernels.compiled.vectors import native_width

    width = native_width()
    if problem.grid.ndim == 1:
        fused = fused_shape(problem.stencil.offsets, width).fused
        steps = 256 // fused * fused
        tiles = [caches.l2 // part // np.dtype(problem.dtype).itemsize for part in (16, 8)]
        return tuple(
            {"steps_per_block": steps, "tile_x": tile, "fused": fused, "width": width}
            for tile in tiles
        )
    choices: list[Parameters] = []
    reach = max(problem.stencil.radius, 1)
    if problem.grid.ndim == 2:
        # Rings that fill more than the L2 cache cost little: they are read in order, and the L3
        # cache holds the rest.
        wide, narrow = ((4, 32, 1.2), (2, 32, 0.55)), ((2, 32, 0.55), (4, 24, 0.9))
        for jam, steps, filled in (*wide, (4, 24, 0.9)) if reach == 1 else narrow:
            levels = max(4, steps // reach)
            row = (
                caches.l2
                * filled
                / ((levels + 1) * (2 * problem.stencil.radii[0] + jam))
                / np.dtype(problem.dtype).itemsize
            )
            choices.append(
                {"steps_per_block": levels, "tile_x": int(row), "width": width, "jam": jam}
            )
        return tuple(choices)

    # A star reads most rows along its streamed axis, a box as many in each: jam accordingly.
    jam, jam_y = (2, 1) if problem.stencil.is_star else (1, 2)
    for steps in (12, 8):
        tile = {"steps_per_block": max(1, steps // reach), "tile_y": 24 * reach, "tile_x": 512}
        choices.append({**tile, "width": width, "jam": jam, "jam_y": jam_y})
    return tuple(choices)


def _work(problem: Problem, slab: Slab, parameters: Parameters, threads: int) -> StripWork:
    offsets, width = problem.stencil.offsets, parameters["width"]
    if problem.grid.ndim == 1:
        shape = fused_shape(offsets, width, parameters["fused"])
    else:
        shape = best_shape(offsets, (parameters["jam"], parameters.get("jam_y", 1)), width)

    tile = (parameters.get("tile_y", 1), parameters["tile_x"])
    return plan_work(
        problem,
        slab,
        threads,
        lanes=width // np.dtype(problem.dtype).itemsize,
        shape=shape,
        steps=parameters["steps_per_block"],
        tile=tile,
    )


def _layout(problem: Problem, slab: Slab, work: StripWork) -> PaddedField:
    """Room beyond periodic faces for all that a block reads, and beyond the last row for a strip
    that is too wide.
    """
    margins = [
        (work.steps * radius, work.steps * radius)
        if problem.boundary.periodic(axis) and halo == (0, 0)
        else least
        for axis, (least, halo, radius) in enumerate(
            zip(least_margins(problem, slab), slab.halo, problem.stencil.radii, strict=True)
        )
    ]
    return pad(problem, slab, margins, tail=work.overhang)
