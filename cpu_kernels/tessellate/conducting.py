"""Source of the row kernel of `cpu.tessellate` for conduction through a medium.

Idea    Rows are lifted (`lifted.py`), so what a vector of points needs is a record of vectors: the
        conductance of the upper face of each point per axis, the rate, and where a source is
        multiplied by it the volume. Equal records are stored once, and each vector of points has
        the number of its own (`records.py`): of most bodies a few hundred fit the first-level
        cache, where arrays of coefficients would take as much traffic as the state three times
        over. Blocks of a row whose points, and those below them, have one record are tagged with
        its number; along such runs it stays in registers.
        A difference of neighbours is made once and serves both: the flow through the lower face is
        that of the point below with the other sign. `jam` rows are computed together and share the
        differences between them.
Layout  numbers: one per vector of the padded state. tags: one per block of `BLOCK` vectors, -1
        where a block has several records. patterns: ids of the points of each record, if there are
        sources. `OPERANDS` names what a step hands over.
Limits  The chain of a point is that of `conduction.py`, along each axis the lower neighbour first.
        The lower term is fma(K, -(u - u_low), S): rounding is symmetric, so these are its bits.
Test    tests/kernels/test_tessellate_conduction.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCK_BITS = 3
BLOCK = 1 << BLOCK_BITS  # vectors that have a tag together
# What the kernel gets for a step: addresses of arrays, and elements from plane to plane and from
# row to row of the tags.
OPERANDS = ("records", "numbers", "tags", "tag_plane", "tag_row", "patterns", "source")
_SIDES = ("plane", "row")


@dataclass(frozen=True)
class Conducting:
    """What kind of conduction a kernel is made for.

    Attributes:
        ndim: number of axes.
        heated: whether there are sources.
        scaled: whether they are multiplied by the volume of the point.
    """

    ndim: int
    heated: bool
    scaled: bool

    @property
    def slots(self) -> int:
        """Vectors of a record: conductances by axis, the rate, the volume."""
        return self.ndim + 1 + self.scaled

    @property
    def jammed(self) -> int | None:
        """The axis along which rows are computed together; the last one is that of the rows."""
        return None if self.ndim == 1 else self.ndim - 2


def conducting_source(kind: Conducting, dtype: np.dtype[Any], lanes: int, jam: int) -> str:
    """`update_box` for `call_box`, with a table of operands in place of weights.

    Args:
        kind: of conduction.
        dtype: of the elements.
        lanes: elements of a vector.
        jam: rows taken together.
    """
    inner, outer = ("plane", "row") if kind.ndim < 3 else ("row", "plane")
    pitch = dict(zip(_SIDES, ("pitch0", "pitch1"), strict=True))
    lines = ["from numba import cfunc", "from numba.core import types", ""]
    lines += ["from tetris_sim.cpu_kernels.compiled.intrinsics import elements_at"]
    lines += ["from tetris_sim.cpu_kernels.compiled.vectors import vector_operations", ""]
    lines += [f"REAL = types.{dtype.name}", f'V = vector_operations("{dtype.name}", {lanes})']
    lines += ["load, store, multiply, subtract = V.load, V.store, V.multiply, V.subtract"]
    lines += ["negative, fma, gather = V.negative, V.fma, V.gather", "INT32 = types.int32"]
    lines += ["POINTER = types.CPointer(REAL)", "OPERANDS = types.CPointer(types.int64)", "", ""]
    lines += ["@cfunc(types.void(POINTER, POINTER, OPERANDS, *(types.intp,) * 9), cache=True)"]
    lines += ["def update_box(u, v, operands, base, plane, last_plane, row, last_row, column,"]
    lines += ["               last_column, pitch0, pitch1):"]
    types = {"records": "REAL", "source": "REAL", "tag_plane": "", "tag_row": ""}
    for n, name in enumerate(OPERANDS):
        element = types.get(name, "INT32")
        value = f"elements_at(operands[{n}], {element})" if element else f"operands[{n}]"
        lines += [f"    {name} = {value}"]

    lines += [f"    for i in range({outer}, last_{outer}):", f"        j = {inner}"]
    for together in dict.fromkeys((jam if kind.ndim > 1 else 1, 1)):
        lines += [f"        while j + {together} <= last_{inner}:"]
        lines += [f"            start = base + i * {pitch[outer]} + j * {pitch[inner]}"]
        lines += [f"            tag = i * tag_{outer} + j * tag_{inner}"]
        body = _Rows(kind, lanes, together, pitch[inner], f"tag_{inner}").lines()
        lines += ["            " + line for line in body]
        lines += [f"            j += {together}"]
    return "\n".join([*lines, ""])


@dataclass(frozen=True)
class _Rows:
    """The lines that compute some rows that lie side by side."""

    kind: Conducting
    lanes: int
    together: int
    pitch: str
    tag_pitch: str

    def lines(self) -> Iterator[str]:
        """Runs of one record, and what lies between them."""
        shift = self.lanes.bit_length() - 1
        beside = self.kind.jammed is not None
        for y in range(-beside, self.together + beside):
            yield f"o{_name(y)} = start + {y} * {self.pitch}"
        for y in range(-beside, self.together):
            yield f"w{_name(y)} = o{_name(y)} >> {shift}"

        yield "x = column"
        yield "while x < last_column:"
        yield f"    k = (x >> {BLOCK_BITS}) + 1"
        yield "    n = tags[tag + k - 1]"
        yield f"    one = {self._is_one('k - 1')}"
        yield "    if one:"
        yield f"        while k << {BLOCK_BITS} < last_column and {self._is_one('k')}:"
        yield "            k += 1"
        yield "    else:"
        yield f"        while k << {BLOCK_BITS} < last_column and not ({self._is_any('k')}):"
        yield "            k += 1"
        yield f"    stop = min(k << {BLOCK_BITS}, last_column)"
        yield "    if one:"
        yield from ("        " + line for line in self._run(one=True))
        yield "    else:"
        yield from ("        " + line for line in self._run(one=False))
        yield "    x = stop"

    def _is_one(self, block: str) -> str:
        """Whether all rows of a block have record n."""
        tags = (f"tags[tag + {y} * {self.tag_pitch} + {block}]" for y in range(self.together))
        return " and ".join(["n >= 0", *(f"{tag} == n" for tag in tags)])

    def _is_any(self, block: str) -> str:
        """Whether all rows of a block have some record."""
        tags = [f"tags[tag + {y} * {self.tag_pitch} + {block}]" for y in range(self.together)]
        return " and ".join([f"{tags[0]} >= 0", *(f"{tag} == {tags[0]}" for tag in tags[1:])])

    def _run(self, *, one: bool) -> Iterator[str]:
        """Vectors from x to `stop`: all with record n, or each with its own."""
        lanes, last = self.lanes, self.kind.ndim - 1
        if one:
            yield from (f"k{a} = {self._slot('n', a)}" for a in range(self.kind.ndim))
            yield f"rate = {self._slot('n', self.kind.ndim)}"
            if self.kind.heated:
                yield f"heat = {self._heat('n')}"
        for y in range(self.together):
            yield f"u{y} = load(u, o{y} + x * {lanes})"
            yield f"low{y} = subtract(u{y}, load(u, o{y} + (x - 1) * {lanes}))"
            if not one:
                yield f"below{y} = {self._slot(f'numbers[w{y} + x - 1]', last)}"

        yield "for p in range(x, stop):"
        yield from ("    " + line for line in self._vector(one=one))

    def _vector(self, *, one: bool) -> Iterator[str]:
        """One vector of each row."""
        lanes, last, jammed = self.lanes, self.kind.ndim - 1, self.kind.jammed
        rows = range(self.together)
        if jammed is not None:
            yield f"um1 = load(u, om1 + p * {lanes})"
            yield f"u{self.together} = load(u, o{self.together} + p * {lanes})"
            for y in range(self.together + 1):
                yield f"side{y} = subtract(u{y}, u{_name(y - 1)})"
        if not one:
            for y in range(-(jammed is not None), self.together):
                yield f"n{_name(y)} = numbers[w{_name(y)} + p]"

        for y in rows:
            yield f"next{y} = load(u, o{y} + (p + 1) * {lanes})"
            yield f"high{y} = subtract(next{y}, u{y})"
            if not one:
                yield f"above{y} = {self._slot(f'n{y}', last)}"
            total = self._source(y, one=one)
            for axis in range(self.kind.ndim):
                for side in (0, 1):
                    factor = f"k{axis}" if one else self._conductance(y, axis, side)
                    term = f"{factor}, {self._difference(y, axis, side)}"
                    yield f"s{y} = " + (f"fma({term}, {total})" if total else f"multiply({term})")
                    total = f"s{y}"
            rate = "rate" if one else self._slot(f"n{y}", self.kind.ndim)
            yield f"store(v, o{y} + p * {lanes}, fma({rate}, s{y}, u{y}))"
        for y in rows:
            yield f"low{y} = high{y}"
            yield f"u{y} = next{y}"
            if not one:
                yield f"below{y} = above{y}"

    def _difference(self, y: int, axis: int, side: int) -> str:
        """A neighbour of row y minus the point."""
        if axis == self.kind.ndim - 1:
            return f"high{y}" if side else f"negative(low{y})"
        if axis == self.kind.jammed:
            return f"side{y + 1}" if side else f"negative(side{y})"
        return f"subtract(load(u, o{y} + p * {self.lanes} {'-+'[side]} pitch{axis}), u{y})"

    def _conductance(self, y: int, axis: int, side: int) -> str:
        """Of the face between a point and its neighbour: that of the lower one of both."""
        if axis == self.kind.ndim - 1:
            return f"above{y}" if side else f"below{y}"
        if side:
            return self._slot(f"n{y}", axis)
        if axis == self.kind.jammed:
            return self._slot(f"n{_name(y - 1)}", axis)
        plane = f"pitch{axis} // {self.lanes}"
        return self._slot(f"numbers[w{y} + p - {plane}]", axis)

    def _source(self, y: int, *, one: bool) -> str:
        if not self.kind.heated:
            return ""
        return "heat" if one else self._heat(f"n{y}")

    def _slot(self, number: str, slot: int) -> str:
        """A vector of a record."""
        return f"load(records, {number} * {self.kind.slots * self.lanes} + {slot * self.lanes})"

    def _heat(self, number: str) -> str:
        power = f"gather(source, patterns, {number} * {self.lanes})"
        if not self.kind.scaled:
            return power
        return f"multiply({power}, {self._slot(number, self.kind.ndim + 1)})"


def _name(y: int) -> str:
    return f"{y}".replace("-", "m")
