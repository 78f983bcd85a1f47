// palette_2d_registers.cu: heat conduction in a 2D body of up to 256 materials, TS_DEPTH steps by
// streaming tiles that stay in registers down the rows, coefficients in registers too.
//
// Idea    As stream_2d.cu, with rows of coefficients that enter and leave (registers_2d_rows.cuh). A
//         row that enters is looked up from its words and those of the row above. With copies of
//         the tables lanes that read at the same time have their own, and lookups no bank conflicts.
// Layout  As stream_2d.cu; words as palette_2d.cu, here with two buffers for each warp: the rows of
//         its patches at all levels of a tile, and of the next.
// Writes  the box, as stream_2d.cu.
// Limits  depth is a multiple of rows, which are at least 3; sources as a sum. Checked by PaletteTile.fits
//         in palette_2d.py.
// Order   registers_2d_rows.cuh. Bits depend on no tile along y.
// Test    tests/gpu/test_gpu_palette.py

#if !defined(TS_DEPTH) || !defined(TS_COLUMNS) || !defined(TS_ROWS) || !defined(TS_WARPS) || \
    !defined(TS_BLOCKS) || !defined(TS_EDGES) || !defined(TS_WRITTEN) || !defined(TS_MARGIN)
#error "palette_2d_registers.cu needs macros that gpu_kernels/stream/palette_tiles.py lists"
#endif
#include "common.cuh"

constexpr int reach_y = 1;
constexpr int rows = TS_ROWS;        // of a warp's patch
constexpr int columns = TS_COLUMNS;  // of a lane's patch

#include "stream_2d_tile.cuh"
#include "palette.cuh"
#include "palette_2d_words.cuh"
#include "registers_2d_rows.cuh"

static_assert(columns <= 6 && !has_sources && !has_curves, "see Limits");

constexpr int lines = depth + rows + 2;  // words of a warp's patches at all levels of a tile

#if TS_IDS <= 16
struct Tables {
    PairTable<real, copies> across;  // axis y
    PairTable<real, copies> along;   // axis x
    real rate[n_ids];

    static constexpr int unit = PairTable<real, copies>::unit;

    __device__ __forceinline__ void fill(const Palette<2>* palette) {
        fill_along<2>(across, palette, 0);
        fill_along<2>(along, palette, 1);
        if (threadIdx.x < n_ids) rate[threadIdx.x] = palette->rate[threadIdx.x];
    }
};
#else
using Tables = HalfCells<copies>;
#endif

struct Shared {
    real stages[warps][rows][width];
    real between[(warps - 1) * edges * edge];
    real history[(depth + 2) * edge];
    alignas(16) WordsOfRow words[2][warps][lines];
    Tables tables;
};

// Looks up the coefficients of a row from its ids and those of the row above.
struct Lookup {
    const Tables& tables;
    const Palette<2>* palette;
    int lane;

#if TS_IDS <= 16
    // Of the faces to the row above.
    __device__ __forceinline__ void across(const Ids& row, const Ids& above_it,
                                           real (&to)[columns]) const {
        const Pairs faces(row.of[0], above_it.of[0]);
#pragma unroll
        for (int c = 0; c < columns; ++c)
            to[c] = tables.across.at(faces.offset<Tables::unit>(c + 1), lane);
    }
    __device__ __forceinline__ void along(const Ids& row, real (&right)[columns],
                                          real (&rate)[columns]) const {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            right[c] = tables.along.at(offset_of_pair<Tables::unit>(row.of[0], c + 1), lane);
            rate[c] = at_offset(tables.rate, offset_of_id<sizeof(real)>(row.of[0], c + 1));
        }
    }
#else
    __device__ __forceinline__ void across(const Ids& row, const Ids& above_it,
                                           real (&to)[columns]) const {
#pragma unroll
        for (int c = 0; c < columns; ++c)
            to[c] = tables.between<0>(palette, above_it.id(c + 1), row.id(c + 1), lane);
    }
    __device__ __forceinline__ void along(const Ids& row, real (&right)[columns],
                                          real (&rate)[columns]) const {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            right[c] = tables.between<1>(palette, row.id(c + 1), row.id(c + 2), lane);
            rate[c] = tables.at(row.id(c + 1), lane).rate;
        }
    }
#endif
    __device__ __forceinline__ void enter(const Ids& row, const Ids& above_it,
                                          Coefficients& to, int slot) const {
        along(row, to.right[slot], to.rate[slot]);
        across(row, above_it, to.above[slot]);
    }
};

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    palette_2d_registers(const real* __restrict__ src, real* __restrict__ dst,
                         const __grid_constant__ Memory memory, const __grid_constant__ Box box,
                         const Palette<2>* __restrict__ palette, int chunk,
                         const unsigned* __restrict__ words,
                         const unsigned char* __restrict__ runs, int words_low, int words_count,
                         int anchor, const real* __restrict__, const SourcePlace, int TS_AND_SUM) {
    extern __shared__ __align__(128) unsigned char bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(bytes);
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    Edges edges_of_warp{shared.between, shared.history, warp};
    const Part part = part_of_block(box, chunk);

    shared.tables.fill(palette);
    __syncthreads();

    const StripOfWords strip(words, runs, words_low, words_count);
    const auto fetch_words = [&](int top, int buffer) {  // rows top - depth - 2 .. top + rows - 1
        strip.fetch<lines>(top - depth - 2, lane, [&](int p) -> WordsOfRow& {
            return shared.words[buffer][warp][p];
        });
    };
    const int base = aligned_down(part.low - depth, anchor);
    fetch_words(base + warp * rows, 0);
    int buffer = 0;

    const Lookup look{shared.tables, palette, lane};
    const auto finish = [](real value) { return value; };
    const auto levels = [&](real(&patch)[rows][columns], int top, auto, auto) {
        fetch_words(top + height, 1 - buffer);
        const WordsOfRow* const line = shared.words[buffer][warp];
        buffer = 1 - buffer;

        Coefficients coefficients;
#pragma unroll
        for (int i = -1; i < rows - 1; ++i) {
            const int slot = (i + rows) % rows;
            look.enter(Ids(line[depth + 2 + i], lane), Ids(line[depth + 1 + i], lane), coefficients,
                       slot);
        }
        look.across(Ids(line[depth + rows + 1], lane), Ids(line[depth + rows], lane),
                    coefficients.below);
        Ids entering(line[depth], lane);  // of row top - level - 2
        int number = 0;
        auto level = [&](auto shift) {
            Carry carry;
            const auto enter = [&](int slot) {
                const Ids above(line[depth - number - 1], lane);
                look.enter(entering, above, coefficients, slot);
                entering = above;
            };
            advance(patch, edges_of_warp.above(), edges_of_warp.below(), lane,
                    [&](int q, const real(&own)[columns]) {
                        consume<decltype(shift)::value>(patch, carry, coefficients, q, own, enter);
                    });
            edges_of_warp.next_level();
            ++number;
        };
#pragma unroll 1
        for (int turn = 0; turn < depth / rows; ++turn) for_each_shift(level);
    };
    const long long plane = box.low[0] * memory.plane;
    // Registers have no room for rows of a sum during a level.
    stream_tiles<Copies::between>(src + plane, dst + plane, plane_of_sum(sum_of_source, plane),
                                  memory, part, base, shared.stages[warp][0], lane, warp, finish,
                                  levels);
}
