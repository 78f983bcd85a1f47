// dual_tessellation.cu: apply a fused 2D stencil by ConvStencil's dual tessellation on FP64 tensor
// cores.
//
// Idea    The weights of several steps are composed into one stencil. Groups of 8 points along x
//         are rows of the stencil2row matrices A and B (stencil2row.cuh); times a weight matrix,
//         lower triangular for A and upper triangular for B, each gives a half result (vitrolite),
//         and the instruction adds one onto the other. A warp walks down the rows of a strip of 128
//         columns and multiplies every row that arrives by the weights of all rows of the stencil,
//         for as many results in flight: a fragment is loaded once.
// Layout  A warp is alone: it copies its own rows, TS_STAGES - 1 ahead, through a ring of rows in
//         shared memory; the fragments of a row are loaded while the row before is multiplied.
// Writes  all of `box`.
// Limits  float64; a radius of 4, for the weights of all rows are kept in registers. Beyond 3 steps
//         the GPU's power is the limit: box-2d9p by 4 steps 670 GStencil/s at 1890 MHz and 780 W
//         (one H200, November 2026).
// Test    tests/gpu/test_gpu_against_reference.py

#if !defined(TS_REAL) || !defined(TS_N_WEIGHTS) || !defined(TS_RADIUS_X) ||                       \
    !defined(TS_RADIUS_Y) || !defined(TS_REACH) || !defined(TS_WARPS) ||                          \
    !defined(TS_MIN_BLOCKS) || !defined(TS_ROWS) || !defined(TS_STAGES) || !defined(TS_UNROLL) || \
    !defined(TS_TENSOR) || !defined(TS_PADDING) || !defined(TS_DIRTY_BITS)
#error "dual_tessellation.cu needs macros that gpu_kernels/tensor_cores/dual_tessellation.py lists"
#endif

#include "stencil2row.cuh"

constexpr int warps = TS_WARPS;    // per block, side by side along x
constexpr int rows = TS_ROWS;      // that a block writes
constexpr int stages = TS_STAGES;  // rows of the ring
constexpr int unroll = TS_UNROLL;  // rows per turn of the loop
constexpr int radius_y = TS_RADIUS_Y;
constexpr int taps_y = 2 * radius_y + 1;
constexpr int taps_x = 2 * radius_x + 1;
constexpr bool tensor = TS_TENSOR;
constexpr int reach[taps_y] = TS_REACH;  // how far the taps of each row go along x; -1: it has none

struct Weights {
    real w[TS_N_WEIGHTS];  // [taps_y][taps_x]
};

// The weight matrices of all rows, as the fragments that a lane holds.
struct WeightMatrices {
    real b[taps_y][chunks];

    __device__ __forceinline__ WeightMatrices(const Weights& weights, int lane) {
#pragma unroll
        for (int i = 0; i < taps_y; i++) {
#pragma unroll
            for (int q = 0; q < chunks; q++) {
                const int dx = tap_of(q, lane % 4, lane / 4);
                const real w = weights.w[i * taps_x + clamp(dx + radius_x, 0, taps_x)];
                b[i][q] = abs(dx) <= radius_x ? w : 0;
                asm volatile("" : "+d"(b[i][q]));  // else the choice is made anew for every row
            }
        }
    }
};

// Add what a row of the grid gives to the results in flight: results[i] lies radius_y - i rows
// below it. The inner loop runs over the results, so that neighbouring instructions do not wait for
// each other, and downwards, so that each can put its sum where the one before found its own: its
// place for the next row.
__device__ __forceinline__ void multiply_row(real (&results)[taps_y][4], const real (&a)[chunks][2],
                                             const WeightMatrices& matrices) {
#pragma unroll
    for (int q = 0; q < chunks; q++)
#pragma unroll
        for (int i = taps_y - 1; i >= 0; i--)
            multiply_piece(results[i], a, matrices.b[i], q, reach[i]);
}

// The same sums on CUDA cores, for comparison: the taps of each row, none of the zeros.
__device__ __forceinline__ void add_row(real (&results)[taps_y][4], const real* row,
                                        const Weights& weights, int lane) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int k = 0; k < taps_x + 1; k++) {
            const int point = copy_lead - radius_x + lane % 4 * 2 + k;
            const real u = row[(lane / 4 + n_groups / 2 * half) * pitch + place_of(point)];
#pragma unroll
            for (int i = 0; i < taps_y; i++) {
                if (k < taps_x && abs(k - radius_x) <= reach[i])
                    results[i][2 * half] =
                        fma_real(weights.w[i * taps_x + k], u, results[i][2 * half]);
                if (k > 0 && abs(k - 1 - radius_x) <= reach[i])
                    results[i][2 * half + 1] =
                        fma_real(weights.w[i * taps_x + k - 1], u, results[i][2 * half + 1]);
            }
        }
    }
}

// For the next row, results lie one row further up, and its points are at hand.
__device__ __forceinline__ void move_on(real (&results)[taps_y][4], real (&a)[chunks][2],
                                        const real (&ahead)[chunks][2]) {
#pragma unroll
    for (int i = taps_y - 1; i >= 0; i--)
#pragma unroll
        for (int k = 0; k < 4; k++) results[i][k] = i > 0 ? results[i - 1][k] : 0;
#pragma unroll
    for (int q = 0; q < chunks; q++)
#pragma unroll
        for (int half = 0; half < 2; half++) a[q][half] = ahead[q][half];
}

extern "C" __global__ void __launch_bounds__(32 * warps, TS_MIN_BLOCKS)
    dual_tessellation(const real* __restrict__ src, real* __restrict__ dst, Memory memory, Box box,
                      Weights weights) {
    extern __shared__ __align__(16) real shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int x = box.low[2] + (blockIdx.x * warps + warp) * warp_points;
    if (x >= box.high[2]) return;  // whole warps leave, and warps never meet
    const int begin = box.low[1] + blockIdx.y * rows, end = min(begin + rows, box.high[1]);
    const long long plane = (box.low[0] + static_cast<int>(blockIdx.z)) * memory.plane;
    src += plane;
    dst += plane;

    real* ring = shared + warp * stages * row_points;
    clear(ring, stages * row_points, lane, 32);
    __syncwarp();  // a copy must not come before the zeros
    const RowCopy copy(x, box, lane);
    const WeightMatrices matrices(weights, lane);

    int next = begin - radius_y;
    const int stop = end + radius_y;
#pragma unroll
    for (int stage = 0; stage < stages - 1; stage++, next++) {
        if (next < stop) copy.start(ring + stage * row_points, src + next * memory.row, lane);
        commit_copies();
    }

    real results[taps_y][4] = {};
    real a[chunks][2], ahead[chunks][2];  // fragments of this row and of the next
    wait_for_copies<stages - 2>();
    copy.finish(ring);
    __syncwarp();
    if (tensor) load_fragments(a, ring, lane);
    int stage = 0, stage_after = 1, free_stage = stages - 1;
#pragma unroll unroll
    for (int y = begin - radius_y; y < stop; y++, next++) {
        if (next < stop) copy.start(ring + free_stage * row_points, src + next * memory.row, lane);
        commit_copies();
        wait_for_copies<stages - 2>();
        copy.finish(ring + stage_after * row_points);
        // row y + 1 has arrived for all lanes, and all have read row y, whose place is free now
        __syncwarp();
        if (tensor) {
            load_fragments(ahead, ring + stage_after * row_points, lane);
            multiply_row(results, a, matrices);
        } else {
            add_row(results, ring + stage * row_points, weights, lane);
            __syncwarp();  // the next copy goes where others may still read
        }
        if (y - radius_y >= begin)
            store_row(dst + (y - radius_y) * memory.row, x, box.high[2], results[taps_y - 1], lane);
        move_on(results, a, ahead);
        free_stage = stage;
        stage = stage_after;
        stage_after = stage_after + 1 < stages ? stage_after + 1 : 0;
    }
}
