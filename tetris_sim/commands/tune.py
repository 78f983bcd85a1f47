"""`tune CONFIG`: find the fastest method and its parameters for a problem, and keep them for later
runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any

from tetris_sim.commands import add_cache_argument, add_config_arguments, load
from tetris_sim.errors import ExitCode

if TYPE_CHECKING:
    from tetris_sim.model.problem import Problem
    from tetris_sim.scheduler.machine.machine import Gpu, Machine
    from tetris_sim.scheduler.plan.find import Tuned
    from tetris_sim.scheduler.tuning.choice import Choice

# seconds: who asks for it waits longer than at the start of a run, whose budget is
# compute.tuning_budget
_BUDGET = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `tune`."""
    add_config_arguments(parser)
    add_cache_argument(parser)
    parser.add_argument(
        "--budget",
        type=_seconds,
        default=_BUDGET,
        metavar="SECONDS",
        help="longest time to measure, compilation included; "
        "it ends earlier if all was tried (default: 60)",
    )


def run(args: argparse.Namespace) -> int:
    """Measure everything the budget allows on each kind of device that is meant, print it as a
    table, keep the choice.
    """
    from tetris_sim.scheduler.machine.machine import choose_devices, find_machine
    from tetris_sim.scheduler.plan.find import make_terms, tune_devices
    from tetris_sim.simulation.resuming import build_problem

    config = load(args)
    problem = build_problem(config)
    machine = find_machine()
    devices, _ = choose_devices(machine, config.compute)
    if config.compute.devices == "auto":
        devices = devices[:1]  # a CPU beside GPUs is tuned by the runs that are long enough for it

    terms = make_terms(config.compute, use_cache=not args.no_cache)
    terms = dataclasses.replace(terms, budget=args.budget, anew=True)
    every: list[Tuned] = []
    for tuned in tune_devices(problem, machine, config.compute, devices, terms):
        if not any(tuned.choice is other.choice for other in every):  # each kind is tuned once
            every.append(tuned)

    facts = [
        collect(problem, machine, tuned.choice, tuned.gpu, threads=tuned.most_threads)
        for tuned in every
    ]
    if args.json:
        told = facts[0] if len(facts) == 1 else facts
        print(json.dumps(told, indent=1, allow_nan=False))
    else:
        print("\n\n".join(as_text(device) for device in facts))
    return ExitCode.OK


def collect(
    problem: Problem, machine: Machine, choice: Choice, gpu: Gpu | None = None, *, threads: int
) -> dict[str, Any]:
    """Everything `tune` says, as plain data; `threads` is with how many candidates were timed."""
    from tetris_sim.scheduler.tuning.choice import as_plain
    from tetris_sim.support.wording import count_threads

    return {
        "device": f"{count_threads(threads)} of {machine.cpu}" if gpu is None else gpu.name,
        "cpu": machine.cpu,
        "threads": choice.threads,
        "grid": list(reversed(problem.grid.shape)),
        "precision": problem.precision,
        "chosen": {
            "method": choice.method.name,
            "parameters": dict(choice.parameters),
            "points_per_second": choice.speed.points_per_second,
            "latency_s": choice.speed.latency,
        },
        "seconds": choice.seconds,
        "candidates": [dict(as_plain(row)) for row in choice.rows],
        "reasons": list(choice.reasons),
    }


def as_text(facts: dict[str, Any]) -> str:
    """The same for people: a table, the fastest first, and what was decided."""
    from tetris_sim.scheduler.tuning.choice import label_of

    def rate(row: dict[str, Any]) -> float:
        return -row["points_per_second"][0] if row["points_per_second"] is not None else 0.0

    rows = sorted(facts["candidates"], key=rate)
    labels = [label_of(row["method"], row["parameters"]) for row in rows]
    width = max(map(len, ("candidate", *labels)))
    lines = [
        (
            f"{' x '.join(str(n) for n in facts['grid'])} points, {facts['precision']}, "
            f"{facts['device']}"
        ),
        f"{'candidate':<{width}}  GStencil/s  {'spread':>15}  check  ",
    ]
    for label, row in zip(labels, rows, strict=True):
        median, low, high = (
            f"{rate / 1e9:.3f}" for rate in row["points_per_second"] or (0.0, 0.0, 0.0)
        )
        speed, spread = (median, f"{low}..{high}") if row["points_per_second"] else ("", "")
        lines.append(
            f"{label:<{width}}  {speed:>10}  {spread:>15}  "
            f"{row['check']:<5}  {row['note']}".rstrip()
        )
    return "\n".join([*lines, *facts["reasons"]])


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (seconds > 0 and math.isfinite(seconds)):
        msg = f"{text} is not a number of seconds greater than 0"
        raise argparse.ArgumentTypeError(msg)
    return seconds
