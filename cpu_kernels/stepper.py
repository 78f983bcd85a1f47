"""CpuStepper: one slab's state in host memory, advanced by a compiled time loop that all threads of a team call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.boundary import SIDES, Reflection, Side
from tetris_sim.cpu_kernels import columns
from tetris_sim.cpu_kernels.barrier import new_barrier
from tetris_sim.cpu_kernels.layout import PaddedField, pad
from tetris_sim.cpu_kernels.threads import ThreadTeam
from tetris_sim.method import Box
from tetris_sim.problem import Field, InitialField, Problem
from tetris_sim.slab import Slab

_LOAD_POINTS = 1 << 20  # points asked for at a time, so that no second copy of the slab comes into being
_CHECK_POINTS = 1 << 16  # points searched for NaN at a time
_HALF_PAGE = 2048  # bytes
_BAD_BOX = 8  # edge of the box in which a non-finite value is reported, in points


class CpuStepper:
    """Two padded arrays that take turns; see the Protocol `Stepper` for what the calls mean."""

    def __init__(self, problem: Problem, slab: Slab, team: ThreadTeam, advance: Callable[..., None]) -> None:
        self.slab = slab
        self._layout = pad(problem, slab)
        self._team = team
        self._advance = advance
        self._current, self._next = self._layout.allocate(), self._layout.allocate(_HALF_PAGE)
        self._geometry = kernel_geometry(problem, slab, self._layout)
        self._weights = np.array(problem.stencil.weights, dtype=problem.dtype)
        self._barrier = new_barrier()
        self._reach = tuple(problem.stencil.radii)

    def load(self, initial: InitialField) -> None:
        """Take the owned points; each thread writes the planes it will compute, so that their pages lie near it."""
        self._team.wait()
        arrays = [self._view_owned(self._current), self._view_owned(self._next)]
        start, stop = self.slab.start, self.slab.stop
        planes = max(1, _LOAD_POINTS // max(1, self.slab.n_points // self.slab.shape[0]))

        def fill(thread: int) -> None:
            part = self._team.split(self.slab.shape[0], thread)
            for low in range(part.start, part.stop, planes):
                high = min(low + planes, part.stop)
                box = Slab((start[0] + low, *start[1:]), (start[0] + high, *stop[1:]), ((0, 0),) * len(start))
                values = initial(box)
                for array in arrays:
                    array[:, low:high] = values

        self._team.run(fill)

    def advance(self, steps: int) -> None:
        """Advance by `steps`; returns at once."""
        for axis, halo in enumerate(self.slab.halo):
            if any(0 < width < steps * self._reach[axis] for width in halo):
                msg = f"a halo of {halo} planes does not last for {steps} steps of radius {self._reach[axis]}"
                raise ValueError(msg)
        self._team.wait()
        layout, team = self._layout, self._team
        arguments = (self._current, self._next, layout.n_fields, layout.field_pitch, *self._geometry)
        rest = (self._weights, steps, self._barrier)
        team.start(lambda thread: self._advance(thread, team.size, *arguments, *rest))
        if steps % 2:
            self._current, self._next = self._next, self._current

    def edge(self, axis: int, side: Side) -> Field:
        """The owned planes that the neighbour on `side` needs, a contiguous copy."""
        self._team.wait()
        low, high = self._layout.owned(axis)
        width = self.slab.halo[axis][SIDES.index(side)]
        span = (low, low + width) if side == "low" else (high - width, high)
        return np.ascontiguousarray(self._view_exchanged(axis, span))

    def set_halo(self, axis: int, side: Side, planes: Field) -> None:
        """Take the planes beyond `side`."""
        self._team.wait()
        low, high = self._layout.owned(axis)
        width = self.slab.halo[axis][SIDES.index(side)]
        span = (low - width, low) if side == "low" else (high, high + width)
        self._view_exchanged(axis, span)[...] = planes

    def interior(self, box: Box | None = None) -> Field:
        """A copy of the owned points, or of those inside `box` (global indices)."""
        self._team.wait()
        whole = tuple(zip(self.slab.start, self.slab.stop, strict=True))
        inside = tuple(
            (max(low, start) - start, min(high, stop) - start)
            for (low, high), (start, stop) in zip(box or whole, whole, strict=True)
        )
        source = self._view_owned(self._current)[(slice(None), *(slice(low, high) for low, high in inside))]
        copy = np.empty(source.shape, dtype=source.dtype)

        def fill(thread: int) -> None:
            part = self._team.split(source.shape[1], thread)
            copy[:, part.start : part.stop] = source[:, part.start : part.stop]

        self._team.run(fill)
        return copy

    def find_nonfinite(self) -> Box | None:
        """The box of a few points around the first value that is not finite."""
        self._team.wait()
        owned = self._view_owned(self._current)
        planes = max(1, _CHECK_POINTS // max(1, owned[0, 0].size))
        found: list[int] = []
        lock = threading.Lock()

        def search(thread: int) -> None:
            part = self._team.split(owned.shape[1], thread)
            for low in range(part.start, part.stop, planes):
                chunk = owned[:, low : min(low + planes, part.stop)]
                if not np.isfinite(chunk).all():
                    bad = ~np.isfinite(chunk).all(axis=(0, *range(2, chunk.ndim)))
                    with lock:
                        found.append(low + int(np.argmax(bad)))
                    return

        self._team.run(search)
        if not found:
            return None
        plane = min(found)
        where = np.argwhere(~np.isfinite(owned[:, plane]))[0][1:]
        return tuple(
            (start + int(i) // _BAD_BOX * _BAD_BOX, min(start + (int(i) // _BAD_BOX + 1) * _BAD_BOX, stop))
            for i, start, stop in zip((plane, *where), self.slab.start, self.slab.stop, strict=True)
        )

    def wait(self) -> None:
        """Return when the threads are done."""
        self._team.wait()

    def close(self) -> None:
        """Wait for the threads and give the memory back."""
        self._team.wait()
        self._current = self._next = np.empty(0, dtype=self._layout.dtype)

    def _view_owned(self, flat: npt.NDArray[Any]) -> Field:
        return self._layout.view(flat, tuple(self._layout.owned(axis) for axis in range(len(self.slab.start))))

    def _view_exchanged(self, axis: int, span: tuple[int, int]) -> Field:
        """Planes of `axis`: owned points along later axes, owned points and halo along earlier ones."""
        ranges = []
        for other in range(len(self.slab.start)):
            low, high = self._layout.owned(other)
            halo = self.slab.halo[other] if other < axis else (0, 0)
            ranges.append(span if other == axis else (low - halo[0], high + halo[1]))
        return self._layout.view(self._current, tuple(ranges))


def kernel_geometry(
    problem: Problem, slab: Slab, layout: PaddedField
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[Any]]:
    """The arrays `axes`, `links` and `faces` of `sweep.py` for one slab."""
    most = 2 * max(1, problem.stencil.radius)
    axes = np.zeros((3, columns.N_COLUMNS), dtype=np.int64)
    links = np.zeros((3, most, 2), dtype=np.int64)
    faces = np.zeros((3, most, 2), dtype=problem.dtype)
    axes[:, columns.FIRST], axes[:, columns.COUNT], axes[:, columns.PITCH] = layout.first, layout.count, layout.pitch
    for axis, padded in enumerate(layout.axis_of):
        radius = problem.stencil.radii[axis]
        found: list[tuple[tuple[int, int], Reflection]] = []
        for number, side in enumerate(SIDES):
            if slab.halo[axis][number]:
                axes[padded, columns.SHRINK + number] = radius
            else:
                axes[padded, columns.GHOSTS + number] = radius
                found += _links(problem, axis, side, layout.owned(axis))
        axes[padded, columns.LINKS] = len(found)
        for k, (link, reflection) in enumerate(found):
            links[padded, k], faces[padded, k] = link, reflection
    return axes, links, faces


def _links(problem: Problem, axis: int, side: Side, owned: tuple[int, int]) -> list[tuple[tuple[int, int], Reflection]]:
    """((padded index of the ghost, of its source), (a, b)) for every ghost plane beyond one side."""
    radius = problem.stencil.radii[axis]
    first, last = owned[0], owned[1] - 1
    ghosts = [first - 1 - j if side == "low" else last + 1 + j for j in range(radius)]
    if problem.boundary.periodic(axis):
        sources = [last - j if side == "low" else first + j for j in range(radius)]
        pairs: tuple[Reflection, ...] = ((-0.0, 1.0),) * radius
    else:
        sources = [first + j if side == "low" else last - j for j in range(radius)]
        pairs = problem.boundary.reflections(axis, side, spacing=problem.grid.spacing[axis], width=radius)
    return list(zip(zip(ghosts, sources, strict=True), pairs, strict=True))
