// stream_2d.cu: advance a 2D stencil TS_DEPTH steps by streaming tiles that stay in registers down
// the rows.
//
// Idea    A block of threads owns a strip of columns and walks down a chunk of rows, one tile of
//         warps * rows rows after the other. A tile is loaded once, advanced TS_DEPTH levels in
//         registers, and stored. Each level lies reach_y rows further up than the one before, so it
//         needs rows of the tile above only: the last 2 * reach_y rows of each level, which the
//         tile above has left in shared memory. Rows are computed once; only columns overlap (depth
//         * reach_x a side), and 2 * depth * reach_y rows at the beginning of a chunk. How many
//         rows a chunk has is chosen at launch (`Stream` of fused/kernel.py).
//         Mirrored stencils hand on sums of rows instead (stream_2d_sums.cuh).
//         Blocks along z do the same with other planes, which read nothing of each other.
// Layout  Warp w holds rows w * rows ..., lane l columns l * columns ... of a tile
//         (stream_2d_rows.cuh). Shared memory:
//           stage     one patch per warp: the next tile arrives here while this one is advanced,
//                     and the finished one leaves through it, so that memory sees whole lines
//                     (stream_2d_copies.cuh, on Hopper also stream_2d_bulk.cuh)
//           between   the last rows of each warp but the last for the warp below, `edges` times
//           arrivals  behind the history, of bulk copies: one per warp
//           history   the last rows of the last warp for warp 0 of the next tile, a ring of depth +
//                     2 levels: one is read and one is written at the same time, and the one
//                     written before may still be read
// Writes  the box. What is outside of the box grown by depth * reach may be NaN: it only reaches
//         points that are not written. So may what shared memory holds before the first tile.
// Limits  columns >= reach_x; rows >= 2 * reach_y (checked by Tile.fits in kernel_2d.py).
//         Memory.within begins and ends at multiples of 16 bytes along x.
// Test    tests/gpu/test_gpu_against_reference.py

#if !defined(TS_DEPTH) || !defined(TS_COLUMNS) || !defined(TS_ROWS) || !defined(TS_WARPS) ||       \
    !defined(TS_BLOCKS) || !defined(TS_EDGES) || !defined(TS_INTERLEAVED) ||                       \
    !defined(TS_WRITTEN) || !defined(TS_MARGIN) || !defined(TS_REACH_X) || !defined(TS_REACH_Y) || \
    !defined(TS_ROW_TAPS) || !defined(TS_SCHEME) || !defined(TS_UNIT) ||                           \
    !defined(TS_N_WEIGHTS) || !defined(TS_SUMS_OF_ROWS)
#error "stream_2d.cu needs macros that gpu_kernels/stream/kernel_2d.py lists"
#endif
#include "common.cuh"

struct Weights {
    real w[TS_N_WEIGHTS];  // of the scheme; the last one is the factor of what is stored
};

#include "stream_2d_rows.cuh"

#include "stream_2d_tile.cuh"

#include "stream_2d_sums.cuh"

// When rows are stored and fetched: 0 between two tiles, 1 among the arithmetic of the first level, 2
// by bulk copies during the levels, 3 so, and exchanged with the stage among those of the last one.
constexpr int interleaved = TS_INTERLEAVED;
constexpr bool peeled = interleaved == 3;
constexpr bool hands_on_sums = TS_SUMS_OF_ROWS;

// One level of the block. `after(q)` follows each row q: slot q + edge_rows is finished.
template <class After>
__device__ __forceinline__ void advance_level(real (&patch)[rows][columns], Edges& edges_of_warp,
                                              int lane, const Weights& w, After after) {
    const real* above = edges_of_warp.above();
    real* below = edges_of_warp.below();
    if constexpr (hands_on_sums) {
        advance_sums(patch, above, below, lane, w, after);
    } else {
        Carry carry;
        advance(patch, above, below, lane, [&](int q, const real(&own)[columns]) {
            consume(patch, carry, q, own, w);
            after(q);
        });
    }
    edges_of_warp.next_level();
}

#include "stream_2d_bulk.cuh"

// The last row before `row`, or it, whose number in the whole grid is a multiple of `rows`.
__device__ __forceinline__ int aligned_down(int row, int anchor) {
    const int over = (row + anchor) % rows;
    return row - (over < 0 ? over + rows : over);
}

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    stream_2d(const real* __restrict__ src, real* __restrict__ dst, Memory memory, Box box,
              Weights w, int chunk, int anchor TS_AND_SUM) {
    extern __shared__ __align__(16) unsigned char shared[];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    real* const stages = reinterpret_cast<real*>(shared);  // [warps][rows][width]
    real* const between = stages + height * width;
    Edges edges_of_warp{between, between + (warps - 1) * edges * edge, warp};

    const Part part = part_of_block(box, chunk);
    const long long plane = (box.low[0] + static_cast<int>(blockIdx.z)) * memory.plane;
    const int first = part.low - depth * reach_y;
    const int base = hands_on_sums ? aligned_down(first, anchor) : first;
    real* const stage = stages + warp * rows * width;
    const auto finish = [&](real value) { return narrow(mul_real(value, w.w[TS_N_WEIGHTS - 1])); };
    const auto level_of = [&](real(&patch)[rows][columns], auto after) {
        advance_level(patch, edges_of_warp, lane, w, after);
    };
    if constexpr (interleaved >= 2 && bulk_copies && !has_sum) {
        auto* const arrivals = reinterpret_cast<Arrival*>(
            between + ((warps - 1) * edges + depth + 2) * edge);
        stream_bulk(src + plane, dst + plane, memory, part, base, stage, arrivals + warp, lane, warp,
                    finish, level_of);
    } else {
        const auto levels = [&](real(&patch)[rows][columns], int, auto store, auto fetch) {
#pragma unroll 1
            for (int level = 0; level < depth; ++level) {
                if (interleaved && level == 0) {
                    level_of(patch, [&](int q) {
                        if (q >= 0) store(q), fetch(q);
                    });
                } else {
                    level_of(patch, [](int) {});
                }
            }
        };
        stream_tiles<interleaved == 1 ? Copies::among : Copies::between>(src + plane, dst + plane, plane_of_sum(sum_of_source, plane), memory, part,
                                       base, stage, lane, warp, finish, levels);
    }
}
