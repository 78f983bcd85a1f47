"""Sources of the row kernels of `cpu.tessellate`: how a core walks along the rows of a box.

Each source is `update_box` for `tile_sweep.py`. All of them add up the terms of a point in
`chain_order`, so they give the same bits; they differ in how the neighbours of a vector of points
get into registers:

natural    A scalar loop, which LLVM turns into unaligned vector loads: a stencil of p points loads
           p vectors per vector.
lifted     Rows are stored lane by lane (`lifted.py`): the neighbours are other aligned vectors. A
           star keeps the vectors of its own rows in a window that slides along the row; any other
           shape adds each column of vectors, as soon as it is loaded, to all the points in whose
           stencil it lies. `jam` rows are computed together and share loads. Where the weights are
           more than the registers, `unroll` vectors of each row are computed together too, and
           share what is loaded of the weights.
swizzled   The paper's arithmetic within registers, in a file of its own: `swizzled.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tetris_sim.cpu_kernels.compiled.generate import row_update
from tetris_sim.cpu_kernels.compiled.vectors import (
    add_product,
    read_vector,
    spread_number,
    vector_operations,
    write_vector,
)
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.stencil import Offset, Stencil, chain_order

# vectors that a sliding window may keep; the rest of the 32 registers holds weights and sums
_WINDOW = 16
_IMPORTS = (
    "from numba.core import types",
    "",
    "from tetris_sim.cpu_kernels.compiled.intrinsics import cfunc, njit",
)
_NUMBERS = "base, plane, last_plane, row, last_row, column, last_column, pitch0, pitch1"

Row = tuple[int, int]  # planes and rows away from the first row that is computed


@dataclass(frozen=True)
class Stack:
    """A stencil applied to neighbouring rows at once, which share what they read.

    Attributes:
        offsets: of the stencil, on three axes, in the order of the chain.
        weights: number of the weight of each.
        axis: along which the rows are neighbours: 0 in 2D, where a plane has one row, else 1.
        together: number of rows computed.
    """

    offsets: tuple[tuple[int, int, int], ...]
    weights: tuple[int, ...]
    axis: int
    together: int

    @property
    def rows(self) -> dict[Row, int]:
        """The rows that are read, numbered in order."""
        rows = {self.row(y, k) for y in range(self.together) for k in range(len(self.offsets))}
        return {row: n for n, row in enumerate(sorted(rows))}

    def row(self, y: int, k: int) -> Row:
        """The row from which computed row y reads term k."""
        i, j, _ = self.offsets[k]
        return (i + y, j) if self.axis == 0 else (i, j + y)

    def uses(self, row: Row) -> list[tuple[int, int, int]]:
        """(computed row, offset along x, number in the chain) of every term that reads a row."""
        return [
            (y, self.offsets[k][2], k)
            for y in range(self.together)
            for k in range(len(self.offsets))
            if self.row(y, k) == row
        ]

    def fresh(self) -> list[int]:
        """Rows for which the same reads of the next turn find nothing in a near cache.

        They are rows of the last plane of a 3D stencil, since earlier ones were read for the planes
        before.
        """
        if self.axis == 0 or self.together == 1:
            return []
        last = max(plane for plane, _ in self.rows)
        return [
            n
            for (i, j), n in self.rows.items()
            if i == last and (i, j + self.together) not in self.rows
        ]

    def starts(self) -> Iterator[str]:
        """Lines that name the start of each row read r0, r1, ... and of each one computed o0, o1,
        ...
        """
        for (i, j), n in self.rows.items():
            yield f"r{n} = start + {i} * pitch0 + {j} * pitch1"
        for y in range(self.together):
            yield f"o{y} = start + {y} * pitch{self.axis}"

    def term(self, k: int, value: str, total: str, *, first: bool) -> str:
        """The expression that adds term k to a sum."""
        weight = f"w{self.weights[k]}"
        return (
            f"multiply({weight}, {value})" if first else f"fma_vector({weight}, {value}, {total})"
        )


def stacked(offsets: tuple[Offset, ...], together: int, axis: int | None = None) -> Stack:
    """The stack of a stencil; its rows follow each other along the axis before the last one if no
    `axis` is given.
    """
    order = chain_order(offsets)
    padded = tuple(on_three(offsets[k], 0, OUTER) for k in order)
    if axis is None:
        axis = 0 if len(offsets[0]) == 2 else 1
    return Stack(padded, tuple(order), axis=axis, together=together)


def natural_source(offsets: tuple[Offset, ...], dtype: np.dtype[Any]) -> str:
    """Rows one by one, as `sweep.py` does it."""
    lines = [
        "from tetris_sim.cpu_kernels.compiled.intrinsics import fma, load, store",
        "",
        row_update(offsets, dtype),
    ]

    lines += [
        *_head("u, v, weights"),
        "    for i in range(plane, last_plane):",
        "        for j in range(row, last_row):",
        "            p = base + i * pitch0 + j * pitch1 + column",
        "            update_row(u, v, p, last_column - column, pitch0, pitch1, weights)",
    ]
    return "\n".join([*_IMPORTS, *lines, ""])


def lifted_source(
    stencil: Stencil,
    dtype: np.dtype[Any],
    lanes: int,
    jam: int,
    axis: int | None = None,
    unroll: int = 1,
) -> str:
    """Lifted rows, `jam` at a time; weights are arguments.

    Args:
        stencil: what is applied.
        dtype: of the elements.
        lanes: elements of a vector.
        jam: rows taken together.
        axis: along which they follow each other, see `stacked`.
        unroll: vectors of a row taken together; if more than one, weights stay in memory.
    """

    def body(stack: Stack) -> Iterator[str]:
        return _gathered(stack, lanes) if stencil.is_star else _scattered(stack, lanes)

    if unroll == 1:
        return vector_source(stencil.offsets, dtype, lanes, jam, body, axis=axis)

    module = "tetris_sim.cpu_kernels.tessellate.rows"
    also = [f"from {module} import update_vectors"]
    for together in dict.fromkeys((jam, 1)):
        for count in (unroll, 1):
            about = f'"{dtype.name}", {lanes}, {stencil.offsets}, {together}, {axis}, {count}'
            also.append(f"update_{together}_{count} = update_vectors({about})")
    return vector_source(
        stencil.offsets,
        dtype,
        lanes,
        jam,
        lambda stack: _unrolled(stack, lanes, unroll),
        "\n".join(also),
        axis,
        weights_kept=False,
    )


def vector_source(
    offsets: tuple[Offset, ...],
    dtype: np.dtype[Any],
    lanes: int,
    jam: int,
    body: Callable[[Stack], Iterator[str]],
    also: str = "",
    axis: int | None = None,
    *,
    weights_kept: bool = True,
) -> str:
    """`update_box` around a body for `jam` rows, and the same body for one of the rows that are
    left over.

    Args:
        offsets: of the stencil.
        dtype: of the elements.
        lanes: elements of a vector.
        jam: rows taken together.
        body: the lines that compute the rows of a stack, the first of which begins at element
            `start`.
        also: source of further names that the body uses.
        axis: along which rows taken together follow each other, see `stacked`.
        weights_kept: whether weights are loaded before all rows, for `Stack.term`.
    """
    inner, outer = ("plane", "row") if stacked(offsets, 1, axis).axis == 0 else ("row", "plane")
    lines = ["from tetris_sim.cpu_kernels.compiled.intrinsics import fma"]
    names = "align_pair, halves_pair, prefetch, vector_operations"
    lines += [f"from tetris_sim.cpu_kernels.compiled.vectors import {names}", ""]
    lines += [f"REAL = types.{dtype.name}", f'VECTORS = vector_operations("{dtype.name}", {lanes})']
    lines += [
        "load_vector, store_vector, broadcast = VECTORS.load, VECTORS.store, VECTORS.broadcast"
    ]
    lines += ["multiply, fma_vector = VECTORS.multiply, VECTORS.fma", also, *_head("u, v, weights")]
    if weights_kept:
        lines += [f"    w{k} = broadcast(weights[{k}])" for k in range(len(offsets))]

    # `jam` rows together, then those that are left over one by one.
    above = axis == 0 and len(offsets[0]) == 3
    stacks = (stacked(offsets, together, axis) for together in dict.fromkeys((jam, 1)))
    bodies = {it.together: [*it.starts(), *body(it)] for it in stacks}
    lines += walk((inner, outer), bodies, above=above)
    return "\n".join([*_IMPORTS, *lines, ""])


def walk(
    axes: tuple[str, str],
    bodies: dict[int, list[str]],
    each: Sequence[str] = (),
    *,
    above: bool,
) -> Iterator[str]:
    """The loops of `update_box` over the rows of a box.

    Args:
        axes: that along which rows are computed together, and the other one: plane, row.
        bodies: by number of rows together, most first, the lines that compute them, the first of
            which begins at element `start`.
        each: lines before the first of the rows that are neighbours; none if they lie above.
        above: whether rows lie one above the other: then those of one plane follow each other, so
            that what is read of the planes above and below them is in the first-level cache still,
            and memory is read in its order.
    """
    inner, outer = axes
    pitch = {"plane": "pitch0", "row": "pitch1"}
    begin, others = f"j = {inner}", f"for i in range({outer}, last_{outer}):"
    at = 0 if above else 4
    if not above:
        yield from (f"    {others}", *(f"        {line}" for line in each))
    yield " " * (4 + at) + begin
    for together, lines in bodies.items():
        yield " " * (4 + at) + f"while j + {together} <= last_{inner}:"
        if above:
            yield f"        {others}"
        yield f"            start = base + i * {pitch[outer]} + j * {pitch[inner]}"
        yield from (f"            {line}" for line in lines)
        yield " " * (8 + at) + f"j += {together}"


def _head(arrays: str) -> list[str]:
    """The beginning of `update_box`, which `call_box` of `intrinsics.py` calls, with names for its
    three pointers.
    """
    return [
        "",
        "POINTER = types.CPointer(REAL)",
        "",
        "",
        "@cfunc(types.void(POINTER, POINTER, POINTER, *(types.intp,) * 9), cache=True)",
        f"def update_box({arrays}, {_NUMBERS}):",
    ]


def _gathered(stack: Stack, lanes: int) -> Iterator[str]:
    """Each sum takes its terms one after the other; rows that are read at several x keep a window
    of vectors.
    """
    # A window is worth its registers only as long as all of them fit.
    reads = {n: sorted({x for _, x, _ in stack.uses(row)}) for row, n in stack.rows.items()}
    kept = sum(xs[-1] - xs[0] for xs in reads.values())
    if kept <= _WINDOW:
        # A sliding window needs all offsets between its ends.
        reads = {n: list(range(xs[0], xs[-1] + 1)) for n, xs in reads.items()}
    slides = {n: kept <= _WINDOW and len(xs) > 1 for n, xs in reads.items()}

    # Before the loop, the windows; in it, what is new of them, the sums, and windows moved on.
    for n, xs in reads.items():
        for x in xs[:-1] if slides[n] else ():
            yield f"u{n}_{x - xs[0]} = load_vector(u, r{n} + (column + {x}) * {lanes})"
    yield f"for x in range(column * {lanes}, last_column * {lanes}, {lanes}):"
    for n, xs in reads.items():
        for x in xs[-1:] if slides[n] else xs:
            yield f"    u{n}_{x - xs[0]} = load_vector(u, r{n} + x + {x * lanes})"

    for k, (_, _, x) in enumerate(stack.offsets):
        for y in range(stack.together):
            n = stack.rows[stack.row(y, k)]
            yield f"    s{y} = " + stack.term(k, f"u{n}_{x - reads[n][0]}", f"s{y}", first=k == 0)
    yield from (f"    store_vector(v, o{y} + x, s{y})" for y in range(stack.together))

    for n, xs in reads.items():
        for x in xs[:-1] if slides[n] else ():
            yield f"    u{n}_{x - xs[0]} = u{n}_{x - xs[0] + 1}"


def _scattered(stack: Stack, lanes: int) -> Iterator[str]:
    """Each column of vectors is added to the sums of all points in whose stencil it lies.

    Sum number m of a row belongs to the m-th point after the one that is finished next. The chain
    runs along x first, so a point meets its columns in the order of its chain.
    """
    xs = [x for _, _, x in stack.offsets]
    low, high = min(xs), max(xs)

    def column(place: str, last: int) -> Iterator[str]:
        # Before the loop only terms up to x = `last` count: the others belong to points before the
        # first.
        for row, n in stack.rows.items():
            uses = [(y, x, k) for y, x, k in stack.uses(row) if x <= last]
            if uses:
                yield f"u{n} = load_vector(u, r{n} + {place})"
            for y, x, k in uses:
                total = f"s{y}_{min(last, high) - x}"
                yield f"{total} = " + stack.term(k, f"u{n}", total, first=k == 0)

    for x in range(low, high):
        yield from column(f"(column + {x}) * {lanes}", x)
    yield f"for x in range(column * {lanes}, last_column * {lanes}, {lanes}):"
    # The processor's own prefetching begins anew with every row.
    yield from (f"    prefetch(u, r{n} + x + {stack.together} * pitch1)" for n in stack.fresh())
    yield from ("    " + line for line in column(f"x + {high * lanes}", high))
    for y in range(stack.together):
        yield f"    store_vector(v, o{y} + x, s{y}_0)"
        yield from (f"    s{y}_{m} = s{y}_{m + 1}" for m in range(high - low))


def _unrolled(stack: Stack, lanes: int, unroll: int) -> Iterator[str]:
    """`unroll` vectors of each row at a time, then those that are left over one by one."""
    rows = ", ".join([f"r{n}" for n in stack.rows.values()])
    sums = ", ".join([f"o{y}" for y in range(stack.together)])
    yield f"whole = last_column - (last_column - column) % {unroll}"
    for count, first, last in ((unroll, "column", "whole"), (1, "whole", "last_column")):
        yield f"for x in range({first} * {lanes}, {last} * {lanes}, {count * lanes}):"
        yield f"    update_{stack.together}_{count}(u, v, weights, ({rows},), ({sums},), x)"


_INT = ir.IntType(64)


class Column(NamedTuple):
    """Vectors of one row that is read, and what reads them.

    Attributes:
        row: number of the row.
        dx: offset of the vectors along it.
        uses: (computed row, number in the chain) of each term that reads them.
    """

    row: int
    dx: int
    uses: list[tuple[int, int]]


def update_vectors(
    dtype: str, lanes: int, offsets: tuple[Offset, ...], together: int, axis: int | None, count: int
) -> Any:
    """The intrinsic (u, v, weights, rows, sums, x) that computes `count` vectors of each row.

    Of its arguments, `rows` and `sums` are the elements at which rows begin that are read and
    computed, numbered as in `Stack`, and x is how far from there the first vectors lie.

    Args:
        dtype: of the elements.
        lanes: elements of a vector.
        offsets: of the stencil.
        together: rows computed.
        axis: along which they follow each other, see `stacked`.
        count: vectors of each.
    """
    stack, kind = stacked(offsets, together, axis), vector_operations(dtype, lanes).type

    @intrinsic
    def update(typing_context, u, v, weights, rows, sums, x):
        def generate(context, builder, signature, arguments):
            source, target, factors, read, computed, first = arguments
            totals: dict[tuple[int, int], Any] = {}

            def places(starts: Any, row: int, dx: int) -> list[Any]:
                start = builder.add(builder.extract_value(starts, row), first)
                return [builder.add(start, _INT((dx + m) * lanes)) for m in range(count)]

            # Within a plane few weights are live, so they stay in registers.
            for columns in _planes(stack):
                builder.fence("seq_cst", targetscope="singlethread")
                spread: dict[int, Any] = {}
                for row, dx, uses in columns:
                    for _, k in uses:
                        if k not in spread:
                            place = builder.gep(factors, [_INT(stack.weights[k])])
                            spread[k] = spread_number(builder, kind, builder.load(place))
                    values = [
                        read_vector(context, builder, kind, u, source, place)
                        for place in places(read, row, dx)
                    ]
                    for y, k in uses:
                        for m, value in enumerate(values):
                            terms = spread[k], value
                            totals[y, m] = (
                                add_product(builder, kind, (*terms, totals[y, m]))
                                if k > 0
                                else builder.fmul(*terms)
                            )

            for y in range(together):
                for m, place in enumerate(places(computed, y, 0)):
                    write_vector(context, builder, kind, v, target, place, totals[y, m])
            return context.get_dummy_value()

        return types.void(u, v, weights, rows, sums, types.intp), generate

    return update


def _planes(stack: Stack) -> Iterator[list[Column]]:
    """Columns to read, ordered so that each sum takes its terms in chain order: by x, then by
    plane, then by row.
    """
    for dx in sorted({x for _, _, x in stack.offsets}):
        columns = [
            (plane, Column(n, dx, uses))
            for (plane, row), n in stack.rows.items()
            if (uses := [(y, k) for y, x, k in stack.uses((plane, row)) if x == dx])
        ]
        for _, group in groupby(columns, key=lambda it: it[0]):
            yield [column for _, column in group]
