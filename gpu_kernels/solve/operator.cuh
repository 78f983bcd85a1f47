// operator.cuh: the operator of a level, A u = d u - sum of K (u_j - u), along columns of points.
//
// Arrays are contiguous, (n0, n1, n2). Conductances k0, k1, k2 lead from a point to the next one
// along each axis, those of the last point round to the first one; where the axis is no ring they
// are 0.

#pragma once
#include "common.cuh"

// Points per axis, slowest first, and how many planes of the first one a block goes through.
struct Extent {
    int n[3];
    int planes;
};

// The upper half of a float: as large a range, three digits. A preconditioner whose conductances
// are off by 0.4 % is off by 0.4 %, since its energy is a sum of them times squares.
struct Packed {
    unsigned short bits;
};

__device__ __forceinline__ float value_of(Packed k) { return __int_as_float(int(k.bits) << 16); }
__device__ __forceinline__ double value_of(double k) { return k; }

// To the nearest, ties to even.
__device__ __forceinline__ Packed packed(float value) {
    const unsigned bits = unsigned(__float_as_int(value));
    return {static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

__device__ __forceinline__ int before(int i, int n) { return (i > 0 ? i : n) - 1; }
__device__ __forceinline__ int after(int i, int n) { return i + 1 < n ? i + 1 : 0; }

// Goes along the first axis with what it has of the column in registers; threads lie side by side
// along the other two, so that what a plane needs of itself comes through the first cache.
//
// read(plane, p)           u at element p of the plane that begins with element `plane`
// each(plane, p, u, flow)  what to do there; flow is -A u
// A plane has less than 2^31 points.
template <class K, class Read, class Each>
__device__ __forceinline__ void walk(const Extent& extent, const K* __restrict__ k0,
    const K* __restrict__ k1, const K* __restrict__ k2, const K* __restrict__ d, Read read,
    Each each) {
    const int n0 = extent.n[0], n1 = extent.n[1], n2 = extent.n[2];
    const long long plane = (long long)(n1)*n2;
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    const int first = blockIdx.z * extent.planes, last = min(first + extent.planes, n0);
    if (k >= n2) return;
    for (int j = blockIdx.y * blockDim.y + threadIdx.y; j < n1; j += gridDim.y * blockDim.y) {
        // Places in a plane, in 32 bits: the planes are the same for all threads of a block.
        const unsigned own = unsigned(j) * n2 + k, north = unsigned(before(j, n1)) * n2 + k;
        const unsigned south = unsigned(after(j, n1)) * n2 + k;
        const unsigned west = own - k + before(k, n2), east = own - k + after(k, n2);

        const long long start = before(first, n0) * plane;
        auto low = read(start, own), here = read(first * plane, own);
        auto k_low = value_of((k0 + start)[own]);
#pragma unroll 2
        for (int i = first; i < last; i++) {
            const long long from = i * plane;
            const auto high = read(after(i, n0) * plane, own);
            const auto k_high = value_of((k0 + from)[own]);
            auto flow = mul_real(k_low, low - here);
            flow = fma_real(k_high, high - here, flow);
            flow = fma_real(value_of((k1 + from)[north]), read(from, north) - here, flow);
            flow = fma_real(value_of((k1 + from)[own]), read(from, south) - here, flow);
            flow = fma_real(value_of((k2 + from)[west]), read(from, west) - here, flow);
            flow = fma_real(value_of((k2 + from)[own]), read(from, east) - here, flow);
            each(from, own, here, fma_real(-value_of((d + from)[own]), here, flow));
            low = here, here = high, k_low = k_high;
        }
    }
}
