// common.cuh: what every kernel of this folder is told about memory, and the few operations all of them need.
//
// Points are counted from the first owned one along the three axes (slowest first; axes that a 1D or 2D problem lacks
// have one point). `src` and `dst` point at owned point (0, 0, 0), which lies on a 128-byte line, as does the first
// owned point of every row.

#pragma once

#if !defined(TS_REAL)
#error "every kernel needs -DTS_REAL=double or float (see gpu_kernels/build.py)"
#endif

using real = TS_REAL;

// A box of points: low inclusive, high exclusive; negative in the halo.
struct Box {
    int low[3];
    int high[3];
};

// Where points lie: element of point (i, j, k) is i * plane + j * row + k.
struct Memory {
    long long plane;
    long long row;
    Box within;  // what is allocated: any point in it may be read, but outside the halo its value may be anything
};

__device__ __forceinline__ double fma_real(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ __forceinline__ float fma_real(float a, float b, float c) { return __fmaf_rn(a, b, c); }

__device__ __forceinline__ double mul_real(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float mul_real(float a, float b) { return __fmul_rn(a, b); }

__device__ __forceinline__ int clamp(int i, int low, int high) { return min(max(i, low), high - 1); }
