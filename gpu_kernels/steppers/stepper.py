"""GpuStepper: one slab's state in GPU memory; between two looks at it nothing leaves the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tetris_sim.boundary import SIDES, Side
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import pitch_slab
from tetris_sim.gpu_kernels.common.rule_numbers import PASSES
from tetris_sim.gpu_kernels.steppers.passes import Pass, State
from tetris_sim.gpu_kernels.steppers.planes import GpuPlanes, take_planes
from tetris_sim.gpu_kernels.steppers.transfer import PART_POINTS, Transfer
from tetris_sim.method import Box, EdgePlanes
from tetris_sim.problem import Field, InitialField, Problem
from tetris_sim.slab import Ranges, Slab, batches, slices

_BATCH_POINTS = 1 << 24  # points that are looked at together
# smaller slabs take hardly longer for a launch than Python does: their launches are recorded
_GRAPH_POINTS = 1 << 25
_COPIES = 2  # of an edge: the neighbour may still read the one before


class GpuStepper:
    """Two arrays that take turns, and passes that advance them; see the Protocol `Stepper` for what
    the calls mean.
    """

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice, passes: list[Pass]) -> None:
        """Take memory.

        Args:
            problem: what to advance.
            slab: which part of it.
            device: the GPU.
            passes: ways to advance, the one that makes the most steps first and last one that makes
                a single step.
        """
        self.slab = slab
        self._problem, self._device, self._passes = problem, device, passes
        self._arriving: list[Any] = []  # planes whose copies may be under way
        self._leaving: dict[tuple[int, Side], list[Any]] = {}  # copies of edges that take turns
        depth = max(way.ghosts for way in passes)
        self._layout = pitch_slab(problem, slab, depth)

        with device.use() as cupy:
            arrays = [
                cupy.zeros(self._layout.n_bytes // self._layout.dtype.itemsize, self._layout.dtype)
                for _ in "ab"
            ]
            self._state = State(problem, slab, self._layout, device, arrays, depth)
            for way in passes:
                way.prepare(self._state)

            # None for large slabs, where a launch takes the GPU longer than Python, nor with a
            # halo, which shrinks from pass to pass.
            self._graphs: dict[tuple[int, int], Any] = {}
            if self._layout.field_pitch <= _GRAPH_POINTS and not any(
                any(widths) for widths in slab.halo
            ):
                self._graphs = {
                    (way.depth, turn): self._record(way)
                    for way in passes
                    for turn in self._state.turns()
                }

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take the owned points."""
        self._state.step = step

        def put(ranges: Ranges, here: Any) -> None:
            self._layout.view(self._state.now, ranges)[...] = here

        self._transfer(self.slab.local()).bring(lambda it: initial(self.slab.part(it)), put)

    def advance(self, steps: int) -> None:
        """Launch everything that advances by `steps`; returns before it is done."""
        self.slab.refuse_short_halo(steps, self._problem.stencil.radii)
        with self._device.use():
            later = steps
            for way in self._passes:
                later -= self._replay(way, later)
                while later >= way.depth:
                    later -= way.depth
                    self._state.advance(way, later)

    def edge(self, axis: int, side: Side) -> GpuPlanes:
        """The owned planes that the neighbour on `side` needs, a copy that stays on the GPU.

        It may be read until the state has advanced twice more, and all who read it have waited in
        between.
        """
        ranges = self.slab.edge_ranges(axis, SIDES.index(side))
        with self._device.use():
            if axis > 0:
                return GpuPlanes(self._device, self._layout.view(self._state.now, ranges).copy())
            planes, form = self._layout.planes(self._state.now, ranges)
            copies = self._leaving.setdefault((axis, side), [])
            copy = (
                copies.pop(0)
                if len(copies) == _COPIES
                else self._device.cupy.zeros(planes.shape, planes.dtype)
            )
            copies.append(copy)
            self._copy(copy, self._device, planes)
            return GpuPlanes(self._device, copy, form)

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Take the planes beyond `side`; returns before they are there."""
        ranges = self.slab.halo_ranges(axis, SIDES.index(side))
        with self._device.use():
            held: Any = planes
            if axis > 0 or not self._take_as_they_are(ranges, planes):
                values, held = take_planes(self._device, planes)
                self._layout.view(self._state.now, ranges)[...] = values
            self._arriving.append(held)

    def _take_as_they_are(self, ranges: Ranges, planes: EdgePlanes) -> bool:
        """Copy planes of another slab with all that is beside them; False if they have another form
        here.
        """
        halo, form = self._layout.planes(self._state.now, ranges)
        if not isinstance(planes, GpuPlanes) or planes.form != form:
            return False
        self._device.stream.wait_event(planes.ready)
        self._copy(halo, planes.device, planes.memory)
        return True

    def _copy(self, here: Any, other: GpuDevice, there: Any) -> None:
        """Field by field, since a field's planes are contiguous."""
        for field in range(self._layout.n_fields):
            self._device.copy_into(here[field], other, there[field])

    def interior(self, box: Box | None = None) -> Field:
        """A copy of the owned points, or of those inside `box` (global indices)."""
        wanted = self.slab.local(box)
        result = np.empty(
            (self._layout.n_fields, *(high - low for low, high in wanted)), dtype=self._layout.dtype
        )

        def take(ranges: Ranges) -> Any:
            return self._device.cupy.ascontiguousarray(self._layout.view(self._state.now, ranges))

        def keep(ranges: Ranges, values: Field) -> None:
            result[slices(ranges, wanted)] = values

        self._transfer(wanted).fetch(take, keep)
        return result

    def find_nonfinite(self) -> Box | None:
        """The box of a few points around the first value that is not finite."""
        with self._device.use() as cupy:
            for ranges in self._batches(self.slab.local()):
                finite = cupy.isfinite(self._layout.view(self._state.now, ranges)).all(axis=0)
                if not bool(finite.all()):
                    where = np.unravel_index(int(finite.argmin()), finite.shape)
                    point = tuple(low + int(i) for (low, _), i in zip(ranges, where, strict=True))
                    return self.slab.around(point)
        return None

    def wait(self) -> None:
        """Return when the GPU is done."""
        self._device.stream.synchronize()
        self._arriving.clear()

    def close(self) -> None:
        """Wait and give the memory back; after a failure of the GPU there may be nothing to wait
        for.
        """
        self._graphs.clear()
        self._leaving.clear()
        self._state.close()
        self._device.release()

    def _replay(self, way: Pass, steps: int) -> int:
        """Launch records of many passes, as many as fit into so many steps; the steps that this
        makes.
        """
        records = steps // (way.depth * PASSES) if self._graphs else 0
        for record in range(records):
            if self._state.coming is not None:
                self._state.coming.begin_at(self._state.step + record * way.depth * PASSES)
            self._graphs[way.depth, self._state.turn].launch(self._device.stream)
        made = records * way.depth * PASSES
        self._state.step += made
        return made

    def _record(self, way: Pass) -> Any:
        """A graph of an even number of passes, which begins and ends with the array that is the
        state now.
        """
        stream = self._device.stream
        stream.begin_capture()
        try:
            for made in range(PASSES):
                self._state.row = made * way.depth
                way.launch(0)
                self._state.swap()
        finally:
            graph = stream.end_capture()
        return graph

    def _transfer(self, ranges: Ranges) -> Transfer:
        layout = self._layout
        parts = batches(ranges, PART_POINTS // layout.n_fields)
        return Transfer(self._device, layout.n_fields, layout.dtype, parts)

    def _batches(self, ranges: Ranges) -> Iterator[Ranges]:
        return batches(ranges, _BATCH_POINTS // self._layout.n_fields)
