"""`report RESULTS [RESULTS]`: one page about a run, or about two beside each other."""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.apps.boundaries import find_face
from tetris_sim.commands.report_data import Facts, gather, material_planes
from tetris_sim.commands.sources import refuse_existing, refuse_other_suffix
from tetris_sim.errors import ConfigError, ExitCode, UnsupportedError
from tetris_sim.outputs.figure_layout import length_unit
from tetris_sim.outputs.sampling import Plane
from tetris_sim.support.clock import format_duration, format_time
from tetris_sim.support.files import atomic_text
from tetris_sim.support.wording import gib, listed

# A sketch of the domain: its outline, what holds at its faces, materials and probes, as SVG.

_LONG, _FLAT = 300.0, 46.0  # pixels: the longer edge; a bar of one axis, and the flattest plane
_SIDE, _ABOVE = 118.0, 36.0  # pixels beside and above for the faces
_PICTURE = 240  # points along an axis of a picture of materials


def sketches(facts: Facts) -> list[str]:
    """A sketch per plane that is shown, as SVG; none if the configuration is not there."""
    grid = facts["config"].get("grid", {})
    shape = grid.get("shape")
    if not shape:
        return []
    spacing = grid.get("spacing") or [1.0] * len(shape)
    size = grid.get("size") or [n * h for n, h in zip(shape, spacing, strict=True)]
    axes = tuple(grid.get("axes") or "xyz"[: len(shape)])
    planes, names = material_planes(facts["problem"])

    pairs: list[tuple[str, ...]] = [axes]
    if len(axes) == 3:
        pairs = [*itertools.combinations(axes, 2)]  # as default_cuts: normal to z, y, x
    colours = _colours(names)
    drawn = []
    for k, pair in enumerate(pairs):
        picture = _picture(planes[k], names, colours) if len(colours) > 1 else ""
        drawn.append(_sketch(facts["config"], pair, dict(zip(axes, size, strict=True)), picture))
    return drawn


def legend(facts: Facts) -> dict[str, str]:
    """The colour of each material of the sketch; empty if there is only one."""
    colours = _colours(material_planes(facts["problem"])[1])
    return colours if len(colours) > 1 else {}


def _colours(names: Sequence[str]) -> dict[str, str]:
    """A colour of its own for each material, of a map that the colour-blind can read."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    distinct = list(dict.fromkeys(names))
    shades = colormaps["cividis"](np.linspace(0.12, 0.95, max(2, len(distinct))))
    found = {name: to_hex(shade) for name, shade in zip(distinct, shades, strict=False)}
    return {name: "#ffffff00" if name == "void" else it for name, it in found.items()}


def _picture(plane: Plane, names: Sequence[str], colours: Mapping[str, str]) -> str:
    """The materials of a plane as a picture with equal pixels, as a data URI."""
    from matplotlib.colors import to_rgba
    from matplotlib.image import imsave

    ids = np.atleast_2d(plane.values).astype(int)
    bounds, edges = plane.bounds, plane.edges
    places = []
    for (low, high), ends in zip(bounds, edges, strict=True):
        n = _PICTURE
        middle = low + (np.arange(n) + 0.5) * (high - low) / n
        places.append(np.clip(np.searchsorted(ends, middle) - 1, 0, len(ends) - 2))
    rows = places[0] if len(places) == 2 else np.zeros(1, int)
    shown = ids[np.ix_(rows, places[-1])]

    table = np.array([to_rgba(colours[name]) for name in names])
    file = io.BytesIO()
    imsave(file, (table[shown] * 255).astype(np.uint8), origin="lower", format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _sketch(
    config: Mapping[str, Any], axes: tuple[str, ...], size: Mapping[str, float], picture: str
) -> str:
    lengths = [size[axis] for axis in axes]
    scale = _LONG / max(lengths)
    width = max(_FLAT, lengths[0] * scale)
    height = _FLAT if len(axes) == 1 else max(_FLAT, lengths[1] * scale)
    unit = length_unit(lengths)
    faces = config.get("boundaries") or {}

    parts = [
        f'<rect x="{_SIDE}" y="{_ABOVE}" width="{width:.1f}" height="{height:.1f}" class="body"/>'
    ]
    if picture:
        parts.append(
            f'<image href="{picture}" x="{_SIDE}" y="{_ABOVE}" width="{width:.1f}" '
            f'height="{height:.1f}" preserveAspectRatio="none" style="image-rendering:pixelated"/>'
        )
        parts.append(parts[0].replace('class="body"', 'class="edge"'))
    right, bottom = _SIDE + width, _ABOVE + height
    middle_x, middle_y = (_SIDE + right) / 2, (_ABOVE + bottom) / 2
    spots = [
        (axes[0] + "-", _SIDE - 8, middle_y, "end"),
        (axes[0] + "+", right + 8, middle_y, "start"),
    ]
    if len(axes) == 2:
        spots += [
            (axes[1] + "+", middle_x, _ABOVE - 22, "middle"),
            (axes[1] + "-", middle_x, bottom + 18, "middle"),
        ]

    for face, x, y, anchor in spots:
        key = find_face(faces, face)
        said = face_words(faces[key]) if key else ["?"]
        if face == "r-" and not (config["grid"].get("origin") or {}).get("r"):
            said = ["axis"]
        shown = [f"{face} {said[0]}", *said[1:2]]
        lines = "".join(
            f'<tspan x="{x:.1f}" dy="{1.2 * (k > 0):.1f}em">{escape(line)}</tspan>'
            for k, line in enumerate(shown)
        )
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{lines}</text>')

    for probe in (config.get("output") or {}).get("probes") or ():
        grid = config["grid"]
        at = dict(zip(grid.get("axes") or "xyz", probe["at"], strict=False))
        shares = [
            (at[axis] - (grid.get("origin") or {}).get(axis, 0.0)) / size[axis] for axis in axes
        ]
        x = _SIDE + shares[0] * width
        y = middle_y if len(axes) == 1 else bottom - shares[1] * height
        name = escape(str(probe.get("name", "")))
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="probe"><title>{name}</title></circle>'
        )

    measures = " x ".join(f"{axis}: {unit.text(size[axis])}" for axis in axes)
    total_w, total_h = right + _SIDE, bottom + 52
    parts.append(
        f'<text x="{middle_x:.1f}" y="{total_h - 4:.1f}" text-anchor="middle" class="dim">'
        f"{escape(measures)}</text>"
    )
    return (
        f'<svg viewBox="0 0 {total_w:.0f} {total_h:.0f}" role="img" '
        f'aria-label="sketch of the domain">{"".join(parts)}</svg>'
    )


def face_words(section: Any) -> list[str]:
    """What holds at a face, the kind first: ["robin", "h 25, ambient 20"]."""
    if isinstance(section, list):
        return [f"{len(section)} parts", "; ".join(it.get("type", "") for it in section)]
    kind = str(section.get("type", ""))
    if kind == "neumann" and section.get("flux") in (0, 0.0, None):
        return ["insulated"]
    rest = {key: it for key, it in section.items() if key not in ("type", "where") and it}
    return [kind, ", ".join(f"{key} {_short(it)}" for key, it in rest.items())]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "over time" if isinstance(value, dict) else str(value)
    return text if len(text) <= 22 else text[:20] + "…"


HELP = "make a page about a run, or about two beside each other"
_PHYSICS = ("model", "initial", "time")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `report`."""
    parser.add_argument(
        "results",
        type=Path,
        nargs="+",
        metavar="RESULTS",
        help="the results directory of a run; two are compared",
    )

    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("report.html"),
        metavar="PAGE.html",
        help="the page (default: report.html)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a page that is there")


def run(args: argparse.Namespace) -> int:
    """Read the files, write the page."""
    if len(args.results) > 2:
        msg = f"{len(args.results)} results were given; report compares two at most"
        raise ConfigError(msg)
    refuse_other_suffix(args.output, (".html",))
    refuse_existing(args.output, overwrite=args.overwrite)
    atomic_text(args.output, page([gather(path) for path in args.results]))
    n_bytes = args.output.stat().st_size
    if args.json:
        print(json.dumps({"file": str(args.output), "bytes": n_bytes}))
    else:
        print(f"{args.output}: {listed([str(it) for it in args.results], 'and')}, {gib(n_bytes)}")
    return ExitCode.OK


def page(runs: Sequence[Facts]) -> str:
    """The page, which needs nothing besides itself.

    Args:
        runs: one, or two that are compared.

    Raises:
        UnsupportedError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        msg = (
            "the plots of a page are drawn by plotly, which is not installed: pip install "
            "'tetris-sim[report]'"
        )
        raise UnsupportedError(msg) from error

    page = files("tetris_sim.commands").joinpath("templates/report.html")
    template = page.read_text(encoding="utf-8")
    shown = {
        "runs": [
            {"name": it["name"], "fields": it["fields"], "tables": it["tables"]} for it in runs
        ]
    }
    names = [_title(it) for it in runs]
    parts = {
        "TITLE": escape(" and ".join(dict.fromkeys(names))),
        "BODY": (_compared(runs) if len(runs) == 2 else "") + "".join(map(_sections, runs)),
        "DATA": json.dumps(shown, allow_nan=True).replace("<", "\\u003c").replace("NaN", "null"),
        "PLOTLY": get_plotlyjs(),
    }
    # At once: a text of somebody else may hold such a name.
    return re.sub("@@([A-Z]+)@@", lambda found: parts[found[1]], template)


def _title(facts: Facts) -> str:
    return str(facts["config"].get("title") or Path(facts["name"]).resolve().name)


def _sections(facts: Facts) -> str:
    """Everything about one run."""
    config, report = facts["config"], facts["report"]
    drawn = "".join(f"<figure>{svg}</figure>" for svg in sketches(facts))
    colours = "".join(
        f'<span class="key"><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in legend(facts).items()
    )
    request = facts["request"]
    if request is not None:  # without what nobody wrote
        config = request.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude_none=True
        )
    physics = {name: config[name] for name in _PHYSICS if config.get(name)}

    return "".join(
        [
            f'<article data-run="{escape(facts["name"])}"><header><h1>{escape(_title(facts))}</h1>'
            f'<p class="ended">{escape(report.get("ended") or "still running, or no report")}</p>'
            f"{_tiles(facts)}</header>",
            _section(
                "What was computed",
                f'<div class="sketches">{drawn}</div><p>{colours}</p>'
                + "".join(_details(name, it) for name, it in physics.items())
                + _details("boundaries", config.get("boundaries") or {}),
            ),
            _section("Pictures", '<div class="pictures"></div>') if facts["fields"] else "",
            _section("Probes and statistics", '<div class="plots"></div>')
            if facts["tables"]
            else "",
            _performance(report),
            _section("Plan", _list(report.get("plan", ())) + _list(report.get("notes", ())))
            if report
            else "",
            _section("Environment", _environment(report)) if report else "",
            _repeat(facts),
            "</article>",
        ]
    )


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _tiles(facts: Facts) -> str:
    """The numbers that are asked for first."""
    report, grid = facts["report"], facts["config"].get("grid", {})
    tiles = {"points": " x ".join(map(str, grid.get("shape", ())))}
    if report:
        tiles |= {
            "steps": f"{report['step'] - report['first_step']:,}",
            "simulated": format_time(report["time_s"]),
            "took": format_duration(report["wall_s"]),
            "rate": f"{report['points_per_second'] / 1e9:.3g} GStencil/s",
            "precision": report["precision"],
        }

    return (
        '<dl class="tiles">'
        + "".join(f"<div><dt>{key}</dt><dd>{escape(it)}</dd></div>" for key, it in tiles.items())
        + "</dl>"
    )


def _details(name: str, value: Any) -> str:
    """A section of the configuration as a table."""
    rows = "".join(
        f"<tr><th>{escape(key)}</th><td>{escape(words(it))}</td></tr>"
        for key, it in value.items()
        if it not in ({}, [], None, "")
    )
    return f'<h3>{escape(name)}</h3><div class="wide"><table>{rows}</table></div>'


def words(value: Any) -> str:
    """A value of a configuration on one line.

    >>> words({"type": "robin", "h": 25.0, "on": True}), words([0.015, 1])
    ('type: robin, h: 25, on: true', '0.015, 1')
    """
    if isinstance(value, dict):
        told = {key: it for key, it in value.items() if it not in ({}, [], None, "")}
        return ", ".join(
            f"{key}: " + (f"({words(it)})" if isinstance(it, dict) else words(it))
            for key, it in told.items()
        )
    if isinstance(value, list):
        return ", ".join(
            f"({words(it)})" if isinstance(it, list | dict) else words(it) for it in value
        )
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _performance(report: Facts) -> str:
    """Where the time went, as bars."""
    phases = dict(report.get("phases_s", {}))
    wall = report.get("wall_s", 0.0)
    if not wall:
        return ""
    phases["rest"] = max(0.0, wall - sum(phases.values()))
    bars = "".join(
        f'<tr><th>{escape(name)}</th><td class="bar">'
        f'<i style="width:{seconds / wall:.1%}"></i></td>'
        f"<td>{seconds:.3g} s</td><td>{seconds / wall:.1%}</td></tr>"
        for name, seconds in phases.items()
        if seconds > 0
    )

    methods = ", ".join(f"{worker}: {it}" for worker, it in report["methods"].items())
    said = (
        f"{methods}. {report['points_per_second'] / 1e9:.3g} GStencil/s while computing, "
        f"{report['points_per_second_overall'] / 1e9:.3g} over all; "
        f"{report['effective_bytes_per_second'] / 1e9:.3g} GB/s effective."
    )
    return _section("Performance", f'<p>{escape(said)}</p><table class="phases">{bars}</table>')


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def _environment(report: Facts) -> str:
    rows = {**report["machine"], **report["versions"]}
    cells = "".join(
        f"<tr><th>{escape(key)}</th><td>{escape(str(it))}</td></tr>" for key, it in rows.items()
    )
    return f'<div class="wide"><table>{cells}</table></div>'


def _repeat(facts: Facts) -> str:
    version = facts["report"].get("versions", {}).get("tetris_sim", "")
    commands = f"pip install 'tetris-sim=={version}'\ntetris-sim run again.yaml"
    return _section(
        "How to repeat it",
        "<p>Save this configuration as <code>again.yaml</code>; it says all, in SI units.</p>"
        f"<pre>{escape(commands)}</pre><details><summary>again.yaml</summary>"
        f'<pre class="config">{escape(facts["text"])}</pre></details>',
    )


def _compared(runs: Sequence[Facts]) -> str:
    """What differs between two runs, and their curves in the same plots."""
    first, second = runs
    a, b = first["request"], second["request"]
    differences = b.difference(a) if a is not None and b is not None else []
    rows = []
    for key, unit in (("wall_s", "s"), ("points_per_second", "/s"), ("step", ""), ("time_s", "s")):
        numbers = [it["report"].get(key) for it in runs]
        if None in numbers:
            continue
        ratio = f"{numbers[1] / numbers[0]:.3g}" if numbers[0] else ""
        rows.append(
            f"<tr><th>{key}</th>"
            + "".join(f"<td>{number:.6g} {unit}</td>" for number in numbers)
            + f"<td>{ratio}</td></tr>"
        )

    names = "".join(
        f"<th>{letter}: {escape(it['name'])}</th>" for letter, it in zip("AB", runs, strict=True)
    )
    head = f"<tr><th></th>{names}<th>ratio</th></tr>"
    table = f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'
    said = _list(differences) or "<p>The physics is the same.</p>"
    heading = f"<h1>{escape(_title(first))} and {escape(_title(second))}</h1>"
    return (
        f'<article class="compared"><header>{heading}</header>'
        + _section("What differs", said + table)
        + _section("Both", '<div class="plots"></div>')
        + "</article>"
    )
