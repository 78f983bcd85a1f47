// dual_tessellation_1d.cu: apply a fused 1D stencil by ConvStencil's dual tessellation on FP64
// tensor cores.
//
// Idea    The weights of many steps are composed into one stencil: in 1D a step more costs two
//         products more a point, so steps are nearly free. A warp cuts its points into 16 segments,
//         the rows of the stencil2row matrix. A weight matrix gives 8 results of each segment from
//         the points around them; the same matrix, moved by 8 points, gives the next 8, and a
//         fragment of points is multiplied for all results that it reaches.
// Layout  A tile of a warp lies in shared memory; what a segment reads behind its end (matrix B)
//         are the first points of the next (matrix A), so with dirty bits one matrix serves for
//         both, as in stencil2row.cuh.
// Writes  all of `box`.
// Limits  float64. Up to about 28 steps memory is the limit, then the GPU's power.
// Test    tests/gpu/test_gpu_against_reference.py

#if !defined(TS_REAL) || !defined(TS_N_WEIGHTS) || !defined(TS_RADIUS_X) || !defined(TS_WARPS) || \
    !defined(TS_MIN_BLOCKS) || !defined(TS_TENSOR) || !defined(TS_PADDING) || \
    !defined(TS_DIRTY_BITS)
#error "dual_tessellation_1d.cu needs macros that gpu_kernels/tensor_cores/dual_tessellation.py lists"
#endif

#include "common.cuh"
#include "mma.cuh"

constexpr int warps = TS_WARPS;  // per block
constexpr int segment = 64;      // points of a row of the matrix: two a lane
constexpr int radius = TS_RADIUS_X;
constexpr int taps = 2 * radius + 1;
constexpr bool tensor = TS_TENSOR;

constexpr int n_segments = 16;  // rows of a fragment
constexpr int warp_points = n_segments * segment;
constexpr int tiles = segment / 8;  // 8 results of every segment
// points in front of its own that a tile begins with
constexpr int lead = (radius + 3) / 4 * 4;
// of 4 points that a tile of 8 results reads: even
constexpr int chunks = (lead + 8 + radius + 7) / 8 * 2;
constexpr int chunks_read = chunks + 2 * (tiles - 1);
constexpr int points_read = warp_points - 8 + 4 * chunks;
constexpr int behind = 4 * chunks - 8;  // points that a segment reads behind its end: matrix B

// Rows 4 apart modulo 16 doubles: the 4 by 4 points of a request lie in different banks.
constexpr int row_points = TS_DIRTY_BITS ? segment : segment + behind;
constexpr int pitch = TS_PADDING ? (row_points + 11) / 16 * 16 + 4 : row_points;
constexpr int rows_read = TS_DIRTY_BITS ? (points_read + segment - 1) / segment : n_segments;
constexpr int shared_points = rows_read * pitch;

struct Weights {
    real w[TS_N_WEIGHTS];
};

// Where chunk q begins, from the first point of its segment in shared memory.
constexpr int chunk_begin(int q) {
    return TS_DIRTY_BITS ? 4 * q / segment * pitch + 4 * q % segment : 4 * q;
}

__device__ __forceinline__ void copy_point(real* to, const real* from) {
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared), "l"(from) : "memory");
}

// Copy the points from `first` on; those before `low` and from `high` on become zero, for they may
// be NaN and are multiplied by zero.
__device__ __forceinline__ void copy_points(real* shared, const real* src, int first, int low,
                                            int high, int lane) {
#if TS_DIRTY_BITS
    // 16 bytes a lane, in requests of whole lines: the first begins `skip` points too early. A
    // round is a segment, but for its first lanes, which the segment before ends with.
    constexpr int skip = (16 - lead % 16) % 16;
    const int begin = 2 * lane - skip;
    const int place = begin >= 0 ? begin : begin + segment - pitch;
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
#pragma unroll
    for (int i = 0; i < (skip + points_read + segment - 1) / segment; i++) {
        const int point = i * segment + begin;
        if (point >= 0 && point < points_read)
            asm volatile(
                "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + 8 * (place + i * pitch)),
                "l"(src + first + point), "r"(8 * clamp(high - first - point, 0, 3))
                : "memory");
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    // Dirty bits in front of all that exists may be NaN; the lanes clear them that have just copied
    // them.
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (first < low && begin >= 0 && begin + i < lead - radius) shared[begin + i] = 0;
#else
    // Each point is asked which rows need it.
    for (int point = lane; point < points_read; point += 32) {
        const bool exists = first + point >= low && first + point < high;
        for (int row = min(point / segment, n_segments - 1);
             row >= 0 && point - row * segment < row_points; row--) {
            real* to = shared + row * pitch + point - row * segment;
            if (exists) {
                copy_point(to, src + first + point);
            } else {
                *to = 0;
            }
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncwarp();  // points of all lanes
}

// All results of the warp by products with the weight matrix.
__device__ __forceinline__ void multiply(real (&results)[tiles][4], const real* shared,
                                         const Weights& weights, int lane) {
    real b[chunks];
#pragma unroll
    for (int q = 0; q < chunks; q++) {
        const int tap = 4 * q + lane % 4 - lead - lane / 4 + radius;
        const real w = weights.w[clamp(tap, 0, taps)];
        b[q] = tap >= 0 && tap < taps ? w : 0;
    }
    const real* from = shared + lane / 4 * pitch + lane % 4;
#pragma unroll
    for (int c = 0; c < chunks_read; c += 2) {  // instructions that are two chunks deep
        const real a[4] = {from[chunk_begin(c)], from[chunk_begin(c) + n_segments / 2 * pitch],
                           from[chunk_begin(c + 1)],
                           from[chunk_begin(c + 1) + n_segments / 2 * pitch]};
#pragma unroll
        for (int tile = 0; tile < tiles; tile++) {
            const int q = c - 2 * tile;  // the tile's own number of this chunk
            if (q < 0 || q >= chunks) continue;
            const real weights_of_two[2] = {b[q], b[q + 1]};
            mma_16x8x8(results[tile], a, weights_of_two);
        }
    }
}

// The same sums on CUDA cores, for comparison: the taps, none of the zeros.
__device__ __forceinline__ void add(real (&results)[tiles][4], const real* shared,
                                    const Weights& weights, int lane) {
#pragma unroll
    for (int tile = 0; tile < tiles; tile++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = lane / 4 + 8 * half, first = 8 * tile + lane % 4 * 2 + lead - radius;
#pragma unroll 8
            for (int k = 0; k < taps + 1; k++) {
                const int point = first + k;
                const real u =
                    shared[TS_DIRTY_BITS ? (row + point / segment) * pitch + point % segment
                                         : row * pitch + point];
                real* two = results[tile] + 2 * half;
                if (k < taps) two[0] = fma_real(weights.w[k], u, two[0]);
                if (k > 0) two[1] = fma_real(weights.w[k - 1], u, two[1]);
            }
        }
    }
}

__device__ __forceinline__ void store(real* dst, const real (&results)[tiles][4], int x, int high,
                                      int lane) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int tile = 0; tile < tiles; tile++) {
            const int at = x + (lane / 4 + 8 * half) * segment + 8 * tile + lane % 4 * 2;
            if (at + 1 < high) {
                const real* two = results[tile] + 2 * half;
                *reinterpret_cast<double2*>(dst + at) = make_double2(two[0], two[1]);
            } else if (at < high) {
                dst[at] = results[tile][2 * half];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * warps, TS_MIN_BLOCKS)
    dual_tessellation_1d(const real* __restrict__ src, real* __restrict__ dst, Memory memory,
                         Box box, Weights weights) {
    extern __shared__ __align__(16) real all_shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int x = box.low[2] + (blockIdx.x * warps + warp) * warp_points;
    if (x >= box.high[2]) return;  // whole warps leave, and warps never meet
    const long long line = (box.low[0] + static_cast<int>(blockIdx.z)) * memory.plane +
                           (box.low[1] + static_cast<int>(blockIdx.y)) * memory.row;
    real* shared = all_shared + warp * shared_points;
    copy_points(shared, src + line, x - lead, box.low[2] - radius, box.high[2] + radius, lane);
    real results[tiles][4] = {};
    if (tensor) {
        multiply(results, shared, weights, lane);
    } else {
        add(results, shared, weights, lane);
    }
    store(dst + line, results, x, box.high[2], lane);
}
