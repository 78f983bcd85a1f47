// ruled_ghosts.cu: write the ghosts beyond faces that one step of conduction reads.
//
// Idea    A thread finds the point that a ghost mirrors, and follows the rule of the face; beyond
//         the end of an axis that is a ring it copies the point from the other end.
// Layout  See common.cuh. tiles: one box of ghosts per block of threads.
// Writes  The points of its tiles but for those beyond two faces, which no step reads.
// Limits  One ghost beyond each face.
// Order   That of the rule's instructions; frame_conduction.cu follows the same rules, so the bits
//         are the same.
// Test    tests/gpu/test_gpu_conduction.py

#if !defined(TS_REAL)
#error "ruled_ghosts.cu needs -DTS_REAL and what body.cuh and rules.cuh need"
#endif
#include "body.cuh"
#include "span.cuh"

extern "C" __global__ void __launch_bounds__(256)
    ruled_ghosts(real* __restrict__ field, const __grid_constant__ Memory memory,
        const Box* __restrict__ tiles, const __grid_constant__ Body body, const int step) {
    const Box tile = tiles[blockIdx.x];
    Span span;
#pragma unroll
    for (int d = 0; d < 3; d++) span.low[d] = tile.low[d], span.n[d] = tile.high[d] - tile.low[d];
    for_each(span, [&](int i, int j, int k) {
        const int ghost[3] = {i, j, k};
        int mirror[3] = {i, j, k}, axis = 0, side = 0, n_beyond = 0;
#pragma unroll
        for (int d = first_axis; d < 3; d++) {
            const int period = body.period[d];
            const int low = period > 0 ? 0 : body.inside.low[d];
            const int high = period > 0 ? period : body.inside.high[d];
            if (ghost[d] >= low && ghost[d] < high) continue;
            axis = d, side = ghost[d] >= high, n_beyond++;
            mirror[d] = (side == 0) == (period > 0) ? high - 1 : low;
        }
        if (n_beyond != 1) return;
        const long long at = point_at(memory, mirror[0], mirror[1], mirror[2]).at;
        const Face& face = body.faces[2 * axis + side];
        field[point_at(memory, i, j, k).at] =
            body.period[axis] > 0
                ? field[at]
                : ghost_beyond(body, face, mirror, body.ids[at], step, field[at]);
    });
}
