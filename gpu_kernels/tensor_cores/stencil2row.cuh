// stencil2row.cuh: a row of the grid as a piece of ConvStencil's matrices A and B in shared memory,
// and their products.
//
// A warp computes n_groups groups of 8 neighbouring points. Group g is a row of the stencil2row
// matrices: A holds 8 points from `lead` in front of the group on, B the ones after those
// (ConvStencil, section 3.2; its kernels are 7 points wide, narrower ones get zeros).
// Dirty bits: A needs no point that lies more than the radius in front of the group, B none that
// lies too far behind. Kept all the same, in the padding and with weights of zero, they make row g
// of B the same numbers as row g + 1 of A: one matrix in shared memory serves for both, and nothing
// is asked while it is written.
//
// Products go by chunks of 4 points (the least depth of a matrix instruction). Chunk q of group g
// begins 4 q - lead points from the group's first; chunks 0 and 1 belong to A, later ones to B. The
// instructions add in the order of the points and round each product once, whatever their depth, so
// the zeros of the weight matrices change no bit and a point's result does not depend on its place
// in a group (looked at on one H200, November 2026).

#pragma once

#include "common.cuh"
#include "mma.cuh"

constexpr int group_points = 8;  // columns of a weight matrix
constexpr int n_groups = 16;     // rows of a fragment of A or B
constexpr int chunk_points = 4;  // points per matrix instruction
constexpr int warp_points = n_groups * group_points;

constexpr int radius_x = TS_RADIUS_X;
constexpr int lead = radius_x + radius_x % 2;  // points of A in front of its group
constexpr int chunks = (lead + group_points + radius_x + chunk_points - 1) / chunk_points;

// Copies begin where 32 bytes of memory do, and lie so in shared memory: else a sector that arrives
// is written in two parts, which costs an eighth (box-2d25p, one step: 184 instead of 210
// GStencil/s, one H200, November 2026).
constexpr int copy_lead = TS_DIRTY_BITS ? (lead + 3) / 4 * 4 : lead;
constexpr int shift = copy_lead - lead;  // points that are copied and that no product reads

// A fragment reads 4 points from each of 4 groups in one request: with 12 points from group to
// group they lie in different banks, with 8 every second group lies in the same ones.
constexpr int pitch = TS_PADDING ? group_points + chunk_points : group_points;
// points of the grid
constexpr int row_read = shift + (n_groups - 1) * group_points + chunk_points * chunks;
constexpr int groups_read = (row_read + group_points - 1) / group_points;
constexpr int matrix_points = groups_read * pitch;
// of shared memory per row of the grid
constexpr int row_points = TS_DIRTY_BITS ? matrix_points : 2 * matrix_points;

// Where a point of a row lies in shared memory, counted from the first that is copied; for a point
// of B without dirty bits: from the first of A's group.
__device__ __forceinline__ constexpr int place_of(int point) {
    return point / group_points * (TS_DIRTY_BITS ? pitch : matrix_points) + point % group_points;
}

// Distance in x from the point of result `column` to point k of chunk q: which tap the weight
// matrices hold there.
__device__ __forceinline__ int tap_of(int q, int k, int column) {
    return q * chunk_points + k - lead - column;
}

// Whether chunk q holds a point that some result of a row reaches whose taps go as far as `reach`
// (-1: no taps).
constexpr bool chunk_used(int q, int reach) {
    const int first = q * chunk_points - lead;
    return reach >= 0 && first <= group_points - 1 + reach && first + chunk_points - 1 >= -reach;
}

// The first chunk that is used, and how many are.
constexpr int first_used(int reach) {
    int q = 0;
    while (q < chunks && !chunk_used(q, reach)) q++;
    return q;
}

constexpr int n_used(int reach) {
    int n = 0;
    for (int q = 0; q < chunks; q++) n += chunk_used(q, reach);
    return n;
}

// c += a b for all points that taps of `reach` use: the piece of the product that begins with chunk
// q, if one does. Pieces are as deep as instructions are: 4 chunks as often as possible, then 2,
// then 1. Deep ones leave more registers to the compiler (172 instead of 220 for a radius of 3:
// three blocks of threads on a multiprocessor, not two).
__device__ __forceinline__ void multiply_piece(real (&c)[4], const real (&a)[chunks][2],
                                               const real (&b)[chunks], int q, int reach) {
    const int n = n_used(reach), at = q - first_used(reach);
    if (at < 0 || at >= n) return;
    const int in_fours = n / 4 * 4, in_twos = n / 2 * 2;
    if (at < in_fours) {
        if (at % 4 != 0) return;
        const real a4[8] = {a[q][0],     a[q][1],     a[q + 1][0], a[q + 1][1],
                            a[q + 2][0], a[q + 2][1], a[q + 3][0], a[q + 3][1]};
        const real b4[4] = {b[q], b[q + 1], b[q + 2], b[q + 3]};
        mma_16x8x16(c, a4, b4);
    } else if (at < in_twos) {
        if (at % 2 != 0) return;
        const real a2[4] = {a[q][0], a[q][1], a[q + 1][0], a[q + 1][1]};
        const real b2[2] = {b[q], b[q + 1]};
        mma_16x8x8(c, a2, b2);
    } else {
        mma_16x8x4(c, a[q][0], a[q][1], b[q]);
    }
}

// Load the fragments of a row of shared memory.
__device__ __forceinline__ void load_fragments(real (&a)[chunks][2], const real* row, int lane) {
    const real* from = row + lane / 4 * pitch;
#pragma unroll
    for (int q = 0; q < chunks; q++) {
        // Chunks come in pairs of one group; where the second of a pair lies may depend on the
        // lane.
        const int in_group = place_of(shift + q % 2 * chunk_points + lane % 4);
        const int at = in_group + place_of(q / 2 * group_points);
        a[q][0] = from[at];
        a[q][1] = from[at + n_groups / 2 * pitch];
    }
}

__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int pending>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// What a lane copies of each row, two points at a time: the paper's lookup table. A lane copies the
// same columns of every row, so the table is made once and stays in registers. The warp's own
// columns come first, in requests of whole lines; a last request fetches the few in front of them
// and behind.
struct RowCopy {
    static constexpr int round_points = 64;  // 16 bytes a lane
    static constexpr int rounds = warp_points / round_points + 1;
    // points in front and behind, at most a round
    static constexpr int around = row_read - warp_points;

    int column[2];  // of the grid, in the first round and in the last
    int place[2];   // of shared memory
    // that exist of 16; the rest becomes zero, for it may be NaN and is multiplied by zero
    int bytes[rounds];
    // the lane copies the dirty bit in front of all that exists, and must clear it
    bool head;
    int low, high;  // columns that exist

    __device__ __forceinline__ RowCopy(int first, const Box& box, int lane) {
        low = box.low[2] - radius_x;
        high = box.high[2] + radius_x;
        column[0] = first + 2 * lane;
        column[1] = column[0] - copy_lead + (2 * lane < copy_lead ? 0 : warp_points);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int point = column[i] - first + copy_lead;
            place[i] = point / group_points * pitch + point % group_points;
        }
#pragma unroll
        for (int i = 0; i < rounds - 1; i++)
            bytes[i] = 8 * clamp(high - column[0] - i * round_points, 0, 3);
        bytes[rounds - 1] = 2 * lane < around ? 8 * clamp(high - column[1], 0, 3) : -1;
        head = lead > radius_x && 2 * lane == shift && first - lead < low;
    }

    // Begin to copy a row of the grid into a row of shared memory, which must have held zeros at
    // first.
    __device__ __forceinline__ void start(real* shared, const real* row, int lane) const {
        if (!TS_DIRTY_BITS) return start_selected(shared, row, lane);
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
#pragma unroll
        for (int i = 0; i < rounds - 1; i++)
            copy_pair(to + 8 * (place[0] + i * 8 * pitch), row + column[0] + i * round_points,
                      bytes[i]);
        if (bytes[rounds - 1] >= 0)
            copy_pair(to + 8 * place[1], row + column[1], bytes[rounds - 1]);
    }

    // Finish it, after waiting and before others look.
    __device__ __forceinline__ void finish(real* shared) const {
        if (TS_DIRTY_BITS && head) shared[shift] = 0;
    }

    // The same without dirty bits: each point is asked which of the matrices needs it.
    __device__ __forceinline__ void start_selected(real* shared, const real* row, int lane) const {
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
        const int first = column[0] - 2 * lane - lead;
        for (int point = lane; point < row_read; point += 32) {
            if (first + point < low || first + point >= high) continue;
            const int in_group = point % group_points, group = point / group_points;
            if (in_group >= lead - radius_x)
                copy_point(to + 8 * (group * pitch + in_group), row + first + point);
            if (group > 0 && in_group < lead + radius_x)
                copy_point(to + 8 * (matrix_points + (group - 1) * pitch + in_group),
                           row + first + point);
        }
    }

    __device__ __forceinline__ static void copy_point(unsigned to, const real* from) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
    }

    __device__ __forceinline__ static void copy_pair(unsigned to, const real* from, int bytes) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                     "r"(bytes)
                     : "memory");
    }
};

// Shared memory begins as zeros: places that no copy writes are multiplied by zero, and NaN times
// zero is NaN.
__device__ __forceinline__ void clear(real* shared, int points, int thread, int threads) {
    for (int i = thread; i < points; i += threads) shared[i] = 0;
}

// Write results `d` of a warp's row that begins at column x; columns from `high` on belong to
// others.
__device__ __forceinline__ void store_row(real* row, int x, int high, const real (&d)[4],
                                          int lane) {
    x += lane / 4 * group_points + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++, x += warp_points / 2) {
        if (x + 1 < high) {
            *reinterpret_cast<double2*>(row + x) = make_double2(d[2 * half], d[2 * half + 1]);
        } else if (x < high) {
            row[x] = d[2 * half];
        }
    }
}
