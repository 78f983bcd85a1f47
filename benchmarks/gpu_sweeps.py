"""Rate against the size of the grid on a GPU, several steps at once and one: ConvStencil's Figures
7 and 8.

Figure 7 compares methods at one size, Figure 8 at many, and asks whether what is gained comes from
fusing steps. Here every method of the GPU advances whole grids of every size, faces included
(periodic ones, as in `gpu.py`), with as many steps per launch as is fastest and, where its kernels
compose steps, one at a time. `gpu.plain` is one step at a time for all. The papers' peers
(DRStencil, Brick, AMOS) are not here; cuDNN is in the main benchmark.

Timings are short: a second of work would meet the power limit, which costs up to a tenth (`bench
gpu` shows that).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.gpu_breakdown import with_steps
from benchmarks.gpu_labels import ONE_STEP
from benchmarks.gpu_limits import measure_gpu_limits
from tetris_sim.bench.candidates import open_method, time_steady
from tetris_sim.bench.gpu import measured_gpu, random_made_there, weight_kinds
from tetris_sim.bench.timing import TimedWork, random_problem
from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.model.method import STEPS_PER_BLOCK, Method, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import named_stencil

STENCILS = ("heat-1d", "star-1d5p", "heat-2d", "box-2d9p", "box-2d49p", "heat-3d", "box-3d27p")
"""Those that are swept if none are named."""

LENGTHS = {
    1: (100_000, 320_000, 1_000_000, 3_200_000, 10_000_000, 32_000_000, 100_000_000),
    2: (256, 512, 1024, 2048, 4096, 8192, 16384),
    3: (64, 128, 256, 512, 1024),
}
"""Points along every axis by number of axes."""

_COMPOSING = (
    "gpu.trapezoid",
    "gpu.dual_tessellation",
)  # apply a composed stencil: one step is as natural as several
# larger grids take the parameters of the one before: loading takes longer than timing
_CHOICE_POINTS = 1 << 27
_SETTLED_POINTS = 1 << 22  # from here on, what is far behind at one size is not tried at the next
_FAR_BEHIND = 1.25
_PART = 4  # choosing takes a timing of this part of `seconds`
_RECORDED_POINTS, _RECORDED_BLOCKS = (
    1 << 23,
    64,
)  # smaller grids replay records of 32 passes (stepper.py)
_SPARE = 1 << 30  # bytes of GPU memory that are left free
_LOG = logging.getLogger(__name__)


@dataclass
class Line:
    """A line of the figure: a method with several steps per launch, or with one.

    Attributes:
        label: its name there.
        method: how to advance.
        choices: parameters that are still worth trying.
        chosen: the fastest at the size that was tried last.
    """

    label: str
    method: Method
    choices: list[Parameters]
    chosen: Parameters = field(default_factory=dict)


def bench_gpu_sweep(
    names: Sequence[str] = STENCILS,
    *,
    shape: tuple[int, ...] | None = None,
    dtypes: Sequence[str] = ("float64",),
    rounds: int = 7,
    seconds: float = 0.4,
) -> dict[str, Any]:
    """The sweep for every stencil and dtype; arguments as of `bench_gpu`. Sizes end at `shape`, if
    it is given.

    Raises:
        UnsupportedError: there is no GPU.
    """
    sweeps = []
    with measured_gpu(rounds=rounds, seconds=seconds, measure=measure_gpu_limits) as (
        result,
        device,
    ):
        assert result.gpu is not None
        for name in names:
            for dtype in dtypes:
                shapes = shapes_to_sweep(named_stencil(name).stencil.ndim, last=shape)
                points = sweep_gpu(
                    name,
                    shapes,
                    dtype,
                    device,
                    memory=result.gpu.memory,
                    rounds=rounds,
                    seconds=seconds,
                )
                header = {"stencil": name, "weights": weight_kinds(name)[0], "dtype": dtype}
                sweeps.append({**header, "points": points})
    return {**result.as_json(), "gpu_sizes": sweeps}


def shapes_to_sweep(ndim: int, *, last: tuple[int, ...] | None = None) -> list[tuple[int, ...]]:
    """Grids of as many points along each axis.

    >>> shapes_to_sweep(3, last=(300, 400, 400))
    [(64, 64, 64), (128, 128, 128), (256, 256, 256), (300, 400, 400)]
    """
    cubes = [(n,) * ndim for n in LENGTHS[ndim]]
    return cubes if last is None else [cube for cube in cubes if cube[0] < min(last)] + [last]


def lines_of(problem: Problem) -> list[Line]:
    """What is drawn for a problem: every method that does not refuse and, where it composes steps,
    with one.
    """
    found = []
    for method in METHODS:
        if method.refusal(problem) is not None:
            continue
        choices = list(method.parameters(problem))
        found.append(Line(method.name, method, choices))
        if method.name in _COMPOSING and any(choice[STEPS_PER_BLOCK] > 1 for choice in choices):
            single = [choice for choice in choices if choice[STEPS_PER_BLOCK] == 1] or with_steps(
                choices, 1
            )
            found.append(Line(method.name + ONE_STEP, method, single))
    return found


def sweep_gpu(
    name: str,
    shapes: Sequence[tuple[int, ...]],
    dtype: str,
    device: GpuDevice,
    *,
    memory: int,
    rounds: int,
    seconds: float,
) -> list[dict[str, Any]]:
    """Rates of every line for each shape, from small to large: {"shape", "bytes", "rows",
    "missing"} each.

    Args:
        name: of a stencil of the catalogue.
        shapes: the grids.
        dtype: float64 or float32.
        device: the GPU.
        memory: bytes of it that can be taken.
        rounds: timings of each line, interleaved.
        seconds: length of one timing.
    """
    points = []
    lines: list[Line] | None = None
    for shape in shapes:
        problem = random_problem(name, shape, dtype, weight_kinds(name)[0], "periodic")
        problem = random_made_there(problem)
        lines = lines_of(problem) if lines is None else lines
        header = {"shape": list(shape), "bytes": problem.state_bytes}
        together = int(
            (memory - _SPARE) // (2.1 * problem.state_bytes)
        )  # two arrays each, and what surrounds them
        if together < 1:
            missing = dict.fromkeys(
                (line.label for line in lines), "the grid does not fit into GPU memory"
            )
            points.append({**header, "rows": [], "missing": missing})
            continue
        missing = {
            line.label: why
            for line in lines
            if (why := _choose(line, problem, device, seconds)) is not None
        }
        rows: list[dict[str, Any]] = []
        for part in _parts([line for line in lines if line.label not in missing], together):
            candidates = [open_method(problem, line.method, line.chosen, device) for line in part]
            for candidate in candidates:
                _settle(candidate.work)
            labels = [line.label for line in part]
            rows += map(
                asdict, time_steady(candidates, rounds=rounds, seconds=seconds, labels=labels)
            )
        points.append({**header, "rows": rows, "missing": missing})
        _LOG.info("%s, %s: %s points done", name, dtype, f"{problem.grid.n_points:,}")
    return points


def _choose(line: Line, problem: Problem, device: GpuDevice, seconds: float) -> str | None:
    """Find the fastest parameters and forget those that are far behind; why there are none, or
    None.
    """
    n_points = problem.grid.n_points
    if len(line.choices) == 1 or (line.chosen and n_points > _CHOICE_POINTS):
        line.chosen = line.chosen or line.choices[0]
        return None
    piece = problem
    if n_points > _CHOICE_POINTS:
        shape = (
            max(1, problem.grid.shape[0] * _CHOICE_POINTS // n_points),
            *problem.grid.shape[1:],
        )
        piece = problem.on_shape(shape)
    tried: list[tuple[float, Parameters]] = []
    refusals = []
    for choice in line.choices:
        try:
            tried.append((_try(piece, line.method, choice, device, seconds / _PART), choice))
        except (UnsupportedError, ValueError) as error:
            refusals.append(str(error))
    if not tried:
        return "; ".join(dict.fromkeys(refusals))
    best, line.chosen = max(tried, key=lambda each: each[0])
    if n_points >= _SETTLED_POINTS:
        line.choices = [choice for rate, choice in tried if rate * _FAR_BEHIND >= best]
    return None


def _try(
    piece: Problem, method: Method, choice: Parameters, device: GpuDevice, seconds: float
) -> float:
    """Point updates per second in one timing."""
    candidate = open_method(piece, method, choice, device)
    try:
        work, blocks = candidate.work, _settle(candidate.work)
        launched = work.quantum * max(
            blocks, round(blocks * seconds / _elapsed(work, work.quantum * blocks))
        )
        return work.units * launched / _elapsed(work, launched)
    finally:
        candidate.close()


def _settle(work: TimedWork) -> int:
    """Make blocks until the stepper has recorded launches if it does, which takes longer than they;
    how many.
    """
    blocks = _RECORDED_BLOCKS if work.units <= _RECORDED_POINTS else 1
    work.run(work.quantum * blocks)
    return blocks


def _elapsed(work: TimedWork, repetitions: int) -> float:
    begin = time.perf_counter()
    work.run(repetitions)
    return max(time.perf_counter() - begin, 1e-9)


def _parts(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Parts of so many, the last one perhaps smaller."""
    rest = iter(lines)
    while part := list(itertools.islice(rest, size)):
        yield part
