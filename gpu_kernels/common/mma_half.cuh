// mma_half.cuh: products of small FP16 matrices on tensor cores, summed in FP32.
//
// Layout  With g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix fragments for mma.m16n8k16"), a lane
//         holds, two numbers in a register (`low` and `high` half),
//           A (16 x 16)  a[2 s + h]  row g + 8 h, columns 8 s + 2 t, + 1
//           B (16 x 8)   b[s]        rows 8 s + 2 t, + 1 of column g
//           C (16 x 8)   c[2 h + v]  row g + 8 h, column 2 t + v, a float each
// Limits  sm_80 and later; all 32 lanes of a warp call together.
// Test    tests/gpu/test_gpu_sparse.py

#pragma once

// d = a b + c for 16 x 16 times 16 x 8. Apart, d and c may be different registers: results move on
// without a copy.
__device__ __forceinline__ void mma_half_16x8x16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                 unsigned b1, const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
}

// Two floats rounded to the nearest FP16, ties to even.
__device__ __forceinline__ unsigned pack_half(float low, float high) {
    unsigned packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// Transpose an 8 x 8 matrix of 16 bits: before and after, a lane holds columns 2 t and 2 t + 1 of
// row g.
__device__ __forceinline__ unsigned transpose_8x8(unsigned pair) {
    unsigned transposed;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
    return transposed;
}
