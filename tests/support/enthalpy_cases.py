"""Problems whose state is heat content, for every method and the oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.support.conduction_cases import (
    Case,
    by_formula,
    heating,
    insulated,
    mixed_faces,
    random_ids,
    rings,
)
from tetris_sim.apps.heat.materials import MaterialCurves, Melting, Table, make_enthalpy
from tetris_sim.model.conduction import (
    CONDUCTIVITY,
    MIRROR,
    TEMPERATURE,
    Conduction,
    Medium,
    Parameter,
    Rule,
    RuledFace,
)
from tetris_sim.model.formula import compile_expression
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import Program

# Everything happens between -1 and 1 degC.
ICE = MaterialCurves(((0.0, 2.0),), ((0.0, 1.5),), 1.0, Melting(0.7, -0.2, -0.2))
ALLOY = MaterialCurves(((-0.5, 0.4), (0.5, 1.0)), ((0.0, 1.0),), 1.0, Melting(0.4, -0.1, 0.3))
PLAIN = MaterialCurves(((0.0, 1.0),), ((0.0, 0.8),), 1.0)
# so many pieces that they are searched
LONG: Table = tuple((float(t), 1 + 0.3 * np.sin(5 * t)) for t in np.linspace(-1, 1, 12))
STEEL = MaterialCurves(LONG, ((0.0, 1.0), (0.5, 2.0)), 1.0)
FEW, MANY = (ICE, PLAIN), (ICE, ALLOY, STEEL)


def melting(case: Case, materials: tuple[MaterialCurves, ...]) -> Problem:
    """A case with heat content as its state; its last id is held if it has more than there are
    materials, ids beyond are of the first material again.
    """
    problem, n = case.problem(), case.n_ids
    conduction = problem.conduction
    assert conduction is not None
    kinds = [k % len(materials) for k in range(n)]
    factors = np.random.default_rng(case.seed).uniform(
        0.5, 1.5, (problem.grid.ndim, len(materials))
    )
    factors = factors[:, kinds]
    resistance = np.zeros((n, n))
    if n > 1:
        resistance[0, 1] = resistance[1, 0] = 0.2
    enthalpy = make_enthalpy(
        materials, kinds, problem.grid.spacing, factors=factors, resistance=resistance
    )
    square = np.array(problem.grid.spacing) ** 2
    alike = np.equal.outer(kinds, kinds)
    capacity = np.ones(n)
    if n > len(materials):
        capacity[-1] = np.inf
    ids = random_ids(case.shape, n, case.seed)
    medium = Medium(
        ids=lambda box: ids[tuple(slice(*span) for span in box)],
        conductance=factors[:, :, None] * alike / square[:, None, None],
        capacity=capacity,
        names=conduction.medium.names,
    )
    fastest = float(max((enthalpy.temperature.slopes * 2.0).max(), enthalpy.potential.slopes.max()))
    return replace(
        problem,
        conduction=Conduction(medium, conduction.source, enthalpy=enthalpy),
        dt=0.9 / (fastest * 1.5 * float((2 / square).sum())),
    )


def convecting(axis: int, side: int, n_ids: int) -> RuledFace:
    """Convection by temperature and conductivity of the mirror point, other numbers by id."""
    text = f"{MIRROR} + 2*{CONDUCTIVITY}*h*(ambient - {TEMPERATURE})/(2*{CONDUCTIVITY} + h)"
    ambient = Parameter("ambient", lambda t: np.cos(2 * t)[:, None])
    h = Parameter("h", np.linspace(0.5, 2.0, n_ids))
    names = [MIRROR, TEMPERATURE, CONDUCTIVITY, "h", "ambient"]
    return RuledFace(Rule(Program(compile_expression(text, names).tree), (h, ambient)))


def every_face(axis: int, side: int, n_ids: int) -> RuledFace | None:
    """Potentials on some faces, convection and a formula of the place on others."""
    if (axis, side) in ((0, 1), (1, 0)):
        return convecting(axis, side, n_ids)
    if (axis, side) == (1, 1):
        return by_formula(f"{MIRROR} + 0.1*x*x")
    return mixed_faces(axis, side, n_ids)


def cooled(axis: int, side: int, n_ids: int) -> RuledFace | None:
    """A flow that depends on temperature and conductivity on the upper faces, none on the others."""
    if side == 0:
        return insulated()
    text = f"{MIRROR} + rate*{CONDUCTIVITY}*(0.4 - {TEMPERATURE})*(1 + 0.1*x)"
    names = [MIRROR, TEMPERATURE, CONDUCTIVITY, "x", "rate"]
    rate = Parameter("rate", lambda t: 0.2 + 0.1 * np.cos(t)[:, None])
    return RuledFace(Rule(Program(compile_expression(text, names).tree), (rate,)))


def cooled_body(
    shape: tuple[int, ...],
    dtype: Any = np.float64,
    materials: tuple[MaterialCurves, ...] = MANY,
) -> Problem:
    """A body of three materials and five ids that is heated and cooled."""
    return melting(Case("", shape, 5, cooled, heating(5, changes=True), dtype), materials)


def cases(dtype: Any = np.float64) -> dict[str, Problem]:
    """By name."""
    heated = heating(5, changes=True)
    return {
        "rod": melting(Case("", (37,), 3, every_face, heated, dtype), FEW),
        "plate": melting(Case("", (19, 23), 5, every_face, heated, dtype), MANY),
        "plate, ring": melting(Case("", (13, 18), 3, rings, None, dtype), MANY),
        "block": melting(Case("", (7, 9, 11), 4, every_face, heated, dtype), FEW),
    }
