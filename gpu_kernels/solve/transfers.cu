// transfers.cu: between a level of multigrid and the next coarser one.
//
// Idea    Axes are coarsened one after the other (tetris_sim/solvers/multigrid.py): `coarsen` makes
//         the operator of every other plane across one of them, and the shares that the planes
//         between have in these. Restriction and prolongation go through all of them in one pass:
//         a thread has a coarse point and the up to 27 fine ones that it touches, or the up to 4
//         of one column and row that a coarse one makes.
// Layout  Contiguous. Shares of axis a: (.., those between, ..), of axes before it those that are
//         kept, of axes behind it all points. A line of an axis: the places of kept planes, n, and
//         for every place twice the number of the kept plane there or before it, + 1 if it is before.
// Writes  coarsen, restricted: every coarse point; prolonged: adds to every fine point.
// Test    tests/gpu/test_gpu_solve.py

#if !defined(TS_REAL)
#error "transfers.cu needs -DTS_REAL=float"
#endif
#include "operator.cuh"

// A way down: points per axis of the finer level, and of the coarser one.
struct Way {
    int n[3];
    int kept[3];
};

struct Fine {
    Way way;

    __device__ __forceinline__ explicit Fine(const Way& given) : way(given) {}
    __device__ __forceinline__ bool moves(int a) const { return way.kept[a] < way.n[a]; }
    __device__ __forceinline__ int between(int a) const { return way.n[a] - way.kept[a]; }
    // of arrays (rows per plane, points per row)
    static __device__ __forceinline__ long long at(int i, int j, int k, int rows, int points) {
        return ((long long)(i)*rows + j) * points + k;
    }
};

// Whether there is a point between a kept one and the next; it has number line[c] - c of these.
__device__ __forceinline__ bool leads_on(const int* line, int c) {
    return line[c + 1] == line[c] + 2;
}

// What points weigh at coarse index c of an axis: value(i) of fine index i, share(s, side) of the
// point between number s.
template <class Value, class Low, class High>
__device__ __forceinline__ float gathered(const int* line, int c, int kept, Value value, Low low,
    High high) {
    const int below = before(c, kept);
    float sum = value(line[c]);
    if (leads_on(line, c)) sum = fma_real(low(line[c] - c), value(line[c] + 1), sum);
    if (leads_on(line, below))
        sum = fma_real(high(line[below] - below), value(line[below] + 1), sum);
    return sum;
}

extern "C" __global__ void __launch_bounds__(256) restricted(const float* __restrict__ r,
    const float* __restrict__ low0, const float* __restrict__ high0,
    const float* __restrict__ low1, const float* __restrict__ high1,
    const float* __restrict__ low2, const float* __restrict__ high2, float* __restrict__ coarse,
    const int* __restrict__ line0, const int* __restrict__ line1, const int* __restrict__ line2,
    const __grid_constant__ Way way) {
    const Fine fine(way);
    const int n1 = way.n[1], n2 = way.n[2], c1 = way.kept[1], c2 = way.kept[2];

    const auto along0 = [&](int i, int j, int k) {
        if (!fine.moves(0)) return r[Fine::at(i, j, k, n1, n2)];
        const auto share = [&](int s) { return Fine::at(s, j, k, n1, n2); };
        return gathered(
            line0, i, way.kept[0],
            [&](int a) { return r[Fine::at(a, j, k, n1, n2)]; },
            [&](int s) { return low0[share(s)]; }, [&](int s) { return high0[share(s)]; });
    };
    const auto along1 = [&](int i, int j, int k) {
        if (!fine.moves(1)) return along0(i, j, k);
        const auto share = [&](int s) { return Fine::at(i, s, k, fine.between(1), n2); };
        return gathered(
            line1, j, c1, [&](int a) { return along0(i, a, k); },
            [&](int s) { return low1[share(s)]; }, [&](int s) { return high1[share(s)]; });
    };
    const auto along2 = [&](int i, int j, int k) {
        if (!fine.moves(2)) return along1(i, j, k);
        const auto share = [&](int s) { return Fine::at(i, j, s, c1, fine.between(2)); };
        return gathered(
            line2, k, c2, [&](int a) { return along1(i, j, a); },
            [&](int s) { return low2[share(s)]; }, [&](int s) { return high2[share(s)]; });
    };

    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= c2) return;
    for (int i = blockIdx.z; i < way.kept[0]; i += gridDim.z)
        for (int j = blockIdx.y * blockDim.y + threadIdx.y; j < c1; j += gridDim.y * blockDim.y)
            coarse[Fine::at(i, j, k, c1, c2)] = along2(i, j, k);
}

extern "C" __global__ void __launch_bounds__(256) prolonged(const float* __restrict__ coarse,
    const float* __restrict__ low0, const float* __restrict__ high0,
    const float* __restrict__ low1, const float* __restrict__ high1,
    const float* __restrict__ low2, const float* __restrict__ high2, float* __restrict__ u,
    const int* __restrict__ line0, const int* __restrict__ line1, const int* __restrict__ line2,
    const __grid_constant__ Way way) {
    const Fine fine(way);
    const int n1 = way.n[1], n2 = way.n[2], c0 = way.kept[0], c1 = way.kept[1];
    const int c2 = way.kept[2];
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n2) return;
    const int owner = fine.moves(2) ? line2[c2 + 1 + k] : 2 * k;
    const int c = owner / 2;
    const bool between = owner % 2 == 1;

    // at k of coarse (i, j); then at j, k of coarse i, j being b or the point behind it
    const auto along2 = [&](int i, int j) {
        const float own = coarse[Fine::at(i, j, c, c1, c2)];
        if (!between) return own;
        const long long share = Fine::at(i, j, k - 1 - c, c1, fine.between(2));
        return fma_real(low2[share], own,
            mul_real(high2[share], coarse[Fine::at(i, j, after(c, c2), c1, c2)]));
    };
    const auto along1 = [&](int i, int b, bool behind) {
        const float own = along2(i, b);
        if (!behind) return own;
        const long long share = Fine::at(i, line1[b] - b, k, fine.between(1), n2);
        return fma_real(low1[share], own, mul_real(high1[share], along2(i, after(b, c1))));
    };

    for (int a = blockIdx.z; a < c0; a += gridDim.z)
        for (int b = blockIdx.y * blockDim.y + threadIdx.y; b < c1; b += gridDim.y * blockDim.y) {
            const int i = fine.moves(0) ? line0[a] : a, first = fine.moves(1) ? line1[b] : b;
            const int high = fine.moves(1) && leads_on(line1, b) ? 2 : 1;
#pragma unroll 1
            for (int t = 0; t < high; t++) {
                const int j = first + t;
                const float own = along1(a, b, t > 0);
                u[Fine::at(i, j, k, n1, n2)] += own;
                if (!fine.moves(0) || !leads_on(line0, a)) continue;
                const long long share = Fine::at(i - a, j, k, n1, n2);
                u[Fine::at(i + 1, j, k, n1, n2)] += fma_real(
                    low0[share], own, mul_real(high0[share], along1(after(a, c0), b, t > 0)));
            }
        }
}

// One axis, that of which `way` keeps less.
extern "C" __global__ void __launch_bounds__(256) coarsen(const float* __restrict__ k0,
    const float* __restrict__ k1, const float* __restrict__ k2, const float* __restrict__ d,
    float* __restrict__ coarse0, float* __restrict__ coarse1, float* __restrict__ coarse2,
    float* __restrict__ coarse_d, float* __restrict__ low, float* __restrict__ high,
    const int* __restrict__ line, const __grid_constant__ Way way) {
    const Fine fine(way);
    const int axis = fine.moves(0) ? 0 : fine.moves(1) ? 1 : 2;
    const int kept = way.kept[axis], between = fine.between(axis);
    const float* const finer[3] = {k0, k1, k2};
    float* const coarser[3] = {coarse0, coarse1, coarse2};
    const float* const along = finer[axis];

    const auto fine_at = [&](const int (&at)[3]) {
        return Fine::at(at[0], at[1], at[2], way.n[1], way.n[2]);
    };
    // Shares of the point between behind kept plane c where the other two axes are at `at`. What touches
    // neither side, a fin as thin as a point, goes with the lower.
    const auto shares = [&](const int (&at)[3], int c, float& down, float& up, float& series) {
        int place[3] = {at[0], at[1], at[2]};
        place[axis] = line[c];
        const float lower = along[fine_at(place)];
        place[axis] = line[c] + 1;
        const long long p = fine_at(place);
        const float upper = along[p], whole = lower + upper + d[p];
        const bool joined = lower + upper > 0;
        down = joined ? lower / whole : 1;
        up = joined ? upper / whole : 0;
        series = lower * up;
    };

    const int z = blockIdx.x * blockDim.x + threadIdx.x;
    if (z >= way.kept[2]) return;
    for (int x = blockIdx.z; x < way.kept[0]; x += gridDim.z)
        for (int y = blockIdx.y * blockDim.y + threadIdx.y; y < way.kept[1];
            y += gridDim.y * blockDim.y) {
            int at[3] = {x, y, z};
            const long long target = Fine::at(x, y, z, way.kept[1], way.kept[2]);
            const int c = at[axis], below = before(c, kept);
            const bool behind = leads_on(line, c), ahead = leads_on(line, below);
            float down = 0, up = 0, series = 0, under = 0, over = 0, unused;
            if (behind) shares(at, c, down, up, series);
            if (ahead) shares(at, below, under, over, unused);
            // Of arrays of as many planes as lie between.
            if (behind) {
                const int s = line[c] - c;
                const long long place = axis == 0   ? Fine::at(s, y, z, way.kept[1], way.kept[2])
                                        : axis == 1 ? Fine::at(x, s, z, between, way.kept[2])
                                                    : Fine::at(x, y, s, way.kept[1], between);
                low[place] = down;
                high[place] = up;
            }

            at[axis] = line[c];
            const long long own = fine_at(at);
            at[axis] = line[c] + 1;
            const long long next = behind ? fine_at(at) : own;
            at[axis] = line[below] + 1;
            const long long last = ahead ? fine_at(at) : own;
            coarse_d[target] = d[own] + down * d[next] + over * d[last];
            for (int other = 0; other < 3; other++) {
                if (other == axis) {
                    coarser[other][target] = kept == 1 ? 0 : behind ? series : along[own];
                    continue;
                }
                // Shares of the two points that it leads to, in the mean.
                at[other] = after(at[other], way.n[other]);
                float down_beside = 0, over_beside = 0, also;
                if (behind) shares(at, c, down_beside, also, unused);
                if (ahead) shares(at, below, also, over_beside, unused);
                at[0] = x, at[1] = y, at[2] = z;
                coarser[other][target] = finer[other][own] +
                                         (down + down_beside) / 2 * finer[other][next] +
                                         (over + over_beside) / 2 * finer[other][last];
            }
        }
}
