"""Complex fields: formulas of psi, in which 1j stands, as formulas of its two real parts.

A complex field is two real ones, `psi_real` and `psi_imag`, for kernels, faces, files and
everything else; here formulas are taken apart before anybody else reads them. A formula becomes a
pair of trees: its real part, and its imaginary part, None where that is 0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tetris_sim.apps.pde.language import as_text, constraint_in, operators
from tetris_sim.model.formula import (
    CONSTANTS,
    FUNCTIONS,
    Comparison,
    Constant,
    ExpressionError,
    Node,
    Operation,
    Variable,
    compile_expression,
)

Pair = tuple[Node, Node | None]  # real and imaginary part
PARTS = ("real", "imag")
_UNIT = "I"
_OF_PARTS = dict.fromkeys(("real", "imag", "conj", "arg"), (1, 1))
_LITERAL = re.compile(r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[jJ]\b")
_NAME = re.compile(r"[^\W\d]\w*")
_ZERO = Constant(0.0)
_REAL_ONLY = ("max", "min", "grad_squared", "flux", "noise", "clip")
_MOST_FACTORS = 16  # of a power that is written out


def part_of(name: str, part: int) -> str:
    """Return the name of the real (0) or imaginary (1) part of a field.

    >>> part_of("psi", 1)
    'psi_imag'
    """
    return f"{name}_{PARTS[part]}"


@dataclass(frozen=True)
class Taken:
    """Takes formulas apart.

    Attributes:
        pairs: names that stand for two parts, fields and definitions.
        unit: the name of the imaginary unit beside 1j; "" where that is a name of the user.
    """

    pairs: frozenset[str]
    unit: str = _UNIT

    def texts(self, text: str) -> tuple[str, str | None]:
        """Return the real and the imaginary part of a formula, as text; None for 0.

        >>> Taken(frozenset({"u"})).texts("1j*laplace(u) + 2")
        ('((-laplace(u_imag))+2.0)', 'laplace(u_real)')

        Raises:
            ExpressionError: it is no formula, or has a function that no complex number has here.
        """
        given = constraint_in(text)
        if given is not None:
            real, imag = self.texts(given)
            return f"0 = {real}", imag and f"0 = {imag}"
        # Names are known to nobody yet: whoever reads the parts looks at them.
        plain = _LITERAL.sub(rf"(\1*{_UNIT}I)", text)
        callables = {**operators(3), **_OF_PARTS}
        names = {
            it for it in _NAME.findall(plain) if it not in {*callables, *FUNCTIONS, *CONSTANTS}
        }
        # Operators of fewer axes take fewer arguments, which is checked with the grid.
        loose: Any = {name: it if isinstance(it, str) else (0, 9) for name, it in callables.items()}
        parts = self.parts(compile_expression(plain, names, loose).tree)
        return as_text(parts[0]), None if parts[1] is None else as_text(parts[1])

    def parts(self, node: Node) -> Pair:
        """Return both parts of a tree."""
        match node:
            case Constant():
                return node, None
            case Variable(name):
                if name in (f"{_UNIT}I", self.unit):
                    return _ZERO, Constant(1.0)
                if name in self.pairs:
                    return Variable(part_of(name, 0)), Variable(part_of(name, 1))
                # The velocity of a field of second order is complex as it is.
                of = name.removesuffix("_velocity")
                if of != name and of in self.pairs:
                    both = [Variable(f"{part_of(of, part)}_velocity") for part in range(2)]
                    return both[0], both[1]
                return node, None
            case Comparison(signs, operands):
                pairs = [self.parts(it) for it in operands]
                if any(imag is not None for _, imag in pairs):
                    _refuse("a comparison")
                return Comparison(signs, tuple(real for real, _ in pairs)), None

        assert isinstance(node, Operation)
        return self._operation(node)

    def _operation(self, node: Operation) -> Pair:
        name, word = node.name, node.name.partition("(")[0]
        pairs = [self.parts(it) for it in node.arguments]
        a = pairs[0] if pairs else (_ZERO, None)
        match word:
            case "real" | "imag" | "conj" | "arg":
                return _part(word, a)
            case "abs" if a[1] is not None:
                return Operation("sqrt", (_square(a),)), None
            case "power" if a[1] is not None or _is_abs(node.arguments[0]):
                return self._power(node, a, pairs[1])
        if all(imag is None for _, imag in pairs):
            return Operation(name, tuple(real for real, _ in pairs)), None

        # Complex numbers from here on.
        match word:
            case "add" | "subtract" | "negative" | "positive":
                return _sum(name, pairs)
            case "multiply":
                return _product(*pairs)
            case "divide":
                return _quotient(*pairs)
            case "exp":
                size = Operation("exp", (a[0],))
                turns = [Operation(it, (a[1] or _ZERO,)) for it in ("cos", "sin")]
                return _times(size, turns[0]), _times(size, turns[1])
            case "where" if pairs[0][1] is None:
                return _each(name, pairs[:1], pairs[1:])
            case "advect" | "div_grad" if all(imag is None for _, imag in pairs[:-1]):
                return _each(name, pairs[:-1], pairs[-1:])
            case "shift" if all(imag is None for _, imag in pairs[1:]):
                real, imag = (Operation(name, (it or _ZERO, *node.arguments[1:])) for it in a)
                return real, imag
        if word in FUNCTIONS or word in (*_REAL_ONLY, "shift", "advect", "div_grad"):
            _refuse(word)
        # All other operators are linear: sums of neighbours, integrals and means.
        return _each(name, [], pairs)

    def _power(self, node: Operation, base: Pair, exponent: Pair) -> Pair:
        inner, n = node.arguments[0], exponent[0]
        number = n.value if isinstance(n, Constant) else float("nan")
        even = number.is_integer() and 0 < number <= _MOST_FACTORS and number % 2 == 0
        if _is_abs(inner) and even and exponent[1] is None:
            assert isinstance(inner, Operation)
            square = _square(self.parts(inner.arguments[0]))
            half = number / 2
            return (square if half == 1 else Operation("power", (square, Constant(half)))), None
        if base[1] is None and exponent[1] is None:
            return Operation("power", (base[0], n)), None
        if not (number.is_integer() and 0 < number <= _MOST_FACTORS and exponent[1] is None):
            _refuse("a power that is no whole number from 1 to 16")

        # As products, which have no branches.
        found = base
        for _ in range(int(number) - 1):
            found = _product(found, base)
        return found


def _refuse(what: str) -> None:
    msg = (
        f"{what} of a complex number; write it with abs, real, imag, conj, arg, exp, + - * / and "
        "whole powers, or with linear operators"
    )
    raise ExpressionError(msg, 1)


def _is_abs(node: Node) -> bool:
    return isinstance(node, Operation) and node.name == "abs"


def _part(word: str, a: Pair) -> Pair:
    real, imag = a
    if word == "real":
        return real, None
    if word == "imag":
        return imag or _ZERO, None
    if word == "arg":
        return Operation("atan2", (imag or _ZERO, real)), None
    return real, None if imag is None else _negative(imag)


def _negative(a: Node) -> Node:
    return Operation("negative", (a,))


def _times(a: Node, b: Node) -> Node:
    one = Constant(1.0)
    if _ZERO in (a, b):
        return _ZERO
    return b if a == one else a if b == one else Operation("multiply", (a, b))


def _plus(a: Node | None, b: Node | None, name: str = "add") -> Node | None:
    if b is None or b == _ZERO:
        return a
    if a is None or a == _ZERO:
        return b if name == "add" else _negative(b)
    return Operation(name, (a, b))


def _square(a: Pair) -> Node:
    real, imag = a
    squares = [Operation("multiply", (it, it)) for it in (real, imag) if it not in (None, _ZERO)]
    return (
        _plus(squares[0], squares[1] if len(squares) > 1 else None) or _ZERO if squares else _ZERO
    )


def _sum(name: str, pairs: list[Pair]) -> Pair:
    if len(pairs) == 1:
        real, imag = pairs[0]
        if name == "positive":
            return real, imag
        return (_ZERO if real == _ZERO else _negative(real)), imag and _negative(imag)
    (a, b), (c, d) = pairs
    return _plus(a, c, name) or _ZERO, _plus(b, d, name)


def _product(x: Pair, y: Pair) -> Pair:
    # Parts that are 0 for sure leave no trace in formulas, which would cost time at every point.
    (a, b), (c, d) = x, y
    real = _plus(_times(a, c), None if b is None or d is None else _times(b, d), "subtract")
    imag = _plus(None if d is None else _times(a, d), None if b is None else _times(b, c))
    return real or _ZERO, imag


def _quotient(x: Pair, y: Pair) -> Pair:
    if y[1] is None:
        real, imag = (it and Operation("divide", (it, y[0])) for it in x)
        return real or _ZERO, imag
    # Of 1/z the conjugate of z by the square of its magnitude, which is real.
    above, below = _product(x, _part("conj", y)), _square(y)
    real, imag = (it and Operation("divide", (it, below)) for it in above)
    return real or _ZERO, imag


def _each(name: str, before: list[Pair], pairs: list[Pair]) -> Pair:
    """An operation that is linear in its last arguments."""
    first = tuple(real for real, _ in before)
    found = [
        _ZERO
        if all(it in (None, _ZERO) for it in side)
        else Operation(name, (*first, *(it or _ZERO for it in side)))
        for side in zip(*pairs, strict=True)
    ]
    return found[0], found[1]


def both(text: str, taken: Taken) -> tuple[str, str]:
    """Return the texts of both parts of a formula, "0" for none."""
    real, imag = taken.texts(text)
    return real, imag or ("0 = 0" if constraint_in(text) is not None else "0")


def real_text(text: str, taken: Taken) -> str:
    """Return a formula that has to be real; as it was where it has nothing complex.

    Raises:
        ExpressionError: it has an imaginary part.
    """
    wanted = {*taken.pairs, *(f"{it}_velocity" for it in taken.pairs), *_OF_PARTS, taken.unit}
    if not wanted & {*_NAME.findall(text)} and not _LITERAL.search(text):
        return text
    real, imag = taken.texts(text)
    if imag is not None:
        msg = "it has an imaginary part, and what it gives is real; write real(...) or imag(...)"
        raise ExpressionError(msg, 1)
    return real


def with_definitions_apart(
    definitions: Mapping[str, str], fields: Collection[str], *, unit: bool
) -> tuple[dict[str, str], Taken]:
    """Return definitions by real parts, and what takes formulas of them and of fields apart.

    Args:
        definitions: by name.
        fields: names of complex ones.
        unit: whether I is the imaginary unit, and no name of the user.

    Raises:
        ExpressionError: one of them cannot be taken apart; its message begins with its name.
    """
    taken = Taken(frozenset(fields), _UNIT if unit else "")
    # Which are complex follows from one another: found again until nothing changes.
    while True:
        found: dict[str, str] = {}
        complex_ones = set()

        for name, text in definitions.items():
            try:
                real, imag = taken.texts(text)
            except ExpressionError as error:
                msg = f"{name}: {error.message}"
                raise ExpressionError(msg, error.column) from error
            if imag is None and name not in taken.pairs:
                found[name] = real_text(text, taken)
                continue
            complex_ones.add(name)
            found |= {part_of(name, 0): real, part_of(name, 1): imag or "0"}
        if complex_ones <= taken.pairs:
            return found, taken
        taken = Taken(taken.pairs | complex_ones, taken.unit)


# Sections of a configuration, before they are checked.

_GIVEN = ("value", "flux", "ambient", "slope", "curvature")
_NONE_AT_START = {"type": "constant", "value": 0}


def sections_apart(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the section of a model with two fields for each complex one.

    Raises:
        ValueError: a formula cannot be taken apart, with where it stands.
    """
    fields = model.get("fields")
    if not isinstance(fields, Mapping):
        return model
    # Parts that somebody wrote out already are not taken apart again.
    complex_ones = [
        name
        for name, it in fields.items()
        if isinstance(it, Mapping)
        and it.get("complex") in (True, "true")
        and whole_of(name, fields) is None
    ]
    if not complex_ones:
        return model
    for name in complex_ones:
        for part in range(2):
            if part_of(name, part) in fields:
                msg = f"fields.{part_of(name, part)}: it is the name of a part of {name}"
                raise ValueError(msg)

    given = {*fields, *(model.get("constants") or {}), *(model.get("definitions") or {})}
    texts = {k: str(it) for k, it in (model.get("definitions") or {}).items()}
    try:
        definitions, taken = with_definitions_apart(texts, complex_ones, unit=_UNIT not in given)
    except ExpressionError as error:
        msg = f"definitions.{error}"
        raise ValueError(msg) from error
    found: dict[str, Any] = {}
    for name, section in fields.items():
        if name in complex_ones:
            found |= _field_apart(name, section, taken)
        else:
            found[name] = _real_field(name, section, taken)
    more = {"definitions": definitions} if definitions else {}
    return {**model, **more, "fields": found}


def whole_of(name: str, names: Collection[str]) -> str | None:
    """Return the name of what a name may be a part of, if both parts are among some names.

    >>> whole_of("a_real", ["a_real", "a_imag"]), whole_of("a_real", ["a_real"])
    ('a', None)
    """
    for part in PARTS:
        of = name.removesuffix(f"_{part}")
        if of != name and all(part_of(of, k) in names for k in range(2)):
            return of
    return None


def _said(path: str, text: Any, taken: Taken, *, real: bool = False) -> tuple[str, str]:
    try:
        return (real_text(str(text), taken), "0") if real else both(str(text), taken)
    except ExpressionError as error:
        msg = f"fields.{path}: {error}"
        raise ValueError(msg) from error


def _real_field(name: str, section: Any, taken: Taken) -> Any:
    if not isinstance(section, Mapping):
        return section
    found = dict(section)
    for key in ("equation", "second_order"):
        if isinstance(found.get(key), str):
            found[key] = _said(f"{name}.{key}", found[key], taken, real=True)[0]
    return found


def _field_apart(name: str, section: Mapping[str, Any], taken: Taken) -> dict[str, Any]:
    """The sections of both parts of a field."""
    # Whatever is not complex by nature, as units and names, both parts have.
    parts = [dict(section), dict(section)]
    for key in ("equation", "second_order"):
        if section.get(key) is not None:
            sides = _said(f"{name}.{key}", section[key], taken)
            for part, side in zip(parts, sides, strict=True):
                part[key] = side
    for key in ("initial", "initial_velocity"):
        if section.get(key) is not None:
            starts = _start_apart(f"{name}.{key}", section[key], taken)
            for part, start in zip(parts, starts, strict=True):
                part[key] = start
    if (imag := parts[0].pop("initial_imag", None)) is not None:
        parts[1]["initial"] = imag
    parts[1].pop("initial_imag", None)

    faces = section.get("boundaries")
    if isinstance(faces, Mapping):
        apart = {
            key: _face_apart(f"{name}.boundaries.{key}", it, taken) for key, it in faces.items()
        }
        for number, part in enumerate(parts):
            part["boundaries"] = {key: pair[number] for key, pair in apart.items()}
    if (long_name := section.get("long_name")) is not None:
        for part, word in zip(parts, ("real", "imaginary"), strict=True):
            part["long_name"] = f"{word} part of {long_name}"
    return {part_of(name, number): it for number, it in enumerate(parts)}


def _start_apart(path: str, section: Any, taken: Taken) -> tuple[Any, Any]:
    # Of what is no formula, only the real part is given.
    if not isinstance(section, Mapping) or "expression" not in section:
        return section, _NONE_AT_START
    sides = _said(f"{path}.expression", section["expression"], Taken(frozenset(), taken.unit))
    return {**section, "expression": sides[0]}, {**section, "expression": sides[1]}


def _face_apart(path: str, face: Any, taken: Taken) -> tuple[Any, Any]:
    if not isinstance(face, Mapping):
        return face, face
    parts = dict(face), dict(face)

    for key in _GIVEN:
        given = face.get(key)
        sides: tuple[Any, Any]
        if isinstance(given, str):
            sides = _said(f"{path}.{key}", given, taken)
        elif given is not None:
            sides = given, 0
        else:
            continue
        for part, side in zip(parts, sides, strict=True):
            part[key] = side
    return parts
