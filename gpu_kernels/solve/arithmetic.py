"""GPU passes of the conjugate gradient solver and the levels of its multigrid preconditioner.

The solver computes in FP64 (`gradients.cu`), the preconditioner in FP32 with operators in
bfloat16 (`smoothing.cu`, `transfers.cu`). `GpuArrays` makes many steps at once with CuPy's
transforms and matrix products.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import by_value
from tetris_sim.model.problem import Field, Problem
from tetris_sim.solvers.krylov import Arithmetic, Cycle, LevelWork, cycle_of, in_single, largest_of
from tetris_sim.solvers.multigrid import (
    GridLevel,
    Operator,
    Places,
    Shares,
    Values,
    Widths,
    every_other,
)
from tetris_sim.solvers.spectral.exponential import ArrayRates
from tetris_sim.solvers.spectral.stepper import (
    IntegratingMethod,
    SpectralMethod,
)
from tetris_sim.solvers.stepper import SolvingMethod

_BLOCK = (64, 4, 1)  # threads along the last axis, and along the one before it
_LINE = 256  # threads per block of passes without neighbours
_PLANES = 32  # upper bound of the planes that a block walks through
_BLOCKS = 8  # blocks per multiprocessor of a pass without neighbours
_MOST = 65535  # CUDA's limit of blocks along the second and third axis
Struct = npt.NDArray[np.void]


class GpuArithmetic:
    """The operations that the solvers need from a device (`Arithmetic`); arrays are contiguous,
    (n0, n1, n2).

    Attributes:
        xp: CuPy.
    """

    def __init__(self, device: GpuDevice) -> None:
        self.device, self.xp = device, device.cupy
        # Partial sums grow on demand and are reused by all passes.
        with device.use():
            self._sums = self.xp.zeros(0)
            self._found = self.xp.zeros(2)
        self._functions: dict[str, Any] = {}

    def use(self) -> contextlib.AbstractContextManager[Any]:
        """Make the GPU current for CuPy."""
        return self.device.use()

    def release(self) -> None:
        """Return unused memory."""
        self.device.release()

    def share(self, n: int, work: Callable[[int], None]) -> None:
        """Call work(0) to work(n - 1)."""
        for number in range(n):
            work(number)

    def level(self, level: GridLevel) -> GpuLevel:
        """Set up a multigrid level on the GPU."""
        return GpuLevel(level, self)

    def cycle(self, operator: Operator, widths: Widths = ()) -> Cycle:
        """Build all multigrid levels of an operator on the GPU."""
        # Scaled by the largest entry, so that FP32 holds the operator of any unit system.
        found = cycle_of(in_single(operator, largest_of(operator)), self, widths)
        self.release()
        return found

    def norm(self, r: Values) -> float:
        """The Euclidean norm of r."""
        return float(self.xp.linalg.norm(r.reshape(-1)))

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record `work` as a CUDA graph: on coarse levels the GPU is faster than Python can
        launch.
        """
        work()  # loads compiled code before the capture
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
        """Coarsen an operator across one axis in single precision, as `solvers.multigrid.coarsen`
        does.
        """
        shape = operator[-1].shape
        order = places_of_axes(shape)
        places = every_other(shape[axis]) if places is None else places
        # Sizes of the coarse operator, and of the shares of the planes between kept ones.
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
        """Compute the residual, out = f - A u."""
        self._along("residual", operator, (f, u, out))

    def apply(self, operator: Operator, u: Values, out: Values) -> float:
        """Compute out = A u; returns the sum of u out."""
        shape = _three(u.shape)
        grid = _grid(shape, self._planes(shape))
        sums = self._partial(math.prod(grid))
        self._along("apply", operator, (u, out, sums))
        return self._total(1, math.prod(grid))[0]

    def descend(self, length: float, q: Values, r: Values, small: Values) -> float:
        """Update r -= length q and copy it to `small`; returns the sum of r^2."""
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
        """Update u += length p and p = z + share p."""
        self._everywhere("turn_to", (z, p, u), length, share, sums=0)

    def _along(self, entry: str, operator: Operator, arrays: tuple[Values, ...]) -> None:
        """Launch a pass with neighbours in double precision."""
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
        """Launch a pass without neighbours; returns its sums."""
        n = arrays[0].size
        # Threads loop over the points, so a few blocks per multiprocessor suffice.
        blocks = min(-(-n // _LINE), _BLOCKS * self.device.multiprocessors)
        kept = (self._partial(sums * blocks),) if sums else ()
        launch = self.function("gradients.cu", entry)
        launch((blocks, 1, 1), (_LINE, 1, 1), (*arrays, *kept, _turn(n, a, b)))
        return self._total(sums, blocks) if sums else ()

    def _partial(self, n: int) -> Values:
        """Room for `n` partial sums, one per block."""
        if self._sums.size < n:
            self._sums = self.xp.empty(n)
        return self._sums

    def _total(self, count: int, blocks: int) -> tuple[float, ...]:
        launch = self.function("gradients.cu", "total")
        # One block adds the partial sums in a fixed order, so results are reproducible on the same
        # GPU.
        for k in range(count):
            sums = self._sums[k * blocks : (k + 1) * blocks]
            launch((1, 1, 1), (_LINE, 1, 1), (sums, self._found[k:], _turn(blocks, 0.0, 0.0)))
        return tuple(float(it) for it in self.xp.asnumpy(self._found)[:count])

    def _planes(self, shape: list[int]) -> int:
        return planes_of(shape, self.device.multiprocessors)

    def function(self, source: str, entry: str) -> Any:
        """A compiled entry point, cached by name."""
        if entry not in self._functions:
            real = "double" if source == "gradients.cu" else "float"
            self._functions[entry] = self.device.function(source, entry, {"TS_REAL": real})
        return self._functions[entry]


class GpuLevel:
    """A multigrid level on a GPU: its operator in bfloat16, and three arrays in single
    precision.

    Attributes:
        points: number of points.
        f: right-hand side.
        u: approximate solution.
        reached_f: the part of f that a finer level writes.
        reached_u: the part of u that a finer level reads.
    """

    def __init__(self, level: GridLevel, arithmetic: GpuArithmetic) -> None:
        self._arithmetic, xp = arithmetic, arithmetic.xp
        shape, order = level.shape, places_of_axes(level.shape)
        self.f, self.u, self._v = (xp.zeros(shape, np.float32) for _ in range(3))
        self.points = math.prod(shape)
        self.reached_f, self.reached_u = self.f[level.reached], self.u[level.reached]
        # The part of this level that the next coarser level represents.
        self._through_u, self._through_v = self.u[level.through], self._v[level.through]
        three = _three(shape)
        planes = planes_of(three, arithmetic.device.multiprocessors)
        self._grid = _grid(three, planes)
        self._three, self._planes = three, planes

        # The inverse diagonal is that of the rounded operator, so smoothing is consistent with it.
        kept = [self._keep(it) for it in _ordered(level.operator, order)]
        inverse = xp.empty(shape, np.uint16)
        extent = by_value(np.array([*three, planes], np.int32))
        self._function("invert")(self._grid, _BLOCK, (*kept, inverse, extent))
        self._operator, self._inverse = kept, inverse

        # Tables of the axes that are coarsened, all in one pass.
        fine, coarse, lines = level.between[0], list(level.between[-1]), {}
        for (axis, _), kept_planes in zip(level.moves, level.places, strict=True):
            lines[order.index(axis)] = xp.asarray(line_of(kept_planes, fine[axis]))
        self._way = way_argument(fine, coarse)
        small = [coarse[a] for a in order]
        self._coarse, self._columns = _grid(small, 1), _grid([*small[:2], three[2]], 1)
        # An axis that is not coarsened has no shares; any array stands in for them.
        shares = {order.index(axis): pair for axis, pair in level.moves}
        self._shares = [it for a in range(3) for it in shares.get(a, (self.f, self.f))]
        nothing = xp.zeros(1, np.int32)
        self._lines = [lines.get(a, nothing) for a in range(3)]

    def begin(self, weights: tuple[float, float]) -> None:
        """Smooth with two Jacobi steps from u = 0."""
        arguments = (*self._operator, self._inverse, self.f, self.u, self._weighted(*weights))
        self._function("begin")(self._grid, _BLOCK, arguments)

    def smooth(self, weights: tuple[float, float]) -> None:
        """Smooth with two Jacobi steps."""
        # Two steps, so that the result is in `u` again.
        turns = (self.u, self._v), (self._v, self.u)
        for weight, (one, other) in zip(weights, turns, strict=True):
            arrays = (*self._operator, self._inverse, self.f, one, other)
            self._function("relax")(self._grid, _BLOCK, (*arrays, self._weighted(weight)))

    def restrict(self, coarse: LevelWork) -> None:
        """Restrict the residual to the right-hand side of the next coarser level."""
        left = (*self._operator, self.f, self.u, self._v, self._weighted(0.0))
        self._function("remain")(self._grid, _BLOCK, left)
        self._transfer("restricted", self._coarse, self._through_v, coarse.reached_f)

    def correct(self, coarse: LevelWork) -> None:
        """Prolong the correction of the next coarser level and add it."""
        self._transfer("prolonged", self._columns, coarse.reached_u, self._through_u)

    def solve(self) -> None:
        """Solve a level of a single point, u = f / d; 0 where d is 0."""
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
    """The axes of an array in the order of the kernels, whose threads lie along the last two: with
    a single row per plane, the rows are treated as one plane.
    """
    return (1, 0, 2) if shape[1] == 1 else (0, 1, 2)


def _three(shape: tuple[int, ...]) -> list[int]:
    return [shape[a] for a in places_of_axes(shape)]


def _ordered(operator: Operator | list[Values], order: tuple[int, int, int]) -> list[Values]:
    """The conductances in the kernels' order of axes, and d."""
    return [*(operator[a] for a in order), operator[-1]]


def planes_of(shape: list[int], multiprocessors: int) -> int:
    """The planes that a block walks through: as many as still leave work for all
    multiprocessors.
    """
    across = -(-shape[2] // _BLOCK[0]) * -(-shape[1] // _BLOCK[1])
    # A block that walks far reuses more in registers, but fewer blocks then share the work.
    enough = shape[0] * across // (2 * _BLOCKS * multiprocessors)
    return max(1, min(_PLANES, enough), -(-shape[0] // _MOST))


def _grid(shape: list[int], planes: int) -> tuple[int, int, int]:
    """The grid of blocks along the kernels' axes, the last axis first."""
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
    """The table of an axis for transfers.cu: the positions of the kept of n planes, then n, then
    for each plane twice the number of the kept plane at or before it, plus 1 if it is between two.
    """
    owners = np.repeat(2 * np.arange(len(places)), np.diff(places, append=n))
    owners[np.setdiff1d(np.arange(n), places)] += 1
    return np.concatenate([places, [n], owners]).astype(np.int32)


def _turn(n: int, a: float, b: float) -> Struct:
    """`struct Turn` of gradients.cu."""
    return by_value(np.concatenate([np.array([n]), np.array([a, b]).view(np.int64)]))


# The methods gpu.steady and gpu.implicit.

# Bytes per point: the operator and five fields in FP64, multigrid levels in FP32 with 16-bit
# operators, and what setting up the levels leaves.
_BYTES = 120
_HOST_BYTES = 200  # per point: the linear system and what it is assembled from
_PLAIN = (_BYTES, 48)  # without held cells or enthalpy, where the GPU assembles the system


def _arithmetic(device: Any) -> Arithmetic:

    return GpuArithmetic(device)


STEADY = SolvingMethod("gpu.steady", "gpu", _arithmetic, "steady", _BYTES, _HOST_BYTES, _PLAIN)
IMPLICIT = SolvingMethod("gpu.implicit", "gpu", _arithmetic, "implicit", _BYTES, _HOST_BYTES)


class GpuArrays:
    """The array operations of spectral propagation on a GPU; implements the Protocol
    `DeviceArrays`.
    """

    # See `SpectralAxis`, which falls back to matrix products for other types.
    types = frozenset({2, 3})  # types of cosine and sine transforms that cupyx.scipy.fft has

    def __init__(self, device: GpuDevice) -> None:
        import cupyx.scipy.fft

        self.xp: Any = device.cupy
        self.fft: Any = cupyx.scipy.fft
        self.options: dict[str, Any] = {}
        self._device = device

    def each(self, parts: Sequence[slice], work: Callable[[slice], None]) -> None:
        """Call `work` for one part after the other, since each part fills the GPU."""
        for part in parts:
            work(part)

    def use(self) -> contextlib.AbstractContextManager[Any]:
        """Make the GPU current for CuPy."""
        return self._device.use()

    def on_host(self, array: Any) -> Field:
        """A copy of an array in host memory."""
        with self._device.use():
            return self._device.fetch(self.xp.ascontiguousarray(array))

    def rates(self, problem: Problem) -> Callable[[Any, float], Any]:
        """Right-hand sides by operations on whole arrays, which stay on the GPU."""
        return ArrayRates(problem, self.xp)

    def wait(self) -> None:
        """Return when the GPU is done."""
        self._device.stream.synchronize()

    def release(self) -> None:
        """Return its unused memory."""
        self._device.release()


METHOD = SpectralMethod("gpu.spectral", "gpu", GpuArrays, GpuArrays.types)


def integrating(scheme: str) -> IntegratingMethod:
    """The method that integrates right-hand sides by a scheme."""
    return IntegratingMethod(scheme, "gpu", GpuArrays)
