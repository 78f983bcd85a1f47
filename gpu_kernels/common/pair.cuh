// pair.cuh: a number kept as the sum of two floats, for GPUs that compute FP64 slowly.
//
// Idea    What a float leaves of a number is a float as well: hi + lo has 48 bits. Sums and products
//         of hi are split into what a float has and what it leaves, exactly; what is left is added
//         up in lo. Every operation is rounded to nearest and none is contracted, so the bits are
//         the same wherever kernels make the same operations in the same order.
// Forms   settled: hi is hi + lo rounded, so lo has at most half a place of it. Between, lo may
//         have some places of hi: operations take such pairs, and leave them. whole: settled, and
//         hi + lo is a double, so that nothing is lost on the way to the host and back.
// Cost    In FP32 instructions: sum 8, product 4, product added to a sum 10, settled 3, whole 8.
// Errors  Of each about 2^-47 of the largest term. What is below 2^-126 of lo is lost as of floats.
// Test    tests/gpu/test_pairs.py

#pragma once

struct alignas(8) Pair {
    float hi, lo;

    Pair() = default;
    __device__ __forceinline__ constexpr Pair(float high, float low = 0.0f) : hi(high), lo(low) {}
};

// a + b as a float and exactly what that leaves.
__device__ __forceinline__ Pair two_sum(float a, float b) {
    const float sum = __fadd_rn(a, b);
    const float part = __fadd_rn(sum, -a);
    return {sum, __fadd_rn(__fadd_rn(a, -__fadd_rn(sum, -part)), __fadd_rn(b, -part))};
}

// The same where |a| >= |b|, or a is 0.
__device__ __forceinline__ Pair quick_two_sum(float a, float b) {
    const float sum = __fadd_rn(a, b);
    return {sum, __fadd_rn(b, -__fadd_rn(sum, -a))};
}

__device__ __forceinline__ Pair operator+(Pair a, Pair b) {
    const Pair sum = two_sum(a.hi, b.hi);
    return {sum.hi, __fadd_rn(__fadd_rn(a.lo, b.lo), sum.lo)};
}
__device__ __forceinline__ Pair operator-(Pair a, Pair b) { return a + Pair(-b.hi, -b.lo); }
__device__ __forceinline__ bool operator==(Pair a, Pair b) { return a.hi == b.hi && a.lo == b.lo; }
__device__ __forceinline__ bool operator!=(Pair a, Pair b) { return !(a == b); }

__device__ __forceinline__ Pair mul_real(Pair a, Pair b) {
    const float product = __fmul_rn(a.hi, b.hi);
    const float left = __fmaf_rn(a.hi, b.hi, -product);
    return {product, __fmaf_rn(a.lo, b.hi, __fmaf_rn(a.hi, b.lo, left))};
}

// a * b + c. What the product leaves is added where two_sum would take the product off `part`: that
// is exact, so both are one multiply-add.
__device__ __forceinline__ Pair fma_real(Pair a, Pair b, Pair c) {
    const float sum = __fadd_rn(c.hi, __fmul_rn(a.hi, b.hi));
    const float part = __fadd_rn(sum, -c.hi);
    const float left_of_c = __fadd_rn(c.hi, -__fadd_rn(sum, -part));
    const float left = __fadd_rn(left_of_c, __fmaf_rn(a.hi, b.hi, -part));
    return {sum, __fadd_rn(__fmaf_rn(a.lo, b.hi, __fmaf_rn(a.hi, b.lo, c.lo)), left)};
}

__device__ __forceinline__ Pair settled(Pair value) { return quick_two_sum(value.hi, value.lo); }

// To whole pairs: lo becomes a multiple of about 2^-50 of hi, then hi + lo is rounded once more, as
// lo may now be half a place of hi, which a double's way to a pair would give to the other side.
__device__ __forceinline__ Pair whole(Pair value) {
    constexpr float step = 0x1p-26f;
    const Pair sum = quick_two_sum(value.hi, value.lo);
    const float moved = __fmaf_rn(sum.hi, step, sum.lo);
    return quick_two_sum(sum.hi, __fmaf_rn(sum.hi, -step, moved));
}

__device__ __forceinline__ Pair __shfl_sync(unsigned lanes, Pair value, int from) {
    return {__shfl_sync(lanes, value.hi, from), __shfl_sync(lanes, value.lo, from)};
}
__device__ __forceinline__ Pair __shfl_up_sync(unsigned lanes, Pair value, unsigned by) {
    return {__shfl_up_sync(lanes, value.hi, by), __shfl_up_sync(lanes, value.lo, by)};
}
__device__ __forceinline__ Pair __shfl_down_sync(unsigned lanes, Pair value, unsigned by) {
    return {__shfl_down_sync(lanes, value.hi, by), __shfl_down_sync(lanes, value.lo, by)};
}
