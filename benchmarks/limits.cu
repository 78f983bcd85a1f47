// limits.cu: what the GPU can do at most, for the benchmark: multiply-adds on CUDA cores and on tensor cores.
//
// Idea    Independent chains in registers, long enough that nothing else is measured. The numbers stay of the order of
//         1 for ever, and are written so that nothing is left out.
// Writes  One number per thread.
// Test    tests/gpu/test_gpu_compiles.py

#if !defined(TS_REAL) || !defined(TS_TURNS)
#error "limits.cu needs -DTS_REAL, -DTS_TURNS (turns of the loop)"
#endif
#include "common.cuh"

constexpr int chains = 16;  // enough to fill the pipeline of one warp
constexpr int turns = TS_TURNS;

extern "C" __global__ void __launch_bounds__(256) multiply_add(real* out, const real factor, const real summand) {
    real value[chains];
#pragma unroll
    for (int c = 0; c < chains; c++) value[c] = real(0.5) + real(0.01) * real(threadIdx.x % 32 + c);
    for (int turn = 0; turn < turns; turn++)
#pragma unroll
        for (int c = 0; c < chains; c++) value[c] = fma_real(value[c], factor, summand);
    real sum = real(0);
#pragma unroll
    for (int c = 0; c < chains; c++) sum += value[c];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// One warp-wide product of 16 x 8 with 8 x 8 per chain and turn: 1024 multiply-adds. sm_90 and newer.
extern "C" __global__ void __launch_bounds__(256) tensor_multiply_add(double* out) {
#if __CUDA_ARCH__ >= 900
    constexpr int n = 4;
    double d[n][4], a[4], b[2];
    for (int i = 0; i < 4; i++) a[i] = 0.01 * (threadIdx.x % 7 + i + 1);
    for (int i = 0; i < 2; i++) b[i] = 0.001 * (threadIdx.x % 5 + i + 1);
#pragma unroll
    for (int c = 0; c < n; c++)
        for (int i = 0; i < 4; i++) d[c][i] = 0.5 + 0.1 * c;
    for (int turn = 0; turn < turns; turn++)
#pragma unroll
        for (int c = 0; c < n; c++)
            asm volatile(
                "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
                "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                : "+d"(d[c][0]), "+d"(d[c][1]), "+d"(d[c][2]), "+d"(d[c][3])
                : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
    double sum = 0;
    for (int c = 0; c < n; c++)
        for (int i = 0; i < 4; i++) sum += d[c][i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
#else
    out[blockIdx.x * blockDim.x + threadIdx.x] = 0;
#endif
}
