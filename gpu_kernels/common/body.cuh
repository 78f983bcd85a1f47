// body.cuh: what a slab is made of, what heats it, and what holds at its faces, for kernels that
// make steps of conduction.
//
// Order   For each point the chain of tetris_sim/model/conduction.py: what heats it, then each neighbour
//         along z, y, x, the lower one first, and at last the rate; one fused multiply-add each,
//         but where heat flows between different materials whose state is heat content
//         (tetris_sim/model/conduction.py). So the bits are the same in every kernel that uses it.

#pragma once
#include "rules.cuh"

#if !defined(TS_ID) || !defined(TS_AXES) || !defined(TS_SOURCE) || !defined(TS_COEFFICIENTS) || \
    !defined(TS_ENTHALPY) || !defined(TS_ALIKE)
#error "body.cuh needs -DTS_ID, -DTS_AXES, -DTS_SOURCE, -DTS_COEFFICIENTS, -DTS_ENTHALPY, -DTS_ALIKE"
#endif

using Id = TS_ID;
constexpr int first_axis = 3 - TS_AXES;              // of three; those before have one point
constexpr bool has_source = TS_SOURCE;               // else nothing heats the points
constexpr bool has_coefficients = TS_COEFFICIENTS;  // each face its own; else by ids
constexpr bool has_enthalpy = TS_ENTHALPY;           // the state is heat content
constexpr bool is_alike = TS_ALIKE;                  // one id: its numbers are in `struct Body`

// A face with a rule. Code of the point inside it at (i, j, k): codes[begin + i * stride[0] + ...];
// along the face's own axis the stride is 0.
struct Face {
    long long begin;
    int stride[3];
    Rule rule;  // program -1 where there is no face, or one that joins an axis into a ring
};

// Made by `Body` of body.py. Fields that are laid out as the state begin with its owned point
// (0, 0, 0).
struct Body {
    const Id* ids;  // of every point, its ghosts and halo
    // [z, y, x][n_ids][n_ids] conductances, [n_ids] rates, coordinates; then of heat contents the
    // knots [n_ids][n_pieces], curves [n_ids][n_pieces][6] (temperature, potential, conductivity,
    // each its value where the piece begins and its slope), kinds [n_ids], halves [z, y, x][n_ids],
    // contacts [z, y, x][n_ids][n_ids], and as many radiances where surfaces radiate
    const wide* tables;
    // with coefficients, laid out as the state: conductance of the upper face of each point along
    // z, y, x; rate; volume, by which what heats a point is multiplied. Of heat contents the
    // conductance is, between different materials, their contact with the other sign, and `below`
    // and `above` are the halves on both sides of the face; `radiance` is where surfaces radiate.
    const wide* upper[3];
    const wide* below[3];
    const wide* above[3];
    const wide* radiance[3];
    const wide* rate;
    const wide* volume;
    const wide* numbers;  // of rules, of the steps that come
    const Place* places;
    const int* codes;
    const Face* faces;  // [z, y, x][low, high]
    int n_ids;
    int n_pieces;
    int knots;      // where they begin in `tables`
    int along[3];  // coordinate of index 0 along z, y, x in `tables`
    Rule source;
    Box inside;     // faces; an end that is none is far away
    int period[3];  // points of an axis that is a ring within the slab, else 0
    double conductances[3], rate_of_all;  // of a body that is alike everywhere
};

// A point, and where it lies in memory.
struct Point {
    int index[3];
    long long at;
};

__device__ __forceinline__ Point point_at(const Memory& memory, int i, int j, int k) {
    return {{i, j, k}, i * memory.plane + j * memory.row + k};
}

__device__ __forceinline__ Given given_at(
    const Body& body, const Rule& rule, const int (&index)[3], int step, int code, wide mirror) {
    Given given{body.numbers, body.places + rule.places, step, code, mirror, wide(0), wide(0), {}};
#pragma unroll
    for (int d = 0; d < 3; d++) given.coordinates[d] = body.tables + (body.along[d] + index[d]);
    return given;
}

// The piece of the curves of an id on which a heat content lies.
struct Piece {
    wide above;            // the knot where it begins
    const wide* numbers;   // of the curves

    __device__ __forceinline__ wide value(int curve) const {
        return fma_real(numbers[2 * curve + 1], above, numbers[2 * curve]);
    }
    __device__ __forceinline__ wide temperature() const { return value(0); }
    __device__ __forceinline__ wide potential() const { return value(1); }
    __device__ __forceinline__ wide conductivity() const { return value(2); }
};

__device__ __forceinline__ Piece piece_of(const Body& body, int id, wide heat) {
    const wide* const knots = body.tables + body.knots + id * body.n_pieces;
    int piece = 0, last = body.n_pieces - 1;  // the last knot that is not above the heat content
    while (piece < last) {
        const int middle = (piece + last + 1) / 2;
        if (knots[middle] <= heat) piece = middle;
        else last = middle - 1;
    }
    const wide* const curves = body.tables + body.knots + body.n_ids * body.n_pieces;
    return {heat - knots[piece], curves + 6 * (id * body.n_pieces + piece)};
}

// What the ghost beyond a face holds whose mirror point is `index`, of an id, and has the state
// `mirror`; where that is heat content, the ghost holds a potential.
__device__ __forceinline__ real ghost_beyond(
    const Body& body, const Face& face, const int (&index)[3], int id, int step, real mirror) {
    long long at = face.begin;
#pragma unroll
    for (int d = 0; d < 3; d++) at += (long long)index[d] * face.stride[d];
    Given given = given_at(body, face.rule, index, step, body.codes[at], widen(mirror));
    if (has_enthalpy) {
        const Piece piece = piece_of(body, id, given.mirror);
        given.mirror = piece.potential();
        given.temperature = piece.temperature();
        given.conductivity = piece.conductivity();
    }
    return narrow(follow(face.rule.program, given));
}

// Between neighbours whose state is heat content: the difference of their potentials, or between
// different materials what flows.
struct Flow {
    wide value;
    bool is_difference;
};

#ifdef TS_RADIATING
// What flows here between surfaces that radiate to each other (tetris_sim/model/radiation.py).
__device__ __noinline__ wide radiating(
    wide here, wide there, wide own, wide other, wide contact, wide radiance) {
    TS_RADIATING
}
#endif

// `face`, of a face with halves of its own, is where the point below it lies, at `shift`.
__device__ __forceinline__ Flow flow_between(const Body& body, int axis, int id, int beside,
    const Piece& mine, wide there, bool is_ghost, long long face = 0, int shift = 0) {
    if (is_ghost) return {there - mine.potential(), true};
    const int n = body.n_ids;
    const wide* const kinds = body.tables + body.knots + 7 * n * body.n_pieces;
    const Piece its = piece_of(body, beside, there);
    if (kinds[id] == kinds[beside]) return {its.potential() - mine.potential(), true};
    if (has_coefficients) {
        const wide below = body.below[axis][face], above = body.above[axis][face];
#ifdef TS_RADIATING
        const wide radiance = body.radiance[axis][face];
        if (radiance > wide(0))
            return {radiating(mine.temperature(), its.temperature(),
                        (shift > 0 ? below : above) / mine.conductivity(),
                        (shift > 0 ? above : below) / its.conductivity(), -body.upper[axis][face],
                        radiance),
                false};
#endif
        const wide resistance = ((shift > 0 ? below : above) / mine.conductivity() +
                                    (shift > 0 ? above : below) / its.conductivity()) -
                                body.upper[axis][face];
        return {(its.temperature() - mine.temperature()) / resistance, false};
    }
    const wide* const halves = kinds + n;
    const wide* const contacts = halves + 3 * n;
#ifdef TS_RADIATING
    const wide radiance = contacts[((3 + axis) * n + id) * n + beside];
    if (radiance > wide(0))
        return {radiating(mine.temperature(), its.temperature(),
                    halves[axis * n + id] / mine.conductivity(),
                    halves[axis * n + beside] / its.conductivity(),
                    contacts[(axis * n + id) * n + beside], radiance),
            false};
#endif
    const wide resistance = (halves[axis * n + id] / mine.conductivity() +
                                halves[axis * n + beside] / its.conductivity()) +
                            contacts[(axis * n + id) * n + beside];
    return {(its.temperature() - mine.temperature()) / resistance, false};
}

// What a step reads of a point and those next to it, from where it lies in memory.
// `neighbour(axis, shift)` is the state of the point next to it, `stride` the distance of points
// along each axis in fields laid out as the state.
template <class Neighbour>
struct InMemory {
    const Body& body;
    const Point& point;
    const long long (&stride)[3];
    Neighbour neighbour;
    Piece mine;  // where states are heat contents

    __device__ __forceinline__ InMemory(const Body& body_, const Point& point_,
        const long long (&stride_)[3], wide here, Neighbour neighbour_)
        : body(body_), point(point_), stride(stride_), neighbour(neighbour_), mine{} {
        if (has_enthalpy) mine = piece_of(body, id(), here);
    }
    __device__ __forceinline__ int id() const { return body.ids[point.at]; }
    __device__ __forceinline__ int id(int d, int shift) const {
        return body.ids[point.at + shift * stride[d]];
    }
    __device__ __forceinline__ wide state(int d, int shift) const { return neighbour(d, shift); }
    __device__ __forceinline__ Flow flow(
        int d, int shift, bool is_ghost, long long face) const {
        return flow_between(
            body, d, id(), id(d, shift), mine, state(d, shift), is_ghost, face, shift);
    }
};

// The state of a point after a step; `around` as `InMemory`. Where the state is heat content, ghosts
// of one step are potentials; those that last are mirrored states.
template <bool ghosts_last, class Around>
__device__ __forceinline__ real conducted_in(const Body& body, const Point& point,
    const long long (&stride)[3], int step, wide here, const Around& around) {
    const int id = is_alike ? 0 : around.id();
    wide sum = wide(0);
    if (has_source) {
        Given given = given_at(body, body.source, point.index, step, id, here);
        // Nothing is looked up for a program that does not ask for it.
        if (has_enthalpy) given.temperature = piece_of(body, id, here).temperature();
        sum = follow(TS_SOURCE - 1, given);
        if (has_coefficients) sum = mul_real(sum, body.volume[point.at]);
    }
#pragma unroll
    for (int d = first_axis; d < 3; d++)
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const bool is_first = !has_source && d == first_axis && side == 0;
            const int shift = side == 0 ? -1 : 1;
            wide difference;
            if (has_enthalpy) {
                const int i = point.index[d] + shift;
                const bool is_ghost =
                    !ghosts_last && (i < body.inside.low[d] || i >= body.inside.high[d]);
                const long long face = point.at + (side == 0 ? -stride[d] : 0);
                const Flow flow = around.flow(d, shift, is_ghost, face);
                difference = flow.value;
                if (!flow.is_difference) {
                    sum = is_first ? difference : sum + difference;
                    continue;
                }
            } else {
                difference = around.state(d, shift) - here;
            }
            const wide between =
                is_alike ? wide(body.conductances[d])
                : has_coefficients
                    ? body.upper[d][point.at + (side == 0 ? -stride[d] : 0)]
                    : body.tables[(d * body.n_ids + id) * body.n_ids + around.id(d, shift)];
            sum = is_first ? mul_real(between, difference) : fma_real(between, difference, sum);
        }
    const wide rate =
        is_alike           ? wide(body.rate_of_all)
        : has_coefficients ? body.rate[point.at] : body.tables[3 * body.n_ids * body.n_ids + id];
    return narrow(fma_real(rate, sum, here));
}

// The same of a point in memory; `neighbour` as of `InMemory`.
template <bool ghosts_last = false, class Neighbour>
__device__ __forceinline__ real conducted(const Body& body, const Point& point,
    const long long (&stride)[3], int step, wide here, Neighbour neighbour) {
    const InMemory<Neighbour> around(body, point, stride, here, neighbour);
    return conducted_in<ghosts_last>(body, point, stride, step, here, around);
}
