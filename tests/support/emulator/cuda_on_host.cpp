// cuda_on_host.cpp: what of cuda_on_host.h is the same for every kernel, compiled once.

#include "cuda_on_host.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <vector>

Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace on_host {

constexpr int most_threads = 1024;
constexpr size_t stack_bytes = 512 << 10, guard_bytes = 1 << 12, most_shared = 256 << 10;
constexpr unsigned char poison = 0xff, guard = 0xa5;
constexpr unsigned patience = 8;  // how often a thread reads the same in a flag before it must wait
constexpr unsigned long long mark = 0x5ca1ab1e0ddba11ull;  // in the place of an mbarrier

// Points of src and dst lie as Memory of common.cuh says; where `item` is 0 no copy may touch
// either.
struct Launch {
    int grid[3], block[3];
    int shared_bytes, descending, together;
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
    const char* instruction;  // in which the lanes meet
    int turn;                 // of the two buffers, which suffice: nobody is two instructions ahead
    alignas(16) char shown[2][shown_bytes];  // what lanes show each other
};

// An mbarrier.
struct Arrival {
    unsigned at;
    int count, pending;
    long long bytes;  // expected, less those of the copies that were started
    unsigned phase;
    std::vector<Copy> copies;
};

enum class Wait { nothing, warp, block, arrival, flag };

struct Thread {
    ucontext_t start;
    jmp_buf state;
    bool started, finished;
    Wait wait;
    unsigned seen;  // generation of the meeting, or parity of the arrival
    Arrival* arrival;
    const unsigned* flag;  // that was read last, what it was, how often nothing else was read
    unsigned raised, reads;
    std::vector<Copy> copies;
    std::vector<size_t> groups;  // ends of the groups that are closed
    std::vector<OutwardCopy> outward;
};

// Stacks of the blocks that follow each other, of all kernels of a process: their pages are asked of
// the system once, not in every launch. Others than g++ give every library its own.
__attribute__((visibility("default"))) inline char* kept_stacks;

// Not static: the compiler must believe that a function it cannot see changes all of this.
Launch launch;
Thread* threads;
Warp* warps;
Meeting block;
std::vector<Arrival*> arrivals;
std::vector<std::pair<void*, size_t>> variables;  // of shared memory
char *stacks, *dynamic_shared;
void (*kernel)(void**);
void** arguments;
int current, n_threads;
jmp_buf scheduler;
char failure[200];

void fail(const char* why) {
    if (failure[0]) return;
    snprintf(failure, sizeof failure, "block (%u, %u, %u) thread %d: %s", blockIdx.x, blockIdx.y,
             blockIdx.z, current, why);
}

void share(void* variable, size_t bytes) {
    variables.push_back({variable, bytes});
    memset(variable, poison, bytes);
}

// Fibers.

__attribute__((noinline)) static void leave_thread() {
    if (_setjmp(threads[current].state) == 0) _longjmp(scheduler, 1);
}

static void let_go(Meeting& meeting) {
    meeting.arrived = 0;
    meeting.generation++;
}

static void meet(Meeting& meeting, Wait wait) {
    Thread& thread = threads[current];
    if (++meeting.arrived == meeting.expected) return let_go(meeting);
    thread.seen = meeting.generation;
    thread.wait = wait;
    leave_thread();
}

// Meetings of a block and of a warp.

void meet_block() { meet(block, Wait::block); }

static Warp& warp_of_thread() { return warps[current / warp_size]; }

void* shown_by_warp() {
    Warp& warp = warp_of_thread();
    return warp.shown[warp.turn];
}

void converge(const char* instruction) {
    Warp& warp = warp_of_thread();
    if (warp.meeting.arrived == 0) warp.instruction = instruction;
    if (strcmp(warp.instruction, instruction) != 0)
        fail("the lanes of a warp meet in different instructions");
    if (warp.meeting.arrived + 1 == warp.meeting.expected) warp.turn ^= 1;
    meet(warp.meeting, Wait::warp);
}

// Addresses.

size_t shared_address(const void* p) {
    const long long at = static_cast<const char*>(p) - dynamic_shared;
    if (at < 0 || at > launch.shared_bytes)
        fail("the address of something that is not in shared memory");
    return size_t(at);
}

// A place in shared memory; where none is, one that may be overwritten.
static char* in_shared(unsigned at, unsigned bytes, unsigned alignment) {
    static char nowhere[1 << 16];
    if (at % alignment != 0) fail("a copy is not aligned in shared memory");
    if (size_t(at) + bytes <= size_t(launch.shared_bytes)) return dynamic_shared + at;
    fail("a copy beyond the end of shared memory");
    return nowhere;
}

// Whether bytes of the array whose first owned point lies at `array` are allocated.
static bool is_allocated(const char* array, const char* from, unsigned bytes) {
    if (launch.item == 0) return false;
    const long long first =
        launch.low[0] * launch.plane + launch.low[1] * launch.row + launch.low[2];
    const long long at = from - (array + first * launch.item);
    const long long plane = launch.plane * launch.item, row = launch.row * launch.item;
    return at >= 0 && at / plane < launch.high[0] - launch.low[0] &&
           at % plane / row < launch.high[1] - launch.low[1] &&
           at % plane % row + bytes <= (launch.high[2] - launch.low[2]) * launch.item;
}

static bool is_in_others(const char* from, unsigned bytes) {
    for (int k = 0; k < launch.n_others; k++) {
        const long long at = from - launch.others[k];
        if (at >= 0 && at + bytes <= launch.other_bytes[k]) return true;
    }
    return false;
}

static bool may_read(const void* from, unsigned bytes, unsigned alignment) {
    const char* const first = static_cast<const char*>(from);
    const bool allocated = is_allocated(launch.src, first, bytes) || is_in_others(first, bytes);
    if (reinterpret_cast<size_t>(from) % alignment != 0) fail("a copy is not aligned in memory");
    if (!allocated) fail("a copy reads what is not allocated");
    return allocated;
}

// Copies.

void copy_async(unsigned at, const void* from, unsigned bytes, unsigned given) {
    char* const to = in_shared(at, bytes, bytes);
    if (given > bytes) fail("a copy is given more bytes than it has");
    if (given > 0 && !may_read(from, given, bytes)) given = 0;
    memset(to, poison, bytes);
    threads[current].copies.push_back({to, static_cast<const char*>(from), bytes, given});
}

static void finish(const Copy& copy) {
    memset(copy.to, 0, copy.bytes);
    if (copy.given > 0) memcpy(copy.to, copy.from, copy.given);
}

static void finish_copies(size_t n) {
    std::vector<Copy>& copies = threads[current].copies;
    for (size_t k = 0; k < n; k++) finish(copies[k]);
    copies.erase(copies.begin(), copies.begin() + n);
}

void commit_group() { threads[current].groups.push_back(threads[current].copies.size()); }

void wait_group(size_t left) {
    std::vector<size_t>& groups = threads[current].groups;
    if (groups.size() <= left) return;
    const size_t finished = groups.size() - left, n = groups[finished - 1];
    finish_copies(n);
    groups.erase(groups.begin(), groups.begin() + finished);
    for (size_t& end : groups) end -= n;
}

void wait_all() {
    finish_copies(threads[current].copies.size());
    threads[current].groups.clear();
}

static Arrival* arrival_at(unsigned at) {
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

void init_arrival(unsigned at, int count) {
    memcpy(in_shared(at, 8, 8), &mark, sizeof mark);
    arrivals.push_back(new Arrival{at, count, count, 0, 0, {}});
}

// Let the phase end if it may.
static bool end_phase(Arrival& arrival) {
    if (arrival.pending > 0 || arrival.bytes != 0) return false;
    for (const Copy& copy : arrival.copies) finish(copy);
    arrival.copies.clear();
    arrival.pending = arrival.count;
    arrival.phase++;
    return true;
}

void arrive_expecting(unsigned at, unsigned bytes) {
    Arrival& arrival = *arrival_at(at);
    if (arrival.pending == 0 && !end_phase(arrival)) fail("one arrival too many at an mbarrier");
    arrival.pending--;
    arrival.bytes += bytes;
}

static bool has_ended(Arrival& arrival, unsigned parity) {
    return arrival.phase % 2 != parity || (end_phase(arrival) && arrival.phase % 2 != parity);
}

void wait_arrival(unsigned at, unsigned parity) {
    Thread& thread = threads[current];
    thread.arrival = arrival_at(at);
    if (has_ended(*thread.arrival, parity)) return;
    thread.seen = parity;
    thread.wait = Wait::arrival;
    leave_thread();
}

void bulk_in(unsigned to, const void* from, unsigned bytes, unsigned at) {
    Arrival& arrival = *arrival_at(at);
    if (bytes == 0 || bytes % 16 != 0)
        fail("the size of a bulk copy is not a multiple of 16 bytes");
    char* const place = in_shared(to, bytes, 16);
    const bool allocated = may_read(from, bytes, 16);
    memset(place, poison, bytes);
    arrival.copies.push_back({place, static_cast<const char*>(from), bytes, allocated ? bytes : 0});
    arrival.bytes -= bytes;
}

void bulk_out(void* to, unsigned from, unsigned bytes) {
    if (bytes == 0 || bytes % 16 != 0)
        fail("the size of a bulk copy is not a multiple of 16 bytes");
    if (reinterpret_cast<size_t>(to) % 16 != 0) fail("a bulk copy is not aligned in memory");
    if (!is_allocated(launch.dst, static_cast<char*>(to), bytes))
        return fail("a bulk copy writes what is not allocated");
    const char* const place = in_shared(from, bytes, 16);
    threads[current].outward.push_back({static_cast<char*>(to), place, {place, place + bytes}});
}

void bulk_wait_read() {
    for (const OutwardCopy& copy : threads[current].outward) {
        if (memcmp(copy.from, copy.found.data(), copy.found.size()) != 0)
            fail("shared memory changed before a bulk copy had read it");
        memcpy(copy.to, copy.found.data(), copy.found.size());
    }
    threads[current].outward.clear();
}

// Numbers.

unsigned to_half(double value) {
    const unsigned sign = std::signbit(value) ? 0x8000u : 0;
    const double size = std::fabs(value);
    if (std::isnan(value)) return 0x7fff;
    if (size >= 65520.0) return sign | 0x7c00;
    const int exponent = size < 0x1p-14 ? -14 : std::ilogb(size);
    // in units of the last place
    const double scaled = std::nearbyint(std::ldexp(size, 10 - exponent));
    return sign | (unsigned(exponent + 14) * 1024 + unsigned(scaled));
}

unsigned transpose(unsigned pair) {
    const unsigned* const all = show(pair, "movmatrix");
    const int lane = current % warp_size, row = lane / 4, column = lane % 4 * 2;
    const auto at = [&](int r, int c) { return all[r * 4 + c / 2] >> c % 2 * 16 & 0xffff; };
    return at(column, row) | at(column + 1, row) << 16;
}

void load_transposed(unsigned* const (&d)[4], unsigned row) {
    const unsigned* const all = show(row, "ldmatrix");
    const int lane = current % warp_size, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        unsigned short pair[2];
        for (int k = 0; k < 2; k++)
            memcpy(&pair[k], in_shared(all[8 * i + 2 * t + k], 16, 16) + 2 * g, sizeof pair[k]);
        *d[i] = pair[0] | unsigned(pair[1]) << 16;
    }
}

unsigned to_bf16(float value) {
    const unsigned bits = bits_of(value);
    return std::isnan(value) ? 0x7fff : bits + 0x7fff + (bits >> 16 & 1) >> 16;
}

unsigned to_tf32(float value) {
    return std::isnan(value) ? 0x7fffffff & ~0x1fffu : bits_of(value) + 0x1000 & ~0x1fffu;
}

// Flags by which blocks wait for each other.

unsigned read_flag(const unsigned* flag) {
    Thread& thread = threads[current];
    if (thread.flag != flag || thread.raised != *flag) thread.reads = 0;
    if (++thread.reads > patience) {
        thread.wait = Wait::flag;
        leave_thread();
        thread.reads = 0;
    }
    thread.flag = flag;
    return thread.raised = *flag;
}

void raise_flag(unsigned* flag, unsigned value) { *flag = value; }

// A launch.

static void run_thread() {
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

static void prepare_thread(int index) {
    Thread& thread = threads[index];
    thread.wait = Wait::nothing;
    thread.finished = false;
    thread.flag = nullptr;
    thread.copies.clear();
    thread.groups.clear();
    thread.outward.clear();
    if (thread.started) return;
    getcontext(&thread.start);
    thread.start.uc_stack.ss_sp = stacks + index * stack_bytes;
    thread.start.uc_stack.ss_size = stack_bytes;
    makecontext(&thread.start, run_thread, 0);
}

static bool is_ready(const Thread& thread, const Warp& warp) {
    if (thread.finished) return false;
    if (thread.wait == Wait::warp) return warp.meeting.generation != thread.seen;
    if (thread.wait == Wait::block) return block.generation != thread.seen;
    if (thread.wait == Wait::flag) return *thread.flag != thread.raised;
    return thread.wait == Wait::nothing || has_ended(*thread.arrival, thread.seen);
}

__attribute__((noinline)) static void resume(int index) {
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
static bool run_warp(int warp) {
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

static void prepare_block() {
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

// A block of threads with all that is its own.
struct Block {
    Index3 index;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Meeting meeting;
    char *stacks, *shared;
};

static void enter(Block& it) {
    blockIdx = it.index;
    threads = it.threads.data(), warps = it.warps.data();
    stacks = it.stacks, dynamic_shared = it.shared;
    block = it.meeting;
}

// Let the threads of a block run until none can; whether any did.
static bool run_block(Block& it) {
    enter(it);
    const int n_warps = int(it.warps.size());
    bool ran = false, again = true;
    while (again) {
        again = false;
        for (int w = 0; w < n_warps; w++)
            again |= run_warp(launch.descending ? n_warps - 1 - w : w);
        ran |= again;
    }
    it.meeting = block;
    return ran;
}

static void end_block(Block& it) {
    enter(it);
    for (int index = 0; index < n_threads; index++)
        if (!threads[index].finished) {
            current = index;
            fail("it waits for ever");
        }
    for (size_t k = 0; k < guard_bytes; k++)
        if (static_cast<unsigned char>(dynamic_shared[launch.shared_bytes + k]) != guard)
            return fail("a store beyond the end of shared memory");
}

const char* run(void (*what)(void**), void** values, const Launch* how) {
    kernel = what;
    arguments = values;
    launch = *how;
    n_threads = launch.block[0] * launch.block[1] * launch.block[2];
    if (n_threads > most_threads || launch.shared_bytes > int(most_shared))
        return "too large a block";
    gridDim = {unsigned(launch.grid[0]), unsigned(launch.grid[1]), unsigned(launch.grid[2])};
    blockDim = {unsigned(launch.block[0]), unsigned(launch.block[1]), unsigned(launch.block[2])};
    failure[0] = 0;
    const int n_blocks = gridDim.x * gridDim.y * gridDim.z;
    // Blocks that follow each other have one place; those that run together cannot have
    // mbarriers and variables, which are known by where they are.
    if (launch.together && !variables.empty()) return "variables of blocks that run together";
    std::vector<Block> blocks(launch.together ? n_blocks : 1);
    for (Block& it : blocks) {
        it.threads.resize(n_threads);
        it.warps.resize((n_threads + warp_size - 1) / warp_size);
        // pages that nobody touches cost nothing
        if (launch.together)
            it.stacks = static_cast<char*>(malloc(n_threads * stack_bytes));
        else if (kept_stacks == nullptr)
            it.stacks = kept_stacks = static_cast<char*>(malloc(most_threads * stack_bytes));
        else
            it.stacks = kept_stacks;
        it.shared = static_cast<char*>(aligned_alloc(1024, most_shared + guard_bytes));
    }

    for (int n = 0; n < n_blocks && !failure[0]; n++) {
        const unsigned number = n, x = gridDim.x, y = gridDim.y;
        Block& it = blocks[launch.together ? n : 0];
        it.index = {number % x, number / x % y, number / x / y};
        enter(it);
        prepare_block();
        it.meeting = block;
        if (launch.together) continue;
        run_block(it);
        end_block(it);
    }
    if (launch.together) {
        bool ran = true;
        while (ran && !failure[0]) {
            ran = false;
            for (int n = 0; n < n_blocks; n++)
                ran |= run_block(blocks[launch.descending ? n_blocks - 1 - n : n]);
        }
        for (Block& it : blocks)
            if (!failure[0]) end_block(it);
    }

    for (Block& it : blocks) {
        free(it.shared);
        if (launch.together) free(it.stacks);
    }
    return failure[0] ? failure : nullptr;
}

}  // namespace on_host
