"""A series as one VTKHDF file (ImageData, format 2), which ParaView 5.12 and newer read.

Where an axis is graded it is a RectilinearGrid, which the format has since 2.7 (VTK 9.7 reads it).
Points are cell centres, so values are cell data, and the box has its true size. The axes that a 1D
or 2D field lacks have no thickness here, unlike in XDMF.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import arithmetic_of
from tetris_sim.outputs.blocks import blocks, chunk_shape, slices
from tetris_sim.outputs.parts import in_space
from tetris_sim.outputs.series import Series
from tetris_sim.support.files import atomic_hdf5

VERSION = (2, 0)  # the first with time steps
_GRADED_VERSION = (2, 7)  # the first with a RectilinearGrid


def write_vtkhdf(series: Series, records: Sequence[int], path: Path) -> None:
    """Write the given records of a series.

    Args:
        series: where the values are.
        records: which of them, ascending.
        path: the file to write.
    """
    grid = series.grid
    with atomic_hdf5(path) as file:
        root = file.create_group("VTKHDF")
        steps = root.create_group("Steps")
        (_write_rectilinear if grid.is_graded else _write_image)(root, grid, len(records))

        steps.attrs["NSteps"] = len(records)
        steps["Values"] = np.array([series.times[record] for record in records])
        offsets = steps.create_group("CellDataOffsets")
        values = root.create_group("CellData")
        for k, variable in enumerate(series.variables):
            offsets[variable.name] = np.arange(len(records), dtype=np.int64)
            _write_values(values, series, records, k)


def _write_image(root: Any, grid: Grid, _: int) -> None:
    """The mesh: cells of one width per axis."""
    root.attrs["Version"] = np.array(VERSION, dtype=np.int64)
    # A string of fixed length, or VTK does not find it.
    root.attrs["Type"] = np.bytes_("ImageData")

    cells = in_space(grid, grid.shape, 0)[::-1]
    root.attrs["WholeExtent"] = np.array([bound for n in cells for bound in (0, n)], dtype=np.int64)
    corner = [p - h / 2 for p, h in zip(grid.origin, grid.spacing, strict=True)]
    root.attrs["Origin"] = np.array(in_space(grid, corner, 0.0, grid.cut)[::-1])
    root.attrs["Spacing"] = np.array(in_space(grid, grid.spacing, min(grid.spacing))[::-1])
    root.attrs["Direction"] = np.eye(3).ravel()


def _write_rectilinear(root: Any, grid: Grid, n_records: int) -> None:
    """The mesh: the ends of the cells along each axis, which all records share."""
    root.attrs["Version"] = np.array(_GRADED_VERSION, dtype=np.int64)
    root.attrs["Type"] = np.bytes_("RectilinearGrid")

    cut = [(name, np.array([place])) for name, place in grid.cut]
    ends = in_space(grid, [grid.ends(axis) for axis in range(grid.ndim)], np.zeros(1), cut)[::-1]
    root.attrs["Dimensions"] = np.array([len(nodes) for nodes in ends], dtype=np.int32)
    for name, nodes in zip("XYZ", ends, strict=True):
        root[f"{name}Coordinates"] = nodes
        root[f"Steps/{name}CoordinatesOffsets"] = np.zeros(n_records, dtype=np.int64)


def _write_values(group: Any, series: Series, records: Sequence[int], variable: int) -> None:
    shape, dtype = series.grid.shape, arithmetic_of(series.dtype)  # VTK has no float16
    itemsize = dtype.itemsize
    # VTK wants as many axes as the box has thickness along, and time before them.
    dataset = group.create_dataset(
        series.variables[variable].name,
        shape=(len(records), *shape),
        dtype=dtype,
        chunks=(1, *chunk_shape(shape, itemsize)),
    )
    for i, record in enumerate(records):
        for box in blocks(shape, itemsize, multiple=chunk_shape(shape, itemsize)):
            dataset[(i, *slices(box))] = series.read(record, variable, box)
