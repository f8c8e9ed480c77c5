// Sums and maxima of a warp's or a block's threads, always in the same order. All threads get the result.
#pragma once
#include "each.cuh"

constexpr unsigned ALL = 0xffffffffu;

template <class T> __device__ T warp_sum(T x) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(ALL, x, distance);
    return x;
}

__device__ inline float warp_max(float x) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, distance));
    return x;
}

// Of a block of THREADS threads in x, which must all come here.
template <class T> __device__ T block_sum(T x) {
    __shared__ T parts[THREADS / WARP];
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = x;
    __syncthreads();
    T total = parts[0];
    for (int w = 1; w < THREADS / WARP; w++) total += parts[w];
    __syncthreads();  // the next sum writes to parts
    return total;
}
