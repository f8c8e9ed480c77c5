// Passes over flat arrays that make a local step: what turns gradients into steps, corrections and sums, by the formula
// of the run's optimiser. mpibow.kernels.numpy.flat defines them.
//
// A rank's k replicas are rows of weights and gradients, `stride` elements apart, and of states, `kept` apart; all are
// done in one launch, in row order. Every number that changes from one iteration to the next is read from device memory.
#include <formula.cuh>  // of this run: mpibow.cuda.kernels.formulas writes it

#include "chunk.cuh"
#include "step.cuh"

static_assert(STATES <= 4, "passes take four states");
constexpr int KEPT = STATES > 0 ? STATES : 1;

// Elements before `end`, and behind the span before, are of this group.
struct Span { long long end, group; };

__device__ inline long long group_of(const Span* spans, long long i) {
    while (spans->end <= i) spans++;
    return spans->group;
}

// g <- the steps of a pack of weights, whose states follow; `scalars` are the formula's.
__device__ inline void packs(const float (&w)[V], float (&g)[V], float (&states)[KEPT][V], const float* scalars) {
    float c[SCALARS > 0 ? SCALARS : 1];
    for (int m = 0; m < SCALARS; m++) c[m] = scalars[m];
    for (int n = 0; n < V; n++) {
        float own[KEPT];
        for (int m = 0; m < STATES; m++) own[m] = states[m][n];
        g[n] = stepped(w[n], g[n], own, c);
        for (int m = 0; m < STATES; m++) states[m][n] = own[m];
    }
}

// A row's pack of steps at element i, its states updated. A row whose gradient overflowed stands still.
__device__ inline void row_steps(
    const float (&w)[V], float* const (&states)[4], long long row, const float* gradients, long long i, long long size,
    const float* scalars, bool lost, float (&u)[V]) {
    float own[KEPT][V];
    for (int m = 0; m < STATES; m++) load(states[m] + row, i, size, own[m]);
    load(gradients, i, size, u);
    packs(w, u, own, scalars);
    for (int n = 0; lost && n < V; n++) u[n] = 0;
    for (int m = 0; m < STATES && !lost; m++) store(states[m] + row, i, size, own[m]);
}

// w_i <- w_i + u_i - alpha (w_i - centre) + gain common; total <- (begin ? 0 : total) + sum of u_i, squares[chunk] alike.
// norms (k,) may be null: |g_i|^2, not finite where a row's step is to be left out.
__global__ void __launch_bounds__(THREADS) sma_update(
    float* weights, float* s0, float* s1, float* s2, float* s3, const float* gradients, float* total, double* squares,
    const float* centre, const float* common, const Step* step, const float* scalars, const Span* spans,
    const double* norms, long long size, long long stride, long long kept, int k,
    int groups) {
    float* const states[] = {s0, s1, s2, s3};
    const Step s = *step;
    double square = 0;
    each_of_chunk(size, [&](long long i) {
        float sum[V] = {}, z[V] = {}, further[V] = {};
        const float* own = scalars + group_of(spans, i) * SCALARS;
        if (!s.begin) load(total, i, size, sum);
        if (s.alpha != 0) load(centre, i, size, z);
        if (s.gain != 0) load(common, i, size, further);
        for (int row = 0; row < k; row++) {
            float w[V], u[V];
            load(weights + row * stride, i, size, w);
            row_steps(w, states, row * kept, gradients + row * stride, i, size, own, norms && !is_finite(norms[row]), u);
            for (int n = 0; n < V; n++) {
                square += double(u[n]) * double(u[n]);
                sum[n] = s.begin && row == 0 ? u[n] : sum[n] + u[n];
                if (s.alpha != 0) u[n] = u[n] - s.alpha * (w[n] - z[n]);
                if (s.gain != 0) u[n] = u[n] + s.gain * further[n];
                w[n] = w[n] + u[n];
            }
            store(weights + row * stride, i, size, w);
            own += groups * SCALARS;
        }
        store(total, i, size, sum);
    });
    square = block_sum(square);
    if (threadIdx.x == 0) squares[blockIdx.x] = s.begin ? square : squares[blockIdx.x] + square;
}

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
