"""`restart CHECKPOINT [CONFIG]`: continue a run, with its own configuration or a changed one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tetris_sim.commands import add_cache_argument
from tetris_sim.commands.run import tell, wants_bar

if TYPE_CHECKING:
    from tetris_sim.config import Config

HELP = "continue a run from a checkpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(args: argparse.Namespace) -> int:
    """Find the checkpoint, load the configuration, continue."""
    from tetris_sim.scheduler.comm.communicator import everywhere, on_root, open_communicator
    from tetris_sim.simulation.launch import launch
    from tetris_sim.simulation.resuming import newest_checkpoint
    from tetris_sim.support.wording import PhaseClock

    clock, given = PhaseClock(), args.checkpoint
    with open_communicator() as ranks:
        path = on_root(ranks, lambda: newest_checkpoint(given) if given.is_dir() else given)
        config = everywhere(ranks, lambda: _load(args, path))
        report = launch(
            config,
            resume=path,
            bar=wants_bar(args, ranks),
            clock=clock,
            use_cache=not args.no_cache,
            ranks=ranks,
        )
    return tell(args, report, ranks)


def _load(args: argparse.Namespace, path: Path) -> Config:
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
