// resident.cu: a small grid stays in the registers of all multiprocessors for many steps.
//
// Idea    Each block of threads owns a tile of the grid and keeps it in registers, with the points
//         around it that TS_STEPS steps reach; these it computes as well, fewer of them with each
//         step. Then it writes its outermost points to memory, raises its flag, waits for the flags
//         of the blocks beside it and reads their points. All blocks run at a time.
// Layout  A warp holds planes x rows rows, lane l columns l * columns ... of each. Shared memory
//         holds the rows that warps of a block show each other, `copies` times. A row just outside
//         of what a block computes is read from memory, by the first step after an exchange only.
//         Flags are 128 bytes apart; each counts the exchanges of all launches. Where rims move at
//         each step, all of this is different: resident_rims.cuh.
// Writes  The points that the field has, to `dst`. Points at the rims of tiles also go to `dst`,
//         those of every second exchange to `src`: whoever writes one of these has seen that all
//         who read it have done so. So a launch needs an even number of exchanges.
// Limits  Stencils reach one point, in 3D along the axes. Tiles own at least TS_STEPS points along
//         an axis. Checked by tile.py. All blocks run at a time, so that none waits for
//         one that has no turn: a cooperative launch.
// Order   The chain of plain.cu, so the bits are those of plain.cu, with ghosts as of ghosts.cu.
// Test    tests/gpu/test_gpu_resident.py

#if !defined(TS_REAL) || !defined(TS_TERMS) || !defined(TS_OFFSETS) || !defined(TS_PLANES) ||     \
    !defined(TS_ROWS) || !defined(TS_COLUMNS) || !defined(TS_WARPS_Z) || !defined(TS_WARPS_Y) ||  \
    !defined(TS_STEPS) || !defined(TS_BLOCKS) || !defined(TS_COPIES) || !defined(TS_FACES) ||     \
    !defined(TS_WHOLE) || !defined(TS_FULL) || !defined(TS_WRAPS) || !defined(TS_LAST) ||         \
    !defined(TS_RIMS)
#error "resident.cu needs macros that gpu_kernels/resident/method.py lists"
#endif
#include "common.cuh"

constexpr int n_terms = TS_TERMS;
__constant__ constexpr int offsets[n_terms][3] = {TS_OFFSETS};
constexpr int planes = TS_PLANES, rows = TS_ROWS;  // of a warp
constexpr int columns = TS_COLUMNS;                // of a lane
constexpr int warps_z = TS_WARPS_Z, warps_y = TS_WARPS_Y;
constexpr int steps = TS_STEPS;    // between two exchanges
constexpr int copies = TS_COPIES;  // 2: one barrier a step; 1: two, but less memory
constexpr int width = 32 * columns;
constexpr bool in_one_tile = TS_WHOLE;  // rows of the grid lie in one tile, from its first column on
constexpr bool wraps = TS_WRAPS;   // and end where they begin
constexpr int last = TS_LAST;      // of a lane's columns, the one that lies at the high face
constexpr bool moves_rims = TS_RIMS;  // at each step, warp by warp: resident_rims.cuh

// Whether the field ends at a face, along axis d on a side.
constexpr bool has_face(int d, int side) { return TS_FACES >> (2 * d + side) & 1; }

struct Weights {
    real w[n_terms];
};

// How the field is cut: points of it, points that a tile owns at most, columns of a tile before
// these.
struct Parts {
    int n[3], own[3], lead;
};

// Ghosts beyond a face take a + b * mirror.
struct Faces {
    real a[3][2], b[3][2];
};

// What a thread knows of where it is.
struct Place {
    int low[3], high[3];  // points that the block owns
    int z, y, x;          // of the thread's first point
    int lane, warp_z, warp_y;
    bool at_low, at_high;  // whether the lane has the first, the last column of the field
};

// Whether a point reads row (dz, dy) beside its own; or, sideways, points of it beside its own
// column. What lies beyond a face is made of the row at it.
constexpr bool reads(int dz, int dy, bool sideways) {
    for (int m = 0; m < n_terms; m++)
        if (offsets[m][0] == dz && offsets[m][1] == dy && (!sideways || offsets[m][2] != 0))
            return true;
    return sideways && dz == 0 && dy == 0 &&
           ((has_face(1, 0) && reads(0, -1, true)) || (has_face(1, 1) && reads(0, 1, true)));
}

constexpr bool along_z = reads(-1, 0, false) || reads(1, 0, false);
constexpr int depth = warps_z * planes, height = warps_y * rows;  // of what a block computes
// rows just outside of that: those before and behind it, then those below and above
constexpr int n_ring = 2 * height * along_z + 2 * depth;

constexpr bool is_shown(int i, int j) {
    return j == 0 || j == rows - 1 || (along_z && (i == 0 || i == planes - 1));
}

#include "resident_order.cuh"

// A row of a lane and the points beside it.
struct Row {
    real value[columns], left, right;
};

__device__ __forceinline__ real image(const Faces& faces, int d, int side, real mirror) {
    return fma_real(faces.b[d][side], mirror, faces.a[d][side]);
}

// The neighbour of column c to the right.
__device__ __forceinline__ real right_of(const Row& row, int c, const Faces& faces,
                                         const Place& place) {
    const real there = c == columns - 1 ? row.right : row.value[c + 1];
    if (has_face(2, 1) && c == last && place.at_high) return image(faces, 2, 1, row.value[c]);
    return there;
}

// What lies beyond a face along z or y, for a row at it.
__device__ __forceinline__ Row images(const Row& row, const Faces& faces, const Place& place, int d,
                                      int side) {
    Row found;
#pragma unroll
    for (int c = 0; c < columns; c++) found.value[c] = image(faces, d, side, row.value[c]);
    found.left = image(faces, d, side, row.left);
    found.right = image(faces, d, side, row.right);
    if (has_face(2, 0) && place.at_low) found.left = image(faces, 2, 0, found.value[0]);
    return found;
}

__device__ __forceinline__ void look_sideways(Row& row, const Faces& faces, const Place& place) {
    if (wraps) {
        row.left = __shfl_sync(~0u, row.value[columns - 1], (place.lane + 31) % 32);
        row.right = __shfl_sync(~0u, row.value[0], (place.lane + 1) % 32);
    } else {
        row.left = __shfl_up_sync(~0u, row.value[columns - 1], 1);
        row.right = __shfl_down_sync(~0u, row.value[0], 1);
    }
    if (has_face(2, 0) && place.at_low) row.left = image(faces, 2, 0, row.value[0]);
}

#include "resident_columns.cuh"
#include "resident_flags.cuh"

using Patch = real[planes][rows][columns];

// One step. `shown` is what the warps show each other, `ring` the rows just outside of the block;
// `await_ring` waits until these are there.
template <class Await>
__device__ __forceinline__ void step(Patch& patch, const real* shown, const real* ring,
                                     const Parts& parts, const Faces& faces,
                                     const Weights& weights, const Place& place, Await await_ring) {
    Row old[planes + 2][rows + 2];
    Patch fresh;
#pragma unroll
    for (int i = 0; i < planes; i++)
#pragma unroll
        for (int j = 0; j < rows; j++)
#pragma unroll
            for (int c = 0; c < columns; c++) old[i + 1][j + 1].value[c] = patch[i][j][c];

    const auto fetch = [&](Row& row, int i, int j) {
        const int dz = i < 0 ? -1 : i >= planes ? 1 : 0, dy = j < 0 ? -1 : j >= rows ? 1 : 0;
        const int warp_z = place.warp_z + dz, warp_y = place.warp_y + dy;
        const bool inside =
            dz != 0 ? warp_z >= 0 && warp_z < warps_z : warp_y >= 0 && warp_y < warps_y;
        const int slot = (warp_z * warps_y + warp_y) * n_shown +
                         order.shown[i - dz * planes][j - dy * rows];
        const int out = dz != 0 ? (dz > 0) * height + place.warp_y * rows + j
                                : (dy > 0) * depth + place.warp_z * planes + i + 2 * height * along_z;
        const real* const there = (inside ? shown + slot * width : ring + out * width) + place.lane;
#pragma unroll
        for (int c = 0; c < columns; c++) row.value[c] = there[c * 32];
    };

#pragma unroll
    for (int n = 0; n < planes * rows; n++) {
        const int i = order.z[n], j = order.y[n];
        if (n == order.n_inner) await_ring();
#pragma unroll
        for (int dz = -1; dz <= 1; dz++)
#pragma unroll
            for (int dy = -1; dy <= 1; dy++) {
                const int p = i + dz, q = j + dy;
                const bool own = p >= 0 && p < planes && q >= 0 && q < rows;
                Row& row = old[p + 1][q + 1];
                if (!own && order.brings[i][j][dz + 1][dy + 1]) fetch(row, p, q);
                if (order.looks[i][j][dz + 1][dy + 1]) look_sideways(row, faces, place);
            }

        Row near[3][3];
#pragma unroll
        for (int dz = -1; dz <= 1; dz++)
#pragma unroll
            for (int dy = -1; dy <= 1; dy++) {
                if (!reads(dz, dy, false)) continue;
                near[dz + 1][dy + 1] = old[i + 1 + dz][j + 1 + dy];
                const int d = dz != 0 ? 0 : 1, to = dz + dy, side = to > 0;
                if (to == 0 || !has_face(d, side)) continue;
                const int at = d == 0 ? place.z + i : place.y + j;
                if (at == (side ? parts.n[d] - 1 : 0))
                    near[dz + 1][dy + 1] = images(old[i + 1][j + 1], faces, place, d, side);
            }
#pragma unroll
        for (int c = 0; c < columns; c++) {
            real value = real(0);
#pragma unroll
            for (int m = 0; m < n_terms; m++) {
                const Row& row = near[offsets[m][0] + 1][offsets[m][1] + 1];
                const int dx = offsets[m][2];
                const real u = dx == 0  ? row.value[c]
                               : dx > 0 ? right_of(row, c, faces, place)
                               : c == 0 ? row.left
                                        : row.value[c - 1];
                value = m == 0 ? mul_real(weights.w[m], u) : fma_real(weights.w[m], u, value);
            }
            fresh[i][j][c] = value;
        }
    }
#pragma unroll
    for (int i = 0; i < planes; i++)
#pragma unroll
        for (int j = 0; j < rows; j++)
#pragma unroll
            for (int c = 0; c < columns; c++) patch[i][j][c] = fresh[i][j][c];
}

__device__ __forceinline__ void show(const Patch& patch, real* shown, const Place& place) {
    real* const own =
        shown + (place.warp_z * warps_y + place.warp_y) * n_shown * width + place.lane;
#pragma unroll
    for (int i = 0; i < planes; i++)
#pragma unroll
        for (int j = 0; j < rows; j++) {
            if (!is_shown(i, j)) continue;
#pragma unroll
            for (int c = 0; c < columns; c++)
                own[order.shown[i][j] * width + c * 32] = patch[i][j][c];
        }
}

// The place again, of which the compiler knows nothing: else it works out before all steps which
// points are exchanged after some, and keeps that.
__device__ __forceinline__ Place anew(Place place) {
    asm volatile("" : "+r"(place.z), "+r"(place.y), "+r"(place.x));
    return place;
}

// The points that the block owns, or only the outer ones, which others read.
__device__ __forceinline__ void store(const Patch& patch, real* to, const Memory& memory,
                                      const Parts& parts, const Place& place, bool only_outer) {
    const Columns where = columns_of(parts, place);
#pragma unroll
    for (int i = 0; i < planes; i++)
#pragma unroll
        for (int j = 0; j < rows; j++) {
            const int z = place.z + i, y = place.y + j;
            if (!owns(place, 0, z) || !owns(place, 1, y)) continue;
            const bool all =
                !only_outer || is_outer(place, 1, y) || (along_z && is_outer(place, 0, z));
            if (in_one_tile && !all) continue;
            store_columns(patch[i][j], to, z * unsigned(memory.plane) + y * unsigned(memory.row),
                          where, all ? where.own : where.outer);
        }
}

// The points that the block has, or only those that it does not own.
__device__ __forceinline__ void load(Patch& patch, const real* from, const Memory& memory,
                                     const Parts& parts, const Place& place, bool only_others) {
    const Columns where = columns_of(parts, place);
#pragma unroll
    for (int i = 0; i < planes; i++)
#pragma unroll
        for (int j = 0; j < rows; j++) {
            const bool all = !only_others || !owns(place, 0, place.z + i) ||
                             !owns(place, 1, place.y + j);
            const int z = inside(place.z + i, 0, parts), y = inside(place.y + j, 1, parts);
            if (z < 0 || y < 0 || (in_one_tile && !all)) continue;
            load_columns(patch[i][j], from, z * unsigned(memory.plane) + y * unsigned(memory.row),
                         where, all ? where.there : where.there & ~where.own);
        }
}

// The rows just outside of what the block computes.
__device__ __forceinline__ void load_ring(real* ring, const real* from, const Memory& memory,
                                          const Parts& parts, const Place& place) {
    const Columns where = columns_of(parts, place);
    const int z_low = place.z - place.warp_z * planes, y_low = place.y - place.warp_y * rows;
#pragma unroll 2
    for (int r = place.warp_z * warps_y + place.warp_y; r < n_ring; r += warps_z * warps_y) {
        const int q = r - 2 * height * along_z;
        const int z = q < 0 ? (r < height ? z_low - 1 : z_low + depth) : z_low + q % depth;
        const int y = q < 0 ? y_low + r % height : q < depth ? y_low - 1 : y_low + height;
        const int from_z = inside(z, 0, parts), from_y = inside(y, 1, parts);
        if (from_z < 0 || from_y < 0) continue;
        real value[columns] = {};
        load_columns(value, from,
                     from_z * unsigned(memory.plane) + from_y * unsigned(memory.row), where,
                     where.there);
#pragma unroll
        for (int c = 0; c < columns; c++) ring[r * width + c * 32 + place.lane] = value[c];
    }
}

#include "async_copy.cuh"
#include "resident_rims.cuh"

__device__ __forceinline__ Place place_of_thread(const Parts& parts) {
    Place place;
    const int block[3] = {int(blockIdx.z), int(blockIdx.y), int(blockIdx.x)};
#pragma unroll
    for (int d = 0; d < 3; d++) {
        place.low[d] = block[d] * parts.own[d];
        place.high[d] = min(place.low[d] + parts.own[d], parts.n[d]);
    }
    const int warp = threadIdx.x / 32;
    place.lane = threadIdx.x % 32;
    place.warp_z = warp / warps_y, place.warp_y = warp % warps_y;
    place.z = place.low[0] - (along_z ? steps - 1 : 0) + place.warp_z * planes;
    place.y = place.low[1] - (steps - 1) + place.warp_y * rows;
    place.x = place.low[2] - parts.lead + place.lane * columns;
    place.at_low = place.x == 0;
    place.at_high = place.x + last == parts.n[2] - 1;
    return place;
}

extern "C" __global__ void __launch_bounds__(32 * warps_z * warps_y, TS_BLOCKS)
    resident(real* src, real* dst, const __grid_constant__ Memory memory,
             const __grid_constant__ Parts parts, const __grid_constant__ Weights weights,
             const __grid_constant__ Faces faces, unsigned* flags, unsigned* rims, int exchanges) {
    extern __shared__ __align__(16) unsigned char shared[];
    real* const shown = reinterpret_cast<real*>(shared);
    constexpr int level = warps_z * warps_y * n_shown * width;
    real* const ring = shown + copies * level;
    const Place place = place_of_thread(parts);
    unsigned* const flag =
        flags + ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * flag_pitch;
    const unsigned before = seen(flag);

    Patch patch;
#pragma unroll
    for (int i = 0; i < planes; i++)
#pragma unroll
        for (int j = 0; j < rows; j++)
#pragma unroll
            for (int c = 0; c < columns; c++) patch[i][j][c] = real(0);
    load(patch, src, memory, parts, place, false);
    if constexpr (moves_rims) {
        advance_beside_rims(patch, shown, ring, reinterpret_cast<real*>(rims), flags, parts, faces,
                            weights, place, exchanges + 1);
        return store(patch, dst, memory, parts, anew(place), false);
    }
    load_ring(ring, src, memory, parts, place);
    int turn = 0;

#pragma unroll 1
    for (int exchange = 0;; exchange++) {
#pragma unroll 1
        for (int k = 0; k < steps; k++) {
            show(patch, shown + turn * level, place);
            __syncthreads();
            step(patch, shown + turn * level, ring, parts, faces, weights, place, [] {});
            if (copies == 1) __syncthreads();
            turn = copies - 1 - turn;
        }
        if (exchange == exchanges) break;
        real* const to = exchange % 2 ? src : dst;
        const Place here = anew(place);
        store(patch, to, memory, parts, here, true);
        __syncthreads();
        if (threadIdx.x == 0) raise(flag, before + exchange + 1);
        await_others(flags, before + exchange + 1);
        __syncthreads();
        load(patch, to, memory, parts, here, true);
        load_ring(ring, to, memory, parts, here);
    }
    store(patch, dst, memory, parts, anew(place), false);
}
