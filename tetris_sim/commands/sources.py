"""Which fields does a path stand for, and which of them are meant? For `plot` and `export`."""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tetris_sim.config import read_config
from tetris_sim.config.sections.quantities import Quantity
from tetris_sim.config.yaml import read_yaml
from tetris_sim.errors import CheckpointError, ConfigError, TetrisError
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Box
from tetris_sim.outputs import results
from tetris_sim.outputs.field_file import INDEX
from tetris_sim.outputs.figure_layout import STEADY, Caption, moment
from tetris_sim.outputs.materials import CellMap, cell_maps
from tetris_sim.outputs.regions import Neighbours, neighbours
from tetris_sim.outputs.sampling import CrossSection, axis_of_slice, cuts_at, default_cuts
from tetris_sim.outputs.series import Place, Series, SeriesVariable, Values, open_fields
from tetris_sim.support.wording import listed, suggestion

if TYPE_CHECKING:
    from tetris_sim.outputs.checkpoint import Checkpoint, RunState

log = logging.getLogger("tetris_sim")

_LENGTH = Quantity("a position", "m", ("z=5mm", "z=0.005"))
_TIME = Quantity("a time", "s", ("5 ms", "0.005"))


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, and which records and variable of it."""
    parser.add_argument(
        "source",
        type=Path,
        metavar="FILE|DIRECTORY",
        help="fields.h5, one of its files, a checkpoint, the results directory of a run; for plot "
        "also a table of probes or statistics (.csv)",
    )

    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--step", type=int, metavar="N", help="the record of this step")
    chosen.add_argument(
        "--time", metavar="T", help="the record nearest to this simulated time, for example '5 ms'"
    )
    chosen.add_argument("--last", action="store_true", help="the last record")
    parser.add_argument(
        "--variable", metavar="NAME", help="only this variable (default: all; a picture: the first)"
    )


def add_slice_argument(parser: argparse.ArgumentParser) -> None:
    """Where pictures cut a 3D field."""
    parser.add_argument(
        "--slice",
        action="append",
        default=[],
        metavar="AXIS=POSITION",
        help="cut the field there, for example z=5mm; may be repeated (default of pictures of a "
        "3D field: the three middle planes)",
    )


def add_picture_arguments(parser: argparse.ArgumentParser, default: str) -> None:
    """Where a picture is drawn, by default into the working directory under a name."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PICTURE.png",
        help=f"the picture (default: {default} in the working directory)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a picture that is already there"
    )


@contextlib.contextmanager
def open_series(path: Path) -> Iterator[Series]:
    """The fields behind a path: of a file, a checkpoint, or the newest of a directory.

    Raises:
        CheckpointError: there are none, or the file is damaged.
    """
    # In this order: the fields of a run, else its newest checkpoint, which every run has at its
    # end.
    if path.is_dir() and not (path / INDEX).exists():
        with find_newest_checkpoint(path) as checkpoint:
            yield _checkpoint_series(checkpoint)
        return
    if path.is_dir():
        path = path / INDEX
    if is_checkpoint(path):
        from tetris_sim.outputs.checkpoint import open_checkpoint

        with open_checkpoint(path) as checkpoint:
            yield _checkpoint_series(checkpoint)
        return
    with open_fields(path) as series:
        if not series.steps:
            msg = f"{path} holds no record yet"
            raise CheckpointError(msg)
        yield series


def is_checkpoint(path: Path) -> bool:
    """Whether a file is a checkpoint or a crash dump, by its name or seal, without HDF5."""
    from tetris_sim.outputs.checkpoint.seal import read_seal

    # The name decides for files of ours; the seal, a few bytes at the end, for renamed ones.
    if path.name.startswith(("checkpoint_", "crash_")):
        return True
    with contextlib.suppress(CheckpointError):
        read_seal(path)
        return True
    return False


def find_newest_checkpoint(directory: Path) -> Checkpoint:
    """Open the newest good checkpoint of a results directory, or of its folder of checkpoints.

    Raises:
        CheckpointError: there is none.
    """
    from tetris_sim.outputs.checkpoint import find_checkpoint

    # A user may name either folder.
    for place in (directory, directory / results.CHECKPOINTS):
        newest, sentences = find_checkpoint(place, tidy=False)
        for sentence in sentences:
            log.warning("%s", sentence)
        if newest is not None:
            return newest
    msg = (
        f"{directory} holds neither {INDEX} nor a good checkpoint; give the results directory of a "
        "run, or a file"
    )
    raise CheckpointError(msg)


def choose_records(series: Series, args: argparse.Namespace) -> tuple[int, ...] | None:
    """The one record that --step, --time or --last asks for; None if none of them is given.

    Raises:
        ConfigError: there is no record of that step.
    """
    if args.last:
        return (len(series.steps) - 1,)

    if args.time is not None:
        try:
            time = _TIME.read(args.time)
        except ValueError as error:
            msg = f"--time: {error}"
            raise ConfigError(msg) from error
        return (min(range(len(series.times)), key=lambda i: abs(series.times[i] - time)),)

    if args.step is None:
        return None
    if args.step not in series.steps:
        near = sorted(series.steps, key=lambda step: (abs(step - args.step), step))[:3]
        msg = (
            f"--step {args.step}: {series.path} has no record of this step; the nearest are "
            f"{_numbers(sorted(near))}"
        )
        raise ConfigError(msg)
    return (series.steps.index(args.step),)


def only_variable(series: Series, name: str) -> Series:
    """The same series with one variable.

    Raises:
        ConfigError: there is no such variable.
    """
    variable = choose_variable(series, name)
    return replace(
        series,
        variables=(series.variables[variable],),
        read=lambda record, _, box: series.read(record, variable, box),
        place=lambda record, _: series.place(record, variable),
    )


def choose_variable(series: Series, name: str | None) -> int:
    """Index of the variable called `name`, of the first one if no name is given.

    Raises:
        ConfigError: there is no such variable.
    """
    if name is None:
        return 0
    names = [variable.name for variable in series.variables]
    if name not in names:
        msg = (
            f"--variable {name}: {series.path} has {listed(names, 'and')}{suggestion(name, names)}"
        )
        raise ConfigError(msg)
    return names.index(name)


def choose_cuts(series: Series, slices: list[str]) -> tuple[CrossSection, ...]:
    """Where to cut: as --slice says, or through the middle.

    Raises:
        ConfigError: a slice is not AXIS=POSITION, or lies outside the box.
    """
    if not slices:
        return default_cuts(series.grid)
    return cuts_at(series.grid, read_places(series.grid, slices))


def cut_series(series: Series, slices: list[str]) -> Series:
    """The same series on a slice, without the axes that are cut; values are linear between points.

    Raises:
        ConfigError: a slice is not AXIS=POSITION, lies outside the box, or leaves no axis.
    """
    grid, places = series.grid, dict(read_places(series.grid, slices))
    if len(places) == grid.ndim:
        msg = f"--slice {' '.join(slices)}: no axis is left; a probe is for a single place"
        raise ConfigError(msg)
    # Along an axis that is cut the two planes around the position, with their weights.
    near: list[Neighbours | None] = [None] * grid.ndim
    for name, position in places.items():
        axis = axis_of_slice(grid, name, position)
        place = grid.index_at(axis, position)
        near[axis] = neighbours(place, n=grid.shape[axis], periodic=False)

    def read(record: int, variable: int, box: Box) -> Values:
        wanted = iter(box)
        # From a box of what is left to one of the whole grid.
        whole = [next(wanted) if it is None else (it.indices[0], it.indices[-1] + 1) for it in near]
        values = series.read(record, variable, tuple(whole))
        for axis, it in reversed(list(enumerate(near))):
            if it is not None:
                values = _between(values, it, axis)
        return np.asarray(values).astype(series.dtype)

    spans = [(0, n) if it is None else None for n, it in zip(grid.shape, near, strict=True)]
    cells = [grid.cell_at(axis, places.get(name, 0.0)) for axis, name in enumerate(grid.axis_names)]

    def cut(it: CellMap) -> CellMap:
        def numbers(box: Box) -> Any:
            wanted = iter(box)
            whole = [(c, c + 1) if n else next(wanted) for c, n in zip(cells, near, strict=True)]
            return it.read(tuple(whole)).reshape([high - low for low, high in box])

        return replace(it, read=numbers)

    at = series.find_maps_at
    return replace(
        series,
        grid=grid.part(spans, places),
        read=read,
        find_maps=lambda: tuple(cut(it) for it in series.maps),
        find_maps_at=None if at is None else (lambda record: tuple(map(cut, at(record)))),
    )


def _between(values: Values, near: Neighbours, axis: int) -> Values:
    """The values between two planes, and beside a void those of the plane that is closer; of two
    that are equally close, of the one that is there.
    """
    # NaN of a void would spread to the mean; the closer plane is taken there instead.
    found = np.tensordot(values, np.array(near.weights), axes=(axis, 0))
    if not (blank := np.isnan(found)).any():
        return np.asarray(found)
    planes = [np.asarray(values.take(k, axis)) for k in range(len(near.indices))]
    closer = planes[int(np.argmax(near.weights))]
    if math.isclose(near.weights[0], near.weights[-1]):
        closer = np.where(np.isnan(planes[0]), planes[-1], planes[0])
    return np.where(blank, closer, found)


def read_places(grid: Grid, slices: list[str]) -> list[tuple[str, float]]:
    """Axis and position [m] of each --slice.

    Raises:
        ConfigError: a slice is not AXIS=POSITION.
    """
    places: list[tuple[str, float]] = []
    for text in slices:
        name, equals, position = text.partition("=")
        name = name.strip()
        if not equals or name not in grid.axis_names:
            msg = (
                f"--slice {text}: AXIS=POSITION is wanted, with an axis of "
                f"{listed(grid.axis_names[::-1])}"
            )
            raise ConfigError(msg)
        try:
            places.append((name, _LENGTH.read(position)))
        except ValueError as error:
            msg = f"--slice {text}: {error}"
            raise ConfigError(msg) from error

    return places


def caption(series: Series, variable: int) -> Caption:
    """Return the caption of pictures of one variable."""
    shown = series.variables[variable]
    title = str(series.meta.get("title", "")) or shown.long_name
    return Caption(shown.long_name, shown.unit, title)


def refuse_other_suffix(path: Path, allowed: Collection[str]) -> None:
    """Raise unless the name ends with one of the suffixes.

    Raises:
        ConfigError: with those that are allowed.
    """
    if path.suffix not in allowed:
        suffix = f"the suffix {path.suffix}" if path.suffix else "no suffix"
        msg = f"{path} has {suffix}, which says what to write; allowed: {listed(allowed)}"
        raise ConfigError(msg + suggestion(path.suffix, allowed))


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise if `path` is there and may not be replaced, or lies in a directory that is not there.

    Raises:
        ConfigError: with what to do.
    """
    if path.is_dir():
        msg = f"{path} is a directory; give the name of a file"
        raise ConfigError(msg)
    if path.exists() and not overwrite:
        msg = f"{path} is already there; use --overwrite to replace it, or another name"
        raise ConfigError(msg)
    if not path.absolute().parent.is_dir():
        msg = f"the directory {path.parent} is not there; make it first"
        raise ConfigError(msg)


def describe_record(series: Series, record: int) -> str:
    """Step and time of a record."""
    step = series.steps[record]
    when = moment(step, series.times[record], timeless=series.timeless)
    return when if series.timeless or when == STEADY else f"step {step}, {when}"


def read_config_text(text: str) -> dict[str, Any]:
    """A configuration from a file of ours as plain data; empty if it cannot be read."""
    try:
        root, _ = read_yaml(text, "the configuration")
    except ConfigError:
        return {}
    config = None if root is None else root.plain()
    return config if isinstance(config, dict) else {}


def _checkpoint_series(checkpoint: Checkpoint) -> Series:
    """A checkpoint as a series of one record."""
    state = checkpoint.state
    config = read_config_text(state.config)

    def read(record: int, variable: int, box: Box) -> Values:
        return np.asarray(checkpoint.read(box)[variable])

    def place(record: int, variable: int) -> Place:
        return (
            checkpoint.path,
            f"/fields/{checkpoint.variables[variable].name}",
            checkpoint.grid.shape,
        )

    return Series(
        path=checkpoint.path,
        grid=checkpoint.grid,
        dtype=checkpoint.dtype,
        variables=tuple(SeriesVariable(v.name, v.unit, v.long_name) for v in checkpoint.variables),
        steps=(state.step,),
        times=(state.time,),
        read=read,
        place=place,
        meta={
            "title": config.get("title", ""),
            "versions": dict(state.versions),
            "config": state.config,
        },
        timeless=config.get("model", {}).get("type") == "stencil",
        find_maps=functools.partial(_maps_of, state),
    )


def _maps_of(state: RunState) -> tuple[CellMap, ...]:
    """The maps of the cells of a run of ours at a checkpoint, as far as its files are still
    there.
    """
    text = state.config
    if "regions" not in text:  # most have none, and building takes a while
        return ()
    from tetris_sim.outputs.checkpoint import resumed

    with contextlib.suppress(TetrisError, OSError):
        config = read_config(text, name=results.CONFIG, base=Path.cwd(), environ={})
        return cell_maps(resumed(config.build(dt=state.dt), state))
    log.warning("materials are not known: the files that the configuration names are not there")
    return ()


def _numbers(steps: list[int]) -> str:
    return listed([str(step) for step in steps], "and")
