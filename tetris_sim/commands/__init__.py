"""The verbs: for each a function that adds its arguments to a parser, and one that runs it and
returns the exit code. A module holds one verb, or two that are akin.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tetris_sim.config import Config
    from tetris_sim.config.overrides import Override

# Each verb is a module of this package; only the one that is asked for is imported, so
# that `--help` and hundreds of ranks start fast.
VERBS = {
    "init": "write a commented configuration to start from",
    "materials": "list the built-in materials with their properties and sources",
    "validate": "check a configuration: all mistakes at once, with line numbers",
    "preview": "draw materials, faces, sources and probes before a run",
    "plan": "say what a run would do and cost, without running",
    "run": "run a simulation",
    "characterize": "say in few numbers what a body is like: resistances, impedance, conductivity",
    "sweep": "run a configuration with many values of some keys",
    "fit": "find parameters from what probes have measured",
    "restart": "continue a run from a checkpoint",
    "live": "see and steer a run on a local page while it computes",
    "watch": "show how far a run is, from its files alone",
    "info": "say what is in an output, a checkpoint or a results directory",
    "report": "make a page about a run, or about two beside each other",
    "plot": "draw a field, or a table over time",
    "export": "convert outputs for other programs",
    "verify": "check this machine's answers against analytic solutions",
    "tune": "find the fastest method and its parameters for a problem, and keep them",
    "bench": "measure how fast this machine is",
    "doctor": "say what was found on this machine, for bug reports",
    "completion": "print a script that completes commands in a shell",
}

# A verb whose functions are in the module of another one, where their names have its own.
AKIN = {
    "restart": "run",
    "preview": "validate",
    "plot": "export",
    "materials": "init",
    "fit": "sweep",
    "tune": "plan",
}


def home(verb: str) -> tuple[ModuleType, str, str]:
    """The module of a verb, imported now, and in it the names of the functions that add its
    arguments and that run it.
    """
    module = importlib.import_module(f"tetris_sim.commands.{AKIN.get(verb, verb)}")
    if verb in AKIN:
        return module, f"add_{verb}_arguments", f"run_{verb}"
    return module, "add_arguments", "run"


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that may stand before or after the verb; unset, they do not hide the other."""
    group = parser.add_argument_group("everywhere")
    group.add_argument("-v", "--verbose", action="count", help="say more (-vv: debugging)")
    group.add_argument("-q", "--quiet", action="store_true", help="say only what went wrong")
    group.add_argument("--json", action="store_true", help="results as JSON on stdout")
    group.add_argument("--no-progress", action="store_true", help="no progress bar")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")


# The arguments that every verb with a configuration shares, and how they become a `Config`, which
# is imported then only.


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
    from tetris_sim.config.overrides import Override
    from tetris_sim.config.sections.schema import split_devices

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
    from tetris_sim.config import load_config

    return load_config(args.config, overrides=overrides(args))
