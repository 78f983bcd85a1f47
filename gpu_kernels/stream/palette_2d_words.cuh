// palette_2d_words.cuh: where kernels of palettes in 2D find the ids of their strip, and what the faces
// between these conduct (palette.cuh).

#pragma once

constexpr int words_of_lane = bits / 4;
using WordsOfRow = unsigned[32 * words_of_lane];

// The ids of a lane in a row, in nibbles or bytes: left, own, ..., own, right.
struct Ids {
    unsigned of[words_of_lane];

    Ids() = default;
    __device__ __forceinline__ Ids(const WordsOfRow& row, int lane) {
        if constexpr (in_bytes) {
            const uint2 both = reinterpret_cast<const uint2*>(row)[lane];
            of[0] = both.x;
            of[words_of_lane - 1] = both.y;
        } else {
            of[0] = row[lane];
        }
    }

    __device__ __forceinline__ unsigned id(int k) const {
        return of[k * bits / 32] >> (k * bits % 32) & ((1u << bits) - 1);
    }
};

// Words and runs of the block's strip, of the rows low .. low + count - 1; beyond these, the nearest.
struct StripOfWords {
    const unsigned* words;      // [row - low][lane][words_of_lane]
    const unsigned char* runs;  // [row - low]
    int low, count;

    // Those of all strips are [strip][row - low].
    __device__ __forceinline__ StripOfWords(const unsigned* all_words,
                                            const unsigned char* all_runs, int low_, int count_)
        : words(all_words + (long long)blockIdx.x * count_ * (32 * words_of_lane)),
          runs(all_runs + (long long)blockIdx.x * count_),
          low(low_),
          count(count_) {}

    __device__ __forceinline__ int place(int row) const {
        return min(max(row - low, 0), count - 1);
    }

    __device__ __forceinline__ unsigned run(int row) const { return __ldg(runs + place(row)); }

    // Start to copy the words of `n` rows from `row` on, some rows at a time, 16 bytes a lane;
    // `to(p)` is where those of row p go.
    template <int n, class To>
    __device__ __forceinline__ void fetch(int row, int lane, To to) const {
        constexpr int lanes = 8 * words_of_lane;  // for a row
        const int piece = 4 * (lane % lanes);
#pragma unroll
        for (int p = 0; p < n; p += 32 / lanes) {
            const int mine = p + lane / lanes;
            if (mine >= n) continue;
            const unsigned* const from = words + place(row + mine) * (32 * words_of_lane) + piece;
            WordsOfRow& there = to(mine);
            copy_async<0>(static_cast<unsigned>(__cvta_generic_to_shared(there + piece)),
                          reinterpret_cast<const char*>(from), true);
        }
    }
};

// What a face conducts between ids in bytes.
template <int n>
struct HalfCells {
    HalfCell of[in_bytes ? n_ids : 1][n];  // resistances along y
    real of_x[in_bytes && !isotropic ? n_ids : 1][n];

    __device__ __forceinline__ const HalfCell& at(unsigned id, int lane) const {
        return of[id][n == 1 ? 0 : lane % n];
    }
    template <int axis>
    __device__ __forceinline__ real between(const Palette<2>* palette, unsigned low, unsigned high,
                                            int lane) const {
        if (!in_series) return __ldg(&palette->conductance[axis][low][high]);
        if (isotropic || axis == 0)
            return inverse(at(low, lane).resistance + at(high, lane).resistance);
        const int copy = n == 1 ? 0 : lane % n;
        return inverse(of_x[low][copy] + of_x[high][copy]);
    }
    // Filled by all threads of a block; a barrier must follow.
    __device__ __forceinline__ void fill(const Palette<2>* palette) {
        for (int e = threadIdx.x; e < n_ids * n; e += blockDim.x) {
            const int id = e / n;
            of[id][e % n] = {half_resistance(palette, 0, id), palette->rate[id]};
            if (!isotropic) of_x[id][e % n] = half_resistance(palette, 1, id);
        }
    }
};

// The last row before `row`, or it, whose number in the whole grid is a multiple of `rows`.
__device__ __forceinline__ int aligned_down(int row, int anchor) {
    const int over = (row + anchor) % rows;
    return row - (over < 0 ? over + rows : over);
}
