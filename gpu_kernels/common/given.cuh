// given.cuh: what a step by equations reads beside names and coefficients.

#pragma once
#include "common.cuh"

#if !defined(TS_CONSTANTS)
#error "given.cuh needs -DTS_CONSTANTS, how many numbers never change, at least 1"
#endif

__device__ __forceinline__ wide infinity() { return wide(1) / wide(0); }

struct Given {
    const wide* along[3];  // coordinates along z, y, x by place of the point
    const wide* table;     // numbers that change, `window` steps of one after the other
    int window;
    wide constant[TS_CONSTANTS];

    __device__ __forceinline__ wide changing(int number, int row) const {
        return table[number * window + row];
    }
};
