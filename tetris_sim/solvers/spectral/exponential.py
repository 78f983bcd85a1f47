"""Stiff equations: du/dt = L u + N(u, t), L diagonal in the transforms of the faces, N explicit.

`linearisation.py` splits right-hand sides; here L becomes numbers per wave (matrices where it
couples fields), and two schemes advance coefficients v of all waves, h being the step:

    etdrk4  exponential time differencing, fourth order (S. M. Cox, P. C. Matthews, J. Comput. Phys.
            176 (2002) 430), with the coefficients of A.-K. Kassam, L. N. Trefethen, SIAM J. Sci.
            Comput. 26 (2005) 1214. The embedded formula of third order takes N at the new state
            instead of the last stage (P. Whalley, M. Brio, J. V. Moloney, J. Comput. Phys. 280
            (2015) 579), so its error costs nothing: that N begins the next step.
    imex    ARK3(2)4L[2]SA, an additive Runge-Kutta pair of third order with an embedded one of
            second, L-stable in L (C. A. Kennedy, M. H. Carpenter, Appl. Numer. Math. 44 (2003)
            139). How N changes with time alone, from N(u, t) at the start of the substep, is
            implicit too: what faces are given is as stiff as L, and L answers to it.

With a tolerance, a step of the run is divided into substeps of its length over powers of two, so
that few sets of coefficients are needed, and what follows depends on the state alone.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from tetris_sim.model.equations import Offset, Stage, tap
from tetris_sim.model.formula import evaluate_each
from tetris_sim.model.linearisation import Ends, Splitting, Taps, split
from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import with_ghosts
from tetris_sim.model.rounding import Observed
from tetris_sim.model.stencil import star_mean
from tetris_sim.solvers.spectral.axis import Arrays, ModalExpansion, SpectralAxis

Function = Callable[[Any, float], Any]  # N or f: from state and time [s] to rates, (n_fields, ...)
# By (row, column) among fields: numbers per wave, the nonzero entries of a matrix per wave.
Matrix = dict[tuple[int, int], Any]
_NO_SUM = 4 * float(np.finfo(float).eps)  # of all weights: a sum that is 0 but for rounding

# Transforms: from values at points to coefficients of waves.


class Modes:
    """The waves of all fields: complex ones along periodic axes, cosines or sines along others.

    Args:
        shape: of the grid.
        ends: of each field, b of its faces per axis; None where the axis is periodic.
        arrays: array library.
    """

    def __init__(
        self, shape: Sequence[int], ends: Sequence[tuple[Ends | None, ...]], arrays: Arrays
    ) -> None:
        self._shape, self._arrays = tuple(shape), arrays
        self._periodic = tuple(axis for axis, it in enumerate(ends[0]) if it is None)
        axes: dict[tuple[int, Ends], SpectralAxis] = {}
        self._mirrored: list[list[ModalExpansion]] = []
        for own in ends:
            self._mirrored.append([])
            for place, pair in enumerate(own):
                if pair is not None:
                    # A field that is not read beside its points is expanded in any waves.
                    known: Ends = (1.0, 1.0) if math.isnan(pair[0]) else pair
                    key = self._shape[place], known
                    axis = axes.setdefault(key, SpectralAxis(*key))
                    self._mirrored[-1].append(ModalExpansion(axis, place, arrays))

    def forward(self, u: Any) -> Any:
        """Return the coefficients of all fields, (n_fields, ...); `u` is overwritten."""
        for values, expansions in zip(u, self._mirrored, strict=True):
            for expansion in expansions:
                expansion.expand(values)
        if not self._periodic:
            return u
        along = tuple(axis + 1 for axis in self._periodic)
        return self._arrays.fft.rfftn(u, axes=along, **self._arrays.options)

    def backward(self, v: Any) -> Any:
        """Return the values, (n_fields, n0, ...), a new array."""
        if not self._periodic:
            u = v.copy()
        else:
            along = tuple(axis + 1 for axis in self._periodic)
            shape = [self._shape[axis] for axis in self._periodic]
            u = self._arrays.fft.irfftn(v, s=shape, axes=along, **self._arrays.options)
        for values, expansions in zip(u, self._mirrored, strict=True):
            for expansion in expansions:
                expansion.sum(values)
        return u

    def symbol(self, number: int, weights: Mapping[Offset, float]) -> Any:
        """Return the factor by which taps of a field multiply each wave of it.

        Args:
            number: of the field.
            weights: by offset; even along axes that are not periodic.
        """
        # exp(i p) - 1 = -2 sin^2(p/2) + i sin(p): a sum of weights that is 0 stays 0 for the
        # longest waves, so what is conserved stays conserved.
        xp = self._arrays.xp
        even = all(weights.get(tuple(-k for k in it)) == w for it, w in weights.items())
        whole, size = math.fsum(weights.values()), math.fsum(map(abs, weights.values()))
        total = 0.0 if abs(whole) <= _NO_SUM * size else whole
        for offset, weight in weights.items():
            phase = sum(
                (shift * angle for shift, angle in zip(offset, self._angles(number), strict=True)),
                start=xp.zeros((1,) * len(self._shape)),
            )
            part = -2 * weight * xp.sin(phase / 2) ** 2
            total = total + (part if even else part + 1j * weight * xp.sin(phase))
        return total

    @functools.cache  # noqa: B019 - one object per run
    def _angles(self, number: int) -> list[Any]:
        """Phases between neighbours of each wave, per axis, shaped to broadcast."""
        mirrored = {it.place: it.axis.theta for it in self._mirrored[number]}
        found = []
        for axis, n in enumerate(self._shape):
            theta: Any = mirrored.get(axis)
            if theta is None:
                last = axis == self._periodic[-1]
                theta = 2 * math.pi / n * np.arange(n // 2 + 1 if last else n)
            shape = [-1 if k == axis else 1 for k in range(len(self._shape))]
            found.append(self._arrays.xp.asarray(theta).reshape(shape))
        return found


def linear_matrix(splitting: Splitting, modes: Modes) -> Matrix:
    """Return L as numbers per wave."""
    fields = [*splitting.results]
    rows: dict[str, dict[int, Any]] = {name: {k: 1.0} for k, name in enumerate(fields)}
    for name, taps in splitting.weights.items():
        rows[name] = {}
        for read in dict.fromkeys(key[0] for key in taps):
            for column, factor in rows[read].items():
                here = modes.symbol(column, _weights_of(taps, read)) * factor
                rows[name][column] = rows[name].get(column, 0.0) + here

    found: Matrix = {}
    for row, name in enumerate(fields):
        for column, values in rows[splitting.results[name]].items():
            found[row, column] = values
    return found


def _weights_of(taps: Taps, name: str) -> dict[Offset, float]:
    return {offset: weight for (read, offset), weight in taps.items() if read == name}


# Functions of matrices per wave.


def product(matrix: Matrix, v: Any) -> list[Any]:
    """Return a matrix times coefficients, by field."""
    found: list[Any] = [0.0] * len(v)
    for (row, column), values in matrix.items():
        found[row] = found[row] + values * v[column]
    return found


def groups(matrix: Matrix, n_fields: int) -> list[list[int]]:
    """Return the fields that a matrix couples with one another, group by group.

    >>> groups({(0, 2): 1.0, (1, 1): 2.0}, 3)
    [[0, 2], [1]]
    """
    group = [*range(n_fields)]
    for row, column in matrix:
        old, new = sorted((group[row], group[column]))[::-1]
        group = [new if it == old else it for it in group]
    return [[k for k in range(n_fields) if group[k] == it] for it in sorted({*group})]


def apply_each(matrix: Matrix, n_fields: int, xp: Any, functions: Any) -> list[Matrix]:
    """Return functions of a matrix per wave.

    Args:
        matrix: numbers per wave.
        n_fields: its size.
        xp: array library.
        functions: has `of_numbers`, from numbers to the functions of each, and `of_blocks`, the
            same for small matrices in the last two axes.
    """
    found: list[Matrix] = []
    for group in groups(matrix, n_fields):
        if len(group) == 1:
            key = group[0], group[0]
            values = functions.of_numbers(xp.asarray(matrix.get(key, 0.0)))
        else:
            size, given = (
                len(group),
                [xp.asarray(matrix.get((i, j), 0.0)) for i in group for j in group],
            )
            shape = np.broadcast_shapes(*(it.shape for it in given))
            whole = xp.stack([xp.broadcast_to(it, shape) for it in given], axis=-1)
            values = functions.of_blocks(whole.reshape(*shape, size, size))

        # The entries of each function, by row and column again.
        found = found or [{} for _ in values]
        for made, result in zip(found, values, strict=True):
            for i, row in enumerate(group):
                for j, column in enumerate(group):
                    single = len(group) == 1
                    made[row, column] = (
                        result if single else xp.ascontiguousarray(result[..., i, j])
                    )
    return found


_POINTS = 32  # of a contour
_RADIUS = 2.0
_TERMS = 18  # of a Taylor series for arguments up to 1/2


@dataclass(frozen=True)
class Exponentials:
    """The coefficients of etdrk4 of a step h: exp(h L), exp(h L / 2), the weight of N in stages,
    and f1, f2, f3 of Kassam and Trefethen.

    Attributes:
        step: h.
        xp: array library.
    """

    step: float
    xp: Any

    def of_numbers(self, values: Any) -> tuple[Any, ...]:
        """Return them by means over a circle around each number that is near 0, where the formulas
        themselves would cancel.
        """
        xp, z = self.xp, values * self.step
        small = xp.abs(z) < 1.0
        sums: list[Any] = [0.0] * 4
        for number in range(_POINTS):
            # Around numbers below 1, points of a circle of radius 2 stay away from 0.
            around = _RADIUS * np.exp(2j * np.pi * (number + 0.5) / _POINTS)
            if not np.iscomplexobj(z) and number >= _POINTS // 2:
                break  # those below the real axis are conjugate
            here = xp.where(small, z + around, z + 0j)
            for k, it in enumerate(_formulas(here, xp)):
                sums[k] = sums[k] + it

        # Means over the circle are the values at its centre (Cauchy).
        count = _POINTS if np.iscomplexobj(z) else _POINTS // 2
        means = [it / count if np.iscomplexobj(z) else it.real / count for it in sums]
        stage, *weights = (self.step * it for it in means)
        return xp.exp(z), xp.exp(z / 2), stage, *weights

    def of_blocks(self, values: Any) -> tuple[Any, ...]:
        """Return them by Taylor series of a part of each matrix, doubled again and again."""
        half, whole = (_phis(values * h, self.xp) for h in (self.step / 2, self.step))
        one, two, three = whole[1:]
        weights = (one - 3 * two + 4 * three, two - 2 * three, 4 * three - two)
        return whole[0], half[0], self.step / 2 * half[1], *(self.step * it for it in weights)


def _formulas(z: Any, xp: Any) -> tuple[Any, Any, Any, Any]:
    """Those of Kassam and Trefethen, over h: Q, f1, f2 and f3."""
    e, cube = xp.exp(z), z * z * z
    return (
        (xp.exp(z / 2) - 1) / z,
        (-4 - z + e * (4 - 3 * z + z * z)) / cube,
        (2 + z + e * (z - 2)) / cube,
        (-4 - 3 * z - z * z + e * (4 - z)) / cube,
    )


def _phis(z: Any, xp: Any) -> list[Any]:
    """Return exp, phi_1, phi_2 and phi_3 of matrices in the last two axes.

    phi_k(2 z) = (phi_0(z) phi_k(z) + sum over j = 1..k of phi_j(z) / (k - j)!) / 2^k.
    """
    largest = float(xp.abs(z).sum(axis=-1).max())
    halvings = max(0, math.ceil(math.log2(largest)) + 1) if largest > 0 else 0
    small, unit = z / 2**halvings, xp.eye(z.shape[-1])
    found: list[Any] = []
    for k in range(4):
        total = unit / math.factorial(k + _TERMS)
        for n in reversed(range(_TERMS)):
            total = unit / math.factorial(k + n) + small @ total
        found.append(total)

    # Doubled as often as the argument was halved.
    for _ in range(halvings):
        e, one, two, three = found
        found = [
            e @ e,
            (e @ one + one) / 2,
            (e @ two + one + two) / 4,
            (e @ three + one / 2 + two + three) / 8,
        ]
    return found


@dataclass(frozen=True)
class Inverses:
    """1 / (1 - h L): the solution of an implicit stage.

    Attributes:
        step: h.
        xp: array library.
    """

    step: float
    xp: Any

    def of_numbers(self, values: Any) -> tuple[Any]:
        """Return them."""
        return (1 / (1 - self.step * values),)

    def of_blocks(self, values: Any) -> tuple[Any]:
        """Return them."""
        return (self.xp.linalg.inv(self.xp.eye(values.shape[-1]) - self.step * values),)


# ARK3(2)4L[2]SA.


def _fractions(text: str) -> tuple[float, ...]:
    return tuple(float(Fraction(it)) for it in text.split())


_NODES = _fractions("0 1767732205903/2027836641118 3/5 1")
_EXPLICIT = (
    (),
    _fractions("1767732205903/2027836641118"),
    _fractions("5535828885825/10492691773637 788022342437/10882634858940"),
    _fractions(
        "6485989280629/16251701735622 -4246266847089/9704473918619 10755448449292/10357097424841"
    ),
)
_GAMMA = float(Fraction("1767732205903/4055673282236"))
_IMPLICIT = (
    (),
    (_GAMMA,),
    _fractions("2746238789719/10658868560708 -640167445237/6845629431997"),
    _fractions(
        "1471266399579/7840856788654 -4482444167858/7529755066697 11266239266428/11593286722821"
    ),
)
_WEIGHTS = (*_IMPLICIT[3], _GAMMA)
_LOWER = _fractions(
    "2756255671327/12835298489170 -10771552573575/22201958757719 "
    "9247589265047/10645013368117 2193209047091/5459859503100"
)


@dataclass(frozen=True, eq=False)
class Tried:
    """A substep that was made, and may still be rejected.

    Attributes:
        v: coefficients of the new state.
        u: the new state.
        error: estimate of its error, (n_fields, n0, ...); None if it is not wanted.
        slope: coefficients of N at the new state, where known.
        lumps: what is solved for beside the state.
        powers: of what gives heat to cells by itself, beside the new state [W], by name.
        moved: heat that it gave in the substep [J], likewise.
    """

    v: Any
    u: Any
    error: Any = None
    slope: Any = None
    lumps: Any = None
    powers: Any = None
    moved: Any = None


class SplitScheme(abc.ABC):
    """A scheme for the equations of a problem.

    Args:
        problem: by right-hand sides.
        arrays: array library; `rates` compiles N.

    Attributes:
        order: power of the length of a substep with which its error shrinks.
    """

    order = 4

    def __init__(self, problem: Problem, arrays: Any) -> None:
        splitting = split(problem)
        self._xp, self._n = arrays.xp, problem.n_fields
        ends = [splitting.ends[name] for name in problem.system.fields]
        self._modes = Modes(problem.grid.shape, ends, arrays)
        self._matrix = linear_matrix(splitting, self._modes)
        reach = star_mean(problem.grid.ndim, splitting.rest.radii)
        rest = replace(problem, equations=splitting.rest, stencil=reach)
        self._rest: Function = arrays.rates(rest)
        self._changes = any(it.changes for it in splitting.rest.parameters)
        self._coefficients: dict[float, Any] = {}

    def begin(self, u: Any, time: float) -> Tried:
        """Take a state (n_fields, n0, ...) at a time [s]."""
        return Tried(self._modes.forward(u.copy()), u, slope=self.slope(u, time))

    def slope(self, u: Any, time: float) -> Any:
        """Return the coefficients of N."""
        return self._modes.forward(self._rest(u, time))

    def coefficients(self, step: float) -> Any:
        """Return those of a length of substeps; those of the last few lengths are kept."""
        if step not in self._coefficients:
            while len(self._coefficients) >= _KEPT:
                del self._coefficients[next(iter(self._coefficients))]
            self._coefficients[step] = self.make(step)
        return self._coefficients[step]

    @abc.abstractmethod
    def make(self, step: float) -> Any:
        """Compute the coefficients of a length."""

    @abc.abstractmethod
    def advance(self, before: Tried, time: float, step: float, *, judged: bool) -> Tried:
        """Try a substep from a state.

        Args:
            before: the state.
            time: its time [s].
            step: length of the substep [s].
            judged: whether its error is wanted.
        """


_KEPT = 6  # sets of coefficients, each of several numbers per wave


class Etdrk4(SplitScheme):
    """Exponential time differencing; see the top of the module."""

    def make(self, step: float) -> list[Matrix]:
        """Compute the functions of h L."""
        return apply_each(self._matrix, self._n, self._xp, Exponentials(step, self._xp))

    def advance(self, before: Tried, time: float, step: float, *, judged: bool) -> Tried:
        """Try a substep."""
        whole, half, stage, f1, f2, f3 = self.coefficients(step)
        v, n0, middle = before.v, before.slope, time + step / 2
        begun = product(half, v)
        a = self._stack(_plus(begun, product(stage, n0)))
        n1 = self._at(a, middle)
        b = self._stack(_plus(begun, product(stage, n1)))
        n2 = self._at(b, middle)
        c = self._stack(_plus(product(half, a), product(stage, 2 * n2 - n0)))
        n3 = self._at(c, time + step)

        parts = product(whole, v), product(f1, n0), product(f2, 2 * (n1 + n2)), product(f3, n3)
        new = self._stack(functools.reduce(_plus, parts))
        u = self._modes.backward(new)
        n4 = self.slope(u, time + step)
        error = self._modes.backward(self._stack(product(f3, n3 - n4))) if judged else None
        return Tried(new, u, error, n4)

    def _at(self, v: Any, time: float) -> Any:
        return self.slope(self._modes.backward(v), time)

    def _stack(self, parts: Sequence[Any]) -> Any:
        return self._xp.stack(parts)


class Imex(SplitScheme):
    """ARK3(2)4L[2]SA; see the top of the module."""

    order = 3

    def make(self, step: float) -> Matrix:
        """Compute 1 / (1 - gamma h L)."""
        return apply_each(self._matrix, self._n, self._xp, Inverses(_GAMMA * step, self._xp))[0]

    def advance(self, before: Tried, time: float, step: float, *, judged: bool) -> Tried:
        """Try a substep."""
        solved, xp = self.coefficients(step), self._xp
        # L u of the first stage, then of the others from what they solved, which needs no product
        # of large numbers.
        linear = [self._full(product(self._matrix, before.v), before.v)]
        slopes, v = [before.slope], before.v
        for stage in range(1, 4):
            given, then = before.v, time + _NODES[stage] * step
            weights = zip(_EXPLICIT[stage], _IMPLICIT[stage], slopes, linear, strict=True)
            for explicit, implicit, slope, part in weights:
                given = given + step * (explicit * slope + implicit * part)
            course = self.slope(before.u, then) - before.slope if self._changes else 0.0
            v = xp.stack(product(solved, given + _GAMMA * step * course))
            linear.append((v - given) / (_GAMMA * step))
            slopes.append(self.slope(self._modes.backward(v), then) - course)

        # The last stage is the new state but for N, whose weights are others.
        new = v
        for weight, explicit, slope in zip(_WEIGHTS, (*_EXPLICIT[3], 0.0), slopes, strict=True):
            new = new + step * (weight - explicit) * slope
        u, error = self._modes.backward(new), None
        if judged:
            total = sum(
                (weight - lower) * (slope + part)
                for weight, lower, slope, part in zip(_WEIGHTS, _LOWER, slopes, linear, strict=True)
            )
            # Solved once more, the error of stiff parts counts as what it is.
            error = self._modes.backward(xp.stack(product(solved, step * total)))
        return Tried(new, u, error, self.slope(u, time + step))

    def _full(self, parts: Sequence[Any], v: Any) -> Any:
        """Stack parts, some of which are 0 everywhere."""
        return self._xp.stack([part + 0 * own for part, own in zip(parts, v, strict=True)])


def _plus(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [one + other for one, other in zip(a, b, strict=True)]


# Right-hand sides as operations on whole arrays.


class ArrayRates:
    """Right-hand sides by an array library.

    Args:
        problem: by right-hand sides.
        xp: NumPy or CuPy.
    """

    def __init__(self, problem: Problem, xp: Any = np) -> None:
        assert problem.rates is not None
        self._problem, self._equations, self._xp = problem, problem.system, xp
        self._numbers, grid = problem.rates.numbers, problem.grid
        self._coordinates = {}
        for axis, name in enumerate(grid.axis_names):
            along = [-1 if k == axis else 1 for k in range(grid.ndim)]
            here = xp.asarray(grid.coordinates(axis, 0, grid.shape[axis]))
            self._coordinates[name] = here.reshape(along)
        self._known: dict[tuple[str, tuple[int, ...]], Any] = {}

    def __call__(self, u: Any, time: float) -> Any:
        """Return the right-hand sides of a state (n_fields, n0, ...) at a time [s]."""
        values: dict[str, Any] = {}
        for stage, seen in self.stages(u, time, values):
            del stage, seen
        results = self._equations.results
        return self._xp.stack([values[results[name]] for name in self._equations.fields])

    def stages(
        self, u: Any, time: float, values: dict[str, Any]
    ) -> Iterator[tuple[Stage, dict[str, Any]]]:
        """Yield each stage with all inputs of its formulas; `values` takes every name."""
        equations, numbers, xp = self._equations, self._numbers(time), self._xp
        values |= dict(zip(equations.fields, u, strict=True))
        given = {it.name: numbers[k] for k, it in enumerate(equations.parameters)}
        shape = self._problem.grid.shape
        for stage in equations.stages:
            seen: dict[str, Any] = given | self._coordinates
            for name, offsets in stage.taps.items():
                radii = stage.radii(name)
                around = self._around(name, radii, values)
                for offset in offsets:
                    window = zip(radii, offset, shape, strict=True)
                    moved = tuple(slice(r + shift, r + shift + n) for r, shift, n in window)
                    seen[tap(name, offset).name] = around[moved]

            with np.errstate(all="ignore"):  # both sides of a condition are computed
                found = evaluate_each([*stage.formulas.values()], seen)
            for name, new in zip(stage.formulas, found, strict=True):
                whole = new if isinstance(new, Observed) else xp.asarray(new, np.float64)
                values[name] = xp.broadcast_to(whole, shape)
            yield stage, seen

    def _around(self, name: str, radii: tuple[int, ...], values: Mapping[str, Any]) -> Any:
        """Return a name with as many points beyond faces as a stage reads."""
        problem = self._problem
        if name in (self._equations.coefficients or {}):
            if (name, radii) not in self._known:
                spans = zip(radii, problem.grid.shape, strict=True)
                box = tuple((-r, n + r) for r, n in spans)
                coefficient = problem.padded_coefficient(name, box)
                self._known[name, radii] = self._xp.asarray(coefficient)
            return self._known[name, radii]
        if not any(radii):
            return values[name]
        faces = self._equations.boundaries[name]
        return with_ghosts(values[name][np.newaxis], faces, problem.grid.spacing, radii)[0]


SPLIT_SCHEMES: dict[str, type[SplitScheme]] = {"etdrk4": Etdrk4, "imex": Imex}
