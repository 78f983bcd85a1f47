"""Conduction: heat flow between neighbouring points of a heterogeneous medium.

Cells are finite volumes. Through the face between two cells a and b flows, per area, (u_b - u_a) /
(d_a / (2 k_a) + R_ab + d_b / (2 k_b)), the same number for both, so heat is kept to rounding and
the steady state of layers is exact (S. V. Patankar, Numerical Heat Transfer and Fluid Flow, 1980,
section 4.2). With this flow by cell volume as K (u_b - u_a), a time step is

    S  = q                                         heat source at the point [W/m^3]
    S  = K (u_j - u) + S                           for each neighbour j: along the first axis the
                                                   lower, then the upper, then along the next axis
    u' = dt / (rho c) S + u

each line one fused multiply-add: all exact methods compute this chain, in this order. K depends on
the materials on both sides, `Medium`, or is prescribed for every face, `Coefficients`. Where k and
c depend on temperature or a material melts, the state is the enthalpy (`Enthalpy`).

Boundary values and heat sources are rules: programs of numbers by code (material, patch) and step.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tetris_sim.model.formula import Operation, Variable
from tetris_sim.model.program import Program
from tetris_sim.model.slab import PointLabels, Ranges
from tetris_sim.model.step_control import NO_TIMES, Signal, across, mean

# Enthalpy method: heat content as the state, where k and c depend on temperature or a material
# undergoes phase change.
#
# The state is the enthalpy H per volume [J/m^3]. Temperature T(H), the potential phi(H), which is
# the integral of k dT (Kirchhoff transform), and the conductivity k(H) are piecewise linear by
# material; while it melts, T stands still or rises slowly, and H takes up the latent heat. Between
# two cells of one material flows (phi_b - phi_a) / d, exact for any k(T); between different ones
# (T_b - T_a) over the sum of three resistances: half a cell on each side, with the current
# conductivities, and the contact, or what surfaces radiate (`radiation.py`). A time step is
#
#     S  = K (phi_j - phi) + S     or     S = (T_j - T) / ((c / k + c_j / k_j) + R) + S
#     H' = dt / f S + H
#
# with f how full a cell is, and K, c, R by id or face (V. R. Voller, M. Cross, Int. J. Heat Mass
# Transfer 24 (1981) 545; H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 1959, 1.6).

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """A piecewise linear function of H for every id.

    Attributes:
        begins: value where each piece begins, (n_ids, n_pieces).
        slopes: slope of each piece, (n_ids, n_pieces).
    """

    begins: Numbers
    slopes: Numbers


@dataclass(frozen=True, eq=False)
class Enthalpy:
    """Material laws of the enthalpy method: temperature, potential and conductivity by enthalpy.

    Attributes:
        knots: where each piece begins, ascending, (n_ids, n_pieces) [J/m^3]. The first piece
            extends below the first knot, the last one above the last.
        temperature, potential, conductivity: T [degC], phi [W/m], k [W/(m K)], positive.
        kinds: the material of each id, (n_ids,); ids of one material differ in their heat source.
        half: c by axis and id, (ndim, n_ids) [m^2]: spacing^2 / 2, over the factor by which k is
            larger along this axis.
        contact: R by axis and ids, (ndim, n_ids, n_ids), symmetric [m^3 K/W]: spacing times the
            contact resistance between different materials; infinite where nothing is conducted.
        radiance: e of the same, effective emissivity times the Stefan-Boltzmann constant over
            spacing [W/(m^3 K^4)]; 0 where surfaces do not radiate to each other.
    """

    knots: Numbers
    temperature: Curve
    potential: Curve
    conductivity: Curve
    kinds: npt.NDArray[np.int64]
    half: Numbers
    contact: Numbers
    radiance: Numbers

    @functools.cached_property
    def radiates(self) -> bool:
        """Whether any two ids radiate to each other."""
        return bool((self.radiance > 0).any())

    @property
    def n_pieces(self) -> int:
        """Number of pieces of every curve."""
        return int(self.knots.shape[1])

    def of(self, curve: Curve, state: npt.NDArray[Any], ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Evaluate a curve for enthalpies and ids of one shape, in the dtype of `state`."""
        # Knots are rounded to the state's dtype before the lookup, as kernels store them: a state
        # on a knot must select the same piece everywhere.
        knots = self.knots.astype(state.dtype)
        piece = _pieces(knots, state, ids, side="right")
        begins, slopes = (
            numbers.astype(state.dtype)[ids, piece] for numbers in (curve.begins, curve.slopes)
        )
        return np.asanyarray(slopes * (state - knots[ids, piece]) + begins)

    def from_temperature(self, temperature: Numbers, ids: npt.NDArray[Any]) -> Numbers:
        """Return the enthalpy [J/m^3] at a temperature [degC]; what just melts counts as solid."""
        return self.where(self.temperature, temperature, ids)

    def where(self, curve: Curve, values: Numbers, ids: npt.NDArray[Any]) -> Numbers:
        """Return the smallest enthalpy [J/m^3] at which an ascending curve takes some values."""
        # Unused pieces have infinite knots; they must not attract a value.
        marks = np.where(np.isfinite(self.knots), curve.begins, np.inf)
        piece = _pieces(marks, values, ids, side="left")
        return np.asarray(
            self.knots[ids, piece] + (values - curve.begins[ids, piece]) / curve.slopes[ids, piece]
        )

    def slope(self, curve: Curve, state: Numbers, ids: npt.NDArray[Any]) -> Numbers:
        """Return the slope of a curve at an enthalpy; at a knot, that of the piece above it."""
        return np.asarray(curve.slopes[ids, _pieces(self.knots, state, ids, side="right")])

    def with_ghosts(self) -> Enthalpy:
        """Return a copy with twice as many ids: for id n_ids + a, state and potential are the same
        number, and towards its neighbours it is of the material of a.
        """
        n, n_pieces = self.knots.shape

        # A ghost id has a single piece, begin 0 and slope 1: its potential is the stored number
        # itself.
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
            radiance=np.tile(self.radiance, (2, 2)),
        )


def _pieces(
    marks: npt.NDArray[Any],
    values: npt.NDArray[Any],
    ids: npt.NDArray[Any],
    *,
    side: Literal["left", "right"],
) -> npt.NDArray[np.int64]:
    """Number the piece of each value: count the marks (n_ids, n_pieces) of its id, after the first,
    that lie below the value (with "right", at or below).
    """
    piece = np.zeros(values.shape, np.int64)
    for own in np.unique(ids):
        here = ids == own
        piece[here] = np.searchsorted(marks[own, 1:], values[here], side)
    return piece


Ids = npt.NDArray[np.unsignedinteger[Any]]
Clock = Callable[[Any], Any]  # the time of a step, or of each of an array of steps [s]
_CHUNK = 64  # steps whose numbers are computed together
_PARTS = 16  # panels of a span that may be as long as a run

# Inputs of a face's program: the interior point next to the face (the quantity whose difference
# drives the flow: the state or, with enthalpy, its potential; the program then returns the
# potential of the ghost), its temperature, and its conductivity k.
MIRROR, TEMPERATURE, CONDUCTIVITY = "mirror", "temperature", "conductivity"
AFFINE = Program(
    Operation("add", (Operation("multiply", (Variable("b"), Variable(MIRROR))), Variable("a")))
)


@dataclass(frozen=True, eq=False)
class Parameter:
    """A number that a program reads, by code, and by time step if it changes.

    Attributes:
        name: of the input.
        values: by code (n_codes,), or one for all codes (1,); or a function of times (n,) [s] that
            gives (n, n_codes) or (n, 1).
        knots: times at which the function bends or jumps, ascending [s]: a step reads its mean over
            the step. None: it reads the value at its beginning.
        only_across: whether only steps in which a knot lies read their means, as `across` does.
    """

    name: str
    values: Numbers | Callable[[Numbers], Numbers]
    knots: Numbers | None = None
    only_across: bool = False

    @property
    def changes(self) -> bool:
        """Whether it depends on time."""
        return callable(self.values)

    def rows(self, time: Clock, first: int, steps: int) -> Numbers:
        """Tabulate steps, (steps, n_codes) or (steps, 1); one row if the numbers are constant.

        They are computed for whole chunks of steps: vectorized functions round the ends of an array
        differently from its middle, and a number must not depend on what is requested with it.

        Args:
            time: the clock, from step numbers to times [s].
            first: the first step.
            steps: how many.
        """
        if not callable(self.values):
            return np.asarray(self.values, np.float64).reshape(1, -1)

        # Round outwards to chunk boundaries, so that a step is always evaluated at the same
        # position of the same array.
        begin, end = first // _CHUNK * _CHUNK, -(-(first + steps) // _CHUNK) * _CHUNK
        times = np.asarray(time(np.arange(begin, end + 1)), np.float64)
        # A caller that needs one step usually needs the following ones too, so the chunk is cached.
        kept = (times.tobytes(), Signal.decided)
        rows = self._chunk(kept) if end - begin == _CHUNK else self.over(times)
        return rows[first - begin : first - begin + steps]

    def during(self, begin: float, end: float) -> Numbers:
        """Return its mean over a span [s], or its value at an instant, (n_codes,) or (1,)."""
        if not callable(self.values):
            return np.asarray(self.values, np.float64)
        span, knots = (np.array([begin]), np.array([end])), self.knots
        (row,) = mean(self.values, *span, NO_TIMES if knots is None else knots, parts=_PARTS)
        return np.asarray(row)

    def over(self, times: Numbers) -> Numbers:
        """Return what the steps between some times read, (n - 1, n_codes) or (n - 1, 1)."""
        assert callable(self.values)
        if self.knots is None or self.only_across:
            return across(self.values, times, NO_TIMES if self.knots is None else self.knots)
        return mean(self.values, times[:-1], times[1:], self.knots)

    @functools.cached_property
    def _chunk(self) -> Callable[[tuple[bytes, int]], Numbers]:
        return functools.lru_cache(maxsize=32)(lambda kept: self.over(np.frombuffer(kept[0])))


@dataclass(frozen=True, eq=False)
class Rule:
    """A program together with the parameters that it reads.

    Attributes:
        program: its inputs are the parameters, coordinates x, y, z [m], and any inputs that its
            location provides (the mirror point of a face).
        parameters: by code.
    """

    program: Program
    parameters: tuple[Parameter, ...]

    @property
    def changes(self) -> bool:
        """Whether it depends on time."""
        return any(parameter.changes for parameter in self.parameters)

    def tabulate(self, time: Clock, first: int, steps: int, dtype: np.dtype[Any]) -> ParameterRows:
        """Return the parameters of some steps as one flat array; see `Parameter.rows` for the
        arguments.
        """
        rows = [it.rows(time, first, steps) for it in self.parameters]

        # A stride of 0 makes a constant parameter readable with the same index arithmetic as one
        # that changes by step or by code.
        places, begin = np.zeros((max(1, len(rows)), 3), np.int64), 0
        for place, row in zip(places, rows, strict=False):
            place[:] = begin, row.shape[1] * (len(row) > 1), row.shape[1] > 1
            begin += row.size
        flat = np.concatenate([row.reshape(-1) for row in rows] or [np.zeros(1)])
        return ParameterRows(flat.astype(dtype), places)


@dataclass(frozen=True)
class ParameterRows:
    """Numbers of a rule for some steps.

    Attributes:
        numbers: all of them, flat.
        places: (n_parameters, 3): offset of parameter p in `numbers`, and its strides from step to
            step and from code to code; a stride is 0 where the number is the same.
    """

    numbers: npt.NDArray[Any]
    places: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RuledFace:
    """A face whose ghosts follow from a rule: ghost = program(mirror, ...).

    Attributes:
        rule: parameters by code, patch * n_ids + the id of the mirror point. The flow through the
            face is K[axis][id][id] (ghost - mirror).
        patches: the patch of points, (...), of a box of global indices that is one point thick
            along the face's axis; None for a single one.
        n_patches: number of patches.
        lasting: (a, b) if ghosts a + b * mirror, filled once as deep as a block of steps reaches,
            stay right for all of them; None if they do not.
        stepwise: whether ghosts without `lasting` must be recomputed at every step
            (`deep_ghosts.py`).
    """

    rule: Rule
    patches: Callable[[Ranges], Ids] | None = None
    n_patches: int = 1
    lasting: tuple[float, float] | None = None
    stepwise: bool = False

    @property
    def is_affine(self) -> bool:
        """Whether its ghosts are a + b * mirror."""
        return self.rule.program == AFFINE

    def codes(self, box: Ranges, ids: Ids, n_ids: int) -> npt.NDArray[np.int64]:
        """Return the codes of the mirror points of a box, from their ids."""
        if self.patches is None:
            return ids.astype(np.int64)
        return self.patches(box).astype(np.int64) * n_ids + ids


@dataclass(frozen=True, eq=False)
class Medium:
    """The materials of the points and the conductances between them.

    Attributes:
        ids: the material of the points of a box of global indices, a function of these alone.
        conductance: K by axis (array order) and the ids on both sides, (ndim, n_ids, n_ids) [W/(m^3
            K)], symmetric; a ghost beyond a face has the id of its point.
        capacity: rho c by id, (n_ids,) [J/(m^3 K)]; infinite where the state is held.
        names: of the material of each id; ids may share one.
        void: mask of the ids that are nothing, (n_ids,), whose state has no meaning; or None.
        regions: which region of the configuration each point shows, if it has regions.

    Raises:
        ValueError: sizes disagree, conductances are asymmetric, negative or not finite, or a
            capacity is not positive.
    """

    ids: Callable[[Ranges], Ids]
    conductance: Numbers
    capacity: Numbers
    names: tuple[str, ...]
    void: npt.NDArray[np.bool_] | None = None
    regions: PointLabels | None = None

    def __post_init__(self) -> None:
        n = len(self.capacity)
        if self.conductance.shape[1:] != (n, n) or len(self.names) != n:
            msg = (
                f"{n} capacities need {n} names and conductances (ndim, {n}, {n}), got "
                f"{len(self.names)} and {self.conductance.shape}"
            )
            raise ValueError(msg)

        # Symmetry makes the scheme conservative: both cells see the same flow with opposite signs.
        if not np.array_equal(self.conductance, self.conductance.transpose(0, 2, 1)):
            msg = "conductances must be symmetric: what leaves one cell enters the other"
            raise ValueError(msg)
        if not (np.isfinite(self.conductance).all() and (self.conductance >= 0).all()):
            msg = "conductances are finite and 0 or more"
            raise ValueError(msg)
        # An infinite capacity is allowed: the rate dt / (rho c) is then 0, which holds the state.
        if not (self.capacity > 0).all():
            msg = f"heat capacities are positive, got {self.capacity} J/(m^3 K)"
            raise ValueError(msg)

    @property
    def n_ids(self) -> int:
        """Number of ids."""
        return len(self.capacity)


class Coefficients(Protocol):
    """Conductances that differ from face to face, as on graded axes, in W/K and per cell."""

    @property
    def separates(self) -> bool:
        """Whether all are products of functions of one place each, as of geometry alone."""

    def conductance(self, axis: int, box: Ranges) -> Numbers:
        """Conductance of the upper face of each point of a box, along an axis [W/K].

        Along that axis the box may begin at -1, whose upper face is the low face of the domain. At
        faces of the domain, the conductance is that between the point and its ghost.
        """

    def capacity(self, box: Ranges) -> Numbers:
        """Heat capacity rho c times volume of the points of a box [J/K]; infinite if held."""

    def volume(self, box: Ranges) -> Numbers:
        """Volumes of the cells of a box [m^3]; heat sources are multiplied by them."""

    def series(self, axis: int, box: Ranges) -> Numbers:
        """Of the same faces, for enthalpies of different materials: c of the half cells below and
        above [1/m], to be divided by their k, and the contact R [K/W]; (..., 3).
        """

    def radiance(self, axis: int, box: Ranges) -> Numbers:
        """Of the same faces, e times the area of enthalpies that radiate, else 0 [W/K^4]."""


@dataclass(frozen=True, eq=False)
class Conduction:
    """A time step by conservation of heat.

    Attributes:
        medium: materials of the points.
        source: heat source of the points [W/m^3], parameters by id; None for no source.
        coefficients: conductance of every face, instead of the medium's.
        enthalpy: material laws, if the state is the enthalpy instead of a temperature; the medium's
            conductances are then those by potential, of ids with their like [1/m^2], its capacities
            how full cells are, or infinite where held; coefficients are by potential too [m, m^3].
    """

    medium: Medium
    source: Rule | None = None
    coefficients: Coefficients | None = None
    enthalpy: Enthalpy | None = None

    @property
    def radiates(self) -> bool:
        """Whether surfaces inside the body radiate."""
        return self.enthalpy is not None and self.enthalpy.radiates

    def rates(self, dt: float, box: Ranges | None = None) -> Numbers:
        """Return dt over capacity, by id or of a box [s m^3 K/J]; with coefficients [s K/J]."""
        if box is None:
            return np.asarray(dt / self.medium.capacity)
        if self.coefficients is not None:
            return dt / self.coefficients.capacity(box)
        return np.asarray(dt / self.medium.capacity[self.medium.ids(box)])

    def between(self, axis: int, faces: Ranges, ids: Ids, beside: Ids) -> Numbers:
        """Return the conductances of the upper faces of the cells `faces`, between points of two
        ids [W/(m^3 K)]; with coefficients of whole faces [W/K]; of enthalpies by potential.
        """
        if self.coefficients is not None:
            return self.coefficients.conductance(axis, faces)
        return np.asarray(self.medium.conductance[axis][ids, beside])

    def held(self, box: Ranges) -> npt.NDArray[np.bool_]:
        """Return the mask of the points of a box whose state does not change: fluids and voids."""
        return np.isinf(self.medium.capacity)[self.medium.ids(box)]

    def repeated(self, shape: tuple[int, ...]) -> Conduction:
        """Extend the body to any size by repeating a grid of `shape` periodically."""
        medium = replace(self.medium, ids=repeated(self.medium.ids, shape))
        given = self.coefficients and _RepeatedCoefficients(self.coefficients, shape)
        return replace(self, medium=medium, coefficients=given)

    @functools.cached_property
    def with_ghosts(self) -> Conduction:
        """Conduction for the ids of `Problem.stored_ids`, ghost potentials included."""
        if self.enthalpy is None:
            return self
        medium = self.medium
        double = replace(
            medium,
            conductance=np.tile(medium.conductance, (2, 2)),
            capacity=np.tile(medium.capacity, 2),
            names=medium.names * 2,
            void=None if medium.void is None else np.tile(medium.void, 2),
        )
        return replace(self, medium=double, enthalpy=self.enthalpy.with_ghosts())


@dataclass(frozen=True, eq=False)
class _RepeatedCoefficients:
    given: Coefficients
    shape: tuple[int, ...]

    @property
    def separates(self) -> bool:
        return self.given.separates

    def conductance(self, axis: int, box: Ranges) -> Numbers:
        return repeated(functools.partial(self.given.conductance, axis), self.shape)(box)

    def capacity(self, box: Ranges) -> Numbers:
        return repeated(self.given.capacity, self.shape)(box)

    def volume(self, box: Ranges) -> Numbers:
        return repeated(self.given.volume, self.shape)(box)

    def series(self, axis: int, box: Ranges) -> Numbers:
        return repeated(functools.partial(self.given.series, axis), self.shape)(box)

    def radiance(self, axis: int, box: Ranges) -> Numbers:
        return repeated(functools.partial(self.given.radiance, axis), self.shape)(box)


def repeated(
    of_box: Callable[[Ranges], npt.NDArray[Any]], shape: tuple[int, ...]
) -> Callable[[Ranges], npt.NDArray[Any]]:
    """Extend a function of boxes by repeating a grid of `shape` along every axis."""
    return lambda box: padded(of_box, box, shape, (True,) * len(shape))


def in_series(spacing: float, conductivity: Numbers, resistance: Numbers | float = 0.0) -> Numbers:
    """Return the conductance between neighbours of any two materials, (n_ids, n_ids) [W/(m^3 K)]:
    the two half cells and their contact in series.

    Args:
        spacing: between points along the axis [m].
        conductivity: along the axis by id [W/(m K)]; 0 lets nothing pass.
        resistance: of the contact of two materials, (n_ids, n_ids), symmetric [m^2 K/W].
    """
    # k = 0 gives an infinite resistance and hence, as wanted, the conductance 1 / inf = 0.
    with np.errstate(divide="ignore"):
        half = spacing / (2 * np.asarray(conductivity, np.float64))
    return np.asarray(1 / (spacing * (np.add.outer(half, half) + resistance)))


def padded(
    of_box: Callable[[Ranges], npt.NDArray[Any]],
    box: Ranges,
    shape: Sequence[int],
    periodic: Sequence[bool],
) -> npt.NDArray[Any]:
    """Evaluate a function of boxes on a box that reaches beyond the grid: outside points take the
    values of their mirror points, or of their periodic images along a periodic axis.

    >>> padded(lambda box: np.arange(*box[0]), ((-2, 5),), (3,), (False,)).tolist()
    [1, 0, 0, 1, 2, 2, 1]

    Args:
        of_box: the function, defined for any box inside the grid.
        box: global indices; beyond the grid by no more than it is long.
        shape: of the grid.
        periodic: per axis.

    Returns:
        An array of the shape of the box and what more axes `of_box` gives, in its dtype.
    """
    # Split every axis into runs that are contiguous inside the grid; each product of runs is then
    # one call and one, possibly reversed, copy.
    runs = [_runs(span, n, ring) for span, n, ring in zip(box, shape, periodic, strict=True)]
    shape_of_box = tuple(high - low for low, high in box)
    result: npt.NDArray[Any] | None = None
    for parts in itertools.product(*runs):
        inside = of_box(tuple(part.inside for part in parts))
        if result is None:
            result = np.empty((*shape_of_box, *inside.shape[len(box) :]), inside.dtype)
        sizes = inside.shape[: len(box)]
        target = tuple(slice(it.begin, it.begin + n) for it, n in zip(parts, sizes, strict=True))
        result[target] = inside[tuple(slice(None, None, part.direction) for part in parts)]
    assert result is not None
    return result


@dataclass(frozen=True)
class _Run:
    """A run of consecutive points of an axis, read forwards or backwards."""

    begin: int  # in the padded span
    inside: tuple[int, int]
    direction: int


def _runs(span: tuple[int, int], n: int, ring: bool) -> list[_Run]:
    low, high = span
    runs = []
    if ring:
        at = low
        while at < high:
            inside = at % n
            length = min(n - inside, high - at)
            runs.append(_Run(at - low, (inside, inside + length), 1))
            at += length
        return runs

    # Mirror images: index -1 - i reads i, n + i reads n - 1 - i. A span may lie wholly outside.
    if low < 0:
        runs.append(_Run(0, (max(-min(high, 0), 0), -low), -1))
    if max(low, 0) < min(high, n):
        runs.append(_Run(max(low, 0) - low, (max(low, 0), min(high, n)), 1))
    if high > n:
        begin = max(low, n)
        runs.append(_Run(begin - low, (2 * n - high, 2 * n - begin), -1))
    return runs
