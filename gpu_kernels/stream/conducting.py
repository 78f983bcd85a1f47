"""gpu.stream for heat conduction in bodies: which problems its kernels take, and their arguments
besides the state.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.boundary.extents import frame_of
from tetris_sim.gpu_kernels.common.layout import REAL, Box3, by_value
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.gpu_kernels.fused.method import Special
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
)
from tetris_sim.model.conduction import Conduction, Rule
from tetris_sim.model.grid import LAST, on_three
from tetris_sim.model.lowering import axis_weights
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import INPUT
from tetris_sim.model.slab import Slab

if TYPE_CHECKING:
    from tetris_sim.gpu_kernels.steppers.passes import DeviceState


def conduction_refusal(problem: Problem) -> str | None:
    """Why no kernel for bodies takes the problem and which method does, as a sentence for the user;
    None if one takes it.
    """
    why_not = _why_not(problem)
    return None if why_not is None else f"{why_not}; gpu.plain takes it"


def _why_not(problem: Problem) -> str | None:
    conduction, dtype = _conduction(problem), np.dtype(problem.dtype)
    if problem.grid.ndim == 1:
        return "it streams bodies of several materials in 2D and 3D, and the grid has one axis"
    if conduction.radiates:
        return "surfaces inside the body radiate, which its tables have no room for"
    if conduction.coefficients is not None:
        return _why_not_coefficients(problem)
    # The enthalpy method: states are enthalpies, and curves give temperature and potential.
    if conduction.enthalpy is not None and merged(conduction.enthalpy).n_pieces > MOST_PIECES:
        return (
            f"it looks up curves of at most {MOST_PIECES} pieces, and here are "
            f"{merged(conduction.enthalpy).n_pieces}"
        )

    # A word of 32 bits holds eight ids of four bits; in 3D there may be two words of bytes.
    most = MOST_IDS if problem.grid.ndim == 3 else MOST_NIBBLES
    if conduction.medium.n_ids > most:
        n = conduction.medium.n_ids
        return f"it packs the ids of at most {most} materials, and the body has {n}"

    if conduction.source is not None and not _is_looked_up(conduction.source):
        return "it looks up what heats a point by its material, and here that is a formula"

    if dtype.name not in REAL:
        return f"the type is {dtype.name}, and only {' and '.join(REAL)} are compiled"
    if not conduction_parameters(problem):
        return "the curves of its materials do not fit into shared memory"
    return None


def _why_not_coefficients(problem: Problem) -> str | None:
    if problem.grid.ndim == 3:
        return (
            "where every face has its own conductance it streams in 2D, and the grid has three axes"
        )
    if _conduction(problem).enthalpy:
        return "where every face has resistances of its own it knows no heat contents"
    if _conduction(problem).source is not None:
        return "where every face has its own conductance its registers hold no sources beside these"
    if not conduction_parameters(problem):
        return f"the type is {problem.dtype.name}, and only {' and '.join(REAL)} are compiled"
    return None


def conduction_parameters(problem: Problem) -> tuple[Parameters, ...]:
    """Tiles worth trying, the best guess first."""
    if np.dtype(problem.dtype).name not in REAL:
        return ()
    if _conduction(problem).coefficients is not None:
        return coefficients_2d_parameters(problem.dtype, graded=axis_weights(problem) is not None)
    of = palette_2d_parameters if problem.grid.ndim == 2 else palette_3d_parameters
    return of(_kind(problem), problem.dtype)


def conduction_kernel(problem: Problem, parameters: Parameters) -> FusedKernel:
    """The kernel for a problem and parameters."""
    conduction = _conduction(problem)
    if conduction.coefficients is not None:
        return coefficients_2d_kernel(problem.dtype, parameters, axis_weights(problem))
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
    """Bytes of the packed words of a slab, and of the ids that they are made of."""
    if _conduction(problem).coefficients is not None:
        return 0
    spans = [(-low, n + high) for n, (low, high) in zip(slab.shape, slab.halo, strict=True)]
    words, box = _words(problem, parameters), on_three(spans, (0, 1))
    if words.only:
        return 0
    ids = math.prod(high - low for low, high in words.needed(box))
    return words.n_bytes(box) + ids


CONDUCTING = Special(
    conduction_kernel, conduction_parameters, conduction_refusal, conduction_memory
)


def _conduction(problem: Problem) -> Conduction:
    assert problem.conduction is not None
    return problem.conduction


def _kind(problem: Problem) -> PaletteKind:
    conduction = _conduction(problem)
    return palette_kind(
        conduction.medium.conductance,
        sources=conduction.source is not None,
        held=bool(np.isinf(conduction.medium.capacity).any()),
        enthalpy=conduction.enthalpy,
    )


def _is_looked_up(source: Rule) -> bool:
    """Whether a source is one number per material and nothing else."""
    # A program of a single instruction that reads a parameter.
    operations = [it.operation for it in source.program.instructions]
    return operations == [INPUT] and source.program.inputs == tuple(
        parameter.name for parameter in source.parameters
    )


def _words(problem: Problem, parameters: Parameters) -> WordsKernel:
    if problem.grid.ndim == 3:
        return palette_3d_words(_kind(problem), parameters, np.dtype(problem.dtype).itemsize)
    return palette_2d_words(parameters, np.dtype(problem.dtype).itemsize)


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
