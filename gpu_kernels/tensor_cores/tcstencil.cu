// tcstencil.cu: apply a fused stencil as products of windows of the grid with banded matrices:
// FP16, mma.sync.
//
// Idea    TCStencil (gpu_kernels/tensor_cores/tcstencil.py): a tile of 16 x 16 numbers times a matrix that holds a
//         row of weights in each of its columns, shifted down by one from column to column. A row
//         of the tile is a *window*: 8 results along x and what they depend on, 16 points for a
//         radius up to 4 (TS_CHUNKS 1), 8 more for every 4 more; TS_HALF says whether the last
//         chunk of 16 is half a product only.
//         The 16 windows of a tile lie side by side, 128 results, so the fragment of results has
//         whole lines of memory. The authors multiply one tile by one matrix per column of weights
//         and add the shifted products. Here the shift is along the axis that is streamed (y in 2D,
//         z in 3D): a row that arrives is multiplied for each of the TS_FLIGHT results that depend
//         on it, which move on by one after each row. Nothing is loaded twice.
// Layout  A ring of TS_STAGES stages in shared memory (tcstencil_stage.cuh); the streamed axis is
//         z, y or x (TS_AXIS 0, 1 or 2) for 3D, 2D and 1D. Warps are side by side along x, in 3D
//         also along y; the TS_UNITS tiles of a warp lie side by side along x, in 3D along y, where
//         they share rows. Lane 4 g + t holds of windows g and g + 8 of a tile four points of each
//         chunk, and results 2 t and 2 t + 1. FP16 are points 2 t, 2 t + 1 and those 8 further on,
//         each pair a load that goes where the product wants it; floats 4 t to 4 t + 3, which is
//         one load: the order of the columns of a product is free, if the rows of the matrix have
//         the same (matrices.py).
// Writes  all of `box`.
// Limits  sm_80 or later; x of a box begins at a multiple of 128 bytes. TS_BANDS says of each
//         product which of the TS_MATRICES matrices it takes: n + 1 number n, -(n + 1) number n,
//         with which a sum begins, 0 none: all zeros.
// Variants  TS_FORMAT 0: FP16, 1: BF16, 2: TF32; TS_REAL is float for the last two and may be for
//           the first.
//         TS_SUMS 16: sums in FP16, too (of FP16 in memory). TS_MIRRORED 1 (2D, sums in FP32): rows
//         at the same distance have the same weights, and share a product, which is then added
//         twice: the authors' way for boxes.
// Test    tests/gpu/test_gpu_tcstencil.py

#if !defined(TS_REAL) || !defined(TS_FORMAT) || !defined(TS_SUMS) || !defined(TS_MIRRORED) ||      \
    !defined(TS_AXIS) || !defined(TS_FLIGHT) || !defined(TS_ACROSS) || !defined(TS_CHUNKS) ||      \
    !defined(TS_HALF) || !defined(TS_BANDS) || !defined(TS_MATRICES) || !defined(TS_WARPS) ||      \
    !defined(TS_WARPS_X) || !defined(TS_MIN_BLOCKS) || !defined(TS_UNITS) || !defined(TS_STEPS) || \
    !defined(TS_STAGES) || !defined(TS_LEAD) || !defined(TS_ROW_POINTS) || !defined(TS_ROWS) ||    \
    !defined(TS_REACH)
#error "tcstencil.cu needs macros that gpu_kernels/tensor_cores/tcstencil.py lists"
#endif

#include "mma_formats.cuh"
#include "mma_half.cuh"
#include "tcstencil_stage.cuh"

constexpr int f16 = 0, bf16 = 1, tf32 = 2, format = TS_FORMAT;
constexpr bool stores_half = sizeof(real) == 2, half_sums = TS_SUMS == 16, mirrored = TS_MIRRORED;
constexpr int axis = TS_AXIS;
constexpr int flight = TS_FLIGHT;  // results along the streamed axis that depend on a row
constexpr int across = TS_ACROSS;  // rows of a plane that they depend on: 1 but in 3D
constexpr int chunks = TS_CHUNKS;  // of 16 points of a window
constexpr int bands[flight][across][chunks] = TS_BANDS;
constexpr int warps = TS_WARPS, warps_x = TS_WARPS_X, warps_y = warps / warps_x,
              threads = 32 * warps;
constexpr int units = TS_UNITS;  // tiles of a warp
constexpr int steps = TS_STEPS;  // of the stream per stage
constexpr int stages = TS_STAGES;
constexpr int rows = TS_ROWS, row_points = TS_ROW_POINTS;  // of a stage

constexpr int unit_points = 128;  // results of a tile
// points of a window in front of its results
constexpr int window_lead = 8 * chunks - 4 - 4 * TS_HALF;
// results of a step of the stream, along x
constexpr int step_x = unit_points * (axis == 0 ? warps_x : warps * units);
constexpr int step_y = axis == 0 ? warps_y * units : 1;
constexpr int tile_x = axis == 2 ? steps * step_x : step_x;  // of a stage
constexpr int unit_stride = axis == 0 ? row_points : unit_points;
constexpr int words = format == tf32 ? 4 : 2;  // registers of a matrix of 16 x 8
constexpr int n_sums = half_sums ? 2 : 4;
// where half of the last chunk is zeros
constexpr bool half_products = TS_HALF && stores_half && !half_sums;

// Whether results with i rows need another product for the next one.
constexpr bool meets(int i) {
    for (int row = 0; row < across; row++)
        for (int chunk = 0; chunk < chunks; chunk++)
            if (bands[i][row][chunk] != 0) return true;
    return false;
}

static_assert(!half_sums || (format == f16 && stores_half && !mirrored),
              "sums in FP16 are for FP16");
static_assert(stages > 1, "a stage is read while others arrive");
static_assert(axis != 0 || steps == 1, "a stage is one plane");
static_assert(!mirrored || axis == 1, "shared products are for 2D");
static_assert(stores_half ? format == f16 : sizeof(real) == 4,
              "numbers in memory are FP16 or float");

constexpr int n_matrices = TS_MATRICES;

// Whether the matrices come to the registers by way of shared memory. On one H200 (float16, 512^3,
// 10240^2 and 10^7 points, November 2026) that is 2 % faster in 3D, and 1 to 12 % slower in 1D and
// 2D. Before sm_90 the compiler runs out of registers without it.
constexpr bool by_shared = axis == 0 || __CUDA_ARCH__ < 900;

struct alignas(4 * words) Words {
    unsigned w[words];
};

struct Weights {
    Words b[n_matrices][32];  // the registers of each lane
};

// The matrices, as the registers of a lane.
struct Matrices {
    Words b[n_matrices];

    __device__ __forceinline__ Matrices(const Weights& weights, unsigned* shared, int lane) {
        if constexpr (by_shared) {
            const unsigned* const all = &weights.b[0][0].w[0];
            for (int i = threadIdx.x; i < n_matrices * 32 * words; i += threads) shared[i] = all[i];
            __syncthreads();
#pragma unroll
            for (int n = 0; n < n_matrices; n++)
#pragma unroll
                for (int w = 0; w < words; w++) b[n].w[w] = shared[(n * 32 + lane) * words + w];
        } else {
#pragma unroll
            for (int n = 0; n < n_matrices; n++) b[n] = weights.b[n][lane];
        }
    }
};

template <bool half>
struct SumOf {
    using Type = float;
};
template <>
struct SumOf<true> {
    using Type = unsigned;  // two
};

// What a lane holds of 128 results.
struct Sums {
    SumOf<half_sums>::Type v[n_sums] = {};
};

// What it holds of a chunk of 16 windows, of windows g and g + 8.
struct Fragment {
    unsigned a[2][4];  // of 16-bit numbers only a[0]

    // `chunk` is that of window g; `half` if its last 8 points are multiplied by zeros.
    __device__ __forceinline__ Fragment(const real* chunk, bool is_half, int lane) {
        const int t = lane % 4;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const real* const from = chunk + half * (unit_points / 2);
            if constexpr (stores_half) {
                a[0][half] = *reinterpret_cast<const unsigned*>(from + 2 * t);
                a[0][2 + half] = is_half ? 0 : *reinterpret_cast<const unsigned*>(from + 8 + 2 * t);
            } else {
                const float4 four = *reinterpret_cast<const float4*>(from + 4 * t);
                if constexpr (format == tf32) {
                    a[0][half] = to_tf32(four.x), a[0][2 + half] = to_tf32(four.y);
                    a[1][half] = to_tf32(four.z), a[1][2 + half] = to_tf32(four.w);
                } else if constexpr (format == bf16) {
                    a[0][half] = pack_bf16(four.x, four.y),
                    a[0][2 + half] = pack_bf16(four.z, four.w);
                } else {
                    a[0][half] = pack_half(four.x, four.y),
                    a[0][2 + half] = pack_half(four.z, four.w);
                }
            }
        }
    }
};

// d = a b + c. Apart, d and c may be different registers: results move on without a copy. A
// template, so that only one of the instructions is looked at.
template <class S>
__device__ __forceinline__ void multiply(S& d, const Fragment& f, const unsigned (&b)[words],
                                         const S& c, bool is_half) {
    if constexpr (half_sums) {
        mma_half_in_half(d.v, f.a[0], b[0], b[1], c.v);
    } else if constexpr (format == f16) {
        const unsigned first[2] = {f.a[0][0], f.a[0][1]};
        if (is_half)
            mma_half_16x8x8(d.v, first, b[0], c.v);
        else
            mma_half_16x8x16(d.v, f.a[0], b[0], b[1], c.v);
    } else if constexpr (format == bf16) {
        mma_bf16(d.v, f.a[0], b[0], b[1], c.v);
    } else {
        float first[4];
        mma_tf32(first, f.a[0], b[0], b[1], c.v);
        mma_tf32(d.v, f.a[1], b[2], b[3], first);
    }
}

// Multiply the rows that have arrived for all results in flight of a warp: d[unit][i] has i rows of
// its results when they come, and the last is complete when this ends. `window` is number g of the
// first tile.
__device__ __forceinline__ void multiply_rows(Sums (&d)[units][flight + 1], const Matrices& m,
                                              const real* window, int lane) {
    Sums next[units][flight + 1];
#pragma unroll
    for (int j = 0; j < units + across - 1; j++) {
#pragma unroll
        for (int chunk = 0; chunk < chunks; chunk++) {
            const bool is_half = half_products && chunk == chunks - 1;
            const Fragment fragment(window + j * unit_stride + 16 * chunk, is_half, lane);
#pragma unroll
            for (int unit = 0; unit < units; unit++) {
                const int row = j - unit;
                if (row < 0 || row >= across) continue;
                // Downwards, so that each sum goes where the one before found its own: its place
                // for the next row.
#pragma unroll
                for (int i = flight - 1; i >= 0; i--) {
                    const int band = bands[i][row][chunk];
                    if (band < 0)
                        multiply(next[unit][i + 1], fragment, m.b[-band - 1].w, d[unit][i],
                                 is_half);
                    if (band > 0)
                        multiply(next[unit][i + 1], fragment, m.b[band - 1].w, next[unit][i + 1],
                                 is_half);
                }
            }
        }
    }
#pragma unroll
    for (int unit = 0; unit < units; unit++)
#pragma unroll
        for (int i = flight - 1; i >= 0; i--)
            d[unit][i + 1] = meets(i) ? next[unit][i + 1] : d[unit][i];  // as above
}

// The same where rows at the same distance share a product, which only that of the middle adds to
// the sums by itself.
__device__ __forceinline__ void multiply_mirrored(Sums (&d)[units][flight + 1], const Matrices& m,
                                                  const real* window, int lane) {
    constexpr int middle = flight / 2;
#pragma unroll
    for (int unit = 0; unit < units; unit++) {
        const Sums zero;
        Sums product[middle + 1];
#pragma unroll
        for (int chunk = 0; chunk < chunks; chunk++) {
            const bool is_half = half_products && chunk == chunks - 1;
            const Fragment fragment(window + unit * unit_stride + 16 * chunk, is_half, lane);
#pragma unroll
            for (int i = middle; i >= 0; i--) {
                const int band = bands[i][0][chunk];
                const Sums& before = band > 0 ? product[i] : i == middle ? d[unit][i] : zero;
                if (band != 0)
                    multiply(product[i], fragment, m.b[(band < 0 ? -band : band) - 1].w, before,
                             is_half);
            }
        }
#pragma unroll
        for (int i = flight - 1; i >= 0; i--) {
            const Sums& added = product[min(i, flight - 1 - i)];
#pragma unroll
            for (int k = 0; k < n_sums; k++) {
                if (i == middle && meets(i))
                    d[unit][i + 1].v[k] = added.v[k];
                else
                    d[unit][i + 1].v[k] = meets(i) ? d[unit][i].v[k] + added.v[k] : d[unit][i].v[k];
            }
        }
    }
}

// Write what a lane holds of a tile; `left` points of the box lie behind and with its first.
__device__ __forceinline__ void store(real* __restrict__ to, const Sums& d, int left) {
#pragma unroll
    for (int half = 0; half < 2; half++, to += unit_points / 2, left -= unit_points / 2) {
        if constexpr (stores_half) {
            unsigned pair;
            if constexpr (half_sums)
                pair = d.v[half];
            else
                pair = pack_half(d.v[2 * half], d.v[2 * half + 1]);
            if (left > 1)
                *reinterpret_cast<unsigned*>(to) = pair;
            else if (left == 1)
                *reinterpret_cast<unsigned short*>(to) = static_cast<unsigned short>(pair);
        } else {
            if (left > 1)
                *reinterpret_cast<float2*>(to) = make_float2(d.v[2 * half], d.v[2 * half + 1]);
            else if (left == 1)
                *reinterpret_cast<float*>(to) = d.v[2 * half];
        }
    }
}

// Where a warp's results lie.
struct Place {
    real* to;          // the lane's first result of the next step of the stream
    long long stride;  // from step to step
    long long unit;    // from tile to tile
    int left_x;        // points of the box from `to` on
    int left_y;
    bool whole;  // whether all of the warp's results are in the box

    // Write what a step has completed, and go on to the next.
    __device__ __forceinline__ void store_step(const Sums (&d)[units][flight + 1]) {
        if (whole && axis != 2 || axis == 2 && left_x >= unit_points * units) {
#pragma unroll
            for (int u = 0; u < units; u++) store(to + u * unit, d[u][flight], unit_points);
        } else {
#pragma unroll
            for (int u = 0; u < units; u++)
                if (axis != 0 || u < left_y)
                    store(to + u * unit, d[u][flight], left_x - (axis == 0 ? 0 : u * unit_points));
        }
        to += stride;
        if (axis == 2) left_x -= step_x;
    }
};

extern "C" __global__ void __launch_bounds__(threads, TS_MIN_BLOCKS)
    tcstencil(const real* __restrict__ src, real* __restrict__ dst,
              const __grid_constant__ Memory memory, const __grid_constant__ Box box,
              const Weights* __restrict__ weights, int chunk) {
    extern __shared__ __align__(16) real shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warp_x = warp % warps_x,
              warp_y = warp / warps_x;

    // The part of the box that this block passes; results become complete with the last `flight` -
    // 1 of its rows.
    const int first[3] = {box.low[0] + static_cast<int>(blockIdx.z) * (axis == 0 ? chunk : 1),
                          box.low[1] + static_cast<int>(blockIdx.y) * (axis == 1 ? chunk : step_y),
                          box.low[2] + static_cast<int>(blockIdx.x) * (axis == 2 ? chunk : tile_x)};
    const int n = min(chunk, box.high[axis] - first[axis]);
    const int n_steps = axis == 2 ? (n + step_x - 1) / step_x : n + flight - 1;
    const int n_stages = (n_steps + steps - 1) / steps;

    const StageCopy<rows, row_points, threads> copy(memory, box, box.high[1] + reach[1]);
    int y = first[1] - reach[1], x = first[2] - TS_LEAD;  // of the stage that is to be copied next
    const real* from = src + (first[0] - reach[0]) * memory.plane + y * memory.row + x;
    const long long stage_stride = axis == 0   ? memory.plane
                                   : axis == 1 ? steps * memory.row
                                               : tile_x;
    const auto start = [&](int stage) {
        if (stage < n_stages) copy.start(shared + stage % stages * (rows * row_points), from, y, x);
        copy_commit();  // also where nothing is copied, so that waiting can count groups
        from += stage_stride;
        y += axis == 1 ? steps : 0, x += axis == 2 ? tile_x : 0;
    };
    const Matrices matrices(*weights,
                            reinterpret_cast<unsigned*>(shared + stages * rows * row_points), lane);
#pragma unroll 1
    for (int stage = 0; stage < stages - 1; stage++) start(stage);

    const int results_x = unit_points * (axis == 0 ? warp_x : warp * units),
              results_y = axis == 0 ? warp_y * units : 0;
    const int of_lane = results_x + lane / 4 * 8 + lane % 4 * 2;
    Place place;
    place.to =
        dst + first[0] * memory.plane + (first[1] + results_y) * memory.row + first[2] + of_lane;
    place.stride = axis == 0 ? memory.plane : axis == 1 ? memory.row : step_x;
    place.unit = axis == 0 ? memory.row : unit_points;
    place.left_x = box.high[2] - first[2] - of_lane;
    place.left_y = box.high[1] - first[1] - results_y;
    place.whole = box.high[2] - first[2] - results_x >= unit_points * (axis == 0 ? 1 : units) &&
                  (axis != 0 || place.left_y >= units);
    const int of_window = results_y * row_points + results_x + TS_LEAD - window_lead + lane / 4 * 8;

    Sums d[units][flight + 1];
#pragma unroll 1
    for (int stage = 0; stage < n_stages; stage++) {
        real* const arrived = shared + stage % stages * (rows * row_points);
        copy_wait<stages - 2>();
        copy.finish(arrived, first[2] - TS_LEAD + (axis == 2 ? stage * tile_x : 0));
        // this stage has arrived for all, and all have multiplied the one before, whose place is
        // free
        __syncthreads();
        start(stage + stages - 1);
        const int left = n_steps - stage * steps;
#pragma unroll 1
        for (int step = 0; step < min(steps, left); step++) {
            const real* const window =
                arrived + of_window + step * (axis == 2 ? step_x : row_points);
            if constexpr (mirrored)
                multiply_mirrored(d, matrices, window, lane);
            else
                multiply_rows(d, matrices, window, lane);
            if (stage * steps + step >= flight - 1) place.store_step(d);
        }
    }
    copy_wait<0>();
}
