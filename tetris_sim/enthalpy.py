"""Enthalpy: heat content as the state, where k and c depend on temperature or a material melts.

The state is the heat content H of a cubic metre [J/m^3]. Temperature T(H), the potential phi(H),
which is the integral of k dT (Kirchhoff), and the conductivity k(H) are piecewise linear, others
for each material; while a material melts, T stands still or grows slowly, and H takes up the
latent heat. Between two cells of one material flows (phi_b - phi_a) / d, exact for any k(T);
between different materials (T_b - T_a) over the resistance of half a cell each, with the
conductivities of now, and of their contact. A time step is then, as in `conduction.py`,

    S  = K (phi_j - phi) + S     or     S = (T_j - T) / ((c / k + c_j / k_j) + R) + S
    H' = dt S + H

(V. R. Voller, M. Cross, Int. J. Heat Mass Transfer 24 (1981) 545; H. S. Carslaw, J. C. Jaeger,
Conduction of Heat in Solids, 1959, section 1.6.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """A piecewise linear function of H for every id.

    Attributes:
        begins: value where each piece begins, (n_ids, n_pieces).
        slopes: of each piece, (n_ids, n_pieces).
    """

    begins: Numbers
    slopes: Numbers


@dataclass(frozen=True, eq=False)
class Enthalpy:
    """What a heat content means, by id.

    Attributes:
        knots: where each piece begins, ascending, (n_ids, n_pieces) [J/m^3]. The first piece goes
            on below the first knot, the last one above the last.
        temperature: T [degC].
        potential: phi [W/m].
        conductivity: k [W/(m K)], positive.
        kinds: the material of each id, (n_ids,); ids of one material differ in what heats them.
        half: c by axis and id, (ndim, n_ids) [m^2]: spacing^2 / 2, over the factor by which k is
            larger along this axis.
        contact: R by axis and ids, (ndim, n_ids, n_ids), symmetric [m^3 K/W]: spacing times the
            resistance between different materials; infinite where nothing passes.
    """

    knots: Numbers
    temperature: Curve
    potential: Curve
    conductivity: Curve
    kinds: npt.NDArray[np.int64]
    half: Numbers
    contact: Numbers

    @property
    def n_pieces(self) -> int:
        """Pieces of every curve."""
        return int(self.knots.shape[1])

    def of(self, curve: Curve, state: npt.NDArray[Any], ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values of a curve for heat contents and ids of one shape, in the dtype of `state`."""
        knots = self.knots.astype(state.dtype)
        piece = _pieces(knots, state, ids, side="right")
        begins, slopes = (
            numbers.astype(state.dtype)[ids, piece] for numbers in (curve.begins, curve.slopes)
        )
        return np.asarray(slopes * (state - knots[ids, piece]) + begins)

    def from_temperature(self, temperature: Numbers, ids: npt.NDArray[Any]) -> Numbers:
        """Heat content [J/m^3] by temperature [degC]; what melts at just this one is solid."""
        return self.where(self.temperature, temperature, ids)

    def where(self, curve: Curve, values: Numbers, ids: npt.NDArray[Any]) -> Numbers:
        """The smallest heat content [J/m^3] at which a curve that ascends has values."""
        marks = np.where(np.isfinite(self.knots), curve.begins, np.inf)
        piece = _pieces(marks, values, ids, side="left")
        return np.asarray(
            self.knots[ids, piece] + (values - curve.begins[ids, piece]) / curve.slopes[ids, piece]
        )

    def slope(self, curve: Curve, state: Numbers, ids: npt.NDArray[Any]) -> Numbers:
        """How a curve grows with heat content, of the piece that begins at a knot."""
        return np.asarray(curve.slopes[ids, _pieces(self.knots, state, ids, side="right")])

    def with_ghosts(self) -> Enthalpy:
        """The same for twice as many ids: state and potential of id n_ids + a are one number, and
        to its neighbours it is of the material of a.
        """
        n, n_pieces = self.knots.shape
        none = np.zeros((n, n_pieces))
        first = none + (np.arange(n_pieces) == 0)
        ghosts = Curve(none, first)

        def both(curve: Curve) -> Curve:
            return Curve(
                np.concatenate([curve.begins, ghosts.begins]),
                np.concatenate([curve.slopes, ghosts.slopes]),
            )

        return Enthalpy(
            knots=np.concatenate([self.knots, np.where(first, 0.0, np.inf)]),
            temperature=both(self.temperature),
            potential=both(self.potential),
            conductivity=both(self.conductivity),
            kinds=np.tile(self.kinds, 2),
            half=np.tile(self.half, 2),
            contact=np.tile(self.contact, (2, 2)),
        )


def _pieces(
    marks: npt.NDArray[Any],
    values: npt.NDArray[Any],
    ids: npt.NDArray[Any],
    *,
    side: Literal["left", "right"],
) -> npt.NDArray[np.int64]:
    """How many marks of its id behind the first one each value is above, or with "right" at.

    Args:
        marks: ascending, (n_ids, n_pieces).
        values: of any shape.
        ids: of the same shape.
        side: what a value equal to a mark is.
    """
    piece = np.zeros(values.shape, np.int64)
    for own in np.unique(ids):
        here = ids == own
        piece[here] = np.searchsorted(marks[own, 1:], values[here], side)
    return piece
