// tcstencil_star.cu: one step of a 2D star as the authors of TCStencil make it: a band on either
// side of a tile.
//
// Idea    A tile of 16 x 16 results is P S + S Q: the column in the middle of the stencil is a band
//         P along y, the row in the middle, without the point that both share, a band Q along x.
//         The authors' tile is 16 x 16 points, of which the outer ones make no results, so that a
//         product for each band suffices. Here a tile has 16 x 16 results: P takes the 2 r rows
//         behind the 16 as half a product more, and Q is taken twice, for 8 results each, of
//         windows of 16 points around them. That is 2.5 products of 16 x 16 x 16 for any radius up
//         to 4.
// Layout  A ring of TS_STAGES stages of 16 rows in shared memory (tcstencil_stage.cuh), the first
//         of which begins r rows above the results; a tile takes rows of two stages. Warps are side
//         by side along x, TS_UNITS tiles each. Rows are an odd multiple of 16 bytes long, so that
//         eight of them meet all banks.
// Writes  all of `box`.
// Limits  FP16 in memory and in products, sums in FP32; radius 4; sm_80 or later; x of a box begins
//         at a multiple of 128 bytes.
// Test    tests/gpu/test_gpu_tcstencil.py

#if !defined(TS_REAL) || !defined(TS_RADIUS_Y) || !defined(TS_WARPS) || !defined(TS_MIN_BLOCKS) || \
    !defined(TS_UNITS) || !defined(TS_STAGES) || !defined(TS_LEAD) || !defined(TS_ROW_POINTS) ||   \
    !defined(TS_REACH)
#error "tcstencil_star.cu needs macros that gpu_kernels/tensor_cores/tcstencil.py lists"
#endif

#include "mma_formats.cuh"
#include "mma_half.cuh"
#include "tcstencil_stage.cuh"

constexpr int radius_y = TS_RADIUS_Y;
constexpr int warps = TS_WARPS, threads = 32 * warps, units = TS_UNITS, stages = TS_STAGES;
constexpr int height = 16, width = 16;  // of a tile
constexpr int pitch = TS_ROW_POINTS;
constexpr int window_lead = 4;  // points of a window in front of its 8 results

static_assert(stages > 2, "two stages are read while others arrive");
static_assert(pitch % 16 == 8, "rows of an odd multiple of 16 bytes");

struct Weights {
    unsigned p[6][32];  // A: the band along y over 16 rows, then over the 8 that follow
    unsigned q[2][32];  // B: the band along x
};

// P and Q, as the registers of a lane.
struct Bands {
    unsigned p[4], behind[2], q[2];

    __device__ __forceinline__ Bands(const Weights& weights, int lane) {
#pragma unroll
        for (int k = 0; k < 4; k++) p[k] = weights.p[k][lane];
#pragma unroll
        for (int k = 0; k < 2; k++) behind[k] = weights.p[4 + k][lane], q[k] = weights.q[k][lane];
    }
};

// Where a lane finds its part of a tile, in both stages.
struct Rows {
    // rows g and g + 8 of the results, points 2 t and 2 t + 1 of the first window
    const real* window[2];
    const real* column;  // the row that it names for `load_columns`

    __device__ __forceinline__ Rows(const real* stage, const real* next, int x, int lane) {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = radius_y + g + 8 * half;
            const real* const of_row =
                row < height ? stage + row * pitch : next + (row - height) * pitch;
            window[half] = of_row + x + TS_LEAD - window_lead + 2 * t;
        }
        column = (lane < height ? stage + lane * pitch : next + lane % 8 * pitch) + x + TS_LEAD;
    }

    __device__ __forceinline__ unsigned pair(int half, int point) const {
        return *reinterpret_cast<const unsigned*>(window[half] + point);
    }
};

// A tile whose rows are those of the results. d[j] has results of columns 8 j to 8 j + 7. Windows
// overlap by half: what one has behind is what the next one has in front, and stays in its
// register; the halves of Q change places instead.
__device__ __forceinline__ void multiply_tile(float (&d)[2][4], const Bands& bands,
                                              const Rows& rows, int x, unsigned (&window)[4]) {
    const float zero[4] = {};
#pragma unroll
    for (int j = 0; j < 2; j++) {
        unsigned b[4];
        load_columns(b, rows.column + x + 8 * j);
#pragma unroll
        for (int half = 0; half < 2; half++)
            window[(j == 0 ? 2 : 0) + half] = rows.pair(half, x + 8 * j + 8);
        mma_half_16x8x16(d[j], window, bands.q[j], bands.q[1 - j], zero);
        mma_half_16x8x16(d[j], bands.p, b[0], b[1], d[j]);
        mma_half_16x8x8(d[j], bands.behind, b[2], d[j]);
    }
}

// Where a lane writes four neighbours of rows g and g + 8 of a tile: lanes with an even t have them
// from the left half, for which their neighbours give what they have of it, and the others from the
// right half.
struct Target {
    real* to[2];
    bool there[2];  // whether the rows belong to the box
    bool right;
    int left;  // points of the box along x from `to` on

    // `dst` is point (0, y, x), the first of the tile; rows from `end` on and points from `high` on
    // are not in the box.
    __device__ __forceinline__ Target(real* dst, long long pitch, int y, int x, int end, int high,
                                      int lane) {
        const int g = lane / 4, t = lane % 4;
        right = t % 2 == 1;
        const int column = (right ? 8 : 0) + t / 2 * 4;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            to[half] = dst + (g + 8 * half) * pitch + column;
            there[half] = y + g + 8 * half < end;
        }
        left = high - x - column;
    }

    // `x` is where the tile begins, from that of the first on.
    __device__ __forceinline__ void store(const float (&d)[2][4], int x) const {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const unsigned left_pair = pack_half(d[0][2 * half], d[0][2 * half + 1]);
            const unsigned right_pair = pack_half(d[1][2 * half], d[1][2 * half + 1]);
            const unsigned own = right ? right_pair : left_pair;
            const unsigned other = __shfl_xor_sync(0xffffffffu, right ? left_pair : right_pair, 1);
            const uint2 four = right ? make_uint2(other, own) : make_uint2(own, other);
            if (there[half] && left - x >= 4) *reinterpret_cast<uint2*>(to[half] + x) = four;
            if (there[half] && left - x < 4)
#pragma unroll
                for (int k = 0; k < 3; k++)
                    if (k < left - x)
                        *reinterpret_cast<unsigned short*>(to[half] + x + k) =
                            static_cast<unsigned short>((k < 2 ? four.x : four.y) >> k % 2 * 16);
        }
    }
};

extern "C" __global__ void __launch_bounds__(threads, TS_MIN_BLOCKS)
    tcstencil_star(const real* __restrict__ src, real* __restrict__ dst,
                   const __grid_constant__ Memory memory, const __grid_constant__ Box box,
                   const Weights* __restrict__ weights, int chunk) {
    extern __shared__ __align__(16) real shared[];
    const int lane = threadIdx.x % 32, warp_x = threadIdx.x / 32 * units * width;
    const int first_y = box.low[1] + static_cast<int>(blockIdx.y) * chunk,
              end = min(first_y + chunk, box.high[1]);
    const int first_x = box.low[2] + static_cast<int>(blockIdx.x) * (warps * units * width);
    const int n_tiles = (end - first_y + height - 1) / height, n_stages = n_tiles + 1;

    const StageCopy<height, pitch, threads, true> copy(memory, box, end + radius_y);
    int y = first_y - radius_y;  // of the stage that is to be copied next
    const real* from = src + y * memory.row + first_x - TS_LEAD;
    const auto place = [&](int stage) { return shared + stage % stages * (height * pitch); };
    const auto start = [&](int stage) {
        if (stage < n_stages) copy.start(place(stage), from, y, first_x - TS_LEAD);
        copy_commit();  // also where nothing is copied, so that waiting can count groups
        from += height * memory.row, y += height;
    };
#pragma unroll 1
    for (int stage = 0; stage < stages - 1; stage++) start(stage);
    const Bands bands(*weights, lane);

#pragma unroll 1
    for (int tile = 0; tile < n_tiles; tile++) {
        copy_wait<stages - 3>();
        if (tile == 0) copy.finish(place(0), first_x - TS_LEAD);
        copy.finish(place(tile + 1), first_x - TS_LEAD);
        // two stages have arrived for all, and nobody reads the one before, whose place is free
        __syncthreads();
        start(tile + stages - 1);
        const Rows rows(place(tile), place(tile + 1), warp_x, lane);
        unsigned window[4];
#pragma unroll
        for (int half = 0; half < 2; half++) window[half] = rows.pair(half, 0);
        const int row = first_y + tile * height, column = first_x + warp_x;
        const Target target(dst + row * memory.row + column, memory.row, row, column, end,
                            box.high[2], lane);
#pragma unroll 2
        for (int unit = 0; unit < units; unit++) {
            float d[2][4];
            multiply_tile(d, bands, rows, unit * width, window);
            target.store(d, unit * width);
        }
    }
    copy_wait<0>();
}
