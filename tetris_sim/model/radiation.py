"""Heat between two surfaces that radiate to each other, each half a cell from a point whose
temperature is known, as one formula for every device.

With r and r' the resistances from the points to their surfaces, the heat q that arrives here from
there obeys

    q = g (t' - t) + e (t'^4 - t^4),        t = T + r q,   t' = T' - r' q        (t in kelvin)

where g is what a contact or a fluid conducts beside the radiation, and e the Stefan-Boltzmann
constant times the effective emissivity. Between the two sides of a gap, whose areas are the same,
this is 1 / (1/e1 + 1/e2 - 1); of a surface in large surroundings it is its own emissivity (M. F.
Modest, Radiative Heat Transfer, 3rd ed., 2013, section 5.3). Newton's method begins with the flow
as if e (t^3 + ...) were that of both points, so t and t' lie between T and T'.

Seen from the other side all roundings are the same with the opposite sign, so that what leaves one
cell enters the other one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import NumericsError
from tetris_sim.model.formula import Node, Operation, Variable, compile_expression, evaluate
from tetris_sim.model.program import Program

Numbers = npt.NDArray[np.float64]

STEFAN_BOLTZMANN = 5.670374419e-8  # W/(m^2 K^4), exact since the SI of 2019
KELVIN = 273.15  # 0 degC in kelvin
# Temperatures here and there [degC], resistances from there to the surfaces, that of the contact,
# and the radiance.
RADIATING_INPUTS = ("here", "there", "own", "other", "contact", "radiance")
# Of half cells that resist 10 times what radiation does and of temperatures from 1 K to 3000 K,
# 6 steps reach rounding errors: `tests/unit/test_radiation.py` measures it.
_NEWTON_STEPS = 6


def _formula(text: str, parts: dict[str, Node]) -> Node:
    """Compile a text whose names stand for parts of a formula."""
    tree = compile_expression(text, [*parts]).tree

    def put(node: Node) -> Node:
        match node:
            case Variable(name):
                return parts[name]
            case Operation(name, below):
                return Operation(name, tuple(map(put, below)))
        return node

    return put(tree)


def _radiating() -> Program:
    """The flow into `here`, per what its resistances and its radiance are given for."""
    parts: dict[str, Node] = {name: Variable(name) for name in RADIATING_INPUTS}

    def add(**texts: str) -> None:
        for name, text in texts.items():
            parts[name] = _formula(text, parts)

    # Sums of two products would round differently when seen from the other side: whichever of them
    # is contracted with the sum. Products of sums and of differences do not.
    add(a=f"here + {KELVIN}", b=f"there + {KELVIN}", g="1/contact", both="own + other")
    add(sum="b + a", rise="b - a")
    add(linear="g + radiance*(sum*(sum*sum + rise*rise))/2")
    add(flow="rise*linear/(both*linear + 1)")
    for _ in range(_NEWTON_STEPS):
        add(t="a + own*flow", u="b - other*flow")
        add(sum="u + t", rise="u - t")
        add(linear="g + radiance*(sum*(sum*sum + rise*rise))/2")
        add(x="g + 4*radiance*(t*t*t)", y="g + 4*radiance*(u*u*u)")
        add(steep="(both*(x + y) + (own - other)*(x - y))/2 + 1")
        add(flow="flow + (rise*linear - flow)/steep")
    return Program(parts["flow"])


RADIATING = _radiating()


@dataclass(frozen=True, eq=False)
class RadiatedFlow:
    """Flows between radiating surfaces and their slopes.

    Attributes:
        flow: from there to here.
        cooling: by how much less flows per degree that it is warmer here.
        warming: by how much more flows per degree that it is warmer there.
    """

    flow: Numbers
    cooling: Numbers
    warming: Numbers

    @property
    def conductance(self) -> Numbers:
        """The larger slope: with it as a conductance, what is left of the flow shrinks in every
        solution, whichever side is warmer.
        """
        return np.maximum(self.cooling, self.warming)


def radiated(
    here: Numbers, there: Numbers, own: Numbers, other: Numbers, contact: Numbers, radiance: Numbers
) -> RadiatedFlow:
    """Return what flows between surfaces, with its slopes.

    >>> it = radiated(*(np.array([x]) for x in (0.0, 100.0, 0.0, 0.0, np.inf, STEFAN_BOLTZMANN)))
    >>> it.flow.round(6), it.cooling.round(6)
    (array([783.716326]), array([4.622483]))

    Args:
        here: temperature of points [degC].
        there: temperature on the other side [degC].
        own: resistance from the points to their surfaces.
        other: the same on the other side.
        contact: resistance beside the radiation; infinite for none.
        radiance: effective emissivity times the Stefan-Boltzmann constant; all for the same area.
    """
    # Implicit differentiation of the flow: with x and y the slopes of both surfaces, own x + other
    # y + 1 is the factor by which resistances in series weaken them.
    given = (here, there, own, other, contact, radiance)
    flow = np.asarray(evaluate(RADIATING.tree, dict(zip(RADIATING_INPUTS, given, strict=True))))
    surfaces = here + KELVIN + own * flow, there + KELVIN - other * flow
    x, y = (1 / contact + 4 * radiance * t**3 for t in surfaces)
    steep = own * x + other * y + 1
    return RadiatedFlow(flow, x / steep, y / steep)


# Enclosures: surfaces that see many others.

_CONVERGED = 1e-12  # of the largest flux: by how much a round may change fluxes
_ROUNDED = 1e-15  # of what is emitted: the rounding of its differences
_ROUNDS = 5000
_FEW, _NEWTON_ROUNDS = 300, 12  # patches whose fluxes Newton's method finds, and its rounds
_MOST_SURFACES = 4000  # patches of an enclosure whose slopes are solved for


@dataclass(frozen=True, eq=False)
class Enclosure:
    """Surfaces around a void, grey and diffuse, in patches of one flux each.

    With the matrix F of view factors, the radiosities J = e E + (1 - e) F J, and q = J - F J leaves
    each area (M. F. Modest, Radiative Heat Transfer, 3rd ed., 2013, section 5.3): q = M E, where
    E is the mean of sigma t^4 over the faces of a patch, and t = T - r q of a face lies r from the
    centre of its cell. A M is symmetric and its rows add up to 0, so nothing is lost.

    Attributes:
        name: of the configuration.
        cells: flat number of the cell behind each face, (n_faces,).
        patch: of each face, (n_faces,).
        area: of each face [m^2].
        resistance: from the centre of the cell to the face [m^2 K/W].
        areas: of patches, (n,) [m^2].
        emissivity: of patches.
        seen: A_i F_ij, symmetric (n, n) [m^2].
        seconds: that it took to find them.
    """

    name: str
    cells: npt.NDArray[np.int64]
    patch: npt.NDArray[np.int64]
    area: Numbers
    resistance: Numbers
    areas: Numbers
    emissivity: Numbers
    seen: Numbers
    seconds: float = 0.0

    @functools.cached_property
    def exchange(self) -> Numbers:
        """A M, (n, n) [m^2]: one dense factorisation."""
        # J = e E + (1 - e) F J for all unit vectors E at once; then A M = A (1 - F) J.
        factors = self.seen / self.areas[:, None]
        one = np.eye(len(self.areas))
        radiosity = np.linalg.solve(
            one - (1 - self.emissivity)[:, None] * factors, np.diag(self.emissivity)
        )
        found = self.areas[:, None] * ((one - factors) @ radiosity)
        # Exact properties are restored after rounding: symmetry (reciprocity), and rows that add up
        # to 0 (what all surfaces of one temperature exchange).
        found = (found + found.T) / 2
        np.fill_diagonal(found, 0.0)
        np.fill_diagonal(found, -found.sum(axis=1))
        return np.asarray(found)

    def fluxes(self, temperatures: Numbers) -> tuple[Numbers, Numbers]:
        """Return (what leaves each patch [W/m^2], temperatures of faces [K]).

        Args:
            temperatures: of the cells behind the faces [degC].

        Raises:
            NumericsError: they are not found.
        """
        kelvin, n = temperatures + KELVIN, len(self.areas)
        if not np.isfinite(kelvin).all():
            return np.full(n, np.nan), kelvin  # the run ends by itself
        q, surface = np.zeros(n), kelvin
        matrix = self.exchange / self.areas[:, None]
        diagonal = np.diag(matrix)

        # Fixed-point iteration on the fluxes q: faces are cooler than their cells by resistance
        # times q. A few patches are solved for by Newton's method, many by the diagonal of the same
        # matrix.
        share = self.area / self.areas[self.patch]
        for number in range(_ROUNDS):
            surface = np.maximum(kelvin - self.resistance * q[self.patch], 0.0)
            emitted = np.bincount(self.patch, share * STEFAN_BOLTZMANN * surface**4, n)
            # Of differences only, so that what is the same everywhere does not round.
            new = self.exchange @ (emitted - emitted.mean()) / self.areas
            change = new - q
            if abs(change).max() <= _CONVERGED * abs(new).max() + _ROUNDED * emitted.max():
                return np.asarray(new), np.asarray(surface)
            steep = np.bincount(
                self.patch, share * self.resistance * 4 * STEFAN_BOLTZMANN * surface**3, n
            )
            if n <= _FEW and number < _NEWTON_ROUNDS:
                q = q + np.linalg.solve(np.eye(n) + matrix * steep, change)
                continue
            # A contraction, whatever the resistances are: rows of M add up to 0.
            q = q + change / (1 + diagonal * steep)
        msg = (
            f"the radiation in {self.name} is not found: after {_ROUNDS} rounds fluxes still "
            f"change by {abs(change).max():.3g} W/m^2; take finer cells behind its surfaces"
        )
        raise NumericsError(msg)

    def slopes(self, temperatures: Numbers) -> tuple[Numbers, Numbers]:
        """Return (K, w): by how much more leaves each patch per degree of the mean that w, weights
        of faces, make of a patch, (n, n) [W/(m^2 K)].
        """
        if len(self.areas) > _MOST_SURFACES:
            msg = (
                f"{self.name} has {len(self.areas):,} patches, and implicit and steady solutions "
                f"take at most {_MOST_SURFACES:,}; let patches be larger, or take explicit steps"
            )
            raise NumericsError(msg)
        _, surface = self.fluxes(temperatures)
        # d(sigma t^4)/dt of each face, averaged over its patch by area.
        weights = self.area / self.areas[self.patch] * 4 * STEFAN_BOLTZMANN * surface**3
        steep = np.bincount(self.patch, weights * self.resistance, len(self.areas))
        matrix = self.exchange / self.areas[:, None]
        k = np.linalg.solve(np.eye(len(steep)) + matrix * steep, matrix)
        return np.asarray(k, np.float64), weights


@dataclass(frozen=True, eq=False)
class Slopes:
    """Derivatives of rates by temperatures, as a product of three matrices.

    Attributes:
        left: from fluxes of patches to rates of cells, sparse (n_cells, n_patches).
        middle: from temperatures of patches to their fluxes, (n_patches, n_patches).
        right: from temperatures of cells to those of patches, sparse (n_patches, n_cells).
        own: about what each cell does to itself, (n_cells,).
        acts: what is added of which only products with temperatures are known.
        diagonal: what each cell does to itself besides, (n_cells,); a part of `own` too.
    """

    left: Any
    middle: Numbers
    right: Any
    own: Numbers
    acts: Callable[[Numbers], Numbers] | None = None
    diagonal: Numbers | None = None

    @property
    def matrix(self) -> Any:
        """The product of the three with the diagonal, sparse."""
        from scipy.sparse import csr_matrix, diags

        product = self.left @ csr_matrix(self.middle) @ self.right
        return product if self.diagonal is None else product + diags(self.diagonal)

    def along(self, v: Numbers) -> Numbers:
        """Return how rates change with temperatures v of all cells."""
        found = np.asarray(self.left @ (self.middle @ (self.right @ v)))
        found = found if self.diagonal is None else found + self.diagonal * v
        return found if self.acts is None else found + self.acts(v)


@dataclass(frozen=True, eq=False)
class Enclosures:
    """The enclosures of a body, as heat that its cells exchange.

    Attributes:
        each: of them.
        rates: of a cell: degrees per second that a heat of 1 changes it by, of the grid's shape.
        joules: what a heat of a cell is in watts.
    """

    each: tuple[Enclosure, ...]
    rates: Numbers
    joules: float

    @property
    def takes(self) -> Numbers:
        """The most that a cell exchanges per degree: as if its surfaces resisted nothing."""
        found = np.zeros(self.rates.size)
        for it in self.each:
            found += np.bincount(it.cells, it.area / it.resistance, found.size)
        return found.reshape(self.rates.shape) / self.joules

    def heat(self, state: Numbers) -> Numbers:
        """Return what each cell of a state gets, of its shape."""
        flat, found = np.asarray(state, np.float64).reshape(-1), np.zeros(state.size)
        for it in self.each:
            q, _ = it.fluxes(flat[it.cells])
            found -= np.bincount(it.cells, it.area * q[it.patch], found.size)
        return found.reshape(state.shape) / self.joules

    def slopes(self, state: Numbers) -> Slopes:
        """Return the derivatives of the rates of all cells by their temperatures."""
        from scipy.linalg import block_diag
        from scipy.sparse import csr_matrix, vstack

        flat = np.asarray(state, np.float64).reshape(-1)
        left, middle, right = list[Any](), list[Numbers](), list[Any]()
        own = np.zeros(flat.size)
        for it in self.each:
            k, weights = it.slopes(flat[it.cells])
            shape = (len(it.areas), flat.size)
            # Sign: what leaves a patch is lost by the cells behind it.
            given = -it.area * self.rates.reshape(-1)[it.cells] / self.joules
            left.append(csr_matrix((given, (it.patch, it.cells)), shape))
            right.append(csr_matrix((weights, (it.patch, it.cells)), shape))
            middle.append(k)
            own += np.bincount(it.cells, given * np.diag(k)[it.patch] * weights, flat.size)
        return Slopes(vstack(left).T.tocsr(), block_diag(*middle), vstack(right).tocsr(), own)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say how many patches there are, and what they cost."""
        return tuple(
            f"{it.name} radiates between {len(it.areas):,} patches: view factors took "
            f"{it.seconds:.2g} s and {2 * 8 * len(it.areas) ** 2 / 1e6:.3g} MB with what is made "
            "of them; the whole state is looked at in every step, one step at a time"
            for it in self.each
        )
