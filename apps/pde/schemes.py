"""Schemes: how right-hand sides become the stages of a time step.

With f the right-hand side, h the step and t the time at its beginning,

    euler     u' = u + h f(u, t)
    rk2       m = u + h/2 f(u, t),  u' = u + h f(m, t + h/2)                       (midpoint)
    ssprk3    a = u + h f(u, t),  b = 3/4 u + 1/4 (a + h f(a, t + h)),
              u' = 1/3 u + 2/3 (b + h f(b, t + h/2)): means of euler steps, so what does not grow in
              one of these, as the total variation, does not grow (C.-W. Shu, S. Osher, J. Comput.
              Phys. 77 (1988) 439)
    rk4       the classical one. Its stages a = u + h/2 k1, b = u + h/2 k2, c = u + h k3 are kept
              instead of k1, k2, k3: u' = u + ((a - u) + 2 (b - u) + (c - u))/3 + h/6 f(c, t + h)
    leapfrog  for d2u/dt2 = f: velocities live half a step before their field,
              v' = v + h f(u, t),  u' = u + h v'

In the first step of leapfrog the velocity is the initial one, so it is pushed for h/2 only. Where f
has the velocity itself, f = a - s v, its mean over the step is taken: v' = ((1 - s h/2) v + h a) /
(1 + s h/2), which damps at any step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.pde.discretise import Discretised, Discretiser, Space
from tetris_sim.apps.pde.faces import (
    Closure,
    Givens,
    Wall,
    closures_of,
    refuse_reading,
    walls_of,
)
from tetris_sim.apps.pde.fields import Drive
from tetris_sim.apps.pde.fluxes import limited_in
from tetris_sim.apps.pde.simplify import DT, ONE, Hoist, Term, combine, has_operators, scaled, times
from tetris_sim.apps.time_functions import TIME, formula, names_in, substitute
from tetris_sim.config.sections.schema import TimeSection
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.equations import Stage, tap
from tetris_sim.model.formula import Constant, Node, Operation, Variable
from tetris_sim.model.grid import Grid
from tetris_sim.model.linearisation import reading

Scheme = Literal["euler", "rk2", "ssprk3", "rk4", "leapfrog", "rkl2"]
_KICK = formula("dt if t > 0 else dt/2", t=Variable(TIME), dt=DT)


@dataclass(frozen=True, eq=False)
class System:
    """What changes how.

    Attributes:
        first: du/dt by field.
        second: d2u/dt2 by field.
        values: of constants, for exponents.
        space: the grid.
        drives: faces that change with time, by field.
        closures: faces that are more than mirrors, by field.
        walls: faces through which nothing flows, by field.
    """

    first: Mapping[str, Node]
    second: Mapping[str, Node]
    values: Mapping[str, float]
    space: Space
    drives: Mapping[str, Sequence[Drive]] = field(default_factory=dict)
    closures: Mapping[str, Sequence[Closure]] = field(default_factory=dict)
    walls: Mapping[str, Sequence[Wall]] = field(default_factory=dict)

    def with_faces(
        self,
        boundaries: Mapping[str, Boundary],
        grid: Grid,
        givens: Mapping[str, Givens] | None = None,
    ) -> System:
        """The same on a grid with faces.

        Args:
            boundaries: by field, velocities among them.
            grid: the points.
            givens: by field, what faces are given instead of numbers.

        Raises:
            ConfigError: the grid is too small for its faces, or a field is read beyond a face
                through which nothing of it flows.
        """
        made = {
            name: closures_of(name, it, grid, self.space.accuracy, (givens or {}).get(name, {}))
            for name, it in boundaries.items()
        }
        walls = {name: walls_of(it, grid.shape) for name, it in boundaries.items()}
        refuse_reading(self.right_sides, walls)
        return replace(
            self,
            closures={name: it for name, it in made.items() if it},
            walls={name: it for name, it in walls.items() if it},
        )

    def discretiser(
        self, hoist: Hoist, prefix: str = "e", start: str = "", late: float = 0.0
    ) -> Discretiser:
        """Makes sums of formulas of names that end on `start`, so many steps after the beginning
        of one.
        """
        # Formulas of faces are those of the time at which a stage reads, as right-hand sides are.
        names = {name: name + start for name in self.right_sides}
        closures = {
            name: [
                replace(it, given=tuple(one and _later(one, late) for one in it.given))
                for it in every
            ]
            for name, every in self.closures.items()
        }
        drives = self.driven(late)
        return Discretiser(
            self.space, hoist, names, self.values, prefix, drives, closures, self.walls
        )

    def driven(self, late: float = 0.0) -> dict[str, list[tuple[Node | None, str]]]:
        """The numbers of faces so many steps after the beginning of one, as of `Discretiser`."""
        return {
            name: [(it.course and _later(it.course, late), it.name) for it in drives]
            for name, drives in self.drives.items()
        }

    @property
    def right_sides(self) -> dict[str, Node]:
        """d/dt of the fields and of their velocities."""
        found = dict(self.first)
        for name, tree in self.second.items():
            found[name] = Variable(velocity_of(name))
            found[velocity_of(name)] = tree
        return found


@dataclass(frozen=True, eq=False)
class SchemeStages:
    """The stages of a step.

    Attributes:
        stages: of `Equations`.
        results: likewise.
        inner: names that are computed before others, and what they stand for.
        copies: names of fields in the middle of a step, and of which.
        hoist: the parameters and coefficients.
    """

    stages: tuple[Stage, ...]
    results: dict[str, str]
    inner: dict[str, Node]
    copies: dict[str, str]
    hoist: Hoist


def velocity_of(name: str) -> str:
    """The field of the velocity of one that has an equation of second order."""
    return f"{name}_velocity"


def nothing_yet(system: System) -> SchemeStages:
    """No stages."""
    hoist = Hoist(system.right_sides, system.values, system.space.system.axes)
    return SchemeStages((), {name: f"{name}'" for name in system.right_sides}, {}, {}, hoist)


def simplest_scheme(first: Collection[Node], second: Collection[Node], *, adaptive: bool) -> Scheme:
    """The scheme where none is asked for.

    Args:
        first: du/dt.
        second: d2u/dt2.
        adaptive: whether steps follow their errors.
    """
    if second:
        return "rk4" if first or adaptive else "leapfrog"
    if any(map(limited_in, first)):
        return "rk2" if adaptive else "ssprk3"
    return "euler"


def make_stages(system: System, scheme: Scheme) -> SchemeStages:
    """The stages of a step by a scheme.

    Raises:
        ConfigError: the equations become too large.
    """
    made = nothing_yet(system)
    if scheme == "leapfrog":
        return _leapfrog(system, made)
    if scheme == "euler":
        return _stage(system, made, "'", scale=DT)
    if scheme == "rk2":
        half = _stage(system, made, ".m", scale=formula("dt/2", dt=DT))
        return _stage(system, half, "'", start=".m", late=0.5, scale=DT)
    if scheme == "ssprk3":
        made = _stage(system, made, ".a", scale=DT)
        made = _stage(system, made, ".b", start=".a", late=1.0, scale=DT, share=0.25)
        return _stage(system, made, "'", start=".b", late=0.5, scale=DT, share=2 / 3)

    early, whole = formula("dt/2", dt=DT), DT
    made = _stage(system, made, ".a", scale=early)
    made = _stage(system, made, ".b", start=".a", late=0.5, scale=early)
    made = _stage(system, made, ".c", start=".b", late=0.5, scale=whole)
    return _stage(
        system, made, "'", start=".c", late=1.0, scale=formula("dt/6", dt=DT), weighted=True
    )


def make_rates(system: System, made: SchemeStages) -> SchemeStages:
    """The stages of right-hand sides, du/dt = f(u, t), instead of a step.

    Raises:
        ConfigError: the equations become too large.
    """
    found = discretised(system, made.hoist)
    formulas = {f"{name}'": combine(sums, made.hoist) for name, sums in found.sums.items()}
    levels = reading(
        [*map(Stage, found.levels), Stage(formulas)], next(iter(formulas))[:-1], system.space.ndim
    )
    return replace(made, stages=tuple(levels), inner={**made.inner, **found.inner})


def _stage(
    system: System,
    made: SchemeStages,
    ending: str,
    *,
    scale: Node,
    start: str = "",
    late: float = 0.0,
    weighted: bool = False,
    share: float = 1.0,
) -> SchemeStages:
    """One more evaluation of the right-hand sides: u + scale f(start, t + late h), or the mean of u
    and the share of a step from `start`.
    """
    found = discretised(system, made.hoist, start, late, prefix=f"e{len(made.stages)}.")
    formulas = {}
    for name, sums in found.sums.items():
        here = tap(name, (0,) * system.space.ndim)
        terms = [Term(ONE, here)]
        if weighted:
            a, b, c = (tap(name + it, (0,) * system.space.ndim) for it in (".a", ".b", ".c"))
            rises = formula("(a - u) + (c - u) + 2*(b - u)", a=a, b=b, c=c, u=here)
            terms.append(Term(Constant(1 / 3), rises))

        if share != 1.0:
            before = tap(name + start, (0,) * system.space.ndim)
            terms = [Term(Constant(1 - share), here), Term(Constant(share), before)]
            sums = scaled(sums, Constant(share))
        formulas[name + ending] = combine([*terms, *scaled(sums, scale)], made.hoist)
    return extended(made, found, formulas, {name + ending: name for name in found.sums})


def extended(
    made: SchemeStages, found: Discretised, formulas: dict[str, Node], copies: dict[str, str]
) -> SchemeStages:
    """With the stages of one more evaluation of the right-hand sides.

    Args:
        made: what there is before.
        found: the right-hand sides.
        formulas: what they are used for, at the same points.
        copies: names among these that are fields in the middle of a step, and of which.
    """
    stages = [Stage(level) for level in found.levels]
    return replace(
        made,
        stages=(*made.stages, *stages, Stage(formulas)),
        inner={**made.inner, **found.inner},
        copies={**made.copies, **copies},
    )


def discretised(
    system: System, hoist: Hoist, start: str = "", late: float = 0.0, prefix: str = "e"
) -> Discretised:
    """The right-hand sides of names that end on `start`, so many steps after the beginning."""
    trees = {name: _later(tree, late) for name, tree in system.right_sides.items()}
    return system.discretiser(hoist, prefix, start, late).run(trees)


def _later(tree: Node, late: float) -> Node:
    """A formula of t, so many steps later."""
    if not late:
        return tree
    then = formula("t + late*dt", t=Variable(TIME), late=Constant(late), dt=DT)
    return substitute(tree, {TIME: then})


def _leapfrog(system: System, made: SchemeStages) -> SchemeStages:
    nowhere = (0,) * system.space.ndim
    trees, dampings = {}, {}
    for name, tree in system.second.items():
        velocity = velocity_of(name)
        rest, damping = _split(tree, velocity)
        trees[velocity], dampings[velocity] = rest, damping

    found = system.discretiser(made.hoist, "e0.").run(trees)
    formulas = {}
    for name in system.second:
        velocity = velocity_of(name)
        before, sums = tap(velocity, nowhere), scaled(found.sums[velocity], _KICK)
        if (damping := dampings[velocity]) is None:
            new = combine([Term(ONE, before), *sums], made.hoist)
        else:
            made_by = system.discretiser(made.hoist)
            half = Operation("multiply", (damping, formula("k/2", k=_KICK)))
            kept = made_by.build(formula("(1 - s)*v", s=half, v=Variable(velocity)), nowhere)
            by = made_by.build(formula("1 + s", s=half), nowhere)
            new = Operation("divide", (combine([Term(ONE, kept), *sums], made.hoist), by))
        formulas[f"{velocity}'"] = new
        formulas[f"{name}'"] = combine([Term(ONE, tap(name, nowhere)), Term(DT, new)], made.hoist)
    return extended(made, found, formulas, {})


def _split(tree: Node, velocity: str) -> tuple[Node, Node | None]:
    """A formula a - s v as a and s; s is None if v is not in it.

    Raises:
        ConfigError: v is in it in another way, or s has fields.
    """
    if velocity not in names_in(tree):
        return tree, None
    slope = _slope(tree, velocity)
    if slope is None or has_operators(slope):
        msg = (
            f"with scheme leapfrog {velocity} may only stand in products with what has no "
            f"operators, as in -s*{velocity}; take scheme rk4"
        )
        raise ConfigError(msg)
    return substitute(tree, {velocity: Constant(0.0)}), Operation("negative", (slope,))


def _slope(tree: Node, velocity: str) -> Node | None:
    """The derivative by a name in which a formula is linear, if nothing but places is in it."""
    if velocity not in names_in(tree):
        return Constant(0.0)
    match tree:
        case Variable():
            return ONE
        case Operation("add" | "subtract" | "negative" | "positive", arguments):
            slopes = [_slope(it, velocity) for it in arguments]
            given = [it for it in slopes if it is not None]
            return Operation(tree.name, tuple(given)) if len(given) == len(slopes) else None

        case Operation("multiply", (a, b)):
            factor, other = (a, b) if velocity not in names_in(a) else (b, a)
            slope = _slope(other, velocity)
            alone = velocity not in names_in(factor) and slope is not None
            return Operation("multiply", (factor, slope)) if alone and slope is not None else None
        case Operation("divide", (a, b)) if velocity not in names_in(b):
            slope = _slope(a, velocity)
            return None if slope is None else Operation("divide", (slope, b))
    return None


# RKL2: a step of many stages, each of which costs one evaluation, far longer than they together.
#
# The second-order Runge-Kutta-Legendre method of C. D. Meyer, D. S. Balsara, T. D. Aslam, J.
# Comput. Phys. 257 (2014) 594: with s stages it is stable on the negative axis up to (s^2 + s -
# 2)/2, where euler is up to 2. With f the right-hand side, h the step and w = 4/(s^2 + s - 2),
#
#     y_1 = u + b_1 w h f(u, t)
#     y_j = m_j y_(j-1) + n_j y_(j-2) + (1 - m_j - n_j) u + m_j w h (f(y_(j-1)) - a_(j-1) f(u, t))
#     b_j = (j^2 + j - 2)/(2 j (j + 1)), b_0 = b_1 = b_2 = 1/3, a_j = 1 - b_j
#     m_j = (2j - 1)/j b_j/b_(j-1),  n_j = -(j - 1)/j b_j/b_(j-2)
#
# and y_s the new state. y_j is the state at t + h (j^2 + j - 2)/(s^2 + s - 2), y_1 at t + b_1 w h.

MOST_STAGES = 16  # with more, data with edges overshoot


def _b(j: int) -> float:
    return (j * j + j - 2) / (2 * j * (j + 1)) if j > 1 else 1 / 3


def _weights(j: int) -> tuple[float, float]:
    """M_j and n_j."""
    return (2 * j - 1) / j * _b(j) / _b(j - 1), -(j - 1) / j * _b(j) / _b(j - 2)


def stretched(stages: int) -> float:
    """How many steps of euler on the negative axis a step is as long as.

    >>> stretched(3), stretched(16)
    (2.5, 67.5)
    """
    return (stages * stages + stages - 2) / 4


def rkl2_factor(z: npt.NDArray[Any], stages: int) -> npt.NDArray[Any]:
    """By what it multiplies a wave in a step."""
    w = 1 / stretched(stages)
    before, now = np.ones_like(z), 1 + _b(1) * w * z
    for j in range(2, stages + 1):
        m, n = _weights(j)
        new = m * now + n * before + (1 - m - n) + m * w * z * (now - (1 - _b(j - 1)))
        before, now = now, new
    return now


def make_rkl2(system: System, made: SchemeStages, stages: int) -> SchemeStages:
    """The stages of a step.

    Args:
        system: the right-hand sides.
        made: no stages yet.
        stages: 3 or more.

    Raises:
        ConfigError: the equations become too large.
    """
    nowhere, w = (0,) * system.space.ndim, 1 / stretched(stages)
    endings = ["", *(f".y{j}" for j in range(1, stages)), "'"]
    for j in range(1, stages + 1):
        late = 0.0 if j == 1 else _b(1) * w if j == 2 else stretched(j - 1) * w
        found = discretised(system, made.hoist, endings[j - 1], late, f"e{len(made.stages)}.")
        formulas: dict[str, Node] = {}
        for name, sums in found.sums.items():
            here = tap(name, nowhere)
            new = name + endings[j]
            if j == 1:
                slope = combine(sums, made.hoist)
                formulas[f"{name}.k0"] = slope
                step = Term(_of_step(_b(1) * w), slope)
                formulas[new] = combine([Term(ONE, here), step], made.hoist)
                continue

            m, n = _weights(j)
            before = tap(name + endings[j - 2], nowhere)
            terms = [Term(Constant(m), tap(name + endings[j - 1], nowhere))]
            terms += [Term(Constant(n), before)] if j > 2 else []
            terms.append(Term(Constant(1 - m - n if j > 2 else 1 - m), here))
            terms.append(Term(_of_step(-m * w * (1 - _b(j - 1))), tap(f"{name}.k0", nowhere)))
            terms += scaled(sums, _of_step(m * w))
            formulas[new] = combine(terms, made.hoist)
        made = extended(made, found, formulas, {name + endings[j]: name for name in found.sums})
    return made


def _of_step(weight: float) -> Node:
    return times(Constant(weight), DT)


# Pairs of Runge-Kutta methods: the step of one, and by how much another one differs from it.
#
# With k_i = f(u + h sum_j a_ij k_j, t + c_i h), the new state is u + h sum_i b_i k_i, and the error
# of the step about h sum_i d_i k_i, d being b less the weights of a method of one order less. The
# state goes on with the better of the two.
#
#     euler     Heun-Euler 2(1)
#     rk2       Bogacki-Shampine 3(2), P. Bogacki, L. F. Shampine, Appl. Math. Lett. 2 (1989) 321,
#               MATLAB's ode23 and SciPy's RK23
#     rk4       Dormand-Prince 5(4), J. R. Dormand, P. J. Prince, J. Comput. Appl. Math. 6 (1980)
#               19, ode45 and RK45


@dataclass(frozen=True)
class Pair:
    """Numbers of a pair.

    Attributes:
        name: for people.
        order: power of the step with which the error of one step shrinks.
        nodes: c.
        rows: a, of each stage but the first; the last is b where the last stage is the new state.
        weights: b.
        lower: weights of the method of one order less.
    """

    name: str
    order: int
    nodes: tuple[Fraction, ...]
    rows: tuple[tuple[Fraction, ...], ...]
    weights: tuple[Fraction, ...]
    lower: tuple[Fraction, ...]

    @property
    def first_same_as_last(self) -> bool:
        """Whether the last stage is at the new state."""
        return self.rows[-1] == self.weights[:-1] and self.weights[-1] == 0


def _numbers(text: str) -> tuple[Fraction, ...]:
    return tuple(map(Fraction, text.split()))


PAIRS: dict[str, Pair] = {
    "euler": Pair(
        *("Heun-Euler 2(1)", 2, _numbers("0 1"), (_numbers("1"),)),
        *(_numbers("1/2 1/2"), _numbers("1 0")),
    ),
    "rk2": Pair(
        "Bogacki-Shampine 3(2)",
        3,
        _numbers("0 1/2 3/4 1"),
        (_numbers("1/2"), _numbers("0 3/4"), _numbers("2/9 1/3 4/9")),
        _numbers("2/9 1/3 4/9 0"),
        _numbers("7/24 1/4 1/3 1/8"),
    ),
    "rk4": Pair(
        "Dormand-Prince 5(4)",
        5,
        _numbers("0 1/5 3/10 4/5 8/9 1 1"),
        (
            _numbers("1/5"),
            _numbers("3/40 9/40"),
            _numbers("44/45 -56/15 32/9"),
            _numbers("19372/6561 -25360/2187 64448/6561 -212/729"),
            _numbers("9017/3168 -355/33 46732/5247 49/176 -5103/18656"),
            _numbers("35/384 0 500/1113 125/192 -2187/6784 11/84"),
        ),
        _numbers("35/384 0 500/1113 125/192 -2187/6784 11/84 0"),
        _numbers("5179/57600 0 7571/16695 393/640 -92097/339200 187/2100 1/40"),
    ),
}


def make_pair(
    system: System, made: SchemeStages, pair: Pair
) -> tuple[SchemeStages, dict[str, str]]:
    """(the stages of a step by a pair, the name of the error of each field).

    Args:
        system: the right-hand sides.
        made: no stages yet.
        pair: how.

    Raises:
        ConfigError: the equations become too large.
    """
    last, errors = len(pair.nodes) - 1, {name: f"{name}.error" for name in system.right_sides}
    differences = [b - lower for b, lower in zip(pair.weights, pair.lower, strict=True)]
    endings = ["", *(f".y{k}" for k in range(1, last + 1))]
    if pair.first_same_as_last:
        endings[last] = "'"

    for number, ending in enumerate(endings):
        late = float(pair.nodes[number])
        found = discretised(system, made.hoist, ending, late, prefix=f"e{len(made.stages)}.")
        formulas: dict[str, Node] = {}
        copies: dict[str, str] = {}
        for name, sums in found.sums.items():
            # What is computed here and what stages before have kept, by stage.
            here = tap(name, (0,) * system.space.ndim)
            slopes: list[Node] = [
                tap(f"{name}.k{k}", (0,) * system.space.ndim) for k in range(number)
            ]
            slopes.append(combine(sums, made.hoist))
            later = [*pair.rows[number:], pair.weights, differences]
            if number < last and any(len(row) > number and row[number] for row in later[1:]):
                formulas[f"{name}.k{number}"] = slopes[-1]

            if number < last:
                new = name + endings[number + 1]
                formulas[new] = _moved(here, pair.rows[number], slopes, made.hoist)
                copies[new] = name
                continue
            if not pair.first_same_as_last:
                formulas[f"{name}'"] = _moved(here, pair.weights, slopes, made.hoist)
            formulas[errors[name]] = _moved(None, differences, slopes, made.hoist)
        made = extended(made, found, formulas, copies)
    return made, errors


def _moved(
    here: Node | None, weights: Sequence[Fraction], slopes: Sequence[Node], hoist: Hoist
) -> Node:
    """What slopes make of a value in a step; without one, the sum alone."""
    terms = [
        Term(Constant(float(weight)), slope)
        for weight, slope in zip(weights, slopes, strict=True)
        if weight
    ]
    start = [] if here is None else [Term(ONE, here)]
    return combine([*start, Term(DT, combine(terms, hoist))], hoist)


def tolerance_mistakes(time: TimeSection, scheme: Scheme) -> Iterator[tuple[KeyPath, str]]:
    """What does not fit to steps that follow their errors."""
    if time.tolerance is None:
        return
    if scheme not in PAIRS:
        yield (
            ("time", "tolerance"),
            f"{scheme} has no estimate of its error; take scheme euler, rk2 or rk4",
        )
    if time.t_end is None and not isinstance(time.dt, float):
        yield ("time", "steps"), "of no length: give t_end, or dt beside tolerance"
