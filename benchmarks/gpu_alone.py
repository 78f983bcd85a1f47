"""GPU kernels by themselves: one launch after the other, on the points that no face concerns,
nothing beside them.

For what looks at kernels, not at runs: the breakdown (`gpu_breakdown.py`) and the counters
(`gpu_counters.py`). Every launch reads the same random numbers: results of averaging would become
smooth, and smooth fields take less power.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu_peers import NAIVE
from tests.papers.convstencil.explicit_stencil2row import SOURCE, THREADS, ExplicitStencil2Row
from tetris_sim.bench.timing import TimedWork, random_numbers
from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import (
    LINE,
    Box3,
    box_argument,
    by_value,
    memory_argument,
    pitch_slab,
    term_defines,
    term_weights,
)
from tetris_sim.gpu_kernels.fused.kernel import CompiledKernel, FusedKernel
from tetris_sim.model.grid import on_three
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

_NAIVE_BLOCK = (64, 4, 1)
_NAIVE_BLOCK_1D = (256, 1, 1)

Launch = Callable[[Any, Any], None]
"""Read the first array and write the second, both from their first owned point on."""


@dataclass(frozen=True)
class Alone:
    """A kernel, or a few that belong together.

    Attributes:
        parameters: by which it differs from others of its kind.
        depth: steps that a launch makes.
        open: compile it and take what memory it needs.
    """

    parameters: Parameters
    depth: int
    open: Callable[[Arena], Launch]


class Arena:
    """Two arrays of a problem in GPU memory, full of random numbers; to be closed."""

    def __init__(self, problem: Problem, device: GpuDevice) -> None:
        self.problem, self.device = problem, device
        self._layout = pitch_slab(problem, Slab.whole(problem.grid))
        self.memory = memory_argument(*self._layout.pitches, self._layout.within)
        with device.use() as cupy:
            rng = cupy.random.default_rng(0)
            count = self._layout.n_bytes // problem.dtype.itemsize
            self._arrays = [random_numbers(rng, count, problem.dtype) for _ in range(2)]

    def box(self, depth: int) -> Box3:
        """The points that no face reaches in so many steps, from whole lines on.

        Raises:
            UnsupportedError: there are none.
        """
        inner = [
            (depth * radius, n - depth * radius)
            for n, radius in zip(self.problem.grid.shape, self.problem.stencil.radii, strict=True)
        ]
        spans = list(on_three(inner, (0, 1)))
        line = LINE // self.problem.dtype.itemsize
        spans[2] = (-(-spans[2][0] // line) * line, spans[2][1])
        if any(low >= high for low, high in spans):
            msg = (
                f"no point of {self.problem.grid.shape} is farther than {depth} steps from all "
                "faces"
            )
            raise UnsupportedError(msg)
        return spans[0], spans[1], spans[2]

    def launch(self, launch: Launch) -> None:
        """Once."""
        now, then = (array[self._layout.origin :] for array in self._arrays)
        with self.device.use():
            launch(now, then)

    def work(self, alone: Alone) -> TimedWork:
        """A repetition is a launch, its units are point updates.

        Raises:
            UnsupportedError: it does not compile, or not enough points are there.
        """
        box, launch = self.box(alone.depth), alone.open(self)
        n_points = 1
        for low, high in box:
            n_points *= high - low

        def run(launches: int) -> None:
            for _ in range(launches):
                self.launch(launch)
            self.device.stream.synchronize()

        return TimedWork(run, n_points * alone.depth)

    def close(self) -> None:
        """Give the memory back."""
        self._arrays = []
        self.device.release()


def fused_alone(kernel: FusedKernel, parameters: Parameters) -> Alone:
    """A fused kernel, without ghosts and frame."""

    def open_(arena: Arena) -> Launch:
        with arena.device.use():
            compiled = CompiledKernel(kernel, arena.device)
        cut = compiled.cut(arena.box(kernel.depth))

        def launch(now: Any, then: Any) -> None:
            compiled.launch(now, then, arena.memory, cut)

        return launch

    return Alone(parameters, kernel.depth, open_)


def naive_alone() -> Alone:
    """A point per thread, a step per launch."""

    def open_(arena: Arena) -> Launch:
        box = arena.box(1)
        with arena.device.use():
            function = arena.device.function(NAIVE, "naive", term_defines(arena.problem))
        z, y, x = (high - low for low, high in box)
        block = _NAIVE_BLOCK if y > 1 else _NAIVE_BLOCK_1D
        grid = (-(-x // block[0]), -(-y // block[1]), z)
        rest = (arena.memory, box_argument(box), by_value(term_weights(arena.problem)))

        def launch(now: Any, then: Any) -> None:
            function(grid, block, (now, then, *rest))

        return launch

    return Alone({}, 1, open_)


def explicit_alone(explicit: ExplicitStencil2Row) -> Alone:
    """Matrices A and B written to global memory, and results computed from them: two launches."""

    def open_(arena: Arena) -> Launch:
        device, box = arena.device, arena.box(explicit.depth)
        with device.use():
            transform, multiply = (
                device.function(SOURCE, entry, explicit.defines)
                for entry in ("transform", "multiply")
            )
        elements, results = explicit.elements(box), explicit.results(box)
        with device.use() as cupy:
            matrices = cupy.zeros(2 * elements)
        where, weights = box_argument(box), by_value(explicit.weights)

        def launch(now: Any, then: Any) -> None:
            block = (THREADS, 1, 1)
            transform((-(-elements // THREADS), 1, 1), block, (now, matrices, arena.memory, where))
            multiply(
                (-(-results // THREADS), 1, 1),
                block,
                (matrices, then, arena.memory, where, weights),
            )

        return launch

    return Alone({"steps_per_block": explicit.depth}, explicit.depth, open_)


def fastest(arena: Arena, choices: Iterable[Alone], *, seconds: float) -> tuple[Alone, TimedWork]:
    """The choice with the highest rate in one timing of about so many seconds; a single one is not
    timed.

    Raises:
        UnsupportedError: none of them can be launched.
    """
    found: list[tuple[float, Alone, TimedWork]] = []
    refusals = []
    candidates: Sequence[Alone] = list(choices)
    for alone in candidates:
        try:
            work = arena.work(alone)
            rate = _rate(work, seconds) if len(candidates) > 1 else 1.0
        except (UnsupportedError, ValueError) as error:
            refusals.append(str(error))
            continue
        found.append((rate, alone, work))
    if not found:
        raise UnsupportedError("; ".join(dict.fromkeys(refusals)) or "there is nothing to launch")
    _, alone, work = max(found, key=lambda each: each[0])
    return alone, work


def _rate(work: TimedWork, seconds: float) -> float:
    work.run(1)  # compiles
    one = _elapsed(work, 1)
    launches = max(1, round(seconds / one))
    return work.units * launches / _elapsed(work, launches)


def _elapsed(work: TimedWork, launches: int) -> float:
    begin = time.perf_counter()
    work.run(launches)
    return max(time.perf_counter() - begin, 1e-9)
