// palette_2d_words.cuh: where kernels of palettes in 2D find the words of their strip.

#pragma once

// Words and runs of the block's strip, of the rows low .. low + count - 1; beyond these, the nearest.
struct StripOfWords {
    const unsigned* words;      // [row - low][lane]
    const unsigned char* runs;  // [row - low]
    int low, count;

    // Those of all strips are [strip][row - low].
    __device__ __forceinline__ StripOfWords(const unsigned* all_words,
                                            const unsigned char* all_runs, int low_, int count_)
        : words(all_words + (long long)blockIdx.x * count_ * 32),
          runs(all_runs + (long long)blockIdx.x * count_),
          low(low_),
          count(count_) {}

    __device__ __forceinline__ int place(int row) const {
        return min(max(row - low, 0), count - 1);
    }

    __device__ __forceinline__ unsigned run(int row) const { return __ldg(runs + place(row)); }

    // Start to copy 16 bytes of a row's words.
    __device__ __forceinline__ void fetch(int row, unsigned (&to)[32], int piece) const {
        copy_async<0>(static_cast<unsigned>(__cvta_generic_to_shared(to + 4 * piece)),
                      reinterpret_cast<const char*>(words + place(row) * 32 + 4 * piece), true);
    }
};

// The last row before `row`, or it, whose number in the whole grid is a multiple of `rows`.
__device__ __forceinline__ int aligned_down(int row, int anchor) {
    const int over = (row + anchor) % rows;
    return row - (over < 0 ? over + rows : over);
}
