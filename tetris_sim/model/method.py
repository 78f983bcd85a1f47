"""Method and Stepper: the two Protocols behind which every way to advance a slab lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import Side
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab

DeviceKind = Literal["cpu", "gpu"]
# what a tuner may choose for a method: tile sizes, fusion depth, ...
Parameters = Mapping[str, int]
# the parameter that says how many steps a method makes on a tile before the next
STEPS_PER_BLOCK = "steps_per_block"
Box = tuple[tuple[int, int], ...]  # per axis (start, stop), global indices
Fetch = Callable[[], Field]  # called once, from any thread
_NO_NEIGHBOUR = "this stepper has the whole grid: it has no neighbour and no halo"


class EdgePlanes(Protocol):
    """Planes on their way to a neighbour: an array of the host, or what becomes one if asked.

    A stepper that knows the device on which they lie may take them from there.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_fields, ...)."""

    @property
    def nbytes(self) -> int:
        """Bytes of all planes."""

    def __array__(self) -> npt.NDArray[Any]:
        """The planes in host memory."""


@dataclass(frozen=True)
class LastingPlanes:
    """Planes in contiguous memory of the host that lasts, and into which a stepper puts its edges
    again and again: a device may remember it.

    Attributes:
        memory: the planes, (n_fields, ...).
    """

    memory: npt.NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_fields, ...)."""
        return self.memory.shape

    @property
    def nbytes(self) -> int:
        """Bytes of all planes."""
        return self.memory.nbytes

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """The planes themselves."""
        return self.memory if dtype is None else self.memory.astype(dtype, copy=False)


class Stepper(Protocol):
    """One slab's state in the layout its method likes, and how to advance it.

    Global indices throughout. A stepper fills the physical ghost ring itself at every step; the
    halo it gets from its neighbours through `set_halo`.
    """

    slab: Slab

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take the owned points from a function, called part by part, from any thread.

        Args:
            initial: the state.
            step: steps that it has behind it; a stepper counts on from there, for what changes with
                time.
        """

    def advance(self, steps: int) -> None:
        """Advance the owned points by `steps`; may return early, whatever is called next waits.

        Uses up the halo: needs steps * radius <= halo on every side that has one, and a fresh halo
        afterwards.
        """

    def edge(self, axis: int, side: Side) -> EdgePlanes:
        """The outermost owned planes along `axis` that the neighbour on `side` needs as its halo.

        (n_fields, ...) with halo planes along `axis`, owned points along later axes, and owned
        points plus halo along earlier axes: halos are exchanged axis by axis including those just
        received, so corners need no message of their own. A copy.
        """

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Take the halo beyond `side`, of the shape `edge` has."""

    def interior(self, box: Box | None = None) -> Field:
        """The owned points, or those inside `box`: (n_fields, ...), a copy in host memory."""

    def find_nonfinite(self) -> Box | None:
        """The first small box of owned points with a NaN or an infinity; None if there is none."""

    def wait(self) -> None:
        """Return when everything that was started is done."""

    def close(self) -> None:
        """Give memory and devices back."""


@runtime_checkable
class InnerFirst(Stepper, Protocol):
    """A stepper that can begin a block before all halos are there."""

    def advance_inner(self, steps: int, axis: int) -> None:
        """Advance by `steps` the points that no halo along `axis` reaches meanwhile; may return
        early, and does nothing where there are too few of them.

        The state is whole again after `advance(steps)`, which must follow and makes the rest;
        between the two only `set_halo` along `axis` and `wait` may be called.
        """


@runtime_checkable
class ReducedPrecision(Protocol):
    """A method that computes with other numbers than those of the state, for who asks for them."""

    @property
    def epsilon(self) -> float:
        """By which an operation may be off, relative to the largest of its terms."""


@runtime_checkable
class Snapshots(Stepper, Protocol):
    """A stepper whose device may have memory for a copy of its state."""

    def kept(self) -> Fetch | None:
        """Keep a copy of the owned points as they are now: what fetches it, (n_fields, ...), while
        the stepper goes on; None if there is no memory for one.
        """


class Event(Protocol):
    """When a stepper has done all that it was told before."""

    def wait(self) -> None:
        """Return when it has come."""

    def since(self, earlier: Event) -> float:
        """Time from another moment of the same stepper, when both have come [s]."""


@runtime_checkable
class RunsAhead(InnerFirst, Protocol):
    """A stepper that can be told of a block while it still computes the one before."""

    def settle(self) -> None:
        """Return when all may be done but the block that it was told of last."""


@runtime_checkable
class CopiesInBlocks(Protocol):
    """A stepper that says whether what its blocks take contains the copies of its halos and edges.

    Attributes:
        copies_in_blocks: whether it does.
    """

    copies_in_blocks: bool


@runtime_checkable
class Timed(RunsAhead, Protocol):
    """One that knows when it did what it was told."""

    def mark(self) -> Event:
        """When all that it was told so far is done."""


@runtime_checkable
class Substepper(Stepper, Protocol):
    """A stepper of equations with `Substeps`, whose steps are made of substeps."""

    def substep(self, time: float, length: float) -> None:
        """Make one; may return early. Halos stay as they are.

        Args:
            time: when it begins [s].
            length: of it [s].
        """

    def undo(self) -> None:
        """Let the state, halos included, be what it was before the last substep."""

    def peaks(self) -> npt.NDArray[np.float64]:
        """Largest magnitudes of each field and of its error in the last substep, of owned points,
        (2, n_fields); not a number where one of them is none.
        """


def roundings(method: object, dtype: np.dtype[Any]) -> float:
    """How many times as much as a dtype a method rounds.

    >>> roundings(object(), np.dtype("float64"))
    1.0
    """
    own = float(np.finfo(dtype).eps)
    return max(1.0, method.epsilon / own) if isinstance(method, ReducedPrecision) else 1.0


class KnownGpu(Protocol):
    """What is known of a GPU without using it; `scheduler/machine/devices.py` finds it out."""

    @property
    def architecture(self) -> str:
        """For example "sm_90"."""

    @property
    def multiprocessors(self) -> int:
        """How many it has; 0 if nobody looked."""

    @property
    def clock(self) -> float:
        """The highest of its cores [Hz]; 0 if the driver does not say."""

    @property
    def bandwidth(self) -> float | None:
        """Of its memory [bytes/s]; None if the driver does not say."""


class Method(Protocol):
    """One way to advance on one kind of device."""

    @property
    def name(self) -> str:
        """For example "cpu.plain"."""

    @property
    def device(self) -> DeviceKind:
        """What it runs on."""

    @property
    def exact(self) -> bool:
        """Whether it makes one fixed chain of operations per point, the same as all exact methods.

        Their results have the same bits, and do not depend on where a point lies. Others fuse steps
        on tiles anchored to the grid: equal to within rounding only.
        """

    def refusal(self, problem: Problem) -> str | None:
        """Why this method cannot do this problem, as a sentence for the user; None if it can."""

    def parameters(self, problem: Problem) -> tuple[Parameters, ...]:
        """What a tuner may try for this problem, the best guess first; never empty.

        `prepare` must take each of them for smaller grids too, on which the tuner tries them.
        """

    def fixed_at_compile(self, parameter: str) -> bool:
        """Whether code is compiled for a value of this parameter; what is not is an argument."""

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        """What to say beside a measured rate, such as what a model predicts; None for nothing.

        Args:
            problem: what was advanced.
            parameters: values that it was advanced with.
            rate: measured speed [points/s].
            gpu: where; None on CPU threads.
        """

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Bytes of device memory that `prepare` will take."""

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Stepper:
        """Compile for this stencil and dtype and take memory. Slow; called once per slab.

        Args:
            problem: what to advance.
            slab: part of the grid that is taken.
            parameters: one of `parameters(problem)`.
            device: what it runs on: a `ThreadTeam` for CPU methods.
        """


@runtime_checkable
class SlabTuned(Method, Protocol):
    """A method whose parameters for a thin slab are others than for the whole grid."""

    def fitted(
        self, problem: Problem, slab: Slab, parameters: Parameters, threads: int
    ) -> Parameters:
        """Those with which so many threads advance a slab with neighbours.

        Args:
            problem: what is advanced.
            slab: a part of it; its halos say how many steps a block has.
            parameters: that suit the whole grid.
            threads: that share the work.
        """


class WithoutParameters:
    """What a `Method` says that has nothing to choose."""

    def parameters(self, problem: Problem) -> tuple[Parameters, ...]:
        """Nothing to choose."""
        return ({},)

    def fixed_at_compile(self, parameter: str) -> bool:
        """There are none."""
        return False

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        """Nothing to say."""
        return None


class WholeGrid:
    """What a `Stepper` says that has the whole grid, so that nobody needs its edges."""

    def edge(self, axis: int, side: Side) -> EdgePlanes:
        """There is no neighbour.

        Raises:
            TypeError: somebody takes the grid for a part of one.
        """
        raise TypeError(_NO_NEIGHBOUR)

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """As `edge`."""
        raise TypeError(_NO_NEIGHBOUR)
