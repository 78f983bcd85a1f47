// one_sweep_wave.cu: one step of the wave equation, as compilers of finite differences write it.
//
// Idea    u_next = 2 u - u_before + (c dt / h)^2 laplace(u): reads two time levels, overwrites the
//         older one. Threads pass RADIUS-deep columns along z through registers; neighbours in a plane
//         come through the L1 cache.
// Layout  Fields of (nz, ny, nx) points with RADIUS points around them that stay as they are.

extern "C" __global__ void __launch_bounds__(TS_X * TS_Y)
    one_sweep(const TS_REAL* __restrict__ u, TS_REAL* __restrict__ before, int nz, int ny, int nx,
        int planes, TS_REAL near, TS_REAL far, TS_REAL here) {
    constexpr int radius = TS_RADIUS;
    const int x = blockIdx.x * TS_X + threadIdx.x, y = blockIdx.y * TS_Y + threadIdx.y;
    if (x >= nx || y >= ny) return;
    const long long row = TS_PITCH, plane = row * (ny + 2 * radius);
    const int first = blockIdx.z * planes, end = min(first + planes, nz);
    long long at = (first + radius) * plane + (y + radius) * row + x + TS_FIRST;
    TS_REAL column[2 * radius + 1];
#pragma unroll
    for (int k = 0; k < 2 * radius; ++k) column[k + 1] = u[at + (k - radius) * plane];
    for (int z = first; z < end; ++z, at += plane) {
#pragma unroll
        for (int k = 0; k < 2 * radius; ++k) column[k] = column[k + 1];
        column[2 * radius] = u[at + radius * plane];
        const TS_REAL centre = column[radius];
        TS_REAL sum = near * (column[radius - 1] + column[radius + 1] + u[at - row] + u[at + row] +
                              u[at - 1] + u[at + 1]);
        if constexpr (radius > 1)
            sum += far * (column[0] + column[2 * radius] + u[at - 2 * row] + u[at + 2 * row] +
                          u[at - 2] + u[at + 2]);
        before[at] = 2 * centre - before[at] + (sum + here * centre);
    }
}
