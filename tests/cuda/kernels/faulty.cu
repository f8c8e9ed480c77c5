// Kernels that are wrong, each in a way that the host must find out.
#include "reduce.cuh"

__global__ void leaves_early(float* x) {
    if (threadIdx.x > 3) return;
    __syncthreads();
    x[threadIdx.x] = 1;
}

__global__ void splits_a_warp(float* x) {
    if (threadIdx.x < 16) x[threadIdx.x] = warp_sum(x[threadIdx.x]);
}

__global__ void lacks_a_barrier(float* x) {
    __shared__ float shared[THREADS];
    shared[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = shared[THREADS - 1 - threadIdx.x];
}

__global__ void has_it(float* x) {
    __shared__ float shared[THREADS];
    shared[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = shared[THREADS - 1 - threadIdx.x];
}

__global__ void writes_behind(float* x, int n) { x[n] = 1; }

__global__ void writes_const(const float* x) { *const_cast<float*>(x) = 1; }
