"""`plot FILE|DIRECTORY`: draw a field, a table over time, or what came out of a sweep."""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path

from tetris_sim.commands import sources
from tetris_sim.errors import CheckpointError, ConfigError, ExitCode
from tetris_sim.outputs.figure_layout import moment
from tetris_sim.outputs.materials import sample_materials, show_body
from tetris_sim.outputs.pictures import draw_state, draw_table
from tetris_sim.outputs.sampling import sample
from tetris_sim.outputs.series import Series
from tetris_sim.outputs.sweep_table import draw_sweep, is_sweep, read_sweep
from tetris_sim.outputs.tables import LEADING, read_table
from tetris_sim.support.wording import listed, printable_lines

HELP = "draw a field, a table over time, or what came out of a sweep"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `plot`."""
    sources.add_source_arguments(parser)
    sources.add_slice_argument(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PICTURE.png",
        help="the picture (default: <variable>_<step>.png in the working directory)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a picture that is already there"
    )


def run(args: argparse.Namespace) -> int:
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
