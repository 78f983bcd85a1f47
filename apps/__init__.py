"""Physics: turns the parameters of a model into a `Problem`.

Begin with `heat/model.py`, `pde/model.py` or `stencil.py`, the sections that a configuration
selects by `model.type`; `domain.py` holds the steps that all of them share. Nothing here depends on
a machine: devices, kernels and plans belong to the scheduler.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tetris_sim.apps.heat.model import HeatModel
from tetris_sim.apps.pde.model import PdeModel
from tetris_sim.apps.stencil import StencilModel
from tetris_sim.config.sections.quantities import Section

MODELS: dict[str, type[Section]] = {"heat": HeatModel, "stencil": StencilModel, "pde": PdeModel}
"""The section of each model by the name that `model.type` gives it."""

AnyModel = Annotated[HeatModel | StencilModel | PdeModel, Field(discriminator="type")]
"""Any model's section, for the configuration."""
