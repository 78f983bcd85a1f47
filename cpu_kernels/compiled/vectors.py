"""Vector registers as values in compiled code: load, fused multiply-add, moves between lanes,
transposition.

Idea    LLVM has vector types of any length and turns each operation on them into the widest
        instructions of the machine; Numba has no name for them. `vector_operations(dtype, lanes)`
        gives a Numba type for one such vector and one intrinsic per operation, each of which emits
        exactly what its name says.
Layout  Arrays are flat, or bare pointers (`elements_of`); an index counts elements. `load` and
        `store` need no more alignment than one element, `store_past_caches` that of a whole vector.
Limits  Lanes are a power of two. The caller guarantees that indices are inside.
Test    tests/kernels/test_vectors.py
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

from tetris_sim.cpu_kernels.compiled.intrinsics import element_address

_INT32, _INT64 = ir.IntType(32), ir.IntType(64)
_SCALARS = {"float64": ir.DoubleType(), "float32": ir.FloatType()}
_SUFFIX = {"float64": "f64", "float32": "f32"}


class VectorType(types.Type):
    """Numba's type of one vector register."""

    def __init__(self, dtype: str, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"{dtype}x{lanes}")


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, ir.VectorType(_SCALARS[kind.dtype], kind.lanes))


@dataclass(frozen=True)
class VectorOperations:
    """Intrinsics for vectors of one dtype and length, to be named in compiled functions.

    Attributes:
        type: the Numba type of such a vector.
        lanes: elements per vector.
        load: (array, i) -> array[i : i + lanes].
        store: (array, i, vector).
        store_past_caches: as `store`, but the line goes to memory without being read first and
            without taking a place in the caches; i must be aligned to a whole vector.
        broadcast: (scalar) -> the vector with it in every lane.
        multiply: (a, b) -> a * b, rounded.
        subtract: (a, b) -> a - b, rounded.
        negative: (a) -> -a; of a factor of `fma` it costs nothing.
        fma: (a, b, c) -> a * b + c, rounded once.
        shift_up: (vector, scalar) -> [scalar, vector[0], ..., vector[lanes - 2]].
        shift_down: (vector, scalar) -> [vector[1], ..., vector[lanes - 1], scalar].
        last: (vector) -> vector[lanes - 1].
        gather: (array, places, i) -> the vector of array[places[i + lane]].
        transpose_in: (source, i, stride, target, j): lanes vectors at source[i + k * stride] are
            read, transposed, and written at target[j + k * lanes].
        transpose_out: (source, i, target, j, stride): the inverse of `transpose_in`.
        transpose_out_past_caches: the same through `store_past_caches`.
    """

    type: VectorType
    lanes: int
    load: Any
    store: Any
    store_past_caches: Any
    broadcast: Any
    multiply: Any
    subtract: Any
    negative: Any
    fma: Any
    shift_up: Any
    shift_down: Any
    last: Any
    gather: Any
    transpose_in: Any
    transpose_out: Any
    transpose_out_past_caches: Any


def native_lanes(dtype: np.dtype[Any], width: int | None = None) -> int:
    """Elements of `dtype` in one vector register.

    Args:
        dtype: float64 or float32.
        width: bytes of a register; that of this machine if not given.
    """
    return (width or native_width()) // dtype.itemsize


@functools.cache
def native_width() -> int:
    """Bytes of this machine's widest vector register that LLVM uses: 64 with AVX-512, 32 with AVX2,
    16 with NEON.
    """
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    short = 32 if features.get("avx2") and features.get("fma") else 16
    return 64 if features.get("avx512f") else short


def align_pair(dtype: str, lanes: int, shift: int) -> Any:
    """The intrinsic (a, b) -> lanes `shift` to `shift + lanes - 1` of a followed by b."""
    return _shuffle_pair(dtype, lanes, tuple(shift + k for k in range(lanes)))


def halves_pair(dtype: str, lanes: int, *, high: bool) -> Any:
    """The intrinsic that joins the low (or high) 8-byte halves of the 16-byte pieces of a and b, as
    `vunpcklpd` does.

    Applied to its own two results it gives a and b back.
    """
    half = 8 // np.dtype(dtype).itemsize
    mask: list[int] = []
    for start in range(half if high else 0, lanes, 2 * half):
        mask += [*range(start, start + half), *range(lanes + start, lanes + start + half)]
    return _shuffle_pair(dtype, lanes, tuple(mask))


@functools.cache
def vector_operations(dtype: str, lanes: int) -> VectorOperations:
    """The operations on vectors of `lanes` elements of `dtype` ("float64" or "float32")."""
    kind = VectorType(dtype, lanes)
    transpositions = _transpositions(kind)
    return VectorOperations(
        kind, lanes, *_memory(kind), *_arithmetic(kind), *_lane_moves(kind), *transpositions
    )


@intrinsic
def prefetch(typing_context, array, index):
    """Ask for the cache line of array[index] to be read into the first-level cache."""

    def generate(context, builder, signature, arguments):
        place, number = arguments
        pointer = element_address(context, builder, signature.args[0], place, number)
        pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, _INT32, _INT32, _INT32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, _INT32(0), _INT32(3), _INT32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def fence_stores(typing_context):
    """Make stores past the caches visible to other threads before anything stored later."""

    def generate(context, builder, signature, arguments):
        if platform.machine() in ("x86_64", "AMD64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(
                cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse.sfence"), []
            )
        else:
            builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


def _shape(kind: VectorType) -> Any:
    return ir.VectorType(_SCALARS[kind.dtype], kind.lanes)


def _shuffled(builder: Any, a: Any, b: Any, mask: Any) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT32, len(mask)), list(mask)))


def read_vector(
    context: Any, builder: Any, kind: VectorType, array_type: Any, array: Any, index: Any
) -> Any:
    """Emit what `load` does."""
    pointer = element_address(context, builder, array_type, array, index)
    pointer = builder.bitcast(pointer, _shape(kind).as_pointer())
    # Alignment of one element is all that the caller promises.
    return builder.load(
        pointer, align=_shape(kind).element.get_abi_size(context.target_data), typ=_shape(kind)
    )


def write_vector(
    context: Any,
    builder: Any,
    kind: VectorType,
    array_type: Any,
    array: Any,
    index: Any,
    value: Any,
    *,
    past: bool = False,
) -> None:
    """Emit what `store` does, or `store_past_caches`."""
    pointer = element_address(context, builder, array_type, array, index)
    pointer = builder.bitcast(pointer, _shape(kind).as_pointer())
    element = _shape(kind).element.get_abi_size(context.target_data)
    instruction = builder.store(value, pointer, align=element * kind.lanes if past else element)
    if past:
        instruction.set_metadata("nontemporal", builder.module.add_metadata([_INT32(1)]))


def spread_number(builder: Any, kind: VectorType, number: Any) -> Any:
    """Emit what `broadcast` does."""
    undefined = ir.Constant(_shape(kind), ir.Undefined)
    one = builder.insert_element(undefined, number, _INT32(0))
    return _shuffled(builder, one, one, [0] * kind.lanes)


def add_product(builder: Any, kind: VectorType, terms: Sequence[Any]) -> Any:
    """Emit what `fma` does."""
    form = ir.FunctionType(_shape(kind), [_shape(kind)] * 3)
    wanted = builder.module, form, f"llvm.fma.v{kind.lanes}{_SUFFIX[kind.dtype]}"
    return builder.call(cgutils.get_or_insert_function(*wanted), terms)


def _memory(kind: VectorType) -> tuple[Any, Any, Any]:
    @intrinsic
    def load(typing_context, array, index):
        def generate(context, builder, signature, arguments):
            return read_vector(context, builder, kind, signature.args[0], *arguments)

        return kind(array, types.intp), generate

    # `past` stores go past the caches, for arrays that are not read again soon.
    def make_store(*, past: bool) -> Any:
        @intrinsic
        def store(typing_context, array, index, value):
            def generate(context, builder, signature, arguments):
                write_vector(context, builder, kind, signature.args[0], *arguments, past=past)
                return context.get_dummy_value()

            return types.void(array, types.intp, kind), generate

        return store

    return load, make_store(past=False), make_store(past=True)


def _arithmetic(kind: VectorType) -> tuple[Any, Any, Any, Any, Any]:
    # No operation has fast-math flags: each rounds as its scalar counterpart does.
    scalar = getattr(types, kind.dtype)

    @intrinsic
    def broadcast(typing_context, value):
        def generate(context, builder, signature, arguments):
            return spread_number(builder, kind, arguments[0])

        return kind(scalar), generate

    def make_pairwise(name: str) -> Any:
        @intrinsic
        def pairwise(typing_context, a, b):
            def generate(context, builder, signature, arguments):
                return getattr(builder, name)(*arguments)

            return kind(kind, kind), generate

        return pairwise

    @intrinsic
    def negative(typing_context, a):
        def generate(context, builder, signature, arguments):
            return builder.fneg(*arguments)

        return kind(kind), generate

    @intrinsic
    def fma(typing_context, a, b, c):
        def generate(context, builder, signature, arguments):
            return add_product(builder, kind, arguments)

        return kind(kind, kind, kind), generate

    return broadcast, make_pairwise("fmul"), make_pairwise("fsub"), negative, fma


def _lane_moves(kind: VectorType) -> tuple[Any, Any, Any, Any]:
    lanes, scalar = kind.lanes, getattr(types, kind.dtype)

    def make_shift(mask: list[int], lane: int) -> Any:
        @intrinsic
        def shift(typing_context, vector, value):
            def generate(context, builder, signature, arguments):
                moved = _shuffled(builder, arguments[0], arguments[0], mask)
                return builder.insert_element(moved, arguments[1], _INT32(lane))

            return kind(kind, scalar), generate

        return shift

    @intrinsic
    def last(typing_context, vector):
        def generate(context, builder, signature, arguments):
            return builder.extract_element(arguments[0], _INT32(lanes - 1))

        return scalar(kind), generate

    # Built lane by lane: LLVM turns it into a gather instruction where the processor has one.
    @intrinsic
    def gather(typing_context, array, places, index):
        def generate(context, builder, signature, arguments):
            data, numbers, first = arguments
            vector = ir.Constant(_shape(kind), ir.Undefined)
            for lane in range(lanes):
                number = builder.load(builder.gep(numbers, [builder.add(first, _INT64(lane))]))
                place = builder.gep(data, [builder.zext(number, _INT64)])
                vector = builder.insert_element(vector, builder.load(place), _INT32(lane))
            return vector

        return kind(array, places, types.intp), generate

    # A lane is freed by moving all others by one; the scalar fills it.
    up, down = [0, *range(lanes - 1)], [*range(1, lanes), 0]
    return make_shift(up, 0), make_shift(down, lanes - 1), last, gather


def _shuffle_pair(dtype: str, lanes: int, mask: tuple[int, ...]) -> Any:
    kind = vector_operations(dtype, lanes).type

    @intrinsic
    def shuffle(typing_context, a, b):
        def generate(context, builder, signature, arguments):
            first, second = arguments
            return _shuffled(builder, first, second, mask)

        return kind(kind, kind), generate

    return shuffle


def _transpositions(kind: VectorType) -> tuple[Any, Any, Any]:
    lanes = kind.lanes

    @intrinsic
    def transpose_in(typing_context, source, i, stride, target, j):
        def generate(context, builder, signature, arguments):
            array, first, step, other, begin = arguments
            places = [builder.add(first, builder.mul(step, _INT64(k))) for k in range(lanes)]
            source = signature.args[0]
            rows = [read_vector(context, builder, kind, source, array, place) for place in places]

            # Rows that lie `stride` apart become vectors that lie side by side.
            for k, row in enumerate(_transposed(builder, rows)):
                index = builder.add(begin, _INT64(k * lanes))
                write_vector(context, builder, kind, signature.args[3], other, index, row)
            return context.get_dummy_value()

        return types.void(source, types.intp, types.intp, target, types.intp), generate

    def make_out(*, past: bool) -> Any:
        @intrinsic
        def transpose_out(typing_context, source, i, target, j, stride):
            def generate(context, builder, signature, arguments):
                array, first, other, begin, step = arguments
                places = [builder.add(first, _INT64(k * lanes)) for k in range(lanes)]
                source = signature.args[0]
                rows = [
                    read_vector(context, builder, kind, source, array, place) for place in places
                ]

                for k, row in enumerate(_transposed(builder, rows)):
                    index = builder.add(begin, builder.mul(step, _INT64(k)))
                    write_vector(
                        context, builder, kind, signature.args[2], other, index, row, past=past
                    )
                return context.get_dummy_value()

            return types.void(source, types.intp, target, types.intp, types.intp), generate

        return transpose_out

    return transpose_in, make_out(past=False), make_out(past=True)


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """A square of vectors, transposed: in round `half`, blocks of half x half elements change
    places.
    """
    lanes = len(rows)
    half = 1
    while half < lanes:
        # Numbers from `lanes` on select from the second vector.
        low = [k if not k & half else lanes + (k ^ half) for k in range(lanes)]
        high = [(k ^ half) if not k & half else lanes + k for k in range(lanes)]
        swapped = list(rows)
        for k in range(lanes):
            if not k & half:
                swapped[k] = _shuffled(builder, rows[k], rows[k | half], low)
                swapped[k | half] = _shuffled(builder, rows[k], rows[k | half], high)
        rows = swapped
        half *= 2
    return rows


# Vectors that are chosen lane by lane, and the arithmetic that only such choices need.
#
# Idea    Both sides of a choice are computed, and each lane takes its own: one instruction.
# Limits  Arguments are vectors of one type (`vectors.py`).
# Test    tests/kernels/test_vectors.py


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
    # An integer comparison sees the sign bit of -0.0 and of NaN too.
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
