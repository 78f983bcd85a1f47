"""The protocols `Method` and `Stepper`, behind which every way to advance a slab lives, and the
optional capabilities of steppers.

A scheduler asks a method whether it can do a problem (`refusal`), tunes its parameters, and lets it
`prepare` a stepper per slab; from then on it talks to the stepper only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import Side
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.step_control import Controller

DeviceKind = Literal["cpu", "gpu"]
# Tunable parameters of a method: tile sizes, fusion depth, ...
Parameters = Mapping[str, int]
# The parameter for the depth of temporal blocking: steps made on a tile before the next tile.
STEPS_PER_BLOCK = "steps_per_block"
Box = tuple[tuple[int, int], ...]  # per axis (start, stop), global indices
Fetch = Callable[[], Field]  # called once, from any thread
_NO_NEIGHBOUR = "this stepper has the whole grid: it has no neighbour and no halo"


class EdgePlanes(Protocol):
    """Planes on their way to a neighbour: a host array, or an object that converts to one on
    demand.

    A stepper that knows the device on which they lie may take them from there (peer transfer).
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, (n_fields, ...)."""

    @property
    def nbytes(self) -> int:
        """Size of all planes in bytes."""

    def __array__(self) -> npt.NDArray[Any]:
        """Return the planes in host memory."""


@dataclass(frozen=True)
class LastingPlanes:
    """Planes in contiguous host memory that persists, and into which a stepper puts its edges again
    and again: a device may register it once.

    Attributes:
        memory: the planes, (n_fields, ...).
    """

    memory: npt.NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, (n_fields, ...)."""
        return self.memory.shape

    @property
    def nbytes(self) -> int:
        """Size of all planes in bytes."""
        return self.memory.nbytes

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Return the planes themselves, without a copy unless another dtype is requested."""
        return self.memory if dtype is None else self.memory.astype(dtype, copy=False)


class Stepper(Protocol):
    """The state of one slab, in the layout that its method prefers, and the operations to advance
    it.

    Global indices throughout. A stepper fills the physical ghost ring itself at every step; it
    receives the halo from its neighbours through `set_halo`.
    """

    slab: Slab

    def load(self, initial: InitialField, step: int = 0) -> None:
        """Take the owned points from a function, called part by part, from any thread.

        Args:
            initial: the state.
            step: steps that the state has behind it; the stepper counts on from there, for anything
                that changes with time.
        """

    def advance(self, steps: int) -> None:
        """Advance the owned points by `steps`; may return early, in which case the next call waits.

        Uses up the halo: needs steps * radius <= halo on every side that has one, and a fresh halo
        afterwards.
        """

    def edge(self, axis: int, side: Side) -> EdgePlanes:
        """Return the outermost owned planes along `axis` that the neighbour on `side` needs as its
        halo.

        (n_fields, ...) with halo planes along `axis`, owned points along later axes, and owned
        points plus halo along earlier axes: halos are exchanged axis by axis including those just
        received, so corners need no message of their own. A copy.
        """

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Set the halo beyond `side`, in the shape that `edge` returns."""

    def interior(self, box: Box | None = None) -> Field:
        """Return the owned points, or those inside `box`: (n_fields, ...), a copy in host
        memory.
        """

    def find_nonfinite(self) -> Box | None:
        """Return the first small box of owned points with a NaN or an infinity; None if there is
        none.
        """

    def wait(self) -> None:
        """Return when everything that was started is done."""

    def close(self) -> None:
        """Release memory and devices."""


@runtime_checkable
class InnerFirst(Stepper, Protocol):
    """A stepper that can begin a block before all halos have arrived, to overlap the exchange."""

    def advance_inner(self, steps: int, axis: int) -> None:
        """Advance by `steps` the points that no halo along `axis` reaches meanwhile; may return
        early, and does nothing if there are too few of them.

        The state is whole again after `advance(steps)`, which must follow and makes the rest;
        between the two only `set_halo` along `axis` and `wait` may be called.
        """


@runtime_checkable
class ReducedPrecision(Protocol):
    """A method that computes in another precision than that of the state."""

    @property
    def epsilon(self) -> float:
        """Relative rounding error of one operation, relative to the largest of its terms."""


@runtime_checkable
class Snapshots(Stepper, Protocol):
    """A stepper that can keep a copy of its state in device memory for asynchronous output."""

    def kept(self) -> Fetch | None:
        """Copy the owned points as they are now, while the stepper goes on.

        Returns:
            A function that fetches the copy, (n_fields, ...); None if there is no memory for one.
        """


class Event(Protocol):
    """A marker in the work of a stepper: it completes with everything enqueued before it."""

    def wait(self) -> None:
        """Return when the event has completed."""

    def since(self, earlier: Event) -> float:
        """Return the time from an earlier event of the same stepper, once both have completed
        [s].
        """


@runtime_checkable
class RunsAhead(InnerFirst, Protocol):
    """A stepper that can enqueue a block while it still computes the one before."""

    def settle(self) -> None:
        """Return when all work may be done except the block that was enqueued last."""


@runtime_checkable
class CopiesInBlocks(Protocol):
    """A stepper that declares whether the time of its blocks includes copies of halos and edges.

    Attributes:
        copies_in_blocks: whether it does.
    """

    copies_in_blocks: bool


@runtime_checkable
class Timed(RunsAhead, Protocol):
    """An asynchronous stepper whose progress can be timed with events."""

    def mark(self) -> Event:
        """Return an event that completes when all work enqueued so far is done."""


NOTHING: Mapping[str, float] = {}  # known of the whole grid


@runtime_checkable
class Substepper(Stepper, Protocol):
    """A stepper of equations whose steps are made of `Substeps`."""

    def substep(
        self, time: float, length: float, part: int = 0, found: Mapping[str, float] = NOTHING
    ) -> None:
        """Make one part of a substep; may return early. Halos stay as they are, and the last part
        gives the new state.

        Args:
            time: at which it begins [s].
            length: of the substep [s].
            part: of `Equations.parts`.
            found: the reductions of the parts before, by name.
        """

    def extremes(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the largest value of each of some arrays of this part over owned points, and minus
        the smallest, (2, n_names); NaN where a value is NaN.
        """

    def digits(self, name: str, exponent: int) -> tuple[int, ...]:
        """Return the sum of an array of this part over owned points, as `digit_sums` do."""

    def whole(self, name: str) -> Field:
        """Return the owned points of an array of this part, in host memory."""

    def give(self, name: str, values: Field) -> None:
        """Set a coefficient, given on the whole grid, for the next parts."""

    def undo(self) -> None:
        """Restore the state, halos included, to what it was before the last substep."""

    def peaks(self) -> npt.NDArray[np.float64]:
        """Return the largest magnitudes of each field and of its error in the last substep over
        owned points, (2, n_fields); NaN where a value is NaN.
        """


@runtime_checkable
class Divider(Substepper, Protocol):
    """A substepper that can look at the errors of its substeps by itself.

    Attributes:
        divides: whether it can do so here, where it has all points.
    """

    @property
    def divides(self) -> bool:
        """Whether `divide` may be called."""

    def divide(self, controllers: Sequence[Controller], tolerance: float) -> None:
        """Make the substeps of steps that follow each other, until all have ended, one is stuck, or
        a while has passed; every controller then knows how far it came.

        Args:
            controllers: one for each step, the first of which may have begun.
            tolerance: of errors, relative to magnitudes.
        """


def roundings(method: object, dtype: np.dtype[Any]) -> float:
    """Return the rounding error of a method in multiples of that of a dtype, at least 1.

    >>> roundings(object(), np.dtype("float64"))
    1.0
    """
    own = float(np.finfo(dtype).eps)
    return max(1.0, method.epsilon / own) if isinstance(method, ReducedPrecision) else 1.0


class KnownGpu(Protocol):
    """Properties of a GPU known without using it; `scheduler/machine/machine.py` determines
    them.
    """

    @property
    def architecture(self) -> str:
        """Compute architecture, for example "sm_90"."""

    @property
    def multiprocessors(self) -> int:
        """Number of multiprocessors; 0 if unknown."""

    @property
    def clock(self) -> float:
        """Highest clock rate of its cores [Hz]; 0 if the driver does not report it."""

    @property
    def bandwidth(self) -> float | None:
        """Memory bandwidth [bytes/s]; None if the driver does not report it."""


class Method(Protocol):
    """One way to advance on one kind of device."""

    @property
    def name(self) -> str:
        """Identifier, for example "cpu.plain"."""

    @property
    def device(self) -> DeviceKind:
        """Kind of device that it runs on."""

    @property
    def exact(self) -> bool:
        """Whether it computes one fixed chain of operations per point, the same as all exact
        methods.

        Their results are bitwise identical, and do not depend on the location of a point. Other
        methods fuse steps on tiles anchored to the grid: equal to within rounding only.
        """

    def refusal(self, problem: Problem) -> str | None:
        """Say why this method cannot do this problem, as a sentence for the user; None if it
        can.
        """

    def parameters(self, problem: Problem) -> tuple[Parameters, ...]:
        """Return the candidates for autotuning this problem, the best guess first; never empty.

        `prepare` must accept each of them for smaller grids too, on which the tuner tries them.
        """

    def fixed_at_compile(self, parameter: str) -> bool:
        """Whether code is compiled for a value of this parameter; otherwise it is an argument."""

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        """Comment on a measured rate, for example with the prediction of a model; None for no
        comment.

        Args:
            problem: the problem that was advanced.
            parameters: values that it was advanced with.
            rate: measured speed [points/s].
            gpu: the GPU that was used; None on CPU threads.
        """

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        """Return the bytes of device memory that `prepare` will take."""

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Stepper:
        """Compile for this stencil and dtype, and allocate memory. Slow; called once per slab.

        Args:
            problem: the problem to advance.
            slab: part of the grid that is taken.
            parameters: one of `parameters(problem)`.
            device: the device to run on: a `ThreadTeam` for CPU methods.
        """


@runtime_checkable
class SlabTuned(Method, Protocol):
    """A method whose best parameters for a thin slab differ from those for the whole grid."""

    def fitted(
        self, problem: Problem, slab: Slab, parameters: Parameters, threads: int
    ) -> Parameters:
        """Adapt parameters to a slab with neighbours that a number of threads advances.

        Args:
            problem: the problem that is advanced.
            slab: a part of it; its halos say how many steps a block has.
            parameters: that suit the whole grid.
            threads: that share the work.
        """


class WithoutParameters:
    """Mixin for a `Method` without tunable parameters."""

    def parameters(self, problem: Problem) -> tuple[Parameters, ...]:
        """Return the single, empty choice."""
        return ({},)

    def fixed_at_compile(self, parameter: str) -> bool:
        """Return False: there are no parameters."""
        return False

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        """Return None: there is nothing to explain."""
        return None


class WholeGrid:
    """Mixin for a `Stepper` that owns the whole grid and has no neighbours."""

    def edge(self, axis: int, side: Side) -> EdgePlanes:
        """Refuse: there is no neighbour.

        Raises:
            TypeError: always; the caller took the grid for a part of one.
        """
        raise TypeError(_NO_NEIGHBOUR)

    def set_halo(self, axis: int, side: Side, planes: EdgePlanes) -> None:
        """Refuse: there is no neighbour.

        Raises:
            TypeError: always, as `edge` does.
        """
        raise TypeError(_NO_NEIGHBOUR)
