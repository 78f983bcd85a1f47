"""`export FILE|DIRECTORY -o TARGET` converts outputs for other programs, as the suffix says; `plot
FILE|DIRECTORY` draws a field, a table over time, or what came out of a sweep.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tetris_sim.commands import sources
from tetris_sim.config.sections.quantities import LENGTH
from tetris_sim.errors import CheckpointError, ConfigError, ExitCode
from tetris_sim.outputs import tables
from tetris_sim.outputs.figure_layout import moment
from tetris_sim.outputs.materials import sample_materials, show_body
from tetris_sim.outputs.pictures import draw_state, draw_table
from tetris_sim.outputs.sampling import sample, write_on_mesh
from tetris_sim.outputs.series import Series
from tetris_sim.outputs.sweep_table import draw_sweep, is_sweep, read_sweep
from tetris_sim.outputs.tables import LEADING, read_table
from tetris_sim.support.files import atomic_text
from tetris_sim.support.wording import gib, listed, printable_lines

if TYPE_CHECKING:
    from tetris_sim.outputs.exports import Film

_FPS = 10.0
_MOST_FPS = 1000


PICTURES = (".png", ".gif", ".mp4")
FILMS = (".gif", ".mp4")


@dataclass(frozen=True)
class ExportSelection:
    """Selection of records and variables for an export.

    Attributes:
        series: the values, with the variables that are wanted.
        records: the numbers of the records, ascending.
        single: whether one record was asked for by its step or time.
        slices: the cuts of pictures through a 3D field.
        frames_per_second: the speed of a film.
    """

    series: Series
    records: tuple[int, ...]
    single: bool
    slices: list[str]
    frames_per_second: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `export`."""
    sources.add_source_arguments(parser)
    sources.add_slice_argument(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="TARGET",
        help=f"the file to write; its suffix is one of {', '.join([*WRITERS, '.vtu'])}",
    )

    parser.add_argument(
        "--every", type=int, metavar="K", help="only every K-th record (default: all of them)"
    )
    parser.add_argument(
        "--fps", type=float, metavar="N", help=f"frames per second of a film (default: {_FPS:g})"
    )
    parser.add_argument(
        "--mesh",
        type=Path,
        metavar="FILE",
        help="of a .vtu target: the mesh at whose points values are wanted (any that meshio reads)",
    )
    parser.add_argument(
        "--mesh-unit", metavar="UNIT", help="unit of its coordinates, for example mm (default: m)"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a file that is already there"
    )


def run(args: argparse.Namespace) -> int:
    """Write the target."""
    output: Path = args.output
    sources.refuse_other_suffix(output, (*WRITERS, ".vtu"))
    sources.refuse_existing(output, overwrite=args.overwrite)
    _refuse_idle_flags(args)

    # CSV of results means their probes; of a line, the values along it.
    tables = find_probes(args.source) if output.suffix == ".csv" and not args.slice else {}
    if tables:
        _write_probes(args, tables)
        return _tell(args, f"{len(tables)} probes", probes=list(tables))

    with sources.open_series(args.source) as series:
        if args.variable is not None:
            series = sources.only_variable(series, args.variable)
        # Pictures cut while they are drawn, and other formats get a field of fewer axes.
        if args.slice and output.suffix not in PICTURES:
            series = sources.cut_series(series, args.slice)
        one = sources.choose_records(series, args)
        records = tuple(range(0, len(series.steps), args.every or 1)) if one is None else one
        if output.suffix in (".png", ".vtu"):
            records = records[-1:]
        if args.mesh is not None:
            unit = 1.0 if args.mesh_unit is None else _unit(args.mesh_unit)
            n = write_on_mesh(series, records[0], args.mesh, unit, output)
            text = f"{sources.describe_record(series, records[0])} at {n} points"
            return _tell(args, text, steps=[series.steps[records[0]]])

        choice = ExportSelection(series, records, one is not None, args.slice, args.fps or _FPS)
        WRITERS[output.suffix](choice, output)
        single = len(records) == 1
        text = sources.describe_record(series, records[0]) if single else f"{len(records)} records"
        return _tell(args, text, steps=[series.steps[record] for record in records])


def find_probes(source: Path) -> dict[str, Path]:
    """Tables by probe of their folder, or of results whose fields, if any, are no lines."""
    if not source.is_dir():
        return {}
    folder = source
    if (source / tables.FOLDER).is_dir():
        with contextlib.suppress(CheckpointError), sources.open_series(source) as series:
            if series.grid.ndim == 1:
                return {}
        folder = source / tables.FOLDER
    return {path.stem: path for path in sorted(folder.glob("*.csv")) if path.name != tables.FILE}


def _refuse_idle_flags(args: argparse.Namespace) -> None:
    """Raise for a flag that would have no effect, or has no meaning."""
    suffix = args.output.suffix
    # A flag that does nothing is refused: it was meant to do something.
    chosen = args.last or args.step is not None or args.time is not None

    if args.slice and suffix == ".xdmf":
        msg = (
            "--slice makes new values, and an XDMF file points to those that are there; write a "
            ".vtkhdf file, or ask the run for a slice by output.parts"
        )
    elif args.fps is not None and suffix not in FILMS:
        msg = f"--fps is for films ({listed(FILMS)}), not for {suffix}"
    elif (args.mesh is not None) != (suffix == ".vtu"):
        msg = "--mesh FILE says at which points values are wanted, and goes with a target .vtu"
    elif args.mesh_unit is not None and args.mesh is None:
        msg = "--mesh-unit is for --mesh FILE"
    elif args.slice and args.mesh is not None:
        msg = "--slice cuts a field, and --mesh has points of its own; leave one of them out"
    elif args.every is not None and (chosen or suffix in (".png", ".vtu")):
        msg = "--every chooses among many records, but only one was asked for; leave it out"
    elif args.every is not None and args.every < 1:
        msg = f"--every {args.every}: a whole number, 1 or more, is wanted"
    elif args.fps is not None and not 0 < args.fps <= _MOST_FPS:
        msg = f"--fps {args.fps:g}: a number greater than 0 and at most {_MOST_FPS} is wanted"
    else:
        return

    raise ConfigError(msg)


def _unit(text: str) -> float:
    """A unit of length [m]."""
    try:
        return float(LENGTH.read(f"1 {text}"))
    except ValueError as error:
        msg = f"--mesh-unit: {error}"
        raise ConfigError(msg) from error


def _write_probes(args: argparse.Namespace, tables: dict[str, Path]) -> None:
    from tetris_sim.outputs.exports import write_probes

    if (
        args.last
        or args.variable
        or any(flag is not None for flag in (args.step, args.time, args.every))
    ):
        msg = (
            "--step, --time, --last, --every and --variable choose among fields; probes are "
            "exported whole"
        )
        raise ConfigError(msg)
    write_probes(tables, args.output)


def _tell(args: argparse.Namespace, text: str, **names: list[str] | list[int]) -> int:
    """Print what was written."""
    n_bytes = args.output.stat().st_size
    if args.json:
        print(json.dumps({"file": str(args.output), "bytes": n_bytes, **names}))
    else:
        print(f"{args.output}: {text}, {gib(n_bytes)}")
    return ExitCode.OK


def _write_xdmf(choice: ExportSelection, output: Path) -> None:
    from tetris_sim.outputs.fields import Source, TimeFrame, xdmf_text

    series = choice.series
    if series.dtype.name == "float16":
        msg = (
            f"an XDMF file points to the values of {series.path} where they are, and no reader of "
            "it knows float16; write a .vtkhdf file instead, which has them as float32"
        )
        raise ConfigError(msg)
    # A checkpoint has no file of maps, and an XDMF file only points.
    maps = {}
    if (geometry := series.geometry) is not None:
        # Relative paths, so that a folder of results can be moved as a whole.
        beside = os.path.relpath(geometry, output.absolute().parent)
        shape = series.grid.shape
        maps = {it.name: Source(beside, it.name, shape, it.dtype) for it in series.maps}

    frames = []
    for record in choice.records:
        places = {v.name: series.place(record, k) for k, v in enumerate(series.variables)}
        frames.append(
            TimeFrame(
                series.times[record],
                {
                    name: Source(os.path.relpath(file, output.absolute().parent), dataset, shape)
                    for name, (file, dataset, shape) in places.items()
                }
                | maps,
            )
        )
    atomic_text(output, xdmf_text(series.grid, series.dtype, frames))


def _write_vtkhdf(choice: ExportSelection, output: Path) -> None:
    from tetris_sim.outputs.exports import write_vtkhdf

    write_vtkhdf(choice.series, choice.records, output)


def _write_netcdf(choice: ExportSelection, output: Path) -> None:
    from tetris_sim.outputs.exports import write_netcdf

    write_netcdf(choice.series, choice.records, output)


def _write_npy(choice: ExportSelection, output: Path) -> None:
    from tetris_sim.outputs.exports import write_npy

    write_npy(choice.series, choice.records, output, single=choice.single)


def _write_csv(choice: ExportSelection, output: Path) -> None:
    from tetris_sim.outputs.exports import write_csv

    write_csv(choice.series, choice.records, output)


def _write_png(choice: ExportSelection, output: Path) -> None:
    draw_record(choice.series, choice.records[0], 0, slices=choice.slices, output=output)


def _write_gif(choice: ExportSelection, output: Path) -> None:
    from tetris_sim.outputs.exports import write_gif

    write_gif(_film(choice), output, frames_per_second=choice.frames_per_second)


def _write_mp4(choice: ExportSelection, output: Path) -> None:
    from tetris_sim.outputs.exports import write_mp4

    write_mp4(_film(choice), output, frames_per_second=choice.frames_per_second)


def _film(choice: ExportSelection) -> Film:
    from tetris_sim.outputs.exports import Film

    cuts = sources.choose_cuts(choice.series, choice.slices)
    return Film(choice.series, choice.records, 0, cuts, sources.caption(choice.series, 0))


WRITERS: dict[str, Callable[[ExportSelection, Path], None]] = {
    ".xdmf": _write_xdmf,
    ".vtkhdf": _write_vtkhdf,
    ".nc": _write_netcdf,
    ".npy": _write_npy,
    ".csv": _write_csv,
    ".png": _write_png,
    ".gif": _write_gif,
    ".mp4": _write_mp4,
}


def add_plot_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `plot`."""
    sources.add_source_arguments(parser)
    sources.add_slice_argument(parser)
    sources.add_picture_arguments(parser, "<variable>_<step>.png")


def run_plot(args: argparse.Namespace) -> int:
    """Draw one record; the last one unless another is asked for."""
    if args.output is not None:
        sources.refuse_other_suffix(args.output, (".png",))
        sources.refuse_existing(args.output, overwrite=args.overwrite)

    if is_sweep(args.source):
        return _plot_sweep(args)
    if args.source.suffix == ".csv":
        return _plot_table(args)
    with sources.open_series(args.source) as series:
        (record,) = sources.choose_records(series, args) or (len(series.steps) - 1,)
        variable = sources.choose_variable(series, args.variable)
        name = series.variables[variable].name
        output = args.output or Path(f"{name}_{series.steps[record]:012d}.png")
        sources.refuse_existing(output, overwrite=args.overwrite)
        draw_record(series, record, variable, slices=args.slice, output=output)

        if args.json:
            facts = {
                "picture": str(output),
                "step": series.steps[record],
                "time_s": series.times[record],
                "variable": name,
            }
            print(json.dumps(facts))
        else:
            print(printable_lines(f"{output}: {name}, {sources.describe_record(series, record)}"))
    return ExitCode.OK


def _plot_table(args: argparse.Namespace) -> int:
    """Draw a probe's table or that of the statistics over time."""
    _refuse_moments(args)
    columns, rows = read_table(args.source)
    if not rows:
        msg = f"{args.source} holds no row yet"
        raise CheckpointError(msg)
    names = [name for name in columns if name not in LEADING]
    if args.variable is not None:
        names = [name for name in names if args.variable in (name, name.rpartition(" [")[0])]
    if not names:
        msg = f"--variable {args.variable}: {args.source} has {listed(columns[len(LEADING) :])}"
        raise ConfigError(msg)

    output = args.output or Path(f"{args.source.stem}.png")
    sources.refuse_existing(output, overwrite=args.overwrite)
    draw_table(columns, rows, names, title=args.source.stem).save(output)
    if args.json:
        print(json.dumps({"picture": str(output), "columns": names, "rows": len(rows)}))
    else:
        print(printable_lines(f"{output}: {listed(names, 'and')}, {len(rows)} rows"))
    return ExitCode.OK


def _plot_sweep(args: argparse.Namespace) -> int:
    """Draw what came out over the keys that were varied."""
    _refuse_moments(args)
    table = read_sweep(args.source)
    names = table.choose(args.variable)
    output = args.output or Path(f"{table.name}.png")
    sources.refuse_existing(output, overwrite=args.overwrite)
    draw_sweep(table, names).save(output)
    if args.json:
        print(json.dumps({"picture": str(output), "columns": names, "runs": len(table.rows)}))
    else:
        keys = listed([axis.key for axis in table.axes], "and")
        print(printable_lines(f"{output}: {len(table.rows)} runs over {keys}"))
    return ExitCode.OK


def _refuse_moments(args: argparse.Namespace) -> None:
    """Refuse to choose records of a table.

    Raises:
        ConfigError: one is asked for.
    """
    if args.step is not None or args.time is not None or args.last or args.slice:
        msg = "--step, --time, --last and --slice are for fields; a table is drawn whole"
        raise ConfigError(msg)


def draw_record(
    series: Series, record: int, variable: int, *, slices: list[str], output: Path
) -> None:
    """Draw one record of one variable.

    Args:
        series: where the values are.
        record: which one.
        variable: which one.
        slices: where to cut a 3D field, as AXIS=POSITION.
        output: the picture.
    """
    cuts = sources.choose_cuts(series, slices)
    planes = sample(functools.partial(series.read, record, variable), series.grid, cuts)
    planes = show_body(planes, sample_materials(series.maps_at(record), series.grid, cuts))
    when = moment(series.steps[record], series.times[record], timeless=series.timeless)
    draw_state(planes, sources.caption(series, variable), moment=when).save(output)
