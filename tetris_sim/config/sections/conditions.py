"""Configuration sections of the initial state, of the boundary conditions on faces, and of the
controllers and events that depend on the state.

As in all sections (`schema.py`), numbers are SI and lists along axes are in the order x, y, z.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from tetris_sim.config.sections.quantities import (
    AnyNumber,
    Conductivity,
    Interval,
    Position,
    PositiveDuration,
    PositiveLength,
    Section,
    Speed,
    Temperature,
    TemperatureDifference,
    Time,
)
from tetris_sim.config.sections.varying import (
    FaceCoefficient,
    FaceEmissivity,
    FaceFlux,
    FaceNumber,
    FaceTemperature,
    VaryingSetpoint,
)

# The pattern admits axis names and the wildcard; which entry decides about a face (its own name
# before its axis before `*`) is resolved by `find_face` in `apps/boundaries.py`.
FaceName = Annotated[
    str,
    Field(
        pattern=r"^(\*|([xyzr]|theta)[-+]?)$",
        description="a face (x-, x+, y-, ..., x for both faces of an axis, * for the rest)",
    ),
]


# Initial states. Each is a function of position, so that any process can evaluate its own part.
class GaussianInitial(Section):
    """background + amplitude * exp(-|r - center|^2 / (2 sigma^2))."""

    type: Literal["gaussian"]
    amplitude: TemperatureDifference
    """Height above the background: a temperature difference, the same in K and in degC."""
    sigma: PositiveLength
    """Standard deviation [m]."""
    center: tuple[Position, ...] | None = None
    """Position of the maximum along x, y, z [m]; the middle of the box if not given."""
    background: Temperature = 0.0


class ExpressionInitial(Section):
    """A formula in x, y, z [m], Lx, Ly, Lz [m], pi, and constants of your own; the functions it may
    call are listed above.
    """

    type: Literal["expression"]
    expression: str
    constants: dict[str, AnyNumber] = Field(default={})
    """By name: numbers, with units if you like (converted to SI)."""


class ConstantInitial(Section):
    """A uniform value."""

    type: Literal["constant"]
    value: Temperature


class FileInitial(Section):
    """A .npy array, a dataset of an HDF5 file, or a greyscale picture, of the grid's shape (z, y,
    x).
    """

    type: Literal["file"]
    path: str
    """Relative paths start at the folder of the configuration file."""
    dataset: str | None = None
    """For HDF5: the name of the dataset; needed if the file has more than one."""
    black: Temperature = 0.0
    """For pictures: the value of black."""
    white: Temperature = 1.0
    """For pictures: the value of white."""


class RandomInitial(Section):
    """Uniform random numbers for tests and benchmarks; a seed gives the same numbers on any machine
    and for any partition.
    """

    type: Literal["random"]
    low: Temperature = 0.0
    high: Temperature = 1.0
    seed: Annotated[int, Field(ge=0, le=2**128 - 1)] = 0


class RunInitial(Section):
    """The state of another run on the same number of points; everything else may differ."""

    type: Literal["run"]
    # `from` is a keyword of Python, so the attribute needs another name.
    directory: str = Field(alias="from")
    """Its results directory; relative paths start at the configuration file."""
    at: Literal["last"] | Time = "last"
    """Simulated time [s] in that run, one at which it wrote fields or a checkpoint; the latest one
    if not given.
    """


# Pydantic selects the section by `type`, so errors are those of one section and not of all.
InitialSection = Annotated[
    GaussianInitial
    | ExpressionInitial
    | ConstantInitial
    | FileInitial
    | RandomInitial
    | RunInitial,
    Field(discriminator="type"),
]


class PatchSection(Section):
    """One face, or part of a face where the face is given as a list of sections."""

    where: str | None = None
    """In a list: a condition in x, y, z that selects the points of this entry, for example
    `x < 1e-3`; without it, all points that no earlier entry has selected.
    """


class DirichletFace(PatchSection):
    """Prescribed value on the face itself."""

    type: Literal["dirichlet", "temperature"]
    value: FaceTemperature


class FixedFace(PatchSection):
    """Prescribed value at the ghost points beyond the face."""

    type: Literal["fixed"]
    value: FaceTemperature


class NeumannFace(PatchSection):
    """Prescribed heat flux into the body [W/m^2]; 0 means insulated."""

    type: Literal["neumann", "heat_flux", "insulated", "symmetry"]
    flux: FaceFlux = 0.0
    conductivity: Conductivity | None = None
    """Of the body; that of the material if not given. A flux of 0 needs none."""

    @model_validator(mode="after")
    def _as_its_name_says(self) -> NeumannFace:
        if self.type in ("insulated", "symmetry") and self.flux != 0:
            msg = f"nothing flows through a face of type {self.type}; take heat_flux for a flux"
            raise ValueError(msg)
        if self.type == "heat_flux" and "flux" not in self.model_fields_set:
            msg = "heat_flux needs flux, for example 500 W/m^2; insulated has none"
            raise ValueError(msg)
        return self


class RadiationTerm(Section):
    """One of several surroundings to which a face radiates; all of them add."""

    emissivity: FaceEmissivity
    """0 to 1; or a formula of x, y, z, t and T, the temperature of the face [degC]."""
    ambient: FaceTemperature
    """Temperature of these surroundings."""


class NaturalConvection(Section):
    """Convection of a fluid at rest, by a correlation for the mean over a surface."""

    correlation: Literal[
        "vertical plate", "horizontal plate up", "horizontal plate down", "cylinder", "sphere"
    ]
    """Where a horizontal plate looks to. A cylinder lies. A plate that is colder than the fluid
    behaves as a warm one that looks the other way.
    """
    length: PositiveLength
    """Height of a vertical plate, area over perimeter of a horizontal one, diameter of others
    [m].
    """
    fluid: Literal["air", "water"] = "air"
    """Air at 1 atm."""


class ForcedConvection(Section):
    """Convection of a flow along a plate, or through a tube, by a correlation for its mean."""

    correlation: Literal["plate", "tube"]
    length: PositiveLength
    """Of the plate along the flow; the diameter of a tube [m]."""
    speed: Speed
    """Of the flow [m/s]."""
    fluid: Literal["air", "water"] = "air"
    """Air at 1 atm."""


class ExchangeFace(PatchSection):
    """A face that exchanges heat with what is around it; all that is given adds up."""

    radiation: tuple[RadiationTerm, ...] = ()
    """Of a body: more surroundings to which the face radiates."""
    natural: NaturalConvection | None = None
    """Of a body: convection of a fluid at rest at `ambient`, by a correlation."""
    forced: ForcedConvection | None = None
    """Of a body: convection of a flow at `ambient`, by a correlation."""

    @property
    def correlations(self) -> dict[str, NaturalConvection | ForcedConvection]:
        """Those that are given, by key."""
        given = {"natural": self.natural, "forced": self.forced}
        return {key: it for key, it in given.items() if it}

    @property
    def is_linear(self) -> bool:
        """Whether nothing but `h` and `flux` is given, which do not depend on the temperature if
        they are numbers.
        """
        return not self.radiation and not self.correlations


class RobinFace(ExchangeFace):
    """Convection: k dT/dn = h (ambient - T) + flux, n outward; with `radiation`, that besides."""

    type: Literal["robin", "convection"]
    h: FaceCoefficient = 0.0
    """[W/(m^2 K)]; of a body also a formula of T, the temperature of the face [degC]. Not needed
    with `natural` or `forced`.
    """
    ambient: FaceTemperature
    flux: FaceFlux = 0.0
    """Heat flux into the body besides [W/m^2]."""
    conductivity: Conductivity | None = None
    """Of the body; that of the material if not given. A bare stencil has no material."""

    @model_validator(mode="after")
    def _knows_h(self) -> RobinFace:
        if "h" not in self.model_fields_set and not self.correlations:
            msg = f"{self.type} needs h, or a correlation as natural or forced"
            raise ValueError(msg)
        return self


class RadiationFace(ExchangeFace):
    """Radiation to large surroundings: k dT/dn = emissivity sigma (ambient^4 - T^4), T in kelvin,
    plus convection if `h` is given, plus a flux.
    """

    type: Literal["radiation"]
    emissivity: FaceEmissivity = 0.0
    """0 to 1; or a formula of x, y, z, t and T, the temperature of the face [degC].
    Not needed with a list in `radiation`.
    """
    ambient: FaceTemperature = 0.0
    """Temperature of the surroundings, and of the air if `h` is given."""
    h: FaceCoefficient = 0.0
    """[W/(m^2 K)]; also a formula of T, the temperature of the face [degC]."""
    flux: FaceFlux = 0.0
    """Heat flux into the body besides [W/m^2]."""

    @model_validator(mode="after")
    def _knows_its_surroundings(self) -> RadiationFace:
        given = self.model_fields_set
        if "emissivity" not in given and not self.radiation:
            msg = "radiation needs emissivity and ambient, or a list of them in radiation"
            raise ValueError(msg)
        if "ambient" not in given and (given & {"emissivity", "h"} or self.correlations):
            msg = "radiation needs ambient, the temperature of the surroundings"
            raise ValueError(msg)
        return self


class AxisFace(NeumannFace):
    """The axis or the centre of cylindrical and spherical coordinates, filled in by itself: it has
    no area, so nothing flows through it, and a configuration has no such section.
    """


class PeriodicFace(Section):
    """Periodic: the face is joined to the opposite one."""

    type: Literal["periodic"]


class NoFluxFace(Section):
    """Of equations: nothing flows through the face, whatever makes it flow."""

    type: Literal["no_flux"]


class ClampedFace(Section):
    """Of equations of fourth order: value and slope along the outward normal."""

    type: Literal["clamped"]
    value: FaceTemperature = 0.0
    slope: FaceNumber = 0.0


class SupportedFace(Section):
    """Of equations of fourth order, simply supported: value and second derivative."""

    type: Literal["supported"]
    value: FaceTemperature = 0.0
    curvature: FaceNumber = 0.0


class FreeFace(Section):
    """Of equations of fourth order along one axis: second and third derivative are 0."""

    type: Literal["free"]


class CurvatureFace(Section):
    """Of equations: the second derivative along the normal."""

    type: Literal["curvature"]
    curvature: FaceNumber = 0.0


class ExtrapolatedFace(Section):
    """Of equations: nothing is given; the field goes on beyond the face as beside it."""

    type: Literal["extrapolate"]


# A periodic face joins two whole faces, so it cannot be one entry of a list.
Patch = Annotated[
    DirichletFace | FixedFace | NeumannFace | RobinFace | RadiationFace,
    Field(discriminator="type"),
]
FaceSection = Annotated[
    DirichletFace
    | FixedFace
    | NeumannFace
    | RobinFace
    | RadiationFace
    | PeriodicFace
    | NoFluxFace
    | ClampedFace
    | SupportedFace
    | FreeFace
    | CurvatureFace
    | ExtrapolatedFace,
    Field(discriminator="type"),
]
Patches = Annotated[tuple[Patch, ...], Field(min_length=1)]
OF_EQUATIONS = (
    NoFluxFace,
    ClampedFace,
    SupportedFace,
    FreeFace,
    CurvatureFace,
    ExtrapolatedFace,
)
FaceCondition = FaceSection | Patches
"""Condition of a face: one section, or a list by location, of which the first match holds."""


# What is decided while a run goes on: the events that end it, controllers of sources and faces.

Target = Annotated[
    str,
    Field(
        pattern=r"^(([xyzr]|theta)[-+]?|\*)\.(flux|h)$|^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$",
        description="the name of a source, or the flux or h of a face such as z+.h",
    ),
]


class SensorSection(Section):
    """One number of the state that is looked at while the run goes on."""

    probe: str | None = None
    """The value at the probe of this name, of `output.probes`."""
    mean: str | None = None
    """The mean by volume over the region of this name, or a part of `output.statistics.over`."""
    field: str | None = None
    """The field, of a model with several; the first one if not given."""

    @model_validator(mode="after")
    def _one_place(self) -> SensorSection:
        if (self.probe is None) == (self.mean is None):
            msg = "give either probe or mean"
            raise ValueError(msg)
        return self

    @property
    def place(self) -> str:
        """The sensor in words."""
        place = f"probe {self.probe}" if self.mean is None else f"mean of {self.mean}"
        return place if self.field is None else f"{self.field}, {place}"


class EventSection(SensorSection):
    """A sensor above or below a value."""

    above: Temperature | None = None
    """[degC], or for other variables than temperature a number in their unit."""
    below: Temperature | None = None
    """Likewise."""

    @model_validator(mode="after")
    def _one_side(self) -> EventSection:
        if (self.above is None) == (self.below is None):
            msg = "give either above or below"
            raise ValueError(msg)
        return self

    @property
    def sign(self) -> float:
        """1 if it is to be above the limit, -1 if below."""
        return 1.0 if self.below is None else -1.0

    @property
    def limit(self) -> float:
        """The value it is to be above or below of."""
        return float(self.above if self.above is not None else self.below or 0.0)

    @property
    def text(self) -> str:
        """It as a sentence without its end."""
        return f"{self.place} {'above' if self.sign > 0 else 'below'} {self.limit:g}"


class PidSection(Section):
    """Gains of a PID controller: gain * (e + integral of e / integral_time + derivative_time *
    de/dt), with e the distance from the setpoint; the derivative is that of the sensor alone, and
    the integral stands still where the output is at a limit and e would drive it further.
    """

    gain: AnyNumber
    """Output per kelvin [1/K]."""
    integral_time: PositiveDuration | None = None
    """[s]; no integral if not given."""
    derivative_time: PositiveDuration | None = None
    """[s]; no derivative if not given."""
    bias: AnyNumber = 0.0
    """Output without any of these."""


class ControllerSection(Section):
    """A controller: a thermostat with hysteresis (band), or a PID controller (setpoint and pid).
    Its output multiplies what it switches: 1 or 0 of a thermostat, a number within limits of a PID
    controller.
    """

    sensor: SensorSection | None = None
    output: AnyNumber | None = None
    """Instead of a sensor: the output until `Simulation.set_control` gives another one."""
    band: tuple[Temperature, Temperature] | None = None
    """A thermostat switches on below the first and off above the second; the reverse to cool."""
    setpoint: VaryingSetpoint | None = None
    """What is to be reached [degC]: a number, a formula of t, or a table, such as
    `{table: [[6 h, 21 degC], [22 h, 16 degC]], hold: true, period: 24 h}`.
    """
    hysteresis: TemperatureDifference | None = None
    """Of a thermostat with a setpoint instead of a band: the width of the band around it [K]."""
    pid: PidSection | None = None
    switches: Target | tuple[Target, ...] = ()
    """What it acts on: names of sources, and `z+.flux` or `z+.h` of faces."""
    action: Literal["heat", "cool"] = "heat"
    """Whether more of it makes the sensor warmer or colder."""
    limits: tuple[AnyNumber, AnyNumber] = (0.0, 1.0)
    """Least and largest output of a PID controller."""
    begins: Literal["on", "off"] = "off"
    """State of a thermostat that begins inside its band."""
    every: Interval | None = None
    """How often it looks: a PID controller at each step if not given. A thermostat looks at the
    step at which its sensor can be at a limit, judging by how fast it moves, and at the latest
    after this, or 64 steps.
    """

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of sources and faces that it acts on."""
        return (self.switches,) if isinstance(self.switches, str) else self.switches

    @model_validator(mode="after")
    def _one_kind(self) -> ControllerSection:
        # Each kind has keys of its own; one that would do nothing is a mistake.
        if (self.sensor is None) == (self.output is None):
            msg = "give a sensor, as {probe: NAME}, or an output that Python changes"
            raise ValueError(msg)
        if self.output is not None:
            if self.band or self.setpoint is not None or self.pid or self.hysteresis is not None:
                msg = "output stands instead of band, setpoint, hysteresis and pid"
                raise ValueError(msg)
        elif self.pid is not None:
            if self.setpoint is None or self.band is not None or self.hysteresis is not None:
                msg = "a PID controller has a setpoint, and neither band nor hysteresis"
                raise ValueError(msg)
        elif self.band is not None:
            if self.setpoint is not None or self.hysteresis is not None:
                msg = "give either band, or setpoint and hysteresis, of a thermostat"
                raise ValueError(msg)
        elif self.setpoint is None or self.hysteresis is None or self.hysteresis <= 0:
            msg = (
                "give band: [19 degC, 21 degC] or setpoint and hysteresis of a thermostat, or "
                "setpoint and pid"
            )
            raise ValueError(msg)

        # Ends in the wrong order would switch at every look.
        if self.band is not None and not self.band[0] < self.band[1]:
            msg = f"band is from {self.band[0]:g} to {self.band[1]:g}; the lower end comes first"
            raise ValueError(msg)
        if not self.limits[0] < self.limits[1]:
            msg = f"limits are {self.limits[0]:g} and {self.limits[1]:g}; the lower comes first"
            raise ValueError(msg)
        if not self.targets:
            msg = "switches: missing; the name of a source, or z+.h or z+.flux of a face is wanted"
            raise ValueError(msg)
        return self


def first_output(section: ControllerSection) -> float:
    """The output of a controller before its first look."""
    if section.output is not None:
        return float(section.output)
    if section.pid is None:
        return float(section.begins == "on")
    return float(min(max(section.pid.bias, section.limits[0]), section.limits[1]))


Found = Iterator[tuple[tuple[str | int, ...], str]]


def sensors_in(request: Any) -> Iterator[tuple[tuple[str | int, ...], SensorSection]]:
    """Every sensor of a configuration with its key path."""
    until = request.time.until
    for kind in ("any", "all") if until is not None else ():
        for number, event in enumerate(getattr(until, kind)):
            yield ("time", "until", kind, number), event
    for name, section in request.control.items():
        if section.sensor is not None:
            yield ("control", name, "sensor"), section.sensor


def control_mistakes(
    request: Any, names: Mapping[str, tuple[str, ...]], solves_once: bool
) -> Found:
    """Yield names that do not exist, and controllers of what cannot be controlled, with key paths.

    Args:
        request: the configuration without its model.
        names: the names that exist: fields, regions, sources.
        solves_once: whether the run makes no steps.
    """
    # Probes that are numbered have no name that anybody could have written.
    probes = [it.name for it in request.output.probes if it.name is not None]
    statistics = request.output.statistics
    parts = [*names["regions"], *({} if statistics is None else statistics.over)]
    for path, sensor in sensors_in(request):
        known = {"probe": probes, "mean": parts, "field": list(names["fields"])}
        places = {"probe": "output.probes with a name", "mean": "model.regions with a name"}
        for key, there in known.items():
            wanted = getattr(sensor, key)
            if wanted is not None and wanted not in there:
                listed = ", ".join(there) or "none is there"
                yield (*path, key), f"{wanted!r} is no {places.get(key, 'field')}; {listed}"

    # A face that is covered by `*` has no key of its own to name.
    faces = {
        f"{face}.{key}"
        for face, condition in request.boundaries.items()
        for section in (condition if isinstance(condition, tuple) else (condition,))
        for key in ("flux", "h")
        if hasattr(section, key)
    }
    # The factors of two controllers of one source would multiply, surely by mistake.
    taken: dict[str, str] = {}
    for name, section in request.control.items():
        if solves_once:
            yield ("control", name), "scheme: steady makes no steps, so nothing is controlled"
        for target in section.targets:
            if target not in (*names["sources"], *faces):
                known_targets = ", ".join([*names["sources"], *sorted(faces)]) or "there is none"
                yield (
                    ("control", name, "switches"),
                    f"{target!r} is no source with a name, and no flux or h of a face that is "
                    f"written in boundaries; {known_targets}",
                )
            if taken.setdefault(target, name) != name:
                told = f"{target} is switched by {taken[target]} already"
                yield ("control", name, "switches"), told
