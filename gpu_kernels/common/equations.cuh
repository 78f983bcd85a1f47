// equations.cuh: what kernels of a step by equations share: its stages, and what they read beside
// names.

#pragma once
#include "common.cuh"

#if !defined(TS_NAMES) || !defined(TS_CONSTANTS) || !defined(TS_COEFFICIENTS) || \
    !defined(TS_STAGES)
#error "equations.cuh needs macros that gpu_kernels/common/given.py lists"
#endif

__device__ __forceinline__ wide infinity() { return wide(1) / wide(0); }

// Stage<n>::compute(at) computes stage n at a point: it asks `at` for tap(name, z, y, x),
// coefficient(number, z, y, x), constant(number), changing(number) and coordinate(axis), then it
// calls at.put(name, value) for what it gives.
template <int number>
struct Stage;
TS_STAGES

// Numbers that never change.
struct Constants {
    real of[TS_CONSTANTS];
};

struct Given {
    const real* along[3];  // coordinates along z, y, x by place of a point, of all in memory
    const real* coefficients[TS_COEFFICIENTS];  // the first owned point of each
    const real* table;  // numbers that change, `window` steps of one after the other
    long long field;    // elements from field to field of the state
    int window;

    __device__ __forceinline__ real changing(int number, int row) const {
        return __ldg(table + number * window + row);
    }
};
