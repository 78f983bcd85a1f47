// mma_sparse.cuh: products with a matrix of which one half is zeros and is left out, summed in
// FP32.
//
// Layout  With g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix fragments for sparse mma.m16n8k16
//         with .tf32" and "for sparse mma.m16n8k32 with .f16 and .bf16"), a lane holds
//           A (16 x 32, FP16, BF16)  a[2 s + h]  row g + 8 h, columns 8 s + 2 t, + 1 of 16 kept
//           A (16 x 16, TF32)        a[2 s + h]  row g + 8 h, column 4 s + t of 8 kept
//           B (32 x 8, FP16, BF16)   b[s]        rows 8 s + 2 t, + 1 of column g
//           B (16 x 8, TF32)         b[s]        row 4 s + t of column g
//           C (16 x 8)               c[2 h + v]  row g + 8 h, column 2 t + v, a float each
//         Two products share a register of metadata: `selector` 0 takes those of lanes t = 0 and 1,
//         1 the others.
// Limits  sm_80 and later; all 32 lanes of a warp call together. CUDA 12.5, for ordered metadata:
//         without them Hopper may be slower (PTX ISA, "mma.sp").
// Test    tests/gpu/test_gpu_sparse.py

#pragma once

// d = a b + c, FP16. Apart, d and c may be different registers: results move on without a copy.
template <int selector>
__device__ __forceinline__ void mma_sparse_f16(float (&d)[4], const unsigned (&a)[4],
                                               const unsigned (&b)[4], const float (&c)[4],
                                               unsigned metadata) {
    asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, %17;"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]),
          "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]), "r"(metadata), "n"(selector));
}

template <int selector>
__device__ __forceinline__ void mma_sparse_bf16(float (&d)[4], const unsigned (&a)[4],
                                                const unsigned (&b)[4], const float (&c)[4],
                                                unsigned metadata) {
    asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, %17;"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]),
          "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]), "r"(metadata), "n"(selector));
}

template <int selector>
__device__ __forceinline__ void mma_sparse_tf32(float (&d)[4], const unsigned (&a)[4],
                                                const unsigned (&b)[4], const float (&c)[4],
                                                unsigned metadata) {
    asm("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, %16, %17;"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]),
          "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]), "r"(metadata), "n"(selector));
}
