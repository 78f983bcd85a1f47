// resident_columns.cuh: the columns that a lane has of a row, and how they get from memory and back.
//
// The file that includes it has said what Parts, Place, `columns`, `steps` and `has_face` are.

#pragma once

// What a lane has of a row: where its columns lie, and which of them (a bit for each) the field
// has, the block owns, others read.
struct Columns {
    unsigned at[columns], there, own, outer;
};

__device__ __forceinline__ bool owns(const Place& place, int d, int at) {
    return at >= place.low[d] && at < place.high[d];
}

__device__ __forceinline__ bool is_outer(const Place& place, int d, int at) {
    return at < place.low[d] + steps || at >= place.high[d] - steps;
}

// The coordinate where memory has a point; negative if it has none, or if the tile is so much larger
// than the field that no step reads it.
__device__ __forceinline__ int inside(int at, int d, const Parts& parts) {
    const int n = parts.n[d];
    if (!has_face(d, 0)) at = at < 0 ? at + n : at >= n ? at - n : at;
    return at < n ? at : -1;
}

__device__ __forceinline__ Columns columns_of(const Parts& parts, const Place& place) {
    Columns found = {};
#pragma unroll
    for (int c = 0; c < columns; c++) {
        const int x = inside(place.x + c, 2, parts);
        const bool own = owns(place, 2, place.x + c);
        found.at[c] = x;
        if (x >= 0) found.there |= 1u << c;
        if (own) found.own |= 1u << c;
        if (own && is_outer(place, 2, place.x + c)) found.outer |= 1u << c;
    }
    return found;
}

template <class T>
struct PairOf;
template <>
struct PairOf<double> {
    using Type = double2;
};
template <>
struct PairOf<float> {
    using Type = float2;
};
using Two = PairOf<real>::Type;

// Columns of a row, those that `some` says; if a lane has all of them, two at a time.
constexpr bool in_pairs = TS_FULL && columns % 2 == 0;

__device__ __forceinline__ void load_columns(real (&value)[columns], const real* from, unsigned row,
                                             const Columns& where, unsigned some) {
    if (in_pairs) {
#pragma unroll
        for (int c = 0; c < columns; c += 2) {
            const Two both = __ldcg(reinterpret_cast<const Two*>(from + (row + where.at[0] + c)));
            value[c] = both.x, value[c + 1] = both.y;
        }
        return;
    }
#pragma unroll
    for (int c = 0; c < columns; c++)
        if (some >> c & 1) value[c] = __ldcg(from + (row + where.at[c]));
}

__device__ __forceinline__ void store_columns(const real (&value)[columns], real* to, unsigned row,
                                              const Columns& where, unsigned some) {
    if (in_pairs) {
#pragma unroll
        for (int c = 0; c < columns; c += 2)
            *reinterpret_cast<Two*>(to + (row + where.at[0] + c)) = {value[c], value[c + 1]};
        return;
    }
#pragma unroll
    for (int c = 0; c < columns; c++)
        if (some >> c & 1) to[row + where.at[c]] = value[c];
}
