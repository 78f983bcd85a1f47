// ghosts.cu: write the ghosts beyond faces, as deep as a block of steps needs them.
//
// Idea    A thread finds the owned point that a ghost mirrors along each axis, and applies the maps
//         of the faces in the order of the axes, so that corners are images of images. One step
//         needs ghosts within the radius of any face; a block of steps those of faces where what
//         mirrors once mirrors for all time (mirrors.py).
// Layout  See common.cuh. tiles: one box of ghosts per block of threads.
// Writes  The points of its tiles. They lie beyond at least one face; what they mirror does not.
// Limits  None. A periodic axis may be shorter than the ghosts beyond it are deep.
// Order   The maps of frame.cu, one fused multiply-add each, so the bits are the same.
// Test    tests/gpu/test_gpu_emulated.py, tests/gpu/test_gpu_against_reference.py

#include "domain.cuh"
#include "span.cuh"

// A coordinate of a ghost along one axis: what it mirrors, and what to do with that.
struct Image {
    int mirror;
    wide a, b;
    bool beyond;  // a reflecting face; else a and b mean nothing
};

__device__ __forceinline__ Image image_of(const Domain& domain, int d, int at) {
    const int low = domain.box.low[d], high = domain.box.high[d], period = domain.period[d];
    if (period > 0) {
        while (at < 0) at += period;
        while (at >= period) at -= period;
    }
    if (at >= low && at < high) return {at, wide(0), wide(0), false};
    const int side = at < low ? 0 : 1;
    const int number = side == 0 ? low - 1 - at : at - high;  // 0 is the one next to the face
    const int mirror = side == 0 ? low + number : high - 1 - number;
    return {mirror, domain.a[d][side][number], domain.b[d][side][number], true};
}

extern "C" __global__ void __launch_bounds__(256)
    ghosts(real* __restrict__ field, const __grid_constant__ Memory memory,
        const Box* __restrict__ tiles, const Domain* __restrict__ domain) {
    const Box tile = tiles[blockIdx.x];
    Span span;
#pragma unroll
    for (int d = 0; d < 3; d++) span.low[d] = tile.low[d], span.n[d] = tile.high[d] - tile.low[d];
    for_each(span, [&](int i, int j, int k) {
        const Image z = image_of(*domain, 0, i), y = image_of(*domain, 1, j),
                    x = image_of(*domain, 2, k);
        real value = field[z.mirror * memory.plane + y.mirror * memory.row + x.mirror];
        if (z.beyond) value = reflected(z.b, value, z.a);
        if (y.beyond) value = reflected(y.b, value, y.a);
        if (x.beyond) value = reflected(x.b, value, x.a);
        field[i * memory.plane + j * memory.row + k] = value;
    });
}
