"""GpuStepper: one slab's state in GPU memory. Between outputs nothing leaves the GPU but halos.

Work is launched asynchronously, and short launches are recorded as CUDA graphs and replayed.
"""

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
from tetris_sim.gpu_kernels.steppers import planes
from tetris_sim.gpu_kernels.steppers.passes import DeviceState, Pass
from tetris_sim.gpu_kernels.steppers.planes import PART_POINTS, GpuPlanes, Transfer, take_planes
from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.method import Box, EdgePlanes, Fetch
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Ranges, Slab, batches, slices

# In smaller slabs a launch takes the GPU hardly longer than Python, so launches are recorded.
_GRAPH_POINTS = 1 << 25
_UNDER_WAY = 1  # blocks of steps in flight behind the latest one
_RECORDS = 32  # graphs of blocks and parts of blocks, at most
_COPIES = 2  # per edge: the neighbour may still read the previous one


# Key of a recorded block: steps, axis, parts, and the index of the array that holds the state.
Parts = tuple[int, int, tuple[Part, ...], int]


@dataclass(frozen=True)
class Arrival:
    """Halo planes on their way into the slab.

    Attributes:
        held: what must stay referenced until they have arrived.
        taken: the event of their arrival.
    """

    held: Any
    taken: Any


@dataclass(frozen=True)
class GpuEvent:
    """A CUDA event; see `Event` of model/method.py.

    Attributes:
        device: the GPU.
        event: the CUDA event.
    """

    device: GpuDevice
    event: Any

    def wait(self) -> None:
        """Return when the event has occurred."""
        self.event.synchronize()

    def since(self, earlier: GpuEvent) -> float:
        """Time between two events of the GPU [s]."""
        return float(self.device.cupy.cuda.get_elapsed_time(earlier.event, self.event)) / 1e3


class GpuStepper:
    """Two arrays that alternate, and passes that advance them; see the Protocol `Stepper` for the
    meaning of the calls.
    """

    def __init__(self, problem: Problem, slab: Slab, device: GpuDevice, passes: list[Pass]) -> None:
        """Allocate the arrays, compile the passes, and record them where it pays.

        Args:
            problem: the problem to advance.
            slab: the part of it that is advanced.
            device: the GPU.
            passes: ways to advance, the longest first and a single step last.
        """
        self.slab = slab
        self._problem, self._device, self._passes = problem, device, passes
        self._arriving: deque[Arrival] = deque()
        self._ends: deque[GpuEvent] = deque()  # of blocks in flight
        self._begun: tuple[int, int] | None = None  # steps and axis of `advance_inner`
        self._met: set[Parts] = set()
        self._records: dict[Parts, Any] = {}
        self._aside: GpuDevice | None = None  # for fetching snapshots
        self._leaving: dict[tuple[int, Side], list[Any]] = {}  # copies of edges, used alternately
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

            # No graphs for large slabs, where a launch takes the GPU longer than Python, nor with a
            # halo, which shrinks from pass to pass. One graph per pass and per array that holds the
            # state.
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
        """Write the owned points of the initial field."""
        self._state.step = step
        numbers = planes.random_numbers(initial, self._state)
        if numbers is not None:
            planes.fill(numbers, self._state)
            return

        def put(ranges: Ranges, here: Any) -> None:
            self._layout.view(self._state.now, ranges)[...] = here

        self._transfer(self._device, self.slab.local()).bring(
            lambda it: initial(self.slab.part(it)), put
        )

    def advance_inner(self, steps: int, axis: int) -> None:
        """Launch the part of a block that no halo along `axis` reaches; see
        `boundary/extents.py`.
        """
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

            # The inside is already enqueued; what is missing are the halo-dependent regions.
            assert begun[0] == steps
            self._advance_parts(steps, begun[1], rims(self.slab, begun[1]))
            self._state.step += steps
            # `_advance_part` restores the turn, so an odd number of passes is accounted for here.
            if len(self._shorter_first(steps)) % 2:
                self._state.swap()

    def _advance_whole(self, steps: int) -> None:
        # Launch a whole block, from graphs where possible.
        beside = any(any(widths) for widths in self.slab.halo)
        if beside and self._problem.equations is None and self._problem.conduction is None:
            self._replay_whole(steps)
            return
        # The longest usable pass first; `later` steps are left after each.
        later = steps
        while later > 0:
            way = self._state.next_way(self._passes, later)
            made = self._replay(way, later)
            later -= made
            if made == 0:
                later -= way.depth
                self._state.advance(way, Extent(later))

    def _replay_whole(self, steps: int) -> None:
        """Launch a block with halos, which shrink from pass to pass alike in every block of the
        same length.
        """

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
        """Launch parts of a block from a record: their launches are many, and those of
        halo-dependent regions are short.
        """

        def launch() -> None:
            for part in parts:
                self._advance_part(steps, axis, part)

        self._launch_recorded((steps, axis, parts, self._state.turn), launch)

    def _launch_recorded(self, key: Parts, launch: Callable[[], None]) -> None:
        """Launch the work behind a key, from a graph if it was launched before."""
        if key in self._records:
            self._records[key].launch(self._device.stream)
            return

        # The first run works out and uploads what launches need, which cannot be captured.
        if key not in self._met:
            self._met.add(key)
            launch()
            return
        # The oldest record makes room.
        if len(self._records) == _RECORDS:
            del self._records[next(iter(self._records))]
        self._records[key] = self._recorded(launch)
        self._records[key].launch(self._device.stream)

    def _advance_part(self, steps: int, axis: int, part: Part) -> None:
        """Launch a part of a block. Afterwards step and arrays are as before, since the other parts
        begin there too.
        """
        step, turn, made = self._state.step, self._state.turn, 0
        for way in self._shorter_first(steps):
            made += way.depth
            self._state.advance(way, Extent(steps - made, Late(axis, part, made)))
        self._state.step, self._state.turn = step, turn

    def _shorter_first(self, steps: int) -> list[Pass]:
        """The passes of a block in parts, shorter ones first; see `boundary/extents.py` for the
        reason.
        """
        passes: list[Pass] = []
        for way in self._passes:
            times, steps = divmod(steps, way.depth)
            passes = [way] * times + passes
        return passes

    def edge(self, axis: int, side: Side) -> GpuPlanes:
        """The owned planes that the neighbour on `side` needs, as a copy on the GPU.

        It may be read until the state has advanced twice more; all readers must have synchronized
        in between.
        """
        ranges = self.slab.edge_ranges(axis, SIDES.index(side))
        with self._device.use():
            if axis > 0:
                return GpuPlanes(self._device, self._layout.view(self._state.now, ranges).copy())
            # Along the first axis planes are contiguous: two lasting copies alternate, without
            # allocation.

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
        """Copy planes into the halo beyond `side`; returns before they are there."""
        ranges = self.slab.halo_ranges(axis, SIDES.index(side))
        with self._device.use():
            held: Any = planes
            if axis > 0 or not self._take_as_they_are(ranges, planes):
                values, held = take_planes(self._device, planes)
                self._layout.view(self._state.now, ranges)[...] = values

            # Sources stay referenced until their copies are done.
            while self._arriving and self._arriving[0].taken.done:
                self._arriving.popleft()
            self._arriving.append(Arrival(held, self._device.stream.record()))

    def _take_as_they_are(self, ranges: Ranges, planes: EdgePlanes) -> bool:
        """Copy planes of another slab including their margins; returns False if they have a
        different form here.
        """
        halo, form = self._layout.planes(self._state.now, ranges)
        if not isinstance(planes, GpuPlanes) or planes.form != form:
            return False
        self._device.stream.wait_event(planes.ready)
        self._copy(halo, planes.device, planes.memory)
        return True

    def _copy(self, here: Any, other: GpuDevice, there: Any) -> None:
        """Copy planes field by field, since only a field's planes are contiguous."""
        for field in range(self._layout.n_fields):
            self._device.copy_into(here[field], other, there[field])

    def interior(self, box: Box | None = None) -> Field:
        """A copy of the owned points, or of those inside `box` (global indices)."""
        return self._fetch(self._device, self._state.now, self.slab.local(box))

    def kept(self) -> Fetch | None:
        """Take a snapshot of the owned points on the GPU; the returned function fetches it on a
        stream of its own. None if memory does not suffice.
        """
        if not self._device.has_room(self._state.now.nbytes):
            return None
        aside = self._aside = self._aside or self._device.aside()
        with self._device.use():
            copies = [self._state.now.copy()]
            aside.stream.wait_event(self._device.stream.record())
        # `pop` drops the snapshot once it has been fetched.
        return lambda: self._fetch(aside, copies.pop(), self.slab.local())

    def _fetch(self, device: GpuDevice, array: Any, wanted: Ranges) -> Field:
        """Copy owned points of an array in the state's layout to the host."""
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
        """The box of a few points around the first non-finite value; None if all values are
        finite.
        """
        point = planes.first_nonfinite(self._state)
        return None if point is None else self.slab.around(point)

    def wait(self) -> None:
        """Synchronize with the GPU."""
        self._device.stream.synchronize()
        self._arriving.clear()
        self._ends.clear()

    def mark(self) -> GpuEvent:
        """The event at which the GPU has done everything enqueued so far."""
        with self._device.use():
            # Waiting blocks instead of spinning: CPU workers beside the GPU need the core.
            event = self._device.cupy.cuda.Event(block=True)
            return GpuEvent(self._device, self._device.stream.record(event))

    def settle(self) -> None:
        """Synchronize with all but the last block, so that Python never runs far ahead."""
        self._ends.append(self.mark())
        while len(self._ends) > _UNDER_WAY:
            self._ends.popleft().wait()

    def close(self) -> None:
        """Synchronize and free the memory; after a failure of the GPU there may be nothing to wait
        for.
        """
        self._graphs.clear()
        self._records.clear()
        self._leaving.clear()
        self._state.close()
        self._device.release()

    def _replay(self, way: Pass, steps: int) -> int:
        """Launch as many graphs of a pass as fit into `steps` steps; returns the number of steps
        made.
        """
        state, steps_of_record, made = self._state, way.depth * PASSES, 0
        while self._graphs and made + steps_of_record <= steps and self._may_replay(way):
            # Recorded launches read rows from 0 on, so the window must begin at this step.
            if state.coming is not None and way.by_rules:
                state.coming.begin_at(state.step)
            self._graphs[way.depth, way.by_course, state.turn].launch(self._device.stream)
            made += steps_of_record
            state.step += steps_of_record
        return made

    def _may_replay(self, way: Pass) -> bool:
        """Whether a whole graph may be launched now: it records one pass and cannot fall back to
        another one in between.
        """
        adding = next((it for it in self._passes if it.by_sum), None)
        if adding is not None and not self._state.may_add(adding.depth, PASSES):
            return False
        courses = self._state.courses
        if courses is None or way is self._passes[-1]:
            return True
        return way.by_course and courses.are_right(self._state.step, PASSES)

    def _record(self, way: Pass) -> Any:
        """A graph of an even number of passes, which begins and ends with the array that holds the
        state now.
        """

        def launch() -> None:
            for made in range(PASSES):
                self._state.row, self._state.launch = made * way.depth, made
                way.launch(Extent(0))
                self._state.swap()

        return self._recorded(launch)

    def _recorded(self, launch: Callable[[], None]) -> Any:
        """Capture launches as a CUDA graph without running them."""
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
