// smoothing.cu: Jacobi steps of a level of multigrid, and what they leave.
//
// Idea    One pass over memory each. The operator is kept in halves of floats, with the inverse of
//         its diagonal: 10 bytes a point, where floats without the inverse are 16. The first two
//         steps, which begin with u = 0, are one pass: the first is the right-hand side times this
//         inverse, and so is known at any point.
// Layout  See operator.cuh.
// Writes  Every point.
// Limits  None. A point without neighbours and without d stays 0.
// Test    tests/gpu/test_gpu_solve.py

#if !defined(TS_REAL)
#error "smoothing.cu needs -DTS_REAL=float"
#endif
#include "operator.cuh"

constexpr float tiny = 1e-30f;  // of a diagonal, relative to the largest

struct Sweep {
    Extent extent;
    float weights[2];
};

// Conductances and d, rounded.
extern "C" __global__ void keep(const float* __restrict__ values, Packed* __restrict__ kept,
    long long n) {
    const long long step = (long long)(gridDim.x) * blockDim.x;
    for (long long p = (long long)(blockIdx.x) * blockDim.x + threadIdx.x; p < n; p += step)
        kept[p] = packed(values[p]);
}

// Of these the inverse of the diagonal: the flow where u is -1, and 0 beside it.
extern "C" __global__ void invert(const Packed* __restrict__ k0, const Packed* __restrict__ k1,
    const Packed* __restrict__ k2, const Packed* __restrict__ d, Packed* __restrict__ inverse,
    const __grid_constant__ Extent extent) {
    const int n0 = extent.n[0], n1 = extent.n[1], n2 = extent.n[2];
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    const int last = min(int(blockIdx.z + 1) * extent.planes, n0);
    if (k >= n2) return;
    for (int i = blockIdx.z * extent.planes; i < last; i++)
        for (int j = blockIdx.y * blockDim.y + threadIdx.y; j < n1; j += gridDim.y * blockDim.y) {
            const auto at = [&](int a, int b, int c) { return ((long long)(a)*n1 + b) * n2 + c; };
            const long long p = at(i, j, k);
            float whole = value_of(k0[at(before(i, n0), j, k)]) + value_of(k0[p]);
            whole += value_of(k1[at(i, before(j, n1), k)]) + value_of(k1[p]);
            whole += value_of(k2[at(i, j, before(k, n2))]) + value_of(k2[p]);
            whole += value_of(d[p]);
            inverse[p] = packed(whole > tiny ? 1 / whole : 0);
        }
}

// v = two steps from u = 0.
extern "C" __global__ void __launch_bounds__(256) begin(const Packed* __restrict__ k0,
    const Packed* __restrict__ k1, const Packed* __restrict__ k2, const Packed* __restrict__ d,
    const Packed* __restrict__ inverse, const float* __restrict__ f, float* __restrict__ v,
    const __grid_constant__ Sweep sweep) {
    const auto step = [&](long long plane, unsigned p, float weight, float left) {
        return weight * left * value_of((inverse + plane)[p]);
    };
    walk(
        sweep.extent, k0, k1, k2, d,
        [&](long long plane, unsigned p) {
            return step(plane, p, sweep.weights[0], (f + plane)[p]);
        },
        [&](long long plane, unsigned p, float u, float flow) {
            (v + plane)[p] = u + step(plane, p, sweep.weights[1], (f + plane)[p] + flow);
        });
}

// v = u + weight (f - A u) / diagonal
extern "C" __global__ void __launch_bounds__(256) relax(const Packed* __restrict__ k0,
    const Packed* __restrict__ k1, const Packed* __restrict__ k2, const Packed* __restrict__ d,
    const Packed* __restrict__ inverse, const float* __restrict__ f, const float* __restrict__ u,
    float* __restrict__ v, const __grid_constant__ Sweep sweep) {
    walk(
        sweep.extent, k0, k1, k2, d, [&](long long plane, unsigned p) { return (u + plane)[p]; },
        [&](long long plane, unsigned p, float here, float flow) {
            const float step = sweep.weights[0] * ((f + plane)[p] + flow);
            (v + plane)[p] = here + step * value_of((inverse + plane)[p]);
        });
}

// v = f - A u
extern "C" __global__ void __launch_bounds__(256) remain(const Packed* __restrict__ k0,
    const Packed* __restrict__ k1, const Packed* __restrict__ k2, const Packed* __restrict__ d,
    const float* __restrict__ f, const float* __restrict__ u, float* __restrict__ v,
    const __grid_constant__ Sweep sweep) {
    walk(
        sweep.extent, k0, k1, k2, d, [&](long long plane, unsigned p) { return (u + plane)[p]; },
        [&](long long plane, unsigned p, float, float flow) {
            (v + plane)[p] = (f + plane)[p] + flow;
        });
}
