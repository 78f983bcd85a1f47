// palette_2d_uniform.cuh: what one row of a tile gives to the rows of the next level where all that a
// warp reads is of one material (see palette_2d.cu, palette_2d_rows.cuh).
//
// Order   Neighbours are added, times the weight of the material. Whether a point gets this or what
//         palette_2d_rows.cuh does depends on ids and on rows counted over the whole grid only.

#pragma once

// The numbers of the one material of a patch and all that it reads.
struct Uniform {
    real weight_y, weight_x, centre, source;

    __device__ __forceinline__ Uniform(const TablesInShared& tables, int level, unsigned id)
        : weight_y(tables.uniform[id][0]),
          weight_x(tables.uniform[id][1]),
          centre(tables.uniform[id][2]),
          source(has_sources ? mul_real(tables.uniform[id][3], tables.sources[level][id])
                             : real(0)) {}

    __device__ __forceinline__ real centred(real value) const {
        return has_sources ? fma_real(centre, value, source) : mul_real(centre, value);
    }
};

struct UniformCarry {
    real below[columns + 2];  // the row consumed before, with the columns beside
    // isotropic: u(row below, column) + u(row below that, column - 1); else the sum of the row
    // below but what comes from above
    real sums[columns];
};

__device__ __forceinline__ void consume_uniform(real (&patch)[rows][columns], UniformCarry& carry,
                                                int q, const real (&given)[columns],
                                                const Uniform& one) {
    real row[columns + 2];
#pragma unroll
    for (int c = 0; c < columns; ++c) row[c + 1] = given[c];
    row[0] = row[columns + 1] = 0;
    if (q >= -1 && q <= rows - 2) {
        row[0] = __shfl_up_sync(~0u, given[columns - 1], 1);
        row[columns + 1] = __shfl_down_sync(~0u, given[0], 1);
    }
    if constexpr (isotropic) {
        // With a(i, j) = u(i, j + 1) + u(i + 1, j) the four neighbours are a(i, j) + a(i - 1, j - 1).
        real pair[columns + 1];  // a(q, column - 1)
        if (q < rows - 1) {
#pragma unroll
            for (int c = 0; c <= columns; ++c) pair[c] = row[c + 1] + carry.below[c];
        }
        if (q < rows - 2) {
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                patch[q + 2][c] = fma_real(one.weight_x, pair[c] + carry.sums[c],
                                           one.centred(carry.below[c + 1]));
            }
        }
        if (q < rows - 1) {
#pragma unroll
            for (int c = 0; c < columns; ++c) carry.sums[c] = pair[c + 1];
        }
    } else {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const real value = row[c + 1];
            if (q < rows - 2) patch[q + 2][c] = fma_real(one.weight_y, value, carry.sums[c]);
            if (q < rows - 1) {
                const real beside = fma_real(one.weight_x, row[c] + row[c + 2], one.centred(value));
                carry.sums[c] = fma_real(one.weight_y, carry.below[c + 1], beside);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < columns + 2; ++c) carry.below[c] = row[c];
}

// One level of a patch.
__device__ __forceinline__ void advance_uniform(real (&patch)[rows][columns], const real* above,
                                                real* below, const Look& look, unsigned id) {
    const Uniform uniform(look.tables, look.level, id);
    UniformCarry carry;
    advance(patch, above, below, look.lane, [&](int q, const real(&own)[columns]) {
        consume_uniform(patch, carry, q, own, uniform);
    });
}
