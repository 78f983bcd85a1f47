"""Formulas: what a checked expression is, and how NumPy computes it.

A formula is a tree of four kinds of node that knows only numbers, names and operations; it is data,
so that other parts can turn the same tree into source code. Everything is float64 with IEEE rules:
1/0 is infinite, sqrt(-1) is NaN, a comparison gives 0 or 1, and any number but 0 counts as true, so
that results can be mixed freely.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Value = Any  # a float64 array or scalar


@dataclass(frozen=True)
class Constant:
    """A number."""

    value: float


@dataclass(frozen=True)
class Variable:
    """A name whose value is given when the expression is computed."""

    name: str


@dataclass(frozen=True)
class Operation:
    """A function or sign applied to arguments; `name` is a key of `OPERATIONS`."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Comparison:
    """Operands with a sign between each two, a < b <= c; a sign is a key of `COMPARISONS`."""

    signs: tuple[str, ...]
    operands: tuple[Node, ...]


Node = Constant | Variable | Operation | Comparison


@dataclass(frozen=True)
class Expression:
    """A checked formula; call it with a value for each of its names.

    Attributes:
        text: what the person wrote.
        tree: what it means.
    """

    text: str
    tree: Node

    @property
    def names(self) -> frozenset[str]:
        """The names that occur in it, without pi and e."""
        return frozenset(node.name for node in walk(self.tree) if isinstance(node, Variable))

    def __call__(self, **values: npt.ArrayLike) -> npt.NDArray[np.float64] | float:
        """Compute it; arrays are broadcast against each other.

        Args:
            values: a number or an array per name; names that do not occur are allowed.

        Returns:
            A float64 array of the broadcast shape of the names that occur, or a float if all are
            numbers.
        """
        arrays = {name: np.asarray(values[name], dtype=np.float64) for name in self.names}
        # Both sides of a condition are computed, and one of them may be 0/0.
        with np.errstate(all="ignore"):
            result = np.asarray(evaluate(self.tree, arrays), dtype=np.float64)
        return result if result.ndim else float(result)


def evaluate(node: Node, values: Mapping[str, npt.NDArray[np.float64]]) -> Value:
    """The value of a tree: a float64 array or scalar; a part that occurs twice is computed once."""
    return _evaluate(node, values, {})


def _evaluate(
    node: Node, values: Mapping[str, npt.NDArray[np.float64]], known: dict[int, Value]
) -> Value:
    if id(node) in known:
        return known[id(node)]
    result: Value
    match node:
        case Constant(value):
            return np.float64(value)  # not a Python float, whose 1/0 and 9**999 raise
        case Variable(name):
            return values[name]
        case Operation(name, arguments):
            result = OPERATIONS[name](*(_evaluate(it, values, known) for it in arguments))
        case Comparison(signs, operands):
            sides = [_evaluate(operand, values, known) for operand in operands]
            result = _all(
                *(COMPARISONS[sign](sides[k], sides[k + 1]) for k, sign in enumerate(signs))
            )
    known[id(node)] = result
    return result


def walk(node: Node) -> Iterator[Node]:
    """Every part of a tree, those that are shared once."""
    parts: list[Node] = [node]
    seen: set[int] = set()
    while parts:
        part = parts.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, Operation):
            parts += part.arguments
        elif isinstance(part, Comparison):
            parts += part.operands


def _not(value: Value) -> Value:
    return np.logical_not(value).astype(np.float64)


def _all(*values: Value) -> Value:
    return functools.reduce(np.logical_and, values).astype(np.float64)


def _any(*values: Value) -> Value:
    return functools.reduce(np.logical_or, values).astype(np.float64)


def _where(condition: Value, yes: Value, no: Value) -> Value:
    return np.where(np.not_equal(condition, 0.0), yes, no)


def _smallest(*values: Value) -> Value:
    return functools.reduce(np.minimum, values)


def _largest(*values: Value) -> Value:
    return functools.reduce(np.maximum, values)


def _clip(value: Value, low: Value, high: Value) -> Value:
    return np.minimum(np.maximum(value, low), high)


def _hypot(*values: Value) -> Value:
    return functools.reduce(np.hypot, values)


def _erf(value: Value) -> Value:
    from scipy.special import erf  # a fifth of a second to import, for a function few use

    return erf(value)


COMPARISONS: dict[str, Callable[[Value, Value], Value]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
OPERATIONS: dict[str, Callable[..., Value]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "power": np.power,
    "negative": np.negative,
    "positive": np.positive,
    "not": _not,
    "and": _all,
    "or": _any,
    "where": _where,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "hypot": _hypot,
    "min": _smallest,
    "max": _largest,
    "clip": _clip,
    "erf": _erf,
    "heaviside": lambda value: np.heaviside(value, 0.5),
}
# Fewest and most arguments of each operation.
ARITY: dict[str, tuple[float, float]] = {name: (1, 1) for name in OPERATIONS} | {
    **{
        name: (2, 2)
        for name in (
            "add",
            "subtract",
            "multiply",
            "divide",
            "floor_divide",
            "remainder",
            "power",
            "atan2",
        )
    },
    **{name: (2, math.inf) for name in ("and", "or", "min", "max", "hypot")},
    **{name: (3, 3) for name in ("where", "clip")},
}
# What a person may call by name; the others are written with signs.
_SIGNS = {
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "remainder",
    "power",
    "negative",
    "positive",
}
FUNCTIONS = tuple(sorted({*OPERATIONS} - _SIGNS - {"not", "and", "or"}))
