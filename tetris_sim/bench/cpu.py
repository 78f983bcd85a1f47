"""How fast the CPU methods are, beside what a user would write by hand, and beside the machine's memory bandwidth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from tetris_sim.bench.baselines import make_prange, padded_random
from tetris_sim.bench.timing import copy_bandwidth, interleave, provenance
from tetris_sim.boundary import Boundary, Neumann
from tetris_sim.catalogue import STENCIL_NAMES, named_stencil
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.threads import ThreadTeam
from tetris_sim.grid import Grid
from tetris_sim.problem import Field, Problem, Total, Variable
from tetris_sim.scheduler.machine import find_machine
from tetris_sim.slab import Slab
from tetris_sim.stencil import Stencil

SHAPES = {1: (10_000_000,), 2: (4800, 4800), 3: (384, 384, 384)}


def random_problem(name: str, shape: tuple[int, ...], dtype: str) -> Problem:
    """A stencil of the catalogue with random positive weights of sum 1, on random data."""
    rng = np.random.default_rng(1)
    offsets = named_stencil(name).stencil.offsets
    weights = rng.uniform(0.5, 1.5, len(offsets))
    stencil = Stencil(offsets, tuple(weights / weights.sum()))
    data = padded_random(stencil, shape, dtype)
    inside = data[tuple(slice(r, r + n) for r, n in zip(stencil.radii, shape, strict=True))]

    def initial(slab: Slab) -> Field:
        box = tuple(slice(start, stop) for start, stop in zip(slab.start, slab.stop, strict=True))
        return np.asarray(inside[box])[np.newaxis]

    return Problem(
        grid=Grid(shape, (1.0,) * len(shape), (0.0,) * len(shape)),
        stencil=stencil,
        boundary=Boundary.everywhere(Neumann(), len(shape)),
        initial=initial,
        dt=1.0,
        steps=1,
        dtype=np.dtype(dtype),
        variables=(Variable("u", "1", "u", Total("integral", "1", 1.0)),),
    )


def bench_kernel(
    name: str, shape: tuple[int, ...], *, dtype: str = "float64", rounds: int = 7, seconds: float = 0.4
) -> dict[str, Any]:
    """Steady-state rates of every CPU method and of both baselines for one stencil.

    Args:
        name: of the catalogue.
        shape: interior points, array order.
        dtype: float64 or float32.
        rounds: timings of each candidate, interleaved.
        seconds: length of one timing.
    """
    problem = random_problem(name, shape, dtype)
    team = ThreadTeam(find_machine().threads)
    candidates: dict[str, Callable[[int], None]] = {}
    u = padded_random(problem.stencil, shape, dtype)
    arrays, weights = [u, u.copy()], np.array(problem.stencil.weights, dtype=dtype)
    for form in ("slices", "indexed"):
        sweep = make_prange(problem.stencil, form)

        def baseline(repetitions: int, sweep: Any = sweep) -> None:
            for k in range(repetitions):
                sweep(arrays[k % 2], arrays[1 - k % 2], weights)

        candidates[f"prange {form}"] = baseline
    steppers = []
    for method in METHODS:
        if method.refusal(problem) is None:
            stepper = method.prepare(problem, Slab.whole(problem.grid), method.parameters(problem)[0], team)
            stepper.load(problem.initial)
            steppers.append(stepper)

            def advance(repetitions: int, stepper: Any = stepper) -> None:
                stepper.advance(repetitions)
                stepper.wait()

            candidates[method.name] = advance
    timings = interleave(candidates, problem.grid.n_points, rounds=rounds, seconds=seconds)
    for stepper in steppers:
        stepper.close()
    team.close()
    best = max(timings["prange slices"].median, timings["prange indexed"].median)
    return {
        "stencil": name,
        "shape": list(shape),
        "dtype": dtype,
        "rates": {key: asdict(timing) for key, timing in timings.items()},
        "ratio_to_prange": {m.name: timings[m.name].median / best for m in METHODS if m.name in timings},
    }


def bench_cpu(
    names: tuple[str, ...] = STENCIL_NAMES,
    *,
    shape: tuple[int, ...] | None = None,
    dtype: str = "float64",
    rounds: int = 7,
    seconds: float = 0.4,
) -> dict[str, Any]:
    """The whole benchmark: bandwidth before and after, every stencil between."""
    before = copy_bandwidth()
    kernels = [
        bench_kernel(
            name, shape or SHAPES[named_stencil(name).stencil.ndim], dtype=dtype, rounds=rounds, seconds=seconds
        )
        for name in names
    ]
    return {
        **provenance(),
        "copy_bytes_per_second": [before, copy_bandwidth()],
        "kernels": kernels,
    }


def as_table(result: dict[str, Any]) -> str:
    """The result for people: GStencil/s, median with the spread of the rounds."""
    low, high = (value / 1e9 for value in result["copy_bytes_per_second"])
    lines = [
        f"{result['cpu']}, {result['threads']} threads, {result['date']}, commit {result['commit']}",
        f"memory copy, read + write: {low:.1f} GB/s before, {high:.1f} GB/s after",
        f"{'stencil':<12} {'grid':<14} {'dtype':<8} {'candidate':<15} {'GStencil/s':>10} {'spread':>15} {'ratio':>6}",
    ]
    for kernel in result["kernels"]:
        best = max(rate["median"] for name, rate in kernel["rates"].items() if name.startswith("prange"))
        grid = "x".join(str(n) for n in reversed(kernel["shape"]))
        for name, rate in kernel["rates"].items():
            spread = f"{rate['low'] / 1e9:.2f}..{rate['high'] / 1e9:.2f}"
            lines.append(
                f"{kernel['stencil']:<12} {grid:<14} {kernel['dtype']:<8} {name:<15} "
                f"{rate['median'] / 1e9:>10.3f} {spread:>15} {rate['median'] / best:>6.2f}"
            )
    return "\n".join(lines)
