"""Configuration sections that every model shares: names, types, units, allowed values.

Numbers are SI (temperatures in degC) once a section exists; text with units is converted while it
is read. Lists along axes are in the order x, y, z, as users write them; the code that builds
problems reverses them into array order. The initial state and the faces are in `conditions.py`;
checks across sections are in `config/checks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from tetris_sim.config.sections.conditions import (
    AxisFace,
    ControllerSection,
    EventSection,
    FaceCondition,
    FaceName,
    InitialSection,
)
from tetris_sim.config.sections.grid import AxisName, Count, GridSection, closed_faces
from tetris_sim.config.sections.quantities import (
    AnyInterval,
    Bandwidth,
    Interval,
    Memory,
    Moment,
    Position,
    PositiveDuration,
    RateOfChange,
    Section,
    TuningTime,
    WallTime,
)

# For messages about sections that are missing.
EXAMPLES = {
    "grid": "grid: {shape: [100], size: [1 m]}",
    "boundaries": 'boundaries: {"*": {type: insulated}}',
    "time": "time: {t_end: 60 s}",
}
# Keys as other programs and textbooks have them, in small letters, with ours: a message suggests
# the first one that its section has.
FOREIGN_KEYS: dict[str, tuple[str, ...]] = {
    "melting_point": ("solidus",),
    "rho": ("density",),
    "cp": ("specific_heat",),
    "c_p": ("specific_heat",),
    "heat_capacity": ("specific_heat", "capacity"),
    "k": ("conductivity",),
    "lambda": ("conductivity",),
    "alpha": ("diffusivity", "h"),
    "htc": ("h",),
    "t_inf": ("ambient",),
    "t_ambient": ("ambient",),
    "temperature": ("ambient", "value"),
    "q": ("flux", "power"),
    "dx": ("spacing",),
    "time_step": ("dt",),
    "duration": ("t_end",),
    "boundary_conditions": ("boundaries",),
    "initial_condition": ("initial",),
}
FILMS = ("film", "gif", "mp4", "movie", "video", "animation")  # which `export` makes of fields

# Section `time`: duration, time step and integration scheme.


class Until(Section):
    """Condition that ends a run before its last step: change, condition, any or all."""

    change: RateOfChange | None = None
    """No point changes faster than this from one step to the next: [K/s], or for other variables
    than temperature their unit per second.
    """
    condition: str | None = None
    """A comparison of max, min, mean and integral of formulas of fields, of t [s], and of constants
    that are numbers, for example "max(u) > 1 and t > 2".
    """
    any: tuple[EventSection, ...] = ()
    """Ends the run at the first step at which one of these holds, [{probe: core, above: 80 degC}].
    """
    all: tuple[EventSection, ...] = ()
    """Ends the run at the first step at which all of these hold."""
    every: Interval | None = None
    """Interval between two checks of the condition. If not given, a hundredth of the run, or of a
    condition every step. Of any and all the longest one: they look as often as sensors move, and
    at the latest after 64 steps.
    """

    @model_validator(mode="after")
    def _change_or_condition(self) -> Until:
        given = (self.change, self.condition, self.any or None, self.all or None)
        if sum(it is not None for it in given) != 1:
            msg = "give one of change, condition, any and all"
            raise ValueError(msg)
        return self


SPLIT = ("etdrk4", "imex")  # schemes that treat the linear part of equations apart


class TimeSection(Section):
    """Duration, time step and integration scheme."""

    dt: Literal["auto"] | PositiveDuration | None = None
    """A number [s], or auto: `safety` times the largest stable step. auto if nothing is given."""
    cfl: Annotated[float, Field(gt=0)] | None = None
    """Instead of dt: diffusivity * dt / spacing^2, with the smallest spacing."""
    safety: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the largest stable step that dt: auto takes."""
    t_end: PositiveDuration | None = None
    """Simulated time at the end [s]; dt is reduced so that a whole number of steps ends there."""
    steps: Annotated[int, Field(ge=0)] | None = None
    """Instead of t_end: the number of steps."""
    align: bool = False
    """Whether dt is reduced further, so that every interval and time of outputs is a whole number
    of steps: records are then even in time.
    """
    until: Until | None = None
    """Condition that ends the run earlier."""
    # euler to imex are for `model.type: pde`; see `check_scheme` in `config/checks.py`.
    scheme: Literal[
        "explicit",
        "spectral",
        "steady",
        "implicit",
        "auto",
        "euler",
        "rk2",
        "ssprk3",
        "rk4",
        "leapfrog",
        "rkl2",
        "milstein",
        "etdrk4",
        "imex",
    ] = "explicit"
    """How the state advances to the next output step. explicit: step by step. spectral: by spectral
    propagation, many steps at once with the same result up to rounding, where coefficients are
    constant or vary along one axis only. auto: whichever of these is predicted to be faster.
    steady: solves for the steady state; without dt, t_end or steps, outputs show it once. implicit:
    steps of any length, second-order accurate, each the solution of a system; their length is dt if
    that is a number, else what the tolerance allows, and outputs have exactly the times that were
    asked for; auto considers these, too. For `model.type: pde` the method of an explicit step:
    explicit is leapfrog where all equations are of second order, rk4 where some are, ssprk3 where
    fluxes have limiters, else euler; rkl2 takes long steps of many stages where diffusion limits
    the step; milstein and euler (Euler and Maruyama) are for noise. etdrk4 (fourth
    order) and imex (third) propagate the linear part with constant numbers
    exactly or implicitly, by cosine, sine or Fourier transforms, so that it limits no step; faces
    are periodic, or have a value or a flux. implicit and steady solve any equations, by Newton's
    method. spectral and auto are for equations of one field whose euler steps are linear, with
    constant numbers.
    """
    tolerance: Annotated[float, Field(gt=0, lt=1)] | None = None
    """For steady, and for implicit steps of a given dt (1e-8 if not given): norm of the residual of
    all cells' heat balance, relative to that of the initial state, or of the best constant one if
    that is larger; for implicit steps relative to the state before the step. For implicit without a
    dt, and for auto (1e-4 if not given): error of a step relative to the range of the state. With
    `model.type: pde` and euler, rk2 or rk4 a tolerance makes steps adaptive: it is the error of
    each substep relative to the largest magnitude of each field; dt is then the time between two
    inspections of the state, and substeps are as long as their errors allow. The same holds for
    etdrk4 and imex, whose steps are adaptive without a dt too (1e-4 if not given).
    """

    @property
    def solves(self) -> bool:
        """Whether states are solutions of systems, not explicit steps from the state before."""
        return self.scheme in ("steady", "implicit")

    @property
    def is_adaptive(self) -> bool:
        """Whether the tolerance decides the length of steps that no stability limits."""
        return self.scheme in ("implicit", *SPLIT) and not isinstance(self.dt, float)

    @property
    def of_balances(self) -> float:
        """Relative residual at which a system counts as solved."""
        return 1e-8 if self.tolerance is None else self.tolerance

    @property
    def of_steps(self) -> float:
        """Tolerated error of a step, relative to the range of the state."""
        return 1e-4 if self.tolerance is None else self.tolerance

    @model_validator(mode="after")
    def _one_of_each(self) -> TimeSection:
        # A steady state has no time, so every key about time is a mistake.
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

        # Adaptive steps end at a time, not after a number of steps: that number is not known.
        if self.is_adaptive and (self.cfl is not None or self.t_end is None):
            msg = (
                f"scheme: {self.scheme} makes steps as long as the tolerance allows; give t_end, "
                "and neither steps nor cfl, or give dt as a number"
            )
            raise ValueError(msg)

        if self.align and self.t_end is None:
            msg = "align reduces dt for outputs and the end of a run; give t_end"
            raise ValueError(msg)

        # Step size and end of the run: exactly one key for each.
        if self.dt is not None and self.cfl is not None:
            msg = "dt and cfl are both given; one follows from the other, so give one"
            raise ValueError(msg)
        if (self.t_end is None) == (self.steps is None):
            msg = "give either t_end or steps"
            if self.until is not None and self.t_end is None:
                msg += ": until ends a run before that, if it gets there"
            raise ValueError(msg)
        return self


# Device names are words of the command line and probe names become file names, so both have
# narrow alphabets.
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


# What `tuning_budget: auto` stands for [s].
_TUNING_SECONDS = 5.0


def split_devices(text: str) -> str | list[str]:
    """The value of compute.devices that a command-line word stands for.

    >>> split_devices("cpu+gpu"), split_devices("gpu:0+cpu"), split_devices("gpu:1")
    ('cpu+gpu', ['gpu:0', 'cpu'], ['gpu:1'])
    """
    # Words such as "cpu+gpu" are values of their own; a comma or a number makes it a list.
    if "," not in text and ":" not in text:
        return text.strip()
    return [part.strip() for part in text.replace("+", ",").split(",")]


class SimulatedSection(Section):
    """Properties of emulated devices (simulated:0, ...): CPU threads that are slowed down and given
    a separate memory, to try schedules on any machine.
    """

    speed: Annotated[float, Field(gt=0)] = 1e9
    """Upper limit of point updates per second."""
    latency: TuningTime = 1e-5
    """Latency of every message to or from the device [s]."""
    bandwidth: Bandwidth = 1e10
    """Bandwidth of its link, in each direction [byte/s]."""
    memory: Memory = 2.0**30
    """Size of its memory [byte]."""
    fail_after: Count | None = None
    """Number of the time block in which it fails; never if not given."""


class ComputeSection(Section):
    """Devices, method, precision and tuning."""

    devices: (
        Literal["auto", "cpu", "gpu", "cpu+gpu"]
        | Annotated[tuple[DeviceName, ...], Field(min_length=1)]
    ) = "auto"
    """The devices that compute: auto takes those predicted to be fastest, gpu all GPUs, cpu+gpu
    also all cores. A list names one worker each: [cpu, cpu] splits the grid between two groups of
    threads; [gpu:0, cpu], or gpu:0+cpu, between a GPU and a group of threads.
    """
    method: str = "auto"
    """Name of a method, or auto: the fastest one that supports the problem."""
    parameters: dict[str, Annotated[int, Field(ge=0, le=2**31 - 1)]] = Field(default={})
    """Tile sizes and similar parameters of the method that is named, for example
    {steps_per_block: 16}. `plan` shows the best ones found; those left out are the method's best
    guess.
    """
    tuning_budget: Literal["auto"] | TuningTime = "auto"
    """Time for measuring methods and parameters, compilation included [s]. auto is 5 s; in a run of
    more than ten times that length each method is tried once, however late. 0 measures nothing and
    takes the fastest known for such a GPU, or the best guess of the first method that supports the
    problem.
    """
    precision: Literal["float64", "float32x2", "float32", "float16"] = "float64"
    """Precision of the state. float16 is summed in float32 and rounded at every step, or once per
    launch that makes several. It takes a quarter of the memory of float64, but the state freezes
    where a launch changes points by less than the spacing of its numbers: plan and report say what
    it costs. It is never chosen automatically. float32x2 is float64 that a GPU may compute as pairs
    of float32, with 48 of 53 bits, where that is measured to be faster.
    """
    time_block: Literal["auto"] | Count = "auto"
    """Number of steps between two halo exchanges."""
    threads: Literal["auto"] | Count = "auto"
    """Number of CPU threads in all, under MPI per rank; auto is one per core that this process may
    use.
    """
    reserve_cores: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """With threads: auto, the number of cores left free, for example to drive a GPU."""
    shares: (
        Literal["auto"] | Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]
    ) = "auto"
    """Relative shares of the grid of the devices, in the order of the list or of the plan; auto
    divides by speed.
    """
    share_gpus: bool = False
    """Under MPI: whether several ranks may compute on one GPU."""
    gpu_messages: Literal["auto", "host", "mpi", "nccl"] = "auto"
    """Under MPI: the path of halos between GPUs of different ranks. host: from GPU to GPU inside a
    computer, where that is possible, else through host memory; mpi: the same, but GPU memory is
    handed to the MPI library, which must be built for it (others crash); nccl: by NVIDIA's library,
    one GPU per rank. auto is the fastest one in a trial.
    """
    gpu_memory: Literal["auto"] | Memory = "auto"
    """Upper limit of the state's memory on each GPU [byte]; auto is the memory that is free. A
    larger grid is shared with the CPU, or streamed through the GPU.
    """
    on_device_failure: Literal["continue", "stop"] = "continue"
    """Whether a run continues without a device that fails, or ends with a checkpoint and exit code
    75.
    """
    simulated: SimulatedSection = SimulatedSection()
    """Properties of emulated devices."""

    @field_validator("devices", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        # Split before validation, so that a word and a list end up as the same value.
        return split_devices(value) if isinstance(value, str) else value

    @property
    def tuning_seconds(self) -> float:
        """Time for measuring methods and parameters [s]."""
        return _TUNING_SECONDS if self.tuning_budget == "auto" else self.tuning_budget


class FieldsSection(Section):
    """The whole field, as HDF5 files."""

    every: Interval | None = None
    """In addition to `at` or instead of it."""
    at: tuple[Moment, ...] = ()
    """Output times that are hit exactly [s]; between two steps the field is linear in time."""
    compression: Literal["none", "gzip", "lz4", "zstd"] = "none"
    """Lossless compression of the values. `lz4` and `zstd` are ten times as fast as `gzip`, and
    need hdf5plugin for writing and reading (`pip install 'tetris-sim[compression]'`).
    """

    @model_validator(mode="after")
    def _some_time(self) -> FieldsSection:
        # An output without a time would be an empty request, most likely a forgotten key.
        if self.every is None and not self.at:
            msg = "neither every nor at is given, so nothing would be written; give one of them"
            raise ValueError(msg)
        return self


class PartSection(FieldsSection):
    """A box of the field, or a slice through it, in the same kind of files as the whole field."""

    name: ProbeName
    """Name of its files, fields-<name>."""
    box: dict[AxisName, tuple[Position, Position]] = Field(default={})
    """Range by axis [m]; an axis that is not named is taken whole."""
    slice: dict[AxisName, Position] = Field(default={})
    """Position of the cut, by axis [m]. Values are interpolated linearly between the surrounding
    points; on a face they are the values of the face.
    """

    @model_validator(mode="after")
    def _less_than_the_whole(self) -> PartSection:
        if not self.box and not self.slice:
            msg = f"{self.name} has neither box nor slice; give one, or take output.fields"
            raise ValueError(msg)
        # An axis is either cut or restricted to a range, never both.
        for axis, (low, high) in self.box.items():
            if axis in self.slice:
                msg = f"{axis} is in box and in slice; give one of them"
                raise ValueError(msg)
            if not low < high:
                msg = f"box.{axis} reaches from {low:g} m to {high:g} m; the lower end comes first"
                raise ValueError(msg)
        return self


Interpolation = Literal["linear", "cubic"]
POINTS_AROUND: Mapping[Interpolation, int] = {"linear": 2, "cubic": 4}  # along each axis


class ProbeSection(Section):
    """The value at one position over time, as CSV."""

    at: Annotated[tuple[Position, ...], Field(min_length=1, max_length=3)]
    """Position along x, y, z, or along the axes of the grid [m]."""
    every: Interval
    interpolation: Interpolation = "linear"
    """Between the points around: linear, up to the value on a face, or cubic, through 4 points
    along each axis; cubic is for equations and stencils.
    """
    name: ProbeName | None = None
    """Name of its file; numbered if not given."""


class OverSection(Section):
    """A part of what is computed: a region, a material, a fluid, a source, or a box."""

    region: str | None = None
    """Where the region of this name is seen."""
    material: str | None = None
    """All cells of this material."""
    fluid: str | None = None
    """All cells of this fluid: the name of its region, or `fluid`."""
    source: str | None = None
    """The cells that the source of this name heats, a block of a floorplan for example."""
    box: dict[AxisName, tuple[Position, Position]] = Field(default={})
    """Range by axis [m]; an axis that is not named is taken whole."""

    @model_validator(mode="after")
    def _is_one(self) -> OverSection:
        named = (self.region, self.material, self.fluid, self.source)
        if len([it for it in (*named, self.box or None) if it]) != 1:
            msg = "give one of region, material, fluid, source and box"
            raise ValueError(msg)
        for axis, (low, high) in self.box.items():
            if not low < high:
                msg = f"box.{axis} reaches from {low:g} m to {high:g} m; the lower end comes first"
                raise ValueError(msg)
        return self


class MeasureSection(Section):
    """A number of the whole state: a formula of integrals, means, largest and smallest values."""

    formula: str
    """Of `integral(...)`, `mean(...)`, `max(...)` and `min(...)` of any formulas that equations may
    have, of constants and t: "integral(u**2)/2".
    """
    unit: str = "1"
    """For tables and plots."""

    @model_validator(mode="before")
    @classmethod
    def _text_alone(cls, value: object) -> object:
        return {"formula": value} if isinstance(value, str) else value


class StatisticsSection(Section):
    """Minimum, maximum, mean and total over time, as CSV."""

    every: Interval
    formulas: dict[ProbeName, MeasureSection] = Field(default={})
    """With `model.type: pde`: more columns, by names of your own, each a formula or a section of
    formula and unit: {energy: "integral(u**2)/2"}.
    """
    over: dict[ProbeName, OverSection] = Field(default={})
    """The same over parts, each by a name of its own that begins the names of its columns. Fluids
    and voids are left out, unless the part is a fluid.
    """
    sources: bool = False
    """The same over each source that has a name, as the blocks of floorplans do, by that name."""

    def parts(self, model: Any) -> dict[str, OverSection]:
        """The parts by name, those of the sources of a model among them."""
        names = [it.name for it in getattr(model, "sources", ()) if self.sources and it.name]
        volumes = [it.name for it in getattr(model, "sources", ()) if it.type == "volume"]
        own = {str(it): OverSection(source=it) for it in names if it in volumes}
        return {**own, **self.over}


class OutputSection(Section):
    """Results: their kinds, intervals and directory."""

    directory: str | None = None
    """Directory of the results; relative paths start at the working directory. Default:
    results/<name of the configuration file>.
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
        # Outputs without a name are numbered later, past the names in use (`outputs/make.py`).
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
    """When the whole state is saved, so that the run can be continued."""

    every: AnyInterval | None = None
    keep: Count = 2
    """Number of the newest checkpoints that are kept."""
    at_end: bool = True
    per_rank: Literal["auto"] | bool = "auto"
    """Under MPI: whether each rank writes its own part into a separate file, which one more file
    presents as a whole, and its slab of whole fields into their file. `auto`: where all ranks are
    on one computer.
    """


class RunSection(Section):
    """Limits of this run."""

    max_walltime: WallTime | None = None
    """Wall time [s] after which the run stops with a checkpoint (exit code 75)."""
    mpi_timeout: WallTime = 60.0
    """Time [s] after the last sign of life of a rank, frozen or on a lost computer, within which
    the others end (exit code 75); 1 s or more.
    """

    @field_validator("mpi_timeout")
    @classmethod
    def _not_too_short(cls, seconds: float) -> float:
        # A busy machine may keep a thread waiting for tenths of a second.
        if seconds < 1.0:
            msg = f"{seconds:g} s was found; a time of 1 s or more is wanted"
            raise ValueError(msg)
        return seconds


class Request(Section):
    """A whole configuration except for its `model`, whose section belongs to the model."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    title: str = ""
    grid: GridSection
    initial: InitialSection | None = None
    """The state at time 0; with `model.type: pde` each field has its own instead."""
    boundaries: Annotated[dict[FaceName, FaceCondition], Field(min_length=1)]
    """By face: x-, x+, y-, ...; `x` means both faces of an axis, `*` every face not named
    otherwise. A list of sections divides a face by location: the first one whose `where` is true
    holds.
    """
    time: TimeSection
    control: dict[ProbeName, ControllerSection] = Field(default={})
    """Controllers, by a name of your own, of sources and faces of `model.type: heat`."""
    compute: ComputeSection = ComputeSection()
    output: OutputSection = OutputSection()
    checkpoint: CheckpointSection = CheckpointSection()
    run: RunSection = RunSection()

    # `schema` in files, `schema_version` in Python.
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    @model_validator(mode="after")
    def _with_axis(self) -> Request:
        # Written into `boundaries`, so that everything reads what holds on each face in one place.
        made = {**self.boundaries, **closed_faces(self.grid, self.boundaries)}
        object.__setattr__(self, "boundaries", made)
        return self

    @property
    def ndim(self) -> int:
        """Number of axes of the grid."""
        return len(self.grid.shape)

    def resolved(self) -> dict[str, Any]:
        """The configuration as plain SI data with defaults filled in; loading it gives an equal
        one.

        Keys without a value are left out.
        """
        found = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        for name, condition in self.boundaries.items():
            if isinstance(condition, AxisFace):
                del found["boundaries"][name]
        return found
