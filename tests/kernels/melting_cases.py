"""Problems whose state is heat content: k(T), c(T) and melting, for every method and the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from conduction_cases import Case, heating, insulated

from tetris_sim.apps.curves import Melting, Properties, make_enthalpy
from tetris_sim.conduction import Conduction, Medium, Parameter, Rule, RuledFace
from tetris_sim.expressions import compile_expression
from tetris_sim.problem import Field, Problem
from tetris_sim.program import Program
from tetris_sim.slab import Slab

MATERIALS = (
    Properties(((0.0, 1.0), (2.0, 3.0)), ((0.0, 1.0), (2.0, 1.5)), 1.0),
    Properties(((0.0, 0.7),), ((0.0, 1.2),), 1.0, Melting(0.8, 0.2, 0.2)),
    Properties(((0.0, 2.0),), ((0.0, 0.9),), 1.0, Melting(0.5, -0.1, 0.3)),
)


def cooled(axis: int, side: int, n_ids: int) -> RuledFace | None:
    """A flow that depends on temperature and conductivity on the upper faces, none on the others."""
    if side == 0:
        return insulated()
    text = "mirror + rate*conductivity*(0.4 - temperature)*(1 + 0.1*x)"
    names = ["mirror", "temperature", "conductivity", "x", "rate"]
    rate = Parameter("rate", lambda t: 0.2 + 0.1 * np.cos(t)[:, None])
    return RuledFace(Rule(Program(compile_expression(text, names).tree), (rate,)))


def melting(
    shape: tuple[int, ...],
    dtype: Any = np.float64,
    materials: Sequence[Properties] = MATERIALS,
) -> Problem:
    """A body of three materials and five ids, two of them of a material that another id is of too,
    which is heated and cooled.
    """
    kinds = (0, 1, 2, 1, 0)
    case = Case("melting", shape, len(kinds), cooled, heating(len(kinds), changes=True), dtype)
    problem = case.problem()
    assert problem.conduction is not None
    spacing, n = problem.grid.spacing, len(kinds)
    resistance = np.zeros((n, n))
    resistance[0, 2] = resistance[2, 0] = 0.3
    factors = np.linspace(0.8, 1.3, len(shape) * n).reshape(len(shape), n)
    enthalpy = make_enthalpy(materials, kinds, spacing, factors=factors, resistance=resistance)
    # of ids of one material, by the series of their halves
    conductance = 1 / (enthalpy.half[:, :, None] + enthalpy.half[:, None, :])
    medium = Medium(problem.conduction.medium.ids, conductance, np.ones(n), tuple("abcde"))
    state = np.random.default_rng(3).uniform(-1, 2, (1, *shape)).astype(dtype)

    def initial(slab: Slab) -> Field:
        return state[(slice(None), *(slice(*span) for span in slab.spans))]

    return replace(
        problem,
        conduction=Conduction(medium, problem.conduction.source, enthalpy=enthalpy),
        initial=initial,
        dt=0.02,
    )
