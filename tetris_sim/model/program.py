"""Programs: formulas as lists of operations in one order for every device.

A formula (`formula.py`) is a tree; a program holds the same as instructions on registers: common
subexpressions are computed once, sums of products become fused multiply-adds, and everything that
has several meanings in different languages (minimum, remainder, powers) is written out.
`reference.py` evaluates the tree with NumPy; `cpu_kernels` and `gpu_kernels` print the
instructions, one line each. Programs of + - * /, sqrt, fma, comparisons and `where` are bitwise
identical wherever they are printed; sin, exp and the like depend on the math library of a device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tetris_sim.model.formula import (
    COMPARISONS,
    Comparison,
    Constant,
    Node,
    Operation,
    Variable,
    walk,
)
from tetris_sim.model.formula import evaluate as evaluate_tree

INPUT, CONSTANT = "input", "constant"
LOGICAL = frozenset({*COMPARISONS, "and", "or", "not"})  # whose results are true or false
_LARGEST_POWER = 64  # that is written out as products
# Every other operation that instructions may have; their arguments and results are numbers, except
# for the first argument of `where`, which is true or false.
NUMERIC = frozenset(
    {"add", "subtract", "multiply", "divide", "fma", "negative", "where", "sqrt", "abs"}
    | {"floor", "ceil", "fmod", "power", "sin", "cos", "tan", "asin", "acos", "atan", "atan2"}
    | {"sinh", "cosh", "tanh", "exp", "log", "log10", "erf"}
)
# Operations whose last bits depend on the math library of a device.
INEXACT = NUMERIC - {
    *("add", "subtract", "multiply", "divide", "fma", "negative", "where", "sqrt", "abs"),
    *("floor", "ceil", "fmod"),
}


@dataclass(frozen=True)
class Instruction:
    """One register and the operation that computes it.

    Attributes:
        operation: of `NUMERIC` or `LOGICAL`, or `INPUT` or `CONSTANT`.
        arguments: numbers of earlier registers.
        name: of an input.
        value: of a constant.
    """

    operation: str
    arguments: tuple[int, ...] = ()
    name: str = ""
    value: float = 0.0

    @property
    def is_logical(self) -> bool:
        """Whether the register is true or false instead of a number."""
        return self.operation in LOGICAL

    @property
    def is_given(self) -> bool:
        """Whether the register is an input or a constant, so nothing is computed for it."""
        return self.operation in (INPUT, CONSTANT)


@dataclass(frozen=True, eq=False)
class Program:
    """A formula that is computed at every point of a grid or of a face.

    Programs are equal if their instructions are.

    Attributes:
        tree: the formula; its variables are the inputs.
    """

    tree: Node = field(repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @functools.cached_property
    def text(self) -> str:
        """The instructions as text, which tells 0.0 from -0.0."""
        # A tree of shared parts is a graph: written out, or compared, it may never end.
        return repr(self.instructions)

    @functools.cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """Registers in the order in which they are computed; the last one is the result."""
        return _Lowering().lower(self.tree)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, in the order in which they are first used."""
        return tuple(it.name for it in self.instructions if it.operation == INPUT)

    def reads(self, *names: str) -> bool:
        """Whether any of some names is an input."""
        return not set(names).isdisjoint(self.inputs)


@dataclass(frozen=True, eq=False)
class Programs:
    """Several formulas that are computed together, common subexpressions once.

    Attributes:
        trees: the formulas; their variables are the inputs.
    """

    trees: tuple[Node, ...]

    @functools.cached_property
    def _lowered(self) -> tuple[tuple[Instruction, ...], tuple[int, ...]]:
        lowering = _Lowering()
        results = tuple(lowering.number(lowering.visit(tree)) for tree in self.trees)
        return _used(lowering.registers, results)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """Registers in the order in which they are computed."""
        return self._lowered[0]

    @property
    def results(self) -> tuple[int, ...]:
        """The register of each formula's result; some may be the same."""
        return self._lowered[1]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, in the order in which they are first used."""
        return tuple(it.name for it in self.instructions if it.operation == INPUT)


def structure_of(trees: tuple[Node, ...]) -> list[Any]:
    """All parts of some trees, shared ones once, with the numbers of their arguments: equal, and
    of equal text, for trees that are built alike.
    """
    parts = [*walk(Operation("all", trees))]
    numbers = {id(it): k for k, it in enumerate(parts)}
    found: list[Any] = []
    for it in parts:
        if isinstance(it, Operation):
            found.append((it.name, [numbers[id(below)] for below in it.arguments]))
        elif isinstance(it, Comparison):
            found.append((it.signs, [numbers[id(below)] for below in it.operands]))
        else:
            found.append(it)
    return found


def print_lines(
    program: Program | Programs,
    phrase: Callable[[Instruction, tuple[str, ...]], str],
    prefix: str = "r",
) -> Iterator[tuple[str, str, Instruction]]:
    """Yield the registers of a program as text: (name of the register, expression, instruction).

    Args:
        program: the program to print.
        phrase: from an instruction and the names of its arguments to an expression of some
            language.
        prefix: of the names of registers.
    """
    for number, it in enumerate(program.instructions):
        arguments = tuple(f"{prefix}{k}" for k in it.arguments)
        yield f"{prefix}{number}", phrase(it, arguments), it


def _used(
    registers: list[Instruction], results: tuple[int, ...]
) -> tuple[tuple[Instruction, ...], tuple[int, ...]]:
    """Drop registers that no result needs (products that became parts of sums), and renumber."""
    # Arguments precede their users, so one backward pass finds everything that is needed.
    needed = {*results}
    for number in reversed(range(len(registers))):
        if number in needed:
            needed.update(registers[number].arguments)
    places = {old: new for new, old in enumerate(sorted(needed))}
    kept = [registers[old] for old in sorted(needed)]
    moved = (replace(it, arguments=tuple(places[k] for k in it.arguments)) for it in kept)
    return tuple(moved), tuple(places[it] for it in results)


@dataclass
class _Lowering:
    """Lowers trees to registers; equal instructions share a register (value numbering)."""

    registers: list[Instruction] = field(default_factory=list)
    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    visited: dict[int, int] = field(default_factory=dict)  # by identity of a part of the tree

    def lower(self, tree: Node) -> tuple[Instruction, ...]:
        result = self.number(self.visit(tree))

        # The last register must be the result. Adding -0.0 copies it without changing any value,
        # not even the sign of zero.
        if result != len(self.registers) - 1:  # shared with what came before
            self.registers.append(Instruction("add", (result, self.constant(-0.0))))
        return tuple(self.registers)

    def visit(self, node: Node) -> int:
        if id(node) not in self.visited:
            self.visited[id(node)] = self.enter(node)
        return self.visited[id(node)]

    def enter(self, node: Node) -> int:
        match node:
            case Constant(value):
                return self.constant(value)
            # Inputs and constants take part in value numbering like any other instruction.
            case Variable(name):
                return self.put(Instruction(INPUT, name=name))
            case Comparison(signs, operands):
                sides = [self.number(self.visit(operand)) for operand in operands]
                pairs = [self.emit(sign, sides[k], sides[k + 1]) for k, sign in enumerate(signs)]
                return functools.reduce(lambda a, b: self.emit("and", a, b), pairs)
            case Operation(name, arguments):
                return self.operation(name, [self.visit(argument) for argument in arguments])

    def put(self, it: Instruction) -> int:
        """Return the register of an instruction, a new one if it is not there yet."""
        # 0.0 == -0.0 in Python, but they are different constants here, so the key holds the sign.
        key = (it.operation, it.arguments, it.name, it.value, math.copysign(1.0, it.value))
        if key not in self.numbers:
            self.numbers[key] = len(self.registers)
            self.registers.append(it)
        return self.numbers[key]

    def constant(self, value: float) -> int:
        return self.put(Instruction(CONSTANT, value=float(value)))

    def emit(self, operation: str, *arguments: int) -> int:
        return self.put(Instruction(operation, arguments))

    def value(self, register: int) -> float | None:
        """Return the value of a register that is a constant, else None."""
        it = self.registers[register]
        return it.value if it.operation == CONSTANT else None

    def number(self, register: int) -> int:
        """Convert a register to a number: true counts as 1."""
        if not self.registers[register].is_logical:
            return register
        return self.emit("where", register, self.constant(1.0), self.constant(0.0))

    def truth(self, register: int) -> int:
        """Convert a register to true or false: any number but 0 is true."""
        if self.registers[register].is_logical:
            return register
        return self.emit("!=", register, self.constant(0.0))

    def operation(self, name: str, given: list[int]) -> int:
        if name in ("and", "or"):
            return functools.reduce(
                lambda a, b: self.emit(name, a, b), [self.truth(it) for it in given]
            )
        if name == "not":
            return self.emit("not", self.truth(given[0]))
        if name == "where":
            return self.where(self.truth(given[0]), self.number(given[1]), self.number(given[2]))

        # Constant folding uses the NumPy evaluation, so the reference agrees.
        given = [self.number(it) for it in given]
        constants = [self.value(it) for it in given]
        if all(it is not None for it in constants):
            tree = Operation(name, tuple(Constant(it) for it in constants if it is not None))
            with np.errstate(all="ignore"):
                return self.constant(float(evaluate_tree(tree, {})))

        # Operations with their own lowering are found by name; all others are emitted as they are.
        special = getattr(self, f"lower_{name}", None)
        return special(*given) if special else self.emit(name, *given)

    def where(self, condition: int, yes: int, no: int) -> int:
        return yes if yes == no else self.emit("where", condition, yes, no)

    def factors(self, register: int) -> tuple[int, int] | None:
        """Return the factors of a register that is a product, else None."""
        it = self.registers[register]
        return (it.arguments[0], it.arguments[1]) if it.operation == "multiply" else None

    def lower_positive(self, a: int) -> int:
        return a

    def lower_negative(self, a: int) -> int:
        return self.emit("negative", a)

    def lower_add(self, a: int, b: int) -> int:
        # Contract a product and a sum to one fma here, so that no compiler decides it. If both
        # sides are products, the left one is contracted.
        for product, other in ((a, b), (b, a)):
            if (factors := self.factors(product)) is not None:
                return self.emit("fma", *factors, other)
        return self.emit("add", a, b)

    def lower_subtract(self, a: int, b: int) -> int:
        # a - p q = fma(-p, q, a) and p q - b = fma(p, q, -b): negation is exact, so each rounds
        # once.
        if (factors := self.factors(b)) is not None:
            return self.emit("fma", self.emit("negative", factors[0]), factors[1], a)
        if (factors := self.factors(a)) is not None:
            return self.emit("fma", *factors, self.emit("negative", b))
        return self.emit("subtract", a, b)

    def lower_divide(self, a: int, b: int) -> int:
        # Division by a power of two equals multiplication by its inverse, which is exact; the
        # bounds keep the inverse away from overflow and subnormals.
        by = self.value(b)
        if (
            by is not None
            and by != 0
            and abs(math.frexp(by)[0]) == 0.5
            and 1e-300 < abs(by) < 1e300
        ):
            return self.emit("multiply", a, self.constant(1 / by))  # exact for powers of two
        return self.emit("divide", a, b)

    def lower_power(self, a: int, b: int) -> int:
        # Small whole powers become products and square roots: `pow` differs between math libraries.
        exponent = self.value(b)
        if exponent is None or not (exponent == 0.5 or self.is_small(exponent)):
            return self.emit("power", a, b)
        if exponent == 0.5:
            return self.emit("sqrt", a)
        product = self.product(a, int(abs(exponent)))
        return product if exponent >= 0 else self.emit("divide", self.constant(1.0), product)

    @staticmethod
    def is_small(exponent: float) -> bool:
        return abs(exponent) <= _LARGEST_POWER and exponent.is_integer()

    def product(self, a: int, n: int) -> int:
        """Return a to the power of n, by squaring."""
        if n == 0:
            return self.constant(1.0)
        if n == 1:
            return a
        half = self.product(a, n // 2)
        square = self.emit("multiply", half, half)
        return self.emit("multiply", square, a) if n % 2 else square

    def lower_remainder(self, a: int, b: int) -> int:
        # As in Python, the result has the sign of b, while fmod has that of a.
        rest, zero = self.emit("fmod", a, b), self.constant(0.0)
        other_sign = self.emit("<", self.emit("multiply", rest, b), zero)
        return self.where(other_sign, self.emit("add", rest, b), rest)

    def lower_floor_divide(self, a: int, b: int) -> int:
        # (a - remainder) / b is a whole number up to rounding, and + 1/2 makes `floor` hit it.
        whole = self.emit("divide", self.emit("subtract", a, self.lower_remainder(a, b)), b)
        return self.emit("floor", self.emit("add", whole, self.constant(0.5)))

    def lower_min(self, *given: int) -> int:
        return functools.reduce(lambda a, b: self.smaller(a, b, "<="), given)

    def lower_max(self, *given: int) -> int:
        return functools.reduce(lambda a, b: self.smaller(a, b, ">="), given)

    def smaller(self, a: int, b: int, sign: str) -> int:
        # A NaN on either side propagates: a if a is NaN, and b if the comparison with it is false.
        first = self.emit("or", self.emit(sign, a, b), self.emit("!=", a, a))
        return self.where(first, a, b)

    def lower_clip(self, a: int, low: int, high: int) -> int:
        return self.smaller(self.smaller(a, low, ">="), high, "<=")

    def lower_hypot(self, *given: int) -> int:
        # Summed in the order of the arguments, without the scaling that hypot of a math library
        # has.
        first, *others = given
        total = self.emit("multiply", first, first)
        for it in others:
            total = self.emit("fma", it, it, total)
        return self.emit("sqrt", total)

    def lower_sign(self, a: int) -> int:
        zero = self.constant(0.0)

        # NaN and signed zeros fail both comparisons and pass through.
        below = self.where(self.emit("<", a, zero), self.constant(-1.0), a)
        return self.where(self.emit(">", a, zero), self.constant(1.0), below)

    def lower_heaviside(self, a: int) -> int:
        zero, half = self.constant(0.0), self.constant(0.5)

        # NaN fails every comparison and passes through.
        at_zero = self.where(self.emit("==", a, zero), half, a)
        below = self.where(self.emit("<", a, zero), zero, at_zero)
        return self.where(self.emit(">", a, zero), self.constant(1.0), below)
