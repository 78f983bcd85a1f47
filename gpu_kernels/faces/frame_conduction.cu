// frame_conduction.cu: advance points near a face of a body by TS_DEPTH steps at once, step by step
// in shared memory.
//
// Idea    As frame.cu. Whoever loads or computes a point inside a face also follows the face's rule
//         for the ghost beyond it, with the numbers of the step that reads it.
// Layout  As frame.cu; ids, coefficients and codes are read where they lie.
// Writes  The points of its tiles.
// Limits  Those of frame.cu.
// Order   See body.cuh: the bits are those of conduction.cu.
// Test    tests/gpu/test_gpu_conduction.py

#if !defined(TS_REAL) || !defined(TS_DEPTH)
#error "frame_conduction.cu needs -DTS_REAL, -DTS_DEPTH and what body.cuh and rules.cuh need"
#endif
#include "body.cuh"

constexpr int depth = TS_DEPTH;
__constant__ constexpr int radii[3] = {first_axis <= 0, first_axis <= 1, 1};
#include "frame.cuh"

// The ghosts whose mirror point is one near a face. Not inlined: it would cost the loops around it
// registers.
__device__ __noinline__ void put_ghosts(real* level, const Span& all, const Body& body,
    const Memory& memory, int i, int j, int k, int step, real value) {
    const int index[3] = {i, j, k};
    const int id = body.ids[point_at(memory, i, j, k).at];
    for (int d = first_axis; d < 3; d++)
        for (int side = 0; side < 2; side++) {
            if (index[d] != (side == 0 ? body.inside.low[d] : body.inside.high[d] - 1)) continue;
            int p[3] = {i, j, k};
            p[d] += side == 0 ? -1 : 1;
            if (holds(all, p))
                level[place(all, p[0], p[1], p[2])] =
                    ghost_beyond(body, body.faces[2 * d + side], index, id, step, value);
        }
}

// Keeps what a point has before step `step`, and the ghosts that follow from it.
__device__ __forceinline__ void put(real* level, const Span& all, const Body& body,
    const Memory& memory, int i, int j, int k, int step, real value) {
    level[place(all, i, j, k)] = value;
    if (is_near_face(body.inside, i, j, k))
        put_ghosts(level, all, body, memory, i, j, k, step, value);
}

extern "C" __global__ void __launch_bounds__(256)
    frame_conduction(const real* __restrict__ src, real* __restrict__ dst,
        const __grid_constant__ Memory memory, const Box* __restrict__ tiles,
        const __grid_constant__ Body body, const int step, const int capacity) {
    extern __shared__ double shared[];  // of the widest type, for its alignment
    __shared__ Span all;
    const Box tile = tiles[blockIdx.x];
    if (threadIdx.x == 0) all = needed(tile, body.inside, depth, 1);
    __syncthreads();  // all threads read it
    real* now = reinterpret_cast<real*>(shared);
    real* then = now + capacity;
    for_each(needed(tile, body.inside, depth, 0), [&](int i, int j, int k) {
        const real value =
            src[wrapped(i, body.period[0]) * memory.plane +
                wrapped(j, body.period[1]) * memory.row + wrapped(k, body.period[2])];
        put(now, all, body, memory, i, j, k, step, value);
    });

    const long long stride[3] = {memory.plane, memory.row, 1};
    const int apart[3] = {all.n[1] * all.n[2], all.n[2], 1};  // in shared memory
    const auto after = [&](const real* level, int i, int j, int k, int number) {
        const real* const here = level + place(all, i, j, k);
        return conducted(body, point_at(memory, i, j, k), stride, number, widen(*here),
            [&](int d, int shift) { return widen(here[shift * apart[d]]); });
    };
    for (int later = depth - 1; later > 0; later--) {
        __syncthreads();  // a step reads what other threads wrote
        const int made = depth - 1 - later;
        for_each(needed(tile, body.inside, later, 0), [&](int i, int j, int k) {
            const real value = after(now, i, j, k, step + made);
            put(then, all, body, memory, i, j, k, step + made + 1, value);
        });
        real* const written = then;
        then = now;
        now = written;
    }
    __syncthreads();  // as above
    for_each(needed(tile, body.inside, 0, 0), [&](int i, int j, int k) {
        dst[i * memory.plane + j * memory.row + k] = after(now, i, j, k, step + depth - 1);
    });
}
