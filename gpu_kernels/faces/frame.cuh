// frame.cuh: what kernels of the points near faces share: which points a tile needs, and where they
// are in shared memory.
//
// The file that includes it has said what `depth` (steps) and `radii` (z, y, x) are.

#pragma once
#include "span.cuh"

// The points that are needed when `later` steps follow, as far as there are any within `bounds`.
__device__ __forceinline__ Span needed(const Box& tile, const Box& bounds, int later, int beyond) {
    Span found;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        found.low[d] = max(tile.low[d] - later * radii[d], bounds.low[d] - beyond * radii[d]);
        found.n[d] =
            min(tile.high[d] + later * radii[d], bounds.high[d] + beyond * radii[d]) - found.low[d];
    }
    return found;
}

__device__ __forceinline__ int wrapped(int i, int period) {
    return period == 0 ? i : i < 0 ? i + period : i >= period ? i - period : i;
}

// A box of points and, along an axis, the ghosts beyond the faces that it touches.
__device__ __forceinline__ Span with_ghosts_along(
    Span box, const Span& all, const Box& inside, int axis) {
    const int low = box.low[axis], high = low + box.n[axis], end = all.low[axis] + all.n[axis];
    box.low[axis] = low == inside.low[axis] ? min(low, all.low[axis]) : low;
    box.n[axis] = (high == inside.high[axis] ? max(high, end) : high) - box.low[axis];
    return box;
}

__device__ __forceinline__ int place(const Span& all, int i, int j, int k) {
    return ((i - all.low[0]) * all.n[1] + (j - all.low[1])) * all.n[2] + (k - all.low[2]);
}

__device__ __forceinline__ bool holds(const Span& all, const int (&p)[3]) {
    return p[0] >= all.low[0] && p[0] < all.low[0] + all.n[0] && p[1] >= all.low[1] &&
           p[1] < all.low[1] + all.n[1] && p[2] >= all.low[2] && p[2] < all.low[2] + all.n[2];
}
