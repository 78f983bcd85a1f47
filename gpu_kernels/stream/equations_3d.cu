// equations_3d.cu: advance 3D equations TS_DEPTH steps per pass over memory.
//
// Idea    A block streams along z through a tile of x and y. A level is a few stages of a step, of
//         which none reads beside its points what another gives; it computes a plane a turn. What
//         it reads beside its points lies in shared memory, as rings of planes; of lower planes, and
//         of names that it reads at its points only, a thread keeps its own points in registers, as
//         queues along z. Fields arrive by asynchronous copies, some planes ahead. A level works on
//         what the one below gave in the turns before, so one barrier a turn serves all of them;
//         levels take turns from the last to the first, and each puts its plane where the level
//         above has just read.
// Layout  A tile is 32 * TS_ACROSS columns by TS_WARPS * TS_ROWS rows: a lane has TS_ROWS points
//         below each other. Rings lie one after the other. Points at the rim of a tile read, instead
//         of what lies beyond their plane, its first or last point, which only spoils more of the
//         rim: the planes beside theirs in a ring may just be overwritten.
// Writes  box, and nothing else.
// Limits  Tile minus what all steps spoil at the rim is not empty (Tile3.fits in equations_3d.py).
// Order   That of the instructions of the stages: the bits are those of stage.cu.
// Test    tests/gpu/test_gpu_equations_stream.py

#if !defined(TS_DEPTH) || !defined(TS_ROWS) || !defined(TS_WARPS) || !defined(TS_ACROSS) ||     \
    !defined(TS_AHEAD) || !defined(TS_BLOCKS) || !defined(TS_FIELDS) || !defined(TS_HALO_Y) ||  \
    !defined(TS_HALO_X) || !defined(TS_WRITTEN_Y) || !defined(TS_WRITTEN_X) ||                 \
    !defined(TS_LEVELS)
#error "equations_3d.cu needs macros that gpu_kernels/stream/equations_3d.py lists"
#endif
#include "equations.cuh"

constexpr int rows = TS_ROWS;  // of a lane
constexpr int ahead = TS_AHEAD;  // planes on their way from memory
constexpr int fields = TS_FIELDS;
constexpr int names = TS_NAMES;
constexpr int tile_x = 32 * TS_ACROSS, tile_y = TS_WARPS * TS_ROWS;
constexpr int threads = 32 * TS_ACROSS * TS_WARPS;
constexpr int plane_size = tile_x * tile_y;
constexpr int word = 16 / int(sizeof(real));  // elements of a copy
constexpr int copies = plane_size / word;     // of a plane
constexpr int copies_each = (copies + threads - 1) / threads;

// Of level n: stages first .. last, and planes above and below that they read. Name m is number
// given(m) of what they give, or it has queue number queue(m), of the planes from low(m) to top(m)
// away, and where threads read what others have, slots(m) planes from plane ring(m) on. After the
// level it is name next(m) of the level above. Numbers are -1 for names to which this does not
// happen. Level<-1> is a whole step, with the rings of the state, of which the planes up to high(m)
// away are read; queues of the first level fill in `window` turns.
template <int number>
struct Level;
TS_LEVELS

constexpr int levels_of_step = Level<-1>::count;
constexpr int levels = levels_of_step * TS_DEPTH;

template <int level>
using At = Level<level % levels_of_step>;

// The first plane of a level's rings: after those of the state and of the levels below.
template <int level>
__device__ __forceinline__ constexpr int first_plane() {
    if constexpr (level == 0)
        return 0;
    else if constexpr (level == 1)
        return Level<-1>::planes;
    else
        return first_plane<level - 1>() + At<level - 1>::planes;
}

// Turns from the plane that the first level computes to the one that a level does.
template <int level>
__device__ __forceinline__ constexpr int lag() {
    if constexpr (level == 0)
        return 0;
    else
        return lag<level - 1>() + 1 + At<level>::reach;
}

using Rows = real[rows];

// The queues of a level, the lowest plane first, and those of the levels above.
template <int level>
struct Queues {
    Rows of[At<level>::n_queues + 1][At<level>::longest];
    Queues<level + 1> above;
};
template <>
struct Queues<levels> {};

struct Block {
    const Memory& memory;
    const Constants& constants;
    const Given& given;
    real* planes;
    real* to;      // the first owned point of the first field
    int row;       // of the first step in the table
    int z;         // plane of the first level in this turn
    unsigned turn;
    int x, y;  // of the thread's first point
    int cell;  // that point in a tile
    int low_y, high_y, low_z, high_z;  // that are written
    bool is_written;  // its column
};

// Where plane `dz` away from that of a level lies. Level 0 has planes of the state, others those
// that arrived up to the last turn.
template <int level>
__device__ __forceinline__ real* plane_of(const Block& block, int name, int dz) {
    const int ring = level == 0 ? Level<-1>::ring(name) : At<level>::ring(name);
    const int slots = level == 0 ? Level<-1>::slots(name) : At<level>::slots(name);
    const unsigned slot = (block.turn + unsigned(64 * slots + dz)) % unsigned(slots);
    return block.planes + (first_plane<level>() + ring + slot) * plane_size;
}

template <int level>
__device__ __forceinline__ constexpr int top_of(int name) {
    return level == 0 ? Level<-1>::top(name) : At<level>::top(name);
}

// A queue moves on by a plane, the last of which is `values`.
template <int level>
__device__ __forceinline__ void append(Queues<level>& queues, int name, const Rows& values) {
    auto& queue = queues.of[At<level>::queue(name)];
    const int last = top_of<level>(name) - At<level>::low(name);
#pragma unroll
    for (int p = 0; p < rows; ++p) {
#pragma unroll
        for (int k = 0; k < last; ++k) queue[k][p] = queue[k + 1][p];
        queue[last][p] = values[p];
    }
}

// Planes of rings that reach the top of their queues.
template <int level>
__device__ __forceinline__ void take(const Block& block, Queues<level>& queues) {
#pragma unroll
    for (int name = 0; name < names; ++name) {
        if ((level == 0 ? Level<-1>::ring(name) : At<level>::ring(name)) < 0) continue;
        const real* const from = plane_of<level>(block, name, top_of<level>(name)) + block.cell;
        Rows values;
#pragma unroll
        for (int p = 0; p < rows; ++p) values[p] = from[p * tile_x];
        append(queues, name, values);
    }
}

template <int level>
struct Point {
    using L = At<level>;
    const Block& block;
    const Queues<level>& queues;
    Rows (&given)[L::n_given + 1];
    int p;

    __device__ __forceinline__ real tap(int name, int dz, int dy, int dx) const {
        if (L::given(name) >= 0) return given[L::given(name)][p];
        if (dx == 0 && p + dy >= 0 && p + dy < rows && dz <= top_of<level>(name))
            return queues.of[L::queue(name)][dz - L::low(name)][p + dy];
        return plane_of<level>(block, name, dz)[cell_at((p + dy) * tile_x + dx)];
    }
    // A cell beside the thread's first one. Beyond the tile any will do, but of no other plane: that
    // may just arrive.
    __device__ __forceinline__ int cell_at(int offset) const {
        const int cell = block.cell + offset;
        if (offset < 0) return max(cell, 0);
        if (offset > (rows - 1) * tile_x) return min(cell, plane_size - 1);
        return cell;
    }
    // Where nothing is allocated nothing of worth is computed.
    __device__ __forceinline__ int place_z(int dz) const {
        const Box& within = block.memory.within;
        return clamp(block.z - lag<level>() + dz, within.low[0], within.high[0]);
    }
    __device__ __forceinline__ int place_y(int dy) const {
        return clamp(block.y + p + dy, block.memory.within.low[1], block.memory.within.high[1]);
    }
    __device__ __forceinline__ int place_x(int dx) const {
        return clamp(block.x + dx, block.memory.within.low[2], block.memory.within.high[2]);
    }
    __device__ __forceinline__ real coefficient(int number, int dz, int dy, int dx) const {
        return __ldg(block.given.coefficients[number] + place_z(dz) * block.memory.plane +
                     place_y(dy) * block.memory.row + place_x(dx));
    }
    __device__ __forceinline__ real constant(int number) const {
        return block.constants.of[number];
    }
    __device__ __forceinline__ real changing(int number) const {
        return block.given.changing(number, block.row + level / levels_of_step);
    }
    __device__ __forceinline__ real coordinate(int axis) const {
        const int place = axis == 0 ? place_z(0) : axis == 1 ? place_y(0) : place_x(0);
        return __ldg(block.given.along[axis] + place);
    }
    __device__ __forceinline__ void put(int name, real value) const {
        given[L::given(name)][p] = value;
    }
};

template <int stage, int last, class Point>
__device__ __forceinline__ void compute(const Point& point) {
    Stage<stage>::compute(point);
    if constexpr (stage < last) compute<stage + 1, last>(point);
}

// Hand a name on to the level above, or write it.
template <int level>
__device__ __forceinline__ void hand_on(const Block& block, Queues<level>& queues, int name,
    const Rows& values) {
    if constexpr (level + 1 < levels) {
        using Above = At<level + 1>;
        if (Above::ring(name) < 0) return append(queues.above, name, values);
        // The next turn will find it `reach` planes away.
        real* const to = plane_of<level + 1>(block, name, Above::reach + 1) + block.cell;
#pragma unroll
        for (int p = 0; p < rows; ++p) to[p * tile_x] = values[p];
    } else {
        const int z = block.z - lag<level>();
        if (!block.is_written || z < block.low_z || z >= block.high_z) return;
        real* const to = block.to + name * block.given.field + z * block.memory.plane + block.x;
#pragma unroll
        for (int p = 0; p < rows; ++p)
            if (block.y + p >= block.low_y && block.y + p < block.high_y)
                to[(block.y + p) * block.memory.row] = values[p];
    }
}

// A turn of the levels from the last one down to this one.
template <int level>
__device__ __forceinline__ void advance(const Block& block, Queues<level>& queues) {
    using L = At<level>;
    if constexpr (level + 1 < levels) advance<level + 1>(block, queues.above);
    take(block, queues);
    Rows given[L::n_given + 1];
#pragma unroll
    for (int p = 0; p < rows; ++p)
        compute<L::first, L::last>(Point<level>{block, queues, given, p});
#pragma unroll
    for (int name = 0; name < names; ++name) {
        if (L::next(name) < 0) continue;
        Rows values;
#pragma unroll
        for (int p = 0; p < rows; ++p)
            values[p] = Point<level>{block, queues, given, p}.tap(name, 0, 0, 0);
        hand_on<level>(block, queues, L::next(name), values);
    }
}

extern "C" __global__ void __launch_bounds__(threads, TS_BLOCKS)
    equations_3d(const real* __restrict__ src, real* __restrict__ dst,
        const __grid_constant__ Memory memory, const __grid_constant__ Box box,
        const __grid_constant__ Constants constants, int chunk,
        const __grid_constant__ Given given, int row) {
    extern __shared__ __align__(16) unsigned char bytes[];
    real* const planes = reinterpret_cast<real*>(bytes);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int low_x = box.low[2] + blockIdx.x * TS_WRITTEN_X - TS_HALO_X;
    const int low_y = box.low[1] + blockIdx.y * TS_WRITTEN_Y - TS_HALO_Y;
    const int low_z = box.low[0] + blockIdx.z * chunk;
    const int column = warp % TS_ACROSS * 32 + lane, first = warp / TS_ACROSS * rows;

    Block block{memory, constants, given, planes, dst, row};
    block.low_z = low_z;
    block.high_z = min(low_z + chunk, box.high[0]);
    block.low_y = low_y + TS_HALO_Y;
    block.high_y = min(block.low_y + TS_WRITTEN_Y, box.high[1]);
    block.x = low_x + column;
    block.y = low_y + first;
    block.cell = first * tile_x + column;
    block.is_written = column >= TS_HALO_X && column < TS_HALO_X + TS_WRITTEN_X &&
                       block.x < box.high[2];

    // Beyond what may be read any value will do: it only reaches points that this block does not
    // write. The limits are whole words, as owned point 0 begins one (within.low <= 0).
    const int least = -(-memory.within.low[2] / word * word);
    const int most = memory.within.high[2] / word * word - word;
    int from[copies_each];  // in a plane
#pragma unroll
    for (int k = 0; k < copies_each; ++k) {
        const int n = k * threads + int(threadIdx.x);
        const int y = clamp(
            low_y + n / (tile_x / word), memory.within.low[1], memory.within.high[1]);
        const int x = max(least, min(low_x + n % (tile_x / word) * word, most));
        from[k] = int(y * memory.row) + x;
    }
    // Start copying, of each field, the plane that turn `turn` is the first to read.
    const auto start_copies = [&](unsigned turn) {
        using Whole = Level<-1>;
        Block then = block;
        then.turn = turn;
#pragma unroll
        for (int field = 0; field < fields; ++field) {
            if (Whole::ring(field) < 0) continue;
            const int z = clamp(block.z + int(turn - block.turn) + Whole::high(field),
                memory.within.low[0], memory.within.high[0]);
            const real* const plane = src + field * given.field + z * memory.plane;
            real* const to = plane_of<0>(then, field, Whole::high(field));
#pragma unroll
            for (int k = 0; k < copies_each; ++k) {
                const int n = k * threads + int(threadIdx.x);
                if (copies % threads == 0 || n < copies)
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                                     (unsigned)__cvta_generic_to_shared(to + n * word)),
                                 "l"(plane + from[k]));
            }
        }
    };

    Queues<0> queues = {};
    constexpr int delay = lag<levels - 1>();
    // Each level but the first reads what is a turn old; queues fill in the first turns.
    block.z = low_z - delay + (levels - 1) - Level<-1>::window;
    block.turn = 0;
#pragma unroll
    for (int turn = 0; turn < ahead; ++turn) {
        start_copies(turn);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
#pragma unroll 1
    for (; block.z - delay < block.high_z; ++block.z, ++block.turn) {
        asm volatile("cp.async.wait_group %0;" ::"n"(ahead - 1) : "memory");
        __syncthreads();  // planes are there, and nobody reads what this turn overwrites
        start_copies(block.turn + ahead);
        asm volatile("cp.async.commit_group;" ::: "memory");
        advance<0>(block, queues);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");  // a block must not end before its copies
}
