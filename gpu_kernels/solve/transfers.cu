// transfers.cu: between a level of multigrid and the next coarser one.
//
// Idea    Axes are coarsened one after the other (tetris_sim/solvers/hierarchy.py): `coarsen` makes
//         the operator of every other plane across one of them, and the shares that the planes
//         between have in these. Restriction and prolongation go through all of them in one pass:
//         a thread has a coarse point and the up to 27 fine ones that it touches, or the up to 4
//         of one column and row that a coarse one makes.
// Layout  Contiguous. Shares of axis a: (.., n_a / 2, ..), of axes before it those that are kept,
//         of axes behind it all points.
// Writes  coarsen, restricted: every coarse point; prolonged: adds to every fine point.
// Test    tests/gpu/test_gpu_solve.py

#if !defined(TS_REAL)
#error "transfers.cu needs -DTS_REAL=float"
#endif
#include "operator.cuh"

// A way down: which axes are coarsened, points per axis of the finer level.
struct Way {
    int n[3];
    int axes;  // bit a: axis a
};

struct Fine {
    Way way;
    int kept[3];  // points of the coarser level

    __device__ __forceinline__ explicit Fine(const Way& given) : way(given) {
        for (int a = 0; a < 3; a++) kept[a] = moves(a) ? (way.n[a] + 1) / 2 : way.n[a];
    }
    __device__ __forceinline__ bool moves(int a) const { return way.axes >> a & 1; }
    __device__ __forceinline__ int between(int a) const { return way.n[a] / 2; }
    // of arrays (rows per plane, points per row)
    static __device__ __forceinline__ long long at(int i, int j, int k, int rows, int points) {
        return ((long long)(i)*rows + j) * points + k;
    }
};

// What points weigh at coarse index c of an axis: value(i) of fine index i, share(s, side) of the
// point between number s.
template <class Value, class Low, class High>
__device__ __forceinline__ float gathered(int c, int kept, int between, Value value, Low low,
    High high) {
    const int below = before(c, kept);
    float sum = value(2 * c);
    if (c < between) sum = fma_real(low(c), value(2 * c + 1), sum);
    if (below < between) sum = fma_real(high(below), value(2 * below + 1), sum);
    return sum;
}

extern "C" __global__ void __launch_bounds__(256) restricted(const float* __restrict__ r,
    const float* __restrict__ low0, const float* __restrict__ high0,
    const float* __restrict__ low1, const float* __restrict__ high1,
    const float* __restrict__ low2, const float* __restrict__ high2, float* __restrict__ coarse,
    const __grid_constant__ Way way) {
    const Fine fine(way);
    const int n1 = way.n[1], n2 = way.n[2], c1 = fine.kept[1], c2 = fine.kept[2];

    const auto along0 = [&](int i, int j, int k) {
        if (!fine.moves(0)) return r[Fine::at(i, j, k, n1, n2)];
        const auto share = [&](int s) { return Fine::at(s, j, k, n1, n2); };
        return gathered(
            i, fine.kept[0], fine.between(0),
            [&](int a) { return r[Fine::at(a, j, k, n1, n2)]; },
            [&](int s) { return low0[share(s)]; }, [&](int s) { return high0[share(s)]; });
    };
    const auto along1 = [&](int i, int j, int k) {
        if (!fine.moves(1)) return along0(i, j, k);
        const auto share = [&](int s) { return Fine::at(i, s, k, fine.between(1), n2); };
        return gathered(
            j, c1, fine.between(1), [&](int a) { return along0(i, a, k); },
            [&](int s) { return low1[share(s)]; }, [&](int s) { return high1[share(s)]; });
    };
    const auto along2 = [&](int i, int j, int k) {
        if (!fine.moves(2)) return along1(i, j, k);
        const auto share = [&](int s) { return Fine::at(i, j, s, c1, fine.between(2)); };
        return gathered(
            k, c2, fine.between(2), [&](int a) { return along1(i, j, a); },
            [&](int s) { return low2[share(s)]; }, [&](int s) { return high2[share(s)]; });
    };

    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= c2) return;
    for (int i = blockIdx.z; i < fine.kept[0]; i += gridDim.z)
        for (int j = blockIdx.y * blockDim.y + threadIdx.y; j < c1; j += gridDim.y * blockDim.y)
            coarse[Fine::at(i, j, k, c1, c2)] = along2(i, j, k);
}

extern "C" __global__ void __launch_bounds__(256) prolonged(const float* __restrict__ coarse,
    const float* __restrict__ low0, const float* __restrict__ high0,
    const float* __restrict__ low1, const float* __restrict__ high1,
    const float* __restrict__ low2, const float* __restrict__ high2, float* __restrict__ u,
    const __grid_constant__ Way way) {
    const Fine fine(way);
    const int n1 = way.n[1], n2 = way.n[2], c0 = fine.kept[0], c1 = fine.kept[1];
    const int c2 = fine.kept[2];
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n2) return;
    const int wide = fine.moves(0) ? 2 : 1, high = fine.moves(1) ? 2 : 1;
    const int c = fine.moves(2) ? k / 2 : k;
    const bool between = fine.moves(2) && k % 2 == 1;

    // at k of coarse (i, j); then at j, k of coarse i, j being b or the point behind it
    const auto along2 = [&](int i, int j) {
        const float own = coarse[Fine::at(i, j, c, c1, c2)];
        if (!between) return own;
        const long long share = Fine::at(i, j, c, c1, fine.between(2));
        return fma_real(low2[share], own,
            mul_real(high2[share], coarse[Fine::at(i, j, after(c, c2), c1, c2)]));
    };
    const auto along1 = [&](int i, int b, bool behind) {
        const float own = along2(i, b);
        if (!behind) return own;
        const long long share = Fine::at(i, b, k, fine.between(1), n2);
        return fma_real(low1[share], own, mul_real(high1[share], along2(i, after(b, c1))));
    };

    for (int a = blockIdx.z; a < c0; a += gridDim.z)
        for (int b = blockIdx.y * blockDim.y + threadIdx.y; b < c1; b += gridDim.y * blockDim.y)
#pragma unroll 1
            for (int t = 0; t < high; t++) {
                const int j = high * b + t;
                if (j >= n1) continue;
                const float own = along1(a, b, t > 0);
                u[Fine::at(wide * a, j, k, n1, n2)] += own;
                if (wide == 1 || 2 * a + 1 >= way.n[0]) continue;
                const long long share = Fine::at(a, j, k, n1, n2);
                u[Fine::at(2 * a + 1, j, k, n1, n2)] += fma_real(
                    low0[share], own, mul_real(high0[share], along1(after(a, c0), b, t > 0)));
            }
}

// One axis, `way.axes` its bit.
extern "C" __global__ void __launch_bounds__(256) coarsen(const float* __restrict__ k0,
    const float* __restrict__ k1, const float* __restrict__ k2, const float* __restrict__ d,
    float* __restrict__ coarse0, float* __restrict__ coarse1, float* __restrict__ coarse2,
    float* __restrict__ coarse_d, float* __restrict__ low, float* __restrict__ high,
    const __grid_constant__ Way way) {
    const Fine fine(way);
    const int axis = fine.moves(0) ? 0 : fine.moves(1) ? 1 : 2;
    const int kept = fine.kept[axis], between = fine.between(axis);
    const float* const finer[3] = {k0, k1, k2};
    float* const coarser[3] = {coarse0, coarse1, coarse2};
    const float* const along = finer[axis];

    const auto fine_at = [&](const int (&at)[3]) {
        return Fine::at(at[0], at[1], at[2], way.n[1], way.n[2]);
    };
    // Shares of the point between number s where the other two axes are at `at`. What touches
    // neither side, a fin as thin as a point, goes with the lower.
    const auto shares = [&](const int (&at)[3], int s, float& down, float& up, float& series) {
        int place[3] = {at[0], at[1], at[2]};
        place[axis] = 2 * s;
        const float lower = along[fine_at(place)];
        place[axis] = 2 * s + 1;
        const long long p = fine_at(place);
        const float upper = along[p], whole = lower + upper + d[p];
        const bool joined = lower + upper > 0;
        down = joined ? lower / whole : 1;
        up = joined ? upper / whole : 0;
        series = lower * up;
    };

    const int z = blockIdx.x * blockDim.x + threadIdx.x;
    if (z >= fine.kept[2]) return;
    for (int x = blockIdx.z; x < fine.kept[0]; x += gridDim.z)
        for (int y = blockIdx.y * blockDim.y + threadIdx.y; y < fine.kept[1];
            y += gridDim.y * blockDim.y) {
            int at[3] = {x, y, z};
            const long long target = Fine::at(x, y, z, fine.kept[1], fine.kept[2]);
            const int c = at[axis], below = before(c, kept);
            float down = 0, up = 0, series = 0, under = 0, over = 0, unused;
            if (c < between) shares(at, c, down, up, series);
            if (below < between) shares(at, below, under, over, unused);
            // Of arrays of as many planes as lie between.
            if (c < between) {
                const long long place = axis == 0   ? target
                                        : axis == 1 ? Fine::at(x, y, z, between, fine.kept[2])
                                                    : Fine::at(x, y, z, fine.kept[1], between);
                low[place] = down;
                high[place] = up;
            }

            at[axis] = 2 * c;
            const long long own = fine_at(at);
            at[axis] = 2 * c + 1;
            const long long next = c < between ? fine_at(at) : own;
            at[axis] = 2 * below + 1;
            const long long last = below < between ? fine_at(at) : own;
            coarse_d[target] = d[own] + down * d[next] + over * d[last];
            for (int other = 0; other < 3; other++) {
                if (other == axis) {
                    coarser[other][target] = kept == 1 ? 0 : c < between ? series : along[own];
                    continue;
                }
                // Shares of the two points that it leads to, in the mean.
                at[other] = after(at[other], way.n[other]);
                float down_beside = 0, over_beside = 0, also;
                if (c < between) shares(at, c, down_beside, also, unused);
                if (below < between) shares(at, below, also, over_beside, unused);
                at[0] = x, at[1] = y, at[2] = z;
                coarser[other][target] = finer[other][own] +
                                         (down + down_beside) / 2 * finer[other][next] +
                                         (over + over_beside) / 2 * finer[other][last];
            }
        }
}
