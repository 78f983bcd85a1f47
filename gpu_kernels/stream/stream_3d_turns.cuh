// stream_3d_turns.cuh: the turns of a block that streams along z through a tile, with all levels of
// a pass in flight (part of the kernels that stream in 3D).
//
// Idea    In each turn a plane of the state arrives, and every level takes the plane that the level
//         below has finished, and finishes the one radius_z planes before it. What a step is, a
//         functor says:
//             start_copies(n, slot)   start copying what lies beside plane n of the state (the first
//                                     that is read is plane 0) into slot `slot` of `kept`
//             begin(turn)             what is done once in a turn, while its plane is on its way
//             advance(rows, place, arrival, kept_of_level, finished)   one plane of one level
//         Pipelined, a level works on what the one below finished in the turn before: nothing in a
//         turn waits for anything else in it, and one barrier a turn serves all levels. Otherwise it
//         works on what the one below has just finished, behind a barrier of its own: what lies
//         beside a plane is then needed for about half as many turns.
// Needs   steps, radius_z, pipelined, reads_before, kept, TS_UNROLLED; stream_3d_tile.cuh.

#pragma once

// Turns from a plane of a level to the plane of the next level that it finishes; from the arrival
// of a plane to its last level.
constexpr int lag = radius_z + (pipelined ? 1 : 0);
constexpr int delay = radius_z * (steps + 1) + lag * (steps - 1);
constexpr int planes_of_state = ahead + 1 + (reads_before ? 1 : 0);
constexpr int turns_unrolled = TS_UNROLLED;  // numbers change their names, not their registers

struct Stages : SumRing<has_sum> {
    Plane state[planes_of_state];  // level 0, a ring
    // Levels 1, 2, ...: pipelined of this turn and of the next.
    Ends level[steps == 1 ? 1 : (pipelined ? 2 : 1) * (steps - 1)];
};

// The plane of a level that a step works on, counted from the first one that is read, and the slots
// of what lies beside it and beside the plane before.
struct Arrival {
    int level, plane, now, before;
};

// Level 0 may read the plane before where it still lies.
struct StatePlanes : StateRows {
    const Plane& plane_before;

    __device__ __forceinline__ StatePlanes(const Plane& now, const Plane& before)
        : StateRows{now}, plane_before(before) {}
    __device__ __forceinline__ real before(const Place& place, const Points& was, int i,
                                           int c) const {
        if (!reads_before) return was[i][c];
        return plane_before.of[place.warp * rows + i][c / word][place.lane].of[c % word];
    }
    __device__ __forceinline__ void keep(Points& was, int i, int c, real value) const {
        if (!reads_before) was[i][c] = value;
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

__device__ __forceinline__ int in_ring(int slot, int length) {
    return slot < 0 ? slot + length : slot < length ? slot : slot - length;
}

// Write planes low_z .. high_z - 1 of a tile; `scale` brings the last level back to scale, and `sum`
// is added where there is one.
template <class Step>
__device__ __forceinline__ void stream_planes(const real* __restrict__ src, real* __restrict__ dst,
                                              const real* __restrict__ sum, const Memory& memory, const Place& place, int low_z,
                                              int high_z, real scale, Stages& shared, Step& step) {
    const int first_z = low_z - steps * radius_z;  // first plane of the state that is read
    const int n_read = high_z + steps * radius_z - first_z;
    const auto start_copies = [&](int n, int slot, int slot_beside) {
        start_copy(src, memory, place, first_z + n, shared.state[slot]);
        step.start_copies(n, slot_beside);
    };
    const auto fetch = [&](int turn, int slot_of_sum) {
        fetch_sum(sum, memory, place, low_z, high_z, turn - delay, shared, slot_of_sum);
    };

    Points waiting[steps][unfinished] = {};
    // what the level below has finished; level 0 stays in shared memory
    Points level[steps] = {};
#pragma unroll
    for (int n = 0; n < ahead; ++n) {
        start_copies(n, n, n);
        fetch(n, n);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    int slot = 0, beside = 0, slot_of_sum = 0;
#pragma unroll turns_unrolled
    for (int turn = 0; turn < high_z - low_z + delay; ++turn) {
        step.begin(turn);
        asm volatile("cp.async.wait_group %0;" ::"n"(ahead - 1) : "memory");
        __syncthreads();  // the plane is there, and nobody reads any more what this turn overwrites
        if (turn + ahead < n_read)
            start_copies(turn + ahead, in_ring(slot + ahead, planes_of_state),
                         in_ring(beside + ahead, kept));
        fetch(turn + ahead, in_ring(slot_of_sum - 1, ahead + 1));
        asm volatile("cp.async.commit_group;" ::: "memory");
        // Pipelined, from the last level down: each leaves its finished plane where the level above
        // has just read its own.
#pragma unroll
        for (int k = 0; k < steps; ++k) {
            const int s = pipelined ? steps - 1 - k : k;
            const int now = in_ring(beside - lag * s, kept);
            const Arrival arrival{s, turn - lag * s, now, in_ring(now - 1, kept)};
            Points finished;
            if (s == 0) {
                const StatePlanes below(shared.state[slot],
                                        shared.state[in_ring(slot - 1, planes_of_state)]);
                step.advance(below, place, arrival, waiting[s], finished);
            } else {
                const LevelPlanes below(shared.level[pipelined ? 2 * (s - 1) + turn % 2 : s - 1],
                                        level[s]);
                step.advance(below, place, arrival, waiting[s], finished);
            }
            if (s < steps - 1) {
                show(finished, place, shared.level[pipelined ? 2 * s + (turn + 1) % 2 : s]);
                assign(level[s + 1], finished);
                if (!pipelined) __syncthreads();
            } else if (turn >= delay) {
                store(finished, place, scale, memory.row,
                      dst + (low_z + turn - delay) * memory.plane, shared, slot_of_sum);
            }
        }
        slot = in_ring(slot + 1, planes_of_state);
        beside = in_ring(beside + 1, kept);
        slot_of_sum = in_ring(slot_of_sum + 1, ahead + 1);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");  // a box of few planes needs none of the last
}
