"""Slab: the part of the grid that one worker owns in the domain decomposition, and its halo; and
phases, the parts of a run in which the same cells are there.
"""

from __future__ import annotations

import base64
import bisect
import functools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import Grid

# Per axis (start, stop), counted from the first owned point; halo indices are negative or beyond
# the last owned point.
Ranges = tuple[tuple[int, int], ...]
_NONFINITE_EDGE = 8  # points of the box in which a value that is not finite is reported


@dataclass(frozen=True, eq=False)
class PointLabels:
    """A number for every point that stands for a name, such as that of its region.

    Attributes:
        names: by number.
        read: the numbers of the points of a box of global indices.
    """

    names: tuple[str, ...]
    read: Callable[[Ranges], npt.NDArray[np.unsignedinteger[Any]]]


@dataclass(frozen=True)
class RandomNumbers:
    """Random numbers for the points of a grid, reproducible on any device and decomposition.

    The grid is cut into blocks, each with its own stream of NumPy's Philox generator; points of a
    block take its numbers in their order, as (1 - unit) low + unit high of units in [0, 1) with 53
    bits.

    Attributes:
        seed: of all streams.
        low: least value.
        high: upper bound of the values.
        shape: points of the grid, array order.
        block: points of a block along each axis; the last ones are smaller.
    """

    seed: int
    low: float
    high: float
    shape: tuple[int, ...]
    block: tuple[int, ...]

    def key(self, place: tuple[int, ...]) -> npt.NDArray[np.uint64]:
        """Return the two key words of the stream of a block, given its number along each axis."""
        # Blocks are numbered in C order; the number seeds an independent child sequence.
        counts = [-(-n // width) for n, width in zip(self.shape, self.block, strict=True)]
        number = int(np.ravel_multi_index(place, counts))
        seeds = np.random.SeedSequence(self.seed, spawn_key=(number,))
        return seeds.generate_state(2, np.uint64).astype(np.uint64, copy=False)

    def stream(self, place: tuple[int, ...]) -> np.random.Philox:
        """Return the generator of a block. NumPy's compatibility promise fixes its raw output (but
        not that of `uniform`).
        """
        return np.random.Philox(key=self.key(place))


@dataclass(frozen=True)
class Slab:
    """A box of global indices with the halo that its owner keeps.

    Attributes:
        start: first index owned, per axis.
        stop: one past the last index owned, per axis.
        halo: planes kept beyond the owned ones per axis, (low side, high side). Zero where the side
            is a face of the domain, or a periodic axis that is not cut: there the stepper fills the
            ghost ring itself.

    Raises:
        ValueError: lengths disagree, or an axis has no owned plane.
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    halo: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not len(self.start) == len(self.stop) == len(self.halo):
            msg = f"start {self.start}, stop {self.stop} and halo {self.halo} must be equally long"
            raise ValueError(msg)
        if any(stop <= start for start, stop in zip(self.start, self.stop, strict=True)):
            msg = f"a slab owns at least one plane per axis, got {self.start} to {self.stop}"
            raise ValueError(msg)

    @classmethod
    def whole(cls, grid: Grid) -> Slab:
        """Return the slab that is the whole grid and needs no neighbour."""
        return cls(start=(0,) * grid.ndim, stop=grid.shape, halo=((0, 0),) * grid.ndim)

    @classmethod
    def box(cls, spans: Ranges) -> Slab:
        """Return the slab that owns a box of global indices and needs no neighbour."""
        start, stop = zip(*spans, strict=True)
        return cls(start, stop, halo=((0, 0),) * len(spans))

    @property
    def spans(self) -> Ranges:
        """The owned box, (start, stop) per axis in global indices."""
        return tuple(zip(self.start, self.stop, strict=True))

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """Points owned per axis."""
        return tuple(stop - start for start, stop in zip(self.start, self.stop, strict=True))

    @property
    def n_points(self) -> int:
        """Points owned."""
        return math.prod(self.shape)

    def globally(self, ranges: Ranges) -> Ranges:
        """Convert ranges counted from the first owned point to global indices."""
        return tuple(
            (start + low, start + high)
            for start, (low, high) in zip(self.start, ranges, strict=True)
        )

    def local(self, box: Ranges | None = None) -> Ranges:
        """Return the owned points inside a box of global indices, all of them without a box.

        >>> Slab((10, 0), (20, 5), ((0, 0), (0, 0))).local(((0, 12), (3, 4)))
        ((0, 2), (3, 4))
        """
        return tuple(
            (max(low, start) - start, min(high, stop) - start)
            for (low, high), (start, stop) in zip(box or self.spans, self.spans, strict=True)
        )

    def part(self, ranges: Ranges) -> Slab:
        """Return the owned points in a box as a slab without neighbours, for `Problem.initial`."""
        return Slab.box(self.globally(ranges))

    def refuse_short_halo(self, steps: int, radii: tuple[int, ...]) -> None:
        """Raise if some halo is too narrow for so many steps of a stencil.

        Raises:
            ValueError: a halo is narrower than steps * radius.
        """
        for halo, radius in zip(self.halo, radii, strict=True):
            # Width 0 is a side without a neighbour, whose ghosts are filled at every step.
            if any(0 < width < steps * radius for width in halo):
                msg = f"a halo of {halo} planes does not last for {steps} steps of radius {radius}"
                raise ValueError(msg)

    def around(self, point: tuple[int, ...]) -> Ranges:
        """Return the small box in which a non-finite value is reported.

        Args:
            point: position of the value, counted from the first owned point.

        Returns:
            The box in global indices, anchored to the first owned point.
        """
        # Boxes of a fixed raster: the report does not depend on which point of a box was found
        # first.
        edge = _NONFINITE_EDGE
        return tuple(
            (start + i // edge * edge, min(start + (i // edge + 1) * edge, stop))
            for i, start, stop in zip(point, self.start, self.stop, strict=True)
        )

    def edge_ranges(self, axis: int, side: int) -> Ranges:
        """Return the owned planes of `axis` that the neighbour on a side (0 low, 1 high) needs; see
        `Stepper.edge`.
        """
        n, width = self.shape[axis], self.halo[axis][side]
        return self._planes(axis, (0, width) if side == 0 else (n - width, n))

    def halo_ranges(self, axis: int, side: int) -> Ranges:
        """Return the planes beyond a side that the neighbour there owns."""
        n, width = self.shape[axis], self.halo[axis][side]
        return self._planes(axis, (-width, 0) if side == 0 else (n, n + width))

    def _planes(self, axis: int, span: tuple[int, int]) -> Ranges:
        """Return planes of `axis`: owned points along later axes, owned points and halo along
        earlier ones.
        """
        # The exchange goes axis by axis. Including the halo of earlier axes carries corners along,
        # without messages between diagonal neighbours.
        ranges = []
        for other, n in enumerate(self.shape):
            halo = self.halo[other] if other < axis else (0, 0)
            ranges.append(span if other == axis else (-halo[0], n + halo[1]))
        return tuple(ranges)


def batches(ranges: Ranges, points: int) -> Iterator[Ranges]:
    """Cut a box along its first axis into boxes of about `points` points, one after the other.

    >>> list(batches(((0, 5), (2, 4)), 4))
    [((0, 2), (2, 4)), ((2, 4), (2, 4)), ((4, 5), (2, 4))]
    """
    (first, last), *rest = ranges
    # At least one plane per batch, however large a plane is.
    planes = max(1, points // max(1, math.prod(high - low for low, high in rest)))
    for low in range(first, last, planes):
        yield ((low, min(low + planes, last)), *rest)


def slices(ranges: Ranges, whole: Ranges) -> tuple[slice, ...]:
    """Return the index of a box's points in an array (n_fields, ...) that holds a larger box.

    >>> slices(((3, 5),), ((2, 9),))
    (slice(None, None, None), slice(1, 3, None))
    """
    inside = (
        slice(low - start, high - start)
        for (low, high), (start, _) in zip(ranges, whole, strict=True)
    )
    return (slice(None), *inside)


def with_span(box: Ranges, axis: int, span: tuple[int, int]) -> Ranges:
    """Return a box with another span of indices along an axis."""
    return (*box[:axis], span, *box[axis + 1 :])


# Parts of a run in which cells come and go.

Mask = npt.NDArray[np.bool_]
Absent = Callable[[int, Ranges], Mask]  # which cells of a box a region of some number has lost
_SAME_STEP = 1e-6  # of a step


def all_gone(region: int, box: Ranges) -> Mask:
    """All cells of a region, as they may be gone at the end of a run."""
    return np.ones([high - low for low, high in box], np.bool_)


def every_other_gone(region: int, box: Ranges) -> Mask:
    """Every other cell of a region: what may ever touch does so in this or in a whole one."""
    places = np.ix_(*(np.arange(*span) for span in box))
    return np.asarray(sum(places) % 2 == 0)


# Between them is all that may be, as far as it matters what touches what.
WAYS_TO_GO: tuple[Absent | None, ...] = (None, all_gone, every_other_gone)


class GoneCells:
    """Cells that have gone by themselves, since they were too hot, by the times when they went.

    Args:
        shape: of the grid.
        above: by number of the region, the temperature above which its cells go [degC].
        often: by the same, the interval at which they are looked at [s]; 0 for each step.

    Attributes:
        times: at which something went, ascending [s].
    """

    def __init__(
        self, shape: tuple[int, ...], above: Mapping[int, float], often: Mapping[int, float]
    ) -> None:
        self._shape, self._above, self.often = shape, above, often
        self.times: list[float] = []
        self._cells: list[dict[int, npt.NDArray[np.int64]]] = []  # flat numbers, by region
        self._known: tuple[int, Absent] | None = None

    def look(self, problem: Any, state: npt.NDArray[Any], time: float) -> bool:
        """Let go what is too hot; returns whether anything is."""
        whole = tuple((0, n) for n in self._shape)
        seen = state if problem.view is None else problem.view.look(whole, state)
        shown = problem.body.medium.regions.read(whole)
        found = dict[int, npt.NDArray[np.int64]]()
        for region, above in self._above.items():
            every = self.often[region]
            late = 0.0 if not every else abs(time - every * round(time / every))
            if late <= _SAME_STEP * problem.dt:
                cells = np.flatnonzero((shown == region) & (seen[0] > above))
                found |= {region: cells} if cells.size else {}
        if found:
            self.times.append(time)
            self._cells.append(found)
        return bool(found)

    def until(self, time: float) -> Absent | None:
        """Return which cells are gone from a time on [s]; None if none is."""
        count = bisect.bisect_right(self.times, time)
        if count == 0:
            return None
        if self._known is None or self._known[0] != count:
            masks = {region: np.zeros(self._shape, np.bool_) for region in self._above}
            for found in self._cells[:count]:
                for region, cells in found.items():
                    masks[region].reshape(-1)[cells] = True
            self._known = count, lambda region, box: masks[region][tuple(slice(*it) for it in box)]
        return self._known[1]

    def state(self) -> list[Any]:
        """What has gone so far, as plain data for a checkpoint."""
        return [
            [when, {str(region): _packed(cells) for region, cells in found.items()}]
            for when, found in zip(self.times, self._cells, strict=True)
        ]

    def restore(self, state: Sequence[Any]) -> None:
        """Take what is gone of an earlier part of the run."""
        self.times = [float(when) for when, _ in state]
        self._cells = [{int(it): _unpacked(text) for it, text in all_.items()} for _, all_ in state]
        self._known = None


def _packed(cells: npt.NDArray[np.int64]) -> str:
    # Neighbours go together, so that differences are few numbers.
    return base64.b64encode(
        zlib.compress(np.diff(cells, prepend=0).astype("<i8").tobytes())
    ).decode()


def _unpacked(text: str) -> npt.NDArray[np.int64]:
    steps = np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i8")
    return np.asarray(np.cumsum(steps), np.int64)


@dataclass(frozen=True, eq=False)
class Phases:
    """Parts of a run between the times at which cells come or go; each has a problem of its own.

    Attributes:
        begins: when each begins, ascending; the first is 0 [s].
        make: from a number to the problem of that phase, whose initial field is that of what comes
            in it; the same grid, time step and kind of state for all.
        kinds: by number, the first phase in which the same kinds of things touch; if not given,
            each is of its own kind. Where cells go by themselves, kinds stand for parts that may
            be, and have negative numbers.
        gone: cells that go by themselves; each time a phase more begins.
    """

    begins: Sequence[float]
    make: Callable[[int], Any]
    kinds: Sequence[int] = ()
    gone: GoneCells | None = None

    def at(self, time: float, dt: float) -> int:
        """Return the number of the phase of the step that begins at a time [s].

        >>> phases = Phases((0.0, 0.3), lambda number: None)
        >>> phases.at(0.2, 0.1), phases.at(0.1 + 0.2, 0.1), phases.at(3 * 0.0999999999, 0.1)
        (0, 1, 1)
        """
        # Steps end there but for rounding.
        return max(bisect.bisect_right(self.begins, time + _SAME_STEP * dt) - 1, 0)

    def next_look(self, problem: Any, step: int) -> int | None:
        """Smallest step greater than `step` at which cells that go by themselves are looked at."""
        if self.gone is None:
            return None
        time, found = problem.time(step), list[int]()
        for every in self.gone.often.values():
            following = math.floor(time / every + _SAME_STEP) + 1 if every else 0
            steps = round((following * every - time) / problem.dt) if every else 1
            found.append(step + max(1, steps))
        return min(found)

    def look(self, problem: Any, state: npt.NDArray[Any], step: int) -> None:
        """Let what is too hot at the beginning of a step go; the next phase begins with that.

        Args:
            problem: of the phase so far.
            state: of the whole grid, (n_fields, n0, ...).
            step: the step that begins.
        """
        time = problem.time(step)
        if self.gone is not None and self.gone.look(problem, state, time):
            self._begin_at(time, problem.dt)

    def restore(self, state: Sequence[Any], dt: float) -> None:
        """Let what had gone in an earlier part of the run be gone; see `GoneCells.state`."""
        if self.gone is not None:
            self.gone.restore(state)
            for time in self.gone.times:
                self._begin_at(time, dt)

    def _begin_at(self, time: float, dt: float) -> None:
        assert isinstance(self.begins, list)
        if min(abs(it - time) for it in self.begins) > _SAME_STEP * dt:
            bisect.insort(self.begins, time)

    def refuse_between(self, problem: Any) -> None:
        """Raise if a phase begins within a step of a problem.

        Raises:
            ConfigError: one does.
        """
        first, begun = problem.start
        for time in self.begins[1:]:
            place = (time - begun) / problem.dt
            if 0 < place < problem.steps - first and abs(place - round(place)) > _SAME_STEP:
                msg = (
                    f"model.regions: something comes or goes at {time:g} s (from, to), which lies "
                    f"within a step of {problem.dt:.6g} s; choose times, time.t_end and time.dt of "
                    "which a short interval is a common part"
                )
                raise ConfigError(msg)
