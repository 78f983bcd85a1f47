// palette_3d_rows.cuh: what one plane of one level gives to its points and those of the plane
// before, in a body of a few materials (part of palette_3d.cu).
//
// Idea    A thread keeps of every level the plane before (`was`) and the fluxes into it but those
//         from the plane that comes; these finish it. If all that a warp read of both planes was of
//         one id, the sum of five neighbours is kept instead.
// Order   Mixed: q, then the faces to the plane before, right or left (columns 0 and 1), rows before
//         and behind, and to the plane behind. Uniform: neighbours are added, times the weight of
//         their axis. Which of the two depends on ids and places in the whole grid only.

#pragma once

struct TablesInShared {
    PairTable<Across, copies_across> across;  // axis z, and the rate of the plane before
    PairTable<real, copies> along_y, along_x;
    // weight along z, y, x, centre, rate, conductance along z and its inverse
    real uniform[n_ids][8];
    real sources[has_sources ? steps : 1][n_ids];
};

constexpr int across_unit = PairTable<Across, copies_across>::unit;
constexpr int along_unit = PairTable<real, copies>::unit;

// What a turn of a level is told: the words of a thread, of this plane and of the one before.
struct Turn {
    const TablesInShared& tables;
    const uint4& words;
    const uint4& words_before;
    const real* sources;        // of the level
    unsigned id, id_before;     // of all that the warp reads: of both planes, of the two before
};

__device__ __forceinline__ real source_of(const Turn& turn, unsigned word, int k) {
    return at_offset(turn.sources, offset_of_id<sizeof(real)>(word, k));
}

// Row i of a plane that comes, and all rows after it.
template <int i, class Rows>
__device__ __forceinline__ void mixed_rows(const Rows& source, const Place& place, const Turn& turn,
                                           const Pairs (&right_of)[2], const Pairs (&behind)[2],
                                           real (&row_before)[columns], Points& was,
                                           Points& fluxes, Points& finished) {
    real own[columns];
    source.template read<i>(place, own);
    if constexpr (i >= 0 && i < rows) {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const Across face = turn.tables.across.at(
                behind[c].template offset<across_unit>(i + 1), place.lane);
            const real before = source.before(place, was, i, c);
            const real difference = own[c] - before;
            const real sum = fma_real(face.conductance, difference, fluxes[i][c]);
            finished[i][c] = fma_real(face.rate, sum, before);
            if (has_sources) {
                const unsigned word = c == 0 ? turn.words.y : turn.words.z;
                fluxes[i][c] =
                    fma_real(-face.conductance, difference, source_of(turn, word, i + 1));
            } else {
                fluxes[i][c] = -mul_real(face.conductance, difference);
            }
            source.keep(was, i, c, own[c]);
        }
        // Each face once: a lane's last one is told to the lane beside, which has its point.
        const real next = __shfl_down_sync(whole_warp, own[0], 1);
        const auto along = [&](int c) {
            return turn.tables.along_x.at(right_of[c].template offset<along_unit>(i + 1),
                                          place.lane);
        };
        const real inner = along(0), difference = own[1] - own[0];
        const real out = mul_real(along(1), next - own[1]);
        const real in = __shfl_up_sync(whole_warp, out, 1);
        fluxes[i][0] = fma_real(inner, difference, fluxes[i][0]) - in;
        fluxes[i][1] = fma_real(-inner, difference, fluxes[i][1]) + out;
    }
    if constexpr (i >= 0) {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const unsigned word = c == 0 ? turn.words.y : turn.words.z;
            const real conductance =
                turn.tables.along_y.at(offset_of_pair<along_unit>(word, i), place.lane);
            const real difference = own[c] - row_before[c];
            if constexpr (i < rows) fluxes[i][c] = fma_real(-conductance, difference, fluxes[i][c]);
            if constexpr (i > 0) {
                fluxes[i - 1][c] = fma_real(conductance, difference, fluxes[i - 1][c]);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) row_before[c] = own[c];
    if constexpr (i < rows) {
        mixed_rows<i + 1>(source, place, turn, right_of, behind, row_before, was, fluxes, finished);
    }
}

// The numbers of the one id of two planes.
struct Uniform {
    real weight_z, weight_y, weight_x, centre, source;

    // Of the neighbours in a plane and in the plane before, what is kept.
    __device__ __forceinline__ real sum(real along_x, real along_y, real before) const {
        if (isotropic) return (along_x + along_y) + before;
        return fma_real(weight_x, along_x,
                        fma_real(weight_y, along_y, mul_real(weight_z, before)));
    }

    __device__ __forceinline__ real finished(real sum, real behind, real own) const {
        const real centred =
            has_sources ? fma_real(centre, own, source) : mul_real(centre, own);
        if (isotropic) return fma_real(weight_z, sum + behind, centred);
        return fma_real(weight_z, behind, sum + centred);
    }
};

template <int i, class Rows>
__device__ __forceinline__ void uniform_rows(const Rows& source, const Place& place,
                                             const Uniform& one, real (&two_before)[columns],
                                             real (&row_before)[columns], Points& was, Points& sums,
                                             Points& finished) {
    real own[columns];
    source.template read<i>(place, own);
    if constexpr (i >= 1) {
        constexpr int k = i - 1;
        const real right = __shfl_down_sync(whole_warp, row_before[0], 1);
        const real left = __shfl_up_sync(whole_warp, row_before[1], 1);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const real before = source.before(place, was, k, c);
            finished[k][c] = one.finished(sums[k][c], row_before[c], before);
            const real along_x = (c == 0 ? left : row_before[0]) + (c == 0 ? row_before[1] : right);
            sums[k][c] = one.sum(along_x, two_before[c] + own[c], before);
            source.keep(was, k, c, row_before[c]);
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        two_before[c] = row_before[c];
        row_before[c] = own[c];
    }
    if constexpr (i < rows) {
        uniform_rows<i + 1>(source, place, one, two_before, row_before, was, sums, finished);
    }
}

// Fluxes into the points of the plane before are those of their five neighbours.
template <class Rows>
__device__ __forceinline__ void make_sums(const Rows& source, const Place& place, const Turn& turn,
                                          const Points& was, Points& kept) {
    const real(&one)[8] = turn.tables.uniform[turn.id];
    const real flux_of_source = has_sources ? turn.sources[turn.id] : real(0);
    const real factor = isotropic ? one[6] : one[4];
    const real own = isotropic ? real(5) : real(1) - one[3] - one[0];
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            kept[i][c] = fma_real(factor, kept[i][c] - flux_of_source,
                                  mul_real(own, source.before(place, was, i, c)));
        }
}

// And back.
template <class Rows>
__device__ __forceinline__ void make_fluxes(const Rows& source, const Place& place,
                                            const Turn& turn, const Points& was, Points& kept) {
    const real(&one)[8] = turn.tables.uniform[turn.id_before];
    const real flux_of_source = has_sources ? turn.sources[turn.id_before] : real(0);
    const real factor = isotropic ? one[5] : one[7];
    const real own = isotropic ? real(5) : real(1) - one[3] - one[0];
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const real before = source.before(place, was, i, c);
            kept[i][c] =
                fma_real(factor, fma_real(-own, before, kept[i][c]), flux_of_source);
        }
}
