"""Candidates of the benchmark, ready to be timed: the `prange` loops, and every method with its
best parameters; and the tables of the CPU: beside what a user would write by hand, and beside what
the machine can do at most.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.bench.limits import fma_work, measure_limits
from tetris_sim.bench.result import (
    BenchCase,
    BenchResult,
    BenchRow,
    BenchTrial,
    MachineLimits,
    When,
    WholeRun,
)
from tetris_sim.bench.timing import (
    SHAPES,
    WHOLE_RUN_STEPS,
    TimedWork,
    announced,
    interleave,
    named_case,
    provenance,
    random_field,
    random_problem,
)
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.method import STEPS_PER_BLOCK, Method, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Offset, Stencil
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.machine.machine import available_memory, find_machine
from tetris_sim.support.files import generated_module
from tetris_sim.support.wording import gib

# What a user would write by hand with Numba: the loops that our kernels are compared with.
#
# Two forms of one sweep with `prange`: `indexed` writes u[i + di, j + dj], as the formula is
# printed; `slices` names a shifted view per point of the stencil, so that the inner loop has one
# index (in 1D of a piece of the array). The array carries its ghost ring; boundaries are not
# updated, which flatters these loops. The threads of OpenMP spin between two sweeps as they do for
# any user: on small grids beside another busy process that costs nearly everything (301 x 200
# points on two cores: 4.9 GStencil/s alone, 0.007 beside one; Zen 4, November 2026).

Array = npt.NDArray[Any]
Form = Literal["slices", "indexed"]
FORMS: tuple[Form, ...] = ("indexed", "slices")
_NAMES = "ijk"
# points; from 1024 to one piece per thread the rate is the same (2.2 GStencil/s, Zen 4, November
# 2026)
_PIECE = 4096

# Each thread touches first what it will compute: prange deals the outermost axis out alike in every
# loop.
_FILL = """
@njit(parallel=True, cache=True)
def fill(u, values):
    for i in prange(u.shape[0]):
        u[i] = values[i]
"""


def prange_source(stencil: Stencil, form: Form) -> str:
    """The text of `sweep(u, v, w)`: v = one step of u on the interior, all of it written out."""
    body = _indexed(stencil) if form == "indexed" else _slices(stencil)
    head = ["from numba import njit, prange", "", ""]
    head += ["@njit(parallel=True, cache=True, fastmath={'contract'})", "def sweep(u, v, w):"]
    return "\n".join([*head, *body]) + "\n"


def _indexed(stencil: Stencil) -> list[str]:
    index = _NAMES[: stencil.ndim]
    lines = _loops(stencil, stencil.ndim)
    terms = [f"w[{k}] * u[{_place(offset, index)}]" for k, offset in enumerate(stencil.offsets)]
    return [*lines, f"{'    ' * (stencil.ndim + 1)}v[{', '.join(index)}] = {' + '.join(terms)}"]


def _slices(stencil: Stencil) -> list[str]:
    inner, r = stencil.ndim - 1, stencil.radii[-1]
    pad, index = "    " * max(2, stencil.ndim), _NAMES[:inner]
    if inner == 0:
        lines = [
            f"    end = u.shape[0] - {r}",
            f"    for piece in prange((end - {r} + {_PIECE - 1}) // {_PIECE}):",
        ]
        lines += [f"{pad}low = {r} + piece * {_PIECE}", f"{pad}high = min(low + {_PIECE}, end)"]
    else:
        lines = _loops(stencil, inner)
        lines.append(f"{pad}low, high = {r}, u.shape[{inner}] - {r}")

    # A view for each point of the stencil, so that the inner loop has one index for all.
    for k, offset in enumerate(stencil.offsets):
        along = f"low + {offset[-1]} : high + {offset[-1]}"
        lines.append(f"{pad}u{k} = u[{_join(_place(offset[:-1], index), along)}]")
    lines.append(f"{pad}o = v[{_join(', '.join(index), 'low : high')}]")
    lines.append(f"{pad}for x in range(o.size):")
    lines.append(
        f"{pad}    o[x] = {' + '.join(f'w[{k}] * u{k}[x]' for k in range(stencil.n_points))}"
    )
    return lines


def _loops(stencil: Stencil, n_axes: int) -> list[str]:
    """The loops over the first axes, the outermost in parallel."""
    return [
        f"{'    ' * (axis + 1)}for {_NAMES[axis]} in {'range' if axis else 'prange'}"
        f"({stencil.radii[axis]}, u.shape[{axis}] - {stencil.radii[axis]}):"
        for axis in range(n_axes)
    ]


def _place(offset: Offset, index: str) -> str:
    return ", ".join(f"{name} + {d}" for name, d in zip(index, offset, strict=True))


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


@functools.cache
def make_prange(stencil: Stencil, form: Form) -> Callable[[Array, Array, Array], None]:
    """The compiled sweep, on as many threads as `numba.set_num_threads` says."""
    return generated_module(prange_source(stencil, form), part="baselines").sweep  # type: ignore[no-any-return]


def padded_pair(stencil: Stencil, shape: tuple[int, ...], dtype: npt.DTypeLike) -> list[Array]:
    """Two equal arrays of random numbers with a ghost ring, each part touched first by the thread
    that computes it.
    """
    fill = generated_module("from numba import njit, prange\n\n" + _FILL, part="baselines").fill
    values = random_field(
        tuple(n + 2 * r for n, r in zip(shape, stencil.radii, strict=True)), dtype
    )
    pair = [np.empty(values.shape, dtype=dtype) for _ in range(2)]
    for array in pair:
        fill(array, values)
    return pair


_TUNING_ROUNDS = 2
_WHOLE_RUNS = 3  # end-to-end runs of which the median counts, if they do not take too long
_LONG = 5.0  # s
_STEADY_PART = 4  # steady state is timed again beside each of them, over this part of its steps


@dataclass(frozen=True)
class TimedCandidate:
    """One way to advance a problem, with its memory taken.

    Attributes:
        name: of the method, or "prange indexed" and "prange slices".
        parameters: chosen for a method; none for the loops.
        work: one repetition is one step of all points.
        close: gives the memory back.
    """

    name: str
    parameters: Parameters
    work: TimedWork
    close: Callable[[], None]


def open_prange(problem: Problem, threads: int) -> list[TimedCandidate]:
    """The hand-written loops, on as many threads as our methods have; they share two arrays."""
    import numba

    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    arrays = padded_pair(problem.stencil, problem.grid.shape, problem.dtype)
    weights = np.array(problem.stencil.weights, dtype=problem.dtype)

    def make_work(form: Form) -> TimedWork:
        sweep = make_prange(problem.stencil, form)

        def run(steps: int) -> None:
            for k in range(steps):
                sweep(arrays[k % 2], arrays[1 - k % 2], weights)

        return TimedWork(run, problem.grid.n_points)

    return [TimedCandidate(f"prange {form}", {}, make_work(form), arrays.clear) for form in FORMS]


def open_method(
    problem: Problem, method: Method, parameters: Parameters, device: Any
) -> TimedCandidate:
    """A method with one choice of its parameters, holding the initial field; `device` as for
    `Method.prepare`.
    """
    stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, device)
    stepper.load(problem.initial)

    def run(steps: int) -> None:
        stepper.advance(steps)
        stepper.wait()

    work = TimedWork(run, problem.grid.n_points, quantum=parameters.get(STEPS_PER_BLOCK, 1))
    return TimedCandidate(method.name, parameters, work, stepper.close)


def time_steady(
    candidates: Sequence[TimedCandidate],
    *,
    rounds: int,
    seconds: float,
    labels: Sequence[str] = (),
    yardstick: TimedWork | None = None,
) -> list[BenchRow]:
    """Interleaved steady-state rates in points per second, one row per candidate; closes the
    candidates.

    Args:
        candidates: what to time.
        rounds: timings of each.
        seconds: length of one timing.
        labels: a name for each row, if those of the candidates do not tell them apart.
        yardstick: what the rates are compared with, moment by moment.
    """
    names = labels or [candidate.name for candidate in candidates]
    works = {name: candidate.work for name, candidate in zip(names, candidates, strict=True)}
    timings = interleave(works, rounds=rounds, seconds=seconds, yardstick=yardstick)
    for candidate in candidates:
        candidate.close()
    return [
        BenchRow(name, timings[name], dict(candidate.parameters))
        for name, candidate in zip(names, candidates, strict=True)
    ]


def refuse_what_does_not_fit(shape: tuple[int, ...], dtype: str, n_methods: int) -> None:
    """Check that all candidates can have their memory at once, as interleaved timing needs it.

    Raises:
        UnsupportedError: if they cannot.
    """
    arrays = 2 * n_methods + 2 + 2  # two each, two of the loops; the initial field and a result
    needed = arrays * math.prod(shape) * np.dtype(dtype).itemsize
    free, reason = available_memory()
    if needed > free:
        grid = " x ".join(str(n) for n in reversed(shape))
        msg = (
            f"the benchmark on {grid} points in {dtype} needs {gib(needed)} for all candidates "
            f"together, but {gib(free)} can be had ({reason}). Ask for a smaller --size."
        )
        raise UnsupportedError(msg)


def choose_parameters(
    problem: Problem, method: Method, choices: Iterable[Parameters], device: Any, *, seconds: float
) -> tuple[Parameters, tuple[BenchTrial, ...]]:
    """The fastest choice on the problem itself, and what each one was measured to do.

    A choice that the method cannot prepare here is left out; one that has no rival is not timed.

    Args:
        problem: what to advance.
        method: how.
        choices: parameters to try, the best guess first; equal ones are tried once.
        device: as for `Method.prepare`.
        seconds: length of each of two timings per choice.

    Raises:
        UnsupportedError: if none of several choices can be prepared.
    """
    different = list({tuple(sorted(choice.items())): choice for choice in choices}.values())
    if len(different) == 1:
        return different[0], ()

    trials: list[BenchTrial] = []
    refusals = []
    for choice in different:
        try:
            candidate = open_method(problem, method, choice, device)
        except UnsupportedError as refusal:
            refusals.append(str(refusal))
            continue
        works = {method.name: candidate.work}
        timing = interleave(works, rounds=_TUNING_ROUNDS, seconds=seconds)[method.name]
        candidate.close()
        trials.append(BenchTrial(dict(choice), timing.median))

    if not trials:
        msg = f"{method.name} can use none of its parameters: {'; '.join(refusals)}"
        raise UnsupportedError(msg)
    return max(trials, key=lambda trial: trial.rate).parameters, tuple(trials)


def time_whole_run(
    problem: Problem, method: Method, parameters: Parameters, team: ThreadTeam, *, steps: int
) -> WholeRun:
    """Seconds from nothing to a result: take memory, load the initial field, advance, copy the
    field out.

    Compilation does not count: the same kernel has run before. Right after each run the same
    stepper advances in steady state: memory bandwidth may have changed since the rounds in which
    the candidates were compared. Then it loads and copies out once more, into memory that the
    process has had before; what that takes less is `memory_seconds`, the time in which pages were
    handed over. A virtual machine may have to get them from its host, at 2 s/GiB on some.
    """
    runs: list[tuple[float, float, float]] = []
    while len(runs) < _WHOLE_RUNS and sum(whole for whole, _, _ in runs) < _LONG:
        runs.append(_run_whole(problem, method, parameters, team, steps))
    seconds, steady, memory = (statistics.median(column) for column in zip(*runs, strict=True))
    return WholeRun(
        steps,
        seconds,
        rate=problem.grid.n_points * steps / seconds,
        steady_rate=problem.grid.n_points / steady,
        runs=len(runs),
        memory_seconds=max(0.0, memory),
    )


def _run_whole(
    problem: Problem, method: Method, parameters: Parameters, team: ThreadTeam, steps: int
) -> tuple[float, float, float]:
    """Seconds of a whole run, of a step in steady state, and of handing over memory."""
    block = parameters.get(STEPS_PER_BLOCK, 1)
    begin = time.perf_counter()
    stepper = method.prepare(problem, Slab.whole(problem.grid), parameters, team)

    def advance(steps: int) -> None:
        stepper.advance(steps)
        stepper.wait()

    def load() -> None:
        stepper.load(problem.initial)

    load_seconds = _seconds(load)
    advance(steps)
    copy_seconds = _seconds(stepper.interior)
    whole = time.perf_counter() - begin
    steady_steps = max(1, steps // _STEADY_PART // block) * block
    steady = _seconds(lambda: advance(steady_steps)) / steady_steps
    again = _seconds(load) + _seconds(stepper.interior)
    stepper.close()
    return whole, steady, load_seconds + copy_seconds - again


def _seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


_LOG = logging.getLogger(__name__)


@contextmanager
def measured_run(
    dtypes: Sequence[str], *, rounds: int, seconds: float
) -> Iterator[tuple[BenchResult, ThreadTeam]]:
    """A result without rates and the threads to measure them with; its limits are measured before,
    and after what is done inside.

    Args:
        dtypes: what the limits are measured for.
        rounds: timings of each limit.
        seconds: length of one timing.
    """
    team = ThreadTeam(find_machine().threads)
    try:
        _LOG.info("Measuring what memory and arithmetic of this machine do at most ...")
        limits: dict[When, MachineLimits] = {
            "before": measure_limits(team, tuple(dtypes), rounds=rounds, seconds=seconds)
        }
        yield BenchResult(**provenance(), rounds=rounds, seconds=seconds, limits=limits), team
        limits["after"] = measure_limits(team, tuple(dtypes), rounds=rounds, seconds=seconds)
    finally:
        team.close()


def bench_cpu(
    names: Sequence[str],
    *,
    shape: tuple[int, ...] | None = None,
    dtypes: Sequence[str] = ("float64",),
    rounds: int = 7,
    seconds: float = 0.4,
) -> BenchResult:
    """The whole benchmark: every stencil in every dtype, between two measurements of the limits.

    Args:
        names: stencils of the catalogue.
        shape: interior points, array order; the usual grid of each dimension if not given.
        dtypes: float64, float32 or both.
        rounds: timings of each candidate, interleaved.
        seconds: length of one timing.
    """
    with measured_run(dtypes, rounds=rounds, seconds=seconds) as (result, team):
        kernels = tuple(
            bench_kernel(
                name,
                shape or SHAPES[named_stencil(name).stencil.ndim],
                dtype,
                team,
                rounds=rounds,
                seconds=seconds,
            )
            for name, dtype in announced([*itertools.product(names, dtypes)], named_case)
        )
    return dataclasses.replace(result, kernels=kernels)


def bench_kernel(
    name: str, shape: tuple[int, ...], dtype: str, team: ThreadTeam, *, rounds: int, seconds: float
) -> BenchCase:
    """Rates of both hand-written loops and of every tuned method for one stencil, in steady state
    and end to end.

    Args:
        name: of the catalogue.
        shape: interior points, array order.
        dtype: float64 or float32.
        team: the threads.
        rounds: timings of each candidate, interleaved.
        seconds: length of one timing.
    """
    refuse_what_does_not_fit(shape, dtype, len(METHODS))
    problem = random_problem(name, shape, dtype)
    methods, refusals = usable_methods(problem)
    chosen = [
        choose_parameters(problem, method, method.parameters(problem), team, seconds=seconds / 2)
        for method in methods
    ]

    # All at once, since what is compared has to be timed in turn.
    loops = open_prange(problem, team.size)
    candidates = [
        open_method(problem, method, parameters, team)
        for method, (parameters, _) in zip(methods, chosen, strict=True)
    ]
    yardstick = fma_work(team, dtype, team.size)
    rows = time_steady([*loops, *candidates], rounds=rounds, seconds=seconds, yardstick=yardstick)

    steps = WHOLE_RUN_STEPS[len(shape)]
    tuned = (
        dataclasses.replace(
            row,
            tried=tried,
            end_to_end=time_whole_run(problem, method, parameters, team, steps=steps),
        )
        for row, method, (parameters, tried) in zip(
            rows[len(loops) :], methods, chosen, strict=True
        )
    )
    case = BenchCase(
        name,
        dtype,
        shape,
        problem.stencil.n_points,
        rows=(*rows[: len(loops)], *tuned),
        refusals=refusals,
    )
    best = case.fastest
    _LOG.info("%s, %s: %s is fastest, %.3g GStencil/s", name, dtype, best.name, best.rate / 1e9)
    return case


def usable_methods(problem: Problem) -> tuple[list[Method], dict[str, str]]:
    """The methods that can advance the problem, and why the others cannot."""
    refusals = {method.name: method.refusal(problem) for method in METHODS}
    simplest_first = (METHODS[-1], *METHODS[:-1])
    usable = [method for method in simplest_first if refusals[method.name] is None]
    return usable, {name: reason for name, reason in refusals.items() if reason is not None}
