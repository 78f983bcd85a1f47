// stream_2d_rows.cuh: what one row of a tile gives to the rows of the next level (see
// stream_2d.cu).
//
// Idea    A patch of rows x columns points stays in registers and is advanced in place. Slot p of
//         the next level is 2 * reach_y rows behind: it is centred on row p - reach_y and reads
//         rows p - 2 * reach_y .. p of this level. So if rows are consumed from the last to the
//         first, a row that has been consumed is needed no more and its registers take the sum of
//         the slot of the same number.
// Scheme  0, taps: each tap is one multiply-add. The first tap of the chain may have weight 1
//         (levels are carried divided by its weight to the power of the level), then it costs
//         nothing.
//         1, mirrored: weights are equal for (+-dy, +-dx). Pairs left and right are added once and
//         used by every row; what a row gives to the slots dy above and dy below is the same
//         number.
//         2, diamond: four equal neighbours, carried divided by their weight. With a(i, j) = u(i,
//         j+1) + u(i+1, j) the sum of the four is a(i, j) + a(i-1, j-1): two additions and one
//         multiply-add a point.
// Order   the rows of the chain run from dy = +reach_y to -reach_y, the taps of a row from left to
//         right (mirrored: from the outermost pair to the centre). It is the same for every point,
//         wherever tiles lie.

#pragma once

constexpr int reach_x = TS_REACH_X;
constexpr int reach_y = TS_REACH_Y;
constexpr int rows = TS_ROWS;        // of a warp's patch
constexpr int columns = TS_COLUMNS;  // of a lane's patch
constexpr bool unit = TS_UNIT;       // the first tap of the chain has weight 1
// rows dy = -reach_y .. reach_y, bit dx + reach_x for each tap
constexpr unsigned row_taps[] = {TS_ROW_TAPS};

constexpr int taps = 0;
constexpr int mirrored = 1;
constexpr int diamond = 2;
constexpr int scheme = TS_SCHEME;

constexpr bool has_tap(int dy, int dx) { return row_taps[dy + reach_y] >> (dx + reach_x) & 1u; }
constexpr bool reads_sideways(int dy) { return (row_taps[dy + reach_y] & ~(1u << reach_x)) != 0; }

// The first row of the chain of a point: the largest dy that has taps.
constexpr int first_dy() {
    int dy = reach_y;
    while (row_taps[dy + reach_y] == 0) --dy;
    return dy;
}

// The last one.
constexpr int last_dy() {
    int dy = -reach_y;
    while (row_taps[dy + reach_y] == 0) ++dy;
    return dy;
}

// Whether any slot of the patch needs the neighbours' columns of row q (q < 0: row of the patch
// above).
constexpr bool is_read_sideways(int q) {
    for (int dy = -reach_y; dy <= reach_y; ++dy) {
        const int p = q + reach_y - dy;
        if (p >= 0 && p < rows && reads_sideways(dy)) return true;
    }
    return false;
}

// One row of a lane's patch and reach_x columns of the lanes beside it. Outermost lanes of a warp
// get values of no use; those spoil reach_x columns more with every level, which the tile has to
// spare.
struct Row {
    real value[columns + 2 * reach_x];

    __device__ __forceinline__ real at(int column) const { return value[column + reach_x]; }
};

__device__ __forceinline__ Row widen(const real (&own)[columns], bool sideways) {
    Row row;
#pragma unroll
    for (int c = 0; c < columns; ++c) row.value[reach_x + c] = own[c];
    if (sideways) {
        // Neighbouring columns lie in the registers of the lanes beside: one shuffle per column and
        // side.
#pragma unroll
        for (int d = 1; d <= reach_x; ++d) {
            row.value[reach_x - d] = __shfl_up_sync(~0u, own[columns - d], 1);
            row.value[reach_x + columns - 1 + d] = __shfl_down_sync(~0u, own[d - 1], 1);
        }
    }
    return row;
}

// What is kept from one row to the next; the sums themselves are kept in the patch.
struct Carry {
    Row below;           // diamond: the row consumed before
    real pair[columns];  // diamond: a(row below, column)
};

__device__ __forceinline__ void consume_taps(real (&patch)[rows][columns], int q, const Row& row,
                                             const Weights& w) {
#pragma unroll
    for (int dy = reach_y; dy >= -reach_y; --dy) {
        const int p = q + reach_y - dy;
        if (p < 0 || p >= rows) continue;
        bool first = dy == first_dy();
#pragma unroll
        for (int dx = -reach_x; dx <= reach_x; ++dx) {
            if (!has_tap(dy, dx)) continue;
            const real weight = w.w[(dy + reach_y) * (2 * reach_x + 1) + dx + reach_x];
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                const real value = row.at(c + dx);
                patch[p][c] = !first ? fma_real(weight, value, patch[p][c])
                              : unit ? value
                                     : mul_real(weight, value);
            }
            first = false;
        }
        if (dy == last_dy()) {
#pragma unroll
            for (int c = 0; c < columns; ++c) patch[p][c] = settled(patch[p][c]);
        }
    }
}

// Pairs of row q at distance d; the centre itself for d = 0.
__device__ __forceinline__ real pair_sum(const Row& row, int c, int d) {
    return d == 0 ? row.at(c) : row.at(c - d) + row.at(c + d);
}

// Sum of a row with the weights of distance dy, on top of `sum` if there is one.
template <bool ON_TOP>
__device__ __forceinline__ real weighted(const real (&pairs)[reach_x + 1], int dy, real sum,
                                         const Weights& w) {
    const bool is_unit = unit && dy == reach_y;
#pragma unroll
    for (int d = reach_x; d >= 0; --d) {
        const real weight = w.w[dy * (reach_x + 1) + d];
        if (ON_TOP || d < reach_x) {
            sum = fma_real(weight, pairs[d], sum);
        } else {
            sum = is_unit ? pairs[d] : mul_real(weight, pairs[d]);
        }
    }
    return sum;
}

__device__ __forceinline__ void consume_mirrored(real (&patch)[rows][columns], int q,
                                                 const Row& row, const Weights& w) {
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        real pairs[reach_x + 1];
#pragma unroll
        for (int d = 0; d <= reach_x; ++d) pairs[d] = pair_sum(row, c, d);
#pragma unroll
        for (int dy = reach_y; dy >= 0; --dy) {
            const int near = q + reach_y - dy;
            const int far = q + reach_y + dy;
            if (dy == 0) {
                if (near >= 0 && near < rows)
                    patch[near][c] = weighted<true>(pairs, 0, patch[near][c], w);
                continue;
            }
            if ((near < 0 || near >= rows) && (far < 0 || far >= rows)) continue;
            const real sum = weighted<false>(pairs, dy, real(0), w);
            if (near >= 0 && near < rows)
                patch[near][c] = dy == reach_y ? sum : patch[near][c] + sum;
            if (far >= 0 && far < rows) {
                const real added = patch[far][c] + sum;
                patch[far][c] = dy == reach_y ? settled(added) : added;
            }
        }
    }
}

__device__ __forceinline__ void consume_diamond(real (&patch)[rows][columns], Carry& carry, int q,
                                                const Row& row, const Weights& w) {
    real pair[columns + 1];  // a(q, column - 1)
    if (q < rows - 1) {
#pragma unroll
        for (int c = 0; c <= columns; ++c) pair[c] = row.at(c) + carry.below.at(c - 1);
    }
    if (q < rows - 2) {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            patch[q + 2][c] =
                settled(fma_real(w.w[0], carry.below.at(c), pair[c]) + carry.pair[c]);
        }
    }
    if (q < rows - 1) {
#pragma unroll
        for (int c = 0; c < columns; ++c) carry.pair[c] = pair[c + 1];
    }
    carry.below = row;
}

// Give row q of this level to the slots of the next. Rows come in the order rows - 1, ..., 0, -1,
// ..., -2 * reach_y.
__device__ __forceinline__ void consume(real (&patch)[rows][columns], Carry& carry, int q,
                                        const real (&own)[columns], const Weights& w) {
    const Row row = widen(own, is_read_sideways(q));
    if constexpr (scheme == taps) {
        consume_taps(patch, q, row, w);
    } else if constexpr (scheme == mirrored) {
        consume_mirrored(patch, q, row, w);
    } else {
        consume_diamond(patch, carry, q, row, w);
    }
}
