"""`plan CONFIG`: what a run would do and cost, without running; and `tune CONFIG`, which finds the
fastest method and its parameters for a problem, and keeps them for later runs.
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
    from tetris_sim.config import Config
    from tetris_sim.model.problem import Problem
    from tetris_sim.scheduler.machine.machine import Gpu, Machine
    from tetris_sim.scheduler.plan.find import Tuned
    from tetris_sim.scheduler.tuning.choice import Choice
    from tetris_sim.simulation.preparation import PreparedRun

_AT_ONCE, _LOOKED_AT = 1 << 22, 1 << 26  # points of the initial state: of a part, in all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `plan`."""
    add_config_arguments(parser)
    add_cache_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Build the problem, plan it, print; refuse what `run` would refuse."""
    from tetris_sim.outputs import results
    from tetris_sim.scheduler.comm.communicator import everywhere, on_root, open_communicator
    from tetris_sim.simulation.preparation import prepare

    with open_communicator() as ranks:
        config = everywhere(ranks, lambda: load(args))
        prepared = prepare(config, ranks, use_cache=not args.no_cache, compare=True)
        on_root(ranks, lambda: look_at_start(prepared.problem))
        directory = results.directory_of(config)
        needed = results.predicted_bytes(config, prepared.problem)
        on_root(ranks, lambda: results.refuse_unusable(directory))
        on_root(ranks, lambda: results.refuse_full_disk(directory, needed))

    if ranks.rank == 0:
        facts = collect(config, prepared)
        print(json.dumps(facts, indent=1, allow_nan=False) if args.json else as_text(facts))
    return ExitCode.OK


def look_at_start(problem: Problem) -> None:
    """Compute the initial state, or of a very large one evenly spaced parts.

    Raises:
        NumericsError: a value is not finite; the message says where.
    """
    from tetris_sim.model.slab import Slab

    shape = problem.grid.shape
    deep = max(1, _AT_ONCE * shape[0] // problem.grid.n_points)
    begins = range(0, shape[0], deep)
    most = max(1, _LOOKED_AT // (deep * problem.grid.n_points // shape[0]))
    for begin in begins[:: -(-len(begins) // most)]:
        planes = (begin, min(begin + deep, shape[0]))
        problem.initial(Slab.box((planes, *((0, n) for n in shape[1:]))))


def collect(config: Config, prepared: PreparedRun) -> dict[str, Any]:
    """Everything `plan` says, as plain data in SI units."""
    from tetris_sim.outputs.results import count_fields, directory_of, free_bytes, predicted_bytes
    from tetris_sim.scheduler.facts.shares import names_of

    problem, plan, directory = prepared.problem, prepared.plan, directory_of(config)
    return {
        "title": config.title or config.model.type,
        "grid": {
            "shape": list(reversed(problem.grid.shape)),
            "spacing_m": list(reversed(problem.grid.spacing)),
            "widest_m": list(reversed(problem.grid.widest)),
            "units": [problem.grid.system.unit(it) for it in problem.grid.axis_names[::-1]],
            "points": problem.grid.n_points,
        },
        "stencil": {"points": problem.stencil.n_points, "radius": problem.stencil.radius},
        "equations": _equations(prepared),
        "precision": problem.precision,
        "time": {
            "dt_s": problem.dt,
            "dt_limit_s": None
            if math.isinf(problem.dt_limit) or problem.is_adaptive
            else problem.dt_limit,
            "steps": problem.steps,
            "adaptive": problem.is_adaptive,
            "t_end_s": problem.time(problem.steps),
        },
        "workers": [
            {
                "worker": name,
                "method": share.method.name,
                "parameters": dict(share.parameters),
                "threads": share.threads,
                "device": share.described,
                "share": share.slab.n_points / problem.grid.n_points,
                "halo": [list(pair) for pair in share.slab.halo],
                "points_per_second": share.points_per_second,
                "memory_bytes": share.memory,
                "predicted_idle": None
                if plan.profile is None
                else plan.profile.division.idle(place),
                "streamed": None if share.streamed is None else dataclasses.asdict(share.streamed),
            }
            for place, (name, share) in enumerate(zip(names_of(plan), plan.shares, strict=True))
        ],
        "profile": None if plan.profile is None else dataclasses.asdict(plan.profile),
        "scheme": plan.scheme,
        "schemes": {
            it.scheme: {
                "seconds": it.seconds if it.plan is not None else None,
                "why_not": it.why_not or None,
            }
            for it in prepared.proposals
        },
        "time_block": plan.time_block,
        "redundant": plan.redundant,
        "memory_bytes": sum(s.memory for s in plan.shares if s.rank == 0)
        + (problem.state_bytes if plan.copy_for_checkpoints else 0),
        "memory_available_bytes": prepared.machine.memory,
        "seconds": next(it.seconds for it in prepared.proposals if it.scheme == plan.scheme),
        "files": {
            "directory": str(directory),
            "fields": count_fields(config, problem),
            "state_bytes": problem.state_bytes,
            "field_bytes": problem.field_bytes,
            "total_bytes": predicted_bytes(config, problem),
            "free_bytes": free_bytes(directory),
        },
        "reasons": list(plan.reasons),
        "notes": list(plan.notes),
    }


def as_text(facts: dict[str, Any]) -> str:
    """The same for people."""
    from tetris_sim.scheduler.tuning.choice import label_of
    from tetris_sim.support.wording import format_duration, format_time, gib, spread

    grid, time, files = facts["grid"], facts["time"], facts["files"]
    limit = time["dt_limit_s"]
    against = (
        f", {time['dt_s'] / limit:.0%} of the largest stable step" if limit is not None else ""
    )
    widths = [
        spread(*pair, "{:.4g}".format)
        for pair in zip(grid["spacing_m"], grid["widest_m"], strict=True)
    ]
    # Along angles it is in radians; one unit for all needs to be said once.
    if len({*grid["units"]}) > 1:
        widths = [" ".join(it) for it in zip(widths, grid["units"], strict=True)]
    else:
        widths[-1] += " m"
    lines = [
        facts["title"],
        f"  grid     {' x '.join(str(n) for n in grid['shape'])} = {grid['points']} points, "
        f"spacing {' x '.join(widths)}",
        (
            f"  stencil  {facts['stencil']['points']} points, radius {facts['stencil']['radius']}, "
            f"{facts['precision']}"
        ),
        f"  time     {time['steps']} steps of {format_time(time['dt_s'])}{against}; "
        f"ends at {format_time(time['t_end_s'])}"
        if facts["scheme"] != "steady"
        else "  time     steady state, no steps",
    ]
    if (step := facts["equations"]) is not None:
        lines.insert(3, f"  step     {step_sentence(step)}")
    lines += [
        f"  {worker['worker']:<8} {label_of(worker['method'], worker['parameters'])}, "
        f"{worker['device']}, {worker['share']:.1%} of the grid, "
        f"{worker['points_per_second'] / 1e9:.3g} GStencil/s, "
        f"{gib(worker['memory_bytes'])}" + _idle(worker)
        for worker in facts["workers"]
    ]
    if len(facts["workers"]) > 1:
        lines.append(
            f"  halos    every {facts['time_block']} steps, {facts['redundant']:.2%} of the work "
            "done twice"
        )
    lines += [
        f"  memory   {gib(facts['memory_bytes'])} of {gib(facts['memory_available_bytes'])}",
        f"  takes    about {format_duration(facts['seconds'])} without output"
        + (", times substeps a step, whose number is not known" * facts["time"]["adaptive"]),
        f"  writes   {files['fields']} fields of {gib(files['field_bytes'])}, at most "
        f"{gib(files['total_bytes'])} with checkpoints, to {files['directory']} "
        f"({gib(files['free_bytes'])} free)",
        "  why",
        *(f"    {reason}" for reason in facts["reasons"]),
    ]
    if facts["notes"]:
        lines += ["  notes", *(f"    {note}" for note in facts["notes"])]
    return "\n".join(lines)


def _equations(prepared: PreparedRun) -> dict[str, Any] | None:
    """Return the cost of a step of equations at a point, and the rate expected of each worker."""
    from tetris_sim.bench.limits import expected_rates

    problem = prepared.problem
    if (equations := problem.equations) is None:
        return None
    n_bytes = equations.n_transfers * problem.dtype.itemsize
    expected = expected_rates(problem, prepared.plan.shares, prepared.machine.gpus)
    return {
        "fields": list(equations.fields),
        "stages": len(equations.stages),
        "operations": equations.n_operations,
        "bytes": n_bytes,
        "expected": [dataclasses.asdict(it) for it in expected],
    }


def step_sentence(step: dict[str, Any]) -> str:
    """Return the cost of a step of equations as a sentence."""
    stages = "1 stage" if step["stages"] == 1 else f"{step['stages']} stages"
    cost = (
        f"{stages}, {step['operations']} operations and {step['bytes']} bytes per point for "
        f"{', '.join(step['fields'])}"
    )
    rates = [
        f"{it['worker']} is expected to make {it['points_per_second'] / 1e9:.3g} GStencil/s, bound "
        f"by {it['bound']} ({it['bytes']:.3g} bytes of memory per point and step)"
        for it in step["expected"]
    ]
    return "; ".join([cost, *rates])


def _idle(worker: dict[str, Any]) -> str:
    """How long it is expected to wait for others, where there are others."""
    return f", idle {worker['predicted_idle']:.1%}" if worker["predicted_idle"] else ""


# seconds: who asks for it waits longer than at the start of a run, whose budget is
# compute.tuning_budget
_BUDGET = 60.0


def add_tune_arguments(parser: argparse.ArgumentParser) -> None:
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


def run_tune(args: argparse.Namespace) -> int:
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
        tuned_facts(problem, machine, tuned.choice, tuned.gpu, threads=tuned.most_threads)
        for tuned in every
    ]
    if args.json:
        told = facts[0] if len(facts) == 1 else facts
        print(json.dumps(told, indent=1, allow_nan=False))
    else:
        print("\n\n".join(tuned_text(device) for device in facts))
    return ExitCode.OK


def tuned_facts(
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


def tuned_text(facts: dict[str, Any]) -> str:
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
