"""Complex fields: formulas of complex numbers become pairs of real ones, and each field two.

With z = a + ib and w = c + id, zw = (ac - bd) + i(ad + bc), 1/w = conj(w)/(cc + dd), exp(z) =
exp(a)(cos b + i sin b), and so on; parts that are 0 are left out, so a real factor multiplies both
parts and i exchanges them. Operators that are linear act on both parts. What comes out are formulas
like any others, so every scheme, method and device computes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from tetris_sim.apps.time_functions import formula, names_in
from tetris_sim.config.sections.conditions import ExpressionInitial, InitialSection, RunInitial
from tetris_sim.config.sections.varying import COMPLEX_FUNCTIONS
from tetris_sim.model.formula import (
    OPERATIONS,
    Comparison,
    Constant,
    Node,
    Operation,
    Variable,
    walk,
)

Part = Literal["real", "imag"]
PARTS: tuple[Part, Part] = ("real", "imag")
IMAGINARY = "1j"  # the operation of a literal such as 2j
UNIT = "I"  # the same by a name, where there is a complex field
Pair = tuple[Node, Node | None]  # real and imaginary part; None for 0
_ZERO, _ONE = Constant(0.0), Constant(1.0)
# Of sums and differences of neighbours, each part is that of the part; other arguments are real.
_LINEAR_SINCE: Mapping[str, int] = {"advect": -1, "div_grad": 1, "shift": 0}
_FLUXES = ("flux", "div")
_NONLINEAR = (*_FLUXES, "noise")
_MOST_FACTORS = 16  # of a power that is multiplied out


class ComplexError(ValueError):
    """A formula of complex numbers that cannot be computed.

    Attributes:
        name: of what it is about, as it stands in the formula; empty for the whole.
    """

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


def has_complex(tree: Node, pairs: Mapping[str, Pair]) -> bool:
    """Whether anything in a formula is complex, or asks for a part."""
    return any(
        it.name in (pairs if isinstance(it, Variable) else COMPLEX_FUNCTIONS)
        for it in walk(tree)
        if isinstance(it, Variable | Operation)
    )


def in_parts(tree: Node, pairs: Mapping[str, Pair]) -> Pair:
    """Real and imaginary part of a formula.

    >>> psi = {"psi": (Variable("a"), Variable("b"))}
    >>> in_parts(Operation("multiply", (Operation("1j", (_ONE,)), Variable("psi"))), psi)
    (Operation(name='negative', arguments=(Variable(name='b'),)), Variable(name='a'))

    Args:
        tree: of fields, constants and operators.
        pairs: what is complex, by name.

    Raises:
        ComplexError: a function of complex numbers that there is not.
    """
    # By identity, so that what is shared stays shared.
    known: dict[int, Pair] = {}

    def visit(part: Node) -> Pair:
        if id(part) not in known:
            known[id(part)] = _parts(part, pairs, visit)
        return known[id(part)]

    return visit(tree)


def real_tree(tree: Node, pairs: Mapping[str, Pair]) -> Node:
    """A formula of complex numbers that is real, as one of real numbers.

    Raises:
        ComplexError: it is complex, or cannot be computed.
    """
    if not has_complex(tree, pairs):
        return tree
    real, imaginary = in_parts(tree, pairs)
    if imaginary is not None:
        msg = (
            "this is a complex number, and a real one is wanted; write real(...), imag(...) or "
            "abs(...), or let the field be complex: true"
        )
        raise ComplexError(msg)
    return real


def _parts(part: Node, pairs: Mapping[str, Pair], visit: Callable[[Node], Pair]) -> Pair:
    match part:
        case Variable(name):
            return pairs.get(name, (part, None))
        case Comparison(signs, operands):
            if any(b is not None for _, b in map(visit, operands)):
                msg = "complex numbers have no order; compare abs(...), real(...) or imag(...)"
                raise ComplexError(msg)
            return Comparison(signs, tuple(a for a, _ in map(visit, operands))), None
        case Operation("1j", (number,)):
            return _ZERO, number

        # The square of a magnitude needs no root.
        case Operation("power", (Operation("abs", (of,)), Constant(n))) if n in (2.0, 4.0):
            square = _square(*visit(of))
            return square if n == 2.0 else _multiply(square, square)
        case Operation(name, arguments):
            each = [visit(it) for it in arguments]
            if name.partition("(")[0] in _FLUXES and any(b is not None for _, b in each):
                return _flux(name, each, pairs)
            return _operation(part, name, each)
    return part, None


def _flux(name: str, of: Sequence[Pair], pairs: Mapping[str, Pair]) -> Pair:
    """The flux where both parts of what is carried flow by themselves."""
    # A flux looks where waves come from, by the sign of a speed: numbers with an order. Each part
    # has a speed of its own if nothing of the other one is in it.
    fields = [
        (real.name, imaginary.name)
        for real, imaginary in pairs.values()
        if isinstance(real, Variable) and isinstance(imaginary, Variable)
    ]

    apart = all(b is not None or a == _ZERO for a, b in of)
    for a, b in of:
        apart = apart and not any(
            other in names_in(a) or (b is not None and own in names_in(b)) for own, other in fields
        )
    if not apart:
        plain = name.partition("(")[0]
        msg = (
            f"{plain} takes complex numbers where their parts flow apart, as in {plain}(v*u) of a "
            "real v: which way waves come from is told by real speeds. Write it for both parts, "
            f"{plain}(..., real(u), speed) + 1j*{plain}(..., imag(u), speed)"
        )
        raise ComplexError(msg, plain)
    return (
        Operation(name, tuple(a for a, _ in of)),
        Operation(name, tuple(b or _ZERO for _, b in of)),
    )


def _operation(part: Operation, name: str, of: list[Pair]) -> Pair:
    """An operation on pairs."""
    (a, b), *others = of
    if name in _UNARY:
        return _UNARY[name](a, b)
    if all(imaginary is None for _, imaginary in of):
        # Equal trees stay one object: what is shared is computed once.
        same = all(it is old for (it, _), old in zip(of, part.arguments, strict=True))
        return (part if same else Operation(name, tuple(it for it, _ in of))), None

    if name in ("add", "subtract"):
        return _sum(name, of[0], of[1])
    if name == "multiply":
        return _multiply(of[0], of[1])
    if name == "divide":
        return _divide(of[0], of[1])
    if name == "power":
        return _power(of[0], of[1])
    if name in _OF_COMPLEX:
        return _OF_COMPLEX[name](a, b or _ZERO)
    if name == "where" and b is None:
        ((yes, yes_i), (no, no_i)) = others
        return (
            Operation(name, (a, yes, no)),
            Operation(name, (a, yes_i or _ZERO, no_i or _ZERO)),
        )
    return _operator(name, of)


def _operator(name: str, of: list[Pair]) -> Pair:
    """A differential operator, or a number of the whole grid."""
    plain = name.partition("(")[0]
    if name == "grad_squared":
        return _grad_squared(*of[0])
    if name == "div_grad" and of[0][1] is not None:
        # Linear in both arguments.
        def flows(by: Node | None, of_field: Node | None) -> Node:
            if by is None or of_field is None or _ZERO in (by, of_field):
                return _ZERO
            return Operation(name, (by, of_field))

        (k, k_i), (u, u_i) = of
        real = _added("subtract", flows(k, u), flows(k_i, u_i))
        return real, _added("add", flows(k_i, u), flows(k, u_i))

    # Neighbours are added up with real weights, so the parts never meet.
    place = _LINEAR_SINCE.get(plain, 0)
    others = [it for it in of if it is not of[place]]
    linear = plain not in _NONLINEAR and name not in OPERATIONS
    if not linear or any(b is not None for _, b in others):
        msg = (
            f"{plain} takes no complex numbers{' but in its last place' * (place == -1)}; take "
            "real(...), imag(...) or abs(...) of them"
        )
        raise ComplexError(msg, plain)

    def acts(on: Node) -> Node:
        arguments = [it for it, _ in of]
        arguments[place] = on
        return Operation(name, tuple(arguments))

    a, b = of[place]
    return (a if a == _ZERO else acts(a)), None if b is None else acts(b)


def _minus(a: Node, b: Node) -> Node:
    return Operation("subtract", (a, b))


def _sum(name: str, one: Pair, other: Pair) -> Pair:
    (a, b), (c, d) = one, other
    real = _added(name, a, c)
    if b is None or d is None:
        rest = b if d is None else _signed(name, d)
        return real, rest
    return real, Operation(name, (b, d))


def _added(name: str, a: Node, c: Node) -> Node:
    if c == _ZERO:
        return a
    return _signed(name, c) if a == _ZERO else Operation(name, (a, c))


def _signed(name: str, part: Node) -> Node:
    return part if name == "add" else _negative(part)


def _negative(part: Node) -> Node:
    return part if part == _ZERO else Operation("negative", (part,))


def _product(a: Node, b: Node | None) -> Node:
    """The product of real numbers, without factors of 0 and 1."""
    if b is None or _ZERO in (a, b):
        return _ZERO
    if a == _ONE:
        return b
    return a if b == _ONE else Operation("multiply", (a, b))


def _multiply(one: Pair, other: Pair) -> Pair:
    (a, b), (c, d) = one, other
    if b is None and d is None:
        return _product(a, c), None
    real = _added("subtract", _product(a, c), _product(b or _ZERO, d))
    imaginary = _added("add", _product(a, d), _product(b or _ZERO, c))
    return real, imaginary


def _square(a: Node, b: Node | None) -> Pair:
    """The square of the magnitude."""
    return _added("add", _product(a, a), _product(b or _ZERO, b)), None


def _divide(one: Pair, other: Pair) -> Pair:
    (a, b), (c, d) = one, other
    if d is None:
        over = functools.partial(_over, by=c)
        return over(a), None if b is None else over(b)
    real, imaginary = _multiply(one, (c, _negative(d)))
    square, _ = _square(c, d)
    return _over(real, square), _over(imaginary or _ZERO, square)


def _over(part: Node, by: Node) -> Node:
    return part if part == _ZERO or by == _ONE else Operation("divide", (part, by))


def _power(base: Pair, exponent: Pair) -> Pair:
    n, rest = exponent
    negative = isinstance(n, Operation) and n.name == "negative"
    number = n.arguments[0] if isinstance(n, Operation) and negative else n
    if rest is None and isinstance(number, Constant) and number.value.is_integer():
        count = int(number.value)
        if count <= _MOST_FACTORS:
            found: Pair = (_ONE, None)
            for _ in range(count):
                found = _multiply(found, base)
            return _divide((_ONE, None), found) if negative else found
    # Anything else is the principal value: exp(w log(z)).
    log = (formula("log(a)", a=base[0]), None) if base[1] is None else _log(base[0], base[1])
    return _exp(*_multiply(exponent, log))


def _exp(a: Node, b: Node | None) -> Pair:
    size = _ONE if a == _ZERO else formula("exp(a)", a=a)
    if b is None:
        return size, None
    return _product(size, formula("cos(b)", b=b)), _product(size, formula("sin(b)", b=b))


def _log(a: Node, b: Node) -> Pair:
    return formula("log(hypot(a, b))", a=a, b=b), formula("atan2(b, a)", a=a, b=b)


def _sqrt(a: Node, b: Node) -> Pair:
    half = formula("atan2(b, a)/2", a=a, b=b)
    size = formula("sqrt(hypot(a, b))", a=a, b=b)
    return formula("r*cos(p)", r=size, p=half), formula("r*sin(p)", r=size, p=half)


def _by(real: str, imaginary: str) -> Callable[[Node, Node], Pair]:
    return lambda a, b: (formula(real, a=a, b=b), formula(imaginary, a=a, b=b))


def _grad_squared(a: Node, b: Node | None) -> Pair:
    """The sum of the squares of the slopes, (grad a)^2 - (grad b)^2 + 2i grad a . grad b."""
    squares = [Operation("grad_squared", (it,)) for it in (a, b or _ZERO)]
    both = Operation("grad_squared", (Operation("add", (a, b or _ZERO)),))
    return _minus(*squares), _minus(_minus(both, squares[0]), squares[1])


def _negated(a: Node, b: Node | None) -> Pair:
    return _negative(a), None if b is None else _negative(b)


_UNARY: Mapping[str, Callable[[Node, Node | None], Pair]] = {
    "real": lambda a, b: (a, None),
    "imag": lambda a, b: (b or _ZERO, None),
    "conj": lambda a, b: (a, None if b is None else _negative(b)),
    "arg": lambda a, b: (formula("atan2(b, a)", a=a, b=b or _ZERO), None),
    "negative": _negated,
    "positive": lambda a, b: (a, b),
    "exp": _exp,
}
_OF_COMPLEX: Mapping[str, Callable[[Node, Node], Pair]] = {
    "abs": lambda a, b: (formula("hypot(a, b)", a=a, b=b), None),
    "log": _log,
    "sqrt": _sqrt,
    "sin": _by("sin(a)*cosh(b)", "cos(a)*sinh(b)"),
    "cos": _by("cos(a)*cosh(b)", "-sin(a)*sinh(b)"),
    "sinh": _by("sinh(a)*cos(b)", "cosh(a)*sin(b)"),
    "cosh": _by("cosh(a)*cos(b)", "sinh(a)*sin(b)"),
}


# Sections of complex fields as those of their parts, whose formulas are text.

_SIGN_OF = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "power": "**",
    "and": "and",
    "or": "or",
}
_MARK_OF = {"negative": "-", "positive": "+", "not": "not "}


def as_text(node: Node) -> str:
    """A tree as a formula that is read as the same tree.

    >>> from tetris_sim.apps.pde.language import Language
    >>> as_text(Language(1, ("u",)).read("where(u > 1, 2, -div_grad(u, u, mean=harmonic)**2)"))
    'where((u>1.0),2.0,(-(div_grad(u,u,mean=harmonic)**2.0)))'
    """
    match node:
        case Constant(value):
            # Numbers below 0 come from arithmetic alone, and a sign before a power is outside it.
            return repr(value) if value >= 0 else f"({value!r})"
        case Variable(name):
            return name
        case Comparison(signs, operands):
            sides = [as_text(it) for it in operands]
            more = zip(signs, sides[1:], strict=True)
            return f"({sides[0]}{''.join(sign + side for sign, side in more)})"

    parts = [as_text(it) for it in node.arguments]
    if sign := _SIGN_OF.get(node.name):
        between = f" {sign} " if sign.isalpha() else sign
        return f"({between.join(parts)})"
    if node.name in _MARK_OF:
        return f"({_MARK_OF[node.name]}{parts[0]})"
    name, _, options = node.name.partition("(")
    return f"{name}({','.join([*parts, *filter(None, [options.removesuffix(')')])])})"


def part_of_initial(
    whole: InitialSection | None, other: InitialSection | None, which: Part
) -> InitialSection | None:
    """The section of the real or the imaginary part at the start; None for 0.

    Args:
        whole: of both parts, or of the real one alone.
        other: of the imaginary part, if it has one of its own.
        which: the part.
    """
    if which == "imag" and other is not None:
        whole, which = other, "real"
    if isinstance(whole, ExpressionInitial):
        return whole.model_copy(update={"expression": f"{which}({whole.expression})"})
    # Another run has both parts by their names; whatever else there is, is real.
    return whole if which == "real" or isinstance(whole, RunInitial) else None
