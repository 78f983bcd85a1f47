// stream_2d_bulk.cuh: stream the tiles of a part by bulk copies, which run while levels are
// advanced (see stream_2d.cu).
//
// Idea    Copies by threads go through the unit that shuffles and shared memory need. One instruction
//         copies a whole row. A finished patch is stored from the stage during the first levels of the next
//         tile, and the rows of the tile after it arrive there during the others, so nobody waits
//         for a copy. Behind a loop that lanes may leave one by one the compiler prepares every
//         shuffle for lanes that are apart, and moves the whole patch at every level: so a warp
//         waits together (`await`), and nothing branches within the loops over levels.
// Layout  as stream_2d.cu; one Arrival per warp behind the edges.
// Limits  sm_90; Memory.within begins and ends at multiples of 16 bytes along x.

#pragma once
#include "async_copy.cuh"

// before this level the stage has been read, and rows are fetched into it
constexpr int fetch_level = depth > 3 ? 2 : depth - 1;
static_assert(rows <= 32, "a lane copies a row");

// The rows of a warp's patch in its stage, a lane for each of them.
struct BulkRows {
    real* own;        // the lane's row of the stage, from the first column that is written
    real* loaded;     // the same, from the first column that is read
    Arrival* arrival;
    const real* src;  // its place in row 0 of memory
    real* dst;        // the place of the first column that is written
    long long pitch;
    unsigned read_bytes, written_bytes;
    int first_row, last_row;  // allocated
    int row;                  // of the patch; rows and more: none

    __device__ __forceinline__ BulkRows(real* stage, Arrival* arrival_of_warp, const real* src_plane,
                                        real* dst_plane, const Memory& memory, const Part& part,
                                        int lane) {
        const int x = part.x - margin;
        const int first = max(x, memory.within.low[2]);
        const int last = min(x + width, memory.within.high[2]);
        row = lane;
        own = stage + lane * width + margin;
        loaded = stage + lane * width + first - x;
        arrival = arrival_of_warp;
        src = src_plane + first;
        dst = dst_plane + part.x;
        pitch = memory.row;
        read_bytes = (last - first) * sizeof(real);
        written_bytes = (part.end - part.x) / vector * 16;
        first_row = memory.within.low[1];
        last_row = memory.within.high[1] - 1;
        if (lane == 0) init_arrival(arrival);
        fence_bulk();
        __syncwarp();
    }

    // When what was stored from the stage has been read, row p of it will come from row top + p of
    // memory, or the allocated one nearest to it, if `wanted`.
    __device__ __forceinline__ void fetch(int top, bool wanted) const {
        bulk_wait_read();
        if (wanted && row == 0) expect_bytes(arrival, rows * read_bytes);
        __syncwarp();
        if (wanted && row < rows) {
            const int y = min(max(top + row, first_row), last_row);
            bulk_in(loaded, src + y * pitch, read_bytes, arrival);
        }
        __syncwarp();
    }

    // Wait for the rows that were fetched as number `phase`.
    __device__ __forceinline__ void await(int phase) const {
        while (__any_sync(~0u, !has_arrived(arrival, phase))) {
        }
    }

    // Row p of the stage goes to row done + p of memory if it is in the part.
    __device__ __forceinline__ void store(int done, const Part& part) const {
        fence_bulk();  // the whole row has been put there
        __syncwarp();
        const int y = done + row;
        if (row < rows && y >= part.low && y < part.high && written_bytes > 0)
            bulk_out(dst + y * pitch, own, written_bytes);
        __syncwarp();
        bulk_commit();
    }
};

template <class Finish, class LevelOf>
__device__ __forceinline__ void stream_bulk(const real* src, real* dst, const Memory& memory,
                                            const Part& part, int base, real* stage,
                                            Arrival* arrival, int lane, int warp, Finish finish,
                                            LevelOf level_of) {
    const int n_tiles = (part.high + depth * reach_y - base + height - 1) / height;
    const BulkRows bulk(stage, arrival, src, dst, memory, part, lane);

    real patch[rows][columns];
    int top = base + warp * rows;  // row of slot 0 of the patch at level 0
    bulk.fetch(top, true);
    bulk.await(0);
#pragma unroll
    for (int p = 0; p < rows; ++p) load_columns(patch[p], stage + p * width, lane);
    fence_bulk();
    __syncwarp();

    for (int tile = 0; tile < n_tiles; ++tile, top += height) {
        const bool more = tile + 1 < n_tiles;
        // Two loops, between which rows are fetched: a branch in one costs moves at every level.
#pragma unroll 1
        for (int level = 0; level < fetch_level; ++level) level_of(patch, [](int) {});
        bulk.fetch(top + height, more);
#pragma unroll 1
        for (int level = fetch_level; level < depth - peeled; ++level) level_of(patch, [](int) {});
        if (peeled) {
            if (more) bulk.await(tile + 1);
            level_of(patch, [&](int q) {
                const int p = q + edge_rows;
                if (p < rows) exchange_row(patch[p], stage + p * width, lane, finish);
            });
        } else {
            if (more) bulk.await(tile + 1);
            exchange(patch, stage, lane, finish);
        }
        const int done = top - depth * reach_y;
        if ((part.end - part.x) % vector != 0) {
            __syncwarp();
            store_rest(stage, dst, nullptr, memory, done, part, lane);
        }
        bulk.store(done, part);
    }
    bulk_wait_read();
}
