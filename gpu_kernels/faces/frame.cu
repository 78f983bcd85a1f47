// frame.cu: advance points near a face by TS_DEPTH steps at once, step by step in shared memory.
//
// Idea    Fused kernels know no faces; what lies within TS_DEPTH * radius of one is computed here.
//         A block of threads loads the points that its tile depends on, makes the steps on a box
//         that shrinks by the radius per step, and writes the last one. Whoever loads or computes a
//         point near a face also writes its images beyond the face.
// Layout  See common.cuh. tiles: one box per block. Two levels in shared memory, `capacity` points
//         each: the box that is loaded and the ghosts beside it, x fastest. Along a periodic axis
//         points beyond one end are loaded from the other end.
// Writes  The points of its tiles.
// Limits  Two levels of the largest tile fit into shared memory; an axis has at least as many
//         points as the block of steps reaches. Checked by boxes.py.
// Order   The chain of plain.cu, so the bits are those of plain.cu.
// Test    tests/gpu/test_gpu_against_reference.py, tests/gpu/test_gpu_emulated.py

#if !defined(TS_REAL) || !defined(TS_TERMS) || !defined(TS_OFFSETS) || !defined(TS_RADII) || \
    !defined(TS_DEPTH) || !defined(TS_FEW) || !defined(TS_THREADS)
#error "frame.cu needs -DTS_REAL, -DTS_TERMS, -DTS_OFFSETS, -DTS_RADII (z, y, x), -DTS_DEPTH, \
-DTS_FEW (points that a thread loads or computes at a time), -DTS_THREADS"
#endif
#include "domain.cuh"

constexpr int n_terms = TS_TERMS;
constexpr int unrolled = n_terms <= 128 ? n_terms : 1;
constexpr int depth = TS_DEPTH;
constexpr int few = TS_FEW;
__constant__ constexpr int offsets[n_terms][3] = {TS_OFFSETS};
__constant__ constexpr int radii[3] = {TS_RADII};
#include "frame.cuh"

struct Weights {
    wide w[n_terms];
};

// The images of a point along axis d and all later ones; `p` is the point or one of its images
// along earlier ones.
template <int d>
__device__ __forceinline__ void put_images_from(
    real* level, const Span& all, const Domain& domain, int (&p)[3], real value) {
    if constexpr (d < 3) {
        put_images_from<d + 1>(level, all, domain, p, value);
        const int at = p[d], low = domain.box.low[d], high = domain.box.high[d];
        for (int side = 0; side < 2; side++) {
            // number 0 is the one next to the face
            const int ghost = side == 0 ? at - low : high - 1 - at;
            if (ghost >= radii[d]) continue;
            p[d] = side == 0 ? low - 1 - ghost : high + ghost;
            const real image = reflected(domain.b[d][side][ghost], value, domain.a[d][side][ghost]);
            if (holds(all, p)) level[place(all, p[0], p[1], p[2])] = image;
            put_images_from<d + 1>(level, all, domain, p, image);
            p[d] = at;
        }
    }
}

// All ghosts that follow from one point, axis 0 first. Not inlined: it would cost the loops around
// it registers.
__device__ __noinline__ void put_images(
    real* level, const Span& all, const Domain& domain, int i, int j, int k, real value) {
    int p[3] = {i, j, k};
    put_images_from<0>(level, all, domain, p, value);
}

__device__ __forceinline__ void put(real* level, const Span& all, const Box& inside,
    const Domain& domain, int i, int j, int k, real value) {
    level[place(all, i, j, k)] = value;
    if (is_near_face(inside, i, j, k)) put_images(level, all, domain, i, j, k, value);
}

__device__ __forceinline__ real step(
    const real* level, const Span& all, const Weights& weights, int i, int j, int k) {
    const int at = place(all, i, j, k);
    wide value = wide(0);
#pragma unroll unrolled
    for (int m = 0; m < n_terms; m++) {
        const wide u = widen(
            level[at + (offsets[m][0] * all.n[1] + offsets[m][1]) * all.n[2] + offsets[m][2]]);
        value = m == 0 ? mul_real(weights.w[m], u) : fma_real(weights.w[m], u, value);
    }
    return narrow(value);
}

extern "C" __global__ void __launch_bounds__(TS_THREADS) frame(const real* __restrict__ src,
    real* __restrict__ dst, const __grid_constant__ Memory memory,
    const __grid_constant__ Weights weights, const Box* __restrict__ tiles,
    const Domain* __restrict__ domain_there, const int capacity) {
    extern __shared__ double shared[];  // of the widest type, for its alignment
    __shared__ Domain domain;
    const Box tile = tiles[blockIdx.x];
    if (threadIdx.x == 0) domain = *domain_there;
    __syncthreads();  // all threads read it
    // In registers: what lies in shared memory would be read again after each write to a level.
    const Box inside = domain.box;
    const Span all = needed(tile, inside, depth, 1);
    real* now = reinterpret_cast<real*>(shared);
    real* then = now + capacity;
    const auto load = [&](int i, int j, int k) {
        return src[wrapped(i, domain.period[0]) * memory.plane +
                   wrapped(j, domain.period[1]) * memory.row + wrapped(k, domain.period[2])];
    };
    const auto compute = [&](int i, int j, int k) {
        return step(now, all, weights, i, j, k);
    };
    for_each<few>(needed(tile, inside, depth, 0), load,
        [&](int i, int j, int k, real value) { put(now, all, inside, domain, i, j, k, value); });
    for (int later = depth - 1; later > 0; later--) {
        __syncthreads();  // a step reads what other threads wrote
        for_each<few>(needed(tile, inside, later, 0), compute,
            [&](int i, int j, int k, real value) { put(then, all, inside, domain, i, j, k, value); });
        real* const written = then;
        then = now;
        now = written;
    }
    __syncthreads();  // as above
    for_each<few>(needed(tile, inside, 0, 0), compute, [&](int i, int j, int k, real value) {
        dst[i * memory.plane + j * memory.row + k] = value;
    });
}
