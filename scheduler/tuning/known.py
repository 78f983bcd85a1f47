"""What was the fastest on GPUs that were measured: it is tried first, and taken where nothing may
be measured.

`known.json` beside this file holds it, as tests/benchmarks/first_choice.py writes it. Another GPU
is taken for the one of these whose memory gives each multiprocessor about as many bytes in a cycle:
that decides how many steps a launch has to make.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tetris_sim.model.homogeneous import one_stencil
from tetris_sim.model.method import Rounds
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.machine.gpus import Gpu
from tetris_sim.scheduler.tuning.choice import Candidate, Known

_PAIR_COST = 10  # instructions of a pair for one of float64, at most


def kind_of(problem: Problem) -> tuple[Any, ...]:
    """What decides which kernel is the fastest before all else: axes, reach, terms, kind of
    number.
    """
    stencil = problem.stencil
    return stencil.ndim, stencil.radius, stencil.n_points, problem.dtype.name


def is_mirrored(problem: Problem) -> bool:
    """Whether the weights stay the same when an axis is turned around."""
    return all(problem.stencil.is_mirrored(axis) for axis in range(problem.stencil.ndim))


def balance_of(gpu: Gpu) -> float:
    """Bytes of memory for each multiprocessor in a cycle; 0 if the driver does not say."""
    cycles = gpu.multiprocessors * gpu.clock
    return (gpu.bandwidth or 0.0) / cycles if cycles else 0.0


def find_known(problem: Problem, gpu: Gpu | None) -> Known | None:
    """What was the fastest for such a problem on such a GPU; None if nothing of its kind was
    measured.
    """
    if gpu is None or one_stencil(problem) is None:
        return None

    kind, mirrored, points = kind_of(problem), is_mirrored(problem), problem.grid.n_points
    alike = [known for known in all_known() if known.kind == kind]
    named = [known for known in alike if known.gpu == gpu.name]

    def distance(known: Known) -> tuple[float, bool, float]:
        there = balance_of(gpu) or known.balance
        size = abs(math.log(known.points / points))
        return abs(math.log(known.balance / there)), known.mirrored != mirrored, size

    return min(named or alike, key=distance, default=None)


def pairs_first(
    candidates: Sequence[Candidate], problem: Problem, gpu: Gpu | None
) -> list[Candidate]:
    """Candidates in the order in which they are tried: where pairs of float32 were asked for and
    should be faster than float64, the best guesses of methods that compute in pairs go before the
    other best guesses, and so on.

    GeForce cards take as long for one instruction of float64 as for 64 of float32, and a pair takes
    seven to nine of these for one (docs/decisions/0049).
    """
    if not problem.pairs or gpu is None or (gpu.float64_cost or 0.0) <= _PAIR_COST:
        return list(candidates)
    return sorted(candidates, key=lambda it: (it.guess, not isinstance(it.method, Rounds)))


@functools.cache
def all_known() -> tuple[Known, ...]:
    """All measurements."""
    rows = json.loads(Path(__file__).with_name("known.json").read_text(encoding="utf-8"))
    return tuple(Known(**row | {"kind": tuple(row["kind"])}) for row in rows)
