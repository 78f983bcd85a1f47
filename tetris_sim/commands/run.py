"""`run CONFIG`: run a simulation."""

from __future__ import annotations

import argparse
from pathlib import Path

from tetris_sim.commands.arguments import add_cache_argument, add_config_arguments, load
from tetris_sim.report import Report

HELP = "run a simulation"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `run`."""
    add_config_arguments(parser)
    add_result_arguments(parser)
    parser.add_argument(
        "--resume",
        default="never",
        metavar="auto|never|CHECKPOINT",
        help="auto: continue from the newest good checkpoint of the "
        "results directory if there is one (default: never)",
    )


def add_result_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` and `restart` have in common."""
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the results of an earlier run"
    )
    add_cache_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Load, run, report."""
    from tetris_sim.clock import PhaseClock
    from tetris_sim.launch import launch, wants_bar
    from tetris_sim.scheduler.comm.agreement import everywhere
    from tetris_sim.scheduler.comm.communicator import open_communicator

    clock = PhaseClock()
    resume = args.resume if args.resume in ("auto", "never") else Path(args.resume)
    with open_communicator() as ranks:
        config = everywhere(ranks, lambda: load(args))
        # Launchers of MPI pass on whole lines, which breaks a bar into many.
        bar = wants_bar(quiet=args.quiet, no_progress=args.no_progress) and ranks.size == 1
        report = launch(
            config,
            resume=resume,
            overwrite=args.overwrite,
            bar=bar,
            clock=clock,
            use_cache=not args.no_cache,
            ranks=ranks,
        )
    return (
        tell(report, as_json=args.json, quiet=args.quiet) if ranks.rank == 0 else report.exit_code
    )


def tell(report: Report, *, as_json: bool, quiet: bool) -> int:
    """Print the report unless nothing is to be said; its exit code."""
    if as_json:
        import json

        print(json.dumps(report.as_json(), indent=1))
    elif not quiet:
        print(report.as_text())
        print(f"  results in {report.outputs}")
    return report.exit_code
