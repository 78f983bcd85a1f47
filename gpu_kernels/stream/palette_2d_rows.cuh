// palette_2d_rows.cuh: what one row of a tile gives to the rows of the next level, in a body of a
// few materials (see palette_2d.cu).
//
// Idea    Rows are consumed from the last to the first, and slot p of the next level is centred on
//         row p - 1 of this one, as in stream_2d_rows.cuh. A row that comes is the last neighbour
//         of the row below it: that one's sum of fluxes is finished and its point stepped, in the
//         slot whose row has just been consumed.
//         Where all is of one id: palette_2d_uniform.cuh, palette_2d_heat.cuh.
// Order   q, then the faces to the row below, left, right, above; each the conductance times a
//         difference that is rounded once, so that what leaves a point enters the other.

#pragma once

struct TablesInShared : Flowing {
#if TS_IDS <= 16
    PairTable<Across, copies_across> across;  // axis y, and the rate of the row below
    PairTable<real, copies> along;            // axis x

    __device__ __forceinline__ void fill_faces(const Palette<2>* palette) {
        fill_across<2>(across, palette, 0);
        fill_along<2>(along, palette, 1);
    }
#else
    HalfCells<copies> halves;

    __device__ __forceinline__ void fill_faces(const Palette<2>* palette) { halves.fill(palette); }
#endif
    real uniform[n_ids][4];                   // weight along y, along x, centre, rate
    real sources[has_sources ? depth : 1][n_ids];
};

// What a lane looks up at a level.
struct Look {
    const TablesInShared& tables;
    const Palette<2>* palette;
    int level, lane;

#if TS_IDS <= 16
    __device__ __forceinline__ real source(const Ids& ids, int k) const {
        return at_offset(tables.sources[level], offset_of_id<sizeof(real)>(ids.of[0], k));
    }
    __device__ __forceinline__ real flowing(const Ids& ids, int k, real state) const {
        return tables.at(ids.of[0], k, state);
    }
    // Between the ids k and k + 1 of a row.
    __device__ __forceinline__ real along(const Ids& ids, int k) const {
        constexpr int unit = PairTable<real, copies>::unit;
        return tables.along.at(offset_of_pair<unit>(ids.of[0], k), lane);
    }
#else
    __device__ __forceinline__ real source(const Ids& ids, int k) const {
        return tables.sources[level][ids.id(k)];
    }
    __device__ __forceinline__ real flowing(const Ids& ids, int k, real state) const {
        return tables.at_id(ids.id(k), state);
    }
    __device__ __forceinline__ real along(const Ids& ids, int k) const {
        return tables.halves.between<1>(palette, ids.id(k), ids.id(k + 1), lane);
    }
#endif
};

// The faces of a row to the row below.
#if TS_IDS <= 16
struct FacesAcross {
    Pairs pairs;

    __device__ __forceinline__ FacesAcross(const Ids& row, const Ids& below)
        : pairs(row.of[0], below.of[0]) {}
    __device__ __forceinline__ Across at(const Look& look, int k) const {
        constexpr int unit = PairTable<Across, copies_across>::unit;
        return look.tables.across.at(pairs.offset<unit>(k), look.lane);
    }
    __device__ __forceinline__ TwoIds ids(int k) const { return ids_of(pairs.offset<1>(k)); }
};
#else
struct FacesAcross {
    Ids row, below;

    __device__ __forceinline__ FacesAcross(const Ids& row_, const Ids& below_)
        : row(row_), below(below_) {}
    __device__ __forceinline__ Across at(const Look& look, int k) const {
        const HalfCells<copies>& halves = look.tables.halves;
        return {halves.between<0>(look.palette, row.id(k), below.id(k), look.lane),
                halves.at(below.id(k), look.lane).rate};
    }
    __device__ __forceinline__ TwoIds ids(int k) const { return {row.id(k), below.id(k)}; }
};
#endif

struct MixedCarry {
    Point below[columns];  // the row consumed before
    real fluxes[columns];  // into it, but that from above
    Ids ids;               // of it
};

__device__ __forceinline__ void consume_mixed(real (&patch)[rows][columns], MixedCarry& carry,
                                              int q, const real (&given)[columns],
                                              const Ids& ids, const Look& look) {
    Point own[columns];
    real fluxes[columns];
#pragma unroll
    for (int c = 0; c < columns; ++c) own[c] = {given[c], look.flowing(ids, c + 1, given[c])};
    if (q < rows - 1) {
        const FacesAcross faces(ids, carry.ids);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const Across face = faces.at(look, c + 1);
            const Flow flow = flow_through<2, 0>(look.palette, face.conductance, own[c], carry.below[c],
                                              [&] { return faces.ids(c + 1); });
            if (q < rows - 2) {
                const real sum = fma_real(-flow.conductance, flow.difference, carry.fluxes[c]);
                patch[q + 2][c] = fma_real(face.rate, sum, carry.below[c].state);
            }
            fluxes[c] = has_sources
                            ? fma_real(flow.conductance, flow.difference, look.source(ids, c + 1))
                            : mul_real(flow.conductance, flow.difference);
        }
    }
    if (q >= -1 && q <= rows - 2) {
        real conductance[columns + 1];
#pragma unroll
        for (int c = 0; c <= columns; ++c) conductance[c] = look.along(ids, c);
        // Neighbouring columns lie in the registers of the lanes beside.
        Point left, right;
        left.flowing = __shfl_up_sync(~0u, own[columns - 1].flowing, 1);
        right.flowing = __shfl_down_sync(~0u, own[0].flowing, 1);
#if TS_PIECES > 0
        if (varies && __any_sync(~0u, is_negative(conductance[0]) || is_negative(conductance[columns]))) {
            left.state = __shfl_up_sync(~0u, own[columns - 1].state, 1);
            right.state = __shfl_down_sync(~0u, own[0].state, 1);
        }
#endif
#pragma unroll
        for (int c = 0; c <= columns; ++c) {
            const Flow flow = flow_through<2, 1>(look.palette, conductance[c], c > 0 ? own[c - 1] : left,
                                              c < columns ? own[c] : right,
                                              [&] { return TwoIds{ids.id(c), ids.id(c + 1)}; });
            if (c > 0) fluxes[c - 1] = fma_real(flow.conductance, flow.difference, fluxes[c - 1]);
            if (c < columns) fluxes[c] = fma_real(-flow.conductance, flow.difference, fluxes[c]);
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        carry.below[c] = own[c];
        carry.fluxes[c] = fluxes[c];
    }
    carry.ids = ids;
}
