// finite.cu: the first point of a slab whose value is not finite.
//
// Idea    Whatever is not finite is not a number less itself. The least number of such a point wins;
//         where all is well nobody writes.
// Layout  See common.cuh. `first` is one word, larger than all numbers of points before the launch.
// Writes  `first`: the number of the point in the box, x fastest.
// Test    tests/gpu/test_finite.py

#if !defined(TS_REAL)
#error "finite.cu needs -DTS_REAL"
#endif
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256) first_nonfinite(const real* __restrict__ src,
    const __grid_constant__ Memory memory, const __grid_constant__ Box box,
    unsigned long long* __restrict__ first) {
    const int k = box.low[2] + blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= box.high[2]) return;
    const long long n_x = box.high[2] - box.low[2], n_y = box.high[1] - box.low[1];
    for (int i = box.low[0] + blockIdx.z; i < box.high[0]; i += gridDim.z)
        for (int j = box.low[1] + blockIdx.y; j < box.high[1]; j += gridDim.y) {
            const wide value = widen(src[i * memory.plane + j * memory.row + k]);
            if (value - value == wide(0)) continue;
            const long long number =
                ((i - box.low[0]) * n_y + (j - box.low[1])) * n_x + (k - box.low[2]);
            atomicMin(first, (unsigned long long)(number));
        }
}
