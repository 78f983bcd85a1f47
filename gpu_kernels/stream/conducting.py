"""gpu.stream for heat conduction in bodies: which problems its kernels take, and their arguments
besides the state.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.boundary.extents import frame_of
from tetris_sim.gpu_kernels.common.layout import LINE, REAL, Box3, by_value, to_device
from tetris_sim.gpu_kernels.fused.kernel import MOST_SHARED, FusedKernel, StreamedAxis
from tetris_sim.gpu_kernels.fused.method import Special
from tetris_sim.gpu_kernels.stream.kernel_1d import (
    body_1d_kernel,
    body_1d_memory,
    body_1d_parameters,
)
from tetris_sim.gpu_kernels.stream.palette import (
    MOST_IDS,
    MOST_NIBBLES,
    MOST_PIECES,
    PaletteKind,
    PaletteWords,
    WordsKernel,
    merged,
    palette_kind,
    palette_numbers,
)
from tetris_sim.gpu_kernels.stream.palette_tiles import (
    coefficients_2d_kernel,
    coefficients_2d_parameters,
    palette_2d_kernel,
    palette_2d_parameters,
    palette_2d_words,
    palette_3d_kernel,
    palette_3d_parameters,
    palette_3d_words,
    written_in_3d,
)
from tetris_sim.model.conduction import Conduction, Numbers
from tetris_sim.model.grid import LAST, on_three
from tetris_sim.model.lowering import (
    axis_weights,
    is_looked_up,
    padded_weights,
    product_weights,
    sourceless,
    stands_still,
)
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import DeviceState


# Rates of gpu.plain over those of the kernels for bodies, by axes and whether states are heat
# contents: in 1D of layers on an H100 (2026-11-27), in 2D of 60 rectangles, melting cells, and in
# 3D of 200 cells on an H200 (2026-11-22); docs/guide/gpu.md has both.
_SHARES = {(1, False): 0.04, (1, True): 0.05, (2, False): 0.12, (2, True): 0.07, (3, False): 0.37}


def conduction_refusal(problem: Problem) -> str | None:
    """Why no kernel for bodies takes the problem and which method does, as a sentence for the user;
    None if one takes it.
    """
    if (why_not := _why_not(problem)) is None:
        return None
    melts = _conduction(problem).enthalpy is not None
    share = _SHARES.get((problem.grid.ndim, melts))
    if share is None or np.dtype(problem.dtype).name not in REAL:
        return f"{why_not}; gpu.plain takes it"
    return (
        f"{why_not}; gpu.plain takes it, at about {share:g} of the rate of bodies that it streams"
    )


def _why_not(problem: Problem) -> str | None:
    conduction, dtype = _conduction(problem), np.dtype(problem.dtype)
    if problem.grid.ndim == 1:
        return _why_not_line(problem)
    if conduction.radiates:
        return "surfaces inside the body radiate, which its tables have no room for"
    if conduction.coefficients is not None:
        return _why_not_coefficients(problem)
    if (why_not := _why_not_curves(conduction)) is not None:
        return why_not

    if conduction.medium.n_ids > MOST_IDS:
        n = conduction.medium.n_ids
        return f"it packs the ids of at most {MOST_IDS} materials, and the body has {n}"

    source = conduction.source
    if source and not is_looked_up(source) and not _adds_sum(problem):
        here = (
            "states are heat contents" if conduction.enthalpy else "it depends on the temperature"
        )
        return (
            "it looks up what heats a point by its material, or adds its sum over steps that are "
            f"linear, and here it is a formula and {here}"
        )
    if source and _adds_sum(problem) and not stands_still(problem):
        return _CHANGING_SOURCE

    if dtype.name not in REAL:
        return f"the type is {dtype.name}, and only {' and '.join(REAL)} are compiled"
    if not conduction_parameters(problem):
        return "the curves of its materials do not fit into shared memory"
    return None


def _why_not_line(problem: Problem) -> str | None:
    # A line takes any body whose curves, if there are any, fit into shared memory.
    conduction, dtype = _conduction(problem), np.dtype(problem.dtype)
    if dtype.name not in REAL:
        return f"the type is {dtype.name}, and only {' and '.join(REAL)} are compiled"
    if (why_not := _why_not_curves(conduction)) is not None:
        return why_not
    n = conduction.medium.n_ids
    if conduction.enthalpy is not None and n > MOST_IDS:
        return f"it looks up curves of at most {MOST_IDS} materials, and the body has {n}"
    if not conduction_parameters(problem):
        return "the curves of its materials do not fit into shared memory"
    return None


def _why_not_curves(conduction: Conduction) -> str | None:
    # The enthalpy method: states are enthalpies, and curves give temperature and potential.
    if conduction.enthalpy is not None and merged(conduction.enthalpy).n_pieces > MOST_PIECES:
        return (
            f"it looks up curves of at most {MOST_PIECES} pieces, and here are "
            f"{merged(conduction.enthalpy).n_pieces}"
        )
    return None


def _why_not_coefficients(problem: Problem) -> str | None:
    if _conduction(problem).enthalpy:
        return "where every face has resistances of its own it knows no heat contents"
    if _conduction(problem).source and not (_adds_sum(problem) and stands_still(problem)):
        return _CHANGING_SOURCE
    if not conduction_parameters(problem):
        return f"the type is {problem.dtype.name}, and only {' and '.join(REAL)} are compiled"
    return None


def conduction_parameters(problem: Problem) -> tuple[Parameters, ...]:
    """Tiles worth trying, the best guess first."""
    if np.dtype(problem.dtype).name not in REAL:
        return ()
    if problem.grid.ndim == 1:
        return body_1d_parameters(problem)
    if _conduction(problem).coefficients is not None:
        if problem.grid.ndim == 3:
            return coefficients_3d_parameters(
                problem.dtype,
                separate=product_weights(problem) is not None,
                sums=_adds_sum(problem),
            )
        return coefficients_2d_parameters(problem.dtype, graded=axis_weights(problem) is not None)
    of = palette_2d_parameters if problem.grid.ndim == 2 else palette_3d_parameters
    return of(_kind(problem), problem.dtype)


def conduction_kernel(problem: Problem, parameters: Parameters) -> FusedKernel:
    """The kernel for a problem and parameters."""
    conduction = _conduction(problem)
    if problem.grid.ndim == 1:
        return body_1d_kernel(problem, parameters)
    if conduction.coefficients is not None:
        if problem.grid.ndim == 3:
            kernel = coefficients_3d_kernel(problem.dtype, parameters, product_weights(problem))
            ring = CoefficientTile3D(**parameters).sum_bytes
        else:
            kernel = coefficients_2d_kernel(problem.dtype, parameters, axis_weights(problem))
            ring = 0
        return kernel.summing(ring) if _adds_sum(problem) else kernel

    kind = _kind(problem)
    numbers = palette_numbers(
        conduction.medium.conductance,
        conduction.rates(problem.dt),
        kind,
        problem.dtype,
        conduction.enthalpy,
    )
    of = palette_2d_kernel if problem.grid.ndim == 2 else palette_3d_kernel
    return replace(of(kind, numbers, parameters), beside=_Beside(_words(problem, parameters)))


def conduction_memory(problem: Problem, slab: Slab, parameters: Parameters) -> int:
    """Bytes of the packed words of a slab, and of the ids that they are made of; on a line of its
    arrays.
    """
    if problem.grid.ndim == 1:
        return body_1d_memory(problem, slab, parameters)
    if _conduction(problem).coefficients is not None:
        return 0
    spans = [(-low, n + high) for n, (low, high) in zip(slab.shape, slab.halo, strict=True)]
    words, box = _words(problem, parameters), on_three(spans, (0, 1))
    if words.only:
        return 0
    ids = math.prod(high - low for low, high in words.needed(box))
    return words.n_bytes(box) + ids


# Rates of bodies as shares of that of one material that nothing heats, in 2D and 3D: float64, whole
# steps, insulated faces, 60 boxes of materials, 10240^2 (of cells that differ 4096^2) and 768^3
# points, one H100, 2026-11-27 (docs/decisions/0053, docs/guide/gpu.md).
_ONE, _FEW, _MANY = "one material", "several materials", "more than 16 materials"
_GRADED, _EVERY_FACE = "one material on graded axes", "a conductance of its own at every face"
_SUM, _NUMBERS = " with a source that is left out and added as a sum", " with sources by material"
_OF_CONSTANT = {
    _ONE + _SUM: {2: 0.74, 3: 0.71},
    _FEW: {2: 0.55, 3: 0.57},
    _FEW + _NUMBERS: {2: 0.52, 3: 0.54},
    _FEW + _SUM: {2: 0.42, 3: 0.47},
    _MANY: {2: 0.39},
    _GRADED: {2: 0.51},
    _GRADED + _SUM: {2: 0.37},
    _EVERY_FACE: {2: 0.23},
    _EVERY_FACE + _SUM: {2: 0.19},
}


def cost_of_body(problem: Problem) -> str | None:
    """Say which traits of a body cost how much of the rate of one material that nothing heats;
    None where that was not measured.
    """
    it, ndim = problem.conduction, problem.grid.ndim
    if not it:
        return None
    n_ids = it.medium.n_ids
    what = _ONE if n_ids == 1 else _FEW if n_ids <= MOST_NIBBLES else _MANY
    if it.coefficients:
        what = _EVERY_FACE if axis_weights(problem) is None else _GRADED
    if it.source:
        what += _SUM if _adds_sum(problem) else _NUMBERS

    share = None if it.enthalpy else _OF_CONSTANT.get(what, {}).get(ndim)
    if share is None:
        return None
    return f"{what}: {share:g} of the rate of one material that nothing heats, on one H100"


CONDUCTING = Special(
    conduction_kernel, conduction_parameters, conduction_refusal, conduction_memory
)


def _conduction(problem: Problem) -> Conduction:
    assert problem.conduction is not None
    return problem.conduction


def _kind(problem: Problem) -> PaletteKind:
    conduction = _conduction(problem)
    capacity = conduction.medium.capacity
    held = bool(np.isinf(capacity).any())
    return palette_kind(
        conduction.medium.conductance,
        sources=bool(conduction.source) and not _adds_sum(problem),
        sums=_adds_sum(problem),
        # Of heat contents all cells have to hold the same, or each has a rate of its own.
        held=held or bool(conduction.enthalpy and (capacity != capacity[0]).any()),
        enthalpy=conduction.enthalpy,
    )


_CHANGING_SOURCE = (
    "it adds what heats a point for several steps at once, and here that changes from step to step"
)


def _adds_sum(problem: Problem) -> bool:
    """Whether its kernel adds what the source makes in its steps, instead of looking it up."""
    return sourceless(problem) is not problem


def _words(problem: Problem, parameters: Parameters) -> WordsKernel:
    if problem.grid.ndim == 3:
        return palette_3d_words(_kind(problem), parameters, np.dtype(problem.dtype).itemsize)
    return palette_2d_words(_kind(problem), parameters, np.dtype(problem.dtype).itemsize)


class _Beside:
    """Arguments of a palette kernel besides the state; keeps the packed words of one slab."""

    def __init__(self, words: WordsKernel) -> None:
        self._words = words
        self._of: tuple[Any, ...] = ()  # slab and box of the words that are kept
        self._made: PaletteWords | None = None

    def __call__(self, state: DeviceState, box: Box3) -> tuple[Any, ...]:
        """The arguments for a box that the kernel writes."""
        words, start = self._words, on_three(state.slab.start, 0)
        # Words for the largest box serve all smaller ones of the slab.
        whole = self._anchored(_largest(state, box, words.depth), start)
        if self._of != (state.slab, whole):
            self._made = None  # freed before new words are allocated
            self._made, self._of = _make(words, state, whole), (state.slab, whole)
        assert self._made is not None

        # 2D: the number of row 0 in the whole grid. 3D: the first row of the box's tiles, and how
        # many tiles of the words lie before it along y.
        where: tuple[int, ...] = (start[1],)
        if words.ndim == 3:
            first = self._anchored(box, start)[1][0]
            where = first, (first - whole[1][0]) // words.written[0]
        numbers, place = _sources(state)
        spans = (*words.span(whole), *where)
        return (self._made.words, self._made.runs, *map(np.int32, spans), numbers, place)

    def _anchored(self, box: Box3, start: tuple[int, int, int]) -> Box3:
        """The box itself in 2D; in 3D, a box that begins along y with a tile of the whole grid and
        has whole tiles.
        """
        if self._words.ndim == 2:
            return box
        # Tiles of the whole grid, so that results do not depend on how it is divided into slabs.
        (low, high), tile = box[1], self._words.written[0]
        first = (low + start[1]) // tile * tile - start[1]
        return box[0], (first, first + (-(-(high - low) // tile) + 1) * tile), box[2]


def _largest(state: DeviceState, box: Box3, depth: int) -> Box3:
    """The largest box that a pass writes while the halos of a slab are valid: that of the first
    pass after they arrived.
    """
    spans = list(box)
    for three, n, (low, high) in zip(
        LAST[state.problem.grid.ndim], state.slab.shape, state.slab.halo, strict=True
    ):
        first, last = spans[three]
        spans[three] = (
            min(first, depth - low) if low else first,
            max(last, n + high - depth) if high else last,
        )
    return spans[0], spans[1], spans[2]


def _make(words: WordsKernel, state: DeviceState, box: Box3) -> PaletteWords:
    """Pack the words of a box on the GPU."""
    if words.only:
        with state.device.use() as cupy:
            return words.arrays(box, cupy.zeros)
    around = _within_images(words.needed(box), state)
    with state.device.use() as cupy:
        ids = _ids(state, around, cupy)
        made = words.arrays(box, cupy.zeros)
    for launch in words.launches(ids, around, made, box):
        with state.device.use():
            function = state.device.function(words.source, launch.entry, words.defines)
            function(launch.grid, (launch.threads, 1, 1), launch.arguments)
    return made


def _within_images(box: Box3, state: DeviceState) -> Box3:
    """The part of a box that lies in the grid or in one image of it on each side."""
    spans = list(box)
    for three, n, start in zip(
        LAST[state.problem.grid.ndim],
        state.problem.grid.shape,
        state.slab.start,
        strict=True,
    ):
        low, high = spans[three]
        spans[three] = max(low, -n - start), min(high, 2 * n - start)
    return spans[0], spans[1], spans[2]


def _ids(state: DeviceState, around: Box3, cupy: Any) -> Any:
    """Ids of a box on the GPU, (z, y, x): those of the slab and its halo are there already, the few
    around come from the host.
    """
    assert state.body is not None
    ndim = state.problem.grid.ndim
    here = on_three(
        [
            (-low, n + high)
            for n, (low, high) in zip(state.slab.shape, state.slab.halo, strict=True)
        ],
        (0, 1),
    )
    both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(around, here, strict=True))
    inner = both[0], both[1], both[2]
    # At most 256 ids, so the body's own are bytes as well.
    ids = cupy.zeros([high - low for low, high in around], np.uint8)

    layout = replace(state.layout, n_fields=1, dtype=np.dtype(np.uint8))
    ids[_cut(inner, around)] = layout.view(state.body.ids, inner)[0]
    for box in frame_of(around, inner):
        found = state.problem.padded_ids(state.slab.globally(box[3 - ndim :]))
        shape = [high - low for low, high in box]
        ids[_cut(box, around)] = cupy.asarray(found.reshape(shape).astype(np.uint8))
    return ids


def _cut(box: Box3, whole: Box3) -> tuple[slice, ...]:
    # The slices of a box within an array that holds `whole`.
    return tuple(
        slice(low - start, high - start) for (low, high), (start, _) in zip(box, whole, strict=True)
    )


def _sources(state: DeviceState) -> tuple[Any, npt.NDArray[np.void]]:
    """(the numbers of rules on the GPU, `struct SourcePlace`). The source's numbers come first
    among those of the rules.
    """
    assert state.body is not None
    source, place = _conduction(state.problem).source, [0, 0, 0, 0]
    if source is not None:
        # Tabulated for two steps, since one would not show whether the numbers change.
        table = source.tabulate(state.problem.time, 0, 2, state.problem.arithmetic)
        place = [*table.places[0].tolist(), _conduction(state.problem).medium.n_ids]
    return state.body.numbers.there, by_value(np.array(place, np.int32))


# Conductances per face in 3D (`coefficients_3d.cu`). Where they separate, tables of one axis each
# take the place of the arrays.

_WORD, _SECTOR, _LANES = 16, 32, 32  # bytes of a thread's columns, of a unit of transfer; lanes


@dataclass(frozen=True)
class CoefficientTile3D:
    """The tile of one block of threads, which the kernel's parameters describe.

    Attributes:
        steps_per_block: steps of a launch.
        rows: rows per thread.
        warps: warps of a block, below each other.
        blocks: blocks per multiprocessor.
        ahead: prefetched planes.
        unrolled: turns that are unrolled.
    """

    steps_per_block: int
    rows: int
    warps: int
    blocks: int
    ahead: int
    unrolled: int

    def written(self, item: int) -> tuple[int, int]:
        """Points that a tile writes along y and x, along x in whole sectors."""
        return written_in_3d(self.steps_per_block, self.warps * self.rows, item)

    def shared_bytes(self, item: int, *, separate: bool) -> int:
        """Bytes of `struct Shared` of the kernel, for numbers of `item` bytes."""
        steps, row, tile = self.steps_per_block, _LANES * _WORD, self.warps * self.rows
        levels = max(1, steps - 1) * self.warps * 2 * row
        if separate:
            levels = max(1, 2 * (steps - 1)) * self.warps * 2 * row
            entries = 2 * steps + self.ahead + tile
            return (self.ahead + 2) * tile * row + levels + 4 * item * entries
        return (self.ahead + 1 + 4 * (steps + self.ahead)) * tile * row + levels

    @property
    def sum_bytes(self) -> int:
        """Shared memory for the planes of a sum of a source [bytes]."""
        return (self.ahead + 1) * self.warps * self.rows * _LANES * _WORD

    def fits(self, item: int, *, separate: bool) -> bool:
        """Whether the kernel has points to write, and a block fits into shared memory."""
        shared = self.shared_bytes(item, separate=separate)
        return min(self.written(item)) > 0 and shared <= MOST_SHARED


# On an H100 (768 x 768 x 768, 2026-11-27, kernels alone) the first three made 467, 461, 449
# GStencil/s in float64.
_SEPARATE_TILES = (
    (3, 5, 8, 1, 3, 2),
    (3, 5, 8, 1, 3, 1),
    (4, 4, 8, 1, 3, 1),
    (2, 5, 8, 1, 3, 1),
    (2, 3, 8, 1, 2, 1),
)
# A launch reads the state and four arrays, 40 bytes a point, and writes 8: three steps move 24
# bytes a point and step, halos included, two move 29; of the same grid they made 141 and 87.
_ARRAY_TILES = (
    (3, 3, 7, 1, 1, 1),
    (3, 2, 11, 1, 1, 1),
    (2, 3, 10, 1, 1, 1),
    (2, 4, 7, 1, 1, 1),
    (2, 2, 8, 1, 1, 1),
)


def coefficients_3d_parameters(
    dtype: npt.DTypeLike, *, separate: bool, sums: bool = False
) -> tuple[Mapping[str, int], ...]:
    """Tiles worth trying, the best guess first, with `sums` where the sum of a source is added; the
    keys are those of `CoefficientTile3D`.
    """
    item = np.dtype(dtype).itemsize
    tiles = (CoefficientTile3D(*it) for it in (_SEPARATE_TILES if separate else _ARRAY_TILES))
    return tuple(
        asdict(tile)
        for tile in tiles
        if tile.fits(item, separate=separate)
        and tile.shared_bytes(item, separate=separate) + sums * tile.sum_bytes <= MOST_SHARED
    )


def coefficients_3d_kernel(
    dtype: npt.DTypeLike,
    parameters: Mapping[str, int],
    weights: tuple[Numbers, ...] | None = None,
) -> FusedKernel:
    """The kernel with the parameters of a `CoefficientTile3D`.

    Args:
        dtype: of the state.
        parameters: of the tile.
        weights: result of `product_weights`; None if faces have conductances of their own.

    Raises:
        ValueError: the tile does not fit.
    """
    tile, kind = CoefficientTile3D(**parameters), np.dtype(dtype)
    separate, item, steps = weights is not None, kind.itemsize, tile.steps_per_block
    if not tile.fits(item, separate=separate):
        msg = f"numbers of {item} bytes do not fit into {tile}"
        raise ValueError(msg)

    return FusedKernel(
        source="coefficients_3d.cu",
        entry="coefficients_3d",
        defines={
            "TS_REAL": REAL[kind.name],
            "TS_SEPARATE": int(separate),
            "TS_FACTORS": _factors(weights or ()),
            "TS_STEPS": steps,
            "TS_COLUMNS": _WORD // item,
            "TS_ROWS": tile.rows,
            "TS_WARPS": tile.warps,
            "TS_AHEAD": tile.ahead,
            "TS_BLOCKS": tile.blocks,
            "TS_UNROLLED": tile.unrolled,
        },
        depth=steps,
        tile=(1, *tile.written(item)),
        threads=_LANES * tile.warps,
        shared_bytes=tile.shared_bytes(item, separate=separate),
        weights=np.zeros(1, kind),
        stream=StreamedAxis(axis=0, repeated=(3 if separate else 2) * steps, unit=1),
        line=_SECTOR,
        begins=LINE // item,
        beside=functools.partial(_tables, weights) if weights else _arrays,
    )


def _factors(weights: Sequence[Numbers]) -> int:
    """Bits for the weights along z, y, x that change along another axis than their own."""
    changing = {
        other
        for axis, numbers in enumerate(weights)
        for place, other in enumerate(k for k in range(3) if k != axis)
        if (numbers[:, 2 + place] != 1).any()
    }
    return sum(1 << axis for axis in changing)


def _arrays(state: DeviceState, box: Box3) -> tuple[Any, ...]:
    """The conductances along z, y and x and the rates, from the first owned point on."""
    assert state.body is not None
    arrays, first = state.body.coefficients, state.layout.origin
    return tuple(arrays[name][first:] for name in ("upper_z", "upper_y", "upper_x", "rate"))


def _tables(weights: tuple[Numbers, ...], state: DeviceState, box: Box3) -> tuple[Any, ...]:
    """The weights along z, y and x, each from the first allocated index on."""
    problem, parts = state.problem, []
    for axis, (low, high) in enumerate(state.layout.within):
        # What is allocated for alignment alone may lie beyond the images of the grid.
        n, start = problem.grid.shape[axis], state.slab.start[axis]
        index = np.arange(low, high) + start
        span = max(low + start, -n), min(high + start, 2 * n)
        found = padded_weights(problem, weights[axis], axis, span)
        parts.append(found[np.clip(index, span[0], span[1] - 1) - span[0]])
    return (to_device(state.device, np.concatenate(parts).astype(problem.dtype)),)
