// plain.cu: advance a box by one step, one point per thread.
//
// Idea    Neighbours come through the caches; ghosts beyond faces have been filled by ghosts.cu.
// Layout  See common.cuh.
// Writes  Every point of the box.
// Limits  None but the size of kernel arguments, which bounds the number of terms;
//         PlainMethod.refusal checks it.
// Order   One multiplication, then one fused multiply-add per further term in the order of
//         TS_OFFSETS: the same chain for every point, so the result has the same bits for any box
//         and any split. What memory has in FP16 is computed in FP32 and rounded once per step.
// Test    tests/gpu/test_gpu_against_reference.py, tests/gpu/test_gpu_emulated.py

#if !defined(TS_REAL) || !defined(TS_TERMS) || !defined(TS_OFFSETS)
#error "plain.cu needs -DTS_REAL, -DTS_TERMS, -DTS_OFFSETS ({dz,dy,dx} of every term)"
#endif
#include "common.cuh"

constexpr int n_terms = TS_TERMS;
// longer chains are loops: compiling them would take minutes
constexpr int unrolled = n_terms <= 128 ? n_terms : 1;
__constant__ constexpr int offsets[n_terms][3] = {TS_OFFSETS};

struct Weights {
    wide w[n_terms];
};

extern "C" __global__ void __launch_bounds__(256) sweep(const real* __restrict__ src,
    real* __restrict__ dst, const __grid_constant__ Memory memory, const __grid_constant__ Box box,
    const __grid_constant__ Weights weights) {
    const int k = box.low[2] + blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= box.high[2]) return;
    // A launch may have fewer blocks along y and z than there are rows and planes: then threads go
    // on.
    for (int i = box.low[0] + blockIdx.z; i < box.high[0]; i += gridDim.z)
        for (int j = box.low[1] + blockIdx.y * blockDim.y + threadIdx.y; j < box.high[1];
            j += gridDim.y * blockDim.y) {
            const long long at = i * memory.plane + j * memory.row + k;
            wide value = wide(0);
#pragma unroll unrolled
            for (int m = 0; m < n_terms; m++) {
                const wide u = widen(src[at + offsets[m][0] * memory.plane +
                                         offsets[m][1] * memory.row + offsets[m][2]]);
                value = m == 0 ? mul_real(weights.w[m], u) : fma_real(weights.w[m], u, value);
            }
            dst[at] = narrow(value);
        }
}
