"""Which points lie inside a closed surface of triangles (STL)?

A line along x through every row of cell centres is cut with all triangles; between an odd cut and
the next even one it is inside. Whether a line meets a triangle is decided with the signs of three
areas, and a line exactly through an edge that two triangles share counts for one of them, so that a
closed surface has an even number of cuts on every line. (trimesh, which reads and checks the file,
tests points one by one; a body of 10^8 cells needs lines.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.initial_file import Box, Reader
from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import Grid

Numbers = npt.NDArray[np.float64]


def open_solid(path: Path, scale: float, offset: tuple[float, ...], grid: Grid, key: str) -> Reader:
    """A function that gives 1 for the points of a box that lie inside and 0 for the others.

    Args:
        path: the STL file.
        scale: unit of its coordinates [m].
        offset: where its origin lies, x, y, z [m].
        grid: of three axes.
        key: for messages.

    Raises:
        ConfigError: the file cannot be read, its surface is not closed, or trimesh is missing.
    """
    if grid.ndim != 3:
        msg = f"{key}: {path} is a body in space, and the grid has {grid.ndim} axes; it needs three"
        raise ConfigError(msg)
    triangles = _read(path, key) * scale + np.array(offset)
    y, z = grid.coordinates(1), grid.coordinates(0)
    lines, cuts = _cuts(triangles, y, z)
    order = np.lexsort((cuts, lines))
    lines, cuts = lines[order], cuts[order]
    starts = np.searchsorted(lines, np.arange(len(y) * len(z) + 1))
    x = grid.coordinates(2)

    def read(box: Box) -> npt.NDArray[np.uint8]:
        inside = np.zeros([high - low for low, high in box], np.uint8)
        centres = x[slice(*box[2])]
        for k in range(*box[0]):
            for j in range(*box[1]):
                line = k * len(y) + j
                found = cuts[starts[line] : starts[line + 1]]
                if len(found):
                    inside[k - box[0][0], j - box[1][0]] = np.searchsorted(found, centres) % 2
        return inside

    return read


def _read(path: Path, key: str) -> Numbers:
    """Corners of the triangles, (n, 3, 3), as the file has them."""
    try:
        import trimesh
    except ImportError as error:
        msg = f"{key}: {path} needs trimesh, which is not installed: pip install 'tetris-sim[stl]'"
        raise ConfigError(msg) from error

    try:
        mesh: Any = trimesh.load_mesh(path)
        corners = np.asarray(mesh.triangles, np.float64)
    except Exception as error:  # a damaged file makes it raise whatever comes
        msg = f"{key}: {path} cannot be read as a surface of triangles ({error})"
        raise ConfigError(msg) from error
    if not len(corners):
        msg = f"{key}: {path} holds no triangles"
        raise ConfigError(msg)
    if not mesh.is_watertight:
        msg = (
            f"{key}: the surface in {path} is not closed, so it has no inside; mend it in the "
            "program that wrote it"
        )
        raise ConfigError(msg)
    return corners


def _cuts(triangles: Numbers, y: Numbers, z: Numbers) -> tuple[npt.NDArray[np.int64], Numbers]:
    """Where lines along x meet triangles: the number of each line, k * len(y) + j, and x [m]."""
    lines, cuts = [], []
    for corners in triangles:
        low, high = corners[:, 1:].min(axis=0), corners[:, 1:].max(axis=0)
        columns = np.arange(*np.searchsorted(y, (low[0], high[0])) + np.array([0, 1]))
        rows = np.arange(*np.searchsorted(z, (low[1], high[1])) + np.array([0, 1]))
        columns, rows = columns[columns < len(y)], rows[rows < len(z)]
        if not len(columns) or not len(rows):
            continue

        meets, x = _meets(corners, y[columns][None, :], z[rows][:, None])
        k, j = np.nonzero(meets)
        lines.append(rows[k] * len(y) + columns[j])
        cuts.append(x[k, j])
    if not lines:
        return np.empty(0, np.int64), np.empty(0)
    return np.concatenate(lines), np.concatenate(cuts)


def _meets(corners: Numbers, y: Numbers, z: Numbers) -> tuple[npt.NDArray[np.bool_], Numbers]:
    """Whether lines (y, z) along x meet a triangle, and at which x."""
    weights, left = [], []
    for n in range(3):
        a, b = corners[(n + 1) % 3], corners[(n + 2) % 3]
        # The two triangles of an edge see it in opposite directions: computed from the same end,
        # their areas are exactly opposite.
        swapped = tuple(b[1:]) < tuple(a[1:])
        first, last = (b, a) if swapped else (a, b)
        dy, dz = last[1] - first[1], last[2] - first[2]
        area = (dy * (z - first[2]) - dz * (y - first[1])) * (-1 if swapped else 1)
        # A line on the edge belongs to the triangle that sees the edge this way round.
        left.append((area > 0) | ((area == 0) & (not swapped)))
        weights.append(area)

    total = sum(weights)
    inside = (left[0] & left[1] & left[2]) | ~(left[0] | left[1] | left[2])
    with np.errstate(invalid="ignore", divide="ignore"):
        x = sum(weight * corner[0] for weight, corner in zip(weights, corners, strict=True)) / total
    return inside & (total != 0), np.asarray(x)
