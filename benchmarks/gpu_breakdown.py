"""What each technique of the tensor-core methods adds, in the manner of two figures of the papers.

ConvStencil's Figure 6: matrices A and B written to global memory and CUDA cores; the same matrices
in shared memory only; tensor cores; padding against bank conflicts; dirty bits. Where the paper
fuses steps to make kernels 7 points wide (heat-1d, box-2d9p) so does every rung here. The GPU part
of Figure 12 of the Tetris paper: tensor cores with banded matrices, blocking in shared memory, its
arrangement without conflicts, folding with octuple pipelining. Both ladders end with what this
program does beyond: as many steps per launch, on as many kinds of cores, as is fastest.

Rates are of kernels alone (`gpu_alone.py`), each rung with the parameters that are fastest for it.
Comparable with the papers are the factors from rung to rung: they had an A100, whose memory is half
as fast and whose tensor cores do a third.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.gpu_alone import Alone, Arena, explicit_alone, fastest, fused_alone, naive_alone
from benchmarks.gpu_labels import CONVSTENCIL, TETRIS
from benchmarks.gpu_limits import measure_gpu_limits
from tests.papers.convstencil.explicit_stencil2row import explicit_stencil2row
from tests.papers.tetris.banded import banded_kernel
from tetris_sim.bench.gpu import SHAPES, measured_gpu
from tetris_sim.bench.result import MachineLimits, When
from tetris_sim.bench.tables import copy_rate
from tetris_sim.bench.timing import TimedWork, interleave, random_problem
from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.tensor_cores.dual_tessellation import (
    dual_tessellation_kernel,
    dual_tessellation_parameters,
)
from tetris_sim.gpu_kernels.tensor_cores.trapezoid import trapezoid_kernel, trapezoid_parameters
from tetris_sim.model.method import STEPS_PER_BLOCK, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import named_stencil

FIGURES = {
    CONVSTENCIL: ("heat-1d", "box-2d9p", "box-2d49p", "box-3d27p"),
    TETRIS: ("star-1d5p", "box-2d25p", "box-3d27p"),
}
"""The stencils of each figure; box-2d49p is what the ConvStencil paper makes of box-2d9p."""

STENCILS = tuple(dict.fromkeys(name for names in FIGURES.values() for name in names))

_WIDEST = {
    1: 3,
    2: 3,
    3: 1,
}  # radius of the paper's kernels after fusion, by axes: its 3D kernels are not fused
_FEW_TAPS = 5  # planes of a 3D stencil with more go through tensor cores
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rung:
    """One technique more than the rung below.

    Attributes:
        label: what it adds.
        kernels: what can be launched for a problem.
    """

    label: str
    kernels: Callable[[Problem], Sequence[Alone]]


def bench_gpu_breakdown(
    names: Sequence[str] = STENCILS,
    *,
    shape: tuple[int, ...] | None = None,
    dtypes: Sequence[str] = ("float64",),
    rounds: int = 7,
    seconds: float = 0.4,
) -> dict[str, Any]:
    """The ladder of each figure that has the stencil, both if none has it; arguments as of
    `bench_gpu`.

    Raises:
        UnsupportedError: there is no GPU, or another dtype than float64 is asked for.
    """
    if tuple(dtypes) != ("float64",):
        msg = f"the breakdown is of FP64 tensor cores, and {', '.join(dtypes)} was asked for"
        raise UnsupportedError(msg)
    found = []
    with measured_gpu(rounds=rounds, seconds=seconds, measure=measure_gpu_limits) as (
        result,
        device,
    ):
        for name in names:
            problem = random_problem(
                name, shape or SHAPES[named_stencil(name).stencil.ndim], "float64"
            )
            for figure in figures_with(name):
                steps = climb(problem, LADDERS[figure], device, rounds=rounds, seconds=seconds)
                header = {"figure": figure, "stencil": name, "n_terms": problem.stencil.n_points}
                found.append(
                    {**header, "shape": list(problem.grid.shape), "dtype": "float64", **steps}
                )
                _LOG.info("%s, %s done", figure, name)
    return {
        **result.as_json(),
        "gpu_breakdown": [compare_rungs(ladder, result.gpu_limits) for ladder in found],
    }


def figures_with(name: str) -> list[str]:
    """Those that a stencil is in, all if it is in none.

    >>> figures_with("box-2d25p"), len(figures_with("heat-2d"))
    (['Tetris, Figure 12'], 2)
    """
    return [figure for figure, names in FIGURES.items() if name in names] or list(FIGURES)


def climb(
    problem: Problem, ladder: Sequence[Rung], device: GpuDevice, *, rounds: int, seconds: float
) -> dict[str, Any]:
    """The rate of every rung, interleaved: {"steps": rows with a label each, "missing": label to
    reason}.
    """
    arena = Arena(problem, device)
    chosen: dict[str, tuple[Alone, TimedWork]] = {}
    missing = {}
    for rung in ladder:
        try:
            chosen[rung.label] = fastest(arena, rung.kernels(problem), seconds=seconds / 4)
        except UnsupportedError as refusal:
            missing[rung.label] = str(refusal)
    timings = interleave(
        {label: work for label, (_, work) in chosen.items()}, rounds=rounds, seconds=seconds
    )
    rows = [
        {
            "name": label,
            "parameters": dict(alone.parameters),
            "depth": alone.depth,
            "steady": asdict(timings[label]),
        }
        for label, (alone, _) in chosen.items()
    ]
    chosen.clear()
    arena.close()
    return {"steps": rows, "missing": missing}


def compare_rungs(
    ladder: Mapping[str, Any], limits: Mapping[When, MachineLimits]
) -> dict[str, Any]:
    """The same ladder with, in every row, its multiples of the first row, of the row before, and of
    one sweep.
    """
    one_sweep = copy_rate(limits) / 16  # 8 bytes read, 8 written
    rates = [float(row["steady"]["median"]) for row in ladder["steps"]]
    rows = [
        {
            **row,
            "over_first": rate / rates[0],
            "over_previous": rate / previous,
            "times_one_sweep": rate / one_sweep,
        }
        for row, rate, previous in zip(ladder["steps"], rates, [*rates[:1], *rates], strict=False)
    ]
    return {**ladder, "steps": rows}


def paper_steps(problem: Problem) -> int:
    """Steps that the ConvStencil paper fuses (section 3.3): until a kernel is 7 points wide, in 1D
    and 2D.
    """
    return max(1, _WIDEST[problem.grid.ndim] // problem.stencil.radius)


def with_steps(choices: Sequence[Parameters], steps: int) -> list[Parameters]:
    """Every choice with so many steps, without doubles.

    >>> with_steps([{"steps_per_block": 4, "warps": 2}, {"steps_per_block": 2, "warps": 2}], 1)
    [{'steps_per_block': 1, 'warps': 2}]
    """
    changed = [{**choice, STEPS_PER_BLOCK: steps} for choice in choices]
    return list({tuple(sorted(choice.items())): choice for choice in changed}.values())


def _tessellations(switches: Mapping[str, int] | None) -> Callable[[Problem], list[Alone]]:
    """Kernels of gpu.dual_tessellation with the paper's steps and certain switches; as proposed if
    None.
    """

    def kernels(problem: Problem) -> list[Alone]:
        stencil = problem.stencil
        choices: Sequence[Parameters] = dual_tessellation_parameters(stencil, problem.dtype)
        if switches is not None:
            fixed = {**switches, **({"cuda_points": _FEW_TAPS} if problem.grid.ndim == 3 else {})}
            choices = with_steps([{**choice, **fixed} for choice in choices], paper_steps(problem))
        return [
            fused_alone(dual_tessellation_kernel(stencil, problem.dtype, choice), choice)
            for choice in choices
        ]

    return kernels


def _explicit(problem: Problem) -> list[Alone]:
    return [explicit_alone(explicit_stencil2row(problem.stencil, paper_steps(problem)))]


def _banded(*, shared: bool, swizzled: bool = False) -> Callable[[Problem], list[Alone]]:
    def kernels(problem: Problem) -> list[Alone]:
        kernel = banded_kernel(problem.stencil, 1, shared=shared, swizzled=swizzled)
        return [fused_alone(kernel, {STEPS_PER_BLOCK: 1})]

    return kernels


def _trapezoids(steps: int | None) -> Callable[[Problem], list[Alone]]:
    """Kernels of gpu.trapezoid with certain steps, or as proposed."""

    def kernels(problem: Problem) -> list[Alone]:
        choices: Sequence[Parameters] = trapezoid_parameters(problem.stencil, problem.dtype)
        choices = choices if steps is None else with_steps(choices, steps)
        return [
            fused_alone(trapezoid_kernel(problem.stencil, problem.dtype, choice), choice)
            for choice in choices
        ]

    return kernels


LADDERS: Mapping[str, tuple[Rung, ...]] = {
    CONVSTENCIL: (
        Rung("stencil2row in global memory, CUDA cores", _explicit),
        Rung("in shared memory", _tessellations({"tensor": 0, "padding": 0, "dirty_bits": 0})),
        Rung("+ tensor cores", _tessellations({"tensor": 1, "padding": 0, "dirty_bits": 0})),
        Rung("+ padding", _tessellations({"tensor": 1, "padding": 1, "dirty_bits": 0})),
        Rung("+ dirty bits", _tessellations({"tensor": 1, "padding": 1, "dirty_bits": 1})),
        Rung("+ steps and cores as tuned", _tessellations(None)),
    ),
    TETRIS: (
        Rung("plain sweep", lambda _: [naive_alone()]),
        Rung("banded matrices, tensor cores", _banded(shared=False)),
        Rung("+ blocks in shared memory", _banded(shared=True)),
        Rung("+ no bank conflicts", _banded(shared=True, swizzled=True)),
        Rung("+ folding, octuple pipelining", _trapezoids(1)),
        Rung("+ steps as tuned", _trapezoids(None)),
    ),
}
