"""Sources of the paper's row kernels: Vector Skewed Swizzling, and Quadruple Pipelining (Tetris,
section 3.1).

The trouble they solve: the neighbours of a vector of points begin at addresses that are no multiple
of a vector. Here all loads are aligned, and the neighbours are made in registers. With four
doubles, [0 1 2 3] and [4 5 6 7] being two consecutive vectors ("tetrominoes") of a row:

- Swizzling: joining the low halves of their 128-bit lanes gives [0 4 2 6], joining the high halves
  [1 5 3 7]. These "diagonal tetrominoes" are each other's neighbours, element by element, for the
  price of one cheap shuffle within lanes.
- Skewing: one permutation of whole 128-bit lanes makes [2 3 4 5] of two vectors. The skewed
  tetrominoes [2 3 4 5] and [6 7 8 9], swizzled, are [2 6 4 8] and [3 7 5 9]: the next two
  neighbours. One permutation every two vectors is enough, because a skewed vector serves again when
  the row has moved on.
- All sums are made of diagonal tetrominoes, so two vectors of points are computed at once;
  swizzling the two sums brings the points back into order, since the joining is its own inverse.

This generalises to any number of lanes: `diagonal(k)` below holds, in every 16 bytes, points k, k +
1, ... from the first vector beside the same from the second. A shift by less than 8 bytes exists
for float32 only; it takes one further permutation of elements (`align_pair`).

How the text on Quadruple Pipelining is read: it stacks a forward and a backward stream of skewed
tetrominoes into one pipeline, a second one staggered against it, and the two vertically. Here the
two sums of a swizzled pair are the streams of one pipeline, and the two pipelines are two
neighbouring rows (in 1D, two neighbouring pairs of vectors): four sums are in flight, and each
register that was loaded and swizzled serves every one of them whose stencil reaches it.

The ends of a row that fill no pair of vectors, and a row without a partner, are computed with
unaligned loads, overlapping what has been computed; rows shorter than a vector point by point. The
chain of a point is the same everywhere, and so are its bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tetris_sim.cpu_kernels.tessellate.rows import Stack, stacked, vector_source
from tetris_sim.model.stencil import Offset

_REST = "pitch0, pitch1, weights"  # of the arguments of the functions for the ends of a row


def skewed_source(offsets: tuple[Offset, ...], dtype: np.dtype[Any], lanes: int) -> str:
    """One row at a time, two vectors of points at once."""
    return _source(offsets, dtype, lanes, jam=1, pairs=1)


def quadruple_source(offsets: tuple[Offset, ...], dtype: np.dtype[Any], lanes: int) -> str:
    """Four vectors of points at once: of two rows, in 1D of one."""
    if len(offsets[0]) == 1:
        return _source(offsets, dtype, lanes, jam=1, pairs=2)
    return _source(offsets, dtype, lanes, jam=2, pairs=1)


def _source(
    offsets: tuple[Offset, ...], dtype: np.dtype[Any], lanes: int, *, jam: int, pairs: int
) -> str:
    swizzle = _Swizzle(stacked(offsets, jam), dtype, lanes, pairs)
    # One shuffle per distinct misalignment.
    shifts = sorted({base % lanes for bases in swizzle.bases for base in bases} - {0})
    also = [f'low_halves = halves_pair("{dtype.name}", {lanes}, high=False)']
    also += [f'high_halves = halves_pair("{dtype.name}", {lanes}, high=True)']
    also += [f'skew_{shift} = align_pair("{dtype.name}", {lanes}, {shift})' for shift in shifts]
    also += ["", "", *_row_ends(stacked(offsets, 1))]

    def body(stack: Stack) -> Iterator[str]:
        if stack.together == jam:
            return swizzle.lines()
        # The row that is left over is not worth compiling all of it once more.
        return _unaligned(stack, lanes, "column", "column")

    return vector_source(offsets, dtype, lanes, jam, body, "\n".join(also))


class _Swizzle:
    """The lines that compute a stack of rows, `pairs` pairs of vectors at a time."""

    def __init__(self, stack: Stack, dtype: np.dtype[Any], lanes: int, pairs: int) -> None:
        self.stack, self.lanes, self.pairs = stack, lanes, pairs
        self.step = 2 * lanes * pairs  # points of a row per turn of the loop
        self.half = 8 // dtype.itemsize  # points in 8 bytes
        # Per row read: where the vectors begin that are swizzled into the diagonals it must give.
        self.bases: list[set[int]] = [
            {
                base
                for y, x, _ in stack.uses(row)
                for pair in range(pairs)
                for which in (0, 1)
                for base in self._pair(x + self._place(pair, which))
            }
            for row in stack.rows
        ]

    def lines(self) -> Iterator[str]:
        """The whole row: its beginning, the loop over aligned pairs, its end."""
        yield f"head = min(last_column, -(-column // {self.lanes}) * {self.lanes})"
        yield f"stop = head + (last_column - head) // {self.step} * {self.step}"
        yield f"if last_column - column < {self.lanes}:"
        yield "    stop = head"
        yield from _unaligned(self.stack, self.lanes, "head", "stop")
        yield "if head < stop:"
        for n in range(len(self.bases)):
            yield from ("    " + line for line in self._before(n))
        yield f"    for x in range(head, stop, {self.step}):"
        yield from ("        " + line for line in self._turn())

    def _place(self, pair: int, which: int) -> int:
        """First diagonal of a sum: those of pair 0 begin at 0 and half, each further pair behind
        them.
        """
        return 2 * self.lanes * pair + which * self.half

    def _pair(self, k: int) -> tuple[int, int]:
        """First elements of the two vectors whose swizzling gives diagonal k."""
        base = k - self.half if k % (2 * self.half) >= self.half else k
        return base, base + self.lanes

    def _kept(self, n: int) -> tuple[list[int], list[int], list[int], list[int]]:
        """Vectors of row n by role: aligned ones needed, aligned ones kept for the next turn,
        skewed ones made anew, skewed ones kept.
        """
        skewed = {base for base in self.bases[n] if base % self.lanes}
        kept = {base for base in skewed if base + self.step in skewed}
        aligned = {base for base in self.bases[n] if base % self.lanes == 0}
        for base in skewed - kept:
            aligned |= {base // self.lanes * self.lanes, (base // self.lanes + 1) * self.lanes}
        kept_aligned = {base for base in aligned if base + self.step in aligned}
        # A vector needed one turn later at the same place is kept, not loaded again.
        return sorted(aligned), sorted(kept_aligned), sorted(skewed - kept), sorted(kept)

    def _before(self, n: int) -> Iterator[str]:
        """Load the vectors that the first turn expects in registers."""
        _, aligned, _, skewed = self._kept(n)
        for base in aligned:
            yield f"{_name(n, base)} = load_vector(u, r{n} + head + {base})"
        for base in skewed:
            shift = base % self.lanes
            ends = (
                f"load_vector(u, r{n} + head + {base - shift + k * self.lanes})" for k in (0, 1)
            )
            yield f"{_name(n, base)} = skew_{shift}({', '.join(ends)})"

    def _turn(self) -> Iterator[str]:
        """One turn of the loop: load, skew, swizzle and add up, bring the sums into order, move
        on.
        """
        for n in range(len(self.bases)):
            aligned, kept_aligned, skewed, _ = self._kept(n)
            for base in aligned:
                if base not in kept_aligned:
                    yield f"{_name(n, base)} = load_vector(u, r{n} + x + {base})"
            for base in skewed:
                shift = base % self.lanes
                first, second = _name(n, base - shift), _name(n, base - shift + self.lanes)
                yield f"{_name(n, base)} = skew_{shift}({first}, {second})"

        yield from self._sums()
        for y in range(self.stack.together):
            for pair in range(self.pairs):
                sums = f"s{y}_{pair}_0, s{y}_{pair}_1"
                place = f"o{y} + x + {2 * self.lanes * pair}"
                yield f"store_vector(v, {place}, low_halves({sums}))"
                yield f"store_vector(v, {place} + {self.lanes}, high_halves({sums}))"

        for n in range(len(self.bases)):
            _, aligned, _, skewed = self._kept(n)
            for base in (*aligned, *skewed):
                yield f"{_name(n, base)} = {_name(n, base + self.step)}"

    def _sums(self) -> Iterator[str]:
        """Every sum takes its terms in the order of the chain; a diagonal is made when it is first
        asked for.
        """
        made: set[str] = set()
        for k, (_, _, x) in enumerate(self.stack.offsets):
            for y in range(self.stack.together):
                n = self.stack.rows[self.stack.row(y, k)]
                for pair in range(self.pairs):
                    for which in (0, 1):
                        place = x + self._place(pair, which)

                        diagonal = _name(n, place, "d")
                        if diagonal not in made:
                            made.add(diagonal)
                            first, second = self._pair(place)
                            join = "low_halves" if first == place else "high_halves"
                            yield f"{diagonal} = {join}({_name(n, first)}, {_name(n, second)})"

                        total = f"s{y}_{pair}_{which}"
                        yield f"{total} = " + self.stack.term(k, diagonal, total, first=k == 0)


def _unaligned(stack: Stack, lanes: int, head: str, stop: str) -> Iterator[str]:
    """The points before `head` and those from `stop` on, in vectors that overlap; single points if
    they are few.
    """
    yield f"if last_column - column < {lanes}:"
    yield "    for x in range(column, last_column):"
    yield from (f"        update_point(u, v, o{y}, x, {_REST})" for y in range(stack.together))
    yield "else:"
    for y in range(stack.together):
        if head != "column":
            yield f"    if column < {head}:"
            yield f"        update_vector(u, v, o{y}, column, {_REST})"
        yield f"    for x in range({stop}, last_column - {lanes - 1}, {lanes}):"
        yield f"        update_vector(u, v, o{y}, x, {_REST})"
        yield f"    if {stop} < last_column:"
        yield f"        update_vector(u, v, o{y}, last_column - {lanes}, {_REST})"


def _name(n: int, place: int, kind: str = "u") -> str:
    """The variable with the vector (u) or diagonal (d) of row n that begins at a place."""
    return f"{kind}{n}_{place}".replace("-", "m")


def _row_ends(stack: Stack) -> list[str]:
    """Source of `update_vector` and `update_point`: a vector of points anywhere, and a single
    one.
    """
    lines: list[str] = []
    for name in ("update_vector", "update_point"):
        lines += ["@njit(nogil=True)", f"def {name}(u, v, start, x, {_REST}):"]
        lines += [f"    {line}" for line in stack.starts()]

        # The same order of additions as in the vectors of the middle: the same bits.
        for k, (_, _, dx) in enumerate(stack.offsets):
            place, weight = (
                f"r{stack.rows[stack.row(0, k)]} + x + {dx}",
                f"weights[{stack.weights[k]}]",
            )
            if name == "update_vector":
                lines += [f"    w{stack.weights[k]} = broadcast({weight})"]
                lines += [f"    s = {stack.term(k, f'load_vector(u, {place})', 's', first=k == 0)}"]
            else:
                lines += [
                    f"    s = {weight} * u[{place}]"
                    if k == 0
                    else f"    s = fma({weight}, u[{place}], s)"
                ]

        lines += [
            "    store_vector(v, o0 + x, s)" if name == "update_vector" else "    v[o0 + x] = s",
            "",
            "",
        ]
    return lines
