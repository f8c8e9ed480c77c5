// Layer normalisation and local response normalisation.
#include "reduce.cuh"

// A warp takes a row (features,). `group` rows one after the other are a replica's, then come the next one's, and so on
// in turn; its weights lie behind those of the one before.

// y = (x - mean) / sqrt(variance + epsilon) weight + bias; mean and inverse deviation (rows,) are kept for backward.
template <class T>
__global__ void layer_norm(
    const T* x, const float* weight, const float* bias, T* y, float* mean, float* inverse, float epsilon, int rows,
    int features, int group, int replicas) {
    const int row = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return;
    const long long start = (long long)row * features, own = (long long)(row / group % replicas) * features;
    float sum = 0, square = 0;
    for (int j = lane; j < features; j += WARP) sum += to<float>(x[start + j]);
    const float m = warp_sum(sum) / features;
    for (int j = lane; j < features; j += WARP) {
        const float gap = to<float>(x[start + j]) - m;
        square += gap * gap;
    }
    const float scale = 1 / sqrtf(warp_sum(square) / features + epsilon);
    for (int j = lane; j < features; j += WARP)
        y[start + j] = to<T>((to<float>(x[start + j]) - m) * scale * weight[own + j] + bias[own + j]);
    if (lane == 0) {
        mean[row] = m;
        inverse[row] = scale;
    }
}

// With h the normalised x and g = dy weight: dx = (g - mean(g) - h mean(g h)) inverse.
template <class T>
__global__ void layer_norm_back(
    const T* dy, const T* x, const float* weight, const float* mean, const float* inverse, T* dx, int rows, int features,
    int group, int replicas) {
    const int row = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (row >= rows) return;
    const long long start = (long long)row * features, own = (long long)(row / group % replicas) * features;
    const float m = mean[row], scale = inverse[row];
    float sum = 0, dot = 0;
    for (int j = lane; j < features; j += WARP) {
        const float g = to<float>(dy[start + j]) * weight[own + j];
        sum += g;
        dot += g * ((to<float>(x[start + j]) - m) * scale);
    }
    sum = warp_sum(sum) / features;
    dot = warp_sum(dot) / features;
    for (int j = lane; j < features; j += WARP) {
        const float g = to<float>(dy[start + j]) * weight[own + j], h = (to<float>(x[start + j]) - m) * scale;
        dx[start + j] = to<T>((g - sum - h * dot) * scale);
    }
}

// Sums of columns: a block of (WARP, DEEP) threads takes WARP columns; the grid is (columns / WARP, 1, replicas).
constexpr int DEEP = THREADS / WARP;

// The sum over the thread's column of value(row) for so many rows; only threads with y = 0 have it. Once a function:
// each has shared memory of its own.
template <class Value> __device__ float column(int rows, Value value) {
    __shared__ float sums[DEEP][WARP];
    float sum = 0;
    for (int row = threadIdx.y; row < rows; row += DEEP) sum += value(row);
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    for (int deep = 1; threadIdx.y == 0 && deep < DEEP; deep++) sum += sums[deep][threadIdx.x];
    return sum;
}

// dweight = sum of dy h, dbias = sum of dy, h being the normalised x. A replica has `own` rows.
template <class T>
__global__ void layer_norm_weights(
    const T* dy, const T* x, const float* mean, const float* inverse, float* dweight, float* dbias, int own, int columns,
    int group, int replicas) {
    const int j = blockIdx.x * WARP + threadIdx.x, before = blockIdx.z * group;
    const auto place = [&](int row) { return row / group * replicas * group + before + row % group; };
    const auto d = [&](int row) { return j < columns ? to<float>(dy[(long long)place(row) * columns + j]) : 0; };
    const float weight = column(own, [&](int row) {
        if (j >= columns) return 0.0f;
        const int at = place(row);
        const float gap = to<float>(x[(long long)at * columns + j]) - mean[at];
        return d(row) * (gap * inverse[at]);
    });
    const float bias = column(own, d);
    if (threadIdx.y == 0 && j < columns) {
        dweight[(long long)blockIdx.z * columns + j] = weight;
        dbias[(long long)blockIdx.z * columns + j] = bias;
    }
}

// The channels of an image lie `inner` apart; element i is number i / inner % channels of its own.

// base = k + alpha / size sum(x^2) over the channels from c - size / 2 on; y = x base^-beta.
template <class T>
__global__ void local_response(
    const T* x, T* y, float* base, int size, float alpha, float beta, float k, int channels, int inner, long long n) {
    each(n, 1, [&](long long i) {
        const int c = int(i / inner % channels), first = max(c - size / 2, 0), last = min(c + (size - 1) / 2, channels - 1);
        float sum = 0;
        for (int j = first; j <= last; j++) {
            const float neighbour = to<float>(x[i + (long long)(j - c) * inner]);
            sum += neighbour * neighbour;
        }
        base[i] = k + alpha / size * sum;
        y[i] = to<T>(to<float>(x[i]) * powf(base[i], -beta));
    });
}

// dx = dy base^-beta - 2 alpha beta / size x sum(dy x base^(-beta - 1)), over the channels whose neighbour c is.
template <class T>
__global__ void local_response_back(
    const T* dy, const T* x, const float* base, T* dx, int size, float alpha, float beta, int channels, int inner,
    long long n) {
    each(n, 1, [&](long long i) {
        const int c = int(i / inner % channels), first = max(c - (size - 1) / 2, 0), last = min(c + size / 2, channels - 1);
        float sum = 0;
        for (int j = first; j <= last; j++) {
            const long long at = i + (long long)(j - c) * inner;
            sum += to<float>(dy[at]) * to<float>(x[at]) * (powf(base[at], -beta) / base[at]);
        }
        dx[i] = to<T>(to<float>(dy[i]) * powf(base[i], -beta) - 2 * alpha * beta / size * to<float>(x[i]) * sum);
    });
}
