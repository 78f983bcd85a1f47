"""Schemes: how right-hand sides become the stages of a time step.

With f the right-hand side, h the step and t the time at its beginning,

    euler     u' = u + h f(u, t)
    rk2       m = u + h/2 f(u, t),  u' = u + h f(m, t + h/2)                       (midpoint)
    rk4       the classical one. Its stages a = u + h/2 k1, b = u + h/2 k2, c = u + h k3 are kept
              instead of k1, k2, k3: u' = u + ((a - u) + 2 (b - u) + (c - u))/3 + h/6 f(c, t + h)
    leapfrog  for d2u/dt2 = f: velocities live half a step before their field,
              v' = v + h f(u, t),  u' = u + h v'

In the first step of leapfrog the velocity is the initial one, so it is pushed for h/2 only. Where f
has the velocity itself, f = a - s v, its mean over the step is taken: v' = ((1 - s h/2) v + h a) /
(1 + s h/2), which damps at any step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tetris_sim.apps.courses import TIME, formula, names_in, substitute
from tetris_sim.apps.pde_discretise import Discretised, Discretiser, Space
from tetris_sim.apps.pde_faces import Drive
from tetris_sim.apps.pde_hoist import DT, ONE, Hoist, has_operators
from tetris_sim.apps.pde_sums import Term, combine, scaled
from tetris_sim.errors import ConfigError
from tetris_sim.model.equations import Stage, tap
from tetris_sim.model.formula import Constant, Node, Operation, Variable

Scheme = Literal["euler", "rk2", "rk4", "leapfrog", "rkl2"]
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
    """

    first: Mapping[str, Node]
    second: Mapping[str, Node]
    values: Mapping[str, float]
    space: Space
    drives: Mapping[str, Sequence[Drive]] = field(default_factory=dict)

    def driven(self, late: float = 0.0) -> dict[str, list[tuple[Node | None, str]]]:
        """What faces are given so many steps after the beginning of one, as of `Discretiser`."""
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
class Made:
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


def nothing_yet(system: System) -> Made:
    """No stages."""
    hoist = Hoist(system.right_sides, system.values)
    return Made((), {name: f"{name}'" for name in system.right_sides}, {}, {}, hoist)


def make_stages(system: System, scheme: Scheme) -> Made:
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

    early, whole = formula("dt/2", dt=DT), DT
    made = _stage(system, made, ".a", scale=early)
    made = _stage(system, made, ".b", start=".a", late=0.5, scale=early)
    made = _stage(system, made, ".c", start=".b", late=0.5, scale=whole)
    return _stage(
        system, made, "'", start=".c", late=1.0, scale=formula("dt/6", dt=DT), weighted=True
    )


def _stage(
    system: System,
    made: Made,
    ending: str,
    *,
    scale: Node,
    start: str = "",
    late: float = 0.0,
    weighted: bool = False,
) -> Made:
    """One more evaluation of the right-hand sides: u + scale f(start, t + late h)."""
    found = discretised(system, made.hoist, start, late, prefix=f"e{len(made.stages)}.")
    formulas = {}
    for name, sums in found.sums.items():
        here = tap(name, (0,) * system.space.ndim)
        terms = [Term(ONE, here)]
        if weighted:
            a, b, c = (tap(name + it, (0,) * system.space.ndim) for it in (".a", ".b", ".c"))
            rises = formula("(a - u) + (c - u) + 2*(b - u)", a=a, b=b, c=c, u=here)
            terms.append(Term(Constant(1 / 3), rises))
        formulas[name + ending] = combine([*terms, *scaled(sums, scale)], made.hoist)
    return extended(made, found, formulas, {name + ending: name for name in found.sums})


def extended(
    made: Made, found: Discretised, formulas: dict[str, Node], copies: dict[str, str]
) -> Made:
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
    names = {name: name + start for name in trees}
    drives = system.driven(late)
    return Discretiser(system.space, hoist, names, system.values, prefix, drives).run(trees)


def _later(tree: Node, late: float) -> Node:
    """A formula of t, so many steps later."""
    if not late:
        return tree
    then = formula("t + late*dt", t=Variable(TIME), late=Constant(late), dt=DT)
    return substitute(tree, {TIME: then})


def _leapfrog(system: System, made: Made) -> Made:
    nowhere = (0,) * system.space.ndim
    trees, dampings = {}, {}
    for name, tree in system.second.items():
        velocity = velocity_of(name)
        rest, damping = _split(tree, velocity)
        trees[velocity], dampings[velocity] = rest, damping

    names = {name: name for name in system.right_sides}
    drives = system.driven()
    found = Discretiser(system.space, made.hoist, names, system.values, "e0.", drives).run(trees)
    formulas = {}
    for name in system.second:
        velocity = velocity_of(name)
        before, sums = tap(velocity, nowhere), scaled(found.sums[velocity], _KICK)
        if (damping := dampings[velocity]) is None:
            new = combine([Term(ONE, before), *sums], made.hoist)
        else:
            made_by = Discretiser(system.space, made.hoist, names, system.values)
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
