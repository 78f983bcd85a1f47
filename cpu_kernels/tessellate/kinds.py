"""Kinds of conduction for which `cpu.tessellate` has kernels, and source text that these share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCK_BITS = 3
BLOCK = 1 << BLOCK_BITS  # vectors that have a tag together
BEYOND = -2  # tag of vectors beyond ruled faces, if states are heat contents
# What the kernel gets for a step: addresses of arrays, and numbers. `tag_plane` and `tag_row`:
# elements from plane to plane and from row to row of the tags. `several`: whether vectors of a
# record lie beside other materials. `flowing`: potentials, and one and two times `ring` behind them
# temperatures and conductivities. `power`: what heats each point by a formula. `step`: of the
# block. What comes behind it: see `formulas.py`.
OPERANDS = (
    *("records", "numbers", "tags", "tag_plane", "tag_row", "patterns", "source"),
    *("several", "flowing", "ring", "power", "step", "codes", "plane_size", "row_size"),
    *("knots", "curves", "columns", "half", "n_ids", "pieces"),
    *("tables", "places", "about", "along_planes", "along_rows", "along_points"),
)
_NUMBERS = frozenset({"tag_plane", "tag_row", "ring", "step", "plane_size", "row_size"}) | {
    *("n_ids", "pieces")
}
_INTEGERS = {name: "INT32" for name in ("numbers", "tags", "patterns", "several", "codes")} | {
    name: "INT64" for name in ("places", "about")
}
STEADY, CHANGING = "steady", "changing"  # sources that are formulas of the place
MANY = -1  # pieces of a curve, more than are compared one by one


@dataclass(frozen=True)
class Conducting:
    """Kind of conduction for which a kernel is compiled.

    Attributes:
        ndim: number of axes.
        heated: whether there are sources.
        scaled: whether they are multiplied by the volume of the point.
        placed: whether sources are a formula of the place, and if they are, `STEADY` or `CHANGING`.
        pieces: of the curves of a heat content, `MANY` if they are searched; 0 if the state is a
            temperature.
        ways: whether every face has resistances of its own, of heat contents with coefficients.
        above: whether rows that are computed together lie one above the other instead of side by
            side, in 3D and without rings.
    """

    ndim: int
    heated: bool
    scaled: bool
    placed: str = ""
    pieces: int = 0
    ways: bool = False
    above: bool = False

    @property
    def slots(self) -> int:
        """Vectors of a record: conductances by axis, the rate, the volume; of heat contents c of
        the half cells below and above upper faces by axis, if they have `ways`, and at last
        whether several materials are beside it.
        """
        return self.ndim + 1 + self.scaled + 2 * self.ndim * self.ways + self.curved

    @property
    def halves(self) -> int:
        """The first vector of `ways`: below the face along each axis, then above it."""
        return self.ndim + 1 + self.scaled

    @property
    def curved(self) -> bool:
        """Whether states are heat contents."""
        return self.pieces != 0

    @property
    def patterned(self) -> bool:
        """Whether points of different ids have different records even if their numbers agree."""
        return self.heated or self.curved

    @property
    def jammed(self) -> int | None:
        """The axis along which rows are computed together; the last one is that of the rows."""
        return None if self.ndim == 1 else 0 if self.above else self.ndim - 2

    @property
    def rings(self) -> int:
        """Number of rings that each thread needs: for potentials, temperatures and conductivities,
        and for power.
        """
        return 3 * self.curved + (self.placed == CHANGING)

    def ring(self, jam: int) -> int:
        """Planes of a ring, which holds what rows need that are computed together."""
        if self.ndim != 2:
            return 1 if self.ndim == 1 else 4
        return 4 if jam <= 2 else 8


def operands_of(lines: Sequence[str]) -> list[str]:
    """Lines that begin a function with those of `OPERANDS` that its other lines name."""
    words = set(re.findall(r"\w+", "\n".join(lines)))
    return [f"    {name} = {_operand(name)}" for name in OPERANDS if name in words]


def imports(dtype: np.dtype[Any], lanes: int) -> list[str]:
    """The first lines of a generated module, for all that its functions may name."""
    path = "from tetris_sim.cpu_kernels.compiled"
    lines = ["import math", "", "import numpy as np", "from numba import cfunc, njit"]
    lines += ["from numba.core import types", ""]
    lines += [f"{path}.vectors import add_vector, any_signed, divide_vector, where_reached"]
    lines += [f"{path}.vectors import where_signed"]
    lines += [f"{path}.intrinsics import call_library, divide, elements_at, fma, moved"]
    lines += [f"{path}.vectors import vector_operations", ""]
    lines += [f"REAL = types.{dtype.name}", f'V = vector_operations("{dtype.name}", {lanes})']
    lines += ["load, store, multiply, subtract = V.load, V.store, V.multiply, V.subtract"]
    lines += ["negative, fma_vector, gather = V.negative, V.fma, V.gather"]
    lines += ["INT32, INT64 = types.int32, types.int64", f"LANES, BITS = {lanes}, {BLOCK_BITS}"]
    lines += [f"BEYOND, POINTER, OPERANDS = {BEYOND}, types.CPointer(REAL), types.CPointer(INT64)"]
    return [*lines, "", ""]


def _operand(name: str) -> str:
    value = f"operands[{OPERANDS.index(name)}]"
    if name in _NUMBERS:
        return value
    return f"elements_at({value}, {_INTEGERS.get(name, 'REAL')})"
