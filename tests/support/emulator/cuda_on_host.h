// cuda_on_host.h: enough of CUDA to run a kernel on the CPU, written to find mistakes rather than
// to be fast.
//
// Idea    Blocks of threads follow each other, or all run together, each as far as it can. The threads of a block are fibers: each runs until
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
// shared memory. What is the same for every kernel is in cuda_on_host.cpp.

#pragma once

#include <string.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

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
extern Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace on_host {

constexpr int warp_size = 32;
constexpr size_t shown_bytes = 1 << 14;  // what lanes can show each other
extern int current;                      // the thread that runs
extern char* dynamic_shared;

// What a launch is told beside its arguments.
struct Launch;

void fail(const char* why);

// Poison a variable of shared memory, before every block.
void share(void* variable, size_t bytes);

// Shared memory that a kernel declares with its size.
template <class T>
struct Variable {
    alignas(128) char bytes[sizeof(T)];

    Variable() { share(bytes, sizeof bytes); }
    T& get() { return *reinterpret_cast<T*>(bytes); }
};

// Where threads meet.

// All threads of the block come here.
void meet_block();

// All lanes of the warp come here, in the same instruction.
void converge(const char* instruction);

// Where the lanes of the warp show something.
void* shown_by_warp();

// What all lanes show.
template <class T>
inline const T* show(const T& value, const char* instruction) {
    static_assert(sizeof(T) * warp_size <= shown_bytes);
    T* const shown = static_cast<T*>(shown_by_warp());
    memcpy(shown + current % warp_size, &value, sizeof(T));
    converge(instruction);
    return shown;
}

// Addresses.

size_t shared_address(const void* p);

// cp.async: copies of a thread, in groups.

void copy_async(unsigned at, const void* from, unsigned bytes, unsigned given);
void commit_group();
void wait_group(size_t left);
void wait_all();

// mbarriers, and bulk copies that count their bytes there. An mbarrier is kept apart; its place
// holds a mark.
void init_arrival(unsigned at, int count);
void arrive_expecting(unsigned at, unsigned bytes);
void wait_arrival(unsigned at, unsigned parity);
void bulk_in(unsigned to, const void* from, unsigned bytes, unsigned at);
void bulk_out(void* to, unsigned from, unsigned bytes);
void bulk_wait_read();

// Flags by which blocks that run together wait for each other. Who reads the same again and again
// waits until it changes.
unsigned read_flag(const unsigned* flag);
void raise_flag(unsigned* flag, unsigned value);

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

// FP16 as bits: exact to float, and to the nearest number with ties to even.

// A float whose exponent is too small by the difference of the biases, 127 - 15.
inline float from_half(unsigned bits) {
    const float size = float_of((bits & 0x7fff) << 13) * 0x1p112f;
    const float value = (bits >> 10 & 31) < 31 ? size : bits & 1023 ? NAN : INFINITY;
    return bits >> 15 & 1 ? -value : value;
}

unsigned to_half(double value);

inline float half_of(const unsigned* registers, int element) {
    return from_half(registers[element / 2] >> element % 2 * 16 & 0xffff);
}

// Transpose 8 x 8 numbers of 16 bits: before and after, lane 4 g + t holds columns 2 t and 2 t + 1
// of row g.
unsigned transpose(unsigned pair);

// ldmatrix.x4.trans: four 8 x 8 matrices of 16 bits, whose rows the lanes name; rows 2 t, 2 t + 1
// of column g go to a lane.
void load_transposed(unsigned* const (&d)[4], unsigned row);

// A reciprocal to 20 bits, or to 22, as PTX makes it: the rest of them are 0.
inline double approximate_inverse(double number) {
    const double y = 1 / number;
    unsigned long long bits;
    memcpy(&bits, &y, sizeof bits);
    bits &= ~0ull << 32;
    double found;
    memcpy(&found, &bits, sizeof found);
    return found;
}
inline float approximate_inverse(float number) {
    const float y = 1 / number;
    unsigned bits;
    memcpy(&bits, &y, sizeof bits);
    bits &= ~1u;
    float found;
    memcpy(&found, &bits, sizeof found);
    return found;
}

// BF16 and TF32 as bits.

// To the nearest BF16, ties to even; to the nearest TF32, ties away from zero.
unsigned to_bf16(float value);
unsigned to_tf32(float value);

// Dense products of shorter formats, D(16 x 8) = A(16 x k) B(k x 8) + C: PTX ISA, "Matrix fragments
// for mma.m16n8k16 with floating point type", "for mma.m16n8k8". A lane has the numbers of rows g
// and g + 8 in turns, by groups of columns.
enum class Kind { f16, bf16, tf32 };

template <Kind kind>
constexpr int per_register = kind == Kind::tf32 ? 1 : 2;

// Where a lane has number k of a row, the first of its two rows or the other half.
template <Kind kind>
inline unsigned place_of(unsigned k, unsigned n_rows, unsigned half) {
    return kind == Kind::tf32 ? k / 4 * n_rows + half : (k / 8 * n_rows + half) * 2 + k % 2;
}

// Which lane of a quad has it.
template <Kind kind>
inline unsigned quad_of(unsigned k) {
    return kind == Kind::tf32 ? k % 4 : k % 8 / 2;
}

// A column of B from the operands of the quad that has it.
template <Kind kind, int k, class Operands>
inline void gather_column(float (&column)[k], const Operands* quad) {
    for (unsigned n = 0; n < k; n++)
        column[n] = quad[quad_of<kind>(n)].b[place_of<kind>(n, 1, 0)];
}

template <Kind kind, int n>
inline void widen(float (&numbers)[n * per_register<kind>], const unsigned (&registers)[n]) {
    for (int i = 0; i < n * per_register<kind>; i++) {
        const unsigned both = registers[i / per_register<kind>], bits = both >> i % 2 * 16 & 0xffff;
        if (kind == Kind::tf32 && (both & 0x1fff)) fail("a TF32 with more bits than it has");
        numbers[i] = kind == Kind::tf32  ? float_of(both)
                   : kind == Kind::bf16 ? float_of(bits << 16)
                                        : from_half(bits);
    }
}

template <Kind kind, int k, int n_a>
inline void dense_products(float (&sums)[4], const unsigned (&a)[n_a],
                           const unsigned (&b)[n_a / 2]) {
    struct Operands {
        float a[n_a * per_register<kind>], b[n_a / 2 * per_register<kind>];
    } own;
    widen<kind>(own.a, a);
    widen<kind>(own.b, b);
    const Operands* const all = show(own, "mma narrow");
    const int lane = current % warp_size;
    float columns[2][k];
    for (int j = 0; j < 2; j++) gather_column<kind, k>(columns[j], all + (lane % 4 * 2 + j) * 4);
    for (int half = 0; half < 2; half++) {
        const Operands* const row = all + lane / 4 * 4;
        for (unsigned n = 0; n < k; n++) {
            const float a = row[quad_of<kind>(n)].a[place_of<kind>(n, 2, half)];
            for (int j = 0; j < 2; j++) sums[half * 2 + j] += a * columns[j][n];
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
        float a[4 * per_register<kind>], b[4 * per_register<kind>];
        unsigned metadata;
    } own;
    widen<kind>(own.a, a);
    widen<kind>(own.b, b);
    own.metadata = metadata;
    const Operands* const all = show(own, selector ? "mma sparse 1" : "mma sparse 0");
    constexpr bool tf32 = kind == Kind::tf32;
    constexpr unsigned size = tf32 ? 2 : 4, kept = size / 2, groups = k / size;
    static_assert(groups == 8, "one lane has four groups");
    const int lane = current % warp_size;
    const Operands* const row = all + lane / 4 * 4;
    float columns[2][k];
    for (int j = 0; j < 2; j++) gather_column<kind, k>(columns[j], all + (lane % 4 * 2 + j) * 4);
    for (unsigned half = 0; half < 2; half++) {
        float sums[2] = {c[2 * half], c[2 * half + 1]};
        for (unsigned group = 0; group < groups; group++) {
            const unsigned word = row[selector * 2 + group / 4].metadata,
                           code = word >> (half * 16 + group % 4 * 4) & 15, first = code & 3,
                           second = code >> 2;
            if (tf32 ? code != 0b0100 && code != 0b1110 : first >= second)
                fail("metadata that are not in order");
            for (unsigned n = 0; n < kept; n++) {
                const unsigned stored = kept * group + n,
                               at = size * group + (tf32 ? code == 0b1110 : n ? second : first);
                const float a = row[quad_of<kind>(stored)].a[place_of<kind>(stored, 2, half)];
                for (int j = 0; j < 2; j++) sums[j] += a * columns[j][at];
            }
        }
        for (int j = 0; j < 2; j++) *d[2 * half + j] = sums[j];
    }
}

// A launch.

const char* run(void (*what)(void**), void** values, const Launch* how);

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
    extern "C" __attribute__((visibility("default"))) const char* run_##name(                    \
        void** values, const on_host::Launch* how) {                                             \
        return on_host::run([](void** all) { on_host::call(name, all); }, values, how);          \
    }

inline size_t __cvta_generic_to_shared(const void* p) { return on_host::shared_address(p); }
inline void __syncthreads() { on_host::meet_block(); }
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
inline int __double2loint(double a) { return int(bits_as<long long>(a)); }
inline int __float_as_int(float a) { return bits_as<int>(a); }
inline float __int_as_float(int a) { return bits_as<float>(a); }
inline double __hiloint2double(int high, int low) {
    return bits_as<double>((long long)(high) << 32 | (long long)(unsigned)(low));
}

// Threads of a launch take turns.
template <class T>
inline T atomicMin(T* at, T value) {
    const T before = *at;
    *at = value < before ? value : before;
    return before;
}

inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)(a)*b >> 64);
}

inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(value); }
inline float __fdividef(float a, float b) { return a / b; }
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
inline T __ldcg(const T* p) {
    return *p;
}

template <class T>
inline void __stcs(T* p, T value) {
    *p = value;
}
