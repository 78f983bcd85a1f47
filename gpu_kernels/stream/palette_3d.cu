// palette_3d.cu: heat conduction in a 3D body of up to 16 materials, TS_STEPS steps per pass over
// memory.
//
// Idea    As stream_3d.cu: a block streams along z through a tile, a thread owns TS_ROWS rows of two
//         columns of every level. In each turn of a level a warp sees whether all that it reads of
//         two planes is of one material: then a step has constant weights, else conductances are
//         looked up for every face (palette_3d_rows.cuh). Ids come as words, 16 bytes per thread and
//         plane, copied beside the planes of the state.
// Layout  As stream_3d.cu. Words: [tile][plane - words_low][thread][left, column 0, column 1, right],
//         each the nibbles of rows -1 .. TS_ROWS. uniform: [tile][plane - words_low][warp], `mixed`
//         or the id (palette_words.cu). Tiles begin with row `first_y`, which is row `first_tile` of
//         those that words have.
// Writes  box, and nothing else.
// Limits  float64 (a thread's words have two columns), at most 6 rows (eight nibbles) and 3 steps
//         (bytes of what a turn is told). Seen to by palette_3d.py.
// Order   palette_3d_rows.cuh.
// Test    tests/gpu/test_gpu_palette.py

#if !defined(TS_STEPS) || !defined(TS_ROWS) || !defined(TS_WARPS) || !defined(TS_AHEAD) || \
    !defined(TS_BLOCKS)
#error "palette_3d.cu needs macros that gpu_kernels/stream/palette_tiles.py lists"
#endif
#include "common.cuh"

constexpr int radius_z = 1, radius_y = 1, radius_x = 1;
constexpr int steps = TS_STEPS;
constexpr bool scaled = false;
constexpr int columns = 2, rows = TS_ROWS;  // of a thread
constexpr int warps = TS_WARPS;
constexpr int ahead = TS_AHEAD;  // planes on their way from memory

#include "stream_3d_tile.cuh"
#include "palette.cuh"
#include "palette_3d_rows.cuh"

static_assert(rows <= 6 && steps <= 3, "see Limits");

constexpr int kept = 2 * steps + ahead;  // planes of words
constexpr int planes_of_state = ahead + 2;

struct Shared {
    Plane state[planes_of_state];                // level 0, a ring, and the plane before
    Ends level[2 * (steps - 1) + (steps == 1)];  // levels 1, 2, ...: of this turn and of the next
    uint4 words[kept][32 * warps];
    TablesInShared tables;
};

// Level 0 reads the plane before where it still lies.
struct StatePlanes : StateRows {
    const Plane& plane_before;

    __device__ __forceinline__ StatePlanes(const Plane& now, const Plane& before)
        : StateRows{now}, plane_before(before) {}
    __device__ __forceinline__ real before(const Place& place, const Points&, int i, int c) const {
        return plane_before.of[place.warp * rows + i][0][place.lane].of[c];
    }
    __device__ __forceinline__ void keep(Points&, int, int, real) const {}
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

// One plane of one level: `finished` is the plane before it, of the next level.
template <class Rows>
__device__ __forceinline__ void advance(const Rows& source, const Place& place, const Turn& turn,
                                        Points& was, Points& sums, Points& finished) {
    if (turn.id != mixed) {
        const real(&one)[8] = turn.tables.uniform[turn.id];
        const Uniform uniform{one[0], one[1], one[2], one[3],
                              has_sources ? mul_real(one[4], turn.sources[turn.id]) : real(0)};
        if (turn.id_before == mixed) make_sums(source, place, turn, was, sums);
        real two_before[columns] = {}, row_before[columns] = {};
        uniform_rows<-1>(source, place, uniform, two_before, row_before, was, sums, finished);
    } else {
        if (turn.id_before != mixed) make_fluxes(source, place, turn, was, sums);
        const uint4 now = turn.words, then = turn.words_before;
        const Pairs right_of[2] = {Pairs(now.y, now.z), Pairs(now.z, now.w)};
        const Pairs behind[2] = {Pairs(now.y, then.y), Pairs(now.z, then.z)};
        real row_before[columns] = {};
        mixed_rows<-1>(source, place, turn, right_of, behind, row_before, was, sums, finished);
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
    fill_across<3>(tables.across, palette, 0);
    fill_along<3>(tables.along_y, palette, 1);
    fill_along<3>(tables.along_x, palette, 2);
    fill_sources<steps>(tables.sources, sources, of_sources, row);
    const int id = threadIdx.x;
    if (id >= n_ids) return;
    const real conductance = palette->conductance[0][id][id], rate = palette->rate[id];
    const real numbers[8] = {palette->weight[0][id], palette->weight[1][id], palette->weight[2][id],
                             palette->centre[id], rate, conductance,
                             conductance == 0 ? real(0) : 1 / conductance,
                             rate == 0 ? real(0) : 1 / rate};
    for (int k = 0; k < 8; ++k) tables.uniform[id][k] = numbers[k];
}

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    palette_3d(const real* __restrict__ src, real* __restrict__ dst,
               const __grid_constant__ Memory memory, const __grid_constant__ Box box,
               const Palette<3>* __restrict__ palette, int planes,
               const uint4* __restrict__ words, const unsigned char* __restrict__ uniform,
               int words_low, int words_count, int first_y, int first_tile,
               const real* __restrict__ sources,
               const __grid_constant__ SourcePlace of_sources, int row) {
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
    const Place place = place_of_thread(box, first_y, box.low[2]);
    if (place.low_y >= place.high_y) return;  // a spare one
    constexpr int delay = 3 * steps - 1;  // turns from a plane's arrival to its last level
    const int low_z = box.low[0] + blockIdx.z * planes, high_z = min(low_z + planes, box.high[0]);
    const int first_z = low_z - steps;  // first plane of the state that is read
    const int n_read = high_z + steps - first_z;

    const long long tile = (long long)(first_tile + blockIdx.y) * gridDim.x + blockIdx.x;
    const uint4* const my_words = words + tile * words_count * (32 * warps) + threadIdx.x;
    const unsigned char* const my_ids = uniform + tile * words_count * warps + place.warp;
    const auto place_of_plane = [&](int n) {
        return clamp(first_z + n - words_low, 0, words_count);
    };
    const auto start_copies = [&](int n, int slot, int slot_of_words) {
        start_copy(src, memory, place, first_z + n, shared.state[slot]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((
                         unsigned)__cvta_generic_to_shared(&shared.words[slot_of_words][threadIdx.x])),
                     "l"(my_words + (long long)place_of_plane(n) * (32 * warps)));
    };
    const auto id_of_plane = [&](int n) {
        return unsigned(__ldg(my_ids + (long long)place_of_plane(n) * warps));
    };

    fill_tables(shared.tables, palette, sources, of_sources, row);
    // What lies before the first plane is read, and reaches nothing; but it must be ids.
    for (int k = 0; k < kept; ++k) shared.words[k][threadIdx.x] = make_uint4(0, 0, 0, 0);

    Points was[steps] = {}, sums[steps] = {};
    // what the level below finished in the turn before; level 0 stays in shared memory
    Points level[steps] = {};
#pragma unroll
    for (int n = 0; n < ahead; ++n) {
        start_copies(n, n, n);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    int slot = 0, slot_of_words = 0;
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
                            shared.words[now][threadIdx.x],
                            shared.words[then][threadIdx.x],
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
                      dst + (low_z + turn - delay) * memory.plane);
            }
        }
        slot = slot == planes_of_state - 1 ? 0 : slot + 1;
        slot_of_words = slot_of_words == kept - 1 ? 0 : slot_of_words + 1;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");  // a box of few planes needs none of the last
}
