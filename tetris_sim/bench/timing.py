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
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from tetris_sim.bench.result import Timing
from tetris_sim.model.boundary import Boundary, Face, Neumann, Periodic, Robin
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem, StateVariable, Total, arithmetic_of
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.simulation.report import package_versions
from tetris_sim.support.wording import format_duration

# What the benchmark advances: stencils of the catalogue with random weights, on random data.
#
# Random, because zeros and ones are multiplied faster on some machines and because symmetric
# weights would allow sums to be shared between points.

SHAPES = {1: (10_000_000,), 2: (4800, 4800), 3: (384, 384, 384)}
"""The usual grids by number of axes: no cache holds them."""

WHOLE_RUN_STEPS = {1: 1000, 2: 1000, 3: 100}
"""Steps of an end-to-end run by number of axes."""

_SHIFTS = {
    1: (1,),
    2: (1009, 1),
    3: (10007, 1009, 1),
}  # primes: no row length makes neighbouring rows alike


def random_field(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Field:
    """Random numbers in (0, 1], read only: u[i, j, k] = table[10007 i + 1009 j + k].

    Rows are views of one table at different places, so the field of a large grid takes a fraction
    of its memory.

    Args:
        shape: points, array order.
        dtype: of `PRECISIONS`.
    """
    shifts = _SHIFTS[len(shape)]
    last = sum((n - 1) * shift for n, shift in zip(shape, shifts, strict=True))
    kind = np.dtype(dtype)
    wide = arithmetic_of(kind)
    table = random_numbers(np.random.default_rng(0), last + 1, wide)
    table += np.asarray(
        2.0**-24, dtype=wide
    )  # the spacing of float32 random numbers, of which one is 0
    table = table.astype(kind, copy=False)
    strides = tuple(shift * kind.itemsize for shift in shifts)
    return np.lib.stride_tricks.as_strided(table, shape, strides, writeable=False)


def random_numbers(generator: Any, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Any:
    """Random numbers in [0, 1], of a generator of NumPy or CuPy, which have none of float16."""
    return generator.random(shape, dtype=arithmetic_of(dtype)).astype(dtype, copy=False)


WeightKind = Literal["random", "symmetric", "equal"]


def random_weights(name: str, kind: WeightKind = "random") -> Stencil:
    """A stencil of the catalogue with random positive weights of sum 1, which keep every field
    bounded.

    Args:
        name: of the catalogue.
        kind: random throughout; symmetric, so that points that mirror or permute into each other
            have one weight; or equal, so that all points but the centre have one weight, as those
            of the heat equation on square cells.
    """
    offsets = named_stencil(name).stencil.offsets
    weights = np.random.default_rng(1).uniform(0.5, 1.5, len(offsets))
    if kind != "random":
        classes: dict[tuple[int, ...], float] = {}
        for k, offset in enumerate(offsets):
            like = tuple(sorted(map(abs, offset))) if kind == "symmetric" else (int(any(offset)),)
            weights[k] = classes.setdefault(like, weights[k])
    return Stencil(offsets, tuple(weights / weights.sum()))


FaceKind = Literal["insulated", "periodic", "convection"]
FACES: dict[FaceKind, Face] = {
    "insulated": Neumann(),
    "periodic": Periodic(),
    "convection": Robin(h=1.0, ambient=0.5),
}


def random_problem(
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    weights: WeightKind = "random",
    faces: FaceKind = "insulated",
    *,
    steps: int = 1,
) -> Problem:
    """`random_weights(name, weights)` on a `random_field`, with the same kind of face everywhere.

    Args:
        name: of the catalogue.
        shape: interior points, array order.
        dtype: of `PRECISIONS`.
        weights: their kind.
        faces: their kind.
        steps: of the run that it stands for.
    """
    field = random_field(shape, dtype)

    def initial(slab: Slab) -> Field:
        box = tuple(slice(start, stop) for start, stop in zip(slab.start, slab.stop, strict=True))
        return np.asarray(field[box])[np.newaxis]

    ndim = len(shape)
    return Problem(
        grid=Grid(shape, (1.0,) * ndim, (0.0,) * ndim),
        stencil=random_weights(name, weights),
        boundary=Boundary.everywhere(FACES[faces], ndim),
        initial=initial,
        dt=1.0,
        steps=steps,
        dtype=np.dtype(dtype),
        variables=(StateVariable("u", "1", "u", Total("integral", "1", 1.0)),),
    )


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
class TimedWork:
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
    works: Mapping[str, TimedWork],
    *,
    rounds: int,
    seconds: float,
    yardstick: TimedWork | None = None,
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
    # In turn, so that a slow second of the machine falls on all of them alike.
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


def _calibrate(work: TimedWork, seconds: float, settle: float) -> int:
    """Repetitions that take about `seconds`, a multiple of the quantum."""
    work.run(work.quantum)  # compiles, touches memory
    blocks = 1
    while (elapsed := _elapsed(work, blocks * work.quantum, settle)) < seconds / _CALIBRATION:
        blocks *= 2
    return work.quantum * max(1, round(blocks * seconds / elapsed))


def _elapsed(work: TimedWork, repetitions: int, settle: float) -> float:
    time.sleep(settle)
    begin = time.perf_counter()
    work.run(repetitions)
    return time.perf_counter() - begin


def provenance() -> dict[str, Any]:
    """Describe where a measurement comes from: machine, versions, commit, date."""
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
