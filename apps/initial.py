"""Initial state: turns the `initial` section into a function of a slab.

Values are computed block by block, and the blocks are anchored to global indices: for every slab a
point's value comes from the same call on the same array shape. So any domain decomposition gives
bitwise identical values, and only a few blocks of memory are needed besides the slab itself.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.initial_file import Box, Reader, check_array, open_file
from tetris_sim.config.sections.conditions import (
    ConstantInitial,
    ExpressionInitial,
    FileInitial,
    GaussianInitial,
    InitialSection,
    RandomInitial,
    RunInitial,
)
from tetris_sim.errors import ConfigError, NumericsError
from tetris_sim.model.formula import ExpressionError, compile_expression, usable_name
from tetris_sim.model.grid import AXIS_NAMES, Grid
from tetris_sim.model.problem import Field, InitialField, RandomField
from tetris_sim.model.slab import RandomNumbers, Ranges, Slab
from tetris_sim.support.hdf5 import DAMAGED, refuse_outside
from tetris_sim.support.wording import first_line

# States of earlier runs: an output time of their fields, or their newest checkpoint.

_CLOSE = 1e-9  # times that differ by less, relative to the larger one, are the same
_KEY = "initial.from"
# Files of fields and checkpoints below a results directory, and where a variable lies in them.
_PLACES = (("fields/fields_*.h5", ""), ("checkpoints/checkpoint_*.h5", "fields/"))


@dataclass(frozen=True)
class _Record:
    """A state stored in a file.

    Attributes:
        step: number of the time step.
        time: simulated time [s].
        path: the file.
        dataset: its name in the file.
    """

    step: int
    time: float
    path: Path
    dataset: str


def open_run(section: RunInitial, grid: Grid, variable: str = "temperature") -> Reader:
    """Open the state of an earlier run as a function that reads any box of the grid.

    Args:
        section: the run and its output time.
        grid: of the new run; the stored state must have the same shape.
        variable: name of the field.

    Raises:
        ConfigError: the run or the time does not exist, or its grid has another shape.
    """
    directory = Path(section.directory)
    if not directory.is_dir():
        msg = f"{_KEY}: there is no folder {directory}; a results directory of a run is wanted"
        raise ConfigError(msg)
    records = sorted(_records(directory, variable), key=lambda it: it.step)
    if not records:
        msg = (
            f"{_KEY}: {directory} holds neither fields nor a checkpoint with {variable}; let the "
            "run write output.fields, or checkpoint.at_end"
        )
        raise ConfigError(msg)

    record = records[-1] if section.at == "last" else _at(section.at, records, directory)
    import h5py

    with _reading(record.path), h5py.File(record.path, "r") as file:
        shape, dtype = tuple(file[record.dataset].shape), file[record.dataset].dtype

    # Files of fields have a time axis of length 1 in front; checkpoints have none.
    leading = max(len(shape) - grid.ndim, 0) if record.dataset == variable else 0
    check_array(record.path, shape[leading:], dtype, grid, _KEY)

    def read(box: Box) -> npt.NDArray[Any]:
        part = tuple(slice(*span) for span in box)
        # Opened for each read: workers read at any time.
        with _reading(record.path), h5py.File(record.path, "r") as file:
            return np.asarray(file[record.dataset][(0,) * leading + part])

    return read


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGED as error:
        msg = f"{_KEY}: {path} cannot be read as HDF5 ({first_line(error)})"
        raise ConfigError(msg) from error


def _at(time: float, records: list[_Record], directory: Path) -> _Record:
    nearest = min(records, key=lambda it: abs(it.time - time))
    if abs(nearest.time - time) > _CLOSE * max(abs(time), nearest.time):
        msg = (
            f"initial.at: {directory} has nothing of t = {time:g} s; the nearest is of "
            f"{nearest.time!r} s, and the times are from {records[0].time:g} s to "
            f"{records[-1].time:g} s"
        )
        raise ConfigError(msg)
    return nearest


def _records(directory: Path, variable: str) -> Iterator[_Record]:
    """Yield every stored state of a run; unreadable files are skipped, as a continued run does."""
    import h5py

    for pattern, group in _PLACES:
        for path in directory.glob(pattern):
            try:
                refuse_outside(path)
                with h5py.File(path, "r", locking="best-effort") as file:
                    if not isinstance(file.get(group + variable), h5py.Dataset):
                        continue
                    if group:
                        state = file["meta"].attrs
                        step, time = int(state["step"]), float(state["time"])
                    else:
                        step, time = int(file["step"][0]), float(file["time"][0])
            except DAMAGED:
                continue
            yield _Record(step, time, path, group + variable)


Values = npt.NDArray[np.float64]
# Values of the points in a box, anything that broadcasts to its shape.
Source = Callable[[Box], npt.ArrayLike]

# 2 MiB of float64: large enough to hide the cost of a call, small enough for a cache.
BLOCK_POINTS = 1 << 18
# Points above which a compiled loop makes random fields, with the same bits: importing Numba and
# compiling it take 0.8 s, in which NumPy makes 0.4 GB, and the loop is 4.8 times as fast (2.7
# instead of 0.56 GB per second of CPU time, an AMD EPYC, 2026-11-23).
_MANY_POINTS = 1 << 27


def make_initial(
    section: InitialSection,
    grid: Grid,
    dtype: np.dtype[Any],
    variable: str = "temperature",
    *,
    still: Callable[[Box], npt.NDArray[np.bool_]] | None = None,
) -> InitialField:
    """Build the initial state as a function of a slab that returns (1, *slab.shape) in `dtype`.

    Args:
        section: the `initial` section.
        grid: where the points lie.
        dtype: of `PRECISIONS`; values are computed in float64 and rounded once.
        variable: name of the field to read from an earlier run.
        still: mask of the points of a box that are no part of the body (fluids and voids); a value
            there that is not finite, as that of a void of an earlier run, becomes 0.

    Raises:
        ConfigError: a file is missing or has another shape, or a centre has another number of
            components; raised here, before anything is computed. The function itself raises
            NumericsError for values that are not finite.
    """
    source = _make_source(section, grid, variable)

    def initial(slab: Slab) -> Field:
        state = np.empty((1, *slab.shape), dtype=dtype)
        owned = tuple(zip(slab.start, slab.stop, strict=True))

        # Whole blocks are evaluated, also where the slab needs only a part: the shape of an array
        # can change the last bits of NumPy's vectorized functions.
        for block in blocks(grid.shape, owned):
            shared = tuple(
                (max(b[0], o[0]), min(b[1], o[1])) for b, o in zip(block, owned, strict=True)
            )
            # A formula may overflow on its way to a good value; only what is not finite at the end
            # is refused.
            with np.errstate(all="ignore"):
                values = np.broadcast_to(
                    np.asarray(source(block), dtype=np.float64), shape_of(block)
                )
                rounded = values[slices_in(shared, block)].astype(dtype, copy=False)
            finite = np.isfinite(rounded)
            if still is not None and not finite.all():
                rounded = np.where(finite | ~still(shared), rounded, rounded.dtype.type(0))
            if not np.isfinite(rounded).all():
                raise NumericsError(_complaint(section, grid, rounded, shared))
            state[0][slices_in(shared, owned)] = rounded

        return state

    # Kept with its generator, so that devices can fill their slabs without a copy from the host.
    if isinstance(section, RandomInitial):
        return RandomField(initial, _numbers(section, grid))
    return initial


def _make_source(section: InitialSection, grid: Grid, variable: str) -> Source:
    match section:
        case ConstantInitial():
            return lambda box: section.value
        case GaussianInitial():
            return _gaussian(section, grid)
        case ExpressionInitial():
            return _expression(section, grid)
        case RandomInitial():
            return _random(_numbers(section, grid))
        case FileInitial():
            return open_file(section, grid)
        case RunInitial():
            return open_run(section, grid, variable)


def _gaussian(section: GaussianInitial, grid: Grid) -> Source:
    center = (
        tuple(math.fsum(grid.bounds(axis)) / 2 for axis in range(grid.ndim))
        if section.center is None
        else section.center[::-1]
    )
    if len(center) != grid.ndim:
        msg = (
            f"initial.center has {len(center)} components, but the grid has {grid.ndim} axes; list "
            "x, y, z"
        )
        raise ConfigError(msg)

    def values(box: Box) -> Values:
        # Divided before squared: sigma^2 may underflow where sigma does not.
        distances = [p - c for p, c in zip(positions(grid, box), center, strict=True)]
        square = sum((distance / section.sigma) ** 2 for distance in distances)
        return np.asarray(section.background + section.amplitude * np.exp(-square / 2))

    return values


def _expression(section: ExpressionInitial, grid: Grid) -> Source:
    lengths = {f"L{name}": length for name, length in zip(grid.axis_names, grid.size, strict=True)}
    for name in section.constants:
        why_not = unusable_constant(name, grid.axis_names)
        if why_not is not None:
            msg = f"initial.constants: {why_not}"
            raise ConfigError(msg)

    try:
        expression = compile_expression(
            section.expression, [*grid.axis_names, *lengths, *section.constants]
        )
    except ExpressionError as error:
        msg = f"initial.expression: {error}"
        raise ConfigError(msg) from error

    def values(box: Box) -> npt.ArrayLike:
        coordinates = dict(zip(grid.axis_names, positions(grid, box), strict=True))
        return expression(**coordinates, **lengths, **section.constants)

    return values


def unusable_constant(name: str, axes: Sequence[str] = ()) -> str | None:
    """Why `name` cannot be a constant of an initial expression; None if it can.

    Args:
        name: of the constant.
        axes: of the grid, besides x, y and z.
    """
    places = {*AXIS_NAMES, *axes}
    if name in places or name in {f"L{axis}" for axis in places}:
        return f"{name!r} already means a position or a length; choose another name"
    return usable_name(name)


def _numbers(section: RandomInitial, grid: Grid) -> RandomNumbers:
    block = block_shape(grid.shape)
    return RandomNumbers(section.seed, section.low, section.high, grid.shape, block)


def _random(numbers: RandomNumbers) -> Source:
    low, high = numbers.low, numbers.high

    def values(box: Box) -> Values:
        # Each block has its own Philox stream, keyed by its position: no order of evaluation
        # matters.
        place = tuple(start // b for (start, _), b in zip(box, numbers.block, strict=True))
        stream, shape = numbers.stream(place), shape_of(box)
        if math.prod(numbers.shape) >= _MANY_POINTS:
            from tetris_sim.cpu_kernels.compiled.philox import random_values

            made = random_values(stream, math.prod(shape), low, high)
            return made.reshape(shape)

        words = stream.random_raw(math.prod(shape))

        # The upper 53 of 64 bits make a uniform double in [0, 1), as NumPy's generators do.
        words >>= np.uint64(11)
        unit = words * 2.0**-53
        # low (1 - unit) + high unit, in place: threads that make blocks concurrently would
        # otherwise contend for pages of short-lived arrays.
        found = 1 - unit
        found *= low
        unit *= high
        found += unit
        return np.asarray(found).reshape(shape)

    return values


def positions(grid: Grid, box: Box) -> list[Values]:
    """Compute the coordinates of the points of a box per axis [m], shaped to broadcast."""
    return [
        grid.coordinates(axis, start, stop).reshape(
            [-1 if k == axis else 1 for k in range(grid.ndim)]
        )
        for axis, (start, stop) in enumerate(box)
    ]


def block_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Choose the shape of a block: whole rows, as many as fit, and whole planes if they fit."""
    block: tuple[int, ...] = ()

    # Axes are filled from the fastest one on, so blocks are contiguous in memory as far as
    # possible.
    for n in reversed(shape):
        block = (min(n, max(1, BLOCK_POINTS // math.prod(block))), *block)
    return block


def blocks_of(shape: tuple[int, ...], box: Box) -> list[tuple[tuple[int, ...], Box]]:
    """List the anchored blocks that share points with a box: number along each axis, and shared
    points.
    """
    ranges = [
        range(low // width, -(-high // width))
        for (low, high), width in zip(box, block_shape(shape), strict=True)
    ]
    found = []
    for index in itertools.product(*ranges):
        block = block_box(shape, index)
        inside = tuple(
            (max(b[0], own[0]), min(b[1], own[1])) for b, own in zip(block, box, strict=True)
        )
        found.append((index, inside))
    return found


def block_box(shape: tuple[int, ...], index: tuple[int, ...]) -> Box:
    """The points of an anchored block."""
    return tuple(
        (i * width, min((i + 1) * width, n))
        for i, width, n in zip(index, block_shape(shape), shape, strict=True)
    )


def blocks(shape: tuple[int, ...], owned: Box) -> Iterator[Box]:
    """Yield the blocks of the whole grid that have points in `owned`."""
    ranges = []
    for n, width, (start, stop) in zip(shape, block_shape(shape), owned, strict=True):
        ranges.append(
            [(low, min(low + width, n)) for low in range(start // width * width, stop, width)]
        )
    yield from itertools.product(*ranges)


def shape_of(box: Box) -> tuple[int, ...]:
    """Number of points of a box per axis."""
    return tuple(stop - start for start, stop in box)


def slices_in(part: Box, whole: Box) -> tuple[slice, ...]:
    """Slices that select `part` in an array of the points of `whole`."""
    return tuple(slice(p[0] - w[0], p[1] - w[0]) for p, w in zip(part, whole, strict=True))


def _complaint(section: InitialSection, grid: Grid, values: Field, box: Box) -> str:
    """Name the first bad point in the words of the configuration."""
    place, where = first_place(~np.isfinite(values), grid, box)
    return (
        f"initial: the {section.type} gives {values[place]} at {where}; every initial value must "
        f"be finite in {values.dtype}, so change it there"
    )


def first_place(marked: npt.NDArray[np.bool_], grid: Grid, box: Box) -> tuple[tuple[int, ...], str]:
    """Find the first marked point of a box: its index in the box, and its location in words."""
    place = tuple(int(i) for i in np.argwhere(marked)[0])
    index = [start + i for (start, _), i in zip(box, place, strict=True)]
    where = ", ".join(
        f"{name} = {float(grid.coordinates(axis, index[axis], index[axis] + 1)[0]):.6g} "
        f"{grid.system.unit(name)}"
        for axis, name in reversed(list(enumerate(grid.axis_names)))
    )
    return place, f"{where} (array index {index})"


_SCANNED = 1 << 20  # points of a state whose smallest and largest values are sought


def sampled_boxes(grid: Grid) -> list[tuple[tuple[int, int], ...]]:
    """Parts of the grid that are looked at: all of a small one, else some boxes all over it."""
    if grid.n_points <= _SCANNED:
        return [tuple((0, n) for n in grid.shape)]
    most = max(8, int((_SCANNED / 4**grid.ndim) ** (1 / grid.ndim)))
    # States are made in whole blocks: where these are parts of rows, few rows are looked at.
    along, blocks = [], block_shape(grid.shape)
    for axis, (n, width) in enumerate(zip(grid.shape, blocks, strict=True)):
        edge = most if width > 1 else 2
        starts = {int(s) for s in np.linspace(0, max(n - edge, 0), 4)}
        # The narrowest cell of a graded axis decides about steps.
        starts.add(min(int(grid.widths(axis).argmin()), max(n - edge, 0)))
        along.append([(s, min(s + edge, n)) for s in sorted(starts)])
    return [*itertools.product(*along)]


def read_boxes(initial: InitialField, boxes: Sequence[Ranges], grid: Grid) -> list[Field]:
    """The initial state in each box. It is made in blocks, and one that several need is made once:
    blocks go from end to end of some axes, and another one is cut.
    """
    sizes = block_shape(grid.shape)
    cut = max((axis for axis in range(grid.ndim) if sizes[axis] < grid.shape[axis]), default=0)
    whole = tuple((0, n) for n in grid.shape[cut + 1 :])
    pieces: dict[Ranges, list[Field]] = {box: [] for box in boxes}

    for shared in dict.fromkeys(box[: cut + 1] for box in boxes):
        along = [box for box in boxes if box[: cut + 1] == shared]
        start, stop = shared[cut]
        ends = [*range(start - start % sizes[cut] + sizes[cut], stop, sizes[cut]), stop]
        for low, high in itertools.pairwise([start, *ends]):
            state = initial(Slab.box((*shared[:cut], (low, high), *whole)))
            for box in along:
                inside = tuple(slice(*ends) for ends in box[cut + 1 :])
                index = (slice(None),) * (cut + 2) + inside
                pieces[box].append(np.array(state[index], np.float64))
    return [np.concatenate(pieces[box], axis=cut + 1) for box in boxes]
