// registers_2d_rows.cuh: what one row of a tile gives to the rows of the next level where the
// coefficients of every face lie in registers (palette_2d_registers.cu, coefficients_2d.cu).
//
// Idea    A level lies one row further up than the one before, so of a patch's rows of coefficients
//         one enters at the top and one leaves at the bottom per level. Their slots are taken modulo
//         `rows`, and levels are unrolled as often: nothing is moved.
// Limits  depth is a multiple of rows, which are at least 3.
// Order   The faces to the row below, left, right, above; of the first column of a lane right before
//         left. What leaves a point enters the other.

#pragma once

static_assert(depth % rows == 0 && rows >= 3, "see Limits");

// Of the rows -1 .. rows - 2 of a patch, in slots that a level shifts.
struct Coefficients {
    real right[rows][columns], above[rows][columns], rate[rows][columns];
    real below[columns];  // of the last row's face to the one before it
};

struct Carry {
    real below[columns];   // the row consumed before
    real fluxes[columns];  // into it, but that from above
};

// Give row q of a level to the slots of the next; `shift` is the number of the level modulo rows.
// `leave(slot)` is told the place of a row that is needed no more.
template <int shift, class Leave>
__device__ __forceinline__ void consume(real (&patch)[rows][columns], Carry& carry,
                                        Coefficients& coefficients, int q,
                                        const real (&given)[columns], Leave leave) {
    const auto slot = [](int row) { return (row - shift + 4 * rows) % rows; };
    real own[columns];
#pragma unroll
    for (int c = 0; c < columns; ++c) own[c] = given[c];
    if (q < rows - 1) {
        const int before = slot(q + 1), now = slot(q);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const real conductance =
                q == rows - 2 ? coefficients.below[c] : coefficients.above[before][c];
            const real difference = carry.below[c] - own[c];
            if (q < rows - 2) {
                const real sum = fma_real(-conductance, difference, carry.fluxes[c]);
                patch[q + 2][c] = fma_real(coefficients.rate[before][c], sum, carry.below[c]);
            }
            carry.fluxes[c] = mul_real(conductance, difference);
        }
        if (q >= -1) {
            // Each face once: a lane's last one is told to the lane beside, which has its point.
            const real next = __shfl_down_sync(~0u, own[0], 1);
            const real out = mul_real(coefficients.right[now][columns - 1], next - own[columns - 1]);
            const real in = __shfl_up_sync(~0u, out, 1);
#pragma unroll
            for (int c = 0; c < columns - 1; ++c) {
                const real conductance = coefficients.right[now][c];
                const real difference = own[c + 1] - own[c];
                carry.fluxes[c] = fma_real(conductance, difference, carry.fluxes[c]);
                carry.fluxes[c + 1] = fma_real(-conductance, difference, carry.fluxes[c + 1]);
            }
            carry.fluxes[columns - 1] = carry.fluxes[columns - 1] + out;
            carry.fluxes[0] = carry.fluxes[0] - in;
        }
        if (q == rows - 3) {
#pragma unroll
            for (int c = 0; c < columns; ++c) coefficients.below[c] = coefficients.above[before][c];
            leave(before);
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) carry.below[c] = own[c];
}

// Calls `level` with 0, ..., rows - 1 as types.
template <int N>
struct Number {
    static constexpr int value = N;
};

template <int N = 0, class Level>
__device__ __forceinline__ void for_each_shift(Level& level) {
    level(Number<N>());
    if constexpr (N + 1 < rows) for_each_shift<N + 1>(level);
}
