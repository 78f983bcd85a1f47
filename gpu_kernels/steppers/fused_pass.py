"""Fused: a pass of several steps: a fused kernel after the ghosts that last for all of them, and
beside it the frame along the other faces (`frame.cu`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tetris_sim.gpu_kernels.common.layout import Box3
from tetris_sim.gpu_kernels.faces.boxes import has_frame, without_frame
from tetris_sim.gpu_kernels.faces.extents import Extent
from tetris_sim.gpu_kernels.faces.frame import Frame, Tiles
from tetris_sim.gpu_kernels.faces.ghosts import Ghosts
from tetris_sim.gpu_kernels.fused.kernel import CompiledKernel, FusedKernel, Launch
from tetris_sim.gpu_kernels.steppers.passes import State
from tetris_sim.model.deep_ghosts import lasting_sides
from tetris_sim.model.homogeneous import stepwise
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

# Tiles of a line that read ghosts are made beside the others if these ghosts are sums, which for
# 128 steps take a twentieth as long as 5000 tiles, and if the others are so many times as many as
# the GPU holds. Images are there at once: another stream costs a launch of 100 us eight of them.
_ROUNDS = 4


@dataclass(frozen=True)
class Launches:
    """What a pass launches for an extent.

    Attributes:
        inner: of the fused kernel, beside whatever else there is.
        ends: of the fused kernel, after the ghosts; empty if `inner` waits for these.
        frame: beside both.
        corners: after both.
    """

    inner: Launch
    ends: tuple[Launch, ...]
    frame: Tiles
    corners: Tiles


class Fused:
    """Several steps: a fused kernel, the ghosts that it reads, and the frame that it leaves."""

    def __init__(self, kernel: FusedKernel, *, by_course: bool = True) -> None:
        """Faces that have courses are advanced step by step if it is not made by these."""
        self.depth = self.ghosts = kernel.depth
        self.by_course, self._kernel = by_course, kernel
        self._launches: dict[tuple[Box3, int | None], tuple[Slab, Launches]] = {}

    @property
    def by_rules(self) -> bool:
        """Where what it launches follows rules."""
        frames = any(it.frame.count or it.corners.count for _, it in self._launches.values())
        return frames or self._kernel.beside is not None

    def fits(self, problem: Problem, slab: Slab) -> bool:
        """Whether the slab has points that no face concerns, and frame tiles fit into shared
        memory.
        """
        problem = self._as_advanced(problem)
        box = Extent(0).of(problem, slab)
        long_enough = all(
            n >= self.depth * r for n, r in zip(slab.shape, problem.stencil.radii, strict=True)
        )
        return (
            long_enough
            and without_frame(problem, slab, box, self.depth, self._kernel.line) is not None
            and has_frame(problem, self.depth)
        )

    def prepare(self, state: State) -> None:
        """Compile both, and find out what they write."""
        self._state, self._problem = state, self._as_advanced(state.problem)
        self._inner = CompiledKernel(self._kernel, state.device)
        self._frame = Frame(self._problem, state.slab, state.device, self.depth)
        lasting = lasting_sides(self._problem, state.slab)
        self._ghosts = Ghosts(self._problem, state.slab, state.device, lasting, self.depth)
        if self.by_course:
            state.follow_courses(self.depth)
        # The frame of a line is a few blocks of threads that take long, others are many.
        line = self._problem.grid.ndim == 1
        self._beside = state.device.quick_stream if line else state.device.side_stream
        # what is told of the place of a slab
        self._moves = state.coming is not None or self._kernel.anchored
        self._launches_of(Extent(0))

    def _as_advanced(self, problem: Problem) -> Problem:
        return problem if self.by_course or problem.conduction is None else stepwise(problem)

    def launch(self, extent: Extent) -> None:
        """The frame, and ghosts with the points that read them if these are few, on streams of
        their own beside the fused kernel: each writes points that the other does not. Then what the
        fused kernel made wrong, where faces contradict each other.
        """
        state = self._state
        launches = self._launches_of(extent)
        main, device = state.device.stream, state.device
        others = [self._beside] if launches.frame.count else []
        others += [device.quick_stream] if launches.ends else []

        for other in others:
            other.wait_event(main.record())
        if launches.frame.count:
            with self._beside:
                self._launch_frame(launches.frame)
        if launches.ends:
            with device.quick_stream:
                self._fill(extent)
                for each in launches.ends:
                    self._launch_inner(each)
        else:
            self._fill(extent)
        self._launch_inner(launches.inner)
        self._launch_frame(launches.corners)
        for other in others:
            main.wait_event(other.record())

    def _fill(self, extent: Extent) -> None:
        state = self._state
        courses = ()
        if self.by_course and state.courses is not None:
            courses = state.courses.argument(state.launch)
        fields = [now for now, _ in state.fields()]
        self._ghosts.fill(fields, state.memory, extent.read(self.depth), courses)

    def _launch_inner(self, launch: Launch) -> None:
        state = self._state
        row = () if self._kernel.beside is None else (np.int32(state.row),)
        for now, then in state.parts():
            self._inner.launch(now, then, state.memory, launch, row)

    def _launch_frame(self, tiles: Tiles) -> None:
        state = self._state
        for now, then in state.parts() if tiles.count else ():
            self._frame.launch(now, then, state.memory, tiles, state.numbers())

    def _launches_of(self, extent: Extent) -> Launches:
        """What is launched for an extent."""
        state = self._state
        outer = extent.of(self._problem, state.slab)
        # By box, which without a halo is one for any number of steps: working it out takes
        # milliseconds.
        key = outer, extent.open_axis
        slab, found = self._launches.get(key, (None, None))
        if found is None or (self._moves and slab != state.slab):
            axis, frame = extent.open_axis, self._frame
            where = self._problem, state.slab, outer, self.depth, self._kernel.line
            inner = without_frame(*where, open_axis=axis)
            assert inner is not None  # `fits` said so for the smallest box
            self._ghosts.prepare(extent.read(self.depth))

            if found is None:
                tiles = frame.tiles(outer, inner), frame.corners(inner, open_axis=axis)
            else:
                tiles = found.frame, found.corners
            most, ends = self._divided(inner)
            cuts = tuple(self._inner.cut(box, state) for box in ends)
            found = Launches(self._inner.cut(most, state), cuts, *tiles)
            self._launches[key] = state.slab, found
        return found

    def _divided(self, box: Box3) -> tuple[Box3, tuple[Box3, ...]]:
        """(What a launch writes that reads no ghosts, the ends of a long line that do)."""
        kernel, (low, high) = self._kernel, box[2]
        tile, reach = kernel.tile[2], self.depth * self._problem.stencil.radii[-1]
        n_tiles = (high - low - reach) // tile
        if (
            self._problem.grid.ndim > 1
            or not self._ghosts.deep
            or kernel.beside is not None
            or tile < reach
            or n_tiles < _ROUNDS * self._inner.slots
        ):
            return box, ()

        first, last = low + tile, low + n_tiles * tile
        parts = [(box[0], box[1], span) for span in ((first, last), (low, first), (last, high))]
        return parts[0], tuple(parts[1:])
