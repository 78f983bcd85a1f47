// conduction.cu: advance a box of a body by one step, one point per thread.
//
// Idea    As plain.cu: neighbours, ids and numbers come through the caches; ghosts beyond faces
//         have been filled by ruled_ghosts.cu.
// Layout  See common.cuh; ids and coefficients lie as the state does.
// Writes  Every point of the box.
// Limits  None.
// Order   See body.cuh. The result has the same bits for any box and any split.
// Test    tests/gpu/test_gpu_conduction.py

#if !defined(TS_REAL)
#error "conduction.cu needs -DTS_REAL and what body.cuh and rules.cuh need"
#endif
#include "body.cuh"

extern "C" __global__ void __launch_bounds__(256) conduct(const real* __restrict__ src,
    real* __restrict__ dst, const __grid_constant__ Memory memory, const __grid_constant__ Box box,
    const __grid_constant__ Body body, const int step) {
    const int k = box.low[2] + blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= box.high[2]) return;
    const long long stride[3] = {memory.plane, memory.row, 1};
    // A launch may have fewer blocks along y and z than there are rows and planes: then threads go
    // on.
    for (int i = box.low[0] + blockIdx.z; i < box.high[0]; i += gridDim.z)
        for (int j = box.low[1] + blockIdx.y * blockDim.y + threadIdx.y; j < box.high[1];
            j += gridDim.y * blockDim.y) {
            const Point point = point_at(memory, i, j, k);
            dst[point.at] =
                conducted(body, point, stride, step, widen(src[point.at]), [&](int d, int shift) {
                    return widen(src[point.at + shift * stride[d]]);
                });
        }
}
