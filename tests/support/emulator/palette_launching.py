"""One launch of a kernel of palettes on the host, compared with plain NumPy, as `launching.py` does
it for one material.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.support.emulator.emulation import at, emulate
from tests.support.emulator.host_gpu import handed
from tests.support.emulator.launching import MANY, UNTOUCHED, Array, Memory, Triple
from tetris_sim.gpu_kernels.common.layout import Box3, box_argument, by_value
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.gpu_kernels.stream.palette import PaletteKind, WordsKernel, palette_kind

ANCHOR = 3  # number of the first owned row in the whole grid, which is no multiple of anything


@dataclass(frozen=True)
class Body:
    """Materials, and ids of all points that a launch reads.

    Attributes:
        conductance: (ndim, ids, ids).
        rate: (ids,).
        sources: (steps, ids), or None.
        kind: of palette.
    """

    conductance: Array
    rate: Array
    sources: Array | None
    kind: PaletteKind


def make_body(
    ndim: int, n_ids: int, steps: int, *, isotropic: bool, sources: bool, series: bool = False
) -> Body:
    """Random materials, of which the last one is held; a stable dt. Half cells in series, or any
    conductance of two ids.
    """
    rng = np.random.default_rng(3)
    conductance = rng.uniform(0.2, 1.0, (1 if isotropic else ndim, n_ids, n_ids))
    if series:
        half = rng.uniform(0.3, 2.0, (len(conductance), n_ids))
        half[:, 1] = np.inf
        conductance = 1 / (half[:, :, None] + half[:, None])
    else:
        conductance = conductance + conductance.swapaxes(1, 2)
    conductance = np.broadcast_to(conductance, (ndim, n_ids, n_ids)).copy()
    rate = rng.uniform(0.5, 1.0, n_ids)
    rate *= 0.9 / (rate * 2 * conductance.max(axis=2).sum(axis=0)).max()
    rate[n_ids - 1] = 0.0
    density = rng.uniform(-1.0, 1.0, (steps, n_ids)) if sources else None
    return Body(conductance, rate, density, palette_kind(conductance, sources=sources))


def make_ids(shape: tuple[int, ...], n_ids: int, grain: int) -> npt.NDArray[np.uint8]:
    """Boxes of random ids; points of them for a grain of 1, and one id for a grain of 0."""
    rng = np.random.default_rng(7)
    if grain == 0:
        return np.full(shape, 1, np.uint8)
    ids = rng.integers(0, n_ids, shape, dtype=np.uint8)
    if grain == 1:
        return ids
    ids[...] = 0
    for _ in range(12):
        corner = [int(rng.integers(0, n)) for n in shape]
        box = tuple(slice(low, low + int(rng.integers(1, grain))) for low in corner)
        ids[box] = rng.integers(0, n_ids)
    return ids


def advanced(state: Array, ids: Array, body: Body, steps: int) -> Array:
    """The same steps in extended precision; every step has a point less at either end."""
    u = state.astype(np.longdouble)
    ndim = body.conductance.shape[0]
    axes = range(3 - ndim, 3)
    for step in range(steps):
        inside = tuple(slice(1, -1) if axis in axes else slice(None) for axis in range(3))
        here, own = ids[inside], u[inside]
        total = np.zeros(own.shape, np.longdouble)
        if body.sources is not None:
            total += body.sources[step][here]
        for number, axis in enumerate(axes):
            for shift in (-1, 1):
                beside = list(inside)
                beside[axis] = slice(1 + shift, u.shape[axis] - 1 + shift)
                conductance = body.conductance[number][here, ids[tuple(beside)]]
                total += conductance.astype(np.longdouble) * (u[tuple(beside)] - own)
        u, ids = own + body.rate[here].astype(np.longdouble) * total, here
    return u


def prepared_words(words: WordsKernel, ids: Array, around: Box3, box: Box3) -> tuple[Array, Array]:
    """The words and runs of a launch, made by the kernels that make them on a GPU."""
    library = emulate(words.source, words.defines)
    made = words.arrays(box, np.zeros)
    for launch in words.launches(ids, around, made, box):
        arguments = [handed(argument) for argument in launch.arguments]
        library.launch(launch.entry, launch.grid, (launch.threads, 1, 1), arguments)
    return made.words, made.runs


def tiles_of(words: WordsKernel, box: Box3) -> tuple[Box3, tuple[int, ...]]:
    """(the box that has words, the numbers that say where tiles begin)."""
    if words.ndim == 2:
        return box, (ANCHOR,)
    (low, high), tile = box[1], words.written[0]
    first = low - min(ANCHOR, tile - 1)
    tiles = 2 - (low - high) // tile
    return (box[0], (first - tile, first + tiles * tile), box[2]), (first, 1)


def check(
    kernel: FusedKernel,
    words: WordsKernel,
    body: Body,
    counts: Triple,
    grain: int,
    *,
    margin: int,
    descending: bool,
) -> Array:
    """Compare one launch with NumPy; returns what it wrote."""
    dtype, depth = kernel.weights.dtype, kernel.depth
    reach = tuple(depth if axis >= 3 - body.conductance.shape[0] else 0 for axis in range(3))
    memory = Memory((reach[0], reach[1], reach[2]), counts, dtype, margin)
    box, where = tiles_of(words, memory.box)
    low_high = words.needed(box)
    ids = make_ids(tuple(high - low for low, high in low_high), body.conductance.shape[1], grain)
    made = prepared_words(words, ids, low_high, box)

    n_ids = body.conductance.shape[1]
    sources = np.zeros(1) if body.sources is None else body.sources
    # three numbers of others and a row of an earlier step come first
    sources = np.concatenate([np.full(3 + n_ids, np.nan), sources.reshape(-1)]).astype(dtype)
    place = by_value(np.array([3, n_ids, 1, n_ids], np.int32))
    src, dst = memory.first(memory.src), memory.first(memory.dst)
    before = memory.src.copy()
    grid, chunk = kernel.cut(memory.box, slots=1 if descending else MANY)
    emulate(kernel.source, kernel.defines).launch(
        kernel.entry,
        grid,
        (kernel.threads, 1, 1),
        (
            at(src),
            at(dst),
            memory.argument,
            box_argument(memory.box),
            at(kernel.weights),
            ctypes.c_int(chunk),
            at(made[0]),
            at(made[1]),
            *(ctypes.c_int(n) for n in (*words.span(box), *where)),
            at(sources),
            place,
            ctypes.c_int(1),
        ),
        kernel.shared_bytes,
        copied=(src, dst, memory.argument),
        others=made,
        descending=descending,
    )

    own = tuple(
        slice(low - start, high - start)
        for (low, high), (start, _) in zip(memory.needed, low_high, strict=True)
    )
    wanted = advanced(memory.state, ids[own], body, depth)
    found = memory.points(memory.dst, memory.box)
    largest = float(np.abs(memory.state).max()) + depth
    allowed = 32 * float(np.finfo(dtype).eps) * depth * largest
    np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed)
    result = found.copy()
    found[...] = UNTOUCHED
    assert np.all(memory.dst == dtype.type(UNTOUCHED))
    np.testing.assert_array_equal(memory.src, before)
    return result
