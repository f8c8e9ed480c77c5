// Softmax, cross-entropies and accuracy: a warp takes a row of logits. Losses and slopes are float32 in every precision.
//
// A label that is no class gives NaN, as do logits that are NaN or infinite at the top: nothing is hidden.
#include "reduce.cuh"

// body(row, lane) for the warps of the grid, a row each.
template <class Body> __device__ void each_row(int rows, Body body) {
    const int warps = THREADS / WARP, row = blockIdx.x * warps + threadIdx.x / WARP;
    if (row < rows) body(row, int(threadIdx.x % WARP));
}

// The largest of x[j], and the sum of exp(x[j] - that), for j < n; x is a function.
struct Mass { float best, total; };

template <class X> __device__ Mass mass(int n, int lane, X x) {
    float best = -infinite(), total = 0;
    for (int j = lane; j < n; j += WARP) best = fmaxf(best, x(j));
    best = warp_max(best);
    for (int j = lane; j < n; j += WARP) total += expf(x(j) - best);
    return {best, warp_sum(total)};
}

// y = exp(x) / sum(exp(x)) along an axis of n, whose elements lie `inner` apart; rows counts what lies beside them.
template <class T> __global__ void softmax(const T* x, T* y, int rows, int n, int inner) {
    each_row(rows, [&](int row, int lane) {
        const long long start = (long long)(row / inner) * n * inner + row % inner;
        const auto at = [&](int j) { return to<float>(x[start + (long long)j * inner]); };
        const Mass m = mass(n, lane, at);
        for (int j = lane; j < n; j += WARP) y[start + (long long)j * inner] = to<T>(expf(at(j) - m.best) / m.total);
    });
}

// dx = y (dy - sum(dy y))
template <class T> __global__ void softmax_back(const T* dy, const T* y, T* dx, int rows, int n, int inner) {
    each_row(rows, [&](int row, int lane) {
        const long long start = (long long)(row / inner) * n * inner + row % inner;
        float dot = 0;
        for (int j = lane; j < n; j += WARP) {
            const long long i = start + (long long)j * inner;
            dot += to<float>(dy[i]) * to<float>(y[i]);
        }
        dot = warp_sum(dot);
        for (int j = lane; j < n; j += WARP) {
            const long long i = start + (long long)j * inner;
            dx[i] = to<T>((to<float>(dy[i]) - dot) * to<float>(y[i]));
        }
    });
}

// y = log(sum(exp(x))) - x[label], slope = softmax(x) - target; 0 where `ignores` and the label is `ignored`.
// `smoothing` of the target is spread over all classes.
template <class T, class L>
__global__ void cross_entropy(
    const T* logits, const L* labels, float* y, float* slope, float smoothing, int ignores, long long ignored, int rows,
    int classes) {
    const float rest = 1 - smoothing, spread = smoothing / classes;
    each_row(rows, [&](int row, int lane) {
        const T* x = logits + (long long)row * classes;
        float* s = slope + (long long)row * classes;
        const L label = labels[row];
        const bool skipped = ignores && label == ignored;
        if (skipped || label < 0 || label >= classes) {
            const float nothing = skipped ? 0 : not_a_number();
            for (int j = lane; j < classes; j += WARP) s[j] = nothing;
            if (lane == 0) y[row] = nothing;
            return;
        }
        const Mass m = mass(classes, lane, [&](int j) { return to<float>(x[j]); });
        float drop = 0;
        for (int j = lane; j < classes; j += WARP) {
            const float below = to<float>(x[j]) - m.best;
            drop += below;
            s[j] = expf(below) / m.total - spread - (j == label ? rest : 0);
        }
        drop = warp_sum(drop);
        float loss = logf(m.total) - rest * (to<float>(x[label]) - m.best);
        if (smoothing != 0) loss -= spread * drop;  // else 0 times minus infinity where a logit is that
        if (lane == 0) y[row] = loss;
    });
}

// With t the target, smoothed: y = sum(t) log(sum(exp(x))) - t x, slope = sum(t) softmax(x) - t.
template <class T>
__global__ void soft_cross_entropy(
    const T* logits, const float* targets, float* y, float* slope, float smoothing, int rows, int classes) {
    const float rest = 1 - smoothing, spread = smoothing / classes;
    each_row(rows, [&](int row, int lane) {
        const long long start = (long long)row * classes;
        const Mass m = mass(classes, lane, [&](int j) { return to<float>(logits[start + j]); });
        float all = 0, dot = 0;
        for (int j = lane; j < classes; j += WARP) {
            const float target = rest * targets[start + j] + spread;
            all += target;
            dot += target * (to<float>(logits[start + j]) - m.best);
        }
        all = warp_sum(all);
        dot = warp_sum(dot);
        for (int j = lane; j < classes; j += WARP) {
            const float target = rest * targets[start + j] + spread;
            slope[start + j] = all * (expf(to<float>(logits[start + j]) - m.best) / m.total) - target;
        }
        if (lane == 0) y[row] = all * logf(m.total) - dot;
    });
}

// dx[row, j] = slope[row, j] dy[row]: backward of both cross-entropies.
template <class T> __global__ void scale_rows(const float* slope, const float* dy, T* dx, int classes, long long n) {
    each(n, 1, [&](long long i) { dx[i] = to<T>(slope[i] * dy[i / classes]); });
}

// y = 1 where fewer than k logits are ahead of the label's: larger, NaN, or as large and earlier.
template <class T, class L>
__global__ void among_the_best(const T* logits, const L* labels, float* y, int k, int rows, int classes) {
    each_row(rows, [&](int row, int lane) {
        const T* x = logits + (long long)row * classes;
        const L label = labels[row];
        const bool valid = label >= 0 && label < classes;
        const float mine = valid ? to<float>(x[label]) : not_a_number();
        int ahead = 0;
        for (int j = lane; j < classes; j += WARP) {
            const float other = to<float>(x[j]);
            ahead += j != label && !(j < label ? other < mine : other <= mine);
        }
        ahead = warp_sum(ahead);
        if (lane == 0) y[row] = valid && mine == mine && ahead < k;
    });
}
