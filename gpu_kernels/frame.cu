// frame.cu: advance points near a face by TS_DEPTH steps at once, step by step in shared memory.
//
// Idea    Fused kernels know no faces; what lies within TS_DEPTH * radius of one is computed here. A block of threads
//         loads the points that its tile depends on, makes the steps on a box that shrinks by the radius per step, and
//         writes the last one. What a term reads beyond a face is worked out from its mirror point, at every step.
// Layout  See common.cuh. tiles: one box per block. Two levels in shared memory, each with room for the box that is
//         loaded, x fastest. Along a periodic axis points beyond one end are loaded from the other end.
// Writes  The points of its tiles.
// Limits  TS_POINTS points of the loaded box, twice, fit into shared memory; an axis has at least as many points as
//         the block of steps reaches. Checked by frame.py.
// Order   The chain of plain.cu, so the bits are those of plain.cu.
// Test    tests/gpu/test_against_reference.py

#if !defined(TS_REAL) || !defined(TS_TERMS) || !defined(TS_OFFSETS) || !defined(TS_RADII) || !defined(TS_RADIUS) || \
    !defined(TS_DEPTH) || !defined(TS_POINTS)
#error "frame.cu needs -DTS_REAL, -DTS_TERMS, -DTS_OFFSETS, -DTS_RADII (z, y, x), -DTS_RADIUS (largest), -DTS_DEPTH, -DTS_POINTS"
#endif
#include "common.cuh"

constexpr int n_terms = TS_TERMS;
constexpr int unrolled = n_terms <= 128 ? n_terms : 1;
constexpr int depth = TS_DEPTH;
constexpr int n_points = TS_POINTS;
constexpr int reach = TS_RADIUS > 0 ? TS_RADIUS : 1;
__constant__ constexpr int offsets[n_terms][3] = {TS_OFFSETS};
__constant__ constexpr int radii[3] = {TS_RADII};

struct Weights {
    real w[n_terms];
};

// What lies beyond the ends of each axis. `box` has the points inside reflecting faces; an end that is none of them is
// far away. period is the number of points of a periodic axis, else 0. The ghost j beyond side s takes
// a[axis][s][j] + b[axis][s][j] * mirror.
struct Domain {
    Box box;
    int period[3];
    real a[3][2][reach];
    real b[3][2][reach];
};

// A box of points and how they lie in shared memory.
struct Tile {
    int low[3];
    int n[3];

    __device__ int place(int i, int j, int k) const {
        return ((i - low[0]) * n[1] + (j - low[1])) * n[2] + (k - low[2]);
    }
};

// The points that are needed when `later` steps follow, as far as there are any.
__device__ Tile needed(const Box& tile, const Box& inside, int later) {
    Tile found;
    for (int d = 0; d < 3; d++) {
        found.low[d] = max(tile.low[d] - later * radii[d], inside.low[d]);
        found.n[d] = min(tile.high[d] + later * radii[d], inside.high[d]) - found.low[d];
    }
    return found;
}

// Calls `visit(i, j, k)` for each point of a box; each warp takes rows, its lanes the points of a row.
template <typename Visit>
__device__ __forceinline__ void for_each(const Tile& tile, Visit visit) {
    const int warp = threadIdx.x / 32, n_warps = blockDim.x / 32, lane = threadIdx.x % 32;
    for (int row = warp; row < tile.n[0] * tile.n[1]; row += n_warps)
        for (int k = lane; k < tile.n[2]; k += 32)
            visit(tile.low[0] + row / tile.n[1], tile.low[1] + row % tile.n[1], tile.low[2] + k);
}

__device__ __forceinline__ int wrapped(int i, int period) {
    return period == 0 ? i : i < 0 ? i + period : i >= period ? i - period : i;
}

// A value inside or beyond the faces: axis 0 first, as the ghosts of plain.cu.
__device__ real value_at(const real* level, const Tile& all, const Domain& domain, int i, int j, int k) {
    int point[3] = {i, j, k};
    int side[3], ghost[3];
    for (int d = 0; d < 3; d++) {
        const int low = domain.box.low[d], high = domain.box.high[d];
        side[d] = point[d] < low ? 0 : point[d] >= high ? 1 : -1;
        ghost[d] = side[d] == 0 ? low - 1 - point[d] : point[d] - high;
        if (side[d] >= 0) point[d] = side[d] == 0 ? low + ghost[d] : high - 1 - ghost[d];
    }
    real value = level[all.place(point[0], point[1], point[2])];
    for (int d = 0; d < 3; d++)
        if (side[d] >= 0)
            value = fma_real(domain.b[d][side[d]][ghost[d]], value, domain.a[d][side[d]][ghost[d]]);
    return value;
}

__device__ real step_near_face(
    const real* level, const Tile& all, const Domain& domain, const Weights& weights, int i, int j, int k) {
    real value = real(0);
    for (int m = 0; m < n_terms; m++) {
        const real u = value_at(level, all, domain, i + offsets[m][0], j + offsets[m][1], k + offsets[m][2]);
        value = m == 0 ? mul_real(weights.w[m], u) : fma_real(weights.w[m], u, value);
    }
    return value;
}

__device__ __forceinline__ real step(const real* level, const Tile& all, const Weights& weights, int at) {
    real value = real(0);
#pragma unroll unrolled
    for (int m = 0; m < n_terms; m++) {
        const real u = level[at + (offsets[m][0] * all.n[1] + offsets[m][1]) * all.n[2] + offsets[m][2]];
        value = m == 0 ? mul_real(weights.w[m], u) : fma_real(weights.w[m], u, value);
    }
    return value;
}

__device__ __forceinline__ bool is_near_face(const Box& inside, int i, int j, int k) {
    return i < inside.low[0] + radii[0] || i >= inside.high[0] - radii[0] || j < inside.low[1] + radii[1] ||
           j >= inside.high[1] - radii[1] || k < inside.low[2] + radii[2] || k >= inside.high[2] - radii[2];
}

extern "C" __global__ void __launch_bounds__(256) frame(const real* __restrict__ src, real* __restrict__ dst,
    const __grid_constant__ Memory memory, const __grid_constant__ Weights weights, const Box* __restrict__ tiles,
    const Domain* __restrict__ domain) {
    extern __shared__ double shared[];  // of the widest type, for its alignment
    real* levels[2] = {reinterpret_cast<real*>(shared), reinterpret_cast<real*>(shared) + n_points};
    const Box tile = tiles[blockIdx.x], inside = domain->box;
    const Tile all = needed(tile, inside, depth);
    for_each(all, [&](int i, int j, int k) {
        levels[0][all.place(i, j, k)] = src[wrapped(i, domain->period[0]) * memory.plane +
                                            wrapped(j, domain->period[1]) * memory.row +
                                            wrapped(k, domain->period[2])];
    });
    for (int s = 1; s <= depth; s++) {
        __syncthreads();  // a step reads what other warps wrote
        const real* now = levels[(s - 1) % 2];
        real* then = levels[s % 2];
        for_each(needed(tile, inside, depth - s), [&](int i, int j, int k) {
            const int at = all.place(i, j, k);
            const real value = is_near_face(inside, i, j, k) ? step_near_face(now, all, *domain, weights, i, j, k)
                                                             : step(now, all, weights, at);
            if (s < depth)
                then[at] = value;
            else
                dst[i * memory.plane + j * memory.row + k] = value;
        });
    }
}
