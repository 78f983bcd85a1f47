// frame_equations.cu: advance points near a face by TS_DEPTH steps by equations at once, stage by
// stage in shared memory.
//
// Idea    As frame.cu, for all fields together. Before a stage that is the first to read a name
//         beside its points, the ghosts of that name are filled; the box of a stage is that of the
//         step grown by what later stages read.
// Layout  See common.cuh. tiles: one box per block. Arrays in shared memory, `capacity` points each:
//         the fields before a step, the fields after it, and names that live within a step.
// Writes  The points of its tiles, of all fields.
// Limits  As frame.cu.
// Order   That of the instructions of the stages: the bits are those of stage.cu.
// Test    tests/gpu/test_gpu_equations_stream.py

#if !defined(TS_REAL) || !defined(TS_RADII) || !defined(TS_DEPTH) || !defined(TS_FIELDS) ||   \
    !defined(TS_N_STAGES) || !defined(TS_MARGINS) || !defined(TS_ARRAYS) || \
    !defined(TS_N_GHOSTS) || !defined(TS_GHOSTS)
#error "frame_equations.cu needs macros that gpu_kernels/boundary/ghosts.py lists"
#endif
#include "domain.cuh"
#include "equations.cuh"

constexpr int depth = TS_DEPTH;
constexpr int fields = TS_FIELDS;
constexpr int n_stages = TS_N_STAGES;
constexpr int n_ghosts = TS_N_GHOSTS;
__constant__ constexpr int radii[3] = {TS_RADII};
// Of each stage, points around its own.
__constant__ constexpr int margins[n_stages][3] = {TS_MARGINS};
// Of each name its array: fields before a step, after it, and others.
__constant__ constexpr int arrays[TS_NAMES] = {TS_ARRAYS};

// Ghosts of a name that are filled before a stage: around the points on which it is needed.
struct NameGhosts {
    int stage, array;
    int needs[3];
    int widths[3];
};
__constant__ constexpr NameGhosts ghosts_of[n_ghosts + 1] = {TS_GHOSTS};

#include "frame.cuh"

// Points around a tile as far as there are any within `bounds`, and `beyond` these.
__device__ __forceinline__ Span around(const Box& tile, const Box& bounds, int later,
    const int (&more)[3], const int (&beyond)[3]) {
    Span found;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        const int reach = later * radii[d] + more[d];
        found.low[d] = max(tile.low[d] - reach, bounds.low[d] - beyond[d]);
        found.n[d] = min(tile.high[d] + reach, bounds.high[d] + beyond[d]) - found.low[d];
    }
    return found;
}

// What all threads of a block know.
struct Work {
    const Memory& memory;
    const Constants& constants;
    const Given& given;
    const Domain* domains;
    const Span& all;
    const Box& tile;
    real* shared;
    int capacity;

    // After an odd number of steps the fields are where those after a step were.
    __device__ __forceinline__ real* array(int number, int turn) const {
        const int turned = number < fields ? number + fields : number - fields;
        return shared + (turn == 1 && number < 2 * fields ? turned : number) * capacity;
    }
};

struct Point {
    const Work& work;
    int row, turn;
    int place[3];
    int at;

    __device__ __forceinline__ real tap(int name, int z, int y, int x) const {
        const Span& all = work.all;
        return work.array(arrays[name], turn)[at + (z * all.n[1] + y) * all.n[2] + x];
    }
    __device__ __forceinline__ real coefficient(int number, int z, int y, int x) const {
        return work.given.coefficients[number][(place[0] + z) * work.memory.plane +
                                               (place[1] + y) * work.memory.row + place[2] + x];
    }
    __device__ __forceinline__ real constant(int number) const {
        return work.constants.of[number];
    }
    __device__ __forceinline__ real changing(int number) const {
        return work.given.changing(number, row);
    }
    __device__ __forceinline__ real coordinate(int axis) const {
        return work.given.along[axis][place[axis]];
    }
    __device__ __forceinline__ void put(int name, real value) const {
        work.array(arrays[name], turn)[at] = value;
    }
};

// The axes are mirrored in their order, so that corners are images of images.
__device__ void fill(const Work& work, const Domain& domain, real* array, const Span& span) {
    for_each(span, [&](int i, int j, int k) {
        const int ghost[3] = {i, j, k};
        int mirror[3] = {i, j, k}, side[3] = {-1, -1, -1}, number[3] = {0, 0, 0};
        bool is_beyond = false;
#pragma unroll
        for (int d = 0; d < 3; d++) {
            const int low = domain.box.low[d], high = domain.box.high[d];
            if (ghost[d] >= low && ghost[d] < high) continue;
            is_beyond = true;
            side[d] = ghost[d] < low ? 0 : 1;
            number[d] = side[d] == 0 ? low - 1 - ghost[d] : ghost[d] - high;
            mirror[d] = side[d] == 0 ? low + number[d] : high - 1 - number[d];
        }
        if (!is_beyond) return;
        real value = array[place(work.all, mirror[0], mirror[1], mirror[2])];
#pragma unroll
        for (int d = 0; d < 3; d++)
            if (side[d] >= 0)
                value = reflected(domain.b[d][side[d]][number[d]], value,
                    domain.a[d][side[d]][number[d]]);
        array[place(work.all, i, j, k)] = value;
    });
}

// The stages of a step from `stage` on.
template <int stage = 0>
__device__ __forceinline__ void advance(const Work& work, int later, int row, int turn) {
    for (int g = 0; g < n_ghosts; g++) {
        if (ghosts_of[g].stage != stage) continue;
        const Domain& domain = work.domains[g];
        const Span span = around(
            work.tile, domain.box, later, ghosts_of[g].needs, ghosts_of[g].widths);
        fill(work, domain, work.array(ghosts_of[g].array, turn), span);
    }
    __syncthreads();  // a stage reads what other threads wrote
    const int nothing[3] = {0, 0, 0};
    const Span own = around(work.tile, work.domains[0].box, later, margins[stage], nothing);
    for_each(own, [&](int i, int j, int k) {
        Stage<stage>::compute(Point{work, row, turn, {i, j, k}, place(work.all, i, j, k)});
    });
    __syncthreads();  // as above
    if constexpr (stage + 1 < n_stages) advance<stage + 1>(work, later, row, turn);
}

extern "C" __global__ void __launch_bounds__(256)
    frame_equations(const real* __restrict__ src, real* __restrict__ dst,
        const __grid_constant__ Memory memory, const Box* __restrict__ tiles,
        const __grid_constant__ Constants constants, const __grid_constant__ Given given,
        const int row, const Domain* __restrict__ domains, const int capacity) {
    extern __shared__ double shared[];  // of the widest type, for its alignment
    __shared__ Span all;
    const Box tile = tiles[blockIdx.x];
    const Domain& domain = domains[0];
    if (threadIdx.x == 0) all = needed(tile, domain.box, depth, 1);
    __syncthreads();  // all threads read it
    const Work work{
        memory, constants, given, domains, all, tile, reinterpret_cast<real*>(shared), capacity};
    for (int f = 0; f < fields; f++)
        for_each(needed(tile, domain.box, depth, 0), [&](int i, int j, int k) {
            work.array(f, 0)[place(all, i, j, k)] =
                src[f * given.field + wrapped(i, domain.period[0]) * memory.plane +
                    wrapped(j, domain.period[1]) * memory.row + wrapped(k, domain.period[2])];
        });
    __syncthreads();  // ghosts are images of what other threads wrote
    for (int made = 0; made < depth; made++)
        advance(work, depth - 1 - made, row + made, made % 2);
    for (int f = 0; f < fields; f++)
        for_each(needed(tile, domain.box, 0, 0), [&](int i, int j, int k) {
            dst[f * given.field + i * memory.plane + j * memory.row + k] =
                work.array(f, depth % 2)[place(all, i, j, k)];
        });
}
