"""Newton's method for balances of bodies whose conductivities depend on their state.

Through a face between two cells flows q(H, H'), which grows with the states on both sides by
different amounts: within a material by the slopes of the potential, K phi'(H) and K phi'(H');
between materials by those of the temperatures and of the resistances c / k of both half cells. So
the derivative of a balance is no symmetric matrix. What it is multiplied with, and its entries, are
here; every column adds up to what a cell stores and gives to its surroundings, so heat is kept.

Systems are solved by flexible GMRES (Y. Saad, SIAM J. Sci. Comput. 14 (1993) 461), whose
preconditioner is a factorisation of such a matrix, of a step before if it still serves, or for many
cells the rough solution of the symmetric system with the conductances of the last iterate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.conduction import Numbers
from tetris_sim.model.radiation import KELVIN
from tetris_sim.solvers.balance import LinearSystem, norm
from tetris_sim.solvers.krylov import SMALL
from tetris_sim.solvers.surface_flows import plane

Precondition = Callable[[Numbers], Numbers]
_RESTART = 8  # directions, each of which takes two arrays
_LIMIT = 200  # of them
_PIVOT = 1e-2  # of the largest entry of a column: a diagonal that serves
_BEYOND = 4  # roundings of a potential beyond a face
_ROUGHLY = 0.1  # of the heat: what a preconditioner may leave
_STALE = 4  # directions with a factorisation: one that is no longer near


@dataclass(frozen=True, eq=False)
class Tangent:
    """By how much less flows into cells per unit by which states rise.

    Attributes:
        cooling: by axis, into a cell from the next one, per unit of its own state.
        warming: by how much more per unit of the state of the next one.
        own: what flows to what is given, and is stored, per unit of the state.
        held: mask of the cells whose state is held, whose rise is 0.
    """

    cooling: tuple[Numbers, ...]
    warming: tuple[Numbers, ...]
    own: Numbers
    held: npt.NDArray[np.bool_]

    def apply(self, rise: Numbers) -> Numbers:
        """Return by how much less flows into cells, (n0, ...), for a rise of their states."""
        found = self.own * rise
        for axis, (cooling, warming) in enumerate(zip(self.cooling, self.warming, strict=True)):
            flow = warming * np.roll(rise, -1, axis) - cooling * rise
            found += np.roll(flow, 1, axis) - flow
        return np.where(self.held, 0.0, found)

    def matrix(self) -> Any:
        """Return the sparse matrix of `apply`, (n, n) in CSC form, with 1 for held cells."""
        from scipy.sparse import coo_matrix

        cells = np.arange(self.own.size).reshape(self.own.shape)
        free, entries = ~self.held, [(cells, cells, np.where(self.held, 1.0, self.own))]
        for axis, (cooling, warming) in enumerate(zip(self.cooling, self.warming, strict=True)):
            after = np.roll(cells, -1, axis)
            # The same flow, into the cell and out of the next one; held ones are no unknowns.
            for row, column, values in (
                (cells, cells, cooling),
                (cells, after, -warming),
                (after, after, warming),
                (after, cells, -cooling),
            ):
                counts = free.reshape(-1)[row] & free.reshape(-1)[column] & (values != 0)
                entries.append((row[counts], column[counts], values[counts]))
        rows, columns, values = (
            np.concatenate([part.reshape(-1) for part in it]) for it in zip(*entries, strict=True)
        )
        n = self.own.size
        return coo_matrix((values, (rows, columns)), shape=(n, n)).tocsc()


def tangent_of(made: LinearSystem, storage: Numbers | float) -> Tangent:
    """Return the derivative of a balance at its point of linearization.

    Args:
        made: the system of a body of enthalpies.
        storage: heat stored per unit of the state.
    """
    contents, state = made.contents, made.state
    assert contents is not None
    assert state is not None
    assert made.surfaces is not None
    # By axis, of the flow between each cell and the next one.
    pairs = [contents.slopes(axis, state) for axis in range(state.ndim)]
    own = np.zeros(state.shape)
    for (axis, side), (_, d) in made.surfaces.links.items():
        plane(own, axis, 0 if side == "low" else state.shape[axis] - 1)[...] += d
    # Faces know what flows per unit of the driving quantity, not of the state.
    own += made.exchange - made.given[0]  # what sources give less as cells warm
    own *= contents.enthalpy.slope(contents.drive, state, contents.ids)
    cooling, warming = zip(*pairs, strict=True)
    return Tangent(cooling, warming, own + storage, made.held)


def rounding_of(made: LinearSystem, u: Numbers, stored: Numbers) -> float:
    """Bound what rounding leaves of a balance of enthalpies in the norm of its imbalance.

    No state of double precision is nearer to the answer than half a unit in its last place, which
    counts by the slopes of the curves; the driving quantities that are read from these, and their
    differences, are rounded by as much again as they are large themselves.

    Args:
        made: the system, at the state.
        u: its driving quantity.
        stored: heat stored, beside that of the step before.
    """
    contents, state = made.contents, made.state
    assert contents is not None
    assert state is not None
    assert made.surfaces is not None

    # Every flow is a difference of driving quantities, whose roundings do not cancel with them.
    blurred = contents.rounded(contents.drive, state, contents.ids)
    # Radiation reads absolute temperatures.
    whole = made.exchange * (blurred + 2 * (abs(u) + KELVIN)) + abs(made.heat) + 2 * abs(stored)
    for (axis, side), (k, _) in made.surfaces.links.items():
        # What flows through a face is a difference from the potential of a point beyond it.
        at = 0 if side == "low" else state.shape[axis] - 1
        here, ids = plane(state, axis, at), plane(contents.ids, axis, at)
        potential = contents.enthalpy.potential
        own = contents.rounded(potential, here, ids)
        own += _BEYOND * abs(contents.enthalpy.of(potential, here, ids))
        plane(whole, axis, at)[...] += k * own
    for axis, k in enumerate(made.conductance):
        beyond = np.roll(blurred, -1, axis)
        # Both cells see the same rounded flow.
        # Conductances and differences are rounded, too, and sums once for every term.
        flow = k * (blurred + beyond + 4 * abs(np.roll(u, -1, axis) - u))
        whole += flow + np.roll(flow, 1, axis)
    return float(np.finfo(np.float64).eps / 2 * norm(np.where(made.held, 0.0, whole)))


@dataclass
class Factors:
    """A factorisation that serves for some systems one after the other."""

    solve: Callable[[Numbers], Numbers] | None = None

    def renew(self, tangent: Tangent) -> None:
        """Factorise."""
        from scipy.sparse.linalg import splu

        self.solve = splu(
            tangent.matrix(),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=_PIVOT,
            options={"SymmetricMode": True},
        ).solve

    def precondition(self, left: Numbers) -> Numbers:
        """Return the rise that would take up some heat."""
        assert self.solve is not None
        return np.asarray(self.solve(left.reshape(-1))).reshape(left.shape)


def solve(
    made: LinearSystem,
    storage: Numbers,
    left: Numbers,
    least: float,
    by: tuple[Factors, Callable[[Numbers, float], Numbers]],
) -> Numbers:
    """Return the rise of the state that takes up what is left of a balance, in its linearization.

    Args:
        made: the system at the state; see `tangent_of`.
        storage: heat stored per unit of the state.
        left: heat to be taken up, 0 in held cells.
        least: norm of what may be left of it.
        by: the factorisation of a small system, which is kept as long as it serves; and from heat
            and the part of it that may be left to a rise, roughly, of others.
    """
    kept, roughly = by
    tangent = tangent_of(made, storage)
    if left.size > SMALL:
        return gmres(tangent, left, lambda heat: roughly(heat, _ROUGHLY), least)[0]
    # One of an earlier linearisation often serves: a few products cost less than factors.
    if kept.solve is not None:
        found, rest = gmres(tangent, left, kept.precondition, least, limit=_STALE)
        if rest <= least:
            return found
    kept.renew(tangent)
    return gmres(tangent, left, kept.precondition, least, limit=_STALE)[0]


def gmres(
    tangent: Tangent,
    left: Numbers,
    precondition: Precondition,
    least: float,
    *,
    limit: int = _LIMIT,
) -> tuple[Numbers, float]:
    """Return the rise of states that takes up some heat, and the norm of what is left.

    Args:
        tangent: the system.
        left: heat to be taken up, 0 in held cells.
        precondition: from heat to a rise, roughly; it need not be the same in every call.
        least: norm of what may be left.
        limit: of directions.
    """
    found, rest, done = np.zeros_like(left), left, 0
    size = norm(rest)
    while size > least and done < limit:
        # Arnoldi's process by modified Gram and Schmidt; a restart forgets all directions.
        basis, rises = [rest / size], list[Numbers]()
        steps = np.zeros((_RESTART + 1, _RESTART))
        wanted = np.zeros(_RESTART + 1)
        wanted[0] = size
        for n in range(min(_RESTART, limit - done)):
            rises.append(precondition(basis[n]))
            image = tangent.apply(rises[n])
            for k, direction in enumerate(basis):
                steps[k, n] = float((image * direction).sum())
                image = image - steps[k, n] * direction
            steps[n + 1, n] = norm(image)
            done += 1

            # The shares of all rises so far that leave least.
            small = steps[: n + 2, : n + 1]
            shares = np.linalg.lstsq(small, wanted[: n + 2], rcond=None)[0]
            over = math.sqrt(float(np.square(small @ shares - wanted[: n + 2]).sum()))
            if over <= least or steps[n + 1, n] <= 1e-14 * size:
                break
            basis.append(image / steps[n + 1, n])

        # With preconditioners that differ, rises are kept instead of made again from directions.
        for share, rise in zip(shares, rises, strict=True):
            found = found + share * rise
        # What is left is computed anew, since the sum of rounded steps drifts away from it.
        before, rest = size, left - tangent.apply(found)
        size = norm(rest)
        if not size < before:
            break
    return found, size
