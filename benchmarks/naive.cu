// naive.cu: what a user would write first, as a baseline of the benchmark: one point per thread, one step per launch.
//
// Layout  See common.cuh.
// Writes  Every point of the box. Faces stay as they are.
// Test    tests/gpu/test_gpu_compiles.py

#if !defined(TS_REAL) || !defined(TS_TERMS) || !defined(TS_OFFSETS)
#error "naive.cu needs -DTS_REAL, -DTS_TERMS, -DTS_OFFSETS ({dz,dy,dx} of every term)"
#endif
#include "common.cuh"

constexpr int n_terms = TS_TERMS;
__constant__ constexpr int offsets[n_terms][3] = {TS_OFFSETS};

struct Weights {
    wide w[n_terms];
};

extern "C" __global__ void naive(const real* __restrict__ src, real* __restrict__ dst,
    const __grid_constant__ Memory memory, const __grid_constant__ Box box, const __grid_constant__ Weights weights) {
    const int i = box.low[0] + blockIdx.z;
    const int j = box.low[1] + blockIdx.y * blockDim.y + threadIdx.y;
    const int k = box.low[2] + blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= box.high[1] || k >= box.high[2]) return;
    const long long at = i * memory.plane + j * memory.row + k;
    wide value = wide(0);
#pragma unroll
    for (int m = 0; m < n_terms; m++)
        value += weights.w[m] *
                 widen(src[at + offsets[m][0] * memory.plane + offsets[m][1] * memory.row + offsets[m][2]]);
    dst[at] = narrow(value);
}
