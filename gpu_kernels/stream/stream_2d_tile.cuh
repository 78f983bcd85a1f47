// stream_2d_tile.cuh: how a block of threads streams tiles of rows x columns patches down a strip
// (what stream_2d.cu and the kernels of materials share).
//
// Idea    See stream_2d.cu. What a row gives to the next level is the business of `consume`, which
//         `advance` calls for every row; what else happens at a level that of `levels`.
// Needs   reach_y, rows, columns before it is included; TS_DEPTH, TS_WARPS, TS_EDGES, TS_WRITTEN,
//         TS_MARGIN.

#pragma once

constexpr int depth = TS_DEPTH;  // steps per launch
constexpr int warps = TS_WARPS;  // per block, above each other
// 2: one barrier a level; 1: two, but less memory
constexpr int edges = TS_EDGES;
constexpr int written = TS_WRITTEN;   // columns that a block writes
constexpr int margin = TS_MARGIN;     // columns of a tile before these
constexpr int height = warps * rows;  // of a tile
constexpr int width = 32 * columns;   // of a tile
constexpr int edge_rows = 2 * reach_y;   // handed on from patch to patch
constexpr int edge = edge_rows * width;  // elements of these

#include "stream_2d_copies.cuh"

// Rows low .. high and columns x .. end are what a block writes.
struct Part {
    int low, high;
    int x, end;
};

__device__ __forceinline__ Part part_of_block(const Box& box, int chunk) {
    Part part;
    part.x = box.low[2] + blockIdx.x * written;
    part.end = min(part.x + written, box.high[2]);
    part.low = box.low[1] + blockIdx.y * chunk;
    part.high = min(part.low + chunk, box.high[1]);
    return part;
}

// Exchange a row of the patch, which is finished, with its row of the stage, where the next one has
// arrived.
template <class Finish>
__device__ __forceinline__ void exchange_row(real (&row)[columns], real* staged, int lane,
                                             Finish finish) {
    real finished[columns];
#pragma unroll
    for (int c = 0; c < columns; ++c) finished[c] = finish(row[c]);
    load_columns(row, staged, lane);
    store_columns(staged, finished, lane);
}

template <class Finish>
__device__ __forceinline__ void exchange(real (&patch)[rows][columns], real* stage, int lane,
                                         Finish finish) {
#pragma unroll
    for (int p = 0; p < rows; ++p) exchange_row(patch[p], stage + p * width, lane, finish);
}

// Advance one level. `below` receives the last rows for the patch below, `above` will hold those of
// the patch above. `consume(q, row)` gets the rows rows - 1, ..., 0, -1, ..., -edge_rows.
template <class Consume>
__device__ __forceinline__ void advance(real (&patch)[rows][columns], const real* above,
                                        real* below, int lane, Consume consume) {
#pragma unroll
    for (int k = 0; k < edge_rows; ++k)
        store_edge(below + k * width, patch[rows - edge_rows + k], lane);
#pragma unroll
    for (int q = rows - 1; q >= 0; --q) consume(q, patch[q]);
    // the rows of the patch above are there; with two edges nobody reads those of the level before
    __syncthreads();
#pragma unroll
    for (int q = -1; q >= -edge_rows; --q) {
        real own[columns];
        load_edge(own, above + (edge_rows + q) * width, lane);
        consume(q, own);
    }
    if (edges == 1) __syncthreads();  // they have been read, and may be overwritten
}

// Where a warp finds the rows above its patch and leaves those for the patch below, level after
// level, with what else is handed on: `size` elements.
template <int size>
struct EdgesOf {
    real* between;  // [warps - 1][edges][size]
    real* history;  // [depth + 2][size]
    int warp;
    int parity = 0;
    int oldest = 0;  // slot of `history` that was filled depth levels ago

    __device__ __forceinline__ const real* above() const {
        return warp > 0 ? between + ((warp - 1) * edges + parity) * size : history + oldest * size;
    }

    __device__ __forceinline__ real* below() const {
        const int newest = oldest <= 1 ? depth + oldest : oldest - 2;
        return warp < warps - 1 ? between + (warp * edges + parity) * size
                                : history + newest * size;
    }

    __device__ __forceinline__ void next_level() {
        parity = edges - 1 - parity;
        oldest = oldest == depth + 1 ? 0 : oldest + 1;
    }
};

using Edges = EdgesOf<edge>;

// When finished rows are stored and others fetched.
enum class Copies { between, among, by_level };

// Some rows of the patch before, which lies in the stage, are stored at each level and those of the
// patch after it fetched. The rows of the sum that are added come while the level is advanced.
struct CopiesByLevel {
    static constexpr int at_once = (rows + depth - 1) / depth;
    struct Added {
        SumRow row[at_once];
    };

    const Relay& relay;
    const Part& part;
    int done, next;  // rows of slot 0 of both patches
    bool more;

    __device__ __forceinline__ Added begin(int level) const {
        Added added;
#pragma unroll
        for (int k = 0; k < at_once; ++k)
            added.row[k] = relay.sum_row(done + level * at_once + k);
        return added;
    }

    __device__ __forceinline__ void end(int level, const Added& added) const {
#pragma unroll
        for (int k = 0; k < at_once; ++k) {
            const int p = level * at_once + k, to = done + p;
            if (p >= rows) return;
            relay.store_with(added.row[k], p, to, to >= part.low && to < part.high);
            relay.fetch(p, next + p, more);
        }
    }
};

// Those of a level, if they are made by level.
template <class Made>
__device__ __forceinline__ auto begin_copies(const Made& copies, int level) {
    if constexpr (has_sum) return copies.begin(level);
    else return 0;
}

template <class Made, class Added>
__device__ __forceinline__ void end_copies(const Made& copies, int level, const Added& added) {
    if constexpr (has_sum) copies.end(level, added);
}

// Stream the tiles of a part: `src`, `dst` and `sum`, if there is one, are planes, `base` is the row of slot 0 of the first
// warp's patch at level 0 of the first tile. `finish` makes what is stored of what is carried;
// `levels(patch, top, store, fetch)` advances a patch whose slot 0 holds row `top`, and if copies are
// `among` the rows of a level calls store and fetch for each row of it; if they are made `by_level`,
// it gets `CopiesByLevel` instead of store.
template <Copies copies, class Finish, class Levels>
__device__ __forceinline__ void stream_tiles(const real* src, real* dst, const real* sum,
                                             const Memory& memory, const Part& part, int base,
                                             real* stage, int lane, int warp, Finish finish,
                                             Levels levels) {
    const int n_tiles = (part.high + depth * reach_y - base + height - 1) / height;
    const Relay relay(stage, src, dst, sum, memory, part, lane);

    real patch[rows][columns];
#pragma unroll
    for (int p = 0; p < rows; ++p) {
#pragma unroll
        // it is exchanged before it is first used
        for (int c = 0; c < columns; ++c) patch[p][c] = real(0);
    }
    int top = base + warp * rows;  // row of slot 0 of the patch at level 0
#pragma unroll 1
    for (int p = 0; p < rows; ++p) relay.fetch(p, top + p, true);
    for (int tile = 0;; ++tile, top += height) {
        // row of slot 0 of the patch that is finished
        const int done = top - height - depth * reach_y;
        await_copies();
        __syncwarp();  // each lane has waited for its own copies
        exchange(patch, stage, lane, finish);
        __syncwarp();  // the rows to be stored are complete
        if ((part.end - part.x) % vector != 0) store_rest(stage, dst, sum, memory, done, part, lane);
        const auto store = [&](int p) {
            relay.store(p, done + p, done + p >= part.low && done + p < part.high);
        };
        const auto fetch = [&](int p) { relay.fetch(p, top + height + p, tile + 1 < n_tiles); };
        if (copies == Copies::between || tile == n_tiles) {
#pragma unroll
            for (int p = 0; p < rows; ++p) store(p);
#pragma unroll
            for (int p = 0; p < rows; ++p) fetch(p);
        }
        if (tile == n_tiles) break;
        if constexpr (copies == Copies::by_level) {
            levels(patch, top, CopiesByLevel{relay, part, done, top + height, tile + 1 < n_tiles},
                   fetch);
        } else {
            levels(patch, top, store, fetch);
        }
    }
}
