// palette_3d_faces.cuh: the ids of a thread's points as words, and what the faces between them
// conduct (part of palette_3d.cu).
//
// Idea    Up to 16 ids are nibbles, and a face is looked up by the pair of its ids. More are bytes:
//         half cells conduct in series, so a face needs one number of each id and a reciprocal, which
//         costs four instructions where a table of pairs would not fit into shared memory. Faces that
//         do not follow from half cells (contacts) are read from memory.
// Layout  Words of a thread and plane: own columns, then the one to the right; in each the rows
//         -1 .. rows, from the lowest bits on (palette_words.cu).

#pragma once

constexpr int words_of_column = in_bytes ? 2 : 1;
constexpr int pieces_of_words = ((columns + 1) * words_of_column + 3) / 4;  // of 16 bytes
static_assert((rows + 2) * bits <= 32 * words_of_column, "see Limits");

// The state is the heat content, conductances are times dt, and `was` is what flows.
constexpr bool begins_with_heat = has_curves && (!varies || one_material) && !has_held;

using PlaneOfWords = uint4[pieces_of_words][32 * warps];

struct WordsOfPlane {
    unsigned of[4 * pieces_of_words];

    __device__ __forceinline__ explicit WordsOfPlane(const PlaneOfWords& plane) {
#pragma unroll
        for (int n = 0; n < pieces_of_words; ++n) {
            const uint4 piece = plane[n][threadIdx.x];
            of[4 * n] = piece.x;
            of[4 * n + 1] = piece.y;
            of[4 * n + 2] = piece.z;
            of[4 * n + 3] = piece.w;
        }
    }
    // Of row i of a column.
    template <int i>
    __device__ __forceinline__ unsigned id(int c) const {
        constexpr int at = (i + 1) * bits;
        return of[words_of_column * c + at / 32] >> (at % 32) & ((1u << bits) - 1);
    }
};

struct TablesInShared : Flowing {
#if TS_IDS <= 16
    PairTable<Across, copies_across> across;  // axis z, and the rate of the plane before
    PairTable<real, copies> along_y, along_x;
#else
    HalfCell half[n_ids];
    real half_y[isotropic ? 1 : n_ids], half_x[isotropic ? 1 : n_ids];
#endif
    // weight along z, y, x, centre, rate, conductance along z and its inverse
    real uniform[n_ids][8];
    real sources[has_sources ? steps : 1][n_ids];
};

// A turn of a level: the words of this plane and of the one before, and what is uniform in them.
struct Turn {
    const TablesInShared& tables;
    const Palette<3>* palette;
    const PlaneOfWords& words;
    const PlaneOfWords& words_before;
    const real* sources;        // of the level
    unsigned id, id_before;     // of all that the warp reads: of both planes, of the two before
};

// What conductances are multiplied by in the tables: all rates are dt where fluxes begin with the
// heat content.
__device__ __forceinline__ real unit_of(const Palette<3>* palette) {
    return begins_with_heat ? palette->rate[0] : real(1);
}

#if TS_IDS <= 16
// The ids of two planes in nibbles, and the pairs of their faces.
struct Faces {
    WordsOfPlane now, before;

    static constexpr int across_unit = PairTable<Across, copies_across>::unit;
    static constexpr int along_unit = PairTable<real, copies>::unit;

    __device__ __forceinline__ explicit Faces(const Turn& turn)
        : now(turn.words), before(turn.words_before) {}
    template <int i>
    __device__ __forceinline__ Across across(const Turn& turn, int lane, int c) const {
        const Pairs pairs(now.of[c], before.of[c]);
        return turn.tables.across.at(pairs.template offset<across_unit>(i + 1), lane);
    }
    template <int i>
    __device__ __forceinline__ real along_x(const Turn& turn, int lane, int c) const {
        const Pairs pairs(now.of[c], now.of[c + 1]);
        return turn.tables.along_x.at(pairs.template offset<along_unit>(i + 1), lane);
    }
    // Between the rows i - 1 and i.
    template <int i>
    __device__ __forceinline__ real along_y(const Turn& turn, int lane, int c) const {
        return turn.tables.along_y.at(offset_of_pair<along_unit>(now.of[c], i), lane);
    }
    template <int i>
    __device__ __forceinline__ real flowing(const Turn& turn, const WordsOfPlane& words, int c,
                                            real state) const {
        return turn.tables.at(words.of[c], i + 1, state);
    }
    template <int i>
    __device__ __forceinline__ real source(const Turn& turn, int c) const {
        return at_offset(turn.sources, offset_of_id<sizeof(real)>(now.of[c], i + 1));
    }
};

__device__ __forceinline__ void fill_faces(TablesInShared& tables, const Palette<3>* palette) {
    const real unit = unit_of(palette);
    tables.across.fill([&](int low, int high) {
        return Across{unit * palette->conductance[0][low][high], palette->rate[high]};
    });
    fill_along<3>(tables.along_y, palette, 1, unit);
    fill_along<3>(tables.along_x, palette, 2, unit);
}
#else
// The ids of two planes in bytes.
struct Faces {
    WordsOfPlane now, before;

    __device__ __forceinline__ explicit Faces(const Turn& turn)
        : now(turn.words), before(turn.words_before) {}
    template <int axis>
    static __device__ __forceinline__ real between(const Turn& turn, unsigned low, unsigned high) {
        if (!in_series) return unit_of(turn.palette) * __ldg(&turn.palette->conductance[axis][low][high]);
        if (isotropic || axis == 0) {
            return inverse(turn.tables.half[low].resistance + turn.tables.half[high].resistance);
        }
        const real* const halves = axis == 1 ? turn.tables.half_y : turn.tables.half_x;
        return inverse(halves[low] + halves[high]);
    }
    template <int i>
    __device__ __forceinline__ Across across(const Turn& turn, int, int c) const {
        const unsigned high = before.template id<i>(c);
        return {between<0>(turn, now.template id<i>(c), high), turn.tables.half[high].rate};
    }
    template <int i>
    __device__ __forceinline__ real along_x(const Turn& turn, int, int c) const {
        return between<2>(turn, now.template id<i>(c), now.template id<i>(c + 1));
    }
    template <int i>
    __device__ __forceinline__ real along_y(const Turn& turn, int, int c) const {
        return between<1>(turn, now.template id<i - 1>(c), now.template id<i>(c));
    }
    template <int i>
    __device__ __forceinline__ real flowing(const Turn& turn, const WordsOfPlane& words, int c,
                                            real state) const {
        return turn.tables.at_id(words.template id<i>(c), state);
    }
    template <int i>
    __device__ __forceinline__ real source(const Turn& turn, int c) const {
        return turn.sources[now.template id<i>(c)];
    }
};

__device__ __forceinline__ void fill_faces(TablesInShared& tables, const Palette<3>* palette) {
    const real unit = unit_of(palette);
    for (int id = threadIdx.x; id < n_ids; id += blockDim.x) {
        const auto half = [&](int axis) { return half_resistance(palette, axis, id, unit); };
        tables.half[id] = {half(0), palette->rate[id]};
        if (!isotropic) tables.half_y[id] = half(1), tables.half_x[id] = half(2);
    }
}
#endif
