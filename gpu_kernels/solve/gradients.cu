// gradients.cu: what conjugate gradients do to all points in FP64, beside a preconditioner in FP32.
//
// Idea    One pass over memory each, with the sums that belong to it: a block has one of its own,
//         and one block adds these up in a fixed order, so the same GPU finds the same bits.
// Layout  See operator.cuh.
// Test    tests/gpu/test_gpu_solve.py

#if !defined(TS_REAL)
#error "gradients.cu needs -DTS_REAL=double"
#endif
#include "operator.cuh"

constexpr int threads = 256;

struct Turn {
    long long n;
    double a, b;
};

// The sum over a block, in its first thread.
__device__ __forceinline__ double block_sum(double value) {
    __shared__ double parts[threads];
    const int t = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();  // whoever reads an earlier sum has done so
    parts[t] = value;
    for (int half = threads / 2; half > 0; half /= 2) {
        __syncthreads();  // parts of the last round are written
        if (t < half) parts[t] += parts[t + half];
    }
    return parts[0];
}

__device__ __forceinline__ void keep_sum(double value, double* sums) {
    const double sum = block_sum(value);
    if (threadIdx.x == 0 && threadIdx.y == 0)
        sums[((long long)(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

template <class Each>
__device__ __forceinline__ void points(long long n, Each each) {
    const long long step = (long long)(gridDim.x) * blockDim.x;
    for (long long p = (long long)(blockIdx.x) * blockDim.x + threadIdx.x; p < n; p += step)
        each(p);
}

// v = A u; the sums of u v
extern "C" __global__ void __launch_bounds__(threads) apply(const double* __restrict__ k0,
    const double* __restrict__ k1, const double* __restrict__ k2, const double* __restrict__ d,
    const double* __restrict__ u, double* __restrict__ v, double* __restrict__ sums,
    const __grid_constant__ Extent extent) {
    double sum = 0;
    walk(
        extent, k0, k1, k2, d, [&](long long plane, unsigned p) { return (u + plane)[p]; },
        [&](long long plane, unsigned p, double here, double flow) {
            (v + plane)[p] = -flow;
            sum = fma_real(here, -flow, sum);
        });
    keep_sum(sum, sums);
}

// v = f - A u
extern "C" __global__ void __launch_bounds__(threads) residual(const double* __restrict__ k0,
    const double* __restrict__ k1, const double* __restrict__ k2, const double* __restrict__ d,
    const double* __restrict__ f, const double* __restrict__ u, double* __restrict__ v,
    const __grid_constant__ Extent extent) {
    walk(
        extent, k0, k1, k2, d, [&](long long plane, unsigned p) { return (u + plane)[p]; },
        [&](long long plane, unsigned p, double, double flow) {
            (v + plane)[p] = (f + plane)[p] + flow;
        });
}

// r -= length q, small = r; the sums of r^2
extern "C" __global__ void __launch_bounds__(threads) descend(const double* __restrict__ q,
    double* __restrict__ r, float* __restrict__ small, double* __restrict__ sums,
    const __grid_constant__ Turn turn) {
    double sum = 0;
    points(turn.n, [&](long long p) {
        const double left = fma_real(-turn.a, q[p], r[p]);
        r[p] = left;
        small[p] = float(left);
        sum = fma_real(left, left, sum);
    });
    keep_sum(sum, sums);
}

// The sums of z q, and behind them those of z r.
extern "C" __global__ void __launch_bounds__(threads) project(const float* __restrict__ z,
    const double* __restrict__ q, const float* __restrict__ r, double* __restrict__ sums,
    const __grid_constant__ Turn turn) {
    double first = 0, second = 0;
    points(turn.n, [&](long long p) {
        const double here = z[p];
        first = fma_real(here, q[p], first);
        second = fma_real(here, double(r[p]), second);
    });
    keep_sum(first, sums);
    keep_sum(second, sums + gridDim.x);
}

// u += length p, p = z + share p
extern "C" __global__ void __launch_bounds__(threads) turn_to(const float* __restrict__ z,
    double* __restrict__ p, double* __restrict__ u, const __grid_constant__ Turn turn) {
    points(turn.n, [&](long long at) {
        const double was = p[at];
        u[at] = fma_real(turn.a, was, u[at]);
        p[at] = fma_real(turn.b, was, double(z[at]));
    });
}

// The sum of n numbers, by one block.
extern "C" __global__ void __launch_bounds__(threads) total(const double* __restrict__ sums,
    double* __restrict__ found, const __grid_constant__ Turn turn) {
    double sum = 0;
    points(turn.n, [&](long long p) { sum += sums[p]; });
    keep_sum(sum, found);
}
