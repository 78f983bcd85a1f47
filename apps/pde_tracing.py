"""Tracing: a Python function of fields becomes formulas, by being called once with stand-ins.

A stand-in knows arithmetic, comparisons and NumPy's functions of numbers; whatever a function does
with it is written down. What depends on its value (if, while, float, an index, an array of numbers)
cannot be written down and is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tetris_sim.apps.courses import substitute
from tetris_sim.apps.pde_language import Language
from tetris_sim.apps.pde_operators import operators
from tetris_sim.errors import ConfigError
from tetris_sim.model.formula import Comparison, Constant, Node, Operation, Variable

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
        if method != "__call__" or more:
            _refuse(f"np.{ufunc.__name__} with {method if not more else ', '.join(more)}")
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
    """What a function returns, as formulas.

    Args:
        function: its parameters are named after fields, constants, coordinates, t or operators;
            it is called once.
        language: which names there are.

    Raises:
        ConfigError: it has other parameters, or does what cannot be traced.
    """
    usable = operators(language.ndim)
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        arity = usable.get(name)
        if name in (*language.fields, *language.numbers, *language.named, *language.places):
            given[name] = Traced(Variable(name))
        elif isinstance(arity, tuple):
            given[name] = _operator(name, int(arity[0]))
        elif parameter.default is inspect.Parameter.empty:
            said = arity if isinstance(arity, str) else "it is no field, constant or operator"
            msg = f"the function has a parameter {name!r}: {said}"
            raise ConfigError(msg)

    result = function(**given)
    several = result if isinstance(result, tuple | list) else (result,)
    return [substitute(_node(it), language.named) for it in several]


def _operator(name: str, n: int) -> Callable[..., Traced]:
    def apply(*arguments: Any) -> Traced:
        if len(arguments) != n:
            msg = f"{name} takes {n} argument{'s' if n > 1 else ''}, not {len(arguments)}"
            raise ConfigError(msg)
        return Traced(Operation(name, tuple(map(_node, arguments))))

    return apply
