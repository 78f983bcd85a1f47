// frame_conduction.cu: advance points near a face of a body by TS_DEPTH steps at once, step by step
// in shared memory.
//
// Idea    As frame.cu. When a level is complete, the rules of the faces make the ghosts beyond them,
//         with the numbers of the step that reads these; on a line each point that has ghosts makes
//         them. Ids come into shared memory once; where
//         states are heat contents, so do potentials, once per point and step.
// Layout  As frame.cu: two levels of states, behind two of potentials if there are any, then ids; all
//         of `capacity` points. Coefficients and codes are read where they lie.
// Writes  The points of its tiles.
// Limits  Those of frame.cu.
// Order   See body.cuh: the bits are those of conduction.cu.
// Test    tests/gpu/test_gpu_conduction.py

#if !defined(TS_REAL) || !defined(TS_DEPTH)
#error "frame_conduction.cu needs -DTS_REAL, -DTS_DEPTH and what body.cuh and rules.cuh need"
#endif
#include "body.cuh"

constexpr int depth = TS_DEPTH;
constexpr int few = 4;                          // points that a thread loads at once
constexpr int few_made = has_enthalpy ? 1 : is_alike ? 4 : 2;  // and makes: these need registers
constexpr bool is_line = first_axis == 2;
__constant__ constexpr int radii[3] = {first_axis <= 0, first_axis <= 1, 1};
#include "frame.cuh"

// The points of a tile before a step.
struct Level {
    real* states;
    wide* potentials;  // where states are heat contents
};

// Keeps what a point has before a step.
__device__ __forceinline__ void put(const Level& level, const Body& body, int at, int id,
    real value) {
    level.states[at] = value;
    if (has_enthalpy) level.potentials[at] = piece_of(body, id, widen(value)).potential();
}

// A ghost that follows from its mirror point at `index`, `apart` from it in shared memory.
__device__ __forceinline__ void put_ghost(const Level& level, const Body& body, const Face& face,
    const int (&index)[3], int id, int step, int at, int apart) {
    const real ghost = ghost_beyond(body, face, index, id, step, level.states[at]);
    level.states[at + apart] = ghost;
    if (has_enthalpy) level.potentials[at + apart] = widen(ghost);
}

// On a line, the ghosts that follow from a point that its thread has just put: to wait for others
// and then find out who follows which rule would take longer than a step.
__device__ __forceinline__ void put_ghosts_of(const Level& level, const Span& all,
    const Body& body, int i, int j, int k, int at, int id, int step) {
    const int index[3] = {i, j, k};
    if (k == body.inside.low[2] && k > all.low[2])
        put_ghost(level, body, body.faces[4], index, id, step, at, -1);
    if (k == body.inside.high[2] - 1 && k < all.low[2] + all.n[2] - 1)
        put_ghost(level, body, body.faces[5], index, id, step, at, 1);
}

// The ghosts beyond the faces that follow from the points of a level: a rule takes as long as many
// points, so all threads of the block follow rules at the same time.
__device__ __forceinline__ void put_ghosts(const Level& level, const Span& all, const Span& kept,
    const Body& body, const Id* ids, int step) {
#pragma unroll 1
    for (int face = 2 * first_axis; face < 6; face++) {
        const int d = face / 2, shift = face % 2 == 0 ? -1 : 1;
        Span mirrors = kept;
#pragma unroll
        for (int e = first_axis; e < 3; e++) {
            if (e != d) continue;
            mirrors.low[e] = shift < 0 ? body.inside.low[e] : body.inside.high[e] - 1;
            mirrors.n[e] = 1;
            const int from_low = mirrors.low[e] - kept.low[e];
            const int ghost = mirrors.low[e] + shift - all.low[e];
            if (from_low < 0 || from_low >= kept.n[e] || ghost < 0 || ghost >= all.n[e])
                mirrors.n[0] = 0;
        }
        const int apart = d == 0 ? all.n[1] * all.n[2] : d == 1 ? all.n[2] : 1;
        if (mirrors.n[0] == 0) continue;
        for_each(mirrors, [&](int i, int j, int k) {
            const int index[3] = {i, j, k}, at = place(all, i, j, k);
            const int id = is_alike ? 0 : ids[at];
            put_ghost(level, body, body.faces[face], index, id, step, at, shift * apart);
        });
    }
}

// What a step reads of a point and those next to it, from shared memory.
struct InTile {
    const Body& body;
    const Level& level;
    const Id* ids;
    int at;
    const int (&apart)[3];

    __device__ __forceinline__ int id() const { return ids[at]; }
    __device__ __forceinline__ int id(int d, int shift) const { return ids[at + shift * apart[d]]; }
    __device__ __forceinline__ wide state(int d, int shift) const {
        return widen(level.states[at + shift * apart[d]]);
    }
    __device__ __forceinline__ Flow flow(
        int d, int shift, bool is_ghost, long long face) const {
        const wide* const kinds = body.tables + body.knots + 7 * body.n_ids * body.n_pieces;
        const int own = id(), beside = id(d, shift);
        if (is_ghost || kinds[own] == kinds[beside])
            return {level.potentials[at + shift * apart[d]] - level.potentials[at], true};
        const Piece mine = piece_of(body, own, widen(level.states[at]));
        return flow_between(body, d, own, beside, mine, state(d, shift), false, face, shift);
    }
};

extern "C" __global__ void __launch_bounds__(256)
    frame_conduction(const real* __restrict__ src, real* __restrict__ dst,
        const __grid_constant__ Memory memory, const Box* __restrict__ tiles,
        const __grid_constant__ Body body, const int step, const int capacity) {
    extern __shared__ double shared[];  // of the widest type, for its alignment
    __shared__ Span all;
    const Box tile = tiles[blockIdx.x];
    if (threadIdx.x == 0) all = needed(tile, body.inside, depth, 1);
    __syncthreads();  // all threads read it
    wide* const potentials = reinterpret_cast<wide*>(shared);
    real* const states = reinterpret_cast<real*>(potentials + (has_enthalpy ? 2 * capacity : 0));
    Id* const ids = reinterpret_cast<Id*>(states + 2 * capacity);
    Level now{states, potentials}, then{states + capacity, potentials + capacity};
    if (!is_alike) {
        for_each_in<few>(
            all, all,
            [&](int i, int j, int k, int) { return body.ids[point_at(memory, i, j, k).at]; },
            [&](int, int, int, int at, Id id) { ids[at] = id; });
        __syncthreads();  // other threads read them
    }
    const auto put_made = [&](const Level& level, int i, int j, int k, int at, real value,
                              int number) {
        const int id = is_alike ? 0 : ids[at];
        put(level, body, at, id, value);
        if (is_line) put_ghosts_of(level, all, body, i, j, k, at, id, number);
    };
    const auto put_all_ghosts = [&](const Level& level, const Span& kept, int number) {
        if (is_line) return;
        __syncthreads();  // rules read what other threads put
        put_ghosts(level, all, kept, body, ids, number);
    };
    for_each_in<few>(
        all, needed(tile, body.inside, depth, 0),
        [&](int i, int j, int k, int) {
            return src[wrapped(i, body.period[0]) * memory.plane +
                       wrapped(j, body.period[1]) * memory.row + wrapped(k, body.period[2])];
        },
        [&](int i, int j, int k, int at, real value) { put_made(now, i, j, k, at, value, step); });
    put_all_ghosts(now, needed(tile, body.inside, depth, 0), step);

    const long long stride[3] = {memory.plane, memory.row, 1};
    const int apart[3] = {all.n[1] * all.n[2], all.n[2], 1};  // in shared memory
    const auto after = [&](const Level& level, int i, int j, int k, int at, int number) {
        const InTile around{body, level, ids, at, apart};
        return conducted_in<false>(body, point_at(memory, i, j, k), stride, number,
            widen(level.states[at]), around);
    };
    for (int later = depth - 1; later > 0; later--) {
        __syncthreads();  // a step reads what other threads wrote
        const int made = depth - 1 - later;
        const Span kept = needed(tile, body.inside, later, 0);
        for_each_in<few_made>(
            all, kept,
            [&](int i, int j, int k, int at) { return after(now, i, j, k, at, step + made); },
            [&](int i, int j, int k, int at, real value) {
                put_made(then, i, j, k, at, value, step + made + 1);
            });
        put_all_ghosts(then, kept, step + made + 1);
        const Level written = then;
        then = now;
        now = written;
    }
    __syncthreads();  // as above
    for_each_in<few_made>(
        all, needed(tile, body.inside, 0, 0),
        [&](int i, int j, int k, int at) { return after(now, i, j, k, at, step + depth - 1); },
        [&](int i, int j, int k, int, real value) {
            dst[i * memory.plane + j * memory.row + k] = value;
        });
}
