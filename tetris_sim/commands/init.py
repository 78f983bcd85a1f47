"""Starting points: `init` writes a commented configuration, and `materials` lists the built-in
materials, their properties and where the numbers come from.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.resources
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tetris_sim.errors import ConfigError, ConfigMistakesError, ExitCode
from tetris_sim.support.files import atomic_text
from tetris_sim.support.wording import listed, suggestion

if TYPE_CHECKING:
    from tetris_sim.apps.heat.materials import Material

# Template -> the short name it also answers to.
TEMPLATES = {
    "plate_2d": "heat2d",
    "rod_1d": "heat1d",
    "block_3d": "heat3d",
    "body_3d": "body",
    "cylinder": "axial",
    "periodic_2d": "periodic",
    "stencil_2d": "stencil",
    "gray_scott": "pde",
    "fitzhugh_nagumo": "spiral",
    "allen_cahn": "phases",
    "cahn_hilliard": "mixture",
    "kuramoto_sivashinsky": "flame",
    "swift_hohenberg": "rolls",
    "wave": "waves",
    "plume": "advection",
    "fisher_kpp": "population",
    "schroedinger": "quantum",
    "shallow_water": "ocean",
    "brusselator_3d": "pde3d",
    "finned_heat_sink": "sink",
    "battery_cell": "battery",
    "pcb_vias": "vias",
    "pin_fin": "fin",
    "wall_u_value": "uvalue",
    "window_frame": "window",
    "borehole": "ground",
    "ice_store": "freezing",
    "fire_column": "fire",
    "weld_seam": "weld",
    "schnakenberg": "spots",
    "korteweg_de_vries": "solitons",
    "shot": "seismic",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which template, and where to."""
    names = listed([f"{name} ({alias})" for name, alias in TEMPLATES.items()])
    parser.add_argument("template", nargs="?", default="plate_2d", metavar="TEMPLATE", help=names)
    parser.add_argument(
        "-o",
        "--output",
        default="config.yaml",
        metavar="FILE",
        help="where to write it (config.yaml); - for stdout",
    )
    parser.add_argument("--list", action="store_true", help="say what the templates are")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")


def run(args: argparse.Namespace) -> int:
    """Write the template, or list all templates."""
    if args.list:
        print_list(as_json=args.json)
        return ExitCode.OK

    name = template_name(args.template)
    text = template_text(name)
    if args.output == "-":
        sys.stdout.write(text)
        return ExitCode.OK

    write(Path(args.output), text, overwrite=args.overwrite)
    if args.json:
        print(json.dumps({"template": name, "file": args.output}))
    else:
        print(
            f"{args.output} is written; check it with `tetris-sim validate {args.output}`, run it "
            "with `run`"
        )
    return ExitCode.OK


def print_list(*, as_json: bool) -> None:
    """Name the templates, with a line about each."""
    if as_json:
        rows = [
            {"template": name, "alias": alias, "about": about(name)}
            for name, alias in TEMPLATES.items()
        ]
        print(json.dumps(rows, indent=2))
        return
    for name, alias in TEMPLATES.items():
        print(f"{name:<22} {alias:<10} {about(name)}")


def template_name(word: str) -> str:
    """The template that a name or alias means.

    Raises:
        ConfigError: it means none.
    """
    names = {alias: name for name, alias in TEMPLATES.items()} | {name: name for name in TEMPLATES}
    if word not in names:
        msg = (
            f"there is no template {word!r}{suggestion(word, names)}; there are "
            f"{listed(list(TEMPLATES), 'and')}"
        )
        raise ConfigError(msg)
    return names[word]


def template_text(name: str) -> str:
    """The YAML text of a template."""
    return (
        importlib.resources.files("tetris_sim.commands")
        .joinpath("templates", f"{name}.yaml")
        .read_text(encoding="utf-8")
    )


def about(name: str) -> str:
    """Return the description of a template: its first line."""
    return template_text(name).splitlines()[0].removeprefix("#").strip()


def write(path: Path, text: str, *, overwrite: bool) -> None:
    """Write the file, unless one is there.

    Raises:
        ConfigError: there is one, or the place cannot be written to.
        UnsupportedError: the disk is full or fails; what was there before stays.
    """
    try:
        if not overwrite or not path.exists():
            path.open("x").close()
            made = path
        else:
            made = None

        try:
            # Pipes and devices are written to; a file takes its place when it is complete.
            if path.is_file():
                atomic_text(path, text)
            else:
                path.write_text(text, encoding="utf-8")
        except BaseException:
            if made is not None:
                made.unlink(missing_ok=True)
            raise
    except FileExistsError:
        msg = f"{path} is there already; name another file with -o, or replace it with --overwrite"
        raise ConfigError(msg) from None
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror}); name another file with -o"
        raise ConfigError(msg) from error


_COLUMNS = ("k [W/(m K)]", "density [kg/m^3]", "c [J/(kg K)]", "diffusivity [mm^2/s]")


def add_materials_arguments(parser: argparse.ArgumentParser) -> None:
    """The materials that are asked for."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="only these, with their sources (default: all)"
    )
    parser.add_argument(
        "--library", type=Path, metavar="FILE", help="those of a file, as model.library names it"
    )
    parser.add_argument("--markdown", action="store_true", help="as a table in Markdown")


def run_materials(args: argparse.Namespace) -> int:
    """Print the table, or the rows that are asked for."""
    from tetris_sim.apps.heat.materials import MATERIALS

    known = MATERIALS if args.library is None else _of_library(args.library)
    for name in args.names:
        if name not in known:
            msg = (
                f"{name!r} is not in the table{suggestion(name, known)}; known are "
                f"{listed(list(known), 'and')}"
            )
            raise ConfigError(msg)
    chosen = {name: known[name] for name in args.names or known}

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
        if args.names or args.library:
            print(f"  {it.source}")
    if not args.names and not args.library:
        print("at 300 K; `tetris-sim materials NAME` says where the numbers come from")
    return ExitCode.OK


def _of_library(path: Path) -> dict[str, Material]:
    """The materials of a file; of what depends on temperature or direction, the largest
    conductivity and the smallest capacity.

    Raises:
        ConfigError: something is wrong in it.
    """
    from pydantic import ValidationError

    from tetris_sim.apps.heat.materials import Material
    from tetris_sim.apps.heat.sections import MaterialSection
    from tetris_sim.config.overrides import read_library

    found, mistakes = read_library(path)
    if mistakes:
        raise ConfigMistakesError(mistakes)
    materials = {}
    for name, (entry, source) in found.items():
        try:
            section = MaterialSection.model_validate(entry)
            it = section.substance(name)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join([name, *map(str, first["loc"])])
            msg = f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}"
            raise ConfigError(msg) from error
        density = section.density or 1.0
        materials[name] = Material(max(it.conductivity), density, it.capacity / density, source)
    return materials


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
