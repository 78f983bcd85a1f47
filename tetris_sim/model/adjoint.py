"""Adjoints: the transposed program of a time step, which carries derivatives backwards.

Let J be a number made of the state after a step, and s its derivatives by that state. Its
derivatives by the state before the step are s times the transposed Jacobian of the step. A step is
stages of formulas of taps, so its transpose is too: the derivative of a formula by a tap u[o] times
s, read at the opposite offset -o, stage after stage from the last one to the first. Where the taps
are those of nonlinear formulas, the derivatives are numbers of the state before the step, which the
transposed program has as fields of its own and makes its stages again from them.

A ghost a + b u of a mirror point gives b s back to that point. Numbers of a step, that is
parameters, coefficients, a and b of ghosts, follow from the configuration; where J is to be
differentiated by one number of it, the transposed program also adds up, point by point, what their
changes give (`Direction`). What comes out is a problem like any other: any method can advance it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tetris_sim.model.boundary import Boundary, Fixed, Periodic, Side
from tetris_sim.model.conduction import Numbers, Parameter
from tetris_sim.model.equations import Equations, Offset, Stage, as_tap, tap
from tetris_sim.model.formula import Comparison, Constant, Node, Operation, Variable, walk
from tetris_sim.model.linearisation import gradients
from tetris_sim.model.problem import Field, Problem, StateVariable, Total
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.model.stencil import star_mean

ADJOINT = "~"  # at the end of names of derivatives of J
_NO_TOTAL = Total("sum", "1", 1.0)


@dataclass(frozen=True, eq=False)
class Direction:
    """A number of a configuration by which J is differentiated.

    Attributes:
        name: of it.
        problems: the same with other values of this number, whose programs are the same.
        weights: of these problems, so that sums of their numbers are derivatives.
    """

    name: str
    problems: tuple[Problem, ...]
    weights: tuple[float, ...]

    def sum(self, numbers: Callable[[Problem], Numbers]) -> Numbers:
        """Return the derivative of numbers of the problem."""
        return self.weigh(map(numbers, self.problems))

    def weigh(self, numbers: Iterable[Numbers]) -> Numbers:
        """Return the same of numbers of each problem."""
        parts = (weight * it for it, weight in zip(numbers, self.weights, strict=True))
        return np.asarray(functools.reduce(np.add, parts), np.float64)

    def initial(self) -> Field:
        """Return the derivative of the initial state, (n_fields, n0, ...)."""
        whole = Slab.whole(self.problems[0].grid)
        return self.sum(lambda it: np.asarray(it.initial(whole), np.float64))


@dataclass(frozen=True, eq=False)
class Transposed:
    """The transposed step of a problem.

    Attributes:
        problem: the same steps, in the same numbers; its fields are those of `reads`, then one
            derivative of J for each field, then one sum for each direction, by point.
        reads: the fields of the state before a step that it reads: none where the step is linear
            and there are no directions. They stay as they are.
        n_fields: how many derivatives there are.
    """

    problem: Problem
    reads: tuple[int, ...]
    n_fields: int

    @property
    def changes(self) -> bool:
        """Whether steps differ, so that each has to be made by its own number."""
        return any(it.changes for it in self.problem.system.parameters)


def as_equations(problem: Problem) -> Problem:
    """Write the step of a stencil as equations, with its weights as parameters."""
    if problem.equations:
        return problem
    # As parameters, so that what changes them is a change of numbers and not of formulas.
    names = [f"w{k}" for k in range(problem.stencil.n_points)]
    terms = zip(names, problem.stencil.offsets, strict=True)
    (name,) = (it.name for it in problem.variables)
    parts = [Operation("multiply", (Variable(w), tap(name, offset))) for w, offset in terms]
    tree: Node = functools.reduce(lambda a, b: Operation("add", (a, b)), parts)

    weights = zip(names, problem.stencil.weights, strict=True)
    equations = Equations(
        (name,),
        (Stage({f"{name}'": tree}),),
        {name: f"{name}'"},
        {name: problem.boundary},
        tuple(Parameter(w, np.array([weight])) for w, weight in weights),
    )
    return replace(
        problem, equations=equations, stencil=star_mean(problem.grid.ndim, equations.radii)
    )


def why_not_transposed(problem: Problem) -> str | None:
    """Say why the steps of a problem have no transposed program, as the end of a sentence that
    begins with "gradients are of explicit steps of a given length, and"; None if they have one.
    """
    equations = problem.equations
    if problem.conduction and problem.conduction.enthalpy:
        return "k(T), c(T), melting and radiation inside of a body change what it conducts"
    if problem.signals:
        return "a controller decides while the run goes on"
    if problem.phases is not None:
        return "cells come and go in this body, which its steps do not say"
    if not equations:
        return None

    # Equations: steps that are not made of formulas of neighbours alone.
    if equations.rates is not None:
        return f"scheme {equations.rates.scheme} solves for the state"
    if equations.substeps is not None and equations.substeps.adaptive:
        return "time.tolerance lets errors choose the steps; give dt instead"
    if equations.noises:
        return "noise is another one in every step"
    if equations.elliptic:
        return "a field is solved for on the whole grid between stages"
    if equations.reductions:
        return "stages read numbers of the whole grid (integral, mean, max, min)"
    return None


def aligned(problems: Sequence[Problem]) -> list[Problem]:
    """Write problems by the same stages: numbers in which their formulas differ become parameters.

    Args:
        problems: by equations that differ in numbers alone.

    Raises:
        ValueError: they differ in more than that.
    """
    every = [it.system for it in problems]
    merged = _Merger(len(every))
    stages = []
    for alike in zip(*(it.stages for it in every), strict=True):
        names = alike[0].formulas
        if any([*it.formulas] != [*names] for it in alike):
            msg = "stages compute other names"
            raise ValueError(msg)
        formulas = {name: merged.node(tuple(it.formulas[name] for it in alike)) for name in names}
        stages.append(Stage(formulas))

    said = [[(it.name, it.changes) for it in one.parameters] for one in every]
    known = [{*(it.coefficients or {})} for it in every]
    if any(it != said[0] for it in said) or any(it != known[0] for it in known):
        msg = "steps have other numbers"
        raise ValueError(msg)
    # Each problem keeps its own values of the numbers that became parameters.
    found = []
    for number, (problem, one) in enumerate(zip(problems, every, strict=True)):
        own = (Parameter(name, np.array([it[number]])) for name, it in merged.numbers.items())
        equations = replace(one, stages=tuple(stages), parameters=(*one.parameters, *own))
        found.append(replace(problem, equations=equations))
    return found


class _Merger:
    """Makes one formula of several that differ in numbers alone."""

    def __init__(self, count: int) -> None:
        self.numbers: dict[str, list[float]] = {}
        self._count = count
        self._known: dict[tuple[int, ...], Node] = {}

    def node(self, alike: tuple[Node, ...]) -> Node:
        """Return the formula, with parameters in place of the numbers in which they differ."""
        # Parts are shared by identity: written out, a formula may never end.
        key = tuple(map(id, alike))
        if key not in self._known:
            self._known[key] = self._merged(alike)
        return self._known[key]

    def _merged(self, alike: tuple[Node, ...]) -> Node:
        first = alike[0]
        if all(isinstance(it, Constant) for it in alike):
            values = [it.value for it in alike if isinstance(it, Constant)]
            if len({*values}) == 1:
                return first
            # The ending keeps it apart from the names of users.
            name = f"number{len(self.numbers)}{ADJOINT}"
            self.numbers[name] = values
            return Variable(name)

        if isinstance(first, Operation | Comparison):
            parts = [_parts(it) for it in alike]
            if all(it[:2] == parts[0][:2] and len(it[2]) == len(parts[0][2]) for it in parts):
                inner = tuple(
                    self.node(each) for each in zip(*(it[2] for it in parts), strict=True)
                )
                if isinstance(first, Operation):
                    return Operation(first.name, inner)
                return Comparison(first.signs, inner)
        elif all(it == first for it in alike):
            return first
        msg = "formulas are others"
        raise ValueError(msg)


def _parts(node: Node) -> tuple[type[Node], object, tuple[Node, ...]]:
    match node:
        case Operation(name, arguments):
            return Operation, name, arguments
        case Comparison(signs, operands):
            return Comparison, signs, operands
    return type(node), None, ()


def transposed(problem: Problem, directions: Sequence[Direction] = ()) -> Transposed:
    """Make the transposed program of a step.

    Args:
        problem: by equations for which `why_not_transposed` has no reason.
        directions: numbers by which J is differentiated besides the state; their problems are by
            equations of the same stages.

    Raises:
        ValueError: the grid is smaller than a transposed step reaches.
    """
    made = _Transposer(problem, directions)
    for stage in reversed(problem.system.stages):
        made.turn(stage)
    return made.result()


@dataclass(frozen=True)
class _Way:
    """How what is read at an offset along some axes comes from a point: from the point itself, or
    by ghosts that mirror it.

    Attributes:
        shift: from the point to the one that reads, per axis.
        ghosts: (axis, side, number from 1) of ghosts on the way.
    """

    shift: Offset
    ghosts: tuple[tuple[int, Side, int], ...]


def _ways(offset: Offset, periodic: Sequence[bool]) -> list[_Way]:
    choices: list[list[tuple[int, tuple[tuple[int, Side, int], ...]]]] = []
    for axis, s in enumerate(offset):
        # Point x is read directly by x - s. Ghost j beyond a face mirrors the j-th point from it,
        # and is read by the point s away.
        found: list[tuple[int, tuple[tuple[int, Side, int], ...]]] = [(-s, ())]
        if not periodic[axis]:
            for j in range(1, abs(s) + 1):
                away = abs(s) - 2 * j + 1
                side: Side = "low" if s < 0 else "high"
                found.append((away if s < 0 else -away, ((axis, side, j),)))
        choices.append(found)

    # Axes are filled one after the other, so a ghost beyond an edge is a ghost of a ghost.
    return [
        _Way(tuple(shift for shift, _ in each), tuple(g for _, ghosts in each for g in ghosts))
        for each in itertools.product(*choices)
    ]


@dataclass
class _Transposer:
    """Collects the stages of a transposed step, from the last stage of the step to its first."""

    problem: Problem
    directions: Sequence[Direction]
    stages: list[dict[str, Node]] = field(default_factory=list)
    masks: dict[str, Callable[[Ranges], Numbers]] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    coefficients: dict[str, Callable[[Ranges], Numbers]] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        equations, grid = self.problem.system, self.problem.grid
        self._equations = equations
        self._here = (0,) * grid.ndim
        self._periodic = [self.problem.boundary.periodic(axis) for axis in range(grid.ndim)]
        self._given = {it.name: it for it in equations.parameters}
        # The name that holds the derivatives by each name so far; none are 0.
        self._bars = {new: field + ADJOINT for field, new in equations.results.items()}
        self._sums = {it.name: f"{it.name}.sum{ADJOINT}" for it in self.directions}
        self._count = 0
        self._find_changes()

    def _find_changes(self) -> None:
        """Find which parameters and coefficients change with each direction."""
        self._moved: dict[tuple[str, str], str] = {}  # (direction, number) -> its derivative
        whole: Ranges = tuple((0, n) for n in self.problem.grid.shape)

        # Most numbers do not depend on most others: what is 0 is left out of the program.
        for way in self.directions:
            for name, it in self._given.items():
                made = _derivative(it, way, f"{name}.{way.name}")
                if made is not None:
                    self._moved[way.name, name] = made.name
                    self.parameters[made.name] = made
            for name in self._equations.coefficients or {}:
                of_box = functools.partial(_slope_of_box, way, name)
                if of_box(whole).any():
                    own = f"{name}.{way.name}"
                    self._moved[way.name, name] = own
                    self.coefficients[own] = of_box
                    # Where it is read beyond faces, the problem knows what stands there.
                    self.outside.add(own)

    def _fresh(self, name: str) -> str:
        self._count += 1
        return f"{name}.{self._count}{ADJOINT}"

    def turn(self, stage: Stage) -> None:
        """Add the transpose of a stage."""
        known = self._equations.coefficients or {}
        wanted = {number for _, number in self._moved}
        parts: dict[tuple[str, Offset], list[tuple[Node, str]]] = {}
        local: dict[str, list[Node]] = {it.name: [] for it in self.directions}
        slopes = gradients(stage.programs, wanted & self._given.keys())
        for name, of_inputs in zip(stage.formulas, slopes, strict=True):
            if name not in self._bars:
                continue  # nothing of J follows from it
            bar = self._bars[name]
            for text, slope in of_inputs.items():
                read = as_tap(text)
                if read is not None and read[0] not in known:
                    parts.setdefault(read, []).append((slope, bar))
                    continue

                # Numbers of the step: what changes with them is made at the point itself.
                for it in self.directions:
                    moved = self._moved.get((it.name, text if read is None else read[0]))
                    if moved is not None:
                        change = Variable(moved) if read is None else tap(moved, read[1])
                        local[it.name].append(_product(slope, tap(bar, self._here), change))

        pulled: dict[str, list[Node]] = {}
        first: dict[str, Node] = {}
        for (name, offset), terms in parts.items():
            sent = self._sent(terms, first)
            pulled.setdefault(name, [])
            for way in _ways(offset, self._periodic):
                self._pull(name, way, sent, pulled[name], local)
        self._close(first, pulled, local)

    def _sent(
        self, terms: Sequence[tuple[Node, str]], first: dict[str, Node]
    ) -> Callable[[Offset], Node]:
        """Return what the points give back that read a tap, by their offset."""
        # Derivatives that are the same at every point need no array.
        if all(self._is_even(slope) for slope, _ in terms):
            return lambda shift: _sum([_product(slope, tap(bar, shift)) for slope, bar in terms])
        # Elsewhere the numbers are those of the point that reads, so they are made there first.
        name = self._fresh("sent")
        first[name] = _sum([_product(slope, tap(bar, self._here)) for slope, bar in terms])
        return lambda shift: tap(name, shift)

    def _is_even(self, tree: Node) -> bool:
        return all(it.name in self._given for it in walk(tree) if isinstance(it, Variable))

    def _pull(
        self,
        name: str,
        way: _Way,
        sent: Callable[[Offset], Node],
        pulled: list[Node],
        local: dict[str, list[Node]],
    ) -> None:
        """Add what a point gets back from the one that reads it by a way."""
        arriving = sent(way.shift)
        if not way.ghosts:
            pulled.append(arriving)
            return
        # A mirror point gets it; at others the same reading means nothing.
        for axis, side, number in way.ghosts:
            arriving = _product(self._mask(axis, side, number), arriving)
        _, b = self._ghost(self.problem, name, way)
        if b != 0:
            pulled.append(_product(Constant(b), arriving))

        # The ghost itself may change: by da + db u.
        for direction in self.directions:
            da, db = direction.sum(lambda it: np.array(self._ghost(it, name, way)))
            here = tap(name, self._here)
            for change in ([Constant(da)] if da else []) + (
                [_product(Constant(db), here)] if db else []
            ):
                local[direction.name].append(_product(change, arriving))

    def _ghost(self, problem: Problem, name: str, way: _Way) -> tuple[float, float]:
        """Return a and b of a ghost, which at an edge or corner is that of another ghost."""
        # Along each axis another affine map of what the axes before have given.
        a, b = 0.0, 1.0
        boundary, spacing = problem.system.boundaries[name], problem.grid.spacing
        for axis, side, number in way.ghosts:
            pairs = boundary.reflections(axis, side, spacing=spacing[axis], width=number)
            outer, share = pairs[-1]
            a, b = outer + share * a, share * b
        return a, b

    def _mask(self, axis: int, side: Side, number: int) -> Node:
        """Return 1 at the points that are so many from a face, 0 elsewhere."""
        shape = self.problem.grid.shape
        place = number - 1 if side == "low" else shape[axis] - number
        name = f"at{axis}.{place}{ADJOINT}"

        def of_box(box: Ranges) -> Numbers:
            along = (np.arange(*box[axis]) == place).astype(np.float64)
            form = [-1 if k == axis else 1 for k in range(len(box))]
            return np.array(np.broadcast_to(along.reshape(form), [b - a for a, b in box]))

        self.masks[name] = of_box
        return tap(name, self._here)

    def _close(
        self,
        first: dict[str, Node],
        pulled: Mapping[str, Sequence[Node]],
        local: Mapping[str, Sequence[Node]],
    ) -> None:
        """Add the stages: what is read beside its point is made by a stage of its own before."""
        # Names are given once, so each sum so far has a name of its own.
        second: dict[str, Node] = {}
        for name, terms in pulled.items():
            before = self._bars.get(name)
            own = [] if before is None else [tap(before, self._here)]
            self._bars[name] = self._fresh(name)
            second[self._bars[name]] = _sum([*own, *terms])
        for name, terms in local.items():
            if terms:
                before = self._sums[name]
                self._sums[name] = self._fresh(name)
                second[self._sums[name]] = _sum([tap(before, self._here), *terms])
        self.stages += [it for it in (first, second) if it]

    def result(self) -> Transposed:
        """Return the transposed step."""
        equations = self._equations
        last: dict[str, Node] = {}
        results: dict[str, str] = {}
        for name in equations.fields:
            made = self._bars.get(name)
            if made is None:
                # Nothing of the step follows from the field.
                made = self._fresh(name)
                last[made] = _product(Constant(0.0), tap(name + ADJOINT, self._here))
            results[name + ADJOINT] = made
        for it in self.directions:
            begun, made = f"{it.name}.sum{ADJOINT}", self._sums[it.name]
            if made == begun:
                made = self._fresh(it.name)
                last[made] = tap(begun, self._here)
            results[begun] = made

        stages, reads = self._with_stages_before()
        for name in reads:
            last[f"{name}.same{ADJOINT}"] = tap(name, self._here)
        # What is read stays as it is: the caller replaces it by the state of an earlier step.
        results = {name: f"{name}.same{ADJOINT}" for name in reads} | results
        turned = [*stages, *map(Stage, [*self.stages, *([last] if last else [])])]
        return self._posed(turned, results, tuple(map(equations.fields.index, reads)))

    def _with_stages_before(self) -> tuple[list[Stage], list[str]]:
        """Return the stages of the step itself that are read, and the fields that they read."""
        # From the last one back; what no derivative reads is not made again.
        needed = {name for it in self.stages for name in Stage(it).taps}
        stages: list[Stage] = []
        for stage in reversed(self._equations.stages):
            if formulas := {name: it for name, it in stage.formulas.items() if name in needed}:
                stages.insert(0, Stage(formulas))
                needed |= {*stages[0].taps}
        return stages, [name for name in self._equations.fields if name in needed]

    def _posed(
        self, stages: Sequence[Stage], results: Mapping[str, str], reads: tuple[int, ...]
    ) -> Transposed:
        problem, equations = self.problem, self._equations
        ndim = problem.grid.ndim
        read = {name for it in stages for name in it.taps}
        numbers = {name for it in stages for name in it.programs.inputs}
        # Beyond a face nobody reads, so nothing is given back from there.
        nothing = Boundary(
            tuple((Periodic(),) * 2 if ring else (Fixed(0.0),) * 2 for ring in self._periodic)
        )
        made = {name for it in stages for name in it.formulas} | {*results}
        boundaries = dict.fromkeys(made, nothing) | dict(equations.boundaries)
        given = {**(equations.coefficients or {}), **self.masks, **self.coefficients}
        outside = (equations.outside | self.outside) & read
        every = {**self._given, **self.parameters}
        turned = Equations(
            tuple(results),
            tuple(stages),
            dict(results),
            boundaries,
            tuple(it for name, it in every.items() if name in numbers),
            {name: it for name, it in given.items() if name in read} or None,
            frozenset(outside),
        )

        shape = (len(results), *problem.grid.shape)
        posed = Problem(
            grid=problem.grid,
            stencil=star_mean(ndim, turned.radii),
            boundary=boundaries[turned.fields[0]],
            initial=lambda slab: np.zeros((shape[0], *slab.shape)),
            dt=problem.dt,
            steps=problem.steps,
            dtype=np.dtype(np.float64),
            variables=tuple(StateVariable(it, "1", it, _NO_TOTAL) for it in results),
            equations=turned,
            start=problem.start,
        )
        return Transposed(posed, reads, len(equations.fields))


def _derivative(of: Parameter, by: Direction, name: str) -> Parameter | None:
    """Return the derivative of a parameter; None where it does not change."""
    # All of them have the same parameters, see `aligned`.
    named = [{it.name: it for it in problem.system.parameters} for problem in by.problems]
    same = [it[of.name] for it in named]
    if not callable(of.values):
        slope = by.weigh(np.asarray(it.values) for it in same)
        return Parameter(name, slope) if np.any(slope) else None

    def values(times: Numbers) -> Numbers:
        return by.weigh(np.asarray(it.values(times)) for it in same)  # type: ignore[operator]

    return _ParameterSlope(name, values, of=tuple(same), by=by)


@dataclass(frozen=True, eq=False, kw_only=True)
class _ParameterSlope(Parameter):
    """The derivative of a parameter that changes with time: a difference of what steps read of it.

    Means come first: the difference of the functions may be rounding, of which there is no mean.
    """

    of: tuple[Parameter, ...]
    by: Direction

    def over(self, times: Numbers) -> Numbers:
        """As of `Parameter`."""
        return self.by.weigh(it.over(times) for it in self.of)


def _slope_of_box(by: Direction, name: str, box: Ranges) -> Numbers:
    return by.sum(lambda it: it.padded_coefficient(name, box))


def _product(*factors: Node) -> Node:
    found = [it for it in factors if it != Constant(1.0)]
    if Constant(0.0) in found:
        return Constant(0.0)
    return functools.reduce(lambda a, b: Operation("multiply", (a, b)), found or [Constant(1.0)])


def _sum(terms: Sequence[Node]) -> Node:
    kept = [it for it in terms if it != Constant(0.0)]
    return functools.reduce(lambda a, b: Operation("add", (a, b)), kept or [Constant(0.0)])


def split(steps: int, kept: int) -> int:
    """Return after how many of some steps the next state is kept, so that the fewest are made again
    where `kept` states may be, the first one among them (Griewank and Walther, `revolve`).

    >>> split(10, 3), split(10, 20)
    (4, 1)
    """
    # The fewest times that a step has to be made if all are to be gone back.
    repeats = next(r for r in range(1, steps + 1) if math.comb(kept + r, kept) >= steps)

    def most(states: int, times: int) -> int:
        """How many steps can be gone back when each is made at most so many times."""
        return math.comb(states + times, states) if min(states, times) >= 0 else 0

    # Each of the parts is as long as its states and repeats allow, within what is best for both.
    if steps <= most(kept, repeats - 1) + most(kept - 2, repeats - 1):
        return max(1, most(kept, repeats - 2))
    if steps >= most(kept, repeats) - most(kept - 3, repeats):
        return most(kept, repeats - 1)
    return steps - most(kept - 1, repeats - 1) - most(kept - 2, repeats - 1)
