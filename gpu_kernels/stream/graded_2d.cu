// graded_2d.cu: heat conduction in a 2D body of one material on graded axes, TS_DEPTH steps by
// streaming tiles that stay in registers down the rows.
//
// Idea    As stream_2d.cu. What a face weighs depends on its place along its own axis, so there are two
//         tables instead of an array per axis (`axis_weights` in lowering.py). Those of a lane's columns
//         stay in registers; those of rows come into shared memory beside the tiles.
// Layout  As stream_2d.cu; then of each warp the weights of the rows of its patches at all levels of a
//         tile, and of the next. Tables: the faces before and behind each point, of the points
//         low .. low + count - 1 along x, then along y; beyond these, the nearest.
// Writes  the box, as stream_2d.cu.
// Order   The own state, then the faces to the row below, left, right, above, each a weight times a
//         difference that is rounded once. Bits depend on no tile.
// Test    tests/gpu/test_gpu_coefficients.py

#if !defined(TS_DEPTH) || !defined(TS_COLUMNS) || !defined(TS_ROWS) || !defined(TS_WARPS) || \
    !defined(TS_BLOCKS) || !defined(TS_EDGES) || !defined(TS_WRITTEN) || !defined(TS_MARGIN)
#error "graded_2d.cu needs macros that gpu_kernels/stream/palette_tiles.py lists"
#endif
#include "common.cuh"

constexpr int reach_y = 1;
constexpr int rows = TS_ROWS;        // of a warp's patch
constexpr int columns = TS_COLUMNS;  // of a lane's patch

#include "stream_2d_tile.cuh"

// The weights of the faces of a point along one axis: a copy of 16 bytes in either precision.
struct alignas(16) Faces {
    real low, high;
};

struct Table {
    int low, count;

    __device__ __forceinline__ int place(int point) const {
        return min(max(point - low, 0), count - 1);
    }
};

// What kernels of one stencil are told.
struct Weights {
    real none[1];
};

// Rows that are centres of a warp's patches during a tile: top - depth .. top + rows - 2.
constexpr int lines = depth + rows - 1;

struct Shared {
    real stages[warps][rows][width];
    real between[(warps - 1) * edges * edge];
    real history[(depth + 2) * edge];
    Faces faces[2][warps][lines];
};

struct Carry {
    real below[columns];  // the row consumed before
    real sums[columns];   // of it, but what comes from above
    real low;             // weight of the face above it
};

// Give row q of a level to the slots of the next; `across` has the weights of row 0.
__device__ __forceinline__ void consume(real (&patch)[rows][columns], Carry& carry, int q,
                                        const real (&given)[columns], const Faces (&along)[columns],
                                        const Faces* across) {
    real own[columns], difference[columns];
#pragma unroll
    for (int c = 0; c < columns; ++c) own[c] = given[c];
    if (q < rows - 1) {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            difference[c] = carry.below[c] - own[c];
            if (q < rows - 2) patch[q + 2][c] = fma_real(-carry.low, difference[c], carry.sums[c]);
        }
        if (q >= -1) {
            const Faces here = across[q];
            const real left = __shfl_up_sync(~0u, own[columns - 1], 1);
            const real right = __shfl_down_sync(~0u, own[0], 1);
            real before = own[0] - left;
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                const real behind = (c < columns - 1 ? own[c + 1] : right) - own[c];
                real sum = fma_real(here.high, difference[c], own[c]);
                sum = fma_real(-along[c].low, before, sum);
                carry.sums[c] = fma_real(along[c].high, behind, sum);
                before = behind;
            }
            carry.low = here.low;
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) carry.below[c] = own[c];
}

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    graded_2d(const real* __restrict__ src, real* __restrict__ dst,
              const __grid_constant__ Memory memory, const __grid_constant__ Box box, const Weights,
              int chunk, const Faces* __restrict__ weights, int x_low, int x_count, int y_low,
              int y_count, int TS_AND_SUM) {
    extern __shared__ __align__(128) unsigned char bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(bytes);
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    Edges edges_of_warp{shared.between, shared.history, warp};
    const Part part = part_of_block(box, chunk);

    const Table columns_of{x_low, x_count}, rows_of{y_low, y_count};
    Faces along[columns];
#pragma unroll
    for (int c = 0; c < columns; ++c)
        along[c] = weights[columns_of.place(part.x - margin + lane * columns + c)];
    const auto fetch_faces = [&](int top, int buffer) {
        for (int line = lane; line < lines; line += 32)
            copy_async<0>(static_cast<unsigned>(
                              __cvta_generic_to_shared(&shared.faces[buffer][warp][line])),
                          reinterpret_cast<const char*>(weights + x_count +
                                                        rows_of.place(top - depth + line)),
                          true);
    };
    const int base = part.low - depth;
    fetch_faces(base + warp * rows, 0);
    int buffer = 0;

    const auto finish = [](real value) { return value; };
    const auto levels = [&](real(&patch)[rows][columns], int top, auto copies, auto) {
        fetch_faces(top + height, 1 - buffer);
        const Faces* across = shared.faces[buffer][warp] + depth;
        buffer = 1 - buffer;
#pragma unroll 1
        for (int level = 0; level < depth; ++level, --across, edges_of_warp.next_level()) {
            const auto added = begin_copies(copies, level);
            Carry carry;
            advance(patch, edges_of_warp.above(), edges_of_warp.below(), lane,
                    [&](int q, const real(&own)[columns]) {
                        consume(patch, carry, q, own, along, across);
                    });
            end_copies(copies, level, added);
        }
    };
    const long long plane = box.low[0] * memory.plane;
    stream_tiles<has_sum ? Copies::by_level : Copies::between>(
        src + plane, dst + plane, plane_of_sum(sum_of_source, plane), memory, part, base,
        shared.stages[warp][0], lane, warp, finish, levels);
}
