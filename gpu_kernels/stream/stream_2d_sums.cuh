// stream_2d_sums.cuh: a level of stencils that mirror left-right and up-down, whose warps hand on
// sums of rows (see stream_2d.cu).
//
// Idea    Pairs left and right are added once; the sum of a row with the weights of distance dy goes
//         to the slots dy above and dy below, so a row costs reach_y + 1 sums. If a warp took rows
//         of the patch above, it would make these sums again (box-2d49p, patches of 6 rows: 33
//         operations a point instead of 23). So it takes what they add up to: the patch above sums
//         its own rows for the slots below its last one as well, 2 * reach_y of them, and one
//         addition joins both parts of a slot. Handed-on rows are as many as rows of values would
//         be, and need no shuffles where they arrive.
// Order   each part from the last row to the first, as in stream_2d_rows.cuh; where a point's sum is
//         divided depends on its row modulo `rows`, so patches begin at multiples of `rows` in the
//         whole grid, and bits do not depend on where it is cut.

#pragma once

// The patch and the 2 * reach_y slots below it, which belong to the patch below.
struct Slots {
    real (&patch)[rows][columns];
    real ahead[edge_rows > 0 ? edge_rows : 1][columns];

    __device__ __forceinline__ real& at(int p, int c) {
        return p < rows ? patch[p][c] : ahead[p - rows][c];
    }
};

// Give own row q to all slots that read it.
__device__ __forceinline__ void give_row(Slots& slots, int q, const Row& row, const Weights& w) {
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        real pairs[reach_x + 1];
#pragma unroll
        for (int d = 0; d <= reach_x; ++d) pairs[d] = pair_sum(row, c, d);
#pragma unroll
        for (int dy = reach_y; dy >= 0; --dy) {
            // the last row is the first that slots of the patch below see
            const bool last = q == rows - 1;
            const int near = q + reach_y - dy, far = q + reach_y + dy;
            real& to = slots.at(near, c);
            if (dy == 0) {
                to = last ? weighted<false>(pairs, 0, real(0), w) : weighted<true>(pairs, 0, to, w);
                continue;
            }
            const real sum = weighted<false>(pairs, dy, real(0), w);
            to = dy == reach_y || (last && near >= rows) ? sum : to + sum;
            real& other = slots.at(far, c);
            other = last && far >= rows ? sum : other + sum;
        }
    }
}

// As `advance` of stream_2d_tile.cuh; `after(q)` follows row q: slot q + edge_rows is finished.
template <class After>
__device__ __forceinline__ void advance_sums(real (&patch)[rows][columns], const real* above,
                                             real* below, int lane, const Weights& w, After after) {
    Slots slots{patch};
#pragma unroll
    for (int q = rows - 1; q >= 0; --q) {
        give_row(slots, q, widen(patch[q], true), w);
        const int done = q + edge_rows - rows;  // slot of the patch below that all own rows are in
        if (done >= 0) store_edge(below + done * width, slots.ahead[done], lane);
        after(q);
    }
    __syncthreads();  // the sums of the patch above are there
#pragma unroll
    for (int q = -1; q >= -edge_rows; --q) {
        real others[columns];
        load_edge(others, above + (edge_rows + q) * width, lane);
#pragma unroll
        for (int c = 0; c < columns; ++c) patch[q + edge_rows][c] = patch[q + edge_rows][c] + others[c];
        after(q);
    }
    if (edges == 1) __syncthreads();  // they have been read, and may be overwritten
}
