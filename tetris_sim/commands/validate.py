"""Looks at a configuration before a run: `validate` finds its mistakes and sums up what it asks
for; `preview` draws what it describes.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from tetris_sim.commands import add_config_arguments, load
from tetris_sim.config import Config
from tetris_sim.config.sections.quantities import Every
from tetris_sim.config.sections.schema import FieldsSection
from tetris_sim.errors import ExitCode, TetrisError
from tetris_sim.model.problem import Problem
from tetris_sim.support.wording import printable_lines

_MINUTES = 120.0  # intervals from here on [s] are told in minutes and more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The configuration, nothing else."""
    add_config_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print a summary of the configuration if it is right; tell what is wrong if it is not."""
    try:
        config = load(args)
        problem = config.build()
        if config.compute.method != "auto":  # all methods together take a while to import
            from tetris_sim.scheduler.tuning.candidates import TuningRequest, check_asked

            check_asked(problem, TuningRequest(config.compute.method, config.compute.parameters))
    except TetrisError as error:
        if not args.json:
            raise
        print(json.dumps({"valid": False, "problems": problems_as_json(error)}, indent=2))
        return error.exit_code
    if args.json:
        print(json.dumps({"valid": True, "problems": [], **_numbers(problem)}, indent=2))
    else:
        print(printable_lines(f"ok: {summary(config, problem)}"))
        for note in config.model.notes(config) if hasattr(config.model, "notes") else ():
            print(printable_lines(f"note: {note}"))
    return ExitCode.OK


def problems_as_json(error: TetrisError) -> list[dict[str, Any]]:
    """Return an error as plain values: the mistakes in a configuration one by one, or one error."""
    mistakes = getattr(error, "problems", None)
    if mistakes is None:
        return [{"key": "", "message": str(error), "source": "", "line": None, "column": None}]
    return [mistake.as_json() for mistake in mistakes]


def _numbers(problem: Problem) -> dict[str, Any]:
    limit = problem.dt_limit if math.isfinite(problem.dt_limit) else None
    return {
        "shape": list(problem.grid.shape[::-1]),
        "size": list(problem.grid.size[::-1]),
        "stencil_points": problem.stencil.n_points,
        "precision": problem.precision,
        "dt": problem.dt,
        "dt_limit": limit,
        "steps": problem.steps,
        "t_end": problem.time(problem.steps),
    }


def summary(config: Config, problem: Problem) -> str:
    """One paragraph: what will be computed, for how long, and what will be written."""
    grid = problem.grid
    points = " x ".join(map(str, grid.shape[::-1]))
    lengths = " x ".join(f"{length:.6g}" for length in grid.size[::-1])
    name = f"{config.title!r}, " if config.title else ""
    stable = (
        ""
        if math.isinf(problem.dt_limit) or problem.is_adaptive or config.time.scheme == "implicit"
        else f" ({problem.dt / problem.dt_limit:.1%} of the largest stable step)"
    )

    steps = (
        f"{problem.steps} steps of {problem.dt:.6g} s{stable} end at t = "
        f"{problem.time(problem.steps):.6g} s"
    )
    if config.time.scheme == "steady":
        steps = "Its steady state is solved for"

    return (
        f"{name}model {config.model.type} on {points} points over {lengths} m in {problem.dtype}, "
        f"with a stencil of {problem.stencil.n_points} points. {steps}. Results: "
        f"{_results(config)}."
    )


def _results(config: Config) -> str:
    output, checkpoint = config.output, config.checkpoint
    parts = []
    if output.fields is not None:
        parts.append(f"fields {_when(output.fields)}")
    parts += [f"part {part.name} {_when(part)}" for part in output.parts]
    if output.probes:
        parts.append(f"{len(output.probes)} {'probe' if len(output.probes) == 1 else 'probes'}")
    if output.statistics is not None:
        parts.append(f"statistics every {_pace(output.statistics.every)}")
    if output.pictures:
        parts.append("pictures")

    if checkpoint.every is not None:
        parts.append(f"checkpoints every {_pace(checkpoint.every)}")
    if checkpoint.at_end:
        parts.append("a checkpoint at the end")

    place = f", in {output.directory}" if output.directory else ""
    return ", ".join(parts or ["nothing"]) + place


def _when(section: FieldsSection) -> str:
    every = [] if section.every is None else [f"every {_pace(section.every)}"]
    times = [f"at {', '.join(f'{time:g}' for time in section.at)} s"] if section.at else []
    return " and ".join(every + times)


def _pace(every: Every) -> str:
    """An interval for people: a long one in minutes, hours or days."""
    from tetris_sim.support.wording import format_duration

    if every.unit == "steps" or every.value < _MINUTES:
        return str(every)
    return f"{format_duration(every.value)}{' wall' if every.unit == 'wall' else ''}"


def add_preview_arguments(parser: argparse.ArgumentParser) -> None:
    """The configuration, where to cut it and where to draw it."""
    from tetris_sim.commands import sources

    add_config_arguments(parser)
    sources.add_slice_argument(parser)

    sources.add_picture_arguments(parser, "<configuration>_preview.png")
    parser.add_argument(
        "--interactive",
        action="store_true",
        help="open a view of a 3D body that can be turned, with PyVista, instead of the picture",
    )


def run_preview(args: argparse.Namespace) -> int:
    """Draw the configuration; refuse what `validate` would refuse."""
    # `validate` needs no painters, which take a while to import.
    from tetris_sim.commands import sources
    from tetris_sim.outputs.preview import draw_preview, view_3d
    from tetris_sim.outputs.sampling import cuts_at, default_cuts

    output = args.output or Path(f"{args.config.stem}_preview.png")
    sources.refuse_other_suffix(output, (".png",))
    # Building finds what only files and points show, so a wrong body is refused, not drawn.
    config = load(args)
    problem = config.build()
    if args.interactive:
        view_3d(config, problem).show()
        return ExitCode.OK

    sources.refuse_existing(output, overwrite=args.overwrite)
    places = sources.read_places(problem.grid, args.slice)
    cuts = cuts_at(problem.grid, places) if places else default_cuts(problem.grid)
    draw_preview(config, problem, cuts=cuts).save(output)
    if args.json:
        print(json.dumps({"picture": str(output)}))
    else:
        print(printable_lines(f"{output}: {config.title or args.config.name}"))
    return ExitCode.OK
