"""Parts from which a problem of equations is built, and the stages of its step with numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tetris_sim.apps.pde.faces import Closure, refuse_reading
from tetris_sim.apps.pde.schemes import (
    Scheme,
    SchemeStages,
    System,
    correction_of,
    kept_of,
    make_rates,
    make_stages,
    nothing_yet,
    residual_of,
    velocity_of,
)
from tetris_sim.apps.pde.simplify import Arrays, scalar_value, spacing_name
from tetris_sim.apps.pde.wholes import (
    ROOT,
    VOLUME,
    in_order,
    normal_numbers,
    numbers_of,
    taken_out,
)
from tetris_sim.apps.time_functions import TIME, names_in
from tetris_sim.errors import ConfigError, NumericsError
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Fixed, Neumann, Periodic
from tetris_sim.model.conduction import Numbers, Parameter
from tetris_sim.model.equations import Elliptic, Equations, Rates, Substeps, at_step
from tetris_sim.model.formula import (
    OPERATIONS,
    Comparison,
    Constant,
    Node,
    Operation,
    Variable,
    evaluate,
    evaluate_each,
    walk,
)
from tetris_sim.model.grid import AXIS_NAMES, Grid
from tetris_sim.model.problem import Field, InitialField, Problem, StateVariable
from tetris_sim.model.reference import values_of_a_step
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.model.stencil import star_mean
from tetris_sim.solvers.elliptic import Constraints

_SAMPLES = (0.0, 0.37, 1.0)  # of coordinates and time, to see whether they matter
_LOOKED_AT = 1 << 22  # points at which numbers of the whole grid are made beforehand


@dataclass(frozen=True, eq=False)
class Parts:
    """Parts from which a problem of equations is built.

    Attributes:
        grid: the points.
        system: the right-hand sides.
        scheme: how a step is made.
        boundaries: by field, velocities among them.
        initial: the state at time 0.
        variables: one per field.
        dtype: of the state.
        wholes: the numbers of the whole grid at the initial state, by name.
        solve: of the fields that constraints give, as of `Elliptic`.
    """

    grid: Grid
    system: System
    scheme: Scheme
    boundaries: Mapping[str, Boundary]
    initial: InitialField
    variables: tuple[StateVariable, ...]
    dtype: np.dtype[Any]
    wholes: Mapping[str, float] = field(default_factory=dict)
    solve: Callable[..., Sequence[Numbers]] = field(default=lambda *_: ())

    def values(self, dt: float, made: SchemeStages | None = None) -> dict[str, float]:
        """The numbers that scalars are made of, those of the whole grid as they are at time 0.

        Args:
            dt: the time step [s].
            made: stages that read numbers of the whole grid at other times too.
        """
        # Spacings have the letters of straight axes, whatever axes are called.
        letters = AXIS_NAMES[: self.grid.ndim][::-1]
        spacing = zip(letters, self.grid.spacing, strict=True)
        found = {**self.system.values, "dt": dt, **self.wholes}
        found |= {spacing_name(a): h for a, h in spacing}
        if self.system.noises:
            found[ROOT] = dt**-0.5 if dt > 0 else 0.0
        reductions = {} if made is None else made.reductions
        known = {name: self.wholes[it] for name, it in reductions.items() if it in self.wholes}
        return {**found, **known}


def substeps_of(
    parts: Parts,
    made: SchemeStages,
    errors: Mapping[str, str],
    chosen: tuple[int, float, float],
    *,
    local: bool,
) -> Substeps:
    """How a step is divided.

    Args:
        parts: what the problem is made of.
        made: the stages of a substep.
        errors: as of `Substeps`.
        chosen: the order, the tolerance and the first length [s].
        local: whether no number of the whole grid is among the parameters.
    """
    if not local:
        known = made.hoist.parameters(parts.values(chosen[2], made))
        marks = np.concatenate([np.empty(0), *(it.knots for it in known if it.knots is not None)])

        def numbers(begin: float, length: float, found: Mapping[str, float]) -> Numbers:
            values = {**parts.values(length, made), **found}
            # Steps of a given length read means where a pulse begins or ends; others end there.
            if errors or not ((marks >= begin) & (marks < begin + length)).any():
                return made.hoist.numbers(values, begin)
            rows = (
                it.rows(lambda n: begin + n * length, 0, 1) for it in made.hoist.parameters(values)
            )
            return np.array([row[0, 0] for row in rows])

        return Substeps(errors, *chosen, numbers)

    # What never changes is computed once, not in each of thousands of substeps.
    given = {name: it for name, it in parts.values(1.0, made).items() if name != "dt"}
    trees = tuple(folded(tree, given) for tree in made.hoist.scalars)

    def evaluated(begin: float, length: float, found: Mapping[str, float]) -> Numbers:
        with np.errstate(all="ignore"):
            times = {TIME: np.float64(begin), "dt": np.float64(length)}
            return np.array(evaluate_each(trees, times), np.float64)

    return Substeps(errors, *chosen, evaluated, trees)


def folded(node: Node, values: Mapping[str, float]) -> Node:
    """Replace what follows from some values by numbers, which are those of `evaluate`.

    >>> folded(Operation("divide", (Variable("dt"), Operation("sqrt", (Variable("h"),)))), {"h": 4})
    Operation(name='divide', arguments=(Variable(name='dt'), Constant(value=2.0)))
    """
    known: dict[int, Node] = {}

    def fold(part: Node) -> Node:
        if id(part) not in known:
            known[id(part)] = changed(part)
        return known[id(part)]

    def changed(part: Node) -> Node:
        below: tuple[Node, ...] = ()
        match part:
            case Variable(name):
                return Constant(float(values[name])) if name in values else part
            case Operation(name, arguments):
                below = tuple(map(fold, arguments))
                part = Operation(name, below)
            case Comparison(signs, operands):
                below = tuple(map(fold, operands))
                part = Comparison(signs, below)
        if below and all(isinstance(it, Constant) for it in below):
            with np.errstate(all="ignore"):
                return Constant(float(evaluate(part, {})))
        return part

    return fold(node)


def courses_of(parts: Parts, made: SchemeStages) -> tuple[Parameter, ...]:
    """The numbers of right-hand sides that follow from time alone, with the times at which their
    formulas bend or jump.
    """
    return tuple(it for it in made.hoist.parameters(parts.values(1.0, made)) if it.changes)


def with_wholes(parts: Parts, *, exact: bool = False) -> Parts:
    """The same with the numbers of the whole grid at the initial state.

    Args:
        parts: what the problem is made of.
        exact: whether they decide more than trials and the largest step; else those of a part in
            its middle stand for those of a large grid.
    """
    if not parts.system.wholes:
        return parts
    sample = parts
    if parts.grid.n_points > _LOOKED_AT and not exact:
        sample = middle_of(parts, int(_LOOKED_AT ** (1 / parts.grid.ndim)))
    share = parts.grid.n_points / sample.grid.n_points
    found: dict[str, float] = {}

    for group in in_order(parts.system.wholes):
        numbers = numbers_of(_reducing(replace(sample, wholes=found), group))
        sums = {name for name in group if parts.system.wholes[name].kind == "integral"}
        found |= {name: it * (share if name in sums else 1.0) for name, it in numbers.items()}
    return replace(parts, wholes=found)


def _reducing(parts: Parts, group: Sequence[str]) -> Problem:
    """A problem whose only step gives some numbers of the whole grid."""
    # Fields that do not change leave nothing in the step but what is reduced.
    wholes = {name: parts.system.wholes[name] for name in group}
    rates = {name: Constant(0.0) for name in parts.system.right_sides}
    system = replace(parts.system, first=rates, second={}, wholes=wholes, elliptic={})
    known = replace(parts, system=system)
    made = make_stages(system, "euler")
    return problem_of(known, make_equations(known, made, 1.0), (1.0, 1), 1.0)


class WholeNumbers:
    """Formulas of numbers of the whole grid, for any state of some equations.

    Args:
        parts: what the equations are made of.
        trees: formulas by name, in which fields and places stand in integrals, means, largest and
            smallest values alone.

    Raises:
        ConfigError: one of them reads a field beyond a face where it is not defined.
    """

    def __init__(self, parts: Parts, trees: Mapping[str, Node]) -> None:
        system = parts.system
        self._trees, wholes = taken_out(trees, even=parts.grid.is_even)
        refuse_reading({name: it.tree for name, it in wholes.items()}, system.walls)
        # Formulas were multiplied by these where cells differ, whatever equations read.
        volumes: Arrays = {} if parts.grid.is_even else {VOLUME: parts.grid.volumes}
        system = replace(system, wholes=wholes, arrays={**system.arrays, **volumes})
        self._parts = replace(parts, system=system, wholes={})
        self._groups = in_order(wholes)

    @functools.cached_property
    def _first(self) -> Problem:
        # Of numbers that need no others, as almost all of them are, made once.
        return _reducing(self._parts, self._groups[0])

    def values(self, state: Field, time: float) -> list[float]:
        """The numbers, in the order of the formulas; the same bits for any division of the grid.

        Args:
            state: of all points, (n_fields, n0, ...).
            time: of it [s].
        """
        found: dict[str, float] = {}
        for number, group in enumerate(self._groups):
            # Later groups are made of the numbers of this state, so they are made for it.
            known = replace(self._parts, wholes=found)
            problem = _reducing(known, group) if number else self._first
            found |= numbers_of(problem, state, time)
        given = {**self._parts.system.values, **found}
        return [scalar_value(tree, given, time) for tree in self._trees.values()]


def problem_of(
    parts: Parts, equations: Equations, time: tuple[float, int], limit: float
) -> Problem:
    """The problem of some equations.

    Args:
        parts: what else it is made of.
        equations: a step.
        time: dt [s] and the number of steps.
        limit: largest stable dt [s].

    Raises:
        ConfigError: the grid is too small for them.
    """
    # Only the reach of the stencil counts, for halos.
    try:
        return Problem(
            grid=parts.grid,
            stencil=star_mean(parts.grid.ndim, equations.radii),
            boundary=parts.boundaries[equations.fields[0]],
            initial=parts.initial,
            dt=time[0],
            steps=time[1],
            dtype=parts.dtype,
            variables=parts.variables,
            dt_limit=limit,
            equations=equations,
        )
    except ValueError as error:
        msg = f"grid.shape: {error}"
        raise ConfigError(msg) from error


def make_equations(
    parts: Parts, made: SchemeStages, dt: float, changing: Collection[str] = (TIME,)
) -> Equations:
    """The stages with the numbers of a time step.

    Args:
        parts: what they are made of.
        made: the stages.
        dt: the time step.
        changing: of what numbers are made that may be others at each step.

    Raises:
        ConfigError: they read nothing, or a part of a formula has no value on a face.
    """
    fields = tuple(parts.system.right_sides)
    boundaries = dict(parts.boundaries)
    boundaries |= {copy: parts.boundaries[name] for copy, name in made.copies.items()}
    boundaries |= {
        name: inner_boundary(tree, parts.boundaries, parts.grid.ndim)
        for name, tree in made.inner.items()
    }
    _refuse_inner_drives(parts, made)
    values, read = parts.values(dt, made), {name for stage in made.stages for name in stage.taps}
    drives = [it for drives in parts.system.drives.values() for it in drives if it.name in read]
    widths = {
        name: functools.reduce(lambda a, b: tuple(map(max, a, b)), found)
        for name in read & {*made.hoist.coefficients.values()}
        if (found := [radii for stage in made.stages if (radii := stage.radii(name))])
    }
    noises = {name: normal_numbers(name, parts.grid) for name in parts.system.noises}
    elliptic = tuple(_elliptic_at(parts, ending) for ending in made.solved)
    corrections = [name for it in elliptic for name in it.residuals]
    boundary = next(iter(parts.boundaries.values()))
    periodic = tuple(map(boundary.periodic, range(parts.grid.ndim)))
    beyond = made.hoist.beyond(values, parts.grid, periodic, widths)
    beyond |= {drive.name: drive.beyond(parts.grid) for drive in drives}

    return Equations(
        fields,
        made.stages,
        made.results,
        boundaries,
        made.hoist.parameters(values, (*changing, *made.reductions)),
        made.hoist.arrays(values, parts.grid)
        | beyond
        | {name: at_step(it, 0) for name, it in noises.items()}
        | dict.fromkeys(corrections, _nothing),
        outside=frozenset(beyond),
        reductions={
            name: parts.system.wholes[it].reduction(parts.grid)
            for name, it in made.reductions.items()
        },
        noises=noises,
        elliptic=elliptic,
    )


def _nothing(box: Ranges) -> Numbers:
    return np.zeros([high - low for low, high in box])


def _elliptic_at(parts: Parts, ending: str) -> Elliptic:
    """Return what is solved for at the moment at which names have an ending."""
    system = parts.system
    return Elliptic(
        {correction_of(name, ending): residual_of(name, ending) for name in system.elliptic},
        {name: kept_of(name, ending) for name in system.kept},
        lambda residuals, kept, rounding, _: parts.solve(residuals, kept, rounding),
    )


def _refuse_inner_drives(parts: Parts, made: SchemeStages) -> None:
    """Raise where the ghosts of a part of a formula would follow from a value that changes."""
    held = {name for name, it in parts.system.drives.items() if any(one.holds for one in it)}
    for tree in made.inner.values():
        if fields := sorted(held & names_in(tree)):
            msg = (
                f"boundaries: an operator reads a formula with operators of {fields[0]}, whose "
                "value on a face changes with time; give that face a flux, or a number"
            )
            raise ConfigError(msg)


def inner_boundary(tree: Node, boundaries: Mapping[str, Boundary], ndim: int) -> Boundary:
    """The ghosts of a part of a formula that an operator reads.

    A face at which all fields of it are given gives what the formula says of these values, its
    operators being 0 there; any other one mirrors it.

    Raises:
        ConfigError: the value differs from place to place, or is not finite.
    """
    fields = [name for name in boundaries if name in names_in(tree)]
    whole, faces = next(iter(boundaries.values())), list[tuple[Face, Face]]()

    for axis in range(ndim):
        pair: list[Face] = []
        for side in range(2):
            given = {name: boundaries[name].faces[axis][side] for name in fields}
            if whole.periodic(axis):
                pair.append(Periodic())
            elif given and all(isinstance(it, Dirichlet | Fixed) for it in given.values()):
                values = {name: it.value for name, it in given.items()}  # type: ignore[union-attr]
                on_face = any(isinstance(it, Dirichlet) for it in given.values())
                pair.append((Dirichlet if on_face else Fixed)(_value_on_face(tree, values)))
            else:
                pair.append(Neumann())
        faces.append((pair[0], pair[1]))
    return Boundary(tuple(faces))


def _value_on_face(tree: Node, values: Mapping[str, float]) -> float:
    plain = _without_operators(tree)
    others = {it.name for it in walk(plain) if isinstance(it, Variable)} - values.keys()
    found, known = set(), {name: np.float64(value) for name, value in values.items()}
    with np.errstate(all="ignore"):
        for sample in _SAMPLES:
            given = {**dict.fromkeys(others, np.float64(sample)), **known}
            found.add(float(evaluate(plain, given)))  # type: ignore[arg-type]

    if len(found) > 1:
        msg = (
            "boundaries: an operator reads a formula with operators in it, whose value on a face "
            "with given values differs from place to place; take periodic or neumann faces"
        )
        raise ConfigError(msg)
    value = found.pop()
    if not math.isfinite(value):
        msg = (
            f"boundaries: an operator reads a formula with operators in it, which is {value:g} "
            "on a face with given values; write it otherwise, or take periodic or neumann faces"
        )
        raise ConfigError(msg)
    return value


def _without_operators(tree: Node) -> Node:
    match tree:
        case Operation(name, _) if name not in OPERATIONS:
            return Constant(0.0)
        case Operation(name, arguments):
            return Operation(name, tuple(_without_operators(it) for it in arguments))
        case Comparison(signs, operands):
            return Comparison(signs, tuple(_without_operators(it) for it in operands))
    return tree


def middle_of(parts: Parts, width: int) -> Parts:
    """The middle of a problem, as far as so many points along each axis."""
    grid = parts.grid
    shape = tuple(min(n, width) for n in grid.shape)
    first = tuple((n - own) // 2 for n, own in zip(grid.shape, shape, strict=True))
    spans = [(k, k + own) for k, own in zip(first, shape, strict=True)]

    def moved(box: Ranges) -> Ranges:
        return tuple((a + k, b + k) for (a, b), k in zip(box, first, strict=True))

    def initial(slab: Slab) -> Field:
        return parts.initial(Slab.box(moved(slab.spans)))

    def of_middle(array: Callable[[Ranges], Numbers]) -> Callable[[Ranges], Numbers]:
        return lambda box: array(moved(box))

    mirrors = Boundary.everywhere(Neumann(), grid.ndim)
    return replace(
        parts,
        # Numbers of cells are in units of the spacing of the whole.
        grid=replace(grid.part(spans, {}), spacing=grid.spacing),
        system=replace(
            parts.system,
            drives={},
            closures={},
            walls={},
            arrays={name: of_middle(it) for name, it in parts.system.arrays.items()},
        ),
        boundaries=dict.fromkeys(parts.boundaries, mirrors),
        initial=initial,
    )


# Constraints: fields that 0 = F gives at every moment, from the first one on.


def with_constraints(parts: Parts) -> Parts:
    """The same with what solves the constraints, and with the fields that these give at time 0.

    Raises:
        ConfigError: something cannot be solved for.
    """
    system = parts.system
    if not system.elliptic:
        return parts
    names = ", ".join(system.elliptic)
    # Such a number would be needed before the field that it is made of.
    inner = {name for it in system.wholes for name in names_in(system.wholes[it].tree)}
    read = {it for tree in system.elliptic.values() for it in names_in(tree)}
    if read & {*system.wholes} and inner & {*system.elliptic}:
        msg = f"model: 0 = ... of {names} may not have a number of the whole grid of what it gives"
        raise ConfigError(msg)

    try:
        solver = Constraints(_rates_of(parts), tuple(system.elliptic))
    except ValueError as error:
        msg = f"model: 0 = ... of {names} cannot be solved: {error}"
        raise ConfigError(msg) from error

    # Guesses say how large a sum is that should be 0.
    kept = (*system.elliptic, *solver.reads)
    found = replace(parts, system=replace(system, kept=kept), solve=solver.solve)
    return replace(found, initial=_solved_initial(found))


def _rates_of(parts: Parts) -> Problem:
    """The problem of which F are right-hand sides, as if their fields changed."""
    system = parts.system
    first = {name: system.elliptic.get(name, Constant(0.0)) for name in system.right_sides}
    # Whatever a mirror is given does not depend on what is solved for, but for formulas of it.
    closures = {
        name: [it for it in every if name not in system.elliptic or not _only_given(it, system)]
        for name, every in system.closures.items()
    }
    drives = {name: it for name, it in system.drives.items() if name not in system.elliptic}
    system = replace(system, first=first, second={}, elliptic={}, closures=closures, drives=drives)
    # What numbers of the whole grid are does not matter where they are added.
    plain = replace(parts, system=system, wholes=dict.fromkeys(system.wholes, 0.0))
    # Their names stay in formulas, as numbers that nothing is made for.
    made = make_rates(replace(system, wholes={}), nothing_yet(system))
    values = plain.values(1.0)

    def numbers(moment: float) -> Numbers:
        return made.hoist.numbers(values, moment)

    changing = (TIME, *system.wholes)
    equations = make_equations(plain, made, 1.0, changing)
    rates = Rates("implicit", 1.0, adaptive=False, numbers=numbers)
    found = problem_of(plain, replace(equations, rates=rates), (1.0, 1), 1.0)
    return replace(found, dtype=np.dtype(np.float64))


def _only_given(closure: Closure, system: System) -> bool:
    names = {name for it in closure.given if it is not None for name in names_in(it)}
    return closure.mirror is not None and not names & system.elliptic.keys()


def _solved_initial(parts: Parts) -> InitialField:
    """The initial state with the fields that constraints give, made on the whole grid at once."""

    @functools.cache
    def whole() -> Field:
        fields: tuple[str, ...] = (*parts.system.right_sides,)
        first: dict[str, Node] = dict.fromkeys(parts.system.first, Constant(0.0))
        for name in parts.system.second:
            first |= {it: Constant(0.0) for it in (name, velocity_of(name))}
        still = replace(parts.system, first=first, second={})
        known = with_wholes(replace(parts, system=still), exact=True)

        # In a step of no length in which nothing changes, they are solved for once.
        equations = make_equations(known, make_stages(still, "euler"), 0.0)
        problem = problem_of(known, equations, (1.0, 1), 1.0)
        state = np.array(parts.initial(Slab.whole(parts.grid)), np.float64)
        values = values_of_a_step(state, problem, 0)
        # There is one moment, after the only stage that moves anything.
        (elliptic,) = equations.elliptic
        kept = {name: values[it] for name, it in elliptic.kept.items()}
        eps = float(np.finfo(parts.dtype).eps)
        try:
            found = parts.solve([values[it] for it in elliptic.residuals.values()], kept, eps)
        except NumericsError as error:
            msg = f"model: {error}"
            raise ConfigError(msg) from error
        for name, correction in zip(parts.system.elliptic, found, strict=True):
            state[fields.index(name)] -= correction
        return state.astype(parts.dtype)

    return lambda slab: whole()[(slice(None), *(slice(*span) for span in slab.spans))]
