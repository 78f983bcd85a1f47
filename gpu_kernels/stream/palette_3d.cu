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
    !defined(TS_BLOCKS)
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
constexpr int planes_of_state = ahead + 2;

struct Shared : SumRing<has_sum> {
    Plane state[planes_of_state];                // level 0, a ring, and the plane before
    Ends level[2 * (steps - 1) + (steps == 1)];  // levels 1, 2, ...: of this turn and of the next
    PlaneOfWords words[one_material ? 1 : kept];
    TablesInShared tables;
};

// Level 0 reads the plane before where it still lies, if it is the state that is needed of it.
struct StatePlanes : StateRows {
    const Plane& plane_before;

    __device__ __forceinline__ StatePlanes(const Plane& now, const Plane& before)
        : StateRows{now}, plane_before(before) {}
    __device__ __forceinline__ real before(const Place& place, const Points& was, int i,
                                           int c) const {
        if (begins_with_heat) return was[i][c];
        return plane_before.of[place.warp * rows + i][0][place.lane].of[c];
    }
    __device__ __forceinline__ void keep(Points& was, int i, int c, real value) const {
        if (begins_with_heat) was[i][c] = value;
    }
};

// Later levels keep it in registers.
struct LevelPlanes : LevelRows {
    __device__ __forceinline__ LevelPlanes(const Ends& ends, const Points& own)
        : LevelRows{ends, own} {}
    __device__ __forceinline__ real before(const Place&, const Points& was, int i, int c) const {
        return was[i][c];
    }
    __device__ __forceinline__ void keep(Points& was, int i, int c, real value) const {
        was[i][c] = value;
    }
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
    constexpr int delay = 3 * steps - 1;  // turns from a plane's arrival to its last level
    const int low_z = box.low[0] + blockIdx.z * planes, high_z = min(low_z + planes, box.high[0]);
    const int first_z = low_z - steps;  // first plane of the state that is read
    const int n_read = high_z + steps - first_z;

    const long long tile = (long long)(first_tile + blockIdx.y) * gridDim.x + blockIdx.x;
    const uint4* const my_words =
        words + tile * words_count * (pieces_of_words * 32 * warps) + threadIdx.x;
    const unsigned char* const my_ids = uniform + tile * words_count * warps + place.warp;
    const auto place_of_plane = [&](int n) {
        return clamp(first_z + n - words_low, 0, words_count);
    };
    const auto start_copies = [&](int n, int slot, int slot_of_words) {
        start_copy(src, memory, place, first_z + n, shared.state[slot]);
        if (one_material) return;
        const uint4* const from =
            my_words + (long long)place_of_plane(n) * (pieces_of_words * 32 * warps);
#pragma unroll
        for (int k = 0; k < pieces_of_words; ++k) {
            uint4* const to = &shared.words[slot_of_words][k][threadIdx.x];
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                             (unsigned)__cvta_generic_to_shared(to)),
                         "l"(from + k * (32 * warps)));
        }
    };
    const auto fetch = [&](int turn, int slot) {
        fetch_sum(sum_of_source, memory, place, low_z, high_z, turn - delay, shared, slot);
    };
    const auto id_of_plane = [&](int n) {
        if (one_material) return 0u;
        return unsigned(__ldg(my_ids + (long long)place_of_plane(n) * warps));
    };

    fill_tables(shared.tables, palette, sources, of_sources, row);
    // What lies before the first plane is read, and reaches nothing; but it must be ids.
    for (int k = 0; k < (one_material ? 0 : kept); ++k)
        for (int n = 0; n < pieces_of_words; ++n)
            shared.words[k][n][threadIdx.x] = make_uint4(0, 0, 0, 0);

    Points was[steps] = {}, sums[steps] = {};
    // what the level below finished in the turn before; level 0 stays in shared memory
    Points level[steps] = {};
#pragma unroll
    for (int n = 0; n < ahead; ++n) {
        start_copies(n, n, n);
        fetch(n, n);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    int slot = 0, slot_of_words = 0, slot_of_sum = 0;
    unsigned long long history = ~0ull;  // ids of planes, one byte each, the last one first
    unsigned next_id = id_of_plane(0);
#pragma unroll 1
    for (int turn = 0; turn < high_z - low_z + delay; ++turn) {
        history = history << 8 | next_id;
        next_id = id_of_plane(turn + 1);
        asm volatile("cp.async.wait_group %0;" ::"n"(ahead - 1) : "memory");
        __syncthreads();  // the plane is there, and nobody reads any more what this turn overwrites
        if (turn + ahead < n_read) {
            const int to = slot + ahead, words_to = slot_of_words + ahead;
            start_copies(turn + ahead, to < planes_of_state ? to : to - planes_of_state,
                         words_to < kept ? words_to : words_to - kept);
        }
        fetch(turn + ahead, slot_of_sum == 0 ? ahead : slot_of_sum - 1);
        asm volatile("cp.async.commit_group;" ::: "memory");
        // From the last level down: each leaves its finished plane where the level above has just
        // read its own.
#pragma unroll
        for (int s = steps - 1; s >= 0; --s) {
            const unsigned of_level = unsigned(history >> (16 * s));
            const int now = slot_of_words - 2 * s < 0 ? slot_of_words - 2 * s + kept
                                                      : slot_of_words - 2 * s;
            const int then = now == 0 ? kept - 1 : now - 1;
            const Turn told{shared.tables,
                            palette,
                            shared.words[one_material ? 0 : now],
                            shared.words[one_material ? 0 : then],
                            shared.tables.sources[has_sources ? s : 0],
                            common_id(of_level, 0),
                            common_id(of_level, 1)};
            Points finished;
            if (s == 0) {
                const StatePlanes below(shared.state[slot],
                                        shared.state[slot == 0 ? planes_of_state - 1 : slot - 1]);
                advance(below, place, told, was[s], sums[s], finished);
            } else {
                const LevelPlanes below(shared.level[2 * (s - 1) + turn % 2], level[s]);
                advance(below, place, told, was[s], sums[s], finished);
            }
            if (s < steps - 1) {
                show(finished, place, shared.level[2 * s + (turn + 1) % 2]);
                assign(level[s + 1], finished);
            } else if (turn >= delay) {
                store(finished, place, real(1), memory.row,
                      dst + (low_z + turn - delay) * memory.plane, shared, slot_of_sum);
            }
        }
        slot = slot == planes_of_state - 1 ? 0 : slot + 1;
        slot_of_words = slot_of_words == kept - 1 ? 0 : slot_of_words + 1;
        slot_of_sum = slot_of_sum == ahead ? 0 : slot_of_sum + 1;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");  // a box of few planes needs none of the last
}
