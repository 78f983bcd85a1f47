// equations_2d.cu: advance 2D equations TS_DEPTH steps by streaming tiles that stay in registers
// down the rows.
//
// Idea    As stream_2d.cu, with a patch for every name that is alive. A level is one stage of a
//         step; it lies as many rows further up than the one before as it reads, so it needs rows
//         of the tile above only. Slot p of the next level is centred on row p - reach of this one,
//         and is computed when all rows that it reads are there: last rows first, those that need
//         the rows of the patch above last. What a stage only passes on moves up with it. So do
//         coefficients that are read at their own points only: TS_HELD of them stay in registers.
//         TS_UNROLLED steps move them out of a patch: so many together, rows change their names, and
//         none is moved from register to register.
// Layout  As stream_2d.cu, once for each field: stages; then the rows between warps and those
//         between tiles, for all names of a level together, then for the coefficients that are held.
// Writes  the box, of all fields. What is outside of the box grown by depth * reach may be NaN: it
//         only reaches points that are not written.
// Limits  columns >= reach_x (EquationsTile.fits in equations_2d.py).
// Order   That of the instructions of the stages: the bits are those of stage.cu.
// Test    tests/gpu/test_gpu_equations_stream.py

#if !defined(TS_DEPTH) || !defined(TS_COLUMNS) || !defined(TS_ROWS) || !defined(TS_WARPS) ||  \
    !defined(TS_BLOCKS) || !defined(TS_EDGES) || !defined(TS_WRITTEN) || !defined(TS_MARGIN) || \
    !defined(TS_FIELDS) || !defined(TS_SLOTS) || !defined(TS_LEVELS) || !defined(TS_REACH) ||   \
    !defined(TS_HELD) || !defined(TS_HELD_NUMBERS) || !defined(TS_UNROLLED)
#error "equations_2d.cu needs macros that gpu_kernels/stream/equations_2d.py lists"
#endif
#include "equations.cuh"

constexpr int fields = TS_FIELDS;
constexpr int slots = TS_SLOTS;  // patches of a lane
constexpr int reach_y = TS_REACH;  // rows that the stage reads which reads farthest
constexpr int rows = TS_ROWS;      // of a patch
constexpr int columns = TS_COLUMNS;
constexpr int held = TS_HELD;  // coefficients

// The place of a coefficient among those that are held, or -1.
__device__ __forceinline__ constexpr int place_held(int number) {
    constexpr int numbers[] = {TS_HELD_NUMBERS};
    for (int k = 0; k < held; ++k)
        if (numbers[k] == number) return k;
    return -1;
}

// Of stage n: `before` slots are alive when it begins and `after` when it is done. Name m is in
// slot_of[m] before, and in slot_given[m] after if the stage gives it; slot s takes pass_of[s] from before, or -1 what the stage gives. Slot s is read from
// up[s] rows above to the row `reach` below; beside its column in the rows from first[s] to last[s],
// `beside` columns far, of its own far[s].
template <int number>
struct Level;
TS_LEVELS

#include "stream_2d_tile.cuh"

constexpr int levels = Level<-1>::with_edges * depth;  // of a tile that hand rows on
constexpr int handed_on = slots * edge + held * reach_y * width;  // elements of a level

struct Shared {
    real stages[fields][height * width];
    // Nothing is handed on where no stage reads other rows; an array has a size nevertheless.
    real between[edge > 0 ? (warps - 1) * edges * handed_on : 1];
    real history[edge > 0 ? (levels + 2) * handed_on : 1];
};

// As `Edges`, for all slots together.
struct EdgesOfLevels {
    Shared& shared;
    int warp;
    int parity = 0;
    int oldest = 0;

    static constexpr int size = handed_on;
    __device__ __forceinline__ const real* above() const {
        return warp > 0 ? shared.between + ((warp - 1) * edges + parity) * size
                        : shared.history + oldest * size;
    }
    __device__ __forceinline__ real* below() const {
        const int newest = oldest <= 1 ? levels + oldest : oldest - 2;
        return warp < warps - 1 ? shared.between + (warp * edges + parity) * size
                                : shared.history + newest * size;
    }
    __device__ __forceinline__ void next_level() {
        parity = edges - 1 - parity;
        oldest = oldest == levels + 1 ? 0 : oldest + 1;
    }
};

using Patches = real[slots][rows][columns];

// Coefficients at the rows of a patch; they move up as it does.
struct Held {
    real of[held > 0 ? held : 1][rows][columns];

    // Those of a patch whose slot row 0 is row `y`, or where nothing is allocated the nearest.
    __device__ __forceinline__ void read(const Given& given, const Memory& memory, int y, int x) {
        const Box& within = memory.within;
        const int first = min(max(x, within.low[2]), within.high[2] - columns);
#pragma unroll
        for (int k = 0; k < held; ++k) {
            constexpr int numbers[] = {TS_HELD_NUMBERS};
            const real* const from = given.coefficients[numbers[k]] + first;
#pragma unroll
            for (int p = 0; p < rows; ++p) {
                const real* const row =
                    from + clamp(y + p, within.low[1], within.high[1]) * memory.row;
#pragma unroll
                for (int c = 0; c < columns; ++c) of[k][p][c] = __ldg(row + c);
            }
        }
    }
    // Before a level that moves up by `reach` rows.
    template <int reach>
    __device__ __forceinline__ void hand_on(real* below, int lane) const {
#pragma unroll
        for (int k = 0; k < held; ++k)
#pragma unroll
            for (int e = 0; e < reach; ++e)
                store_columns(below + (k * reach_y + e) * width, of[k][rows - reach + e], lane);
    }
    // Row p after the level; rows come from the last to the first.
    template <int reach>
    __device__ __forceinline__ void move(int p, const real* above, int lane) {
#pragma unroll
        for (int k = 0; k < held; ++k) {
            if (p < reach) {
                load_columns(of[k][p], above + (k * reach_y + p) * width, lane);
            } else {
#pragma unroll
                for (int c = 0; c < columns; ++c) of[k][p][c] = of[k][p - reach][c];
            }
        }
    }
};

// The rows that a level reads: -over .. rows - 1 of every slot, and the columns beside them.
template <class L>
struct Lines {
    static constexpr int over = 2 * L::reach;
    static constexpr int far = L::beside > 0 ? L::beside : 1;
    Patches& patches;
    real top[slots][over > 0 ? over : 1][columns];
    real left[slots][over + rows][far], right[slots][over + rows][far];

    __device__ __forceinline__ Lines(Patches& patches) : patches(patches) {}

    __device__ __forceinline__ real at(int slot, int line, int column) const {
        if (column < 0) return left[slot][line][-1 - column];
        if (column >= columns) return right[slot][line][column - columns];
        return line < over ? top[slot][line][column] : patches[slot][line - over][column];
    }

    // Neighbouring columns lie in the registers of the lanes beside.
    __device__ __forceinline__ void ask(int slot, int line) {
#pragma unroll
        for (int k = 0; k < L::beside; ++k) {
            left[slot][line][k] = __shfl_up_sync(~0u, at(slot, line, columns - 1 - k), 1);
            right[slot][line][k] = __shfl_down_sync(~0u, at(slot, line, k), 1);
        }
    }
};

// One point of the next level: column `column` of slot row `p`.
template <class L>
struct Place {
    const Lines<L>& lines;
    const Held& kept;
    const Constants& constants;
    const Given& given;
    const Memory& memory;
    int row;  // of the step in the table
    int p, column;
    int y, x;  // of slot row p and of column 0 in the grid
    real (&out)[slots];

    __device__ __forceinline__ real tap(int name, int, int dy, int dx) const {
        return lines.at(L::slot_of(name), p + L::reach + dy, column + dx);
    }
    // Where nothing is allocated nothing of worth is computed.
    __device__ __forceinline__ int place_y(int dy) const {
        return clamp(y + p + dy, memory.within.low[1], memory.within.high[1]);
    }
    __device__ __forceinline__ int place_x(int dx) const {
        return clamp(x + column + dx, memory.within.low[2], memory.within.high[2]);
    }
    __device__ __forceinline__ real coefficient(int number, int, int dy, int dx) const {
        if (place_held(number) >= 0) return kept.of[place_held(number)][p][column];
        return __ldg(given.coefficients[number] + place_y(dy) * memory.row + place_x(dx));
    }
    __device__ __forceinline__ real constant(int number) const { return constants.of[number]; }
    __device__ __forceinline__ real changing(int number) const {
        return given.changing(number, row);
    }
    __device__ __forceinline__ real coordinate(int axis) const {
        return __ldg(given.along[axis] + (axis == 1 ? place_y(0) : place_x(0)));
    }
    __device__ __forceinline__ void put(int name, real value) const {
        if (L::slot_given(name) >= 0) out[L::slot_given(name)] = value;
    }
};

// Advance all patches by stage `number` of a step; `y` is the row of slot row 0 after it.
template <int number>
__device__ __forceinline__ void advance_stage(Patches& patches, Held& kept,
    EdgesOfLevels& edges_of_warp, const Constants& constants, const Given& given, const Memory& memory, int row, int y, int x,
    int lane) {
    using L = Level<number>;
    constexpr int over = 2 * L::reach;
    const real* const above = edges_of_warp.above();
    real* const below = edges_of_warp.below();
#pragma unroll
    for (int s = 0; s < L::before; ++s) {
#pragma unroll
        for (int e = 0; e < over; ++e)
            if (e >= L::reach - L::up(s))
                store_columns(below + s * edge + e * width, patches[s][rows - over + e], lane);
    }

    if (L::reach > 0) kept.template hand_on<L::reach>(below + slots * edge, lane);

    Lines<L> lines(patches);
#pragma unroll
    for (int p = rows - 1; p >= 0; --p) {
        // The rows of the patch above are there; with two edges nobody reads those of the level
        // before.
        if (over > 0 && p == over - 1) __syncthreads();
        if (p < over) {
#pragma unroll
            for (int s = 0; s < L::before; ++s)
                if (p >= L::reach - L::up(s))
                    load_columns(lines.top[s][p], above + s * edge + p * width, lane);
            // They may come in later, but not in a row above: `up` is the farthest.
        }
#pragma unroll
        for (int s = 0; s < L::before; ++s) {
            if (L::first(s) > L::last(s)) continue;
            const int next = p + L::reach + L::first(s);
            if (p == rows - 1) {
#pragma unroll
                for (int k = L::first(s) + 1; k <= L::last(s); ++k) lines.ask(s, p + L::reach + k);
            }
            lines.ask(s, next);
        }

        if (L::reach > 0) kept.template move<L::reach>(p, above + slots * edge, lane);
        real out[columns][slots];
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            Stage<number>::compute(
                Place<L>{lines, kept, constants, given, memory, row, p, c, y, x, out[c]});
#pragma unroll
            for (int s = 0; s < L::after; ++s)
                if (L::pass_of(s) >= 0) out[c][s] = lines.at(L::pass_of(s), p + L::reach, c);
        }
#pragma unroll
        for (int s = 0; s < L::after; ++s)
#pragma unroll
            for (int c = 0; c < columns; ++c) patches[s][p][c] = out[c][s];
    }
    if (over > 0) {
        if (edges == 1) __syncthreads();  // they have been read, and may be overwritten
        edges_of_warp.next_level();
    }
}

template <int number = 0>
__device__ __forceinline__ void advance_step(Patches& patches, Held& kept,
    EdgesOfLevels& edges_of_warp, const Constants& constants, const Given& given,
    const Memory& memory, int row, int& y, int x, int lane) {
    y -= Level<number>::reach;
    advance_stage<number>(
        patches, kept, edges_of_warp, constants, given, memory, row, y, x, lane);
    if constexpr (number + 1 < Level<-1>::count)
        advance_step<number + 1>(
            patches, kept, edges_of_warp, constants, given, memory, row, y, x, lane);
}

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    equations_2d(const real* __restrict__ src, real* __restrict__ dst,
        const __grid_constant__ Memory memory, const __grid_constant__ Box box,
        const __grid_constant__ Constants constants, int chunk,
        const __grid_constant__ Given given, int row) {
    extern __shared__ __align__(128) unsigned char bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(bytes);
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const Part part = part_of_block(box, chunk);
    const long long plane = box.low[0] * memory.plane;
    EdgesOfLevels edges_of_warp{shared, warp};
    constexpr int shift = depth * Level<-1>::rows;  // of a tile, from its first level to its last

    const int base = part.low - shift;
    const int n_tiles = (part.high + shift - base + height - 1) / height;
    const auto stage_of = [&](int field) { return shared.stages[field] + warp * rows * width; };
    const auto relay_of = [&](int field) {
        const long long at = plane + field * given.field;
        return Relay(stage_of(field), src + at, dst + at, nullptr, memory, part, lane);
    };

    Patches patches;
#pragma unroll
    for (int s = 0; s < slots; ++s)
#pragma unroll
        for (int p = 0; p < rows; ++p)
#pragma unroll
            for (int c = 0; c < columns; ++c) patches[s][p][c] = real(0);
    int top = base + warp * rows;  // row of slot row 0 at the first level
    const int x = part.x - margin + lane * columns;
    Held kept;
#pragma unroll
    for (int f = 0; f < fields; ++f) {
        const Relay relay = relay_of(f);
#pragma unroll 1
        for (int p = 0; p < rows; ++p) relay.fetch(p, top + p, true);
    }
    for (int tile = 0;; ++tile, top += height) {
        const int done = top - height - shift;  // row of slot row 0 of what is finished
        kept.read(given, memory, top, x);
        await_copies();
        __syncwarp();  // each lane has waited for its own copies
#pragma unroll
        for (int f = 0; f < fields; ++f)
            exchange(patches[f], stage_of(f), lane, [](real value) { return value; });
        __syncwarp();  // the rows to be stored are complete
#pragma unroll
        for (int f = 0; f < fields; ++f) {
            real* const to = dst + plane + f * given.field;
            if ((part.end - part.x) % vector != 0)
                store_rest(stage_of(f), to, nullptr, memory, done, part, lane);
            const Relay relay = relay_of(f);
#pragma unroll
            for (int p = 0; p < rows; ++p)
                relay.store(p, done + p, done + p >= part.low && done + p < part.high);
#pragma unroll
            for (int p = 0; p < rows; ++p) relay.fetch(p, top + height + p, tile + 1 < n_tiles);
        }
        if (tile == n_tiles) break;
        int y = top;
#pragma unroll TS_UNROLLED
        for (int step = 0; step < depth; ++step)
            advance_step(
                patches, kept, edges_of_warp, constants, given, memory, row + step, y, x, lane);
    }
}
