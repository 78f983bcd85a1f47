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
        Where states are heat contents, what flows is a difference of potentials: those of the rows
        around the ones that are computed lie in a ring of planes of each thread, and each is made
        once per step (`formulas.py`). What heats a point by a formula lies in such a ring too
        (`formulas.py`), or, if it does not change, as the state does.
Layout  numbers: one per vector of the padded state. tags: one per block of `BLOCK` vectors, -1
        where a block has several records, -2 beyond ruled faces. patterns: ids of the points of
        each record. `OPERANDS` names what a step hands over.
Limits  The chain of a point is that of `conduction.py`, along each axis the lower neighbour first.
        The lower term is fma(K, -(u - u_low), S): rounding is symmetric, so these are its bits.
Test    tests/kernels/test_tessellate_conduction.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tetris_sim.cpu_kernels.tessellate.formulas import (
    BLOCK_BITS,
    CHANGING,
    STEADY,
    Conducting,
    imports,
    operands_of,
    potentials_call,
    potentials_source,
    power_call,
    power_source,
)
from tetris_sim.cpu_kernels.tessellate.records import kind_of
from tetris_sim.cpu_kernels.tessellate.rows import walk
from tetris_sim.model.problem import Problem

_PITCH = {"plane": "pitch0", "row": "pitch1"}


def conducting_source(
    kind: Conducting, dtype: np.dtype[Any], lanes: int, jam: int, before: Sequence[str] = ()
) -> str:
    """`update_box` for `call_box`, with a table of operands in place of weights.

    Args:
        kind: of conduction.
        dtype: of the elements.
        lanes: elements of a vector.
        jam: rows taken together.
        before: source of the functions that make potentials and power.
    """
    jam = jam if kind.ndim > 1 else 1
    lines = [*imports(dtype, lanes), *before]
    lines += ["@cfunc(types.void(POINTER, POINTER, OPERANDS, *(types.intp,) * 9), cache=True)"]
    lines += ["def update_box(u, v, operands, base, plane, last_plane, row, last_row, column,"]
    lines += ["               last_column, pitch0, pitch1):"]
    body = list(_box(kind, lanes, jam))
    return "\n".join([*lines, *operands_of(body), *body, ""])


def _box(kind: Conducting, lanes: int, jam: int) -> Iterator[str]:
    """The lines of `update_box`."""
    inner, outer = ("row", "plane") if kind.jammed == 1 else ("plane", "row")
    each: list[str] = []
    if kind.curved:
        yield f"    done = plane - {int(kind.ndim > 1)}"
    if kind.curved and kind.ndim == 3:
        each = [
            "while done < i + 2:",
            "    for near in range(row - 1, last_row + 1):",
            f"        {potentials_call('done', 'near', kind.ring(jam))}",
            "    done += 1",
        ]

    bodies = {}
    # Source for `jam` rows together, and for the single rows left over.
    for together in dict.fromkeys((jam, 1)):
        rows = _RecordRows(kind, lanes, together, _PITCH[inner], f"tag_{inner}", kind.ring(jam))
        tag = f"tag = i * tag_{outer} + j * tag_{inner}"
        bodies[together] = [tag, *rows.before(), *rows.lines()]
    yield from walk((inner, outer), bodies, each, above=kind.above)


def body_source(problem: Problem, lanes: int) -> list[str]:
    """Source of the functions that make potentials and power."""
    kind, conduction = kind_of(problem), problem.conduction
    lines = potentials_source(kind, lanes) if kind.curved else []
    if kind.placed == CHANGING and conduction is not None and conduction.source is not None:
        lines += power_source(problem, conduction.source.program)
    return lines


@dataclass(frozen=True)
class _RecordRows:
    """The lines that compute some rows that lie side by side."""

    kind: Conducting
    lanes: int
    together: int
    pitch: str
    tag_pitch: str
    ring: int

    def before(self) -> Iterator[str]:
        """Lines that prepare rings for these rows before they are computed: potentials and
        power.
        """
        kind = self.kind
        if kind.curved and kind.ndim < 3:
            yield f"while done < j + {self.together + (kind.ndim > 1)}:"
            yield f"    {potentials_call('done', 'i', self.ring)}"
            yield "    done += 1"
        if kind.placed == CHANGING:
            for y in range(self.together):
                place = (f"j + {y}", "i") if kind.ndim < 3 else ("i", f"j + {y}")
                yield power_call(*place, f"u, power, {self._in_ring(y)}")

    def _in_ring(self, y: int, planes: int = 0) -> str:
        """First element of a row in a ring: of the rows taken together, or some planes away from
        it.
        """
        mask = self.ring - 1
        if self.kind.ndim < 3:
            return f"((j + {y}) & {mask}) * pitch0 + i * pitch1"
        return f"((i + {planes}) & {mask}) * pitch0 + (j + {y}) * pitch1"

    def lines(self) -> Iterator[str]:
        """Runs of one record, and what lies between them."""
        shift = self.lanes.bit_length() - 1
        beside = self.kind.jammed is not None
        for y in range(-beside, self.together + beside):
            yield f"o{_name(y)} = start + {y} * {self.pitch}"
        for y in range(-beside, self.together):
            yield f"w{_name(y)} = o{_name(y)} >> {shift}"
        if self.kind.curved:
            for y in range(-beside, self.together + beside):
                yield f"f{_name(y)} = {self._in_ring(y)}"
            for y in range(self.together if self.kind.ndim == 3 else 0):
                yield f"f{y}_0 = {self._in_ring(y, -1)}"
                yield f"f{y}_1 = {self._in_ring(y, 1)}"
        if self.kind.placed:
            for y in range(self.together):
                place = f"o{y}" if self.kind.placed == STEADY else self._in_ring(y)
                yield f"p{y} = {place}"

        yield "x = column"
        yield "while x < last_column:"
        yield f"    k = (x >> {BLOCK_BITS}) + 1"
        # Find how far the row keeps one record (or several), in whole blocks.
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
        last = self.kind.ndim - 1
        if one:
            yield from (f"k{a} = {self._slot('n', a)}" for a in range(self.kind.ndim))
            yield f"rate = {self._slot('n', self.kind.ndim)}"
            if self.kind.heated and not self.kind.placed:
                yield f"heat = {self._heat(0, 'n')}"
        for y in range(self.together):
            yield f"u{y} = {self._read(y, 'x')}"
            yield f"low{y} = subtract(u{y}, {self._read(y, '(x - 1)')})"
            if not one:
                yield f"below{y} = {self._slot(f'numbers[w{y} + x - 1]', last)}"

        yield "for p in range(x, stop):"
        yield from ("    " + line for line in self._vector(one=one))

    def _vector(self, *, one: bool) -> Iterator[str]:
        """One vector of each row."""
        lanes, last, jammed = self.lanes, self.kind.ndim - 1, self.kind.jammed
        rows = range(self.together)
        # Differences between rows computed together serve both rows.
        if jammed is not None:
            yield f"um1 = {self._read(-1, 'p')}"
            yield f"u{self.together} = {self._read(self.together, 'p')}"
            for y in range(self.together + 1):
                yield f"side{y} = subtract(u{y}, u{_name(y - 1)})"
        if not one:
            for y in range(-(jammed is not None), self.together):
                yield f"n{_name(y)} = numbers[w{_name(y)} + p]"

        for y in rows:
            yield f"next{y} = {self._read(y, '(p + 1)')}"
            yield f"high{y} = subtract(next{y}, u{y})"
            if not one:
                yield f"above{y} = {self._slot(f'n{y}', last)}"
            chain = [*self._heating(y, one=one), *self._chain(y, one=one)]
            if self.kind.curved and not one:
                yield f"if several[n{y}] != 0:"
                yield from (f"    {line}" for line in self._between_several(y))
                yield "else:"
                chain = [f"    {line}" for line in chain]
            yield from chain
            rate = "rate" if one else self._slot(f"n{y}", self.kind.ndim)
            here = f"load(u, o{y} + p * {lanes})" if self.kind.curved else f"u{y}"
            yield f"store(v, o{y} + p * {lanes}, fma_vector({rate}, s{y}, {here}))"
        # The upper face of this vector is the lower face of the next one.
        for y in rows:
            yield f"low{y} = high{y}"
            yield f"u{y} = next{y}"
            if not one:
                yield f"below{y} = above{y}"

    def _chain(self, y: int, *, one: bool) -> Iterator[str]:
        """The terms of the neighbours of row y, added to `s` if there is a source."""
        first = not self.kind.heated
        for axis in range(self.kind.ndim):
            for side in (0, 1):
                factor = f"k{axis}" if one else self._conductance(y, axis, side)
                term = f"{factor}, {self._difference(y, axis, side)}"
                yield f"s{y} = " + (f"multiply({term})" if first else f"fma_vector({term}, s{y})")
                first = False

    def _between_several(self, y: int) -> Iterator[str]:
        """Lines for the sum where points lie next to other materials; see `_several` in
        `formulas.py`.
        """
        near = []
        for axis in range(self.kind.ndim):
            for side in (0, 1):
                near += [self._place(y, axis, side), self._neighbour(y, axis, side)]
        total = f"s{y}" if self.kind.heated else f"u{y}"
        yield from self._heating(y, one=False)
        yield f"s{y} = sum_of_several({total}, f{y} + p * {self.lanes}, n{y}, ({', '.join(near)}),"
        yield "                    flowing, ring, records, patterns, half, n_ids)"

    def _difference(self, y: int, axis: int, side: int) -> str:
        """A neighbour of row y minus the point."""
        if axis == self.kind.ndim - 1:
            return f"high{y}" if side else f"negative(low{y})"
        if axis == self.kind.jammed:
            return f"side{y + 1}" if side else f"negative(side{y})"
        return f"subtract(load({self._array}, {self._place(y, axis, side)}), u{y})"

    @property
    def _array(self) -> str:
        """Name of the array whose differences drive the flow."""
        return "flowing" if self.kind.curved else "u"

    def _read(self, y: int, x: str) -> str:
        """Load vector x of row y of `_array`."""
        row = "f" if self.kind.curved else "o"
        return f"load({self._array}, {row}{_name(y)} + {x} * {self.lanes})"

    def _place(self, y: int, axis: int, side: int) -> str:
        """Element of `_array` at which a neighbour of vector p of row y lies."""
        row, x = "f" if self.kind.curved else "o", f"p * {self.lanes}"
        if axis == self.kind.ndim - 1:
            return f"{row}{y} + {x} {'-+'[side]} {self.lanes}"
        if axis == self.kind.jammed:
            return f"{row}{_name(y + 2 * side - 1)} + {x}"
        if self.kind.curved:
            return f"f{y}_{side} + {x}"
        return f"o{y} + {x} {'-+'[side]} pitch{axis}"

    def _neighbour(self, y: int, axis: int, side: int) -> str:
        """The record of a neighbour of vector p of row y."""
        pitch = "1" if axis == self.kind.ndim - 1 else f"pitch{axis} // {self.lanes}"
        return f"numbers[w{y} + p {'-+'[side]} {pitch}]"

    def _conductance(self, y: int, axis: int, side: int) -> str:
        """Conductance of the face between a point and its neighbour, stored with the lower one of
        both.
        """
        if axis == self.kind.ndim - 1:
            return f"above{y}" if side else f"below{y}"
        if side:
            return self._slot(f"n{y}", axis)
        if axis == self.kind.jammed:
            return self._slot(f"n{_name(y - 1)}", axis)
        return self._slot(self._neighbour(y, axis, 0), axis)

    def _heating(self, y: int, *, one: bool) -> Iterator[str]:
        """Lines that begin the sum `s` of row y with the power of a source."""
        if self.kind.heated:
            known = one and not self.kind.placed
            yield f"s{y} = {'heat' if known else self._heat(y, 'n' if one else f'n{y}')}"

    def _slot(self, number: str, slot: int) -> str:
        """A vector of a record."""
        return f"load(records, {number} * {self.kind.slots * self.lanes} + {slot * self.lanes})"

    def _heat(self, y: int, number: str) -> str:
        power = f"gather(source, patterns, {number} * {self.lanes})"
        if self.kind.placed:
            power = f"load(power, p{y} + p * {self.lanes})"
        if not self.kind.scaled:
            return power
        return f"multiply({power}, {self._slot(number, self.kind.ndim + 1)})"


def _name(y: int) -> str:
    return f"{y}".replace("-", "m")
