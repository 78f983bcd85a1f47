// stream_1d.cu: advance a 1D stencil TS_STEPS steps in registers, any offsets, any weights.
//
// Idea    Tiles are those of stream_1d_tile.cuh: all operands of a step are registers.
//         Level s is carried divided by w^s, w being the weight of the first tap (the host puts the
//         largest first): that tap then costs nothing, and a point and step is one FMA for each
//         other tap, whatever the weights. TS_SCALED=0 keeps the multiplication, for weights that
//         would leave the range of the type.
// Writes  box, and nothing else.
// Limits  Those of stream_1d_tile.cuh.
// Test    tests/gpu/test_gpu_against_reference.py
// Why not fetch the next tile while one is computed: at 10.24 million points 6439 GStencil/s with
// one tile a block,
//         6329 with two, 6155 with four (heat-1d, H200, 2026-11-21).

#if !defined(TS_TAPS) || !defined(TS_N_TAPS) || !defined(TS_SCALED) || !defined(TS_N_WEIGHTS)
#error "stream_1d.cu needs macros that gpu_kernels/stream/kernel_1d.py lists"
#endif
#include "stream_1d_tile.cuh"

constexpr int n_taps = TS_N_TAPS;
constexpr int taps[n_taps] = TS_TAPS;  // dx of each tap, in the order of the sum
constexpr bool scaled = TS_SCALED;

// TS_N_TAPS factors in the order of the sum, then what brings the last level back to scale.
struct Weights {
    real w[TS_N_WEIGHTS];
};

// One step of one warp, in place; `radius` more points at both ends of the warp are spoilt.
__device__ __forceinline__ void step(real (&u)[columns], const Weights& weights) {
    real around[columns + 2 * radius];
#pragma unroll
    for (int r = 0; r < radius; ++r) {
        around[r] = __shfl_up_sync(whole_warp, u[columns - radius + r], 1);
        around[radius + columns + r] = __shfl_down_sync(whole_warp, u[r], 1);
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) around[radius + c] = u[c];
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        const real first = around[radius + c + taps[0]];
        real sum = scaled ? first : mul_real(weights.w[0], first);
#pragma unroll
        for (int k = 1; k < n_taps; ++k)
            sum = fma_real(weights.w[k], around[radius + c + taps[k]], sum);
        u[c] = settled(sum);
    }
}

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    stream_1d(const real* __restrict__ src, real* __restrict__ dst, Memory memory, Box box,
              Weights weights TS_AND_SUM) {
    extern __shared__ __align__(16) char shared[];
    const int warp = threadIdx.x / 32;
    real* stage = reinterpret_cast<real*>(shared) + warp * (32 * lane_pitch);
    Ends& ends = *reinterpret_cast<Ends*>(shared + sizeof(real) * warps * 32 * lane_pitch);

    const int low = box.low[2] + blockIdx.x * written;  // first point that the block writes
    const int high = min(low + written, box.high[2]);
    const int x = low - halo + warp * stride;  // first point of the warp
    real u[columns];
    load(src, memory, x, stage, u);
    advance_tile(u, ends, [&](int) { step(u, weights); });
    __syncwarp();  // all lanes have read what `load` staged
    if constexpr (scaled) {
#pragma unroll
        for (int c = 0; c < columns; ++c) u[c] = mul_real(weights.w[n_taps], u[c]);
    }
    store(dst, sum_of_source, x, max(spoilt, low - x), min(span - spoilt, high - x), stage, u);
}
