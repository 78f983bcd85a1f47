// equations_1d.cu: advance 1D equations TS_DEPTH steps in registers.
//
// Idea    A warp holds 32 * TS_COLUMNS neighbouring points of every name that is alive, TS_COLUMNS
//         in each lane; neighbours of a lane come by shuffle. Each step spoils `radius` points at
//         both ends of a warp, and warps overlap by what all steps spoil: they never wait for each
//         other. On their way from and to memory, whose accesses are whole lines, points pass
//         through shared memory; what is there of a lane has one word more than an even number, so
//         that lanes meet all banks.
// Layout  The points of a warp begin TS_HALO points in front of what it writes.
// Writes  box, of all fields, and nothing else.
// Limits  TS_COLUMNS >= what a stage reads beside a point (equations_1d.py).
// Order   That of the instructions of the stages: the bits are those of stage.cu.
// Test    tests/gpu/test_gpu_equations_stream.py

#if !defined(TS_DEPTH) || !defined(TS_COLUMNS) || !defined(TS_WARPS) || !defined(TS_BLOCKS) || \
    !defined(TS_WRITTEN) || !defined(TS_HALO) || !defined(TS_FIELDS) || !defined(TS_SLOTS) ||  \
    !defined(TS_PITCH) || !defined(TS_LEVELS)
#error "equations_1d.cu needs macros that gpu_kernels/stream/method.py lists"
#endif
#include "equations.cuh"

constexpr int columns = TS_COLUMNS;  // of a lane
constexpr int slots = TS_SLOTS;      // names that are alive at a time
constexpr int pitch = TS_PITCH;      // elements from lane to lane in shared memory
constexpr int span = 32 * columns;

// As in equations_2d.cu: a name's slot before and after stage n, what a slot takes from before, and
// the columns beside a point that the stage reads.
template <int number>
struct Level;
TS_LEVELS

using Patches = real[slots][columns];

// What a stage reads: a lane's columns of every slot and those beside them.
template <class L>
struct Line {
    static constexpr int most = L::beside > 0 ? L::beside : 1;
    const Patches& patches;
    real left[slots][most], right[slots][most];

    __device__ __forceinline__ Line(const Patches& patches) : patches(patches) {
#pragma unroll
        for (int s = 0; s < L::before; ++s)
#pragma unroll
            for (int k = 0; k < L::far(s); ++k) {
                left[s][k] = __shfl_up_sync(~0u, patches[s][columns - 1 - k], 1);
                right[s][k] = __shfl_down_sync(~0u, patches[s][k], 1);
            }
    }
    __device__ __forceinline__ real at(int slot, int column) const {
        if (column < 0) return left[slot][-1 - column];
        if (column >= columns) return right[slot][column - columns];
        return patches[slot][column];
    }
};

template <class L>
struct Place {
    const Line<L>& line;
    const Constants& constants;
    const Given& given;
    const Memory& memory;
    int row;  // of the step in the table
    int x;    // of column 0 in the grid
    int column;
    real (&out)[slots];

    __device__ __forceinline__ real tap(int name, int, int, int dx) const {
        return line.at(L::slot_of(name), column + dx);
    }
    // Where nothing is allocated nothing of worth is computed.
    __device__ __forceinline__ int place(int dx) const {
        return clamp(x + column + dx, memory.within.low[2], memory.within.high[2]);
    }
    __device__ __forceinline__ real coefficient(int number, int, int, int dx) const {
        return __ldg(given.coefficients[number] + place(dx));
    }
    __device__ __forceinline__ real constant(int number) const { return constants.of[number]; }
    __device__ __forceinline__ real changing(int number) const {
        return given.changing(number, row);
    }
    __device__ __forceinline__ real coordinate(int axis) const {
        return __ldg(given.along[axis] + place(0));
    }
    __device__ __forceinline__ void put(int name, real value) const {
        if (L::slot_given(name) >= 0) out[L::slot_given(name)] = value;
    }
};

// The stages of a step from `number` on.
template <int number = 0>
__device__ __forceinline__ void advance(Patches& patches, const Constants& constants,
    const Given& given, const Memory& memory, int row, int x) {
    using L = Level<number>;
    const Line<L> line(patches);
    real out[columns][slots];
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        Stage<number>::compute(Place<L>{line, constants, given, memory, row, x, c, out[c]});
#pragma unroll
        for (int s = 0; s < L::after; ++s)
            if (L::pass_of(s) >= 0) out[c][s] = line.at(L::pass_of(s), c);
    }
#pragma unroll
    for (int s = 0; s < L::after; ++s)
#pragma unroll
        for (int c = 0; c < columns; ++c) patches[s][c] = out[c][s];
    if constexpr (number + 1 < Level<-1>::count)
        advance<number + 1>(patches, constants, given, memory, row, x);
}

extern "C" __global__ void __launch_bounds__(32 * TS_WARPS, TS_BLOCKS)
    equations_1d(const real* __restrict__ src, real* __restrict__ dst,
        const __grid_constant__ Memory memory, const __grid_constant__ Box box,
        const __grid_constant__ Constants constants, const __grid_constant__ Given given,
        int row) {
    extern __shared__ __align__(16) unsigned char bytes[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    real* const stage = reinterpret_cast<real*>(bytes) + warp * 32 * pitch;
    const int low = box.low[2] + (int(blockIdx.x) * TS_WARPS + warp) * TS_WRITTEN;
    const int first = low - TS_HALO, high = min(low + TS_WRITTEN, box.high[2]);

    Patches patches;
#pragma unroll
    for (int f = 0; f < TS_FIELDS; ++f) {
#pragma unroll 4
        for (int k = 0; k < columns; ++k) {
            const int n = k * 32 + lane;
            // Beyond what may be read any value will do: it only reaches points that this warp does
            // not write.
            const int x = clamp(first + n, memory.within.low[2], memory.within.high[2]);
            stage[n / columns * pitch + n % columns] = __ldg(src + f * given.field + x);
        }
        __syncwarp();  // lanes read what others loaded
#pragma unroll
        for (int c = 0; c < columns; ++c) patches[f][c] = stage[lane * pitch + c];
        __syncwarp();  // before the next field overwrites it
    }
#pragma unroll 1
    for (int step = 0; step < TS_DEPTH; ++step)
        advance(patches, constants, given, memory, row + step, first + lane * columns);
#pragma unroll
    for (int f = 0; f < TS_FIELDS; ++f) {
#pragma unroll
        for (int c = 0; c < columns; ++c) stage[lane * pitch + c] = patches[f][c];
        __syncwarp();  // lanes store what others computed
#pragma unroll 4
        for (int k = 0; k < columns; ++k) {
            const int n = k * 32 + lane, x = first + n;
            if (x >= low && x < high)
                dst[f * given.field + x] = stage[n / columns * pitch + n % columns];
        }
        __syncwarp();  // before the next field overwrites it
    }
}
