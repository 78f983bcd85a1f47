// palette_2d_rows.cuh: what one row of a tile gives to the rows of the next level, in a body of a
// few materials (see palette_2d.cu).
//
// Idea    Rows are consumed from the last to the first, and slot p of the next level is centred on
//         row p - 1 of this one, as in stream_2d_rows.cuh. A row that comes is the last neighbour
//         of the row below it: that one's sum of fluxes is finished and its point stepped, in the
//         slot whose row has just been consumed.
// Order   Mixed: q, then the faces to the row below, left, right, above; each the conductance times
//         a difference that is rounded once, so that what leaves a point enters the other.
//         Uniform: neighbours of one id are added, times its weight. Which of the two a point gets
//         depends on ids and on rows counted over the whole grid only.

#pragma once

struct TablesInShared {
    PairTable<Across, copies_across> across;  // axis y, and the rate of the row below
    PairTable<real, copies> along;            // axis x
    real uniform[n_ids][4];                   // weight along y, along x, centre, rate
    real sources[has_sources ? depth : 1][n_ids];
};

constexpr int across_unit = PairTable<Across, copies_across>::unit;
constexpr int along_unit = PairTable<real, copies>::unit;

struct MixedCarry {
    real below[columns];   // the row consumed before
    real fluxes[columns];  // into it, but that from above
    unsigned ids;          // of it: nibbles left, own, ..., own, right
};

__device__ __forceinline__ void consume_mixed(real (&patch)[rows][columns], MixedCarry& carry,
                                              int q, const real (&given)[columns], unsigned ids,
                                              const TablesInShared& tables, int level, int lane) {
    real own[columns], fluxes[columns];
#pragma unroll
    for (int c = 0; c < columns; ++c) own[c] = given[c];
    if (q < rows - 1) {
        const Pairs faces(ids, carry.ids);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const Across face = tables.across.at(faces.offset<across_unit>(c + 1), lane);
            const real difference = carry.below[c] - own[c];
            if (q < rows - 2) {
                const real sum = fma_real(-face.conductance, difference, carry.fluxes[c]);
                patch[q + 2][c] = fma_real(face.rate, sum, carry.below[c]);
            }
            if (has_sources) {
                const real source = at_offset(tables.sources[level],
                                              offset_of_id<sizeof(real)>(ids, c + 1));
                fluxes[c] = fma_real(face.conductance, difference, source);
            } else {
                fluxes[c] = mul_real(face.conductance, difference);
            }
        }
    }
    if (q >= -1 && q <= rows - 2) {
        // Neighbouring columns lie in the registers of the lanes beside.
        const real left = __shfl_up_sync(~0u, own[columns - 1], 1);
        const real right = __shfl_down_sync(~0u, own[0], 1);
#pragma unroll
        for (int c = 0; c <= columns; ++c) {
            const real difference = (c < columns ? own[c] : right) - (c > 0 ? own[c - 1] : left);
            const real conductance =
                tables.along.at(offset_of_pair<along_unit>(ids, c), lane);
            if (c > 0) fluxes[c - 1] = fma_real(conductance, difference, fluxes[c - 1]);
            if (c < columns) fluxes[c] = fma_real(-conductance, difference, fluxes[c]);
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        carry.below[c] = own[c];
        carry.fluxes[c] = fluxes[c];
    }
    carry.ids = ids;
}

// The numbers of the one material of a patch and all that it reads.
struct Uniform {
    real weight_y, weight_x, centre, source;

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
