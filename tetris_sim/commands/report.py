"""`report RESULTS [RESULTS]`: one page about a run, or about two beside each other."""

from __future__ import annotations

import argparse
import base64
import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from tetris_sim.commands.report_data import Facts, gather
from tetris_sim.commands.sources import refuse_existing, refuse_other_suffix
from tetris_sim.errors import ConfigError, ExitCode, UnsupportedError
from tetris_sim.outputs.preview import draw_preview
from tetris_sim.outputs.scene import Scene
from tetris_sim.support.clock import format_duration, format_time
from tetris_sim.support.files import atomic_text
from tetris_sim.support.wording import gib, listed

HELP = "make a page about a run, or about two beside each other"
_PHYSICS = ("model", "initial", "time")
_DPI = 110  # of the preview


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
                _preview(facts)
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


def _preview(facts: Facts) -> str:
    """The picture of `preview`, and in words what it shows; nothing without a configuration."""
    config = facts["request"]
    if config is None:
        return ""
    # Drawn like the preview before the run, so that both show the same.
    picture = base64.b64encode(draw_preview(config, facts["problem"]).png(_DPI)).decode()
    words = escape(Scene(config, facts["problem"]).words())
    return (
        f'<figure class="preview"><img alt="{words}" src="data:image/png;base64,{picture}">'
        "</figure>"
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
