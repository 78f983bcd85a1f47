// common.cuh: what every kernel of this folder is told about memory, and the few operations all of
// them need.
//
// Points are counted from the first owned one along the three axes (slowest first; axes that a 1D
// or 2D problem lacks have one point). `src` and `dst` point at owned point (0, 0, 0), which lies
// on a 128-byte line, as does the first owned point of every row.

#pragma once

#if !defined(TS_REAL)
#error "every kernel needs -DTS_REAL=double, float, Half or Pair (see gpu_kernels/common/device.py)"
#endif
#include "pair.cuh"

// The bits of an FP16.
struct Half {
    unsigned short bits;
};

// What numbers of a format are computed in, and how they get there and back, rounded to nearest.
template <class T>
struct Format {
    using Wide = T;
    static __device__ __forceinline__ T widen(T value) { return value; }
    static __device__ __forceinline__ T narrow(T value) { return value; }
};

template <>
struct Format<Half> {
    using Wide = float;
    static __device__ __forceinline__ float widen(Half value) {
        float found;
        asm("cvt.f32.f16 %0, %1;" : "=f"(found) : "h"(value.bits));
        return found;
    }
    static __device__ __forceinline__ Half narrow(float value) {
        Half found;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(found.bits) : "f"(value));
        return found;
    }
};

template <>
struct Format<Pair> {
    using Wide = Pair;
    static __device__ __forceinline__ Pair widen(Pair value) { return value; }
    static __device__ __forceinline__ Pair narrow(Pair value) { return whole(value); }
};

using real = TS_REAL;             // what memory holds
using wide = Format<real>::Wide;  // what weights and sums are: float where memory holds FP16

__device__ __forceinline__ wide widen(real value) { return Format<real>::widen(value); }
__device__ __forceinline__ real narrow(wide value) { return Format<real>::narrow(value); }

// A box of points: low inclusive, high exclusive; negative in the halo.
struct Box {
    int low[3];
    int high[3];
};

// Where points lie: element of point (i, j, k) is i * plane + j * row + k.
struct Memory {
    long long plane;
    long long row;
    // what is allocated: any point in it may be read, but outside the halo its value may be
    // anything
    Box within;
};

__device__ __forceinline__ double fma_real(double a, double b, double c) {
    return __fma_rn(a, b, c);
}
__device__ __forceinline__ float fma_real(float a, float b, float c) { return __fmaf_rn(a, b, c); }

__device__ __forceinline__ double mul_real(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float mul_real(float a, float b) { return __fmul_rn(a, b); }

// What a level of several hands to the next.
template <class T>
__device__ __forceinline__ T settled(T value) {
    return value;
}

// With TS_SUM=1 a kernel of several steps adds an array to what it stores: what a static source makes
// of zero in as many steps. It lies as the state does, and its address is the last argument.
#if defined(TS_SUM) && TS_SUM
#define TS_AND_SUM , const real* __restrict__ sum_of_source
constexpr bool has_sum = true;
#else
#define TS_AND_SUM
constexpr bool has_sum = false;
constexpr const real* sum_of_source = nullptr;
#endif

__device__ __forceinline__ const real* plane_of_sum(const real* sum, long long plane) {
    return has_sum ? sum + plane : nullptr;
}

__device__ __forceinline__ int clamp(int i, int low, int high) {
    return min(max(i, low), high - 1);
}
