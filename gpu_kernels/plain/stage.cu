// stage.cu: compute stages of a step by equations in a box, one point per thread.
//
// Idea    As plain.cu: what lies beside a point comes through the caches; ghosts beyond faces have
//         been filled by ghosts.cu, for each name by itself. Stages that read what earlier ones
//         give at their own point only follow each other in a thread.
// Layout  See common.cuh; every name has an array of its own, laid out alike.
// Writes  What the stages give at every point of the box.
// Limits  None.
// Order   That of the instructions of the stages, one line each (common/given.py): the result has
//         the same bits for any box and any split.
// Test    tests/gpu/test_gpu_equations.py

#if !defined(TS_REAL) || !defined(TS_FIRST) || !defined(TS_LAST)
#error "stage.cu needs -DTS_REAL, -DTS_FIRST, -DTS_LAST (numbers of stages) and what equations.cuh needs"
#endif
#include "equations.cuh"

// The first owned point of each name.
struct Names {
    real* of[TS_NAMES];
};

struct Point {
    const Names& names;
    const Memory& memory;
    const Constants& constants;
    const Given& given;
    int row;
    int place[3];
    long long at;

    __device__ __forceinline__ long long beside(int z, int y, int x) const {
        return at + z * memory.plane + y * memory.row + x;
    }
    __device__ __forceinline__ real tap(int name, int z, int y, int x) const {
        return names.of[name][beside(z, y, x)];
    }
    __device__ __forceinline__ real coefficient(int number, int z, int y, int x) const {
        return given.coefficients[number][beside(z, y, x)];
    }
    __device__ __forceinline__ real constant(int number) const { return constants.of[number]; }
    __device__ __forceinline__ real changing(int number) const {
        return given.changing(number, row);
    }
    __device__ __forceinline__ real coordinate(int axis) const {
        return given.along[axis][place[axis]];
    }
    __device__ __forceinline__ void put(int name, real value) const { names.of[name][at] = value; }
};

template <int stage = TS_FIRST>
__device__ __forceinline__ void compute(const Point& point) {
    Stage<stage>::compute(point);
    if constexpr (stage < TS_LAST) compute<stage + 1>(point);
}

extern "C" __global__ void __launch_bounds__(256)
    stages(const __grid_constant__ Names names, const __grid_constant__ Memory memory,
        const __grid_constant__ Box box, const __grid_constant__ Constants constants,
        const __grid_constant__ Given given, const int row) {
    const int k = box.low[2] + blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= box.high[2]) return;
    // A launch may have fewer blocks along y and z than there are rows and planes: then threads go
    // on, along z to the next plane, which finds what it shares with this one in the L1 cache.
    const int planes = (box.high[0] - box.low[0] + gridDim.z - 1) / gridDim.z;
    const int first = box.low[0] + blockIdx.z * planes, end = min(first + planes, box.high[0]);
#pragma unroll 1
    for (int i = first; i < end; i++)
        for (int j = box.low[1] + blockIdx.y * blockDim.y + threadIdx.y; j < box.high[1];
            j += gridDim.y * blockDim.y) {
            const long long at = i * memory.plane + j * memory.row + k;
            compute(Point{names, memory, constants, given, row, {i, j, k}, at});
        }
}
