// sparse_formats.cuh: what sparse.cu multiplies in each format, and how a lane holds it.
//
//   TS_FORMAT      0: FP16   1: BF16   2: TF32   3: FP64
//   in memory      FP16      float     float     double
//   sums           float     float     float     double
//   depth          32        32        32        8        columns of A that one `multiply` takes
//   instructions   1         1         2         1        of them; without sparsity 2, 2, 4, 1
//
// Layout  A *slot* is one of the `slots` rows of B that a lane holds (plan.py: slot_columns). FP16
//         and BF16 lie in pairs in a register, the others by themselves.
// Limits  There are no sparse tensor cores for FP64: TS_SPARSE is 0 for it.

#pragma once
#include "common.cuh"
#include "mma.cuh"
#include "mma_formats.cuh"
#include "mma_half.cuh"
#include "mma_sparse.cuh"

constexpr int f16 = 0, bf16 = 1, tf32 = 2, f64 = 3, format = TS_FORMAT;
constexpr bool sparse = TS_SPARSE, pairs = format == f16 || format == bf16;
constexpr int depth = format == f64 ? 8 : 32;
constexpr int slots = depth / 4;
constexpr int numbers_of_a = 16 * depth / 32 / (sparse ? 2 : 1);  // of a lane

template <bool is_double>
struct NumbersOf {
    using Word = unsigned;
    using Sum = float;
};
template <>
struct NumbersOf<true> {
    using Word = double;
    using Sum = double;
};
using Word = NumbersOf<format == f64>::Word;
using Sum = NumbersOf<format == f64>::Sum;
constexpr int a_words = pairs ? numbers_of_a / 2 : numbers_of_a,
              b_words = pairs ? slots / 2 : slots;
constexpr int words_at_once = 16 / sizeof(Word);

static_assert(!sparse || format != f64, "sparse tensor cores do not multiply FP64");
static_assert(sizeof(real) == (format == f16   ? 2
                               : format == f64 ? 8
                                               : 4),
              "the format is not of what is in memory");

// Four words of some, as an operand.
template <int n>
__device__ __forceinline__ void take_four(unsigned (&four)[4], const unsigned (&words)[n],
                                          int first) {
#pragma unroll
    for (int k = 0; k < 4; k++) four[k] = words[first + k];
}

// d = a b + c, dense and in pairs.
__device__ __forceinline__ void multiply_pairs(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                               unsigned b1, const float (&c)[4]) {
    if constexpr (format == bf16)
        mma_bf16(d, a, b0, b1, c);
    else
        mma_half_16x8x16(d, a, b0, b1, c);
}

// d = a b + c for one product; `second` if its metadata are the second in their register (pairs).
template <bool second, class A, class B, class C>
__device__ __forceinline__ void multiply(C& d, const A& a, const B& b, const C& c,
                                         unsigned metadata) {
    if constexpr (format == f64) {
#pragma unroll
        for (int k = 0; k < 4; k++) d[k] = c[k];
        mma_16x8x8(d, a, b);
    } else if constexpr (format == tf32) {
        constexpr int instructions = sparse ? 2 : 4;
        float sums[4] = {c[0], c[1], c[2], c[3]};
#pragma unroll
        for (int i = 0; i < instructions; i++) {
            unsigned four[4], rows[4];
            take_four(four, a, 4 * i);
            if constexpr (sparse) {
                take_four(rows, b, 4 * i);
                if (i == 0)
                    mma_sparse_tf32<0>(sums, four, rows, sums, metadata);
                else
                    mma_sparse_tf32<1>(sums, four, rows, sums, metadata);
            } else {
                mma_tf32(sums, four, b[2 * i], b[2 * i + 1], sums);
            }
        }
#pragma unroll
        for (int k = 0; k < 4; k++) d[k] = sums[k];
    } else if constexpr (sparse && format == f16) {
        mma_sparse_f16<second>(d, a, b, c, metadata);
    } else if constexpr (sparse) {
        mma_sparse_bf16<second>(d, a, b, c, metadata);
    } else {
        unsigned four[4];
        float half[4];
        take_four(four, a, 0);
        multiply_pairs(half, four, b[0], b[1], c);
        take_four(four, a, 4);
        multiply_pairs(d, four, b[2], b[3], half);
    }
}

// The words of B that `slots` numbers of memory are; those of FP16 are loaded as words (sparse.cu).
template <class Numbers>
__device__ __forceinline__ void to_words(Word (&b)[b_words], const Numbers& numbers) {
#pragma unroll
    for (int w = 0; w < b_words; w++) {
        if constexpr (format == bf16)
            b[w] = pack_bf16(numbers[2 * w], numbers[2 * w + 1]);
        else if constexpr (format == tf32)
            b[w] = to_tf32(numbers[w]);
        else
            b[w] = numbers[w];
    }
}
