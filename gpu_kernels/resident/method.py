"""The Method `gpu.resident`: which problems resident.cu takes, and how it is launched."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.common.layout import by_value, pitch_slab
from tetris_sim.gpu_kernels.common.terms import REAL, term_defines
from tetris_sim.gpu_kernels.faces.extents import Extent
from tetris_sim.gpu_kernels.resident.tile import Cut, Tile, proposed_tiles
from tetris_sim.gpu_kernels.steppers.passes import single_step
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.grid import on_three
from tetris_sim.model.method import STEPS_PER_BLOCK, KnownGpu, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import Pass, State

_PROPOSALS = 3  # the first was the fastest of six on most grids (H200, 2026-11-23)
_STEPS = 256  # of a launch, about: loading and storing then take a few percent of it
_FEWER = 5  # stretches of a launch for what is left over
_FLAG_NUMBERS = 32  # of resident.cu: flags are 128 bytes apart
# Two copies of these fit into the second-level cache, and one into registers.
_MOST_POINTS = 1 << 22


@dataclass(frozen=True)
class ResidentMethod:
    """A grid that stays in registers for hundreds of steps; sweeps for what is left over, and for
    slabs with neighbours.
    """

    name: str = "gpu.resident"
    device: Literal["gpu"] = "gpu"
    exact: bool = True

    def refusal(self, problem: Problem) -> str | None:
        """Refuses all but one stencil that reaches one point, and grids that do not fit."""
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
        """Tiles that a model expects to be fastest."""
        shape, periodic = _axes_of(problem)
        if problem.grid.n_points > _MOST_POINTS or shape[0] == 1 < problem.grid.ndim - 1:
            return ()
        return _proposed(shape, periodic, problem.dtype.itemsize)

    def fixed_at_compile(self, parameter: str) -> bool:
        """All but the number of steps of a launch."""
        return parameter != STEPS_PER_BLOCK

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        """Nothing to say."""
        return None

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Two pitched copies of the state, and rims; flags are few."""
        tile = _tile(self._complete(problem, parameters))
        cut = tile.cut(*_axes_of(problem))
        rims = tile.rim_bytes(cut, problem.dtype.itemsize) if cut is not None else 0
        return 2 * pitch_slab(problem, slab).n_bytes + rims

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Compile and take two copies of the slab; `device` is a `GpuDevice`."""
        from tetris_sim.gpu_kernels.steppers.stepper import GpuStepper

        return GpuStepper(problem, slab, device, self.passes(problem, slab, parameters))

    def depth(self, problem: Problem, parameters: Parameters) -> int:
        """Steps of a launch: an odd number of stretches between exchanges."""
        complete = self._complete(problem, parameters)
        return _launches(_tile(complete).steps, complete[STEPS_PER_BLOCK])[0]

    def passes(self, problem: Problem, slab: Slab, parameters: Parameters) -> list[Pass]:
        """Launches of many steps and of fewer, and single sweeps."""
        last = single_step(problem)
        complete = self._complete(problem, parameters)
        tile = _tile(complete)
        cut = tile.cut(*_axes_of(problem))
        if cut is None or not tile.runs(cut) or any(any(widths) for widths in slab.halo):
            return [last]
        depths = _launches(tile.steps, complete[STEPS_PER_BLOCK])
        return [*(Resident(tile, cut, depth) for depth in depths if depth > 1), last]

    def _complete(self, problem: Problem, parameters: Parameters) -> Parameters:
        """With what was left out, and no more steps between exchanges than in a launch."""
        proposed = self.parameters(problem)
        complete = {**(proposed[0] if proposed else {}), **parameters}
        return {**complete, "steps": min(complete["steps"], complete[STEPS_PER_BLOCK])}


class Resident:
    """Many steps of a whole grid by blocks of threads that all run at a time."""

    ghosts = 1
    by_course, by_rules = False, False

    def __init__(self, tile: Tile, cut: Cut, depth: int) -> None:
        self.depth = depth
        self._tile, self._cut = tile, cut

    def prepare(self, state: State) -> None:
        """Compile, and take flags.

        Raises:
            UnsupportedError: the GPU cannot run all blocks at a time.
        """
        self._state, problem, tile = state, state.problem, self._tile
        deep = self._cut.shape[0] > 1
        self._bytes = tile.shared_bytes(problem.dtype.itemsize, deep=deep)
        defines = resident_defines(problem, tile, self._cut)
        self._function = state.device.function("resident.cu", "resident", defines, self._bytes)

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
        """One launch per field."""
        state, tile = self._state, self._tile
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


def resident_defines(problem: Problem, tile: Tile, cut: Cut) -> dict[str, str | int]:
    """Parameters of resident.cu."""
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
    """`struct Faces`: (a and b, 3 axes, 2 sides)."""
    faces = np.zeros((2, 3, 2), problem.dtype)
    for axis, spacing in enumerate(problem.grid.spacing):
        if problem.boundary.periodic(axis):
            continue
        for number, side in enumerate(SIDES):
            (pair,) = problem.boundary.reflections(axis, side, spacing=spacing, width=1)
            faces[:, 3 - problem.grid.ndim + axis, number] = pair
    return faces


def _axes_of(problem: Problem) -> tuple[tuple[int, int, int], tuple[bool, bool, bool]]:
    """(points, whether it is a ring) of z, y, x. The axis that a plane lacks ends at faces."""
    rings = [problem.boundary.periodic(axis) for axis in range(problem.grid.ndim)]
    return on_three(problem.grid.shape, 1), on_three(rings, False)


def _tile(parameters: Parameters) -> Tile:
    return Tile(**{field.name: parameters[field.name] for field in fields(Tile)})


@functools.lru_cache(maxsize=64)
def _proposed(
    shape: tuple[int, int, int], periodic: tuple[bool, bool, bool], item: int
) -> tuple[Mapping[str, int], ...]:
    return tuple(
        {STEPS_PER_BLOCK: _launches(tile.steps, _STEPS)[0], **asdict(tile)}
        for tile in proposed_tiles(shape, periodic, item, _PROPOSALS)
    )


def _launches(steps: int, most: int) -> list[int]:
    """Steps of the launches, the longest first: odd numbers of stretches, which have an even number
    of exchanges between them.

    >>> _launches(6, 256), _launches(4, 11)
    ([246, 30, 6], [4])
    """
    longest = (max(1, most // steps) - 1) // 2 * 2 + 1
    fewer = [stretches for stretches in (_FEWER, 1) if stretches < longest]
    return [steps * stretches for stretches in (longest, *fewer)]
