// ghosts.cu: write the ghosts beyond faces, as deep as a block of steps needs them.
//
// Idea    A ghost takes the owned point that it mirrors along each axis, and the maps of the faces in
//         the order of the axes, so that corners are images of images. One step needs ghosts within
//         the radius of any face; a block of steps those of faces where what mirrors once mirrors for
//         all time (mirrors.py). Beyond a face that only nearly mirrors (convection, a held ring)
//         ghost number g takes, besides a + b * mirror, deep = b * b - 1 times u_1 b^(g-1) + ... +
//         u_g, u_1 being the point next to the face. What a face adds that changes with time is a sum
//         of a few terms, told for each launch (tetris_sim/model/deep_ghosts.py): worked out once by each
//         block of threads, for all its ghosts of one number.
// Layout  See common.cuh. tiles: what blocks of threads write, a plane each; all ghosts of a tile are
//         beyond the same faces, so the points that they mirror follow from coordinates by signs and
//         sums (domain.py). parts: of each face and ghost, TS_COURSE numbers; terms: of each launch
//         and face; launch: which of these.
// Writes  The points of its tiles. They lie beyond at least one face; what they mirror does not.
// Limits  A tile has no more columns than a block has threads.
// Order   The maps of frame.cu, one fused multiply-add each, so the bits are the same.
// Test    tests/gpu/test_gpu_emulated.py, tests/gpu/test_gpu_against_reference.py

#if !defined(TS_COURSE) || !defined(TS_FEW)
#error "ghosts.cu needs -DTS_COURSE, of what faces add that change with time; 0 if none do; -DTS_FEW"
#endif
#include "domain.cuh"

constexpr int few = TS_FEW;  // ghosts of a thread at a time: what they read is under way together
constexpr int summed = 8;    // points of one that are added at a time

// Along axis d the point at x mirrors sign[d] * x + offset[d]; side[d] is the side of the face that
// reflects it, -1 if none does. `lanes` threads, a power of two, lie beside each other along x.
struct alignas(16) Tile {
    Box box;
    int sign[3], offset[3], side[3];
    int lanes;
};

// What ghosts take besides their mirror point, by axis and number.
struct Added {
    const Domain& domain;
    const wide (*changing)[TS_REACH];

    __device__ __forceinline__ wide operator()(int d, int side, int number) const {
        return TS_COURSE > 0 ? changing[d][number] : domain.a[d][side][number];
    }
};

// A coordinate of a ghost along one axis: what it mirrors, and what to do with that.
struct Image {
    int mirror;
    int number;     // of points between the face and the mirror
    int inward;     // 1 or -1, away from the face
    bool beyond;    // a reflecting face; else nothing but `mirror` means anything
    bool is_deep;   // takes more than one point
    wide a, b, deep;
};

__device__ __forceinline__ Image image_of(
    const Domain& domain, const Tile& tile, const Added& added, int d, int at) {
    const int mirror = tile.sign[d] * at + tile.offset[d], side = tile.side[d];
    if (side < 0) return {mirror, 0, 1, false, false, wide(0), wide(0), wide(0)};
    const int number = (abs(at - mirror) - 1) / 2;
    // Those that only complete a sector are deeper than any that is read.
    const int told = min(number, TS_REACH - 1);
    const wide deep = domain.deep[d][side];
    return {mirror, number, side == 0 ? 1 : -1, true, number > 0 && deep != wide(0),
        added(d, side, told), domain.b[d][side][told], deep};
}

// A ghost beyond a face that only nearly mirrors; `inward` from a point to the next one away from
// the face, of which `number` lie between that and the mirror.
__device__ __forceinline__ real deep_image(
    const real* mirror, long long inward, int number, wide a, wide b, wide deep) {
    const real* point = mirror - number * inward;
    wide sum = wide(0);
    for (int first = 0; first < number; first += summed) {
        // Several loads are under way at a time: they are all the latency there is.
        real next[summed];
#pragma unroll
        for (int n = 0; n < summed; n++)
            if (first + n < number) next[n] = point[(first + n) * inward];
#pragma unroll
        for (int n = 0; n < summed; n++)
            if (first + n < number) sum = fma_real(b, sum, widen(next[n]));
    }
    const wide even = fma_real(b, widen(*mirror), a);
    return narrow(fma_real(deep, sum, even));
}

// A ghost; of all axes one at most is deep.
__device__ __forceinline__ real ghost_of(
    const real* field, const Memory& memory, const Image& z, const Image& y, const Image& x) {
    const real* mirror = field + z.mirror * memory.plane + y.mirror * memory.row + x.mirror;
    real value;
    if (z.is_deep || y.is_deep || x.is_deep) {
        const long long pitch = z.is_deep ? memory.plane : y.is_deep ? memory.row : 1;
        // Number by number: a reference to one of three would bring them to the stack.
        const auto of = [&](auto part) {
            return z.is_deep ? z.*part : y.is_deep ? y.*part : x.*part;
        };
        value = deep_image(mirror, pitch * of(&Image::inward), of(&Image::number), of(&Image::a),
            of(&Image::b), of(&Image::deep));
    } else {
        value = *mirror;
    }
    if (z.beyond && !z.is_deep) value = reflected(z.b, value, z.a);
    if (y.beyond && !y.is_deep) value = reflected(y.b, value, y.a);
    if (x.beyond && !x.is_deep) value = reflected(x.b, value, x.a);
    return value;
}

extern "C" __global__ void __launch_bounds__(256)
    ghosts(real* __restrict__ field, const __grid_constant__ Memory memory,
        const Tile* __restrict__ tiles, const Domain* __restrict__ domain_there
#if TS_COURSE > 0
        ,
        const wide* __restrict__ parts, const wide* __restrict__ terms, const int launch
#endif
    ) {
    const Domain& domain = *domain_there;
    const Tile tile = tiles[blockIdx.x];
#if TS_COURSE > 0
    __shared__ wide changing[3][TS_REACH];
#pragma unroll
    for (int d = 0; d < 3; d++) {
        const int side = tile.side[d], face = 2 * d + side;
        if (side < 0) continue;
        for (int number = threadIdx.x; number < TS_REACH; number += blockDim.x) {
            wide a = domain.a[d][side][number];
#pragma unroll
            for (int n = 0; n < TS_COURSE; n++)
                a = fma_real(parts[(face * TS_REACH + number) * TS_COURSE + n],
                    terms[(6 * launch + face) * TS_COURSE + n], a);
            changing[d][number] = a;
        }
    }
    __syncthreads();  // all threads read them
    const Added added{domain, changing};
#else
    const Added added{domain, nullptr};
#endif
    const int at_once = blockDim.x / tile.lanes;  // rows
    const int i = tile.box.low[0], k = tile.box.low[2] + threadIdx.x % tile.lanes;
    if (k >= tile.box.high[2]) return;
    const Image z = image_of(domain, tile, added, 0, i), x = image_of(domain, tile, added, 2, k);
    real* const plane = field + i * memory.plane + k;
    for (int j = tile.box.low[1] + threadIdx.x / tile.lanes; j < tile.box.high[1];
         j += few * at_once) {
        real made[few];
#pragma unroll
        for (int n = 0; n < few; n++) {
            const int row = j + n * at_once;
            if (row < tile.box.high[1])
                made[n] =
                    ghost_of(field, memory, z, image_of(domain, tile, added, 1, row), x);
        }
#pragma unroll
        for (int n = 0; n < few; n++) {
            const int row = j + n * at_once;
            if (row < tile.box.high[1]) plane[row * memory.row] = made[n];
        }
    }
}
