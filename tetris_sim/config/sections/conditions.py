"""Configuration sections of the initial state and of the boundary conditions on faces.

As in all sections (`schema.py`), numbers are SI and lists along axes are in the order x, y, z.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tetris_sim.config.sections.quantities import (
    AnyNumber,
    Conductivity,
    Position,
    PositiveLength,
    Section,
    Temperature,
    TemperatureDifference,
    Time,
)
from tetris_sim.config.sections.varying import (
    FaceCoefficient,
    FaceFlux,
    FaceNumber,
    FaceTemperature,
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


class RobinFace(PatchSection):
    """Convection: k dT/dn = h (ambient - T) + flux, n outward."""

    type: Literal["robin", "convection"]
    h: FaceCoefficient
    ambient: FaceTemperature
    flux: FaceFlux = 0.0
    """Heat flux into the body besides [W/m^2]."""
    conductivity: Conductivity | None = None
    """Of the body; that of the material if not given. A bare stencil has no material."""


class RadiationFace(PatchSection):
    """Radiation to large surroundings: k dT/dn = emissivity sigma (ambient^4 - T^4), T in kelvin,
    plus convection if `h` is given, plus a flux.
    """

    type: Literal["radiation"]
    emissivity: Annotated[float, Field(gt=0, le=1)]
    ambient: FaceTemperature
    """Temperature of the surroundings, and of the air if `h` is given."""
    h: FaceCoefficient = 0.0
    flux: FaceFlux = 0.0
    """Heat flux into the body besides [W/m^2]."""


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
