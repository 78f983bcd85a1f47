"""plain.cu and frame.cu as C++ for the host, one thread at a time: what they compute can be tested without a GPU.

Only for kernels that need nothing of a warp, and in which a thread alone never waits for another.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tetris_sim.gpu_kernels import build

FOLDER = Path(build.__file__).parent
COMPILER = shutil.which("g++") or shutil.which("c++")

_SHIM = """
#include <cmath>
#include <algorithm>
using std::min; using std::max;
#define __device__
#define __global__
#define __constant__
#define __shared__
#define __grid_constant__
#define __noinline__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __syncthreads()
struct Dim3 { int x, y, z; };
static Dim3 threadIdx, blockIdx, blockDim, gridDim;
static inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
static inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static double shared[1 << 16];
"""

_FRAME = """
extern "C" void run(const real* src, real* dst, const Memory* memory, const Weights* weights, const Box* tiles, int n,
    const Domain* domain, int capacity) {
    blockDim = {1, 1, 1};
    threadIdx = {0, 0, 0};
    for (int tile = 0; tile < n; tile++) {
        blockIdx = {tile, 0, 0};
        frame(src, dst, *memory, *weights, tiles, domain, capacity);
    }
}
"""

_PLAIN = """
template <typename Launch> static void each(const Box& box, Launch launch) {
    blockDim = {1, 1, 1};
    threadIdx = {0, 0, 0};
    gridDim = {1, 1, 1};
    for (int k = 0; k < box.high[2] - box.low[2]; k++) {
        blockIdx = {k, 0, 0};
        launch();
    }
}
extern "C" void run_sweep(const real* src, real* dst, const Memory* memory, const Box* box, const Weights* weights,
    const Box* far, const Faces* faces) {
    each(*box, [&] { sweep(src, dst, *memory, *box, *weights, *far, faces); });
}
extern "C" void run_ghosts(real* dst, const Memory* memory, const Box* box, const Faces* faces) {
    each(*box, [&] { ghosts(dst, *memory, *box, faces); });
}
"""


def emulate(name: str, defines: Mapping[str, str | int]) -> ctypes.CDLL:
    """A kernel file as a library of functions that run it on host memory: `run`, or `run_sweep` and `run_ghosts`."""
    return _compile(name, tuple(sorted(defines.items())))


@functools.cache
def _compile(name: str, defines: tuple[tuple[str, str | int], ...]) -> ctypes.CDLL:
    assert COMPILER is not None
    folder = Path(tempfile.mkdtemp(prefix="tetris_sim_emulation_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = (FOLDER / name).read_text().replace("extern __shared__ double shared[];", "")
    path = folder / f"{Path(name).stem}.cpp"
    path.write_text(_SHIM + source + (_FRAME if name == "frame.cu" else _PLAIN))
    library = path.with_suffix(".so")
    options = [f"-D{key}={value}" for key, value in defines]
    command = [COMPILER, "-std=c++17", "-O1", "-w", "-ffp-contract=off", "-shared", "-fPIC", f"-I{FOLDER}", *options]
    subprocess.run([*command, "-o", str(library), str(path)], check=True)
    return ctypes.CDLL(str(library))
