// resident_order.cuh: in which order a warp computes its rows, and what each of them reads first.
//
// The file that includes it has said what `planes`, `rows`, `reads`, `is_shown` and `moves_rims` are.

#pragma once

// What follows from the stencil and the rows of a warp, once and for all.
struct Order {
    // Whether a row is the first, in their order, that reads the one beside it, and sideways.
    bool brings[planes][rows][3][3], looks[planes][rows][3][3];
    int shown[planes][rows];  // places of rows among those that a warp shows
    int n_shown;
    int z[planes * rows], y[planes * rows];  // the rows as they are computed
    int n_inner;                             // rows before those that read what other warps have
};

// If rows of other blocks may be on their way, those that read none of other warps come first.
constexpr void arrange_rows(Order& order) {
    int n = 0;
    for (int ends = 0; ends < 2; ends++) {
        for (int i = 0; i < planes; i++)
            for (int j = 0; j < rows; j++) {
                const bool end_z = i == 0 || i == planes - 1, end_y = j == 0 || j == rows - 1;
                if ((moves_rims && (end_z || end_y)) != (ends == 1)) continue;
                order.z[n] = i, order.y[n] = j;
                n++;
            }
        if (ends == 0) order.n_inner = n;
    }
}

constexpr Order order_of_rows() {
    Order found = {};
    arrange_rows(found);
    bool brought[planes + 2][rows + 2] = {}, looked[planes + 2][rows + 2] = {};
    for (int n = 0; n < planes * rows; n++) {
        const int i = found.z[n], j = found.y[n];
        for (int dz = -1; dz <= 1; dz++)
            for (int dy = -1; dy <= 1; dy++) {
                bool& was_brought = brought[i + 1 + dz][j + 1 + dy];
                bool& was_looked = looked[i + 1 + dz][j + 1 + dy];
                const bool reads_it = reads(dz, dy, false), beside = reads(dz, dy, true);
                found.brings[i][j][dz + 1][dy + 1] = reads_it && !was_brought;
                found.looks[i][j][dz + 1][dy + 1] = beside && !was_looked;
                was_brought |= reads_it, was_looked |= beside;
            }
    }
    for (int i = 0; i < planes; i++)
        for (int j = 0; j < rows; j++) {
            found.shown[i][j] = found.n_shown;
            found.n_shown += is_shown(i, j);
        }
    return found;
}

__constant__ constexpr Order order = order_of_rows();
constexpr int n_shown = order.n_shown;
