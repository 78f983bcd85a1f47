// palette_curves.cuh: bodies whose state is heat content: what flows between two points of one
// material is the difference of their potentials, which are piecewise linear in heat content.
//
// Idea    Potentials are looked up at every step, so their lines lie in shared memory: with three
//         pieces (solid, melting, liquid) two comparisons find one, with more a search by halves.
//         Between different materials heat flows by temperature, over the resistances of both half
//         cells; such faces are few, and what they need stays in global memory. A conductance below
//         0 marks them.
// Order   tetris_sim/enthalpy.py; intercepts are taken at heat content 0.

#pragma once

constexpr bool few_pieces = curve_pieces == 3;

struct alignas(2 * sizeof(real)) Line {
    real slope, intercept;

    __device__ __forceinline__ real at(real heat) const { return fma_real(slope, heat, intercept); }
};

// Follow Palette in memory. Piece p of an id begins at its knot p, infinite if it has fewer.
template <int axes>
struct Curves {
    real knots[n_ids][curve_pieces];
    Line potential[n_ids][curve_pieces];
    // slope, value at the knot
    real temperature[n_ids][curve_pieces][2];
    real conductivity[n_ids][curve_pieces][2];
    real half[axes][n_ids];  // of a cell: its resistance is this over its conductivity
    real contact[axes][n_ids][n_ids];
};

template <int axes>
__device__ __forceinline__ const Curves<axes>* curves_of(const Palette<axes>* palette) {
    return reinterpret_cast<const Curves<axes>*>(palette + 1);
}

// The piece that a heat content lies on; the first one goes on below its knot.
__device__ __forceinline__ int piece_of(const real* knots, real heat) {
    if constexpr (few_pieces) return (heat >= knots[1]) + (heat >= knots[2]);
    int piece = 0;
#pragma unroll
    for (int half = curve_pieces / 2; half > 0; half /= 2)
        if (heat >= knots[piece + half]) piece += half;
    return piece;
}

// Lines of an id with three pieces, and where the latter two begin.
struct alignas(2 * sizeof(real)) ThreeLines {
    Line of[3];
    real knots[2];

    __device__ __forceinline__ int piece(real heat) const {
        return (heat >= knots[0]) + (heat >= knots[1]);
    }
    // Of a copy in registers, where no address can be computed.
    __device__ __forceinline__ real at(real heat) const {
        const bool melts = heat >= knots[0], flows = heat >= knots[1];
        const Line below{melts ? of[1].slope : of[0].slope,
                         melts ? of[1].intercept : of[0].intercept};
        return Line{flows ? of[2].slope : below.slope, flows ? of[2].intercept : below.intercept}
            .at(heat);
    }
};

// The lines of all ids in shared memory.
template <bool few>
struct PotentialsOf {
    ThreeLines of[n_ids];

    __device__ __forceinline__ int piece(unsigned id, real heat) const {
        return of[id].piece(heat);
    }
    __device__ __forceinline__ Line line(unsigned id, int piece) const { return of[id].of[piece]; }
    // Of the id in nibble k.
    __device__ __forceinline__ real at(unsigned word, int k, real heat) const {
        const ThreeLines& its = at_offset(of, offset_of_id<sizeof(ThreeLines)>(word, k));
        return its.of[its.piece(heat)].at(heat);
    }
    template <int axes>
    __device__ __forceinline__ void fill(const Curves<axes>* curves) {
        const int id = threadIdx.x;
        if (id >= n_ids) return;
        for (int p = 0; p < 3; ++p) of[id].of[p] = curves->potential[id][p];
        for (int p = 0; p < 2; ++p) of[id].knots[p] = curves->knots[id][p + 1];
    }
};

template <>
struct PotentialsOf<false> {
    real knots[n_ids][curve_pieces];
    Line lines[n_ids][curve_pieces];

    __device__ __forceinline__ int piece(unsigned id, real heat) const {
        return piece_of(knots[id], heat);
    }
    __device__ __forceinline__ Line line(unsigned id, int piece) const { return lines[id][piece]; }
    __device__ __forceinline__ real at(unsigned word, int k, real heat) const {
        const unsigned id = word >> (4 * k) & 15u;
        return line(id, piece(id, heat)).at(heat);
    }
    template <int axes>
    __device__ __forceinline__ void fill(const Curves<axes>* curves) {
        for (int e = threadIdx.x; e < n_ids * curve_pieces; e += blockDim.x) {
            knots[e / curve_pieces][e % curve_pieces] = curves->knots[e / curve_pieces][e % curve_pieces];
            lines[e / curve_pieces][e % curve_pieces] = curves->potential[e / curve_pieces][e % curve_pieces];
        }
    }
};

using Potentials = PotentialsOf<few_pieces>;

// The potential of one id; few lines are kept in registers.
template <bool few>
struct PotentialOfId {
    const ThreeLines its;

    __device__ __forceinline__ PotentialOfId(const PotentialsOf<few>& of_all, unsigned id)
        : its(of_all.of[id]) {}
    __device__ __forceinline__ real operator()(real heat) const { return its.at(heat); }
};

template <>
struct PotentialOfId<false> {
    const PotentialsOf<false>& of_all;
    unsigned id;

    __device__ __forceinline__ PotentialOfId(const PotentialsOf<false>& of_all_, unsigned id_)
        : of_all(of_all_), id(id_) {}
    __device__ __forceinline__ real operator()(real heat) const { return of_all.at(id, 0, heat); }
};

using PotentialOf = PotentialOfId<few_pieces>;

// The bits of a number that order those of one sign as integers, and the first or last number that
// has them.
__device__ __forceinline__ int high_bits(double number) { return __double2hiint(number); }
__device__ __forceinline__ int high_bits(float number) { return __float_as_int(number); }
__device__ __forceinline__ real with_high_bits(int bits, bool last) {
    if constexpr (sizeof(real) == 8) return real(__hiloint2double(bits, last ? -1 : 0));
    else return real(__int_as_float(bits));
}

__device__ __forceinline__ bool is_negative(real number) { return high_bits(number) < 0; }

// What flows from `high` to `low`, the heat contents of two points of different materials; `pair` has
// the id of `low` in its lower nibble. Not inlined: it would cost the rows around it registers.
template <int axes>
__device__ __noinline__ real flow_between(const Curves<axes>* curves, int axis, unsigned pair,
                                          real low, real high) {
    const unsigned ids[2] = {pair & 15u, pair >> 4 & 15u};
    real temperature[2], resistance[2];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
        const unsigned id = ids[side];
        const real heat = side == 0 ? low : high;
        const int piece = piece_of(curves->knots[id], heat);
        const real above = heat - curves->knots[id][piece];
        const real(&t)[2] = curves->temperature[id][piece];
        const real(&k)[2] = curves->conductivity[id][piece];
        temperature[side] = fma_real(t[0], above, t[1]);
        resistance[side] = curves->half[axis][id] / fma_real(k[0], above, k[1]);
    }
    return (temperature[1] - temperature[0]) /
           ((resistance[0] + resistance[1]) + curves->contact[axis][ids[0]][ids[1]]);
}
