"""`report RESULTS [RESULTS]`: one page about a run, about two beside each other, or about a sweep.

What it shows is gathered as plain data from the files of the run alone.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import functools
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.commands import sources
from tetris_sim.commands.sources import refuse_existing, refuse_other_suffix
from tetris_sim.config import Config, read_config
from tetris_sim.config.yaml import MOST_CHARACTERS
from tetris_sim.errors import CheckpointError, ConfigError, ExitCode, TetrisError, UnsupportedError
from tetris_sim.model.problem import Problem
from tetris_sim.outputs import results, tables
from tetris_sim.outputs.drawing import LINE_COLOUR
from tetris_sim.outputs.figure_layout import FIELD_COLOURS, length_unit, moment
from tetris_sim.outputs.preview import draw_preview
from tetris_sim.outputs.sampling import default_cuts, sample
from tetris_sim.outputs.scene import Scene
from tetris_sim.outputs.series import Series
from tetris_sim.outputs.sweep_table import (
    ENDED,
    ERROR,
    SweepTable,
    draw_sweep,
    is_sweep,
    read_sweep,
)
from tetris_sim.outputs.tables import LEADING, read_table
from tetris_sim.simulation.report import pace_of, read_report, sweeps
from tetris_sim.support.files import atomic_text, read_given
from tetris_sim.support.wording import format_duration, format_time, gib, listed

_PHYSICS = ("model", "initial", "time")
_DPI = 110  # of the preview


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `report`."""
    parser.add_argument(
        "results",
        type=Path,
        nargs="+",
        metavar="RESULTS",
        help="the results directory of a run, two to compare, or the folder of a sweep",
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
    if is_sweep(args.results[0]):
        if len(args.results) > 1:
            msg = "a sweep has a page of its own; only runs are compared"
            raise ConfigError(msg)
        atomic_text(args.output, sweep_page(read_sweep(args.results[0])))
    else:
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
    return _filled(parts)


def sweep_page(table: SweepTable) -> str:
    """The page of a sweep: what came out over what was varied, and every run.

    Args:
        table: what the sweep left.

    Raises:
        CheckpointError: no run has ended.
    """
    names = table.choose(None)
    picture = base64.b64encode(draw_sweep(table, names).png(_DPI)).decode()
    keys = [axis.key for axis in table.axes]
    shown = ["run", *keys, ENDED, *table.results]
    header = "".join(f"<th>{escape(name)}</th>" for name in shown)
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{escape(_short(row.get(name, '')))}</td>" for name in shown)
        + "</tr>"
        for row in table.rows
    )

    failed = [row for row in table.rows if row.get(ERROR)]
    said = f"{len(table.rows)} runs over {listed(keys, 'and')}, {len(failed)} failed"
    errors = _list([f"run {row['run']}: {row[ERROR]}" for row in failed])
    body = (
        f'<article><header><h1>{escape(table.name)}</h1><p class="ended">{escape(said)}</p>'
        "</header>"
        + _section(
            "What came out",
            f'<figure class="preview"><img alt="{escape(listed(names, "and"))} over '
            f'{escape(listed(keys, "and"))}" src="data:image/png;base64,{picture}"></figure>',
        )
        + (_section("What failed", errors) if failed else "")
        + _section("Runs", f'<div class="wide"><table><tr>{header}</tr>{rows}</table></div>')
        + "</article>"
    )
    return _filled(
        {"TITLE": escape(table.name), "BODY": body, "DATA": '{"runs": []}', "PLOTLY": ""}
    )


def _short(text: str) -> str:
    """A number as people read it; any other text as it is."""
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return text


def _filled(parts: Mapping[str, str]) -> str:
    """The template of a page with its parts."""
    page = files("tetris_sim.commands").joinpath("templates/report.html")
    # At once: a text of somebody else may hold such a name.
    return re.sub("@@([A-Z]+)@@", lambda found: parts[found[1]], page.read_text(encoding="utf-8"))


def _title(facts: Facts) -> str:
    return str(facts["config"].get("title") or Path(facts["name"]).resolve().name)


def _sections(facts: Facts) -> str:
    """Everything about one run."""
    config, report = facts["config"], facts["report"]
    request = facts["request"]
    if request is not None:  # without the defaults, which the user has not written
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
        if report.get("scheme") != "steady":
            tiles["steps"] = f"{report['step'] - report['first_step']:,}"
            tiles["simulated"] = format_time(report["time_s"])
        tiles["took"] = format_duration(report["wall_s"])
        if sweeps(report):
            tiles["rate"] = pace_of(report)
        tiles["precision"] = report["precision"]

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
    said = f"{methods}. {pace_of(report)}"
    if sweeps(report):
        said += (
            f" while computing, {report['points_per_second_overall'] / 1e9:.3g} over all; "
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
    """Return a section of the differences between two runs, with their curves in common plots."""
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


Facts = dict[str, Any]
_FRAMES = 40  # of the slider
_POINTS = 160  # per axis of a picture: what a page of a few MB holds
_VARIABLES = 4
_ROWS = 2000  # of a table; more than a screen has columns
_LEVELS = 65535  # a value is 16 bits between the lowest and the highest


def gather(directory: Path) -> Facts:
    """Everything about one run.

    Raises:
        CheckpointError: there are no results.
    """
    if not directory.is_dir() or not results.has_results(directory):
        msg = f"{directory} holds no results of tetris_sim; give the results directory of a run"
        raise CheckpointError(msg)

    text = _read(directory / results.CONFIG)
    config, problem = _rebuild(text)
    report = _read_report(directory / results.REPORT_JSON)
    return {
        "name": str(directory),
        "text": text,
        # Checked: nothing else of a text is taken apart.
        "config": {} if config is None else config.resolved(),
        "request": config,
        "problem": problem,
        "report": report,
        "fields": read_fields(directory),
        "tables": read_tables(directory, timeless=_timeless(config)),
    }


def _timeless(config: Config | None) -> bool:
    return config is not None and config.resolved()["model"]["type"] == "stencil"


def _read(path: Path) -> str:
    try:
        return read_given(path, 4 * MOST_CHARACTERS).decode()
    except (OSError, UnicodeError):
        return ""


def _read_report(path: Path) -> Facts:
    with contextlib.suppress(CheckpointError):
        return read_report(path).as_json()
    return {}


def _rebuild(text: str) -> tuple[Config | None, Problem | None]:
    """The configuration and its problem, as far as they can be had: input files may be gone."""
    config = None
    with contextlib.suppress(TetrisError, OSError):
        config = read_config(text, name=results.CONFIG, base=Path.cwd(), environ={})
        return config, config.build()
    return config, None


# ---- fields


def read_fields(directory: Path) -> list[Facts]:
    """Pictures of each variable over time; none if nothing was written."""
    try:
        with sources.open_series(directory) as series:
            chosen = _evenly(len(series.steps), _FRAMES)
            return [
                _frames(series, variable, chosen)
                for variable in range(min(_VARIABLES, len(series.variables)))
            ]
    except CheckpointError:
        return []


def _evenly(count: int, most: int) -> list[int]:
    """At most so many of the numbers below `count`, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(k) for k in np.linspace(0, count - 1, most)})


def _frames(series: Series, variable: int, chosen: Sequence[int]) -> Facts:
    """One variable at some records, as 16 bits per point."""
    caption = sources.caption(series, variable)
    cuts = default_cuts(series.grid)
    records = [
        sample(functools.partial(series.read, record, variable), series.grid, cuts, most=_POINTS)
        for record in chosen
    ]
    values = [np.asarray(plane.values, np.float64) for planes in records for plane in planes]
    finite = [it[np.isfinite(it)] for it in values]
    low = min((float(it.min()) for it in finite if it.size), default=0.0)
    high = max((float(it.max()) for it in finite if it.size), default=0.0)

    unit = length_unit([b - a for plane in records[0] for a, b in plane.bounds])
    return {
        "name": series.variables[variable].name,
        "label": caption.quantity,
        # The colours of the pictures that a run writes.
        "colours": FIELD_COLOURS.capitalize(),
        "line": LINE_COLOUR,
        "low": low,
        "high": high,
        "unit": unit.name,
        "moments": [
            moment(series.steps[record], series.times[record], timeless=series.timeless)
            for record in chosen
        ],
        "planes": [
            {
                "axes": list(plane.axes),
                "title": unit.place(plane.place),
                "positions": [(it / unit.metres).round(9).tolist() for it in plane.positions],
                "frames": [encode(planes[k].values, low, high) for planes in records],
            }
            for k, plane in enumerate(records[0])
        ],
    }


def encode(values: npt.NDArray[Any], low: float, high: float) -> str:
    """Values as 16-bit numbers between two ends, little endian, in base 64.

    >>> encode(np.array([0.0, 1.0]), 0.0, 1.0)
    'AAD//w=='
    """
    scale = _LEVELS / (high - low) if high > low else 0.0
    levels = np.nan_to_num((np.asarray(values, np.float64) - low) * scale)
    return base64.b64encode(levels.round().clip(0, _LEVELS).astype("<u2").tobytes()).decode()


# ---- tables


def read_tables(directory: Path, *, timeless: bool) -> list[Facts]:
    """Probes and statistics: columns of one unit go into one plot."""
    found = {path.stem: path for path in sorted((directory / tables.FOLDER).glob("*.csv"))}
    plots = _plots({f"{name}: ": path for name, path in found.items()}, "Probes", timeless)
    if (path := directory / tables.FILE).exists():
        plots += _plots({"": path}, "Statistics", timeless)
    return plots


def _plots(paths: Mapping[str, Path], kind: str, timeless: bool) -> list[Facts]:
    units: dict[str, list[Facts]] = {}
    for prefix, path in paths.items():
        columns, rows = read_table(path)
        if not rows:
            continue
        array = np.asarray(rows)[_evenly(len(rows), _ROWS)]
        along = array[:, 0 if timeless else 1].tolist()
        for k, column in enumerate(columns):
            if column in LEADING:
                continue
            name, _, unit = column.rpartition(" [")
            line = {"name": f"{prefix}{name}", "x": along, "y": array[:, k].tolist()}
            units.setdefault(unit.rstrip("]"), []).append(line)

    return [
        {
            "title": kind,
            "unit": unit,
            "along": "step" if timeless else "time [s]",
            "lines": lines,
        }
        for unit, lines in units.items()
    ]
