// body.cuh: what a slab is made of, what heats it, and what holds at its faces, for kernels that
// make steps of conduction.
//
// Order   For each point the chain of tetris_sim/conduction.py: what heats it, then each neighbour
//         along z, y, x, the lower one first, and at last the rate; one fused multiply-add each.
//         So the bits are the same in every kernel that uses it.

#pragma once
#include "rules.cuh"

#if !defined(TS_ID) || !defined(TS_AXES) || !defined(TS_SOURCE) || !defined(TS_COEFFICIENTS)
#error "body.cuh needs -DTS_ID, -DTS_AXES, -DTS_SOURCE, -DTS_COEFFICIENTS (see common/body.py)"
#endif

using Id = TS_ID;
constexpr int first_axis = 3 - TS_AXES;              // of three; those before have one point
constexpr bool has_source = TS_SOURCE;               // else nothing heats the points
constexpr bool has_coefficients = TS_COEFFICIENTS;  // each face its own; else by ids

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
    // [z, y, x][n_ids][n_ids] conductances, [n_ids] rates, then coordinates
    const wide* tables;
    // with coefficients, laid out as the state: conductance of the upper face of each point along
    // z, y, x; rate; volume, by which what heats a point is multiplied
    const wide* upper[3];
    const wide* rate;
    const wide* volume;
    const wide* numbers;  // of rules, of the steps that come
    const Place* places;
    const int* codes;
    const Face* faces;  // [z, y, x][low, high]
    int n_ids;
    int along[3];  // coordinate of index 0 along z, y, x in `tables`
    Rule source;
    Box inside;     // faces; an end that is none is far away
    int period[3];  // points of an axis that is a ring within the slab, else 0
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
    Given given{body.numbers, body.places + rule.places, step, code, mirror, {}};
#pragma unroll
    for (int d = 0; d < 3; d++) given.coordinates[d] = body.tables + (body.along[d] + index[d]);
    return given;
}

// What the ghost beyond a face holds whose mirror point is `index` and has the state `mirror`.
__device__ __forceinline__ real ghost_beyond(
    const Body& body, const Face& face, const int (&index)[3], int step, real mirror) {
    long long at = face.begin;
#pragma unroll
    for (int d = 0; d < 3; d++) at += (long long)index[d] * face.stride[d];
    const Given given = given_at(body, face.rule, index, step, body.codes[at], widen(mirror));
    return narrow(follow(face.rule.program, given));
}

// The state of a point after a step. `neighbour(axis, shift)` is the state of the point next to it,
// `stride` the distance of points along each axis in fields laid out as the state.
template <class Neighbour>
__device__ __forceinline__ real conducted(const Body& body, const Point& point,
    const long long (&stride)[3], int step, wide here, Neighbour neighbour) {
    const int id = body.ids[point.at];
    wide sum = wide(0);
    if (has_source) {
        sum = follow(TS_SOURCE - 1,
            given_at(body, body.source, point.index, step, id, wide(0)));
        if (has_coefficients) sum = mul_real(sum, body.volume[point.at]);
    }
#pragma unroll
    for (int d = first_axis; d < 3; d++)
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const long long beside = point.at + (side == 0 ? -stride[d] : stride[d]);
            const wide between =
                has_coefficients
                    ? body.upper[d][side == 0 ? beside : point.at]
                    : body.tables[(d * body.n_ids + id) * body.n_ids + body.ids[beside]];
            const wide difference = neighbour(d, side == 0 ? -1 : 1) - here;
            sum = !has_source && d == first_axis && side == 0 ? mul_real(between, difference)
                                                              : fma_real(between, difference, sum);
        }
    const wide rate =
        has_coefficients ? body.rate[point.at] : body.tables[3 * body.n_ids * body.n_ids + id];
    return narrow(fma_real(rate, sum, here));
}
