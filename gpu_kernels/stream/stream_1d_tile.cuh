// stream_1d_tile.cuh: what kernels share that keep the points of a line in registers for many steps.
//
// Idea    A warp holds 32 * TS_COLUMNS neighbouring points, TS_COLUMNS in each lane, and updates
//         them in place; the points on either side of a lane come by shuffle. Each step spoils
//         `radius` points at both ends of a warp. So the warps of a block overlap, and every
//         TS_REFRESH steps the spoilt points come from the neighbouring warp through shared memory;
//         only the ends of the whole block shrink all the way, by TS_STEPS * radius points that two
//         blocks both compute.
// Layout  A tile begins `halo` points in front of what its block writes. Warp w holds points w *
//         stride + [0, span) of the tile and vouches for all but `spoilt` points at each end of
//         that. Point i of a warp lies in lane i / columns, register i % columns. On their way from
//         and to memory, whose accesses are whole lines, points pass through shared memory; what is
//         there of a lane is padded to an odd number of 16-byte words, so that eight lanes meet all
//         banks once.
// Limits  2 * TS_REFRESH * radius <= TS_COLUMNS, so that what warps exchange lies in one lane;
//         TS_REFRESH * radius and TS_COLUMNS are whole 16-byte words. Seen to by kernel_1d.py.

#pragma once

#if !defined(TS_RADIUS) || !defined(TS_STEPS) || !defined(TS_COLUMNS) || !defined(TS_WARPS) || \
    !defined(TS_REFRESH) || !defined(TS_BLOCKS)
#error "stream_1d_tile.cuh needs macros that gpu_kernels/stream/kernel_1d.py lists"
#endif
#include "common.cuh"

constexpr int radius = TS_RADIUS;
constexpr int steps = TS_STEPS;
constexpr int columns = TS_COLUMNS;  // points in a lane
constexpr int warps = TS_WARPS;
constexpr int refresh = TS_REFRESH;  // steps between two exchanges of warps

constexpr int word = 16 / sizeof(real);  // points in 16 bytes
constexpr int sector = 32 / sizeof(real), line = 128 / sizeof(real);
constexpr int lane_pitch = columns + (columns / word % 2 == 0 ? word : 0);
constexpr int span = 32 * columns;
constexpr int spoilt = refresh * radius;
constexpr int stride = span - 2 * spoilt;
constexpr int tile = warps * stride + 2 * spoilt;
// what is spoilt at the ends of a tile, at most
constexpr int reach = (steps > refresh ? steps : refresh) * radius;
constexpr int halo = (reach + sector - 1) / sector * sector;
// points that a block writes: whole lines
constexpr int written = (tile - halo - reach) / line * line;
static_assert(written > 0 && 2 * spoilt <= columns, "see Limits");
static_assert(spoilt % word == 0 && columns % word == 0 && radius <= columns, "see Limits");

constexpr unsigned whole_warp = 0xffffffffu;

struct alignas(16) Word {
    real of[word];
};

// What lane 0 and lane 31 of every warp show their neighbours: [round % 2][warp][low or high end].
struct Ends {
    Word of[2][warps][2][spoilt / word];
};

__device__ __forceinline__ void copy_word(real* shared, const real* global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(shared)),
                 "l"(global));
}

// Place in shared memory of point i of a warp.
__device__ __forceinline__ int place(int i) { return i / columns * lane_pitch + i % columns; }

// The `span` points from x of one warp, from whole lines of memory to consecutive points in each
// lane.
__device__ __forceinline__ void load(const real* src, const Memory& memory, int x, real* stage,
                                     real (&u)[columns]) {
    const int lane = threadIdx.x % 32;
    // Beyond what may be read any value will do: it only reaches points that this block does not
    // write. The limits are whole words, as owned point 0 begins one (within.low <= 0).
    const int low = -(-memory.within.low[2] / word * word),
              high = memory.within.high[2] / word * word;
#pragma unroll
    for (int j = 0; j < columns / word; ++j) {
        const int i = (j * 32 + lane) * word;
        copy_word(stage + place(i), src + max(low, min(x + i, high - word)));
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();  // other lanes copied this lane's points
#pragma unroll
    for (int c = 0; c < columns; c += word) {
        const Word read = *reinterpret_cast<const Word*>(stage + lane * lane_pitch + c);
#pragma unroll
        for (int e = 0; e < word; ++e) u[c + e] = read.of[e];
    }
}

// Replace what `refresh` steps spoilt by what the neighbouring warps have there.
__device__ __forceinline__ void exchange(real (&u)[columns], Ends& ends, int round) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    auto& shown = ends.of[round % 2];
    auto show = [&](int end, int from) {
#pragma unroll
        for (int c = 0; c < spoilt; c += word) {
            Word out;
#pragma unroll
            for (int e = 0; e < word; ++e) out.of[e] = u[from + c + e];
            shown[warp][end][c / word] = out;
        }
    };
    auto take = [&](int whose, int end, int to) {
#pragma unroll
        for (int c = 0; c < spoilt; c += word) {
            const Word in = shown[whose][end][c / word];
#pragma unroll
            for (int e = 0; e < word; ++e) u[to + c + e] = in.of[e];
        }
    };
    if (lane == 0) show(0, spoilt);
    if (lane == 31) show(1, columns - 2 * spoilt);
    __syncthreads();  // all ends are shown; the two buffers make a second barrier needless
    if (lane == 0 && warp > 0) take(warp - 1, 1, 0);
    if (lane == 31 && warp < warps - 1) take(warp + 1, 0, columns - spoilt);
}

// All steps of a tile: `step(level)` makes one of a warp, in place.
template <class Step>
__device__ __forceinline__ void advance_tile(real (&u)[columns], Ends& ends, Step step) {
#pragma unroll 1
    for (int round = 0; round < steps / refresh; ++round) {
        if (round > 0) exchange(u, ends, round);
#pragma unroll 2
        for (int s = 0; s < refresh; ++s) step(round * refresh + s);
    }
    if constexpr (steps % refresh > 0) {
        if (steps > refresh) exchange(u, ends, steps / refresh);
        for (int s = 0; s < steps % refresh; ++s) step(steps / refresh * refresh + s);
    }
}

// Write the points of one warp that lie in [begin, end), counted from the warp's first point at x,
// with the sum of a source if there is one.
__device__ __forceinline__ void store(real* dst, const real* sum, int x, int begin, int end,
                                      real* stage, const real (&u)[columns]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < columns; c += word) {
        Word out;
#pragma unroll
        for (int e = 0; e < word; ++e) out.of[e] = narrow(u[c + e]);
        *reinterpret_cast<Word*>(stage + lane * lane_pitch + c) = out;
    }
    __syncwarp();  // lanes write what other lanes computed, so that stores are whole lines
#pragma unroll 4
    for (int j = 0; j < columns / word; ++j) {
        const int i = (j * 32 + lane) * word;
        Word out = *reinterpret_cast<const Word*>(stage + place(i));
        if constexpr (has_sum) {
#pragma unroll
            for (int e = 0; e < word; ++e)
                if (i + e >= begin && i + e < end) out.of[e] = out.of[e] + sum[x + i + e];
        }
        if (i >= begin && i + word <= end) {
            *reinterpret_cast<Word*>(dst + x + i) = out;
        } else {
#pragma unroll
            for (int e = 0; e < word; ++e)
                if (i + e >= begin && i + e < end) dst[x + i + e] = out.of[e];
        }
    }
}
