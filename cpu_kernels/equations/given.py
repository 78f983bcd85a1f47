"""Given: what a step by equations reads beside the state, as arrays of one slab.

Coefficients lie as the state does, with margins as wide as stages reach; coordinates are a line per
axis; parameters are tables, made for the steps of a block.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.layout import PaddedField, allocate_aligned, pad
from tetris_sim.cpu_kernels.equations.sides import COEFFICIENT, COORDINATE
from tetris_sim.cpu_kernels.equations.stages import Stream
from tetris_sim.model.conduction import padded
from tetris_sim.model.equations import Equations
from tetris_sim.model.grid import OUTER, Grid, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Ranges, Slab, batches

Array = npt.NDArray[Any]
Margins = Sequence[tuple[int, int]]  # points around a slab (low, high), per axis of the problem
_LAID_POINTS = 1 << 20  # points asked for at a time
_SLACK = 64  # elements at both ends, which vectors beyond the points may read
_MOST_NUMBERS = 1 << 20  # in the tables of one block


def coefficient_layout(problem: Problem, slab: Slab, margins: Margins) -> PaddedField | None:
    """How coefficients lie; None if there are none.

    Args:
        problem: by equations.
        slab: which part of it.
        margins: how far around it stages are computed.
    """
    equations = problem.equations
    assert equations is not None
    if not (names := tuple(equations.coefficients or {})):
        return None
    radii = [stage.radii(name) for stage in equations.stages for name in names]
    reach = np.max([it for it in radii if it] or [(0,) * problem.grid.ndim], axis=0)
    wide = [(low + int(r), high + int(r)) for (low, high), r in zip(margins, reach, strict=True)]
    layout = pad(problem, slab, wide)
    return PaddedField(**{**vars(layout), "n_fields": len(names)})


class Given:
    """Coefficients and coordinates of one slab, and the parameters of its blocks.

    Attributes:
        pitch: elements from plane to plane and from row to row of coefficients.
        longest: steps that one block may have, so that its tables stay small.
    """

    def __init__(
        self, problem: Problem, slab: Slab, first: tuple[int, int, int], margins: Margins
    ) -> None:
        """Lay everything out.

        Args:
            problem: by equations.
            slab: which part of it.
            first: padded index of the first owned point, as the stages count.
            margins: how far around the slab stages are computed.
        """
        equations = problem.equations
        assert equations is not None
        self._problem, self._equations = problem, equations
        self._size = problem.arithmetic.itemsize
        self._layout = coefficient_layout(problem, slab, margins)
        self._coefficients, self.pitch, self._apart = np.zeros(0, problem.arithmetic), (0, 0), 0
        if (layout := self._layout) is not None:
            self._coefficients, self.pitch = self._lay(slab, layout), layout.pitch[:2]
            moved = np.subtract(layout.first, first)
            self._apart = int(np.dot(moved, layout.pitch))  # from the state's indices to these

        self._lines: dict[int, tuple[Array, int]] = {}
        rings = [problem.boundary.periodic(axis) for axis in range(problem.grid.ndim)]
        around = on_three(slab.globally(_around(slab, margins)), (0, 0), OUTER)
        for axis, padded_axis in enumerate(OUTER[problem.grid.ndim]):
            of_span = functools.partial(_positions, problem.grid, axis)
            span, n = (around[padded_axis],), (problem.grid.shape[axis],)
            inside = padded(of_span, span, n, (rings[axis],)).astype(problem.arithmetic)
            line = np.pad(inside, _SLACK)
            self._lines[padded_axis] = line, first[padded_axis] - margins[axis][0] - _SLACK

        self._changes = any(it.changes for it in equations.parameters)
        # A halo lasts for one block, and those are short.
        endless = any(map(any, slab.halo)) or not self._changes
        most = _MOST_NUMBERS // max(1, len(equations.parameters))
        self.longest = sys.maxsize if endless else most

    def address(self, stream: Stream) -> int:
        """Where the element of padded index (0, 0, 0) of a stream that is no state would lie."""
        if stream.kind == COEFFICIENT:
            names = list(self._equations.coefficients or {})
            assert self._layout is not None
            element = names.index(stream.name) * self._layout.field_pitch + self._apart
            element += int(np.dot((stream.plane, stream.row), self.pitch))
            return int(self._coefficients.ctypes.data) + (_SLACK + element) * self._size
        line, begin = self._lines[stream.kind - COORDINATE]
        return int(line.ctypes.data) - begin * self._size

    def numbers(self, step: int, steps: int) -> Array:
        """The parameters of some steps, (steps, n) or (1, n) if none changes; n is 1 at least."""
        parameters, time = self._equations.parameters, self._problem.time
        rows = [it.rows(time, step, steps)[:, :1] for it in parameters] or [np.zeros((1, 1))]
        length = max(map(len, rows))
        columns = [np.broadcast_to(it, (length, 1)) for it in rows]
        return np.ascontiguousarray(np.concatenate(columns, axis=1), self._problem.arithmetic)

    def numbers_at(self, time: float, length: float) -> Array:
        """The parameters of a substep of some length that begins at some time [s], (1, n)."""
        assert self._equations.substeps is not None
        numbers = self._equations.substeps.numbers(time, length).reshape(1, -1)
        return np.ascontiguousarray(numbers, self._problem.arithmetic)

    def _lay(self, slab: Slab, layout: PaddedField) -> Array:
        n_bytes = layout.n_bytes + 2 * _SLACK * self._size
        whole = allocate_aligned(n_bytes, layout.dtype, 0)
        whole[:] = 0  # rows have ends that no point lies in
        flat = whole[_SLACK:-_SLACK]
        margins = [layout.margin[axis] for axis in layout.axis_of]
        for part in batches(_around(slab, margins), _LAID_POINTS):
            box = slab.globally(part)
            names = self._equations.coefficients or {}
            found = [self._problem.padded_coefficient(name, box) for name in names]
            layout.write(flat, part, np.stack(found))
        return whole


def ghost_widths(equations: Equations, name: str, ndim: int) -> tuple[int, int, int]:
    """Ghosts of a name per padded axis."""
    return on_three(equations.ghosts.get(name, (0,) * ndim), 0, OUTER)


def _around(slab: Slab, margins: Margins) -> Ranges:
    pairs = zip(slab.shape, margins, strict=True)
    return tuple((-low, n + high) for n, (low, high) in pairs)


def _positions(grid: Grid, axis: int, span: Ranges) -> Array:
    return grid.coordinates(axis, *span[0])
