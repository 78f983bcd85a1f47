// sparse_tile.cuh: pieces of the grid arrive in shared memory while others are multiplied, for
// sparse.cu.
//
// Layout  A stage is `rows` rows of `pitch` numbers. What no result depends on becomes zero, for it
//         is multiplied by zeros and may be a NaN.
// Limits  Copies have 16 bytes: stages begin at multiples of these.

#pragma once
#include "async_copy.cuh"
#include "common.cuh"

constexpr int vector_points = 16 / sizeof(real);  // of a copy
constexpr int reach[3] = TS_REACH;                // of the fused stencil, slowest axis first

template <int rows, int row_points, int pitch, int threads>
struct StageCopy {
    static constexpr int vectors = row_points / vector_points, total = rows * vectors;
    static constexpr int rounds = (total + threads - 1) / threads;
    static_assert(row_points % vector_points == 0 && pitch % vector_points == 0,
                  "copies have 16 bytes");

    const real* src;
    const Memory& memory;
    const Box& box;

    // The points that results of the box depend on.
    __device__ __forceinline__ int low(int k) const { return box.low[k] - reach[k]; }
    __device__ __forceinline__ int high(int k) const { return box.high[k] + reach[k]; }

    // Start to copy the stage that begins at point (z, y, x).
    __device__ __forceinline__ void start(real* stage, int z, int y, int x) const {
#pragma unroll
        for (int round = 0; round < rounds; round++) {
            const int e = threadIdx.x + round * threads, row = e / vectors,
                      at = e % vectors * vector_points;
            if (e >= total) break;
            const bool row_there =
                y + row >= low(1) && y + row < high(1) && z >= low(0) && z < high(0);
            const bool there = row_there && x + at + vector_points > low(2) && x + at < high(2);
            const int bytes =
                there ? static_cast<int>(sizeof(real)) * min(high(2) - x - at, vector_points) : 0;
            const real* const from =
                there ? src + z * memory.plane + (y + row) * memory.row + x + at : src;
            const unsigned to = shared_address(stage + row * pitch + at);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                         "r"(bytes)
                         : "memory");
        }
    }

    // After this thread's copies have arrived: clear what lies in front of all that is needed, in
    // the same 16 bytes.
    __device__ __forceinline__ void finish(real* stage, int x) const {
        if (x >= low(2) || x + row_points <= low(2)) return;
#pragma unroll 1
        for (int e = threadIdx.x; e < total; e += threads) {
            const int row = e / vectors, at = e % vectors * vector_points;
            for (int k = 0; k < vector_points && x + at + k < low(2); k++)
                stage[row * pitch + at + k] = 0;
        }
    }
};
