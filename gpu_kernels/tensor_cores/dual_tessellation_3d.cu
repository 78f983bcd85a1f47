// dual_tessellation_3d.cu: apply a fused 3D stencil plane by plane, large planes by dual
// tessellation (FP64).
//
// Idea    A 3D stencil is a sum of 2D stencils, one for each plane that it reaches (ConvStencil,
//         section 4.2). A block walks along z; a plane that arrives is read once and multiplied for
//         all planes of results in flight. Planes of more than TS_CUDA_POINTS taps go by the
//         stencil2row matrices (stencil2row.cuh) through tensor cores, the others tap by tap
//         through CUDA cores: a star's outer planes have so few taps that a matrix is mostly zeros.
//         On one H200 (November 2026) CUDA cores alone are faster, for power and memory are the
//         limits: heat-3d by two steps 443 GStencil/s, with its middle plane on tensor cores 380;
//         box-3d27p 218 and 196.
// Layout  Warps lie one below the other; each has TS_ROWS rows of 128 columns. The block copies
//         planes, TS_STAGES - 1 ahead, into a ring in shared memory; rows beyond its own are read
//         by two blocks.
// Writes  all of `box`.
// Limits  float64.
// Test    tests/gpu/test_gpu_against_reference.py

#if !defined(TS_REAL) || !defined(TS_N_WEIGHTS) || !defined(TS_RADIUS_X) ||                       \
    !defined(TS_RADIUS_Y) || !defined(TS_RADIUS_Z) || !defined(TS_REACH) || !defined(TS_WARPS) || \
    !defined(TS_MIN_BLOCKS) || !defined(TS_ROWS) || !defined(TS_PLANES) || !defined(TS_STAGES) || \
    !defined(TS_CUDA_POINTS) || !defined(TS_TENSOR) || !defined(TS_PADDING) ||                    \
    !defined(TS_DIRTY_BITS)
#error "dual_tessellation_3d.cu needs macros that gpu_kernels/tensor_cores/dual_tessellation.py lists"
#endif

#include "stencil2row.cuh"

constexpr int warps = TS_WARPS;
constexpr int rows = TS_ROWS;      // of a warp
constexpr int planes = TS_PLANES;  // that a block writes
constexpr int stages = TS_STAGES;  // planes of the ring
constexpr int radius_y = TS_RADIUS_Y, radius_z = TS_RADIUS_Z;
constexpr int taps_x = 2 * radius_x + 1, taps_y = 2 * radius_y + 1, taps_z = 2 * radius_z + 1;
// how far the taps of each row go along x; -1: it has none
constexpr int reach[taps_z][taps_y] = TS_REACH;

constexpr int block_rows = warps * rows;
constexpr int rows_read = block_rows + 2 * radius_y;
constexpr int plane_points = rows_read * row_points;  // of shared memory

constexpr int n_taps(int p) {
    int n = 0;
    for (int i = 0; i < taps_y; i++) n += 2 * reach[p][i] + 1 > 0 ? 2 * reach[p][i] + 1 : 0;
    return n;
}

constexpr bool on_tensor_cores(int p) { return TS_TENSOR && n_taps(p) > TS_CUDA_POINTS; }

// How far along x the taps go that CUDA cores take.
constexpr int cuda_reach() {
    int far = 0;
    for (int p = 0; p < taps_z; p++)
        for (int i = 0; i < taps_y; i++)
            if (!on_tensor_cores(p) && reach[p][i] > far) far = reach[p][i];
    return far;
}

struct Weights {
    real w[TS_N_WEIGHTS];  // [taps_z][taps_y][taps_x]
};

// The weight matrices of planes that tensor cores take, as the fragments that a lane holds.
struct WeightMatrices {
    real b[taps_z][taps_y][chunks];

    __device__ __forceinline__ WeightMatrices(const Weights& weights, int lane) {
#pragma unroll
        for (int p = 0; p < taps_z; p++) {
#pragma unroll
            for (int i = 0; i < taps_y; i++) {
#pragma unroll
                for (int q = 0; q < chunks; q++) {
                    if (!on_tensor_cores(p) || !chunk_used(q, reach[p][i])) continue;
                    const int dx = tap_of(q, lane % 4, lane / 4);
                    const real w =
                        weights.w[(p * taps_y + i) * taps_x + clamp(dx + radius_x, 0, taps_x)];
                    b[p][i][q] = abs(dx) <= radius_x ? w : 0;
                    // else the choice is made anew for every plane
                    asm volatile("" : "+d"(b[p][i][q]));
                }
            }
        }
    }
};

// in flight: results[p] lie radius_z - p planes above the plane that arrives
using Results = real[taps_z][rows][4];

// Add what row r of those that a warp reads gives through tensor cores.
__device__ __forceinline__ void multiply_row(Results& results, const real* row,
                                             const WeightMatrices& matrices, int r, int lane) {
    real a[chunks][2];
    load_fragments(a, row, lane);
#pragma unroll
    for (int q = 0; q < chunks; q++) {
#pragma unroll
        for (int p = taps_z - 1; p >= 0; p--) {
#pragma unroll
            for (int i = 0; i < taps_y; i++) {
                const int to = r - i;
                if (on_tensor_cores(p) && to >= 0 && to < rows)
                    multiply_piece(results[p][to], a, matrices.b[p][i], q, reach[p][i]);
            }
        }
    }
}

// Add what it gives through CUDA cores. A lane has two neighbouring results of each of two groups,
// so it reads pairs.
__device__ __forceinline__ void add_row(Results& results, const real* row, const Weights& weights,
                                        int r, int lane) {
    constexpr int before = cuda_reach() + cuda_reach() % 2, pairs = before + 1;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        real u[2 * pairs];
#pragma unroll
        for (int m = 0; m < pairs; m++) {
            const int point = copy_lead - before + lane % 4 * 2 + 2 * m;
            const double2 pair = *reinterpret_cast<const double2*>(
                row + (lane / 4 + n_groups / 2 * half) * pitch + place_of(point));
            u[2 * m] = pair.x;
            u[2 * m + 1] = pair.y;
        }
#pragma unroll
        for (int p = 0; p < taps_z; p++) {
#pragma unroll
            for (int i = 0; i < taps_y; i++) {
                const int to = r - i;
                if (on_tensor_cores(p) || to < 0 || to >= rows) continue;
#pragma unroll
                for (int dx = -reach[p][i]; dx <= reach[p][i]; dx++) {
                    const real w = weights.w[(p * taps_y + i) * taps_x + dx + radius_x];
                    real* two = results[p][to] + 2 * half;
                    two[0] = fma_real(w, u[before + dx], two[0]);
                    two[1] = fma_real(w, u[before + dx + 1], two[1]);
                }
            }
        }
    }
}

// Begin to copy a plane; warps take rows in turn. Rows that do not exist give results that nobody
// writes.
__device__ __forceinline__ void start_plane(const RowCopy& copy, real* shared, const real* plane,
                                            const Memory& memory, int y, int high, int warp,
                                            int lane) {
    for (int r = warp; r < rows_read; r += warps)
        if (y + r < high) copy.start(shared + r * row_points, plane + (y + r) * memory.row, lane);
}

// Write the results of a warp that are complete; its rows begin at y.
__device__ __forceinline__ void store_rows(real* plane, const Results& results,
                                           const Memory& memory, const Box& box, int x, int y,
                                           int lane) {
#pragma unroll
    for (int r = 0; r < rows; r++)
        if (y + r < box.high[1])
            store_row(plane + (y + r) * memory.row, x, box.high[2], results[taps_z - 1][r], lane);
}

// For the next plane, results lie one plane further up.
__device__ __forceinline__ void move_on(Results& results) {
#pragma unroll
    for (int p = taps_z - 1; p >= 0; p--)
#pragma unroll
        for (int r = 0; r < rows; r++)
#pragma unroll
            for (int k = 0; k < 4; k++) results[p][r][k] = p > 0 ? results[p - 1][r][k] : 0;
}

extern "C" __global__ void __launch_bounds__(32 * warps, TS_MIN_BLOCKS)
    dual_tessellation_3d(const real* __restrict__ src, real* __restrict__ dst, Memory memory,
                         Box box, Weights weights) {
    extern __shared__ __align__(16) real ring[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int x = box.low[2] + blockIdx.x * warp_points;
    const int y = box.low[1] + blockIdx.y * block_rows;
    const int begin = box.low[0] + blockIdx.z * planes, end = min(begin + planes, box.high[0]);
    clear(ring, stages * plane_points, threadIdx.x, 32 * warps);
    __syncthreads();  // a copy must not come before the zeros
    const RowCopy copy(x, box, lane);
    const WeightMatrices matrices(weights, lane);

    const int first_read = y - radius_y, high_read = box.high[1] + radius_y;
    int next = begin - radius_z;
    const int stop = end + radius_z;
#pragma unroll
    for (int stage = 0; stage < stages - 1; stage++, next++) {
        if (next < stop)
            start_plane(copy, ring + stage * plane_points, src + next * memory.plane, memory,
                        first_read, high_read, warp, lane);
        commit_copies();
    }

    Results results = {};
    int stage = 0, free_stage = stages - 1;
#pragma unroll 1
    for (int z = begin - radius_z; z < stop; z++, next++) {
        real* plane = ring + stage * plane_points;
        wait_for_copies<stages - 2>();
        for (int r = warp; r < rows_read; r += warps) copy.finish(plane + r * row_points);
        // plane z has arrived for all, and all have read the plane before, whose place is free now
        __syncthreads();
        if (next < stop)
            start_plane(copy, ring + free_stage * plane_points, src + next * memory.plane, memory,
                        first_read, high_read, warp, lane);
        commit_copies();
#pragma unroll
        for (int r = 0; r < rows + 2 * radius_y; r++) {
            const real* row = plane + (warp * rows + r) * row_points;
            multiply_row(results, row, matrices, r, lane);
            add_row(results, row, weights, r, lane);
        }
        if (z - radius_z >= begin)
            store_rows(dst + (z - radius_z) * memory.plane, results, memory, box, x,
                       y + warp * rows, lane);
        move_on(results);
        free_stage = stage;
        stage = stage + 1 < stages ? stage + 1 : 0;
    }
}
