"""The arguments that every verb with a configuration shares, and how they become a `Config`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tetris_sim.config import Config, load_config
from tetris_sim.config.overrides import Override
from tetris_sim.config.sections.schema import split_devices


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """The configuration file and what may be changed of it."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help="the configuration file (YAML)")
    add_override_arguments(parser)


def add_override_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that change a configuration without changing its file."""
    group = parser.add_argument_group("changes to the configuration")

    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="give a key another value, for example --set time.t_end='2 s'; may be repeated",
    )
    group.add_argument(
        "--device",
        metavar="DEVICES",
        help="compute.devices: auto, cpu, gpu, cpu+gpu, or a list such as gpu:0,cpu",
    )
    group.add_argument(
        "--threads", metavar="N", help="compute.threads: number of CPU threads, or auto"
    )


def add_cache_argument(parser: argparse.ArgumentParser) -> None:
    """Whether what was tuned in earlier runs counts."""
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="neither use nor keep which method and parameters were found to be fastest",
    )


def overrides(args: argparse.Namespace) -> list[str | Override]:
    """Return the changes that the flags ask for, in the order in which they apply."""
    changes: list[str | Override] = list(args.set)
    if args.device is not None:
        changes.append(
            Override(f"--device {args.device}", ("compute", "devices"), split_devices(args.device))
        )
    if args.threads is not None:
        changes.append(Override(f"--threads {args.threads}", ("compute", "threads"), args.threads))
    return changes


def load(args: argparse.Namespace) -> Config:
    """The configuration that the arguments ask for.

    Raises:
        ConfigError: with everything that is wrong.
    """
    return load_config(args.config, overrides=overrides(args))
