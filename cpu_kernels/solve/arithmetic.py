"""CpuArithmetic: the passes of a solver over arrays in memory, by a team of threads."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.threads import ThreadTeam

Values = npt.NDArray[Any]
Operator = tuple[Values, ...]  # k0, k1, k2, d, each of the shape of the level
_ALONE = 1 << 15  # points that one thread is done with before others have woken up


@functools.cache
def _sweeps() -> ModuleType:
    from tetris_sim.cpu_kernels.compiled.generate import copied_module

    return copied_module("solve/sweeps.py")


class CpuArithmetic:
    """What `solvers/` asks of a device; arrays are (n0, n1, n2), float64 or float32.

    Attributes:
        xp: the module of the arrays.
    """

    xp = np

    def __init__(self, team: ThreadTeam) -> None:
        self._team = team

    def relax(self, operator: Operator, f: Values, u: Values, weight: float, out: Values) -> None:
        """Out = u + weight (f - A u) / diagonal."""
        self._planes(
            "relax", out, _flat(operator), _line(f), _line(u), _real(weight, u), _line(out)
        )

    def begin(self, operator: Operator, f: Values, weight: float, out: Values) -> None:
        """`relax` of u = 0."""
        self._planes("begin", out, _flat(operator), _line(f), _real(weight, f), _line(out))

    def residual(self, operator: Operator, f: Values, u: Values, out: Values) -> None:
        """Out = f - A u."""
        self._planes("residual", out, _flat(operator), _line(f), _line(u), _line(out))

    def apply(self, operator: Operator, u: Values, out: Values) -> float:
        """Out = A u; the sum of u out."""
        sums = np.zeros(len(out))
        self._planes("apply", out, _flat(operator), _line(u), _line(out), sums)
        return math.fsum(sums)

    def restrict(self, axis: int, fine: Values, shares: tuple[Values, Values], out: Values) -> None:
        """Out = what points of every other plane across an axis weigh, with shares of those
        between.
        """
        n, (low, high) = fine.shape[axis], shares
        arrays = (_line(fine), _line(low), _line(high), _line(out))
        if axis == 2:
            lines = out.shape[0] * out.shape[1]
            self._share("restrict_line", out, lines, n, *arrays)
        else:
            rows = math.prod(out.shape[: axis + 1])
            self._share("restrict_rows", out, rows, n, out.size // rows, *arrays)

    def prolong(
        self, axis: int, coarse: Values, shares: tuple[Values, Values], out: Values
    ) -> None:
        """Out += coarse, and its shares between."""
        n, (low, high) = out.shape[axis], shares
        arrays = (_line(coarse), _line(low), _line(high), _line(out))
        if axis == 2:
            lines = out.shape[0] * out.shape[1]
            self._share("prolong_line", out, lines, n, *arrays)
        else:
            rows = math.prod(coarse.shape[: axis + 1])
            self._share("prolong_rows", out, rows, n, coarse.size // rows, *arrays)

    def descend(
        self, length: float, p: Values, q: Values, u: Values, r: Values, small: Values
    ) -> float:
        """U += length p, r -= length q, small = r; the sum of r^2."""
        sums = np.zeros(len(u))
        lines = [_line(it) for it in (p, q, u, r, small)]
        self._share("descend", small, len(u), u[0].size, length, *lines, sums)
        return math.fsum(sums)

    def project(self, z: Values, r: Values) -> float:
        """The sum of z r."""
        sums = np.zeros(len(z))
        self._share("project", z, len(z), z[0].size, _line(z), _line(r), sums)
        return math.fsum(sums)

    def turn(self, z: Values, share: float, p: Values) -> None:
        """P = z + share p."""
        self._share("turn", z, len(z), z[0].size, _line(z), share, _line(p))

    def _planes(self, name: str, like: Values, *arguments: Any) -> None:
        self._share(name, like, len(like), like.shape, *arguments)

    def _share(self, name: str, like: Values, parts: int, *arguments: Any) -> None:
        """Let threads call a pass for parts of the whole."""
        work: Callable[..., None] = getattr(_sweeps(), name)
        if like.size < _ALONE or self._team.size == 1:
            work(0, parts, *arguments)
            return

        def task(thread: int) -> None:
            mine = self._team.split(parts, thread)
            work(mine.start, mine.stop, *arguments)

        self._team.run(task)


def _line(values: Values) -> Values:
    return values.reshape(-1)


def _flat(operator: Operator) -> Operator:
    return tuple(it.reshape(-1) for it in operator)


def _real(number: float, like: Values) -> Any:
    return like.dtype.type(number)
