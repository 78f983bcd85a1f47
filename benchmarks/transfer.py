"""The data transfer times of section 4.1 of the Tetris paper: arithmetic only, no measuring.

T_d{Mem,Reg} = T_Mem-L3 + T_L3-L2 + T_L2-L1 + T_L1-Reg is the time that data take on their way from
memory to the registers and back, each part alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from tetris_sim.bench.result import MachineLimits


def transfer_rates(limits: MachineLimits) -> dict[str, float]:
    """Bytes per second: "load" into registers, then of a copy, read plus written, in each level;
    "Mem" is the last.

    The copy in memory is that with plain stores, which read every line before they write it, as a
    sweep does.

    Args:
        limits: what `measure_limits` found.
    """
    rates = {f"L{cache.level}": cache.copy.median for cache in limits.caches}
    return {
        "load": math.inf if limits.load is None else limits.load.median,
        **rates,
        "Mem": limits.copy.median,
    }


def transfer_times(
    rates: Mapping[str, float],
    *,
    n_terms: int,
    itemsize: int,
    level: str = "Mem",
    sweeps_per_pass: int = 1,
) -> dict[str, float]:
    """Seconds per point update on each way between two levels, "Mem-L3" to "L1-Reg".

    A copy in one level takes the time of all ways up to the registers, so one way is the difference
    of two levels. Between the first level and the registers every term is loaded and the result
    stored: a copy of one value and one load for each further term. Further out each point is read
    and written once per step, since rows that are needed again lie in a cache.

    >>> rates = {"load": 320.0, "L1": 160.0, "L2": 80.0, "Mem": 16.0}
    >>> times = transfer_times(rates, n_terms=3, itemsize=8)
    >>> {way: round(seconds, 6) for way, seconds in times.items()}
    {'Mem-L2': 0.8, 'L2-L1': 0.1, 'L1-Reg': 0.15}

    Args:
        rates: as `transfer_rates` gives them.
        n_terms: points of the stencil.
        itemsize: bytes of a point.
        level: where the grid lies; ways further out carry nothing.
        sweeps_per_pass: steps made each time that the data come from `level`, 1 without temporal
            tiles.
    """
    every = [name for name in rates if name != "load"]
    names = every[: every.index(level) + 1]
    times = {}
    for inner, outer in itertools.pairwise(names):
        per_byte = max(0.0, 1 / rates[outer] - 1 / rates[inner])
        shared = sweeps_per_pass if outer == level else 1
        times[f"{outer}-{inner}"] = 2 * itemsize * per_byte / shared
    first = 2 * itemsize / rates[names[0]] + (n_terms - 1) * itemsize / rates["load"]
    return {**dict(reversed(times.items())), f"{names[0]}-Reg": first}


def level_of(n_bytes: float, limits: MachineLimits) -> str:
    """The innermost level that holds `n_bytes` spread over all threads: "L1", ..., "Mem"."""
    for cache in limits.caches:
        if n_bytes <= cache.capacity:
            return f"L{cache.level}"
    return "Mem"


def total(times: Mapping[str, float]) -> float:
    """T_d: the sum of all ways."""
    return math.fsum(times.values())
