"""Expressions: how a formula in a configuration becomes what can be computed, and nothing else.

The text is parsed by `ast.parse` and every node is held against a list of what is allowed; the
result is a tree that knows only numbers, names and operations (`formula.py`). There is no `eval`
and no attribute access.
"""

from __future__ import annotations

import ast
import keyword
import math
import threading
import unicodedata
import warnings
from collections.abc import Collection, Mapping

from tetris_sim.formula import (
    ARITY,
    FUNCTIONS,
    Comparison,
    Constant,
    Expression,
    Node,
    Operation,
    Variable,
)
from tetris_sim.support.wording import suggestion

# CPython 3.11 counts the depth of trees for all threads together.
_PARSING = threading.Lock()
LONGEST = 2000  # characters
# Nested operations; far from the interpreter's own limit, so that evaluating cannot fail.
DEEPEST = 100
CONSTANTS = {"pi": math.pi, "e": math.e}
# What may be called besides functions: fewest and most arguments, or why it cannot be called here.
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
# How things that are not allowed are called in messages.
_FORBIDDEN: dict[type[ast.AST], str] = {
    ast.Attribute: "a dot",
    ast.Subscript: "an index in brackets",
    ast.Lambda: "lambda",
    ast.NamedExpr: "':='",
    ast.Starred: "'*' in front of an argument",
    ast.List: "a list",
    ast.Tuple: "a comma outside a function call",
    ast.Dict: "'{'",
    ast.Set: "'{'",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.JoinedStr: "text in quotes",
    ast.Await: "await",
}
_NO_POWER = "'^' is not a power in expressions; write ** instead, as in x**2"


class ExpressionError(ValueError):
    """A formula that cannot be used.

    Attributes:
        message: what was found, what is allowed.
        column: where in the text, counted from 1.
    """

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"{message} (character {column} of the expression)")
        self.message = message
        self.column = column


def compile_expression(
    text: str, names: Collection[str], operators: Operators = _NONE
) -> Expression:
    """Check a formula.

    >>> compile_expression("100*exp(-x**2) if x > 0 else T0", ["x", "T0"])(x=0.0, T0=20.0)
    20.0

    Args:
        text: the formula.
        names: the variables it may use; pi and e are always there.
        operators: what it may call besides functions; they become operations of the tree, and
            whoever allows them replaces them.

    Raises:
        ExpressionError: it is no formula, or it uses something that is not allowed.
    """
    return Expression(text=text, tree=_Reader(text, names, operators).read())


def usable_name(name: str) -> str | None:
    """Why `name` cannot be the name of a variable or constant, as a sentence; None if it can."""
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
    """Turns the parsed text into a tree, and knows where in the text each part stands."""

    def __init__(self, text: str, names: Collection[str], operators: Operators) -> None:
        # White space of any kind is a blank, so that a line break in YAML means nothing and columns
        # stay what they are.
        self.text = "".join(" " if character.isspace() else character for character in text)
        self.names = frozenset(names)
        self.callable = {**{name: ARITY[name] for name in FUNCTIONS}, **operators}

    def read(self) -> Node:
        """The tree of the whole text."""
        if len(self.text) > LONGEST:
            msg = f"the expression has {len(self.text)} characters; at most {LONGEST} are allowed"
            raise ExpressionError(msg, LONGEST + 1)
        if not self.text.strip():
            msg = "the expression is empty"
            raise ExpressionError(msg, 1)
        if "#" in self.text:
            msg = "'#' is not allowed in an expression"
            raise ExpressionError(msg, self.text.index("#") + 1)
        return self.convert(self.parse(), depth=1)

    def parse(self) -> ast.expr:
        """The syntax tree of the text as Python sees it."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # "1if x else 2" is ugly, but clear
                warnings.simplefilter("ignore", DeprecationWarning)
                with _PARSING:
                    return ast.parse(self.text.lstrip(), mode="eval").body
        except SyntaxError as error:
            if not error.offset:  # the parser was still reading when the text ended
                msg = "this is not a formula: something is missing at its end"
                raise ExpressionError(msg, len(self.text)) from None
            column = min(error.offset + len(self.text) - len(self.text.lstrip()), len(self.text))
            msg = "this is not a formula" + (
                f" ({error.msg})" if error.msg != "invalid syntax" else ""
            )
            raise ExpressionError(msg, column) from None
        except (RecursionError, MemoryError):  # the parser's own words for "too deep"
            msg = (
                f"the expression is nested too deeply; at most {DEEPEST} operations may be inside "
                "one another"
            )
            raise ExpressionError(msg, 1) from None
        except ValueError:  # a null character, half of a surrogate pair, more than 4300 digits
            msg = "the expression holds characters or numbers that cannot be read"
            raise ExpressionError(msg, 1) from None

    def column(self, node: ast.expr) -> int:
        """Where `node` begins, counted from 1; Python counts bytes of UTF-8."""
        stripped = self.text.lstrip()
        characters = len(stripped.encode()[: node.col_offset].decode())
        return len(self.text) - len(stripped) + characters + 1

    def convert(self, node: ast.expr, depth: int) -> Node:
        """The tree of one part, if all of it is allowed."""
        if depth > DEEPEST:
            msg = (
                f"the expression is nested too deeply; at most {DEEPEST} operations may be inside "
                "one another"
            )
            raise ExpressionError(msg, self.column(node))

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

        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
            raise ExpressionError(_NO_POWER, self.column(node.right) - 1)
        what = _FORBIDDEN.get(type(node), "this operation")
        msg = (
            f"{what} is not allowed; an expression is made of numbers, names, arithmetic, "
            "comparisons and functions"
        )
        raise ExpressionError(msg, self.column(node))

    def number(self, node: ast.Constant) -> Constant:
        """A constant, if it is a number; every number is a float, so that 9**9**9 costs nothing."""
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
        """A variable or a constant, if it is known."""
        if node.id in self.names:
            return Variable(node.id)
        if node.id in CONSTANTS:
            return Constant(CONSTANTS[node.id])
        known = sorted({*self.names, *CONSTANTS})
        if node.id in self.callable:
            msg = f"{node.id} is a function; write {node.id}(...)"
        else:
            meant = suggestion(node.id, [*known, *self.callable])
            msg = f"unknown name {node.id!r}{meant}; known are {', '.join(known)}"
        raise ExpressionError(msg, self.column(node))

    def comparison(self, node: ast.Compare, depth: int) -> Node:
        """A comparison such as a < b, or a chain such as a < b < c."""
        if not all(type(sign) in _COMPARE for sign in node.ops):
            msg = "'is' and 'in' are not allowed; comparisons are <, <=, >, >=, == and !="
            raise ExpressionError(msg, self.column(node))
        signs = tuple(_COMPARE[type(sign)] for sign in node.ops)
        return Comparison(
            signs, tuple(self.convert(part, depth) for part in (node.left, *node.comparators))
        )

    def call(self, node: ast.Call, depth: int) -> Node:
        """A function of the list, with as many arguments as it takes."""
        if not isinstance(node.func, ast.Name):
            msg = "only a function's name can stand before '('; write * to multiply"
            raise ExpressionError(msg, self.column(node))

        name, column = node.func.id, self.column(node)
        arity = self.callable.get(name)
        if arity is None:
            if name in self.names or name in CONSTANTS:
                msg = f"{name} is not a function; write * to multiply"
            else:
                # Operators named after stencils of a catalogue, which have digits, are too many.
                known = [
                    it
                    for it, arity in self.callable.items()
                    if it in FUNCTIONS or not (isinstance(arity, str) or any(map(str.isdigit, it)))
                ]
                msg = (
                    f"unknown function {name!r}{suggestion(name, self.callable)}; known are "
                    f"{', '.join(known)}"
                )
            raise ExpressionError(msg, column)
        if isinstance(arity, str):
            raise ExpressionError(arity, column)

        if node.keywords:
            msg = f"{name} takes no named arguments"
            raise ExpressionError(msg, column)

        fewest, most = arity
        if not fewest <= len(node.args) <= most:
            wanted = str(fewest) if fewest == most else f"{fewest} or more"
            msg = (
                f"{name} takes {wanted} argument{'s' if wanted != '1' else ''}, not "
                f"{len(node.args)}"
            )
            raise ExpressionError(msg, column)

        return Operation(name, tuple(self.convert(argument, depth) for argument in node.args))
