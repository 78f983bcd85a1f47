// span.cuh: boxes of points that the threads of one block share.

#pragma once

struct Span {
    int low[3];
    int n[3];
};

// m / n for up to a million: as exact as a division of integers, which takes several times as long.
// Half of 1 / n, by which m + 1/2 keeps away from multiples of n, is more than floats round.
__device__ __forceinline__ int quotient(int m, int n) {
    return int(__fdividef(float(m) + 0.5f, float(n)));
}

// Number m of the points of a box.
__device__ __forceinline__ void split(const Span& span, int m, int& i, int& j, int& k) {
    i = 0, j = 0, k = m;
    if (span.n[0] * span.n[1] == 1) return;  // a line
    j = quotient(m, span.n[2]);
    k -= j * span.n[2];
    if (span.n[0] == 1) return;
    i = quotient(j, span.n[1]);
    j -= i * span.n[1];
}

// Calls `use(i, j, k, fetch(i, j, k))` for the points of a box that belong to this thread, of a few
// points at a time `fetch` first, so that what it brings is under way for all of them.
template <int few, typename Fetch, typename Use>
__device__ __forceinline__ void for_each(const Span& span, Fetch fetch, Use use) {
    const int stride = blockDim.x, total = span.n[0] * span.n[1] * span.n[2];
    int di, dj, dk, i, j, k;
    split(span, stride, di, dj, dk);
    split(span, threadIdx.x, i, j, k);
    for (int m = threadIdx.x; m < total; m += few * stride) {
        int at[few][3];
        decltype(fetch(0, 0, 0)) fetched[few];
#pragma unroll
        for (int n = 0; n < few; n++) {
            at[n][0] = span.low[0] + i, at[n][1] = span.low[1] + j, at[n][2] = span.low[2] + k;
            if (m + n * stride < total) fetched[n] = fetch(at[n][0], at[n][1], at[n][2]);
            k += dk;
            j += dj;
            i += di;
            if (k >= span.n[2]) k -= span.n[2], j++;
            if (j >= span.n[1]) j -= span.n[1], i++;
        }
#pragma unroll
        for (int n = 0; n < few; n++)
            if (m + n * stride < total) use(at[n][0], at[n][1], at[n][2], fetched[n]);
    }
}

// Calls `visit(i, j, k)` for them.
template <typename Visit>
__device__ __forceinline__ void for_each(const Span& span, Visit visit) {
    for_each<1>(
        span, [](int, int, int) { return 0; },
        [&](int i, int j, int k, int) { visit(i, j, k); });
}
