"""The sections of a configuration that every model shares: names, types, units, allowed values.

Numbers are SI (temperatures in degC) once a section exists; text with units was converted while it
was read. Lists along axes are in the order x, y, z here, as a person writes them; `Request` turns
them into array order. The initial state and the faces are in `conditions.py`; what one section
needs to know of another is checked in `config/checks.py`.
"""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from tetris_sim.config.sections.conditions import FaceCondition, FaceName, InitialSection
from tetris_sim.config.sections.quantities import (
    AnyInterval,
    Bandwidth,
    Interval,
    Length,
    Memory,
    Moment,
    PositiveDuration,
    PositiveLength,
    RateOfChange,
    Section,
    TuningTime,
    WallTime,
)
from tetris_sim.support.wording import describe

# The section `time` of a configuration: how long, and in which steps, jumps or solutions.


class Until(Section):
    """What ends a run before its last step."""

    change: RateOfChange
    """No point changes by more than this [K/s], or, of other variables than temperature, by more
    than this in their unit per second, from one step to the next.
    """
    every: Interval | None = None
    """How often to look. If nothing is given: a hundred times until the last step."""


class TimeSection(Section):
    """How long, and in which steps."""

    dt: Literal["auto"] | PositiveDuration | None = None
    """A number, or auto: `safety` times the largest stable step. Auto is what happens if nothing is
    given.
    """
    cfl: Annotated[float, Field(gt=0)] | None = None
    """Instead of dt: diffusivity * dt / spacing^2, with the smallest spacing."""
    safety: Annotated[float, Field(gt=0, le=1)] = 0.9
    """For dt: auto."""
    t_end: PositiveDuration | None = None
    """Simulated time at the end [s]; dt is shrunk so that whole steps end there."""
    steps: Annotated[int, Field(ge=0)] | None = None
    """Instead of t_end: the number of steps."""
    until: Until | None = None
    """What ends the run before that."""
    scheme: Literal[
        "explicit",
        "spectral",
        "steady",
        "implicit",
        "auto",
        "euler",
        "rk2",
        "rk4",
        "leapfrog",
        "rkl2",
    ] = "explicit"
    """How the state gets to the next step that is written: by all steps in between (explicit), or,
    where coefficients are constant or change along one axis only, by a jump with the same result
    but for roundings (spectral); auto takes what is predicted to be faster of these. steady solves
    for the state that does not change any more: without dt, t_end or steps, outputs show it once.
    implicit makes steps of any length, each the solution of a system, accurate to their square: of
    length dt if that is a number, else as long as the tolerance allows, and what is written has the
    times that were asked for; auto takes these, too, if they are predicted to be faster. For
    `model.type: pde` how an explicit step is made: explicit is leapfrog where all equations are of
    second order, rk4 where some are, else euler; rkl2 makes long steps of many stages where
    diffusion limits the step. spectral, implicit, steady and auto are for those of one field whose
    steps by euler are linear, with constant numbers.
    """
    tolerance: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Of steady, 1e-8 if not given: norm of what is left of the heat balance of all cells, relative
    to that of the initial state, or of the best constant one if that is larger; so also of implicit
    steps of a given dt, relative to the state before the step. Of implicit steps without one, and
    of auto, 1e-4 if not given: error of a step relative to the range of the state. With
    `model.type: pde` and euler, rk2 or rk4 it makes steps adaptive: the error of each substep,
    relative to the largest magnitude of each field; dt is then the time between two looks at the
    state, and substeps are as long as their errors allow.
    """

    @property
    def solves(self) -> bool:
        """Whether states are solutions of systems, not steps of the state before."""
        return self.scheme in ("steady", "implicit")

    @property
    def is_adaptive(self) -> bool:
        """Whether implicit steps are as long as the tolerance allows."""
        return self.scheme == "implicit" and not isinstance(self.dt, float)

    @property
    def of_balances(self) -> float:
        """The tolerance of what is left of balances."""
        return 1e-8 if self.tolerance is None else self.tolerance

    @property
    def of_steps(self) -> float:
        """The tolerance of the error of steps."""
        return 1e-4 if self.tolerance is None else self.tolerance

    @model_validator(mode="after")
    def _one_of_each(self) -> TimeSection:
        if self.scheme == "steady":
            given = [
                key
                for key in ("dt", "cfl", "t_end", "steps", "until")
                if getattr(self, key) is not None
            ]
            if given:
                msg = f"{given[0]} is given, but scheme: steady takes no steps; leave it out"
                raise ValueError(msg)
            return self
        if self.is_adaptive and (self.cfl is not None or self.t_end is None):
            msg = (
                "scheme: implicit makes steps as long as the tolerance allows; give t_end, and "
                "neither steps nor cfl, or give dt as a number"
            )
            raise ValueError(msg)
        if self.dt is not None and self.cfl is not None:
            msg = "dt and cfl are both given; one follows from the other, so give one"
            raise ValueError(msg)
        if (self.t_end is None) == (self.steps is None):
            msg = "give either t_end or steps"
            if self.until is not None and self.t_end is None:
                msg += ": until ends a run before that, if it gets there"
            raise ValueError(msg)
        return self


DeviceName = Annotated[
    str,
    Field(
        pattern=r"^(cpu|(gpu|simulated)(:[0-9]{1,3})?)$",
        description="cpu, gpu:NUMBER or simulated:NUMBER",
    ),
]
ProbeName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$",
        description="a name of at most 64 letters, digits, _ and -",
    ),
]

AxisName = Annotated[str, Field(pattern=r"^[xyz]$", description="an axis: x, y or z")]
Count = Annotated[int, Field(gt=0, le=2**31 - 1)]

_TUNING_SECONDS = 5.0


def split_devices(text: str) -> str | list[str]:
    """The value of compute.devices that a word stands for.

    >>> split_devices("cpu+gpu"), split_devices("gpu:0+cpu"), split_devices("gpu:1")
    ('cpu+gpu', ['gpu:0', 'cpu'], ['gpu:1'])
    """
    if "," not in text and ":" not in text:
        return text.strip()
    return [part.strip() for part in text.replace("+", ",").split(",")]


class SegmentSection(Section):
    """Cells of equal width up to a place."""

    to: PositiveLength
    """Where it ends [m]; it begins where the one before ends, the first at 0."""
    n: Count
    """Cells."""


class GradedSection(Section):
    """An axis whose cells differ in width."""

    edges: Annotated[tuple[Length, ...], Field(min_length=2)] | None = None
    """The ends of all cells [m], the first being 0."""
    segments: Annotated[tuple[SegmentSection, ...], Field(min_length=1)] | None = None
    """Instead of `edges`."""

    @model_validator(mode="after")
    def _ascends(self) -> GradedSection:
        if (self.edges is None) == (self.segments is None):
            msg = "give either edges or segments"
            raise ValueError(msg)
        given = self.edges or (0.0, *(it.to for it in self.segments or ()))
        if given[0] != 0 or any(b <= a for a, b in itertools.pairwise(given)):
            msg = f"{describe(given)} was found; they begin at 0 and ascend"
            raise ValueError(msg)
        return self

    @property
    def ends(self) -> tuple[float, ...]:
        """The ends of all cells [m]."""
        if self.edges is not None:
            return self.edges
        found = [0.0]
        for it in self.segments or ():
            low = found[-1]
            found += [low + (it.to - low) * k / it.n for k in range(1, it.n)] + [it.to]
        return tuple(found)


class GridSection(Section):
    """How many points, and how large the box is."""

    shape: Annotated[
        tuple[Annotated[int, Field(gt=0, le=10**12)], ...], Field(min_length=1, max_length=3)
    ]
    """Points along x, y, z."""
    size: tuple[PositiveLength, ...] | None = None
    """Edge lengths along x, y, z [m]. Give this or `spacing`; neither means a spacing of 1."""
    spacing: tuple[PositiveLength, ...] | None = None
    """Distance between points along x, y, z [m]."""
    graded: dict[Literal["x", "y", "z"], GradedSection] = Field(default={})
    """Axes whose cells differ in width. Their entries in `shape` and `size` are the number of
    cells and where the last one ends.
    """

    @model_validator(mode="after")
    def _one_length_per_axis(self) -> GridSection:
        if self.size is not None and self.spacing is not None:
            msg = "size and spacing are both given; one follows from the other, so give one"
            raise ValueError(msg)
        for name, lengths in (("size", self.size), ("spacing", self.spacing)):
            if lengths is not None and len(lengths) != len(self.shape):
                msg = (
                    f"{name} has {len(lengths)} entries but shape has {len(self.shape)}; both list "
                    "x, y, z"
                )
                raise ValueError(msg)
        self._refuse_other_axes()
        return self

    def _refuse_other_axes(self) -> None:
        """Raise where a graded axis is not there, or is not as long as shape and size say."""
        for name, axis in self.graded.items():
            number = "xyz".index(name)
            if number >= len(self.shape):
                msg = f"graded has {name}, but shape has {len(self.shape)} entries"
                raise ValueError(msg)
            if len(axis.ends) != self.shape[number] + 1:
                msg = (
                    f"graded.{name} has {len(axis.ends) - 1} cells, but shape says "
                    f"{self.shape[number]}; write the same number"
                )
                raise ValueError(msg)
            if self.size is None or not math.isclose(self.size[number], axis.ends[-1]):
                msg = f"graded.{name} ends at {axis.ends[-1]:g} m; size must say the same"
                raise ValueError(msg)


class SimulatedSection(Section):
    """A device that is CPU threads made slow and far away, to try schedules on any machine:
    simulated:0, ...
    """

    speed: Annotated[float, Field(gt=0)] = 1e9
    """Most point updates per second."""
    latency: TuningTime = 1e-5
    """Of every message to or from it [s]."""
    bandwidth: Bandwidth = 1e10
    """Of its link, each way [byte/s]."""
    memory: Memory = 2.0**30
    """That it has [byte]."""
    fail_after: Count | None = None
    """It fails in the time block of this number; never if not given."""


class ComputeSection(Section):
    """On what, how, and how precisely."""

    devices: (
        Literal["auto", "cpu", "gpu", "cpu+gpu"]
        | Annotated[tuple[DeviceName, ...], Field(min_length=1)]
    ) = "auto"
    """What computes; auto takes what is predicted to be fastest, gpu all GPUs, cpu+gpu also all
    cores. A list names one worker each: [cpu, cpu] splits the grid between two teams of threads,
    [gpu:0, cpu], or gpu:0+cpu, between a GPU and a team.
    """
    method: str = "auto"
    """A method's name, or auto: the fastest that does not refuse."""
    parameters: dict[str, Annotated[int, Field(ge=0, le=2**31 - 1)]] = Field(default={})
    """Tile sizes and the like of the method that is named, for example {steps_per_block: 16};
    `plan` shows those that were found to be best, and those that are left out are the method's best
    guess.
    """
    tuning_budget: Literal["auto"] | TuningTime = "auto"
    """Time that measuring methods and parameters may take, compilation included [s]; auto is 5 s,
    but in a run of more than ten times as long each method has one turn, however late. 0 measures
    nothing and takes what was the fastest on such a GPU, or the best guess of the first method
    that does not refuse.
    """
    precision: Literal["float64", "float32x2", "float32", "float16"] = "float64"
    """Of the state. float16 is summed in float32 and rounded at every step, or once per launch that
    makes several. It takes a quarter of the memory of float64, but freezes where a launch changes
    points by less than its numbers are apart: plan and report say what it costs. It is never chosen
    unasked. float32x2 is float64 that a GPU may compute as pairs of float32, with 48 bits of 53,
    where that is measured to be faster.
    """
    time_block: Literal["auto"] | Count = "auto"
    """Steps between two exchanges of halos."""
    threads: Literal["auto"] | Count = "auto"
    """CPU threads in all, under MPI of each rank; auto is one per core that this process may use.
    """
    reserve_cores: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """With threads: auto, so many cores are left free, for example to drive a GPU."""
    shares: (
        Literal["auto"] | Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]
    ) = "auto"
    """Relative share of the grid of each device, in the order of the list or of the plan; auto is
    by speed.
    """
    share_gpus: bool = False
    """Under MPI: whether several ranks may compute on one GPU."""
    gpu_messages: Literal["auto", "host", "mpi", "nccl"] = "auto"
    """Under MPI: how halos go between GPUs of different ranks. host: from GPU to GPU inside of a
    computer, where that is possible, else through host memory; mpi: the same, but the MPI library
    is handed GPU memory, for which it must be built (others crash); nccl: by NVIDIA's library, one
    GPU for each rank. auto is what is fastest when it is tried.
    """
    gpu_memory: Literal["auto"] | Memory = "auto"
    """Most memory that the state may take on each GPU [byte]; auto is what is free. A larger grid
    is shared with the CPU, or streamed through the GPU.
    """
    on_device_failure: Literal["continue", "stop"] = "continue"
    """Whether a run goes on without a device that fails, or ends with a checkpoint and exit code
    75.
    """
    simulated: SimulatedSection = SimulatedSection()
    """What a simulated device is like."""

    @field_validator("devices", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return split_devices(value) if isinstance(value, str) else value

    @property
    def tuning_seconds(self) -> float:
        """What `tuning_budget` says [s]."""
        return _TUNING_SECONDS if self.tuning_budget == "auto" else self.tuning_budget


class FieldsSection(Section):
    """The whole field, as HDF5."""

    every: Interval | None = None
    """Beside or instead of `at`."""
    at: tuple[Moment, ...] = ()
    """Times that are hit exactly [s]; between two time steps the field is linear in time."""
    compression: Literal["none", "gzip", "lz4", "zstd"] = "none"
    """Of the values, without loss. `lz4` and `zstd` are ten times as fast as `gzip`, and need
    hdf5plugin to write and to read (`pip install 'tetris-sim[compression]'`).
    """

    @model_validator(mode="after")
    def _some_time(self) -> FieldsSection:
        if self.every is None and not self.at:
            msg = (
                "neither every nor at is given, so nothing would be written; give one of them, or "
                "every: 1 step of a steady state"
            )
            raise ValueError(msg)
        return self


class PartSection(FieldsSection):
    """A box of the field, or a slice through it, in the same kind of files as the whole."""

    name: ProbeName
    """Of its files, fields-<name>."""
    box: dict[AxisName, tuple[Length, Length]] = Field(default={})
    """From where to where, by axis [m]; an axis that is not named is taken whole."""
    slice: dict[AxisName, Length] = Field(default={})
    """Where it is cut, by axis [m]. Values are linear between the points around, and those of the
    face on it.
    """

    @model_validator(mode="after")
    def _less_than_the_whole(self) -> PartSection:
        if not self.box and not self.slice:
            msg = f"{self.name} has neither box nor slice; give one, or take output.fields"
            raise ValueError(msg)
        for axis, (low, high) in self.box.items():
            if axis in self.slice:
                msg = f"{axis} is in box and in slice; give one of them"
                raise ValueError(msg)
            if not low < high:
                msg = f"box.{axis} reaches from {low:g} m to {high:g} m; the lower end comes first"
                raise ValueError(msg)
        return self


class ProbeSection(Section):
    """The value at one place over time, as CSV."""

    at: Annotated[tuple[Length, ...], Field(min_length=1, max_length=3)]
    """Position along x, y, z [m]."""
    every: Interval
    name: ProbeName | None = None
    """Of its file; numbered if not given."""


class StatisticsSection(Section):
    """Minimum, maximum, mean and total over time, as CSV."""

    every: Interval


class OutputSection(Section):
    """What is written down, and where."""

    directory: str | None = None
    """Where results go; relative paths start at the working directory. Default: results/<name of
    the config file>.
    """
    fields: FieldsSection | None = None
    parts: tuple[PartSection, ...] = ()
    """Boxes of the field and slices through it."""
    probes: tuple[ProbeSection, ...] = ()
    statistics: StatisticsSection | None = None
    pictures: bool = True
    """Pictures of the initial and the final state and of their difference."""

    @field_validator("probes", "parts", mode="after")
    @classmethod
    def _distinct_names(
        cls, outputs: tuple[ProbeSection | PartSection, ...], which: ValidationInfo
    ) -> tuple[ProbeSection | PartSection, ...]:
        names = [output.name for output in outputs if output.name is not None]
        for name in names:
            if names.count(name) > 1:
                msg = (
                    f"two {which.field_name} are named {name!r}; names become file names, so they "
                    "must differ"
                )
                raise ValueError(msg)
        return outputs


class CheckpointSection(Section):
    """When the whole state is saved so that the run can be continued."""

    every: AnyInterval | None = None
    keep: Count = 2
    """How many of the newest checkpoints stay."""
    at_end: bool = True
    per_rank: Literal["auto"] | bool = "auto"
    """Under MPI: each rank writes its own part into a file of its own, beside a file that shows
    them as one, and its slab of whole fields into their file. `auto`: where all ranks are on one
    computer.
    """


class RunSection(Section):
    """Limits of this run."""

    max_walltime: WallTime | None = None
    """Stop with a checkpoint (exit code 75) after this time [s]."""


class Request(Section):
    """A whole configuration but for its `model`, whose section belongs to the model."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    title: str = ""
    grid: GridSection
    initial: InitialSection | None = None
    """The state at time 0; with `model.type: pde` each field has its own instead."""
    boundaries: Annotated[dict[FaceName, FaceCondition], Field(min_length=1)]
    """Per face x-, x+, y-, ...; `x` means both faces of an axis, `*` every face not named
    otherwise. A list of sections says something of each part of a face: the first whose `where` is
    true holds.
    """
    time: TimeSection
    compute: ComputeSection = ComputeSection()
    output: OutputSection = OutputSection()
    checkpoint: CheckpointSection = CheckpointSection()
    run: RunSection = RunSection()

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    @property
    def ndim(self) -> int:
        """Number of axes of the grid."""
        return len(self.grid.shape)

    def resolved(self) -> dict[str, Any]:
        """The configuration as plain SI data, defaults filled in; loading it gives an equal one.

        Keys without a value are left out.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
