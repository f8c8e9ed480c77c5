// Passes over flat arrays that make a local step: what turns gradients into steps, corrections and sums, by the formula
// of the run's optimiser. mpibow.kernels.numpy.flat defines them.
#include <formula.cuh>  // of this run: mpibow.cuda.kernels.formulas writes it

#include "rows.cuh"

// Learners that are all this rank's: U = sum of u_i goes into the weights at once. W is the mean of the rows as they were.
// w_i <- w_i + u_i - alpha (w_i - W) + gain U; sums[chunk] <- (sum |u_i|^2, |U|^2).
__global__ void __launch_bounds__(THREADS) sma_alone(
    float* weights, float* s0, float* s1, float* s2, float* s3, const float* gradients, double* sums, const Step* step,
    const float* scalars, const Span* spans, const double* norms, long long size, long long stride, long long kept, int k,
    int groups) {
    float* const states[] = {s0, s1, s2, s3};
    const Step s = *step;
    double squares = 0, square = 0;
    each_of_chunk(size, [&](long long i) {
        float total[V] = {}, m[V] = {};
        const float* own = scalars + group_of(spans, i) * SCALARS;
        if (s.alpha != 0) mean_of(weights, i, size, stride, k, m);  // by which the rows lie in a cache
        for (int row = 0; row < k; row++) {
            float w[V], u[V];
            load(weights + row * stride, i, size, w);
            row_steps(w, states, row * kept, gradients + row * stride, i, size, own + row * groups * SCALARS, norms && !is_finite(norms[row]), u);
            for (int n = 0; n < V; n++) {
                squares += double(u[n]) * double(u[n]);
                total[n] = total[n] + u[n];
                if (s.alpha != 0) u[n] = u[n] - s.alpha * (w[n] - m[n]);
                w[n] = w[n] + u[n];
            }
            store(weights + row * stride, i, size, w);
        }
        for (int row = 0; s.gain != 0 && row < k; row++) {  // U is known only now; the row is in a cache still
            float w[V];
            load(weights + row * stride, i, size, w);
            for (int n = 0; n < V; n++) w[n] = w[n] + s.gain * total[n];
            store(weights + row * stride, i, size, w);
        }
        for (int n = 0; n < V; n++) square += double(total[n]) * double(total[n]);
    });
    squares = block_sum(squares);
    square = block_sum(square);
    if (threadIdx.x == 0) {
        sums[2 * blockIdx.x] = squares;
        sums[2 * blockIdx.x + 1] = square;
    }
}

// One step with `scale` times the summed gradient, the same for every row; and mean <- the weights where it is not null.
// norm (1,) may be null: the gradient's |g|^2, not finite where the step is to be left out.
__global__ void sgd_update(
    float* weights, float* s0, float* s1, float* s2, float* s3, const float* gradient, float* mean, const Step* step,
    const float* scalars, const Span* spans, const double* norm, long long size, long long stride,
    long long kept, int k) {
    float* const states[] = {s0, s1, s2, s3};
    const Step s = *step;
    if (norm && !is_finite(*norm)) return;
    each(size, V, [&](long long i) {
        float w[V], g[V], own[KEPT][V];
        load(weights, i, size, w);
        load(gradient, i, size, g);
        for (int m = 0; m < STATES; m++) load(states[m], i, size, own[m]);
        for (int n = 0; n < V; n++) g[n] = s.scale * g[n];
        packs(w, g, own, scalars + group_of(spans, i) * SCALARS);
        for (int n = 0; n < V; n++) w[n] = w[n] + g[n];
        for (int row = 0; row < k; row++) {
            store(weights + row * stride, i, size, w);
            for (int m = 0; m < STATES; m++) store(states[m] + row * kept, i, size, own[m]);
        }
        if (mean) store(mean, i, size, w);
    });
}
