"""Result: what a run left behind, for Python: fields, probes, statistics, report and pictures.

Everything is read when it is asked for, from the results directory. Only the last state of a run
that writes no fields is kept in memory. xarray and pandas are optional; what needs them says so.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from tetris_sim.config import Config, load_config
from tetris_sim.config.sections.quantities import Quantity
from tetris_sim.config.sections.units import UnitError, convert
from tetris_sim.errors import CheckpointError, ConfigError, UnsupportedError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs import results
from tetris_sim.outputs.checkpoint import open_checkpoint, resumed
from tetris_sim.outputs.drawing import Drawing
from tetris_sim.outputs.figure_layout import Caption, moment
from tetris_sim.outputs.materials import CellMap, cell_maps, sample_materials, show_body
from tetris_sim.outputs.pictures import as_image, draw_state
from tetris_sim.outputs.sampling import cuts_at, default_cuts, sample
from tetris_sim.outputs.series import Series, SeriesVariable, Values, open_fields
from tetris_sim.outputs.tables import FILE as STATISTICS
from tetris_sim.outputs.tables import FOLDER as PROBES
from tetris_sim.outputs.tables import read_table
from tetris_sim.simulation.report import Report, pace_of, read_report
from tetris_sim.simulation.resuming import newest_checkpoint
from tetris_sim.support.wording import format_time, listed, suggestion, table

if TYPE_CHECKING:
    import pandas
    import xarray

# What xarray gets: lazily read fields with units, and `.tetris` for units and times.
#
# fields.tetris.at("5 ms") # linear between the two records around fields.tetris.to(temperature="K",
# x="mm")

_TIME = Quantity("a time", "s", ("2 s", "5 ms"), "nonnegative")

Opened = Callable[[], AbstractContextManager[Series]]


class _Lazy(BackendArray):  # type: ignore[misc]
    """One variable of a series, (records, n0, ...); the file is open only while it is read.

    A map of the cells has one record.
    """

    def __init__(self, opened: Opened, series: Series, folder: object, **which: int) -> None:
        self._opened, self._which = opened, which
        self._folder = folder  # a temporary one stays as long as anybody may read
        is_map = "map" in which
        self.shape = (1 if is_map else len(series.steps), *series.grid.shape)
        self.dtype = series.maps[which["map"]].dtype if is_map else series.dtype

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> Values:
        """The values at integers and slices, from the smallest box around them."""
        # Resolved to plain indices, so that negative steps and single numbers need no cases of
        # their own.
        wanted = [np.arange(n)[part] for n, part in zip(self.shape, key, strict=True)]
        shape = tuple(it.size for it in wanted if it.ndim)
        records, *places = (np.atleast_1d(it) for it in wanted)
        if not all(it.size for it in (records, *places)):
            return np.empty(shape, self.dtype)

        # The smallest box that holds all of them is read, then thinned out in memory.
        box = tuple((int(it.min()), int(it.max()) + 1) for it in places)
        inside = np.ix_(*(it - low for it, (low, _) in zip(places, box, strict=True)))
        with self._opened() as series:
            if "map" in self._which:
                numbers = series.maps[self._which["map"]].read(box)
                return np.asarray(numbers[inside].reshape(shape))
            variable = self._which["variable"]
            values = [series.read(int(it), variable, box)[inside] for it in records]
        return np.stack(values).reshape(shape)


def make_dataset(opened: Opened, folder: object = None) -> xarray.Dataset:
    """A series as a dataset; values are read when they are looked at.

    Args:
        opened: opens the series.
        folder: kept as long as the dataset and what is made of it.
    """
    with opened() as series:
        grid = series.grid
        axes = ("time", *grid.axis_names)
        coordinates: dict[str, Any] = {
            "time": ("time", np.array(series.times), {"units": "s", "long_name": "simulated time"}),
            "step": ("time", np.array(series.steps), {"units": "1", "long_name": "time steps"}),
        }
        for axis, name in enumerate(grid.axis_names):
            attributes = {"units": grid.system.unit(name), "long_name": f"position along {name}"}
            coordinates[name] = (name, grid.coordinates(axis), attributes)
        for name, place in grid.cut:
            attributes = {"units": grid.system.unit(name), "long_name": f"position along {name}"}
            coordinates[name] = ((), place, attributes)

        for k, it in enumerate(series.maps):
            lazy = indexing.LazilyIndexedArray(_Lazy(opened, series, folder, map=k))
            flags = xarray.Variable(axes, lazy, it.attributes)
            coordinates[it.name] = flags.isel(time=0)

        variables = {
            variable.name: (
                axes,
                indexing.LazilyIndexedArray(_Lazy(opened, series, folder, variable=k)),
                {"units": variable.unit, "long_name": variable.long_name},
            )
            for k, variable in enumerate(series.variables)
        }
        title = str(series.meta.get("title", ""))
        return xarray.Dataset(variables, coordinates, {"title": title} if title else {})


class _Units:
    """Units and times of a dataset or an array.

    Args:
        data: whose attributes `units` say what its numbers are.
    """

    def __init__(self, data: Any) -> None:
        self._data = data

    def at(self, time: str | float) -> Any:
        """The state at a time, "5 ms" or in seconds: linear between the records around it.

        Raises:
            ConfigError: there is no record before or after it.
        """
        try:
            wanted = _TIME.read(time)
        except ValueError as error:
            msg = f"time: {error}"
            raise ConfigError(msg) from error

        unit = self._data["time"].attrs.get("units", "s")
        times = np.array([convert(repr(float(t)), unit, "s") for t in self._data["time"].values])
        # Times of records are multiples of a step in floating point, so equality needs room.
        slack = 1e-9 * max(abs(wanted), float(np.abs(times).max(initial=0.0)))
        if not times.min(initial=np.inf) - slack <= wanted <= times.max(initial=-np.inf) + slack:
            msg = f"time {time!r}: the records are from {times.min():g} s to {times.max():g} s"
            raise ConfigError(msg)

        # The record at or after the time; the one before it is its neighbour in the interpolation.
        after = min(int(np.searchsorted(times, wanted - slack)), len(times) - 1)
        later = self._data.isel(time=after)
        if abs(times[after] - wanted) <= slack:
            return later
        earlier = self._data.isel(time=after - 1)
        share = (wanted - times[after - 1]) / (times[after] - times[after - 1])
        with xarray.set_options(keep_attrs=True):
            mixed = earlier * (1 - share) + later * share
        here = float(earlier["time"]) * (1 - share) + float(later["time"]) * share
        return mixed.assign_coords(time=((), here, dict(self._data["time"].attrs)))

    def to(self, unit: str | None = None, **units: str) -> Any:
        """The same in other units.

        Args:
            unit: of the values of an array.
            units: of coordinates and of the variables of a dataset, by name.

        Raises:
            ConfigError: a name or a unit is not there, or does not fit.
        """
        data = self._data.copy()
        if unit is not None:
            if isinstance(data, xarray.Dataset):
                msg = "a dataset has several units; name them: to(temperature='K', x='mm')"
                raise ConfigError(msg)
            data = _converted(data, unit)

        for name, wanted in units.items():
            there = {*data.coords, *(data.data_vars if isinstance(data, xarray.Dataset) else ())}
            if name not in there:
                msg = f"there is no {name!r} to convert; {listed(sorted(map(str, there)))} is"
                raise ConfigError(msg)
            changed = _converted(data[name], wanted)
            if name in data.coords:
                data = data.assign_coords({name: (data[name].dims, changed.values, changed.attrs)})
            else:
                data[name] = changed
        return data


def _converted(array: xarray.DataArray, unit: str) -> xarray.DataArray:
    """An array in another unit; all conversions are affine."""
    have = str(array.attrs.get("units", "1"))
    try:
        # Two points define an affine conversion: degC to K has an offset, mm to m has none.
        zero = convert("0", "dimensionless" if have == "1" else have, unit)
        one = convert("1", "dimensionless" if have == "1" else have, unit)
    except UnitError as error:
        msg = f"{array.name} is in {have}: {error}, and {unit} is wanted"
        raise ConfigError(msg) from error
    factor = one - zero if zero else one
    changed = array * factor + zero if zero else array * factor
    changed.attrs = {**array.attrs, "units": unit}
    return changed


xarray.register_dataset_accessor("tetris")(_Units)
xarray.register_dataarray_accessor("tetris")(_Units)


_LENGTH = Quantity("a length", "m", ("2 mm",))


class Folder:
    """A results directory, removed with the last object that refers to it if it is temporary."""

    def __init__(self, path: Path, *, temporary: bool = False) -> None:
        self.path = path
        if temporary:
            weakref.finalize(self, _remove, path, os.getpid())


def _remove(path: Path, process: int) -> None:
    """Remove a folder, unless this is a forked child of the process that made it."""
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class States:
    """States of a run that are kept in memory.

    Attributes:
        problem: as people see it.
        steps: number of steps that each has behind it.
        times: simulated [s].
        fields: the states, each (n_fields, n0, ...).
    """

    problem: Problem
    steps: tuple[int, ...]
    times: tuple[float, ...]
    fields: tuple[Field, ...]

    def series(self, path: Path, title: str) -> Series:
        """They as a series; `path` is where the rest of their run lies."""

        def read(record: int, variable: int, box: Box) -> Values:
            return np.asarray(self.fields[record][variable][tuple(slice(*span) for span in box)])

        def maps_at(record: int) -> tuple[CellMap, ...]:
            return cell_maps(self.problem.at(self.steps[record]))

        variables = (SeriesVariable(v.name, v.unit, v.long_name) for v in self.problem.variables)
        return Series(
            path=path,
            grid=self.problem.grid,
            dtype=self.fields[0].dtype,
            variables=tuple(variables),
            steps=self.steps,
            times=self.times,
            read=read,
            place=lambda record, variable: (path, "", ()),
            meta={"title": title},
            timeless=not np.isfinite(self.problem.dt_limit),
            find_maps=functools.partial(cell_maps, self.problem),
            find_maps_at=None if self.problem.phases is None else maps_at,
        )


def join_states(parts: Sequence[States]) -> States:
    """States of one run in the order of time, as one."""
    return States(
        parts[-1].problem,
        tuple(step for it in parts for step in it.steps),
        tuple(time for it in parts for time in it.times),
        tuple(state for it in parts for state in it.fields),
    )


@dataclass(frozen=True, eq=False)
class Result:
    """Files and numbers of a finished run.

    Attributes:
        config: what was asked for.
        report: how fast it was, where the time went, and why.
    """

    config: Config
    report: Report
    _folder: Folder = field(repr=False)
    _last: States | None = field(default=None, repr=False)

    @property
    def directory(self) -> Path:
        """Where the files lie. Those of a run that was given no directory are removed with the
        result and what was made of it.
        """
        return self._folder.path

    @property
    def time(self) -> float:
        """Simulated time at the end [s]."""
        return self.report.time_s

    @property
    def fields(self) -> xarray.Dataset:
        """The fields over time, read from the disk where they are looked at; the last state if the
        configuration asks for no `output.fields`.
        """
        return self._dataset("fields")

    def part(self, name: str) -> xarray.Dataset:
        """The same of one of `output.parts`.

        Raises:
            ConfigError: the run has no part of that name.
        """
        names = [part.name for part in self.config.output.parts]
        if name not in names:
            there = f"{listed(names)} is there" if names else "it has none"
            msg = f"output.parts has no {name!r}{suggestion(name, names)}; {there}"
            raise ConfigError(msg)
        return self._dataset(f"fields-{name}")

    def field(self, name: str | None = None) -> Values:
        """The last state of a field as a NumPy array, (n0, ...); of the first if there are several.
        That of a complex field is complex.

        Raises:
            ConfigError: there is no such field.
        """
        with self._series("fields") as series:
            box = tuple((0, n) for n in series.grid.shape)
            there = {variable.name for variable in series.variables}
            # A complex field is there by its parts.
            first = name or series.variables[0].name.removesuffix("_real")
            if first not in there and f"{first}_real" in there:
                parts = [self.field(f"{first}_{which}") for which in ("real", "imag")]
                return np.asarray(parts[0] + 1j * parts[1])
            return series.read(len(series.steps) - 1, _variable(series, name), box)

    @property
    def probes(self) -> dict[str, pandas.DataFrame]:
        """Records of each probe, by its name: a row per record, with the time [s] as index."""
        paths = sorted((self.directory / PROBES).glob("*.csv"))
        return {path.stem: self._frame(path) for path in paths}

    @property
    def statistics(self) -> pandas.DataFrame:
        """Minimum, maximum, mean, total and balances: a row per record, with the time as index.

        Raises:
            ConfigError: the configuration asks for no `output.statistics`.
        """
        path = self.directory / STATISTICS
        if not path.exists():
            msg = "no statistics were written; ask for them with output.statistics: {every: ...}"
            raise ConfigError(msg)
        return self._frame(path)

    def plot(
        self,
        name: str | None = None,
        *,
        time: str | float | None = None,
        cut: dict[str, str | float] | None = None,
    ) -> Drawing:
        """A picture of a field; a notebook shows it, and `save(path)` writes it.

        Args:
            name: which field; the first one if not given.
            time: the record nearest to it, "5 ms" or in seconds; the last one if not given.
            cut: where to cut a 3D field, {"z": "2 mm"}; through the middle if not given.

        Raises:
            ConfigError: there is no such field or place.
        """
        with self._series("fields") as series:
            variable, record = _variable(series, name), len(series.steps) - 1
            if time is not None:
                wanted = _read(_TIME, "time", time)
                record = int(np.argmin([abs(t - wanted) for t in series.times]))
            places = [(axis, _read(_LENGTH, f"cut.{axis}", it)) for axis, it in (cut or {}).items()]
            cuts = cuts_at(series.grid, places) if places else default_cuts(series.grid)

            planes = sample(functools.partial(series.read, record, variable), series.grid, cuts)
            planes = show_body(planes, sample_materials(series.maps_at(record), series.grid, cuts))
            shown = series.variables[variable]
            heading = str(series.meta.get("title", "")) or shown.long_name
            caption = Caption(shown.long_name, shown.unit, heading)
            when = moment(series.steps[record], series.times[record], timeless=series.timeless)
            return draw_state(planes, caption, moment=when)

    def __repr__(self) -> str:
        """The first line of the report and where the rest is."""
        return f"Result({self.report.headline!r}, directory='{self.directory}')"

    def _repr_html_(self) -> str:
        report, pace = self.report, pace_of(self.report.as_json())
        rows_of_end = [
            ("ended", f"{report.ended}, step {report.step} of {report.steps}"),
            ("simulated time", format_time(report.time_s)),
        ]
        # A steady state has one step and no time, which are numbers of the solver alone.
        if report.scheme == "steady":
            rows_of_end = [("ended", f"{report.ended}, steady state")]
        rows = [
            *rows_of_end,
            ("points", f"{report.points:,} of {report.precision}"),
            ("computed", ", ".join(filter(None, (pace, f"{report.wall_s:.2g} s in all")))),
            ("method", ", ".join(sorted(set(report.methods.values())))),
            ("directory", str(self.directory)),
        ]
        return table(self.config.title or "Result", rows, picture=as_image(self.plot()))

    @contextlib.contextmanager
    def _series(self, folder: str) -> Iterator[Series]:
        path = self.directory / f"{folder}.h5"
        if folder == "fields" and self.config.output.fields is None and self._last is not None:
            yield self._last.series(self.directory, self.config.title)
        else:
            with open_fields(path) as series:
                yield series

    def _dataset(self, folder: str) -> xarray.Dataset:
        if missing := _missing("xarray"):
            raise missing

        return make_dataset(functools.partial(self._series, folder), self._folder)

    def _frame(self, path: Path) -> pandas.DataFrame:
        if missing := _missing("pandas"):
            raise missing
        import pandas

        header, rows = read_table(path)
        frame = pandas.DataFrame(rows, columns=header).astype({"step": int})
        return frame.set_index("time [s]")


def open_result(directory: str | Path) -> Result:
    """The result of a run that has written into a directory, also one of the command line.

    Raises:
        CheckpointError: no run has ended here, or its files are damaged.
    """
    path = Path(directory)
    try:
        report = read_report(path / results.REPORT_JSON)
    except CheckpointError as error:
        msg = f"{path} holds no report of a run ({error}); give the results directory of one"
        raise CheckpointError(msg) from error

    if not (path / results.CONFIG).is_file():
        msg = f"{path} holds no {results.CONFIG}; give the results directory of a run"
        raise CheckpointError(msg)
    config = load_config(path / results.CONFIG, environ={}, in_space=False)
    last = None if config.output.fields is not None else _saved(path)
    return Result(config, report, Folder(path), last)


def _saved(directory: Path) -> States | None:
    """The state of the newest checkpoint; None if there is none."""
    try:
        path = newest_checkpoint(directory)
    except CheckpointError:
        return None
    with open_checkpoint(path, verify=False) as checkpoint:
        state, config = checkpoint.state, load_config(directory / results.CONFIG, in_space=False)
        problem = resumed(config.build(dt=state.dt), state)
        box = tuple((0, n) for n in problem.grid.shape)
        seen = (
            checkpoint.read(box)
            if problem.view is None
            else problem.view.look(box, checkpoint.read(box))
        )
        return States(problem.seen, (state.step,), (state.time,), (seen,))


def _variable(series: Series, name: str | None) -> int:
    names = [variable.name for variable in series.variables]
    if name is not None and name not in names:
        msg = f"there is no field {name!r}{suggestion(name, names)}; {listed(names)} is there"
        raise ConfigError(msg)
    return 0 if name is None else names.index(name)


def _read(quantity: Quantity, key: str, value: str | float) -> float:
    try:
        return quantity.read(value)
    except ValueError as error:
        msg = f"{key}: {error}"
        raise ConfigError(msg) from error


def _missing(package: str) -> UnsupportedError | None:
    """Return the error for an optional package that is not installed, None if it is."""
    import importlib.util

    if importlib.util.find_spec(package) is not None:
        return None
    msg = (
        f"{package} is not installed, and this is made of it: pip install 'tetris-sim[notebook]'. "
        "Without it, `field()` gives NumPy arrays, and the files in `directory` can be read"
    )
    return UnsupportedError(msg)
