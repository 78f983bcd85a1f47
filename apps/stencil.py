"""A bare stencil applied n times: the benchmark of the papers, and image filters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tetris_sim.apps.boundaries import (
    conductivity_gaps,
    find_face,
    is_constant,
    make_boundary,
    patches,
)
from tetris_sim.apps.domain import (
    MAX_STEPS,
    KeyPath,
    assemble,
    count_steps,
    flux_refusal,
    keeps_fluxes,
    make_grid,
    refuse,
)
from tetris_sim.config.sections.quantities import Section
from tetris_sim.config.sections.schema import Request
from tetris_sim.errors import ConfigError, UnstableStepError
from tetris_sim.model.grid import AXIS_NAMES
from tetris_sim.model.problem import Problem, StateVariable, Total
from tetris_sim.model.stencil import Offset, Stencil
from tetris_sim.model.stencils.catalogue import (
    catalogue,
    laplacian,
    laplacian_names,
    named_stencil,
)
from tetris_sim.support.wording import suggestion

_GIVEN = (
    "dirichlet",
    "temperature",
    "fixed",
    "periodic",
)  # faces that prescribe the field, not a flux
_ROUNDING = 1e-12  # how far rounding of the weights may lift the spectral radius above 1
_MOST_UNEQUAL = 1e50  # spacing ratios whose fourth power is still far from overflow
_LARGEST = 1e100  # beyond it a symbol cannot be squared
_MOST_WORK = 1 << 30  # waves tried times points of the stencil: some ten seconds
_MOST_POINTS = 4096  # far more than any method is good at; keeps the search for growing waves short

OffsetText = Annotated[str, Field(pattern=r"^\s*[-+]?\d{1,6}(\s*,\s*[-+]?\d{1,6}){0,2}\s*$")]
OffsetList = Annotated[tuple[int, ...], Field(min_length=1, max_length=3)]


class StencilModel(Section):
    """u_new = sum of weights * u at the offsets; a named stencil, or offsets and weights of your
    own.
    """

    type: Literal["stencil"]
    stencil: str | None = None
    """A name of the catalogue; with its weights unless `weights` gives others."""
    offsets: (
        Annotated[tuple[OffsetList, ...], Field(min_length=1, max_length=_MOST_POINTS)] | None
    ) = None
    """Instead of a name: the points read, each as its distance along x, y, z."""
    weights: tuple[float, ...] | dict[OffsetText, float] | None = None
    """One per offset, in their order; or {"dx, dy": weight}. For a named stencil: in the order x
    fastest, z slowest.
    """
    allow_growth: bool = False
    """Whether a stencil that amplifies some wave at every step is accepted."""

    @model_validator(mode="after")
    def _one_stencil(self) -> StencilModel:
        # A dictionary of weights carries its own offsets, so it needs neither a name nor `offsets`.
        nameless = self.offsets is not None or isinstance(self.weights, dict)
        if (self.stencil is None and not nameless) or (
            self.stencil is not None and self.offsets is not None
        ):
            msg = "give either the name of a stencil, or offsets and weights"
            raise ValueError(msg)

        if self.stencil is not None and self.stencil not in catalogue():
            meant = suggestion(self.stencil, catalogue())
            msg = (
                f"stencil {self.stencil!r} is not in the catalogue{meant}; `tetris-sim info "
                "--stencils` lists it"
            )
            raise ValueError(msg)

        self.operator()
        return self

    def operator(self) -> Stencil:
        """Build the stencil, in array order.

        Raises:
            ValueError: offsets and weights do not belong together.
        """
        named = None if self.stencil is None else named_stencil(self.stencil).stencil
        if self.weights is None:
            if named is None:
                msg = "offsets are given without weights; give one weight per offset"
                raise ValueError(msg)
            return named

        if isinstance(self.weights, Mapping):
            return self._from_mapping(self.weights, named)

        if named is not None:
            offsets = named.offsets
        else:
            # The configuration gives (dx, dy, dz); arrays are (z, y, x).
            offsets = tuple(offset[::-1] for offset in self.offsets or ())
        if len(self.weights) != len(offsets):
            msg = (
                f"{len(self.weights)} weights are given for {len(offsets)} offsets; give one per "
                "offset"
            )
            raise ValueError(msg)
        return Stencil(offsets, self.weights)

    def _from_mapping(self, weights: Mapping[str, float], named: Stencil | None) -> Stencil:
        given: dict[Offset, float] = {}
        for text, weight in weights.items():
            offset = tuple(int(part) for part in text.split(","))[::-1]
            if offset in given:
                msg = f"the offset {text!r} is given twice"
                raise ValueError(msg)
            given[offset] = weight

        # Weights by offset may accompany a named stencil or a list: then they must cover exactly
        # its offsets.
        wanted = None if named is None else set(named.offsets)
        if named is None and self.offsets is not None:
            wanted = {offset[::-1] for offset in self.offsets}
        if wanted is not None and set(given) != wanted:
            wrong = sorted(set(given) ^ wanted)
            listed = "; ".join(", ".join(map(str, offset[::-1])) for offset in wrong[:8])
            msg = (
                f"weights and offsets do not match at the offsets {listed} (x, y, z); give one "
                "weight per offset"
            )
            raise ValueError(msg)

        if not given:
            msg = "weights are empty; give one weight per offset"
            raise ValueError(msg)
        return Stencil.from_terms(given)

    def problems(self, request: Request) -> Iterable[tuple[KeyPath, str]]:
        """Yield every conflict of this section with the others, with its key path."""
        stencil, time = self.operator(), request.time
        if stencil.ndim != request.ndim:
            yield (
                ("model", "offsets" if self.stencil is None else "stencil"),
                f"the stencil has {stencil.ndim} axes, but the grid has {request.ndim}",
            )

        yield from self._leaks(stencil, request)
        # Conditions that are not numbers are refused by `make_boundary`.
        numbers = {
            key: condition
            for key, condition in request.boundaries.items()
            if is_constant(condition)
        }
        for key, kind in conductivity_gaps(numbers, request.ndim):
            yield (
                ("boundaries", key),
                (
                    f"{kind} needs the conductivity of the body, and a bare stencil has none; say "
                    "it there (conductivity: 1 where the field has no unit), or take dirichlet, "
                    "fixed, periodic or an insulated face"
                ),
            )

        # Implicit and steady schemes solve a linear system of a heat balance.
        if time.solves:
            yield (
                ("time", "scheme"),
                f"{time.scheme} solves the heat balance of a body, and a bare stencil is none; "
                "take model.type: heat",
            )

        for key, value in (("dt", time.dt), ("cfl", time.cfl)):
            if value is not None:
                yield (
                    ("time", key),
                    f"{key} = {value} means nothing for a bare stencil: one application is one "
                    "step, and its time counts as 1 s; give steps only",
                )

    def _leaks(self, stencil: Stencil, request: Request) -> Iterator[tuple[KeyPath, str]]:
        """Yield the faces at which the stencil would create heat."""
        names = AXIS_NAMES[: stencil.ndim][::-1]
        for axis, name in enumerate(names):
            # Only faces with a prescribed flux are affected; see `keeps_fluxes`.
            if keeps_fluxes(stencil, axis):
                continue
            for key in dict.fromkeys(find_face(request.boundaries, name + sign) for sign in "-+"):
                kinds = {} if key is None else {key: request.boundaries[key]}
                if any(section.type not in _GIVEN for _, section in patches(kinds)):
                    yield ("boundaries", str(key)), flux_refusal(name)

    def build(self, request: Request, *, dt: float | None = None) -> Problem:
        """Build the problem that the configuration describes; a step counts as 1 s.

        Args:
            request: the other sections.
            dt: time step of a continued run, 1 s; None for a new run.

        Raises:
            ConfigError: the sections do not fit together.
            UnstableStepError: some wave would grow at every step.
        """
        refuse(self.problems(request))
        grid, stencil, time = make_grid(request.grid), self.operator(), request.time
        steps = time.steps if time.steps is not None else count_steps(time.t_end or 0.0, 1.0)
        if steps > MAX_STEPS:
            msg = (
                f"time.steps = {steps} cannot be counted in a double; at most 2^53 = {MAX_STEPS} "
                "are allowed"
            )
            raise ConfigError(msg)

        problem = assemble(
            request,
            grid=grid,
            stencil=stencil,
            boundary=make_boundary(request.boundaries, grid.ndim, conductivity=None),
            variable=StateVariable(
                "u", "1", "u", Total("integral", "m" if grid.ndim == 1 else f"m^{grid.ndim}", 1.0)
            ),
            time=(1.0, steps),
            # The step is fixed at 1 s; growth is judged by the spectral radius instead (below).
            dt_limit=math.inf,
            continued=dt is not None,
        )

        if not self.allow_growth:
            _refuse_growth(stencil, self._remedy())
        return problem

    def _remedy(self) -> str:
        """Suggest a way out for a stencil that amplifies waves."""
        if (
            self.stencil is not None
            and self.weights is None
            and not named_stencil(self.stencil).stable
        ):
            entry = named_stencil(self.stencil)
            kind = "is made to be applied once"
            scaled = f"its weights times {entry.factor} are stable"

            # Wave stencils are half of a two-level scheme: unstable when applied alone.
            if entry.exact.get((0,) * entry.stencil.ndim, 0) and "leapfrog" in entry.description:
                kind = "is one half of a leapfrog step, which needs the state before the last one"
                scaled = (
                    f"its weights times {entry.factor} do not grow, but solve no wave equation; "
                    "model.type: pde with second_order does"
                )
            return f"{self.stencil} {kind}: set model.allow_growth: true with few steps; {scaled}"
        return "Scale the weights down, or set model.allow_growth: true"


def _refuse_growth(stencil: Stencil, remedy: str) -> None:
    # The sum of the magnitudes bounds the growth of every wave: the usual case needs no search.
    bound = sum(abs(weight) for weight in stencil.weights)
    if bound <= 1 + _ROUNDING:
        return

    # The search samples the symbol on a grid of waves; its cost is bounded beforehand.
    waves = max(100, 8 * stencil.radius) ** stencil.ndim
    if waves * stencil.n_points > _MOST_WORK:
        msg = (
            f"model.weights: the magnitudes sum to {bound:.6g}, and a stencil of "
            f"{stencil.n_points} points and radius {stencil.radius} is too large to find out "
            "whether some wave grows; set model.allow_growth: true"
        )
        raise UnstableStepError(msg)

    # Above `_LARGEST` squaring the symbol would overflow; the bound is clear enough there.
    growth = stencil.spectral_radius if bound < _LARGEST else bound
    if growth <= 1 + _ROUNDING:
        return

    periodic = (
        ""
        if stencil.symmetric
        else " (the bound for periodic faces, as the stencil is not symmetric)"
    )
    msg = (
        f"model.weights: some wave grows by a factor of {growth:.9g} at every step{periodic}, so "
        f"rounding would take over; at most 1 is stable. {remedy}"
    )
    raise UnstableStepError(msg)


def heat_operator(name: str | None, spacing: tuple[float, ...]) -> Stencil:
    """Build the Laplacian in units of 1 / (smallest spacing)^2.

    A time step is then a CFL number; on equal spacings the weights are those of the paper's
    equation 3.

    Args:
        name: one of `laplacian_names`; None for the standard one.
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
