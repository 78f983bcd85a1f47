// ghosts.cu: write the ghosts beyond faces, as deep as a block of steps needs them.
//
// Idea    A thread finds the owned point that a ghost mirrors along each axis, and applies the maps
//         of the faces in the order of the axes, so that corners are images of images. One step
//         needs ghosts within the radius of any face; a block of steps those of faces where what
//         mirrors once mirrors for all time (mirrors.py). Beyond a face that only nearly mirrors
//         (convection, a held ring) ghost number g takes, besides a + b * mirror, deep = b * b - 1
//         times u_1 b^(g-1) + ... + u_g, u_1 being the point next to the face. What a face adds that
//         changes with time is a sum of a few terms, told for each launch (tetris_sim/changing.py).
// Layout  See common.cuh. tiles: one box of ghosts per block of threads. only: the axis along which
//         these are ghosts, while those along the axes before it are there already; -1 for all axes
//         at once, of which then one at most is deep. parts: of each face and ghost, TS_COURSE
//         numbers; terms: of each launch and face; launch: which of these.
// Writes  The points of its tiles. They lie beyond at least one face; what they mirror does not.
// Limits  None. A periodic axis may be shorter than the ghosts beyond it are deep.
// Order   The maps of frame.cu, one fused multiply-add each, so the bits are the same.
// Test    tests/gpu/test_gpu_emulated.py, tests/gpu/test_gpu_against_reference.py

#if !defined(TS_COURSE)
#error "ghosts.cu needs -DTS_COURSE, of what faces add that change with time; 0 if none do"
#endif
#include "domain.cuh"
#include "span.cuh"

// What faces add that change with time.
struct Courses {
    const wide* parts;  // [axis][side][TS_REACH][TS_COURSE]
    const wide* terms;  // of this launch, [axis][side][TS_COURSE]

    // What ghosts take besides `a`.
    __device__ __forceinline__ wide with(wide a, int d, int side, int number) const {
        const int face = 2 * d + side;
#pragma unroll
        for (int n = 0; n < TS_COURSE; n++)
            a = fma_real(parts[(face * TS_REACH + number) * TS_COURSE + n],
                terms[face * TS_COURSE + n], a);
        return a;
    }
};

// A coordinate of a ghost along one axis: what it mirrors, and what to do with that.
struct Image {
    int mirror;
    wide a, b, deep;
    int next, number;  // the point next to the face; points between the face and the mirror
    bool beyond;       // a reflecting face; else nothing but `mirror` means anything
};

__device__ __forceinline__ Image image_of(
    const Domain& domain, const Courses& courses, int d, int at) {
    const int low = domain.box.low[d], high = domain.box.high[d], period = domain.period[d];
    if (period > 0) {
        while (at < 0) at += period;
        while (at >= period) at -= period;
    }
    if (at >= low && at < high) return {at, wide(0), wide(0), wide(0), at, 0, false};
    const int side = at < low ? 0 : 1;
    const int number = side == 0 ? low - 1 - at : at - high;  // 0 is the one next to the face
    const int mirror = side == 0 ? low + number : high - 1 - number;
    const wide a = courses.with(domain.a[d][side][number], d, side, number);
    return {mirror, a, domain.b[d][side][number], domain.deep[d][side],
        side == 0 ? low : high - 1, number, true};
}

// A ghost beyond a face that only nearly mirrors. `mirror` is the point it mirrors, `pitch` from a
// point to the next one along the axis.
__device__ __forceinline__ real deep_image(
    const real* mirror, long long pitch, const Image& image) {
    const long long inward = image.mirror >= image.next ? pitch : -pitch;
    const real* point = mirror - image.number * inward;
    wide sum = wide(0);
    // Loads of several points are under way at a time: the sum is all the latency there is.
#pragma unroll 16
    for (int n = 0; n < image.number; n++, point += inward)
        sum = fma_real(image.b, sum, widen(*point));
    const wide even = fma_real(image.b, widen(*mirror), image.a);
    return narrow(fma_real(image.deep, sum, even));
}

extern "C" __global__ void __launch_bounds__(256)
    ghosts(real* __restrict__ field, const __grid_constant__ Memory memory,
        const Box* __restrict__ tiles, const Domain* __restrict__ domain, const int only
#if TS_COURSE > 0
        ,
        const wide* __restrict__ parts, const wide* __restrict__ terms, const int launch
#endif
    ) {
#if TS_COURSE > 0
    const Courses courses{parts, terms + 6 * TS_COURSE * launch};
#else
    const Courses courses{};
#endif
    const Box tile = tiles[blockIdx.x];
    Span span;
#pragma unroll
    for (int d = 0; d < 3; d++) span.low[d] = tile.low[d], span.n[d] = tile.high[d] - tile.low[d];
    const auto ghost = [&](int i, int j, int k) {
        const auto image = [&](int d, int at) {
            if (only >= 0 && only != d) return Image{at, wide(0), wide(0), wide(0), at, 0, false};
            return image_of(*domain, courses, d, at);
        };
        const Image z = image(0, i), y = image(1, j), x = image(2, k);
        const bool deep_z = z.beyond && z.number > 0 && z.deep != wide(0),
                   deep_y = y.beyond && y.number > 0 && y.deep != wide(0),
                   deep_x = x.beyond && x.number > 0 && x.deep != wide(0);
        const real* mirror = field + z.mirror * memory.plane + y.mirror * memory.row + x.mirror;
        real value;
        if (deep_z || deep_y || deep_x) {
            const long long pitch = deep_z ? memory.plane : deep_y ? memory.row : 1;
            value = deep_image(mirror, pitch, deep_z ? z : deep_y ? y : x);
        } else {
            value = *mirror;
        }
        if (z.beyond && !deep_z) value = reflected(z.b, value, z.a);
        if (y.beyond && !deep_y) value = reflected(y.b, value, y.a);
        if (x.beyond && !deep_x) value = reflected(x.b, value, x.a);
        return value;
    };
    for_each<TS_FEW>(span, ghost, [&](int i, int j, int k, real value) {
        field[i * memory.plane + j * memory.row + k] = value;
    });
}
