// palette.cuh: bodies of a few materials: their ids as words of nibbles, and what a face between two
// points conducts, looked up by the pair of their ids.
//
// Idea    Eight ids make a word of 32 bits, written once per run in the order in which a kernel
//         reads them (palette_words.cu). Two nibbles beside each other are the pair of a face, and
//         of two words four logical instructions make the pairs of eight faces across.
// Limits  at most 16 ids.

#pragma once

#if !defined(TS_IDS) || !defined(TS_ISOTROPIC) || !defined(TS_SOURCES)
#error "palette.cuh needs macros that gpu_kernels/stream/palette.py lists"
#endif

constexpr int n_ids = TS_IDS;                  // 2, 4, 8 or 16
constexpr int pairs = 17 * (n_ids - 1) + 1;    // of which some are never used
constexpr bool has_sources = TS_SOURCES;
// each material conducts the same along all axes: neighbours in it are added as they are
constexpr bool isotropic = TS_ISOTROPIC;
constexpr unsigned mixed = 255;                // where a run has several ids

// What a kernel is told of the materials, once per run.
template <int axes>
struct Palette {
    real conductance[axes][n_ids][n_ids];  // K, symmetric; axes in array order
    real rate[n_ids];                      // r: 0 where a point is held
    // of a step of a point among its like: u' = centre u + sum of weight (u_low + u_high)
    real weight[axes][n_ids];
    real centre[n_ids];
};

// What a row gives to that below it and what a point takes: looked up together.
struct alignas(2 * sizeof(real)) Across {
    real conductance;  // of a face across rows or planes
    real rate;         // of the point with the higher nibble
};

// Nibble k of a word, as an offset into `unit` bytes per id.
template <int unit>
__device__ __forceinline__ unsigned offset_of_id(unsigned word, int k) {
    constexpr int shift = unit == 4 ? 2 : 3;
    static_assert(unit == 1 << shift, "ids index numbers of 4 or 8 bytes");
    return (4 * k < shift ? word << (shift - 4 * k) : word >> (4 * k - shift)) & (15u << shift);
}

// Byte k of a word, or its nibbles from `bit` on, as an offset into `unit` bytes per pair.
template <int unit>
__device__ __forceinline__ unsigned offset_of_pair(unsigned word, int bit) {
    constexpr int shift = unit == 4 ? 2 : unit == 8 ? 3 : 4;
    static_assert(unit == 1 << shift, "pairs index entries of 4, 8 or 16 bytes");
    return (bit < shift ? word << (shift - bit) : word >> (bit - shift)) & (255u << shift);
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
        return offset_of_pair<unit>(k % 2 ? odd : even, 8 * (k / 2));
    }
};

// Tables in shared memory, filled by all threads of a block; a barrier must follow.
template <int axes, class Tables>
__device__ __forceinline__ void fill_across(Tables& to, const Palette<axes>* palette, int axis) {
    for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
        const int low = pair % 16 % n_ids, high = pair / 16 % n_ids;
        to[pair] = Across{palette->conductance[axis][low][high], palette->rate[high]};
    }
}

template <int axes, class Tables>
__device__ __forceinline__ void fill_along(Tables& to, const Palette<axes>* palette, int axis) {
    for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x)
        to[pair] = palette->conductance[axis][pair % 16 % n_ids][pair / 16 % n_ids];
}

// Numbers of each level and id in shared memory.
template <int levels, class Numbers>
__device__ __forceinline__ void fill_sources(Numbers& to, const real* __restrict__ sources) {
    if (!has_sources) return;
    for (int e = threadIdx.x; e < levels * n_ids; e += blockDim.x)
        to[e / n_ids][e % n_ids] = sources[e];
}
