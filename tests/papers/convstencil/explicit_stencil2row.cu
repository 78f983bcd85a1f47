// explicit_stencil2row.cu: ConvStencil's matrices A and B written to global memory, and a second kernel that computes from
// them on CUDA cores, for the benchmark: the first step of the paper's Figure 6 (benchmarks/gpu.py --breakdown).
//
// Idea    `transform` copies the box and what it depends on into A and B: groups of n + 1 results along x, n the width of
//         the stencil; place p of row y in group g is column (n + 1) g + p of the grid for A, n more for B (section 3.2).
//         `multiply` makes one result per thread: the lower triangle of the weights times A, the upper one times B.
// Layout  See common.cuh. Matrices: [A, B][plane][group][row][place], rows and planes counted from the first that is read.
// Writes  `multiply`: all of the box.
// Limits  a matrix of fewer than 2^32 elements; weights are a dense box.
// Test    tests/papers/test_gpu_rungs.py

#if !defined(TS_REAL) || !defined(TS_RADIUS_Z) || !defined(TS_RADIUS_Y) || !defined(TS_RADIUS_X)
#error "explicit_stencil2row.cu needs -DTS_REAL and -DTS_RADIUS_Z, _Y, _X (explicit_stencil2row.py)"
#endif
#include "common.cuh"

constexpr int rz = TS_RADIUS_Z, ry = TS_RADIUS_Y, rx = TS_RADIUS_X;
constexpr int taps_z = 2 * rz + 1, taps_y = 2 * ry + 1, taps_x = 2 * rx + 1;
constexpr unsigned width = taps_x, results = width + 1;  // places of a group's row, results that it gives

struct Weights {
    real w[taps_z * taps_y * taps_x];
};

struct Counts {
    unsigned groups, rows, planes;  // rows and planes that are read

    __device__ __forceinline__ Counts(const Box& box)
        : groups((box.high[2] - box.low[2] + results - 1) / results), rows(box.high[1] - box.low[1] + 2 * ry),
          planes(box.high[0] - box.low[0] + 2 * rz) {}
    __device__ __forceinline__ unsigned of_matrix() const { return planes * groups * rows * width; }
};

extern "C" __global__ void transform(const real* __restrict__ src, real* __restrict__ matrices,
    const __grid_constant__ Memory memory, const __grid_constant__ Box box) {
    const Counts counts(box);
    const unsigned element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= counts.of_matrix()) return;
    const unsigned place = element % width, line = element / width;
    const unsigned row = line % counts.rows, group = line / counts.rows % counts.groups;
    const unsigned plane = line / counts.rows / counts.groups;
    const real* from = src + (box.low[0] - rz + static_cast<int>(plane)) * memory.plane +
                       (box.low[1] - ry + static_cast<int>(row)) * memory.row;
    const int a = box.low[2] - rx + static_cast<int>(group * results + place), b = a + static_cast<int>(width);
    const int end = box.high[2] + rx;
    matrices[element] = a < end ? from[a] : real(0);
    matrices[static_cast<unsigned long long>(counts.of_matrix()) + element] = b < end ? from[b] : real(0);
}

extern "C" __global__ void multiply(const real* __restrict__ matrices, real* __restrict__ dst,
    const __grid_constant__ Memory memory, const __grid_constant__ Box box, const __grid_constant__ Weights weights) {
    const Counts counts(box);
    const unsigned rows = counts.rows - 2 * ry, planes = counts.planes - 2 * rz;
    const unsigned element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= planes * counts.groups * rows * results) return;
    const unsigned result = element % results, line = element / results;
    const unsigned row = line % rows, group = line / rows % counts.groups, plane = line / rows / counts.groups;
    const int x = box.low[2] + static_cast<int>(group * results + result);
    if (x >= box.high[2]) return;
    real sum = real(0);
#pragma unroll
    for (int dz = 0; dz < taps_z; dz++)
#pragma unroll
        for (int dy = 0; dy < taps_y; dy++) {
            const real* a = matrices + (((plane + dz) * counts.groups + group) * counts.rows + row + dy) * width;
            const real* b = a + counts.of_matrix();
#pragma unroll
            for (unsigned k = 0; k < width; k++) {
                const unsigned at = result + k;
                const real u = at < width ? a[at] : b[at - width];
                sum = fma_real(weights.w[(dz * taps_y + dy) * taps_x + k], u, sum);
            }
        }
    dst[(box.low[0] + static_cast<int>(plane)) * memory.plane + (box.low[1] + static_cast<int>(row)) * memory.row + x] =
        sum;
}
