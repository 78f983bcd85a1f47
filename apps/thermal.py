"""Heat conduction: du/dt = diffusivity * laplacian(u), by forward Euler."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, model_validator

from tetris_sim.apps.domain import KeyPath, assemble, make_grid, refuse
from tetris_sim.apps.faces import conductivity_gaps, make_boundary
from tetris_sim.apps.materials import MATERIALS
from tetris_sim.apps.timestep import choose_time_step
from tetris_sim.catalogue import laplacian, laplacian_names
from tetris_sim.errors import ConfigError
from tetris_sim.problem import Problem, Total, Variable
from tetris_sim.quantities import Conductivity, Density, Diffusivity, SpecificHeat
from tetris_sim.schema import Request
from tetris_sim.section import Section
from tetris_sim.stencil import Stencil, euler_step, largest_stable_dt
from tetris_sim.wording import suggestion

# tables round to two or three digits, so properties that belong together differ by up to that
_AGREEMENT = 0.01
_MOST_UNEQUAL = 1e50  # spacing ratios whose fourth power is still far from overflow
_HEAT_UNIT = {1: "J/m^2", 2: "J/m", 3: "J"}  # per square metre of cross-section, per metre of depth


def _known_material(name: str) -> str:
    if name not in MATERIALS:
        meant = suggestion(name, MATERIALS)
        msg = (
            f"{name!r} is not in the table{meant}; known are {', '.join(MATERIALS)}; or give a "
            "diffusivity"
        )
        raise ValueError(msg)
    return name


@dataclass(frozen=True)
class Body:
    """Thermal properties of a body, as far as they are known.

    Attributes:
        diffusivity: [m^2/s].
        conductivity: [W/(m K)].
        heat_capacity: density * specific heat [J/(m^3 K)].
    """

    diffusivity: float
    conductivity: float | None
    heat_capacity: float | None


class HeatModel(Section):
    """Heat conduction in a body at rest with constant properties."""

    type: Literal["heat"]
    material: Annotated[str, AfterValidator(_known_material)] | None = None
    """A name of the table of materials; numbers given besides it count more than the table's."""
    diffusivity: Diffusivity | None = None
    """conductivity / (density * specific_heat) [m^2/s]."""
    conductivity: Conductivity | None = None
    """[W/(m K)]; needed where heat flows through a face at a given rate."""
    density: Density | None = None
    """[kg/m^3]."""
    specific_heat: SpecificHeat | None = None
    """[J/(kg K)]."""
    stencil: str | None = None
    """Which Laplacian, by the name of its stencil; the usual one (3, 5 or 7 points) if not given.
    """

    @model_validator(mode="after")
    def _enough_and_consistent(self) -> HeatModel:
        explicit = (self.diffusivity, self.conductivity, self.density, self.specific_heat)
        if None not in explicit:
            a, k, rho, c = (float(number or 0.0) for number in explicit)
            if not math.isclose(a, k / rho / c, rel_tol=_AGREEMENT):
                msg = (
                    f"diffusivity is {a:.6g} m^2/s, but conductivity / (density * specific_heat) "
                    f"is {k / rho / c:.6g} m^2/s; leave one of the four out, or correct it"
                )
                raise ValueError(msg)

        body = self.body()
        if not all(
            0 < number < math.inf for number in dataclasses.astuple(body) if number is not None
        ):
            msg = f"the numbers lead to {body}, beyond what can be computed; correct them"
            raise ValueError(msg)

        return self

    def body(self) -> Body:
        """The properties that follow from the material and the numbers given.

        With a diffusivity of your own, conductivity and heat capacity are made to fit it: the heat
        that enters through a face is then the heat that the body gains. Beside a material it is the
        heat capacity that stays.

        Raises:
            ValueError: the diffusivity does not follow.
        """
        table = None if self.material is None else MATERIALS[self.material]
        density, specific_heat, conductivity = self.density, self.specific_heat, self.conductivity

        if table is not None:
            density = table.density if density is None else density
            specific_heat = table.specific_heat if specific_heat is None else specific_heat
            conductivity = table.conductivity if conductivity is None else conductivity
        capacity = None if density is None or specific_heat is None else density * specific_heat

        if self.diffusivity is None:
            if density is None or specific_heat is None or conductivity is None:
                msg = (
                    "give a material, or a diffusivity, or conductivity and density and "
                    "specific_heat"
                )
                raise ValueError(msg)
            return Body(conductivity / density / specific_heat, conductivity, capacity)

        if self.conductivity is not None:
            return Body(self.diffusivity, self.conductivity, self.conductivity / self.diffusivity)
        return Body(
            self.diffusivity, None if capacity is None else self.diffusivity * capacity, capacity
        )

    def problems(self, request: Request) -> Iterable[tuple[KeyPath, str]]:
        """What does not fit between this section and the others, with its key path."""
        allowed = laplacian_names(request.ndim)
        if self.stencil is not None and self.stencil not in allowed:
            yield (
                ("model", "stencil"),
                (
                    f"{self.stencil!r} is no Laplacian of a grid of {request.ndim} axes; allowed "
                    f"are {', '.join(allowed)}"
                ),
            )

        if self.body().conductivity is None:
            for key, kind in conductivity_gaps(request.boundaries, request.ndim):
                yield (
                    ("boundaries", key),
                    (
                        f"{kind} needs the conductivity of the body; give model.material, or "
                        "model.conductivity"
                    ),
                )

    def build(self, request: Request, *, dt: float | None = None) -> Problem:
        """The problem that the configuration describes.

        Args:
            request: the other sections.
            dt: the time step of a run that is continued [s]; it is kept, and the steps are counted
                anew.

        Raises:
            ConfigError: the sections do not fit together.
            UnstableStepError: the time step is larger than the limit.
        """
        refuse(self.problems(request))
        grid = make_grid(request.grid)

        smallest, diffusivity = min(grid.spacing), self.body().diffusivity
        operator = heat_operator(self.stencil, grid.spacing)
        cfl_unit = smallest * smallest / diffusivity
        dt_limit = largest_stable_dt(operator) * cfl_unit
        chosen = choose_time_step(request.time, dt_limit=dt_limit, cfl_unit=cfl_unit, dt=dt)

        return assemble(
            request,
            grid=grid,
            stencil=euler_step(operator, chosen[0] / cfl_unit),
            boundary=make_boundary(
                request.boundaries, grid.ndim, conductivity=self.body().conductivity
            ),
            variable=Variable("temperature", "degC", "temperature", self._total(grid.ndim)),
            time=chosen,
            dt_limit=dt_limit,
            continued=dt is not None,
        )

    def _total(self, ndim: int) -> Total:
        capacity = self.body().heat_capacity
        if capacity is None:
            return Total("integral", f"degC m^{ndim}" if ndim > 1 else "degC m", 1.0)
        return Total("heat", _HEAT_UNIT[ndim], capacity)


def heat_operator(name: str | None, spacing: tuple[float, ...]) -> Stencil:
    """The Laplacian in units of 1 / (smallest spacing)^2.

    In these units a time step is a CFL number: nothing overflows, and the weights of a step on
    equal spacings are those of the paper's equation 3.

    Args:
        name: one of `laplacian_names`; None for the usual one.
        spacing: distance between points per axis [m], array order.

    Raises:
        ConfigError: the spacings differ by more than can be computed.
    """
    smallest = min(spacing)
    if max(spacing) > _MOST_UNEQUAL * smallest:
        msg = (
            f"grid: spacings of {smallest:g} m and {max(spacing):g} m differ by more than a factor "
            f"of {_MOST_UNEQUAL:g}"
        )
        raise ConfigError(msg)
    return laplacian(name or laplacian_names(len(spacing))[0], tuple(h / smallest for h in spacing))
