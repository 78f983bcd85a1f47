// resident_flags.cuh: how blocks of threads that all run at a time wait for those beside them.
//
// The file that includes it has said what `along_z` and `has_face` are.

#pragma once

constexpr int flag_pitch = 32;  // numbers from flag to flag: 128 bytes

__device__ __forceinline__ unsigned seen(const unsigned* flag) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

__device__ __forceinline__ void raise(unsigned* flag, unsigned value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(flag), "r"(value) : "memory");
}

// Wait until the blocks beside this one have come as far; each thread for one of them.
__device__ __forceinline__ void await_others(const unsigned* flags, unsigned value) {
    constexpr int first = along_z ? 0 : 9, n_others = along_z ? 27 : 9;
    if (threadIdx.x >= n_others) return;
    const int other = first + threadIdx.x;
    int at[3] = {other / 9 - 1 + int(blockIdx.z), other / 3 % 3 - 1 + int(blockIdx.y),
                 other % 3 - 1 + int(blockIdx.x)};
    const int n[3] = {int(gridDim.z), int(gridDim.y), int(gridDim.x)};
#pragma unroll
    for (int d = 0; d < 3; d++) {
        if (at[d] < 0) at[d] = has_face(d, 0) ? 0 : n[d] - 1;
        if (at[d] >= n[d]) at[d] = has_face(d, 1) ? n[d] - 1 : 0;
    }
    const unsigned* const flag = flags + ((at[0] * n[1] + at[1]) * n[2] + at[2]) * flag_pitch;
    while (int(seen(flag) - value) < 0) {
    }
}
