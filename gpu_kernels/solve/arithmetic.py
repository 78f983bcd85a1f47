"""GpuArithmetic: the passes of a solver over arrays on a GPU, and the levels of its multigrid."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import by_value
from tetris_sim.solvers.gradients import (
    Cycle,
    LevelWork,
    cycle_of,
    in_single,
    largest_of,
)
from tetris_sim.solvers.hierarchy import (
    Level,
    Operator,
    Places,
    Shares,
    Values,
    Widths,
    every_other,
)

_BLOCK = (64, 4, 1)  # threads along the last axis, and along the one before it
_LINE = 256  # threads of passes without neighbours
_PLANES = 32  # at most, that a block goes through
_BLOCKS = 8  # of a pass without neighbours, by multiprocessor
_MOST = 65535  # blocks along the second and third axis
Struct = npt.NDArray[np.void]


class GpuArithmetic:
    """What `solvers/` asks of a device; arrays are contiguous, (n0, n1, n2).

    Attributes:
        xp: CuPy.
    """

    def __init__(self, device: GpuDevice) -> None:
        self.device, self.xp = device, device.cupy
        with device.use():
            self._sums = self.xp.zeros(0)
            self._found = self.xp.zeros(2)
        self._functions: dict[str, Any] = {}

    def use(self) -> contextlib.AbstractContextManager[Any]:
        """Make it the GPU that CuPy means."""
        return self.device.use()

    def release(self) -> None:
        """Give memory back that nobody uses."""
        self.device.release()

    def share(self, n: int, work: Callable[[int], None]) -> None:
        """Call work(0) to work(n - 1)."""
        for number in range(n):
            work(number)

    def level(self, level: Level) -> GpuLevel:
        """A level where it is worked on."""
        return GpuLevel(level, self)

    def cycle(self, operator: Operator, widths: Widths = ()) -> Cycle:
        """All levels, on the GPU."""
        found = cycle_of(in_single(operator, largest_of(operator)), self, widths)
        self.release()
        return found

    def norm(self, r: Values) -> float:
        """The root of the sum of r^2."""
        return float(self.xp.linalg.norm(r.reshape(-1)))

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """The same work as a graph: coarse levels take a GPU less time than Python."""
        work()  # which loads what is compiled
        stream = self.device.stream
        stream.begin_capture()
        try:
            work()
        finally:
            graph = stream.end_capture()
        return lambda: graph.launch(stream)

    def coarsen(
        self, operator: Operator, axis: int, xp: Any, places: Places | None = None
    ) -> tuple[Operator, Shares]:
        """See `hierarchy.coarsen`; in single precision."""
        shape = operator[-1].shape
        order = places_of_axes(shape)
        places = every_other(shape[axis]) if places is None else places
        kept = [len(places) if a == axis else n for a, n in enumerate(shape)]
        coarse = [xp.empty(kept, np.float32) for _ in operator]
        between = [n - len(places) if a == axis else n for a, n in enumerate(shape)]
        shares = tuple(xp.empty(between, np.float32) for _ in range(2))
        line = xp.asarray(line_of(places, shape[axis]))
        way = way_argument(shape, kept)
        arguments = (*_ordered(operator, order), *_ordered(coarse, order), *shares, line, way)
        launch = self.function("transfers.cu", "coarsen")
        launch(_grid([kept[a] for a in order], 1), _BLOCK, arguments)
        return tuple(coarse), (shares[0], shares[1])

    def residual(self, operator: Operator, f: Values, u: Values, out: Values) -> None:
        """Out = f - A u."""
        self._along("residual", operator, (f, u, out))

    def apply(self, operator: Operator, u: Values, out: Values) -> float:
        """Out = A u; the sum of u out."""
        shape = _three(u.shape)
        grid = _grid(shape, self._planes(shape))
        sums = self._partial(math.prod(grid))
        self._along("apply", operator, (u, out, sums))
        return self._total(1, math.prod(grid))[0]

    def descend(self, length: float, q: Values, r: Values, small: Values) -> float:
        """R -= length q, small = r; the sum of r^2."""
        (found,) = self._everywhere("descend", (q, r, small), length, 0.0, sums=1)
        return found

    def product(self, u: Values, v: Values) -> float:
        """The sum of u v."""
        return float(self.xp.vdot(u, v))

    def project(self, z: Values, q: Values, r: Values) -> tuple[float, float]:
        """The sums of z q and of z r."""
        first, second = self._everywhere("project", (z, q, r), 0.0, 0.0, sums=2)
        return first, second

    def turn(self, z: Values, share: float, length: float, p: Values, u: Values) -> None:
        """U += length p, p = z + share p."""
        self._everywhere("turn_to", (z, p, u), length, share, sums=0)

    def _along(self, entry: str, operator: Operator, arrays: tuple[Values, ...]) -> None:
        """A pass with neighbours in double precision."""
        whole = operator[-1].shape
        shape = _three(whole)
        planes = self._planes(shape)
        extent = by_value(np.array([*shape, planes], np.int32))
        launch = self.function("gradients.cu", entry)
        arguments = (*_ordered(operator, places_of_axes(whole)), *arrays, extent)
        launch(_grid(shape, planes), _BLOCK, arguments)

    def _everywhere(
        self, entry: str, arrays: tuple[Values, ...], a: float, b: float, *, sums: int
    ) -> tuple[float, ...]:
        """A pass without neighbours."""
        n = arrays[0].size
        blocks = min(-(-n // _LINE), _BLOCKS * self.device.multiprocessors)
        kept = (self._partial(sums * blocks),) if sums else ()
        launch = self.function("gradients.cu", entry)
        launch((blocks, 1, 1), (_LINE, 1, 1), (*arrays, *kept, _turn(n, a, b)))
        return self._total(sums, blocks) if sums else ()

    def _partial(self, n: int) -> Values:
        """Room for the sums of so many blocks."""
        if self._sums.size < n:
            self._sums = self.xp.empty(n)
        return self._sums

    def _total(self, count: int, blocks: int) -> tuple[float, ...]:
        launch = self.function("gradients.cu", "total")
        for k in range(count):
            sums = self._sums[k * blocks : (k + 1) * blocks]
            launch((1, 1, 1), (_LINE, 1, 1), (sums, self._found[k:], _turn(blocks, 0.0, 0.0)))
        return tuple(float(it) for it in self.xp.asnumpy(self._found)[:count])

    def _planes(self, shape: list[int]) -> int:
        return planes_of(shape, self.device.multiprocessors)

    def function(self, source: str, entry: str) -> Any:
        """A compiled entry point."""
        if entry not in self._functions:
            real = "double" if source == "gradients.cu" else "float"
            self._functions[entry] = self.device.function(source, entry, {"TS_REAL": real})
        return self._functions[entry]


class GpuLevel:
    """A level on a GPU: its operator in halves of floats, and three arrays in single precision.

    Attributes:
        points: how many it has.
        f: right-hand side.
        u: what solves it, about.
        reached_f: the part of f that a finer level gives.
        reached_u: the part of u that a finer level takes.
    """

    def __init__(self, level: Level, arithmetic: GpuArithmetic) -> None:
        self._arithmetic, xp = arithmetic, arithmetic.xp
        shape, order = level.shape, places_of_axes(level.shape)
        self.f, self.u, self._v = (xp.zeros(shape, np.float32) for _ in range(3))
        self.points = math.prod(shape)
        self.reached_f, self.reached_u = self.f[level.reached], self.u[level.reached]
        self._through_u, self._through_v = self.u[level.through], self._v[level.through]
        three = _three(shape)
        planes = planes_of(three, arithmetic.device.multiprocessors)
        self._grid = _grid(three, planes)
        self._three, self._planes = three, planes

        kept = [self._keep(it) for it in _ordered(level.operator, order)]
        inverse = xp.empty(shape, np.uint16)
        extent = by_value(np.array([*three, planes], np.int32))
        self._function("invert")(self._grid, _BLOCK, (*kept, inverse, extent))
        self._operator, self._inverse = kept, inverse

        fine, coarse, lines = level.between[0], list(level.between[-1]), {}
        for (axis, _), kept_planes in zip(level.moves, level.places, strict=True):
            lines[order.index(axis)] = xp.asarray(line_of(kept_planes, fine[axis]))
        self._way = way_argument(fine, coarse)
        small = [coarse[a] for a in order]
        self._coarse, self._columns = _grid(small, 1), _grid([*small[:2], three[2]], 1)
        # An axis that stays as it is has none; anything stands for them.
        shares = {order.index(axis): pair for axis, pair in level.moves}
        self._shares = [it for a in range(3) for it in shares.get(a, (self.f, self.f))]
        nothing = xp.zeros(1, np.int32)
        self._lines = [lines.get(a, nothing) for a in range(3)]

    def begin(self, weights: tuple[float, float]) -> None:
        """Two Jacobi steps from u = 0."""
        arguments = (*self._operator, self._inverse, self.f, self.u, self._weighted(*weights))
        self._function("begin")(self._grid, _BLOCK, arguments)

    def smooth(self, weights: tuple[float, float]) -> None:
        """Two Jacobi steps."""
        turns = (self.u, self._v), (self._v, self.u)
        for weight, (one, other) in zip(weights, turns, strict=True):
            arrays = (*self._operator, self._inverse, self.f, one, other)
            self._function("relax")(self._grid, _BLOCK, (*arrays, self._weighted(weight)))

    def restrict(self, coarse: LevelWork) -> None:
        """Make what is left of f the right-hand side of the next coarser level."""
        left = (*self._operator, self.f, self.u, self._v, self._weighted(0.0))
        self._function("remain")(self._grid, _BLOCK, left)
        self._transfer("restricted", self._coarse, self._through_v, coarse.reached_f)

    def correct(self, coarse: LevelWork) -> None:
        """Add what the next coarser level found."""
        self._transfer("prolonged", self._columns, coarse.reached_u, self._through_u)

    def solve(self) -> None:
        """U = f / d, of a single point; 0 without a d."""
        self.begin((1.0, 0.0))

    def _keep(self, values: Values) -> Values:
        kept = self._arithmetic.xp.empty(values.shape, np.uint16)
        blocks = min(-(-values.size // _LINE), _MOST)
        sizes = np.array([values.size], np.int64)
        self._function("keep")((blocks, 1, 1), (_LINE, 1, 1), (values, kept, by_value(sizes)))
        return kept

    def _transfer(self, entry: str, grid: Any, given: Values, taken: Values) -> None:
        launch = self._arithmetic.function("transfers.cu", entry)
        launch(grid, _BLOCK, (given, *self._shares, taken, *self._lines, self._way))

    def _weighted(self, *weights: float) -> Struct:
        return _sweep(self._three, self._planes, *weights)

    def _function(self, entry: str) -> Any:
        return self._arithmetic.function("smoothing.cu", entry)


def places_of_axes(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Which axes of an array are those of the kernels, whose threads lie along the last two: a
    plane of rows is one plane.
    """
    return (1, 0, 2) if shape[1] == 1 else (0, 1, 2)


def _three(shape: tuple[int, ...]) -> list[int]:
    return [shape[a] for a in places_of_axes(shape)]


def _ordered(operator: Operator | list[Values], order: tuple[int, int, int]) -> list[Values]:
    """Conductances in the order of the axes of kernels, and d."""
    return [*(operator[a] for a in order), operator[-1]]


def planes_of(shape: list[int], multiprocessors: int) -> int:
    """How many planes a block goes through: as many as leave work for all."""
    across = -(-shape[2] // _BLOCK[0]) * -(-shape[1] // _BLOCK[1])
    enough = shape[0] * across // (2 * _BLOCKS * multiprocessors)
    return max(1, min(_PLANES, enough), -(-shape[0] // _MOST))


def _grid(shape: list[int], planes: int) -> tuple[int, int, int]:
    """Blocks along the axes of kernels, the last first."""
    rows = -(-shape[1] // _BLOCK[1])
    return -(-shape[2] // _BLOCK[0]), min(rows, _MOST), min(-(-shape[0] // planes), _MOST)


def _sweep(shape: list[int], planes: int, *weights: float) -> Struct:
    """`struct Sweep` of smoothing.cu."""
    both = np.array([*weights, 0.0][:2], np.float32)
    return by_value(np.concatenate([np.array([*shape, planes], np.int32), both.view(np.int32)]))


def way_argument(shape: tuple[int, ...], coarse: list[int]) -> Struct:
    """`struct Way` of transfers.cu."""
    order = places_of_axes(shape)
    return by_value(np.array([*_three(shape), *(coarse[a] for a in order)], np.int32))


def line_of(places: Places, n: int) -> npt.NDArray[np.int32]:
    """A line of transfers.cu: where the kept of n planes are, n, and of each plane its owner."""
    owners = np.repeat(2 * np.arange(len(places)), np.diff(places, append=n))
    owners[np.setdiff1d(np.arange(n), places)] += 1
    return np.concatenate([places, [n], owners]).astype(np.int32)


def _turn(n: int, a: float, b: float) -> Struct:
    """`struct Turn` of gradients.cu."""
    return by_value(np.concatenate([np.array([n]), np.array([a, b]).view(np.int64)]))
