"""`fit CONFIG --data CSV --vary KEY=LOW:HIGH`: parameters from what probes have measured."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tetris_sim.commands import add_config_arguments, overrides
from tetris_sim.errors import ConfigError, ExitCode

HELP = "find parameters from what probes have measured"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `fit`."""
    add_config_arguments(parser)

    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="CSV",
        help="a column time, and one for each probe by its name, with units: time [s], core [degC]",
    )
    parser.add_argument(
        "--vary",
        action="append",
        required=True,
        metavar="KEY=LOW:HIGH",
        help="a key and the range of its value (materials.tim.conductivity=1:10), or a field and"
        " that of its initial values (temperature=20:90); may be repeated",
    )
    parser.add_argument(
        "--smooth",
        type=float,
        default=0.0,
        metavar="WEIGHT",
        help="of the integral of |grad u|^2 of unknown fields beside the sum of squares",
    )
    parser.add_argument(
        "--derivatives",
        choices=("auto", "differences", "adjoints"),
        default="auto",
        help="by runs side by side, or by runs forwards and back (default: these for fields)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIRECTORY",
        help="where all runs, fit.json and fit.html go (default: fits/<name of the file>)",
    )
    parser.add_argument(
        "--processes", type=int, metavar="N", help="runs at a time (default: as of sweep)"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace runs of another fit that are there"
    )


def run(args: argparse.Namespace) -> int:
    """Make the runs, print the parameters."""
    from tetris_sim.api.fitting import PAGE, fit

    vary = {}
    for text in args.vary:
        key, equals, given = text.partition("=")
        if not equals or key in vary:
            msg = f"--vary {text}: KEY=LOW:HIGH is wanted, and each key once"
            raise ConfigError(msg)
        vary[key.strip()] = given
    result = fit(
        args.config,
        args.data,
        vary,
        smooth=args.smooth,
        derivatives=args.derivatives,
        directory=args.output,
        processes=args.processes,
        overrides=overrides(args),
        overwrite=args.overwrite,
    )
    if args.json:
        said = {
            "parameters": [it.as_plain() for it in result.parameters],
            "runs": result.runs,
            "derivatives": result.derivatives,
        }
        print(json.dumps(said, indent=1))
    elif not args.quiet:
        print("\n".join(result.as_lines()))
        print(result.directory / PAGE)
    return ExitCode.OK
