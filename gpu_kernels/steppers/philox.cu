// philox.cu: random numbers of NumPy's Philox generator, made where they are needed.
//
// Idea    Philox4x64-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011). The
//         grid is cut into blocks with a stream of their own (apps/initial.py); four numbers of a
//         stream come from one counter, so every thread makes four, in any order. NumPy begins with
//         counter 1.
// Layout  See common.cuh. `keys` has two words for each block of points that the slab touches.
// Writes  Every owned point.
// Order   Word to double in [0, 1) to a value between two others, by the operations of
//         apps/initial.py, then rounded once: the same bits.
// Test    tests/gpu/test_random_fields.py

#if !defined(TS_REAL)
#error "philox.cu needs -DTS_REAL"
#endif
#include "common.cuh"

using Word = unsigned long long;

constexpr int n_rounds = 10;
constexpr Word multipliers[2] = {0xD2E7470EE14C6C93ull, 0xCA5A826395121157ull};
constexpr Word weyl[2] = {0x9E3779B97F4A7C15ull, 0xBB67AE8584CAA73Bull};

// Points and blocks along the three axes, counted in the whole grid.
struct Blocks {
    int shape[3];  // points of the grid
    int start[3];  // first owned point of the slab
    int stop[3];
    int width[3];  // points of a block
    int first[3];  // block that the slab touches
    int count[3];  // of these
};

struct Range {
    double low;
    double high;
};

__device__ __forceinline__ double rounded(double value, double) { return value; }
__device__ __forceinline__ float rounded(double value, float) { return float(value); }
__device__ __forceinline__ Half rounded(double value, Half) {
    Half found;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(found.bits) : "d"(value));
    return found;
}

extern "C" __global__ void __launch_bounds__(256) fill(real* __restrict__ dst,
    const Word* __restrict__ keys, const __grid_constant__ Memory memory,
    const __grid_constant__ Blocks blocks, const __grid_constant__ Range range) {
    const int group = blockIdx.x * blockDim.x + threadIdx.x;
    const int n_blocks = blocks.count[0] * blocks.count[1] * blocks.count[2];
    for (int block = blockIdx.y; block < n_blocks; block += gridDim.y) {
        const int place[3] = {block / (blocks.count[1] * blocks.count[2]),
            block / blocks.count[2] % blocks.count[1], block % blocks.count[2]};
        int begin[3], width[3];
        for (int axis = 0; axis < 3; axis++) {
            begin[axis] = (blocks.first[axis] + place[axis]) * blocks.width[axis];
            width[axis] = min(blocks.width[axis], blocks.shape[axis] - begin[axis]);
        }
        const int n_points = width[0] * width[1] * width[2];
        if (4 * group >= n_points) continue;

        Word words[4] = {Word(group) + 1, 0, 0, 0};
        Word key[2] = {keys[2 * block], keys[2 * block + 1]};
#pragma unroll
        for (int turn = 0; turn < n_rounds; turn++) {
            const Word upper = __umul64hi(multipliers[0], words[0]);
            const Word lower = multipliers[0] * words[0];
            const Word above = __umul64hi(multipliers[1], words[2]);
            const Word below = multipliers[1] * words[2];
            words[0] = above ^ words[1] ^ key[0];
            words[1] = below;
            words[2] = upper ^ words[3] ^ key[1];
            words[3] = lower;
            key[0] += weyl[0];
            key[1] += weyl[1];
        }

        for (int k = 0; k < 4 && 4 * group + k < n_points; k++) {
            const int number = 4 * group + k;
            const int z = begin[0] + number / (width[1] * width[2]);
            const int y = begin[1] + number / width[2] % width[1];
            const int x = begin[2] + number % width[2];
            const bool owned = z >= blocks.start[0] && z < blocks.stop[0] && y >= blocks.start[1] &&
                               y < blocks.stop[1] && x >= blocks.start[2] && x < blocks.stop[2];
            if (!owned) continue;
            const double unit = __dmul_rn(double((long long)(words[k] >> 11)), 0x1p-53);
            const double value = __dadd_rn(
                __dmul_rn(__dadd_rn(1.0, -unit), range.low), __dmul_rn(unit, range.high));
            dst[(z - blocks.start[0]) * memory.plane + (y - blocks.start[1]) * memory.row +
                (x - blocks.start[2])] = rounded(value, real());
        }
    }
}
