"""gpu.stream for equations in 2D: several steps of all fields per launch, with a patch in registers
for every live name (`equations_2d.cu`).

The first part finds which names are live between stages and prints the tables of `struct Level`,
which equations_1d.cu reads too. The second part has the tiles and the kernel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tetris_sim.gpu_kernels.common.given import constants_of, equations_of, given_defines, names_of
from tetris_sim.gpu_kernels.common.layout import Box3
from tetris_sim.gpu_kernels.fused.kernel import MOST_SHARED, OF_SM, FusedKernel, StreamedAxis
from tetris_sim.gpu_kernels.stream.kernel_2d import StreamTile
from tetris_sim.model.equations import Equations, Stage
from tetris_sim.model.grid import on_three
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Problem

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import DeviceState

# Live names between the stages of a step, and the patch of a lane that holds each (`struct Level`
# of equations_2d.cu and equations_1d.cu).


@dataclass(frozen=True)
class StreamLevel:
    """A stage of a step, with the live names before and after it.

    Attributes:
        stage: the stage that is computed.
        before: slot of each name that is live before the stage.
        after: slot of each name that is live after it.
    """

    stage: Stage
    before: dict[str, int]
    after: dict[str, int]

    def taps(self, name: str) -> tuple[tuple[int, ...], ...]:
        """Rows and columns at which a name is read, including its own point if the name
        stays live.
        """
        # (0, dx) in 1D, where a name has a single row.
        read = tuple(on_three(offset, 0)[1:] for offset in self.stage.taps.get(name, ()))
        return (((0, 0),) if name in self.after else ()) + read

    @property
    def reach(self) -> int:
        """Rows that the stage reads above and below a point."""
        return max(abs(offset[0]) for name in self.before for offset in (*self.taps(name), (0,)))

    @property
    def beside(self) -> int:
        """Columns that the stage reads on either side of a point."""
        return max(abs(offset[-1]) for name in self.before for offset in (*self.taps(name), (0,)))


def levels_of(equations: Equations) -> tuple[StreamLevel, ...]:
    """The stages of a step as levels. Fields occupy the first slots before the step, and again
    after it.
    """
    results = {equations.results[name]: slot for slot, name in enumerate(equations.fields)}
    before = {name: slot for slot, name in enumerate(equations.fields)}
    levels = []
    for number, stage in enumerate(equations.stages):
        # Liveness analysis: a name is live as long as a later stage reads it or it is a result.
        later = {name for each in equations.stages[number + 1 :] for name in each.taps}
        alive = [name for name in (*before, *stage.formulas) if name in later or name in results]
        last = number == len(equations.stages) - 1
        after = results if last else _placed(alive, before)
        levels.append(StreamLevel(stage, before, after))
        before = after
    return tuple(levels)


def _placed(alive: Sequence[str], before: dict[str, int]) -> dict[str, int]:
    """Assign slots to the live names; a name that has a slot keeps it, so it is not copied."""
    after = {name: before[name] for name in alive if name in before}
    for name in alive:
        if name not in after:
            after[name] = next(slot for slot in range(len(alive)) if slot not in after.values())
    return after


def n_slots(levels: Sequence[StreamLevel]) -> int:
    """Patches that a lane needs."""
    slots = [slot for it in levels for both in (it.before, it.after) for slot in both.values()]
    return 1 + max(slots)


def print_levels(equations: Equations) -> str:
    """The specializations of `struct Level`; number -1 describes the whole step."""
    levels = levels_of(equations)
    reaches = [level.reach for level in levels]
    # Number -1 holds the sums over all levels.
    whole = {"count": len(levels), "rows": sum(reaches), "with_edges": sum(map(bool, reaches))}
    texts = [print_structure(-1, whole, {})]
    for number, level in enumerate(levels):
        texts.append(print_structure(number, *_numbers(equations, level)))
    return " ".join(texts)


def _numbers(
    equations: Equations, level: StreamLevel
) -> tuple[dict[str, int], dict[str, list[int]]]:
    """The constants and the tables of a level."""
    names = names_of(equations)
    n_before, n_after = (max(it.values(), default=-1) + 1 for it in (level.before, level.after))
    # Tables are indexed by slot, some of which may be free.
    whose = {slot: name for name, slot in level.before.items()}

    def by_slot(of: Callable[[list[tuple[int, ...]]], int]) -> list[int]:
        return [of(list(level.taps(whose[s])) if s in whose else []) for s in range(n_before)]

    # 1 stands for names that are not read sideways: with `last` 0 the range is empty.
    sideways = by_slot(lambda taps: min((dy for dy, dx in taps if dx), default=1))
    tables = {
        "slot_of": [level.before.get(name, 0) for name in names],
        "slot_given": [level.after.get(name, -1) for name in names],
        "pass_of": [-1] * n_after,
        "up": by_slot(lambda taps: max((-dy for dy, _ in taps), default=-level.reach - 1)),
        "first": sideways,
        "last": by_slot(lambda taps: max((dy for dy, dx in taps if dx), default=0)),
        "far": by_slot(lambda taps: max((abs(dx) for _, dx in taps), default=0)),
    }
    for name, slot in level.after.items():
        # Live before and after: the stage passes the patch on.
        if name in level.before:
            tables["pass_of"][slot] = level.before[name]
    numbers = {"reach": level.reach, "beside": level.beside, "before": n_before, "after": n_after}
    return numbers, tables


def print_structure(number: int, numbers: dict[str, int], tables: dict[str, list[int]]) -> str:
    """One specialization of `struct Level`: constants, and tables as functions."""
    parts = [f"static constexpr int {name} = {value};" for name, value in numbers.items()]
    for name, values in tables.items():
        given = ",".join(map(str, values))
        parts.append(
            f"static __device__ __forceinline__ constexpr int {name}(int k) {{ "
            f"constexpr int of[] = {{{given}}}; return of[k]; }}"
        )
    return f"template <> struct Level<{number}> {{ {' '.join(parts)} }};"


_LANES = 32
_SECTOR_BYTES = 32  # the smallest unit of a memory transfer
_MOST_REGISTERS = 180  # of 255, for a lane's patches and intermediate values
_MOST_OF_UNROLLED = 210
_EVERYWHERE = 99 * 1024  # bytes of shared memory that a block can have on any GPU since sm_80
_MOST_OPERATIONS = 40_000  # operations in an unrolled kernel: more would compile for minutes
_PROPOSED = 6


@dataclass(frozen=True)
class EquationsTile:
    """The tile of one block of threads; its fields mean the same as those of `StreamTile`."""

    steps_per_block: int
    rows: int
    columns: int
    warps: int
    blocks: int
    edges: int

    @property
    def tile(self) -> StreamTile:
        """The parameters that it shares with tiles of one stencil."""
        return StreamTile(**asdict(self), interleaved=0)

    def written(self, reach: int, item: int) -> int:
        """Columns that it writes."""
        return self.tile.written(reach, item)


@dataclass(frozen=True)
class _Needs:
    """The requirements of a kernel for some equations, independent of its tile.

    Attributes:
        slots: patches per lane.
        handing: levels of a step that read rows of other patches.
        rows: rows by which a step moves up.
        reach: the largest number of rows that a level reads above or below a point.
        beside: columns that a level reads on either side of a point.
        reach_x: columns that a step reads on either side.
        n_fields: number of fields.
        item: bytes of a number.
        operations: operations per point and step.
        held: coefficients that stay in registers.
    """

    slots: int
    handing: int
    rows: int
    reach: int
    beside: int
    reach_x: int
    n_fields: int
    item: int
    operations: int
    held: int

    def shared_bytes(self, it: EquationsTile) -> int:
        """Bytes of `struct Shared`."""
        # The ring between tiles, as in stream_2d.cu, plus the rows between warps.
        handed = it.steps_per_block * self.handing + 2
        handed += (it.warps - 1) * it.edges
        stages = self.n_fields * it.tile.height()
        rows = (2 * self.slots + self.held) * self.reach
        return (stages + handed * rows) * it.tile.width() * self.item

    def fits(self, it: EquationsTile) -> bool:
        """Whether the kernel compiles with a tile and has points to write."""
        shared = self.shared_bytes(it)
        return (
            it.rows >= 2 * self.reach
            and it.columns >= self.beside
            and it.written(self.reach_x, self.item) > 0
            and shared <= MOST_SHARED
            and it.blocks * (shared + 1024) <= OF_SM
        )

    def unrolled(self, it: EquationsTile) -> int:
        """Steps that are compiled together: those in which all rows of the coefficients that are
        held change, or one.
        """
        steps, rest = divmod(it.rows, max(1, self.rows))
        fits = self.rows > 0 and rest == 0 and it.steps_per_block % max(1, steps) == 0
        return steps if self.held and fits else 1

    def is_light(self, it: EquationsTile) -> bool:
        """Whether the kernel hardly spills and compiles fast enough. Besides the patches, a lane
        holds about three rows of sums and neighbours.
        """
        held = self.slots * (it.rows + 3) + self.held * it.rows
        registers = held * it.columns * self.item // 4
        operations = it.rows * it.columns * self.operations * self.unrolled(it)
        # Where rows of coefficients change their names, none of them is there twice.
        most = _MOST_REGISTERS if self.unrolled(it) == 1 else _MOST_OF_UNROLLED
        return registers <= most and operations <= _MOST_OPERATIONS

    def cost(self, it: EquationsTile) -> float:
        """An estimate of the cost of a point and step: its levels, loads and stores once per
        launch, and rows that are handed on, divided by the share of columns that is written.

        Fitted to Gray-Scott and Cahn-Hilliard on an H200 (2026-11-22, 60 tiles; Gray-Scott in
        float64 made 434 to 713 G point-steps a second): packs of 16 bytes are slower than those of
        8, and two blocks hide each other's barriers. With two velocities that are held (H100,
        2026-11-27, 20 tiles, 545 to 692) they do not, and moving rows costs what is not unrolled.
        """
        share = it.written(self.reach_x, self.item) / it.tile.width()
        one = 0.5 * max(1, self.handing) + 5 / it.steps_per_block + 1.5 * self.rows / it.rows
        packs = 1.1 if it.columns * self.item % 16 == 0 else 1.0
        if self.held:
            return one * packs * (1.05 if self.unrolled(it) == 1 else 1.0) / share
        return one * packs * (0.95 if it.blocks == 2 else 1.0) / share


_MOST_HELD, _FEWEST_ROWS = 4, 4  # coefficients, and rows of a patch that are worth it


def _held(problem: Problem) -> tuple[int, ...]:
    """The numbers of the coefficients that stay in registers: of those that all stages read at
    their own points, as many as leave patches room.
    """
    equations = equations_of(problem)
    taps = [stage.taps for stage in equations.stages]
    at_points = [
        number
        for number, name in enumerate(equations.coefficients or {})
        if not any(any(offset) for it in taps for offset in it.get(name, ()))
    ]
    for n in range(min(len(at_points), _MOST_HELD), 0, -1):
        tiles = _proposed(_needs_of(problem, n))
        if tiles and tiles[0]["rows"] >= _FEWEST_ROWS:
            return tuple(at_points[:n])
    return ()


def _needs(problem: Problem) -> _Needs:
    return _needs_of(problem, len(_held(problem)))


def _needs_of(problem: Problem, held: int) -> _Needs:
    equations = equations_of(problem)
    levels = levels_of(equations)
    reaches = [level.reach for level in levels]
    return _Needs(
        slots=n_slots(levels),
        handing=sum(map(bool, reaches)),
        rows=sum(reaches),
        reach=max(reaches),
        beside=max(level.beside for level in levels),
        reach_x=problem.stencil.radii[1],
        n_fields=problem.n_fields,
        item=np.dtype(problem.dtype).itemsize,
        operations=equations.n_operations,
        held=held,
    )


def equations_2d_refusal(problem: Problem) -> str | None:
    """Why the kernel refuses equations, as a sentence for the user; None if it does not."""
    if not equations_2d_parameters(problem):
        needs = _needs(problem)
        return (
            f"patches of {needs.slots} fields, of which a stage reads {needs.reach} rows each way, "
            "do not fit into registers and shared memory"
        )
    return None


def equations_2d_parameters(problem: Problem) -> tuple[Parameters, ...]:
    """Tiles worth trying, the best guess first; the keys are those of `EquationsTile`."""
    return _proposed(_needs(problem))


@functools.lru_cache(maxsize=64)
def _proposed(needs: _Needs) -> tuple[Parameters, ...]:
    """The candidate tiles, cached: the search takes a tenth of a second."""
    found = [
        tile
        for steps in (16, 12, 8, 6, 4, 3, 2, 1)
        for rows in (2, 3, 4, 5, 6, 7, 8)
        for columns in (2, 3, 4, 5, 6, 8, 10)
        for warps, blocks in ((8, 1), (4, 2))
        # What coefficients are read through is the cache that shared memory leaves.
        for edges in ((1, 2) if needs.held else (2, 1))
        for tile in [EquationsTile(steps, rows, columns, warps, blocks, edges)]
        if needs.fits(tile) and needs.is_light(tile)
    ]
    return choose_tiles(found, needs)


def choose_tiles(found: Sequence[Any], needs: Any) -> tuple[Parameters, ...]:
    """The cheapest tiles, one per number of steps and blocks, and one that fits every GPU.

    Args:
        found: tiles that fit, dataclasses with `steps_per_block` and `blocks`.
        needs: has the methods `cost` and `shared_bytes` for a tile.
    """
    # One candidate per number of steps and blocks: the choice among these is left to autotuning.
    best: dict[tuple[int, int], Any] = {}
    for tile in sorted(found, key=needs.cost):
        best.setdefault((tile.steps_per_block, tile.blocks), tile)
    chosen = sorted(best.values(), key=needs.cost)[:_PROPOSED]
    # A GPU with less shared memory than an H200 refuses the larger tiles.
    small = [tile for tile in found if needs.shared_bytes(tile) <= _EVERYWHERE]
    chosen += sorted(set(small) - set(chosen), key=needs.cost)[:1]
    return tuple(asdict(tile) for tile in chosen)


def equations_2d_kernel(problem: Problem, parameters: Mapping[str, int]) -> FusedKernel:
    """The kernel for a problem with the parameters of an `EquationsTile`.

    Raises:
        ValueError: the tile does not fit.
    """
    tile, needs = EquationsTile(**parameters), _needs(problem)
    if not needs.fits(tile):
        msg = f"these equations do not fit into {tile}: take more rows and columns, or fewer steps"
        raise ValueError(msg)

    written = tile.written(needs.reach_x, needs.item)
    # Rows that all levels of a launch need above or below those that a block writes.
    shift = tile.steps_per_block * needs.rows
    return FusedKernel(
        source="equations_2d.cu",
        entry="equations_2d",
        defines={
            **given_defines(problem),
            "TS_DEPTH": tile.steps_per_block,
            "TS_COLUMNS": tile.columns,
            "TS_ROWS": tile.rows,
            "TS_WARPS": tile.warps,
            "TS_BLOCKS": tile.blocks,
            "TS_EDGES": tile.edges,
            "TS_WRITTEN": written,
            "TS_MARGIN": tile.tile.margin(needs.reach_x, needs.item),
            "TS_FIELDS": needs.n_fields,
            "TS_SLOTS": needs.slots,
            "TS_REACH": needs.reach,
            "TS_HELD": needs.held,
            "TS_UNROLLED": needs.unrolled(tile),
            "TS_HELD_NUMBERS": ",".join(map(str, _held(problem))) or "-1",
            "TS_LEVELS": print_levels(equations_of(problem)),
        },
        depth=tile.steps_per_block,
        tile=(1, tile.tile.height(), written),
        threads=_LANES * tile.warps,
        shared_bytes=math.ceil(needs.shared_bytes(tile) / 16) * 16,
        weights=constants_of(problem),
        stream=StreamedAxis(axis=1, repeated=2 * shift, unit=tile.tile.height()),
        line=_SECTOR_BYTES,
        beside=beside,
    )


def beside(state: DeviceState, box: Box3) -> tuple[Any, ...]:
    """Arguments of kernels for equations besides the fields: `struct Given`."""
    assert state.given is not None
    return (state.given.argument(),)
