"""Dimension scales: the datasets of an HDF5 file that say where and when its values lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetris_sim.model.grid import AXIS_NAMES, Grid

_BOUNDS = "_bounds"
_BOUND = "bound"  # the axis along which the two ends of a cell lie
# What NetCDF-4 writes as the name of a scale that is a dimension and nothing else.
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. {:9d}"


def add_positions(group: Any, grid: Grid, *, spacing: bool = True) -> list[Any]:
    """A scale per axis of the grid, named x, y or z: positions of the points [m], array order.

    Beside those of a graded axis lie the ends of its cells, as the CF conventions (1.12, section
    7.1, "Cell Boundaries") have them.

    Args:
        group: where they go.
        grid: the points.
        spacing: whether each says how far its points are apart; a single point does not show it.
    """
    scales = []
    for axis, name in enumerate(grid.axis_names):
        scale = group.create_dataset(name, data=grid.coordinates(axis))
        scale.make_scale(name)
        scale.attrs.update(
            {"units": "m", "long_name": f"position along {name}", "axis": name.upper()}
        )
        if spacing:
            scale.attrs["spacing"] = np.float64(grid.spacing[axis])
        scales.append(scale)
        if grid.edges and (ends := grid.edges[axis]) is not None:
            _add_bounds(group, scale, name, ends)

    for name, position in grid.cut:  # a number, not an axis
        scalar = group.create_dataset(name, data=np.float64(position))
        scalar.attrs.update({"units": "m", "long_name": f"position along {name}"})
    return scales


def _add_bounds(group: Any, scale: Any, name: str, ends: Sequence[float]) -> None:
    """Where each cell along a graded axis begins and ends [m], (n, 2)."""
    if _BOUND not in group:
        both = group.create_dataset(_BOUND, data=np.zeros(2, np.float32))
        both.make_scale(_NO_VARIABLE.format(2))
    bounds = group.create_dataset(
        f"{name}{_BOUNDS}", data=np.stack([ends[:-1], ends[1:]], axis=1, dtype=np.float64)
    )
    bounds.attrs.update({"units": "m", "long_name": f"ends of the cells along {name}"})
    for axis, along in enumerate((scale, group[_BOUND])):
        bounds.dims[axis].attach_scale(along)
    scale.attrs["bounds"] = f"{name}{_BOUNDS}"


def read_grid(group: Any) -> Grid:
    """The grid of the points whose positions lie in a group, written with their spacing."""
    present = [name for name in reversed(AXIS_NAMES) if name in group]
    names = [name for name in present if group[name].shape]
    cells = [
        group[f"{name}{_BOUNDS}"][()] if f"{name}{_BOUNDS}" in group else None for name in names
    ]
    edges = tuple(
        None if both is None else (*both[:, 0].tolist(), float(both[-1, 1])) for both in cells
    )
    return Grid(
        shape=tuple(len(group[name]) for name in names),
        spacing=tuple(float(group[name].attrs["spacing"]) for name in names),
        origin=tuple(float(group[name][0]) for name in names),
        cut=tuple((name, float(group[name][()])) for name in present if name not in names),
        edges=edges if any(edges) else (),
    )


def auxiliary(grid: Grid) -> str:
    """The attribute `coordinates` of a variable: what belongs to it besides its axes."""
    return " ".join(("step", *(name for name, _ in grid.cut)))


def add_times(group: Any, times: Sequence[float]) -> Any:
    """The scale `time` [s]."""
    scale = group.create_dataset("time", data=np.array(times, dtype=np.float64))
    scale.make_scale("time")
    scale.attrs.update({"units": "s", "long_name": "simulated time", "axis": "T"})
    return scale


def add_steps(group: Any, steps: Sequence[int], time: Any) -> None:
    """The dataset `step`, which lies along the scale `time`."""
    numbers = group.create_dataset("step", data=np.array(steps, dtype=np.int64))
    numbers.attrs.update({"units": "1", "long_name": "number of time steps"})
    numbers.dims[0].attach_scale(time)
