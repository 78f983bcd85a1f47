"""Passes: what advances a state on the GPU by one launch or a few, from one array into the other.

`Sweep` makes one step and fills ghosts (`plain.cu`). `Fused` makes several: a fused kernel for the points that no face
concerns and, beside it, the frame along the faces (`frame.cu`).
"""

from __future__ import annotations

from typing import Any, Protocol

from tetris_sim.gpu_kernels import blocks
from tetris_sim.gpu_kernels.device import GpuDevice
from tetris_sim.gpu_kernels.faces import faces_argument, most_links, without_images
from tetris_sim.gpu_kernels.frame import Frame, Tiles, to_device
from tetris_sim.gpu_kernels.fused import FusedKernel
from tetris_sim.gpu_kernels.layout import FAR, Box3, PitchedField, box_argument, by_value, links_of, memory_argument
from tetris_sim.gpu_kernels.taps import term_defines, term_weights
from tetris_sim.problem import Problem
from tetris_sim.slab import Slab

_SWEEP_BLOCK = (64, 4, 1)  # threads along x, y, z
_SWEEP_BLOCK_1D = (256, 1, 1)
_MOST_BLOCKS = 65535  # along y and z; threads of plain.cu go on where a grid has more


class Pass(Protocol):
    """One way to advance."""

    depth: int
    needs_ghosts: bool
    leaves_ghosts: bool

    def prepare(self, state: State) -> None:
        """Compile, and keep what the launches need."""

    def launch(self, later: int) -> None:
        """Advance by `depth` steps; `later` further ones will follow before the halo is renewed."""


class State:
    """The two arrays of a slab. `now` holds the state, `then` takes the next one."""

    def __init__(
        self, problem: Problem, slab: Slab, layout: PitchedField, device: GpuDevice, arrays: list[Any]
    ) -> None:
        self.problem, self.slab, self.layout, self.device = problem, slab, layout, device
        self._arrays = arrays
        self.turn = 0
        self.ghosts_valid = False
        self.memory = memory_argument(*layout.pitches, layout.within)
        self.links = links_of(problem, slab)
        self.weights = by_value(term_weights(problem))
        self._fill: Any = None

    @property
    def now(self) -> Any:
        """The array with the state."""
        return self._arrays[self.turn]

    @property
    def then(self) -> Any:
        """The other one."""
        return self._arrays[1 - self.turn]

    def fields(self) -> list[tuple[Any, Any]]:
        """The first owned point of each field, in both arrays."""
        starts = [field * self.layout.field_pitch + self.layout.origin for field in range(self.layout.n_fields)]
        return [(self.now[start:], self.then[start:]) for start in starts]

    def swap(self) -> None:
        """Let the other array be the state."""
        self.turn = 1 - self.turn

    def advance(self, way: Pass, later: int) -> None:
        """One pass."""
        self.make_ready(way, later)
        way.launch(later)
        self.swap()
        self.ghosts_valid = way.leaves_ghosts

    def make_ready(self, way: Pass, later: int = 0) -> None:
        """Fill the ghosts if the pass reads them and nobody has."""
        if way.needs_ghosts and not self.ghosts_valid:
            self._fill_ghosts(later + way.depth)

    def close(self) -> None:
        """Forget the arrays."""
        self._arrays = []

    def _fill_ghosts(self, later: int) -> None:
        box = blocks.owned_with_halo(self.problem, self.slab, later)
        far = without_images(self.links, self.layout.count)
        function = self.device.function("plain.cu", "ghosts", plain_defines(self))
        faces = faces_on(self)
        for part in blocks.frame_of(box, _cut(far, box)):
            for now, _ in self.fields():
                function(_sweep_grid(part, _block(self)), _block(self), (now, self.memory, box_argument(part), faces))


class Sweep:
    """One step of every point, ghosts included."""

    depth = 1
    needs_ghosts = leaves_ghosts = True

    def prepare(self, state: State) -> None:
        """Compile."""
        self._state = state
        self._function = state.device.function("plain.cu", "sweep", plain_defines(state))
        self._far = box_argument(without_images(state.links, state.layout.count))
        self._faces = faces_on(state)

    def launch(self, later: int) -> None:
        """One launch per field."""
        state = self._state
        box = blocks.owned_with_halo(state.problem, state.slab, later)
        for now, then in state.fields():
            arguments = (now, then, state.memory, box_argument(box), state.weights, self._far, self._faces)
            self._function(_sweep_grid(box, _block(state)), _block(state), arguments)


class Fused:
    """Several steps: a fused kernel, and the frame that it leaves."""

    needs_ghosts = leaves_ghosts = False

    def __init__(self, kernel: FusedKernel) -> None:
        self.depth = kernel.depth
        self._kernel = kernel
        self._boxes: dict[int, tuple[Box3, Tiles]] = {}

    def fits(self, problem: Problem, slab: Slab) -> bool:
        """Whether the slab has points that no face concerns, and frame tiles fit into shared memory."""
        box = blocks.owned_with_halo(problem, slab, 0)
        long_enough = all(n >= self.depth * r for n, r in zip(slab.shape, problem.stencil.radii, strict=True))
        return (
            long_enough
            and blocks.without_frame(problem, slab, box, self.depth) is not None
            and blocks.has_frame(problem, self.depth)
        )

    def prepare(self, state: State) -> None:
        """Compile both, and find out what they write."""
        kernel = self._kernel
        self._state = state
        self._inner = state.device.function(kernel.source, kernel.entry, kernel.defines, kernel.shared_bytes)
        self._numbers = by_value(kernel.weights)
        self._frame = Frame(state.problem, state.slab, state.device, self.depth)
        self._cut(0)

    def launch(self, later: int) -> None:
        """The frame on a stream of its own beside the fused kernel: each writes points that the other does not."""
        state, kernel = self._state, self._kernel
        inner, tiles = self._cut(later)
        main, side = state.device.stream, state.device.side_stream
        if tiles.count:
            side.wait_event(main.record())
            with side:
                for now, then in state.fields():
                    self._frame.launch(now, then, state.memory, state.weights, tiles)
        for now, then in state.fields():
            arguments = (now, then, state.memory, box_argument(inner), self._numbers)
            self._inner(kernel.grid(inner), (kernel.threads, 1, 1), arguments, shared_mem=kernel.shared_bytes)
        if tiles.count:
            main.wait_event(side.record())

    def _cut(self, later: int) -> tuple[Box3, Tiles]:
        """The box of the fused kernel, and the tiles of the frame."""
        if later not in self._boxes:
            state = self._state
            outer = blocks.owned_with_halo(state.problem, state.slab, later)
            inner = blocks.without_frame(state.problem, state.slab, outer, self.depth)
            assert inner is not None  # `fits` said so for the smallest box
            self._boxes[later] = inner, self._frame.tiles(outer, inner)
        return self._boxes[later]


def plain_defines(state: State) -> dict[str, str | int]:
    """Parameters of plain.cu."""
    return {**term_defines(state.problem), "TS_LINKS": most_links(state.links)}


def faces_on(state: State) -> Any:
    """`struct Faces` on the GPU."""
    return to_device(state.device, faces_argument(state.links, state.layout.dtype))


def _block(state: State) -> tuple[int, int, int]:
    return _SWEEP_BLOCK if state.layout.count[1] > 1 else _SWEEP_BLOCK_1D


def _sweep_grid(box: Box3, block: tuple[int, int, int]) -> tuple[int, int, int]:
    z, y, x = (high - low for low, high in box)
    return -(-x // block[0]), min(-(-y // block[1]), _MOST_BLOCKS), min(z, _MOST_BLOCKS)


def _cut(box: Box3, outer: Box3) -> Box3:
    """A box cut to what lies in another one; where nothing does, an empty box at its low end."""
    spans = []
    for (low, high), (start, stop) in zip(box, outer, strict=True):
        first = start if low <= -FAR else min(max(low, start), stop)
        last = stop if high >= FAR else min(max(high, first), stop)
        spans.append((first, last))
    return spans[0], spans[1], spans[2]
