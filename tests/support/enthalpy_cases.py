"""Problems whose state is heat content, for every method and the oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    Numbers,
    Parameter,
    Rule,
    RuledFace,
    padded,
)
from tetris_sim.model.formula import compile_expression
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Ranges

# Everything happens between -1 and 1 degC.
ICE = MaterialCurves(((0.0, 2.0),), ((0.0, 1.5),), 1.0, Melting(0.7, -0.2, -0.2))
ALLOY = MaterialCurves(((-0.5, 0.4), (0.5, 1.0)), ((0.0, 1.0),), 1.0, Melting(0.4, -0.1, 0.3))
PLAIN = MaterialCurves(((0.0, 1.0),), ((0.0, 0.8),), 1.0)
# so many pieces that they are searched
LONG: Table = tuple((float(t), 1 + 0.3 * np.sin(5 * t)) for t in np.linspace(-1, 1, 12))
STEEL = MaterialCurves(LONG, ((0.0, 1.0), (0.5, 2.0)), 1.0)
FEW, MANY = (ICE, PLAIN), (ICE, ALLOY, STEEL)


def melting(
    case: Case,
    materials: tuple[MaterialCurves, ...],
    *,
    radiates: bool = False,
    cut: bool = False,
) -> Problem:
    """A case with heat content as its state; its last id is held if it has more than there are
    materials, ids beyond are of the first material again. Where it radiates, the first two do so
    across their contact, and the first and the last across a vacuum. Cells of an id that are cut
    hold less or more than whole ones, and let less or more pass to their like.
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
    radiance = np.zeros((n, n))
    if radiates:
        resistance[0, -1] = resistance[-1, 0] = np.inf
        # About as much flows per degree as through the materials: 4 e T^3 is 1.
        radiance[[0, 1, 0, -1], [1, 0, -1, 0]] = 1 / (4 * 273.0**3)
    enthalpy = make_enthalpy(
        materials,
        kinds,
        problem.grid.spacing,
        factors=factors,
        resistance=resistance,
        radiance=radiance,
    )
    square = np.array(problem.grid.spacing) ** 2
    alike = np.equal.outer(kinds, kinds)
    capacity = np.ones(n)
    opened = np.ones((n, n))
    if cut:
        capacity = np.linspace(0.7, 1.6, n)
        opened = np.minimum.outer(np.linspace(1.3, 0.8, n), np.linspace(1.3, 0.8, n))
    if n > len(materials):
        capacity[-1] = np.inf
    ids = random_ids(case.shape, n, case.seed)
    medium = Medium(
        ids=lambda box: ids[tuple(slice(*span) for span in box)],
        conductance=factors[:, :, None] * alike * opened / square[:, None, None],
        capacity=capacity,
        names=conduction.medium.names,
    )
    fastest = float(max((enthalpy.temperature.slopes * 2.0).max(), enthalpy.potential.slopes.max()))
    return replace(
        problem,
        conduction=Conduction(medium, conduction.source, enthalpy=enthalpy),
        dt=0.9 / (fastest * 1.5 * float((2 / square).sum())) / (2 if cut else 1),
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


@dataclass(frozen=True, eq=False)
class UnevenCells:
    """Cells that differ in width and, as around an axis, in the areas of their faces.

    Attributes:
        problem: on even cells, whose materials and contacts they have.
        widths: of the cells along each axis, times its spacing.
    """

    problem: Problem
    widths: tuple[Numbers, ...]

    @property
    def separates(self) -> bool:
        """Areas grow along every axis."""
        return False

    def conductance(self, axis: int, box: Ranges) -> Numbers:
        """Nothing resists between cells of one material but these; 0 where nothing passes."""
        return np.asarray(1 / self.series(axis, box).sum(axis=-1))

    def series(self, axis: int, box: Ranges) -> Numbers:
        """Halves by width, over areas that grow along every axis."""
        ahead = tuple((low + (k == axis), high + (k == axis)) for k, (low, high) in enumerate(box))
        enthalpy = self.problem.body.enthalpy
        assert enthalpy is not None
        ids, beside = self.problem.padded_ids(box), self.problem.padded_ids(ahead)
        index = np.indices(ids.shape) + np.array([low for low, _ in box]).reshape(
            -1, *[1] * len(box)
        )
        n = self.problem.grid.shape[axis] * self.problem.boundary.periodic(axis)
        along = (index[axis] % n if n else index[axis]) + 2
        area = self._across(axis, box) * (1 + 0.1 * along)
        halves = (
            enthalpy.half[axis][its] * self._cells(axis, where)
            for its, where in ((ids, box), (beside, ahead))
        )
        contact = np.where(
            enthalpy.kinds[ids] == enthalpy.kinds[beside], 0.0, enthalpy.contact[axis][ids, beside]
        )
        return np.stack([it / area for it in (*halves, contact)], axis=-1)

    def radiance(self, axis: int, box: Ranges) -> Numbers:
        """Of ids, over areas that grow along every axis."""
        ahead = tuple((low + (k == axis), high + (k == axis)) for k, (low, high) in enumerate(box))
        enthalpy = self.problem.body.enthalpy
        assert enthalpy is not None
        ids, beside = self.problem.padded_ids(box), self.problem.padded_ids(ahead)
        return np.asarray(enthalpy.radiance[axis][ids, beside] * self._across(axis, box))

    def capacity(self, box: Ranges) -> Numbers:
        """That of the volume."""
        medium = self.problem.body.medium
        return np.asarray(medium.capacity[medium.ids(box)] * self.volume(box))

    def volume(self, box: Ranges) -> Numbers:
        """Product of the widths, larger on the side of larger faces."""
        found = np.ones([high - low for low, high in box])
        for axis in range(len(box)):
            found = found * self._cells(axis, box)
        return found * 3.0

    def _across(self, axis: int, box: Ranges) -> Numbers:
        found = np.ones([high - low for low, high in box])
        for other in range(len(box)):
            found = found * (self._cells(other, box) if other != axis else 1.0)
        return found

    def _cells(self, axis: int, box: Ranges) -> Numbers:
        rings = (self.problem.boundary.periodic(axis),)
        along = padded(
            lambda part: self.widths[axis][slice(*part[0])],
            (box[axis],),
            (len(self.widths[axis]),),
            rings,
        )
        shape = [-1 if k == axis else 1 for k in range(len(box))]
        return np.broadcast_to(along.reshape(shape), [high - low for low, high in box])


def uneven(problem: Problem) -> Problem:
    """A case on cells that all differ."""
    rng = np.random.default_rng(12)
    widths = tuple(rng.uniform(0.6, 1.6, n) for n in problem.grid.shape)
    given = UnevenCells(problem, widths)
    conduction = replace(problem.body, coefficients=given)
    return replace(problem, conduction=conduction, dt=0.15 * problem.dt)


def cases(dtype: Any = np.float64) -> dict[str, Problem]:
    """By name."""
    heated = heating(5, changes=True)
    return {
        "rod": melting(Case("", (37,), 3, every_face, heated, dtype), FEW),
        "plate": melting(Case("", (19, 23), 5, every_face, heated, dtype), MANY),
        "plate, ring": melting(Case("", (13, 18), 3, rings, None, dtype), MANY),
        "block": melting(Case("", (7, 9, 11), 4, every_face, heated, dtype), FEW),
        "uneven rod": uneven(melting(Case("", (37,), 3, every_face, heated, dtype), MANY)),
        "uneven plate": uneven(melting(Case("", (19, 23), 5, every_face, heated, dtype), MANY)),
        "uneven ring": uneven(melting(Case("", (13, 18), 3, rings, None, dtype), FEW)),
        "uneven block": uneven(melting(Case("", (7, 9, 11), 4, every_face, heated, dtype), FEW)),
        "cut plate": melting(Case("", (19, 23), 5, every_face, heated, dtype), MANY, cut=True),
        "cut block": melting(Case("", (7, 9, 11), 5, every_face, heated, dtype), FEW, cut=True),
        **radiating_cases(dtype),
    }


def radiating_cases(dtype: Any = np.float64) -> dict[str, Problem]:
    """Those whose surfaces radiate, by name."""
    plate, block = (
        Case("", shape, 4, every_face, heating(4, changes=True), dtype)
        for shape in ((19, 23), (7, 9, 11))
    )
    return {
        "radiating plate": melting(plate, MANY, radiates=True),
        "radiating block": melting(block, FEW, radiates=True),
        "uneven radiating plate": uneven(melting(plate, FEW, radiates=True)),
    }
