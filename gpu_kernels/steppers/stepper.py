"""GpuStepper: one slab's state in GPU memory; between two looks at it nothing leaves the GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tetris_sim.gpu_kernels.boundary.extents import Extent, Late, Part, begins_inside, rims
from tetris_sim.gpu_kernels.common.body import PASSES
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import pitch_slab
from tetris_sim.gpu_kernels.steppers import transfer
from tetris_sim.gpu_kernels.steppers.passes import DeviceState, Pass
from tetris_sim.gpu_kernels.steppers.planes import GpuPlanes, take_planes
from tetris_sim.gpu_kernels.steppers.transfer import PART_POINTS, Transfer
from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.method import Box, EdgePlanes, Fetch
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Ranges, Slab, batches, slices

# smaller slabs take hardly longer for a launch than Python does: their launches are recorded
_GRAPH_POINTS = 1 << 25
_UNDER_WAY = 1  # blocks
_RECORDS = 32  # of parts of blocks
_COPIES = 2  # of an edge: the neighbour may still read the one before


# steps, axis and parts of a block, and the array that is the state
Parts = tuple[int, int, tuple[Part, ...], int]


@dataclass(frozen=True)
class Arrival:
    """Planes that come in.

    Attributes:
        held: what must not be forgotten until they are there.
        taken: the moment from which on they are.
    """

    held: Any
    taken: Any


@dataclass(frozen=True)
class GpuEvent:
    """See `Moment` of method.py.

    Attributes:
        device: the GPU.
        event: what happens then.
    """

    device: GpuDevice
    event: Any

    def wait(self) -> None:
        """Return when it has happened."""
        self.event.synchronize()

    def since(self, earlier: GpuEvent) -> float:
        """Time between the two [s]."""
        return float(self.device.cupy.cuda.get_elapsed_time(earlier.event, self.event)) / 1e3


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
        self._arriving: deque[Arrival] = deque()
        self._ends: deque[GpuEvent] = deque()  # of blocks that may be under way
        self._begun: tuple[int, int] | None = None  # steps and axis of `advance_inner`
        self._met: set[Parts] = set()
        self._records: dict[Parts, Any] = {}
        self._aside: GpuDevice | None = None  # for who fetches copies
        self._leaving: dict[tuple[int, Side], list[Any]] = {}  # copies of edges that take turns
        depth = max(way.ghosts for way in passes)
        self._layout = pitch_slab(problem, slab, depth)

        with device.use() as cupy:
            arrays = [
                cupy.zeros(self._layout.n_bytes // self._layout.dtype.itemsize, self._layout.dtype)
                for _ in "ab"
            ]
            self._state = DeviceState(problem, slab, self._layout, device, arrays, depth)
            for way in passes:
                way.prepare(self._state)

            # None for large slabs, where a launch takes the GPU longer than Python, nor with a
            # halo, which shrinks from pass to pass.
            self._graphs: dict[tuple[int, bool, int], Any] = {}
            if self._layout.field_pitch <= _GRAPH_POINTS and not any(
                any(widths) for widths in slab.halo
            ):
                self._graphs = {
                    (way.depth, way.by_course, turn): self._record(way)
                    for way in passes
                    for turn in self._state.turns()
                }

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take the owned points."""
        self._state.step = step
        numbers = transfer.random_numbers(initial, self._state)
        if numbers is not None:
            transfer.fill(numbers, self._state)
            return

        def put(ranges: Ranges, here: Any) -> None:
            self._layout.view(self._state.now, ranges)[...] = here

        self._transfer(self._device, self.slab.local()).bring(
            lambda it: initial(self.slab.part(it)), put
        )

    def advance_inner(self, steps: int, axis: int) -> None:
        """Launch what no halo along `axis` reaches; see `extents.py`."""
        self.slab.refuse_short_halo(steps, self._problem.stencil.radii)
        if not begins_inside(self._problem, self.slab, axis, steps):
            return
        with self._device.use():
            self._advance_parts(steps, axis, ("inside",))
        self._begun = steps, axis

    def advance(self, steps: int) -> None:
        """Launch everything that advances by `steps`; returns before it is done."""
        self.slab.refuse_short_halo(steps, self._problem.stencil.radii)
        begun, self._begun = self._begun, None
        with self._device.use():
            if begun is None:
                self._advance_whole(steps)
                return

            assert begun[0] == steps
            self._advance_parts(steps, begun[1], rims(self.slab, begun[1]))
            self._state.step += steps
            if len(self._shorter_first(steps)) % 2:
                self._state.swap()

    def _advance_whole(self, steps: int) -> None:
        beside = any(any(widths) for widths in self.slab.halo)
        if beside and self._problem.equations is None and self._problem.conduction is None:
            self._replay_whole(steps)
            return
        later = steps
        while later > 0:
            way = self._state.next_way(self._passes, later)
            made = self._replay(way, later)
            later -= made
            if made == 0:
                later -= way.depth
                self._state.advance(way, Extent(later))

    def _replay_whole(self, steps: int) -> None:
        """Launch a block with halos, which shrink from pass to pass as in any other block."""

        def launch() -> None:
            step, turn, later = self._state.step, self._state.turn, steps
            for way in longest_first:
                later -= way.depth
                self._state.advance(way, Extent(later))
            self._state.step, self._state.turn = step, turn

        longest_first = self._shorter_first(steps)[::-1]
        self._launch_recorded((steps, 0, (), self._state.turn), launch)
        self._state.step += steps
        if len(longest_first) % 2:
            self._state.swap()

    def _advance_parts(self, steps: int, axis: int, parts: tuple[Part, ...]) -> None:
        """Launch parts of a block; their launches are many, and those of rims are short."""

        def launch() -> None:
            for part in parts:
                self._advance_part(steps, axis, part)

        self._launch_recorded((steps, axis, parts, self._state.turn), launch)

    def _launch_recorded(self, key: Parts, launch: Callable[[], None]) -> None:
        """Launch what has a key, from a record if it was launched before."""
        if key in self._records:
            self._records[key].launch(self._device.stream)
            return

        # The first time works out what launches need, which cannot be recorded.
        if key not in self._met:
            self._met.add(key)
            launch()
            return
        if len(self._records) == _RECORDS:
            del self._records[next(iter(self._records))]
        self._records[key] = self._recorded(launch)
        self._records[key].launch(self._device.stream)

    def _advance_part(self, steps: int, axis: int, part: Part) -> None:
        """Launch a part of a block; the state is then as it was before, which others begin with."""
        step, turn, made = self._state.step, self._state.turn, 0
        for way in self._shorter_first(steps):
            made += way.depth
            self._state.advance(way, Extent(steps - made, Late(axis, part, made)))
        self._state.step, self._state.turn = step, turn

    def _shorter_first(self, steps: int) -> list[Pass]:
        """The passes of a block in parts."""
        passes: list[Pass] = []
        for way in self._passes:
            times, steps = divmod(steps, way.depth)
            passes = [way] * times + passes
        return passes

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

            while self._arriving and self._arriving[0].taken.done:
                self._arriving.popleft()
            self._arriving.append(Arrival(held, self._device.stream.record()))

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
        return self._fetch(self._device, self._state.now, self.slab.local(box))

    def kept(self) -> Fetch | None:
        """Keep a copy of the owned points on the GPU; what fetches it uses a stream of its own."""
        if not self._device.has_room(self._state.now.nbytes):
            return None
        aside = self._aside = self._aside or self._device.aside()
        with self._device.use():
            copies = [self._state.now.copy()]
            aside.stream.wait_event(self._device.stream.record())
        # The copy is forgotten when it has been fetched.
        return lambda: self._fetch(aside, copies.pop(), self.slab.local())

    def _fetch(self, device: GpuDevice, array: Any, wanted: Ranges) -> Field:
        """Owned points of an array that is laid out as the state is."""
        result = np.empty(
            (self._layout.n_fields, *(high - low for low, high in wanted)), dtype=self._layout.dtype
        )

        def take(ranges: Ranges) -> Any:
            return device.cupy.ascontiguousarray(self._layout.view(array, ranges))

        def keep(ranges: Ranges, values: Field) -> None:
            result[slices(ranges, wanted)] = values

        self._transfer(device, wanted).fetch(take, keep)
        return result

    def find_nonfinite(self) -> Box | None:
        """The box of a few points around the first value that is not finite."""
        point = transfer.first_nonfinite(self._state)
        return None if point is None else self.slab.around(point)

    def wait(self) -> None:
        """Return when the GPU is done."""
        self._device.stream.synchronize()
        self._arriving.clear()
        self._ends.clear()

    def mark(self) -> GpuEvent:
        """When the GPU has done what was launched so far."""
        with self._device.use():
            # Who waits for it sleeps: CPU threads beside the GPU need the core.
            event = self._device.cupy.cuda.Event(block=True)
            return GpuEvent(self._device, self._device.stream.record(event))

    def settle(self) -> None:
        """Return when the GPU is done with all but the last block."""
        self._ends.append(self.mark())
        while len(self._ends) > _UNDER_WAY:
            self._ends.popleft().wait()

    def close(self) -> None:
        """Wait and give the memory back; after a failure of the GPU there may be nothing to wait
        for.
        """
        self._graphs.clear()
        self._records.clear()
        self._leaving.clear()
        self._state.close()
        self._device.release()

    def _replay(self, way: Pass, steps: int) -> int:
        """Launch records of many passes, as many as fit into so many steps; the steps that this
        makes.
        """
        state, steps_of_record, made = self._state, way.depth * PASSES, 0
        while self._graphs and made + steps_of_record <= steps and self._may_replay(way):
            if state.coming is not None and way.by_rules:
                state.coming.begin_at(state.step)
            self._graphs[way.depth, way.by_course, state.turn].launch(self._device.stream)
            made += steps_of_record
            state.step += steps_of_record
        return made

    def _may_replay(self, way: Pass) -> bool:
        """Whether all of a record may be made now: what stands in for another pass is not
        recorded.
        """
        courses = self._state.courses
        if courses is None or way is self._passes[-1]:
            return True
        return way.by_course and courses.are_right(self._state.step, PASSES)

    def _record(self, way: Pass) -> Any:
        """A graph of an even number of passes, which begins and ends with the array that is the
        state now.
        """

        def launch() -> None:
            for made in range(PASSES):
                self._state.row, self._state.launch = made * way.depth, made
                way.launch(Extent(0))
                self._state.swap()

        return self._recorded(launch)

    def _recorded(self, launch: Callable[[], None]) -> Any:
        """What is launched, as a graph; nothing runs yet."""
        stream = self._device.stream
        stream.begin_capture()
        try:
            launch()
        finally:
            graph = stream.end_capture()
        return graph

    def _transfer(self, device: GpuDevice, ranges: Ranges) -> Transfer:
        layout = self._layout
        parts = batches(ranges, PART_POINTS // layout.n_fields)
        return Transfer(device, layout.n_fields, layout.dtype, parts)
