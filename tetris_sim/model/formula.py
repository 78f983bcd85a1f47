"""Formulas: checked expressions, their trees, their evaluation with NumPy, and the parser.

A formula is a tree of four kinds of node that knows only numbers, names and operations; it is data,
so that other modules can turn the same tree into source code (`program.py`). Everything is float64
with IEEE rules: 1/0 is infinite, sqrt(-1) is NaN, a comparison gives 0 or 1, and any number but 0
counts as true, so results can be mixed freely. `compile_expression` is the way in for text from a
configuration.
"""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import keyword
import math
import re
import threading
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tetris_sim.support.wording import listed, suggestion

Value = Any  # a float64 array or scalar


@dataclass(frozen=True)
class Constant:
    """A literal number."""

    value: float


@dataclass(frozen=True)
class Variable:
    """A name whose value is supplied at evaluation."""

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
        text: as written by the user.
        tree: its meaning.
    """

    text: str
    tree: Node

    @property
    def names(self) -> frozenset[str]:
        """Names of all variables in the formula, without pi and e."""
        return frozenset(node.name for node in walk(self.tree) if isinstance(node, Variable))

    def __call__(self, **values: npt.ArrayLike) -> npt.NDArray[np.float64] | float:
        """Evaluate the formula; arrays are broadcast against each other.

        Args:
            values: a number or an array per name; names that do not occur are allowed.

        Returns:
            A float64 array of the broadcast shape, or a float if all are numbers.
        """
        arrays = {name: np.asarray(values[name], dtype=np.float64) for name in self.names}
        # Both sides of a condition are computed, and one of them may be 0/0.
        with np.errstate(all="ignore"):
            result = np.asarray(evaluate(self.tree, arrays), dtype=np.float64)
        return result if result.ndim else float(result)


def evaluate(node: Node, values: Mapping[str, npt.NDArray[np.float64]]) -> Value:
    """Evaluate a tree to a float64 array or scalar; a shared part is computed once."""
    return evaluate_each((node,), values)[0]


def evaluate_each(nodes: Iterable[Node], values: Mapping[str, Value]) -> list[Value]:
    """Evaluate several trees; what they share is computed once."""
    trees = tuple(nodes)
    # By identity, since equality would compare whole trees; kept ones keep theirs.
    key = tuple(map(id, trees))
    kept = _TAPES.get(key)
    if kept is None:
        if len(_TAPES) >= _MOST_TAPES:
            _TAPES.clear()
        kept = _TAPES[key] = trees, _Tape(trees)
    return kept[1].run(values)


class _Tape:
    """Trees as calls of NumPy in one order: followed once, evaluated many times. Equal calls are
    made once, and a result takes the place of what is not used any more: few arrays live at a time.
    """

    def __init__(self, trees: tuple[Node, ...]) -> None:
        self._seen: dict[int, int] = {}  # by identity of a part
        self._made: dict[tuple[Any, ...], int] = {}  # a function with the numbers of its arguments
        results = [self._visit(tree) for tree in trees]
        given = [(k, it) for (it, *_), k in self._made.items() if isinstance(it, str | Variable)]
        # Not Python's floats, whose 1/0 and 9**999 raise, nor arrays without axes, which CuPy
        # refuses beside its own.
        self._constants = [np.float64(float.fromhex(it)) for _, it in given if isinstance(it, str)]
        self._names = [it.name for _, it in given if isinstance(it, Variable)]

        given.sort(key=lambda it: isinstance(it[1], Variable))
        places = {number: place for place, (number, _) in enumerate(given)}
        calls = [(*key, number) for key, number in self._made.items() if number not in places]
        last = {use: number for _, *uses, number in calls for use in uses}
        last |= dict.fromkeys([*places, *results], -1)
        free: list[int] = []
        count, self._calls = len(places), list[tuple[Callable[..., Value], list[int], int]]()
        for function, *uses, number in calls:
            free += {places[use] for use in uses if last[use] == number}
            count += not free
            places[number], taken = (free or [count - 1])[-1], [places[use] for use in uses]
            del free[-1:]
            self._calls.append((function, taken, places[number]))
        self._empty, self._results = [None] * (count - len(given)), [places[it] for it in results]

    def _visit(self, node: Node) -> int:
        if id(node) not in self._seen:
            key: tuple[Any, ...]
            match node:
                case Constant(value):
                    key = (float(value).hex(),)  # tells 0.0 from -0.0
                case Variable():
                    key = (node,)
                # As kernels do, and in a fiftieth of the time that NumPy takes below 0.
                case Operation("power", (base, Constant(n))) if n in range(2, 65):
                    key = self._product(self._visit(base), int(n))
                # Arguments are always evaluated, both branches of `where` too: arrays need both.
                case Operation(name, arguments):
                    key = (OPERATIONS[name], *map(self._visit, arguments))
                case Comparison(signs, operands):
                    sides = itertools.pairwise([self._visit(it) for it in operands])
                    keys = [(COMPARISONS[it], *pair) for it, pair in zip(signs, sides, strict=True)]
                    key = (_all, *map(self._put, keys))
            self._seen[id(node)] = self._put(key)
        return self._seen[id(node)]

    def _product(self, a: int, n: int) -> tuple[Any, ...]:
        half = a if n < 4 else self._put(self._product(a, n // 2))
        square = np.multiply, half, half
        return (np.multiply, self._put(square), a) if n % 2 else square

    def _put(self, key: tuple[Any, ...]) -> int:
        return self._made.setdefault(key, len(self._made))

    def run(self, values: Mapping[str, Value]) -> list[Value]:
        """The values of the trees, of those of their variables."""
        held: list[Value] = [*self._constants, *(values[it] for it in self._names), *self._empty]
        for function, taken, place in self._calls:
            held[place] = function(*[held[it] for it in taken])
        return [held[it] for it in self._results]


_TAPES: dict[tuple[int, ...], tuple[tuple[Node, ...], _Tape]] = {}
_MOST_TAPES = 1024


def walk(node: Node) -> Iterator[Node]:
    """Yield every part of a tree, shared parts once, in no particular order."""
    parts: list[Node] = [node]
    seen: set[int] = set()
    while parts:
        part = parts.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, Operation | Comparison):
            parts += part.arguments if isinstance(part, Operation) else part.operands


# Logical operations return float64 0 or 1, so that results can enter arithmetic.
def _all(*values: Value) -> Value:
    return functools.reduce(np.logical_and, values).astype(np.float64)


def _erf(value: Value) -> Value:
    if not isinstance(value, np.ndarray | np.generic | float):  # an array of a GPU
        return importlib.import_module("cupyx.scipy.special").erf(value)
    from scipy.special import erf  # a fifth of a second to import, for a function few use

    # SciPy has none for wider types; there erf is its Taylor series, whose terms are all of one
    # sign (Abramowitz and Stegun, 7.1.6), and 1 beyond 7, to the last of 64 bits.
    if np.asarray(value).dtype != np.longdouble or np.longdouble is np.float64:
        return erf(value)
    near = np.clip(value, -7, 7)
    term = total = near * np.exp(-near * near) * 2 / np.sqrt(np.arccos(np.longdouble(-1)))
    for n in range(1, 220):
        term = term * (2 * near * near) / (2 * n + 1)
        total = total + term
    return total


# The whitelist: a tree may hold these operations and no others, so evaluation can do nothing else.
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
    "not": lambda value: np.logical_not(value).astype(np.float64),
    "and": _all,
    "or": lambda *values: functools.reduce(np.logical_or, values).astype(np.float64),
    # NumPy makes an array without axes of numbers, which CuPy refuses; [()] makes it a number.
    "where": lambda truth, yes, no: cast(Any, np.where(np.not_equal(truth, 0.0), yes, no))[()],
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
    "hypot": lambda *values: functools.reduce(np.hypot, values),
    "min": lambda *values: functools.reduce(np.minimum, values),
    "max": lambda *values: functools.reduce(np.maximum, values),
    "clip": lambda value, low, high: np.minimum(np.maximum(value, low), high),
    "erf": _erf,
    "heaviside": lambda value: np.heaviside(value, 0.5),
}
# Operations that are written with signs.
_PAIRED = ("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power")
_SIGNS = {*_PAIRED, "negative", "positive"}
# Fewest and most arguments of each operation.
# Signs take exactly one or two; and, or, min, max and hypot are reduced over two or more.
ARITY: dict[str, tuple[float, float]] = {name: (1, 1) for name in OPERATIONS} | {
    **{name: (2, 2) for name in (*_PAIRED, "atan2")},
    **{name: (2, math.inf) for name in ("and", "or", "min", "max", "hypot")},
    **{name: (3, 3) for name in ("where", "clip")},
}
# Functions that the user may call by name; all other operations are written with signs or words.
FUNCTIONS = tuple(sorted({*OPERATIONS} - _SIGNS - {"not", "and", "or"}))
# One over another function, as which trees have them.
RECIPROCALS = dict(sech="cosh", csch="sinh", coth="tanh", sec="cos", csc="sin", cot="tan")


# Expressions: from the text of a configuration to a formula, and to nothing else. Every node of the
# tree that `ast.parse` makes is checked against a whitelist; there is no `eval`, and no attribute.

_PARSING = threading.Lock()  # CPython 3.11 counts the depth of trees for all threads together
# Limits that keep parsing and evaluation cheap, whatever a configuration holds.
LONGEST = 2000  # characters
# Nested operations; far from the interpreter's own limit, so that evaluating cannot fail.
DEEPEST = 100
_TOO_DEEP = (
    f"the expression is nested too deeply; at most {DEEPEST} operations may be inside one another"
)
CONSTANTS = {"pi": math.pi, "e": math.e}
# Names that may be called besides functions: fewest and most arguments, or the reason why a name
# cannot be called here.
Operators = Mapping[str, tuple[float, float] | str]
_NONE: Operators = {}

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "power",
}
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "negative", ast.UAdd: "positive", ast.Not: "not"}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
# A named argument with a colon, as YAML writes it.
_NAMED = re.compile(r"(, *[a-z]+ *):(?!=)")
# Names of forbidden constructs in error messages.
_FORBIDDEN: dict[type[ast.AST], str] = {
    ast.Attribute: "a dot",
    ast.Subscript: "an index in brackets",
    ast.Lambda: "lambda",
    ast.NamedExpr: "':='",
    ast.Starred: "'*' in front of an argument",
    ast.List: "a list",
    ast.Tuple: "a comma outside a function call",
    **dict.fromkeys((ast.Dict, ast.Set), "'{'"),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), "a comprehension"),
    ast.JoinedStr: "text in quotes",
    ast.Await: "await",
}
UNKNOWN_NAME = "unknown name"  # in the message about one
_NO_POWER = "'^' is not a power in expressions; write ** instead, as in x**2"


class ExpressionError(ValueError):
    """A formula that cannot be used.

    Attributes:
        message: the problem found, and what is allowed.
        column: position in the text, counted from 1.
    """

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"{message} (character {column} of the expression)")
        self.message = message
        self.column = column


def compile_expression(
    text: str, names: Collection[str], operators: Operators = _NONE
) -> Expression:
    """Parse and check a formula.

    >>> compile_expression("100*exp(-x**2) if x > 0 else T0", ["x", "T0"])(x=0.0, T0=20.0)
    20.0

    Args:
        text: the formula.
        names: the variables it may use; pi and e are always defined.
        operators: callable names besides functions; they become operations of the tree, which the
            caller must replace before evaluation.

    Raises:
        ExpressionError: the text is no formula, or uses something that is not allowed.
    """
    return Expression(text=text, tree=_Reader(text, names, operators).read())


def usable_name(name: str) -> str | None:
    """Say why `name` cannot be the name of a variable or constant, as a sentence; None if it
    can.
    """
    # Python's parser normalizes identifiers to NFKC, so any other spelling would never match.
    if (
        not name.isidentifier()
        or keyword.iskeyword(name)
        or unicodedata.normalize("NFKC", name) != name
    ):
        return (
            f"{name!r} is not a name; names are letters, digits and _, and do not begin with a "
            "digit"
        )
    if name in FUNCTIONS or name in CONSTANTS:
        return f"{name!r} already means something in expressions; choose another name"
    return None


class _Reader:
    """Converts text to a tree, and maps every part back to its column for error messages."""

    def __init__(self, text: str, names: Collection[str], operators: Operators) -> None:
        # Any white space counts as one blank, so a line break in YAML means nothing and columns
        # stay as they are.
        self.text = "".join(" " if character.isspace() else character for character in text)
        # `mean: harmonic` means the same as `mean=harmonic`.
        self.text = _NAMED.sub(r"\1=", self.text)
        self.names = frozenset(names)
        own = {name: ARITY[name] for name in FUNCTIONS} | dict.fromkeys(RECIPROCALS, (1, 1))
        self.callable: Operators = {**own, **operators}

    def read(self) -> Node:
        """Return the tree of the whole text."""
        if len(self.text) > LONGEST:
            msg = f"the expression has {len(self.text)} characters; at most {LONGEST} are allowed"
            raise ExpressionError(msg, LONGEST + 1)
        if not self.text.strip():
            msg = "the expression is empty"
            raise ExpressionError(msg, 1)

        # Python would silently take the rest of the line for a comment.
        if "#" in self.text:
            msg = "'#' is not allowed in an expression"
            raise ExpressionError(msg, self.text.index("#") + 1)
        self.whole = self.parse()
        return self.convert(self.whole, depth=1)

    def parse(self) -> ast.expr:
        """Return Python's syntax tree of the text, its errors turned into `ExpressionError`."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # "1if x else 2" is ugly, but clear
                warnings.simplefilter("ignore", DeprecationWarning)
                with _PARSING:
                    return ast.parse(self.text.lstrip(), mode="eval").body
        except SyntaxError as error:
            # Columns refer to the text as the user wrote it, so stripped leading blanks are added
            # back.
            if not error.offset:  # the parser was still reading when the text ended
                msg = "this is not a formula: something is missing at its end"
                raise ExpressionError(msg, len(self.text)) from None

            column = min(error.offset + len(self.text) - len(self.text.lstrip()), len(self.text))
            why = "" if error.msg == "invalid syntax" else f" ({error.msg})"
            msg = f"this is not a formula{why}"
            raise ExpressionError(msg, column) from None
        except (RecursionError, MemoryError):  # the parser's own words for "too deep"
            raise ExpressionError(_TOO_DEEP, 1) from None
        except ValueError:  # a null character, half of a surrogate pair, more than 4300 digits
            msg = "the expression holds characters or numbers that cannot be read"
            raise ExpressionError(msg, 1) from None

    def column(self, node: ast.expr) -> int:
        """Return the column of `node`, from 1; Python's own offset counts UTF-8 bytes."""
        stripped = self.text.lstrip()
        characters = len(stripped.encode()[: node.col_offset].decode())
        return len(self.text) - len(stripped) + characters + 1

    def convert(self, node: ast.expr, depth: int) -> Node:
        """Convert one part to a tree, if all of it is allowed."""
        # The depth is limited here, so that the recursive evaluation later cannot fail.
        if depth > DEEPEST:
            raise ExpressionError(_TOO_DEEP, self.column(node))

        below = depth + 1
        match node:
            case ast.Constant():
                return self.number(node)
            case ast.Name():
                return self.name(node)
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
                return Operation(
                    _BINARY[type(sign)], (self.convert(left, below), self.convert(right, below))
                )
            case ast.UnaryOp(op=mark, operand=operand) if type(mark) in _UNARY:
                return Operation(_UNARY[type(mark)], (self.convert(operand, below),))
            case ast.BoolOp(op=word, values=parts):
                name = "and" if isinstance(word, ast.And) else "or"
                return Operation(name, tuple(self.convert(part, below) for part in parts))
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return Operation(
                    "where", tuple(self.convert(part, below) for part in (test, body, otherwise))
                )
            case ast.Compare():
                return self.comparison(node, below)
            case ast.Call():
                return self.call(node, below)

        # Whatever no case above matched is forbidden: new syntax of Python is refused by default.
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
            raise ExpressionError(_NO_POWER, self.column(node.right) - 1)
        what = _FORBIDDEN.get(type(node), "this operation")
        msg = (
            f"{what} is not allowed; an expression is made of numbers, names, arithmetic, "
            "comparisons and functions"
        )
        raise ExpressionError(msg, self.column(node))

    def number(self, node: ast.Constant) -> Node:
        """Convert a number; every number becomes a float, so that 9**9**9 costs nothing."""
        if isinstance(node.value, complex) and "1j" in self.callable:
            return Operation("1j", (Constant(node.value.imag),))
        # bool is a subclass of int, but True is not a number here.
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            what = "text in quotes" if isinstance(node.value, str | bytes) else repr(node.value)
            msg = f"{what} is not a number; expressions know only real numbers"
            raise ExpressionError(msg, self.column(node))
        try:
            value = float(node.value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            msg = "this number is too large; the largest is about 1.8e308"
            raise ExpressionError(msg, self.column(node))
        return Constant(value)

    def name(self, node: ast.Name) -> Node:
        """Convert a name to a variable or a constant, if it is known."""
        if node.id in self.names:
            return Variable(node.id)
        if node.id in CONSTANTS:
            return Constant(CONSTANTS[node.id])

        known = sorted({*self.names, *CONSTANTS})
        msg = f"{node.id} is a function; write {node.id}(...)"
        if node.id not in self.callable:
            names = {it.id for it in ast.walk(self.whole) if isinstance(it, ast.Name)}
            lost = sorted(names - {*known, *self.callable})
            words = [repr(it) + suggestion(it, [*known, *self.callable]) for it in lost]
            plural, end = "s" * (len(lost) > 1), f"known are {', '.join(known)}"
            msg = f"{UNKNOWN_NAME}{plural} {listed(words, 'and')}; {end}"
        raise ExpressionError(msg, self.column(node))

    def comparison(self, node: ast.Compare, depth: int) -> Node:
        """Convert a comparison such as a < b, or a chain such as a < b < c."""
        if not all(type(sign) in _COMPARE for sign in node.ops):
            msg = "'is' and 'in' are not allowed; comparisons are <, <=, >, >=, == and !="
            raise ExpressionError(msg, self.column(node))
        signs = tuple(_COMPARE[type(sign)] for sign in node.ops)
        return Comparison(
            signs, tuple(self.convert(part, depth) for part in (node.left, *node.comparators))
        )

    def call(self, node: ast.Call, depth: int) -> Node:
        """Convert a call of a listed function, after checking its number of arguments."""
        if not isinstance(node.func, ast.Name):
            msg = "only a function's name can stand before '('; write * to multiply"
            raise ExpressionError(msg, self.column(node))

        name, column = node.func.id, self.column(node)
        arity = self.callable.get(name)
        if arity is None:
            if name in self.names or name in CONSTANTS:
                msg = f"{name} is not a function; write * to multiply"
            else:
                # Operators named after catalogue stencils, which have digits, are too many to list.
                known = [
                    it
                    for it, arity in self.callable.items()
                    if it in FUNCTIONS
                    or not (isinstance(arity, str) or any(c.isdigit() or c == "(" for c in it))
                ]
                msg = (
                    f"unknown function {name!r}{suggestion(name, self.callable)}; known are "
                    f"{', '.join(known)}"
                )
            raise ExpressionError(msg, column)

        # A known operator that is not available in this place carries its reason as text.
        if isinstance(arity, str):
            raise ExpressionError(arity, column)

        if node.keywords:
            name = self.with_options(name, node.keywords, column)

        fewest, most = arity
        if not fewest <= len(node.args) <= most:
            wanted = str(fewest) if fewest == most else f"{fewest} or more"
            msg = f"{name} takes {wanted} argument{'s' * (wanted != '1')}, not {len(node.args)}"
            raise ExpressionError(msg, column)

        arguments = tuple(self.convert(argument, depth) for argument in node.args)
        if name in RECIPROCALS and name not in OPERATIONS:
            return Operation("divide", (Constant(1.0), Operation(RECIPROCALS[name], arguments)))
        return Operation(name, arguments)

    def with_options(self, name: str, given: list[ast.keyword], column: int) -> str:
        """Return the name of an operator with named arguments, as it stands in `callable`."""
        known = [it for it in self.callable if it.startswith(f"{name}(")]
        words = [
            f"{it.arg}={it.value.id}" if isinstance(it.value, ast.Name) else f"{it.arg}=..."
            for it in given
        ]
        whole = f"{name}({', '.join(words)})"
        if whole in known:
            return whole
        options = " or ".join(it.removeprefix(f"{name}(").removesuffix(")") for it in known)
        msg = f"{name} takes no named arguments" + (f" but {options}" if known else "")
        raise ExpressionError(msg, column)
