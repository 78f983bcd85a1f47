// plain.cu: advance a box by one step, one point per thread, and write the ghosts that mirror what was computed.
//
// Idea    Neighbours come through the caches. Whoever computes a point near a face also writes its images beyond the
//         face, so a step is one launch. Before the first step, ghosts.cu writes the images of the points as they are.
// Layout  See common.cuh and faces.cuh. `far` is the box of the points that have no images.
// Writes  Every point of the box, and its images.
// Limits  None but the size of kernel arguments, which bounds the number of terms; PlainMethod.refusal checks it.
// Order   One multiplication, then one fused multiply-add per further term in the order of TS_OFFSETS: the same chain
//         for every point, so the result has the same bits for any box and any split.
// Test    tests/gpu/test_gpu_against_reference.py

#if !defined(TS_REAL) || !defined(TS_TERMS) || !defined(TS_OFFSETS) || !defined(TS_LINKS)
#error "plain.cu needs -DTS_REAL, -DTS_TERMS, -DTS_OFFSETS ({dz,dy,dx} of every term), -DTS_LINKS (see faces.cuh)"
#endif
#include "faces.cuh"

constexpr int n_terms = TS_TERMS;
constexpr int unrolled = n_terms <= 128 ? n_terms : 1;  // longer chains are loops: compiling them would take minutes
__constant__ constexpr int offsets[n_terms][3] = {TS_OFFSETS};

struct Weights {
    real w[n_terms];
};

__device__ __forceinline__ bool is_in(const Box& box, int i, int j, int k) {
    return i >= box.low[0] && i < box.high[0] && j >= box.low[1] && j < box.high[1] && k >= box.low[2] &&
           k < box.high[2];
}

// Calls `visit(i, j, k)` for the points of a box that belong to this thread: one, or where there are more planes or rows
// than a launch may have blocks, every so many.
template <typename Visit>
__device__ __forceinline__ void for_each(const Box& box, Visit visit) {
    const int k = box.low[2] + blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= box.high[2]) return;
    for (int i = box.low[0] + blockIdx.z; i < box.high[0]; i += gridDim.z)
        for (int j = box.low[1] + blockIdx.y * blockDim.y + threadIdx.y; j < box.high[1]; j += gridDim.y * blockDim.y)
            visit(i, j, k);
}

extern "C" __global__ void sweep(const real* __restrict__ src, real* __restrict__ dst,
    const __grid_constant__ Memory memory, const __grid_constant__ Box box, const __grid_constant__ Weights weights,
    const __grid_constant__ Box far, const Faces* __restrict__ faces) {
    for_each(box, [&](int i, int j, int k) {
        const long long at = i * memory.plane + j * memory.row + k;
        real value = real(0);
#pragma unroll unrolled
        for (int m = 0; m < n_terms; m++) {
            const real u = src[at + offsets[m][0] * memory.plane + offsets[m][1] * memory.row + offsets[m][2]];
            value = m == 0 ? mul_real(weights.w[m], u) : fma_real(weights.w[m], u, value);
        }
        dst[at] = value;
        if (!is_in(far, i, j, k)) write_images(dst, memory, *faces, i, j, k, value);
    });
}
