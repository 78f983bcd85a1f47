"""Fluids and contacts: the sections that say what heat meets at the surfaces of materials."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field, model_validator

from tetris_sim.config.sections.quantities import (
    ContactResistance,
    HeatTransferCoefficient,
    Section,
    Temperature,
)
from tetris_sim.model.radiation import STEFAN_BOLTZMANN

Emissivity = Annotated[float, Field(gt=0, le=1)]


class FluidSection(Section):
    """Cells of a fluid at a known temperature; neighbouring cells exchange heat with it."""

    ambient: Temperature
    h: HeatTransferCoefficient = 0.0
    """[W/(m^2 K)]; 0 for a vacuum around what radiates."""
    emissivity: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of the surfaces that look into it, with black surroundings at `ambient`."""

    @model_validator(mode="after")
    def _exchanges(self) -> FluidSection:
        if not {"h", "emissivity"} & self.model_fields_set:
            msg = "a fluid needs h, emissivity, or both"
            raise ValueError(msg)
        return self


class ContactSection(Section):
    """The joint of two materials, wherever they touch: what it resists, or a gap, thin beside
    a cell, across which their surfaces radiate to each other.
    """

    between: tuple[str, str]
    """Two keys of `materials`."""
    resistance: ContactResistance | None = None
    """[m^2 K/W]; of a gap that radiates, nothing is conducted if it is not given."""
    emissivity: tuple[Emissivity, Emissivity] | None = None
    """Of both materials, in their order; between them 1/(1/e1 + 1/e2 - 1) counts."""

    @model_validator(mode="after")
    def _resists_or_radiates(self) -> ContactSection:
        if self.resistance is None and self.emissivity is None:
            msg = "give the resistance of the contact, the emissivity of both sides, or both"
            raise ValueError(msg)
        if self.resistance == 0 and self.emissivity is not None:
            msg = "surfaces with no resistance between them have one temperature; leave emissivity"
            raise ValueError(msg)
        return self

    @property
    def conducts(self) -> float:
        """Its resistance, infinite where only radiation crosses it [m^2 K/W]."""
        return math.inf if self.resistance is None else self.resistance

    @property
    def radiance(self) -> float:
        """Effective emissivity of both sides times the Stefan-Boltzmann constant [W/(m^2 K^4)]:
        that of two surfaces of one area that see nothing but each other.
        """
        if self.emissivity is None:
            return 0.0
        first, second = self.emissivity
        return STEFAN_BOLTZMANN / (1 / first + 1 / second - 1)
