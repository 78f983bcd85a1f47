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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tetris_sim.apps.pde.discretise import Discretised, Discretiser
from tetris_sim.apps.pde.faces import (
    Closure,
    Givens,
    Wall,
    closures_of,
    refuse_reading,
    walls_of,
)
from tetris_sim.apps.pde.fields import Drive
from tetris_sim.apps.pde.fluxes import Space, limited_in
from tetris_sim.apps.pde.simplify import (
    DT,
    ONE,
    Arrays,
    Hoist,
    Term,
    combine,
    has_operators,
    scaled,
)
from tetris_sim.apps.pde.wholes import (
    VOLUME,
    Calculus,
    Whole,
    in_order,
    noise_in,
    noises_in,
    quiet,
    taken_out,
    with_noise,
)
from tetris_sim.apps.time_functions import TIME, formula, names_in, substitute
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
    """Right-hand sides of a system and everything they depend on.

    Attributes:
        first: du/dt by field.
        second: d2u/dt2 by field.
        values: of constants, for exponents.
        space: the grid.
        drives: faces that change with time, by field.
        closures: faces that are more than mirrors, by field.
        walls: faces through which nothing flows, by field.
        order: of the fields, velocities among them, in the state; if not given, those of first
            order come before all others.
        arrays: constants that are a number at every point, by name.
        wholes: numbers of the whole grid in right-hand sides, by the names that stand for them.
        elliptic: F by field, where 0 = F gives the field at every moment.
        kept: fields that are needed on the whole grid to solve for these.
    """

    first: Mapping[str, Node]
    second: Mapping[str, Node]
    values: Mapping[str, float]
    space: Space
    drives: Mapping[str, Sequence[Drive]] = field(default_factory=dict)
    closures: Mapping[str, Sequence[Closure]] = field(default_factory=dict)
    walls: Mapping[str, Sequence[Wall]] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    arrays: Arrays = field(default_factory=dict)
    wholes: Mapping[str, Whole] = field(default_factory=dict)
    elliptic: Mapping[str, Node] = field(default_factory=dict)
    kept: tuple[str, ...] = ()

    def with_wholes(
        self, grid: Grid, calculus: Calculus = "ito", *, milstein: bool = False
    ) -> System:
        """The same with names for numbers of the whole grid, and for noise.

        Args:
            grid: the points.
            calculus: in whose sense noise is meant.
            milstein: whether steps are those of Milstein.

        Raises:
            ConfigError: noise stands where it cannot.
        """
        given = {**self.first, **self.second, **self.elliptic}
        # Each number of the whole grid becomes a name, computed between stages when all points are
        # known.
        trees, wholes = taken_out(given, even=grid.is_even)
        if any(noise_in(it.tree) for it in wholes.values()):
            msg = "model: noise in integral, mean, max or min is not a number of the grid"
            raise ConfigError(msg)

        if any(noise_in(trees[name]) for name in self.elliptic):
            msg = "model: noise in 0 = ... is not a number of the field that it gives"
            raise ConfigError(msg)
        noisy = any(map(noise_in, trees.values()))
        if noisy:
            moved = {name: trees[name] for name in (*self.first, *self.second)}
            trees |= with_noise(moved, self.values, grid, calculus=calculus, milstein=milstein)
        # On uneven grids integrals and noise need the volume of every cell.
        volumes: Arrays = {} if grid.is_even or not (wholes or noisy) else {VOLUME: grid.volumes}
        return replace(
            self,
            first={name: trees[name] for name in self.first},
            second={name: trees[name] for name in self.second},
            elliptic={name: trees[name] for name in self.elliptic},
            wholes=wholes,
            arrays={**self.arrays, **volumes},
        )

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
        walls = {name: walls_of(it, grid) for name, it in boundaries.items()}
        read = {name: it.tree for name, it in self.wholes.items()}
        refuse_reading({**self.right_sides, **self.elliptic, **read}, walls)
        return replace(
            self,
            closures={name: it for name, it in made.items() if it},
            walls={name: it for name, it in walls.items() if it},
        )

    def discretiser(
        self,
        hoist: Hoist,
        prefix: str = "e",
        start: str = "",
        late: float = 0.0,
        guessed: Collection[str] = (),
    ) -> Discretiser:
        """Makes sums of formulas of names that end on `start`, so many steps after the beginning
        of one; of fields that are guessed as they were at that beginning.
        """
        # Formulas of faces are those of the time at which a stage reads, as right-hand sides are.
        names = {name: name + start * (name not in guessed) for name in self.right_sides}
        closures = {
            name: [
                replace(it, given=tuple(one and _later(one, late) for one in it.given))
                for it in every
            ]
            for name, every in self.closures.items()
        }
        # Faces that change are evaluated at the time of the stage, as right-hand sides are.
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
        """d/dt of the fields and of their velocities; 0 of those that constraints give."""
        found = {**self.first, **dict.fromkeys(self.elliptic, Constant(0.0))}
        for name, tree in self.second.items():
            # d2u/dt2 = f becomes du/dt = v, dv/dt = f.
            found[name] = Variable(velocity_of(name))
            found[velocity_of(name)] = tree
        return {name: found[name] for name in self.order or found}

    @property
    def noises(self) -> list[str]:
        """The names of the noises that right-hand sides read."""
        return sorted({it for tree in self.right_sides.values() for it in noises_in(tree)})

    def quietened(self) -> System:
        """The same without noise."""
        first = {name: quiet(tree) for name, tree in self.first.items()}
        return replace(self, first=first, second={k: quiet(it) for k, it in self.second.items()})

    def hoist(self) -> Hoist:
        """Return the collector of the numbers of these formulas."""
        return Hoist(self.right_sides, self.values, self.space.system.axes, self.arrays)


@dataclass(frozen=True, eq=False)
class SchemeStages:
    """The stages of a step.

    Attributes:
        stages: of `Equations`.
        results: likewise.
        inner: names that are computed before others, and what they stand for.
        copies: names of fields in the middle of a step, and of which.
        hoist: the parameters and coefficients.
        reductions: names that are reduced, and which of `System.wholes` they give at what time.
        solved: endings of names that are fields at the moments at which constraints are solved.
    """

    stages: tuple[Stage, ...]
    results: dict[str, str]
    inner: dict[str, Node]
    copies: dict[str, str]
    hoist: Hoist
    reductions: dict[str, str] = field(default_factory=dict)
    solved: tuple[str, ...] = ()


def velocity_of(name: str) -> str:
    """The field of the velocity of one that has an equation of second order."""
    return f"{name}_velocity"


def nothing_yet(system: System) -> SchemeStages:
    """No stages."""
    results = {name: f"{name}'" for name in system.right_sides}
    return SchemeStages((), results, {}, {}, system.hoist())


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
        # The explicit midpoint rule.
        half = _stage(system, made, ".m", until=0.5, scale=formula("dt/2", dt=DT))
        return _stage(system, half, "'", start=".m", late=0.5, scale=DT)
    if scheme == "ssprk3":
        # Shu and Osher's third-order method as convex combinations of Euler steps, so that it keeps
        # what an Euler step keeps (S. Gottlieb, C.-W. Shu, E. Tadmor, SIAM Rev. 43 (2001) 89).
        made = _stage(system, made, ".a", scale=DT)
        made = _stage(*(system, made, ".b"), start=".a", late=1.0, until=0.5, scale=DT, share=0.25)
        return _stage(system, made, "'", start=".b", late=0.5, scale=DT, share=2 / 3)

    # The classical method of fourth order, without storing slopes: they are differences of the
    # stages, k1 = (a - u)/(dt/2), k2 = (b - u)/(dt/2), k3 = (c - u)/dt.
    early, whole = formula("dt/2", dt=DT), DT
    made = _stage(system, made, ".a", until=0.5, scale=early)
    made = _stage(system, made, ".b", start=".a", late=0.5, until=0.5, scale=early)
    made = _stage(system, made, ".c", start=".b", late=0.5, scale=whole)
    return _stage(
        system, made, "'", start=".c", late=1.0, scale=formula("dt/6", dt=DT), weighted=True
    )


def make_rates(system: System, made: SchemeStages) -> SchemeStages:
    """The stages of right-hand sides, du/dt = f(u, t), instead of a step.

    Raises:
        ConfigError: the equations become too large.
    """
    made, found = evaluated(system, made)
    formulas = {f"{name}'": combine(sums, made.hoist) for name, sums in found.sums.items()}
    levels = reading(
        [*map(Stage, found.levels), Stage(formulas)], next(iter(formulas))[:-1], system.space.ndim
    )
    stages = (*made.stages, *levels)
    return replace(made, stages=stages, inner={**made.inner, **found.inner})


def _stage(
    system: System,
    made: SchemeStages,
    ending: str,
    *,
    scale: Node,
    start: str = "",
    late: float = 0.0,
    until: float = 1.0,
    weighted: bool = False,
    share: float = 1.0,
) -> SchemeStages:
    """One more evaluation of the right-hand sides: u + scale f(start, t + late h), or the mean of u
    and the share of a step from `start`; the state `until` so many steps after the beginning.
    """
    made, found = evaluated(system, made, start, late)
    formulas = {}
    for name, sums in found.sums.items():
        here = tap(name, (0,) * system.space.ndim)
        # New value = u + scale times the right-hand side; terms are added in this order by all
        # devices.
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
    made = extended(made, found, formulas, {name + ending: name for name in found.sums})
    return constrained(system, made, ending, until)


def extended(
    made: SchemeStages, found: Discretised, formulas: dict[str, Node], copies: dict[str, str]
) -> SchemeStages:
    """With the stages of one more evaluation of the right-hand sides.

    Args:
        made: the assignments made so far.
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
    """The right-hand sides of names that end on `start`, so many steps after the beginning; without
    those of fields that constraints give.
    """
    trees = {
        name: _later(tree, late)
        for name, tree in system.right_sides.items()
        if name not in system.elliptic
    }
    trees = {name: _at(system, tree, start) for name, tree in trees.items()}
    return system.discretiser(hoist, prefix, start, late).run(trees)


def _at(system: System, tree: Node, start: str) -> Node:
    """A formula with the numbers of the whole grid of an instant."""
    return substitute(tree, {name: Variable(name + start) for name in system.wholes})


def evaluated(
    system: System, made: SchemeStages, start: str = "", late: float = 0.0
) -> tuple[SchemeStages, Discretised]:
    """The right-hand sides of names that end on `start`, so many steps after the beginning, and the
    stages before with those that give what is reduced over the whole grid for them.

    Raises:
        ConfigError: the equations become too large.
    """
    made = _with_numbers(system, made, start, late, system.wholes)
    prefix = f"e{len(made.stages)}."
    return made, discretised(system, made.hoist, start, late, prefix)


def _with_numbers(
    system: System,
    made: SchemeStages,
    start: str,
    late: float,
    wholes: Mapping[str, Whole],
) -> SchemeStages:
    """With the stages of numbers of the whole grid that there are not yet."""
    # Each is computed once per instant, however many equations read it.
    left = {name: it for name, it in wholes.items() if name + start not in made.reductions}
    # Numbers may be made of others (a mean of squares of deviations), so groups follow one another.
    for group in in_order(left):
        trees = {name + start: _later(left[name].tree, late) for name in group}
        trees = {name: _at(system, tree, start) for name, tree in trees.items()}
        prefix = f"e{len(made.stages)}."
        found = system.discretiser(made.hoist, prefix, start, late).run(trees)
        formulas = {name: combine(sums, made.hoist) for name, sums in found.sums.items()}
        made = extended(made, found, formulas, {})
        reductions = {name + start: name for name in group}
        made = replace(made, reductions={**made.reductions, **reductions})
    return made


def constrained(system: System, made: SchemeStages, ending: str, late: float) -> SchemeStages:
    """With the stages of fields that constraints give, where all others are known.

    The first one takes F at the state at the beginning of the step, which is a guess; the second
    one corrects that by what is solved for between them.

    Args:
        system: the constraints.
        made: the stages before.
        ending: of the names of the fields at that moment.
        late: that moment, so many steps after the beginning.

    Raises:
        ConfigError: the equations become too large.
    """
    if not system.elliptic:
        return made
    # Numbers of the whole grid that F reads, and those that these are made of.
    nowhere = (0,) * system.space.ndim
    read: set[str] = set()
    waiting = {it for tree in system.elliptic.values() for it in names_in(tree)}
    while waiting := (waiting & {*system.wholes}) - read:
        read |= waiting
        waiting = {it for name in waiting for it in names_in(system.wholes[name].tree)}
    wholes = {name: it for name, it in system.wholes.items() if name in read}
    made = _with_numbers(system, made, ending, late, wholes)

    # All other fields are those of the moment; the guess is known beside every point, with halos.
    trees = {name: _at(system, _later(it, late), ending) for name, it in system.elliptic.items()}
    prefix = f"e{len(made.stages)}."
    found = system.discretiser(made.hoist, prefix, ending, late, system.elliptic).run(trees)
    formulas = {
        residual_of(name, ending): combine(it, made.hoist) for name, it in found.sums.items()
    }
    formulas |= {
        kept_of(name, ending): tap(name if name in system.elliptic else name + ending, nowhere)
        for name in system.kept
    }
    made = extended(made, found, formulas, {})
    # A stage of its own: corrections are there only when all points have met.
    new = {
        name + ending: Operation(
            "subtract", (tap(name, nowhere), tap(correction_of(name, ending), nowhere))
        )
        for name in system.elliptic
    }
    made = replace(made, stages=(*made.stages, Stage(new)), solved=(*made.solved, ending))
    return replace(
        made, copies={**made.copies, **{name + ending: name for name in system.elliptic}}
    )


def residual_of(name: str, ending: str) -> str:
    """The name of F of a field at a moment."""
    return f"@residual of {name}{ending}"


def correction_of(name: str, ending: str) -> str:
    """The name of what is subtracted from the guess of a field at a moment."""
    return f"@correction of {name}{ending}"


def kept_of(name: str, ending: str) -> str:
    """The name of a copy of a field at a moment."""
    return f"@kept of {name}{ending}"


def _later(tree: Node, late: float) -> Node:
    """A formula of t, so many steps later."""
    if not late:
        return tree
    then = formula("t + late*dt", t=Variable(TIME), late=Constant(late), dt=DT)
    return substitute(tree, {TIME: then})


def _leapfrog(system: System, made: SchemeStages) -> SchemeStages:
    nowhere = (0,) * system.space.ndim
    # Velocities live half a step before their fields. The kick v' = v + dt f(u) comes first, then
    # the drift u' = u + dt v'. A term -s v is taken as the mean of v and v', which is solved for at
    # each point: v' = ((1 - s dt/2) v + dt f) / (1 + s dt/2), stable for any s.
    trees, dampings = {}, {}
    for name, tree in system.second.items():
        velocity = velocity_of(name)
        rest, damping = _split(tree, velocity)
        trees[velocity], dampings[velocity] = rest, damping

    if system.wholes:
        made, _ = evaluated(system, made)
    found = system.discretiser(made.hoist, f"e{len(made.stages)}.").run(trees)
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
    copies = {f"{name}'": name for name in system.second} if system.elliptic else {}
    return constrained(system, extended(made, found, formulas, copies), "'", 1.0)


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
