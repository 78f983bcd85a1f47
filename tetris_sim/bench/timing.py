"""Timing of several candidates so that they can be compared: interleaved rounds, medians and spread."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.report import package_versions
from tetris_sim.scheduler.machine import find_machine


@dataclass(frozen=True)
class Timing:
    """Rates of one candidate over the rounds, in units per second.

    Attributes:
        median: of the rounds.
        low: slowest round.
        high: fastest round.
    """

    median: float
    low: float
    high: float


def interleave(
    candidates: Mapping[str, Callable[[int], None]], units: float, *, rounds: int, seconds: float
) -> dict[str, Timing]:
    """Time every candidate once per round, in turn: memory bandwidth comes in states that last longer than a round.

    Args:
        candidates: name to a function that makes the given number of repetitions.
        units: work of one repetition, for example points.
        rounds: how often each is timed.
        seconds: about how long one timing takes.
    """
    repetitions = {}
    for name, work in candidates.items():
        work(1)  # compiles, touches memory
        begin = time.perf_counter()
        work(2)
        repetitions[name] = max(2, round(2 * seconds / max(time.perf_counter() - begin, 1e-6)))
    rates: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, work in candidates.items():
            begin = time.perf_counter()
            work(repetitions[name])
            rates[name].append(units * repetitions[name] / (time.perf_counter() - begin))
    return {name: Timing(statistics.median(found), min(found), max(found)) for name, found in rates.items()}


def copy_bandwidth(n_bytes: int = 256 << 20, rounds: int = 5) -> float:
    """Bytes per second, read plus written, of copying an array with all threads (NumPy copies without the GIL)."""
    from concurrent.futures import ThreadPoolExecutor

    threads = find_machine().threads
    source, target = np.random.default_rng(0).random(n_bytes // 8), np.zeros(n_bytes // 8)
    parts = [slice(source.size * k // threads, source.size * (k + 1) // threads) for k in range(threads)]
    times = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds + 1):
            begin = time.perf_counter()
            list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))
            times.append(time.perf_counter() - begin)
    return 2 * source.nbytes / statistics.median(times[1:])


def provenance() -> dict[str, Any]:
    """What a measurement must carry to be believed: machine, versions, commit, date."""
    machine = find_machine()
    return {
        "host": machine.host,
        "cpu": machine.cpu,
        "threads": machine.threads,
        "versions": package_versions(),
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _commit() -> str:
    root = Path(__file__).parents[2]
    found = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"
