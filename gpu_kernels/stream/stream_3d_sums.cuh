// stream_3d_sums.cuh: what one plane of one level adds to the sums of the planes around it (part of
// stream_3d.cu).
//
// Plain   One FMA per tap, in the order of TS_TAPS: lexicographic in (dz, dy, dx), which is how
//         points arrive.
// Folded  For stencils that no reflection along an axis changes. TS_TAPS then has one tap for each
//         |dz|, |dy|, |dx|, the largest |dz| first. Points that share a weight are added first,
//         along x and then along y; the sum for |dz| > 0 serves the planes on both sides. For
//         box-3d27p that makes 11.5 operations a point of 26.

#pragma once

// A row of a thread, with the columns of the lanes on both sides that its taps read.
struct Row {
    // one too many: there are no empty arrays
    real own[columns], left[radius_x + 1], right[radius_x + 1];

    __device__ __forceinline__ real at(int x) const {
        return x < 0 ? left[radius_x + x] : x < columns ? own[x] : right[x - columns];
    }
};

// Whether some tap reads row `row`, counted from the thread's first: on its left (side -1), right
// (1), or at all (0).
__host__ __device__ constexpr bool is_read(int row, int side) {
    for (int k = 0; k < n_taps; ++k)
        for (int sign = 1; sign >= (folded ? -1 : 1); sign -= 2) {
            const int target = row - sign * taps[k][1],
                      dx = folded ? side * taps[k][2] : taps[k][2];
            if (target >= 0 && target < rows && (side == 0 || side * dx > 0)) return true;
        }
    return false;
}

template <int i, class Rows>
__device__ __forceinline__ Row read_row(const Rows& source, const Place& place) {
    Row row;
    source.template read<i>(place, row.own);
    if constexpr (is_read(i, -1))
#pragma unroll
        for (int x = -radius_x; x < 0; ++x) {
            const int lanes = (columns - 1 - x) / columns;  // how many lanes away the column lies
            row.left[radius_x + x] =
                __shfl_up_sync(whole_warp, row.own[x + lanes * columns], lanes);
        }
    if constexpr (is_read(i, 1))
#pragma unroll
        for (int x = columns; x < columns + radius_x; ++x)
            row.right[x - columns] =
                __shfl_down_sync(whole_warp, row.own[x % columns], x / columns);
    return row;
}

constexpr int n_sums = 2 * radius_z + 1;
using Sums = Points[n_sums];  // sums[j] belongs to the plane j - radius_z away

// Add what row `i` of a plane gives, then the rows after it.
template <int i, class Rows>
__device__ __forceinline__ void add_rows(const Rows& source, const Place& place,
                                         const Weights& weights, Sums& sums) {
    if constexpr (is_read(i, 0)) {
        const Row row = read_row<i>(source, place);
#pragma unroll
        for (int k = 0; k < n_taps; ++k) {
            const int dz = taps[k][0], target = i - taps[k][1];
            if (target < 0 || target >= rows) continue;
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                real& sum = sums[radius_z - dz][target][c];
                const real value = row.at(c + taps[k][2]);
                if (k > 0)
                    sum = fma_real(weights.w[k], value, sum);
                else
                    sum = scaled ? value : mul_real(weights.w[0], value);
            }
        }
    }
    if constexpr (i + 1 < rows + radius_y) add_rows<i + 1>(source, place, weights, sums);
}

// Rows of a plane added up with their mirror image along x: [row][|dx|][column].
using Folds = real[rows + 2 * radius_y][radius_x + 1][columns];

// Add what the folded rows around row `i` give to one of its points.
__device__ __forceinline__ void add_folds(const Folds& folds, const Weights& weights, int i, int c,
                                          Sums& sums) {
    real half = 0;  // sum for one |dz|
#pragma unroll
    for (int k = 0; k < n_taps; ++k) {
        const int dz = taps[k][0], dy = taps[k][1], dx = taps[k][2];
        const bool first = k == 0 || taps[k - 1][0] != dz,
                   last = k == n_taps - 1 || taps[k + 1][0] != dz;
        const real above = folds[i + radius_y + dy][dx][c];
        const real value = dy == 0 ? above : folds[i + radius_y - dy][dx][c] + above;
        if (k == 0)
            half = scaled ? value : mul_real(weights.w[0], value);
        else if (first && dz > 0)
            half = mul_real(weights.w[k], value);
        else
            half = fma_real(weights.w[k], value, first ? sums[radius_z][i][c] : half);
        if (last) {
            real& before = sums[radius_z - dz][i][c];
            real& behind = sums[radius_z + dz][i][c];
            if (dz > 0) before = before + half;
            behind = dz == 0 || dz == radius_z ? half : behind + half;
        }
    }
}

// Fold row `i`, which completes the rows around row i - radius_y; then the rows after it.
template <int i, class Rows>
__device__ __forceinline__ void fold_rows(const Rows& source, const Place& place,
                                          const Weights& weights, Folds& folds, Sums& sums) {
    if constexpr (is_read(i, 0)) {
        const Row row = read_row<i>(source, place);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            folds[i + radius_y][0][c] = row.at(c);
#pragma unroll
            for (int d = 1; d <= radius_x; ++d)
                folds[i + radius_y][d][c] = row.at(c - d) + row.at(c + d);
        }
    }
    if constexpr (i >= radius_y)
#pragma unroll
        for (int c = 0; c < columns; ++c) add_folds(folds, weights, i - radius_y, c, sums);
    if constexpr (i + 1 < rows + radius_y) fold_rows<i + 1>(source, place, weights, folds, sums);
}

// What the first tap gives of the plane before to the newest of the sums, whose only one it is so far.
__device__ __forceinline__ void begin_sum(const Plane& before, const Place& place,
                                          const Weights& weights, Points& sum) {
#pragma unroll
    for (int i = 0; i < rows; ++i) {
        unpack(before.of[place.warp * rows + i], place.lane, sum[i]);
#pragma unroll
        for (int c = 0; c < columns; ++c)
            if (!scaled) sum[i][c] = mul_real(weights.w[0], sum[i][c]);
    }
}

// Keep a thread's points for its next turn.
__device__ __forceinline__ void hold(const Points& points, const Place& place, Plane& plane) {
#pragma unroll
    for (int i = 0; i < rows; ++i)
        pack(points[i], place.lane, plane.of[place.warp * rows + i]);
}

// One plane of one level: the sums of the planes around it go on, and `finished` is the plane
// radius_z before it.
template <class Rows>
__device__ __forceinline__ void advance(const Rows& source, const Place& place,
                                        const Weights& weights, Points (&waiting)[unfinished],
                                        Points& finished) {
    Sums sums = {};
#pragma unroll
    for (int j = 0; j < n_sums - 1; ++j) assign(sums[j], waiting[j]);
    if constexpr (folded) {
        Folds folds;
        fold_rows<-radius_y>(source, place, weights, folds, sums);
    } else {
        add_rows<-radius_y>(source, place, weights, sums);
    }
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int c = 0; c < columns; ++c) finished[i][c] = settled(sums[0][i][c]);
#pragma unroll
    for (int j = 1; j < n_sums; ++j) assign(waiting[j - 1], sums[j]);
}
