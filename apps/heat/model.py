"""Heat conduction: the section `model` of type heat, and the `Problem` it describes.

A homogeneous body with constant conditions becomes one constant stencil of forward Euler for du/dt
= diffusivity * laplacian(u); any other body becomes finite volumes with a conductance per face.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from tetris_sim.apps.boundaries import conductivity_gaps, is_constant, make_boundary
from tetris_sim.apps.domain import (
    KeyPath,
    assemble,
    choose_time_step,
    make_grid,
    refuse,
    times_of,
)
from tetris_sim.apps.heat.boundaries import aligned, correlation_notes, going, key_path, phase_notes
from tetris_sim.apps.heat.conduction import Body, examine, examine_all
from tetris_sim.apps.heat.electric import ElectricSection
from tetris_sim.apps.heat.labels import with_blocks
from tetris_sim.apps.heat.lumps import Lumps
from tetris_sim.apps.heat.materials import MATERIALS, ContactSection, make_view, view_around_voids
from tetris_sim.apps.heat.motion import Velocity, moments_of
from tetris_sim.apps.heat.moving import Advection, Carrying, carry, set_in_motion
from tetris_sim.apps.heat.sections import (
    KnownMaterial,
    MaterialSection,
    RegionSection,
    Substance,
    body_problems,
)
from tetris_sim.apps.heat.sources import BeamSource, Source
from tetris_sim.apps.heat.streams import StreamSections
from tetris_sim.apps.initial_file import Box
from tetris_sim.apps.stencil import heat_operator
from tetris_sim.config.sections.quantities import (
    Conductivity,
    Density,
    Diffusivity,
    Section,
    SpecificHeat,
)
from tetris_sim.config.sections.schema import Request
from tetris_sim.errors import ConfigError, UnstableStepError
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem, StateVariable, Total
from tetris_sim.model.slab import WAYS_TO_GO, Phases
from tetris_sim.model.stencil import euler_step, largest_stable_dt, star_mean
from tetris_sim.model.stencils.catalogue import catalogue, laplacian_names
from tetris_sim.support.wording import suggestion

# Relative. Tables round to two or three digits, so properties that belong together differ by this.
_AGREEMENT = 0.01
_HEAT_UNIT = {1: "J/m^2", 2: "J/m", 3: "J"}  # per square metre of cross-section, per metre of depth


@dataclass(frozen=True)
class ThermalProperties:
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
    """Heat conduction in a body at rest: of one material, or of several in regions of space."""

    type: Literal["heat"]
    material: KnownMaterial | None = None
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
    Only for a body of one material without sources, with conditions of numbers on whole faces.
    """
    materials: dict[str, KnownMaterial | MaterialSection] = Field(default={})
    """Instead of `material` and numbers: what `regions` are made of, by a name of your own; a name
    of the table, or a section.
    """
    library: str | None = None
    """A YAML file of further materials by name, each with the keys of a material and `source`."""
    regions: tuple[RegionSection, ...] = ()
    """What is where; later ones lie over earlier ones, and every point is in one."""
    contacts: tuple[ContactSection, ...] = ()
    """Resistances of joints."""
    sources: tuple[Source, ...] = ()
    """What heats the body."""
    lumps: Lumps = Field(default={})
    """By name: parts of one temperature, such as sinks, tanks and rooms, that exchange heat with
    faces, regions and fluids, with surroundings and with each other.
    """
    streams: StreamSections = Field(default={})
    """By name: liquids and gases that flow through cells along paths, in cold plates, pipes and
    channels.
    """
    electric: ElectricSection | None = None
    """Currents between electrodes, which heat the body."""
    velocity: Velocity | None = None
    """How the material moves through the cells, which stay, in the frame of a tool for example: [x,
    y, z], speeds or formulas of place [m/s], or {omega, centre, axis} of a rotation. Regions may
    have their own; a region of which nothing moves has [0, 0, 0].
    """
    advection: Advection = "auto"
    """How what moves carries heat from cell to cell: central is of second order and oscillates
    where the cell Peclet number is above 2, upwind is of first order and never oscillates; minmod,
    van_leer and superbee are upwind with limited slopes. auto is central where that does not
    oscillate, else van_leer.
    """

    _left_over: tuple[tuple[int, str], ...] = PrivateAttr(default=())  # of traces, by source

    @model_validator(mode="wrap")
    @classmethod
    def _blocks(cls, values: object, read: ModelWrapValidatorHandler[HeatModel]) -> HeatModel:
        return with_blocks(read(values))

    @model_validator(mode="after")
    def _enough_and_consistent(self) -> HeatModel:
        given = [
            name
            for name in ("material", "diffusivity", "conductivity", "density", "specific_heat")
            if getattr(self, name) is not None
        ]

        # Properties either stand beside `type` or under `materials`, never both.
        if not self._of_one:
            if given:
                msg = (
                    f"{given[0]} is given beside materials or regions; put it into a material of "
                    "model.materials"
                )
                raise ValueError(msg)
            return self

        # All four given: redundant, so they must agree.
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

    @property
    def velocities(self) -> dict[int, tuple[Velocity, str]]:
        """Velocities and their keys by number of the region; 0 of a body without regions."""
        found = {}
        for number in range(max(1, len(self.regions))):
            own = self.regions[number].velocity if self.regions else None
            if own is not None:
                found[number] = (own, f"model.regions.{number}.velocity")
            elif self.velocity is not None:
                found[number] = (self.velocity, "model.velocity")
        return found

    @property
    def moments(self) -> tuple[float, ...]:
        """The times from which on the same regions are there, ascending from 0 [s]."""
        return moments_of(self.regions)

    @property
    def passes(self) -> bool:
        """Whether regions come and go."""
        return len(self.moments) > 1 or any(it.goes for it in self.regions)

    @property
    def _of_one(self) -> bool:
        """Whether the properties stand beside `type`, for a body of one material."""
        return not self.materials and not self.regions

    def substances(self) -> dict[str, Substance]:
        """Collect every material by name: those of the section, and those of the table that are
        used.
        """
        if self._of_one:
            own = self.body()
            # Unknown conductivity and capacity cancel: only their ratio, the diffusivity, matters.
            k = own.diffusivity if own.conductivity is None else own.conductivity
            capacity = 1.0 if own.heat_capacity is None else own.heat_capacity
            name = self.material or "body"
            return {name: Substance(name, (k,) * 3, capacity, (own.diffusivity,) * 3)}

        found = {}

        # Regions may name materials of the table directly.
        named = [it.material for it in self.regions if it.material is not None]
        named += [name for it in self.regions for name in (it.materials or {}).values()]
        for name in (*self.materials, *named):
            given = self.materials.get(name, name)
            section = MaterialSection(material=given) if isinstance(given, str) else given
            found[name] = section.substance(name)
        return found

    def body(self) -> ThermalProperties:
        """Derive the thermal properties from the material and the numbers given.

        If a diffusivity is given, conductivity and heat capacity are adjusted to it: the heat that
        enters through a face is then the heat that the body gains. With a material, the heat
        capacity keeps its value.

        Raises:
            ValueError: the numbers do not determine the diffusivity.
        """
        table = None if self.material is None else MATERIALS[self.material]
        density, specific_heat, conductivity = self.density, self.specific_heat, self.conductivity

        # Explicit numbers take precedence over those of the table.
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
            return ThermalProperties(conductivity / density / specific_heat, conductivity, capacity)

        if self.conductivity is not None:
            return ThermalProperties(
                self.diffusivity, self.conductivity, self.conductivity / self.diffusivity
            )
        return ThermalProperties(
            self.diffusivity, None if capacity is None else self.diffusivity * capacity, capacity
        )

    def problems(self, request: Request) -> Iterable[tuple[KeyPath, str]]:
        """Yield every conflict of this section with the others, with its key path."""
        allowed = laplacian_names(request.ndim)
        if self.stencil is not None and self.stencil not in allowed:
            yield (
                ("model", "stencil"),
                (
                    f"{self.stencil!r} is no Laplacian of a grid of {request.ndim} axes"
                    f"{_other_use(self.stencil)}; allowed are {', '.join(allowed)}"
                ),
            )

        yield from body_problems(self, request)
        if self._of_one and self.body().conductivity is None:
            for key, kind in conductivity_gaps(
                request.boundaries, request.ndim, request.grid.names
            ):
                yield (
                    ("boundaries", key),
                    (
                        f"{kind} needs the conductivity of the body; give model.material, "
                        "model.conductivity"
                        + ("" if "radiation" in kind else f", or boundaries.{key}.conductivity")
                    ),
                )
            if self.sources:
                yield (
                    ("model", "sources"),
                    "heat needs the heat capacity of the body; give model.material, or "
                    "conductivity, density and specific_heat",
                )

    def problems_in_space(self, request: Request) -> Iterable[tuple[KeyPath, str]]:
        """Yield the mistakes that only files and a scan of all points show, with key paths."""
        if self._is_plain(request):
            return
        mistakes = examine_all(self, request)[0]
        body, _ = examine(self, request)
        yield from ((key_path(key), message) for key, message in mistakes.items())

        # A named Laplacian is a constant stencil; a heterogeneous body has weights that vary.
        if body is not None and self.stencil is not None and not self._is_constant(body, request):
            yield (
                ("model", "stencil"),
                "a named Laplacian is for a body of one material without sources and with "
                "conditions of numbers on whole faces; leave it out",
            )

        # The enthalpy method: the state is the heat content per volume.
        if body is None or body.found.enthalpy is None:
            return
        if request.compute.precision == "float16":
            yield (
                ("compute", "precision"),
                "what melts, radiates or depends on temperature keeps its heat content in J/m^3, "
                "which float16 cannot hold; take float64 or float32",
            )

    def notes(self, request: Request) -> tuple[str, ...]:
        """Say how a body of cells differs from the one that is described."""
        if self._is_plain(request):
            return ()
        body, _ = examine(self, request)
        if body is None:
            return ()

        found = body.found
        phases = phase_notes(self.regions) if self.passes else ()
        still = not self.velocities or body.flows is None
        moving = () if still else (self._carrying(body).note,)
        inside = body.around.enclosures.notes if body.around.enclosures else ()
        inside += body.around.streams.notes if body.around.streams else ()
        inside += body.currents.notes if body.currents else ()
        inside += body.around.currents.notes if body.around.currents else ()
        seen = phases or found.hidden()
        return (*seen, *found.extents(), *correlation_notes(request), *moving, *inside)

    def _carrying(self, body: Body) -> Carrying:
        """Return how the heat of a body that moves is carried."""
        assert body.flows is not None
        made = body.conduction()
        joules = 1.0 if made.coefficients is not None else body.grid.cell_volume
        around = body.around
        if body.currents and not around.currents:
            around = dataclasses.replace(around, heated=body.currents.heated(joules))
        return carry(body.grid, made, body.flows, self.advection, body.dt_limit, around)

    def seen(self, region: str, request: Request) -> Callable[[Box], npt.NDArray[np.bool_]]:
        """Return where a region is seen, as a function of boxes of global indices.

        Args:
            region: its name.
            request: the other sections.
        """
        body, _ = examine(self, request)
        assert body is not None
        names = [it.name for it in self.regions]
        return partial(body.found.painting.seen, names.index(region))

    def heated(self, request: Request) -> dict[int, Callable[[Box], npt.NDArray[np.bool_]]]:
        """Return where each volume source heats, as functions of boxes of global indices.

        Args:
            request: the other sections.

        Returns:
            By number of the source.
        """
        volumes = [n for n, it in enumerate(self.sources) if not isinstance(it, BeamSource)]
        if not volumes:
            return {}
        body, _ = examine(self, request)
        assert body is not None
        painting = body.found.painting
        # A state is a filling with the set of sources over it.
        of_state = {n: np.array([n in sources for _, sources in painting.states]) for n in volumes}

        def seen(number: int, box: Box) -> npt.NDArray[np.bool_]:
            return np.asarray(of_state[number][painting(box)])

        return {number: partial(seen, number) for number in volumes}

    def _is_plain(self, request: Request) -> bool:
        """Whether the configuration as written describes one constant stencil, without a scan."""
        still = self.velocity is None and not self.lumps and not self.streams and not self.electric
        return self._of_one and still and not self.sources and self._is_even(request)

    def _is_constant(self, body: Body, request: Request) -> bool:
        """Whether the scanned body is one constant stencil after all."""
        still = body.flows is None and not (self.sources or self.passes) and body.arrives is None
        return body.only_substance is not None and still and self._is_even(request)

    @staticmethod
    def _is_even(request: Request) -> bool:
        """Whether each face has one constant condition, and all cells have the same size."""
        grid = request.grid
        return (
            not grid.graded
            and not grid.system.is_curved
            and not request.control
            and all(map(is_constant, request.boundaries.values()))
        )

    def build(self, request: Request, *, dt: float | None = None) -> Problem:
        """Build the problem that the configuration describes.

        Args:
            request: the other sections.
            dt: the time step of a continued run [s]; it is kept, and the steps are counted anew.

        Raises:
            ConfigError: the sections do not fit together.
            UnstableStepError: the time step is larger than the limit.
        """
        refuse(self.problems(request))
        if self._is_plain(request):
            own = self.body()
            k = None if own.conductivity is None else (own.conductivity,) * request.ndim
            a = (own.diffusivity,) * request.ndim
            return self._constant(request, (a, k), own.heat_capacity, dt)

        refuse(self.problems_in_space(request))
        body, _ = examine(self, request, anew=True)
        assert body is not None

        # Regions may turn out to be homogeneous: then the fast constant stencil serves as well.
        if self._is_constant(body, request) and body.only_substance is not None:
            whole = body.only_substance
            a, k = (it[: request.ndim][::-1] for it in (whole.diffusivity, whole.conductivity))
            return self._constant(request, (a, k), whole.capacity, dt)
        problem = self._of_body(request, body, dt)
        if not self.passes:
            return problem

        def make(number: int) -> Problem:
            if number == 0:
                return dataclasses.replace(problem, phases=phases)
            signals = body.signals if request.control else None
            if number < 0:  # what may be, when cells go by themselves
                moment, which = divmod(-1 - number, len(WAYS_TO_GO))
                time, gone = self.moments[moment], WAYS_TO_GO[which]
            else:
                time = phases.begins[number]
                gone = None if phases.gone is None else phases.gone.until(time)
            found, mistakes = examine(self, request, time=time, signals=signals, gone=gone)
            if found is None:
                raise ConfigError("\n".join(f"{key}: {said}" for key, said in mistakes.items()))
            made = self._of_body(request, found, problem.dt)
            return dataclasses.replace(made, phases=phases, phase=number)

        kinds, gone = examine_all(self, request)[3], going(self.regions, problem.grid.shape)
        kinds = kinds if gone is None else tuple(-1 - it for it in kinds)
        phases = Phases([*self.moments], make, kinds, gone)
        if dt is None:  # else the time from which it holds is not known yet
            phases.refuse_between(problem)
        return make(0)

    def _constant(
        self,
        request: Request,
        along: tuple[tuple[float, ...], tuple[float, ...] | None],
        capacity: float | None,
        dt: float | None,
    ) -> Problem:
        """Build the problem of a constant stencil; `along` holds diffusivity and conductivity along
        the axes of arrays.
        """
        grid, (diffusivity, conductivity) = make_grid(request.grid), along
        # Anisotropy as stretched spacings: h / sqrt(a) is all that the discrete operator depends
        # on.
        most = max(diffusivity)
        spacing = tuple(
            h * math.sqrt(most / a) for h, a in zip(grid.spacing, diffusivity, strict=True)
        )
        smallest = min(spacing)
        operator = heat_operator(self.stencil, spacing)

        # The step of CFL number 1 [s]; the operator is dimensionless in units of it.
        cfl_unit = smallest * smallest / most
        dt_limit = largest_stable_dt(operator) * cfl_unit
        chosen = choose_time_step(
            request.time,
            dt_limit=dt_limit,
            cfl_unit=cfl_unit,
            dt=dt,
            wanted_at=times_of(request),
        )

        return assemble(
            request,
            grid=grid,
            stencil=euler_step(operator, chosen[0] / cfl_unit),
            boundary=make_boundary(request.boundaries, grid.ndim, conductivity=conductivity),
            variable=StateVariable("temperature", "degC", "temperature", _total(grid, capacity)),
            time=chosen,
            dt_limit=_limit(request, dt_limit),
            continued=dt is not None,
        )

    def _of_body(self, request: Request, body: Body, dt: float | None) -> Problem:
        """Build the problem of a heterogeneous body, in finite volumes."""
        grid, found = body.grid, body.found
        smallest = min(grid.narrowest)
        inside = [it.substance for it in found.fillings if it.substance is not None]
        # Nothing may be left of what goes by itself.
        most = max((max(it.diffusivity[: grid.ndim]) for it in inside), default=1.0)

        carrying = None if body.flows is None else self._carrying(body)
        _, dt_limit, limiting, _ = examine_all(self, request)
        dt_limit = min(dt_limit, body.dt_limit)
        dt_limit = dt_limit if carrying is None else carrying.dt_limit
        time, wanted_at = aligned(request, self.moments[1:], self.regions)
        try:
            chosen = choose_time_step(
                time,
                dt_limit=dt_limit,
                cfl_unit=smallest * smallest / most,
                dt=dt,
                wanted_at=wanted_at,
            )
        except UnstableStepError as error:
            msg = f"{error}; it is {limiting} that sets the limit"
            raise UnstableStepError(msg) from error

        # With enthalpy as the state, users still see temperature and liquid fraction.
        conduction = body.conduction()
        variable = StateVariable("temperature", "degC", "temperature", _total(grid, math.nan))
        view = view_around_voids(variable, conduction.medium)

        # An integral of enthalpy is heat itself, so its factor is 1.
        if conduction.enthalpy is not None:
            variable, view = make_view(conduction, found.painting.fillings, _total(grid, 1.0))
        problem = assemble(
            request,
            grid=grid,
            stencil=star_mean(grid.ndim),
            boundary=body.boundary,
            variable=variable,
            time=chosen,
            dt_limit=_limit(request, dt_limit),
            continued=dt is not None,
            conduction=conduction,
            given=body.given,
            view=view,
            signals=body.signals,
        )
        if carrying is None:
            return problem
        return set_in_motion(problem, carrying, request.time)


def _limit(request: Request, dt_limit: float) -> float:
    """Return the largest stable step of the problem [s]; a steady state has no limit. Of a body in
    which no heat flows it is the largest number: infinity is for steps that are no times.
    """
    return math.inf if request.time.scheme == "steady" else min(dt_limit, sys.float_info.max)


def _other_use(name: str) -> str:
    """Explain why a stencil of the catalogue does not suit `model.type: heat`, and its use."""
    if name not in catalogue():
        return suggestion(name, catalogue())
    found = catalogue()[name]
    if name in laplacian_names(found.stencil.ndim):
        return ""
    return (
        f" but {found.description}, with weights of its own whatever material and dt say; as a "
        f"bare stencil it can be applied: model: {{type: stencil, stencil: {name}}}, time: "
        "{steps: N}"
    )


def _total(grid: Grid, capacity: float | None) -> Total:
    ndim = grid.dimensions
    # Without a heat capacity the integral of temperature has no meaning as heat.
    if capacity is None:
        return Total("integral", f"degC m^{ndim}" if ndim > 1 else "degC m", 1.0)
    return Total("heat", _HEAT_UNIT[ndim], capacity)
