// Functions of one or more arrays element by element, in whatever layout. NaN is passed on.
#include "each.cuh"

// A functor's value(x, p) is the function with its setting p; slope(r, p) its derivative, given what backward reads.

struct Relu {
    static __device__ float value(float x, float) { return x <= 0 ? 0 : x; }
    static __device__ float slope(float y, float) { return y > 0; }
};

struct LeakyRelu {
    static __device__ float value(float x, float p) { return x > 0 ? x : p * x; }
    static __device__ float slope(float y, float p) { return y > 0 ? 1 : p; }
};

struct ClippedRelu {
    static __device__ float value(float x, float p) { return x <= 0 ? 0 : x >= p ? p : x; }
    static __device__ float slope(float y, float p) { return y > 0 && y < p; }
};

struct Sigmoid {
    static __device__ float value(float x, float) { return 0.5f * tanhf(0.5f * x) + 0.5f; }  // does not overflow
    static __device__ float slope(float y, float) { return (1 - y) * y; }
};

struct Tanh {
    static __device__ float value(float x, float) { return tanhf(x); }
    static __device__ float slope(float y, float) { return 1 - y * y; }
};

// x P(x), P the normal distribution's function.
struct Gelu {
    static __device__ float normal(float x) { return 0.5f * erfcf(-0.70710678f * x); }
    static __device__ float value(float x, float) { return x * normal(x); }
    static __device__ float slope(float x, float) { return normal(x) + 0.39894228f * x * expf(-0.5f * x * x); }
};

// x (1 + tanh(s (x + c x^3))) / 2
struct TanhGelu {
    static constexpr float S = 0.79788456f, C = 0.044715f;
    static __device__ float value(float x, float) { return 0.5f * x * (1 + tanhf(S * x * (1 + C * x * x))); }
    static __device__ float slope(float x, float) {
        const float t = tanhf(S * x * (1 + C * x * x));
        return 0.5f * (1 + t) * (1 + x * (1 - t) * S * (1 + 3 * C * x * x));
    }
};

struct Scale {
    static __device__ float value(float x, float p) { return p * x; }
};

// y = f(x)
template <class F, class T> __global__ void unary(const T* x, T* y, float setting, long long n) {
    constexpr int V = LANES<T>;
    each(n, V, [&](long long i) {
        float a[V];
        load(x, i, n, a);
        for (int v = 0; v < V; v++) a[v] = F::value(a[v], setting);
        store(y, i, n, a);
    });
}

// dx = dy f'; `read` is x or y, whichever f's slope is a function of.
template <class F, class T>
__global__ void unary_back(const T* dy, const T* read, T* dx, float setting, long long n) {
    constexpr int V = LANES<T>;
    each(n, V, [&](long long i) {
        float d[V], r[V];
        load(dy, i, n, d);
        load(read, i, n, r);
        for (int v = 0; v < V; v++) d[v] = d[v] * F::slope(r[v], setting);
        store(dx, i, n, d);
    });
}

// y = c0 x0 + c1 x1 + c2 x2 + c3 x3, no less than `least`; x2 and x3 may be null.
template <class T>
__global__ void linear(
    const T* x0, const T* x1, const T* x2, const T* x3, T* y, float c0, float c1, float c2, float c3, float least,
    long long n) {
    constexpr int V = LANES<T>;
    each(n, V, [&](long long i) {
        float a[V], b[V], c[V] = {}, d[V] = {};
        load(x0, i, n, a);
        load(x1, i, n, b);
        if (x2) load(x2, i, n, c);
        if (x3) load(x3, i, n, d);
        for (int v = 0; v < V; v++) {
            float sum = c0 * a[v] + c1 * b[v];
            if (x2) sum = sum + c2 * c[v];
            if (x3) sum = sum + c3 * d[v];
            a[v] = sum < least ? least : sum;
        }
        store(y, i, n, a);
    });
}

// y = x z
template <class T> __global__ void product(const T* x, const T* z, T* y, long long n) {
    constexpr int V = LANES<T>;
    each(n, V, [&](long long i) {
        float a[V], b[V];
        load(x, i, n, a);
        load(z, i, n, b);
        for (int v = 0; v < V; v++) a[v] = a[v] * b[v];
        store(y, i, n, a);
    });
}

// y = the larger of x and z, the first of equals; where z wins winner <- number, else it stays, or is 0 where `first`.
template <class T>
__global__ void larger(const T* x, const T* z, T* y, unsigned short* winner, int number, int first, long long n) {
    constexpr int V = LANES<T>;
    each(n, V, [&](long long i) {
        float a[V], b[V];
        unsigned short won[V] = {};
        load(x, i, n, a);
        load(z, i, n, b);
        if (winner && !first) load(winner, i, n, won);
        for (int v = 0; v < V; v++) {
            if (b[v] > a[v]) won[v] = (unsigned short)number;
            a[v] = b[v] > a[v] || b[v] != b[v] ? b[v] : a[v];
        }
        store(y, i, n, a);
        if (winner) store(winner, i, n, won);
    });
}

// dx = dy where `number` won, else 0.
template <class T>
__global__ void larger_back(const T* dy, const unsigned short* winner, T* dx, int number, long long n) {
    constexpr int V = LANES<T>;
    each(n, V, [&](long long i) {
        float d[V];
        unsigned short won[V];
        load(dy, i, n, d);
        load(winner, i, n, won);
        for (int v = 0; v < V; v++) d[v] = d[v] * float(won[v] == number);
        store(dx, i, n, d);
    });
}

// y = x as another type, times *factor where that is not null: unscales gradients of a scaled loss, for one.
template <class S, class D> __global__ void cast(const S* x, D* y, const float* factor, long long n) {
    constexpr int V = LANES<S, D>;
    const float scale = factor ? *factor : 1;
    each(n, V, [&](long long i) {
        float a[V];
        load(x, i, n, a);
        for (int v = 0; v < V; v++) a[v] = a[v] * scale;
        store(y, i, n, a);
    });
}

// y = value, times *factor where that is not null.
template <class T> __global__ void fill(T* y, float value, const float* factor, long long n) {
    constexpr int V = LANES<T>;
    const float scaled = factor ? value * *factor : value;
    each(n, V, [&](long long i) {
        float a[V];
        for (int v = 0; v < V; v++) a[v] = scaled;
        store(y, i, n, a);
    });
}
