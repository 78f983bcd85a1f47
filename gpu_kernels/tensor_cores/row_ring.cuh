// row_ring.cuh: a ring of slots in shared memory through which a block of threads streams rows of
// the grid.
//
// Layout  [slot][plane][row][pitch]; a row begins at the tile's first point, which is even.
// Limits  Rows of whole blocks of threads, in order: `load` one slot ahead or more, `wait` for the
//         next.

#pragma once
#include "async_copy.cuh"
#include "common.cuh"

template <int planes, int rows, int width, int pitch, int slots, int threads>
struct RowRing {
    static constexpr int lines = planes * rows, slot_size = lines * pitch;
    static_assert(width % 2 == 0 && pitch % 2 == 0, "copies have 16 bytes");

    double* slot_0;
    Arrival* arrivals;  // one per slot
    const double* src;
    Memory memory;
    int x, low_y, high_y;  // first point of the rows; rows that are there

    // All threads, before a barrier.
    __device__ __forceinline__ void init() const {
        if (bulk_copies && threadIdx.x < slots) init_arrival(arrivals + threadIdx.x);
        if (bulk_copies) fence_bulk();
    }

    __device__ __forceinline__ double* slot(int index) const { return slot_0 + index * slot_size; }

    // Start to copy the lines from plane z and row y on. Rows outside [low_y, high_y) become zeros:
    // they are multiplied by zeros, which must not meet a NaN. What is not allocated is left out:
    // only points that nobody wants depend on it.
    __device__ __forceinline__ void load(int index, int z, int y) const {
        if constexpr (bulk_copies)
            load_lines(index, z, y);
        else
            load_vectors(index, z, y);
    }

    // Count what was loaded as one group; also when nothing was, so that `wait` can count groups.
    __device__ __forceinline__ void commit() const {
        if constexpr (!bulk_copies) copy_commit();
    }

    // Wait for a slot, filled for the `phase`-th time. Followed by a barrier.
    __device__ __forceinline__ void wait(int index, int phase) const {
        if constexpr (bulk_copies)
            wait_arrival(arrivals + index, phase);
        else
            copy_wait<slots - 2>();
    }

   private:
    // One warp, a line per lane.
    __device__ __forceinline__ void load_lines(int index, int z, int y) const {
        if (threadIdx.x >= 32) return;
        // An allocation's ends are aligned to more than 16 bytes, so the neighbour of an allocated
        // point may be read.
        const int first = max(x, memory.within.low[2] & ~1);
        const unsigned bytes = 8 * (min(x + width, (memory.within.high[2] + 1) & ~1) - first);
        const int low_z = max(z, memory.within.low[0]),
                  high_z = min(z + planes, memory.within.high[0]);
        const int n_there = max(min(y + rows, high_y) - max(y, low_y), 0) * max(high_z - low_z, 0);
        if (threadIdx.x == 0) expect_bytes(arrivals + index, n_there * bytes);
        fence_bulk();  // zeros that were stored in this slot before come first
        __syncwarp();
#pragma unroll
        for (int line = threadIdx.x; line < lines; line += 32) {
            const int i = z + line / rows, j = y + line % rows;
            double* const to = slot(index) + line * pitch;
            if (j < low_y || j >= high_y)
                zero_line(to);
            else if (i >= low_z && i < high_z)
                bulk_in(to + first - x, src + i * memory.plane + j * memory.row + first, bytes,
                        arrivals + index);
        }
    }

    static __device__ __forceinline__ void zero_line(double* to) {
#pragma unroll 1
        for (int at = 0; at < width; ++at) to[at] = 0.0;
    }

    // All warps, a line per warp, whose address is uniform; 16 bytes per lane.
    __device__ __forceinline__ void load_vectors(int index, int z, int y) const {
        for (int line = threadIdx.x / 32; line < lines; line += threads / 32) {
            const int i = z + line / rows, j = y + line % rows;
            const bool line_there =
                j >= low_y && j < high_y && i >= memory.within.low[0] && i < memory.within.high[0];
            const double* const from = line_there ? src + i * memory.plane + j * memory.row : src;
            for (int at = 2 * (threadIdx.x % 32); at < width; at += 64) {
                const int k = x + at;
                const bool there =
                    line_there && k + 1 >= memory.within.low[2] && k < memory.within.high[2];
                copy_16(slot(index) + line * pitch + at, there ? from + k : src, there);
            }
        }
    }
};
