"""What is in a file or directory that a run has written? As plain data, for `info` to print."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from tetris_sim.commands.sources import find_newest_checkpoint, is_checkpoint, read_config_text
from tetris_sim.config.yaml import MOST_CHARACTERS
from tetris_sim.errors import CheckpointError
from tetris_sim.model.grid import Grid
from tetris_sim.outputs import pictures, results, tables
from tetris_sim.outputs.checkpoint import good_checkpoints, open_checkpoint
from tetris_sim.outputs.field_file import FOLDER, INDEX
from tetris_sim.outputs.series import Series, open_fields
from tetris_sim.outputs.tables import read_table
from tetris_sim.simulation.report import read_report
from tetris_sim.support.files import read_given

Facts = dict[str, Any]


def describe(path: Path) -> Facts:
    """What `path` holds; its `kind` says which other keys there are.

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
    tables = [*sorted((directory / tables.FOLDER).glob("*.csv")), directory / tables.FILE]
    facts["tables"] = [describe_table(path) for path in tables if path.exists()]
    names = (pictures.INITIAL, pictures.FINAL, pictures.DIFFERENCE, pictures.OVERVIEW)
    facts["pictures"] = [str(directory / name) for name in names if (directory / name).exists()]

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
        "cut_m": dict(grid.cut),
        "shape": list(grid.shape[::-1]),
        "size_m": list(grid.size[::-1]),
        "spacing_m": list(grid.spacing[::-1]),
        "widest_m": list(grid.widest[::-1]),
    }


def _describe_variables(series: Series) -> list[Facts]:
    return [{"name": v.name, "unit": v.unit, "long_name": v.long_name} for v in series.variables]
