// stream_2d_copies.cuh: shared memory of stream_2d.cu seen as columns of lanes, and as pieces of
// lines of memory.
//
// Idea    A lane computes neighbouring columns, but memory wants neighbouring lanes to touch
//         neighbouring pieces of 16 bytes. A row changes from one order to the other in the stage
//         of its warp. There it is relayed piece by piece: a lane reads a piece of a finished row,
//         stores it, and starts the copy (cp.async) that will overwrite it. No lane touches the
//         pieces of others, so none waits, and the few instructions can stand between those of a
//         level.
// On Hopper stream_2d_bulk.cuh takes its place.
// Why not store from registers: 1732 instead of 2066 (heat-2d, 16 steps): parts of sectors cost as
// much as whole ones.

#pragma once

constexpr int vector = 16 / int(sizeof(real));  // elements of a piece
// elements from one piece of a lane to the next
constexpr int piece_stride = 32 * vector;
constexpr int pieces = (width + piece_stride - 1) / piece_stride;  // of a row, per lane
// elements per access to columns
constexpr int pack = columns % vector == 0 ? vector : columns % 2 == 0 ? 2 : 1;

template <int N>
struct alignas(N * sizeof(real)) Pack {
    real value[N];
};

// A lane's columns of a row in shared memory. Free of bank conflicts if a lane has an odd number of
// packs, or two of 16 bytes: then every other four lanes begin with the second.
constexpr bool two_words = columns == 2 * pack && pack == vector;

__device__ __forceinline__ void load_columns(real (&own)[columns], const real* row, int lane) {
    const auto* packs = reinterpret_cast<const Pack<pack>*>(row + lane * columns);
    if constexpr (two_words) {
        const int second = lane >> 2 & 1;
        const Pack<pack> one = packs[second], other = packs[1 - second];
#pragma unroll
        for (int c = 0; c < pack; ++c) {
            own[c] = second ? other.value[c] : one.value[c];
            own[pack + c] = second ? one.value[c] : other.value[c];
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < columns / pack; ++k) {
        const Pack<pack> loaded = packs[k];
#pragma unroll
        for (int c = 0; c < pack; ++c) own[k * pack + c] = loaded.value[c];
    }
}

__device__ __forceinline__ void store_columns(real* row, const real (&own)[columns], int lane) {
    auto* packs = reinterpret_cast<Pack<pack>*>(row + lane * columns);
    if constexpr (two_words) {
        const int second = lane >> 2 & 1;
        Pack<pack> one, other;
#pragma unroll
        for (int c = 0; c < pack; ++c) {
            one.value[c] = second ? own[pack + c] : own[c];
            other.value[c] = second ? own[c] : own[pack + c];
        }
        packs[second] = one;
        packs[1 - second] = other;
        return;
    }
#pragma unroll
    for (int k = 0; k < columns / pack; ++k) {
        Pack<pack> stored;
#pragma unroll
        for (int c = 0; c < pack; ++c) stored.value[c] = own[k * pack + c];
        packs[k] = stored;
    }
}

// Rows that only warps hand to each other may lie in any order: here in one that needs no exchange of
// packs.
__device__ __forceinline__ void load_edge(real (&own)[columns], const real* row, int lane) {
    if constexpr (!two_words) return load_columns(own, row, lane);
#pragma unroll
    for (int k = 0; k < columns / pack; ++k) {
        const Pack<pack> loaded = reinterpret_cast<const Pack<pack>*>(row)[k * 32 + lane];
#pragma unroll
        for (int c = 0; c < pack; ++c) own[k * pack + c] = loaded.value[c];
    }
}

__device__ __forceinline__ void store_edge(real* row, const real (&own)[columns], int lane) {
    if constexpr (!two_words) return store_columns(row, own, lane);
#pragma unroll
    for (int k = 0; k < columns / pack; ++k) {
        Pack<pack> stored;
#pragma unroll
        for (int c = 0; c < pack; ++c) stored.value[c] = own[k * pack + c];
        reinterpret_cast<Pack<pack>*>(row)[k * 32 + lane] = stored;
    }
}

// Start to copy 16 bytes to shared memory if `wanted`. The offset is part of the instruction: no
// address arithmetic.
template <int OFFSET>
__device__ __forceinline__ void copy_async(unsigned to, const char* from, bool wanted) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %2, 0; "
        "@p cp.async.cg.shared.global [%0 + %3], [%1 + %3], 16; }" ::"r"(to),
        "l"(from), "r"(int(wanted)), "n"(OFFSET)
        : "memory");
}

__device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// The pieces of a lane in a row of a sum.
struct SumRow {
    Pack<vector> piece[pieces];
};

// The pieces of a lane in its warp's stage, where they go to and where the next ones come from.
struct Relay {
    const real* stage;  // the lane's first piece of row 0
    const char* src;    // its place in row 0 of memory
    char* dst;
    const char* sum;
    int of_sum[pieces];       // bytes to the lane's pieces, or the allocated ones nearest to them
    long long pitch;          // bytes from row to row of memory
    int first_row, last_row;  // allocated
    bool readable[pieces];    // allocated
    bool writable[pieces];    // the block's own

    template <class Part>
    __device__ __forceinline__ Relay(const real* stage_of_warp, const real* src_plane,
                                     real* dst_plane, const real* sum_plane,
                                     const Memory& memory, const Part& part, int lane) {
        const int x = part.x - margin + lane * vector;
        stage = stage_of_warp + lane * vector;
        src = reinterpret_cast<const char*>(src_plane + x);
        dst = reinterpret_cast<char*>(dst_plane + x);
        sum = reinterpret_cast<const char*>(sum_plane + x);
        pitch = memory.row * int(sizeof(real));
        first_row = memory.within.low[1];
        last_row = memory.within.high[1] - 1;
#pragma unroll
        for (int k = 0; k < pieces; ++k) {
            const int low = x + k * piece_stride;
            const int high = low + vector;
            const bool exists = lane * vector + k * piece_stride < width;
            readable[k] = exists && low >= memory.within.low[2] && high <= memory.within.high[2];
            writable[k] = exists && low >= part.x && high <= part.end;
            const int nearest = min(max(low, memory.within.low[2]), memory.within.high[2] - vector);
            of_sum[k] = (nearest - x) * int(sizeof(real));
        }
    }

    // Row p of the stage goes to row `to` of memory if `wanted`. Reads come first and have no
    // condition, so that those of many rows are on their way at once.
    __device__ __forceinline__ void store(int p, int to, bool wanted) const {
        Pack<vector> read[pieces];
#pragma unroll
        for (int k = 0; k < pieces; ++k) {
            if ((k + 1) * piece_stride <= width || writable[k]) {
                read[k] =
                    *reinterpret_cast<const Pack<vector>*>(stage + p * width + k * piece_stride);
            }
        }
        if constexpr (has_sum) {
            const char* const row = sum + to * pitch;
#pragma unroll
            for (int k = 0; k < pieces; ++k) {
                if (wanted && writable[k])
                    add(read[k], load_sum(row + k * piece_stride * int(sizeof(real))));
            }
        }
        char* const place = dst + to * pitch;
#pragma unroll
        for (int k = 0; k < pieces; ++k) {
            if (wanted && writable[k]) {
                *reinterpret_cast<Pack<vector>*>(place + k * piece_stride * int(sizeof(real))) =
                    read[k];
            }
        }
    }

    // 16 bytes of what no kernel writes meanwhile.
    static __device__ __forceinline__ Pack<vector> load_sum(const char* from) {
        const uint4 bits = __ldg(reinterpret_cast<const uint4*>(from));
        return reinterpret_cast<const Pack<vector>&>(bits);
    }

    static __device__ __forceinline__ void add(Pack<vector>& to, const Pack<vector>& added) {
#pragma unroll
        for (int c = 0; c < vector; ++c) to.value[c] = to.value[c] + added.value[c];
    }

    // The sum's row `from`, or the allocated one nearest to it.
    __device__ __forceinline__ SumRow sum_row(int from) const {
        const char* const row = sum + min(max(from, first_row), last_row) * pitch;
        SumRow found;
#pragma unroll
        for (int k = 0; k < pieces; ++k) found.piece[k] = load_sum(row + of_sum[k]);
        return found;
    }

    // As `store`, with a row of the sum that has been loaded.
    __device__ __forceinline__ void store_with(const SumRow& added, int p, int to,
                                               bool wanted) const {
        char* const place = dst + to * pitch;
#pragma unroll
        for (int k = 0; k < pieces; ++k) {
            if (wanted && writable[k]) {
                Pack<vector> row =
                    *reinterpret_cast<const Pack<vector>*>(stage + p * width + k * piece_stride);
                add(row, added.piece[k]);
                *reinterpret_cast<Pack<vector>*>(place + k * piece_stride * int(sizeof(real))) =
                    row;
            }
        }
    }

    // Row `from` of memory, or the allocated one nearest to it, will come to row p of the stage.
    template <int K = 0>
    __device__ __forceinline__ void fetch(int p, int from, bool wanted) const {
        const int y = min(max(from, first_row), last_row);
        copy_async<K * piece_stride * int(sizeof(real))>(
            static_cast<unsigned>(__cvta_generic_to_shared(stage + p * width)), src + y * pitch,
            wanted && readable[K]);
        if constexpr (K + 1 < pieces) fetch<K + 1>(p, from, wanted);
    }
};

// Store what is left of the rows of a finished patch where the box does not end with a whole piece.
template <class Part>
__device__ __forceinline__ void store_rest(const real* stage, real* dst, const real* sum,
                                           const Memory& memory, int done, const Part& part,
                                           int lane) {
    const int rest = (part.end - part.x) % vector;
    const int column = part.end - rest + lane;
    if (lane < rest) {
        for (int p = max(0, part.low - done); p < min(rows, part.high - done); ++p) {
            const long long at = (done + p) * memory.row + column;
            const real value = stage[p * width + margin + column - part.x];
            dst[at] = has_sum ? value + sum[at] : value;
        }
    }
    __syncwarp();  // before other lanes start copies into these pieces
}
