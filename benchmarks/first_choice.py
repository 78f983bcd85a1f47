"""What `compute.tuning_budget: 0` takes, beside the best of all that may be tried.

    python benchmarks/first_choice.py --gpu --jobs 14 --json docs/benchmarks/first-choice.json
    python benchmarks/first_choice.py --gpu heat-2d --shape 512 512 --known
    python benchmarks/first_choice.py --cpu 2 heat-2d box-3d27p

Every candidate of a stencil is timed on the trial problem that a tuner would take, for a grid as
large as those of the other pages. The first and the fastest are timed again in turn: the ratio of
their medians is what is told. Code for GPUs is compiled by several processes beforehand. With
--known the fastest ones are kept in scheduler/tuning/known.json, where the next first choice is
found.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from tetris_sim.bench.timing import FaceKind, WeightKind, random_problem  # noqa: E402
from tetris_sim.model.problem import Problem  # noqa: E402
from tetris_sim.model.slab import Slab  # noqa: E402
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, named_stencil  # noqa: E402
from tetris_sim.scheduler.machine.machine import (  # noqa: E402
    Gpu,
    find_machine,
)
from tetris_sim.scheduler.machine.placement import ComputeResource  # noqa: E402
from tetris_sim.scheduler.tuning import tuned  # noqa: E402
from tetris_sim.scheduler.tuning.candidates import RESERVE, TuningRequest, find_candidates  # noqa: E402
from tetris_sim.scheduler.tuning.choice import Candidate  # noqa: E402
from tetris_sim.scheduler.tuning.compete import TuningLimits, compete, ranked  # noqa: E402
from tetris_sim.scheduler.tuning.measure import (  # noqa: E402
    Trial,
    kept,
    make_timed_problem,
    steps_per_block,
    trial_bytes,
)
from tetris_sim.scheduler.tuning.tune import GPU_CACHE  # noqa: E402
from tetris_sim.scheduler.tuning.tuned import balance_of, find_known, is_mirrored, kind_of  # noqa: E402

KNOWN = Path(tuned.__file__).with_name("known.json")
SHAPES = {1: (10_240_000,), 2: (10_240, 10_240), 3: (1024, 1024, 1024)}
SMALL = {1: (4096,), 2: (64, 64), 3: (16, 16, 64)}
ROUNDS, SECONDS = 7, 0.1


@dataclass(frozen=True)
class Case:
    """One stencil as a run would pose it."""

    stencil: str
    weights: WeightKind
    dtype: str
    faces: FaceKind
    shape: tuple[int, ...] | None = None

    def problem(self) -> Problem:
        """On that grid, or one as large as those of the other pages, with data for a small one."""
        ndim = named_stencil(self.stencil).stencil.ndim
        small = random_problem(self.stencil, SMALL[ndim], self.dtype, self.weights, self.faces)
        return small.on_shape(self.shape or SHAPES[ndim])


def cases_of(
    names: Sequence[str],
    dtypes: Sequence[str],
    faces: FaceKind,
    shape: tuple[int, ...] | None = None,
) -> list[Case]:
    """Heat kernels with equal neighbours, others with random weights, boxes with symmetric ones."""
    cases = []
    for dtype, name in itertools.product(dtypes, names):
        kinds: tuple[WeightKind, ...] = ("equal",) if name.startswith("heat") else ("random",)
        kinds = (*kinds, "symmetric") if name.startswith("box") else kinds
        cases += [Case(name, kind, dtype, faces, shape) for kind in kinds]
    return cases


def posed(case: Case, place: ComputeResource) -> tuple[list[Candidate], Problem]:
    """(what may be tried, the best guess first; the trial problem that it is tried on)."""
    machine, problem = find_machine(), case.problem()
    gpu = machine.gpus[place.number] if place.device == "gpu" else None
    memory = machine.memory if gpu is None else gpu.memory
    candidates, _ = find_candidates(
        problem, TuningRequest(), memory - RESERVE, place, find_known(problem, gpu)
    )
    n_bytes = trial_bytes(memory, machine.cache if gpu is None else max(gpu.cache, GPU_CACHE))
    steps = max(steps_per_block(it.parameters) for it in candidates)
    timed = make_timed_problem(problem, n_bytes, threads=place.threads, steps=steps)
    return list(candidates), kept(timed)


def compile_some(work: tuple[Case, ComputeResource, int, int]) -> None:
    """Compile every so many-th candidate of a case."""
    case, place, first, stride = work
    candidates, timed = posed(case, place)
    with place.opened() as device:
        for candidate in candidates[first::stride]:
            with contextlib.suppress(Exception):  # who fails is told when it is timed
                whole = Slab.whole(timed.grid)
                candidate.method.prepare(timed, whole, candidate.parameters, device).close()


def measure(case: Case, place: ComputeResource) -> dict[str, Any]:
    """The first choice and the best one, in turn."""
    candidates, timed = posed(case, place)
    limits = TuningLimits(time.perf_counter() + 1e9, 1e9, None, 1 << 62)
    entries = compete(timed, candidates, place=place, limits=limits)
    order = ranked(entries)
    leaders = list(dict.fromkeys([candidates[0].label, *(it.candidate.label for it in order)]))[:4]
    chosen = [next(it for it in candidates if it.label == label) for label in leaders]
    rates: dict[str, list[float]] = {label: [] for label in leaders}
    with place.opened() as device, contextlib.ExitStack() as stack:
        trials = [
            stack.enter_context(contextlib.closing(Trial(timed, it.method, it.parameters, device)))
            for it in chosen
        ]
        for _ in range(ROUNDS):
            for label, trial in zip(leaders, trials, strict=True):
                rates[label].append(trial.time(SECONDS).points_per_second)

    median = {label: statistics.median(found) for label, found in rates.items()}
    best = max(median, key=lambda label: median[label])
    told = {
        kind: {
            "label": label,
            "rate": median[label],
            "low": min(rates[label]),
            "high": max(rates[label]),
        }
        for kind, label in (("first", leaders[0]), ("best", best))
    }
    everything = {
        it.candidate.label: it.note or it.rate for it in entries if it.first is not None or it.note
    }
    winner = next(it for it in chosen if it.label == best)
    problem = case.problem()
    return {
        **asdict(case),
        "shape": problem.grid.shape,
        "trial": timed.grid.shape,
        "kind": kind_of(problem),
        "mirrored": is_mirrored(problem),
        "points": problem.grid.n_points,
        "method": winner.method.name,
        "parameters": dict(winner.parameters),
        **told,
        "share": median[leaders[0]] / median[best],
        "all": everything,
    }


def rows(
    cases: Sequence[Case], place: ComputeResource, jobs: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """Compile, then measure one after the other, as long as there is time."""
    begin = time.perf_counter()
    if jobs > 1:
        context = multiprocessing.get_context("spawn")
        with context.Pool(jobs) as pool:
            work = [(case, place, k, 4) for case in cases for k in range(4)]
            pool.map(compile_some, work, chunksize=1)
        sys.stdout.write(f"compiled in {time.perf_counter() - begin:.0f} s\n")
    for case in cases:
        if time.perf_counter() - begin > seconds:
            return
        yield measure(case, place)


def keep(found: Sequence[dict[str, Any]], gpu: Gpu, date: str) -> None:
    """Let the fastest ones be tried first from now on."""
    rows = {
        (gpu.name, tuple(row["kind"]), row["mirrored"], row["points"]): {
            "gpu": gpu.name,
            "balance": round(balance_of(gpu), 2),
            "date": date,
            **{name: row[name] for name in ("kind", "mirrored", "points", "method", "parameters")},
            "rate": float(f"{row['best']['rate']:.4g}"),
        }
        for row in found
    }
    earlier = json.loads(KNOWN.read_text())
    kept_ones = [
        it
        for it in earlier
        if (it["gpu"], tuple(it["kind"]), it["mirrored"], it["points"]) not in rows
    ]
    lines = ",\n".join(json.dumps(it) for it in (*kept_ones, *rows.values()))
    KNOWN.write_text(f"[\n{lines}\n]\n")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stencils", nargs="*", default=STENCIL_NAMES)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--gpu", action="store_true")
    kind.add_argument("--cpu", type=int, metavar="THREADS")
    parser.add_argument("--dtypes", nargs="*", default=["float64", "float32"])
    parser.add_argument(
        "--faces", default="periodic", choices=("periodic", "insulated", "convection")
    )
    parser.add_argument("--shape", nargs="*", type=int)
    parser.add_argument("--known", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--json", type=Path)
    it = parser.parse_args()

    place = ComputeResource(1, "gpu", 0) if it.gpu else ComputeResource(it.cpu)
    machine = find_machine()
    about = {
        "device": machine.gpus[0].name if it.gpu else machine.cpu,
        "date": time.strftime("%Y-%m-%d"),
    }
    found = []
    cases = cases_of(it.stencils, it.dtypes, it.faces, tuple(it.shape) if it.shape else None)
    for row in rows(cases, place, it.jobs, it.seconds):
        found.append(row)
        sys.stdout.write(
            f"{row['stencil']:12} {row['weights']:9} {row['dtype']:8} {row['share']:.2f}  "
            f"{row['first']['rate'] / 1e9:8.1f} {row['first']['label']}\n"
        )
        if row["share"] < 0.98:
            sys.stdout.write(f"{'':37}{row['best']['rate'] / 1e9:8.1f} {row['best']['label']}\n")
        sys.stdout.flush()
        if it.json is not None:
            it.json.write_text(json.dumps({**about, "rows": found}, indent=1) + "\n")
        if it.known and it.gpu:
            keep(found, machine.gpus[0], about["date"])


if __name__ == "__main__":
    main()
