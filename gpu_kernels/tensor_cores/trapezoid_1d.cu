// trapezoid_1d.cu: Tensor Trapezoid Folding of a line: a 1D stencil of any weights as products with
// a banded matrix.
//
// Idea    The line is folded into segments; 16 of them are the rows of A. Eight points of a segment
//         depend on 8 + 2 * rx of it by a banded matrix whose columns are the weights, each shifted
//         down by one. A warp walks along its 16 segments; every chunk of four points feeds all
//         groups of eight results that it overlaps, and the results of a whole segment stay in
//         registers, as does the band. A point costs 8 + 2 * rx multiplications, so fusing t steps
//         of radius r costs 2 * r + 8 / t per step: the more steps, the better.
// Layout  See common.cuh. Shared memory: the tile's points in order, 4 left free after every
//         segment, which puts the 16 lanes that are served at a time into 16 different banks.
// Writes  every point of the box.
// Limits  float64; sm_80 or later; one row of points; n_weights * 8 bytes of kernel arguments. A
//         NaN or infinity spreads up to seven points further than the stencil reaches, because
//         zeros of the band are multiplied too.
// Order   By dx: tensor cores make a chain of fused multiply-adds, bit for bit, and zeros of the
//         band do not change it.
// Test    tests/gpu/test_gpu_against_reference.py; in NumPy: tests/papers/tetris/folding.py

#if !defined(TS_REAL) || !defined(TS_RADIUS_X) || !defined(TS_GROUPS) || !defined(TS_WARPS) || \
    !defined(TS_BLOCKS)
#error "trapezoid_1d.cu needs macros that gpu_kernels/tensor_cores/trapezoid.py lists"
#endif
#include "async_copy.cuh"
#include "common.cuh"
#include "mma.cuh"

constexpr int rx = TS_RADIUS_X;
constexpr int groups = TS_GROUPS;  // of eight points per segment
constexpr int threads = 32 * TS_WARPS;

// points beside the tile that are read, even: copies of 16 bytes
constexpr int margin = rx + rx % 2;
constexpr int chunks = (8 + rx + margin + 3) / 4;  // that a group depends on
constexpr int segment = 8 * groups;
constexpr int warp_width = 16 * segment, tile_width = TS_WARPS * warp_width;
constexpr int n_read = (tile_width - 8 + 4 * chunks + 1) / 2 * 2;
constexpr int n_weights = 2 * rx + 1, padded = 4 * chunks + 8;

struct Weights {
    double w[n_weights];
};

// Where a point of the tile lies in shared memory, counted from the first one read.
__device__ constexpr int place(int x) { return x + x / segment * 4; }

__device__ __forceinline__ void copy_line(
    double* line, const double* __restrict__ src, int x0, int low, int high) {
    for (int at = 2 * threadIdx.x; at < n_read; at += 2 * threads) {
        const int x = x0 + at;
        double* const to = line + place(at);
        if ((x >= low && x + 1 < high) || x + 1 < low || x >= high) {
            copy_16(to, x >= low && x < high ? src + x : src, x >= low && x < high);
        } else {
            // the box's first or last: what lies beside it may be a NaN, which zeros of the band
            // must not meet
            to[0] = x >= low ? src[x] : 0.0;
            to[1] = x + 1 < high ? src[x + 1] : 0.0;
        }
    }
    copy_commit();
}

extern "C" __global__ void __launch_bounds__(threads, TS_BLOCKS)
    trapezoid_1d(const real* __restrict__ src, real* __restrict__ dst, const Memory memory,
        const Box box, const Weights weights) {
    extern __shared__ __align__(16) double shared[];
    double* const line = shared;
    double* const all_weights = line + place(n_read);

    const long long row = box.low[0] * memory.plane + box.low[1] * memory.row;
    const int x0 = box.low[2] + blockIdx.x * tile_width;
    copy_line(line, src + row, x0 - margin, box.low[2] - rx, box.high[2] + rx);
    for (int e = threadIdx.x; e < padded; e += threads) {
        const int dx = e - 7 - (margin - rx);  // counted from -rx
        all_weights[e] = dx >= 0 && dx <= 2 * rx ? weights.w[dx] : 0.0;
    }
    copy_wait<0>();
    __syncthreads();

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    double band[chunks];  // row 4 * chunk + t, column g
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) band[chunk] = all_weights[4 * chunk + t - g + 7];

    double sums[groups][4] = {};
    const double* const first = line + place((16 * warp + g) * segment) + t;
#pragma unroll
    for (int c = 0; c < 2 * (groups - 1) + chunks; ++c) {
        const double low = first[place(4 * c)], high = first[place(8 * segment) + place(4 * c)];
#pragma unroll
        for (int group = 0; group < groups; ++group) {
            const int chunk = c - 2 * group;
            if (chunk >= 0 && chunk < chunks) mma_16x8x4(sums[group], low, high, band[chunk]);
        }
    }

    double* const out = dst + row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int x = x0 + warp * warp_width + (g + 8 * half) * segment + 2 * t;
#pragma unroll
        for (int group = 0; group < groups; ++group) {
            const int at = x + 8 * group;
            if (at + 1 < box.high[2])
                *reinterpret_cast<double2*>(out + at) =
                    make_double2(sums[group][2 * half], sums[group][2 * half + 1]);
            else if (at < box.high[2])
                out[at] = sums[group][2 * half];
        }
    }
}
