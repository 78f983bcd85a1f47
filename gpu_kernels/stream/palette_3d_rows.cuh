// palette_3d_rows.cuh: what one plane of one level gives to its points and those of the plane
// before, in a body of a few materials (part of palette_3d.cu).
//
// Idea    A thread keeps of every level the plane before (`was`) and the fluxes into it but those
//         from the plane that comes; these finish it. If all that a warp read of both planes was of
//         one id, temperatures are advanced by the sum of five neighbours instead.
//         Where states are heat contents, what flows by difference is looked up once per point and
//         level: `was` keeps that, and the fluxes begin with the heat content itself, conductances
//         being times dt. Only where some states are held, or heat flows between materials by
//         temperature, is the heat content of the plane before needed again: then `was` keeps it.
// Order   Mixed: q, then the faces to the plane before, right or left (first and last column), rows
//         before and behind, and to the plane behind. Uniform: neighbours are added, times the weight
//         of their axis. Which of the two depends on ids and places in the whole grid only.

#pragma once

#include "palette_3d_faces.cuh"

// What the fluxes of a point begin with, before those through its faces.
template <int i>
__device__ __forceinline__ real beginning(const Turn& turn, const Faces& faces, int c, real state) {
    if (!has_sources) return state;
    const real source = faces.template source<i>(turn, c);
    return begins_with_heat ? state + source : source;
}

// Row i of a plane that comes, and all rows after it.
template <int i, class Rows>
__device__ __forceinline__ void mixed_rows(const Rows& source, const Place& place, const Turn& turn,
                                           const Faces& faces, Point (&row_before)[columns],
                                           Points& was, Points& fluxes, Points& finished) {
    real state[columns];
    Point own[columns];
    source.template read<i>(place, state);
#pragma unroll
    for (int c = 0; c < columns; ++c)
        own[c] = {state[c], faces.template flowing<i>(turn, faces.now, c, state[c])};
    if constexpr (i >= 0 && i < rows) {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const Across face = faces.template across<i>(turn, place.lane, c);
            const real kept = source.before(place, was, i, c);
            const Point before{kept, begins_with_heat ? kept
                                                      : faces.template flowing<i>(
                                                            turn, faces.before, c, kept)};
            const Flow flow = flow_through<3, 0>(
                turn.palette, face.conductance, own[c], before,
                [&] { return TwoIds{faces.now.id<i>(c), faces.before.id<i>(c)}; });
            const real sum = fma_real(-flow.conductance, flow.difference, fluxes[i][c]);
            finished[i][c] = begins_with_heat ? sum : fma_real(face.rate, sum, before.state);
            fluxes[i][c] = has_sources || begins_with_heat
                               ? fma_real(flow.conductance, flow.difference,
                                          beginning<i>(turn, faces, c, own[c].state))
                               : mul_real(flow.conductance, flow.difference);
            source.keep(was, i, c, begins_with_heat ? own[c].flowing : own[c].state);
        }

        // Each face once: a lane hands the flow through its last one to the lane beside, which has
        // its point.
        Point right{};
        right.flowing = __shfl_down_sync(whole_warp, own[0].flowing, 1);
        if (varies) right.state = __shfl_down_sync(whole_warp, own[0].state, 1);
        const auto along = [&](int c, const Point& low, const Point& high) {
            return flow_through<3, 2>(
                turn.palette, faces.template along_x<i>(turn, place.lane, c), low, high,
                [&] { return TwoIds{faces.now.id<i>(c), faces.now.id<i>(c + 1)}; });
        };
        const Flow last = along(columns - 1, own[columns - 1], right);
        const real out = mul_real(last.conductance, last.difference);
        const real in = __shfl_up_sync(whole_warp, out, 1);
#pragma unroll
        for (int c = 0; c < columns - 1; ++c) {
            const Flow flow = along(c, own[c], own[c + 1]);
            fluxes[i][c] = fma_real(flow.conductance, flow.difference, fluxes[i][c]);
            fluxes[i][c + 1] = fma_real(-flow.conductance, flow.difference, fluxes[i][c + 1]);
        }
        fluxes[i][0] -= in;
        fluxes[i][columns - 1] += out;
    }
    if constexpr (i >= 0) {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const Flow flow = flow_through<3, 1>(
                turn.palette, faces.template along_y<i>(turn, place.lane, c), row_before[c], own[c],
                [&] { return TwoIds{faces.now.id<i - 1>(c), faces.now.id<i>(c)}; });
            if constexpr (i < rows) {
                fluxes[i][c] = fma_real(-flow.conductance, flow.difference, fluxes[i][c]);
            }
            if constexpr (i > 0) {
                fluxes[i - 1][c] = fma_real(flow.conductance, flow.difference, fluxes[i - 1][c]);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) row_before[c] = own[c];
    if constexpr (i < rows) {
        mixed_rows<i + 1>(source, place, turn, faces, row_before, was, fluxes, finished);
    }
}

// The numbers of the one id of two planes.
struct Uniform {
    real weight_z, weight_y, weight_x, centre, source;

    // Of the neighbours in a plane and in the plane before, what is kept.
    __device__ __forceinline__ real sum(real along_x, real along_y, real before) const {
        if (isotropic) return (along_x + along_y) + before;
        return fma_real(weight_x, along_x,
                        fma_real(weight_y, along_y, mul_real(weight_z, before)));
    }

    __device__ __forceinline__ real finished(real sum, real behind, real own) const {
        const real centred =
            has_sources ? fma_real(centre, own, source) : mul_real(centre, own);
        if (isotropic) return fma_real(weight_z, sum + behind, centred);
        return fma_real(weight_z, behind, sum + centred);
    }
};

template <int i, class Rows>
__device__ __forceinline__ void uniform_rows(const Rows& source, const Place& place,
                                             const Uniform& one, real (&two_before)[columns],
                                             real (&row_before)[columns], Points& was, Points& sums,
                                             Points& finished) {
    real own[columns];
    source.template read<i>(place, own);
    if constexpr (i >= 1) {
        constexpr int k = i - 1;
        const real right = __shfl_down_sync(whole_warp, row_before[0], 1);
        const real left = __shfl_up_sync(whole_warp, row_before[columns - 1], 1);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const real before = source.before(place, was, k, c);
            finished[k][c] = one.finished(sums[k][c], row_before[c], before);
            const real along_x = (c == 0 ? left : row_before[c > 0 ? c - 1 : 0]) +
                                 (c < columns - 1 ? row_before[c < columns - 1 ? c + 1 : c] : right);
            sums[k][c] = one.sum(along_x, two_before[c] + own[c], before);
            source.keep(was, k, c, row_before[c]);
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        two_before[c] = row_before[c];
        row_before[c] = own[c];
    }
    if constexpr (i < rows) {
        uniform_rows<i + 1>(source, place, one, two_before, row_before, was, sums, finished);
    }
}

// Fluxes into the points of the plane before are those of their five neighbours.
template <class Rows>
__device__ __forceinline__ void make_sums(const Rows& source, const Place& place, const Turn& turn,
                                          const Points& was, Points& kept) {
    const real(&one)[8] = turn.tables.uniform[turn.id];
    const real flux_of_source = has_sources ? turn.sources[turn.id] : real(0);
    const real factor = isotropic ? one[6] : one[4];
    const real own = isotropic ? real(5) : real(1) - one[3] - one[0];
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            kept[i][c] = fma_real(factor, kept[i][c] - flux_of_source,
                                  mul_real(own, source.before(place, was, i, c)));
        }
}

// And back.
template <class Rows>
__device__ __forceinline__ void make_fluxes(const Rows& source, const Place& place,
                                            const Turn& turn, const Points& was, Points& kept) {
    const real(&one)[8] = turn.tables.uniform[turn.id_before];
    const real flux_of_source = has_sources ? turn.sources[turn.id_before] : real(0);
    const real factor = isotropic ? one[5] : one[7];
    const real own = isotropic ? real(5) : real(1) - one[3] - one[0];
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const real before = source.before(place, was, i, c);
            kept[i][c] =
                fma_real(factor, fma_real(-own, before, kept[i][c]), flux_of_source);
        }
}

// The numbers of the one id of two planes whose states are heat contents.
struct UniformHeat {
    real across, along_y, along_x;  // conductances, times dt where fluxes begin with the heat content
    real rate, source;

    // What the fluxes into a point are but that from the plane behind; all but `state` are what
    // flows by difference.
    __device__ __forceinline__ real fluxes(real in_x, real in_y, real before, real own,
                                           real state) const {
        const real start = begins_with_heat ? (has_sources ? state + source : state)
                                            : (has_sources ? source : real(0));
        if (isotropic) {
            return fma_real(across, fma_real(real(-5), own, (in_x + in_y) + before), start);
        }
        const real from_x = fma_real(along_x, fma_real(real(-2), own, in_x), start);
        const real from_y = fma_real(along_y, fma_real(real(-2), own, in_y), from_x);
        return fma_real(across, before - own, from_y);
    }
};

#if TS_PIECES > 0
// The least and the most of the heat contents of all rows of a warp's threads, from row i on.
template <int i, class Rows>
__device__ __forceinline__ void take_rows(const Rows& source, const Place& place, Extremes& all) {
    real state[columns];
    source.template read<i>(place, state);
#pragma unroll
    for (int c = 0; c < columns; ++c) all.take(state[c]);
    if constexpr (i < rows - 1) take_rows<i + 1>(source, place, all);
}

template <class Rows>
__device__ __forceinline__ Extremes extremes_of(const Rows& source, const Place& place) {
    real first[columns];
    source.template read<0>(place, first);
    Extremes all(first[0]);
    take_rows<0>(source, place, all);
    return all;
}
#endif

// As `uniform_rows`; own rows take `line`, those of other warps `curve`.
template <int i, class Rows, class OwnCurve, class Curve>
__device__ __forceinline__ void uniform_heat_rows(const Rows& source, const Place& place,
                                                  const UniformHeat& one, const OwnCurve& line,
                                                  const Curve& curve, real (&two_before)[columns],
                                                  Point (&row_before)[columns], Points& was,
                                                  Points& fluxes, Points& finished) {
    real state[columns];
    Point own[columns];
    source.template read<i>(place, state);
#pragma unroll
    for (int c = 0; c < columns; ++c)
        own[c] = {state[c], i < 0 || i >= rows ? curve.at(state[c]) : line.at(state[c])};
    if constexpr (i >= 1) {
        constexpr int k = i - 1;
        const real right = __shfl_down_sync(whole_warp, row_before[0].flowing, 1);
        const real left = __shfl_up_sync(whole_warp, row_before[columns - 1].flowing, 1);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const real kept = source.before(place, was, k, c), here = row_before[c].flowing;
            const real before = begins_with_heat ? kept : curve.at(kept);
            const real sum = fma_real(one.across, here - before, fluxes[k][c]);
            finished[k][c] = begins_with_heat ? sum : fma_real(one.rate, sum, kept);
            const real in_x = (c == 0 ? left : row_before[c > 0 ? c - 1 : 0].flowing) +
                              (c < columns - 1 ? row_before[c < columns - 1 ? c + 1 : c].flowing
                                               : right);
            fluxes[k][c] = one.fluxes(in_x, two_before[c] + own[c].flowing, before, here,
                                      row_before[c].state);
            source.keep(was, k, c, begins_with_heat ? here : row_before[c].state);
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        two_before[c] = row_before[c].flowing;
        row_before[c] = own[c];
    }
    if constexpr (i < rows) {
        uniform_heat_rows<i + 1>(source, place, one, line, curve, two_before, row_before, was,
                                 fluxes, finished);
    }
}
