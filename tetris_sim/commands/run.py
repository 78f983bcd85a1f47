"""`run CONFIG`: run a simulation."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tetris_sim.commands import add_cache_argument, add_config_arguments, load
from tetris_sim.support.wording import printable

if TYPE_CHECKING:
    from tetris_sim.scheduler.comm.communicator import Communicator
    from tetris_sim.simulation.report import Report

HELP = "run a simulation"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `run`."""
    add_config_arguments(parser)
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the results of an earlier run"
    )

    parser.add_argument(
        "--strict",
        action="store_true",
        help="a device that fails ends the run with a checkpoint and exit code 3 (default: it goes "
        "on without it, as compute.on_device_failure says)",
    )
    add_cache_argument(parser)
    parser.add_argument(
        "--resume",
        default="never",
        metavar="auto|never|CHECKPOINT",
        help="auto: continue from the newest good checkpoint of the "
        "results directory if there is one (default: never)",
    )


def run(args: argparse.Namespace) -> int:
    """Load, run, report."""
    from tetris_sim.scheduler.comm.communicator import everywhere, open_communicator
    from tetris_sim.simulation.launch import launch
    from tetris_sim.support.wording import PhaseClock

    clock = PhaseClock()
    resume = args.resume if args.resume in ("auto", "never") else Path(args.resume)
    with open_communicator() as ranks:
        config = everywhere(ranks, lambda: load(args))
        report = launch(
            config,
            resume=resume,
            overwrite=args.overwrite,
            bar=wants_bar(args, ranks),
            clock=clock,
            use_cache=not args.no_cache,
            ranks=ranks,
            strict=args.strict,
        )
    return tell(args, report, ranks)


def wants_bar(args: argparse.Namespace, ranks: Communicator) -> bool:
    """Whether to draw a progress bar: on a terminal, unless told not to."""
    # Launchers of MPI pass on whole lines, which breaks a bar into many.
    return sys.stderr.isatty() and not args.quiet and not args.no_progress and ranks.size == 1


def tell(args: argparse.Namespace, report: Report, ranks: Communicator) -> int:
    """Print the report, once for all ranks, unless nothing is to be said; its exit code."""
    if ranks.rank == 0 and args.json:
        print(json.dumps(report.as_json(), indent=1))
    elif ranks.rank == 0 and not args.quiet:
        print(report.as_text())
        print(f"  results in {printable(report.outputs)}")
    return report.exit_code
