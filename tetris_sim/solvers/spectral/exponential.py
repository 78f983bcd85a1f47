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
            139).

With a tolerance, a step of the run is divided into substeps of its length over powers of two, so
that few sets of coefficients are needed, and what follows depends on the state alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from tetris_sim.errors import NumericsError
from tetris_sim.model.conduction import star_mean
from tetris_sim.model.equations import Rates
from tetris_sim.model.linearisation import split
from tetris_sim.model.problem import Problem
from tetris_sim.model.step_control import Counted
from tetris_sim.solvers.krylov import Heard, LeftOffError, nobody
from tetris_sim.solvers.spectral.waves import (
    Exponentials,
    Inverses,
    Matrix,
    Modes,
    apply_each,
    linear_matrix,
    product,
)

Function = Callable[[Any, float], Any]  # N or f: from state and time [s] to rates, (n_fields, ...)
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
        error: estimate of its error, (n_fields, n0, ...); None if nobody asks.
        slope: coefficients of N at the new state, where known.
    """

    v: Any
    u: Any
    error: Any = None
    slope: Any = None


class SplitScheme:
    """A scheme for the equations of a problem.

    Args:
        problem: by right-hand sides.
        arrays: array library; `rates` compiles N.

    Attributes:
        order: power of the length of a substep with which its error shrinks.
    """

    order = 4

    def __init__(self, problem: Problem, arrays: Any) -> None:
        assert problem.equations is not None
        splitting = split(problem)
        self._xp, self._n = arrays.xp, problem.n_fields
        ends = [splitting.ends[name] for name in problem.equations.fields]
        self._modes = Modes(problem.grid.shape, ends, arrays)
        self._matrix = linear_matrix(splitting, self._modes)
        reach = star_mean(problem.grid.ndim, splitting.rest.radii)
        rest = replace(problem, equations=splitting.rest, stencil=reach)
        self._rest: Function = arrays.rates(rest)
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

    def make(self, step: float) -> Any:
        """Compute the coefficients of a length."""
        raise NotImplementedError

    def advance(self, before: Tried, time: float, step: float, *, judged: bool) -> Tried:
        """Try a substep from a state.

        Args:
            before: the state.
            time: its time [s].
            step: length of the substep [s].
            judged: whether its error is wanted.
        """
        raise NotImplementedError


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
            given = before.v
            weights = zip(_EXPLICIT[stage], _IMPLICIT[stage], slopes, linear, strict=True)
            for explicit, implicit, slope, part in weights:
                given = given + step * (explicit * slope + implicit * part)
            v = xp.stack(product(solved, given))
            linear.append((v - given) / (_GAMMA * step))
            slopes.append(self.slope(self._modes.backward(v), time + _NODES[stage] * step))

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


# Steps of the run: of a given length, or divided into substeps.

_SAFETY = 0.9
_DEEPEST = 40  # halvings of a step: a substep that is shorter leads nowhere
_MOST_GROWTH = 10.0  # of a field in a substep, as far as its errors are relative to it
_MOST_AT_ONCE = 3  # halvings after a substep that was rejected


@dataclass
class DividedSteps:
    """Advances a state from one step of a run to the next.

    Attributes:
        problem: by right-hand sides.
        scheme: for substeps, with the calls of `SplitScheme`.
        xp: array library.
        counted: substeps so far.
        heard: interruption request.
    """

    problem: Problem
    scheme: Any
    xp: Any
    counted: Counted = field(default_factory=Counted)
    heard: Heard = nobody

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on substeps."""
        return (str(self.counted),) if self.rates.adaptive else ()

    @property
    def rates(self) -> Rates:
        """How right-hand sides are integrated."""
        assert self.problem.rates is not None
        return self.problem.rates

    def advance(self, u: Any, step: int) -> Any:
        """Make step number `step` of a state (n_fields, n0, ...), float64, and return the next.

        Raises:
            LeftOffError: the run is to end.
            NumericsError: no substep is short enough.
        """
        begin, end = self.problem.time(step), self.problem.time(step + 1)
        if self.heard():
            raise LeftOffError
        if not self.rates.adaptive:
            before = self.scheme.begin(u, begin)
            return self.scheme.advance(before, begin, self.problem.dt, judged=False).u

        # Places are counted in the shortest substeps, so that those of a length lie side by side.
        now, place, level, largest = self.scheme.begin(u, begin), 0, 0, self._sizes(u)
        while place < 1 << _DEEPEST:
            if self.heard():
                raise LeftOffError
            if level > _DEEPEST:
                self._refuse(begin + (end - begin) * (place / (1 << _DEEPEST)))
            length = self.problem.dt / (1 << level)
            time = begin + self.problem.dt * (place / (1 << _DEEPEST))
            tried = self.scheme.advance(now, time, length, judged=True)
            error = self._judge(largest, tried)
            factor = _SAFETY * error ** (-1 / self.scheme.order) if error > 0 else math.inf
            if error > 1:
                level += min(max(1, math.ceil(-math.log2(max(factor, 1e-3)))), _MOST_AT_ONCE)
                self.counted = replace(self.counted, rejected=self.counted.rejected + 1)
                continue

            now, place, largest = tried, place + (1 << (_DEEPEST - level)), self._sizes(tried.u)
            self.counted = replace(
                self.counted,
                made=self.counted.made + 1,
                shortest=min(self.counted.shortest, length),
                longest=max(self.counted.longest, length),
            )
            # Twice as long, where two of this length would end.
            if level and factor >= 2 and place % (1 << (_DEEPEST - level + 1)) == 0:
                level -= 1
        return now.u

    def _sizes(self, values: Any) -> list[float]:
        return [float(self.xp.abs(it).max()) for it in values]

    def _judge(self, largest: Sequence[float], tried: Tried) -> float:
        """Return the error of a substep relative to what is tolerated."""
        sizes, errors = self._sizes(tried.u), self._sizes(tried.error)
        if not np.isfinite([*sizes, *errors]).all():
            return math.inf
        worst = 0.0
        for before, after, error in zip(largest, sizes, errors, strict=True):
            # Of what blows up in a substep, any error would be small beside it.
            least = min(after, _MOST_GROWTH * before) if before > 0 else after
            scale = self.rates.tolerance * max(before, least)
            if error > 0:
                worst = max(worst, error / scale if scale > 0 else math.inf)
        return worst

    def _refuse(self, time: float) -> None:
        msg = (
            f"no substep is short enough at t = {time:.10g} s: the last one that was tried still "
            "has an error above time.tolerance. Do the fields grow without end there, or jump? Or "
            "take a larger time.tolerance, if it is near rounding."
        )
        raise NumericsError(msg)


SPLIT_SCHEMES: dict[str, type[SplitScheme]] = {"etdrk4": Etdrk4, "imex": Imex}
