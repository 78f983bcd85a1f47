// stream_3d_tile.cuh: where points of a tile lie, and how they get there (part of stream_3d.cu).
//
// A thread owns `rows` x `columns` points of every plane; the 32 lanes of a warp lie beside each
// other along x, warps below each other along y. A row in shared memory is [word of a lane][lane],
// a word being 16 bytes, so that a warp reads consecutive words.

#pragma once

constexpr int word = 16 / sizeof(real), words = columns / word;
constexpr int sector = 32 / sizeof(real);
constexpr int tile_x = 32 * columns, tile_y = warps * rows;
constexpr int halo_x = (steps * radius_x + word - 1) / word * word, halo_y = steps * radius_y;
// no two blocks share a sector
constexpr int written_x = (tile_x - halo_x - steps * radius_x) / sector * sector;
constexpr int written_y = tile_y - 2 * halo_y;
// sums between two turns; there are no empty arrays
constexpr int unfinished = radius_z > 0 ? 2 * radius_z : 1;
static_assert(written_x > 0 && written_y > 0, "the halo leaves nothing of the tile");
static_assert(columns % word == 0 && (radius_y <= rows || steps == 1), "see Limits");

constexpr unsigned whole_warp = 0xffffffffu;

struct alignas(16) Word {
    real of[word];
};
using SharedRow = Word[words][32];
using Points = real[rows][columns];

struct Plane {
    SharedRow of[tile_y];
};
// Of a later level, the rows that other warps read: the first and the last radius_y of each warp's.
struct Ends {
    SharedRow of[warps][radius_y > 0 ? 2 * radius_y : 1];
};

// Planes of a sum on their way from memory: a thread copies what it will add itself.
template <bool is_there>
struct SumRing {
    Plane sums[ahead + 1];
};
template <>
struct SumRing<false> {};

// Where a thread works, and what of it the block writes.
struct Place {
    int lane, warp;
    int x, y;  // of the thread's first point
    int low_y, high_y, low_x, high_x;
    bool whole, none;  // of the thread's points are written
};

// Tiles begin with row `first_y` and column `first_x`, in the box or before it.
__device__ __forceinline__ Place place_of_thread(const Box& box, int first_y, int first_x) {
    Place place;
    place.lane = threadIdx.x % 32;
    place.warp = threadIdx.x / 32;
    place.low_x = first_x + int(blockIdx.x) * written_x;
    place.low_y = first_y + int(blockIdx.y) * written_y;
    place.high_x = min(place.low_x + written_x, box.high[2]);
    place.high_y = min(place.low_y + written_y, box.high[1]);
    place.x = place.low_x - halo_x + place.lane * columns;
    place.y = place.low_y - halo_y + place.warp * rows;
    place.low_y = max(place.low_y, box.low[1]);
    place.low_x = max(place.low_x, box.low[2]);
    place.whole = place.x >= place.low_x && place.x + columns <= place.high_x &&
                  place.y >= place.low_y && place.y + rows <= place.high_y;
    place.none = place.x >= place.high_x || place.x + columns <= place.low_x ||
                 place.y >= place.high_y || place.y + rows <= place.low_y;
    return place;
}

__device__ __forceinline__ void assign(Points& to, const Points& from) {
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int c = 0; c < columns; ++c) to[i][c] = from[i][c];
}

__device__ __forceinline__ void copy_word(Word& to, const real* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(&to)),
                 "l"(from));
}

// Start copying this warp's rows of plane z of the state.
__device__ __forceinline__ void start_copy(const real* __restrict__ src, const Memory& memory,
                                           const Place& place, int z, Plane& plane) {
    // Beyond what may be read any value will do: it only reaches points that this block does not
    // write. The limits are whole words, as owned point 0 begins one (within.low <= 0).
    const int low = -(-memory.within.low[2] / word * word),
              high = memory.within.high[2] / word * word;
    const real* from = src + clamp(z, memory.within.low[0], memory.within.high[0]) * memory.plane;
#pragma unroll
    for (int i = 0; i < rows; ++i) {
        const real* row =
            from + clamp(place.y + i, memory.within.low[1], memory.within.high[1]) * memory.row;
#pragma unroll
        for (int j = 0; j < words; ++j) {
            // Consecutive lanes copy consecutive words of the row, whichever lane owns them.
            const int n = j * 32 + place.lane;
            const int x = max(low, min(place.x + n * word - place.lane * columns, high - word));
            copy_word(plane.of[place.warp * rows + i][n % words][n / words], row + x);
        }
    }
}

// Start copying what a thread adds to the points that it writes of plane low_z + n of those up to
// high_z, if it is one of these, so that it comes with the plane of the state that is asked for as
// many turns ahead.
template <class Shared>
__device__ __forceinline__ void fetch_sum(const real* __restrict__ sum, const Memory& memory,
                                          const Place& place, int low_z, int high_z, int n,
                                          Shared& shared, int slot) {
    if constexpr (has_sum) {
        if (n < 0 || n >= high_z - low_z) return;
        const real* const from = sum + (low_z + n) * memory.plane;
#pragma unroll
        for (int i = 0; i < rows; ++i) {
            if (place.y + i < place.low_y || place.y + i >= place.high_y) continue;
#pragma unroll
            for (int j = 0; j < words; ++j) {
                const int x = place.x + j * word;
                if (x < place.high_x && x + word > place.low_x)
                    copy_word(shared.sums[slot].of[place.warp * rows + i][j][place.lane],
                              from + (place.y + i) * memory.row + x);
            }
        }
    }
}

__device__ __forceinline__ void unpack(const SharedRow& row, int lane, real (&to)[columns]) {
#pragma unroll
    for (int j = 0; j < words; ++j) {
        const Word read = row[j][lane];
#pragma unroll
        for (int e = 0; e < word; ++e) to[j * word + e] = read.of[e];
    }
}

__device__ __forceinline__ void pack(const real (&from)[columns], int lane, SharedRow& row) {
#pragma unroll
    for (int j = 0; j < words; ++j) {
        Word out;
#pragma unroll
        for (int e = 0; e < word; ++e) out.of[e] = from[j * word + e];
        row[j][lane] = out;
    }
}

// Row `i`, counted from the thread's first, of the state: all of it is in shared memory.
struct StateRows {
    const Plane& plane;

    template <int i>
    __device__ __forceinline__ void read(const Place& place, real (&to)[columns]) const {
        // The tile's first and last rows have no neighbours; they are never written, and take any
        // row.
        const int row = place.warp * rows + i;
        unpack(plane.of[i < 0 || i >= rows ? max(0, min(row, tile_y - 1)) : row], place.lane, to);
    }
};

// The same of a later level: the thread's own rows are registers.
struct LevelRows {
    const Ends& ends;
    const Points& own;

    template <int i>
    __device__ __forceinline__ void read(const Place& place, real (&to)[columns]) const {
        if constexpr (i < 0)
            unpack(ends.of[max(place.warp - 1, 0)][2 * radius_y + i], place.lane, to);
        else if constexpr (i >= rows)
            unpack(ends.of[min(place.warp + 1, warps - 1)][i - rows], place.lane, to);
        else
#pragma unroll
            for (int c = 0; c < columns; ++c) to[c] = own[i][c];
    }
};

// Show other warps what they read of a finished plane.
__device__ __forceinline__ void show(const Points& finished, const Place& place, Ends& ends) {
#pragma unroll
    for (int i = 0; i < radius_y; ++i) {
        pack(finished[i], place.lane, ends.of[place.warp][i]);
        pack(finished[rows - radius_y + i], place.lane, ends.of[place.warp][radius_y + i]);
    }
}

// Write a finished plane of the last level, with the sum that lies in a slot of its ring.
template <class Shared>
__device__ __forceinline__ void store(const Points& finished, const Place& place, real scale,
                                      long long row_pitch, real* __restrict__ plane,
                                      const Shared& shared, int slot) {
    if (place.none) return;
    real* to = plane + place.y * row_pitch + place.x;
#pragma unroll
    for (int i = 0; i < rows; ++i, to += row_pitch) {
        const bool inside = place.y + i >= place.low_y && place.y + i < place.high_y;
#pragma unroll
        for (int j = 0; j < words; ++j) {
            Word out;
            if constexpr (has_sum) {
                const Word sum = shared.sums[slot].of[place.warp * rows + i][j][place.lane];
#pragma unroll
                for (int e = 0; e < word; ++e) {
                    const real value = finished[i][j * word + e];
                    out.of[e] =
                        narrow(scaled ? fma_real(scale, value, sum.of[e]) : value + sum.of[e]);
                }
            } else {
#pragma unroll
                for (int e = 0; e < word; ++e) {
                    const real value = finished[i][j * word + e];
                    out.of[e] = narrow(scaled ? mul_real(scale, value) : value);
                }
            }
            if (place.whole) {
                reinterpret_cast<Word*>(to)[j] = out;
            } else if (inside) {
#pragma unroll
                for (int e = 0; e < word; ++e) {
                    const int x = place.x + j * word + e;
                    if (x >= place.low_x && x < place.high_x) to[j * word + e] = out.of[e];
                }
            }
        }
    }
}
