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
// Layout  Warp w holds rows w * rows ..., lane l columns l * columns ... of a tile
//         (stream_2d_rows.cuh). Shared memory:
//           stage     one patch per warp: the next tile arrives here while this one is advanced,
//                     and the finished one leaves through it, so that memory sees whole lines
//                     (stream_2d_copies.cuh)
//           between   the last rows of each warp but the last for the warp below, `edges` times
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
    !defined(TS_ROW_TAPS) || !defined(TS_SCHEME) || !defined(TS_UNIT) || !defined(TS_N_WEIGHTS)
#error "stream_2d.cu needs macros that gpu_kernels/stream/kernel_2d.py lists"
#endif
#include "common.cuh"

struct Weights {
    real w[TS_N_WEIGHTS];  // of the scheme; the last one is the factor of what is stored
};

#include "stream_2d_rows.cuh"

constexpr int depth = TS_DEPTH;  // steps per launch
constexpr int warps = TS_WARPS;  // per block, above each other
// 2: one barrier a level; 1: two, but less memory
constexpr int edges = TS_EDGES;
// copies stand between the arithmetic of a level
constexpr bool interleaved = TS_INTERLEAVED;
constexpr int written = TS_WRITTEN;   // columns that a block writes
constexpr int margin = TS_MARGIN;     // columns of a tile before these
constexpr int height = warps * rows;  // of a tile
constexpr int width = 32 * columns;   // of a tile
// rows of a block that only its first levels need
constexpr int repeated = 2 * depth * reach_y;
constexpr int edge_rows = 2 * reach_y;   // handed on from patch to patch
constexpr int edge = edge_rows * width;  // elements of these

#include "stream_2d_copies.cuh"

// Rows low .. high and columns x .. end are what a block writes.
struct Part {
    int low, high;
    int x, end;
};

// Exchange the patch, which is finished, with the stage, where the next one has arrived.
__device__ __forceinline__ void exchange(real (&patch)[rows][columns], real* stage, int lane,
                                         real factor) {
#pragma unroll
    for (int p = 0; p < rows; ++p) {
        real finished[columns];
#pragma unroll
        for (int c = 0; c < columns; ++c) finished[c] = mul_real(patch[p][c], factor);
        load_columns(patch[p], stage + p * width, lane);
        store_columns(stage + p * width, finished, lane);
    }
}

// Advance one level. `below` receives the last rows for the patch below, `above` will hold those of
// the patch above. `beside(row)` is done meanwhile, once per row.
template <class Beside>
__device__ __forceinline__ void advance(real (&patch)[rows][columns], const real* above,
                                        real* below, int lane, const Weights& w, Beside beside) {
#pragma unroll
    for (int k = 0; k < edge_rows; ++k)
        store_columns(below + k * width, patch[rows - edge_rows + k], lane);
    Carry carry;
#pragma unroll
    for (int q = rows - 1; q >= 0; --q) {
        consume(patch, carry, q, patch[q], w);
        beside(q);
    }
    // the rows of the patch above are there; with two edges nobody reads those of the level before
    __syncthreads();
#pragma unroll
    for (int q = -1; q >= -edge_rows; --q) {
        real own[columns];
        load_columns(own, above + (edge_rows + q) * width, lane);
        consume(patch, carry, q, own, w);
    }
    if (edges == 1) __syncthreads();  // they have been read, and may be overwritten
}

// Where a warp finds the rows above its patch and leaves those for the patch below, level after
// level.
struct Edges {
    real* between;  // [warps - 1][edges][edge_rows][width]
    real* history;  // [depth + 2][edge_rows][width]
    int warp;
    int parity = 0;
    int oldest = 0;  // slot of `history` that was filled depth levels ago

    __device__ __forceinline__ const real* above() const {
        return warp > 0 ? between + ((warp - 1) * edges + parity) * edge : history + oldest * edge;
    }

    __device__ __forceinline__ real* below() const {
        const int newest = oldest <= 1 ? depth + oldest : oldest - 2;
        return warp < warps - 1 ? between + (warp * edges + parity) * edge
                                : history + newest * edge;
    }

    __device__ __forceinline__ void next_level() {
        parity = edges - 1 - parity;
        oldest = oldest == depth + 1 ? 0 : oldest + 1;
    }
};

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    stream_2d(const real* __restrict__ src, real* __restrict__ dst, Memory memory, Box box,
              Weights w, int chunk) {
    extern __shared__ __align__(16) unsigned char shared[];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    real* const stages = reinterpret_cast<real*>(shared);  // [warps][rows][width]
    real* const stage = stages + warp * rows * width;
    real* const between = stages + height * width;
    Edges edges_of_warp{between, between + (warps - 1) * edges * edge, warp};

    Part part;
    part.x = box.low[2] + blockIdx.x * written;
    part.end = min(part.x + written, box.high[2]);
    part.low = box.low[1] + blockIdx.y * chunk;
    part.high = min(part.low + chunk, box.high[1]);
    const int n_tiles = (part.high - part.low + repeated + height - 1) / height;
    const long long plane = box.low[0] * memory.plane;
    const Relay relay(stage, src + plane, dst + plane, memory, part, lane);

    real patch[rows][columns];
#pragma unroll
    for (int p = 0; p < rows; ++p) {
#pragma unroll
        // it is exchanged before it is first used
        for (int c = 0; c < columns; ++c) patch[p][c] = real(0);
    }
    int top = part.low - depth * reach_y + warp * rows;  // row of slot 0 of the patch at level 0
#pragma unroll 1
    for (int p = 0; p < rows; ++p) relay.fetch(p, top + p, true);
    for (int tile = 0;; ++tile, top += height) {
        // row of slot 0 of the patch that is finished
        const int done = top - height - depth * reach_y;
        await_copies();
        __syncwarp();  // each lane has waited for its own copies
        exchange(patch, stage, lane, w.w[TS_N_WEIGHTS - 1]);
        __syncwarp();  // the rows to be stored are complete
        if ((part.end - part.x) % vector != 0)
            store_rest(stage, dst + plane, memory, done, part, lane);
        const auto store = [&](int p) {
            relay.store(p, done + p, done + p >= part.low && done + p < part.high);
        };
        const auto fetch = [&](int p) { relay.fetch(p, top + height + p, tile + 1 < n_tiles); };
        if (!interleaved || tile == n_tiles) {
#pragma unroll
            for (int p = 0; p < rows; ++p) store(p);
#pragma unroll
            for (int p = 0; p < rows; ++p) fetch(p);
        }
        if (tile == n_tiles) break;
#pragma unroll 1
        for (int level = 0; level < depth; ++level, edges_of_warp.next_level()) {
            const real* above = edges_of_warp.above();
            real* below = edges_of_warp.below();
            if (interleaved && level == 0) {
                advance(patch, above, below, lane, w, [&](int p) {
                    store(p);
                    fetch(p);
                });
            } else {
                advance(patch, above, below, lane, w, [](int) {});
            }
        }
    }
}
