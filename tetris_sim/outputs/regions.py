"""Regions of a field: its values at positions between points, boxes, slices, and blocked reading.

Values between points are linear, axis by axis. Between an outermost point and the face the value on
the face takes the place of the next point: the mean of the outermost point and its ghost, to which
the boundary condition refers. So every position in the box, faces and corners included, has a value
of second order.

Where the points around a position are of different materials, or some of a fluid or a void, only
the cell that the position lies in counts: linear from its point to its own face, whose temperature
follows from the heat that flows through it. On a face between two cells, that of the body counts,
of two of the body the mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import Boundary, Side
from tetris_sim.model.conduction import Ids, Medium
from tetris_sim.model.grid import AXIS_NAMES, Grid
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.reference import rise_to_face, rise_to_neighbours
from tetris_sim.outputs.output import Snapshot

# Blocks: a grid is read block by block, so that no output needs the whole field in memory, and
# summed block by block, so that sums do not depend on the partition.

BLOCK_BYTES = 1 << 25  # 32 MiB: large enough for a disk, small compared with large fields
_RUN = 4096  # numbers that NumPy adds up pairwise before the exact summation takes over


def blocks(
    shape: Sequence[int],
    itemsize: int,
    *,
    multiple: Sequence[int] | None = None,
    limit: int = BLOCK_BYTES,
) -> Iterator[Box]:
    """Boxes that cover a grid exactly once, in storage order: runs of planes, or parts of a plane.

    A function of the grid alone, so that sums accumulated block by block are the same for any
    partition.

    >>> list(blocks((5, 4), 8, limit=64))
    [((0, 2), (0, 4)), ((2, 4), (0, 4)), ((4, 5), (0, 4))]

    Args:
        shape: points per axis.
        itemsize: bytes per point, all fields together.
        multiple: by axis, the number that the length of a block must be a multiple of where the
            axis is cut (chunks of a file).
        limit: size of a block [bytes]; exceeded only if a block of one `multiple` is larger.
    """
    # Cut the slowest axis first: blocks stay contiguous, and faster axes are cut only if one plane
    # is too large by itself.
    block = list(shape)
    for axis, unit in enumerate(multiple or (1,) * len(shape)):
        plane = math.prod(block) // block[axis] * itemsize
        if plane * block[axis] <= limit:
            break
        block[axis] = min(block[axis], max(1, limit // plane // unit) * unit)
    ranges = [
        [(start, min(start + length, n)) for start in range(0, n, length)]
        for n, length in zip(shape, block, strict=True)
    ]
    yield from itertools.product(*ranges)


def slices(box: Box) -> tuple[slice, ...]:
    """A box as an index into an array, one slice per axis."""
    return tuple(slice(low, high) for low, high in box)


def chunk_shape(shape: Sequence[int], itemsize: int, target: int = 1 << 20) -> tuple[int, ...]:
    """Chunk of a compressed dataset: whole rows, then whole planes, about `target` bytes.

    >>> chunk_shape((400, 9600), 8), chunk_shape((7, 5, 6), 8)
    ((13, 9600), (7, 5, 6))
    """
    # Fill up the fastest axis first: a chunk is then a contiguous run of rows or planes.
    chunk, room = [1] * len(shape), max(1, target // itemsize)
    for axis in range(len(shape) - 1, -1, -1):
        chunk[axis] = min(shape[axis], room)
        room //= chunk[axis]
        if room <= 1:
            break
    return tuple(chunk)


def exact_sum(numbers: npt.NDArray[np.floating[Any]]) -> float:
    """Sum of an array, exact except for rounding within runs of 4096 numbers.

    >>> exact_sum(np.full(3, 0.1))
    0.30000000000000004
    """
    # Pairwise summation of NumPy within runs of fixed length, exact summation (fsum) across them:
    # accurate, and independent of how the runs are grouped.
    flat = np.ravel(numbers)
    whole = len(flat) // _RUN * _RUN
    runs = flat[:whole].reshape(-1, _RUN).sum(axis=1, dtype=np.float64)
    return math.fsum((*runs.tolist(), float(flat[whole:].sum(dtype=np.float64))))


Cell = tuple[int, Side, float]  # see `Neighbours.cells`


@dataclass(frozen=True)
class Neighbours:
    """The points around a position along one axis, and their weights.

    The value at the position is offset + sum of weights * values.

    Attributes:
        indices: one or two global indices.
        weights: one per index; they sum to 1 except beyond the outermost points.
        offset: contribution of a face.
        beyond: for a position between an outermost point and a face with a rule: the side, and the
            share of the way to the face; the rule then adds its own contribution to the values.
        fields: where faces differ from field to field: weight and offset for each field, instead of
            those above.
        cells: of a body of several materials, the cell that the position lies in, or both of those
            that it lies between: (index, the side of the centre on which the position lies, share
            of the way from the centre to the face on this side).
    """

    indices: tuple[int, ...]
    weights: tuple[float, ...]
    offset: float = 0.0
    beyond: tuple[Side, float] | None = None
    fields: tuple[tuple[float, float], ...] = ()
    cells: tuple[Cell, ...] = ()


Along = tuple[int, int] | Neighbours  # points start..stop-1 of an axis, or a position on it


def neighbours(place: float, *, n: int, periodic: bool) -> Neighbours:
    """The points of an axis around a position given in points.

    Beyond the outermost points (between a cell centre and the face) the nearest point counts alone;
    on a periodic axis the first and the last point are neighbours there.

    >>> neighbours(0.75, n=4, periodic=False)
    Neighbours(indices=(0, 1), weights=(0.25, 0.75), offset=0.0, beyond=None, fields=(), cells=())

    Args:
        place: distance from the first point, in points; see `Grid.index_at`.
        n: number of points.
        periodic: whether the axis is periodic.
    """
    low = math.floor(place)
    weight = place - low
    if periodic:
        pair = (low % n, (low + 1) % n)
    else:
        pair = (min(max(low, 0), n - 1), min(max(low + 1, 0), n - 1))
    if weight == 0 or pair[0] == pair[1]:
        return Neighbours(pair[:1], (1.0,))
    return Neighbours(pair, (1 - weight, weight))


def neighbours_of(problem: Problem, axis: int, position: float, *, points: int = 2) -> Neighbours:
    """The points and weights for the field at a position along an axis [m], faces included.

    Args:
        problem: whose field.
        axis: array order.
        position: along it [m].
        points: along the axis; through more than 2 a polynomial goes, which knows no faces.
    """
    grid, periodic = problem.grid, problem.boundary.periodic(axis)
    n = grid.shape[axis]
    if points > 2:
        return Neighbours(*grid.interpolation(axis, position, points=points, periodic=periodic))
    found = neighbours(grid.index_at(axis, position, periodic=periodic), n=n, periodic=periodic)
    if problem.conduction is not None and problem.conduction.medium.n_ids > 1:
        found = replace(found, cells=_cells_at(grid, axis, position, periodic=periodic))

    side: Side = "low" if position < grid.origin[axis] else "high"
    last = 0 if side == "low" else n - 1
    outermost = float(grid.positions(axis, last))
    outside = (position < outermost) if side == "low" else (position > outermost)
    if periodic or not outside:
        return found

    width = float(grid.widths(axis, last, last + 1)[0])
    share = min(abs(position - outermost) / (width / 2), 1.0)  # of the way to the face
    # The value on the face depends on time and temperature: left to the rule at reading time.
    if problem.conduction is not None:
        return replace(found, beyond=(side, share))
    pairs = []
    for boundary in _boundaries(problem):
        # One ghost suffices: the one next to the face, which mirrors the outermost point.
        (a, b), *_ = boundary.reflections(axis, side, spacing=width, width=1)
        # The ghost is a + b u, so the value on the face is (u + a + b u) / 2.
        pairs.append(((1 - share) + share * (1 + b) / 2, share * a / 2))
    if len(pairs) > 1:
        return Neighbours(found.indices, (1.0,), fields=tuple(pairs))
    return Neighbours(found.indices, (pairs[0][0],), pairs[0][1])


_ON_FACE = 1e-9  # of half a width: a position on a face may be off by a rounding


def _cells_at(grid: Grid, axis: int, position: float, *, periodic: bool) -> tuple[Cell, ...]:
    """The cells of `Neighbours.cells`."""
    n = grid.shape[axis]
    cell = max(grid.cell_at(axis, position), 0)
    half = float(grid.widths(axis, cell, cell + 1)[0]) / 2
    share = (position - float(grid.positions(axis, cell))) / half
    side: Side = "low" if share < 0 else "high"
    if abs(share) < 1 - _ON_FACE:
        return ((cell, side, abs(share)),)

    beside = cell - 1 if side == "low" else cell + 1
    if not periodic and not 0 <= beside < n:
        return ((cell, side, 1.0),)
    return ((cell, side, 1.0), (beside % n, "high" if side == "low" else "low", 1.0))


def _boundaries(problem: Problem) -> tuple[Boundary, ...]:
    """The boundary conditions of every field."""
    if (equations := problem.equations) is None:
        return (problem.boundary,)
    return tuple(equations.boundaries.get(name, problem.boundary) for name in equations.fields)


def read_along(snapshot: Snapshot, axes: Sequence[Along]) -> Field:
    """The state at a product of points and positions.

    Only the points around the positions are read. Axis 0 is interpolated first, in the order in
    which ghosts are filled.

    Args:
        snapshot: the state.
        axes: a range of points or a position for each axis of the problem.

    Returns:
        (n_fields, one axis per range of points); float64 if there is a position.
    """
    ranges = [axis for axis in axes if not isinstance(axis, Neighbours)]
    if len(ranges) == len(axes):
        return snapshot.box(tuple(ranges))

    state, kept = _gather(axes, lambda box: _lifted(snapshot, axes, box)), 1
    # Contract one interpolated axis at a time; axes that remain move `kept` along.
    for axis in axes:
        if isinstance(axis, Neighbours):
            state = np.tensordot(state, np.array(axis.weights), axes=(kept, 0)) + axis.offset
            for number, (weight, offset) in enumerate(axis.fields):
                state[number] = state[number] * weight + offset
        else:
            kept += 1
    if any(isinstance(axis, Neighbours) and axis.cells for axis in axes):
        return _by_cells(snapshot, axes, state)
    return state


def _gather(axes: Sequence[Along], read: Callable[[Box], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Join what `read` gives of boxes, (n, ...), for all points that `axes` need."""
    runs = [_runs(axis) for axis in axes]

    def gather(box: Box) -> npt.NDArray[Any]:
        if len(box) == len(runs):
            return read(box)
        parts = [gather((*box, run)) for run in runs[len(box)]]
        return np.concatenate(parts, axis=1 + len(box))

    return gather(())


def _by_cells(snapshot: Snapshot, axes: Sequence[Along], smooth: Field) -> Field:
    """The state at a product of points and positions: `smooth` where the points around are alike,
    elsewhere that of the cells which the positions lie in.
    """
    medium = snapshot.problem.body.medium
    void = medium.void
    cells = {k: axis.cells for k, axis in enumerate(axes) if isinstance(axis, Neighbours)}
    across = tuple(cells)

    ids = _gather(axes, lambda box: medium.ids(box)[np.newaxis])[0]
    first = ids[tuple(slice(0, 1) if k in cells else slice(None) for k in range(ids.ndim))]
    held = np.isinf(medium.capacity)
    mixed = (~_alike(medium, first, ids) | held[ids]).any(axis=across)
    if not mixed.any():
        return smooth

    # Cells of the body come before those of fluids, and these before voids; equals are averaged.
    best, count = np.full(mixed.shape, -1), np.zeros(mixed.shape)
    total = np.zeros_like(smooth)
    for chosen in itertools.product(*cells.values()):
        own = dict(zip(across, chosen, strict=True))
        box: Box = tuple(
            (own[k][0], own[k][0] + 1) if isinstance(axis, Neighbours) else axis
            for k, axis in enumerate(axes)
        )
        values = _in_cells(snapshot, own, box).squeeze(tuple(k + 1 for k in across))
        of_cell = medium.ids(box).squeeze(across)
        nothing = False if void is None else void[of_cell]
        rank = np.where(nothing, 0, np.where(held[of_cell], 1, 2))
        total = np.where(rank > best, values, np.where(rank == best, total + values, total))
        count = np.where(rank > best, 1.0, count + (rank == best))
        best = np.maximum(best, rank)
    return np.where(mixed, total / count, smooth)


def _alike(medium: Medium, a: Ids, b: Ids) -> npt.NDArray[np.bool_]:
    """Mask of the pairs of ids that conduct like one material."""
    a, b = np.broadcast_arrays(a, b)
    found = a == b
    others = ~found
    if others.any():
        a, b = a[others], b[others]
        free = ~np.isinf(medium.capacity[a]) & ~np.isinf(medium.capacity[b])
        for table in medium.conductance:
            free &= (table[a, b] == table[a, a]) & (table[a, b] == table[b, b])
        found[others] = free
    return np.asarray(found)


def _in_cells(snapshot: Snapshot, cells: Mapping[int, Cell], box: Box) -> Field:
    """The state at positions in the cells of a box, (n_fields, ...): linear from the points to the
    faces of the cells, along each axis.

    Args:
        snapshot: the state.
        cells: where in the cells the positions lie, by axis.
        box: the cells, one along each of these axes.
    """
    problem = snapshot.problem
    medium = problem.body.medium
    points, state = np.array(snapshot.box(box), np.float64), snapshot.hidden(box)[0]
    values, ids = points.copy(), medium.ids(box)
    free = ~np.isinf(medium.capacity[ids])

    for axis, (index, side, share) in cells.items():
        n, beside = problem.grid.shape[axis], index + (-1 if side == "low" else 1)
        if not problem.boundary.periodic(axis) and not 0 <= beside < n:
            rise = rise_to_face(problem, snapshot.step, axis, side, box, state)
            values[0] += np.where(free, share * rise, 0.0)
            continue
        there = (*box[:axis], (beside % n, beside % n + 1), *box[axis + 1 :])
        states = state, snapshot.hidden(there)[0]
        rise = rise_to_neighbours(problem, axis, side, box, states, there)
        values[0] += np.where(free, share * rise, 0.0)

        # Fields that are no temperatures have kinks and jumps at other materials.
        alike = free & _alike(medium, ids, medium.ids(there))
        own, other = (float(problem.grid.widths(axis, *it[axis])[0]) for it in (box, there))
        slopes = share * own / (own + other) * (snapshot.box(there) - points)[1:]
        values[1:] += np.where(alike, slopes, 0.0)
    return values


def _lifted(snapshot: Snapshot, axes: Sequence[Along], box: Box) -> Field:
    """The state in a box in float64, extrapolated towards faces that have rules."""
    state = np.array(snapshot.box(box), np.float64)
    for number, axis in enumerate(axes):
        if isinstance(axis, Neighbours) and axis.beyond is not None:
            side, share = axis.beyond
            heat = snapshot.hidden(box)[0]
            state[0] += share * rise_to_face(
                snapshot.problem, snapshot.step, number, side, box, heat
            )
    return state


def _runs(axis: Along) -> list[tuple[int, int]]:
    """Runs of points of an axis that are read at once; two of them around a periodic seam."""
    if not isinstance(axis, Neighbours):
        return [axis]
    first, last = axis.indices[0], axis.indices[-1]
    if last - first + 1 == len(axis.indices):
        return [(first, last + 1)]
    return [(index, index + 1) for index in axis.indices]


# Output regions: the whole field, a box, or a slice.

T = TypeVar("T")
WHOLE = "fields"  # the folder of all of the field; those of its parts are fields-<name>


@dataclass(frozen=True)
class OutputRegion:
    """A part of the field.

    Attributes:
        folder: folder of its files, next to an index of the same name.
        grid: its points.
        axes: the range or position that it takes of each axis of the problem.
    """

    folder: str
    grid: Grid
    axes: tuple[Along, ...]

    def read(self, snapshot: Snapshot, box: Box) -> Field:
        """The state in a box of the part, (n_fields, ...)."""
        # Axes at a position have no extent in the part, so `box` says nothing about them.
        wanted = iter(box)
        along: list[Along] = []
        for axis in self.axes:
            if isinstance(axis, Neighbours):
                along.append(axis)
            else:
                low, high = next(wanted)
                along.append((axis[0] + low, axis[0] + high))
        return read_along(snapshot, along)


def in_space(
    grid: Grid, values: Sequence[T], missing: T, cut: Iterable[tuple[str, T]] = ()
) -> tuple[T, ...]:
    """Values given per axis of a grid as three values, along z, y, x.

    >>> slice_of_y = Grid((3, 5), (1.0, 1.0), (0.5, 0.5), cut=(("y", 2.0),))
    >>> in_space(slice_of_y, (3, 5), 1), in_space(slice_of_y, (0.5, 0.5), 0.0, slice_of_y.cut)
    ((3, 1, 5), (0.5, 2.0, 0.5))

    Args:
        grid: the points.
        values: one per axis of the grid.
        missing: the value for axes that the grid lacks.
        cut: values for axes that it lacks, by name.
    """
    known = dict((*zip(grid.axis_names, values, strict=True), *cut))
    # r and what follows it take the places of x, y and z.
    names = grid.system.axes if grid.system.is_curved else AXIS_NAMES
    lacking = ("",) * (3 - len(names))
    return tuple(known.get(name, missing) for name in (*lacking, *reversed(names)))


def whole(problem: Problem) -> OutputRegion:
    """The region that is the whole field."""
    return OutputRegion(WHOLE, problem.grid, tuple((0, n) for n in problem.grid.shape))


def make_part(
    problem: Problem,
    name: str,
    *,
    box: Mapping[str, tuple[float, float]],
    slices: Mapping[str, float],
) -> OutputRegion:
    """The region of the points in a box, on a slice, or both.

    Args:
        problem: the problem.
        name: name of the part; its files are fields-<name>.
        box: range of positions by axis [m]; an axis that is not named is taken whole.
        slices: position by axis [m]; values there are linear between the surrounding points.

    Raises:
        ConfigError: no axis or no point is left.
    """
    grid = problem.grid
    axes: list[Along] = []
    for axis, axis_name in enumerate(grid.axis_names):
        if axis_name in slices:
            axes.append(neighbours_of(problem, axis, slices[axis_name]))
        elif axis_name in box:
            axes.append(grid.within(axis, *box[axis_name]))
        else:
            axes.append((0, grid.shape[axis]))

    # A position leaves no axis; a range without a point leaves nothing to write.
    spans = [None if isinstance(axis, Neighbours) else axis for axis in axes]
    kept = [span for span in spans if span is not None]
    if not kept or any(start == stop for start, stop in kept):
        msg = f"output.parts: {name} holds no point of the grid; widen its box, or take a probe"
        raise ConfigError(msg)
    return OutputRegion(f"{WHOLE}-{name}", grid.part(spans, slices), tuple(axes))
