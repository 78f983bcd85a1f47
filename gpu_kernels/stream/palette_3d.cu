// palette_3d.cu: heat conduction in a 3D body of up to 256 materials, TS_STEPS steps per pass over
// memory.
//
// Idea    As stream_3d.cu: a block streams along z through a tile, a thread owns TS_ROWS rows of
//         TS_COLUMNS columns of every level. In each turn of a level a warp sees whether all that it reads of
//         two planes is of one material: then a step has constant weights, else conductances are
//         looked up for every face (palette_3d_rows.cuh). Ids come as words, 16 to 48 bytes per thread
//         and plane, copied beside the planes of the state; a body of one material has none.
//         States are temperatures, or heat contents (palette_curves.cuh).
// Layout  As stream_3d.cu. Words: [tile][plane - words_low][16 bytes][thread] (palette_3d_faces.cuh). uniform: [tile][plane - words_low][warp], `mixed`
//         or the id (palette_words.cu). Tiles begin with row `first_y`, which is row `first_tile` of
//         those that words have.
// Writes  box, and nothing else.
// Limits  Columns are 16 bytes of numbers; at most 6 rows (eight nibbles or bytes) and 3 steps
//         (bytes of what a turn is told). Seen to by palette_3d.py.
// Order   palette_3d_rows.cuh.
// Test    tests/gpu/test_gpu_palette.py

#if !defined(TS_STEPS) || !defined(TS_COLUMNS) || !defined(TS_ROWS) || !defined(TS_WARPS) || !defined(TS_AHEAD) || \
    !defined(TS_BLOCKS) || !defined(TS_UNROLLED)
#error "palette_3d.cu needs macros that gpu_kernels/stream/palette_tiles.py lists"
#endif
#include "common.cuh"

constexpr int radius_z = 1, radius_y = 1, radius_x = 1;
constexpr int steps = TS_STEPS;
constexpr bool scaled = false;
constexpr int columns = TS_COLUMNS, rows = TS_ROWS;  // of a thread
constexpr int warps = TS_WARPS;
constexpr int ahead = TS_AHEAD;  // planes on their way from memory

#include "stream_3d_tile.cuh"
#include "palette.cuh"
#include "palette_3d_rows.cuh"

static_assert(rows <= 6 && steps <= 3, "see Limits");

constexpr int kept = 2 * steps + ahead;  // planes of words
// The plane before still lies in shared memory, if it is the state that is needed of it.
constexpr bool pipelined = true, reads_before = !begins_with_heat;

#include "stream_3d_turns.cuh"

struct Shared {
    Stages stages;
    PlaneOfWords words[one_material ? 1 : kept];
    TablesInShared tables;
};

// A plane whose points and those of the plane before are all of `turn.id`.
template <class Rows>
__device__ __forceinline__ void advance_uniform(const Rows& source, const Place& place,
                                                const Turn& turn, Points& was, Points& sums,
                                                Points& finished) {
    const unsigned id = one_material ? 0 : turn.id;
    const real(&one)[8] = turn.tables.uniform[id];
    const real source_there = has_sources ? turn.sources[id] : real(0);
    real two_before[columns] = {};
#if TS_PIECES > 0
    const UniformHeat uniform{one[0], one[1], one[2], one[4], source_there};
    const auto& curve = turn.tables.of_id(id);
    Point row_before[columns] = {};
    const auto rows_on = [&](const auto& line) {
        uniform_heat_rows<-1>(source, place, uniform, line, curve, two_before, row_before, was,
                              sums, finished);
    };
    if constexpr (searched) {
        Line line;
        if (extremes_of(source, place).on_one_line(curve, line)) {
            rows_on(line);
            return;
        }
    }
    rows_on(curve);
#else
    const Uniform uniform{one[0], one[1], one[2], one[3],
                          has_sources ? mul_real(one[4], source_there) : real(0)};
    real row_before[columns] = {};
    uniform_rows<-1>(source, place, uniform, two_before, row_before, was, sums, finished);
#endif
}

// One plane of one level: `finished` is the plane before it, of the next level.
template <class Rows>
__device__ __forceinline__ void advance(const Rows& source, const Place& place, const Turn& turn,
                                        Points& was, Points& sums, Points& finished) {
    if (one_material || turn.id != mixed) {
        // Fluxes of heat contents are the same numbers either way.
        if (!one_material && !has_curves && turn.id_before == mixed) {
            make_sums(source, place, turn, was, sums);
        }
        advance_uniform(source, place, turn, was, sums, finished);
    } else {
        if (!has_curves && turn.id_before != mixed) make_fluxes(source, place, turn, was, sums);
        const Faces faces(turn);
        Point row_before[columns] = {};
        mixed_rows<-1>(source, place, turn, faces, row_before, was, sums, finished);
    }
}

// The id that bytes n and n + 1 of the history of a warp have in common, or `mixed`.
__device__ __forceinline__ unsigned common_id(unsigned history, int n) {
    const unsigned one = history >> (8 * n) & 255u, other = history >> (8 * n + 8) & 255u;
    return one == other ? one : mixed;
}

__device__ __forceinline__ void fill_tables(TablesInShared& tables, const Palette<3>* palette,
                                            const real* __restrict__ sources,
                                            const SourcePlace& of_sources, int row) {
    fill_faces(tables, palette);
    const real unit = unit_of(palette);
    fill_sources<steps>(tables.sources, sources, of_sources, row, unit);
#if TS_PIECES > 0
    tables.fill(curves_of(palette));
#endif
    for (int id = threadIdx.x; id < n_ids; id += blockDim.x) {
        real(&one)[8] = tables.uniform[id];
        const real conductance = palette->conductance[0][id][id], rate = palette->rate[id];
        for (int axis = 0; axis < 3; ++axis) {
            one[axis] = has_curves ? unit * palette->conductance[axis][id][id]
                                   : palette->weight[axis][id];
        }
        one[3] = palette->centre[id];
        one[4] = rate;
        one[5] = conductance;
        one[6] = conductance == 0 ? real(0) : 1 / conductance;
        one[7] = rate == 0 ? real(0) : 1 / rate;
    }
}

// What a step is: words beside the planes of the state, and the ids of what a warp reads of them.
struct Step {
    Shared& shared;
    const Palette<3>* palette;
    const uint4* words;         // of this thread, from the first plane of the words on
    const unsigned char* ids;   // of this warp
    int before, count;          // planes of words before the first that is read, and all of them
    unsigned long long history;  // ids of planes, one byte each, the last one first
    unsigned next_id;

    __device__ __forceinline__ int place_of_plane(int n) const {
        return clamp(before + n, 0, count);
    }
    __device__ __forceinline__ unsigned id_of_plane(int n) const {
        if (one_material) return 0u;
        return unsigned(__ldg(ids + (long long)place_of_plane(n) * warps));
    }
    __device__ __forceinline__ void start_copies(int n, int slot) const {
        if (one_material) return;
        const uint4* const from =
            words + (long long)place_of_plane(n) * (pieces_of_words * 32 * warps);
#pragma unroll
        for (int k = 0; k < pieces_of_words; ++k) {
            uint4* const to = &shared.words[slot][k][threadIdx.x];
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                             (unsigned)__cvta_generic_to_shared(to)),
                         "l"(from + k * (32 * warps)));
        }
    }
    __device__ __forceinline__ void begin(int turn) {
        history = history << 8 | next_id;
        next_id = id_of_plane(turn + 1);
    }
    template <class Rows>
    __device__ __forceinline__ void advance(const Rows& source, const Place& place,
                                            const Arrival& arrival, Points (&waiting)[unfinished],
                                            Points& finished) const {
        const int s = arrival.level;
        const unsigned of_level = unsigned(history >> (16 * s));
        const Turn told{shared.tables,
                        palette,
                        shared.words[one_material ? 0 : arrival.now],
                        shared.words[one_material ? 0 : arrival.before],
                        shared.tables.sources[has_sources ? s : 0],
                        common_id(of_level, 0),
                        common_id(of_level, 1)};
        ::advance(source, place, told, waiting[0], waiting[1], finished);
    }
};

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    palette_3d(const real* __restrict__ src, real* __restrict__ dst,
               const __grid_constant__ Memory memory, const __grid_constant__ Box box,
               const Palette<3>* __restrict__ palette, int planes,
               const uint4* __restrict__ words, const unsigned char* __restrict__ uniform,
               int words_low, int words_count, int first_y, int first_tile,
               const real* __restrict__ sources,
               const __grid_constant__ SourcePlace of_sources, int row TS_AND_SUM) {
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
    const Place place = place_of_thread(box, first_y, box.low[2]);
    if (place.low_y >= place.high_y) return;  // a spare one
    const int low_z = box.low[0] + blockIdx.z * planes, high_z = min(low_z + planes, box.high[0]);
    const long long tile =
        ((long long)(first_tile + blockIdx.y) * gridDim.x + blockIdx.x) * words_count;
    Step step{shared,
              palette,
              words + tile * (pieces_of_words * 32 * warps) + threadIdx.x,
              uniform + tile * warps + place.warp,
              low_z - steps - words_low,
              words_count,
              ~0ull,
              0};
    step.next_id = step.id_of_plane(0);

    fill_tables(shared.tables, palette, sources, of_sources, row);
    // What lies before the first plane is read, and reaches nothing; but it must be ids.
    for (int k = 0; k < (one_material ? 0 : kept); ++k)
        for (int n = 0; n < pieces_of_words; ++n)
            shared.words[k][n][threadIdx.x] = make_uint4(0, 0, 0, 0);
    stream_planes(src, dst, sum_of_source, memory, place, low_z, high_z, real(1), shared.stages,
                  step);
}
