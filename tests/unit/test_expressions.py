"""Formulas mean what mathematics says, and nothing but formulas gets through."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from tetris_sim.model.formula import (
    ARITY,
    CONSTANTS,
    FUNCTIONS,
    OPERATIONS,
    RECIPROCALS,
    Constant,
    ExpressionError,
    Operation,
    Variable,
    compile_expression,
    evaluate,
    evaluate_each,
    usable_name,
)
from tetris_sim.model.program import Programs

Values = npt.NDArray[np.float64]
X = np.linspace(-1.7, 2.3, 41)
Y = np.linspace(0.1, 3.0, 41)


def compute(text: str) -> Any:
    return compile_expression(text, ["x", "y"])(x=X, y=Y)


def refusal(text: str, names: tuple[str, ...] = ("x", "y")) -> tuple[str, int]:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text, names)
    return caught.value.message, caught.value.column


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + y*2", X + 2 * Y),
        ("x - y - 1", X - Y - 1),
        ("-x**2", -(X**2)),
        ("y**-1", 1 / Y),
        ("2**3**2", 512.0),
        ("+x", X),
        ("x // 0.5 + x % 0.7", np.floor(X / 0.5) + np.mod(X, 0.7)),
        ("(x - 1)*(x + 1)/y", (X - 1) * (X + 1) / Y),
        ("pi*e", math.pi * math.e),
        ("1_000 + 0x10 + .5e1", 1021.0),
        ("100*exp(-((x-0.3)**2 + (y-1)**2)/(2*0.4**2))", 100 * np.exp(-((X - 0.3) ** 2 + (Y - 1) ** 2) / 0.32)),
        ("sin(x) + cos(x)*tan(x/2)", np.sin(X) + np.cos(X) * np.tan(X / 2)),
        ("asin(x/3) + acos(x/3) + atan(x) + atan2(y, x)", math.pi / 2 + np.arctan(X) + np.arctan2(Y, X)),
        ("sinh(x) + cosh(x) - exp(x) + tanh(x)", np.tanh(X)),
        ("log(y) + log10(y) + sqrt(y) + abs(x) + sign(x)",
         np.log(Y) + np.log10(Y) + np.sqrt(Y) + np.abs(X) + np.sign(X)),
        ("floor(x) + ceil(x)", np.floor(X) + np.ceil(X)),
        ("hypot(x, y)", np.sqrt(X**2 + Y**2)),
        ("hypot(x, y, 2)", np.sqrt(X**2 + Y**2 + 4)),
        ("min(x, y, 0.5) + max(x, y)", np.minimum(np.minimum(X, Y), 0.5) + np.maximum(X, Y)),
        ("clip(x, -0.5, 0.5)", np.clip(X, -0.5, 0.5)),
        ("erf(x)", scipy.special.erf(X)),
        ("heaviside(x - 0.3)", np.where(X > 0.3, 1.0, 0.0)),
        ("heaviside(0)", 0.5),
        ("where(x > 0.3, x, y)", np.where(X > 0.3, X, Y)),
        ("x if 0 < x <= 1 else y", np.where((X > 0) & (X <= 1), X, Y)),
        ("1 if x < 0 else 2 if x < 1 else 3", np.where(X < 0, 1.0, np.where(X < 1, 2.0, 3.0))),
        ("x < 0 or x > 1 and not y > 2", ((X < 0) | ((X > 1) & ~(Y > 2))).astype(float)),
        ("(x >= 0)*10 - (y != 1)", (X >= 0) * 10.0 - (Y != 1)),
        ("x == x", np.ones_like(X)),
        ("  x +\n\t y ", X + Y),
    ],
)  # fmt: skip
def test_a_formula_means_what_it_says(text: str, expected: Values | float) -> None:
    result = compute(text)
    np.testing.assert_allclose(result, expected, rtol=1e-14, atol=1e-14)
    assert np.shape(result) == np.shape(expected)


def test_every_function_is_known_by_name_and_computed() -> None:
    for name in FUNCTIONS:
        fewest = int(ARITY[name][0])
        arguments = ", ".join(["0.5", "0.25", "0.75"][:fewest])
        assert math.isfinite(compile_expression(f"{name}({arguments})", [])()), name


def test_arithmetic_follows_the_ieee_rules_instead_of_raising() -> None:
    assert compute("1/0") == math.inf
    assert compute("-1/0") == -math.inf
    assert math.isnan(compute("0/0"))
    assert math.isnan(compute("sqrt(-1)"))
    assert math.isnan(compute("0 % 0"))
    assert compute("9**9**9") == math.inf
    assert compute("10.0**400") == math.inf
    assert compute("exp(1000)") == math.inf
    assert compute("1 if 1/0 > 0 else 0") == 1.0


def test_the_side_of_a_condition_that_is_not_taken_may_be_undefined() -> None:
    assert np.isfinite(compute("sqrt(x) if x > 0 else 0")).all()


def test_a_comparison_chain_computes_its_middle_once() -> None:
    text = "x"
    for _ in range(24):
        text = f"(0 < {text} < 1)"  # 2**24 evaluations if each middle were computed twice
    start = time.perf_counter()
    compute(text)
    assert time.perf_counter() - start < 5


def test_names_are_those_that_occur_and_values_may_be_numbers_or_arrays() -> None:
    expression = compile_expression("T0 + x*pi", ["x", "y", "T0"])
    assert expression.names == {"T0", "x"}
    assert expression(x=2.0, T0=1.0) == 1 + 2 * math.pi
    assert isinstance(expression(x=2.0, T0=1.0), float)
    assert np.shape(expression(x=X[:, None], T0=Y[None, :])) == (41, 41)
    single = X.astype(np.float32)
    assert np.array_equal(
        np.asarray(expression(x=single, T0=1)), 1 + single.astype(np.float64) * math.pi
    )


def test_a_variable_comes_before_a_constant_of_the_same_name() -> None:
    assert compile_expression("e", ["e"])(e=3.0) == 3.0
    assert compile_expression("e", [])() == CONSTANTS["e"]


def test_the_tree_is_data() -> None:
    tree = compile_expression("2*x", ["x"]).tree
    assert tree == Operation("multiply", (Constant(2.0), Variable("x")))
    assert hash(tree) == hash(compile_expression("2 * x", ["x"]).tree)


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("sn(x)", 1, "unknown function 'sn' (did you mean 'sin'?)"),
        ("1 + yy", 5, "unknown name 'yy'"),
        ("x + temprature", 5, "'temprature' (did you mean 'temperature'?); known are e, pi, temperature, x"),
        ("  é + x", 3, "unknown name 'é'"),
        ("x*é*qq", 3, "unknown names 'qq' and 'é'"),
        ("sin", 1, "sin is a function; write sin(...)"),
        ("x(2)", 1, "x is not a function; write * to multiply"),
        ("1 + 2(x)", 5, "only a function's name can stand before '('"),
        ("exp(x, x)", 1, "exp takes 1 argument, not 2"),
        ("x + min(x)", 5, "min takes 2 or more arguments, not 1"),
        ("exp(x=1)", 1, "exp takes no named arguments"),
        ("exp(*x)", 5, "'*' in front of an argument is not allowed"),
        ("x.real", 1, "a dot is not allowed"),
        ("x[0]", 1, "an index in brackets is not allowed"),
        ("(lambda: 1)()", 1, "only a function's name can stand before '('"),
        ("lambda: 1", 1, "lambda is not allowed"),
        ("[1, 2]", 1, "a list is not allowed"),
        ("1, 2", 1, "a comma outside a function call is not allowed"),
        ("[i for i in x]", 1, "a comprehension is not allowed"),
        ("{1: 2}", 1, "'{' is not allowed"),
        ("'text'", 1, "text in quotes is not a number"),
        ("b'x'", 1, "text in quotes is not a number"),
        ("f'{x}'", 1, "text in quotes is not allowed"),
        ("x + True", 5, "True is not a number"),
        ("None", 1, "None is not a number"),
        ("...", 1, "Ellipsis is not a number"),
        ("1j*x", 1, "1j is not a number"),
        ("x @ x", 1, "this operation is not allowed"),
        ("x & x", 1, "this operation is not allowed"),
        ("~x", 1, "this operation is not allowed"),
        ("x << 2", 1, "this operation is not allowed"),
        ("x is x", 1, "'is' and 'in' are not allowed"),
        ("x in x", 1, "'is' and 'in' are not allowed"),
        ("(x := 2)", 2, "':=' is not allowed"),
        ("x = 2", 1, "this is not a formula"),
        ("import os", 1, "this is not a formula"),
        ("x +", 3, "something is missing at its end"),
        ("x + (2*x", 5, "this is not a formula ('(' was never closed)"),
        ("x x", 3, "this is not a formula"),
        ("x # y", 3, "'#' is not allowed"),
        ("", 1, "the expression is empty"),
        (" \n ", 1, "the expression is empty"),
        ("1" * 400, 1, "this number is too large"),
        ("1e999", 1, "this number is too large"),
        ("x\x00", 1, "this is not a formula"),
        ("\ud800", 1, "cannot be read"),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_refused_with_its_place(text: str, column: int, part: str) -> None:
    message, where = refusal(text, ("x", "temperature"))
    assert part in message
    assert (
        where == column or part == "this is not a formula"
    )  # where a syntax error lies is the parser's opinion


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__.__bases__[0].__subclasses__()",
        "eval('1')",
        "exec",
        "open('/etc/passwd')",
        "getattr(x, 'real')",
        "x.__class__",
        "(lambda f: f(f))(lambda f: f(f))",
        "[x for x in ().__class__.__mro__]",
        "print(x)",
        "__builtins__",
        "globals()",
        "await x",
        "yield x",
        "f'{x.__class__}'",
        "x if x else __import__",
        "min(*x)",
        "max(key=x)",
        "sin.__call__(x)",
        "(x).real",
    ],
)
def test_nothing_but_formulas_gets_through(text: str) -> None:
    refusal(text)


def test_length_and_depth_are_bounded() -> None:
    assert "has 2001 characters; at most 2000" in refusal("1" * 2001)[0]
    assert compute("+".join(["x"] * 99)).shape == X.shape
    for deep in (
        "+".join(["x"] * 150),
        "-" * 1990 + "x",
        "(" * 150 + "x" + ")" * 150,
        "abs(" * 150 + "x" + ")" * 150,
    ):
        if not deep.startswith("("):  # parentheses alone are no operations
            assert "nested too deeply" in refusal(deep)[0]
        else:
            assert np.array_equal(compute(deep), X)
    refusal("(" * 999 + "x" + ")" * 999)
    refusal("[" * 1000)
    refusal("x if " * 399 + "x")


def test_names_of_constants_are_checked() -> None:
    for good in ("s", "T_0", "sigma2", "σ", "_"):
        assert usable_name(good) is None
        assert compile_expression(good, [good])(**{good: 2.0}) == 2.0
    for bad in ("2s", "a b", "", "x-y", "lambda", "if", "µ", "None", "ﬁ"):
        assert usable_name(bad) is not None, bad
    for taken in ("sin", "pi", "e", "where"):
        assert "already means something" in str(usable_name(taken))


# A formula and, built beside it, what it means: an oracle that shares no code with the compiler.
Pair = tuple[str, Callable[[Values, Values], Any]]


def _leaf() -> st.SearchStrategy[Pair]:
    numbers = st.floats(-100, 100).map(lambda n: (f"({n!r})", lambda x, y: np.float64(n)))
    names: list[Pair] = [
        ("x", lambda x, y: x),
        ("y", lambda x, y: y),
        ("pi", lambda x, y: np.float64(math.pi)),
    ]
    return st.one_of(numbers, st.sampled_from(names))


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "**": np.power,
    "<": lambda a, b: np.where(a < b, 1.0, 0.0),
    ">=": lambda a, b: np.where(a >= b, 1.0, 0.0),
    "==": lambda a, b: np.where(a == b, 1.0, 0.0),
    "and": lambda a, b: np.where((a != 0) & (b != 0), 1.0, 0.0),
    "or": lambda a, b: np.where((a != 0) | (b != 0), 1.0, 0.0),
}
_CALLS: dict[str, Callable[[Any], Any]] = {
    "sin": np.sin,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "log": np.log,
}


def _grow(children: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    def binary(sign: str, a: Pair, b: Pair) -> Pair:
        return f"({a[0]} {sign} {b[0]})", lambda x, y: _BINARY[sign](a[1](x, y), b[1](x, y))

    def call(name: str, a: Pair) -> Pair:
        return f"{name}({a[0]})", lambda x, y: _CALLS[name](a[1](x, y))

    def choice(a: Pair, b: Pair, c: Pair) -> Pair:
        return f"({a[0]} if {b[0]} else {c[0]})", lambda x, y: np.where(
            b[1](x, y) != 0, a[1](x, y), c[1](x, y)
        )

    def minus(a: Pair) -> Pair:
        return f"(-{a[0]})", lambda x, y: -a[1](x, y)

    return st.one_of(
        st.builds(binary, st.sampled_from(sorted(_BINARY)), children, children),
        st.builds(call, st.sampled_from(sorted(_CALLS)), children),
        st.builds(choice, children, children, children),
        st.builds(minus, children),
    )


@given(st.recursive(_leaf(), _grow, max_leaves=20))
def test_any_formula_is_computed_to_the_bit_as_it_is_built(pair: Pair) -> None:
    text, meaning = pair
    if len(text) > 2000:
        return
    with np.errstate(all="ignore"):
        expected = np.broadcast_to(np.asarray(meaning(X, Y), dtype=np.float64), X.shape)
        assert np.array_equal(np.broadcast_to(compute(text), X.shape), expected, equal_nan=True)


_TOKENS = (
    *(
        "x",
        "y",
        "z",
        "pi",
        "e",
        "sin",
        "exp",
        "min",
        "where",
        "if",
        "else",
        "and",
        "or",
        "not",
        "in",
        "is",
        "lambda",
        "for",
    ),
    *(
        "+",
        "-",
        "*",
        "/",
        "//",
        "%",
        "**",
        "<",
        "<=",
        "==",
        "!=",
        ">",
        "(",
        ")",
        ",",
        "[",
        "]",
        "{",
        "}",
        ".",
        ":",
        ":=",
        "=",
    ),
    *(
        "1",
        "0.5",
        "1e5",
        "9",
        "9**9**9",
        "1e400",
        "0x1f",
        "1j",
        "'a'",
        '"',
        "f'",
        "#",
        "\\",
        "\n",
        " ",
        "@",
        "~",
        "é",
        "\x00",
    ),
    *("__class__", "import", "await", "yield", "None", "True", "..."),
)


@pytest.mark.parametrize("seed", range(4))
def test_any_soup_of_tokens_is_computed_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    start = time.perf_counter()
    accepted, columns = 0, []
    for _ in range(5000):
        text = rng.choice(["", " "]).join(
            rng.choices(_TOKENS, k=rng.randrange(1, rng.choice([6, 6, 6, 40])))
        )
        try:
            result = compute(text)
        except ExpressionError as error:
            columns.append((error.column, len(text)))
            continue
        accepted += 1
        assert np.asarray(result).dtype == np.float64, text
    assert all(1 <= column <= length for column, length in columns)
    assert accepted > 30  # the soup has formulas in it, so that both ways are taken
    assert time.perf_counter() - start < 20


@given(st.text(max_size=60))
def test_any_text_is_computed_or_refused(text: str) -> None:
    try:
        expression = compile_expression(text, ["x", "y"])
    except ExpressionError:
        return
    expression(x=1.0, y=2.0)


def test_every_operation_has_an_arity() -> None:
    assert set(ARITY) == set(OPERATIONS)


def test_whole_powers_are_the_products_that_kernels_compute() -> None:
    x = np.linspace(-3, 3, 41)
    for n in range(2, 65):
        wanted = Programs((Operation("power", (Variable("x"), Constant(float(n)))),))
        products = [x]
        for it in wanted.instructions[1:]:
            assert it.operation == "multiply"
            products.append(products[it.arguments[0]] * products[it.arguments[1]])
        np.testing.assert_array_equal(compile_expression(f"x**{n}", ["x"])(x=x), products[-1])


def test_formulas_evaluated_together_are_those_evaluated_alone() -> None:
    """Results take the places of what is used no more, and of nothing else."""
    x, names = np.linspace(-3, 3, 41), ["x", "y"]
    texts = ["x", "2", "x*y + (x - y)", "(x*y + 1)**3 - x*y", "1 if 0 < x < y else x*y", "x - y"]
    trees = [compile_expression(it, names).tree for it in texts]
    for _ in range(2):
        alone = [evaluate(it, {"x": x, "y": x[::-1]}) for it in trees]
        together = evaluate_each(trees, {"x": x, "y": x[::-1]})
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(together[2], x * x[::-1] + (x - x[::-1]))
    np.testing.assert_array_equal(together[0], x)


@pytest.mark.parametrize("name", RECIPROCALS)
def test_reciprocals_are_one_over_their_functions(name: str) -> None:
    found = compile_expression(f"2*{name}(x + 3) - {name}(y)", ["x", "y"])(x=X, y=Y)
    one_over = OPERATIONS[RECIPROCALS[name]]
    np.testing.assert_allclose(found, 2 / one_over(X + 3) - 1 / one_over(Y), rtol=1e-14)
    assert compile_expression(f"{name}*2", [name])(**{name: 3.0}) == 6.0  # it is a good name still
    with pytest.raises(ExpressionError, match=f"{name} takes 1 argument, not 2"):
        compile_expression(f"{name}(x, y)", ["x", "y"])


class DeviceArray:
    """An array of which calls are as strict as CuPy's: no NumPy arrays beside it, and no functions
    of SciPy.
    """

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any) -> DeviceArray:
        assert method == "__call__"
        assert getattr(np, ufunc.__name__, None) is ufunc
        return self.plainly(ufunc, *given)

    def __array_function__(self, function: Any, types: Any, given: Any, more: Any) -> DeviceArray:
        assert not more
        return self.plainly(function, *given)

    def plainly(self, function: Any, *given: Any) -> DeviceArray:
        if any(isinstance(it, np.ndarray) for it in given):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        return DeviceArray(function(*[it.values if type(it) is type(self) else it for it in given]))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __getitem__(self, key: Any) -> DeviceArray:
        return DeviceArray(self.values[key])

    def astype(self, kind: Any) -> DeviceArray:
        return DeviceArray(self.values.astype(kind))


@pytest.mark.parametrize("name", sorted({*OPERATIONS} - {"erf"}))
def test_arrays_of_devices_are_never_mixed_with_those_of_numpy(name: str) -> None:
    least = int(ARITY[name][0])
    numbers = Constant(0.3), Operation("where", (Variable("t"), Constant(0.2), Constant(0.7)))
    for place in range(least):
        arguments: list[Any] = [numbers[k % 2] for k in range(least)]
        arguments[place] = Variable("u")
        tree = Operation("add", (Operation(name, tuple(arguments)), numbers[1]))
        values: dict[str, Any] = {"u": np.linspace(0.1, 0.9, 5), "t": np.float64(1.0)}
        found: Any = evaluate(tree, values | {"u": DeviceArray(values["u"])})
        np.testing.assert_array_equal(found.values, evaluate(tree, values))
