// What lets the kernels' own sources run on the host, thread by thread, as they are.
//
// Every thread of a block is a coroutine with a stack of its own; at a barrier it stops until all that it waits for have
// come there. So a barrier that some threads never reach, or a thread that leaves while others wait, is found out. A warp
// runs as far ahead of the others as it can, from the first or from the last, and so do blocks: a result that depends on
// who comes first is found out as well.
#pragma once
#define HOST
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

using std::max;
using std::min;

struct dim3 { unsigned x = 1, y = 1, z = 1; };
inline dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace host {

constexpr unsigned LARGEST = 1024, WARP_SIZE = 32;  // threads
constexpr size_t STACK = 64 << 10;
enum State { READY, AT_WARP, AT_BLOCK, DONE };

struct Thread {
    jmp_buf place;  // where it goes on, once it has a stack
    std::unique_ptr<char[]> stack;
    State state;
};

inline Thread threads[LARGEST];
inline jmp_buf scheduler;
inline std::function<void()> body;
inline unsigned current, count;
inline std::string failure;

// Unlike swapcontext a jump does not ask the system, for signals; it is a hundred times as fast.
inline void wait(State state) {
    threads[current].state = state;
    if (_setjmp(threads[current].place) == 0) _longjmp(scheduler, 1);
}

inline void start() {
    for (;;) {  // a block each
        body();
        wait(DONE);
    }
}

inline void begin(Thread& thread) {
    thread.stack = std::make_unique<char[]>(STACK);
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = thread.stack.get();
    context.uc_stack.ss_size = STACK;
    makecontext(&context, start, 0);
    setcontext(&context);
}

inline void resume(unsigned t) {
    current = t;
    threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
    if (_setjmp(scheduler) != 0) return;
    if (threads[t].stack) _longjmp(threads[t].place, 1);
    begin(threads[t]);
}

// Makes threads [first, last) ready if all of them wait in `state`; whether they were.
inline bool released(unsigned first, unsigned last, State state) {
    for (unsigned t = first; t < last; t++)
        if (threads[t].state != state) return false;
    for (unsigned t = first; t < last; t++) threads[t].state = READY;
    return true;
}

// Runs a warp until its threads wait for others, or are done.
inline void run_warp(unsigned warp, bool backwards) {
    const unsigned first = warp * WARP_SIZE, last = min(first + WARP_SIZE, count);
    do {
        for (unsigned i = first; i < last; i++) {
            const unsigned t = backwards ? first + last - 1 - i : i;
            if (threads[t].state == READY) resume(t);
        }
    } while (released(first, last, AT_WARP));
}

inline bool run_block(bool backwards) {
    for (unsigned t = 0; t < count; t++) threads[t].state = READY;
    const unsigned warps = (count + WARP_SIZE - 1) / WARP_SIZE;
    do {
        for (unsigned w = 0; w < warps; w++) run_warp(backwards ? warps - 1 - w : w, backwards);
    } while (released(0, count, AT_BLOCK));
    bool whole = true;
    for (unsigned t = 0; t < count; t++)
        if (threads[t].state != DONE) {
            threads[t].stack.reset();  // it never goes on
            whole = false;
        }
    if (!whole) failure = "block " + std::to_string(blockIdx.x) + ": a barrier that some of its threads never reach";
    return whole;
}

// One letter a type, as the launching side names them.
template <class T> struct Letter { static constexpr char value = 'S'; };  // a struct
template <> struct Letter<float> { static constexpr char value = 'f'; };
template <> struct Letter<double> { static constexpr char value = 'd'; };
template <> struct Letter<int> { static constexpr char value = 'i'; };
template <> struct Letter<unsigned> { static constexpr char value = 'I'; };
template <> struct Letter<long long> { static constexpr char value = 'q'; };
template <> struct Letter<unsigned char> { static constexpr char value = 'B'; };
template <> struct Letter<unsigned short> { static constexpr char value = 'H'; };

// A parameter in words: [const ]LETTER SIZE[*], the size in bytes.
template <class A> std::string parameter() {
    using Pointed = std::remove_pointer_t<A>;
    using Plain = std::remove_cv_t<Pointed>;
    return std::string(std::is_const_v<Pointed> ? "const " : "") + Letter<Plain>::value + std::to_string(sizeof(Plain)) +
           (std::is_pointer_v<A> ? "*" : "");
}

template <class... A> std::string signature(void (*)(A...)) {
    std::string all;
    ((all += (all.empty() ? "" : ", ") + parameter<A>()), ...);
    return all;
}

template <class... A, size_t... I>
void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<A>*>(arguments[I])...);
}

// shape: grid x, y, z, block x, y, z. Null, or what went wrong.
template <class... A>
const char* launch(void (*kernel)(A...), const unsigned* shape, int backwards, void** arguments) {
    gridDim = {shape[0], shape[1], shape[2]};
    blockDim = {shape[3], shape[4], shape[5]};
    count = blockDim.x * blockDim.y * blockDim.z;
    body = [=] { call(kernel, arguments, std::index_sequence_for<A...>{}); };
    const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    for (unsigned i = 0; i < blocks; i++) {
        const unsigned b = backwards ? blocks - 1 - i : i;
        blockIdx = {b % gridDim.x, b / gridDim.x % gridDim.y, b / gridDim.x / gridDim.y};
        if (!run_block(backwards)) return failure.c_str();
    }
    return nullptr;
}

inline unsigned char slots[LARGEST][8];  // what threads of a warp show each other

}  // namespace host

inline void __syncthreads() { host::wait(host::AT_BLOCK); }

template <class T> T __shfl_xor_sync(unsigned mask, T x, int distance) {
    static_assert(sizeof(T) <= 8);
    if (mask != 0xffffffffu) host::failure = "only whole warps are emulated";
    const unsigned mine = host::current, other = mine ^ unsigned(distance);
    std::memcpy(host::slots[mine], &x, sizeof(T));
    host::wait(host::AT_WARP);
    std::memcpy(&x, host::slots[other], sizeof(T));
    host::wait(host::AT_WARP);
    return x;
}

inline float __int_as_float(int bits) {
    float x;
    std::memcpy(&x, &bits, sizeof(x));
    return x;
}

template <class H> float widened_half(H x) {
    _Float16 y;
    std::memcpy(&y, &x, sizeof(y));
    return float(y);
}
template <class H> void narrow_half(float x, H& y) {
    const _Float16 rounded = _Float16(x);
    std::memcpy(&y, &rounded, sizeof(y));
}
template <class B> float widened_bfloat16(B x) { return __int_as_float(int(uint32_t(x.bits) << 16)); }
template <class B> void narrow_bfloat16(float x, B& y) {  // to the nearest, to even of two; NaN stays NaN
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    y.bits = x != x ? 0x7fff : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
