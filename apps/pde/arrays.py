"""Equations of arrays: for `solve_pde`, which has no configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.pde.build import assemble_equations
from tetris_sim.apps.pde.complex import as_text
from tetris_sim.apps.pde.fluxes import Accuracy, Advection, Space
from tetris_sim.apps.pde.language import (
    Language,
    constraint_in,
    name_mistakes,
    read_constant,
    read_constants,
)
from tetris_sim.apps.pde.model import variable
from tetris_sim.apps.pde.parts import Parts
from tetris_sim.apps.pde.runge_kutta import PAIRS
from tetris_sim.apps.pde.schemes import Scheme, System, simplest_scheme, velocity_of
from tetris_sim.apps.pde.wholes import noise_in
from tetris_sim.apps.time_functions import substitute
from tetris_sim.config.sections.schema import SPLIT, TimeSection
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import Boundary
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.formula import (
    Comparison,
    Constant,
    ExpressionError,
    Node,
    Operation,
    Variable,
)
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem, as_array
from tetris_sim.model.slab import Ranges, Slab

# Tracing: a Python function of fields becomes formulas, by being called once with stand-ins.
#
# A stand-in knows arithmetic, comparisons and NumPy's functions of numbers; whatever a function
# does with it is written down. What depends on its value (if, while, float, an index, an array of
# numbers) cannot be written down and is refused.

_FUNCTIONS: dict[Any, str] = {
    np.add: "add",
    np.subtract: "subtract",
    np.multiply: "multiply",
    np.divide: "divide",
    np.floor_divide: "floor_divide",
    np.remainder: "remainder",
    np.power: "power",
    np.negative: "negative",
    np.positive: "positive",
    np.sin: "sin",
    np.cos: "cos",
    np.tan: "tan",
    np.arcsin: "asin",
    np.arccos: "acos",
    np.arctan: "atan",
    np.arctan2: "atan2",
    np.sinh: "sinh",
    np.cosh: "cosh",
    np.tanh: "tanh",
    np.exp: "exp",
    np.log: "log",
    np.log10: "log10",
    np.sqrt: "sqrt",
    np.absolute: "abs",
    np.sign: "sign",
    np.floor: "floor",
    np.ceil: "ceil",
    np.hypot: "hypot",
    np.minimum: "min",
    np.maximum: "max",
    np.heaviside: "heaviside",
    np.logical_and: "and",
    np.logical_or: "or",
    np.logical_not: "not",
    np.bitwise_and: "and",
    np.bitwise_or: "or",
    np.invert: "not",
}
_SIGNS = {
    np.less: "<",
    np.less_equal: "<=",
    np.greater: ">",
    np.greater_equal: ">=",
    np.equal: "==",
    np.not_equal: "!=",
}
_LIST = "arithmetic, comparisons, np.where, np.clip and NumPy's functions of single numbers"


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """A stand-in for a number at every point.

    Attributes:
        node: what has been made of it so far.
    """

    def __init__(self, node: Node) -> None:
        self.node = node

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        # np.add.reduce and out=... work on arrays, which a stand-in has none of.
        if method != "__call__" or more:
            _refuse(f"np.{ufunc.__name__} with {method if not more else ', '.join(more)}")

        # Functions that are written with others of the formula language.
        if ufunc is np.square:
            return self * self
        if ufunc is np.reciprocal:
            return 1.0 / self
        nodes = tuple(map(_node, inputs))
        if ufunc in _SIGNS:
            return Traced(Comparison((_SIGNS[ufunc],), nodes))
        if ufunc is np.heaviside and nodes[1] != Constant(0.5):
            _refuse("np.heaviside with another value at 0 than 0.5")
        if ufunc not in _FUNCTIONS:
            _refuse(f"np.{ufunc.__name__}")
        return Traced(Operation(_FUNCTIONS[ufunc], nodes[:1] if ufunc is np.heaviside else nodes))

    def __array_function__(self, function: Any, types: Any, inputs: Any, more: Any) -> Any:
        if function is np.where and len(inputs) == 3 and not more:
            return Traced(Operation("where", tuple(map(_node, inputs))))
        if function is np.clip and len(inputs) == 3 and not more:
            return Traced(Operation("clip", tuple(map(_node, inputs))))
        return _refuse(f"np.{function.__name__}")

    def __bool__(self) -> bool:
        _refuse("if, while, and, or, not and a < b < c of a field (write np.where, & and |)")

    def __float__(self) -> float:
        _refuse("float() and math functions of a field (write np.sin for math.sin)")

    def __int__(self) -> int:
        _refuse("int() of a field")

    def __index__(self) -> int:
        _refuse("a field as an index")

    def __getattr__(self, name: str) -> Any:
        # Python and NumPy ask for protocols by names with underscores, and go on without.
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f".{name} of a field")

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuse to be called."""
        _refuse("a call of a field (write * to multiply)")

    def __setitem__(self, index: Any, value: Any) -> None:
        _refuse("an assignment to points of a field (write np.where)")

    def __complex__(self) -> complex:
        _refuse("complex() of a field")

    def __round__(self, digits: int | None = None) -> Any:
        _refuse("round() of a field (write np.floor(u + 0.5))")

    def __getitem__(self, index: Any) -> Any:
        _refuse("an index of a field (neighbours are read by operators such as laplace)")

    def __len__(self) -> int:
        _refuse("len() of a field")

    def __iter__(self) -> Any:
        _refuse("a loop over a field")

    def __array__(self, *_: Any, **__: Any) -> Any:
        _refuse("np.array of a field")

    __hash__ = None  # type: ignore[assignment]


def _refuse(what: str) -> NoReturn:
    msg = f"{what} cannot be traced; a right-hand side is made of {_LIST}, and operators"
    raise ConfigError(msg)


def _node(value: Any) -> Node:
    if isinstance(value, Traced):
        return value.node
    if isinstance(value, np.ndarray) and value.ndim:
        _refuse(f"an array of shape {value.shape} (write it as a formula of x, y, z)")
    if isinstance(value, int | float | np.number | np.bool_) and np.isrealobj(value):
        return Constant(float(value))
    if isinstance(value, np.ndarray) and np.isrealobj(value):
        return Constant(float(value))
    _refuse(f"a value of type {type(value).__name__}")


def trace(function: Callable[..., Any], language: Language) -> list[Node]:
    """Trace a Python function and return its results as formulas.

    Args:
        function: its parameters are named after fields, constants, coordinates, t or operators;
            it is called once.
        language: which names there are.

    Raises:
        ConfigError: it has other parameters, or does what cannot be traced.
    """
    usable = language.operators
    # Arguments are chosen by the names of the parameters, in any order.
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        arity = usable.get(name)
        if name in language.names:
            given[name] = Traced(Variable(name))
        elif isinstance(arity, tuple):
            given[name] = _operator(name, arity, usable)
        elif parameter.default is inspect.Parameter.empty:
            said = arity if isinstance(arity, str) else "it is no field, constant or operator"
            msg = f"the function has a parameter {name!r}: {said}"
            raise ConfigError(msg)

    # One call: branches cannot depend on values, so what it writes down holds everywhere.
    result = function(**given)
    several = result if isinstance(result, tuple | list) else (result,)
    return [substitute(_node(it), language.named) for it in several]


# The other way around: formulas as text, so that a configuration may hold what a function says.


def as_formula(side: RightSide, language: Language) -> str:
    """A right-hand side as text: what a function of stand-ins says, or the text that it is.

    Raises:
        ConfigError: see `trace`.
    """
    return side if isinstance(side, str) else as_text(trace(side, language)[0])


def _operator(
    name: str, arity: tuple[float, float], usable: Collection[str]
) -> Callable[..., Traced]:
    least, most = arity

    def apply(*arguments: Any, **options: str) -> Traced:
        if not least <= len(arguments) <= most:
            wanted = f"{least:g}" if least == most else f"{least:g} to {most:g}"
            several = "s" if wanted != "1" else ""
            msg = f"{name} takes {wanted} argument{several}, not {len(arguments)}"
            raise ConfigError(msg)
        words = ", ".join(f"{key}={value}" for key, value in options.items())
        whole = f"{name}({words})" if options else name
        if whole not in usable:
            msg = f"{name} has no option {words}"
            raise ConfigError(msg)
        return Traced(Operation(whole, tuple(map(_node, arguments))))

    return apply


_EXPLICIT: tuple[Scheme, ...] = ("euler", "rk2", "ssprk3", "rk4", "leapfrog", "rkl2")
_STIFF = (*SPLIT, "implicit")  # whose steps no stability limits
SCHEMES = (*_EXPLICIT, *_STIFF)
RightSide = str | Callable[..., Any]


def equations_problem(
    state: Field,
    names: Sequence[str],
    equations: Mapping[str, RightSide] | Callable[..., Any],
    *,
    constants: Mapping[str, float | str | npt.NDArray[Any]],
    grid: Grid,
    boundaries: Mapping[str, Boundary],
    dt: float | None,
    steps: int,
    scheme: str | None,
    accuracy: Accuracy,
    advection: Advection,
    second: Mapping[str, RightSide] | None = None,
    tolerance: float | None = None,
    grows: bool = False,
) -> Problem:
    """The problem of fields as arrays.

    Args:
        state: of the fields, (n_fields, n0, ...); each velocity after its field.
        names: of the fields, velocities among them.
        equations: du/dt by field, or one function that gives all.
        constants: numbers, formulas or arrays of the shape of the fields by name.
        grid: the points.
        boundaries: by field.
        dt: the time step [s]; None for 0.9 of the largest stable one, with a tolerance for 1.
        steps: how many.
        scheme: of `SCHEMES`; None for the simplest that fits.
        accuracy: order of the operators.
        advection: see `PdeModel`.
        second: d2u/dt2 of fields that have velocities instead.
        tolerance: of the errors of substeps, for adaptive steps.
        grows: whether dt may be larger than the largest stable step.

    Raises:
        ConfigError: something does not fit.
        UnstableStepError: dt is larger than the largest stable step, and may not be.
    """
    # The same path as a configuration takes: formulas, scheme, stages, problem; only names and
    # shapes come from arrays.
    second = second or {}
    language = language_of(names, constants, grid.ndim)
    # A field of second order is two of first order; its velocity has no equation of its own.
    velocities = {velocity_of(name) for name in second}
    first = [name for name in names if name not in {*second, *velocities}]
    given = {} if callable(equations) else _constraints(equations)
    moved = equations if callable(equations) else {**equations, **given}
    trees = _trees(first, moved, language) if first or not second else {}
    elliptic = {name: trees.pop(name) for name in given}
    seconds = _trees([*second], second, language) if second else {}
    if scheme is None:
        both = (trees.values(), seconds.values())
        noisy = any(noise_in(it) for it in (*trees.values(), *seconds.values()))
        scheme = "euler" if noisy else simplest_scheme(*both, adaptive=tolerance is not None)
    _check_scheme(scheme, tolerance, alone=len(names) == 2 * len(second))
    system = System(
        trees,
        seconds,
        language.numbers,
        Space(grid.spacing, accuracy, advection),
        arrays={name: _of_box(name, constants[name], grid) for name in language.arrays},
        order=tuple(names),
        elliptic=elliptic,
    )
    system = system.with_wholes(grid).with_faces(boundaries, grid)

    def initial(slab: Slab) -> Field:
        return state[(slice(None), *(slice(*span) for span in slab.spans))]

    parts = Parts(
        grid=grid,
        system=system,
        scheme=scheme if scheme in _EXPLICIT else "euler",
        boundaries=boundaries,
        initial=initial,
        variables=tuple(variable(name, "1", name, grid.ndim) for name in system.right_sides),
        dtype=np.dtype(state.dtype),
    )
    taken: Any = dt if dt is not None else "auto" if tolerance is None else 1.0
    if scheme not in _STIFF:
        time = TimeSection(dt=taken, steps=steps, tolerance=tolerance)
        return assemble_equations(parts, time, grows=grows)
    if taken == "auto":
        msg = f"{scheme} has no largest stable step; give dt, or tolerance"
        raise ConfigError(msg)
    solved: Any = scheme
    time = TimeSection(dt=taken, steps=steps, tolerance=tolerance, scheme=solved)
    return assemble_equations(parts, time, adaptive=tolerance is not None)


def _constraints(equations: Mapping[str, RightSide]) -> dict[str, str]:
    """F of those that are 0 = F, by field."""
    found = {k: constraint_in(it) for k, it in equations.items() if isinstance(it, str)}
    return {name: text for name, text in found.items() if text is not None}


def _check_scheme(scheme: str, tolerance: float | None, *, alone: bool) -> None:
    """Raise for a scheme that there is not, or that does not fit.

    Args:
        scheme: its name.
        tolerance: of errors.
        alone: whether all fields have equations of second order.
    """
    if scheme not in SCHEMES:
        msg = f"scheme is {scheme!r}; {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]} is wanted"
        raise ConfigError(msg)
    if scheme == "leapfrog" and not alone:
        msg = "leapfrog is for fields with second_order only; take rk4"
        raise ConfigError(msg)
    if tolerance is not None and scheme not in (*PAIRS, *_STIFF):
        msg = f"{scheme} has no estimate of its error, so tolerance means nothing; take rk4"
        raise ConfigError(msg)
    if tolerance is not None and not 0 < tolerance < 1:
        msg = f"tolerance is {tolerance}; a number between 0 and 1 is wanted"
        raise ConfigError(msg)


def _of_box(name: str, values: npt.ArrayLike, grid: Grid) -> Callable[[Ranges], Numbers]:
    """An array of a number at every point as a function of a box; not one that changes later."""
    given = as_array(f"constants, {name}", values)
    if given.shape != grid.shape or given.dtype.kind not in "fiub":
        msg = (
            f"constants, {name}: an array of shape {given.shape} of {given.dtype} was found; real "
            f"numbers of the shape of the fields, {grid.shape}, are wanted"
        )
        raise ConfigError(msg)
    numbers = given.astype(np.float64)
    if not np.isfinite(numbers).all():
        msg = f"constants, {name}: every number of an array must be finite"
        raise ConfigError(msg)
    return lambda box: numbers[tuple(slice(*span) for span in box)]


def language_of(
    names: Sequence[str], constants: Mapping[str, float | str | npt.NDArray[Any]], ndim: int
) -> Language:
    """Names and functions that formulas of these fields and constants may use.

    Raises:
        ConfigError: a name or a constant cannot be used; all of them at once.
    """
    wrong = [
        told
        for kind, it in (("field", names), ("constant", constants))
        for _, told in name_mistakes(it, ndim, kind)
    ]
    wrong += [f"{name} is a field and a constant" for name in constants.keys() & {*names}]
    try:
        given: dict[str, Any] = {
            name: value if np.ndim(value) else read_constant(value)
            for name, value in constants.items()
        }
    except ValueError as error:
        msg = f"constants: {error}"
        raise ConfigError(msg) from error

    # All that is wrong with names and constants is collected and said at once.
    language, mistakes = read_constants(given, tuple(names), ndim)
    wrong += [f"constants, {path[-1]}: {told}" for path, told, _ in mistakes]
    if wrong:
        raise ConfigError("\n".join(wrong))
    return language


def _trees(
    names: Sequence[str],
    equations: Mapping[str, RightSide] | Callable[..., Any],
    language: Language,
) -> dict[str, Node]:
    """The right-hand sides of all fields, in their order."""
    if callable(equations):
        found = trace(equations, language)
        if len(found) != len(names):
            msg = f"the function gives {len(found)} right-hand sides for {len(names)} fields"
            raise ConfigError(msg)
        return dict(zip(names, found, strict=True))
    if {*equations} != {*names}:
        msg = f"equations are given for {sorted(equations)}, and fields are {sorted(names)}"
        raise ConfigError(msg)

    trees, wrong = {}, []
    for name in names:
        side = equations[name]
        try:
            trees[name] = language.read(side) if isinstance(side, str) else trace(side, language)[0]
        except ExpressionError as error:
            wrong.append(f"equations, {name}: {error}")
    if wrong:
        raise ConfigError("\n".join(wrong))
    return trees


def same_shape(fields: Mapping[str, npt.ArrayLike]) -> dict[str, npt.NDArray[Any]]:
    """The fields as arrays, all of one shape.

    Raises:
        ConfigError: they are not, or there is none.
    """
    arrays = {name: as_array(name, values) for name, values in fields.items()}
    shapes = {name: it.shape for name, it in arrays.items()}
    if len({*shapes.values()}) != 1:
        msg = f"fields are arrays of one shape, got {shapes}"
        raise ConfigError(msg)
    return arrays
