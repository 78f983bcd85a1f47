"""`characterize CONFIG WHAT`: thermal resistances, impedances, conductivities or transmittance."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from tetris_sim.commands import add_config_arguments, load
from tetris_sim.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from tetris_sim.config import Config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The number that is asked for, and the configuration of which."""
    add_config_arguments(parser)
    parser.add_argument(
        "what",
        choices=("resistance", "impedance", "conductivity", "transmittance"),
        help="resistance: between all sources; impedance: of one source over time, with networks; "
        "conductivity: effective, along each axis; transmittance: of a detail of a building",
    )
    # Flags of one answer are groups of their own: `--help` shows which belongs to what.
    group = parser.add_argument_group("impedance")
    group.add_argument("--source", metavar="NAME", help="region that heats (default: the first)")

    group.add_argument("--begin", type=float, metavar="S", help="first time [s]")
    group.add_argument("--end", type=float, metavar="S", help="last time [s]")
    group = parser.add_argument_group("transmittance")
    group.add_argument("--inside", type=float, metavar="DEGC", help="temperature of the warm side")
    group.add_argument("--outside", type=float, metavar="DEGC", help="that of the cold side")
    group.add_argument(
        "--flanking",
        action="append",
        default=[],
        metavar="U:LENGTH",
        help="U-value [W/(m^2 K)] and length [m] (3D: area [m^2]) of an element beside the detail, "
        "which is taken off; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Solve, and print the numbers.

    Raises:
        ConfigError: a flag is missing, or the configuration is not of this kind.
    """
    config = load(args)
    facts, lines = _ANSWERS[args.what](config, args)
    print(json.dumps(facts, indent=1) if args.json else "\n".join(lines))
    return ExitCode.OK


def _resistance(config: Config, args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from tetris_sim.api.characteristics import thermal_resistances

    del args
    found = thermal_resistances(config)
    width = max(10, *map(len, found.sources)) + 2
    lines = []
    for title, matrix in (("mean", found.mean), ("hottest cell", found.largest)):
        lines.append(f"rise of the {title} of a row by 1 W of a column [K/W]")
        lines.append(" " * width + "".join(f"{name:>{width}}" for name in found.sources))
        for name, row in zip(found.sources, matrix, strict=True):
            lines.append(f"{name:<{width}}" + "".join(f"{it:>{width}.5g}" for it in row))

    facts = {"sources": found.sources, "mean": found.mean.tolist()}
    return {**facts, "largest": found.largest.tolist()}, lines


def _impedance(config: Config, args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from tetris_sim.api.characteristics import thermal_impedance

    if args.begin is None or args.end is None:
        msg = "impedance: give --begin and --end, for example --begin 1e-4 --end 1000"
        raise ConfigError(msg)
    found = thermal_impedance(config, args.source, begin=args.begin, end=args.end)
    rows = zip(found.times, found.impedance, strict=True)
    lines = [
        f"{found.source}: rise by 1 W",
        f"{'t [s]':>12} {'Zth [K/W]':>12}",
        *(f"{t:>12.4g} {z:>12.5g}" for t, z in rows),
        f"networks, off by {found.misfit:.2g} K/W at most",
        f"{'Foster: R [K/W]':>18} {'tau [s]':>12}",
        *(f"{r:>18.5g} {tau:>12.4g}" for r, tau in found.foster),
        f"{'Cauer: R [K/W]':>18} {'C [J/K]':>12}",
        *(f"{r:>18.5g} {c:>12.4g}" for r, c in found.cauer),
    ]

    lists = {"times": found.times.tolist(), "impedance": found.impedance.tolist()}
    return {**dataclasses.asdict(found), **lists}, lines


def _conductivity(config: Config, args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from tetris_sim.api.characteristics import effective_conductivity

    del args
    found = effective_conductivity(config)
    low, high = found.isotropic
    lines = [
        *(f"along {axis}: {k:.6g} W/(m K)" for axis, k in found.values.items()),
        f"no axis is outside {found.lowest:.6g} to {found.highest:.6g} (Wiener), no isotropic "
        f"mixture outside {low:.6g} to {high:.6g} (Hashin and Shtrikman)",
    ]

    return dataclasses.asdict(found), lines


def _transmittance(config: Config, args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from tetris_sim.api.characteristics import thermal_transmittance

    if args.inside is None or args.outside is None:
        msg = "transmittance: give --inside and --outside, the temperatures of both sides [degC]"
        raise ConfigError(msg)
    flanking = [_pair(it) for it in args.flanking]
    coupling, rest = thermal_transmittance(config, args.inside, args.outside, flanking)
    three = len(config.grid.shape) == 3
    name, other, unit = ("L3D", "chi", "W/K") if three else ("L2D", "psi", "W/(m K)")
    lines = [f"{name}: {coupling:.6g} {unit}"]

    if flanking:
        lines.append(f"{other}: {rest:.6g} {unit}, without {len(flanking)} elements beside it")
    return {name: coupling, other: rest, "unit": unit}, lines


def _pair(text: str) -> tuple[float, float]:
    try:
        u, length = map(float, text.split(":"))
    except ValueError:
        msg = f"--flanking {text}: a U-value and a length are wanted, for example 0.35:1.2"
        raise ConfigError(msg) from None
    return u, length


_ANSWERS = {
    "resistance": _resistance,
    "impedance": _impedance,
    "conductivity": _conductivity,
    "transmittance": _transmittance,
}
