"""The emulation of tests finds what a kernel may do wrong."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.emulator.emulation import (
    COMPILER,
    NO_COMPILER,
    Emulated,
    EmulationError,
    at,
    emulate,
    translate,
)
from tetris_sim.gpu_kernels.common.layout import memory_argument

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

N = 64  # threads of the block, and points
HEAD = '#include "async_copy.cuh"\n#include "common.cuh"\n'
KERNEL = """
extern "C" __global__ void __launch_bounds__(64) NAME(const real* src, real* dst, const Memory memory) {
    extern __shared__ __align__(16) double shared[];
    Arrival* const arrival = reinterpret_cast<Arrival*>(shared + 64);
    const int i = threadIdx.x;
    BODY
}
"""
BULK = """
    if (i == 0) init_arrival(arrival);
    __syncthreads();
    if (i == 0) expect_bytes(arrival, EXPECTED);
    if (i == 0) bulk_in(shared, src, 512, arrival);
    wait_arrival(arrival, 0);
"""
AWAY = "shared[i] = src[i]; __syncthreads(); if (i == 0) bulk_out(dst, shared, 512); bulk_commit();"

RIGHT = {
    "barrier": "shared[i] = src[63 - i]; __syncthreads(); dst[i] = shared[63 - i];",
    "shuffle": "const double up = __shfl_up_sync(~0u, src[i], 1); dst[i] = i % 32 ? up + src[i] - src[i - 1] : up;",
    "copy": "if (i % 2 == 0) copy_16(shared + i, src + i, true); copy_commit(); copy_wait<0>(); __syncthreads(); "
    "dst[i] = shared[i];",
    "bulk copy": BULK.replace("EXPECTED", "512") + "dst[i] = shared[i];",
    "bulk copy away": AWAY + "bulk_wait_read();",
    "early exit": "if (i >= 32) { dst[i] = src[i]; return; } __syncthreads(); dst[i] = src[i];",
}
WRONG = {
    "a barrier is missing": ("shared[i] = src[63 - i]; dst[i] = shared[63 - i];", "not equal"),
    "lanes do not wait for each other": (
        "shared[i] = src[i]; dst[i] = shared[i ^ 1];",
        "not equal",
    ),
    "a copy is used too early": (
        (
            "if (i % 2 == 0) copy_16(shared + i, src + i, true); dst[i] = shared[i]; "
            "copy_commit(); copy_wait<0>();"
        ),
        "not equal",
    ),
    "a group too few is waited for": (
        "if (i % 2 == 0) copy_16(shared + i, src + i, true); copy_commit(); copy_wait<1>(); "
        "__syncthreads(); dst[i] = shared[i];",
        "before its copies have arrived",
    ),
    "a copy begins too early in memory": (
        "copy_16(shared, src - 2, true); copy_wait<0>();",
        "not allocated",
    ),
    "a copy goes too far in memory": (
        "copy_16(shared, src + 64, true); copy_commit(); copy_wait<0>();",
        "not allocated",
    ),
    "a copy is not aligned": (
        "copy_16(shared, src + 1, true); copy_commit(); copy_wait<0>();",
        "not aligned",
    ),
    "a copy goes too far in shared memory": (
        "copy_16(shared + 64, src, true); copy_commit(); copy_wait<0>();",
        "beyond the end of shared memory",
    ),
    "a store goes too far": ("shared[i + 8] = 0;", "beyond the end of shared memory"),
    "too few bytes are expected": (BULK.replace("EXPECTED", "496"), "waits for ever"),
    "an mbarrier is overwritten": (
        "if (i == 0) { init_arrival(arrival); shared[64] = 0; expect_bytes(arrival, 0); }",
        "overwritten",
    ),
    "a bulk copy reads what has changed": (
        AWAY + "__syncthreads(); shared[i] = 0; bulk_wait_read();",
        "changed before",
    ),
    "nobody waits for a bulk copy": (AWAY, "before its bulk copies"),
    "a lane has left": ("if (i == 5) return; __syncwarp();", "waits for ever"),
    "lanes meet in different instructions": (
        "if (i % 2) __syncwarp(); else __shfl_up_sync(~0u, i, 1);",
        "different",
    ),
    "a thread waits for the next phase": (
        BULK.replace("EXPECTED", "512") + "wait_arrival(arrival, 1);",
        "waits for ever",
    ),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """All kernels."""
    bodies = [*RIGHT.values(), *(body for body, _ in WRONG.values())]
    path = tmp_path_factory.mktemp("emulation") / "kernels.cu"
    kernels = [KERNEL.replace("NAME", name_of(body)).replace("BODY", body) for body in bodies]
    path.write_text(HEAD + "".join(kernels))
    return emulate(path, {"TS_REAL": "double"})


def name_of(body: str) -> str:
    return "kernel_" + hashlib.sha256(body.encode()).hexdigest()


def run(library: Emulated, body: str) -> None:
    memory = memory_argument(N, N, ((0, 1), (0, 1), (0, N)))
    src = aligned(np.arange(N, dtype=np.float64))
    for descending in (False, True):
        dst = aligned(np.zeros(N))
        library.launch(
            name_of(body),
            (1, 1, 1),
            (N, 1, 1),
            (at(src), at(dst), memory),
            8 * N + 8,
            copied=(src, dst, memory),
            descending=descending,
        )
        np.testing.assert_array_equal(dst, src)


def aligned(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    flat = np.empty(values.size + 16)
    flat = flat[-flat.ctypes.data % 128 // 8 :][: values.size]
    flat[...] = values
    return flat


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT.keys())
def test_a_kernel_that_is_right_runs(body: str, library: Emulated) -> None:
    run(library, body)


@pytest.mark.parametrize(("body", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_found(body: str, message: str, library: Emulated) -> None:
    with pytest.raises(AssertionError, match=message):
        run(library, body)


def test_inline_ptx_that_is_not_known_is_an_error() -> None:
    with pytest.raises(EmulationError, match="bar"):
        translate('void f() { asm volatile("bar.sync 1, 64;" ::: "memory"); }')
