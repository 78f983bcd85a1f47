// palette_2d.cu: heat conduction in a 2D body of up to 256 materials, TS_DEPTH steps by streaming
// tiles that stay in registers down the rows.
//
// Idea    As stream_2d.cu. At every level each warp sees whether its patch and all that it reads
//         are of one material: then a step has constant weights, else conductances are looked up
//         for every face (palette_2d_rows.cuh). Ids come as words, one or two per lane and row, copied
//         into a ring in shared memory beside the rows. `runs` says of each strip and row whether the
//         rows that a patch reads from there on are of one id.
// Layout  As stream_2d.cu; then the ring of words, tables, and sources by level and id. Words:
//         [strip][row - words_low][lane], nibbles or bytes left, own columns, right. Runs:
//         [strip][row - words_low], `mixed` or the id (palette_words.cu).
// Writes  the box, as stream_2d.cu. `anchor` is the number of row 0 in the whole grid: patches
//         begin at multiples of `rows` there at level 0, so that no bit depends on where the grid
//         is cut.
// Limits  6 columns a lane: eight ids. depth <= 32 and rows >= 2 (PaletteTile.fits in
//         palette_2d.py). Words and runs begin with a strip at box.low[2].
// Order   palette_2d_rows.cuh.
// Test    tests/gpu/test_gpu_palette.py

#if !defined(TS_DEPTH) || !defined(TS_COLUMNS) || !defined(TS_ROWS) || !defined(TS_WARPS) || \
    !defined(TS_BLOCKS) || !defined(TS_EDGES) || !defined(TS_WRITTEN) || !defined(TS_MARGIN)
#error "palette_2d.cu needs macros that gpu_kernels/stream/palette_tiles.py lists"
#endif
#include "common.cuh"

constexpr int reach_y = 1;
constexpr int rows = TS_ROWS;        // of a warp's patch
constexpr int columns = TS_COLUMNS;  // of a lane's patch

#include "stream_2d_tile.cuh"
#include "palette.cuh"
#include "palette_2d_words.cuh"
#include "palette_2d_rows.cuh"
#if TS_PIECES > 0
#include "palette_2d_heat.cuh"
#else
#include "palette_2d_uniform.cuh"
#endif

static_assert(columns <= 6 && depth <= 32 && rows >= 2, "see Limits");

// Rows of words: those of two tiles, and what the last level still reads above.
constexpr int ring = 2 * height + depth + 2;

struct Shared {
    real stages[warps][rows][width];
    real between[(warps - 1) * edges * edge];
    real history[(depth + 2) * edge];
    alignas(16) WordsOfRow words[ring];
    TablesInShared tables;
};

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    palette_2d(const real* __restrict__ src, real* __restrict__ dst,
               const __grid_constant__ Memory memory, const __grid_constant__ Box box,
               const Palette<2>* __restrict__ palette, int chunk,
               const unsigned* __restrict__ words, const unsigned char* __restrict__ runs,
               int words_low, int words_count, int anchor, const real* __restrict__ sources,
               const __grid_constant__ SourcePlace of_sources, int row TS_AND_SUM) {
    extern __shared__ __align__(128) unsigned char bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(bytes);
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    Edges edges_of_warp{shared.between, shared.history, warp};
    const Part part = part_of_block(box, chunk);

    shared.tables.fill_faces(palette);
    fill_sources<depth>(shared.tables.sources, sources, of_sources, row);
    for (int id = threadIdx.x; id < n_ids; id += 32 * warps) {
        real(&one)[4] = shared.tables.uniform[id];
        one[0] = palette->weight[0][id];
        one[1] = palette->weight[1][id];
        one[2] = palette->centre[id];
        one[3] = palette->rate[id];
    }
#if TS_PIECES > 0
    shared.tables.fill(curves_of(palette));
#endif
    // What lies above the first tile is read, and reaches nothing; but it must be ids.
    for (int row = warp; row < ring; row += warps)
        for (int e = lane; e < 32 * words_of_lane; e += 32) shared.words[row][e] = 0;
    __syncthreads();

    const int base = aligned_down(part.low - depth, anchor);
    const StripOfWords strip(words, runs, words_low, words_count);
    int place = warp * rows;  // of the patch's slot 0 at level 0 in the ring
    const auto fetch_words = [&](int row, int at) {
        strip.fetch<rows>(row, lane, [&](int p) -> WordsOfRow& {
            return shared.words[at + p < ring ? at + p : at + p - ring];
        });
    };
    fetch_words(base + warp * rows, place);
    unsigned next_run = strip.run(base + warp * rows - lane - 2);

    const auto finish = [](real value) { return value; };
    const auto levels = [&](real(&patch)[rows][columns], int top, auto copies, auto) {
        const unsigned run = next_run;  // lane l has that of level l
        next_run = strip.run(top + height - lane - 2);
#pragma unroll 1
        for (int level = 0; level < depth; ++level, edges_of_warp.next_level()) {
            const auto added = begin_copies(copies, level);
            const real* above = edges_of_warp.above();
            real* below = edges_of_warp.below();
            const unsigned id = __shfl_sync(~0u, run, level);
            const Look look{shared.tables, palette, level, lane};
            if (id != mixed) {
                advance_uniform(patch, above, below, look, id);
            } else {
                const int first = place < level + 2 ? place - level - 2 + ring : place - level - 2;
                MixedCarry carry;
                advance(patch, above, below, lane, [&](int q, const real(&own)[columns]) {
                    const unsigned slot = first + q + 2;
                    const Ids ids(shared.words[min(slot, slot - ring)], lane);
                    consume_mixed(patch, carry, q, own, ids, look);
                });
            }
            end_copies(copies, level, added);
            // Every warp has passed a barrier of this tile, and needs no words of the one before.
            if (level == 0) {
                const int next = place + height < ring ? place + height : place + height - ring;
                fetch_words(top + height, next);
            }
        }
        place = place + height < ring ? place + height : place + height - ring;
    };
    const long long plane = box.low[0] * memory.plane;
    stream_tiles<has_sum ? Copies::by_level : Copies::between>(
        src + plane, dst + plane, plane_of_sum(sum_of_source, plane), memory, part, base,
        shared.stages[warp][0], lane, warp, finish, levels);
}
