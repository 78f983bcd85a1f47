"""Single machine operations that Numba has no name for: loads without bounds logic, fused
multiply-add, a barrier.

Idea    Numba's own indexing adds a test for negative indices that keeps LLVM from vectorising `u[p
        - 1]`, and its `a * b + c` leaves the rounding to the compiler. These intrinsics emit
        exactly one LLVM operation each.
Layout  `load` and `store` take a flat array and an element index; the caller guarantees that it is
        inside.
Limits  `load` and `store` carry the promise that what is loaded from is never what is stored to
        within one function: use `load` for the source and `store` for the destination of a sweep,
        plain indexing for anything else.
Test    tests/kernels/test_intrinsics.py
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, event, types
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime import rtsys
from numba.core.sigutils import normalize_signature
from numba.core.types.misc import unliteral
from numba.extending import intrinsic

_INT64 = ir.IntType(64)
_CFUNC = "tetris_sim:cfunc"  # the event around what Numba compiles without telling


class _Collection(event.Listener):  # type: ignore[misc]
    """Let Python's garbage collector rest while Numba compiles.

    A compilation makes millions of objects that live as long as it does; looking through them again
    and again takes an eighth of its time. Numba compiles in one thread at a time, under its lock,
    so what is counted here needs none of its own.
    """

    def __init__(self) -> None:
        self._depth, self._was_enabled = 0, False

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._was_enabled = gc.isenabled()
            gc.disable()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self._was_enabled:
            gc.enable()


_COLLECTION = _Collection()
for kind in ("numba:compile", _CFUNC):
    event.register(kind, _COLLECTION)


class KeptCode(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a function, which loads compiled code without learning to compile any.

    Numba first registers all that it can compile, which imports 230 modules, SciPy among them: ten
    times as long as loading takes. Whoever compiles registers it then.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load the code that is kept for a signature; None if there is none."""
        rtsys.initialize(target_context)  # allocates and counts references for loaded code
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def njit(
    *signature: Any, cache: bool = False, owns_memory: bool = False, **options: Any
) -> Callable[[Any], Any]:
    """Numba's `njit` with at most one signature, over `KeptCode`.

    What a function is given outlives the call. Unless it owns memory besides, there is nothing to
    count references of, and a function without that is much shorter. Nobody calls it from C.
    """

    def compiled(function: Any) -> Any:
        made = numba.njit(_nrt=owns_memory, no_cfunc_wrapper=True, **options)(function)
        if cache:
            made._cache = KeptCode(function)
        if signature:
            made.compile(*signature)
            made.disable_compile()
        return made

    return compiled


def inner(function: Any) -> Any:
    """Compile a function into its callers, which are kept on disk, and once for any whole numbers.

    Python cannot call it: that takes as long to compile as the function. Numba would compile it
    again for every constant that it is called with.
    """
    made = njit(error_model="numpy", no_cpython_wrapper=True)(function)
    of_types = made.get_call_template

    def without_values(args: Any, kws: Any) -> Any:
        return of_types(tuple(map(unliteral, args)), kws)

    made.get_call_template = without_values
    return made


def cfunc(signature: Any, *, cache: bool, **options: Any) -> Callable[[Any], Any]:
    """Numba's `cfunc` over `KeptCode`."""

    def compiled(function: Any) -> Any:
        kept = {"_nrt": False} | options
        made = CFunc(function, normalize_signature(signature), locals={}, options=kept)
        if cache:
            made._cache = KeptCode(function)  # type: ignore[attr-defined]
        with global_compiler_lock, event.trigger_event(_CFUNC):
            made.compile()
        return made

    return compiled


def element_address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """The pointer to array[index], of an array or a bare pointer."""
    bare = isinstance(array_type, types.CPointer)  # type: ignore[attr-defined]
    data = array if bare else context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _promise_no_alias(builder: Any, instruction: Any, *, mine: str, other: str) -> None:
    # Scoped no-alias metadata: a load from the source never sees a store to the destination.
    # Without it LLVM compares every pair of pointers at run time and gives up on vectorising when
    # there are more than a few.
    module = builder.module
    domain = module.add_metadata(["tetris_sim.sweep"])
    scopes = {
        name: module.add_metadata([module.add_metadata([f"tetris_sim.{name}", domain])])
        for name in (mine, other)
    }
    instruction.set_metadata("alias.scope", scopes[mine])
    instruction.set_metadata("noalias", scopes[other])


@intrinsic
def load(typing_context, array, index):
    """array[index], without wraparound, and never aliased by a `store`."""

    def generate(context, builder, signature, arguments):
        value = builder.load(element_address(context, builder, signature.args[0], *arguments))
        _promise_no_alias(builder, value, mine="source", other="destination")
        return value

    return array.dtype(array, types.intp), generate


@intrinsic
def store(typing_context, array, index, value):
    """array[index] = value, without wraparound, and never aliased by a `load`."""

    def generate(context, builder, signature, arguments):
        address = element_address(context, builder, signature.args[0], arguments[0], arguments[1])
        instruction = builder.store(arguments[2], address)
        _promise_no_alias(builder, instruction, mine="destination", other="source")
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), generate


@intrinsic
def fma(typing_context, a, b, c):
    """A * b + c rounded once, in the type of a, b and c; the same bits on every machine."""

    def generate(context, builder, signature, arguments):
        # The LLVM intrinsic guarantees a single rounding, in software if the processor has no
        # instruction.
        kind = context.get_value_type(signature.return_type)
        name = f"llvm.fma.{'f64' if kind == ir.DoubleType() else 'f32'}"
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind, [kind] * 3), name
        )
        return builder.call(function, arguments)

    return a(a, a, a), generate


@intrinsic
def divide(typing_context, a, b):
    """A / b by the rules of IEEE: Numba's own raises where b is 0."""

    def generate(context, builder, signature, arguments):
        return builder.fdiv(*arguments)

    return a(a, b), generate


@intrinsic
def real_of(typing_context, bits, dtype):
    """The number of a dtype that has the lower bits of a whole number."""
    kind = dtype.dtype

    def generate(context, builder, signature, arguments):
        whole = builder.trunc(arguments[0], ir.IntType(kind.bitwidth))
        return builder.bitcast(whole, context.get_value_type(kind))

    return kind(types.int64, dtype), generate


@intrinsic(prefer_literal=True)
def call_library(typing_context, name, numbers):
    """Call a function of the C library's mathematics: "sin" for doubles, sinf for floats.

    Args:
        typing_context: from Numba.
        name: of the function for doubles, a literal.
        numbers: a tuple of its arguments.
    """
    if not isinstance(name, types.StringLiteral):  # type: ignore[attr-defined]
        return None
    kind = numbers.dtype
    symbol = name.literal_value + ("f" if kind == types.float32 else "")

    def generate(context, builder, signature, arguments):
        real = context.get_value_type(kind)
        values = cgutils.unpack_tuple(builder, arguments[1])
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(real, [real] * len(values)), symbol
        )
        # LLVM may not take it for what it knows by that name: it would call vectors of it, which
        # have other last bits.
        function.attributes.add("nobuiltin")
        return builder.call(function, values)

    return kind(name, numbers), generate


@intrinsic
def round_to_half(typing_context, value):
    """The float16 nearest to a float32, ties to even, as float32: what `cvt` of a GPU and NumPy's
    `astype` make of it.

    In bits, because LLVM calls a function that is not there where a processor has no instruction
    for it.
    """

    def generate(context, builder, signature, arguments):
        (value,) = arguments
        real, bits = value.type, ir.IntType(32)
        sign = builder.and_(builder.bitcast(value, bits), bits(0x80000000))
        size = builder.and_(builder.bitcast(value, bits), bits(0x7FFFFFFF))
        magnitude = builder.bitcast(size, real)

        # 13 of 23 bits of the fraction go; a carry into the exponent is right.
        odd = builder.and_(builder.lshr(size, bits(13)), bits(1))
        normal = builder.and_(builder.add(builder.add(size, bits(0xFFF)), odd), bits(0xFFFFE000))
        # Below 2^-14 numbers are 2^-24 apart, as those of float32 are from 0.5 to 1.
        small = builder.bitcast(builder.fsub(builder.fadd(magnitude, real(0.5)), real(0.5)), bits)
        finite = builder.select(builder.fcmp_ordered("<", magnitude, real(2.0**-14)), small, normal)
        nearest = builder.select(
            builder.fcmp_ordered(">=", magnitude, real(65520.0)), bits(0x7F800000), finite
        )

        # A NaN keeps its bits.
        rounded = builder.bitcast(builder.or_(nearest, sign), real)
        return builder.select(builder.fcmp_unordered("uno", value, value), value, rounded)

    return value(value), generate


@intrinsic
def fetch_add(typing_context, array, index, value):
    """Add atomically to array[index]; the old value."""

    def generate(context, builder, signature, arguments):
        address = element_address(context, builder, signature.args[0], arguments[0], arguments[1])
        return builder.atomic_rmw("add", address, arguments[2], "acq_rel")

    return types.int64(array, types.intp, types.int64), generate


@intrinsic
def load_acquire(typing_context, array, index):
    """array[index]; everything that was released before it was stored is visible."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(
            element_address(context, builder, signature.args[0], *arguments),
            "acquire",
            8,
            typ=_INT64,
        )

    return types.int64(array, types.intp), generate


@intrinsic
def store_release(typing_context, array, index, value):
    """array[index] = value; everything done before becomes visible with it."""

    def generate(context, builder, signature, arguments):
        address = element_address(context, builder, signature.args[0], arguments[0], arguments[1])
        builder.store_atomic(arguments[2], address, "release", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), generate


@intrinsic
def pause(typing_context):
    """Tell the core that this is a spin loop."""

    def generate(context, builder, signature, arguments):
        # Numba's LLVM has no assembler, but each architecture's spin hint is an intrinsic too.
        if builder.module.triple.startswith(("x86_64", "i686")):
            name, kinds, values = "llvm.x86.sse2.pause", [], []
        else:
            name, kinds, values = (
                "llvm.aarch64.hint",
                [ir.IntType(32)],
                [ir.IntType(32)(1)],
            )  # 1 is YIELD
        kind = ir.FunctionType(ir.VoidType(), kinds)
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def sched_yield(typing_context):
    """Give the core to another thread (libc)."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def call_box(
    typing_context,
    kernel,
    u,
    v,
    weights,
    base,
    plane,
    last_plane,
    row,
    last_row,
    column,
    last_column,
    pitch0,
    pitch1,
):
    """Call the function at an address with three pointers and nine numbers."""

    def generate(context, builder, signature, arguments):
        kinds = [value.type for value in arguments[1:]]
        function = builder.inttoptr(
            arguments[0], ir.FunctionType(ir.VoidType(), kinds).as_pointer()
        )
        builder.call(function, arguments[1:])
        return context.get_dummy_value()

    return types.void(types.intp, u, v, weights, *(types.intp,) * 9), generate


@intrinsic
def call_kernel(typing_context, address, reals, integers):
    """Call the function at an address with two pointers."""

    def generate(context, builder, signature, arguments):
        kinds = [value.type for value in arguments[1:]]
        function = builder.inttoptr(
            arguments[0], ir.FunctionType(ir.VoidType(), kinds).as_pointer()
        )
        builder.call(function, arguments[1:])
        return context.get_dummy_value()

    return types.void(types.intp, reals, integers), generate


@intrinsic
def call_stage(typing_context, address, places, counts, numbers):
    """Call the function at an address with three addresses."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [_INT64] * 3)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(*(types.intp,) * 4), generate


def _chosen(sign: str) -> Any:
    @intrinsic
    def chosen(typing_context, one, other):
        """One of two whole numbers; Numba's own min and max are compiled into every caller."""

        def generate(context, builder, signature, arguments):
            return builder.select(builder.icmp_signed(sign, *arguments), *arguments)

        return types.intp(types.intp, types.intp), generate

    return chosen


smaller, larger = _chosen("<"), _chosen(">")


@intrinsic
def call_fill(typing_context, address, v, told, p, source, f, side, k):
    """Call the function at an address with two addresses and five numbers."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [_INT64] * 7)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(*(types.intp,) * 8), generate


@intrinsic
def address_of(typing_context, array):
    """The address of the first element of an array."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(array)(context, builder, arguments[0]).data
        return builder.ptrtoint(data, _INT64)

    return types.intp(array), generate


@intrinsic
def call_ghost(typing_context, address, v, operands, code, source):
    """Call the function at an address with two pointers and two numbers; it returns an element of
    the first.
    """

    def generate(context, builder, signature, arguments):
        real = context.get_value_type(signature.return_type)
        kinds = [value.type for value in arguments[1:]]
        function = builder.inttoptr(arguments[0], ir.FunctionType(real, kinds).as_pointer())
        return builder.call(function, arguments[1:])

    return v.dtype(types.intp, v, operands, types.intp, types.intp), generate


@intrinsic
def record_at(typing_context, pointer):
    """The record that a bare pointer points to, to be read and written by the names of its
    fields.
    """

    def generate(context, builder, signature, arguments):
        return arguments[0]  # a record is handed around as the pointer to it

    return pointer.dtype(pointer), generate


@intrinsic
def elements_at(typing_context, address, dtype):
    """A bare pointer to elements of a dtype at an address."""
    kind = types.CPointer(dtype.dtype)  # type: ignore[attr-defined]

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(kind))

    return kind(address, dtype), generate


@intrinsic
def moved(typing_context, pointer, elements):
    """A bare pointer moved by some elements."""

    def generate(context, builder, signature, arguments):
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, types.intp), generate


@intrinsic
def elements_of(typing_context, array):
    """The elements of a contiguous array as a bare pointer.

    It can be indexed like the array, and the operations on vectors take it for one. Numba
    counts references to arrays that are handed to functions, with atomic operations that empty the
    store buffer of the core: in a loop over short rows they cost more than the arithmetic.
    """

    def generate(context, builder, signature, arguments):
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate  # type: ignore[attr-defined]
