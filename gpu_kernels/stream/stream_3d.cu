// stream_3d.cu: advance a 3D stencil TS_STEPS steps per pass over memory, any offsets, any weights.
//
// Idea    A block streams along z through a tile of x and y. Planes of the state arrive in shared
//         memory by asynchronous copies, some planes ahead. A thread owns TS_ROWS rows of
//         TS_COLUMNS columns of every level, in registers. When a plane of a level is there, the
//         thread adds what it gives to the 2 * radius_z + 1 planes around it (stream_3d_sums.cuh),
//         whose unfinished sums are registers too; the last of them is then finished and is the
//         next plane of the level above. A level works on what the one below finished in the turn
//         before: so nothing in a turn waits for anything else in it, and one barrier a turn serves
//         all levels. Rows of other warps come through shared memory, columns of other lanes by
//         shuffle (stream_3d_tile.cuh). How many planes a block writes is chosen at launch
//         (`Stream` of fused/kernel.py). Level s is carried divided by w^s, w being the weight of
//         the first tap: a sum begins with that point as it is, and a point and step is one FMA for
//         each other tap. TS_SCALED=0 keeps the multiplication.
//         Of a star of radius 1 along z the newest sum is its plane times a weight: TS_HELD levels
//         keep none, but find the plane again in shared memory, level 0 in the ring of the state.
//         With the registers that are left tiles have room for four steps.
// Layout  A tile is 32 * TS_COLUMNS columns by TS_WARPS * TS_ROWS rows; each step spoils `radius`
//         points all around it.
// Writes  box, and nothing else.
// Limits  TS_COLUMNS is whole 16-byte words; with more than one step, radius_y <= TS_ROWS
//         (neighbours lie in the next warp). Seen to by method.py. On an H200 the power limit
//         bounds heat-3d and box-3d27p: at 660 to 685 W the clock falls to 1.4 to 1.7 GHz
//         (2026-11-21), so fewer operations and bytes count for more than latency.
// Test    tests/gpu/test_gpu_against_reference.py

#if !defined(TS_TAPS) || !defined(TS_N_TAPS) || !defined(TS_RADIUS_Z) || !defined(TS_RADIUS_Y) || \
    !defined(TS_RADIUS_X) || !defined(TS_STEPS) || !defined(TS_SCALED) || !defined(TS_FOLDED) || \
    !defined(TS_COLUMNS) || !defined(TS_ROWS) || !defined(TS_WARPS) || !defined(TS_AHEAD) || \
    !defined(TS_BLOCKS) || !defined(TS_N_WEIGHTS) || !defined(TS_HELD)
#error "stream_3d.cu needs macros that gpu_kernels/stream/method.py lists"
#endif
#include "common.cuh"

constexpr int n_taps = TS_N_TAPS;
constexpr int taps[n_taps][3] = TS_TAPS;  // dz, dy, dx
constexpr int radius_z = TS_RADIUS_Z, radius_y = TS_RADIUS_Y, radius_x = TS_RADIUS_X;
constexpr int steps = TS_STEPS;
constexpr bool scaled = TS_SCALED, folded = TS_FOLDED;
constexpr int columns = TS_COLUMNS, rows = TS_ROWS;  // of a thread
constexpr int warps = TS_WARPS;
constexpr int ahead = TS_AHEAD;  // planes on their way from memory
constexpr int held = TS_HELD;    // levels whose newest sum is made anew
constexpr int planes_of_state = ahead + 1 + (held > 0);
constexpr int line = 128 / sizeof(real);

// TS_N_TAPS factors in the order of the sum, then what brings the last level back to scale.
struct Weights {
    real w[TS_N_WEIGHTS];
};

#include "stream_3d_tile.cuh"
#include "stream_3d_sums.cuh"

template <int levels>
struct HeldPlanes {
    Plane of_level[levels];  // level 1, 2, ...: those of the turn before
};
template <>
struct HeldPlanes<0> {};

struct Shared : SumRing<has_sum>, HeldPlanes<(held > 1 ? held - 1 : 0)> {
    Plane state[planes_of_state];                // level 0, a ring
    Ends level[2 * (steps - 1) + (steps == 1)];  // levels 1, 2, ...: of this turn and of the next
};

// Make the newest sum of a level anew, and keep its plane for the next turn, if it holds none.
template <class In>
__device__ __forceinline__ void begin_sum(const In& shared, int level, int slot, const Place& place,
                                          const Weights& weights, Points& sum) {
    if (held && level == 0)
        begin_sum(shared.state[slot == 0 ? planes_of_state - 1 : slot - 1], place, weights, sum);
    if constexpr (held > 1) {
        if (level > 0 && level < held)
            begin_sum(shared.of_level[level - 1], place, weights, sum);
    }
}

template <class In>
__device__ __forceinline__ void hold(const Points& plane, int level, const Place& place,
                                     In& shared) {
    if constexpr (held > 1) {
        if (level > 0 && level < held) hold(plane, place, shared.of_level[level - 1]);
    }
}

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    stream_3d(const real* __restrict__ src, real* __restrict__ dst, Memory memory, Box box,
              Weights weights, int planes TS_AND_SUM) {
    extern __shared__ __align__(128) char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
    // Tiles begin where lines of memory do, the box where its first sector does.
    const Place place = place_of_thread(box, box.low[1], box.low[2] & -line);
    // turns from a plane's arrival to its last level
    constexpr int delay = 2 * steps * radius_z + steps - 1;
    const int low_z = box.low[0] + blockIdx.z * planes, high_z = min(low_z + planes, box.high[0]);
    const int first_z = low_z - steps * radius_z;  // first plane of the state that is read
    const int n_read = high_z + steps * radius_z - first_z;

    const auto fetch = [&](int turn, int slot) {
        fetch_sum(sum_of_source, memory, place, low_z, high_z, turn - delay, shared, slot);
    };

    Points waiting[steps][unfinished] = {};
    // what the level below finished in the turn before; level 0 stays in shared memory
    Points level[steps] = {};
#pragma unroll
    for (int n = 0; n < ahead; ++n) {
        start_copy(src, memory, place, first_z + n, shared.state[n]);
        fetch(n, n);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
#pragma unroll
    for (int s = 0; s < steps; ++s) hold(level[s], s, place, shared);
    int slot = 0, slot_of_sum = 0;
#pragma unroll 1
    for (int turn = 0; turn < high_z - low_z + delay; ++turn) {
        asm volatile("cp.async.wait_group %0;" ::"n"(ahead - 1) : "memory");
        __syncthreads();  // the plane is there, and nobody reads any more what this turn overwrites
        if (turn + ahead < n_read) {
            const int far = slot + ahead, next = far < planes_of_state ? far : far - planes_of_state;
            start_copy(src, memory, place, first_z + turn + ahead,
                       shared.state[held ? next : slot == 0 ? ahead : slot - 1]);
        }
        fetch(turn + ahead, slot_of_sum == 0 ? ahead : slot_of_sum - 1);
        asm volatile("cp.async.commit_group;" ::: "memory");
        // From the last level down: each leaves its finished plane where the level above has just
        // read its own.
#pragma unroll
        for (int s = steps - 1; s >= 0; --s) {
            Points finished;
            begin_sum(shared, s, slot, place, weights, waiting[s][unfinished - 1]);
            if (s == 0) {
                const StateRows below{shared.state[slot]};
                advance(below, place, weights, waiting[s], finished);
            } else {
                const LevelRows below{shared.level[2 * (s - 1) + turn % 2], level[s]};
                advance(below, place, weights, waiting[s], finished);
            }
            hold(level[s], s, place, shared);
            if (s < steps - 1) {
                show(finished, place, shared.level[2 * s + (turn + 1) % 2]);
                assign(level[s + 1], finished);
            } else if (turn >= delay) {
                store(finished, place, weights.w[n_taps], memory.row,
                      dst + (low_z + turn - delay) * memory.plane, shared, slot_of_sum);
            }
        }
        slot = slot == planes_of_state - 1 ? 0 : slot + 1;
        slot_of_sum = slot_of_sum == ahead ? 0 : slot_of_sum + 1;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");  // a box of few planes needs none of the last
}
