// faces.cuh: which ghosts mirror a point, and what they take.

#pragma once
#include "common.cuh"

#if !defined(TS_LINKS)
#error "faces.cuh needs -DTS_LINKS, the largest number of ghosts along any axis, at least 1"
#endif

// The ghosts along one axis: number m takes a[m] + b[m] * (the point at source[m]).
struct Links {
    int n;
    int ghost[TS_LINKS];
    int source[TS_LINKS];
    real a[TS_LINKS];
    real b[TS_LINKS];
};

struct Faces {
    Links axis[3];
};

__device__ __forceinline__ long long place(const Memory& memory, const int (&point)[3]) {
    return point[0] * memory.plane + point[1] * memory.row + point[2];
}

// Images along the last axis of a point, or of one of its images along the others.
__device__ void write_row_images(real* dst, const Links& links, long long row, int k, real value) {
    for (int m = 0; m < links.n; m++)
        if (links.source[m] == k) dst[row + links.ghost[m]] = fma_real(links.b[m], value, links.a[m]);
}

// Images along axes 1 and 2 of a point in one plane.
__device__ void write_plane_images(
    real* dst, const Memory& memory, const Faces& faces, long long plane, int j, int k, real value) {
    write_row_images(dst, faces.axis[2], plane + j * memory.row, k, value);
    const Links& links = faces.axis[1];
    for (int m = 0; m < links.n; m++) {
        if (links.source[m] != j) continue;
        const real image = fma_real(links.b[m], value, links.a[m]);
        const long long row = plane + links.ghost[m] * memory.row;
        dst[row + k] = image;
        write_row_images(dst, faces.axis[2], row, k, image);
    }
}

// Every ghost that follows from one point: axis 0 first, so that corners are images of images. Rarely called, hence
// not inlined: it would cost the sweep registers.
__device__ __noinline__ void write_images(
    real* dst, const Memory& memory, const Faces& faces, int i, int j, int k, real value) {
    write_plane_images(dst, memory, faces, i * memory.plane, j, k, value);
    const Links& links = faces.axis[0];
    for (int m = 0; m < links.n; m++) {
        if (links.source[m] != i) continue;
        const real image = fma_real(links.b[m], value, links.a[m]);
        const long long plane = links.ghost[m] * memory.plane;
        dst[plane + j * memory.row + k] = image;
        write_plane_images(dst, memory, faces, plane, j, k, image);
    }
}
