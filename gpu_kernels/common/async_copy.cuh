// async_copy.cuh: copies between global and shared memory that run while the threads compute.
//
// Idea    On Hopper one instruction copies a whole row, either way (bulk copies); elsewhere every
//         thread copies 16 bytes at a time. It matters because instructions that compute addresses
//         take turns with tensor cores: measured on one H200, four integer multiply-adds beside
//         every m16n8k4 slow FP64 products from 64 to 52 TFLOP/s, eight to 44, while loads from
//         shared memory cost nothing (November 2026).
// Limits  sm_80 and later; bulk copies sm_90. Addresses and sizes are multiples of 16 bytes.

#pragma once

// -DTS_BULK=0 copies 16 bytes at a time on any GPU: a test of it needs no Ampere.
#if defined(TS_BULK)
constexpr bool bulk_copies = TS_BULK;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool bulk_copies = true;
#else
constexpr bool bulk_copies = false;
#endif

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// 16 bytes to shared memory; zeros where `there` is false.
__device__ __forceinline__ void copy_16(double* to, const double* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(there ? 16 : 0));
}

__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;"); }

// Wait until at most `left` groups of this thread's 16-byte copies are still on their way.
template <int left>
__device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

// What ordinary stores put into shared memory is seen by the bulk copies that this thread starts
// later.
__device__ __forceinline__ void fence_bulk() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A barrier on which threads wait for bulk copies: one arrival, and as many bytes as that arrival
// expects.
using Arrival = unsigned long long;

__device__ __forceinline__ void init_arrival(Arrival* arrival) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrival))
                 : "memory");
}

__device__ __forceinline__ void expect_bytes(Arrival* arrival, unsigned bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(arrival)),
        "r"(bytes)
        : "memory");
}

// Wait for the arrival's phase number `phase`; phases are told apart by their last bit.
__device__ __forceinline__ void wait_arrival(Arrival* arrival, int phase) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(shared_address(arrival)), "r"(phase & 1)
        : "memory");
}

// Whether that phase is over; a warp that asks until all lanes say so stays together, which the
// compiler cannot know of `wait_arrival`: behind it shuffles would be prepared for lanes apart.
__device__ __forceinline__ bool has_arrived(Arrival* arrival, int phase) {
    int done;
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.s32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(shared_address(arrival)), "r"(phase & 1)
        : "memory");
    return done != 0;
}

__device__ __forceinline__ void bulk_in(void* to, const void* from, unsigned bytes,
                                        Arrival* arrival) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(arrival))
        : "memory");
}

__device__ __forceinline__ void bulk_out(void* to, const void* from, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

// Close this thread's group of bulk copies outwards; wait until all of them have read shared
// memory.
__device__ __forceinline__ void bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
