// ghosts.cu: write the ghosts beyond faces, as deep as a block of steps needs them.
//
// Idea    A thread writes one ghost: it finds the owned point that this mirrors along each axis, and applies the maps of
//         the faces in the order of the axes, so that corners are images of images. One step needs ghosts within the
//         radius of any face; a block of steps those of faces where what mirrors once mirrors for all time (mirrors.py).
// Layout  See common.cuh. tiles: one box of ghosts per block of threads.
// Writes  The points of its tiles. They lie beyond at least one face; what they mirror does not.
// Limits  None. A periodic axis may be shorter than the ghosts beyond it are deep.
// Order   The maps of plain.cu and frame.cu, so the bits are theirs.
// Test    tests/gpu/test_gpu_emulated.py, tests/gpu/test_gpu_against_reference.py

#include "domain.cuh"

extern "C" __global__ void __launch_bounds__(256) ghosts(real* __restrict__ field,
    const __grid_constant__ Memory memory, const Box* __restrict__ tiles, const Domain* __restrict__ domain) {
    const Box tile = tiles[blockIdx.x];
    const int rows = tile.high[1] - tile.low[1], columns = tile.high[2] - tile.low[2];
    const int total = (tile.high[0] - tile.low[0]) * rows * columns;
    for (int m = threadIdx.x; m < total; m += blockDim.x) {
        const int ghost[3] = {
            tile.low[0] + m / (rows * columns), tile.low[1] + m / columns % rows, tile.low[2] + m % columns};
        int mirror[3], side[3], number[3];
#pragma unroll
        for (int d = 0; d < 3; d++) {
            const int low = domain->box.low[d], high = domain->box.high[d], period = domain->period[d];
            side[d] = ghost[d] < low ? 0 : 1;
            number[d] = side[d] == 0 ? low - 1 - ghost[d] : ghost[d] - high;  // below 0 on this side of the face
            mirror[d] = number[d] < 0 ? ghost[d] : side[d] == 0 ? low + number[d] : high - 1 - number[d];
            if (period > 0) mirror[d] = ((ghost[d] % period) + period) % period;
        }
        real value = field[mirror[0] * memory.plane + mirror[1] * memory.row + mirror[2]];
#pragma unroll
        for (int d = 0; d < 3; d++)
            if (number[d] >= 0)
                value = fma_real(domain->b[d][side[d]][number[d]], value, domain->a[d][side[d]][number[d]]);
        field[ghost[0] * memory.plane + ghost[1] * memory.row + ghost[2]] = value;
    }
}
