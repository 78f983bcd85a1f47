// row_writer.cuh: eight rows of results leave a warp's part of shared memory as whole lines.
//
// Layout  [plane][8 rows][pitch], `width` points of each row.
// Limits  A row begins on a 16-byte boundary in global memory; planes <= 4 with bulk copies, a lane
//         per row.

#pragma once
#include "async_copy.cuh"
#include "common.cuh"

template <int planes, int width, int pitch>
struct RowWriter {
    static constexpr int size = planes * 8 * pitch;
    static_assert(width % 2 == 0 && pitch % 2 == 0 && planes <= 4);

    double* staged;

    // Before results are staged: those before have been read.
    __device__ __forceinline__ void wait() const {
        if constexpr (bulk_copies) bulk_wait_read();
        __syncwarp();
    }

    // After they are staged: write those that lie in the box. (z, y, x) is the first of them.
    __device__ __forceinline__ void write(double* __restrict__ dst, const Memory& memory,
                                          const Box& box, int z, int y, int x) const {
        if constexpr (bulk_copies) fence_bulk();
        __syncwarp();
        const int n = min(width, box.high[2] - x);  // points of a row
        if (n <= 0) return;
        if constexpr (bulk_copies)
            write_lines(dst, memory, box, z, y, x, n);
        else
            write_vectors(dst, memory, box, z, y, x, n);
    }

   private:
    __device__ __forceinline__ void write_lines(double* __restrict__ dst, const Memory& memory,
                                                const Box& box, int z, int y, int x, int n) const {
        const int line = threadIdx.x % 32, i = z + line / 8, j = y + line % 8;
        if (line < 8 * planes && i < box.high[0] && j < box.high[1]) {
            const double* const from = staged + line * pitch;
            double* const to = dst + i * memory.plane + j * memory.row + x;
            if (n > 1) bulk_out(to, from, n / 2 * 16);
            if (n % 2 == 1) to[n - 1] = from[n - 1];
        }
        bulk_commit();
    }

    __device__ __forceinline__ void write_vectors(double* __restrict__ dst, const Memory& memory,
                                                  const Box& box, int z, int y, int x,
                                                  int n) const {
        for (int plane = 0; plane < planes && z + plane < box.high[0]; ++plane)
#pragma unroll 2
            for (int e = threadIdx.x % 32; e < 8 * (width / 2); e += 32) {
                const int row = e / (width / 2), at = 2 * (e % (width / 2));
                if (y + row >= box.high[1] || at >= n) continue;
                const double2 pair =
                    *reinterpret_cast<const double2*>(staged + (plane * 8 + row) * pitch + at);
                double* const to =
                    dst + (z + plane) * memory.plane + (y + row) * memory.row + x + at;
                if (at + 1 < n)
                    *reinterpret_cast<double2*>(to) = pair;
                else
                    *to = pair.x;
            }
    }
};
