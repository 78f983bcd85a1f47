"""Vectors that are chosen lane by lane, and the arithmetic that only such choices need.

Idea    Both sides of a choice are computed, and each lane takes its own: one instruction.
Limits  Arguments are vectors of one type (`vectors.py`).
Test    tests/kernels/test_vectors.py
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


@intrinsic
def where_reached(typing_context, value, mark, yes, no):
    """`yes` in lanes whose value is the mark or more, `no` in others and where one is NaN."""

    def generate(context, builder, signature, arguments):
        value, mark, yes, no = arguments
        return builder.select(builder.fcmp_ordered(">=", value, mark), yes, no)

    return value(value, value, value, value), generate


@intrinsic
def where_signed(typing_context, sign, yes, no):
    """`yes` in lanes whose sign is negative, that of -0.0 too, `no` in others."""

    def generate(context, builder, signature, arguments):
        sign, yes, no = arguments
        return builder.select(_signs(builder, sign), yes, no)

    return sign(sign, sign, sign), generate


@intrinsic
def any_signed(typing_context, vector):
    """Whether some lane's sign is negative, that of -0.0 too."""

    def generate(context, builder, signature, arguments):
        lanes = ir.IntType(arguments[0].type.count)
        return builder.icmp_unsigned(
            "!=", builder.bitcast(_signs(builder, *arguments), lanes), lanes(0)
        )

    return types.boolean(vector), generate


def _signs(builder: Any, vector: Any) -> Any:
    size = 64 if vector.type.element == ir.DoubleType() else 32
    bits = ir.VectorType(ir.IntType(size), vector.type.count)
    return builder.icmp_signed("<", builder.bitcast(vector, bits), ir.Constant(bits, None))


def _pairwise(name: str) -> Any:
    @intrinsic
    def pairwise(typing_context, a, b):
        def generate(context, builder, signature, arguments):
            return getattr(builder, name)(*arguments)

        return a(a, a), generate

    return pairwise


add_vector, divide_vector = _pairwise("fadd"), _pairwise("fdiv")
