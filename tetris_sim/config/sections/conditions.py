"""The sections of a configuration that say what the state is at time 0 and at the faces.

As for all sections (`schema.py`), numbers are SI, and lists along axes are in the order x, y, z.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tetris_sim.config.sections.quantities import (
    AnyNumber,
    Conductivity,
    Length,
    PositiveLength,
    Section,
    Temperature,
    TemperatureDifference,
    Time,
)
from tetris_sim.config.sections.varying import VaryingCoefficient, VaryingFlux, VaryingTemperature

FaceName = Annotated[
    str,
    Field(
        pattern=r"^(\*|[xyz][-+]?)$",
        description="a face (x-, x+, y-, ..., x for both faces of an axis, * for the rest)",
    ),
]


class GaussianInitial(Section):
    """background + amplitude * exp(-|r - center|^2 / (2 sigma^2))."""

    type: Literal["gaussian"]
    amplitude: TemperatureDifference
    """Height above the background; a difference, in kelvin or degC alike."""
    sigma: PositiveLength
    """Standard deviation [m]."""
    center: tuple[Length, ...] | None = None
    """Position of the maximum along x, y, z [m]; the middle of the box if not given."""
    background: Temperature = 0.0


class ExpressionInitial(Section):
    """A formula in x, y, z [m], Lx, Ly, Lz [m], pi, and constants of your own; what it may call is
    listed above.
    """

    type: Literal["expression"]
    expression: str
    constants: dict[str, AnyNumber] = Field(default={})
    """By name: numbers, with units if you like (they are SI then)."""


class ConstantInitial(Section):
    """The same value everywhere."""

    type: Literal["constant"]
    value: Temperature


class FileInitial(Section):
    """A .npy array, a dataset of an HDF5 file, or a greyscale picture, of the grid's shape (z, y,
    x).
    """

    type: Literal["file"]
    path: str
    """Relative paths start at the configuration file."""
    dataset: str | None = None
    """For HDF5: which dataset; needed if the file has more than one."""
    black: Temperature = 0.0
    """For pictures: the value that black stands for."""
    white: Temperature = 1.0
    """For pictures: the value that white stands for."""


class RandomInitial(Section):
    """Uniform random numbers, the same for a seed on any machine and any partition: for tests and
    benchmarks.
    """

    type: Literal["random"]
    low: Temperature = 0.0
    high: Temperature = 1.0
    seed: Annotated[int, Field(ge=0, le=2**128 - 1)] = 0


class RunInitial(Section):
    """The state of another run on as many points; everything else may differ."""

    type: Literal["run"]
    directory: str = Field(alias="from")
    """Its results directory; relative paths start at the configuration file."""
    at: Literal["last"] | Time = "last"
    """Simulated time of it [s], one of those at which it wrote fields or a checkpoint; the latest
    of them if not given.
    """


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
    """A face, or in a list of several: a part of one."""

    where: str | None = None
    """In a list: the points of the face that this entry is about, a condition in x, y, z, for
    example `x < 1e-3`; all that no earlier entry is about if not given.
    """


class DirichletFace(PatchSection):
    """The value on the face."""

    type: Literal["dirichlet"]
    value: VaryingTemperature


class FixedFace(PatchSection):
    """A ghost ring held at a value."""

    type: Literal["fixed"]
    value: VaryingTemperature


class NeumannFace(PatchSection):
    """The flux into the body [W/m^2]; 0 is insulated."""

    type: Literal["neumann"]
    flux: VaryingFlux = 0.0
    conductivity: Conductivity | None = None
    """Of the body; taken from the material if not given. A flux of 0 needs none."""


class RobinFace(PatchSection):
    """Convection: k dT/dn = h (ambient - T), n outward."""

    type: Literal["robin"]
    h: VaryingCoefficient
    ambient: VaryingTemperature
    conductivity: Conductivity | None = None
    """Of the body; taken from the material if not given. A bare stencil has none to take."""


class RadiationFace(PatchSection):
    """Radiation to large surroundings: k dT/dn = emissivity sigma (ambient^4 - T^4), in kelvin, and
    convection besides if `h` is given.
    """

    type: Literal["radiation"]
    emissivity: Annotated[float, Field(gt=0, le=1)]
    ambient: VaryingTemperature
    """Of the surroundings, and of the air if `h` is given."""
    h: VaryingCoefficient = 0.0


class PeriodicFace(Section):
    """Joined to the opposite face."""

    type: Literal["periodic"]


Patch = Annotated[
    DirichletFace | FixedFace | NeumannFace | RobinFace | RadiationFace,
    Field(discriminator="type"),
]
FaceSection = Annotated[
    DirichletFace | FixedFace | NeumannFace | RobinFace | RadiationFace | PeriodicFace,
    Field(discriminator="type"),
]
Patches = Annotated[tuple[Patch, ...], Field(min_length=1)]
FaceCondition = FaceSection | Patches
"""Of a face: one condition, or a list of them by place, of which the first that fits holds."""
