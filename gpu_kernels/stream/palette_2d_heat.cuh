// palette_2d_heat.cuh: what one row of a tile gives to the rows of the next level where all that a
// warp reads is of one material, and the state is heat content (see palette_2d.cu).
//
// Idea    As in palette_2d_uniform.cuh, with what flows by difference instead of the state
//         (palette_curves.cuh). A search for pieces by halves takes longer than all else, and is left out
//         where all heat contents of a patch lie on one piece.
// Order   What flows by difference: that of neighbours is added, less four times (along one axis
//         twice) the own, times a weight.

#pragma once

struct Uniform {
    real weight_y, weight_x, source;

    __device__ __forceinline__ Uniform(const TablesInShared& tables, int level, unsigned id)
        : weight_y(tables.uniform[id][0]),
          weight_x(tables.uniform[id][1]),
          source(has_sources ? mul_real(tables.uniform[id][3], tables.sources[level][id])
                             : real(0)) {}
};

// Whether all heat contents of a warp's patch lie on one line of a curve, and which.
template <class Curve>
__device__ __forceinline__ bool have_one_line(const real (&patch)[rows][columns],
                                              const Curve& curve, Line& line) {
    Extremes all(patch[0][0]);
#pragma unroll
    for (int p = 0; p < rows; ++p)
#pragma unroll
        for (int c = 0; c < columns; ++c) all.take(patch[p][c]);
    return all.on_one_line(curve, line);
}

struct UniformCarry {
    real below[columns + 2];  // what flows, of the row consumed before, with the columns beside
    real heat[columns];       // of that row, and what heats it
    // isotropic: as in palette_2d_uniform.cuh; else what the row below and columns beside give to it
    real sums[columns];
};

template <class Curve>
__device__ __forceinline__ void consume_uniform(real (&patch)[rows][columns], UniformCarry& carry,
                                                int q, const real (&given)[columns],
                                                const Uniform& one, const Curve& curve) {
    real row[columns + 2];
#pragma unroll
    for (int c = 0; c < columns; ++c) row[c + 1] = curve.at(given[c]);
    row[0] = row[columns + 1] = 0;
    if (q >= -1 && q <= rows - 2) {
        row[0] = __shfl_up_sync(~0u, row[columns], 1);
        row[columns + 1] = __shfl_down_sync(~0u, row[1], 1);
    }
    if constexpr (isotropic) {
        real pair[columns + 1];  // a(q, column - 1)
        if (q < rows - 1) {
#pragma unroll
            for (int c = 0; c <= columns; ++c) pair[c] = row[c + 1] + carry.below[c];
        }
        if (q < rows - 2) {
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                const real flows =
                    fma_real(real(-4), carry.below[c + 1], pair[c]) + carry.sums[c];
                patch[q + 2][c] = fma_real(one.weight_x, flows, carry.heat[c]);
            }
        }
        if (q < rows - 1) {
#pragma unroll
            for (int c = 0; c < columns; ++c) carry.sums[c] = pair[c + 1];
        }
    } else {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            if (q < rows - 2) {
                patch[q + 2][c] = fma_real(one.weight_y, carry.sums[c] + row[c + 1], carry.heat[c]);
            }
            if (q < rows - 1) carry.sums[c] = fma_real(real(-2), row[c + 1], carry.below[c + 1]);
        }
    }
#pragma unroll
    for (int c = 0; c < columns + 2; ++c) carry.below[c] = row[c];
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        carry.heat[c] = has_sources ? given[c] + one.source : given[c];
        if constexpr (!isotropic) {
            const real beside = fma_real(real(-2), row[c + 1], row[c] + row[c + 2]);
            carry.heat[c] = fma_real(one.weight_x, beside, carry.heat[c]);
        }
    }
}

// One level of a patch.
__device__ __forceinline__ void advance_uniform(real (&patch)[rows][columns], const real* above,
                                                real* below, const Look& look, unsigned id) {
    const Uniform uniform(look.tables, look.level, id);
    const auto& curve = look.tables.of_id(id);
    UniformCarry carry;
    if constexpr (searched) {
        // The rows above come late: for these, the search is made in any case.
        Line line;
        if (have_one_line(patch, curve, line)) {
            advance(patch, above, below, look.lane, [&](int q, const real(&own)[columns]) {
                if (q >= 0) consume_uniform(patch, carry, q, own, uniform, line);
                else consume_uniform(patch, carry, q, own, uniform, curve);
            });
            return;
        }
    }
    advance(patch, above, below, look.lane, [&](int q, const real(&own)[columns]) {
        consume_uniform(patch, carry, q, own, uniform, curve);
    });
}
