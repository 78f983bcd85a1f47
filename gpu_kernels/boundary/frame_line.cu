// frame_line.cu: advance the points near a face of a line of one material by TS_DEPTH steps at once,
// in the registers of one warp.
//
// Idea    As frame_conduction.cu, for the case whose steps are so short that they would be spent
//         waiting and counting. A lane owns TS_POINTS points in a row and gets those beside them by
//         shuffle; the lane at the face follows its rule. Points are counted from the face inwards,
//         so that the one next to it is the first of the first lane at either end of the line. All
//         points are made at every step: what is wrong at the far end comes nearer by one a step,
//         and not to what is written.
// Layout  See common.cuh. tiles: one box per block, which is one warp.
// Writes  The points of its tiles.
// Limits  What a tile depends on fits into 32 * TS_POINTS points, and has one end of the line at
//         most: seen to by frame.py. Nothing heats the points; states are no heat contents.
// Order   See body.cuh: the bits are those of conduction.cu.
// Test    tests/gpu/test_gpu_line_frames.py

#if !defined(TS_REAL) || !defined(TS_DEPTH) || !defined(TS_POINTS)
#error "frame_line.cu needs -DTS_REAL, -DTS_DEPTH, -DTS_POINTS and what body.cuh and rules.cuh need"
#endif
#include "body.cuh"

static_assert(is_alike && !has_source && first_axis == 2, "see Limits");
constexpr int depth = TS_DEPTH, points = TS_POINTS;
constexpr unsigned whole_warp = 0xffffffffu;

// The face that a tile depends on, or none.
struct End {
    Face face;
    int code;
    int at;  // the point next to it

    __device__ __forceinline__ real ghost(const Body& body, int step, real mirror) const {
        const int index[3] = {0, 0, at};
        return narrow(
            follow(face.rule.program, given_at(body, face.rule, index, step, code, widen(mirror))));
    }
};

// The state of a point after a step. `outer` is nearer to the face; the lower neighbour comes first.
template <bool from_high>
__device__ __forceinline__ real after(const Body& body, real here, real outer, real inner) {
    const wide u = widen(here), low = widen(from_high ? inner : outer),
               high = widen(from_high ? outer : inner);
    const wide between = wide(body.conductances[2]);
    const wide sum = fma_real(between, high - u, mul_real(between, low - u));
    return narrow(fma_real(wide(body.rate_of_all), sum, u));
}

// Point m of a tile, counted from the end, is at `first + m` or `first - m`.
template <bool from_high>
__device__ __forceinline__ void advance(const real* __restrict__ src, real* __restrict__ dst,
    const Body& body, const Box& tile, const End& end, bool is_face, int first, int n, int step) {
    const int lane = threadIdx.x, direction = from_high ? -1 : 1;
    const bool follows = is_face && lane == 0;
    real own[points];
#pragma unroll
    for (int p = 0; p < points; p++)
        own[p] = src[first + direction * min(lane * points + p, n - 1)];
#pragma unroll 1
    for (int made = 0; made < depth; made++) {
        real outer = __shfl_up_sync(whole_warp, own[points - 1], 1);
        const real last = __shfl_down_sync(whole_warp, own[0], 1);
        if (follows) outer = end.ghost(body, step + made, own[0]);
#pragma unroll
        for (int p = 0; p < points; p++) {
            const real here = own[p];
            own[p] = after<from_high>(body, here, outer, p + 1 < points ? own[p + 1] : last);
            outer = here;
        }
    }
#pragma unroll
    for (int p = 0; p < points; p++) {
        const int k = first + direction * (lane * points + p);
        if (k >= tile.low[2] && k < tile.high[2]) dst[k] = own[p];
    }
}

extern "C" __global__ void __launch_bounds__(32)
    frame_line(const real* __restrict__ src, real* __restrict__ dst,
        const __grid_constant__ Memory memory, const Box* __restrict__ tiles,
        const __grid_constant__ Body body, const int step) {
    const Box tile = tiles[blockIdx.x];
    const int low = max(tile.low[2] - depth, body.inside.low[2]),
              high = min(tile.high[2] + depth, body.inside.high[2]);
    const bool at_low = low == body.inside.low[2], at_high = high == body.inside.high[2];
    End end{};
    if (at_low || at_high) {
        end.face = body.faces[at_high ? 5 : 4];
        end.code = body.codes[end.face.begin];  // along its own axis the stride is 0
        end.at = at_high ? high - 1 : low;
    }
    if (at_high)
        advance<true>(src, dst, body, tile, end, true, high - 1, high - low, step);
    else
        advance<false>(src, dst, body, tile, end, at_low, low, high - low, step);
}
