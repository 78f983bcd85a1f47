"""Vectors of neighbouring rows computed together, as one operation of compiled code.

Idea    For stencils with more weights than there are registers. Each sum takes its terms one after
        the other, in the order of the chain, and a weight is loaded once for all the sums that need
        it next: those of one x and one plane are few enough to stay in registers beside the sums.
        Three rows of four vectors of box-3d27p take 324 multiply-adds and 207 loads, a single
        vector 54 loads for 27. And there are enough sums for none to wait for the one before.
Layout  As in `rows.py`.
Limits  LLVM is told that memory may have changed before each plane, though it has not: it would
        keep what it has loaded for the next x, on the stack. Numba sees one statement; one for each
        term took it 9 seconds.
Test    tests/kernels/test_tessellate.py, test_other_targets.py
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tetris_sim.cpu_kernels.compiled.vectors import (
    add_product,
    read_vector,
    spread_number,
    vector_operations,
    write_vector,
)
from tetris_sim.cpu_kernels.tessellate.rows import Stack, stacked
from tetris_sim.model.stencil import Offset

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
