"""`materials`: the built-in materials, their properties and where the numbers come from."""

from __future__ import annotations

import argparse
import dataclasses
import json

from tetris_sim.apps.heat.materials import MATERIALS, Material
from tetris_sim.errors import ConfigError, ExitCode
from tetris_sim.support.wording import listed, suggestion

HELP = "list the built-in materials with their properties and sources"
_COLUMNS = ("k [W/(m K)]", "density [kg/m^3]", "c [J/(kg K)]", "diffusivity [mm^2/s]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The materials that are asked for."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="only these, with their sources (default: all)"
    )
    parser.add_argument("--markdown", action="store_true", help="as a table in Markdown")


def run(args: argparse.Namespace) -> int:
    """Print the table, or the rows that are asked for."""
    for name in args.names:
        if name not in MATERIALS:
            msg = (
                f"{name!r} is not in the table{suggestion(name, MATERIALS)}; known are "
                f"{listed(list(MATERIALS), 'and')}"
            )
            raise ConfigError(msg)
    chosen = {name: MATERIALS[name] for name in args.names or MATERIALS}

    if args.json:
        rows = [
            {"name": name, **dataclasses.asdict(it), "diffusivity": it.diffusivity}
            for name, it in chosen.items()
        ]
        print(json.dumps(rows, indent=1))
        return ExitCode.OK
    if args.markdown:
        print(as_markdown(chosen))
        return ExitCode.OK

    # Sources are long: only those that were asked for have a line of their own.
    width = max(map(len, chosen))
    print("  ".join([f"{'':<{width}}", *_COLUMNS]))
    for name, it in chosen.items():
        cells = [f"{text:>{len(head)}}" for text, head in zip(_texts(it), _COLUMNS, strict=True)]
        print("  ".join([f"{name:<{width}}", *cells]))
        if args.names:
            print(f"  {it.source}")
    if not args.names:
        print("at 300 K; `tetris-sim materials NAME` says where the numbers come from")
    return ExitCode.OK


def as_markdown(chosen: dict[str, Material]) -> str:
    """The table of the documentation.

    Args:
        chosen: the materials by name.
    """
    heads = ("`material:`", *_COLUMNS, "source")
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * len(_COLUMNS) + "---|"]
    for name, it in chosen.items():
        lines.append(f"| `{name}` | {' | '.join(_texts(it))} | {it.source} |")
    return "\n".join(lines)


def _texts(it: Material) -> tuple[str, ...]:
    numbers = (it.conductivity, it.density, it.specific_heat, it.diffusivity * 1e6)
    return tuple(f"{number:.4g}" if number < 1e4 else f"{number:.0f}" for number in numbers)
