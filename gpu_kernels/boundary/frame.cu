// frame.cu: advance points near a face by TS_DEPTH steps at once, step by step in shared memory.
//
// Idea    Fused kernels know no faces; what lies within TS_DEPTH * radius of one is computed here.
//         A block of threads loads the points that its tile depends on, makes the steps on a box
//         that shrinks by the radius per step, and writes the last one. Ghosts are written between
//         steps, axis by axis: threads that wrote the images of their own points kept those beside
//         them waiting. On a line they do, for it has few points and many steps.
// Layout  See common.cuh. tiles: one box per block. Two levels in shared memory, `capacity` points
//         each: the box that is loaded and the ghosts beside it, x fastest. Along a periodic axis
//         points beyond one end are loaded from the other end.
// Writes  The points of its tiles.
// Limits  Two levels of the largest tile fit into shared memory; an axis has at least as many
//         points as the block of steps reaches. Checked by boxes.py.
// Order   The chain of plain.cu, so the bits are those of plain.cu.
// Test    tests/gpu/test_gpu_against_reference.py, tests/gpu/test_gpu_emulated.py

#if !defined(TS_REAL) || !defined(TS_TERMS) || !defined(TS_OFFSETS) || !defined(TS_RADII) || \
    !defined(TS_DEPTH)
#error "frame.cu needs -DTS_REAL, -DTS_TERMS, -DTS_OFFSETS, -DTS_RADII (z, y, x), -DTS_DEPTH"
#endif
#include "domain.cuh"

constexpr int n_terms = TS_TERMS;
constexpr int unrolled = n_terms <= 128 ? n_terms : 1;
constexpr int depth = TS_DEPTH;
constexpr int few = 4;  // points that a thread loads at once
// Of more terms than this, threads that have no column cost more than finding out who has which
// point: box-2d49p and box-3d27p made 0.91 and 0.96 of the periodic rate, and 0.99 where all threads
// had points (H200, 2026-11-24).
constexpr int many_terms = 25;
__constant__ constexpr int offsets[n_terms][3] = {TS_OFFSETS};
__constant__ constexpr int radii[3] = {TS_RADII};
#include "frame.cuh"
// Its steps are short: to wait for ghosts would take longer than to write them.
constexpr bool is_line = radii[0] == 0 && radii[1] == 0;

struct Weights {
    wide w[n_terms];
};

// A point of a level, and on a line its images.
__device__ __forceinline__ void put(
    real* level, const Span& all, const Domain& domain, int i, int j, int k, int at, real value) {
    level[at] = value;
    if constexpr (is_line) {
        const int low = domain.box.low[2], high = domain.box.high[2];
        for (int side = 0; side < 2; side++) {
            const int number = side == 0 ? k - low : high - 1 - k;  // 0 is next to the face
            const int p[3] = {i, j, side == 0 ? low - 1 - number : high + number};
            if (number < radii[2] && holds(all, p))
                level[place(all, p[0], p[1], p[2])] =
                    reflected(domain.b[2][side][number], value, domain.a[2][side][number]);
        }
    }
}

// Ghosts beyond the faces along axis d that a level touches, of the points that it holds and, along
// earlier axes, of the ghosts that are there already.
template <int d>
__device__ __forceinline__ void put_ghosts(
    real* level, const Span& all, const Span& held, const Domain& domain) {
    if constexpr (radii[d] > 0 && !is_line) {
        for (int side = 0; side < 2; side++) {
            const int low = domain.box.low[d], high = domain.box.high[d];
            const bool touches =
                side == 0 ? held.low[d] == low : held.low[d] + held.n[d] == high;
            if (domain.period[d] != 0 || !touches) continue;
            Span ghosts = held;
            ghosts.low[d] = side == 0 ? low - radii[d] : high;
            ghosts.n[d] = radii[d];
#pragma unroll
            for (int e = 0; e < d; e++) ghosts = with_ghosts_along(ghosts, all, domain.box, e);
            for_each(ghosts, [&](int i, int j, int k) {
                int p[3] = {i, j, k};
                const int number = side == 0 ? low - 1 - p[d] : p[d] - high;
                const int mirror = side == 0 ? low + number : high - 1 - number;
                const bool there = mirror >= held.low[d] && mirror < held.low[d] + held.n[d];
                if (!there || !holds(all, p)) return;
                const int at = place(all, i, j, k);
                p[d] = mirror;
                const real value = level[place(all, p[0], p[1], p[2])];
                level[at] = reflected(domain.b[d][side][number], value, domain.a[d][side][number]);
            });
        }
        __syncthreads();  // later axes and steps read what other threads wrote
    }
}

__device__ __forceinline__ void put_all_ghosts(
    real* level, const Span& all, const Span& held, const Domain& domain) {
    __syncthreads();
    put_ghosts<0>(level, all, held, domain);
    put_ghosts<1>(level, all, held, domain);
    put_ghosts<2>(level, all, held, domain);
}

__device__ __forceinline__ real step(
    const real* level, const Span& all, const Weights& weights, int at) {
    wide value = wide(0);
#pragma unroll unrolled
    for (int m = 0; m < n_terms; m++) {
        const wide u = widen(
            level[at + (offsets[m][0] * all.n[1] + offsets[m][1]) * all.n[2] + offsets[m][2]]);
        value = m == 0 ? mul_real(weights.w[m], u) : fma_real(weights.w[m], u, value);
    }
    return narrow(value);
}

// A step of the points of a box, which `use` is told with their places in shared memory.
template <typename Use>
__device__ __forceinline__ void for_steps(
    const real* level, const Span& all, const Span& span, const Weights& weights, Use use) {
    if constexpr (n_terms > many_terms) {
        const int total = span.n[0] * span.n[1] * span.n[2];
        for (int m = threadIdx.x; m < total; m += blockDim.x) {
            int i, j, k;
            split(span, m, i, j, k);
            i += span.low[0], j += span.low[1], k += span.low[2];
            const int at = place(all, i, j, k);
            use(i, j, k, at, step(level, all, weights, at));
        }
    } else {
        for_each_in<1>(
            all, span, [&](int, int, int, int at) { return step(level, all, weights, at); }, use);
    }
}

extern "C" __global__ void __launch_bounds__(256) frame(const real* __restrict__ src,
    real* __restrict__ dst, const __grid_constant__ Memory memory,
    const __grid_constant__ Weights weights, const Box* __restrict__ tiles,
    const Domain* __restrict__ domain_there, const int capacity) {
    extern __shared__ double shared[];  // of the widest type, for its alignment
    __shared__ Domain domain;
    const Box tile = tiles[blockIdx.x];
    if (threadIdx.x == 0) domain = *domain_there;
    __syncthreads();  // all threads read it
    const Span all = needed(tile, domain.box, depth, 1);
    real* now = reinterpret_cast<real*>(shared);
    real* then = now + capacity;
    const Span loaded = needed(tile, domain.box, depth, 0);
    for_each_in<few>(
        all, loaded,
        [&](int i, int j, int k, int) {
            return src[wrapped(i, domain.period[0]) * memory.plane +
                       wrapped(j, domain.period[1]) * memory.row + wrapped(k, domain.period[2])];
        },
        [&](int i, int j, int k, int at, real value) { put(now, all, domain, i, j, k, at, value); });
    put_all_ghosts(now, all, loaded, domain);
    for (int later = depth - 1; later > 0; later--) {
        const Span held = needed(tile, domain.box, later, 0);
        for_steps(now, all, held, weights, [&](int i, int j, int k, int at, real value) {
            put(then, all, domain, i, j, k, at, value);
        });
        put_all_ghosts(then, all, held, domain);
        real* const written = then;
        then = now;
        now = written;
    }
    const auto write = [&](int i, int j, int k, int, real value) {
        dst[i * memory.plane + j * memory.row + k] = value;
    };
    for_steps(now, all, needed(tile, domain.box, 0, 0), weights, write);
}
