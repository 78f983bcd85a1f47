"""`run CONFIG` runs a simulation; `restart CHECKPOINT [CONFIG]` continues one, with its own
configuration or a changed one.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tetris_sim.commands import add_cache_argument, add_config_arguments, load
from tetris_sim.support.wording import printable

if TYPE_CHECKING:
    from tetris_sim.config import Config
    from tetris_sim.scheduler.comm.communicator import Communicator
    from tetris_sim.simulation.report import Report


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


def add_restart_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `restart`."""
    parser.add_argument(
        "checkpoint", type=Path, help="a checkpoint file, or the results directory of a run"
    )
    parser.add_argument(
        "config",
        type=Path,
        nargs="?",
        default=None,
        help="a changed configuration (default: that of the checkpoint)",
    )

    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a key, for example time.t_end=2; physics cannot be changed",
    )
    add_cache_argument(parser)


def run_restart(args: argparse.Namespace) -> int:
    """Find the checkpoint, load the configuration, continue."""
    from tetris_sim.scheduler.comm.communicator import everywhere, on_root, open_communicator
    from tetris_sim.simulation.launch import launch
    from tetris_sim.simulation.resuming import newest_checkpoint
    from tetris_sim.support.wording import PhaseClock

    clock, given = PhaseClock(), args.checkpoint
    with open_communicator() as ranks:
        path = on_root(ranks, lambda: newest_checkpoint(given) if given.is_dir() else given)
        config = everywhere(ranks, lambda: _load_again(args, path))
        report = launch(
            config,
            resume=path,
            bar=wants_bar(args, ranks),
            clock=clock,
            use_cache=not args.no_cache,
            ranks=ranks,
        )
    return tell(args, report, ranks)


def _load_again(args: argparse.Namespace, path: Path) -> Config:
    """The configuration with which a checkpoint is to be continued."""
    from tetris_sim.config import load_config, read_config
    from tetris_sim.outputs.checkpoint import open_checkpoint
    from tetris_sim.outputs.results import CHECKPOINTS

    with open_checkpoint(path, verify=False) as checkpoint:  # launch looks at every byte
        text = checkpoint.state.config

    if args.config is not None:
        config = load_config(args.config, overrides=args.set)
    else:
        config = read_config(text, name=str(path), base=Path.cwd(), overrides=args.set)

    folder = path.resolve().parent
    if args.config is not None or folder.name != CHECKPOINTS or _sets_directory(args.set):
        return config
    # The run goes on where it is found now, not where it was begun.
    output = config.output.model_copy(update={"directory": str(folder.parent)})
    return config.model_copy(update={"output": output})


def _sets_directory(overrides: list[str]) -> bool:
    return any(text.split("=")[0].strip() == "output.directory" for text in overrides)
