"""What is the state at time 0? Turns the `initial` section into a function of a slab.

Values are computed block by block, and the blocks are anchored to global indices: whichever slab
asks, a point's value comes from the same call on the same array shape, so any partition gives the
same bits, and the memory needed besides the slab itself is that of a few blocks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.initial_file import Box, open_file
from tetris_sim.apps.initial_run import open_run
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
from tetris_sim.model.problem import Field, InitialField, RandomField, RandomNumbers
from tetris_sim.model.slab import Slab

Values = npt.NDArray[np.float64]
# Values of the points in a box, anything that broadcasts to its shape.
Source = Callable[[Box], npt.ArrayLike]

# 2 MiB of float64: large enough that calls cost nothing, small enough for a cache.
BLOCK_POINTS = 1 << 18
# Points from which on random fields are made by a compiled loop with the same bits: importing Numba
# and compiling it take 0.8 s, in which NumPy makes 0.4 GB, and the loop is 4.8 times as fast (2.7
# instead of 0.56 GB per second of processor time, an AMD EPYC, 2026-11-23).
_MANY_POINTS = 1 << 27


def make_initial(
    section: InitialSection, grid: Grid, dtype: np.dtype[Any], variable: str = "temperature"
) -> InitialField:
    """The initial state as a function of a slab, which returns (1, *slab.shape) in `dtype`.

    Args:
        section: what was asked for.
        grid: where the points lie.
        dtype: of `PRECISIONS`; values are computed in float64 and rounded once.
        variable: its name, where another run is read.

    Raises:
        ConfigError: a file is missing or has another shape, or a centre has another number of
            components; raised here, before anything is computed. The function itself raises
            NumericsError for values that are not finite.
    """
    source = _make_source(section, grid, variable)

    def initial(slab: Slab) -> Field:
        state = np.empty((1, *slab.shape), dtype=dtype)
        owned = tuple(zip(slab.start, slab.stop, strict=True))
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
            if not np.isfinite(rounded).all():
                raise NumericsError(_complaint(section, grid, rounded, shared))
            state[0][slices_in(shared, owned)] = rounded

        return state

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
        tuple(length / 2 for length in grid.size)
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
        why_not = unusable_constant(name)
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


def unusable_constant(name: str) -> str | None:
    """Why `name` cannot be a constant of an initial expression; None if it can."""
    if name in (*AXIS_NAMES, *(f"L{axis}" for axis in AXIS_NAMES)):
        return f"{name!r} already means a position or a length; choose another name"
    return usable_name(name)


def _numbers(section: RandomInitial, grid: Grid) -> RandomNumbers:
    block = block_shape(grid.shape)
    return RandomNumbers(section.seed, section.low, section.high, grid.shape, block)


def _random(numbers: RandomNumbers) -> Source:
    low, high = numbers.low, numbers.high

    def values(box: Box) -> Values:
        place = tuple(start // b for (start, _), b in zip(box, numbers.block, strict=True))
        stream, shape = numbers.stream(place), shape_of(box)
        if math.prod(numbers.shape) >= _MANY_POINTS:
            from tetris_sim.cpu_kernels.compiled.philox import random_values

            made = random_values(stream, math.prod(shape), low, high)
            return made.reshape(shape)

        words = stream.random_raw(math.prod(shape))
        words >>= np.uint64(11)
        unit = words * 2.0**-53
        # low (1 - unit) + high unit, without arrays that only live for an operation: threads that
        # make blocks side by side wait for each other's pages.
        found = 1 - unit
        found *= low
        unit *= high
        found += unit
        return np.asarray(found).reshape(shape)

    return values


def positions(grid: Grid, box: Box) -> list[Values]:
    """Coordinates of the points of a box per axis [m], shaped to broadcast against each other."""
    return [
        grid.coordinates(axis, start, stop).reshape(
            [-1 if k == axis else 1 for k in range(grid.ndim)]
        )
        for axis, (start, stop) in enumerate(box)
    ]


def block_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Whole rows, as many as fit into a block, whole planes if they fit."""
    block: tuple[int, ...] = ()
    for n in reversed(shape):
        block = (min(n, max(1, BLOCK_POINTS // math.prod(block))), *block)
    return block


def blocks(shape: tuple[int, ...], owned: Box) -> Iterator[Box]:
    """The blocks of the whole grid that have points in `owned`."""
    ranges = []
    for n, width, (start, stop) in zip(shape, block_shape(shape), owned, strict=True):
        ranges.append(
            [(low, min(low + width, n)) for low in range(start // width * width, stop, width)]
        )
    yield from itertools.product(*ranges)


def shape_of(box: Box) -> tuple[int, ...]:
    """Points of a box per axis."""
    return tuple(stop - start for start, stop in box)


def slices_in(part: Box, whole: Box) -> tuple[slice, ...]:
    """Where `part` lies in an array of the points of `whole`."""
    return tuple(slice(p[0] - w[0], p[1] - w[0]) for p, w in zip(part, whole, strict=True))


def _complaint(section: InitialSection, grid: Grid, values: Field, box: Box) -> str:
    """Which point is the first bad one, in the words of the configuration."""
    place, where = first_place(~np.isfinite(values), grid, box)
    return (
        f"initial: the {section.type} gives {values[place]} at {where}; every initial value must "
        f"be finite in {values.dtype}, so change it there"
    )


def first_place(marked: npt.NDArray[np.bool_], grid: Grid, box: Box) -> tuple[tuple[int, ...], str]:
    """The first point of a box that is marked: its place in the box, and where it lies in words."""
    place = tuple(int(i) for i in np.argwhere(marked)[0])
    index = [start + i for (start, _), i in zip(box, place, strict=True)]
    where = ", ".join(
        f"{name} = {float(grid.coordinates(axis, index[axis], index[axis] + 1)[0]):.6g} m"
        for axis, name in reversed(list(enumerate(grid.axis_names)))
    )
    return place, f"{where} (array index {index})"
