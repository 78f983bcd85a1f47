// sparse.cu: apply a fused stencil as products with a matrix of which one half is zeros and is left
// out: mma.sp.
//
// Idea    SparStencil (gpu_kernels/tensor_cores/sparse.py): TS_MERGED_X neighbouring results along x and 16 /
//         TS_MERGED_X along y are the rows of the sparse operand A, the points that they depend on
//         the rows of B, and eight such patches side by side its columns. A, its metadata and the
//         order of B's rows come from the host. Patches are made of *units*, rows of points that
//         arrive together. Every unit is multiplied for all results that depend on it, TS_FLIGHT of
//         them along the axis that is streamed, so its fragment is loaded once; results in flight
//         move on by one after each unit (as in dual_tessellation.cu). With TS_FLIGHT 1 a patch is
//         one unit, which is the paper's way; its points are then loaded again for every result.
// Layout  A ring of TS_STAGES stages in shared memory (sparse_tile.cuh); the streamed axis is z, y
//         or x (TS_AXIS 0, 1 or 2) for 3D, 2D and 1D. Warps are side by side along x, in 3D along
//         y. A lane finds the rows of B that it holds in a table of the host, TS_VECTOR
//         neighbouring points at a time.
// Writes  all of `box`.
// Limits  sm_80 or later; x of a box begins at a multiple of 128 bytes.
// TS_FORMAT: sparse_formats.cuh. TS_SPARSE 0: the same matrices in the same order on mma.sync,
// zeros and all, which is for comparison but in FP64, where there is nothing else.
// Test    tests/gpu/test_gpu_sparse.py

#if !defined(TS_REAL) || !defined(TS_FORMAT) || !defined(TS_SPARSE) || !defined(TS_MERGED_X) ||   \
    !defined(TS_FLIGHT) || !defined(TS_PRODUCTS) || !defined(TS_VECTOR) || !defined(TS_LINEAR) || \
    !defined(TS_FIRSTS) || !defined(TS_AXIS) || !defined(TS_WARPS) || !defined(TS_MIN_BLOCKS) ||  \
    !defined(TS_UNITS) || !defined(TS_STEPS) || !defined(TS_STAGES) || !defined(TS_LEAD) ||       \
    !defined(TS_ROW_POINTS) || !defined(TS_ROWS) || !defined(TS_REACH)
#error "sparse.cu needs macros that gpu_kernels/tensor_cores/sparse.py lists"
#endif

#include "sparse_formats.cuh"
#include "sparse_tile.cuh"

constexpr int merged_x = TS_MERGED_X, merged_y = 16 / merged_x;  // results of a patch
constexpr int flight = TS_FLIGHT;      // results along the streamed axis that depend on a unit
constexpr int products = TS_PRODUCTS;  // that a unit takes for each of them
constexpr int vector = TS_VECTOR;      // points per load of a fragment
constexpr int axis = TS_AXIS;
constexpr int warps = TS_WARPS, threads = 32 * warps;
constexpr int units = TS_UNITS;  // that a warp multiplies per step, side by side
constexpr int steps = TS_STEPS;  // of the stream per stage
constexpr int stages = TS_STAGES;
constexpr int rows = TS_ROWS;  // of a stage
constexpr int row_points = TS_ROW_POINTS, pitch = row_points;

static_assert(stages > 1, "a stage is read while others arrive");

constexpr int unit_points = 8 * merged_x;  // along x
// results of a stage
constexpr int tile_x = unit_points * units * (axis == 0 ? 1 : axis == 1 ? warps : warps * steps);
constexpr int loads = slots / vector;  // per fragment
constexpr int n_products = flight * products, a_parts = a_words / words_at_once;
constexpr int products_per_metadata = format == tf32 ? 1 : 2;
constexpr int n_metadata =
    sparse ? (n_products + products_per_metadata - 1) / products_per_metadata : 1;
constexpr bool table_in_registers = products * loads <= 16;
#if TS_LINEAR
// each lane of a quad finds its points one behind those of the lane before
constexpr bool linear = true;
constexpr int firsts[products][loads] = TS_FIRSTS;  // where the first lane does
#else
constexpr bool linear = false;
#endif

struct alignas(16) Words {
    Word w[words_at_once];
};

struct Weights {
    Words a[n_products][a_parts][32];   // [flight][product], the words of each lane
    unsigned metadata[n_metadata][32];  // of two instructions each
    // by t: where vectors lie in a stage, for the first patch of the first unit
    int table[products][4][loads];
};

// The matrix, as the words of a lane.
struct Matrix {
    Word a[n_products][a_words];
    unsigned metadata[n_metadata];

    __device__ __forceinline__ Matrix(const Weights& weights, int lane) {
#pragma unroll
        for (int i = 0; i < n_products; i++) {
#pragma unroll
            for (int part = 0; part < a_parts; part++) {
                const Words some = weights.a[i][part][lane];
#pragma unroll
                for (int k = 0; k < words_at_once; k++) a[i][part * words_at_once + k] = some.w[k];
            }
        }
#pragma unroll
        for (int i = 0; i < n_metadata; i++) metadata[i] = sparse ? weights.metadata[i][lane] : 0;
    }

    // d = (product number p of A) b + c.
    __device__ __forceinline__ void apply(Sum (&d)[4], int p, const Word (&b)[b_words],
                                          const Sum (&c)[4]) const {
        const unsigned own = sparse ? metadata[p / products_per_metadata] : 0;
        if (p % products_per_metadata == 0)
            multiply<false>(d, a[p], b, c, own);
        else
            multiply<true>(d, a[p], b, c, own);
    }
};

// Where a lane finds the rows of B: its column of the lookup table. A linear one is known to the
// compiler.
struct Table {
    const int* shared;  // [products][4][loads]
    int own[table_in_registers ? products * loads : 1];
    int t;

    __device__ __forceinline__ Table(const int* all, int lane) : shared(all), t(lane % 4) {
        if constexpr (table_in_registers) {
#pragma unroll
            for (int i = 0; i < products * loads; i++)
                own[i] = shared[(i / loads * 4 + t) * loads + i % loads];
        }
    }

    // From the lane's own patch on.
    __device__ __forceinline__ int operator()(int product, int load) const {
#if TS_LINEAR
        return firsts[product][load];
#endif
        if constexpr (table_in_registers) return own[product * loads + load];
        return shared[(product * 4 + t) * loads + load];
    }
};

// The fragment of B for one product: `patch` is the lane's own, whose points lie where the table
// says.
template <class B, class T>
__device__ __forceinline__ void load_fragment(B& b, const T* patch, const Table& table,
                                              int product) {
    if constexpr (format == f16) {
#pragma unroll
        for (int load = 0; load < loads; load++) {
            const T* const from = patch + table(product, load);
            if constexpr (vector == 8) {
                const uint4 four = *reinterpret_cast<const uint4*>(from);
                b[0] = four.x, b[1] = four.y, b[2] = four.z, b[3] = four.w;
            } else if constexpr (vector == 4) {
                const uint2 two = *reinterpret_cast<const uint2*>(from);
                b[2 * load] = two.x, b[2 * load + 1] = two.y;
            } else {
                const unsigned point = *from;
                b[load / 2] = load % 2 ? b[load / 2] | point << 16 : point;
            }
        }
    } else {
        T numbers[slots];
#pragma unroll
        for (int load = 0; load < loads; load++) {
            const T* const from = patch + table(product, load);
            if constexpr (vector % 4 == 0) {
#pragma unroll
                for (int k = load * vector; k < (load + 1) * vector; k += 4) {
                    const float4 four = *reinterpret_cast<const float4*>(from + k - load * vector);
                    numbers[k] = four.x, numbers[k + 1] = four.y, numbers[k + 2] = four.z,
                    numbers[k + 3] = four.w;
                }
            } else {
#pragma unroll
                for (int k = 0; k < vector; k++) numbers[load * vector + k] = from[k];
            }
        }
        to_words(b, numbers);
    }
}

// Multiply a unit for all results in flight: d[i] has i units of its results when it comes, and the
// last is complete when this ends. Downwards, so that each sum goes where the one before found its
// own: its place for the next unit.
__device__ __forceinline__ void multiply_unit(Sum (&d)[flight + 1][4], const Matrix& matrix,
                                              const real* patch, const Table& table) {
    Word b[products][b_words];
#pragma unroll
    for (int k = 0; k < 4; k++) d[0][k] = 0;
#pragma unroll
    for (int product = 0; product < products; product++) {
        load_fragment(b[product], patch, table, product);
#pragma unroll
        for (int i = flight - 1; i >= 0; i--) {
            if (product == 0)
                matrix.apply(d[i + 1], i * products, b[product], d[i]);
            else
                matrix.apply(d[i + 1], i * products + product, b[product], d[i + 1]);
        }
    }
}

// Write the 16 results of 8 patches; the first of them is point (y, x). Eight lanes have neighbours
// of a patch.
__device__ __forceinline__ void store_numbers(real* __restrict__ plane, const Memory& memory,
                                              const Box& box, int y, int x, const Sum (&d)[4],
                                              int lane) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int result = g + 8 * (k / 2), patch = 2 * t + k % 2;
        const int row = y + result / merged_x, column = x + merged_x * patch + result % merged_x;
        if (row < box.high[1] && column < box.high[2])
            plane[row * memory.row + column] = static_cast<real>(d[k]);
    }
}

// The same for FP16, of which a lane should write more than one. Rows of A are in such an order
// that it has neighbours after a transposition (plan.py: row_order).
__device__ __forceinline__ void store_halves(real* __restrict__ plane, const Memory& memory,
                                             const Box& box, int y, int x, const Sum (&d)[4],
                                             int lane) {
    const int g = lane / 4, t = lane % 4;
    const unsigned pair[2] = {transpose_8x8(pack_half(d[0], d[1])),
                              transpose_8x8(pack_half(d[2], d[3]))};
    if constexpr (merged_x == 16) {
        x += merged_x * g + 4 * t;
        real* const to = plane + y * memory.row + x;
        if (y >= box.high[1]) return;
        if (x + 3 < box.high[2]) {
            *reinterpret_cast<uint2*>(to) = make_uint2(pair[0], pair[1]);
            return;
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (x + k < box.high[2]) to[k] = static_cast<real>(pair[k / 2] >> 16 * (k % 2));
    } else {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = y + (8 * half + 2 * t) / merged_x,
                      column = x + merged_x * g + 2 * t % merged_x;
            real* const to = plane + row * memory.row + column;
            if (row >= box.high[1] || column >= box.high[2]) continue;
            if (column + 1 < box.high[2])
                *reinterpret_cast<unsigned*>(to) = pair[half];
            else
                *to = static_cast<real>(pair[half]);
        }
    }
}

// Where a unit begins in a stage.
__device__ __forceinline__ int place_of_unit(int warp, int step, int unit) {
    if (axis == 2) return ((step * warps + warp) * units + unit) * unit_points;
    if (axis == 1) return step * merged_y * pitch + (warp * units + unit) * unit_points;
    return warp * merged_y * pitch + unit * unit_points;
}

// The part of the box that a block passes.
struct Walk {
    // points along the stream
    static constexpr int per_unit = axis == 0 ? 1 : axis == 1 ? merged_y : tile_x / steps;

    int first[3];  // its first point
    int n_units;   // that it passes; results become complete with the last `flight` - 1 of theirs

    __device__ __forceinline__ Walk(const Box& box, int chunk) {
        first[0] = box.low[0] + static_cast<int>(blockIdx.z) * (axis == 0 ? chunk : 1);
        first[1] = box.low[1] + static_cast<int>(blockIdx.y) * (axis == 1   ? chunk
                                                                : axis == 0 ? warps * merged_y
                                                                            : 1);
        first[2] = box.low[2] + static_cast<int>(blockIdx.x) * (axis == 2 ? chunk : tile_x);
        const int n = min(chunk, box.high[axis] - first[axis]);
        n_units = (n + per_unit - 1) / per_unit + flight - 1;
    }

    __device__ __forceinline__ int n_stages() const { return (n_units + steps - 1) / steps; }

    // The first point of a stage.
    __device__ __forceinline__ int z(int stage) const {
        return first[0] + (axis == 0 ? stage - reach[0] : 0);
    }
    __device__ __forceinline__ int y(int stage) const {
        return first[1] - reach[1] + (axis == 1 ? stage * steps * merged_y : 0);
    }
    __device__ __forceinline__ int x(int stage) const {
        return first[2] - TS_LEAD + (axis == 2 ? stage * tile_x : 0);
    }
};

// Write what a unit has completed: results number `complete` of the stream.
__device__ __forceinline__ void store_complete(real* __restrict__ dst, const Memory& memory,
                                               const Box& box, const Walk& walk, int complete,
                                               int warp, int unit, const Sum (&d)[4], int lane) {
    const int z = walk.first[0] + (axis == 0 ? complete : 0);
    const int y = walk.first[1] + (axis == 0   ? warp * merged_y
                                   : axis == 1 ? complete * merged_y
                                               : 0);
    const int column = axis == 0   ? unit
                       : axis == 1 ? warp * units + unit
                                   : (complete * warps + warp) * units + unit;
    real* const plane = dst + z * memory.plane;
    const int x = walk.first[2] + column * unit_points;
    if constexpr (format == f16)
        store_halves(plane, memory, box, y, x, d, lane);
    else
        store_numbers(plane, memory, box, y, x, d, lane);
}

extern "C" __global__ void __launch_bounds__(threads, TS_MIN_BLOCKS)
    sparse_stencil(const real* __restrict__ src, real* __restrict__ dst,
                   const __grid_constant__ Memory memory, const __grid_constant__ Box box,
                   const Weights* __restrict__ weights, int chunk) {
    extern __shared__ __align__(16) real shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Walk walk(box, chunk);
    const int n_stages = walk.n_stages();
    const StageCopy<rows, row_points, pitch, threads> copy{src, memory, box};
    const auto place = [&](int stage) { return shared + stage % stages * (rows * pitch); };
    const auto start = [&](int stage) {
        if (stage < n_stages) copy.start(place(stage), walk.z(stage), walk.y(stage), walk.x(stage));
        copy_commit();  // also where nothing is copied, so that waiting can count groups
    };
#pragma unroll 1
    for (int stage = 0; stage < stages - 1; stage++) start(stage);

    int* const entries = reinterpret_cast<int*>(shared + stages * rows * pitch);
    for (int i = threadIdx.x; i < products * 4 * loads; i += threads)
        entries[i] = (&weights->table[0][0][0])[i];
    const Matrix matrix(*weights, lane);
    __syncthreads();  // the table is there
    const Table table(entries, lane);

    const int of_lane = lane / 4 * merged_x + (linear ? lane % 4 : 0);

    Sum d[units][flight + 1][4] = {};
#pragma unroll 1
    for (int stage = 0; stage < n_stages; stage++) {
        copy_wait<stages - 2>();
        copy.finish(place(stage), walk.x(stage));
        // this stage has arrived for all, and all have multiplied the one before, whose place is
        // free
        __syncthreads();
        start(stage + stages - 1);
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            const int number = stage * steps + step, complete = number - (flight - 1);
            if (number >= walk.n_units) break;
#pragma unroll
            for (int unit = 0; unit < units; unit++) {
                const real* const patch = place(stage) + place_of_unit(warp, step, unit) + of_lane;
                multiply_unit(d[unit], matrix, patch, table);
                if (complete >= 0)
                    store_complete(dst, memory, box, walk, complete, warp, unit, d[unit][flight],
                                   lane);
            }
        }
    }
    copy_wait<0>();
}
