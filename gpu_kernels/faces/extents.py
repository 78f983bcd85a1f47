"""Extents: which points of a slab a launch writes, in the middle of a block whose halos shrink, or
while halos are on their way.

Idea    A block whose halos along an axis are late is made in two parts, as on the CPU
        (`cpu_kernels/common/stepper.py`): the inside loses the radius a step at either end that has a
        halo; the rims begin in the halos and gain as much on their inner sides. A plane that the
        inside has left after s steps lies in one of the two arrays at step s, and what a launch of
        d steps reads beyond it lies there as well, if later launches of the inside make no fewer
        steps than earlier ones. So of a block in two parts the shorter launches come first.
Test    tests/gpu/test_gpu_extents.py, tests/gpu/test_gpu_boxes.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tetris_sim.gpu_kernels.common.layout import Box3
from tetris_sim.gpu_kernels.faces.boxes import spans_and
from tetris_sim.model.deep_ghosts import Sides
from tetris_sim.model.grid import on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

Part = Literal["inside", "low", "high"]


@dataclass(frozen=True)
class Late:
    """A part of a block whose halos along an axis are late.

    Attributes:
        axis: of the problem.
        part: what needs none of these halos, or the rim at a side.
        made: steps of the block by which the inside has shrunk, and a rim grown.
    """

    axis: int
    part: Part
    made: int


@dataclass(frozen=True)
class Extent:
    """What a launch writes: points that must be right when it is done.

    Attributes:
        later: steps that will follow before the halos are renewed.
        late: the part of the block, if it is made in parts.
    """

    later: int
    late: Late | None = None

    def of(self, problem: Problem, slab: Slab) -> Box3:
        """The points, counted from the first that the slab owns."""
        radii = problem.stencil.radii
        spans = spans_and(slab, [self.later * radius for radius in radii])
        if self.late is not None:
            axis = self.late.axis
            n, (low, high), (start, stop) = slab.shape[axis], slab.halo[axis], spans[axis]
            width = self.late.made * radii[axis]
            spans[axis] = {
                "inside": (width if low else 0, n - width if high else n),
                "low": (start, width),
                "high": (n - width, stop),
            }[self.late.part]
        return on_three(spans, (0, 1))

    def read(self, steps: int) -> Extent:
        """What a launch of so many steps reads for it, ghosts aside."""
        late = self.late
        if late is not None:
            made = late.made - steps if late.part == "inside" else late.made + steps
            late = Late(late.axis, late.part, made)
        return Extent(self.later + steps, late)

    @property
    def open_axis(self) -> int | None:
        """The axis along which it touches no face, whatever the slab does: that of a rim."""
        return None if self.late is None or self.late.part == "inside" else self.late.axis

    def touched(self, sides: Sides) -> Sides:
        """Those of some sides of the slab that it touches."""
        return tuple(
            (False, False) if axis == self.open_axis else of_axis
            for axis, of_axis in enumerate(sides)
        )


def begins_inside(problem: Problem, slab: Slab, axis: int, steps: int) -> bool:
    """Whether a block of a slab can begin before the halos of an axis are there.

    Not along rows, which launches cut at whole lines of memory; not with equations, whose stages
    read what others leave beyond the points of a step; not in bodies, of which kernels would keep a
    copy of what each part is made of.
    """
    width = steps * problem.stencil.radii[axis]
    sides = sum(halo > 0 for halo in slab.halo[axis])
    alike = problem.equations is None and problem.conduction is None
    possible = alike and axis < problem.grid.ndim - 1 and sides * width > 0
    return possible and slab.shape[axis] >= (2 + sides) * width


def rims(slab: Slab, axis: int) -> tuple[Part, ...]:
    """The parts of a block beside its inside."""
    low, high = (width > 0 for width in slab.halo[axis])
    return (*(("low",) if low else ()), *(("high",) if high else ()))
