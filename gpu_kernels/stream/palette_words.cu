// palette_words.cu: ids of materials as the words that kernels of palettes read, written once per
// run.
//
// Idea    A lane of such a kernel reads the ids of its points and of those around them as one word of
//         nibbles or two of bytes (2D), or as such for each column (3D). Of each strip and row, or
//         tile, plane and warp, it is also told whether all that a warp reads there has one id. A warp
//         here makes the words of a warp there.
// Layout  ids: as Memory says, owned point (0, 0, 0) first. What is written: palette_2d.cu and
//         palette_3d.cu. Beyond what is allocated of the ids, the nearest is taken.
// Writes  all words, and all runs.
// Test    tests/gpu/test_gpu_palette.py

#if !defined(TS_COLUMNS) || !defined(TS_ROWS) || !defined(TS_WARPS) || !defined(TS_BITS)
#error "palette_words.cu needs -DTS_REAL, -DTS_COLUMNS, -DTS_ROWS, -DTS_WARPS, -DTS_BITS"
#endif
#include "common.cuh"

constexpr int columns = TS_COLUMNS;  // of a lane
constexpr int rows = TS_ROWS;        // of a warp
constexpr int warps = TS_WARPS;
constexpr int bits = TS_BITS;  // of an id
constexpr unsigned mixed = 255;

using Ids = const unsigned char* __restrict__;

__device__ __forceinline__ unsigned id_at(Ids ids, const Memory& memory, int z, int y, int x) {
    const Box& within = memory.within;
    return ids[clamp(z, within.low[0], within.high[0]) * memory.plane +
               clamp(y, within.low[1], within.high[1]) * memory.row +
               clamp(x, within.low[2], within.high[2])];
}

// The id that all lanes have, or `mixed`.
__device__ __forceinline__ unsigned common_id(unsigned id) {
#pragma unroll
    for (int by = 16; by > 0; by /= 2)
        if (__shfl_xor_sync(~0u, id, by) != id) id = mixed;
    return id;
}

// Rows low .. low + count - 1 of the strips from column x on; a block of threads for `warps` rows and
// each strip. words: [strip][row - low][lane][words]; uniform: [strip][row - low].
extern "C" __global__ void __launch_bounds__(32 * warps)
    words_2d(Ids ids, const __grid_constant__ Memory memory, unsigned* __restrict__ words,
             unsigned char* __restrict__ uniform, int x, int written, int low, int count) {
    constexpr int of_lane = bits / 4;
    const int lane = threadIdx.x % 32, strip = blockIdx.y;
    const int row = blockIdx.x * warps + threadIdx.x / 32;
    if (row >= count) return;
    const int first = x + strip * written + lane * columns - 1;
    unsigned word[of_lane] = {}, one = id_at(ids, memory, 0, low + row, first + 1);
#pragma unroll
    for (int k = 0; k < columns + 2; ++k) {
        const unsigned id = id_at(ids, memory, 0, low + row, first + k);
        word[k * bits / 32] |= id << (k * bits % 32);
        if (k > 0 && k <= columns && id != one) one = mixed;
    }
    const long long at = (long long)strip * count + row;
#pragma unroll
    for (int n = 0; n < of_lane; ++n) words[(at * 32 + lane) * of_lane + n] = word[n];
    one = common_id(one);
    if (lane == 0) uniform[at] = one;
}

// Of each strip and row: the id of `length` rows from there on, or `mixed`.
extern "C" __global__ void __launch_bounds__(32 * warps)
    runs_2d(const unsigned char* __restrict__ uniform, unsigned char* __restrict__ runs, int length,
            int count) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= count) return;
    const unsigned char* const of_strip = uniform + (long long)blockIdx.y * count;
    unsigned id = of_strip[row];
    for (int k = 1; k < length; ++k)
        if (of_strip[min(row + k, count - 1)] != id) id = mixed;
    runs[(long long)blockIdx.y * count + row] = id;
}

// Planes low .. low + count - 1 of the tiles from (y, x) on; a block of threads for each tile and
// plane. words: [tile][plane - low][16 bytes][thread]: own columns, then the one to the right, in each
// the rows -1 .. rows. uniform: [tile][plane - low][warp].
extern "C" __global__ void __launch_bounds__(32 * warps)
    words_3d(Ids ids, const __grid_constant__ Memory memory, uint4* __restrict__ words,
             unsigned char* __restrict__ uniform, int y, int x, int written_y, int written_x,
             int tiles_x, int low, int count) {
    constexpr int of_column = bits == 4 ? 1 : 2, pieces = ((columns + 1) * of_column + 3) / 4;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first_y = y + int(blockIdx.x) / tiles_x * written_y + warp * rows - 1;
    const int first_x = x + int(blockIdx.x) % tiles_x * written_x + lane * columns;
    const int z = low + blockIdx.y;
    unsigned word[4 * pieces] = {}, one = id_at(ids, memory, z, first_y, first_x);
#pragma unroll
    for (int c = 0; c <= columns; ++c) {
#pragma unroll
        for (int i = 0; i < rows + 2; ++i) {
            const unsigned id = id_at(ids, memory, z, first_y + i, first_x + c);
            word[c * of_column + i * bits / 32] |= id << (i * bits % 32);
            if (c < columns && id != one) one = mixed;
        }
    }
    const long long at = (long long)blockIdx.x * count + blockIdx.y;
#pragma unroll
    for (int n = 0; n < pieces; ++n)
        words[(at * pieces + n) * (32 * warps) + threadIdx.x] =
            make_uint4(word[4 * n], word[4 * n + 1], word[4 * n + 2], word[4 * n + 3]);
    one = common_id(one);
    if (lane == 0) uniform[at * warps + warp] = one;
}
