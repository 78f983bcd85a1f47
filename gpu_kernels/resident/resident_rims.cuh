// resident_rims.cuh: rims that move at each step, while the rows inside of a warp are computed.
//
// Idea    Of 3D tiles a margin costs more than it saves, so the outermost rows of a block are
//         exchanged at each step. Each warp has at most one partner on each of four sides, a warp of
//         another block: it stores the rows that this partner reads, raises a flag of its own,
//         computes the rows that need nothing from outside, and only then waits for its partners and
//         copies their rows into the ring. No barrier of a block lies on the way.
// Layout  `rims` holds, twice, the outermost rows of all blocks, in the order of the ring and with
//         columns as in shared memory: first plane, last plane, first row and last row of all planes.
// Writes  Rims of one step go where those of the last but one lay: whoever writes there has seen that
//         its partner has made a step since.
// Limits  Rows of the grid lie in one tile, and all tiles are full.
//
// The file that includes it has said what the order of rows, `step`, `show` and flags are.

#pragma once

static_assert(!moves_rims || (steps == 1 && along_z && in_one_tile && copies == 1),
              "such rims are of 3D tiles that span rows and make one step between exchanges");

// A warp's four sides, in the order of the ring: before, behind, below, above.
struct Sides {
    unsigned there;   // those with a partner, a bit for each
    unsigned number;  // steps of all launches
    unsigned* flag;   // of this warp
    unsigned* flags;
    real* rims;       // of this step, all blocks
    int block;
};

// The block on a side; negative beyond a face.
__device__ __forceinline__ int block_beside(int side) {
    const bool along_y = side >= 2, up = side % 2;
    int z = blockIdx.z, y = blockIdx.y;
    int& at = along_y ? y : z;
    const int n = along_y ? gridDim.y : gridDim.z;
    at += up ? 1 : -1;
    if (at >= 0 && at < n) return z * int(gridDim.y) + y;
    if (along_y ? has_face(1, 0) : has_face(0, 0)) return -1;
    at = at < 0 ? n - 1 : 0;
    return z * int(gridDim.y) + y;
}

__device__ __forceinline__ bool is_at_side(const Place& place, int side) {
    const int at = side < 2 ? place.warp_z : place.warp_y;
    return at == (side % 2 ? (side < 2 ? warps_z : warps_y) - 1 : 0);
}

// The flag of the partner on a side: the warp at the other end of its block.
__device__ __forceinline__ const unsigned* flag_of_partner(const Sides& sides, const Place& place,
                                                           int side) {
    const int z = side == 0 ? warps_z - 1 : side == 1 ? 0 : place.warp_z;
    const int y = side == 2 ? warps_y - 1 : side == 3 ? 0 : place.warp_y;
    const int warp = (block_beside(side) * warps_z + z) * warps_y + y;
    return sides.flags + size_t(warp) * flag_pitch;
}

// Where a warp's rows of a side begin in the ring.
__device__ __forceinline__ int first_of_ring(const Place& place, int side) {
    return side < 2 ? side * height + place.warp_y * rows
                    : 2 * height + (side - 2) * depth + place.warp_z * planes;
}

// The rows that partners read.
__device__ __forceinline__ void store_rims(const Patch& patch, const Sides& sides,
                                           const Place& place) {
#pragma unroll
    for (int side = 0; side < 4; side++) {
        if (!(sides.there >> side & 1)) continue;
        real* const to = sides.rims +
                         (size_t(sides.block) * n_ring + first_of_ring(place, side)) * width +
                         place.lane;
#pragma unroll
        for (int k = 0; k < (side < 2 ? rows : planes); k++)
#pragma unroll
            for (int c = 0; c < columns; c++)
                to[k * width + c * 32] = side == 0   ? patch[0][k][c]
                                         : side == 1 ? patch[planes - 1][k][c]
                                         : side == 2 ? patch[k][0][c]
                                                     : patch[k][rows - 1][c];
    }
}

// Wait for partners along an axis, and copy their rows into the ring.
__device__ __forceinline__ void fetch_rims(real* ring, const Sides& sides, const Place& place,
                                           int axis) {
    const int first_side = 2 * axis;
    const unsigned some = sides.there & 3u << first_side;
    if (some == 0) return;
    // All lanes together: behind a loop that some leave before others shuffles would be prepared for
    // lanes apart.
    const unsigned* const flag = flag_of_partner(sides, place, place.lane % 4);
    bool there = !(some >> place.lane % 4 & 1) || place.lane >= 4;
    while (__any_sync(~0u, !there))
        if (!there) there = int(seen(flag) - sides.number) >= 0;
    __syncwarp();
    constexpr int many = 16 / sizeof(real);  // numbers of a copy
#pragma unroll 1
    for (int side = first_side; side < first_side + 2; side++) {
        if (!(some >> side & 1)) continue;
        const int n = (side < 2 ? rows : planes) * width, first = first_of_ring(place, side);
        // The partner has them at its other end.
        const int there = first + (side < 2 ? height : depth) * (side % 2 ? -1 : 1);
        const real* const from =
            sides.rims + (size_t(block_beside(side)) * n_ring + there) * width;
#pragma unroll 1
        for (int at = place.lane * many; at < n; at += 32 * many)
            copy_16(reinterpret_cast<double*>(ring + first * width + at),
                    reinterpret_cast<const double*>(from + at), true);
    }
    copy_commit();
    copy_wait<0>();
    __syncwarp();
}

__device__ __forceinline__ Sides sides_of(const Place& place, unsigned* flags, real* rims) {
    Sides sides = {};
    sides.block = blockIdx.z * gridDim.y + blockIdx.y;
    const int warp = (sides.block * warps_z + place.warp_z) * warps_y + place.warp_y;
    sides.flags = flags, sides.flag = flags + size_t(warp) * flag_pitch;
    sides.number = seen(sides.flag);
    sides.rims = rims;
#pragma unroll
    for (int side = 0; side < 4; side++)
        if (is_at_side(place, side) && block_beside(side) >= 0) sides.there |= 1u << side;
    return sides;
}

// Steps of a launch.
__device__ __forceinline__ void advance_beside_rims(Patch& patch, real* shown, real* ring,
                                                    real* rims, unsigned* flags,
                                                    const Parts& parts, const Faces& faces,
                                                    const Weights& weights, const Place& place,
                                                    int times) {
    const size_t again = size_t(gridDim.y * gridDim.z) * n_ring * width;
    Sides sides = sides_of(place, flags, rims);
#pragma unroll 1
    for (int time = 0; time < times; time++) {
        sides.number++;
        sides.rims = rims + time % 2 * again;
        store_rims(patch, sides, place);
        show(patch, shown, place);
        __syncthreads();
        if (place.lane == 0 && sides.there) raise(sides.flag, sides.number);
        step(patch, shown, ring, parts, faces, weights, place, [&] {
            fetch_rims(ring, sides, place, 0);
            fetch_rims(ring, sides, place, 1);
        });
        __syncthreads();
    }
}
