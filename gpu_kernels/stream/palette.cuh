// palette.cuh: bodies of a few materials: their ids as words of nibbles, and what a face between two
// points conducts, looked up by the pair of their ids.
//
// Idea    Eight ids make a word of 32 bits, written once per run in the order in which a kernel
//         reads them (palette_words.cu). Two nibbles beside each other are the pair of a face, and
//         of two words four logical instructions make the pairs of eight faces across.
//         More than 16 ids are bytes: half cells conduct in series, so a face needs one number of
//         each id and a reciprocal, which costs four instructions where a table of pairs would not
//         fit into shared memory. Faces that do not follow from half cells (contacts) are read from
//         memory.
// Limits  at most 256 ids.

#pragma once

#if !defined(TS_IDS) || !defined(TS_ISOTROPIC) || !defined(TS_SOURCES) || !defined(TS_COPIES) || \
    !defined(TS_PIECES) || !defined(TS_BINS) || !defined(TS_ONE) || !defined(TS_HELD) || \
    !defined(TS_SERIES)
#error "palette.cuh needs macros that gpu_kernels/stream/palette.py lists"
#endif

constexpr int n_ids = TS_IDS;                  // a power of two; nibbles hold 16
constexpr bool in_bytes = n_ids > 16;
constexpr bool in_series = TS_SERIES;          // bytes: every conductance is that of two half cells
constexpr int bits = in_bytes ? 8 : 4;
constexpr int pairs = 17 * (n_ids - 1) + 1;    // of which some are never used
constexpr bool has_sources = TS_SOURCES;
constexpr int copies = TS_COPIES;              // of tables of numbers: 1, or 16 for no bank conflicts
constexpr int copies_across = copies == 1 ? 1 : copies / 2;  // of entries twice as long
// each material conducts the same along all axes: neighbours in it are added as they are
constexpr bool isotropic = TS_ISOTROPIC;
constexpr unsigned mixed = 255;                // where a run has several ids
constexpr int curve_pieces = TS_PIECES;  // of curves of heat content; 0: states are temperatures
constexpr bool has_curves = curve_pieces > 0;
constexpr bool one_material = TS_ONE;    // the whole body is of id 0
constexpr bool has_held = TS_HELD;       // the state of some materials never changes

// What a kernel is told of the materials, once per run.
template <int axes>
struct Palette {
    real conductance[axes][n_ids][n_ids];  // K, symmetric; axes in array order
    real rate[n_ids];                      // r: 0 where a point is held
    // of a step of a point among its like: u' = centre u + sum of weight (u_low + u_high)
    real weight[axes][n_ids];
    real centre[n_ids];
};

constexpr int log2_of(int n) { return n == 1 ? 0 : 1 + log2_of(n / 2); }

// What a row gives to that below it and what a point takes: looked up together.
struct alignas(2 * sizeof(real)) Across {
    real conductance;  // of a face across rows or planes
    real rate;         // of the point with the higher nibble
};

// The bits from `bit` on that `mask` has, as an offset into entries of `unit` bytes.
template <int unit>
__device__ __forceinline__ unsigned offset_of(unsigned word, int bit, unsigned mask) {
    constexpr int shift = log2_of(unit);
    static_assert(unit == 1 << shift, "a power of two");
    return (bit < shift ? word << (shift - bit) : word >> (bit - shift)) & (mask << shift);
}

// Nibble k of a word, and the pair of the nibbles k and k + 1.
template <int unit>
__device__ __forceinline__ unsigned offset_of_id(unsigned word, int k) {
    return offset_of<unit>(word, 4 * k, 15u);
}
template <int unit>
__device__ __forceinline__ unsigned offset_of_pair(unsigned word, int k) {
    return offset_of<unit>(word, 4 * k, 255u);
}

template <class T>
__device__ __forceinline__ const T& at_offset(const T* table, unsigned offset) {
    return *reinterpret_cast<const T*>(reinterpret_cast<const unsigned char*>(table) + offset);
}

// The pairs of faces between two words: nibble k of `low` and of `high` make one.
struct Pairs {
    unsigned even, odd;  // bytes k / 2 for even and for odd k

    __device__ __forceinline__ Pairs(unsigned low, unsigned high)
        : even((low & 0x0f0f0f0fu) | (high << 4 & 0xf0f0f0f0u)),
          odd((low >> 4 & 0x0f0f0f0fu) | (high & 0xf0f0f0f0u)) {}

    template <int unit>
    __device__ __forceinline__ unsigned offset(int k) const {
        return offset_of_pair<unit>(k % 2 ? odd : even, k / 2 * 2);
    }
};

// A table of pairs in shared memory, `n` times: lane l takes copy l % n of each entry.
template <class Entry, int n>
struct PairTable {
    Entry of[pairs][n];

    static constexpr int unit = n * int(sizeof(Entry));

    __device__ __forceinline__ const Entry& at(unsigned offset, int lane) const {
        return at_offset(&of[0][n == 1 ? 0 : lane % n], offset);
    }
    // Filled by all threads of a block; a barrier must follow.
    template <class Make>
    __device__ __forceinline__ void fill(Make make) {
        for (int e = threadIdx.x; e < pairs * n; e += blockDim.x)
            of[e / n][e % n] = make(e / n % 16 % n_ids, e / n / 16 % n_ids);
    }
};

template <int axes, int n>
__device__ __forceinline__ void fill_across(PairTable<Across, n>& table,
                                            const Palette<axes>* palette, int axis) {
    table.fill([&](int low, int high) {
        return Across{palette->conductance[axis][low][high], palette->rate[high]};
    });
}

template <int axes, int n>
__device__ __forceinline__ void fill_along(PairTable<real, n>& table, const Palette<axes>* palette,
                                           int axis, real unit = real(1)) {
    table.fill([&](int low, int high) { return unit * palette->conductance[axis][low][high]; });
}

// The numbers of one id that conducts in series with any other.
struct alignas(2 * sizeof(real)) HalfCell {
    real resistance;  // along the first axis
    real rate;
};

// That of half a cell of an id, over `unit`. An id that conducts nothing has one that no other one
// changes.
template <int axes>
__device__ __forceinline__ real half_resistance(const Palette<axes>* palette, int axis, int id,
                                                real unit = real(1)) {
    const real own = unit * palette->conductance[axis][id][id];
    constexpr real most = real(sizeof(real) == 8 ? 1e300 : 1e37);
    return own * most > real(0.5) ? real(0.5) / own : most;
}

// An approximation of 20 bits and one cubic step, or of 23 and a linear one.
__device__ __forceinline__ double inverse(double number) {
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(number));
    const double error = fma_real(-number, y, 1.0);
    return fma_real(y, fma_real(error, error, error), y);
}
__device__ __forceinline__ float inverse(float number) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(number));
    return fma_real(y, fma_real(-number, y, 1.0f), y);
}

// Where the numbers of sources are: of an id at a step, those of `row` being the first.
struct SourcePlace {
    int begin, per_step, per_code;
    int count;  // of ids
};

// Sources of each level and id in shared memory.
template <int levels, class Numbers>
__device__ __forceinline__ void fill_sources(Numbers& to, const real* __restrict__ numbers,
                                             const SourcePlace& place, int row,
                                             real unit = real(1)) {
    if (!has_sources) return;
    for (int e = threadIdx.x; e < levels * n_ids; e += blockDim.x) {
        const int level = e / n_ids, id = e % n_ids;
        to[level][id] = id < place.count
                            ? unit * numbers[place.begin + (row + level) * place.per_step +
                                             id * place.per_code]
                            : real(0);
    }
}

// The ids of a pair.
struct TwoIds {
    unsigned low, high;
};

__device__ __forceinline__ TwoIds ids_of(unsigned pair) { return {pair & 15u, pair >> 4 & 15u}; }

#if TS_PIECES > 0
#include "palette_curves.cuh"
#else
constexpr bool varies = false;

// A temperature is what flows by difference, and it does so between all materials.
struct Flowing {
    __device__ __forceinline__ real at(unsigned, int, real state) const { return state; }
    __device__ __forceinline__ real at_id(unsigned, real state) const { return state; }
};
#endif

// A point: its state, and what flows by difference.
struct Point {
    real state, flowing;
};

// What flows through a face from `high` to `low`: a conductance times a difference.
struct Flow {
    real conductance, difference;
};

template <int axes, int axis, class PairOfIds>
__device__ __forceinline__ Flow flow_through(const Palette<axes>* palette, real conductance,
                                             const Point& low, const Point& high,
                                             PairOfIds pair_of_ids) {
#if TS_PIECES > 0
    if (varies && is_negative(conductance)) {
        return {real(1), flow_between(curves_of(palette), axis, pair_of_ids(), low.state,
                                      high.state)};
    }
#endif
    return {conductance, high.flowing - low.flowing};
}
