// domain.cuh: where the faces of the domain are, and what ghosts beyond them take.

#pragma once
#include "common.cuh"

#if !defined(TS_REACH)
#error "domain.cuh needs -DTS_REACH, how many ghosts beyond a face are told, at least 1"
#endif

// `box` has the points inside reflecting faces; an end that is none of them is far away. period is
// the number of points of a periodic axis, else 0. Ghost number g beyond side s takes a[axis][s][g]
// + b[axis][s][g] * mirror, and where deep[axis][s] is not 0 what ghosts.cu adds to that.
struct Domain {
    Box box;
    int period[3];
    wide a[3][2][TS_REACH];
    wide b[3][2][TS_REACH];
    wide deep[3][2];
};

// What a ghost holds: a + b * mirror.
__device__ __forceinline__ real reflected(wide b, real mirror, wide a) {
    return narrow(fma_real(b, widen(mirror), a));
}
