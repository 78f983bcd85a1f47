"""Where do materials meet on a picture? Lines between cells, long ones instead of many short."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# Share of cell faces that lie between materials, above which lines would hide what they outline;
# among so few cells they do not.
_MOST, _FEW = 0.15, 2500

Numbers = npt.NDArray[np.float64]


def borders(materials: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Indices of the points of a line after which another material begins, (n,).

    >>> borders(np.array([0, 0, 2, 2, 1])).tolist()
    [1, 3]
    """
    return np.flatnonzero(np.diff(materials))


def outlines(materials: npt.NDArray[np.int64], edges: tuple[Numbers, Numbers]) -> Numbers:
    """Lines around the materials of a map, (n, 2, 2): two ends with (x, y) each; none where they
    would cover the map.

    >>> corner = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    >>> outlines(corner, (np.arange(4.0), np.arange(5.0))).tolist()
    [[[0.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]]]

    Args:
        materials: numbers of materials, (rows, columns).
        edges: of the cells, (rows + 1,) and (columns + 1,).
    """
    below, beside = (np.diff(materials, axis=axis) != 0 for axis in (0, 1))
    share = (below.sum() + beside.sum()) / max(1, below.size + beside.size)
    if share > _MOST and materials.size > _FEW:
        return np.zeros((0, 2, 2))
    y, x = edges
    row, columns = _runs(below)
    level = np.stack([x[columns], np.repeat(y[row + 1][:, None], 2, axis=1)], axis=-1)
    column, rows = _runs(beside.T)
    steep = np.stack([np.repeat(x[column + 1][:, None], 2, axis=1), y[rows]], axis=-1)
    return np.concatenate([level, steep])


def _runs(true: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Runs of true along the rows: the row of each, (n,), and where it begins and ends, (n, 2)."""
    changes = np.diff(np.pad(true.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, begins = np.nonzero(changes == 1)
    return rows, np.stack([begins, np.nonzero(changes == -1)[1]], axis=1)
