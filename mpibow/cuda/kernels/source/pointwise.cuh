// Loops around the functions of one element that element.cuh is of: Value, and Gradient. Both have
//
//     static constexpr int INPUTS, RESULTS;
//     static __device__ void of(const float* x, const float* scalars, float* y);
#pragma once
#include <element.cuh>  // of this operator: mpibow.cuda.kernels.formulas writes it

#include "each.cuh"

static_assert(Value::INPUTS <= 4 && Gradient::INPUTS <= 4 && Value::RESULTS <= 2 && Gradient::RESULTS <= 2, "");

// y0 and y1 may be null: then they are not wanted.
template <class F, class C, class T, class D>
__device__ void elements(
    const C* x0, const T* x1, const T* x2, const T* x3, D* y0, D* y1, float s0, float s1, long long n) {
    constexpr int V = LANES<C, T, D>;
    const float scalars[2] = {s0, s1};
    each(n, V, [&](long long i) {
        float a[4][V] = {}, made[2][V] = {};
        load(x0, i, n, a[0]);
        if (F::INPUTS > 1) load(x1, i, n, a[1]);
        if (F::INPUTS > 2) load(x2, i, n, a[2]);
        if (F::INPUTS > 3) load(x3, i, n, a[3]);
        for (int v = 0; v < V; v++) {
            const float x[4] = {a[0][v], a[1][v], a[2][v], a[3][v]};
            float y[2] = {};
            F::of(x, scalars, y);
            made[0][v] = y[0];
            made[1][v] = y[1];
        }
        if (y0) store(y0, i, n, made[0]);
        if (F::RESULTS > 1 && y1) store(y1, i, n, made[1]);
    });
}
