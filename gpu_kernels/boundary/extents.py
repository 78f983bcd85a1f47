"""Extents: which points of a slab a launch writes, in the middle of a block of steps whose halos
shrink or while halos are still being exchanged.

Idea    A block whose halos along an axis arrive late is made in two parts, as on the CPU
        (`cpu_kernels/common/stepper.py`): the inside loses the stencil's radius per step at each
        end that has a halo; the halo-dependent regions begin in the halos and gain as much on their
        inner sides. A plane that the inside has left after s steps lies in one of the two arrays at
        step s, and what a launch of d steps reads beyond it lies there as well, provided that later
        launches of the inside make no fewer steps than earlier ones. So in a block of two parts
        the shorter launches come first.
Test    tests/gpu/test_gpu_extents.py, tests/gpu/test_gpu_boxes.py
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.common.body import id_dtype
from tetris_sim.gpu_kernels.common.layout import FAR, LINE, Box3
from tetris_sim.model.deep_ghosts import Sides, contradictions, lasting_sides
from tetris_sim.model.grid import LAST, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

# Boxes that shrink with the halo, and the boundary strips along the faces.

# Shared memory for the levels of a strip tile: three blocks fit on a multiprocessor with 228 KB.
SHARED_BYTES = 72 << 10
_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)  # of a tile's edges
_LOADING = 3.0  # a point that is loaded costs as much as so many that are computed
_LANES = 8  # values of a row that memory gives at once, at least
Radii = tuple[int, int, int]


def three_radii(problem: Problem) -> Radii:
    """Radius of the stencil along each axis of three."""
    return on_three(problem.stencil.radii, 0)


def owned_and(slab: Slab, around: Sequence[int]) -> Box3:
    """The points of a slab, extended by `around` points per axis on sides with neighbours."""
    return on_three(spans_and(slab, around), (0, 1))


def spans_and(slab: Slab, around: Sequence[int]) -> list[tuple[int, int]]:
    """The spans of `owned_and`, per axis of the problem."""
    return [
        (-more if low else 0, n + (more if high else 0))
        for n, more, (low, high) in zip(slab.shape, around, slab.halo, strict=True)
    ]


def with_ghosts(problem: Problem, box: Box3, sides: Sides, depth: int) -> Box3:
    """A box and the ghosts that `depth` steps need beyond the given sides."""
    return grown_by(box, sides, [depth * radius for radius in problem.stencil.radii])


def grown_by(box: Box3, sides: Sides, widths: Sequence[int]) -> Box3:
    """A box extended by `widths` points per axis beyond the given sides."""
    grown = (
        (start - width * low, stop + width * high)
        for (start, stop), width, (low, high) in zip(
            box, on_three(widths, 0), on_three(sides, (False, False)), strict=True
        )
    )
    z, y, x = grown
    return z, y, x


def without_frame(
    problem: Problem,
    slab: Slab,
    box: Box3,
    depth: int,
    line: int = LINE,
    *,
    open_axis: int | None = None,
) -> Box3 | None:
    """The part of a box that a fused kernel can advance by `depth` steps; None if there is none.

    It keeps away from faces, except those whose ghosts last for all steps (`lasting_sides`); along
    `open_axis` the box touches no face. Along x it begins at a whole line of `line` bytes, whether
    there is a face or not.
    """
    spans = list(box)
    lasting = lasting_sides(problem, slab)
    for axis, (three, radius, halo, lasts) in enumerate(
        zip(LAST[problem.grid.ndim], problem.stencil.radii, slab.halo, lasting, strict=True)
    ):
        if axis == open_axis:
            continue
        start, stop = spans[three]
        spans[three] = (
            start if halo[0] or lasts[0] else start + depth * radius,
            stop if halo[1] or lasts[1] else stop - depth * radius,
        )

    # Aligned stores; the points before the line go to the boundary strip.
    points = line // problem.dtype.itemsize
    spans[2] = (-(-spans[2][0] // points) * points, spans[2][1])
    inner = spans[0], spans[1], spans[2]
    return inner if all(start < stop for start, stop in inner) else None


def frame_of(outer: Box3, inner: Box3) -> list[Box3]:
    """Disjoint boxes that make up the points of `outer` that `inner` lacks.

    >>> frame_of(((0, 1), (0, 9), (0, 8)), ((0, 1), (2, 7), (3, 8)))
    [((0, 1), (0, 2), (0, 8)), ((0, 1), (7, 9), (0, 8)), ((0, 1), (2, 7), (0, 3))]
    """
    boxes = []
    # Axis by axis: earlier axes already shrunk to `inner`, later ones still as wide as `outer`.
    for axis in range(3):
        for span in ((outer[axis][0], inner[axis][0]), (inner[axis][1], outer[axis][1])):
            if span[0] < span[1]:
                box = [*inner[:axis], span, *outer[axis + 1 :]]
                boxes.append((box[0], box[1], box[2]))
    return boxes


def corners_of(
    problem: Problem, slab: Slab, box: Box3, depth: int, *, open_axis: int | None = None
) -> list[Box3]:
    """Boxes of the points of `box` from which `depth` steps reach two faces that contradict each
    other where they meet. Faces along `open_axis`, which the box does not touch, do not count.
    Where three faces meet, the boxes overlap.
    """
    places = LAST[problem.grid.ndim]
    found = []
    for pair in contradictions(problem, slab):
        if any(axis == open_axis for axis, _ in pair):
            continue
        spans = list(box)
        for axis, side in pair:
            reach, (start, stop) = depth * problem.stencil.radii[axis], spans[places[axis]]
            ends = (start, min(stop, start + reach)), (max(start, stop - reach), stop)
            spans[places[axis]] = ends[side]
        if all(start < stop for start, stop in spans):
            found.append((spans[0], spans[1], spans[2]))
    return found


def has_frame(problem: Problem, depth: int, edge: int = 1) -> bool:
    """Whether a strip tile of `edge` points along each axis fits into shared memory together with
    all points that it depends on.
    """
    # Without a face nearby, a tile loads all points within `depth` steps on both sides.
    loaded = math.prod(edge + 2 * depth * radius for radius in problem.stencil.radii)
    return loaded * point_bytes(problem) <= SHARED_BYTES


def point_bytes(problem: Problem) -> int:
    """Shared memory of a strip tile per point [bytes]: two levels of the state; with equations, of
    all fields together and the work arrays of a step; with a body, the material id and, for the
    enthalpy method, two levels of potentials.
    """
    if (equations := problem.equations) is not None:
        return (2 * problem.n_fields + equations.n_work) * problem.dtype.itemsize
    n_bytes, conduction = 2 * problem.dtype.itemsize, problem.conduction
    if conduction is None:
        return n_bytes
    if conduction.enthalpy is not None:
        n_bytes += 2 * problem.arithmetic.itemsize
    return n_bytes + id_dtype(problem).itemsize


def tile_of_frame(
    problem: Problem, slab: Slab, box: Box3, depth: int
) -> tuple[tuple[int, int, int], int]:
    """The best tile for one box of a boundary strip: (points along each axis, points of a level in
    shared memory).

    Of all tiles that fit, it loads and computes the least per point that it writes.

    Raises:
        UnsupportedError: no tile fits into shared memory.
    """
    axes, of_point = _frame_axes(problem, slab, box), point_bytes(problem)
    # Exhaustive search over a few fixed lengths per axis: at most 18 to the power of three tiles.
    best: tuple[float, tuple[int, int, int], int] | None = None
    for z in axes[0].lengths:
        for y in axes[1].lengths:
            for x in axes[2].lengths:
                edges = (z, y, x)
                level = math.prod(
                    axis.stored(n, depth) for axis, n in zip(axes, edges, strict=True)
                )
                # Lengths grow, so longer tiles along x do not fit either.
                if level * of_point > SHARED_BYTES:
                    break
                cost = _cost(axes, edges, depth) / math.prod(edges)
                if best is None or cost < best[0]:
                    best = cost, edges, level

    if best is None:
        msg = f"no tile of a frame for {depth} steps fits into shared memory"
        raise UnsupportedError(msg)
    return best[1], best[2]


@dataclass(frozen=True)
class _FrameAxis:
    """One axis of a box of a boundary strip.

    Attributes:
        span: first point and one past the last.
        radius: points that a step reaches.
        low: first point inside the lower face, or far away.
        high: one past the last point inside the upper face, or far away.
    """

    span: tuple[int, int]
    radius: int
    low: int
    high: int

    @property
    def lengths(self) -> list[int]:
        """Candidate lengths of a tile: the whole box, or one of a few fixed lengths."""
        whole = self.span[1] - self.span[0]
        return [n for n in _LENGTHS if n < whole] + ([whole] if whole <= _LENGTHS[-1] else [])

    def needed(self, n: int, later: int) -> int:
        """Points that a tile of n points needs when `later` steps follow."""
        if n == self.span[1] - self.span[0]:
            reach = later * self.radius
            return min(self.span[1] + reach, self.high) - max(self.span[0] - reach, self.low)
        return min(n + 2 * later * self.radius, self.high - self.low)

    def stored(self, n: int, depth: int) -> int:
        """Points that the tile holds: those that it needs, and the ghosts beyond faces within one
        step.
        """
        if n == self.span[1] - self.span[0]:
            reach = depth * self.radius
            last = min(self.span[1] + reach, self.high + self.radius)
            return last - max(self.span[0] - reach, self.low - self.radius)
        return min(n + 2 * depth * self.radius, self.high - self.low + 2 * self.radius)


def _frame_axes(problem: Problem, slab: Slab, box: Box3) -> list[_FrameAxis]:
    # The three axes of a box; sides with a halo or a periodic neighbour have no face.
    # Axes that the problem lacks have one point and nothing around it.
    axes = [_FrameAxis(span, 0, 0, 1) for span in box]
    for axis, three in enumerate(LAST[problem.grid.ndim]):
        open_low, open_high = (
            problem.boundary.periodic(axis) or bool(width) for width in slab.halo[axis]
        )
        low, high = (-FAR if open_low else 0), (FAR if open_high else slab.shape[axis])
        axes[three] = _FrameAxis(box[three], problem.stencil.radii[axis], low, high)
    return axes


def _cost(axes: list[_FrameAxis], edges: tuple[int, int, int], depth: int) -> float:
    """Points that a tile loads and computes, with rows rounded up to whole lanes."""
    total = 0.0
    for later in range(depth + 1):
        z, y, x = (axis.needed(n, later) for axis, n in zip(axes, edges, strict=True))
        total += z * y * (-(-x // _LANES) * _LANES) * (_LOADING if later == depth else 1.0)
    return total


def tiles_of(box: Box3, tile: tuple[int, int, int]) -> Iterator[Box3]:
    """Cut a box into tiles."""
    cuts = [
        [(low, min(low + n, stop)) for low in range(start, stop, n)]
        for (start, stop), n in zip(box, tile, strict=True)
    ]
    for z in cuts[0]:
        for y in cuts[1]:
            for x in cuts[2]:
                yield z, y, x


Part = Literal["inside", "low", "high"]


@dataclass(frozen=True)
class Late:
    """A part of a block whose halos along an axis arrive late.

    Attributes:
        axis: of the problem.
        part: the inside, which needs none of these halos, or the halo-dependent region at a side.
        made: steps of the block by which the inside has shrunk, or a halo-dependent region
            grown.
    """

    axis: int
    part: Part
    made: int


@dataclass(frozen=True)
class Extent:
    """The points that a launch must leave with correct values.

    Attributes:
        later: steps that will follow before the halos are renewed.
        late: the part of the block, if the block is made in parts.
    """

    later: int
    late: Late | None = None

    def of(self, problem: Problem, slab: Slab) -> Box3:
        """The points, counted from the first that the slab owns."""
        radii = problem.stencil.radii
        spans = spans_and(slab, [self.later * radius for radius in radii])
        if self.late is not None:
            # Inside and halo-dependent regions meet at `width`: together they cover the box exactly
            # once.
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
        """The extent that a launch of `steps` steps reads to write this one, without ghosts."""
        late = self.late
        if late is not None:
            made = late.made - steps if late.part == "inside" else late.made + steps
            late = Late(late.axis, late.part, made)
        return Extent(self.later + steps, late)

    @property
    def open_axis(self) -> int | None:
        """The axis along which the extent touches no face, whatever the slab does: that of a
        halo-dependent region.
        """
        return None if self.late is None or self.late.part == "inside" else self.late.axis

    def touched(self, sides: Sides) -> Sides:
        """The given sides of the slab, without those that the extent does not touch."""
        return tuple(
            (False, False) if axis == self.open_axis else of_axis
            for axis, of_axis in enumerate(sides)
        )


def begins_inside(problem: Problem, slab: Slab, axis: int, steps: int) -> bool:
    """Whether a block of a slab can begin before the halos along an axis arrive.

    Excluded are rows, which launches cut at whole lines of memory; equations, whose stages read
    what other stages leave beyond the points of a step; and bodies, for which kernels would hold a
    copy of the material data of each part.
    """
    width = steps * problem.stencil.radii[axis]
    sides = sum(halo > 0 for halo in slab.halo[axis])
    alike = problem.equations is None and problem.conduction is None
    # The regions at the sides and an inside that is left after `steps` steps must fit into the
    # slab.
    possible = alike and axis < problem.grid.ndim - 1 and sides * width > 0
    return possible and slab.shape[axis] >= (2 + sides) * width


def rims(slab: Slab, axis: int) -> tuple[Part, ...]:
    """The halo-dependent regions of a block, besides its inside."""
    low, high = (width > 0 for width in slab.halo[axis])
    return (*(("low",) if low else ()), *(("high",) if high else ()))
