"""What xarray gets: lazily read fields with units, and `.tetris` for units and times.

fields.tetris.at("5 ms")                 # linear between the two records around
fields.tetris.to(temperature="K", x="mm")
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from tetris_sim.config.sections.quantities import Quantity, UnitError, convert
from tetris_sim.errors import ConfigError
from tetris_sim.outputs.series import Series, Values
from tetris_sim.support.wording import listed

_TIME = Quantity("a time", "s", ("2 s", "5 ms"), "nonnegative")

Opened = Callable[[], AbstractContextManager[Series]]


class _Lazy(BackendArray):  # type: ignore[misc]
    """One variable of a series, (records, n0, ...); the file is open only while it is read."""

    def __init__(self, opened: Opened, variable: int, series: Series, folder: object) -> None:
        self._opened, self._variable = opened, variable
        self._folder = folder  # a temporary one stays as long as anybody may read
        self.shape = (len(series.steps), *series.grid.shape)
        self.dtype = series.dtype

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> Values:
        """The values at integers and slices, from the smallest box around them."""
        wanted = [np.arange(n)[part] for n, part in zip(self.shape, key, strict=True)]
        shape = tuple(it.size for it in wanted if it.ndim)
        records, *places = (np.atleast_1d(it) for it in wanted)
        if not all(it.size for it in (records, *places)):
            return np.empty(shape, self.dtype)

        box = tuple((int(it.min()), int(it.max()) + 1) for it in places)
        inside = np.ix_(*(it - low for it, (low, _) in zip(places, box, strict=True)))
        with self._opened() as series:
            values = [series.read(int(it), self._variable, box)[inside] for it in records]
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
            attributes = {"units": "m", "long_name": f"position along {name}"}
            coordinates[name] = (name, grid.coordinates(axis), attributes)
        for name, place in grid.cut:
            coordinates[name] = ((), place, {"units": "m", "long_name": f"position along {name}"})

        variables = {
            variable.name: (
                axes,
                indexing.LazilyIndexedArray(_Lazy(opened, k, series, folder)),
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
        slack = 1e-9 * max(abs(wanted), float(np.abs(times).max(initial=0.0)))
        if not times.min(initial=np.inf) - slack <= wanted <= times.max(initial=-np.inf) + slack:
            msg = f"time {time!r}: the records are from {times.min():g} s to {times.max():g} s"
            raise ConfigError(msg)

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
