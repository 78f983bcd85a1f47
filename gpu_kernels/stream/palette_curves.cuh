// palette_curves.cuh: bodies whose state is heat content: what flows between two points is a
// conductance times the difference of something that is piecewise linear in heat content.
//
// Idea    Where conductivities vary with temperature that is the potential (their integral), else the
//         temperature. It is looked up at every step, so its lines lie in shared memory: of three
//         pieces (solid, melting, liquid) two comparisons find one. More are found by bins of equal
//         width in which at most one knot lies: adding a large number rounds the bin of a heat content
//         into its low bits. Where no number of bins does it, they are searched for by halves.
//         Where conductivities vary, heat flows between different materials by
//         temperature over the resistances of both half cells; such faces are few, and what they need
//         stays in global memory. A conductance below 0 marks them.
// Limits  a heat content lies less than 2^31 (float: 2^22) bins from 0.
// Order   tetris_sim/model/conduction.py; intercepts are taken at heat content 0.

#pragma once

#if !defined(TS_VARIES)
#error "palette_curves.cuh needs macros that gpu_kernels/stream/palette.py lists"
#endif

constexpr bool few_pieces = curve_pieces == 3;
constexpr int bins = TS_BINS;       // of each id; 0: pieces are searched for
constexpr bool searched = !few_pieces && bins == 0;
constexpr bool varies = TS_VARIES;  // conductivities, with temperature

struct alignas(2 * sizeof(real)) Line {
    real slope, intercept;

    __device__ __forceinline__ real at(real heat) const { return fma_real(slope, heat, intercept); }
};

// Follow Palette in memory. Piece p of an id begins at its knot p, which is infinite if it has fewer;
// those that it lacks are as its last one.
template <int axes>
struct Curves {
    real knots[n_ids][curve_pieces];
    Line lines[n_ids][curve_pieces];
    // slope, value at the knot
    real temperature[n_ids][curve_pieces][2];
    real conductivity[n_ids][curve_pieces][2];
    real half[axes][n_ids];  // of a cell: its resistance is this over its conductivity
    real contact[axes][n_ids][n_ids];
};

// The line on which a bin begins; beyond its knot the slope is larger by `bend`, 0 where none is.
struct alignas(2 * sizeof(real)) Bin {
    Line line;
    real bend, knot;

    __device__ __forceinline__ real at(real heat) const {
        const real above = heat - knot;
        return fma_real(bend, above > 0 ? above : real(0), line.at(heat));
    }
};

// The piece on which a bin begins, and the knot from which on it is the next one.
struct alignas(2 * sizeof(real)) PieceOfBin {
    real piece, knot;
};

constexpr int bins_of_id = bins == 0 ? 1 : bins;

// Follow Curves in memory.
struct Bins {
    real places[n_ids][2];  // bins per unit of heat content, the first bin counted from 0
    Bin of[n_ids][bins_of_id];
};

// Follow Bins in memory, and stay there.
struct PiecesOfBins {
    PieceOfBin of[n_ids][bins_of_id];
};

// The integer nearest to `number`, which is less than 2^31 or 2^22, and `first` less.
__device__ __forceinline__ int nearest_bin(double heat, double scale, double first) {
    return __double2loint(fma_real(scale, heat, 0x1.8p52 - first));
}
__device__ __forceinline__ int nearest_bin(float heat, float scale, float first) {
    return __float_as_int(fma_real(scale, heat, 0x1.8p23f - first)) - __float_as_int(0x1.8p23f);
}

__device__ __forceinline__ int bin_of(real heat, real scale, real first) {
    return min(max(nearest_bin(heat, scale, first), 0), bins_of_id - 1);
}

template <int axes>
__device__ __forceinline__ const Curves<axes>* curves_of(const Palette<axes>* palette) {
    return reinterpret_cast<const Curves<axes>*>(palette + 1);
}

// A curve of three pieces: at an address it is quickest to look a line up.
struct alignas(2 * sizeof(real)) ThreeLines {
    Line of[3];
    real knots[2];

    __device__ __forceinline__ real at(real heat) const {
        return of[(heat >= knots[0]) + (heat >= knots[1])].at(heat);
    }
};

// The same without an address: one line, and what it bends by at the knots.
struct alignas(2 * sizeof(real)) Bent {
    Line middle;
    real below, above;  // what slopes are more below the first knot, and above the second
    real low, high;     // knots
    real none[2];

    __device__ __forceinline__ real at(real heat) const {
        const real least = heat < low ? heat : low, most = heat < high ? high : heat;
        return fma_real(below, least, fma_real(above, most, middle.at(heat)));
    }
};

enum class Finding { compared, binned, searched };

// The curves of all ids in shared memory.
template <Finding finding>
struct FlowingOf {
    struct {
        ThreeLines lines;
        Bent bent;
    } of[n_ids];

    __device__ __forceinline__ const Bent& of_id(unsigned id) const { return of[id].bent; }
    // Of the id in nibble k.
    __device__ __forceinline__ real at(unsigned word, int k, real heat) const {
        return at_offset(of, offset_of_id<sizeof of[0]>(word, k)).lines.at(heat);
    }
    __device__ __forceinline__ real at_id(unsigned id, real heat) const {
        return of[id].lines.at(heat);
    }
    template <int axes>
    __device__ __forceinline__ void fill(const Curves<axes>* curves) {
        for (int id = threadIdx.x; id < n_ids; id += blockDim.x) fill_id(curves, id);
    }
    template <int axes>
    __device__ __forceinline__ void fill_id(const Curves<axes>* curves, int id) {
        const Line(&its)[3] = curves->lines[id];
        const real(&knots)[3] = curves->knots[id];
        of[id].lines = {{its[0], its[1], its[2]}, {knots[1], knots[2]}};
        const real below = its[0].slope - its[1].slope, above = its[2].slope - its[1].slope;
        // Those that it lacks are infinite.
        const real low = below == 0 ? real(0) : knots[1], high = above == 0 ? real(0) : knots[2];
        const real intercept = fma_real(-below, low, fma_real(-above, high, its[1].intercept));
        of[id].bent = {{its[1].slope, intercept}, below, above, low, high, {}};
    }
};

template <>
struct FlowingOf<Finding::binned> {
    Bins all;

    // That of one id.
    struct Curve {
        const Bin* its;
        real scale, first;

        __device__ __forceinline__ real at(real heat) const {
            return its[bin_of(heat, scale, first)].at(heat);
        }
    };

    __device__ __forceinline__ Curve of_id(unsigned id) const {
        return {all.of[id], all.places[id][0], all.places[id][1]};
    }
    __device__ __forceinline__ real at(unsigned word, int k, real heat) const {
        return of_id(word >> (4 * k) & 15u).at(heat);
    }
    __device__ __forceinline__ real at_id(unsigned id, real heat) const {
        return of_id(id).at(heat);
    }
    template <int axes>
    __device__ __forceinline__ void fill(const Curves<axes>* curves) {
        const real* const from = reinterpret_cast<const real*>(curves + 1);
        real* const to = reinterpret_cast<real*>(&all);
        for (int e = threadIdx.x; e < int(sizeof(all) / sizeof(real)); e += blockDim.x)
            to[e] = from[e];
    }
};

template <>
struct FlowingOf<Finding::searched> {
    real knots[n_ids][curve_pieces];
    Line lines[n_ids][curve_pieces];

    // That of one id.
    struct Curve {
        const real* knots;
        const Line* lines;

        __device__ __forceinline__ int piece(real heat) const {
            int piece = 0;
#pragma unroll
            for (int half = curve_pieces / 2; half > 0; half /= 2)
                if (heat >= knots[piece + half]) piece += half;
            return piece;
        }
        __device__ __forceinline__ real at(real heat) const { return lines[piece(heat)].at(heat); }
    };

    __device__ __forceinline__ Curve of_id(unsigned id) const { return {knots[id], lines[id]}; }
    __device__ __forceinline__ real at(unsigned word, int k, real heat) const {
        return of_id(word >> (4 * k) & 15u).at(heat);
    }
    __device__ __forceinline__ real at_id(unsigned id, real heat) const {
        return of_id(id).at(heat);
    }
    template <int axes>
    __device__ __forceinline__ void fill(const Curves<axes>* curves) {
        for (int e = threadIdx.x; e < n_ids * curve_pieces; e += blockDim.x) {
            const int id = e / curve_pieces, piece = e % curve_pieces;
            knots[id][piece] = curves->knots[id][piece];
            lines[id][piece] = curves->lines[id][piece];
        }
    }
};

using Flowing = FlowingOf<few_pieces ? Finding::compared
                                     : (searched ? Finding::searched : Finding::binned)>;

// The bits of a number that order those of one sign as integers, and the first or last number that
// has them.
__device__ __forceinline__ int high_bits(double number) { return __double2hiint(number); }
__device__ __forceinline__ int high_bits(float number) { return __float_as_int(number); }
__device__ __forceinline__ real with_high_bits(int bits, bool last) {
    if constexpr (sizeof(real) == 8) return real(__hiloint2double(bits, last ? -1 : 0));
    else return real(__int_as_float(bits));
}

__device__ __forceinline__ bool is_negative(real number) { return high_bits(number) < 0; }

// The least and the most of the heat contents of a warp, by their bits.
struct Extremes {
    int least, most;

    __device__ __forceinline__ explicit Extremes(real heat)
        : least(high_bits(heat)), most(least) {}
    __device__ __forceinline__ void take(real heat) {
        least = min(least, high_bits(heat));
        most = max(most, high_bits(heat));
    }
    // Whether all of them lie on one line of a curve, and which.
    template <class Curve>
    __device__ __forceinline__ bool on_one_line(const Curve& curve, Line& line) {
        least = __reduce_min_sync(~0u, least);
        most = __reduce_max_sync(~0u, most);
        // Below 0 the largest bits are those of the smallest number.
        if ((least < 0) != (most < 0)) return false;
        const int piece = curve.piece(with_high_bits(least, false));
        line = curve.lines[piece];
        return piece == curve.piece(with_high_bits(most, true));
    }
};

// The piece of the curves of an id on which a heat content lies, found in global memory.
template <int axes>
__device__ __forceinline__ int piece_of(const Curves<axes>* curves, unsigned id, real heat) {
    if constexpr (bins > 0) {
        const Bins* const all = reinterpret_cast<const Bins*>(curves + 1);
        const real(&place)[2] = all->places[id];
        const PieceOfBin found = reinterpret_cast<const PiecesOfBins*>(all + 1)
                                     ->of[id][bin_of(heat, place[0], place[1])];
        return int(found.piece) + (heat >= found.knot);
    } else {
        const real(&knots)[curve_pieces] = curves->knots[id];
        int piece = 0, last = curve_pieces - 1;
        while (piece < last) {
            const int middle = (piece + last + 1) / 2;
            if (heat >= knots[middle]) piece = middle;
            else last = middle - 1;
        }
        return piece;
    }
}

// What flows from `high` to `low`, the heat contents of two points of different materials. Not inlined: it would cost the rows around it registers.
template <int axes>
__device__ __noinline__ real flow_between(const Curves<axes>* curves, int axis, TwoIds pair,
                                          real low, real high) {
    const unsigned ids[2] = {pair.low, pair.high};
    real temperature[2], conductivity[2];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
        const unsigned id = ids[side];
        const real heat = side == 0 ? low : high;
        const int piece = piece_of(curves, id, heat);
        const real above = heat - curves->knots[id][piece];
        const real(&t)[2] = curves->temperature[id][piece];
        const real(&k)[2] = curves->conductivity[id][piece];
        temperature[side] = fma_real(t[0], above, t[1]);
        conductivity[side] = fma_real(k[0], above, k[1]);
    }
    // One division is as long as all else.
    const real both = conductivity[0] * conductivity[1];
    const real halves = fma_real(curves->half[axis][ids[0]], conductivity[1],
                                 curves->half[axis][ids[1]] * conductivity[0]);
    return (temperature[1] - temperature[0]) * both /
           fma_real(curves->contact[axis][ids[0]][ids[1]], both, halves);
}
