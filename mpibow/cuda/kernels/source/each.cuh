// Loops over elements, 16 bytes of the widest type at once.
#pragma once
#include "number.cuh"

constexpr int THREADS = 256;  // of a block, everywhere
constexpr int WARP = 32;

template <class T, class... Others> __host__ __device__ constexpr int widest() {
    int size = sizeof(T);
    ((size = int(sizeof(Others)) > size ? int(sizeof(Others)) : size), ...);
    return size;
}

// How many elements a thread takes at once of arrays of these types.
template <class... T> constexpr int LANES = 16 / widest<T...>();

template <class T, int V> struct alignas(sizeof(T) * V) Pack { T lane[V]; };

// a <- x[0 : V] in one access: x must be aligned to V elements.
template <class S, class D, int V> __device__ void load(const S* x, D (&a)[V]) {
    const Pack<S, V> pack = *reinterpret_cast<const Pack<S, V>*>(x);
    for (int v = 0; v < V; v++) a[v] = to<D>(pack.lane[v]);
}

// y[0 : V] <- a, likewise.
template <class S, class D, int V> __device__ void store(D* y, const S (&a)[V]) {
    Pack<D, V> pack;
    for (int v = 0; v < V; v++) pack.lane[v] = to<D>(a[v]);
    *reinterpret_cast<Pack<D, V>*>(y) = pack;
}

// a <- x[i : i + V], zeros from n on; x and i are multiples of V elements.
template <class S, class D, int V> __device__ void load(const S* x, long long i, long long n, D (&a)[V]) {
    if (i + V <= n)
        load(x + i, a);
    else
        for (int v = 0; v < V; v++) a[v] = i + v < n ? to<D>(x[i + v]) : D(0);
}

// y[i : i + V] <- a, but for what lies at n and behind.
template <class S, class D, int V> __device__ void store(D* y, long long i, long long n, const S (&a)[V]) {
    if (i + V <= n)
        store(y + i, a);
    else
        for (int v = 0; v < V; v++)
            if (i + v < n) y[i + v] = to<D>(a[v]);
}

// body(i) for i = 0, step, 2 step ... below n, shared among all threads of the grid's x.
template <class Body> __device__ void each(long long n, int step, Body body) {
    const long long threads = (long long)gridDim.x * blockDim.x;
    for (long long i = step * ((long long)blockIdx.x * blockDim.x + threadIdx.x); i < n; i += step * threads) body(i);
}
