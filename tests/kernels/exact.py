"""Programs and chains of fused multiply-adds in exact arithmetic, rounded once per operation."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from tetris_sim.formula import COMPARISONS, OPERATIONS
from tetris_sim.program import CONSTANT, INEXACT, INPUT, Program


def fma(a: Any, b: Any, c: Any) -> Any:
    """A * b + c of NumPy scalars of one type, rounded once to it."""
    kind = type(c)
    with np.errstate(all="ignore"):
        plain = a * b + c
        if not all(map(np.isfinite, (a, b, c))):
            return plain
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        if exact == 0:
            return plain
        largest = np.finfo(kind).max
        last_place = largest - np.nextafter(largest, kind(0))
        if abs(exact) >= Fraction(float(largest)) + Fraction(float(last_place)) / 2:
            return kind(math.copysign(math.inf, exact))
        near = kind(float(exact))
        places = [near, np.nextafter(near, kind(math.inf)), np.nextafter(near, kind(-math.inf))]
    finite = [it for it in places if np.isfinite(it)]
    best = min(abs(Fraction(float(it)) - exact) for it in finite)
    nearest = [it for it in finite if abs(Fraction(float(it)) - exact) == best]
    even = [it for it in nearest if not int(it.view(f"u{it.itemsize}")) & 1]
    return nearest[0] if len(nearest) == 1 else even[0]


def run_program(program: Program, kind: Any, **inputs: Any) -> Any:
    """The instructions one by one on scalars of a NumPy type."""
    known: dict[str, Any] = {
        **OPERATIONS,
        **COMPARISONS,
        "fma": fma,
        "fmod": np.fmod,
        "and": np.logical_and,
        "or": np.logical_or,
        "not": np.logical_not,
        "where": lambda condition, yes, no: yes if condition else no,
    }
    registers: list[Any] = []
    with np.errstate(all="ignore"):
        for it in program.instructions:
            if it.operation == INPUT:
                registers.append(kind(inputs[it.name]))
            elif it.operation == CONSTANT:
                registers.append(kind(it.value))
            else:
                registers.append(known[it.operation](*(registers[k] for k in it.arguments)))
    return registers[-1]


def is_exact(program: Program) -> bool:
    """Whether a program has the same bits on every device."""
    return not any(it.operation in INEXACT for it in program.instructions)
