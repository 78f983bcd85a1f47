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

// As `for_each`, of a box within `all`: `fetch(i, j, k, at)` and `use(i, j, k, at, fetched)` are told
// where the point is in shared memory. A power of two of threads lie beside each other along x, so
// that each stays in its column: from point to point there is a row, and little to count.
template <int few, typename Fetch, typename Use>
__device__ __forceinline__ void for_each_in(
    const Span& all, const Span& span, Fetch fetch, Use use) {
    const int shift = min(32 - __clz(max(span.n[2] - 1, 1)), 31 - __clz(int(blockDim.x)));
    const int at_once = blockDim.x >> shift, rows = span.n[0] * span.n[1];
    const int first = threadIdx.x >> shift;
    const int i0 = span.n[0] == 1 ? 0 : quotient(first, span.n[1]), j0 = first - i0 * span.n[1];
    const int di = span.n[0] == 1 ? 0 : quotient(at_once, span.n[1]),
              dj = at_once - di * span.n[1];
    const int row = all.n[2], plane = all.n[1] * row;
    const int apart = di * plane + dj * row, wrap = plane - span.n[1] * row;
    for (int x = threadIdx.x & ((1 << shift) - 1); x < span.n[2]; x += 1 << shift) {
        const int k = span.low[2] + x;
        int i = span.low[0] + i0, j = span.low[1] + j0, at = place(all, i, j, k);
        const int end = span.low[1] + span.n[1];
        for (int m = first; m < rows; m += few * at_once) {
            int points[few][3];
            decltype(fetch(0, 0, 0, 0)) fetched[few];
#pragma unroll
            for (int n = 0; n < few; n++) {
                points[n][0] = i, points[n][1] = j, points[n][2] = at;
                if (m + n * at_once < rows) fetched[n] = fetch(i, j, k, at);
                i += di, j += dj, at += apart;
                if (j >= end) i++, j -= span.n[1], at += wrap;
            }
#pragma unroll
            for (int n = 0; n < few; n++)
                if (m + n * at_once < rows)
                    use(points[n][0], points[n][1], k, points[n][2], fetched[n]);
        }
    }
}
