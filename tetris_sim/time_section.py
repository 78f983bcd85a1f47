"""The section `time` of a configuration: how long, and in which steps, jumps or solutions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tetris_sim.quantities import Interval, PositiveDuration, RateOfChange
from tetris_sim.section import Section


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
