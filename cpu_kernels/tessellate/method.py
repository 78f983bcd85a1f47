"""cpu.tessellate: triangles and inverted triangles in space and time, no point computed twice, few
trips to memory.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.caches import (
    WHY_NOT_HALF,
    Caches,
    read_caches,
    why_not_blocked,
)
from tetris_sim.cpu_kernels.common.layout import COUNT, REACH, SHRINK, Layout, pad
from tetris_sim.cpu_kernels.tessellate.lifted import LiftedField, can_lift, lift_slab
from tetris_sim.cpu_kernels.tessellate.tiles import (
    N_KINDS,
    N_STAGES,
    TileAxis,
    lay,
    least_width,
    n_along,
    n_tiles,
    stage_of,
)
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.method import STEPS_PER_BLOCK, KnownGpu, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.support import usable_cores

# Fitting: tiles for a slab of few of them, so that all threads have as much to do.
#
# Tiles that suit a whole grid are few in a thin slab: 138 rows of 10,240 points are ten of them,
# and 15 threads need as long for ten as for fifteen. So tiles are made narrower, and blocks of
# steps shorter where those need that, until the longest turn of a thread is predicted to be the
# shortest. Times are counted in updates of a unit of a row, a vector of lifted rows.

Tile = tuple[int, int, int]  # width along each padded axis; 0 for one that is not cut

_PLENTY = 12  # tiles of a thread in the first stage: then it hardly matters who has one more
_PARTS = (1, 2, 3, 4, 6, 8)  # of a slab along an axis, or of what a thread has of it
# heat-2d on 15 threads beside an H200 (Intel Xeon, float64, 2026-11-24): a vector of 8 takes 4 ns
# in the caches of a core, the ends of a row and the meeting of all threads as long as so many.
_ROW, _STAGE = 4.0, 1000.0
# A unit that comes from the cache that all share, once for each block of steps.
_FETCHED = 4.0
# tiles that fill more than half of the cache of a core, and more than all of it
_LARGE, _TOO_LARGE = 1.25, 1.4
# by how much the slowest thread is slower, for it begins later or somebody else needs its core
_UNEVEN = 0.2


@dataclass(frozen=True)
class Stay:
    """Slab to be tiled, and the resources for it.

    Attributes:
        rows: `axes` of the slab's geometry.
        threads: that share the tiles.
        block: steps between two exchanges.
        unit_bytes: of a unit along the last axis, in both arrays.
    """

    rows: npt.NDArray[np.int64]
    threads: int
    block: int
    unit_bytes: int


def fit(stay: Stay, tile: Tile, steps: int) -> tuple[Tile, int]:
    """(tile, steps per block) for a slab, neither larger than these; these themselves if there are
    tiles enough for all threads.
    """
    # With tiles in plenty the load is balanced already.
    steps = min(max(1, steps), stay.block)
    if n_tiles(_cuts(stay, tile, steps), 0) >= _PLENTY * stay.threads:
        return tile, steps

    shorter = dict.fromkeys(max(1, steps // part) for part in (1, 2, 4))
    tries = [(tile, steps)] + [
        (found, few)
        for few in shorter
        for found in itertools.product(
            _widths(stay, 0, tile[0], few),
            _widths(stay, 1, tile[1], few),
            _widths(stay, 2, tile[2], few),
        )
        if n_tiles(_cuts(stay, found, few), 0) <= _PLENTY * stay.threads
    ]

    return min(tries, key=lambda it: turn(stay, *it))


def turn(stay: Stay, tile: Tile, steps: int) -> float:
    """Predicted time of a step, counted in units."""
    cuts, longest = _cuts(stay, tile, steps), 0.0
    for stage in range(N_STAGES):
        kinds = [kind for kind in range(N_KINDS) if stage_of(kind) == stage]
        # Greedy scheduling: the next tile goes to the thread that is free first.
        # (time, how slow) of each thread
        loads = [(0.0, 1.0 + _UNEVEN * (k + 1) / stay.threads) for k in range(stay.threads)]
        for kind in kinds:
            cost = _cost(cuts, kind, steps)
            for _ in range(n_tiles(cuts, kind)):
                seconds, slow = loads[0]
                heapq.heapreplace(loads, (seconds + cost * slow, slow))
        if max(loads)[0] > 0:
            longest += max(loads)[0] + _STAGE

    widths = [(axis.high - axis.low) / axis.n_upright for axis in cuts]
    n_bytes = widths[0] * widths[1] * widths[2] * stay.unit_bytes
    # Larger tiles fall out of the second-level cache.
    cache = read_caches().l2
    size = 1.0 if n_bytes <= cache / 2 else _LARGE if n_bytes <= cache else _TOO_LARGE
    # The cost of fetching from the shared cache arises once per block, so it is spread over the
    # steps.
    units = np.prod([float(axis.high - axis.low) for axis in cuts])
    return size * (longest + _FETCHED * float(units) / stay.threads) / steps


def _cuts(stay: Stay, tile: Tile, steps: int) -> tuple[TileAxis, TileAxis, TileAxis]:
    """Tiles along the three axes as they are in the middle of a block."""
    later = (stay.block - steps) // 2
    first, second, third = (lay(stay.rows[axis], tile[axis], steps, later) for axis in range(3))
    return first, second, third


def _widths(stay: Stay, axis: int, width: int, steps: int) -> list[int]:
    """Widths along an axis that are worth a prediction."""
    row: Any = stay.rows[axis]
    length = int(row[COUNT] + (stay.block - 1) * (row[SHRINK] + row[SHRINK + 1]) // 2)
    counts = {n for part in _PARTS for n in (part, part * stay.threads)}
    narrow = max(1, least_width(steps, int(row[REACH])))
    if axis == 2 and width == 0:  # somebody found that whole rows pay
        return [0]
    cut = {length // n for n in counts if n > 1 and length // n >= narrow}
    return [width, *sorted(n for n in cut if width == 0 or n < width)]


def _cost(cuts: Sequence[TileAxis], kind: int, steps: int) -> float:
    """All steps of a tile, as long as the average tile of its kind."""
    extent = []
    for axis, cut in enumerate(cuts):
        grown = (steps - 1) * cut.radius
        if kind >> axis & 1:
            extent.append(float(grown))
        elif n_along(cut, 1):
            extent.append((cut.high - cut.low - n_along(cut, 1) * grown) / cut.n_upright)
        else:
            lost = (steps - 1) * (cut.shrink_low + cut.shrink_high) / 2
            extent.append(cut.high - cut.low - lost)
    planes, rows, units = (max(0.0, width) for width in extent)
    return steps * planes * rows * (units + _ROW) if units > 0 else 0.0


AUTO, SKEWED, QUADRUPLE, LIFTED = range(4)  # the parameter `rows`: see rows.py and swizzled.py
_LINE = 8  # numbers in a cache line of counters
_REGISTERS = 16  # of the processors that have few
_SHARED = 25  # weights that rows taken together still share well with so few registers
_MOST_STEPS = 512  # of a block: by then the trip to memory is no more than a hundredth of the time


@dataclass(frozen=True)
class TessellateMethod:
    """Advance tiles that fit a cache through a block of steps (`tiles.py`, `tile_sweep.py`).

    Its parameters: `rows`, one of the row kernels above (AUTO where rows are too short for LIFTED);
    `width`, bytes of a vector (not of AUTO, where LLVM chooses); `jam`, rows computed together (of
    LIFTED in 2D and 3D), which lie on so many `planes` (in 3D: 1, or as many as there are rows);
    `unroll`, vectors of a row computed together (of LIFTED, 1 where weights fit the registers);
    `steps_per_block`; `tile_x`, `tile_y`, `tile_z`, points a tile is wide at least, 0 for an axis
    that is not cut. Tiles are made wider where that many steps need it.
    """

    name: str = "cpu.tessellate"
    device: Literal["cpu"] = "cpu"
    exact: bool = True

    def refusal(self, problem: Problem) -> str | None:
        """Refuses float16, and stencils of so many points that compiling takes longer than most
        runs.
        """
        if problem.conduction is None:
            return why_not_blocked(problem, self.name)
        return WHY_NOT_HALF if problem.dtype == np.float16 else None

    def parameters(self, problem: Problem) -> tuple[Parameters, ...]:
        """Lifted rows; tiles for the cache levels and numbers of jammed rows that have been best
        somewhere.
        """
        return candidates(problem, read_caches(), len(usable_cores()))

    def fixed_at_compile(self, parameter: str) -> bool:
        """All but the steps of a block and the widths of a tile."""
        return parameter not in (STEPS_PER_BLOCK, "tile_x", "tile_y", "tile_z")

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        """Nothing to say."""
        return None

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Two copies of the state, what is known of a body, and what threads have of their own."""
        chosen = self._complete(problem, parameters)
        layout = _layout(problem, slab, chosen)
        if problem.conduction is None:
            return 2 * layout.n_bytes
        from tetris_sim.cpu_kernels.tessellate.records import kind_of, record_bytes

        assert isinstance(layout, LiftedField)
        kind = kind_of(problem)
        planes = len(usable_cores()) * kind.rings * kind.ring(chosen["jam"])
        rings = planes * layout.pitch[0] * layout.dtype.itemsize
        return 2 * layout.n_bytes + record_bytes(problem, layout) + rings

    def fitted(
        self, problem: Problem, slab: Slab, parameters: Parameters, threads: int
    ) -> Parameters:
        """Narrower tiles where a slab with neighbours has few of them for so many threads
        (`fit`).
        """
        if threads == 1 or not any(map(any, slab.halo)) or not all(problem.stencil.radii):
            return parameters

        chosen = self._complete(problem, parameters)
        layout = _layout(problem, slab, chosen)
        lanes = layout.lanes if isinstance(layout, LiftedField) else 1
        # Steps that the halo lasts.
        block = max(
            -(-width // radius)
            for widths, radius in zip(slab.halo, problem.stencil.radii, strict=True)
            for width in widths
        )
        rows = layout.geometry(problem, slab).axes
        stay = Stay(rows, threads, block, 2 * lanes * layout.dtype.itemsize)
        tile, steps = fit(stay, _tile(problem, chosen, layout), chosen[STEPS_PER_BLOCK])
        units = (1, 1, lanes)
        widths = {
            f"tile_{name}": tile[axis] * units[axis]
            for name, axis in zip(problem.grid.axis_names, layout.axis_of, strict=True)
        }
        return {**chosen, **widths, STEPS_PER_BLOCK: steps}

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        """Compile the tile loop and take two copies of the slab; `device` is a `ThreadTeam`."""
        from tetris_sim.cpu_kernels.common.ready import TimeLoop, make_stepper
        from tetris_sim.cpu_kernels.compiled.generate import compiled_module
        from tetris_sim.cpu_kernels.tessellate.operands import (
            ConductingStepper,
            make_loop,
            side_by_side,
        )

        chosen = self._complete(problem, parameters)
        layout = _layout(problem, slab, chosen)
        kernel = compiled_module(_update(problem, chosen, layout)).update_box
        lanes = layout.lanes if isinstance(layout, LiftedField) else 1
        counters = np.zeros(2 * N_KINDS * device.size * _LINE, dtype=np.int64)
        plan = (
            kernel.address,
            _tile(problem, chosen, layout),
            max(1, chosen["steps_per_block"]),
            counters,
        )

        # Rows one above the other are computed together only if their planes are.
        above = chosen["jam"] if chosen.get("planes", 1) > 1 else 1
        together = max(side_by_side(problem), above)
        if isinstance(layout, LiftedField) and problem.conduction is not None:
            at_once = chosen["jam"], together
            return ConductingStepper(problem, slab, device, plan, layout, at_once)
        compiled, no_codes = make_loop(problem, lanes), np.zeros(0, dtype=np.int32)
        rest = (*plan, no_codes, (0, 0, 0), 0, together)
        loop = TimeLoop(
            lambda *arguments: compiled(*arguments, rest),
            compiled,
            lambda numbers, barrier: (numbers, (barrier, rest)),
        )
        return make_stepper(problem, slab, device, loop, layout)

    def _complete(self, problem: Problem, parameters: Parameters) -> Parameters:
        return {**self.parameters(problem)[0], **parameters}


def candidates(problem: Problem, caches: Caches, cores: int) -> tuple[Parameters, ...]:
    """Parameter sets for the autotuner on a machine with these caches, the best guess first: tiles,
    then numbers of jammed rows.
    """
    from tetris_sim.cpu_kernels.compiled.vectors import native_width

    names = [f"tile_{name}" for name in problem.grid.axis_names]
    kernels = _kernels(problem)
    choices: list[Parameters] = []
    tilings = _tilings(problem, caches, cores)
    for kernel in kernels:
        for steps, *tile in tilings if kernel == kernels[0] else tilings[:1]:
            common = {"rows": LIFTED, "width": native_width(), **kernel, "steps_per_block": steps}
            candidate = {**common, **dict(zip(names, tile, strict=True))}
            if candidate not in choices:
                choices.append(candidate)
    return tuple(choices)


def _kernels(problem: Problem) -> tuple[Parameters, ...]:
    """Numbers of rows and vectors taken together, the best guess first."""
    # A box stencil keeps 2 radius + 1 sums per row in registers, so fewer rows fit.
    # So do a body's, of which differences and records are kept.
    body = problem.conduction is not None
    box = not body and not problem.stencil.is_star
    jams = (1,) if problem.grid.ndim == 1 else (2, 4) if body or box else (4, 2)
    if problem.grid.ndim < 3 or _has_rings(problem):
        kernels = [{"jam": jam} for jam in jams]
    else:
        # Rows one above the other need fewer lines of the second-level cache than neighbours in a
        # plane; that pays where there are few multiply-adds for a line (decisions 0050 and 0055).
        above, beside = {"jam": 2, "planes": 2}, [{"jam": jam, "planes": 1} for jam in jams]
        kernels = [*beside, above] if box else [above, *beside]
    return _with_unrolled(problem, kernels) if box else tuple(kernels)


def _with_unrolled(problem: Problem, kernels: Sequence[Parameters]) -> tuple[Parameters, ...]:
    """Kernels of a box, with one that keeps its weights in memory if they are many."""
    from tetris_sim.cpu_kernels.compiled.vectors import native_width

    n_weights, one = problem.stencil.n_points, [{**kernel, "unroll": 1} for kernel in kernels]
    if n_weights <= _REGISTERS:
        return tuple(one)

    # AVX2 has 16 registers, AVX-512 and NEON 32 (decision 0056).
    many = {**(kernels[-1] if problem.grid.ndim == 3 else kernels[0]), "unroll": 4}
    first = native_width() == 32 and n_weights > _SHARED
    return (many, *one) if first else (*one, many)


def _has_rings(problem: Problem) -> bool:
    """Whether threads have planes of their own, in which a plane is made after the other."""
    if problem.conduction is None:
        return False
    from tetris_sim.cpu_kernels.tessellate.records import kind_of

    return kind_of(problem).rings > 0


def _tilings(problem: Problem, caches: Caches, cores: int) -> Sequence[tuple[int, ...]]:
    """(steps per block, width of a tile along each axis), for tiles whose two buffers fill about
    half a cache, together with the coefficients of points that nearly all have their own.
    """
    numbers = 2
    if problem.conduction is not None:
        from tetris_sim.cpu_kernels.tessellate.records import differs_everywhere, kind_of

        numbers += kind_of(problem).slots * differs_everywhere(problem)
    point = numbers * np.dtype(problem.dtype).itemsize
    reach = max(1, problem.stencil.radius)
    shape = problem.grid.shape

    if problem.grid.ndim == 1:
        # Along a lifted row a step reaches `radius` vectors, not points.
        # 64 bytes, the widest vector.
        lanes = 64 // np.dtype(problem.dtype).itemsize
        tiles = [max(lanes, caches.l2 // (part * point)) for part in (2, 8, 32)]
        return [(_steps(tile // lanes, 4 * reach), tile) for tile in tiles]

    if problem.grid.ndim == 2:
        rows = max(64, 16 * reach)
        narrow = max(1, caches.l2 // (point * 2 * rows))
        whole = [(_steps(edge, 4 * reach), edge, 0) for edge in (2 * rows, rows)]
        parts = [(_steps(2 * rows, 4 * reach), 2 * rows, narrow)]
        fits = rows * shape[1] * point < caches.l3 // 2 and shape[0] >= 2 * rows * cores
        return whole + parts if fits else parts + whole

    # Rows stay whole if they can: their ends cost more than a larger tile does.
    edges = [edge for edge in (32, 40, 48) if edge * edge * shape[2] * point < caches.l3]
    edges, points = (edges, 0) if edges else ([16], 256)
    return [(_steps(edge, 2 * reach), edge, edge, points) for edge in edges]


def _steps(width: int, per_step: int) -> int:
    """Number of steps that a width allows, up to a bound beyond which longer blocks save no time
    worth having.
    """
    return max(1, min(_MOST_STEPS, width // per_step))


def _layout(problem: Problem, slab: Slab, parameters: Parameters) -> Layout:
    lanes = parameters["width"] // np.dtype(problem.dtype).itemsize
    if problem.conduction is not None:
        return lift_slab(problem, slab, lanes if can_lift(problem, slab, lanes) else 1)
    lifted = parameters["rows"] == LIFTED and can_lift(problem, slab, lanes)
    return lift_slab(problem, slab, lanes) if lifted else pad(problem, slab)


def _update(problem: Problem, parameters: Parameters, layout: Layout) -> str:
    """Source of the row kernel that was asked for."""
    from tetris_sim.cpu_kernels.tessellate import rows, swizzled

    offsets, dtype, kind = problem.stencil.offsets, np.dtype(problem.dtype), parameters["rows"]
    lanes = parameters["width"] // dtype.itemsize
    if isinstance(layout, LiftedField):
        if problem.conduction is not None:
            from tetris_sim.cpu_kernels.tessellate.conducting import body_source, conducting_source
            from tetris_sim.cpu_kernels.tessellate.records import kind_of

            body = replace(kind_of(problem), above=parameters.get("planes", 1) > 1)
            before = body_source(problem, layout.lanes)
            return conducting_source(body, dtype, layout.lanes, parameters["jam"], before)
        jam = parameters["jam"] if problem.grid.ndim > 1 else 1
        axis = 0 if parameters.get("planes", 1) > 1 else None
        unroll = parameters.get("unroll", 1)
        return rows.lifted_source(problem.stencil, dtype, layout.lanes, jam, axis, unroll)
    if kind == SKEWED:
        return swizzled.skewed_source(offsets, dtype, lanes)
    if kind == QUADRUPLE:
        return swizzled.quadruple_source(offsets, dtype, lanes)
    return rows.natural_source(offsets, dtype)


def _tile(problem: Problem, parameters: Parameters, layout: Layout) -> tuple[int, int, int]:
    """Width of a tile along the three padded axes, in units of the layout."""
    widths = [parameters[f"tile_{name}"] for name in problem.grid.axis_names]
    if isinstance(layout, LiftedField):
        widths[-1] = -(-widths[-1] // layout.lanes)
    return on_three(widths, 0, OUTER)
