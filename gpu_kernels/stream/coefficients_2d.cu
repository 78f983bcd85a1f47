// coefficients_2d.cu: heat conduction in a 2D body whose faces have conductances of their own (graded
// axes, conductivities of a file), TS_DEPTH steps by streaming tiles that stay in registers down the
// rows, coefficients in registers too.
//
// Idea    As stream_2d.cu, with rows of coefficients that enter and leave (registers_2d_rows.cuh). They
//         are read once per tile, while the state before is stored; a row that leaves a patch is handed
//         on to the patch below with the last rows of the state.
// Layout  As stream_2d.cu; behind each two rows of the state that are handed on lie those of
//         coefficients: right, above, rate. In memory all arrays lie as the state does.
// Writes  the box, as stream_2d.cu.
// Limits  Those of registers_2d_rows.cuh; columns are whole pieces of 16 bytes; sources as a sum.
//         Checked by CoefficientTile.fits in coefficients_2d.py.
// Order   registers_2d_rows.cuh. Bits depend on no tile along y.
// Test    tests/gpu/test_gpu_coefficients.py

#if !defined(TS_DEPTH) || !defined(TS_COLUMNS) || !defined(TS_ROWS) || !defined(TS_WARPS) || \
    !defined(TS_BLOCKS) || !defined(TS_EDGES) || !defined(TS_WRITTEN) || !defined(TS_MARGIN)
#error "coefficients_2d.cu needs macros that gpu_kernels/stream/palette_tiles.py lists"
#endif
#include "common.cuh"

constexpr int reach_y = 1;
constexpr int rows = TS_ROWS;        // of a warp's patch
constexpr int columns = TS_COLUMNS;  // of a lane's patch

#include "stream_2d_tile.cuh"
#include "registers_2d_rows.cuh"

static_assert(columns % vector == 0 && margin % columns == 0, "see Limits");

constexpr int handed_on = edge + 3 * width;

struct Shared {
    real stages[warps][rows][width];
    real between[(warps - 1) * edges * handed_on];
    real history[(depth + 2) * handed_on];
};

// What kernels of one stencil are told.
struct Weights {
    real none[1];
};

// The columns of a lane in the arrays of coefficients, or the allocated ones nearest to them.
struct Arrays {
    const real *right, *below, *rate;  // of row 0; conductance of the faces to the next column and row
    long long pitch;
    int first_row, last_row;  // allocated

    __device__ __forceinline__ Arrays(const real* right_, const real* below_, const real* rate_,
                                      const Memory& memory, int column)
        : pitch(memory.row),
          first_row(memory.within.low[1]),
          last_row(memory.within.high[1] - 1) {
        const int x =
            min(max(column, memory.within.low[2]), memory.within.high[2] - columns);
        right = right_ + x, below = below_ + x, rate = rate_ + x;
    }

    __device__ __forceinline__ void read(const real* from, int row, real (&to)[columns]) const {
        const real* const at = from + min(max(row, first_row), last_row) * pitch;
#pragma unroll
        for (int k = 0; k < columns / vector; ++k) {
            const Pack<vector> piece = reinterpret_cast<const Pack<vector>*>(at)[k];
#pragma unroll
            for (int c = 0; c < vector; ++c) to[k * vector + c] = piece.value[c];
        }
    }

    // Those of a patch whose slot 0 holds row `top`, before its first level.
    __device__ __forceinline__ void read(int top, Coefficients& to) const {
#pragma unroll
        for (int i = -1; i < rows - 1; ++i) {
            const int slot = (i + rows) % rows;
            read(right, top + i, to.right[slot]);
            read(below, top + i - 1, to.above[slot]);
            read(rate, top + i, to.rate[slot]);
        }
        read(below, top + rows - 2, to.below);
    }

    // Let rows from one on come nearer.
    __device__ __forceinline__ void prefetch(int top) const {
#pragma unroll
        for (int i = 0; i < rows; ++i) {
            const long long at = min(max(top - 1 + i, first_row), last_row) * pitch;
            asm volatile("prefetch.global.L2 [%0];" ::"l"(right + at));
            asm volatile("prefetch.global.L2 [%0];" ::"l"(below + at));
            asm volatile("prefetch.global.L2 [%0];" ::"l"(rate + at));
        }
    }
};

__device__ __forceinline__ void hand_on(real* to, const Coefficients& from, int slot, int lane) {
    store_edge(to, from.right[slot], lane);
    store_edge(to + width, from.above[slot], lane);
    store_edge(to + 2 * width, from.rate[slot], lane);
}

__device__ __forceinline__ void take_over(Coefficients& to, int slot, const real* from, int lane) {
    load_edge(to.right[slot], from, lane);
    load_edge(to.above[slot], from + width, lane);
    load_edge(to.rate[slot], from + 2 * width, lane);
}

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    coefficients_2d(const real* __restrict__ src, real* __restrict__ dst,
                    const __grid_constant__ Memory memory, const __grid_constant__ Box box,
                    const Weights, int chunk, const real* __restrict__ right,
                    const real* __restrict__ below_it, const real* __restrict__ rate,
                    int TS_AND_SUM) {
    extern __shared__ __align__(128) unsigned char bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(bytes);
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    EdgesOf<handed_on> edges_of_warp{shared.between, shared.history, warp};
    const Part part = part_of_block(box, chunk);
    const long long plane = box.low[0] * memory.plane;
    const Arrays arrays(right + plane, below_it + plane, rate + plane, memory,
                        part.x - margin + lane * columns);

    const int base = part.low - depth;
    Coefficients coefficients;
    arrays.read(base + warp * rows, coefficients);
    const auto finish = [](real value) { return value; };
    const auto levels = [&](real(&patch)[rows][columns], int top, auto copies, auto) {
        int number = 0;
        auto level = [&](auto shift) {
            constexpr int leaving = (rows - 2 - decltype(shift)::value + 2 * rows) % rows;
            const real* const above = edges_of_warp.above();
            real* const below = edges_of_warp.below();
            const auto added = begin_copies(copies, number);
            Carry carry;
            hand_on(below + edge, coefficients, leaving, lane);
            advance(patch, above, below, lane, [&](int q, const real(&own)[columns]) {
                if (q == -1) take_over(coefficients, leaving, above + edge, lane);
                consume<decltype(shift)::value>(patch, carry, coefficients, q, own, [](int) {});
            });
            end_copies(copies, number++, added);
            edges_of_warp.next_level();
        };
#pragma unroll 1
        for (int turn = 0; turn < depth / rows; ++turn) for_each_shift(level);
        arrays.read(top + height, coefficients);
        arrays.prefetch(top + 2 * height);
    };
    stream_tiles<has_sum ? Copies::by_level : Copies::between>(
        src + plane, dst + plane, plane_of_sum(sum_of_source, plane), memory, part, base,
        shared.stages[warp][0], lane, warp, finish, levels);
}
