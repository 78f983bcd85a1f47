"""The verbs, one file each: HELP, add_arguments(parser), run(args) -> exit code."""

from __future__ import annotations

import argparse

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


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that may stand before or after the verb; unset, they do not hide the other."""
    group = parser.add_argument_group("everywhere")
    group.add_argument("-v", "--verbose", action="count", help="say more (-vv: debugging)")
    group.add_argument("-q", "--quiet", action="store_true", help="say only what went wrong")
    group.add_argument("--json", action="store_true", help="results as JSON on stdout")
    group.add_argument("--no-progress", action="store_true", help="no progress bar")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
