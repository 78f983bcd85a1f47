"""Data caches of the processor, as the operating system describes them, and limits for planning."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tetris_sim.model.problem import Problem

_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Cache:
    """One level of data cache.

    Attributes:
        level: 1, 2, 3.
        n_bytes: size of one instance.
        sharing: hardware threads that share an instance.
        shared_by: which, as Linux lists them.
    """

    level: int
    n_bytes: int
    sharing: int
    shared_by: str = field(default="", compare=False)

    def share(self, threads: int) -> int:
        """Bytes for each of `threads` busy threads that fill the instances one after another."""
        return self.n_bytes // max(1, min(self.sharing, threads))

    def capacity(self, threads: int) -> int:
        """Bytes that all `threads` threads have together."""
        return self.share(threads) * threads


@dataclass(frozen=True)
class Caches:
    """Bytes of data cache per core.

    Attributes:
        l1: first level.
        l2: second level.
        l3: last level, divided by the cores that share it.
    """

    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 2 << 20


def find_caches(folder: Path = _FOLDER) -> tuple[Cache, ...]:
    """The data caches of a core, smallest level first; those that the system does not describe are
    missing.

    Args:
        folder: where Linux describes the caches of a core.
    """
    return _here() if folder == _FOLDER else _described(folder)


@functools.cache
def _here() -> tuple[Cache, ...]:
    return _described(_FOLDER)


def _described(folder: Path) -> tuple[Cache, ...]:
    caches = []
    for index in sorted(folder.glob("index*")):
        try:
            # Instruction caches hold no points.
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            size = _bytes((index / "size").read_text().strip())
            shared_by = (index / "shared_cpu_list").read_text().strip()
            cache = Cache(level, size, _count(shared_by), shared_by)
        # Containers may hide parts of sysfs: a level that cannot be read counts as missing.
        except (OSError, ValueError):
            continue

        if cache.n_bytes > 0:
            caches.append(cache)
    return tuple(sorted(caches, key=lambda cache: cache.level))


def read_caches(folder: Path = _FOLDER) -> Caches:
    """Cache available to the first core; where the system describes none, the usual sizes of
    `Caches`.

    Args:
        folder: as for `find_caches`.
    """
    sizes = {cache.level: max(1, cache.n_bytes // cache.sharing) for cache in find_caches(folder)}
    usual = Caches()
    return Caches(l1=sizes.get(1, usual.l1), l2=sizes.get(2, usual.l2), l3=sizes.get(3, usual.l3))


def _bytes(text: str) -> int:
    """A size as Linux writes it.

    >>> _bytes("48K")
    49152
    """
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else int(text)


def _count(ranges: str) -> int:
    """Count the processors in a list of ranges.

    >>> _count("0-3,8")
    5
    """
    total = 0
    for part in ranges.split(","):
        low, _, high = part.partition("-")
        total += int(high or low) - int(low) + 1
    return total


# Limits that the methods with temporal blocking share when they plan.

_MOST_POINTS = 128  # of a stencil; 125 points take 3 to 9 s to compile (AMD EPYC 9004, 2026-11-21)
WHY_NOT_HALF = (
    "it computes in float64 or float32; float16, which would not be faster here, is left to "
    "cpu.plain"
)


def why_not_blocked(problem: Problem, method: str) -> str | None:
    """Explain why a method with kernels written out point by point refuses a problem; None if it
    does not.
    """
    if (why_not := problem.why_not_one_stencil) is not None:
        return why_not
    if problem.dtype == np.float16:
        return WHY_NOT_HALF
    n_points = problem.stencil.n_points
    if n_points <= _MOST_POINTS:
        return None
    return (
        f"the stencil has {n_points} points, and the kernels of {method}, which are written out "
        f"point by point, are made for up to {_MOST_POINTS}: compiling more takes longer than most "
        "runs"
    )


def why_not_equations(problem: Problem) -> str | None:
    """Explain why no CPU method takes the equations of a problem; None if they do or if there are
    none.
    """
    if problem.equations is None or problem.dtype != np.float16:
        return None
    return "equations are computed in float64 or float32: set the precision to one of them"
