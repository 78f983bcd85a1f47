"""Limits of this machine, measured: multiply-adds per second, and bytes per second from
every cache.

Rates of kernels are judged by these, so they are measured in the same run, before and after the
kernels: cores that are shared with others, or that clock down, show in both.

`plan` expects the rate of a step by equations from them, and says what bounds it: a method that
makes one step a sweep reads and writes in memory what its stages do; one that streams passes the
fields once for a block of steps. How much of a device's arithmetic such kernels reach is known from
measurements (docs/benchmarks/equations.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.bench.result import CacheLimit, MachineLimits
from tetris_sim.bench.timing import TimedWork, interleave
from tetris_sim.cpu_kernels.common.caches import find_caches
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.compiled import vectors
from tetris_sim.cpu_kernels.compiled.generate import sources_digest
from tetris_sim.gpu_kernels.common.given import joined_stages
from tetris_sim.model.equations import Equations
from tetris_sim.model.method import STEPS_PER_BLOCK, KnownGpu
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.shares import Share
from tetris_sim.support.files import generated_module

Bound = Literal["memory", "arithmetic"]

# Operations in a cycle of one multiprocessor, (float64, float32).
_LANES = {"sm_80": (32, 64), "sm_90": (64, 128), "sm_100": (64, 128)}
_OTHER_LANES = (2, 128)
# Shares of what a GPU could do that kernels for equations reach: of its memory, and of its
# arithmetic when they stream along 1, 2 or 3 axes: in 3D neighbours come through shared memory
# (NVIDIA H200, 2026-11-23).
_OF_MEMORY = 0.72
_OF_ARITHMETIC = {1: 0.8, 2: 0.5, 3: 0.135}
# The same of the multiply-adds of CPU threads: operations wait for loads, in sweeps most (two
# threads of an AMD EPYC, AVX2, busy with other work, 2026-11-22).
_OF_THREADS = {1: 0.35, 2: 0.35, 3: 0.2}
_OF_THREADS_SWEEPING = 0.2

_ROUNDS, _SECONDS = 3, 0.02  # of a measurement of CPU limits


@dataclass(frozen=True)
class DeviceLimits:
    """The limits of a device in kernels for equations.

    Attributes:
        operations: per second.
        bytes: of memory read or written per second.
    """

    operations: float
    bytes: float


@dataclass(frozen=True)
class Expectation:
    """A rate that is predicted.

    Attributes:
        worker: whose.
        points_per_second: point updates, of all fields together.
        bound: what lasts longer.
        bytes: that a point and step moves through memory.
    """

    worker: str
    points_per_second: float
    bound: Bound
    bytes: float


def expect(problem: Problem, share: Share, limits: DeviceLimits) -> Expectation:
    """The rate of one worker.

    Args:
        problem: with equations.
        share: its method and parameters.
        limits: of its device.
    """
    n_bytes = problem.dtype.itemsize * _transfers(problem.system, share)
    memory = n_bytes / limits.bytes
    arithmetic = problem.system.n_operations / limits.operations
    return Expectation(
        worker=share.worker,
        points_per_second=1 / max(memory, arithmetic),
        bound="memory" if memory >= arithmetic else "arithmetic",
        bytes=n_bytes,
    )


def _transfers(equations: Equations, share: Share) -> float:
    """Numbers that a point and step moves through memory. On a GPU stages that go together read
    nothing that they gave themselves.
    """
    steps = share.parameters.get(STEPS_PER_BLOCK, 0)
    if steps:
        return (2 * len(equations.fields) + len(equations.coefficients or {})) / steps
    if share.method.device == "cpu":
        return equations.n_transfers
    total = 0
    for group in joined_stages(equations):
        stages = [equations.stages[k] for k in group]
        given = {name for stage in stages for name in stage.formulas}
        total += len(given) + len({name for stage in stages for name in stage.taps} - given)
    return total


def gpu_limits(problem: Problem, gpu: KnownGpu) -> DeviceLimits | None:
    """Of a GPU, from its clocks and units; None if the driver does not say."""
    if not (gpu.multiprocessors and gpu.clock and gpu.bandwidth):
        return None
    lanes = _LANES.get(gpu.architecture, _OTHER_LANES)[problem.arithmetic == np.float32]
    operations = gpu.multiprocessors * gpu.clock * lanes
    return DeviceLimits(operations * _OF_ARITHMETIC[problem.grid.ndim], gpu.bandwidth * _OF_MEMORY)


def thread_limits(problem: Problem, share: Share) -> DeviceLimits:
    """Of the CPU threads of a worker, measured."""
    from tetris_sim.bench.limits import measure_two_limits

    dtype = problem.arithmetic.name
    team = ThreadTeam(share.threads)
    try:
        operations, copied = measure_two_limits(
            team, dtype, problem.state_bytes, rounds=_ROUNDS, seconds=_SECONDS
        )
    finally:
        team.close()
    streamed = STEPS_PER_BLOCK in share.parameters
    reached = _OF_THREADS[problem.grid.ndim] if streamed else _OF_THREADS_SWEEPING
    return DeviceLimits(operations * reached, copied)


def expected_rates(
    problem: Problem, shares: Sequence[Share], gpus: Sequence[KnownGpu]
) -> tuple[Expectation, ...]:
    """Of all workers in their order, but those of whose device something is not known.

    Args:
        problem: with equations.
        shares: of a plan.
        gpus: of the machine, by their numbers.
    """
    found = []
    for share in shares:
        if share.simulated is not None or share.rank != 0:
            continue
        if share.method.device == "gpu":
            limits = gpu_limits(problem, gpus[share.number]) if share.number < len(gpus) else None
        else:
            limits = thread_limits(problem, share)
        if limits is not None:
            found.append(expect(problem, share, limits))
    return tuple(found)


# The compiled loops that show what the machine can do at most: multiply-adds in registers, and
# copies.
#
# Idea    `multiply_add` keeps 12 vectors in registers and gives each one fused multiply-add per
#         turn. The chains are independent, so the units never wait for a result: 4 cycles of
#         latency on 2 units need 8 chains, and 12 with two constants still fit into the 16
#         registers of AVX2. `copy` moves four vectors per turn; `load_only` feeds each vector that
#         it loads to a multiply-add.
# Layout  Flat arrays. State of `multiply_add` and `load_only`: the chains, then factor and summand,
#         a vector each. The others want a whole number of turns, `copy_past_caches` also vectors at
#         aligned addresses.
# Limits  All numbers come from arrays and go back to arrays, and nothing says that source and
#         target differ, so the compiler can neither compute the result in advance nor leave a
#         repetition out.
# Test    tests/unit/test_bench_limits.py

CHAINS = 12
UNROLLED = 4
TURN = 12  # vectors: all loops take a whole number of turns of this many

_SOURCE = '''"""Generated by tetris_sim/bench/limits.py."""

from numba import njit

from tetris_sim.cpu_kernels.compiled.vectors import fence_stores, vector_operations

v = vector_operations("{dtype}", {lanes})
load, store, store_past_caches, fma = v.load, v.store, v.store_past_caches, v.fma


@njit(nogil=True, cache=True)
def multiply_add(state, repetitions):
    factor, summand = load(state, {factor}), load(state, {summand})
{load_chains}
    for _ in range(repetitions):
{advance_chains}
{store_chains}


@njit(nogil=True, cache=True)
def load_only(source, state, n, repetitions):
    factor = load(state, {factor})
{load_chains}
    for _ in range(repetitions):
        for i in range(0, n, {load_turn}):
{add_loads}
{store_chains}


@njit(nogil=True, cache=True)
def copy(source, target, n, repetitions):
    for _ in range(repetitions):
        for i in range(0, n, {turn}):
{copy_vectors}


@njit(nogil=True, cache=True)
def copy_past_caches(source, target, n, repetitions):
    for _ in range(repetitions):
        for i in range(0, n, {turn}):
{copy_vectors_past_caches}
    fence_stores()
'''


@functools.cache
def make_probes(dtype: str) -> ModuleType:
    """The loops for one dtype and the native vector length of this machine, as a module with four
    functions.

    multiply_add(state, repetitions); load_only(source, state, n, repetitions); copy(source, target,
    n, repetitions) and copy_past_caches with the same arguments.
    """
    source = probe_source(dtype, lanes(dtype))
    return generated_module(source, part="baselines", salt=sources_digest())


def lanes(dtype: str) -> int:
    """Elements of one vector of this machine."""
    return vectors.native_lanes(np.dtype(dtype))


def probe_source(dtype: str, n_lanes: int) -> str:
    """The text of the module that `make_probes` compiles."""
    chains = range(CHAINS)
    pieces = [f"i + {k * n_lanes}" for k in range(UNROLLED)]
    pad = " " * 12

    return _SOURCE.format(
        dtype=dtype,
        lanes=n_lanes,
        factor=CHAINS * n_lanes,
        summand=(CHAINS + 1) * n_lanes,
        turn=UNROLLED * n_lanes,
        load_turn=CHAINS * n_lanes,
        add_loads="\n".join(
            f"{pad}a{k} = fma(load(source, i + {k * n_lanes}), factor, a{k})" for k in chains
        ),
        load_chains="\n".join(f"    a{k} = load(state, {k * n_lanes})" for k in chains),
        advance_chains="\n".join(f"        a{k} = fma(a{k}, factor, summand)" for k in chains),
        store_chains="\n".join(f"    store(state, {k * n_lanes}, a{k})" for k in chains),
        copy_vectors="\n".join(f"{pad}store(target, {at}, load(source, {at}))" for at in pieces),
        copy_vectors_past_caches="\n".join(
            f"{pad}store_past_caches(target, {at}, load(source, {at}))" for at in pieces
        ),
    )


_TURNS = 1000  # of the multiply-add loop per repetition, so that calling it costs nothing
_PAGE = 4096  # bytes
_LEAST_COPY, _MOST_COPY = (
    256 << 20,
    1 << 30,
)  # bytes of each of the two arrays that are copied in memory
_COPY_DTYPE = "float64"  # bytes are bytes


def measure_limits(
    team: ThreadTeam, dtypes: tuple[str, ...], *, rounds: int, seconds: float
) -> MachineLimits:
    """Every limit, measured with all threads of the team at once.

    Args:
        team: the threads.
        dtypes: of the multiply-adds.
        rounds: timings of each, interleaved.
        seconds: length of one timing.
    """
    caches = [cache for cache in find_caches() if cache.share(team.size) >= 2 * _PAGE]
    works = {}
    for dtype in dtypes:
        works[f"fma {dtype}"] = fma_work(team, dtype, team.size)
        works[f"fma_one_thread {dtype}"] = fma_work(team, dtype, 1)

    for cache in caches:
        # Half of the cache: a source and a target of a quarter each, which the level below does not
        # hold.
        works[f"L{cache.level}"] = _copy_work(team, cache.share(team.size) // 4)
    works["load"] = _load_work(team, caches[0].share(team.size) // 2 if caches else _PAGE)

    n_bytes = min(
        _MOST_COPY, max(_LEAST_COPY, 4 * sum(cache.capacity(team.size) for cache in caches))
    )
    memory = _allocate_pairs(team, n_bytes // team.size)
    works["copy"] = _copy_work(team, n_bytes // team.size, memory)
    works["copy_past_caches"] = _copy_work(team, n_bytes // team.size, memory, past_caches=True)

    timings = interleave(works, rounds=rounds, seconds=seconds)
    return MachineLimits(
        copy=timings["copy"],
        copy_past_caches=timings["copy_past_caches"],
        load=timings["load"],
        fma={dtype: timings[f"fma {dtype}"] for dtype in dtypes},
        fma_one_thread={dtype: timings[f"fma_one_thread {dtype}"] for dtype in dtypes},
        caches=tuple(
            CacheLimit(
                cache.level,
                cache.n_bytes,
                cache.sharing,
                cache.capacity(team.size),
                timings[f"L{cache.level}"],
            )
            for cache in caches
        ),
        threads=team.size,
    )


def measure_two_limits(
    team: ThreadTeam, dtype: str, n_bytes: int, *, rounds: int, seconds: float
) -> tuple[float, float]:
    """(multiply-adds per second, bytes copied per second, read plus written), of all threads.

    Args:
        team: the threads.
        dtype: of the multiply-adds.
        n_bytes: of what is copied: caches hold it or not.
        rounds: timings of each, interleaved.
        seconds: length of one timing.
    """
    works = {
        "fma": fma_work(team, dtype, team.size),
        "copy": _copy_work(team, max(_PAGE, min(n_bytes, _LEAST_COPY) // team.size)),
    }
    timings = interleave(works, rounds=rounds, seconds=seconds)
    return timings["fma"].median, timings["copy"].median


def fma_work(team: ThreadTeam, dtype: str, threads: int) -> TimedWork:
    """Chains of multiply-adds on the first `threads` threads of the team."""
    multiply_add, n_lanes = make_probes(dtype).multiply_add, lanes(dtype)
    states = [_chains(dtype) for _ in range(threads)]

    def run(repetitions: int) -> None:
        team.run(
            lambda thread: (
                multiply_add(states[thread], repetitions * _TURNS) if thread < threads else None
            )
        )

    return TimedWork(run, units=CHAINS * n_lanes * _TURNS * threads)


def _load_work(team: ThreadTeam, n_bytes: int) -> TimedWork:
    """Every thread loads `n_bytes` of its own again and again."""
    load_only = make_probes(_COPY_DTYPE).load_only
    sources = [source for source, _ in _allocate_pairs(team, n_bytes)]
    states, n = [_chains(_COPY_DTYPE) for _ in sources], sources[0].size

    def run(repetitions: int) -> None:
        # Sums grow, so they start anew each time; they stay far below what overflows.
        team.run(lambda thread: load_only(sources[thread], states[thread].copy(), n, repetitions))

    return TimedWork(run, units=n * np.dtype(_COPY_DTYPE).itemsize * team.size)


def _chains(dtype: str) -> npt.NDArray[Any]:
    """State for which a <- a * factor + summand stays between 1/2 and 10 for ever."""
    rng, n_lanes = np.random.default_rng(0), lanes(dtype)
    parts = [rng.uniform(0.5, most, n_lanes) for most in (*(1.0,) * CHAINS, 0.9, 1.0)]
    return np.concatenate(parts).astype(dtype)


_Pairs = list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]


def _copy_work(
    team: ThreadTeam, n_bytes: int, pairs: _Pairs | None = None, *, past_caches: bool = False
) -> TimedWork:
    """Every thread copies `n_bytes` of its own to another place of its own."""
    probes = make_probes(_COPY_DTYPE)
    copy: Callable[..., None] = probes.copy_past_caches if past_caches else probes.copy
    places = pairs or _allocate_pairs(team, n_bytes)
    n = places[0][0].size

    def run(repetitions: int) -> None:
        team.run(lambda thread: copy(*places[thread], n, repetitions))

    return TimedWork(run, units=2 * n * np.dtype(_COPY_DTYPE).itemsize * team.size)


def _allocate_pairs(team: ThreadTeam, n_bytes: int) -> _Pairs:
    """A source of random numbers and a target for each thread, touched first by it."""
    turn = TURN * lanes(_COPY_DTYPE)
    n = max(1, n_bytes // np.dtype(_COPY_DTYPE).itemsize // turn) * turn
    pairs: dict[int, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}

    def allocate(thread: int) -> None:
        source = _aligned(n, 0)
        target = _aligned(
            n, _PAGE // 2
        )  # a load waits for a recent store at the same place of another page
        np.random.default_rng(thread).random(out=source)
        target[:] = 1.0
        pairs[thread] = source, target

    team.run(allocate)
    return [pairs[thread] for thread in range(team.size)]


def _aligned(n: int, offset: int) -> npt.NDArray[Any]:
    n_bytes = n * np.dtype(_COPY_DTYPE).itemsize
    raw = np.empty(n_bytes + _PAGE, dtype=np.uint8)
    shift = (offset - raw.ctypes.data) % _PAGE
    return raw[shift : shift + n_bytes].view(_COPY_DTYPE)
