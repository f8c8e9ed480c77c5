// What only moves elements: transposes and runs of memory. U is any type of the elements' size, all bits 0 being their 0.
#include "each.cuh"

constexpr int TILE = 32, ROWS = 8;  // a block is (TILE, ROWS) threads

// y (batch, columns, rows) = x (batch, rows, columns); the grid is (columns / TILE, rows / TILE, batch).
template <class U> __global__ void transpose(const U* x, U* y, int rows, int columns) {
    __shared__ U tile[TILE][TILE + 1];  // one more: a column's elements lie in different banks
    const long long image = (long long)blockIdx.z * rows * columns;
    const int left = blockIdx.x * TILE, top = blockIdx.y * TILE;
    for (int i = threadIdx.y; i < TILE; i += ROWS)
        if (top + i < rows && left + threadIdx.x < columns)
            tile[i][threadIdx.x] = x[image + (long long)(top + i) * columns + left + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < TILE; i += ROWS)
        if (left + i < columns && top + threadIdx.x < rows)
            y[image + (long long)(left + i) * rows + top + threadIdx.x] = tile[threadIdx.x][i];
}

// Runs of `length` from every `step` to every `stride` elements, and `zeros` zeros behind each.
template <class U>
__global__ void copy_runs(
    const U* source, U* target, long long runs, long long length, long long zeros, long long step, long long stride) {
    const long long written = length + zeros;
    each(runs * written, 1, [&](long long e) {
        const long long run = e / written, i = e % written;
        target[run * stride + i] = i < length ? source[run * step + i] : U{};
    });
}
