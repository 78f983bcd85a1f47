"""Which points belong to a place: boxes, conditions and files of labels as functions of a box of
global indices.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.body import BoxSection, Place, RegionSection
from tetris_sim.apps.initial import first_place, positions, shape_of
from tetris_sim.apps.initial_file import (
    HDF5_SUFFIXES,
    Box,
    existing_file,
    open_hdf5,
    open_npy,
    read_grey,
)
from tetris_sim.errors import ConfigError
from tetris_sim.model.formula import ExpressionError, compile_expression
from tetris_sim.model.grid import Grid

Mask = npt.NDArray[np.bool_]
Shape = Callable[[Box], Mask | None]  # None where no point of the box belongs
Labels = Callable[[Box], npt.NDArray[Any]]


def make_shape(place: Place, grid: Grid, key: str) -> Shape:
    """The points of a place.

    Args:
        place: its box and its condition.
        grid: where points lie.
        key: of the place, for messages.

    Raises:
        ConfigError: the condition is no expression of the grid's axes. The function raises it where
            the condition is not finite.
    """
    spans = None if place.box is None else indices(place.box, grid)
    condition = None if place.where is None else make_condition(place.where, grid, f"{key}.where")

    def shape(box: Box) -> Mask | None:
        inside = np.ones(shape_of(box), np.bool_)
        for axis, span in enumerate(spans or ()):
            low, high = (min(max(i - box[axis][0], 0), inside.shape[axis]) for i in span)
            if low >= high:
                return None
            along = np.moveaxis(inside, axis, 0)
            along[:low], along[high:] = False, False
        if condition is not None:
            inside &= condition(box)
        return inside

    return shape


def indices(box: BoxSection, grid: Grid) -> Box:
    """The global indices of the cells whose centres lie in a box, array order; maybe none."""
    spans = []
    for axis, name in enumerate(grid.axis_names):
        span = getattr(box, name)
        if span is None:
            spans.append((0, grid.shape[axis]))
        else:
            low, high = (_first_beyond(grid, axis, place) for place in span)
            spans.append((low, high))
    return tuple(spans)


def _first_beyond(grid: Grid, axis: int, place: float) -> int:
    """The first point at or beyond a place [m]."""

    def at(index: int) -> float:
        return float(grid.coordinates(axis, index, index + 1)[0])

    return bisect.bisect_left(range(grid.shape[axis]), place, key=at)


def make_condition(text: str, grid: Grid, key: str) -> Callable[[Box], Mask]:
    """A condition in x, y, z as a function of a box.

    Raises:
        ConfigError: it is no expression; the function raises it where it is not finite.
    """
    try:
        expression = compile_expression(text, grid.axis_names)
    except ExpressionError as error:
        msg = f"{key}: {error}"
        raise ConfigError(msg) from error

    def condition(box: Box) -> Mask:
        values = expression(**dict(zip(grid.axis_names, positions(grid, box), strict=True)))
        found = np.broadcast_to(np.asarray(values, np.float64), shape_of(box))
        if not np.isfinite(found).all():
            place, where = first_place(~np.isfinite(found), grid, box)
            msg = f"{key}: the expression is {found[place]} at {where}; it must be finite"
            raise ConfigError(msg)
        return np.not_equal(found, 0.0)

    return condition


def open_labels(region: RegionSection, grid: Grid, key: str) -> Labels:
    """A function that reads the labels of any box of the grid.

    Args:
        region: with `labels`.
        grid: where points lie.
        key: of the region, for messages.

    Raises:
        ConfigError: the file is missing, cannot be read, or does not fit the grid.
    """
    assert region.labels is not None
    path, at = existing_file(region.labels, f"{key}.labels"), f"{key}.labels"
    suffix = path.suffix.lower()
    if region.dataset is not None and suffix not in HDF5_SUFFIXES:
        msg = f"{key}.dataset: {path} is no HDF5 file, so it has no datasets"
        raise ConfigError(msg)

    if suffix == ".stl":
        from tetris_sim.apps.solid_file import open_solid

        return open_solid(path, region.scale, region.offset, grid, at)
    if suffix == ".npy":
        return open_npy(path, grid, at)
    if suffix in HDF5_SUFFIXES:
        return open_hdf5(path, region.dataset, grid, at)
    return _open_picture(path, grid, at)


def _open_picture(path: Path, grid: Grid, key: str) -> Labels:
    """Brightness from 0 to 255 over x and y, the same for all z."""
    if grid.ndim == 1:
        msg = f"{key}: {path} is a picture of x and y, and the grid has one axis"
        raise ConfigError(msg)
    plane = Grid(grid.shape[-2:], grid.spacing[-2:], grid.origin[-2:])
    grey = np.rint(255 * read_grey(path, plane, key)).astype(np.uint8)
    upright = grey[::-1]  # the first row of a picture is its top, where y is largest

    def read(box: Box) -> npt.NDArray[Any]:
        part = upright[tuple(slice(*span) for span in box[-2:])]
        return np.broadcast_to(part, shape_of(box))

    return read
