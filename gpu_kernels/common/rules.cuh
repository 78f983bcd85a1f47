// rules.cuh: what rules give: the programs of faces and sources, with numbers by code and by step.

#pragma once
#include "common.cuh"

#if !defined(TS_RULES)
#error "rules.cuh needs -DTS_RULES, the cases of a switch (see gpu_kernels/common/body.py)"
#endif

__device__ __forceinline__ wide infinity() { return wide(1) / wide(0); }

// Where the numbers of a parameter are: those of the first step and code, and the distance from
// step to step and from code to code.
struct Place {
    int begin;
    int per_step;
    int per_code;
};

// A rule with its numbers: of its parameter p at some step, number[place[p]].
struct Rule {
    int program;  // -1: there is no rule
    int places;   // of its first parameter
};

// What a program is given at a point; nothing is read that it does not ask for.
struct Given {
    const wide* numbers;
    const Place* places;
    int step;
    int code;
    wide mirror;
    wide temperature;  // of the mirror point, and its conductivity, where the state is heat content
    wide conductivity;
    const wide* coordinates[3];  // of this point along z, y, x

    __device__ __forceinline__ wide parameter(int p) const {
        const Place at = places[p];
        return numbers[at.begin + step * at.per_step + code * at.per_code];
    }
    __device__ __forceinline__ wide coordinate(int axis) const { return *coordinates[axis]; }
};

__device__ __forceinline__ wide follow(int program, const Given& given) {
    switch (program) { TS_RULES }
    return wide(0);
}
