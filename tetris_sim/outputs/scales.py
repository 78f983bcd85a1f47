"""Dimension scales: the datasets of an HDF5 file that say where and when its values lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetris_sim.grid import Grid


def add_positions(group: Any, grid: Grid, *, spacing: bool = True) -> list[Any]:
    """A scale per axis of the grid, named x, y or z: positions of the points [m], array order.

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

    for name, position in grid.cut:  # a number, not an axis
        scalar = group.create_dataset(name, data=np.float64(position))
        scalar.attrs.update({"units": "m", "long_name": f"position along {name}"})
    return scales


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
