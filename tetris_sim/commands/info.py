"""`info FILE|DIRECTORY`: what is in an output, a checkpoint or results; or --stencils."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tetris_sim.commands.sources import find_newest_checkpoint, is_checkpoint, read_config_text
from tetris_sim.config.yaml import MOST_CHARACTERS
from tetris_sim.errors import CheckpointError, ConfigError, ExitCode
from tetris_sim.model.grid import Grid
from tetris_sim.outputs import pictures, results, tables
from tetris_sim.outputs.checkpoint import good_checkpoints, open_checkpoint
from tetris_sim.outputs.field_file import FOLDER, INDEX
from tetris_sim.outputs.figure_layout import STEADY, length_unit, moment
from tetris_sim.outputs.series import Series, open_fields
from tetris_sim.outputs.tables import read_table
from tetris_sim.simulation.report import pace_of, read_report
from tetris_sim.support.files import read_given
from tetris_sim.support.wording import format_duration, format_time, gib, printable_lines, spread

# What is in a file or directory that a run has written? As plain data, for `info` to print.

Facts = dict[str, Any]


def describe(path: Path) -> Facts:
    """Describe the contents of `path`; its `kind` says which other keys there are.

    Raises:
        CheckpointError: it is not there, damaged, or not written by this program.
    """
    if path.is_dir():
        return describe_results(path)
    if path.suffix == ".csv":
        return describe_table(path)
    return describe_checkpoint(path) if is_checkpoint(path) else describe_fields(path)


def describe_fields(path: Path) -> Facts:
    """`fields.h5`, or the file of one step."""
    with open_fields(path) as series:
        files = {path, *(series.place(record, 0)[0] for record in range(len(series.steps)))}
        meta = series.meta

        return {
            "kind": "fields",
            "path": str(path),
            "bytes": sum(file.stat().st_size for file in files if file.exists()),
            "missing": sorted(str(file) for file in files if not file.exists()),
            "title": meta["title"],
            **_describe_grid(series.grid),
            "dtype": series.dtype.name,
            "variables": _describe_variables(series),
            "records": [
                {"step": step, "time_s": time}
                for step, time in zip(series.steps, series.times, strict=True)
            ],
            "dt_s": meta["dt"],
            "steps": meta["steps"],
            "timeless": series.timeless,
            "run_id": meta["run_id"],
            "format_version": meta["format_version"],
            "creator": meta["creator"],
            "versions": meta["versions"],
            "config": meta["config"],
        }


def describe_checkpoint(path: Path) -> Facts:
    """A checkpoint or crash dump; every byte of it is compared with its digest."""
    with open_checkpoint(path) as checkpoint:
        state = checkpoint.state
        config = read_config_text(state.config)

        return {
            "kind": "checkpoint" if checkpoint.good else "crash dump",
            "path": str(path),
            "bytes": path.stat().st_size,
            "title": config.get("title", ""),
            **_describe_grid(checkpoint.grid),
            "dtype": checkpoint.dtype.name,
            "variables": [
                {"name": v.name, "unit": v.unit, "long_name": v.long_name}
                for v in checkpoint.variables
            ],
            "step": state.step,
            "time_s": state.time,
            "dt_s": state.dt,
            "steps": state.steps,
            "timeless": config.get("model", {}).get("type") == "stencil",
            "run_id": state.run_id,
            "created": state.created,
            "wall_time_s": state.wall_time_s,
            "methods": dict(state.methods),
            "restarts_with_changes": len(state.config_history),
            "versions": dict(state.versions),
            "config": state.config,
        }


def describe_table(path: Path) -> Facts:
    """A probe's table or that of the statistics."""
    columns, rows = read_table(path)
    facts: Facts = {
        "kind": "table",
        "path": str(path),
        "bytes": path.stat().st_size,
        "columns": columns,
        "rows": len(rows),
    }
    if rows:
        facts["first"], facts["last"] = (
            dict(zip(columns, row, strict=True)) for row in (rows[0], rows[-1])
        )
    return facts


def describe_results(directory: Path) -> Facts:
    """A results directory: what each output has written, and which checkpoints are good."""
    facts: Facts = {"kind": "results", "path": str(directory)}
    if (directory / INDEX).exists():
        facts["fields"] = describe_fields(directory / INDEX)
    folders = sorted(folder for folder in directory.glob(f"{FOLDER}-*") if folder.is_dir())
    indices = [folder.with_name(f"{folder.name}.h5") for folder in folders]
    facts["parts"] = [describe_fields(path) for path in indices if path.exists()]
    found = [*sorted((directory / tables.FOLDER).glob("*.csv")), directory / tables.FILE]
    facts["tables"] = [describe_table(path) for path in found if path.exists()]
    # Only what is there: a run may have been asked for no pictures.
    names = (pictures.INITIAL, pictures.FINAL, pictures.DIFFERENCE, pictures.OVERVIEW)
    facts["pictures"] = [str(directory / name) for name in names if (directory / name).exists()]

    # The folder of checkpoints itself may have been given.
    places = (directory, directory / results.CHECKPOINTS)
    saved = [path for place in places for path in good_checkpoints(place)]
    facts["checkpoints"] = [{"path": str(path), "bytes": path.stat().st_size} for path in saved]
    if saved:
        facts["newest_checkpoint"] = _newest(directory)

    report = directory / results.REPORT_JSON
    if report.exists():
        facts["report"] = read_report(report).as_json()
    config = directory / results.CONFIG
    if config.exists():
        with contextlib.suppress(OSError):
            facts["config"] = read_given(config, 4 * MOST_CHARACTERS).decode(errors="replace")

    if not any(facts[key] for key in facts if key not in ("kind", "path")):
        # Perhaps it is the folder with the files of fields.
        if directory.name == FOLDER and (directory.parent / INDEX).exists():
            return describe_fields(directory.parent / INDEX)
        msg = (
            f"{directory} holds no results of tetris_sim; give the results directory of a run, or "
            "one of its files"
        )
        raise CheckpointError(msg)
    return facts


def _newest(directory: Path) -> Facts:
    with find_newest_checkpoint(directory) as checkpoint:
        path = checkpoint.path
    return describe_checkpoint(path)


def _describe_grid(grid: Grid) -> Facts:
    """Lists along axes are in the order x, y, z, as in a configuration."""
    return {
        "axes": list(grid.axis_names[::-1]),
        "units": [grid.system.unit(name) for name in grid.axis_names[::-1]],
        "cut_m": dict(grid.cut),
        "shape": list(grid.shape[::-1]),
        "size_m": list(grid.size[::-1]),
        "spacing_m": list(grid.spacing[::-1]),
        "widest_m": list(grid.widest[::-1]),
    }


def _describe_variables(series: Series) -> list[Facts]:
    return [{"name": v.name, "unit": v.unit, "long_name": v.long_name} for v in series.variables]


_MOST_RECORDS = 12  # listed one by one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `info`."""
    parser.add_argument(
        "path",
        type=Path,
        nargs="?",
        metavar="FILE|DIRECTORY",
        help="fields.h5, one of its files, a checkpoint, a table (.csv), "
        "or the results directory of a run",
    )

    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--config", action="store_true", help="print the configuration that the file holds, as YAML"
    )
    shown.add_argument(
        "--stencils",
        action="store_true",
        help="list the named stencils, by domain; with --json their weights",
    )


def run(args: argparse.Namespace) -> int:
    """Print what was found."""
    if args.stencils == (args.path is not None):
        msg = "info wants either a file or directory, or --stencils"
        raise ConfigError(msg)
    if args.stencils:
        rows = list_stencils()
        print(json.dumps(rows, indent=1) if args.json else "\n".join(_stencil_lines(rows)))
        return ExitCode.OK

    facts = describe(args.path)
    if args.config:
        text = _stored_config(facts)
        print(
            json.dumps(read_config_text(text), indent=1)
            if args.json
            else printable_lines(text.rstrip())
        )
    else:
        print(
            json.dumps(facts, indent=1)
            if args.json
            else printable_lines("\n".join(as_lines(facts)))
        )
    return ExitCode.OK


def list_stencils() -> list[Facts]:
    """The catalogue as plain data; offsets along x, y, z, as a configuration has them."""
    from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, catalogue, laplacian_names

    rows = []
    for name, named in catalogue().items():
        stencil = named.stencil
        rows.append(
            {
                "name": name,
                "domain": named.domain,
                "axes": stencil.ndim,
                "points": stencil.n_points,
                "radius": stencil.radius,
                "heat": name in laplacian_names(stencil.ndim),
                "benchmark": name in STENCIL_NAMES,
                "description": named.description,
                "approximates": str(named.expansion),
                "symmetry": named.symmetry,
                "stable": named.stable,
                "stable_factor": float(named.factor),
                "source": named.source,
                "offsets": [list(offset[::-1]) for offset in stencil.offsets],
                "weights": list(stencil.weights),
                "exact_weights": [str(weight) for weight in named.exact.values()],
            }
        )
    return rows


def as_lines(facts: Facts) -> Iterator[str]:
    """Yield the facts as lines for people."""
    title = f"{facts['path']}: {facts['kind']}"
    yield title + (f", {gib(facts['bytes'])}" if "bytes" in facts else "")
    if facts["kind"] == "results":
        yield from _result_lines(facts)
        return
    rows = _table_rows(facts) if facts["kind"] == "table" else _field_rows(facts)
    for label, text in rows:
        yield f"  {label:<12} {text}"


def _result_lines(facts: Facts) -> Iterator[str]:
    report = facts.get("report")
    if report:
        said = (report["ended"], pace_of(report), format_duration(report["wall_s"]))
        yield f"  last run     {', '.join(filter(None, said))}"
    if facts["checkpoints"]:
        names = [Path(saved["path"]).name for saved in facts["checkpoints"]]
        yield f"  checkpoints  {', '.join(names)}"
    if facts["pictures"]:
        yield f"  pictures     {', '.join(Path(path).name for path in facts['pictures'])}"
    parts = [facts.get("fields"), *facts["parts"], *facts["tables"]]
    for part in (*parts, facts.get("newest_checkpoint")):
        if part is not None:
            yield from (f"  {line}" if i else line for i, line in enumerate(_indented(part)))


def _indented(part: Facts) -> Iterator[str]:
    first, *rest = as_lines(part)
    yield f"  {first}"
    yield from rest


def _field_rows(facts: Facts) -> Iterator[tuple[str, str]]:
    def told(step: int, time_s: float) -> str:
        when = moment(step, time_s, timeless=facts["timeless"])
        return when if facts["timeless"] or when == STEADY else f"step {step} ({when})"

    if facts["title"]:
        yield "title", facts["title"]
    yield "grid", _grid_text(facts)
    yield (
        "variables",
        ", ".join(f"{v['name']} [{v['unit']}]" for v in facts["variables"]) + f", {facts['dtype']}",
    )
    if "records" in facts:
        records = facts["records"]
        ends = records if len(records) == 1 else [records[0], records[-1]] if records else []
        yield "records", f"{len(records)}: " + " to ".join(told(**record) for record in ends)
        if 2 < len(records) <= _MOST_RECORDS:
            yield "", f"steps {', '.join(str(record['step']) for record in records)}"
        if facts["missing"]:
            yield "missing", ", ".join(facts["missing"])
    else:
        state = told(facts["step"], facts["time_s"])
        of_all = "" if state == STEADY else f" of {facts['steps']}"
        yield "state", f"{state}{of_all}, {facts['created']}"
        yield "run so far", format_duration(facts["wall_time_s"])
        workers = facts["methods"].get("workers", {})
        yield (
            "methods",
            ", ".join(f"{worker}: {how['method']}" for worker, how in workers.items())
            or "not stored",
        )
    config = read_config_text(facts["config"])
    if not facts["timeless"] and config.get("time", {}).get("scheme") != "steady":
        yield "time step", format_time(facts["dt_s"])
    yield "model", str(config.get("model", {}).get("type", "not stored"))
    if facts["run_id"]:
        yield "run", facts["run_id"]
    yield (
        "versions",
        ", ".join(f"{package} {number}" for package, number in facts["versions"].items()),
    )


def _table_rows(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "columns", ", ".join(facts["columns"])
    yield "rows", str(facts["rows"])
    if facts["rows"]:
        yield "last", ", ".join(f"{value:.6g}" for value in facts["last"].values())


def _grid_text(facts: Facts) -> str:
    points, axes = " x ".join(map(str, facts["shape"])), ", ".join(facts["axes"])
    of_axes = facts["units"]

    def texts(key: str) -> list[Callable[[float], str]]:
        """How numbers along each axis are written: lengths in one unit, angles in radians."""
        # One unit for all lengths of a row, chosen by their sizes, so that they compare.
        lengths = [it for it, own in zip(facts[key], of_axes, strict=True) if own == "m"]
        unit = length_unit(lengths or [1.0])
        return [unit.text if own == "m" else _radians for own in of_axes]

    along, fine = texts("size_m"), texts("spacing_m")
    size = " x ".join(text(it) for text, it in zip(along, facts["size_m"], strict=True))
    widths = zip(facts["spacing_m"], facts["widest_m"], fine, strict=True)
    cuts = (
        (axis, _radians(it) if axis == "theta" else length_unit([it]).text(it))
        for axis, it in facts["cut_m"].items()
    )
    return (
        f"{points} points ({axes}), {size}, spacing "
        + " x ".join(spread(low, high, text) for low, high, text in widths)
        + "".join(f", at {axis} = {place}" for axis, place in cuts)
    )


def _radians(angle: float) -> str:
    return f"{angle:.4g} rad"


def _stencil_lines(rows: list[Facts]) -> Iterator[str]:
    width = max(len(row["name"]) for row in rows)
    domains = dict.fromkeys(row["domain"] for row in rows)
    yield (
        f"{len(rows)} stencils of {len(domains)} domains; "
        "* a Laplacian of model.type heat, - grows if repeated"
    )

    for domain in domains:
        mine = [row for row in rows if row["domain"] == domain]
        yield ""
        yield f"{domain} ({len(mine)})"
        yield f"  {'name':<{width}}  axes points radius    what it is"
        for row in mine:
            mark = ("*" if row["heat"] else " ") + (" " if row["stable"] else "-")
            numbers = f"{row['axes']:>4} {row['points']:>6} {row['radius']:>6} {mark}"
            yield f"  {row['name']:<{width}}  {numbers} {row['description']}"


def _stored_config(facts: Facts) -> str:
    for part in (facts, facts.get("fields", {}), facts.get("newest_checkpoint", {})):
        if part.get("config"):
            return str(part["config"])
    msg = f"{facts['path']} holds no configuration; fields, checkpoints and results directories do"
    raise ConfigError(msg)
