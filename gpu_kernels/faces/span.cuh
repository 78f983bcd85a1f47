// span.cuh: boxes of points that the threads of one block share.

#pragma once

struct Span {
    int low[3];
    int n[3];
};

// Calls `visit(i, j, k)` for the points of a box that belong to this thread; the division is made
// once.
template <typename Visit>
__device__ __forceinline__ void for_each(const Span& span, Visit visit) {
    const int stride = blockDim.x, plane = span.n[1] * span.n[2], total = span.n[0] * plane;
    const int di = stride / plane, dj = stride / span.n[2] % span.n[1], dk = stride % span.n[2];
    int i = threadIdx.x / plane, j = threadIdx.x / span.n[2] % span.n[1],
        k = threadIdx.x % span.n[2];
    for (int m = threadIdx.x; m < total; m += stride) {
        visit(span.low[0] + i, span.low[1] + j, span.low[2] + k);
        k += dk;
        j += dj;
        i += di;
        if (k >= span.n[2]) k -= span.n[2], j++;
        if (j >= span.n[1]) j -= span.n[1], i++;
    }
}
