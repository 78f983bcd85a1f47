// tcstencil_stage.cuh: pieces of the grid arrive in shared memory while others are multiplied, for
// tcstencil.cu.
//
// Idea    A thread copies the same places of every stage, so where they lie is found out once, and
//         a stage costs it two additions and a copy for each 16 bytes. Stages at an end of the grid
//         are copied with questions asked.
// Layout  A stage is `rows` rows of `row_points` numbers, one after the other.
// Limits  Copies have 16 bytes: stages begin at multiples of these. What lies beside the points
//         along x that results depend on becomes zero, for it is multiplied by zeros and may be a
//         NaN. Rows that no result depends on may hold anything, or (`clear_rows`) become zero,
//         too.

#pragma once
#include "async_copy.cuh"
#include "common.cuh"

constexpr int vector_points = 16 / sizeof(real);  // of a copy
constexpr int reach[3] = TS_REACH;                // of the fused stencil, slowest axis first

template <int rows, int row_points, int threads, bool clear_rows = false>
struct StageCopy {
    static constexpr int vectors = row_points / vector_points, total = rows * vectors;
    static constexpr int rounds = (total + threads - 1) / threads;
    static_assert(row_points % vector_points == 0, "copies have 16 bytes");

    long long row_pitch;
    int low_x, high_x, high_y;  // the points that results depend on
    int offset[rounds];         // of this thread's vectors from the first point of a stage

    __device__ __forceinline__ StageCopy(const Memory& memory, const Box& box, int high_y)
        : row_pitch(memory.row),
          low_x(box.low[2] - reach[2]),
          high_x(box.high[2] + reach[2]),
          high_y(high_y) {
#pragma unroll
        for (int round = 0; round < rounds; round++)
            offset[round] = row(round) * static_cast<int>(row_pitch) + column(round);
    }

    static __device__ __forceinline__ int row(int round) { return place(round) / vectors; }
    static __device__ __forceinline__ int column(int round) {
        return place(round) % vectors * vector_points;
    }
    static __device__ __forceinline__ int place(int round) { return threadIdx.x + round * threads; }
    static __device__ __forceinline__ bool has(int round) {
        return total % threads == 0 || place(round) < total;
    }

    // Start to copy the stage whose first point is `from`, number (y, x) of its plane.
    __device__ __forceinline__ void start(real* stage, const real* from, int y, int x) const {
        const unsigned to = shared_address(stage) + 16 * threadIdx.x;
        if (x >= low_x && x + row_points <= high_x && y + rows <= high_y) {
#pragma unroll
            for (int round = 0; round < rounds; round++)
                if (round < rounds - 1 || has(round))
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                                     to + 16 * threads * round),
                                 "l"(from + offset[round])
                                 : "memory");
        } else {
#pragma unroll
            for (int round = 0; round < rounds; round++) {
                const bool row_there = y + row(round) < high_y;
                if (!has(round) || !clear_rows && !row_there) break;
                const int at = x + column(round);
                const bool there = row_there && at + vector_points > low_x && at < high_x;
                const int bytes =
                    there ? static_cast<int>(sizeof(real)) * min(high_x - at, vector_points) : 0;
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                                 to + 16 * threads * round),
                             "l"(from + offset[round]), "r"(bytes)
                             : "memory");
            }
        }
    }

    // After this thread's copies have arrived: clear what lies in front of all that is needed, in
    // the same 16 bytes.
    __device__ __forceinline__ void finish(real* stage, int x) const {
        if (x >= low_x) return;
#pragma unroll 1
        for (int round = 0; round < rounds && has(round); round++)
            for (int k = 0; k < vector_points && x + column(round) + k < low_x; k++)
                stage[place(round) * vector_points + k] = real{};
    }
};
