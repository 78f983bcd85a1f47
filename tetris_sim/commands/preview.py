"""`preview CONFIG`: draw what a configuration describes, before it runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tetris_sim.commands import add_config_arguments, load, sources
from tetris_sim.errors import ExitCode
from tetris_sim.outputs.preview import draw_preview, view_3d
from tetris_sim.outputs.sampling import cuts_at, default_cuts
from tetris_sim.support.wording import printable_lines

HELP = "draw materials, faces, sources and probes before a run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The configuration, where to cut it and where to draw it."""
    add_config_arguments(parser)
    sources.add_slice_argument(parser)

    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PICTURE.png",
        help="the picture (default: <configuration>_preview.png in the working directory)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a picture that is already there"
    )
    parser.add_argument(
        "--interactive",
        action="store_true",
        help="open a view of a 3D body that can be turned, with PyVista, instead of the picture",
    )


def run(args: argparse.Namespace) -> int:
    """Draw the configuration; refuse what `validate` would refuse."""
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
