"""What this machine can do at most, measured: multiply-adds per second, and bytes per second from
every cache.

Rates of kernels are judged by these, so they are measured in the same run, before and after the
kernels: cores that are shared with others, or that clock down, show in both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.bench.probes import CHAINS, TURN, lanes, make_probes
from tetris_sim.bench.result import CacheLimit, Limits
from tetris_sim.bench.timing import Work, interleave
from tetris_sim.cpu_kernels.common.caches import find_caches
from tetris_sim.cpu_kernels.common.threads import ThreadTeam

_TURNS = 1000  # of the multiply-add loop per repetition, so that calling it costs nothing
_PAGE = 4096  # bytes
_LEAST_COPY, _MOST_COPY = (
    256 << 20,
    1 << 30,
)  # bytes of each of the two arrays that are copied in memory
_COPY_DTYPE = "float64"  # bytes are bytes


def measure_limits(
    team: ThreadTeam, dtypes: tuple[str, ...], *, rounds: int, seconds: float
) -> Limits:
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
    return Limits(
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


def fma_work(team: ThreadTeam, dtype: str, threads: int) -> Work:
    """Chains of multiply-adds on the first `threads` threads of the team."""
    multiply_add, n_lanes = make_probes(dtype).multiply_add, lanes(dtype)
    states = [_chains(dtype) for _ in range(threads)]

    def run(repetitions: int) -> None:
        team.run(
            lambda thread: (
                multiply_add(states[thread], repetitions * _TURNS) if thread < threads else None
            )
        )

    return Work(run, units=CHAINS * n_lanes * _TURNS * threads)


def _load_work(team: ThreadTeam, n_bytes: int) -> Work:
    """Every thread loads `n_bytes` of its own again and again."""
    load_only = make_probes(_COPY_DTYPE).load_only
    sources = [source for source, _ in _allocate_pairs(team, n_bytes)]
    states, n = [_chains(_COPY_DTYPE) for _ in sources], sources[0].size

    def run(repetitions: int) -> None:
        # Sums grow, so they start anew each time; they stay far below what overflows.
        team.run(lambda thread: load_only(sources[thread], states[thread].copy(), n, repetitions))

    return Work(run, units=n * np.dtype(_COPY_DTYPE).itemsize * team.size)


def _chains(dtype: str) -> npt.NDArray[Any]:
    """State for which a <- a * factor + summand stays between 1/2 and 10 for ever."""
    rng, n_lanes = np.random.default_rng(0), lanes(dtype)
    parts = [rng.uniform(0.5, most, n_lanes) for most in (*(1.0,) * CHAINS, 0.9, 1.0)]
    return np.concatenate(parts).astype(dtype)


_Pairs = list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]


def _copy_work(
    team: ThreadTeam, n_bytes: int, pairs: _Pairs | None = None, *, past_caches: bool = False
) -> Work:
    """Every thread copies `n_bytes` of its own to another place of its own."""
    probes = make_probes(_COPY_DTYPE)
    copy: Callable[..., None] = probes.copy_past_caches if past_caches else probes.copy
    places = pairs or _allocate_pairs(team, n_bytes)
    n = places[0][0].size

    def run(repetitions: int) -> None:
        team.run(lambda thread: copy(*places[thread], n, repetitions))

    return Work(run, units=2 * n * np.dtype(_COPY_DTYPE).itemsize * team.size)


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
