// How passes over flat arrays are cut, and the mean of rows.
#pragma once
#include "reduce.cuh"

constexpr int CHUNK = 2048;  // elements of a block: flat.py says the same
constexpr int V = LANES<float>;

// body(i) for the packs of this block's chunk.
template <class Body> __device__ void each_of_chunk(long long size, Body body) {
    const long long start = (long long)blockIdx.x * CHUNK, stop = start + CHUNK < size ? start + CHUNK : size;
    for (long long i = start + V * threadIdx.x; i < stop; i += V * THREADS) body(i);
}

// m <- the mean of the k rows' packs at element i: their sum in row order, times 1/k.
__device__ inline void mean_of(const float* rows, long long i, long long size, long long stride, int k, float (&m)[V]) {
    const float share = float(1.0 / k);
    load(rows, i, size, m);
    for (int row = 1; row < k; row++) {
        float w[V];
        load(rows + row * stride, i, size, w);
        for (int n = 0; n < V; n++) m[n] = m[n] + w[n];
    }
    for (int n = 0; n < V; n++) m[n] = m[n] * share;
}
