// banded.cu: a stencil as products with banded matrices and little else, for the benchmark: what trapezoid.cu gains by
// folding and pipelining is the difference between the two (benchmarks/gpu.py --breakdown; Tetris, Figure 12).
//
// Idea    Eight results along y (1D: along x) depend on 8 + 2 r points by a banded matrix. A warp makes 8 rows of 4 times
//         16 points (1D: 4 times 16 groups of 8 points) and adds the products of all (dz, dx) up.
//         TS_SHARED 0: every operand comes from global memory.
//         TS_SHARED 1: a block first copies a checkerboard of 8 x 8 squares of 8 x 8 points, and what lies around it, into
//         shared memory; a warp has one row of squares.
//         TS_SWIZZLED 1: rows of shared memory have their groups of four columns in another order each (in 1D every
//         second group of 16), so that the 16 lanes that are served at a time meet 16 banks, without padding.
// Layout  See common.cuh.
// Writes  every point of the box.
// Limits  float64; sm_80 or later; one launch of one composed stencil. Zeros of a band are multiplied too.
// Test    tests/papers/test_gpu_rungs.py

#if !defined(TS_REAL) || !defined(TS_RADIUS_Z) || !defined(TS_RADIUS_Y) || !defined(TS_RADIUS_X) || \
    !defined(TS_LINE) || !defined(TS_SHARED) || !defined(TS_SWIZZLED)
#error "banded.cu needs -DTS_REAL=double and -DTS_RADIUS_Z ... -DTS_SWIZZLED, all of the above (banded.py)"
#endif
#include "common.cuh"
#include "mma.cuh"

constexpr bool line = TS_LINE;  // 1D: the band runs along x
constexpr int rz = TS_RADIUS_Z, ry = TS_RADIUS_Y, rx = TS_RADIUS_X;
constexpr int along = line ? rx : ry;        // radius of the band
constexpr int taps = line ? 1 : 2 * rx + 1;  // along x, a band each
constexpr int chunks = (8 + 2 * along + 3) / 4;
constexpr int padded = 4 * chunks + 8;  // a column of weights with zeros on both sides
constexpr int n_columns = (2 * rz + 1) * taps;

constexpr int warps = 8, strips = 4, threads = 32 * warps;
constexpr int strip_width = line ? 128 : 16, warp_width = strips * strip_width;
constexpr int tile_x = line ? warps * warp_width : warp_width, tile_y = line ? 1 : 8 * warps;
constexpr int columns_read = line ? tile_x - 8 + 4 * chunks : tile_x + 2 * rx;
constexpr int rows_read = line ? 1 : tile_y - 8 + 4 * chunks;
constexpr int pitch = (columns_read + 15) / 16 * 16;

struct Weights {
    double w[n_columns * (2 * along + 1)];  // [dz][tap][along the band]
};

// Where a point of the tile lies in shared memory.
__device__ __forceinline__ int place(int row, int column) {
    if (TS_SWIZZLED) column ^= line ? (column / 16 % 2) * 4 : row % 4 * 4;
    return row * pitch + column;
}

// The points of a tile, counted from the first that is read. What lies beyond all that results depend on is multiplied by
// zero, and is replaced by its neighbour, since it may be a NaN.
struct Tile {
    const double* src;
    const double* shared;
    Memory memory;
    int y, x, last_y, last_x;

    __device__ __forceinline__ const double* in_global(int dz, int row, int column) const {
        return src + dz * memory.plane + min(y + row, last_y) * memory.row + min(x + column, last_x);
    }
    __device__ __forceinline__ double operator()(int dz, int row, int column) const {
        return TS_SHARED ? shared[dz * rows_read * pitch + place(row, column)] : *in_global(dz, row, column);
    }
};

__device__ __forceinline__ void copy_tile(double* shared, const Tile& tile) {
    // A warp per row; in 1D all threads for the only one.
    for (int i = line ? 0 : threadIdx.x / 32; i < (2 * rz + 1) * rows_read; i += line ? 1 : warps) {
        const int dz = i / rows_read, row = i % rows_read;
        for (int column = line ? threadIdx.x : threadIdx.x % 32; column < columns_read; column += line ? threads : 32) {
            double* const to = shared + dz * rows_read * pitch + place(row, column);
            asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(
                             static_cast<unsigned>(__cvta_generic_to_shared(to))),
                "l"(tile.in_global(dz, row, column))
                : "memory");
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(threads, 1) banded(const real* __restrict__ src, real* __restrict__ dst,
    const __grid_constant__ Memory memory, const __grid_constant__ Box box, const __grid_constant__ Weights weights) {
    extern __shared__ __align__(16) double shared[];
    double* const all_weights = shared;
    double* const points = shared + n_columns * padded;
    const int z0 = box.low[0] + blockIdx.z, y0 = box.low[1] + blockIdx.y * tile_y, x0 = box.low[2] + blockIdx.x * tile_x;
    const Tile tile{src + (z0 - rz) * memory.plane, points, memory, y0 - ry, x0 - rx, box.high[1] - 1 + ry,
        box.high[2] - 1 + rx};
    for (int e = threadIdx.x; e < n_columns * padded; e += threads) {
        const int at = e % padded - 7;
        all_weights[e] = at >= 0 && at <= 2 * along ? weights.w[e / padded * (2 * along + 1) + at] : 0.0;
    }
    if (TS_SHARED) copy_tile(points, tile);
    __syncthreads();

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    double sums[strips][4] = {};
    // Not unrolled: the compiler would load for all taps at once, into more registers than there are.
#pragma unroll 1
    for (int dz = 0; dz < 2 * rz + 1; ++dz)
#pragma unroll 1
        for (int tap = 0; tap < taps; ++tap)
#pragma unroll
            for (int chunk = 0; chunk < chunks; ++chunk) {
                const int k = 4 * chunk + t;
                const double band = all_weights[(dz * taps + tap) * padded + 7 + k - g];
#pragma unroll
                for (int strip = 0; strip < strips; ++strip) {
                    const int row = line ? 0 : 8 * warp + k;
                    const int column = line ? warp * warp_width + strip * strip_width + 8 * g + k : 16 * strip + tap + g;
                    mma_16x8x4(sums[strip], tile(dz, row, column), tile(dz, row, column + (line ? 64 : 8)), band);
                }
            }

#pragma unroll
    for (int strip = 0; strip < strips; ++strip)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int m = g + c / 2 * 8, n = 2 * t + c % 2;  // row and column of the product
            const int y = line ? y0 : y0 + 8 * warp + n;
            const int x = x0 + strip * strip_width + (line ? warp * warp_width + 8 * m + n : m);
            if (y < box.high[1] && x < box.high[2]) dst[z0 * memory.plane + y * memory.row + x] = sums[strip][c];
        }
}
