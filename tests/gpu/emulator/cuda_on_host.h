// cuda_on_host.h: enough of CUDA to run a kernel on the CPU, written to find mistakes rather than
// to be fast.
//
// Idea    Blocks of threads follow each other. The threads of a block are fibers: each runs until
//         it must wait for others, and a warp runs until all of its lanes wait for other warps, so
//         that whoever forgets to wait is as far ahead as can be. Ascending and descending order
//         find what the other one hides. Copies that run beside the threads arrive as late as they
//         may, in the wait that asks for them, and their target is poisoned from the moment they
//         start, so it is as if they also arrived as early as they may. What a copy out of shared
//         memory reads must be the same when it starts and when it is waited for. Shared memory is
//         poisoned before every block (all bits set: NaN), and what follows it must stay as it is.
// Limits  Not seen: fences that are missing between ordinary stores and bulk copies; races that
//         neither order shows. Ordinary loads are not looked at: what must not be read should hold
//         NaN.
//
// emulation.py replaces inline PTX by calls of what is in namespace on_host, and declarations of
// shared memory.

#pragma once

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#define __host__
#define __device__
#define __global__
#define __constant__
#define __grid_constant__
#define __noinline__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct Index3 {
    unsigned x, y, z;
};
Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace on_host {

constexpr int warp_size = 32, most_threads = 1024;
constexpr size_t stack_bytes = 512 << 10, guard_bytes = 1 << 12, most_shared = 256 << 10;
constexpr unsigned char poison = 0xff, guard = 0xa5;

// What a launch is told beside its arguments. Points of src and dst lie as Memory of common.cuh
// says; where `item` is 0 no copy may touch either.
struct Launch {
    int grid[3], block[3];
    int shared_bytes, descending;
    char *src, *dst;
    // elements from plane to plane and from row to row, bytes of an element
    long long plane, row, item;
    int low[3], high[3];  // what is allocated
    // other arrays that copies may read, and their bytes
    int n_others;
    const char* others[8];
    long long other_bytes[8];
};

// A copy into shared memory: `given` of its bytes come from memory, the others become zero.
struct Copy {
    char* to;
    const char* from;
    unsigned bytes, given;
};

// A copy out of shared memory, and what it found there when it started.
struct OutwardCopy {
    char* to;
    const char* from;
    std::vector<char> found;
};

// Where threads meet: whoever comes last lets all of them go on.
struct Meeting {
    int expected, arrived;
    unsigned generation;
};

struct Warp {
    Meeting meeting;
    const char* instruction;             // in which the lanes meet
    int turn;                            // of the two buffers
    alignas(16) char shown[2][1 << 14];  // what lanes show each other
};

// An mbarrier.
struct Arrival {
    unsigned at;
    int count, pending;
    long long bytes;  // expected, less those of the copies that were started
    unsigned phase;
    std::vector<Copy> copies;
};

enum class Wait { nothing, warp, block, arrival };

struct Thread {
    ucontext_t start;
    jmp_buf state;
    bool started, finished;
    Wait wait;
    unsigned seen;  // generation of the meeting, or parity of the arrival
    Arrival* arrival;
    std::vector<Copy> copies;
    std::vector<size_t> groups;  // ends of the groups that are closed
    std::vector<OutwardCopy> outward;
};

// Not static: the compiler must believe that a function it cannot see changes all of this.
Launch launch;
Thread threads[most_threads];
Warp warps[most_threads / warp_size];
Meeting block;
std::vector<Arrival*> arrivals;
std::vector<std::pair<void*, size_t>> variables;  // of shared memory
char *stacks, *dynamic_shared;
void (*kernel)(void**);
void** arguments;
int current, n_threads;
jmp_buf scheduler;
char failure[200];

inline void fail(const char* why) {
    if (failure[0]) return;
    snprintf(failure, sizeof failure, "block (%u, %u, %u) thread %d: %s", blockIdx.x, blockIdx.y,
             blockIdx.z, current, why);
}

// Shared memory that a kernel declares with its size.
template <class T>
struct Variable {
    alignas(128) char bytes[sizeof(T)];

    Variable() {
        variables.push_back({bytes, sizeof bytes});
        memset(bytes, poison, sizeof bytes);
    }
    T& get() { return *reinterpret_cast<T*>(bytes); }
};

// Fibers.

__attribute__((noinline)) void leave_thread() {
    if (_setjmp(threads[current].state) == 0) _longjmp(scheduler, 1);
}

inline void let_go(Meeting& meeting) {
    meeting.arrived = 0;
    meeting.generation++;
}

inline void meet(Meeting& meeting, Wait wait) {
    Thread& thread = threads[current];
    if (++meeting.arrived == meeting.expected) return let_go(meeting);
    thread.seen = meeting.generation;
    thread.wait = wait;
    leave_thread();
}

inline Warp& warp_of_thread() { return warps[current / warp_size]; }

// All lanes of the warp come here, in the same instruction.
inline void converge(const char* instruction) {
    Warp& warp = warp_of_thread();
    if (warp.meeting.arrived == 0) warp.instruction = instruction;
    if (strcmp(warp.instruction, instruction) != 0)
        fail("the lanes of a warp meet in different instructions");
    if (warp.meeting.arrived + 1 == warp.meeting.expected) warp.turn ^= 1;
    meet(warp.meeting, Wait::warp);
}

// What all lanes show. Two buffers suffice: nobody is two instructions ahead.
template <class T>
inline const T* show(const T& value, const char* instruction) {
    Warp& warp = warp_of_thread();
    static_assert(sizeof(T) * warp_size <= sizeof warp.shown[0]);
    T* const shown = reinterpret_cast<T*>(warp.shown[warp.turn]);
    memcpy(shown + current % warp_size, &value, sizeof(T));
    converge(instruction);
    return shown;
}

// Addresses.

inline size_t shared_address(const void* p) {
    const long long at = static_cast<const char*>(p) - dynamic_shared;
    if (at < 0 || at > launch.shared_bytes)
        fail("the address of something that is not in shared memory");
    return size_t(at);
}

// A place in shared memory; where none is, one that may be overwritten.
inline char* in_shared(unsigned at, unsigned bytes, unsigned alignment) {
    static char nowhere[1 << 16];
    if (at % alignment != 0) fail("a copy is not aligned in shared memory");
    if (size_t(at) + bytes <= size_t(launch.shared_bytes)) return dynamic_shared + at;
    fail("a copy beyond the end of shared memory");
    return nowhere;
}

// Whether bytes of the array whose first owned point lies at `array` are allocated.
inline bool is_allocated(const char* array, const char* from, unsigned bytes) {
    if (launch.item == 0) return false;
    const long long first =
        launch.low[0] * launch.plane + launch.low[1] * launch.row + launch.low[2];
    const long long at = from - (array + first * launch.item);
    const long long plane = launch.plane * launch.item, row = launch.row * launch.item;
    return at >= 0 && at / plane < launch.high[0] - launch.low[0] &&
           at % plane / row < launch.high[1] - launch.low[1] &&
           at % plane % row + bytes <= (launch.high[2] - launch.low[2]) * launch.item;
}

inline bool is_in_others(const char* from, unsigned bytes) {
    for (int k = 0; k < launch.n_others; k++) {
        const long long at = from - launch.others[k];
        if (at >= 0 && at + bytes <= launch.other_bytes[k]) return true;
    }
    return false;
}

inline bool may_read(const void* from, unsigned bytes, unsigned alignment) {
    const char* const first = static_cast<const char*>(from);
    const bool allocated = is_allocated(launch.src, first, bytes) || is_in_others(first, bytes);
    if (reinterpret_cast<size_t>(from) % alignment != 0) fail("a copy is not aligned in memory");
    if (!allocated) fail("a copy reads what is not allocated");
    return allocated;
}

// cp.async: copies of a thread, in groups.

inline void copy_async(unsigned at, const void* from, unsigned bytes, unsigned given) {
    char* const to = in_shared(at, bytes, bytes);
    if (given > bytes) fail("a copy is given more bytes than it has");
    if (given > 0 && !may_read(from, given, bytes)) given = 0;
    memset(to, poison, bytes);
    threads[current].copies.push_back({to, static_cast<const char*>(from), bytes, given});
}

inline void finish(const Copy& copy) {
    memset(copy.to, 0, copy.bytes);
    if (copy.given > 0) memcpy(copy.to, copy.from, copy.given);
}

inline void finish_copies(size_t n) {
    std::vector<Copy>& copies = threads[current].copies;
    for (size_t k = 0; k < n; k++) finish(copies[k]);
    copies.erase(copies.begin(), copies.begin() + n);
}

inline void commit_group() { threads[current].groups.push_back(threads[current].copies.size()); }

inline void wait_group(size_t left) {
    std::vector<size_t>& groups = threads[current].groups;
    if (groups.size() <= left) return;
    const size_t finished = groups.size() - left, n = groups[finished - 1];
    finish_copies(n);
    groups.erase(groups.begin(), groups.begin() + finished);
    for (size_t& end : groups) end -= n;
}

inline void wait_all() {
    finish_copies(threads[current].copies.size());
    threads[current].groups.clear();
}

// mbarriers, and bulk copies that count their bytes there. An mbarrier is kept apart; its place
// holds a mark.

constexpr unsigned long long mark = 0x5ca1ab1e0ddba11ull;

inline Arrival* arrival_at(unsigned at) {
    for (Arrival* arrival : arrivals)
        if (arrival->at == at) {
            if (memcmp(dynamic_shared + at, &mark, sizeof mark) != 0)
                fail("an mbarrier was overwritten");
            return arrival;
        }
    fail("an mbarrier that nobody initialised");
    arrivals.push_back(new Arrival{at, 1, 1, 0, 0, {}});
    return arrivals.back();
}

inline void init_arrival(unsigned at, int count) {
    memcpy(in_shared(at, 8, 8), &mark, sizeof mark);
    arrivals.push_back(new Arrival{at, count, count, 0, 0, {}});
}

// Let the phase end if it may.
inline bool end_phase(Arrival& arrival) {
    if (arrival.pending > 0 || arrival.bytes != 0) return false;
    for (const Copy& copy : arrival.copies) finish(copy);
    arrival.copies.clear();
    arrival.pending = arrival.count;
    arrival.phase++;
    return true;
}

inline void arrive_expecting(unsigned at, unsigned bytes) {
    Arrival& arrival = *arrival_at(at);
    if (arrival.pending == 0 && !end_phase(arrival)) fail("one arrival too many at an mbarrier");
    arrival.pending--;
    arrival.bytes += bytes;
}

inline bool has_ended(Arrival& arrival, unsigned parity) {
    return arrival.phase % 2 != parity || (end_phase(arrival) && arrival.phase % 2 != parity);
}

inline void wait_arrival(unsigned at, unsigned parity) {
    Thread& thread = threads[current];
    thread.arrival = arrival_at(at);
    if (has_ended(*thread.arrival, parity)) return;
    thread.seen = parity;
    thread.wait = Wait::arrival;
    leave_thread();
}

inline void bulk_in(unsigned to, const void* from, unsigned bytes, unsigned at) {
    Arrival& arrival = *arrival_at(at);
    if (bytes == 0 || bytes % 16 != 0)
        fail("the size of a bulk copy is not a multiple of 16 bytes");
    char* const place = in_shared(to, bytes, 16);
    const bool allocated = may_read(from, bytes, 16);
    memset(place, poison, bytes);
    arrival.copies.push_back({place, static_cast<const char*>(from), bytes, allocated ? bytes : 0});
    arrival.bytes -= bytes;
}

inline void bulk_out(void* to, unsigned from, unsigned bytes) {
    if (bytes == 0 || bytes % 16 != 0)
        fail("the size of a bulk copy is not a multiple of 16 bytes");
    if (reinterpret_cast<size_t>(to) % 16 != 0) fail("a bulk copy is not aligned in memory");
    if (!is_allocated(launch.dst, static_cast<char*>(to), bytes))
        return fail("a bulk copy writes what is not allocated");
    const char* const place = in_shared(from, bytes, 16);
    threads[current].outward.push_back({static_cast<char*>(to), place, {place, place + bytes}});
}

inline void bulk_wait_read() {
    for (const OutwardCopy& copy : threads[current].outward) {
        if (memcmp(copy.from, copy.found.data(), copy.found.size()) != 0)
            fail("shared memory changed before a bulk copy had read it");
        memcpy(copy.to, copy.found.data(), copy.found.size());
    }
    threads[current].outward.clear();
}

// Products on tensor cores, C(m x 8) += A(m x k) B(k x 8): PTX ISA, "Matrix fragments for mma with
// f64".
template <int m, int k>
inline void multiply(double* const (&c)[m / 4], const double (&a)[m * k / 32],
                     const double (&b)[k / 4]) {
    struct Operands {
        double a[m * k / 32], b[k / 4];
    } own;
    memcpy(own.a, a, sizeof own.a);
    memcpy(own.b, b, sizeof own.b);
    const Operands* const all = show(own, "mma");
    const int lane = current % warp_size;
    for (int i = 0; i < m / 4; i++) {
        const int row = lane / 4, half = i / 2, column = lane % 4 * 2 + i % 2;
        for (int n = 0; n < k; n++)
            *c[i] = std::fma(all[row * 4 + n % 4].a[n / 4 * (m / 8) + half],
                             all[column * 4 + n % 4].b[n / 4], *c[i]);
    }
}

// FP16 as bits: exact to float, and to the nearest number with ties to even.

inline float from_half(unsigned bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                : exponent == 0  ? std::ldexp(float(fraction), -24)
                                 : std::ldexp(float(1024 + fraction), exponent - 25);
    return bits >> 15 & 1 ? -value : value;
}

inline unsigned to_half(float value) {
    const unsigned sign = std::signbit(value) ? 0x8000u : 0;
    const float size = std::fabs(value);
    if (std::isnan(value)) return 0x7fff;
    if (size >= 65520.0f) return sign | 0x7c00;
    const int exponent = size < 0x1p-14f ? -14 : std::ilogb(size);
    // in units of the last place
    const float scaled = std::nearbyint(std::ldexp(size, 10 - exponent));
    return sign | (unsigned(exponent + 14) * 1024 + unsigned(scaled));
}

inline float half_of(const unsigned* registers, int element) {
    return from_half(registers[element / 2] >> element % 2 * 16 & 0xffff);
}

// Transpose 8 x 8 numbers of 16 bits: before and after, lane 4 g + t holds columns 2 t and 2 t + 1
// of row g.
inline unsigned transpose(unsigned pair) {
    const unsigned* const all = show(pair, "movmatrix");
    const int lane = current % warp_size, row = lane / 4, column = lane % 4 * 2;
    const auto at = [&](int r, int c) { return all[r * 4 + c / 2] >> c % 2 * 16 & 0xffff; };
    return at(column, row) | at(column + 1, row) << 16;
}

// ldmatrix.x4.trans: four 8 x 8 matrices of 16 bits, whose rows the lanes name; rows 2 t, 2 t + 1
// of column g go to a lane.
inline void load_transposed(unsigned* const (&d)[4], unsigned row) {
    const unsigned* const all = show(row, "ldmatrix");
    const int lane = current % warp_size, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        unsigned short pair[2];
        for (int k = 0; k < 2; k++)
            memcpy(&pair[k], in_shared(all[8 * i + 2 * t + k], 16, 16) + 2 * g, sizeof pair[k]);
        *d[i] = pair[0] | unsigned(pair[1]) << 16;
    }
}

// BF16 and TF32 as bits.

inline unsigned bits_of(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float float_of(unsigned bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// To the nearest BF16, ties to even; to the nearest TF32, ties away from zero.
inline unsigned to_bf16(float value) {
    const unsigned bits = bits_of(value);
    return std::isnan(value) ? 0x7fff : bits + 0x7fff + (bits >> 16 & 1) >> 16;
}

inline unsigned to_tf32(float value) {
    return std::isnan(value) ? 0x7fffffff & ~0x1fffu : bits_of(value) + 0x1000 & ~0x1fffu;
}

// Dense products of shorter formats, D(16 x 8) = A(16 x k) B(k x 8) + C: PTX ISA, "Matrix fragments
// for mma.m16n8k16 with floating point type", "for mma.m16n8k8". A lane has the numbers of rows g
// and g + 8 in turns, by groups of columns.
enum class Kind { f16, bf16, tf32 };

template <Kind kind>
inline float number_of(const unsigned* registers, int half, int row, int k) {
    if (kind != Kind::tf32) {
        const unsigned both = registers[k / 8 * (row + 1) + half],
                       bits = both >> k % 2 * 16 & 0xffff;
        return kind == Kind::f16 ? from_half(bits) : float_of(bits << 16);
    }
    const unsigned bits = registers[k / 4 * (row + 1) + half];
    if (bits & 0x1fff) fail("a TF32 with more bits than it has");
    return float_of(bits);
}

template <Kind kind, int k, int n_a>
inline void dense_products(float (&sums)[4], const unsigned (&a)[n_a],
                           const unsigned (&b)[n_a / 2]) {
    struct Operands {
        unsigned a[n_a], b[n_a / 2];
    } own;
    memcpy(own.a, a, sizeof own.a);
    memcpy(own.b, b, sizeof own.b);
    const Operands* const all = show(own, "mma narrow");
    const int lane = current % warp_size;
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4, half = i / 2, column = lane % 4 * 2 + i % 2;
        for (int n = 0; n < k; n++) {
            const int quad = kind == Kind::tf32 ? n % 4 : n % 8 / 2;
            sums[i] += number_of<kind>(all[row * 4 + quad].a, half, 1, n) *
                       number_of<kind>(all[column * 4 + quad].b, 0, 0, n);
        }
    }
}

template <Kind kind, int k>
inline void multiply_f32(float* const (&d)[4],
                         const unsigned (&a)[kind == Kind::tf32 ? k / 2 : k / 4],
                         const unsigned (&b)[kind == Kind::tf32 ? k / 4 : k / 8],
                         const float (&c)[4]) {
    float sums[4] = {c[0], c[1], c[2], c[3]};
    dense_products<kind, k>(sums, a, b);
    for (int i = 0; i < 4; i++) *d[i] = sums[i];
}

template <Kind kind, int k>
inline void multiply_f16(unsigned* const (&d)[2], const unsigned (&a)[k / 4],
                         const unsigned (&b)[k / 8], const unsigned (&c)[2]) {
    float sums[4];
    for (int i = 0; i < 4; i++) sums[i] = half_of(c, i);
    dense_products<kind, k>(sums, a, b);
    for (int h = 0; h < 2; h++) *d[h] = to_half(sums[2 * h]) | to_half(sums[2 * h + 1]) << 16;
}

// The same with a sparse A(16 x k), of which two of four are kept, of TF32 one of two: PTX ISA,
// "Matrix fragments for sparse mma". Lanes 2 s and 2 s + 1 of a quad hold the metadata for selector
// s, four bits for each group of a row.
template <Kind kind, int k>
inline void multiply_sparse(float* const (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4],
                            const float (&c)[4], unsigned metadata, int selector) {
    struct Operands {
        unsigned a[4], b[4], metadata;
    } own;
    memcpy(own.a, a, sizeof own.a);
    memcpy(own.b, b, sizeof own.b);
    own.metadata = metadata;
    const Operands* const all = show(own, selector ? "mma sparse 1" : "mma sparse 0");
    constexpr bool tf32 = kind == Kind::tf32;
    constexpr int size = tf32 ? 2 : 4, kept = size / 2, groups = k / size;
    static_assert(groups == 8, "one lane has four groups");
    const int lane = current % warp_size;
    const auto quad = [](int n) { return tf32 ? n % 4 : n % 8 / 2; };
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4, half = i / 2, column = lane % 4 * 2 + i % 2;
        float sum = c[i];
        for (int group = 0; group < groups; group++) {
            const unsigned word = all[row * 4 + selector * 2 + group / 4].metadata;
            const int code = word >> (half * 16 + group % 4 * 4) & 15, first = code & 3,
                      second = code >> 2;
            if (tf32 ? code != 0b0100 && code != 0b1110 : first >= second)
                fail("metadata that are not in order");
            for (int n = 0; n < kept; n++) {
                const int stored = kept * group + n, at = size * group + (tf32 ? code == 0b1110
                                                                          : n  ? second
                                                                               : first);
                sum += number_of<kind>(all[row * 4 + quad(stored)].a, half, 1, stored) *
                       number_of<kind>(all[column * 4 + quad(at)].b, 0, 0, at);
            }
        }
        *d[i] = sum;
    }
}

// A launch.

inline void run_thread() {
    for (;;) {
        kernel(arguments);
        Thread& thread = threads[current];
        if (!thread.copies.empty()) fail("a thread ends before its copies have arrived");
        if (!thread.outward.empty())
            fail("a thread ends before its bulk copies have read shared memory");
        thread.finished = true;
        block.expected--;
        if (block.expected > 0 && block.arrived == block.expected) let_go(block);
        leave_thread();
    }
}

inline void prepare_thread(int index) {
    Thread& thread = threads[index];
    thread.wait = Wait::nothing;
    thread.finished = false;
    thread.copies.clear();
    thread.groups.clear();
    thread.outward.clear();
    if (thread.started) return;
    getcontext(&thread.start);
    thread.start.uc_stack.ss_sp = stacks + index * stack_bytes;
    thread.start.uc_stack.ss_size = stack_bytes;
    makecontext(&thread.start, run_thread, 0);
}

inline bool is_ready(const Thread& thread, const Warp& warp) {
    if (thread.finished) return false;
    if (thread.wait == Wait::warp) return warp.meeting.generation != thread.seen;
    if (thread.wait == Wait::block) return block.generation != thread.seen;
    return thread.wait == Wait::nothing || has_ended(*thread.arrival, thread.seen);
}

__attribute__((noinline)) void resume(int index) {
    Thread& thread = threads[index];
    current = index;
    threadIdx = {index % blockDim.x, index / blockDim.x % blockDim.y,
                 index / blockDim.x / blockDim.y};
    thread.wait = Wait::nothing;
    if (_setjmp(scheduler) != 0) return;
    if (thread.started) _longjmp(thread.state, 1);
    thread.started = true;
    setcontext(&thread.start);
}

// Let the lanes of a warp run until none can; whether any did.
inline bool run_warp(int warp) {
    const int first = warp * warp_size,
              n = n_threads - first < warp_size ? n_threads - first : warp_size;
    bool ran = false, again = true;
    while (again) {
        again = false;
        for (int lane = 0; lane < n; lane++) {
            const int index = first + (launch.descending ? n - 1 - lane : lane);
            if (!is_ready(threads[index], warps[warp])) continue;
            resume(index);
            ran = again = true;
        }
    }
    return ran;
}

inline void prepare_block() {
    const int n_warps = (n_threads + warp_size - 1) / warp_size;
    memset(dynamic_shared, poison, launch.shared_bytes);
    memset(dynamic_shared + launch.shared_bytes, guard, guard_bytes);
    for (const auto& variable : variables) memset(variable.first, poison, variable.second);
    for (Arrival* arrival : arrivals) delete arrival;
    arrivals.clear();
    block = {n_threads, 0, 0};
    for (int w = 0; w < n_warps; w++) {
        const int lanes = n_threads - w * warp_size;
        warps[w].meeting = {lanes < warp_size ? lanes : warp_size, 0, 0};
    }
    for (int index = 0; index < n_threads; index++) prepare_thread(index);
}

inline void run_block() {
    prepare_block();
    const int n_warps = (n_threads + warp_size - 1) / warp_size;
    bool ran = true;
    while (ran) {
        ran = false;
        for (int w = 0; w < n_warps; w++) ran |= run_warp(launch.descending ? n_warps - 1 - w : w);
    }
    for (int index = 0; index < n_threads; index++)
        if (!threads[index].finished) {
            current = index;
            fail("it waits for ever");
        }
    for (size_t k = 0; k < guard_bytes; k++)
        if (static_cast<unsigned char>(dynamic_shared[launch.shared_bytes + k]) != guard)
            return fail("a store beyond the end of shared memory");
}

inline const char* run(void (*what)(void**), void** values, const Launch* how) {
    kernel = what;
    arguments = values;
    launch = *how;
    n_threads = launch.block[0] * launch.block[1] * launch.block[2];
    if (n_threads > most_threads || launch.shared_bytes > int(most_shared))
        return "too large a block";
    // pages that nobody touches cost nothing
    stacks = static_cast<char*>(malloc(n_threads * stack_bytes));
    dynamic_shared = static_cast<char*>(aligned_alloc(1024, most_shared + guard_bytes));
    gridDim = {unsigned(launch.grid[0]), unsigned(launch.grid[1]), unsigned(launch.grid[2])};
    blockDim = {unsigned(launch.block[0]), unsigned(launch.block[1]), unsigned(launch.block[2])};
    failure[0] = 0;
    for (unsigned z = 0; z < gridDim.z; z++)
        for (unsigned y = 0; y < gridDim.y; y++)
            for (unsigned x = 0; x < gridDim.x && !failure[0]; x++) {
                blockIdx = {x, y, z};
                run_block();
            }
    for (int index = 0; index < n_threads; index++) threads[index].started = false;
    free(dynamic_shared);
    free(stacks);
    return failure[0] ? failure : nullptr;
}

// Call a function with arguments that lie where `values` point.
template <class... Types, size_t... index>
inline void call(void (*function)(Types...), void** values, std::index_sequence<index...>) {
    function(*static_cast<std::remove_const_t<Types>*>(values[index])...);
}

template <class... Types>
inline void call(void (*function)(Types...), void** values) {
    call(function, values, std::index_sequence_for<Types...>());
}

}  // namespace on_host

// `run_NAME(values, how)` launches a kernel and says what was wrong.
#define RUN_ON_HOST(name)                                                                        \
    extern "C" const char* run_##name(void** values, const on_host::Launch* how) {               \
        return on_host::run([](void** all) { on_host::call(name, all); }, values, how);          \
    }

inline size_t __cvta_generic_to_shared(const void* p) { return on_host::shared_address(p); }
inline void __syncthreads() { on_host::meet(on_host::block, on_host::Wait::block); }
inline void __syncwarp() { on_host::converge("syncwarp"); }

template <class T>
inline T __shfl_sync(unsigned, T value, int from) {
    return on_host::show(value, "shfl")[from % 32];
}

template <class T>
inline T __shfl_up_sync(unsigned, T value, int by) {
    const int lane = on_host::current % 32;
    return on_host::show(value, "shfl")[lane - by < 0 ? lane : lane - by];
}

template <class T>
inline T __shfl_down_sync(unsigned, T value, int by) {
    const int lane = on_host::current % 32;
    return on_host::show(value, "shfl")[lane + by > 31 ? lane : lane + by];
}

template <class T>
inline T __shfl_xor_sync(unsigned, T value, int mask) {
    const int lane = on_host::current % 32;
    return on_host::show(value, "shfl")[lane ^ mask];
}

inline bool __any_sync(unsigned, bool value) {
    const bool* all = on_host::show(value, "any");
    return std::any_of(all, all + on_host::warp_size, [](bool one) { return one; });
}
inline int __reduce_min_sync(unsigned, int value) {
    const int* all = on_host::show(value, "reduce");
    return *std::min_element(all, all + on_host::warp_size);
}
inline int __reduce_max_sync(unsigned, int value) {
    const int* all = on_host::show(value, "reduce");
    return *std::max_element(all, all + on_host::warp_size);
}

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
    return b < a ? b : a;
}

template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
    return a < b ? b : a;
}

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

template <class To, class From>
inline To bits_as(From from) {
    To to;
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    memcpy(&to, &from, sizeof(To));
    return to;
}
inline int __double2hiint(double a) { return int(bits_as<long long>(a) >> 32); }
inline int __float_as_int(float a) { return bits_as<int>(a); }
inline float __int_as_float(int a) { return bits_as<float>(a); }
inline double __hiloint2double(int high, int low) {
    return bits_as<double>((long long)(high) << 32 | (long long)(unsigned)(low));
}

inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline float __fadd_rn(float a, float b) { return a + b; }

template <class T>
inline T __ldg(const T* p) {
    return *p;
}

template <class T>
inline void __stcs(T* p, T value) {
    *p = value;
}
