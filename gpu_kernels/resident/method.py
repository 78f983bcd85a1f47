"""gpu.resident: tiles of a grid that stay in registers, the problems that resident.cu takes, and
its launch.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.boundary.extents import Extent
from tetris_sim.gpu_kernels.common.layout import REAL, by_value, pitch_slab, term_defines
from tetris_sim.gpu_kernels.steppers.passes import single_step
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.grid import on_three
from tetris_sim.model.method import STEPS_PER_BLOCK, KnownGpu, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import DeviceState, Pass

# The division of a grid into tiles of resident.cu, one per block of threads, and which tiles are
# worth trying.

_REGISTERS, _MOST_REGISTERS = 65536, 255  # per multiprocessor, per thread
_SPARE_REGISTERS = 32  # per thread, besides its points
_MOST_SHARED = 227 * 1024
_RESERVED_SHARED = 1024  # per block, used by the system
_MULTIPROCESSORS = 132  # of an H200; smaller GPUs refuse tiles that do not fit

# Seconds per multiprocessor of a step and of an exchange: a constant part and a part per point.
# H200, float64, tiles on 512^2 and 1024^2 (2026-11-23), 64^3, 96^3 and 128^3 points (2026-11-24).
# They only rank candidates.
_STEP, _STEP_POINT = 0.08e-6, 5.2e-11
_EXCHANGE, _EXCHANGE_POINT = 0.8e-6, 2.4e-10
_DEEP_EXCHANGE, _DEEP_EXCHANGE_POINT = 1.8e-6, 3.0e-10  # in 3D
_RIMS, _RIMS_POINT = 1.9e-6, 1.55e-10  # a step that overlaps the exchange of rims


@dataclass(frozen=True)
class ResidentCut:
    """The division of a grid into tiles; axes are z, y, x.

    Attributes:
        shape: points of the grid.
        tiles: number of tiles along each axis.
        own: points that a tile owns at most, along each axis.
        lead: columns of a tile before the owned ones.
        whole: whether each row of the grid lies in one tile, from its first column on.
        wraps: whether such rows are also periodic.
        last: which of a lane's columns lies at the high face.
    """

    shape: tuple[int, int, int]
    tiles: tuple[int, int, int]
    own: tuple[int, int, int]
    lead: int
    whole: bool
    wraps: bool
    last: int

    @property
    def blocks(self) -> int:
        """The number of tiles, one per block of threads."""
        return math.prod(self.tiles)


@dataclass(frozen=True)
class ResidentTile:
    """The tile of a block of threads, which the kernel's parameters describe.

    Attributes:
        steps: steps between two exchanges.
        planes: planes per warp.
        rows: rows per warp, in each of its planes.
        columns: columns per lane.
        warps_z: warps of a block along z.
        warps_y: warps of a block along y.
        blocks: blocks per multiprocessor; bounds the registers of a thread.
        copies: buffers of the rows that warps exchange: 2 need one barrier per step, 1 needs two.
        rims: whether warps exchange rims with other blocks at each step, and compute meanwhile.
    """

    steps: int
    planes: int
    rows: int
    columns: int
    warps_z: int
    warps_y: int
    blocks: int
    copies: int
    rims: int = 0

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return 32 * self.columns

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps_z * self.warps_y

    @property
    def points(self) -> int:
        """Points that a block computes in a step."""
        return self.planes * self.warps_z * self.rows * self.warps_y * self.width

    def shared_bytes(self, item: int, *, deep: bool) -> int:
        """Shared memory for the rows that warps exchange and those just outside of the tile
        [bytes].
        """
        # Only rows at the surface of a warp's patch are read by other warps.
        outer = [
            j in (0, self.rows - 1) or (deep and i in (0, self.planes - 1))
            for i in range(self.planes)
            for j in range(self.rows)
        ]
        shown = self.copies * self.warps_z * self.warps_y * sum(outer)
        ring = 2 * self.warps_z * self.planes + 2 * self.warps_y * self.rows * deep
        return (shown + ring) * self.width * item

    def flags(self, cut: ResidentCut) -> int:
        """The number of flags with which blocks, or their warps, publish their progress."""
        return cut.blocks * (self.warps_z * self.warps_y if self.rims else 1)

    def rim_bytes(self, cut: ResidentCut, item: int) -> int:
        """GPU memory for two copies of the rims of all blocks, if warps exchange them [bytes]."""
        depth, height = self.warps_z * self.planes, self.warps_y * self.rows
        return self.rims * 2 * cut.blocks * 2 * (depth + height) * self.width * item

    def fits(self, item: int, *, deep: bool) -> bool:
        """Whether a multiprocessor holds `blocks` such tiles in registers and shared memory."""
        registers = min(_MOST_REGISTERS, _REGISTERS // (self.threads * self.blocks))
        # Registers per thread that the compiler may use, and those that its points take.
        numbers = self.planes * self.rows * self.columns * item // 4
        shared = self.shared_bytes(item, deep=deep) + _RESERVED_SHARED
        return (
            self.threads <= 1024
            and numbers + _SPARE_REGISTERS <= registers
            and self.blocks * shared <= _MOST_SHARED + _RESERVED_SHARED
        )

    def runs(self, cut: ResidentCut) -> bool:
        """Whether an H200 runs all blocks at the same time, as their exchange requires."""
        return cut.blocks <= _MULTIPROCESSORS * self.blocks

    def cut(
        self, shape: tuple[int, int, int], periodic: tuple[bool, bool, bool]
    ) -> ResidentCut | None:
        """The division of a grid into such tiles; None where a tile would own fewer points than
        `steps` steps reach.

        Args:
            shape: points along z, y, x.
            periodic: which axes are periodic.
        """
        whole = shape[2] == self.width or (not periodic[2] and shape[2] < self.width)
        # A low face must lie where the columns of a lane begin.
        lead = self.steps if periodic[2] else -(-self.steps // self.columns) * self.columns
        lead = 0 if whole else lead
        # Registers hold the own points and those that `steps - 1` further steps reach; the layer
        # outside of these is read from memory once after an exchange.
        margin = 2 * (self.steps - 1)
        most = (
            self.warps_z * self.planes - margin if shape[0] > 1 else 1,
            self.warps_y * self.rows - margin,
            shape[2] if whole else self.width - lead - self.steps,
        )
        if min(most) < 1:
            return None

        z, y, x = (math.ceil(n / m) for n, m in zip(shape, most, strict=True))
        tiles = z, y, x
        own_z, own_y, own_x = (math.ceil(n / t) for n, t in zip(shape, tiles, strict=True))
        own = own_z, own_y, own_x
        for axis, (n, t, o) in enumerate(zip(shape, tiles, own, strict=True)):
            # The last tile of an axis owns the rest, from which its neighbours still read `steps`
            # points.
            alone = n == 1 if axis == 0 else axis == 2 and whole
            if not alone and n - o * (t - 1) < self.steps:
                return None
        # Rims are exchanged only between full tiles of whole rows.
        full = (own_z, own_y) == most[:2] and shape[0] % own_z == shape[1] % own_y == 0
        if self.rims and not (whole and full and self.steps == 1):
            return None
        last = (shape[2] - 1 - (x - 1) * own[2] + lead) % self.columns
        return ResidentCut(shape, tiles, own, lead, whole, whole and periodic[2], last)


def proposed_tiles(
    shape: tuple[int, int, int], periodic: tuple[bool, bool, bool], item: int, most: int
) -> list[ResidentTile]:
    """The tiles that the model ranks fastest, at most `most`, the best first."""
    deep = shape[0] > 1
    ranked: dict[ResidentTile, float] = {}
    for tile in _deep_tiles(shape, item) if deep else _flat_tiles(shape, periodic):
        if not tile.fits(item, deep=deep) or tile in ranked:
            continue
        cut = tile.cut(shape, periodic)
        if cut is not None and tile.runs(cut):
            ranked[tile] = _seconds(tile, cut)
    return sorted(ranked, key=lambda tile: ranked[tile])[:most]


def _seconds(tile: ResidentTile, cut: ResidentCut) -> float:
    """The time of a step on one multiprocessor by the model [s]."""
    # Multiprocessors work side by side, so the one with the most blocks sets the time.
    points = math.ceil(cut.blocks / _MULTIPROCESSORS) * tile.points
    if tile.rims:
        return _RIMS + _RIMS_POINT * points
    exchange = _EXCHANGE + _EXCHANGE_POINT * points
    if cut.shape[0] > 1:
        exchange = _DEEP_EXCHANGE + _DEEP_EXCHANGE_POINT * points
    return _STEP + _STEP_POINT * points + exchange / tile.steps


def _flat_tiles(
    shape: tuple[int, int, int], periodic: tuple[bool, bool, bool]
) -> Iterator[ResidentTile]:
    """Candidates in 2D: for each width, as few rows as let all tiles run at the same time."""
    sizes = itertools.product((4, 6, 8), (1, 2, 3, 5), ((12, 1), (8, 1), (8, 2)))
    for steps, columns, (warps, blocks) in sizes:
        # A tile as high as the grid tells how many tiles lie along x.
        one = ResidentTile(steps, 1, shape[1] + 2 * steps, columns, 1, 1, blocks, 2)
        cut = one.cut(shape, periodic)
        if cut is None or cut.tiles[2] > _MULTIPROCESSORS * blocks:
            continue
        own = math.ceil(shape[1] / (_MULTIPROCESSORS * blocks // cut.tiles[2]))
        rows = math.ceil((max(own, steps) + 2 * (steps - 1)) / warps)
        yield ResidentTile(steps, 1, rows, columns, 1, warps, blocks, 2)


def _deep_tiles(shape: tuple[int, int, int], item: int) -> Iterator[ResidentTile]:
    """Candidates in 3D: small patches of rows, with two buffers for the exchange if they fit."""
    yield from _rim_tiles(math.ceil(shape[2] / 32))
    patches = ((2, 2), (2, 4), (1, 4))
    warps = ((4, 4), (4, 2), (2, 2))
    sizes = itertools.product((1, 2), patches, (1, 2, 3, 4, 5), warps, (1, 2, 4))
    for steps, (planes, rows), columns, (warps_z, warps_y), blocks in sizes:
        for copies in (2, 1):
            tile = ResidentTile(steps, planes, rows, columns, warps_z, warps_y, blocks, copies)
            if tile.fits(item, deep=True):
                yield tile
                break


def _rim_tiles(columns: int) -> Iterator[ResidentTile]:
    """Candidates that overlap the exchange: patches with as few rows at their ends as registers
    allow, since only inner rows are computed while rims are in flight.
    """
    patches = ((4, 4), (2, 4), (2, 3))
    warps = ((4, 2), (2, 4), (4, 3), (2, 3), (4, 4), (2, 2))
    for (planes, rows), (warps_z, warps_y) in itertools.product(patches, warps):
        yield ResidentTile(1, planes, rows, columns, warps_z, warps_y, 1, 1, 1)


_PROPOSALS = 3  # the first was the fastest of six on most grids (H200, 2026-11-23)
_STEPS = 256  # per launch, about: loading and storing then take a few percent of the time
_FEWER = 5  # intervals between exchanges in a shorter launch for remaining steps
_FLAG_NUMBERS = 32  # numbers per flag in resident.cu: flags are 128 bytes apart
# Two copies of so many points fit into the L2 cache, and one into registers.
_MOST_POINTS = 1 << 22


@dataclass(frozen=True)
class ResidentMethod:
    """A method that keeps a grid in registers for hundreds of steps; single sweeps for remaining
    steps and for slabs with neighbours.
    """

    name: str = "gpu.resident"
    device: Literal["gpu"] = "gpu"
    exact: bool = True

    def refusal(self, problem: Problem) -> str | None:
        """Refuse everything but a single stencil of radius 1, and grids that do not fit into
        registers.
        """
        if (why_not := problem.why_not_one_stencil) is not None:
            return why_not

        ndim, dtype = problem.grid.ndim, np.dtype(problem.dtype)
        if ndim == 1:
            return "lines are faster on tensor cores, or as tiles that stay whole for a launch"
        if dtype.name not in REAL:
            return f"the type is {dtype.name}, and only {' and '.join(REAL)} are compiled"
        if problem.stencil.radius != 1:
            return (
                f"the stencil reads {problem.stencil.radius} points far, and what blocks of "
                "threads hand on between exchanges is for stencils that read 1"
            )
        if ndim == 3 and any(np.count_nonzero(it) > 1 for it in problem.stencil.offsets):
            return "the stencil reads points off the axes, and rows of those are not handed on"
        if not self.parameters(problem):
            return (
                f"the grid has {problem.grid.n_points} points, and no tiles of it fit into the "
                "registers of all multiprocessors"
            )
        return None

    def parameters(self, problem: Problem) -> tuple[Parameters, ...]:
        """The tiles that the model ranks fastest."""
        shape, periodic = _axes_of(problem)
        if problem.grid.n_points > _MOST_POINTS or shape[0] == 1 < problem.grid.ndim - 1:
            return ()
        return _proposed(shape, periodic, problem.dtype.itemsize)

    def fixed_at_compile(self, parameter: str) -> bool:
        """Whether a parameter is a macro: all but the number of steps per launch."""
        return parameter != STEPS_PER_BLOCK

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        """No remark."""
        return None

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Two pitched copies of the state, and the rims; the flags are few [bytes]."""
        tile = _tile(self._complete(problem, parameters))
        cut = tile.cut(*_axes_of(problem))
        rims = tile.rim_bytes(cut, problem.dtype.itemsize) if cut is not None else 0
        return 2 * pitch_slab(problem, slab).n_bytes + rims

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Compile and allocate two copies of the slab; `device` is a `GpuDevice`."""
        from tetris_sim.gpu_kernels.steppers.stepper import GpuStepper

        return GpuStepper(problem, slab, device, self.passes(problem, slab, parameters))

    def depth(self, problem: Problem, parameters: Parameters) -> int:
        """Steps of a launch: an odd number of intervals between exchanges."""
        complete = self._complete(problem, parameters)
        return _launches(_tile(complete).steps, complete[STEPS_PER_BLOCK])[0]

    def passes(self, problem: Problem, slab: Slab, parameters: Parameters) -> list[Pass]:
        """Long launches, shorter ones, and single sweeps."""
        last = single_step(problem)
        complete = self._complete(problem, parameters)
        tile = _tile(complete)
        cut = tile.cut(*_axes_of(problem))
        # A halo would have to be exchanged within a launch.
        if cut is None or not tile.runs(cut) or any(any(widths) for widths in slab.halo):
            return [last]
        depths = _launches(tile.steps, complete[STEPS_PER_BLOCK])
        return [*(Resident(tile, cut, depth) for depth in depths if depth > 1), last]

    def _complete(self, problem: Problem, parameters: Parameters) -> Parameters:
        """Parameters with defaults for missing ones, and no more steps between exchanges than in a
        launch.
        """
        proposed = self.parameters(problem)
        complete = {**(proposed[0] if proposed else {}), **parameters}
        return {**complete, "steps": min(complete["steps"], complete[STEPS_PER_BLOCK])}


class Resident:
    """A pass of many steps of a whole grid, by blocks of threads that all run at the same time."""

    ghosts = 1
    by_course, by_sum, by_rules = False, False, False

    def __init__(self, tile: ResidentTile, cut: ResidentCut, depth: int) -> None:
        self.depth = depth
        self._tile, self._cut = tile, cut

    def prepare(self, state: DeviceState) -> None:
        """Compile the kernel and allocate flags and rims.

        Raises:
            UnsupportedError: the GPU cannot run all blocks at the same time.
        """
        self._state, problem, tile = state, state.problem, self._tile
        deep = self._cut.shape[0] > 1
        self._bytes = tile.shared_bytes(problem.dtype.itemsize, deep=deep)
        defines = resident_defines(problem, tile, self._cut)
        self._function = state.device.function("resident.cu", "resident", defines, self._bytes)

        # Blocks wait for each other's flags: one that never starts would be a deadlock.
        slots = state.device.slots(self._function, tile.threads, self._bytes)
        if slots < self._cut.blocks:
            msg = (
                f"it needs {self._cut.blocks} blocks of threads at a time, and the GPU has {slots}"
            )
            raise UnsupportedError(msg)

        self._parts = by_value(
            np.array([*self._cut.shape, *self._cut.own, self._cut.lead], np.int32)
        )
        self._faces = by_value(faces_argument(problem))
        self._flags = state.device.cupy.zeros(_FLAG_NUMBERS * tile.flags(self._cut), np.uint32)
        n_bytes = tile.rim_bytes(self._cut, problem.dtype.itemsize)
        self._rims = state.device.cupy.empty(max(n_bytes // 4, 1), np.uint32)

    def launch(self, extent: Extent) -> None:
        """One cooperative launch per field."""
        state, tile = self._state, self._tile
        # No exchange after the last interval.
        exchanges = np.int32(self.depth // tile.steps - 1)
        z, y, x = self._cut.tiles
        told = self._flags, self._rims, exchanges
        beside = state.memory, self._parts, state.weights, self._faces, *told
        for now, then in state.fields():
            self._function(
                (x, y, z),
                (tile.threads, 1, 1),
                (now, then, *beside),
                shared_mem=self._bytes,
                enable_cooperative_groups=True,
            )


def resident_defines(
    problem: Problem, tile: ResidentTile, cut: ResidentCut
) -> dict[str, str | int]:
    """Macros of resident.cu."""
    _, periodic = _axes_of(problem)

    return {
        **term_defines(problem),
        "TS_PLANES": tile.planes,
        "TS_ROWS": tile.rows,
        "TS_COLUMNS": tile.columns,
        "TS_WARPS_Z": tile.warps_z,
        "TS_WARPS_Y": tile.warps_y,
        "TS_STEPS": tile.steps,
        "TS_BLOCKS": tile.blocks,
        "TS_COPIES": tile.copies,
        "TS_FACES": sum(3 << 2 * axis for axis in range(3) if not periodic[axis]),
        "TS_WHOLE": int(cut.whole),
        "TS_FULL": int(cut.whole and cut.shape[2] == tile.width),
        "TS_WRAPS": int(cut.wraps),
        "TS_LAST": cut.last,
        "TS_RIMS": tile.rims,
    }


def faces_argument(problem: Problem) -> Any:
    """`struct Faces`: a and b of each face's reflection, (2, 3 axes, 2 sides)."""
    faces = np.zeros((2, 3, 2), problem.dtype)
    for axis, spacing in enumerate(problem.grid.spacing):
        if problem.boundary.periodic(axis):
            continue
        for number, side in enumerate(SIDES):
            (pair,) = problem.boundary.reflections(axis, side, spacing=spacing, width=1)
            faces[:, 3 - problem.grid.ndim + axis, number] = pair
    return faces


def _axes_of(problem: Problem) -> tuple[tuple[int, int, int], tuple[bool, bool, bool]]:
    """The points along z, y, x and which of these axes are periodic; the axis that a 2D grid lacks
    is not.
    """
    rings = [problem.boundary.periodic(axis) for axis in range(problem.grid.ndim)]
    return on_three(problem.grid.shape, 1), on_three(rings, False)


def _tile(parameters: Parameters) -> ResidentTile:
    return ResidentTile(**{field.name: parameters[field.name] for field in fields(ResidentTile)})


@functools.lru_cache(maxsize=64)
def _proposed(
    shape: tuple[int, int, int], periodic: tuple[bool, bool, bool], item: int
) -> tuple[Mapping[str, int], ...]:
    return tuple(
        {STEPS_PER_BLOCK: _launches(tile.steps, _STEPS)[0], **asdict(tile)}
        for tile in proposed_tiles(shape, periodic, item, _PROPOSALS)
    )


def _launches(steps: int, most: int) -> list[int]:
    """Steps of the launches, the longest first: odd numbers of intervals, which have an even number
    of exchanges between them.

    >>> _launches(6, 256), _launches(4, 11)
    ([246, 30, 6], [4])
    """
    # The exchange writes rims alternately to both arrays (resident.cu), hence the parity.
    longest = (max(1, most // steps) - 1) // 2 * 2 + 1
    fewer = [stretches for stretches in (_FEWER, 1) if stretches < longest]
    return [steps * stretches for stretches in (longest, *fewer)]
