// mma_formats.cuh: the formats and the sums that dense products on tensor cores have beside FP16
// with sums in FP32.
//
// Layout  That of mma_half.cuh, g = lane / 4 and t = lane % 4, for BF16 and sums in FP16, two
//         numbers in a register:
//           C (16 x 8) in FP16     c[h]       row g + 8 h, columns 2 t, + 1
//         A TF32 has a register of its own (PTX ISA, "Matrix fragments for mma.m16n8k8"):
//           A (16 x 8)             a[2 s + h] row g + 8 h, column t + 4 s
//           B (8 x 8)              b[s]       row t + 4 s of column g
// Limits  sm_80 and later; all 32 lanes of a warp call together.
// Test    tests/gpu/test_gpu_tcstencil.py

#pragma once
#include "async_copy.cuh"

// FP16, and sums in FP16: half as many registers.
__device__ __forceinline__ void mma_half_in_half(unsigned (&d)[2], const unsigned (&a)[4],
                                                 unsigned b0, unsigned b1, const unsigned (&c)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
        "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
        : "=r"(d[0]), "=r"(d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]));
}

__device__ __forceinline__ void mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1, const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ void mma_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1, const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
}

// d = a b + c for 16 x 8 times 8 x 8 in FP16: half of mma_half_16x8x16.
__device__ __forceinline__ void mma_half_16x8x8(float (&d)[4], const unsigned (&a)[2], unsigned b,
                                                const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// Four 8 x 8 matrices of 16 bits from shared memory, transposed: lanes 8 i to 8 i + 7 name the rows
// of number i, of 16 bytes each. As B of a product, b[i] holds rows 8 i + 2 t and the next one of
// column g.
__device__ __forceinline__ void load_columns(unsigned (&b)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Two floats rounded to the nearest BF16, ties to even.
__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
    unsigned packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// The nearest TF32, ties away from zero.
__device__ __forceinline__ unsigned to_tf32(float value) {
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
    return rounded;
}
