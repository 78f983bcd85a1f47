"""Linearisation of equations: which part of right-hand sides is linear with constant numbers, and
how the rest changes with everything that it reads.

Both questions are answered on the instructions of programs (`program.py`), which know few
operations. `split` gathers sums of taps with constant weights and leaves what remains as formulas;
`gradients` differentiates backwards, from a result to all inputs at once, so shared parts of a
formula are differentiated once; `tangent` makes Jacobian-vector products of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tetris_sim.model.boundary import SIDES, Boundary, Dirichlet, Face, Fixed, Neumann, Robin
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.equations import Equations, Offset, Stage, as_tap, tap
from tetris_sim.model.formula import (
    COMPARISONS,
    Comparison,
    Constant,
    Node,
    Operation,
    Variable,
    walk,
)
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import CONSTANT, INPUT, Instruction, Programs
from tetris_sim.model.reference import with_ghosts
from tetris_sim.model.slab import Ranges

Taps = dict[tuple[str, Offset], float]  # weights by name and offset
Ends = tuple[float, float]  # b of the low and the high face, 1 or -1
_ZERO, _ONE = Constant(0.0), Constant(1.0)
_UNEVEN = 1e-12  # of the largest weight: by how much equal weights may differ by rounding


def _add(a: Node | None, b: Node | None) -> Node | None:
    # Sums and products with 0 and 1 vanish here: derivatives are mostly zeros, and later passes
    # would have to find them.
    if a is None or a == _ZERO:
        return b
    return a if b is None or b == _ZERO else Operation("add", (a, b))


def _multiply(a: Node, b: Node) -> Node:
    if _ZERO in (a, b):
        return _ZERO
    if a == _ONE or b == _ONE:
        return b if a == _ONE else a
    return Operation("multiply", (a, b))


def _call(name: str, *arguments: Node) -> Node:
    return Operation(name, arguments)


def _node(it: Instruction, arguments: Sequence[Node]) -> Node:
    """Write an instruction as a formula of those of its arguments."""
    match it.operation:
        case "input":
            return Variable(it.name)
        case "constant":
            return Constant(it.value)
        # Derivatives need no single rounding, so the fused operation is taken apart.
        case "fma":
            a, b, c = arguments
            return _call("add", _call("multiply", a, b), c)
        case "fmod":
            a, b = arguments
            return _call("subtract", a, _call("multiply", b, _truncated(_call("divide", a, b))))
        case sign if sign in COMPARISONS:
            return Comparison((sign,), tuple(arguments))

    return Operation(it.operation, tuple(arguments))


def _truncated(a: Node) -> Node:
    positive = Comparison((">=",), (a, _ZERO))
    return _call("where", positive, _call("floor", a), _call("ceil", a))


def nodes(programs: Programs) -> list[Node]:
    """Return the formula of every register; formulas share their parts."""
    # Registers in their order: arguments come before the instructions that read them.
    found: list[Node] = []
    for it in programs.instructions:
        found.append(_node(it, [found[k] for k in it.arguments]))
    return found


# Derivatives: of an operation by each of its arguments, from the arguments and the result.

_RULES: dict[str, Callable[..., tuple[Node, ...]]] = {
    "add": lambda a, b, r: (_ONE, _ONE),
    "subtract": lambda a, b, r: (_ONE, Constant(-1.0)),
    "multiply": lambda a, b, r: (b, a),
    "divide": lambda a, b, r: (
        _call("divide", _ONE, b),
        _call("negative", _call("divide", r, b)),
    ),
    "fma": lambda a, b, c, r: (b, a, _ONE),
    "negative": lambda a, r: (Constant(-1.0),),
    "sqrt": lambda a, r: (_call("divide", Constant(0.5), r),),
    "abs": lambda a, r: (_call("sign", a),),
    "floor": lambda a, r: (_ZERO,),
    "ceil": lambda a, r: (_ZERO,),
    "fmod": lambda a, b, r: (_ONE, _call("negative", _truncated(_call("divide", a, b)))),
    "power": lambda a, b, r: (
        _multiply(b, _call("power", a, _call("subtract", b, _ONE))),
        _multiply(r, _call("log", a)),
    ),
    "sin": lambda a, r: (_call("cos", a),),
    "cos": lambda a, r: (_call("negative", _call("sin", a)),),
    "tan": lambda a, r: (_call("add", _ONE, _multiply(r, r)),),
    "asin": lambda a, r: (_call("divide", _ONE, _complement(a)),),
    "acos": lambda a, r: (_call("divide", Constant(-1.0), _complement(a)),),
    "atan": lambda a, r: (_call("divide", _ONE, _call("add", _ONE, _multiply(a, a))),),
    "atan2": lambda a, b, r: (
        _call("divide", b, _squares(a, b)),
        _call("negative", _call("divide", a, _squares(a, b))),
    ),
    "sinh": lambda a, r: (_call("cosh", a),),
    "cosh": lambda a, r: (_call("sinh", a),),
    "tanh": lambda a, r: (_call("subtract", _ONE, _multiply(r, r)),),
    "exp": lambda a, r: (r,),
    "log": lambda a, r: (_call("divide", _ONE, a),),
    "log10": lambda a, r: (_call("divide", Constant(1 / math.log(10)), a),),
    "erf": lambda a, r: (
        _multiply(
            Constant(2 / math.sqrt(math.pi)), _call("exp", _call("negative", _multiply(a, a)))
        ),
    ),
}


def _complement(a: Node) -> Node:
    return _call("sqrt", _call("subtract", _ONE, _multiply(a, a)))


def _squares(a: Node, b: Node) -> Node:
    return _call("add", _multiply(a, a), _multiply(b, b))


def gradients(programs: Programs, names: Collection[str] = ()) -> list[dict[str, Node]]:
    """Return the derivatives of each result by the taps that it reads, and by some other inputs, as
    formulas of the inputs.

    >>> from tetris_sim.model.formula import evaluate
    >>> u = tap("u", (0,))
    >>> ((slope,),) = [it.values() for it in gradients(Programs((Operation("sin", (u,)),)))]
    >>> float(evaluate(slope, {"u[0]": np.float64(0.0)}))
    1.0
    """
    # Reverse mode: one walk backwards from each result gives its derivatives by all inputs.
    # Registers that no tap reaches are passed over.
    registers, formulas = programs.instructions, nodes(programs)
    active: list[bool] = []
    for it in registers:
        read = it.operation == INPUT and (it.name in names or as_tap(it.name) is not None)
        active.append(read or any(active[k] for k in it.arguments))

    found = []
    for result in programs.results:
        # Backwards: all users of a register come after it, so its sum is complete when it is met.
        slopes: dict[int, Node | None] = {result: _ONE}
        for number in reversed(range(result + 1)):
            slope = slopes.get(number)
            if slope is None or not active[number]:
                continue
            for k, part in _partials(registers[number], formulas, number, slope):
                if active[k]:
                    slopes[k] = _add(slopes.get(k), part)
        found.append(
            {
                it.name: slope
                for number, it in enumerate(registers)
                if it.operation == INPUT
                and active[number]
                and (slope := slopes.get(number)) is not None
            }
        )
    return found


def _partials(
    it: Instruction, formulas: Sequence[Node], number: int, slope: Node
) -> Iterable[tuple[int, Node]]:
    """Yield the arguments of an instruction with their parts of a slope; none of logical ones."""
    if it.operation == "where":
        condition, yes, no = it.arguments
        # The side that is not taken may have a slope that is no number, which 0 would not hide.
        yield yes, _call("where", formulas[condition], slope, _ZERO)
        yield no, _call("where", formulas[condition], _ZERO, slope)
        return
    if it.operation not in _RULES:
        return
    rules = _RULES[it.operation](*(formulas[k] for k in it.arguments), formulas[number])
    for k, rule in zip(it.arguments, rules, strict=True):
        yield k, _multiply(slope, rule)


def homogeneous(boundary: Boundary) -> Boundary:
    """Return the faces of differences of two states: without what they are given."""

    def plain(face: Face) -> Face:
        if isinstance(face, Dirichlet | Fixed):
            return replace(face, value=0.0)
        if isinstance(face, Neumann):
            return replace(face, flux=0.0)
        return replace(face, ambient=0.0) if isinstance(face, Robin) else face

    return Boundary(tuple((plain(low), plain(high)) for low, high in boundary.faces))


def tangent(equations: Equations) -> Equations:
    """Return equations of twice the fields: right-hand sides f(u), and J v of a direction v.

    The direction of a field u is the field `u.d`; products with the Jacobian J come from the
    derivatives of every stage, one after the other.
    """
    results, boundaries = dict(equations.results), dict(equations.boundaries)
    names = {*equations.fields, *(name for it in equations.stages for name in it.formulas)}
    boundaries |= {
        f"{name}.d": homogeneous(boundaries[name]) for name in names if name in boundaries
    }
    results |= {f"{field}.d": f"{results[field]}.d" for field in equations.fields}
    stages = []

    for stage in equations.stages:
        # Each stage makes a name and, beside it, its derivative in the direction `.d`.
        formulas = dict(stage.formulas)
        for name, slopes in zip(stage.formulas, gradients(stage.programs), strict=True):
            total: Node | None = None
            for text, slope in slopes.items():
                read, offset = as_tap(text)  # type: ignore[misc]
                if read in names:
                    total = _add(total, _multiply(slope, tap(f"{read}.d", offset)))
            formulas[f"{name}.d"] = total or _ZERO
        stages.append(Stage(formulas))
    fields = (*equations.fields, *(f"{field}.d" for field in equations.fields))
    return replace(
        equations, fields=fields, stages=tuple(stages), results=results, boundaries=boundaries
    )


# Splitting: right-hand sides as L u + N(u), where L is a sum of taps with constant weights that
# cosine, sine or Fourier transforms make diagonal. What is linear but not diagonal, such as a
# first derivative between mirrored faces, stays in N.


class FaceError(Exception):
    """Raised with the reason why faces do not allow transforms."""


@dataclass(frozen=True, eq=False)
class Splitting:
    """Right-hand sides as L u + N(u).

    Attributes:
        weights: the taps of L by the name that they are a part of, stage after stage.
        results: for each field the name of its right-hand side in `weights`.
        rest: equations whose results are N.
        ends: b of the faces of each field per axis; None where it is periodic.
    """

    weights: Mapping[str, Taps]
    results: Mapping[str, str]
    rest: Equations
    ends: Mapping[str, tuple[Ends | None, ...]]


@dataclass(frozen=True, eq=False)
class _Sum:
    """A register: taps with weights, and a formula that is added to them."""

    taps: Taps
    rest: Node | None
    number: float | None = None  # its value, if that is known and constant


def linear_parts(programs: Programs, numbers: Mapping[str, float]) -> list[tuple[Taps, Node]]:
    """Return for each result its taps with constant weights, and the formula of the rest.

    Args:
        programs: formulas of taps.
        numbers: values of the inputs that are constant.
    """
    formulas, registers = nodes(programs), list[_Sum]()
    for it, formula in zip(programs.instructions, formulas, strict=True):
        found = _sum_of(it, [registers[k] for k in it.arguments], numbers)
        if found is None and it.operation == "fma":
            a, b, c = it.arguments
            found = _plus(_Sum({}, _multiply(formulas[a], formulas[b])), registers[c])
        registers.append(found or _Sum({}, formula))
    parts = [registers[k] for k in programs.results]
    return [({k: w for k, w in it.taps.items() if w != 0}, it.rest or _ZERO) for it in parts]


def _sum_of(it: Instruction, of: Sequence[_Sum], numbers: Mapping[str, float]) -> _Sum | None:
    """Return the sum that an instruction gives; None if it is none of taps."""
    if it.operation == CONSTANT:
        return _Sum({}, Constant(it.value), it.value)
    if it.operation == INPUT:
        read = as_tap(it.name)
        if read is not None:
            return _Sum({read: 1.0}, None)
        return _Sum({}, Variable(it.name), numbers.get(it.name))

    # Linear with constant numbers, or None.
    match it.operation, of:
        case "add", [a, b]:
            return _plus(a, b)
        case "subtract", [a, b]:
            return _plus(a, _scaled(b, -1.0))
        case "negative", [a]:
            return _scaled(a, -1.0)
        # Only products with a known number stay linear.
        case "multiply", [a, b]:
            return _product(a, b)
        case "divide", [a, b] if b.number:
            return _scaled(a, 1 / b.number)
        case "fma", [a, b, c] if (product := _product(a, b)) is not None:
            return _plus(product, c)
    return None


def _product(a: _Sum, b: _Sum) -> _Sum | None:
    if a.number is not None:
        return _scaled(b, a.number)
    return None if b.number is None else _scaled(a, b.number)


def _scaled(a: _Sum, by: float) -> _Sum:
    rest = None if a.rest is None else _multiply(Constant(by), a.rest)
    number = None if a.number is None else a.number * by
    return _Sum({key: weight * by for key, weight in a.taps.items()}, rest, number)


def _plus(a: _Sum, b: _Sum) -> _Sum:
    number = None if a.number is None or b.number is None else a.number + b.number
    taps = {key: a.taps.get(key, 0.0) + b.taps.get(key, 0.0) for key in {**a.taps, **b.taps}}
    return _Sum(taps, _add(a.rest, b.rest), number)


def constant_numbers(equations: Equations) -> dict[str, float]:
    """Return the values of parameters that are the same at all times."""
    return {
        it.name: float(it.rows(lambda step: step, 0, 1)[0, 0])
        for it in equations.parameters
        if not it.changes
    }


def split(problem: Problem) -> Splitting:
    """Split right-hand sides into L u + N(u).

    Args:
        problem: by equations whose results are right-hand sides.

    Raises:
        FaceError: a linear part reads beyond a face that no transform knows.
    """
    equations = problem.system
    numbers = constant_numbers(equations)
    made = _Splitter(problem, equations)
    for stage in equations.stages:
        parts = linear_parts(stage.programs, numbers)
        for (name, tree), (taps, rest) in zip(stage.formulas.items(), parts, strict=True):
            made.take(name, tree, taps, rest)
    ends = {name: face_ends(problem, name) for name in equations.fields}
    return Splitting(made.weights, equations.results, made.equations(), ends)


def face_ends(problem: Problem, name: str) -> tuple[Ends | None, ...]:
    """Return b of the faces of a name per axis, None where it is periodic; without ghosts it may be
    any, and is 1; where ghosts are no mirror images it is not a number.
    """
    found = list[Ends | None]()
    radii = problem.system.ghosts.get(name, (0,) * problem.grid.ndim)
    boundary = problem.system.boundaries.get(name)
    for axis, (radius, spacing) in enumerate(zip(radii, problem.grid.spacing, strict=True)):
        if problem.boundary.periodic(axis):
            found.append(None)
            continue
        if boundary is None:
            found.append((1.0, 1.0))
            continue

        # A mirror image, even or odd, is what cosines and sines have beyond a face.
        width = max(radius, 1)
        pairs = [boundary.reflections(axis, it, spacing=spacing, width=width) for it in SIDES]
        same = [{b for _, b in pair} for pair in pairs]
        known = all(len(it) == 1 and it <= {1.0, -1.0} for it in same)
        found.append((same[0].pop(), same[1].pop()) if known else (math.nan, math.nan))
    return tuple(found)


def refuse_faces(problem: Problem, name: str, taps: Iterable[tuple[str, Offset]]) -> None:
    """Raise FaceError where taps of a name read beyond a face that no transform knows."""
    for axis, ends in enumerate(face_ends(problem, name)):
        reads = any(offset[axis] for _, offset in taps)
        if reads and ends is not None and math.isnan(ends[0]):
            of = name if name in problem.system.fields else "a part of a formula"
            msg = (
                f"the faces of {of} along {problem.grid.axis_names[axis]} are neither periodic nor "
                "have a value or a flux, so no transform makes the linear part diagonal; take "
                "scheme implicit"
            )
            raise FaceError(msg)


class _Splitter:
    """Collects the linear part and the rest of every name."""

    def __init__(self, problem: Problem, equations: Equations) -> None:
        self._problem, self._equations = problem, equations
        self._of = {new: field for field, new in equations.results.items()}
        self._full: dict[str, Node] = {}  # as they were, of names between
        self._rest: dict[str, Node] = {}
        self._linear: dict[str, Taps] = {}  # between names: of whose rest the rest is made
        self._faces: dict[str, Numbers] = {}
        self._bases: dict[str, tuple[Ends | None, ...]] = {}
        self.weights: dict[str, Taps] = {}

    def take(self, name: str, tree: Node, taps: Taps, rest: Node) -> None:
        """Add a name."""
        equations = self._equations
        given = equations.coefficients or {}
        kept: Taps = {}
        basis = self._basis(name, taps)
        for read in dict.fromkeys(key[0] for key in taps):
            own = {key: weight for key, weight in taps.items() if key[0] == read}
            even: Taps = {}
            if read not in given:
                refuse_faces(self._problem, read, own)
                usable = self._bases.get(read, face_ends(self._problem, read)) == basis
                # What was computed between counts with its linear part, if it has one.
                if usable and (read in equations.fields or self.weights.get(read)):
                    even = even_taps(own, basis)
            kept |= even
            uneven = {key: weight - even.get(key, 0.0) for key, weight in own.items()}
            least = _UNEVEN * max(map(abs, own.values()))
            for (other, offset), weight in uneven.items():
                if abs(weight) > least:
                    rest = _sum(rest, weight, tap(other, offset))

        self._bases[name], self.weights[name] = basis, kept
        self._full[name] = tree
        self._linear[name] = {key: w for key, w in kept.items() if key[0] not in equations.fields}
        faces = self._given_by_faces(kept)
        if faces is not None:
            self._faces[f"{name}.faces"] = faces
            rest = _add(rest, tap(f"{name}.faces", (0,) * self._problem.grid.ndim)) or _ZERO
        self._rest[name] = rest

    def _basis(self, name: str, taps: Taps) -> tuple[Ends | None, ...]:
        """Ends of the transforms in which a name is expanded."""
        if name in self._of:
            return face_ends(self._problem, self._of[name])
        if any(self._equations.ghosts.get(name, ())):
            return face_ends(self._problem, name)
        given = self._equations.coefficients or {}
        first = next((key[0] for key in taps if key[0] not in given), None)
        return (
            face_ends(self._problem, name)
            if first is None
            else self._bases.get(first, face_ends(self._problem, first))
        )

    def _given_by_faces(self, taps: Taps) -> Numbers | None:
        """Return the contribution of faces to taps of a zero state; None if there is none."""
        problem, total = self._problem, np.zeros(self._problem.grid.shape)
        for name in dict.fromkeys(key[0] for key in taps if key[0] in self._equations.fields):
            radii = self._equations.ghosts.get(name)
            if radii is None:
                continue
            nothing = np.zeros((1, *problem.grid.shape))
            boundary = self._equations.boundaries[name]
            around = with_ghosts(nothing, boundary, problem.grid.spacing, radii)[0]
            for (read, offset), weight in taps.items():
                if read == name:
                    window = zip(radii, offset, problem.grid.shape, strict=True)
                    total += weight * around[tuple(slice(r + o, r + o + n) for r, o, n in window)]
        return total if total.any() else None

    def equations(self) -> Equations:
        """The equations of N."""
        equations, results = self._equations, dict(self._equations.results)
        wanted_rest, wanted = {*results.values()}, set[str]()
        boundaries = dict(equations.boundaries)
        stages: list[Stage] = []
        # From the last stage back: what nobody reads any more is left out.
        for stage in reversed(equations.stages):
            formulas: dict[str, Node] = {}
            for name in stage.formulas:
                if name in wanted:
                    formulas[name] = self._full[name]
                if name in wanted_rest:
                    tree = self._rest[name]
                    for (read, offset), weight in self._linear[name].items():
                        if not self._is_nothing(read):
                            tree = _sum(tree, weight, tap(f"{read}.rest", offset))
                            wanted_rest.add(read)
                            boundaries[f"{read}.rest"] = boundaries[read]
                    formulas[name if name in self._of else f"{name}.rest"] = tree
            if formulas:
                made = Stage(formulas)
                wanted |= {*made.taps} & {*self._full}
                stages.insert(0, made)

        # What faces give to a state of 0 never changes: it is a coefficient.
        coefficients = {**(equations.coefficients or {})}
        coefficients |= {name: _of_box(values) for name, values in self._faces.items()}
        return replace(
            equations,
            stages=tuple(reading(stages, equations.fields[0], self._problem.grid.ndim)),
            boundaries=boundaries,
            coefficients=coefficients or None,
        )

    def _is_nothing(self, name: str) -> bool:
        """Whether the rest of a name is 0, at its points and beyond faces."""
        boundary = self._equations.boundaries.get(name)
        plain = boundary is None or boundary == homogeneous(boundary)
        inner = all(self._is_nothing(read) for read, _ in self._linear[name])
        return plain and inner and self._rest[name] == _ZERO


def reading(stages: Sequence[Stage], field: str, ndim: int) -> list[Stage]:
    """Return stages of which at least one reads something: if none does, 0 times a field is
    added.
    """
    if any(stage.taps for stage in stages):
        return [*stages]
    *before, last = stages
    nothing = _call("multiply", _ZERO, tap(field, (0,) * ndim))
    formulas = {name: _call("add", tree, nothing) for name, tree in last.formulas.items()}
    return [*before, Stage(formulas)]


def _sum(tree: Node, weight: float, read: Node) -> Node:
    return _add(tree, _multiply(Constant(weight), read)) or _ZERO


def even_taps(taps: Taps, ends: tuple[Ends | None, ...]) -> Taps:
    """Return the part of weights that is the same on both sides, along axes that are not
    periodic.
    """
    found = dict(taps)
    for axis, pair in enumerate(ends):
        if pair is None:
            continue
        mirrored: Taps = {}
        for (name, offset), weight in found.items():
            other = (*offset[:axis], -offset[axis], *offset[axis + 1 :])
            for key in ((name, offset), (name, other)):
                mirrored[key] = mirrored.get(key, 0.0) + weight / 2
        found = mirrored
    least = _UNEVEN * max(map(abs, taps.values()))
    return {key: weight for key, weight in found.items() if abs(weight) > least}


def _of_box(values: Numbers) -> Callable[[Ranges], Numbers]:
    return lambda box: values[tuple(slice(low, high) for low, high in box)]


def bends(tree: Node, names: Collection[str]) -> bool:
    """Whether a formula is anything but a sum of some inputs with factors of others.

    >>> u, k = Variable("u"), Variable("k")
    >>> [bends(Operation("multiply", (it, u)), {"u"}) for it in (k, u)]
    [False, True]
    """
    if isinstance(tree, Constant | Variable):
        return False
    of = tree.arguments if isinstance(tree, Operation) else tree.operands
    read = [any(getattr(part, "name", None) in names for part in walk(it)) for it in of]
    match tree:
        case Operation("add" | "subtract" | "positive" | "negative"):
            return any(bends(it, names) for it in of)
        case Operation("multiply"):
            return all(read) or any(bends(it, names) for it in of)
        case Operation("divide"):
            return read[1] or bends(of[0], names)
    return any(read)
