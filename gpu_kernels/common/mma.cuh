// mma.cuh: products of small FP64 matrices on tensor cores, C(16 x 8) += A(16 x K) B(K x 8), K = 4,
// 8 or 16.
//
// Idea    Hopper multiplies 16 x K matrices at twice the rate of the 8 x 8 x 4 shape, which is all
//         that Ampere has (and all that WMMA offers): measured on one H200, m8n8k4 32.9, m16n8k4
//         65.5, m16n8k8 66.2, m16n8k16 66.5 TFLOP/s (November 2026). Where the wide shapes are
//         missing, two narrow products per four columns of A do the same.
// Layout  With g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix fragments for mma with f64"), a lane
//         holds
//           A   a[2 * s + h]  row g + 8 * h, column 4 * s + t
//           B   b[s]          row 4 * s + t, column g
//           C   c[2 * h + v]  row g + 8 * h, column 2 * t + v
// Limits  sm_80 and later; all 32 lanes of a warp call together.
// Order   Every product is a chain of fused multiply-adds onto C in the order of k, bit for bit, in
//         all shapes (compared with exact fractions on one H200, 16 * 8 random sums each, November
//         2026).
// Test    tests/gpu/test_gpu_against_reference.py, through the kernels that use it

#pragma once

// -DTS_MMA_WIDE=0 takes the narrow shape on any GPU: a test of it needs no Ampere.
#if defined(TS_MMA_WIDE)
constexpr bool mma_wide = TS_MMA_WIDE;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool mma_wide = true;
#else
constexpr bool mma_wide = false;
#endif

// Volatile: products stay in the order in which they are written. (It changes nothing in
// trapezoid.cu.)
__device__ __forceinline__ void mma_8x8x4(double& c0, double& c1, double a, double b) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c0), "+d"(c1)
        : "d"(a), "d"(b));
}

__device__ __forceinline__ void mma_16x8x4(double (&c)[4], double a0, double a1, double b) {
    if constexpr (mma_wide) {
        asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
            : "d"(a0), "d"(a1), "d"(b));
    } else {
        mma_8x8x4(c[0], c[1], a0, b);
        mma_8x8x4(c[2], c[3], a1, b);
    }
}

__device__ __forceinline__ void mma_16x8x8(
    double (&c)[4], const double (&a)[4], const double (&b)[2]) {
    if constexpr (mma_wide) {
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
            : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
    } else {
#pragma unroll
        for (int s = 0; s < 2; ++s) mma_16x8x4(c, a[2 * s], a[2 * s + 1], b[s]);
    }
}

__device__ __forceinline__ void mma_16x8x16(
    double (&c)[4], const double (&a)[8], const double (&b)[4]) {
    if constexpr (mma_wide) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
            "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
            : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
            : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]),
            "d"(a[7]), "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
    } else {
#pragma unroll
        for (int s = 0; s < 4; ++s) mma_16x8x4(c, a[2 * s], a[2 * s + 1], b[s]);
    }
}
