"""Formulas at random, many: sentences or right answers, equal on NumPy, CPU and GPU.

    python tests/physics/pde_fuzz_many.py 100000 --jobs 2 --json docs/trust/formulas.json

A case is two formulas and a scheme, made again by its number. Each is built by itself: what it is
refused with is a `TetrisError`, and the oracle computes what is not refused. Cases that are
computed go to the CPU and the GPU in batches, each case two fields of one problem: compiling is
nearly all that a formula costs. Of a batch that raises, halves are tried again (together stages may
reach further than the grid is wide); cases that differ, one by one. All answers are within
`allowed_error` of the oracle's; those of programs of + - * / sqrt and comparisons have the same
bits on all devices. The GPU is the real one, an emulated one where there is a compiler, or none. `--seconds` ends the
campaign early, `--first` begins at another case; a line of JSON per batch goes to `--lines`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (0, 2)]

from tests.physics import test_pde_fuzz as one  # noqa: E402
from tests.support.exact import equation_step  # noqa: E402
from tetris_sim.apps.pde.arrays import equations_problem  # noqa: E402
from tetris_sim.cpu_kernels import METHODS  # noqa: E402
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam  # noqa: E402
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod  # noqa: E402
from tetris_sim.model import reference  # noqa: E402
from tetris_sim.model.boundary import Boundary, Neumann  # noqa: E402
from tetris_sim.model.problem import Field, Problem  # noqa: E402
from tetris_sim.model.reference import allowed_error  # noqa: E402
from tetris_sim.model.slab import Slab  # noqa: E402

BATCH, STEPS, LEAVES = 16, 2, 8
SCHEMES = ("euler", "rk2", "rk4")
PLAIN = next(it for it in METHODS if it.name == "cpu.plain")


@dataclass(frozen=True)
class Case:
    """Two formulas and a scheme, and the problem that they are."""

    number: int
    texts: tuple[str, str]
    scheme: str
    problem: Problem
    expected: Field


_OTHER_BITS = "other bits on another device"
_ROUNDING = "decided by rounding"


@dataclass
class Tally:
    """What happened.

    Attributes:
        cases: that were tried.
        counts: refused ones, computed ones, those whose bits are known, right ones.
        failures: what went wrong, with the number of the case.
    """

    cases: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def formula(rng: random.Random, leaves: int) -> str:
    """A text with so many names and numbers at most."""
    if leaves <= 1 or rng.random() < 0.1:
        return rng.choice(one.LEAVES)
    patterns, n = rng.choices(
        [(one.UNARY, 1), (one.BINARY, 2), (one.TERNARY, 3)], weights=[4, 5, 1]
    )[0]
    share = leaves - 1 if n == 1 else leaves // n
    return rng.choice(patterns).format(*(formula(rng, share) for _ in range(n)))


def make_case(number: int) -> Case | None:
    """A case, or None if it is refused; raises what it should not."""
    rng = random.Random(number)
    u, v = (formula(rng, rng.randint(1, LEAVES)) for _ in "uv")
    scheme = rng.choice(SCHEMES)
    if (problem := one.build(u, v, scheme)) is None:
        return None
    expected = reference.advance(one.state(), problem, STEPS)
    return Case(number, (u, v), scheme, problem, expected)


def joined(cases: list[Case]) -> Problem:
    """The cases of one scheme as one problem, two fields each."""
    formulas, boundaries = {}, {}
    faces = Boundary(((Neumann(), Neumann()), one.WALLS.faces[1]))
    for k, case in enumerate(cases):
        for name, text, boundary in zip("uv", case.texts, (one.WALLS, faces), strict=True):
            formulas[f"{name}{k}"] = re.sub(r"\b([uv])\b", rf"\g<1>{k}", text)
            boundaries[f"{name}{k}"] = boundary
    return equations_problem(
        np.concatenate([one.state() for _ in cases]),
        [*formulas],
        formulas,
        constants=one.CONSTANTS,
        grid=one.GRID,
        boundaries=boundaries,
        dt=one.DT,
        steps=STEPS,
        scheme=cases[0].scheme,
        accuracy=2,
        advection="upwind",
    )


def advanced(problem: Problem, device: str, worker: Any) -> Field:
    """By a device, STEPS steps."""
    method: Any = PLAIN if device == "cpu" else GpuPlainMethod()
    stepper = method.prepare(problem, Slab.whole(problem.grid), {}, worker)
    stepper.load(problem.initial)
    stepper.advance(STEPS)
    found: Field = stepper.interior()
    if device != "cpu":
        stepper.close()
    return found


def difference(case: Case, answers: dict[str, Field]) -> str | None:
    """What is wrong with the answers of devices, as words; None if nothing is."""
    first, *others = answers.values()
    if not one.inexact(case.problem):
        if not all(np.array_equal(first, it, equal_nan=True) for it in others):
            return _OTHER_BITS
        others = []
    finite = np.isfinite(case.expected)
    for found in (first, *others):
        if np.array_equal(found, case.expected, equal_nan=True):
            continue
        if not (np.isfinite(found) == finite).all():
            return "finite elsewhere"
        if finite.all():
            allowed = allowed_error(one.state(), case.expected, case.problem, STEPS)
            errors = np.abs(found - case.expected)
            if not (errors <= allowed + 1e-300).all():
                return f"{errors.max()} instead of {allowed.max()}"
    return None


def decided_by_rounding(case: Case, answers: dict[str, Field]) -> bool:
    """Whether the answers are right although the oracle's differ.

    A fourth difference of a line is noise, and so is what its root or its reciprocal is. NumPy
    rounds twice where programs have a fused multiply-add, and may then find any other number. So
    steps are made again with every operation rounded once: the bits, where they are known, have to
    be equal, other answers within what is allowed.
    """
    exact = one.state()
    for number in range(STEPS):
        exact = equation_step(exact, case.problem, number)
    if one.inexact(case.problem):
        return difference(replace(case, expected=exact), answers) is None
    return all(np.array_equal(it, exact, equal_nan=True) for it in answers.values())


def judge(cases: list[Case], workers: dict[str, Any]) -> list[str | None]:
    """What is wrong with each of some cases that are computed together; None if nothing is."""
    try:
        problem = joined(cases)
        found = {device: advanced(problem, device, it) for device, it in workers.items()}
        wrong = []
        for k, case in enumerate(cases):
            pair = slice(2 * k, 2 * k + 2)
            wrong.append(difference(case, {device: it[pair] for device, it in found.items()}))

        differs = len(cases) == 1 and wrong[0] not in (None, _OTHER_BITS)
        return [_ROUNDING] if differs and decided_by_rounding(cases[0], found) else wrong
    except Exception:  # noqa: BLE001  whatever it is, it is told
        return [traceback.format_exc(limit=-3)] * len(cases)


def compare(cases: list[Case], workers: dict[str, Any], tally: Tally) -> None:
    """Compute cases together; fewer at once if something is wrong."""
    wrong = judge(cases, workers)
    again = [case for case, words in zip(cases, wrong, strict=True) if words is not None]
    tally.counts["right"] += len(cases) - len(again)
    if len(cases) == 1:
        (case,), (words,) = cases, wrong
        if words == _ROUNDING:
            tally.counts[_ROUNDING] += 1
        elif words is not None:
            tally.failures.append(f"{case.number} {case.scheme} {case.texts}: {words}")
        return
    tally.counts["batches tried again"] += bool(again)
    size = len(again) // 2 if len(again) == len(cases) else 1
    for first in range(0, len(again), size):
        compare(again[first : first + size], workers, tally)


def attempt(numbers: range, workers: dict[str, Any]) -> Tally:
    """Some cases."""
    tally, waiting = Tally(len(numbers)), {scheme: list[Case]() for scheme in SCHEMES}
    for number in numbers:
        try:
            case = make_case(number)
            known = case is not None and not one.inexact(case.problem)
        except Exception:  # noqa: BLE001  whatever it is, it is told
            tally.failures.append(f"{number}: {traceback.format_exc(limit=-3)}")
            continue
        tally.counts["refused" if case is None else "computed"] += 1
        if case is not None:
            tally.counts["programs with known bits"] += known
            waiting[case.scheme].append(case)

    for cases in waiting.values():
        for first in range(0, len(cases), BATCH):
            compare(cases[first : first + BATCH], workers, tally)
    return tally


def find_workers(gpu: str) -> dict[str, Any]:
    """A device for each name: the CPU, and the GPU that was asked for."""
    found: dict[str, Any] = {"cpu": ThreadTeam(1)}
    if gpu == "real":
        from tetris_sim.gpu_kernels.common.device import GpuDevice

        found["gpu"] = GpuDevice(0)
    elif gpu == "emulated":
        from tests.support.emulator.host_gpu import HostGpu

        found["emulated gpu"] = HostGpu()
    return found


def choose_gpu() -> str:
    """The best there is."""
    from tests.support.emulator.emulation import COMPILER
    from tetris_sim.scheduler.machine.machine import find_gpus

    if find_gpus()[0]:
        return "real"
    return "emulated" if COMPILER is not None else "none"


_WORKERS: dict[str, Any] = {}


def _begin(gpu: str) -> None:
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    _WORKERS.update(find_workers(gpu))


def _attempt(numbers: range) -> tuple[range, Tally, float]:
    begin = time.process_time()
    return numbers, attempt(numbers, _WORKERS), time.process_time() - begin


def main() -> None:
    """Try many."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--gpu", choices=("real", "emulated", "none", "best"), default="best")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--lines", type=Path)
    it = parser.parse_args()
    gpu = choose_gpu() if it.gpu == "best" else it.gpu

    begin, total, processor = time.time(), Tally(), 0.0
    last = it.first + it.cases
    size = 9 * BATCH  # about three batches of each scheme would be 2 / 3 full
    parts = [range(k, min(k + size, last)) for k in range(it.first, last, size)]
    context = multiprocessing.get_context("spawn")
    with context.Pool(it.jobs, _begin, (gpu,), maxtasksperchild=40) as pool:
        for numbers, tally, seconds in pool.imap_unordered(_attempt, parts):
            total.cases += tally.cases
            total.counts += tally.counts
            total.failures += tally.failures
            processor += seconds
            row = {"first": numbers.start, "cases": tally.cases, **tally.counts}
            if it.lines is not None:
                with it.lines.open("a") as lines:
                    lines.write(json.dumps(row | {"failures": tally.failures}) + "\n")
            for words in tally.failures:
                sys.stdout.write(words + "\n")
                sys.stdout.flush()
            if time.time() - begin > it.seconds:
                break
        pool.terminate()

    about = {
        "cases": total.cases,
        "first": it.first,
        "jobs": it.jobs,
        "gpu": gpu,
        "seconds": round(time.time() - begin),
        "processor": round(processor),
        "date": time.strftime("%Y-%m-%d"),
        **total.counts,
        "failures": total.failures,
    }
    sys.stdout.write(f"{about | {'failures': len(total.failures)}}\n")
    if it.json is not None:
        it.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
