"""Timing of several things so that they can be compared: interleaved rounds, medians and spread."""

from __future__ import annotations

import logging
import math
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tetris_sim.bench.result import Timing
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.simulation.report import package_versions
from tetris_sim.support.progress import format_duration

# s; the threads of a prange loop spin after it: libgomp 300,000 times, a pause of up to 50 ns each
_SETTLE = 0.02
# the first timing that is at least this part of what is wanted says how many repetitions that takes
_CALIBRATION = 8
_LOG = logging.getLogger(__name__)
_Case = TypeVar("_Case")


def announced(cases: Sequence[_Case], named: Callable[[_Case], str]) -> Iterator[_Case]:
    """The cases one after the other; before each is said which it is of how many, and after the
    first how long the rest takes if it goes on so.

    Args:
        cases: what is measured.
        named: what a case is called.
    """
    begin = time.perf_counter()
    for done, case in enumerate(cases):
        each = (time.perf_counter() - begin) / done if done else 0.0
        left = f", about {format_duration(each * (len(cases) - done))} left" if done else ""
        _LOG.info("Measuring %s (%d of %d%s) ...", named(case), done + 1, len(cases), left)
        yield case


def named_case(case: Sequence[str]) -> str:
    """A stencil, its precision and what else tells cases apart, in words."""
    return ", ".join(case)


@dataclass(frozen=True)
class Work:
    """Something that can be repeated and timed.

    Attributes:
        run: makes the given number of repetitions and returns when they are done.
        units: amount of work in one repetition: points, bytes, operations.
        quantum: repetitions come in multiples of this, for example the steps of a time block.
    """

    run: Callable[[int], None]
    units: float
    quantum: int = 1


def interleave(
    works: Mapping[str, Work], *, rounds: int, seconds: float, yardstick: Work | None = None
) -> dict[str, Timing]:
    """Time everything once per round, in turn: memory bandwidth comes in states that last longer
    than a round.

    Args:
        works: what to time, by name.
        rounds: how often each is timed.
        seconds: about how long one timing takes.
        yardstick: timed for a quarter as long before each of them: cores that are shared with
            others change their speed from second to second, and what a rate is of a limit can be
            said only if both are of the same time.
    """
    settle = min(_SETTLE, seconds)
    repetitions = {name: _calibrate(work, seconds, settle) for name, work in works.items()}
    measure = _calibrate(yardstick, seconds / 4, settle) if yardstick else 0

    rates: dict[str, list[float]] = {name: [] for name in works}
    ratios: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            limit = (
                yardstick.units * measure / _elapsed(yardstick, measure, settle)
                if yardstick
                else math.nan
            )
            elapsed = _elapsed(work, repetitions[name], settle)
            rates[name].append(work.units * repetitions[name] / elapsed)
            ratios[name].append(rates[name][-1] / limit)

    return {
        name: Timing(
            statistics.median(of_rounds),
            min(of_rounds),
            max(of_rounds),
            statistics.median(ratios[name]) if yardstick else None,
        )
        for name, of_rounds in rates.items()
    }


def _calibrate(work: Work, seconds: float, settle: float) -> int:
    """Repetitions that take about `seconds`, a multiple of the quantum."""
    work.run(work.quantum)  # compiles, touches memory
    blocks = 1
    while (elapsed := _elapsed(work, blocks * work.quantum, settle)) < seconds / _CALIBRATION:
        blocks *= 2
    return work.quantum * max(1, round(blocks * seconds / elapsed))


def _elapsed(work: Work, repetitions: int, settle: float) -> float:
    time.sleep(settle)
    begin = time.perf_counter()
    work.run(repetitions)
    return time.perf_counter() - begin


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
    said = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() or "unknown"
