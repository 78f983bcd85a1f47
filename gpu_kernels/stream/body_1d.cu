// body_1d.cu: advance a 1D body TS_STEPS steps in registers, whatever it is made of.
//
// Idea    Tiles are those of stream_1d_tile.cuh. What a point gets from either side is a number
//         times a difference, of states or, where these are heat contents, of what flows, which is
//         looked up in shared memory (palette_curves.cuh). Both numbers, and what heats the point,
//         come from arrays that `body_1d_arrays` makes once for a slab: materials, contacts, graded
//         axes and resistances of faces are all alike to the steps, and read once for all of them.
//         A source that changes, or depends on the state, is a program at each point and step.
//         Between materials whose conductivities vary, and between surfaces that radiate, no number
//         makes a flow of a difference: such faces have a negative one and are few, and what flows
//         there is found as body.cuh does.
// Writes  box, and nothing else; `body_1d_arrays` all points of its three arrays in [low, high).
// Limits  Those of stream_1d_tile.cuh.
// Order   The two sides of a point are added to what heats it, each by one multiply-add, with
//         conductance times rate rounded before. A face gives to both sides the same number, with
//         the other sign, times their rates.
// Test    tests/gpu/test_gpu_line_bodies.py

#if !defined(TS_HEATS)
#error "body_1d.cu needs macros that gpu_kernels/stream/kernel_1d.py lists"
#endif
#include "stream_1d_tile.cuh"
#include "body.cuh"

enum class Heats { nothing, the_same, a_program };
constexpr Heats heats = Heats(TS_HEATS);

#if TS_ENTHALPY
namespace palette {
#include "palette.cuh"
}
constexpr bool varies = palette::varies, one_id = palette::one_material;
using Curves = palette::Curves<1>;
using Flowing = palette::Flowing;
#ifdef TS_RADIATING
constexpr bool has_flows = true;  // there may be faces with a negative number
#else
constexpr bool has_flows = varies;
#endif
#else
constexpr bool varies = false, has_flows = false, one_id = is_alike;
struct Curves {};
struct Flowing {};
#endif
constexpr bool reads_ids = !one_id && (has_enthalpy || heats == Heats::a_program);
constexpr int ids_in_word = 4 / sizeof(Id), bits_of_id = 8 * sizeof(Id);

// What the points of a lane are, for all steps.
struct Lane {
    real below[columns], above[columns];  // what a point takes of a difference
    real heat[columns];                   // and at every step, or of its source
    unsigned ids[reads_ids ? (columns + ids_in_word - 1) / ids_in_word : 1];
    unsigned flows;  // bit c: the face below column c has no number
    int x;           // of column 0

    __device__ __forceinline__ int id(int c) const {
        if (!reads_ids) return 0;
        return ids[c / ids_in_word] >> (c % ids_in_word * bits_of_id) & ((1u << bits_of_id) - 1);
    }
};

// What flows by difference.
template <class Its>
__device__ __forceinline__ real flowing_at(const Flowing& flowing, const Its& curve, int id,
                                           real state) {
#if TS_ENTHALPY
    if constexpr (one_id) return curve.at(state);
    else return flowing.at_id(id, state);
#else
    return state;
#endif
}

// What flows to point `at` from the one above it, of their heat contents.
__device__ __noinline__ real flow_above(const Body& body, int at, real low, real high) {
    const Piece mine = piece_of(body, body.ids[at], low);
    return flow_between(body, 2, body.ids[at], body.ids[at + 1], mine, high, false, at, 1).value;
}

// Where programs are followed and flows are found: beyond, nothing of worth is computed, and nothing
// may be read.
struct Valid {
    int low, high;
};

// Register `c` of a lane, where that is not known when compiling.
__device__ __forceinline__ real picked(const real (&u)[columns], int c) {
    real found = u[0];
#pragma unroll
    for (int k = 1; k < columns; ++k) found = k == c ? u[k] : found;
    return found;
}

// What flows through the faces of a lane that have no number: that below column 0 is returned, that
// above column c is left in `flows[c]`.
__device__ __forceinline__ real find_flows(const real (&u)[columns], const Lane& lane,
                                           const Body& body, const Valid& valid, real* flows) {
    const real left = __shfl_up_sync(whole_warp, u[columns - 1], 1);
    const real right = __shfl_down_sync(whole_warp, u[0], 1);
    real lowest = 0;
#pragma unroll 1
    for (unsigned faces = lane.flows; faces;) {
        const int c = 31 - __clz(int(faces));  // of the column above the face
        faces ^= 1u << c;
        const real flow = flow_above(body, clamp(lane.x + c - 1, valid.low, valid.high - 1),
                                     c == 0 ? left : picked(u, c - 1),
                                     c == columns ? right : picked(u, c));
        if (c == 0) lowest = flow;
        else flows[c - 1] = flow;
    }
    return lowest;
}

// One step of one warp, in place; one more point at both ends of the warp is spoilt. `flows` has
// room for a number of each column.
template <class Its>
__device__ __forceinline__ void step(real (&u)[columns], const Lane& lane, const Body& body,
                                     const Flowing& flowing, const Its& curve, const Valid& valid,
                                     int row, real* flows) {
    auto at = [&](int c) { return flowing_at(flowing, curve, lane.id(c), u[c]); };
    const real first = at(0), last = at(columns - 1);
    const real left = __shfl_up_sync(whole_warp, last, 1);
    const real right = __shfl_down_sync(whole_warp, first, 1);
    real here = first, before = here - left;
    if constexpr (has_flows) {
        if (__any_sync(whole_warp, lane.flows != 0)) {
            const real lowest = find_flows(u, lane, body, valid, flows);
            if (lane.flows & 1u) before = lowest;
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        const real next = c == columns - 1 ? right : c == columns - 2 ? last : at(c + 1);
        real after = next - here;
        if (has_flows && (lane.flows >> (c + 1) & 1u)) after = flows[c];
        real sum = u[c];
        if constexpr (heats == Heats::the_same) sum = sum + lane.heat[c];
        if constexpr (heats == Heats::a_program) {
            const int index[3] = {0, 0, clamp(lane.x + c, valid.low, valid.high)};
            Given given = given_at(body, body.source, index, row, lane.id(c), u[c]);
            if (has_enthalpy) given.temperature = piece_of(body, lane.id(c), u[c]).temperature();
            sum = fma_real(lane.heat[c], follow(TS_SOURCE - 1, given), sum);
        }
        u[c] = fma_real(lane.above[c], after, fma_real(-lane.below[c], before, sum));
        here = next;
        before = after;
    }
}

extern "C" __global__ void __launch_bounds__(32 * warps, TS_BLOCKS)
    body_1d(const real* __restrict__ src, real* __restrict__ dst,
            const __grid_constant__ Memory memory, const __grid_constant__ Box box,
            const real* __restrict__ curves, const real* __restrict__ below,
            const real* __restrict__ above, const real* __restrict__ heat,
            const __grid_constant__ Body body, int row) {
    extern __shared__ __align__(16) char shared[];
    const int warp = threadIdx.x / 32;
    real* stage = reinterpret_cast<real*>(shared) + warp * (32 * lane_pitch);
    char* const rest = shared + sizeof(real) * warps * 32 * lane_pitch;
    Ends& ends = *reinterpret_cast<Ends*>(rest);
    Flowing& flowing = *reinterpret_cast<Flowing*>(rest + sizeof(Ends));
#if TS_ENTHALPY
    flowing.fill(reinterpret_cast<const Curves*>(curves));
    __syncthreads();  // all threads look curves up
    const auto& curve = flowing.of_id(0);
#else
    const Flowing& curve = flowing;
#endif

    const int low = box.low[2] + blockIdx.x * written;  // first point that the block writes
    const int high = min(low + written, box.high[2]);
    const int x = low - halo + warp * stride;  // first point of the warp
    const Valid valid{box.low[2] - steps, box.high[2] + steps};
    Lane lane;
    lane.x = x + int(threadIdx.x) % 32 * columns;
    real u[columns];
    auto read = [&](const real* from, real (&to)[columns]) {
        load(from, memory, x, stage, to);
        __syncwarp();  // before the next array takes its place
    };
    read(below, lane.below);
    read(above, lane.above);
    if constexpr (heats != Heats::nothing) read(heat, lane.heat);
    load(src, memory, x, stage, u);
    if constexpr (reads_ids) {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const unsigned id = body.ids[clamp(lane.x + c, valid.low, valid.high)];
            if (c % ids_in_word == 0) lane.ids[c / ids_in_word] = id;
            else lane.ids[c / ids_in_word] |= id << (c % ids_in_word * bits_of_id);
        }
    }
    lane.flows = 0;
    if constexpr (has_flows) {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            // Of a point that is held both are 0, and what flows to it matters to the other side.
            lane.flows |= unsigned(lane.below[c] < 0) << c | unsigned(lane.above[c] < 0) << (c + 1);
            lane.below[c] = fabs(lane.below[c]);
            lane.above[c] = fabs(lane.above[c]);
        }
    }
    real* const flows = stage + int(threadIdx.x) % 32 * lane_pitch;
    advance_tile(u, ends, [&](int level) {
        step(u, lane, body, flowing, curve, valid, row + level, flows);
    });
    __syncwarp();  // all lanes have read what `load` staged
    store(dst, nullptr, x, max(spoilt, low - x), min(span - spoilt, high - x), stage, u);
}

// What flows through the upper face of a point is `number` times a difference, or has no such
// number.
struct UpperFace {
    wide number;
    bool is_flow;
};

__device__ __forceinline__ UpperFace upper_face(const Body& body, long long at) {
    if (is_alike) return {wide(body.conductances[2]), false};
    const int n = body.n_ids, id = body.ids[at], beside = body.ids[at + 1];
    const wide between =
        has_coefficients ? body.upper[2][at] : body.tables[(2 * n + id) * n + beside];
    if (!has_enthalpy) return {between, false};
    // As in body.cuh, where that does not depend on the states.
    const wide* const curves = body.tables + body.knots + n * body.n_pieces;
    const wide* const kinds = curves + 6 * n * body.n_pieces;
    const wide mine = curves[6 * id * body.n_pieces + 4];
    const wide its = curves[6 * beside * body.n_pieces + 4];
    if (kinds[id] == kinds[beside]) return {varies ? between : between * mine, false};
    if (has_flows) return {wide(1), true};
    if (has_coefficients)
        return {wide(1) / ((body.below[2][at] / mine + body.above[2][at] / its) - between), false};
    const wide* const halves = kinds + n;
    const wide contact = (halves + 3 * n)[(2 * n + id) * n + beside];
    return {wide(1) / ((halves[2 * n + id] / mine + halves[2 * n + beside] / its) + contact), false};
}

extern "C" __global__ void __launch_bounds__(256)
    body_1d_arrays(real* __restrict__ below, real* __restrict__ above, real* __restrict__ heat,
                   const int low, const int high, const __grid_constant__ Body body) {
    const int x = low + int(blockIdx.x * blockDim.x + threadIdx.x);
    if (x >= high) return;
    const int id = is_alike ? 0 : body.ids[x];
    const wide rate = is_alike           ? wide(body.rate_of_all)
                      : has_coefficients ? body.rate[x]
                                         : body.tables[3 * body.n_ids * body.n_ids + id];
    auto number = [&](int at) {
        const UpperFace face = upper_face(body, at);
        const wide found = mul_real(rate, face.number);
        return face.is_flow ? -found : found;
    };
    // What lies beyond both ends is never read.
    below[x] = x > low ? number(x - 1) : wide(0);
    above[x] = x + 1 < high ? number(x) : wide(0);
    if (heats == Heats::nothing) return;
    wide taken = has_coefficients ? mul_real(rate, body.volume[x]) : rate;
    if (heats == Heats::the_same) {
        const int index[3] = {0, 0, x};
        taken = mul_real(taken,
            follow(TS_SOURCE - 1, given_at(body, body.source, index, 0, id, wide(0))));
    }
    heat[x] = taken;
}
