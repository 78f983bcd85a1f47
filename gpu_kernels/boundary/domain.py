"""Faces as kernel arguments: `struct Domain` of domain.cuh and `struct Tile` of ghosts.cu, as NumPy
arrays.

A tile says which ghosts a block of threads writes and where the points lie that these mirror. All
ghosts of a tile are beyond the same faces, so along each axis the mirror point is the coordinate or
its negative plus a constant, and finding it costs a thread nothing.

The second part, `BoundaryExpansions`, brings to the GPU what time-dependent faces add to ghosts.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.boundary.extents import frame_of
from tetris_sim.gpu_kernels.common.body import PASSES
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import Box3, ends_of, stored_numbers
from tetris_sim.model.boundary import SIDES, Reflection, Side
from tetris_sim.model.deep_ghosts import (
    BoundaryExpansion,
    has_course,
    make_course,
    nearly_mirrors,
    next_weight,
)
from tetris_sim.model.grid import LAST
from tetris_sim.model.lowering import FaceTimeFunction, face_course
from tetris_sim.model.problem import PAIR, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.step_control import Signal

THREADS = 256
FEW = 4  # ghosts of a thread at a time: what they read is under way together
_SECTOR = 32  # bytes: what memory writes at once; for a part of it, it must first be read


def domain_argument(problem: Problem, slab: Slab, depth: int = 1) -> npt.NDArray[np.void]:
    """`struct Domain` for the stencil, with ghosts as deep as `depth` steps reach."""
    widths = [depth * radius for radius in problem.stencil.radii]
    domain = _pack(problem, slab, widths, functools.partial(_reflections, problem))

    # Faces that only nearly mirror (decision 0046): u_(-g) = A_g + b u_(g+1) + (b^2 - 1) (...).
    # These replace the reflection of a single step that `_pack` has written.
    for axis, width in enumerate(widths):
        three = LAST[problem.grid.ndim][axis]
        for number in range(2):
            if depth > 1 and nearly_mirrors(problem, axis, number) and not slab.halo[axis][number]:
                # The map of one step; that of ghost g follows from it by recursion.
                (a, b), *_ = _reflections(problem, axis, SIDES[number], 1)
                added = (a * part for part in _parts_of_ghosts(b, width))
                dtype = problem.arithmetic
                domain["a"][0, three, number, :width] = stored_numbers(list(added), dtype)
                domain["b"][0, three, number, :width], domain["deep"][0, three, number] = (
                    stored_numbers([b, b * b - 1], dtype)
                )
    return domain


def _parts_of_ghosts(b: float, width: int) -> Iterator[float]:
    """Factors A_g / a for `width` ghosts, where a is what the face adds to the first ghost: A_g = a
    (1 + (1 + b) (1 + b + ... + b^(g-1))), see decision 0046. With these, a uniform field at the
    far-field value stays as it is.
    """
    # Horner's scheme for the geometric sum, one term more per ghost.
    powers = 0.0  # 1 + b + ..., as many terms as ghosts lie nearer to the face
    for _ in range(width):
        yield 1 + (1 + b) * powers
        powers = 1 + b * powers


def domain_of_name(problem: Problem, slab: Slab, name: str) -> npt.NDArray[np.void]:
    """`struct Domain` for one name of the equations, with the ghosts that they read. TS_REACH is
    the same for all names.
    """
    equations, spacing = problem.system, problem.grid.spacing
    # A name that is read at its point only has no ghosts, and perhaps no boundary.
    boundary = equations.boundaries.get(name, problem.boundary)
    widths = equations.ghosts.get(name, (0,) * problem.grid.ndim)

    def reflections(axis: int, side: Side, width: int) -> tuple[Reflection, ...]:
        return boundary.reflections(axis, side, spacing=spacing[axis], width=width)

    return _pack(problem, slab, widths, reflections, reach_of_names(problem))


def reach_of_names(problem: Problem) -> int:
    """The largest number of ghosts beyond a face that the equations read."""
    return max((width for widths in problem.system.ghosts.values() for width in widths), default=1)


def _pack(
    problem: Problem,
    slab: Slab,
    widths: Sequence[int],
    reflections: Callable[[int, Side, int], tuple[Reflection, ...]],
    reach: int = 1,
) -> npt.NDArray[np.void]:
    """Pack `struct Domain` with `widths` ghosts per axis, in arrays with room for `reach`."""
    dtype, reach = problem.arithmetic, max(reach, *widths)
    # NumPy aligns complex64 as a float, kernels align a pair as a double: four bytes of padding.
    filled = [("", np.int32)] if dtype == PAIR else []
    kind = np.dtype(
        [
            *[("low", np.int32, 3), ("high", np.int32, 3), ("period", np.int32, 3), *filled],
            *[("a", dtype, (3, 2, reach)), ("b", dtype, (3, 2, reach))],
            ("deep", dtype, (3, 2)),
        ],
        align=True,
    )

    domain = np.zeros(1, dtype=kind)
    domain["low"], domain["high"], domain["period"] = ends_of(problem, slab)

    # Sides with a halo and periodic sides have no reflection: their numbers stay zero.
    for axis, width in enumerate(widths):
        three = LAST[problem.grid.ndim][axis]
        for number, side in enumerate(SIDES):
            if problem.boundary.periodic(axis) or slab.halo[axis][number]:
                continue
            for ghost, both in enumerate(reflections(axis, side, width)):
                a, b = stored_numbers(both, dtype)
                domain["a"][0, three, number, ghost], domain["b"][0, three, number, ghost] = a, b
    return domain


def _reflections(problem: Problem, axis: int, side: Side, width: int) -> tuple[Reflection, ...]:
    """The reflections of a face, as `Boundary.reflections` gives them. Of a ruled face, the lasting
    reflection if it has one; of a time-dependent face, b without the changing part, which
    `BoundaryExpansions` supplies; otherwise zeros, since the body's arguments describe the face.
    """
    if problem.conduction is None:
        return problem.boundary.reflections(
            axis, side, spacing=problem.grid.spacing[axis], width=width
        )
    face = problem.ruled_face(axis, side)
    course = face_course(face)
    return (face.lasting or (0.0, 0.0 if course is None else course.b),) * width


class Mirrored(NamedTuple):
    """A section of one axis whose points all mirror in the same way.

    Attributes:
        span: first coordinate and one past the last.
        sign: 1 or -1, the factor of the coordinate in that of its mirror point.
        offset: what is added.
        side: side of the face that reflects the section, -1 if none does.
    """

    span: tuple[int, int]
    sign: int = 1
    offset: int = 0
    side: int = -1


def ghost_tiles(
    inside: Box3, outside: Box3, ends: npt.NDArray[np.int32], only: int, itemsize: int
) -> npt.NDArray[np.int32]:
    """`struct Tile` of ghosts.cu, (n, 16), for the points of `outside` that `inside` lacks.

    Ghosts at the outer end of a row complete a sector of memory, where there are points that they
    mirror: of 1024^3 points a launch for 3 steps then took 142 us along x instead of 323 (H200,
    float64, 2026-11-24).

    Args:
        inside: points that exist already.
        outside: the same box grown by its ghosts.
        ends: (low, high, period) per axis, from `ends_of`.
        only: axis (of three) along which points are mirrored; -1 for all.
        itemsize: bytes per number.
    """
    tiles: list[tuple[int, ...]] = []
    for box in frame_of(outside, inside):
        axes = [
            [Mirrored(span)] if only not in (-1, axis) else list(mirrored(span, ends[:, axis]))
            for axis, span in enumerate(box)
        ]
        axes[2] = [_completed(it, inside[2], ends[:, 2], _SECTOR // itemsize) for it in axes[2]]

        # A tile must lie beyond the same faces along all axes: one combination of sections each.
        for pieces in itertools.product(*axes):
            tiles += _cut(pieces)
    return np.array(tiles, np.int32).reshape(-1, 16)


def mirrored(span: tuple[int, int], ends: npt.NDArray[np.int32]) -> Iterator[Mirrored]:
    """Split a span of one axis, whose ends are (low, high, period), into sections that mirror in
    the same way.

    >>> [tuple(it) for it in mirrored((-2, 7), np.array([0, 5, 0]))]
    [((-2, 0), -1, -1, 0), ((0, 5), 1, 0, -1), ((5, 7), -1, 9, 1)]
    >>> [tuple(it) for it in mirrored((-3, 4), np.array([-99, 99, 2]))]
    [((-3, -2), 1, 4, -1), ((-2, 0), 1, 2, -1), ((0, 2), 1, 0, -1), ((2, 4), 1, -2, -1)]
    """
    start, stop = span
    low, high, period = map(int, ends)
    if period > 0:
        # One section for every image of the ring that the span covers.
        for turn in range(start // period, (stop - 1) // period + 1):
            begin = turn * period
            yield Mirrored((max(start, begin), min(stop, begin + period)), 1, -begin)
        return

    # Reflection halfway between points: low - 1 mirrors low, and high mirrors high - 1.
    pieces = (
        Mirrored((start, min(stop, low)), -1, 2 * low - 1, 0),
        Mirrored((max(start, low), min(stop, high))),
        Mirrored((max(start, high), stop), -1, 2 * high - 1, 1),
    )
    yield from (it for it in pieces if it.span[0] < it.span[1])


def _completed(
    piece: Mirrored, inside: tuple[int, int], ends: npt.NDArray[np.int32], unit: int
) -> Mirrored:
    """Extend a section of ghosts outward to whole sectors of memory, which the row's margin holds;
    unchanged if a mirror point would lie outside the domain.
    """
    start, stop = piece.span
    if stop <= inside[0]:
        more = piece._replace(span=(start // unit * unit, stop))
    elif start >= inside[1]:
        more = piece._replace(span=(start, -(-stop // unit) * unit))
    else:
        return piece
    low, high, period = map(int, ends)
    points = (0, period) if period > 0 else (low, high)
    images = [piece.sign * at + piece.offset for at in (more.span[0], more.span[1] - 1)]
    return more if all(points[0] <= at < points[1] for at in images) else piece


def _cut(pieces: tuple[Mirrored, ...]) -> Iterator[tuple[int, ...]]:
    """Cut a box of ghosts into tiles of one plane each, small enough for a block of threads."""
    (z, y, x) = (it.span for it in pieces)
    # ghosts.cu requires a power of two.
    lanes = min(THREADS, 1 << (x[1] - x[0] - 1).bit_length())
    mirrors = (*(it.sign for it in pieces), *(it.offset for it in pieces))
    told = (*mirrors, *(it.side for it in pieces), lanes)
    rows = FEW * THREADS // lanes
    for i, j, k in itertools.product(range(*z), range(*y, rows), range(*x, lanes)):
        yield (i, j, k, i + 1, min(j + rows, y[1]), min(k + lanes, x[1]), *told)


# Boundary expansions: what time-dependent faces add to ghosts that last for a block of steps. The
# host tabulates the terms of coming blocks in GPU memory; `ghosts.cu` sums them.

_UPLOADS = 2  # that may be under way
_IN_RANGE = 2.0**-40  # of the largest number: terms are at most as large as what faces give
Place = tuple[int, int]  # axis of the problem, side


def course_terms(problem: Problem, depth: int) -> int:
    """The number of terms per face that a launch reads; 0 if no face depends on time."""
    return next((made.fit.shape[0] for _, made in _courses(problem, depth).values()), 0)


def are_in_range(problem: Problem, depth: int) -> bool:
    """Whether the problem's arithmetic type can represent the terms for `depth` steps."""
    most = _IN_RANGE * float(np.finfo(problem.arithmetic).max)
    return all(np.abs(made.parts).max() < most for _, made in _courses(problem, depth).values())


class BoundaryExpansions:
    """A moving window of launches, whose terms lie in GPU memory; a launch receives the number of
    its row.

    Attributes:
        depth: steps of a launch.
    """

    def __init__(self, problem: Problem, device: GpuDevice, depth: int) -> None:
        """Allocate the terms for `PASSES` launches, as many as a graph records."""
        self.depth = depth
        self._problem, self._device = problem, device
        self._courses = _courses(problem, depth)
        n_terms = course_terms(problem, depth)
        self._first, self._right = -sys.maxsize, np.zeros(PASSES, np.bool_)
        self._decided = Signal.decided
        self._under_way: deque[tuple[Any, Any]] = deque()

        # What a unit of each term adds to each ghost; it does not depend on time.
        parts = np.zeros((3, 2, depth, n_terms), problem.arithmetic)
        for (axis, side), (_, made) in self._courses.items():
            parts[LAST[problem.grid.ndim][axis], side] = made.parts
        with device.use() as cupy:
            self._parts = cupy.asarray(parts)
            self._there = cupy.zeros((PASSES, 3, 2, n_terms), problem.arithmetic)

    def are_right(self, step: int, launches: int = 1) -> bool:
        """Whether the expansions of `launches` launches from `step` on are accurate enough to fill
        lasting ghosts.
        """
        row = self.row(step, launches)
        return bool(self._right[row : row + launches].all())

    def row(self, step: int, launches: int = 1) -> int:
        """The window's row for the launch at `step`; moves the window if the `launches` from there
        on do not lie in it.
        """
        row, beside = divmod(step - self._first, self.depth)
        # Launches start at multiples of the depth only as long as no other pass comes between.
        # What was tabulated before a decision is not valid after it.
        decided = self._decided != Signal.decided
        if beside or decided or not 0 <= row <= PASSES - launches:
            self._begin_at(step)
            return 0
        return row

    def argument(self, row: int) -> tuple[Any, ...]:
        """The trailing arguments of `ghosts.cu` for a launch."""
        return self._parts, self._there, np.int32(row)

    def _begin_at(self, step: int) -> None:
        """Move the window to `step` for everything that is enqueued from now on."""
        problem, steps = self._problem, PASSES * self.depth
        # A launch is usable only if the fit of every time-dependent face is.
        terms = np.zeros(self._there.shape, problem.arithmetic)
        self._right = np.ones(PASSES, np.bool_)
        for (axis, side), (given, made) in self._courses.items():
            rows = given.a.rows(problem.time, step, steps)[:, 0]
            a = np.broadcast_to(rows, (steps,)).reshape(PASSES, self.depth)
            found = made.terms(a)
            self._right &= made.right(a, found)
            terms[:, LAST[problem.grid.ndim][axis], side] = found
        self._first, self._decided = step, Signal.decided

        # Pinned memory must outlive its copy, so each buffer is kept until its event; a limit on
        # those in flight bounds the memory.
        while len(self._under_way) >= _UPLOADS:
            _, done = self._under_way.popleft()
            if done is not None:
                done.synchronize()
        here, held = self._device.bring(terms)
        with self._device.use():
            self._there[...] = here
        self._under_way.append((held, self._device.stream.record()))


def _courses(
    problem: Problem, depth: int
) -> dict[Place, tuple[FaceTimeFunction, BoundaryExpansion]]:
    """The time function and the boundary expansion of each face that depends on time."""
    found: dict[Place, tuple[FaceTimeFunction, BoundaryExpansion]] = {}
    for axis, side in itertools.product(range(problem.grid.ndim), (0, 1)):
        if problem.boundary.periodic(axis) or not has_course(problem, axis, side):
            continue
        given = face_course(problem.boundary.faces[axis][side])
        assert given is not None
        found[axis, side] = given, make_course(next_weight(problem, axis), given.b, depth)
    return found
