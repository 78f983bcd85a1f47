"""The Method `cpu.stream`: what may be chosen, what it costs, and how its stepper is put
together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tetris_sim.cpu_kernels.common.blocking import (
    usable_cores,
    why_not_blocked,
    why_not_equations,
)
from tetris_sim.cpu_kernels.common.caches import Caches, read_caches
from tetris_sim.cpu_kernels.common.layout import PaddedField, least_margins, pad
from tetris_sim.cpu_kernels.equations.choices import equation_candidates, stream_bytes
from tetris_sim.cpu_kernels.stream.kernels import best_shape, fused_shape
from tetris_sim.cpu_kernels.stream.work import Work, plan_work
from tetris_sim.model.method import STEPS_PER_BLOCK, KnownGpu, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab


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
        cores = usable_cores()
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
        from tetris_sim.cpu_kernels.stream.stepper import make_stepper

        if problem.equations is not None:
            from tetris_sim.cpu_kernels.equations import streaming

            chosen = self._complete(problem, parameters)
            return streaming.make_stepper(problem, slab, chosen, device)
        work = _work(problem, slab, self._complete(problem, parameters), device.size)
        return make_stepper(problem, slab, work, _layout(problem, slab, work), device)

    def _complete(self, problem: Problem, parameters: Parameters) -> Parameters:
        return {**self.parameters(problem)[0], **parameters}


def candidates(problem: Problem, caches: Caches) -> tuple[Parameters, ...]:
    """What is worth trying on a machine with these caches, the best guess first."""
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

    jam, jam_y = (2, 1) if problem.stencil.is_star else (1, 2)
    for steps in (12, 8):
        tile = {"steps_per_block": max(1, steps // reach), "tile_y": 24 * reach, "tile_x": 512}
        choices.append({**tile, "width": width, "jam": jam, "jam_y": jam_y})
    return tuple(choices)


def _work(problem: Problem, slab: Slab, parameters: Parameters, threads: int) -> Work:
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


def _layout(problem: Problem, slab: Slab, work: Work) -> PaddedField:
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
