"""Source of the kernels of `cpu.stream`: several rows of vectors updated in one pass, nothing but
loads and FMAs.

Idea    Each kernel is a C function of a thread's scratch memory and its numbers (`numbers.py`).
        Rows are in lifted layout: neighbours along x are neighbouring aligned vectors, so there are
        no shuffles. Rows are jammed: `jam` rows per axis are updated together, so that each loaded
        vector serves several of them. Gather keeps the vectors around the point in a window of
        registers that slides along the row; it needs a register per vector in sight. Scatter loads
        each vector once and adds it to every sum that needs it; it needs a register per sum. Stars
        are cheaper the first way, wide boxes the second.
Layout  A unit is a piece of a plane: rows of `pitch` elements, 2 radius of them and 2 radius
        vectors of each row in front of what is computed. A level reads what lies at or before its
        own place (the strips are skewed): the neighbour at (dy, dx) of row j, vector p of the
        target lies in row j + ry + dy, vector p + rx + dx of the source, and the target itself in
        row j + 2 ry, vector p + 2 rx.
Limits  Sums run in `chain_order`, so every form gives the same bits.
Test    tests/kernels/test_stream.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.cpu_kernels.compiled.generate import sources_digest
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.stencil import Offset, chain_order
from tetris_sim.support.files import generated_module

_KERNEL = "@cfunc(types.void(types.CPointer(REAL), types.CPointer(RECORD)), cache=True)"
_NUMBERS = "    n = record_at(numbers)"  # see `numbers.py`


@dataclass(frozen=True)
class KernelShape:
    """Form of the innermost loops.

    Attributes:
        jam: rows updated together, along the streamed axis and along the axis between it and the
            rows.
        unroll: vectors of each row per turn of the loop; the number of vectors in a row is a
            multiple of it.
        gather: whether a window slides (else every vector is scattered).
        fused: levels per pass in one dimension.
    """

    jam: tuple[int, int] = (1, 1)
    unroll: int = 1
    gather: bool = True
    fused: int = 1


def radii_of(offsets: tuple[Offset, ...]) -> tuple[int, int, int]:
    """Largest distance along each of the three padded axes."""
    return on_three([max(map(abs, along)) for along in zip(*offsets, strict=True)], 0, OUTER)


def registers_to_gather(offsets: tuple[Offset, ...], jam: tuple[int, int]) -> int:
    """Vector registers that `gather` holds at once: windows, weights and sums."""
    rows = _inputs(offsets, jam)
    return (
        sum(last - first + 1 for first, last in rows.values() if last > first)
        + len(offsets)
        + jam[0] * jam[1]
    )


def best_shape(offsets: tuple[Offset, ...], jam: tuple[int, int], width: int) -> KernelShape:
    """Gather where its registers suffice; unrolled as long as the code stays small.

    Args:
        offsets: of the stencil.
        jam: rows updated together.
        width: bytes of a vector: the longest have 32 registers, as NEON's have, AVX2's half as
            many.
    """
    # Gather is cheaper as long as its window, weights and sums fit the registers.
    gather = registers_to_gather(offsets, jam) < _registers(width)
    work = len(offsets) * jam[0] * jam[1]
    return KernelShape(jam, 4 if work <= 20 else 2 if work <= 60 else 1, gather)


def fused_shape(offsets: tuple[Offset, ...], width: int, fused: int | None = None) -> KernelShape:
    """Shape of a one-dimensional kernel: as many levels per pass as registers hold windows of 2
    radius vectors each, besides all weights.

    Args:
        offsets: of the stencil.
        width: bytes of a vector.
        fused: levels, if they are given.
    """
    window = 2 * max(1, radii_of(offsets)[2])
    levels = fused or max(1, min(8, _registers(width) // 2 // window))
    return KernelShape(unroll=2 if width < 32 or levels * window % 4 else 4, fused=levels)


def _registers(width: int) -> int:
    return 16 if width == 32 else 32


def _inputs(
    offsets: tuple[Offset, ...], jam: tuple[int, int]
) -> dict[tuple[int, int], tuple[int, int]]:
    """(plane, row) of each row that is read, counted from the first: (smallest, largest) dx read in
    it.
    """
    rz, ry, _ = radii_of(offsets)
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    for k0 in range(jam[0]):
        for k1 in range(jam[1]):
            for dz, dy, dx in (on_three(offset, 0, OUTER) for offset in offsets):
                row = (k0 + rz + dz, k1 + ry + dy)
                low, high = spans.get(row, (dx, dx))
                spans[row] = (min(low, dx), max(high, dx))
    return dict(sorted(spans.items()))


def kernel_source(offsets: tuple[Offset, ...], dtype: str, lanes: int, shape: KernelShape) -> str:
    """The module with the kernels of one stencil: C functions of a thread's scratch memory and its
    `numbers`.
    """
    lines = ["from numba import from_dtype", "from numba.core import types", ""]
    lines += ["from tetris_sim.cpu_kernels.compiled.intrinsics import cfunc, fma, record_at"]
    lines += ["from tetris_sim.cpu_kernels.stream.work import NUMBERS"]
    lines += ["from tetris_sim.cpu_kernels.compiled.vectors import vector_operations", ""]
    lines += [f"REAL, LANES, RECORD = types.{dtype}, {lanes}, from_dtype(NUMBERS)"]
    lines += ["_V = vector_operations(REAL.name, LANES)"]
    lines += [
        "load, store, broadcast, multiply, vector_fma = _V.load, _V.store, _V.broadcast, "
        "_V.multiply, _V.fma"
    ]

    if len(offsets[0]) > 1:
        kernels = row_kernel(offsets, shape)
    else:
        kernels = fused_kernel(offsets, "kernel", shape.fused, shape.unroll)
        kernels += fused_kernel(offsets, "single_kernel", 1, 1) + line_kernel(offsets)
    return "\n".join(lines) + "\n\n\n" + kernels


def row_kernel(offsets: tuple[Offset, ...], shape: KernelShape) -> str:
    """Source of the kernel that `strips.py` calls: JAM[1] rows of a group of planes from the level
    before.

    A ring holds just what the next level reads: the planes that were written last, and before them
    2 * radius more. So the oldest of them follows the newest.
    """
    rz, ry, rx = radii_of(offsets)
    depth = 2 * rz + shape.jam[0]

    lines = [_KERNEL, "def kernel(g, numbers):", _NUMBERS]
    lines += ["    unit, pitch, vectors, weights = n.unit, n.row_pitch, n.vectors, n.weights"]
    lines += [
        f"    q{a} = n.source + (n.slot + {shape.jam[0] + a}) % {depth} * unit"
        for a in range(depth)
    ]
    lines += [f"    d{a} = n.target + (n.slot + {a}) % {depth} * unit" for a in range(shape.jam[0])]
    lines += [f"    w{k} = broadcast(g[weights + {k}])" for k in range(len(offsets))]
    lines += [f"    s{a}_{b} = q{a} + {b} * pitch" for a, b in _inputs(offsets, shape.jam)]
    for k0 in range(shape.jam[0]):
        for k1 in range(shape.jam[1]):
            lines.append(f"    t{k0}_{k1} = d{k0} + {k1 + 2 * ry} * pitch + {2 * rx} * LANES")
    lines += _gather(offsets, shape) if shape.gather else _scatter(offsets, shape)
    return "\n".join(lines) + "\n\n\n"


def _gather(offsets: tuple[Offset, ...], shape: KernelShape) -> list[str]:
    rz, ry, rx = radii_of(offsets)
    rows = _inputs(offsets, shape.jam)
    padded = [on_three(offset, 0, OUTER) for offset in offsets]

    def at(row: tuple[int, int], vector: int) -> str:
        return f"load(g, s{row[0]}_{row[1]} + x + {vector + rx} * LANES)"

    lines = ["    x = 0"]
    for row, (low, high) in rows.items():
        lines += [f"    v{row[0]}_{row[1]}_{dx - low} = {at(row, dx)}" for dx in range(low, high)]
    lines.append(f"    for x in range(0, vectors * LANES, {shape.unroll} * LANES):")
    pad = " " * 8
    for u in range(shape.unroll):
        for row, (low, high) in rows.items():
            lines.append(f"{pad}v{row[0]}_{row[1]}_{high - low + u} = {at(row, high + u)}")
        for number, k in enumerate(chain_order(offsets)):
            dz, dy, dx = padded[k]
            for k0 in range(shape.jam[0]):
                for k1 in range(shape.jam[1]):
                    row = (k0 + rz + dz, k1 + ry + dy)
                    value, total = f"v{row[0]}_{row[1]}_{dx - rows[row][0] + u}", f"y{k0}_{k1}"
                    made = (
                        f"multiply(w{k}, {value})"
                        if number == 0
                        else f"vector_fma(w{k}, {value}, {total})"
                    )
                    lines.append(f"{pad}{total} = {made}")
        for k0 in range(shape.jam[0]):
            for k1 in range(shape.jam[1]):
                lines.append(f"{pad}store(g, t{k0}_{k1} + x + {u} * LANES, y{k0}_{k1})")
    # The window slides: registers of the last vectors become those of the first ones.
    for row, (low, high) in rows.items():
        for n in range(high - low):
            lines.append(f"{pad}v{row[0]}_{row[1]}_{n} = v{row[0]}_{row[1]}_{n + shape.unroll}")
    return lines


def _scatter(offsets: tuple[Offset, ...], shape: KernelShape) -> list[str]:
    rz, ry, rx = radii_of(offsets)
    padded = [on_three(offset, 0, OUTER) for offset in offsets]
    first, last = min(offset[2] for offset in padded), max(offset[2] for offset in padded)
    # Sums travel instead of inputs: each loaded vector is added to every output that needs it, so
    # a value is read once however many columns the stencil has.
    rows = list(_inputs(offsets, shape.jam))
    outputs = [(k0, k1) for k0 in range(shape.jam[0]) for k1 in range(shape.jam[1])]

    def column(pad: str, vector: int, begun: int, newest: int) -> list[str]:
        """Load one vector of each row and add it to the sums; number `newest - n` is that of dx =
        first + n.
        """
        made = [f"{pad}u{a}_{b} = load(g, s{a}_{b} + x + {vector + rx} * LANES)" for a, b in rows]
        started = set()
        for dx in range(last, first - 1, -1):
            number = newest - (dx - first)
            if number < begun:
                continue

            for k in chain_order(offsets):
                dz, dy, here = padded[k]
                if here != dx:
                    continue
                for k0, k1 in outputs:
                    value, total = f"u{k0 + rz + dz}_{k1 + ry + dy}", f"y{k0}_{k1}_{number}"
                    if dx == first and (k0, k1) not in started:
                        started.add((k0, k1))
                        made.append(f"{pad}{total} = multiply(w{k}, {value})")
                    else:
                        made.append(f"{pad}{total} = vector_fma(w{k}, {value}, {total})")
        return made

    # Before the loop, the columns that only begun sums need; in it, one store per column.
    lines, waiting, pad = ["    x = 0"], last - first, " " * 8
    for number in range(waiting):
        lines += column("    ", first + number, 0, number)
    lines.append(f"    for x in range(0, vectors * LANES, {shape.unroll} * LANES):")
    for u in range(shape.unroll):
        lines += column(pad, last + u, 0, waiting + u)
        lines += [
            f"{pad}store(g, t{k0}_{k1} + x + {u} * LANES, y{k0}_{k1}_{u})" for k0, k1 in outputs
        ]
    # Sums that are not finished move down, under the names that the next turn gives them.
    for k0, k1 in outputs:
        lines += [f"{pad}y{k0}_{k1}_{n} = y{k0}_{k1}_{n + shape.unroll}" for n in range(waiting)]
    return lines


def fused_kernel(offsets: tuple[Offset, ...], name: str, fused: int, unroll: int) -> str:
    """Source of a kernel that `line.py` calls: `fused` levels of a tile in place, in one pass.

    Level j of vector i is the sum over the vectors i - 2 radius to i of level j - 1, since each
    level leans over by one radius. The newest of them comes last in the sum, so the levels of one
    vector wait for each other by one multiply-add only.
    """
    _, _, rx = radii_of(offsets)
    # v{j}_{q} is vector q of level j within the window of 2 radius + 1 vectors.
    terms = [(k, offsets[k][-1] + rx) for k in chain_order(offsets)]
    lines = [
        _KERNEL,
        f"def {name}(g, numbers):",
        _NUMBERS,
        "    row, vectors, weights = n.target, n.vectors, n.weights",
    ]
    lines += [f"    w{k} = broadcast(g[weights + {k}])" for k in range(len(offsets))]
    lines += [f"    v{j}_{q} = broadcast(g[weights])" for j in range(fused) for q in range(2 * rx)]

    # The levels fill up over as many vectors as they lean together.
    begin = f"row - {2 * fused * rx} * LANES"
    lines.append(f"    for x in range({begin}, row + vectors * LANES, {unroll} * LANES):")
    pad = " " * 8
    for u in range(unroll):
        lines.append(f"{pad}v0_{2 * rx + u} = load(g, x + {u} * LANES)")
        for j in range(1, fused + 1):
            total = f"v{j}_{2 * rx + u}" if j < fused else "y"
            for number, (k, q) in enumerate(terms):
                value = f"v{j - 1}_{q + u}"
                made = (
                    f"multiply(w{k}, {value})"
                    if number == 0
                    else f"vector_fma(w{k}, {value}, {total})"
                )
                lines.append(f"{pad}{total} = {made}")
        lines.append(f"{pad}store(g, x + {u} * LANES, y)")
    lines += [f"{pad}v{j}_{q} = v{j}_{q + unroll}" for j in range(fused) for q in range(2 * rx)]
    return "\n".join(lines) + "\n\n\n"


def line_kernel(offsets: tuple[Offset, ...]) -> str:
    """Source of the kernel that `line.py` calls near faces: one step of some columns in natural
    order.
    """
    first, *others = [(k, offsets[k][-1]) for k in chain_order(offsets)]
    lines = [_KERNEL, "def line_kernel(g, numbers):", _NUMBERS]
    lines += ["    source, target = n.source, n.target"]
    lines += [f"    w{k} = g[n.weights + {k}]" for k in range(len(offsets))]
    lines += [
        "    for x in range(n.columns):",
        f"        value = w{first[0]} * g[source + x + {first[1]}]",
    ]
    lines += [f"        value = fma(w{k}, g[source + x + {dx}], value)" for k, dx in others]
    lines += ["        g[target + x] = value", "", "", ""]
    return "\n".join(lines)


# Make the compiled code of `cpu.stream` once and keep it on disk: a loop for each dtype, kernels
# for each stencil.

_HERE = Path(__file__).parent
_CONSTANTS = "# [dtype and lanes]\n"
_MARK = "# [copied into each generated module from here on]\n"


def make_loop(ndim: int, dtype: np.dtype[Any], lanes: int) -> Callable[..., None]:
    """The compiled `advance` of `block.py`."""
    names = ("rows.py", "line.py" if ndim == 1 else "strips.py", "block.py")
    texts = [(_HERE / name).read_text() for name in names]
    head = texts[0].split(_CONSTANTS)[0] + "".join(
        _imports(text.split(_MARK)[0]) for text in texts[1:]
    )
    source = (
        head
        + f"REAL, LANES = types.{dtype.name}, {lanes}\n"
        + "\n\n".join(text.split(_MARK)[1] for text in texts)
    )
    return generated_module(source, part="kernels", salt=sources_digest()).advance  # type: ignore[no-any-return]


def make_kernels(
    offsets: tuple[Offset, ...], dtype: np.dtype[Any], lanes: int, shape: KernelShape
) -> dict[str, int]:
    """Addresses of the compiled kernels of a stencil, by their names in `numbers.py`."""
    module = generated_module(
        kernel_source(offsets, dtype.name, lanes, shape), part="kernels", salt=sources_digest()
    )
    names = ("kernel", "single_kernel", "line_kernel")
    return {name: getattr(module, name).address for name in names if hasattr(module, name)}


def _imports(head: str) -> str:
    """The imports of a template, without those from its neighbours: they are in the same module
    now.
    """
    statements = []
    for statement in head.split("\nfrom ")[1:]:
        module = statement.split(" import ")[0]
        if module != "__future__" and module.rpartition(".")[2] not in ("rows", "strips"):
            statements.append("from " + statement.strip() + "\n")
    return "".join(statements)
