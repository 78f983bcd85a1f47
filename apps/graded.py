"""Conduction between cells that differ in width: every face has its own conductance.

Through the face between cells a and b, of area A, flows A (u_b - u_a) / (d_a / (2 k_a) + R_ab +
d_b / (2 k_b)); beyond a face of the domain lies a cell like the one inside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tetris_sim.apps.body import ContactSection
from tetris_sim.apps.survey import Openness, Survey, resistances
from tetris_sim.model.conduction import Ids, Medium, Numbers
from tetris_sim.model.grid import Grid
from tetris_sim.model.slab import Ranges


@dataclass(frozen=True, eq=False)
class GradedCoefficients:
    """See `conduction.Coefficients`.

    Attributes:
        grid: with graded axes.
        medium: ids and capacities.
        conductivity: along each axis by id, (ndim, n_ids); 0 lets nothing pass [W/(m K)].
        film: by id, resistance of what has no width of its own (a fluid: 1 / h), NaN for others
            [m^2 K/W].
        resistance: of contacts, (n_ids, n_ids) [m^2 K/W]; infinite where nothing passes.
        periodic: per axis.
    """

    grid: Grid
    medium: Medium
    conductivity: Numbers
    film: Numbers
    resistance: Numbers
    periodic: Sequence[bool]

    def conductance(self, axis: int, box: Ranges) -> Numbers:
        """Of the upper face along an axis of the points of a box [W/K]."""
        n = self.grid.shape[axis]
        index = np.arange(*box[axis])
        low, high = index, index + 1
        if self.periodic[axis]:
            low, high = low % n, high % n
        else:
            low, high = np.maximum(low, 0), np.minimum(high, n - 1)

        first, last = int(min(low.min(), high.min())), int(max(low.max(), high.max())) + 1
        along = np.moveaxis(self.medium.ids(_with(box, axis, (first, last))), axis, 0)
        widths = self.grid.widths(axis, first, last)
        halves = self._halves(axis, along, widths)
        a, b = low - first, high - first
        total = halves[a] + halves[b] + self.resistance[along[a], along[b]]

        with np.errstate(divide="ignore"):
            per_area = np.moveaxis(1 / total, 0, axis)
        return np.asarray(per_area * self._areas(axis, box))

    def _halves(self, axis: int, ids: Ids, widths: Numbers) -> Numbers:
        """Resistance from the centres of cells to their faces [m^2 K/W]."""
        own = widths.reshape(-1, *[1] * (ids.ndim - 1))
        with np.errstate(divide="ignore"):
            halves = own / (2 * self.conductivity[axis][ids])
        return np.asarray(np.where(np.isnan(self.film[ids]), halves, self.film[ids]))

    def _areas(self, axis: int, box: Ranges) -> Numbers:
        found = np.ones(())
        for other, span in enumerate(box):
            part = np.ones(span[1] - span[0]) if other == axis else self.grid.widths(other, *span)
            found = np.multiply.outer(found, part)
        return found

    def capacity(self, box: Ranges) -> Numbers:
        """Rho c times volume of the points of a box [J/K]; infinite where the state is held."""
        return np.asarray(self.medium.capacity[self.medium.ids(box)] * self.grid.volumes(box))

    def volume(self, box: Ranges) -> Numbers:
        """Of the cells of the points of a box [m^3]."""
        return self.grid.volumes(box)


def _with(box: Ranges, axis: int, span: tuple[int, int]) -> Ranges:
    return (*box[:axis], span, *box[axis + 1 :])


def graded_coefficients(
    found: Survey, contacts: Iterable[ContactSection], beyond: Openness
) -> GradedCoefficients:
    """Those of a body, by id.

    Args:
        found: the body, on a grid with graded axes.
        contacts: resistances of joints.
        beyond: what lies beyond the faces.
    """
    grid, fillings = found.painting.grid, found.fillings
    conductivity = np.zeros((grid.ndim, len(fillings)))
    film = np.full(len(fillings), np.nan)
    for number, filling in enumerate(fillings):
        if filling.substance is not None:
            conductivity[:, number] = filling.substance.conductivity[: grid.ndim][::-1]
        elif filling.fluid is not None:
            film[number] = 1 / filling.fluid.h if filling.fluid.h > 0 else math.inf

    resistance = resistances(fillings, contacts)
    outside = np.array([it.substance is None for it in fillings])
    resistance[np.ix_(outside, outside)] = math.inf
    return GradedCoefficients(grid, found.medium(), conductivity, film, resistance, beyond.periodic)


def largest_stable_step(
    coefficients: GradedCoefficients,
    boxes: Sequence[Ranges],
    insulated: Sequence[tuple[bool, bool]],
) -> tuple[float, int]:
    """The largest stable time step [s], and the id that sets it.

    Args:
        coefficients: of the body.
        boxes: that make up the grid.
        insulated: which (low, high) faces let nothing pass that depends on the temperature.
    """
    grid = coefficients.grid
    fastest, limiting = 0.0, 0
    for box in boxes:
        total = np.zeros([high - low for low, high in box])
        for axis, (low, high) in enumerate(box):
            faces = np.moveaxis(
                coefficients.conductance(axis, _with(box, axis, (low - 1, high))), axis, 0
            )
            if low == 0 and insulated[axis][0]:
                faces[0] = 0.0
            if high == grid.shape[axis] and insulated[axis][1]:
                faces[-1] = 0.0
            total += np.moveaxis(faces[1:] + faces[:-1], 0, axis)

        rates = total / coefficients.capacity(box)
        if rates.max() > fastest:
            fastest = float(rates.max())
            place = np.unravel_index(int(rates.argmax()), rates.shape)
            limiting = int(coefficients.medium.ids(box)[place])
    return (1 / fastest if fastest > 0 else math.inf), limiting
