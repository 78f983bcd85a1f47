// coefficients_3d.cu: heat conduction in a 3D body whose faces have conductances of their own,
// TS_STEPS steps per pass over memory.
//
// Idea    As stream_3d.cu. With TS_SEPARATE what a face conducts, by the heat capacity of a cell, is
//         a product of numbers of its three axes (graded axes, cylinders): tables of one axis each,
//         of which those of x are registers, and those of y and z lie in shared memory, where all
//         lanes read the same entry. A difference between two neighbours is taken once and enters
//         both, so a body of one temperature keeps it to the last bit.
//         Otherwise four arrays come plane by plane beside the state, once per pass: conductance of
//         the upper face along x and y, that of the lower face along z, and the rates of the plane
//         before. Levels are not pipelined (stream_3d_turns.cuh): planes of four arrays are what
//         shared memory is full of.
// Layout  As stream_3d.cu. Arrays lie as the state does; tables have an entry for each index from
//         the first allocated one on.
// Writes  box, and nothing else.
// Limits  Columns are 16 bytes of numbers. Seen to by conducting.py.
// Order   Along z, x and y, each time the faces of the row that comes. Bits depend on no tile.
// Test    tests/gpu/test_gpu_coefficients.py

#if !defined(TS_SEPARATE) || !defined(TS_FACTORS) || !defined(TS_STEPS) || !defined(TS_COLUMNS) || \
    !defined(TS_ROWS) || !defined(TS_WARPS) || !defined(TS_AHEAD) || !defined(TS_BLOCKS) || \
    !defined(TS_UNROLLED)
#error "coefficients_3d.cu needs macros that gpu_kernels/stream/conducting.py lists"
#endif
#include "common.cuh"

constexpr int radius_z = 1, radius_y = 1, radius_x = 1;
constexpr int steps = TS_STEPS;
constexpr bool scaled = false;
constexpr int columns = TS_COLUMNS, rows = TS_ROWS;  // of a thread
constexpr int warps = TS_WARPS;
constexpr int ahead = TS_AHEAD;  // planes on their way from memory
constexpr bool separate = TS_SEPARATE;
constexpr bool pipelined = separate, reads_before = separate;
// Of a table the entry of the plane before is read too.
constexpr int kept = separate ? 2 * steps + ahead : steps + ahead;

#include "stream_3d_tile.cuh"
#include "stream_3d_turns.cuh"

// What kernels of one stencil are told.
struct Weights {
    real none[1];
};

// An index of one axis: the weights of its lower and upper face, and the factors of the weights
// along the two other axes, in the order z, y, x.
struct alignas(16) Entry {
    real minus, plus, first, second;
};

#if TS_SEPARATE
constexpr bool has_factor[3] = {(TS_FACTORS & 1) != 0, (TS_FACTORS & 2) != 0,
                                (TS_FACTORS & 4) != 0};  // weights along z, y, x

struct Shared {
    Stages stages;
    Entry along_z[kept], along_y[tile_y];
};

struct Step {
    Shared& shared;
    const Entry* along_z;  // of plane 0
    int low, high;         // of the planes that have an entry
    real minus[columns], plus[columns], of_z[columns], of_y[columns];

    // `tables` has the entries of all three axes, each from the first allocated index on.
    __device__ __forceinline__ Step(Shared& shared_, const Entry* tables, const Memory& memory,
                                    const Place& place, int first_z)
        : shared(shared_), along_z(tables + (first_z - memory.within.low[0])) {
        const Box& all = memory.within;
        low = all.low[0] - first_z, high = all.high[0] - first_z;
        const Entry* const along_y = tables + (all.high[0] - all.low[0]);
        const Entry* const along_x = along_y + (all.high[1] - all.low[1]);
        const int first_y = place.y - place.warp * rows;
        for (int n = threadIdx.x; n < tile_y; n += 32 * warps)
            shared.along_y[n] =
                along_y[clamp(first_y + n, all.low[1], all.high[1]) - all.low[1]];
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const Entry it = along_x[clamp(place.x + c, all.low[2], all.high[2]) - all.low[2]];
            minus[c] = it.minus, plus[c] = it.plus, of_z[c] = it.first, of_y[c] = it.second;
        }
    }

    __device__ __forceinline__ void begin(int) const {}

    __device__ __forceinline__ void start_copies(int n, int slot) const {
        constexpr int pieces = sizeof(Entry) / 16;
        if (threadIdx.x >= pieces) return;
        const auto* const from = reinterpret_cast<const uint4*>(along_z + clamp(n, low, high));
        auto* const to = reinterpret_cast<uint4*>(&shared.along_z[slot]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                         (unsigned)__cvta_generic_to_shared(to + threadIdx.x)),
                     "l"(from + threadIdx.x));
    }

    // Row i of a plane that comes, and all rows after it.
    template <int i, class Rows>
    __device__ __forceinline__ void rows_on(const Rows& source, const Place& place,
                                            const Entry& here, real plus_before, real plus_below,
                                            real (&row_before)[columns], Points& was, Points& sums,
                                            Points& finished) const {
        real own[columns];
        source.template read<i>(place, own);
        // Rows of other warps give to none of these.
        Entry along_y = {};
        if constexpr (i >= 0 && i < rows) along_y = shared.along_y[place.warp * rows + i];
        if constexpr (i >= 0 && i < rows) {
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                real difference = own[c] - source.before(place, was, i, c);
                if (has_factor[0])
                    difference = mul_real(mul_real(along_y.first, of_z[c]), difference);
                finished[i][c] = fma_real(plus_before, difference, sums[i][c]);
                sums[i][c] = fma_real(-here.minus, difference, own[c]);
                source.keep(was, i, c, own[c]);
            }

            real differences[columns];
            const real right = __shfl_down_sync(whole_warp, own[0], 1);
            const real factor = has_factor[2] ? mul_real(here.second, along_y.second) : real(1);
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                differences[c] = (c < columns - 1 ? own[c < columns - 1 ? c + 1 : c] : right) - own[c];
                if (has_factor[2]) differences[c] = mul_real(factor, differences[c]);
                sums[i][c] = fma_real(plus[c], differences[c], sums[i][c]);
            }
            real left = own[0] - __shfl_up_sync(whole_warp, own[columns - 1], 1);
            if (has_factor[2]) left = mul_real(factor, left);
#pragma unroll
            for (int c = 0; c < columns; ++c)
                sums[i][c] = fma_real(-minus[c], c == 0 ? left : differences[c > 0 ? c - 1 : 0],
                                      sums[i][c]);
        }
        if constexpr (i >= 0) {
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                real difference = own[c] - row_before[c];
                if (has_factor[1]) difference = mul_real(mul_real(here.first, of_y[c]), difference);
                if constexpr (i < rows)
                    sums[i][c] = fma_real(-along_y.minus, difference, sums[i][c]);
                if constexpr (i > 0)
                    sums[i - 1][c] = fma_real(plus_below, difference, sums[i - 1][c]);
            }
        }
#pragma unroll
        for (int c = 0; c < columns; ++c) row_before[c] = own[c];
        if constexpr (i < rows)
            rows_on<i + 1>(source, place, here, plus_before, along_y.plus, row_before, was, sums,
                           finished);
    }

    template <class Rows>
    __device__ __forceinline__ void advance(const Rows& source, const Place& place,
                                            const Arrival& arrival, Points (&waiting)[unfinished],
                                            Points& finished) const {
        real row_before[columns] = {};
        rows_on<-1>(source, place, shared.along_z[arrival.now], shared.along_z[arrival.before].plus,
                    real(0), row_before, waiting[0], waiting[1], finished);
    }
};
#else
// What lies beside a plane of the state: of itself along x and y, and between it and the plane
// before along z, with the rates of that.
struct Faces {
    Plane x, y, z, rate;
};

struct Shared {
    Stages stages;
    Faces faces[kept];
};

struct Step {
    Shared& shared;
    const real *upper_x, *upper_y, *upper_z, *rate;
    const Memory& memory;
    const Place& place;
    int first_z;

    __device__ __forceinline__ void begin(int) const {}

    __device__ __forceinline__ void start_copies(int n, int slot) const {
        Faces& to = shared.faces[slot];
        start_copy(upper_x, memory, place, first_z + n, to.x);
        start_copy(upper_y, memory, place, first_z + n, to.y);
        start_copy(upper_z, memory, place, first_z + n - 1, to.z);
        start_copy(rate, memory, place, first_z + n - 1, to.rate);
    }

    // Row i of a plane that comes, and all rows after it.
    template <int i, class Rows>
    __device__ __forceinline__ void rows_on(const Rows& source, const Faces& faces,
                                            real (&row_before)[columns], Points& was,
                                            Points& fluxes, Points& finished) const {
        real own[columns];
        source.template read<i>(place, own);
        const int row = place.warp * rows + i;
        if constexpr (i >= 0 && i < rows) {
            real conductance[columns], rate_before[columns];
            unpack(faces.z.of[row], place.lane, conductance);
            unpack(faces.rate.of[row], place.lane, rate_before);
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                const real before = source.before(place, was, i, c);
                const real flux = mul_real(conductance[c], own[c] - before);
                finished[i][c] = fma_real(rate_before[c], fluxes[i][c] + flux, before);
                fluxes[i][c] = -flux;
                source.keep(was, i, c, own[c]);
            }

            // Each face once: a lane hands the flux through its last one to the lane beside.
            unpack(faces.x.of[row], place.lane, conductance);
            real out[columns];
            const real right = __shfl_down_sync(whole_warp, own[0], 1);
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                const real next = c < columns - 1 ? own[c < columns - 1 ? c + 1 : c] : right;
                out[c] = mul_real(conductance[c], next - own[c]);
            }
            const real in = __shfl_up_sync(whole_warp, out[columns - 1], 1);
#pragma unroll
            for (int c = 0; c < columns; ++c)
                fluxes[i][c] += out[c] - (c == 0 ? in : out[c > 0 ? c - 1 : 0]);
        }
        if constexpr (i >= 0) {
            real conductance[columns];
            // Before the tile's first row any will do.
            unpack(faces.y.of[i == 0 ? max(row - 1, 0) : row - 1], place.lane, conductance);
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                const real flux = mul_real(conductance[c], own[c] - row_before[c]);
                if constexpr (i < rows) fluxes[i][c] -= flux;
                if constexpr (i > 0) fluxes[i - 1][c] += flux;
            }
        }
#pragma unroll
        for (int c = 0; c < columns; ++c) row_before[c] = own[c];
        if constexpr (i < rows)
            rows_on<i + 1>(source, faces, row_before, was, fluxes, finished);
    }

    template <class Rows>
    __device__ __forceinline__ void advance(const Rows& source, const Place&,
                                            const Arrival& arrival, Points (&waiting)[unfinished],
                                            Points& finished) const {
        real row_before[columns] = {};
        rows_on<-1>(source, shared.faces[arrival.now], row_before, waiting[0], waiting[1], finished);
    }
};
#endif

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    coefficients_3d(const real* __restrict__ src, real* __restrict__ dst,
                    const __grid_constant__ Memory memory, const __grid_constant__ Box box,
                    const Weights, int planes,
#if TS_SEPARATE
                    const Entry* __restrict__ tables,
#else
                    const real* __restrict__ upper_z, const real* __restrict__ upper_y,
                    const real* __restrict__ upper_x, const real* __restrict__ rate,
#endif
                    int TS_AND_SUM) {
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
    constexpr int line = 128 / sizeof(real);
    // Tiles begin where lines of memory do, the box where its first sector does.
    const Place place = place_of_thread(box, box.low[1], box.low[2] & -line);
    const int low_z = box.low[0] + blockIdx.z * planes, high_z = min(low_z + planes, box.high[0]);
#if TS_SEPARATE
    Step step(shared, tables, memory, place, low_z - steps);
#else
    Step step{shared, upper_x, upper_y, upper_z, rate, memory, place, low_z - steps};
#endif
    stream_planes(src, dst, sum_of_source, memory, place, low_z, high_z, real(1), shared.stages, step);
}
