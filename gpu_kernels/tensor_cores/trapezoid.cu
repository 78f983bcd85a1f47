// trapezoid.cu: Tensor Trapezoid Folding: a stencil of any weights in 2D and 3D as products of
// banded matrices.
//
// Idea    Eight output rows depend on 8 + 2 * ry input rows by a banded matrix, whose columns are
//         the weights of one (dz, dx), each shifted down by one: a stair tetromino. A block walks
//         down y; every chunk of four rows feeds all groups of eight output rows that it overlaps,
//         and the plane tetrominoes of all (dz, dx) are accumulated in the same fragments. Row m of
//         A is not point m of a grid row: lane group g holds points g * columns ..., so one window
//         of columns + 2 * rx points in registers serves all dx. Where weights are the same for dx
//         and -dx (TS_MIRRORED) the row is folded first: u[x - dx] + u[x + dx] is multiplied once.
//         A chunk that does not meet the weights of a (dz, dx) costs nothing (TS_REACHES), so a
//         star is cheaper than a box. Rows come through a ring in shared memory (row_ring.cuh) and
//         leave as whole lines (row_writer.cuh).
// Layout  See common.cuh. Slots of the ring are pairs of chunks, [plane][8 rows][pitch]. With pitch
//         = 4 mod 8 and columns odd, the 16 lanes that shared memory serves at a time read 16
//         different banks; results are staged with a pitch of 2 mod 4 for the same reason.
// Writes  every point of the box.
// Limits  float64; sm_80 or later; n_weights * 8 bytes of kernel arguments. A NaN or infinity
//         spreads up to seven rows further along y than the stencil reaches, because zeros of a
//         band are multiplied too.
// Order   One chain of fused multiply-adds (tensor cores make it, bit for bit, in the order of
//         rows): by products of TS_PRODUCT_ROWS rows, in each by dz, dx and dy; of rounded sums
//         where weights are mirrored. Products begin at multiples of that many rows from the box's
//         first: where tiles lie changes nothing, where the box lies does.
// Bound   One H200, November 2026, heat-2d by six steps: 970 GStencil/s, without multiplying 1210,
//         without loads and stores 1110; a second of it meets the power limit (780 W) and loses 5
//         to 9 %.
// Test    tests/gpu/test_gpu_against_reference.py; in NumPy: tests/papers/tetris/folding.py

#if !defined(TS_REAL) || !defined(TS_RADIUS_Z) || !defined(TS_RADIUS_Y) ||                         \
    !defined(TS_RADIUS_X) || !defined(TS_MIRRORED) || !defined(TS_REACHES) ||                      \
    !defined(TS_COLUMNS) || !defined(TS_PLANES) || !defined(TS_WARPS_X) || !defined(TS_WARPS_Z) || \
    !defined(TS_GROUPS) || !defined(TS_STAGES) || !defined(TS_BLOCKS) || !defined(TS_PRODUCT_ROWS)
#error "trapezoid.cu needs macros that gpu_kernels/tensor_cores/trapezoid.py lists"
#endif
#include "common.cuh"
#include "mma.cuh"
#include "row_ring.cuh"
#include "row_writer.cuh"

constexpr int rz = TS_RADIUS_Z, ry = TS_RADIUS_Y, rx = TS_RADIUS_X;
constexpr bool mirrored = TS_MIRRORED;         // weights are the same for dx and -dx
constexpr int product_rows = TS_PRODUCT_ROWS;  // 4 or 8: rows that one product reads
constexpr int columns = TS_COLUMNS;            // points along x per lane group, odd
constexpr int planes = TS_PLANES;              // planes along z per warp
constexpr int warps_x = TS_WARPS_X, warps_z = TS_WARPS_Z;
constexpr int groups = TS_GROUPS;  // of eight rows per tile
constexpr int stages = TS_STAGES;  // pairs of chunks in the ring
constexpr int threads = 32 * warps_x * warps_z;

constexpr int taps = mirrored ? rx + 1 : 2 * rx + 1;  // along x, after folding
constexpr int n_weights = (2 * rz + 1) * taps * (2 * ry + 1);
constexpr int chunks = (8 + 2 * ry + 3) / 4;  // that a group of eight rows depends on
constexpr int live = (chunks + 1) / 2;        // groups that a pair of chunks feeds
// a column of weights with zeros on both sides
constexpr int padded = 4 * chunks + 8;

constexpr int warp_width = 16 * columns;
constexpr int tile_width = warps_x * warp_width, tile_planes = warps_z * planes;
// points beside the tile that are read, even: copies of 16 bytes
constexpr int margin = rx + rx % 2;
constexpr int pitch = (tile_width + 2 * margin + 3) / 8 * 8 + 4;
using Ring = RowRing<tile_planes + 2 * rz, 8, tile_width + 2 * margin, pitch, stages, threads>;
using Writer = RowWriter<planes, warp_width, warp_width + 2>;

// How far along y the weights of a (dz, dx) reach; -1 where all are zero.
__constant__ constexpr int reaches[(2 * rz + 1) * taps] = {TS_REACHES};

struct Weights {
    double w[n_weights];  // [dz][dx][dy]
};

using Fragments = double[live][planes][columns][4];  // of the groups in work, the youngest first

// Whether chunk `chunk` of a group meets the band of this (dz, dx).
__device__ constexpr bool is_met(int column, int chunk) {
    const int reach = reaches[column], first = 4 * chunk - ry;
    return chunk < chunks && reach >= 0 && first + 3 >= -reach && first <= 7 + reach;
}

// The bands of all (dz, dx), as one lane needs them: row 4 * chunk + t, column g. All columns of a
// band are one column of weights between zeros, read from shifted places. (Bands kept in registers
// were no faster: 869 against 868 GStencil/s for heat-2d by four steps, one H200, November 2026.)
struct Bands {
    const double* shifted;
    __device__ __forceinline__ Bands(const double* all, int g, int t) : shifted(all + 7 + t - g) {}
    __device__ __forceinline__ double operator()(int column, int chunk) const {
        return shifted[column * padded + 4 * chunk];
    }
};

__device__ __forceinline__ void pad_weights(double* all, const Weights& weights) {
    for (int e = threadIdx.x; e < (2 * rz + 1) * taps * padded; e += threads) {
        const int column = e / padded, dy = e % padded - 7;  // counted from -ry
        all[e] = dy >= 0 && dy <= 2 * ry ? weights.w[column * (2 * ry + 1) + dy] : 0.0;
    }
}

// The operand of tap `tap` for point i of the window: u[x + dx], or u[x - dx] + u[x + dx].
__device__ __forceinline__ double fold(const double (&window)[columns + 2 * rx], int i, int tap) {
    if (!mirrored) return window[i + tap];
    return tap == 0 ? window[i + rx] : __dadd_rn(window[i + rx - tap], window[i + rx + tap]);
}

// Multiply chunks half ... half + n - 1 of a pair by the band of a (dz, dx), for the group that
// began `age` pairs ago: it sees them as numbers 2 * age + half and so on. a[i][2 * chunk + h]
// belongs to row g + 8 * h of A.
template <int half, int n>
__device__ __forceinline__ void feed_group(double (&sums)[columns][4],
    const double (&a)[columns][2 * n], const Bands& bands, int column, int age) {
    const int chunk = 2 * age + half;
    const bool first = is_met(column, chunk), second = n == 2 && is_met(column, chunk + 1);
    const double b[2] = {
        first ? bands(column, chunk) : 0.0, second ? bands(column, chunk + 1) : 0.0};
#pragma unroll
    for (int i = 0; i < columns; ++i) {
        if constexpr (n == 2)
            if (first && second) mma_16x8x8(sums[i], a[i], b);
        if (first && !second) mma_16x8x4(sums[i], a[i][0], a[i][1], b[0]);
        if (second && !first) mma_16x8x4(sums[i], a[i][2 * n - 2], a[i][2 * n - 1], b[1]);
    }
}

// Feed chunks half ... half + n - 1 of the pair at `rows` (this lane's row and first point) to all
// groups that depend on them.
template <int half, int n>
__device__ __forceinline__ void feed(Fragments& sums, const double* rows, const Bands& bands) {
#pragma unroll
    for (int zin = 0; zin < planes + 2 * rz; ++zin) {
        double window[2 * n][columns + 2 * rx];  // [2 * chunk + h]: row g + 8 * h of A
#pragma unroll
        for (int i = 0; i < columns + 2 * rx; ++i)
#pragma unroll
            for (int c = 0; c < 2 * n; ++c)
                window[c][i] =
                    rows[(zin * 8 + (half + c / 2) * 4) * pitch + c % 2 * 8 * columns + i];
#pragma unroll
        for (int tap = 0; tap < taps; ++tap) {
            double a[columns][2 * n];
#pragma unroll
            for (int i = 0; i < columns; ++i)
#pragma unroll
                for (int c = 0; c < 2 * n; ++c) a[i][c] = fold(window[c], i, tap);
#pragma unroll
            for (int z = 0; z < planes; ++z) {
                const int dz = zin - z;
                if (dz < 0 || dz > 2 * rz) continue;
#pragma unroll
                for (int age = 0; age < live; ++age)
                    feed_group<half, n>(sums[age][z], a, bands, dz * taps + tap, age);
            }
        }
    }
}

// Every group grows one pair older; the youngest begins with zeros.
__device__ __forceinline__ void grow_older(Fragments& sums) {
#pragma unroll
    for (int age = live - 1; age >= 0; --age)
#pragma unroll
        for (int z = 0; z < planes; ++z)
#pragma unroll
            for (int i = 0; i < columns; ++i)
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    sums[age][z][i][c] = age > 0 ? sums[age - 1][z][i][c] : 0.0;
}

// Put eight finished rows where they are written from.
__device__ __forceinline__ void stage(
    double* staged, const double (&group)[planes][columns][4], int g, int t) {
#pragma unroll
    for (int z = 0; z < planes; ++z)
#pragma unroll
        for (int i = 0; i < columns; ++i)
#pragma unroll
            for (int c = 0; c < 4; ++c)
                staged[(z * 8 + 2 * t + c % 2) * (warp_width + 2) + (g + c / 2 * 8) * columns + i] =
                    group[z][i][c];
}

extern "C" __global__ void __launch_bounds__(threads, TS_BLOCKS)
    trapezoid(const real* __restrict__ src, real* __restrict__ dst, const Memory memory,
        const Box box, const Weights weights) {
    extern __shared__ __align__(16) double shared[];
    double* const all_staged = shared + stages * Ring::slot_size;
    double* const all_weights = all_staged + threads / 32 * Writer::size;
    Arrival* const arrivals =
        reinterpret_cast<Arrival*>(all_weights + (2 * rz + 1) * taps * padded);

    const int z0 = box.low[0] + blockIdx.z * tile_planes;
    const int y0 = box.low[1] + blockIdx.y * 8 * groups;
    const int x0 = box.low[2] + blockIdx.x * tile_width;
    const int n_groups = (min(8 * groups, box.high[1] - y0) + 7) / 8, n_pairs = n_groups + live - 1;

    const Ring ring{shared, arrivals, src, memory, x0 - margin, box.low[1] - ry, box.high[1] + ry};
    ring.init();
    pad_weights(all_weights, weights);
    __syncthreads();
    for (int pair = 0; pair < stages - 1; ++pair) {
        if (pair < n_pairs) ring.load(pair, z0 - rz, y0 - ry + 8 * pair);
        ring.commit();
    }

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int warp_z = warp / warps_x * planes, warp_x = warp % warps_x * warp_width;
    const int first_read = (warp_z * 8 + t) * pitch + warp_x + margin - rx + g * columns;
    const Writer writer{all_staged + warp * Writer::size};
    const Bands bands(all_weights, g, t);

    Fragments sums = {};
    for (int pair = 0, slot = 0, phase = 0; pair < n_pairs; ++pair) {
        ring.wait(slot, phase);
        __syncthreads();  // this pair is there for all, and nobody reads the one before it any more
        const int ahead = pair + stages - 1;
        if (ahead < n_pairs)
            ring.load(slot > 0 ? slot - 1 : stages - 1, z0 - rz, y0 - ry + 8 * ahead);
        ring.commit();
        const double* const rows = ring.slot(slot) + first_read;
        if constexpr (product_rows == 8) {
            feed<0, 2>(sums, rows, bands);
        } else {
            feed<0, 1>(sums, rows, bands);
            feed<1, 1>(sums, rows, bands);
        }
        const int finished = pair - (live - 1);
        if (finished >= 0) {
            writer.wait();
            stage(writer.staged, sums[live - 1], g, t);
            writer.write(dst, memory, box, z0 + warp_z, y0 + 8 * finished, x0 + warp_x);
        }
        grow_older(sums);
        slot = slot + 1 < stages ? slot + 1 : 0;
        phase += slot == 0;
    }
    writer.wait();
}
