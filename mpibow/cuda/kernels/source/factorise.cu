// Matrix factorisation: products of rows of two tables, and their gradients. A warp takes a sample.
#include "reduce.cuh"

template <class I> __device__ int within(I index, int rows) {  // a wrong index must not read elsewhere
    return index < 0 ? 0 : index >= rows ? rows - 1 : int(index);
}

// error = user[i] item[j] - rating, y = error^2
template <class I, class J>
__global__ void squared_errors(
    const I* users, const J* items, const float* ratings, const float* user, const float* item, float* y, float* errors,
    int factors, int user_rows, int item_rows, int n) {
    const int sample = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (sample >= n) return;
    const float* p = user + (long long)within(users[sample], user_rows) * factors;
    const float* q = item + (long long)within(items[sample], item_rows) * factors;
    float dot = 0;
    for (int f = lane; f < factors; f += WARP) dot += p[f] * q[f];
    dot = warp_sum(dot) - ratings[sample];
    if (lane == 0) {
        errors[sample] = dot;
        y[sample] = dot * dot;
    }
}

// dtable[mine[n]] = sum over the samples with that row of 2 dy error table[theirs[n]]: the first of them adds all up, in
// order. The table's gradient must be 0 before.
template <class I, class J>
__global__ void gathered(
    const float* dy, const float* errors, const I* mine, const J* theirs, const float* table, float* dtable, int factors,
    int my_rows, int their_rows, int n) {
    const int sample = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (sample >= n) return;
    const int row = within(mine[sample], my_rows);
    for (int s = 0; s < sample; s++)
        if (within(mine[s], my_rows) == row) return;  // that one does it
    for (int f = lane; f < factors; f += WARP) {
        float sum = 0;
        for (int s = sample; s < n; s++)
            if (within(mine[s], my_rows) == row)
                sum += 2 * errors[s] * dy[s] * table[(long long)within(theirs[s], their_rows) * factors + f];
        dtable[(long long)row * factors + f] = sum;
    }
}
